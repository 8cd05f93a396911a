/* SPDX-License-Identifier: MIT
 * table/table_gate.c - slots with a limit found from the latency of requests.
 *
 * An adaptive quota has an in-flight counter (link_inflight.c) with a
 * concurrency gate (concurrency/concurrency_gate.h) in front of it. The
 * counter remains the true number of units in flight by the name, so edits,
 * forks, eviction and reports work as for any other slot; it refuses only by
 * the quota's own limit, if it has one. The gate counts the units in flight
 * that it let in: it may write off some that never come back, which the
 * counter never does.
 *
 *     slot --gate_slot_of--> gate slot { rule, class numbers, gate }
 *
 * A gate is 20 times as large as the rest of a slot, so there are few. They lie
 * in gate slots, which are assigned to templates, quotas and
 * instances that are adaptive. A template's gate is never entered: its gate
 * slot keeps the rule for its instances. A slot without a gate slot lets all
 * pass and counts; an instance gets one when the sweep passes and one is free
 * again.
 *
 * A gate slot may be reassigned while threads are in the middle of an enter.
 * Its gate is then not made anew in its memory, but emptied as by an edit
 * (weir_concurrency_gate_edit()), so that a late enter finds a sound one.
 * After entering, a thread reads the gate slot's serial again: if it has
 * moved, the thread entered another slot's gate and leaves it again. While the
 * serial is even, no thread enters. A permit record has gate slot and serial,
 * so it never leaves a gate that it didn't enter. All of these accesses are
 * sequentially consistent.
 *
 * Untracked permits. Units in flight by the name when a slot gets
 * its gate slot have no permit of the gate. They are counted in as one block,
 * and each permit without a gate that leaves the slot takes its units out of
 * that block. A permit that enters between the counting and the publishing is
 * missed; when it leaves, the units of another are taken out instead. Until
 * then, that many units more may be in flight.
 *
 * A rule is stored twice, and the copy in force isn't written: a fork may find
 * the other copy torn, and makes its gates from the one in force.
 *
 * Rejected: letting the gate alone count. A permit that it has written off
 * would no longer protect its slot; if the table then evicted the slot, the
 * permit would be given back to another name. Rejected: a gate for each slot,
 * made at first use: a decision must not wait for the writer lock. */

#include "core/table/table_inflight_internal.h"

#include <string.h>

#include "core/quota/quota_adaptive.h"
#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_traits.h"

/* How often an edit and a view try to lock a busy controller: each hold lasts
 * some microseconds, unless its thread is stopped meanwhile. An edit that was
 * given up is made by weir_table_tick(). */
#define GATE_TRIES 1000

/* ---- Memory ---- */

/* The size for the largest kind: an edit may set any kind. */
static uint32_t gate_slot_bytes(void)
{
    size_t most = 0;
    for (unsigned kind = 0; kind < WEIR_CONTROLLER_KINDS; kind++) {
        struct weir_concurrency_gate_options options;
        weir_concurrency_gate_defaults(&options,
                                       (enum weir_controller_kind)kind);
        size_t size = weir_concurrency_gate_size(&options);
        most = size > most ? size : most;
    }
    weir_assert(most > 0);
    return (uint32_t)weir_line_aligned(sizeof(struct gate_slot) + most);
}

uint64_t weir_gate_slots_lay_out(struct weir_table *t, uint64_t at,
                                 uint32_t gate_slots)
{
    weir_assert(at % WEIR_CACHE_LINE == 0);
    t->gate_slots = gate_slots < t->slots ? gate_slots : t->slots;
    t->gate_slot_bytes = gate_slot_bytes();
    t->fleet = 1;
    t->gate_slot_of_at = at;
    if (t->gate_slots > 0)
        at = weir_line_aligned(at + (uint64_t)t->slots * sizeof(uint32_t));
    t->gate_slots_at = at;
    weir_assert(t->gate_slots <= t->slots);
    weir_assert(t->gate_slots_at % WEIR_CACHE_LINE == 0);
    return at + (uint64_t)t->gate_slots * t->gate_slot_bytes;
}

static struct weir_concurrency_gate *gate_of(struct gate_slot *gate_slot)
{
    return (struct weir_concurrency_gate *)gate_slot->gate;
}

static uint32_t gate_number_of(const struct weir_table *t, uint32_t slot)
{
    /* acquire: the gate slot was written before; pairs with
     * assign_gate_slot(). */
    return t->gate_slots > 0 ? weir_load_acquire(weir_gate_slot_of(t, slot))
                             : 0;
}

