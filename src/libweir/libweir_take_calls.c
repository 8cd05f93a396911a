/* SPDX-License-Identifier: MIT
 * libweir/libweir_take_calls.c - the decisions, as a caller sees them: a handle
 * or a name in, a verdict out. The table decides; this file adds the clock,
 * the thread's stripe, names that aren't there yet, the kick that wakes the
 * background thread, and the way to libweir_exact_decide.c. */

#include "core/table/table_share.h"
#include "libweir/libweir_decide.h"

#include <string.h>

/* Names of a batch; their memory is fetched together. */
#define BATCH 16
/* The slot of a handle without one, to whose name a quota applies; and the same
 * if that quota limits nothing. */
#define SLOT_LACKING (WEIR_SLOT_NONE - 1)
#define SLOT_FREE (WEIR_SLOT_NONE - 2)

/* The table couldn't hold the name, or lacks a quota that may be the name's:
 * on_full decides; or the request passes, if no quota would limit it. */
static __attribute__((noinline)) enum weir_verdict decide_full(
    struct weir *weir, bool is_free, struct weir_reply *reply)
{
    uint32_t stripe = weir_stripe_mine(weir);
    bool passes = is_free || weir->on_full == WEIR_ON_FULL_PASS;
    weir_table_count_overflow(weir->table, stripe);
    enum weir_verdict verdict = passes ? WEIR_PASSED : WEIR_LIMITED;
    if (!reply)
        return verdict;
    memset(reply, 0, sizeof(*reply));
    reply->verdict = verdict;
    reply->full = true;
    reply->remaining = passes ? UINT64_MAX : 0;
    if (!passes)
        reply->retry_after =
            weir_table_jitter(weir->table, stripe, WEIR_SECOND);
    return verdict;
}

/* A long name that can't be stored is limited. */
static enum weir_verdict decide_never(struct weir_reply *reply)
{
    if (reply) {
        memset(reply, 0, sizeof(*reply));
        reply->verdict = WEIR_LIMITED;
        reply->never = true;
        reply->retry_after = WEIR_NEVER;
    }
    return WEIR_LIMITED;
}

enum weir_verdict weir_decide_missing(struct weir *weir,
                                      enum weir_resolved resolved,
                                      struct weir_reply *reply)
{
    /* Resolved, but never for long enough: there is no room for it. */
    if (resolved == WEIR_RESOLVED_LACKING || weir_is_resolved(resolved))
        return decide_full(weir, false, reply);
    if (resolved == WEIR_RESOLVED_FREE)
        return decide_full(weir, true, reply);
    if (resolved == WEIR_RESOLVED_REFUSED)
        return decide_never(reply);
    if (resolved == WEIR_RESOLVED_CONTENDED)
        return weir_decide_nameless(weir, reply);
    return weir_decide_unknown(weir, reply);
}

enum weir_verdict weir_decide_unknown(struct weir *weir,
                                      struct weir_reply *reply)
{
    if (weir && weir_table_lacking(weir->table) > 0)
        return decide_full(weir, false, reply);
    if (weir)
        weir_table_count_unknown(weir->table, weir_stripe_mine(weir));
    if (!reply)
        return WEIR_PASSED;
    memset(reply, 0, sizeof(*reply));
    reply->unknown = true;
    reply->remaining = UINT64_MAX;
    return WEIR_PASSED;
}

