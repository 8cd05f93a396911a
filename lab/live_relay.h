/* SPDX-License-Identifier: MIT
 * lab/live_relay.h - the path from one limiter to one root of a live run: a
 * port of the parent process that forwards bytes both ways unless cut.
 *
 * The limiter knows the relay's port only, so a restarted root may have another
 * port, and a link can be cut. */

#ifndef WEIR_LIVE_RELAY_H
#define WEIR_LIVE_RELAY_H

#include "io/stream.h"
#include "lab/fleet.h"

struct weir_relay;

/* WEIR_ESYSTEM with 'diag' filled if the system gives no port. */
int weir_relay_new(struct event_base *base, struct weir_relay **out,
                   struct weir_diag *diag);
void weir_relay_free(struct weir_relay **relay);
uint16_t weir_relay_port(const struct weir_relay *relay);
/* The target of connections from now on. NULL: none; they are refused. */
void weir_relay_aim(struct weir_relay *relay,
                    const struct weir_address *target);
/* From now on bytes on these ways are kept back, as when a network loses TCP's
 * packets (0: the kept bytes go on). With both ways cut, the connection is
 * ended, and new ones are refused, after 'noticed' (0: at once). */
void weir_relay_cut(struct weir_relay *relay, enum weir_way ways,
                    weir_duration noticed);
/* Ends the connection; the next one is accepted. */
void weir_relay_reset(struct weir_relay *relay);
/* Whether it has a connection and forwards it. */
bool weir_relay_is_up(const struct weir_relay *relay);
/* Bytes forwarded so far, both ways. */
uint64_t weir_relay_bytes(const struct weir_relay *relay);

#endif /* WEIR_LIVE_RELAY_H */
