/* SPDX-License-Identifier: MIT
 * bench/bench.c - the rows, and the program that measures them.
 *
 * A group's rows share a floor. They are interleaved (see harness.c), so a row
 * is close to its floor and its peers both in the table and in time. Targets
 * are those of the design; a missed target is no failure. */

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"
#include "rows.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define FLOOR(i, w, f, b)                                          \
    {                                                              \
        .id = (i), .what = (w), .role = BENCH_FLOOR, .threads = 1, \
        .fixture = &(f), .body = (b)                               \
    }
#define FLOOR2(i, w, f, b)                                         \
    {                                                              \
        .id = (i), .what = (w), .role = BENCH_FLOOR, .threads = 2, \
        .fixture = &(f), .body = (b)                               \
    }
#define PEER_C(i, w, t, b, near)                                              \
    {                                                                         \
        .id = (i), .what = (w), .role = BENCH_PEER, .threads = (t),           \
        .beside = (near), .relation = BENCH_RATIO, .fixture = &bench_buckets, \
        .body = (b)                                                           \
    }
#define PEER(i, w, t, p, r, near)                                              \
    {                                                                          \
        .id = (i), .what = (w), .role = BENCH_PEER, .threads = (t),            \
        .beside = (near), .relation = BENCH_RATIO, .peer = (p), .request = (r) \
    }

#define OURS(i, w, t, f, b, near, rel, goal)                               \
    {                                                                      \
        .id = (i), .what = (w), .role = BENCH_OURS, .threads = (t),        \
        .fixture = &(f), .body = (b), .beside = (near), .relation = (rel), \
        .target = (goal)                                                   \
    }

static const struct bench_row one_rows[] = {
    FLOOR("add_own", "locked add, own line", bench_lines_hot, bench_add_own),
    FLOOR("add3_own", "three locked adds, three own lines", bench_lines_hot,
          bench_add3_own),
    OURS("take_one", "take, one link, handle and now given", 1, bench_table_hot,
         bench_take_one, "add_own", BENCH_RATIO, 2.2),
    OURS("take_empty", "the same, the bucket found empty each time", 1,
         bench_table_hot, bench_take_empty, "add_own", BENCH_RATIO, 0),
    OURS("take_refused", "limited take", 1, bench_table_hot, bench_take_refused,
         NULL, BENCH_PLAIN, 3),
    OURS("take_three", "take, chain of three, hot", 1, bench_table_hot,
         bench_take_three, "add3_own", BENCH_RATIO, 1.6),
    OURS("take_name", "take, one link, by name, hot", 1, bench_table_hot,
         bench_take_name, "take_one", BENCH_DIFFERENCE, 12),
    FLOOR("cas_own", "compare-and-swap, own line", bench_lines_hot,
          bench_cas_own),
    FLOOR("clock_monotonic", "clock: CLOCK_MONOTONIC", bench_lines_hot,
          bench_clock_monotonic),
    FLOOR("clock_coarse", "clock: CLOCK_MONOTONIC_COARSE", bench_lines_hot,
          bench_clock_coarse),
    FLOOR("clock_tsc", "clock: TSC", bench_lines_hot, bench_clock_tsc),
    FLOOR("name_hot", "24-byte name: hash and probe, hot", bench_lines_hot,
          bench_name_hot),
    PEER_C("zero_given_1", "folly's algorithm, clock taken away", 1,
           bench_zero_given, "add_own"),
    PEER_C("zero_clock_1", "folly's algorithm, its clock", 1, bench_zero_clock,
           "add_own"),
    PEER_C("mutex_1", "mutex bucket, CLOCK_MONOTONIC", 1, bench_mutex_clock,
           "add_own"),
    PEER("governor_given_1", "governor (Rust), clock taken away", 1, "governor",
         "given", "add_own"),
    PEER("governor_1", "governor (Rust), its clock", 1, "governor", "direct",
         "add_own"),
    PEER("governor_keyed_hot", "governor (Rust), keyed by name, hot", 1,
         "governor", "keyed_hot", "add_own"),
    PEER("gorate_1", "Go x/time/rate", 1, "gorate", "allow", "add_own"),
};

