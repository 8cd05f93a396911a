/* SPDX-License-Identifier: MIT
 * libweir/libweir_take_calls.c - the decisions, as a caller sees them: a handle
 * or a name in, a verdict out. The table decides; this file adds the clock,
 * the thread's stripe, names that aren't there yet, the kick that wakes the
 * background thread, and the way to libweir_exact_decide.c. */

#include "core/table/table_share.h"
#include "libweir/libweir_internal.h"

#include <string.h>

#include "io/clock.h"

/* Names of a batch; their memory is fetched together. */
#define BATCH 16

static weir_instant or_clock_now(weir_instant now)
{
    return now ? now : weir_clock_now();
}

enum weir_verdict weir_decide_unknown(struct weir *weir,
                                      struct weir_reply *reply)
{
    if (weir)
        weir_table_count_unknown(weir->table, weir_stripe_mine(weir));
    if (!reply)
        return WEIR_PASSED;
    memset(reply, 0, sizeof(*reply));
    reply->unknown = true;
    reply->remaining = UINT64_MAX;
    return WEIR_PASSED;
}

/* Repeats a live call on the shadow set; only the sync uses the result. */
static __attribute__((noinline)) unsigned ask_shadow(struct weir *weir,
                                                     struct weir_ref ref,
                                                     struct weir_act act,
                                                     unsigned outcome,
                                                     weir_instant now)
{
    act.limited = outcome & WEIR_OUTCOME_LIMITED;
    return outcome | weir_table_shadow(weir->table, weir_stripe_mine(weir), ref,
                                       &act, now);
}

/* A name that has no slot of its own in the live set. */
static __attribute__((noinline)) unsigned ask_shadow_name(struct weir *weir,
                                                          struct weir_text name,
                                                          uint64_t weight,
                                                          weir_instant now)
{
    return weir_table_shadow_name(weir->table, weir_stripe_mine(weir), name,
                                  weight, now);
}

static struct weir_ref ref_of(struct weir_handle quota)
{
    return (struct weir_ref){ quota.slot, quota.generation };
}

static bool is_empty_handle(struct weir_handle quota)
{
    return !quota.weir || quota.generation == 0;
}

/* ---- By handle ---- */

/* The rest of a take that the table alone didn't settle. */
static __attribute__((noinline)) enum weir_verdict finish_take(
    struct weir_handle quota, uint64_t weight, struct weir_reply *reply,
    unsigned outcome, weir_instant now)
{
    struct weir *weir = quota.weir;
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE,
                                      .weight = weight };
    struct weir_act act = { .kind = WEIR_ACT_TAKE, .weight = weight };
    if (outcome & WEIR_OUTCOME_EXACT)
        outcome =
            weir_exact_decide(weir, ref_of(quota), &ask, NULL, reply, now);
    if (outcome & WEIR_OUTCOME_STALE_REF)
        return weir_decide_unknown(weir, reply);
    if (outcome & WEIR_OUTCOME_SHADOW)
        outcome = ask_shadow(weir, ref_of(quota), act, outcome, now);
    return weir_verdict_of(weir, outcome);
}

enum weir_verdict weir_take(struct weir_handle quota, uint64_t weight,
                            struct weir_reply *reply, weir_instant now)
{
    struct weir *weir = quota.weir;
    if (WEIR_UNLIKELY(is_empty_handle(quota)))
        return weir_decide_unknown(weir, reply);
    now = or_clock_now(now);
    unsigned outcome = weir_table_take(weir->table, weir_stripe_mine(weir),
                                       ref_of(quota), weight, reply, now);
    if (WEIR_LIKELY(outcome < WEIR_OUTCOME_STALE_REF))
        return weir_verdict_of(weir, outcome);
    return finish_take(quota, weight, reply, outcome, now);
}

/* The outcome of a peek at 'ref'. */
static unsigned peek_at(struct weir *weir, struct weir_ref ref, uint64_t weight,
                        struct weir_reply *reply, weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_PEEK,
                                      .weight = weight };
    unsigned outcome = weir_table_peek(weir->table, weir_stripe_mine(weir), ref,
                                       weight, reply, now);
    if (outcome & WEIR_OUTCOME_EXACT)
        outcome = weir_exact_decide(weir, ref, &ask, NULL, reply, now);
    return outcome;
}

