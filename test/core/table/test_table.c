/* SPDX-License-Identifier: MIT
 * test_table.c - the limiter's decisions compared with an exact model.
 *
 * The model keeps each quota as a rational: units in 1/UNIT, a number that all
 * periods used here divide, in 128 bits. The units that came in and those that
 * could have leaked since the origin are two sums, and the fill is their
 * difference, as in the table, but exact and without optimizations.
 *
 * Chance and rounding are excluded thus: if the exact fill is within the
 * tolerance of an edge, or in the band, either decision is right, and the model
 * follows the table's. Everywhere else they must agree. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "table_calls.h"
#include "table_maker.h"

#define DAY (86400 * WEIR_SECOND)
#define YEAR (366 * DAY)
#define UNIT ((weir_i128)DAY * 7)

/* ---- The model ---- */

#define QUOTAS 24
struct model {
    struct weir_ref ref;
    uint64_t units;
    weir_duration per;
    int parent; /* -1: none */
    bool unlimited;
    enum weir_mode mode;
    uint64_t low, high;
    weir_i128 in;   /* in 1/UNIT, on the scale of 'leak' */
    weir_i128 slop; /* possible error of the table, in 1/UNIT */
    uint64_t count;
    uint64_t created;
};

struct world {
    struct weir_table *table;
    struct weir_rng rng;
    struct model quota[QUOTAS];
    uint32_t stripe;
    weir_instant now;
    unsigned passed, refused, close;
};

static weir_i128 model_leak(const struct model *m, weir_instant now)
{
    weir_i128 elapsed = now > MADE_AT ? (weir_i128)(now - MADE_AT) : 0;
    return elapsed * (weir_i128)m->units * (UNIT / (weir_i128)m->per);
}

static weir_i128 model_fill(const struct model *m, weir_instant now)
{
    weir_i128 fill = m->in - model_leak(m, now);
    return fill > 0 ? fill : 0;
}

static void model_add(struct model *m, weir_i128 units, weir_instant now)
{
    m->in = model_leak(m, now) + model_fill(m, now) + units * UNIT;
    m->count += (uint64_t)units;
}

enum answer { NO, EITHER, YES };

static enum answer model_passes(const struct model *m, uint64_t weight,
                                weir_instant now)
{
    if (m->mode == WEIR_OFF || m->unlimited)
        return YES;
    if (m->units == 0)
        return NO;
    weir_i128 fill = model_fill(m, now);
    weir_i128 after = fill + (weir_i128)weight * UNIT;
    weir_i128 high = (weir_i128)m->high * UNIT;
    if (after > high + m->slop)
        return NO;
    /* The table rounds the width of the band, by 2^-26. */
    weir_i128 low = (weir_i128)(m->low - (m->high - m->low) / (1 << 25)) * UNIT;
    if (after > high - m->slop || fill > low - m->slop)
        return EITHER;
    return YES;
}

static enum answer chain_passes(const struct world *w, int i, uint64_t weight,
                                weir_instant now)
{
    enum answer all = YES;
    for (; i >= 0; i = w->quota[i].parent) {
        const struct model *m = &w->quota[i];
        if (m->mode == WEIR_SHADOW)
            continue;
        enum answer one = model_passes(m, weight, now);
        all = one < all ? one : all;
    }
    return all;
}

/* ---- The table and the model side by side ---- */

static uint64_t random_bits(struct weir_rng *rng, unsigned bits)
{
    uint64_t any = weir_rng_next(rng);
    return any >> (64 - weir_rng_below(rng, bits) - 1);
}

static uint64_t random_weight(struct weir_rng *rng)
{
    if (weir_rng_below(rng, 8) == 0)
        return WEIR_WEIGHT_MAX;
    return weir_rng_below(rng, 4) ? weir_rng_below(rng, 5)
                                  : random_bits(rng, 33) % WEIR_WEIGHT_MAX;
}

static void check_fill(const struct world *w, const struct model *m,
                       weir_instant now)
{
    struct weir_slot_view view;
    weir_table_view(w->table, m->ref.slot, &view, now);
    assert_true(view.count == m->count);
    if (m->unlimited)
        return;
    weir_i128 in = view.fill > 0 ? view.fill : 0; /* an idle one's is lower */
    weir_i128 fill = (in * UNIT) >> view.bucket.leak.frac;
    weir_i128 off = fill - model_fill(m, now);
    assert_compare(off, <=, m->slop);
    assert_compare(off, >=, -m->slop);
    /* What do_edit() lets pass, and two steps of a unit each. */
    assert_compare(m->slop, <=, 4 * UNIT);
}

