/* SPDX-License-Identifier: MIT
 * lab/model_architectures.c - one traffic, eight ways to share a limit.
 *
 * Each of 'keys' clients may make limit x window calls a window, and offers
 * 'load' times that, to nodes that a balancer chooses. Half-way, in the middle
 * of a window, nodes are added. The ways to decide:
 *
 *     local          each node alone, by its part of the limit (computed from
 *                    the number of nodes at the start, and never updated)
 *     sticky         one node a key, by hash over the present nodes, the whole
 *                    limit in its memory
 *     broadcast      each node counts alone and sends its counts to all others
 *     log            the same through a log that is read 'lag' later
 *     get_then_set   a store: read, decide, write the value read plus one
 *     locked         the same under a lock of the key in the store
 *     atomic         one step in the store
 *     counted        Weir: a fleet with slack, the product's own nodes
 *
 * The first seven count in fixed windows, as their articles do; the last in
 * leaky buckets of the same rate, with the default bursts. A message takes half
 * of 'rtt' to the store or to another node. Messages and the callers' waits are
 * counted alike in all. */

#include <math.h>
#include <stdlib.h>

#include "lab/fleet.h"
#include "lab/heap.h"
#include "lab/memory.h"
#include "lab/model.h"

#define ROOTS 3

enum how {
    LOCAL,
    STICKY,
    BROADCAST,
    LOG,
    GET_THEN_SET,
    LOCKED,
    ATOMIC,
    COUNTED
};
static const char *const hows[] = {
    "local",  "sticky", "broadcast", "log", "get_then_set",
    "locked", "atomic", "counted",   NULL,
};

enum { HOW, NODES, ADDED, KEYS, LIMIT, WINDOW, LOAD, RTT, LAG };
static const struct weir_model_field fields[] = {
    { .name = "how",
      .kind = WEIR_MODEL_WORD,
      .preset = ATOMIC,
      .words = hows,
      .sentence = "the limit is shared" },
    { .name = "nodes",
      .kind = WEIR_MODEL_COUNT,
      .preset = 10,
      .min = 1,
      .max = 1000,
      .sentence = "at first" },
    { .name = "added",
      .kind = WEIR_MODEL_COUNT,
      .preset = 5,
      .min = 0,
      .max = 1000,
      .sentence = "added half-way" },
    { .name = "keys",
      .kind = WEIR_MODEL_COUNT,
      .preset = 20,
      .min = 1,
      .max = 10000,
      .sentence = "clients with a limit each" },
    { .name = "limit",
      .kind = WEIR_MODEL_RATE,
      .preset = 100,
      .sentence = "of a client" },
    { .name = "window",
      .kind = WEIR_MODEL_DURATION,
      .preset = 10e9,
      .sentence = "that the limit is counted in" },
    { .name = "load",
      .kind = WEIR_MODEL_REAL,
      .preset = 3,
      .min = 0.01,
      .max = 100,
      .sentence = "offered, of the limit" },
    { .name = "rtt",
      .kind = WEIR_MODEL_DURATION,
      .preset = 1e6,
      .sentence = "to the store, and between nodes" },
    { .name = "lag",
      .kind = WEIR_MODEL_DURATION,
      .preset = 1e9,
      .sentence = "of the log" },
    { .name = NULL },
};

enum { ADMITTED, ADMITTED_MAX, MESSAGES, LATENCY, LATENCY_P99 };
static const struct weir_model_metric metrics[] = {
    { "passed", "calls passed over calls allowed by the limits, whole run" },
    { "passed_max", "the same, maximum of any window and key" },
    { "messages", "sent, per call" },
    { "latency_ms", "milliseconds that a call waits for its decision, mean" },
    { "latency_p99_ms", "the same, 99th percentile" },
    { NULL, NULL },
};

enum { OFFERED, PASSED };
static const struct weir_model_series series[] = {
    { "offered", "calls a second", true },
    { "passed", "calls a second", true },
    { NULL, NULL, false },
};

/* ---- Common to all ---- */

