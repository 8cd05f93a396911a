/* SPDX-License-Identifier: MIT
 * test/lab/test_swarm.c - random fleets in random trouble, under all checkers:
 * WEIR_SEEDS=A..B names the seeds (default 1..200), and WEIR_SWARM=adaptive or
 * =counted one kind of them. A failure names the command that replays it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "lab/run.h"
#include "lab/swarm.h"

#define SEED_FIRST 1
#define SEED_LAST 200

struct seeds {
    unsigned long long first, last;
};

static struct seeds asked_for(void)
{
    struct seeds seeds = { SEED_FIRST, SEED_LAST };
    const char *text = getenv("WEIR_SEEDS");
    if (text && sscanf(text, "%llu..%llu", &seeds.first, &seeds.last) < 1)
        fail_msg("WEIR_SEEDS is written as 1..200, not \"%s\"", text);
    if (seeds.last < seeds.first)
        seeds.last = seeds.first;
    return seeds;
}

static bool is_asked_for(unsigned long long seed)
{
    const char *kind = getenv("WEIR_SWARM");
    return !kind ||
           (strcmp(kind, "adaptive") == 0) == weir_swarm_is_adaptive(seed);
}

static struct weir_result *play(unsigned long long seed)
{
    struct weir_scenario *scenario = weir_swarm_scenario(seed);
    const struct weir_run_options options = { .seed = seed, .check = true };
    struct weir_diag diag = { 0 };
    struct weir_result *result = weir_run_simulated(scenario, &options, &diag);
    if (!result)
        fail_msg("swarm %llu can't be run: %s", seed, diag.text);
    weir_scenario_free(scenario);
    return result;
}

static void add(struct weir_check_stats *sum,
                const struct weir_check_stats *stats)
{
    sum->reports += stats->reports;
    sum->passes += stats->passes;
    sum->bounded += stats->bounded;
    sum->decisions += stats->decisions;
    sum->quota_sets += stats->quota_sets;
    sum->ends += stats->ends;
    sum->parts += stats->parts;
    sum->requests += stats->requests;
    sum->recoveries += stats->recoveries;
}

static void test_no_swarm_violates_anything(void **state)
{
    (void)state;
    struct seeds seeds = asked_for();
    print_message("seeds %llu..%llu\n", seeds.first, seeds.last);
    uint64_t bad = 0, events = 0, takes = 0;
    struct weir_check_stats sum = { 0 };
    for (unsigned long long seed = seeds.first; seed <= seeds.last; seed++) {
        if (!is_asked_for(seed))
            continue;
        struct weir_result *result = play(seed);
        events += result->events;
        takes += result->takes;
        add(&sum, &result->checked);
        if (result->violation) {
            bad++;
            print_error("seed %llu, event %llu: %s\n"
                        "  replay: weir lab swarm --seeds %llu..%llu\n",
                        seed, (unsigned long long)result->violation_event,
                        result->violation, seed, seed);
        }
        weir_result_free(result);
    }
    print_message("%llu events, %llu requests\n", (unsigned long long)events,
                  (unsigned long long)takes);
    print_message(
        "judged: %llu counts, %llu passes, %llu of them and a root "
        "by the bound, %llu decisions, %llu sets of quotas, %llu "
        "ends\n",
        (unsigned long long)sum.reports, (unsigned long long)sum.passes,
        (unsigned long long)sum.bounded, (unsigned long long)sum.decisions,
        (unsigned long long)sum.quota_sets, (unsigned long long)sum.ends);
    print_message("of adaptive fleets: %llu parts, %llu requests, %llu ends\n",
                  (unsigned long long)sum.parts,
                  (unsigned long long)sum.requests,
                  (unsigned long long)sum.recoveries);
    assert_int_equal(bad, 0);
    /* A test that judges few would pass with any code. */
    uint64_t seeds_run = seeds.last - seeds.first + 1;
    if (seeds_run < 100 || getenv("WEIR_SWARM"))
        return;
    assert_compare(sum.reports, >, 10 * seeds_run);
    assert_compare(sum.bounded, >, sum.passes / 2);
    assert_compare(sum.decisions, >, sum.passes);
    assert_compare(sum.quota_sets, >, 3 * seeds_run);
    assert_compare(sum.ends, >, 15 * seeds_run);
    assert_compare(sum.parts, >, 1000 * seeds_run);
    assert_compare(sum.requests, >, 1000 * seeds_run);
    assert_compare(sum.recoveries, >=, seeds_run / 4);
}

/* Other seeds that failed once, each for another reason. */
static void test_what_was_bad_once(void **state)
{
    (void)state;
    static const uint64_t seeds[] = { 901307, 910583, 930544, 930893 };
    for (size_t i = 0; i < WEIR_COUNT_OF(seeds); i++) {
        struct weir_result *result = play(seeds[i]);
        if (result->violation)
            fail_msg("seed %llu: %s", (unsigned long long)seeds[i],
                     result->violation);
        weir_result_free(result);
    }
}

/* The same seed gives the same run, to the event; another seed another. */
static void test_a_seed_is_a_run(void **state)
{
    (void)state;
    /* An adaptive fleet, and counted quotas. */
    for (unsigned long long seed = 6; seed <= 7; seed++) {
        struct weir_result *one = play(seed), *again = play(seed);
        struct weir_result *other = play(seed + 4);
        assert_true(weir_swarm_is_adaptive(seed) == (seed == 6));
        assert_int_equal(one->events, again->events);
        assert_int_equal(one->takes, again->takes);
        assert_int_not_equal(one->events, other->events);
        weir_result_free(one);
        weir_result_free(again);
        weir_result_free(other);
    }
}

/* A swarm is a file of the lab's language, and its printed text builds to
 * it. */
static void test_a_swarm_can_be_printed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct weir_scenario *scenario = weir_swarm_scenario(seed);
        char *text = weir_scenario_print(scenario);
        struct weir_diag diag = { 0 };
        struct weir_lab_script *script =
            weir_script_read("swarm.weir", weir_text_of(text), &diag);
        struct weir_scenario *again =
            script ? weir_scenario_build(script, 0, &diag) : NULL;
        if (!again)
            fail_msg("%u:%u: %s in\n%s", diag.line, diag.column, diag.text,
                     text);
        char *twice = weir_scenario_print(again);
        assert_string_equal(text, twice);
        free(text);
        free(twice);
        weir_scenario_free(scenario);
        weir_scenario_free(again);
        weir_script_free(script);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_swarm_can_be_printed),
        cmocka_unit_test(test_a_seed_is_a_run),
        cmocka_unit_test(test_what_was_bad_once),
        cmocka_unit_test(test_no_swarm_violates_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
