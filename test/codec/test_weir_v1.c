/* SPDX-License-Identifier: MIT
 * test_weir_v1.c - messages to bytes and back; hand-written code compared with
 * protobuf-c; broken bytes are refused by name. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <assert.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compare.h"
#include "weir.pb-c.h"
#include "weir_v1_bench.h"

static_assert((int)WEIR_CONCURRENCY == (int)WEIR__V1__KIND__CONCURRENCY,
              "kinds have one numbering");
static_assert((int)WEIR_ADAPTIVE == (int)WEIR__V1__SHARING__ADAPTIVE,
              "sharings have one numbering");
static_assert((int)WEIR_SLIDING_WINDOW ==
                  (int)WEIR__V1__ALGORITHM__SLIDING_WINDOW,
              "algorithms have one numbering");
static_assert((int)WEIR_CALENDAR_MONTH == (int)WEIR__V1__CALENDAR__MONTH,
              "calendars have one numbering");
static_assert((int)WEIR_OFF == (int)WEIR__V1__MODE__OFF,
              "modes have one numbering");
static_assert((int)WEIR_SHARE_PRIORITY == (int)WEIR__V1__SHARE__SHARE_PRIORITY,
              "shares have one numbering");
static_assert((int)WEIR_GLOB_PATH == (int)WEIR__V1__GLOB__GLOB_PATH,
              "globs have one numbering");
static_assert((int)WEIR_STALE_HOLD == (int)WEIR__V1__ON_STALE__HOLD,
              "on_stale has one numbering");

#define ROUNDS 3000

#define ROWS 200
struct rows {
    struct weir_announce announces[ROWS];
    struct weir_count counts[ROWS];
    struct weir_fill fills[ROWS];
    uint32_t unknown[ROWS];
    uint32_t denied[ROWS];
};

static void random_report(struct weir_rng *rng, struct rows *rows,
                          struct weir_message *out)
{
    uint64_t slot = weir_rng_below(rng, 3);
    uint32_t step = 1 + (uint32_t)weir_rng_below(rng, 1000);
    size_t count = weir_rng_below(rng, ROWS);
    bool carried = weir_rng_below(rng, 2);
    for (size_t i = 0; i < count; i++) {
        bool rare = weir_rng_below(rng, 4) == 0;
        rows->counts[i] = (struct weir_count){
            .slot = (uint32_t)slot,
            .passed = (int64_t)some(rng),
            .refused = rare ? some(rng) : 0,
            .late = rare ? -(int64_t)(some(rng) >> 1) : 0,
            .pace = rare ? some(rng) % (WEIR_PACE_MAX + 1) : 0,
        };
        if (rare)
            rows->counts[i].ahead = some(rng) % (WEIR_AHEAD_MAX + 1);
        if (carried)
            rows->counts[i].carry =
                rare ? (int64_t)some(rng) : rows->counts[i].passed;
        slot += 1 + weir_rng_below(rng, step);
    }
    size_t announces = weir_rng_below(rng, ROWS);
    for (size_t i = 0; i < announces; i++)
        rows->announces[i] = (struct weir_announce){
            .slot = (uint32_t)some(rng),
            .name = WEIR_TEXT("site/\xc3\xbc"),
            .created = some(rng),
            .base = some(rng),
            .refused = some(rng),
            .fill = (int64_t)some(rng),
            .witnessed = weir_rng_below(rng, 2),
            .sank = weir_rng_below(rng, 2),
            .in_flight = weir_rng_below(rng, 2),
        };
    *out = (struct weir_message){
        .type = WEIR_MESSAGE_REPORT,
        .session = some(rng),
        .report = { .number = some(rng),
                    .epoch = some(rng),
                    .late_from = some(rng),
                    .unknown = some(rng),
                    .contended = some(rng),
                    .lacking = some(rng),
                    .overflowed = some(rng),
                    .passes_on_full = weir_rng_below(rng, 2),
                    .few_roots =
                        weir_rng_below(rng, 2) ? (uint32_t)some(rng) : 0,
                    .echo = weir_rng_below(rng, 2) ? some(rng) : 0,
                    .carried = carried,
                    .no_room = weir_rng_below(rng, 2),
                    .again = weir_rng_below(rng, 2),
                    .below = weir_rng_below(rng, 2) ? WEIR_TEXT("site/\xc3\xbc")
                                                    : WEIR_TEXT(""),
                    .announce_count = announces,
                    .announces = rows->announces,
                    .count = count,
                    .counts = rows->counts },
    };
}

static void random_fills(struct weir_rng *rng, struct rows *rows,
                         struct weir_message *out)
{
    uint64_t slot = weir_rng_below(rng, 3);
    size_t count = weir_rng_below(rng, ROWS);
    bool paced = weir_rng_below(rng, 2);
    for (size_t i = 0; i < count; i++) {
        rows->fills[i] = (struct weir_fill){
            .slot = (uint32_t)slot,
            .fill = (int64_t)some(rng),
            .slack = weir_rng_below(rng, 2) ? UINT64_MAX : some(rng),
            .pace = paced ? some(rng) % (WEIR_PACE_MAX + 1) : 0,
        };
        slot += 1 + weir_rng_below(rng, 300);
    }
    size_t unknown = weir_rng_below(rng, ROWS);
    for (size_t i = 0; i < unknown; i++)
        rows->unknown[i] = (uint32_t)some(rng);
    size_t denied = weir_rng_below(rng, ROWS);
    for (size_t i = 0; i < denied; i++)
        rows->denied[i] = (uint32_t)some(rng);
    *out = (struct weir_message){
        .type = WEIR_MESSAGE_FILLS,
        .session = some(rng),
        .fills = { .answer = weir_rng_below(rng, 2),
                   .number = some(rng),
                   .stamp = some(rng),
                   .report_backoff = some(rng),
                   .limiters = (uint32_t)some(rng),
                   .roots = weir_rng_below(rng, 2) ? (uint32_t)some(rng) : 0,
                   .top_age = weir_rng_below(rng, 2) ? some(rng) : 0,
                   .age = weir_rng_below(rng, 2) ? some(rng) : 0,
                   .count = count,
                   .fills = rows->fills,
                   .unknown_count = unknown,
                   .unknown = rows->unknown,
                   .denied_count = denied,
                   .denied = rows->denied },
    };
}

static void random_asks(struct weir_rng *rng, struct weir_step_ask *rows,
                        struct weir_message *out)
{
    size_t count = 1 + weir_rng_below(rng, ROWS);
    uint64_t number = 0;
    for (size_t i = 0; i < count; i++) {
        number += 1 + (some(rng) >> 16);
        rows[i] = (struct weir_step_ask){
            .number = number,
            .name = WEIR_TEXT("site/\xc3\xbc"),
            .ask = { .op = (enum weir_algorithm_op)(1 + weir_rng_below(rng, 5)),
                     .weight = some(rng) % (WEIR_WEIGHT_MAX + 1),
                     .wait_max = some(rng),
                     .permit = some(rng),
                     .level = (uint8_t)weir_rng_below(rng, 4) },
            .patience = some(rng),
        };
    }
    *out = (struct weir_message){ .type = WEIR_MESSAGE_ASKS,
                                  .session = some(rng),
                                  .asks = { count, rows } };
}

static void random_answers(struct weir_rng *rng, struct weir_step_answer *rows,
                           struct weir_message *out)
{
    size_t count = 1 + weir_rng_below(rng, ROWS);
    for (size_t i = 0; i < count; i++) {
        rows[i] = (struct weir_step_answer){
            .number = 1 + (some(rng) >> 1),
            .error = (enum weir_step_error)weir_rng_below(rng, 5),
        };
        if (rows[i].error != WEIR_STEP_ANSWERED)
            continue;
        rows[i].answer = (struct weir_algorithm_answer){
            .passed = weir_rng_below(rng, 2),
            .never = weir_rng_below(rng, 2),
            .level = (uint8_t)weir_rng_below(rng, 4),
            .used = (int64_t)some(rng),
            .remaining = some(rng),
            .retry_after = some(rng),
            .wait = some(rng),
        };
    }
    *out = (struct weir_message){ .type = WEIR_MESSAGE_ANSWERS,
                                  .session = some(rng),
                                  .answers = { count, rows } };
}

static void test_asks_are_what_the_proto_says(void **state)
{
    struct bench *bench = *state;
    struct weir_step_ask asks[ROWS];
    struct weir_step_answer answers[ROWS];
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_message message, out;
        if (i % 2)
            random_asks(&bench->rng, asks, &message);
        else
            random_answers(&bench->rng, answers, &message);
        round_trip(bench, &message, &out);
    }
}

static void test_columns_are_what_the_proto_says(void **state)
{
    struct bench *bench = *state;
    struct rows rows;
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_message message, out;
        if (i % 2)
            random_report(&bench->rng, &rows, &message);
        else
            random_fills(&bench->rng, &rows, &message);
        round_trip(bench, &message, &out);
    }
}

/* Flips, cuts and inserts: refused, or read as protobuf-c reads it. */
static void test_damaged_columns(void **state)
{
    struct bench *bench = *state;
    struct rows rows;
    unsigned refused = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_message message;
        if (i % 2)
            random_report(&bench->rng, &rows, &message);
        else
            random_fills(&bench->rng, &rows, &message);
        refused += !damaged_is_read_alike(bench, &message);
    }
    printf("refused: %u of %d\n", refused, ROUNDS);
}

