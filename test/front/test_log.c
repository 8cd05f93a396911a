/* SPDX-License-Identifier: MIT
 * test/front/test_log.c - standard error under lines that a peer causes without
 * end, or with a peer's bytes. */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "front/log.h"

#define WRITTEN_MAX 65536
#define STAMP (sizeof "2026-01-01T00:00:00.000Z " - 1)
#define AT (1000 * WEIR_SECOND)

/* Standard error is a file while a test runs. */
struct house {
    struct weir_log log;
    FILE *file;
    int before;
    char text[WRITTEN_MAX];
};

static weir_instant now;

static weir_instant clock_by_hand(void)
{
    return now;
}

static int set_up(void **state)
{
    struct house *house = calloc(1, sizeof *house);
    house->log.level = WEIR_LOG_INFO;
    house->log.clock = clock_by_hand;
    now = AT;
    house->file = tmpfile();
    house->before = dup(STDERR_FILENO);
    assert_true(house->file && house->before >= 0);
    assert_true(dup2(fileno(house->file), STDERR_FILENO) >= 0);
    *state = house;
    return 0;
}

static int tear_down(void **state)
{
    struct house *house = *state;
    assert_true(dup2(house->before, STDERR_FILENO) >= 0);
    close(house->before);
    fclose(house->file);
    free(house);
    return 0;
}

/* All that was written so far. */
static const char *written(struct house *house)
{
    ssize_t len =
        pread(fileno(house->file), house->text, sizeof house->text - 1, 0);
    assert_true(len >= 0 && len < WRITTEN_MAX - 1);
    house->text[len] = '\0';
    return house->text;
}

static size_t lines(struct house *house)
{
    size_t count = 0;
    for (const char *p = written(house); *p; p++)
        count += *p == '\n';
    return count;
}

/* Lines, plus the numbers of omitted ones that they contain: all that ever
 * came. */
static unsigned long long told(struct house *house)
{
    unsigned long long sum = lines(house);
    const char *at = written(house);
    while ((at = strstr(at, " (")) != NULL) {
        at += 2;
        sum += strtoull(at, NULL, 10);
    }
    return sum;
}

/* The last line, from its level on, without its end. */
static const char *last(struct house *house)
{
    size_t len = strlen(written(house));
    assert_true(len > STAMP && house->text[len - 1] == '\n');
    house->text[len - 1] = '\0';
    const char *line = strrchr(house->text, '\n');
    return (line ? line + 1 : house->text) + STAMP;
}

static void refuse(struct house *house, const char *peer, weir_instant at)
{
    now = at;
    weir_log_limited(&house->log, WEIR_LOG_HTTP_TLS, WEIR_LOG_WARNING,
                     "%s refused", peer);
}

/* ---- Limits ---- */

static void a_flood_is_a_burst_and_a_line_a_second(void **state)
{
    struct house *house = *state;
    for (unsigned i = 0; i < 10000; i++)
        refuse(house, "192.0.2.1", AT);
    assert_int_equal(lines(house), WEIR_LOG_BURST);
    assert_string_equal(last(house), "warning: 192.0.2.1 refused");

    for (unsigned i = 0; i < 30000; i++)
        refuse(house, "192.0.2.2", AT + i * 3 * WEIR_SECOND / 30000);
    assert_int_equal(lines(house), WEIR_LOG_BURST + 2);

    refuse(house, "192.0.2.3", AT + 3 * WEIR_SECOND);
    assert_string_equal(last(house),
                        "warning: 192.0.2.3 refused (9999 more like this left "
                        "out in the last 1 s)");
    assert_int_equal(told(house), 40001);
}

static void another_kind_has_its_own_lines(void **state)
{
    struct house *house = *state;
    for (unsigned i = 0; i < 100; i++)
        refuse(house, "192.0.2.1", AT);
    weir_log_limited(&house->log, WEIR_LOG_STORE, WEIR_LOG_WARNING,
                     "the store doesn't answer");
    assert_string_equal(last(house), "warning: the store doesn't answer");
    for (unsigned i = 0; i < 100; i++)
        weir_log_limited(&house->log, WEIR_LOG_EVENT_LAST, WEIR_LOG_WARNING,
                         "an event");
    assert_int_equal(lines(house), 2 * WEIR_LOG_BURST + 1);
}

static void a_quiet_kind_has_its_burst_again(void **state)
{
    struct house *house = *state;
    for (unsigned i = 0; i < WEIR_LOG_BURST; i++)
        refuse(house, "192.0.2.1", AT);
    weir_instant later = AT + WEIR_LOG_BURST * WEIR_LOG_EVERY;
    for (unsigned i = 0; i < 100; i++)
        refuse(house, "192.0.2.1", later);
    assert_int_equal(lines(house), 2 * WEIR_LOG_BURST);
}

static void lines_left_out_are_told_without_another_line(void **state)
{
    struct house *house = *state;
    for (unsigned i = 0; i < WEIR_LOG_BURST + 1; i++)
        refuse(house, "192.0.2.1", AT);
    refuse(house, "192.0.2.9", AT);
    weir_log_tick(&house->log);
    assert_int_equal(lines(house), WEIR_LOG_BURST);
    now = AT + WEIR_SECOND;
    weir_log_tick(&house->log);
    assert_string_equal(last(house), "warning: 192.0.2.9 refused (1 more like "
                                     "this left out in the last 1 s)");
    now = AT + 9 * WEIR_SECOND;
    weir_log_tick(&house->log);
    weir_log_end(&house->log);
    assert_int_equal(lines(house), WEIR_LOG_BURST + 1);
}

