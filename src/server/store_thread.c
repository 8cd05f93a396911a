/* SPDX-License-Identifier: MIT
 * server/store_thread.c - the store's thread, and two queues.
 *
 * Requests go one way (edit, or just "look again"), news the other; one mutex
 * guards both lists, and no callback is called while it is held. News wakes the
 * loop through an eventfd. The news that a request is done, and that changes
 * are to be put in force, has its memory before the work begins: an edit that
 * is in the store is answered, and without memory for the answer none begins.
 *
 *                 requests                    news
 *     loop -> [edit|log|sync] --> thread -> [changes|settle|done] -> loop
 *
 * The thread keeps 'handed', the epoch up to which it has passed everything to
 * the loop. Each look reads the changes above it. If the store turns out to be
 * another one, or to lack changes that were passed on, 'handed' begins at 0
 * again and the loop is told to forget.
 *
 * The loop doesn't serve a whole set before it is settled, so a whole set is
 * passed on as it is read. A million quotas must not be in memory twice: past a
 * bound of waiting batches the reading waits for the loop. If it breaks off,
 * the next reading begins again: the loop may have gone over to its snapshot
 * since. Later changes are served as they are passed on, and an edit must not
 * be served by half because the store failed in the middle. So changes are
 * withheld until the reading has reached its end. That is as much memory as the
 * edit took where it was made. */

#include "server/store_thread.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/process.h"

#define PRESENCE_AGAIN WEIR_SECOND

enum news_type {
    NEWS_STORE,
    NEWS_LOSS,
    NEWS_CHANGES,
    NEWS_BAD_ROW,
    NEWS_SETTLE,
    NEWS_TROUBLE,
    NEWS_ROOTS,
    NEWS_DONE,
    NEWS_MARK,
};

struct news {
    enum news_type type;
    struct news *next;
    int error;
    uint64_t epoch;
    uint64_t floor;
    struct weir_store_id id;
    struct weir_diag diag;
    struct weir_changes changes; /* owned */
    struct weir_lineage_loss loss;
    struct weir_lineage_entry newest;
    struct weir_bad_row row;
    char name[WEIR_NAME_MAX]; /* of the row: its first bytes */
    void *ask;
    struct weir_store_mark_ask mark; /* of NEWS_MARK, as the next */
    bool never;
    bool look;  /* of NEWS_DONE: the newest changes were requested */
    bool again; /* of NEWS_STORE: since the loop had no memory for changes */
};

enum ask_type { ASK_LOOK, ASK_EDIT, ASK_UNDO, ASK_LOG, ASK_MARK };

struct ask {
    enum ask_type type;
    struct ask *next;
    struct weir_changes changes; /* owned */
    struct weir_edit edit;       /* its changes are those above */
    uint64_t epoch;              /* to undo */
    struct weir_store_log_ask log;
    char text[WEIR_NAME_MAX + 1]; /* of edit.identity or log.name */
    struct news *done;            /* owned; to be posted */
};
static_assert(WEIR_STORE_IDENTITY_MAX <= WEIR_NAME_MAX, "both fit in 'text'");

struct weir_store_thread {
    struct weir_store_listener listener;
    uint8_t root[WEIR_INCARNATION_SIZE]; /* listener.root is here, or NULL */
    char *url;                           /* owned */
    int fd;                              /* owned */
    pthread_t thread;

    /* The mutex guards the members up to the next comment. */
    pthread_mutex_t mutex;
    pthread_cond_t wake;  /* the thread: a request, or stop */
    pthread_cond_t drain; /* the thread: the loop took a batch */
    struct ask *asks, **asks_end;
    struct news *news, **news_end;
    size_t batches;
    bool stop;
    bool lost; /* the loop had no memory for a change */

    /* The thread's own. */
    struct weir_store *store;    /* NULL: not open */
    struct weir_lineage lineage; /* of the changes passed on, and of those of
                                  * the snapshot before the first */
    bool known;                  /* the loop was told of a store */
    bool broken; /* a whole set was begun and not passed on to its end */
    bool again;  /* the next whole set is for a loop that had no memory */
    bool marked; /* the mark couldn't be taken: it is tried again, for later
                  * masters only */
    uint64_t handed;
    weir_instant look_at;
    weir_instant retry_at;
    weir_instant present_at;   /* when its row is written again */
    weir_instant presented_at; /* … and when it was last */
    uint32_t roots;            /* on the store, as the loop was told */
    int trouble;
    struct weir_diag why;
    struct news *batch; /* being filled */
    bool withholds;     /* batches go to 'pending' */
    struct news *pending, **pending_end;

