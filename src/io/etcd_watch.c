/* SPDX-License-Identifier: MIT
 * io/etcd_watch.c - a key's value without gaps.
 *
 * Theory of operation. At most two calls are under way: a read, and the watch
 * that follows the first read on a connection. 'next' is the first revision
 * with unknown changes: a read made at revision R sets it to R + 1, a change to
 * the revision after its own. Older answers are dropped, from either call.
 * Every failure leads to another read, after a pause: a read is the only way to
 * start over, at the beginning, after a failure and every half minute.
 *
 * A store that was restored to an older state answers with a lower revision;
 * then the watch starts from nothing. */

#include "io/etcd_watch.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/rng.h"
#include "io/clock.h"

#define BACKOFF_FIRST (100 * 1000000ull)
#define BACKOFF_MOST (5 * WEIR_SECOND)

struct weir_etcd_watch {
    struct weir_etcd_watch_options options;
    char key[WEIR_ETCD_KEY_MAX + 1];
    struct weir_etcd *etcd; /* owned, as the next */
    struct event *timer;    /* until the next read */
    struct weir_rng rng;
    weir_duration backoff;
    bool reading; /* a call is under way */
    bool watching;
    int64_t next;     /* revision; 0: no value known yet */
    int64_t reported; /* revision of the value reported last; 0: none */
    bool was_found;
    uint64_t reported_hash;
    uint64_t trouble; /* hash of the trouble reported last; 0: none */
    bool is_closing;
};

static void read_soon(struct weir_etcd_watch *watch, weir_duration delay)
{
    struct timeval time = weir_timeval_of(delay);
    (void)evtimer_add(watch->timer, &time);
}

static void read_after_pause(struct weir_etcd_watch *watch)
{
    read_soon(watch, watch->backoff / 2 +
                         weir_rng_below(&watch->rng, watch->backoff / 2));
    watch->backoff =
        watch->backoff * 2 < BACKOFF_MOST ? watch->backoff * 2 : BACKOFF_MOST;
}

/* Reported once for equal 'what': several members with the same trouble take
 * turns. */
static void note_watch_troubled(struct weir_etcd_watch *watch, const char *what,
                                const char *why)
{
    uint64_t trouble = weir_hash(weir_text_of(what), 1) | 1;
    bool is_news = watch->trouble != trouble;
    watch->trouble = trouble;
    if (is_news)
        watch->options.on_trouble(watch->options.context, why);
}

static void note_watch_well(struct weir_etcd_watch *watch)
{
    bool is_news = watch->trouble != 0;
    watch->trouble = 0;
    watch->backoff = BACKOFF_FIRST;
    if (is_news)
        watch->options.on_trouble(watch->options.context, NULL);
}

/* 'revision': of the change that made the value. In a restored store the same
 * revision may stand for another change. */
static void report_value(struct weir_etcd_watch *watch,
                         const struct weir_etcd_answer *answer,
                         int64_t revision)
{
    uint64_t hash = weir_hash(answer->value, 1);
    bool is_known = watch->reported > 0 && watch->was_found == answer->found &&
                    (!answer->found || (watch->reported == revision &&
                                        watch->reported_hash == hash));
    if (is_known)
        return;
    watch->reported = revision;
    watch->reported_hash = hash;
    watch->was_found = answer->found;
    struct weir_etcd_value value = {
        .found = answer->found,
        .bytes = answer->value,
        .revision = revision,
    };
    watch->options.on_value(watch->options.context, &value);
}

/* Handles a failed call; on_watch_down() reports the connection's own
 * troubles. A member that is cut off from the majority can be reached, and
 * answers that it is unavailable. */
static void fail_watch(struct weir_etcd_watch *watch,
                       const struct weir_etcd_outcome *outcome)
{
    if (!weir_etcd_is_up(watch->etcd))
        return;
    char text[1400]; /* endpoint, key, message, advice; a long text is cut */
    snprintf(text, sizeof text, "etcd %s doesn't return the key %s: %s%s",
             weir_etcd_endpoint(watch->etcd), watch->key, outcome->message,
             weir_etcd_advice(outcome->status));
    note_watch_troubled(watch, outcome->message, text);
}

/* ---- The watch ---- */

static void on_watch_change(void *context,
                            const struct weir_etcd_outcome *outcome)
{
    struct weir_etcd_watch *watch = context;
    if (watch->is_closing)
        return;
    const struct weir_etcd_answer *answer = outcome->answer;
    if (answer && answer->changes > 0 && answer->revision >= watch->next) {
        watch->next = answer->revision + 1;
        report_value(watch, answer, answer->revision);
    }
    if (!outcome->is_over)
        return;
    watch->watching = false;
    /* If the server is unavailable, the next read reports it. */
    if (!answer && outcome->status != WEIR_GRPC_UNAVAILABLE)
        fail_watch(watch, outcome);
    read_after_pause(watch);
}

