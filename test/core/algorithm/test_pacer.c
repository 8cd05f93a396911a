/* SPDX-License-Identifier: MIT
 * test_pacer.c - the pacer compared with an obvious one, with exact rationals,
 * and with the promises of its header.
 *
 * The obvious one keeps each job's credit as a fraction that is advanced at
 * every call, and finds the next job by a search of all. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/algorithm/pacer_state.h"
#include "table_maker.h"

#define JOBS 8
#define OPERATIONS 1000000
#define DAY (86400 * WEIR_SECOND)

static struct weir_pacer *made_pacer(uint32_t jobs)
{
    size_t size = weir_pacer_size(jobs);
    assert_compare(size, >, 0);
    void *block = malloc(size);
    assert_non_null(block);
    return weir_pacer_init(block, jobs);
}

/* ---- The obvious one ---- */

struct model {
    bool lives, ready, serving;
    struct weir_pacer_job rule;
    weir_i128 credit;  /* units * per */
    weir_instant at;   /* of 'credit' */
    weir_instant turn; /* not before */
    weir_instant left;
    weir_instant due;
    uint64_t ticket;
};

static weir_i128 most_credit(const struct model *job)
{
    bool waits = job->ready || job->serving;
    weir_duration saved = waits ? job->rule.quantum + job->rule.lag : 0;
    return (weir_i128)job->rule.burst * job->rule.per +
           (weir_i128)saved * job->rule.units;
}

static void model_move(struct model *job, weir_instant now)
{
    job->credit += (weir_i128)(now - job->at) * job->rule.units;
    if (job->credit > most_credit(job))
        job->credit = most_credit(job);
    job->at = now;
}

static uint64_t model_can(struct model *job, weir_instant now)
{
    if (!job->lives || job->rule.units == 0)
        return 0;
    struct model then = *job;
    model_move(&then, now);
    weir_i128 units = then.credit < 0 ? 0 : then.credit / job->rule.per;
    return units < WEIR_WEIGHT_MAX ? (uint64_t)units : WEIR_WEIGHT_MAX;
}

static void model_wait(struct model *job, uint64_t ticket, weir_instant now)
{
    weir_i128 missing = (weir_i128)job->rule.per - job->credit;
    job->due = now > job->turn ? now : job->turn;
    if (job->rule.units == 0) {
        job->due = WEIR_NEVER;
    } else if (missing > 0) {
        weir_i128 wait = (missing + job->rule.units - 1) / job->rule.units;
        weir_i128 unit = (weir_i128)now + wait;
        if (unit > (weir_i128)job->due)
            job->due =
                unit < (weir_i128)WEIR_NEVER ? (weir_instant)unit : WEIR_NEVER;
    }
    job->ready = true;
    job->serving = false;
    job->ticket = ticket;
}

static uint32_t model_first(const struct model *jobs)
{
    uint32_t best = JOBS;
    for (uint32_t i = 0; i < JOBS; i++) {
        if (!jobs[i].lives || !jobs[i].ready)
            continue;
        bool first = best == JOBS || jobs[i].due < jobs[best].due ||
                     (jobs[i].due == jobs[best].due &&
                      jobs[i].ticket < jobs[best].ticket);
        best = first ? i : best;
    }
    return best;
}

/* ---- Random histories ---- */

struct history {
    struct weir_rng rng;
    struct weir_pacer *pacer;
    struct model jobs[JOBS];
    weir_instant now;
    uint64_t tickets;
    uint64_t turns;
};

static struct weir_pacer_job random_rule(struct weir_rng *rng)
{
    static const uint64_t units[] = { 1, 3, 100, 1000, 1000000, 100000000 };
    static const weir_duration pers[] = { WEIR_SECOND, WEIR_SECOND, 7,
                                          60 * WEIR_SECOND, DAY };
    struct weir_pacer_job rule = {
        .units = units[weir_rng_below(rng, WEIR_COUNT_OF(units))],
        .per = pers[weir_rng_below(rng, WEIR_COUNT_OF(pers))],
        .burst = 1 + weir_rng_below(rng, 1 + weir_rng_below(rng, 1000)),
        .quantum = WEIR_MILLISECOND * (1 + weir_rng_below(rng, 1000)),
        .lag = weir_rng_below(rng, WEIR_SECOND) + 1,
    };
    if (rule.units > rule.per * 100)
        rule.units = rule.per * 100;
    if (weir_rng_below(rng, 20) == 0)
        rule.units = 0;
    return rule;
}

