/* SPDX-License-Identifier: MIT
 * protocol/resp/throttle.c - cells of a cache line, an index from hashes to
 * them, and a clock hand for eviction.
 *
 *     key --hash--> index --> cells:  | tat, key | tat, key | free | …
 *                                           ^ hand
 *
 * A cell's tat is the instant at which its bucket will be empty: a request of q
 * units adds q * period/count to the larger of tat and now, and passes if the
 * sum isn't ahead of now by more than the burst. As in redis-cell the cell
 * belongs to the key alone: a request for the key with another rate finds the
 * same tat.
 *
 * Seven units in 60 s take 8571428571 3/7 ns each. If each unit's time were
 * rounded to nanoseconds, a client that has six units left would be told five,
 * and the roundings of many requests would add up. So a request computes in
 * ticks of 1/count ns: a unit is period ticks (the period in ns), the limit is
 * limit * period ticks, and all sums are whole numbers. In the cell a tat is
 * nanoseconds and 2^-32 ns, rounded up. The next request rounds that down to
 * its ticks, and finds the very tick that was stored if count is at most 2^32,
 * for then a tick isn't shorter than 2^-32 ns. With a larger count the two
 * roundings never make a tat earlier. Only a request with another count than
 * the last one can find the tat up to one of its own ticks earlier, which is at
 * most a nanosecond.
 *
 * Rejected: a tat as a fraction with its denominator. It is exact for one
 * count too, and its cell would no longer fit in a cache line.
 *
 * Each new key checks a few cells at the hand and removes the idle ones. The
 * table thus stays as large as the keys in use, without a sweep that would
 * block the loop. */

#include "protocol/resp/throttle.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/base/index.h"
#include "core/quota/long_name.h"

#define LOOKED_AT 4    /* cells checked for each new key */
#define CHOSEN_FROM 16 /* cells considered for an eviction */
#define INLINE_MAX 40  /* bytes of a key that is stored in its cell */
#define NONE UINT32_MAX
#define PERIOD_MAX ((int64_t)1 << 33) /* seconds: in ns within 63 bits */
/* 73 years, in ns: times are cut to it, so that sums of two fit in 64 bits. A
 * burst that takes longer to empty is cut too; a quantity is compared with the
 * limit by units. */
#define TIME_MAX ((int64_t)1 << 61)
#define PART_BITS 32 /* of a nanosecond's part in a tat */

/* An instant: ns, and 'part' * 2^-32 ns. */
struct tat {
    int64_t ns;
    uint32_t part;
};

struct cell {
    uint64_t hash;
    int64_t tat_ns;
    uint32_t tat_part;
    uint16_t key_len;
    bool is_used;
    union {
        uint32_t next; /* in the list of free cells, if free */
        char here[INLINE_MAX];
        char *there; /* owned; key_len > sizeof here */
    } key;
};

_Static_assert(sizeof(struct cell) == 64, "a cell is a cache line");
_Static_assert(WEIR_NAME_MAX <= UINT16_MAX, "a kept key's length fits");

struct weir_throttle {
    const struct weir_mem *mem;
    struct weir_index index;
    struct cell *cells; /* owned */
    size_t capacity;    /* of 'cells' */
    uint32_t made;      /* cells ever used */
    uint32_t free;      /* head of the list of free cells; or NONE */
    uint32_t hand;
    uint64_t seed;
    struct weir_throttle_counts counts;
};

/* ---- Cells ---- */

static bool is_key_outside(const struct cell *cell)
{
    return cell->key_len > sizeof cell->key.here;
}

static const char *cell_key(const struct cell *cell)
{
    return is_key_outside(cell) ? cell->key.there : cell->key.here;
}

static struct tat tat_of(const struct cell *cell)
{
    return (struct tat){ cell->tat_ns, cell->tat_part };
}

static bool is_past(struct tat tat, int64_t now)
{
    return tat.ns < now || (tat.ns == now && tat.part == 0);
}

static struct cell *find_cell(const struct weir_throttle *t,
                              struct weir_text key, uint64_t hash)
{
    size_t cursor = 0;
    uint32_t at;
    while (weir_index_find(&t->index, hash, &cursor, &at)) {
        struct cell *cell = &t->cells[at];
        if (cell->key_len == key.len &&
            memcmp(cell_key(cell), key.p, key.len) == 0)
            return cell;
    }
    return NULL;
}

static void remove_cell(struct weir_throttle *t, struct cell *cell)
{
    weir_assert(cell->is_used && t->counts.keys > 0);
    weir_index_remove(&t->index, cell->hash, (uint32_t)(cell - t->cells));
    if (is_key_outside(cell))
        t->mem->free(t->mem->context, cell->key.there, cell->key_len);
    cell->is_used = false;
    cell->key_len = 0;
    cell->key.next = t->free;
    t->free = (uint32_t)(cell - t->cells);
    t->counts.keys--;
}

static struct cell *move_hand(struct weir_throttle *t)
{
    weir_assert(t->made > 0);
    t->hand = t->hand + 1 < t->made ? t->hand + 1 : 0;
    return &t->cells[t->hand];
}

