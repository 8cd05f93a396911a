/* SPDX-License-Identifier: MIT
 * store/shared_memcached.c - memcached: counters, and compare-and-swap.
 *
 * Theory of operation. memcached runs no scripts and offers no clock. Therefore
 * the time is ours (CLOCK_REALTIME, on which all processes of a store must
 * agree), and the atomic operations are one add to a number or one swap of a
 * value.
 *
 *   fixed_window   a counter per window; its key has the window's number, not
 *                  its beginning, which moves with a zone's clocks. A step adds
 *                  first, and subtracts again if that exceeds the limit. In
 *                  between another step may see the counter too full and be
 *                  refused a little early; the limit is never exceeded.
 *   all others     the rule and the bucket state are one value
 *                  (shared_state.c): get it, step, swap it for the one read. A
 *                  step that changes nothing, as most refusals, needs no swap.
 *
 * The sliding window swaps too. Its parts could be counters with atomic adds,
 * but a process with a late clock would then add to a part that others have
 * already read as finished: the limit would be exceeded unnoticed.
 *
 * libmemcached's calls block, so each server has some threads, each with one
 * connection. All steps on a key go to the same thread: within a process they
 * never contend, and steps that wait together are made with one swap. A swap
 * that another process wins is tried again after a random, growing pause.
 *
 * A connection is closed after anything unexpected, since its next bytes can't
 * be interpreted. The first thread probes a server that is down.
 *
 * No secrets: memcached's SASL needs its binary protocol, which is deprecated.
 * Run memcached in a private network. */

#include <libmemcached/memcached.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/atomic.h"
#include "core/base/hash.h"
#include "core/base/rng.h"
#include "io/clock.h"
#include "io/process.h"
#include "store/shared_internal.h"
#include "store/shared_script.h"
#include "store/shared_state.h"

#define KEY_MAX 250             /* bytes, memcached's bound */
#define BLOCK_MAX (4u << 20)    /* bytes that libmemcached may allocate */
#define BATCH_MAX 64            /* steps on one key with one swap */
#define PAUSE_FIRST (20 * 1000) /* ns, at most, after one lost swap */
#define PAUSE_DOUBLINGS 6
#define NO_WINDOW INT64_MIN            /* instead of a window's number */
#define WINDOW_KEPT (60 * WEIR_SECOND) /* after its end */
#define DAY (86400 * WEIR_SECOND)
#define MONTH_S (30 * 24 * 3600) /* longer expiries are Unix times */

struct worker {
    struct server *server;
    unsigned index;
    pthread_t thread;
    bool running;
    pthread_cond_t wake;  /* waited for with the lane's mutex */
    memcached_st *handle; /* owned; NULL: not connected */
    uint32_t made;        /* the server's 'downs' when it was made */
    struct weir_rng rng;
    weir_instant probe_at; /* next probe, of the first worker */
    uint64_t state[WEIR_ALGORITHM_SIZE_MAX / 8];
    uint64_t before[WEIR_ALGORITHM_SIZE_MAX / 8];
    uint8_t value[WEIR_STATE_BYTES_MAX];
};

struct server {
    struct weir_lane *lane;
    uint32_t downs; /* connections made before the last one are unusable */
    struct worker worker[WEIR_SHARED_WORKERS];
};

/* Steps on one key. */
struct batch {
    size_t count;
    struct weir_shared_job *job[BATCH_MAX];
    struct weir_algorithm_answer answer[BATCH_MAX];
};

/* ---- Memory: a server can't make us allocate by announcing sizes ---- */

static void *bounded_alloc(const memcached_st *handle, const size_t size,
                           void *context)
{
    (void)handle;
    (void)context;
    return size <= BLOCK_MAX ? malloc(size) : NULL;
}

static void *bounded_calloc(const memcached_st *handle, size_t count,
                            const size_t size, void *context)
{
    (void)handle;
    (void)context;
    return count <= BLOCK_MAX / (size ? size : 1) ? calloc(count, size) : NULL;
}

