/* SPDX-License-Identifier: MIT
 * test_fleet_limit.c - one limit from the batches of many members, beside one
 * controller that gets each sample itself. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/base/rng.h"
#include "core/concurrency/concurrency_gate.h"
#include "core/concurrency/fleet_limit.h"
#include "seed.h"

#define MS WEIR_MILLISECOND
#define MEMBERS 20

static void *take_memory(void *context, size_t size)
{
    (void)context;
    return calloc(1, size);
}

static void give_memory(void *context, void *block, size_t size)
{
    (void)context;
    (void)size;
    free(block);
}

static const struct weir_mem mem = { .alloc = take_memory,
                                     .free = give_memory };

static struct weir_controller_options usual(void)
{
    struct weir_controller_options options;
    weir_controller_defaults(&options, WEIR_CONTROLLER_TARGET);
    options.target = 200 * MS;
    options.seed = 7;
    return options;
}

/* ---- Windows and batches ---- */

static void middles_are_near(void **state)
{
    (void)state;
    static struct weir_latency_window window;
    struct weir_latency_count count[1];
    for (weir_duration latency = 1024; latency < WEIR_LATENCY_MAX;
         latency += latency / 97 + 1) {
        weir_latency_window_init(&window);
        weir_latency_window_add(&window, latency, false, 3);
        assert_int_equal(weir_latency_window_counts(&window, count), 1);
        assert_int_equal(count[0].count, 3);
        double middle = (double)weir_latency_bin_middle(count[0].bin);
        double off = middle / (double)latency - 1;
        assert_true(off < 1.0 / 63 && off > -1.0 / 63);
    }
}

static void batches_add_up(void **state)
{
    (void)state;
    static struct weir_latency_window one, all;
    static struct weir_latency_count counts[WEIR_WINDOW_BINS];
    struct weir_rng rng = made_seed("batches");
    weir_latency_window_init(&all);
    uint32_t samples = 0, slow = 0;
    for (int i = 0; i < 50; i++) {
        weir_latency_window_init(&one);
        for (uint64_t n = weir_rng_below(&rng, 200); n > 0; n--)
            weir_latency_window_add(&one,
                                    weir_rng_below(&rng, WEIR_LATENCY_MAX) >>
                                        weir_rng_below(&rng, 39),
                                    weir_rng_below(&rng, 4) == 0, 1);
        struct weir_latency_batch batch = {
            .slow = one.slow,
            .count = weir_latency_window_counts(&one, counts),
            .bins = counts,
        };
        weir_latency_window_merge(&all, &batch);
        samples += one.samples;
        slow += one.slow;
        assert_int_equal(all.samples, samples);
        assert_int_equal(all.slow, slow);
    }
}

/* ---- A fleet of members in front of one dependency ---- */

struct fleet {
    struct weir_fleet_limit *limit;
    weir_instant now;
    uint32_t members;
    weir_duration latency[MEMBERS]; /* as each measures it */
    uint32_t rate[MEMBERS];         /* requests in half a second */
    double granted;                 /* to each */
};

static void open_fleet(struct fleet *fleet, uint32_t members)
{
    struct weir_controller_options options = usual();
    *fleet = (struct fleet){ .now = 1000 * WEIR_SECOND,
                             .members = members,
                             .granted = 10 };
    fleet->limit = weir_fleet_limit_new(&mem, &options, fleet->now);
    assert_non_null(fleet->limit);
    for (uint32_t i = 0; i < members; i++) {
        fleet->latency[i] = 194 * MS;
        fleet->rate[i] = 25;
    }
}

/* Latencies are spread by 1 % each way. */
static void report(struct fleet *fleet, uint32_t member, uint64_t cut)
{
    static struct weir_latency_window window;
    static struct weir_latency_count counts[WEIR_WINDOW_BINS];
    weir_latency_window_init(&window);
    for (uint32_t i = 0; i < fleet->rate[member]; i++) {
        weir_duration latency = fleet->latency[member];
        latency = latency - latency / 100 + latency / 50 * i / 25;
        weir_latency_window_add(&window, latency, latency > 194 * MS, 1);
    }
    struct weir_latency_batch batch = {
        .cut = cut,
        .slow = window.slow,
        .peak = 10,
        .count = weir_latency_window_counts(&window, counts),
        .bins = counts,
    };
    assert_int_equal(weir_fleet_limit_take(fleet->limit, member, fleet->granted,
                                           &batch, fleet->now),
                     0);
}

/* Goes on until a window is over. */
static void pass_window(struct fleet *fleet)
{
    for (int i = 0; i < 100; i++) {
        fleet->now += 500 * MS;
        uint64_t cut = weir_fleet_limit_cut(fleet->limit);
        for (uint32_t member = 0; member < fleet->members; member++)
            report(fleet, member, cut);
        if (weir_fleet_limit_tick(fleet->limit, fleet->now))
            return;
    }
    fail_msg("no window was over in 50 s");
}