static void check_chain(const struct world *w, int i, weir_instant now)
{
    for (; i >= 0; i = w->quota[i].parent)
        check_fill(w, &w->quota[i], now);
}

/* The change of a link's count. */
static int64_t moved_by(const struct world *w, const struct model *m)
{
    return (int64_t)(weir_table_count(w->table, m->ref.slot) - m->count);
}

static void expect_unmoved(const struct world *w, int i)
{
    for (; i >= 0; i = w->quota[i].parent)
        assert_true(moved_by(w, &w->quota[i]) == 0);
}

/* A charged take moved each link by the weight, except links that are off, and
 * shadow links that would have refused. */
static void follow_pass(struct world *w, int i, uint64_t weight,
                        weir_instant now)
{
    for (; i >= 0; i = w->quota[i].parent) {
        struct model *m = &w->quota[i];
        int64_t moved = moved_by(w, m);
        enum answer passes = model_passes(m, weight, now);
        if (m->mode == WEIR_OFF || passes == NO)
            assert_true(moved == 0);
        else if (passes == YES)
            assert_true(moved == (int64_t)weight);
        else
            assert_true(moved == 0 || moved == (int64_t)weight);
        model_add(m, moved, now);
    }
}

/* Everything but the stripes, which only the refused caller uses. */
static void *snapshot(const struct weir_table *t)
{
    void *copy = malloc(t->stripes_at);
    assert_non_null(copy);
    memcpy(copy, t, t->stripes_at);
    return copy;
}

static void expect_untouched(const struct weir_table *t, void *copy)
{
    assert_memory_equal(t, copy, t->stripes_at);
    free(copy);
}

static void check_reply(const struct world *w, int i, uint64_t weight,
                        bool passed, const struct weir_reply *reply,
                        weir_instant now)
{
    assert_int_equal(reply->verdict, passed ? WEIR_PASSED : WEIR_LIMITED);
    assert_false(reply->stale);
    assert_false(reply->unknown);
    assert_compare(reply->fill, >=, 0);
    if (passed) {
        assert_true(reply->retry_after == 0);
        /* The remaining units can still be taken, unless chance comes in. */
        if (reply->remaining > 0 && reply->remaining <= WEIR_WEIGHT_MAX)
            assert_int_not_equal(chain_passes(w, i, reply->remaining, now), NO);
        return;
    }
    assert_compare(reply->retry_after, >, 0);
    assert_compare(reply->quota_len, >, 0);
    assert_int_equal(strlen(reply->quota), reply->quota_len);
    int refuser = atoi(reply->quota + 1);
    const struct model *m = &w->quota[refuser];
    assert_int_not_equal(model_passes(m, weight, now), YES);
    assert_true(reply->never == (m->units == 0 || weight > m->high));
    if (reply->never) {
        assert_true(reply->retry_after == WEIR_NEVER);
        return;
    }
    /* After that time this quota lets it pass for certain. */
    if (reply->retry_after < YEAR) {
        weir_i128 left = m->in - model_leak(m, now + reply->retry_after);
        assert_compare(left, <=, (weir_i128)m->low * UNIT + m->slop);
        assert_compare(left + (weir_i128)weight * UNIT, <=,
                       (weir_i128)m->high * UNIT + m->slop);
    }
}

static void do_take(struct world *w, int i)
{
    uint64_t weight = random_weight(&w->rng);
    struct weir_reply reply;
    bool wants = weir_rng_below(&w->rng, 3) == 0;
    enum answer expected = chain_passes(w, i, weight, w->now);
    void *copy = expected == NO ? snapshot(w->table) : NULL;
    unsigned outcome = weir_table_take(w->table, w->stripe, w->quota[i].ref,
                                       weight, wants ? &reply : NULL, w->now);
    assert_false(outcome & WEIR_OUTCOME_STALE_REF);
    bool passed = !(outcome & WEIR_OUTCOME_LIMITED);
    if (expected != EITHER)
        assert_true(passed == (expected == YES));
    if (expected == NO)
        expect_untouched(w->table, copy);
    if (passed)
        follow_pass(w, i, weight, w->now);
    else
        expect_unmoved(w, i);
    if (wants)
        check_reply(w, i, weight, passed, &reply, w->now);
    w->passed += expected == YES;
    w->refused += expected == NO;
    w->close += expected == EITHER;
}

