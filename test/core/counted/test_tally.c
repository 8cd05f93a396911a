/* SPDX-License-Identifier: MIT
 * test_tally.c - a limiter's tally alone, beside the table that it reports.
 * Whole fleets of them are in test_sync.c and test_fleet.c. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/counted/tally.h"
#include "planted.h"
#include "table_maker.h"

/* More than a report may announce, and at most as many as it may count. */
#define NAMES 6000
#define SLOTS (NAMES + 2)

struct stage {
    struct weir_table *table;
    struct weir_tally tally;
    void *block;
    weir_instant now;
};

static void stage_init(struct stage *stage)
{
    *stage = (struct stage){ .now = MADE_AT };
    stage->table = made_table(SLOTS, 2, 1);
    struct weir_quota quota = made_quota_of("f/*", NULL, 1000, 1000);
    made_put(stage->table, &quota, stage->now);
    weir_table_claim_stripe(stage->table);
    size_t size = (weir_tally_size(SLOTS, 1, false) + 63) & ~(size_t)63;
    stage->block = aligned_alloc(64, size);
    assert_non_null(stage->block);
    memset(stage->block, 0, size);
    weir_tally_init(&stage->tally, stage->block, stage->table, SLOTS, 1, false,
                    stage->now);
    weir_tally_meet(&stage->tally, 0);
    weir_tally_begin(&stage->tally, 0, 7, false, stage->now, stage->now);
}

static void stage_fini(struct stage *stage)
{
    free(stage->block);
    free(stage->table);
}

/* One unit for each of the names from 'from' up to 'to'. */
static void take(struct stage *stage, char prefix, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        char name[32];
        int len = snprintf(name, sizeof(name), "f/%c%u", prefix, i);
        struct weir_ref ref;
        assert_int_equal(
            weir_table_resolve(stage->table,
                               (struct weir_text){ name, (size_t)len }, false,
                               &ref, stage->now),
            WEIR_RESOLVED);
        assert_int_equal(
            weir_table_take(stage->table, 0, ref, 1, NULL, stage->now) &
                WEIR_OUTCOME_LIMITED,
            0);
    }
}

static struct weir_report report(struct stage *stage)
{
    struct weir_report out;
    stage->now += WEIR_SECOND;
    weir_tally_report(&stage->tally, 0, &out, stage->now);
    return out;
}

static void answer(struct stage *stage, uint64_t number)
{
    struct weir_fills fills = {
        .answer = true, .number = number, .stamp = number, .limiters = 1
    };
    assert_int_equal(weir_tally_fills(&stage->tally, 0, &fills, stage->now),
                     WEIR_OK);
}

/* Reports and answers, until that many slots have been announced. */
static void announce(struct stage *stage, size_t count)
{
    weir_tally_collect(&stage->tally, false, stage->now);
    for (size_t announced = 0; announced < count;) {
        struct weir_report told = report(stage);
        assert_in_range(told.announce_count, 1, WEIR_REPORT_ANNOUNCES_MAX);
        announced += told.announce_count;
        answer(stage, told.number);
    }
}

/* Idle instances are evicted, and other names get their slots; returns how
 * many. */
static uint32_t change_hands(struct stage *stage)
{
    uint32_t came = 0;
    while (came < NAMES / 2) {
        stage->now += WEIR_MILLISECOND;
        uint32_t freed = weir_table_sweep(stage->table, SLOTS, stage->now);
        assert_compare(freed, >, 0);
        take(stage, 'b', came, came + freed);
        came += freed;
    }
    return came;
}

/* A report also contains slots that a root knows and that haven't moved. Such a
 * slot may be given to another name while the report is unanswered. A repeated
 * report omits it: else it would announce more names than there is room for,
 * and names unknown to the root if it has taken the first report. */
