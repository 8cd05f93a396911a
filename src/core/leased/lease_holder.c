/* SPDX-License-Identifier: MIT
 * leased/lease_holder.c - a lease holder: its demand, its grant, its asks.
 *
 * The problem. The pool counts on each grant. The holder may go by it only as
 * long as the pool believes so, and both learn of each other by messages that
 * are late, lost, doubled, or overtake each other.
 *
 * Which grant it goes by. A pool numbers its grants to a holder, and accounts
 * it with the largest of all grants since the one that the holder last reported
 * as taken. So the holder may go by any of those, and must never return to one
 * before:
 *
 *     serial       1      2      3      4        pool:    out = max of them
 *     capacity    50     20     60     10
 *                        '- taken reported         .. = max(20, 60, 10)
 *                               '- what it goes by: 60, then 10
 *
 * It goes by the newest it has received, and takes no older one. A rate takes a
 * lower grant at once. Permits in flight can't be called back: the limit is the
 * lower one at once, so that the units in use only fall, and the grant is taken
 * when they fit. That is reported at once (pressing), because another holder
 * waits for the difference. A server in between takes it when its holders'
 * capacity fits, and their safe capacity fits its own; and takes none before it
 * knows how much they have.
 *
 * How long. The lease of an answer, and that of its safe capacity, count from
 * the sending of the ask, which was before the pool made it: with any delay,
 * the pool's account ends later. The last few asks are remembered for that; an
 * answer to a forgotten one counts for nothing. A push answers no ask, so it
 * has no such instant, and ends when the lease does. A pool that hasn't
 * answered yet may not push: its grant would run on with its predecessor's
 * lease, which it doesn't know. An answer may shorten a lease; a pool counts on
 * that only when it has been taken, as with a lower grant.
 *
 * Another pool. From weir_lease_holder_lost() on, late messages of the former
 * pool must not raise the holder: the next one was told the holder's amount.
 * So all asks are forgotten at once, and only an answer of the new pool
 * counts. A master's successor has a higher term. A message of a lower term
 * after it comes from a former master that doesn't know yet that it was
 * replaced.
 *
 * The amount it reports is what it goes by, and nothing more: a learning pool
 * hands out what holders report, so an amount that no holder goes by (a grant
 * that has run out, and may be another's by now) would be handed out twice.
 * When the lease has run out it is therefore 0 if on_stale=limit, and the safe
 * capacity if share or hold, while that lasts. A holder with on_stale=pass goes
 * by no amount. It reports the smaller of its last grant and its demand: it
 * uses that much for sure, so that granting it raises nothing, and the holder
 * isn't at 0 when the pool is a new one.
 *
 * The demand follows the use, so that no caller has to declare it. Two averages
 * of the offered units are kept, that fade over 1 s and 10 s, and the larger
 * counts: a rise is seen in a second, and a lull of seconds gives nothing away.
 * In its first seconds each is the plain mean since the first use, so that the
 * second ask of a newcomer has its rate. Of kind concurrency the demand is the
 * permits in flight, times the offered units for each that passes (Little's
 * law: refused requests would stay as long as passed ones), plus the units that
 * waiting callers want; its peaks fade over 10 s.
 *
 * Headroom. A bucket that leaks no faster than it is filled is full half of the
 * time: of Poisson requests of 10/s with a grant of 10/s and a burst of 1.5 s,
 * 3.4 % are refused, of 100/s 0.4 %, even if no other holder wants the rest.
 * With a quarter more it is 0.01 % and nothing (test_lease_holder_poisson
 * prints it). It takes nothing from others if capacity is short, since there a
 * share is smaller than the use; and a holder that uses less than its share
 * leaves a fifth of its grant idle, at most. Nothing is added to a demand
 * declared by weir_lease_holder_want(). (At 1/s a burst of 1.5 s is one
 * request, and no headroom helps.)
 *
 * When it asks. At each refresh, spread by an eighth (8,000 that began at one
 * instant shouldn't ask at one instant for ever). Early: when the demand has
 * changed much. Chance moves an average all the time; so a change of use is
 * large when the headroom is eaten up, or half is unused (and it is more than a
 * request or two). Poisson requests of 0.2 to 1,000 a second then make 0.3 to
 * 0.4 asks a second, where a refresh each 5 s makes 0.2
 * (test_lease_holder_poisson prints it); most of the others report that a
 * lower grant was taken. Early asks have a spacing among themselves only, so
 * one may follow a refresh at once: else a newcomer to a tree waits for the
 * spacing at each level that has just refreshed.
 *
 * Rejected: counting a lease from the answer, less half of the round trip (no
 * bound when delays differ); extending a lease by an answer that a push has
 * overtaken (sound, and rare: a stream keeps its order); sending the demand
 * with each change (n messages a second for noise).
 *
 * Fading without libm: e^-x is taken for 1 / (1 + x + x^2/2 + x^3/6), which is
 * within 0.02 of it, in (0, 1] and 1 at 0; so no input makes a NaN. */

