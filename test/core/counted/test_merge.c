/* SPDX-License-Identifier: MIT
 * test_merge.c - a root's merge alone: how much of a bucket one limiter can
 * fill by any reports. Whole fleets are in test_debt.c. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/base/rng.h"
#include "core/counted/merge.h"
#include "histories.h"
#include "io/clock.h"
#include "planted.h"

#define LIMIT 100 /* per second */
#define MAX_DEBT (60 * WEIR_SECOND)
#define HIGH (LIMIT * 3 / 2)
#define DEBT (LIMIT * 60)
#define BORN ((weir_instant)1000 * WEIR_SECOND)
#define LIMITERS 3
#define LIAR 0
#define TWO_TO_62 ((int64_t)1 << 62)

struct stage {
    struct weir_merge merge;
    struct weir_merge_limiter limiter[LIMITERS];
    struct weir_root_quota *root_quota;
    struct weir_quota quota;
    weir_instant now;
    uint64_t told;   /* calls of the watch … */
    uint64_t beyond; /* … and the units in those calls */
    uint64_t beyond_of_liar;
};

static void note_beyond(void *context, const struct weir_merge_limiter *limiter,
                        const struct weir_root_quota *root_quota,
                        uint64_t units, weir_instant now)
{
    struct stage *stage = context;
    assert_ptr_equal(root_quota, stage->root_quota);
    assert_int_equal(now, stage->now);
    stage->told++;
    stage->beyond += units;
    if (limiter == &stage->limiter[LIAR])
        stage->beyond_of_liar += units;
}

/* 'fill': the limiter's own, in units. */
static void announce(struct stage *stage, uint32_t limiter, int64_t fill,
                     bool witnessed)
{
    struct weir_announce announce = { .name = WEIR_TEXT("q"),
                                      .created = 1,
                                      .fill = fill,
                                      .witnessed = witnessed };
    assert_int_equal(
        weir_merge_announce(&stage->merge, &stage->limiter[limiter],
                            stage->root_quota, &announce, stage->now),
        WEIR_OK);
}

static void give_birth(struct stage *stage)
{
    weir_merge_init(&stage->merge, &weir_mem_system, 1, stage->now);
    stage->merge.learn = 10 * WEIR_SECOND;
    stage->merge.pace_good = 2 * WEIR_SECOND;
    stage->root_quota = weir_merge_root_quota(&stage->merge, WEIR_TEXT("q"),
                                              &stage->quota, stage->now);
    assert_non_null(stage->root_quota);
    for (uint32_t i = 0; i < LIMITERS; i++)
        weir_merge_connect(&stage->merge, &stage->limiter[i], true);
}

static void stage_init(struct stage *stage)
{
    *stage = (struct stage){ .now = BORN };
    weir_quota_init(&stage->quota);
    stage->quota.name = WEIR_TEXT("q");
    stage->quota.created = stage->quota.epoch = 1;
    stage->quota.limit.unlimited = false;
    stage->quota.limit.units = LIMIT;
    give_birth(stage);
    for (uint32_t i = 0; i < LIMITERS; i++)
        announce(stage, i, 0, false);
}

static void reap(struct stage *stage)
{
    for (uint32_t i = 0; i < LIMITERS; i++)
        weir_merge_forget(&stage->merge, &stage->limiter[i]);
    weir_merge_fini(&stage->merge);
}

static void count(struct stage *stage, uint32_t limiter,
                  struct weir_count count, weir_duration late_from)
{
    const struct weir_merge_watch watch = { stage, note_beyond };
    struct weir_report report = { .late_from = late_from };
    stage->merge.watch = &watch;
    assert_true(weir_merge_count(&stage->merge, &stage->limiter[limiter],
                                 &count, &report, stage->now));
    stage->merge.watch = NULL;
}

static void pass(struct stage *stage, uint32_t limiter, int64_t units)
{
    count(stage, limiter, (struct weir_count){ .passed = units }, 0);
}

/* The bucket's units, rounded up. */
static int64_t fill(struct stage *stage)
{
    int64_t scaled =
        weir_merge_fill(&stage->merge, stage->root_quota, stage->now);
    unsigned frac = stage->root_quota->bucket.leak.frac;
    return (scaled + ((int64_t)1 << frac) - 1) >> frac;
}

/* ---- Bounds on one limiter ---- */

/* For any reports: 'max_debt' after a limiter's last report the bucket is no
 * fuller than 'high', and lets the limit pass. The total is exact. */
