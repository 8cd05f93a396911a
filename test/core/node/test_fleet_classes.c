/* SPDX-License-Identifier: MIT
 * test_fleet_classes.c - classes that are guaranteed a share of a fleet's
 * limit: real limiters and roots, in simulated time. The limit is fixed, by
 * equal bounds; what is in flight shows how it is divided. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/quota/quota_adaptive.h"
#include "core/table/table_permit.h"
#include "lab/fleet.h"
#include "seed.h"

#define DB WEIR_TEXT("db")
#define MS WEIR_MILLISECOND
#define PROCESSES 12
#define CLASSES 2 /* sync, bulk */
#define MOST 10   /* that a class of a process wants in flight */
#define STEP (5 * MS)
#define LATENCY (100 * MS)

struct world {
    struct weir_fleet *fleet;
    uint32_t wants[PROCESSES][CLASSES]; /* 0 .. MOST, at a time */
    struct weir_permit_record records[PROCESSES][CLASSES][MOST];
    weir_instant begun[PROCESSES][CLASSES][MOST];
    double held[PROCESSES][CLASSES]; /* on average */
};

static void put_quota(struct world *world, const char *classes)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = DB;
    quota.kind = WEIR_CONCURRENCY;
    quota.sharing = WEIR_ADAPTIVE;
    quota.scope = WEIR_SCOPE_FLEET;
    quota.limit.per = 0;
    quota.min = quota.max = 24 * WEIR_DECIMAL_ONE;
    quota.classes = weir_text_of(classes);
    assert_int_equal(weir_fleet_put(world->fleet, &quota, NULL), 0);
}

static void open_world(struct world *world, bool regions, const char *classes)
{
    struct weir_fleet_options options = {
        .seed = from_environment("WEIR_SEED", 1),
        .limiters = PROCESSES,
        .limiters_started = PROCESSES,
        .roots = regions ? 3 : 1,
        .slots = 8,
        .leases = 4,
        .gate_slots = 4,
        .net = { .delay = MS },
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 10 * WEIR_SECOND },
    };
    memset(world, 0, sizeof(*world));
    if (regions) /* roots 1 and 2 are of regions below root 0 */
        options.upstream[1] = options.upstream[2] = 1;
    world->fleet = weir_fleet_new(&options);
    for (uint32_t i = 0; regions && i < PROCESSES; i++)
        for (uint32_t root = 0; root < 3; root++)
            weir_fleet_allow(world->fleet, i, root, root == 1 + i % 2);
    for (uint32_t root = 0; root < options.roots; root++)
        weir_fleet_lead(world->fleet, root, true);
    put_quota(world, classes);
}

/* Three processes want sync, nine bulk, and each more than there is. */
static void want_all(struct world *world)
{
    for (uint32_t i = 0; i < PROCESSES; i++)
        world->wants[i][i < 3 ? 0 : 1] = MOST;
}

static void hold(struct world *world, uint32_t process, uint32_t klass,
                 weir_instant now)
{
    const char *names[] = { "sync", "bulk" };
    for (uint32_t i = 0; i < MOST; i++) {
        struct weir_permit_record *record = &world->records[process][klass][i];
        weir_instant *begun = &world->begun[process][klass][i];
        if (*begun > 0 && weir_since(*begun, now) >= LATENCY) {
            weir_fleet_leave(world->fleet, process, record);
            *begun = 0;
        }
        if (*begun > 0 || i >= world->wants[process][klass])
            continue;
        memset(record, 0, sizeof(*record));
        record->klass = weir_class_number(weir_text_of(names[klass]));
        if (!(weir_fleet_enter(world->fleet, process, DB, 1, record) &
              WEIR_OUTCOME_LIMITED))
            *begun = now;
    }
}

/* Averages of that time, after as much. */
static void run(struct world *world, weir_duration span)
{
    uint64_t steps = 0;
    memset(world->held, 0, sizeof(world->held));
    weir_instant begin = weir_fleet_now(world->fleet);
    for (weir_instant now = begin; now < begin + 2 * span; now += STEP) {
        weir_fleet_run(world->fleet, now);
        steps += now >= begin + span;
        for (uint32_t k = 0; k < PROCESSES * CLASSES; k++) {
            /* Bulk comes first. */
            uint32_t process = k % PROCESSES, klass = 1 - k / PROCESSES;
            hold(world, process, klass, now);
            for (uint32_t i = 0; now >= begin + span && i < MOST; i++)
                world->held[process][klass] +=
                    world->begun[process][klass][i] > 0;
        }
    }
    for (uint32_t i = 0; i < PROCESSES; i++)
        for (uint32_t k = 0; k < CLASSES; k++)
            world->held[i][k] /= (double)steps;
}

static double sum_of(const struct world *world, uint32_t klass)
{
    double sum = 0;
    for (uint32_t i = 0; i < PROCESSES; i++)
        sum += world->held[i][klass];
    return sum;
}

static void print_world(const struct world *world)
{
    for (uint32_t i = 0; i < PROCESSES; i++)
        print_message("%u: sync %.2f, bulk %.2f\n", i, world->held[i][0],
                      world->held[i][1]);
    print_message("all: sync %.2f, bulk %.2f\n", sum_of(world, 0),
                  sum_of(world, 1));
}

/* Three processes of sync beside nine of bulk, which all want more than there
 * is: sync has its half, though it has a quarter of the processes. */
