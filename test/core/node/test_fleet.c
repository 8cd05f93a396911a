/* SPDX-License-Identifier: MIT
 * test/core/node/test_fleet.c - how well a limit holds: fleets in virtual time
 * under a Poisson load of three times the limit, from a seed. The bounds are
 * much wider than the observed values (printed); the lab (`weir lab`) judges
 * finely.
 *
 * Also the effects of a root's settings: without slack a limiter reports once
 * an interval; a correction ratio adds the presumed counts of others. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/root_state.h"
#include "lab/fleet.h"
#include "seed.h"

#define LIMIT 1000
#define SECONDS 30
#define WARM_UP 10

struct outcome {
    double mean, deviation; /* passed per second after warm-up, of LIMIT */
    double reports;         /* per root link and second */
    double fill_most;       /* at the roots, units */
};

#define Q WEIR_TEXT("q")
#define BIG WEIR_TEXT("big")

static uint64_t all_reports(struct weir_fleet *fleet, uint32_t limiters)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < limiters; i++)
        sum += weir_limiter_reports(weir_fleet_limiter(fleet, i));
    return sum;
}

static void run_on(struct weir_fleet *fleet, weir_duration span)
{
    weir_fleet_run(fleet, weir_fleet_now(fleet) + span);
}

static void put(struct weir_fleet *fleet, struct weir_text name, uint64_t units,
                uint64_t low, uint64_t high)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = name;
    quota.limit = (struct weir_limit){ .units = units, .per = WEIR_SECOND };
    quota.low_burst = (struct weir_burst){ .amount = low };
    quota.high_burst = (struct weir_burst){ .amount = high };
    assert_int_equal(weir_fleet_put(fleet, &quota, NULL), 0);
}

static void put_stale(struct weir_fleet *fleet, enum weir_on_stale on_stale)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = Q;
    quota.limit = (struct weir_limit){ .units = LIMIT, .per = WEIR_SECOND };
    quota.low_burst = (struct weir_burst){ .amount = LIMIT };
    quota.high_burst = (struct weir_burst){ .amount = LIMIT * 3 / 2 };
    quota.on_stale = on_stale;
    assert_int_equal(weir_fleet_put(fleet, &quota, NULL), 0);
}

static struct weir_fleet *make_fleet(uint32_t limiters, weir_duration delay,
                                     const struct weir_settings *settings)
{
    struct weir_fleet_options options = {
        .seed = from_environment("WEIR_SEED", 1),
        .limiters = limiters,
        .limiters_started = limiters,
        .roots = 2,
        .slots = 16,
        .net = { .shape = WEIR_DELAY_UNIFORM,
                 .delay = delay * 3 / 4,
                 .spread = delay / 4 },
        .settings = *settings,
    };
    struct weir_fleet *fleet = weir_fleet_new(&options);
    put(fleet, Q, LIMIT, LIMIT, LIMIT + LIMIT / 2);
    run_on(fleet, 2 * WEIR_SECOND);
    return fleet;
}

/* One second of load; returns the units that passed. */
static uint64_t second_of(struct weir_fleet *fleet, uint32_t limiters,
                          double offered, double *out_fill)
{
    struct weir_world *world = weir_fleet_world(fleet);
    weir_instant start = weir_fleet_now(fleet);
    double at = 0;
    uint64_t passed = 0;
    for (;;) {
        at += weir_world_exponential(world, 1 / offered);
        if (at >= 1)
            break;
        weir_fleet_run(fleet, start + (weir_duration)(at * 1e9));
        uint32_t who = (uint32_t)weir_rng_below(&world->rng, limiters);
        unsigned outcome = weir_fleet_take(fleet, who, Q, 1, NULL);
        passed += !(outcome & WEIR_OUTCOME_LIMITED);
        *out_fill = fmax(*out_fill, weir_fleet_root_fill(fleet, 0, Q));
    }
    weir_fleet_run(fleet, start + WEIR_SECOND);
    return passed;
}

