/* SPDX-License-Identifier: MIT
 * table/table_layout.h - the bytes of a table; for table*.c only.
 *
 *     header | hot slots | cold slots | names | chunks | index | bits | ...
 *              64 B        48 B         32 B             ~27 B   1 bit
 *              a slot      a slot       a slot           a slot  a slot
 *
 *     ... stripes | twins | gauges | meters | area map | area   | leased | ...
 *                   16 B    32 B     16 B     1 B        64 B     64 B
 *                   a slot  a slot   a slot   a unit     a unit   a slot
 *
 *     ... which slot has which basin | basins    | ...
 *         4 B a slot                   24 KiB each
 *
 *     ... pins   | pinned | kept    | holds           (of a shared table only)
 *         16 B     4 B      1 bit     8 B
 *         a pin    a slot   a chunk   a slot and process
 *
 * Pages stay untouched until they are needed: those of the shadow slots
 * ("twins") before there is a shadow set, of meters and area before there is a
 * quota with a bucket state, of leased before there is a leased quota, of gate
 * slots ("basins") and their map before there is an adaptive quota
 * (table_gate.c). Pages of in-flight counters ("gauges") are read, but not
 * written before there is a quota of kind concurrency.
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
 *     stop, early the sync; touch(), called by a take, moves 'report_within'
 *     leak, band, high, … the writer (lock), by the switch below up the
 *     writer: the parent; the grandparent is only a
 *                          hint for prefetching, mended by a take that
 *                          sees it wrong
 *     generation           the writer: odd while the slot lives
 *
 * The switch. Parameters and 'base' must change together, and a reader must
 * never wait for a writer that was killed. The lowest bit of 'base' tells where
 * the parameters are: 0: in the hot line; 1: in the table's one spare copy. The
 * writer
 *
 *     1 fills the spare          2 CAS base -> new base, bit 1
 *     3 rewrites the hot line    4 CAS base -> same base, bit 0
 *
 * A writer killed after 2 leaves a sound slot; the next writer finishes 3 and 4
 * before it uses the spare. 'meta' has a sequence that is odd during 3: a
 * reader that saw bit 0 checks that meta has not changed meanwhile.
 *
 * Notifying the sync. 'stop' is the count at which takes are refused until a
 * root answers. 'report_within' is the distance before 'stop' from which a
 * take must notify the sync. It begins as "always", so that the next take
 * marks the slot in the dirty bits. The mark moves it to report_at, so that
 * the take that crosses report_at requests an early report. One comparison in
 * the hot path serves both.
 *
 * Taking back. A walk reads, an add charges, and between the two a slot may get
 * another name. The writer moves 'generation' (or a child's 'up') before it
 * reads 'count'; a take adds to 'count' before it reads 'generation' and each
 * 'up' again. All of these are sequentially consistent: either the writer finds
 * the slot in use and leaves it, or the take finds the chain changed and
 * subtracts the units that it added.
 *
 * The index. Buckets of eight entries (tag, slot), one line each; a name lives
 * in one of two buckets. A lookup reads at most two lines, a removal clears its
 * entry: no tombstones, no moves, readers never see a gap. The first bucket is
 * taken while it has room to spare, the emptier one after that; with at most
 * 8/3 names per bucket on average, no name without a place was ever observed
 * (test_table fills 4 M). If there is one, the result is EFULL.
 *
 * The writer lock. One word in the header; held for microseconds to make an
 * instance, pin, put, drop or sweep. Decisions never take it, except a live
 * slot's first request that also goes to the shadow set.
 *
 * Bucket states, "meters" (table_bucket_state.c). If a quota's algorithm isn't
 * one word that takes add to, the quota has a state in the area, and a rule
 * there that all instances of its template share. Its slot has
 * META_BUCKET_STATE (META_AWAY: a store decides) and a bucket that never
 * refuses: 'count' then works as everywhere, and the fast path of a take
 * judges it HARD, as with any flag. The slot's entry in 'bucket_states' refers
 * to rule and state:
 *
 *     lock     held for one step's arithmetic, or by the writer while it
 *              stores another rule and state. It lies outside of the area,
 *              so that it stays a lock when rule and state are freed
 *     serial   moves when a slot without a bucket state gets one: a take
 *              that gives units back then finds that it is another one
 *     where    rule and state, in one store: a killed writer leaves the
 *              old pair or the new pair
 *
 * The area is a buddy allocator (table_area.c). After a killed writer it is
 * rebuilt from the slots' references.
 *
 * The shadow set (table_shadow.c). 'shadows' counts the quotas and templates
 * with names that begin with WEIR_SHADOW_PREFIX; takes read it on the header's
 * first line, which is written only when such a quota comes or goes. A live
 * slot's "twin" entry names its shadow slot. It is written under the lock, and
 * is valid as long as
 *
 *     the live slot lives (a new life begins without an entry),
 *     'shadow_version' is the entry's (it moves when names may be ruled by
 *         another quota than before), and
 *     the shadow slot lives (its generation is the entry's). */

