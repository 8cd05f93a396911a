/* SPDX-License-Identifier: MIT
 * test/table_calls.h - one function for each kind of request that
 * weir_table_ask() decides, for tests. */

#ifndef WEIR_TABLE_CALLS_H
#define WEIR_TABLE_CALLS_H

#include "core/table/table.h"

static inline unsigned weir_table_reserve(struct weir_table *t, uint32_t stripe,
                                          struct weir_ref ref, uint64_t weight,
                                          weir_duration wait_max,
                                          struct weir_reply *reply,
                                          weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_RESERVE,
                                      .weight = weir_weight_clipped(weight),
                                      .wait_max = wait_max };
    return weir_table_ask(t, stripe, ref, &ask, reply, now);
}

static inline unsigned weir_table_do(struct weir_table *t, uint32_t stripe,
                                     struct weir_ref ref,
                                     enum weir_algorithm_op op, uint64_t weight,
                                     struct weir_reply *reply, weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = op,
                                      .weight = weir_weight_clipped(weight) };
    return weir_table_ask(t, stripe, ref, &ask, reply, now);
}

static inline unsigned weir_table_peek(struct weir_table *t, uint32_t stripe,
                                       struct weir_ref ref, uint64_t weight,
                                       struct weir_reply *reply,
                                       weir_instant now)
{
    return weir_table_do(t, stripe, ref, WEIR_ALGORITHM_PEEK, weight, reply,
                         now);
}

static inline unsigned weir_table_charge(struct weir_table *t, uint32_t stripe,
                                         struct weir_ref ref, uint64_t weight,
                                         weir_instant now)
{
    return weir_table_do(t, stripe, ref, WEIR_ALGORITHM_CHARGE, weight, NULL,
                         now);
}

static inline unsigned weir_table_refund(struct weir_table *t, uint32_t stripe,
                                         struct weir_ref ref, uint64_t weight,
                                         weir_instant now)
{
    return weir_table_do(t, stripe, ref, WEIR_ALGORITHM_REFUND, weight, NULL,
                         now);
}

#endif /* WEIR_TABLE_CALLS_H */
