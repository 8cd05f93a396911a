/* SPDX-License-Identifier: MIT
 * leased/lease_pool_share.c - checks the ranges of an ask (NaN is in none),
 * decides how much of it is trusted, keeps its claims, one a priority, and
 * computes the grant: the share, the room that other holders leave, and the
 * safe capacity.
 *
 * Whole units. A part of a permit is of no use. Shares are fractions all the
 * same, and their whole parts leave odd units over: two units among three
 * holders leave both. So a holder with more than its share may have the odd
 * unit too, until another holder waits; then the odd unit is given up, at an
 * ask. A holder that gave one up rests (gets no odd unit) while any holder
 * waits that hasn't given one up: that period is a turn. A unit given up is
 * free to any waiting holder, as other capacity is. (To take an odd unit when a
 * holder begins to wait, and not at an ask, would push it to and fro.) */

#include "core/leased/lease_pool_internal.h"

/* ---- Asks and claims ---- */

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

/* ---- Shares ---- */

/* The capacity, less the amount that unheard holders may have. */
static double capacity_of(const struct weir_lease_pool *b, weir_instant now)
{
    double capacity = b->rule.capacity;
    if (!is_learning(b, now))
        return capacity;
    bool ours = b->expiry == WEIR_NEVER;
    double promised = b->learning.promised;
    if (!ours)
        promised = weir_smaller(promised, b->safe_total);
    double rest = capacity - weir_larger(0, promised - b->safe_known);
    double certain = weir_larger(ours ? b->known : b->safe_known, rest);
    if (now < b->learning.leases)
        certain = weir_smaller(certain, b->known);
    weir_assert(certain >= 0);
    return weir_smaller(certain, capacity);
}

bool weir_pool_is_held(const struct weir_lease_pool *b, weir_instant now)
{
    return is_learning(b, now) || (b->rule.share != WEIR_SHARE_NONE &&
                                   b->rule.share != WEIR_SHARE_STATIC);
}

static void levels_of(const struct weir_lease_pool *b,
                      struct weir_part_levels *out, weir_instant now)
{
    weir_assert(b->rule.share == WEIR_SHARE_FAIR);
    weir_book_part_levels(b->book, b->rule.parts, b->rule.part_count,
                          capacity_of(b, now), out);
}

double weir_pool_share(const struct weir_lease_pool *b, const struct holder *h,
                       weir_instant now)
{
    double capacity = capacity_of(b, now);
    double share = 0;
    struct weir_part_levels levels;
    if (b->rule.part_count > 0)
        levels_of(b, &levels, now);
    for (uint32_t c = h->first; c != NO_CLAIM; c = b->claims[c].next)
        share += b->rule.part_count > 0
                     ? weir_levels_share(b->book, &levels, c)
                     : weir_fair_share(b->book, b->rule.share, c, capacity);
    weir_assert(share >= 0);
    return share;
}

static bool has_part(const struct weir_lease_pool *b, int64_t band)
{
    for (size_t i = 0; i < b->rule.part_count; i++)
        if (b->rule.parts[i].band == band)
            return true;
    return false;
}

size_t weir_lease_pool_guarantees(const struct weir_lease_pool *b,
                                  uint32_t holder, struct weir_guarantee *out,
                                  weir_instant now)
{
    struct weir_part_levels levels;
    size_t count = 0;
    if (b->rule.part_count == 0 || holder >= b->used ||
        !b->holders[holder].live)
        return 0;
    levels_of(b, &levels, now);
    const struct holder *h = &b->holders[holder];
    for (uint32_t c = h->first;
         c != NO_CLAIM && count < WEIR_LEASE_GUARANTEES_MAX;
         c = b->claims[c].next) {
        /* Nothing, too: else what was guaranteed before would stay so. */
        double units = weir_levels_guaranteed(b->book, &levels, c);
        if (has_part(b, b->claims[c].priority))
            out[count++] = (struct weir_guarantee){
                b->claims[c].priority, weir_smaller(units, WEIR_LEASE_UNITS_MAX)
            };
    }
    return count;
}

bool weir_pool_is_short(const struct weir_lease_pool *b, weir_instant now)
{
    return b->waiting > 0 || (weir_pool_is_held(b, now) &&
                              is_less(capacity_of(b, now), total(&b->out)));
}

bool weir_pool_is_at_safe(const struct weir_lease_pool *b)
{
    return b->expiry != WEIR_NEVER && b->expiry == b->safe_until &&
           b->rule.capacity <= b->safe_total;
}

