/* SPDX-License-Identifier: MIT
 * store/shared_redis.c - Redis or Valkey: one connection, one script call per
 * step.
 *
 * Theory of operation. One thread, one loop, one connection. Steps that come
 * while the loop is busy are sent together: more callers mean fewer writes per
 * step. The server answers in order, so the expected replies are a list, and
 * the next reply belongs to its head.
 *
 *     lane --> EVALSHA id ... --> [expected: step, step, ping] <-- replies
 *
 * A connection begins with AUTH and SELECT, if needed, and a PING; when that is
 * answered, the lane is up. A script that the server has lost (NOSCRIPT) is
 * sent completely, with the step.
 *
 * When a step's deadline has passed in silence the lane is down (shared.c), but
 * the connection stays open, since its answers may only be late. Once no reply
 * is expected a PING is sent, and if it is answered within the lane's patience,
 * the lane is up. If replies are still missing at a probe, or the connection is
 * lost, another one is made, as often as necessary.
 *
 * The transport is io/stream.h (so is TLS); hiredis formats commands and reads
 * replies, into a flat struct of fixed size: a larger reply is refused,
 * whatever length the server announces.
 *
 * Cluster: all keys of a bucket share a hash tag, but a redirection (MOVED,
 * ASK) isn't followed. It names the key's server; the lane goes down with that
 * text as the reason, and on_stale decides. Name that server in the quota, or a
 * proxy. */

#include <errno.h>
#include <event2/event.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/atomic.h"
#include "core/base/rng.h"
#include "io/clock.h"
#include "io/process.h"
#include "store/shared_internal.h"
#include "store/shared_script.h"

#define REPLY_BYTES_MAX (64 * 1024) /* of an incomplete reply */
#define CONNECT_MAX WEIR_SECOND
#define COMMAND_WORDS_MAX (3 + WEIR_SCRIPT_KEYS_MAX + WEIR_SCRIPT_ARGUMENTS_MAX)

/* The type of an array's length differs between hiredis 0.14 and 1.0. */
#if HIREDIS_MAJOR >= 1
typedef size_t reader_len;
#else
typedef int reader_len;
#endif

/* A reply: a line of text, or up to WEIR_SCRIPT_ANSWER_LEN integers. */
struct reply {
    int type;
    size_t count;
    int64_t integer[WEIR_SCRIPT_ANSWER_LEN];
    char text[160];
};

enum expected_type { EXPECT_GREETING, EXPECT_PING, EXPECT_STEP };

struct expected {
    enum expected_type type;
    struct expected *next;
    struct weir_shared_job *job; /* for a step */
    bool whole;                  /* the script's text was sent with it */
    weir_instant sent_at;
};

struct redis {
    struct weir_lane *lane;
    struct weir_shared *shared;
    int fd; /* owned; wakes the loop */
    pthread_t thread;
    bool running;
    uint32_t woken; /* 'fd' has a byte that isn't read yet */

    /* Used by the thread only. */
    struct event_base *base;    /* owned */
    struct event *wake;         /* owned */
    struct event *probe;        /* owned */
    struct weir_stream *stream; /* owned; NULL: not connecting */
    bool open;                  /* the stream is open */
    bool ready;                 /* the greeting is answered */
    bool slow;           /* the last PING was slow: none until the next probe */
    redisReader *reader; /* owned; of this connection */
    struct reply reply;  /* being read */
    size_t unread;       /* bytes after the last complete reply */
    struct expected *expected, **expected_end;
    struct weir_script script[WEIR_PERMITS + 1]; /* by algorithm */
    struct weir_rng rng;
    bool stop;
};

/* ---- Replies, as hiredis reads them ---- */

/* The reply that all objects of one task belong to; NULL: it isn't one of ours,
 * and hiredis gives up. */
static struct reply *redis_reply_of(const redisReadTask *task)
{
    struct reply *reply = task->privdata;
    if (!task->parent) {
        reply->type = task->type;
        reply->count = 0;
        reply->text[0] = '\0';
        return reply;
    }
    return task->parent->parent ? NULL : reply;
}