static void check_few(bool regions)
{
    static struct world world;
    open_world(&world, regions, "sync:50%,bulk");
    want_all(&world);
    run(&world, 20 * WEIR_SECOND);
    print_world(&world);
    assert_float_equal(sum_of(&world, 0), 12, 1.2);
    /* A fraction of a permit passes a little less, by many members. */
    assert_float_equal(sum_of(&world, 1), 11, 1.2);
    for (uint32_t i = 0; i < PROCESSES && !regions; i++)
        assert_float_equal(world.held[i][i < 3 ? 0 : 1], i < 3 ? 4 : 1.2,
                           i < 3 ? 0.4 : 0.2);
    weir_fleet_free(world.fleet);
}

static void few_processes_have_their_class_s_share(void **state)
{
    (void)state;
    check_few(false);
}

static void through_regions_too(void **state)
{
    (void)state;
    check_few(true);
}

/* One process has both; its sync is guaranteed as much as that of others. */
static void a_process_of_both_classes(void **state)
{
    (void)state;
    static struct world world;
    open_world(&world, false, "sync:50%,bulk");
    for (uint32_t i = 0; i < PROCESSES; i++)
        world.wants[i][1] = MOST;
    world.wants[0][0] = MOST;
    run(&world, 20 * WEIR_SECOND);
    print_world(&world);
    assert_compare(world.held[0][0], >=, 0.9 * MOST);
    assert_float_equal(sum_of(&world, 0) + sum_of(&world, 1), 24, 2.4);
    weir_fleet_free(world.fleet);
}

/* What sync doesn't want is lent to bulk, and comes back in a second. */
static void an_idle_class_lends_its_share(void **state)
{
    (void)state;
    static struct world world;
    open_world(&world, false, "sync:50%,bulk");
    for (uint32_t i = 3; i < PROCESSES; i++)
        world.wants[i][1] = MOST;
    run(&world, 20 * WEIR_SECOND);
    assert_float_equal(sum_of(&world, 1), 22, 2.4);
    for (uint32_t i = 0; i < 3; i++)
        world.wants[i][0] = MOST;
    run(&world, 5 * WEIR_SECOND);
    print_world(&world);
    assert_float_equal(sum_of(&world, 0), 12, 1.2);
    weir_fleet_free(world.fleet);
}

/* Without a guarantee the classes of a process are one. */
static void classes_that_only_borrow(void **state)
{
    (void)state;
    static struct world world;
    open_world(&world, false, "sync,bulk");
    want_all(&world);
    run(&world, 20 * WEIR_SECOND);
    assert_float_equal(sum_of(&world, 0), 6, 0.6);
    assert_float_equal(sum_of(&world, 1), 18, 1.8);
    weir_fleet_free(world.fleet);
}

/* The limit stays as it is, by its bounds. */
static void shares_are_edited(void **state)
{
    (void)state;
    static struct world world;
    open_world(&world, false, "sync:50%,bulk");
    want_all(&world);
    run(&world, 10 * WEIR_SECOND);
    print_world(&world);
    assert_float_equal(sum_of(&world, 0), 12, 1.2);
    put_quota(&world, "sync:75%,bulk");
    run(&world, 20 * WEIR_SECOND);
    print_world(&world);
    assert_float_equal(sum_of(&world, 0), 18, 1.8);
    weir_fleet_free(world.fleet);
}

/* A process that doesn't use sync has lent its part to others: a burst of it
 * waits for the next grant. */
static void a_guarantee_ends_with_its_grant(void **state)
{
    (void)state;
    static struct world world;
    open_world(&world, false, "sync:90%,bulk");
    world.wants[0][1] = world.wants[1][1] = 1;
    run(&world, 5 * WEIR_SECOND);
    for (uint32_t i = 1; i < 5; i++)
        world.wants[i][0] = MOST;
    run(&world, 10 * WEIR_SECOND);
    print_world(&world);
    assert_compare(sum_of(&world, 0), >=, 19);
    world.wants[0][0] = MOST;
    hold(&world, 0, 0, weir_fleet_now(world.fleet));
    uint32_t entered = 0, all = 0;
    for (uint32_t i = 0; i < MOST; i++)
        entered += world.begun[0][0][i] > 0;
    for (uint32_t p = 0; p < PROCESSES; p++)
        for (uint32_t k = 0; k < CLASSES; k++)
            for (uint32_t i = 0; i < MOST; i++)
                all += world.begun[p][k][i] > 0;
    print_message("at once: %u; in flight: %u of 24\n", entered, all);
    assert_compare(entered, <=, 2);
    weir_fleet_free(world.fleet);
}

/* The topmost root dies, and comes back: processes of regions go on. */
static void regions_that_are_cut_off_go_on(void **state)
{
    (void)state;
    static struct world world;
    open_world(&world, true, "sync,bulk");
    want_all(&world);
    run(&world, 5 * WEIR_SECOND);
    weir_fleet_kill(world.fleet, weir_root_place(0));
    double least = 1e9;
    for (int i = 0; i < 100; i++) {
        if (i == 40) {
            weir_fleet_start(world.fleet, weir_root_place(0));
            weir_fleet_lead(world.fleet, 0, false);
        }
        run(&world, 150 * MS);
        double held = sum_of(&world, 0) + sum_of(&world, 1);
        least = held < least ? held : least;
    }
    double last = sum_of(&world, 0) + sum_of(&world, 1);
    print_message("least: %.2f, at last: %.2f of 24\n", least, last);
    assert_compare(least, >=, 12);
    assert_float_equal(last, 24, 2.4);
    weir_fleet_free(world.fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_that_are_cut_off_go_on),
        cmocka_unit_test(a_guarantee_ends_with_its_grant),
        cmocka_unit_test(shares_are_edited),
        cmocka_unit_test(few_processes_have_their_class_s_share),
        cmocka_unit_test(through_regions_too),
        cmocka_unit_test(a_process_of_both_classes),
        cmocka_unit_test(an_idle_class_lends_its_share),
        cmocka_unit_test(classes_that_only_borrow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
