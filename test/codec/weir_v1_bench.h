/* SPDX-License-Identifier: MIT
 * weir_v1_bench.h - shared by tests of weir.v1's bytes: buffers, and a message
 * to bytes and back. */

#ifndef WEIR_V1_BENCH_H
#define WEIR_V1_BENCH_H

#include "codec/weir_v1.h"
#include "core/base/rng.h"

struct bench {
    struct weir_arena arena;
    unsigned char *bytes;
    unsigned char *again;
    struct weir_rng rng;
};

/* For cmocka: 'state' is a struct bench with a seed of its own. */
int bench_set_up(void **state);
int bench_tear_down(void **state);

/* A number of any magnitude. */
uint64_t some(struct weir_rng *rng);
/* Encodes, decodes, encodes again: the bytes must be the same, and protobuf-c
 * must find both messages in them, and Weir's reading in variants of the bytes
 * (wire_variants.h). Returns their number; 'out' is the decoded
 * message. */
size_t round_trip(struct bench *bench, const struct weir_message *message,
                  struct weir_message *out);
/* Flips a bit, and cuts: the result is refused (false), or read as protobuf-c
 * reads it. */
bool damaged_is_read_alike(struct bench *bench,
                           const struct weir_message *message);
/* These bytes are refused with 'wanted', and nothing is written. */
void refuse(struct bench *bench, bool to_root, int wanted, const void *bytes,
            size_t len);

#define REFUSE(to_root, wanted, bytes) \
    refuse(*state, (to_root), (wanted), (bytes), sizeof(bytes) - 1)

#endif /* WEIR_V1_BENCH_H */
