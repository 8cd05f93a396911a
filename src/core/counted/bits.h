/* SPDX-License-Identifier: MIT
 * counted/bits.h - sets of slots: a bit each. */

#ifndef WEIR_BITS_H
#define WEIR_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Words of a set of 'count' bits. */
static inline size_t weir_bit_words(uint32_t count)
{
    return ((size_t)count + 63) / 64;
}

static inline void weir_bit_set(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= (uint64_t)1 << (i % 64);
}

static inline void weir_bit_clear(uint64_t *bits, uint32_t i)
{
    bits[i / 64] &= ~((uint64_t)1 << (i % 64));
}

static inline bool weir_bit_is_set(const uint64_t *bits, uint32_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

/* The first set bit at or after 'from', below 'end'; 'end' if none. */
static inline uint32_t weir_bit_next(const uint64_t *bits, uint32_t from,
                                     uint32_t end)
{
    while (from < end) {
        uint64_t word = bits[from / 64] >> (from % 64);
        if (word != 0) {
            uint32_t found = from + (uint32_t)__builtin_ctzll(word);
            return found < end ? found : end;
        }
        from = (from / 64 + 1) * 64;
    }
    return end;
}

#endif /* WEIR_BITS_H */
