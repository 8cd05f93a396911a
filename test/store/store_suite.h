/* SPDX-License-Identifier: MIT
 * test/store/store_suite.h - the requirements on every quota store, by store.h
 * alone. */

#ifndef WEIR_STORE_SUITE_H
#define WEIR_STORE_SUITE_H

#include <stddef.h>
#include <stdint.h>

/* How the suite uses a kind of store. */
struct store_under_test {
    const char *name;
    /* Writes the URL of a place without a store. */
    void (*make_url)(char *url, size_t size);
    /* Removes everything there. */
    void (*clean)(const char *url);
    /* Waits until no work of a killed client is under way. NULL: such a client
     * leaves none. */
    void (*settle)(const char *url);
    /* Sets the epoch row, as if there had been many edits. */
    void (*set_epoch)(const char *url, uint64_t epoch);
    /* As if quotas had been removed by the edits 1 .. count, of a new store. */
    void (*reap)(const char *url, uint64_t count);
};

/* Runs the suite; returns the number of failed tests. */
int store_suite_run(const struct store_under_test *under_test);

#endif /* WEIR_STORE_SUITE_H */
