/* SPDX-License-Identifier: MIT
 * algorithm/algorithm.c - dispatches each algorithm to its family.
 *
 * Eight algorithms are six families: leaky, token bucket and queue share one
 * implementation, a bucket in one word. A family is a table of seven functions;
 * checks that each of them would repeat are done here, once. */

#include "core/algorithm/algorithm_internal.h"

#include <string.h>

static const struct weir_algorithm_family *algorithm_family(
    enum weir_algorithm algorithm)
{
    switch (algorithm) {
    case WEIR_LEAKY:
    case WEIR_LEAKY_QUEUE:
    case WEIR_TOKEN_BUCKET:
        return &weir_algorithm_word;
    case WEIR_TOKEN_BUCKETS:
        return &weir_algorithm_row;
    case WEIR_FIXED_WINDOW:
        return &weir_algorithm_fixed;
    case WEIR_SLIDING_LOG:
        return &weir_algorithm_log;
    case WEIR_SLIDING_WINDOW:
        return &weir_algorithm_sliding;
    case WEIR_PERMITS:
        return &weir_algorithm_permits;
    }
    return NULL;
}

bool weir_algorithm_check(const struct weir_algorithm_rule *rule)
{
    const struct weir_algorithm_family *family =
        algorithm_family(rule->algorithm);
    return family != NULL && family->check(rule);
}

size_t weir_algorithm_size(const struct weir_algorithm_rule *rule)
{
    return algorithm_family(rule->algorithm)->size(rule);
}

bool weir_algorithm_sound(const struct weir_algorithm_rule *rule,
                          const void *state, weir_instant latest)
{
    return algorithm_family(rule->algorithm)->sound(rule, state, latest);
}

void weir_algorithm_step(const struct weir_algorithm_rule *rule, void *state,
                         const struct weir_algorithm_ask *ask,
                         struct weir_algorithm_answer *out, weir_instant now)
{
    weir_assert(ask->weight <= WEIR_WEIGHT_MAX);
    weir_audit(weir_algorithm_check(rule));
    *out = (struct weir_algorithm_answer){ 0 };
    algorithm_family(rule->algorithm)->step(rule, state, ask, out, now);
    weir_audit(out->passed == (out->retry_after == 0));
    weir_audit(!out->never || out->retry_after == WEIR_NEVER);
    weir_audit(out->wait == 0 || out->passed);
}

static bool is_zero(const uint64_t *state, size_t size)
{
    for (size_t i = 0; i < size / sizeof(*state); i++)
        if (state[i] != 0)
            return false;
    return true;
}

void weir_algorithm_carry(const struct weir_algorithm_rule *from,
                          const void *state,
                          const struct weir_algorithm_rule *to, void *to_state,
                          weir_instant now)
{
    weir_assert(state != to_state);
    weir_audit(weir_algorithm_check(from) && weir_algorithm_check(to));
    weir_audit(is_zero(to_state, weir_algorithm_size(to)));
    const struct weir_algorithm_family *family =
        algorithm_family(to->algorithm);
    size_t size = weir_algorithm_size(from);
    if (is_zero(state, size))
        return;
    /* Permits in flight say nothing about units used at a rate. */
    if (from->algorithm == WEIR_PERMITS && to->algorithm != WEIR_PERMITS)
        return;
    if (from->algorithm == to->algorithm) {
        family->carry(from, state, to, to_state, now);
        return;
    }
    struct weir_algorithm_answer at;
    const struct weir_algorithm_ask look = { .op = WEIR_ALGORITHM_PEEK };
    /* A peek writes only to a zero state, and this one isn't. */
    weir_algorithm_step(from, (void *)(uintptr_t)state, &look, &at, now);
    if (at.used > 0)
        family->charge(to, to_state, (uint64_t)at.used, now);
}

weir_instant weir_algorithm_idle_at(const struct weir_algorithm_rule *rule,
                                    const void *state, weir_instant now)
{
    if (is_zero(state, weir_algorithm_size(rule)))
        return now;
    weir_instant idle_at =
        algorithm_family(rule->algorithm)->idle_at(rule, state, now);
    weir_assert(idle_at >= now);
    return idle_at;
}
