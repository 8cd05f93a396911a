/* SPDX-License-Identifier: MIT
 * test/core/node/test_root_members.c - the members of a fleet's adaptive limit,
 * as a root shows them: their parts, and those that are left out. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compare.h"
#include "core/concurrency/latency_window.h"
#include "core/node/root_adaptive.h"
#include "core/node/root_lease.h"
#include "io/clock.h"

#define BEGIN (1000 * WEIR_SECOND)
#define STEP (500 * WEIR_MILLISECOND)
#define TARGET (200 * WEIR_MILLISECOND)
#define MEMBERS_MAX 8
#define PEERS 4
#define QUOTA WEIR_TEXT("db")

/* A root that is master, and processes with the names "a", "b", … that show
 * what they measured. */
struct stage {
    struct weir_root *root;
    weir_instant now;
    size_t first, end; /* of the processes that ask */
    weir_duration latency[MEMBERS_MAX];
    double has[MEMBERS_MAX], wants;
};

static struct weir_quota made_fleet_quota(void)
{
    static const char *const fields[][2] = { { "kind", "concurrency" },
                                             { "sharing", "adaptive" },
                                             { "scope", "fleet" },
                                             { "target", "200ms" } };
    struct weir_quota quota;
    struct weir_diag diag = { .text = "" };
    weir_quota_init(&quota);
    quota.name = QUOTA;
    quota.id = quota.epoch = quota.created = 1;
    for (size_t i = 0; i < WEIR_COUNT_OF(fields); i++)
        assert_int_equal(weir_quota_set(&quota, weir_text_of(fields[i][0]),
                                        weir_text_of(fields[i][1]), &diag),
                         0);
    return quota;
}

static int set_up(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);
    struct weir_root_options options = {
        .mem = weir_mem_system,
        .seed = 3,
        .peers_max = PEERS,
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 10 * WEIR_SECOND },
    };
    struct weir_change change = { .quota = made_fleet_quota() };
    stage->now = BEGIN;
    stage->root = weir_root_new(&options, stage->now);
    assert_int_equal(weir_root_apply(stage->root, &change, stage->now), 0);
    weir_root_settle(stage->root, stage->now);
    stage->end = 5;
    stage->wants = 20;
    for (size_t i = 0; i < MEMBERS_MAX; i++)
        stage->latency[i] = 150 * WEIR_MILLISECOND;
    *state = stage;
    return 0;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;
    weir_root_free(stage->root);
    free(stage);
    return 0;
}

static void ask(struct stage *stage, size_t i)
{
    const char name = (char)('a' + i);
    struct weir_client client = { .id = { &name, 1 },
                                  .way = PEERS + (uint32_t)i };
    struct weir_band band = { .wants = stage->wants, .clients = 1 };
    struct weir_lease_pool_ask ask = { .bands = &band,
                                       .band_count = 1,
                                       .has = stage->has[i] };
    struct weir_grant grant;
    assert_int_equal(weir_root_lease_ask(stage->root, &client, QUOTA, &ask,
                                         &grant, stage->now),
                     0);
    stage->has[i] = grant.capacity;
    static struct weir_latency_window window;
    static struct weir_latency_count counts[WEIR_WINDOW_BINS];
    weir_latency_window_init(&window);
    weir_latency_window_add(&window, stage->latency[i],
                            stage->latency[i] > TARGET, 5);
    struct weir_latency_batch batch = {
        .cut = grant.cut,
        .slow = window.slow,
        .peak = 4,
        .count = weir_latency_window_counts(&window, counts),
        .bins = counts,
    };
    weir_root_adaptive_take(stage->root, QUOTA, &grant, &batch, stage->now);
}

static void pass_step(struct stage *stage)
{
    stage->now += STEP;
    for (size_t i = stage->first; i < stage->end; i++)
        ask(stage, i);
    weir_root_tick(stage->root, stage->now);
}

static bool next_news(struct stage *stage, struct weir_fleet_news *out)
{
    return weir_root_adaptive_news(stage->root, out, stage->now);
}

static void pass_until_news(struct stage *stage, struct weir_fleet_news *out)
{
    for (int i = 0; i < 200; i++) {
        pass_step(stage);
        if (next_news(stage, out))
            return;
    }
    fail_msg("no news in 100 s");
}

/* Returns the number of members, and asserts that only that one is left out;
 * '\0': none is. */
static size_t count_members(struct stage *stage, char out_name)
{
    struct weir_fleet_member member;
    struct weir_fleet_limit_view view;
    uint32_t cursor = 0;
    size_t count = 0;
    double granted = 0;
    assert_true(weir_root_adaptive_view(stage->root, QUOTA, &view, stage->now));
    while (weir_root_adaptive_member(stage->root, QUOTA, &cursor, &member,
                                     stage->now)) {
        assert_int_equal(member.name.len, 1);
        assert_int_equal(member.out, member.name.p[0] == out_name);
        assert_null(member.incarnation);
        assert_true(member.has >= member.granted);
        granted += member.granted;
        count++;
    }
    assert_true(granted > 0 && granted <= view.controller.limit + 1e-9);
    assert_int_equal(view.outliers, out_name ? 1 : 0);
    return count;
}

static double limit_of(const struct stage *stage)
{
    struct weir_fleet_limit_view view;
    assert_true(weir_root_adaptive_view(stage->root, QUOTA, &view, stage->now));
    return view.controller.limit;
}

/* Processes that were never answered let one request in at a time, and want
 * little: the limit begins where a controller does. */
static void test_new_processes_begin_with_a_controllers_limit(void **state)
{
    struct stage *stage = *state;
    weir_root_lease_begin(stage->root, 1, WEIR_NEVER, stage->now);
    stage->wants = 1;
    for (size_t i = 0; i < MEMBERS_MAX; i++)
        stage->has[i] = 1;
    pass_step(stage);
    assert_true(limit_of(stage) == 20);
    pass_step(stage);
    assert_true(limit_of(stage) >= 20);
}

