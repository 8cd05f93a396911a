/* SPDX-License-Identifier: MIT
 * lease/broker_roll.c - how a successor knows that it has heard everybody.
 *
 * The problem. A broker that follows another may give away nothing that a
 * holder might have of which it hasn't heard: that goes on for two leases,
 * though mostly there is nobody but those that are back within a second.
 * Who has something, its predecessor knew; but it is gone, and to write down
 * each holder, or each amount, before it counts would be a write a grant.
 *
 * So the holders keep it. With each grant goes a roll: a number made of the
 * names of all who are known. Who comes back shows it to the successor, and if
 * the names of those who have shown one make that number, all of them were
 * heard. Their accounts are then all that is out, and learning is over.
 *
 * A roll is as good as it is new: somebody may have been given something since
 * it was told. One number for that is kept beside the mastership, of which a
 * roll is made too:
 *
 *     roll = mix(kept number) + sum of names     (modulo 2^64)
 *
 *  - Who is new is given nothing while anybody may show a roll without him
 *    that was told under the number that is kept ('gated').
 *  - A successor takes the number as it finds it, and answers nobody before
 *    it has kept another.
 *
 * Never over: let the successor find the number n, and the names it heard make
 * a roll that was told under n. Who has something and wasn't heard isn't on
 * that roll, so he came after it was told (who leaves has nothing more). Then
 * he was gated till another number than n was kept, but n is found; or till
 * nobody could show that roll any more, but it was shown. That is but for
 * chance: 2^-64 for each roll shown.
 *
 * Who waits isn't answered: to be told of nothing he would go by it, where what
 * he has (in a sharing before, or from another master) is as good as ever. He
 * wants, though, so that others give up his share meanwhile. One of Doorman's
 * clients is answered, with nothing and a short refresh: it waits for its
 * answer in line with all else.
 *
 * He waits for one of two things. Mostly for one write, for all that wait, and
 * then they are answered. Rolls told before are void then. But the write may
 * take its time, or be refused for ever. So as long as somebody waits none is
 * told a roll, and a holder that has taken a grant without one shows none;
 * likewise who was forgotten, since all that he was told is over. When there is
 * nobody left who shows one, there is nothing to wait for: that is a round trip
 * where all are told of less for his sake, else two refreshes, or, where
 * somebody has fallen silent, the end of his lease. Rolls are told again when a
 * number was kept.
 *
 * A roll that is void, or bears somebody who has gone, proves nothing: a master
 * that is lost before its holders have another is followed by one that learns
 * by time, as broker.c says (likewise where there is one who keeps no roll, as
 * Doorman's clients). They would have another with their next answers, within a
 * refresh; so that it takes less, all are called when nobody has come or gone
 * for a while: who has another roll than the present one is pushed that. It is
 * a message each for one that came, so it is done once in a refresh at most.
 *
 * Nobody waits as long as no roll was told under a number. So none is told
 * before nobody new has come for a while: those that come at once, as when a
 * fleet is started or its sharing is switched, don't wait for each other, how
 * long a write may take. Nor does anybody while the broker learns, for then it
 * doesn't know all, and tells none.
 *
 * A holder shows a roll as long as it goes by something of the broker that told
 * it, so who was forgotten since shows none. A server between that is new can't
 * show one, and one that learns isn't counted before it has learned.
 *
 * Rejected: to keep, beside the mastership, a ceiling of what is out of each
 * quota. In steps, it leaves a successor short by a step; without, it is a
 * write a grant. Also rejected: no number, but that one of those on a roll has
 * said to know of who is new before he is given anything (who has heard all of
 * a roll then has heard that one, too): with the last that were on it dead, all
 * that come wait until their leases are over. */

#include "base/rng.h"
#include "lease/broker_state.h"

#define QUIET (500 * WEIR_MILLISECOND)

static uint64_t roll_of(uint64_t kept, uint64_t names)
{
    return weir_rng_mix(kept) + names;
}

void weir_broker_keep(struct weir_broker *b, uint64_t number, weir_instant now)
{
    b->roll.kept = number;
    b->roll.place++;
    b->roll.showing = 0;
    b->roll.wanted = b->roll.lets_in = false;
    weir_roll_call_later(b, now);
}

bool weir_broker_wants_keep(const struct weir_broker *b)
{
    return b->roll.wanted;
}

