/* SPDX-License-Identifier: MIT
 * server/root_resp.h - decisions for Redis clients at a root: `weir serve
 * --resp`.
 *
 * They decide as an agent's do, by a limiter. This limiter is in the root's own
 * process and linked to it by loopback, like any other. So nothing here knows
 * the root, and for the root it is one more limiter. It shows no credential and
 * uses plain text: beside a root that wants TLS or credentials, run an
 * agent. */

#ifndef WEIR_ROOT_RESP_H
#define WEIR_ROOT_RESP_H

#include "io/address.h"

struct event_base;
struct weir_root_resp;

struct weir_root_resp_options {
    struct event_base *base;    /* borrowed */
    const char *name;           /* of the root */
    const char *version;        /* of Weir; static */
    struct weir_address listen; /* the root's listen address … */
    uint16_t port;              /* … and its port */
    struct weir_listen_address resp;
    bool resp_counted; /* the fleet counts the keys of CL.THROTTLE */
};

/* Opens the limiter, which connects once the loop runs, and the listener.
 * Errors as of weir_open() and weir_resp_listener_new(), with 'diag' filled. */
int weir_root_resp_new(const struct weir_root_resp_options *options,
                       struct weir_root_resp **out, struct weir_diag *diag);
/* The listen address for clients of Redis. */
const struct weir_listen_address *weir_root_resp_address(
    const struct weir_root_resp *inner);
/* Closes the listener, and the limiter in a thread of its own. The loop has to
 * run on until that is done, because it answers the limiter's last counts. */
void weir_root_resp_stop(struct weir_root_resp *inner);
bool weir_root_resp_is_done(struct weir_root_resp *inner);
/* Stops it, if it wasn't, and waits. NULL inside is legal. Blocking: at most
 * WEIR_CLOSE_PATIENCE, if the loop doesn't run. */
void weir_root_resp_free(struct weir_root_resp **inner);

#endif /* WEIR_ROOT_RESP_H */
