/* SPDX-License-Identifier: MIT
 * libweir/libweir_exact_stores.c - the stores of a limiter's exact quotas, one
 * of each address; steps in them, and events about stores that don't answer.
 *
 * The background thread opens the stores that new quotas name, so that a
 * decision finds them open; a decision that comes earlier opens its store
 * itself. An entry is never removed or changed but for its state, so callers
 * may keep it, and finding takes no lock. If a store can't be opened the entry
 * has the reason, and its quotas go by their on_stale. So do those of a store
 * for which there is no room any more; that is reported once.
 *
 * The address "root" is a store, too: a root makes the step. Callers wait, the
 * thread asks.
 *
 *     callers' threads                         the background thread
 *     a place, filled and queued  -- kick -->  weir_limiter_ask()
 *     waits, at most the deadline              ... a root ...
 *     reads it, frees the place   <- signal -- weir_limiter_answered()
 *
 * A caller that is past its deadline leaves its place behind as deserted, and
 * the thread frees it when its ask ends: the node answers each ask once, even
 * if the root is lost. One mutex guards all of that; it is held for a few
 * instructions, and while the thread hands the queue over. */

#include "libweir/libweir_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/atomic.h"
#include "io/clock.h"

/* ---- Steps that a root makes ---- */

enum job_state { JOB_FREE, JOB_QUEUED, JOB_ASKED, JOB_DONE, JOB_DESERTED };

struct job {
    enum job_state state;
    uint32_t next; /* free or queued: index + 1 */
    pthread_cond_t done;
    struct weir_algorithm_ask ask;
    weir_instant until;
    int error;
    struct weir_algorithm_answer answer;
    uint8_t name_len;
    char name[WEIR_NAME_MAX];
};

struct weir_exact_root {
    pthread_mutex_t mutex; /* guards all below */
    uint32_t used;         /* jobs with a 'done' */
    uint32_t free;         /* index + 1, as the next two */
    uint32_t first, last;  /* queued */
    struct job job[WEIR_ASKS_MAX];
};

static struct weir_exact_root *make_exact_root(void)
{
    struct weir_exact_root *root =
        weir_mem_system.alloc(NULL, sizeof(struct weir_exact_root));
    if (root)
        pthread_mutex_init(&root->mutex, NULL);
    return root;
}

static void free_exact_root(struct weir_exact_root *root)
{
    if (!root)
        return;
    for (uint32_t i = 0; i < root->used; i++)
        pthread_cond_destroy(&root->job[i].done);
    pthread_mutex_destroy(&root->mutex);
    weir_mem_system.free(NULL, root, sizeof(*root));
}

static void forget_jobs(struct weir_exact_root *root)
{
    pthread_mutex_init(&root->mutex, NULL);
    root->used = root->free = root->first = root->last = 0;
}

/* ---- Under the mutex ---- */

static bool claim_job(struct weir_exact_root *root, uint32_t *out_index)
{
    if (root->free != 0) {
        *out_index = root->free - 1;
        weir_assert(root->job[*out_index].state == JOB_FREE);
        root->free = root->job[*out_index].next;
        return true;
    }
    if (root->used == WEIR_ASKS_MAX)
        return false;
    *out_index = root->used++;
    weir_condition_init(&root->job[*out_index].done);
    return true;
}

static void free_job(struct weir_exact_root *root, uint32_t index)
{
    weir_assert(root->job[index].state == JOB_DONE ||
                root->job[index].state == JOB_DESERTED);
    root->job[index].state = JOB_FREE;
    root->job[index].next = root->free;
    root->free = index + 1;
}

/* Returns whether it is the only one. */
static bool enqueue_job(struct weir_exact_root *root, uint32_t index)
{
    weir_assert(root->job[index].state == JOB_QUEUED);
    bool alone = root->first == 0;
    root->job[index].next = 0;
    if (alone)
        root->first = index + 1;
    else
        root->job[root->last - 1].next = index + 1;
    root->last = index + 1;
    return alone;
}

