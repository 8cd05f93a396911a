/* SPDX-License-Identifier: MIT
 * test_table_lease.c - slots that hold their granted rate: any real number, at
 * once, and from counted to leased and back without a jump. */

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/quota/quota_bucket.h"
#include "patience.h"
#include "table_maker.h"

#define MINUTE (60 * WEIR_SECOND)

struct stage {
    struct weir_table *table;
    struct weir_quota quota;
    struct weir_ref ref;
    weir_instant now;
};

/* A quota of 'limit' units a second with bursts of 1 and 1.5 s, unless the test
 * sets others. */
static void begin(struct stage *stage, const char *name, uint64_t limit,
                  enum weir_sharing sharing)
{
    stage->table = made_table(64, 2, 7);
    weir_quota_init(&stage->quota);
    stage->quota.name = weir_text_of(name);
    stage->quota.limit = (struct weir_limit){ limit, WEIR_SECOND, false };
    stage->quota.sharing = sharing;
    stage->quota.created = stage->quota.epoch = 1;
    stage->now = MADE_AT;
    stage->ref = made_put(stage->table, &stage->quota, stage->now);
}

static void end(struct stage *stage)
{
    made_audit(stage->table);
    free(stage->table);
}

static void share(struct stage *stage, enum weir_sharing sharing)
{
    stage->quota.sharing = sharing;
    stage->quota.epoch++;
    made_put(stage->table, &stage->quota, stage->now);
}

static enum weir_leasing leasing(const struct stage *stage)
{
    return weir_table_leasing(stage->table, stage->ref.slot);
}

static void grant(struct stage *stage, double granted)
{
    weir_table_set_lease(stage->table, stage->ref.slot, granted, 0, stage->now);
}

static bool take(struct stage *stage, uint64_t weight, struct weir_reply *reply)
{
    return !(weir_table_take(stage->table, 1, stage->ref, weight, reply,
                             stage->now) &
             WEIR_OUTCOME_LIMITED);
}

/* Units that pass now, in takes of 'weight'. */
static uint64_t drain(struct stage *stage, uint64_t weight)
{
    uint64_t passed = 0;
    while (take(stage, weight, NULL))
        passed += weight;
    return passed;
}

static struct weir_slot_view view_of(struct stage *stage)
{
    struct weir_slot_view view;
    weir_table_view(stage->table, stage->ref.slot, &view, stage->now);
    return view;
}

static double units(const struct weir_slot_view *view, int64_t scaled)
{
    return (double)scaled / (double)((uint64_t)1 << view->bucket.leak.frac);
}

/* Offered without end for ten virtual minutes, or for 2,000 units if that is
 * longer. */
static double mean_of(double rate)
{
    struct stage stage;
    begin(&stage, "a", 10000000000, WEIR_LEASED);
    grant(&stage, rate);
    double seconds = rate * 600 > 2000 ? 600 : 2000 / rate;
    unsigned steps = 6000;
    weir_duration step = (weir_duration)(seconds * 1e9 / steps);
    uint64_t weight = rate > 1000 ? (uint64_t)(rate / 1000) : 1;
    drain(&stage, weight);
    uint64_t passed = 0;
    for (unsigned i = 0; i < steps; i++) {
        stage.now += step;
        passed += drain(&stage, weight);
    }
    end(&stage);
    return (double)passed / ((double)step * steps / 1e9);
}

/* For any granted real number between 0.001 and 10^9 units a second, the mean
 * of the units that pass is that, within 1 %. */
static void it_keeps_to_any_real_number(void **state)
{
    (void)state;
    static const double rates[] = {
        0.001, 0.0314159,  1.0 / 3,   0.999, 1,     2.5,         17.0 / 7,
        99.99, 1000.0 / 7, 12345.678, 1e6,   3.3e8, 123456789.1, 1e9,
    };
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        double mean = mean_of(rates[i]);
        double off = mean / rates[i] - 1;
        printf("granted %.10g/s passed %.10g/s, off by %+.4f %%\n", rates[i],
               mean, off * 100);
        assert_compare(fabs(off), <, 0.01);
    }
}

/* The leak itself is far closer, and never less than granted. */
static void the_leak_is_what_was_granted(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("leak");
    double worst = 0;
    for (int i = 0; i < 100000; i++) {
        double rate = pow(10, -3 + 14 * ((double)weir_rng_next(&rng) / 0x1p64));
        struct weir_bucket bucket;
        weir_bucket_of_rate(&bucket, rate, 1, 2);
        if (rate > (double)WEIR_LIMIT_MAX)
            continue;
        double scaled =
            (double)bucket.leak.whole + (double)bucket.leak.part / 0x1p64;
        double is = scaled * 1e9 / (double)((uint64_t)1 << bucket.leak.frac);
        double off = is / rate - 1;
        assert_compare(off, >, -1e-15);
        worst = fmax(worst, off);
    }
    printf("leaks of 10^-3 .. 10^11 units a second are off by %.1e at most\n",
           worst);
    assert_compare(worst, <, 1e-9);
}

