/* SPDX-License-Identifier: MIT
 * bench/table_rows.c - decisions on the limiter's table, hot and cold.
 *
 * The state of the buckets decides the path of a take, so it is fixed here and
 * named:
 *
 *     loaded  time advances by the leak of one take: the fill stays at half of
 *             low_burst, and a take is a read pass and an add.
 *     empty   time advances faster than the takes: each take finds the bucket
 *             drained and raises 'base' first. Quotas far from their limit are
 *             in this state, and all cold ones.
 *     full    a hard edge, reached: each take is refused.
 *
 * All quotas are counted ones, so that marking them for the report is in the
 * figures: in hot rows the mark is there already (the first take since a report
 * sets it), of the cold rows there is one for either case.
 *
 * Cold rows: chains of three quotas, none shared between two chains, enough for
 * four million quotas, inserted in random order, walked in random order. A
 * server decides once a request, so the cold takes are fenced off from each
 * other (anchors.c). weir_table_prefetch() over a batch is the method of
 * weir_take_many(), so that row isn't fenced. */

#include "rows.h"

#include <stdlib.h>

#include "core/base/base.h"
#include "core/table/table_sync.h"

#define HOT_SLOTS 256u
#define HOT_NAMES 64u
#define CHAINS (BENCH_COLD_LINES / 3)
#define COLD_QUOTAS (CHAINS * 3)
#define BATCH 16u /* names in a batch */
#define STEP 10u  /* nanoseconds between loaded takes */
#define START (WEIR_SECOND * 1000)

struct block {
    struct weir_table *table;
    void *memory;
    size_t size;
};

struct hot_table {
    struct block block;
    struct weir_ref loaded, empty, full, leaf;
    uint32_t stripes[2];
    char names[HOT_NAMES][BENCH_NAME_LEN];
    char gap[128];
    struct {
        weir_instant now; /* of one thread, read by the other */
        char rest[120];
    } clocks[2];
};

struct cold_table {
    struct block block;
    uint32_t stripe;
    uint32_t next;   /* in 'order' */
    uint32_t *order; /* chains */
    struct weir_ref *leaves;
    char *names;
    uint64_t *bits;
    weir_instant now;
};

static bool block_init(struct block *block, uint32_t slots)
{
    struct weir_table_options options = {
        .slots = slots,
        .stripes = 4,
        .seed = 20,
    };
    block->size = weir_table_size(&options);
    block->memory = bench_pages(block->size);
    if (block->memory == NULL)
        return false;
    block->table = weir_table_init(block->memory, &options, START);
    return true;
}

static struct weir_quota quota_of(struct weir_text name,
                                  struct weir_text parent, uint64_t units,
                                  weir_duration per)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = name;
    quota.parent = parent;
    quota.created = 1;
    quota.epoch = 1;
    quota.limit = (struct weir_limit){ .units = units, .per = per };
    return quota;
}

static struct weir_ref put(struct weir_table *table,
                           const struct weir_quota *quota)
{
    struct weir_ref ref;
    if (weir_table_put(table, quota, START) != 0 ||
        !weir_table_find(table, quota->name, &ref))
        abort();
    return ref;
}

/* A quota that leaks 'units' a second. */
static struct weir_ref put_rate(struct hot_table *hot, struct weir_text name,
                                struct weir_text parent, uint64_t units)
{
    struct weir_quota quota = quota_of(name, parent, units, WEIR_SECOND);
    return put(hot->block.table, &quota);
}

static void charge(struct weir_table *table, struct weir_ref ref,
                   uint64_t weight)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_CHARGE,
                                      .weight = weight };
    weir_table_ask(table, 0, ref, &ask, NULL, START);
}

/* Fills the quota and its ancestors with half a second's leak. */
static void load(struct hot_table *hot, struct weir_ref ref, uint64_t units)
{
    charge(hot->block.table, ref, units / 2);
}

static void put_all_loaded(struct hot_table *hot)
{
    struct weir_text none = { 0 };
    uint64_t rate = WEIR_SECOND / STEP;
    hot->loaded = put_rate(hot, WEIR_TEXT("loaded"), none, rate);
    load(hot, hot->loaded, rate);
    put_rate(hot, WEIR_TEXT("top"), none, rate);
    put_rate(hot, WEIR_TEXT("middle"), WEIR_TEXT("top"), rate);
    hot->leaf = put_rate(hot, WEIR_TEXT("leaf"), WEIR_TEXT("middle"), rate);
    load(hot, hot->leaf, rate);
    for (uint32_t i = 0; i < HOT_NAMES; i++) {
        bench_name_write(hot->names[i], i);
        struct weir_text name = { hot->names[i], BENCH_NAME_LEN };
        load(hot, put_rate(hot, name, none, rate / HOT_NAMES),
             rate / HOT_NAMES);
    }
}

/* ---- Hot ---- */