static struct outcome run(const char *what, uint32_t limiters,
                          weir_duration delay,
                          const struct weir_settings *settings)
{
    struct weir_fleet *fleet = make_fleet(limiters, delay, settings);
    struct outcome out = { 0 };
    double squares = 0;
    uint64_t before = 0;
    for (int second = 0; second < SECONDS; second++) {
        if (second == WARM_UP)
            before = all_reports(fleet, limiters);
        double passed =
            (double)second_of(fleet, limiters, 3.0 * LIMIT, &out.fill_most) /
            LIMIT;
        if (second < WARM_UP)
            continue;
        out.mean += passed;
        squares += passed * passed;
    }
    int count = SECONDS - WARM_UP;
    out.mean /= count;
    out.deviation = sqrt(fmax(0, squares / count - out.mean * out.mean));
    out.reports =
        (double)(all_reports(fleet, limiters) - before) / count / 2 / limiters;
    assert_int_equal(weir_fleet_error(fleet), 0);
    weir_fleet_free(fleet);
    print_message("%-26s %2u limiters: mean %.4f sd %.4f, highest fill %.0f, "
                  "%.1f reports a link and second\n",
                  what, limiters, out.mean, out.deviation, out.fill_most,
                  out.reports);
    return out;
}

static const struct weir_settings with_slack = {
    .report_interval = WEIR_SECOND,
    .stale_after = 3 * WEIR_SECOND,
    .slack = true,
};

/* The cut isn't signalled: limiters wait at their stops, and only then keep
 * their last probability. */
static void test_hold_outlasts_a_silent_cut(void **state)
{
    (void)state;
    struct weir_fleet *fleet = make_fleet(4, WEIR_MILLISECOND, &with_slack);
    put_stale(fleet, WEIR_STALE_HOLD);
    double fill = 0;
    for (int second = 0; second < WARM_UP; second++)
        second_of(fleet, 4, 3.0 * LIMIT, &fill);
    for (uint32_t i = 0; i < 4; i++) {
        weir_fleet_cut(fleet, i, 0, WEIR_WAY_BOTH, 60 * WEIR_SECOND);
        weir_fleet_cut(fleet, i, 1, WEIR_WAY_BOTH, 60 * WEIR_SECOND);
    }
    for (int second = 0; second < 5; second++)
        second_of(fleet, 4, 3.0 * LIMIT, &fill);
    double passed = 0;
    for (int second = 0; second < SECONDS; second++)
        passed += (double)second_of(fleet, 4, 3.0 * LIMIT, &fill) / LIMIT;
    weir_fleet_free(fleet);
    print_message("hold, after a silent cut: %.3f of the limit\n",
                  passed / SECONDS);
    assert_compare(fabs(passed / SECONDS - 1), <, 0.15);
}

static void test_slack_holds_the_limit(void **state)
{
    (void)state;
    const uint32_t fleets[] = { 1, 3, 50 };
    for (size_t i = 0; i < WEIR_COUNT_OF(fleets); i++) {
        struct outcome out =
            run("slack", fleets[i], WEIR_MILLISECOND, &with_slack);
        assert_compare(fabs(out.mean - 1), <, 0.01);
        assert_compare(out.deviation, <, 0.04);
        assert_compare(out.fill_most, <=, 1.5 * LIMIT);
    }
}

/* ---- Four kinds of quota side by side, over any five seconds ---- */

#define BIN (100 * WEIR_MILLISECOND)
#define FLOW_S 32
#define DEAD_FROM_S 12
#define DEAD_TO_S 22
#define BINS_IN(seconds) ((seconds)*WEIR_SECOND / BIN)
#define WINDOW BINS_IN(5)
#define ONSET BINS_IN(3)

/* The load on one quota: one link or a chain of three, by count or by bytes.
 * Chains end at a parent with the limit, or begin with a child of it. */
static struct flow {
    struct weir_text name;
    uint64_t limit, weight;
    uint64_t passed[BINS_IN(FLOW_S) + 1]; /* by the beginning of each bin */
    double fill_most;                     /* at the roots, of high_burst */
} flows[] = {
    { WEIR_TEXT("count"), LIMIT, 1, { 0 }, 0 },
    { WEIR_TEXT("chain/a/b"), LIMIT, 1, { 0 }, 0 },
    { WEIR_TEXT("bytes"), LIMIT * 1000, 1000, { 0 }, 0 },
    { WEIR_TEXT("load/a/b"), LIMIT * 1000, 1000, { 0 }, 0 },
};

