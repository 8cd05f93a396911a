/* SPDX-License-Identifier: MIT
 * table/table_names.c - names: their bytes, and the index that finds them.
 *
 * Lookups run concurrently with the writer, without a lock. These rules keep
 * them correct:
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
 *     compares unequal, or is a name of the life that ended. */

#include "core/table/table_grow_internal.h"
#include "core/table/table_index.h"
#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"

#include <string.h>

#include "core/base/hash.h"

/* ---- Chunks: tails of long names, patterns of parents ---- */

static uint32_t chunk_take(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->chunk_used <= t->chunk_count);
    uint32_t index = t->chunk_head;
    if (index != CHUNK_NONE) {
        t->chunk_head = weir_chunk(t, index)->next;
        return index;
    }
    if (t->chunk_used == weir_chunks_of(weir_load_acquire(&t->committed))) {
        weir_table_note_short(t);
        return CHUNK_NONE;
    }
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
    weir_assert(len <= WEIR_NAME_MAX);
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
    /* A reader without the lock may follow another name's chunks, or take the
     * next free slot of a removed template for a chunk: every step is bounded
     * by the length and by the memory of the pool. */
    uint32_t count = weir_chunks_of(weir_load_relaxed(&t->committed));
    while (len > 0 && first < count) {
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
    weir_assert(weir_table_is_locked(t));
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
              "name_key() shifts as if bytes came lowest first");

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

static inline struct key name_key(struct weir_text name)
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

bool weir_names_store(struct weir_table *t, uint32_t slot,
                      struct weir_text name)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(name.len > 0 && name.len <= WEIR_NAME_MAX);
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

/* ---- The index ---- */

uint64_t weir_table_hash(const struct weir_table *t, struct weir_text name)
{
    return weir_hash(name, t->seed);
}

void weir_table_prefetch(const struct weir_table *t, uint64_t hash)
{
    uint64_t shape = weir_load_relaxed(&t->index_shape);
    uint32_t tag = weir_name_index_tag(hash);
    __builtin_prefetch(weir_index(t, weir_name_index_first(shape, tag)));
    __builtin_prefetch(weir_index(t, weir_name_index_second(shape, tag)));
}

static bool find_in(const struct weir_table *t,
                    const struct index_bucket *bucket, uint32_t tag,
                    const struct key *key, struct weir_text name,
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
    struct key key = name_key(name);
    uint32_t tag = weir_name_index_tag(hash);
    /* acquire: pairs with the release in split(). */
    uint64_t shape = weir_load_acquire(&t->index_shape);
    for (;;) {
        uint32_t first = weir_name_index_first(shape, tag);
        uint32_t second = weir_name_index_second(shape, tag);
        if (find_in(t, weir_index(t, first), tag, &key, name, out) ||
            find_in(t, weir_index(t, second), tag, &key, name, out))
            return true;
        uint64_t after = weir_load_acquire(&t->index_shape);
        if (WEIR_LIKELY(after == shape))
            return false;
        shape = after;
    }
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

void weir_names_remove(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(slot < t->slots);
    char buf[WEIR_NAME_MAX + 1];
    size_t len = name_load(t, slot, buf);
    weir_name_index_remove(t, slot,
                           weir_table_hash(t, (struct weir_text){ buf, len }));
}
