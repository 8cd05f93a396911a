/* SPDX-License-Identifier: MIT
 * test/lab/test_storage.c - the lab's storages: the instants of their
 * answers. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compare.h"
#include "lab/storage.h"

#define MS WEIR_MILLISECOND
#define S WEIR_SECOND

static const struct weir_storage_options article = {
    .kind = WEIR_STORAGE_RECENT,
    .latency = 180 * MS,
    .per_s = 50,
    .slowness = 3,
};

static weir_duration ask(struct weir_storage *storage, weir_instant now)
{
    struct weir_rng rng = { .state = 1 };
    return weir_storage_request(storage, &rng, now);
}

/* 3.6 ms for each arrival of the last second, answered or not. */
static void arrivals_of_the_last_second_count(void **state)
{
    (void)state;
    struct weir_storage *storage = weir_storage_new(&article);
    assert_int_equal(ask(storage, 5 * S), 3600000);
    assert_int_equal(ask(storage, 5 * S), 7200000);
    assert_int_equal(ask(storage, 6 * S - 1), 3 * 3600000);
    /* The first two are a second old by now. */
    assert_int_equal(ask(storage, 6 * S), 2 * 3600000);
    /* More than the ring has room for at first. */
    for (int i = 3; i <= 1000; i++)
        assert_int_equal(ask(storage, 6 * S), (weir_duration)i * 3600000);
    assert_int_equal(ask(storage, 8 * S), 3600000);
    weir_storage_free(storage);
}

static void a_floor_is_the_least(void **state)
{
    (void)state;
    struct weir_storage_options options = article;
    options.floor = 10 * MS;
    struct weir_storage *storage = weir_storage_new(&options);
    assert_int_equal(ask(storage, S), 10 * MS);
    assert_int_equal(ask(storage, S), 10 * MS);
    assert_int_equal(ask(storage, S), 10800000);
    weir_storage_free(storage);
}

static void it_is_slow_for_a_while_and_again(void **state)
{
    (void)state;
    struct weir_storage_options options = article;
    options.slow_at = 10 * S;
    options.slow_for = 5 * S;
    options.slow_every = 20 * S;
    struct weir_storage *storage = weir_storage_new(&options);
    static const struct {
        weir_instant at;
        weir_duration latency;
    } rows[] = {
        { 8 * S, 3600000 },  { 10 * S, 10800000 }, { 15 * S - 1, 10800000 },
        { 16 * S, 3600000 }, { 29 * S, 3600000 },  { 31 * S, 10800000 },
        { 35 * S, 3600000 },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++)
        assert_int_equal(ask(storage, rows[i].at), rows[i].latency);
    weir_storage_free(storage);
}

/* An answer due while the storage stands still comes later, by the rest of the
 * standstill. */
static void it_stands_still(void **state)
{
    (void)state;
    struct weir_storage_options options = {
        .kind = WEIR_STORAGE_FLAT,
        .latency = 50 * MS,
        .hang_at = 60 * S,
        .hang_for = 10 * S,
    };
    struct weir_storage *storage = weir_storage_new(&options);
    assert_int_equal(ask(storage, 60 * S - 51 * MS), 50 * MS);
    assert_int_equal(ask(storage, 60 * S - 20 * MS), 10050 * MS);
    assert_int_equal(ask(storage, 60 * S), 10050 * MS);
    assert_int_equal(ask(storage, 69 * S), 1050 * MS);
    assert_int_equal(ask(storage, 70 * S), 50 * MS);
    weir_storage_free(storage);
}

/* The workers of a pool stand still in a hang: the queue of its time is worked
 * off afterwards, one after the other, and a request whose turn would come too
 * late costs no worker. */
static void a_pool_stands_still(void **state)
{
    (void)state;
    struct weir_storage_options options = {
        .kind = WEIR_STORAGE_POOL,
        .latency = 20 * MS,
        .workers = 2,
        .slowness = 1,
        .hang_at = 60 * S,
        .hang_for = 10 * S,
    };
    struct weir_storage *storage = weir_storage_new(&options);
    /* ask() draws the same number each time, so each service is as long. */
    weir_duration service = ask(storage, 10 * S), half = service / 2;
    assert_compare(service, >=, 10 * MS);
    assert_int_equal(ask(storage, 60 * S - service - 1), service);
    /* Caught half-way. */
    assert_int_equal(ask(storage, 60 * S - half), 10 * S + service);
    /* Both workers are busy or stand still; so these are answered in pairs. */
    assert_int_equal(ask(storage, 61 * S), 9 * S + service);
    assert_int_equal(ask(storage, 62 * S), 8 * S - half + 2 * service);
    weir_storage_free(storage);
    options.workers = 1;
    for (int leaves = 0; leaves < 2; leaves++) {
        options.leaves_after = leaves == 0 ? 0 : 2 * S;
        storage = weir_storage_new(&options);
        assert_int_equal(ask(storage, 61 * S), 9 * S + (leaves ? 0 : service));
        assert_int_equal(ask(storage, 69 * S), S + (leaves ? 1 : 2) * service);
        assert_int_equal(ask(storage, 80 * S), service);
        weir_storage_free(storage);
    }
}

static void some_answers_are_slow(void **state)
{
    (void)state;
    struct weir_storage_options options = {
        .kind = WEIR_STORAGE_FLAT,
        .latency = 50 * MS,
        .blip_at = S,
        .blip_count = 2,
        .blip_latency = 500 * MS,
    };
    struct weir_storage *storage = weir_storage_new(&options);
    assert_int_equal(ask(storage, S - 1), 50 * MS);
    assert_int_equal(ask(storage, 2 * S), 500 * MS);
    assert_int_equal(ask(storage, 2 * S), 500 * MS);
    assert_int_equal(ask(storage, 2 * S), 50 * MS);
    weir_storage_free(storage);
}

/* One worker: each request waits for the one before; none takes less than half
 * of the mean, and the mean is the configured one. */
static void a_pool_answers_in_turn(void **state)
{
    (void)state;
    struct weir_storage_options options = { .kind = WEIR_STORAGE_POOL,
                                            .latency = 20 * MS,
                                            .workers = 1 };
    struct weir_storage *storage = weir_storage_new(&options);
    struct weir_rng rng = { .state = 7 };
    weir_duration before = 0;
    enum { ASKED = 10000 };
    for (int i = 0; i < ASKED; i++) {
        weir_duration answered = weir_storage_request(storage, &rng, S);
        assert_compare(answered, >=, before + 10 * MS);
        before = answered;
    }
    assert_in_range(before / ASKED, 19500000, 20500000);
    weir_storage_free(storage);
    /* Two workers don't wait for each other. */
    options.workers = 2;
    storage = weir_storage_new(&options);
    weir_duration first = weir_storage_request(storage, &rng, S);
    weir_duration second = weir_storage_request(storage, &rng, S + first);
    assert_compare(first, >=, 10 * MS);
    assert_compare(second, >=, 10 * MS);
    assert_compare(weir_storage_request(storage, &rng, S + first), >=, 10 * MS);
    weir_storage_free(storage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrivals_of_the_last_second_count),
        cmocka_unit_test(a_floor_is_the_least),
        cmocka_unit_test(it_is_slow_for_a_while_and_again),
        cmocka_unit_test(it_stands_still),
        cmocka_unit_test(a_pool_stands_still),
        cmocka_unit_test(some_answers_are_slow),
        cmocka_unit_test(a_pool_answers_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
