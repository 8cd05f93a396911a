/* SPDX-License-Identifier: MIT
 * quota/table_sluice.c - slots with a limit found from the latency of requests.
 *
 * An adaptive quota has an in-flight counter (table_permit.c) with a
 * concurrency gate ("sluice", adapt/sluice.h) in front of it. The counter
 * remains the true number of units in flight by the name, so edits, forks,
 * eviction and reports work as for any other slot; it refuses only by the
 * quota's own limit, if it has one. The gate counts the units in flight that it
 * let in: it may write off some that never come back, which the counter never
 * does.
 *
 *     slot --basin_of--> basin { rule, class numbers, sluice }
 *
 * A gate is 20 times as large as the rest of a slot, so there are few. They lie
 * in gate slots ("basins"), which are assigned to templates, quotas and
 * instances that are adaptive. A template's gate is never entered: its gate
 * slot keeps the rule for its instances. A slot without a gate slot lets all
 * pass and counts; an instance gets one when the sweep passes and one is free
 * again.
 *
 * A gate slot may be reassigned while threads are in the middle of an enter.
 * Its gate is then not made anew in its memory, but emptied as by an edit
 * (weir_sluice_edit()), so that a late enter finds a sound one. After entering,
 * a thread reads the gate slot's serial again: if it has moved, the thread
 * entered another slot's gate and leaves it again. While the serial is even, no
 * thread enters. A permit record has gate slot and serial, so it never leaves a
 * gate that it didn't enter. All of these accesses are sequentially consistent.
 *
 * Untracked permits ("strangers"). Units in flight by the name when a slot gets
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

#include "quota/table_layout.h"

#include <string.h>

#include "quota/quota_adaptive.h"

/* How often an edit tries to lock a busy controller: each hold lasts some
 * microseconds, unless its thread is stopped meanwhile. An abandoned edit is
 * not repeated, so it is given up only after more than a second. */
#define EDIT_TRIES 10000000
#define VIEW_TRIES 10000

/* ---- Memory ---- */

static uint64_t in_lines(uint64_t bytes)
{
    return (bytes + WEIR_CACHE_LINE - 1) / WEIR_CACHE_LINE * WEIR_CACHE_LINE;
}

/* The size for the largest kind: an edit may set any kind. */
static uint32_t basin_bytes(void)
{
    size_t most = 0;
    for (unsigned kind = 0; kind < WEIR_CONTROLLER_KINDS; kind++) {
        struct weir_sluice_options options;
        weir_sluice_defaults(&options, (enum weir_controller_kind)kind);
        size_t size = weir_sluice_size(&options);
        most = size > most ? size : most;
    }
    return (uint32_t)in_lines(sizeof(struct basin) + most);
}

uint64_t weir_basins_lay_out(struct weir_table *t, uint64_t at, uint32_t basins)
{
    t->basins = basins < t->slots ? basins : t->slots;
    t->basin_bytes = basin_bytes();
    t->fleet = 1;
    t->basin_of_at = at;
    if (t->basins > 0)
        at = in_lines(at + (uint64_t)t->slots * sizeof(uint32_t));
    t->basins_at = at;
    return at + (uint64_t)t->basins * t->basin_bytes;
}

static struct weir_sluice *sluice_of(struct basin *basin)
{
    return (struct weir_sluice *)basin->sluice;
}

static uint32_t number_of(const struct weir_table *t, uint32_t slot)
{
    /* acquire: the gate slot was written before; pairs with have_basin(). */
    return t->basins > 0 ? weir_load_acquire(weir_basin_of(t, slot)) : 0;
}

/* The slot's gate slot, or NULL. */
static struct basin *basin_of(const struct weir_table *t, uint32_t slot)
{
    uint32_t number = number_of(t, slot);
    return number == 0 || number == BASIN_WANTED ? NULL
                                                 : weir_basin(t, number - 1);
}

/* ---- Rules ---- */

static void rule_of_quota(const struct weir_quota *quota, struct adapting *out)
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
        .classes_len = (uint32_t)quota->classes.len,
    };
    weir_assert(quota->classes.len <= WEIR_CLASSES_TEXT_MAX);
    if (quota->classes.len > 0)
        memcpy(out->classes, quota->classes.p, quota->classes.len);
}