static const struct bench_row two_rows[] = {
    FLOOR2("add_shared", "locked add, a line of 2 threads", bench_lines_hot,
           bench_add_shared),
    FLOOR2("add3_shared", "three locked adds, three lines of 2 threads",
           bench_lines_hot, bench_add3_shared),
    OURS("take_three_2", "take, 2 threads on one hot chain of three", 2,
         bench_table_hot, bench_take_three_2, "add3_shared", BENCH_RATIO, 1.8),
    OURS("take_one_2", "take, 2 threads on one link", 2, bench_table_hot,
         bench_take_one_2, "add_shared", BENCH_RATIO, 0),
    FLOOR2("cas_shared", "compare-and-swap, a line of 2 threads",
           bench_lines_hot, bench_cas_shared),
    PEER_C("zero_given_2", "folly's algorithm, clock taken away", 2,
           bench_zero_given, "add_shared"),
    PEER_C("zero_clock_2", "folly's algorithm, its clock", 2, bench_zero_clock,
           "add_shared"),
    PEER_C("mutex_2", "mutex bucket, CLOCK_MONOTONIC", 2, bench_mutex_clock,
           "add_shared"),
    PEER("governor_given_2", "governor (Rust), clock taken away", 2, "governor",
         "given2", "add_shared"),
    PEER("governor_2", "governor (Rust), its clock", 2, "governor", "direct2",
         "add_shared"),
    PEER("gorate_2", "Go x/time/rate", 2, "gorate", "allow2", "add_shared"),
};

static const struct bench_row cold_rows[] = {
    FLOOR("cold_together", "three cold lines of 4 M, known together",
          bench_lines_cold, bench_cold_together),
    FLOOR("cold_parents", "three cold lines of 4 M, by parent pointers",
          bench_lines_cold, bench_cold_parents),
    FLOOR("cold_stream", "three cold lines of 4 M, together, back to back",
          bench_lines_cold, bench_cold_stream),
    FLOOR("name_cold", "24-byte name: hash and probe, cold, 4 M inline",
          bench_names_cold, bench_name_cold),
    OURS("take_cold", "take, chain of three, cold, by handle", 1,
         bench_table_cold, bench_take_cold, "cold_together", BENCH_RATIO, 1.7),
    OURS("take_cold_name", "take, chain of three, cold, by name", 1,
         bench_table_cold, bench_take_cold_name, "cold_together", BENCH_RATIO,
         2.5),
    OURS("take_cold_many", "the same, in batches of 16 names", 1,
         bench_table_cold, bench_take_cold_many, "cold_together", BENCH_RATIO,
         0),
    OURS("take_cold_stream", "by handle, back to back", 1, bench_table_cold,
         bench_take_cold_stream, "cold_stream", BENCH_RATIO, 0),
    PEER("governor_keyed_cold", "governor (Rust), keyed, 4 M cold: one link", 1,
         "governor", "keyed_cold", "cold_together"),
};

/* A report unmarks all quotas, so these rows have a table of their own. */
static const struct bench_row first_rows[] = {
    FLOOR("cold_together_first", "three cold lines of 4 M, known together",
          bench_lines_cold, bench_cold_together),
    { .id = "take_cold_first",
      .role = BENCH_OURS,
      .threads = 1,
      .what = "take, chain of three, cold, by handle",
      .fixture = &bench_table_cold,
      .body = bench_take_cold,
      .between = bench_cold_report,
      .beside = "cold_together_first",
      .relation = BENCH_RATIO },
};

static const struct bench_row wire_rows[] = {
    OURS("report_encode", "report written, a counter", 1, bench_wire,
         bench_report_encode, NULL, BENCH_PLAIN, 0),
    OURS("report_decode", "report read and checked, a counter", 1, bench_wire,
         bench_report_decode, NULL, BENCH_PLAIN, 0),
};

/* Target: 30 million counters a second of one processor. */
static const struct bench_row root_rows[] = {
    { .id = "root_merge",
      .role = BENCH_OURS,
      .threads = 1,
      .what = "root: report read, merged and answered, a counter",
      .fixture = &bench_root,
      .body = bench_root_merge,
      .between = bench_root_write,
      .batch_max = BENCH_ROOT_MAX,
      .target = 1e3 / 30 },
    { .id = "root_merge_many",
      .role = BENCH_OURS,
      .threads = 1,
      .what = "… 1,000 limiters of 1,000 counters each",
      .fixture = &bench_root_many,
      .body = bench_root_merge,
      .between = bench_root_write,
      .batch_max = BENCH_ROOT_MAX,
      .target = 1e3 / 30 },
    { .id = "root_merge_looked",
      .role = BENCH_OURS,
      .threads = 1,
      .what = "… and searched for fills to push",
      .fixture = &bench_root_looked,
      .body = bench_root_merge,
      .between = bench_root_write,
      .batch_max = BENCH_ROOT_MAX,
      .beside = "root_merge_many",
      .relation = BENCH_RATIO },
};

