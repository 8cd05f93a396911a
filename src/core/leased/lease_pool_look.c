/* SPDX-License-Identifier: MIT
 * leased/lease_pool_look.c - read-only views of a lease pool, for people and
 * for the server that asks on behalf of the pool's clients. */

#include "core/leased/lease_pool_state.h"

void weir_lease_pool_stats(const struct weir_lease_pool *b,
                           struct weir_lease_pool_stats *out, weir_instant now)
{
    struct weir_book_sum sum = weir_book_sum(b->book);
    *out = (struct weir_lease_pool_stats){
        .holders = b->count,
        .clients = sum.weight,
        .capacity = b->rule.capacity,
        .wants = smaller(sum.wants, WEIR_LEASE_UNITS_MAX),
        .granted = total(&b->granted),
        .out = smaller(total(&b->out), WEIR_LEASE_UNITS_MAX),
        .safe_out = smaller(total(&b->safe_out), WEIR_LEASE_UNITS_MAX),
        .learning = is_learning(b, now),
    };
}

bool weir_lease_pool_holder(const struct weir_lease_pool *b, uint32_t holder,
                            struct weir_lease_holder_stats *out,
                            weir_instant now)
{
    if (holder >= b->used || !b->holders[holder].live)
        return false;
    const struct holder *h = &b->holders[holder];
    *out = (struct weir_lease_holder_stats){
        .wants = h->wants,
        .granted = h->grant,
        .out = h->out,
        .clients = h->clients,
        .left = h->lease_until > now ? h->lease_until - now : 0,
        .streams = h->streams,
    };
    return true;
}

size_t weir_lease_pool_bands(const struct weir_lease_pool *b,
                             struct weir_band *out, size_t max)
{
    weir_assert(max > 0);
    size_t count = 0;
    for (uint32_t i = 0; i < weir_book_bands(b->book); i++) {
        struct weir_band band = { 0 };
        struct weir_book_sum sum = weir_book_band(b->book, i, &band.priority);
        if (count < max)
            out[count++] = band;
        struct weir_band *last = &out[count - 1];
        uint64_t clients = last->clients + sum.weight;
        last->clients = clients < WEIR_LEASE_CLIENTS_MAX
                            ? (uint32_t)clients
                            : WEIR_LEASE_CLIENTS_MAX;
        last->wants = smaller(last->wants + sum.wants, WEIR_LEASE_UNITS_MAX);
    }
    return count;
}