    bool skips; /* the loop's own: changes are dropped until a set begins */
};

/* ---- News, to the loop ---- */

static void wake_loop(struct weir_store_thread *t)
{
    uint64_t one = 1;
    ssize_t written;
    do
        written = write(t->fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);
    /* EAGAIN: the counter is full, so the loop is awake anyhow. */
}

static void post_news(struct weir_store_thread *t, struct news *news)
{
    weir_assert(!news->next);
    pthread_mutex_lock(&t->mutex);
    if (news->type == NEWS_CHANGES) {
        while (t->batches >= WEIR_STORE_BATCHES_MAX && !t->stop)
            pthread_cond_wait(&t->drain, &t->mutex);
        t->batches++;
    }
    *t->news_end = news;
    t->news_end = &news->next;
    pthread_mutex_unlock(&t->mutex);
    wake_loop(t);
}

/* NULL: no memory. */
static struct news *news_new(enum news_type type)
{
    struct news *news = calloc(1, sizeof *news);
    if (news)
        news->type = type;
    return news;
}

/* NULL is legal. */
static void news_free(struct news *news)
{
    if (!news)
        return;
    weir_changes_fini(&news->changes);
    free(news);
}

static void post_or_withhold(struct weir_store_thread *t, struct news *news)
{
    weir_assert(!news->next);
    if (t->withholds) {
        *t->pending_end = news;
        t->pending_end = &news->next;
    } else {
        post_news(t, news);
    }
}

static void flush_changes(struct weir_store_thread *t)
{
    if (t->batch)
        post_or_withhold(t, t->batch);
    t->batch = NULL;
}

/* Without memory for the news, the row is reported with the next whole set. */
static void note_bad_row(void *context, const struct weir_bad_row *row)
{
    struct weir_store_thread *t = context;
    flush_changes(t);
    struct news *news = news_new(NEWS_BAD_ROW);
    if (!news)
        return;
    news->row = *row;
    if (row->name.len > sizeof news->name)
        news->row.name.len = sizeof news->name;
    if (news->row.name.len > 0)
        memcpy(news->name, row->name.p, news->row.name.len);
    weir_diag_put(&news->diag, WEIR_ESTORE, row->why);
    post_or_withhold(t, news);
}

/* Ends the withholding. 'whole': the batches go to the loop, else they are
 * dropped. */
static void release_withheld(struct weir_store_thread *t, bool whole)
{
    struct news *pending = t->pending;
    t->pending = NULL;
    t->pending_end = &t->pending;
    t->withholds = false;
    while (pending) {
        struct news *news = pending;
        pending = news->next;
        news->next = NULL;
        if (whole)
            post_news(t, news);
        else
            news_free(news);
    }
    weir_assert(!t->pending && !t->batch);
}

static int batch_change(void *context, const struct weir_change *change)
{
    struct weir_store_thread *t = context;
    if (!t->batch)
        t->batch = news_new(NEWS_CHANGES);
    if (!t->batch)
        return WEIR_ENOMEM;
    int error = weir_changes_add(&t->batch->changes, change);
    if (error < 0)
        return error;
    weir_assert(t->batch->changes.count <= WEIR_STORE_BATCH);
    if (change->quota.epoch > t->handed)
        t->handed = change->quota.epoch;
    if (t->batch->changes.count == WEIR_STORE_BATCH)
        flush_changes(t);
    return 0;
}

/* ---- The store ---- */

/* Without memory for the news it is reported after the next look. */
static void report_trouble(struct weir_store_thread *t, int error,
                           const struct weir_diag *diag)
{
    bool same = error == t->trouble &&
                (error == 0 || strcmp(diag->text, t->why.text) == 0);
    if (same)
        return;
    struct news *news = news_new(NEWS_TROUBLE);
    if (!news)
        return;
    t->trouble = error;
    t->why = *diag;
    news->error = error;
    news->diag = *diag;
    post_news(t, news);
}