static void put_below(struct weir_fleet *fleet, struct weir_text parent,
                      struct weir_text name, uint64_t units)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = name;
    quota.parent = parent;
    quota.limit = (struct weir_limit){ .units = units, .per = WEIR_SECOND };
    assert_int_equal(weir_fleet_put(fleet, &quota, NULL), 0);
}

static void put_flows(struct weir_fleet *fleet)
{
    const struct weir_text top = { NULL, 0 };
    const struct weir_text chain[] = { WEIR_TEXT("chain"),
                                       WEIR_TEXT("chain/a") };
    const struct weir_text bytes[] = { WEIR_TEXT("load"), WEIR_TEXT("load/a") };
    put_below(fleet, top, flows[0].name, LIMIT);
    put_below(fleet, top, chain[0], LIMIT);
    put_below(fleet, chain[0], chain[1], 2 * LIMIT);
    put_below(fleet, chain[1], flows[1].name, 5 * LIMIT);
    put_below(fleet, top, flows[2].name, LIMIT * 1000);
    put_below(fleet, top, bytes[0], 5000 * LIMIT);
    put_below(fleet, bytes[0], bytes[1], 2000 * LIMIT);
    put_below(fleet, bytes[1], flows[3].name, 1000 * LIMIT);
}

/* A weight of half to one and a half of the flow's, but always 1 of 1. */
static uint64_t ask_for(struct weir_fleet *fleet, uint32_t limiters,
                        const struct flow *flow)
{
    struct weir_rng *rng = &weir_fleet_world(fleet)->rng;
    uint64_t weight = flow->weight;
    if (weight > 1)
        weight = weight / 2 + weir_rng_below(rng, weight + 1);
    uint32_t limiter = (uint32_t)weir_rng_below(rng, limiters);
    unsigned outcome =
        weir_fleet_take(fleet, limiter, flow->name, weight, NULL);
    return outcome & WEIR_OUTCOME_LIMITED ? 0 : weight;
}

/* A bin of three times the limit of each. */
static void bin_of(struct weir_fleet *fleet, uint32_t limiters, size_t bin)
{
    struct weir_world *world = weir_fleet_world(fleet);
    weir_instant start = weir_fleet_now(fleet);
    double between = 1.0 / (3 * LIMIT * WEIR_COUNT_OF(flows));
    for (size_t i = 0; i < WEIR_COUNT_OF(flows); i++)
        flows[i].passed[bin + 1] = flows[i].passed[bin];
    for (double at = weir_world_exponential(world, between);
         at < (double)BIN / WEIR_SECOND;
         at += weir_world_exponential(world, between)) {
        weir_fleet_run(fleet, start + (weir_duration)(at * 1e9));
        struct flow *flow =
            &flows[weir_rng_below(&world->rng, WEIR_COUNT_OF(flows))];
        flow->passed[bin + 1] += ask_for(fleet, limiters, flow);
        double high = 1.5 * (double)flow->limit;
        struct weir_text limits = flow->name;
        if (flow == &flows[1])
            limits = WEIR_TEXT("chain");
        for (uint32_t root = 0; root < 2; root++)
            flow->fill_most =
                fmax(flow->fill_most,
                     weir_fleet_root_fill(fleet, root, limits) / high);
    }
    weir_fleet_run(fleet, start + BIN);
}

static void judge(const struct flow *flow)
{
    double least = 1e9, most = 0;
    for (size_t bin = ONSET; bin + WINDOW <= BINS_IN(FLOW_S); bin++) {
        double mean = (double)(flow->passed[bin + WINDOW] - flow->passed[bin]) /
                      5 / (double)flow->limit;
        least = fmin(least, mean);
        most = fmax(most, mean);
    }
    print_message("  %-10.*s passed %.4f to %.4f of the limit in any five "
                  "seconds; highest fill %.3f of high_burst\n",
                  (int)flow->name.len, flow->name.p, least, most,
                  flow->fill_most);
    assert_compare(least, >, 0.98);
    assert_compare(most, <, 1.02);
    assert_compare(flow->fill_most, >, 0.6);
    assert_compare(flow->fill_most, <=, 1);
}

