/* SPDX-License-Identifier: MIT
 * weir_v1_oracle.c - the slow and plain way, by the generated code. */

#include "weir_v1_oracle.h"

#include <string.h>

#include "weir.pb-c.h"

static bool same_announce(const Weir__V1__Announce *theirs,
                          const struct weir_announce *ours)
{
    return theirs->slot == ours->slot && theirs->created == ours->created &&
           theirs->passed == ours->base &&
           theirs->refused == ours->refused && theirs->fill == ours->fill &&
           theirs->witnessed == ours->witnessed &&
           theirs->sank == ours->sank &&
           theirs->name.len == ours->name.len &&
           memcmp(theirs->name.data, ours->name.p, ours->name.len) == 0;
}

/* Takes the value of row 'row' from a sparse pair of columns. */
static bool is_sparse_row(size_t count, const uint32_t *steps, size_t *at,
                          uint64_t *sum, size_t row)
{
    if (*at == count || *sum + steps[*at] != row)
        return false;
    *sum += steps[(*at)++];
    return true;
}

static bool same_counts(const Weir__V1__Counts *theirs,
                        const struct weir_report *ours)
{
    if (!theirs)
        return ours->count == 0;
    if (theirs->n_slot_steps != ours->count ||
        theirs->n_passed != ours->count ||
        theirs->n_refused != theirs->n_refused_steps ||
        theirs->n_late != theirs->n_late_steps ||
        theirs->n_pace != theirs->n_pace_steps ||
        theirs->n_carry != theirs->n_carry_steps ||
        theirs->n_ahead != theirs->n_ahead_steps)
        return false;
    uint64_t slot = 0, refused_sum = 0, late_sum = 0, pace_sum = 0;
    uint64_t carry_sum = 0, ahead_sum = 0;
    size_t refused_at = 0, late_at = 0, pace_at = 0;
    size_t carry_at = 0, ahead_at = 0;
    for (size_t i = 0; i < ours->count; i++) {
        const struct weir_count *row = &ours->counts[i];
        slot += theirs->slot_steps[i];
        uint64_t refused = 0, pace = 0;
        int64_t late = 0;
        if (is_sparse_row(theirs->n_refused, theirs->refused_steps,
                          &refused_at, &refused_sum, i))
            refused = theirs->refused[refused_at - 1];
        if (is_sparse_row(theirs->n_late, theirs->late_steps, &late_at,
                          &late_sum, i))
            late = theirs->late[late_at - 1];
        if (is_sparse_row(theirs->n_pace, theirs->pace_steps, &pace_at,
                          &pace_sum, i))
            pace = theirs->pace[pace_at - 1];
        uint64_t carry = ours->carried ? (uint64_t)row->passed : 0;
        if (is_sparse_row(theirs->n_carry, theirs->carry_steps, &carry_at,
                          &carry_sum, i))
            carry += (uint64_t)theirs->carry[carry_at - 1];
        uint64_t ahead = 0;
        if (is_sparse_row(theirs->n_ahead, theirs->ahead_steps, &ahead_at,
                          &ahead_sum, i))
            ahead = theirs->ahead[ahead_at - 1];
        if ((uint64_t)row->carry != carry || row->ahead != ahead)
            return false;
        if (row->slot != slot || row->passed != theirs->passed[i] ||
            row->refused != refused || row->late != late || row->pace != pace)
            return false;
    }
    return refused_at == theirs->n_refused && late_at == theirs->n_late &&
           pace_at == theirs->n_pace && carry_at == theirs->n_carry &&
           ahead_at == theirs->n_ahead;
}

static bool same_report(const Weir__V1__Report *theirs,
                        const struct weir_report *ours)
{
    if (!theirs || theirs->number != ours->number ||
        theirs->epoch != ours->epoch ||
        theirs->late_from_ns != ours->late_from ||
        theirs->unknown != ours->unknown ||
        theirs->carried != ours->carried ||
        theirs->n_announces != ours->announce_count)
        return false;
    for (size_t i = 0; i < ours->announce_count; i++) {
        if (!same_announce(theirs->announces[i], &ours->announces[i]))
            return false;
    }
    return same_counts(theirs->counts, ours);
}

static bool same_fills(const Weir__V1__Fills *theirs,
                       const struct weir_fills *ours)
{
    if (!theirs || theirs->number != ours->number ||
        theirs->stamp != ours->stamp ||
        theirs->stretch_ns != ours->stretch ||
        theirs->limiters != ours->limiters ||
        theirs->top_age_ns != ours->top_age ||
        theirs->n_slot_steps != ours->count || theirs->n_fill != ours->count ||
        theirs->n_slack != ours->count ||
        (theirs->n_pace != 0 && theirs->n_pace != ours->count) ||
        theirs->n_unknown != ours->unknown_count)
        return false;
    uint64_t slot = 0;
    for (size_t i = 0; i < ours->count; i++) {
        slot += theirs->slot_steps[i];
        uint64_t slack = theirs->slack[i] == 0 ? UINT64_MAX
                                               : theirs->slack[i] - 1;
        if (ours->fills[i].slot != slot ||
            ours->fills[i].fill != theirs->fill[i] ||
            ours->fills[i].slack != slack ||
            ours->fills[i].pace != (theirs->n_pace ? theirs->pace[i] : 0))
            return false;
    }
    return ours->unknown_count == 0 ||
           memcmp(theirs->unknown, ours->unknown,
                  ours->unknown_count * sizeof(uint32_t)) == 0;
}

bool oracle_agrees(const void *bytes, size_t len,
                   const struct weir_message *message)
{
    if (message->type == WEIR_MESSAGE_REPORT) {
        Weir__V1__ToRoot *theirs = weir__v1__to_root__unpack(NULL, len, bytes);
        bool same = theirs && theirs->session == message->session &&
                    theirs->body_case == WEIR__V1__TO_ROOT__BODY_REPORT &&
                    same_report(theirs->report, &message->report);
        weir__v1__to_root__free_unpacked(theirs, NULL);
        return same;
    }
    if (message->type != WEIR_MESSAGE_FILLS)
        return true;
    Weir__V1__ToLimiter *theirs =
        weir__v1__to_limiter__unpack(NULL, len, bytes);
    bool same = theirs && theirs->session == message->session &&
                theirs->body_case == WEIR__V1__TO_LIMITER__BODY_FILLS &&
                same_fills(theirs->fills, &message->fills);
    weir__v1__to_limiter__free_unpacked(theirs, NULL);
    return same;
}