enum weir_verdict weir_decide_empty(struct weir_handle quota,
                                    struct weir_reply *reply)
{
    bool is_free = quota.slot == SLOT_FREE;
    return quota.weir && (is_free || quota.slot == SLOT_LACKING)
               ? decide_full(quota.weir, is_free, reply)
               : weir_decide_unknown(quota.weir, reply);
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

unsigned weir_decide_shadow(struct weir *weir, struct weir_ref ref,
                            const struct weir_text *name,
                            const struct weir_algorithm_ask *ask,
                            unsigned outcome, weir_instant now)
{
    uint32_t stripe = weir_stripe_mine(weir);
    bool limited = outcome & WEIR_OUTCOME_LIMITED;
    return outcome |
           (name ? weir_table_shadow_name(weir->table, stripe, *name, ask, now)
                 : weir_table_shadow(weir->table, stripe, ref, ask, limited,
                                     now));
}

/* The rest of a request that the table alone didn't settle: locks are waited
 * for, stores are asked, and the request, unless it is a peek, is repeated on
 * the shadow set. 'name': as weir_decide_shadow(). Returns the outcome. */
static __attribute__((noinline)) unsigned finish(
    struct weir *weir, struct weir_ref ref, const struct weir_text *name,
    const struct weir_algorithm_ask *ask, struct weir_reply *reply,
    unsigned outcome, struct weir_call *call)
{
    unsigned kick = outcome & (WEIR_OUTCOME_KICK | WEIR_OUTCOME_WAKE);
    if (outcome & (WEIR_OUTCOME_EXACT | WEIR_OUTCOME_CONTENDED))
        outcome = kick | weir_exact_decide(weir, ref, ask, NULL, reply, call);
    if (outcome & WEIR_OUTCOME_STALE_REF)
        weir_verdict_of(weir, outcome); /* the kick alone still counts */
    else if (outcome & WEIR_OUTCOME_SHADOW)
        outcome = weir_decide_shadow(weir, ref, name, ask, outcome, call->now);
    return outcome;
}

static enum weir_verdict verdict_or_unknown(struct weir *weir,
                                            struct weir_reply *reply,
                                            unsigned outcome)
{
    return outcome & WEIR_OUTCOME_STALE_REF ? weir_decide_unknown(weir, reply)
                                            : weir_verdict_of(weir, outcome);
}

static __attribute__((noinline)) enum weir_verdict finish_take(
    struct weir_handle quota, uint64_t weight, struct weir_reply *reply,
    unsigned outcome, weir_instant given)
{
    struct weir_call call = weir_call_at(given);
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE,
                                      .weight = weir_weight_clipped(weight) };
    outcome =
        finish(quota.weir, ref_of(quota), NULL, &ask, reply, outcome, &call);
    return verdict_or_unknown(quota.weir, reply, outcome);
}

enum weir_verdict weir_take(struct weir_handle quota, uint64_t weight,
                            struct weir_reply *reply, weir_instant now)
{
    struct weir *weir = quota.weir;
    if (WEIR_UNLIKELY(is_empty_handle(quota)))
        return weir_decide_empty(quota, reply);
    unsigned outcome =
        weir_table_take(weir->table, weir_stripe_mine(weir), ref_of(quota),
                        weight, reply, now ? now : weir_clock_now());
    if (WEIR_LIKELY(outcome < WEIR_OUTCOME_STALE_REF))
        return weir_verdict_of(weir, outcome);
    return finish_take(quota, weight, reply, outcome, now);
}

/* A request other than a take. 'name': as weir_decide_shadow(). */
static unsigned ask_at(struct weir *weir, struct weir_ref ref,
                       const struct weir_text *name,
                       const struct weir_algorithm_ask *ask,
                       struct weir_reply *reply, struct weir_call *call)
{
    struct weir_algorithm_ask first = *ask;
    first.when_locked = WEIR_LOCKED_RETURNS;
    unsigned outcome = weir_table_ask(weir->table, weir_stripe_mine(weir), ref,
                                      &first, reply, call->now);
    if (WEIR_LIKELY(outcome < WEIR_OUTCOME_STALE_REF))
        return outcome;
    return finish(weir, ref, name, ask, reply, outcome, call);
}

static enum weir_verdict ask_handle(struct weir_handle quota,
                                    const struct weir_algorithm_ask *ask,
                                    struct weir_reply *reply, weir_instant now)
{
    struct weir *weir = quota.weir;
    if (is_empty_handle(quota))
        return weir_decide_empty(quota, reply);
    struct weir_call call = weir_call_at(now);
    return verdict_or_unknown(
        weir, reply, ask_at(weir, ref_of(quota), NULL, ask, reply, &call));
}

enum weir_verdict weir_peek(struct weir_handle quota, uint64_t weight,
                            struct weir_reply *reply, weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_PEEK,
                                      .weight = weir_weight_clipped(weight) };
    return ask_handle(quota, &ask, reply, now);
}

/* Charges and refunds of any size are made of requests' weights. */
static uint64_t next_piece(uint64_t *left)
{
    uint64_t piece = weir_weight_clipped(*left);
    *left -= piece;
    return piece;
}

static uint64_t units_clipped(uint64_t units)
{
    return units < WEIR_DEBT_MAX ? units : WEIR_DEBT_MAX;
}

