/* SPDX-License-Identifier: MIT
 * table/table.c - the block: its layout, names, index, stripes, free slots.
 *
 * A slot's life: free -> making -> published (placeholder, quota, template or
 * instance) -> free, with another generation. Lookups run concurrently, without
 * a lock. These rules keep them correct:
 *
 *   - a name is complete before its index entry is stored (release), and the
 *     entry is cleared before the name is touched again;
 *   - a slot that is being made is in the index, so that its maker finds it and
 *     makes no second one. Its generation is even: no lookup returns it, and no
 *     ref refers to it;
 *   - a lookup reads the generation before it compares the name: if the slot
 *     gets another name during the comparison, the returned ref is of the life
 *     that ended, and the take that uses it notices;
 *   - names are read and written as words by relaxed atomics: a torn name
 *     compares unequal, or is a name of the life that ended;
 *   - if a slot's maker was killed, the slot is free, or has an even generation
 *     and another state than FREE: it is reset before it leaves FREE, and its
 *     generation becomes even before it returns to FREE.
 *     weir_table_break_lock() recognizes it by that. */

#include "core/table/table_layout.h"

#include <string.h>

#include "core/base/hash.h"

/* For callers that mustn't wait for a dead process. */
#define LOCK_TRIES 10000

/* ---- Layout ---- */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + WEIR_CACHE_LINE - 1) & ~(uint64_t)(WEIR_CACHE_LINE - 1);
}

static uint32_t power_of_two_above(uint32_t least)
{
    uint32_t power = 2;
    while (power < least)
        power *= 2;
    return power;
}

static bool options_valid(const struct weir_table_options *options)
{
    return options->slots >= 1 && options->slots <= WEIR_SLOTS_MAX &&
           options->stripes >= 1 && options->stripes <= WEIR_STRIPES_MAX &&
           options->processes <= WEIR_TABLE_PROCESSES_MAX &&
           options->processes <= options->stripes &&
           (options->bucket_state_bytes == 0 ||
            options->bucket_state_bytes >= AREA_UNIT) &&
           options->bucket_state_bytes <= WEIR_ALGORITHM_BYTES_MAX &&
           options->gate_slots <= WEIR_GATE_SLOTS_MAX;
}

static uint32_t area_units(const struct weir_table_options *options)
{
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
    t->area_units = area_units(options);
    t->bucket_states_at = at;
    at += (uint64_t)options->slots * sizeof(struct bucket_state);
    t->area_map_at = at;
    at = aligned(at + t->area_units);
    t->area_at = at;
    return at + (uint64_t)t->area_units * AREA_UNIT;
}

/* Fills the header's sizes and offsets; returns the total bytes. */
static size_t lay_out(struct weir_table *t,
                      const struct weir_table_options *options)
{
    uint32_t slots = options->slots;
    uint32_t buckets = power_of_two_above(slots / 3 + 1);
    t->layout = WEIR_TABLE_LAYOUT;
    t->slots = slots;
    t->seed = options->seed;
    t->stripe_count = options->stripes;
    t->bucket_mask = buckets - 1;
    t->chunk_count = slots / 2 + 64;
    t->bits_words = (slots + 63) / 64;
    t->commons = options->processes > 1 ? options->processes : 1;
    t->pins_at = t->pinned_at = t->kept_at = t->in_flight_at = 0;
    t->pin_count = 0;

    uint64_t at = sizeof(*t);
    at += (uint64_t)slots * sizeof(struct hot);
    t->cold_at = at;
    at = aligned(at + (uint64_t)slots * sizeof(struct cold));
    t->names_at = at;
    at = aligned(at + (uint64_t)slots * sizeof(struct name));
    t->chunks_at = at;
    at = aligned(at + (uint64_t)t->chunk_count * sizeof(struct chunk));
    t->index_at = at;
    at += (uint64_t)buckets * sizeof(struct bucket);
    t->bits_at = at;
    at = aligned(at + (uint64_t)t->bits_words * sizeof(uint64_t));
    t->stripes_at = at;
    at += (uint64_t)options->stripes * sizeof(struct weir_stripe);
    t->shadow_slots_at = at;
    at += (uint64_t)slots * sizeof(struct shadow_slot);
    t->inflights_at = at;
    at += (uint64_t)slots * sizeof(struct inflight);
    t->leased_at = lay_out_bucket_states(t, at, options);
    at = t->leased_at + (uint64_t)slots * sizeof(struct leased);
    at = weir_gate_slots_lay_out(t, at, options->gate_slots);
    return t->commons > 1 ? weir_share_lay_out(t, at) : at;
}

