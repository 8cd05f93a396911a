/* SPDX-License-Identifier: MIT
 * test_fair_share.c - Doorman's published shares, bit for bit; the bounds and
 * the edges of a book. Random books are in test_fair_share_water.c. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "book_maker.h"
#include "compare.h"
#include "mem_maker.h"

/* ---- The original's vectors ---- */

#define CLIENTS_MAX 6

struct client {
    double wants;
    uint64_t subclients;
    double expect;
};

struct vector {
    const char *name;
    enum weir_share_algorithm algorithm;
    double capacity;
    bool preload;
    struct client clients[CLIENTS_MAX]; /* entries with subclients */
};

/* A lease server like the original, except for the shares. */
struct pool {
    const struct vector *vector;
    struct weir_book *book;
    uint32_t claims[CLIENTS_MAX];
    double has[CLIENTS_MAX];
    uint32_t count;
};

/* All of its algorithm_test.go. In none of these cases do the two rounds of the
 * original's FAIR_SHARE differ from max-min. */
/* clang-format off */
static const struct vector vectors[] = {
    { "NoAlgorithm", WEIR_SHARE_NONE, 0, false,
      { { 10, 1, 10 }, { 100, 1, 100 } } },
    { "Static", WEIR_SHARE_STATIC, 100, false,
      { { 100, 1, 100 }, { 10, 1, 10 }, { 120, 1, 100 } } },
    { "FairShare", WEIR_SHARE_FAIR, 120, true,
      { { 1000, 1, 55 }, { 60, 1, 55 }, { 10, 1, 10 } } },
    { "FairShareLowerExtra", WEIR_SHARE_FAIR, 120, true,
      { { 1000, 1, 60 }, { 50, 1, 50 }, { 10, 1, 10 } } },
    { "FairShareWithMultipleSubclients (a)", WEIR_SHARE_FAIR, 120, true,
      { { 1000, 6, 60 }, { 500, 4, 40 }, { 200, 2, 20 } } },
    { "FairShareWithMultipleSubclients (b)", WEIR_SHARE_FAIR, 1000, true,
      { { 2000, 10, 200 }, { 500, 10, 200 }, { 700, 30, 600 } } },
    { "ProportionalShare (a)", WEIR_SHARE_PROPORTIONAL, 120, true,
      { { 60, 1, 55 }, { 60, 1, 55 }, { 10, 1, 10 } } },
    { "ProportionalShare (b)", WEIR_SHARE_PROPORTIONAL, 120, false,
      { { 60, 1, 60 }, { 75, 1, 60 }, { 10, 1, 0 } } },
    { "ProportionalShareWithMultipleSubclients (a)", WEIR_SHARE_PROPORTIONAL,
      120, true, { { 65, 3, 60 }, { 45, 2, 40 }, { 20, 1, 20 } } },
    { "ProportionalShareWithMultipleSubclients (b)", WEIR_SHARE_PROPORTIONAL,
      120, false, { { 65, 3, 65 }, { 45, 2, 45 }, { 20, 1, 10 } } },
    { "LeaseLengthAndRefreshInterval", WEIR_SHARE_PROPORTIONAL, 100, false,
      { { 10, 1, 10 } } },
};

