/* SPDX-License-Identifier: MIT
 * quota/table_permit.c - what is in flight: holding it, and giving it back.
 *
 * A quota of kind concurrency is a gauge. Its limit is units at a time; an
 * enter holds some of them, until its leave. So the word that decides is what
 * permits hold, and it has to be right to the unit for ever: one unit too many
 * is a permit lost, one too few is a limit overrun, and nothing leaks that
 * would heal it. Hence, for each slot, one word of its own:
 *
 *     held = the sum of the permits that were entered by this slot and not
 *            left yet, and of enters under way that will give theirs back
 *
 * Only enters, leaves and a fork write it. An edit doesn't: neither another
 * limit nor another kind, neither "off" nor a removal changes what is going on
 * out there. So a quota that is edited, removed and created again under a name
 * that somebody holds knows at once what is in flight, and a permit says no
 * more than slots and a weight: it is given back whatever has become of the
 * quotas. In return a slot that permits hold is never given to another name
 * (table_rule.c). Both sides of that speak in the one order that everybody
 * sees: an enter adds, then looks whether its chain still is the one it walked
 * (charge_walked() in table_take.c); the writer ends the slot's life or
 * unlinks it, then looks at 'held'. One of the two sees the other.
 *
 * An enter adds by comparing and swapping, unlike a take: what is in flight is
 * never above the limit, by not even one unit, however many race, but where
 * the limit was lowered below what is in flight already. The price is a loop
 * on a word that others write; each round means that somebody else got on.
 * A chain's gauges are held one after the other, from the root down, and given
 * back if one of them refuses: so an enter that is refused in the end may let
 * another be refused, as if it had been there.
 *
 * An adaptive quota is a gauge that a sluice guards (table_sluice.c). Who is
 * let through there is held here as everywhere, and the quota's limit, if it
 * has one, is a cap on that. The sluice is asked first: a refusal by it writes
 * nothing that others read.
 *
 * Rejected: 'count' of the hot line as that word, by the bucket's arithmetic
 * without its leak. Takes by a quota of kind rate add to it, and an edit of
 * the kind would have to tell theirs from what is in flight while both go on.
 * Rejected: the sum under the meters' lock: twice the price, and a thread that
 * is stopped would stop others. */

#include "quota/table_walk.h"

bool weir_slot_is_held(const struct weir_table *t, uint32_t slot)
{
    return weir_load(&weir_gauge(t, slot)->held) != 0;
}

/* What must hold for an enter: so much in flight at most, of it held here not
 * yet so much that no root has seen. */
struct bounds {
    int64_t most;
    uint64_t stop;
};

/* Holds 'weight' units if they fit; '*out_held' is what is held then. */
static bool gauge_hold(struct gauge *gauge, uint64_t weight,
                       const struct bounds *bounds, uint64_t *out_held)
{
    uint64_t held = weir_load(&gauge->held);
    do {
        /* Relaxed: others' units are as old as the last word of a root. */
        uint64_t fill = held + weir_load_relaxed(&gauge->others);
        if ((int64_t)(fill + weight) > bounds->most ||
            (int64_t)(held - bounds->stop) >= 0)
            return false;
    } while (!weir_cas(&gauge->held, &held, held + weight));
    *out_held = held + weight;
    return true;
}

/* Whether a root is to hear soon that what is held has sunk: by as much below
 * what it knows as 'report_at' is above. Both marks are the sync's, and as old
 * as each other or nearly so; a report too many does no harm. */
static bool has_sunk(const struct weir_table *t, uint32_t slot, uint64_t held)
{
    uint64_t report_at = weir_load_relaxed(&weir_cold(t, slot)->report_at);
    uint64_t stop = weir_load_relaxed(&weir_hot(t, slot)->stop);
    int64_t slack = (int64_t)(stop - report_at);
    if ((int64_t)(stop - held) > (int64_t)(WEIR_COUNT_FAR / 2))
        return false;
    return (int64_t)(held - (report_at - 2 * (uint64_t)slack)) <= 0;
}

static bool is_leased(const struct weir_table *t, uint32_t slot)
{
    return weir_table_leasing(t, slot) != WEIR_LEASING_NONE;
}

/* Whether it has come down to the limit by this: a lower grant waits for it. */
static bool fits_again(const struct weir_table *t, uint32_t slot,
                       uint64_t before, uint64_t left)
{
    struct look look;
    if (!is_leased(t, slot))
        return false;
    weir_look(t, slot, 0, &look);
    return (int64_t)before > look.high && (int64_t)left <= look.high;
}

