/* SPDX-License-Identifier: MIT
 * store/shared.c - a shared store: opening it, steps in it, its status; the
 * lanes, the jobs in them, and the breaker.
 *
 * Registry: the kinds of store (shared_redis.c, shared_memcached.c), which
 * report to their lane here.
 *
 * Theory of operation. Each server has a lane. A step becomes a job in its
 * server's lane, and its caller sleeps until the lane's thread has finished it
 * or its deadline has passed. The kind of store talks to the server
 * (shared_redis.c, shared_memcached.c).
 *
 * With several servers each has its own lane. A name belongs to one server as
 * long as the list is the same; if that server is away, its names aren't
 * counted elsewhere, since another server would begin at 0.
 *
 * Rejected: callers that talk to the server themselves, each on its own
 * connection. It saves two thread switches, but costs a connection per thread,
 * the pipelining of steps from many threads, and deadlines in the middle of a
 * half-read answer.
 *
 * The breaker. A lane is NEW until a first connection succeeds or fails, then
 * UP or DOWN.
 *
 *     NEW --- connected --> UP <---- probe answered in time ---- DOWN
 *       \                    \--- connection lost, or a step's --^
 *        \--- refused --------\   deadline passed in silence
 *
 * A deadline belongs to one quota, the breaker to all. Therefore one missed
 * deadline doesn't open it: silence is a time of at least WEIR_SHARED_DEADLINE
 * without an answer in time. An answer is in time within its step's deadline or
 * WEIR_SHARED_DEADLINE, whichever is longer: a deadline of 1 ms proves nothing
 * about a server that takes 2 ms. A probe is in time within the longest such
 * time of the steps since the breaker opened. A missed deadline while other
 * answers come in time is one slow step and opens nothing. Answers that all
 * come late don't count. When the breaker opens, all waiting steps fail at
 * once: a server's death costs one deadline, and each later step one load of
 * the state. */

#include "store/shared.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/atomic.h"
#include "core/base/hash.h"
#include "io/clock.h"
#include "store/shared_internal.h"

/* ---- Jobs ---- */

static void release_job(struct weir_shared_job *job)
{
    if (weir_fetch_sub(&job->users, 1u) != 1)
        return;
    weir_assert(weir_load(&job->lane->shared->pending) > 0);
    weir_fetch_sub(&job->lane->shared->pending, 1u);
    pthread_cond_destroy(&job->wake);
    pthread_mutex_destroy(&job->mutex);
    free(job);
}

void weir_job_finish(struct weir_shared_job *job, int result,
                     const struct weir_algorithm_answer *answer)
{
    if (result == 0)
        weir_fetch_add(&job->lane->shared->steps, 1u);
    pthread_mutex_lock(&job->mutex);
    weir_assert(!job->done && (result != 0 || answer));
    job->done = true;
    job->result = result;
    if (result == 0)
        job->answer = *answer;
    pthread_cond_signal(&job->wake);
    pthread_mutex_unlock(&job->mutex);
    release_job(job);
}

void weir_job_finish_all(struct weir_shared_job *jobs, int result)
{
    while (jobs) {
        struct weir_shared_job *job = jobs;
        jobs = job->next;
        weir_job_finish(job, result, NULL);
    }
}

static weir_duration job_patience(weir_duration deadline)
{
    return deadline > WEIR_SHARED_DEADLINE ? deadline : WEIR_SHARED_DEADLINE;
}

static struct weir_shared_job *job_new(struct weir_lane *lane,
                                       struct weir_text key,
                                       const struct weir_algorithm_rule *rule,
                                       const struct weir_algorithm_ask *ask,
                                       weir_duration deadline)
{
    struct weir_shared_job *job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    weir_assert(key.len < sizeof(job->key));
    weir_assert(deadline <= WEIR_SHARED_DEADLINE_MAX);
    job->lane = lane;
    job->users = 2;
    job->key_len = key.len;
    memcpy(job->key, key.p, key.len);
    job->rule = *rule;
    job->ask = *ask;
    job->asked_at = weir_clock_now();
    job->until = job->asked_at + deadline;
    job->patience = job_patience(deadline);
    pthread_mutex_init(&job->mutex, NULL);
    weir_condition_init(&job->wake);
    return job;
}

