/* SPDX-License-Identifier: MIT
 * server/snapshot/snapshot.h - keeps a root's quotas in a file, so that it can
 * start again when its store or its upstream can't be reached.
 *
 *     loop                                      thread
 *      | every so often, if the quotas changed:   |
 *      | -- 512 changes, as bytes ------------->  | write()
 *      | <------------- done -------------------  |
 *      | -- 512 more … the last ones ---------->  | fsync(), rename()
 *
 * The loop never waits for the disk, and no turn of it makes more than one
 * piece. The file is whole or not there: it is made beside the old one and
 * takes its place at the end. */

#ifndef WEIR_SNAPSHOT_H
#define WEIR_SNAPSHOT_H

#include "core/node/root.h"
#include "front/log.h"
#include "server/snapshot/snapshot_file.h"

#define WEIR_SNAPSHOT_EVERY (10 * WEIR_SECOND) /* at most so often */

struct event_base;
struct weir_snapshot;

struct weir_snapshot_options {
    struct event_base *base; /* borrowed, as the next two */
    struct weir_root *root;
    struct weir_log *log;
    const char *path;    /* copied */
    weir_duration every; /* 0: WEIR_SNAPSHOT_EVERY */
};

/* Reads a present snapshot, and begins to keep it up to date. A snapshot that
 * isn't sound is logged, and replaced in time. 0, WEIR_ENOMEM, WEIR_ESYSTEM (no
 * thread). */
int weir_snapshot_new(const struct weir_snapshot_options *options,
                      struct weir_snapshot **out, struct weir_diag *diag);
/* A file that is being written is given up. NULL inside is legal. */
void weir_snapshot_free(struct weir_snapshot **snapshot);

/* Whether there is a sound snapshot, as far as is known. */
bool weir_snapshot_usable(const struct weir_snapshot *snapshot);
/* Hands out the snapshot's quotas. As weir_snapshot_read(). */
int weir_snapshot_load(struct weir_snapshot *snapshot,
                       const struct weir_snapshot_sink *sink,
                       struct weir_diag *diag);
/* Whether the root serves from it now; for the state below. */
void weir_snapshot_set_serving(struct weir_snapshot *snapshot, bool serving);

/* The identity of the root's change 'epoch', as of struct weir_lineage_entry:
 * the next snapshot at that epoch has it. */
void weir_snapshot_set_lineage(struct weir_snapshot *snapshot, uint64_t epoch,
                               uint64_t identity);

/* The root's quotas are about to be replaced by another store's: the file that
 * is being written is given up. Call it before the root is changed. */
void weir_snapshot_forget(struct weir_snapshot *snapshot);
/* Writes the changes that aren't written yet, and waits for it: for a graceful
 * stop. */
void weir_snapshot_finish(struct weir_snapshot *snapshot);

struct weir_snapshot_state {
    const char *path;               /* borrowed */
    bool usable;                    /* there is a sound snapshot … */
    struct weir_snapshot_info info; /* … and its contents */
    bool serving;                   /* the root serves from it */
    uint64_t written;               /* number of snapshots */
    uint64_t failures;              /* number of failed tries */
    char problem[WEIR_DIAG_MAX];    /* of the last try; "": none */
    weir_duration longest_turn;     /* of the loop */
};
void weir_snapshot_look(const struct weir_snapshot *snapshot,
                        struct weir_snapshot_state *out);

/* The wall clock, since 1970, as of struct weir_snapshot_info. */
uint64_t weir_snapshot_clock(void);

#endif /* WEIR_SNAPSHOT_H */