/* From its documentation: the grants when all have asked often. */
static const struct vector steady[] = {
    { "algorithms.md, none", WEIR_SHARE_NONE, 0, false,
      { { 100, 1, 100 }, { 10, 1, 10 }, { 1000, 1, 1000 } } },
    { "algorithms.md, static", WEIR_SHARE_STATIC, 120, false,
      { { 50, 1, 50 }, { 200, 1, 120 }, { 300, 1, 120 } } },
    { "algorithms.md, proportional", WEIR_SHARE_PROPORTIONAL, 120, false,
      { { 1000, 1, 69.69072164948454 }, { 50, 1, 40.30927835051546 },
        { 10, 1, 10 } } },
    { "algorithms.md, fair", WEIR_SHARE_FAIR, 120, false,
      { { 1000, 1, 60 }, { 50, 1, 50 }, { 10, 1, 10 } } },
    { "tutorial, proportional, five", WEIR_SHARE_PROPORTIONAL, 100, false,
      { { 10, 1, 10 }, { 10, 1, 10 }, { 10, 1, 10 }, { 10, 1, 10 },
        { 500, 1, 60 } } },
    { "tutorial, proportional, six", WEIR_SHARE_PROPORTIONAL, 100, false,
      { { 10, 1, 10 }, { 10, 1, 10 }, { 10, 1, 10 }, { 10, 1, 10 },
        { 500, 1, 25.454545454545457 }, { 1000, 1, 34.54545454545455 } } },
    { "tutorial, fair, five", WEIR_SHARE_FAIR, 1000, false,
      { { 100, 1, 100 }, { 100, 1, 100 }, { 100, 1, 100 }, { 100, 1, 100 },
        { 1000, 1, 600 } } },
    { "tutorial, fair, six", WEIR_SHARE_FAIR, 1000, false,
      { { 100, 1, 100 }, { 100, 1, 100 }, { 100, 1, 100 }, { 100, 1, 100 },
        { 1000, 1, 300 }, { 2000, 1, 300 } } },
};
/* clang-format on */

static double sum_has(const struct pool *pool)
{
    double sum = 0;
    for (uint32_t i = 0; i < pool->count; i++)
        sum += pool->has[i];
    return sum;
}

static void join(struct pool *pool)
{
    const struct client *client = &pool->vector->clients[pool->count];
    pool->claims[pool->count] =
        made_claim(pool->book, 1, client->subclients, client->wants);
    pool->has[pool->count++] = 0;
}

static bool is_shared(const struct vector *vector)
{
    return vector->algorithm != WEIR_SHARE_NONE &&
           vector->algorithm != WEIR_SHARE_STATIC;
}

/* Client i, which may be new, asks; returns its grant. */
static double ask(struct pool *pool, uint32_t i)
{
    const struct vector *vector = pool->vector;
    if (i == pool->count)
        join(pool);
    double share = weir_fair_share(pool->book, vector->algorithm,
                                   pool->claims[i], vector->capacity);
    if (is_shared(vector)) {
        double free = vector->capacity - sum_has(pool) + pool->has[i];
        share = share < free ? share : free;
    }
    pool->has[i] = share;
    if (is_shared(vector))
        assert_compare(sum_has(pool), <=, vector->capacity);
    return share;
}

static uint32_t clients_of(const struct vector *vector)
{
    uint32_t count = 0;
    while (count < CLIENTS_MAX && vector->clients[count].subclients > 0)
        count++;
    return count;
}

static struct pool made_pool(const struct vector *vector, uint64_t seed)
{
    return (struct pool){ .vector = vector, .book = made_book(seed) };
}

static void check_vector(const struct vector *vector, uint64_t seed)
{
    struct pool pool = made_pool(vector, seed);
    uint32_t clients = clients_of(vector);
    while (vector->preload && pool.count < clients)
        join(&pool);
    for (uint32_t i = 0; i < clients; i++) {
        double grant = ask(&pool, i);
        if (grant != vector->clients[i].expect)
            print_error("%s, client %u\n", vector->name, i);
        assert_same(grant, vector->clients[i].expect);
    }
    weir_book_free(pool.book);
}

/* For any shape of the tree, which the seed draws. */
static void vectors_of_the_original(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEIR_COUNT_OF(vectors); i++)
        for (uint64_t seed = 0; seed < 100; seed++)
            check_vector(&vectors[i], seed);
}

static void check_steady(const struct vector *vector, uint64_t seed)
{
    struct pool pool = made_pool(vector, seed);
    uint32_t clients = clients_of(vector);
    for (unsigned round = 0; round < 20; round++)
        for (uint32_t i = 0; i < clients; i++)
            ask(&pool, i);
    for (uint32_t i = 0; i < clients; i++) {
        if (pool.has[i] != vector->clients[i].expect)
            print_error("%s, client %u\n", vector->name, i);
        assert_same(pool.has[i], vector->clients[i].expect);
        /* The share itself is the same, without leases in force. */
        assert_same(weir_fair_share(pool.book, vector->algorithm,
                                    pool.claims[i], vector->capacity),
                    vector->clients[i].expect);
    }
    weir_book_free(pool.book);
}

