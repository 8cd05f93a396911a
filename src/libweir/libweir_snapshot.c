/* SPDX-License-Identifier: MIT
 * libweir/libweir_snapshot.c - the snapshot of the quotas: a limiter that
 * starts while no root can be reached goes by the quotas that it had.
 *
 *     roots -> limiter --sink--> catalog <-- io/snapshot.h --> file
 *                 ^------------- restored at the start ---------'
 *
 * The table has quotas in the form in which they are decided, so the snapshot
 * has a catalog of its own. A whole set fills a second one, which replaces the
 * first when it is complete.
 *
 * The quotas of the file are restored before the first root is met, as a
 * region's root does it. The limiter is ready then, decides by its own counts,
 * and after stale_after by each quota's on_stale: a root gets the full time to
 * answer.
 *
 * All on the background thread. A child of fork() keeps no snapshot: the file
 * is the parent's. */

#include "libweir/libweir_internal.h"

#include <stdlib.h>
#include <string.h>

#include "io/clock.h"
#include "io/snapshot.h"

struct weir_kept {
    struct weir *weir; /* borrowed */
    struct weir_limiter_sink sink;
    struct weir_catalog *catalog; /* owned, as all below; the whole set */
    struct weir_catalog *coming;  /* being filled; NULL: none */
    struct weir_store_id store, coming_store;
    uint64_t epoch; /* of 'catalog'; 0: not complete */
    bool failed;    /* no memory for a change: until the next whole set */
    struct weir_snapshot *snapshot;
    char path[]; /* NUL-terminated */
};

/* ---- From the limiter to the catalog ---- */

static int begin_kept(void *context, const struct weir_store_id *store,
                      weir_instant now)
{
    (void)now;
    struct weir_kept *kept = context;
    weir_catalog_free(kept->coming);
    kept->coming = weir_catalog_new(&weir_mem_system, kept->weir->id);
    kept->coming_store = *store;
    kept->failed = !kept->coming;
    return 0;
}

/* Without memory the limiter goes on, and the old file stays. */
static int keep_change(void *context, const struct weir_change *change,
                       weir_instant now)
{
    (void)now;
    struct weir_kept *kept = context;
    struct weir_catalog *to = kept->coming ? kept->coming : kept->catalog;
    if (!kept->failed && (!to || weir_catalog_apply(to, change) < 0))
        kept->failed = true;
    return 0;
}

static int reach_kept(void *context, uint64_t epoch, weir_instant now)
{
    (void)now;
    struct weir_kept *kept = context;
    if (kept->failed)
        return 0;
    if (kept->coming) {
        if (kept->snapshot)
            weir_snapshot_forget(kept->snapshot);
        weir_catalog_free(kept->catalog);
        kept->catalog = kept->coming;
        kept->store = kept->coming_store;
        kept->coming = NULL;
    }
    weir_assert(kept->catalog);
    kept->epoch = epoch;
    return 0;
}

/* ---- From the catalog to the file ---- */

static const struct weir_catalog *kept_catalog(void *context)
{
    const struct weir_kept *kept = context;
    return kept->catalog;
}

static bool kept_epoch(void *context, uint64_t *out_epoch)
{
    const struct weir_kept *kept = context;
    *out_epoch = kept->epoch;
    return kept->epoch > 0 && !kept->failed && !kept->coming;
}

static void kept_identity(void *context, struct weir_store_id *out)
{
    const struct weir_kept *kept = context;
    *out = kept->store;
}

static void send_note(void *context, enum weir_snapshot_note note,
                      const char *text)
{
    const struct weir_kept *kept = context;
    if (note != WEIR_SNAPSHOT_WRITTEN)
        weir_event_report(kept->weir, WEIR_EVENT_SNAPSHOT, "%.190s", text);
}

/* ---- From the file to the limiter ---- */

static int restore_store(void *context, const struct weir_snapshot_info *info)
{
    const struct weir_kept *kept = context;
    return weir_limiter_restore(kept->weir->limiter, &info->store,
                                weir_clock_now());
}

static int restore_change(void *context, const struct weir_change *change)
{
    const struct weir_kept *kept = context;
    return weir_limiter_apply(kept->weir->limiter, change, weir_clock_now());
}

void weir_kept_restore(struct weir *weir)
{
    struct weir_kept *kept = weir->kept;
    struct weir_snapshot_state state;
    struct weir_diag diag = { 0 };
    if (!kept || !kept->snapshot || !weir_snapshot_usable(kept->snapshot))
        return;
    const struct weir_snapshot_sink sink = { kept, restore_store,
                                             restore_change };
    if (weir_snapshot_load(kept->snapshot, &sink, &diag) < 0) {
        weir_event_report(weir, WEIR_EVENT_SNAPSHOT, "%.190s", diag.text);
        return;
    }
    weir_snapshot_look(kept->snapshot, &state);
    (void)weir_limiter_restored(weir->limiter, state.info.epoch,
                                state.info.features, weir_clock_now());
    weir_event_report(weir, WEIR_EVENT_SNAPSHOT,
                      "the quotas of %.100s, at epoch %llu, are in force until "
                      "a root answers",
                      kept->path, (unsigned long long)state.info.epoch);
}

/* ---- Life ---- */

int weir_kept_init(struct weir *weir, const char *path)
{
    weir_assert(!weir->kept);
    if (!path || !*path)
        return 0;
    size_t size = strlen(path) + 1;
    struct weir_kept *kept = calloc(1, sizeof(*kept) + size);
    if (!kept)
        return WEIR_ENOMEM;
    memcpy(kept->path, path, size);
    kept->weir = weir;
    kept->sink = (struct weir_limiter_sink){ .context = kept,
                                             .whole = begin_kept,
                                             .change = keep_change,
                                             .reached = reach_kept };
    weir->kept = kept;
    return 0;
}

const struct weir_limiter_sink *weir_kept_sink(const struct weir *weir)
{
    return weir->kept ? &weir->kept->sink : NULL;
}

int weir_kept_open(struct weir *weir)
{
    struct weir_kept *kept = weir->kept;
    if (!kept)
        return 0;
    const struct weir_snapshot_options options = {
        .base = weir->base,
        .source = { .context = kept,
                    .catalog = kept_catalog,
                    .epoch = kept_epoch,
                    .identity = kept_identity,
                    .note = send_note },
        .path = kept->path,
    };
    return weir_snapshot_new(&options, &kept->snapshot, NULL);
}

void weir_kept_close(struct weir *weir)
{
    if (weir->kept)
        weir_snapshot_free(&weir->kept->snapshot);
}

/* The thread and the descriptors are the parent's. */
void weir_kept_forked(struct weir *weir)
{
    if (!weir->kept)
        return;
    weir->kept = NULL;
    weir_assert(weir->limiter); /* with a snapshot there is no shared table */
    weir_limiter_forget_keeper(weir->limiter);
}

void weir_kept_fini(struct weir *weir)
{
    struct weir_kept *kept = weir->kept;
    if (!kept)
        return;
    weir_assert(!kept->snapshot);
    weir_catalog_free(kept->catalog);
    weir_catalog_free(kept->coming);
    free(kept);
    weir->kept = NULL;
}