/* Fields for regions cost a fleet without regions no byte; in a carried report,
 * a row that hands over exactly its passed units costs none either. */
static void test_regions_cost_others_nothing(void **state)
{
    (void)state;
    struct weir_count count = { .slot = 3, .passed = 700 };
    struct weir_message message = {
        .type = WEIR_MESSAGE_REPORT,
        .report = { .number = 1, .count = 1, .counts = &count },
    };
    size_t plain = weir_v1_size(&message);
    message.report.carried = true;
    count.carry = 700;
    assert_int_equal(weir_v1_size(&message), plain + 2);
    count.carry = 701;
    assert_int_equal(weir_v1_size(&message), plain + 2 + 2 * 3);
}

/* Only a carrier may be sent rows to carry. */
static void test_carry_without_carried_is_refused(void **state)
{
    struct bench *bench = *state;
    struct weir_count count = { .slot = 3, .passed = 700, .carry = 701 };
    struct weir_message out, message = {
        .type = WEIR_MESSAGE_REPORT,
        .report = { .number = 1,
                    .carried = true,
                    .count = 1,
                    .counts = &count },
    };
    size_t size = weir_v1_encode(&message, bench->bytes, 1000);
    assert_int_equal(bench->bytes[size - 1], 1); /* 'carried' comes last */
    bench->bytes[size - 1] = 0;
    assert_int_equal(
        weir_v1_decode(bench->bytes, size, true, &bench->arena, &out),
        WEIR_EPROTOCOL);
    bench->bytes[size - 1] = 2;
    assert_int_equal(
        weir_v1_decode(bench->bytes, size, true, &bench->arena, &out),
        WEIR_EPROTOCOL);
}