static void add_job(struct history *h)
{
    struct weir_pacer_job rule = random_rule(&h->rng);
    uint32_t number = JOBS;
    uint32_t living = 0;
    for (uint32_t i = 0; i < JOBS; i++)
        living += h->jobs[i].lives;
    int error = weir_pacer_add(h->pacer, &rule, &number, h->now);
    assert_int_equal(error, living == JOBS ? WEIR_EFULL : WEIR_OK);
    if (error < 0)
        return;
    assert_compare(number, <, JOBS);
    assert_true(!h->jobs[number].lives);
    h->jobs[number] =
        (struct model){ .lives = true,
                        .rule = rule,
                        .at = h->now,
                        .credit = (weir_i128)rule.burst * rule.per };
}

static void remove_job(struct history *h, uint32_t number)
{
    bool lived = h->jobs[number].lives;
    assert_int_equal(weir_pacer_remove(h->pacer, number),
                     lived ? WEIR_OK : WEIR_ENOENT);
    h->jobs[number] = (struct model){ 0 };
}

static void set_ready(struct history *h, uint32_t number, bool ready)
{
    struct model *job = &h->jobs[number];
    assert_int_equal(weir_pacer_ready(h->pacer, number, ready, h->now),
                     job->lives ? WEIR_OK : WEIR_ENOENT);
    if (!job->lives)
        return;
    bool busy = job->ready || job->serving;
    if (ready && !busy) {
        job->ready = job->left > 0 && h->now <= job->left + job->rule.lag;
        model_move(job, h->now);
        model_wait(job, h->tickets++, h->now);
    } else if (!ready) {
        job->left = busy ? h->now : job->left;
        job->ready = job->serving = false;
    }
}

static void spend(struct history *h, uint32_t number, uint64_t units)
{
    struct model *job = &h->jobs[number];
    assert_int_equal(weir_pacer_spend(h->pacer, number, units, h->now),
                     job->lives ? WEIR_OK : WEIR_ENOENT);
    if (!job->lives)
        return;
    bool busy = job->ready || job->serving;
    model_move(job, h->now);
    job->credit -= (weir_i128)units * job->rule.per;
    if (busy)
        model_wait(job, h->tickets++, h->now);
}

static void take_turn(struct history *h)
{
    uint32_t first = model_first(h->jobs);
    weir_instant due = first < JOBS ? h->jobs[first].due : WEIR_NEVER;
    assert_int_equal(weir_pacer_next(h->pacer), due);
    struct weir_pacer_turn turn = { 0, 0 };
    bool has = weir_pacer_turn(h->pacer, &turn, h->now);
    assert_int_equal(has, due != WEIR_NEVER && due <= h->now);
    if (!has)
        return;
    h->turns++;
    struct model *job = &h->jobs[first];
    assert_int_equal(turn.job, first);
    assert_int_equal(turn.units, model_can(job, h->now));
    assert_compare(turn.units, >=, 1);
    job->ready = false;
    job->serving = true;
    job->turn = h->now + job->rule.quantum;
    if (weir_rng_below(&h->rng, 4) > 0)
        spend(h, first, weir_rng_below(&h->rng, turn.units + 1));
}

/* Mostly to about the next event, sometimes far beyond. */
static void pass_time(struct history *h)
{
    weir_instant next = weir_pacer_next(h->pacer);
    uint64_t dice = weir_rng_below(&h->rng, 10);
    if (dice < 6 && next != WEIR_NEVER && next > h->now && next - h->now < DAY)
        h->now = next - (dice == 0);
    else if (dice < 9)
        h->now += weir_rng_below(&h->rng, 20 * WEIR_MILLISECOND);
    else
        h->now += weir_rng_below(&h->rng, 10 * WEIR_SECOND);
}

static void step(struct history *h)
{
    uint32_t number = (uint32_t)weir_rng_below(&h->rng, JOBS);
    switch (weir_rng_below(&h->rng, 16)) {
    case 0:
        add_job(h);
        break;
    case 1:
        if (weir_rng_below(&h->rng, 4) == 0)
            remove_job(h, number);
        break;
    case 2:
        set_ready(h, number, false);
        break;
    case 3:
    case 4:
        set_ready(h, number, true);
        break;
    case 5:
        spend(h, number, weir_rng_below(&h->rng, 30));
        break;
    case 6:
    case 7:
    case 8:
        pass_time(h);
        break;
    default:
        take_turn(h);
    }
    number = (uint32_t)weir_rng_below(&h->rng, JOBS);
    assert_int_equal(weir_pacer_can(h->pacer, number, h->now),
                     model_can(&h->jobs[number], h->now));
}

static void test_agrees_with_the_obvious_one(void **state)
{
    (void)state;
    struct history h = { .rng = made_seed("agrees"),
                         .now = MADE_AT,
                         .pacer = made_pacer(JOBS) };
    for (int i = 0; i < OPERATIONS; i++)
        step(&h);
    print_message("%llu turns\n", (unsigned long long)h.turns);
    assert_compare(h.turns, >, OPERATIONS / 100);
    free(h.pacer);
}