static void the_end_tells_all(void **state)
{
    struct house *house = *state;
    for (unsigned i = 0; i < 1000; i++)
        refuse(house, "192.0.2.1", AT);
    weir_log_limited(&house->log, WEIR_LOG_LINK, WEIR_LOG_INFO, "a link");
    weir_log_end(&house->log);
    assert_int_equal(lines(house), WEIR_LOG_BURST + 2);
    assert_int_equal(told(house), 1001);
}

static void less_urgent_lines_are_not_counted(void **state)
{
    struct house *house = *state;
    for (unsigned i = 0; i < 1000; i++)
        weir_log_limited(&house->log, WEIR_LOG_LINK, WEIR_LOG_DEBUG, "a link");
    weir_log_limited(&house->log, WEIR_LOG_LINK, WEIR_LOG_INFO, "a link");
    weir_log_end(&house->log);
    assert_string_equal(last(house), "info: a link");
    assert_int_equal(told(house), 1);
}

static void the_operators_lines_have_no_limit(void **state)
{
    struct house *house = *state;
    for (unsigned i = 0; i < 100; i++)
        weir_log(&house->log, WEIR_LOG_INFO, "reloaded");
    assert_int_equal(lines(house), 100);
}

static void never(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context;
}

static void lines_of_libevent_are_limited(void **state)
{
    struct house *house = *state;
    weir_log_adopt_library(&house->log);
    struct event_base *base = event_base_new();
    assert_non_null(base);
    /* EV_READ doesn't go with a signal: libevent refuses, and warns. */
    for (unsigned i = 0; i < 1000; i++)
        assert_null(event_new(base, 0, EV_SIGNAL | EV_READ, never, NULL));
    event_base_free(base);
    weir_log_adopt_library(NULL);
    weir_log_end(&house->log);
    assert_non_null(strstr(last(house), "warning: libevent: "));
    assert_int_equal(told(house), 1000);
    assert_true(lines(house) < 1000);
}

/* ---- Bytes from outside ---- */

static void bytes_from_outside_are_escaped(void **state)
{
    struct house *house = *state;
    static const struct {
        const char *name, *shown;
    } names[] = {
        { "a\n2026-01-01T00:00:00.000Z error: b",
          "a\\x0a2026-01-01T00:00:00.000Z error: b" },
        { "\r\t\x1b[2J\x7f", "\\x0d\\x09\\x1b[2J\\x7f" },
        { "größe/日本", "größe/日本" },
        { "\xc2\x9b"
          "31m",
          "\\xc2\\x9b31m" }, /* CSI of C1 */
        { "\x9b"
          "31m",
          "\\x9b31m" },                              /* not UTF-8 */
        { "\xe2\x80\xaegpj", "\\xe2\\x80\\xaegpj" }, /* right to left */
        { "\xe2\x80\xa8", "\\xe2\\x80\\xa8" },       /* line separator */
        { "\xc3", "\\xc3" },
        { "100 %n%s", "100 %n%s" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(names); i++) {
        char wanted[256];
        snprintf(wanted, sizeof wanted, "warning: '%s' refused",
                 names[i].shown);
        weir_log(&house->log, WEIR_LOG_WARNING, "'%s' refused", names[i].name);
        assert_string_equal(last(house), wanted);
    }
    assert_int_equal(lines(house), WEIR_COUNT_OF(names));
}

static void a_line_has_a_bound(void **state)
{
    struct house *house = *state;
    static const char fills[] = { 'x', '\n', (char)0xC3 };
    char name[8192];
    for (size_t i = 0; i < sizeof fills; i++) {
        memset(name, fills[i], sizeof name - 1);
        name[sizeof name - 1] = '\0';
        for (unsigned j = 0; j < WEIR_LOG_BURST + 3; j++)
            refuse(house, name, AT + i * 100 * WEIR_SECOND);
        now++;
        weir_log_end(&house->log);
        const char *line = last(house);
        assert_true(strlen(line) + STAMP + 1 <= WEIR_LOG_LINE_MAX);
        assert_non_null(strstr(line, "… (2 more like this left out in the "
                                     "last 1 s)"));
    }
    size_t longest = 0;
    size_t len = 0;
    for (const char *p = written(house); *p; p++) {
        len = *p == '\n' ? 0 : len + 1;
        longest = len > longest ? len : longest;
    }
    assert_in_range(longest, 700, WEIR_LOG_LINE_MAX - 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_flood_is_a_burst_and_a_line_a_second),
        TEST(another_kind_has_its_own_lines),
        TEST(a_quiet_kind_has_its_burst_again),
        TEST(lines_left_out_are_told_without_another_line),
        TEST(the_end_tells_all),
        TEST(less_urgent_lines_are_not_counted),
        TEST(the_operators_lines_have_no_limit),
        TEST(lines_of_libevent_are_limited),
        TEST(bytes_from_outside_are_escaped),
        TEST(a_line_has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
