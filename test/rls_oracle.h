/* SPDX-License-Identifier: MIT
 * rls_oracle.h - compares protobuf-c's reading of a message of Envoy's rate
 * limit services, field by field, with Weir's. */

#ifndef WEIR_RLS_ORACLE_H
#define WEIR_RLS_ORACLE_H

#include <protobuf-c/protobuf-c.h>

#include "codec/rlqs.h"

/* Of a request, and of a report. */
extern const ProtobufCMessageDescriptor *const oracle_rls_type,
    *const oracle_rlqs_type;

/* True: protobuf-c reads 'bytes' and finds in them what Weir has found, so far
 * as Weir keeps it. In protobuf-c, a text ends at its first NUL. */
bool oracle_rls(const void *bytes, size_t len,
                const struct weir_rls_request *ours);
bool oracle_rlqs(const void *bytes, size_t len,
                 const struct weir_rlqs_reports *ours);
bool oracle_health(const void *bytes, size_t len, struct weir_text service);
/* The same of one encoded answer or action. */
bool oracle_rls_answer(const void *bytes, size_t len,
                       const struct weir_rls_answer *ours);
bool oracle_rlqs_action(const void *bytes, size_t len,
                        const struct weir_rlqs_action *ours);

#endif /* WEIR_RLS_ORACLE_H */
