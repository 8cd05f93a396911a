/* SPDX-License-Identifier: MIT
 * cli/pace_loop.c - one thread, many inputs and outputs, one ppoll().
 *
 *     turn -> grant units -> ppoll: the output is writable -> write
 *
 * A job without a unit, or with a full output, isn't ready, and saves up no
 * more than its burst: a reader that paused for two seconds is behind by two
 * seconds afterwards, and isn't flooded. (A short time, WEIR_PACE_LAG, is
 * forgiven.) The time between a turn and the write doesn't count as blocked: an
 * output is blocked only if ppoll() returned for another reason and didn't
 * report it as writable.
 *
 * Signals come by a descriptor, so that there is no handler, nothing global and
 * no race between a check and sleeping. */

#include "cli/pace.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "io/clock.h"

#define PRIORITY (-15)

/* Without a bar there is nothing to do between events. */
#define IDLE_MAX (3600 * WEIR_SECOND)

struct loop {
    struct weir_pace *pace;
    struct pollfd *polled; /* owned: the signals, then in and out of each job */
    int signals;
    bool hurry; /* a second signal came */
};

/* ---- Turns ---- */

static void update_ready(struct weir_pace *pace, struct weir_pace_job *job,
                         weir_instant now)
{
    bool ready = !pace->stopped && !job->blocked && weir_pace_job_has_unit(job);
    if (pace->pacer)
        weir_pacer_ready(pace->pacer, (uint32_t)(job - pace->jobs), ready, now);
}

/* By the gate: the only job takes all units that it may. */
static void take_by_gate(struct weir_pace *pace, weir_instant now)
{
    weir_assert(pace->count == 1);
    struct weir_pace_job *job = pace->jobs;
    struct weir_pace_gate *gate = pace->gate;
    if (pace->stopped || job->blocked || job->granted > 0)
        return;
    while (now >= gate->next && weir_pace_job_has_unit(job)) {
        uint64_t most = job->unit.by == WEIR_PACE_BYTE
                            ? job->end - job->begin - job->granted
                            : 1;
        uint64_t may = weir_pace_gate_take(gate, most, now);
        if (may == 0)
            return;
        weir_pace_job_grant(job, may);
    }
}

static void take_turns(struct weir_pace *pace, weir_instant now)
{
    struct weir_pacer_turn turn;
    if (pace->gate) {
        take_by_gate(pace, now);
        return;
    }
    for (;;) {
        weir_instant due = weir_pacer_next(pace->pacer);
        if (!weir_pacer_turn(pace->pacer, &turn, now))
            break;
        if (now - due > WEIR_PACE_LAG)
            pace->late += now - due - WEIR_PACE_LAG;
        struct weir_pace_job *job = &pace->jobs[turn.job];
        uint64_t sent = weir_pace_job_grant(job, turn.units);
        weir_assert(sent <= turn.units);
        weir_pacer_spend(pace->pacer, turn.job, sent, now);
        update_ready(pace, job, now);
    }
}

/* ---- The events to wait for ---- */

static void set_polled(struct loop *loop, size_t index)
{
    weir_assert(index < loop->pace->count);
    const struct weir_pace_job *job = &loop->pace->jobs[index];
    struct pollfd *in = &loop->polled[1 + 2 * index];
    struct pollfd *out = in + 1;
    bool reads =
        weir_pace_job_wants(job) && (!loop->pace->stopped || job->open);
    *in = (struct pollfd){ .fd = reads ? job->in : -1, .events = POLLIN };
    /* Even without events, poll() reports that the reader has closed it. */
    *out = (struct pollfd){ .fd = job->done ? -1 : job->out,
                            .events = job->granted > 0 ? POLLOUT : 0 };
}

static weir_instant next_turn(const struct weir_pace *pace)
{
    if (pace->pacer)
        return weir_pacer_next(pace->pacer);
    struct weir_pace_job *job = pace->jobs;
    bool waits = !pace->stopped && !job->blocked && job->granted == 0 &&
                 weir_pace_job_has_unit(job);
    return waits ? pace->gate->next : WEIR_NEVER;
}

/* A file that can't be written is reported once; it is tried again at the
 * end. */
static void save_state(struct weir_pace *pace, weir_instant now)
{
    if (!pace->state || now < pace->save_next)
        return;
    int status =
        weir_pace_state_save(pace->state, pace->jobs, pace->count, false);
    pace->save_next = status ? WEIR_NEVER : now + WEIR_PACE_SAVE_EVERY;
}