/* Looked at when all is given back; see table_line.c. */
static unsigned next_at(const struct weir_table *t, uint32_t slot)
{
    uint32_t lanes = weir_load(&weir_gauge(t, slot)->lanes);
    return WEIR_UNLIKELY(lanes != 0) ? WEIR_OUTCOME_NEXT : 0;
}

/* At most what is held: of a permit that was copied and left twice the rest is
 * nobody's, and below 0 the word would be no sum any more. */
static unsigned gauge_give_back(struct weir_table *t, uint32_t slot,
                                uint64_t weight)
{
    struct gauge *gauge = weir_gauge(t, slot);
    uint64_t held = weir_load(&gauge->held);
    uint64_t left;
    do {
        left = held > weight ? held - weight : 0;
    } while (!weir_cas(&gauge->held, &held, left));
    unsigned next = next_at(t, slot);
    weir_slot_mark(t, slot);
    bool told = has_sunk(t, slot, left) || fits_again(t, slot, held, left);
    if (!told || weir_load_relaxed(&t->urgent))
        return next;
    return next | (weir_exchange(&t->urgent, 1) ? 0 : WEIR_OUTCOME_KICK);
}

/* Whether what is held by a leased slot, since just now, still fits: a lower
 * grant may have come since it was judged. If so it is counted, for who wants
 * to know how much is used. */
static bool still_fits(struct weir_table *t, uint32_t slot, uint64_t weight)
{
    struct hot *hot = weir_hot(t, slot);
    struct look look;
    /* In the order of all: the limit's switch ends by swapping 'base', and
     * what is held is read after it. */
    (void)weir_load(&hot->base);
    weir_look(t, slot, 0, &look);
    if (!weir_look_is_endless(&look) && look.fill > look.high)
        return false;
    /* Relaxed: a sum. */
    weir_fetch_add(&hot->count, weight);
    return true;
}

static void note_held(struct weir_hold *hold, uint32_t slot)
{
    hold->slot[hold->links++] = slot;
}

/* One that only counts lets everything pass, and so do those that a stale
 * table doesn't ask, or has asked before. */
static struct bounds bounds_of(const struct weir_table *t, uint32_t slot,
                               const struct look *look)
{
    uint64_t stop = weir_load_relaxed(&weir_hot(t, slot)->stop);
    bool counts = weir_look_is_endless(look) || (look->flags & META_STALE);
    if (counts)
        return (struct bounds){ INT64_MAX, look->count + WEIR_COUNT_FAR };
    return (struct bounds){ look->high, stop };
}

/* Of a table that processes share: what of it is the process's. Before what is
 * held grows and after it has sunk, so that who is killed in between has too
 * much given back: that is made up for when nobody holds the slot any more, a
 * unit that nobody gives back never. Relaxed: read when the process is gone. */
static void note_hold(struct weir_table *t, uint32_t process, uint32_t slot,
                      uint64_t units)
{
    if (WEIR_LIKELY(t->commons == 1))
        return;
    weir_fetch_add(weir_holds(t, process, slot), units);
}

void weir_gauge_bury(struct weir_table *t, uint32_t slot, uint32_t process)
{
    uint64_t *holds = weir_holds(t, process, slot);
    /* Not written where there is nothing: its page may be nobody's. */
    if (weir_load_relaxed(holds) == 0)
        return;
    gauge_give_back(t, slot, weir_exchange(holds, 0));
}

/* How somebody may go in where others wait. */
enum way { OPEN, SURE, SHUT };

static bool is_first(const struct weir_turn *turn, uint32_t slot)
{
    bool first = turn && turn->kind == WEIR_TURN_FIRST;
    for (uint32_t i = 0; first && i < turn->shut_count; i++)
        first = turn->shut[i] != slot;
    return first;
}

static __attribute__((noinline)) enum way way_past(const struct weir_table *t,
                                                   uint32_t slot,
                                                   uint32_t lanes,
                                                   const struct weir_hold *hold,
                                                   const struct weir_turn *turn)
{
    bool adapts = weir_slot_sluice(t, slot) != NULL;
    if (hold->weight == 0 || is_first(turn, slot))
        return OPEN;
    if (adapts && turn && turn->kind == WEIR_TURN_SURE)
        return SURE;
    uint32_t lane = weir_slot_lane(t, slot, hold->klass);
    return !adapts || (lanes >> lane & 1) ? SHUT : SURE;
}

