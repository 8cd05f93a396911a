/* SPDX-License-Identifier: MIT
 * test_client_wait_fleet.c - callers that wait for permits of a quota that a
 * fleet shares: by counts (sharing: counted) or by a root's grants (sharing:
 * leased); and over fork(). A real root, limiters of this process, threads that
 * wait. */

#include "client_world.h"
#include "compare.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/atomic.h"

#define WAITERS 12
#define HELD 2u

static struct root root;

static int begin(void **state)
{
    (void)state;
    root_make(&root);
    return 0;
}

static int end(void **state)
{
    (void)state;
    root_free(&root);
    return 0;
}

/* Waits to enter, then holds the permit for a moment. */
struct waiter {
    struct weir *weir; /* borrowed */
    pthread_t thread;
    uint32_t passed; /* atomic */
    weir_duration wait_max;
};

static struct {
    uint32_t in, worst; /* permits of all limiters; atomic */
    uint32_t may_leave; /* atomic */
} floor_;

static void note_in(void)
{
    uint32_t now = weir_fetch_add(&floor_.in, 1) + 1;
    uint32_t worst = weir_load(&floor_.worst);
    while (now > worst && !weir_cas(&floor_.worst, &worst, now))
        continue;
}

static void *wait_and_hold(void *context)
{
    struct waiter *waiter = context;
    struct weir_permit permit;
    struct weir_handle db;
    if (weir_handle_open(waiter->weir, "db", 2, &db) < 0)
        return NULL;
    if (weir_enter_wait(db, 0, 1, 0, waiter->wait_max, &permit, NULL) ==
        WEIR_PASSED) {
        note_in();
        weir_fetch_add(&waiter->passed, 1);
        while (!weir_load(&floor_.may_leave))
            world_pause();
        weir_fetch_sub(&floor_.in, 1);
        weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    }
    weir_handle_close(db);
    return NULL;
}

static void start(struct waiter *waiter, struct weir *weir)
{
    *waiter = (struct waiter){ .weir = weir, .wait_max = WEIR_NEVER };
    assert_int_equal(
        pthread_create(&waiter->thread, NULL, wait_and_hold, waiter), 0);
}

static uint32_t waiting(struct weir *weir)
{
    return limiter_status(weir).waiting;
}

static uint64_t reports(struct weir *weir)
{
    return limiter_status(weir).reports;
}

/* One limiter has all, and twelve callers of the other one wait. They get every
 * permit that the first one gives back, and never more, though no caller of
 * their own limiter leaves. */
static void check_two(const char *fields)
{
    static struct waiter waiter[WAITERS]; /* outlive a failure */
    struct weir_permit held[HELD];
    memset(&floor_, 0, sizeof(floor_));
    root_set(&root, "db", fields);
    struct weir *one = limiter_ready(root.address, NULL);
    struct weir *other = limiter_ready(root.address, NULL);
    struct weir_handle db = handle_open(one, "db");
    for (uint32_t i = 0; i < HELD; i++) {
        assert_int_equal(weir_enter_wait(db, 0, 1, 0, GUARD, &held[i], NULL),
                         WEIR_PASSED);
        note_in();
    }
    assert_int_equal(weir_sync(one, GUARD), 0);
    struct weir_handle same = handle_open(other, "db");
    struct weir_reply reply;
    /* The root has sent the units in flight elsewhere. */
    UNTIL(weir_peek(same, 1, &reply, 0) == WEIR_LIMITED);
    for (uint32_t i = 0; i < WAITERS; i++)
        start(&waiter[i], other);
    UNTIL(waiting(other) == WAITERS);
    /* If a handle is closed before its limiter has noticed it, giving back its
     * grant takes a while. */
    uint64_t before = reports(one);
    UNTIL(reports(one) >= before + 3);
    for (uint32_t i = 0; i < HELD; i++) {
        weir_fetch_sub(&floor_.in, 1);
        weir_leave(&held[i], WEIR_PERMIT_SUCCESS, 0);
    }
    weir_handle_close(db);
    UNTIL(waiting(other) == WAITERS - HELD);
    weir_store(&floor_.may_leave, 1);
    for (uint32_t i = 0; i < WAITERS; i++) {
        UNTIL(weir_load(&waiter[i].passed) == 1);
        PATIENTLY(pthread_join(waiter[i].thread, NULL));
    }
    assert_int_equal(waiting(other), 0);
    assert_in_range(floor_.worst, 1, HELD);
    weir_close(one);
    weir_close(other);
    root_remove(&root, "db");
}

static void who_waits_at_what_is_counted(void **state)
{
    (void)state;
    check_two("{\"kind\":\"concurrency\",\"sharing\":\"counted\","
              "\"limit\":\"2\",\"on_stale\":\"limit\"}");
}