static void steady_states_of_the_original(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEIR_COUNT_OF(steady); i++)
        for (uint64_t seed = 0; seed < 100; seed++)
            check_steady(&steady[i], seed);
}

/* ---- Bounds ---- */

static void what_is_no_claim_is_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t weight;
        double wants;
    } bad[] = {
        { 1, NAN },
        { 1, -NAN },
        { 1, INFINITY },
        { 1, -INFINITY },
        { 1, -1 },
        { 1, -5e-324 },
        { 1, 1.0000000000000002e18 },
        { 0, 1 },
        { WEIR_CLAIM_WEIGHT_MAX + 1ull, 1 },
        { 1ull << 32 | 1, 1 },
        { UINT64_MAX, 1 },
    };
    struct weir_book *book = made_book(1);
    uint32_t claim = made_claim(book, 1, WEIR_CLAIM_WEIGHT_MAX, WEIR_WANTS_MAX);
    for (size_t i = 0; i < WEIR_COUNT_OF(bad); i++) {
        uint32_t other = 77;
        assert_int_equal(
            weir_book_add(book, 2, bad[i].weight, bad[i].wants, &other),
            WEIR_EINVAL);
        assert_int_equal(other, 77);
        assert_int_equal(
            weir_book_change(book, claim, 2, bad[i].weight, bad[i].wants),
            WEIR_EINVAL);
    }
    struct weir_book_sum sum = weir_book_sum(book);
    assert_int_equal(sum.claims, 1);
    assert_true(sum.weight == WEIR_CLAIM_WEIGHT_MAX);
    assert_same(sum.wants, WEIR_WANTS_MAX);
    assert_int_equal(weir_book_bands(book), 1);
    weir_book_free(book);
}

static void a_book_has_so_many_bands(void **state)
{
    (void)state;
    struct weir_book *book = made_book(1);
    for (uint32_t i = 0; i < WEIR_BANDS_MAX; i++)
        assert_int_equal(made_claim(book, (int64_t)i * 1000, 1, 1), i);
    uint32_t more = 77;
    assert_int_equal(weir_book_add(book, 1, 1, 1, &more), WEIR_EFULL);
    assert_int_equal(more, 77);
    uint32_t second = made_claim(book, 63000, 1, 2); /* an existing band */

    /* A claim that is alone in its band can move the band to another number;
     * with others in it, it can't. */
    assert_int_equal(weir_book_change(book, 63, 64000, 1, 1), WEIR_EFULL);
    assert_int_equal(weir_book_change(book, 0, -5, 1, 1), 0);
    assert_int_equal(weir_book_bands(book), WEIR_BANDS_MAX);
    int64_t band;
    weir_book_band(book, WEIR_BANDS_MAX - 1, &band);
    assert_int_equal(band, -5);
    struct weir_book_sum sum = weir_book_band(book, 0, &band);
    assert_int_equal(band, 63000);
    assert_int_equal(sum.claims, 2);
    assert_same(sum.wants, 3);

    /* An empty band leaves room for another. */
    weir_book_remove(book, 5);
    assert_int_equal(made_claim(book, 1, 1, 1), 5);
    assert_int_equal(weir_book_change(book, second, 5000, 1, 1), WEIR_EFULL);
    weir_book_free(book);
}

static void a_book_has_so_many_claims(void **state)
{
    (void)state;
    struct weir_book *book = made_book(1);
    for (uint32_t i = 0; i < WEIR_CLAIMS_MAX; i++)
        made_claim(book, 1, 1 + i % 5, i);
    uint32_t claim = 77;
    assert_int_equal(weir_book_add(book, 1, 1, 1, &claim), WEIR_EFULL);
    assert_int_equal(claim, 77);
    struct weir_book_sum sum = weir_book_sum(book);
    assert_int_equal(sum.claims, WEIR_CLAIMS_MAX);
    assert_same(sum.wants, (double)WEIR_CLAIMS_MAX * (WEIR_CLAIMS_MAX - 1) / 2);
    weir_book_remove(book, 1000);
    assert_int_equal(made_claim(book, 1, 1, 1), 1000);
    weir_book_free(book);
}