#include "core/leased/lease_holder.h"

#include <math.h>

/* Units are spread over this when the first of them are seen. */
#define FLOOR (100 * WEIR_MILLISECOND)
/* Units a second by which chance moves the average over a second when next to
 * nothing is used: each request is one. */
#define NOISE 2
/* The shares that a server between has handed out come to its capacity but for
 * roundings, upwards too. */
#define ROUNDING 1e-12
/* Calls that come closer wait for the next. */
#define STEP (10 * WEIR_MILLISECOND)

/* Up to an eighth less. */
static weir_duration spread_by_eighth(struct weir_lease_holder *holder,
                                      weir_duration span)
{
    weir_assert(span < WEIR_NEVER);
    return span - weir_rng_below(&holder->rng, span / 8 + 1);
}

void weir_lease_holder_init(struct weir_lease_holder *holder,
                            enum weir_on_stale on_stale, bool inflight,
                            uint64_t seed, weir_instant now)
{
    *holder = (struct weir_lease_holder){
        .on_stale = on_stale,
        .inflight = inflight,
        .rng = { seed },
        .seen_at = now,
        .began = WEIR_NEVER,
        .used_at = now,
        .want_used_at = WEIR_NEVER,
        .expiry = weir_after(now, WEIR_LEASE_HOLDER_FIRST),
        .due_at = now,
        .early = true,
        .patience = WEIR_LEASE_HOLDER_PATIENCE,
    };
}

/* ---- Demand ---- */

static double span_in_seconds(weir_duration span)
{
    return (double)span / (double)WEIR_SECOND;
}

/* The part of an average that is left after 'span'. */
static double faded_part(weir_duration span, weir_duration window)
{
    weir_assert(window > 0);
    double x = (double)span / (double)window;
    return 1 / (1 + x + x * x / 2 + x * x * x / 6);
}

/* Until the average is a window old it is the plain mean since it began. */
static void step_average(double *average, double rate, weir_duration span,
                         weir_duration age, weir_duration window)
{
    weir_assert(age > 0);
    double part =
        weir_larger(1 - faded_part(span, window), (double)span / (double)age);
    *average += (rate - *average) * part;
    weir_assert(*average >= 0);
}

static bool is_holder_idle(const struct weir_lease_holder *holder,
                           weir_instant now)
{
    return holder->began == WEIR_NEVER ||
           weir_since(holder->used_at, now) >= WEIR_LEASE_HOLDER_IDLE;
}

/* Of kind concurrency, by the units refused since the last step. */
static double present_need(const struct weir_lease_holder *holder,
                           const struct weir_lease_use *use, uint64_t refused)
{
    if (use->in_use == 0)
        return (double)refused;
    double offered = holder->rise[0];
    double passed = holder->rise[1];
    if (passed * (double)WEIR_SECOND <= offered) /* all but nothing passes */
        return (double)use->in_use + (double)refused;
    return (double)use->in_use * weir_larger(1, offered / passed);
}

static void begin_use(struct weir_lease_holder *holder, weir_instant now)
{
    weir_assert(now != WEIR_NEVER);
    holder->began = now;
    holder->needed = 0;
    for (int i = 0; i < 2; i++)
        holder->rise[i] = holder->use[i] = 0;
}