/* Numbers that no lease pool would send. */
static void numbers_at_the_edge_are_borne(void **state)
{
    (void)state;
    static const double odd[] = { 5e-324, 1e-300, 1e-19,   1e11,
                                  1.1e11, 1e18,   1.7e308, INFINITY };
    struct stage stage;
    begin(&stage, "a", 1000, WEIR_LEASED);
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        grant(&stage, odd[i]);
        bool passes = take(&stage, 1, NULL);
        assert_true(passes || odd[i] < 1);
        stage.now += MINUTE;
    }
    grant(&stage, 0);
    assert_false(take(&stage, 1, NULL));
    end(&stage);
}

/* Before a first grant nothing passes, and the reply says when to come back. */
static void nothing_passes_before_a_grant(void **state)
{
    (void)state;
    struct stage stage;
    struct weir_reply reply;
    begin(&stage, "a", 100, WEIR_LEASED);
    assert_int_equal(leasing(&stage), WEIR_LEASING_CLOSED);
    assert_false(take(&stage, 1, &reply));
    assert_true(reply.leased && reply.granted == 0 && !reply.never);
    assert_in_range(reply.retry_after, 1, WEIR_SECOND);
    grant(&stage, 10);
    assert_int_equal(leasing(&stage), WEIR_LEASING_GRANTED);
    assert_true(take(&stage, 1, &reply));
    assert_true(reply.leased && reply.granted == 10);
    weir_table_end_lease(stage.table, stage.ref.slot, stage.now);
    assert_int_equal(leasing(&stage), WEIR_LEASING_CLOSED);
    assert_false(take(&stage, 1, &reply));
    end(&stage);
}

/* The bursts are the quota's, scaled by the granted part of its limit, whether
 * they were set as time or as units. One unit always fits. */
static void bursts_are_that_part_of_the_quotas(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, "a", 1000, WEIR_LEASED);
    grant(&stage, 250);
    struct weir_slot_view view = view_of(&stage);
    assert_float_equal(units(&view, view.bucket.low), 250, 0.01);
    assert_float_equal(units(&view, view.bucket.high), 375, 0.01);
    stage.quota.low_burst = (struct weir_burst){ 40, false, false };
    stage.quota.high_burst = (struct weir_burst){ 80, false, false };
    share(&stage, WEIR_LEASED);
    view = view_of(&stage);
    assert_float_equal(units(&view, view.bucket.low), 10, 0.01);
    assert_float_equal(units(&view, view.bucket.high), 20, 0.01);
    grant(&stage, 0.5);
    view = view_of(&stage);
    assert_float_equal(units(&view, view.bucket.high), 1, 0.01);
    end(&stage);
}

/* A grant that is lowered or raised leaves the bucket's fill. */
static void a_grant_keeps_the_fill(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, "a", 1000, WEIR_LEASED);
    grant(&stage, 100);
    for (int i = 0; i < 60; i++)
        assert_true(take(&stage, 1, NULL));
    grant(&stage, 33.25);
    struct weir_slot_view view = view_of(&stage);
    assert_float_equal(units(&view, view.fill), 60, 0.01);
    assert_false(take(&stage, 1, NULL)); /* 49.9 are its burst now */
    grant(&stage, 1000);
    view = view_of(&stage);
    assert_float_equal(units(&view, view.fill), 60, 0.01);
    end(&stage);
}

/* An edit of the limit, while it is leased, changes the scaled bursts and not
 * the grant. */
static void an_edit_leaves_the_grant(void **state)
{
    (void)state;
    struct stage stage;
    struct weir_reply reply;
    begin(&stage, "a", 1000, WEIR_LEASED);
    grant(&stage, 100);
    stage.quota.limit.units = 500;
    share(&stage, WEIR_LEASED);
    assert_int_equal(leasing(&stage), WEIR_LEASING_GRANTED);
    assert_true(take(&stage, 1, &reply));
    assert_true(reply.granted == 100);
    end(&stage);
}

/* Edits of the limit cut nothing while it is leased: the bursts of the grant
 * are as long as before. Grants between two edits keep the fill in units. */
static void grants_between_edits_keep_the_fill(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, "a", 1000, WEIR_LEASED);
    grant(&stage, 100);
    for (int i = 0; i < 60; i++)
        assert_true(take(&stage, 1, NULL));
    for (uint64_t limit = 100; limit <= 1000; limit += 900) {
        stage.quota.limit.units = limit;
        share(&stage, WEIR_LEASED);
        grant(&stage, 10);
        struct weir_slot_view view = view_of(&stage);
        assert_float_equal(units(&view, view.fill), 60, 0.01);
        grant(&stage, 100);
    }
    end(&stage);
}

