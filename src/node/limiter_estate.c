/* SPDX-License-Identifier: MIT
 * node/limiter_estate.c - one limiter after another, over a table that outlives
 * them: neither loses a count nor tells one twice.
 *
 * The table is shared by processes (quota/table_share.c), and one of them runs
 * its limiter. If that one is killed, another process makes a limiter over the
 * same table. What died with the first is what roots had answered for and what
 * was on its way; what is left is each slot's count, which is all that this
 * table ever let through, and 'settled', up to where every root had answered.
 *
 * The successor is the same limiter to the roots: it has the incarnation of the
 * one before and begins new sessions. A root knows the last total of each slot
 * that it took from that limiter, and adds differences of totals; where a
 * session begins totals are absolute (count/message.h). So
 *
 *     root's total before       last, which is `acked`, or `sent` if the report
 *                               that nobody saw answered came through
 *     announced                 base = settled, sank = yes
 *     the first report          passed = count - settled
 *     root's total after        settled + passed = count
 *     added to the bucket       count - last
 *
 * whatever 'last' is: nothing is lost and nothing doubled, with the report in
 * doubt, with a root that was away for longer, with refunds. 'sank' keeps
 * the root from taking 'settled' for something that it was told before.
 * A root that has forgotten the limiter, or is another one by now, begins at
 * 'settled' or takes our picture of the bucket, as after any lost link: so the
 * successor must know which roots were met.
 * Of what is told as late, which has drained meanwhile, a root leaves out what
 * of the report in doubt it has already taken (count/merge.c): else its bucket
 * were emptier than the table's by as much, and the table, which goes by it,
 * over its limit.
 * So does one that never heard of the slot: what was counted while it was away
 * and other roots answered for, it misses, as the dead limiter alone knew that
 * it hadn't been told. The others' fills are the larger ones then, and rule.
 *
 * Sessions have to rise, and a number that the dead one had just used may not
 * be written yet: so the successor leaves some out. Likewise the numbers of
 * wants.
 *
 * What else a limiter knows it learns anew: the quotas as a whole set, put over
 * the table's, where they keep their counts and fills; fills and slack by the
 * first answers. Until then nothing stops a slot but its bucket, as when no
 * root is connected. Grants of leased quotas are closed till the next one
 * comes: the serial under which they were taken is lost, and a broker that
 * hears of a holder without it waits for the old lease's end.
 *
 * Silence counts from when the dead one last heard a root, else each takeover
 * would put `on_stale` off.
 *
 * Rejected: a limiter of another incarnation. What was reported and not
 * answered would be in the bucket of one root and not in that of another, the
 * old one's presumed pace and permits in flight would stand till they are given
 * up for dead, and for what roots had answered apart there were a word to be
 * kept for each slot and root. Rejected: the whole tally in shared memory: it
 * would have to be sound after each single store. */

#include "node/limiter.h"

#include <string.h>

#include "base/atomic.h"
#include "node/limiter_state.h"

/* Sessions and messages that may have begun since the estate was written. */
#define LEFT_OUT 1024

static void bequeath_link(const struct limiter_link *link, uint64_t *met,
                          uint8_t root[WEIR_INCARNATION_SIZE])
{
    if (!link->met ||
        (*met && memcmp(root, link->root, WEIR_INCARNATION_SIZE) == 0))
        return;
    /* Half of two roots' numbers is no root's. */
    weir_store(met, 0);
    memcpy(root, link->root, WEIR_INCARNATION_SIZE);
    weir_store(met, 1);
}

void weir_limiter_bequeath(const struct weir_limiter *limiter,
                           struct weir_limiter_estate *out)
{
    weir_store_relaxed(&out->sessions, limiter->sessions);
    weir_store_relaxed(&out->heard_at, limiter->heard_at);
    weir_store_relaxed(&out->heard, limiter->heard);
    weir_store_relaxed(&out->wants,
                       weir_lease_client_number(limiter->leases.client));
    weir_store_relaxed(&out->stale_after, limiter->settings.stale_after);
    weir_store_relaxed(&out->report_interval,
                       limiter->settings.report_interval);
    for (uint32_t i = 0; i < limiter->link_count; i++)
        bequeath_link(&limiter->link[i], &out->link[i].met, out->link[i].root);
}

/* As if each slot's life began. */
static void begin_slots(struct weir_limiter *limiter)
{
    struct weir_table *table = limiter->table;
    weir_table_lift_stops(table);
    /* Of several roots one may have been away when the others answered. */
    weir_table_mark_unsettled(table, limiter->link_count > 1);
}

void weir_limiter_inherit(struct weir_limiter *limiter,
                          struct weir_limiter_estate *estate, weir_instant now)
{
    begin_slots(limiter);
    limiter->tally.inherited = true;
    limiter->sessions = estate->sessions + LEFT_OUT;
    limiter->full_seen = weir_table_overflowed(limiter->table);
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        struct limiter_link *link = &limiter->link[i];
        link->met = estate->link[i].met;
        memcpy(link->root, estate->link[i].root, WEIR_INCARNATION_SIZE);
    }
    if (estate->stale_after > 0 && estate->report_interval > 0) {
        limiter->settings.stale_after = estate->stale_after;
        limiter->settings.report_interval = estate->report_interval;
    }
    limiter->heard = estate->heard;
    limiter->topped = estate->heard;
    bool known = estate->heard && estate->heard_at <= now;
    limiter->heard_at = limiter->spoken_at = known ? estate->heard_at : now;
    limiter->stale = weir_table_is_stale(limiter->table);
    weir_lease_client_go_on(limiter->leases.client, estate->wants + LEFT_OUT);
    weir_limiter_leases_forget(limiter, now);
    limiter->collect_at = now;
    weir_limiter_bequeath(limiter, estate);
}