static void begin_watch(struct weir_etcd_watch *watch)
{
    weir_assert(!watch->watching);
    struct weir_etcd_call call = {
        .ask = { .type = WEIR_ETCD_WATCH,
                 .key = weir_text_of(watch->key),
                 .revision = watch->next },
        .patience = WEIR_ETCD_WATCH_PATIENCE,
        .on_outcome = on_watch_change,
        .context = watch,
    };
    watch->watching = weir_etcd_call(watch->etcd, &call) == WEIR_OK;
    if (!watch->watching)
        read_after_pause(watch);
}

/* ---- The read ---- */

static void take_read(struct weir_etcd_watch *watch,
                      const struct weir_etcd_answer *answer)
{
    if (answer->revision + 1 < watch->next && !watch->watching)
        watch->next = watch->reported = 0; /* a store in an older state */
    if (answer->revision + 1 >= watch->next) {
        watch->next = answer->revision + 1;
        report_value(watch, answer,
                     answer->found ? answer->mod_revision : answer->revision);
    }
    note_watch_well(watch);
    read_soon(watch, WEIR_ETCD_WATCH_CHECK);
    if (!watch->watching)
        begin_watch(watch);
}

static void on_read(void *context, const struct weir_etcd_outcome *outcome)
{
    struct weir_etcd_watch *watch = context;
    if (watch->is_closing)
        return;
    weir_assert(watch->reading);
    watch->reading = false;
    if (outcome->answer) {
        take_read(watch, outcome->answer);
        return;
    }
    fail_watch(watch, outcome);
    read_after_pause(watch);
    if (!weir_etcd_is_up(watch->etcd))
        return;
    if (outcome->status == WEIR_GRPC_DEADLINE_EXCEEDED)
        weir_etcd_leave(watch->etcd, "no answer in time");
    if (outcome->status == WEIR_GRPC_UNAVAILABLE)
        weir_etcd_leave(watch->etcd, "it has no etcd behind it");
}

static void on_watch_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_etcd_watch *watch = context;
    if (watch->reading)
        return;
    struct weir_etcd_call call = {
        .ask = { .type = WEIR_ETCD_READ, .key = weir_text_of(watch->key) },
        .patience = WEIR_ETCD_WATCH_PATIENCE,
        .on_outcome = on_read,
        .context = watch,
    };
    int error = weir_etcd_call(watch->etcd, &call);
    watch->reading = error == WEIR_OK;
    if (error < 0 && error != WEIR_ECLOSED)
        read_after_pause(watch);
}

/* ---- The connection ---- */

static void on_watch_up(void *context)
{
    struct weir_etcd_watch *watch = context;
    read_soon(watch, 0);
}

static void on_watch_down(void *context, const char *why)
{
    struct weir_etcd_watch *watch = context;
    if (why)
        note_watch_troubled(watch, why, why);
}

static void on_watch_file(void *context, const char *why)
{
    struct weir_etcd_watch *watch = context;
    watch->options.on_trouble(watch->options.context, why);
}

/* ---- Life ---- */

static int make_watch_parts(struct weir_etcd_watch *watch,
                            struct weir_diag *diag)
{
    const struct weir_etcd_watch_options *options = &watch->options;
    watch->timer = evtimer_new(options->base, on_watch_timer, watch);
    if (!watch->timer)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    struct weir_etcd_options of_etcd = {
        .base = options->base,
        .endpoints = options->endpoints,
        .count = options->count,
        .login = options->login,
        .handler = { .context = watch,
                     .on_up = on_watch_up,
                     .on_down = on_watch_down,
                     .on_file = on_watch_file },
    };
    return weir_etcd_new(&of_etcd, &watch->etcd, diag);
}

int weir_etcd_watch_new(const struct weir_etcd_watch_options *options,
                        struct weir_etcd_watch **out, struct weir_diag *diag)
{
    size_t len = options->key ? strlen(options->key) : 0;
    if (len == 0 || len > WEIR_ETCD_KEY_MAX)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "a key of etcd has 1 to 512 bytes here");
    struct weir_etcd_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    watch->options = *options;
    watch->backoff = BACKOFF_FIRST;
    memcpy(watch->key, options->key, len);
    weir_entropy(&watch->rng, sizeof watch->rng);
    int error = make_watch_parts(watch, diag);
    if (error < 0) {
        weir_etcd_watch_free(&watch);
        return error;
    }
    /* The caller's texts aren't used after this call. */
    watch->options.key = NULL;
    watch->options.endpoints = NULL;
    watch->options.login = (struct weir_login_options){ NULL };
    *out = watch;
    return 0;
}

void weir_etcd_watch_read(struct weir_etcd_watch *watch)
{
    read_soon(watch, 0);
}

void weir_etcd_watch_free(struct weir_etcd_watch **watch)
{
    struct weir_etcd_watch *self = *watch;
    if (!self)
        return;
    *watch = NULL;
    self->is_closing = true;
    weir_etcd_free(&self->etcd);
    if (self->timer)
        event_free(self->timer);
    free(self);
}
