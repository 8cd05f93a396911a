/* SPDX-License-Identifier: MIT
 * os/etcd_watch.h - one key of etcd: its value now, and at each change.
 *
 *     key ---read at revision R---> on_value
 *         ---watch from R + 1-----> on_value, on_value, ...
 *
 * No change is missed between the two, nor when the connection breaks, or etcd
 * has compacted its history: then the key is read again, and told of if it has
 * changed since. (Of several changes at once the last is told.) Every
 * WEIR_ETCD_WATCH_CHECK it is read anyway, so that a member of the cluster
 * that is cut off from the rest, and would tell of no changes, is left.
 *
 * One thread, that of the loop. */

#ifndef WEIR_ETCD_WATCH_H
#define WEIR_ETCD_WATCH_H

#include "os/etcd.h"

#define WEIR_ETCD_WATCH_CHECK (30 * WEIR_SECOND)
#define WEIR_ETCD_WATCH_PATIENCE (10 * WEIR_SECOND) /* for an answer */

struct weir_etcd_watch;

struct weir_etcd_value {
    bool found;             /* there is such a key */
    struct weir_text bytes; /* borrowed for the call */
    int64_t revision;       /* of the change that made it so */
};

struct weir_etcd_watch_options {
    struct event_base *base;              /* borrowed */
    const struct weir_address *endpoints; /* copied, as all below */
    uint32_t count;                       /* 1 .. WEIR_ETCD_ENDPOINTS_MAX */
    struct weir_login_options login;      /* TLS */
    const char *key;                      /* 1 .. WEIR_ETCD_KEY_MAX bytes */
    /* Once it is known, and whenever it has changed. Neither may free. */
    void (*on_value)(void *context, const struct weir_etcd_value *value);
    /* What is wrong, for people, and what to do; said once. NULL: it is well
     * again. The last value holds meanwhile. */
    void (*on_trouble)(void *context, const char *why);
    void *context;
};

/* The errors of weir_etcd_new(), and WEIR_EINVAL for the key. An etcd that
 * can't be reached is none: it is tried again, for ever. */
int weir_etcd_watch_new(const struct weir_etcd_watch_options *options,
                        struct weir_etcd_watch **out, struct weir_diag *diag);
/* Reads it at once, whatever is known. */
void weir_etcd_watch_read(struct weir_etcd_watch *watch);
/* NULL inside is legal. */
void weir_etcd_watch_free(struct weir_etcd_watch **watch);

#endif /* WEIR_ETCD_WATCH_H */