static double limit_of(const struct fleet *fleet)
{
    return weir_fleet_limit_limit(fleet->limit);
}

static struct weir_fleet_limit_view view_of(const struct fleet *fleet)
{
    struct weir_fleet_limit_view view;
    weir_fleet_limit_view(fleet->limit, &view, fleet->now);
    return view;
}

static void set_all(struct fleet *fleet, weir_duration latency)
{
    for (uint32_t i = 0; i < fleet->members; i++)
        fleet->latency[i] = latency;
}

static void the_limit_moves_as_one(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, 5);
    set_all(&fleet, 50 * MS);
    pass_window(&fleet);
    assert_float_equal(limit_of(&fleet), 2 * 20 + 0.5, 1e-6);
    uint64_t cut = weir_fleet_limit_cut(fleet.limit);
    assert_int_equal(cut, 0);
    set_all(&fleet, 388 * MS);
    pass_window(&fleet);
    assert_compare(limit_of(&fleet), <, 0.55 * 40.5);
    assert_compare(limit_of(&fleet), >=, 0.5 * 40.5 - 1e-9);
    assert_int_not_equal(weir_fleet_limit_cut(fleet.limit), cut);
    assert_int_equal(view_of(&fleet).members, 5);
    assert_int_equal(view_of(&fleet).in_flight, 50);
    weir_fleet_limit_free(fleet.limit);
}

/* Requests of before a decrease don't count, whenever their batch comes. */
static void earlier_cuts_do_not_count(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, 3);
    set_all(&fleet, 388 * MS);
    pass_window(&fleet);
    double limit = limit_of(&fleet);
    for (int i = 0; i < 40; i++) {
        fleet.now += 500 * MS;
        for (uint32_t member = 0; member < 3; member++)
            report(&fleet, member, 1);
        weir_fleet_limit_tick(fleet.limit, fleet.now);
    }
    assert_true(limit_of(&fleet) == limit);
    weir_fleet_limit_free(fleet.limit);
}

/* With a tenth of a permit each, twenty members have let in a request after ten
 * latencies: a window has two such rounds, up to its longest time. */
static void a_window_has_heard_all(void **state)
{
    (void)state;
    static const struct {
        double limit;
        weir_duration after;
    } cases[] = { { 20, 2 * WEIR_SECOND },
                  { 2, 4 * WEIR_SECOND },
                  { 1, 8 * WEIR_SECOND },
                  { 0.25, 15 * WEIR_SECOND } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fleet fleet;
        open_fleet(&fleet, 20);
        weir_instant begin = fleet.now;
        struct weir_controller_options options = usual();
        options.min = 0.25;
        weir_fleet_limit_edit(fleet.limit, &options, begin);
        weir_fleet_limit_begin(fleet.limit, cases[i].limit, begin);
        pass_window(&fleet);
        assert_int_equal(weir_since(begin, fleet.now), cases[i].after);
        weir_fleet_limit_free(fleet.limit);
    }
}

/* ---- Outliers ---- */

/* The next change that is told: the member, and whether it is left out. */
static void assert_news(struct fleet *fleet, uint32_t member, bool is_out)
{
    uint32_t found = MEMBERS;
    bool out = !is_out;
    assert_true(weir_fleet_limit_news(fleet->limit, &found, &out));
    assert_int_equal(found, member);
    assert_int_equal(out, is_out);
}

static void assert_no_news(struct fleet *fleet)
{
    uint32_t member;
    bool out;
    assert_false(weir_fleet_limit_news(fleet->limit, &member, &out));
}

static void a_slow_path_is_left_out(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, 5);
    set_all(&fleet, 150 * MS);
    pass_window(&fleet);
    double limit = limit_of(&fleet);
    fleet.latency[3] = 900 * MS;
    for (int i = 0; i < 2; i++) {
        assert_false(weir_fleet_limit_is_out(fleet.limit, 3));
        assert_no_news(&fleet);
        pass_window(&fleet);
        assert_true(limit_of(&fleet) == limit);
    }
    assert_true(weir_fleet_limit_is_out(fleet.limit, 3));
    assert_news(&fleet, 3, true);
    assert_no_news(&fleet);
    assert_int_equal(view_of(&fleet).outliers, 1);
    assert_int_equal(view_of(&fleet).excused, 2);
    /* From then on the others decide. */
    pass_window(&fleet);
    assert_compare(limit_of(&fleet), >, limit);
    set_all(&fleet, 388 * MS);
    limit = limit_of(&fleet);
    pass_window(&fleet);
    assert_compare(limit_of(&fleet), <, limit);
    /* It is back after two good windows. */
    set_all(&fleet, 150 * MS);
    pass_window(&fleet);
    assert_true(weir_fleet_limit_is_out(fleet.limit, 3));
    pass_window(&fleet);
    assert_false(weir_fleet_limit_is_out(fleet.limit, 3));
    assert_int_equal(view_of(&fleet).outliers, 0);
    assert_news(&fleet, 3, false);
    assert_no_news(&fleet);
    weir_fleet_limit_free(fleet.limit);
}

