/* SPDX-License-Identifier: MIT
 * node/limiter_handover.c - handover: one limiter after another on a table that
 * outlives them, without losing a count or reporting it twice.
 *
 * The table is shared by processes (table/table_share.h), and one of them runs
 * its limiter. If that process is killed, another makes a limiter over the same
 * table. Lost with the first are the totals that roots had answered, and the
 * reports on their way. Left are each slot's count, which has all units that
 * this table ever passed, and 'settled', the part answered by every root.
 *
 * The successor is the same limiter to the roots: it has the predecessor's
 * incarnation and begins new sessions. A root keeps the last total of each slot
 * that it took from that limiter, and adds differences of totals; where a
 * session begins, totals are absolute (counted/message.h). Therefore
 *
 *     root's total before       last: `acked`, or `sent` if the root took the
 *                               unanswered report
 *     announced                 base = settled, sank = yes
 *     the first report          passed = count - settled
 *     root's total after        settled + passed = count
 *     added to the bucket       count - last
 *
 * for any 'last'. No unit is lost or doubled, with the report in doubt, with a
 * root that was away for longer, with refunds. 'sank' keeps the root from
 * taking 'settled' for a total that it was sent before. A root that has
 * forgotten the limiter, or has a new incarnation, begins at 'settled' or takes
 * over our fill, as after any lost link. So the successor must know which roots
 * were met, and had taken the fills announced to them: if a limiter dies
 * between a new root's welcome and its answer to these, the next one announces
 * them. A root subtracts from late units, which have drained meanwhile, those
 * that it took with the report in doubt (counted/merge.c). Otherwise its bucket
 * would be emptier than the table's by as much, and the table, which uses it,
 * would pass more than its limit. A root that never received the slot begins at
 * 'settled' too. It misses units counted while it was away and answered by
 * other roots, because only the dead limiter knew that they weren't sent to it.
 * The other roots' fills are larger then, and are used.
 *
 * Sessions have to rise, and the last numbers of the dead limiter may not be
 * written yet: the successor skips some. So it does with the numbers of wants.
 *
 * All other state is learned anew: the quotas as a whole set, put over the
 * table's, where they keep their counts and fills; fills and slack from the
 * first answers. Until then only its bucket stops a slot, as when no root is
 * connected. Leased quotas are closed until the next grant: the serial of the
 * taken grant is lost, and a lease pool that gets wants without it waits for
 * the end of the old lease.
 *
 * Silence counts from the dead limiter's last message from a root. Otherwise
 * each takeover would delay on_stale.
 *
 * Rejected: a limiter of another incarnation. Units reported and not answered
 * would be in the bucket of one root and not in that of another; the old
 * limiter's presumed pace and permits in flight would stay until it counts as
 * dead; and the totals answered by each root would need a word for each slot
 * and root. Rejected: the whole tally in shared memory: it would have to be
 * consistent after each single store. */

#include "core/node/limiter.h"

#include <string.h>

#include "core/base/atomic.h"
#include "core/node/limiter_internal.h"
#include "core/table/table_share.h"

/* Sessions and messages that may have begun since the handover was written. */
#define LEFT_OUT 1024

/* A root counts as met when it has taken the fills that a cold root needs. */
static void hand_over_link(struct weir_limiter *limiter, uint32_t index,
                           uint64_t *met, uint8_t root[WEIR_INCARNATION_SIZE])
{
    const struct limiter_link *link = &limiter->link[index];
    if (!link->met ||
        (*met && memcmp(root, link->root, WEIR_INCARNATION_SIZE) == 0) ||
        !weir_tally_is_adopted(&limiter->tally, index))
        return;
    /* Half of each of two numbers would match no root. */
    weir_store(met, 0);
    memcpy(root, link->root, WEIR_INCARNATION_SIZE);
    weir_store(met, 1);
}

void weir_limiter_hand_over(struct weir_limiter *limiter,
                            struct weir_limiter_handover *out)
{
    weir_store_relaxed(&out->sessions, limiter->sessions);
    weir_store_relaxed(&out->received_at, limiter->received_at);
    weir_store_relaxed(&out->received, limiter->received);
    weir_store_relaxed(&out->wants,
                       weir_lease_client_number(limiter->leases.client));
    weir_store_relaxed(&out->stale_after, limiter->settings.stale_after);
    weir_store_relaxed(&out->report_interval,
                       limiter->settings.report_interval);
    for (uint32_t i = 0; i < limiter->link_count; i++)
        hand_over_link(limiter, i, &out->link[i].met, out->link[i].root);
}

/* Treats each slot as new. */
static void begin_slots(struct weir_limiter *limiter)
{
    struct weir_table *table = limiter->table;
    weir_table_lift_stops(table);
    /* Of several roots one may have been away when the others answered. */
    weir_table_mark_unsettled(table, limiter->link_count > 1);
}

void weir_limiter_inherit(struct weir_limiter *limiter,
                          struct weir_limiter_handover *handover,
                          weir_instant now)
{
    weir_assert(limiter->sessions == 0 && limiter->reports == 0);
    begin_slots(limiter);
    limiter->tally.inherited = true;
    limiter->sessions = handover->sessions + LEFT_OUT;
    limiter->full_seen = weir_table_overflowed(limiter->table);
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        struct limiter_link *link = &limiter->link[i];
        link->met = handover->link[i].met;
        memcpy(link->root, handover->link[i].root, WEIR_INCARNATION_SIZE);
    }
    if (handover->stale_after > 0 && handover->report_interval > 0) {
        limiter->settings.stale_after = handover->stale_after;
        limiter->settings.report_interval = handover->report_interval;
    }
    limiter->received = handover->received;
    limiter->topped = handover->received;
    bool known = handover->received && handover->received_at <= now;
    limiter->received_at = limiter->any_received_at =
        known ? handover->received_at : now;
    limiter->stale = weir_table_is_stale(limiter->table);
    weir_lease_client_go_on(limiter->leases.client, handover->wants + LEFT_OUT);
    weir_limiter_leases_forget(limiter, now);
    limiter->collect_at = now;
    weir_limiter_hand_over(limiter, handover);
}
