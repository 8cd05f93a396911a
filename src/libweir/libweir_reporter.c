/* SPDX-License-Identifier: MIT
 * libweir/libweir_reporter.c - a process on a shared table: it watches the
 * others, and may be the reporter.
 *
 *     callers' threads      the watcher                 background thread
 *     ----------------      -----------                 -----------------
 *     decide on the table   each 100 ms: reaps the dead in the reporter only:
 *     kick: a word, which   becomes the reporter     -> the pump as usual, over
 *       the reporter's        if there is none          weir_limiter_inherit()
 *       watcher waits for   that word -> eventfd
 *
 * The watcher waits for no lock of the table: it breaks the locks of the dead,
 * and no other thread might be there to do it. It tries the writer lock as the
 * reaper, and for pins that are late; the next look tries again. The limiter is
 * made by the background thread, because that takes longer.
 *
 * A caller kicks by one add and one system call, when it used up some slack; a
 * decision alone makes none. */

#include "libweir/libweir_decide.h"

#include <time.h>

#include "core/base/atomic.h"
#include "core/table/table_share.h"
#include "io/clock.h"

#define WATCH_EVERY WEIR_BLOCK_LOOK_EVERY
/* For a reporter without roots to give way: a check, and the end of a thread
 * that doesn't wait. */
#define GIVE_WAY_PATIENCE (5 * WEIR_SECOND)

/* ---- The watcher ---- */

/* Another process has roots, and this one hasn't: its limiter has no link. */
static bool must_stand_back(const struct weir *weir)
{
    return weir->roots_hash == 0 && weir_block_has_roots(weir->block);
}

static void resign_reporter(struct weir *weir)
{
    weir_assert(weir->reporter && !weir->closing);
    weir_pump_stop(weir);
    weir->closing = false;
    weir->reporter = false;
    weir_block_resign_reporter(weir->block, weir->process);
}

/* Becomes the reporter if it may and can. */
static void try_reporter(struct weir *weir)
{
    if (weir->reporter && must_stand_back(weir))
        resign_reporter(weir);
    if (weir->reporter || weir->role == WEIR_TABLE_DECIDES ||
        must_stand_back(weir) || weir_clock_now() < weir->reporter_at ||
        !weir_block_become_reporter(weir->block, weir->process))
        return;
    weir->reporter = true;
    if (weir_pump_start(weir) == 0)
        return;
    /* No descriptors left, say: another process may have some. Two processes
     * without any would wake each other again and again. */
    weir->reporter = false;
    weir->reporter_at = weir_clock_now() + WEIR_SECOND;
    weir_block_resign_reporter(weir->block, weir->process);
}

static void *watch_table(void *context)
{
    struct weir *weir = context;
    struct weir_block *block = weir->block;
    weir_instant look_at = 0;
    uint32_t seen = weir->kicks_seen;
    while (!weir_load(&weir->parting)) {
        weir_instant now = weir_clock_now();
        if (now >= look_at) {
            if (weir_block_is_due(block, now))
                weir_block_reap(block, weir->process);
            weir_unpin_late(weir);
            weir_locks_heed(weir); /* waiters of the dead */
            try_reporter(weir);
            look_at = now + WATCH_EVERY;
        }
        /* A process that isn't the reporter waits for changes: there may be
         * none. */
        uint32_t *word = weir->reporter ? &block->kicks : &block->changes;
        uint32_t before = weir_load(word);
        if (weir->reporter && before != seen)
            weir_pump_wake(weir);
        else if (!weir_load(&weir->parting))
            weir_futex_wait(word, before, WATCH_EVERY);
        seen = weir->reporter ? before : weir_load(&block->kicks);
        if (!weir->reporter)
            try_reporter(weir);
    }
    return NULL;
}

static int start_watching(struct weir *weir)
{
    weir_assert(!weir->watches && weir->process != 0);
    weir->watches =
        weir_client_thread(weir, "weir-watch", watch_table, &weir->watcher);
    return weir->watches ? WEIR_OK : WEIR_ESYSTEM;
}

/* ---- Open, close, fork ---- */

/* The reporter has no roots, we do: it stands back at its next check. */
static bool is_given_way(const struct weir *weir)
{
    uint32_t holder = weir_load(&weir->block->reporter);
    bool tried = weir->reporter_at != 0;
    return weir->roots_hash != 0 && !tried &&
           weir_load(&weir->block->roots[holder]) == 0;
}