static void finish_job(struct weir_exact_root *root, uint32_t index, int error,
                       const struct weir_algorithm_answer *answer)
{
    struct job *job = &root->job[index];
    weir_assert(index < root->used && job->state != JOB_FREE &&
                job->state != JOB_DONE);
    if (job->state == JOB_DESERTED) {
        free_job(root, index);
        return;
    }
    job->state = JOB_DONE;
    job->error = error;
    if (error == 0)
        job->answer = *answer;
    pthread_cond_signal(&job->done);
}

/* ---- The callers' side ---- */

/* Under the mutex. */
static void wait_for_job(struct weir_exact_root *root, struct job *job)
{
    struct timespec until = weir_timespec_of(job->until);
    int timed_out = 0;
    while (job->state != JOB_DONE && timed_out == 0)
        timed_out = pthread_cond_timedwait(&job->done, &root->mutex, &until);
}

static int step_root(struct weir *weir, struct weir_text key,
                     const struct weir_algorithm_ask *ask,
                     struct weir_algorithm_answer *out, weir_duration deadline)
{
    struct weir_exact_root *root = weir->exact.root;
    uint32_t index;
    pthread_mutex_lock(&root->mutex);
    if (!claim_job(root, &index)) {
        pthread_mutex_unlock(&root->mutex);
        return WEIR_EFULL;
    }
    struct job *job = &root->job[index];
    weir_assert(key.len <= sizeof(job->name));
    job->state = JOB_QUEUED;
    job->ask = *ask;
    job->until = weir_clock_now() + deadline;
    job->name_len = (uint8_t)key.len;
    memcpy(job->name, key.p, key.len);
    /* Earlier queued jobs have kicked it already. */
    if (enqueue_job(root, index))
        weir_pump_kick(weir);
    wait_for_job(root, job);
    int error = WEIR_ETIMEOUT;
    if (job->state == JOB_DONE) {
        error = job->error;
        if (error == 0)
            *out = job->answer;
        free_job(root, index);
    } else {
        job->state = JOB_DESERTED;
    }
    pthread_mutex_unlock(&root->mutex);
    return error;
}

/* ---- The thread's side ---- */

/* Hands the job to the node, unless its caller has gone. */
static void hand_job_over(struct weir *weir, struct weir_exact_root *root,
                          uint32_t index, weir_instant now)
{
    struct job *job = &root->job[index];
    struct weir_step_ask ask = {
        .name = { job->name, job->name_len },
        .ask = job->ask,
        .patience = job->until > now ? job->until - now : 0,
    };
    int error = WEIR_ETIMEOUT;
    if (job->state == JOB_QUEUED)
        error = weir_limiter_ask(weir->limiter, &ask, index, now);
    if (error < 0)
        finish_job(root, index, error, NULL);
    else
        job->state = JOB_ASKED;
}

void weir_exact_root_ask(struct weir *weir, weir_instant now)
{
    struct weir_exact_root *root = weir->exact.root;
    pthread_mutex_lock(&root->mutex);
    while (root->first != 0) {
        uint32_t index = root->first - 1;
        root->first = root->job[index].next;
        hand_job_over(weir, root, index, now);
    }
    pthread_mutex_unlock(&root->mutex);
}

void weir_exact_root_answer(struct weir *weir)
{
    struct weir_exact_root *root = weir->exact.root;
    struct weir_algorithm_answer answer;
    uint64_t index;
    int error;
    while (weir_limiter_answered(weir->limiter, &index, &error, &answer)) {
        pthread_mutex_lock(&root->mutex);
        finish_job(root, (uint32_t)index, error, &answer);
        pthread_mutex_unlock(&root->mutex);
    }
}

/* ---- The book of stores ---- */

/* Steps without answer in a row after which a store is away: a single late one
 * is nothing to report to an operator. */
#define AWAY_AT 3

/* False: no memory. An option that isn't set stays NULL. */
static bool keep_option(const char *said, char **out)
{
    if (!said || !*said)
        return true;
    *out = strdup(said);
    return *out != NULL;
}

/* By the stores' rule: no store is open yet to check it. */
static bool is_key_prefix(const char *prefix)
{
    size_t len = strlen(prefix);
    for (size_t i = 0; i < len; i++) {
        if (prefix[i] <= ' ' || prefix[i] >= 0x7f || prefix[i] == '{')
            return false;
    }
    return len >= 1 && len <= WEIR_EXACT_PREFIX_MAX;
}