enum weir_verdict weir_peek(struct weir_handle quota, uint64_t weight,
                            struct weir_reply *reply, weir_instant now)
{
    struct weir *weir = quota.weir;
    if (is_empty_handle(quota))
        return weir_decide_unknown(weir, reply);
    unsigned outcome =
        peek_at(weir, ref_of(quota), weight, reply, or_clock_now(now));
    if (outcome & WEIR_OUTCOME_STALE_REF)
        return weir_decide_unknown(weir, reply);
    return weir_verdict_of(weir, outcome);
}

static void move_units(struct weir_handle quota, enum weir_act_kind kind,
                       uint64_t weight, weir_instant now)
{
    struct weir *weir = quota.weir;
    uint32_t stripe = weir_stripe_mine(weir);
    struct weir_ref ref = ref_of(quota);
    unsigned outcome =
        kind == WEIR_ACT_CHARGE
            ? weir_table_charge(weir->table, stripe, ref, weight, now)
            : weir_table_refund(weir->table, stripe, ref, weight, now);
    struct weir_act act = { .kind = kind, .weight = weight };
    struct weir_algorithm_ask ask = {
        .op = kind == WEIR_ACT_CHARGE ? WEIR_ALGORITHM_CHARGE
                                      : WEIR_ALGORITHM_REFUND,
        .weight = weight,
    };
    if (outcome & WEIR_OUTCOME_EXACT)
        outcome = weir_exact_decide(weir, ref, &ask, NULL, NULL, now);
    if (outcome & WEIR_OUTCOME_SHADOW)
        outcome = ask_shadow(weir, ref, act, outcome, now);
    weir_verdict_of(weir, outcome);
}

void weir_charge(struct weir_handle quota, uint64_t weight, weir_instant now)
{
    if (is_empty_handle(quota))
        return;
    move_units(quota, WEIR_ACT_CHARGE, weight, or_clock_now(now));
}

void weir_refund(struct weir_handle quota, uint64_t weight, weir_instant now)
{
    if (is_empty_handle(quota))
        return;
    move_units(quota, WEIR_ACT_REFUND, weight, or_clock_now(now));
}

enum weir_verdict weir_reserve(struct weir_handle quota, uint64_t weight,
                               weir_duration wait_max, struct weir_reply *reply,
                               weir_instant now)
{
    struct weir *weir = quota.weir;
    if (is_empty_handle(quota))
        return weir_decide_unknown(weir, reply);
    now = or_clock_now(now);
    unsigned outcome =
        weir_table_reserve(weir->table, weir_stripe_mine(weir), ref_of(quota),
                           weight, wait_max, reply, now);
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_RESERVE,
                                      .weight = weight,
                                      .wait_max = wait_max };
    if (outcome & WEIR_OUTCOME_EXACT)
        outcome =
            weir_exact_decide(weir, ref_of(quota), &ask, NULL, reply, now);
    if (outcome & WEIR_OUTCOME_STALE_REF)
        return weir_decide_unknown(weir, reply);
    struct weir_act act = { .kind = WEIR_ACT_RESERVE,
                            .weight = weight,
                            .wait_max = wait_max };
    if (outcome & WEIR_OUTCOME_SHADOW)
        outcome = ask_shadow(weir, ref_of(quota), act, outcome, now);
    return weir_verdict_of(weir, outcome);
}

enum weir_verdict weir_wait(struct weir_handle quota, uint64_t weight,
                            weir_duration wait_max, struct weir_reply *reply)
{
    struct weir_reply spare;
    struct weir_reply *answer = reply ? reply : &spare;
    weir_instant begun = weir_clock_now();
    weir_duration waited = 0;
    for (;;) {
        weir_instant now = begun + waited;
        weir_duration left = wait_max - waited;
        enum weir_verdict result =
            weir_reserve(quota, weight, left, answer, now);
        if (result == WEIR_PASSED && answer->wait > 0)
            weir_waiting_sleep(now + answer->wait);
        if (result == WEIR_PASSED)
            answer->wait += waited;
        if (result == WEIR_PASSED || answer->retry_after > left)
            return result;
        weir_waiting_sleep(now + answer->retry_after);
        waited = weir_clock_now() - begun;
        if (waited > wait_max)
            return result;
    }
}