/* The slot's gate slot, or NULL. */
static struct gate_slot *gate_slot_of(const struct weir_table *t, uint32_t slot)
{
    uint32_t number = gate_number_of(t, slot);
    return number == 0 || number == GATE_SLOT_WANTED
               ? NULL
               : weir_gate_slot(t, number - 1);
}

/* ---- Rules ---- */

static void gate_rule_of_quota(const struct weir_quota *quota,
                               struct adapting *out)
{
    *out = (struct adapting){
        .percentile = quota->percentile,
        .min = quota->min,
        .max = quota->max,
        .fleet_min = quota->fleet_min,
        .fleet_max = quota->fleet_max,
        .target = quota->target,
        .permit_timeout = quota->permit_timeout,
        .controller = (uint32_t)quota->controller,
        .scope = (uint32_t)quota->scope,
        .classes_len = (uint32_t)quota->classes.len,
    };
    weir_assert(quota->classes.len <= WEIR_CLASSES_TEXT_MAX);
    if (quota->classes.len > 0)
        memcpy(out->classes, quota->classes.p, quota->classes.len);
}

static void gate_options_of(const struct weir_table *t,
                            const struct gate_slot *gate_slot,
                            struct weir_concurrency_gate_options *out)
{
    const struct adapting *rule = &gate_slot->rules[gate_slot->rule & 1];
    weir_assert(rule->classes_len <= WEIR_CLASSES_TEXT_MAX);
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.kind = WEIR_CONCURRENCY;
    quota.sharing = WEIR_ADAPTIVE;
    quota.percentile = rule->percentile;
    quota.min = rule->min;
    quota.max = rule->max;
    quota.fleet_min = rule->fleet_min;
    quota.fleet_max = rule->fleet_max;
    quota.target = rule->target;
    quota.permit_timeout = rule->permit_timeout;
    quota.controller = (enum weir_controller_kind)rule->controller;
    quota.scope = (enum weir_scope)rule->scope;
    quota.classes = (struct weir_text){ rule->classes, rule->classes_len };
    weir_quota_gate(&quota, t->fleet, out);
    out->controller.given = quota.scope == WEIR_SCOPE_FLEET &&
                            !weir_load_relaxed(&gate_slot->alone);
    out->controller.seed =
        weir_rng_mix(t->seed + weir_load_relaxed(&gate_slot->slot));
}

static void set_gate_rule(struct gate_slot *gate_slot,
                          const struct adapting *rule)
{
    weir_assert(rule->classes_len <= WEIR_CLASSES_TEXT_MAX);
    uint32_t other = ~gate_slot->rule & 1;
    gate_slot->rules[other] = *rule;
    weir_store_relaxed(&gate_slot->of_fleet, rule->scope == WEIR_SCOPE_FLEET);
    /* release: a fork that sees it sees the rule. */
    weir_store_release(&gate_slot->rule, other);
}

/* Relaxed: an enter concurrent with an edit may use another class, and counts
 * there until it leaves. */
static void set_gate_classes(
    struct gate_slot *gate_slot,
    const struct weir_concurrency_gate_options *options)
{
    weir_assert(options->classes <= WEIR_CONCURRENCY_GATE_CLASSES_MAX);
    for (uint32_t i = 0; i < WEIR_CONCURRENCY_GATE_CLASSES_MAX; i++) {
        struct weir_text name = weir_text_of(options->class_of[i].name);
        bool named = i < options->classes && name.len > 0;
        weir_store_relaxed(&gate_slot->klass[i],
                           named ? weir_class_number(name) : 0);
    }
}

static uint32_t class_place(const struct gate_slot *gate_slot, uint32_t klass)
{
    uint32_t place = 0;
    while (place < WEIR_CONCURRENCY_GATE_CLASSES_MAX && klass != 0 &&
           weir_load_relaxed(&gate_slot->klass[place]) != klass)
        place++;
    return klass == 0 ? WEIR_CONCURRENCY_GATE_CLASSES_MAX : place;
}

/* ---- Gate slots come and go; under the writer lock ---- */

static void edit_gate(const struct weir_table *t, struct gate_slot *gate_slot,
                      bool anew, weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(gate_slot->made);
    struct weir_concurrency_gate_options options;
    gate_options_of(t, gate_slot, &options);
    uint32_t tries = GATE_TRIES;
    bool edited = false;
    while (!edited && tries-- > 0) {
        edited =
            weir_concurrency_gate_edit(gate_of(gate_slot), &options, anew, now);
        if (!edited)
            weir_pause();
    }
    if (edited)
        weir_store_relaxed(&gate_slot->late, 0);
    else
        weir_store_relaxed(&gate_slot->late,
                           gate_slot->late | (anew ? LATE_ANEW : LATE_EDIT));
    set_gate_classes(gate_slot, &options);
}