int weir_exact_book_init(struct weir_exact_book *book,
                         const struct weir_options *options)
{
    pthread_mutex_init(&book->mutex, NULL);
    pthread_mutex_init(&book->late.mutex, NULL);
    weir_entropy(&book->drawn, sizeof(book->drawn));
    book->functions = options->exact;
    book->root = make_exact_root();
    if (!book->root)
        return WEIR_ENOMEM;
    if (book->functions && book->functions->version != WEIR_EXACT_VERSION)
        return WEIR_EINVAL;
    if (options->exact_prefix && !is_key_prefix(options->exact_prefix))
        return WEIR_EINVAL;
    const char *ca = options->tls_ca;
    if (ca && strcmp(ca, "system") == 0)
        ca = NULL;
    return keep_option(options->exact_secrets_file, &book->secrets_file) &&
                   keep_option(ca, &book->tls_ca) &&
                   keep_option(options->exact_prefix, &book->prefix)
               ? WEIR_OK
               : WEIR_ENOMEM;
}

void weir_exact_book_fini(struct weir_exact_book *book)
{
    for (uint32_t i = 0; i < book->count; i++) {
        if (book->entry[i].store)
            book->functions->close(book->entry[i].store);
    }
    free_exact_root(book->root);
    free(book->late.leave);
    pthread_mutex_destroy(&book->late.mutex);
    free(book->secrets_file);
    free(book->tls_ca);
    free(book->prefix);
    pthread_mutex_destroy(&book->mutex);
}

/* ---- Opening ---- */

static void open_entry(const struct weir_exact_book *book,
                       struct weir_exact_entry *entry)
{
    weir_assert(entry->uri[0] && entry < book->entry + WEIR_EXACT_STORES_MAX);
    struct weir_exact_options options = { .uri = entry->uri,
                                          .secrets_file = book->secrets_file,
                                          .tls_ca = book->tls_ca,
                                          .prefix = book->prefix };
    struct weir_diag diag = { .text = "" };
    entry->store = NULL;
    entry->failed = 0;
    if (book->shared) {
        snprintf(entry->why, sizeof(entry->why),
                 "exact quotas aren't decided in a shared table");
        entry->failed = AWAY_AT;
        return;
    }
    if (strcmp(entry->uri, "root") == 0) {
        entry->root = true;
        snprintf(entry->why, sizeof(entry->why), "no root answers");
        return;
    }
    if (!book->functions)
        snprintf(diag.text, sizeof(diag.text),
                 "link libweir-exact and set options.exact = weir_exact()");
    else if (book->functions->open(&options, &entry->store, &diag) == 0)
        return;
    snprintf(entry->why, sizeof(entry->why), "%.150s", diag.text);
    entry->failed = AWAY_AT;
}

static struct weir_exact_entry *find_entry(struct weir_exact_book *book,
                                           const char *uri)
{
    /* acquire: an entry is complete before it is counted. */
    uint32_t count = weir_load_acquire(&book->count);
    weir_assert(count <= WEIR_EXACT_STORES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(book->entry[i].uri, uri) == 0)
            return &book->entry[i];
    }
    return NULL;
}

/* Under the mutex. */
static void note_book_full(struct weir *weir, const char *uri)
{
    struct weir_exact_book *book = &weir->exact;
    if (weir_load_relaxed(&book->full) != 0) /* written under the mutex, or by
                                              * the thread that has read 1 */
        return;
    snprintf(book->lost, sizeof(book->lost), "%s", uri);
    weir_store_release(&book->full, 1);
    weir_pump_kick(weir);
}

static struct weir_exact_entry *get_entry(struct weir *weir, const char *uri)
{
    struct weir_exact_book *book = &weir->exact;
    struct weir_exact_entry *entry = find_entry(book, uri);
    if (entry || weir_load_acquire(&book->full) != 0)
        return entry;
    pthread_mutex_lock(&book->mutex);
    entry = find_entry(book, uri);
    if (!entry && book->count < WEIR_EXACT_STORES_MAX) {
        entry = &book->entry[book->count];
        snprintf(entry->uri, sizeof(entry->uri), "%s", uri);
        open_entry(book, entry);
        weir_store_release(&book->count, book->count + 1);
        if (entry->failed)
            weir_pump_kick(weir);
    } else if (!entry) {
        note_book_full(weir, uri);
    }
    pthread_mutex_unlock(&book->mutex);
    return entry;
}

