/* SPDX-License-Identifier: MIT
 * weir_v1_oracle.h - compares protobuf-c's reading of a message of weir.v1,
 * field by field, with Weir's. */

#ifndef WEIR_V1_ORACLE_H
#define WEIR_V1_ORACLE_H

#include "core/counted/message.h"

/* True: protobuf-c reads 'bytes' and finds 'message' in them. */
bool oracle_agrees(const void *bytes, size_t len, bool to_root,
                   const struct weir_message *message);

#endif /* WEIR_V1_ORACLE_H */
