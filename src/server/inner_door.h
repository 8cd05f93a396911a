/* SPDX-License-Identifier: MIT
 * server/inner_door.h - doors of door/ at a root: `weir serve --resp`.
 *
 * They decide as an agent's do, by a limiter; this one is in the root's own
 * process and linked to it by loopback, as any other is. So nothing here knows
 * the root, and the root knows of one more limiter. It shows no credential and
 * speaks plain text: a root that wants either has an agent beside it. */

#ifndef WEIR_INNER_DOOR_H
#define WEIR_INNER_DOOR_H

#include "os/place.h"

struct event_base;
struct weir_inner_door;

struct weir_inner_door_options {
    struct event_base *base;    /* borrowed */
    const char *name;           /* of the root */
    const char *version;        /* of Weir; static */
    struct weir_address listen; /* where the root does … */
    uint16_t port;              /* … and the port that it has */
    struct weir_place resp;
    bool resp_counted; /* CL.THROTTLE's keys are the fleet's */
};

/* Opens the limiter, which connects once the loop runs, and the door. Errors
 * as of weir_open() and weir_resp_door_new(), with 'diag' filled. */
int weir_inner_door_new(const struct weir_inner_door_options *options,
                        struct weir_inner_door **out, struct weir_diag *diag);
/* Where clients of Redis are heard. */
const struct weir_place *weir_inner_door_resp(
    const struct weir_inner_door *door);
/* Closes the door, and the limiter in a thread of its own: its last counts are
 * this loop's to answer, which has to run on until it is done. */
void weir_inner_door_stop(struct weir_inner_door *door);
bool weir_inner_door_is_done(struct weir_inner_door *door);
/* Stops it, if it wasn't, and waits. NULL inside is legal. Blocking: at most
 * WEIR_CLOSE_PATIENCE, where the loop doesn't run. */
void weir_inner_door_free(struct weir_inner_door **door);

#endif /* WEIR_INNER_DOOR_H */
