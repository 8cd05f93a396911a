/* SPDX-License-Identifier: MIT
 * test_explore_gate.c - the concurrency gate under every schedule.
 *
 * Two or three threads enter, leave and tick, in all orders of their accesses:
 * never more in flight than the limit, no sample lost, nothing in flight when
 * all have left; and a thread that is killed in the middle blocks no other. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WEIR_EXPLORE
#include "core/concurrency/concurrency_gate.c"

#include "explore_case.h"

#define MS WEIR_MILLISECOND
#define BEGIN (1000 * WEIR_SECOND)
#define LATER (BEGIN + 100 * MS)
#define MUCH_LATER (BEGIN + 100 * WEIR_SECOND)
#define PERMITS 3

/* ---- The stage ---- */

struct stage {
    _Alignas(
        WEIR_CACHE_LINE) struct weir_concurrency_gate_permit permit[PERMITS];
    bool passed[PERMITS];
    weir_instant tick_at;
    struct weir_concurrency_gate *gate; /* in the memory after this struct */
};

static uint32_t passed_of(const struct stage *s)
{
    uint32_t sum = 0;
    for (int i = 0; i < PERMITS; i++)
        sum += s->passed[i] ? 1 : 0;
    return sum;
}

/* ---- The threads: each has a permit of its own ---- */

static void enter(struct stage *s, int i, weir_instant now)
{
    uint32_t klass = s->gate->options.classes > 1 ? (uint32_t)i % 2 : 0;
    s->passed[i] =
        weir_concurrency_gate_enter(s->gate, klass, 1, &s->permit[i], now);
}

static void leave(struct stage *s, int i, weir_instant now)
{
    weir_concurrency_gate_leave(s->gate, &s->permit[i], WEIR_SAMPLE_SUCCESS,
                                now);
}

static void enter_0(void *state)
{
    enter(state, 0, BEGIN);
}

static void enter_1(void *state)
{
    enter(state, 1, BEGIN);
}

static void enter_2(void *state)
{
    enter(state, 2, BEGIN);
}

static void visit_0(void *state)
{
    enter(state, 0, BEGIN);
    leave(state, 0, LATER);
}

static void visit_1(void *state)
{
    enter(state, 1, BEGIN);
    leave(state, 1, LATER);
}

static void leave_0(void *state)
{
    leave(state, 0, LATER);
}

static void leave_1(void *state)
{
    leave(state, 1, LATER);
}

static void leave_2(void *state)
{
    leave(state, 2, LATER);
}

static void tick(void *state)
{
    struct stage *s = state;
    weir_concurrency_gate_tick(s->gate, s->tick_at);
}

static void tick_twice(void *state)
{
    struct stage *s = state;
    weir_concurrency_gate_tick(s->gate, s->tick_at);
    weir_concurrency_gate_tick(s->gate, s->tick_at + 2 * WEIR_SECOND);
}

/* ---- Invariants ---- */

static uint64_t heard(struct stage *s)
{
    weir_concurrency_gate_tick(s->gate, LATER);
    struct weir_concurrency_gate_view view = { 0 };
    if (!weir_concurrency_gate_view(s->gate, &view, LATER))
        return UINT64_MAX;
    return view.controller.windows;
}

static uint32_t in_flight(struct stage *s)
{
    return in_flight_in(weir_load(&s->gate->sum.in_flight));
}

static const char *check_one(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(passed_of(s) == 1);
    EXPLORE_MUST(in_flight(s) == 1);
    return NULL;
}

static const char *check_two(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(passed_of(s) == 2);
    EXPLORE_MUST(in_flight(s) == 2);
    return NULL;
}

/* A turn that was taken and put back may refuse a thread that read it in
 * between, but never lets in two. */
static const char *check_turn(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(passed_of(s) == 1);
    EXPLORE_MUST(in_flight(s) == 1);
    EXPLORE_MUST(s->gate->sum.turn > BEGIN);
    return NULL;
}

static const char *check_visits(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(passed_of(s) >= 1);
    EXPLORE_MUST(in_flight(s) == 0);
    for (int i = 0; i < PERMITS; i++)
        EXPLORE_MUST(s->permit[i].in_flight <= 1);
    EXPLORE_MUST(heard(s) == passed_of(s));
    return NULL;
}

/* All had entered before, and all have left. */
static const char *check_left(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(in_flight(s) == 0);
    EXPLORE_MUST(heard(s) == passed_of(s));
    EXPLORE_MUST(s->gate->lost == 0);
    EXPLORE_MUST(s->gate->lost_samples == 0);
    return NULL;
}

