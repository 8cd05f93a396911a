/* SPDX-License-Identifier: MIT
 * algorithm/algorithm_sliding.c - the sliding window, estimated from parts.
 *
 * A window W is cut into n parts; part k begins at k * W / n. Counted units go
 * to the part that contains their instant. The last window up to now covers n -
 * 1 whole parts, the newest so far, and an end of the oldest, which counts in
 * proportion, as if its units had come evenly:
 *
 *        |<--------------- W --------------->|
 *     |..oldest..|.......|.......|.......|newest
 *        ^ now - W                           ^ now         n = 4
 *
 *     estimate = newest + n - 1 parts + oldest * (W - r) / W,
 *     r = n * now modulo W
 *
 * With n = 1 that is the estimate from this window and the one before. It is
 * compared as a fraction, in 128 bits, never divided.
 *
 *     word 0   number of the newest part
 *     word 1   units in all n + 1 parts
 *     then n + 1 parts, part k in word 2 + k modulo (n + 1)
 *
 * While the clock is before the newest part, it stands still at that part's
 * beginning, where the oldest one counts in full. */

#include "core/algorithm/algorithm_internal.h"

/* The state at an instant, computed without writing to it. */
struct view {
    const struct weir_algorithm_rule *rule;
    const uint64_t *state;
    uint64_t newest; /* number of the part that contains now */
    uint64_t passed; /* r: how much of the oldest is outside, of W */
    uint64_t whole;  /* units in all parts but the oldest */
    uint64_t oldest;
};

static uint64_t *word_of_part(const struct weir_algorithm_rule *rule,
                              uint64_t *state, uint64_t part)
{
    return state + 2 + part % (rule->sub_windows + 1u);
}

/* Units of a part; 0 if the state doesn't have it, or before part 0. */
static uint64_t units_of_part(const struct weir_algorithm_rule *rule,
                              const uint64_t *state, uint64_t part)
{
    if (part > state[0] || state[0] - part > rule->sub_windows)
        return 0;
    return state[2 + part % (rule->sub_windows + 1u)];
}

static bool parts_add_up(const struct weir_algorithm_rule *rule,
                         const uint64_t *state)
{
    uint64_t rest = state[1];
    for (unsigned i = 0; i <= rule->sub_windows; i++) {
        if (state[2 + i] > rest)
            return false;
        rest -= state[2 + i];
    }
    return rest == 0;
}

/* now / W is split off first: the rest times n fits 64 bits. */
static uint64_t part_at(const struct weir_algorithm_rule *rule,
                        weir_instant now, uint64_t *out_passed)
{
    uint64_t rest = now % rule->window * rule->sub_windows;
    *out_passed = rest % rule->window;
    return now / rule->window * rule->sub_windows + rest / rule->window;
}

/* The first instant at which part * W + passed, of n-ths of a nanosecond, is
 * reached. */
static weir_instant instant_of(const struct weir_algorithm_rule *rule,
                               uint64_t part, uint64_t passed)
{
    weir_assert(rule->sub_windows > 0);
    weir_u128 nths = (weir_u128)part * rule->window + passed;
    return (weir_instant)((nths + rule->sub_windows - 1) / rule->sub_windows);
}

static void view_at(struct view *view, const struct weir_algorithm_rule *rule,
                    const uint64_t *state, weir_instant now)
{
    *view = (struct view){ .rule = rule, .state = state };
    view->newest = part_at(rule, now, &view->passed);
    if (view->newest < state[0]) {
        view->newest = state[0];
        view->passed = 0;
    }
    uint64_t all = state[1];
    uint64_t steps = view->newest - state[0];
    if (steps > rule->sub_windows)
        all = 0;
    for (uint64_t i = 1; i <= steps && all > 0; i++)
        all -=
            units_of_part(rule, state, state[0] + i - (rule->sub_windows + 1u));
    weir_audit(all <= state[1] && view->passed < rule->window);
    view->oldest = units_of_part(rule, state, view->newest - rule->sub_windows);
    weir_audit(all >= view->oldest);
    view->whole = all - view->oldest;
}

/* The units of the oldest part that still count, rounded up. */
static uint64_t oldest_used(const struct view *view)
{
    uint64_t window = view->rule->window;
    weir_u128 part = (weir_u128)view->oldest * (window - view->passed);
    return (uint64_t)((part + window - 1) / window);
}

/* The rounded-up fraction passes exactly when the fraction itself does, because
 * it is compared with a whole number. */
static uint64_t used_in_view(const struct view *view)
{
    return view->whole + (view->oldest > 0 ? oldest_used(view) : 0);
}

static uint64_t least_passed(const struct view *view, uint64_t weight,
                             uint64_t whole, uint64_t oldest)
{
    uint64_t window = view->rule->window;
    if (!weir_quantity_passes(view->rule, whole, weight))
        return window;
    weir_audit(weight + whole <= view->rule->quantity);
    uint64_t room = view->rule->quantity - weight - whole;
    if (room >= oldest)
        return 0;
    return window - (uint64_t)((weir_u128)room * window / oldest);
}

/* The time until enough units have left the window: part by part, and within
 * the last part, the fraction of the oldest that must have left. */