/* ---- Lanes ---- */

static enum weir_lane_state lane_state(const struct weir_lane *lane)
{
    /* Relaxed: a caller that reads an old state waits for one deadline, or is
     * refused one step longer. */
    return (enum weir_lane_state)weir_load_relaxed(&lane->state);
}

struct weir_shared_job *weir_lane_get(struct weir_lane *lane)
{
    pthread_mutex_lock(&lane->mutex);
    struct weir_shared_job *jobs = lane->jobs;
    lane->jobs = NULL;
    lane->jobs_end = &lane->jobs;
    pthread_mutex_unlock(&lane->mutex);
    return jobs;
}

void weir_job_answered(const struct weir_shared_job *job)
{
    struct weir_lane *lane = job->lane;
    if (weir_clock_now() >= job->asked_at + job->patience)
        return;
    pthread_mutex_lock(&lane->mutex);
    lane->silent_since = WEIR_NEVER;
    pthread_mutex_unlock(&lane->mutex);
}

void weir_lane_up(struct weir_lane *lane)
{
    pthread_mutex_lock(&lane->mutex);
    lane->silent_since = WEIR_NEVER;
    weir_store_relaxed(&lane->state, WEIR_LANE_UP);
    pthread_mutex_unlock(&lane->mutex);
}

void weir_lane_note_error(struct weir_lane *lane, const char *why)
{
    struct weir_shared *shared = lane->shared;
    pthread_mutex_lock(&shared->mutex);
    snprintf(shared->last_error, sizeof(shared->last_error), "%.60s: %.96s",
             lane->name, why);
    pthread_mutex_unlock(&shared->mutex);
}

void weir_lane_down(struct weir_lane *lane, const char *why)
{
    weir_lane_note_error(lane, why);
    pthread_mutex_lock(&lane->mutex);
    weir_store_relaxed(&lane->state, WEIR_LANE_DOWN);
    pthread_mutex_unlock(&lane->mutex);
    weir_job_finish_all(weir_lane_get(lane), WEIR_ECONNECT);
}

/* Puts the job into the lane. False: the server is away. */
static bool put_into_lane(struct weir_lane *lane, struct weir_shared_job *job)
{
    pthread_mutex_lock(&lane->mutex);
    bool up = lane_state(lane) != WEIR_LANE_DOWN;
    if (up) {
        if (lane->silent_since > job->asked_at)
            lane->silent_since = job->asked_at;
        weir_assert(!job->next && !*lane->jobs_end);
        *lane->jobs_end = job;
        lane->jobs_end = &job->next;
    }
    pthread_mutex_unlock(&lane->mutex);
    if (up)
        lane->shared->type->wake(lane, job);
    return up;
}

/* Opens the breaker if there was no answer since the job was asked, and for
 * long enough. */
static void open_breaker_if_silent(struct weir_lane *lane,
                                   const struct weir_shared_job *job)
{
    weir_instant now = weir_clock_now();
    pthread_mutex_lock(&lane->mutex);
    bool silent = lane->silent_since <= job->asked_at &&
                  now - lane->silent_since >= WEIR_SHARED_DEADLINE &&
                  lane_state(lane) != WEIR_LANE_DOWN;
    if (silent) {
        weir_store_relaxed(&lane->patience, job->patience);
        weir_store_relaxed(&lane->state, WEIR_LANE_DOWN);
    }
    pthread_mutex_unlock(&lane->mutex);
    if (!silent)
        return;
    weir_lane_note_error(lane, "no answer in time");
    lane->shared->type->wake(lane, NULL);
}

/* Also while the lane is down: these steps decide how long a probe may take. */
static void raise_patience(struct weir_lane *lane, weir_duration patience)
{
    /* Relaxed: the next step repeats a raise that a race has lost. */
    if (weir_load_relaxed(&lane->patience) < patience)
        weir_store_relaxed(&lane->patience, patience);
}

