/* SPDX-License-Identifier: MIT
 * server/upstream.h - a region's links to the roots above it: the background
 * thread of libweir has the same task for a limiter node, but here the links
 * are on the root's own loop.
 *
 *     upstream roots <- io/root_link -> weir_region (node/region.h)
 *                                          |  the root half: root_loop
 *
 * The root's loop runs both halves: in each of its turns it calls
 * weir_region_tick(), sends the root half's messages, and calls
 * weir_upstream_flush(). */

#ifndef WEIR_UPSTREAM_H
#define WEIR_UPSTREAM_H

#include "core/node/region.h"
#include "front/log.h"
#include "io/login.h"
#include "io/root_links.h"
#include "io/snapshot.h"

struct event_base;
struct weir_upstream;

struct weir_upstream_options {
    struct event_base *base; /* borrowed, as the next */
    struct weir_region *region;
    const char *name;                     /* of the region; copied */
    const struct weir_address *addresses; /* borrowed, for as long */
    uint32_t count;                       /* 1 .. WEIR_ROOTS_MAX; the region has
                                           * weir_root_links_count() links */
    struct weir_login_options login;      /* the paths are copied */
    struct weir_log *log;                 /* borrowed */
    /* The quotas until an upstream root answers; borrowed; NULL: none. */
    struct weir_snapshot *snapshot;
    /* A message came from above: a turn of the root's loop is due. */
    void (*on_news)(void *context);
    void *context;
};

/* Reads the files of the login and the snapshot, and connects from the loop's
 * first turn on. The error of weir_login_check() or WEIR_ENOMEM with 'diag'
 * filled. */
int weir_upstream_new(const struct weir_upstream_options *options,
                      struct weir_upstream **out, struct weir_diag *diag);
/* Closes the links. NULL inside is legal. */
void weir_upstream_free(struct weir_upstream **upstream);

/* Sends the region's messages; for the root's loop. */
void weir_upstream_flush(struct weir_upstream *upstream, weir_instant now);

/* ---- State for people ---- */

struct weir_upstream_state {
    const char *name;                      /* of the region; borrowed */
    uint32_t count;                        /* upstream roots … */
    const char *addresses[WEIR_ROOTS_MAX]; /* … as text; borrowed */
    bool up[WEIR_ROOTS_MAX];               /* … connected, and not refused */
    const char *problems[WEIR_ROOTS_MAX];  /* why it was refused; static; NULL:
                                           * it wasn't */
    struct weir_region_state region;
};
void weir_upstream_look(const struct weir_upstream *upstream,
                        struct weir_upstream_state *out, weir_instant now);
/* "a:7077, b:7077": for clients that have to use them. */
const char *weir_upstream_text(const struct weir_upstream *upstream);

#endif /* WEIR_UPSTREAM_H */