/* Makes an empty gate with the gate slot's rule. */
static void make_gate(const struct weir_table *t, struct gate_slot *gate_slot,
                      weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    struct weir_concurrency_gate_options options;
    if (gate_slot->made) {
        edit_gate(t, gate_slot, true, now);
        return;
    }
    gate_options_of(t, gate_slot, &options);
    weir_concurrency_gate_init(gate_slot->gate, &options, now);
    set_gate_classes(gate_slot, &options);
    gate_slot->made = 1;
    weir_assert(gate_slot->made);
}

static void count_untracked(const struct weir_table *t,
                            struct gate_slot *gate_slot, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    uint64_t in_flight = weir_load(&weir_inflight(t, slot)->in_flight);
    uint32_t units = in_flight < WEIR_CONCURRENCY_GATE_UNITS_MAX
                         ? (uint32_t)in_flight
                         : WEIR_CONCURRENCY_GATE_UNITS_MAX;
    struct weir_concurrency_gate_permit found = { .units = 0 };
    if (units > 0)
        found = weir_concurrency_gate_found(gate_of(gate_slot), units);
    weir_store(&gate_slot->untracked, (uint64_t)found.life << 32 | found.units);
}

/* A permit that left during the counting may have looked for untracked units
 * before there were any: reduce them to the units in flight. */
static void drop_departed(struct weir_table *t, struct gate_slot *gate_slot,
                          uint32_t slot)
{
    uint64_t in_flight = weir_load(&weir_inflight(t, slot)->in_flight);
    uint32_t untracked = (uint32_t)weir_load(&gate_slot->untracked);
    if (in_flight < untracked)
        weir_slot_depart(t, slot, untracked - in_flight);
}

static struct gate_slot *free_gate_slot(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->gate_slots_used <= t->gate_slots);
    for (uint32_t i = 0; i < t->gate_slots_used; i++) {
        if (weir_load_relaxed(&weir_gate_slot(t, i)->slot) == 0)
            return weir_gate_slot(t, i);
    }
    if (t->gate_slots_used == t->gate_slots)
        return NULL;
    /* release: a thread that walks them sees the new one zeroed. */
    weir_store_release(&t->gate_slots_used, t->gate_slots_used + 1);
    return weir_gate_slot(t, t->gate_slots_used - 1);
}

static uint32_t gate_slot_index(const struct weir_table *t,
                                const struct gate_slot *gate_slot)
{
    const char *first = weir_table_at(t, t->gate_slots_at);
    return (uint32_t)((uint64_t)((const char *)gate_slot - first) /
                      t->gate_slot_bytes);
}

static void set_gate_number(struct weir_table *t, uint32_t slot,
                            uint32_t number)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(number == GATE_SLOT_WANTED || number <= t->gate_slots_used);
    uint32_t before = weir_load_relaxed(weir_gate_slot_of(t, slot));
    uint32_t wanting = weir_load_relaxed(&t->gate_slots_wanted);
    wanting += (number == GATE_SLOT_WANTED) - (before == GATE_SLOT_WANTED);
    weir_store_relaxed(&t->gate_slots_wanted, wanting);
    weir_store(weir_gate_slot_of(t, slot), number);
}

/* A new serial each time: odd while the gate can be entered. */
static void set_gate_serial(struct gate_slot *gate_slot, bool open)
{
    uint32_t next = gate_slot->serial + 1;
    weir_store(&gate_slot->serial, next + ((next & 1) != open));
    weir_assert((gate_slot->serial & 1) == open);
}

static void assign_gate_slot(struct weir_table *t, uint32_t slot,
                             struct gate_slot *gate_slot,
                             const struct adapting *rule, weir_instant now)
{
    weir_assert(gate_slot->slot == 0);
    weir_assert((gate_slot->serial & 1) == 0);
    set_gate_rule(gate_slot, rule);
    weir_store_relaxed(&gate_slot->alone, 0);
    weir_store(&gate_slot->slot, slot + 1);
    make_gate(t, gate_slot, now);
    count_untracked(t, gate_slot, slot);
    set_gate_number(t, slot, gate_slot_index(t, gate_slot) + 1);
    drop_departed(t, gate_slot, slot);
    set_gate_serial(gate_slot, true);
}

void weir_slot_unadapt(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    uint32_t number = gate_number_of(t, slot);
    if (number == 0)
        return;
    set_gate_number(t, slot, 0);
    if (number == GATE_SLOT_WANTED)
        return;
    struct gate_slot *gate_slot = weir_gate_slot(t, number - 1);
    set_gate_serial(gate_slot, false);
    weir_store(&gate_slot->slot, 0);
}

