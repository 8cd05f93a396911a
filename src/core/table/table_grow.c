/* SPDX-License-Identifier: MIT
 * core/table/table_grow.c - which memory of a table belongs to so many slots.
 *
 * An array is used from its start. A growth commits the range between its end
 * for the present slots and its end for the next ones. Pages
 * at both ends may be committed already; committing them again is no harm.
 *
 * 'committed' only rises, by a compare-and-swap to the larger value, after the
 * ranges were committed. The writer reads it (acquire) before it uses a slot,
 * chunk, unit or pin for the first time. Everything else is reached only
 * through those. */

#include "core/table/table_grow_internal.h"
#include "core/table/table_index.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_share.h"
#include "core/table/table_slots_internal.h"

/* Collects the parts of arrays between two numbers of slots. */
struct growth {
    const struct weir_table *shape;
    uint32_t from, to; /* slots; 'from' 0: nothing is committed yet */
    struct weir_table_range *out;
    uint32_t count;
};

static void add_range(struct growth *growth, uint64_t at, uint64_t from,
                      uint64_t to)
{
    weir_assert(from <= to);
    weir_assert(growth->count < WEIR_TABLE_RANGES_MAX);
    if (from < to)
        growth->out[growth->count++] =
            (struct weir_table_range){ at + from, to - from };
}

/* An array with elements of 'bytes' for each slot. */
static void add_slots(struct growth *growth, uint64_t at, uint64_t bytes)
{
    add_range(growth, at, growth->from * bytes, growth->to * bytes);
}

/* An array of 'elements_of' elements for so many slots. */
static void add_elements(struct growth *growth, uint64_t at, uint64_t bytes,
                         uint32_t from, uint32_t to)
{
    add_range(growth, at, growth->from > 0 ? from * bytes : 0, to * bytes);
}

static uint32_t words_of(uint32_t bits)
{
    return (bits + 63) / 64;
}

static void add_shared(struct growth *growth)
{
    const struct weir_table *t = growth->shape;
    weir_assert(t->commons > 1);
    add_elements(growth, t->pins_at, sizeof(struct pin),
                 WEIR_TABLE_PINS(growth->from), WEIR_TABLE_PINS(growth->to));
    add_slots(growth, t->pinned_at, sizeof(uint32_t));
    add_elements(growth, t->kept_at, sizeof(uint64_t),
                 words_of(weir_chunks_of(growth->from)),
                 words_of(weir_chunks_of(growth->to)));
    for (uint32_t process = 0; process < t->commons; process++)
        add_slots(growth,
                  t->in_flight_at +
                      (uint64_t)process * t->slots * sizeof(uint64_t),
                  sizeof(uint64_t));
}

static uint32_t list_ranges(const struct weir_table *t, uint32_t from,
                            uint32_t to, struct weir_table_range *out)
{
    weir_assert(from <= to && to <= t->slots);
    struct growth growth = { t, from, to, out, 0 };
    if (from == 0) {
        add_range(&growth, 0, 0, sizeof(*t));
        add_range(&growth, t->stripes_at, 0,
                  t->stripe_count * sizeof(struct weir_stripe));
        add_range(&growth, t->gate_slots_at, 0,
                  (uint64_t)t->gate_slots * t->gate_slot_bytes);
    }
    add_slots(&growth, sizeof(*t), sizeof(struct hot));
    add_slots(&growth, t->cold_at, sizeof(struct cold));
    add_slots(&growth, t->names_at, sizeof(struct name));
    add_elements(&growth, t->chunks_at, sizeof(struct chunk),
                 weir_chunks_of(from), weir_chunks_of(to));
    add_elements(&growth, t->index_at, sizeof(struct index_bucket),
                 weir_name_index_buckets(from), weir_name_index_buckets(to));
    for (unsigned which = 0; which < SLOT_BITS; which++)
        add_elements(&growth,
                     t->bits_at +
                         (uint64_t)which * t->bits_words * sizeof(uint64_t),
                     sizeof(uint64_t), words_of(from), words_of(to));
    add_slots(&growth, t->shadow_slots_at, sizeof(struct shadow_slot));
    add_slots(&growth, t->inflights_at, sizeof(struct inflight));
    add_slots(&growth, t->bucket_states_at, sizeof(struct bucket_state));
    add_elements(&growth, t->area_map_at, 1, weir_area_units_of(t, from),
                 weir_area_units_of(t, to));
    add_elements(&growth, t->area_at, AREA_UNIT, weir_area_units_of(t, from),
                 weir_area_units_of(t, to));
    add_slots(&growth, t->leased_at, sizeof(struct leased));
    add_slots(&growth, t->peeks_at, sizeof(uint32_t));
    if (t->gate_slots > 0)
        add_slots(&growth, t->gate_slot_of_at, sizeof(uint32_t));
    if (t->commons > 1)
        add_shared(&growth);
    return growth.count;
}

