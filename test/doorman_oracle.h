/* SPDX-License-Identifier: MIT
 * test/doorman_oracle.h - what protobuf-c makes of Doorman's messages. */

#ifndef WEIR_DOORMAN_ORACLE_H
#define WEIR_DOORMAN_ORACLE_H

#include "wire/doorman.h"

/* Whether protobuf-c finds in 'bytes' what it finds in 'ours', which is the
 * same message, read and written by the code under test: required fields that
 * aren't in 'bytes' are zeros in 'ours', and 'ours' lacks nothing. */
bool oracle_doorman(enum weir_doorman_type type, const void *bytes, size_t len,
                    const void *ours, size_t ours_len);

/* Writes into 'buf' what protobuf-c makes of 'bytes': with 'proto3' as a
 * sender would that leaves out zeros, but for fields that are optional in the
 * original. Returns the length, at most that of 'bytes' if those have all that
 * is required. */
size_t oracle_doorman_again(enum weir_doorman_type type, const void *bytes,
                            size_t len, bool proto3, void *buf);

#endif /* WEIR_DOORMAN_ORACLE_H */