/* Written off and given back at the same time: it counts once, as one or the
 * other. */
static const char *check_lost(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(in_flight(s) == 0);
    EXPLORE_MUST(heard(s) + s->gate->lost == passed_of(s));
    return NULL;
}

static const char *check_classes(void *state)
{
    struct stage *s = state;
    uint32_t of[2] = { 0 };
    for (int i = 0; i < PERMITS; i++)
        of[i % 2] += s->passed[i] ? 1 : 0;
    EXPLORE_MUST(in_flight_in(weir_load(&s->gate->klass[0].in_flight)) ==
                 of[0]);
    EXPLORE_MUST(in_flight_in(weir_load(&s->gate->klass[1].in_flight)) ==
                 of[1]);
    EXPLORE_MUST(in_flight(s) == of[0] + of[1]);
    /* Limit 1, each class has a share of one permit, and gets it. */
    EXPLORE_MUST(of[0] >= 1 && of[1] == 1);
    return NULL;
}

/* The limit is used up by the other class: a class gets its share, no more. */
static const char *check_share(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(s->passed[0] != s->passed[2]);
    EXPLORE_MUST(in_flight(s) == 2);
    return check_classes(s);
}

/* The limit is full, and one permit has the share: never both and another. */
static const char *check_share_handed_on(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(s->permit[2].in_flight <= 2);
    EXPLORE_MUST(in_flight(s) == passed_of(s) - 1);
    return NULL;
}

/* The permit saw the old limit or the new one. */
static const char *check_shrunk(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(s->gate->limit >> FRACTION_BITS == 1);
    EXPLORE_MUST(in_flight(s) <= 2);
    EXPLORE_MUST(s->permit[2].in_flight <= 2);
    return NULL;
}

static const char *check_survived(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(explore_ended(1));
    EXPLORE_MUST(s->passed[1]);
    EXPLORE_MUST(in_flight(s) <= 1); /* the killed thread's */
    return NULL;
}

/* ---- Running them ---- */

static struct weir_concurrency_gate_options usual(double limit)
{
    struct weir_concurrency_gate_options options;
    weir_concurrency_gate_defaults(&options, WEIR_CONTROLLER_NONE);
    options.controller.initial = limit;
    return options;
}

static struct explore_program program_of(
    const char *name, const struct weir_concurrency_gate_options *options)
{
    struct explore_program program = { .name = name,
                                       .preemptions = EXPLORE_ALL };
    size_t bytes = sizeof(struct stage) + weir_concurrency_gate_size(options);
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, WEIR_CACHE_LINE, bytes), 0);
    memset(block, 0, bytes);
    struct stage *s = block;
    s->gate = weir_concurrency_gate_init(s + 1, options, BEGIN);
    s->tick_at = BEGIN + 2 * WEIR_SECOND;
    program.state = s;
    program.state_bytes = bytes;
    return program;
}

static void add(struct explore_program *program, void (*run)(void *state))
{
    program->run[program->fibers++] = run;
}

static void run_sound(struct explore_program *program,
                      const char *(*check)(void *state))
{
    program->check = check;
    explore_sound(program);
}

static void test_one_place_is_taken_once(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(1);
    struct explore_program program = program_of("one", &options);
    add(&program, enter_0);
    add(&program, enter_1);
    add(&program, enter_2);
    run_sound(&program, check_one);
    options = usual(2);
    program = program_of("two", &options);
    add(&program, enter_0);
    add(&program, enter_1);
    add(&program, enter_2);
    run_sound(&program, check_two);
}

/* The same with a swap that isn't atomic: it must be found. */
static void test_a_torn_count_is_found(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(1);
    struct explore_program program = program_of("torn", &options);
    struct stage *s = program.state;
    add(&program, enter_0);
    add(&program, enter_1);
    program.check = check_one;
    program.plant = (struct explore_plant){ .kind = EXPLORE_TORN,
                                            .fiber = 1,
                                            .word = &s->gate->sum.in_flight };
    explore_planted(&program);
}

static struct weir_concurrency_gate_options half(void)
{
    struct weir_concurrency_gate_options options = usual(1);
    weir_controller_defaults(&options.controller, WEIR_CONTROLLER_TARGET);
    options.controller.initial = 0.5;
    return options;
}

