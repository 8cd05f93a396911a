/* SPDX-License-Identifier: MIT
 * test/live/live_flood.c - a service that is flooded with names.
 *
 *     live_flood ROOTS NAME MEMORY HOT=RATE PREFIX NAMES PER_S
 *
 * MEMORY: bytes for slots. A thread takes from the quota HOT, by its
 * name, RATE times a second. When a line comes on standard input, a second
 * thread takes from NAMES names that were never used before ("PREFIX/NAME/0"
 * and on), each once, PER_S a second at most (0: as fast as it can). Both go on
 * until standard input ends. WEIR_TLS_… are as for live_load.
 * Lines of JSON, as live_load's:
 *
 *     {"pid", "at", "seen": {HOT: [offered, passed, calls, failed]},
 *      "roots_up", "epoch", "stale", "reports", "slots_used", "overflowed",
 *      "flooded", "flood_passed", "rss_kb", "took_ns"}    every 100 ms
 *     {"pid", "at", "event": TYPE, "count", "text"}
 *
 * "took_ns" is the time of one hot decision, the mean over a batch, of the
 * fastest batch of the last bin: even if the machine did something else half of
 * the time, some batches ran undisturbed. */

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load_parts.h"

#define BATCH (2 * WEIR_MILLISECOND)
#define BIN (100 * WEIR_MILLISECOND)

struct flood {
    struct weir *weir;
    const char *name;
    const char *hot;
    const char *prefix;
    uint64_t rate; /* of hot takes, a second */
    uint64_t names;
    uint64_t per_s;
    uint64_t offered, passed, failed;
    double took;                    /* ns, of the last bin */
    uint64_t flooded, flood_passed; /* by the other thread; atomic */
    pthread_t thread;
    bool begun, stop;
};

/* ---- The flood ---- */

static void flood_one(struct flood *flood, uint64_t number)
{
    char name[128];
    int len = snprintf(name, sizeof(name), "%s/%s/%" PRIu64, flood->prefix,
                       flood->name, number);
    enum weir_verdict verdict =
        weir_take_by_name(flood->weir, name, (size_t)len, 1, NULL, 0);
    __atomic_fetch_add(&flood->flooded, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&flood->flood_passed, verdict == WEIR_PASSED,
                       __ATOMIC_RELAXED);
}

static void *flood_all(void *context)
{
    struct flood *flood = context;
    weir_instant start = live_now();
    for (uint64_t i = 0; i < flood->names; i++) {
        if (__atomic_load_n(&flood->stop, __ATOMIC_RELAXED))
            break;
        weir_instant due = start;
        if (flood->per_s > 0)
            due += (weir_instant)((double)i * 1e9 / (double)flood->per_s);
        if (i % 64 == 0 && live_now() + BATCH < due)
            live_sleep_until(due);
        flood_one(flood, i);
    }
    return NULL;
}

/* ---- Telling ---- */

static void tell_bin(const struct flood *flood, weir_instant at)
{
    struct weir_status status;
    weir_status(flood->weir, &status);
    live_tell_begin(at);
    printf("\"seen\": {\"%s\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
           "]}, \"roots_up\": %" PRIu32 ", \"epoch\": %" PRIu64
           ", \"stale\": %d, \"reports\": %" PRIu64,
           flood->hot, flood->offered, flood->passed, flood->offered,
           flood->failed, status.roots_up, status.epoch, status.stale,
           status.reports);
    printf(", \"slots_used\": %" PRIu32 ", \"overflowed\": %" PRIu64
           ", \"flooded\": %" PRIu64 ", \"flood_passed\": %" PRIu64
           ", \"rss_kb\": %" PRIu64 ", \"took_ns\": %.1f",
           status.slots_used, status.overflowed,
           __atomic_load_n(&flood->flooded, __ATOMIC_RELAXED),
           __atomic_load_n(&flood->flood_passed, __ATOMIC_RELAXED),
           live_resident_bytes() / 1024, flood->took);
    live_tell_end();
}

/* ---- The hot quota ---- */

static void take_hot(struct flood *flood)
{
    enum weir_verdict verdict = weir_take_by_name(
        flood->weir, flood->hot, strlen(flood->hot), 1, NULL, 0);
    flood->offered++;
    flood->passed += verdict == WEIR_PASSED;
    flood->failed += verdict != WEIR_PASSED && verdict != WEIR_LIMITED;
}

static void take_due(struct flood *flood, weir_instant start, weir_instant now)
{
    uint64_t due = (uint64_t)((unsigned __int128)(now - start) * flood->rate /
                              WEIR_SECOND);
    if (flood->offered >= due)
        return;
    uint64_t count = due - flood->offered;
    weir_instant before = live_now();
    for (uint64_t i = 0; i < count; i++)
        take_hot(flood);
    double took = (double)(live_now() - before) / (double)count;
    if (count >= 4 && (flood->took == 0 || took < flood->took))
        flood->took = took;
}

/* False when standard input has ended. */
static bool obey(struct flood *flood)
{
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    if (poll(&input, 1, 0) <= 0)
        return true;
    char line[16];
    if (read(STDIN_FILENO, line, sizeof(line)) <= 0)
        return false;
    if (!flood->begun)
        flood->begun =
            pthread_create(&flood->thread, NULL, flood_all, flood) == 0;
    return true;
}

static void run(struct flood *flood)
{
    weir_instant start = live_now();
    weir_instant told = start;
    while (obey(flood)) {
        live_sleep_until(live_now() + BATCH);
        weir_instant now = live_now();
        take_due(flood, start, now);
        if (now - told < BIN)
            continue;
        told = now;
        tell_bin(flood, now);
        flood->took = 0;
    }
    __atomic_store_n(&flood->stop, true, __ATOMIC_RELAXED);
    if (flood->begun)
        pthread_join(flood->thread, NULL);
}

int main(int argc, char **argv)
{
    static struct flood flood;
    char *equals = argc == 8 ? strrchr(argv[4], '=') : NULL;
    if (equals == NULL) {
        fprintf(stderr,
                "usage: %s ROOTS NAME MEMORY HOT=RATE PREFIX NAMES "
                "PER_S\n",
                argv[0]);
        return 2;
    }
    *equals = '\0';
    flood.name = argv[2];
    flood.hot = argv[4];
    flood.rate = strtoull(equals + 1, NULL, 10);
    flood.prefix = argv[5];
    flood.names = strtoull(argv[6], NULL, 10);
    flood.per_s = strtoull(argv[7], NULL, 10);
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.roots = argv[1];
    options.name = argv[2];
    options.memory_max = strtoull(argv[3], NULL, 10);
    options.on_event = live_tell_event;
    live_use_tls(&options);
    int error = weir_open(&options, &flood.weir);
    if (error == 0)
        error = weir_ready(flood.weir, 60 * WEIR_SECOND);
    if (error < 0) {
        fprintf(stderr, "%s: %s\n", argv[0], weir_strerror(error));
        return 2;
    }
    run(&flood);
    weir_close(flood.weir);
    return 0;
}