/* Slots of the shadow set never have units in flight. */
static bool is_shadow_slot(const struct weir_table *t, uint32_t slot)
{
    char name[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(t, slot, name);
    return weir_name_is_shadow((struct weir_text){ name, len });
}

static void adapt_slot(struct weir_table *t, uint32_t slot,
                       const struct adapting *rule, bool another,
                       weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(slot < t->used);
    struct gate_slot *gate_slot = gate_slot_of(t, slot);
    if (gate_slot) {
        set_gate_rule(gate_slot, rule);
        /* Shut while it is emptied: a permit let in meanwhile would have no
         * valid serial to leave with. */
        if (another) {
            set_gate_serial(gate_slot, false);
            weir_store_relaxed(&gate_slot->alone, 0);
        }
        edit_gate(t, gate_slot, another, now);
        if (another) {
            count_untracked(t, gate_slot, slot);
            drop_departed(t, gate_slot, slot);
            set_gate_serial(gate_slot, true);
        }
        return;
    }
    if (t->gate_slots == 0 || is_shadow_slot(t, slot))
        return;
    gate_slot = free_gate_slot(t);
    if (gate_slot)
        assign_gate_slot(t, slot, gate_slot, rule, now);
    else
        set_gate_number(t, slot, GATE_SLOT_WANTED);
}

void weir_slot_adapt(struct weir_table *t, uint32_t slot,
                     const struct weir_quota *quota, bool another,
                     weir_instant now)
{
    struct adapting rule;
    if (quota->sharing != WEIR_ADAPTIVE) {
        weir_slot_unadapt(t, slot);
        return;
    }
    gate_rule_of_quota(quota, &rule);
    adapt_slot(t, slot, &rule, another, now);
}

/* If the template has no gate slot, its instances have no rule to use. */
void weir_slot_adapt_as(struct weir_table *t, uint32_t slot, uint32_t template,
                        bool another, weir_instant now)
{
    const struct gate_slot *from = gate_slot_of(t, template);
    if (weir_sharing_of(weir_cold(t, template)) != WEIR_ADAPTIVE)
        weir_slot_unadapt(t, slot);
    else if (from)
        adapt_slot(t, slot, &from->rules[from->rule & 1], another, now);
    else if (t->gate_slots > 0 &&
             gate_number_of(t, template) == GATE_SLOT_WANTED)
        set_gate_number(t, slot, GATE_SLOT_WANTED);
}

bool weir_slot_wants_gate_slot(const struct weir_table *t, uint32_t slot)
{
    if (weir_load_relaxed(&t->gate_slots_wanted) == 0 ||
        gate_number_of(t, slot) != GATE_SLOT_WANTED ||
        weir_cold(t, slot)->state != WEIR_SLOT_INSTANCE ||
        !gate_slot_of(t, weir_cold(t, slot)->rule))
        return false;
    for (uint32_t i = 0; i < t->gate_slots_used; i++) {
        if (weir_load_relaxed(&weir_gate_slot(t, i)->slot) == 0)
            return true;
    }
    return t->gate_slots_used < t->gate_slots;
}

/* ---- After a killed writer, and a fork ---- */

/* A gate slot belongs to the slot that refers to it; others are free. */
void weir_gate_slots_mend(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->gate_slots_used <= t->gate_slots);
    uint32_t wanting = 0;
    for (uint32_t slot = 0; t->gate_slots > 0 && slot < t->used; slot++) {
        uint32_t number = gate_number_of(t, slot);
        bool lives = weir_cold(t, slot)->state > WEIR_SLOT_MAKING;
        bool its = number != 0 && number != GATE_SLOT_WANTED && lives &&
                   weir_gate_slot(t, number - 1)->slot == slot + 1;
        wanting += number == GATE_SLOT_WANTED && lives;
        if (number != 0 && !its && !(number == GATE_SLOT_WANTED && lives))
            weir_store(weir_gate_slot_of(t, slot), 0);
    }
    for (uint32_t i = 0; i < t->gate_slots_used; i++) {
        struct gate_slot *gate_slot = weir_gate_slot(t, i);
        uint32_t slot = gate_slot->slot;
        if (slot == 0)
            continue;
        bool its = weir_load(weir_gate_slot_of(t, slot - 1)) == i + 1;
        if (!its || (gate_slot->serial & 1) == 0)
            set_gate_serial(gate_slot, its);
        if (!its)
            weir_store(&gate_slot->slot, 0);
    }
    weir_store_relaxed(&t->gate_slots_wanted, wanting);
    weir_assert(wanting <= t->used);
}