static void *bounded_realloc(const memcached_st *handle, void *block,
                             const size_t size, void *context)
{
    (void)handle;
    (void)context;
    return size <= BLOCK_MAX ? realloc(block, size) : NULL;
}

static void bounded_free(const memcached_st *handle, void *block, void *context)
{
    (void)handle;
    (void)context;
    free(block);
}

/* ---- Connections ---- */

static void disconnect(struct worker *worker)
{
    if (worker->handle)
        memcached_free(worker->handle);
    worker->handle = NULL;
}

static bool configure(memcached_st *handle, const struct weir_address *address)
{
    static const struct {
        memcached_behavior_t behavior;
        uint64_t value;
    } settings[] = {
        { MEMCACHED_BEHAVIOR_NO_BLOCK, 1 },
        { MEMCACHED_BEHAVIOR_TCP_NODELAY, 1 },
        { MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1 },
    };
    if (memcached_failed(memcached_set_memory_allocators(
            handle, bounded_alloc, bounded_free, bounded_realloc,
            bounded_calloc, NULL)))
        return false;
    for (size_t i = 0; i < WEIR_COUNT_OF(settings); i++)
        if (memcached_failed(memcached_behavior_set(
                handle, settings[i].behavior, settings[i].value)))
            return false;
    return memcached_success(
        memcached_server_add(handle, address->host, address->port));
}

/* The connection, which waits for an answer for at most 'patience'. NULL: no
 * memory. */
static memcached_st *connection(struct worker *worker, weir_duration patience)
{
    uint32_t downs = weir_load(&worker->server->downs);
    if (worker->handle && worker->made != downs)
        disconnect(worker);
    if (!worker->handle) {
        worker->handle = memcached_create(NULL);
        worker->made = downs;
        if (!worker->handle ||
            !configure(worker->handle, &worker->server->lane->address)) {
            disconnect(worker);
            return NULL;
        }
    }
    uint64_t ms = (patience + WEIR_MILLISECOND - 1) / WEIR_MILLISECOND;
    memcached_behavior_set(worker->handle, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, ms);
    memcached_behavior_set(worker->handle, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT,
                           ms);
    return worker->handle;
}

/* How long the job may still wait; at least a millisecond. */
static weir_duration job_time_left(const struct weir_shared_job *job)
{
    weir_instant now = weir_clock_now();
    weir_duration least = WEIR_MILLISECOND;
    return job->until > now + least ? job->until - now : least;
}

/* Converts an unexpected return code to a step's result. */
static int result_of(memcached_return_t code)
{
    switch ((int)code) {
    case MEMCACHED_TIMEOUT:
        return WEIR_ETIMEOUT;
    case MEMCACHED_HOST_LOOKUP_FAILURE:
    case MEMCACHED_CONNECTION_FAILURE:
    case MEMCACHED_WRITE_FAILURE:
    case MEMCACHED_READ_FAILURE:
    case MEMCACHED_UNKNOWN_READ_FAILURE:
    case MEMCACHED_ERRNO:
    case MEMCACHED_NO_SERVERS:
    case MEMCACHED_SERVER_MARKED_DEAD:
    case MEMCACHED_SERVER_TEMPORARILY_DISABLED:
        return WEIR_ECONNECT;
    default:
        return WEIR_EPROTOCOL;
    }
}

/* The probing thread sleeps without a timeout while the server is up. */
static void wake_prober(struct server *server)
{
    struct weir_lane *lane = server->lane;
    pthread_mutex_lock(&lane->mutex);
    pthread_cond_signal(&server->worker[0].wake);
    pthread_mutex_unlock(&lane->mutex);
}

/* The connection is unusable; except after a timeout all others are too, and
 * the lane is down. (The caller of a step that times out judges the silence.)
 * Returns the step's result. */
