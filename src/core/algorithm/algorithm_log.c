/* SPDX-License-Identifier: MIT
 * algorithm/algorithm_log.c - the sliding log: each counted request with its
 * instant.
 *
 *     word 0   index of the first entry, low half; number of entries, high half
 *     word 1   units in all entries
 *     then a ring of entries { instant, units }, the oldest first
 *
 * An entry counts at 'now' if now - instant < window. Older entries are dropped
 * when a request is counted; a peek skips them. A full log refuses. A charge
 * can't be refused: it joins the newest entry and sets that entry's instant to
 * its own. Units then count longer than they should, never shorter. While the
 * clock is before the newest entry, it stands still there.
 *
 * Rejected: joining whenever the log is full. A full log would never refuse,
 * but under a steady stream all units end up in one entry that is always
 * new. */

#include "core/algorithm/algorithm_internal.h"

struct log {
    const struct weir_algorithm_rule *rule;
    uint64_t *state;
    uint32_t first;  /* the oldest entry that counts */
    uint32_t count;  /* entries that count */
    uint64_t used;   /* their units */
    weir_instant at; /* now, or the newest entry's instant if that is later */
};

/* The i-th entry that counts: two words. */
static uint64_t *log_entry(const struct log *log, uint32_t i)
{
    uint32_t place =
        (uint32_t)(((uint64_t)log->first + i) % log->rule->entries);
    return log->state + 2 + 2 * (size_t)place;
}

static void log_read(struct log *log, const struct weir_algorithm_rule *rule,
                     uint64_t *state, weir_instant now)
{
    *log = (struct log){
        .rule = rule,
        .state = state,
        .first = (uint32_t)state[0],
        .count = (uint32_t)(state[0] >> 32),
        .used = state[1],
        .at = now,
    };
    weir_assert(log->count <= rule->entries);
    weir_audit(log->first < rule->entries);
    if (log->count > 0 && log_entry(log, log->count - 1)[0] > now)
        log->at = log_entry(log, log->count - 1)[0];
    while (log->count > 0 && log->at - log_entry(log, 0)[0] >= rule->window) {
        weir_audit(log->used >= log_entry(log, 0)[1]);
        log->used -= log_entry(log, 0)[1];
        log->first = (log->first + 1) % rule->entries;
        log->count--;
    }
    weir_audit(log->count > 0 || log->used == 0);
}

static void log_write(const struct log *log)
{
    weir_assert(log->count <= log->rule->entries);
    weir_audit((log->count == 0) == (log->used == 0));
    log->state[0] = (uint64_t)log->count << 32 | log->first;
    log->state[1] = log->used;
}

static bool has_free_entry(const struct log *log)
{
    return log->count < log->rule->entries;
}

static void log_add(struct log *log, uint64_t units)
{
    units = weir_quantity_adds(log->rule, log->used, units);
    if (units == 0)
        return;
    if (has_free_entry(log)) {
        log_entry(log, log->count)[1] = 0;
        log->count++;
    }
    uint64_t *newest = log_entry(log, log->count - 1);
    weir_assert(log->count > 0);
    weir_audit(newest[1] == 0 || newest[0] <= log->at);
    newest[0] = log->at;
    newest[1] += units;
    log->used += units;
    weir_audit(newest[1] <= log->used);
    weir_audit(weir_quantity_holds(log->rule, log->used));
    log_write(log);
}

/* The newest units first. */
static void log_refund(struct log *log, uint64_t units)
{
    if (units == 0 || log->count == 0)
        return;
    while (units > 0 && log->count > 0) {
        uint64_t *newest = log_entry(log, log->count - 1);
        uint64_t back = units < newest[1] ? units : newest[1];
        weir_audit(log->used >= back);
        newest[1] -= back;
        log->used -= back;
        units -= back;
        if (newest[1] == 0)
            log->count--;
    }
    log_write(log);
}

