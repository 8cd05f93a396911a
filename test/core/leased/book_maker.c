/* SPDX-License-Identifier: MIT
 * test/core/leased/book_maker.c - see book_maker.h. */

#include "book_maker.h"
#include "mem_maker.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct weir_book *made_book(uint64_t seed)
{
    struct weir_book *book = weir_book_new(&maker_mem, seed);
    assert_non_null(book);
    return book;
}

uint32_t made_claim(struct weir_book *book, int64_t band, uint64_t weight,
                    double wants)
{
    uint32_t claim = UINT32_MAX;
    assert_int_equal(weir_book_add(book, band, weight, wants, &claim), 0);
    return claim;
}

static const double sizes[] = { 0, 1e-300, 1e-9, 1, 10, 10, 1000, 1e9, 1e18 };

double random_wants(struct weir_rng *rng)
{
    double size = sizes[weir_rng_below(rng, WEIR_COUNT_OF(sizes))];
    /* Two of three are equal to many others. */
    return weir_rng_below(rng, 3) ? size : size * weir_rng_unit(rng);
}

uint64_t random_weight(struct weir_rng *rng)
{
    switch (weir_rng_below(rng, 3)) {
    case 0:
        return 1;
    case 1:
        return 1 + weir_rng_below(rng, 5);
    }
    return 1 + weir_rng_below(rng, WEIR_CLAIM_WEIGHT_MAX);
}

int64_t random_band(struct weir_rng *rng)
{
    static const int64_t bands[] = { INT64_MIN, -1, 0, 1, 7, INT64_MAX };
    return bands[weir_rng_below(rng, WEIR_COUNT_OF(bands))];
}

void assert_same(double a, double b)
{
    if (a == b && signbit(a) == signbit(b))
        return;
    print_error("%.17g is not %.17g\n", a, b);
    fail();
}
