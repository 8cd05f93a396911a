/* SPDX-License-Identifier: MIT
 * server/serve_options.h - the command line of `weir serve`. */

#ifndef WEIR_SERVE_OPTIONS_H
#define WEIR_SERVE_OPTIONS_H

#include "core/counted/message.h"
#include "core/counted/tally.h"
#include "front/exposure.h"
#include "front/log.h"
#include "io/address.h"
#include "server/doorman/doorman_config.h"
#include "server/election/election.h"

#define WEIR_PATH_MAX 4096
#define WEIR_OPTION_REMARKS_MAX 16

struct weir_serve_options {
    char store[WEIR_PATH_MAX]; /* "sqlite:FILE" */
    bool own_store;            /* the default one: made if it doesn't exist */
    const char *region;        /* NULL: a top root; borrowed, as are the next
                                * four */
    const char *upstream_ca, *upstream_cert, *upstream_key;
    const char *upstream_token_file;
    struct weir_address upstream[WEIR_ROOTS_MAX];
    uint32_t upstreams;
    uint32_t slots;             /* of a region's table */
    const char *doorman_config; /* NULL: no Doorman file; borrowed, as are the
                                 * next */
    struct weir_doorman_location doorman; /* parsed */
    bool doorman_insecure; /* Doorman's calls need no credential */
    bool alone;            /* no lease is out at the start */
    enum weir_election_kind election;
    const char *election_path; /* of the lock; "": none */
    const char *election_key;  /* of etcd; NULL: the default */
    weir_duration election_ttl;
    char hostname[256]; /* without brackets; "": the host of 'listen' */
    struct weir_address etcd[WEIR_ETCD_ENDPOINTS_MAX];
    uint32_t etcd_count;
    struct weir_login_options etcd_login;
    bool tls; /* certificates must be named */
    struct weir_address listen;
    struct weir_address http;
    bool http_off;
    const char *public_origin;       /* NULL: none; borrowed from argv */
    struct weir_listen_address resp; /* for clients of Redis … */
    bool resp_on;
    bool resp_counted; /* … with keys that the fleet counts */
    const char *name;  /* NULL: host and port; borrowed from argv, like
                              * the texts of 'exposure' */
    struct weir_exposure exposure; /* certificates and credentials */
    struct weir_settings settings;
    const char *snapshot; /* NULL: the default path; borrowed */
    bool snapshot_off;
    const char *port_file; /* NULL: none; borrowed from argv */
    enum weir_log_level log_level;
    /* For the log: flags without a meaning. */
    struct weir_diag remarks[WEIR_OPTION_REMARKS_MAX];
    size_t remark_count; /* that are kept */
};

/* The text of `weir serve --help`. */
extern const char weir_serve_help[];

/* "SCHEME/home/me/.local/share/weir/NAME". False: there is no HOME. */
bool weir_serve_own_file(const char *scheme, const char *name,
                         char path[WEIR_PATH_MAX]);

/* "HOST:PORT" of a root that listens on 'port', as clients know it. */
void weir_serve_identity(const struct weir_serve_options *options,
                         uint16_t port, char out[WEIR_MASTER_MAX + 1]);

/* Reads the environment too, of a process with a Doorman file. Texts are
 * borrowed from both. 0, 1 when help was asked for, or a negative error with
 * 'diag' filled. */
int weir_serve_options_parse(int argc, char **argv,
                             struct weir_serve_options *out,
                             struct weir_diag *diag);

#endif /* WEIR_SERVE_OPTIONS_H */
