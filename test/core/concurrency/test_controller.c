/* SPDX-License-Identifier: MIT
 * test_controller.c - each controller compared with its original; target after
 * a stall is in test_target_stall.c.
 *
 * Numbers called 'upstream' are expectations of the original's own tests; the
 * others are derived by hand from the original's formulas. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "controller_samples.h"

/* ---- none, request ---- */

static void test_none_stays(void **state)
{
    (void)state;
    struct weir_controller_options o = usual(WEIR_CONTROLLER_NONE, 7, 1, 9);
    struct weir_controller *c = made(&o);
    NEAR(ok(c, 10 * WEIR_SECOND, 7), 7);
    NEAR(dropped(c, 10 * WEIR_SECOND, 7), 7);
    assert_true(weir_controller_deadline(c) == WEIR_NEVER);
    assert_int_equal(weir_controller_mean(c), 10 * WEIR_SECOND);
}

/* The article's first one: no window, no guard, and drops are ignored. */
static void test_request_as_the_article(void **state)
{
    (void)state;
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_REQUEST, 26, 1, 50);
    struct weir_controller *c = made(&o);
    NEAR(ok(c, 200 * MS, 1), 27); /* the target itself is not over it */
    NEAR(dropped(c, 5000 * MS, 1), 27);
    const double falls[] = { 13, 6, 3, 1, 1 };
    for (int i = 0; i < 5; i++)
        NEAR(ok(c, 201 * MS, 26), falls[i]);
    for (int i = 0; i < 60; i++)
        ok(c, 1 * MS, 1);
    NEAR(limit_of(c), 50);
}

/* AIMDLimit of Netflix (upstream; Helidon's are the same). */
static void test_request_as_netflix(void **state)
{
    (void)state;
    static const struct {
        double initial, max;
        uint32_t in_flight;
        bool dropped;
        double limit;
    } rows[] = { { 20, 200, 10, false, 21 },
                 { 30, 200, 0, true, 27 },
                 { 21, 21, 10, false, 21 },
                 { 20, 200, 9, false, 20 } };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        struct weir_controller_options o =
            usual(WEIR_CONTROLLER_REQUEST, rows[i].initial, 20, rows[i].max);
        o.guard = WEIR_GUARD_BEGUN;
        o.backoff = 0.9;
        o.drops = true;
        o.target = 5 * WEIR_SECOND;
        struct weir_controller *c = made(&o);
        double limit = rows[i].dropped ? dropped(c, MS, rows[i].in_flight)
                                       : ok(c, MS, rows[i].in_flight);
        NEAR(limit, rows[i].limit);
    }
}

/* Upstream: squeeze, and throttle-net with its step of one. */
static void test_request_as_others(void **state)
{
    (void)state;
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_REQUEST, 10, 1, 1000);
    o.guard = WEIR_GUARD_BEGUN;
    o.drops = true;
    struct weir_controller *c = made(&o);
    NEAR(feed(c, MS, 10, WEIR_SAMPLE_IGNORED), 10);
    NEAR(dropped(c, MS, 10), 5);
    o.initial = 4;
    NEAR(ok(made(&o), MS, 3), 5);
    NEAR(ok(made(&o), MS, 1), 4);
    o.initial = 64;
    o.min = 4;
    c = made(&o);
    for (int i = 0; i < 10; i++)
        dropped(c, MS, 64);
    NEAR(limit_of(c), 4);
}

/* ---- percentile ---- */

static double after_window(const struct weir_controller_options *o, double from,
                           uint32_t slow, uint32_t left)
{
    struct weir_controller_options options = *o;
    options.initial = from;
    struct weir_controller *c = made(&options);
    for (uint32_t i = 0; i < options.count; i++) {
        struct weir_sample sample = {
            .latency = i < slow ? 201 * MS : 200 * MS,
            .in_flight = left + 1,
            .left = left,
        };
        NEAR(limit_of(c), from);
        bool judged = weir_controller_sample(c, &sample, ++clock_now);
        assert_true(judged == (i + 1 == options.count));
    }
    return limit_of(c);
}

/* The article's table: slow samples of 320 against the limit and the requests
 * left. */
