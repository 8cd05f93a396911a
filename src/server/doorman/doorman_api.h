/* SPDX-License-Identifier: MIT
 * server/doorman/doorman_api.h - doorman.Capacity: the four calls of Doorman's
 * old clients and servers, answered from the leases of the root.
 *
 *     bytes -> codec/doorman.h -> weir_root_lease_ask() -> grants -> bytes
 *
 * Knows no sockets: grpc_api.c passes the calls in, and has checked the
 * credentials. One thread, that of the loop. */

#ifndef WEIR_DOORMAN_API_H
#define WEIR_DOORMAN_API_H

#include "codec/doorman.h"
#include "front/log.h"
#include "server/doorman/doorman_source.h"
#include "server/election/mastership.h"

/* Resources of one call: each may cost a search of all templates. Empty ids of
 * a release don't count. */
#define WEIR_DOORMAN_ROWS_MAX 4096
/* The lease of a resource without a leased quota, which gets all that it asks
 * for. Nothing else is known of it. */
#define WEIR_DOORMAN_UNKNOWN_LEASE (20 * WEIR_SECOND)
#define WEIR_DOORMAN_UNKNOWN_REFRESH (5 * WEIR_SECOND)

enum weir_doorman_method {
    WEIR_DOORMAN_NONE = -1,
    WEIR_DOORMAN_METHOD_DISCOVERY,
    WEIR_DOORMAN_METHOD_GET,
    WEIR_DOORMAN_METHOD_SERVER,
    WEIR_DOORMAN_METHOD_RELEASE,
};
#define WEIR_DOORMAN_METHODS 4
/* "GetCapacity" …; static. */
const char *weir_doorman_method_name(enum weir_doorman_method method);
/* By the path of a call; WEIR_DOORMAN_NONE: not one of them. */
enum weir_doorman_method weir_doorman_method_of(const char *path);

struct weir_doorman_api;

struct weir_doorman_api_options {
    struct weir_root *root; /* borrowed, as is 'log' */
    struct weir_log *log;   /* NULL: no log */
};

/* NULL: no memory. */
struct weir_doorman_api *weir_doorman_api_new(
    const struct weir_doorman_api_options *options);
/* NULL inside is legal. */
void weir_doorman_api_free(struct weir_doorman_api **api);

/* The mastership that allows grants, and this server's address ("HOST:PORT");
 * both borrowed. Until then nothing is granted. */
void weir_doorman_api_set_mastership(struct weir_doorman_api *api,
                                     struct weir_mastership *mastership,
                                     const char *identity);

/* The Doorman file that the quotas come from; borrowed. NULL, as at first:
 * none. */
void weir_doorman_api_set_source(struct weir_doorman_api *api,
                                 const struct weir_doorman_source *source);

struct weir_doorman_call {
    enum weir_doorman_method method; /* not NONE */
    const void *bytes;
    size_t len;
    uint32_t way; /* the connection, as for weir_root_lease_ask() */
    struct weir_root_names names; /* that the client may take from; a row of
                                   * another resource is left out, and a call
                                   * without any row left is refused; 'set'
                                   * isn't NULL */
};
/* Answers: returns WEIR_GRPC_OK and sets '*out', borrowed until the next call;
 * or another status, and '*out' is the sentence, NUL-terminated. A row
 * with an invalid amount is answered for the nearest valid one, one with an
 * invalid id is left out; a call that has only such ids is refused. */
int weir_doorman_api_call(struct weir_doorman_api *api,
                          const struct weir_doorman_call *call,
                          struct weir_text *out, weir_instant now);

/* Histogram of the durations of each method: upper bounds in seconds. */
#define WEIR_DOORMAN_BUCKETS 11
extern const double weir_doorman_buckets_s[WEIR_DOORMAN_BUCKETS];
struct weir_doorman_method_stats {
    uint64_t requests;
    uint64_t errors;
    uint64_t buckets[WEIR_DOORMAN_BUCKETS]; /* each without those before */
    double total_s;
};
struct weir_doorman_api_stats {
    struct weir_doorman_method_stats methods[WEIR_DOORMAN_METHODS];
    uint64_t unknown;   /* requested resources without a leased quota */
    uint64_t elsewhere; /* answers that another server is the master */
    uint64_t bad_rows;  /* requested resources with an invalid id or amount */
};
void weir_doorman_api_stats(const struct weir_doorman_api *api,
                            struct weir_doorman_api_stats *out);

#endif /* WEIR_DOORMAN_API_H */