size_t weir_table_size(const struct weir_table_options *options)
{
    if (!options_valid(options))
        return 0;
    struct weir_table shape;
    return lay_out(&shape, options);
}

static void chance_init(struct chance *chance, uint64_t seed)
{
    chance->rng.state = weir_rng_mix(seed);
    /* A random place, at the start of a run: otherwise the first request in a
     * band would be refused in every process. */
    chance->run = weir_rng_mix(chance->rng.state) & ~(uint64_t)15;
}

struct weir_table *weir_table_init(void *block,
                                   const struct weir_table_options *options,
                                   weir_instant now)
{
    weir_assert(options_valid(options));
    weir_assert((uintptr_t)block % WEIR_CACHE_LINE == 0);
    struct weir_table *t = block;
    lay_out(t, options);
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

/* ---- The writer lock ---- */

static bool lock_once(struct weir_table *t, uint32_t process)
{
    uint64_t free = 0;
    return weir_load_relaxed(&t->writer) == 0 &&
           weir_cas(&t->writer, &free, process + 1);
}

void weir_table_lock_as(struct weir_table *t, uint32_t process)
{
    while (!lock_once(t, process))
        weir_pause();
}

bool weir_table_try_lock_as(struct weir_table *t, uint32_t process)
{
    for (int tries = 0; tries < LOCK_TRIES; tries++) {
        if (lock_once(t, process))
            return true;
        weir_pause();
    }
    return false;
}

void weir_table_lock(struct weir_table *t)
{
    weir_table_lock_as(t, 0);
}

void weir_table_unlock(struct weir_table *t)
{
    /* release: the next holder sees this one's writes. */
    weir_store_release(&t->writer, 0);
}

/* ---- Chunks: tails of long names, patterns of parents ---- */

static uint32_t chunk_take(struct weir_table *t)
{
    uint32_t index = t->chunk_head;
    if (index != CHUNK_NONE) {
        t->chunk_head = weir_chunk(t, index)->next;
        return index;
    }
    if (t->chunk_used == t->chunk_count)
        return CHUNK_NONE;
    return t->chunk_used++;
}

/* Copied as words, because a reader of a dead name reads words too; may_alias,
 * because the bytes also have typed fields. */
typedef uint64_t __attribute__((may_alias)) any_word;

static void put_words(void *to, const void *from, size_t words)
{
    any_word *target = to;
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, (const char *)from + i * sizeof(word), sizeof(word));
        weir_store_relaxed(&target[i], word);
    }
}

static void get_words(void *to, const void *from, size_t words)
{
    const any_word *source = from;
    for (size_t i = 0; i < words; i++) {
        uint64_t word = weir_load_relaxed(&source[i]);
        memcpy((char *)to + i * sizeof(word), &word, sizeof(word));
    }
}

bool weir_chunks_store(struct weir_table *t, const char *bytes, size_t len,
                       uint32_t *out_first)
{
    uint32_t first = CHUNK_NONE;
    size_t rest = (len + CHUNK_BYTES - 1) / CHUNK_BYTES;
    /* From the last chunk to the first, so that each can store its next. */
    while (rest > 0) {
        uint32_t index = chunk_take(t);
        if (index == CHUNK_NONE) {
            weir_chunks_free(t, first);
            return false;
        }
        rest--;
        struct chunk chunk = { .next = first };
        size_t at = rest * CHUNK_BYTES;
        size_t part = len - at < CHUNK_BYTES ? len - at : CHUNK_BYTES;
        memcpy(chunk.bytes, bytes + at, part);
        put_words(weir_chunk(t, index), &chunk, sizeof(chunk) / 8);
        first = index;
    }
    *out_first = first;
    return true;
}