static void move_units(struct weir_handle quota, enum weir_algorithm_op op,
                       uint64_t units, weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = op };
    uint64_t left = units_clipped(units);
    do {
        ask.weight = next_piece(&left);
        (void)ask_handle(quota, &ask, NULL, now);
    } while (left > 0);
}

void weir_charge(struct weir_handle quota, uint64_t weight, weir_instant now)
{
    move_units(quota, WEIR_ALGORITHM_CHARGE, weight, now);
}

void weir_refund(struct weir_handle quota, uint64_t weight, weir_instant now)
{
    move_units(quota, WEIR_ALGORITHM_REFUND, weight, now);
}

/* The units to move, 0 for none, and how. */
static uint64_t difference(uint64_t charged, uint64_t actual,
                           enum weir_algorithm_op *out_op)
{
    uint64_t before = units_clipped(charged);
    uint64_t after = units_clipped(actual);
    *out_op = after > before ? WEIR_ALGORITHM_CHARGE : WEIR_ALGORITHM_REFUND;
    return after > before ? after - before : before - after;
}

void weir_settle(struct weir_handle quota, uint64_t *charged, uint64_t actual,
                 weir_instant now)
{
    enum weir_algorithm_op op;
    uint64_t units = difference(*charged, actual, &op);
    if (units > 0)
        move_units(quota, op, units, now);
    *charged = actual;
}

enum weir_verdict weir_reserve(struct weir_handle quota, uint64_t weight,
                               weir_duration wait_max, struct weir_reply *reply,
                               weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_RESERVE,
                                      .weight = weir_weight_clipped(weight),
                                      .wait_max = wait_max };
    return ask_handle(quota, &ask, reply, now);
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

static bool lacks_room(enum weir_resolved resolved)
{
    return resolved == WEIR_RESOLVED_FULL || resolved == WEIR_RESOLVED_CHAIN ||
           resolved == WEIR_RESOLVED_FREE || resolved == WEIR_RESOLVED_LACKING;
}

/* A name that isn't in the table: a template may have it. */
static __attribute__((noinline)) enum weir_resolved resolve_asked(
    struct weir *weir, struct weir_text name, struct weir_ref *out,
    struct weir_call *call)
{
    weir_own_ensure(weir);
    /* Any bytes may match a template; but a root would end each link on which
     * an invalid name is announced. */
    int error = weir_given_name_check(name, NULL);
    if (error < 0)
        return error == WEIR_ETOOBIG ? WEIR_RESOLVED_REFUSED
                                     : WEIR_RESOLVED_NONE;
    enum weir_resolved resolved;
    uint32_t had;
    do {
        had = weir_table_committed(weir->table);
        resolved = weir_resolve_patiently(weir, name, out, call);
    } while (WEIR_UNLIKELY(lacks_room(resolved)) &&
             weir_grow_or_wait(weir, had, call));
    if (WEIR_UNLIKELY(lacks_room(resolved)) && weir->block &&
        weir_table_is_short(weir->table))
        return WEIR_RESOLVED_CONTENDED;
    /* The chain alone would let pass what the name's own quota refuses. */
    if (resolved == WEIR_RESOLVED_CHAIN && weir->on_full != WEIR_ON_FULL_PASS)
        return WEIR_RESOLVED_LACKING;
    if (resolved == WEIR_RESOLVED_FULL || resolved == WEIR_RESOLVED_CHAIN)
        weir_table_count_overflow(weir->table, weir_stripe_mine(weir));
    return resolved;
}

void weir_decide_mark_full(struct weir_reply *reply,
                           enum weir_resolved resolved)
{
    if (WEIR_UNLIKELY(resolved != WEIR_RESOLVED) && reply)
        reply->full = true;
}

static __attribute__((noinline)) bool find_long(struct weir *weir,
                                                struct weir_asked_name *asked,
                                                struct weir_ref *out)
{
    return asked->given.len <= WEIR_GIVEN_NAME_MAX &&
           weir_stored_name_find(weir->table, asked->given, &asked->cut, out);
}

static inline bool find_asked(struct weir *weir, struct weir_asked_name *asked,
                              struct weir_ref *out)
{
    if (WEIR_UNLIKELY(asked->is_long))
        return find_long(weir, asked, out);
    return weir_table_find_hashed(weir->table, asked->given, asked->hash, out);
}

