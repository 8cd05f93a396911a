/* SPDX-License-Identifier: MIT
 * test/live/live_backend.c - a service in front of a back end that slows down.
 *
 *     live_backend ROOTS QUOTA CLIENTS [NAME]
 *
 * Each client sends requests to the back end, one after the other, if the quota
 * lets it in. The back end has eight places, each of which takes 30 ms times
 * 'slow' for a request: with n in it a request takes 30 ms x slow x max(1, n /
 * 8). So the number of requests that it bears at a given latency is known, and
 * falls as 'slow' grows.
 *
 * Nothing here takes time. Clients and the back end are a list of events with
 * instants, and the limiter is given these instants, not the clock's. On a late
 * machine a request still takes as long as the back end's model says, so the
 * limit that is found is the program's own decision. A run that is behind the
 * clock catches up without waiting.
 *
 * After a SIGCONT the process was stopped, and answers came meanwhile: they
 * are read at the instant of the clock, as those of a real service would be.
 *
 * Lines on standard input: "slow 4" sets that; "look" prints one line of JSON:
 * this process's limit, the numbers let in and refused so far, and of the
 * time since the last line "mark" the lowest and the highest limit, whether the
 * process was alone, and the longest time without a request let in. */

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "weir/weir.h"

#define PLACES 8
#define SERVICE (30 * WEIR_MILLISECOND)
#define CLIENTS_MAX 256
#define LIMIT_NONE 1e9                      /* above any */
#define SAMPLE_EVERY (5 * WEIR_MILLISECOND) /* the limit, for "mark" */

struct client {
    weir_instant due;          /* of its next event: */
    bool inside;               /* leaves the back end; else asks to enter */
    struct weir_permit permit; /* while it is inside */
};

static struct weir_handle quota;
static struct client clients[CLIENTS_MAX];
static int count, inside;
static uint64_t slow = 1;
static unsigned long served, refused;
static weir_instant now; /* of the last event */
static volatile sig_atomic_t continued;

/* Since the last "mark": */
static struct {
    double low, high;
    bool alone;
    weir_duration gap;
    weir_instant entered_at; /* a request was let in, or the mark */
    weir_instant sample_at;  /* of the next sample */
} seen;

static weir_instant clock_now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (weir_instant)at.tv_sec * WEIR_SECOND + (weir_instant)at.tv_nsec;
}

/* ---- The time since a mark ---- */

static void note_entered(void)
{
    if (now - seen.entered_at > seen.gap)
        seen.gap = now - seen.entered_at;
    seen.entered_at = now;
}

static void sample(void)
{
    struct weir_adaptive state;
    if (now < seen.sample_at || weir_adaptive(quota, &state, now) < 0)
        return;
    seen.sample_at = now + SAMPLE_EVERY;
    if (state.limit < seen.low)
        seen.low = state.limit;
    if (state.limit > seen.high)
        seen.high = state.limit;
    seen.alone = seen.alone || state.alone;
}

static void mark(void)
{
    memset(&seen, 0, sizeof(seen));
    seen.low = LIMIT_NONE;
    seen.entered_at = now;
    sample();
}

/* ---- Clients ---- */

static void leave(struct client *client)
{
    client->inside = false;
    inside--;
    served++;
    weir_leave(&client->permit, WEIR_PERMIT_SUCCESS, now);
    client->due = now;
}

static void enter(struct client *client)
{
    struct weir_reply reply;
    if (weir_enter(quota, 0, 1, &client->permit, &reply, now) == WEIR_LIMITED) {
        refused++;
        /* Many are refused at once; each comes back at the time in its
         * reply. */
        client->due = now + reply.retry_after + 5 * WEIR_MILLISECOND;
        return;
    }
    note_entered();
    client->inside = true;
    uint64_t n = (uint64_t)++inside;
    client->due = now + SERVICE * slow * (n > PLACES ? n : PLACES) / PLACES;
}

static struct client *next_client(void)
{
    struct client *next = &clients[0];
    for (int i = 1; i < count; i++)
        if (clients[i].due < next->due)
            next = &clients[i];
    return next;
}

static void on_continue(int number)
{
    (void)number;
    continued = 1;
}

static void catch_up(void)
{
    if (!continued)
        return;
    continued = 0;
    weir_instant at = clock_now();
    for (int i = 0; i < count; i++)
        if (clients[i].due < at)
            clients[i].due = at;
    seen.entered_at = at; /* it stood still for another reason */
}

/* Its due event, or NULL. */
static struct client *next_event(void)
{
    catch_up();
    struct client *next = next_client();
    return next->due <= clock_now() ? next : NULL;
}

/* ---- Commands ---- */

static void look(void)
{
    struct weir_adaptive state = { .reason = "none" };
    int error = weir_adaptive(quota, &state, now);
    weir_duration gap = now - seen.entered_at;
    if (gap < seen.gap)
        gap = seen.gap;
    printf("{\"error\": %d, \"limit\": %g, \"reason\": \"%s\", \"in_flight\": "
           "%llu, \"latency_ms\": %g, \"served\": %lu, \"limited\": %lu, "
           "\"fleet\": %d, \"alone\": %d, \"low\": %g, \"high\": %g, "
           "\"was_alone\": %d, \"gap_ms\": %g}\n",
           error, state.limit, state.reason,
           (unsigned long long)state.in_flight, (double)state.latency / 1e6,
           served, refused, state.fleet, state.alone, seen.low, seen.high,
           seen.alone, (double)gap / 1e6);
    fflush(stdout);
}

static void obey(char *line)
{
    unsigned value;
    if (sscanf(line, "slow %u", &value) == 1 && value > 0)
        slow = value;
    else if (strcmp(line, "look") == 0)
        look();
    else if (strcmp(line, "mark") == 0)
        mark();
}

/* Reads lines until 'until'; false: standard input has ended. */
static bool listen_until(weir_instant until)
{
    static char buf[256];
    static size_t len;
    weir_instant at = clock_now();
    int left_ms = until > at ? (int)((until - at) / WEIR_MILLISECOND) + 1 : 0;
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    if (poll(&input, 1, left_ms) <= 0)
        return true;
    ssize_t got = read(STDIN_FILENO, buf + len, sizeof(buf) - 1 - len);
    if (got <= 0)
        return false;
    len += (size_t)got;
    buf[len] = '\0';
    char *line = buf;
    for (char *end = strchr(line, '\n'); end; end = strchr(line, '\n')) {
        *end = '\0';
        obey(line);
        line = end + 1;
    }
    len = strlen(line);
    memmove(buf, line, len);
    return true;
}

int main(int argc, char **argv)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir *weir;
    count = argc >= 4 ? atoi(argv[3]) : 0;
    if (count < 1 || count > CLIENTS_MAX)
        return 2;
    options.roots = argv[1];
    options.name = argc > 4 ? argv[4] : "backend";
    if (weir_open(&options, &weir) < 0 ||
        weir_ready(weir, 60 * WEIR_SECOND) < 0 ||
        weir_handle_open(weir, argv[2], strlen(argv[2]), &quota) < 0)
        return 1;
    now = clock_now();
    for (int i = 0; i < count; i++)
        clients[i].due = now;
    mark();
    signal(SIGCONT, on_continue);
    while (listen_until(next_client()->due)) {
        for (struct client *next = next_event(); next; next = next_event()) {
            now = next->due;
            if (next->inside)
                leave(next);
            else
                enter(next);
            sample();
        }
    }
    for (int i = 0; i < count; i++)
        if (clients[i].inside)
            leave(&clients[i]);
    weir_close(weir);
    return 0;
}
