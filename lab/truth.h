/* SPDX-License-Identifier: MIT
 * lab/truth.h - the whole fleet's true state, which no node knows: for each
 * quota one bucket that gets all units that the fleet lets through, at once.
 * Beside it the ideal limiter: one bucket that decides on all requests, by the
 * textbook (an independent draw in the band).
 *
 * The same arithmetic as the product (algo/leaky), fed from outside, over the
 * whole chain, with the store's quotas of that instant. */

#ifndef WEIR_TRUTH_H
#define WEIR_TRUTH_H

#include "lab/fleet.h"
#include "lab/scenario.h"

struct weir_truth; /* of a fleet */

/* One quota, instance, or name without quota. Sums are in units since the
 * start, over all requests on chains through it. */
struct weir_truth_bucket {
    struct weir_text name;          /* NUL-terminated */
    const struct weir_quota *quota; /* in force in the store: its own or its
                                     * template; NULL: none */
    struct weir_truth_bucket *parent;
    uint64_t offered, passed, refused;
    uint64_t ideal_passed, ideal_refused;
    double limit_per_s, low, high; /* units; NaN without such a limit */
    /* Since weir_truth_forget_most(), units and limit-seconds, >= 0. */
    double fill_most, over_high_most;
    /* Private to the truth: */
    struct weir_bucket bucket;
    uint64_t in, ideal_in; /* scaled sums, see algorithm/leaky.h */
};

/* Watches the fleet, which outlives it. 'ideal': the ideal limiter runs too,
 * with a random stream of its own, from 'seed'. */
struct weir_truth *weir_truth_new(struct weir_fleet *fleet, bool ideal,
                                  enum weir_curve curve, uint64_t seed);
void weir_truth_free(struct weir_truth *truth);

/* The bucket of a name, made if needed; it lives as long as the truth. */
struct weir_truth_bucket *weir_truth_use(struct weir_truth *truth,
                                         struct weir_text name);
/* All of them, in the order of first use; NULL past the end. */
struct weir_truth_bucket *weir_truth_at(struct weir_truth *truth, size_t index);

/* Whether the bucket is that name's, or of an instance of that template. */
bool weir_truth_is_of(const struct weir_truth_bucket *bucket,
                      struct weir_text name);

/* A request is about to be made: the ideal limiter decides on it. The truth
 * observes the fleet's own decision by watching it. */
void weir_truth_offered(struct weir_truth *truth,
                        struct weir_truth_bucket *bucket, uint64_t weight);
void weir_truth_refused(struct weir_truth_bucket *bucket, uint64_t weight);
/* The request passed a limiter without such a quota: no bucket there counted
 * it. */
void weir_truth_slipped(struct weir_truth_bucket *bucket, uint64_t weight);
/* The store was edited just now. Fills stay the same, in units. (An edit
 * without this call is noticed at the next request.) */
void weir_truth_edited(struct weir_truth *truth);

/* The present fill, leaked until now. Units; 0 without a limit. */
double weir_truth_fill(struct weir_truth *truth,
                       struct weir_truth_bucket *bucket);
/* Resets the two maxima to the present values. */
void weir_truth_forget_most(struct weir_truth *truth,
                            struct weir_truth_bucket *bucket);

#endif /* WEIR_TRUTH_H */
