/* SPDX-License-Identifier: MIT
 * test/core/node/test_root_names.c - two tenants of one root, each with
 * credentials for quotas of some names alone: no report charges the other's
 * quotas; both charge the ancestors of their own. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/limiter.h"
#include "core/node/root_lease.h"
#include "io/clock.h"
#include "table_maker.h"

#define STEP (100 * WEIR_MILLISECOND)
#define TENANTS 2
#define SLOTS 1024
#define DENIED_MAX 64

/* Tenant 0 is "a", tenant 1 is "b". */
struct town {
    struct weir_root *root;
    struct weir_table *tables[TENANTS];
    struct weir_limiter *limiters[TENANTS];
    struct weir_name_set sets[TENANTS];
    weir_instant now;
    uint64_t epoch;
    unsigned denied;            /* names, from the root's messages */
    struct weir_message answer; /* the last answer to a message by hand */
};

/* ---- The root ---- */

static void put(struct town *town, struct weir_quota quota)
{
    struct weir_change change = { .quota = quota };
    change.quota.id = ++town->epoch;
    change.quota.epoch = change.quota.created = town->epoch;
    assert_int_equal(weir_root_apply(town->root, &change, town->now), 0);
    weir_root_settle(town->root, town->now);
}

static void on_denied(void *context, struct weir_text name, weir_instant now)
{
    (void)now;
    struct town *town = context;
    assert_compare(name.len, >, 0);
    town->denied++;
}

static void link_up(struct town *town, uint32_t tenant)
{
    const struct weir_root_names names = { .set = &town->sets[tenant],
                                           .owner = tenant + 1,
                                           .context = town,
                                           .denied = on_denied };
    weir_root_link(town->root, tenant, true, town->now);
    weir_root_limit_names(town->root, tenant, &names);
}

/* ---- Limiters ---- */

static void make_limiter(struct town *town, uint32_t tenant)
{
    town->tables[tenant] = made_table(SLOTS, 1, 1);
    struct weir_limiter_options options = { .table = town->tables[tenant],
                                            .slots = SLOTS,
                                            .links = 1,
                                            .leases = 4,
                                            .seed = tenant + 1 };
    options.incarnation[0] = (uint8_t)(tenant + 1);
    size_t size = (weir_limiter_size(&options) + 63) / 64 * 64;
    void *block = aligned_alloc(64, size);
    memset(block, 0, size);
    town->limiters[tenant] = weir_limiter_init(block, &options, town->now);
    link_up(town, tenant);
    weir_limiter_link(town->limiters[tenant], 0, true, town->now);
}

static void pump(struct town *town)
{
    struct weir_message message;
    uint32_t index;
    for (uint32_t i = 0; i < TENANTS; i++) {
        struct weir_limiter *limiter = town->limiters[i];
        weir_limiter_tick(limiter, town->now);
        while (weir_limiter_next(limiter, &index, &message, town->now))
            assert_int_equal(
                weir_root_receive(town->root, i, &message, town->now), 0);
    }
    weir_root_tick(town->root, town->now);
    while (weir_root_next(town->root, &index, &message, town->now))
        assert_int_equal(
            weir_limiter_receive(town->limiters[index], 0, &message, town->now),
            0);
}

static void run(struct town *town, weir_duration span)
{
    weir_instant end = town->now + span;
    while (town->now < end) {
        town->now += STEP;
        pump(town);
        pump(town);
    }
}

static void put_all(struct town *town)
{
    put(town, made_quota_of("site", "", 1000, 1000));
    put(town, made_quota_of("a/*", "site", 100, 100));
    put(town, made_quota_of("b/*", "site", 100, 100));
}

static int set_up(void **state)
{
    struct town *town = calloc(1, sizeof *town);
    town->now = MADE_AT;
    struct weir_root_options options = {
        .mem = weir_mem_system,
        .peers_max = TENANTS + 1,
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
    };
    town->root = weir_root_new(&options, town->now);
    put_all(town);
    weir_root_lease_begin(town->root, 1, WEIR_NEVER, town->now);
    weir_name_set_add(&town->sets[0], WEIR_TEXT("a/*"));
    weir_name_set_add(&town->sets[1], WEIR_TEXT("b/*"));
    for (uint32_t i = 0; i < TENANTS; i++)
        make_limiter(town, i);
    run(town, 2 * WEIR_SECOND);
    *state = town;
    return 0;
}

