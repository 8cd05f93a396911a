/* SPDX-License-Identifier: MIT
 * io/snapshot.c - the snapshot is written: pieces from the loop,
 * to the disk by a thread.
 *
 * One job at a time is between the two, and the loop makes the next only when
 * the last is done; so there is one piece in memory, however slow the disk is,
 * and each side owns all that it touches while it is its turn: the job and the
 * maker's bytes belong to the thread from post_job() until on_job_done().
 *
 *     idle --dirty--> OPEN -> WRITE -> WRITE ... -> FINISH --> idle
 *                       \________\_________\______ DROP __/   (an error, or
 *                                                  another store)
 *
 * Pieces go in the order of epochs. A quota that changes while they are written
 * moves to the end of that order. So when the cursor has reached the end, the
 * file has the set as it is at that moment, however long it took and whatever
 * changed. But the set must have settled there: half an edit isn't a set that
 * ever was in the store.
 *
 * A lock on the file that is being made keeps two programs with one path from
 * writing into the same file. */

#include "io/snapshot.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/process.h"

#define LOOK WEIR_SECOND /* interval of checks for changes */
#define UNSETTLED (20 * WEIR_MILLISECOND)

enum job { NONE, OPEN, WRITE, FINISH, DROP, QUIT };

struct weir_snapshot {
    struct event_base *base; /* borrowed */
    struct weir_snapshot_source source;
    char *path; /* owned, as all below */
    char *made; /* path of the file that is being made */
    struct event *timer;
    struct event *news;
    int fd; /* the thread is done with the job */
    pthread_t thread;

    /* The mutex guards 'job', which the thread sets back to NONE. */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    enum job job;

    /* The thread's while there is a job, the loop's otherwise. */
    struct weir_snapshot_maker maker;
    int error; /* of the job */
    struct weir_diag why;
    int file; /* -1: none */

    /* The loop's. */
    enum job last;                      /* the thread works on it */
    bool busy;                          /* the thread is at it */
    bool forgotten;                     /* drop the file that is being
                                         * written */
    const struct weir_catalog *catalog; /* that is being written */
    struct weir_cursor cursor;
    uint64_t from; /* the epoch of the last change written */
    struct weir_change changes[WEIR_QUOTAS_MAX];
    struct weir_snapshot_info making;
    uint64_t lineage_epoch; /* of weir_snapshot_set_lineage() */
    uint64_t lineage;
    weir_duration every;
    weir_instant next_at;
    struct weir_snapshot_state state;
};

uint64_t weir_snapshot_clock(void)
{
    return weir_clock_wall() / WEIR_MILLISECOND;
}

/* ---- The thread ---- */

static int note_write_error(struct weir_snapshot *s, const char *what)
{
    return weir_diag_set(&s->why, WEIR_ESYSTEM, "can't ", what, " ", s->made,
                         ": ", strerror(errno), NULL);
}

