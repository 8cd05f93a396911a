/* SPDX-License-Identifier: MIT
 * test/lab/test_load.c - sources of load: the number and the instants of
 * requests, the choice of keys, and the reading of access logs. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "compare.h"
#include "lab/load.h"
#include "seed.h"

static uint64_t seed;

/* ---- Arrivals ---- */

#define START (5000 * WEIR_SECOND)

static struct weir_arrival begin(const struct weir_load *load,
                                 weir_duration span)
{
    return (struct weir_arrival){
        .load = load,
        .start = START,
        .span = span,
        .base_per_s = 100,
        .at = START,
    };
}

/* The number of arrivals in each of the first seconds. */
static void count(const struct weir_load *load, unsigned *seconds,
                  unsigned span)
{
    struct weir_rng rng = { seed };
    struct weir_arrival arrival = begin(load, span * WEIR_SECOND);
    memset(seconds, 0, span * sizeof(*seconds));
    weir_instant last = START;
    for (;;) {
        weir_instant at = weir_arrival_next(&arrival, &rng);
        if (at == WEIR_NEVER || at >= START + span * WEIR_SECOND)
            break;
        assert_compare(at, >=, last);
        last = at;
        seconds[(at - START) / WEIR_SECOND]++;
    }
}

static void test_regular_arrivals_are_counted_out(void **state)
{
    (void)state;
    struct weir_rate_step steps[] = {
        { .per_s = 3 },
        { .at = 2 * WEIR_SECOND, .per_s = 2, .times_limit = true },
        { .at = 4 * WEIR_SECOND, .per_s = 0 },
        { .at = 6 * WEIR_SECOND, .per_s = 1 },
    };
    const struct weir_load load = {
        .steps = steps,
        .step_count = 4,
        .arrivals = WEIR_ARRIVALS_REGULAR,
    };
    unsigned seconds[10];
    count(&load, seconds, 10);
    /* An arrival at the very end of a second may come after it. */
    assert_in_range(seconds[0] + seconds[1], 5, 6);
    assert_in_range(seconds[2] + seconds[3], 399, 401);
    assert_int_equal(seconds[4] + seconds[5], 0);
    assert_in_range(seconds[6] + seconds[7] + seconds[8] + seconds[9], 3, 4);
}

/* 100,000 regular arrivals a third of a microsecond apart aren't late. */
static void test_regular_arrivals_lose_no_fractions(void **state)
{
    (void)state;
    struct weir_rate_step step = { .per_s = 3e6 };
    const struct weir_load load = {
        .steps = &step,
        .step_count = 1,
        .arrivals = WEIR_ARRIVALS_REGULAR,
    };
    struct weir_rng rng = { seed };
    struct weir_arrival arrival = begin(&load, WEIR_SECOND);
    for (int i = 0; i < 300000; i++)
        weir_arrival_next(&arrival, &rng);
    assert_compare(fabs((double)(arrival.at - START) - 1e8), <=, 1);
}

/* A Poisson process: counts have the mean and the variance of the rate. */
static void test_poisson_arrivals_vary_as_they_should(void **state)
{
    (void)state;
    struct weir_rate_step step = { .per_s = 4, .times_limit = true };
    const struct weir_load load = { .steps = &step, .step_count = 1 };
    unsigned seconds[400];
    count(&load, seconds, 400);
    double sum = 0, squares = 0;
    for (int i = 0; i < 400; i++) {
        sum += seconds[i];
        squares += (double)seconds[i] * seconds[i];
    }
    double mean = sum / 400, variance = squares / 400 - mean * mean;
    print_message("  mean %.1f, variance %.1f\n", mean, variance);
    assert_compare(fabs(mean - 400), <, 5);
    assert_compare(variance, >, 280);
    assert_compare(variance, <, 560);
}

static void test_bursts_come_in_their_time(void **state)
{
    (void)state;
    struct weir_rate_step step = { .per_s = 1000 };
    const struct weir_load load = {
        .steps = &step,
        .step_count = 1,
        .burst_on = WEIR_SECOND / 2,
        .burst_every = 5 * WEIR_SECOND,
    };
    unsigned seconds[11];
    count(&load, seconds, 11);
    for (int i = 0; i < 11; i++) {
        if (i % 5 == 0)
            assert_in_range(seconds[i], 380, 620);
        else
            assert_int_equal(seconds[i], 0);
    }
}

