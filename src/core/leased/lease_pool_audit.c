/* SPDX-License-Identifier: MIT
 * leased/lease_pool_audit.c - audits of a lease pool: each kept sum is the sum
 * over the holders, and claims, lists and counts agree. */

#include "core/leased/lease_pool_internal.h"

#include <math.h>

/* Two sums of the same numbers, in different orders, differ by less: roundings
 * are some 2^-53 a number. */
#define SUMS_DIFFER 1e-6

/* The sums over all holders of a pool. */
struct holder_sums {
    uint32_t holders, waiting, rested;
    uint32_t deaf, showing;
    uint32_t claims;
    uint64_t names, clients;
    double out, safe_out, granted, wants;
};

static bool is_same_sum(double kept, double found)
{
    return fabs(kept - found) <= SUMS_DIFFER * (1 + kept + found);
}

static uint32_t claims_of(const struct weir_lease_pool *b,
                          const struct holder *h)
{
    uint32_t count = 0;
    for (uint32_t c = h->first; c != NO_CLAIM; c = b->claims[c].next) {
        weir_assert(c < b->claim_capacity);
        weir_assert(++count <= WEIR_LEASE_BANDS_MAX);
    }
    return count;
}

/* Checks one neighbour in the list. A holder without one is at that 'end'. */
static bool is_beside(const struct weir_lease_pool *b, uint32_t neighbour,
                      uint32_t end, uint32_t index)
{
    if (neighbour == WEIR_LEASE_HOLDER_NONE)
        return end == index;
    const struct holder *h = &b->holders[neighbour];
    return neighbour < b->used && h->listed &&
           (h->before == index || h->after == index);
}

static void audit_listed(const struct weir_lease_pool *b,
                         const struct holder *h)
{
    const struct list *list = &b->lists[h->faded];
    uint32_t index = (uint32_t)(h - b->holders);
    weir_assert(is_beside(b, h->before, list->oldest, index));
    weir_assert(is_beside(b, h->after, list->newest, index));
}

static void audit_holder(const struct weir_lease_pool *b,
                         const struct holder *h)
{
    if (!h->live) {
        weir_assert(h->first == NO_CLAIM && !h->listed && h->out == 0);
        return;
    }
    weir_assert(h->safe_out >= 0 && h->grant >= 0 && h->safe >= 0);
    weir_assert(h->out == weir_larger(h->step, h->safe_out));
    weir_assert(!h->faded || (h->grant == 0 && h->first == NO_CLAIM));
    weir_assert(!h->waits || h->first != NO_CLAIM);
    weir_assert(h->known || (h->serial == 0 && h->first == NO_CLAIM));
    weir_assert(h->serial <= *b->serials && h->since <= h->serial);
    weir_assert(h->token_place <= b->roster_token.place);
    weir_assert(h->gated_by <= b->roster_token.place);
    weir_assert(h->turn <= b->turn);
    if (h->listed)
        audit_listed(b, h);
}

static void add_holder(const struct weir_lease_pool *b, const struct holder *h,
                       struct holder_sums *sums)
{
    bool claims = h->first != NO_CLAIM;
    sums->holders++;
    sums->waiting += h->waits;
    sums->rested += h->waits && h->turn == b->turn;
    sums->claims += claims_of(b, h);
    sums->clients += claims ? h->clients : 0;
    sums->wants += claims ? h->wants : 0;
    sums->out += h->out;
    sums->safe_out += h->safe_out;
    sums->granted += h->grant;
    if (!h->known)
        return;
    sums->names += h->name;
    sums->deaf += !h->streams;
    sums->showing += weir_roster_shows(b, h);
}

static void audit_sums(const struct weir_lease_pool *b)
{
    struct holder_sums sums = { 0 };
    struct weir_book_sum book = weir_book_sum(b->book);
    for (uint32_t i = 0; i < b->used; i++)
        if (b->holders[i].live)
            add_holder(b, &b->holders[i], &sums);
    weir_assert(sums.holders == b->count);
    weir_assert(sums.waiting == b->waiting && sums.rested == b->rested);
    weir_assert(sums.claims == book.claims && sums.clients == book.weight);
    weir_assert(is_same_sum(book.wants, sums.wants));
    weir_assert(is_same_sum(total(&b->out), sums.out));
    weir_assert(is_same_sum(total(&b->safe_out), sums.safe_out));
    weir_assert(is_same_sum(total(&b->granted), sums.granted));
    weir_assert(sums.names == b->roster_token.names);
    weir_assert(sums.deaf == b->roster_token.deaf);
    weir_assert(sums.showing == b->roster_token.showing);
}

static void audit_lease_list(const struct weir_lease_pool *b,
                             const struct list *list)
{
    bool empty = list->oldest == WEIR_LEASE_HOLDER_NONE;
    weir_assert(empty == (list->newest == WEIR_LEASE_HOLDER_NONE));
    weir_assert(empty || b->holders[list->oldest].listed);
    weir_assert(empty || b->holders[list->newest].listed);
}

void weir_lease_pool_audit(struct weir_lease_pool *b, uint32_t n)
{
    weir_assert(b->count <= b->used && b->used <= b->capacity);
    weir_assert(b->rested <= b->waiting && b->waiting <= b->count);
    weir_assert(b->roster_token.deaf <= b->count);
    weir_assert(b->roster_token.showing <= b->count);
    weir_assert(b->learning.leases <= b->learning.safes && b->lessons <= 2);
    for (unsigned i = 0; i < WEIR_COUNT_OF(b->lists); i++)
        audit_lease_list(b, &b->lists[i]);
    weir_book_audit(b->book);
    if (b->used <= WEIR_AUDIT_WALK_MAX)
        audit_sums(b);
    for (uint32_t i = 0; i < n && i < b->used; i++) {
        if (b->audit_hand >= b->used)
            b->audit_hand = 0;
        audit_holder(b, &b->holders[b->audit_hand++]);
    }
}
