/* SPDX-License-Identifier: MIT
 * test_table_bucket_state.c - bucket states in the table, compared with the
 * same steps by hand.
 *
 * The model has a rule and a state of its own for each quota. Of chains it
 * knows only this: a request passes if all of its links would let it pass, and
 * then all are charged, or none. Plain buckets, which the table keeps in its
 * slots, are bucket states like all others here. test_algorithm checks the
 * answer of each step; this file checks that the table makes the right steps
 * for the right quotas at the right time, through chains, modes, edits, names
 * that come and go, and threads. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "compare.h"
#include "core/quota/quota_bucket.h"
#include "patience.h"
#include "table_calls.h"
#include "table_maker.h"

#define QUOTAS 16
#define HOUR (3600 * WEIR_SECOND)
/* 2026-03-01 00:00:00 UTC, less the tables' origin. */
#define WALL (1772323200ull * WEIR_SECOND - MADE_AT)
#define ZONE_S (3 * 3600)
#define WORDS (WEIR_ALGORITHM_SIZE_MAX / 8)

/* ---- The model ---- */

struct model {
    char name[8];
    char parent_name[16];
    struct weir_quota quota;
    struct weir_ref ref;
    int parent; /* -1: none */
    bool plain; /* a bucket in the slot */
    struct weir_algorithm_rule rule;
    uint64_t *state;
    uint64_t count;
};

struct world {
    struct weir_table *table;
    struct weir_rng rng;
    uint32_t stripe;
    weir_instant now;
    struct model quota[QUOTAS];
    unsigned passed, refused, waited, leveled;
};

static weir_instant clock_of(const struct model *m, weir_instant now)
{
    return m->plain ? now - MADE_AT : now + WALL;
}

static struct weir_algorithm_answer model_step(struct model *m,
                                               enum weir_algorithm_op op,
                                               uint64_t weight,
                                               weir_duration wait_max,
                                               weir_instant now)
{
    struct weir_algorithm_ask ask = { op, weight, wait_max };
    struct weir_algorithm_answer answer;
    memset(&answer, 0, sizeof(answer));
    weir_algorithm_step(&m->rule, m->state, &ask, &answer, clock_of(m, now));
    return answer;
}

static bool is_enforced(const struct model *m)
{
    return m->quota.mode == WEIR_ENFORCE && !m->quota.limit.unlimited;
}

/* The table asks buckets before other states, each from the leaf up. */
static int model_refuser(struct world *w, int leaf, uint64_t weight)
{
    for (int bucket_states = 0; bucket_states < 2; bucket_states++) {
        for (int i = leaf; i >= 0; i = w->quota[i].parent) {
            struct model *m = &w->quota[i];
            if (is_enforced(m) && m->plain == !bucket_states &&
                !model_step(m, WEIR_ALGORITHM_PEEK, weight, 0, w->now).passed)
                return i;
        }
    }
    return -1;
}

/* ---- Making quotas ---- */

static const enum weir_algorithm algorithms[] = {
    WEIR_LEAKY,          WEIR_LEAKY_QUEUE,  WEIR_TOKEN_BUCKET,
    WEIR_TOKEN_BUCKETS,  WEIR_FIXED_WINDOW, WEIR_SLIDING_LOG,
    WEIR_SLIDING_WINDOW,
};

static void choose_window(struct weir_quota *quota, struct weir_rng *rng)
{
    quota->count_limited = weir_rng_below(rng, 4) == 0;
    if (quota->algorithm == WEIR_FIXED_WINDOW && weir_rng_below(rng, 2)) {
        quota->window = (struct weir_window){ .length = HOUR,
                                              .calendar = WEIR_CALENDAR_HOUR };
        quota->tz = weir_rng_below(rng, 2) ? WEIR_TEXT("Test/Three")
                                           : WEIR_TEXT("+00:30");
    }
    if (quota->algorithm == WEIR_SLIDING_WINDOW)
        quota->sub_windows = 1 + (uint32_t)weir_rng_below(rng, 8);
    if (quota->algorithm == WEIR_SLIDING_LOG)
        quota->max_entries =
            quota->count_limited ? 500 : 1 + (uint32_t)weir_rng_below(rng, 64);
}

