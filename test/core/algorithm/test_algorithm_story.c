/* SPDX-License-Identifier: MIT
 * test_algorithm_story.c - the purpose of each algorithm in numbers: the
 * examples of the articles and of the RFCs, calendars, edits. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "algorithm_oracle.h"
#include "compare.h"
#include "table_maker.h"

#define MINUTE (60 * WEIR_SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define MIDNIGHT (20000 * DAY) /* 2024-10-04 00:00 UTC */

/* A rule, and its state. */
struct kept {
    struct told told;
    uint64_t state[WEIR_ALGORITHM_SIZE_MAX / sizeof(uint64_t)];
};

static struct kept *made_bucket_state(enum weir_algorithm algorithm,
                                      uint64_t units, weir_duration per,
                                      uint64_t burst)
{
    struct kept *bucket_state = calloc(1, sizeof(*bucket_state));
    assert_non_null(bucket_state);
    told_simple(&bucket_state->told, algorithm, units, per, burst);
    return bucket_state;
}

static struct weir_algorithm_answer ask(struct kept *bucket_state,
                                        enum weir_algorithm_op op,
                                        uint64_t weight, weir_instant now)
{
    struct weir_algorithm_answer answer;
    const struct weir_algorithm_ask asked = { .op = op, .weight = weight };
    weir_algorithm_step(&bucket_state->told.rule, bucket_state->state, &asked,
                        &answer, now);
    return answer;
}

static bool takes(struct kept *bucket_state, uint64_t weight, weir_instant now)
{
    return ask(bucket_state, WEIR_ALGORITHM_TAKE, weight, now).passed;
}

static int64_t used(struct kept *bucket_state, weir_instant now)
{
    return ask(bucket_state, WEIR_ALGORITHM_PEEK, 0, now).used;
}

/* How many of 'count' takes pass at one instant. */
static unsigned passes(struct kept *bucket_state, unsigned count,
                       weir_instant now)
{
    unsigned passed = 0;
    for (unsigned i = 0; i < count; i++)
        passed += takes(bucket_state, 1, now);
    return passed;
}

/* ---- The estimate ---- */

static struct kept *made_estimate(uint64_t quantity, uint8_t parts)
{
    struct kept *bucket_state =
        made_bucket_state(WEIR_SLIDING_WINDOW, quantity, MINUTE, 1);
    bucket_state->told.rule.sub_windows = parts;
    return bucket_state;
}

/* A call at 00:01:43 weighs the minute before with 17/60. */
static void test_the_minute_before_by_seventeen_sixtieths(void **state)
{
    (void)state;
    struct kept *bucket_state = made_estimate(100, 1);
    assert_int_equal(passes(bucket_state, 60, MIDNIGHT + 30 * WEIR_SECOND), 60);
    weir_instant now = MIDNIGHT + 103 * WEIR_SECOND;
    assert_int_equal(used(bucket_state, now), 17);
    assert_int_equal(passes(bucket_state, 100, now), 83);
    /* One more unit has left when the weight is 16/60: a second later. */
    struct weir_algorithm_answer last =
        ask(bucket_state, WEIR_ALGORITHM_TAKE, 1, now);
    assert_false(last.passed);
    assert_true(last.retry_after == WEIR_SECOND);
    free(bucket_state);
}

/* A quarter into a window, three quarters of the one before count: 42 before
 * and 18 in this one make 49.5 of 50. */
static void test_a_quarter_in_three_quarters_count(void **state)
{
    (void)state;
    struct kept *bucket_state = made_estimate(50, 1);
    assert_int_equal(passes(bucket_state, 42, MIDNIGHT + 59 * WEIR_SECOND), 42);
    weir_instant now = MIDNIGHT + 75 * WEIR_SECOND;
    assert_int_equal(used(bucket_state, now), 32); /* 31.5 */
    assert_int_equal(passes(bucket_state, 50, now), 18);
    assert_int_equal(used(bucket_state, now), 50); /* 49.5 */
    struct weir_algorithm_answer next =
        ask(bucket_state, WEIR_ALGORITHM_PEEK, 1, now);
    /* 42 * (60 - r) / 60 = 31 at r = 15.714285714... s */
    assert_true(next.retry_after == 714285715);
    free(bucket_state);
}