static struct weir_message a_hello(void)
{
    return (struct weir_message){
        .type = WEIR_MESSAGE_HELLO,
        .session = 77,
        .hello = { .protocol = 1,
                   .incarnation = "0123456789abcde",
                   .name = WEIR_TEXT("api@host"),
                   .store = { .uuid = "store-store-stor", .restores = 3 },
                   .epoch = UINT64_MAX,
                   .region = true,
                   .region_name = WEIR_TEXT("eu") },
    };
}

static void test_hello(void **state)
{
    struct bench *bench = *state;
    struct weir_message hello = a_hello();
    struct weir_message out;
    round_trip(bench, &hello, &out);
    assert_true(weir_text_equal(out.hello.region_name, WEIR_TEXT("eu")));
    assert_int_equal(out.hello.protocol, 1);
    assert_memory_equal(out.hello.incarnation, "0123456789abcde", 16);
    assert_true(weir_text_equal(out.hello.name, WEIR_TEXT("api@host")));
    assert_memory_equal(out.hello.store.uuid, "store-store-stor", 16);
    assert_int_equal(out.hello.store.restores, 3);
    assert_true(out.hello.epoch == UINT64_MAX);
    assert_true(out.hello.region);
}

static const struct weir_text regions[] = { { "eu", 2 }, { "world", 5 } };

static struct weir_message a_welcome(void)
{
    return (struct weir_message){
        .type = WEIR_MESSAGE_WELCOME,
        .welcome = { .protocol = 1,
                     .incarnation = "fedcba9876543210",
                     .age = 77,
                     .ready = true,
                     .epoch = 9,
                     .carries = true,
                     .last_session = 5,
                     .last_number = 6,
                     .top_age = WEIR_NEVER,
                     .provisional = true,
                     .region_count = 2,
                     .regions = regions,
                     .leases = true,
                     .term = 12,
                     .master = WEIR_TEXT("a:7070"),
                     .settings = { .report_interval = WEIR_SECOND,
                                   .stale_after = 5 * WEIR_SECOND,
                                   .slack = true,
                                   .correction_auto = true,
                                   .correction_ppm = 250000 } },
    };
}

static void test_welcome(void **state)
{
    struct bench *bench = *state;
    struct weir_message welcome = a_welcome(), out;
    round_trip(bench, &welcome, &out);
    assert_true(out.welcome.ready);
    assert_int_equal(out.welcome.epoch, 9);
    assert_int_equal(out.welcome.age, 77);
    assert_true(out.welcome.carries);
    assert_int_equal(out.welcome.last_session, 5);
    assert_int_equal(out.welcome.last_number, 6);
    assert_true(out.welcome.top_age == WEIR_NEVER);
    assert_true(out.welcome.provisional);
    assert_true(out.welcome.leases);
    assert_int_equal(out.welcome.term, 12);
    assert_true(weir_text_equal(out.welcome.master, WEIR_TEXT("a:7070")));
    assert_int_equal(out.welcome.region_count, 2);
    assert_true(weir_text_equal(out.welcome.regions[0], regions[0]));
    assert_true(weir_text_equal(out.welcome.regions[1], regions[1]));
    assert_int_equal(out.welcome.name.len, 0);
    assert_int_equal(out.welcome.store.restores, 0);
    const struct weir_settings *settings = &out.welcome.settings;
    assert_true(settings->report_interval == WEIR_SECOND);
    assert_true(settings->stale_after == 5 * WEIR_SECOND);
    assert_true(settings->slack && settings->correction_auto);
    assert_int_equal(settings->correction_ppm, 250000);
    welcome.welcome.settings.stale_after = 1;
    size_t size = weir_v1_encode(&welcome, bench->bytes, 1000);
    assert_int_equal(
        weir_v1_decode(bench->bytes, size, false, &bench->arena, &out),
        WEIR_EPROTOCOL);
}

/* An older peer sends no 'echo' and no 'age', and skips those that it gets:
 * the fields cost nothing if they are 0, and all else is as it was. */
static void test_ages_are_optional(void **state)
{
    struct bench *bench = *state;
    struct weir_message report = { .type = WEIR_MESSAGE_REPORT,
                                   .report = { .number = 3 } };
    struct weir_message fills = { .type = WEIR_MESSAGE_FILLS,
                                  .fills = { .number = 3 } };
    struct weir_message out;
    size_t report_size = weir_v1_size(&report);
    size_t fills_size = weir_v1_size(&fills);
    round_trip(bench, &report, &out);
    assert_int_equal(out.report.echo, 0);
    round_trip(bench, &fills, &out);
    assert_int_equal(out.fills.age, 0);
    report.report.echo = fills.fills.age = 100;
    assert_int_equal(weir_v1_size(&report), report_size + 3);
    assert_int_equal(weir_v1_size(&fills), fills_size + 2);
    report.report.lead = 7; /* the root's own */
    round_trip(bench, &report, &out);
    assert_int_equal(out.report.echo, 100);
    assert_int_equal(out.report.lead, 0);
    round_trip(bench, &fills, &out);
    assert_int_equal(out.fills.age, 100);
}

