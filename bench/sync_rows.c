/* SPDX-License-Identifier: MIT
 * bench/sync_rows.c - a million quotas are sent to a limiter.
 *
 * A root node that has them and an empty limiter node, joined by a pump that
 * encodes and decodes each message, in one thread: the two processes' work
 * together, without sockets and without waiting. Then the link is lost and made
 * again, and the quotas sent are counted: there should be none. */

#include "rows.h"

#include <stdlib.h>
#include <time.h>

#include "codec/weir_v1.h"
#include "core/node/limiter.h"
#include "core/node/root.h"
#include "io/clock.h"

#define QUOTAS 1000000u
#define SLOTS (QUOTAS + QUOTAS / 16)
#define START (WEIR_SECOND * 1000)

struct pump {
    struct weir_root *root;
    struct weir_limiter *limiter;
    void *table_block;
    void *limiter_block;
    size_t table_size;
    size_t limiter_size;
    struct weir_arena arena;
    unsigned char *bytes;
    uint64_t quotas; /* sent so far */
    weir_instant now;
};

static double seconds_used(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void root_make(struct pump *pump)
{
    struct weir_root_options options = {
        .mem = weir_mem_system,
        .name = WEIR_TEXT("bench"),
        .incarnation = { 1 },
        .seed = 20,
        .peers_max = 1,
        .settings = {
            .report_interval = WEIR_SECOND,
            .stale_after = 10 * WEIR_SECOND,
            .slack = true,
        },
    };
    pump->root = weir_root_new(&options, START);
    const struct weir_store_id id = { .uuid = { 1 } };
    if (pump->root == NULL ||
        weir_root_store(pump->root, &id, QUOTAS, 0, START) != 0)
        abort();
    for (uint32_t i = 0; i < QUOTAS; i++) {
        char name[BENCH_NAME_LEN];
        bench_name_write(name, i);
        struct weir_change change = { 0 };
        weir_quota_init(&change.quota);
        change.quota.name = (struct weir_text){ name, BENCH_NAME_LEN };
        change.quota.limit =
            (struct weir_limit){ .units = 1000, .per = WEIR_SECOND };
        change.quota.id = change.quota.epoch = change.quota.created = i + 1;
        if (weir_root_apply(pump->root, &change, START) != 0)
            abort();
    }
    weir_root_settle(pump->root, START);
}

static void limiter_make(struct pump *pump)
{
    struct weir_table_options table = { .slots = SLOTS,
                                        .stripes = 4,
                                        .seed = 20 };
    pump->table_size = weir_table_size(&table);
    pump->table_block = bench_pages(pump->table_size);
    if (pump->table_block == NULL)
        abort();
    struct weir_limiter_options options = {
        .table = weir_table_init(pump->table_block, &table, START),
        .slots = SLOTS,
        .links = 1,
        .name = WEIR_TEXT("bench"),
        .incarnation = { 2 },
        .seed = 21,
    };
    pump->limiter_size = weir_limiter_size(&options);
    pump->limiter_block = bench_pages(pump->limiter_size);
    if (pump->limiter_block == NULL)
        abort();
    pump->limiter = weir_limiter_init(pump->limiter_block, &options, START);
}

/* Encodes the message and decodes it into the other node. */
static void carry(struct pump *pump, const struct weir_message *message,
                  bool to_root)
{
    struct weir_message out;
    size_t len = weir_v1_encode(message, pump->bytes, WEIR_MESSAGE_BYTES_MAX);
    if (len == 0 ||
        weir_v1_decode(pump->bytes, len, to_root, &pump->arena, &out) != 0)
        abort();
    if (out.type == WEIR_MESSAGE_QUOTAS)
        pump->quotas += out.quotas.count;
    int error = to_root
                    ? weir_root_receive(pump->root, 0, &out, pump->now)
                    : weir_limiter_receive(pump->limiter, 0, &out, pump->now);
    if (error != 0)
        abort();
}

/* Until neither node has a message. */
static void exchange(struct pump *pump)
{
    bool busy = true;
    while (busy) {
        uint32_t peer;
        struct weir_message message;
        busy = false;
        while (weir_limiter_next(pump->limiter, &peer, &message, pump->now)) {
            carry(pump, &message, true);
            busy = true;
        }
        while (weir_root_next(pump->root, &peer, &message, pump->now)) {
            carry(pump, &message, false);
            busy = true;
        }
    }
}

/* Links the two, and lets a report interval or two pass. */
static void join(struct pump *pump)
{
    pump->quotas = 0;
    weir_root_link(pump->root, 0, true, pump->now);
    weir_limiter_link(pump->limiter, 0, true, pump->now);
    for (int i = 0; i < 200; i++) {
        exchange(pump);
        pump->now += 10 * WEIR_MILLISECOND;
        weir_limiter_tick(pump->limiter, pump->now);
        weir_root_tick(pump->root, pump->now);
    }
}

void bench_sync(double *out_seconds, uint64_t *out_again)
{
    struct pump pump = { .now = START };
    pump.arena.size = WEIR_DECODE_ARENA_SIZE;
    pump.arena.base = bench_pages(pump.arena.size);
    pump.bytes = malloc(WEIR_MESSAGE_BYTES_MAX);
    if (pump.arena.base == NULL || pump.bytes == NULL)
        abort();
    root_make(&pump);
    limiter_make(&pump);
    double start = seconds_used();
    join(&pump);
    *out_seconds = seconds_used() - start;
    if (!weir_limiter_ready(pump.limiter) || pump.quotas < QUOTAS ||
        weir_limiter_epoch(pump.limiter) != QUOTAS)
        abort();
    weir_root_link(pump.root, 0, false, pump.now);
    weir_limiter_link(pump.limiter, 0, false, pump.now);
    join(&pump);
    *out_again = pump.quotas;
    weir_root_free(pump.root);
    bench_pages_free(pump.table_block, pump.table_size);
    bench_pages_free(pump.limiter_block, pump.limiter_size);
    bench_pages_free(pump.arena.base, pump.arena.size);
    free(pump.bytes);
}