static void smooth(struct weir_lease_holder *holder,
                   const struct weir_lease_use *use, weir_duration span,
                   weir_instant now)
{
    weir_assert(span > 0 && holder->began != WEIR_NEVER);
    struct weir_lease_use *seen = &holder->seen;
    uint64_t units[2] = { use->offered - seen->offered,
                          use->passed - seen->passed };
    weir_duration age = weir_since(holder->began, now) + FLOOR;
    if (span > age)
        span = age;
    for (int i = 0; i < 2; i++) {
        double rate = (double)units[i] / span_in_seconds(span);
        step_average(&holder->rise[i], rate, span, age, WEIR_LEASE_HOLDER_RISE);
        step_average(&holder->use[i], rate, span, age,
                     WEIR_LEASE_HOLDER_WINDOW);
    }
    uint64_t refused = units[0] > units[1] ? units[0] - units[1] : 0;
    double left = holder->needed * faded_part(span, WEIR_LEASE_HOLDER_WINDOW);
    double present = present_need(holder, use, refused) + (double)use->awaited;
    holder->needed = weir_larger(present, left);
    if (holder->needed < 0.5)
        holder->needed = use->fractions ? WEIR_LEASE_HOLDER_LEAST : 0;
    weir_assert(holder->needed >= 0);
}

/* The use, while it lasts; by weir_lease_holder_use()'s last step. */
static double need(const struct weir_lease_holder *holder, weir_instant now)
{
    if (is_holder_idle(holder, now))
        return 0;
    if (holder->inflight)
        return holder->needed;
    return weir_larger(holder->rise[0], holder->use[0]);
}

static bool is_want_valid(const struct weir_lease_holder *holder,
                          weir_instant now)
{
    return holder->is_declared &&
           (holder->want_used_at == WEIR_NEVER ||
            weir_since(holder->want_used_at, now) < WEIR_LEASE_HOLDER_WINDOW);
}

double weir_lease_holder_wants(const struct weir_lease_holder *holder,
                               weir_instant now)
{
    if (is_want_valid(holder, now))
        return holder->declared;
    double needed = need(holder, now);
    double wants = needed * (1 + WEIR_LEASE_HOLDER_HEADROOM);
    if (holder->inflight && needed > WEIR_LEASE_HOLDER_LEAST)
        wants = weir_larger(wants, 1); /* less is good for nothing */
    weir_assert(wants >= 0);
    return weir_smaller(wants, WEIR_LEASE_UNITS_MAX);
}

/* Whether the demand is so far from the last one sent that it is sent early:
 * see the theory. */
static bool has_changed(const struct weir_lease_holder *holder,
                        weir_instant now)
{
    double wants = weir_lease_holder_wants(holder, now);
    double sent = holder->wants_sent;
    if (is_want_valid(holder, now)) {
        double change = wants > sent ? wants - sent : sent - wants;
        return change > WEIR_LEASE_HOLDER_CHANGE * weir_larger(wants, sent);
    }
    double used = need(holder, now);
    double noise = holder->inflight ? 0 : NOISE;
    return (sent == 0 && used > 0) || used > sent + noise ||
           wants < sent / 2 - noise;
}

void weir_lease_holder_hurry(struct weir_lease_holder *holder, weir_instant now)
{
    /* A silent pool isn't asked faster, and the last few asks must still be
     * remembered when it answers. */
    if (holder->unanswered >= WEIR_LEASE_HOLDER_ASKS / 2)
        return;
    weir_instant at = weir_later(now, holder->early_from);
    if (holder->due_at <= at)
        return;
    holder->due_at = at;
    holder->early = true;
}

static void check_demand(struct weir_lease_holder *holder, weir_instant now)
{
    if (has_changed(holder, now))
        weir_lease_holder_hurry(holder, now);
}

void weir_lease_holder_want(struct weir_lease_holder *holder, double wants,
                            weir_instant now)
{
    weir_assert(wants >= 0 && wants <= WEIR_LEASE_UNITS_MAX);
    holder->declared = wants;
    holder->is_declared = true;
    holder->want_used_at = WEIR_NEVER;
    check_demand(holder, now);
}

void weir_lease_holder_begin_with(struct weir_lease_holder *holder,
                                  double capacity, double used,
                                  weir_instant now)
{
    weir_assert(used >= 0);
    weir_assert(capacity >= 0 && capacity <= WEIR_LEASE_UNITS_MAX &&
                holder->number == 0 && holder->began == WEIR_NEVER);
    holder->capacity = holder->safe = capacity;
    begin_use(holder, weir_before(now, WEIR_LEASE_HOLDER_WINDOW));
    for (int i = 0; i < 2; i++)
        holder->rise[i] = holder->use[i] = used;
    holder->needed = used;
    holder->used_at = now;
}

