/* SPDX-License-Identifier: MIT
 * protocol/resp/throttle_counted.h - CL.THROTTLE counted by the fleet:
 * `--resp-sharing counted`.
 *
 * A key and its rate are a quota of the limiter (quota/throttle_name.h), which
 * the roots know by its name: all agents together pass the rate for requests
 * with the same key and rate. As for any counted quota (weir-quota(5)), an
 * agent doesn't know of the others' requests at its first one.
 *
 * Differences from protocol/resp/throttle.h:
 *   - with another rate, a key has a new state;
 *   - a key is a part of a name: UTF-8, without control characters, and 255
 *     bytes together with the rate;
 *   - a period is at most 366 days, and a rate 10^11 a second;
 *   - bound and eviction are those of the limiter's table: a key that isn't
 *     idle is never evicted, so a new one may find no room. */

#ifndef WEIR_THROTTLE_COUNTED_H
#define WEIR_THROTTLE_COUNTED_H

#include "protocol/protocol.h"
#include "protocol/resp/throttle.h"

/* Parses "local" or "counted", the values of --resp-sharing. WEIR_EINVAL with
 * 'diag'. */
int weir_throttle_sharing_parse(const char *text, bool *out_counted,
                                struct weir_diag *diag);

/* As weir_throttle_decide(), except that no more is given back than was taken.
 * 0, WEIR_EINVAL (a parameter outside its range), WEIR_ENAME (the key fits in
 * no name) or WEIR_EFULL (no room for another key). */
int weir_throttle_counted_decide(const struct weir_protocol_host *host,
                                 const struct weir_throttle_ask *ask,
                                 struct weir_throttle_reply *out,
                                 weir_instant now);

/* Whether the taker may take from the quota named by the key and its rate. 0;
 * WEIR_EDENIED, as weir_protocol_may(); or WEIR_EINVAL, WEIR_ENAME as above,
 * with 'diag' filled. */
int weir_throttle_counted_may(const struct weir_protocol_host *host,
                              const struct weir_protocol_taker *taker,
                              const struct weir_throttle_ask *ask,
                              struct weir_diag *diag, weir_instant now);

#endif /* WEIR_THROTTLE_COUNTED_H */
