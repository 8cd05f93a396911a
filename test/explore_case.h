/* SPDX-License-Identifier: MIT
 * test/explore_case.h - explorations (explore.h) as tests of cmocka.
 *
 * The functions that explore pass over the program if WEIR_SCHEDULE names
 * another one, perhaps a later one of the same test. They free() the program's
 * state at the end. */

#ifndef WEIR_EXPLORE_CASE_H
#define WEIR_EXPLORE_CASE_H

#include <stdbool.h>

#include "explore.h"

/* Fails the test if a schedule is wrong. Returns false if it passed over the
 * program. */
bool explore_sound(struct explore_program *program);

/* Explores once for each place at which fiber 0 can be killed. Fails the test
 * if a schedule is wrong, or if there are no more than 'places' of them. */
void explore_killed(struct explore_program *program, unsigned places);

/* Fails the test unless a wrong schedule is found: the program has a bug put
 * in. */
void explore_planted(struct explore_program *program);

/* An entry of a test group: a schedule during which an assertion failed is
 * printed. */
#define EXPLORED(test) cmocka_unit_test_teardown((test), explore_teardown)
int explore_teardown(void **state);

/* Before a test group: prepares the output. Returns false under a sanitizer and
 * prints the reason; main() then returns EXPLORE_SKIPPED. */
bool explore_begin(void);
#define EXPLORE_SKIPPED 77 /* meson's status for it */

#endif /* WEIR_EXPLORE_CASE_H */