/* One slow member of twenty has one request in twenty: with them the window
 * isn't over the setpoint, and is judged. The member is left out all the
 * same. */
static void a_slow_path_that_does_no_harm(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, 20);
    set_all(&fleet, 100 * MS);
    fleet.latency[7] = 500 * MS;
    for (int i = 0; i < 4; i++) {
        double before = limit_of(&fleet);
        pass_window(&fleet);
        assert_compare(limit_of(&fleet), >, before);
    }
    assert_int_equal(view_of(&fleet).excused, 0);
    assert_int_equal(view_of(&fleet).outliers, 1);
    assert_news(&fleet, 7, true);
    weir_fleet_limit_free(fleet.limit);
}

/* A number is given again: its next member isn't left out, and that the former
 * one came back is no news. */
static void a_number_is_free_for_another(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, 5);
    set_all(&fleet, 150 * MS);
    pass_window(&fleet);
    fleet.latency[3] = fleet.latency[4] = 900 * MS;
    fleet.rate[4] = 0;
    pass_window(&fleet);
    pass_window(&fleet);
    assert_int_equal(view_of(&fleet).outliers, 1);
    assert_int_equal(weir_fleet_limit_numbers(fleet.limit), 5);
    assert_news(&fleet, 3, true);
    weir_fleet_limit_forget(fleet.limit, 3);
    assert_int_equal(view_of(&fleet).outliers, 0);
    assert_false(weir_fleet_limit_is_out(fleet.limit, 3));
    assert_no_news(&fleet);
    /* Left out again, and forgotten before that was told. */
    pass_window(&fleet);
    pass_window(&fleet);
    assert_true(weir_fleet_limit_is_out(fleet.limit, 3));
    weir_fleet_limit_forget(fleet.limit, 3);
    assert_no_news(&fleet);
    weir_fleet_limit_free(fleet.limit);
}

/* A process that was left out and ends leaves nothing: neither does the next
 * one that gets its number count as one, nor is there less room for others. */
static void an_outlier_that_goes_is_forgotten(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, 6);
    set_all(&fleet, 150 * MS);
    fleet.latency[5] = 900 * MS;
    pass_window(&fleet);
    pass_window(&fleet);
    assert_true(weir_fleet_limit_is_out(fleet.limit, 5));
    fleet.members = 5;
    weir_instant gone = fleet.now;
    while (fleet.now <= gone + WEIR_FLEET_LIMIT_SILENCE)
        pass_window(&fleet);
    assert_int_equal(view_of(&fleet).outliers, 0);
    assert_false(weir_fleet_limit_is_out(fleet.limit, 5));
    double limit = limit_of(&fleet);
    fleet.latency[4] = 900 * MS;
    pass_window(&fleet);
    pass_window(&fleet);
    assert_compare(limit_of(&fleet), >=, limit);
    assert_true(weir_fleet_limit_is_out(fleet.limit, 4));
    weir_fleet_limit_free(fleet.limit);
}

static void many_slow_paths_are_overload(void **state)
{
    (void)state;
    static const uint32_t members[] = { 2, 5, 20 }, slow[] = { 1, 2, 3 };
    for (int i = 0; i < 3; i++) {
        struct fleet fleet;
        open_fleet(&fleet, members[i]);
        set_all(&fleet, 150 * MS);
        pass_window(&fleet);
        double limit = limit_of(&fleet);
        for (uint32_t j = 0; j < slow[i]; j++)
            fleet.latency[j] = 900 * MS;
        pass_window(&fleet);
        assert_compare(limit_of(&fleet), <, limit);
        assert_int_equal(view_of(&fleet).excused, 0);
        weir_fleet_limit_free(fleet.limit);
    }
}

/* ---- Weight ---- */

/* A member with a hundred times as many samples as it can have let in
 * doesn't drown the others: they are over the target, and it says that all is
 * well. */
static void lies_weigh_as_their_part(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, 5);
    set_all(&fleet, 180 * MS);
    pass_window(&fleet);
    double limit = limit_of(&fleet);
    set_all(&fleet, 250 * MS);
    fleet.latency[0] = 20 * MS;
    fleet.rate[0] = 100 * 25;
    pass_window(&fleet);
    assert_compare(limit_of(&fleet), <, limit);
    assert_compare(view_of(&fleet).controller.samples, <,
                   view_of(&fleet).controller.slow * 5 / 2);
    weir_fleet_limit_free(fleet.limit);
}

/* The first 'hung' members say only that so many requests haven't come back for
 * a second; the others send good latencies. */
