/* SPDX-License-Identifier: MIT
 * test_shared_memcached.c - shared counters in memcached: the suite, and cases
 * of memcached alone: several servers, values of other programs. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <libmemcached/memcached.h>

#include "compare.h"
#include "patience.h"
#include "shared_rules.h"
#include "shared_suite.h"

static const struct shared_under_test under_test = {
    .kind = SHARED_SERVER_MEMCACHED,
    .fixed_least = 0.99,
    .huge = "VALUE weir:probe 0 1000000000 1\r\n",
    .truncated = "VALUE weir:pro",
};

static struct shared_server server[2] = {
    { .kind = SHARED_SERVER_MEMCACHED },
    { .kind = SHARED_SERVER_MEMCACHED },
};

static int set_up(void **state)
{
    (void)state;
    return shared_server_start(&server[0]) && shared_server_start(&server[1])
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    shared_server_kill(&server[0]);
    shared_server_kill(&server[1]);
    return 0;
}

/* Another program has written a value under one of our keys. */
static void test_a_value_that_is_none(void **state)
{
    (void)state;
    struct weir_shared *shared = shared_open_at(server[0].uri, NULL);
    memcached_st *beside = memcached_create(NULL);
    memcached_server_add(beside, "127.0.0.1", server[0].port);
    struct weir_algorithm_answer answer;
    for (int i = WEIR_LEAKY; i <= WEIR_SLIDING_WINDOW; i++) {
        if (i == WEIR_FIXED_WINDOW)
            continue;
        char key[64];
        size_t len = (size_t)snprintf(key, sizeof(key), "weir:odd:%s",
                                      shared_algorithm_names[i]);
        assert_true(memcached_success(
            memcached_set(beside, key, len, "strange", 7, 0, 0)));
        struct weir_algorithm_rule rule =
            shared_rule_of((enum weir_algorithm)i, 10, WEIR_SECOND);
        assert_int_equal(
            shared_ask(shared, "odd", &rule, WEIR_ALGORITHM_TAKE, 1, &answer),
            WEIR_EPROTOCOL);
        assert_int_equal(
            shared_ask(shared, "even", &rule, WEIR_ALGORITHM_TAKE, 1, &answer),
            0);
    }
    memcached_free(beside);
    weir_shared_close(shared);
}

static bool hashes = true; /* whether SHA256() has memory */

unsigned char *__real_SHA256(const unsigned char *bytes, size_t len,
                             unsigned char *out);
unsigned char *__wrap_SHA256(const unsigned char *bytes, size_t len,
                             unsigned char *out);

unsigned char *__wrap_SHA256(const unsigned char *bytes, size_t len,
                             unsigned char *out)
{
    return hashes ? __real_SHA256(bytes, len, out) : NULL;
}

/* A name that is stored as its hash is no other name without memory for it. */
static void test_a_name_that_cant_be_hashed(void **state)
{
    (void)state;
    struct weir_shared *shared = shared_open_at(server[0].uri, NULL);
    char name[WEIR_NAME_MAX + 1];
    memset(name, ' ', sizeof(name) - 1);
    memcpy(name, "unhashed", 8);
    name[sizeof(name) - 1] = '\0';
    for (int i = WEIR_LEAKY; i <= WEIR_SLIDING_WINDOW; i++) {
        struct weir_algorithm_rule rule =
            shared_rule_of((enum weir_algorithm)i, 10, 86400 * WEIR_SECOND);
        struct weir_algorithm_answer answer;
        for (int charged = 0; charged < 2; charged++) {
            hashes = true;
            assert_int_equal(shared_ask(shared, name, &rule,
                                        WEIR_ALGORITHM_CHARGE, 1, &answer),
                             0);
            assert_int_equal(answer.used, charged + 1);
            hashes = false;
            assert_int_equal(shared_ask(shared, name, &rule,
                                        WEIR_ALGORITHM_CHARGE, 1, &answer),
                             WEIR_ENOMEM);
        }
    }
    hashes = true;
    weir_shared_close(shared);
}