void weir_exact_book_prepare(struct weir *weir)
{
    uint32_t used = weir_table_used(weir->table);
    char uri[WEIR_STORE_MAX + 1];
    for (uint32_t slot = 0; slot < used; slot++) {
        if (weir_table_store_of(weir->table, slot, uri))
            get_entry(weir, uri);
    }
}

/* The parent's connections and threads stayed with the parent, and so does
 * their memory. */
void weir_exact_book_forked(struct weir_exact_book *book)
{
    pthread_mutex_init(&book->mutex, NULL);
    /* Its permits are the parent's. Another thread may have had its mutex. */
    pthread_mutex_init(&book->late.mutex, NULL);
    weir_store_relaxed(&book->late.count, 0);
    forget_jobs(book->root);
    weir_entropy(&book->drawn, sizeof(book->drawn));
    for (uint32_t i = 0; i < book->count; i++) {
        book->entry[i].sent = false;
        open_entry(book, &book->entry[i]);
    }
}

/* ---- Steps ---- */

/* Notes the result of a step: 0 or an error. Any thread. */
static void note_result(struct weir *weir, struct weir_exact_entry *entry,
                        int error)
{
    /* Relaxed: two threads may count one failure; all of it is a hint. */
    uint32_t before = weir_load_relaxed(&entry->failed);
    uint32_t failed = error == WEIR_ECONNECT ? AWAY_AT : before + 1;
    if (error == 0)
        failed = 0;
    if (failed > AWAY_AT)
        failed = AWAY_AT;
    if (failed == before)
        return;
    weir_store_relaxed(&entry->failed, failed);
    if ((failed == AWAY_AT) != (before == AWAY_AT))
        weir_pump_kick(weir);
}

int weir_exact_step(struct weir *weir, const struct weir_away *away,
                    const struct weir_algorithm_ask *ask,
                    struct weir_algorithm_answer *out)
{
    struct weir_exact_entry *entry = get_entry(weir, away->store);
    struct weir_text key = { away->name, away->name_len };
    if (!entry || !(entry->root || entry->store))
        return WEIR_ECONNECT;
    int error = entry->root ? step_root(weir, key, ask, out, away->deadline)
                            : weir->exact.functions->step(entry->store, key,
                                                          &away->rule, ask, out,
                                                          away->deadline);
    /* The caller would sleep for 'wait'; it has set an upper bound. */
    if (error == 0 && out->wait > ask->wait_max)
        error = WEIR_EPROTOCOL;
    note_result(weir, entry, error);
    return error;
}

/* ---- Events ---- */

static void send_store_event(struct weir *weir, struct weir_exact_entry *entry,
                             bool away)
{
    char why[100];
    snprintf(why, sizeof(why), "%.99s", entry->why);
    if (away && entry->store)
        weir->exact.functions->why(entry->store, why, sizeof(why));
    weir_event_report(
        weir, away ? WEIR_EVENT_EXACT_AWAY : WEIR_EVENT_EXACT_BACK, "%.80s%s%s",
        entry->uri, away ? ": " : "", away ? (why[0] ? why : "no answer") : "");
}

void weir_exact_book_send_events(struct weir *weir)
{
    /* acquire: 'lost' was written before. */
    if (weir_load_acquire(&weir->exact.full) == 1) {
        weir_store_relaxed(&weir->exact.full, 2);
        weir_event_report(weir, WEIR_EVENT_EXACT_AWAY,
                          "%.80s: no room for this store; a limiter keeps at "
                          "most %d until it is opened again",
                          weir->exact.lost, WEIR_EXACT_STORES_MAX);
    }
    uint32_t count = weir_load_acquire(&weir->exact.count);
    for (uint32_t i = 0; i < count; i++) {
        struct weir_exact_entry *entry = &weir->exact.entry[i];
        bool away = weir_load_relaxed(&entry->failed) >= AWAY_AT;
        if (away == entry->sent)
            continue;
        entry->sent = away;
        send_store_event(weir, entry, away);
    }
}
