/* SPDX-License-Identifier: MIT
 * server/snapshot/root_snapshot.h - a root's quotas as the source of a snapshot
 * (io/snapshot.h), and its log. */

#ifndef WEIR_ROOT_SNAPSHOT_H
#define WEIR_ROOT_SNAPSHOT_H

#include "core/node/root.h"
#include "front/log.h"
#include "io/snapshot.h"

/* Both are borrowed. */
struct weir_root_snapshot {
    struct weir_root *root;
    struct weir_log *log;
};

/* 'from' outlives the snapshot. */
struct weir_snapshot_source weir_root_snapshot_source(
    struct weir_root_snapshot *from);

#endif /* WEIR_ROOT_SNAPSHOT_H */
