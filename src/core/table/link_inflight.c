/* SPDX-License-Identifier: MIT
 * table/link_inflight.c - a link that counts units in flight: entering and
 * leaving.
 *
 * A quota of kind concurrency has an in-flight counter. Its limit is units at a
 * time; an enter puts some of them in flight, until its leave. The word that
 * decides is the sum of the permits, and it must be right to the unit for ever:
 * one unit too many is a lost permit, one too few exceeds the limit, and no
 * leak ever corrects it. Hence each slot has one separate word:
 *
 *     in_flight = the sum of the permits that entered by this slot and have
 *                 not left yet, and of enters under way that will give theirs
 *                 back
 *
 * Only enters, leaves, forks, reapers and weir_table_carry_in_flight() write
 * it. An edit doesn't: another limit, another kind, "off" or a removal doesn't
 * change the work that is in flight. A quota that is edited, removed and
 * created again under a name with permits therefore has the right number at
 * once. A permit record holds only slots and a weight, and is given back
 * whether or not the quotas still exist. In return, a slot with units in
 * flight is never given to another name (table_rule.c). Both sides use
 * sequentially consistent accesses: an enter adds, then checks that its chain
 * still is the one it walked (weir_link_has_moved()); the writer ends the
 * slot's life or unlinks it, then reads 'in_flight'. One of the two sees the
 * other.
 *
 * An enter adds by compare-and-swap, unlike a take: the units in flight never
 * exceed the limit, not even by one unit in any race, unless the limit was
 * lowered below the units already in flight. The price is a loop on a word that
 * other threads write; each round means that another thread made progress. The
 * counters of a chain are entered one after the other, from the root down, and
 * left again if one of them refuses: an enter that is refused in the end may
 * cause another to be refused, as if it had been let in.
 *
 * An adaptive quota has a concurrency gate in front of its counter
 * (table_gate.c). Permits that the gate lets in are counted here as all
 * others, and the quota's own limit, if it has one, caps them. The gate is
 * entered first: its refusal writes nothing that other threads read.
 *
 * Rejected: 'count' of the hot line as that word, by the bucket's arithmetic
 * without its leak. Takes by a quota of kind rate add to it, and an edit of the
 * kind would have to separate their units from those in flight while both go
 * on. Rejected: the sum under the bucket states' lock: twice the price, and a
 * stopped thread would stop others. */

#include "core/table/table_permit.h"

#include "core/table/table_walk_internal.h"

/* The bounds of an enter: the most units in flight, and the count here at which
 * a root must answer first. */
struct bounds {
    int64_t most;
    uint64_t stop;
};

/* Adds 'weight' units if they fit; '*out_in_flight' is the sum then. */
static bool inflight_add(struct inflight *inflight, uint64_t weight,
                         const struct bounds *bounds, uint64_t *out_in_flight)
{
    uint64_t in_flight = weir_load(&inflight->in_flight);
    do {
        /* Relaxed: others' units are as old as a root's last message. */
        uint64_t fill = in_flight + weir_load_relaxed(&inflight->others);
        if ((int64_t)(fill + weight) > bounds->most ||
            (int64_t)(in_flight - bounds->stop) >= 0)
            return false;
    } while (!weir_cas(&inflight->in_flight, &in_flight, in_flight + weight));
    *out_in_flight = in_flight + weight;
    return true;
}

/* Whether a root must soon learn that the units in flight have decreased: by as
 * much below its value as 'report_at' is above. Both marks are the sync's and
 * of nearly the same age; an unneeded report does no harm. */
static bool has_sunk(const struct weir_table *t, uint32_t slot,
                     uint64_t in_flight)
{
    uint64_t report_at = weir_load_relaxed(&weir_cold(t, slot)->report_at);
    uint64_t stop = weir_load_relaxed(&weir_hot(t, slot)->stop);
    int64_t slack = (int64_t)(stop - report_at);
    if ((int64_t)(stop - in_flight) > (int64_t)(WEIR_COUNT_FAR / 2))
        return false;
    return (int64_t)(in_flight - (report_at - 2 * (uint64_t)slack)) <= 0;
}

/* Called when the units are given back; see table_line.c. */
static unsigned next_at(const struct weir_table *t, uint32_t slot)
{
    uint32_t lanes = weir_load(&weir_inflight(t, slot)->lanes);
    return WEIR_UNLIKELY(lanes != 0) ? WEIR_OUTCOME_NEXT : 0;
}

/* Gives back at most the units in flight: if a copied permit leaves twice, the
 * excess is dropped, because a negative word would not be a sum any more. */
