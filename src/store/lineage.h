/* SPDX-License-Identifier: MIT
 * store/lineage.h - whether a store still has the changes that a reader took
 * from it, or had its history replaced: a failover that lost commits, an older
 * copy of the file. The epoch alone doesn't show that, because later edits may
 * have brought it beyond the reader's. */

#ifndef WEIR_LINEAGE_H
#define WEIR_LINEAGE_H

#include "core/counted/message.h"

/* Changes that a reader remembers: the bound on the number of lost ones that it
 * can count. */
#define WEIR_LINEAGE_MAX 1024

/* A change that a reader has. */
struct weir_lineage_entry {
    uint64_t epoch;
    uint64_t edit;     /* last epoch of its edit; 0: unknown */
    uint64_t identity; /* a hash of its entry in the store's log; 0: unknown */
};

/* The newest changes that a reader has. Zeroed: none. */
struct weir_lineage {
    struct weir_store_id id; /* the store that they are from */
    size_t count;
    struct weir_lineage_entry entries[WEIR_LINEAGE_MAX]; /* epochs ascending */
};

/* The edits that a reader has, and its store doesn't have any more. */
struct weir_lineage_loss {
    uint64_t from;  /* the first epoch that is known to be lost … */
    uint64_t till;  /* … and the last */
    uint64_t edits; /* in this range; at least 1 */
    bool all;       /* no edit before 'from' is lost */
};

/* The newest entry; all 0 if there is none. */
struct weir_lineage_entry weir_lineage_last(const struct weir_lineage *lineage);
/* Adds an entry with an epoch above the last one's; the oldest goes if there
 * are WEIR_LINEAGE_MAX. */
void weir_lineage_add(struct weir_lineage *lineage,
                      const struct weir_lineage_entry *entry);

#endif /* WEIR_LINEAGE_H */