static void *hot_setup(const char **out_note)
{
    (void)out_note;
    struct hot_table *hot = bench_pages(sizeof(*hot));
    if (hot == NULL)
        return NULL;
    if (!block_init(&hot->block, HOT_SLOTS)) {
        bench_pages_free(hot, sizeof(*hot));
        return NULL;
    }
    struct weir_table *table = hot->block.table;
    put_all_loaded(hot);
    struct weir_text none = { 0 };
    struct weir_quota empty =
        quota_of(WEIR_TEXT("empty"), none, WEIR_LIMIT_MAX, WEIR_SECOND);
    hot->empty = put(table, &empty);
    struct weir_quota full =
        quota_of(WEIR_TEXT("full"), none, 1, WEIR_PERIOD_MAX);
    full.low_burst = full.high_burst = (struct weir_burst){ .amount = 10 };
    hot->full = put(table, &full);
    charge(table, hot->full, 20);
    for (int i = 0; i < 2; i++) {
        hot->stripes[i] = weir_table_claim_stripe(table);
        hot->clocks[i].now = START;
    }
    return hot;
}

static void hot_teardown(void *state)
{
    struct hot_table *hot = state;
    bench_pages_free(hot->block.memory, hot->block.size);
    bench_pages_free(hot, sizeof(*hot));
}

const struct bench_fixture bench_table_hot = { hot_setup, hot_teardown };

/* Takes 'n' times; time advances by 'step' each. The two threads' instants are
 * aligned at the begin of a batch, so that neither runs ahead. */
static inline void takes(struct hot_table *hot, int thread, struct weir_ref ref,
                         uint64_t n, unsigned step)
{
    struct weir_table *table = hot->block.table;
    uint32_t stripe = hot->stripes[thread];
    weir_instant now = hot->clocks[thread].now;
    weir_instant other =
        __atomic_load_n(&hot->clocks[!thread].now, __ATOMIC_RELAXED);
    if (other > now)
        now = other;
    for (uint64_t i = 0; i < n; i++) {
        now += step;
        bench_keep(weir_table_take(table, stripe, ref, 1, NULL, now));
    }
    __atomic_store_n(&hot->clocks[thread].now, now, __ATOMIC_RELAXED);
}

void bench_take_one(void *state, int thread, uint64_t n)
{
    struct hot_table *hot = state;
    takes(hot, thread, hot->loaded, n, STEP);
}

void bench_take_empty(void *state, int thread, uint64_t n)
{
    struct hot_table *hot = state;
    takes(hot, thread, hot->empty, n, STEP);
}

void bench_take_refused(void *state, int thread, uint64_t n)
{
    struct hot_table *hot = state;
    takes(hot, thread, hot->full, n, STEP);
}

void bench_take_three(void *state, int thread, uint64_t n)
{
    struct hot_table *hot = state;
    takes(hot, thread, hot->leaf, n, STEP);
}

/* Two threads take twice in the time of one. */
void bench_take_one_2(void *state, int thread, uint64_t n)
{
    struct hot_table *hot = state;
    takes(hot, thread, hot->loaded, n, 2 * STEP);
}

void bench_take_three_2(void *state, int thread, uint64_t n)
{
    struct hot_table *hot = state;
    takes(hot, thread, hot->leaf, n, 2 * STEP);
}

void bench_take_name(void *state, int thread, uint64_t n)
{
    struct hot_table *hot = state;
    struct weir_table *table = hot->block.table;
    weir_instant now = hot->clocks[thread].now;
    for (uint64_t i = 0; i < n; i++) {
        struct weir_text name = { hot->names[i % HOT_NAMES], BENCH_NAME_LEN };
        struct weir_ref ref;
        now += STEP;
        if (!weir_table_find(table, name, &ref))
            abort();
        bench_keep(
            weir_table_take(table, hot->stripes[thread], ref, 1, NULL, now));
    }
    hot->clocks[thread].now = now;
}

/* ---- Cold ---- */

/* Inserts one generation of all chains, in an order of its own, so that the
 * slots of a chain aren't neighbours in memory. 'level' 0: the tops. */
static bool cold_put_level(struct cold_table *cold, uint32_t level)
{
    uint32_t *order = bench_shuffle(CHAINS, level + 2);
    if (order == NULL)
        return false;
    for (uint32_t i = 0; i < CHAINS; i++) {
        uint32_t chain = order[i];
        char name[BENCH_NAME_LEN], parent[BENCH_NAME_LEN];
        bench_name_write(name, chain * 3 + level);
        struct weir_text above = { 0 };
        if (level > 0) {
            bench_name_write(parent, chain * 3 + level - 1);
            above = (struct weir_text){ parent, BENCH_NAME_LEN };
        }
        struct weir_text text = { name, BENCH_NAME_LEN };
        struct weir_quota quota = quota_of(text, above, 100, WEIR_SECOND);
        if (weir_table_put(cold->block.table, &quota, START) != 0)
            abort();
    }
    free(order);
    return true;
}