/* Another rule under the same name: used units stay used. */
static void test_a_changed_rule(void **state)
{
    (void)state;
    struct weir_shared *shared = shared_open_at(server[0].uri, NULL);
    for (int i = WEIR_LEAKY; i <= WEIR_SLIDING_WINDOW; i++) {
        if (i == WEIR_FIXED_WINDOW)
            continue; /* another window is another counter */
        struct weir_algorithm_rule day =
            shared_rule_of((enum weir_algorithm)i, 10, 86400 * WEIR_SECOND);
        struct weir_algorithm_rule week =
            shared_rule_of((enum weir_algorithm)i, 20, 7 * 86400 * WEIR_SECOND);
        struct weir_algorithm_answer answer;
        assert_int_equal(
            shared_ask(shared, "rule", &day, WEIR_ALGORITHM_CHARGE, 8, &answer),
            0);
        assert_int_equal(shared_ask(shared, "rule", &week,
                                    WEIR_ALGORITHM_CHARGE, 1, &answer),
                         0);
        assert_int_equal(answer.used, 9);
    }
    weir_shared_close(shared);
}

static weir_instant wall_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (weir_instant)now.tv_sec * WEIR_SECOND + (weir_instant)now.tv_nsec;
}

/* Seconds for which the server will keep a key, by its own answer; -1: it isn't
 * there. */
static long seconds_kept(const char *key)
{
    char line[128] = "";
    int fd = shared_server_connect(server[0].port);
    assert_compare(fd, >=, 0);
    int len = snprintf(line, sizeof(line), "mg %s t\r\n", key);
    assert_int_equal(send(fd, line, (size_t)len, MSG_NOSIGNAL), len);
    len = 0;
    while (!memchr(line, '\n', (size_t)len)) {
        ssize_t got =
            PATIENTLY(recv(fd, line + len, sizeof(line) - 1 - (size_t)len, 0));
        assert_compare(got, >, 0);
        len += (int)got;
    }
    close(fd);
    long seconds = -1;
    line[len] = '\0';
    return sscanf(line, "HD t%ld", &seconds) == 1 ? seconds : -1;
}

/* An hour later on the zone's clocks the window may still not have ended. */
static void test_a_window_is_kept_while_clocks_are_set_back(void **state)
{
    (void)state;
    static const struct {
        enum weir_calendar calendar;
        const char *key;
        int32_t set_back_s;
    } all[] = {
        { WEIR_CALENDAR_HOUR, "weir:back:hour", 1800 },
        { WEIR_CALENDAR_DAY, "weir:back:day", 3600 },
        { WEIR_CALENDAR_WEEK, "weir:back:week", 3600 },
        { WEIR_CALENDAR_MONTH, "weir:back:month", 3600 },
    };
    struct weir_shared *shared = shared_open_at(server[0].uri, NULL);
    for (size_t i = 0; i < WEIR_COUNT_OF(all); i++) {
        struct weir_algorithm_rule rule =
            shared_rule_of(WEIR_FIXED_WINDOW, 10, WEIR_SECOND);
        struct weir_algorithm_answer answer;
        rule.calendar = all[i].calendar;
        /* Three quarters past, so half an hour less is in the same hour. */
        rule.utc_offset_s =
            45 * 60 - (int32_t)(wall_now() / WEIR_SECOND % 3600);
        assert_int_equal(
            shared_ask(shared, "back", &rule, WEIR_ALGORITHM_TAKE, 1, &answer),
            0);
        weir_instant now = wall_now(), start, end;
        char key[64];
        int64_t number = weir_algorithm_window(&rule, &start, &end, now);
        snprintf(key, sizeof(key), "%s:%lld", all[i].key, (long long)number);
        long seconds = (long)((end - now) / WEIR_SECOND);
        assert_compare(seconds_kept(key), >=, seconds + all[i].set_back_s);
        assert_compare(seconds_kept(key), <=, seconds + 86400 + 120);
    }
    weir_shared_close(shared);
}

