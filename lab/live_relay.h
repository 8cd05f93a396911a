/* SPDX-License-Identifier: MIT
 * lab/live_relay.h - the way from one limiter to one root of a live run: a
 * port of the parent's that passes on what comes, as long as it may.
 *
 * The limiter knows the relay's port only, so a root that was started again
 * may have another one, and a link can be cut. */

#ifndef WEIR_LIVE_RELAY_H
#define WEIR_LIVE_RELAY_H

#include "lab/fleet.h"
#include "os/stream.h"

struct weir_relay;

/* WEIR_ESYSTEM with 'diag' filled when the system gives no port. */
int weir_relay_new(struct event_base *base, struct weir_relay **out,
                   struct weir_diag *diag);
void weir_relay_free(struct weir_relay **relay);
uint16_t weir_relay_port(const struct weir_relay *relay);
/* Where connections lead from now on. NULL: nowhere; they are refused. */
void weir_relay_aim(struct weir_relay *relay,
                    const struct weir_address *target);
/* What was said on these ways waits from now on, as it does when a network
 * loses what TCP sends (0: all that waited goes on). With both ways cut, the
 * connection is ended and refused after 'noticed' (0: at once). */
void weir_relay_cut(struct weir_relay *relay, enum weir_way ways,
                    weir_duration noticed);
/* Ends the connection; the next one is welcome. */
void weir_relay_reset(struct weir_relay *relay);
/* It has a connection, and passes on what comes on it. */
bool weir_relay_is_up(const struct weir_relay *relay);
/* Bytes passed on so far, both ways. */
uint64_t weir_relay_bytes(const struct weir_relay *relay);

#endif /* WEIR_LIVE_RELAY_H */