#ifndef WEIR_TABLE_LAYOUT_H
#define WEIR_TABLE_LAYOUT_H

#include <assert.h>

#include "core/base/atomic.h"
#include "core/concurrency/concurrency_gate.h"
#include "core/table/table.h"

#define WEIR_TABLE_MAGIC 0x5745495254424c31ull /* "WEIRTBL1" */
#define WEIR_TABLE_LAYOUT 8

/* A 32-bit float format for distances that may be rounded: 26 bits of mantissa,
 * 6 of exponent; decodes in two operations. */
typedef uint32_t weir_mini;
#define WEIR_MINI_FAR (((weir_mini)0x3ffffff << 6) | 36) /* ~2^62 */

static inline int64_t weir_mini_get(weir_mini mini)
{
    return (int64_t)((uint64_t)(mini >> 6) << (mini & 63));
}

/* Rounds down. 'value' must not be negative. */
static inline weir_mini weir_mini_of(int64_t value)
{
    uint64_t v = (uint64_t)value;
    unsigned bits = v ? 64 - (unsigned)__builtin_clzll(v) : 0;
    unsigned shift = bits > 26 ? bits - 26 : 0;
    return (weir_mini)((v >> shift) << 6) | shift;
}

/* Rounds up. 'value' must be below 2^61. */
static inline weir_mini weir_mini_above(int64_t value)
{
    weir_mini mini = weir_mini_of(value);
    if (weir_mini_get(mini) == value)
        return mini;
    return weir_mini_of(weir_mini_get(mini) + ((int64_t)1 << (mini & 63)));
}

/* meta: bits that change together with a slot's parameters. */
#define META_OFF 0x01u    /* mode off, or a placeholder: link is ignored */
#define META_SHADOW 0x02u /* decides, never refuses */
#define META_PASS 0x04u   /* stale: passes and counts */
#define META_LIMIT 0x08u  /* stale: refuses */
#define META_HOLD 0x10u   /* stale: refuses with probability cold.hold */
#define META_BUCKET_STATE \
    0x20u                    /* a bucket state decides (table_bucket_state.c) */
#define META_AWAY 0x40u      /* a store decides, not this table alone */
#define META_INFLIGHT 0x80u  /* counts units in flight (table_permit.c) */
#define META_ADAPTIVE 0x100u /* META_INFLIGHT with a gate (table_gate.c) */
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
    uint64_t report_at; /* the sync writes, touch() reads */
    uint32_t rule;      /* instance: its template; template: its overflow */
    uint32_t aux;       /* template: chunks of its parent's pattern;
                         * free slot: the next free one */
    uint32_t refs;      /* children and pins; under the writer lock */
    uint8_t state;      /* enum weir_slot_state; released when complete */
    uint8_t sharing : 3, on_stale : 3, seen : 1, unpinned : 1;
    uint8_t aux_len; /* bytes of the pattern */
    uint8_t hold;    /* probability of refusal last received, 1/255 */
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
struct bucket {
    uint64_t entry[BUCKET_ENTRIES]; /* tag << 32 | slot + 1; 0: empty */
};
static_assert(sizeof(struct bucket) == WEIR_CACHE_LINE, "");

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
    uint64_t padding;
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