static void init_lane(struct weir_lane *lane, struct weir_shared *shared,
                      const struct weir_address *address)
{
    weir_assert(!lane->shared);
    lane->shared = shared;
    lane->address = *address;
    lane->jobs_end = &lane->jobs;
    lane->patience = WEIR_SHARED_DEADLINE;
    lane->silent_since = WEIR_NEVER;
    snprintf(lane->name, sizeof(lane->name), "%s:%u", address->host,
             address->port);
    pthread_mutex_init(&lane->mutex, NULL);
}

static void fini_lane(struct weir_lane *lane)
{
    weir_job_finish_all(weir_lane_get(lane), WEIR_ECONNECT);
    pthread_mutex_destroy(&lane->mutex);
}

/* ---- A step ---- */

/* Waits for the job and returns its result. */
static int wait_for_answer(struct weir_shared_job *job,
                           struct weir_algorithm_answer *out)
{
    struct timespec until = weir_timespec_of(job->until);
    pthread_mutex_lock(&job->mutex);
    int waited = 0;
    while (!job->done && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&job->wake, &job->mutex, &until);
    int result = job->done ? job->result : WEIR_ETIMEOUT;
    if (result == 0)
        *out = job->answer;
    pthread_mutex_unlock(&job->mutex);
    return result;
}

static int step_in_lane(struct weir_lane *lane, struct weir_shared_job *job,
                        struct weir_algorithm_answer *out)
{
    struct weir_shared *shared = lane->shared;
    if (!put_into_lane(lane, job)) {
        weir_assert(job->users == 2);
        job->users = 1;
        release_job(job);
        weir_fetch_add(&shared->refused, 1u);
        return WEIR_ECONNECT;
    }
    int result = wait_for_answer(job, out);
    if (result == WEIR_ETIMEOUT) {
        weir_fetch_add(&shared->timeouts, 1u);
        open_breaker_if_silent(lane, job);
    }
    release_job(job);
    return result;
}

/* The server of a key: the one with the highest hash together with it
 * (rendezvous hashing). Adding or removing a server moves only that server's
 * keys. */
static struct weir_lane *lane_of(struct weir_shared *shared,
                                 struct weir_text key)
{
    weir_assert(shared->uri.count > 0 &&
                shared->uri.count <= WEIR_SHARED_SERVERS_MAX);
    size_t best = 0;
    uint64_t highest = 0;
    for (size_t i = 0; shared->uri.count > 1 && i < shared->uri.count; i++) {
        uint64_t seed = weir_hash(weir_text_of(shared->lane[i].name), 0);
        uint64_t drawn = weir_hash(key, seed);
        if (drawn < highest)
            continue;
        highest = drawn;
        best = i;
    }
    return &shared->lane[best];
}

int weir_shared_step(struct weir_shared *shared, struct weir_text key,
                     const struct weir_algorithm_rule *rule,
                     const struct weir_algorithm_ask *ask,
                     struct weir_algorithm_answer *out, weir_duration deadline)
{
    weir_assert(key.len > 0 && key.len <= WEIR_NAME_MAX);
    weir_assert(ask->weight <= WEIR_WEIGHT_MAX && weir_algorithm_check(rule));
    if (deadline > WEIR_SHARED_DEADLINE_MAX)
        deadline = WEIR_SHARED_DEADLINE_MAX;
    struct weir_lane *lane = lane_of(shared, key);
    raise_patience(lane, job_patience(deadline));
    if (lane_state(lane) == WEIR_LANE_DOWN) {
        weir_fetch_add(&shared->refused, 1u);
        return WEIR_ECONNECT;
    }
    if (weir_fetch_add(&shared->pending, 1u) >= WEIR_SHARED_PENDING_MAX) {
        weir_fetch_sub(&shared->pending, 1u);
        return WEIR_EFULL;
    }
    struct weir_shared_job *job = job_new(lane, key, rule, ask, deadline);
    if (job)
        return step_in_lane(lane, job, out);
    weir_fetch_sub(&shared->pending, 1u);
    return WEIR_ENOMEM;
}