static void test_one_lie_drains_in_max_debt(void **state)
{
    (void)state;
    static const int64_t lies[] = { TWO_TO_62,     INT64_MAX,        INT64_MIN,
                                    INT64_MAX - 1, (int64_t)1 << 40, DEBT + 1 };
    for (size_t i = 0; i < WEIR_COUNT_OF(lies); i++) {
        struct stage stage;
        stage_init(&stage);
        pass(&stage, 1, HIGH);
        pass(&stage, LIAR, lies[i]);
        assert_int_equal(stage.root_quota->passed, HIGH + (uint64_t)lies[i]);
        assert_compare(fill(&stage), <=, HIGH + DEBT);
        if (lies[i] > 0) {
            assert_int_equal(stage.root_quota->beyond,
                             (uint64_t)lies[i] - DEBT);
            assert_int_equal(stage.beyond_of_liar, (uint64_t)lies[i] - DEBT);
            assert_int_equal(stage.told, 1);
        }
        stage.now += MAX_DEBT;
        assert_compare(fill(&stage), <=, HIGH);
        reap(&stage);
    }
}

/* The limiter repeats it at each interval of a minute. */
static void test_a_repeated_lie_is_no_longer_one(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    uint64_t passed = 0;
    for (int second = 0; second < 60; second++) {
        static const int64_t lies[] = { TWO_TO_62, INT64_MAX, INT64_MIN };
        int64_t lie = lies[second % 3];
        pass(&stage, LIAR, lie);
        passed += (uint64_t)lie;
        stage.now += WEIR_SECOND;
        assert_compare(fill(&stage), <=, DEBT);
    }
    assert_int_equal(stage.root_quota->passed, passed);
    stage.now += MAX_DEBT - WEIR_SECOND;
    assert_compare(fill(&stage), <=, HIGH);
    reap(&stage);
}

/* Another limiter that reports meanwhile has a debt of its own, and isn't the
 * one named in the event. */
static void test_others_are_counted_beside_it(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    pass(&stage, LIAR, TWO_TO_62);
    pass(&stage, 1, LIMIT);
    pass(&stage, 2, DEBT);
    assert_int_equal(fill(&stage), 2 * DEBT + LIMIT);
    assert_int_equal(stage.beyond, stage.beyond_of_liar);
    assert_int_equal(stage.told, 1);
    reap(&stage);
}

/* Late counts put no limiter into debt, however many they are. */
static void test_late_lies_fill_it_to_high(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    for (int i = 0; i < 60; i++) {
        struct weir_count lie = { .passed = TWO_TO_62, .late = INT64_MAX };
        count(&stage, LIAR, lie, i % 2 == 0 ? WEIR_SECOND : 0);
        assert_compare(fill(&stage), <=, HIGH);
        stage.now += WEIR_SECOND;
    }
    assert_int_equal(stage.root_quota->beyond, 0);
    assert_compare(fill(&stage), <=, HIGH);
    reap(&stage);
}

/* ---- Rights of honest limiters ---- */

/* A limiter that was cut off for minutes reports its backlog: it fills the
 * bucket as always, and no part of it is above a debt bound. */
static void test_a_backlog_is_not_cut(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    stage.now += 600 * WEIR_SECOND;
    struct weir_count backlog = { .passed = 600 * 3 * LIMIT,
                                  .late = 600 * 3 * LIMIT - HIGH };
    count(&stage, 1, backlog, 600 * WEIR_SECOND);
    assert_int_equal(fill(&stage), HIGH);
    assert_int_equal(stage.root_quota->beyond, 0);
    reap(&stage);
}

/* Charges may use all of max_debt, and refunds give room back. */
static void test_charges_and_refunds_count_whole(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    pass(&stage, 1, DEBT / 2);
    pass(&stage, 1, DEBT / 2);
    assert_int_equal(fill(&stage), DEBT);
    pass(&stage, 1, -DEBT / 2);
    pass(&stage, 1, DEBT / 2);
    assert_int_equal(fill(&stage), DEBT);
    assert_int_equal(stage.root_quota->beyond, 0);
    stage.now += 10 * WEIR_SECOND;
    pass(&stage, 1, 10 * LIMIT);
    assert_int_equal(fill(&stage), DEBT);
    pass(&stage, 1, 1);
    assert_int_equal(fill(&stage), DEBT);
    assert_int_equal(stage.root_quota->beyond, 1);
    reap(&stage);
}

/* Units that were presumed of a limiter and taken back don't fill its own
 * bucket, however much they lift the quota's. */
