/* SPDX-License-Identifier: MIT
 * server/root_loop.h - runs the root node on the event loop: ticks at its
 * deadlines, and sends its messages. One thread, that of the loop. */

#ifndef WEIR_ROOT_LOOP_H
#define WEIR_ROOT_LOOP_H

#include "front/log.h"
#include "server/election/mastership.h"
#include "server/upstream.h"

struct weir_root_loop;

struct weir_root_loop_options {
    struct event_base *base; /* borrowed, as all below */
    struct weir_root *root;
    struct weir_log *log;
    struct weir_upstream *upstream; /* of a region's root; NULL: a top root */
    struct weir_region *region;     /* likewise */
};

/* NULL: no memory. */
struct weir_root_loop *weir_root_loop_new(
    const struct weir_root_loop_options *options);
/* NULL inside is legal. */
void weir_root_loop_free(struct weir_root_loop **loop);

/* Sends a message of the root; 'peer' may be unknown by now. It may link and
 * unlink peers. */
typedef void weir_root_send_fn(void *context, uint32_t peer,
                               const struct weir_message *message);
/* The listener of the root's peers; NULL: messages are dropped. */
void weir_root_loop_set_sender(struct weir_root_loop *loop,
                               weir_root_send_fn *send, void *context);
/* The mastership that allows grants; borrowed; NULL: none. Without one grants
 * are sent as the root makes them. */
void weir_root_loop_set_mastership(struct weir_root_loop *loop,
                                   struct weir_mastership *mastership);
/* The root received something, or its quotas were changed: runs it at the end
 * of this turn of the event loop. */
void weir_root_loop_kick(struct weir_root_loop *loop);

#endif /* WEIR_ROOT_LOOP_H */