/* Some units an hour to some a second, so that windows begin and end. */
static void choose(struct weir_quota *quota, struct weir_rng *rng)
{
    static const weir_duration pers[] = { WEIR_SECOND, 10 * WEIR_SECOND,
                                          60 * WEIR_SECOND, HOUR };
    struct weir_text name = quota->name, parent = quota->parent;
    weir_quota_init(quota);
    quota->name = name;
    quota->parent = parent;
    quota->created = 1;
    quota->sharing = WEIR_LOCAL;
    quota->algorithm = algorithms[weir_rng_below(rng, 7)];
    quota->limit = (struct weir_limit){ .units = 1 + weir_rng_below(rng, 200),
                                        .per = pers[weir_rng_below(rng, 4)] };
    quota->high_burst =
        (struct weir_burst){ .amount = 1 + weir_rng_below(rng, 100) };
    if (quota->algorithm == WEIR_LEAKY)
        quota->low_burst = quota->high_burst;
    if (quota->algorithm == WEIR_TOKEN_BUCKET && weir_rng_below(rng, 2))
        quota->initial =
            (struct weir_burst){ .amount = weir_rng_below(rng, 200) };
    if (quota->algorithm == WEIR_TOKEN_BUCKETS)
        quota->next_buckets = weir_rng_below(rng, 2)
                                  ? WEIR_TEXT("5/s:20, 1/s:50")
                                  : WEIR_TEXT("spill:40");
    if (quota->algorithm >= WEIR_FIXED_WINDOW) {
        quota->high_burst = (struct weir_burst){ .unset = true };
        choose_window(quota, rng);
    }
    uint64_t mode = weir_rng_below(rng, 10);
    quota->mode = mode == 0 ? WEIR_SHADOW : mode == 1 ? WEIR_OFF : WEIR_ENFORCE;
}

static int32_t zone_offset(void *context, struct weir_text zone)
{
    (void)context;
    assert_true(weir_text_equal(zone, WEIR_TEXT("Test/Three")));
    return ZONE_S;
}

static void rule_of_quota(const struct weir_quota *quota, struct model *out)
{
    int32_t offset_s = 0;
    if (!weir_tz_fixed(quota->tz, &offset_s))
        offset_s = ZONE_S;
    weir_quota_algorithm_rule(quota, offset_s, &out->rule);
    out->plain =
        quota->algorithm == WEIR_LEAKY ||
        (quota->algorithm == WEIR_TOKEN_BUCKET && quota->initial.unset);
}

/* Used units stay used: by the bucket state's own carry, or, if a bucket in a
 * slot is involved, as that many units charged. */
static void model_follow(struct model *m, const struct weir_quota *quota,
                         weir_instant now)
{
    struct model before = *m;
    m->quota.mode = quota->mode;
    if (weir_quota_equal(&m->quota, quota))
        return; /* the rule is the same, the state stays */
    rule_of_quota(quota, m);
    m->state = calloc(WORDS, 8);
    assert_non_null(m->state);
    if (!before.plain && !m->plain) {
        weir_algorithm_carry(&before.rule, before.state, &m->rule, m->state,
                             clock_of(m, now));
    } else {
        int64_t used = model_step(&before, WEIR_ALGORITHM_PEEK, 0, 0, now).used;
        if (used > 0)
            model_step(m, WEIR_ALGORITHM_CHARGE, (uint64_t)used, 0, now);
    }
    free(before.state);
    m->quota = *quota;
}

static void put_first(struct world *w, int i)
{
    struct model *m = &w->quota[i];
    snprintf(m->name, sizeof(m->name), "q%d", i);
    m->parent = i == 0 ? -1 : (int)weir_rng_below(&w->rng, (uint64_t)i);
    if (weir_rng_below(&w->rng, 4) == 0)
        m->parent = -1;
    if (m->parent >= 0)
        snprintf(m->parent_name, sizeof(m->parent_name), "q%d", m->parent);
    m->quota.name = weir_text_of(m->name);
    m->quota.parent = weir_text_of(m->parent >= 0 ? m->parent_name : NULL);
    choose(&m->quota, &w->rng);
    struct weir_diag diag;
    if (weir_quota_check(&m->quota, &diag) < 0)
        fail_msg("%s", diag.text);
    rule_of_quota(&m->quota, m);
    m->state = calloc(WORDS, 8);
    m->ref = made_put(w->table, &m->quota, w->now);
}

/* ---- Both side by side ---- */

static uint64_t units_in(struct weir_table *t, uint32_t slot, weir_instant now)
{
    assert_true(weir_table_try_lock(t));
    assert_true(weir_bucket_state_seize(t, slot));
    uint64_t units = weir_bucket_state_units(t, slot, now);
    weir_bucket_state_unseize(t, slot);
    weir_table_unlock(t);
    return units;
}

