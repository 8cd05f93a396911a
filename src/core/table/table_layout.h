/* SPDX-License-Identifier: MIT
 * table/table_layout.h - the bytes of a table; for table*.c, and for checkers
 * of a table.
 *
 *     header | hot slots | cold slots | names | chunks | index | bits  | ...
 *              64 B        48 B         32 B    16 B     32 B    2 bits
 *              a slot      a slot       a slot  a slot   a slot  a slot
 *
 *     ... stripes | shadow | in-flight | bucket | area map | area   | leased |
 *                   slots    counters    states
 *                   16 B     32 B        16 B     1 B        64 B     64 B
 *                   a slot   a slot      a slot   a unit     a unit   a slot
 *
 *     ... peeks | which slot has which gate slot | gate slots  | ...
 *         4 B     4 B a slot                       24 KiB each
 *         a slot
 *
 *     ... pins   | pinned | kept    | in flight       (of a shared table only)
 *         16 B     4 B      1 bit     8 B
 *         a pin    a slot   a chunk   a slot and process
 *
 * Only the memory of 'committed' slots can be touched (table_grow.h). Pages of
 * it stay untouched before they are needed: of shadow slots before there is a
 * shadow set, of bucket states and area before a quota with a bucket state, of
 * leased and peeks before a leased quota, of gate slots and their map before an
 * adaptive quota. Pages of in-flight counters are read, but not written before
 * there is a quota of kind concurrency.
 *
 * One hot line decides. A take reads the lines of its chain, and writes only
 * 'count' (and 'base' when the bucket was empty):
 *
 *     in   = (count << frac) + base            both modulo
 *     fill = in - leaked(now - origin)         signed, 63 bits
 *
 * Writers of each field:
 *     count                takes add, refunds subtract; never set
 *     base                 the lift (CAS, when fill < 0), the sync (store)
 *     stop, report_within  the sync; weir_slot_touch(), called by a take, moves
 *                          'report_within'
 *     part, band, high, …  the writer (lock), by the switch (table_switch.c)
 *     up                   the writer: the parent; the grandparent is only a
 *                          hint for prefetching, mended by a take that sees it
 *                          wrong
 *     generation           the writer: odd while the slot lives */

#ifndef WEIR_TABLE_LAYOUT_H
#define WEIR_TABLE_LAYOUT_H

#include <assert.h>

#include "core/base/atomic.h"
#include "core/table/table_sync.h"

#define WEIR_TABLE_MAGIC 0x5745495254424c31ull /* "WEIRTBL1" */
#define WEIR_TABLE_LAYOUT 12

/* A 32-bit float format for distances that may be rounded: 26 bits of mantissa,
 * 6 of exponent; decodes in two operations. */
typedef uint32_t weir_mini;
#define WEIR_MINI_FAR (((weir_mini)0x3ffffff << 6) | 36) /* ~2^62 */

/* meta: bits that change together with a slot's parameters. */
#define META_OFF 0x01u    /* mode off, or a placeholder: link is ignored */
#define META_SHADOW 0x02u /* decides, never refuses */
#define META_PASS 0x04u   /* stale: passes and counts */
#define META_LIMIT 0x08u  /* stale: refuses */
#define META_HOLD 0x10u   /* stale: refuses with probability cold.hold */
#define META_BUCKET_STATE 0x20u /* such a state decides (link_state.c) */
#define META_AWAY 0x40u         /* a store decides, not this table alone */
#define META_INFLIGHT 0x80u     /* counts units in flight (link_inflight.c) */
#define META_ADAPTIVE 0x100u    /* META_INFLIGHT with a gate (table_gate.c) */
#define META_STALE (META_PASS | META_LIMIT | META_HOLD)
#define META_FLAGS 0x1ffu
#define META_WHOLE_SHIFT 9 /* 8 bits: leak.whole */
#define META_FRAC_SHIFT 17 /* 5 bits: leak.frac */
#define META_SEQ_SHIFT 22  /* 10 bits: the sequence */
#define META_SEQ_ONE (1u << META_SEQ_SHIFT)

static inline struct weir_leak weir_meta_leak(uint32_t meta, uint64_t part)
{
    return (struct weir_leak){
        .part = part,
        .whole = (uint8_t)(meta >> META_WHOLE_SHIFT),
        .frac = (uint8_t)((meta >> META_FRAC_SHIFT) & 31),
    };
}