static inline enum weir_resolved find_or_resolve(struct weir *weir,
                                                 struct weir_asked_name *asked,
                                                 struct weir_ref *out,
                                                 struct weir_call *call)
{
    if (WEIR_LIKELY(find_asked(weir, asked, out)))
        return WEIR_RESOLVED;
    return resolve_asked(weir, asked->given, out, call);
}

enum weir_resolved weir_asked_find(struct weir *weir,
                                   struct weir_asked_name *asked,
                                   struct weir_ref *out, struct weir_call *call)
{
    return find_or_resolve(weir, asked, out, call);
}

struct weir_text weir_asked_shadow(const struct weir_asked_name *asked)
{
    return asked->is_long ? weir_stored_name_text(&asked->cut) : asked->given;
}

static enum weir_verdict take_asked(struct weir *weir,
                                    struct weir_asked_name *asked,
                                    uint64_t weight, struct weir_reply *reply,
                                    struct weir_call *call)
{
    uint32_t stripe = weir_stripe_mine(weir);
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE,
                                      .weight = weir_weight_clipped(weight) };
    enum weir_resolved resolved = WEIR_RESOLVED;
    for (int tries = 0; tries < WEIR_STALE_TRIES; tries++) {
        struct weir_ref ref;
        resolved = find_or_resolve(weir, asked, &ref, call);
        if (WEIR_UNLIKELY(!weir_is_resolved(resolved)))
            break;
        unsigned outcome =
            weir_table_take(weir->table, stripe, ref, weight, reply, call->now);
        if (WEIR_UNLIKELY(outcome >= WEIR_OUTCOME_STALE_REF)) {
            struct weir_text name = weir_asked_shadow(asked);
            outcome =
                finish(weir, ref, resolved == WEIR_RESOLVED ? NULL : &name,
                       &ask, reply, outcome, call);
        }
        if (outcome & WEIR_OUTCOME_STALE_REF)
            continue;
        weir_decide_mark_full(reply, resolved);
        return weir_verdict_of(weir, outcome);
    }
    if (weir_is_unruled(resolved))
        weir_verdict_of(weir, weir_table_shadow_name(weir->table, stripe,
                                                     weir_asked_shadow(asked),
                                                     &ask, call->now));
    return weir_decide_missing(weir, resolved, reply);
}

enum weir_verdict weir_take_by_name(struct weir *weir, const char *name,
                                    size_t len, uint64_t weight,
                                    struct weir_reply *reply, weir_instant now)
{
    struct weir_text text = { name, len };
    struct weir_asked_name asked;
    if (WEIR_UNLIKELY(!weir_name_is_askable(text)))
        return weir_decide_unknown(weir, reply);
    weir_asked_init(weir, text, &asked);
    struct weir_call call = weir_call_at(now);
    return take_asked(weir, &asked, weight, reply, &call);
}

/* A request other than a take. Returns the outcome about '*out', or
 * WEIR_OUTCOME_STALE_REF: no slot can be asked, '*out_resolved' says why. */
static unsigned ask_asked(struct weir *weir, struct weir_asked_name *asked,
                          const struct weir_algorithm_ask *ask,
                          struct weir_reply *reply, struct weir_ref *out,
                          enum weir_resolved *out_resolved,
                          struct weir_call *call)
{
    for (int tries = 0; tries < WEIR_STALE_TRIES; tries++) {
        *out_resolved = find_or_resolve(weir, asked, out, call);
        if (WEIR_UNLIKELY(!weir_is_resolved(*out_resolved)))
            break;
        struct weir_text name = weir_asked_shadow(asked);
        bool own = *out_resolved == WEIR_RESOLVED;
        unsigned outcome =
            ask_at(weir, *out, own ? NULL : &name, ask, reply, call);
        if (!(outcome & WEIR_OUTCOME_STALE_REF))
            return outcome;
    }
    return WEIR_OUTCOME_STALE_REF;
}