/* A process that has no lease yet passes nothing. That is no limit of 0, which
 * would cut what is used. */
static void a_lease_to_come_keeps_the_fill(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, "a", 1000, WEIR_LOCAL);
    for (int i = 0; i < 600; i++)
        assert_true(take(&stage, 1, NULL));
    share(&stage, WEIR_LEASED);
    assert_int_equal(leasing(&stage), WEIR_LEASING_CLOSED);
    grant(&stage, 1000);
    struct weir_slot_view view = view_of(&stage);
    assert_float_equal(units(&view, view.fill), 600, 0.01);
    end(&stage);
}

/* From counted to leased it goes on with the whole limit and fill until its
 * first grant; then it has its own part of the fill. Back again it keeps its
 * grant until a root has sent the fleet's fill. */
static void the_way_there_and_back(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, "a", 1000, WEIR_COUNTED);
    for (int i = 0; i < 400; i++)
        assert_true(take(&stage, 1, NULL));
    share(&stage, WEIR_LEASED);
    assert_int_equal(leasing(&stage), WEIR_LEASING_KEPT);
    struct weir_slot_view view = view_of(&stage);
    assert_float_equal(units(&view, view.fill), 400, 0.01);
    assert_float_equal(units(&view, view.bucket.high), 1500, 0.01);
    grant(&stage, 250);
    view = view_of(&stage);
    assert_float_equal(units(&view, view.fill), 100, 0.01);
    assert_float_equal(units(&view, view.bucket.high), 375, 0.01);
    share(&stage, WEIR_COUNTED);
    assert_int_equal(leasing(&stage), WEIR_LEASING_PARTING);
    view = view_of(&stage);
    assert_float_equal(units(&view, view.bucket.high), 375, 0.01);
    weir_table_end_lease(stage.table, stage.ref.slot, stage.now);
    assert_int_equal(leasing(&stage), WEIR_LEASING_NONE);
    view = view_of(&stage);
    assert_float_equal(units(&view, view.fill), 400, 0.01);
    assert_float_equal(units(&view, view.bucket.high), 1500, 0.01);
    end(&stage);
}

/* Instances of a leased template are leased, each by itself; when the template
 * is counted again so are they; a new instance begins without a grant. */
static void instances_are_leased_each(void **state)
{
    (void)state;
    struct stage stage;
    struct weir_ref one, other;
    begin(&stage, "user/*", 100, WEIR_LEASED);
    assert_int_equal(weir_table_resolve(stage.table, WEIR_TEXT("user/1"), false,
                                        &one, stage.now),
                     WEIR_RESOLVED);
    assert_int_equal(weir_table_resolve(stage.table, WEIR_TEXT("user/2"), false,
                                        &other, stage.now),
                     WEIR_RESOLVED);
    assert_int_equal(weir_table_leasing(stage.table, stage.ref.slot),
                     WEIR_LEASING_NONE);
    weir_table_set_lease(stage.table, one.slot, 10, 0, stage.now);
    assert_int_equal(weir_table_leasing(stage.table, one.slot),
                     WEIR_LEASING_GRANTED);
    assert_int_equal(weir_table_leasing(stage.table, other.slot),
                     WEIR_LEASING_CLOSED);
    share(&stage, WEIR_COUNTED);
    assert_int_equal(weir_table_leasing(stage.table, one.slot),
                     WEIR_LEASING_PARTING);
    assert_int_equal(weir_table_leasing(stage.table, other.slot),
                     WEIR_LEASING_NONE);
    end(&stage);
}

/* The shadow set sends no requests. */
static void the_shadow_set_goes_by_itself(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, "shadow:a", 100, WEIR_LEASED);
    assert_int_equal(leasing(&stage), WEIR_LEASING_NONE);
    assert_true(take(&stage, 1, NULL));
    end(&stage);
}

/* A caller's announced wants are kept for the slot, with any sharing, and for
 * this life of it. */
static void wants_are_kept(void **state)
{
    (void)state;
    struct stage stage;
    double wants = 0;
    begin(&stage, "a", 100, WEIR_COUNTED);
    assert_false(weir_table_wanted(stage.table, stage.ref.slot, &wants));
    assert_int_equal(weir_table_want(stage.table, stage.ref, 12.5),
                     WEIR_OUTCOME_KICK);
    assert_int_equal(weir_table_want(stage.table, stage.ref, 17.5), 0);
    assert_true(weir_table_wanted(stage.table, stage.ref.slot, &wants));
    assert_true(wants == 17.5);
    weir_table_drop(stage.table, WEIR_TEXT("a"), stage.now);
    assert_int_equal(weir_table_want(stage.table, stage.ref, 1),
                     WEIR_OUTCOME_STALE_REF);
    end(&stage);
}

