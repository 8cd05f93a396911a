/* SPDX-License-Identifier: MIT
 * lab/world.c - see world.h.
 *
 * A binary heap of pointers; each part knows its place in it. A part with a new
 * instant moves by a few steps and leaves no stale entry behind: a fleet's
 * nodes move their deadline with every message. The order is (instant, tie).
 * The tie is drawn when the instant is set, so it depends only on the seed and
 * on earlier events. */

#include "lab/world.h"

#include <math.h>

#include "lab/memory.h"

void weir_world_init(struct weir_world *world, uint64_t seed)
{
    *world = (struct weir_world){ .now = WEIR_WORLD_START,
                                  .rng = { .state = seed } };
}

void weir_world_fini(struct weir_world *world)
{
    free(world->heap);
    world->heap = NULL;
    world->count = world->capacity = 0;
}

/* ---- The heap ---- */

static bool part_is_sooner(const struct weir_part *a, const struct weir_part *b)
{
    return a->at != b->at ? a->at < b->at : a->tie < b->tie;
}

static void put_part(struct weir_world *world, size_t i, struct weir_part *part)
{
    weir_assert(i < world->count);
    world->heap[i] = part;
    part->place = i + 1;
}

static void rise_part(struct weir_world *world, size_t i,
                      struct weir_part *part)
{
    while (i > 0 && part_is_sooner(part, world->heap[(i - 1) / 2])) {
        put_part(world, i, world->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put_part(world, i, part);
}

/* Sinks from 'i' if necessary, else rises to the part's place. */
static void place_part(struct weir_world *world, size_t i,
                       struct weir_part *part)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < world->count &&
            part_is_sooner(world->heap[child + 1], world->heap[child]))
            child++;
        if (child >= world->count || !part_is_sooner(world->heap[child], part))
            break;
        put_part(world, i, world->heap[child]);
        i = child;
    }
    rise_part(world, i, part);
}

static void remove_part(struct weir_world *world, struct weir_part *part)
{
    size_t i = part->place - 1;
    weir_assert(i < world->count && world->heap[i] == part);
    part->place = 0;
    struct weir_part *last = world->heap[--world->count];
    if (last != part)
        place_part(world, i, last);
}

void weir_world_wake(struct weir_world *world, struct weir_part *part,
                     weir_instant at)
{
    if (at == WEIR_NEVER) {
        if (part->place != 0)
            remove_part(world, part);
        return;
    }
    if (at < world->now)
        at = world->now;
    if (part->place != 0 && part->at == at)
        return;
    part->at = at;
    part->tie = weir_rng_next(&world->rng);
    if (part->place != 0) {
        place_part(world, part->place - 1, part);
        return;
    }
    world->heap = weir_must_grow(world->heap, &world->capacity,
                                 world->count + 1, sizeof(struct weir_part *));
    weir_assert(world->count < world->capacity);
    rise_part(world, world->count++, part);
}

/* ---- Time ---- */

const struct weir_part *weir_world_next(const struct weir_world *world,
                                        weir_instant until)
{
    if (world->count == 0 || world->heap[0]->at > until)
        return NULL;
    return world->heap[0];
}

bool weir_world_step(struct weir_world *world, weir_instant until)
{
    if (!weir_world_next(world, until)) {
        if (world->now < until)
            world->now = until;
        return false;
    }
    struct weir_part *part = world->heap[0];
    weir_assert(part->at >= world->now);
    remove_part(world, part);
    world->now = part->at;
    world->events++;
    part->run(part, world->now);
    return true;
}

/* ---- Chance ---- */

bool weir_world_chance(struct weir_world *world, double probability)
{
    return probability > 0 && weir_rng_unit(&world->rng) < probability;
}

double weir_world_exponential(struct weir_world *world, double mean)
{
    return -mean * log(1 - weir_rng_unit(&world->rng));
}