enum weir_verdict weir_peek_by_name(struct weir *weir, const char *name,
                                    size_t len, uint64_t weight,
                                    struct weir_reply *reply, weir_instant now)
{
    struct weir_text text = { name, len };
    struct weir_asked_name asked;
    if (WEIR_UNLIKELY(!weir_name_is_askable(text)))
        return weir_decide_unknown(weir, reply);
    weir_asked_init(weir, text, &asked);
    struct weir_call call = weir_call_at(now);
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_PEEK,
                                      .weight = weir_weight_clipped(weight) };
    struct weir_ref ref;
    enum weir_resolved resolved;
    unsigned outcome =
        ask_asked(weir, &asked, &ask, reply, &ref, &resolved, &call);
    if (outcome & WEIR_OUTCOME_STALE_REF)
        return weir_decide_missing(weir, resolved, reply);
    outcome |= weir_table_note_peek(weir->table, ref.slot, ask.weight,
                                    outcome & WEIR_OUTCOME_LIMITED);
    weir_decide_mark_full(reply, resolved);
    return weir_verdict_of(weir, outcome);
}

/* False: there is no quota to be charged. */
static bool move_asked(struct weir *weir, struct weir_asked_name *asked,
                       const struct weir_algorithm_ask *ask,
                       struct weir_call *call)
{
    struct weir_ref ref;
    enum weir_resolved resolved;
    unsigned outcome = ask_asked(weir, asked, ask, NULL, &ref, &resolved, call);
    if (!(outcome & WEIR_OUTCOME_STALE_REF)) {
        (void)weir_verdict_of(weir, outcome); /* for its kick */
        return true;
    }
    if (weir_is_unruled(resolved))
        (void)weir_verdict_of(
            weir,
            weir_table_shadow_name(weir->table, weir_stripe_mine(weir),
                                   weir_asked_shadow(asked), ask, call->now));
    (void)weir_decide_missing(weir, resolved, NULL);
    return false;
}

static bool move_by_name(struct weir *weir, struct weir_text name,
                         enum weir_algorithm_op op, uint64_t units,
                         weir_instant now)
{
    struct weir_asked_name asked;
    struct weir_algorithm_ask ask = { .op = op };
    uint64_t left = units_clipped(units);
    bool moved = true;
    if (WEIR_UNLIKELY(!weir_name_is_askable(name))) {
        (void)weir_decide_unknown(weir, NULL);
        return false;
    }
    weir_asked_init(weir, name, &asked);
    do {
        struct weir_call call = weir_call_at(now);
        ask.weight = next_piece(&left);
        moved = move_asked(weir, &asked, &ask, &call);
    } while (moved && left > 0);
    return moved;
}

bool weir_charge_by_name(struct weir *weir, const char *name, size_t len,
                         uint64_t weight, weir_instant now)
{
    return move_by_name(weir, (struct weir_text){ name, len },
                        WEIR_ALGORITHM_CHARGE, weight, now);
}

bool weir_refund_by_name(struct weir *weir, const char *name, size_t len,
                         uint64_t weight, weir_instant now)
{
    return move_by_name(weir, (struct weir_text){ name, len },
                        WEIR_ALGORITHM_REFUND, weight, now);
}

bool weir_settle_by_name(struct weir *weir, const char *name, size_t len,
                         uint64_t *charged, uint64_t actual, weir_instant now)
{
    enum weir_algorithm_op op;
    uint64_t units = difference(*charged, actual, &op);
    bool settled =
        units == 0 ||
        move_by_name(weir, (struct weir_text){ name, len }, op, units, now);
    if (settled)
        *charged = actual;
    return settled;
}

int weir_policy(struct weir *weir, const char *name, size_t len,
                struct weir_policy *out_policy)
{
    if (!weir || !name || !out_policy)
        return WEIR_EINVAL;
    bool found = weir_table_policy(weir->table, weir_stripe_mine(weir),
                                   (struct weir_text){ name, len }, out_policy);
    weir_locks_heed(weir);
    return found ? 0 : WEIR_ENOENT;
}

static size_t take_batch(struct weir *weir, struct weir_request *requests,
                         size_t count, struct weir_call *call)
{
    struct weir_asked_name asked[BATCH];
    for (size_t i = 0; i < count; i++) {
        struct weir_text name = { requests[i].name, requests[i].len };
        if (!weir_name_is_askable(name))
            continue;
        weir_asked_init(weir, name, &asked[i]);
        if (!asked[i].is_long)
            weir_table_prefetch(weir->table, asked[i].hash);
    }
    size_t passed = 0;
    for (size_t i = 0; i < count; i++) {
        struct weir_text name = { requests[i].name, requests[i].len };
        /* Each has a deadline of its own. */
        call->wait = (struct weir_lock_wait){ .until = 0 };
        call->yields = 0;
        requests[i].verdict =
            weir_name_is_askable(name)
                ? take_asked(weir, &asked[i], requests[i].weight, NULL, call)
                : weir_decide_unknown(weir, NULL);
        passed += requests[i].verdict == WEIR_PASSED;
    }
    return passed;
}

