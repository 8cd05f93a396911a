/* SPDX-License-Identifier: MIT
 * io/snapshot.h - keeps the quotas of a root, or of a limiter, in a file, so
 * that it can start again when their source can't be reached.
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

#include "core/quota/catalog.h"
#include "io/snapshot_file.h"

#define WEIR_SNAPSHOT_EVERY (10 * WEIR_SECOND) /* at most so often */

struct event_base;
struct weir_snapshot;

enum weir_snapshot_note {
    WEIR_SNAPSHOT_UNSOUND, /* the file that is there isn't used */
    WEIR_SNAPSHOT_FAILED,  /* no new one could be written; tried again */
    WEIR_SNAPSHOT_MENDED,  /* the first one after a failure was written */
    WEIR_SNAPSHOT_WRITTEN,
};

/* The quotas that are kept; called on the loop. */
struct weir_snapshot_source {
    void *context;
    /* The present set; another pointer is another set. */
    const struct weir_catalog *(*catalog)(void *context);
    /* The newest epoch of which all is in force; and whether there is a set at
     * all. */
    bool (*epoch)(void *context, uint64_t *out_epoch);
    /* The store of the quotas. */
    void (*identity)(void *context, struct weir_store_id *out);
    /* A sentence for the operator. */
    void (*note)(void *context, enum weir_snapshot_note note, const char *text);
};

struct weir_snapshot_options {
    struct event_base *base; /* borrowed */
    struct weir_snapshot_source source;
    const char *path;    /* copied */
    weir_duration every; /* 0: WEIR_SNAPSHOT_EVERY */
};

/* Reads a present snapshot, and begins to keep it up to date. A snapshot that
 * isn't sound is noted, and replaced in time. 0, WEIR_ENOMEM, WEIR_ESYSTEM (no
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
/* Whether its quotas are in force now; for the state below. */
void weir_snapshot_set_serving(struct weir_snapshot *snapshot, bool serving);

/* The identity of the change of 'epoch', as of struct weir_lineage_entry:
 * the next snapshot at that epoch has it. */
void weir_snapshot_set_lineage(struct weir_snapshot *snapshot, uint64_t epoch,
                               uint64_t identity);

/* The quotas are about to be replaced by another store's: the file that is
 * being written is given up. Call it before they are. */
void weir_snapshot_forget(struct weir_snapshot *snapshot);
/* Writes the changes that aren't written yet, and waits for it: for a graceful
 * stop. */
void weir_snapshot_finish(struct weir_snapshot *snapshot);

struct weir_snapshot_state {
    const char *path;               /* borrowed */
    bool usable;                    /* there is a sound snapshot … */
    struct weir_snapshot_info info; /* … and its contents */
    bool serving;                   /* its quotas are in force */
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
