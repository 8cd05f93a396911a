/* SPDX-License-Identifier: MIT
 * protocol/resp/resp_listener.h - decisions for clients of Redis.
 *
 *     CL.THROTTLE key max_burst count period [quantity]   as redis-cell has it
 *     CL.PROBE    the same, without a change
 *     WEIR.TAKE name [weight], WEIR.PEEK name [weight]    quotas of the roots
 *     WEIR.CHARGE name units, WEIR.SETTLE name charged actual
 *     DEL key …                                           resets throttles
 *     MULTI EXEC DISCARD UNWATCH                          all or none
 *     AUTH HELLO PING ECHO SELECT CLIENT COMMAND CONFIG INFO RESET QUIT
 *
 * The keys of CL.THROTTLE come with their rates. Either they live in this
 * process's memory (protocol/resp/throttle.h), and another agent counts the
 * same key separately; or they are transient quotas that the fleet counts
 * (protocol/resp/throttle_counted.h). */

#ifndef WEIR_RESP_LISTENER_H
#define WEIR_RESP_LISTENER_H

#include "protocol/protocol.h"
#include "protocol/resp/throttle.h"

struct weir_resp_listener;

/* Listens. 'throttle' is borrowed, and listeners of one agent share it; NULL:
 * the fleet counts the keys. Errors as weir_conn_server_new(). */
int weir_resp_listener_new(const struct weir_protocol_host *host,
                           const struct weir_listen_address *place,
                           struct weir_throttle *throttle,
                           struct weir_resp_listener **out,
                           struct weir_diag *diag);
const struct weir_listen_address *weir_resp_listener_address(
    const struct weir_resp_listener *listener);
/* Credentials or certificates were reloaded: ends the connections of peers that
 * have shown one that isn't valid any more. */
void weir_resp_listener_recheck(struct weir_resp_listener *listener);
/* NULL inside is legal. */
void weir_resp_listener_free(struct weir_resp_listener **listener);

#endif /* WEIR_RESP_LISTENER_H */