/* A step of a bucket state in a process's own memory, relative to leaky's. */
#define BUCKET_STATE(i, w)                                                  \
    OURS("state_" #i, "step, " w, 1, bench_algorithms, bench_algorithm_##i, \
         "state_leaky", BENCH_RATIO, 0),                                    \
        OURS("state_" #i "_refused", "… limited", 1, bench_algorithms,      \
             bench_algorithm_##i##_refused, "state_leaky", BENCH_RATIO, 0)

static const struct bench_row bucket_state_rows[] = {
    FLOOR("state_add", "locked add, own line", bench_lines_hot, bench_add_own),
    OURS("state_leaky", "step, leaky", 1, bench_algorithms,
         bench_algorithm_leaky, "state_add", BENCH_RATIO, 0),
    OURS("state_leaky_refused", "… limited", 1, bench_algorithms,
         bench_algorithm_leaky_refused, "state_leaky", BENCH_RATIO, 0),
    BUCKET_STATE(queue, "leaky_queue"),
    BUCKET_STATE(token, "token_bucket"),
    BUCKET_STATE(row, "token_buckets, two"),
    BUCKET_STATE(fixed, "fixed_window"),
    BUCKET_STATE(month, "fixed_window, of the calendar"),
    BUCKET_STATE(log, "sliding_log, 100 entries"),
    BUCKET_STATE(sliding_1, "sliding_window, 1 part"),
    BUCKET_STATE(sliding_60, "sliding_window, 60 parts"),
};

/* A decision on a lease, relative to that among a hundred claims. */
#define SHARES(i, changed, rel, w)                            \
    OURS("share_changed_" #i, "fair share, new wants, " w, 1, \
         bench_shares_##i, bench_share_changed, changed, rel, 0)
#define SHARES_SAME(i, same, rel)                                    \
    OURS("share_same_" #i, "… wants as before", 1, bench_shares_##i, \
         bench_share_same, same, rel, 0)
#define SHARE(i, w)                                 \
    SHARES(i, "share_changed_100", BENCH_RATIO, w), \
        SHARES_SAME(i, "share_same_100", BENCH_RATIO)

static const struct bench_row share_rows[] = {
    SHARES(100, NULL, BENCH_PLAIN, "100 claims (Doorman: 16 us)"),
    SHARES_SAME(100, NULL, BENCH_PLAIN),
    SHARE(1k, "1,000 claims (407 us)"),
    SHARE(10k, "10,000 claims (2.8 ms)"),
    SHARE(100k, "100,000 claims (29 ms)"),
};

/* The concurrency gate of adaptive limits. */
static const struct bench_row adapt_rows[] = {
    FLOOR("adapt_cas", "compare-and-swap, own line", bench_lines_hot,
          bench_cas_own),
    OURS("gate_pair", "enter, leave and its sample", 1, bench_gate,
         bench_gate_pair, NULL, BENCH_PLAIN, 60),
    OURS("gate_refused", "limited", 1, bench_gate, bench_gate_refused, NULL,
         BENCH_PLAIN, 5),
    FLOOR("window_copy", "a window of 320 samples copied", bench_gate,
          bench_window_copy),
    OURS("window_close", "… and closed: percentile, new limit", 1, bench_gate,
         bench_window_close, NULL, BENCH_PLAIN, 5000),
    { .id = "mutex_pairs",
      .role = BENCH_PEER,
      .threads = 1,
      .what = "a pthread mutex, locked and unlocked twice",
      .fixture = &bench_gate,
      .body = bench_mutex_pairs,
      .beside = "gate_pair",
      .relation = BENCH_RATIO },
    OURS("permit_local", "permit of a local limit, by libweir", 1,
         bench_permits, bench_permit_local, NULL, BENCH_PLAIN, 0),
    OURS("permit_adaptive", "the same of an adaptive one, with its sample", 1,
         bench_permits, bench_permit_adaptive, "permit_local", BENCH_RATIO, 0),
    OURS("permit_refused", "… and limited there", 1, bench_permits,
         bench_permit_refused, NULL, BENCH_PLAIN, 0),
    OURS("gate_pair_2", "enter, leave and its sample, two threads, one gate", 2,
         bench_gate, bench_gate_pair, NULL, BENCH_PLAIN, 0),
    { .id = "mutex_pairs_2",
      .role = BENCH_PEER,
      .threads = 2,
      .what = "the mutex, two threads",
      .fixture = &bench_gate,
      .body = bench_mutex_pairs,
      .beside = "gate_pair_2",
      .relation = BENCH_RATIO },
};

static const struct bench_group groups[] = {
    { "one thread", one_rows, COUNT(one_rows), 4096 },
    { "two threads", two_rows, COUNT(two_rows), 4096 },
    { "cold", cold_rows, COUNT(cold_rows), 150000 },
    { "cold, the first take since a report", first_rows, COUNT(first_rows),
      150000 },
    { "bucket states", bucket_state_rows, COUNT(bucket_state_rows), 4096 },
    { "shares", share_rows, COUNT(share_rows), 4096 },
    { "adapt", adapt_rows, COUNT(adapt_rows), 4096 },
    { "wire", wire_rows, COUNT(wire_rows), 16 * 8192 },
    { "root", root_rows, COUNT(root_rows), 64 * 8192 },
};

/* The counted figures. */
static void figures_write(bool *first)
{
    double sync_seconds;
    uint64_t sync_again;
    bench_sync(&sync_seconds, &sync_again);
    const struct bench_figure figures[] = {
        { .id = "bytes_a_quota",
          .unit = "B",
          .what = "memory a quota, its name (<= 27 bytes) and index included",
          .value = bench_table_bytes(BENCH_COLD_LINES) },
        { .id = "report_dense",
          .unit = "B",
          .target = 4,
          .what = "report on the wire, a changed counter, busy limiter",
          .value = bench_report_bytes(false) },
        { .id = "report_sparse",
          .unit = "B",
          .target = 4,
          .what = "the same, one slot in 16, larger counts, refusals",
          .value = bench_report_bytes(true) },
        { .id = "sync_million",
          .unit = "s",
          .target = 3,
          .what = "a million quotas to a limiter, both nodes' work",
          .value = sync_seconds },
        { .id = "sync_again",
          .unit = "",
          .what = "quotas sent when it comes again at the same epoch",
          .value = (double)sync_again },
    };
    for (size_t i = 0; i < COUNT(figures); i++)
        bench_figure_write(&figures[i], first);
}

static int usage(const char *program)
{
    fprintf(stderr,
            "usage: %s [--rounds N] [--batch-ms N] [--only GROUP] "
            "[--peers DIR]\n"
            "Measures and writes a JSON array of rows.\n",
            program);
    return 2;
}

static bool options_read(int argc, char **argv, struct bench_options *out)
{
    static const struct option longs[] = {
        { "rounds", required_argument, NULL, 'r' },
        { "batch-ms", required_argument, NULL, 'b' },
        { "only", required_argument, NULL, 'o' },
        { "peers", required_argument, NULL, 'p' },
        { NULL, 0, NULL, 0 },
    };
    int c;
    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == 'r')
            out->rounds = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'b')
            out->batch_ns = strtoull(optarg, NULL, 10) * 1000000u;
        else if (c == 'o')
            out->only = optarg;
        else if (c == 'p')
            out->peer_dir = optarg;
        else
            return false;
    }
    return optind == argc && out->rounds >= 1 && out->rounds <= 101 &&
           out->batch_ns > 0;
}

int main(int argc, char **argv)
{
    struct bench_options options = {
        .rounds = 15,
        .batch_ns = 10000000,
    };
    if (!options_read(argc, argv, &options))
        return usage(argv[0]);
    bool first = true;
    printf("[");
    for (size_t i = 0; i < COUNT(groups); i++)
        bench_group_run(&groups[i], &options, &first);
    if (options.only == NULL || strcmp(options.only, "counted") == 0)
        figures_write(&first);
    printf("\n]\n");
    bench_peer_stop_all();
    return 0;
}