static void pass_with_overdue(struct fleet *fleet, uint32_t hung,
                              uint32_t overdue)
{
    for (int i = 0; i < 40; i++) {
        fleet->now += 500 * MS;
        uint64_t cut = weir_fleet_limit_cut(fleet->limit);
        const struct weir_latency_batch batch = { .cut = cut,
                                                  .peak = 10,
                                                  .overdue = overdue,
                                                  .overdue_age = WEIR_SECOND };
        for (uint32_t k = hung; k < fleet->members; k++)
            report(fleet, k, cut);
        for (uint32_t k = 0; k < hung; k++)
            assert_int_equal(weir_fleet_limit_take(fleet->limit, k,
                                                   fleet->granted, &batch,
                                                   fleet->now),
                             0);
        weir_fleet_limit_tick(fleet->limit, fleet->now);
    }
}

/* A process with a path that hangs, and one that says so of a million requests
 * that it can't have let in, don't shut the fleet. If it has so large a part
 * that it would, it is left out. */
static void a_hung_path_does_not_shut_the_fleet(void **state)
{
    (void)state;
    static const uint32_t overdue[] = { 10, 1000,
                                        WEIR_CONCURRENCY_GATE_UNITS_MAX };
    for (int i = 0; i < 6; i++) {
        struct fleet fleet;
        open_fleet(&fleet, 10);
        fleet.granted = i < 3 ? 10 : 200;
        set_all(&fleet, 150 * MS);
        pass_window(&fleet);
        double limit = limit_of(&fleet);
        pass_with_overdue(&fleet, 1, overdue[i % 3]);
        assert_compare(limit_of(&fleet), >=, limit);
        bool out = fleet.granted > 10 && overdue[i % 3] > 10;
        assert_int_equal(weir_fleet_limit_is_out(fleet.limit, 0), out);
        weir_fleet_limit_free(fleet.limit);
    }
}

/* Two of ten whose requests hang are what all have in common. */
static void two_hung_paths_are_overload(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, 10);
    fleet.granted = 200;
    set_all(&fleet, 150 * MS);
    pass_window(&fleet);
    double limit = limit_of(&fleet);
    pass_with_overdue(&fleet, 2, 100);
    assert_compare(limit_of(&fleet), <, limit);
    assert_int_equal(view_of(&fleet).outliers, 0);
    weir_fleet_limit_free(fleet.limit);
}

/* ---- Members that send anything ---- */

/* Any batch that the wire allows. */
static void any_batch(struct weir_rng *rng, struct weir_latency_count *bins,
                      struct weir_latency_batch *out)
{
    uint32_t units = WEIR_CONCURRENCY_GATE_UNITS_MAX + 1;
    uint64_t samples = 0, magnitude = weir_rng_below(rng, 25);
    *out = (struct weir_latency_batch){
        .cut = weir_rng_below(rng, 4),
        .peak = (uint32_t)weir_rng_below(rng, units),
        .overdue = (uint32_t)weir_rng_below(rng, units),
        .overdue_age = weir_rng_below(rng, 2)
                           ? weir_rng_below(rng, WEIR_SECOND)
                           : weir_rng_next(rng) >> weir_rng_below(rng, 64),
        .bins = bins,
    };
    uint64_t bin = weir_rng_below(rng, WEIR_WINDOW_BINS);
    while (bin < WEIR_WINDOW_BINS && samples < WEIR_WINDOW_SAMPLES_MAX) {
        uint64_t room = WEIR_WINDOW_SAMPLES_MAX - samples;
        uint64_t most = room < 1ull << magnitude ? room : 1ull << magnitude;
        uint64_t count = 1 + weir_rng_below(rng, most);
        samples += count;
        bins[out->count++] =
            (struct weir_latency_count){ (uint32_t)bin, (uint32_t)count };
        bin += 1 + weir_rng_below(rng, 300);
    }
    out->slow = (uint32_t)(samples - weir_rng_below(rng, samples + 1) *
                                         weir_rng_below(rng, 2));
    out->dropped =
        (uint32_t)(out->slow - weir_rng_below(rng, out->slow + 1ull) *
                                   weir_rng_below(rng, 2));
}

/* What goes up is within the bounds of the wire, whatever came: a root above
 * would else end the link of the whole region. */
static void what_goes_up_is_sound(void **state)
{
    (void)state;
    static struct weir_latency_count bins[WEIR_WINDOW_BINS];
    struct weir_rng rng = made_seed("fleet_up");
    struct weir_controller_options options = usual();
    options.given = true;
    weir_instant now = 1000 * WEIR_SECOND;
    struct weir_fleet_limit *fleet = weir_fleet_limit_new(&mem, &options, now);
    weir_fleet_limit_give(fleet, 8, 1, now);
    for (int i = 0; i < 300; i++) {
        struct weir_latency_batch batch, sum;
        for (uint64_t n = weir_rng_below(&rng, 200); n > 0; n--) {
            uint32_t member = (uint32_t)weir_rng_below(&rng, 600);
            double granted =
                weir_rng_unit(&rng) * 8 * (double)weir_rng_below(&rng, 2);
            any_batch(&rng, bins, &batch);
            if (weir_rng_below(&rng, 2))
                batch.cut = 1;
            now += weir_rng_below(&rng, 3) * weir_rng_below(&rng, 100 * MS);
            assert_int_equal(
                weir_fleet_limit_take(fleet, member, granted, &batch, now), 0);
        }
        weir_fleet_limit_collect(fleet, bins, &sum, now);
        uint64_t samples = 0;
        for (size_t k = 0; k < sum.count; k++)
            samples += sum.bins[k].count;
        assert_compare(samples, <=, WEIR_WINDOW_SAMPLES_MAX);
        assert_compare(sum.slow, <=, samples);
        assert_compare(sum.dropped, <=, sum.slow);
        assert_compare(sum.peak, <=, WEIR_CONCURRENCY_GATE_UNITS_MAX);
        assert_compare(sum.overdue, <=, WEIR_CONCURRENCY_GATE_UNITS_MAX);
    }
    weir_fleet_limit_free(fleet);
}