/* Each quota's state equals its model's. */
static void check_quota(struct world *w, int i)
{
    struct model *m = &w->quota[i];
    assert_true(weir_table_count(w->table, m->ref.slot) == m->count);
    if (m->quota.limit.unlimited)
        return;
    struct weir_algorithm_answer answer =
        model_step(m, WEIR_ALGORITHM_PEEK, 0, 0, w->now);
    uint64_t units = units_in(w->table, m->ref.slot, w->now);
    if (m->plain) {
        struct weir_slot_view view;
        weir_table_view(w->table, m->ref.slot, &view, w->now);
        int64_t one = (int64_t)1 << view.bucket.leak.frac;
        units = (uint64_t)((view.fill + one - 1) >> view.bucket.leak.frac);
    }
    assert_true((int64_t)units == (answer.used > 0 ? answer.used : 0));
}

static void check_chain(struct world *w, int i)
{
    for (; i >= 0; i = w->quota[i].parent)
        check_quota(w, i);
}

static void check_passed(struct world *w, int leaf,
                         const struct weir_reply *reply)
{
    uint64_t least = UINT64_MAX;
    for (int i = leaf; i >= 0; i = w->quota[i].parent) {
        struct model *m = &w->quota[i];
        if (!is_enforced(m))
            continue;
        uint64_t left =
            model_step(m, WEIR_ALGORITHM_PEEK, 0, 0, w->now).remaining;
        least = left < least ? left : least;
    }
    assert_int_equal(reply->verdict, WEIR_PASSED);
    assert_true(reply->remaining == least);
    assert_true(reply->retry_after == 0);
}

/* How much a slot's wait may differ from the bucket state's: the slot leaks
 * since another instant, and both round to a part of a unit. */
static weir_duration slop_of(const struct model *m)
{
    return m->plain ? 2 * weir_leak_time(m->rule.bucket[0].bucket.leak, 1) + 2
                    : 0;
}

static void check_refused(struct world *w, int refuser, uint64_t weight,
                          const struct weir_reply *reply)
{
    struct model *m = &w->quota[refuser];
    struct weir_algorithm_answer answer =
        model_step(m, WEIR_ALGORITHM_PEEK, weight, 0, w->now);
    assert_int_equal(reply->verdict, WEIR_LIMITED);
    assert_string_equal(reply->quota, m->name);
    assert_true(reply->never == answer.never);
    assert_int_equal(reply->level, 0);
    if (answer.never) {
        assert_true(reply->retry_after == WEIR_NEVER);
        return;
    }
    weir_duration slop = slop_of(m);
    assert_compare(reply->retry_after + slop, >=, answer.retry_after);
    assert_compare(reply->retry_after, <=,
                   (answer.retry_after + slop) * 5 / 4 + 1);
}

/* Charges the model with a request that passed; returns the highest level over
 * the chain. */
static uint8_t model_charge(struct world *w, int leaf, uint64_t weight)
{
    uint8_t level = 0;
    for (int i = leaf; i >= 0; i = w->quota[i].parent) {
        struct model *m = &w->quota[i];
        if (m->quota.mode == WEIR_OFF)
            continue;
        struct weir_algorithm_answer answer =
            model_step(m, WEIR_ALGORITHM_TAKE, weight, 0, w->now);
        m->count += answer.passed ? weight : 0;
        if (answer.level > level && is_enforced(m))
            level = answer.level;
    }
    return level;
}

static void do_take(struct world *w, int leaf, uint64_t weight)
{
    struct weir_reply reply;
    int refuser = model_refuser(w, leaf, weight);
    unsigned outcome = weir_table_take(w->table, w->stripe, w->quota[leaf].ref,
                                       weight, &reply, w->now);
    assert_int_equal(outcome & ~(unsigned)WEIR_OUTCOME_KICK,
                     refuser < 0 ? 0 : WEIR_OUTCOME_LIMITED);
    if (refuser < 0) {
        uint8_t level = model_charge(w, leaf, weight);
        assert_int_equal(reply.level, level);
        check_passed(w, leaf, &reply);
        w->passed++;
        w->leveled += level > 0;
        return;
    }
    if (!w->quota[refuser].plain)
        model_step(&w->quota[refuser], WEIR_ALGORITHM_TAKE, weight, 0, w->now);
    check_refused(w, refuser, weight, &reply);
    w->refused++;
}

static void do_peek(struct world *w, int leaf, uint64_t weight)
{
    struct weir_reply reply;
    int refuser = model_refuser(w, leaf, weight);
    weir_table_peek(w->table, w->stripe, w->quota[leaf].ref, weight, &reply,
                    w->now);
    if (refuser < 0)
        check_passed(w, leaf, &reply);
    else
        check_refused(w, refuser, weight, &reply);
}

