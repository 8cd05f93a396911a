/* SPDX-License-Identifier: MIT
 * etcd_oracle.h - compares protobuf-c's reading of an answer of etcd, field by
 * field, with Weir's. */

#ifndef WEIR_ETCD_ORACLE_H
#define WEIR_ETCD_ORACLE_H

#include <protobuf-c/protobuf-c.h>

#include "codec/etcd_v3.h"

/* The message that answers. */
const ProtobufCMessageDescriptor *oracle_etcd_type(enum weir_etcd_type type);

/* True: protobuf-c reads 'bytes' and finds 'ours' in them. */
bool oracle_etcd(enum weir_etcd_type type, const void *bytes, size_t len,
                 const struct weir_etcd_answer *ours);

#endif /* WEIR_ETCD_ORACLE_H */