static int fail_worker(struct worker *worker, memcached_return_t code)
{
    struct server *server = worker->server;
    const char *why = memcached_strerror(worker->handle, code);
    if (code == MEMCACHED_TIMEOUT) {
        weir_lane_note_error(server->lane, "no answer in time");
    } else {
        weir_lane_down(server->lane, why);
        weir_fetch_add(&server->downs, 1u);
        wake_prober(server);
    }
    disconnect(worker);
    return result_of(code);
}

/* ---- Keys ---- */

/* Writes blanks and control characters as %XX. A longer result than 'max' makes
 * the caller use a hash, which is unique too. */
static size_t escape_name(struct weir_text name, char *out, size_t max)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t len = 0;
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.p[i];
        bool plain = c > ' ' && c != 0x7f && c != '%';
        if (len + 3 > max)
            return max + 1;
        if (plain) {
            out[len++] = (char)c;
            continue;
        }
        out[len++] = '%';
        out[len++] = digits[c >> 4];
        out[len++] = digits[c & 15];
    }
    return len;
}

/* 0: no memory. */
static size_t hashed(struct weir_text name, char *out)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    if (!SHA256((const unsigned char *)name.p, name.len, digest))
        return 0;
    size_t len = 2;
    memcpy(out, "%#", len); /* no escape looks like this */
    for (size_t i = 0; i < sizeof(digest); i++, len += 2)
        snprintf(out + len, 3, "%02x", digest[i]);
    return len;
}

/* The length of the key; 0: no memory. */
static size_t job_key(const struct weir_shared_job *job, char key[KEY_MAX + 1],
                      const char *kind, int64_t window)
{
    struct weir_text name = { job->key, job->key_len };
    char tail[64];
    int tail_len =
        window == NO_WINDOW
            ? snprintf(tail, sizeof(tail), ":%s", kind)
            : snprintf(tail, sizeof(tail), ":%s:%lld", kind, (long long)window);
    int head = snprintf(key, KEY_MAX + 1, "%s:", job->lane->shared->prefix);
    size_t max = KEY_MAX - (size_t)head - (size_t)tail_len;
    size_t len = escape_name(name, key + head, max);
    if (len > max)
        len = hashed(name, key + head);
    if (len == 0)
        return 0;
    memcpy(key + head + len, tail, (size_t)tail_len + 1);
    return (size_t)head + len + (size_t)tail_len;
}

/* The expiry of a value for memcached, which counts whole seconds and may be up
 * to one early. */
static time_t expiry_of(weir_instant idle_at, weir_instant now)
{
    if (idle_at == WEIR_NEVER)
        return 0;
    weir_duration rest = idle_at > now ? idle_at - now : 0;
    uint64_t seconds = rest / WEIR_SECOND + 3;
    if (seconds <= MONTH_S)
        return (time_t)seconds;
    return (time_t)(now / WEIR_SECOND + seconds);
}

/* ---- Counters ---- */

/* The counter of one window of one quota. */
struct counter {
    memcached_st *handle;
    char key[KEY_MAX + 1];
    size_t len;
    time_t expiry;
};

static memcached_return_t counter_read(struct counter *counter, uint64_t *out)
{
    size_t len;
    uint32_t flags;
    memcached_return_t code;
    char *text = memcached_get(counter->handle, counter->key, counter->len,
                               &len, &flags, &code);
    if (code == MEMCACHED_NOTFOUND) {
        *out = 0;
        return MEMCACHED_SUCCESS;
    }
    if (!text)
        return code == MEMCACHED_SUCCESS ? MEMCACHED_PROTOCOL_ERROR : code;
    char *end;
    *out = strtoull(text, &end, 10);
    if (end == text)
        code = MEMCACHED_PROTOCOL_ERROR;
    free(text);
    return code;
}

/* Adds to the counter, or creates it. If another process creates it at the same
 * time, the add is tried again. */