void weir_gate_slots_forget(struct weir_table *t)
{
    weir_assert(t->gate_slots_used <= t->gate_slots);
    for (uint32_t i = 0; i < weir_load_relaxed(&t->gate_slots_used); i++) {
        struct gate_slot *gate_slot = weir_gate_slot(t, i);
        if (!gate_slot->made)
            continue;
        struct weir_concurrency_gate_options options;
        double limit = weir_concurrency_gate_limit(gate_of(gate_slot));
        gate_options_of(t, gate_slot, &options);
        struct weir_controller_options *bounds = &options.controller;
        limit = limit < bounds->max ? limit : bounds->max;
        if (bounds->kind != WEIR_CONTROLLER_NONE)
            bounds->initial = limit > bounds->min ? limit : bounds->min;
        weir_concurrency_gate_init(gate_slot->gate, &options, t->origin);
        weir_store(&gate_slot->untracked, (uint64_t)0);
    }
}

/* ---- Any thread ---- */

/* Unpacks the permit record into the gate's own form. */
static struct weir_concurrency_gate_permit gate_permit_of(
    const struct weir_permit_record *record)
{
    return (struct weir_concurrency_gate_permit){
        .entered = record->entered,
        .units = (uint32_t)record->weight,
        .in_flight = record->in_flight,
        .life = record->life,
        .class_life = record->class_life,
        .klass = (uint16_t)record->place,
        .counted = record->counted,
    };
}

static void note_permit(struct weir_permit_record *record,
                        const struct weir_concurrency_gate_permit *permit,
                        uint32_t gate_slot, uint32_t serial)
{
    record->entered = permit->entered;
    record->in_flight = permit->in_flight & 0xffffff;
    record->place = permit->klass < WEIR_CONCURRENCY_GATE_CLASSES_MAX
                        ? permit->klass & 0x7f
                        : WEIR_CONCURRENCY_GATE_CLASSES_MAX;
    record->counted = permit->counted;
    record->life = permit->life;
    record->class_life = permit->class_life;
    record->gate_slot = gate_slot;
    record->serial = serial;
}

uint32_t weir_slot_lane(const struct weir_table *t, uint32_t slot,
                        uint32_t klass)
{
    const struct gate_slot *gate_slot = gate_slot_of(t, slot);
    return gate_slot ? class_place(gate_slot, klass)
                     : WEIR_CONCURRENCY_GATE_CLASSES_MAX;
}

static bool enter_gate(struct gate_slot *gate_slot,
                       const struct weir_permit_record *record, bool sure,
                       struct weir_concurrency_gate_permit *out,
                       weir_instant now)
{
    uint32_t place = class_place(gate_slot, record->klass);
    uint32_t units = (uint32_t)record->weight;
    if (WEIR_UNLIKELY(sure))
        return weir_concurrency_gate_enter_sure(gate_of(gate_slot), place,
                                                units, out, now);
    return weir_concurrency_gate_enter(gate_of(gate_slot), place, units, out,
                                       now);
}

bool weir_slot_admit(struct weir_table *t, uint32_t slot,
                     struct weir_permit_record *record, bool sure,
                     weir_instant now)
{
    uint32_t number = gate_number_of(t, slot);
    if (number == 0 || number == GATE_SLOT_WANTED || record->weight == 0)
        return true;
    if (record->weight > WEIR_PERMITS_MAX)
        return false;
    struct gate_slot *gate_slot = weir_gate_slot(t, number - 1);
    uint32_t serial = weir_load(&gate_slot->serial);
    if ((serial & 1) == 0 || weir_load_relaxed(&gate_slot->slot) != slot + 1)
        return true; /* it is shut, or another slot's */
    struct weir_concurrency_gate_permit permit;
    if (!enter_gate(gate_slot, record, sure, &permit, now))
        return false;
    if (WEIR_LIKELY(weir_load(&gate_slot->serial) == serial))
        note_permit(record, &permit, number, serial);
    else /* reassigned: the chain will be found to have moved, too */
        weir_concurrency_gate_leave(gate_of(gate_slot), &permit,
                                    WEIR_SAMPLE_IGNORED, now);
    return true;
}

bool weir_slot_dismiss(struct weir_table *t, struct weir_permit_record *record,
                       enum weir_sample_outcome outcome, weir_instant now)
{
    struct gate_slot *gate_slot = weir_gate_slot(t, record->gate_slot - 1);
    struct weir_concurrency_gate_permit permit = gate_permit_of(record);
    record->gate_slot = 0;
    /* If it moves after this, the gate no longer knows the permit's life. */
    if (weir_load(&gate_slot->serial) != record->serial)
        return false;
    weir_concurrency_gate_leave(gate_of(gate_slot), &permit, outcome, now);
    return true;
}