/* Units in flight by a slot's name (table_permit.c). No edit writes 'held': it
 * is the sum of the permits, also after the quota was changed or removed. */
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
    uint32_t lock;   /* 0: free */
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

/* The fields of an adaptive quota that a concurrency gate is made from; a
 * template's are for its instances. */
struct adapting {
    uint64_t percentile, min, max, fleet_min, fleet_max;
    weir_duration target, permit_timeout;
    uint32_t controller; /* enum weir_controller_kind */
    uint32_t classes_len;
    char classes[WEIR_CLASSES_TEXT_MAX];
};

/* A gate slot: a concurrency gate and the rule that it was made from. */
struct gate_slot {
    uint32_t slot;   /* owning slot + 1; 0: free; atomic */
    uint32_t serial; /* moves when it gets an owner and when it is given up;
                      * even while it is free, or while it is emptied for its
                      * slot's next life; atomic */
    uint32_t made;   /* a gate was initialized in it */
    uint32_t rule;   /* the one in force: edits write the other */
    struct adapting rules[2];
    /* numbers; 0: none; atomic */
    uint32_t klass[WEIR_CONCURRENCY_GATE_CLASSES_MAX];
    /* Untracked permits: units in flight by the slot's name since before it had
     * the gate slot. Bits 32 and above: the life of the gate that they leave
     * from; atomic. */
    uint64_t strangers;
    _Alignas(WEIR_CACHE_LINE) unsigned char gate[];
};
/* Instead of a gate slot's number: the slot wants one, and none was free. */
#define GATE_SLOT_WANTED UINT32_MAX

/* Precedes the bucket state that stands in for a store. */
struct shared {
    uint64_t limiters; /* the rule is divided by it; 0: never used */
};

/* A rule in the area: of a quota or template, and of its instances. Only 'refs'
 * and 'utc_offset_s' change; an edit makes a new rule. */