static memcached_return_t counter_add(struct counter *counter, uint64_t weight,
                                      uint64_t *out)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%llu", (unsigned long long)weight);
    memcached_return_t code = MEMCACHED_NOTFOUND;
    for (int tries = 0; tries < 3; tries++) {
        /* By key: the plain call takes 32 bits. */
        code = memcached_increment_by_key(counter->handle, counter->key,
                                          counter->len, counter->key,
                                          counter->len, weight, out);
        if (code != MEMCACHED_NOTFOUND)
            return code;
        code = memcached_add(counter->handle, counter->key, counter->len, text,
                             (size_t)len, counter->expiry, 0);
        if (code == MEMCACHED_SUCCESS) {
            *out = weight;
            return code;
        }
        if (code != MEMCACHED_NOTSTORED && code != MEMCACHED_DATA_EXISTS)
            return code;
    }
    return code;
}

/* memcached itself stops at 0. */
static memcached_return_t counter_subtract(struct counter *counter,
                                           uint64_t weight, uint64_t *out)
{
    memcached_return_t code =
        memcached_decrement_by_key(counter->handle, counter->key, counter->len,
                                   counter->key, counter->len, weight, out);
    if (code != MEMCACHED_NOTFOUND)
        return code;
    *out = 0;
    return MEMCACHED_SUCCESS;
}

static bool fits_counter(const struct weir_algorithm_rule *rule, uint64_t used,
                         uint64_t weight)
{
    return rule->quantity > 0 && weight <= rule->quantity &&
           used <= rule->quantity - weight;
}

/* A take. 'out_used': units in the window now. */
static memcached_return_t counter_take(struct counter *counter,
                                       const struct weir_algorithm_rule *rule,
                                       uint64_t weight, bool *out_passed,
                                       uint64_t *out_used)
{
    bool never = weight > rule->quantity || rule->quantity == 0;
    memcached_return_t code;
    if (weight == 0 || (never && !rule->count_limited)) {
        code = counter_read(counter, out_used);
        *out_passed = fits_counter(rule, *out_used, weight);
        return code;
    }
    code = counter_add(counter, weight, out_used);
    if (memcached_failed(code))
        return code;
    *out_passed = !never && *out_used <= rule->quantity;
    if (*out_passed || rule->count_limited)
        return code;
    return counter_subtract(counter, weight, out_used);
}

static memcached_return_t counter_ask(struct counter *counter,
                                      const struct weir_shared_job *job,
                                      bool *out_passed, uint64_t *out_used)
{
    const struct weir_algorithm_rule *rule = &job->rule;
    memcached_return_t code = MEMCACHED_SUCCESS;
    switch (job->ask.op) {
    case WEIR_ALGORITHM_TAKE:
    case WEIR_ALGORITHM_RESERVE:
        return counter_take(counter, rule, job->ask.weight, out_passed,
                            out_used);
    case WEIR_ALGORITHM_PEEK:
        code = counter_read(counter, out_used);
        *out_passed = fits_counter(rule, *out_used, job->ask.weight);
        return code;
    case WEIR_ALGORITHM_CHARGE:
        *out_passed = true;
        return counter_add(counter, job->ask.weight, out_used);
    case WEIR_ALGORITHM_REFUND:
        *out_passed = true;
        return counter_subtract(counter, job->ask.weight, out_used);
    }
    return code;
}

/* How long a finished window is kept: clocks may differ, and a zone's may be
 * set back meanwhile by less than the window's length or a day. */
static weir_duration kept_for(const struct weir_algorithm_rule *rule,
                              weir_duration length)
{
    if (rule->calendar == WEIR_CALENDAR_NONE)
        return WINDOW_KEPT;
    return WINDOW_KEPT + (length < DAY ? length : DAY);
}