/* Calls at either end of the previous minute give errors of opposite sign; more
 * parts give smaller errors. */
static void test_clusters_err_to_either_side(void **state)
{
    (void)state;
    static const uint8_t parts[] = { 1, 4, 60 };
    int64_t over[WEIR_COUNT_OF(parts)];
    int64_t under[WEIR_COUNT_OF(parts)];
    weir_instant now = MIDNIGHT + 75 * WEIR_SECOND;
    for (size_t i = 0; i < WEIR_COUNT_OF(parts); i++) {
        for (int end = 0; end < 2; end++) {
            struct kept *estimate = made_estimate(1000, parts[i]);
            struct kept *log =
                made_bucket_state(WEIR_SLIDING_LOG, 1000, MINUTE, 1);
            weir_instant at = MIDNIGHT + (end ? 22 : 14) * WEIR_SECOND;
            assert_int_equal(passes(estimate, 100, at), 100);
            assert_int_equal(passes(log, 100, at), 100);
            int64_t error = used(estimate, now) - used(log, now);
            *(end ? &under[i] : &over[i]) = error;
            free(estimate);
            free(log);
        }
    }
    /* One part: 75 too many, and 25 too few. Four: a part ends at 15 s. */
    assert_true(over[0] == 75 && under[0] == -25);
    assert_true(over[1] == 0 && under[1] == 0);
    assert_true(over[2] == 0 && under[2] == 0);
    struct kept *four = made_estimate(1000, 4);
    assert_int_equal(passes(four, 100, MIDNIGHT + 16 * WEIR_SECOND), 100);
    /* At 77 s the part from 15 to 30 s counts with 13/15, whenever in it the
     * units came: they came at 16 s, so none of them is in the last minute any
     * more. */
    assert_int_equal(used(four, MIDNIGHT + 77 * WEIR_SECOND), 87);
    free(four);
}

/* A caller takes as much as it can, at random instants: four successive parts
 * of five never contain more than the quantity, which is the promise of n = 4.
 * With chosen instants nearly twice that passes in one window. */
static void test_what_parts_promise(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("parts");
    struct kept *bucket_state = made_estimate(100, 4);
    int64_t in_part[4] = { 0 };
    int64_t part = 0;
    for (weir_instant now = MIDNIGHT; now < MIDNIGHT + 10000 * MINUTE;
         now += weir_rng_below(&rng, MINUTE)) {
        int64_t newest = (int64_t)((now - MIDNIGHT) / (MINUTE / 4));
        for (; part < newest; part++)
            in_part[(part + 1) % 4] = 0;
        in_part[part % 4] +=
            passes(bucket_state, 1 + (unsigned)(now % 128), now);
        assert_compare(in_part[0] + in_part[1] + in_part[2] + in_part[3], <=,
                       100);
    }
    free(bucket_state);

    bucket_state = made_estimate(100, 4);
    unsigned passed = passes(bucket_state, 200, MIDNIGHT + MINUTE / 4 - 1);
    passed += passes(bucket_state, 200, MIDNIGHT + 5 * MINUTE / 4 - 2);
    assert_int_equal(passed, 199);
    free(bucket_state);
}

/* Twice the limit passes around the edge of a fixed window; with other
 * algorithms it doesn't. */
static void test_the_edge_of_a_window(void **state)
{
    (void)state;
    static const struct {
        enum weir_algorithm algorithm;
        unsigned passed;
    } rows[] = {
        { WEIR_FIXED_WINDOW, 200 },   { WEIR_SLIDING_LOG, 100 },
        { WEIR_SLIDING_WINDOW, 100 }, { WEIR_LEAKY, 103 },
        { WEIR_TOKEN_BUCKET, 103 },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        struct kept *bucket_state =
            made_bucket_state(rows[i].algorithm, 100, MINUTE, 100);
        unsigned passed = passes(bucket_state, 300, MIDNIGHT - WEIR_SECOND);
        passed += passes(bucket_state, 300, MIDNIGHT + WEIR_SECOND);
        assert_int_equal(passed, rows[i].passed);
        free(bucket_state);
    }
}