/* The time until enough units have left the window. */
static weir_duration log_wait(const struct log *log, uint64_t weight,
                              weir_instant now)
{
    uint64_t used = log->used;
    uint32_t i = 0;
    bool place = weight == 0 || has_free_entry(log);
    while (i < log->count &&
           !(place && weir_quantity_passes(log->rule, used, weight))) {
        weir_audit(used >= log_entry(log, i)[1]);
        used -= log_entry(log, i)[1];
        place = true;
        i++;
    }
    weir_assert(i > 0);
    return log_entry(log, i - 1)[0] + log->rule->window - now;
}

static bool log_check(const struct weir_algorithm_rule *rule)
{
    return rule->quantity <= WEIR_ALGORITHM_QUANTITY_MAX && rule->window > 0 &&
           rule->window <= WEIR_ALGORITHM_WINDOW_MAX && rule->entries > 0 &&
           rule->entries <= WEIR_ENTRIES_MAX;
}

static size_t log_size(const struct weir_algorithm_rule *rule)
{
    return 16 * ((size_t)rule->entries + 1);
}

static void log_step(const struct weir_algorithm_rule *rule, uint64_t *state,
                     const struct weir_algorithm_ask *ask,
                     struct weir_algorithm_answer *out, weir_instant now)
{
    struct log log;
    log_read(&log, rule, state, now);
    bool passed = weir_quantity_passes(rule, log.used, ask->weight) &&
                  (ask->weight == 0 || has_free_entry(&log));
    if (weir_algorithm_counts(rule, ask, passed))
        log_add(&log, ask->weight);
    else if (ask->op == WEIR_ALGORITHM_REFUND)
        log_refund(&log, ask->weight);
    weir_quantity_answer(rule, ask, passed, log.used, out);
    if (!has_free_entry(&log))
        out->remaining = 0;
    if (!out->passed && !out->never)
        out->retry_after = log_wait(&log, ask->weight, now);
}

static void log_charge(const struct weir_algorithm_rule *rule, uint64_t *state,
                       uint64_t units, weir_instant now)
{
    struct log log;
    log_read(&log, rule, state, now);
    log_add(&log, units);
}

/* Replays the entries into the other log. */
static void log_carry(const struct weir_algorithm_rule *from,
                      const uint64_t *state,
                      const struct weir_algorithm_rule *to, uint64_t *to_state,
                      weir_instant now)
{
    struct log log;
    log_read(&log, from, (uint64_t *)(uintptr_t)state, now);
    for (uint32_t i = 0; i < log.count; i++)
        log_charge(to, to_state, log_entry(&log, i)[1], log_entry(&log, i)[0]);
}

static weir_instant log_idle_at(const struct weir_algorithm_rule *rule,
                                const uint64_t *state, weir_instant now)
{
    struct log log;
    log_read(&log, rule, (uint64_t *)(uintptr_t)state, now);
    if (log.count == 0)
        return now;
    return log_entry(&log, log.count - 1)[0] + rule->window;
}

static bool log_sound(const struct weir_algorithm_rule *rule,
                      const uint64_t *state, weir_instant latest)
{
    uint64_t first = (uint32_t)state[0];
    uint64_t count = state[0] >> 32;
    uint64_t rest = state[1];
    if (first >= rule->entries || count > rule->entries ||
        !weir_quantity_holds(rule, rest))
        return false;
    weir_instant before = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t *entry = state + 2 + 2 * ((first + i) % rule->entries);
        if (entry[0] < before || entry[0] > latest || entry[1] == 0 ||
            entry[1] > rest)
            return false;
        before = entry[0];
        rest -= entry[1];
    }
    return rest == 0;
}

const struct weir_algorithm_family weir_algorithm_log = {
    .check = log_check,
    .size = log_size,
    .sound = log_sound,
    .step = log_step,
    .charge = log_charge,
    .carry = log_carry,
    .idle_at = log_idle_at,
};