static void test_percentile_table(void **state)
{
    (void)state;
    static const struct {
        double from;
        uint32_t left;
        double limit[4];
    } columns[] = {
        { 26, 0, { 26, 26, 13, 13 } },  { 26, 12, { 26, 26, 13, 13 } },
        { 26, 13, { 27, 27, 13, 13 } }, { 1, 0, { 2, 2, 1, 1 } },
        { 2, 0, { 2, 2, 1, 1 } },       { 3, 0, { 3, 3, 1, 1 } },
        { 3, 1, { 4, 4, 1, 1 } },       { 50, 25, { 50, 50, 25, 25 } },
        { 12, 5, { 12, 12, 6, 6 } },    { 12, 6, { 13, 13, 6, 6 } },
    };
    static const uint32_t slow[] = { 0, 16, 17, 320 };
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_PERCENTILE, 26, 1, 50);
    for (size_t i = 0; i < WEIR_COUNT_OF(columns); i++)
        for (int j = 0; j < 4; j++)
            NEAR(after_window(&o, columns[i].from, slow[j], columns[i].left),
                 columns[i].limit[j]);
    /* The guard's first version never leaves a limit of one. */
    o.guard = WEIR_GUARD_LEFT_BARE;
    NEAR(after_window(&o, 1, 0, 0), 1);
}

static void test_percentile_trips(void **state)
{
    (void)state;
    static const struct {
        uint32_t count;
        double percentile;
        uint32_t index, trip;
    } rows[] = {
        { 320, 95, 303, 17 },  { 320, 99, 316, 4 },   { 320, 90, 287, 33 },
        { 320, 75, 239, 81 },  { 320, 50, 159, 161 }, { 320, 100, 319, 1 },
        { 320, 10, 31, 289 },  { 200, 95, 189, 11 },  { 100, 95, 94, 6 },
        { 50, 95, 47, 3 },     { 10, 95, 9, 1 },      { 10, 10, 0, 10 },
        { 1000, 95, 949, 51 },
    };
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_PERCENTILE, 26, 1, 50);
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        o.count = rows[i].count;
        o.percentile = rows[i].percentile;
        uint32_t millionths = weir_percentile_millionths(o.percentile);
        uint32_t trip = weir_latency_window_trip(o.count, millionths);
        assert_int_equal(trip, rows[i].trip);
        assert_int_equal(o.count - trip, rows[i].index);
        NEAR(after_window(&o, 26, rows[i].trip, 25), 13);
        NEAR(after_window(&o, 26, rows[i].trip - 1, 25), 27);
    }
}

/* ---- The window ---- */

static int by_size(const void *a, const void *b)
{
    weir_duration x = *(const weir_duration *)a;
    weir_duration y = *(const weir_duration *)b;
    return x < y ? -1 : x > y;
}

/* Bins compared with sorting: never off by more than a bin's width, and exact
 * if all are equal. */
static void test_window_percentiles(void **state)
{
    (void)state;
    static struct weir_latency_window window;
    weir_duration latency[1000];
    struct weir_rng rng = { 7 };
    weir_latency_window_init(&window);
    for (int round = 0; round < 300; round++) {
        uint32_t count = 1 + (uint32_t)weir_rng_below(&rng, 1000);
        unsigned shift = (unsigned)weir_rng_below(&rng, 30);
        for (uint32_t i = 0; i < count; i++) {
            latency[i] = weir_rng_below(&rng, 1024ull << shift);
            weir_latency_window_add(&window, latency[i], false, 1);
        }
        qsort(latency, count, sizeof(latency[0]), by_size);
        uint32_t millionths = 1 + (uint32_t)weir_rng_below(&rng, 1000000);
        weir_duration p = weir_latency_window_percentile(&window, millionths);
        weir_duration exact =
            latency[count - weir_latency_window_trip(count, millionths)];
        weir_duration off = p > exact ? p - exact : exact - p;
        assert_true(exact < 1024 ? p < 1024 : off <= exact / 32 + 1);
        weir_latency_window_clear(&window);
        assert_int_equal(weir_latency_window_percentile(&window, millionths),
                         0);
    }
    weir_latency_window_add(&window, WEIR_LATENCY_MAX, true, 5);
    assert_int_equal(weir_latency_window_percentile(&window, 950000),
                     WEIR_LATENCY_MAX);
    weir_latency_window_add(&window, 1, false, UINT32_MAX);
    assert_int_equal(window.samples, WEIR_WINDOW_SAMPLES_MAX);
    assert_int_equal(window.slow, 5);
}

/* ---- vegas (upstream, but for the last two) ---- */

