/* SPDX-License-Identifier: MIT
 * test/store/store_suite_leased.c - one process finds the mark of a new store;
 * none finds that of a store from a backup. */

#include "store_suite_leased.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "compare.h"
#include "store/store.h"

#define PROCESSES 4

static char take(const char *url)
{
    bool never = false;
    int error = weir_store_take_never_leased(url, true, &never, NULL);
    return error < 0 ? 'e' : never ? 'y' : 'n';
}

void store_suite_never_leased(const char *url)
{
    int results[2];
    unsigned found = 0;
    assert_int_equal(pipe(results), 0);
    for (int i = 0; i < PROCESSES; i++) {
        pid_t child = fork();
        assert_compare(child, >=, 0);
        if (child > 0)
            continue;
        char result = take(url);
        _exit(write(results[1], &result, 1) != 1);
    }
    close(results[1]);
    for (int i = 0; i < PROCESSES; i++) {
        char result;
        assert_int_equal(read(results[0], &result, 1), 1);
        assert_int_not_equal(result, 'e');
        found += result == 'y';
        assert_compare(wait(NULL), >, 0);
    }
    close(results[0]);
    assert_int_equal(found, 1);
    assert_int_equal(take(url), 'n');
}

void store_suite_never_leased_restored(const char *url)
{
    uint64_t restores;
    assert_int_equal(weir_store_restored(url, &restores, NULL), 0);
    assert_int_equal(take(url), 'n');
}