void weir_slot_depart(struct weir_table *t, uint32_t slot, uint64_t weight)
{
    struct gate_slot *gate_slot = gate_slot_of(t, slot);
    if (!gate_slot)
        return;
    uint64_t left =
        weir_load_relaxed(&gate_slot->untracked); /* the CAS checks it */
    uint32_t units;
    do {
        units = weight < (uint32_t)left ? (uint32_t)weight : (uint32_t)left;
        if (units == 0)
            return;
    } while (!weir_cas(&gate_slot->untracked, &left, left - units));
    struct weir_concurrency_gate_permit permit = {
        .units = units,
        .life = (uint16_t)(left >> 32),
        .klass = WEIR_CONCURRENCY_GATE_CLASS_NONE,
    };
    weir_concurrency_gate_leave(gate_of(gate_slot), &permit,
                                WEIR_SAMPLE_IGNORED, 0);
}

struct weir_concurrency_gate *weir_slot_gate(const struct weir_table *t,
                                             uint32_t slot)
{
    struct gate_slot *gate_slot = gate_slot_of(t, slot);
    return gate_slot ? gate_of(gate_slot) : NULL;
}

bool weir_slot_has_room(const struct weir_table *t, uint32_t slot,
                        uint64_t weight, weir_instant now)
{
    const struct weir_concurrency_gate *gate = weir_slot_gate(t, slot);
    if (!gate || weight == 0)
        return true;
    uint32_t room = weir_concurrency_gate_free_units(gate, now);
    return weight <= room ||
           (room > 0 && weir_concurrency_gate_in_flight(gate) == 0 &&
            weight <= WEIR_PERMITS_MAX);
}

bool weir_table_adaptive(struct weir_table *t, uint32_t slot,
                         struct weir_concurrency_gate_view *out,
                         weir_instant now)
{
    struct weir_concurrency_gate *gate =
        slot < t->slots ? weir_slot_gate(t, slot) : NULL;
    uint32_t tries = GATE_TRIES;
    while (gate && !weir_concurrency_gate_view(gate, out, now)) {
        if (--tries == 0)
            return false;
        weir_pause();
    }
    return gate != NULL;
}

bool weir_table_adaptive_next(const struct weir_table *t, uint32_t *cursor,
                              uint32_t *out_slot)
{
    /* acquire: see free_gate_slot(). */
    while (*cursor < weir_load_acquire(&t->gate_slots_used)) {
        uint32_t slot =
            weir_load_relaxed(&weir_gate_slot(t, (*cursor)++)->slot);
        if (slot == 0 || weir_load_acquire(&weir_cold(t, slot - 1)->state) ==
                             WEIR_SLOT_TEMPLATE)
            continue;
        *out_slot = slot - 1;
        return true;
    }
    return false;
}

uint32_t weir_table_adaptives(const struct weir_table *t, uint32_t *out_wanting)
{
    uint32_t count = 0;
    /* acquire: see free_gate_slot(). */
    for (uint32_t i = 0; i < weir_load_acquire(&t->gate_slots_used); i++)
        count += weir_load_relaxed(&weir_gate_slot(t, i)->slot) != 0;
    *out_wanting = weir_load_relaxed(&t->gate_slots_wanted);
    return count;
}

/* ---- Limits of a fleet ---- */

/* Any thread: rules may be written meanwhile, this word is one. */
static bool is_of_fleet(const struct gate_slot *gate_slot)
{
    return weir_load_relaxed(&gate_slot->of_fleet); /* of a moment ago */
}

bool weir_slot_is_of_fleet(const struct weir_table *t, uint32_t slot)
{
    const struct gate_slot *gate_slot = gate_slot_of(t, slot);
    return gate_slot && is_of_fleet(gate_slot);
}

bool weir_slot_given(const struct weir_table *t, uint32_t slot,
                     double *out_granted)
{
    struct gate_slot *gate_slot = gate_slot_of(t, slot);
    if (!gate_slot || !is_of_fleet(gate_slot))
        return false;
    *out_granted = weir_concurrency_gate_limit(gate_of(gate_slot));
    /* Relaxed: the node reads it from time to time. */
    return !weir_load_relaxed(&gate_slot->alone);
}

enum weir_gate_source weir_table_gate_source(const struct weir_table *t,
                                             uint32_t slot)
{
    double granted;
    if (slot >= t->slots || !weir_slot_is_of_fleet(t, slot))
        return WEIR_GATE_OWN;
    return weir_slot_given(t, slot, &granted) ? WEIR_GATE_PART
                                              : WEIR_GATE_ALONE;
}

