/* SPDX-License-Identifier: MIT
 * base/hash.h - the hash of names: XXH3, 64 bits, seeded: names from untrusted
 * clients cannot be chosen to collide. */

#ifndef WEIR_HASH_H
#define WEIR_HASH_H

#define XXH_INLINE_ALL
#define XXH_NO_STREAM
#include <xxhash.h>

#include "core/base/base.h"

static inline uint64_t weir_hash(struct weir_text text, uint64_t seed)
{
    return XXH3_64bits_withSeed(text.p, text.len, seed);
}

#endif /* WEIR_HASH_H */