/* Charges all, or gives back to all; never more than a count has in. */
static void do_move(struct world *w, int leaf, uint64_t weight, bool back)
{
    if (back)
        weir_table_refund(w->table, w->stripe, w->quota[leaf].ref, weight,
                          w->now);
    else
        weir_table_charge(w->table, w->stripe, w->quota[leaf].ref, weight,
                          w->now);
    for (int i = leaf; i >= 0; i = w->quota[i].parent) {
        struct model *m = &w->quota[i];
        if (m->quota.mode != WEIR_OFF)
            model_step(m, back ? WEIR_ALGORITHM_REFUND : WEIR_ALGORITHM_CHARGE,
                       weight, 0, w->now);
        m->count = weir_table_count(w->table, m->ref.slot);
    }
}

/* A reserve of one link that leaves no trace. */
static struct weir_algorithm_answer model_try(struct model *m, uint64_t weight,
                                              weir_duration wait_max,
                                              weir_instant now)
{
    size_t size = weir_algorithm_size(&m->rule);
    uint64_t *kept = malloc(size);
    assert_non_null(kept);
    memcpy(kept, m->state, size);
    struct weir_algorithm_answer answer =
        model_step(m, WEIR_ALGORITHM_RESERVE, weight, wait_max, now);
    memcpy(m->state, kept, size);
    free(kept);
    return answer;
}

/* The longest wait of the chain, and its possible error; false: some link never
 * lets it pass within 'wait_max'. '*out_close': that is too close to tell. */
static bool model_wait(struct world *w, int leaf, uint64_t weight,
                       weir_duration wait_max, weir_duration *out_wait,
                       weir_duration *out_slop, bool *out_close)
{
    bool passed = true;
    *out_wait = *out_slop = 0;
    *out_close = false;
    for (int i = leaf; i >= 0; i = w->quota[i].parent) {
        struct model *m = &w->quota[i];
        weir_duration slop = slop_of(m);
        if (!is_enforced(m))
            continue;
        struct weir_algorithm_answer answer =
            model_try(m, weight, wait_max, w->now);
        bool lax = model_try(m, weight, wait_max + slop, w->now).passed;
        bool strict =
            model_try(m, weight, wait_max > slop ? wait_max - slop : 0, w->now)
                .passed;
        *out_close = *out_close || lax != strict;
        passed = passed && answer.passed;
        if (answer.wait > *out_wait)
            *out_wait = answer.wait;
        if (slop > *out_slop)
            *out_slop = slop;
    }
    return passed;
}

static void do_reserve(struct world *w, int leaf, uint64_t weight)
{
    weir_duration wait_max = weir_rng_below(&w->rng, 5) * WEIR_SECOND;
    weir_duration wait, slop;
    bool close;
    struct weir_reply reply;
    bool expected = model_wait(w, leaf, weight, wait_max, &wait, &slop, &close);
    unsigned outcome =
        weir_table_reserve(w->table, w->stripe, w->quota[leaf].ref, weight,
                           wait_max, &reply, w->now);
    bool passed = !(outcome & WEIR_OUTCOME_LIMITED);
    assert_true(close || passed == expected);
    struct model *refuser = &w->quota[passed ? 0 : atoi(reply.quota + 1)];
    if (!passed && !refuser->plain)
        model_step(refuser, WEIR_ALGORITHM_RESERVE, weight, wait_max, w->now);
    if (!passed)
        return;
    assert_true(close ||
                (reply.wait + slop >= wait && reply.wait <= wait + slop));
    w->waited += wait > 0;
    for (int i = leaf; i >= 0; i = w->quota[i].parent) {
        struct model *m = &w->quota[i];
        bool quiet = m->quota.mode == WEIR_SHADOW;
        if (m->quota.mode == WEIR_OFF)
            continue;
        struct weir_algorithm_answer answer = model_step(
            m, m->plain ? WEIR_ALGORITHM_CHARGE : WEIR_ALGORITHM_RESERVE,
            weight, wait_max, w->now);
        assert_true(m->plain || answer.passed || quiet);
        m->count += m->plain || answer.passed ? weight : 0;
    }
}