/* Removes idle cells near the hand. */
static void remove_idle_cells(struct weir_throttle *t, int64_t now)
{
    for (uint32_t i = 0; i < LOOKED_AT && i < t->made; i++) {
        struct cell *cell = move_hand(t);
        if (cell->is_used && is_past(tat_of(cell), now))
            remove_cell(t, cell);
    }
}

/* Removes, among some cells at the hand, the one nearest to idle; all are
 * used. */
static void evict_cell(struct weir_throttle *t, int64_t now)
{
    struct cell *best = move_hand(t);
    for (uint32_t i = 1; i < CHOSEN_FROM; i++) {
        struct cell *cell = move_hand(t);
        if (cell->tat_ns < best->tat_ns)
            best = cell;
    }
    t->counts.evicted += !is_past(tat_of(best), now);
    remove_cell(t, best);
}

/* Adds a free cell; false: no memory. */
static bool make_cell(struct weir_throttle *t)
{
    weir_assert(t->free == NONE && t->made < t->counts.keys_max);
    if (t->made == t->capacity) {
        struct cell *grown = weir_mem_grow(t->mem, t->cells, sizeof *grown,
                                           &t->capacity, t->made + 1u);
        if (!grown)
            return false;
        t->cells = grown;
    }
    t->cells[t->made].key.next = NONE;
    t->free = t->made++;
    return true;
}

/* Ensures a free cell; false: no memory. */
static bool make_cell_room(struct weir_throttle *t, int64_t now)
{
    remove_idle_cells(t, now);
    if (t->free != NONE)
        return true;
    if (t->made < t->counts.keys_max)
        return make_cell(t);
    evict_cell(t, now);
    return true;
}

static struct cell *insert_cell(struct weir_throttle *t, struct weir_text key,
                                uint64_t hash, int64_t now)
{
    bool is_long = key.len > INLINE_MAX;
    if (!make_cell_room(t, now))
        return NULL;
    char *there = is_long ? t->mem->alloc(t->mem->context, key.len) : NULL;
    if ((is_long && !there) ||
        weir_index_add(&t->index, t->mem, hash, t->free) < 0) {
        t->mem->free(t->mem->context, there, there ? key.len : 0);
        return NULL;
    }
    struct cell *cell = &t->cells[t->free];
    weir_assert(!cell->is_used && t->counts.keys < t->counts.keys_max);
    t->free = cell->key.next;
    cell->hash = hash;
    cell->key_len = (uint16_t)key.len;
    cell->is_used = true;
    if (is_long)
        cell->key.there = there;
    if (key.len > 0)
        memcpy(is_long ? there : cell->key.here, key.p, key.len);
    t->counts.keys++;
    return cell;
}

/* ---- Arithmetic ---- */

/* Rounded towards 0. 64 bits nearly always suffice, and take a fifth of the
 * time. */
static weir_i128 quotient(weir_i128 a, int64_t b)
{
    return WEIR_LIKELY(a == (int64_t)a) ? (int64_t)a / b : a / b;
}

static weir_i128 within(weir_i128 value, weir_i128 most)
{
    if (value > most)
        return most;
    return value < -most ? -most : value;
}

static int64_t period_of(const struct weir_throttle_ask *ask)
{
    int64_t period = ask->period_s < PERIOD_MAX ? ask->period_s : PERIOD_MAX;
    return period * (int64_t)WEIR_SECOND;
}

/* The time of 'units' in ticks, cut to TIME_MAX. */
static weir_i128 time_of_units(const struct weir_throttle_ask *ask,
                               int64_t units)
{
    return within((weir_i128)period_of(ask) * units,
                  (weir_i128)TIME_MAX * ask->count);
}

/* Whole units in 'time', of ticks. */
static int64_t units_in(const struct weir_throttle_ask *ask, weir_i128 time)
{
    return (int64_t)within(quotient(time, period_of(ask)), INT64_MAX);
}

/* Ticks from 'now' to the tat; 0: it is past. */
static weir_i128 ticks_to(const struct weir_throttle_ask *ask, struct tat tat,
                          int64_t now)
{
    if (tat.ns < now)
        return 0;
    weir_i128 part = (weir_i128)tat.part * ask->count >> PART_BITS;
    return (weir_i128)(tat.ns - now) * ask->count + part;
}

/* The tat that is 'ticks' after 'now' (before it, if below 0). */
static struct tat tat_after(const struct weir_throttle_ask *ask,
                            weir_i128 ticks, int64_t now)
{
    int64_t count = ask->count;
    int64_t ns = (int64_t)quotient(ticks, count);
    int64_t rest = (int64_t)(ticks - (weir_i128)ns * count);
    if (rest < 0) {
        ns--;
        rest += count;
    }
    weir_i128 part =
        quotient(((weir_i128)rest << PART_BITS) + (count - 1), count);
    bool is_whole = part >> PART_BITS != 0; /* rounded up to the next one */
    return (struct tat){ now + ns + is_whole, is_whole ? 0 : (uint32_t)part };
}