/* ---- Promises of the header ---- */

/* A job that is always ready, with turns up to 'lag' late, sends exactly
 * rate * t, from a unit a day to a unit a nanosecond. */
static void test_nothing_drifts(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("nothing_drifts");
    static const struct {
        uint64_t units;
        weir_duration per;
    } rates[] = {
        { 1, DAY },
        { 1, 3 * WEIR_SECOND },
        { 3, WEIR_SECOND },
        { 1000, WEIR_SECOND },
        { 44100, WEIR_SECOND },
        { 1000000007, 977 * WEIR_SECOND },
        { 1000000000, WEIR_SECOND },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rates); i++) {
        struct weir_pacer *pacer = made_pacer(1);
        struct weir_pacer_job rule = { .units = rates[i].units,
                                       .per = rates[i].per };
        uint32_t job;
        assert_int_equal(weir_pacer_add(pacer, &rule, &job, MADE_AT), 0);
        weir_pacer_ready(pacer, job, true, MADE_AT);
        uint64_t sent = 0;
        weir_instant now = MADE_AT;
        for (int turns = 0; turns < 100000; turns++) {
            now = weir_pacer_next(pacer) +
                  weir_rng_below(&rng, WEIR_PACER_QUANTUM_DEFAULT);
            struct weir_pacer_turn turn;
            assert_true(weir_pacer_turn(pacer, &turn, now));
            sent += turn.units;
            weir_pacer_spend(pacer, job, turn.units, now);
        }
        weir_u128 exact = (weir_u128)(now - MADE_AT) * rule.units / rule.per;
        assert_int_equal(sent, 1 + (uint64_t)exact);
        free(pacer);
    }
}

/* No span of time sees more than burst + rate * (t + quantum + lag): a bucket
 * of that height, filled with the units sent, never overflows. */
static void test_no_span_sees_more(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("no_span");
    for (int round = 0; round < 50; round++) {
        struct weir_pacer *pacer = made_pacer(1);
        struct weir_pacer_job rule = random_rule(&rng);
        uint32_t job;
        weir_instant now = MADE_AT;
        assert_int_equal(weir_pacer_add(pacer, &rule, &job, now), 0);
        weir_i128 height = 0;
        weir_i128 most = (weir_i128)rule.burst * rule.per + rule.per +
                         (weir_i128)(rule.quantum + rule.lag) * rule.units;
        for (int i = 0; i < 5000; i++) {
            weir_duration step = weir_rng_below(
                &rng, weir_rng_below(&rng, 50) ? 50 * WEIR_MILLISECOND
                                               : 100 * WEIR_SECOND);
            now += step;
            height -= (weir_i128)step * rule.units;
            height = height < 0 ? 0 : height;
            weir_pacer_ready(pacer, job, weir_rng_below(&rng, 4) > 0, now);
            /* A clock that steps back earns no credit. */
            weir_instant seen = now - weir_rng_below(&rng, WEIR_SECOND);
            struct weir_pacer_turn turn;
            if (weir_pacer_turn(pacer, &turn, seen) ||
                weir_pacer_turn(pacer, &turn, now)) {
                weir_pacer_spend(pacer, job, turn.units, now);
                height += (weir_i128)turn.units * rule.per;
            }
            assert_compare(height, <=, most);
        }
        free(pacer);
    }
}

/* A thread that can send a third of the sum of the rates: each job gets a third
 * of its own. */
static void test_who_cant_keep_up_is_fair(void **state)
{
    (void)state;
    static const uint64_t rates[] = { 100, 200, 400, 800, 3000 };
    enum { COUNT = WEIR_COUNT_OF(rates), THREAD = 1500 /* units a second */ };
    struct weir_pacer *pacer = made_pacer(COUNT);
    uint64_t sent[COUNT] = { 0 };
    weir_instant now = MADE_AT;
    for (uint32_t i = 0; i < COUNT; i++) {
        struct weir_pacer_job rule = { .units = rates[i],
                                       .per = WEIR_SECOND,
                                       .quantum = WEIR_SECOND / 4 };
        uint32_t job;
        assert_int_equal(weir_pacer_add(pacer, &rule, &job, now), 0);
        weir_pacer_ready(pacer, job, true, now);
    }
    while (now < MADE_AT + 100 * WEIR_SECOND) {
        struct weir_pacer_turn turn;
        if (!weir_pacer_turn(pacer, &turn, now)) {
            now = weir_pacer_next(pacer);
            continue;
        }
        now += turn.units * WEIR_SECOND / THREAD;
        sent[turn.job] += turn.units;
        weir_pacer_spend(pacer, turn.job, turn.units, now);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t fair = rates[i] * 100 / 3;
        print_message("%llu/s: %llu, fair %llu\n", (unsigned long long)rates[i],
                      (unsigned long long)sent[i], (unsigned long long)fair);
        assert_in_range(sent[i], fair * 9 / 10, fair * 11 / 10);
    }
    free(pacer);
}

