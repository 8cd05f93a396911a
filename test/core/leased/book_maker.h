/* SPDX-License-Identifier: MIT
 * test/core/leased/book_maker.h - books of claims for tests. */

#ifndef WEIR_BOOK_MAKER_H
#define WEIR_BOOK_MAKER_H

#include "core/leased/fair_share.h"
#include "quota_maker.h"

/* An empty book, its shape from 'seed'. */
struct weir_book *made_book(uint64_t seed);
/* Adds a claim; fails the test if that fails. */
uint32_t made_claim(struct weir_book *book, int64_t band, uint64_t weight,
                    double wants);

/* Wants from 0 to WEIR_WANTS_MAX, of all sizes; most are equal to others. */
double random_wants(struct weir_rng *rng);
uint64_t random_weight(struct weir_rng *rng);
/* One of six. */
int64_t random_band(struct weir_rng *rng);

/* Equal in every bit. */
void assert_same(double a, double b);

#endif /* WEIR_BOOK_MAKER_H */