void weir_chunks_load(const struct weir_table *t, uint32_t first, size_t len,
                      char *buf)
{
    /* A reader of a dead name may follow another name's chunks: every step is
     * bounded by the length and by the pool. */
    while (len > 0 && first < t->chunk_count) {
        struct chunk chunk;
        get_words(&chunk, weir_chunk(t, first), sizeof(chunk) / 8);
        size_t part = len < CHUNK_BYTES ? len : CHUNK_BYTES;
        memcpy(buf, chunk.bytes, part);
        buf += part;
        len -= part;
        first = chunk.next;
    }
    memset(buf, 0, len);
}

void weir_chunks_free(struct weir_table *t, uint32_t first)
{
    while (first != CHUNK_NONE) {
        struct chunk *chunk = weir_chunk(t, first);
        uint32_t next = chunk->next;
        weir_store_relaxed(&chunk->next, t->chunk_head);
        t->chunk_head = first;
        first = next;
    }
}

/* ---- Names ---- */

/* The first 32 bytes of a name as they are stored, without 'more'. Made of
 * loads and shifts: a copy of variable length is a function call, and reading
 * back bytes written in smaller pieces stalls on the stores. */
struct key {
    uint64_t word[4]; /* len, head[0..2] | [3..10] | [11..18] | [19..26] */
};
static_assert(offsetof(struct name, len) == 4 && NAME_HEAD == 27, "");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "key_of() shifts as if bytes came lowest first");

static inline uint64_t load64(const char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof(word));
    return word;
}

/* A name shorter than eight bytes, zero-padded: loads that overlap, with equal
 * bytes where they do. */
static inline uint64_t load_short(const char *p, size_t len)
{
    const unsigned char *bytes = (const unsigned char *)p;
    if (len >= 4) {
        uint32_t first, last;
        memcpy(&first, p, sizeof(first));
        memcpy(&last, p + len - 4, sizeof(last));
        return first | (uint64_t)last << (8 * (len - 4));
    }
    return bytes[0] | (uint64_t)bytes[len / 2] << (8 * (len / 2)) |
           (uint64_t)bytes[len - 1] << (8 * (len - 1));
}

/* Eight bytes from 'at' of a name of at least eight, zero-padded. */
static inline uint64_t load_at(struct weir_text name, size_t at)
{
    if (at + 8 <= name.len)
        return load64(name.p + at);
    if (at >= name.len)
        return 0;
    return load64(name.p + name.len - 8) >> (8 * (at + 8 - name.len));
}

static inline struct key key_of(struct weir_text name)
{
    if (name.len < 8) {
        uint64_t all = load_short(name.p, name.len);
        return (struct key){ { name.len | (all & 0xffffff) << 8, all >> 24, 0,
                               0 } };
    }
    uint64_t first = load64(name.p) & 0xffffff;
    return (struct key){ { (name.len & 0xff) | first << 8, load_at(name, 3),
                           load_at(name, 11), load_at(name, 19) } };
}

static bool name_store(struct weir_table *t, uint32_t slot,
                       struct weir_text name)
{
    struct name stored = { .more = CHUNK_NONE, .len = (uint8_t)name.len };
    memcpy(stored.head, name.p, name.len < NAME_HEAD ? name.len : NAME_HEAD);
    if (name.len > NAME_HEAD &&
        !weir_chunks_store(t, name.p + NAME_HEAD, name.len - NAME_HEAD,
                           &stored.more))
        return false;
    put_words(weir_name(t, slot), &stored, sizeof(stored) / 8);
    return true;
}

static bool tail_equal(const struct weir_table *t, uint32_t more,
                       struct weir_text name)
{
    char tail[WEIR_NAME_MAX];
    weir_chunks_load(t, more, name.len - NAME_HEAD, tail);
    return memcmp(tail, name.p + NAME_HEAD, name.len - NAME_HEAD) == 0;
}