static weir_duration sliding_wait(const struct view *view, uint64_t weight,
                                  weir_instant now)
{
    const struct weir_algorithm_rule *rule = view->rule;
    uint64_t part = view->newest;
    uint64_t whole = view->whole;
    uint64_t passed = least_passed(view, weight, whole, view->oldest);
    unsigned last = rule->sub_windows;
    unsigned place = (unsigned)((part + 1) % (last + 1u)); /* the oldest's */
    /* The end of a part is the beginning of the next, which is checked in turn.
     * The word of a part that is yet to come still has an older part's
     * units. */
    while (passed >= rule->window) {
        part++;
        place = place < last ? place + 1 : 0;
        bool known = part - last <= view->state[0];
        uint64_t oldest = known ? view->state[2 + place] : 0;
        weir_audit(whole >= oldest);
        whole -= oldest;
        passed = least_passed(view, weight, whole, oldest);
    }
    return instant_of(rule, part, passed) - now;
}

/* Advances the state to the view's newest part. */
static void advance_parts(const struct view *view, uint64_t *state)
{
    weir_assert(view->newest >= state[0]);
    const struct weir_algorithm_rule *rule = view->rule;
    uint64_t steps = view->newest - state[0];
    uint64_t all = rule->sub_windows + 1u;
    for (uint64_t i = 0; i < steps && i < all; i++)
        *word_of_part(rule, state, view->newest - i) = 0;
    state[0] = view->newest;
    state[1] = view->whole + view->oldest;
    weir_audit(parts_add_up(rule, state));
}

static void sliding_add(struct view *view, uint64_t *state, uint64_t units)
{
    units = weir_quantity_adds(view->rule, view->whole + view->oldest, units);
    if (units == 0)
        return;
    advance_parts(view, state);
    *word_of_part(view->rule, state, view->newest) += units;
    state[1] += units;
    view->whole += units;
    weir_audit(state[1] == view->whole + view->oldest);
    weir_audit(parts_add_up(view->rule, state));
}

/* The newest units first. */
static void sliding_refund(struct view *view, uint64_t *state, uint64_t units)
{
    const struct weir_algorithm_rule *rule = view->rule;
    if (units == 0 || view->whole + view->oldest == 0)
        return;
    advance_parts(view, state);
    uint64_t known = rule->sub_windows;
    if (view->newest < known)
        known = view->newest;
    for (uint64_t i = 0; i <= known && units > 0; i++) {
        uint64_t *part = word_of_part(rule, state, view->newest - i);
        uint64_t back = units < *part ? units : *part;
        weir_audit(state[1] >= back);
        *part -= back;
        state[1] -= back;
        units -= back;
    }
    view->oldest = units_of_part(rule, state, view->newest - rule->sub_windows);
    weir_assert(state[1] >= view->oldest);
    weir_audit(parts_add_up(rule, state));
    view->whole = state[1] - view->oldest;
}

static bool sliding_check(const struct weir_algorithm_rule *rule)
{
    return rule->quantity <= WEIR_ALGORITHM_QUANTITY_MAX &&
           rule->sub_windows > 0 && rule->sub_windows <= WEIR_SUB_WINDOWS_MAX &&
           rule->window >= rule->sub_windows &&
           rule->window <= WEIR_ALGORITHM_WINDOW_MAX;
}

static size_t sliding_size(const struct weir_algorithm_rule *rule)
{
    return (rule->sub_windows + (size_t)3) * sizeof(uint64_t);
}

static void sliding_step(const struct weir_algorithm_rule *rule,
                         uint64_t *state, const struct weir_algorithm_ask *ask,
                         struct weir_algorithm_answer *out, weir_instant now)
{
    struct view view;
    view_at(&view, rule, state, now);
    bool passed = weir_quantity_passes(rule, used_in_view(&view), ask->weight);
    if (weir_algorithm_counts(rule, ask, passed))
        sliding_add(&view, state, ask->weight);
    else if (ask->op == WEIR_ALGORITHM_REFUND)
        sliding_refund(&view, state, ask->weight);
    weir_quantity_answer(rule, ask, passed, used_in_view(&view), out);
    if (!out->passed && !out->never)
        out->retry_after = sliding_wait(&view, ask->weight, now);
}

static void sliding_charge(const struct weir_algorithm_rule *rule,
                           uint64_t *state, uint64_t units, weir_instant now)
{
    struct view view;
    view_at(&view, rule, state, now);
    sliding_add(&view, state, units);
}

/* Each part's units go to the instant at which it ended: they count as long as
 * before, or a little longer. */
static void sliding_carry(const struct weir_algorithm_rule *from,
                          const uint64_t *state,
                          const struct weir_algorithm_rule *to,
                          uint64_t *to_state, weir_instant now)
{
    struct view view;
    view_at(&view, from, state, now);
    for (uint64_t i = from->sub_windows + 1u; i-- > 0;) {
        uint64_t part = view.newest - i;
        uint64_t units = units_of_part(from, state, part);
        weir_instant end = instant_of(from, part + 1, 0) - 1;
        if (units > 0)
            sliding_charge(to, to_state, units, end < now ? end : now);
    }
}

static weir_instant sliding_idle_at(const struct weir_algorithm_rule *rule,
                                    const uint64_t *state, weir_instant now)
{
    weir_instant end = instant_of(rule, state[0] + rule->sub_windows + 1u, 0);
    return state[1] > 0 && end > now ? end : now;
}

static bool sliding_sound(const struct weir_algorithm_rule *rule,
                          const uint64_t *state, weir_instant latest)
{
    uint64_t passed;
    return state[0] <= part_at(rule, latest, &passed) &&
           weir_quantity_holds(rule, state[1]) && parts_add_up(rule, state);
}

const struct weir_algorithm_family weir_algorithm_sliding = {
    .check = sliding_check,
    .size = sliding_size,
    .sound = sliding_sound,
    .step = sliding_step,
    .charge = sliding_charge,
    .carry = sliding_carry,
    .idle_at = sliding_idle_at,
};
