/* SPDX-License-Identifier: MIT
 * bench/anchors.c - the floors: the machine's own cost of the unavoidable
 * steps.
 *
 * A limiter that is exact among threads pays at least one locked instruction a
 * link of its chain, and one miss for each line that isn't in the cache. So the
 * floors are exactly these: locked adds and compare-and-swaps, on lines of one
 * thread or of two; three misses out of four million lines, in the two possible
 * layouts of a chain
 *
 *     known together      i, j, k are all known: three misses at once
 *     by parent pointers  i has j, j has k: three, one after the other
 *
 * and the steps before a decision: a clock read, a name's hash and probe.
 *
 * A processor runs ahead: in a loop of decisions the misses of the next one
 * begin before the last has ended, and the figure is neither's. A server
 * decides once a request and does other work in between, so the cold rows fence
 * each operation off from the next one, here and in the rows compared with
 * these; a row named "back to back" leaves the fence out.
 *
 * The cold rows walk a random permutation, so that no line comes twice before
 * all have come. The order is read in sequence, which costs next to nothing
 * beside the misses. Pages are small ones, as from malloc() and mapped files:
 * TLB misses are a part of the cost, here and in the rows compared with it. */

#include "rows.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HOT_NAMES 64u
#define HOT_SLOTS 128u /* a power of 2, half full */
#define COLD_NAMES (4u << 20)
#define COLD_SLOTS (8u << 20)

struct line {
    uint64_t count;
    uint32_t parent;
    char rest[52];
};

/* A name stored at its hash's place: 64 bytes, one line. */
struct name_slot {
    uint64_t hash;
    uint32_t number;
    uint32_t len;
    char name[48];
};

struct hot {
    struct line own[2][3]; /* of each thread */
    char gap[192];         /* the prefetcher pulls neighbours */
    struct line shared[3];
    char gap_too[192];
    struct name_slot slots[HOT_SLOTS];
    char names[HOT_NAMES][BENCH_NAME_LEN];
};

struct cold {
    struct line *lines;
    uint32_t *order;
    uint32_t next;
};

struct cold_names {
    struct name_slot *slots;
    char *names; /* in the order of the requests */
    uint32_t next;
};

void bench_name_write(char *out, uint32_t number)
{
    memcpy(out, "tenant/0000000000/object", BENCH_NAME_LEN);
    for (int i = 16; number != 0; i--, number /= 10)
        out[i] = (char)('0' + number % 10);
}

uint32_t *bench_shuffle(uint32_t count, uint32_t seed)
{
    uint32_t *order = malloc(count * sizeof(*order));
    if (order == NULL)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    uint64_t x = 0x9e3779b97f4a7c15u + seed;
    for (uint32_t i = count - 1; i > 0; i--) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        uint32_t k = (uint32_t)(((x >> 32) * (i + 1ull)) >> 32);
        uint32_t swapped = order[i];
        order[i] = order[k];
        order[k] = swapped;
    }
    return order;
}

static void slot_insert(struct name_slot *slots, uint32_t mask,
                        const char *name, uint32_t number)
{
    uint64_t hash = XXH3_64bits(name, BENCH_NAME_LEN);
    uint32_t at = (uint32_t)hash & mask;
    while (slots[at].len != 0)
        at = (at + 1) & mask;
    slots[at].hash = hash;
    slots[at].number = number;
    slots[at].len = BENCH_NAME_LEN;
    memcpy(slots[at].name, name, BENCH_NAME_LEN);
}

static inline uint32_t slot_find(const struct name_slot *slots, uint32_t mask,
                                 const char *name)
{
    uint64_t hash = XXH3_64bits(name, BENCH_NAME_LEN);
    uint32_t at = (uint32_t)hash & mask;
    while (slots[at].len != 0) {
        if (slots[at].hash == hash && slots[at].len == BENCH_NAME_LEN &&
            memcmp(slots[at].name, name, BENCH_NAME_LEN) == 0)
            return slots[at].number;
        at = (at + 1) & mask;
    }
    return UINT32_MAX;
}

/* ---- Hot ---- */

static void *hot_setup(const char **out_note)
{
    (void)out_note;
    struct hot *hot = bench_pages(sizeof(*hot));
    if (hot == NULL)
        return NULL;
    for (uint32_t i = 0; i < HOT_NAMES; i++) {
        bench_name_write(hot->names[i], i);
        slot_insert(hot->slots, HOT_SLOTS - 1, hot->names[i], i);
    }
    return hot;
}

static void hot_teardown(void *state)
{
    bench_pages_free(state, sizeof(struct hot));
}

const struct bench_fixture bench_lines_hot = { hot_setup, hot_teardown };

static inline void add(uint64_t *word)
{
    bench_keep(__atomic_fetch_add(word, 1, __ATOMIC_RELAXED));
}

void bench_add_own(void *state, int thread, uint64_t n)
{
    struct hot *hot = state;
    for (uint64_t i = 0; i < n; i++)
        add(&hot->own[thread][0].count);
}

void bench_add_shared(void *state, int thread, uint64_t n)
{
    struct hot *hot = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++)
        add(&hot->shared[0].count);
}