void weir_lease_holder_goes_by(struct weir_lease_holder *holder,
                               double capacity, weir_instant now)
{
    weir_assert(capacity >= 0 && capacity <= WEIR_LEASE_UNITS_MAX);
    if (holder->on_stale == WEIR_STALE_PASS && now >= holder->expiry)
        holder->capacity = capacity;
}

void weir_lease_holder_use(struct weir_lease_holder *holder,
                           const struct weir_lease_use *use, weir_instant now)
{
    struct weir_lease_use to = *use;
    if (to.offered < holder->seen.offered)
        holder->seen.offered = to.offered;
    if (to.passed < holder->seen.passed)
        holder->seen.passed = to.passed;
    bool used =
        to.offered > holder->seen.offered || to.in_use > 0 || to.awaited > 0;
    weir_duration span = weir_since(holder->seen_at, now);
    if (used && is_holder_idle(holder, now)) {
        begin_use(holder, now);
        span = FLOOR;
    } else if (span < STEP) {
        return;
    }
    if (used)
        holder->used_at = now;
    if (used && holder->want_used_at == WEIR_NEVER)
        holder->want_used_at = now;
    if (!is_holder_idle(holder, now))
        smooth(holder, &to, span, now);
    holder->seen = to;
    holder->seen_at = now;
    check_demand(holder, now);
}

/* ---- The grant ---- */

static bool is_lease_valid(const struct weir_lease_holder *holder,
                           weir_instant now)
{
    return now < holder->expiry;
}

/* The limit when the lease is over. */
static double safe_at(const struct weir_lease_holder *holder, weir_instant now)
{
    return now < holder->safe_until ? holder->safe : 0;
}

double weir_lease_holder_limit(const struct weir_lease_holder *holder,
                               weir_instant now)
{
    if (is_lease_valid(holder, now))
        return holder->capacity;
    switch (holder->on_stale) {
    case WEIR_STALE_PASS:
        return INFINITY;
    case WEIR_STALE_LIMIT:
        return 0;
    case WEIR_STALE_SHARE:
    case WEIR_STALE_HOLD:
        break;
    }
    return safe_at(holder, now);
}

weir_instant weir_lease_holder_owes_until(
    const struct weir_lease_holder *holder)
{
    weir_instant until = weir_later(holder->expiry, holder->safe_until);
    if (holder->number == 0)
        return 0;
    if (holder->unanswered == 0)
        return until;
    unsigned last = (holder->sent_next - 1) % WEIR_LEASE_HOLDER_ASKS;
    return weir_later(
        until, weir_after(holder->sent_at[last], WEIR_LEASE_HOLDER_UNSURE));
}

void weir_lease_holder_lease(const struct weir_lease_holder *holder,
                             struct weir_lease_holder_lease *out,
                             weir_instant now)
{
    double safe = safe_at(holder, now);
    bool leased = is_lease_valid(holder, now);
    *out = (struct weir_lease_holder_lease){
        .capacity = leased ? holder->capacity : safe,
        .expiry = leased ? holder->expiry : holder->safe_until,
        .safe = safe,
        .safe_until = weir_later(holder->expiry, holder->safe_until),
    };
}

double weir_lease_holder_has(const struct weir_lease_holder *holder,
                             weir_instant now)
{
    double limit = weir_lease_holder_limit(holder, now);
    if (limit > WEIR_LEASE_UNITS_MAX)
        limit = weir_smaller(holder->capacity,
                             weir_lease_holder_wants(holder, now));
    weir_assert(limit >= 0);
    return holder->inflight ? weir_larger(limit, holder->in_use) : limit;
}

/* The amount that it, or its holders, will go by after the lease. */
static double safe_had(const struct weir_lease_holder *holder, weir_instant now)
{
    bool stays = holder->on_stale == WEIR_STALE_SHARE ||
                 holder->on_stale == WEIR_STALE_HOLD;
    double safe = stays || holder->leases_on ? safe_at(holder, now) : 0;
    return weir_larger(safe, holder->promised);
}

/* Its last token, while it goes by a grant. With neither lease nor safe
 * capacity it isn't counted any more, and other holders may have been let in
 * since without regard to its token. */
static uint64_t roster_had(const struct weir_lease_holder *holder,
                           weir_instant now)
{
    bool has = is_lease_valid(holder, now) || safe_at(holder, now) > 0;
    return has ? holder->roster_token : 0;
}