static void who_waits_at_what_is_leased(void **state)
{
    (void)state;
    check_two("{\"kind\":\"concurrency\",\"sharing\":\"leased\","
              "\"limit\":\"2\",\"lease\":\"1min\",\"refresh\":\"200ms\","
              "\"learning\":\"0s\",\"on_stale\":\"limit\"}");
}

/* Waiting callers count as wants, even if no caller here leaves: of a quota
 * that only this limiter uses, as many get in as the limit allows. */
static void check_all_get_in(const char *table)
{
    static struct waiter waiter[WAITERS]; /* outlive a failure */
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir *weir;
    memset(&floor_, 0, sizeof(floor_));
    root_set(&root, "db",
             "{\"kind\":\"concurrency\",\"sharing\":\"leased\","
             "\"limit\":\"100\",\"lease\":\"60s\",\"refresh\":\"20s\","
             "\"learning\":\"0s\",\"on_stale\":\"limit\"}");
    options.roots = root.address;
    options.table = table;
    assert_int_equal(weir_open(&options, &weir), 0);
    assert_int_equal(weir_ready(weir, GUARD), 0);
    for (uint32_t i = 0; i < WAITERS; i++)
        start(&waiter[i], weir);
    for (uint32_t i = 0; i < WAITERS; i++)
        UNTIL(weir_load(&waiter[i].passed) == 1);
    assert_int_equal(weir_load(&floor_.in), WAITERS);
    weir_store(&floor_.may_leave, 1);
    for (uint32_t i = 0; i < WAITERS; i++)
        PATIENTLY(pthread_join(waiter[i].thread, NULL));
    weir_close(weir);
    root_remove(&root, "db");
}

static void who_waits_is_wanted_for(void **state)
{
    (void)state;
    check_all_get_in(NULL);
}

static void who_waits_at_a_shared_table_is_wanted_for(void **state)
{
    (void)state;
    char table[64];
    snprintf(table, sizeof(table), "/dev/shm/weir-test-%ld-wait",
             (long)getpid());
    check_all_get_in(table);
    unlink(table);
}

/* ---- Over fork() ---- */

/* A child: no caller waits in it and no permit is out; a waiting caller is let
 * in by a leave of its own process. */
static int in_child(struct weir *weir, struct weir_handle db)
{
    struct weir_permit permit;
    struct waiter waiter = { .weir = weir, .wait_max = WEIR_NEVER };
    if (weir_enter(db, 0, 1, &permit, NULL, 0) != WEIR_PASSED)
        return 1;
    if (waiting(weir) != 0)
        return 2;
    if (pthread_create(&waiter.thread, NULL, wait_and_hold, &waiter) != 0)
        return 3;
    UNTIL(waiting(weir) != 0);
    weir_store(&floor_.may_leave, 1);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    PATIENTLY(pthread_join(waiter.thread, NULL));
    weir_close(weir);
    return waiter.passed == 1 ? 0 : 4;
}

static void a_child_has_a_line_of_its_own(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip();
#endif
    static struct waiter waiter;
    struct weir_permit held;
    memset(&floor_, 0, sizeof(floor_));
    root_set(&root, "db",
             "{\"kind\":\"concurrency\",\"sharing\":\"local\","
             "\"limit\":\"1\"}");
    struct weir *weir = limiter_ready(root.address, NULL);
    struct weir_handle db = handle_open(weir, "db");
    assert_int_equal(weir_enter(db, 0, 1, &held, NULL, 0), WEIR_PASSED);
    start(&waiter, weir);
    UNTIL(waiting(weir) == 1);
    fflush(NULL);
    pid_t pid = fork();
    assert_compare(pid, >=, 0);
    if (pid == 0) {
        patience_be_child();
        _exit(in_child(weir, db));
    }
    assert_int_equal(STATUS_OF(pid), 0);
    assert_int_equal(waiter.passed, 0);
    weir_store(&floor_.may_leave, 1);
    weir_leave(&held, WEIR_PERMIT_SUCCESS, 0);
    PATIENTLY(pthread_join(waiter.thread, NULL));
    assert_int_equal(waiter.passed, 1);
    weir_handle_close(db);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_at_what_is_counted),
        cmocka_unit_test(who_waits_at_what_is_leased),
        cmocka_unit_test(who_waits_is_wanted_for),
        cmocka_unit_test(who_waits_at_a_shared_table_is_wanted_for),
        cmocka_unit_test(a_child_has_a_line_of_its_own),
    };
    return cmocka_run_group_tests_name("client_wait_fleet", tests, begin, end);
}
