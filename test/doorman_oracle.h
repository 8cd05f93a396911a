/* SPDX-License-Identifier: MIT
 * test/doorman_oracle.h - protobuf-c's reading of Doorman's messages. */

#ifndef WEIR_DOORMAN_ORACLE_H
#define WEIR_DOORMAN_ORACLE_H

#include <protobuf-c/protobuf-c.h>

#include "codec/doorman.h"

const ProtobufCMessageDescriptor *oracle_doorman_type(
    enum weir_doorman_type type);

/* True: protobuf-c finds the same in 'bytes' as in 'ours', the same message
 * read and written by the code under test: required fields missing in 'bytes'
 * are zeros in 'ours', and 'ours' lacks nothing. */
bool oracle_doorman(enum weir_doorman_type type, const void *bytes, size_t len,
                    const void *ours, size_t ours_len);

/* Writes protobuf-c's reading of 'bytes' into 'buf': with 'proto3' like a
 * sender that leaves out zeros, except for fields that are optional in the
 * original. Returns the length, at most that of 'bytes' if those have all
 * required fields. */
size_t oracle_doorman_again(enum weir_doorman_type type, const void *bytes,
                            size_t len, bool proto3, void *buf);

#endif /* WEIR_DOORMAN_ORACLE_H */