static void test_a_sine_swings(void **state)
{
    (void)state;
    struct weir_rate_step step = { .per_s = 1000 };
    const struct weir_load load = {
        .steps = &step,
        .step_count = 1,
        .sine_part = 1,
        .sine_period = 40 * WEIR_SECOND,
        .arrivals = WEIR_ARRIVALS_REGULAR,
    };
    unsigned seconds[40], sum = 0;
    count(&load, seconds, 40);
    for (int i = 0; i < 40; i++)
        sum += seconds[i];
    assert_in_range(sum, 39998, 40002);
    assert_in_range(seconds[9], 1970, 2000);
    assert_in_range(seconds[29], 0, 20);
}

static void test_a_load_of_nothing_ends(void **state)
{
    (void)state;
    struct weir_rate_step step = { .per_s = 0 };
    struct weir_load load = {
        .steps = &step,
        .step_count = 1,
        .burst_on = 1,
        .burst_every = 2,
        .sine_part = 0.5,
        .sine_period = 1000,
    };
    struct weir_rng rng = { seed };
    struct weir_arrival arrival = begin(&load, WEIR_NEVER / 4);
    assert_true(weir_arrival_next(&arrival, &rng) == WEIR_NEVER);
    load.step_count = 0;
    assert_true(weir_arrival_next(&arrival, &rng) == WEIR_NEVER);
}

/* ---- Weighted choices ---- */

static void test_an_alias_table_draws_by_weight(void **state)
{
    (void)state;
    struct weir_rng rng = { seed };
    const double skews[] = { 0, 0.5, 1, 2 };
    for (size_t k = 0; k < WEIR_COUNT_OF(skews); k++) {
        struct weir_alias alias;
        weir_alias_zipf(&alias, 50, skews[k]);
        double drawn[50] = { 0 }, sum = 0, worst = 0;
        for (int i = 0; i < 200000; i++)
            drawn[weir_alias_draw(&alias, &rng)]++;
        for (int i = 0; i < 50; i++)
            sum += pow(i + 1, -skews[k]);
        for (int i = 0; i < 50; i++) {
            double mean = 200000 * pow(i + 1, -skews[k]) / sum;
            double off = fabs(drawn[i] - mean) / sqrt(mean);
            worst = off > worst ? off : worst;
        }
        print_message("  skew %.1f: worst %.1f deviations\n", skews[k], worst);
        assert_compare(worst, <, 5.5);
        weir_alias_fini(&alias);
    }
}

static void test_an_alias_table_of_one(void **state)
{
    (void)state;
    struct weir_rng rng = { seed };
    struct weir_alias alias;
    weir_alias_zipf(&alias, 1, 3);
    assert_int_equal(weir_alias_draw(&alias, &rng), 0);
    weir_alias_fini(&alias);
}

/* ---- Access logs ---- */

static void test_a_real_log_is_read(void **state)
{
    (void)state;
    char path[1024];
    const char *source = getenv("WEIR_SOURCE");
    snprintf(path, sizeof(path), "%s/test/data/access.log.gz",
             source ? source : ".");
    struct weir_access_log log;
    struct weir_diag diag = { 0 };
    if (weir_access_log_read(&log, path, &diag) < 0)
        fail_msg("%s", diag.text);
    assert_int_equal(log.count, 10000);
    assert_int_equal(log.client_count, 1753);
    assert_int_equal(log.requests[0].at, 0);
    for (size_t i = 1; i < log.count; i++) {
        assert_compare(log.requests[i].at, >=, log.requests[i - 1].at);
        assert_compare(log.requests[i].client, <, log.client_count);
    }
    /* Three and a half days. */
    weir_duration day = 86400 * WEIR_SECOND;
    weir_duration last = log.requests[log.count - 1].at;
    assert_compare(last, >, 3 * day);
    assert_compare(last, <, 4 * day);
    weir_access_log_fini(&log);
}

