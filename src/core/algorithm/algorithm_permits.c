/* SPDX-License-Identifier: MIT
 * algorithm/algorithm_permits.c - permits: units in flight, each with an
 * expiry.
 *
 *     word 0   number of permits in flight
 *     word 1   units of all of them
 *     then { id, expiry, units } each, the earliest expiry first
 *
 * A caller adds a permit under an id of its own and removes it by that id when
 * its work is done. A permit that is never removed, because its process died,
 * expires. Repeated steps are harmless: an id that is present passes and its
 * expiry is renewed; removing an absent id does nothing.
 *
 * A permit is refused if there is no free entry. When an edit leaves fewer
 * entries than there are permits, those that expire first are merged into one:
 * it has no owner, can't be removed, and expires with the last of them. Units
 * then count longer than they should, never shorter. While the clock goes back,
 * permits end later.
 *
 * A request without an id is for work that is done at once: it is decided and
 * stores nothing. A charge stores nothing either: it could not be given back.
 *
 * Rejected: finding the entry by a hash of the id. The search is faster, but
 * finding the permits that expire first, and the time that a refused caller has
 * to wait, is a walk over all. */

#include "core/algorithm/algorithm_internal.h"

#include <string.h>

#define WORDS 3 /* a permit */
enum { ID, EXPIRY, UNITS };
#define NOBODY UINT64_MAX

struct permits {
    const struct weir_algorithm_rule *rule;
    uint64_t *state;
    uint64_t ended; /* expired permits at the front */
    uint64_t count; /* permits after those */
    uint64_t used;  /* their units */
};

static uint64_t *permit_words(const struct permits *permits, uint64_t i)
{
    return permits->state + 2 + WORDS * (size_t)(permits->ended + i);
}

static void read_state(struct permits *permits,
                       const struct weir_algorithm_rule *rule, uint64_t *state,
                       weir_instant now)
{
    *permits = (struct permits){
        .rule = rule, .state = state, .count = state[0], .used = state[1]
    };
    weir_assert(permits->count <= rule->entries);
    while (permits->count > 0 && permit_words(permits, 0)[EXPIRY] <= now) {
        weir_audit(permits->used >= permit_words(permits, 0)[UNITS]);
        permits->used -= permit_words(permits, 0)[UNITS];
        permits->ended++;
        permits->count--;
    }
    weir_audit((permits->count == 0) == (permits->used == 0));
}

/* Drops the expired permits and clears the words behind the last one: an empty
 * state is all zero. */
static void write_state(struct permits *permits)
{
    weir_audit((permits->count == 0) == (permits->used == 0));
    uint64_t *first = permits->state + 2;
    size_t bytes = permits->count * WORDS * sizeof(*first);
    size_t before = (permits->state[0] + 1) * WORDS * sizeof(*first);
    size_t most = permits->rule->entries * WORDS * sizeof(*first);
    memmove(first, permit_words(permits, 0), bytes);
    permits->ended = 0;
    permits->state[0] = permits->count;
    permits->state[1] = permits->used;
    if (before > most)
        before = most;
    if (before > bytes)
        memset((char *)first + bytes, 0, before - bytes);
    weir_assert(permits->state[0] <= permits->rule->entries);
}

static bool find_permit(const struct permits *permits, uint64_t id,
                        uint64_t *out_i)
{
    for (uint64_t i = 0; i < permits->count; i++) {
        if (permit_words(permits, i)[ID] == id) {
            *out_i = i;
            return true;
        }
    }
    return false;
}

static bool has_free_permit(const struct permits *permits)
{
    return permits->count < permits->rule->entries;
}

static void remove_permit(struct permits *permits, uint64_t i)
{
    uint64_t *permit = permit_words(permits, i);
    weir_assert(i < permits->count && permits->used >= permit[UNITS]);
    permits->used -= permit[UNITS];
    permits->count--;
    memmove(permit, permit + WORDS,
            (permits->count - i) * WORDS * sizeof(*permit));
}

/* Inserts behind all that end no later. There must be a free entry. */
static void insert_permit(struct permits *permits, uint64_t id,
                          weir_instant expiry, uint64_t units)
{
    weir_assert(has_free_permit(permits));
    weir_audit(id != 0 && units > 0);
    uint64_t i = permits->count;
    while (i > 0 && permit_words(permits, i - 1)[EXPIRY] > expiry)
        i--;
    uint64_t *permit = permit_words(permits, i);
    memmove(permit + WORDS, permit,
            (permits->count - i) * WORDS * sizeof(*permit));
    permit[ID] = id;
    permit[EXPIRY] = expiry;
    permit[UNITS] = units;
    permits->used += units;
    permits->count++;
    weir_audit(permits->used >= units);
}

static bool passes(const struct permits *permits, uint64_t units)
{
    return weir_quantity_passes(permits->rule, permits->used, units) &&
           (units == 0 || has_free_permit(permits));
}

/* The time until enough units have expired. */
static weir_duration wait_for_units(const struct permits *permits,
                                    uint64_t units, weir_instant now)
{
    uint64_t used = permits->used;
    uint64_t i = 0;
    bool place = units == 0 || has_free_permit(permits);
    while (i < permits->count &&
           !(place && weir_quantity_passes(permits->rule, used, units))) {
        weir_audit(used >= permit_words(permits, i)[UNITS]);
        used -= permit_words(permits, i)[UNITS];
        place = true;
        i++;
    }
    weir_assert(i > 0);
    return permit_words(permits, i - 1)[EXPIRY] - now;
}