/* ---- RFC 2697 and 2698: packets of 500 bytes ---- */

enum colour { GREEN, YELLOW, RED };

static enum colour mark_single(struct kept *bucket_state, uint64_t bytes,
                               weir_instant now)
{
    struct weir_algorithm_answer answer =
        ask(bucket_state, WEIR_ALGORITHM_TAKE, bytes, now);
    return answer.passed ? (enum colour)answer.level : RED;
}

/* A committed rate of 1000 B/s, a committed burst of 1500 B; an excess burst of
 * 3000 B, which gets the overflow of the committed one. */
static void test_rfc_2697_single_rate_three_colours(void **state)
{
    (void)state;
    struct kept *bucket_state =
        made_bucket_state(WEIR_TOKEN_BUCKETS, 1000, WEIR_SECOND, 1500);
    bucket_state->told.rates[1].burst = 3000;
    weir_algorithm_buckets(&bucket_state->told.rule, bucket_state->told.rates,
                           2);
    weir_instant now = MIDNIGHT;
    for (int i = 0; i < 10; i++)
        assert_int_equal(mark_single(bucket_state, 500, now), i < 3   ? GREEN
                                                              : i < 9 ? YELLOW
                                                                      : RED);
    /* A second fills the first bucket, and not the second one. */
    now += WEIR_SECOND;
    for (int i = 0; i < 3; i++)
        assert_int_equal(mark_single(bucket_state, 500, now),
                         i < 2 ? GREEN : RED);
    /* 2.5 s: 1500 B into the first, the other 1000 B into the second. A packet
     * that is too large for the first is yellow, and leaves the first
     * unchanged. */
    now += 25 * WEIR_SECOND / 10;
    assert_int_equal(mark_single(bucket_state, 1501, now), RED);
    assert_int_equal(mark_single(bucket_state, 1000, now), GREEN);
    assert_int_equal(mark_single(bucket_state, 1000, now), YELLOW);
    assert_int_equal(mark_single(bucket_state, 500, now), GREEN);
    assert_int_equal(mark_single(bucket_state, 500, now), RED);
    free(bucket_state);
}

/* The two rates of RFC 2698 are two quotas in a chain: the peak is the parent;
 * the committed one, in shadow, gives the colour of packets that pass the
 * peak. */
static enum colour mark_double(struct kept *committed, struct kept *peak,
                               uint64_t bytes, weir_instant now)
{
    if (!takes(peak, bytes, now))
        return RED;
    return takes(committed, bytes, now) ? GREEN : YELLOW;
}

static void test_rfc_2698_two_rates_three_colours(void **state)
{
    (void)state;
    struct kept *peak =
        made_bucket_state(WEIR_TOKEN_BUCKET, 2000, WEIR_SECOND, 2000);
    struct kept *committed =
        made_bucket_state(WEIR_TOKEN_BUCKET, 1000, WEIR_SECOND, 1000);
    static const enum colour first[] = { GREEN, GREEN, YELLOW, YELLOW, RED };
    static const enum colour then[] = { GREEN, YELLOW, RED };
    for (size_t i = 0; i < WEIR_COUNT_OF(first); i++)
        assert_int_equal(mark_double(committed, peak, 500, MIDNIGHT), first[i]);
    for (size_t i = 0; i < WEIR_COUNT_OF(then); i++)
        assert_int_equal(
            mark_double(committed, peak, 500, MIDNIGHT + WEIR_SECOND / 2),
            then[i]);
    free(peak);
    free(committed);
}

/* ---- Initial tokens ---- */

static struct kept *made_initial(int64_t initial, uint64_t burst)
{
    struct kept *bucket_state =
        made_bucket_state(WEIR_TOKEN_BUCKET, 10, WEIR_SECOND, burst);
    bucket_state->told.rule.initial = initial;
    weir_algorithm_buckets(&bucket_state->told.rule, bucket_state->told.rates,
                           1);
    return bucket_state;
}

