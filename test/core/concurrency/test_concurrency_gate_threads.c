/* SPDX-License-Identifier: MIT
 * test_concurrency_gate_threads.c - the concurrency gate under real threads.
 *
 * With any schedule: each permit has the number in flight when it was given,
 * and that is never above the limit; when all have left none is in flight;
 * every sample was received, or was counted as lost. The thread sanitizer runs
 * it in .ci/run. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/base/atomic.h"
#include "core/base/rng.h"
#include "core/concurrency/concurrency_gate.h"
#include "patience.h"

#define THREADS 4
#define ROUNDS 50000
#define HELD 4 /* by one thread, at most */

struct stage {
    struct weir_concurrency_gate *gate;
    uint32_t most; /* largest number allowed in flight */
    uint32_t classes;
    weir_instant now; /* atomic; advanced by all threads */
    uint32_t wrong;   /* atomic */
};

struct visitor {
    struct stage *stage;
    pthread_t thread;
    struct weir_rng rng;
    uint64_t passed, refused;
};

static void leave(struct visitor *visitor,
                  struct weir_concurrency_gate_permit *permit)
{
    struct stage *stage = visitor->stage;
    weir_instant now = weir_fetch_add(&stage->now, 1000);
    enum weir_sample_outcome outcome = weir_rng_below(&visitor->rng, 8) == 0
                                           ? WEIR_SAMPLE_DROPPED
                                           : WEIR_SAMPLE_SUCCESS;
    weir_concurrency_gate_leave(stage->gate, permit, outcome, now);
}

static void visit(struct visitor *visitor,
                  struct weir_concurrency_gate_permit *permit)
{
    struct stage *stage = visitor->stage;
    uint32_t klass = (uint32_t)weir_rng_below(&visitor->rng, stage->classes);
    weir_instant now = weir_fetch_add(&stage->now, 1000);
    if (!weir_concurrency_gate_enter(stage->gate, klass, 1, permit, now)) {
        visitor->refused++;
        return;
    }
    visitor->passed++;
    if (permit->in_flight > stage->most)
        weir_fetch_add(&stage->wrong, 1);
}

static void *run(void *argument)
{
    struct visitor *visitor = argument;
    struct weir_concurrency_gate_permit permits[HELD] = { 0 };
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_concurrency_gate_permit *permit =
            &permits[weir_rng_below(&visitor->rng, HELD)];
        if (permit->units > 0)
            leave(visitor, permit);
        else
            visit(visitor, permit);
    }
    for (int i = 0; i < HELD; i++)
        leave(visitor, &permits[i]);
    return NULL;
}

static struct stage stage_of(
    const struct weir_concurrency_gate_options *options, uint32_t most)
{
    void *block = NULL;
    size_t bytes = weir_concurrency_gate_size(options);
    assert_int_equal(posix_memalign(&block, WEIR_CACHE_LINE, bytes), 0);
    return (struct stage){
        .gate = weir_concurrency_gate_init(block, options, WEIR_SECOND),
        .most = most,
        .classes = options->classes,
        .now = WEIR_SECOND,
    };
}

/* Returns the number of passes. */
static uint64_t run_all(struct stage *stage, uint64_t *out_refused)
{
    static struct visitor visitors[THREADS];
    uint64_t passed = 0;
    *out_refused = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        visitors[i] = (struct visitor){ .stage = stage, .rng = { 100 + i } };
        assert_int_equal(
            pthread_create(&visitors[i].thread, NULL, run, &visitors[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(PATIENTLY(pthread_join(visitors[i].thread, NULL)), 0);
        passed += visitors[i].passed;
        *out_refused += visitors[i].refused;
    }
    assert_int_equal(stage->wrong, 0);
    return passed;
}

static struct weir_concurrency_gate_view view_of(struct stage *stage)
{
    struct weir_concurrency_gate_view view;
    weir_concurrency_gate_tick(stage->gate, stage->now);
    assert_true(weir_concurrency_gate_view(stage->gate, &view, stage->now));
    return view;
}

static void test_never_above_the_limit(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options;
    weir_concurrency_gate_defaults(&options, WEIR_CONTROLLER_NONE);
    options.controller.initial = HELD - 1; /* too little for one thread */
    struct stage stage = stage_of(&options, HELD - 1);
    uint64_t refused;
    uint64_t passed = run_all(&stage, &refused);
    struct weir_concurrency_gate_view view = view_of(&stage);
    assert_compare(refused, >, 0);
    assert_int_equal(view.in_flight, 0);
    assert_int_equal(view.lost, 0);
    assert_int_equal(view.controller.windows + view.lost_samples, passed);
    free(stage.gate);
}

/* While the limit moves: never above its max. */
static void test_while_the_limit_moves(void **state)
{
    (void)state;
    static const enum weir_controller_kind kinds[] = { WEIR_CONTROLLER_REQUEST,
                                                       WEIR_CONTROLLER_TARGET,
                                                       WEIR_CONTROLLER_VEGAS };
    for (size_t i = 0; i < WEIR_COUNT_OF(kinds); i++) {
        struct weir_concurrency_gate_options options;
        weir_concurrency_gate_defaults(&options, kinds[i]);
        options.controller.initial = options.controller.max = 8;
        options.controller.target = 20000; /* some ten calls */
        options.controller.window_min = WEIR_MILLISECOND;
        options.controller.window_max = WEIR_MILLISECOND;
        options.controller.drops = true;
        struct stage stage = stage_of(&options, 8);
        uint64_t refused;
        assert_compare(run_all(&stage, &refused), >, 0);
        struct weir_concurrency_gate_view view = view_of(&stage);
        assert_int_equal(view.in_flight, 0);
        assert_compare(view.controller.windows, >, 1);
        free(stage.gate);
    }
}

static void test_classes(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options;
    weir_concurrency_gate_defaults(&options, WEIR_CONTROLLER_NONE);
    options.controller.initial = 4;
    options.classes = 3;
    strcpy(options.class_of[0].name, "a");
    strcpy(options.class_of[1].name, "b");
    strcpy(options.class_of[2].name, "c");
    options.class_of[0].share_percent = 50;
    options.class_of[1].share_percent = 25;
    struct stage stage = stage_of(&options, 4 + 2 + 1);
    uint64_t refused;
    uint64_t passed = run_all(&stage, &refused);
    struct weir_concurrency_gate_view view = view_of(&stage);
    assert_int_equal(view.in_flight, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(view.in_flight_of[i], 0);
    assert_int_equal(view.controller.windows + view.lost_samples, passed);
    free(stage.gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_above_the_limit),
        cmocka_unit_test(test_while_the_limit_moves),
        cmocka_unit_test(test_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