static void do_edit(struct world *w, int i)
{
    struct model *m = &w->quota[i];
    struct weir_quota quota = m->quota;
    bool plain = m->plain;
    choose(&quota, &w->rng);
    struct model next;
    rule_of_quota(&quota, &next);
    /* From bucket to bucket is tested by test_table. */
    if (plain && next.plain)
        return;
    assert_int_equal(weir_table_put(w->table, &quota, w->now), WEIR_OK);
    model_follow(m, &quota, w->now);
}

static void do_something(struct world *w)
{
    int i = (int)weir_rng_below(&w->rng, QUOTAS);
    uint64_t weight = weir_rng_below(&w->rng, 4) ? weir_rng_below(&w->rng, 4)
                                                 : weir_rng_below(&w->rng, 150);
    uint64_t what = weir_rng_below(&w->rng, 200);
    if (what < 2)
        do_edit(w, i);
    else if (what < 20)
        do_peek(w, i, weight);
    else if (what < 30)
        do_move(w, i, weight % 8, true);
    else if (what < 40)
        do_move(w, i, weight % 8, false);
    else if (what < 60)
        do_reserve(w, i, weight);
    else
        do_take(w, i, weight);
    check_chain(w, i);
    if (weir_rng_below(&w->rng, 3) == 0)
        w->now += weir_rng_below(
            &w->rng, weir_rng_below(&w->rng, 50) ? WEIR_SECOND : HOUR);
}

/* Makes the zone known to the table before it is needed. */
static void put_zone(struct world *w)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT("zoned");
    quota.sharing = WEIR_LOCAL;
    quota.algorithm = WEIR_FIXED_WINDOW;
    quota.limit = (struct weir_limit){ .units = 1, .per = HOUR };
    quota.window.calendar = WEIR_CALENDAR_HOUR;
    quota.window.length = HOUR;
    quota.window.unset = false;
    quota.tz = WEIR_TEXT("Test/Three");
    made_put(w->table, &quota, w->now);
    weir_table_set_zones(w->table, zone_offset, NULL);
}

static void world_make(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof(*w));
    w->rng.state = seed;
    w->now = MADE_AT + WEIR_SECOND; /* in a bucket state 0 means "never used" */
    w->table = made_table(1024, 2, seed);
    weir_table_set_wall(w->table, WALL);
    w->stripe = weir_table_claim_stripe(w->table);
    put_zone(w);
    for (int i = 0; i < QUOTAS; i++)
        put_first(w, i);
}

static void world_free(struct world *w)
{
    made_audit(w->table);
    for (int i = 0; i < QUOTAS; i++)
        free(w->quota[i].state);
    free(w->table);
}

static void test_random_histories(void **state)
{
    (void)state;
    struct weir_rng seeds = made_seed("test_table_meter");
    unsigned passed = 0, refused = 0, waited = 0, leveled = 0;
    for (int round = 0; round < 40; round++) {
        struct world w;
        world_make(&w, weir_rng_next(&seeds));
        for (int i = 0; i < 5000; i++)
            do_something(&w);
        passed += w.passed;
        refused += w.refused;
        waited += w.waited;
        leveled += w.leveled;
        world_free(&w);
    }
    printf("%u passed, %u refused, %u had to wait, %u paid at a lower level\n",
           passed, refused, waited, leveled);
    assert_compare(passed, >, 1000);
    assert_compare(refused, >, 1000);
    /* Of 480 rounds 5 in a hundred had no wait, and 6 no level: none in 40 is
     * less likely than 10^-40. */
    assert_compare(waited, >, 0);
    assert_compare(leveled, >, 0);
}

/* ---- Names that come and go ---- */

static struct weir_quota window_of(const char *name, uint64_t quantity,
                                   weir_duration window)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = weir_text_of(name);
    quota.created = 1;
    quota.sharing = WEIR_LOCAL;
    quota.algorithm = WEIR_FIXED_WINDOW;
    quota.limit = (struct weir_limit){ .units = quantity, .per = window };
    return quota;
}

static bool take_named(struct weir_table *t, const char *name, uint64_t weight,
                       weir_instant now)
{
    struct weir_ref ref;
    weir_table_resolve(t, weir_text_of(name), false, &ref, now);
    unsigned outcome = weir_table_take(t, 0, ref, weight, NULL, now);
    assert_false(outcome & WEIR_OUTCOME_STALE_REF);
    return !(outcome & WEIR_OUTCOME_LIMITED);
}

static void settle_all(struct weir_table *t)
{
    uint64_t bits[64] = { 0 };
    weir_table_collect(t, bits);
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++)
        weir_table_set_settled(t, slot, weir_table_count(t, slot));
}

