/* SPDX-License-Identifier: MIT
 * node/limiter_limits.c - sends roots the state of adaptive limits.
 *
 * No decision depends on it: it is shown to people. So it is sent rarely, all
 * at once, and without an answer: once a second the limiter checks whether a
 * limit has moved, and if so sends all to each connected root. A lost message
 * is replaced after the next move; a root that was just met gets one at
 * once. */

#include <string.h>

#include "core/base/rng.h"
#include "core/concurrency/concurrency_gate.h"
#include "core/node/limiter_internal.h"

#define LOOK_EVERY WEIR_SECOND

/* The rows of a message lie one after the other, before their names. */
size_t weir_limiter_limits_size(uint32_t limits)
{
    size_t size = (size_t)limits *
                  (sizeof(struct weir_adaptive_limit) + WEIR_NAME_MAX + 1);
    return (size + WEIR_CACHE_LINE - 1) / WEIR_CACHE_LINE * WEIR_CACHE_LINE;
}

/* A sum that changes when any limit moves; 0 without limits. */
static uint64_t moves_of(struct weir_limiter *limiter, weir_instant now)
{
    uint64_t moves = 0;
    uint32_t cursor = 0, slot;
    struct weir_concurrency_gate_view view;
    while (weir_table_adaptive_next(limiter->table, &cursor, &slot)) {
        if (!weir_table_adaptive(limiter->table, slot, &view, now))
            continue;
        moves += weir_rng_mix(view.controller.moved_at + slot) | 1;
    }
    return moves;
}

void weir_limiter_limits_look(struct weir_limiter *limiter, weir_instant now)
{
    struct limiter_limits *limits = &limiter->limits;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        if (limiter->link[i].state != LINK_UP)
            limits->sent[i] = 0;
    }
    if (limits->capacity == 0 || now < limits->look_at)
        return;
    limits->look_at = now + LOOK_EVERY;
    limits->moves = moves_of(limiter, now);
}

weir_instant weir_limiter_limits_deadline(const struct weir_limiter *limiter)
{
    uint32_t cursor = 0, slot;
    return limiter->limits.capacity > 0 &&
                   weir_table_adaptive_next(limiter->table, &cursor, &slot)
               ? limiter->limits.look_at
               : WEIR_NEVER;
}

static bool write_limit(struct weir_limiter *limiter, uint32_t slot, char *name,
                        struct weir_adaptive_limit *out, weir_instant now)
{
    struct weir_concurrency_gate_view view;
    size_t len = weir_table_name(limiter->table, slot, name);
    if (len == 0 || !weir_table_adaptive(limiter->table, slot, &view, now))
        return false;
    const struct weir_controller_view *controller = &view.controller;
    *out = (struct weir_adaptive_limit){
        .name = { name, len },
        .limit = controller->limit,
        .in_flight = view.in_flight,
        .reason = (uint32_t)controller->reason,
        .latency = controller->latency,
        .age = weir_since(controller->moved_at, now),
    };
    return true;
}

static void write_all_limits(struct weir_limiter *limiter,
                             struct weir_limits *out, weir_instant now)
{
    const struct limiter_limits *limits = &limiter->limits;
    char *names = (char *)(limits->rows + limits->capacity);
    uint32_t cursor = 0, slot;
    size_t count = 0;
    while (count < limits->capacity &&
           weir_table_adaptive_next(limiter->table, &cursor, &slot))
        count += write_limit(limiter, slot, names + count * (WEIR_NAME_MAX + 1),
                             &limits->rows[count], now);
    *out = (struct weir_limits){ .count = count, .limits = limits->rows };
    weir_assert(count <= limits->capacity);
}

bool weir_limiter_limits_next(struct weir_limiter *limiter, uint32_t *out_link,
                              struct weir_message *out, weir_instant now)
{
    struct limiter_limits *limits = &limiter->limits;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        if (limiter->link[i].state != LINK_UP ||
            limits->sent[i] == limits->moves)
            continue;
        weir_assert(limits->capacity > 0);
        limits->sent[i] = limits->moves;
        *out_link = i;
        out->session = limiter->link[i].session;
        out->type = WEIR_MESSAGE_LIMITS;
        write_all_limits(limiter, &out->limits, now);
        return true;
    }
    return false;
}
