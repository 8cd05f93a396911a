/* SPDX-License-Identifier: MIT
 * leased/lease_pool_roster.c - how a lease pool knows that it has heard all
 * holders.
 *
 * The problem. A pool that follows another may give away nothing that an
 * unheard holder might have. That lasts for two leases, though mostly all
 * holders are back within a second. The predecessor knew which holders have
 * something, but it is gone; to store each holder, or each amount, before it
 * counts would be a write per grant.
 *
 * So the holders store it. With each grant goes a roster token: a number made
 * of the names of all known holders. A holder that comes back shows its token
 * to the successor. If the names of the holders that have shown one make that
 * number, all of them were heard. Their accounts are then all that is out, and
 * learning is over.
 *
 * A token may be outdated: another holder may have been granted something
 * since. So a number is kept beside the mastership, and each token is made of
 * it too:
 *
 *     token = mix(kept number) + sum of names     (modulo 2^64)
 *
 *   - A new holder is given nothing while any holder may show a token without
 *     its name that was made under the number that is kept ('gated').
 *   - A successor reads the number as it finds it, and answers no holder before
 *     it has kept another.
 *
 * Why it never hands out too much. Let the successor find the number n, and the
 * names it heard make a token that was sent under n. A holder that has
 * something and wasn't heard isn't on that token, so it came after the token
 * was sent (a holder that leaves has nothing more). Then it was gated until
 * another number than n was kept, but n is found; or until no holder could show
 * that token any more, but it was shown. The exception is chance: 2^-64 for
 * each token shown.
 *
 * A gated holder isn't answered: it would go by a grant of nothing, although
 * the amount it has (of the sharing before, or from another master) is as good
 * as ever. Its demand counts, so that others give up its share meanwhile. A
 * client of Doorman's protocol is answered, with nothing and a short refresh:
 * all its other requests would wait behind that answer.
 *
 * A gated holder waits for one of two events. Mostly for one write, the same
 * for all that wait; then they are answered, and the tokens sent before are
 * void. But the write may take its time, or be refused for ever. So while a
 * holder waits no tokens are sent, and a holder that has taken a grant without
 * one shows none; nor does a forgotten holder, since all its grants are over.
 * When no holder is left that shows one, the wait is over: after a round trip
 * if all are granted less for the new holder's sake, else after two refreshes,
 * or, if a holder has fallen silent, at the end of its lease. Tokens are sent
 * again when a number was kept.
 *
 * A void token, or one with the name of a holder that has gone, proves nothing.
 * If a master is lost before its holders have another, its successor learns by
 * time, as lease_pool.c says (also if a holder keeps no token, as Doorman's
 * clients). The holders get another with their next answers, within a refresh.
 * To take less time, all are called when no holder has come or gone for a
 * while: each holder with another token than the present one is pushed that. It
 * is a message each for one that came, so it is done once in a refresh at most.
 *
 * No holder waits as long as no token was sent under a number. So none is sent
 * until a while has passed without new holders: those that come together, as
 * when a fleet is started or its sharing is switched, don't wait for each
 * other, however long a write takes. Nor does a holder wait while the pool
 * learns, for then the pool doesn't know all, and sends no tokens.
 *
 * A holder shows a token as long as it goes by a grant of the pool that sent
 * it, so a holder forgotten since shows none. A new server in between can't
 * show one, and a learning one isn't counted before it has learned.
 *
 * Rejected: to keep, beside the mastership, a ceiling of each quota's units
 * out. In steps, it leaves a successor short by a step; without, it is a write
 * a grant. Also rejected: no number, but a new holder is given something only
 * after a holder on a token has reported that it knows the new one (a successor
 * that has heard all holders of a token then has heard that report, too): if
 * the last holders on it are dead, all that come wait until their leases are
 * over. */

#include "core/base/rng.h"
#include "core/leased/lease_pool_internal.h"

#define QUIET (500 * WEIR_MILLISECOND)

static uint64_t roster_token_of(uint64_t kept, uint64_t names)
{
    return weir_rng_mix(kept) + names;
}

void weir_lease_pool_keep(struct weir_lease_pool *b, uint64_t number,
                          weir_instant now)
{
    b->roster_token.kept = number;
    b->roster_token.place++;
    b->roster_token.showing = 0;
    b->roster_token.wanted = b->roster_token.lets_in = false;
    weir_roster_later(b, now);
}

bool weir_lease_pool_wants_keep(const struct weir_lease_pool *b)
{
    return b->roster_token.wanted;
}

void weir_roster_enter(struct weir_lease_pool *b, struct holder *h,
                       bool streams, weir_instant now)
{
    struct roster_token *roster_token = &b->roster_token;
    if (h->known) {
        weir_assert(h->streams || roster_token->deaf > 0);
        roster_token->deaf += (uint32_t)!streams - (uint32_t)!h->streams;
        return;
    }
    roster_token->names += h->name;
    roster_token->deaf += !streams;
    if (!is_learning(b, now))
        roster_token->quiet_at = now + QUIET;
    weir_roster_later(b, now);
    if (roster_token->showing == 0)
        return;
    h->gated_by = roster_token->place;
    roster_token->wanted = true;
}