/* ---- Asking ---- */

weir_instant weir_lease_holder_due(const struct weir_lease_holder *holder)
{
    return holder->pressing ? 0 : holder->due_at;
}

void weir_lease_holder_ask(struct weir_lease_holder *holder, uint64_t number,
                           struct weir_lease_holder_ask *out, weir_instant now)
{
    weir_assert(number > holder->number);
    unsigned place = holder->sent_next++ % WEIR_LEASE_HOLDER_ASKS;
    holder->sent[place] = holder->number = number;
    holder->sent_at[place] = now;
    holder->unanswered++;
    if (holder->early)
        holder->early_from = weir_after(now, WEIR_LEASE_HOLDER_SPACING);
    holder->early = false;
    /* An ask that only reports a taken serial repeats the last demand: a fading
     * use would be granted less each time, and each lower grant be
     * acknowledged. */
    if (!holder->pressing || now >= holder->due_at || has_changed(holder, now))
        holder->wants_sent = weir_lease_holder_wants(holder, now);
    holder->pressing = false;
    holder->due_at =
        weir_after(now, spread_by_eighth(holder, holder->patience));
    holder->patience *= 2;
    if (holder->patience > WEIR_LEASE_HOLDER_PATIENCE_MAX)
        holder->patience = WEIR_LEASE_HOLDER_PATIENCE_MAX;
    *out = (struct weir_lease_holder_ask){
        .number = number,
        .wants = holder->wants_sent,
        .has = weir_lease_holder_has(holder, now),
        .safe = safe_had(holder, now),
        .taken = holder->taken,
        .learning = holder->learning,
        .roster_token = holder->met ? 0 : roster_had(holder, now),
    };
    weir_assert(holder->patience <= WEIR_LEASE_HOLDER_PATIENCE_MAX);
}

/* The place of an ask that is remembered, or WEIR_LEASE_HOLDER_ASKS. */
static unsigned sent_place(const struct weir_lease_holder *holder,
                           uint64_t number)
{
    unsigned place = 0;
    while (place < WEIR_LEASE_HOLDER_ASKS && holder->sent[place] != number)
        place++;
    return place;
}

/* NaN is in no range. */
static bool is_grant_sound(const struct weir_grant *grant, bool answer)
{
    bool ends_now = answer && grant->lease == 0;
    return grant->serial > 0 && (grant->refresh > 0 || ends_now) &&
           grant->capacity >= 0 && grant->capacity <= WEIR_LEASE_UNITS_MAX &&
           grant->safe >= 0 && grant->safe <= WEIR_LEASE_UNITS_MAX &&
           grant->safe_lease >= grant->lease &&
           (answer || grant->safe_lease == 0);
}

static bool counts(const struct weir_lease_holder *holder, uint64_t number,
                   uint64_t term, uint64_t serial)
{
    if (term < holder->term)
        return false;
    bool known = holder->met && term == holder->term;
    if (known && serial <= holder->serial)
        return false;
    return number == 0 ? known
                       : sent_place(holder, number) < WEIR_LEASE_HOLDER_ASKS;
}

static unsigned asks_after(const struct weir_lease_holder *holder,
                           uint64_t number)
{
    unsigned count = 0;
    for (unsigned i = 0; i < WEIR_LEASE_HOLDER_ASKS; i++)
        count += holder->sent[i] > number;
    return count;
}

static void answered(struct weir_lease_holder *holder, uint64_t number,
                     const struct weir_grant *grant, weir_instant now)
{
    weir_assert(sent_place(holder, number) < WEIR_LEASE_HOLDER_ASKS);
    weir_instant sent_at = holder->sent_at[sent_place(holder, number)];
    holder->met = true;
    holder->expiry = weir_after(sent_at, grant->lease);
    holder->safe_until = weir_after(sent_at, grant->safe_lease);
    if (number > holder->answered) {
        holder->answered = number;
        holder->unanswered = asks_after(holder, number);
    }
    /* A later ask is still to be answered; or the pool has nothing to give
     * itself, and is asked again with patience. */
    if (number != holder->number || grant->lease == 0)
        return;
    holder->patience = WEIR_LEASE_HOLDER_PATIENCE;
    if (holder->early) /* news since the ask is still sent early */
        return;
    /* A lease must not run out for want of an ask. */
    weir_duration refresh = grant->refresh;
    if (refresh > grant->lease / 4 * 3)
        refresh = grant->lease / 4 * 3;
    if (refresh < WEIR_LEASE_HOLDER_SPACING)
        refresh = WEIR_LEASE_HOLDER_SPACING;
    holder->due_at = weir_after(now, spread_by_eighth(holder, refresh));
}

