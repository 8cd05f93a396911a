/* SPDX-License-Identifier: MIT
 * table/link_leased.c - a link that keeps to a grant, in a walk.
 *
 * Its bucket or in-flight counter has the bounds of the grant (table_lease.c)
 * and decides as any other. Only these differ: a grant can become lower between
 * an enter's judgement and its commit, a leave can be the one that a lower
 * grant waits for, and a refusal ends when the grant grows. */

#include "core/table/table_switch_internal.h"
#include "core/table/table_walk_internal.h"

/* The longest retry time that is named, as the grant may grow. */
#define LEASE_RETRY_MAX WEIR_SECOND
/* The same while the first grant is requested. */
#define GRANT_RETRY (100 * WEIR_MILLISECOND)

bool weir_link_leased_commit(struct weir_table *t, uint32_t slot,
                             uint64_t weight)
{
    struct hot *hot = weir_hot(t, slot);
    struct slot_read read;
    if (weir_table_leasing(t, slot) == WEIR_LEASING_NONE)
        return true;
    /* Sequentially consistent: the limit's switch ends by swapping 'base', and
     * 'in_flight' is read after it. */
    (void)weir_load(&hot->base);
    weir_slot_read(t, slot, 0, &read);
    if (!weir_slot_read_is_endless(&read) && read.fill > read.high)
        return false;
    /* Relaxed: only a sum. */
    weir_fetch_add(&hot->count, weight);
    return true;
}

bool weir_link_leased_fits_again(const struct weir_table *t, uint32_t slot,
                                 uint64_t before, uint64_t left)
{
    struct slot_read read;
    weir_audit(left <= before);
    if (weir_table_leasing(t, slot) == WEIR_LEASING_NONE)
        return false;
    weir_slot_read(t, slot, 0, &read);
    return (int64_t)before > read.high && (int64_t)left <= read.high;
}

/* The grant may soon be larger: no weight is too heavy for ever. */
void weir_link_leased_explain(const struct weir_table *t, uint32_t slot,
                              struct weir_reply *reply)
{
    reply->leased = weir_slot_granted(t, slot, &reply->granted);
    if (!reply->leased || reply->verdict != WEIR_LIMITED)
        return;
    reply->never = false;
    if (weir_table_leasing(t, slot) == WEIR_LEASING_CLOSED)
        reply->retry_after = GRANT_RETRY;
    else if (reply->retry_after > LEASE_RETRY_MAX)
        reply->retry_after = LEASE_RETRY_MAX;
}
