/* SPDX-License-Identifier: MIT
 * weir_v1_bench.c - buffers, and a message there and back. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "seed.h"
#include "weir.pb-c.h"
#include "weir_v1_bench.h"
#include "weir_v1_oracle.h"
#include "wire_variants.h"

int bench_set_up(void **state)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    bench->arena.size = WEIR_DECODE_ARENA_SIZE;
    bench->arena.base = malloc(bench->arena.size);
    bench->bytes = malloc(WEIR_MESSAGE_BYTES_MAX);
    bench->again = malloc(WEIR_MESSAGE_BYTES_MAX);
    bench->rng = made_seed("weir_v1");
    *state = bench;
    return 0;
}

int bench_tear_down(void **state)
{
    struct bench *bench = *state;
    free(bench->arena.base);
    free(bench->bytes);
    free(bench->again);
    free(bench);
    return 0;
}

uint64_t some(struct weir_rng *rng)
{
    return weir_rng_next(rng) >> weir_rng_below(rng, 64);
}

static bool is_to_root(const struct weir_message *message)
{
    return message->type == WEIR_MESSAGE_HELLO ||
           message->type == WEIR_MESSAGE_REPORT ||
           message->type == WEIR_MESSAGE_ASKS ||
           message->type == WEIR_MESSAGE_WANTS ||
           message->type == WEIR_MESSAGE_LIMITS;
}

static enum wire_verdict judge_weir_v1(void *context, const uint8_t *bytes,
                                       size_t len)
{
    static unsigned char block[WEIR_DECODE_ARENA_SIZE];
    struct weir_arena arena = { block, sizeof(block), 0 };
    struct weir_message out;
    bool to_root = *(bool *)context;
    if (weir_v1_decode(bytes, len, to_root, &arena, &out) < 0)
        return WIRE_REFUSED;
    return oracle_agrees(bytes, len, to_root, &out) ? WIRE_ALIKE : WIRE_DIFFERS;
}

size_t round_trip(struct bench *bench, const struct weir_message *message,
                  struct weir_message *out)
{
    size_t size = weir_v1_size(message);
    assert_int_equal(
        weir_v1_encode(message, bench->bytes, WEIR_MESSAGE_BYTES_MAX), size);
    assert_int_equal(weir_v1_encode(message, bench->again, size - 1), 0);
    assert_int_equal(weir_v1_decode(bench->bytes, size, is_to_root(message),
                                    &bench->arena, out),
                     0);
    assert_int_equal(out->type, message->type);
    assert_int_equal(out->session, message->session);
    assert_int_equal(weir_v1_encode(out, bench->again, WEIR_MESSAGE_BYTES_MAX),
                     size);
    assert_memory_equal(bench->bytes, bench->again, size);
    assert_true(
        oracle_agrees(bench->bytes, size, is_to_root(message), message));
    assert_true(oracle_agrees(bench->bytes, size, is_to_root(message), out));
    bool to_root = is_to_root(message);
    wire_check(&bench->rng,
               to_root ? &weir__v1__to_root__descriptor
                       : &weir__v1__to_limiter__descriptor,
               bench->bytes, size, judge_weir_v1, &to_root);
    return size;
}

bool damaged_is_read_alike(struct bench *bench,
                           const struct weir_message *message)
{
    struct weir_message out;
    size_t size = weir_v1_encode(message, bench->bytes, WEIR_MESSAGE_BYTES_MAX);
    size_t at = weir_rng_below(&bench->rng, size);
    bench->bytes[at] ^= (unsigned char)(1 << weir_rng_below(&bench->rng, 8));
    if (weir_rng_below(&bench->rng, 8) == 0)
        size = at;
    /* An exact copy, so that a sanitizer sees a read past the end. */
    unsigned char *copy = malloc(size > 0 ? size : 1);
    memcpy(copy, bench->bytes, size);
    int error =
        weir_v1_decode(copy, size, is_to_root(message), &bench->arena, &out);
    if (error == 0)
        assert_true(oracle_agrees(copy, size, is_to_root(message), &out));
    free(copy);
    return error == 0;
}

void refuse(struct bench *bench, bool to_root, int wanted, const void *bytes,
            size_t len)
{
    struct weir_message out = { .session = 42 };
    assert_int_equal(weir_v1_decode(bytes, len, to_root, &bench->arena, &out),
                     wanted);
    assert_int_equal(out.session, 42);
}