/* ---- By name ---- */

__attribute__((noinline)) bool weir_decide_resolve(struct weir *weir,
                                                   struct weir_text name,
                                                   struct weir_ref *out,
                                                   bool *own, weir_instant now)
{
    weir_own_ensure(weir);
    /* Any bytes may match a template; but a root would end each link on which
     * an invalid name is announced. */
    if (weir_name_check(name, NULL) < 0)
        return false;
    switch (weir_table_resolve_as(weir->table, weir->process, name, false, out,
                                  now)) {
    case WEIR_RESOLVED:
        return true;
    case WEIR_RESOLVED_FULL:
    case WEIR_RESOLVED_CHAIN:
        *own = false;
        weir_table_count_overflow(weir->table, weir_stripe_mine(weir));
        return true;
    case WEIR_RESOLVED_NONE:
        break;
    }
    return false;
}

/* The rest of a take with a shadow set, or after a store was asked. */
static __attribute__((noinline)) enum weir_verdict finish_named(
    struct weir *weir, struct weir_text name, struct weir_ref ref, bool own,
    uint64_t weight, unsigned outcome, weir_instant now)
{
    struct weir_act act = { .kind = WEIR_ACT_TAKE, .weight = weight };
    if (!(outcome & WEIR_OUTCOME_SHADOW))
        return weir_verdict_of(weir, outcome);
    outcome = own ? ask_shadow(weir, ref, act, outcome, now)
                  : outcome | ask_shadow_name(weir, name, weight, now);
    return weir_verdict_of(weir, outcome);
}

static enum weir_verdict take_hashed(struct weir *weir, struct weir_text name,
                                     uint64_t hash, uint64_t weight,
                                     struct weir_reply *reply, weir_instant now)
{
    uint32_t stripe = weir_stripe_mine(weir);
    for (int tries = 0; tries < WEIR_STALE_TRIES; tries++) {
        struct weir_ref ref;
        bool own = true;
        if (!weir_table_find_hashed(weir->table, name, hash, &ref) &&
            !weir_decide_resolve(weir, name, &ref, &own, now))
            break;
        unsigned outcome =
            weir_table_take(weir->table, stripe, ref, weight, reply, now);
        if (WEIR_LIKELY(outcome < WEIR_OUTCOME_STALE_REF))
            return weir_verdict_of(weir, outcome);
        struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE,
                                          .weight = weight };
        if (outcome & WEIR_OUTCOME_EXACT)
            outcome = weir_exact_decide(weir, ref, &ask, NULL, reply, now);
        if (!(outcome & WEIR_OUTCOME_STALE_REF))
            return finish_named(weir, name, ref, own, weight, outcome, now);
    }
    weir_verdict_of(weir, ask_shadow_name(weir, name, weight, now));
    return weir_decide_unknown(weir, reply);
}

enum weir_verdict weir_take_by_name(struct weir *weir, const char *name,
                                    size_t len, uint64_t weight,
                                    struct weir_reply *reply, weir_instant now)
{
    struct weir_text text = { name, len };
    if (WEIR_UNLIKELY(!weir_name_is_askable(text)))
        return weir_decide_unknown(weir, reply);
    return take_hashed(weir, text, weir_table_hash(weir->table, text), weight,
                       reply, or_clock_now(now));
}