/* 2^32 requests that are overdue are many, and not none. */
static void overdue_ones_do_not_wrap(void **state)
{
    (void)state;
    static struct weir_latency_count bins[WEIR_WINDOW_BINS];
    struct weir_controller_options options = usual();
    options.given = true;
    weir_instant now = 1000 * WEIR_SECOND;
    struct weir_fleet_limit *fleet = weir_fleet_limit_new(&mem, &options, now);
    weir_fleet_limit_give(fleet, 8, 1, now);
    now += 10 * WEIR_SECOND;
    struct weir_latency_batch sum,
        batch = { .cut = 1,
                  .overdue = WEIR_CONCURRENCY_GATE_UNITS_MAX,
                  .overdue_age = WEIR_SECOND };
    for (uint32_t i = 0; i < 512; i++)
        assert_int_equal(
            weir_fleet_limit_take(fleet, i, WEIR_PERMITS_MAX, &batch, now), 0);
    weir_fleet_limit_collect(fleet, bins, &sum, now);
    assert_int_equal(sum.overdue, WEIR_PERMITS_MAX);
    weir_fleet_limit_free(fleet);
}

/* The limit stays within its bounds and time goes on, whatever comes. */
static void anything_is_borne(void **state)
{
    (void)state;
    static struct weir_latency_count bins[WEIR_WINDOW_BINS];
    struct weir_rng rng = made_seed("fleet_any");
    struct fleet fleet;
    open_fleet(&fleet, 5);
    for (int i = 0; i < 20000; i++) {
        struct weir_latency_batch batch;
        any_batch(&rng, bins, &batch);
        if (weir_rng_below(&rng, 2))
            batch.cut = weir_fleet_limit_cut(fleet.limit);
        double granted =
            weir_rng_unit(&rng) * 1e18 * (double)weir_rng_below(&rng, 2);
        fleet.now += weir_rng_below(&rng, 3) * weir_rng_below(&rng, 300 * MS);
        assert_int_equal(weir_fleet_limit_take(
                             fleet.limit, (uint32_t)weir_rng_below(&rng, 600),
                             granted, &batch, fleet.now),
                         0);
        weir_fleet_limit_tick(fleet.limit, fleet.now);
        assert_compare(weir_fleet_limit_deadline(fleet.limit), >=, fleet.now);
        assert_compare(limit_of(&fleet), >=, usual().min);
        assert_compare(limit_of(&fleet), <=, usual().max);
        struct weir_fleet_limit_view view = view_of(&fleet);
        assert_compare(view.controller.slow, <=, view.controller.samples);
        assert_compare(view.members, <=, 600);
        assert_compare(view.outliers, <=, 60);
    }
    weir_fleet_limit_free(fleet.limit);
}

/* A process that isn't asked for long: what it collects is sound. */
static void a_full_process_is_sound(void **state)
{
    (void)state;
    static _Alignas(8) unsigned char block[WEIR_CONTROLLER_SIZE_MAX];
    static struct weir_latency_count bins[WEIR_WINDOW_BINS];
    struct weir_controller_options options = usual();
    options.given = true;
    weir_instant now = 1000 * WEIR_SECOND;
    struct weir_controller *controller =
        weir_controller_init(block, &options, now);
    weir_controller_give(controller, 8, 1, now);
    now += 10 * WEIR_SECOND;
    struct weir_sample sample = { .latency = 150 * MS, .in_flight = 4 };
    for (uint32_t i = 0; i < WEIR_WINDOW_SAMPLES_MAX; i++)
        (void)weir_controller_sample(controller, &sample, now);
    sample.outcome = WEIR_SAMPLE_DROPPED;
    for (int i = 0; i < 3; i++)
        (void)weir_controller_sample(controller, &sample, now);
    const struct weir_overdue none = { .count = 0 };
    struct weir_latency_batch batch;
    weir_controller_collect(controller, &none, bins, &batch, now);
    assert_int_equal(batch.count, 1);
    assert_int_equal(batch.bins[0].count, WEIR_WINDOW_SAMPLES_MAX);
    assert_int_equal(batch.slow, 0);
    assert_int_equal(batch.dropped, 0);
}