/* Each process has found 16, and would use far more. Asks until all was
 * learned: none ever has less than its limit, and the limit is their sum, but
 * for the initial 20 that the first one may be granted. */
static void begin_with_what_they_have(struct stage *stage)
{
    stage->wants = 100;
    for (size_t i = 0; i < MEMBERS_MAX; i++)
        stage->has[i] = 16;
    weir_instant end = stage->now + 2 * WEIR_FLEET_LEASE;
    double limit = 0;
    for (struct weir_fleet_limit_view view; stage->now < end;) {
        pass_step(stage);
        for (size_t i = 0; i < stage->end; i++)
            assert_true(stage->has[i] >= 16);
        (void)weir_root_adaptive_view(stage->root, QUOTA, &view, stage->now);
        if (view.controller.windows > 0)
            break;
        limit = view.controller.limit;
    }
    assert_compare(limit, >=, 5 * 16);
    assert_compare(limit, <=, 5 * 16 + 20);
}

/* … by limits of their own, when the scope becomes the fleet. */
static void test_an_edit_begins_with_what_processes_have(void **state)
{
    struct stage *stage = *state;
    weir_root_lease_begin(stage->root, 1, WEIR_NEVER, stage->now);
    begin_with_what_they_have(stage);
}

/* … by a former master. */
static void test_a_next_master_begins_with_what_processes_have(void **state)
{
    struct stage *stage = *state;
    weir_root_lease_begin(stage->root, 2, stage->now, stage->now);
    begin_with_what_they_have(stage);
}

static void test_not_in_use(void **state)
{
    struct stage *stage = *state;
    struct weir_fleet_member member;
    struct weir_fleet_news news;
    struct weir_text name;
    uint32_t cursor = 0;
    size_t at = 0;
    weir_root_lease_begin(stage->root, 1, WEIR_NEVER, stage->now);
    assert_false(weir_root_adaptive_member(stage->root, QUOTA, &cursor, &member,
                                           stage->now));
    assert_false(weir_root_adaptive_next(stage->root, &at, &name));
    assert_false(next_news(stage, &news));
    pass_step(stage);
    assert_true(weir_root_adaptive_next(stage->root, &at, &name));
    assert_true(weir_text_equal(name, QUOTA));
    assert_false(weir_root_adaptive_next(stage->root, &at, &name));
    assert_int_equal(count_members(stage, '\0'), 5);
}

/* A process with a slow path of its own is named once when it is left out, and
 * once when it is back. */
static void test_an_outlier_is_named(void **state)
{
    struct stage *stage = *state;
    struct weir_fleet_news news;
    weir_root_lease_begin(stage->root, 1, WEIR_NEVER, stage->now);
    for (int i = 0; i < 40; i++)
        pass_step(stage);
    assert_false(next_news(stage, &news));
    stage->latency[2] = WEIR_SECOND;
    pass_until_news(stage, &news);
    assert_true(news.out);
    assert_true(weir_text_equal(news.quota, QUOTA));
    assert_true(weir_text_equal(news.member, WEIR_TEXT("c")));
    assert_int_equal(count_members(stage, 'c'), 5);
    assert_false(next_news(stage, &news));
    stage->latency[2] = stage->latency[0];
    pass_until_news(stage, &news);
    assert_false(news.out);
    assert_true(weir_text_equal(news.member, WEIR_TEXT("c")));
    assert_int_equal(count_members(stage, '\0'), 5);
    assert_false(next_news(stage, &news));
}

/* A process that is left out goes. Another one gets its number, and isn't left
 * out. */
static void test_a_number_is_given_again(void **state)
{
    struct stage *stage = *state;
    struct weir_fleet_news news;
    weir_root_lease_begin(stage->root, 1, WEIR_NEVER, stage->now);
    for (int i = 0; i < 40; i++)
        pass_step(stage);
    stage->latency[0] = WEIR_SECOND;
    pass_until_news(stage, &news);
    assert_true(news.out && news.member.p[0] == 'a');
    stage->first = 1;
    for (int i = 0; i < 40; i++)
        pass_step(stage);
    assert_int_equal(count_members(stage, '\0'), 4);
    stage->end = 6;
    pass_step(stage);
    assert_int_equal(count_members(stage, '\0'), 5);
    for (int i = 0; i < 40; i++)
        pass_step(stage);
    assert_int_equal(count_members(stage, '\0'), 5);
    assert_false(next_news(stage, &news));
}

/* … also at once, as when a process is started anew. */
static void test_a_number_is_given_again_at_once(void **state)
{
    struct stage *stage = *state;
    struct weir_fleet_news news;
    weir_root_lease_begin(stage->root, 1, WEIR_NEVER, stage->now);
    for (int i = 0; i < 40; i++)
        pass_step(stage);
    stage->latency[0] = WEIR_SECOND;
    pass_until_news(stage, &news);
    assert_true(news.out && news.member.p[0] == 'a');
    struct weir_client a = { .id = WEIR_TEXT("a"), .way = PEERS };
    weir_root_lease_release(stage->root, &a, QUOTA, UINT64_MAX, stage->now);
    stage->first = 1;
    stage->end = 6;
    ask(stage, 5);
    assert_int_equal(count_members(stage, '\0'), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_number_is_given_again_at_once,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_in_use, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_new_processes_begin_with_a_controllers_limit, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_an_edit_begins_with_what_processes_have, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_next_master_begins_with_what_processes_have, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(test_an_outlier_is_named, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_number_is_given_again, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests_name("members of a fleet's limit", tests,
                                       NULL, NULL);
}