static inline bool name_equal(const struct weir_table *t, uint32_t slot,
                              const struct key *key, struct weir_text name)
{
    const any_word *stored = (const any_word *)weir_name(t, slot);
    uint64_t first = weir_load_relaxed(&stored[0]);
    uint64_t differs = (first >> 32) ^ (key->word[0] & UINT32_MAX);
    for (int i = 1; i < 4; i++)
        differs |= weir_load_relaxed(&stored[i]) ^ key->word[i];
    return differs == 0 &&
           (name.len <= NAME_HEAD || tail_equal(t, (uint32_t)first, name));
}

static size_t name_load(const struct weir_table *t, uint32_t slot, char *buf)
{
    struct name stored;
    get_words(&stored, weir_name(t, slot), sizeof(stored) / 8);
    size_t len = stored.len;
    size_t part = len < NAME_HEAD ? len : NAME_HEAD;
    memcpy(buf, stored.head, part);
    if (len > NAME_HEAD)
        weir_chunks_load(t, stored.more, len - NAME_HEAD, buf + NAME_HEAD);
    buf[len] = '\0';
    return len;
}

size_t weir_table_name(const struct weir_table *t, uint32_t slot, char *buf)
{
    const struct hot *hot = weir_hot(t, slot);
    for (;;) {
        uint32_t life = weir_load_acquire(&hot->generation);
        if (!(life & 1)) {
            buf[0] = '\0';
            return 0;
        }
        size_t len = name_load(t, slot, buf);
        weir_fence_acquire();
        if (weir_load_relaxed(&hot->generation) == life)
            return len;
    }
}

bool weir_table_is_below(const struct weir_table *t, uint32_t slot,
                         uint32_t above)
{
    const struct hot *hot = weir_hot(t, slot);
    if (!(weir_load_acquire(&hot->generation) & 1))
        return false;
    uint32_t up = weir_parent(hot);
    /* Between two edits the parents may form a cycle. */
    for (int i = 0; up != WEIR_SLOT_NONE && i < WEIR_DEPTH_MAX; i++) {
        if (up == above)
            return true;
        up = weir_parent(weir_hot(t, up));
    }
    return false;
}

/* ---- The index ---- */

uint64_t weir_table_hash(const struct weir_table *t, struct weir_text name)
{
    return weir_hash(name, t->seed);
}

static struct bucket *first_bucket(const struct weir_table *t, uint64_t hash)
{
    return weir_index(t, (uint32_t)hash & t->bucket_mask);
}

static struct bucket *second_bucket(const struct weir_table *t, uint64_t hash)
{
    uint32_t other =
        (uint32_t)hash ^ ((uint32_t)(hash >> 32) | 1) * 0x9e3779b1u;
    return weir_index(t, other & t->bucket_mask);
}

void weir_table_prefetch(const struct weir_table *t, uint64_t hash)
{
    __builtin_prefetch(first_bucket(t, hash));
    __builtin_prefetch(second_bucket(t, hash));
}

static bool find_in(const struct weir_table *t, const struct bucket *bucket,
                    uint32_t tag, const struct key *key, struct weir_text name,
                    struct weir_ref *out)
{
    for (int i = 0; i < BUCKET_ENTRIES; i++) {
        /* acquire: pairs with the release in weir_slot_publish(). */
        uint64_t entry = weir_load_acquire(&bucket->entry[i]);
        if (entry >> 32 != tag || entry == 0)
            continue;
        uint32_t slot = (uint32_t)entry - 1;
        __builtin_prefetch(weir_name(t, slot));
        uint32_t generation = weir_load_acquire(&weir_hot(t, slot)->generation);
        if (!name_equal(t, slot, key, name))
            continue;
        out->slot = slot;
        out->generation = generation;
        return true;
    }
    return false;
}

static inline bool find_any(const struct weir_table *t, struct weir_text name,
                            uint64_t hash, struct weir_ref *out)
{
    struct key key = key_of(name);
    uint32_t tag = (uint32_t)(hash >> 32);
    return find_in(t, first_bucket(t, hash), tag, &key, name, out) ||
           find_in(t, second_bucket(t, hash), tag, &key, name, out);
}

