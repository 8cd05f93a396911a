/* SPDX-License-Identifier: MIT
 * quota/table_layout.h - the bytes of a table; for table*.c only.
 *
 *     header | hot slots | cold slots | names | chunks | index | bits | ...
 *              64 B        48 B         32 B             ~27 B   1 bit
 *              a slot      a slot       a slot           a slot  a slot
 *
 *     ... stripes | twins | gauges | meters | area map | area   | leased | ...
 *                   16 B    16 B     16 B     1 B        64 B     64 B
 *                   a slot  a slot   a slot   a unit     a unit   a slot
 *
 *     ... which slot has which basin | basins    | ...
 *         4 B a slot                   24 KiB each
 *
 *     ... pins   | pinned | kept    | holds           (of a shared table only)
 *         16 B     4 B      1 bit     8 B
 *         a pin    a slot   a chunk   a slot and process
 *
 * The pages of twins are touched by nobody before there is a shadow set, those
 * of meters and area by nobody before there is a quota with a meter, those of
 * leased by nobody before there is a quota that is, those of gauges are read,
 * and written by nobody before there is a permit; those of basins, and of which
 * slot has which, by nobody before there is an adaptive quota
 * (table_sluice.c).
 *
 * One hot line decides. A take reads the lines of its chain, and writes only
 * 'count' (and 'base' when the bucket stood empty):
 *
 *     in   = (count << frac) + base            both modulo
 *     fill = in - leaked(now - origin)         signed, 63 bits
 *
 * Who writes what:
 *     count                takes add, refunds subtract. Nobody sets it.
 *     base                 the lift (CAS, when fill < 0), the sync (store)
 *     stop, early          the sync; the touch of a take moves 'early'
 *     leak, band, high, …  the writer (lock), by the switch below
 *     up                   the writer: the parent; the grandparent is only a
 *                          hint for prefetching, mended by a take that
 *                          sees it wrong
 *     generation           the writer: odd while the slot lives
 *
 * The switch. Parameters and 'base' must change together, and a reader must
 * never wait for a writer that was killed. The lowest bit of 'base' says
 * where the parameters are: 0, in the hot line; 1, in the table's one spare
 * copy. The writer
 *
 *     1 fills the spare          2 CAS base -> new base, bit 1
 *     3 rewrites the hot line    4 CAS base -> same base, bit 0
 *
 * A writer killed after 2 leaves a sound slot; the next one, before it uses
 * the spare, finishes 3 and 4 for it. 'meta' carries a sequence that is odd
 * during 3: a reader that saw bit 0 checks that meta did not move under it.
 *
 * Telling the sync. 'stop' is the count at which takes are refused until a
 * root answers; 'early' is how far before it somebody must be told: at first
 * "always", so that the next take marks the slot in the dirty bits; the mark
 * moves it to report_at, so that the one that crosses it asks for an early
 * report. One comparison in the hot path serves both.
 *
 * Taking back. A walk reads, an add charges, and between the two a slot may
 * change hands. So the writer moves 'generation' (or a child's 'up') before it
 * reads 'count', and a take adds to 'count' before it reads 'generation' and
 * each 'up' once more, all of it in one order that everybody sees: either the
 * writer finds the slot in use and leaves it, or the take finds the chain
 * changed and takes back what it added.
 *
 * The index. Buckets of eight entries (tag, slot), one line each; a name
 * lives in one of two buckets. A lookup reads at most two lines, a removal
 * clears its entry: no tombstones, no moves, readers never see a gap. The
 * first bucket is taken while it has room to spare, the emptier one after
 * that; with at most 8/3 names a bucket on average no name was ever seen
 * without a place (test_table fills 4 M), and if one is, it is EFULL.
 *
 * The writer lock. One word in the header; held for microseconds by who
 * makes an instance, pins, puts, drops or sweeps. Decisions never take it,
 * but for the first of a live slot that is asked of the shadow set as well.
 *
 * Meters (table_meter.c). A quota whose algorithm isn't one word that takes
 * add to has a state in the area, and a rule there that it shares with all
 * instances of its template. Its slot carries META_METER (META_AWAY: a store
 * decides), its bucket is one that never refuses: so 'count' goes on as
 * everywhere, and the short way of a take says "hard" for it as for any flag.
 * Rule and state hang on the slot's entry in 'meters':
 *
 *     lock     held for one step's arithmetic, or by the writer while it
 *              puts another rule and state in. It lies outside of the area:
 *              whatever becomes of a meter, a lock is always a lock
 *     serial   moves when a slot gets a meter that had none: who takes back
 *              what it charged finds out that it is another's by now
 *     where    rule and state, in one store: a writer that was killed leaves
 *              the ones before or the ones after
 *
 * The area is cut by halves (table_area.c). What a killed writer was doing
 * there is made anew from what the slots refer to.
 *
 * The shadow set (table_shadow.c). 'shadows' counts the quotas and templates
 * whose names begin with WEIR_SHADOW_PREFIX; takes read it on the header's
 * first line, which is written when one comes or goes and never else. A live
 * slot's twin says which slot stands for it in the shadow set. It is written
 * under the lock, and holds for as long as
 *
 *     the live slot lives (a new life begins without one),
 *     'shadow_version' is the twin's (it moves when names may be ruled by
 *         another quota than before), and
 *     the slot that it names lives (its generation is the twin's).
 */