static int tear_down(void **state)
{
    struct town *town = *state;
    for (uint32_t i = 0; i < TENANTS; i++) {
        free(town->limiters[i]);
        free(town->tables[i]);
    }
    weir_root_free(town->root);
    free(town);
    return 0;
}

static void charge(struct town *town, uint32_t tenant, const char *name,
                   uint64_t units)
{
    struct weir_ref ref;
    assert_true(weir_table_resolve(town->tables[tenant], weir_text_of(name),
                                   false, &ref,
                                   town->now) != WEIR_RESOLVED_NONE);
    weir_table_take(town->tables[tenant], 0, ref, units, NULL, town->now);
}

/* Units counted by the root. */
static uint64_t counted(struct town *town, const char *name)
{
    struct weir_usage usage;
    return weir_root_usage_of(town->root, weir_text_of(name), &usage, town->now)
               ? usage.passed
               : 0;
}

static unsigned events(struct town *town, uint32_t tenant, const char *name)
{
    struct weir_event event;
    unsigned count = 0;
    while (weir_limiter_event(town->limiters[tenant], &event)) {
        if (event.type != WEIR_EVENT_DENIED)
            continue;
        if (name)
            assert_string_equal(event.text, name);
        count++;
    }
    return count;
}

/* ---- By limiters ---- */

static void each_charges_its_own_and_what_is_above(void **state)
{
    struct town *town = *state;
    charge(town, 0, "a/x", 5);
    charge(town, 1, "b/x", 7);
    run(town, 3 * WEIR_SECOND);
    assert_int_equal(counted(town, "a/x"), 5);
    assert_int_equal(counted(town, "b/x"), 7);
    assert_int_equal(counted(town, "site"), 12);
    assert_int_equal(town->denied, 0);
    assert_int_equal(events(town, 0, ""), 0);
}

static void neither_charges_the_other(void **state)
{
    struct town *town = *state;
    struct weir_root_stats stats;
    charge(town, 0, "a/x", 5);
    charge(town, 1, "a/x", 50);
    charge(town, 1, "a/x", 50);
    run(town, 5 * WEIR_SECOND);
    assert_int_equal(counted(town, "a/x"), 5);
    /* Nor is the ancestor charged: the tenant has named no quota below
     * "site". */
    assert_int_equal(counted(town, "site"), 5);
    assert_compare(town->denied, >=, 2);
    weir_root_stats(town->root, &stats);
    assert_int_equal(stats.denied, town->denied);
    /* The process applies a denied quota's limit locally. */
    charge(town, 1, "a/x", 100);
    struct weir_ref ref;
    weir_table_find(town->tables[1], WEIR_TEXT("a/x"), &ref);
    assert_true(weir_table_take(town->tables[1], 0, ref, 1, NULL, town->now) &
                WEIR_OUTCOME_LIMITED);
}

/* The limiter's event comes once, not with each report. */
static void the_limiter_is_told_once(void **state)
{
    struct town *town = *state;
    charge(town, 1, "b/x", 1);
    run(town, 2 * WEIR_SECOND);
    charge(town, 1, "a/x", 1);
    run(town, 10 * WEIR_SECOND);
    charge(town, 1, "a/x", 1);
    run(town, 10 * WEIR_SECOND);
    assert_int_equal(events(town, 1, "a/x"), 1);
    assert_int_equal(counted(town, "a/x"), 0);
}

/* ---- Ancestors that are announced alone ---- */

static void edit_parent(struct town *town, const char *name, uint64_t created,
                        const char *parent)
{
    struct weir_change change = { .quota =
                                      made_quota_of(name, parent, 100, 100) };
    change.quota.id = change.quota.created = created;
    change.quota.epoch = ++town->epoch;
    assert_int_equal(weir_root_apply(town->root, &change, town->now), 0);
    weir_root_settle(town->root, town->now);
}

static void a_parent_that_comes_by_an_edit(void **state)
{
    struct town *town = *state;
    charge(town, 0, "a/x", 5);
    run(town, 3 * WEIR_SECOND);
    put(town, made_quota_of("newsite", "", 1000, 1000));
    edit_parent(town, "a/*", 2, "newsite");
    run(town, 3 * WEIR_SECOND);
    for (int i = 0; i < 20; i++) {
        charge(town, 0, "a/x", 2);
        run(town, WEIR_SECOND);
    }
    run(town, WEIR_SECOND);
    assert_int_equal(counted(town, "a/x"), 45);
    assert_int_equal(counted(town, "site"), 5);
    assert_int_equal(counted(town, "newsite"), 40);
    assert_int_equal(events(town, 0, ""), 0);
}