/* ---- Members, a new master ---- */

static void members_come_and_go(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, 5);
    pass_window(&fleet);
    weir_fleet_limit_forget(fleet.limit, 4);
    weir_fleet_limit_forget(fleet.limit, 400);
    assert_int_equal(view_of(&fleet).in_flight, 40);
    fleet.members = 2;
    pass_window(&fleet);
    pass_window(&fleet);
    assert_int_equal(view_of(&fleet).members, 2);
    assert_int_equal(view_of(&fleet).in_flight, 20);
    weir_fleet_limit_free(fleet.limit);
}

static void a_new_master_begins_with_what_is_out(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, 2);
    weir_fleet_limit_begin(fleet.limit, 7.25, fleet.now);
    assert_float_equal(limit_of(&fleet), 7.25, 1e-9);
    weir_fleet_limit_begin(fleet.limit, 1e9, fleet.now);
    assert_float_equal(limit_of(&fleet), usual().max, 1e-9);
    struct weir_controller_options options = usual();
    options.max = 5;
    options.initial = 5;
    weir_fleet_limit_edit(fleet.limit, &options, fleet.now);
    assert_float_equal(limit_of(&fleet), 5, 1e-9);
    weir_fleet_limit_free(fleet.limit);
}

/* A member that comes again within a window is still one. */
static void a_member_that_comes_again_is_one(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, 1);
    for (int i = 0; i < 5; i++) {
        weir_fleet_limit_forget(fleet.limit, 0);
        report(&fleet, 0, 0);
        weir_fleet_limit_tick(fleet.limit, fleet.now);
    }
    assert_int_equal(view_of(&fleet).members, 1);
    weir_fleet_limit_free(fleet.limit);
}

/* ---- A gate with a given limit ---- */

static struct weir_concurrency_gate *made_gate(
    const struct weir_concurrency_gate_options *options, weir_instant now)
{
    static _Alignas(WEIR_CACHE_LINE) unsigned char block[64 << 10];
    assert_compare(weir_concurrency_gate_size(options), <=, sizeof(block));
    return weir_concurrency_gate_init(block, options, now);
}

static struct weir_concurrency_gate *given_gate(
    struct weir_concurrency_gate_options *options, weir_instant now)
{
    weir_concurrency_gate_defaults(options, WEIR_CONTROLLER_TARGET);
    options->controller.target = 200 * MS;
    options->controller.given = true;
    return made_gate(options, now);
}

static uint32_t enter_all(struct weir_concurrency_gate *gate,
                          struct weir_concurrency_gate_permit *permits,
                          weir_instant now)
{
    uint32_t count = 0;
    while (weir_concurrency_gate_enter(gate, 0, 1, &permits[count], now))
        count++;
    return count;
}

static void a_given_limit_is_kept(void **state)
{
    (void)state;
    weir_instant now = 1000 * WEIR_SECOND;
    struct weir_concurrency_gate_options options;
    struct weir_concurrency_gate *gate = given_gate(&options, now);
    static struct weir_concurrency_gate_permit permits[64];
    static struct weir_latency_count bins[WEIR_WINDOW_BINS];
    struct weir_latency_batch batch;
    assert_int_equal(enter_all(gate, permits, now), 1);
    assert_true(weir_concurrency_gate_give(gate, 10, 1, now));
    assert_int_equal(enter_all(gate, permits + 1, now), 9);
    /* They began before the cut that comes now. */
    now += 100 * MS;
    assert_true(weir_concurrency_gate_give(gate, 4, 2, now));
    for (int i = 0; i < 10; i++)
        weir_concurrency_gate_leave(gate, &permits[i], WEIR_SAMPLE_SUCCESS,
                                    now + 1);
    assert_true(weir_concurrency_gate_collect(gate, bins, &batch, now));
    assert_int_equal(batch.count, 0);
    assert_int_equal(batch.cut, 2);
    assert_int_equal(enter_all(gate, permits, now + 1), 4);
    now += 300 * MS;
    for (int i = 0; i < 3; i++)
        weir_concurrency_gate_leave(gate, &permits[i], WEIR_SAMPLE_SUCCESS,
                                    now);
    weir_concurrency_gate_leave(gate, &permits[3], WEIR_SAMPLE_DROPPED, now);
    assert_true(weir_concurrency_gate_collect(gate, bins, &batch, now));
    assert_int_equal(batch.slow, 4);
    assert_int_equal(batch.dropped, 1);
    assert_int_equal(batch.peak, 4);
    assert_true(weir_concurrency_gate_collect(gate, bins, &batch, now));
    assert_int_equal(batch.count, 0);
    /* Nothing moves it but another grant, and 0 refuses all. */
    assert_true(weir_concurrency_gate_give(gate, 0, 2, now));
    assert_int_equal(enter_all(gate, permits, now + 3600 * WEIR_SECOND), 0);
}

/* The average in flight of a class that is guaranteed 30 % of a part, while
 * another takes all that it can. */