#ifndef WEIR_TABLE_LAYOUT_H
#define WEIR_TABLE_LAYOUT_H

#include <assert.h>

#include "adapt/sluice.h"
#include "base/atomic.h"
#include "quota/table.h"

#define WEIR_TABLE_MAGIC 0x5745495254424c31ull /* "WEIRTBL1" */
#define WEIR_TABLE_LAYOUT 8

/* A 32-bit float of our own for distances that may be rounded: 26 bits of
 * mantissa, 6 of exponent; decodes in two operations. */
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

/* meta: what of a slot changes together with its parameters. */
#define META_OFF 0x01u       /* mode off, or a placeholder: not there at all */
#define META_SHADOW 0x02u    /* decides, never refuses */
#define META_PASS 0x04u      /* stale: passes and counts */
#define META_LIMIT 0x08u     /* stale: refuses */
#define META_HOLD 0x10u      /* stale: refuses with the probability in cold */
#define META_METER 0x20u     /* a meter decides (table_meter.c) */
#define META_AWAY 0x40u      /* a store decides; its chain isn't this table's */
#define META_GAUGE 0x80u     /* counts what is in flight (table_permit.c) */
#define META_ADAPTIVE 0x100u /* a gauge with a sluice (table_sluice.c) */
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
    uint64_t base;       /* scaled << 1 | where the parameters are */
    uint64_t part;       /* leak.part */
    int64_t high;        /* scaled */
    uint64_t stop;       /* refuse at this count */
    uint64_t up;         /* slots: parent | grandparent << 32 */
    weir_mini band;      /* high - low, scaled */
    weir_mini early;     /* tell the sync this far before 'stop' */
    uint32_t generation; /* odd while the slot lives */
    uint32_t meta;
};
static_assert(sizeof(struct hot) == WEIR_CACHE_LINE, "one line a slot");

struct cold {
    uint64_t created;
    uint64_t refused;   /* units, without those still in stripes; atomic */
    uint64_t settled;   /* sync: every root knows the count up to here */
    uint64_t report_at; /* sync writes, the touch reads */
    uint32_t rule;      /* instance: its template; template: its overflow */
    uint32_t aux;       /* template: chunks of its parent's pattern;
                         * free slot: the next free one */
    uint32_t refs;      /* children and pins; under the writer lock */
    uint8_t state;      /* enum weir_slot_state; released when complete */
    uint8_t sharing : 3, on_stale : 3, seen : 1, unpinned : 1;
    uint8_t aux_len; /* bytes of the pattern */
    uint8_t hold;    /* probability of refusal when last told, 1/255 */
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
    uint32_t events; /* refusals ever, whatever the slot; wraps */
    uint64_t units;  /* refused for 'slot' */
};
/* The live set's decisions and the shadow set's draw from streams of their
 * own, so that one set makes no difference to what the other decides. */
enum set { LIVE, SHADOW };
struct chance {
    struct weir_rng rng;
    uint64_t run; /* of draws: where it is, and in which order it goes */
};
struct weir_stripe {
    uint32_t owned;          /* 0, or the owner's number + 1; atomic */
    uint32_t used;           /* ever owned; atomic */
    struct chance chance[2]; /* by enum set */
    uint64_t unknown;
    uint64_t overflowed;
    uint64_t padding;
    struct refusal refusals[STRIPE_ENTRIES];
    uint32_t seen[STRIPE_ENTRIES]; /* the sync's: 'events' when last told */
};
static_assert(sizeof(struct weir_stripe) % WEIR_CACHE_LINE == 0, "");

