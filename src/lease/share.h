/* SPDX-License-Identifier: MIT
 * lease/share.h - who should have how much of a capacity, by the claims of all.
 *
 * A book holds the claims on one resource: what each wants, for how many
 * subclients it stands (its weight), and in which band it is. From the book
 * each claim's share follows: what it should have by the algorithm alone,
 * whatever anybody has at this moment. Whoever grants also looks at what is
 * free, and gives the smaller of the two:
 *
 *     grant = min(weir_share(...), capacity - what the others have)
 *
 * A share, a change and a level are O(log claims), with the bands counted one
 * by one on top; what a book says depends on the claims and their places in
 * it alone, not on how they came there. One thread at a time.
 *
 * Source: Google's Doorman (doc/algorithms.md) for the first three shares;
 * weighted max-min fairness: Bertsekas, Gallager, "Data Networks" (1992),
 * 6.5.2. Doorman's own FAIR_SHARE is the first two rounds of it. */

#ifndef WEIR_SHARE_H
#define WEIR_SHARE_H

#include "quota/quota.h"

#define WEIR_CLAIMS_MAX (1u << 20)          /* claims in a book */
#define WEIR_BANDS_MAX 64                   /* different bands in a book */
#define WEIR_WANTS_MAX WEIR_LEASE_UNITS_MAX /* of a claim */
#define WEIR_CLAIM_WEIGHT_MAX WEIR_LEASE_CLIENTS_MAX /* of a claim; >= 1 */

/* What each enum weir_share (quota/quota.h) gives a claim:
 *
 *   NONE          what it wants; the capacity doesn't matter
 *   STATIC        what it wants, at most the whole capacity: each claim by
 *                 itself
 *   PROPORTIONAL  what it wants while all fits. Then: up to its equal part
 *                 (capacity * weight / all weights) for sure, and of what
 *                 others leave of theirs in proportion to what it wants beyond
 *                 that
 *   FAIR          weighted max-min: no claim could have more without another
 *                 having less that has no more a weight. All is used, or all
 *                 have what they want
 *   PRIORITY      the higher band first, until it has what it wants; FAIR
 *                 within it */

struct weir_book; /* opaque */

/* An empty book. 'mem' is copied. 'seed' decides the tree's shape, which
 * should be nobody's to choose. NULL: no memory. */
struct weir_book *weir_book_new(const struct weir_mem *mem, uint64_t seed);
void weir_book_free(struct weir_book *book);

/* ---- Claims ----
 *
 * A claim is named by a number below WEIR_CLAIMS_MAX: its own from add to
 * remove, and then the next one's to be added, so that the numbers stay below
 * the most claims there ever were. 'band': any. 'weight': 1 to
 * WEIR_CLAIM_WEIGHT_MAX. 'wants': 0 to WEIR_WANTS_MAX, in the capacity's unit;
 * no NaN. Out of these ranges is WEIR_EINVAL; the number of no claim is
 * asserted. A call that fails has changed nothing. */

/* 0, WEIR_EINVAL, WEIR_EFULL (WEIR_CLAIMS_MAX claims, or WEIR_BANDS_MAX other
 * bands), WEIR_ENOMEM. Now and then the book doubles, which is O(claims). */
int weir_book_add(struct weir_book *book, int64_t band, uint64_t weight,
                  double wants, uint32_t *out_claim);
/* 0, WEIR_EINVAL, WEIR_EFULL (WEIR_BANDS_MAX other bands). Allocates nothing;
 * O(1) if all is as it was. */
int weir_book_change(struct weir_book *book, uint32_t claim, int64_t band,
                     uint64_t weight, double wants);
void weir_book_remove(struct weir_book *book, uint32_t claim);

/* ---- Sums ----
 *
 * They are added up anew along the path of each change, in a tree's order: an
 * error of some 2^-53 a level of the tree, however long the book lives. */

struct weir_book_sum {
    uint32_t claims;
    uint64_t weight;
    double wants;
};

/* Of all claims. O(1). */
struct weir_book_sum weir_book_sum(const struct weir_book *book);
/* How many bands have claims. */
uint32_t weir_book_bands(const struct weir_book *book);
/* The band at 'index' below weir_book_bands(), the highest first. O(1). */
struct weir_book_sum weir_book_band(const struct weir_book *book,
                                    uint32_t index, int64_t *out_band);

/* ---- Shares ----
 *
 * 'capacity' is at least 0; INFINITY is legal, NaN isn't (asserted). */

/* What 'claim' should have: 0 up to what it wants, and exactly that where it
 * gets all of it. Over all claims the shares of PROPORTIONAL, FAIR and PRIORITY
 * come to the capacity, or to what all want if that is less, but for
 * roundings, upwards too. */
double weir_share(const struct weir_book *book, enum weir_share algorithm,
                  uint32_t claim, double capacity);

/* The level of weighted max-min over all claims, whatever their band: who
 * wants no more than level * weight has what it wants, all others have
 * level * weight. INFINITY: all have what they want. */
double weir_book_level(const struct weir_book *book, double capacity);
/* The same over the claims of one band, by what the higher ones leave of
 * 'capacity'. INFINITY also where there is no such band. */
double weir_book_band_level(const struct weir_book *book, int64_t band,
                            double capacity);

#endif /* WEIR_SHARE_H */