size_t weir_take_many(struct weir *weir, struct weir_request *requests,
                      size_t count, weir_instant now)
{
    size_t passed = 0;
    struct weir_call call = weir_call_at(now);
    for (size_t done = 0; done < count; done += BATCH) {
        size_t some = count - done < BATCH ? count - done : BATCH;
        passed += take_batch(weir, requests + done, some, &call);
    }
    return passed;
}

/* ---- Handles ---- */

bool weir_name_is_valid(const char *name, size_t len)
{
    struct weir_text text = { name, len };
    return weir_given_name_check(text, NULL) == 0 && !weir_name_is_shadow(text);
}

/* Whether the slot was pinned: another one than the name's, or RESOLVED. */
static bool is_pinned(const struct weir *weir, struct weir_text name,
                      enum weir_resolved resolved, struct weir_ref ref)
{
    struct weir_ref own;
    return weir_is_resolved(resolved) &&
           (resolved == WEIR_RESOLVED ||
            !weir_table_find(weir->table, name, &own) || own.slot != ref.slot);
}

static enum weir_resolved pin_patiently(struct weir *weir,
                                        struct weir_text name,
                                        struct weir_ref *out)
{
    enum weir_resolved resolved;
    struct weir_lock_wait wait;
    weir_lock_wait_begin(weir, &wait, weir_handle_wait(weir));
    do {
        resolved = weir_table_pin_as(weir->table, weir->process, name, out,
                                     weir_clock_now());
    } while (resolved == WEIR_RESOLVED_CONTENDED &&
             weir_lock_wait(weir, &wait));
    return resolved;
}

/* Pins the name's slot, growing the table if need be. */
static enum weir_resolved pin_growing(struct weir *weir, struct weir_text name,
                                      struct weir_ref *out)
{
    for (;;) {
        struct weir_ref ref = { WEIR_SLOT_NONE, 0 };
        uint32_t had = weir_table_committed(weir->table);
        enum weir_resolved resolved = pin_patiently(weir, name, &ref);
        bool again = resolved != WEIR_RESOLVED &&
                     resolved != WEIR_RESOLVED_CONTENDED &&
                     weir_grow(weir, had);
        bool refused = resolved == WEIR_RESOLVED_CHAIN &&
                       weir->on_full != WEIR_ON_FULL_PASS;
        if (!again && !refused) {
            *out = ref;
            return resolved;
        }
        if (is_pinned(weir, name, resolved, ref))
            weir_unpin(weir, ref);
        if (!again)
            return WEIR_RESOLVED_LACKING;
    }
}

int weir_handle_open(struct weir *weir, const char *name, size_t len,
                     struct weir_handle *out_handle)
{
    struct weir_text text = { name, len };
    struct weir_ref ref = { WEIR_SLOT_NONE, 0 };
    if (!weir_name_is_valid(name, len))
        return WEIR_ENAME;
    weir_own_ensure(weir);
    weir_unpin_late(weir);
    enum weir_resolved resolved = pin_growing(weir, text, &ref);
    weir_locks_heed(weir);
    if (resolved == WEIR_RESOLVED_REFUSED)
        return WEIR_ENAME;
    if (resolved == WEIR_RESOLVED_CONTENDED)
        return WEIR_ETIMEOUT;
    if (resolved == WEIR_RESOLVED_LACKING || resolved == WEIR_RESOLVED_FREE)
        ref.slot = resolved == WEIR_RESOLVED_FREE ? SLOT_FREE : SLOT_LACKING;
    *out_handle = (struct weir_handle){ weir, ref.slot, ref.generation };
    return resolved == WEIR_RESOLVED ? WEIR_OK : WEIR_EFULL;
}

void weir_handle_close(struct weir_handle quota)
{
    if (is_empty_handle(quota))
        return;
    weir_own_ensure(quota.weir);
    weir_unpin(quota.weir, ref_of(quota));
    weir_locks_heed(quota.weir);
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
