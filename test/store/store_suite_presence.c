/* SPDX-License-Identifier: MIT
 * test/store/store_suite_presence.c - roots write rows, which expire. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/store.h"
#include "store_suite_presence.h"

#define TTL ((int)(WEIR_PRESENCE_TTL / WEIR_SECOND))

static uint32_t present(struct weir_store *store, uint8_t root, bool leaves)
{
    const uint8_t incarnation[WEIR_INCARNATION_SIZE] = { root, 0xff };
    uint32_t roots = 99;
    struct weir_diag diag = { 0 };
    int error = weir_store_present(store, incarnation, leaves, &roots, &diag);
    if (error < 0)
        print_error("%s\n", diag.text);
    assert_int_equal(error, 0);
    return roots;
}

void store_suite_presence(const char *url,
                          void (*age)(const char *url, int seconds))
{
    struct weir_store *one, *two;
    struct weir_store_state before, after;
    assert_int_equal(weir_store_open(url, &one, NULL), 0);
    assert_int_equal(weir_store_open(url, &two, NULL), 0);
    assert_int_equal(weir_store_look(one, NULL, &before, NULL), 0);
    assert_int_equal(present(one, 1, false), 1);
    assert_int_equal(present(two, 2, false), 2);
    assert_int_equal(present(one, 1, false), 2);
    /* A root of the same store that was restarted, and its row of before. */
    assert_int_equal(present(two, 3, false), 3);
    age(url, TTL - 5);
    assert_int_equal(present(one, 1, false), 3);
    age(url, 10); /* 1 is young, and the others aren't */
    assert_int_equal(present(one, 1, false), 1);
    assert_int_equal(present(two, 3, false), 2);
    /* The store's clock was set back. */
    age(url, -3600);
    assert_int_equal(present(two, 3, false), 1);
    /* A root that stops is gone at once, and may come back. */
    assert_int_equal(present(one, 1, false), 2);
    assert_int_equal(present(one, 1, true), 1);
    assert_int_equal(present(two, 3, false), 1);
    assert_int_equal(present(one, 1, false), 2);
    /* That is no edit. */
    assert_int_equal(weir_store_look(two, NULL, &after, NULL), 0);
    assert_int_equal(after.epoch, before.epoch);
    assert_true(weir_store_id_equal(&after.id, &before.id));
    weir_store_close(one);
    weir_store_close(two);
}