static void do_peek(struct world *w, int i)
{
    uint64_t weight = random_weight(&w->rng);
    struct weir_reply reply;
    void *copy = snapshot(w->table);
    unsigned outcome = weir_table_peek(w->table, w->stripe, w->quota[i].ref,
                                       weight, &reply, w->now);
    expect_untouched(w->table, copy);
    enum answer expected = chain_passes(w, i, weight, w->now);
    bool passed = !(outcome & WEIR_OUTCOME_LIMITED);
    if (expected != EITHER)
        assert_true(passed == (expected == YES));
    check_reply(w, i, weight, passed, &reply, w->now);
}

static void do_charge(struct world *w, int i)
{
    uint64_t weight = random_weight(&w->rng);
    weir_table_charge(w->table, w->stripe, w->quota[i].ref, weight, w->now);
    for (; i >= 0; i = w->quota[i].parent) {
        struct model *m = &w->quota[i];
        int64_t moved = moved_by(w, m);
        if (m->mode == WEIR_OFF) {
            assert_true(moved == 0);
            model_add(m, 0, w->now);
            continue;
        }
        weir_i128 most =
            ((weir_i128)(m->units ? m->high : 0) + WEIR_DEBT_MAX) * UNIT;
        weir_i128 room = most - model_fill(m, w->now);
        assert_compare(moved, >=, 0);
        assert_compare(moved, <=, (int64_t)weight);
        if (m->unlimited || (weir_i128)weight * UNIT <= room - m->slop)
            assert_true(moved == (int64_t)weight);
        else
            assert_true(moved * UNIT <= room + m->slop || moved == 0);
        model_add(m, moved, w->now);
    }
}

static void do_refund(struct world *w, int i)
{
    uint64_t weight = random_weight(&w->rng);
    weir_table_refund(w->table, w->stripe, w->quota[i].ref, weight, w->now);
    for (; i >= 0; i = w->quota[i].parent) {
        struct model *m = &w->quota[i];
        int64_t back = -moved_by(w, m);
        weir_i128 fill = model_fill(m, w->now);
        assert_compare(back, >=, 0);
        assert_compare(back, <=, (int64_t)weight);
        if (m->mode == WEIR_OFF) {
            assert_true(back == 0);
        } else if (!m->unlimited) {
            /* The whole weight, or all units that were in; a part of a unit
             * counts as one. */
            if (fill > (weir_i128)weight * UNIT + m->slop)
                assert_true(back == (int64_t)weight);
            assert_compare(back * UNIT, <=, fill + m->slop + UNIT);
        }
        model_add(m, -back, w->now);
    }
}

/* Exact time until the weight fits; WEIR_NEVER if it never does. */
static weir_i128 model_wait(const struct world *w, int i, uint64_t weight)
{
    weir_i128 wait = 0;
    for (; i >= 0; i = w->quota[i].parent) {
        const struct model *m = &w->quota[i];
        if (m->mode != WEIR_ENFORCE || m->unlimited)
            continue;
        if (m->units == 0 || weight > m->high)
            return -1;
        weir_i128 over = model_fill(m, w->now) +
                         ((weir_i128)weight - (weir_i128)m->high) * UNIT;
        weir_i128 rate = (weir_i128)m->units * (UNIT / (weir_i128)m->per);
        weir_i128 one = over > 0 ? (over + rate - 1) / rate : 0;
        wait = one > wait ? one : wait;
    }
    return wait;
}

/* The tolerance of a wait: the slop of each link at its rate. */
static weir_i128 wait_slop(const struct world *w, int i)
{
    weir_i128 most = 2;
    for (; i >= 0; i = w->quota[i].parent) {
        const struct model *m = &w->quota[i];
        if (m->units == 0)
            continue;
        weir_i128 rate = (weir_i128)m->units * (UNIT / (weir_i128)m->per);
        weir_i128 one = m->slop / rate + 2;
        most = one > most ? one : most;
    }
    return most;
}