static void test_vegas_small(void **state)
{
    (void)state;
    static const struct {
        unsigned latency_ms, in_flight;
        double limit;
    } rows[] = { { 10, 11, 16 }, { 50, 11, 9 }, { 14, 14, 10 } };
    struct weir_controller_options o = usual(WEIR_CONTROLLER_VEGAS, 10, 1, 20);
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        struct weir_controller *c = made(&o);
        NEAR(ok(c, 10 * MS, 10), 10);
        NEAR(ok(c, rows[i].latency_ms * MS, rows[i].in_flight), rows[i].limit);
    }
}

static void test_vegas_large_and_smooth(void **state)
{
    (void)state;
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_VEGAS, 10000, 1, 20000);
    struct weir_controller *c = made(&o);
    NEAR(ok(c, 10 * WEIR_SECOND, 5000), 10000);
    NEAR(ok(c, 10 * WEIR_SECOND, 6000), 10024);

    static const double limits[2][3] = { { 100, 75, 56 }, { 100, 50, 25 } };
    for (int i = 0; i < 2; i++) {
        o = usual(WEIR_CONTROLLER_VEGAS, 100, 1, 200);
        o.backoff = 0.5;
        o.smoothing = i == 0 ? 0.5 : 1;
        c = made(&o);
        for (int j = 0; j < 3; j++)
            NEAR(ok(c, j == 0 ? 10 * MS : 20 * MS, 100), limits[i][j]);
    }
}

static void test_vegas_drops_and_probes(void **state)
{
    (void)state;
    struct weir_controller_options o = usual(WEIR_CONTROLLER_VEGAS, 10, 1, 20);
    o.probe_multiplier = 3; /* after 15 to 30 samples */
    struct weir_controller *c = made(&o);
    ok(c, 10 * MS, 1);
    NEAR(dropped(c, 20 * MS, 1), 9);
    /* In overload the new baseline is the overloaded latency: upstream's
     * flaw. */
    int samples = 0;
    struct weir_controller_view view;
    do {
        ok(c, 500 * MS, 1);
        weir_controller_view(c, &view);
    } while (view.baseline == 10 * MS && ++samples < 100);
    assert_in_range(samples, 13, 30);
    assert_int_equal(view.baseline, 500 * MS);
}

/* ---- gradient2 (derived; the mean's row is upstream's) ---- */

static void test_gradient2_mean(void **state)
{
    (void)state;
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_GRADIENT2, 20, 20, 200);
    o.long_window = 100;
    struct weir_controller *c = made(&o);
    for (int i = 0; i < 10; i++) {
        ok(c, (weir_duration)(10 + i) * MS, 1);
        NEAR(c->gradient.mean / 1e6, 10 + i / 2.0);
    }
    ok(c, 100 * MS, 1);
    NEAR(c->gradient.mean / 1e6, 14.5 + (100 - 14.5) * 2 / 101);
}

static void test_gradient2_moves(void **state)
{
    (void)state;
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_GRADIENT2, 100, 20, 200);
    struct weir_controller *c = made(&o);
    NEAR(ok(c, 10 * MS, 49), 100); /* too little in flight */
    NEAR(ok(c, 10 * MS, 50), 100); /* 100.8, of which the whole ones count */
    NEAR(c->limit, 100.8);
    c = made(&o);
    /* Mean of 10 and 40 is 25; 1.5 * 25 / 40: 0.9375. */
    ok(c, 10 * MS, 1);
    ok(c, 40 * MS, 100);
    NEAR(c->limit, 0.8 * 100 + 0.2 * (93.75 + 4));
    /* No less than half; a dropped request counts as a latency. */
    c = made(&o);
    for (int i = 0; i < 9; i++)
        ok(c, 10 * MS, 1);
    dropped(c, 10000 * MS, 100);
    NEAR(c->limit, 0.8 * 100 + 0.2 * (0.5 * 100 + 4));
    /* After load the mean comes down by a twentieth more. */
    c = made(&o);
    for (int i = 0; i < 10; i++)
        ok(c, 100 * MS, 1);
    ok(c, 10 * MS, 1);
    NEAR(c->gradient.mean / 1e6, 0.95 * (100 - 90 * 2 / 601.0));
}

/* ---- envoy ---- */

static struct weir_controller *envoy_steady(struct weir_controller_options *o)
{
    struct weir_controller *c = made(o);
    clock_now += WEIR_SECOND;
    return c;
}

