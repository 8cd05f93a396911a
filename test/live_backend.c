/* SPDX-License-Identifier: MIT
 * test/live_backend.c - a service in front of a back end that slows down.
 *
 *     live_backend ROOTS QUOTA THREADS
 *
 * Each thread asks the back end again and again, if the quota lets it in. The
 * back end has eight places, each of which takes 30 ms times 'slow' for a
 * request: with n in it a request takes 30 ms x slow x max(1, n / 8). So what
 * it bears at a time for a given latency is known, and falls as 'slow' grows.
 *
 * Lines on standard input: "slow 4" sets that; "look" prints one line of JSON:
 * the limit as this process has it, and what was let in and refused so far. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weir/weir.h"

#define PLACES 8
#define SERVICE_NS 30e6
#define THREADS_MAX 256

static struct weir_handle quota;
static _Atomic int slow = 1, inside, stopping;
static _Atomic unsigned long served, refused;

static void pass(double ns)
{
    struct timespec span = { .tv_sec = (time_t)(ns / 1e9) };
    span.tv_nsec = (long)(ns - (double)span.tv_sec * 1e9);
    nanosleep(&span, NULL);
}

static void ask_back_end(void)
{
    int n = ++inside;
    double load = n > PLACES ? (double)n / PLACES : 1;
    pass(SERVICE_NS * slow * load);
    inside--;
}

static void *serve(void *context)
{
    (void)context;
    while (!stopping) {
        struct weir_permit permit;
        struct weir_reply reply;
        if (weir_enter(quota, 0, 1, &permit, &reply, 0) == WEIR_LIMITED) {
            refused++;
            /* Many are refused at once; each comes back when it was told. */
            pass((double)reply.retry_after + 5e6);
            continue;
        }
        ask_back_end();
        served++;
        weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    }
    return NULL;
}

static void look(void)
{
    struct weir_adaptive seen = { .reason = "none" };
    int error = weir_adaptive(quota, &seen, 0);
    printf("{\"error\": %d, \"limit\": %g, \"reason\": \"%s\", \"in_flight\": "
           "%llu, \"latency_ms\": %g, \"served\": %lu, \"refused\": %lu}\n",
           error, seen.limit, seen.reason, (unsigned long long)seen.in_flight,
           (double)seen.latency / 1e6, served, refused);
    fflush(stdout);
}

static void obey(void)
{
    char line[64];
    while (fgets(line, sizeof(line), stdin)) {
        int value;
        if (sscanf(line, "slow %d", &value) == 1 && value > 0)
            slow = value;
        else if (strcmp(line, "look\n") == 0)
            look();
    }
}

int main(int argc, char **argv)
{
    int threads = argc == 4 ? atoi(argv[3]) : 0;
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir *weir;
    pthread_t thread[THREADS_MAX];
    if (threads < 1 || threads > THREADS_MAX)
        return 2;
    options.roots = argv[1];
    options.name = "backend";
    if (weir_open(&options, &weir) < 0 ||
        weir_ready(weir, 30 * WEIR_SECOND) < 0 ||
        weir_handle_open(weir, argv[2], strlen(argv[2]), &quota) < 0)
        return 1;
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, serve, NULL) != 0)
            return 1;
    obey();
    stopping = 1;
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    weir_close(weir);
    return 0;
}
