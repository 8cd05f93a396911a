/* SPDX-License-Identifier: MIT
 * algorithm/algorithm_fixed.c - the fixed window: a number of units in each.
 *
 *     word 0 the number of the window that word 1 counts word 1 units counted
 *     in it
 *
 * Word 0 is a number, not the instant at which the window began: when a zone's
 * clocks are set back or forward, a day is 25 or 23 hours long but stays one
 * day. While the clock is before the recorded window, it stands still at that
 * window's beginning. For this reason the numbers of minutes and hours must not
 * follow a zone's clocks back: each would last an hour longer. */

#include "core/algorithm/algorithm_internal.h"

static int64_t index_at(const struct weir_algorithm_rule *rule,
                        weir_instant now)
{
    if (rule->calendar == WEIR_CALENDAR_NONE)
        return (int64_t)(now / rule->window);
    int64_t offset = weir_calendar_offset(rule->calendar, rule->utc_offset_s);
    return weir_calendar_index(rule->calendar, (int64_t)now + offset);
}

/* A window that would begin before the clock's 0 begins at 0. */
static weir_instant start_of(const struct weir_algorithm_rule *rule,
                             int64_t index)
{
    if (rule->calendar == WEIR_CALENDAR_NONE)
        return (weir_instant)index * rule->window;
    int64_t offset = weir_calendar_offset(rule->calendar, rule->utc_offset_s);
    int64_t start = weir_calendar_start(rule->calendar, index) - offset;
    return start > 0 ? (weir_instant)start : 0;
}

int64_t weir_algorithm_window(const struct weir_algorithm_rule *rule,
                              weir_instant *out_start, weir_instant *out_end,
                              weir_instant now)
{
    int64_t index = index_at(rule, now);
    *out_start = start_of(rule, index);
    *out_end = start_of(rule, index + 1);
    weir_assert(*out_start < *out_end);
    return index;
}

static bool fixed_check(const struct weir_algorithm_rule *rule)
{
    bool window = rule->window > 0 && rule->window <= WEIR_ALGORITHM_WINDOW_MAX;
    return rule->quantity <= WEIR_ALGORITHM_QUANTITY_MAX &&
           rule->calendar <= WEIR_CALENDAR_MONTH &&
           rule->utc_offset_s > -86400 && rule->utc_offset_s < 86400 &&
           (window || rule->calendar != WEIR_CALENDAR_NONE);
}

static size_t fixed_size(const struct weir_algorithm_rule *rule)
{
    (void)rule;
    return 2 * sizeof(uint64_t);
}

/* The current window: the clock's, or the recorded one if it is later. */
static int64_t current(const struct weir_algorithm_rule *rule,
                       const uint64_t *state, weir_instant now)
{
    int64_t index = index_at(rule, now);
    int64_t known = (int64_t)state[0];
    return index < known ? known : index;
}

static uint64_t used_in(const uint64_t *state, int64_t index)
{
    return (int64_t)state[0] == index ? state[1] : 0;
}

static void fixed_step(const struct weir_algorithm_rule *rule, uint64_t *state,
                       const struct weir_algorithm_ask *ask,
                       struct weir_algorithm_answer *out, weir_instant now)
{
    int64_t index = current(rule, state, now);
    uint64_t used = used_in(state, index);
    uint64_t was = used;
    bool passed = weir_quantity_passes(rule, used, ask->weight);
    if (weir_algorithm_counts(rule, ask, passed))
        used += weir_quantity_adds(rule, used, ask->weight);
    else if (ask->op == WEIR_ALGORITHM_REFUND)
        used -= ask->weight < used ? ask->weight : used;
    if (used != was) {
        state[0] = (uint64_t)index;
        state[1] = used;
    }
    weir_quantity_answer(rule, ask, passed, used, out);
    if (!out->passed && !out->never)
        out->retry_after = start_of(rule, index + 1) - now;
}

static void fixed_charge(const struct weir_algorithm_rule *rule,
                         uint64_t *state, uint64_t units, weir_instant now)
{
    int64_t index = current(rule, state, now);
    uint64_t used = used_in(state, index);
    state[0] = (uint64_t)index;
    state[1] = used + weir_quantity_adds(rule, used, units);
}

static void fixed_carry(const struct weir_algorithm_rule *from,
                        const uint64_t *state,
                        const struct weir_algorithm_rule *to,
                        uint64_t *to_state, weir_instant now)
{
    uint64_t used = used_in(state, current(from, state, now));
    if (used > 0)
        fixed_charge(to, to_state, used, now);
}

static weir_instant fixed_idle_at(const struct weir_algorithm_rule *rule,
                                  const uint64_t *state, weir_instant now)
{
    weir_instant end = start_of(rule, (int64_t)state[0] + 1);
    return state[1] > 0 && end > now ? end : now;
}

/* Two days more: the zone may have been another one when the window was
 * recorded. */
static bool fixed_sound(const struct weir_algorithm_rule *rule,
                        const uint64_t *state, weir_instant latest)
{
    int64_t last = index_at(rule, latest + 2 * 86400 * WEIR_SECOND);
    return (int64_t)state[0] >= 0 && (int64_t)state[0] <= last &&
           weir_quantity_holds(rule, state[1]);
}

const struct weir_algorithm_family weir_algorithm_fixed = {
    .check = fixed_check,
    .size = fixed_size,
    .sound = fixed_sound,
    .step = fixed_step,
    .charge = fixed_charge,
    .carry = fixed_carry,
    .idle_at = fixed_idle_at,
};
