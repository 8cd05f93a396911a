/* SPDX-License-Identifier: MIT
 * io/etcd_watch.h - one key of etcd: its value now, and at each change.
 *
 *     key ---read at revision R---> on_value
 *         ---watch from R + 1-----> on_value, on_value, ...
 *
 * No change is missed between the two. When the connection breaks, or etcd has
 * compacted its history, the key is read again, and reported if it has changed.
 * (Of several changes at once only the last is reported.) Every
 * WEIR_ETCD_WATCH_CHECK the key is read in any case: this detects a member that
 * is cut off from its cluster, which would report no changes, and the client
 * leaves it.
 *
 * One thread, that of the loop. */

#ifndef WEIR_ETCD_WATCH_H
#define WEIR_ETCD_WATCH_H

#include "io/etcd.h"

#define WEIR_ETCD_WATCH_CHECK (30 * WEIR_SECOND)
#define WEIR_ETCD_WATCH_PATIENCE (10 * WEIR_SECOND) /* for an answer */

struct weir_etcd_watch;

struct weir_etcd_value {
    bool found;             /* the key exists */
    struct weir_text bytes; /* borrowed for the call */
    int64_t revision;       /* of the value's last change */
};

struct weir_etcd_watch_options {
    struct event_base *base;              /* borrowed */
    const struct weir_address *endpoints; /* copied, as all below */
    uint32_t count;                       /* 1 .. WEIR_ETCD_ENDPOINTS_MAX */
    struct weir_login_options login;      /* TLS */
    const char *key;                      /* 1 .. WEIR_ETCD_KEY_MAX bytes */
    /* Called when the value is known, and at each change. Neither callback may
     * free the watch. */
    void (*on_value)(void *context, const struct weir_etcd_value *value);
    /* The trouble and what to do about it, reported once; NULL: it is over. The
     * last value stays in force meanwhile. */
    void (*on_trouble)(void *context, const char *why);
    void *context;
};

/* The errors of weir_etcd_new(), and WEIR_EINVAL for the key. An unreachable
 * etcd is no error: the client retries for ever. */
int weir_etcd_watch_new(const struct weir_etcd_watch_options *options,
                        struct weir_etcd_watch **out, struct weir_diag *diag);
/* Reads the key at once. */
void weir_etcd_watch_read(struct weir_etcd_watch *watch);
/* NULL inside is legal. */
void weir_etcd_watch_free(struct weir_etcd_watch **watch);

#endif /* WEIR_ETCD_WATCH_H */
