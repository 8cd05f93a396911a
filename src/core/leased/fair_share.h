/* SPDX-License-Identifier: MIT
 * core/leased/fair_share.h - each claim's share of a capacity, by the claims
 * of all.
 *
 * A book has the claims on one resource: the demand of each ('wants'), the
 * number of subclients it stands for (its weight), and its band. From the book
 * follows each claim's share: the amount it should have by the algorithm alone,
 * without regard to present grants. The caller that grants also looks at what
 * is free, and gives the smaller of the two:
 *
 *     grant = min(weir_fair_share(...), capacity - grants of the others)
 *
 * A share, a change and a level are O(log claims), with the bands counted one
 * by one on top. The results depend on the claims and their numbers in the book
 * alone, not on the book's history. One thread at a time.
 *
 * Source: Google's Doorman (doc/algorithms.md) for the first three shares;
 * weighted max-min fairness: Bertsekas, Gallager, "Data Networks" (1992),
 * 6.5.2. Doorman's own FAIR_SHARE is the first two rounds of it. */

#ifndef WEIR_FAIR_SHARE_H
#define WEIR_FAIR_SHARE_H

#include "core/quota/quota.h"

#define WEIR_CLAIMS_MAX (1u << 20)          /* claims in a book */
#define WEIR_BANDS_MAX 64                   /* different bands in a book */
#define WEIR_WANTS_MAX WEIR_LEASE_UNITS_MAX /* of a claim */
#define WEIR_CLAIM_WEIGHT_MAX WEIR_LEASE_CLIENTS_MAX /* of a claim; >= 1 */

/* The share of a claim by each enum weir_share_algorithm (quota/quota.h):
 *
 *   NONE          its demand; the capacity doesn't matter
 *   STATIC        its demand, at most the whole capacity: each claim by itself
 *   PROPORTIONAL  its demand while all fits. Then: up to its equal part
 *                 (capacity * weight / all weights) for sure; the rest of the
 *                 equal parts in proportion to the demand beyond them
 *   FAIR          weighted max-min: no claim could have more without another
 *                 having less that has no more a weight. All is used, or all
 *                 demands are met
 *   PRIORITY      the higher band first, until its demand is met; FAIR within
 *                 it */

struct weir_book; /* opaque */

/* An empty book. 'mem' is copied. 'seed' decides the tree's shape; clients must
 * not know it. NULL: no memory. */
struct weir_book *weir_book_new(const struct weir_mem *mem, uint64_t seed);
void weir_book_free(struct weir_book *book);

/* ---- Claims ----
 *
 * A claim is named by a number below WEIR_CLAIMS_MAX: its own from add to
 * remove, then free for the next claim, so that the numbers stay below the most
 * claims there ever were. 'band': any. 'weight': 1 to WEIR_CLAIM_WEIGHT_MAX.
 * 'wants': 0 to WEIR_WANTS_MAX, in the capacity's unit; no NaN. A value out of
 * these ranges is WEIR_EINVAL; an unknown claim number is an assertion failure.
 * A call that fails has changed nothing. */

/* 0, WEIR_EINVAL, WEIR_EFULL (WEIR_CLAIMS_MAX claims, or WEIR_BANDS_MAX other
 * bands), WEIR_ENOMEM. Now and then the book doubles, which is O(claims). */
int weir_book_add(struct weir_book *book, int64_t band, uint64_t weight,
                  double wants, uint32_t *out_claim);
/* 0, WEIR_EINVAL, WEIR_EFULL (WEIR_BANDS_MAX other bands). Allocates nothing;
 * O(1) if nothing changes. */
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

/* The share of 'claim': 0 up to its demand, and exactly that if the demand is
 * met. Over all claims the shares of PROPORTIONAL, FAIR and PRIORITY sum up to
 * the capacity, or to the whole demand if that is less, but for roundings,
 * upwards too. */
double weir_fair_share(const struct weir_book *book,
                       enum weir_share_algorithm algorithm, uint32_t claim,
                       double capacity);

/* The level of weighted max-min over all claims, of any band: claims that want
 * at most level * weight get their demand, all others get level * weight.
 * INFINITY: all demands are met. */
double weir_book_level(const struct weir_book *book, double capacity);
/* The same over the claims of one band, with the capacity that the higher bands
 * leave. INFINITY also if there is no such band. */
double weir_book_band_level(const struct weir_book *book, int64_t band,
                            double capacity);

/* ---- Guaranteed parts ----
 *
 * A band may be guaranteed a part of the capacity. Its claims divide that part
 * by weighted max-min, and so is their least share; what is left of all parts,
 * and the rest, go to all claims, so that no claim could have more without
 * another having less that has no more a weight, and no less than its least
 * share: weighted max-min with guaranteed minima (Bertsekas, Gallager, 6.5.2).
 */

#define WEIR_BAND_PARTS_MAX WEIR_LEASE_GUARANTEES_MAX

struct weir_band_part {
    int64_t band;
    double part; /* of the capacity: 0 .. 1 */
};

/* The levels of all bands: a claim gets its demand, or the larger of its band's
 * level and that of all, times its weight. */
struct weir_part_levels {
    double all;   /* INFINITY: all is met */
    size_t count; /* of bands with a part */
    struct weir_band_part bands[WEIR_BAND_PARTS_MAX];
    double level[WEIR_BAND_PARTS_MAX]; /* likewise */
    double spare[WEIR_BAND_PARTS_MAX]; /* of a band's part, for each weight,
                                        * when all of its demands are met */
};

/* 'parts': each band once, at most WEIR_BAND_PARTS_MAX, in sum at most 1 but
 * for roundings; 'capacity': finite. O(log claims) for each band with a part
 * and each band with claims, some times. */
void weir_book_part_levels(const struct weir_book *book,
                           const struct weir_band_part *parts, size_t count,
                           double capacity, struct weir_part_levels *out);
/* The claim's share by them; the sum of all is as that of FAIR. */
double weir_levels_share(const struct weir_book *book,
                         const struct weir_part_levels *levels, uint32_t claim);
/* The amount that is guaranteed to the claim, spare parts of its band included:
 * over all claims of a band they sum up to its part, at most. */
double weir_levels_guaranteed(const struct weir_book *book,
                              const struct weir_part_levels *levels,
                              uint32_t claim);

/* An assertion fails if the bands' order is broken, or their claims don't sum
 * up to those of the book. O(bands). */
void weir_book_audit(const struct weir_book *book);

#endif /* WEIR_FAIR_SHARE_H */
