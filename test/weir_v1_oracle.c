/* SPDX-License-Identifier: MIT
 * weir_v1_oracle.c - the slow and plain reader, by the generated code. */

#include "weir_v1_oracle.h"

#include <string.h>

#include "weir.pb-c.h"

static bool same_announce(const Weir__V1__Announce *theirs,
                          const struct weir_announce *ours)
{
    return theirs->slot == ours->slot && theirs->created == ours->created &&
           theirs->passed == ours->base && theirs->limited == ours->refused &&
           theirs->fill == ours->fill && theirs->witnessed == ours->witnessed &&
           theirs->sank == ours->sank && theirs->in_flight == ours->in_flight &&
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
        theirs->n_limited != theirs->n_limited_steps ||
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
        if (is_sparse_row(theirs->n_limited, theirs->limited_steps, &refused_at,
                          &refused_sum, i))
            refused = theirs->limited[refused_at - 1];
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
    return refused_at == theirs->n_limited && late_at == theirs->n_late &&
           pace_at == theirs->n_pace && carry_at == theirs->n_carry &&
           ahead_at == theirs->n_ahead;
}

static bool same_text(ProtobufCBinaryData theirs, struct weir_text ours)
{
    return theirs.len == ours.len &&
           (ours.len == 0 || memcmp(theirs.data, ours.p, ours.len) == 0);
}

static bool same_report(const Weir__V1__Report *theirs,
                        const struct weir_report *ours)
{
    if (!theirs || theirs->number != ours->number ||
        theirs->epoch != ours->epoch ||
        theirs->late_from_ns != ours->late_from ||
        theirs->unknown != ours->unknown || theirs->carried != ours->carried ||
        theirs->table_full != ours->no_room || theirs->again != ours->again ||
        !same_text(theirs->below, ours->below) ||
        theirs->n_announces != ours->announce_count)
        return false;
    for (size_t i = 0; i < ours->announce_count; i++) {
        if (!same_announce(theirs->announces[i], &ours->announces[i]))
            return false;
    }
    return same_counts(theirs->counts, ours);
}

static bool same_slots(const uint32_t *theirs, const uint32_t *ours,
                       size_t count)
{
    return count == 0 || memcmp(theirs, ours, count * sizeof *ours) == 0;
}

static bool same_fills(const Weir__V1__Fills *theirs,
                       const struct weir_fills *ours)
{
    if (!theirs || theirs->number != ours->number ||
        theirs->stamp != ours->stamp ||
        theirs->report_backoff_ns != ours->report_backoff ||
        theirs->limiters != ours->limiters ||
        theirs->top_age_ns != ours->top_age ||
        theirs->n_slot_steps != ours->count || theirs->n_fill != ours->count ||
        theirs->n_slack != ours->count ||
        (theirs->n_pace != 0 && theirs->n_pace != ours->count) ||
        theirs->n_unknown != ours->unknown_count ||
        theirs->n_denied != ours->denied_count)
        return false;
    uint64_t slot = 0;
    for (size_t i = 0; i < ours->count; i++) {
        slot += theirs->slot_steps[i];
        uint64_t slack =
            theirs->slack[i] == 0 ? UINT64_MAX : theirs->slack[i] - 1;
        if (ours->fills[i].slot != slot ||
            ours->fills[i].fill != theirs->fill[i] ||
            ours->fills[i].slack != slack ||
            ours->fills[i].pace != (theirs->n_pace ? theirs->pace[i] : 0))
            return false;
    }
    return same_slots(theirs->unknown, ours->unknown, ours->unknown_count) &&
           same_slots(theirs->denied, ours->denied, ours->denied_count);
}

static bool same_ask(const Weir__V1__Ask *theirs,
                     const struct weir_step_ask *ours)
{
    return theirs->number == ours->number &&
           theirs->name.len == ours->name.len &&
           memcmp(theirs->name.data, ours->name.p, ours->name.len) == 0 &&
           theirs->op == (uint32_t)ours->ask.op &&
           theirs->weight == ours->ask.weight &&
           theirs->wait_max_ns == ours->ask.wait_max &&
           theirs->level == ours->ask.level &&
           theirs->patience_ns == ours->patience &&
           theirs->permit == ours->ask.permit;
}

static bool same_asks(const Weir__V1__Asks *theirs,
                      const struct weir_asks *ours)
{
    if (theirs->n_asks != ours->count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        if (!same_ask(theirs->asks[i], &ours->asks[i]))
            return false;
    }
    return true;
}

/* With an error the other fields are ignored. */
static bool same_answer(const Weir__V1__Answer *theirs,
                        const struct weir_step_answer *ours)
{
    const struct weir_algorithm_answer *answer = &ours->answer;
    if (theirs->number != ours->number ||
        theirs->error != (uint32_t)ours->error)
        return false;
    return theirs->error != 0 ||
           (theirs->passed == answer->passed &&
            theirs->never == answer->never && theirs->level == answer->level &&
            theirs->used == answer->used &&
            theirs->remaining == answer->remaining &&
            theirs->retry_after_ns == answer->retry_after &&
            theirs->wait_ns == answer->wait);
}