/* Who stands for a live slot in the shadow set. */
struct twin {
    uint64_t ref;     /* slot | generation << 32; WEIR_SLOT_NONE: nobody */
    uint32_t version; /* of the shadow set when it was found; 0: never */
    /* Of what the live set let through lately, what passed there and what
     * didn't: in which proportion a refund is to be given there. Both are
     * halved when one is full. */
    uint16_t passed, refused;
};
static_assert(sizeof(struct twin) == 16, "");

/* What is in flight by a slot's name (table_permit.c). Written by no edit: it
 * is what permits hold, whatever became of the quota meanwhile. */
struct gauge {
    uint64_t held;    /* units that this process's permits hold; atomic */
    uint64_t others;  /* units that other processes have; the sync's, atomic */
    uint32_t lanes;   /* bits: lanes in which somebody waits; atomic */
    uint32_t queue;   /* of a quota: queue_max << 2 | queue; 0: it has none;
                      * written under the writer lock, atomic */
    uint64_t awaited; /* units that those who wait want; atomic */
};
static_assert(sizeof(struct gauge) == 32, "what an enter needs on one line");

/* The meter of a slot; all zero: it has none. */
struct meter {
    uint32_t lock;   /* 0: free */
    uint32_t serial; /* of what hangs on it */
    uint64_t where;  /* unit of the rule + 1, of the state + 1 << 32 */
};
static_assert(sizeof(struct meter) == 16, "");

/* Of a slot that is leased, or was until just now (table_lease.c). */
struct leased {
    uint32_t state;     /* enum weir_leasing; atomic */
    uint32_t wanted_by; /* which of the slot's lives 'wanted' is of; atomic */
    uint64_t granted;   /* units a second, a double's bits; INFINITY: all pass;
                       * atomic */
    struct weir_bucket whole; /* what the quota asks for, for all */
    uint64_t wanted;  /* what a caller said: likewise a double's bits; atomic */
    int64_t priority; /* of the quota's wants; of templates too */
};
static_assert(sizeof(struct leased) == WEIR_CACHE_LINE, "a line a slot");

/* What an adaptive quota asks for, of its fields those that a sluice is made
 * of; of a template, for its instances. */
struct adapting {
    uint64_t percentile, min, max, fleet_min, fleet_max;
    weir_duration target, permit_timeout;
    uint32_t controller; /* enum weir_controller_kind */
    uint32_t classes_len;
    char classes[WEIR_CLASSES_TEXT_MAX];
};

/* A sluice, with what it was made of. */
struct basin {
    uint32_t slot;   /* whose it is + 1; 0: nobody's; atomic */
    uint32_t serial; /* moves when it becomes somebody's, and when it is given
                      * up; even while it is nobody's, or emptied for the next
                      * life of its slot; atomic */
    uint32_t made;   /* a sluice was begun in it */
    uint32_t rule;   /* which of the two is in force: the other is written */
    struct adapting rules[2];
    uint32_t klass[WEIR_SLUICE_CLASSES_MAX]; /* numbers; 0: none; atomic */
    /* In flight by the slot's name since before it had the basin: how much is
     * left of them, and above 32 bits the life that it is to leave from;
     * atomic. */
    uint64_t strangers;
    _Alignas(WEIR_CACHE_LINE) unsigned char sluice[];
};
/* In the place of a basin's number: the slot wants one, and there was none. */
#define BASIN_WANTED UINT32_MAX

/* Before the state of what stands in for a store. */
struct shared {
    uint64_t limiters; /* by which the rule is divided; 0: never used */
};

/* A rule in the area: of a quota or template, and of its instances. Never
 * changed but for 'refs' and 'utc_offset_s'; an edit makes another. */
struct metering {
    uint32_t refs;          /* meters that go by it; under the writer lock */
    int32_t utc_offset_s;   /* of its zone; atomic */
    weir_duration deadline; /* of a store */
    uint16_t store_len;     /* 0: decided here */
    uint8_t zone_len;       /* 0: UTC, or it says an offset itself */
    uint8_t on_stale;       /* of a store: enum weir_on_stale */
    struct weir_meter_rule rule;
    char text[]; /* the store, the zone */
};