static void charge_each(struct town *town, const char *of, unsigned many)
{
    char name[32];
    for (unsigned i = 0; i < many; i++) {
        snprintf(name, sizeof name, "%s/%u", of, i);
        charge(town, 0, name, 1);
    }
}

/* The limiter's callers ask for that many denied names, in slots before and
 * behind the parent, which comes by an edit. */
static void beside_denied_names(struct town *town, unsigned before,
                                unsigned behind)
{
    charge(town, 0, "a/x", 5);
    charge_each(town, "b/before", before);
    run(town, 3 * WEIR_SECOND);
    put(town, made_quota_of("newsite", "", 1000, 1000));
    edit_parent(town, "a/*", 2, "newsite");
    run(town, 3 * WEIR_SECOND);
    for (int i = 0; i < 30; i++) {
        charge(town, 0, "a/x", 2);
        charge_each(town, "b/before", before);
        charge_each(town, "b/behind", behind);
        run(town, WEIR_SECOND);
    }
    run(town, 2 * WEIR_SECOND);
    assert_int_equal(counted(town, "a/x"), 65);
    assert_compare(counted(town, "newsite"), >=, 54);
    assert_int_equal(counted(town, "b/before/0"), 0);
}

static void a_parent_behind_denied_names(void **state)
{
    beside_denied_names(*state, 300, 0);
}

static void a_parent_before_denied_names(void **state)
{
    beside_denied_names(*state, 0, 300);
}

static void a_parent_among_denied_names(void **state)
{
    beside_denied_names(*state, 10, 10);
}

/* Most names below the parent are unused stored quotas. */
static void a_parent_of_unused_quotas(void **state)
{
    struct town *town = *state;
    static char names[400][32];
    put(town, made_quota_of("newsite", "", 1000, 1000));
    for (unsigned i = 0; i < 400; i++) {
        snprintf(names[i], sizeof names[i], "b/stored/%u", i);
        put(town, made_quota_of(names[i], "newsite", 10, 10));
    }
    run(town, 5 * WEIR_SECOND);
    charge(town, 0, "a/x", 5);
    run(town, 3 * WEIR_SECOND);
    edit_parent(town, "a/*", 2, "newsite");
    run(town, 3 * WEIR_SECOND);
    charge(town, 0, "a/x", 7);
    run(town, 3 * WEIR_SECOND);
    assert_int_equal(counted(town, "newsite"), 7);
    assert_int_equal(events(town, 0, ""), 0);
}

/* The child's bucket is empty, so the limiter announces its parent alone to a
 * root that was just started. */
static void a_parent_that_is_full_still(void **state)
{
    struct town *town = *state;
    const struct weir_root_options options = {
        .mem = weir_mem_system,
        .peers_max = TENANTS + 1,
        .incarnation = { 9 },
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
    };
    struct weir_usage usage = { .fill = 0 };
    put(town, made_quota_of("slow", "", 1, 1000));
    put(town, made_quota_of("a/fast", "slow", 1000, 1000));
    run(town, 2 * WEIR_SECOND);
    charge(town, 0, "a/fast", 500);
    run(town, 3 * WEIR_SECOND);
    for (uint32_t i = 0; i < TENANTS; i++)
        weir_limiter_link(town->limiters[i], 0, false, town->now);
    weir_root_free(town->root);
    town->now += STEP;
    town->root = weir_root_new(&options, town->now);
    town->epoch = 0;
    put_all(town);
    put(town, made_quota_of("slow", "", 1, 1000));
    put(town, made_quota_of("a/fast", "slow", 1000, 1000));
    link_up(town, 0);
    weir_limiter_link(town->limiters[0], 0, true, town->now);
    run(town, 12 * WEIR_SECOND);
    assert_true(
        weir_root_usage_of(town->root, WEIR_TEXT("slow"), &usage, town->now));
    assert_compare(usage.fill, >, 480);
    assert_int_equal(events(town, 0, ""), 0);
}

static void a_leased_parent(void **state)
{
    struct town *town = *state;
    struct weir_quota leased = made_quota_of("lease", "", 10, 10);
    struct weir_root_stats stats;
    leased.sharing = WEIR_LEASED;
    leased.lease = 60 * WEIR_SECOND;
    put(town, leased);
    put(town, made_quota_of("a/child", "lease", 100, 100));
    run(town, 2 * WEIR_SECOND);
    charge(town, 0, "a/child", 1);
    run(town, 5 * WEIR_SECOND);
    weir_root_stats(town->root, &stats);
    assert_compare(stats.lease_grants, >=, 1);
    assert_int_equal(events(town, 0, ""), 0);
}