/* An action or news that is due later; in the order of time. */
struct later {
    struct weir_heap_key due;
    uint32_t key, node;
    uint64_t window; /* the call's */
    uint64_t read;   /* get_then_set: the value read */
    weir_instant asked;
    enum { TOLD, READ, WRITTEN, ASKED } what;
};

struct play {
    struct weir_model_run *run;
    enum how how;
    struct weir_world chance;
    uint32_t nodes; /* present number */
    uint32_t nodes_most;
    uint32_t keys;
    uint64_t quantity; /* of a key and window */
    weir_duration window, rtt, lag;
    uint64_t *counts;  /* [node or store][key]: of the window in 'windows' */
    uint64_t *windows; /* the window of each */
    uint64_t *passed;  /* [window][key] */
    size_t window_count;
    struct weir_heap later;    /* of struct later */
    weir_instant *locked_till; /* by key */
    double *waits;             /* of calls, ms */
    size_t wait_count, wait_capacity;
    uint64_t calls, admitted;
    uint64_t messages; /* of a fleet: until the first call, to be subtracted */
    struct weir_fleet *fleet;
};

/* The counter of a key at a node (or the store: node 0), of this window. */
static uint64_t *counter(struct play *play, uint32_t node, uint32_t key,
                         uint64_t window)
{
    weir_assert(node < play->nodes_most && key < play->keys);
    size_t at = (size_t)node * play->keys + key;
    if (play->windows[at] < window) {
        play->windows[at] = window;
        play->counts[at] = 0;
    }
    return &play->counts[at];
}

static void note_wait(struct play *play, weir_duration wait)
{
    play->waits = weir_must_grow(play->waits, &play->wait_capacity,
                                 play->wait_count + 1, sizeof *play->waits);
    weir_assert(play->wait_count < play->wait_capacity);
    play->waits[play->wait_count++] = (double)wait / 1e6;
}

static void admit_call(struct play *play, uint32_t key, weir_instant now)
{
    play->admitted++;
    size_t window = now / play->window;
    if (window < play->window_count)
        play->passed[window * play->keys + key]++;
    weir_model_add(play->run, PASSED, now, 1);
}

/* ---- Decisions from the node's own memory ---- */

static void decide_alone(struct play *play, uint32_t node, uint32_t key,
                         uint64_t quantity, weir_instant now)
{
    uint64_t window = now / play->window;
    uint64_t *count = counter(play, node, key, window);
    note_wait(play, 0);
    if (*count >= quantity)
        return;
    ++*count;
    admit_call(play, key, now);
    if (play->how != BROADCAST && play->how != LOG)
        return;
    /* To each other node; through the log, one to it and one to each. */
    play->messages += play->nodes - 1 + (play->how == LOG);
    weir_heap_push(
        &play->later,
        &(struct later){
            .due.at = now + (play->how == LOG ? play->lag : play->rtt / 2),
            .key = key,
            .node = node,
            .window = window,
            .what = TOLD });
}

static void count_broadcast(struct play *play, const struct later *sent)
{
    for (uint32_t i = 0; i < play->nodes; i++) {
        size_t at = (size_t)i * play->keys + sent->key;
        if (i != sent->node && play->windows[at] <= sent->window)
            ++*counter(play, i, sent->key, sent->window);
    }
}

/* ---- Decisions from a store ---- */

static void request_store(struct play *play, uint32_t key, weir_instant now)
{
    weir_instant at = now + play->rtt / 2;
    if (play->how == LOCKED) {
        /* Lock, read, write with unlock: the lock is held for two round trips,
         * and other callers of the key wait for it. */
        weir_instant *till = &play->locked_till[key];
        at = *till > at ? *till : at;
        *till = at + 2 * play->rtt;
        at += play->rtt;
        play->messages += 4;
    }
    play->messages += 2;
    weir_heap_push(
        &play->later,
        &(struct later){ .due.at = at,
                         .key = key,
                         .asked = now,
                         .what = play->how == GET_THEN_SET ? READ : ASKED });
}

static void decide_at_store(struct play *play, const struct later *asked)
{
    weir_instant back = asked->due.at + play->rtt / 2;
    uint64_t *count =
        counter(play, 0, asked->key, asked->due.at / play->window);
    if (play->how == LOCKED)
        back += play->rtt;
    note_wait(play, back - asked->asked);
    if (*count >= play->quantity)
        return;
    ++*count;
    admit_call(play, asked->key, asked->due.at);
}