#define AREA_UNIT 64          /* bytes */
#define AREA_ORDERS 12        /* blocks of AREA_UNIT << 0 .. 11 */
#define AREA_LEAST (64 << 10) /* bytes, unless somebody says otherwise */
#define AREA_NONE UINT32_MAX

/* A zone that a quota names, and what was said of it last: a new rule then
 * begins with that. */
struct zone {
    int32_t utc_offset_s;
    uint8_t len;
    char name[WEIR_TZ_MAX];
};
#define ZONES_KNOWN 16

/* How often a process holds a slot. */
struct pin {
    uint32_t slot;
    uint32_t next; /* of the slot, or of the free ones; index + 1 */
    uint32_t process;
    uint32_t count; /* 0: it is free */
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
        twins_at, gauges_at, meters_at, area_map_at, area_at, leased_at,
        basin_of_at, basins_at;
    /* Of a table that processes share; else 0. */
    uint64_t pins_at, pinned_at, kept_at, holds_at;
    uint32_t commons; /* stripes for who got none: one a process */
    uint32_t pin_count;
    uint32_t chunk_count;
    uint32_t bits_words;
    uint32_t area_units;
    uint32_t metered;       /* rules of meters made so far; atomic */
    uint32_t leased;        /* there was a quota that is leased; atomic */
    uint32_t basins;        /* there are so many */
    uint32_t basins_used;   /* basins ever used; atomic */
    uint32_t basins_wanted; /* slots with BASIN_WANTED; atomic */
    uint32_t basin_bytes;
    uint32_t fleet;   /* processes, by which bounds of a fleet are divided */
    uint64_t wall;    /* to be added to 'now' for what a calendar rules */
    uint64_t aligned; /* the same for other windows: as it was at first */

    /* Written by few, on a line of their own. */
    _Alignas(WEIR_CACHE_LINE) uint64_t writer; /* lock: 0 free */
    uint32_t used;                             /* slots ever used */
    uint32_t live;
    uint32_t free_head;  /* list through cold.aux */
    uint32_t chunk_head; /* list through chunk.next */
    uint32_t chunk_used; /* chunks ever used */
    uint32_t hand;       /* of the sweep */
    uint32_t stale;
    uint32_t held; /* fills don't move cold.hold */
    uint32_t template_count;
    weir_instant barren_till; /* a look for room was in vain */
    uint32_t spare_slot;      /* whose parameters the spare holds */
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

