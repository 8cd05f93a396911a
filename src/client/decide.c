/* SPDX-License-Identifier: MIT
 * client/decide.c - the decisions, as a caller sees them: a handle or a name
 * in, a verdict out. All of it is the table's; here is only what surrounds
 * it: the clock, the thread's stripe, names that aren't there yet, and the
 * kick that wakes the background thread. */

#include "client/client.h"

#include <string.h>
#include <time.h>

#include "os/clock.h"

/* A slot may change hands between lookup and take; that often in a row only
 * if the table is being churned, and then the name is as good as unknown. */
#define STALE_TRIES 4

/* Names of a batch whose memory is fetched together. */
#define BATCH 16

static weir_instant at(weir_instant now)
{
    return now ? now : weir_clock_now();
}

static enum weir_verdict verdict(struct weir *weir, unsigned outcome)
{
    if (WEIR_UNLIKELY(outcome & WEIR_OUTCOME_KICK))
        weir_pump_kick(weir);
    return outcome & WEIR_OUTCOME_LIMITED ? WEIR_LIMITED : WEIR_PASS;
}

/* A name without quota passes. */
static enum weir_verdict pass_unknown(struct weir *weir,
                                      struct weir_reply *reply)
{
    if (weir)
        weir_table_count_unknown(weir->table, weir_stripe_mine(weir));
    if (!reply)
        return WEIR_PASS;
    memset(reply, 0, sizeof(*reply));
    reply->unknown = true;
    reply->remaining = UINT64_MAX;
    return WEIR_PASS;
}

/* Tells the shadow set what was asked of the live one; what came of that
 * there is nobody's business but the sync's. */
static __attribute__((noinline)) unsigned
ask_shadow(struct weir *weir, struct weir_ref ref, struct weir_act act,
           unsigned outcome, weir_instant now)
{
    act.limited = outcome & WEIR_OUTCOME_LIMITED;
    return outcome | weir_table_shadow(weir->table, weir_stripe_mine(weir),
                                       ref, &act, now);
}

/* A name that has no slot of its own in the live set. */
static __attribute__((noinline)) unsigned
ask_shadow_name(struct weir *weir, struct weir_text name, uint64_t weight,
                weir_instant now)
{
    return weir_table_shadow_name(weir->table, weir_stripe_mine(weir), name,
                                  weight, now);
}

static struct weir_ref ref_of(struct weir_handle quota)
{
    return (struct weir_ref){ quota.slot, quota.generation };
}

static bool is_empty(struct weir_handle quota)
{
    return !quota.weir || quota.generation == 0;
}

/* ---- By handle ---- */

enum weir_verdict weir_take(struct weir_handle quota, uint64_t weight,
                            struct weir_reply *reply, weir_instant now)
{
    struct weir *weir = quota.weir;
    if (WEIR_UNLIKELY(is_empty(quota)))
        return pass_unknown(weir, reply);
    now = at(now);
    unsigned outcome =
        weir_table_take(weir->table, weir_stripe_mine(weir), ref_of(quota),
                        weight, reply, now);
    if (WEIR_LIKELY(outcome < WEIR_OUTCOME_STALE_REF))
        return verdict(weir, outcome);
    if (outcome & WEIR_OUTCOME_STALE_REF)
        return pass_unknown(weir, reply);
    struct weir_act act = { .kind = WEIR_ACT_TAKE, .weight = weight };
    return verdict(weir, ask_shadow(weir, ref_of(quota), act, outcome, now));
}

enum weir_verdict weir_peek(struct weir_handle quota, uint64_t weight,
                            struct weir_reply *reply, weir_instant now)
{
    struct weir *weir = quota.weir;
    if (is_empty(quota))
        return pass_unknown(weir, reply);
    unsigned outcome =
        weir_table_peek(weir->table, weir_stripe_mine(weir), ref_of(quota),
                        weight, reply, at(now));
    if (outcome & WEIR_OUTCOME_STALE_REF)
        return pass_unknown(weir, reply);
    return verdict(weir, outcome);
}

static void move(struct weir_handle quota, enum weir_act_kind kind,
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
    if (outcome & WEIR_OUTCOME_SHADOW)
        outcome = ask_shadow(weir, ref, act, outcome, now);
    verdict(weir, outcome);
}

void weir_charge(struct weir_handle quota, uint64_t weight, weir_instant now)
{
    if (is_empty(quota))
        return;
    move(quota, WEIR_ACT_CHARGE, weight, at(now));
}

void weir_refund(struct weir_handle quota, uint64_t weight, weir_instant now)
{
    if (is_empty(quota))
        return;
    move(quota, WEIR_ACT_REFUND, weight, at(now));
}

enum weir_verdict weir_reserve(struct weir_handle quota, uint64_t weight,
                               weir_duration wait_max,
                               struct weir_reply *reply, weir_instant now)
{
    struct weir *weir = quota.weir;
    if (is_empty(quota))
        return pass_unknown(weir, reply);
    now = at(now);
    unsigned outcome =
        weir_table_reserve(weir->table, weir_stripe_mine(weir),
                           ref_of(quota), weight, wait_max, reply, now);
    if (outcome & WEIR_OUTCOME_STALE_REF)
        return pass_unknown(weir, reply);
    struct weir_act act = { .kind = WEIR_ACT_RESERVE,
                            .weight = weight,
                            .wait_max = wait_max };
    if (outcome & WEIR_OUTCOME_SHADOW)
        outcome = ask_shadow(weir, ref_of(quota), act, outcome, now);
    return verdict(weir, outcome);
}

static void sleep_until(weir_instant then)
{
    struct timespec at_then = {
        .tv_sec = (time_t)(then / WEIR_SECOND),
        .tv_nsec = (long)(then % WEIR_SECOND),
    };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at_then, NULL))
        continue;
}