/* Whether the pool must learn at once that this grant is in force. */
static bool frees(const struct weir_lease_holder *holder,
                  const struct weir_grant *grant, weir_instant now)
{
    double had = weir_larger(holder->capacity, holder->safe);
    double has = weir_larger(grant->capacity, grant->safe);
    double least = grant->lease > 0 ? had * WEIR_LEASE_HOLDER_TOLERANCE : 0;
    return is_lease_valid(holder, now) && had - has > least;
}

static void note_grant_taken(struct weir_lease_holder *holder)
{
    holder->taken = holder->serial;
    if (holder->owes)
        holder->pressing = true;
    holder->owes = false;
    weir_assert(!holder->owes && holder->taken == holder->serial);
}

/* Whether the units in use, and promised, surely fit the newest grant. */
static bool fits_grant(const struct weir_lease_holder *holder)
{
    return !holder->learning &&
           holder->in_use <= holder->capacity * (1 + ROUNDING) &&
           (!holder->leases_on ||
            holder->promised <= holder->safe * (1 + ROUNDING));
}

/* The grant decides from now on. Of kind concurrency anything up to the
 * previous limit may be in use; if all grants were taken, it is the amount last
 * reported, or less than this one. */
static void adopt(struct weir_lease_holder *holder,
                  const struct weir_grant *grant, weir_instant now)
{
    double before = weir_lease_holder_limit(holder, now);
    double safe_before = safe_at(holder, now);
    bool lower = grant->capacity < before || grant->safe < safe_before ||
                 holder->taken != holder->serial;
    if (holder->inflight && lower && before <= WEIR_LEASE_UNITS_MAX) {
        holder->in_use = weir_larger(holder->in_use, before);
        holder->promised =
            holder->leases_on ? weir_larger(holder->promised, safe_before) : 0;
    }
    holder->owes = holder->owes || frees(holder, grant, now);
    holder->capacity = grant->capacity;
    holder->safe = grant->safe;
    holder->serial = grant->serial;
    holder->roster_token = grant->roster_token;
    holder->cut = grant->cut;
    if (!holder->inflight || (!lower && fits_grant(holder)))
        note_grant_taken(holder);
}

bool weir_lease_holder_granted(struct weir_lease_holder *holder,
                               uint64_t number, uint64_t term,
                               const struct weir_grant *grant, weir_instant now)
{
    if (!is_grant_sound(grant, number != 0) ||
        !counts(holder, number, term, grant->serial))
        return false;
    if (term != holder->term)
        holder->serial = holder->taken = 0;
    holder->term = term;
    adopt(holder, grant, now);
    if (number != 0)
        answered(holder, number, grant, now);
    check_demand(holder, now);
    return true;
}

void weir_lease_holder_promised(struct weir_lease_holder *holder,
                                double promised)
{
    weir_assert(promised >= 0 && promised <= WEIR_LEASE_UNITS_MAX);
    holder->leases_on = true;
    holder->promised = promised;
}

void weir_lease_holder_learning(struct weir_lease_holder *holder, bool learning)
{
    holder->learning = learning;
}

void weir_lease_holder_in_use(struct weir_lease_holder *holder, double in_use)
{
    weir_assert(in_use >= 0 && in_use <= WEIR_LEASE_UNITS_MAX);
    holder->in_use = in_use;
    if (holder->inflight && holder->taken != holder->serial &&
        fits_grant(holder))
        note_grant_taken(holder);
}

void weir_lease_holder_lost(struct weir_lease_holder *holder, weir_instant now)
{
    holder->met = false;
    holder->serial = holder->taken = 0;
    holder->owes = holder->pressing = false;
    holder->unanswered = 0;
    for (unsigned i = 0; i < WEIR_LEASE_HOLDER_ASKS; i++)
        holder->sent[i] = 0;
    holder->patience = WEIR_LEASE_HOLDER_PATIENCE;
    holder->due_at = now;
    holder->early = true;
}
