/* SPDX-License-Identifier: MIT
 * server/inner_door.h - protocols of door/ at a root: `weir serve --resp`.
 *
 * They decide as an agent's do, by a limiter. This limiter is in the root's own
 * process and linked to it by loopback, like any other. So nothing here knows
 * the root, and for the root it is one more limiter. It shows no credential and
 * uses plain text: beside a root that wants TLS or credentials, run an
 * agent. */

#ifndef WEIR_INNER_DOOR_H
#define WEIR_INNER_DOOR_H

#include "os/place.h"

struct event_base;
struct weir_inner_door;

struct weir_inner_door_options {
    struct event_base *base;    /* borrowed */
    const char *name;           /* of the root */
    const char *version;        /* of Weir; static */
    struct weir_address listen; /* the root's listen address … */
    uint16_t port;              /* … and its port */
    struct weir_place resp;
    bool resp_counted; /* the fleet counts the keys of CL.THROTTLE */
};

/* Opens the limiter, which connects once the loop runs, and the listener.
 * Errors as of weir_open() and weir_resp_door_new(), with 'diag' filled. */
int weir_inner_door_new(const struct weir_inner_door_options *options,
                        struct weir_inner_door **out, struct weir_diag *diag);
/* The listen address for clients of Redis. */
const struct weir_place *weir_inner_door_resp(
    const struct weir_inner_door *door);
/* Closes the listener, and the limiter in a thread of its own. The loop has to
 * run on until that is done, because it answers the limiter's last counts. */
void weir_inner_door_stop(struct weir_inner_door *door);
bool weir_inner_door_is_done(struct weir_inner_door *door);
/* Stops it, if it wasn't, and waits. NULL inside is legal. Blocking: at most
 * WEIR_CLOSE_PATIENCE, if the loop doesn't run. */
void weir_inner_door_free(struct weir_inner_door **door);

#endif /* WEIR_INNER_DOOR_H */