static void *on_text(const redisReadTask *task, char *bytes, size_t len)
{
    struct reply *reply = redis_reply_of(task);
    if (!reply || task->parent)
        return NULL;
    snprintf(reply->text, sizeof(reply->text), "%.*s",
             (int)(len < sizeof(reply->text) ? len : sizeof(reply->text)),
             bytes);
    return reply;
}

static void *on_array(const redisReadTask *task, reader_len len)
{
    struct reply *reply = redis_reply_of(task);
    return !task->parent && len <= WEIR_SCRIPT_ANSWER_LEN ? reply : NULL;
}

static void *on_integer(const redisReadTask *task, long long integer)
{
    struct reply *reply = redis_reply_of(task);
    if (!reply || reply->count == WEIR_SCRIPT_ANSWER_LEN)
        return NULL;
    reply->integer[reply->count++] = integer;
    return reply;
}

static void *on_nil(const redisReadTask *task)
{
    return task->parent ? NULL : redis_reply_of(task);
}

static void on_free(void *reply)
{
    (void)reply; /* part of struct redis */
}

static redisReplyObjectFunctions reader_functions = {
    .createString = on_text,
    .createArray = on_array,
    .createInteger = on_integer,
    .createNil = on_nil,
    .freeObject = on_free,
};

/* ---- Expected replies ---- */

static bool expect_reply(struct redis *redis, enum expected_type type,
                         struct weir_shared_job *job, bool whole)
{
    struct expected *expected = calloc(1, sizeof(*expected));
    if (!expected)
        return false;
    *expected = (struct expected){
        .type = type, .job = job, .whole = whole, .sent_at = weir_clock_now()
    };
    *redis->expected_end = expected;
    redis->expected_end = &expected->next;
    return true;
}

static void forget_expected(struct redis *redis)
{
    struct expected *expected = redis->expected;
    weir_assert(expected);
    redis->expected = expected->next;
    if (!redis->expected)
        redis->expected_end = &redis->expected;
    free(expected);
}

/* Whether these steps were charged is unknown. */
static void forget_all_expected(struct redis *redis, int result)
{
    while (redis->expected) {
        if (redis->expected->job)
            weir_job_finish(redis->expected->job, result, NULL);
        forget_expected(redis);
    }
}

/* Ends their callers' waits; the answers may still come. */
static void give_up_waiting(struct redis *redis)
{
    for (struct expected *e = redis->expected; e; e = e->next) {
        if (e->job)
            weir_job_finish(e->job, WEIR_ETIMEOUT, NULL);
        e->job = NULL;
    }
}

/* ---- The connection ---- */

static void close_connection(struct redis *redis, int result)
{
    weir_stream_close(&redis->stream, false);
    if (redis->reader)
        redisReaderFree(redis->reader);
    redis->reader = NULL;
    redis->open = false;
    redis->ready = false;
    redis->slow = false;
    redis->unread = 0;
    forget_all_expected(redis, result);
}

/* Randomly up to a quarter early, so that a fleet's probes don't
 * synchronise. */
static void probe_later(struct redis *redis)
{
    uint64_t early = weir_rng_next(&redis->rng) % (WEIR_SHARED_PROBE / 4);
    weir_duration pause = WEIR_SHARED_PROBE - early;
    struct timeval after = { .tv_usec = (suseconds_t)(pause / 1000) };
    evtimer_add(redis->probe, &after);
}

/* The connection is unusable: closes it and connects again later. */
static void drop_redis_connection(struct redis *redis, int result,
                                  const char *why)
{
    weir_lane_down(redis->lane, why);
    close_connection(redis, result);
    probe_later(redis);
}

static int send_words(struct redis *redis, int count, const char **words,
                      const size_t *lens)
{
    char *command = NULL;
    int len = redisFormatCommandArgv(&command, count, words, lens);
    if (len < 0)
        return WEIR_ENOMEM;
    int error = weir_stream_write(redis->stream, command, (size_t)len);
    explicit_bzero(command, (size_t)len); /* it may be AUTH */
    free(command);
    return error;
}