enum weir_verdict weir_peek_by_name(struct weir *weir, const char *name,
                                    size_t len, uint64_t weight,
                                    struct weir_reply *reply, weir_instant now)
{
    struct weir_text text = { name, len };
    if (WEIR_UNLIKELY(!weir_name_is_askable(text)))
        return weir_decide_unknown(weir, reply);
    uint64_t hash = weir_table_hash(weir->table, text);
    now = or_clock_now(now);
    for (int tries = 0; tries < WEIR_STALE_TRIES; tries++) {
        struct weir_ref ref;
        bool own;
        if (!weir_table_find_hashed(weir->table, text, hash, &ref) &&
            !weir_decide_resolve(weir, text, &ref, &own, now))
            break;
        unsigned outcome = peek_at(weir, ref, weight, reply, now);
        if (WEIR_LIKELY(!(outcome & WEIR_OUTCOME_STALE_REF)))
            return weir_verdict_of(weir, outcome);
    }
    return weir_decide_unknown(weir, reply);
}

int weir_policy(struct weir *weir, const char *name, size_t len,
                struct weir_policy *out_policy)
{
    if (!weir || !name || !out_policy)
        return WEIR_EINVAL;
    bool found = weir_table_policy(weir->table, weir_stripe_mine(weir),
                                   (struct weir_text){ name, len }, out_policy);
    return found ? 0 : WEIR_ENOENT;
}

static size_t take_batch(struct weir *weir, struct weir_request *requests,
                         size_t count, weir_instant now)
{
    uint64_t hash[BATCH];
    for (size_t i = 0; i < count; i++) {
        struct weir_text name = { requests[i].name, requests[i].len };
        if (!weir_name_is_askable(name))
            continue;
        hash[i] = weir_table_hash(weir->table, name);
        weir_table_prefetch(weir->table, hash[i]);
    }
    size_t passed = 0;
    for (size_t i = 0; i < count; i++) {
        struct weir_text name = { requests[i].name, requests[i].len };
        requests[i].verdict = weir_name_is_askable(name)
                                  ? take_hashed(weir, name, hash[i],
                                                requests[i].weight, NULL, now)
                                  : weir_decide_unknown(weir, NULL);
        passed += requests[i].verdict == WEIR_PASSED;
    }
    return passed;
}

size_t weir_take_many(struct weir *weir, struct weir_request *requests,
                      size_t count, weir_instant now)
{
    size_t passed = 0;
    now = or_clock_now(now);
    for (size_t done = 0; done < count; done += BATCH) {
        size_t some = count - done < BATCH ? count - done : BATCH;
        passed += take_batch(weir, requests + done, some, now);
    }
    return passed;
}

/* ---- Handles ---- */

bool weir_name_is_valid(const char *name, size_t len)
{
    struct weir_text text = { name, len };
    return weir_name_check(text, NULL) == 0 && !weir_name_is_shadow(text);
}

int weir_handle_open(struct weir *weir, const char *name, size_t len,
                     struct weir_handle *out_handle)
{
    struct weir_text text = { name, len };
    struct weir_ref ref = { WEIR_SLOT_NONE, 0 };
    if (!weir_name_is_valid(name, len))
        return WEIR_ENAME;
    weir_own_ensure(weir);
    enum weir_resolved resolved = weir_table_pin_as(
        weir->table, weir->process, text, &ref, weir_clock_now());
    *out_handle = (struct weir_handle){ weir, ref.slot, ref.generation };
    return resolved == WEIR_RESOLVED ? WEIR_OK : WEIR_EFULL;
}

void weir_handle_close(struct weir_handle quota)
{
    if (is_empty_handle(quota))
        return;
    weir_own_ensure(quota.weir);
    weir_table_unpin_as(quota.weir->table, quota.weir->process, ref_of(quota));
}

int weir_want(struct weir_handle quota, double wants, weir_instant now)
{
    (void)now; /* in force when the thread has received it */
    if (is_empty_handle(quota) ||
        !(wants >= 0 && wants <= WEIR_LEASE_UNITS_MAX))
        return WEIR_EINVAL;
    struct weir *weir = quota.weir;
    weir_own_ensure(weir);
    unsigned outcome = weir_table_want(weir->table, ref_of(quota), wants);
    if (outcome & WEIR_OUTCOME_KICK)
        weir_pump_kick(weir);
    return WEIR_OK;
}