/* ---- By hand ---- */

static void say(struct town *town, uint32_t tenant,
                const struct weir_message *message)
{
    uint32_t peer;
    assert_int_equal(weir_root_receive(town->root, tenant, message, town->now),
                     0);
    town->answer.type = 0;
    while (weir_root_next(town->root, &peer, &town->answer, town->now))
        if (peer == tenant && town->answer.type != WEIR_MESSAGE_WELCOME &&
            town->answer.type != WEIR_MESSAGE_QUOTAS)
            return;
}

static int greet(struct town *town, uint32_t tenant, uint64_t session,
                 uint8_t incarnation)
{
    struct weir_message hello = {
        .type = WEIR_MESSAGE_HELLO,
        .session = session,
        .hello = { .protocol = WEIR_PROTOCOL, .incarnation = { incarnation } },
    };
    return weir_root_receive(town->root, tenant, &hello, town->now);
}

static void by_hand(struct town *town, uint32_t tenant)
{
    weir_limiter_link(town->limiters[tenant], 0, false, town->now);
    link_up(town, tenant);
    assert_int_equal(greet(town, tenant, 7, (uint8_t)(11 + tenant)), 0);
}

static void asks_are_judged(void **state)
{
    struct town *town = *state;
    struct weir_quota exact = made_quota_of("a/exact", "above", 10, 10);
    struct weir_quota above = made_quota_of("above", "", 10, 10);
    exact.sharing = above.sharing = WEIR_EXACT;
    exact.algorithm = above.algorithm = WEIR_SLIDING_LOG;
    put(town, above);
    put(town, exact);
    by_hand(town, 0);
    by_hand(town, 1);
    const struct weir_step_ask asks[] = {
        { .number = 1,
          .name = WEIR_TEXT("above"),
          .ask = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 } },
        { .number = 2,
          .name = WEIR_TEXT("a/exact"),
          .ask = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 } },
    };
    const struct weir_message message = { .type = WEIR_MESSAGE_ASKS,
                                          .session = 7,
                                          .asks = { 2, asks } };
    say(town, 0, &message);
    assert_int_equal(town->answer.type, WEIR_MESSAGE_ANSWERS);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(town->answer.answers.answers[i].error, 0);
        assert_true(town->answer.answers.answers[i].answer.passed);
    }
    assert_int_equal(town->denied, 0);
    say(town, 1, &message);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(town->answer.answers.answers[i].error,
                         WEIR_STEP_DENIED);
    assert_int_equal(town->denied, 2);
}

static void wants_are_judged(void **state)
{
    struct town *town = *state;
    struct weir_quota leased = made_quota_of("a/leased", "", 10, 10);
    leased.sharing = WEIR_LEASED;
    leased.lease = 60 * WEIR_SECOND;
    put(town, leased);
    by_hand(town, 0);
    by_hand(town, 1);
    const struct weir_band band = { .clients = 1, .wants = 5 };
    const struct weir_want want = { .name = WEIR_TEXT("a/leased"),
                                    .band_count = 1,
                                    .bands = &band };
    const struct weir_message message = {
        .type = WEIR_MESSAGE_WANTS,
        .session = 7,
        .wants = { .number = 1, .term = 1, .count = 1, .wants = &want },
    };
    say(town, 1, &message);
    assert_int_equal(town->answer.type, WEIR_MESSAGE_GRANTS);
    assert_int_equal(town->answer.grants.grants[0].error, WEIR_LEASE_DENIED);
    assert_int_equal(town->denied, 1);
    say(town, 0, &message);
    assert_int_equal(town->answer.grants.grants[0].error, WEIR_LEASE_GRANTED);
    assert_int_equal(town->denied, 1);
}

static void adaptive_limits_are_judged(void **state)
{
    struct town *town = *state;
    struct weir_adaptive_limit told[] = {
        { .name = WEIR_TEXT("a/db"), .limit = 1, .in_flight = 100000 },
        { .name = WEIR_TEXT("b/db"), .limit = 2, .in_flight = 1 },
    };
    const struct weir_message message = { .type = WEIR_MESSAGE_LIMITS,
                                          .session = 7,
                                          .limits = { 2, told } };
    struct weir_limiter_usage usage = { .limit_count = 0 };
    size_t cursor = 0;
    by_hand(town, 1);
    say(town, 1, &message);
    assert_int_equal(town->denied, 1);
    while (usage.limit_count == 0)
        assert_true(
            weir_root_limiter_usage(town->root, &cursor, &usage, town->now));
    assert_int_equal(usage.limit_count, 1);
    assert_true(weir_text_equal(usage.limits[0].name, WEIR_TEXT("b/db")));
}

