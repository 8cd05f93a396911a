/* SPDX-License-Identifier: MIT
 * bench/peer.h - limiters of other languages, measured in their own process, in
 * this program's rounds. */

#ifndef WEIR_BENCH_PEER_H
#define WEIR_BENCH_PEER_H

#include <stdbool.h>
#include <stdint.h>

/* Starts the program DIR/bench-NAME unless it runs already. Returns NULL, or
 * the reason why it can't run. */
const char *bench_peer_start(const char *name, const char *dir);

/* Runs 'n' operations of 'request'. Returns nanoseconds an operation and
 * thread, negative if the program failed. */
double bench_peer_ask(const char *name, const char *request, uint64_t n,
                      bool *out_disturbed);

/* Frees the memory that its requests have built. */
void bench_peer_rest(const char *name);

/* Ends all peers' programs. */
void bench_peer_stop_all(void);

#endif /* WEIR_BENCH_PEER_H */