/* An error other than a lock is cured by opening again, if at all. */
static int fail_store(struct weir_store_thread *t, int error,
                      const struct weir_diag *diag)
{
    if (error != WEIR_ELOCKED) {
        weir_store_close(t->store);
        t->store = NULL;
    }
    t->retry_at = weir_clock_now() + WEIR_STORE_RETRY_MS * WEIR_MILLISECOND;
    report_trouble(t, error, diag);
    return error;
}

static int open_thread_store(struct weir_store_thread *t,
                             struct weir_diag *diag)
{
    if (t->store)
        return 0;
    int error = weir_store_open(t->url, &t->store, diag);
    if (error == 0)
        weir_store_watch_rows(t->store, note_bad_row, t);
    /* The store existed: the advice to make one would be wrong. */
    char shown[WEIR_STORE_SHOW_MAX];
    if (error == WEIR_ENOENT && (t->known || t->listener.patient))
        error = weir_diag_set(
            diag, WEIR_ESTORE, "the quota store ",
            weir_store_show(t->url, shown),
            " is gone; put it back, or start again with another store", NULL);
    if (error < 0)
        return fail_store(t, error, diag);
    return 0;
}

/* Below the floor, removals that weren't passed on are forgotten. */
static bool is_same_state(struct weir_store_thread *t,
                          const struct weir_store_state *state)
{
    return t->known && !t->broken && state->history == WEIR_HISTORY_KEPT &&
           weir_store_id_equal(&t->lineage.id, &state->id) &&
           state->epoch >= t->handed && state->floor <= t->handed;
}

static int begin_again(struct weir_store_thread *t,
                       const struct weir_store_state *state)
{
    struct news *news = news_new(NEWS_STORE);
    if (!news)
        return WEIR_ENOMEM;
    t->lineage.id = state->id;
    t->lineage.count = 0;
    t->known = true;
    t->handed = 0;
    news->id = state->id;
    news->epoch = state->epoch;
    news->floor = state->floor;
    news->again = t->again;
    t->again = false;
    post_news(t, news);
    return 0;
}

/* 'whole': nothing of it is served before the settle. */
static int read_changes(struct weir_store_thread *t, bool whole,
                        struct weir_diag *diag)
{
    uint64_t before = t->handed;
    weir_assert(!t->pending && !t->batch);
    t->withholds = !whole;
    int error = weir_store_read(t->store, t->handed, batch_change, t,
                                &t->lineage, diag);
    flush_changes(t);
    if (whole) {
        t->broken = error < 0;
        return error;
    }
    release_withheld(t, error == 0);
    if (error < 0)
        t->handed = before;
    return error;
}

/* The store lacks changes that were passed on. Roots that never had them, and
 * limiters, can't notice that: so the store gets another identity. */
static int report_loss(struct weir_store_thread *t,
                       struct weir_store_state *state, struct weir_diag *diag)
{
    weir_assert(state->history == WEIR_HISTORY_LOST);
    struct news *news = news_new(NEWS_LOSS);
    int error = news ? weir_store_mark_replaced(t->store, &t->lineage, diag)
                     : weir_diag_put(diag, WEIR_ENOMEM, NULL);
    if (error < 0) {
        news_free(news);
        return error;
    }
    news->loss = state->loss;
    post_news(t, news);
    t->lineage.count = 0;
    t->broken = true;
    return weir_store_look(t->store, NULL, state, diag);
}

/* The state of the store; a loss was reported. */
static int look_at_state(struct weir_store_thread *t,
                         struct weir_store_state *out, struct weir_diag *diag)
{
    int error = weir_store_look(t->store, &t->lineage, out, diag);
    if (error == 0 && out->history == WEIR_HISTORY_LOST)
        error = report_loss(t, out, diag);
    return error;
}

/* Reads all above 'handed', and passes it on up to the settle. The news of the
 * settle is made first: changes that were passed on must come into force. */
static int pass_changes_on(struct weir_store_thread *t, bool first,
                           const struct weir_store_state *state,
                           struct weir_diag *diag)
{
    struct news *settle = news_new(NEWS_SETTLE);
    int error = !settle ? WEIR_ENOMEM : first ? begin_again(t, state) : 0;
    if (error < 0)
        weir_diag_put(diag, error, NULL);
    else
        error = read_changes(t, first, diag);
    if (error < 0) {
        news_free(settle);
        return error;
    }
    settle->newest = weir_lineage_last(&t->lineage);
    weir_assert(settle->newest.epoch >= t->handed);
    t->handed = settle->newest.epoch;
    post_news(t, settle);
    return 0;
}

