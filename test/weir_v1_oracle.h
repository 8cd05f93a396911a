/* SPDX-License-Identifier: MIT
 * weir_v1_oracle.h - what protobuf-c makes of the bytes of a report or of
 * fills, row by row, against what the hand-written reader made of them. */

#ifndef WEIR_V1_ORACLE_H
#define WEIR_V1_ORACLE_H

#include "count/message.h"

/* Whether protobuf-c reads 'bytes' and finds 'message' in them. True for
 * messages that are read by protobuf-c anyway. */
bool oracle_agrees(const void *bytes, size_t len,
                   const struct weir_message *message);

#endif /* WEIR_V1_ORACLE_H */