static unsigned inflight_subtract(struct weir_table *t, uint32_t slot,
                                  uint64_t weight)
{
    struct inflight *inflight = weir_inflight(t, slot);
    uint64_t in_flight = weir_load(&inflight->in_flight);
    uint64_t left;
    do {
        left = in_flight > weight ? in_flight - weight : 0;
    } while (!weir_cas(&inflight->in_flight, &in_flight, left));
    unsigned next = next_at(t, slot);
    weir_slot_mark(t, slot);
    bool reports = has_sunk(t, slot, left) ||
                   weir_link_leased_fits_again(t, slot, in_flight, left);
    if (!reports || weir_load_relaxed(&t->urgent))
        return next;
    return next | (weir_exchange(&t->urgent, 1) ? 0 : WEIR_OUTCOME_KICK);
}

static void note_link(struct weir_permit_record *record, uint32_t slot)
{
    record->slot[record->links++] = slot;
}

/* A slot that only counts lets everything pass, and so does one with a stale
 * flag: it was judged before. */
static struct bounds bounds_of(const struct weir_table *t, uint32_t slot,
                               const struct slot_read *read)
{
    uint64_t stop = weir_load_relaxed(&weir_hot(t, slot)->stop);
    bool counts = weir_slot_read_is_endless(read) || (read->flags & META_STALE);
    if (counts)
        return (struct bounds){ INT64_MAX, read->count + WEIR_COUNT_FAR };
    return (struct bounds){ read->high, stop };
}

/* In a shared table: the process's part of the units in flight. Written before
 * 'in_flight' grows and after it decreases: if the process is killed in
 * between, too much is given back, which is corrected when the slot has no
 * units in flight; a unit never given back would not be. Relaxed: read when
 * the process is dead. */
static void note_in_flight(struct weir_table *t, uint32_t process,
                           uint32_t slot, uint64_t units)
{
    if (WEIR_LIKELY(t->commons == 1))
        return;
    weir_fetch_add(weir_in_flight_of(t, process, slot), units);
}

void weir_inflight_reap(struct weir_table *t, uint32_t slot, uint32_t process)
{
    weir_assert(slot < t->slots);
    weir_assert(process < t->commons);
    uint64_t *in_flight = weir_in_flight_of(t, process, slot);
    /* Not written if it is 0: its page may be untouched. */
    uint64_t units = weir_load_relaxed(in_flight);
    if (units == 0)
        return;
    /* In this order: if the reaper is killed in between, the next one gives
     * back too much, as note_in_flight() has it. The other order would lose
     * the units. */
    inflight_subtract(t, slot, units);
    weir_store(in_flight, 0);
}

/* How a caller may enter a slot where others wait. */
enum way { OPEN, SURE, SHUT };

static bool is_first(const struct weir_turn *turn, uint32_t slot)
{
    bool first = turn && turn->kind == WEIR_TURN_FIRST;
    for (uint32_t i = 0; first && i < turn->shut_count; i++)
        first = turn->shut[i] != slot;
    return first;
}

static __attribute__((noinline)) enum way way_past(
    const struct weir_table *t, uint32_t slot, uint32_t lanes,
    const struct weir_permit_record *record, const struct weir_turn *turn)
{
    bool adapts = weir_slot_gate(t, slot) != NULL;
    if (record->weight == 0 || is_first(turn, slot))
        return OPEN;
    if (adapts && turn && turn->kind == WEIR_TURN_SURE)
        return SURE;
    uint32_t lane = weir_slot_lane(t, slot, record->klass);
    return !adapts || (lanes >> lane & 1) ? SHUT : SURE;
}

/* False: the quota refuses. */
bool weir_link_inflight_enter(struct weir_table *t, uint32_t slot,
                              const struct slot_read *read,
                              struct weir_permit_record *record,
                              const struct weir_turn *turn, unsigned *out_kick,
                              weir_instant now)
{
    struct bounds bounds = bounds_of(t, slot, read);
    uint64_t in_flight;
    uint32_t lanes = weir_load(&weir_inflight(t, slot)->lanes);
    enum way way = OPEN;
    if (WEIR_UNLIKELY(lanes != 0))
        way = way_past(t, slot, lanes, record, turn);
    bool guarded = (read->flags & META_ADAPTIVE) && record->gate_slot == 0;
    if (way == SHUT ||
        (guarded && !weir_slot_admit(t, slot, record, way == SURE, now)))
        return false;
    note_in_flight(t, record->process, slot, record->weight);
    bool fits = inflight_add(weir_inflight(t, slot), record->weight, &bounds,
                             &in_flight);
    if (fits && !weir_link_leased_commit(t, slot, record->weight)) {
        *out_kick |= inflight_subtract(t, slot, record->weight);
        fits = false;
    }
    if (!fits) {
        note_in_flight(t, record->process, slot, 0 - record->weight);
        if (guarded && record->gate_slot != 0)
            weir_slot_dismiss(t, record, WEIR_SAMPLE_IGNORED, now);
        *out_kick |= next_at(t, slot);
        return false;
    }
    note_link(record, slot);
    *out_kick |= weir_slot_note(t, slot, in_flight);
    return true;
}