static void options_of(const struct weir_table *t, const struct basin *basin,
                       struct weir_sluice_options *out)
{
    const struct adapting *rule = &basin->rules[basin->rule & 1];
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
    quota.classes = (struct weir_text){ rule->classes, rule->classes_len };
    weir_quota_sluice(&quota, t->fleet, out);
    out->controller.seed =
        weir_rng_mix(t->seed + weir_load_relaxed(&basin->slot));
}

static void set_rule(struct basin *basin, const struct adapting *rule)
{
    uint32_t other = ~basin->rule & 1;
    basin->rules[other] = *rule;
    /* release: a fork that sees it sees the rule. */
    weir_store_release(&basin->rule, other);
}

/* Relaxed: an enter concurrent with an edit may use another class, and counts
 * there until it leaves. */
static void set_classes(struct basin *basin,
                        const struct weir_sluice_options *options)
{
    for (uint32_t i = 0; i < WEIR_SLUICE_CLASSES_MAX; i++) {
        struct weir_text name = weir_text_of(options->class_of[i].name);
        bool named = i < options->classes && name.len > 0;
        weir_store_relaxed(&basin->klass[i],
                           named ? weir_class_number(name) : 0);
    }
}

static uint32_t place_of(const struct basin *basin, uint32_t klass)
{
    uint32_t place = 0;
    while (place < WEIR_SLUICE_CLASSES_MAX && klass != 0 &&
           weir_load_relaxed(&basin->klass[place]) != klass)
        place++;
    return klass == 0 ? WEIR_SLUICE_CLASSES_MAX : place;
}

/* ---- Gate slots come and go; under the writer lock ---- */

static void edit(const struct weir_table *t, struct basin *basin, bool anew,
                 weir_instant now)
{
    struct weir_sluice_options options;
    options_of(t, basin, &options);
    uint32_t tries = EDIT_TRIES;
    while (!weir_sluice_edit(sluice_of(basin), &options, anew, now) &&
           --tries > 0)
        weir_pause();
    set_classes(basin, &options);
}

/* Makes an empty gate with the gate slot's rule. */
static void begin(const struct weir_table *t, struct basin *basin,
                  weir_instant now)
{
    struct weir_sluice_options options;
    if (basin->made) {
        edit(t, basin, true, now);
        return;
    }
    options_of(t, basin, &options);
    weir_sluice_init(basin->sluice, &options, now);
    set_classes(basin, &options);
    basin->made = 1;
}

static void find_strangers(const struct weir_table *t, struct basin *basin,
                           uint32_t slot)
{
    uint64_t held = weir_load(&weir_gauge(t, slot)->held);
    uint32_t units =
        held < WEIR_SLUICE_UNITS_MAX ? (uint32_t)held : WEIR_SLUICE_UNITS_MAX;
    struct weir_sluice_permit found = { .units = 0 };
    if (units > 0)
        found = weir_sluice_found(sluice_of(basin), units);
    weir_store(&basin->strangers, (uint64_t)found.life << 32 | found.units);
}

/* A permit that left during the counting may have looked for untracked units
 * before there were any: reduce them to the units in flight. */
static void forget_gone(struct weir_table *t, struct basin *basin,
                        uint32_t slot)
{
    uint64_t held = weir_load(&weir_gauge(t, slot)->held);
    uint32_t strangers = (uint32_t)weir_load(&basin->strangers);
    if (held < strangers)
        weir_slot_depart(t, slot, strangers - held);
}

static struct basin *free_basin(struct weir_table *t)
{
    for (uint32_t i = 0; i < t->basins_used; i++) {
        if (weir_load_relaxed(&weir_basin(t, i)->slot) == 0)
            return weir_basin(t, i);
    }
    if (t->basins_used == t->basins)
        return NULL;
    /* release: a thread that walks them sees the new one zeroed. */
    weir_store_release(&t->basins_used, t->basins_used + 1);
    return weir_basin(t, t->basins_used - 1);
}

static uint32_t index_of(const struct weir_table *t, const struct basin *basin)
{
    const char *first = weir_table_at(t, t->basins_at);
    return (uint32_t)((uint64_t)((const char *)basin - first) / t->basin_bytes);
}