/* The ask was answered long ago: this is no proof, but no later master may find
 * the mark. */
static void remove_left_mark(struct weir_store_thread *t)
{
    bool never;
    struct weir_diag diag = { 0 };
    if (t->marked)
        t->marked =
            weir_store_take_never_leased(t->url, false, &never, &diag) < 0;
}

/* Passes new changes on. 0, or the error with 'diag' filled. */
static int look_at_store(struct weir_store_thread *t, struct weir_diag *diag)
{
    int error = open_thread_store(t, diag);
    if (error < 0)
        return error;
    struct weir_store_state state;
    error = look_at_state(t, &state, diag);
    if (error < 0)
        return fail_store(t, error, diag);
    bool first = !is_same_state(t, &state);
    if (first || state.epoch > t->handed)
        error = pass_changes_on(t, first, &state, diag);
    if (error < 0)
        return fail_store(t, error, diag);
    report_trouble(t, 0, &(struct weir_diag){ 0 });
    remove_left_mark(t);
    return 0;
}

/* Whether the loop had no memory for changes: they are read again, as after a
 * failure of the store. */
static bool note_lost_changes(struct weir_store_thread *t)
{
    pthread_mutex_lock(&t->mutex);
    bool lost = t->lost;
    t->lost = false;
    pthread_mutex_unlock(&t->mutex);
    if (!lost)
        return false;
    struct weir_diag diag = { 0 };
    t->broken = t->again = true;
    (void)fail_store(t, weir_diag_put(&diag, WEIR_ENOMEM, NULL), &diag);
    return true;
}

static void look_if_due(struct weir_store_thread *t)
{
    if (note_lost_changes(t))
        return;
    weir_instant now = weir_clock_now();
    bool due = t->trouble < 0 ? now >= t->retry_at : now >= t->look_at;
    if (!due && !(t->store && weir_store_changed(t->store)))
        return;
    t->look_at = now + WEIR_STORE_LOOK_MS * WEIR_MILLISECOND;
    struct weir_diag diag = { 0 };
    (void)look_at_store(t, &diag);
}

/* ---- Presence ---- */

/* Without memory it is tried again with the next row. */
static void report_roots(struct weir_store_thread *t, uint32_t roots)
{
    struct news *news = roots == t->roots ? NULL : news_new(NEWS_ROOTS);
    if (!news)
        return;
    t->roots = roots;
    news->epoch = roots;
    post_news(t, news);
}

/* No part of the root depends on it: a failure is no trouble. The last number
 * holds for as long as a row. Another root may be writing just now, and would
 * be at each of the next times, were they as far apart as its own: the thread
 * tries again soon. */
static void write_presence(struct weir_store_thread *t)
{
    weir_instant now = weir_clock_now();
    if (!t->listener.root || now < t->present_at)
        return;
    uint32_t roots;
    struct weir_diag ignored;
    if (t->store && t->trouble == 0 &&
        weir_store_present(t->store, t->listener.root, false, &roots,
                           &ignored) == 0) {
        report_roots(t, roots);
        t->presented_at = now;
        t->present_at = weir_clock_now() + WEIR_PRESENCE_EVERY;
        return;
    }
    if (weir_since(t->presented_at, now) > WEIR_PRESENCE_TTL)
        report_roots(t, 0);
    t->present_at = weir_clock_now() + PRESENCE_AGAIN;
}

static void end_presence(struct weir_store_thread *t)
{
    uint32_t roots;
    struct weir_diag ignored;
    if (t->listener.root && t->store && t->roots > 0)
        (void)weir_store_present(t->store, t->listener.root, true, &roots,
                                 &ignored);
}

static int do_ask(struct weir_store_thread *t, struct ask *ask,
                  struct weir_diag *diag)
{
    int error = open_thread_store(t, diag);
    if (error < 0)
        return error;
    uint64_t epoch = 0;
    switch (ask->type) {
    case ASK_LOOK:
    case ASK_MARK:
        break;
    case ASK_EDIT:
        ask->edit.changes = ask->changes.at;
        ask->edit.count = ask->changes.count;
        error = weir_store_edit(t->store, &ask->edit, &epoch, diag);
        break;
    case ASK_UNDO:
        error = weir_store_undo(t->store, ask->epoch, ask->edit.identity,
                                &epoch, diag);
        break;
    case ASK_LOG:
        error =
            weir_store_log(t->store, ask->log.below, ask->log.name,
                           ask->log.max, ask->log.each, ask->log.context, diag);
        break;
    }
    if (error == WEIR_ESTORE || error == WEIR_ESCHEMA)
        return fail_store(t, error, diag);
    return error;
}