/* So it is while one of the two roots is dead and after its restart. Also at
 * the onset, when limiters begin all at once, no bucket is filled above
 * high_burst. (Over seeds 1 to 16: 0.985 to 1.016 of the limit, 0.934 of
 * high_burst.) */
static void test_any_five_seconds_hold_the_limit(void **state)
{
    (void)state;
    struct weir_fleet *fleet = make_fleet(3, WEIR_MILLISECOND, &with_slack);
    put_flows(fleet);
    run_on(fleet, WEIR_SECOND);
    const struct weir_node_place root = { .root = true, .index = 0 };
    for (size_t bin = 0; bin < BINS_IN(FLOW_S); bin++) {
        if (bin == BINS_IN(DEAD_FROM_S))
            weir_fleet_kill(fleet, root);
        if (bin == BINS_IN(DEAD_TO_S))
            weir_fleet_start(fleet, root);
        bin_of(fleet, 3, bin);
    }
    assert_int_equal(weir_fleet_error(fleet), 0);
    weir_fleet_free(fleet);
    for (size_t i = 0; i < WEIR_COUNT_OF(flows); i++)
        judge(&flows[i]);
}

static uint32_t count_stale(struct weir_fleet *fleet)
{
    uint32_t stale = 0;
    for (uint32_t i = 0; i < weir_fleet_limiters(fleet); i++)
        stale += weir_table_is_stale(weir_fleet_table(fleet, i));
    return stale;
}

static void test_one_root_ends_on_stale(void **state)
{
    (void)state;
    struct weir_fleet *fleet = make_fleet(3, WEIR_MILLISECOND, &with_slack);
    for (uint32_t i = 0; i < 2; i++)
        weir_fleet_kill(fleet,
                        (struct weir_node_place){ .root = true, .index = i });
    run_on(fleet, with_slack.stale_after / 2);
    assert_int_equal(count_stale(fleet), 0);
    run_on(fleet, with_slack.stale_after);
    assert_int_equal(count_stale(fleet), 3);
    weir_fleet_start(fleet,
                     (struct weir_node_place){ .root = true, .index = 1 });
    run_on(fleet, WEIR_SECOND / 2);
    assert_int_equal(count_stale(fleet), 0);
    weir_fleet_free(fleet);
}

static void test_slack_holds_over_a_slow_network(void **state)
{
    (void)state;
    struct outcome out =
        run("slack, 50 ms one way", 50, 50 * WEIR_MILLISECOND, &with_slack);
    assert_compare(fabs(out.mean - 1), <, 0.02);
    assert_compare(out.deviation, <, 0.06);
    assert_compare(out.fill_most, <=, 1.6 * LIMIT);
}

static void test_without_slack_time_alone_reports(void **state)
{
    (void)state;
    struct weir_settings settings = with_slack;
    settings.slack = false;
    struct outcome out = run("slack off", 3, WEIR_MILLISECOND, &settings);
    assert_compare(fabs(out.reports - 1), <, 0.1);
    assert_compare(fabs(out.mean - 1), <, 0.1);
    settings.report_interval = 100 * WEIR_MILLISECOND;
    struct outcome often =
        run("slack off, every 100 ms", 3, WEIR_MILLISECOND, &settings);
    assert_compare(fabs(often.reports - 10), <, 1);
    assert_compare(often.deviation, <, out.deviation);
}

/* The bucket's true fill, without reports: the units that passed, less the
 * leak. */
static double truth(struct weir_fleet *fleet, uint32_t limiters,
                    const double *before)
{
    double passed = 0;
    for (uint32_t i = 0; i < limiters; i++)
        passed += (double)weir_fleet_count(fleet, i, Q);
    double in = passed - before[0];
    double leaked =
        ((double)weir_fleet_now(fleet) / WEIR_SECOND - before[1]) * LIMIT;
    return in - leaked;
}

