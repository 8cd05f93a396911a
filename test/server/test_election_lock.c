/* SPDX-License-Identifier: MIT
 * test/server/test_election_lock.c - the lock on a file, in the process that
 * has it. Among processes: live_election.py. */

#include "compare.h"
#include "patience.h"
#include "server/election/election.h"

#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    char folder[64];
    char path[80], aside[80];
    struct event_base *base;
    struct weir_log log;
    struct weir_election *election;
    bool is_master;
    bool is_first;
    uint64_t term;
    unsigned ends;
};

static void on_change(void *context, const struct weir_election_news *news)
{
    struct world *w = context;
    w->ends += w->is_master && !news->is_master;
    w->is_master = news->is_master;
    w->is_first = news->is_first;
    if (news->term > 0)
        w->term = news->term;
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    strcpy(w->folder, "/tmp/weir-election.XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->path, sizeof w->path, "%s/lock", w->folder);
    snprintf(w->aside, sizeof w->aside, "%s/aside", w->folder);
    w->base = event_base_new();
    w->log.level = WEIR_LOG_ERROR;
    struct weir_election_options options = {
        .base = w->base,
        .log = &w->log,
        .kind = WEIR_ELECTION_FILE,
        .identity = "here:1",
        .path = w->path,
        .on_change = on_change,
        .context = w,
    };
    struct weir_diag diag;
    assert_int_equal(weir_election_new(&options, &w->election, &diag), 0);
    while (STILL(!w->is_master))
        event_base_loop(w->base, EVLOOP_ONCE);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    weir_election_free(&w->election);
    event_base_free(w->base);
    unlink(w->path);
    unlink(w->aside);
    rmdir(w->folder);
    free(w);
    return 0;
}

/* Only its owner may open the file: a process that can read it can lock it. */
static void test_nobody_elses_to_read(void **state)
{
    struct world *w = *state;
    struct stat file;
    assert_int_equal(stat(w->path, &file), 0);
    assert_int_equal(file.st_mode & 077, 0);
}

/* After this server was reported not to be master its term is over, and it
 * stands again, even if the file is back at once. */
static void test_away_and_back(void **state)
{
    struct world *w = *state;
    uint64_t term = w->term;
    assert_true(weir_election_holds(w->election));
    assert_int_equal(rename(w->path, w->aside), 0);
    assert_false(weir_election_holds(w->election));
    assert_int_equal(rename(w->aside, w->path), 0);
    assert_false(weir_election_holds(w->election));
    while (STILL(w->ends == 0 || !w->is_master))
        event_base_loop(w->base, EVLOOP_ONCE);
    assert_compare(w->term, >, term);
    assert_true(weir_election_holds(w->election));
}

/* A new file has no trace of a master, but this server remembers one. */
static void test_a_new_file_in_the_place_of_the_old(void **state)
{
    struct world *w = *state;
    assert_true(w->is_first);
    assert_int_equal(unlink(w->path), 0);
    assert_false(weir_election_holds(w->election));
    while (STILL(w->ends == 0 || !w->is_master))
        event_base_loop(w->base, EVLOOP_ONCE);
    assert_false(w->is_first);
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_nobody_elses_to_read),
        TEST(test_away_and_back),
        TEST(test_a_new_file_in_the_place_of_the_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
