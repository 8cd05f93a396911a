/* SPDX-License-Identifier: MIT
 * door/resp_door.h - decisions for clients of Redis.
 *
 *     CL.THROTTLE key max_burst count period [quantity]   as redis-cell has it
 *     CL.PROBE    the same, without a change
 *     WEIR.TAKE name [weight], WEIR.PEEK name [weight]    quotas of the roots
 *     DEL key …                                           resets throttles
 *     AUTH HELLO PING ECHO SELECT CLIENT COMMAND CONFIG INFO RESET QUIT
 *
 * The keys of CL.THROTTLE come with their rates. Either they live in this
 * process's memory (door/throttle.h), and another agent counts the same key
 * separately; or they are transient quotas that the fleet counts
 * (door/throttle_counted.h). */

#ifndef WEIR_RESP_DOOR_H
#define WEIR_RESP_DOOR_H

#include "door/door.h"
#include "door/throttle.h"

struct weir_resp_door;

/* Listens. 'throttle' is borrowed, and listeners of one agent share it; NULL:
 * the fleet counts the keys. Errors as weir_talk_server_new(). */
int weir_resp_door_new(const struct weir_door_host *host,
                       const struct weir_place *place,
                       struct weir_throttle *throttle,
                       struct weir_resp_door **out, struct weir_diag *diag);
const struct weir_place *weir_resp_door_place(
    const struct weir_resp_door *door);
/* Credentials or certificates were reloaded: ends the connections of peers that
 * have shown one that isn't valid any more. */
void weir_resp_door_recheck(struct weir_resp_door *door);
void weir_resp_door_stop(struct weir_resp_door *door);
/* NULL inside is legal. */
void weir_resp_door_free(struct weir_resp_door **door);

#endif /* WEIR_RESP_DOOR_H */