/* Sends a command of plain words, not a step. */
static bool send_plain(struct redis *redis, enum expected_type type,
                       const char *first, const char *second, const char *third)
{
    const char *words[] = { first, second, third };
    int count = third ? 3 : second ? 2 : 1;
    return send_words(redis, count, words, NULL) == 0 &&
           expect_reply(redis, type, NULL, false);
}

static bool greet_redis(struct redis *redis,
                        const struct weir_shared_secret *secret)
{
    char database[16];
    snprintf(database, sizeof(database), "%u", redis->shared->uri.database);
    bool sent = true;
    if (*secret->user)
        sent = send_plain(redis, EXPECT_GREETING, "AUTH", secret->user,
                          secret->password);
    else if (*secret->password)
        sent =
            send_plain(redis, EXPECT_GREETING, "AUTH", secret->password, NULL);
    if (redis->shared->uri.database)
        sent = sent &&
               send_plain(redis, EXPECT_GREETING, "SELECT", database, NULL);
    return sent && send_plain(redis, EXPECT_PING, "PING", NULL, NULL);
}

static void on_redis_open(void *context, struct weir_stream *stream)
{
    struct redis *redis = context;
    (void)stream;
    weir_assert(!redis->open && !redis->ready);
    redis->open = true;
    struct weir_diag diag = { 0 };
    struct weir_shared_secret secret;
    int error = weir_shared_secret_read(redis->shared->secrets_file,
                                        &redis->lane->address,
                                        redis->shared->uri.tls, &secret, &diag);
    if (error < 0) {
        drop_redis_connection(redis, WEIR_ECONNECT, diag.text);
        return;
    }
    if (!greet_redis(redis, &secret))
        drop_redis_connection(redis, WEIR_ENOMEM, "no memory");
    explicit_bzero(&secret, sizeof(secret));
}

/* ---- Steps ---- */

static int send_step(struct redis *redis, struct weir_shared_job *job,
                     bool whole)
{
    struct weir_script_call call;
    struct weir_text name = { job->key, job->key_len };
    weir_script_call(&call, redis->shared->prefix, name, &job->rule, &job->ask);
    const struct weir_script *script = &redis->script[job->rule.algorithm];
    char keys[8];
    snprintf(keys, sizeof(keys), "%zu", call.keys);
    const char *words[COMMAND_WORDS_MAX] = { whole ? "EVAL" : "EVALSHA",
                                             whole ? script->text : script->id,
                                             keys };
    size_t lens[COMMAND_WORDS_MAX];
    size_t count = 3;
    for (size_t i = 0; i < count; i++)
        lens[i] = strlen(words[i]);
    for (size_t i = 0; i < call.keys; i++, count++) {
        words[count] = call.key[i];
        lens[count] = call.key_len[i];
    }
    for (size_t i = 0; i < call.arguments; i++, count++) {
        words[count] = call.argument[i];
        lens[count] = strlen(call.argument[i]);
    }
    weir_assert(count <= COMMAND_WORDS_MAX);
    return send_words(redis, (int)count, words, lens);
}

static void submit(struct redis *redis, struct weir_shared_job *job, bool whole)
{
    weir_assert(redis->ready && redis->stream);
    /* The caller has stopped waiting: the step isn't sent, so it isn't charged
     * and expects no answer. */
    if (weir_clock_now() >= job->until) {
        if (!redis->expected)
            weir_job_answered(job);
        weir_job_finish(job, WEIR_ETIMEOUT, NULL);
        return;
    }
    int error = send_step(redis, job, whole);
    if (error == 0 && !expect_reply(redis, EXPECT_STEP, job, whole)) {
        /* Otherwise answers couldn't be matched to steps. */
        weir_job_finish(job, WEIR_ENOMEM, NULL);
        drop_redis_connection(redis, WEIR_ENOMEM, "no memory");
        return;
    }
    if (error < 0)
        weir_job_finish(job, error, NULL);
}

