/* SPDX-License-Identifier: MIT
 * io/snapshot_file.h - the file that keeps quotas for a start without their
 * source: writing and reading.
 *
 *     header   "WEIRSNAP", version, uuid and restores of the store
 *     piece …  length, a weir.v1 message of quotas (<= WEIR_QUOTAS_MAX)
 *     end      length 0, epoch, floor, changes, when, lineage, features,
 *              checksum of all that is before it
 *
 * Numbers are little-endian. Epoch and floor are at the end and not in the
 * header, because they are known only when the last piece is made: the catalog
 * goes on changing meanwhile. Version 1 had no lineage and no features, and is
 * read too. */

#ifndef WEIR_SNAPSHOT_FILE_H
#define WEIR_SNAPSHOT_FILE_H

#include "core/counted/message.h"

#define WEIR_SNAPSHOT_VERSION 2

struct weir_snapshot_info {
    struct weir_store_id store; /* the store of the quotas */
    uint64_t epoch;             /* the newest epoch */
    uint64_t floor;             /* as of a catalog */
    uint64_t changes;           /* quotas and removals */
    uint64_t at_ms;             /* wall clock, since 1970: when it was made */
    uint64_t lineage;           /* identity of the change 'epoch', as of struct
                                 * weir_lineage_entry; 0: unknown */
    uint64_t features; /* of quotas, as of quota_feature.h, that the writer
                        * understands: roots have withheld others */
};

/* ---- Writing ---- */

/* Zeroed: fresh. 'bytes' has the last call's bytes, until the next one. */
struct weir_snapshot_maker {
    char *bytes; /* owned */
    size_t len;
    size_t capacity;
    uint64_t checksum;
    uint64_t changes;
};
/* Each 0 or WEIR_ENOMEM. 'count' is 1 .. WEIR_QUOTAS_MAX, in the order of
 * epochs. */
int weir_snapshot_begin(struct weir_snapshot_maker *maker,
                        const struct weir_store_id *store);
int weir_snapshot_piece(struct weir_snapshot_maker *maker,
                        const struct weir_change *changes, size_t count);
/* Of 'info', 'changes' and 'features' aren't written, but those that are. */
int weir_snapshot_end(struct weir_snapshot_maker *maker,
                      const struct weir_snapshot_info *info);
void weir_snapshot_maker_fini(struct weir_snapshot_maker *maker);

/* ---- Reading ---- */

/* Called only once the whole file has been found sound. Pointers are valid
 * during the call. A negative error ends the reading. */
struct weir_snapshot_sink {
    void *context;
    int (*on_store)(void *context, const struct weir_snapshot_info *info);
    int (*on_change)(void *context, const struct weir_change *change);
};
/* Reads the snapshot at 'path', all of it or nothing; 'sink' NULL: only checks
 * it. WEIR_ENOENT: there is none. WEIR_ESYNTAX: it is cut short, damaged, or
 * another file. WEIR_ESCHEMA: a newer Weir made it. WEIR_ESYSTEM, WEIR_ENOMEM;
 * or the sink's error. 'diag' has a sentence. */
int weir_snapshot_read(const char *path, const struct weir_snapshot_sink *sink,
                       struct weir_snapshot_info *out, struct weir_diag *diag);

#endif /* WEIR_SNAPSHOT_FILE_H */
