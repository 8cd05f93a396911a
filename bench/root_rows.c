/* SPDX-License-Identifier: MIT
 * bench/root_rows.c - a root's whole work on reports: bytes in, bytes out.
 *
 * 64 limiters of 8,192 counters each, or 1,000 of 1,000, report in turn, on a
 * link each, as the daemon would pass on their messages: decoded and checked,
 * merged into the limiter cells and buckets, and answered, the answer encoded.
 * Reports are written before the clock starts, since that is the limiters'
 * work; sockets, HTTP/2 and TLS are not in the figure. Every counter of a
 * report has changed (1 to 100 units), all limiters use the same quotas, and a
 * million cells don't fit the processor's own caches.
 *
 * 'looked': the root's clock ticks as well: it searches the buckets that moved
 * for fills to push to limiters, as often as in the second that a turn of all
 * limiters takes.
 *
 * The root's own statistics verify that each report was accepted, and none was
 * taken for a repeated one. */

#include "rows.h"

#include <stdlib.h>

#include "codec/weir_v1.h"
#include "core/node/root.h"
#include "io/clock.h"

#define ANSWER_SIZE WEIR_MESSAGE_BYTES_MAX
#define START (WEIR_SECOND * 1000)

struct merge {
    uint32_t limiters;
    uint32_t quotas;    /* of each limiter */
    uint32_t ring;      /* reports written ahead */
    size_t report_size; /* bytes, at most; checked */
    bool looks;
    struct weir_root *root;
    struct weir_arena arena;
    unsigned char *reports; /* 'ring' of 'report_size' bytes */
    size_t *lens;
    unsigned char *answer;
    struct weir_count counts[WEIR_REPORT_COUNTS_MAX];
    uint64_t first;   /* number of the first report after joining */
    uint64_t taken;   /* by the root while its limiters joined */
    uint64_t written; /* reports since then */
    uint64_t sent;
    weir_instant now;
};

static void root_fill(struct merge *merge, const struct weir_store_id *id)
{
    struct weir_root *root = merge->root;
    if (weir_root_store(root, id, merge->quotas, 0, START) != 0)
        abort();
    for (uint32_t i = 0; i < merge->quotas; i++) {
        char name[BENCH_NAME_LEN];
        bench_name_write(name, i);
        struct weir_change change = { 0 };
        weir_quota_init(&change.quota);
        change.quota.name = (struct weir_text){ name, BENCH_NAME_LEN };
        change.quota.limit =
            (struct weir_limit){ .units = 1000000, .per = WEIR_SECOND };
        change.quota.id = change.quota.epoch = change.quota.created = i + 1;
        if (weir_root_apply(root, &change, START) != 0)
            abort();
    }
    weir_root_settle(root, START);
}

/* Encodes all messages that the root sends. */
static void drain(struct merge *merge)
{
    uint32_t peer;
    struct weir_message out;
    while (weir_root_next(merge->root, &peer, &out, merge->now))
        bench_keep(weir_v1_encode(&out, merge->answer, ANSWER_SIZE));
}

static void receive(struct merge *merge, uint32_t peer,
                    const struct weir_message *message)
{
    if (weir_root_receive(merge->root, peer, message, merge->now) != 0)
        abort();
    drain(merge);
}

/* Number of names announced in one report. */
static uint32_t part_of(const struct merge *merge)
{
    return merge->quotas < WEIR_REPORT_ANNOUNCES_MAX
               ? merge->quotas
               : WEIR_REPORT_ANNOUNCES_MAX;
}

/* Announces a part of a limiter's slots, with their counts. */
static void announce(struct merge *merge, uint32_t peer, uint32_t from)
{
    uint32_t part = part_of(merge);
    struct weir_announce *announces = calloc(part, sizeof(*announces));
    char *names = malloc((size_t)part * BENCH_NAME_LEN);
    if (announces == NULL || names == NULL)
        abort();
    for (uint32_t i = 0; i < part; i++) {
        char *name = names + (size_t)i * BENCH_NAME_LEN;
        bench_name_write(name, from + i);
        announces[i].slot = from + i;
        announces[i].name = (struct weir_text){ name, BENCH_NAME_LEN };
        announces[i].created = from + i + 1;
    }
    struct weir_message message = {
        .type = WEIR_MESSAGE_REPORT,
        .session = peer + 1,
        .report = {
            .number = from / part + 1,
            .epoch = merge->quotas,
            .announce_count = part,
            .announces = announces,
            .count = part,
            .counts = merge->counts + from,
        },
    };
    receive(merge, peer, &message);
    free(announces);
    free(names);
}

static void limiter_join(struct merge *merge, uint32_t peer,
                         const struct weir_store_id *id)
{
    struct weir_message hello = {
        .type = WEIR_MESSAGE_HELLO,
        .session = peer + 1,
        .hello = {
            .protocol = WEIR_PROTOCOL,
            .name = WEIR_TEXT("bench"),
            .store = *id,
            .epoch = merge->quotas,
        },
    };
    hello.hello.incarnation[0] = (uint8_t)(peer + 1);
    hello.hello.incarnation[1] = (uint8_t)((peer + 1) >> 8);
    weir_root_link(merge->root, peer, true, merge->now);
    receive(merge, peer, &hello);
    for (uint32_t from = 0; from < merge->quotas; from += part_of(merge))
        announce(merge, peer, from);
}