/* Ancestors that the globs permit take no room from others. */
static void ancestors_of_ones_own_need_no_room(void **state)
{
    struct town *town = *state;
    static char names[WEIR_ANCESTORS_MAX + 1][32];
    static struct weir_announce announces[1024];
    uint64_t number = 0;
    put(town, made_quota_of("pool", "", 1000, 1000));         /* 4 */
    put(town, made_quota_of("a/u/*/put", "a/u/{1}", 10, 10)); /* 5 */
    put(town, made_quota_of("a/q", "pool", 10, 10));          /* 6 */
    by_hand(town, 0);
    struct weir_message message = { .type = WEIR_MESSAGE_REPORT, .session = 7 };
    struct weir_report *report = &message.report;
    for (uint32_t i = 0; i <= WEIR_ANCESTORS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "a/u/%u/put", i);
        announces[report->announce_count++] = (struct weir_announce){
            .slot = i, .name = weir_text_of(names[i]), .created = 5
        };
        if (report->announce_count < 1024 && i < WEIR_ANCESTORS_MAX)
            continue;
        report->number = ++number;
        report->announces = announces;
        say(town, 0, &message);
        report->announce_count = 0;
    }
    const struct weir_announce last[] = {
        { .slot = 6000, .name = WEIR_TEXT("a/q"), .created = 6 },
        { .slot = 6001, .name = WEIR_TEXT("pool"), .created = 4 },
    };
    const struct weir_count counts[] = { { .slot = 6000, .passed = 9 },
                                         { .slot = 6001, .passed = 9 } };
    message.report = (struct weir_report){ .number = ++number,
                                           .announce_count = 2,
                                           .announces = last,
                                           .count = 2,
                                           .counts = counts };
    say(town, 0, &message);
    assert_int_equal(counted(town, "a/q"), 9);
    assert_int_equal(counted(town, "pool"), 9);
    assert_int_equal(town->denied, 0);
}

/* The overflow of a template, and the ancestors of that. */
static void the_overflow_of_a_name_may_be_charged(void **state)
{
    struct town *town = *state;
    put(town, made_quota_of("spill", "site", 10, 10));
    struct weir_quota template = made_quota_of("a/users/*", "", 10, 10);
    template.overflow = WEIR_TEXT("spill");
    template.order = 0;
    put(town, template);
    by_hand(town, 0);
    const struct weir_announce announces[] = {
        { .slot = 1, .name = WEIR_TEXT("site"), .created = 1 },
        { .slot = 2, .name = WEIR_TEXT("spill"), .created = 4 },
        { .slot = 3, .name = WEIR_TEXT("a/users/ann"), .created = 5 },
    };
    const struct weir_count counts[] = { { .slot = 1, .passed = 1 },
                                         { .slot = 2, .passed = 1 } };
    const struct weir_message message = {
        .type = WEIR_MESSAGE_REPORT,
        .session = 7,
        .report = { .number = 1,
                    .announce_count = 3,
                    .announces = announces,
                    .count = 2,
                    .counts = counts },
    };
    say(town, 0, &message);
    assert_int_equal(town->denied, 0);
    assert_int_equal(counted(town, "spill"), 1);
    assert_int_equal(counted(town, "site"), 1);
}

/* A report by tenant 1: its slot 1 is "a/x". */
static void report(struct town *town, uint64_t number, bool announces,
                   int64_t units)
{
    const struct weir_announce announce = { .slot = 1,
                                            .name = WEIR_TEXT("a/x"),
                                            .created = 2 };
    const struct weir_count count = { .slot = 1, .passed = units };
    const struct weir_message message = {
        .type = WEIR_MESSAGE_REPORT,
        .session = 7,
        .report = { .number = number,
                    .announce_count = announces,
                    .announces = &announce,
                    .count = 1,
                    .counts = &count },
    };
    say(town, 1, &message);
    assert_int_equal(town->answer.type, WEIR_MESSAGE_FILLS);
    assert_int_equal(town->answer.fills.unknown_count, 1);
    assert_int_equal(town->answer.fills.unknown[0], 1);
    assert_int_equal(town->answer.fills.denied_count, announces);
}