/* Writes a log into a file of its own; sets 'path'. */
static void write_log(const char *text, char *path)
{
    strcpy(path, "/tmp/weir-test-log-XXXXXX");
    int fd = mkstemp(path);
    assert_compare(fd, >=, 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static int read_text(const char *text, struct weir_access_log *log,
                     struct weir_diag *diag)
{
    char path[64];
    write_log(text, path);
    int error = weir_access_log_read(log, path, diag);
    unlink(path);
    return error;
}

#define AT(client, time) client " - - [17/May/2015:" time "] \"GET /\" 200 1\n"

static void test_a_plain_log_is_sorted_and_spread(void **state)
{
    (void)state;
    struct weir_access_log log;
    struct weir_diag diag;
    assert_int_equal(
        read_text(AT("a", "10:00:01 +0000") AT("b", "10:00:00 +0000") "\n" AT(
                      "a", "12:00:01 +0200") AT("c", "10:00:03 +0000"),
                  &log, &diag),
        0);
    assert_int_equal(log.count, 4);
    assert_int_equal(log.client_count, 3);
    const weir_duration s = WEIR_SECOND;
    const weir_duration at[] = { 0, s, 3 * s / 2, 3 * s };
    const char *const clients[] = { "b", "a", "a", "c" };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(log.requests[i].at, at[i]);
        assert_string_equal(log.clients[log.requests[i].client], clients[i]);
    }
    weir_access_log_fini(&log);
}

static void test_a_long_line_is_one_line(void **state)
{
    (void)state;
    static char text[20000];
    strcpy(text, "a - - [17/May/2015:10:00:00 +0000] \"");
    size_t len = strlen(text);
    memset(text + len, 'x', 15000);
    strcpy(text + len + 15000, "\"\n" AT("b", "10:00:01 +0000"));
    struct weir_access_log log;
    struct weir_diag diag;
    assert_int_equal(read_text(text, &log, &diag), 0);
    assert_int_equal(log.count, 2);
    weir_access_log_fini(&log);
}

static void test_a_bad_log_is_refused_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", ": no request in it" },
        { AT("a", "10:00:00 +0000") "hello world\n", ":2: no time like" },
        { "a [then]\n", ":1: no time like" },
        { " a [17/May/2015:10:00:00 +0000]\n", ":1: a line of an access" },
        { AT("h:80 a", "10:00:00 +0000"), ":1: not client, ident and user" },
        { "a [17/May/2015:10:00:00 +0000] \"\"\n", ":1: not client" },
        { "a -  [17/May/2015:10:00:00 +0000] \"\"\n", ":1: not client" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(cases); i++) {
        struct weir_access_log log;
        struct weir_diag diag;
        assert_int_equal(read_text(cases[i].text, &log, &diag), WEIR_ESYNTAX);
        assert_non_null(strstr(diag.text, cases[i].says));
        assert_null(log.requests);
    }
    struct weir_access_log log;
    struct weir_diag diag;
    assert_int_equal(weir_access_log_read(&log, "/no/such", &diag),
                     WEIR_ESYSTEM);
    assert_non_null(strstr(diag.text, "/no/such: can't be read"));
}

int main(void)
{
    seed = seed_or(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regular_arrivals_are_counted_out),
        cmocka_unit_test(test_regular_arrivals_lose_no_fractions),
        cmocka_unit_test(test_poisson_arrivals_vary_as_they_should),
        cmocka_unit_test(test_bursts_come_in_their_time),
        cmocka_unit_test(test_a_sine_swings),
        cmocka_unit_test(test_a_load_of_nothing_ends),
        cmocka_unit_test(test_an_alias_table_draws_by_weight),
        cmocka_unit_test(test_an_alias_table_of_one),
        cmocka_unit_test(test_a_real_log_is_read),
        cmocka_unit_test(test_a_plain_log_is_sorted_and_spread),
        cmocka_unit_test(test_a_long_line_is_one_line),
        cmocka_unit_test(test_a_bad_log_is_refused_by_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