bool weir_roster_shows(const struct weir_lease_pool *b, const struct holder *h)
{
    return h->token_place != 0 && h->token_place == b->roster_token.place;
}

static void set_shows(struct weir_lease_pool *b, struct holder *h, bool does)
{
    struct roster_token *roster_token = &b->roster_token;
    bool did = weir_roster_shows(b, h);
    weir_assert(!did || roster_token->showing > 0);
    roster_token->showing += (uint32_t)does - (uint32_t)did;
    roster_token->lets_in |=
        did && roster_token->wanted && roster_token->showing == 0;
    h->token_place = does ? roster_token->place : 0;
}

bool weir_lease_pool_lets_in(struct weir_lease_pool *b)
{
    bool lets_in = b->roster_token.lets_in;
    b->roster_token.lets_in = false;
    return lets_in;
}

void weir_roster_leave(struct weir_lease_pool *b, struct holder *h,
                       weir_instant now)
{
    if (!h->known)
        return;
    weir_assert(h->streams || b->roster_token.deaf > 0);
    weir_roster_later(b, now);
    b->roster_token.names -= h->name;
    b->roster_token.deaf -= !h->streams;
    set_shows(b, h, false);
}

void weir_roster_taken(struct weir_lease_pool *b, struct holder *h,
                       const struct weir_lease_pool_ask *ask)
{
    if (ask->streams && ask->taken > h->token_serial && ask->taken <= h->serial)
        set_shows(b, h, false);
}

bool weir_roster_excludes(const struct weir_lease_pool *b,
                          const struct holder *h)
{
    return b->roster_token.showing > 0 && h->gated_by != 0 &&
           h->gated_by == b->roster_token.place;
}

static bool has_roster_token(const struct weir_lease_pool *b, weir_instant now)
{
    const struct roster_token *roster_token = &b->roster_token;
    return roster_token->kept != 0 && roster_token->deaf == 0 &&
           !roster_token->wanted && !is_learning(b, now);
}

uint64_t weir_roster_issue_token(struct weir_lease_pool *b, struct holder *h,
                                 weir_instant now)
{
    weir_assert(h->serial > 0);
    struct roster_token *roster_token = &b->roster_token;
    bool quiet = roster_token->showing > 0 || now >= roster_token->quiet_at;
    h->roster_token = 0;
    if (!has_roster_token(b, now) || !quiet)
        return 0;
    set_shows(b, h, true);
    h->token_serial = h->serial;
    h->roster_token = roster_token_of(roster_token->kept, roster_token->names);
    return h->roster_token;
}

/* ---- Calling all ---- */

void weir_roster_later(struct weir_lease_pool *b, weir_instant now)
{
    struct roster_token *roster_token = &b->roster_token;
    weir_instant at = now + QUIET;
    roster_token->call_at =
        at > roster_token->called_from ? at : roster_token->called_from;
}

weir_instant weir_roster_at(const struct weir_lease_pool *b, weir_instant now)
{
    return has_roster_token(b, now) ? b->roster_token.call_at : WEIR_NEVER;
}

void weir_roster_begin_round(struct weir_lease_pool *b, weir_instant now)
{
    struct roster_token *roster_token = &b->roster_token;
    roster_token->calls = now >= weir_roster_at(b, now);
    if (!roster_token->calls)
        return;
    roster_token->call_at = WEIR_NEVER;
    roster_token->called_from = now + b->rule.refresh;
}

bool weir_roster_calls(const struct weir_lease_pool *b, const struct holder *h,
                       weir_instant now)
{
    const struct roster_token *roster_token = &b->roster_token;
    return roster_token->calls && has_roster_token(b, now) &&
           h->roster_token !=
               roster_token_of(roster_token->kept, roster_token->names);
}

/* ---- Hearing all ---- */

/* Adds to the last tokens shown, each once. */
static void remember_shown(struct roster_token *roster_token, uint64_t shown)
{
    for (unsigned i = 0; i < ROSTER_TOKENS_SHOWN; i++) {
        if (roster_token->shown[i] == shown)
            return;
    }
    roster_token->shown[roster_token->shown_next++ % ROSTER_TOKENS_SHOWN] =
        shown;
}

bool weir_roster_has_met_all(struct weir_lease_pool *b, struct holder *h,
                             const struct weir_lease_pool_ask *ask,
                             weir_instant now)
{
    struct roster_token *roster_token = &b->roster_token;
    if (b->learning.kept == 0 || h->counted || !is_learning(b, now))
        return false;
    if (h->shown == 0)
        h->shown = ask->roster_token;
    if (h->shown == 0 || ask->learning)
        return false;
    weir_assert(h->shown != 0);
    h->counted = true;
    roster_token->names_shown += h->name;
    remember_shown(roster_token, h->shown);
    uint64_t all = roster_token_of(b->learning.kept, roster_token->names_shown);
    for (unsigned i = 0; i < ROSTER_TOKENS_SHOWN; i++) {
        if (roster_token->shown[i] == all)
            return true;
    }
    return false;
}