/* By a connection of its own: a trouble of that is none of the quotas'. */
static void serve_mark(struct weir_store_thread *t, struct ask *ask)
{
    struct news *news = ask->done;
    ask->done = NULL;
    weir_assert(news->type == NEWS_MARK && !news->never);
    news->error =
        weir_store_take_never_leased(t->url, true, &news->never, &news->diag);
    t->marked = news->error < 0;
    post_news(t, news);
}

/* An edit is in the store even if it can't be read back just now: a later look
 * passes it on, so that is no failure of the edit; nor of a log that was
 * read. */
static void serve_ask(struct weir_store_thread *t, struct ask *ask)
{
    struct news *news = ask->done;
    ask->done = NULL;
    news->look = ask->type == ASK_LOOK;
    if (ask->type != ASK_LOOK)
        news->error = do_ask(t, ask, &news->diag);
    if (news->error == 0) {
        struct weir_diag diag = { 0 };
        int error = look_at_store(t, &diag);
        if (error < 0 && ask->type == ASK_LOOK) {
            news->error = error;
            news->diag = diag;
        }
    }
    news->epoch = t->handed;
    post_news(t, news);
}

/* ---- The thread ---- */

/* The next request, or NULL when it is time to look. */
static struct ask *next_ask(struct weir_store_thread *t, bool *stop)
{
    struct timespec until = weir_timespec_of(
        weir_clock_now() + WEIR_STORE_POLL_MS * WEIR_MILLISECOND);
    pthread_mutex_lock(&t->mutex);
    while (!t->asks && !t->stop)
        if (pthread_cond_timedwait(&t->wake, &t->mutex, &until) == ETIMEDOUT)
            break;
    struct ask *ask = t->asks;
    *stop = t->stop;
    if (ask && !*stop) {
        t->asks = ask->next;
        if (!t->asks)
            t->asks_end = &t->asks;
    }
    pthread_mutex_unlock(&t->mutex);
    return *stop ? NULL : ask;
}

static void ask_free(struct ask *ask)
{
    weir_changes_fini(&ask->changes);
    news_free(ask->done);
    if (ask->log.end)
        ask->log.end(ask->log.context);
    free(ask);
}

static void *run_store_thread(void *argument)
{
    struct weir_store_thread *t = argument;
    look_if_due(t);
    for (;;) {
        bool stop;
        write_presence(t);
        struct ask *ask = next_ask(t, &stop);
        if (stop) {
            end_presence(t);
            return NULL;
        }
        if (ask) {
            if (ask->type == ASK_MARK)
                serve_mark(t, ask);
            else
                serve_ask(t, ask);
            ask_free(ask);
        }
        look_if_due(t);
    }
}

static int start_store_thread(struct weir_store_thread *t)
{
    errno = weir_thread_start(&t->thread, run_store_thread, t);
    return errno ? WEIR_ESYSTEM : 0;
}

static void init_locks(struct weir_store_thread *t)
{
    weir_condition_init(&t->wake);
    pthread_cond_init(&t->drain, NULL);
    pthread_mutex_init(&t->mutex, NULL);
}

static void destroy_store_thread(struct weir_store_thread *t)
{
    weir_assert(!t->pending);
    for (struct ask *ask = t->asks, *next; ask; ask = next) {
        next = ask->next;
        ask_free(ask);
    }
    for (struct news *news = t->news, *next; news; news = next) {
        next = news->next;
        news_free(news);
    }
    news_free(t->batch);
    weir_store_close(t->store);
    close(t->fd);
    pthread_cond_destroy(&t->wake);
    pthread_cond_destroy(&t->drain);
    pthread_mutex_destroy(&t->mutex);
    free(t->url);
    free(t);
}