static void test_instances_have_bucket_states_of_their_own(void **state)
{
    (void)state;
    struct weir_table *t = made_table(16, 1, 1);
    struct weir_quota quota = window_of("user/*", 3, WEIR_SECOND);
    made_put(t, &quota, MADE_AT);
    for (int i = 0; i < 3; i++) {
        assert_true(take_named(t, "user/a", 1, MADE_AT));
        assert_true(take_named(t, "user/b", 1, MADE_AT));
    }
    assert_false(take_named(t, "user/a", 1, MADE_AT));
    /* The template is edited: its instances follow, and their used units stay
     * used. */
    quota.limit.units = 5;
    made_put(t, &quota, MADE_AT);
    assert_false(take_named(t, "user/a", 3, MADE_AT));
    assert_true(take_named(t, "user/a", 2, MADE_AT));
    /* Another algorithm, a bucket in the slot, and back. */
    quota.algorithm = WEIR_LEAKY;
    quota.high_burst = quota.low_burst = (struct weir_burst){ .amount = 5 };
    made_put(t, &quota, MADE_AT);
    assert_false(take_named(t, "user/a", 1, MADE_AT));
    assert_true(take_named(t, "user/b", 2, MADE_AT));
    quota = window_of("user/*", 6, WEIR_SECOND);
    made_put(t, &quota, MADE_AT);
    assert_true(take_named(t, "user/a", 1, MADE_AT));
    assert_false(take_named(t, "user/b", 2, MADE_AT));
    made_audit(t);
    weir_table_drop(t, quota.name, MADE_AT);
    made_audit(t);
    free(t);
}

/* Idle when its window is over, not before. */
static void test_a_bucket_state_in_use_is_not_evicted(void **state)
{
    (void)state;
    struct weir_table *t = made_table(3, 1, 1);
    struct weir_quota quota = window_of("user/*", 3, 10 * WEIR_SECOND);
    made_put(t, &quota, MADE_AT);
    assert_true(take_named(t, "user/a", 1, MADE_AT));
    assert_true(take_named(t, "user/b", 1, MADE_AT));
    settle_all(t);
    struct weir_ref ref;
    assert_int_equal(weir_table_resolve(t, WEIR_TEXT("user/c"), false, &ref,
                                        MADE_AT + 9 * WEIR_SECOND),
                     WEIR_RESOLVED_LACKING);
    assert_int_equal(weir_table_resolve(t, WEIR_TEXT("user/c"), false, &ref,
                                        MADE_AT + 10 * WEIR_SECOND),
                     WEIR_RESOLVED);
    made_audit(t);
    free(t);
}

static struct weir_table *small_table(uint32_t slots,
                                      uint64_t bucket_state_bytes)
{
    struct weir_table_options options = { .slots = slots,
                                          .stripes = 1,
                                          .seed = 7,
                                          .bucket_state_bytes =
                                              bucket_state_bytes };
    return made_table_of(&options);
}

/* An area for a rule and four states: further names are like those without a
 * slot, until some state is idle. */
static void test_names_without_room_for_a_bucket_state(void **state)
{
    (void)state;
    struct weir_table *t = small_table(64, 512);
    struct weir_quota rest = made_quota_of("rest", NULL, 1000, 10);
    made_put(t, &rest, MADE_AT);
    struct weir_quota quota = window_of("user/*", 3, WEIR_SECOND);
    quota.overflow = WEIR_TEXT("rest");
    struct weir_ref overflow = made_put(t, &rest, MADE_AT);
    made_put(t, &quota, MADE_AT);
    struct weir_ref ref;
    char name[16];
    int resolved = 0;
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "user/%d", i);
        enum weir_resolved how =
            weir_table_resolve(t, weir_text_of(name), false, &ref, MADE_AT);
        resolved += how == WEIR_RESOLVED;
        if (how == WEIR_RESOLVED) {
            weir_table_take(t, 0, ref, 1, NULL, MADE_AT);
            continue;
        }
        assert_int_equal(how, WEIR_RESOLVED_FULL);
        assert_int_equal(ref.slot, overflow.slot);
    }
    assert_compare(resolved, >=, 2);
    assert_compare(resolved, <, 8);
    /* Another quota with a bucket state finds no room either; the table is as
     * before. */
    struct weir_quota other = window_of("other", 3, WEIR_SECOND);
    assert_int_equal(weir_table_put(t, &other, MADE_AT), WEIR_EFULL);
    assert_false(weir_table_find(t, other.name, &ref));
    made_audit(t);
    /* Their windows are over. */
    settle_all(t);
    weir_instant later = MADE_AT + 2 * WEIR_SECOND;
    assert_int_equal(
        weir_table_resolve(t, WEIR_TEXT("user/9"), false, &ref, later),
        WEIR_RESOLVED);
    made_audit(t);
    free(t);
}