static void test_a_heavy_piece_goes_whole_and_is_paid_for(void **state)
{
    (void)state;
    struct weir_pacer *pacer = made_pacer(1);
    struct weir_pacer_job rule = { .units = 10, .per = WEIR_SECOND };
    uint32_t job;
    assert_int_equal(weir_pacer_add(pacer, &rule, &job, MADE_AT), 0);
    weir_pacer_ready(pacer, job, true, MADE_AT);
    struct weir_pacer_turn turn;
    assert_true(weir_pacer_turn(pacer, &turn, MADE_AT));
    assert_int_equal(weir_pacer_spend(pacer, job, 50, MADE_AT), 0);
    assert_int_equal(weir_pacer_can(pacer, job, MADE_AT), 0);
    assert_int_equal(weir_pacer_next(pacer), MADE_AT + 5 * WEIR_SECOND);
    assert_false(weir_pacer_turn(pacer, &turn, MADE_AT + WEIR_SECOND));
    free(pacer);
}

static void test_another_rate_keeps_what_was_earned(void **state)
{
    (void)state;
    struct weir_pacer *pacer = made_pacer(1);
    struct weir_pacer_job rule = { .units = 1, .per = WEIR_SECOND };
    uint32_t job;
    assert_int_equal(weir_pacer_add(pacer, &rule, &job, MADE_AT), 0);
    weir_pacer_ready(pacer, job, true, MADE_AT);
    assert_int_equal(weir_pacer_spend(pacer, job, 1, MADE_AT), 0);
    /* Half a unit has been earned; at ten a second the rest takes 50 ms, and
     * setting the rule again and again loses nothing. */
    weir_instant now = MADE_AT + WEIR_SECOND / 2;
    rule.units = 10;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(weir_pacer_set(pacer, job, &rule, now), 0);
    assert_in_range(weir_pacer_next(pacer), now + 50 * WEIR_MILLISECOND,
                    now + 50 * WEIR_MILLISECOND + 1000);
    rule.units = 0;
    assert_int_equal(weir_pacer_set(pacer, job, &rule, now), 0);
    assert_true(weir_pacer_next(pacer) == WEIR_NEVER);
    free(pacer);
}

static void test_what_is_out_of_range_is_refused(void **state)
{
    (void)state;
    assert_int_equal(weir_pacer_size(0), 0);
    assert_int_equal(weir_pacer_size(WEIR_PACER_JOBS_MAX + 1), 0);
    struct weir_pacer *pacer = made_pacer(1);
    struct weir_pacer_job good = { .units = 1, .per = 1 };
    uint32_t job = 7;
    struct weir_pacer_job bad[] = { good, good, good, good, good, good };
    bad[0].per = 0;
    bad[1].per = 367 * DAY;
    bad[2].units = 200;
    bad[3].quantum = WEIR_SECOND + 1;
    bad[4].quantum = WEIR_MILLISECOND - 1;
    bad[5].burst = WEIR_WEIGHT_MAX + 1;
    for (size_t i = 0; i < WEIR_COUNT_OF(bad); i++)
        assert_int_equal(weir_pacer_add(pacer, &bad[i], &job, MADE_AT),
                         WEIR_EINVAL);
    assert_int_equal(job, 7);
    assert_int_equal(weir_pacer_add(pacer, &good, &job, MADE_AT), 0);
    assert_int_equal(weir_pacer_set(pacer, job, &bad[0], MADE_AT), WEIR_EINVAL);
    assert_int_equal(weir_pacer_spend(pacer, job, WEIR_WEIGHT_MAX + 1, MADE_AT),
                     WEIR_EINVAL);
    assert_int_equal(weir_pacer_add(pacer, &good, &job, MADE_AT), WEIR_EFULL);
    assert_int_equal(weir_pacer_spend(pacer, 1, 1, MADE_AT), WEIR_ENOENT);
    assert_int_equal(weir_pacer_can(pacer, 1, MADE_AT), 0);
    free(pacer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_the_obvious_one),
        cmocka_unit_test(test_nothing_drifts),
        cmocka_unit_test(test_no_span_sees_more),
        cmocka_unit_test(test_who_cant_keep_up_is_fair),
        cmocka_unit_test(test_a_heavy_piece_goes_whole_and_is_paid_for),
        cmocka_unit_test(test_another_rate_keeps_what_was_earned),
        cmocka_unit_test(test_what_is_out_of_range_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