static int become_reporter(struct weir *weir)
{
    weir_instant until = weir_clock_now() + GIVE_WAY_PATIENCE;
    for (;;) {
        uint32_t seen = weir_load(&weir->block->changes);
        try_reporter(weir);
        if (weir->reporter)
            return WEIR_OK;
        if (!is_given_way(weir) || weir_clock_now() >= until)
            return WEIR_ELOCKED;
        weir_futex_wait(&weir->block->changes, seen, WATCH_EVERY);
    }
}

static int join_table(struct weir *weir)
{
    int error = weir_block_join(weir->block, weir->roots_hash, &weir->process);
    if (error < 0)
        return error;
    weir_assert(weir->process > 0 && weir->process < WEIR_BLOCK_LAST);
    weir_table_set_on_full(weir->table, weir->process,
                           weir->on_full == WEIR_ON_FULL_PASS);
    /* Processes that were killed may have left no live one to reap them. */
    weir_block_reap(weir->block, weir->process);
    weir->reporter = false;
    weir->parting = false;
    /* The limiter may be ready, and be kicked, before the watcher runs. */
    weir->kicks_seen = weir_load(&weir->block->kicks);
    error = become_reporter(weir);
    return weir->role == WEIR_TABLE_RUNS ? error : WEIR_OK;
}

/* Undoes weir_reporter_open(). */
static void undo_open(struct weir *weir)
{
    weir_reporter_part(weir);
    weir_pump_stop(weir);
    if (weir->process != 0)
        weir_reporter_close(weir);
}

int weir_reporter_open(struct weir *weir)
{
    weir_assert(weir->block && !weir->watches);
    int error = join_table(weir);
    if (error == 0)
        error = start_watching(weir);
    if (error < 0)
        undo_open(weir);
    return error;
}

void weir_reporter_part(struct weir *weir)
{
    if (!weir->block || !weir->watches)
        return;
    weir_store(&weir->parting, true);
    weir_block_signal_change(weir->block);
    weir_block_kick(weir->block);
    pthread_join(weir->watcher, NULL);
    weir->watches = false;
}

void weir_reporter_close(struct weir *weir)
{
    if (!weir->block)
        return;
    weir_assert(!weir->watches && !weir->thread_runs);
    weir->reporter = false;
    weir_block_leave(weir->block, weir->process);
}

/* Entries of a process without a number would never be given back, or be given
 * back while it lives. So this process gets none: it decides on an empty table,
 * which lets all pass. The shared one stays mapped; another thread may just be
 * reading it. */
static void make_own_table(struct weir *weir)
{
    while (weir_table_make(weir) < 0)
        nanosleep(&(struct timespec){ .tv_nsec = WEIR_MILLISECOND }, NULL);
    weir->block = NULL;
    weir->unmaps = false;
    weir_event_report(weir, WEIR_EVENT_TABLE,
                      "the table has no entry left for a child of fork(): it "
                      "lets all pass");
}

void weir_reporter_forked(struct weir *weir)
{
    uint32_t parent = weir->process;
    weir->watches = false;
    weir->process = 0;
    int error = join_table(weir);
    if (weir->process == 0) {
        make_own_table(weir);
        return;
    }
    weir_pins_inherit(weir, parent);
    if (error == 0 || error == WEIR_ELOCKED) /* the parent is the reporter */
        (void)start_watching(weir);
}

/* ---- The other processes ---- */

static bool is_block_reached(const struct weir_block *block, uint64_t wanted)
{
    return wanted == 0 ? weir_load(&block->ready) != 0
                       : weir_load(&block->sync_done) >= wanted;
}

int weir_reporter_wait(struct weir *weir, uint64_t wanted,
                       weir_duration timeout)
{
    struct weir_block *block = weir->block;
    weir_instant begun = weir_clock_now();
    for (;;) {
        uint32_t seen = weir_load(&block->changes);
        if (is_block_reached(block, wanted))
            return WEIR_OK;
        if (weir_load(&weir->parting))
            return WEIR_ECLOSED;
        weir_duration waited = weir_clock_now() - begun;
        if (waited >= timeout)
            return WEIR_ETIMEOUT;
        weir_duration left = timeout - waited;
        weir_futex_wait(&block->changes, seen,
                        left < WEIR_SECOND ? left : WEIR_SECOND);
    }
}

void weir_reporter_status(const struct weir *weir, struct weir_status *out)
{
    const struct weir_block *block = weir->block;
    out->ready = weir_load(&block->ready) != 0;
    out->roots_up = weir_load(&block->roots_up);
    out->epoch = weir_load(&block->epoch);
    out->reports = weir_load(&block->reports);
}