static void test_presumed_units_are_no_debt(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    struct weir_count presumed = { .pace = WEIR_PACE_MAX,
                                   .ahead = (uint64_t)1 << 30 };
    stage.now += WEIR_SECOND;
    count(&stage, 1, presumed, 0);
    presumed.passed = -TWO_TO_62;
    count(&stage, 1, presumed, 0);
    pass(&stage, 1, 0);
    assert_int_equal(fill(&stage), 0);
    pass(&stage, 1, DEBT);
    assert_int_equal(fill(&stage), DEBT);
    assert_int_equal(stage.root_quota->beyond, 0);
    reap(&stage);
}

/* A bucket larger than max_debt, as of a limit per day: it is full, as much was
 * taken unseen, and one more charge of that size comes. */
static void test_a_large_burst_is_no_debt(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    stage.quota.limit.per = 86400 * WEIR_SECOND;
    stage.quota.low_burst = stage.quota.high_burst =
        (struct weir_burst){ .amount = 50 };
    weir_merge_edit(&stage.merge, stage.root_quota, &stage.quota, stage.now);
    for (int i = 1; i <= 3; i++) {
        pass(&stage, 1, 50);
        assert_int_equal(stage.root_quota->beyond, 0);
        assert_int_equal(fill(&stage), i * 50);
    }
    pass(&stage, 1, 50);
    assert_int_equal(stage.root_quota->beyond, 50);
    assert_int_equal(fill(&stage), 150);
    reap(&stage);
}

/* ---- Edits and restarts ---- */

/* A limit that is lowered ends a debt after max_debt of the new one. */
static void test_an_edit_bounds_what_is_there(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    pass(&stage, LIAR, TWO_TO_62);
    stage.quota.limit.units = 1;
    stage.quota.epoch = 2;
    weir_merge_edit(&stage.merge, stage.root_quota, &stage.quota, stage.now);
    assert_compare(fill(&stage), <=, 60 + 2);
    pass(&stage, LIAR, TWO_TO_62);
    stage.now += MAX_DEBT;
    assert_compare(fill(&stage), <=, 2);
    /* A limit of 0 bounds nothing: nothing passes; later the debt is gone. */
    stage.quota.limit.units = 0;
    weir_merge_edit(&stage.merge, stage.root_quota, &stage.quota, stage.now);
    pass(&stage, LIAR, TWO_TO_62);
    stage.quota.limit.units = LIMIT;
    weir_merge_edit(&stage.merge, stage.root_quota, &stage.quota, stage.now);
    stage.now += MAX_DEBT;
    assert_compare(fill(&stage), <=, HIGH);
    reap(&stage);
}

static void edit_to(struct stage *stage, uint64_t limit)
{
    stage->quota.limit.units = limit;
    stage->quota.epoch++;
    weir_merge_edit(&stage->merge, stage->root_quota, &stage->quota,
                    stage->now);
}

/* What is used is cut to the new high, presumed units included, as in the
 * tables of limiters (test_table). The count that replaces the presumed units
 * finds the bucket as full as that. */
static void test_an_edit_cuts_what_is_used(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    struct weir_count presumed = { .passed = 60,
                                   .pace = 80 * WEIR_PACE_SPAN / WEIR_SECOND };
    count(&stage, 1, presumed, 0);
    stage.now += WEIR_SECOND / 2;
    assert_int_equal(fill(&stage), 50); /* 60 and 40 presumed, 50 leaked */
    edit_to(&stage, 20);
    assert_int_equal(fill(&stage), 30);
    /* Presumed units were rounded. */
    pass(&stage, 1, 40);
    assert_in_range(fill(&stage), 30, 31);
    edit_to(&stage, 20);
    assert_in_range(fill(&stage), 30, 31);
    edit_to(&stage, LIMIT);
    assert_in_range(fill(&stage), 30, 31);
    /* A debt above the former high stays. */
    pass(&stage, 1, HIGH);
    edit_to(&stage, 20);
    assert_in_range(fill(&stage), 30 + 30, 30 + 31);
    assert_int_equal(stage.root_quota->passed, 60 + 40 + HIGH);
    reap(&stage);
}

/* Units presumed at the former limit are more than a debt under the new one.
 * The count that replaces them is no debt: the bucket has been cut. */
static void test_an_edit_makes_no_debt_of_presumed_units(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    struct weir_count presumed = { .pace = 400 * WEIR_PACE_SPAN / WEIR_SECOND };
    count(&stage, 1, presumed, 0);
    stage.now += WEIR_SECOND / 2;
    stage.quota.max_debt = WEIR_SECOND;
    edit_to(&stage, 1);
    assert_compare(fill(&stage), <=, 2);
    pass(&stage, 1, 200);
    assert_compare(fill(&stage), <=, 3);
    assert_int_equal(stage.root_quota->beyond, 0);
    /* From there on its debt is that of any limiter. */
    pass(&stage, LIAR, TWO_TO_62);
    assert_compare(fill(&stage), <=, 3 + 6);
    pass(&stage, 1, 100);
    assert_compare(stage.root_quota->beyond, >=, TWO_TO_62);
    assert_compare(fill(&stage), <=, 3 + 6 + 6);
    reap(&stage);
}

