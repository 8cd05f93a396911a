/* SPDX-License-Identifier: MIT
 * bench/share_rows.c - one decision on a lease, by the number of claims.
 *
 * A random claim out of n comes with other wants (the whole part of a random
 * e^(6u), as in Doorman's measurement), and its fair share of a capacity of
 * half of all wants is computed. 'as before': it comes with unchanged wants,
 * which is the usual case. Doorman's own figures for the same decision, with
 * its clean-up, overloaded, on another machine (2-core Xeon, Go 1.19): 16 us,
 * 407 us, 2.8 ms and 29 ms for 100, 1,000, 10,000 and 100,000 clients. */

#include "rows.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/rng.h"
#include "core/leased/fair_share.h"
#include "io/clock.h"

#define WANTS 4096 /* computed before, so that no exp() is timed */

struct shares {
    struct weir_book *book;
    struct weir_rng rng;
    uint32_t claims;
    double capacity;
    double wants[WANTS];
};

static double some_wants(struct shares *shares)
{
    return shares->wants[weir_rng_below(&shares->rng, WANTS)];
}

static void shares_teardown(void *state)
{
    struct shares *shares = state;
    weir_book_free(shares->book);
    free(shares);
}

static void *shares_setup(uint32_t claims)
{
    struct shares *shares = calloc(1, sizeof(*shares));
    if (shares == NULL)
        return NULL;
    shares->claims = claims;
    shares->book = weir_book_new(&weir_mem_system, 20);
    for (uint32_t i = 0; i < WANTS; i++)
        shares->wants[i] = floor(exp(6 * weir_rng_unit(&shares->rng)));
    for (uint32_t i = 0; i < claims; i++) {
        uint32_t claim;
        if (shares->book == NULL ||
            weir_book_add(shares->book, 1, 1, some_wants(shares), &claim) != 0)
            abort();
    }
    shares->capacity = weir_book_sum(shares->book).wants / 2;
    return shares;
}

static void *setup_100(const char **out_note)
{
    (void)out_note;
    return shares_setup(100);
}

static void *setup_1k(const char **out_note)
{
    (void)out_note;
    return shares_setup(1000);
}

static void *setup_10k(const char **out_note)
{
    (void)out_note;
    return shares_setup(10000);
}

static void *setup_100k(const char **out_note)
{
    (void)out_note;
    return shares_setup(100000);
}

const struct bench_fixture bench_shares_100 = { setup_100, shares_teardown };
const struct bench_fixture bench_shares_1k = { setup_1k, shares_teardown };
const struct bench_fixture bench_shares_10k = { setup_10k, shares_teardown };
const struct bench_fixture bench_shares_100k = { setup_100k, shares_teardown };

static void decide(struct shares *shares, uint32_t claim)
{
    double share =
        weir_fair_share(shares->book, WEIR_SHARE_FAIR, claim, shares->capacity);
    if (!(share >= 0))
        abort();
    bench_keep((uint64_t)share);
}

void bench_share_changed(void *state, int thread, uint64_t n)
{
    struct shares *shares = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t claim = (uint32_t)weir_rng_below(&shares->rng, shares->claims);
        if (weir_book_change(shares->book, claim, 1, 1, some_wants(shares)) !=
            0)
            abort();
        decide(shares, claim);
    }
}

void bench_share_same(void *state, int thread, uint64_t n)
{
    struct shares *shares = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t claim = (uint32_t)weir_rng_below(&shares->rng, shares->claims);
        double wants = weir_fair_share(shares->book, WEIR_SHARE_NONE, claim, 0);
        if (weir_book_change(shares->book, claim, 1, 1, wants) != 0)
            abort();
        decide(shares, claim);
    }
}