static double interval(struct weir_controller *c, weir_duration latency,
                       int samples)
{
    clock_now = weir_controller_deadline(c);
    weir_controller_tick(c, NULL, clock_now);
    for (int i = 0; i < samples; i++)
        ok(c, latency, 1);
    clock_now = weir_controller_deadline(c);
    weir_controller_tick(c, NULL, clock_now);
    return limit_of(c);
}

static void test_envoy_step(void **state)
{
    (void)state;
    static const struct {
        double latency_ms, limit;
    } rows[] = { { 5, 214 }, { 10, 136 }, { 12.5, 110 },
                 { 15, 92 }, { 20, 70 },  { 30, 57 } };
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_ENVOY, 100, 3, 1000);
    o.least_latency = 10 * MS; /* and so never measured */
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        struct weir_controller *c = envoy_steady(&o);
        NEAR(interval(c, (weir_duration)(rows[i].latency_ms * 1e6), 9),
             rows[i].limit);
    }
}

static void test_envoy_measures(void **state)
{
    (void)state;
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_ENVOY, 20, 7, 1000);
    o.probe_limit = 7;
    struct weir_controller *c = made(&o);
    struct weir_controller_view view;
    NEAR(limit_of(c), 7);
    assert_true(weir_controller_deadline(c) == WEIR_NEVER);
    clock_now += WEIR_SECOND;
    for (int i = 0; i < 50; i++) {
        weir_controller_view(c, &view);
        assert_int_equal(view.baseline, 0);
        assert_int_equal(view.reason, WEIR_LIMIT_MEASURING);
        ok(c, 13 * MS, 1);
    }
    weir_controller_view(c, &view);
    assert_int_equal(view.baseline, 13 * MS);
    assert_int_equal(view.reason, WEIR_LIMIT_MEASURED);
    NEAR(limit_of(c), 20);
    assert_true(weir_controller_deadline(c) == clock_now + WEIR_SECOND / 10);
}

/* The median of 1 … 5 ms is 3; requests that began before the probe are
 * ignored. */
static void test_envoy_median_of_its_own(void **state)
{
    (void)state;
    struct weir_controller_options o = usual(WEIR_CONTROLLER_ENVOY, 3, 3, 1000);
    o.probe_count = 5;
    struct weir_controller *c = made(&o);
    struct weir_controller_view view;
    for (int i = 0; i < 5; i++)
        ok(c, 900 * MS, 3);
    weir_controller_view(c, &view);
    assert_int_equal(view.baseline, 0);
    clock_now += 10 * MS;
    for (unsigned i = 1; i <= 5; i++)
        ok(c, i * MS, 3);
    weir_controller_view(c, &view);
    assert_int_equal(view.baseline, 3 * MS);
}

static void measure(struct weir_controller *c, weir_duration latency)
{
    clock_now += WEIR_SECOND;
    for (int i = 0; i < 50; i++)
        ok(c, latency, 1);
}

static void test_envoy_floor_and_buffer(void **state)
{
    (void)state;
    struct weir_controller_options o = usual(WEIR_CONTROLLER_ENVOY, 8, 7, 1000);
    o.probe_limit = 7;
    o.buffer = 0.5;
    struct weir_controller *c = made(&o);
    measure(c, 5 * MS);
    assert_compare(interval(c, 6 * MS, 5), >, 8);
    double before = limit_of(c);
    NEAR(interval(c, 6 * MS, 0), before); /* no samples: as it was */
    for (int i = 0; i < 20 && limit_of(c) > 7; i++)
        interval(c, 900 * MS, 5);
    NEAR(limit_of(c), 7);
    /* Five times at the floor, and the minimum is measured anew. */
    struct weir_controller_view view;
    int intervals = 1;
    do {
        interval(c, 900 * MS, 5);
        intervals++;
    } while (weir_controller_deadline(c) != WEIR_NEVER && intervals < 20);
    weir_controller_view(c, &view);
    assert_int_equal(intervals, 5);
}

/* An edit of the controller's kind or of the least limit is in force only after
 * the probe. */
