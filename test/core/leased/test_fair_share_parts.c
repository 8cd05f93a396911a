/* SPDX-License-Identifier: MIT
 * test_fair_share_parts.c - bands that are guaranteed parts of the capacity,
 * beside levels that are found by halving. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "book_maker.h"
#include "compare.h"
#include "core/base/rng.h"
#include "core/leased/fair_share.h"
#include "seed.h"

#define CLAIMS 40
#define BANDS 6

struct world {
    struct weir_book *book;
    uint32_t count;
    int64_t band[CLAIMS];
    double weight[CLAIMS], wants[CLAIMS];
    struct weir_band_part parts[BANDS];
    size_t part_count;
    double capacity;
};

static double part_of(const struct world *world, int64_t band)
{
    for (size_t i = 0; i < world->part_count; i++)
        if (world->parts[i].band == band)
            return world->parts[i].part;
    return 0;
}

static double wants_of(const struct world *world, int64_t band)
{
    double sum = 0;
    for (uint32_t i = 0; i < world->count; i++)
        sum += band < 0 || world->band[i] == band ? world->wants[i] : 0;
    return sum;
}

/* The sum over a band's claims, or over all (-1), with least levels. */
static double filled(const struct world *world, int64_t band, double level,
                     const double *least)
{
    double sum = 0;
    for (uint32_t i = 0; i < world->count; i++) {
        double own = least ? fmax(level, least[world->band[i]]) : level;
        if (band < 0 || world->band[i] == band)
            sum += fmin(world->wants[i], own * world->weight[i]);
    }
    return sum;
}

/* The highest level at which no more is filled than there is. */
static double halved(const struct world *world, int64_t band, double capacity,
                     const double *least)
{
    double low = 0, high = 1e7;
    if (wants_of(world, band) <= capacity)
        return high;
    for (int i = 0; i < 200; i++) {
        double middle = (low + high) / 2;
        if (filled(world, band, middle, least) <= capacity)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static double wanted_by_chance(struct weir_rng *rng)
{
    switch (weir_rng_below(rng, 4)) {
    case 0:
        return 0;
    case 1:
        return (double)weir_rng_below(rng, 10);
    case 2:
        return weir_rng_unit(rng);
    }
    return weir_rng_unit(rng) * 1000;
}

static void make_world(struct world *world, struct weir_rng *rng)
{
    *world = (struct world){ .book = made_book(weir_rng_next(rng)) };
    uint32_t count = 1 + (uint32_t)weir_rng_below(rng, CLAIMS);
    while (world->count < count) {
        uint32_t i = world->count++;
        uint64_t weight = 1 + weir_rng_below(rng, 3);
        world->band[i] = (int64_t)weir_rng_below(rng, BANDS);
        world->weight[i] = (double)weight;
        world->wants[i] = wanted_by_chance(rng);
        assert_int_equal(
            made_claim(world->book, world->band[i], weight, world->wants[i]),
            i);
    }
    double rest = 1;
    world->part_count = weir_rng_below(rng, BANDS);
    for (size_t i = 0; i < world->part_count; i++) {
        double part =
            weir_rng_below(rng, 5) == 0 ? rest : weir_rng_unit(rng) * rest;
        world->parts[i] = (struct weir_band_part){ (int64_t)i, part };
        rest -= part;
    }
    world->capacity = wants_of(world, -1) * weir_rng_unit(rng) * 1.5;
    if (weir_rng_below(rng, 20) == 0)
        world->capacity = 0;
}

static void check_world(const struct world *world)
{
    struct weir_part_levels levels;
    double least[BANDS], sure[BANDS] = { 0 };
    double given = 0, scale = world->capacity + 1;
    weir_book_part_levels(world->book, world->parts, world->part_count,
                          world->capacity, &levels);
    for (int64_t band = 0; band < BANDS; band++)
        least[band] =
            halved(world, band, part_of(world, band) * world->capacity, NULL);
    double all = halved(world, -1, world->capacity, least);
    for (uint32_t i = 0; i < world->count; i++) {
        double share = weir_levels_share(world->book, &levels, i);
        double own = weir_levels_guaranteed(world->book, &levels, i);
        double exact = fmin(world->wants[i], fmax(all, least[world->band[i]]) *
                                                 world->weight[i]);
        assert_float_equal(share, exact, 1e-9 * scale);
        assert_compare(share, >=, 0);
        assert_compare(share, <=, world->wants[i]);
        assert_compare(share, >=, fmin(own, world->wants[i]) - 1e-9 * scale);
        given += share;
        sure[world->band[i]] += own;
    }
    assert_float_equal(given, fmin(wants_of(world, -1), world->capacity),
                       1e-9 * scale);
    for (int64_t band = 0; band < BANDS; band++)
        assert_compare(sure[band], <=,
                       part_of(world, band) * world->capacity + 1e-9 * scale);
    for (uint32_t i = 0; i < world->count; i++) /* all of the part is given */
        assert_float_equal(sure[world->band[i]],
                           part_of(world, world->band[i]) * world->capacity,
                           1e-9 * scale);
}

static void any_book_against_halving(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("any_book_against_halving");
    for (int i = 0; i < 20000; i++) {
        struct world world;
        make_world(&world, &rng);
        check_world(&world);
        weir_book_free(world.book);
    }
}

/* Web processes are few, and what they want is guaranteed to them; workers
 * divide the rest. */
static void few_are_guaranteed_what_many_want(void **state)
{
    (void)state;
    const struct weir_band_part half = { 7, 0.5 };
    struct weir_part_levels levels;
    struct weir_book *book = made_book(1);
    for (int i = 0; i < 3; i++)
        made_claim(book, 7, 1, 10);
    for (int i = 0; i < 30; i++)
        made_claim(book, 9, 1, 10);
    weir_book_part_levels(book, &half, 1, 60, &levels);
    assert_float_equal(weir_levels_share(book, &levels, 0), 10, 1e-9);
    assert_float_equal(weir_levels_share(book, &levels, 3), 1, 1e-9);
    weir_book_part_levels(book, &half, 1, 30, &levels);
    assert_float_equal(weir_levels_share(book, &levels, 0), 5, 1e-9);
    assert_float_equal(weir_levels_guaranteed(book, &levels, 0), 5, 1e-9);
    assert_float_equal(weir_levels_share(book, &levels, 3), 0.5, 1e-9);
    assert_float_equal(weir_levels_guaranteed(book, &levels, 3), 0, 0);
    /* There is enough for all: nothing is divided. */
    weir_book_part_levels(book, &half, 1, 400, &levels);
    assert_float_equal(weir_levels_share(book, &levels, 3), 10, 0);
    assert_float_equal(weir_levels_guaranteed(book, &levels, 0), 200.0 / 3,
                       1e-9);
    weir_book_free(book);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_book_against_halving),
        cmocka_unit_test(few_are_guaranteed_what_many_want),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