struct hot {
    uint64_t count;
    uint64_t base;           /* scaled << 1 | parameters in the spare */
    uint64_t part;           /* leak.part */
    int64_t high;            /* scaled */
    uint64_t stop;           /* refuse at this count */
    uint64_t up;             /* slots: parent | grandparent << 32 */
    weir_mini band;          /* high - low, scaled */
    weir_mini report_within; /* notify the sync this far before 'stop' */
    uint32_t generation;     /* odd while the slot lives */
    uint32_t meta;
};
static_assert(sizeof(struct hot) == WEIR_CACHE_LINE, "one line a slot");

struct cold {
    uint64_t created;
    uint64_t refused;   /* units, without those still in stripes; atomic */
    uint64_t settled;   /* sync: acknowledged by every root up to here */
    uint64_t report_at; /* the sync writes, takes read */
    uint32_t rule;      /* instance: its template; template: its overflow */
    uint32_t aux;       /* template: chunks of its parent's pattern;
                         * free slot: the next free one */
    uint32_t refs;      /* children and pins; under the writer lock */
    uint8_t state;      /* enum weir_slot_state; released when complete */
    uint8_t traits;     /* below; written under the writer lock, atomic */
    uint8_t aux_len;    /* template: bytes of the pattern; instance of a long
                      * name: 1: its parent is found anew (table_rule.c);
                      * atomic */
    uint8_t hold;       /* probability of refusal last received, 1/255 */
};
static_assert(sizeof(struct cold) == 48, "three quarters of a line a slot");

#define NAME_HEAD 27
#define CHUNK_BYTES 28
#define CHUNK_NONE UINT32_MAX
struct name {
    uint32_t more; /* chunk */
    uint8_t len;
    char head[NAME_HEAD];
};
static_assert(sizeof(struct name) == 32, "half a line a name");
struct chunk {
    uint32_t next;
    char bytes[CHUNK_BYTES];
};
static_assert(sizeof(struct chunk) == 32, "");

#define BUCKET_ENTRIES 8
struct index_bucket {
    uint64_t entry[BUCKET_ENTRIES]; /* tag << 32 | slot + 1; 0: empty */
};
static_assert(sizeof(struct index_bucket) == WEIR_CACHE_LINE, "");

#define SLOT_BITS 2 /* a slot; table_read.h */

#define STRIPE_ENTRIES 256
struct refusal {     /* written by the stripe's owner only */
    uint32_t slot;   /* WEIR_SLOT_NONE: empty */
    uint32_t events; /* refusals ever, of all slots; wraps */
    uint64_t units;  /* refused for 'slot' */
};
/* The live set and the shadow set draw from separate streams, so that neither
 * changes the other's decisions. */
enum set { LIVE, SHADOW };
struct chance {
    struct weir_rng rng;
    uint64_t run; /* of draws: its position and its order */
};
struct weir_stripe {
    uint32_t owned;          /* 0, or the owner's number + 1; atomic */
    uint32_t used;           /* ever owned; atomic */
    struct chance chance[2]; /* by enum set */
    uint64_t unknown;
    uint64_t overflowed;
    uint64_t contended;
    struct refusal refusals[STRIPE_ENTRIES];
    uint32_t seen[STRIPE_ENTRIES]; /* the sync's: 'events' at its last read */
};
static_assert(sizeof(struct weir_stripe) % WEIR_CACHE_LINE == 0, "");

/* A live slot's shadow slot. */
struct shadow_slot {
    uint64_t ref;     /* slot | generation << 32; WEIR_SLOT_NONE: none */
    uint32_t version; /* of the shadow set when it was found; 0: never */
    /* Recent requests that the live set let through: how many passed the shadow
     * set and how many did not, which is the probability of applying a refund
     * there. Both are halved when one is full. */
    uint16_t passed, refused;
};
static_assert(sizeof(struct shadow_slot) == 16, "");

/* Units in flight by a slot's name (link_inflight.c). No edit writes
 * 'in_flight': it is the sum of the permits, also after the quota was changed
 * or removed. */
struct inflight {
    uint64_t in_flight; /* units in flight here; atomic */
    uint64_t others;    /* units of other processes; the sync's, atomic */
    uint32_t lanes;     /* bits: lanes with a waiter; atomic */
    uint32_t queue;     /* a quota's queue_max << 2 | queue; 0: it has none;
                       * written under the writer lock, atomic */
    uint64_t awaited;   /* units that waiters want; atomic */
};
static_assert(sizeof(struct inflight) == 32, "an enter's fields on one line");

