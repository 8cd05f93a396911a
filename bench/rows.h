/* SPDX-License-Identifier: MIT
 * bench/rows.h - the bodies and fixtures of the table of rows. */

#ifndef WEIR_BENCH_ROWS_H
#define WEIR_BENCH_ROWS_H

#include "harness.h"

typedef void bench_body(void *state, int thread, uint64_t n);

/* ---- anchors.c: limits of the machine itself ---- */

/* Lines that stay in the cache. */
extern const struct bench_fixture bench_lines_hot;
bench_body bench_add_own, bench_add_shared;
bench_body bench_add3_own, bench_add3_shared;
bench_body bench_cas_own, bench_cas_shared;
bench_body bench_clock_monotonic, bench_clock_coarse, bench_clock_tsc;
bench_body bench_name_hot;

/* Four million lines that don't fit into it. */
#define BENCH_COLD_LINES (4u << 20)
extern const struct bench_fixture bench_lines_cold;
bench_body bench_cold_together, bench_cold_stream, bench_cold_parents;
extern const struct bench_fixture bench_names_cold;
bench_body bench_name_cold;

/* ---- buckets.c: peers in C ---- */

extern const struct bench_fixture bench_buckets;
bench_body bench_mutex_clock;
bench_body bench_zero_clock, bench_zero_given;

/* ---- table_rows.c: Weir's ---- */

extern const struct bench_fixture bench_table_hot;
bench_body bench_take_one, bench_take_empty, bench_take_refused;
bench_body bench_take_three, bench_take_name;
bench_body bench_take_one_2, bench_take_three_2;
extern const struct bench_fixture bench_table_cold;
bench_body bench_take_cold, bench_take_cold_stream;
bench_body bench_take_cold_name, bench_take_cold_many;
void bench_cold_report(void *state); /* between two batches */
/* Bytes a slot, of a table with so many slots. */
double bench_table_bytes(uint32_t slots);

/* ---- wire_rows.c: Weir's ---- */

extern const struct bench_fixture bench_wire;
bench_body bench_report_encode, bench_report_decode;
/* Bytes a changed counter of a report on the wire. */
double bench_report_bytes(bool sparse);

/* ---- root_rows.c: Weir's ---- */

#define BENCH_ROOT_MAX (4u << 20) /* counters in a batch */
extern const struct bench_fixture bench_root, bench_root_many;
extern const struct bench_fixture bench_root_looked;
bench_body bench_root_merge;
void bench_root_write(void *state); /* between two batches */

/* ---- bucket_state_rows.c: Weir's ---- */

extern const struct bench_fixture bench_algorithms;
bench_body bench_algorithm_leaky, bench_algorithm_leaky_refused;
bench_body bench_algorithm_queue, bench_algorithm_queue_refused;
bench_body bench_algorithm_token, bench_algorithm_token_refused;
bench_body bench_algorithm_row, bench_algorithm_row_refused;
bench_body bench_algorithm_fixed, bench_algorithm_fixed_refused;
bench_body bench_algorithm_month, bench_algorithm_month_refused;
bench_body bench_algorithm_log, bench_algorithm_log_refused;
bench_body bench_algorithm_sliding_1, bench_algorithm_sliding_1_refused;
bench_body bench_algorithm_sliding_60, bench_algorithm_sliding_60_refused;

/* ---- share_rows.c: Weir's ---- */

extern const struct bench_fixture bench_shares_100, bench_shares_1k;
extern const struct bench_fixture bench_shares_10k, bench_shares_100k;
bench_body bench_share_changed, bench_share_same;

/* ---- adapt_rows.c: Weir's, and a mutex ---- */

extern const struct bench_fixture bench_gate;
bench_body bench_gate_pair, bench_gate_refused;
bench_body bench_window_close, bench_window_copy;
bench_body bench_mutex_pairs;

/* ---- permit_rows.c: Weir's ---- */

extern const struct bench_fixture bench_permits;
bench_body bench_permit_local, bench_permit_adaptive, bench_permit_refused;

/* ---- sync_rows.c: Weir's ---- */

/* Processor seconds until a limiter has a million quotas, and the number of
 * quotas sent when it reconnects at the same epoch. */
void bench_sync(double *out_seconds, uint64_t *out_again);

/* The names of quotas in all cold rows: 24 bytes each. */
#define BENCH_NAME_LEN 24
void bench_name_write(char *out, uint32_t number);

/* A random order of 0 .. count-1, the same in each run; it depends on 'seed'.
 * NULL: no memory. */
uint32_t *bench_shuffle(uint32_t count, uint32_t seed);

#endif /* WEIR_BENCH_ROWS_H */