    _Alignas(WEIR_CACHE_LINE) uint32_t urgent; /* touched by takes */
    uint32_t reporting; /* a report of all is coming anyway; atomic */

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
/* Whether the slot is still whose handle this is. */
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
static inline struct twin *weir_twin(const struct weir_table *t, uint32_t slot)
{
    return (struct twin *)weir_table_at(t, t->twins_at) + slot;
}

static inline struct gauge *weir_gauge(const struct weir_table *t,
                                       uint32_t slot)
{
    return (struct gauge *)weir_table_at(t, t->gauges_at) + slot;
}
static inline struct meter *weir_meter(const struct weir_table *t,
                                       uint32_t slot)
{
    return (struct meter *)weir_table_at(t, t->meters_at) + slot;
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
/* Units of the slot that permits of the process hold. */
static inline uint64_t *weir_holds(const struct weir_table *t, uint32_t process,
                                   uint32_t slot)
{
    return (uint64_t *)weir_table_at(t, t->holds_at) +
           (uint64_t)process * t->slots + slot;
}
/* Whose stripe it is: its number. Of a thread that has it. */
static inline uint32_t weir_process_of(const struct weir_table *t,
                                       uint32_t stripe)
{
    if (stripe < t->commons)
        return stripe;
    return weir_load_relaxed(&weir_stripe(t, stripe)->owned) - 1;
}
/* Which basin a slot has: its number + 1; 0; or BASIN_WANTED. Atomic. */
static inline uint32_t *weir_basin_of(const struct weir_table *t, uint32_t slot)
{
    return (uint32_t *)weir_table_at(t, t->basin_of_at) + slot;
}
static inline struct basin *weir_basin(const struct weir_table *t,
                                       uint32_t basin)
{
    return weir_table_at(t, t->basins_at + (uint64_t)basin * t->basin_bytes);
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

/* One consistent look at a link. */
struct look {
    uint64_t base; /* as found: for the lift's CAS */
    uint64_t count;
    int64_t fill; /* may be negative */
    int64_t high;
    int64_t band;
    struct weir_leak leak;
    uint32_t flags; /* META_… */
};
void weir_look_spare(const struct weir_table *t, uint32_t slot,
                     uint64_t elapsed, struct look *out);

/* A gauge's fill is what is in flight, on a scale of whole units. */
static inline void weir_look_gauge(const struct weir_table *t, uint32_t slot,
                                   struct look *look)
{
    const struct gauge *gauge = weir_gauge(t, slot);
    /* Relaxed: who holds something looks again, by a swap. */
    look->count = weir_load_relaxed(&gauge->held);
    look->fill = (int64_t)(look->count + weir_load_relaxed(&gauge->others));
}

/* 63-bit difference, sign-extended. */
static inline int64_t weir_fill_of(uint64_t count, uint64_t base,
                                   struct weir_leak leak, uint64_t elapsed)
{
    uint64_t in = (count << leak.frac) - weir_leaked(leak, elapsed);
    return (int64_t)((in << 1) + (base & ~(uint64_t)1)) >> 1;
}

static inline void weir_look(const struct weir_table *t, uint32_t slot,
                             uint64_t elapsed, struct look *out)
{
    const struct hot *hot = weir_hot(t, slot);
    for (;;) {
        /* acquire: the fields below are read after it; pairs with the
         * release of meta in the switch. */
        uint32_t meta = weir_load_acquire(&hot->meta);
        uint64_t base = weir_load_acquire(&hot->base);
        if (WEIR_UNLIKELY(base & 1)) {
            weir_look_spare(t, slot, elapsed, out);
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
        if (WEIR_UNLIKELY(meta & META_GAUGE))
            weir_look_gauge(t, slot, out);
        return;
    }
}

/* ---- table.c ---- */
void weir_table_lock(struct weir_table *t); /* by the sync */
void weir_table_lock_as(struct weir_table *t, uint32_t process);
/* False: it was taken all the time, some microseconds at least. */
bool weir_table_try_lock_as(struct weir_table *t, uint32_t process);
void weir_table_unlock(struct weir_table *t);
/* Under the lock: the slot of 'name' in any state but free, or NONE. */
uint32_t weir_slot_find(const struct weir_table *t, struct weir_text name);
/* Under the lock: takes a free slot (state MAKING) for 'name', or
 * WEIR_SLOT_NONE: no slot, no chunks or no place in the index. Found by
 * weir_slot_find() only, until it is published. */
uint32_t weir_slot_take(struct weir_table *t, struct weir_text name);
/* Begins its life: from now on any thread finds it. */
void weir_slot_publish(struct weir_table *t, uint32_t slot);
/* Ends its life, if that has not ended; gives it back. */
void weir_slot_release(struct weir_table *t, uint32_t slot);
bool weir_chunks_store(struct weir_table *t, const char *bytes, size_t len,
                       uint32_t *out_first);
void weir_chunks_load(const struct weir_table *t, uint32_t first, size_t len,
                      char *buf);
void weir_chunks_free(struct weir_table *t, uint32_t first);

/* ---- table_take.c ---- */
/* Lifts a bucket that stood empty, so that its fill is not below 0. */
void weir_slot_lift(struct weir_table *t, uint32_t slot, uint64_t elapsed);
/* The slot's count has become that: tells the sync if it is near. Returns 0 or
 * WEIR_OUTCOME_KICK. */
unsigned weir_slot_note(struct weir_table *t, uint32_t slot, uint64_t count);
/* Sets the slot's dirty bit. */
void weir_slot_mark(struct weir_table *t, uint32_t slot);
/* The slot and all above it. Under the writer lock. */
void weir_slot_mark_chain(struct weir_table *t, uint32_t slot);
/* The slot is held: its twin, if it has one, is told of too. Under the writer
 * lock. */
void weir_shadow_meet(struct weir_table *t, struct weir_ref ref,
                      weir_instant now);

/* Lets the rest of a decision know that the shadow set wants it too. */
static inline unsigned weir_shadow_outcome(const struct weir_table *t)
{
    /* Relaxed: a request beside the edit that brings the set or takes it is
     * before it or after it. */
    return weir_load_relaxed(&t->shadows) ? WEIR_OUTCOME_SHADOW : 0;
}
/* A take or reserve on a slot of the shadow set, as enforced there: draws
 * from that set's chance, explains nothing, counts no unknown name. */
unsigned weir_slot_take_shadow(struct weir_table *t, uint32_t stripe,
                               struct weir_ref ref, uint64_t weight,
                               weir_instant now);
unsigned weir_slot_reserve_shadow(struct weir_table *t, uint32_t stripe,
                                  struct weir_ref ref, uint64_t weight,
                                  weir_duration wait_max, weir_instant now);
/* Draws from the stripe's chance of a set. */
uint64_t weir_stripe_draw(struct weir_table *t, uint32_t stripe, enum set set);

/* ---- table_permit.c ---- */
/* Whether permits hold the slot: then it must not be freed. Its generation
 * was moved before, or a permit may come after this. */
bool weir_slot_is_held(const struct weir_table *t, uint32_t slot);

/* Gives back what 'process' holds of the slot. */
void weir_gauge_bury(struct weir_table *t, uint32_t slot, uint32_t process);

/* ---- table_share.c; under the lock, but the first ---- */
/* After a lay-out: where the parts of a shared table lie; returns their end. */
uint64_t weir_share_lay_out(struct weir_table *t, uint64_t at);
/* One pin more, or fewer. False: no room, or it holds none. */
bool weir_share_pin(struct weir_table *t, uint32_t process, uint32_t slot);
bool weir_share_unpin(struct weir_table *t, uint32_t process, uint32_t slot);
/* ---- table_sluice.c ---- */
/* What basins need behind 'at', a multiple of a line; fills the header. Returns
 * where they end. */
uint64_t weir_basins_lay_out(struct weir_table *t, uint64_t at,
                             uint32_t basins);
/* Under the lock: the slot is ruled by 'quota', or as 'template' is; NULL and
 * NONE: by nobody who is adaptive. 'another': by one that it had nothing to do
 * with. */
void weir_slot_adapt(struct weir_table *t, uint32_t slot,
                     const struct weir_quota *quota, bool another,
                     weir_instant now);
void weir_slot_adapt_as(struct weir_table *t, uint32_t slot, uint32_t template,
                        bool another, weir_instant now);
/* Under the lock: its life is over. */
void weir_slot_unadapt(struct weir_table *t, uint32_t slot);
/* Under the lock: an instance that found no basin, and there is one. */
bool weir_slot_wants_basin(const struct weir_table *t, uint32_t slot);
/* After a killed writer. */
void weir_basins_mend(struct weir_table *t);
/* In a fork, where nobody enters or leaves: nothing is in flight; limits stay.
 * Whoever had any of it locked is in another process. */
void weir_basins_forget(struct weir_table *t);
/* Any thread: lets a permit through the slot's sluice, 'sure': by what its
 * class is sure of alone, and notes in 'hold' what holds it; false: it refuses.
 * True without a note: there is no sluice. */
bool weir_slot_admit(struct weir_table *t, uint32_t slot,
                     struct weir_hold *hold, bool sure, weir_instant now);
/* In which lane of the slot's line a class waits; see table_line.c. */
uint32_t weir_slot_lane(const struct weir_table *t, uint32_t slot,
                        uint32_t klass);
/* Gives back what admit noted; false: its sluice is another's by now. */
bool weir_slot_dismiss(struct weir_table *t, struct weir_hold *hold,
                       enum weir_sample_outcome outcome, weir_instant now);
/* A permit of 'weight' leaves the slot that came in another way. */
void weir_slot_depart(struct weir_table *t, uint32_t slot, uint64_t weight);
/* The slot's sluice, for a look; NULL: none. */
struct weir_sluice *weir_slot_sluice(const struct weir_table *t, uint32_t slot);
/* Whether so many units of no class would be let in now, by what can be seen
 * without entering. */
bool weir_slot_has_room(const struct weir_table *t, uint32_t slot,
                        uint64_t weight, weir_instant now);

/* ---- table_line.c; under the lock ---- */
/* The slot is ruled by 'quota', or as 'template' is: who may wait there. */
void weir_slot_queue(struct weir_table *t, uint32_t slot,
                     const struct weir_quota *quota);
void weir_slot_queue_as(struct weir_table *t, uint32_t slot, uint32_t template);

/* ---- table_area.c; under the lock ---- */
/* A block of at least 'bytes', zeroed: its unit, or AREA_NONE. */
uint32_t weir_area_take(struct weir_table *t, size_t bytes);
void weir_area_give(struct weir_table *t, uint32_t unit, size_t bytes);
/* Units of a block for so many bytes; free blocks of an order. */
uint32_t weir_area_units(size_t bytes);
uint32_t weir_area_count(const struct weir_table *t, unsigned order);
/* After a killed writer: all is free but what weir_area_keep() says after
 * begin and before end. */
void weir_area_mend_begin(struct weir_table *t);
void weir_area_keep(struct weir_table *t, uint32_t unit, size_t bytes);
void weir_area_mend_end(struct weir_table *t);

/* ---- table_meter.c ---- */
/* Under the lock: what a quota needs of the area besides its slot. 'slot' is
 * its present one. */
struct meter_plan {
    uint64_t where; /* 0: no meter */
    uint32_t flags; /* META_METER or META_AWAY */
    bool same;      /* as the slot has it already */
};
/* WEIR_EFULL: the area has no room, nothing has changed. */
int weir_meter_plan(struct weir_table *t, uint32_t slot,
                    const struct weir_quota *quota, struct meter_plan *out);
/* The same for an instance of 'template'. */
int weir_meter_plan_instance(struct weir_table *t, uint32_t slot,
                             uint32_t template, struct meter_plan *out);
/* Gives a plan back that wasn't followed. */
void weir_meter_unplan(struct weir_table *t, const struct meter_plan *plan);
/* Follows it: the slot's meter is the plan's, and holds what the one before
 * or the slot's bucket until now held, or ('empty') nothing. To be called
 * before the bucket is switched. */
void weir_meter_follow(struct weir_table *t, uint32_t slot,
                       const struct meter_plan *plan, bool empty,
                       weir_instant now);
/* Units that the slot's meter holds. */
uint64_t weir_meter_units(struct weir_table *t, uint32_t slot,
                          weir_instant now);
/* Takes the slot's meter away. Returns what it held, for a bucket that takes
 * its place. */
uint64_t weir_meter_drop(struct weir_table *t, uint32_t slot, weir_instant now);
/* Whether the slot has no meter or one that holds nothing. */
bool weir_meter_is_idle(struct weir_table *t, uint32_t slot, weir_instant now);
/* For an audit: units of its state, of its rule, and who goes by that. */
void weir_meter_look(const struct weir_table *t, uint32_t slot,
                     uint32_t *out_own, uint32_t *out_rule, uint32_t *out_refs);
/* After a killed writer, before slots are cleared away. */
void weir_meters_mend(struct weir_table *t);
/* Of a process that has gone: the meters that it left locked begin anew, by
 * 'by'; 'writer': the writer lock was its too, and is now the caller's: what it
 * was doing to meters is mended, while others step theirs. */
void weir_meters_bury(struct weir_table *t, uint32_t process, uint32_t by,
                      bool writer);

/* Any thread: takes the lock of a slot's meter. Returns its rule, or NULL if
 * it has none; state, or NULL. Both are valid until it is let go. */
const struct metering *weir_meter_hold(struct weir_table *t, uint32_t slot,
                                       uint32_t stripe);
void *weir_meter_state(const struct weir_table *t, uint32_t slot);
void weir_meter_let_go(struct weir_table *t, uint32_t slot);
/* What 'now' is to a meter. */
weir_instant weir_meter_now(const struct weir_table *t,
                            const struct weir_meter_rule *rule,
                            weir_instant now);

/* ---- table_shadow.c; but for the last, under the lock ---- */
/* A name came under a quota or template of its own (1), no longer is (-1), or
 * its template rules otherwise (0). Of the live set: nothing to do. */
void weir_shadow_count(struct weir_table *t, struct weir_text name,
                       int difference);
/* After a killed writer. */
void weir_shadow_recount(struct weir_table *t);
/* The slot's new life has no twin yet. */
void weir_shadow_forget(struct weir_table *t, uint32_t slot);
/* Slots came free: who found no room in the shadow set asks again. Takes the
 * lock. */
void weir_shadow_freed(struct weir_table *t);

/* ---- table_edit.c ---- */
/* Under the lock: the switch. Keeps the fill in units, or empties it. */
void weir_slot_switch(struct weir_table *t, uint32_t slot,
                      const struct weir_bucket *bucket, uint32_t flags,
                      bool empty, weir_instant now);
/* Under the lock: the switch of all that decides: to the bucket, or to the
 * plan's meter if it has one. */
void weir_slot_measure(struct weir_table *t, uint32_t slot,
                       const struct weir_bucket *bucket, uint32_t flags,
                       const struct meter_plan *plan, bool empty,
                       weir_instant now);
/* Under the lock: finishes the switch of a writer that was killed. */
void weir_table_mend_switch(struct weir_table *t);
/* Under the lock that a writer was killed with: templates are each there once;
 * slots are alive, or free. */
void weir_table_mend_slots(struct weir_table *t);
/* Under the lock: new flags, same parameters. */
void weir_slot_set_flags(struct weir_table *t, uint32_t slot, uint32_t flags);
/* The probability with which a look's bucket refuses now, in 1/255. */
uint8_t weir_look_refusal(const struct look *look);
/* Who passed by META_PASS or META_HOLD, whatever the bucket held, owes nothing:
 * of 'weight' units that were just counted those above 'high' are taken out of
 * the bucket again. What was charged stays; so does what a root tells. */
void weir_slot_forgive(struct weir_table *t, uint32_t slot, uint64_t weight,
                       uint64_t elapsed);
/* What a stale table adds to a slot's flags. */
uint32_t weir_slot_stale_flags(const struct weir_table *t, uint32_t slot);

/* ---- table_lease.c ---- */
/* Under the lock: the slot, of another sharing 'before', is ruled by a quota
 * that asks for 'bucket'; 'another': by one that it had nothing to do with.
 * Gives what is to be switched in instead, if its sharing is, or was,
 * leased. */
void weir_slot_lease(struct weir_table *t, uint32_t slot,
                     enum weir_sharing before, bool another,
                     struct weir_bucket *bucket);
/* Under the lock: the last pin or child of the slot has gone. */
void weir_slot_unpinned(struct weir_table *t, uint32_t slot);
/* Under the lock: weir_table_lease_view(). */
void weir_slot_lease_view(const struct weir_table *t, uint32_t slot,
                          struct weir_lease_view *out);
/* Any thread: whether the slot keeps to a grant, which is then written. */
bool weir_slot_granted(const struct weir_table *t, uint32_t slot,
                       double *out_granted);

/* ---- table_rule.c ---- */
/* Under the lock: the slot of 'name', made as instance or ('keep')
 * placeholder if need be. 'depth': quotas below it in the chain. */
enum weir_resolved weir_slot_resolve(struct weir_table *t,
                                     struct weir_text name, bool keep,
                                     unsigned depth, uint32_t *out,
                                     weir_instant now);
/* Under the lock: takes a free slot, evicting if need be. */
uint32_t weir_slot_make(struct weir_table *t, struct weir_text name,
                        weir_instant now);
/* Under the lock: looks at up to 'looks' slots from the clock hand on and
 * frees up to 'wanted'; returns how many. */
uint32_t weir_table_evict(struct weir_table *t, uint32_t looks, uint32_t wanted,
                          weir_instant now);
/* Under the lock: an instance or placeholder after the templates changed. */
void weir_slot_rule(struct weir_table *t, uint32_t slot, weir_instant now);
/* Under the lock, 'before' was its sharing: one that isn't counted any more has
 * no others and no stop. Marked, so that the sync forgets what it was told. */
void weir_slot_share(struct weir_table *t, uint32_t slot,
                     enum weir_sharing before);
/* Under the lock: its quota is gone; it is a placeholder, whose permits may
 * still be out. */
void weir_slot_unrule(struct weir_table *t, uint32_t slot, weir_instant now);
/* Under the lock: one child or pin less; frees a placeholder without any. */
void weir_slot_unref(struct weir_table *t, uint32_t slot);
/* Under the lock: frees it, with its hold on its parent. */
void weir_slot_free(struct weir_table *t, uint32_t slot);
void weir_slot_set_parent(struct weir_table *t, uint32_t slot, uint32_t parent);

#endif /* WEIR_TABLE_LAYOUT_H */