/* Units that leaked from the root's bucket while it was empty: its fill without
 * presumed units, less the units that it was told of and that didn't leak. */
static double lost_leak(struct weir_fleet *fleet, uint32_t index,
                        const double *before)
{
    struct weir_root *root = weir_fleet_root(fleet, index);
    struct weir_root_quota *root_quota = weir_merge_get(&root->merge, Q);
    assert_non_null(root_quota);
    weir_instant now = weir_fleet_clock_of(fleet, weir_root_place(index));
    double presumed =
        ldexp((double)weir_merge_presumed(&root->merge, root_quota, now),
              -(int)root_quota->bucket.leak.frac);
    double in = (double)root_quota->passed - before[0];
    double leaked =
        ((double)weir_fleet_now(fleet) / WEIR_SECOND - before[1]) * LIMIT;
    return weir_fleet_root_fill(fleet, index, Q) - presumed - (in - leaked);
}

/* All begin at once at three times the limit. Until a limiter's slack is used
 * up its root receives no report, and its bucket leaks from nothing. From then
 * on it is too full by that amount, and two roots differ, for as long as load
 * lasts. At an onset slack lasts for high / (2 x the load), by chance a little
 * longer: 150 units at 600/s have a standard deviation of 20 ms. Of 600 roots
 * in 300 seeds, one lost 275 units.
 *
 * Its presumed units differ from those that it was not told of by all slacks at
 * most, half of the room; and until the load ends it presumes some for the way
 * of its fills too. */
static void test_roots_are_apart_by_an_onset(void **state)
{
    (void)state;
    const double way_s = 0.01, chance_s = 0.02;
    double most = 0, most_lost = 0, least_over = 1e9, most_over = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct weir_fleet *fleet =
            make_fleet(5, 10 * WEIR_MILLISECOND, &with_slack);
        for (uint64_t skip = 0; skip < seed; skip++)
            weir_world_chance(weir_fleet_world(fleet), 0.5);
        double highest = 0;
        const double before[] = { 0,
                                  (double)weir_fleet_now(fleet) / WEIR_SECOND };
        for (int second = 0; second < 5; second++)
            second_of(fleet, 5, 3.0 * LIMIT, &highest);
        double fill[2], is = truth(fleet, 5, before);
        for (uint32_t i = 0; i < 2; i++) {
            fill[i] = weir_fleet_root_fill(fleet, i, Q);
            double lost = lost_leak(fleet, i, before);
            most_lost = fmax(most_lost, lost);
            least_over = fmin(least_over, fill[i] - is);
            most_over = fmax(most_over, fill[i] - is - lost);
        }
        most = fmax(most, fabs(fill[0] - fill[1]));
        weir_fleet_free(fleet);
    }
    print_message("an onset: roots lose %.0f units of leak and presume %.0f "
                  "too many at most, hold %.0f more than there are at least, "
                  "and are %.0f apart at most\n",
                  most_lost, most_over, least_over, most);
    assert_compare(most, <, 0.25 * LIMIT);
    assert_compare(most_lost, <, (0.25 + way_s + 2 * chance_s) * LIMIT);
    double slacks = LIMIT / 2. / 2;
    assert_compare(most_over, <, slacks + way_s * LIMIT);
    assert_compare(least_over, >, -0.03 * LIMIT);
}

/* A root dies, restarts, and the limiters come back to it one after the other:
 * the last ones bring root fills that contain the first ones' counts. */