static void test_an_empty_start_fills_from_the_first_look(void **state)
{
    (void)state;
    struct kept *bucket_state = made_initial(0, 5);
    struct weir_algorithm_answer first =
        ask(bucket_state, WEIR_ALGORITHM_PEEK, 1, MIDNIGHT);
    assert_false(first.passed);
    assert_true(first.retry_after == WEIR_SECOND / 10);
    assert_int_equal(passes(bucket_state, 9, MIDNIGHT + WEIR_SECOND / 10), 1);
    assert_int_equal(passes(bucket_state, 9, MIDNIGHT + HOUR), 5);
    assert_true(weir_algorithm_idle_at(&bucket_state->told.rule,
                                       bucket_state->state,
                                       MIDNIGHT) == WEIR_NEVER);
    free(bucket_state);
}

/* Above the burst the level neither grows nor falls, for a year. */
static void test_units_above_the_burst_stay_until_spent(void **state)
{
    (void)state;
    struct kept *bucket_state = made_initial(100, 5);
    assert_int_equal(used(bucket_state, MIDNIGHT), -95);
    assert_true(takes(bucket_state, 40, MIDNIGHT));
    assert_int_equal(used(bucket_state, MIDNIGHT + 365 * DAY), -55);
    assert_int_equal(
        ask(bucket_state, WEIR_ALGORITHM_REFUND, 10, MIDNIGHT).used, -65);
    assert_false(takes(bucket_state, 71, MIDNIGHT + 365 * DAY));
    assert_true(takes(bucket_state, 70, MIDNIGHT + 365 * DAY));
    assert_int_equal(used(bucket_state, MIDNIGHT + 365 * DAY), 5);
    assert_int_equal(passes(bucket_state, 99, MIDNIGHT + 366 * DAY), 5);
    free(bucket_state);
}

/* ---- Calendars ---- */

static void check_window(const struct weir_algorithm_rule *rule,
                         weir_instant now)
{
    weir_instant start, end;
    weir_algorithm_window(rule, &start, &end, now);
    int64_t number = oracle_window(rule, now);
    assert_compare(start, <=, now);
    assert_compare(now, <, end);
    assert_true(oracle_window(rule, start) == number);
    assert_true(oracle_window(rule, end - 1) == number);
    assert_true(oracle_window(rule, end) == number + 1);
    if (start > 0)
        assert_true(oracle_window(rule, start - 1) == number - 1);
}

static void test_windows_are_the_calendars(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("calendars");
    struct weir_algorithm_rule rule = { .algorithm = WEIR_FIXED_WINDOW,
                                        .quantity = 1 };
    for (int i = 0; i < 1000000; i++) {
        rule.calendar = (enum weir_calendar)(weir_rng_below(&rng, 5) + 1);
        rule.utc_offset_s = (int32_t)weir_rng_below(&rng, 2 * 86399) - 86399;
        assert_true(weir_algorithm_check(&rule));
        check_window(&rule, weir_rng_below(&rng, (uint64_t)1 << 62));
    }
}

/* The first and the last nanosecond of every month until 2116. */
static void test_every_month(void **state)
{
    (void)state;
    const struct weir_algorithm_rule rule = { .algorithm = WEIR_FIXED_WINDOW,
                                              .calendar = WEIR_CALENDAR_MONTH,
                                              .quantity = 1 };
    weir_instant start, end = 0;
    for (int64_t month = 0; month < (2116 - 1970) * 12; month++) {
        weir_instant begins = end;
        assert_true(weir_algorithm_window(&rule, &start, &end, begins) ==
                    month);
        assert_true(start == begins);
        assert_compare(end, >, begins);
        check_window(&rule, begins);
        check_window(&rule, end - 1);
    }
}

