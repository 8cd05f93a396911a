/* SPDX-License-Identifier: MIT
 * base/sha256.h - SHA-256 (FIPS 180-4), for values that clients choose and that
 * must not collide. base/hash.h is faster, and enough where a secret seed keeps
 * clients from choosing collisions. */

#ifndef WEIR_SHA256_H
#define WEIR_SHA256_H

#include "core/base/base.h"

#define WEIR_SHA256_SIZE 32

void weir_sha256(struct weir_text text, uint8_t out[WEIR_SHA256_SIZE]);

#endif /* WEIR_SHA256_H */