bool weir_slot_give(struct weir_table *t, uint32_t slot, double granted,
                    uint64_t cut, weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    struct gate_slot *gate_slot = gate_slot_of(t, slot);
    weir_assert(gate_slot && is_of_fleet(gate_slot));
    bool alone = granted > WEIR_PERMITS_MAX;
    if (alone != (gate_slot->alone != 0)) {
        weir_store_relaxed(&gate_slot->alone, alone);
        edit_gate(t, gate_slot, false, now);
    }
    if (gate_slot->late)
        return false;
    uint32_t tries = GATE_TRIES;
    while (!alone &&
           !weir_concurrency_gate_give(gate_of(gate_slot), granted, cut, now)) {
        if (--tries == 0)
            return false;
        weir_pause();
    }
    return true;
}

/* The gate slot, if it keeps to a part of a limit. */
static struct gate_slot *given_slot(const struct weir_table *t, uint32_t slot)
{
    struct gate_slot *gate_slot = gate_slot_of(t, slot);
    bool given = gate_slot && is_of_fleet(gate_slot) && !gate_slot->alone &&
                 !gate_slot->late;
    return given ? gate_slot : NULL;
}

bool weir_table_collect_window(struct weir_table *t, uint32_t slot,
                               struct weir_latency_count *bins,
                               struct weir_latency_batch *out, weir_instant now)
{
    weir_assert(slot < t->slots);
    if (!weir_table_try_lock(t))
        return false;
    struct gate_slot *gate_slot = given_slot(t, slot);
    bool taken = gate_slot && weir_concurrency_gate_collect(gate_of(gate_slot),
                                                            bins, out, now);
    weir_table_unlock(t);
    return taken;
}

/* ---- Guaranteed classes ---- */

/* Peaks of what is in flight fade over that time, as those of the sum do in a
 * lease holder. */
#define NEEDED_FADES (10 * WEIR_SECOND)

/* Each class's units in flight. Returns the sum, and that of the classes which
 * were refused, with one more for each: so they get a part of the refused units
 * also if they have nothing in flight. */
static double look_at_classes(
    struct gate_slot *gate_slot,
    bool refused[WEIR_CONCURRENCY_GATE_CLASSES_MAX + 1], double *out_refused,
    weir_instant now)
{
    struct weir_concurrency_gate_use
        uses[WEIR_CONCURRENCY_GATE_CLASSES_MAX + 1];
    double sum = 0, fade = (double)weir_since(gate_slot->needed_at, now) /
                           (double)NEEDED_FADES;
    weir_concurrency_gate_uses(gate_of(gate_slot), uses);
    gate_slot->needed_at = now;
    *out_refused = 0;
    for (size_t i = 0; i <= WEIR_CONCURRENCY_GATE_CLASSES_MAX; i++) {
        double *needed = &gate_slot->needed[i];
        *needed = weir_larger(uses[i].in_flight, *needed / (1 + fade));
        refused[i] = uses[i].refused;
        sum += *needed;
        *out_refused += refused[i] ? *needed + 1 : 0;
    }
    return sum;
}

/* Classes that weren't refused want as much as they have. The others divide the
 * rest by what they have: a class that wants more of its share gets more of it,
 * and has more in flight the next time. */
static double wants_of_class(double needed, bool refused, double wants,
                             double sum, double sum_refused)
{
    if (sum_refused == 0 || wants <= sum)
        return sum > 0 ? wants * needed / sum : 0;
    double more = refused ? (wants - sum) * (needed + 1) / sum_refused : 0;
    return needed + more;
}

/* A band for each class with a share, at its place; the requests of all others
 * are the last one's. */
static size_t divide(struct gate_slot *gate_slot,
                     const struct weir_concurrency_gate_options *options,
                     double wants, struct weir_band *out, weir_instant now)
{
    bool refused[WEIR_CONCURRENCY_GATE_CLASSES_MAX + 1];
    double sum_refused;
    double sum = look_at_classes(gate_slot, refused, &sum_refused, now);
    size_t count = 0;
    struct weir_band others = { .clients = 1 };
    for (uint32_t i = 0; i <= WEIR_CONCURRENCY_GATE_CLASSES_MAX; i++) {
        double own = wants_of_class(gate_slot->needed[i], refused[i], wants,
                                    sum, sum_refused);
        if (i < options->classes && options->class_of[i].share_percent > 0)
            out[count++] = (struct weir_band){ .priority = weir_load_relaxed(
                                                   &gate_slot->klass[i]),
                                               .clients = 1,
                                               .wants = own };
        else
            others.wants += own;
    }
    /* The sum is that of the wants, which is all that is known at first. */
    if (sum == 0)
        others.wants = wants;
    if (count > 0)
        out[count++] = others;
    return count;
}