int weir_store_thread_new(const char *url,
                          const struct weir_store_listener *listener,
                          struct weir_store_thread **out,
                          struct weir_diag *diag)
{
    struct weir_store *store = NULL;
    int error = weir_store_open(url, &store, diag);
    if (error < 0 && error != WEIR_ELOCKED && !listener->patient)
        return error;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct weir_store_thread *t = calloc(1, sizeof *t);
    char *copy = strdup(url);
    if (fd < 0 || !t || !copy) {
        weir_store_close(store);
        if (fd >= 0)
            close(fd);
        free(t);
        free(copy);
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    }
    t->listener = *listener;
    if (listener->root) {
        memcpy(t->root, listener->root, sizeof t->root);
        t->listener.root = t->root;
    }
    t->url = copy;
    t->fd = fd;
    t->asks_end = &t->asks;
    t->news_end = &t->news;
    t->pending_end = &t->pending;
    t->store = store;
    if (store)
        weir_store_watch_rows(store, note_bad_row, t);
    if (listener->snapshot.epoch > 0) {
        t->lineage.id = listener->snapshot_store;
        weir_lineage_add(&t->lineage, &listener->snapshot);
    }
    init_locks(t);
    error = start_store_thread(t);
    if (error < 0) {
        destroy_store_thread(t);
        return weir_diag_set(diag, error,
                             "can't start a thread: ", strerror(errno),
                             "; give the process more memory (ulimit -v) or "
                             "more threads (ulimit -u)",
                             NULL);
    }
    *out = t;
    return 0;
}

void weir_store_thread_free(struct weir_store_thread **thread)
{
    struct weir_store_thread *t = *thread;
    if (!t)
        return;
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_broadcast(&t->wake);
    pthread_cond_broadcast(&t->drain);
    pthread_mutex_unlock(&t->mutex);
    pthread_join(t->thread, NULL);
    destroy_store_thread(t);
    *thread = NULL;
}

/* ---- The loop's side ---- */

int weir_store_thread_fd(const struct weir_store_thread *t)
{
    return t->fd;
}

static int hand_over_store(struct weir_store_thread *t, const struct news *news,
                           weir_instant now)
{
    const struct weir_store_listener *to = &t->listener;
    t->skips = t->skips && !news->again;
    if (t->skips)
        return 0;
    return to->on_store(to->context, &news->id, news->epoch, news->floor, now);
}

static int hand_over_changes(struct weir_store_thread *t,
                             const struct news *news, weir_instant now)
{
    const struct weir_store_listener *to = &t->listener;
    int error = 0;
    for (size_t i = 0; i < news->changes.count && !t->skips && error == 0; i++)
        error = to->on_change(to->context, &news->changes.at[i], now);
    return error;
}

/* An edit that is made from the newest changes needs them; one that was made is
 * in the store. */
static void hand_over_end(struct weir_store_thread *t, const struct news *news,
                          weir_instant now)
{
    const struct weir_store_listener *to = &t->listener;
    struct weir_diag diag = news->diag;
    int error = news->error;
    if (error == 0 && news->look && t->skips)
        error = weir_diag_put(&diag, WEIR_ENOMEM, NULL);
    to->on_done(to->context, news->ask, error, &diag, news->epoch, now);
}

/* The loop has no memory for a change: the thread begins again. */
static void lose_changes(struct weir_store_thread *t)
{
    weir_assert(!t->skips);
    t->skips = true;
    pthread_mutex_lock(&t->mutex);
    t->lost = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->mutex);
}

static void hand_over_news(struct weir_store_thread *t, struct news *news,
                           weir_instant now)
{
    const struct weir_store_listener *to = &t->listener;
    switch (news->type) {
    case NEWS_STORE:
        if (hand_over_store(t, news, now) < 0)
            lose_changes(t);
        return;
    case NEWS_LOSS:
        if (to->on_loss)
            to->on_loss(to->context, &news->loss);
        return;
    case NEWS_CHANGES:
        if (hand_over_changes(t, news, now) < 0)
            lose_changes(t);
        return;
    case NEWS_BAD_ROW:
        if (t->skips)
            return;
        news->row.name.p = news->name;
        news->row.why = news->diag.text;
        to->on_bad_row(to->context, &news->row, now);
        return;
    case NEWS_SETTLE:
        if (!t->skips)
            to->on_settle(to->context, &news->newest, now);
        return;
    case NEWS_TROUBLE:
        to->on_trouble(to->context, news->error, news->diag.text);
        return;
    case NEWS_ROOTS:
        to->on_roots(to->context, (uint32_t)news->epoch);
        return;
    case NEWS_DONE:
        hand_over_end(t, news, now);
        return;
    case NEWS_MARK:
        news->mark.on_mark(news->mark.context, news->never,
                           news->error < 0 ? news->diag.text : NULL);
        return;
    }
}