static void test_envoy_measures_beside_edits(void **state)
{
    (void)state;
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_VEGAS, 200, 1, 1000);
    struct weir_controller *c = made(&o);
    o = usual(WEIR_CONTROLLER_ENVOY, 3, 3, 1000);
    weir_controller_edit(c, &o, clock_now);
    assert_true(limit_of(c) == o.probe_limit);
    assert_true(c->envoy.probing != 0);
    o.min = 10;
    weir_controller_edit(c, &o, clock_now);
    assert_true(limit_of(c) == o.probe_limit);
    for (uint32_t i = 1; i < o.probe_count; i++)
        assert_true(ok(c, 0, 3) == o.probe_limit);
    assert_true(ok(c, 0, 3) == 200);
}

/* Without a pin the limit in force stays during a probe, and within an edit's
 * bounds. */
static void test_envoy_probe_within_edited_bounds(void **state)
{
    (void)state;
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_ENVOY, 50, 3, 1000);
    o.probe_limit = 0;
    struct weir_controller *c = made(&o);
    assert_true(c->envoy.probing != 0);
    assert_true(limit_of(c) == 50);
    o.max = 20;
    weir_controller_edit(c, &o, clock_now);
    assert_true(c->envoy.probing != 0);
    assert_true(limit_of(c) == 20);
    assert_int_equal(c->view.reason, WEIR_LIMIT_EDITED);
    o.min = 30;
    o.max = 40;
    weir_controller_edit(c, &o, clock_now);
    assert_true(limit_of(c) == 30);
}

/* 100 s, and at random up to a tenth more; the same random numbers each
 * time. */
static void test_envoy_probes_on_time(void **state)
{
    (void)state;
    struct weir_controller_options o = usual(WEIR_CONTROLLER_ENVOY, 9, 3, 1000);
    o.probe_interval = 100 * WEIR_SECOND;
    o.probe_jitter = 0.1;
    weir_duration first = 0;
    bool differ = false;
    for (unsigned i = 0; i < 20; i++) {
        o.seed = i / 2;
        struct weir_controller *c = made(&o);
        measure(c, 5 * MS);
        weir_duration wait = c->envoy.probe_at - clock_now;
        assert_in_range(wait, 100 * WEIR_SECOND, 110 * WEIR_SECOND);
        assert_true(i % 2 == 0 || wait == first);
        differ |= first != 0 && wait != first;
        first = wait;
        clock_now = c->envoy.probe_at;
        assert_true(weir_controller_tick(c, NULL, clock_now));
        NEAR(limit_of(c), 3);
        measure(c, 5 * MS);
        NEAR(limit_of(c), 9);
    }
    assert_true(differ);
    o.least_latency = 50 * MS;
    struct weir_controller *c = made(&o);
    assert_true(c->envoy.probe_at == WEIR_NEVER);
}

/* ---- target ---- */

/* By count and age: each alone doesn't close a window. */
static void test_target_windows(void **state)
{
    (void)state;
    struct weir_controller *c = target_made(20);
    answers(c, 5000, 50 * MS, 0, 0, 1990 * MS);
    assert_int_equal(windows_of(c), 0);
    answers(c, 10, 50 * MS, 0, 0, 20 * MS);
    assert_int_equal(windows_of(c), 1);
    answers(c, 40, 50 * MS, 0, 0, 9 * WEIR_SECOND);
    assert_int_equal(windows_of(c), 1);
    answers(c, 10, 50 * MS, 0, 0, WEIR_SECOND);
    assert_int_equal(windows_of(c), 2);
    answers(c, 5, 50 * MS, 0, 0, 16 * WEIR_SECOND); /* old, and a few */
    assert_int_equal(windows_of(c), 3);
    /* Twice the latency, if that is more. */
    answers(c, 60, 3 * WEIR_SECOND, 0, 0, 5 * WEIR_SECOND);
    assert_int_equal(windows_of(c), 3);
    answers(c, 60, 3 * WEIR_SECOND, 0, 0, 2 * WEIR_SECOND);
    assert_int_equal(windows_of(c), 4);
}

/* In proportion, down to the back-off; 5 in 100 are not the 95th percentile. */
static void test_target_falls(void **state)
{
    (void)state;
    struct weir_controller *c = target_made(20);
    answers(c, 100, 190 * MS, 5, WEIR_SECOND, 2010 * MS);
    assert_compare(limit_of(c), >=, 20);
    c = target_made(20);
    answers(c, 100, 190 * MS, 6, 250 * MS, 2010 * MS);
    NEAR(limit_of(c), 20 * 194.0 / 250);
    c = target_made(20);
    answers(c, 100, 190 * MS, 50, WEIR_SECOND, 2010 * MS);
    NEAR(limit_of(c), 10);
    struct weir_controller_view view;
    weir_controller_view(c, &view);
    assert_int_equal(view.reason, WEIR_LIMIT_SLOW);
    NEAR(view.before, 20);
    NEAR(view.limit, 10);
    assert_int_equal(view.slow, 50);
    assert_int_equal(view.samples, 100);
}