/* ---- Edges ---- */

static void nothing_is_shared_as_nothing(void **state)
{
    (void)state;
    struct weir_book *book = made_book(1);
    assert_same(weir_book_level(book, 0), INFINITY);
    assert_same(weir_book_band_level(book, 1, 0), INFINITY);
    assert_same(weir_book_sum(book).wants, 0);
    uint32_t some = made_claim(book, 1, 2, 10);
    uint32_t none = made_claim(book, 1, 1, -0.0);
    for (int a = WEIR_SHARE_STATIC; a <= WEIR_SHARE_PRIORITY; a++) {
        enum weir_share_algorithm algorithm = (enum weir_share_algorithm)a;
        assert_same(weir_fair_share(book, algorithm, some, 0), 0);
        assert_same(weir_fair_share(book, algorithm, none, 0), 0);
        assert_same(weir_fair_share(book, algorithm, some, INFINITY), 10);
        assert_same(weir_fair_share(book, algorithm, none, INFINITY), 0);
    }
    assert_same(weir_book_level(book, 0), 0);
    assert_same(weir_book_level(book, 4), 2);
    assert_same(weir_book_level(book, 10), INFINITY);
    weir_book_free(book);
}

static void higher_bands_come_first(void **state)
{
    (void)state;
    struct weir_book *book = made_book(1);
    uint32_t low = made_claim(book, -3, 1, 50);
    uint32_t high = made_claim(book, 9, 1, 60);
    uint32_t heavy = made_claim(book, 5, 3, 80);
    uint32_t light = made_claim(book, 5, 1, 80);
    assert_same(weir_fair_share(book, WEIR_SHARE_PRIORITY, high, 100), 60);
    assert_same(weir_fair_share(book, WEIR_SHARE_PRIORITY, heavy, 100), 30);
    assert_same(weir_fair_share(book, WEIR_SHARE_PRIORITY, light, 100), 10);
    assert_same(weir_fair_share(book, WEIR_SHARE_PRIORITY, low, 100), 0);
    assert_same(weir_book_band_level(book, 9, 100), INFINITY);
    assert_same(weir_book_band_level(book, 5, 100), 10);
    assert_same(weir_book_band_level(book, -3, 100), 0);
    assert_same(weir_book_band_level(book, 4, 100), INFINITY);
    /* Fair share doesn't look at bands: 20 each, and 60 for three. */
    assert_same(weir_fair_share(book, WEIR_SHARE_FAIR, heavy, 120), 60);
    assert_same(weir_fair_share(book, WEIR_SHARE_FAIR, low, 120), 20);
    weir_book_free(book);
}

/* ---- Memory ---- */

static void no_memory_changes_nothing(void **state)
{
    (void)state;
    struct scarce scarce = { 0, 0 };
    struct weir_mem mem = scarce_mem(&scarce);
    for (int left = 0; left < 2; left++) {
        scarce.left = left;
        assert_null(weir_book_new(&mem, 1));
        assert_int_equal(scarce.bytes, 0);
    }
    scarce.left = 2;
    struct weir_book *book = weir_book_new(&mem, 1);
    assert_non_null(book);
    unsigned refused = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t claim = 77;
        scarce.left = 0;
        int error = weir_book_add(book, 1, 1, 1, &claim);
        if (error != 0) {
            refused++;
            assert_int_equal(error, WEIR_ENOMEM);
            assert_int_equal(claim, 77);
            assert_int_equal(weir_book_sum(book).claims, i);
            scarce.left = 1;
            claim = made_claim(book, 1, 1, 1);
        }
        assert_int_equal(claim, i);
    }
    assert_compare(refused, >=, 5);
    weir_book_free(book);
    assert_int_equal(scarce.bytes, 0);
    weir_book_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_the_original),
        cmocka_unit_test(steady_states_of_the_original),
        cmocka_unit_test(what_is_no_claim_is_refused),
        cmocka_unit_test(a_book_has_so_many_bands),
        cmocka_unit_test(a_book_has_so_many_claims),
        cmocka_unit_test(nothing_is_shared_as_nothing),
        cmocka_unit_test(higher_bands_come_first),
        cmocka_unit_test(no_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