static double share_of_part(double part)
{
    weir_instant now = 1000 * WEIR_SECOND;
    struct weir_concurrency_gate_options options;
    (void)given_gate(&options, now);
    options.classes = 2;
    options.class_of[0] =
        (struct weir_concurrency_gate_class){ .name = "sync",
                                              .share_percent = 30 };
    options.class_of[1] = (struct weir_concurrency_gate_class){ "bulk" };
    struct weir_concurrency_gate *gate = made_gate(&options, now);
    assert_true(weir_concurrency_gate_give(gate, part, 1, now));
    struct weir_concurrency_gate_permit permits[16] = { 0 };
    uint64_t held = 0;
    enum { TIMES = 100000 };
    for (int i = 0; i < TIMES; i++, now += MS) {
        for (int k = 0; k < 16; k++)
            if (now - permits[k].entered >= 100 * MS)
                weir_concurrency_gate_leave(gate, &permits[k],
                                            WEIR_SAMPLE_SUCCESS, now);
        for (int k = 0; k < 16; k++) { /* the other one is quicker */
            uint32_t klass = k < 8 ? 1 : 0;
            if (permits[k].units == 0)
                (void)weir_concurrency_gate_enter(gate, klass, 1, &permits[k],
                                                  now);
            held += klass == 0 && permits[k].units > 0;
        }
    }
    return (double)held / TIMES;
}

/* A share of a small part has no whole permit. */
static void a_class_has_its_share_of_a_part(void **state)
{
    (void)state;
    static const double parts[] = { 0.2, 1, 2.5, 5, 7.5 };
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        double share = 0.3 * parts[i];
        assert_float_equal(share_of_part(parts[i]) / share, 1, 0.1);
    }
}

/* Alone, a process goes on from its part; one that never had one begins as any
 * other. */
static void alone_it_goes_on_from_its_part(void **state)
{
    (void)state;
    weir_instant now = 1000 * WEIR_SECOND;
    struct weir_concurrency_gate_options options;
    struct weir_concurrency_gate *gate = given_gate(&options, now);
    assert_true(weir_concurrency_gate_give(gate, 6.5, 1, now));
    options.controller.given = false;
    assert_true(weir_concurrency_gate_edit(gate, &options, false, now));
    assert_float_equal(weir_concurrency_gate_limit(gate), 6.5, 1e-5);
    options.controller.given = true;
    assert_true(weir_concurrency_gate_edit(gate, &options, false, now));
    assert_float_equal(weir_concurrency_gate_limit(gate), 6.5, 1e-5);
    gate = given_gate(&options, now);
    assert_float_equal(weir_concurrency_gate_limit(gate), 1, 1e-5);
    options.controller.given = false;
    assert_true(weir_concurrency_gate_edit(gate, &options, false, now));
    assert_float_equal(weir_concurrency_gate_limit(gate), 20, 1e-5);
}

/* However many a member says that it had. */
static void samples_of_a_member_do_not_wrap(void **state)
{
    (void)state;
    struct weir_controller_options options = usual();
    options.initial = 5000;
    weir_instant now = 1000 * WEIR_SECOND;
    struct weir_fleet_limit *fleet = weir_fleet_limit_new(&mem, &options, now);
    struct weir_latency_count bin = { 0, WEIR_WINDOW_SAMPLES_MAX };
    struct weir_latency_batch batch = { .bins = &bin, .count = 1 };
    for (int i = 0; i < 300; i++) {
        now += 3 * MS;
        assert_int_equal(weir_fleet_limit_take(fleet, 0, 5000, &batch, now), 0);
        weir_fleet_limit_tick(fleet, now);
    }
    weir_fleet_limit_free(fleet);
}

/* The average in flight of all classes, of a part: 'percent' for sync. */
static double held_of_part(double part, double percent, bool sync, bool bulk)
{
    weir_instant now = 1000 * WEIR_SECOND;
    struct weir_concurrency_gate_options options;
    (void)given_gate(&options, now);
    options.classes = 2;
    options.class_of[0] =
        (struct weir_concurrency_gate_class){ .name = "sync",
                                              .share_percent = percent };
    options.class_of[1] = (struct weir_concurrency_gate_class){ "bulk" };
    struct weir_concurrency_gate *gate = made_gate(&options, now);
    assert_true(weir_concurrency_gate_give(gate, part, 1, now));
    struct weir_concurrency_gate_permit permits[16] = { 0 };
    uint64_t held = 0;
    enum { TIMES = 100000 };
    for (int i = 0; i < TIMES; i++, now += MS) {
        for (int k = 0; k < 16; k++)
            if (now - permits[k].entered >= 100 * MS)
                weir_concurrency_gate_leave(gate, &permits[k],
                                            WEIR_SAMPLE_SUCCESS, now);
        for (int k = 0; k < 16; k++) {
            uint32_t klass = k < 8 ? 1 : 0;
            if (permits[k].units == 0 && (klass == 0 ? sync : bulk))
                (void)weir_concurrency_gate_enter(gate, klass, 1, &permits[k],
                                                  now);
            held += permits[k].units > 0;
        }
    }
    return (double)held / TIMES;
}