static void submit_all(struct redis *redis)
{
    struct weir_shared_job *jobs = weir_lane_get(redis->lane);
    while (jobs) {
        struct weir_shared_job *job = jobs;
        jobs = job->next;
        if (redis->ready)
            submit(redis, job, false);
        else
            weir_job_finish(job, WEIR_ECONNECT, NULL);
    }
}

/* ---- Answers ---- */

static bool error_begins_with(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* Whether an error concerns the whole server, so that the next step would fail
 * too. */
static bool is_of_server(const char *error)
{
    static const char *const words[] = {
        "LOADING",
        "READONLY",
        "MOVED",
        "ASK",
        "CLUSTERDOWN",
        "MASTERDOWN",
        "NOAUTH",
        "WRONGPASS",
        "NOPERM",
        "OOM",
        "MISCONF",
        "NOREPLICAS",
        "TRYAGAIN",
        "BUSY",
        "ERR unknown command",
        "ERR max number",
        "ERR invalid password",
        "ERR AUTH",
        "ERR Client sent AUTH",
        "ERR DB index",
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(words); i++)
        if (error_begins_with(error, words[i]))
            return true;
    return false;
}

/* Advice to the operator. */
static const char *advice_on_error(const char *error)
{
    if (error_begins_with(error, "MOVED") || error_begins_with(error, "ASK"))
        return "redirections of a cluster aren't followed: ";
    if (error_begins_with(error, "NOAUTH") ||
        error_begins_with(error, "WRONGPASS") ||
        error_begins_with(error, "ERR invalid password") ||
        error_begins_with(error, "ERR AUTH"))
        return "see the secrets file: ";
    return "";
}

/* A server repeats an unknown command with its arguments, one of which may be a
 * password. The reason for the lane's state is shown to people, so it must not
 * contain that. */
static void fail_server(struct redis *redis, const char *error)
{
    char why[200];
    const char *quoted = strstr(error, " with args");
    int len = quoted ? (int)(quoted - error) : 150;
    while (quoted && len > 0 && error[len - 1] == ',')
        len--;
    snprintf(why, sizeof(why), "%s%.*s", advice_on_error(error), len, error);
    drop_redis_connection(redis, WEIR_EPROTOCOL, why);
}

static void finish_step(struct redis *redis, struct weir_shared_job *job)
{
    const struct reply *reply = &redis->reply;
    struct weir_algorithm_answer answer;
    int result = WEIR_EPROTOCOL;
    if (reply->type == REDIS_REPLY_ARRAY)
        result = weir_script_answer(reply->integer, reply->count, &answer);
    if (result < 0)
        weir_lane_note_error(redis->lane, *reply->text
                                              ? reply->text
                                              : "this is no answer to a step");
    weir_job_finish(job, result, &answer);
}

static void on_step(struct redis *redis)
{
    weir_assert(redis->expected && redis->expected->type == EXPECT_STEP);
    struct weir_shared_job *job = redis->expected->job;
    bool whole = redis->expected->whole;
    const struct reply *reply = &redis->reply;
    bool failed = reply->type == REDIS_REPLY_ERROR;
    if (failed && is_of_server(reply->text)) {
        fail_server(redis, reply->text);
        return;
    }
    forget_expected(redis);
    if (!job)
        return;
    weir_job_answered(job);
    if (failed && !whole && error_begins_with(reply->text, "NOSCRIPT")) {
        weir_fetch_add(&redis->shared->reloads, 1u);
        submit(redis, job, true);
        return;
    }
    finish_step(redis, job);
}

static void on_ping(struct redis *redis)
{
    weir_assert(redis->expected && redis->expected->type == EXPECT_PING);
    weir_duration took = weir_clock_now() - redis->expected->sent_at;
    bool first = !redis->ready;
    forget_expected(redis);
    redis->ready = true;
    /* Relaxed: an estimate, which each step may change. */
    weir_duration patience = weir_load_relaxed(&redis->lane->patience);
    redis->slow = !first && took > patience;
    if (!redis->slow)
        weir_lane_up(redis->lane);
    submit_all(redis);
}

/* Handles a reply; false: the connection is gone. */
static bool on_reply(struct redis *redis)
{
    const struct reply *reply = &redis->reply;
    if (!redis->expected) {
        drop_redis_connection(redis, WEIR_EPROTOCOL, "an answer to nothing");
        return false;
    }
    switch (redis->expected->type) {
    case EXPECT_GREETING:
    case EXPECT_PING:
        if (reply->type != REDIS_REPLY_STATUS)
            fail_server(redis, *reply->text ? reply->text : "this is no Redis");
        else if (redis->expected->type == EXPECT_PING)
            on_ping(redis);
        else
            forget_expected(redis);
        break;
    case EXPECT_STEP:
        on_step(redis);
        break;
    }
    return redis->stream != NULL;
}

static bool is_down(struct redis *redis)
{
    return weir_load_relaxed(&redis->lane->state) == WEIR_LANE_DOWN;
}

/* All late replies have come: checks whether the server is quick again. */
static void ping_if_quiet(struct redis *redis)
{
    if (redis->ready && !redis->slow && is_down(redis) && !redis->expected &&
        !send_plain(redis, EXPECT_PING, "PING", NULL, NULL))
        drop_redis_connection(redis, WEIR_ENOMEM, "no memory");
}

static void on_redis_bytes(void *context, struct weir_stream *stream,
                           const void *bytes, size_t len)
{
    struct redis *redis = context;
    (void)stream;
    redis->unread += len;
    int error = redisReaderFeed(redis->reader, bytes, len);
    for (;;) {
        void *reply = NULL;
        if (error == REDIS_OK)
            error = redisReaderGetReply(redis->reader, &reply);
        if (error != REDIS_OK || (!reply && redis->unread > REPLY_BYTES_MAX)) {
            drop_redis_connection(redis, WEIR_EPROTOCOL,
                                  "this is no answer of Redis");
            return;
        }
        if (!reply)
            break;
        redis->unread = redis->reader->len - redis->reader->pos;
        if (!on_reply(redis))
            return;
    }
    ping_if_quiet(redis);
}

static void on_redis_lost(void *context, struct weir_stream *stream,
                          const char *why)
{
    struct redis *redis = context;
    (void)stream;
    drop_redis_connection(redis, WEIR_ECONNECT, why);
}

static void connect_again(struct redis *redis)
{
    struct weir_stream_handler handler = { .context = redis,
                                           .on_open = on_redis_open,
                                           .on_bytes = on_redis_bytes,
                                           .on_lost = on_redis_lost };
    weir_assert(!redis->stream && !redis->reader && !redis->expected);
    redis->reader = redisReaderCreateWithFunctions(&reader_functions);
    if (redis->reader)
        redis->stream =
            weir_stream_connect(redis->base, &redis->lane->address,
                                redis->shared->tls, CONNECT_MAX, &handler);
    if (!redis->stream) {
        drop_redis_connection(redis, WEIR_ENOMEM, "no memory");
        return;
    }
    redis->reader->privdata = &redis->reply;
    probe_later(redis);
}

/* ---- The loop ---- */

/* Nothing to do while the lane is up. A connection that hasn't answered since
 * the last probe is closed, except while it is being made. */
static void on_probe(evutil_socket_t fd, short what, void *context)
{
    struct redis *redis = context;
    (void)fd;
    (void)what;
    if (!redis->stream) {
        connect_again(redis);
        return;
    }
    weir_instant now = weir_clock_now();
    bool silent = redis->expected &&
                  now - redis->expected->sent_at > WEIR_SHARED_PROBE / 2;
    if (silent && (is_down(redis) || !redis->ready)) {
        weir_lane_down(redis->lane, "no answer in time");
        close_connection(redis, WEIR_ETIMEOUT);
        connect_again(redis);
        return;
    }
    redis->slow = false;
    ping_if_quiet(redis);
    if (redis->stream)
        probe_later(redis);
}

static void on_wake(evutil_socket_t fd, short what, void *context)
{
    struct redis *redis = context;
    (void)what;
    uint64_t ignored;
    (void)!read((int)fd, &ignored, sizeof(ignored));
    /* Cleared before the lane is read: a later change wakes the loop again. */
    weir_store(&redis->woken, 0u);
    pthread_mutex_lock(&redis->lane->mutex);
    redis->stop = redis->lane->stop;
    pthread_mutex_unlock(&redis->lane->mutex);
    if (redis->stop) {
        event_base_loopbreak(redis->base);
        return;
    }
    if (is_down(redis)) {
        give_up_waiting(redis);
        weir_job_finish_all(weir_lane_get(redis->lane), WEIR_ECONNECT);
    }
    if (redis->ready)
        submit_all(redis);
}

static void *run_redis(void *context)
{
    struct redis *redis = context;
    connect_again(redis);
    event_base_loop(redis->base, EVLOOP_NO_EXIT_ON_EMPTY);
    close_connection(redis, WEIR_ECLOSED);
    return NULL;
}

static void wake_redis(struct weir_lane *lane,
                       const struct weir_shared_job *job)
{
    (void)job;
    struct redis *redis = lane->own;
    if (weir_exchange(&redis->woken, 1u))
        return;
    uint64_t one = 1;
    ssize_t written;
    do
        written = write(redis->fd, &one, sizeof(one));
    while (written < 0 && errno == EINTR);
}

/* ---- Life ---- */

static void redis_free(struct redis *redis)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(redis->script); i++)
        weir_script_fini(&redis->script[i]);
    if (redis->wake)
        event_free(redis->wake);
    if (redis->probe)
        event_free(redis->probe);
    if (redis->base)
        event_base_free(redis->base);
    if (redis->fd >= 0)
        close(redis->fd);
    free(redis);
}