static void test_reborn_root_agrees_with_its_neighbour(void **state)
{
    (void)state;
    struct weir_fleet *fleet = make_fleet(10, WEIR_MILLISECOND, &with_slack);
    const struct weir_node_place root = { .root = true, .index = 0 };
    double most = 0;
    for (int i = 0; i < 5; i++)
        second_of(fleet, 10, 3.0 * LIMIT, &most);
    weir_fleet_kill(fleet, root);
    second_of(fleet, 10, 3.0 * LIMIT, &most);
    for (uint32_t i = 0; i < 10; i++)
        weir_fleet_cut(fleet, i, 0, i != 0 ? WEIR_WAY_BOTH : 0, 0);
    weir_fleet_start(fleet, root);
    for (uint32_t i = 1; i < 10; i++) {
        if (i % 3 == 1)
            second_of(fleet, 10, 3.0 * LIMIT, &most);
        weir_fleet_cut(fleet, i, 0, 0, 0);
    }
    second_of(fleet, 10, 3.0 * LIMIT, &most);
    second_of(fleet, 10, 3.0 * LIMIT, &most);
    double reborn = weir_fleet_root_fill(fleet, 0, Q);
    double other = weir_fleet_root_fill(fleet, 1, Q);
    print_message("  the reborn root's fill: %.0f, its neighbour's: %.0f\n",
                  reborn, other);
    assert_int_equal(weir_fleet_error(fleet), 0);
    weir_fleet_free(fleet);
    assert_compare(other, >, LIMIT);
    assert_compare(fabs(reborn - other), <, 0.05 * other);
}

/* The mishaps of root 0 for some seconds. */
struct trouble {
    const char *what;
    uint32_t cut_of; /* one in this many limiters is cut off; 0: none */
    weir_duration message;
    bool paused;
    int seconds;
};

static void befall(struct weir_fleet *fleet, const struct trouble *trouble,
                   bool begins)
{
    const struct weir_node_place root = { .root = true, .index = 0 };
    for (uint32_t i = 0; trouble->cut_of > 0 && i < weir_fleet_limiters(fleet);
         i += trouble->cut_of)
        weir_fleet_cut(fleet, i, 0, begins ? WEIR_WAY_BOTH : 0, 0);
    weir_fleet_cpu(fleet, root, begins ? trouble->message : 0, 0);
    weir_fleet_pause(fleet, root, begins && trouble->paused);
}

/* The bucket never empties, so no difference fades with time. */
static void overcome(const struct trouble *trouble)
{
    struct weir_fleet *fleet = make_fleet(20, WEIR_MILLISECOND, &with_slack);
    double most = 0, passed = 0;
    for (int i = 0; i < 5; i++)
        second_of(fleet, 20, 3.0 * LIMIT, &most);
    befall(fleet, trouble, true);
    for (int i = 0; i < trouble->seconds; i++)
        second_of(fleet, 20, 3.0 * LIMIT, &most);
    befall(fleet, trouble, false);
    for (int i = 0; i < 5; i++)
        passed += (double)second_of(fleet, 20, 3.0 * LIMIT, &most);
    double first = weir_fleet_root_fill(fleet, 0, Q);
    double other = weir_fleet_root_fill(fleet, 1, Q);
    print_message("  a root that was %s: fill %.0f, its neighbour's %.0f, "
                  "passed %.3f\n",
                  trouble->what, first, other, passed / 5 / LIMIT);
    assert_int_equal(weir_fleet_error(fleet), 0);
    weir_fleet_free(fleet);
    assert_compare(other, >, LIMIT);
    assert_compare(fabs(first - other), <, 0.1 * LIMIT);
    assert_compare(fabs(passed / 5 / LIMIT - 1), <, 0.04);
}

static void test_root_that_heard_late_agrees_with_its_neighbour(void **state)
{
    (void)state;
    static const struct trouble troubles[] = {
        { "slow", .message = 20 * WEIR_MILLISECOND, .seconds = 15 },
        { "very slow", .message = 100 * WEIR_MILLISECOND, .seconds = 15 },
        { "paused", .paused = true, .seconds = 3 },
        { "cut off for a while", .cut_of = 1, .seconds = 15 },
        { "cut off shortly", .cut_of = 1, .seconds = 2 },
        { "cut off from every second", .cut_of = 2, .seconds = 15 },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(troubles); i++)
        overcome(&troubles[i]);
}

/* One limiter takes ten times the limit of a large bucket, another only
 * watches. Returns how far the fill in the watcher is behind the root's, in
 * units, on average over seconds. Without correction it is half an interval of
 * the others' counts. */