/* The bucket state of a slot; all zero: it has none. */
struct bucket_state {
    uint32_t lock;   /* table_lock.c */
    uint32_t serial; /* of the bucket state */
    uint64_t where;  /* unit of the rule + 1, of the state + 1 << 32 */
};
static_assert(sizeof(struct bucket_state) == 16, "");

/* Of a slot that is leased, or was until just now (table_lease.c). */
struct leased {
    uint32_t state;     /* enum weir_leasing; atomic */
    uint32_t wanted_by; /* the slot's life that 'wanted' belongs to; atomic */
    uint64_t granted;   /* units a second, a double's bits; INFINITY: all pass;
                       * atomic */
    struct weir_bucket whole; /* of the whole quota */
    uint64_t wanted;          /* set by a caller: a double's bits; atomic */
    int64_t priority;         /* of the quota's wants; of templates too */
};
static_assert(sizeof(struct leased) == WEIR_CACHE_LINE, "a line a slot");

#define AREA_UNIT 64          /* bytes */
#define AREA_ORDERS 12        /* blocks of AREA_UNIT << 0 .. 11 */
#define AREA_LEAST (64 << 10) /* bytes, by default */
#define AREA_NONE UINT32_MAX

/* A zone that a quota names, and its last known offset: a new rule begins with
 * that. */
struct zone {
    int32_t utc_offset_s;
    uint8_t len;
    char name[WEIR_TZ_MAX];
};
#define ZONES_KNOWN 16

/* How often a process has pinned a slot. */
struct pin {
    uint32_t slot;
    uint32_t next; /* of the slot's pins, or of the free ones; index + 1 */
    uint32_t process;
    uint32_t count; /* 0: free */
};
static_assert(sizeof(struct pin) == 16, "");

struct template_entry {
    uint32_t order;
    uint32_t slot : 24;
    uint32_t path : 1; /* WEIR_GLOB_PATH */
};
static_assert(WEIR_SLOTS_MAX <= 1u << 24, "a slot's number fits");

struct weir_table {
    uint64_t magic; /* stored last */
    uint32_t layout;
    uint32_t slots;
    uint64_t bytes; /* of the whole layout */
    uint64_t seed;
    weir_instant origin;
    uint64_t index_shape; /* buckets | mask << 32 (table_index.c); atomic */
    uint32_t stripe_count;
    uint32_t shadows;        /* quotas and templates of the shadow set */
    uint32_t shadow_version; /* 0: there never was one */
    /* Offsets from the table's first byte. */
    uint64_t cold_at, names_at, chunks_at, index_at, bits_at, stripes_at,
        shadow_slots_at, inflights_at, bucket_states_at, area_map_at, area_at,
        leased_at, peeks_at, gate_slot_of_at, gate_slots_at;
    /* Of a table that processes share; else 0. */
    uint64_t pins_at, pinned_at, kept_at, in_flight_at;
    uint32_t commons; /* shared stripes: one per process */
    uint32_t pin_count;
    uint32_t chunk_count;
    uint32_t bits_words;
    uint32_t area_units;
    uint32_t rules_made;        /* rules of bucket states made so far;
                                 * atomic */
    uint32_t leased;            /* there was a leased quota; atomic */
    uint32_t reported;          /* to roots, which send fills; atomic */
    uint32_t gate_slots;        /* gate slots in all */
    uint32_t gate_slots_used;   /* gate slots ever used; atomic */
    uint32_t gate_slots_wanted; /* slots with GATE_SLOT_WANTED; atomic */
    uint32_t gate_slot_bytes;
    uint32_t fleet;   /* processes by which a fleet's bounds are divided */
    uint64_t wall;    /* added to 'now' for calendar windows */
    uint64_t aligned; /* the same for other windows: the first value */