static void do_reserve(struct world *w, int i)
{
    uint64_t weight = random_weight(&w->rng);
    weir_duration wait_max =
        weir_rng_below(&w->rng, 4) ? random_bits(&w->rng, 50) : WEIR_NEVER;
    struct weir_reply reply;
    weir_i128 wait = model_wait(w, i, weight);
    weir_i128 slop = wait_slop(w, i);
    unsigned outcome = weir_table_reserve(w->table, w->stripe, w->quota[i].ref,
                                          weight, wait_max, &reply, w->now);
    bool passed = !(outcome & WEIR_OUTCOME_LIMITED);
    assert_int_equal(reply.verdict, passed ? WEIR_PASSED : WEIR_LIMITED);
    if (!passed) {
        expect_unmoved(w, i);
        /* Debt may refuse too; no history here comes near it. */
        assert_true(wait < 0 || wait + slop > wait_max ||
                    wait > (weir_i128)1 << 62 || reply.wait == WEIR_NEVER);
        return;
    }
    assert_compare(wait, >=, 0);
    assert_compare(wait, <=, (weir_i128)wait_max + slop);
    weir_i128 off = (weir_i128)reply.wait - wait;
    assert_compare(off, <=, slop);
    assert_compare(off, >=, -slop);
    for (; i >= 0; i = w->quota[i].parent) {
        struct model *m = &w->quota[i];
        int64_t moved = moved_by(w, m);
        assert_true(moved == (m->mode == WEIR_OFF ? 0 : (int64_t)weight));
        model_add(m, moved, w->now);
    }
}

/* ---- Edits ---- */

static const weir_duration periods[] = {
    1,
    1000,
    WEIR_MILLISECOND,
    WEIR_SECOND,
    3 * WEIR_SECOND,
    60 * WEIR_SECOND,
    3600 * WEIR_SECOND,
    DAY,
    7 * DAY,
};

static void random_limit(struct weir_rng *rng, struct model *m)
{
    m->per = periods[weir_rng_below(rng, WEIR_COUNT_OF(periods))];
    weir_u128 most = (weir_u128)m->per * 100;
    uint64_t units = random_bits(rng, 60) + 1;
    m->units = units <= most ? units : (uint64_t)most;
    m->unlimited = weir_rng_below(rng, 16) == 0;
    if (weir_rng_below(rng, 16) == 0)
        m->units = 0;
    m->high = random_bits(rng, 50) + 1;
    m->low = m->high;
    if (weir_rng_below(rng, 4) == 0)
        m->low = weir_rng_below(rng, m->high + 1);
    m->mode = WEIR_ENFORCE;
    if (weir_rng_below(rng, 8) == 0)
        m->mode = weir_rng_below(rng, 2) ? WEIR_SHADOW : WEIR_OFF;
}

static int depth_of(const struct world *w, int i)
{
    int depth = 0;
    for (; i >= 0; i = w->quota[i].parent)
        depth++;
    return depth;
}

/* The parents come first, so that no edit makes a cycle. */
static int random_parent(struct world *w, int i)
{
    if (i == 0)
        return -1;
    /* Mostly the previous quota: chains to the greatest depth. */
    int parent = weir_rng_below(&w->rng, 3)
                     ? i - 1
                     : (int)weir_rng_below(&w->rng, (uint64_t)i + 1) - 1;
    w->quota[i].parent = parent;
    for (int below = i; below < QUOTAS; below++) {
        if (depth_of(w, below) > WEIR_DEPTH_MAX)
            return -1;
    }
    return parent;
}

static void put_model(struct world *w, int i)
{
    struct model *m = &w->quota[i];
    char name[16], parent[16] = "";
    snprintf(name, sizeof(name), "q%d", i);
    if (m->parent >= 0)
        snprintf(parent, sizeof(parent), "q%d", m->parent);
    struct weir_quota quota = made_quota_of(name, parent, m->units, m->high);
    quota.limit.per = m->per;
    quota.limit.unlimited = m->unlimited;
    quota.low_burst.amount = m->low;
    quota.mode = m->mode;
    quota.created = m->created;
    m->ref = made_put(w->table, &quota, w->now);
}

static weir_i128 high_of(const struct model *m)
{
    return m->units > 0 ? (weir_i128)m->high * UNIT : 0;
}

/* What is used is cut to the new high; a debt above the former one stays. */
static weir_i128 model_edited(weir_i128 fill, weir_i128 before, weir_i128 high)
{
    if (fill > before)
        return model_edited(before, before, high) + fill - before;
    return fill < high ? fill : high;
}