void weir_roll_enter(struct weir_broker *b, struct holder *h, bool streams,
                     weir_instant now)
{
    struct roll *roll = &b->roll;
    if (h->known) {
        roll->deaf += (uint32_t)!streams - (uint32_t)!h->streams;
        return;
    }
    roll->names += h->name;
    roll->deaf += !streams;
    if (!is_learning(b, now))
        roll->quiet_at = now + QUIET;
    weir_roll_call_later(b, now);
    if (roll->showing == 0)
        return;
    h->gated_by = roll->place;
    roll->wanted = true;
}

static bool shows(const struct weir_broker *b, const struct holder *h)
{
    return h->rolled_by != 0 && h->rolled_by == b->roll.place;
}

static void set_shows(struct weir_broker *b, struct holder *h, bool does)
{
    struct roll *roll = &b->roll;
    bool did = shows(b, h);
    roll->showing += (uint32_t)does - (uint32_t)did;
    roll->lets_in |= did && roll->wanted && roll->showing == 0;
    h->rolled_by = does ? roll->place : 0;
}

bool weir_broker_lets_in(struct weir_broker *b)
{
    bool lets_in = b->roll.lets_in;
    b->roll.lets_in = false;
    return lets_in;
}

void weir_roll_leave(struct weir_broker *b, struct holder *h, weir_instant now)
{
    if (!h->known)
        return;
    weir_roll_call_later(b, now);
    b->roll.names -= h->name;
    b->roll.deaf -= !h->streams;
    set_shows(b, h, false);
}

void weir_roll_taken(struct weir_broker *b, struct holder *h,
                     const struct weir_broker_ask *ask)
{
    if (ask->streams && ask->taken > h->rolled && ask->taken <= h->serial)
        set_shows(b, h, false);
}

bool weir_roll_gates(const struct weir_broker *b, const struct holder *h)
{
    return b->roll.showing > 0 && h->gated_by != 0 &&
           h->gated_by == b->roll.place;
}

static bool has_roll(const struct weir_broker *b, weir_instant now)
{
    const struct roll *roll = &b->roll;
    return roll->kept != 0 && roll->deaf == 0 && !roll->wanted &&
           !is_learning(b, now);
}

uint64_t weir_roll_tell(struct weir_broker *b, struct holder *h,
                        weir_instant now)
{
    struct roll *roll = &b->roll;
    bool quiet = roll->showing > 0 || now >= roll->quiet_at;
    h->roll = 0;
    if (!has_roll(b, now) || !quiet)
        return 0;
    set_shows(b, h, true);
    h->rolled = h->serial;
    h->roll = roll_of(roll->kept, roll->names);
    return h->roll;
}

/* ---- Calling all ---- */

void weir_roll_call_later(struct weir_broker *b, weir_instant now)
{
    struct roll *roll = &b->roll;
    weir_instant at = now + QUIET;
    roll->call_at = at > roll->called_from ? at : roll->called_from;
}

weir_instant weir_roll_call_at(const struct weir_broker *b, weir_instant now)
{
    return has_roll(b, now) ? b->roll.call_at : WEIR_NEVER;
}

void weir_roll_begin_round(struct weir_broker *b, weir_instant now)
{
    struct roll *roll = &b->roll;
    roll->calls = now >= weir_roll_call_at(b, now);
    if (!roll->calls)
        return;
    roll->call_at = WEIR_NEVER;
    roll->called_from = now + b->rule.refresh;
}

bool weir_roll_calls(const struct weir_broker *b, const struct holder *h,
                     weir_instant now)
{
    const struct roll *roll = &b->roll;
    return roll->calls && has_roll(b, now) &&
           h->roll != roll_of(roll->kept, roll->names);
}

/* ---- Hearing all ---- */

/* Among the last that were shown, each once. */
static void remember(struct roll *roll, uint64_t shown)
{
    for (unsigned i = 0; i < ROLLS_SHOWN; i++) {
        if (roll->shown[i] == shown)
            return;
    }
    roll->shown[roll->shown_next++ % ROLLS_SHOWN] = shown;
}

bool weir_roll_hears_all(struct weir_broker *b, struct holder *h,
                         const struct weir_broker_ask *ask, weir_instant now)
{
    struct roll *roll = &b->roll;
    if (b->learning.kept == 0 || h->counted || !is_learning(b, now))
        return false;
    if (h->shown == 0)
        h->shown = ask->roll;
    if (h->shown == 0 || ask->learning)
        return false;
    h->counted = true;
    roll->heard += h->name;
    remember(roll, h->shown);
    uint64_t all = roll_of(b->learning.kept, roll->heard);
    for (unsigned i = 0; i < ROLLS_SHOWN; i++) {
        if (roll->shown[i] == all)
            return true;
    }
    return false;
}
