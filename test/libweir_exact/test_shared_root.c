/* SPDX-License-Identifier: MIT
 * test_shared_root.c - counters that a root keeps for all limiters: the suite
 * of shared stores, over real roots (`weir serve`) and libweir's own connection
 * to them.
 *
 * A step doesn't contain its rule: the rule is a quota of the root, which is
 * edited over HTTP when the suite sets another. */

#include "client_world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "libweir/libweir_internal.h"
#include "shared_suite.h"

static struct root root;

static void *way_open(void)
{
    return limiter_open(root.address, NULL);
}

static void way_close(void *client)
{
    weir_close(client);
}

static int step_at_root(void *client, const char *key,
                        const struct weir_algorithm_ask *ask,
                        struct weir_algorithm_answer *out,
                        weir_duration deadline)
{
    struct weir_away away = { .deadline = deadline, .store = "root" };
    away.name_len = (uint8_t)snprintf(away.name, sizeof away.name, "%s", key);
    return weir_exact_step(client, &away, ask, out);
}

static int way_step(void *client, const char *key,
                    const struct shared_wish *wish,
                    const struct weir_algorithm_ask *ask,
                    struct weir_algorithm_answer *out, weir_duration deadline)
{
    (void)wish;
    return step_at_root(client, key, ask, out, deadline);
}

static bool way_is_up(void *client)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_PEEK };
    struct weir_algorithm_answer answer;
    return step_at_root(client, "await", &ask, &answer, WEIR_SHARED_DEADLINE) ==
           0;
}

static bool way_start(void)
{
    if (root.folder[0] == '\0')
        root_make(&root);
    else
        root_start(&root);
    return true;
}

static void way_kill(void)
{
    root_kill(&root, SIGKILL);
}

static void way_stop(void)
{
    assert_int_equal(kill(root.pid, SIGSTOP), 0);
    /* The signal is on its way: waits until it has arrived. */
    assert_int_equal(PATIENTLY(waitpid(root.pid, NULL, WUNTRACED)), root.pid);
}

static void way_go_on(void)
{
    assert_int_equal(kill(root.pid, SIGCONT), 0);
}

/* ---- A wish as the fields of a quota ---- */

static int add_algorithm(const struct shared_wish *wish, char *out, size_t size)
{
    unsigned long long units = wish->quantity;
    unsigned long long seconds = wish->per / WEIR_SECOND;
    switch (wish->algorithm) {
    case WEIR_LEAKY:
    case WEIR_LEAKY_QUEUE:
        return snprintf(out, size, ",\"high_burst\":\"%llu\"", units);
    case WEIR_TOKEN_BUCKET:
        return wish->initial < 0
                   ? snprintf(out, size, ",\"high_burst\":\"%llu\"", units)
                   : snprintf(out, size,
                              ",\"high_burst\":\"%llu\",\"initial\":\"%lld\"",
                              units, (long long)wish->initial);
    case WEIR_TOKEN_BUCKETS:
        return snprintf(out, size,
                        ",\"high_burst\":\"%llu\",\"next_buckets\":"
                        "\"%llu/%llus:%llu\"",
                        units, units, seconds, units);
    case WEIR_SLIDING_LOG:
        return snprintf(out, size, ",\"max_entries\":%llu", units);
    case WEIR_SLIDING_WINDOW:
        return snprintf(out, size, ",\"sub_windows\":4");
    case WEIR_FIXED_WINDOW:
    case WEIR_PERMITS: /* of another kind */
        break;
    }
    return 0;
}

static const struct {
    const char *name;
    unsigned long long seconds;
} calendars[] = {
    [WEIR_CALENDAR_MINUTE] = { "minute", 60 },
    [WEIR_CALENDAR_HOUR] = { "hour", 3600 },
    [WEIR_CALENDAR_DAY] = { "day", 86400 },
    [WEIR_CALENDAR_WEEK] = { "week", 7 * 86400 },
    [WEIR_CALENDAR_MONTH] = { "month", 30 * 86400 },
};

static void add_calendar(const struct shared_wish *wish, char *out, size_t size)
{
    int minutes = wish->utc_offset_s / 60;
    snprintf(out, size, ",\"window\":\"%s\",\"tz\":\"%c%02d:%02d\"",
             calendars[wish->calendar].name, minutes < 0 ? '-' : '+',
             abs(minutes) / 60, abs(minutes) % 60);
}

static void way_put(const char *key, const struct shared_wish *wish)
{
    char fields[400];
    bool calendar = wish->calendar != WEIR_CALENDAR_NONE;
    unsigned long long seconds =
        calendar ? calendars[wish->calendar].seconds : wish->per / WEIR_SECOND;
    int len = snprintf(fields, sizeof(fields),
                       "{\"sharing\":\"exact\",\"store\":\"root\","
                       "\"on_stale\":\"limit\",\"algorithm\":\"%s\","
                       "\"limit\":\"%llu/%llus\"",
                       shared_algorithm_names[wish->algorithm],
                       (unsigned long long)wish->quantity, seconds);
    len += add_algorithm(wish, fields + len, sizeof(fields) - (size_t)len);
    if (calendar)
        add_calendar(wish, fields + len, sizeof(fields) - (size_t)len);
    strcat(fields, "}");
    root_set(&root, key, fields);
}

static const struct shared_way way = {
    .open = way_open,
    .close = way_close,
    .step = way_step,
    .is_up = way_is_up,
    .start = way_start,
    .kill = way_kill,
    .stop = way_stop,
    .go_on = way_go_on,
    .put = way_put,
};

int main(void)
{
    const struct shared_under_test under_test = { .way = &way,
                                                  .fixed_least = 1 };
    int failed = shared_suite_run(&under_test);
    root_free(&root);
    return failed;
}
