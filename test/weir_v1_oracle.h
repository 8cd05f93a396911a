/* SPDX-License-Identifier: MIT
 * weir_v1_oracle.h - compares protobuf-c's reading of the bytes of a report or
 * of fills, row by row, with that of the hand-written reader. */

#ifndef WEIR_V1_ORACLE_H
#define WEIR_V1_ORACLE_H

#include "core/counted/message.h"

/* True: protobuf-c reads 'bytes' and finds 'message' in them, or protobuf-c
 * reads such messages anyway. */
bool oracle_agrees(const void *bytes, size_t len,
                   const struct weir_message *message);

#endif /* WEIR_V1_ORACLE_H */