/* Requests that began before the last decrease don't cause the next one. */
static void test_target_falls_once_a_delay(void **state)
{
    (void)state;
    struct weir_controller *c = target_made(16);
    answers(c, 100, WEIR_SECOND, 0, 0, 2010 * MS);
    NEAR(limit_of(c), 8);
    weir_instant cut = clock_now;
    struct weir_sample sample = { .in_flight = 16 };
    for (int i = 0; i < 3000; i++) {
        clock_now += 10 * MS;
        sample.latency = clock_now - cut + MS;
        weir_controller_sample(c, &sample, clock_now);
    }
    NEAR(limit_of(c), 8);
    answers(c, 100, WEIR_SECOND, 0, 0, 2010 * MS);
    NEAR(limit_of(c), 4);
}

static void test_target_rises_where_used(void **state)
{
    (void)state;
    struct weir_controller *c = target_made(41);
    answers(c, 100, 50 * MS, 0, 0, 2010 * MS);
    NEAR(limit_of(c), 41); /* 20 in flight: less than half */
    c = target_made(10);
    answers(c, 100, 50 * MS, 0, 0, 2010 * MS);
    NEAR(limit_of(c), 10 + 10.5); /* far below target, never cut: it doubles */
    answers(c, 100, WEIR_SECOND, 0, 0, 2010 * MS);
    clock_now += WEIR_SECOND;
    double before = limit_of(c);
    answers(c, 200, 50 * MS, 0, 0, 2010 * MS);
    NEAR(limit_of(c), before + (before + 0.5) * 0.1);
    before = limit_of(c);
    answers(c, 200, 180 * MS, 0, 0, 2010 * MS);
    NEAR(limit_of(c), before + (before + 0.5) * 0.5 * (194.0 / 180 - 1));
}

/* The limit leaves its lower bound again. */
static void test_target_below_one(void **state)
{
    (void)state;
    struct weir_controller *c = target_made(1);
    for (int i = 0; i < 40; i++) {
        answers(c, 100, WEIR_SECOND, 0, 0, 3010 * MS);
        clock_now += 2 * WEIR_SECOND;
    }
    NEAR(limit_of(c), WEIR_PERMITS_MIN);
    for (int i = 0; i < 40; i++) {
        answers(c, 100, 20 * MS, 0, 0, 2010 * MS);
        clock_now += WEIR_SECOND;
    }
    assert_compare(limit_of(c), >, 1);
}

/* The article's blink: ten slow answers in a row cause no decrease. */
static void test_ten_slow_in_a_row(void **state)
{
    (void)state;
    struct weir_controller *c = target_made(26);
    for (int second = 0; second < 10; second++)
        answers(c, 200, 50 * MS, second == 5 ? 10 : 0, 500 * MS, WEIR_SECOND);
    assert_compare(limit_of(c), >=, 26);
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_PERCENTILE, 26, 1, 50);
    c = made(&o);
    answers(c, 320, 50 * MS, 10, 500 * MS, WEIR_SECOND);
    NEAR(limit_of(c), 26);
    o.percentile = 99;
    c = made(&o);
    answers(c, 320, 50 * MS, 10, 500 * MS, WEIR_SECOND);
    NEAR(limit_of(c), 13);
}

/* A hang: no answer comes, and the age of the requests in flight counts. */
static void test_hang_is_heard_of(void **state)
{
    (void)state;
    struct weir_controller *c = target_made(26);
    answers(c, 200, 50 * MS, 0, 0, 2010 * MS);
    double before = limit_of(c);
    weir_instant hung = clock_now;
    struct weir_overdue overdue = { .count = 26 };
    for (int window = 0; window < 2 && limit_of(c) == before; window++) {
        clock_now = weir_controller_deadline(c);
        overdue.age = clock_now - hung;
        weir_controller_tick(c, &overdue, clock_now);
    }
    NEAR(limit_of(c), before / 2);
    struct weir_controller_view view;
    weir_controller_view(c, &view);
    assert_int_equal(view.reason, WEIR_LIMIT_DROPPED);
    /* The same requests don't count twice, nor do those that were young until
     * then. */
    weir_instant since[] = { hung, clock_now };
    for (int window = 0; window < 10; window++) {
        clock_now = weir_controller_deadline(c);
        overdue.age = clock_now - since[window / 5];
        weir_controller_tick(c, &overdue, clock_now);
    }
    NEAR(limit_of(c), before / 2);
}

