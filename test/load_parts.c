/* SPDX-License-Identifier: MIT
 * load_parts.c - see load_parts.h. */

#include "load_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

weir_instant live_now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * WEIR_SECOND + (uint64_t)at.tv_nsec;
}

void live_sleep_until(weir_instant at)
{
    struct timespec then = { .tv_sec = (time_t)(at / WEIR_SECOND),
                             .tv_nsec = (long)(at % WEIR_SECOND) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL) ==
           EINTR)
        ;
}

uint64_t live_resident_bytes(void)
{
    uint64_t pages = 0;
    uint64_t resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%" SCNu64 " %" SCNu64, &pages, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

void live_use_tls(struct weir_options *options)
{
    options->tls_ca = getenv("WEIR_TLS_CA");
    options->tls_cert = getenv("WEIR_TLS_CERT");
    options->tls_key = getenv("WEIR_TLS_KEY");
}

void live_tell_begin(weir_instant at)
{
    flockfile(stdout);
    printf("{\"pid\": %d, \"at\": %.6f, ", (int)getpid(), (double)at / 1e9);
}

void live_tell_end(void)
{
    puts("}");
    fflush(stdout);
    funlockfile(stdout);
}

void live_tell_event(void *context, const struct weir_event *event)
{
    (void)context;
    char text[2 * sizeof(event->text)];
    size_t len = 0;
    for (const char *p = event->text; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\')
            text[len++] = '\\';
        text[len++] = (unsigned char)*p < ' ' ? ' ' : *p;
    }
    live_tell_begin(live_now());
    printf("\"event\": %d, \"count\": %" PRIu64 ", \"text\": \"%.*s\"",
           (int)event->type, event->count, (int)len, text);
    live_tell_end();
}
