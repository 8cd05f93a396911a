/* SPDX-License-Identifier: MIT
 * test/explore_case.c - explorations as tests of cmocka. */

#include "explore_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "compare.h"
#include "fiber.h"

bool explore_sound(struct explore_program *program)
{
    struct explore_result result;
    bool wanted = explore_is_wanted(program);
    if (wanted) {
        explore(program, &result);
        assert_null(result.wrong);
        assert_compare(result.completed, >, 1);
        assert_true(program->preemptions != EXPLORE_ALL ||
                    result.classes == result.completed);
    }
    free(program->state);
    return wanted;
}

void explore_killed(struct explore_program *program, unsigned places)
{
    uint64_t executions = 0;
    struct explore_result result = { .killed = explore_is_wanted(program) };
    program->quiet = true;
    while (result.killed) {
        program->killed_at++;
        explore(program, &result);
        assert_null(result.wrong);
        executions += result.executions;
    }
    if (explore_is_wanted(program)) {
        printf("%s: killed at %u places, %" PRIu64 " executions\n",
               program->name, program->killed_at - 1, executions);
        assert_compare(program->killed_at, >, places);
    }
    free(program->state);
}

void explore_planted(struct explore_program *program)
{
    struct explore_result result;
    if (explore_is_wanted(program)) {
        explore(program, &result);
        assert_non_null(result.wrong);
    }
    free(program->state);
}

int explore_teardown(void **state)
{
    (void)state;
    explore_mourn();
    return 0;
}

bool explore_begin(void)
{
    if (FIBER_UNDER_TSAN) {
        puts("skipped: one thread that changes stacks, nothing to see");
        return false;
    }
    if (FIBER_UNDER_ASAN) {
        puts("skipped: a switch is a hundred times slower; memory is looked "
             "after in test_table_races and in tests with threads");
        return false;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    return true;
}
