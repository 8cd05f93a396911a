/* SPDX-License-Identifier: MIT
 * door/throttle_counted.h - CL.THROTTLE counted by the fleet: `--resp-sharing
 * counted`.
 *
 * A key and its rate are a quota of the limiter (quota/throttle_name.h), which
 * the roots know by its name; so all doors that are asked for it by the same
 * rate pass the rate together. What holds of a counted quota holds here
 * (weir-quota(5)): who is asked for the first time knows of no other door yet.
 *
 * What is other than in door/throttle.h:
 *   - asked by another rate, a key begins anew;
 *   - a key is a part of a name: UTF-8, without control characters, and 255
 *     bytes together with the rate;
 *   - a period is at most 366 days, and a rate 10^11 a second;
 *   - bound and eviction are those of the limiter's table: one that isn't idle
 *     is never taken out for another, so a new one may find no room. */

#ifndef WEIR_THROTTLE_COUNTED_H
#define WEIR_THROTTLE_COUNTED_H

#include "door/door.h"
#include "door/throttle.h"

/* "local" or "counted", as --resp-sharing has it. WEIR_EINVAL with 'diag'. */
int weir_throttle_sharing_parse(const char *text, bool *out_counted,
                                struct weir_diag *diag);

/* As weir_throttle_decide(), but that nothing is given back beyond what was
 * taken. 0, WEIR_EINVAL (outside its range), WEIR_ENAME
 * (a key that no name can hold) or WEIR_EFULL (no room for one more). */
int weir_throttle_counted_decide(const struct weir_door_host *host,
                                 const struct weir_throttle_ask *ask,
                                 struct weir_throttle_reply *out,
                                 weir_instant now);

/* Whether the taker may take from the quota named by the key and its rate. 0;
 * WEIR_EDENIED, as weir_door_may(); or WEIR_EINVAL, WEIR_ENAME as above, 'diag'
 * filled too. */
int weir_throttle_counted_may(const struct weir_door_host *host,
                              const struct weir_door_taker *taker,
                              const struct weir_throttle_ask *ask,
                              struct weir_diag *diag, weir_instant now);

#endif /* WEIR_THROTTLE_COUNTED_H */