static int init_scripts(struct redis *redis)
{
    for (int i = WEIR_LEAKY; i <= WEIR_PERMITS; i++) {
        int error = weir_script_init(&redis->script[i], (enum weir_algorithm)i,
                                     WEIR_SCRIPT_TIME_SERVER);
        if (error < 0)
            return error;
    }
    return 0;
}

static int init_loop(struct redis *redis)
{
    redis->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    redis->base = event_base_new();
    if (redis->fd < 0 || !redis->base)
        return WEIR_ESYSTEM;
    redis->wake =
        event_new(redis->base, redis->fd, EV_READ | EV_PERSIST, on_wake, redis);
    redis->probe = evtimer_new(redis->base, on_probe, redis);
    if (!redis->wake || !redis->probe || event_add(redis->wake, NULL) != 0)
        return WEIR_ENOMEM;
    return 0;
}

static void close_redis(struct weir_shared *shared)
{
    struct redis *redis = shared->lane[0].own;
    if (redis->running) {
        pthread_mutex_lock(&shared->lane[0].mutex);
        shared->lane[0].stop = true;
        pthread_mutex_unlock(&shared->lane[0].mutex);
        wake_redis(&shared->lane[0], NULL);
        pthread_join(redis->thread, NULL);
    }
    redis_free(redis);
}

static int open_redis(struct weir_shared *shared, struct weir_diag *diag)
{
    struct redis *redis = calloc(1, sizeof(*redis));
    if (!redis)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    redis->fd = -1;
    redis->shared = shared;
    redis->lane = &shared->lane[0];
    redis->lane->own = redis;
    redis->expected_end = &redis->expected;
    uint64_t seed;
    weir_entropy(&seed, sizeof(seed));
    redis->rng.state = seed;
    int error = init_scripts(redis);
    if (error == 0)
        error = init_loop(redis);
    if (error == 0 && weir_thread_start(&redis->thread, run_redis, redis) != 0)
        error = WEIR_ESYSTEM;
    redis->running = error == 0;
    if (error < 0) {
        redis_free(redis);
        return weir_diag_put(diag, error, NULL);
    }
    return 0;
}

const struct weir_shared_type weir_shared_redis = {
    .open = open_redis,
    .wake = wake_redis,
    .close = close_redis,
};