/* 2026-10-25 in Berlin has 25 hours: at 01:00 UTC +02:00 becomes +01:00. */
static void test_a_day_of_25_hours_is_one_day(void **state)
{
    (void)state;
    struct kept *bucket_state = made_bucket_state(WEIR_FIXED_WINDOW, 3, DAY, 1);
    struct weir_algorithm_rule *rule = &bucket_state->told.rule;
    weir_instant utc = 20751 * DAY; /* 2026-10-25 00:00 UTC */
    rule->calendar = WEIR_CALENDAR_DAY;
    rule->utc_offset_s = 7200;
    assert_int_equal(passes(bucket_state, 9, utc - 2 * HOUR - 1), 3);
    assert_int_equal(passes(bucket_state, 2, utc - 2 * HOUR), 2);
    rule->utc_offset_s = 3600;
    assert_int_equal(passes(bucket_state, 9, utc + HOUR), 1);
    assert_int_equal(passes(bucket_state, 9, utc + 23 * HOUR - 1), 0);
    assert_int_equal(passes(bucket_state, 9, utc + 23 * HOUR), 3);
    /* If clocks go back over midnight, the later day goes on. */
    rule->utc_offset_s = 0;
    assert_int_equal(passes(bucket_state, 9, utc + 23 * HOUR + 1), 0);
    assert_int_equal(passes(bucket_state, 9, utc + 48 * HOUR), 3);
    free(bucket_state);
}

/* A window of a calendar around the instant at which clocks are set. */
struct change {
    enum weir_calendar calendar;
    weir_duration before; /* it begins that long before */
    weir_duration after;  /* it ends that long after */
    weir_duration next;   /* length of the next window */
};

/* Asks at both ends, and on both sides of 'at', for more than the limit. */
static void check_change(const struct change *change, int32_t from_s,
                         int32_t to_s, weir_instant at)
{
    struct kept *bucket_state = made_bucket_state(WEIR_FIXED_WINDOW, 3, DAY, 1);
    struct weir_algorithm_rule *rule = &bucket_state->told.rule;
    weir_instant end = at + change->after;
    rule->calendar = change->calendar;
    rule->utc_offset_s = from_s;
    assert_int_equal(passes(bucket_state, 9, at - change->before - 1), 3);
    assert_int_equal(passes(bucket_state, 9, at - change->before), 3);
    assert_int_equal(passes(bucket_state, 9, at - 1), 0);
    rule->utc_offset_s = to_s;
    if (at < end) {
        struct weir_algorithm_answer answer =
            ask(bucket_state, WEIR_ALGORITHM_TAKE, 1, at);
        assert_false(answer.passed);
        assert_true(answer.retry_after == change->after);
        assert_int_equal(passes(bucket_state, 9, end - 1), 0);
    }
    assert_int_equal(passes(bucket_state, 9, end), 3);
    assert_int_equal(passes(bucket_state, 9, end + change->next - 1), 0);
    assert_int_equal(passes(bucket_state, 9, end + change->next), 3);
    free(bucket_state);
}

/* Setting a clock makes days of 23 and of 25 hours; but no window of an hour
 * has two hours, and none of a minute an hour. */
static void test_clocks_that_are_set(void **state)
{
    (void)state;
    /* Berlin, 2026-10-25 01:00 UTC: 03:00 becomes 02:00. */
    static const struct change back[] = {
        { WEIR_CALENDAR_MINUTE, MINUTE, 0, MINUTE },
        { WEIR_CALENDAR_HOUR, HOUR, 0, HOUR },
        { WEIR_CALENDAR_DAY, 3 * HOUR, 22 * HOUR, DAY },
        { WEIR_CALENDAR_WEEK, 6 * DAY + 3 * HOUR, 22 * HOUR, 7 * DAY },
        { WEIR_CALENDAR_MONTH, 24 * DAY + 3 * HOUR, 6 * DAY + 22 * HOUR,
          30 * DAY },
    };
    /* Berlin, 2026-03-29 01:00 UTC: 02:00 becomes 03:00. */
    static const struct change forward[] = {
        { WEIR_CALENDAR_MINUTE, MINUTE, 0, MINUTE },
        { WEIR_CALENDAR_HOUR, HOUR, 0, HOUR },
        { WEIR_CALENDAR_DAY, 2 * HOUR, 21 * HOUR, DAY },
        { WEIR_CALENDAR_WEEK, 6 * DAY + 2 * HOUR, 21 * HOUR, 7 * DAY },
        { WEIR_CALENDAR_MONTH, 28 * DAY + 2 * HOUR, 2 * DAY + 21 * HOUR,
          30 * DAY },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(back); i++)
        check_change(&back[i], 7200, 3600, 20751 * DAY + HOUR);
    for (size_t i = 0; i < WEIR_COUNT_OF(forward); i++)
        check_change(&forward[i], 3600, 7200, 20541 * DAY + HOUR);
    /* St. John's, 2026-11-01 04:30 UTC: hours that begin at half past. */
    check_change(&back[1], -9000, -12600, 20758 * DAY + 4 * HOUR + HOUR / 2);
}