/* A quota with nothing at its default, a template with all, a removal. */
static void make_changes(struct weir_change *changes)
{
    struct weir_quota *quota = &changes[0].quota;
    weir_quota_init(quota);
    quota->name = WEIR_TEXT("site");
    quota->description = WEIR_TEXT("all of it");
    quota->labels = WEIR_TEXT("team=web");
    quota->id = 5;
    quota->epoch = 41;
    quota->created = 7;
    quota->limit = (struct weir_limit){ .units = 3, .per = 10 * WEIR_SECOND };
    quota->low_burst = (struct weir_burst){ .amount = 0 };
    quota->high_burst =
        (struct weir_burst){ .amount = WEIR_SECOND * 20, .in_time = true };
    quota->mode = WEIR_SHADOW;
    quota->on_stale = WEIR_STALE_SHARE;
    quota->sharing = WEIR_LOCAL;
    weir_quota_init(&changes[1].quota);
    changes[1].quota.name = WEIR_TEXT("site/*");
    changes[1].quota.parent = WEIR_TEXT("site");
    changes[1].quota.overflow = WEIR_TEXT("site");
    changes[1].quota.order = 12;
    changes[2].removed = true;
    changes[2].quota.name = WEIR_TEXT("gone");
    changes[2].quota.epoch = 42;
}

static void test_quotas(void **state)
{
    struct bench *bench = *state;
    struct weir_change changes[3] = { 0 };
    make_changes(changes);
    const struct weir_quota *quota = &changes[0].quota;
    struct weir_message message = {
        .type = WEIR_MESSAGE_QUOTAS,
        .session = 1,
        .quotas = { .full = true,
                    .from = 40,
                    .epoch = 42,
                    .target = 50,
                    .known = 7,
                    .count = 3,
                    .changes = changes },
    };
    struct weir_message out;
    round_trip(bench, &message, &out);
    assert_true(out.quotas.full);
    assert_int_equal(out.quotas.known, 7);
    assert_int_equal(out.quotas.from, 40);
    assert_int_equal(out.quotas.epoch, 42);
    assert_int_equal(out.quotas.target, 50);
    assert_int_equal(out.quotas.count, 3);
    const struct weir_quota *got = &out.quotas.changes[0].quota;
    assert_true(weir_text_equal(got->name, quota->name));
    assert_true(weir_text_equal(got->description, quota->description));
    assert_true(weir_text_equal(got->labels, quota->labels));
    assert_int_equal(got->id, 5);
    assert_int_equal(got->epoch, 41);
    assert_int_equal(got->created, 7);
    assert_int_equal(got->limit.units, 3);
    assert_int_equal(got->limit.per, 10 * WEIR_SECOND);
    assert_false(got->limit.unlimited);
    assert_false(got->low_burst.unset);
    assert_int_equal(got->low_burst.amount, 0);
    assert_true(got->high_burst.in_time);
    assert_int_equal(got->high_burst.amount, 20 * WEIR_SECOND);
    assert_int_equal(got->mode, WEIR_SHADOW);
    assert_int_equal(got->on_stale, WEIR_STALE_SHARE);
    assert_int_equal(got->sharing, WEIR_LOCAL);
    got = &out.quotas.changes[1].quota;
    assert_true(got->limit.unlimited);
    assert_true(got->low_burst.unset);
    assert_true(got->high_burst.unset);
    assert_int_equal(got->order, 12);
    assert_true(weir_text_equal(got->overflow, WEIR_TEXT("site")));
    assert_true(weir_text_equal(got->parent, WEIR_TEXT("site")));
    assert_true(out.quotas.changes[2].removed);
    assert_int_equal(out.quotas.changes[2].quota.epoch, 42);
}

/* Quotas with the fields of each algorithm, and of a store. */
static struct weir_message quotas_of_each_algorithm(void)
{
    static const char *const texts[][6] = {
        { "algorithm=leaky_queue", "sharing=local", "limit=5/s" },
        { "algorithm=token_bucket", "sharing=local", "limit=5/s",
          "initial=77" },
        { "algorithm=token_buckets", "sharing=local", "limit=5/s",
          "next_buckets=20/s:200, spill:500" },
        { "algorithm=fixed_window", "sharing=local", "limit=5/day",
          "window=month", "tz=Europe/Berlin" },
        { "algorithm=fixed_window", "sharing=local", "limit=5/day",
          "window=2d" },
        { "algorithm=sliding_log", "sharing=local", "limit=5/day",
          "max_entries=999", "count_limited=yes" },
        { "algorithm=sliding_window", "sharing=local", "limit=5/s",
          "sub_windows=60" },
        { "algorithm=leaky", "sharing=exact", "limit=5/s",
          "store=memcached://a:1,b:2", "deadline=3ms", "on_stale=share" },
        { "sharing=leased", "limit=5/s", "share_algorithm=none",
          "safe_capacity=0", "lease=5s", "refresh=1.5s" },
        { "sharing=leased", "limit=5/s", "share_algorithm=priority",
          "learning=0s", "priority=-9223372036854775808", "decay_factor=0.5" },
        { "sharing=leased", "limit=5/s", "safe_capacity=2.5/s", "learning=7s" },
        { "kind=concurrency", "sharing=adaptive", "target=7ms",
          "percentile=99.9999", "min=0.25", "fleet_max=1048576" },
        { "kind=concurrency", "sharing=adaptive", "controller=none", "max=40.5",
          "fleet_min=1.5", "classes=sync:observed,b:5%" },
        { "kind=concurrency", "sharing=adaptive", "scope=fleet", "max=0.5",
          "fleet_min=0.25", "on_stale=limit" },
        { "glob=path", "name=db/[ab]?", "parent=db" },
    };
    static struct weir_change changes[WEIR_COUNT_OF(texts)];
    for (size_t i = 0; i < WEIR_COUNT_OF(texts); i++) {
        weir_quota_init(&changes[i].quota);
        changes[i].quota.name = WEIR_TEXT("q");
        for (size_t j = 0; j < 6 && texts[i][j]; j++) {
            const char *equals = strchr(texts[i][j], '=');
            struct weir_text field = { texts[i][j],
                                       (size_t)(equals - texts[i][j]) };
            assert_int_equal(weir_quota_set(&changes[i].quota, field,
                                            weir_text_of(equals + 1), NULL),
                             0);
        }
    }
    return (struct weir_message){
        .type = WEIR_MESSAGE_QUOTAS,
        .session = 1,
        .quotas = { .count = WEIR_COUNT_OF(texts), .changes = changes },
    };
}