enum weir_verdict weir_wait(struct weir_handle quota, uint64_t weight,
                            weir_duration wait_max, struct weir_reply *reply)
{
    struct weir_reply spare;
    struct weir_reply *answer = reply ? reply : &spare;
    weir_instant now = weir_clock_now();
    enum weir_verdict result =
        weir_reserve(quota, weight, wait_max, answer, now);
    if (result == WEIR_PASS && answer->wait > 0)
        sleep_until(now + answer->wait);
    return result;
}

/* ---- By name ---- */

/* The name isn't in the table: a template may rule it. '*own' says whether
 * what rules it is a slot of that name. */
static __attribute__((noinline)) bool resolve(struct weir *weir,
                                              struct weir_text name,
                                              struct weir_ref *out, bool *own,
                                              weir_instant now)
{
    weir_fork_check(weir);
    /* Any bytes may match a template; a name that roots don't take for one
     * would end each link that it is announced on. */
    if (weir_name_check(name, NULL) < 0)
        return false;
    switch (weir_table_resolve(weir->table, name, false, out, now)) {
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

/* The rest of a take when there is a shadow set. */
static __attribute__((noinline)) enum weir_verdict
finish_shadow(struct weir *weir, struct weir_text name, struct weir_ref ref,
              bool own, uint64_t weight, unsigned outcome, weir_instant now)
{
    struct weir_act act = { .kind = WEIR_ACT_TAKE, .weight = weight };
    outcome = own ? ask_shadow(weir, ref, act, outcome, now)
                  : outcome | ask_shadow_name(weir, name, weight, now);
    return verdict(weir, outcome);
}

static enum weir_verdict take_hashed(struct weir *weir,
                                     struct weir_text name, uint64_t hash,
                                     uint64_t weight,
                                     struct weir_reply *reply,
                                     weir_instant now)
{
    uint32_t stripe = weir_stripe_mine(weir);
    for (int tries = 0; tries < STALE_TRIES; tries++) {
        struct weir_ref ref;
        bool own = true;
        if (!weir_table_find_hashed(weir->table, name, hash, &ref) &&
            !resolve(weir, name, &ref, &own, now))
            break;
        unsigned outcome = weir_table_take(weir->table, stripe, ref, weight,
                                           reply, now);
        if (WEIR_LIKELY(outcome < WEIR_OUTCOME_STALE_REF))
            return verdict(weir, outcome);
        if (!(outcome & WEIR_OUTCOME_STALE_REF))
            return finish_shadow(weir, name, ref, own, weight, outcome, now);
    }
    verdict(weir, ask_shadow_name(weir, name, weight, now));
    return pass_unknown(weir, reply);
}

/* A name that may have a quota. Those of the shadow set are nobody's to ask
 * for: they pass as unknown ones do. */
static inline bool is_askable(struct weir_text name)
{
    return name.len > 0 && name.len <= WEIR_NAME_MAX &&
           !weir_name_is_shadow(name);
}

enum weir_verdict weir_take_by_name(struct weir *weir, const char *name,
                                    size_t len, uint64_t weight,
                                    struct weir_reply *reply,
                                    weir_instant now)
{
    struct weir_text text = { name, len };
    if (WEIR_UNLIKELY(!is_askable(text)))
        return pass_unknown(weir, reply);
    return take_hashed(weir, text, weir_table_hash(weir->table, text),
                       weight, reply, at(now));
}

static size_t take_batch(struct weir *weir, struct weir_ask *asks,
                         size_t count, weir_instant now)
{
    uint64_t hash[BATCH];
    for (size_t i = 0; i < count; i++) {
        struct weir_text name = { asks[i].name, asks[i].len };
        if (!is_askable(name))
            continue;
        hash[i] = weir_table_hash(weir->table, name);
        weir_table_prefetch(weir->table, hash[i]);
    }
    size_t passed = 0;
    for (size_t i = 0; i < count; i++) {
        struct weir_text name = { asks[i].name, asks[i].len };
        asks[i].verdict =
            is_askable(name) ? take_hashed(weir, name, hash[i],
                                           asks[i].weight, NULL, now)
                             : pass_unknown(weir, NULL);
        passed += asks[i].verdict == WEIR_PASS;
    }
    return passed;
}

size_t weir_take_many(struct weir *weir, struct weir_ask *asks, size_t count,
                      weir_instant now)
{
    size_t passed = 0;
    now = at(now);
    for (size_t done = 0; done < count; done += BATCH) {
        size_t some = count - done < BATCH ? count - done : BATCH;
        passed += take_batch(weir, asks + done, some, now);
    }
    return passed;
}

/* ---- Handles ---- */

int weir_handle_open(struct weir *weir, const char *name, size_t len,
                     struct weir_handle *out_handle)
{
    struct weir_text text = { name, len };
    struct weir_ref ref = { WEIR_SLOT_NONE, 0 };
    int error = weir_name_check(text, NULL);
    if (error == 0 && weir_name_is_shadow(text))
        error = WEIR_ENAME;
    if (error < 0)
        return error;
    weir_fork_check(weir);
    enum weir_resolved resolved =
        weir_table_pin(weir->table, text, &ref, weir_clock_now());
    *out_handle = (struct weir_handle){ weir, ref.slot, ref.generation };
    return resolved == WEIR_RESOLVED ? WEIR_OK : WEIR_EFULL;
}

void weir_handle_close(struct weir_handle quota)
{
    if (is_empty(quota))
        return;
    weir_fork_check(quota.weir);
    weir_table_unpin(quota.weir->table, ref_of(quota));
}