uint32_t weir_table_first_ranges(
    const struct weir_table_options *options,
    struct weir_table_range out[WEIR_TABLE_RANGES_MAX])
{
    struct weir_table shape;
    weir_table_lay_out(&shape, options);
    return list_ranges(&shape, 0, shape.committed, out);
}

uint32_t weir_table_growth(const struct weir_table *t, uint32_t most_more,
                           struct weir_table_range out[WEIR_TABLE_RANGES_MAX],
                           uint32_t *out_slots)
{
    uint32_t from = weir_load_relaxed(&t->committed);
    uint32_t most = weir_load_relaxed(&t->committed_max);
    if (from >= most)
        return 0;
    uint32_t more = from / 2;
    if (more < WEIR_TABLE_GROWTH_MIN)
        more = WEIR_TABLE_GROWTH_MIN;
    if (more > WEIR_TABLE_GROWTH_MAX)
        more = WEIR_TABLE_GROWTH_MAX;
    if (more > most_more)
        more = most_more;
    uint32_t to = most - from < more ? most : from + more;
    *out_slots = to;
    return list_ranges(t, from, to, out);
}

/* Whether a growth that began at 'since' goes on. */
static bool goes_on(weir_instant since, weir_instant now)
{
    return since != 0 && weir_since(since, now) < WEIR_TABLE_GROWTH_TIME;
}

bool weir_table_begin_growth(struct weir_table *t, weir_instant now)
{
    /* Relaxed, also below: it orders nothing, and two growths at once do no
     * harm. */
    weir_instant since = weir_load_relaxed(&t->growing);
    return !goes_on(since, now) && weir_cas(&t->growing, &since, now);
}

bool weir_table_is_growing(const struct weir_table *t, weir_instant now)
{
    return goes_on(weir_load_relaxed(&t->growing), now);
}

void weir_table_grown(struct weir_table *t, uint32_t slots)
{
    uint32_t before = weir_load_relaxed(&t->committed);
    weir_assert(slots <= t->slots);
    /* At once with another's growth, the larger one counts: the smaller one is
     * a part of it. Pairs with the acquire of the writer. */
    while (before < slots && !weir_cas(&t->committed, &before, slots))
        continue;
    weir_store_relaxed(&t->growing, 0);
}

void weir_table_stop_growing(struct weir_table *t)
{
    weir_store_relaxed(&t->committed_max, weir_load_relaxed(&t->committed));
    weir_store_relaxed(&t->growing, 0);
}

bool weir_table_growth_failed(const struct weir_table *t)
{
    return weir_load_relaxed(&t->committed_max) < t->slots;
}

void weir_table_resume_growing(struct weir_table *t)
{
    weir_store_relaxed(&t->committed_max, t->slots);
}

bool weir_table_is_short(const struct weir_table *t)
{
    uint32_t short_of = weir_load_relaxed(&t->short_of);
    /* A call may set short_of just after another thread's growth has failed. */
    return short_of != 0 && short_of == weir_load_relaxed(&t->committed) &&
           weir_table_can_grow(t);
}

bool weir_table_can_grow(const struct weir_table *t)
{
    return weir_load_relaxed(&t->committed) <
           weir_load_relaxed(&t->committed_max);
}

bool weir_table_wants_growth(const struct weir_table *t)
{
    uint32_t slots = weir_load_relaxed(&t->committed);
    uint32_t live = weir_load_relaxed(&t->live);
    if (!weir_table_can_grow(t))
        return false;
    return weir_table_is_short(t) || live >= slots - slots / 16;
}

uint32_t weir_table_committed(const struct weir_table *t)
{
    return weir_load_relaxed(&t->committed);
}

uint64_t weir_table_committed_bytes(const struct weir_table *t)
{
    struct weir_table_range ranges[WEIR_TABLE_RANGES_MAX];
    uint32_t count =
        list_ranges(t, 0, weir_load_relaxed(&t->committed), ranges);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += ranges[i].bytes;
    return bytes;
}
