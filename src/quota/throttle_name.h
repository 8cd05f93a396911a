/* SPDX-License-Identifier: MIT
 * quota/throttle_name.h - names that bring their limit along.
 *
 *     throttle:16:30/60s:user123
 *              |  |  |   '------ the key, any text that a name may hold
 *              |  |  '---------- seconds
 *              |  '------------- units in as many seconds: the limit
 *              '---------------- units at once: low_burst and high_burst
 *
 * Everybody who reads such a name makes the same quota of it: of kind rate,
 * counted, leaky, on_stale=share, without a parent. So nothing is stored and
 * nothing announced but the name, and limiters and roots count it together as
 * any instance of a template. It is one (WEIR_SLOT_INSTANCE, of no template):
 * made at its first use, bounded by the places of the table, evicted when it is
 * idle.
 *
 * A quota that is stored under the very name goes first, and so does a template
 * that matches it: names come from clients, and what one says of itself must
 * not outdo what was said of all, as by a template called *. Another rate is
 * another name and another bucket, whatever the key.
 *
 * Numbers have no sign and no zero before them, so that one rule has one name.
 */

#ifndef WEIR_THROTTLE_NAME_H
#define WEIR_THROTTLE_NAME_H

#include "quota/quota.h"

#define WEIR_THROTTLE_PREFIX "throttle:"

/* What stands before the key. */
struct weir_throttle_rule {
    uint64_t burst;    /* 1 .. WEIR_BURST_MAX */
    uint64_t count;    /* 1 .. WEIR_BURST_MAX, WEIR_LIMIT_MAX a second */
    uint64_t period_s; /* 1 .. WEIR_PERIOD_MAX in seconds */
};

/* The quota that the name brings, with created and epoch 0, 'out->name' being
 * 'name' (borrowed): sound, but that the key may hold braces, as any instance's
 * name may. False: it brings none. */
bool weir_throttle_name_read(struct weir_text name, struct weir_quota *out);

/* Whether it is within its ranges. */
bool weir_throttle_rule_check(const struct weir_throttle_rule *rule);

/* Its name, in 'buf' of WEIR_NAME_MAX bytes; no NUL. Returns its length; 0: the
 * rule is out of its ranges, or the name would be too long or none. */
size_t weir_throttle_name_write(const struct weir_throttle_rule *rule,
                                struct weir_text key, char *buf);

#endif /* WEIR_THROTTLE_NAME_H */
