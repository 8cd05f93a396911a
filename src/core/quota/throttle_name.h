/* SPDX-License-Identifier: MIT
 * quota/throttle_name.h - names that contain their limit.
 *
 *     throttle:16:30/60s:user123
 *              |  |  |   '------ the key, any text that a name may hold
 *              |  |  '---------- seconds
 *              |  '------------- units in as many seconds: the limit
 *              '---------------- units at once: low_burst and high_burst
 *
 * Every process that reads such a name derives the same quota from it: of kind
 * rate, counted, leaky, on_stale=share, without a parent. Only the name is
 * sent, nothing is stored, and limiters and roots count it together as any
 * instance of a template. In the table it is an instance (WEIR_SLOT_INSTANCE,
 * without a template): made at its first use, bounded by the table's slots,
 * evicted when idle.
 *
 * A quota stored under exactly that name takes precedence, and so does a
 * template that matches it: names come from clients, and a client's limit must
 * not override one set for all names, such as by a template called *. Another
 * rate is another name and another bucket, even with the same key.
 *
 * Numbers have no sign and no leading zero, so that one rule has one name. */

#ifndef WEIR_THROTTLE_NAME_H
#define WEIR_THROTTLE_NAME_H

#include "core/quota/quota.h"

#define WEIR_THROTTLE_PREFIX "throttle:"

/* The numbers before the key. */
struct weir_throttle_rule {
    uint64_t burst;    /* 1 .. WEIR_BURST_MAX */
    uint64_t count;    /* 1 .. WEIR_BURST_MAX, WEIR_LIMIT_MAX a second */
    uint64_t period_s; /* 1 .. WEIR_PERIOD_MAX in seconds */
};

/* The quota that the name contains, with created and epoch 0; 'out->name' is
 * 'name' (borrowed). It is sound, except that the key may contain braces, as
 * any instance's name may. False: the name contains none. */
bool weir_throttle_name_read(struct weir_text name, struct weir_quota *out);

/* Whether the rule is within its ranges. */
bool weir_throttle_rule_check(const struct weir_throttle_rule *rule);

/* Writes the name of a rule and key to 'buf' of 'size' bytes; no NUL. Returns
 * its length; 0: the rule is out of its ranges, or the name would be longer or
 * not valid. */
size_t weir_throttle_name_write(const struct weir_throttle_rule *rule,
                                struct weir_text key, char *buf, size_t size);

#endif /* WEIR_THROTTLE_NAME_H */