static void count_job(struct worker *worker, struct weir_shared_job *job)
{
    static const char *const kinds[] = {
        [WEIR_CALENDAR_NONE] = "window", [WEIR_CALENDAR_MINUTE] = "minute",
        [WEIR_CALENDAR_HOUR] = "hour",   [WEIR_CALENDAR_DAY] = "day",
        [WEIR_CALENDAR_WEEK] = "week",   [WEIR_CALENDAR_MONTH] = "month",
    };
    const struct weir_algorithm_rule *rule = &job->rule;
    weir_assert(rule->algorithm == WEIR_FIXED_WINDOW);
    weir_instant now = weir_clock_wall(), start, end;
    int64_t number = weir_algorithm_window(rule, &start, &end, now);
    struct counter counter = { .handle =
                                   connection(worker, job_time_left(job)) };
    counter.len = job_key(job, counter.key, kinds[rule->calendar], number);
    if (!counter.handle || counter.len == 0) {
        weir_job_finish(job, WEIR_ENOMEM, NULL);
        return;
    }
    counter.expiry = expiry_of(end + kept_for(rule, end - start), now);
    bool passed = false;
    uint64_t used = 0;
    memcached_return_t code = counter_ask(&counter, job, &passed, &used);
    if (memcached_failed(code)) {
        weir_job_finish(job, fail_worker(worker, code), NULL);
        return;
    }
    weir_job_answered(job);
    bool never =
        !passed && (rule->quantity == 0 || job->ask.weight > rule->quantity);
    struct weir_algorithm_answer answer = {
        .passed = passed,
        .never = never,
        .used = used < INT64_MAX ? (int64_t)used : INT64_MAX,
        .remaining = used < rule->quantity ? rule->quantity - used : 0,
        .retry_after = never    ? WEIR_NEVER
                       : passed ? 0
                                : end - now,
    };
    weir_job_finish(job, 0, &answer);
}

/* ---- Swaps ---- */

/* A value as read, and the version that a swap compares. */
struct found {
    bool there;
    uint64_t unique;
};

static memcached_return_t fetch_state(struct worker *worker, const char *key,
                                      size_t len, struct found *out,
                                      size_t *out_len)
{
    *out = (struct found){ .there = false };
    memcached_return_t code = memcached_mget(worker->handle, &key, &len, 1);
    if (memcached_failed(code))
        return code;
    bool sound = true;
    for (;;) {
        memcached_result_st *result =
            memcached_fetch_result(worker->handle, NULL, &code);
        if (!result)
            break;
        size_t size = memcached_result_length(result);
        sound = sound && !out->there && size <= sizeof(worker->value);
        if (sound) {
            memcpy(worker->value, memcached_result_value(result), size);
            *out_len = size;
            *out = (struct found){ true, memcached_result_cas(result) };
        }
        memcached_result_free(result);
    }
    if (!sound)
        return MEMCACHED_PROTOCOL_ERROR;
    bool ended = code == MEMCACHED_END || code == MEMCACHED_NOTFOUND ||
                 code == MEMCACHED_SUCCESS;
    return ended ? MEMCACHED_SUCCESS : code;
}

/* Makes all steps of the batch on the state that was read; true: it has
 * changed. */
static bool step_all(struct worker *worker, struct batch *batch,
                     weir_instant now)
{
    const struct weir_algorithm_rule *rule = &batch->job[0]->rule;
    size_t size = weir_algorithm_size(rule);
    memcpy(worker->before, worker->state, size);
    for (size_t i = 0; i < batch->count; i++)
        weir_algorithm_step(rule, worker->state, &batch->job[i]->ask,
                            &batch->answer[i], now);
    return memcmp(worker->before, worker->state, size) != 0;
}