static void test_quotas_of_each_algorithm(void **state)
{
    struct bench *bench = *state;
    struct weir_message message = quotas_of_each_algorithm(), out;
    round_trip(bench, &message, &out);
    for (size_t i = 0; i < message.quotas.count; i++) {
        assert_false(out.quotas.changes[i].reduced);
        assert_true(weir_quota_equal(&message.quotas.changes[i].quota,
                                     &out.quotas.changes[i].quota));
    }
}

/* Flips and cuts of the messages without columns: refused, or read as
 * protobuf-c reads them. */
static void test_damaged_messages(void **state)
{
    struct bench *bench = *state;
    struct weir_step_ask asks[ROWS];
    struct weir_step_answer answers[ROWS];
    unsigned refused = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_message message;
        if (i % 5 == 0)
            message = a_hello();
        else if (i % 5 == 1)
            message = a_welcome();
        else if (i % 5 == 2)
            message = quotas_of_each_algorithm();
        else if (i % 5 == 3)
            random_asks(&bench->rng, asks, &message);
        else
            random_answers(&bench->rng, answers, &message);
        refused += !damaged_is_read_alike(bench, &message);
    }
    printf("refused: %u of %d\n", refused, ROUNDS);
}

/* A quota of a later version, with an algorithm, a sharing or a value that
 * this one doesn't know: its name and place remain, and it lets all pass. */
static void test_quotas_of_a_later_version(void **state)
{
    struct bench *bench = *state;
    struct weir_change changes[8] = { 0 };
    for (size_t i = 0; i < 8; i++) {
        weir_quota_init(&changes[i].quota);
        changes[i].quota.name = WEIR_TEXT("new");
        changes[i].quota.parent = WEIR_TEXT("site");
        changes[i].quota.epoch = 7;
        changes[i].quota.created = 3;
        changes[i].quota.limit = (struct weir_limit){ 5, WEIR_SECOND, false };
    }
    changes[0].quota.algorithm = (enum weir_algorithm)99;
    changes[1].quota.sharing = (enum weir_sharing)99;
    changes[2].quota.sub_windows = 77;
    changes[3].quota.share_algorithm = (enum weir_share_algorithm)6;
    changes[4].quota.sharing = WEIR_LEASED;
    changes[4].quota.decay_factor = WEIR_DECAY_ONE + 1;
    changes[5].quota.glob = (enum weir_glob)3; /* no version knows this glob */
    changes[5].quota.parent = WEIR_TEXT("{1}");
    for (size_t i = 6; i < 8; i++) {
        changes[i].quota.kind = WEIR_CONCURRENCY;
        changes[i].quota.sharing = WEIR_ADAPTIVE;
        changes[i].quota.limit.per = 0;
    }
    changes[6].quota.scope = (enum weir_scope)3;
    changes[7].quota.scope = WEIR_SCOPE_FLEET; /* of no such controller */
    changes[7].quota.controller = WEIR_CONTROLLER_VEGAS;
    struct weir_message out, message = {
        .type = WEIR_MESSAGE_QUOTAS,
        .session = 1,
        .quotas = { .count = 8, .changes = changes },
    };
    size_t size = weir_v1_encode(&message, bench->bytes, 4096);
    assert_int_equal(
        weir_v1_decode(bench->bytes, size, false, &bench->arena, &out), 0);
    for (size_t i = 0; i < 8; i++) {
        const struct weir_change *got = &out.quotas.changes[i];
        assert_true(got->reduced);
        assert_true(weir_text_equal(
            got->quota.parent, i != 5 ? WEIR_TEXT("site") : WEIR_TEXT("")));
        assert_int_equal(got->quota.epoch, 7);
        assert_int_equal(got->quota.created, 3);
        assert_int_equal(got->quota.mode, WEIR_OFF);
        assert_true(got->quota.limit.unlimited);
    }
    /* a newer version may allow more in a name: that quota is skipped */
    changes[1].quota.name = WEIR_TEXT("a\tb");
    size = weir_v1_encode(&message, bench->bytes, 4096);
    assert_int_equal(
        weir_v1_decode(bench->bytes, size, false, &bench->arena, &out), 0);
    assert_int_equal(out.quotas.count, 8);
    for (size_t i = 0; i < 8; i++) {
        const struct weir_change *got = &out.quotas.changes[i];
        assert_true(got->reduced);
        assert_int_equal(got->quota.name.len > 0, i != 1);
        assert_int_equal(got->quota.epoch, i == 1 ? 0 : 7);
    }
}