static struct news *next_news(struct weir_store_thread *t)
{
    pthread_mutex_lock(&t->mutex);
    struct news *news = t->news;
    if (news) {
        t->news = news->next;
        if (!t->news)
            t->news_end = &t->news;
        if (news->type == NEWS_CHANGES) {
            weir_assert(t->batches > 0);
            t->batches--;
            pthread_cond_signal(&t->drain);
        }
    }
    pthread_mutex_unlock(&t->mutex);
    return news;
}

void weir_store_thread_turn(struct weir_store_thread *t, weir_instant now)
{
    uint64_t ignored;
    ssize_t got = read(t->fd, &ignored, sizeof ignored);
    (void)got; /* nothing to read is no harm: the list has the news */
    for (size_t changes = 0; changes < 8 * WEIR_STORE_BATCH;) {
        struct news *news = next_news(t);
        if (!news)
            return;
        changes += 1 + news->changes.count;
        hand_over_news(t, news, now);
        news_free(news);
    }
    wake_loop(t);
}

static struct ask *ask_new(enum ask_type type, void *for_whom)
{
    struct ask *ask = calloc(1, sizeof *ask);
    struct news *done = news_new(NEWS_DONE);
    if (!ask || !done) {
        free(ask);
        free(done);
        return NULL;
    }
    done->ask = for_whom;
    ask->done = done;
    ask->type = type;
    return ask;
}

static struct weir_text keep_ask_text(struct ask *ask, struct weir_text text)
{
    weir_assert(text.len < sizeof ask->text);
    if (text.len > 0)
        memcpy(ask->text, text.p, text.len);
    return (struct weir_text){ ask->text, text.len };
}

static int post_ask(struct weir_store_thread *t, struct ask *ask)
{
    weir_assert(!ask->next);
    pthread_mutex_lock(&t->mutex);
    *t->asks_end = ask;
    t->asks_end = &ask->next;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->mutex);
    return 0;
}

int weir_store_thread_sync(struct weir_store_thread *t, void *for_whom)
{
    struct ask *ask = ask_new(ASK_LOOK, for_whom);
    return ask ? post_ask(t, ask) : WEIR_ENOMEM;
}

int weir_store_thread_edit(struct weir_store_thread *t,
                           struct weir_changes *changes,
                           const struct weir_edit *edit, void *for_whom)
{
    struct ask *ask = ask_new(ASK_EDIT, for_whom);
    if (!ask) {
        weir_changes_fini(changes);
        return WEIR_ENOMEM;
    }
    ask->changes = *changes;
    *changes = (struct weir_changes){ 0 };
    ask->edit = *edit;
    ask->edit.identity = keep_ask_text(ask, edit->identity);
    return post_ask(t, ask);
}

int weir_store_thread_undo(struct weir_store_thread *t, uint64_t epoch,
                           struct weir_text identity, void *for_whom)
{
    struct ask *ask = ask_new(ASK_UNDO, for_whom);
    if (!ask)
        return WEIR_ENOMEM;
    ask->epoch = epoch;
    ask->edit.identity = keep_ask_text(ask, identity);
    return post_ask(t, ask);
}

int weir_store_thread_take_mark(struct weir_store_thread *t,
                                const struct weir_store_mark_ask *mark)
{
    struct ask *ask = ask_new(ASK_MARK, NULL);
    if (!ask)
        return WEIR_ENOMEM;
    ask->done->type = NEWS_MARK;
    ask->done->mark = *mark;
    return post_ask(t, ask);
}

int weir_store_thread_log(struct weir_store_thread *t,
                          const struct weir_store_log_ask *log, void *for_whom)
{
    struct ask *ask = ask_new(ASK_LOG, for_whom);
    if (!ask) {
        log->end(log->context);
        return WEIR_ENOMEM;
    }
    ask->log = *log;
    ask->log.name = keep_ask_text(ask, log->name);
    return post_ask(t, ask);
}