/* Whether the path still leads to the open file. */
static bool is_in_place(const struct weir_snapshot *s)
{
    struct stat named, opened;
    return stat(s->made, &named) == 0 && fstat(s->file, &opened) == 0 &&
           named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

/* Another program may have renamed the file between our open() and flock():
 * then it is a complete snapshot, and must not be emptied. */
static int open_made_file(struct weir_snapshot *s)
{
    weir_assert(s->file < 0);
    s->file = open(s->made, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (s->file < 0)
        return note_write_error(s, "make");
    if (flock(s->file, LOCK_EX | LOCK_NB) < 0 || !is_in_place(s)) {
        close(s->file);
        s->file = -1;
        return weir_diag_set(&s->why, WEIR_ELOCKED, "another program writes ",
                             s->path, "; give each a --snapshot of its own",
                             NULL);
    }
    return ftruncate(s->file, 0) < 0 ? note_write_error(s, "empty") : 0;
}

static int write_bytes(struct weir_snapshot *s)
{
    weir_assert(s->file >= 0);
    for (size_t done = 0; done < s->maker.len;) {
        ssize_t written =
            write(s->file, s->maker.bytes + done, s->maker.len - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return note_write_error(s, "write");
        done += (size_t)written;
    }
    return 0;
}

/* The name is on the disk only after its folder is. */
static int sync_folder(struct weir_snapshot *s)
{
    char *folder = strdup(s->path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash)
        slash[slash == folder] = '\0';
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (fd < 0)
        return note_write_error(s, "open the folder of");
    int done = fsync(fd);
    int error = done < 0 ? note_write_error(s, "sync the folder of") : 0;
    close(fd);
    return error;
}

static int finish_file(struct weir_snapshot *s)
{
    if (fsync(s->file) < 0)
        return note_write_error(s, "sync");
    if (rename(s->made, s->path) < 0)
        return note_write_error(s, "rename");
    close(s->file);
    s->file = -1;
    return sync_folder(s);
}

static void drop_file(struct weir_snapshot *s)
{
    if (s->file < 0)
        return;
    unlink(s->made);
    close(s->file);
    s->file = -1;
    weir_assert(s->file < 0);
}

static int do_job(struct weir_snapshot *s, enum job job)
{
    int error = job == OPEN ? open_made_file(s) : 0;
    if (job == DROP) {
        drop_file(s);
        return 0;
    }
    if (error == 0)
        error = write_bytes(s);
    if (error == 0 && job == FINISH)
        error = finish_file(s);
    return error;
}

static void *run_snapshot_thread(void *argument)
{
    struct weir_snapshot *s = argument;
    for (;;) {
        pthread_mutex_lock(&s->mutex);
        while (s->job == NONE)
            pthread_cond_wait(&s->wake, &s->mutex);
        enum job job = s->job;
        pthread_mutex_unlock(&s->mutex);
        if (job == QUIT)
            return NULL;
        s->error = do_job(s, job);
        pthread_mutex_lock(&s->mutex);
        if (s->job != QUIT)
            s->job = NONE;
        pthread_mutex_unlock(&s->mutex);
        uint64_t one = 1;
        ssize_t written = write(s->fd, &one, sizeof one);
        (void)written; /* EAGAIN can't be: the loop reads before it posts */
    }
}

static void post_job(struct weir_snapshot *s, enum job job)
{
    weir_assert(job != NONE && (job == QUIT || !s->busy));
    pthread_mutex_lock(&s->mutex);
    s->job = job;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->mutex);
    s->last = job;
    s->busy = true;
}

/* The descriptor was readable: the thread's job is done. */
static void take_job_result(struct weir_snapshot *s)
{
    uint64_t ignored;
    ssize_t got = read(s->fd, &ignored, sizeof ignored);
    (void)got;
    pthread_mutex_lock(&s->mutex);
    s->busy = s->job != NONE;
    pthread_mutex_unlock(&s->mutex);
}

/* ---- The loop: changes ---- */

static void set_turn_after(struct weir_snapshot *s, weir_duration delay)
{
    struct timeval in = weir_timeval_of(delay);
    event_add(s->timer, &in);
}

static void wait_to_look(struct weir_snapshot *s)
{
    set_turn_after(s, s->every < LOOK ? s->every + WEIR_MILLISECOND : LOOK);
}

static const struct weir_catalog *source_catalog(const struct weir_snapshot *s)
{
    return s->source.catalog(s->source.context);
}

/* The epoch that is in force: below that of the catalog while an edit is being
 * handed over. */
static uint64_t source_epoch(const struct weir_snapshot *s)
{
    uint64_t epoch = 0;
    (void)s->source.epoch(s->source.context, &epoch);
    return epoch;
}

static bool is_catalog_settled(const struct weir_snapshot *s)
{
    uint64_t epoch;
    return s->source.epoch(s->source.context, &epoch) &&
           weir_catalog_epoch(source_catalog(s)) <= epoch;
}

static bool is_dirty(const struct weir_snapshot *s)
{
    struct weir_store_id store;
    s->source.identity(s->source.context, &store);
    return is_catalog_settled(s) &&
           !(s->state.usable && s->state.info.epoch == source_epoch(s) &&
             weir_store_id_equal(&s->state.info.store, &store));
}

/* ---- The loop: writing ---- */

static void note_failure(struct weir_snapshot *s, const struct weir_diag *why)
{
    bool noted = strcmp(s->state.problem, why->text) == 0;
    struct weir_diag text;
    s->state.failures++;
    memcpy(s->state.problem, why->text, sizeof s->state.problem);
    weir_diag_set(&text, 0,
                  "no new snapshot of the quotas, trying again: ", why->text,
                  NULL);
    if (!noted)
        s->source.note(s->source.context, WEIR_SNAPSHOT_FAILED, text.text);
}

static void note_success(struct weir_snapshot *s)
{
    weir_assert(s->last == FINISH);
    char text[WEIR_DIAG_MAX];
    bool again = s->state.problem[0];
    s->state.written++;
    s->state.problem[0] = '\0';
    s->state.usable = true;
    s->state.info = s->making;
    snprintf(text, sizeof text, "snapshot of %llu changes at epoch %llu: %s",
             (unsigned long long)s->making.changes,
             (unsigned long long)s->making.epoch, s->path);
    s->source.note(s->source.context,
                   again ? WEIR_SNAPSHOT_MENDED : WEIR_SNAPSHOT_WRITTEN, text);
}

static void end_writing(struct weir_snapshot *s)
{
    weir_assert(s->last == FINISH || s->last == DROP);
    s->last = NONE;
    s->forgotten = false;
    s->next_at = weir_clock_now() + s->every;
    wait_to_look(s);
}

static void give_up_writing(struct weir_snapshot *s,
                            const struct weir_diag *why)
{
    if (why)
        note_failure(s, why);
    post_job(s, DROP);
}

static void give_up_for_memory(struct weir_snapshot *s)
{
    struct weir_diag why = { 0 };
    weir_diag_put(&why, WEIR_ENOMEM, NULL);
    give_up_writing(s, &why);
}

static void begin_writing(struct weir_snapshot *s)
{
    weir_assert(s->last == NONE && !s->busy);
    s->making = (struct weir_snapshot_info){ .at_ms = weir_snapshot_clock() };
    s->source.identity(s->source.context, &s->making.store);
    s->catalog = source_catalog(s);
    s->cursor = (struct weir_cursor){ { 0, 0 } };
    s->from = 0;
    s->forgotten = false;
    s->why = (struct weir_diag){ 0 };
    if (weir_snapshot_begin(&s->maker, &s->making.store) < 0)
        give_up_for_memory(s);
    else
        post_job(s, OPEN);
}

/* The next changes; 0: no more. */
static size_t collect_changes(struct weir_snapshot *s)
{
    size_t count = 0;
    while (count < WEIR_QUOTAS_MAX &&
           weir_catalog_since(s->catalog, s->from, &s->cursor,
                              &s->changes[count])) {
        s->from = s->changes[count].quota.epoch;
        count++;
    }
    return count;
}

static void write_end(struct weir_snapshot *s)
{
    s->making.epoch = source_epoch(s);
    s->making.floor = weir_catalog_floor(s->catalog);
    s->making.changes = s->maker.changes;
    if (s->lineage_epoch == s->making.epoch)
        s->making.lineage = s->lineage;
    if (weir_snapshot_end(&s->maker, &s->making) < 0)
        give_up_for_memory(s);
    else
        post_job(s, FINISH);
}

/* The thread is idle, the file open: posts the next job. */
static void write_more(struct weir_snapshot *s)
{
    weir_assert(s->last == OPEN || s->last == WRITE);
    if (s->forgotten || s->catalog != source_catalog(s)) {
        give_up_writing(s, NULL);
        return;
    }
    size_t count = collect_changes(s);
    if (count > 0 && weir_snapshot_piece(&s->maker, s->changes, count) == 0)
        post_job(s, WRITE);
    else if (count > 0)
        give_up_for_memory(s);
    else if (is_catalog_settled(s))
        write_end(s);
    else
        set_turn_after(s, UNSETTLED);
}

static void continue_writing(struct weir_snapshot *s)
{
    switch (s->last) {
    case NONE:
    case QUIT:
        return;
    case OPEN:
    case WRITE:
    case FINISH:
        break;
    case DROP:
        end_writing(s);
        return;
    }
    if (s->error < 0) {
        give_up_writing(s, &s->why);
    } else if (s->last == FINISH) {
        note_success(s);
        end_writing(s);
    } else {
        write_more(s);
    }
}

static void run_snapshot_turn(struct weir_snapshot *s)
{
    if (s->busy)
        return;
    weir_instant begun = weir_clock_now();
    if (s->last != NONE)
        continue_writing(s);
    else if (begun >= s->next_at && is_dirty(s))
        begin_writing(s);
    else
        wait_to_look(s);
    weir_duration took = weir_clock_now() - begun;
    if (took > s->state.longest_turn)
        s->state.longest_turn = took;
}

static void on_job_done(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_snapshot *s = context;
    take_job_result(s);
    run_snapshot_turn(s);
}

static void on_snapshot_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    run_snapshot_turn(context);
}

/* ---- Life ---- */

static void look_at_old(struct weir_snapshot *s)
{
    struct weir_diag diag = { 0 };
    int error = weir_snapshot_read(s->path, NULL, &s->state.info, &diag);
    s->state.usable = error == 0;
    if (error < 0 && error != WEIR_ENOENT)
        s->source.note(s->source.context, WEIR_SNAPSHOT_UNSOUND, diag.text);
}

static void destroy_snapshot(struct weir_snapshot *s)
{
    if (s->news)
        event_free(s->news);
    if (s->timer)
        event_free(s->timer);
    if (s->fd >= 0)
        close(s->fd);
    drop_file(s);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->mutex);
    weir_snapshot_maker_fini(&s->maker);
    free(s->made);
    free(s->path);
    free(s);
}