static void counts_of_what_was_denied_find_nothing(void **state)
{
    struct town *town = *state;
    by_hand(town, 1);
    report(town, 1, true, 50);
    report(town, 2, false, 50);
    assert_int_equal(counted(town, "a/x"), 0);
    assert_int_equal(town->denied, 1);
}

static double in_flight(struct town *town)
{
    struct weir_usage usage = { .fill = -1 };
    weir_root_usage_of(town->root, WEIR_TEXT("a/db"), &usage, town->now);
    return usage.fill;
}

static bool is_welcomed(struct town *town, uint32_t tenant)
{
    struct weir_message message;
    uint32_t peer;
    bool welcomed = false;
    while (weir_root_next(town->root, &peer, &message, town->now))
        welcomed |= peer == tenant && message.type == WEIR_MESSAGE_WELCOME;
    return welcomed;
}

/* An incarnation isn't secret: the API shows it to readers. A peer with another
 * credential that sends it is another limiter, and the first one keeps its
 * session, its permits and its place, whether it is connected or away. */
static void nobody_speaks_for_a_limiter_of_another(void **state)
{
    struct town *town = *state;
    struct weir_quota inflight = made_quota_of("a/db", "", 10, 10);
    inflight.kind = WEIR_CONCURRENCY;
    put(town, inflight); /* 4 */
    by_hand(town, 0);
    const struct weir_announce announce = {
        .slot = 1, .name = WEIR_TEXT("a/db"), .created = 4, .in_flight = true
    };
    const struct weir_count count = { .slot = 1, .passed = 10 };
    const struct weir_message message = {
        .type = WEIR_MESSAGE_REPORT,
        .session = 7,
        .report = { .number = 1,
                    .announce_count = 1,
                    .announces = &announce,
                    .count = 1,
                    .counts = &count },
    };
    say(town, 0, &message);
    assert_true(in_flight(town) == 10);
    weir_limiter_link(town->limiters[1], 0, false, town->now);
    link_up(town, 1);
    assert_int_equal(greet(town, 1, 7, 11), 0);
    report(town, 1, false, 50);
    assert_true(in_flight(town) == 10);
    weir_root_link(town->root, 0, false, town->now);
    link_up(town, 1);
    assert_int_equal(greet(town, 1, UINT32_MAX, 11), 0);
    assert_true(in_flight(town) == 10);
    link_up(town, 0);
    assert_int_equal(greet(town, 0, 8, 11), 0);
    assert_true(is_welcomed(town, 0));
    assert_true(in_flight(town) == 10);
}

/* The credential was changed, and the link is up again. */
static void names_allowed_before_are_not_any_more(void **state)
{
    struct town *town = *state;
    charge(town, 0, "a/x", 5);
    run(town, 2 * WEIR_SECOND);
    assert_int_equal(counted(town, "a/x"), 5);
    weir_limiter_link(town->limiters[0], 0, false, town->now);
    town->sets[0] = (struct weir_name_set){ .all = false };
    weir_name_set_add(&town->sets[0], WEIR_TEXT("c/*"));
    link_up(town, 0);
    weir_limiter_link(town->limiters[0], 0, true, town->now);
    charge(town, 0, "a/x", 50);
    run(town, 3 * WEIR_SECOND);
    assert_compare(counted(town, "a/x"), <=, 5);
    assert_compare(town->denied, >, 0);
}

int main(void)
{
#define TOWN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TOWN(each_charges_its_own_and_what_is_above),
        TOWN(neither_charges_the_other),
        TOWN(the_limiter_is_told_once),
        TOWN(a_parent_that_comes_by_an_edit),
        TOWN(a_parent_behind_denied_names),
        TOWN(a_parent_before_denied_names),
        TOWN(a_parent_among_denied_names),
        TOWN(a_parent_of_unused_quotas),
        TOWN(a_parent_that_is_full_still),
        TOWN(a_leased_parent),
        TOWN(asks_are_judged),
        TOWN(wants_are_judged),
        TOWN(adaptive_limits_are_judged),
        TOWN(ancestors_of_ones_own_need_no_room),
        TOWN(the_overflow_of_a_name_may_be_charged),
        TOWN(counts_of_what_was_denied_find_nothing),
        TOWN(nobody_speaks_for_a_limiter_of_another),
        TOWN(names_allowed_before_are_not_any_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
