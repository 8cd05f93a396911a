/* SPDX-License-Identifier: MIT
 * test/store_suite.h - what every quota store must do, by store.h alone. */

#ifndef WEIR_STORE_SUITE_H
#define WEIR_STORE_SUITE_H

#include <stddef.h>
#include <stdint.h>

/* How a kind of store is put under the suite. */
struct store_under_test {
    const char *name;
    /* Writes the URL of a place where no store is yet. */
    void (*make_url)(char *url, size_t size);
    /* Removes whatever is there. */
    void (*clean)(const char *url);
    /* Waits until nothing is under way of a client that was killed. NULL:
     * such a client leaves nothing. */
    void (*settle)(const char *url);
    /* Sets the epoch row, as if there had been many edits. */
    void (*set_epoch)(const char *url, uint64_t epoch);
    /* As if quotas had been removed by the edits 1 .. count, of a new store. */
    void (*reap)(const char *url, uint64_t count);
};

/* Runs the suite; returns the number of failed tests. */
int store_suite_run(const struct store_under_test *under_test);

#endif /* WEIR_STORE_SUITE_H */
