/* SPDX-License-Identifier: MIT
 * lab/storage.c - storages that get slow; see storage.h.
 *
 * "Recent" keeps the instants of the last second's arrivals in a ring that
 * doubles. Its latency is fixed on arrival, as in the article's simulator:
 * later requests don't slow down earlier ones. So it responds to the rate of
 * admitted requests, one second late, and not to the number in flight; that
 * makes it harder to control than a pool, which responds at once. */

#include "lab/storage.h"

#include <math.h>

#include "lab/memory.h"

const char *const weir_storage_kinds[] = { "recent", "pool", "flat", NULL };

struct weir_storage {
    struct weir_storage_options options;
    weir_instant *recent; /* owned; a ring, 'capacity' a power of two */
    uint64_t first, arrivals, capacity;
    uint32_t blips;
    weir_instant busy[WEIR_STORAGE_WORKERS_MAX]; /* busy until then */
};

struct weir_storage *weir_storage_new(
    const struct weir_storage_options *options)
{
    weir_assert(options->workers <= WEIR_STORAGE_WORKERS_MAX);
    struct weir_storage *storage = weir_must_zeroed(1, sizeof *storage);
    storage->options = *options;
    storage->capacity = 64;
    storage->recent = weir_must_zeroed(storage->capacity, sizeof(weir_instant));
    return storage;
}

void weir_storage_free(struct weir_storage *storage)
{
    if (!storage)
        return;
    free(storage->recent);
    free(storage);
}

static double slowness_at(const struct weir_storage *storage, weir_instant now)
{
    const struct weir_storage_options *o = &storage->options;
    if (o->slow_at == 0 || now < o->slow_at)
        return 1;
    weir_duration since = now - o->slow_at;
    if (o->slow_every > 0)
        since %= o->slow_every;
    return o->slow_for == 0 || since < o->slow_for ? o->slowness : 1;
}

static weir_instant *arrival(struct weir_storage *storage, uint64_t number)
{
    weir_assert(storage->capacity > 0);
    return &storage->recent[number & (storage->capacity - 1)];
}

static void grow_recent(struct weir_storage *storage)
{
    if (storage->arrivals - storage->first < storage->capacity)
        return;
    struct weir_storage before = *storage;
    storage->capacity *= 2;
    storage->recent = weir_must_zeroed(storage->capacity, sizeof(weir_instant));
    for (uint64_t i = before.first; i < before.arrivals; i++)
        *arrival(storage, i) = *arrival(&before, i);
    weir_assert(storage->arrivals - storage->first < storage->capacity);
    free(before.recent);
}

static double recent_latency(struct weir_storage *storage, weir_instant now)
{
    const struct weir_storage_options *o = &storage->options;
    grow_recent(storage);
    *arrival(storage, storage->arrivals++) = now;
    while (now - *arrival(storage, storage->first) >= WEIR_SECOND)
        storage->first++;
    double count = (double)(storage->arrivals - storage->first);
    weir_assert(storage->arrivals > storage->first &&
                count <= (double)storage->capacity);
    return fmax((double)o->latency * count / o->per_s, (double)o->floor);
}

/* When a worker that is free at 'at' begins: none does in a hang. */
static weir_instant after_hang(const struct weir_storage_options *o,
                               weir_instant at)
{
    bool hangs =
        o->hang_at > 0 && at >= o->hang_at && at < o->hang_at + o->hang_for;
    return hangs ? o->hang_at + o->hang_for : at;
}

static double pool_latency(struct weir_storage *storage, struct weir_rng *rng,
                           weir_instant now)
{
    const struct weir_storage_options *o = &storage->options;
    weir_instant *next = &storage->busy[0];
    for (uint32_t i = 1; i < o->workers; i++)
        if (storage->busy[i] < *next)
            next = &storage->busy[i];
    double chance = -log(1 - weir_rng_unit(rng));
    double service = (double)o->latency / 2 * (1 + chance);
    weir_instant begun = after_hang(o, *next > now ? *next : now);
    if (o->leaves_after > 0 && begun - now > o->leaves_after)
        return (double)(begun - now);
    *next = begun + (weir_duration)(service * slowness_at(storage, now));
    if (o->hang_at > 0 && begun < o->hang_at && *next >= o->hang_at)
        *next += o->hang_for;
    weir_assert(*next >= begun);
    return (double)(*next - now);
}

static double latency_of(struct weir_storage *storage, struct weir_rng *rng,
                         weir_instant now)
{
    switch (storage->options.kind) {
    case WEIR_STORAGE_RECENT:
        return recent_latency(storage, now) * slowness_at(storage, now);
    case WEIR_STORAGE_POOL:
        return pool_latency(storage, rng, now);
    case WEIR_STORAGE_FLAT:
        return (double)storage->options.latency * slowness_at(storage, now);
    }
    weir_assert(!"a storage is of one of these kinds");
}

weir_duration weir_storage_request(struct weir_storage *storage,
                                   struct weir_rng *rng, weir_instant now)
{
    const struct weir_storage_options *o = &storage->options;
    weir_duration latency = (weir_duration)latency_of(storage, rng, now);
    if (o->blip_at > 0 && now >= o->blip_at && storage->blips < o->blip_count) {
        storage->blips++;
        latency = o->blip_latency;
    }
    bool over = now >= o->hang_at + o->hang_for;
    if (o->hang_at == 0 || over || now + latency < o->hang_at ||
        o->kind == WEIR_STORAGE_POOL) /* its workers stood still themselves */
        return latency;
    weir_instant still = now > o->hang_at ? now : o->hang_at;
    return latency + (o->hang_at + o->hang_for - still);
}