static void set_number(struct weir_table *t, uint32_t slot, uint32_t number)
{
    uint32_t before = weir_load_relaxed(weir_basin_of(t, slot));
    uint32_t wanting = weir_load_relaxed(&t->basins_wanted);
    wanting += (number == BASIN_WANTED) - (before == BASIN_WANTED);
    weir_store_relaxed(&t->basins_wanted, wanting);
    weir_store(weir_basin_of(t, slot), number);
}

/* A new serial each time: odd while the gate can be entered. */
static void set_serial(struct basin *basin, bool open)
{
    uint32_t next = basin->serial + 1;
    weir_store(&basin->serial, next + ((next & 1) != open));
}

static void have_basin(struct weir_table *t, uint32_t slot, struct basin *basin,
                       const struct adapting *rule, weir_instant now)
{
    set_rule(basin, rule);
    weir_store(&basin->slot, slot + 1);
    begin(t, basin, now);
    find_strangers(t, basin, slot);
    set_number(t, slot, index_of(t, basin) + 1);
    forget_gone(t, basin, slot);
    set_serial(basin, true);
}

void weir_slot_unadapt(struct weir_table *t, uint32_t slot)
{
    uint32_t number = number_of(t, slot);
    if (number == 0)
        return;
    set_number(t, slot, 0);
    if (number == BASIN_WANTED)
        return;
    struct basin *basin = weir_basin(t, number - 1);
    set_serial(basin, false);
    weir_store(&basin->slot, 0);
}