static void test_slots_that_changed_hands(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    take(&stage, 'a', 0, NAMES);
    announce(&stage, NAMES);

    weir_tally_collect(&stage.tally, true, stage.now);
    struct weir_report told = report(&stage);
    assert_int_equal(told.count, NAMES);
    assert_int_equal(told.announce_count, 0);
    uint32_t came = change_hands(&stage);
    weir_tally_collect(&stage.tally, false, stage.now);

    struct weir_report again = report(&stage);
    assert_int_equal(again.number, told.number);
    assert_int_equal(again.announce_count, 0);
    assert_int_equal(again.count, NAMES - came);
    answer(&stage, again.number);
    announce(&stage, came);
    stage_fini(&stage);
}

/* The root rejects one of two slots, while both are in use. */
static void answer_but(struct stage *stage, uint64_t number, uint32_t slot)
{
    struct weir_fills fills = { .answer = true,
                                .number = number,
                                .stamp = number,
                                .limiters = 1,
                                .unknown = &slot,
                                .unknown_count = 1 };
    assert_int_equal(weir_tally_fills(&stage->tally, 0, &fills, stage->now),
                     WEIR_OK);
}

static struct weir_report one_each(struct stage *stage)
{
    take(stage, 'a', 0, 2);
    weir_tally_collect(&stage->tally, false, stage->now);
    struct weir_report told = report(stage);
    assert_int_equal(told.count, 2);
    return told;
}

/* A slot that a root has no quota for becomes late, and nothing else of its
 * link does. */
static void test_late_is_what_is_unknown(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    struct weir_report told = one_each(&stage);
    assert_int_equal(told.announce_count, 2);
    uint32_t unknown = told.announces[1].slot;
    for (int64_t passed = 2; passed < 20; passed++) {
        answer_but(&stage, told.number, unknown);
        told = one_each(&stage);
        assert_int_equal(told.late_from, 0);
        assert_int_equal(told.counts[0].passed, 1);
        assert_int_equal(told.counts[0].late, 0);
        assert_int_equal(told.counts[1].slot, unknown);
        assert_int_equal(told.counts[1].passed, passed);
        /* Drained long ago, but for those of the first two seconds. */
        if (passed > 3)
            assert_int_equal(told.counts[1].late, passed);
    }
    answer(&stage, told.number);
    told = one_each(&stage);
    assert_int_equal(told.counts[1].passed, 1);
    assert_int_equal(told.counts[1].late, 0);
    stage_fini(&stage);
}

static int64_t units_in(struct stage *stage, uint32_t slot)
{
    struct weir_slot_view view;
    weir_table_view(stage->table, slot, &view, stage->now);
    return view.fill >> view.bucket.leak.frac;
}

/* The first answer of the root, with one fill; there is another limiter. */
static void answer_first(struct stage *stage, const struct weir_report *told,
                         const struct weir_fill *fill)
{
    struct weir_fills fills = { .answer = true,
                                .number = told->number,
                                .stamp = 1,
                                .limiters = 2,
                                .fills = fill,
                                .count = 1 };
    assert_int_equal(weir_tally_fills(&stage->tally, 0, &fills, stage->now),
                     WEIR_OK);
}

/* A root that falls silent for a while has last sent an empty bucket, and the
 * pace of other limiters. Their presumed counts are added to the bucket at its
 * own fill: at the fill that the root sent, it would be emptier. */
static void test_others_are_added_to_what_is_there(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    struct weir_report told = one_each(&stage);
    struct weir_fill fill = { .slot = told.counts[0].slot,
                              .slack = UINT64_MAX,
                              .pace = 100 * WEIR_PACE_SPAN / WEIR_SECOND };
    answer_first(&stage, &told, &fill);
    stage.now += 3 * WEIR_SECOND / 2;
    for (int i = 0; i < 500; i++)
        take(&stage, 'a', 0, 1);
    assert_int_equal(units_in(&stage, fill.slot), 500);
    stage.now += 50 * WEIR_MILLISECOND;
    weir_tally_collect(&stage.tally, false, stage.now);
    weir_tally_look(&stage.tally, stage.now);
    assert_int_equal(units_in(&stage, fill.slot), 450);
    stage_fini(&stage);
}

