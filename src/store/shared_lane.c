/* SPDX-License-Identifier: MIT
 * store/shared_lane.c - the lane of a server: jobs in it, the wait for an
 * answer, and the breaker.
 *
 * Theory of operation. A step becomes a job in its server's lane, and its
 * caller sleeps until the lane's thread has finished it or its deadline has
 * passed.
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

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/atomic.h"
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

bool weir_lane_is_up(const struct weir_lane *lane)
{
    return lane_state(lane) == WEIR_LANE_UP;
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

void weir_lane_init(struct weir_lane *lane, struct weir_shared *shared,
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

void weir_lane_fini(struct weir_lane *lane)
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

static int put_and_wait(struct weir_lane *lane, struct weir_shared_job *job,
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

int weir_lane_step(struct weir_lane *lane, struct weir_text key,
                   const struct weir_algorithm_rule *rule,
                   const struct weir_algorithm_ask *ask,
                   struct weir_algorithm_answer *out, weir_duration deadline)
{
    struct weir_shared *shared = lane->shared;
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
        return put_and_wait(lane, job, out);
    weir_fetch_sub(&shared->pending, 1u);
    return WEIR_ENOMEM;
}