/* Lord Howe's clocks are set by half an hour: 01:30 to 02:00 comes twice, the
 * second time as a window of its own; and 02:30 to 03:00 is still the hour
 * that 01:00 began. */
static void test_clocks_that_are_set_by_half_an_hour(void **state)
{
    (void)state;
    const struct change back = { WEIR_CALENDAR_HOUR, HOUR, 0, HOUR / 2 };
    const struct change forward = { WEIR_CALENDAR_HOUR, HOUR, HOUR / 2, HOUR };
    check_change(&back, 39600, 37800, 20547 * DAY + 15 * HOUR);
    check_change(&forward, 37800, 39600, 20729 * DAY + 15 * HOUR + HOUR / 2);
}

/* ---- Edits ---- */

static struct kept *carried(struct kept *from, struct kept *to,
                            weir_instant now)
{
    weir_algorithm_carry(&from->told.rule, from->state, &to->told.rule,
                         to->state, now);
    free(from);
    return to;
}

static void test_units_stay_used_through_edits(void **state)
{
    (void)state;
    static const enum weir_algorithm all[] = {
        WEIR_LEAKY,         WEIR_LEAKY_QUEUE,  WEIR_TOKEN_BUCKET,
        WEIR_TOKEN_BUCKETS, WEIR_FIXED_WINDOW, WEIR_SLIDING_LOG,
        WEIR_SLIDING_WINDOW
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(all); i++) {
        for (size_t j = 0; j < WEIR_COUNT_OF(all); j++) {
            struct kept *bucket_state =
                made_bucket_state(all[i], 100, MINUTE, 100);
            ask(bucket_state, WEIR_ALGORITHM_CHARGE, 60, MIDNIGHT);
            /* Another limit and window, another burst, fewer than are used,
             * and back; to and from another algorithm. */
            bucket_state =
                carried(bucket_state, made_bucket_state(all[j], 7, HOUR, 200),
                        MIDNIGHT);
            assert_int_equal(used(bucket_state, MIDNIGHT), 60);
            bucket_state =
                carried(bucket_state, made_bucket_state(all[j], 20, HOUR, 20),
                        MIDNIGHT);
            assert_int_equal(used(bucket_state, MIDNIGHT), 60);
            bucket_state =
                carried(bucket_state, made_bucket_state(all[i], 100, HOUR, 100),
                        MIDNIGHT);
            assert_int_equal(used(bucket_state, MIDNIGHT), 60);
            assert_true(weir_algorithm_idle_at(&bucket_state->told.rule,
                                               bucket_state->state,
                                               MIDNIGHT) > MIDNIGHT);
            free(bucket_state);
        }
    }
}

static void test_what_was_never_used_stays_so(void **state)
{
    (void)state;
    struct kept *bucket_state =
        made_bucket_state(WEIR_FIXED_WINDOW, 100, MINUTE, 100);
    bucket_state = carried(bucket_state, made_initial(0, 5), MIDNIGHT);
    assert_true(bucket_state->state[0] == 0);
    free(bucket_state);
}

/* An edit in the middle: units that have leaked are gone, and the rest leaks at
 * the new rate. */
static void test_a_bucket_goes_on_at_the_new_pace(void **state)
{
    (void)state;
    struct kept *bucket_state =
        made_bucket_state(WEIR_LEAKY, 10, WEIR_SECOND, 100);
    assert_true(takes(bucket_state, 100, MIDNIGHT));
    weir_instant now = MIDNIGHT + 4 * WEIR_SECOND;
    bucket_state =
        carried(bucket_state, made_bucket_state(WEIR_LEAKY, 1, DAY, 100), now);
    assert_int_equal(used(bucket_state, now), 60);
    assert_int_equal(used(bucket_state, now + 10 * DAY), 50);
    bucket_state =
        carried(bucket_state,
                made_bucket_state(WEIR_LEAKY, 1000000000, WEIR_SECOND, 100),
                now + 10 * DAY);
    assert_int_equal(used(bucket_state, now + 10 * DAY + 20), 30);
    free(bucket_state);
}