/* An edit cuts the bucket. The fill that a root sent before, and the pace of
 * others, don't bring back the units that were cut. */
static void test_an_edit_cuts_received_fills(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    struct weir_report told = one_each(&stage);
    struct weir_fill fill = { .slot = told.counts[0].slot,
                              .fill = 900 * WEIR_FILL_ONE,
                              .slack = UINT64_MAX,
                              .pace = 1000 * WEIR_PACE_SPAN / WEIR_SECOND };
    answer_first(&stage, &told, &fill);
    stage.now += WEIR_SECOND / 2;
    weir_tally_look(&stage.tally, stage.now);
    assert_in_range(units_in(&stage, fill.slot), 899, 900);
    struct weir_quota quota = made_quota_of("f/*", NULL, 100, 100);
    made_put(stage.table, &quota, stage.now);
    assert_int_equal(units_in(&stage, fill.slot), 100);
    weir_tally_look(&stage.tally, stage.now);
    assert_int_equal(units_in(&stage, fill.slot), 100);
    /* From there on the others are presumed as before. */
    stage.now += WEIR_SECOND / 10;
    weir_tally_look(&stage.tally, stage.now);
    assert_in_range(units_in(&stage, fill.slot), 189, 190);
    stage_fini(&stage);
}

/* One fill received: that many 1/1024 units of slack, and no counts of
 * others. */
static void answer_with(struct stage *stage, const struct weir_report *told,
                        uint64_t slack)
{
    struct weir_fill fill = { .slot = told->counts[0].slot, .slack = slack };
    struct weir_fills fills = { .answer = true,
                                .number = told->number,
                                .stamp = told->number,
                                .limiters = 1,
                                .fills = &fill,
                                .count = 1 };
    assert_int_equal(weir_tally_fills(&stage->tally, 0, &fills, stage->now),
                     WEIR_OK);
}

/* The units that pass after a fill of 250 of 1000 units with a slack of 100, if
 * answers come 'trip' after their reports. The limit: 1000/s. */
static uint64_t passes_until_it_stops(weir_duration trip)
{
    struct stage stage;
    stage_init(&stage);
    weir_tally_set_slack(&stage.tally, true, stage.now);
    weir_tally_collect(&stage.tally, true, stage.now);
    struct weir_fill fill = { .fill = 250 * WEIR_FILL_ONE,
                              .slack = 100 * WEIR_FILL_ONE };
    for (int second = 0; second < 4; second++) {
        take(&stage, 'a', 0, 1);
        weir_tally_collect(&stage.tally, true, stage.now);
        struct weir_report told = report(&stage);
        assert_int_equal(told.count, 1);
        stage.now += trip;
        fill.slot = told.counts[0].slot;
        struct weir_fills fills = { .answer = true,
                                    .number = told.number,
                                    .stamp = told.number,
                                    .age = stage.now - MADE_AT,
                                    .limiters = 1,
                                    .fills = &fill,
                                    .count = 1 };
        assert_int_equal(weir_tally_fills(&stage.tally, 0, &fills, stage.now),
                         WEIR_OK);
    }
    struct weir_ref ref = { 0 };
    assert_true(weir_table_find(stage.table, WEIR_TEXT("f/a0"), &ref));
    uint64_t passed = 0;
    while (!(weir_table_take(stage.table, 0, ref, 1, NULL, stage.now) &
             WEIR_OUTCOME_LIMITED))
        passed++;
    stage_fini(&stage);
    return passed;
}

/* Beyond its slack a limiter passes a part of a second one, as the bucket is
 * empty: below 'low' less the leak of a round trip, for a fill is as old. */
static void test_an_old_fill_is_no_empty_bucket(void **state)
{
    (void)state;
    assert_int_equal(passes_until_it_stops(0), 100 + 75);
    assert_int_equal(passes_until_it_stops(WEIR_SECOND / 2), 100 + 50);
    /* By its share: twice the slack, of 750 units of room. */
    assert_int_equal(passes_until_it_stops(WEIR_SECOND), 100 + 27);
}

