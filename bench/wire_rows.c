/* SPDX-License-Identifier: MIT
 * bench/wire_rows.c - a report on the wire: its bytes, and the time to read and
 * write it.
 *
 * One report of as many counters as fit. A counter's bytes depend on the
 * distance of its slot from the one before and on its count, so there are two
 * kinds:
 *
 *     dense   each slot in turn, 0 to 99 units passed: a busy limiter
 *     sparse  one slot in 16 at random, 0 to 9,999 units, a tenth of them
 *             with refusals: a large table, little of it in use
 *
 * Bytes are those of the message with the five of gRPC and the nine of its
 * HTTP/2 frame; names were sent before, once. */

#include "rows.h"

#include <stdlib.h>

#include "codec/weir_v1.h"

#define COUNTS WEIR_REPORT_COUNTS_MAX
#define FRAMES 14u /* bytes of gRPC's and HTTP/2's heads */

struct wire {
    struct weir_count counts[COUNTS];
    struct weir_message message;
    struct weir_arena arena;
    unsigned char *bytes;
    size_t size;
    size_t len;
};

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void counts_fill(struct weir_count *counts, bool sparse)
{
    uint64_t state = 20;
    uint32_t slot = 0;
    for (size_t i = 0; i < COUNTS; i++) {
        slot += sparse ? 1 + next_random(&state) % 31 : 1;
        uint32_t units = next_random(&state);
        counts[i] = (struct weir_count){
            .slot = slot,
            .passed = (int64_t)(units % (sparse ? 10000 : 100)),
        };
        if (sparse && units % 10 == 0)
            counts[i].refused = 1 + units % 100;
    }
}

static void wire_teardown(void *state)
{
    struct wire *wire = state;
    bench_pages_free(wire->arena.base, wire->arena.size);
    free(wire->bytes);
    free(wire);
}

static struct wire *wire_new(bool sparse)
{
    struct wire *wire = calloc(1, sizeof(*wire));
    if (wire == NULL)
        return NULL;
    counts_fill(wire->counts, sparse);
    wire->message = (struct weir_message){
        .type = WEIR_MESSAGE_REPORT,
        .session = 0x123456789abcdef0u,
        .report = {
            .number = 1000,
            .epoch = 1000,
            .count = COUNTS,
            .counts = wire->counts,
        },
    };
    wire->size = weir_v1_size(&wire->message);
    wire->bytes = malloc(wire->size);
    wire->arena.size = WEIR_DECODE_ARENA_SIZE;
    wire->arena.base = bench_pages(wire->arena.size);
    if (wire->bytes == NULL || wire->arena.base == NULL) {
        wire_teardown(wire);
        return NULL;
    }
    wire->len = weir_v1_encode(&wire->message, wire->bytes, wire->size);
    if (wire->len == 0)
        abort();
    return wire;
}

static void *sparse_setup(const char **out_note)
{
    (void)out_note;
    return wire_new(true);
}

const struct bench_fixture bench_wire = { sparse_setup, wire_teardown };

/* An operation is a counter: 'n' of them, rounded up to whole reports. */
void bench_report_encode(void *state, int thread, uint64_t n)
{
    struct wire *wire = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i += COUNTS)
        if (weir_v1_encode(&wire->message, wire->bytes, wire->size) == 0)
            abort();
}

void bench_report_decode(void *state, int thread, uint64_t n)
{
    struct wire *wire = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i += COUNTS) {
        struct weir_message message;
        if (weir_v1_decode(wire->bytes, wire->len, true, &wire->arena,
                           &message) != 0)
            abort();
        bench_keep(message.report.counts[COUNTS - 1].slot);
    }
}

double bench_report_bytes(bool sparse)
{
    struct wire *wire = wire_new(sparse);
    if (wire == NULL)
        abort();
    double bytes = (double)(wire->len + FRAMES) / COUNTS;
    wire_teardown(wire);
    return bytes;
}
