/* SPDX-License-Identifier: MIT
 * libweir/libweir_permit.c - enter and leave, as a caller sees them.
 *
 * A permit has the permit record, by which the table takes its units back, and
 * its owner: this limiter, in this process. A child of fork() has a copy of
 * each of its parent's permits and none of its own; so the limiter counts its
 * forks, and a permit keeps the count at which it was entered. Unlike a take,
 * an enter or leave waits until a child has become a limiter: else its units
 * would be forgotten a moment later.
 *
 * The record has the time of entry and the concurrency gate, if any: an
 * adaptive quota learns by them. An exact quota's store knows a permit by its
 * id, which is one for the whole chain; 0 if no store was asked for it.
 *
 * libweir_waiting.c has the wait queues; this file wraps it. */

#include "libweir/libweir_decide.h"

#include <assert.h>
#include <string.h>

#include "io/clock.h"

struct permit {
    struct weir *weir; /* NULL: it holds nothing */
    uint32_t forks;    /* weir->forks when it was entered */
    struct weir_permit_record record;
    uint64_t id; /* in stores; 0: no store knows it */
};
static_assert(sizeof(struct permit) == sizeof(struct weir_permit), "");

/* After the table's answer. */
static enum weir_verdict finish_enter(struct weir *weir, struct permit *permit,
                                      unsigned outcome)
{
    if (permit->record.links > 0) {
        permit->weir = weir;
        permit->forks = weir->forks;
    } else {
        memset(permit, 0, sizeof(*permit));
    }
    return weir_verdict_of(weir, outcome);
}

/* The shadow set is asked as for a take: it puts nothing in flight. */
static unsigned enter_shadow(struct weir *weir, struct weir_ref ref,
                             const struct weir_text *name, uint64_t weight,
                             unsigned outcome, weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE,
                                      .weight = weir_weight_clipped(weight) };
    return weir_decide_shadow(weir, ref, name, &ask, outcome, now);
}

/* The table's answer, or the stores' if it needs them. */
static unsigned enter_slot(struct weir *weir, struct weir_ref ref,
                           uint64_t weight, struct permit *permit,
                           struct weir_reply *reply, struct weir_call *call)
{
    unsigned outcome =
        weir_table_enter(weir->table, weir_stripe_mine(weir), ref, weight,
                         &permit->record, reply, call->now);
    if (WEIR_UNLIKELY(outcome &
                      (WEIR_OUTCOME_EXACT | WEIR_OUTCOME_CONTENDED))) {
        weir_verdict_of(weir, outcome);
        struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE,
                                          .weight = weir_weight_clipped(weight),
                                          .permit = weir_exact_permit(weir) };
        permit->id = ask.permit;
        outcome =
            weir_exact_decide(weir, ref, &ask, &permit->record, reply, call);
    }
    /* The slot's life is over; the kick or wake in the outcome still counts. */
    if (outcome & WEIR_OUTCOME_STALE_REF)
        weir_verdict_of(weir, outcome);
    return outcome;
}

static enum weir_verdict enter_ref(struct weir *weir, struct weir_ref ref,
                                   uint64_t weight, struct permit *permit,
                                   struct weir_reply *reply, weir_instant now)
{
    struct weir_call call = weir_call_at(now);
    unsigned outcome = enter_slot(weir, ref, weight, permit, reply, &call);
    if (outcome & WEIR_OUTCOME_STALE_REF)
        return weir_decide_unknown(weir, reply);
    if (outcome & WEIR_OUTCOME_SHADOW)
        outcome = enter_shadow(weir, ref, NULL, weight, outcome, call.now);
    return finish_enter(weir, permit, outcome);
}

enum weir_verdict weir_enter(struct weir_handle quota, uint32_t klass,
                             uint64_t weight, struct weir_permit *out_permit,
                             struct weir_reply *reply, weir_instant now)
{
    struct weir *weir = quota.weir;
    struct weir_ref ref = { quota.slot, quota.generation };
    struct permit permit = { .record.klass = klass };
    enum weir_verdict verdict;
    if (weir && quota.generation != 0) {
        weir_own_ensure(weir);
        verdict = enter_ref(weir, ref, weight, &permit, reply, now);
    } else {
        verdict = weir_decide_empty(quota, reply);
    }
    memcpy(out_permit, &permit, sizeof(permit));
    return verdict;
}

/* A store decides: no thread can enter for another, so each asks again by
 * itself. */
static enum weir_verdict wait_exactly(struct weir *weir, struct weir_ref ref,
                                      const struct weir_wish *wish,
                                      struct permit *permit)
{
    uint32_t klass = permit->record.klass;
    for (;;) {
        weir_instant now = weir_clock_now();
        *permit = (struct permit){ .record.klass = klass };
        enum weir_verdict verdict =
            enter_ref(weir, ref, wish->weight, permit, wish->reply, 0);
        if (verdict == WEIR_PASSED || wish->reply->never || now >= wish->until)
            return verdict;
        weir_waiting_pause(wish, now);
    }
}

