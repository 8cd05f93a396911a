/* SPDX-License-Identifier: MIT
 * server/serve_options.h - the command line of `weir serve`. */

#ifndef WEIR_SERVE_OPTIONS_H
#define WEIR_SERVE_OPTIONS_H

#include "count/message.h"
#include "count/tally.h"
#include "os/stream.h"
#include "server/log.h"

#define WEIR_PATH_MAX 4096

struct weir_serve_options {
    char store[WEIR_PATH_MAX]; /* "sqlite:FILE" */
    bool own_store;            /* not named: made when it isn't there */
    const char *region;        /* NULL: a top root; borrowed, as are the next
                                * four */
    const char *upstream_ca, *upstream_cert, *upstream_key;
    const char *upstream_token_file;
    struct weir_address upstream[WEIR_ROOTS_MAX];
    uint32_t upstreams;
    uint32_t slots;            /* of a region's table */
    struct weir_address listen;
    struct weir_address http;
    bool http_off;
    const char *name;          /* NULL: host and port; borrowed from argv, as
                                * are the next four */
    const char *tls_cert;      /* NULL, as 'tls_key': plain text */
    const char *tls_key;
    const char *tls_ca;        /* NULL: clients show no certificate */
    const char *credentials;   /* NULL: everybody may do all */
    bool insecure;             /* strangers may reach that */
    struct weir_settings settings;
    const char *snapshot;      /* NULL: where none was named; borrowed */
    bool snapshot_off;
    const char *port_file;     /* NULL: none; borrowed from argv */
    enum weir_log_level log_level;
};

/* What `weir serve --help` prints. */
extern const char weir_serve_help[];

/* "SCHEME/home/me/.local/share/weir/NAME". False: there is no HOME. */
bool weir_serve_own_file(const char *scheme, const char *name,
                         char path[WEIR_PATH_MAX]);

/* 0, 1 when help was asked for, or a negative error with 'diag' filled. */
int weir_serve_options_parse(int argc, char **argv,
                             struct weir_serve_options *out,
                             struct weir_diag *diag);

#endif /* WEIR_SERVE_OPTIONS_H */
