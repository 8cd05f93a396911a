/* SPDX-License-Identifier: MIT
 * bench/permit_rows.c - permits through libweir: of a local limit and of an
 * adaptive one, in which leave is a sample, too.
 *
 * A limiter without roots; instants are artificial, a microsecond apart, as in
 * adapt_rows.c: its pair is the same without table and library. */

#include "rows.h"

#include <stdlib.h>
#include <string.h>

#include "weir/weir.h"

struct permits {
    struct weir *weir;
    struct weir_handle local, adaptive, full;
    struct weir_permit held;
    weir_instant now;
};

static struct weir_handle define(struct weir *weir, const char *name,
                                 const char *sharing, const char *bound)
{
    char named[32] = "name=";
    strcat(named, name);
    const char *fields[] = { named, "kind=concurrency", sharing, bound, NULL };
    struct weir_handle handle;
    if (weir_define(weir, fields, NULL, 0) < 0 ||
        weir_handle_open(weir, name, strlen(name), &handle) < 0)
        abort();
    return handle;
}

static void *permits_setup(const char **out_note)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct permits *permits = calloc(1, sizeof(*permits));
    (void)out_note;
    if (!permits || weir_open(&options, &permits->weir) < 0)
        abort();
    struct weir *weir = permits->weir;
    permits->local = define(weir, "local", "sharing=local", "limit=1000");
    permits->adaptive =
        define(weir, "adaptive", "sharing=adaptive", "min=1000");
    permits->full = define(weir, "full", "sharing=adaptive", "max=1");
    permits->now = 1000000 * WEIR_SECOND;
    if (weir_enter(permits->full, 0, 1, &permits->held, NULL, permits->now))
        abort();
    return permits;
}

static void permits_teardown(void *state)
{
    struct permits *permits = state;
    weir_leave(&permits->held, WEIR_PERMIT_IGNORED, permits->now);
    weir_close(permits->weir);
    free(permits);
}

const struct bench_fixture bench_permits = { permits_setup, permits_teardown };

static void pairs(struct permits *permits, struct weir_handle quota, uint64_t n)
{
    weir_instant now = permits->now;
    for (uint64_t i = 0; i < n; i++) {
        struct weir_permit permit;
        if (weir_enter(quota, 0, 1, &permit, NULL, now))
            abort();
        now += 1000;
        weir_leave(&permit, WEIR_PERMIT_SUCCESS, now);
    }
    permits->now = now;
}

void bench_permit_local(void *state, int thread, uint64_t n)
{
    struct permits *permits = state;
    (void)thread;
    pairs(permits, permits->local, n);
}

void bench_permit_adaptive(void *state, int thread, uint64_t n)
{
    struct permits *permits = state;
    (void)thread;
    pairs(permits, permits->adaptive, n);
}

void bench_permit_refused(void *state, int thread, uint64_t n)
{
    struct permits *permits = state;
    (void)thread;
    for (uint64_t i = 0; i < n; i++) {
        struct weir_permit permit;
        if (!weir_enter(permits->full, 0, 1, &permit, NULL, permits->now))
            abort();
        bench_fence();
    }
}