static enum weir_verdict wait_ref(struct weir *weir, struct weir_wish *wish,
                                  struct permit *permit)
{
    uint32_t klass = permit->record.klass;
    unsigned outcome = weir_waiting_enter(weir, wish);
    if (outcome & WEIR_OUTCOME_EXACT)
        return wait_exactly(weir, wish->ref, wish, permit);
    if (outcome & WEIR_OUTCOME_STALE_REF)
        return weir_decide_unknown(weir, wish->reply);
    /* Asked once more without waiting, so that it counts as a refusal. */
    if (outcome & WEIR_OUTCOME_LIMITED) {
        *permit = (struct permit){ .record.klass = klass };
        return enter_ref(weir, wish->ref, wish->weight, permit, wish->reply, 0);
    }
    if (outcome & WEIR_OUTCOME_SHADOW)
        outcome = enter_shadow(weir, wish->ref, NULL, wish->weight, outcome,
                               weir_clock_now());
    return finish_enter(weir, permit, outcome);
}

enum weir_verdict weir_enter_wait(struct weir_handle quota, uint32_t klass,
                                  uint64_t weight, int64_t priority,
                                  weir_duration wait_max,
                                  struct weir_permit *out_permit,
                                  struct weir_reply *reply)
{
    struct weir *weir = quota.weir;
    struct weir_ref ref = { quota.slot, quota.generation };
    struct permit permit = { .record.klass = klass };
    struct weir_reply spare = { .verdict = WEIR_PASSED };
    if (!weir || quota.generation == 0)
        return weir_enter(quota, klass, weight, out_permit, reply, 0);
    weir_own_ensure(weir);
    memset(out_permit, 0, sizeof(*out_permit));
    uint32_t inflights[WEIR_DEPTH_MAX];
    if (weir_table_inflights(weir->table, ref, inflights) == 0)
        return weir_wait(quota, weight, wait_max, reply);
    weir_instant begun = weir_clock_now();
    struct weir_wish wish = {
        .ref = ref,
        .weight = weight,
        .priority = priority,
        .until = weir_after(begun, wait_max),
        .record = &permit.record,
        .reply = reply ? reply : &spare,
    };
    enum weir_verdict verdict = wait_ref(weir, &wish, &permit);
    wish.reply->wait = weir_clock_now() - begun;
    memcpy(out_permit, &permit, sizeof(permit));
    return verdict;
}

static enum weir_verdict enter_named(struct weir *weir, struct weir_text given,
                                     uint64_t weight, struct permit *permit,
                                     struct weir_reply *reply, weir_instant now)
{
    struct weir_call call = weir_call_at(now);
    struct weir_asked_name asked;
    struct weir_text name;
    enum weir_resolved resolved = WEIR_RESOLVED;
    weir_asked_init(weir, given, &asked);
    for (int tries = 0; tries < WEIR_STALE_TRIES; tries++) {
        struct weir_ref ref;
        resolved = weir_asked_find(weir, &asked, &ref, &call);
        name = weir_asked_shadow(&asked);
        if (!weir_is_resolved(resolved))
            break;
        unsigned outcome = enter_slot(weir, ref, weight, permit, reply, &call);
        if (outcome & WEIR_OUTCOME_STALE_REF)
            continue;
        if (outcome & WEIR_OUTCOME_SHADOW)
            outcome = enter_shadow(weir, ref,
                                   resolved == WEIR_RESOLVED ? NULL : &name,
                                   weight, outcome, call.now);
        weir_decide_mark_full(reply, resolved);
        return finish_enter(weir, permit, outcome);
    }
    name = weir_asked_shadow(&asked);
    if (weir_is_unruled(resolved))
        weir_verdict_of(weir, enter_shadow(weir, (struct weir_ref){ 0, 0 },
                                           &name, weight, 0, call.now));
    return weir_decide_missing(weir, resolved, reply);
}

enum weir_verdict weir_enter_by_name(struct weir *weir, const char *name,
                                     size_t len, uint32_t klass,
                                     uint64_t weight,
                                     struct weir_permit *out_permit,
                                     struct weir_reply *reply, weir_instant now)
{
    struct weir_text text = { name, len };
    struct permit permit = { .record.klass = klass };
    enum weir_verdict verdict;
    if (weir_name_is_askable(text)) {
        weir_own_ensure(weir);
        verdict = enter_named(weir, text, weight, &permit, reply, now);
    } else {
        verdict = weir_decide_unknown(weir, reply);
    }
    memcpy(out_permit, &permit, sizeof(permit));
    return verdict;
}

/* The clock is read only if an adaptive quota learns by it; an invalid outcome
 * teaches nothing. */
static unsigned leave_table(struct weir_table *table,
                            struct weir_permit_record *record,
                            enum weir_permit_outcome outcome, weir_instant now)
{
    bool learns = record->gate_slot != 0 && (outcome == WEIR_PERMIT_SUCCESS ||
                                             outcome == WEIR_PERMIT_DROPPED);
    if (!learns)
        return weir_table_leave(table, record);
    return weir_table_leave_as(table, record, outcome,
                               now ? now : weir_clock_now());
}

void weir_leave(struct weir_permit *permit, enum weir_permit_outcome outcome,
                weir_instant now)
{
    struct permit own;
    memcpy(&own, permit, sizeof(own));
    if (!own.weir)
        return;
    memset(permit, 0, sizeof(*permit));
    weir_own_ensure(own.weir);
    if (own.forks != own.weir->forks)
        return;
    if (own.id != 0)
        weir_exact_leave(own.weir, &own.record, own.id);
    uint32_t links = own.record.links;
    unsigned left = leave_table(own.weir->table, &own.record, outcome, now);
    weir_verdict_of(own.weir, left & ~(unsigned)WEIR_OUTCOME_NEXT);
    if (WEIR_UNLIKELY(left & WEIR_OUTCOME_NEXT))
        weir_waiting_left(own.weir, own.record.slot, links, weir_clock_now());
}
