/* SPDX-License-Identifier: MIT
 * core/counted/tally_audit.c - audits of a tally: what belongs together in the
 * states of links and cells. All of it is the limiter's own memory: no message
 * and no process that shares the table can make an audit fail. */

#include "core/counted/bits.h"
#include "core/counted/tally_internal.h"

static void audit_tally_link(const struct weir_tally *tally,
                             const struct weir_tally_link *link)
{
    weir_assert(!link->answering || link->up);
    weir_assert(link->unanswered || link->outstanding_count == 0);
    weir_assert(link->outstanding_count <= WEIR_REPORT_COUNTS_MAX);
    weir_assert(link->outstanding_count <= tally->slots);
    weir_assert(link->hand <= tally->slots);
    weir_assert(link->announce_hand <= tally->slots);
}

static void audit_tally_cell(const struct weir_tally *tally,
                             const struct weir_tally_link *link, uint32_t slot)
{
    const struct weir_tally_cell *cell = &link->cells[slot];
    if (!cell->begun) {
        weir_assert(!cell->told);
        return;
    }
    bool sent_of = weir_bit_next(tally->told, slot, slot + 1) == slot;
    weir_assert(!cell->told || sent_of);
    weir_assert(cell->pace_sent <= WEIR_PACE_MAX);
    weir_assert(cell->ahead_sent <= WEIR_AHEAD_MAX);
    weir_assert(cell->carry == 0 || link->unanswered);
    weir_assert(cell->inflight || !cell->handed);
    if (!cell->inflight)
        return;
    weir_assert(cell->carry == 0 && cell->others_pace == 0);
    weir_assert(cell->pace == 0 && cell->pace_sent == 0);
}

void weir_tally_audit(struct weir_tally *tally, uint32_t n)
{
    uint32_t end = weir_table_used(tally->table);
    weir_assert(end <= tally->slots);
    weir_assert(tally->limiters > 0);
    weir_assert(tally->carrier == WEIR_CARRIER_NONE ||
                (tally->carrier < tally->link_count && tally->carries));
    for (uint32_t i = 0; i < tally->link_count; i++)
        audit_tally_link(tally, &tally->link[i]);
    for (uint32_t i = 0; i < n && i < end; i++) {
        if (tally->audit_hand >= end)
            tally->audit_hand = 0;
        for (uint32_t k = 0; k < tally->link_count; k++)
            audit_tally_cell(tally, &tally->link[k], tally->audit_hand);
        tally->audit_hand++;
    }
}