static int wait_for_something(struct loop *loop)
{
    struct weir_pace *pace = loop->pace;
    for (size_t i = 0; i < pace->count; i++)
        set_polled(loop, i);
    weir_instant now = weir_clock_now();
    weir_instant until = next_turn(pace);
    if (pace->progress.on && pace->progress.next < until)
        until = pace->progress.next;
    if (pace->state && pace->save_next < until)
        until = pace->save_next;
    weir_duration left = until > now ? until - now : 0;
    left = left < IDLE_MAX ? left : IDLE_MAX;
    struct timespec timeout = { .tv_sec = (time_t)(left / WEIR_SECOND),
                                .tv_nsec = (long)(left % WEIR_SECOND) };
    int got = ppoll(loop->polled, 1 + 2 * pace->count, &timeout, NULL);
    if (got < 0 && errno != EINTR)
        return weir_cli_fail("can't wait: %s", strerror(errno));
    for (size_t i = 0; got < 0 && i < 1 + 2 * pace->count; i++)
        loop->polled[i].revents = 0;
    return 0;
}

/* ---- Handling events ---- */

static void read_signal(struct loop *loop)
{
    struct signalfd_siginfo info;
    if (!loop->polled[0].revents ||
        read(loop->signals, &info, sizeof info) != sizeof info)
        return;
    loop->hurry = loop->pace->stopped;
    loop->pace->stopped = true;
}

static void note_closed(struct weir_pace_job *job)
{
    job->closed = job->done = true;
}

static void note_blocked(struct weir_pace_job *job, bool blocked,
                         weir_instant now)
{
    weir_assert(!job->blocked || now >= job->blocked_at);
    if (job->blocked)
        job->waited += now - job->blocked_at;
    job->blocked = blocked;
    job->blocked_at = now;
}

static void serve_job(struct loop *loop, size_t index, weir_instant now)
{
    weir_assert(index < loop->pace->count);
    struct weir_pace *pace = loop->pace;
    struct weir_pace_job *job = &pace->jobs[index];
    const struct pollfd *in = &loop->polled[1 + 2 * index];
    const struct pollfd *out = in + 1;
    if (job->done)
        return;
    note_blocked(job, job->granted > 0 && !(out->revents & POLLOUT), now);
    if (in->fd >= 0 && in->revents)
        weir_pace_job_read(job);
    if (out->revents & POLLOUT && job->granted > 0)
        weir_pace_job_write(job);
    else if (out->revents & (POLLERR | POLLHUP | POLLNVAL))
        note_closed(job);
    if (pace->stopped && !job->done)
        weir_pace_job_stop(job);
    update_ready(pace, job, now);
}

static bool all_done(const struct weir_pace *pace)
{
    for (size_t i = 0; i < pace->count; i++)
        if (!pace->jobs[i].done)
            return false;
    return true;
}

static int run_loop(struct loop *loop)
{
    struct weir_pace *pace = loop->pace;
    while (!all_done(pace) && !loop->hurry) {
        int status = wait_for_something(loop);
        if (status)
            return status;
        read_signal(loop);
        weir_instant now = weir_clock_now();
        for (size_t i = 0; i < pace->count; i++)
            serve_job(loop, i, now);
        take_turns(pace, now);
        weir_pace_progress_draw(&pace->progress, pace->jobs, pace->count, now);
        save_state(pace, now);
    }
    return 0;
}

int weir_pace_run(struct weir_pace *pace)
{
    weir_assert(!pace->gate != !pace->pacer);
    sigset_t wanted, before;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGHUP);
    sigprocmask(SIG_BLOCK, &wanted, &before);
    /* The process sleeps nearly always, and each late wake-up disturbs the
     * rate. Without the right to this priority it goes on. */
    (void)setpriority(PRIO_PROCESS, 0, PRIORITY);
    struct loop loop = {
        .pace = pace,
        .signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK),
        .polled = calloc(1 + 2 * pace->count, sizeof(struct pollfd)),
    };
    pace->save_next = weir_clock_now() + WEIR_PACE_SAVE_EVERY;
    int status = 0;
    if (loop.signals < 0 || !loop.polled)
        status = weir_cli_fail("can't begin: %s", strerror(errno));
    if (status == 0) {
        loop.polled[0] =
            (struct pollfd){ .fd = loop.signals, .events = POLLIN };
        status = run_loop(&loop);
    }
    if (loop.signals >= 0)
        close(loop.signals);
    free(loop.polled);
    sigprocmask(SIG_SETMASK, &before, NULL);
    for (size_t i = 0; i < pace->count; i++)
        weir_pace_job_drop(&pace->jobs[i], 0);
    return status;
}