/* Slots of the shadow set never have units in flight. */
static bool is_of_shadow_set(const struct weir_table *t, uint32_t slot)
{
    char name[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(t, slot, name);
    return weir_name_is_shadow((struct weir_text){ name, len });
}

static void adapt(struct weir_table *t, uint32_t slot,
                  const struct adapting *rule, bool another, weir_instant now)
{
    struct basin *basin = basin_of(t, slot);
    if (basin) {
        set_rule(basin, rule);
        /* Shut while it is emptied: a permit let in meanwhile would have no
         * valid serial to leave with. */
        if (another)
            set_serial(basin, false);
        edit(t, basin, another, now);
        if (another) {
            find_strangers(t, basin, slot);
            forget_gone(t, basin, slot);
            set_serial(basin, true);
        }
        return;
    }
    if (t->basins == 0 || is_of_shadow_set(t, slot))
        return;
    basin = free_basin(t);
    if (basin)
        have_basin(t, slot, basin, rule, now);
    else
        set_number(t, slot, BASIN_WANTED);
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
    rule_of_quota(quota, &rule);
    adapt(t, slot, &rule, another, now);
}

/* If the template has no gate slot, its instances have no rule to use. */
void weir_slot_adapt_as(struct weir_table *t, uint32_t slot, uint32_t template,
                        bool another, weir_instant now)
{
    const struct basin *from = basin_of(t, template);
    if (weir_cold(t, template)->sharing != WEIR_ADAPTIVE)
        weir_slot_unadapt(t, slot);
    else if (from)
        adapt(t, slot, &from->rules[from->rule & 1], another, now);
    else if (t->basins > 0 && number_of(t, template) == BASIN_WANTED)
        set_number(t, slot, BASIN_WANTED);
}

bool weir_slot_wants_basin(const struct weir_table *t, uint32_t slot)
{
    if (weir_load_relaxed(&t->basins_wanted) == 0 ||
        number_of(t, slot) != BASIN_WANTED ||
        weir_cold(t, slot)->state != WEIR_SLOT_INSTANCE ||
        !basin_of(t, weir_cold(t, slot)->rule))
        return false;
    for (uint32_t i = 0; i < t->basins_used; i++) {
        if (weir_load_relaxed(&weir_basin(t, i)->slot) == 0)
            return true;
    }
    return t->basins_used < t->basins;
}

/* ---- After a killed writer, and a fork ---- */

/* A gate slot belongs to the slot that refers to it; others are free. */
void weir_basins_mend(struct weir_table *t)
{
    uint32_t wanting = 0;
    for (uint32_t slot = 0; t->basins > 0 && slot < t->used; slot++) {
        uint32_t number = number_of(t, slot);
        bool lives = weir_cold(t, slot)->state > WEIR_SLOT_MAKING;
        bool its = number != 0 && number != BASIN_WANTED && lives &&
                   weir_basin(t, number - 1)->slot == slot + 1;
        wanting += number == BASIN_WANTED && lives;
        if (number != 0 && !its && !(number == BASIN_WANTED && lives))
            weir_store(weir_basin_of(t, slot), 0);
    }
    for (uint32_t i = 0; i < t->basins_used; i++) {
        struct basin *basin = weir_basin(t, i);
        uint32_t slot = basin->slot;
        if (slot == 0)
            continue;
        bool its = weir_load(weir_basin_of(t, slot - 1)) == i + 1;
        if (!its || (basin->serial & 1) == 0)
            set_serial(basin, its);
        if (!its)
            weir_store(&basin->slot, 0);
    }
    weir_store_relaxed(&t->basins_wanted, wanting);
}

void weir_basins_forget(struct weir_table *t)
{
    for (uint32_t i = 0; i < weir_load_relaxed(&t->basins_used); i++) {
        struct basin *basin = weir_basin(t, i);
        if (!basin->made)
            continue;
        struct weir_sluice_options options;
        double limit = weir_sluice_limit(sluice_of(basin));
        options_of(t, basin, &options);
        struct weir_controller_options *bounds = &options.controller;
        limit = limit < bounds->max ? limit : bounds->max;
        if (bounds->kind != WEIR_CONTROLLER_NONE)
            bounds->initial = limit > bounds->min ? limit : bounds->min;
        weir_sluice_init(basin->sluice, &options, t->origin);
        weir_store(&basin->strangers, (uint64_t)0);
    }
}

/* ---- Any thread ---- */

/* Unpacks the permit record into the gate's own form. */
static struct weir_sluice_permit permit_of(const struct weir_hold *hold)
{
    return (struct weir_sluice_permit){
        .entered = hold->entered,
        .units = (uint32_t)hold->weight,
        .in_flight = hold->in_flight,
        .life = hold->life,
        .class_life = hold->class_life,
        .klass = (uint16_t)hold->place,
        .counted = hold->counted,
    };
}

static void note(struct weir_hold *hold,
                 const struct weir_sluice_permit *permit, uint32_t basin,
                 uint32_t serial)
{
    hold->entered = permit->entered;
    hold->in_flight = permit->in_flight & 0xffffff;
    hold->place = permit->klass < WEIR_SLUICE_CLASSES_MAX
                      ? permit->klass & 0x7f
                      : WEIR_SLUICE_CLASSES_MAX;
    hold->counted = permit->counted;
    hold->life = permit->life;
    hold->class_life = permit->class_life;
    hold->basin = basin;
    hold->serial = serial;
}

uint32_t weir_slot_lane(const struct weir_table *t, uint32_t slot,
                        uint32_t klass)
{
    const struct basin *basin = basin_of(t, slot);
    return basin ? place_of(basin, klass) : WEIR_SLUICE_CLASSES_MAX;
}

static bool enter(struct basin *basin, const struct weir_hold *hold, bool sure,
                  struct weir_sluice_permit *out, weir_instant now)
{
    uint32_t place = place_of(basin, hold->klass);
    uint32_t units = (uint32_t)hold->weight;
    if (WEIR_UNLIKELY(sure))
        return weir_sluice_enter_sure(sluice_of(basin), place, units, out, now);
    return weir_sluice_enter(sluice_of(basin), place, units, out, now);
}

bool weir_slot_admit(struct weir_table *t, uint32_t slot,
                     struct weir_hold *hold, bool sure, weir_instant now)
{
    uint32_t number = number_of(t, slot);
    if (number == 0 || number == BASIN_WANTED || hold->weight == 0)
        return true;
    if (hold->weight > WEIR_PERMITS_MAX)
        return false;
    struct basin *basin = weir_basin(t, number - 1);
    uint32_t serial = weir_load(&basin->serial);
    if ((serial & 1) == 0 || weir_load_relaxed(&basin->slot) != slot + 1)
        return true; /* it is shut, or another slot's */
    struct weir_sluice_permit permit;
    if (!enter(basin, hold, sure, &permit, now))
        return false;
    if (WEIR_LIKELY(weir_load(&basin->serial) == serial))
        note(hold, &permit, number, serial);
    else /* reassigned: the chain will be found to have moved, too */
        weir_sluice_leave(sluice_of(basin), &permit, WEIR_SAMPLE_IGNORED, now);
    return true;
}

bool weir_slot_dismiss(struct weir_table *t, struct weir_hold *hold,
                       enum weir_sample_outcome outcome, weir_instant now)
{
    struct basin *basin = weir_basin(t, hold->basin - 1);
    struct weir_sluice_permit permit = permit_of(hold);
    hold->basin = 0;
    /* If it moves after this, the gate no longer knows the permit's life. */
    if (weir_load(&basin->serial) != hold->serial)
        return false;
    weir_sluice_leave(sluice_of(basin), &permit, outcome, now);
    return true;
}

void weir_slot_depart(struct weir_table *t, uint32_t slot, uint64_t weight)
{
    struct basin *basin = basin_of(t, slot);
    if (!basin)
        return;
    uint64_t left =
        weir_load_relaxed(&basin->strangers); /* the CAS checks it */
    uint32_t units;
    do {
        units = weight < (uint32_t)left ? (uint32_t)weight : (uint32_t)left;
        if (units == 0)
            return;
    } while (!weir_cas(&basin->strangers, &left, left - units));
    struct weir_sluice_permit permit = {
        .units = units,
        .life = (uint16_t)(left >> 32),
        .klass = WEIR_SLUICE_CLASS_NONE,
    };
    weir_sluice_leave(sluice_of(basin), &permit, WEIR_SAMPLE_IGNORED, 0);
}

struct weir_sluice *weir_slot_sluice(const struct weir_table *t, uint32_t slot)
{
    struct basin *basin = basin_of(t, slot);
    return basin ? sluice_of(basin) : NULL;
}

bool weir_slot_has_room(const struct weir_table *t, uint32_t slot,
                        uint64_t weight, weir_instant now)
{
    const struct weir_sluice *sluice = weir_slot_sluice(t, slot);
    if (!sluice || weight == 0)
        return true;
    uint32_t room = weir_sluice_room(sluice, now);
    return weight <= room || (room > 0 && weir_sluice_held(sluice) == 0 &&
                              weight <= WEIR_PERMITS_MAX);
}

bool weir_table_adaptive(struct weir_table *t, uint32_t slot,
                         struct weir_sluice_view *out, weir_instant now)
{
    struct weir_sluice *sluice =
        slot < t->slots ? weir_slot_sluice(t, slot) : NULL;
    uint32_t tries = VIEW_TRIES;
    while (sluice && !weir_sluice_view(sluice, out, now)) {
        if (--tries == 0)
            return false;
        weir_pause();
    }
    return sluice != NULL;
}

bool weir_table_adaptive_next(const struct weir_table *t, uint32_t *cursor,
                              uint32_t *out_slot)
{
    /* acquire: see free_basin(). */
    while (*cursor < weir_load_acquire(&t->basins_used)) {
        uint32_t slot = weir_load_relaxed(&weir_basin(t, (*cursor)++)->slot);
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
    /* acquire: see free_basin(). */
    for (uint32_t i = 0; i < weir_load_acquire(&t->basins_used); i++)
        count += weir_load_relaxed(&weir_basin(t, i)->slot) != 0;
    *out_wanting = weir_load_relaxed(&t->basins_wanted);
    return count;
}

/* ---- The sync ---- */

static void refleet(struct weir_table *t, struct basin *basin, weir_instant now)
{
    const struct adapting *rule = &basin->rules[basin->rule & 1];
    if (basin->slot != 0 && (rule->fleet_min > 0 || rule->fleet_max > 0))
        edit(t, basin, false, now);
}

void weir_table_set_fleet(struct weir_table *t, uint32_t processes,
                          weir_instant now)
{
    processes = processes > 0 ? processes : 1;
    if (t->fleet == processes)
        return;
    weir_table_lock(t);
    t->fleet = processes;
    for (uint32_t i = 0; i < t->basins_used; i++)
        refleet(t, weir_basin(t, i), now);
    weir_table_unlock(t);
}

void weir_table_tick(struct weir_table *t, weir_instant now)
{
    for (uint32_t i = 0; i < weir_load_acquire(&t->basins_used); i++) {
        struct basin *basin = weir_basin(t, i);
        struct weir_sluice *sluice = sluice_of(basin);
        /* Not while it is being made: in zeroed memory everything is due, and
         * no permit is let in. */
        bool open = weir_load(&basin->serial) & 1;
        if (open && weir_sluice_deadline(sluice) <= now)
            weir_sluice_tick(sluice, now);
    }
}