/* False: the quota refuses. */
static bool hold_link(struct weir_table *t, uint32_t slot,
                      const struct look *look, struct weir_hold *hold,
                      const struct weir_turn *turn, unsigned *out_kick,
                      weir_instant now)
{
    struct bounds bounds = bounds_of(t, slot, look);
    uint64_t held;
    uint32_t lanes = weir_load(&weir_gauge(t, slot)->lanes);
    enum way way = OPEN;
    if (WEIR_UNLIKELY(lanes != 0))
        way = way_past(t, slot, lanes, hold, turn);
    bool guarded = (look->flags & META_ADAPTIVE) && hold->basin == 0;
    if (way == SHUT ||
        (guarded && !weir_slot_admit(t, slot, hold, way == SURE, now)))
        return false;
    note_hold(t, hold->process, slot, hold->weight);
    bool fits = gauge_hold(weir_gauge(t, slot), hold->weight, &bounds, &held);
    if (fits && WEIR_UNLIKELY(is_leased(t, slot)) &&
        !still_fits(t, slot, hold->weight)) {
        *out_kick |= gauge_give_back(t, slot, hold->weight);
        fits = false;
    }
    if (!fits) {
        note_hold(t, hold->process, slot, 0 - hold->weight);
        if (guarded && hold->basin != 0)
            weir_slot_dismiss(t, hold, WEIR_SAMPLE_IGNORED, now);
        *out_kick |= next_at(t, slot);
        return false;
    }
    note_held(hold, slot);
    *out_kick |= weir_slot_note(t, slot, held);
    return true;
}

unsigned weir_walk_hold(struct weir_table *t, struct walk *walk,
                        const struct weir_question *q, unsigned *out_kick)
{
    *q->hold = (struct weir_hold){ .weight = q->ask.weight,
                                   .process = weir_process_of(t, q->stripe),
                                   .klass = q->hold->klass };
    uint32_t gauges = walk->gauges & ~walk->shadow;
    for (uint32_t i = walk->links; gauges != 0 && i-- > 0;) {
        uint32_t slot = walk->slot[i];
        if (!(gauges >> i & 1))
            continue;
        struct look look;
        weir_look(t, slot, walk->elapsed, &look);
        if (hold_link(t, slot, &look, q->hold, q->turn, out_kick, walk->now))
            continue;
        if (!(look.flags & META_SHADOW)) {
            walk->refuser = i;
            return WEIR_OUTCOME_LIMITED;
        }
        walk->shadow |= 1u << i;
    }
    return 0;
}

unsigned weir_walk_see(struct weir_table *t, struct walk *walk,
                       const struct weir_question *q)
{
    uint32_t links = walk->adaptive & ~walk->shadow;
    for (uint32_t i = walk->links; links != 0 && i-- > 0;) {
        if (!(links >> i & 1) || !weir_slot_sluice(t, walk->slot[i]))
            continue;
        if (weir_slot_has_room(t, walk->slot[i], q->ask.weight, walk->now))
            return 0;
        if (!(walk->quiet >> i & 1)) {
            walk->refuser = i;
            return WEIR_OUTCOME_LIMITED;
        }
        walk->shadow |= 1u << i;
        return 0;
    }
    return 0;
}

/* A slot that is alone, without other flags, far from an edit: most of them.
 * False: that isn't so, or it is full; nothing is held. */
static bool enter_alone(struct weir_table *t, struct weir_ref ref,
                        uint64_t weight, struct weir_hold *out,
                        unsigned *out_kick, weir_instant now)
{
    const struct hot *hot = weir_hot(t, ref.slot);
    struct look look;
    weir_look(t, ref.slot, 0, &look);
    out->weight = weight;
    if ((look.flags & ~META_ADAPTIVE) != META_GAUGE ||
        weir_parent(hot) != WEIR_SLOT_NONE ||
        !hold_link(t, ref.slot, &look, out, NULL, out_kick, now))
        return false;
    bool alone = (uint32_t)weir_load(&hot->up) == WEIR_SLOT_NONE;
    if (WEIR_LIKELY(alone && weir_load(&hot->generation) == ref.generation))
        return true;
    *out_kick |= weir_table_leave(t, out);
    return false;
}