/* An instance existed when its template got an algorithm for which it has no
 * room. It limits nothing by itself until the sweep finds room. */
static void test_an_instance_waits_for_room(void **state)
{
    (void)state;
    struct weir_table *t = small_table(64, 512);
    struct weir_quota quota = made_quota_of("user/*", NULL, 1000, 3);
    quota.sharing = WEIR_LOCAL;
    made_put(t, &quota, MADE_AT);
    char name[16];
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "user/%d", i);
        assert_true(take_named(t, name, 3, MADE_AT));
        assert_false(take_named(t, name, 1, MADE_AT));
    }
    quota = window_of("user/*", 3, HOUR);
    made_put(t, &quota, MADE_AT);
    int limited = 0;
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "user/%d", i);
        limited += !take_named(t, name, 1, MADE_AT);
    }
    assert_compare(limited, >=, 2);
    assert_compare(limited, <, 8);
    made_audit(t);
    quota = made_quota_of("user/*", NULL, 1000, 3);
    made_put(t, &quota, MADE_AT);
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "user/%d", i);
        assert_false(take_named(t, name, 4, MADE_AT));
    }
    made_audit(t);
    free(t);
}

/* Quotas of all algorithms are edited, dropped and put again, with their
 * instances: in the end the whole area is free. */
static void test_the_area_loses_nothing(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("the_area");
    struct weir_table *t = small_table(256, 256 << 10);
    for (int i = 0; i < 20000; i++) {
        char name[16];
        struct weir_quota quota;
        uint64_t k = weir_rng_below(&rng, 6);
        bool template = weir_rng_below(&rng, 2);
        weir_instant now = MADE_AT + (uint64_t)i * WEIR_SECOND;
        snprintf(name, sizeof(name), template ? "t%d/*" : "q%d", (int)k);
        weir_quota_init(&quota);
        quota.name = weir_text_of(name);
        choose(&quota, &rng);
        switch (weir_rng_below(&rng, 4)) {
        case 0:
            weir_table_drop(t, quota.name, now);
            break;
        case 1:
            (void)!weir_table_put(t, &quota, now);
            break;
        default:
            snprintf(name, sizeof(name), "t%d/%d", (int)k,
                     (int)weir_rng_below(&rng, 40));
            struct weir_ref ref;
            if (weir_table_resolve(t, weir_text_of(name), false, &ref, now) ==
                WEIR_RESOLVED)
                weir_table_take(t, 0, ref, 1, NULL, now);
        }
        if (i % 100 == 0) {
            settle_all(t);
            made_audit(t);
        }
    }
    weir_table_begin_full(t);
    weir_table_end_full(t, MADE_AT + 30000 * WEIR_SECOND);
    settle_all(t);
    assert_true(weir_table_try_lock(t));
    weir_table_evict(t, 1024, 1024, MADE_AT + 60000 * WEIR_SECOND);
    weir_table_unlock(t);
    made_audit(t);
    assert_int_equal(weir_table_live(t), 0);
    free(t);
}

/* ---- Modes and sets ---- */

static void test_a_shadow_set_has_bucket_states(void **state)
{
    (void)state;
    struct weir_table *t = made_table(16, 1, 1);
    struct weir_quota live = window_of("q", 5, WEIR_SECOND);
    struct weir_quota shadow = window_of("shadow:q", 2, WEIR_SECOND);
    struct weir_ref ref = made_put(t, &live, MADE_AT);
    struct weir_ref shadow_slot = made_put(t, &shadow, MADE_AT);
    struct weir_algorithm_ask act = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 };
    for (int i = 0; i < 5; i++) {
        assert_int_equal(weir_table_take(t, 0, ref, 1, NULL, MADE_AT),
                         WEIR_OUTCOME_SHADOW | (i ? 0 : WEIR_OUTCOME_KICK));
        weir_table_shadow(t, 0, ref, &act, false, MADE_AT);
    }
    assert_true(weir_table_count(t, ref.slot) == 5);
    assert_true(weir_table_count(t, shadow_slot.slot) == 2);
    assert_true(weir_table_refused(t, shadow_slot.slot) == 3);
    free(t);
}

/* ---- Threads ---- */

#define TAKERS 4
#define TAKES 20000

struct taker {
    struct weir_table *table;
    struct weir_ref leaf;
    pthread_t thread;
    uint64_t passed, refused;
};