static struct weir_ref pin(struct stage *stage)
{
    struct weir_ref ref;
    assert_int_equal(
        weir_table_pin(stage->table, stage->quota.name, &ref, stage->now),
        WEIR_RESOLVED);
    return ref;
}

/* The wants go with the last pin; for a leased slot this is noted, until the
 * sync has asked. */
static void the_last_pin_is_noted(void **state)
{
    (void)state;
    struct stage stage;
    double wants;
    begin(&stage, "a", 100, WEIR_COUNTED);
    weir_table_unpin(stage.table, pin(&stage));
    assert_false(weir_table_was_unpinned(stage.table, stage.ref.slot));
    share(&stage, WEIR_LEASED);
    struct weir_ref first = pin(&stage);
    struct weir_ref second = pin(&stage);
    assert_int_equal(weir_table_want(stage.table, first, 7), WEIR_OUTCOME_KICK);
    weir_table_unpin(stage.table, first);
    assert_false(weir_table_was_unpinned(stage.table, stage.ref.slot));
    assert_true(weir_table_wanted(stage.table, stage.ref.slot, &wants));
    weir_table_unpin(stage.table, second);
    assert_false(weir_table_wanted(stage.table, stage.ref.slot, &wants));
    first = pin(&stage);
    assert_true(weir_table_was_unpinned(stage.table, stage.ref.slot));
    assert_false(weir_table_was_unpinned(stage.table, stage.ref.slot));
    weir_table_unpin(stage.table, first);
    end(&stage);
}

/* ---- Threads ---- */

struct taker {
    struct stage *stage;
    uint32_t *stop;
    uint32_t stripe;
    uint64_t passed;
};

static void *take_on(void *context)
{
    struct taker *taker = context;
    struct weir_table *table = taker->stage->table;
    struct weir_reply reply;
    weir_instant now = MADE_AT;
    for (uint64_t i = 0; !weir_load_acquire(taker->stop); i++) {
        unsigned outcome =
            weir_table_take(table, taker->stripe, taker->stage->ref, 1,
                            i % 16 == 0 ? &reply : NULL, now += 100);
        taker->passed += !(outcome & WEIR_OUTCOME_LIMITED);
        if (i % 1024 == 0)
            weir_table_want(table, taker->stage->ref, (double)i);
    }
    return NULL;
}

/* Grants, ends of leases and edits come while two threads take: each take is
 * counted once, and the fill is always one of the values put in. */
static void takes_go_on_beside_grants(void **state)
{
    (void)state;
    struct stage stage;
    struct weir_rng rng = made_seed("threads");
    uint32_t stop = 0;
    pthread_t threads[2];
    begin(&stage, "a", 1000000, WEIR_LEASED);
    struct taker takers[2] = { { &stage, &stop, 0, 0 },
                               { &stage, &stop, 1, 0 } };
    assert_int_equal(weir_table_claim_stripe(stage.table), 1);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, take_on, &takers[i]);
    for (int i = 0; i < 20000; i++) {
        double wants;
        grant(&stage, (double)weir_rng_below(&rng, 1000000));
        weir_table_wanted(stage.table, stage.ref.slot, &wants);
        if (i % 64 == 0)
            share(&stage, i % 128 ? WEIR_LEASED : WEIR_COUNTED);
        if (i % 32 == 0)
            weir_table_end_lease(stage.table, stage.ref.slot, stage.now);
        stage.now += 100;
    }
    weir_store_release(&stop, 1);
    for (int i = 0; i < 2; i++)
        PATIENTLY(pthread_join(threads[i], NULL));
    struct weir_slot_view view = view_of(&stage);
    assert_int_equal(view.count, takers[0].passed + takers[1].passed);
    print_message("20,000 grants beside %llu takes that passed\n",
                  (unsigned long long)view.count);
    end(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_keeps_to_any_real_number),
        cmocka_unit_test(the_leak_is_what_was_granted),
        cmocka_unit_test(numbers_at_the_edge_are_borne),
        cmocka_unit_test(nothing_passes_before_a_grant),
        cmocka_unit_test(bursts_are_that_part_of_the_quotas),
        cmocka_unit_test(a_grant_keeps_the_fill),
        cmocka_unit_test(an_edit_leaves_the_grant),
        cmocka_unit_test(grants_between_edits_keep_the_fill),
        cmocka_unit_test(a_lease_to_come_keeps_the_fill),
        cmocka_unit_test(the_way_there_and_back),
        cmocka_unit_test(instances_are_leased_each),
        cmocka_unit_test(the_shadow_set_goes_by_itself),
        cmocka_unit_test(wants_are_kept),
        cmocka_unit_test(the_last_pin_is_noted),
        cmocka_unit_test(takes_go_on_beside_grants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