static void classes_keep_to_a_part(void **state)
{
    (void)state;
    static const double parts[] = { 0.2, 0.5, 0.667, 0.9, 1.5, 2.5, 5.5 };
    static const double percents[] = { 0, 30, 50, 90, 100 };
    bool good = true;
    for (size_t k = 0; k < 5; k++)
        for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
            double one = held_of_part(parts[i], percents[k], true, false);
            double both = held_of_part(parts[i], percents[k], true, true);
            print_message("part %.3f, share %.0f %%: sync alone %.3f, both "
                          "%.3f\n",
                          parts[i], percents[k], one, both);
            /* Whole permits of a share come on top of whole ones. */
            double most = parts[i] < 1 ? 1.1 * parts[i] : parts[i] + 1;
            good = good && one < most && both < most;
        }
    assert_true(good);
}

/* Callers that wait are let in at the instant of the turn. */
static void pauses_are_spread_at_the_turn_itself(void **state)
{
    (void)state;
    weir_instant begin = 1000 * WEIR_SECOND, now = begin;
    struct weir_concurrency_gate_options options;
    struct weir_concurrency_gate *gate = given_gate(&options, now);
    struct weir_concurrency_gate_permit permit;
    assert_true(weir_concurrency_gate_give(gate, 0.5, 1, now));
    uint64_t entered = 0;
    while (now < begin + 100 * WEIR_SECOND) {
        if (!weir_concurrency_gate_enter(gate, 0, 1, &permit, now)) {
            weir_instant due = weir_concurrency_gate_due(gate, now);
            now = due > now ? due : now + MS;
            continue;
        }
        entered++;
        now += 100 * MS;
        weir_concurrency_gate_leave(gate, &permit, WEIR_SAMPLE_SUCCESS, now);
    }
    double held = (double)entered * 0.1 / 100;
    print_message("held %.3f of 0.5\n", held);
    assert_float_equal(held, 0.5, 0.05);
}

/* A lease is over, and the quota says that then nothing is let in. */
static void a_part_of_nothing_guarantees_nothing(void **state)
{
    (void)state;
    weir_instant now = 1000 * WEIR_SECOND;
    struct weir_concurrency_gate_options options;
    (void)given_gate(&options, now);
    options.classes = 2;
    options.class_of[0] =
        (struct weir_concurrency_gate_class){ .name = "sync",
                                              .share_percent = 50 };
    options.class_of[1] = (struct weir_concurrency_gate_class){ "bulk" };
    struct weir_concurrency_gate *gate = made_gate(&options, now);
    static const double permits[WEIR_CONCURRENCY_GATE_CLASSES_MAX] = { 5 };
    struct weir_concurrency_gate_permit permit;
    assert_true(weir_concurrency_gate_give(gate, 10, 1, now));
    assert_true(weir_concurrency_gate_guarantee(gate, permits));
    assert_true(weir_concurrency_gate_give(gate, 0, 1, now));
    assert_false(weir_concurrency_gate_enter(gate, 0, 1, &permit, now));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_of_nothing_guarantees_nothing),
        cmocka_unit_test(pauses_are_spread_at_the_turn_itself),
        cmocka_unit_test(classes_keep_to_a_part),
        cmocka_unit_test(samples_of_a_member_do_not_wrap),
        cmocka_unit_test(middles_are_near),
        cmocka_unit_test(batches_add_up),
        cmocka_unit_test(the_limit_moves_as_one),
        cmocka_unit_test(earlier_cuts_do_not_count),
        cmocka_unit_test(a_window_has_heard_all),
        cmocka_unit_test(a_slow_path_is_left_out),
        cmocka_unit_test(a_slow_path_that_does_no_harm),
        cmocka_unit_test(a_number_is_free_for_another),
        cmocka_unit_test(an_outlier_that_goes_is_forgotten),
        cmocka_unit_test(many_slow_paths_are_overload),
        cmocka_unit_test(lies_weigh_as_their_part),
        cmocka_unit_test(a_hung_path_does_not_shut_the_fleet),
        cmocka_unit_test(two_hung_paths_are_overload),
        cmocka_unit_test(what_goes_up_is_sound),
        cmocka_unit_test(overdue_ones_do_not_wrap),
        cmocka_unit_test(anything_is_borne),
        cmocka_unit_test(a_full_process_is_sound),
        cmocka_unit_test(members_come_and_go),
        cmocka_unit_test(a_new_master_begins_with_what_is_out),
        cmocka_unit_test(a_member_that_comes_again_is_one),
        cmocka_unit_test(a_given_limit_is_kept),
        cmocka_unit_test(a_class_has_its_share_of_a_part),
        cmocka_unit_test(alone_it_goes_on_from_its_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