/* Half a unit of a slow limit is a whole one on a scale without halves. */
static void test_a_coarser_scale_rounds_up(void **state)
{
    (void)state;
    struct kept *bucket_state = made_bucket_state(WEIR_LEAKY, 1, DAY, 1);
    assert_true(takes(bucket_state, 1, MIDNIGHT));
    weir_instant now = MIDNIGHT + DAY / 2;
    struct kept *fast =
        made_bucket_state(WEIR_LEAKY, 100000000000, WEIR_SECOND, 100);
    assert_int_equal(fast->told.rule.bucket[0].bucket.leak.frac, 0);
    bucket_state = carried(bucket_state, fast, now);
    assert_int_equal(used(bucket_state, now), 1);
    assert_int_equal(used(bucket_state, now + 1), 0);
    free(bucket_state);
}

/* Another window length, or other parts: each unit ends when it would have, or
 * a little later, never sooner. */
static void test_parts_are_cut_anew(void **state)
{
    (void)state;
    struct kept *bucket_state = made_estimate(100, 4);
    for (int s = 0; s < 60; s++)
        assert_true(takes(bucket_state, 1, MIDNIGHT + s * WEIR_SECOND));
    struct kept *to = made_estimate(100, 6);
    to->told.rule.window = 2 * MINUTE;
    weir_instant now = MIDNIGHT + 59 * WEIR_SECOND;
    bucket_state = carried(bucket_state, to, now);
    assert_int_equal(used(bucket_state, now), 60);
    for (int s = 60; s < 240; s++) {
        int64_t left = s < 120 ? 60 : s < 180 ? 180 - s : 0;
        int64_t got = used(bucket_state, MIDNIGHT + s * WEIR_SECOND);
        assert_compare(got, >=, left);
        assert_compare(got, <=, left + 20);
    }
    free(bucket_state);
}

/* ---- The ends of the range ---- */

static void test_closed_refuses_all_and_open_nothing(void **state)
{
    (void)state;
    static const enum weir_algorithm all[] = {
        WEIR_LEAKY,         WEIR_LEAKY_QUEUE,  WEIR_TOKEN_BUCKET,
        WEIR_TOKEN_BUCKETS, WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(all); i++) {
        struct kept *bucket_state = made_bucket_state(all[i], 100, MINUTE, 100);
        struct weir_algorithm_rule *rule = &bucket_state->told.rule;
        weir_bucket_closed(&rule->bucket[0].bucket);
        rule->bucket[1].bucket.leak.frac = 0;
        rule->quantity = 0;
        assert_true(weir_algorithm_check(rule));
        for (uint64_t weight = 0; weight < 2; weight++) {
            struct weir_algorithm_answer answer =
                ask(bucket_state, WEIR_ALGORITHM_TAKE, weight, MIDNIGHT);
            assert_true(!answer.passed && answer.never);
            assert_true(answer.retry_after == WEIR_NEVER);
            assert_true(answer.remaining == 0);
        }
        weir_bucket_open(&rule->bucket[0].bucket);
        rule->quantity = WEIR_ALGORITHM_QUANTITY_MAX;
        for (int n = 0; n < 100000; n++)
            assert_true(takes(bucket_state, WEIR_WEIGHT_MAX, MIDNIGHT));
        free(bucket_state);
    }
}

static void test_charges_saturate(void **state)
{
    (void)state;
    static const enum weir_algorithm all[] = {
        WEIR_LEAKY,         WEIR_LEAKY_QUEUE,  WEIR_TOKEN_BUCKET,
        WEIR_TOKEN_BUCKETS, WEIR_FIXED_WINDOW, WEIR_SLIDING_LOG,
        WEIR_SLIDING_WINDOW
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(all); i++) {
        struct kept *bucket_state = made_bucket_state(all[i], 100, MINUTE, 100);
        for (int n = 0; n < 300; n++)
            ask(bucket_state, WEIR_ALGORITHM_CHARGE, WEIR_WEIGHT_MAX, MIDNIGHT);
        assert_true(used(bucket_state, MIDNIGHT) ==
                    (int64_t)(100 + WEIR_DEBT_MAX));
        assert_true(weir_algorithm_idle_at(&bucket_state->told.rule,
                                           bucket_state->state,
                                           MIDNIGHT) > MIDNIGHT);
        free(bucket_state);
    }
}