static void do_edit(struct world *w, int i)
{
    struct model *m = &w->quota[i];
    /* Enough roundings: another quota under the same name, empty. */
    if (m->slop > 2 * UNIT) {
        m->created++;
        m->in = m->slop = 0;
    }
    weir_i128 fill = model_fill(m, w->now);
    bool meant = !m->unlimited;
    weir_i128 before = high_of(m);
    random_limit(&w->rng, m);
    m->parent = random_parent(w, i);
    put_model(w, i);
    /* Up to a rounding; for a quota that only counted the fill means
     * nothing. */
    fill = model_edited(fill, before, high_of(m));
    m->count = weir_table_count(w->table, m->ref.slot);
    struct weir_slot_view view;
    weir_table_view(w->table, m->ref.slot, &view, w->now);
    /* More than the new scale can represent, which is more than any debt. */
    weir_i128 most =
        (weir_i128)(WEIR_SCALED_MAX >> view.bucket.leak.frac) * UNIT;
    fill = !meant || m->unlimited ? 0 : fill > most ? most : fill;
    m->in = model_leak(m, w->now) + fill;
    /* The edit may add less than a step of the new scale to the fill, by
     * weir_rescale(), and every later leak may lack less than another one. */
    weir_i128 step = UNIT >> view.bucket.leak.frac;
    m->slop = (meant ? m->slop : 0) + 2 * step;
}

/* ---- Histories ---- */

static void step_time(struct world *w)
{
    static const weir_duration steps[] = {
        0,
        1,
        1000,
        WEIR_MILLISECOND,
        WEIR_SECOND,
        60 * WEIR_SECOND,
        3600 * WEIR_SECOND,
        DAY,
    };
    uint64_t which = weir_rng_below(&w->rng, 40);
    if (which < WEIR_COUNT_OF(steps))
        w->now += weir_rng_below(&w->rng, steps[which] + 1);
    if (which == 20) /* an hour idle */
        w->now += 3600 * WEIR_SECOND;
    if (which == 21 && weir_rng_below(&w->rng, 40) == 0)
        w->now += YEAR;
    if (which == 22 && w->now > MADE_AT + WEIR_SECOND) /* a step back */
        w->now -= weir_rng_below(&w->rng, WEIR_SECOND);
    if (which < 20 || which > 21)
        return;
    /* As the sync does some times a second; without it a year of leaking would
     * be too much. */
    weir_table_sweep(w->table, QUOTAS, w->now);
    for (int i = 0; i < QUOTAS; i++)
        model_add(&w->quota[i], 0, w->now - WEIR_TABLE_SWEEP_BEHIND);
}

static void history(uint64_t seed, unsigned *out_passed, unsigned *out_refused)
{
    struct world w = { .rng = { seed }, .now = MADE_AT };
    /* With fewer slots the index has so few buckets that one in 10^5 tables
     * has no place for a name. */
    w.table = made_table(4 * QUOTAS, 3, seed);
    w.stripe = weir_table_claim_stripe(w.table);
    for (int i = 0; i < QUOTAS; i++) {
        w.quota[i].parent = -1;
        w.quota[i].per = 1;
        do_edit(&w, i);
    }
    for (int step = 0; step < 600; step++) {
        step_time(&w);
        int i = (int)weir_rng_below(&w.rng, QUOTAS);
        switch (weir_rng_below(&w.rng, 24)) {
        case 0:
            do_edit(&w, i);
            break;
        case 1:
            do_charge(&w, i);
            break;
        case 2:
        case 3:
            do_refund(&w, i);
            break;
        case 4:
            do_reserve(&w, i);
            break;
        case 5:
            do_peek(&w, i);
            break;
        default:
            do_take(&w, i);
            break;
        }
        check_chain(&w, i, w.now);
    }
    made_audit(w.table);
    *out_passed += w.passed;
    *out_refused += w.refused;
    free(w.table);
}

static void test_fill_is_as_the_model_says(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("fill_is_as_the_model_says");
    unsigned passed = 0, refused = 0;
    for (int i = 0; i < 400; i++)
        history(i == 0 ? rng.state : weir_rng_next(&rng), &passed, &refused);
    print_message("%u passed, %u refused for certain\n", passed, refused);
    assert_compare(passed, >, 1000);
    assert_compare(refused, >, 1000);
}

/* ---- The band ---- */

/* x log(x / y), which is 0 for x = 0. */
static double information(double x, double y)
{
    return x > 0 ? x * log(x / y) : 0;
}