unsigned weir_link_inflight_commit(struct weir_table *t, struct walk *walk,
                                   uint32_t i,
                                   const struct weir_algorithm_ask *ask)
{
    struct slot_read read;
    uint32_t slot = walk->slot[i];
    bool fits = true;
    weir_audit(i < walk->links && (walk->inflights >> i & 1));
    if (walk->record) {
        weir_slot_read(t, slot, walk->elapsed, &read);
        fits = weir_link_inflight_enter(t, slot, &read, walk->record,
                                        walk->turn, &walk->kick, walk->now);
    } else if ((walk->adaptive >> i & 1) && !walk->gated &&
               weir_slot_gate(t, slot)) {
        fits = weir_slot_has_room(t, slot, ask->weight, walk->now);
        walk->gated = true;
    }
    return fits ? 0 : WEIR_OUTCOME_LIMITED;
}

void weir_link_inflight_explain(const struct weir_table *t,
                                const struct walk *walk, uint32_t i,
                                const struct weir_algorithm_ask *ask,
                                struct weir_algorithm_answer *out)
{
    const struct weir_concurrency_gate *gate = weir_slot_gate(t, walk->slot[i]);
    if (!gate || (i == walk->refuser && out->never))
        return;
    uint32_t most = weir_concurrency_gate_free_units(gate, walk->now);
    if (i == walk->refuser) {
        /* Estimates when a permit will leave. */
        out->never = ask->weight > WEIR_PERMITS_MAX;
        out->retry_after = weir_concurrency_gate_wait(gate, walk->now);
    } else if (most >= out->remaining) {
        return;
    }
    out->used = weir_concurrency_gate_in_flight(gate);
    out->remaining = most;
}

bool weir_link_inflight_note_turn(const struct weir_table *t,
                                  const struct walk *walk)
{
    struct weir_turn *turn = walk->turn;
    turn->refuser = turn->other = WEIR_SLOT_NONE;
    if (walk->refuser >= walk->links)
        return true;
    uint32_t slot = walk->slot[walk->refuser];
    if (!(walk->inflights >> walk->refuser & 1)) {
        turn->other = slot;
        return true;
    }
    turn->refuser = slot;
    turn->lane = weir_slot_lane(t, slot, walk->record->klass);
    return turn->kind != WEIR_TURN_ALONE ||
           weir_table_leasing(t, slot) == WEIR_LEASING_NONE;
}

/* The slot + 1 of the concurrency gate that the permit is still in; 0: none. */
static uint32_t guarded_by(const struct weir_table *t,
                           const struct weir_permit_record *record)
{
    if (record->gate_slot == 0)
        return 0;
    const struct gate_slot *gate_slot =
        weir_gate_slot(t, record->gate_slot - 1);
    /* Relaxed: while the serial is the permit record's, so is the slot. */
    uint32_t slot = weir_load_relaxed(&gate_slot->slot);
    return weir_load(&gate_slot->serial) == record->serial ? slot : 0;
}

unsigned weir_table_leave_as(struct weir_table *t,
                             struct weir_permit_record *record,
                             enum weir_permit_outcome outcome, weir_instant now)
{
    unsigned kick = 0;
    uint32_t guarded = guarded_by(t, record);
    for (uint32_t i = 0; i < record->links; i++) {
        uint32_t slot = record->slot[i];
        kick |= inflight_subtract(t, slot, record->weight);
        note_in_flight(t, record->process, slot, 0 - record->weight);
        if (WEIR_UNLIKELY(weir_load_relaxed(&t->gate_slots_used) != 0) &&
            slot + 1 != guarded) {
            weir_slot_depart(t, slot, record->weight);
            kick |= next_at(t, slot); /* read before there was room */
        }
    }
    /* The gate slot was reused after the check, so the permit was entered there
     * as untracked. */
    if (record->gate_slot != 0 &&
        !weir_slot_dismiss(t, record, (enum weir_sample_outcome)outcome, now) &&
        guarded != 0)
        weir_slot_depart(t, guarded - 1, record->weight);
    if (guarded != 0) /* as above */
        kick |= next_at(t, guarded - 1);
    record->links = 0;
    return kick;
}

unsigned weir_table_leave(struct weir_table *t,
                          struct weir_permit_record *record)
{
    return weir_table_leave_as(t, record, WEIR_PERMIT_IGNORED, record->entered);
}

void weir_table_forget_permits(struct weir_table *t)
{
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++) {
        /* Not written if it is 0: its page may be untouched. */
        if (weir_slot_has_permits(t, slot))
            weir_store(&weir_inflight(t, slot)->in_flight, 0);
        if (weir_table_is_awaited(t, slot))
            weir_table_set_line(t, slot, 0, 0);
    }
    weir_gate_slots_forget(t);
}