bool weir_table_find_hashed(struct weir_table *t, struct weir_text name,
                            uint64_t hash, struct weir_ref *out)
{
    struct weir_ref ref;
    if (!find_any(t, name, hash, &ref) || !(ref.generation & 1))
        return false;
    *out = ref;
    return true;
}

bool weir_table_find(struct weir_table *t, struct weir_text name,
                     struct weir_ref *out)
{
    if (name.len == 0 || name.len > WEIR_NAME_MAX)
        return false;
    return weir_table_find_hashed(t, name, weir_table_hash(t, name), out);
}

uint32_t weir_slot_find(const struct weir_table *t, struct weir_text name)
{
    struct weir_ref ref;
    if (name.len == 0 || name.len > WEIR_NAME_MAX ||
        !find_any(t, name, weir_table_hash(t, name), &ref))
        return WEIR_SLOT_NONE;
    return ref.slot;
}

static int bucket_room(const struct bucket *bucket)
{
    int room = 0;
    for (int i = 0; i < BUCKET_ENTRIES; i++)
        room += bucket->entry[i] == 0;
    return room;
}

/* The first bucket while two places stay free in it: most lookups then end in
 * their first line. Otherwise the emptier of the two. */
static struct bucket *choose_bucket(const struct weir_table *t, uint64_t hash)
{
    struct bucket *first = first_bucket(t, hash);
    struct bucket *second = second_bucket(t, hash);
    int room = bucket_room(first);
    return room > 2 || room >= bucket_room(second) ? first : second;
}

/* False: no place. */
static bool index_insert(struct weir_table *t, uint32_t slot, uint64_t hash)
{
    struct bucket *bucket = choose_bucket(t, hash);
    for (int i = 0; i < BUCKET_ENTRIES; i++) {
        if (bucket->entry[i] != 0)
            continue;
        uint64_t entry = (hash >> 32 << 32) | (slot + 1);
        /* release: the name is complete before it is found. */
        weir_store_release(&bucket->entry[i], entry);
        return true;
    }
    return false;
}

static void index_remove(struct weir_table *t, uint32_t slot)
{
    char buf[WEIR_NAME_MAX + 1];
    size_t len = name_load(t, slot, buf);
    uint64_t hash = weir_table_hash(t, (struct weir_text){ buf, len });
    uint64_t entry = (hash >> 32 << 32) | (slot + 1);
    struct bucket *buckets[] = { first_bucket(t, hash),
                                 second_bucket(t, hash) };
    for (int b = 0; b < 2; b++) {
        for (int i = 0; i < BUCKET_ENTRIES; i++) {
            if (buckets[b]->entry[i] == entry)
                weir_store_release(&buckets[b]->entry[i], 0);
        }
    }
}

/* ---- Slots ---- */

/* Resets a free slot for its next life. Its count continues, because only
 * differences of counts are reported. */
static void slot_reset(struct weir_table *t, uint32_t slot)
{
    struct cold *cold = weir_cold(t, slot);
    weir_store_relaxed(&cold->rule, WEIR_SLOT_NONE);
    cold->aux = CHUNK_NONE;
    cold->aux_len = 0;
    cold->refs = 0;
    cold->created = 0;
    cold->seen = 0;
    cold->unpinned = 0;
    weir_store_relaxed(&cold->hold, 0);
    weir_shadow_forget(t, slot);
    struct hot *hot = weir_hot(t, slot);
    uint64_t count = weir_load_relaxed(&hot->count);
    weir_store_relaxed(&cold->settled, count);
    /* The first use of a slot is reported at once: no root knows of it. */
    weir_store_relaxed(&cold->report_at, count);
    weir_store_relaxed(&hot->up, UP_NONE);
    weir_store_relaxed(&hot->stop, count + WEIR_COUNT_FAR);
    weir_store_relaxed(&hot->report_within, WEIR_MINI_FAR);
    /* release: a thread that frees it after a crash finds no parent and no
     * chunks of its former life. */
    weir_store_release(&cold->state, WEIR_SLOT_MAKING);
}