/* Peeks at a constant fill: the refused fraction is the fill's relative
 * position in the band. That 'asks' independent draws are off by as much
 * information or more has a probability of less than 2 exp(-24) = 8e-11,
 * however small the fraction (Chernoff); there are 16 such checks in a run, so
 * that one in 10^8 is a false alarm. The last term is for the band's own
 * precision. */
static void expect_share(struct weir_table *t, uint32_t stripe,
                         struct weir_ref ref, double share)
{
    const int asks = 40000;
    int refused = 0;
    for (int i = 0; i < asks; i++)
        refused += weir_table_peek(t, stripe, ref, 1, NULL, MADE_AT) &
                   WEIR_OUTCOME_LIMITED;
    double found = (double)refused / asks;
    double off = information(found, share) + information(1 - found, 1 - share);
    if (!(off * asks <= 24) && fabs(found - share) > 3e-5)
        fail_msg("%d of %d are refused, %.1f are to be expected", refused, asks,
                 asks * share);
}

static void test_the_band_refuses_in_proportion(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("the_band");
    for (int i = 0; i < 12; i++) {
        struct weir_table *t = made_table(8, 2, weir_rng_next(&rng));
        uint64_t low = weir_rng_below(&rng, 100000);
        uint64_t band = 1000 + random_bits(&rng, 30);
        struct weir_quota quota = made_quota_of("q", "p", 1, low + band);
        quota.low_burst.amount = low;
        struct weir_ref ref = made_put(t, &quota, MADE_AT);
        /* The parent has half the probability: the chain's largest counts, not
         * the product. */
        struct weir_quota parent = made_quota_of("p", NULL, 1, low + 2 * band);
        parent.low_burst.amount = low;
        made_put(t, &parent, MADE_AT);
        uint64_t over = weir_rng_below(&rng, band);
        uint32_t stripe = i % 2 ? weir_table_claim_stripe(t) : 0;
        weir_table_charge(t, stripe, ref, low + over, MADE_AT);
        expect_share(t, stripe, ref, (double)over / (double)band);
        free(t);
    }
}

/* ---- Stale ---- */

static struct weir_ref put_stale(struct weir_table *t, const char *name,
                                 enum weir_on_stale on_stale)
{
    struct weir_quota quota = made_quota_of(name, NULL, 1, 200);
    quota.low_burst.amount = 100;
    quota.on_stale = on_stale;
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    weir_table_charge(t, 0, ref, 150, MADE_AT);
    return ref;
}

static bool takes(struct weir_table *t, struct weir_ref ref, uint64_t weight)
{
    return !(weir_table_take(t, 0, ref, weight, NULL, MADE_AT) &
             WEIR_OUTCOME_LIMITED);
}

static void test_stale_quotas_do_as_they_say(void **state)
{
    (void)state;
    struct weir_table *t = made_table(8, 2, 1);
    struct weir_ref pass = put_stale(t, "pass", WEIR_STALE_PASS);
    struct weir_ref limit = put_stale(t, "limit", WEIR_STALE_LIMIT);
    struct weir_ref hold = put_stale(t, "hold", WEIR_STALE_HOLD);
    struct weir_ref share = put_stale(t, "share", WEIR_STALE_SHARE);
    struct weir_quota local = made_quota_of("local", NULL, 1, 200);
    local.sharing = WEIR_LOCAL;
    local.on_stale = WEIR_STALE_LIMIT;
    struct weir_ref own = made_put(t, &local, MADE_AT);
    for (int i = 0; i < 2; i++) {
        weir_table_set_stale(t, true, MADE_AT);
        assert_true(weir_table_is_stale(t));
        assert_true(takes(t, pass, 100000));
        struct weir_reply reply;
        assert_int_equal(weir_table_take(t, 0, limit, 0, &reply, MADE_AT),
                         WEIR_OUTCOME_LIMITED);
        assert_true(reply.stale && !reply.never);
        assert_compare(reply.retry_after, >, 0);
        assert_compare(reply.retry_after, <, 2 * WEIR_SECOND);
        assert_true(takes(t, own, 1));
        assert_false(takes(t, share, 51));
        /* Half way up the band, and it stays there. */
        expect_share(t, 0, hold, 127.0 / 255);
        weir_table_refund(t, 0, hold, 100, MADE_AT);
        expect_share(t, 0, hold, 127.0 / 255);
        weir_table_charge(t, 0, hold, 100, MADE_AT);
    }
    weir_table_set_stale(t, false, MADE_AT);
    assert_false(takes(t, pass, 1));
    assert_false(takes(t, limit, 51));
    free(t);
}

