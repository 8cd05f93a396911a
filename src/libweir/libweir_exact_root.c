/* SPDX-License-Identifier: MIT
 * libweir/libweir_exact_root.c - steps that a root makes: callers wait, the
 * thread asks.
 *
 *     callers' threads                         the background thread
 *     a place, filled and queued  -- kick -->  weir_limiter_ask()
 *     waits, at most the deadline              ... a root ...
 *     reads it, frees the place   <- signal -- weir_limiter_answered()
 *
 * A caller that is past its deadline leaves its place behind as deserted, and
 * the thread frees it when its ask ends: the node answers each ask once, even
 * if the root is lost. One mutex guards it all; it is held for a few
 * instructions, and while the thread hands the queue over. */

#include "libweir/libweir_internal.h"

#include <string.h>

#include "io/clock.h"

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

struct weir_exact_root *weir_exact_root_new(void)
{
    struct weir_exact_root *root =
        weir_mem_system.alloc(NULL, sizeof(struct weir_exact_root));
    if (root)
        pthread_mutex_init(&root->mutex, NULL);
    return root;
}

void weir_exact_root_free(struct weir_exact_root *root)
{
    if (!root)
        return;
    for (uint32_t i = 0; i < root->used; i++)
        pthread_cond_destroy(&root->job[i].done);
    pthread_mutex_destroy(&root->mutex);
    weir_mem_system.free(NULL, root, sizeof(*root));
}

void weir_exact_root_forked(struct weir_exact_root *root)
{
    pthread_mutex_init(&root->mutex, NULL);
    root->used = root->free = root->first = root->last = 0;
}

/* ---- Under the mutex ---- */

static bool claim_job(struct weir_exact_root *root, uint32_t *out_index)
{
    if (root->free != 0) {
        *out_index = root->free - 1;
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

static void fill_job(struct job *job, struct weir_text key,
                     const struct weir_algorithm_ask *ask, weir_instant until)
{
    weir_assert(key.len <= sizeof(job->name));
    job->state = JOB_QUEUED;
    job->ask = *ask;
    job->until = until;
    job->name_len = (uint8_t)key.len;
    memcpy(job->name, key.p, key.len);
}

/* Under the mutex. */
static void wait_for_job(struct weir_exact_root *root, struct job *job)
{
    struct timespec until = weir_timespec_of(job->until);
    int timed_out = 0;
    while (job->state != JOB_DONE && timed_out == 0)
        timed_out = pthread_cond_timedwait(&job->done, &root->mutex, &until);
}

int weir_exact_root_step(struct weir *weir, struct weir_text key,
                         const struct weir_algorithm_ask *ask,
                         struct weir_algorithm_answer *out,
                         weir_duration deadline)
{
    struct weir_exact_root *root = weir->exact.root;
    uint32_t index;
    pthread_mutex_lock(&root->mutex);
    if (!claim_job(root, &index)) {
        pthread_mutex_unlock(&root->mutex);
        return WEIR_EFULL;
    }
    struct job *job = &root->job[index];
    fill_job(job, key, ask, weir_clock_now() + deadline);
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