static void read_counter(struct play *play, struct later asked)
{
    asked.window = asked.due.at / play->window;
    asked.read = *counter(play, 0, asked.key, asked.window);
    weir_instant back = asked.due.at + play->rtt / 2;
    note_wait(play, back - asked.asked);
    if (asked.read >= play->quantity)
        return;
    admit_call(play, asked.key, back);
    play->messages += 2;
    asked.due.at = back + play->rtt / 2;
    asked.what = WRITTEN;
    weir_heap_push(&play->later, &asked);
}

static void write_store(struct play *play, const struct later *written)
{
    if (play->windows[written->key] <= written->window)
        *counter(play, 0, written->key, written->window) = written->read + 1;
}

static void run_later(struct play *play, weir_instant until)
{
    while (play->later.count > 0 && weir_heap_due(&play->later) <= until) {
        struct later later;
        weir_heap_pop(&play->later, &later);
        switch (later.what) {
        case TOLD:
            count_broadcast(play, &later);
            break;
        case READ:
            read_counter(play, later);
            break;
        case WRITTEN:
            write_store(play, &later);
            break;
        case ASKED:
            decide_at_store(play, &later);
            break;
        }
    }
}

/* ---- Weir's own fleet ---- */

static struct weir_text key_name(uint32_t key, char buf[24])
{
    int len = snprintf(buf, 24, "client/%u", key);
    return (struct weir_text){ buf, (size_t)len };
}

static void start_fleet(struct play *play)
{
    const double *values = play->run->values;
    struct weir_fleet_options options = {
        .seed = play->run->seed,
        .limiters = play->nodes_most,
        .limiters_started = play->nodes,
        .roots = ROOTS,
        .slots = 2 * play->keys + 16,
        .net = { .delay = play->rtt / 2 },
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 10 * WEIR_SECOND,
                      .slack = true },
    };
    play->fleet = weir_fleet_new(&options);
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT("client/*");
    quota.limit = (struct weir_limit){ .units = (uint64_t)values[LIMIT],
                                       .per = WEIR_SECOND };
    weir_assert(weir_fleet_put(play->fleet, &quota, NULL) == 0);
    weir_fleet_run(play->fleet, weir_fleet_now(play->fleet) + 2 * WEIR_SECOND);
    struct weir_fleet_stats stats;
    weir_fleet_stats(play->fleet, &stats);
    play->messages = stats.messages;
}

static void ask_fleet(struct play *play, uint32_t node, uint32_t key,
                      weir_instant zero, weir_instant now)
{
    char buf[24];
    weir_fleet_run(play->fleet, zero + now);
    note_wait(play, 0);
    unsigned outcome =
        weir_fleet_take(play->fleet, node, key_name(key, buf), 1, NULL);
    if (!(outcome & WEIR_OUTCOME_LIMITED))
        admit_call(play, key, now);
}

static void scale_out(struct play *play)
{
    uint32_t had = play->nodes;
    play->nodes = play->nodes_most;
    for (uint32_t i = had; play->fleet && i < play->nodes; i++)
        weir_fleet_start(play->fleet, weir_limiter_place(i));
}

/* ---- The traffic ---- */

static uint32_t node_of(struct play *play, uint32_t key)
{
    uint64_t drawn = weir_rng_below(&play->chance.rng, play->nodes);
    return play->how == STICKY ? (key * 2654435761u >> 8) % play->nodes
                               : (uint32_t)drawn;
}

