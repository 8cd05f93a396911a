/* SPDX-License-Identifier: MIT
 * lab/scenario.c - a scenario's memory, and its defaults.
 *
 * Everything that a scenario points to lies in its arena: a list of blocks
 * filled from the front and freed together. An array grows by being copied to
 * twice its room; the former copies take at most as much again, and live as
 * long as the scenario. The rest of the lab needn't track ownership. */

#include "lab/scenario.h"

#include "lab/memory.h"

#define BLOCK_BYTES (16u << 10)
#define ALIGNMENT 16

struct block {
    struct block *next;
    size_t used, size;
    _Alignas(ALIGNMENT) char bytes[];
};

struct weir_scenario *weir_scenario_new(const char *name)
{
    struct weir_scenario *scenario = weir_must_zeroed(1, sizeof *scenario);
    *scenario = (struct weir_scenario){
        .limiters = 1,
        .limiters_started = 1,
        .roots = 1,
        .slots = 64,
        .bin = WEIR_SECOND,
        .node = {
            .report_interval = WEIR_SECOND,
            .stale_after = 10 * WEIR_SECOND,
            .slack = true,
        },
    };
    scenario->name = weir_scenario_text(scenario, weir_text_of(name));
    return scenario;
}

void weir_scenario_free(struct weir_scenario *scenario)
{
    if (!scenario)
        return;
    struct block *block = scenario->arena;
    while (block) {
        struct block *next = block->next;
        free(block);
        block = next;
    }
    free(scenario);
}

void *weir_scenario_alloc(struct weir_scenario *scenario, size_t size)
{
    size_t room = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct block *block = scenario->arena;
    if (!block || block->size - block->used < room) {
        size_t bytes = room > BLOCK_BYTES ? room : BLOCK_BYTES;
        block = weir_must_zeroed(1, sizeof *block + bytes);
        block->next = scenario->arena;
        block->size = bytes;
        scenario->arena = block;
    }
    weir_assert(block->size - block->used >= room);
    void *out = block->bytes + block->used;
    block->used += room;
    return out;
}

char *weir_scenario_text(struct weir_scenario *scenario, struct weir_text text)
{
    char *copy = weir_scenario_alloc(scenario, text.len + 1);
    if (text.len > 0)
        memcpy(copy, text.p, text.len);
    return copy;
}

void *weir_scenario_grow(struct weir_scenario *scenario, void *array,
                         size_t count, size_t size)
{
    /* The room is the least power of two that holds the items. */
    if ((count & (count - 1)) != 0)
        return array;
    char *more =
        weir_scenario_alloc(scenario, (count > 0 ? 2 * count : 1) * size);
    if (count > 0)
        memcpy(more, array, count * size);
    return more;
}

void weir_scenario_act(struct weir_scenario *scenario,
                       const struct weir_action *action)
{
    size_t at = scenario->action_count++;
    scenario->actions =
        weir_scenario_grow(scenario, scenario->actions, at, sizeof *action);
    for (; at > 0 && scenario->actions[at - 1].at > action->at; at--)
        scenario->actions[at] = scenario->actions[at - 1];
    scenario->actions[at] = *action;
}