/* A quota is removed under load, with a count that no report contains yet, and
 * with a pace that roots presume. No report is due for it any more, and no
 * check: everything of that life was settled when it ended. */
static void test_what_has_gone_has_nothing_to_report(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    weir_tally_set_slack(&stage.tally, true, stage.now);
    weir_tally_collect(&stage.tally, true, stage.now);
    struct weir_report told;
    for (int second = 0; second < 9; second++) {
        for (int i = 0; i < 20; i++)
            take(&stage, 'a', 0, 1);
        weir_tally_collect(&stage.tally, true, stage.now);
        told = report(&stage);
        assert_int_equal(told.count, 1);
        answer_with(&stage, &told, 12 * WEIR_FILL_ONE);
    }
    assert_compare(told.counts[0].pace, >, 0);
    assert_true(weir_tally_paced(&stage.tally));
    take(&stage, 'a', 0, 1);
    weir_table_drop(stage.table, WEIR_TEXT("f/*"), stage.now);
    stage.now += WEIR_SECOND;
    weir_tally_collect(&stage.tally, true, stage.now);
    assert_int_equal(weir_tally_look(&stage.tally, stage.now), 0);
    assert_false(weir_tally_paced(&stage.tally));
    assert_false(weir_tally_pending(&stage.tally, 0));
    stage_fini(&stage);
}

/* ---- Audits ---- */

static void audit_stage(void *context)
{
    struct stage *stage = context;
    weir_tally_audit(&stage->tally, UINT32_MAX);
}

static void test_audits_find_what_disagrees(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    struct weir_report told = one_each(&stage);
    answer_with(&stage, &told, WEIR_FILL_ONE);
    struct weir_tally *tally = &stage.tally;
    struct weir_tally_link *link = &tally->link[0];
    struct weir_tally_cell *cell = &link->cells[told.counts[0].slot];
    cell->pace = 1;
    const struct planted planted[] = {
        PLANTED(tally->limiters),
        PLANTED(tally->carrier),
        PLANTED(link->up),
        PLANTED(link->outstanding_count),
        PLANTED(cell->begun),
        PLANTED(cell->carry),
        PLANTED(cell->handed),
        PLANTED(cell->inflight),
        PLANTED(link->cells[told.counts[1].slot].has_fill),
    };
    assert_audit_finds(audit_stage, &stage, planted, WEIR_COUNT_OF(planted));
    stage_fini(&stage);
}

/* A root's silence ends with its answer, not at the limiter's next look at its
 * links: the fills beside that answer are used as those of any root. */
static void test_an_answer_ends_the_silence(void **state)
{
    (void)state;
    struct stage stage;
    stage_init(&stage);
    take(&stage, 'a', 0, 1);
    announce(&stage, 1);
    const struct weir_tally_link *link = &stage.tally.link[0];
    weir_tally_listen(&stage.tally, WEIR_SECOND / 2, stage.now);
    assert_true(link->answering);

    take(&stage, 'a', 0, 1);
    weir_tally_collect(&stage.tally, false, stage.now);
    struct weir_report told = report(&stage);
    stage.now += WEIR_SECOND;
    weir_tally_listen(&stage.tally, WEIR_SECOND / 2, stage.now);
    assert_false(link->answering);
    answer(&stage, told.number);
    assert_true(link->answering);
    stage_fini(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_that_changed_hands),
        cmocka_unit_test(test_late_is_what_is_unknown),
        cmocka_unit_test(test_others_are_added_to_what_is_there),
        cmocka_unit_test(test_an_edit_cuts_received_fills),
        cmocka_unit_test(test_an_answer_ends_the_silence),
        cmocka_unit_test(test_an_old_fill_is_no_empty_bucket),
        cmocka_unit_test(test_what_has_gone_has_nothing_to_report),
        cmocka_unit_test(test_audits_find_what_disagrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
