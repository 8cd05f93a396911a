/* SPDX-License-Identifier: MIT
 * server/root_loop.c - the loop of the root node.
 *
 * The root's messages are sent at the end of a turn of the event loop, however
 * many messages came in it: so all messages to a peer leave in one write.
 *
 * Once a second the loop measures its utilization: the share of the CPU time
 * that its thread could have had. On an overloaded machine, too, the root
 * doesn't look idle. The root then asks limiters to report less often, and the
 * log has a line of it. */

#include "server/root_loop.h"

#include <event2/event.h>
#include <stdlib.h>

#include "io/clock.h"

struct weir_root_loop {
    struct weir_root_loop_options options;
    struct weir_mastership *mastership; /* borrowed; NULL: none */
    weir_root_send_fn *send;
    void *context;
    struct event *timer;            /* owned: the root's deadline */
    struct event *turn;             /* owned: the end of this turn */
    weir_instant measured_at;       /* the last utilization; 0: never … */
    struct weir_thread_time thread; /* … and the CPU time used until then */
};

/* ---- Utilization ---- */

static void log_report_backoff(const struct weir_root_loop *loop,
                               weir_duration before)
{
    struct weir_root_stats stats;
    weir_root_stats(loop->options.root, &stats);
    unsigned percent = stats.busy_ppm / 10000;
    unsigned ms = (unsigned)(stats.report_backoff / WEIR_MILLISECOND);
    if (stats.report_backoff > before)
        weir_log_limited(
            loop->options.log, WEIR_LOG_LOAD, WEIR_LOG_WARNING,
            "busy for %u %% of the time: limiters are asked to report "
            "no more often than every %u ms",
            percent, ms);
    else if (stats.report_backoff == 0 && before > 0)
        weir_log_limited(
            loop->options.log, WEIR_LOG_LOAD, WEIR_LOG_INFO,
            "busy for %u %% of the time: limiters report as set again",
            percent);
}

/* The share of the CPU time that this thread could have had which it used. Time
 * in which it waits for a CPU counts as neither work nor idleness. */
static uint32_t busy_share(const struct weir_thread_time *before,
                           const struct weir_thread_time *after,
                           weir_duration span)
{
    weir_duration ran = after->ran - before->ran;
    weir_duration waited = after->waited - before->waited;
    weir_duration had = span > waited ? span - waited : 0;
    return ran < had ? (uint32_t)(ran * 1000000 / had) : 1000000;
}

static void measure_utilization(struct weir_root_loop *loop, weir_instant now)
{
    weir_duration span = now - loop->measured_at;
    if (loop->measured_at > 0 && span < WEIR_SECOND)
        return;
    struct weir_thread_time thread = weir_clock_thread();
    struct weir_root_stats before;
    weir_root_stats(loop->options.root, &before);
    if (loop->measured_at > 0) {
        weir_root_busy(loop->options.root,
                       busy_share(&loop->thread, &thread, span), now);
        log_report_backoff(loop, before.report_backoff);
    }
    loop->measured_at = now;
    loop->thread = thread;
}

/* ---- Turns ---- */

static void set_root_timer(struct weir_root_loop *loop, weir_instant now)
{
    weir_instant at = loop->options.region
                          ? weir_region_deadline(loop->options.region, now)
                          : weir_root_deadline(loop->options.root, now);
    if (at == WEIR_NEVER) {
        event_del(loop->timer);
        return;
    }
    weir_duration wait = at > now ? at - now : 0;
    struct timeval in = weir_timeval_of(wait);
    /* A wait of less than a microsecond is a microsecond: don't spin. */
    if (wait > 0 && in.tv_sec == 0 && in.tv_usec == 0)
        in.tv_usec = 1;
    event_add(loop->timer, &in);
}

/* A grant that this root made as master isn't sent when the root may no longer
 * be master: the lease holder will ask again. */
static bool may_send(struct weir_root_loop *loop,
                     const struct weir_message *message)
{
    bool gives =
        message->type == WEIR_MESSAGE_GRANTS && message->grants.count > 0;
    return !gives || !loop->mastership ||
           weir_mastership_holds(loop->mastership);
}

static void run_turn(struct weir_root_loop *loop)
{
    weir_instant now = weir_clock_now();
    measure_utilization(loop, now);
    weir_root_set_wall(loop->options.root, weir_clock_wall_offset(), false);
    if (loop->options.region)
        weir_region_tick(loop->options.region, now);
    else if (weir_root_deadline(loop->options.root, now) <= now)
        weir_root_tick(loop->options.root, now);
    uint32_t peer;
    struct weir_message message;
    /* A fill is as old as the age in its message says: the clock is read for
     * each, because a slow root may need seconds for all of them. */
    while (
        weir_root_next(loop->options.root, &peer, &message, weir_clock_now())) {
        if (loop->send && may_send(loop, &message))
            loop->send(loop->context, peer, &message);
    }
    weir_mastership_keep(loop->mastership);
    if (loop->options.upstream)
        weir_upstream_flush(loop->options.upstream, now);
    set_root_timer(loop, now);
}

static void on_turn_due(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    run_turn(context);
}

void weir_root_loop_kick(struct weir_root_loop *loop)
{
    event_active(loop->turn, EV_TIMEOUT, 0);
}

/* ---- Life ---- */

struct weir_root_loop *weir_root_loop_new(
    const struct weir_root_loop_options *options)
{
    weir_assert(options->base && options->root && options->log);
    weir_assert(!options->region == !options->upstream);
    struct weir_root_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return NULL;
    loop->options = *options;
    loop->timer = event_new(options->base, -1, 0, on_turn_due, loop);
    loop->turn = event_new(options->base, -1, 0, on_turn_due, loop);
    if (!loop->timer || !loop->turn)
        weir_root_loop_free(&loop);
    return loop;
}

void weir_root_loop_free(struct weir_root_loop **loop)
{
    if (!*loop)
        return;
    if ((*loop)->timer)
        event_free((*loop)->timer);
    if ((*loop)->turn)
        event_free((*loop)->turn);
    free(*loop);
    *loop = NULL;
}

void weir_root_loop_set_sender(struct weir_root_loop *loop,
                               weir_root_send_fn *send, void *context)
{
    weir_assert(!send || !loop->send); /* one at a time */
    loop->send = send;
    loop->context = context;
}

void weir_root_loop_set_mastership(struct weir_root_loop *loop,
                                   struct weir_mastership *mastership)
{
    weir_assert(!mastership || !loop->mastership);
    loop->mastership = mastership;
}