static memcached_return_t put_state(struct worker *worker,
                                    const struct weir_algorithm_rule *rule,
                                    const char *key, size_t len,
                                    const struct found *found, weir_instant now)
{
    size_t size = weir_state_pack(rule, worker->state, worker->value);
    weir_assert(size <= sizeof(worker->value));
    time_t expiry =
        expiry_of(weir_algorithm_idle_at(rule, worker->state, now), now);
    const char *value = (const char *)worker->value;
    if (!found->there)
        return memcached_add(worker->handle, key, len, value, size, expiry, 0);
    return memcached_cas(worker->handle, key, len, value, size, expiry, 0,
                         found->unique);
}

/* One try. 1: another process was faster. */
static int try_swap(struct worker *worker, struct batch *batch, const char *key,
                    size_t len)
{
    const struct weir_algorithm_rule *rule = &batch->job[0]->rule;
    struct found found;
    size_t size = 0;
    memcached_return_t code = fetch_state(worker, key, len, &found, &size);
    if (memcached_failed(code))
        return fail_worker(worker, code);
    weir_instant now = weir_clock_wall();
    memset(worker->state, 0, weir_algorithm_size(rule));
    int error = found.there ? weir_state_unpack(rule, worker->value, size,
                                                worker->state, now)
                            : 0;
    if (error < 0) {
        weir_lane_note_error(worker->server->lane,
                             "a value isn't one of Weir's");
        return error;
    }
    if (!step_all(worker, batch, now))
        return 0;
    code = put_state(worker, rule, key, len, &found, now);
    if (code == MEMCACHED_SUCCESS)
        return 0;
    bool lost = code == MEMCACHED_DATA_EXISTS || code == MEMCACHED_NOTSTORED ||
                code == MEMCACHED_NOTFOUND;
    return lost ? 1 : fail_worker(worker, code);
}

/* Random, so that two processes that collided don't collide again. */
static void pause_after_swap(struct worker *worker, unsigned tries)
{
    unsigned doublings = tries < PAUSE_DOUBLINGS ? tries : PAUSE_DOUBLINGS;
    uint64_t most = (uint64_t)PAUSE_FIRST << doublings;
    struct timespec pause = {
        .tv_nsec = (long)weir_rng_below(&worker->rng, most),
    };
    nanosleep(&pause, NULL);
}

static int swap_batch(struct worker *worker, struct batch *batch)
{
    weir_assert(batch->count > 0);
    const struct weir_shared_job *first = batch->job[0];
    char key[KEY_MAX + 1];
    const char *kind = weir_script_algorithm(first->rule.algorithm);
    size_t len = job_key(first, key, kind, NO_WINDOW);
    if (len == 0)
        return WEIR_ENOMEM;
    for (unsigned tries = 0; tries < WEIR_SHARED_SWAPS_MAX; tries++) {
        /* Nothing is charged yet, and the first job's caller has stopped
         * waiting. */
        if (tries > 0 && weir_clock_now() >= first->until)
            break;
        if (!connection(worker, job_time_left(first)))
            return WEIR_ENOMEM;
        int result = try_swap(worker, batch, key, len);
        if (result != 1)
            return result;
        weir_job_answered(first);
        weir_fetch_add(&worker->server->lane->shared->swaps_lost, 1u);
        pause_after_swap(worker, tries);
    }
    return WEIR_EFULL;
}

static void swap_all(struct worker *worker, struct batch *batch)
{
    int result = swap_batch(worker, batch);
    if (result == 0)
        weir_job_answered(batch->job[0]);
    for (size_t i = 0; i < batch->count; i++)
        weir_job_finish(batch->job[i], result, &batch->answer[i]);
}

/* ---- The threads ---- */

/* The thread of a key. */
static unsigned worker_of(const struct weir_shared_job *job)
{
    struct weir_text key = { job->key, job->key_len };
    return (unsigned)(weir_hash(key, 1) % WEIR_SHARED_WORKERS);
}