/* And with callers that give up, however quickly they were refused. */
static void test_drops_are_slow(void **state)
{
    (void)state;
    struct weir_controller *c = target_made(26);
    for (int i = 0; i < 100; i++) {
        clock_now += 25 * MS;
        feed(c, i % 10 == 0 ? MS : 50 * MS, 26,
             i % 10 == 0 ? WEIR_SAMPLE_DROPPED : WEIR_SAMPLE_SUCCESS);
    }
    NEAR(limit_of(c), 13);
}

/* ---- Invariants of all kinds ---- */

/* Of target: 'most' is the highest limit so far, 'cut_at' was its value. */
static void check_stall(const struct weir_controller *c, bool drops,
                        double before, double most, weir_instant cut_at)
{
    const struct weir_target_state *target = &c->target;
    assert_true(target->full > 0 || target->stall == 0);
    assert_true(drops || target->full == 0);
    assert_compare(target->full, <=, most);
    assert_true(target->cut_at >= cut_at);
    bool rose = c->limit > before;
    assert_true(!rose || c->view.reason == WEIR_LIMIT_ROOM || c->limit <= most);
}

static struct weir_sample random_sample(struct weir_rng *rng)
{
    static const enum weir_sample_outcome outcomes[] = { WEIR_SAMPLE_SUCCESS,
                                                         WEIR_SAMPLE_SUCCESS,
                                                         WEIR_SAMPLE_DROPPED,
                                                         WEIR_SAMPLE_IGNORED };
    uint64_t shift = weir_rng_below(rng, 64);
    return (struct weir_sample){
        .latency = weir_rng_next(rng) >> shift,
        .outcome = outcomes[weir_rng_below(rng, 4)],
        .in_flight = (uint32_t)(weir_rng_next(rng) >> (32 + shift / 2)),
        .left = (uint32_t)(weir_rng_next(rng) >> (32 + shift / 2)),
    };
}

/* Under any load the limit stays within its bounds, and the same seed gives the
 * same limit. */
static double history(enum weir_controller_kind kind, bool drops, uint64_t seed)
{
    struct weir_controller_options o;
    weir_controller_defaults(&o, kind);
    struct weir_controller *c = made(&o);
    struct weir_rng rng = { seed };
    double sum = 0, most = o.initial;
    for (int i = 0; i < 20000; i++) {
        struct weir_sample sample = random_sample(&rng);
        clock_now += weir_rng_next(&rng) >> (20 + weir_rng_below(&rng, 44));
        weir_instant at = clock_now - weir_rng_below(&rng, 3) * MS;
        struct weir_overdue overdue = {
            .count = (uint32_t)weir_rng_below(&rng, 3),
            .age = sample.latency,
        };
        if (!drops) {
            sample.outcome = WEIR_SAMPLE_SUCCESS;
            overdue.count = 0;
        }
        double before = limit_of(c);
        weir_instant cut_at = c->target.cut_at;
        if (weir_rng_below(&rng, 4) == 0)
            weir_controller_tick(c, &overdue, at);
        else
            weir_controller_sample(c, &sample, at);
        double limit = limit_of(c);
        assert_compare(limit, >=, o.min);
        assert_compare(limit, <=, o.max);
        assert_compare(weir_controller_mean(c), >=, 1);
        struct weir_controller_view view;
        weir_controller_view(c, &view);
        assert_compare(view.slow, <=, view.samples);
        assert_true(limit == before || view.reason != WEIR_LIMIT_INITIAL);
        if (kind == WEIR_CONTROLLER_TARGET)
            check_stall(c, drops, before, most, cut_at);
        most = limit > most ? limit : most;
        sum += limit;
    }
    return sum;
}

static void test_any_history(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < WEIR_CONTROLLER_KINDS; kind++)
        for (uint64_t seed = 1; seed <= 20; seed++) {
            enum weir_controller_kind this = (enum weir_controller_kind)kind;
            double sum = history(this, true, seed);
            NEAR(sum - history(this, true, seed), 0);
            history(this, false, seed);
        }
}

