/* SPDX-License-Identifier: MIT
 * server/snapshot/root_snapshot.c - a root's quotas as the source of a
 * snapshot. */

#include "server/snapshot/root_snapshot.h"

static const struct weir_catalog *root_catalog(void *context)
{
    const struct weir_root_snapshot *from = context;
    return weir_root_catalog(from->root);
}

static bool root_epoch(void *context, uint64_t *out_epoch)
{
    const struct weir_root_snapshot *from = context;
    struct weir_root_stats stats;
    weir_root_stats(from->root, &stats);
    *out_epoch = stats.epoch;
    return weir_root_ready(from->root);
}

static void root_identity(void *context, struct weir_store_id *out)
{
    const struct weir_root_snapshot *from = context;
    weir_root_identity(from->root, out);
}

static void log_note(void *context, enum weir_snapshot_note note,
                     const char *text)
{
    static const enum weir_log_level levels[] = {
        [WEIR_SNAPSHOT_UNSOUND] = WEIR_LOG_WARNING,
        [WEIR_SNAPSHOT_FAILED] = WEIR_LOG_WARNING,
        [WEIR_SNAPSHOT_MENDED] = WEIR_LOG_INFO,
        [WEIR_SNAPSHOT_WRITTEN] = WEIR_LOG_DEBUG,
    };
    const struct weir_root_snapshot *from = context;
    weir_log_limited(from->log, WEIR_LOG_SNAPSHOT, levels[note], "%s", text);
}

struct weir_snapshot_source weir_root_snapshot_source(
    struct weir_root_snapshot *from)
{
    return (struct weir_snapshot_source){ .context = from,
                                          .catalog = root_catalog,
                                          .epoch = root_epoch,
                                          .identity = root_identity,
                                          .note = log_note };
}