/* ---- Debt, stop, the unlimited ---- */

static void test_debt_saturates_at_its_bound(void **state)
{
    (void)state;
    struct weir_table *t = made_table(8, 2, 1);
    struct weir_quota quota = made_quota_of("q", NULL, 1000, 1000);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    for (int i = 0; i < 300; i++)
        weir_table_charge(t, 0, ref, WEIR_WEIGHT_MAX, MADE_AT);
    struct weir_slot_view view;
    weir_table_view(t, ref.slot, &view, MADE_AT);
    assert_true(view.count == WEIR_DEBT_MAX + 1000);
    struct weir_reply reply;
    assert_int_equal(
        weir_table_reserve(t, 0, ref, 1, WEIR_NEVER, &reply, MADE_AT) &
            WEIR_OUTCOME_LIMITED,
        WEIR_OUTCOME_LIMITED);
    /* Reservations come in order, each a millisecond after the other. */
    weir_table_refund(t, 0, ref, WEIR_WEIGHT_MAX, MADE_AT);
    weir_duration before = 0;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(
            weir_table_reserve(t, 0, ref, 1, WEIR_NEVER - 1, &reply, MADE_AT) &
                WEIR_OUTCOME_LIMITED,
            0);
        weir_duration step = reply.wait - before;
        assert_true(i == 0 || (step >= WEIR_MILLISECOND - 1000 &&
                               step <= WEIR_MILLISECOND + 1000));
        before = reply.wait;
    }
    /* A weight that never fits is refused at any patience. */
    assert_int_equal(
        weir_table_reserve(t, 0, ref, 1001, WEIR_NEVER, &reply, MADE_AT) &
            WEIR_OUTCOME_LIMITED,
        WEIR_OUTCOME_LIMITED);
    assert_true(reply.never);
    free(t);
}

/* Edits 'q' to 'limit' a second, and bursts of as much. */
static void edit_to(struct weir_table *t, uint64_t limit)
{
    struct weir_quota quota = made_quota_of("q", NULL, limit, limit);
    made_put(t, &quota, MADE_AT);
}

static uint64_t units_in(struct weir_table *t, struct weir_ref ref)
{
    struct weir_slot_view view;
    weir_table_view(t, ref.slot, &view, MADE_AT);
    return (uint64_t)view.fill >> view.bucket.leak.frac;
}

/* What is used is no more than the new high_burst: the new limit passes from
 * then on. A debt stays, and nothing comes back when a limit is raised. */
static void test_an_edit_cuts_what_is_used(void **state)
{
    (void)state;
    struct weir_table *t = made_table(8, 2, 1);
    struct weir_quota quota = made_quota_of("q", NULL, 1000, 1000);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    weir_table_charge(t, 0, ref, 900, MADE_AT);
    uint64_t count = weir_table_count(t, ref.slot);
    edit_to(t, 1000);
    assert_int_equal(units_in(t, ref), 900);
    edit_to(t, 100);
    assert_int_equal(units_in(t, ref), 100);
    assert_true(weir_table_count(t, ref.slot) == count);
    edit_to(t, 5000);
    assert_int_equal(units_in(t, ref), 100);
    weir_table_charge(t, 0, ref, 5000, MADE_AT);
    edit_to(t, 10);
    assert_int_equal(units_in(t, ref), 110);
    edit_to(t, 0);
    assert_int_equal(units_in(t, ref), 100);
    edit_to(t, 1000);
    assert_int_equal(units_in(t, ref), 100);
    free(t);
}

static void test_the_stop_refuses_until_it_moves(void **state)
{
    (void)state;
    struct weir_table *t = made_table(8, 2, 1);
    struct weir_quota quota = made_quota_of("q", NULL, 1, 1000);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    weir_table_set_slack(t, ref.slot, 5, 10);
    for (uint64_t i = 1; i <= 10; i++) {
        unsigned outcome = weir_table_take(t, 0, ref, 1, NULL, MADE_AT);
        assert_int_equal(outcome, i == 5 ? WEIR_OUTCOME_KICK : 0);
    }
    struct weir_reply reply;
    assert_int_equal(weir_table_take(t, 0, ref, 1, &reply, MADE_AT),
                     WEIR_OUTCOME_LIMITED);
    assert_compare(reply.retry_after, >=, 20 * WEIR_MILLISECOND);
    assert_true(weir_table_urgent(t));
    assert_false(weir_table_urgent(t));
    weir_table_set_slack(t, ref.slot, 15, 20);
    assert_true(takes(t, ref, 1));
    free(t);
}