/* <= 4 bytes per changed counter, once named. */
static void test_bytes_a_counter(void **state)
{
    struct bench *bench = *state;
    static struct weir_count counts[1000];
    for (size_t i = 0; i < 1000; i++)
        counts[i] = (struct weir_count){
            .slot = 5000 + (uint32_t)i,
            .passed = (int64_t)weir_rng_below(&bench->rng, 8192),
        };
    struct weir_message out, message = {
        .type = WEIR_MESSAGE_REPORT,
        .session = weir_rng_next(&bench->rng),
        .report = { .number = 1000,
                    .epoch = 1000000,
                    .count = 1000,
                    .counts = counts },
    };
    size_t size = round_trip(bench, &message, &out);
    printf("a changed counter: %.3f bytes\n", (double)size / 1000);
    assert_compare(size, <=, 4 * 1000);
}

static void test_broken_asks(void **state)
{
    REFUSE(true, WEIR_EPROTOCOL, "\x22\x00"); /* none */
    /* without number, name, op; of op 6; a number twice */
    REFUSE(true, WEIR_EPROTOCOL,
           "\x22\x07\x0a\x05\x12\x01"
           "a\x18\x01");
    REFUSE(true, WEIR_EPROTOCOL, "\x22\x06\x0a\x04\x08\x01\x18\x01");
    REFUSE(true, WEIR_EPROTOCOL,
           "\x22\x07\x0a\x05\x08\x01\x12\x01"
           "a");
    REFUSE(true, WEIR_EPROTOCOL,
           "\x22\x09\x0a\x07\x08\x01\x12\x01"
           "a\x18\x06");
    REFUSE(true, WEIR_EPROTOCOL,
           "\x22\x12\x0a\x07\x08\x01\x12\x01"
           "a\x18\x01"
           "\x0a\x07\x08\x01\x12\x01"
           "a\x18\x01");
    REFUSE(false, WEIR_EPROTOCOL, "\x2a\x00");
    /* an answer to nothing; of error 5; passed twice over */
    REFUSE(false, WEIR_EPROTOCOL, "\x2a\x04\x0a\x02\x18\x01");
    REFUSE(false, WEIR_EPROTOCOL, "\x2a\x06\x0a\x04\x08\x01\x10\x05");
    REFUSE(false, WEIR_EPROTOCOL, "\x2a\x06\x0a\x04\x08\x01\x18\x02");
}

