/* SPDX-License-Identifier: MIT
 * test_client_permit.c - permits of libweir, with a real root that sends the
 * quotas: enter and leave by handle and by name, a permit that is given back at
 * most once, and permits across fork(). */

#include "client_world.h"
#include "compare.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct root root;
static struct weir *weir;

static int begin(void **state)
{
    (void)state;
    root_make(&root);
    root_set(&root, "all",
             "{\"limit\": \"1/min\", \"low_burst\": \"1000\","
             " \"high_burst\": \"1000\"}");
    root_set(&root, "db",
             "{\"kind\": \"concurrency\", \"sharing\": \"local\","
             " \"limit\": \"3\", \"parent\": \"all\"}");
    root_set(&root, "t/*",
             "{\"kind\": \"concurrency\", \"limit\": \"2\","
             " \"sharing\": \"local\"}");
    weir = limiter_ready(root.address, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    weir_close(weir);
    root_free(&root);
    return 0;
}

static int64_t in_flight(struct weir_handle quota)
{
    struct weir_reply reply;
    weir_peek(quota, 0, &reply, 0);
    assert_false(reply.unknown);
    return reply.fill;
}

static void assert_holds_nothing(const struct weir_permit *permit)
{
    static const struct weir_permit none;
    assert_memory_equal(permit, &none, sizeof(none));
}

static void each_permit_is_given_back_once(void **state)
{
    (void)state;
    struct weir_handle db = handle_open(weir, "db");
    struct weir_permit a, b, c;
    struct weir_reply reply;
    assert_int_equal(weir_enter(db, 0, 2, &a, &reply, 0), WEIR_PASSED);
    assert_int_equal(reply.fill, 2);
    assert_int_equal(weir_enter(db, 0, 2, &b, &reply, 0), WEIR_LIMITED);
    assert_string_equal(reply.quota, "db");
    assert_compare(reply.retry_after, <, WEIR_SECOND);
    assert_holds_nothing(&b);
    weir_leave(&b, WEIR_PERMIT_DROPPED, 0);
    assert_int_equal(weir_enter(db, 0, 1, &c, NULL, 0), WEIR_PASSED);
    weir_leave(&a, WEIR_PERMIT_SUCCESS, 0);
    assert_holds_nothing(&a);
    weir_leave(&a, WEIR_PERMIT_SUCCESS, 0);
    assert_int_equal(in_flight(db), 1);
    weir_leave(&c, WEIR_PERMIT_IGNORED, 0);
    struct weir_permit none = { { 0 } };
    weir_leave(&none, WEIR_PERMIT_SUCCESS, 0);
    assert_int_equal(in_flight(db), 0);
    weir_handle_close(db);
}

static void names_without_quota_hold_nothing(void **state)
{
    (void)state;
    struct weir_permit permit;
    struct weir_handle zeroed = { 0 };
    assert_int_equal(weir_enter(zeroed, 0, 9, &permit, NULL, 0), WEIR_PASSED);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    struct weir_handle nobody = handle_open(weir, "nobody");
    assert_int_equal(weir_enter(nobody, 0, 9, &permit, NULL, 0), WEIR_PASSED);
    assert_holds_nothing(&permit);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    weir_handle_close(nobody);
    assert_int_equal(weir_enter_by_name(weir, "", 0, 0, 1, &permit, NULL, 0),
                     WEIR_PASSED);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
}

static void instances_have_their_own(void **state)
{
    (void)state;
    struct weir_permit a, b, c;
    assert_int_equal(weir_enter_by_name(weir, "t/1", 3, 0, 2, &a, NULL, 0),
                     WEIR_PASSED);
    assert_int_equal(weir_enter_by_name(weir, "t/1", 3, 0, 1, &b, NULL, 0),
                     WEIR_LIMITED);
    assert_int_equal(weir_enter_by_name(weir, "t/2", 3, 0, 1, &c, NULL, 0),
                     WEIR_PASSED);
    weir_leave(&a, WEIR_PERMIT_SUCCESS, 0);
    assert_int_equal(weir_enter_by_name(weir, "t/1", 3, 0, 1, &b, NULL, 0),
                     WEIR_PASSED);
    weir_leave(&b, WEIR_PERMIT_SUCCESS, 0);
    weir_leave(&c, WEIR_PERMIT_SUCCESS, 0);
}

/* The root removes the quota and makes another with the same name. */
static void permits_outlive_their_quota(void **state)
{
    (void)state;
    struct weir_handle db = handle_open(weir, "db");
    struct weir_permit a, b;
    struct weir_reply reply = { .unknown = false };
    assert_int_equal(weir_enter(db, 0, 3, &a, NULL, 0), WEIR_PASSED);
    root_remove(&root, "db");
    UNTIL((weir_peek(db, 0, &reply, 0), reply.unknown));
    root_set(&root, "db",
             "{\"kind\": \"concurrency\", \"limit\": \"4\","
             " \"sharing\": \"local\"}");
    UNTIL((weir_peek(db, 0, &reply, 0), !reply.unknown));
    assert_int_equal(reply.fill, 3);
    assert_int_equal(weir_enter(db, 0, 2, &b, NULL, 0), WEIR_LIMITED);
    weir_leave(&a, WEIR_PERMIT_SUCCESS, 0);
    assert_int_equal(in_flight(db), 0);
    weir_handle_close(db);
}

/* A child has its parent's permits in its memory, and none in flight. */
static void be_child(struct weir_handle db, struct weir_permit *parents)
{
    patience_be_child();
    struct weir_permit own;
    weir_leave(parents, WEIR_PERMIT_SUCCESS, 0);
    bool all = in_flight(db) == 0 &&
               weir_enter(db, 0, 4, &own, NULL, 0) == WEIR_PASSED;
    weir_leave(&own, WEIR_PERMIT_SUCCESS, 0);
    _exit(all && in_flight(db) == 0 ? 0 : 1);
}

static void a_permit_is_its_processes(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip();
#endif
    struct weir_handle db = handle_open(weir, "db");
    struct weir_permit permit;
    assert_int_equal(weir_enter(db, 0, 3, &permit, NULL, 0), WEIR_PASSED);
    pid_t pid = fork();
    assert_compare(pid, >=, 0);
    if (pid == 0)
        be_child(db, &permit);
    assert_int_equal(STATUS_OF(pid), 0);
    assert_int_equal(in_flight(db), 3);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    assert_int_equal(in_flight(db), 0);
    weir_handle_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_permit_is_given_back_once),
        cmocka_unit_test(names_without_quota_hold_nothing),
        cmocka_unit_test(instances_have_their_own),
        cmocka_unit_test(permits_outlive_their_quota),
        cmocka_unit_test(a_permit_is_its_processes),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