/* Whether the job can be made together with the first one of a batch. */
static bool goes_with(const struct batch *batch,
                      const struct weir_shared_job *job)
{
    const struct weir_shared_job *first = batch->job[0];
    return batch->count < BATCH_MAX &&
           job->rule.algorithm != WEIR_FIXED_WINDOW &&
           job->key_len == first->key_len &&
           memcmp(job->key, first->key, job->key_len) == 0 &&
           memcmp(&job->rule, &first->rule, sizeof(job->rule)) == 0;
}

/* Takes this worker's jobs out of the lane; under the lane's mutex. */
static void gather_batch(const struct worker *worker, struct batch *batch)
{
    struct weir_lane *lane = worker->server->lane;
    struct weir_shared_job **link = &lane->jobs;
    batch->count = 0;
    while (*link) {
        struct weir_shared_job *job = *link;
        bool take = batch->count == 0 ? worker_of(job) == worker->index
                                      : goes_with(batch, job);
        if (take) {
            weir_assert(batch->count < BATCH_MAX);
            batch->job[batch->count++] = job;
            *link = job->next;
        } else {
            link = &job->next;
        }
    }
    lane->jobs_end = link;
}

/* Under the lane's mutex: sleeps until there may be work. */
static void sleep_on(struct worker *worker, struct weir_lane *lane)
{
    if (worker->index != 0 || lane->state == WEIR_LANE_UP) {
        pthread_cond_wait(&worker->wake, &lane->mutex);
        return;
    }
    struct timespec until = weir_timespec_of(worker->probe_at);
    pthread_cond_timedwait(&worker->wake, &lane->mutex, &until);
}

static bool probe_is_due(const struct worker *worker,
                         const struct weir_lane *lane)
{
    return worker->index == 0 && lane->state != WEIR_LANE_UP &&
           weir_clock_now() >= worker->probe_at;
}

/* Waits for work; false: stop. An empty batch: a probe is due. */
static bool next_batch(struct worker *worker, struct batch *batch)
{
    struct weir_lane *lane = worker->server->lane;
    pthread_mutex_lock(&lane->mutex);
    for (;;) {
        batch->count = 0;
        if (lane->stop || probe_is_due(worker, lane))
            break;
        /* While the lane is NEW, jobs wait for the first probe. */
        if (lane->state != WEIR_LANE_NEW)
            gather_batch(worker, batch);
        if (batch->count > 0)
            break;
        sleep_on(worker, lane);
    }
    bool stop = lane->stop;
    pthread_mutex_unlock(&lane->mutex);
    return !stop;
}

static void wake_memcached(struct weir_lane *lane,
                           const struct weir_shared_job *job)
{
    struct server *server = lane->own;
    pthread_mutex_lock(&lane->mutex);
    bool down = lane->state == WEIR_LANE_DOWN;
    for (unsigned i = 0; i < WEIR_SHARED_WORKERS; i++)
        if (!job || worker_of(job) == i)
            pthread_cond_signal(&server->worker[i].wake);
    pthread_mutex_unlock(&lane->mutex);
    if (down)
        weir_job_finish_all(weir_lane_get(lane), WEIR_ECONNECT);
}

/* A timeout before the first answer doesn't open the breaker: that probe had
 * the shortest patience, and no step has waited yet. A step that comes now
 * waits for the next probe, which has the step's patience, or opens the breaker
 * itself. */
static void probe_failed(struct worker *worker, memcached_return_t code)
{
    struct weir_lane *lane = worker->server->lane;
    /* Relaxed: a lane never becomes NEW again. */
    bool is_new = weir_load_relaxed(&lane->state) == WEIR_LANE_NEW;
    if (is_new && code == MEMCACHED_TIMEOUT)
        weir_lane_note_error(lane, "no answer in time");
    else
        weir_lane_down(lane, memcached_strerror(worker->handle, code));
    disconnect(worker);
}