static void test_broken_by_name(void **state)
{
    REFUSE(true, WEIR_EPROTOCOL, "");
    REFUSE(true, WEIR_EPROTOCOL, "\x08\x01");             /* no body */
    REFUSE(true, WEIR_EPROTOCOL, "\x08\x01\x08\x01\x1a"); /* twice */
    REFUSE(true, WEIR_EPROTOCOL, "\x1a\x00\x1a\x00");     /* two bodies */
    REFUSE(true, WEIR_EPROTOCOL, "\x12\x00\x1a\x00");
    REFUSE(true, WEIR_EPROTOCOL, "\x18\x01");   /* body as a number */
    REFUSE(true, WEIR_ESYNTAX, "\x1a\x05\x08"); /* cut */
    REFUSE(true, WEIR_ESYNTAX, "\x1b\x1c");     /* a group */
    REFUSE(true, WEIR_ESYNTAX, "\x00\x01");     /* field 0 */
    REFUSE(true, WEIR_ESYNTAX, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02");
    /* counts: two slots, one passed */
    REFUSE(true, WEIR_EPROTOCOL,
           "\x1a\x09\x3a\x07\x0a\x02\x01\x01\x12\x01"
           "\x02");
    /* a step of 0 */
    REFUSE(true, WEIR_EPROTOCOL,
           "\x1a\x0a\x3a\x08\x0a\x02\x01\x00\x12\x02"
           "\x02\x02");
    /* a refusal of row 1, where there is one row */
    REFUSE(true, WEIR_EPROTOCOL,
           "\x1a\x0e\x3a\x0c\x0a\x01\x01\x12\x01\x02"
           "\x1a\x01\x01\x22\x01\x05");
    /* slots past 32 bits */
    REFUSE(true, WEIR_EPROTOCOL,
           "\x1a\x0f\x3a\x0d\x0a\x06\x01\xff\xff\xff\xff\x0f\x12\x03\x02\x02"
           "\x02");
    /* an announce with a NUL in its name */
    REFUSE(true, WEIR_EPROTOCOL,
           "\x1a\x07\x32\x05\x12\x03"
           "a\0b");
    /* a hello without incarnation */
    REFUSE(true, WEIR_EPROTOCOL, "\x12\x02\x08\x01");
    /* a protocol past 32 bits */
    REFUSE(true, WEIR_EPROTOCOL, "\x12\x07\x08\xff\xff\xff\xff\xff\x01");
    /* a slack is missing */
    REFUSE(false, WEIR_EPROTOCOL, "\x22\x06\x2a\x01\x01\x32\x01\x02");
}

/* Unknown fields belong to a later version: skipped. */
static void test_unknown_fields(void **state)
{
    struct bench *bench = *state;
    struct weir_message out;
    static const char bytes[] = "\x08\x05\x1a\x05\x08\x07\xf8\x01\x01"
                                "\xf9\x01"
                                "01234567";
    assert_int_equal(
        weir_v1_decode(bytes, sizeof(bytes) - 1, true, &bench->arena, &out), 0);
    assert_int_equal(out.session, 5);
    assert_int_equal(out.report.number, 7);
}

static size_t put(unsigned char *p, const char *bytes, size_t len)
{
    memcpy(p, bytes, len);
    return len;
}

/* Changes that no table of this version describes: a message of quotas has one
 * of them between two that are sound. */
static void test_newer_changes(void **state)
{
    struct bench *bench = *state;
    static char many[400] = "\x0a\xb1\x02\x0a\x01x\x38\x07";
    for (size_t at = 8; at < 308; at += 3) /* 100 unknown fields */
        memcpy(many + at, "\xf8\x01\x01", 3);
    static const char removal[] = "\x2a\x07\x12\x05\x0a\x01r\x10\x09";
    const struct {
        const char *bytes;
        size_t len;
        bool named;
    } rows[] = {
        { "\x1a\x02\x08\x01", 4, false }, /* neither a quota nor a removal */
        { "\x0a\x00", 2, false },
        { "\x0a\x02\x38\x07", 4, false }, /* without a name */
        /* a burst of a third kind; a flag with the value 2 */
        { "\x0a\x09\x0a\x01x\x38\x07\x62\x02\x18\x05", 11, true },
        { "\x0a\x08\x0a\x01x\x38\x07\xd0\x01\x02", 10, true },
        { many, 308, true },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        struct weir_message out;
        unsigned char *p = bench->bytes;
        size_t at = 3;
        at += put(p + at, removal, 9);
        p[at++] = 0x2a;
        p[at++] = (unsigned char)(rows[i].len & 127) | 128;
        p[at++] = (unsigned char)(rows[i].len >> 7);
        at += put(p + at, rows[i].bytes, rows[i].len);
        at += put(p + at, removal, 9);
        p[0] = 0x1a;
        p[1] = (unsigned char)((at - 3) & 127) | 128;
        p[2] = (unsigned char)((at - 3) >> 7);
        assert_int_equal(weir_v1_decode(p, at, false, &bench->arena, &out), 0);
        assert_int_equal(out.quotas.count, 3);
        assert_true(out.quotas.changes[0].removed);
        assert_true(out.quotas.changes[2].removed);
        const struct weir_change *got = &out.quotas.changes[1];
        assert_true(got->reduced);
        assert_int_equal(got->quota.epoch, rows[i].named ? 7 : 0);
        assert_true(weir_text_equal(
            got->quota.name, rows[i].named ? WEIR_TEXT("x") : WEIR_TEXT("")));
    }
    /* Of a change that ends as a removal, no quota is left. */
    struct weir_message out;
    static const char both[] = "\x1a\x09\x2a\x07\x0a\x03\x0a\x01x\x12";
    assert_int_equal(
        weir_v1_decode(both, sizeof(both), false, &bench->arena, &out), 0);
    assert_true(out.quotas.changes[0].reduced);
    assert_int_equal(out.quotas.changes[0].quota.name.len, 0);
    /* Broken bytes are of no version. */
    REFUSE(false, WEIR_ESYNTAX, "\x1a\x05\x2a\x03\x0a\x05\x01");
}

/* More rows, changes or fields than the bounds, and a small arena. */
static void test_bounds(void **state)
{
    struct bench *bench = *state;
    unsigned char *p = bench->bytes;
    size_t len = put(p, "\x1a\x86\x80\x04\x3a\x82\x80\x04\x0a\xfe\xff\x03", 12);
    memset(p + len, 1, 65534);
    refuse(bench, true, WEIR_ETOOBIG, p, len + 65534);
    /* 600 empty changes */
    len = put(p, "\x1a\xb0\x09", 3);
    for (int i = 0; i < 600; i++)
        len += put(p + len, "\x2a\x00", 2);
    refuse(bench, false, WEIR_ETOOBIG, p, len);
    /* 2,100 empty announces */
    len = put(p, "\x1a\xe8\x20", 3);
    for (int i = 0; i < 2100; i++)
        len += put(p + len, "\x32\x00", 2);
    refuse(bench, true, WEIR_ETOOBIG, p, len);
    /* 100 unknown fields in a hello */
    len = put(p, "\x12\xac\x02", 3);
    for (int i = 0; i < 100; i++)
        len += put(p + len, "\xf8\x01\x01", 3);
    refuse(bench, true, WEIR_ETOOBIG, p, len);
    refuse(bench, true, WEIR_ETOOBIG, p, WEIR_MESSAGE_BYTES_MAX + 1);

    const struct weir_step_ask ask = { .number = 1,
                                       .name = WEIR_TEXT("a"),
                                       .ask.op = WEIR_ALGORITHM_TAKE };
    struct weir_message asks = {
        .type = WEIR_MESSAGE_ASKS,
        .asks = { .count = 1, .asks = &ask },
    };
    len = weir_v1_encode(&asks, p, 1000);
    size_t size = bench->arena.size;
    for (bench->arena.size = 0; bench->arena.size < 64; bench->arena.size++)
        refuse(bench, true, WEIR_ETOOBIG, p, len);
    bench->arena.size = size;
}

/* A full report takes most of the arena, and full fills fit too;
 * test_weir_v1_leases.c has the fullest wants. */
static void test_the_fullest(void **state)
{
    struct bench *bench = *state;
    static struct weir_count counts[WEIR_REPORT_COUNTS_MAX];
    static struct weir_announce announces[WEIR_REPORT_ANNOUNCES_MAX];
    static struct weir_fill fills[WEIR_FILLS_MAX];
    static uint32_t slots[WEIR_FILLS_MAX];
    for (uint32_t i = 0; i < WEIR_REPORT_COUNTS_MAX; i++)
        counts[i] = (struct weir_count){ .slot = i, .passed = i };
    for (uint32_t i = 0; i < WEIR_REPORT_ANNOUNCES_MAX; i++)
        announces[i] =
            (struct weir_announce){ .slot = i, .name = WEIR_TEXT("a") };
    for (uint32_t i = 0; i < WEIR_FILLS_MAX; i++) {
        fills[i] = (struct weir_fill){ .slot = i };
        slots[i] = i;
    }
    struct weir_message out, message = {
        .type = WEIR_MESSAGE_REPORT,
        .report = { .count = WEIR_REPORT_COUNTS_MAX,
                    .counts = counts,
                    .announce_count = WEIR_REPORT_ANNOUNCES_MAX,
                    .announces = announces },
    };
    round_trip(bench, &message, &out);
    assert_compare(bench->arena.used, <=, WEIR_DECODE_ARENA_SIZE);
    assert_compare(2 * bench->arena.used, >, WEIR_DECODE_ARENA_SIZE);
    message = (struct weir_message){
        .type = WEIR_MESSAGE_FILLS,
        .fills = { .stamp = 1,
                   .count = WEIR_FILLS_MAX,
                   .fills = fills,
                   .unknown_count = WEIR_FILLS_MAX,
                   .unknown = slots,
                   .denied_count = WEIR_REPORT_ANNOUNCES_MAX,
                   .denied = slots },
    };
    round_trip(bench, &message, &out);
}

static void test_calls(void **state)
{
    (void)state;
    struct weir_call_request request = {
        .method = WEIR_TEXT("GET"),
        .path = WEIR_TEXT("/v1/quotas?glob=a*"),
    };
    char bytes[256];
    size_t len = weir_v1_request_encode(&request, bytes, sizeof(bytes));
    assert_int_equal(len, weir_v1_request_size(&request));
    struct weir_call_request got;
    assert_int_equal(weir_v1_request_decode(bytes, len, &got), 0);
    assert_true(weir_text_equal(got.method, request.method));
    assert_true(weir_text_equal(got.path, request.path));
    assert_int_equal(got.body.len, 0);
    request.path = WEIR_TEXT("/a b");
    len = weir_v1_request_encode(&request, bytes, sizeof(bytes));
    assert_int_equal(weir_v1_request_decode(bytes, len, &got), WEIR_EPROTOCOL);
    struct weir_call_reply reply = { .status = 404, .body = WEIR_TEXT("{}") };
    len = weir_v1_reply_encode(&reply, bytes, sizeof(bytes));
    struct weir_call_reply answer;
    assert_int_equal(weir_v1_reply_decode(bytes, len, &answer), 0);
    assert_int_equal(answer.status, 404);
    assert_true(weir_text_equal(answer.body, reply.body));
    assert_int_equal(weir_v1_reply_decode("", 0, &answer), WEIR_EPROTOCOL);
}

/* Asserts nothing on speed: prints a figure. */
static void test_print_speed(void **state)
{
    struct bench *bench = *state;
    static struct weir_count counts[WEIR_REPORT_COUNTS_MAX];
    for (size_t i = 0; i < WEIR_REPORT_COUNTS_MAX; i++)
        counts[i] = (struct weir_count){
            .slot = (uint32_t)i * 2,
            .passed = (int64_t)weir_rng_below(&bench->rng, 8192),
        };
    struct weir_message out, message = {
        .type = WEIR_MESSAGE_REPORT,
        .report = { .count = WEIR_REPORT_COUNTS_MAX, .counts = counts },
    };
    size_t size = 0;
    int rounds = 200;
    clock_t before = clock();
    for (int i = 0; i < rounds; i++)
        size = weir_v1_encode(&message, bench->bytes, WEIR_MESSAGE_BYTES_MAX);
    clock_t between = clock();
    for (int i = 0; i < rounds; i++)
        assert_int_equal(
            weir_v1_decode(bench->bytes, size, true, &bench->arena, &out), 0);
    clock_t after = clock();
    double scale = 1e9 / CLOCKS_PER_SEC / rounds / WEIR_REPORT_COUNTS_MAX;
    printf("a counter: encoded in %.1f ns, decoded in %.1f ns\n",
           (double)(between - before) * scale,
           (double)(after - between) * scale);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_are_what_the_proto_says),
        cmocka_unit_test(test_asks_are_what_the_proto_says),
        cmocka_unit_test(test_broken_asks),
        cmocka_unit_test(test_damaged_columns),
        cmocka_unit_test(test_regions_cost_others_nothing),
        cmocka_unit_test(test_carry_without_carried_is_refused),
        cmocka_unit_test(test_hello),
        cmocka_unit_test(test_welcome),
        cmocka_unit_test(test_ages_are_optional),
        cmocka_unit_test(test_quotas),
        cmocka_unit_test(test_quotas_of_each_algorithm),
        cmocka_unit_test(test_damaged_messages),
        cmocka_unit_test(test_quotas_of_a_later_version),
        cmocka_unit_test(test_bytes_a_counter),
        cmocka_unit_test(test_broken_by_name),
        cmocka_unit_test(test_newer_changes),
        cmocka_unit_test(test_unknown_fields),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_the_fullest),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_print_speed),
    };
    return cmocka_run_group_tests(tests, bench_set_up, bench_tear_down);
}
