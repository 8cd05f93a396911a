/* SPDX-License-Identifier: MIT
 * leased/lease_pool_ask.c - checks the ranges of an ask (NaN is in none),
 * decides how much of it is trusted, and keeps its claims: one a priority. */

#include "core/leased/lease_pool_internal.h"

bool weir_ask_is_sound(const struct weir_lease_pool_ask *ask)
{
    if (!(ask->has >= 0 && ask->has <= WEIR_LEASE_UNITS_MAX) ||
        !(ask->safe >= 0 && ask->safe <= WEIR_LEASE_UNITS_MAX) ||
        ask->band_count == 0 || ask->band_count > WEIR_LEASE_BANDS_MAX)
        return false;
    for (size_t i = 0; i < ask->band_count; i++) {
        const struct weir_band *band = &ask->bands[i];
        if (!(band->wants >= 0 && band->wants <= WEIR_LEASE_UNITS_MAX) ||
            band->clients < 1 || band->clients > WEIR_CLAIM_WEIGHT_MAX)
            return false;
        for (size_t k = 0; k < i; k++)
            if (ask->bands[k].priority == band->priority)
                return false;
    }
    return true;
}

/* A holder's reported amount is trusted. For a holder that can't be pushed to
 * it is capped at the capacity, for that may be any client. (A larger amount
 * would leave no less to others.) If the capacity is leased its amount isn't
 * known. */
double weir_ask_believed(const struct weir_lease_pool *b,
                         const struct weir_lease_pool_ask *ask)
{
    double has = weir_larger(ask->has, ask->safe);
    bool bounded = !ask->streams && b->expiry == WEIR_NEVER;
    return bounded ? weir_smaller(has, b->rule.capacity) : has;
}

static uint32_t claim_of(const struct weir_lease_pool *b,
                         const struct holder *h, int64_t priority)
{
    uint32_t c = h->first;
    while (c != NO_CLAIM && b->claims[c].priority != priority)
        c = b->claims[c].next;
    return c;
}

/* The band that a claim goes with when the book has no room for its own: the
 * next lower one, or the lowest. */
static int64_t band_beside(const struct weir_lease_pool *b, int64_t priority)
{
    int64_t band = priority;
    for (uint32_t i = 0; i < weir_book_bands(b->book); i++) {
        weir_book_band(b->book, i, &band);
        if (band <= priority)
            break;
    }
    return band;
}

static int add_claim(struct weir_lease_pool *b, struct holder *h,
                     const struct weir_band *band)
{
    struct claim *grown =
        weir_mem_grow(&b->mem, b->claims, sizeof(*grown), &b->claim_capacity,
                      weir_book_sum(b->book).claims + 1);
    if (grown == NULL)
        return WEIR_ENOMEM;
    b->claims = grown;
    uint32_t claim;
    int64_t in = band->priority;
    int error = weir_book_add(b->book, in, band->clients, band->wants, &claim);
    if (error == WEIR_EFULL) {
        in = band_beside(b, in);
        error = weir_book_add(b->book, in, band->clients, band->wants, &claim);
    }
    if (error < 0)
        return error;
    weir_assert(claim < b->claim_capacity);
    b->claims[claim] = (struct claim){ .next = h->first,
                                       .mark = b->mark,
                                       .priority = band->priority,
                                       .band = in };
    h->first = claim;
    return WEIR_OK;
}

/* Removes the holder's claims with, or without, the mark of this ask. */
static void drop_claims(struct weir_lease_pool *b, struct holder *h,
                        bool marked)
{
    uint32_t *link = &h->first;
    while (*link != NO_CLAIM) {
        uint32_t claim = *link;
        weir_assert(claim < b->claim_capacity);
        if ((b->claims[claim].mark == b->mark) == marked) {
            *link = b->claims[claim].next;
            weir_book_remove(b->book, claim);
        } else {
            link = &b->claims[claim].next;
        }
    }
}

/* The claim moves to its own band as soon as that has room. */
static void change_claim(struct weir_lease_pool *b, uint32_t claim,
                         const struct weir_band *band)
{
    weir_assert(claim < b->claim_capacity);
    struct claim *c = &b->claims[claim];
    int error = weir_book_change(b->book, claim, c->priority, band->clients,
                                 band->wants);
    if (error == WEIR_OK)
        c->band = c->priority;
    else
        error = weir_book_change(b->book, claim, c->band, band->clients,
                                 band->wants);
    weir_assert(error == WEIR_OK);
}

/* Sets the holder's claims by its ask. The steps that can fail come first. */
int weir_ask_claim_all(struct weir_lease_pool *b, struct holder *h,
                       const struct weir_lease_pool_ask *ask)
{
    b->mark++;
    for (size_t i = 0; i < ask->band_count; i++) {
        const struct weir_band *band = &ask->bands[i];
        if (claim_of(b, h, band->priority) != NO_CLAIM)
            continue;
        int error = add_claim(b, h, band);
        if (error < 0) {
            drop_claims(b, h, true);
            return error;
        }
    }
    h->clients = 0;
    h->wants = 0;
    for (size_t i = 0; i < ask->band_count; i++) {
        const struct weir_band *band = &ask->bands[i];
        uint32_t claim = claim_of(b, h, band->priority);
        change_claim(b, claim, band);
        b->claims[claim].mark = b->mark;
        h->clients += band->clients;
        h->wants += band->wants;
    }
    drop_claims(b, h, false);
    weir_assert(h->first != NO_CLAIM);
    return WEIR_OK;
}

void weir_ask_drop_claims(struct weir_lease_pool *b, struct holder *h)
{
    while (h->first != NO_CLAIM) {
        uint32_t claim = h->first;
        h->first = b->claims[claim].next;
        weir_book_remove(b->book, claim);
    }
}