    /* Rarely written; on a separate line. */
    _Alignas(WEIR_CACHE_LINE) uint32_t writer; /* table_lock.c */
    uint32_t released; /* moves when a lock that is awaited is released */
    uint32_t wake;     /* … and no thread was woken yet; atomic */
    uint32_t used;     /* slots ever used */
    uint32_t live;
    uint32_t committed, committed_max, short_of, lacking; /* atomic */
    uint64_t passes_on_full; /* bits: processes; atomic */
    weir_instant growing; /* memory is committed since; 0: it isn't; atomic */
    uint32_t free_head;   /* list through cold.aux */
    uint32_t chunk_head;  /* list through chunk.next */
    uint32_t chunk_used;  /* chunks ever used */
    uint32_t hand;        /* of the sweep */
    uint32_t stale;
    uint32_t hold_paused; /* fills don't move cold.hold */
    uint32_t template_count;
    uint32_t template_version; /* rises with each edit of the list, odd
                                * meanwhile; atomic */
    uint32_t unruled; /* the sync's: instances have to follow the templates */
    weir_instant barren_till; /* until then no search for room: one failed */
    weir_instant full_till;   /* nor by a put: one visited all slots */
    uint32_t spare_slot;      /* the slot of the parameters in the spare */
    uint64_t spare_part;
    int64_t spare_high;
    weir_mini spare_band;
    uint32_t spare_meta;
    uint32_t spare_seq;
    uint32_t shadow_short; /* a shadow instance found no room; atomic */
    uint32_t area_used;    /* units ever used */
    uint32_t pin_used;     /* pins ever used */
    uint32_t pin_free;     /* list through pin.next; index + 1 */
    uint32_t zone_count;
    struct zone zones[ZONES_KNOWN];
    uint32_t area_free[AREA_ORDERS]; /* first free block + 1 of each order */

    _Alignas(WEIR_CACHE_LINE) uint32_t urgent; /* written by takes */
    uint32_t reporting; /* a report of all changes is scheduled; atomic */

    _Alignas(
        WEIR_CACHE_LINE) struct template_entry templates[WEIR_TEMPLATES_MAX];
};

static_assert(sizeof(struct weir_table) % WEIR_CACHE_LINE == 0,
              "the hot slots follow it");

static inline void *weir_table_at(const struct weir_table *t, uint64_t at)
{
    return (char *)(uintptr_t)t + at;
}
static inline struct hot *weir_hot(const struct weir_table *t, uint32_t slot)
{
    return (struct hot *)weir_table_at(t, sizeof(*t)) + slot;
}
/* Whether the slot is still in the ref's life. */
static inline bool weir_ref_is_live(const struct weir_table *t,
                                    struct weir_ref ref)
{
    return weir_load(&weir_hot(t, ref.slot)->generation) == ref.generation;
}
static inline struct cold *weir_cold(const struct weir_table *t, uint32_t slot)
{
    return (struct cold *)weir_table_at(t, t->cold_at) + slot;
}
static inline struct name *weir_name(const struct weir_table *t, uint32_t slot)
{
    return (struct name *)weir_table_at(t, t->names_at) + slot;
}
static inline struct chunk *weir_chunk(const struct weir_table *t,
                                       uint32_t index)
{
    return (struct chunk *)weir_table_at(t, t->chunks_at) + index;
}
static inline struct index_bucket *weir_index(const struct weir_table *t,
                                              uint32_t bucket)
{
    return (struct index_bucket *)weir_table_at(t, t->index_at) + bucket;
}
static inline struct weir_stripe *weir_stripe(const struct weir_table *t,
                                              uint32_t stripe)
{
    return (struct weir_stripe *)weir_table_at(t, t->stripes_at) + stripe;
}
static inline struct shadow_slot *weir_shadow_slot(const struct weir_table *t,
                                                   uint32_t slot)
{
    return (struct shadow_slot *)weir_table_at(t, t->shadow_slots_at) + slot;
}

static inline struct inflight *weir_inflight(const struct weir_table *t,
                                             uint32_t slot)
{
    return (struct inflight *)weir_table_at(t, t->inflights_at) + slot;
}
static inline struct bucket_state *weir_bucket_state(const struct weir_table *t,
                                                     uint32_t slot)
{
    return (struct bucket_state *)weir_table_at(t, t->bucket_states_at) + slot;
}
static inline struct leased *weir_leased(const struct weir_table *t,
                                         uint32_t slot)
{
    return (struct leased *)weir_table_at(t, t->leased_at) + slot;
}
static inline void *weir_area(const struct weir_table *t, uint32_t unit)
{
    return weir_table_at(t, t->area_at + (uint64_t)unit * AREA_UNIT);
}

#define UP_NONE UINT64_MAX
static inline uint64_t weir_up_of(uint32_t parent, uint32_t grandparent)
{
    return parent | (uint64_t)grandparent << 32;
}
static inline uint32_t weir_parent(const struct hot *hot)
{
    return (uint32_t)weir_load_relaxed(&hot->up);
}

static inline uint64_t weir_elapsed(const struct weir_table *t,
                                    weir_instant now)
{
    return now > t->origin ? now - t->origin : 0;
}

#endif /* WEIR_TABLE_LAYOUT_H */