/* An expiry of more than 30 days is not taken for an instant of 1970. */
static void test_a_window_that_ends_in_thirty_days(void **state)
{
    (void)state;
    const weir_duration day = 86400 * WEIR_SECOND;
    weir_instant end = wall_now() + 30 * day - 30 * WEIR_SECOND;
    struct weir_algorithm_rule rule =
        shared_rule_of(WEIR_FIXED_WINDOW, 10, end / (end / (31 * day)));
    struct weir_shared *shared = shared_open_at(server[0].uri, NULL);
    struct weir_algorithm_answer answer;
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(shared_ask(shared, "thirty", &rule,
                                    WEIR_ALGORITHM_TAKE, 1, &answer),
                         0);
        assert_int_equal(answer.used, i);
    }
    weir_shared_close(shared);
}

/* A busy server misses the first probe, which has the least patience. It is not
 * taken for dead, and a caller that is ready to wait is answered. */
static void test_a_server_that_is_slow_at_first(void **state)
{
    (void)state;
    shared_server_stop(&server[0]);
    struct weir_shared *shared = shared_open_at(server[0].uri, NULL);
    struct weir_shared_status status;
    UNTIL((weir_shared_status(shared, &status), status.last_error[0]));
    shared_server_go_on(&server[0]);
    struct weir_algorithm_rule rule =
        shared_rule_of(WEIR_LEAKY, 10, 86400 * WEIR_SECOND);
    struct weir_algorithm_answer answer;
    assert_int_equal(
        shared_ask(shared, "slow", &rule, WEIR_ALGORITHM_TAKE, 1, &answer), 0);
    weir_shared_close(shared);
}

/* One of two servers is unreachable: so are its names, but not the others'. */
static void test_two_servers(void **state)
{
    (void)state;
    char uri[128];
    snprintf(uri, sizeof(uri), "%s,127.0.0.1:%u", server[0].uri,
             server[1].port);
    struct weir_shared *shared = shared_open_at(uri, NULL);
    struct weir_algorithm_rule rule =
        shared_rule_of(WEIR_LEAKY, 10, 86400 * WEIR_SECOND);
    struct weir_algorithm_answer answer;
    char name[16];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "two/%d", i);
        assert_int_equal(
            shared_ask(shared, name, &rule, WEIR_ALGORITHM_TAKE, 1, &answer),
            0);
    }
    shared_server_kill(&server[1]);
    int there = 0, away = 0;
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "two/%d", i);
        int result =
            shared_ask(shared, name, &rule, WEIR_ALGORITHM_TAKE, 1, &answer);
        if (result == 0)
            assert_int_equal(answer.used, 2);
        there += result == 0;
        away += result < 0;
    }
    print_message("  of 40 names, %d on the server that is there\n", there);
    assert_compare(there, >, 0);
    assert_compare(away, >, 0);
    weir_shared_close(shared);
}

/* Each thread of the store has names of its own; one of them probes. */
static void test_whoever_finds_it_away_it_is_found_again(void **state)
{
    (void)state;
    struct weir_shared *shared = shared_open_at(server[0].uri, NULL);
    struct weir_algorithm_rule rule =
        shared_rule_of(WEIR_FIXED_WINDOW, 1000, WEIR_SECOND);
    struct weir_algorithm_answer answer;
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof(name), "away/%d", i);
        shared_await(shared);
        assert_int_equal(
            shared_ask(shared, name, &rule, WEIR_ALGORITHM_TAKE, 1, &answer),
            0);
        shared_server_kill(&server[0]);
        while (shared_ask(shared, name, &rule, WEIR_ALGORITHM_TAKE, 1,
                          &answer) != WEIR_ECONNECT)
            continue;
        assert_true(shared_server_start(&server[0]));
    }
    shared_await(shared);
    weir_shared_close(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_value_that_is_none),
        cmocka_unit_test(test_a_name_that_cant_be_hashed),
        cmocka_unit_test(test_a_changed_rule),
        cmocka_unit_test(test_a_window_is_kept_while_clocks_are_set_back),
        cmocka_unit_test(test_a_window_that_ends_in_thirty_days),
        cmocka_unit_test(test_whoever_finds_it_away_it_is_found_again),
        cmocka_unit_test(test_a_server_that_is_slow_at_first),
        cmocka_unit_test(test_two_servers),
    };
    int failed =
        cmocka_run_group_tests_name("memcached", tests, set_up, tear_down);
    return failed + shared_suite_run(&under_test);
}
