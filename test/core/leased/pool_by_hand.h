/* SPDX-License-Identifier: MIT
 * test/core/leased/pool_by_hand.h - lease pools for stories by hand: made,
 * joined, asked. */

#ifndef WEIR_LEASE_POOL_BY_HAND_H
#define WEIR_LEASE_POOL_BY_HAND_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/leased/lease_pool.h"
#include "mem_maker.h"

#define BEGIN (1000 * WEIR_SECOND)

static uint64_t serials;

static inline struct weir_lease_rule rule_of(enum weir_share_algorithm share,
                                             double capacity)
{
    return (struct weir_lease_rule){ .share = share,
                                     .capacity = capacity,
                                     .lease = 60 * WEIR_SECOND,
                                     .refresh = 8 * WEIR_SECOND };
}

static inline struct weir_lease_pool *pool_of(enum weir_share_algorithm share,
                                              double capacity)
{
    struct weir_lease_rule rule = rule_of(share, capacity);
    struct weir_lease_pool *b =
        weir_lease_pool_new(&maker_mem, &rule, NULL, &serials, 1, BEGIN);
    assert_non_null(b);
    return b;
}

/* A pool that learns its predecessor's grants: leases until 'leases', and at
 * most 'promised' in safe capacities until 'safes'. */
static inline struct weir_lease_pool *learner_of(double capacity,
                                                 weir_instant leases,
                                                 weir_instant safes,
                                                 double promised)
{
    struct weir_lease_rule rule = rule_of(WEIR_SHARE_FAIR, capacity);
    const struct weir_learning learning = { leases, safes, promised };
    struct weir_lease_pool *b =
        weir_lease_pool_new(&maker_mem, &rule, &learning, &serials, 1, BEGIN);
    assert_non_null(b);
    return b;
}

static inline uint32_t joined(struct weir_lease_pool *b)
{
    uint32_t holder;
    static uint64_t names;
    assert_int_equal(weir_lease_pool_join(b, ++names, &holder), 0);
    return holder;
}

static inline struct weir_grant asked(struct weir_lease_pool *b,
                                      uint32_t holder, double wants, double has,
                                      uint64_t taken, weir_instant now)
{
    struct weir_band band = { .priority = 0, .clients = 1, .wants = wants };
    struct weir_lease_pool_ask ask = { .bands = &band,
                                       .band_count = 1,
                                       .has = has,
                                       .taken = taken,
                                       .streams = true };
    struct weir_grant grant;
    assert_int_equal(weir_lease_pool_ask(b, holder, &ask, &grant, now), 0);
    return grant;
}

static inline struct weir_lease_pool_stats stats_of(struct weir_lease_pool *b,
                                                    weir_instant now)
{
    struct weir_lease_pool_stats stats;
    weir_lease_pool_stats(b, &stats, now);
    return stats;
}

#define assert_near(a, b) assert_true(near((a), (b)))
static inline bool near(double a, double b)
{
    double d = a > b ? a - b : b - a;
    if (d <= 1e-9 * (a > b ? a : b) + 1e-12)
        return true;
    print_error("%.17g isn't %.17g\n", a, b);
    return false;
}

/* A holder that can't be pushed to: its reported amount is the only sign of its
 * limit, and may be missing (Doorman's 'has' is optional), or false. */
static inline struct weir_grant called(struct weir_lease_pool *b,
                                       uint32_t holder, double wants,
                                       double has, weir_instant now)
{
    struct weir_band band = { .priority = 0, .clients = 1, .wants = wants };
    struct weir_lease_pool_ask ask = { .bands = &band,
                                       .band_count = 1,
                                       .has = has };
    struct weir_grant grant;
    weir_lease_pool_tick(b, now);
    assert_int_equal(weir_lease_pool_ask(b, holder, &ask, &grant, now), 0);
    return grant;
}

#endif /* WEIR_LEASE_POOL_BY_HAND_H */
