/* SPDX-License-Identifier: MIT
 * test_explore_toys.c - the explorer compared with plain enumeration.
 *
 * Random programs of a few accesses each, small enough that every one of their
 * schedules can be run: the classes met there are counted, and the reduction
 * must meet as many, each once. With a bound on preemptions it must meet as
 * many as all schedules within the bound do. The programs branch on the values
 * that they read, take a lock and wait for it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WEIR_EXPLORE
#include "core/base/atomic.h"

#include "explore_case.h"
#include "fiber.h"
#include "table_maker.h"

#define TOYS 300
#define FIBERS 3
#define OPS_MAX 4
#define WORDS 3
#define NO_BOUND 1000

enum op_kind {
    OP_LOAD,
    OP_STORE,
    OP_ADD,
    OP_CAS,
    OP_IF,   /* skips the next operation unless the word is odd */
    OP_LOCK, /* increments the word under a lock */
};

struct op {
    enum op_kind kind;
    unsigned word;
};

struct toy {
    uint64_t words[WORDS];
    uint64_t lock;
    unsigned count;
    struct op ops[FIBERS][OPS_MAX];
};

static void count_locked(struct toy *toy, uint64_t *word)
{
    uint64_t free = 0;
    while (weir_load(&toy->lock) != 0 || !weir_cas(&toy->lock, &free, 1)) {
        free = 0;
        weir_pause();
    }
    weir_store(word, weir_load(word) + 1);
    weir_store(&toy->lock, 0);
}

/* Returns true to skip the next operation. */
static bool do_op(struct toy *toy, const struct op *op, uint64_t value)
{
    uint64_t *word = &toy->words[op->word];
    uint64_t expected = op->word;
    switch (op->kind) {
    case OP_LOAD:
        weir_load(word);
        break;
    case OP_STORE:
        weir_store(word, value);
        break;
    case OP_ADD:
        weir_fetch_add(word, value);
        break;
    case OP_CAS:
        weir_cas(word, &expected, value);
        break;
    case OP_IF:
        return !(weir_load(word) & 1);
    case OP_LOCK:
        count_locked(toy, word);
        break;
    }
    return false;
}

static void run_fiber(struct toy *toy, unsigned fiber)
{
    for (unsigned i = 0; i < toy->count; i++)
        i += do_op(toy, &toy->ops[fiber][i], fiber + i);
}

static void run_0(void *toy)
{
    run_fiber(toy, 0);
}

static void run_1(void *toy)
{
    run_fiber(toy, 1);
}

static void run_2(void *toy)
{
    run_fiber(toy, 2);
}

static const char *check_nothing(void *toy)
{
    (void)toy;
    return NULL;
}

/* Two fibers of four operations or three of two; two of them may lock. */
static struct toy toy_of(struct weir_rng *rng, unsigned fibers)
{
    struct toy toy = { .count = fibers == 2 ? 4 : 2 };
    for (unsigned f = 0; f < fibers; f++) {
        for (unsigned i = 0; i < toy.count; i++) {
            bool may_lock = i == 0 && f < 2;
            unsigned kinds = may_lock ? OP_LOCK + 1 : OP_LOCK;
            toy.ops[f][i] = (struct op){
                .kind = (enum op_kind)weir_rng_below(rng, kinds),
                .word = (unsigned)weir_rng_below(rng, WORDS),
            };
        }
    }
    return toy;
}

static struct explore_program program_of(struct toy *toy, unsigned fibers)
{
    return (struct explore_program){ .name = "toy",
                                     .state = toy,
                                     .state_bytes = sizeof(*toy),
                                     .fibers = fibers,
                                     .run = { run_0, run_1, run_2 },
                                     .check = check_nothing,
                                     .quiet = true };
}

static void test_reduction_meets_each_class_once(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("toys");
    uint64_t plain = 0, reduced = 0, cut = 0;
    for (unsigned i = 0; i < TOYS; i++) {
        unsigned fibers = 2 + i % 2;
        struct toy toy = toy_of(&rng, fibers);
        struct explore_program program = program_of(&toy, fibers);
        struct explore_result all, some;
        program.preemptions = NO_BOUND;
        program.plain = true;
        explore(&program, &all);
        program.preemptions = EXPLORE_ALL;
        explore(&program, &some);
        assert_null(all.wrong);
        assert_null(some.wrong);
        assert_int_equal(some.classes, all.classes);
        assert_int_equal(some.completed, some.classes);
        plain += all.executions;
        reduced += some.completed;
        cut += some.executions - some.completed;
    }
    printf("%d toys: %llu schedules, %llu classes, %llu cut short\n", TOYS,
           (unsigned long long)plain, (unsigned long long)reduced,
           (unsigned long long)cut);
}

static void test_each_class_within_a_bound_is_met(void **state)
{
    (void)state;
    static const int bounds[] = { 0, 1, 2, 3, NO_BOUND };
    struct weir_rng rng = made_seed("bounds");
    uint64_t plain = 0, begun = 0;
    for (unsigned i = 0; i < TOYS; i++) {
        unsigned fibers = 2 + i % 2;
        struct toy toy = toy_of(&rng, fibers);
        struct explore_program program = program_of(&toy, fibers);
        struct explore_result all, some;
        program.preemptions = bounds[i / 2 % 5];
        program.plain = true;
        explore(&program, &all);
        program.plain = false;
        explore(&program, &some);
        assert_null(all.wrong);
        assert_null(some.wrong);
        assert_int_equal(some.classes, all.classes);
        plain += all.executions;
        begun += some.executions;
    }
    printf("%d toys: %llu schedules, of them begun %llu\n", TOYS,
           (unsigned long long)plain, (unsigned long long)begun);
}

/* The replayed program is not the first one of its test. */
static void test_a_replay_passes_over_other_programs(void **state)
{
    (void)state;
    assert_int_equal(setenv("WEIR_SCHEDULE", "second:a1", 1), 0);
    struct explore_program first = { .name = "first" };
    struct explore_program second = { .name = "second" };
    assert_false(explore_sound(&first));
    explore_killed(&first, 1);
    explore_planted(&first);
    assert_true(explore_is_wanted(&second));
    assert_int_equal(unsetenv("WEIR_SCHEDULE"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduction_meets_each_class_once),
        cmocka_unit_test(test_each_class_within_a_bound_is_met),
        cmocka_unit_test(test_a_replay_passes_over_other_programs),
    };
    if (FIBER_UNDER_TSAN) {
        puts("skipped: one thread that changes stacks, nothing to see");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