static void test_names(void **state)
{
    (void)state;
    for (unsigned i = 0; i < WEIR_CONTROLLER_KINDS; i++) {
        enum weir_controller_kind kind = (enum weir_controller_kind)i;
        const char *text = weir_controller_kind_text(kind);
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(
                text, weir_controller_kind_text((enum weir_controller_kind)k));
    }
    for (unsigned i = 0; i < WEIR_LIMIT_REASONS; i++)
        assert_non_null(weir_limit_reason_text((enum weir_limit_reason)i));
}

#define REFUSED(kind, change)                                            \
    do {                                                                 \
        struct weir_controller_options o;                                \
        struct weir_diag diag = { 0 };                                   \
        weir_controller_defaults(&o, kind);                              \
        change;                                                          \
        assert_int_equal(weir_controller_check(&o, &diag), WEIR_EINVAL); \
        assert_compare(strlen(diag.text), >, 0);                         \
    } while (0)

static void test_bad_options(void **state)
{
    (void)state;
    REFUSED(WEIR_CONTROLLER_TARGET, (o.min = 30, o.max = 20));
    REFUSED(WEIR_CONTROLLER_TARGET, o.target = 0);
    REFUSED(WEIR_CONTROLLER_PERCENTILE, (o.percentile = 100, o.count = 1));
    REFUSED(WEIR_CONTROLLER_PERCENTILE, o.percentile = 0);
    REFUSED(WEIR_CONTROLLER_PERCENTILE, o.percentile = 100.1);
    REFUSED(WEIR_CONTROLLER_PERCENTILE, o.percentile = 0.0 / 0.0 * o.min);
    REFUSED(WEIR_CONTROLLER_PERCENTILE, o.min = 0.5);
    REFUSED(WEIR_CONTROLLER_REQUEST, o.initial = 51);
    REFUSED(WEIR_CONTROLLER_REQUEST, o.backoff = 0);
    REFUSED(WEIR_CONTROLLER_TARGET, o.setpoint = 1.01);
    REFUSED(WEIR_CONTROLLER_TARGET, o.window_max = o.window_min - 1);
    REFUSED(WEIR_CONTROLLER_TARGET, o.growth = 0);
    REFUSED(WEIR_CONTROLLER_VEGAS, o.alpha = 7);
    REFUSED(WEIR_CONTROLLER_GRADIENT2, o.tolerance = 0.9);
    REFUSED(WEIR_CONTROLLER_ENVOY, o.probe_count = 0);
    REFUSED(WEIR_CONTROLLER_ENVOY, o.window_min = 0);
    REFUSED(WEIR_CONTROLLER_NONE, o.kind = (enum weir_controller_kind)7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none_stays),
        cmocka_unit_test(test_request_as_the_article),
        cmocka_unit_test(test_request_as_netflix),
        cmocka_unit_test(test_request_as_others),
        cmocka_unit_test(test_percentile_table),
        cmocka_unit_test(test_percentile_trips),
        cmocka_unit_test(test_window_percentiles),
        cmocka_unit_test(test_vegas_small),
        cmocka_unit_test(test_vegas_large_and_smooth),
        cmocka_unit_test(test_vegas_drops_and_probes),
        cmocka_unit_test(test_gradient2_mean),
        cmocka_unit_test(test_gradient2_moves),
        cmocka_unit_test(test_envoy_step),
        cmocka_unit_test(test_envoy_measures),
        cmocka_unit_test(test_envoy_median_of_its_own),
        cmocka_unit_test(test_envoy_floor_and_buffer),
        cmocka_unit_test(test_envoy_measures_beside_edits),
        cmocka_unit_test(test_envoy_probe_within_edited_bounds),
        cmocka_unit_test(test_envoy_probes_on_time),
        cmocka_unit_test(test_target_windows),
        cmocka_unit_test(test_target_falls),
        cmocka_unit_test(test_target_falls_once_a_delay),
        cmocka_unit_test(test_target_rises_where_used),
        cmocka_unit_test(test_target_below_one),
        cmocka_unit_test(test_ten_slow_in_a_row),
        cmocka_unit_test(test_hang_is_heard_of),
        cmocka_unit_test(test_drops_are_slow),
        cmocka_unit_test(test_any_history),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