struct metering {
    uint32_t refs;          /* bucket states that use it; under the writer
                             * lock */
    int32_t utc_offset_s;   /* of its zone; atomic */
    weir_duration deadline; /* of a store */
    uint16_t store_len;     /* 0: decided here */
    uint8_t zone_len;       /* 0: UTC, or a fixed offset */
    uint8_t on_stale;       /* of a store: enum weir_on_stale */
    struct weir_algorithm_rule rule;
    char text[]; /* the store, the zone */
};

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
    uint64_t seed;
    weir_instant origin;
    uint32_t stripe_count;
    uint32_t bucket_mask;
    uint32_t shadows;        /* quotas and templates of the shadow set */
    uint32_t shadow_version; /* 0: there never was one */
    /* Offsets from the table's first byte. */
    uint64_t cold_at, names_at, chunks_at, index_at, bits_at, stripes_at,
        shadow_slots_at, inflights_at, bucket_states_at, area_map_at, area_at,
        leased_at, gate_slot_of_at, gate_slots_at;
    /* Of a table that processes share; else 0. */
    uint64_t pins_at, pinned_at, kept_at, in_flight_at;
    uint32_t commons; /* shared stripes: one per process */
    uint32_t pin_count;
    uint32_t chunk_count;
    uint32_t bits_words;
    uint32_t area_units;
    uint32_t metered;           /* rules of meters made so far; atomic */
    uint32_t leased;            /* there was a leased quota; atomic */
    uint32_t gate_slots;        /* gate slots in all */
    uint32_t gate_slots_used;   /* gate slots ever used; atomic */
    uint32_t gate_slots_wanted; /* slots with GATE_SLOT_WANTED; atomic */
    uint32_t gate_slot_bytes;
    uint32_t fleet;   /* processes by which a fleet's bounds are divided */
    uint64_t wall;    /* added to 'now' for calendar windows */
    uint64_t aligned; /* the same for other windows: the first value */

    /* Rarely written; on a separate line. */
    _Alignas(WEIR_CACHE_LINE) uint64_t writer; /* lock: 0 free */
    uint32_t used;                             /* slots ever used */
    uint32_t live;
    uint32_t free_head;  /* list through cold.aux */
    uint32_t chunk_head; /* list through chunk.next */
    uint32_t chunk_used; /* chunks ever used */
    uint32_t hand;       /* of the sweep */
    uint32_t stale;
    uint32_t hold_paused; /* fills don't move cold.hold */
    uint32_t template_count;
    weir_instant barren_till; /* until then no search for room: one failed */
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
static inline struct bucket *weir_index(const struct weir_table *t,
                                        uint32_t bucket)
{
    return (struct bucket *)weir_table_at(t, t->index_at) + bucket;
}
static inline uint64_t *weir_bits(const struct weir_table *t)
{
    return weir_table_at(t, t->bits_at);
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
static inline struct pin *weir_pin(const struct weir_table *t, uint32_t index)
{
    return (struct pin *)weir_table_at(t, t->pins_at) + index;
}
static inline uint32_t *weir_pinned(const struct weir_table *t, uint32_t slot)
{
    return (uint32_t *)weir_table_at(t, t->pinned_at) + slot;
}
/* Units of the slot that the process has in flight. */
static inline uint64_t *weir_in_flight_of(const struct weir_table *t,
                                          uint32_t process, uint32_t slot)
{
    return (uint64_t *)weir_table_at(t, t->in_flight_at) +
           (uint64_t)process * t->slots + slot;
}
/* The number of the process that owns the stripe; for the owning thread. */
static inline uint32_t weir_process_of(const struct weir_table *t,
                                       uint32_t stripe)
{
    if (stripe < t->commons)
        return stripe;
    return weir_load_relaxed(&weir_stripe(t, stripe)->owned) - 1;
}
/* A slot's gate slot: its number + 1; 0: none; or GATE_SLOT_WANTED. Atomic. */
static inline uint32_t *weir_gate_slot_of(const struct weir_table *t,
                                          uint32_t slot)
{
    return (uint32_t *)weir_table_at(t, t->gate_slot_of_at) + slot;
}
static inline struct gate_slot *weir_gate_slot(const struct weir_table *t,
                                               uint32_t gate_slot)
{
    return weir_table_at(t, t->gate_slots_at +
                                (uint64_t)gate_slot * t->gate_slot_bytes);
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

/* A consistent copy of a link's parameters and state. */
struct look {
    uint64_t base; /* as read: for the lift's CAS */
    uint64_t count;
    int64_t fill; /* may be negative */
    int64_t high;
    int64_t band;
    struct weir_leak leak;
    uint32_t flags; /* META_… */
};
void weir_slot_read_spare(const struct weir_table *t, uint32_t slot,
                          uint64_t elapsed, struct look *out);

/* For kind concurrency the fill is the units in flight, on a scale of whole
 * units. */
static inline void weir_slot_read_inflight(const struct weir_table *t,
                                           uint32_t slot, struct look *look)
{
    const struct inflight *inflight = weir_inflight(t, slot);
    /* Relaxed: an enter reads it again for its compare-and-swap. */
    look->count = weir_load_relaxed(&inflight->in_flight);
    look->fill = (int64_t)(look->count + weir_load_relaxed(&inflight->others));
}

/* 63-bit difference, sign-extended. */
static inline int64_t weir_fill_of(uint64_t count, uint64_t base,
                                   struct weir_leak leak, uint64_t elapsed)
{
    uint64_t in = (count << leak.frac) - weir_leaked(leak, elapsed);
    return (int64_t)((in << 1) + (base & ~(uint64_t)1)) >> 1;
}

static inline void weir_slot_read(const struct weir_table *t, uint32_t slot,
                                  uint64_t elapsed, struct look *out)
{
    const struct hot *hot = weir_hot(t, slot);
    for (;;) {
        /* acquire: the fields below are read after it; pairs with the
         * release of meta in the switch. */
        uint32_t meta = weir_load_acquire(&hot->meta);
        uint64_t base = weir_load_acquire(&hot->base);
        if (WEIR_UNLIKELY(base & 1)) {
            weir_slot_read_spare(t, slot, elapsed, out);
            return;
        }
        uint64_t part = weir_load_relaxed(&hot->part);
        int64_t high = weir_load_relaxed(&hot->high);
        weir_mini band = weir_load_relaxed(&hot->band);
        uint64_t count = weir_load_relaxed(&hot->count);
        weir_fence_acquire();
        if (WEIR_UNLIKELY(weir_load_relaxed(&hot->meta) != meta ||
                          (meta & META_SEQ_ONE)))
            continue;
        out->base = base;
        out->count = count;
        out->leak = weir_meta_leak(meta, part);
        out->high = high;
        out->band = weir_mini_get(band);
        out->flags = meta & META_FLAGS;
        out->fill = weir_fill_of(count, base, out->leak, elapsed);
        if (WEIR_UNLIKELY(meta & META_INFLIGHT))
            weir_slot_read_inflight(t, slot, out);
        return;
    }
}

/* ---- table.c ---- */
void weir_table_lock(struct weir_table *t); /* for the sync */
void weir_table_lock_as(struct weir_table *t, uint32_t process);
/* False: it was taken during all tries, some microseconds at least. */
bool weir_table_try_lock_as(struct weir_table *t, uint32_t process);
void weir_table_unlock(struct weir_table *t);
/* Under the lock: the slot of 'name' in any state but free, or NONE. */
uint32_t weir_slot_find(const struct weir_table *t, struct weir_text name);
/* Under the lock: takes a free slot (state MAKING) for 'name', or
 * WEIR_SLOT_NONE: no slot, no chunks or no place in the index. Only
 * weir_slot_find() finds it until it is published. */
uint32_t weir_slot_take(struct weir_table *t, struct weir_text name);
/* Begins its life: from now on any thread finds it. */
void weir_slot_publish(struct weir_table *t, uint32_t slot);
/* Ends its life, if not ended yet, and frees it. */
void weir_slot_release(struct weir_table *t, uint32_t slot);
bool weir_chunks_store(struct weir_table *t, const char *bytes, size_t len,
                       uint32_t *out_first);
void weir_chunks_load(const struct weir_table *t, uint32_t first, size_t len,
                      char *buf);
void weir_chunks_free(struct weir_table *t, uint32_t first);

/* ---- table_take.c ---- */
/* Lifts a bucket that was empty, so that its fill is not below 0. */
void weir_slot_lift(struct weir_table *t, uint32_t slot, uint64_t elapsed);
/* The slot's count is 'count' now: notifies the sync if that is near a mark.
 * Returns 0 or WEIR_OUTCOME_KICK. */
unsigned weir_slot_note(struct weir_table *t, uint32_t slot, uint64_t count);
/* Sets the slot's dirty bit. */
void weir_slot_mark(struct weir_table *t, uint32_t slot);
/* The slot and all above it. Under the writer lock. */
void weir_slot_mark_chain(struct weir_table *t, uint32_t slot);
/* The slot was pinned: marks its shadow slot too, if it has one. Under the
 * writer lock. */
void weir_shadow_meet(struct weir_table *t, struct weir_ref ref,
                      weir_instant now);

/* The outcome bit that is set if there is a shadow set. */
static inline unsigned weir_shadow_outcome(const struct weir_table *t)
{
    /* Relaxed: a request concurrent with the edit that adds or removes the set
     * counts as before or after it. */
    return weir_load_relaxed(&t->shadows) ? WEIR_OUTCOME_SHADOW : 0;
}
/* A take or reserve on a slot of the shadow set, as enforced there: draws from
 * that set's stream, explains nothing, counts no unknown name. */
unsigned weir_slot_take_shadow(struct weir_table *t, uint32_t stripe,
                               struct weir_ref ref, uint64_t weight,
                               weir_instant now);
unsigned weir_slot_reserve_shadow(struct weir_table *t, uint32_t stripe,
                                  struct weir_ref ref, uint64_t weight,
                                  weir_duration wait_max, weir_instant now);
/* Draws from the stripe's stream of a set. */
uint64_t weir_stripe_draw(struct weir_table *t, uint32_t stripe, enum set set);

/* ---- table_permit.c ---- */
/* Whether the slot has units in flight: then it must not be freed. If its
 * generation was not moved before, a permit may come after this. */
bool weir_slot_has_permits(const struct weir_table *t, uint32_t slot);

/* Gives back the units that 'process' has in flight at the slot. */
void weir_inflight_reap(struct weir_table *t, uint32_t slot, uint32_t process);

/* ---- table_share.c; under the lock, but the first ---- */
/* Places the parts of a shared table from 'at' on; returns their end. */
uint64_t weir_share_lay_out(struct weir_table *t, uint64_t at);
/* Add or remove one pin. False: no room, or the process has none. */
bool weir_share_pin(struct weir_table *t, uint32_t process, uint32_t slot);
bool weir_share_unpin(struct weir_table *t, uint32_t process, uint32_t slot);
/* ---- table_gate.c ---- */
/* Places the gate slots from 'at' (a multiple of a line) on; fills the header.
 * Returns their end. */
uint64_t weir_gate_slots_lay_out(struct weir_table *t, uint64_t at,
                                 uint32_t gate_slots);
/* Under the lock: the slot is ruled by 'quota', or as 'template' is. 'another':
 * by an unrelated quota. */
void weir_slot_adapt(struct weir_table *t, uint32_t slot,
                     const struct weir_quota *quota, bool another,
                     weir_instant now);
void weir_slot_adapt_as(struct weir_table *t, uint32_t slot, uint32_t template,
                        bool another, weir_instant now);
/* Under the lock: frees the slot's gate slot. */
void weir_slot_unadapt(struct weir_table *t, uint32_t slot);
/* Under the lock: whether it is an instance without a gate slot and one is
 * free. */
bool weir_slot_wants_gate_slot(const struct weir_table *t, uint32_t slot);
/* After a killed writer. */
void weir_gate_slots_mend(struct weir_table *t);
/* In a fork, with no enter or leave running: clears the units in flight, keeps
 * the limits. Threads that held a lock of a gate are in the other process. */
void weir_gate_slots_forget(struct weir_table *t);
/* Any thread: enters the slot's concurrency gate ('sure': only within the
 * guaranteed part of its class) and writes that to 'hold'; false: the gate
 * refuses. True with 'hold' unchanged: there is no gate. */
bool weir_slot_admit(struct weir_table *t, uint32_t slot,
                     struct weir_permit_record *record, bool sure,
                     weir_instant now);
/* The lane of the slot's wait queue for a class; see table_line.c. */
uint32_t weir_slot_lane(const struct weir_table *t, uint32_t slot,
                        uint32_t klass);
/* Leaves the gate that admit wrote to 'hold'; false: the gate slot was
 * reused. */
bool weir_slot_dismiss(struct weir_table *t, struct weir_permit_record *record,
                       enum weir_sample_outcome outcome, weir_instant now);
/* A permit of 'weight' that did not enter the slot's gate leaves the slot. */
void weir_slot_depart(struct weir_table *t, uint32_t slot, uint64_t weight);
/* The slot's concurrency gate, for reading; NULL: none. */
struct weir_concurrency_gate *weir_slot_gate(const struct weir_table *t,
                                             uint32_t slot);
/* Whether 'weight' units of no class would be let in now, judged without
 * entering. */
bool weir_slot_has_room(const struct weir_table *t, uint32_t slot,
                        uint64_t weight, weir_instant now);

/* ---- table_line.c; under the lock ---- */
/* The slot is ruled by 'quota', or as 'template' is: sets its wait queue. */
void weir_slot_queue(struct weir_table *t, uint32_t slot,
                     const struct weir_quota *quota);
void weir_slot_queue_as(struct weir_table *t, uint32_t slot, uint32_t template);

/* ---- table_area.c; under the lock ---- */
/* A block of at least 'bytes', zeroed: its unit, or AREA_NONE. */
uint32_t weir_area_take(struct weir_table *t, size_t bytes);
void weir_area_give(struct weir_table *t, uint32_t unit, size_t bytes);
/* Units of a block for 'bytes'; number of free blocks of an order. */
uint32_t weir_area_units(size_t bytes);
uint32_t weir_area_count(const struct weir_table *t, unsigned order);
/* After a killed writer: all blocks are free except those kept by
 * weir_area_keep() between begin and end. */
void weir_area_mend_begin(struct weir_table *t);
void weir_area_keep(struct weir_table *t, uint32_t unit, size_t bytes);
void weir_area_mend_end(struct weir_table *t);

/* ---- table_bucket_state.c ---- */
/* Under the lock: plans the rule and bucket state that a quota needs in the
 * area. 'slot' is its present slot. */
struct bucket_state_plan {
    uint64_t where; /* 0: no bucket state */
    uint32_t flags; /* META_BUCKET_STATE or META_AWAY */
    bool same;      /* the slot has it already */
};
/* WEIR_EFULL: the area has no room, nothing has changed. */
int weir_bucket_state_plan(struct weir_table *t, uint32_t slot,
                           const struct weir_quota *quota,
                           struct bucket_state_plan *out);
/* The same for an instance of 'template'. */
int weir_bucket_state_plan_instance(struct weir_table *t, uint32_t slot,
                                    uint32_t template,
                                    struct bucket_state_plan *out);
/* Releases a plan that wasn't followed. */
void weir_bucket_state_unplan(struct weir_table *t,
                              const struct bucket_state_plan *plan);
/* Follows a plan: the slot gets the plan's bucket state, with the units of its
 * previous bucket state or bucket, or ('empty') none. Call it before the bucket
 * is switched. */
void weir_bucket_state_follow(struct weir_table *t, uint32_t slot,
                              const struct bucket_state_plan *plan, bool empty,
                              weir_instant now);
/* Units in the slot's bucket state. */
uint64_t weir_bucket_state_units(struct weir_table *t, uint32_t slot,
                                 weir_instant now);
/* Removes the slot's bucket state. Returns its units, for a bucket that takes
 * its place. */
uint64_t weir_bucket_state_drop(struct weir_table *t, uint32_t slot,
                                weir_instant now);
/* Whether the slot has no bucket state or an empty one. */
bool weir_bucket_state_is_idle(struct weir_table *t, uint32_t slot,
                               weir_instant now);
/* For an audit: area units of its state and of its rule, and the rule's
 * references. */
void weir_bucket_state_look(const struct weir_table *t, uint32_t slot,
                            uint32_t *out_own, uint32_t *out_rule,
                            uint32_t *out_refs);
/* After a killed writer, before slots are freed. */
void weir_bucket_states_mend(struct weir_table *t);
/* After a process has died: 'by' resets the bucket states that it left locked.
 * 'writer': it also held the writer lock, which the caller now holds: repairs
 * its unfinished changes to bucket states, while other threads go on with
 * theirs. */
void weir_bucket_states_reap(struct weir_table *t, uint32_t process,
                             uint32_t by, bool writer);

/* Any thread: weir_bucket_state_lock() locks a slot's bucket state and returns
 * its rule, or NULL; weir_bucket_state_state() returns the state, or NULL.
 * Both are valid until weir_bucket_state_unlock(). */
const struct metering *weir_bucket_state_lock(struct weir_table *t,
                                              uint32_t slot, uint32_t stripe);
void *weir_bucket_state_state(const struct weir_table *t, uint32_t slot);
void weir_bucket_state_unlock(struct weir_table *t, uint32_t slot);
/* 'now' on the clock that a rule's windows use. */
weir_instant weir_bucket_state_now(const struct weir_table *t,
                                   const struct weir_algorithm_rule *rule,
                                   weir_instant now);

/* ---- table_shadow.c; under the lock, except the last ---- */
/* A quota or template of this name was added (1), removed (-1), or its template
 * changed (0). Does nothing for names of the live set. */
void weir_shadow_count(struct weir_table *t, struct weir_text name,
                       int difference);
/* After a killed writer. */
void weir_shadow_recount(struct weir_table *t);
/* The slot's new life has no shadow slot yet. */
void weir_shadow_forget(struct weir_table *t, uint32_t slot);
/* Slots were freed: names that found no room in the shadow set try again. Takes
 * the lock. */
void weir_shadow_freed(struct weir_table *t);

/* ---- table_edit.c ---- */
/* Under the lock: the switch. Keeps the fill in units, or empties it. */
void weir_slot_switch(struct weir_table *t, uint32_t slot,
                      const struct weir_bucket *bucket, uint32_t flags,
                      bool empty, weir_instant now);
/* Under the lock: switches the slot to the bucket, or to the plan's bucket
 * state if it has one. */
void weir_slot_measure(struct weir_table *t, uint32_t slot,
                       const struct weir_bucket *bucket, uint32_t flags,
                       const struct bucket_state_plan *plan, bool empty,
                       weir_instant now);
/* Under the lock: finishes the switch of a writer that was killed. */
void weir_table_mend_switch(struct weir_table *t);
/* Under the lock of a killed writer: lists each template once, and frees slots
 * that are not live. */
void weir_table_mend_slots(struct weir_table *t);
/* Under the lock: new flags, same parameters. */
void weir_slot_set_flags(struct weir_table *t, uint32_t slot, uint32_t flags);
/* The probability with which the bucket refuses now, in 1/255. */
uint8_t weir_slot_read_refusal(const struct look *look);
/* Requests that passed by META_PASS or META_HOLD leave no debt: of 'weight'
 * units that were just counted, those above 'high' are removed from the bucket.
 * Units charged afterwards stay, as do a root's fills. */
void weir_slot_forgive(struct weir_table *t, uint32_t slot, uint64_t weight,
                       uint64_t elapsed);
/* The flags that a stale table adds to a slot. */
uint32_t weir_slot_stale_flags(const struct weir_table *t, uint32_t slot);

/* ---- table_lease.c ---- */
/* Under the lock: the slot gets a quota with 'bucket'; 'before': its previous
 * sharing; 'another': an unrelated quota. Changes 'bucket' to the one to switch
 * to if its sharing is, or was, leased. */
void weir_slot_lease(struct weir_table *t, uint32_t slot,
                     enum weir_sharing before, bool another,
                     struct weir_bucket *bucket);
/* Under the lock: the last pin or child of the slot has gone. */
void weir_slot_unpinned(struct weir_table *t, uint32_t slot);
/* Under the lock: weir_table_lease_view(). */
void weir_slot_lease_view(const struct weir_table *t, uint32_t slot,
                          struct weir_lease_view *out);
/* Any thread: whether the slot keeps to a grant; writes the grant if so. */
bool weir_slot_granted(const struct weir_table *t, uint32_t slot,
                       double *out_granted);

/* ---- table_rule.c ---- */
/* Under the lock: the slot of 'name', made as instance or ('keep') placeholder
 * if need be. 'depth': number of quotas below it in the chain. */
enum weir_resolved weir_slot_resolve(struct weir_table *t,
                                     struct weir_text name, bool keep,
                                     unsigned depth, uint32_t *out,
                                     weir_instant now);
/* Under the lock: takes a free slot, evicting if need be. */
uint32_t weir_slot_make(struct weir_table *t, struct weir_text name,
                        weir_instant now);
/* Under the lock: visits up to 'looks' slots from the clock hand on and frees
 * up to 'wanted'; returns the number freed. */
uint32_t weir_table_evict(struct weir_table *t, uint32_t looks, uint32_t wanted,
                          weir_instant now);
/* Under the lock: updates an instance or placeholder after the templates
 * changed. */
void weir_slot_rule(struct weir_table *t, uint32_t slot, weir_instant now);
/* Under the lock; 'before' was its sharing. If it is no longer counted, clears
 * the units of other processes and the stop, and marks it so that the sync
 * drops the roots' values. */
void weir_slot_share(struct weir_table *t, uint32_t slot,
                     enum weir_sharing before);
/* Under the lock: its quota is gone; makes it a placeholder, which may still
 * have units in flight. */
void weir_slot_unrule(struct weir_table *t, uint32_t slot, weir_instant now);
/* Under the lock: removes one child or pin; frees a placeholder that has none
 * left. */
void weir_slot_unref(struct weir_table *t, uint32_t slot);
/* Under the lock: frees it and its reference to its parent. */
void weir_slot_free(struct weir_table *t, uint32_t slot);
void weir_slot_set_parent(struct weir_table *t, uint32_t slot, uint32_t parent);

#endif /* WEIR_TABLE_LAYOUT_H */
