/* SPDX-License-Identifier: MIT
 * server/upstream.h - a region's links to the roots above it: what a service's
 * background thread is to a limiter node, on the root's own loop.
 *
 *     upstream roots <- os/root_link -> weir_region (node/region.h)
 *                                          |  the root half: door_grpc
 *
 * The door of limiters is the pump of both halves: in each of its turns it
 * calls weir_upstream_tick(), says what the root half has to say, and calls
 * weir_upstream_flush(). */

#ifndef WEIR_UPSTREAM_H
#define WEIR_UPSTREAM_H

#include "node/region.h"
#include "os/login.h"
#include "server/log.h"
#include "server/snapshot.h"

struct event_base;
struct weir_upstream;

struct weir_upstream_options {
    struct event_base *base; /* borrowed, as the next */
    struct weir_region *region;
    const char *name;                     /* of the region; copied */
    const struct weir_address *addresses; /* copied */
    uint32_t count;                  /* 1 .. WEIR_ROOTS_MAX, as of the region */
    struct weir_login_options login; /* the paths are copied */
    struct weir_log *log;            /* borrowed */
    /* What to go by until an upstream root answers; borrowed; NULL: nothing. */
    struct weir_snapshot *snapshot;
    /* Something came from above: a turn of the pump is due. */
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

/* ---- For the pump ---- */

void weir_upstream_tick(struct weir_upstream *upstream, weir_instant now);
void weir_upstream_flush(struct weir_upstream *upstream, weir_instant now);
weir_instant weir_upstream_deadline(const struct weir_upstream *upstream,
                                    weir_instant now);

/* ---- What people look at ---- */

struct weir_upstream_state {
    const char *name;                     /* of the region; borrowed */
    uint32_t count;                       /* upstream roots … */
    const char *const *addresses;         /* … as text; borrowed */
    bool up[WEIR_ROOTS_MAX];              /* … connected, and not refused */
    const char *problems[WEIR_ROOTS_MAX]; /* why it was refused; static;
                                           * NULL: it wasn't */
    struct weir_region_state region;
};
void weir_upstream_look(const struct weir_upstream *upstream,
                        struct weir_upstream_state *out, weir_instant now);
/* "a:7077, b:7077": for who is to be sent there. */
const char *weir_upstream_text(const struct weir_upstream *upstream);

#endif /* WEIR_UPSTREAM_H */