static void decide_call(struct play *play, weir_instant zero, weir_instant now)
{
    uint32_t key = (uint32_t)weir_rng_below(&play->chance.rng, play->keys);
    uint32_t node = node_of(play, key);
    uint64_t quantity = play->quantity;
    play->calls++;
    weir_model_add(play->run, OFFERED, now, 1);
    switch (play->how) {
    case LOCAL:
        quantity /= (uint64_t)play->run->values[NODES];
        decide_alone(play, node, key, quantity, now);
        break;
    case STICKY:
    case BROADCAST:
    case LOG:
        decide_alone(play, node, key, quantity, now);
        break;
    case GET_THEN_SET:
    case LOCKED:
    case ATOMIC:
        request_store(play, key, now);
        break;
    case COUNTED:
        ask_fleet(play, node, key, zero, now);
        break;
    }
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void set_metrics(struct play *play)
{
    struct weir_model_run *run = play->run;
    double allowed = run->values[LIMIT] * play->keys * (double)run->span / 1e9;
    run->metrics[ADMITTED] = (double)play->admitted / allowed;
    uint64_t most = 0;
    for (size_t i = 0; i < play->window_count * play->keys; i++)
        most = play->passed[i] > most ? play->passed[i] : most;
    run->metrics[ADMITTED_MAX] = (double)most / (double)play->quantity;
    if (play->fleet) {
        struct weir_fleet_stats stats;
        weir_fleet_stats(play->fleet, &stats);
        play->messages = stats.messages - play->messages;
    }
    run->metrics[MESSAGES] = (double)play->messages / (double)play->calls;
    double sum = 0;
    for (size_t i = 0; i < play->wait_count; i++)
        sum += play->waits[i];
    run->metrics[LATENCY] = sum / (double)play->wait_count;
    qsort(play->waits, play->wait_count, sizeof *play->waits, by_value);
    run->metrics[LATENCY_P99] = play->waits[play->wait_count * 99 / 100];
    run->takes = play->calls;
    run->events = play->fleet ? weir_fleet_world(play->fleet)->events
                              : play->later.pushed + play->calls;
}

static void play_init(struct play *play, struct weir_model_run *run)
{
    const double *values = run->values;
    *play = (struct play){
        .run = run,
        .later = { .size = sizeof(struct later) },
        .how = (enum how)values[HOW],
        .nodes = (uint32_t)values[NODES],
        .nodes_most = (uint32_t)(values[NODES] + values[ADDED]),
        .keys = (uint32_t)values[KEYS],
        .window = (weir_duration)values[WINDOW],
        .rtt = (weir_duration)values[RTT],
        .lag = (weir_duration)values[LAG],
        .quantity = (uint64_t)llround(values[LIMIT] * values[WINDOW] / 1e9),
    };
    play->window_count = run->span / play->window + 1;
    size_t counters = (size_t)play->nodes_most * play->keys;
    play->counts = weir_must_zeroed(counters, sizeof(uint64_t));
    play->windows = weir_must_zeroed(counters, sizeof(uint64_t));
    play->locked_till = weir_must_zeroed(play->keys, sizeof(weir_instant));
    play->passed =
        weir_must_zeroed(play->window_count * play->keys, sizeof(uint64_t));
    weir_world_init(&play->chance, run->seed);
    if (play->how == COUNTED)
        start_fleet(play);
}

static void play_fini(struct play *play)
{
    weir_world_fini(&play->chance);
    weir_fleet_free(play->fleet);
    free(play->counts);
    free(play->windows);
    free(play->locked_till);
    free(play->passed);
    free(play->later.items);
    free(play->waits);
}

static void play_all(struct weir_model_run *run)
{
    struct play play;
    play_init(&play, run);
    weir_instant zero = play.fleet ? weir_fleet_now(play.fleet) : 0;
    double mean = 1e9 / (run->values[LOAD] * run->values[LIMIT] * play.keys);
    bool scaled = false;
    for (double at = 0;;) {
        at += weir_world_exponential(&play.chance, mean);
        weir_instant now = (weir_instant)at;
        if (now >= run->span)
            break;
        run_later(&play, now);
        /* In the middle of a window. */
        if (!scaled && now >= run->span / 2 + play.window / 2) {
            scaled = true;
            scale_out(&play);
        }
        decide_call(&play, zero, now);
    }
    run_later(&play, WEIR_NEVER);
    set_metrics(&play);
    play_fini(&play);
}

const struct weir_model weir_model_architectures = {
    .name = "architectures",
    .sentence = "one traffic, and eight ways to share a limit among nodes",
    .fields = fields,
    .metrics = metrics,
    .series = series,
    .play = play_all,
};