/* A root that was just started bounds the fill that limiters report. A limiter
 * that lies in its fill and in its counts fills no more by both. */
static void test_a_fill_taken_over_is_bounded(void **state)
{
    (void)state;
    for (int witnessed = 0; witnessed < 2; witnessed++) {
        struct stage stage;
        stage_init(&stage);
        reap(&stage);
        give_birth(&stage);
        announce(&stage, LIAR, INT64_MAX, witnessed);
        announce(&stage, 1, INT64_MIN, witnessed);
        announce(&stage, 2, TWO_TO_62, witnessed);
        assert_int_equal(fill(&stage), DEBT);
        pass(&stage, LIAR, TWO_TO_62);
        assert_int_equal(fill(&stage), DEBT);
        stage.now += MAX_DEBT;
        assert_compare(fill(&stage), <=, HIGH);
        reap(&stage);
    }
}

/* Units in flight are those of each limiter's last report, and go with the
 * limiter. */
static void test_a_lie_in_flight_goes_with_the_limiter(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    stage.quota.kind = WEIR_CONCURRENCY;
    stage.quota.limit = (struct weir_limit){ .units = 40 };
    weir_merge_edit(&stage.merge, stage.root_quota, &stage.quota, stage.now);
    for (uint32_t i = 0; i < LIMITERS; i++) {
        struct weir_announce said = { .in_flight = true };
        assert_int_equal(weir_merge_announce(&stage.merge, &stage.limiter[i],
                                             stage.root_quota, &said,
                                             stage.now),
                         WEIR_OK);
    }
    pass(&stage, 1, 3);
    pass(&stage, LIAR, TWO_TO_62);
    assert_compare(fill(&stage), >, 40);
    weir_merge_connect(&stage.merge, &stage.limiter[LIAR], false);
    weir_merge_release(&stage.merge, &stage.limiter[LIAR]);
    assert_int_equal(fill(&stage), 3);
    reap(&stage);
}

/* ---- At random ---- */

static int64_t extreme(struct weir_rng *rng)
{
    static const int64_t some[] = { 0,         1,          -1,
                                    INT64_MAX, INT64_MIN,  INT64_MAX - 1,
                                    TWO_TO_62, -TWO_TO_62, INT64_MIN + 1 };
    if (weir_rng_below(rng, 3) == 0)
        return (int64_t)weir_rng_next(rng) >> weir_rng_below(rng, 64);
    return some[weir_rng_below(rng, WEIR_COUNT_OF(some))];
}

static struct weir_count drawn_count(struct weir_rng *rng)
{
    return (struct weir_count){
        .passed = extreme(rng),
        .refused = (uint64_t)extreme(rng),
        .late = extreme(rng),
        .carry = extreme(rng),
        .pace = weir_rng_below(rng, 2) * weir_rng_below(rng, WEIR_PACE_MAX),
        .ahead = weir_rng_below(rng, 2) * weir_rng_below(rng, WEIR_AHEAD_MAX),
    };
}

static void tell_all(struct stage *stage)
{
    struct weir_fill fills[4];
    weir_merge_look(&stage->merge, 1000, stage->now);
    for (uint32_t i = 0; i < LIMITERS; i++)
        weir_merge_send_fills(&stage->merge, &stage->limiter[i], fills, 4,
                              stage->now);
}

static void edit(struct stage *stage, struct weir_rng *rng)
{
    stage->quota.limit.units = weir_rng_below(rng, 4) == 0
                                   ? 0
                                   : (uint64_t)1 << weir_rng_below(rng, 36);
    stage->quota.epoch++;
    weir_merge_edit(&stage->merge, stage->root_quota, &stage->quota,
                    stage->now);
}

static void audit_stage(void *context)
{
    struct stage *stage = context;
    weir_merge_audit(&stage->merge, UINT32_MAX);
    for (uint32_t i = 0; i < LIMITERS; i++)
        weir_merge_audit_limiter(&stage->limiter[i]);
}

/* A liar reports anything; honest limiters use their fills, and count when
 * there is room. Totals are exact, and the liar's debt after its last report is
 * gone in time. */