/* A take passes there, so a reservation doesn't wait. */
static void test_a_stop_delays_only_where_a_quota_refuses(void **state)
{
    (void)state;
    struct weir_reply reply;
    struct weir_table *t = made_table(8, 2, 1);
    struct weir_quota quotas[] = { made_quota_of("off", NULL, 1, 1000),
                                   made_quota_of("shadow", NULL, 1, 1000),
                                   made_quota_of("pass", NULL, 1, 1000) };
    quotas[0].mode = WEIR_OFF;
    quotas[1].mode = WEIR_SHADOW;
    quotas[2].on_stale = WEIR_STALE_PASS;
    for (size_t i = 0; i < WEIR_COUNT_OF(quotas); i++) {
        struct weir_ref ref = made_put(t, &quotas[i], MADE_AT);
        weir_table_set_slack(t, ref.slot, 0, 0);
        weir_table_set_stale(t, i == 2, MADE_AT);
        unsigned outcome = weir_table_reserve(t, 0, ref, 1, 0, &reply, MADE_AT);
        assert_false(outcome & WEIR_OUTCOME_LIMITED);
        assert_int_equal(reply.wait, 0);
    }
    free(t);
}

static void test_the_unlimited_only_counts(void **state)
{
    (void)state;
    struct weir_table *t = made_table(8, 2, 1);
    struct weir_quota quota = made_quota_of("q", NULL, 1, 1);
    quota.limit.unlimited = true;
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    /* Past every bound of a fill, in steps of 2^56. */
    for (int i = 0; i < 300; i++) {
        struct weir_reply reply;
        assert_true(takes(t, ref, WEIR_WEIGHT_MAX));
        assert_int_equal(weir_table_take(t, 0, ref, 1, &reply, MADE_AT) &
                             WEIR_OUTCOME_LIMITED,
                         0);
        uint64_t before = weir_table_count(t, ref.slot);
        weir_table_charge(t, 0, ref, 7, MADE_AT);
        assert_true(weir_table_count(t, ref.slot) == before + 7);
        weir_fetch_add(&weir_hot(t, ref.slot)->count, (uint64_t)1 << 56);
        uint64_t bits = 0;
        weir_table_collect(t, &bits);
    }
    free(t);
}

/* A thread may have read the clock before the sync did, and be without a
 * processor meanwhile. */
static void test_an_idle_bucket_is_empty_for_late_callers(void **state)
{
    (void)state;
    struct weir_table *t = made_table(8, 2, 1);
    struct weir_quota quota = made_quota_of("q", NULL, 1, 1000);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    struct weir_reply reply;
    weir_instant now = MADE_AT;
    for (int i = 0; i < 4; i++) {
        now += 30 * WEIR_SECOND;
        if (i % 2 == 0)
            weir_table_sweep(t, 8, now);
        else
            weir_table_set_fill(t, ref.slot, 0, 0, now);
        weir_table_peek(t, 0, ref, 1, &reply, now - WEIR_SECOND);
        assert_int_equal(reply.remaining, 1000);
    }
    /* What is taken is there afterwards. */
    assert_false(weir_table_take(t, 0, ref, 10, NULL, now) &
                 WEIR_OUTCOME_LIMITED);
    weir_table_sweep(t, 8, now);
    weir_table_set_fill(t, ref.slot, 0, 0, now);
    weir_table_peek(t, 0, ref, 1, &reply, now);
    assert_int_equal(reply.remaining, 990);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill_is_as_the_model_says),
        cmocka_unit_test(test_the_band_refuses_in_proportion),
        cmocka_unit_test(test_stale_quotas_do_as_they_say),
        cmocka_unit_test(test_debt_saturates_at_its_bound),
        cmocka_unit_test(test_an_edit_cuts_what_is_used),
        cmocka_unit_test(test_the_stop_refuses_until_it_moves),
        cmocka_unit_test(test_a_stop_delays_only_where_a_quota_refuses),
        cmocka_unit_test(test_the_unlimited_only_counts),
        cmocka_unit_test(test_an_idle_bucket_is_empty_for_late_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
