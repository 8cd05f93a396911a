/* SPDX-License-Identifier: MIT
 * quota/table_layout.h - the bytes of a table; for table*.c only.
 *
 *     header | hot slots | cold slots | names | chunks | index | bits | ...
 *              64 B        48 B         32 B             ~27 B   1 bit
 *              a slot      a slot       a slot           a slot  a slot
 *
 *     ... stripes | twins
 *                   16 B a slot, on pages that nobody touches before there
 *                   is a shadow set
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

#include "base/atomic.h"
#include "quota/table.h"

#define WEIR_TABLE_MAGIC 0x5745495254424c31ull /* "WEIRTBL1" */
#define WEIR_TABLE_LAYOUT 2

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
#define META_OFF 0x01u    /* mode off, or a placeholder: not there at all */
#define META_SHADOW 0x02u /* decides, never refuses */
#define META_OPEN 0x04u   /* stale: passes and counts */
#define META_CLOSED 0x08u /* stale: refuses */
#define META_HOLD 0x10u   /* stale: refuses with the probability in cold */
#define META_STALE (META_OPEN | META_CLOSED | META_HOLD)
#define META_FLAGS 0xffu
#define META_WHOLE_SHIFT 8  /* 8 bits: leak.whole */
#define META_FRAC_SHIFT 16  /* 5 bits: leak.frac */
#define META_SEQ_SHIFT 21   /* 11 bits: the sequence */
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
    uint64_t base;        /* scaled << 1 | where the parameters are */
    uint64_t part;        /* leak.part */
    int64_t high;         /* scaled */
    uint64_t stop;        /* refuse at this count */
    uint64_t up;          /* slots: parent | grandparent << 32 */
    weir_mini band;       /* high - low, scaled */
    weir_mini early;      /* tell the sync this far before 'stop' */
    uint32_t generation;  /* odd while the slot lives */
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
    uint8_t sharing : 3, on_stale : 3, seen : 1;
    uint8_t aux_len;    /* bytes of the pattern */
    uint8_t hold;       /* probability of refusal when last told, 1/255 */
};
static_assert(sizeof(struct cold) == 48, "as DESIGN section 10 says");

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
struct refusal { /* written by the stripe's owner only */
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
    uint32_t owned; /* atomic */
    uint32_t used;  /* ever owned; atomic */
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

struct template_entry {
    uint32_t order;
    uint32_t slot;
    uint64_t created;
};

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
        twins_at;
    uint32_t chunk_count;
    uint32_t bits_words;

    /* Written by few, on a line of their own. */
    _Alignas(WEIR_CACHE_LINE) uint64_t writer; /* lock: 0 free */
    uint32_t used;       /* slots ever used */
    uint32_t live;
    uint32_t free_head;  /* list through cold.aux */
    uint32_t chunk_head; /* list through chunk.next */
    uint32_t chunk_used; /* chunks ever used */
    uint32_t hand;       /* of the sweep */
    uint32_t stale;
    uint32_t held;       /* fills don't move cold.hold */
    uint32_t template_count;
    weir_instant barren_till; /* a look for room was in vain */
    uint32_t spare_slot; /* whose parameters the spare holds */
    uint64_t spare_part;
    int64_t spare_high;
    weir_mini spare_band;
    uint32_t spare_meta;
    uint32_t spare_seq;
    uint32_t shadow_short; /* a shadow instance found no room; atomic */

    _Alignas(WEIR_CACHE_LINE) uint32_t urgent; /* touched by takes */

    _Alignas(WEIR_CACHE_LINE)
        struct template_entry templates[WEIR_TEMPLATES_MAX];
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
static inline struct cold *weir_cold(const struct weir_table *t,
                                     uint32_t slot)
{
    return (struct cold *)weir_table_at(t, t->cold_at) + slot;
}
static inline struct name *weir_name(const struct weir_table *t,
                                     uint32_t slot)
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
static inline struct twin *weir_twin(const struct weir_table *t,
                                     uint32_t slot)
{
    return (struct twin *)weir_table_at(t, t->twins_at) + slot;
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
    uint64_t base;  /* as found: for the lift's CAS */
    uint64_t count;
    int64_t fill;   /* may be negative */
    int64_t high;
    int64_t band;
    struct weir_leak leak;
    uint32_t flags; /* META_… */
};
void weir_look_spare(const struct weir_table *t, uint32_t slot,
                     uint64_t elapsed, struct look *out);

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
        return;
    }
}

/* ---- table.c ---- */
void weir_table_lock(struct weir_table *t);
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
void weir_chunks_load(const struct weir_table *t, uint32_t first,
                      size_t len, char *buf);
void weir_chunks_free(struct weir_table *t, uint32_t first);

/* ---- table_take.c ---- */
/* Lifts a bucket that stood empty, so that its fill is not below 0. */
void weir_slot_lift(struct weir_table *t, uint32_t slot, uint64_t elapsed);
/* Sets the slot's dirty bit. */
void weir_slot_mark(struct weir_table *t, uint32_t slot);

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
uint64_t weir_stripe_draw(struct weir_table *t, uint32_t stripe,
                          enum set set);

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
/* Under the lock: finishes the switch of a writer that was killed. */
void weir_table_mend_switch(struct weir_table *t);
/* Under the lock: new flags, same parameters. */
void weir_slot_set_flags(struct weir_table *t, uint32_t slot,
                         uint32_t flags);
/* The probability with which a look's bucket refuses now, in 1/255. */
uint8_t weir_look_refusal(const struct look *look);
/* What a stale table adds to a slot's flags. */
uint32_t weir_slot_stale_flags(const struct weir_table *t, uint32_t slot);

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
uint32_t weir_table_evict(struct weir_table *t, uint32_t looks,
                          uint32_t wanted, weir_instant now);
/* Under the lock: an instance or placeholder after the templates changed. */
void weir_slot_rule(struct weir_table *t, uint32_t slot, weir_instant now);
/* Under the lock: one child or pin less; frees a placeholder without any. */
void weir_slot_unref(struct weir_table *t, uint32_t slot);
/* Under the lock: frees it, with its hold on its parent. */
void weir_slot_free(struct weir_table *t, uint32_t slot);
void weir_slot_set_parent(struct weir_table *t, uint32_t slot,
                          uint32_t parent);

#endif /* WEIR_TABLE_LAYOUT_H */