/* Rounds durations as redis-cell does. */
static int64_t round_to_seconds(const struct weir_throttle_ask *ask,
                                weir_i128 ticks)
{
    int64_t second = WEIR_SECOND;
    int64_t ns = (int64_t)quotient(ticks, ask->count);
    return ns / second + (ns % second >= (int64_t)WEIR_MILLISECOND);
}

/* Decides on 'tat'; returns the ticks from 'now' to the new tat. */
static weir_i128 move_tat(const struct weir_throttle_ask *ask, struct tat tat,
                          struct weir_throttle_reply *out, int64_t now)
{
    int64_t limit = ask->max_burst < INT64_MAX ? ask->max_burst + 1 : INT64_MAX;
    weir_i128 burst = time_of_units(ask, limit);
    weir_i128 cost = time_of_units(ask, ask->quantity);
    weir_i128 ahead = ticks_to(ask, tat, now);
    bool fits = ask->quantity <= limit && cost <= burst;
    bool passes = fits && ahead + cost <= burst;
    weir_i128 ttl = passes ? ahead + cost : ahead;
    int64_t left = units_in(ask, burst - ttl);
    *out = (struct weir_throttle_reply){
        .limited = !passes,
        .limit = limit,
        .remaining = left > 0 ? left : 0,
        .retry_after_s =
            passes || !fits ? -1 : round_to_seconds(ask, ahead + cost - burst),
        .reset_after_s = round_to_seconds(ask, ttl),
    };
    return ttl;
}

static int check_range(const struct weir_throttle_ask *ask)
{
    bool sound = ask->max_burst >= 0 && ask->count > 0 && ask->period_s > 0;
    return sound ? 0 : WEIR_EINVAL;
}

int weir_throttle_decide(struct weir_throttle *throttle,
                         const struct weir_throttle_ask *ask,
                         struct weir_throttle_reply *out, weir_instant now)
{
    struct weir_throttle *t = throttle;
    struct weir_throttle_reply reply;
    int64_t at = (int64_t)now;
    int error = check_range(ask);
    if (error < 0)
        return error;
    char buf[WEIR_NAME_MAX];
    struct weir_text key = weir_name_kept(ask->key, buf);
    uint64_t hash = weir_hash(key, t->seed);
    struct cell *cell = find_cell(t, key, hash);
    struct tat tat = cell ? tat_of(cell) : (struct tat){ at, 0 };
    weir_i128 ttl = move_tat(ask, tat, &reply, at);
    bool changes = !ask->probe && !reply.limited && ask->quantity != 0;
    /* A key that is idle afterwards needs no cell. */
    if (changes && !cell && ttl > 0) {
        cell = insert_cell(t, key, hash, at);
        if (!cell)
            return WEIR_ENOMEM;
    }
    if (changes && cell) {
        tat = tat_after(ask, ttl, at);
        cell->tat_ns = tat.ns;
        cell->tat_part = tat.part;
    }
    weir_assert(t->counts.keys <= t->made && t->made <= t->counts.keys_max);
    if (!ask->probe)
        *(reply.limited ? &t->counts.limited : &t->counts.passed) += 1;
    *out = reply;
    return 0;
}

bool weir_throttle_forget(struct weir_throttle *throttle, struct weir_text key,
                          weir_instant now)
{
    char buf[WEIR_NAME_MAX];
    key = weir_name_kept(key, buf);
    struct cell *cell =
        find_cell(throttle, key, weir_hash(key, throttle->seed));
    if (!cell)
        return false;
    bool counted = !is_past(tat_of(cell), (int64_t)now);
    remove_cell(throttle, cell);
    return counted;
}

/* ---- Life ---- */

struct weir_throttle *weir_throttle_new(const struct weir_mem *mem,
                                        uint32_t keys_max, uint64_t seed)
{
    weir_assert(keys_max > 0 && keys_max <= WEIR_THROTTLE_KEYS_MAX);
    struct weir_throttle *made = mem->alloc(mem->context, sizeof *made);
    if (!made)
        return NULL;
    made->mem = mem;
    made->seed = seed;
    made->free = NONE;
    made->counts.keys_max = keys_max;
    return made;
}

void weir_throttle_free(struct weir_throttle **throttle)
{
    struct weir_throttle *t = *throttle;
    if (!t)
        return;
    *throttle = NULL;
    for (uint32_t i = 0; i < t->made; i++)
        if (t->cells[i].is_used && is_key_outside(&t->cells[i]))
            t->mem->free(t->mem->context, t->cells[i].key.there,
                         t->cells[i].key_len);
    weir_index_fini(&t->index, t->mem);
    t->mem->free(t->mem->context, t->cells, t->capacity * sizeof *t->cells);
    t->mem->free(t->mem->context, t, sizeof *t);
}

struct weir_throttle_counts weir_throttle_counts(
    const struct weir_throttle *throttle)
{
    return throttle->counts;
}