static bool make_snapshot_parts(struct weir_snapshot *s, const char *path)
{
    s->path = strdup(path);
    if (asprintf(&s->made, "%s.new", path) < 0)
        s->made = NULL;
    s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->timer = evtimer_new(s->base, on_snapshot_timer, s);
    if (s->fd >= 0)
        s->news =
            event_new(s->base, s->fd, EV_READ | EV_PERSIST, on_job_done, s);
    return s->path && s->made && s->timer && s->news &&
           event_add(s->news, NULL) == 0;
}

int weir_snapshot_new(const struct weir_snapshot_options *options,
                      struct weir_snapshot **out, struct weir_diag *diag)
{
    struct weir_snapshot *s = calloc(1, sizeof *s);
    if (!s)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    s->base = options->base;
    s->source = options->source;
    s->every = options->every ? options->every : WEIR_SNAPSHOT_EVERY;
    s->file = s->fd = -1;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->wake, NULL);
    int error = make_snapshot_parts(s, options->path) ? 0 : WEIR_ENOMEM;
    if (error == 0 && weir_thread_start(&s->thread, run_snapshot_thread, s))
        error = WEIR_ESYSTEM;
    if (error < 0) {
        destroy_snapshot(s);
        return weir_diag_set(diag, error, "the snapshot can't be kept: ",
                             weir_strerror(error), NULL);
    }
    s->state.path = s->path;
    look_at_old(s);
    set_turn_after(s, WEIR_MILLISECOND);
    *out = s;
    return 0;
}