static double behind(const struct weir_settings *settings)
{
    struct weir_fleet *fleet = make_fleet(2, WEIR_MILLISECOND, settings);
    put(fleet, BIG, 100, 100000, 100000);
    run_on(fleet, WEIR_SECOND);
    double sum = 0;
    for (int i = 0; i < 10000; i++) {
        run_on(fleet, WEIR_MILLISECOND);
        weir_fleet_take(fleet, 1, BIG, 1, NULL);
        if (i == 0)
            weir_fleet_take(fleet, 0, BIG, 1, NULL);
        if (i >= 5000)
            sum += weir_fleet_limiter_fill(fleet, 1, BIG) -
                   weir_fleet_limiter_fill(fleet, 0, BIG);
    }
    weir_fleet_free(fleet);
    print_message("  correction %u ppm%s: %.0f units behind\n",
                  settings->correction_ppm,
                  settings->correction_auto ? ", learnt" : "", sum / 5000);
    return sum / 5000;
}

static void test_correction_adds_what_others_count(void **state)
{
    (void)state;
    struct weir_settings settings = with_slack;
    settings.slack = false;
    double plain = behind(&settings);
    settings.correction_ppm = 500000;
    double half = behind(&settings);
    settings.correction_ppm = 1000000;
    double whole = behind(&settings);
    settings.correction_ppm = 0;
    settings.correction_auto = true;
    double learnt = behind(&settings);
    /* No ratio can correct counts that the root hasn't received yet. */
    assert_compare(half, <, plain - 100);
    assert_compare(whole, <, half - 100);
    assert_compare(learnt, <, plain - 100);
}

/* A quota is removed under load, and created anew, while a root stands still:
 * the root finds a single edit, and never receives that the limiter's slot has
 * gone. The counts it presumes of that slot end all the same. */
static void test_a_pace_ends_with_its_slot(void **state)
{
    (void)state;
    struct weir_fleet *fleet = make_fleet(1, 2 * WEIR_MILLISECOND, &with_slack);
    put(fleet, BIG, LIMIT, LIMIT, LIMIT);
    double fill = 0;
    for (int second = 0; second < 5; second++)
        second_of(fleet, 1, LIMIT * 0.8, &fill);
    struct weir_node_place place = { .root = true, .index = 1 };
    weir_fleet_pause(fleet, place, true);
    weir_fleet_remove(fleet, "q", NULL);
    run_on(fleet, 100 * WEIR_MILLISECOND);
    weir_fleet_remove(fleet, "big", NULL); /* its slot is the next to be
                                            * given */
    put(fleet, Q, LIMIT / 10, LIMIT / 10, LIMIT / 10);
    weir_fleet_pause(fleet, place, false);
    run_on(fleet, 30 * WEIR_SECOND);
    print_message("root2 holds %.1f units of the removed quota\n",
                  weir_fleet_root_fill(fleet, 1, Q));
    assert_compare(weir_fleet_root_fill(fleet, 1, Q), <, 1);
    for (int i = 0; i < 50; i++) {
        unsigned outcome = weir_fleet_take(fleet, 0, Q, 1, NULL);
        assert_int_equal(outcome & WEIR_OUTCOME_LIMITED, 0);
        run_on(fleet, 20 * WEIR_MILLISECOND);
    }
    weir_fleet_free(fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slack_holds_the_limit),
        cmocka_unit_test(test_any_five_seconds_hold_the_limit),
        cmocka_unit_test(test_one_root_ends_on_stale),
        cmocka_unit_test(test_hold_outlasts_a_silent_cut),
        cmocka_unit_test(test_slack_holds_over_a_slow_network),
        cmocka_unit_test(test_without_slack_time_alone_reports),
        cmocka_unit_test(test_roots_are_apart_by_an_onset),
        cmocka_unit_test(test_reborn_root_agrees_with_its_neighbour),
        cmocka_unit_test(test_root_that_heard_late_agrees_with_its_neighbour),
        cmocka_unit_test(test_correction_adds_what_others_count),
        cmocka_unit_test(test_a_pace_ends_with_its_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
