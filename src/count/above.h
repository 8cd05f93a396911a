/* SPDX-License-Identifier: MIT
 * count/above.h - what a region's root is told of a bucket by the roots above
 * it: its limiter half knows (tally.h), its root half asks (merge.h). */

#ifndef WEIR_ABOVE_H
#define WEIR_ABOVE_H

#include "algo/leaky.h"

struct weir_above {
    struct weir_bucket bucket; /* its parameters there … */
    uint64_t created;          /* … and the identity of its quota */
    int64_t fill;       /* by now, not below 0, scaled as they are; what we
                      * count, or presume, included */
    uint64_t pace;      /* of others than us: units in WEIR_PACE_SPAN */
    uint64_t allowance; /* 1/1024 units we may count on until a root has
                         * answered; UINT64_MAX: without end */
};

#endif /* WEIR_ABOVE_H */