void weir_snapshot_free(struct weir_snapshot **snapshot)
{
    struct weir_snapshot *s = *snapshot;
    if (!s)
        return;
    post_job(s, QUIT);
    pthread_join(s->thread, NULL);
    destroy_snapshot(s);
    *snapshot = NULL;
}

/* ---- Functions for the rest of the program ---- */

bool weir_snapshot_usable(const struct weir_snapshot *snapshot)
{
    return snapshot->state.usable;
}

int weir_snapshot_load(struct weir_snapshot *s,
                       const struct weir_snapshot_sink *sink,
                       struct weir_diag *diag)
{
    int error = weir_snapshot_read(s->path, sink, &s->state.info, diag);
    s->state.usable = error == 0;
    return error;
}

void weir_snapshot_set_serving(struct weir_snapshot *snapshot, bool serving)
{
    snapshot->state.serving = serving;
}

void weir_snapshot_set_lineage(struct weir_snapshot *snapshot, uint64_t epoch,
                               uint64_t identity)
{
    snapshot->lineage_epoch = epoch;
    snapshot->lineage = identity;
}

void weir_snapshot_forget(struct weir_snapshot *snapshot)
{
    snapshot->forgotten = true;
}

/* The loop has stopped. Nothing bounds how long a disk takes; an operator who
 * can't wait sends the second signal. */
void weir_snapshot_finish(struct weir_snapshot *s)
{
    struct pollfd news = { s->fd, POLLIN, 0 };
    uint64_t failures = s->state.failures;
    for (;;) {
        while (s->busy) {
            poll(&news, 1, -1);
            take_job_result(s);
        }
        bool failed = s->state.failures > failures;
        if (s->last == NONE && (failed || !is_dirty(s)))
            return;
        s->next_at = 0;
        run_snapshot_turn(s);
        /* It waits for the rest of an edit, which can't come any more. */
        if (!s->busy && s->last != NONE)
            return;
    }
}

void weir_snapshot_look(const struct weir_snapshot *snapshot,
                        struct weir_snapshot_state *out)
{
    *out = snapshot->state;
}