static bool same_answers(const Weir__V1__Answers *theirs,
                         const struct weir_answers *ours)
{
    if (theirs->n_answers != ours->count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        if (!same_answer(theirs->answers[i], &ours->answers[i]))
            return false;
    }
    return true;
}

static bool same_want(const Weir__V1__Want *theirs,
                      const struct weir_want *ours)
{
    if (!same_text(theirs->name, ours->name) || theirs->has != ours->has ||
        theirs->safe != ours->safe || theirs->taken != ours->taken ||
        theirs->roster_token != ours->roster_token ||
        theirs->release != ours->release ||
        theirs->learning != ours->learning ||
        theirs->n_bands != ours->band_count)
        return false;
    for (size_t i = 0; i < ours->band_count; i++) {
        const Weir__V1__Band *band = theirs->bands[i];
        if (band->priority != ours->bands[i].priority ||
            band->clients != ours->bands[i].clients ||
            band->wants != ours->bands[i].wants)
            return false;
    }
    return true;
}

static bool wants_agree(const void *bytes, size_t len,
                        const struct weir_message *message)
{
    const struct weir_wants *ours = &message->wants;
    Weir__V1__ToRoot *theirs = weir__v1__to_root__unpack(NULL, len, bytes);
    bool same = theirs && theirs->session == message->session &&
                theirs->body_case == WEIR__V1__TO_ROOT__BODY_WANTS &&
                theirs->wants->number == ours->number &&
                theirs->wants->n_wants == ours->count;
    for (size_t i = 0; same && i < ours->count; i++)
        same = same_want(theirs->wants->wants[i], &ours->wants[i]);
    weir__v1__to_root__free_unpacked(theirs, NULL);
    return same;
}

/* With an error the other fields are ignored. */
static bool same_grant(const Weir__V1__Grant *theirs,
                       const struct weir_lease_grant *row)
{
    const struct weir_grant *ours = &row->grant;
    if (!same_text(theirs->name, row->name) ||
        theirs->error != (uint32_t)row->error)
        return false;
    return theirs->error != 0 ||
           (theirs->serial == ours->serial &&
            theirs->capacity == ours->capacity && theirs->safe == ours->safe &&
            theirs->lease_ns == ours->lease &&
            theirs->safe_lease_ns == ours->safe_lease &&
            theirs->refresh_ns == ours->refresh &&
            theirs->roster_token == ours->roster_token);
}

static bool grants_agree(const void *bytes, size_t len,
                         const struct weir_message *message)
{
    const struct weir_grants *ours = &message->grants;
    Weir__V1__ToLimiter *theirs =
        weir__v1__to_limiter__unpack(NULL, len, bytes);
    bool same = theirs && theirs->session == message->session &&
                theirs->body_case == WEIR__V1__TO_LIMITER__BODY_GRANTS &&
                theirs->grants->answer == ours->answer &&
                theirs->grants->term == ours->term &&
                theirs->grants->elsewhere == ours->elsewhere &&
                same_text(theirs->grants->master, ours->master) &&
                theirs->grants->n_grants == ours->count;
    for (size_t i = 0; same && i < ours->count; i++)
        same = same_grant(theirs->grants->grants[i], &ours->grants[i]);
    weir__v1__to_limiter__free_unpacked(theirs, NULL);
    return same;
}

static bool asks_agree(const void *bytes, size_t len,
                       const struct weir_message *message)
{
    Weir__V1__ToRoot *theirs = weir__v1__to_root__unpack(NULL, len, bytes);
    bool same = theirs && theirs->session == message->session &&
                theirs->body_case == WEIR__V1__TO_ROOT__BODY_ASKS &&
                same_asks(theirs->asks, &message->asks);
    weir__v1__to_root__free_unpacked(theirs, NULL);
    return same;
}

static bool answers_agree(const void *bytes, size_t len,
                          const struct weir_message *message)
{
    Weir__V1__ToLimiter *theirs =
        weir__v1__to_limiter__unpack(NULL, len, bytes);
    bool same = theirs && theirs->session == message->session &&
                theirs->body_case == WEIR__V1__TO_LIMITER__BODY_ANSWERS &&
                same_answers(theirs->answers, &message->answers);
    weir__v1__to_limiter__free_unpacked(theirs, NULL);
    return same;
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
    if (message->type == WEIR_MESSAGE_ASKS)
        return asks_agree(bytes, len, message);
    if (message->type == WEIR_MESSAGE_ANSWERS)
        return answers_agree(bytes, len, message);
    if (message->type == WEIR_MESSAGE_WANTS)
        return wants_agree(bytes, len, message);
    if (message->type == WEIR_MESSAGE_GRANTS)
        return grants_agree(bytes, len, message);
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