static void cold_teardown(void *state)
{
    struct cold_table *cold = state;
    bench_pages_free(cold->block.memory, cold->block.size);
    free(cold->order);
    free(cold->leaves);
    free(cold->names);
    free(cold->bits);
    free(cold);
}

static bool cold_allocate(struct cold_table *cold)
{
    if (!block_init(&cold->block, COLD_QUOTAS + CHAINS))
        return false;
    size_t words = weir_table_bits_words(cold->block.table);
    cold->bits = malloc(words * sizeof(*cold->bits));
    cold->order = bench_shuffle(CHAINS, 1);
    cold->leaves = malloc(CHAINS * sizeof(*cold->leaves));
    cold->names = malloc((size_t)CHAINS * BENCH_NAME_LEN);
    return cold->bits != NULL && cold->order != NULL && cold->leaves != NULL &&
           cold->names != NULL;
}

static void *cold_setup(const char **out_note)
{
    (void)out_note;
    struct cold_table *cold = calloc(1, sizeof(*cold));
    if (cold == NULL)
        return NULL;
    if (!cold_allocate(cold) || !cold_put_level(cold, 0) ||
        !cold_put_level(cold, 1) || !cold_put_level(cold, 2)) {
        cold_teardown(cold);
        return NULL;
    }
    struct weir_table *table = cold->block.table;
    cold->stripe = weir_table_claim_stripe(table);
    cold->now = START;
    for (uint32_t i = 0; i < CHAINS; i++) {
        char *name = cold->names + (size_t)i * BENCH_NAME_LEN;
        bench_name_write(name, cold->order[i] * 3 + 2);
        struct weir_text text = { name, BENCH_NAME_LEN };
        if (!weir_table_find(table, text, &cold->leaves[i]))
            abort();
    }
    /* Every link is marked for the report; a second later every bucket is empty
     * again. */
    for (uint32_t i = 0; i < CHAINS; i++)
        weir_table_take(table, cold->stripe, cold->leaves[i], 1, NULL,
                        cold->now);
    cold->now += WEIR_SECOND;
    return cold;
}

const struct bench_fixture bench_table_cold = { cold_setup, cold_teardown };

static uint32_t cold_advance(struct cold_table *cold)
{
    uint32_t at = cold->next;
    cold->next = at + 1 < CHAINS ? at + 1 : 0;
    return at;
}

static inline void cold_take(struct cold_table *cold, struct weir_ref ref)
{
    cold->now += 100;
    bench_keep(weir_table_take(cold->block.table, cold->stripe, ref, 1, NULL,
                               cold->now));
}

void bench_take_cold(void *state, int thread, uint64_t n)
{
    struct cold_table *cold = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        cold_take(cold, cold->leaves[cold_advance(cold)]);
        bench_alone();
    }
}

void bench_take_cold_stream(void *state, int thread, uint64_t n)
{
    struct cold_table *cold = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++)
        cold_take(cold, cold->leaves[cold_advance(cold)]);
}

/* The work of a sync once a report: not timed. */
void bench_cold_report(void *state)
{
    struct cold_table *cold = state;
    weir_table_collect(cold->block.table, cold->bits);
}

static struct weir_text cold_name(const struct cold_table *cold, uint32_t at)
{
    return (struct weir_text){ cold->names + (size_t)at * BENCH_NAME_LEN,
                               BENCH_NAME_LEN };
}

void bench_take_cold_name(void *state, int thread, uint64_t n)
{
    struct cold_table *cold = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        struct weir_ref ref;
        struct weir_text name = cold_name(cold, cold_advance(cold));
        if (!weir_table_find(cold->block.table, name, &ref))
            abort();
        cold_take(cold, ref);
        bench_alone();
    }
}

static void cold_batch(struct cold_table *cold)
{
    struct weir_table *table = cold->block.table;
    struct weir_text names[BATCH];
    uint64_t hashes[BATCH];
    struct weir_ref refs[BATCH];
    for (uint32_t k = 0; k < BATCH; k++) {
        names[k] = cold_name(cold, cold_advance(cold));
        hashes[k] = weir_table_hash(table, names[k]);
        weir_table_prefetch(table, hashes[k]);
    }
    for (uint32_t k = 0; k < BATCH; k++)
        if (!weir_table_find_hashed(table, names[k], hashes[k], &refs[k]))
            abort();
    for (uint32_t k = 0; k < BATCH; k++)
        cold_take(cold, refs[k]);
}

void bench_take_cold_many(void *state, int thread, uint64_t n)
{
    (void)thread;
    for (uint64_t i = 0; i < n; i += BATCH)
        cold_batch(state);
}

double bench_table_bytes(uint32_t slots)
{
    struct weir_table_options options = {
        .slots = slots,
        .stripes = 64,
        .seed = 20,
        .bucket_state_bytes = 64, /* reserved; only some algorithms touch it */
    };
    return (double)weir_table_size(&options) / slots;
}