/* ---- Life ---- */

static void free_shared(struct weir_shared *shared)
{
    for (size_t i = 0; i < shared->uri.count; i++)
        fini_lane(&shared->lane[i]);
    pthread_mutex_destroy(&shared->mutex);
    weir_tls_free(&shared->tls);
    free(shared->secrets_file);
    free(shared);
}

static int open_tls(struct weir_shared *shared, const char *ca,
                    struct weir_diag *diag)
{
    if (!shared->uri.tls)
        return 0;
    struct weir_tls_options options = { .ca = ca ? ca : WEIR_TLS_SYSTEM };
    return weir_tls_new(&options, &shared->tls, diag);
}

static int check_prefix(const char *prefix, struct weir_diag *diag)
{
    size_t len = strlen(prefix);
    bool sound = len > 0 && len <= WEIR_SHARED_PREFIX_MAX;
    for (size_t i = 0; i < len; i++)
        sound =
            sound && prefix[i] > ' ' && prefix[i] < 0x7f && prefix[i] != '{';
    return sound ? 0
                 : weir_diag_set(diag, WEIR_EINVAL,
                                 "a prefix of keys is 1 to 64 printable "
                                 "characters without blanks and {",
                                 NULL);
}

static int start_shared(struct weir_shared *shared,
                        const struct weir_shared_options *options,
                        struct weir_diag *diag)
{
    static const struct weir_shared_type *const types[] = {
        [WEIR_SHARED_REDIS] = &weir_shared_redis,
        [WEIR_SHARED_MEMCACHED] = &weir_shared_memcached,
    };
    shared->type = types[shared->uri.kind];
    weir_assert(shared->type && shared->type->open);
    strcpy(shared->prefix, options->prefix ? options->prefix : "weir");
    if (options->secrets_file)
        shared->secrets_file = strdup(options->secrets_file);
    if (options->secrets_file && !shared->secrets_file)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    int error = open_tls(shared, options->tls_ca, diag);
    return error < 0 ? error : shared->type->open(shared, diag);
}

int weir_shared_open(const struct weir_shared_options *options,
                     struct weir_shared **out_shared, struct weir_diag *diag)
{
    struct weir_shared_uri uri;
    int error = weir_shared_uri_parse(weir_text_of(options->uri), &uri, diag);
    if (error == 0 && options->prefix)
        error = check_prefix(options->prefix, diag);
    if (error < 0)
        return error;
    struct weir_shared *shared = calloc(1, sizeof(*shared));
    if (!shared)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    shared->uri = uri;
    pthread_mutex_init(&shared->mutex, NULL);
    for (size_t i = 0; i < uri.count; i++)
        init_lane(&shared->lane[i], shared, &uri.server[i]);
    error = start_shared(shared, options, diag);
    if (error < 0)
        free_shared(shared);
    else
        *out_shared = shared;
    return error;
}

void weir_shared_close(struct weir_shared *shared)
{
    if (!shared)
        return;
    shared->type->close(shared);
    free_shared(shared);
}

/* ---- Status ---- */

void weir_shared_status(struct weir_shared *shared,
                        struct weir_shared_status *out)
{
    bool up = true;
    for (size_t i = 0; i < shared->uri.count; i++)
        up = up && lane_state(&shared->lane[i]) == WEIR_LANE_UP;
    /* Relaxed: each counter is read on its own. */
    *out = (struct weir_shared_status){
        .up = up,
        .steps = weir_load_relaxed(&shared->steps),
        .timeouts = weir_load_relaxed(&shared->timeouts),
        .refused = weir_load_relaxed(&shared->refused),
        .swaps_lost = weir_load_relaxed(&shared->swaps_lost),
        .reloads = weir_load_relaxed(&shared->reloads),
    };
    pthread_mutex_lock(&shared->mutex);
    memcpy(out->last_error, shared->last_error, sizeof(out->last_error));
    pthread_mutex_unlock(&shared->mutex);
}