static void merge_teardown(void *state)
{
    struct merge *merge = state;
    if (merge->root != NULL)
        weir_root_free(merge->root);
    bench_pages_free(merge->arena.base, merge->arena.size);
    free(merge->reports);
    free(merge->lens);
    free(merge->answer);
    free(merge);
}

static bool merge_allocate(struct merge *merge)
{
    struct weir_root_options options = {
        .mem = weir_mem_system,
        .name = WEIR_TEXT("bench"),
        .incarnation = { 1 },
        .seed = 20,
        .peers_max = merge->limiters,
        .settings = {
            .report_interval = WEIR_SECOND,
            .stale_after = 10 * WEIR_SECOND,
            .slack = true,
        },
    };
    merge->root = weir_root_new(&options, START);
    merge->arena.size = WEIR_DECODE_ARENA_SIZE;
    merge->arena.base = bench_pages(merge->arena.size);
    merge->reports = malloc(merge->ring * merge->report_size);
    merge->lens = calloc(merge->ring, sizeof(*merge->lens));
    merge->answer = malloc(ANSWER_SIZE);
    return merge->root != NULL && merge->arena.base != NULL &&
           merge->reports != NULL && merge->lens != NULL &&
           merge->answer != NULL;
}

static void *merge_setup(uint32_t limiters, uint32_t quotas, bool looks)
{
    struct merge *merge = calloc(1, sizeof(*merge));
    if (merge == NULL)
        return NULL;
    merge->now = START;
    merge->limiters = limiters;
    merge->quotas = quotas;
    merge->looks = looks;
    merge->ring = BENCH_ROOT_MAX / quotas + 1;
    merge->report_size = (size_t)quotas * 5;
    if (!merge_allocate(merge)) {
        merge_teardown(merge);
        return NULL;
    }
    for (uint32_t i = 0; i < merge->quotas; i++)
        merge->counts[i] = (struct weir_count){
            .slot = i,
            .passed = 1 + (int64_t)(i * 37u % 100u),
        };
    const struct weir_store_id id = { .uuid = { 1 } };
    root_fill(merge, &id);
    for (uint32_t peer = 0; peer < merge->limiters; peer++)
        limiter_join(merge, peer, &id);
    struct weir_root_stats stats;
    weir_root_stats(merge->root, &stats);
    merge->taken = stats.reports;
    merge->first = quotas / part_of(merge) + 1;
    return merge;
}

static void *few_setup(const char **out_note)
{
    (void)out_note;
    return merge_setup(64, WEIR_REPORT_COUNTS_MAX, false);
}

static void *many_setup(const char **out_note)
{
    (void)out_note;
    return merge_setup(1000, 1000, false);
}

static void *looked_setup(const char **out_note)
{
    (void)out_note;
    return merge_setup(1000, 1000, true);
}

const struct bench_fixture bench_root = { few_setup, merge_teardown };
const struct bench_fixture bench_root_many = { many_setup, merge_teardown };
const struct bench_fixture bench_root_looked = { looked_setup, merge_teardown };

/* Writes the limiters' reports; not timed. */
void bench_root_write(void *state)
{
    struct merge *merge = state;
    struct weir_message message = {
        .type = WEIR_MESSAGE_REPORT,
        .report = {
            .epoch = merge->quotas,
            .count = merge->quotas,
            .counts = merge->counts,
        },
    };
    for (; merge->written < merge->sent + merge->ring; merge->written++) {
        uint64_t at = merge->written % merge->ring;
        message.session = merge->written % merge->limiters + 1;
        message.report.number = merge->first + merge->written / merge->limiters;
        merge->lens[at] =
            weir_v1_encode(&message, merge->reports + at * merge->report_size,
                           merge->report_size);
        if (merge->lens[at] == 0)
            abort();
    }
}

/* An operation is a counter: 'n' of them, rounded up to whole reports, at
 * most BENCH_ROOT_MAX. */
void bench_root_merge(void *state, int thread, uint64_t n)
{
    struct merge *merge = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i += merge->quotas) {
        if (merge->sent == merge->written)
            abort();
        uint64_t at = merge->sent % merge->ring;
        struct weir_message message;
        /* Each limiter has its turn once a second. */
        merge->now += WEIR_SECOND / merge->limiters;
        if (weir_v1_decode(merge->reports + at * merge->report_size,
                           merge->lens[at], true, &merge->arena, &message) != 0)
            abort();
        receive(merge, (uint32_t)(merge->sent % merge->limiters), &message);
        if (merge->looks &&
            weir_root_deadline(merge->root, merge->now) <= merge->now) {
            weir_root_tick(merge->root, merge->now);
            drain(merge);
        }
        merge->sent++;
    }
    struct weir_root_stats stats;
    weir_root_stats(merge->root, &stats);
    if (stats.reports != merge->taken + merge->sent ||
        stats.reports_repeated != 0)
        abort();
}