/* Bands are in a message by descending priority. */
static void sort_bands(struct weir_band *bands, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t k = i; k > 0 && bands[k - 1].priority < bands[k].priority;
             k--) {
            struct weir_band band = bands[k];
            bands[k] = bands[k - 1];
            bands[k - 1] = band;
        }
}

size_t weir_table_divide_wants(struct weir_table *t, uint32_t slot,
                               double wants, struct weir_band *out,
                               weir_instant now)
{
    struct weir_concurrency_gate_options options;
    size_t count = 0;
    weir_assert(slot < t->slots && wants >= 0);
    if (!weir_table_try_lock(t))
        return 0;
    struct gate_slot *gate_slot = given_slot(t, slot);
    if (gate_slot && gate_slot->klass[0] != 0) {
        gate_options_of(t, gate_slot, &options);
        count = divide(gate_slot, &options, wants, out, now);
    }
    weir_table_unlock(t);
    sort_bands(out, count);
    return count;
}

bool weir_table_set_guarantees(struct weir_table *t, uint32_t slot,
                               const struct weir_guarantee *guarantees,
                               size_t count)
{
    double permits[WEIR_CONCURRENCY_GATE_CLASSES_MAX] = { 0 };
    weir_assert(slot < t->slots);
    if (!weir_table_try_lock(t))
        return false;
    struct gate_slot *gate_slot = given_slot(t, slot);
    for (size_t i = count; gate_slot && i-- > 0;) {
        uint32_t place =
            guarantees[i].band > 0 && guarantees[i].band <= UINT32_MAX
                ? class_place(gate_slot, (uint32_t)guarantees[i].band)
                : WEIR_CONCURRENCY_GATE_CLASSES_MAX;
        if (place < WEIR_CONCURRENCY_GATE_CLASSES_MAX)
            permits[place] = guarantees[i].units;
    }
    /* A root that names none: shares of the part will do. */
    bool done = !gate_slot ||
                weir_concurrency_gate_guarantee(gate_of(gate_slot),
                                                count > 0 ? permits : NULL);
    weir_table_unlock(t);
    return done;
}

/* ---- The sync ---- */

static void edit_fleet_bounds(struct weir_table *t, struct gate_slot *gate_slot,
                              weir_instant now)
{
    const struct adapting *rule = &gate_slot->rules[gate_slot->rule & 1];
    bool fleet = rule->fleet_min > 0 || rule->fleet_max > 0 ||
                 rule->scope == WEIR_SCOPE_FLEET;
    if (gate_slot->slot != 0 && fleet)
        edit_gate(t, gate_slot, false, now);
}

void weir_table_set_fleet(struct weir_table *t, uint32_t processes,
                          weir_instant now)
{
    processes = processes > 0 ? processes : 1;
    if (t->fleet == processes)
        return;
    if (!weir_table_try_lock(t))
        return; /* the sync calls it again at its next turn */
    t->fleet = processes;
    for (uint32_t i = 0; i < t->gate_slots_used; i++)
        edit_fleet_bounds(t, weir_gate_slot(t, i), now);
    weir_table_unlock(t);
    weir_assert(t->fleet > 0);
}

/* An edit that found the controller busy. */
static void edit_late(struct weir_table *t, struct gate_slot *gate_slot,
                      weir_instant now)
{
    if (!weir_table_try_lock(t))
        return; /* at a later tick */
    if (gate_slot->slot != 0 && gate_slot->late)
        edit_gate(t, gate_slot, gate_slot->late & LATE_ANEW, now);
    weir_table_unlock(t);
}

void weir_table_tick(struct weir_table *t, weir_instant now)
{
    for (uint32_t i = 0; i < weir_load_acquire(&t->gate_slots_used); i++) {
        struct gate_slot *gate_slot = weir_gate_slot(t, i);
        struct weir_concurrency_gate *gate = gate_of(gate_slot);
        /* Not while it is being made: in zeroed memory everything is due, and
         * no permit is let in. */
        bool open = weir_load(&gate_slot->serial) & 1;
        /* Relaxed: read again under the lock. */
        if (open && weir_load_relaxed(&gate_slot->late))
            edit_late(t, gate_slot, now);
        if (open && weir_concurrency_gate_deadline(gate) <= now)
            weir_concurrency_gate_tick(gate, now);
    }
}