static void test_refused_ones_count_where_they_are_to(void **state)
{
    (void)state;
    static const enum weir_algorithm all[] = { WEIR_FIXED_WINDOW,
                                               WEIR_SLIDING_LOG,
                                               WEIR_SLIDING_WINDOW };
    for (size_t i = 0; i < WEIR_COUNT_OF(all); i++) {
        struct kept *bucket_state = made_bucket_state(all[i], 10, MINUTE, 1);
        assert_int_equal(passes(bucket_state, 30, MIDNIGHT), 10);
        assert_int_equal(used(bucket_state, MIDNIGHT), 10);
        bucket_state->told.rule.count_limited = true;
        assert_int_equal(passes(bucket_state, 30, MIDNIGHT), 0);
        assert_int_equal(used(bucket_state, MIDNIGHT), 40);
        free(bucket_state);
    }
}

static void test_unsound_rules(void **state)
{
    (void)state;
    struct kept *bucket_state =
        made_bucket_state(WEIR_SLIDING_WINDOW, 10, MINUTE, 1);
    struct weir_algorithm_rule *rule = &bucket_state->told.rule;
    rule->sub_windows = 0;
    assert_false(weir_algorithm_check(rule));
    rule->sub_windows = WEIR_SUB_WINDOWS_MAX + 1;
    assert_false(weir_algorithm_check(rule));
    rule->sub_windows = 4;
    rule->window = 3;
    assert_false(weir_algorithm_check(rule));
    rule->window = 0;
    assert_false(weir_algorithm_check(rule));
    rule->algorithm = WEIR_FIXED_WINDOW;
    assert_false(weir_algorithm_check(rule));
    rule->calendar = WEIR_CALENDAR_MONTH;
    assert_true(weir_algorithm_check(rule));
    rule->utc_offset_s = 86400;
    assert_false(weir_algorithm_check(rule));
    rule->algorithm = WEIR_SLIDING_LOG;
    rule->window = 1;
    rule->entries = 0;
    assert_false(weir_algorithm_check(rule));
    rule->algorithm = WEIR_TOKEN_BUCKETS;
    assert_false(weir_algorithm_check(rule));
    rule->algorithm = 0;
    assert_false(weir_algorithm_check(rule));
    free(bucket_state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_minute_before_by_seventeen_sixtieths),
        cmocka_unit_test(test_a_quarter_in_three_quarters_count),
        cmocka_unit_test(test_clusters_err_to_either_side),
        cmocka_unit_test(test_what_parts_promise),
        cmocka_unit_test(test_the_edge_of_a_window),
        cmocka_unit_test(test_rfc_2697_single_rate_three_colours),
        cmocka_unit_test(test_rfc_2698_two_rates_three_colours),
        cmocka_unit_test(test_an_empty_start_fills_from_the_first_look),
        cmocka_unit_test(test_units_above_the_burst_stay_until_spent),
        cmocka_unit_test(test_windows_are_the_calendars),
        cmocka_unit_test(test_every_month),
        cmocka_unit_test(test_clocks_that_are_set),
        cmocka_unit_test(test_clocks_that_are_set_by_half_an_hour),
        cmocka_unit_test(test_a_day_of_25_hours_is_one_day),
        cmocka_unit_test(test_units_stay_used_through_edits),
        cmocka_unit_test(test_what_was_never_used_stays_so),
        cmocka_unit_test(test_a_bucket_goes_on_at_the_new_pace),
        cmocka_unit_test(test_a_coarser_scale_rounds_up),
        cmocka_unit_test(test_parts_are_cut_anew),
        cmocka_unit_test(test_closed_refuses_all_and_open_nothing),
        cmocka_unit_test(test_charges_saturate),
        cmocka_unit_test(test_refused_ones_count_where_they_are_to),
        cmocka_unit_test(test_unsound_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