/* fork() within an edit from a bucket state here to a store's, or back: the
 * child has the new state and the old flags. */
static void test_a_fork_within_an_edit_of_sharing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct weir_table *t = made_table(4, 2, 5);
        struct weir_quota quota = window_of("q", 5, 3600 * WEIR_SECOND);
        bool to_store = i == 0;
        quota.sharing = to_store ? WEIR_EXACT : WEIR_LOCAL;
        quota.store = WEIR_TEXT("redis://a:1");
        struct weir_ref ref = made_put(t, &quota, MADE_AT);
        struct hot *hot = weir_hot(t, ref.slot);
        uint32_t now = to_store ? META_AWAY : META_BUCKET_STATE;
        assert_true(hot->meta & now);
        assert_true(weir_table_try_lock(t));
        assert_true(weir_bucket_state_seize(t, ref.slot));
        hot->meta ^= META_AWAY | META_BUCKET_STATE;
        weir_table_break_lock(t);
        assert_int_equal(hot->meta & (META_AWAY | META_BUCKET_STATE), now);
        unsigned outcome = weir_table_take(t, 0, ref, 1, NULL, MADE_AT);
        assert_int_equal(outcome & ~WEIR_OUTCOME_KICK,
                         to_store ? WEIR_OUTCOME_EXACT : 0);
        made_audit(t);
        free(t);
    }
}

static void *take_much(void *arg)
{
    struct taker *taker = arg;
    uint32_t stripe = weir_table_claim_stripe(taker->table);
    for (int i = 0; i < TAKES; i++) {
        unsigned outcome;
        do {
            outcome = weir_table_take(taker->table, stripe, taker->leaf, 1,
                                      NULL, MADE_AT);
        } while (outcome & WEIR_OUTCOME_CONTENDED);
        if (outcome & WEIR_OUTCOME_LIMITED)
            taker->refused++;
        else
            taker->passed++;
    }
    weir_table_release_stripe(taker->table, stripe);
    return NULL;
}

/* Two leaves below a window that is full before either is: exactly its limit
 * passes, and units given back to the leaves are available. Meanwhile the sync
 * edits a leaf: its used units stay used. */
static void test_threads_take_exactly_the_limit(void **state)
{
    (void)state;
    struct weir_table *t = made_table(16, TAKERS + 1, 1);
    struct weir_quota site = window_of("site", 30000, HOUR);
    struct weir_quota leaf = window_of("leaf0", 25000, HOUR);
    struct taker takers[TAKERS] = { { .table = t } };
    struct weir_ref refs[2];
    made_put(t, &site, MADE_AT);
    leaf.parent = site.name;
    refs[0] = made_put(t, &leaf, MADE_AT);
    leaf.name = WEIR_TEXT("leaf1");
    refs[1] = made_put(t, &leaf, MADE_AT);
    for (int i = 0; i < TAKERS; i++) {
        takers[i] = (struct taker){ .table = t, .leaf = refs[i % 2] };
        assert_int_equal(
            pthread_create(&takers[i].thread, NULL, take_much, &takers[i]), 0);
    }
    for (int i = 0; i < 1000; i++) {
        leaf.limit.units = 25000 + (uint64_t)(i % 2);
        made_put(t, &leaf, MADE_AT);
    }
    uint64_t passed[2] = { 0 }, refused = 0;
    for (int i = 0; i < TAKERS; i++) {
        PATIENTLY(pthread_join(takers[i].thread, NULL));
        passed[i % 2] += takers[i].passed;
        refused += takers[i].refused;
    }
    assert_true(passed[0] + passed[1] == 30000);
    assert_true(refused == TAKERS * TAKES - 30000);
    for (int i = 0; i < 2; i++) {
        assert_true(units_in(t, refs[i].slot, MADE_AT) == passed[i]);
        assert_true(weir_table_count(t, refs[i].slot) == passed[i]);
    }
    made_audit(t);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_histories),
        cmocka_unit_test(test_instances_have_bucket_states_of_their_own),
        cmocka_unit_test(test_a_bucket_state_in_use_is_not_evicted),
        cmocka_unit_test(test_names_without_room_for_a_bucket_state),
        cmocka_unit_test(test_an_instance_waits_for_room),
        cmocka_unit_test(test_the_area_loses_nothing),
        cmocka_unit_test(test_a_shadow_set_has_bucket_states),
        cmocka_unit_test(test_a_fork_within_an_edit_of_sharing),
        cmocka_unit_test(test_threads_take_exactly_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
