/* SPDX-License-Identifier: MIT
 * base/sha256.c - SHA-256.
 *
 * Of our own, although OpenSSL has it: OpenSSL 3's functions that aren't
 * deprecated fetch the algorithm from a provider, which allocates and takes
 * locks. A decision does neither, and the modules of core/ are pure.
 * test_sha256 compares this one with OpenSSL's. */

#include "core/base/sha256.h"

#include <string.h>

#define BLOCK 64
#define ROUNDS 64

/* The first 32 bits of the fractions of the cube roots of the first 64
 * primes. */
static const uint32_t constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t word, unsigned bits)
{
    return word >> bits | word << (32 - bits);
}

static uint32_t load_big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

static void store_big_endian(uint32_t word, uint8_t *p)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(word >> (24 - 8 * i));
}

static void schedule(const uint8_t *block, uint32_t w[ROUNDS])
{
    for (unsigned i = 0; i < 16; i++)
        w[i] = load_big_endian(block + 4 * (size_t)i);
    for (unsigned i = 16; i < ROUNDS; i++) {
        uint32_t x = w[i - 15];
        uint32_t y = w[i - 2];
        w[i] = w[i - 16] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) + w[i - 7] +
               (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
}

/* The eight words are variables, not an array: compilers then keep them in
 * registers, which halves the time. */
static void compress(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[ROUNDS];
    schedule(block, w);
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint32_t one = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                       ((e & f) ^ (~e & g)) + constants[i] + w[i];
        uint32_t two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                       ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + one;
        d = c;
        c = b;
        b = a;
        a = one + two;
    }
    const uint32_t ends[8] = { a, b, c, d, e, f, g, h };
    for (unsigned i = 0; i < 8; i++)
        state[i] += ends[i];
}

void weir_sha256(struct weir_text text, uint8_t out[WEIR_SHA256_SIZE])
{
    weir_assert(text.p || text.len == 0);
    uint32_t state[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
    size_t at = 0;
    for (; text.len - at >= BLOCK; at += BLOCK)
        compress(state, (const uint8_t *)text.p + at);
    /* The rest, a bit of one, and the length in bits at a block's end. */
    uint8_t end[2 * BLOCK] = { 0 };
    size_t rest = text.len - at;
    if (rest > 0)
        memcpy(end, text.p + at, rest);
    end[rest] = 0x80;
    size_t size = rest + 1 + 8 <= BLOCK ? BLOCK : 2 * BLOCK;
    weir_assert(rest < BLOCK && rest + 1 + 8 <= size);
    uint64_t bits = (uint64_t)text.len * 8;
    store_big_endian((uint32_t)(bits >> 32), end + size - 8);
    store_big_endian((uint32_t)bits, end + size - 4);
    for (size_t done = 0; done < size; done += BLOCK)
        compress(state, end + done);
    for (unsigned i = 0; i < 8; i++)
        store_big_endian(state[i], out + 4 * (size_t)i);
}
