/* SPDX-License-Identifier: MIT
 * counted/above.h - a bucket as the roots above a region report it to the
 * region's root. The limiter half fills it in (tally.h), the root half reads it
 * (merge.h). */

#ifndef WEIR_ABOVE_H
#define WEIR_ABOVE_H

#include "core/algorithm/leaky.h"

struct weir_above {
    struct weir_bucket bucket; /* its parameters above … */
    uint64_t created;          /* … and the identity of its quota */
    int64_t fill;       /* at 'now', not below 0, on the bucket's scale; units
                         * that the region counted, or presumes, included */
    uint64_t pace;      /* of all other limiters above: units in
                         * WEIR_PACE_SPAN */
    uint64_t allowance; /* 1/1024 units that the region may still count until a
                         * root above answers; UINT64_MAX: no bound */
};

#endif /* WEIR_ABOVE_H */