static void probe_server(struct worker *worker)
{
    struct weir_lane *lane = worker->server->lane;
    uint64_t early = weir_rng_below(&worker->rng, WEIR_SHARED_PROBE / 4);
    worker->probe_at = weir_clock_now() + WEIR_SHARED_PROBE - early;
    /* Relaxed: an estimate, which each step may change. */
    weir_duration patience = weir_load_relaxed(&lane->patience);
    weir_fetch_add(&worker->server->downs, 1u);
    memcached_st *handle = connection(worker, patience);
    if (!handle) {
        weir_lane_down(lane, "no memory");
        return;
    }
    static const char key[] = "weir:probe";
    memcached_return_t code = memcached_exist(handle, key, sizeof(key) - 1);
    if (code != MEMCACHED_NOTFOUND && code != MEMCACHED_SUCCESS) {
        probe_failed(worker, code);
        return;
    }
    weir_lane_up(lane);
    wake_memcached(lane, NULL);
}

/* Drops jobs after their deadlines: no caller waits, and they aren't
 * charged. */
static void drop_late(struct batch *batch)
{
    weir_instant now = weir_clock_now();
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (now >= batch->job[i]->until)
            weir_job_finish(batch->job[i], WEIR_ETIMEOUT, NULL);
        else
            batch->job[kept++] = batch->job[i];
    }
    batch->count = kept;
}

static void *run_memcached_worker(void *context)
{
    struct worker *worker = context;
    struct batch batch;
    while (next_batch(worker, &batch)) {
        if (batch.count == 0) {
            probe_server(worker);
            continue;
        }
        drop_late(&batch);
        if (batch.count == 0)
            continue;
        if (batch.job[0]->rule.algorithm == WEIR_FIXED_WINDOW)
            count_job(worker, batch.job[0]);
        else
            swap_all(worker, &batch);
    }
    disconnect(worker);
    return NULL;
}

/* ---- Life ---- */

static void close_server(struct weir_lane *lane)
{
    struct server *server = lane->own;
    if (!server)
        return;
    pthread_mutex_lock(&lane->mutex);
    lane->stop = true;
    pthread_mutex_unlock(&lane->mutex);
    wake_memcached(lane, NULL);
    for (size_t i = 0; i < WEIR_SHARED_WORKERS; i++) {
        if (server->worker[i].running)
            pthread_join(server->worker[i].thread, NULL);
        pthread_cond_destroy(&server->worker[i].wake);
    }
    free(server);
    lane->own = NULL;
}

static void close_memcached(struct weir_shared *shared)
{
    for (size_t i = 0; i < shared->uri.count; i++)
        close_server(&shared->lane[i]);
}

static int start_worker(struct server *server, unsigned index)
{
    struct worker *worker = &server->worker[index];
    uint64_t seed;
    weir_entropy(&seed, sizeof(seed));
    worker->rng.state = seed;
    int error =
        weir_thread_start(&worker->thread, run_memcached_worker, worker);
    worker->running = error == 0;
    return error ? WEIR_ESYSTEM : 0;
}

static int open_server(struct weir_lane *lane)
{
    struct server *server = calloc(1, sizeof(*server));
    if (!server)
        return WEIR_ENOMEM;
    server->lane = lane;
    lane->own = server;
    for (unsigned i = 0; i < WEIR_SHARED_WORKERS; i++) {
        server->worker[i].server = server;
        server->worker[i].index = i;
        weir_condition_init(&server->worker[i].wake);
    }
    int error = 0;
    for (unsigned i = 0; error == 0 && i < WEIR_SHARED_WORKERS; i++)
        error = start_worker(server, i);
    return error;
}

static int open_memcached(struct weir_shared *shared, struct weir_diag *diag)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < shared->uri.count; i++)
        error = open_server(&shared->lane[i]);
    if (error == 0)
        return 0;
    close_memcached(shared);
    return weir_diag_put(diag, error, NULL);
}

const struct weir_shared_type weir_shared_memcached = {
    .open = open_memcached,
    .wake = wake_memcached,
    .close = close_memcached,
};
