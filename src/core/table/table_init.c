/* SPDX-License-Identifier: MIT
 * core/table/table_init.c - the size of a table's block, and an empty table in
 * it. */

#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_grow_internal.h"
#include "core/table/table_index.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_share.h"
#include "core/table/table_slots_internal.h"

static bool options_valid(const struct weir_table_options *options)
{
    return options->slots >= 1 && options->slots <= WEIR_SLOTS_MAX &&
           options->committed <= options->slots && options->stripes >= 1 &&
           options->stripes <= WEIR_STRIPES_MAX &&
           options->processes <= WEIR_TABLE_PROCESSES_MAX &&
           options->processes <= options->stripes &&
           (options->bucket_state_bytes == 0 ||
            options->bucket_state_bytes >= AREA_UNIT) &&
           options->bucket_state_bytes <= WEIR_ALGORITHM_BYTES_MAX &&
           options->gate_slots <= WEIR_GATE_SLOTS_MAX;
}

static uint32_t area_units(const struct weir_table_options *options)
{
    weir_assert(options->slots > 0);
    uint64_t bytes = options->bucket_state_bytes;
    if (bytes == 0)
        bytes =
            AREA_LEAST + (uint64_t)options->slots * WEIR_ALGORITHM_BYTES_A_SLOT;
    return (uint32_t)(bytes / AREA_UNIT);
}

/* Places the rules and bucket states. Returns their end. */
static uint64_t lay_out_bucket_states(struct weir_table *t, uint64_t at,
                                      const struct weir_table_options *options)
{
    weir_assert(at % sizeof(struct bucket_state) == 0);
    t->area_units = area_units(options);
    t->bucket_states_at = at;
    at += (uint64_t)options->slots * sizeof(struct bucket_state);
    t->area_map_at = at;
    at = weir_line_aligned(at + t->area_units);
    t->area_at = at;
    weir_assert(t->area_at % WEIR_CACHE_LINE == 0);
    return at + (uint64_t)t->area_units * AREA_UNIT;
}

static uint64_t lay_out_shared(struct weir_table *t, uint64_t at)
{
    weir_assert(t->commons > 1);
    weir_assert(at % WEIR_CACHE_LINE == 0);
    t->pin_count = WEIR_TABLE_PINS(t->slots);
    t->pins_at = at;
    at += (uint64_t)t->pin_count * sizeof(struct pin);
    t->pinned_at = at;
    at = weir_line_aligned(at + (uint64_t)t->slots * sizeof(uint32_t));
    t->kept_at = at;
    at = weir_line_aligned(at + weir_kept_words(t) * sizeof(uint64_t));
    t->in_flight_at = at;
    weir_assert(t->in_flight_at % WEIR_CACHE_LINE == 0);
    return at + (uint64_t)t->slots * t->commons * sizeof(uint64_t);
}

/* Fills the header's sizes and offsets; returns the total bytes. */
static size_t lay_out_table(struct weir_table *t,
                            const struct weir_table_options *options)
{
    uint32_t slots = options->slots;
    t->layout = WEIR_TABLE_LAYOUT;
    t->slots = slots;
    t->seed = options->seed;
    t->stripe_count = options->stripes;
    t->committed = options->committed > 0 ? options->committed : slots;
    t->committed_max = slots;
    t->chunk_count = weir_chunks_of(slots);
    t->bits_words = (slots + 63) / 64;
    t->commons = options->processes > 1 ? options->processes : 1;
    t->pins_at = t->pinned_at = t->kept_at = t->in_flight_at = 0;
    t->pin_count = 0;

    uint64_t at = sizeof(*t);
    at += (uint64_t)slots * sizeof(struct hot);
    t->cold_at = at;
    at = weir_line_aligned(at + (uint64_t)slots * sizeof(struct cold));
    t->names_at = at;
    at = weir_line_aligned(at + (uint64_t)slots * sizeof(struct name));
    t->chunks_at = at;
    at =
        weir_line_aligned(at + (uint64_t)t->chunk_count * sizeof(struct chunk));
    t->index_at = at;
    at +=
        (uint64_t)weir_name_index_buckets(slots) * sizeof(struct index_bucket);
    t->bits_at = at;
    at = weir_line_aligned(at + (uint64_t)SLOT_BITS * t->bits_words *
                                    sizeof(uint64_t));
    t->stripes_at = at;
    at += (uint64_t)options->stripes * sizeof(struct weir_stripe);
    t->shadow_slots_at = at;
    at += (uint64_t)slots * sizeof(struct shadow_slot);
    t->inflights_at = at;
    at += (uint64_t)slots * sizeof(struct inflight);
    t->leased_at = lay_out_bucket_states(t, at, options);
    at = t->leased_at + (uint64_t)slots * sizeof(struct leased);
    t->peeks_at = at;
    at = weir_line_aligned(at + (uint64_t)slots * sizeof(uint32_t));
    at = weir_gate_slots_lay_out(t, at, options->gate_slots);
    return t->commons > 1 ? lay_out_shared(t, at) : at;
}

void weir_table_lay_out(struct weir_table *shape,
                        const struct weir_table_options *options)
{
    weir_assert(options_valid(options));
    *shape = (struct weir_table){ .bytes = 0 };
    shape->bytes = lay_out_table(shape, options);
}

size_t weir_table_size(const struct weir_table_options *options)
{
    if (!options_valid(options))
        return 0;
    struct weir_table shape;
    return lay_out_table(&shape, options);
}

static void chance_init(struct chance *chance, uint64_t seed)
{
    chance->rng.state = weir_rng_mix(seed);
    /* A random place, at the start of a run: otherwise the first request in a
     * band would be refused in every process. */
    chance->run = weir_rng_mix(chance->rng.state) & ~(uint64_t)15;
    weir_assert(chance->run % 16 == 0);
}

struct weir_table *weir_table_init(void *block,
                                   const struct weir_table_options *options,
                                   weir_instant now)
{
    weir_assert(options_valid(options));
    weir_assert((uintptr_t)block % WEIR_CACHE_LINE == 0);
    struct weir_table *t = block;
    weir_assert(t->magic == 0 && t->used == 0);
    t->bytes = lay_out_table(t, options);
    weir_name_index_init(t);
    t->origin = now;
    t->free_head = WEIR_SLOT_NONE;
    t->chunk_head = CHUNK_NONE;
    t->spare_slot = WEIR_SLOT_NONE;
    for (uint32_t i = 0; i < t->stripe_count; i++) {
        struct weir_stripe *stripe = weir_stripe(t, i);
        chance_init(&stripe->chance[LIVE], options->seed + i);
        chance_init(&stripe->chance[SHADOW], ~options->seed - i);
        for (uint32_t k = 0; k < STRIPE_ENTRIES; k++)
            stripe->refusals[k].slot = WEIR_SLOT_NONE;
    }
    /* release: a reader that sees the magic sees the rest. */
    weir_store_release(&t->magic, WEIR_TABLE_MAGIC);
    return t;
}

void weir_table_shape(const struct weir_table *t,
                      struct weir_table_options *out)
{
    *out = (struct weir_table_options){
        .slots = t->slots,
        .committed = weir_load_relaxed(&t->committed),
        .stripes = t->stripe_count,
        .processes = t->commons,
        .seed = t->seed,
        .bucket_state_bytes = (uint64_t)t->area_units * AREA_UNIT,
    };
}