uint32_t weir_slot_take(struct weir_table *t, struct weir_text name)
{
    uint32_t slot = t->free_head;
    bool fresh = slot == WEIR_SLOT_NONE;
    if (fresh) {
        if (t->used == t->slots)
            return WEIR_SLOT_NONE;
        slot = t->used;
    }
    if (!name_store(t, slot, name))
        return WEIR_SLOT_NONE;
    if (!fresh)
        t->free_head = weir_cold(t, slot)->aux;
    slot_reset(t, slot);
    /* release: a walk up to 'used' finds complete slots. */
    if (fresh)
        weir_store_release(&t->used, slot + 1);
    weir_store_relaxed(&t->live, t->live + 1);
    if (!index_insert(t, slot, weir_table_hash(t, name))) {
        weir_slot_release(t, slot);
        return WEIR_SLOT_NONE;
    }
    return slot;
}

void weir_slot_publish(struct weir_table *t, uint32_t slot)
{
    uint32_t *generation = &weir_hot(t, slot)->generation;
    weir_assert(!(*generation & 1));
    /* release: a thread that finds it alive finds it complete. */
    weir_store_release(generation, *generation + 1);
}

void weir_slot_release(struct weir_table *t, uint32_t slot)
{
    struct hot *hot = weir_hot(t, slot);
    struct cold *cold = weir_cold(t, slot);
    weir_store(&hot->generation, hot->generation + (hot->generation & 1));
    index_remove(t, slot);
    weir_bucket_state_drop(t, slot, t->origin);
    weir_slot_unadapt(t, slot);
    weir_store_release(&cold->state, WEIR_SLOT_FREE);
    weir_chunks_free(t, weir_name(t, slot)->more);
    weir_chunks_free(t, cold->aux);
    cold->aux = t->free_head;
    t->free_head = slot;
    weir_store_relaxed(&t->live, t->live - 1);
}

bool weir_table_ref_lives(const struct weir_table *t, struct weir_ref ref)
{
    return ref.slot < t->slots && weir_ref_is_live(t, ref);
}

uint32_t weir_table_used(const struct weir_table *t)
{
    return weir_load_acquire(&t->used);
}

uint32_t weir_table_live(const struct weir_table *t)
{
    return weir_load_relaxed(&t->live);
}

/* ---- Stripes ---- */

uint32_t weir_table_claim_stripe_as(struct weir_table *t, uint32_t process)
{
    for (uint32_t i = t->commons; i < t->stripe_count; i++) {
        uint32_t free = 0;
        struct weir_stripe *stripe = weir_stripe(t, i);
        if (weir_load_relaxed(&stripe->owned) == 0 &&
            weir_cas(&stripe->owned, &free, process + 1)) {
            weir_store_relaxed(&stripe->used, 1);
            return i;
        }
    }
    return process;
}

uint32_t weir_table_claim_stripe(struct weir_table *t)
{
    return weir_table_claim_stripe_as(t, 0);
}

void weir_table_release_stripe(struct weir_table *t, uint32_t stripe)
{
    if (stripe < t->commons)
        return;
    /* release: the next owner continues from this one's counts. */
    weir_store_release(&weir_stripe(t, stripe)->owned, 0);
}

/* A stripe that threads share needs the locked add; a stripe with one owner
 * doesn't. */
static void stripe_count(const struct weir_table *t, uint64_t *counter,
                         uint32_t stripe)
{
    if (stripe < t->commons)
        weir_fetch_add(counter, 1);
    else
        weir_store_relaxed(counter, *counter + 1);
}

void weir_table_count_unknown(struct weir_table *t, uint32_t stripe)
{
    stripe_count(t, &weir_stripe(t, stripe)->unknown, stripe);
}

void weir_table_count_overflow(struct weir_table *t, uint32_t stripe)
{
    stripe_count(t, &weir_stripe(t, stripe)->overflowed, stripe);
}

uint64_t weir_table_unknown(const struct weir_table *t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->stripe_count; i++)
        sum += weir_load_relaxed(&weir_stripe(t, i)->unknown);
    return sum;
}

uint64_t weir_table_overflowed(const struct weir_table *t)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->stripe_count; i++)
        sum += weir_load_relaxed(&weir_stripe(t, i)->overflowed);
    return sum;
}