static void play(uint64_t seed)
{
    struct weir_rng rng = { .state = seed };
    struct stage stage;
    stage_init(&stage);
    uint64_t passed = 0;
    bool edits = weir_rng_below(&rng, 2);
    for (int step = 0; step < 200; step++) {
        uint32_t who = (uint32_t)weir_rng_below(&rng, LIMITERS);
        struct weir_count said = { .passed = LIMIT / 10 };
        if (who == LIAR)
            said = drawn_count(&rng);
        if (who == LIAR || fill(&stage) < HIGH) {
            passed += (uint64_t)said.passed;
            count(&stage, who, said,
                  who == LIAR ? weir_rng_next(&rng) >> weir_rng_below(&rng, 64)
                              : 0);
        }
        assert_int_equal(stage.root_quota->passed, passed);
        assert_int_equal(stage.beyond, stage.root_quota->beyond);
        audit_stage(&stage);
        if (weir_rng_below(&rng, 4) == 0)
            stage.now += weir_rng_below(&rng, WEIR_SECOND);
        if (edits && weir_rng_below(&rng, 16) == 0)
            edit(&stage, &rng);
        tell_all(&stage);
    }
    stage.quota.limit.units = LIMIT;
    weir_merge_edit(&stage.merge, stage.root_quota, &stage.quota, stage.now);
    weir_merge_connect(&stage.merge, &stage.limiter[LIAR], false);
    stage.now += MAX_DEBT;
    if (fill(&stage) > HIGH)
        fail_msg("the bucket holds %lld; repeat with WEIR_SEED=%llu",
                 (long long)fill(&stage), (unsigned long long)seed);
    reap(&stage);
}

static void test_any_reports(void **state)
{
    (void)state;
    uint64_t first = from_environment("WEIR_SEED", 1);
    for (uint64_t i = 0; i < histories(10, 200); i++)
        play(first + i);
}

/* ---- Audits ---- */

static void test_audits_find_what_disagrees(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    struct weir_count paced = { .passed = 1, .pace = 1000 };
    count(&stage, 1, paced, 0);
    struct weir_root_quota *q = stage.root_quota;
    struct weir_limiter_cell *cell = q->cells->next;
    struct weir_merge_limiter *limiter = &stage.limiter[1];
    const struct planted planted[] = {
        PLANTED(stage.merge.root_quotas_live),
        PLANTED(stage.merge.queue[WEIR_MERGE_MOVED].first),
        PLANTED(stage.merge.queue[WEIR_MERGE_MOVED].last),
        PLANTED(stage.merge.queue[WEIR_MERGE_CARRYING].first),
        PLANTED(q->name[0]),
        PLANTED(q->hash),
        PLANTED(q->queued[WEIR_MERGE_MOVED]),
        PLANTED(q->queued[WEIR_MERGE_CARRYING]),
        PLANTED(q->cell_count),
        PLANTED(q->connected),
        PLANTED(q->pace),
        PLANTED(q->pace_from),
        PLANTED(q->in_flight),
        PLANTED(q->carried_pace),
        PLANTED(q->carried_from),
        PLANTED(q->carried_in_flight),
        PLANTED(cell->root_quota),
        PLANTED(cell->slot),
        PLANTED(cell->pace),
        PLANTED(cell->paced_at),
        PLANTED(cell->carried),
        PLANTED(cell->inflight),
        PLANTED(cell->prev),
        PLANTED(limiter->cells),
        PLANTED(limiter->due),
        PLANTED(limiter->connected),
        PLANTED(limiter->pages[0]->due),
    };
    assert_audit_finds(audit_stage, &stage, planted, WEIR_COUNT_OF(planted));
    reap(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_lie_drains_in_max_debt),
        cmocka_unit_test(test_a_repeated_lie_is_no_longer_one),
        cmocka_unit_test(test_others_are_counted_beside_it),
        cmocka_unit_test(test_late_lies_fill_it_to_high),
        cmocka_unit_test(test_a_backlog_is_not_cut),
        cmocka_unit_test(test_charges_and_refunds_count_whole),
        cmocka_unit_test(test_presumed_units_are_no_debt),
        cmocka_unit_test(test_a_large_burst_is_no_debt),
        cmocka_unit_test(test_an_edit_bounds_what_is_there),
        cmocka_unit_test(test_an_edit_cuts_what_is_used),
        cmocka_unit_test(test_an_edit_makes_no_debt_of_presumed_units),
        cmocka_unit_test(test_a_fill_taken_over_is_bounded),
        cmocka_unit_test(test_a_lie_in_flight_goes_with_the_limiter),
        cmocka_unit_test(test_any_reports),
        cmocka_unit_test(test_audits_find_what_disagrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
