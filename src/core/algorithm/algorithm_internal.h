/* SPDX-License-Identifier: MIT
 * algorithm/algorithm_internal.h - shared by the families of algorithms. */

#ifndef WEIR_ALGORITHM_INTERNAL_H
#define WEIR_ALGORITHM_INTERNAL_H

#include "core/algorithm/algorithm.h"
#include "core/algorithm/bucket.h"

/* A family of algorithms: implements algorithm.h, for a sound rule. 'state'
 * has the words that size() counts. */
struct weir_algorithm_family {
    bool (*check)(const struct weir_algorithm_rule *rule);
    size_t (*size)(const struct weir_algorithm_rule *rule);
    bool (*sound)(const struct weir_algorithm_rule *rule, const uint64_t *state,
                  weir_instant latest);
    void (*step)(const struct weir_algorithm_rule *rule, uint64_t *state,
                 const struct weir_algorithm_ask *ask,
                 struct weir_algorithm_answer *out, weir_instant now);
    /* Adds any number of units to any state; saturates. */
    void (*charge)(const struct weir_algorithm_rule *rule, uint64_t *state,
                   uint64_t units, weir_instant now);
    /* weir_algorithm_carry() for two rules of the same algorithm. 'state' isn't
     * zero; 'to_state' is. */
    void (*carry)(const struct weir_algorithm_rule *from, const uint64_t *state,
                  const struct weir_algorithm_rule *to, uint64_t *to_state,
                  weir_instant now);
    weir_instant (*idle_at)(const struct weir_algorithm_rule *rule,
                            const uint64_t *state, weir_instant now);
};

extern const struct weir_algorithm_family weir_algorithm_word; /* one bucket */
extern const struct weir_algorithm_family weir_algorithm_row;  /* two to four */
extern const struct weir_algorithm_family weir_algorithm_fixed;
extern const struct weir_algorithm_family weir_algorithm_log;
extern const struct weir_algorithm_family weir_algorithm_sliding;
extern const struct weir_algorithm_family weir_algorithm_permits;

/* ---- Windows and the log ---- */

/* Whether 'weight' more units pass beside 'used'. */
static inline bool weir_quantity_passes(const struct weir_algorithm_rule *rule,
                                        uint64_t used, uint64_t weight)
{
    uint64_t quantity = rule->quantity;
    return quantity > 0 && weight <= quantity && used <= quantity - weight;
}

/* Whether this request's weight is counted. */
static inline bool weir_algorithm_counts(const struct weir_algorithm_rule *rule,
                                         const struct weir_algorithm_ask *ask,
                                         bool passed)
{
    if (ask->op == WEIR_ALGORITHM_CHARGE)
        return true;
    if (ask->op == WEIR_ALGORITHM_PEEK || ask->op == WEIR_ALGORITHM_REFUND)
        return false;
    return passed || rule->count_limited;
}

/* Whether a window can hold this many units: charges saturate there. */
static inline bool weir_quantity_holds(const struct weir_algorithm_rule *rule,
                                       uint64_t units)
{
    return units <= rule->quantity + WEIR_DEBT_MAX;
}

/* The part of 'units' that can be added to 'used' before it saturates. */
static inline uint64_t weir_quantity_adds(
    const struct weir_algorithm_rule *rule, uint64_t used, uint64_t units)
{
    uint64_t top = rule->quantity + WEIR_DEBT_MAX;
    if (used >= top)
        return 0;
    return units < top - used ? units : top - used;
}

/* Fills the answer for a state with 'used' units in it now. The caller sets
 * 'retry_after' if the request didn't pass and 'never' is false. */
static inline void weir_quantity_answer(const struct weir_algorithm_rule *rule,
                                        const struct weir_algorithm_ask *ask,
                                        bool passed, uint64_t used,
                                        struct weir_algorithm_answer *out)
{
    uint64_t quantity = rule->quantity;
    bool asked =
        ask->op != WEIR_ALGORITHM_CHARGE && ask->op != WEIR_ALGORITHM_REFUND;
    out->passed = passed || !asked;
    out->never = !out->passed && (quantity == 0 || ask->weight > quantity);
    out->used = (int64_t)used;
    out->remaining = used < quantity ? quantity - used : 0;
    out->retry_after = out->never ? WEIR_NEVER : 0;
}

/* ---- Windows of the calendar, in nanoseconds of local time since 1970 ---- */

/* The offset of local time from UTC, in ns, as windows of this calendar use
 * it. */
int64_t weir_calendar_offset(enum weir_calendar calendar, int32_t utc_offset_s);

/* The number of the window that contains 'local'; consecutive, 0 for the one
 * that contains 1970-01-01 00:00. */
int64_t weir_calendar_index(enum weir_calendar calendar, int64_t local);
/* The beginning of that window. */
int64_t weir_calendar_start(enum weir_calendar calendar, int64_t index);

#endif /* WEIR_ALGORITHM_INTERNAL_H */