unsigned weir_table_enter(struct weir_table *t, uint32_t stripe,
                          struct weir_ref ref, uint64_t weight,
                          struct weir_hold *out_hold, struct weir_reply *reply,
                          weir_instant now)
{
    out_hold->links = out_hold->basin = 0;
    out_hold->process = weir_process_of(t, stripe);
    if (weight > WEIR_WEIGHT_MAX)
        weight = WEIR_WEIGHT_MAX;
    unsigned kick = 0;
    if (WEIR_LIKELY(!reply && weir_shadow_outcome(t) == 0) &&
        enter_alone(t, ref, weight, out_hold, &kick, now))
        return kick;
    struct weir_question q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_METER_TAKE, .weight = weight },
        .hold = out_hold,
    };
    unsigned outcome = weir_walk_ask(t, &q, reply, now);
    /* A kick is a kick, though what it was for was undone: its mark is set,
     * and nobody asks again before that was looked at. */
    return outcome | kick | weir_shadow_outcome(t);
}

unsigned weir_table_enter_turn(struct weir_table *t, struct weir_ref ref,
                               uint64_t weight, struct weir_hold *out_hold,
                               struct weir_turn *turn, struct weir_reply *reply,
                               weir_instant now)
{
    out_hold->links = out_hold->basin = 0;
    struct weir_question q = {
        .stripe = turn->stripe,
        .ref = ref,
        .ask = { .op = WEIR_METER_TAKE,
                 .weight =
                     weight < WEIR_WEIGHT_MAX ? weight : WEIR_WEIGHT_MAX },
        .hold = out_hold,
        .turn = turn,
    };
    return weir_walk_ask(t, &q, reply, now) | weir_shadow_outcome(t);
}

bool weir_walk_tell_turn(const struct weir_table *t, const struct walk *walk,
                         const struct weir_question *q)
{
    struct weir_turn *turn = q->turn;
    turn->refuser = turn->other = WEIR_SLOT_NONE;
    if (walk->refuser >= walk->links)
        return true;
    uint32_t slot = walk->slot[walk->refuser];
    if (!(walk->gauges >> walk->refuser & 1)) {
        turn->other = slot;
        return true;
    }
    turn->refuser = slot;
    turn->lane = weir_slot_lane(t, slot, q->hold->klass);
    return turn->kind != WEIR_TURN_ALONE || !is_leased(t, slot);
}

/* The slot + 1 whose sluice still holds it; 0: none does. */
static uint32_t guarded_by(const struct weir_table *t,
                           const struct weir_hold *hold)
{
    if (hold->basin == 0)
        return 0;
    const struct basin *basin = weir_basin(t, hold->basin - 1);
    /* Relaxed: while the serial is the hold's, so is the slot. */
    uint32_t slot = weir_load_relaxed(&basin->slot);
    return weir_load(&basin->serial) == hold->serial ? slot : 0;
}

unsigned weir_table_leave_as(struct weir_table *t, struct weir_hold *hold,
                             enum weir_permit_outcome outcome, weir_instant now)
{
    unsigned kick = 0;
    uint32_t guarded = guarded_by(t, hold);
    for (uint32_t i = 0; i < hold->links; i++) {
        uint32_t slot = hold->slot[i];
        kick |= gauge_give_back(t, slot, hold->weight);
        note_hold(t, hold->process, slot, 0 - hold->weight);
        if (WEIR_UNLIKELY(weir_load_relaxed(&t->basins_used) != 0) &&
            slot + 1 != guarded) {
            weir_slot_depart(t, slot, hold->weight);
            kick |= next_at(t, slot); /* looked at before there was room */
        }
    }
    /* Another's since it was looked at: then he was a stranger there. */
    if (hold->basin != 0 &&
        !weir_slot_dismiss(t, hold, (enum weir_sample_outcome)outcome, now) &&
        guarded != 0)
        weir_slot_depart(t, guarded - 1, hold->weight);
    if (guarded != 0) /* so here */
        kick |= next_at(t, guarded - 1);
    hold->links = 0;
    return kick;
}

unsigned weir_table_leave(struct weir_table *t, struct weir_hold *hold)
{
    return weir_table_leave_as(t, hold, WEIR_PERMIT_IGNORED, hold->entered);
}

uint64_t weir_table_held(const struct weir_table *t, uint32_t slot)
{
    return weir_load(&weir_gauge(t, slot)->held);
}

void weir_table_forget_holds(struct weir_table *t)
{
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++) {
        /* Not written where there is nothing: its page may be nobody's. */
        if (weir_slot_is_held(t, slot))
            weir_store(&weir_gauge(t, slot)->held, 0);
        if (weir_table_is_awaited(t, slot))
            weir_table_set_line(t, slot, 0, 0);
    }
    weir_basins_forget(t);
}