/* The larger of the last granted steps that it may be on. When our own lease is
 * over our holders' are too: a grant above the safe capacity isn't
 * prolonged. */
static double charge_of(const struct weir_lease_pool *b, const struct holder *h,
                        weir_instant now)
{
    bool leased = now < h->lease_until && !weir_pool_is_at_safe(b);
    return leased ? weir_larger(h->grant, h->safe) : h->safe;
}

/* The most that 'h' may be granted now; while more is out than there is, no
 * more than before. */
static double room_for(const struct weir_lease_pool *b, const struct holder *h,
                       weir_instant now)
{
    double free = capacity_of(b, now) - (total(&b->out) - h->out);
    return weir_larger(charge_of(b, h, now), free);
}

/* ---- Whole units ---- */

/* At most WEIR_LEASE_UNITS_MAX; shares are right to some roundings. */
static double whole_units_below(double x)
{
    return (double)(int64_t)(x * (1 + TINY));
}

static double whole_units_above(double share)
{
    double below = (double)(int64_t)share;
    return below < share * (1 - TINY) ? below + 1 : below;
}

/* Whether a holder waits that hasn't given an odd unit up in this turn. */
static bool is_due(const struct weir_lease_pool *b)
{
    return b->waiting > b->rested;
}

static double whole_grant(const struct weir_lease_pool *b,
                          const struct holder *h, double share, double room)
{
    weir_assert(b->rule.whole);
    bool rests = h->turn == b->turn && is_due(b);
    return weir_smaller(rests ? whole_units_below(share)
                              : whole_units_above(share),
                        whole_units_below(room));
}

double weir_pool_share_above(const struct weir_lease_pool *b, double share)
{
    return b->rule.whole ? whole_units_above(share) : share;
}

double weir_pool_pass_on(struct weir_lease_pool *b, struct holder *h,
                         double share, double grant)
{
    weir_assert(b->rule.whole && b->turn > 0);
    if (!is_due(b)) {
        b->turn++;
        b->rested = 0;
        return grant;
    }
    if (h->turn != b->turn && h->waits)
        b->rested++; /* of the waiting holders, as set_waits() counts */
    h->turn = b->turn;
    weir_assert(b->rested <= b->waiting);
    return weir_smaller(whole_units_below(share), grant);
}

/* ---- Grants ---- */

double weir_pool_grant(const struct weir_lease_pool *b, const struct holder *h,
                       double share, weir_instant now)
{
    weir_assert(share >= 0);
    if (weir_roster_excludes(b, h))
        return weir_smaller(share, charge_of(b, h, now));
    if (!weir_pool_is_held(b, now))
        return share;
    double room = room_for(b, h, now);
    return b->rule.whole ? whole_grant(b, h, share, room)
                         : weir_smaller(share, room);
}

/* By the rule, for all of its clients. */
static double safe_share(const struct weir_lease_pool *b,
                         const struct holder *h, double grant)
{
    if (b->rule.hold)
        return grant;
    double clients = (double)h->clients;
    double all = (double)weir_book_sum(b->book).weight;
    double safe = b->rule.safe >= 0 ? b->rule.safe * clients
                                    : b->rule.capacity * clients / all;
    return weir_smaller(safe, WEIR_LEASE_UNITS_MAX);
}

/* The same for safe capacity. While it learns, the safe capacity of its account
 * costs nothing, and bounds the amount that it may yet report. */
static double safe_room_for(const struct weir_lease_pool *b,
                            const struct holder *h, double grant,
                            weir_instant now)
{
    weir_assert(grant >= 0);
    double room = grant;
    if (!weir_pool_is_short(b, now))
        room = weir_larger(grant, room_for(b, h, now));
    if (b->expiry != WEIR_NEVER) {
        double free = b->safe_total - (total(&b->safe_out) - h->safe_out);
        room = weir_smaller(room, weir_larger(h->safe, free));
    }
    return h->learns ? weir_larger(room, h->safe_out) : room;
}

double weir_pool_safe(const struct weir_lease_pool *b, const struct holder *h,
                      double grant, weir_instant now)
{
    weir_assert(grant >= 0);
    if (!h->streams)
        return 0;
    double safe = safe_share(b, h, grant);
    if (h->learns)
        safe = weir_larger(safe, h->safe_out);
    if (weir_roster_excludes(b, h))
        return weir_smaller(safe, grant);
    if (!weir_pool_is_held(b, now))
        return safe;
    return weir_smaller(safe, safe_room_for(b, h, grant, now));
}