static void test_half_a_place_is_taken_once(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = half();
    struct explore_program program = program_of("half", &options);
    add(&program, enter_0);
    add(&program, enter_1);
    run_sound(&program, check_turn);
}

static void test_visits_leave_nothing(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(1);
    struct explore_program program = program_of("visits", &options);
    add(&program, visit_0);
    add(&program, visit_1);
    run_sound(&program, check_visits);
}

static void test_no_sample_is_lost(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(3);
    struct explore_program program = program_of("samples", &options);
    struct stage *s = program.state;
    for (int i = 0; i < 3; i++)
        enter(s, i, BEGIN);
    add(&program, leave_0);
    add(&program, leave_1);
    add(&program, leave_2);
    program.preemptions = explore_bound(3);
    run_sound(&program, check_left);
}

static void test_leaving_beside_lives(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(3);
    struct explore_program program = program_of("lives", &options);
    struct stage *s = program.state;
    enter(s, 0, BEGIN);
    enter(s, 1, BEGIN);
    add(&program, leave_0);
    add(&program, leave_1);
    add(&program, tick_twice);
    program.preemptions = explore_bound(2);
    run_sound(&program, check_left);
}

static void test_leaving_beside_being_written_off(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(3);
    options.lost_after = WEIR_SECOND;
    struct explore_program program = program_of("lost", &options);
    struct stage *s = program.state;
    enter(s, 0, BEGIN);
    weir_concurrency_gate_tick(s->gate, BEGIN + 2 * WEIR_SECOND);
    s->tick_at = MUCH_LATER;
    add(&program, leave_0);
    add(&program, tick);
    run_sound(&program, check_lost);
}

static struct weir_concurrency_gate_options halves(void)
{
    struct weir_concurrency_gate_options options = usual(1);
    options.classes = 2;
    strcpy(options.class_of[0].name, "a");
    strcpy(options.class_of[1].name, "b");
    options.class_of[0].share_percent = 50;
    options.class_of[1].share_percent = 50;
    return options;
}

static void test_shares_are_had(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = halves();
    struct explore_program program = program_of("shares", &options);
    add(&program, enter_0);
    add(&program, enter_1);
    add(&program, enter_2);
    program.preemptions = explore_bound(4);
    run_sound(&program, check_classes);
    program = program_of("share", &options);
    enter(program.state, 1, BEGIN);
    add(&program, enter_0);
    add(&program, enter_2);
    run_sound(&program, check_share);
}

static void test_a_share_is_handed_on(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = halves();
    struct explore_program program = program_of("handed on", &options);
    struct stage *s = program.state;
    s->passed[1] = weir_concurrency_gate_enter(
        s->gate, WEIR_CONCURRENCY_GATE_CLASS_NONE, 1, &s->permit[1], BEGIN);
    enter(s, 0, BEGIN);
    assert_int_equal(s->permit[0].in_flight, 2);
    add(&program, leave_0);
    add(&program, enter_2);
    run_sound(&program, check_share_handed_on);
}

static void test_a_limit_falls_beside_an_enter(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(2);
    weir_controller_defaults(&options.controller, WEIR_CONTROLLER_REQUEST);
    options.controller.initial = 2;
    options.controller.target = MS; /* the permit that leaves was slower */
    struct explore_program program = program_of("falls", &options);
    struct stage *s = program.state;
    enter(s, 0, BEGIN);
    enter(s, 1, BEGIN);
    add(&program, leave_0);
    add(&program, enter_2);
    run_sound(&program, check_shrunk);
}

static void test_the_dead_keep_nobody_waiting(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options options = usual(2);
    struct explore_program program = program_of("killed", &options);
    add(&program, visit_0);
    add(&program, visit_1);
    program.check = check_survived;
    program.preemptions = 2;
    explore_killed(&program, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EXPLORED(test_one_place_is_taken_once),
        EXPLORED(test_a_torn_count_is_found),
        EXPLORED(test_half_a_place_is_taken_once),
        EXPLORED(test_visits_leave_nothing),
        EXPLORED(test_no_sample_is_lost),
        EXPLORED(test_leaving_beside_lives),
        EXPLORED(test_leaving_beside_being_written_off),
        EXPLORED(test_shares_are_had),
        EXPLORED(test_a_share_is_handed_on),
        EXPLORED(test_a_limit_falls_beside_an_enter),
        EXPLORED(test_the_dead_keep_nobody_waiting),
    };
    if (!explore_begin())
        return EXPLORE_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