void bench_add3_own(void *state, int thread, uint64_t n)
{
    struct hot *hot = state;
    for (uint64_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            add(&hot->own[thread][k].count);
}

void bench_add3_shared(void *state, int thread, uint64_t n)
{
    struct hot *hot = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            add(&hot->shared[k].count);
}

static void cas_loop(uint64_t *word, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t was = __atomic_load_n(word, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(word, &was, was + 1, false,
                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            ;
    }
}

void bench_cas_own(void *state, int thread, uint64_t n)
{
    struct hot *hot = state;
    cas_loop(&hot->own[thread][0].count, n);
}

void bench_cas_shared(void *state, int thread, uint64_t n)
{
    struct hot *hot = state;
    (void)thread;
    cas_loop(&hot->shared[0].count, n);
}

static void clock_loop(clockid_t id, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct timespec at;
        clock_gettime(id, &at);
        bench_keep((uint64_t)at.tv_nsec);
    }
}

void bench_clock_monotonic(void *state, int thread, uint64_t n)
{
    (void)state;
    (void)thread;
    clock_loop(CLOCK_MONOTONIC, n);
}

void bench_clock_coarse(void *state, int thread, uint64_t n)
{
    (void)state;
    (void)thread;
    clock_loop(CLOCK_MONOTONIC_COARSE, n);
}

void bench_clock_tsc(void *state, int thread, uint64_t n)
{
    (void)state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++)
        bench_keep(__rdtsc());
}

void bench_name_hot(void *state, int thread, uint64_t n)
{
    struct hot *hot = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        bench_keep(
            slot_find(hot->slots, HOT_SLOTS - 1, hot->names[i % HOT_NAMES]));
        bench_fence();
    }
}

/* ---- Cold ---- */

static void cold_teardown(void *state)
{
    struct cold *cold = state;
    bench_pages_free(cold->lines, BENCH_COLD_LINES * sizeof(struct line));
    free(cold->order);
    free(cold);
}

static void *cold_setup(const char **out_note)
{
    (void)out_note;
    struct cold *cold = calloc(1, sizeof(*cold));
    if (cold == NULL)
        return NULL;
    cold->lines = bench_pages(BENCH_COLD_LINES * sizeof(struct line));
    cold->order = bench_shuffle(BENCH_COLD_LINES, 0);
    if (cold->lines == NULL || cold->order == NULL) {
        cold_teardown(cold);
        return NULL;
    }
    /* The lines of a chain are neighbours in the order, not in memory. */
    for (uint32_t i = 0; i + 1 < BENCH_COLD_LINES; i++)
        cold->lines[cold->order[i]].parent = cold->order[i + 1];
    return cold;
}

const struct bench_fixture bench_lines_cold = { cold_setup, cold_teardown };

static uint32_t cold_advance(struct cold *cold)
{
    uint32_t at = cold->next;
    cold->next = at + 6 < BENCH_COLD_LINES ? at + 3 : 0;
    return at;
}

/* The read pass that any all-or-none decision needs; it lets the three
 * misses run at once, which three locked adds alone would not. */
static inline void cold_chain(struct cold *cold)
{
    const uint32_t *at = &cold->order[cold_advance(cold)];
    uint64_t sum = 0;
    for (int k = 0; k < 3; k++)
        sum += __atomic_load_n(&cold->lines[at[k]].count, __ATOMIC_RELAXED);
    bench_keep(sum);
    for (int k = 0; k < 3; k++)
        add(&cold->lines[at[k]].count);
}

void bench_cold_together(void *state, int thread, uint64_t n)
{
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        cold_chain(state);
        bench_alone();
    }
}

void bench_cold_stream(void *state, int thread, uint64_t n)
{
    (void)thread;
    for (uint64_t i = 0; i < n; i++)
        cold_chain(state);
}

void bench_cold_parents(void *state, int thread, uint64_t n)
{
    struct cold *cold = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t at = cold->order[cold_advance(cold)];
        for (int k = 0; k < 3; k++) {
            struct line *line = &cold->lines[at];
            at = line->parent;
            add(&line->count);
        }
        bench_alone();
    }
}

static void cold_names_teardown(void *state)
{
    struct cold_names *cold = state;
    bench_pages_free(cold->slots, COLD_SLOTS * sizeof(struct name_slot));
    free(cold->names);
    free(cold);
}

static void *cold_names_setup(const char **out_note)
{
    (void)out_note;
    struct cold_names *cold = calloc(1, sizeof(*cold));
    uint32_t *order = bench_shuffle(COLD_NAMES, 0);
    if (cold == NULL || order == NULL) {
        free(cold);
        free(order);
        return NULL;
    }
    cold->slots = bench_pages(COLD_SLOTS * sizeof(struct name_slot));
    cold->names = malloc((size_t)COLD_NAMES * BENCH_NAME_LEN);
    if (cold->slots == NULL || cold->names == NULL) {
        cold_names_teardown(cold);
        free(order);
        return NULL;
    }
    for (uint32_t i = 0; i < COLD_NAMES; i++) {
        char *name = cold->names + (size_t)i * BENCH_NAME_LEN;
        bench_name_write(name, i);
        slot_insert(cold->slots, COLD_SLOTS - 1, name, i);
    }
    /* Requested in another order than inserted: the first names inserted have
     * the shortest probes. */
    for (uint32_t i = 0; i < COLD_NAMES; i++)
        bench_name_write(cold->names + (size_t)i * BENCH_NAME_LEN, order[i]);
    free(order);
    return cold;
}

const struct bench_fixture bench_names_cold = { cold_names_setup,
                                                cold_names_teardown };

void bench_name_cold(void *state, int thread, uint64_t n)
{
    struct cold_names *cold = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        const char *name = cold->names + (size_t)cold->next * BENCH_NAME_LEN;
        cold->next = cold->next + 1 < COLD_NAMES ? cold->next + 1 : 0;
        bench_keep(slot_find(cold->slots, COLD_SLOTS - 1, name));
        bench_alone();
    }
}