/* ---- The family ---- */

static bool permits_check(const struct weir_algorithm_rule *rule)
{
    return rule->quantity <= WEIR_ALGORITHM_QUANTITY_MAX && rule->window > 0 &&
           rule->window <= WEIR_ALGORITHM_WINDOW_MAX && rule->entries > 0 &&
           rule->entries <= WEIR_ALGORITHM_PERMITS_MAX;
}

static size_t permits_size(const struct weir_algorithm_rule *rule)
{
    return 8 * (2 + WORDS * (size_t)rule->entries);
}

static bool enter_permit(struct permits *permits,
                         const struct weir_algorithm_ask *ask, weir_instant now)
{
    uint64_t i;
    weir_instant expiry = now + permits->rule->window;
    bool again = ask->permit != 0 && find_permit(permits, ask->permit, &i);
    if (again) {
        uint64_t units = permit_words(permits, i)[UNITS];
        remove_permit(permits, i);
        insert_permit(permits, ask->permit, expiry, units);
        return true;
    }
    if (!passes(permits, ask->weight))
        return false;
    if (ask->permit != 0 && ask->weight > 0)
        insert_permit(permits, ask->permit, expiry, ask->weight);
    return true;
}

static bool step_permits(struct permits *permits,
                         const struct weir_algorithm_ask *ask, weir_instant now)
{
    uint64_t i;
    switch (ask->op) {
    case WEIR_ALGORITHM_TAKE:
    case WEIR_ALGORITHM_RESERVE:
        return enter_permit(permits, ask, now);
    case WEIR_ALGORITHM_PEEK:
        return passes(permits, ask->weight);
    case WEIR_ALGORITHM_REFUND:
        if (ask->permit != 0 && find_permit(permits, ask->permit, &i))
            remove_permit(permits, i);
        return true;
    case WEIR_ALGORITHM_CHARGE:
        break;
    }
    return true;
}

static void permits_step(const struct weir_algorithm_rule *rule,
                         uint64_t *state, const struct weir_algorithm_ask *ask,
                         struct weir_algorithm_answer *out, weir_instant now)
{
    struct permits permits;
    read_state(&permits, rule, state, now);
    if (permits.ended > 0 && ask->op != WEIR_ALGORITHM_PEEK)
        write_state(&permits); /* frees the entries of expired permits */
    bool passed = step_permits(&permits, ask, now);
    if (ask->op != WEIR_ALGORITHM_PEEK)
        write_state(&permits);
    weir_quantity_answer(rule, ask, passed, permits.used, out);
    if (!has_free_permit(&permits))
        out->remaining = 0;
    if (!out->passed && !out->never)
        out->retry_after = wait_for_units(&permits, ask->weight, now);
}

/* Units that another algorithm let through aren't in flight. */
static void permits_charge(const struct weir_algorithm_rule *rule,
                           uint64_t *state, uint64_t units, weir_instant now)
{
    (void)rule, (void)state, (void)units, (void)now;
}

/* If 'to' has too few entries, the first to expire are merged into one. */
static void permits_carry(const struct weir_algorithm_rule *from,
                          const uint64_t *state,
                          const struct weir_algorithm_rule *to,
                          uint64_t *to_state, weir_instant now)
{
    struct permits old, new;
    read_state(&old, from, (uint64_t *)(uintptr_t)state, now);
    read_state(&new, to, to_state, now);
    weir_assert(new.count == 0);
    uint64_t joined = old.count > to->entries ? old.count - to->entries + 1 : 0;
    uint64_t units = 0;
    for (uint64_t i = 0; i < joined; i++)
        units += permit_words(&old, i)[UNITS];
    if (joined > 0)
        insert_permit(&new, NOBODY, permit_words(&old, joined - 1)[EXPIRY],
                      units);
    for (uint64_t i = joined; i < old.count; i++) {
        const uint64_t *permit = permit_words(&old, i);
        insert_permit(&new, permit[ID], permit[EXPIRY], permit[UNITS]);
    }
    weir_audit(new.used == old.used);
    weir_audit(new.count <= old.count);
    write_state(&new);
}

static weir_instant permits_idle_at(const struct weir_algorithm_rule *rule,
                                    const uint64_t *state, weir_instant now)
{
    struct permits permits;
    read_state(&permits, rule, (uint64_t *)(uintptr_t)state, now);
    return permits.count == 0
               ? now
               : permit_words(&permits, permits.count - 1)[EXPIRY];
}

/* After the limit was lowered, more units than the limit may be in flight, but
 * never more than the largest limit. */
static bool permits_sound(const struct weir_algorithm_rule *rule,
                          const uint64_t *state, weir_instant latest)
{
    uint64_t count = state[0], rest = state[1];
    weir_instant before = 0;
    if (count > rule->entries || rest > WEIR_ALGORITHM_QUANTITY_MAX)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t *permit = state + 2 + WORDS * (size_t)i;
        if (permit[ID] == 0 || permit[EXPIRY] < before ||
            permit[EXPIRY] > latest + WEIR_ALGORITHM_WINDOW_MAX ||
            permit[UNITS] == 0 || permit[UNITS] > rest)
            return false;
        before = permit[EXPIRY];
        rest -= permit[UNITS];
    }
    return rest == 0;
}

const struct weir_algorithm_family weir_algorithm_permits = {
    .check = permits_check,
    .size = permits_size,
    .sound = permits_sound,
    .step = permits_step,
    .charge = permits_charge,
    .carry = permits_carry,
    .idle_at = permits_idle_at,
};
