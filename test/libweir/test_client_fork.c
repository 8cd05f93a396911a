/* SPDX-License-Identifier: MIT
 * test_client_fork.c - libweir across fork(): a child becomes a limiter of its
 * own, and leaves its parent alone.
 *
 * Children never return into the test: they end by _exit(), with 0 on success.
 * WEIR_FORKS is the number of forks under load. */

#include "client_world.h"
#include "compare.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/atomic.h"
#include "libweir/libweir_internal.h"

#define FORKS 80

static struct root root;

static int begin(void **state)
{
    (void)state;
    root_make(&root);
    root_set(&root, "q",
             "{\"limit\": \"1/min\", \"low_burst\": \"100000\","
             " \"high_burst\": \"100000\"}");
    root_set(&root, "t/*", "{\"limit\": \"1000/s\"}");
    return 0;
}

static int end(void **state)
{
    (void)state;
    root_free(&root);
    return 0;
}

static bool knows(struct weir_handle quota)
{
    struct weir_reply reply;
    weir_peek(quota, 1, &reply, 0);
    return !reply.unknown;
}

static pid_t child_of(void)
{
    pid_t pid = fork();
    assert_compare(pid, >=, 0);
    if (pid == 0)
        patience_be_child();
    return pid;
}

/* In a child: a failure is an exit status. */
#define CHECK_IN_THREAD(condition)                                         \
    do {                                                                   \
        if (!(condition)) {                                                \
            fprintf(stderr, "child, line %d: %s\n", __LINE__, #condition); \
            _exit(__LINE__ % 250 + 1);                                     \
        }                                                                  \
    } while (0)

#define CHECK(condition)            \
    do {                            \
        STEP(#condition);           \
        CHECK_IN_THREAD(condition); \
    } while (0)

static void close_in_child(struct weir *weir)
{
    STEP("the end of weir_close(weir)");
    weir_close(weir);
}

static bool child_until_up(struct weir *weir, unsigned roots)
{
    weir_instant until = world_now() + GUARD;
    struct weir_status status = { 0 };
    while (status.roots_up < roots && world_now() < until) {
        weir_status(weir, &status);
        world_pause();
    }
    return status.roots_up == roots;
}

/* A child has a status of its own, which begins at 0, while its parent had more
 * reports than a child makes in some seconds. */
#define PARENTS_REPORTS 30

static void report_often(struct weir *weir, struct weir_handle quota)
{
    struct weir_status status = { 0 };
    weir_instant until = world_now() + GUARD;
    while (status.reports < PARENTS_REPORTS && world_now() < until) {
        weir_take(quota, 0, NULL, 0);
        assert_int_equal(weir_sync(weir, GUARD), 0);
        weir_status(weir, &status);
    }
    assert_compare(status.reports, >=, PARENTS_REPORTS);
}

/* A child's first call. */
enum first { TAKE, OPEN, NAME, SYNC, EVENT, STATUS, READY, RELEASE, CLOSE };

static void be_child(struct weir *weir, struct weir_handle quota,
                     enum first first)
{
    struct weir_event event;
    struct weir_status status;
    struct weir_handle other;
    switch (first) {
    case TAKE:
        break;
    case OPEN:
        CHECK(weir_handle_open(weir, "other", 5, &other) == 0);
        break;
    case NAME:
        CHECK(weir_take_by_name(weir, "nobody", 6, 1, NULL, 0) == WEIR_PASSED);
        break;
    case SYNC:
        CHECK(weir_sync(weir, GUARD) == 0);
        break;
    case EVENT:
        UNTIL(weir_event_next(weir, &event));
        CHECK(event.type == WEIR_EVENT_FORKED);
        break;
    case STATUS:
        weir_status(weir, &status);
        CHECK(status.reports < PARENTS_REPORTS);
        break;
    case READY:
        CHECK(weir_ready(weir, GUARD) == 0);
        break;
    case RELEASE:
        weir_handle_close(quota);
        break;
    case CLOSE:
        close_in_child(weir);
        _exit(0);
    }
    if (first == RELEASE)
        CHECK(weir_handle_open(weir, "q", 1, &quota) == 0);
    for (int i = 0; i < 10; i++)
        CHECK(weir_take(quota, 1, NULL, 0) == WEIR_PASSED);
    CHECK(weir_sync(weir, GUARD) == 0);
    CHECK(child_until_up(weir, 1));
    close_in_child(weir);
    _exit(0);
}

static void child_is_a_limiter_whatever_it_does_first(void **state)
{
    (void)state;
    struct weir *weir = limiter_ready(root.address, NULL);
    struct weir_handle quota = handle_open(weir, "q");
    UNTIL(knows(quota));
    report_often(weir, quota);
    uint64_t passed = 0;
    for (enum first first = TAKE; first <= CLOSE; first++) {
        /* Not reported yet at the fork. */
        assert_int_equal(weir_take(quota, 3, NULL, 0), WEIR_PASSED);
        passed += 3;
        pid_t pid = child_of();
        if (pid == 0)
            be_child(weir, quota, first);
        assert_int_equal(weir_take(quota, 4, NULL, 0), WEIR_PASSED);
        assert_int_equal(STATUS_OF(pid), 0);
        passed += 4 + (first == CLOSE ? 0 : 10);
        assert_int_equal(weir_sync(weir, GUARD), 0);
        assert_int_equal(root_passed(&root, "q"), passed);
    }
    weir_close(weir);
}

static void both_are_seen_and_the_parent_is_undisturbed(void **state)
{
    (void)state;
    struct seen seen;
    struct weir *weir = limiter_ready(root.address, &seen);
    struct weir_handle quota = handle_open(weir, "q");
    UNTIL(root_limiters(&root) == 1);
    int event_fd = weir_event_fd(weir);
    struct weir_event event;
    UNTIL(seen_count(&seen, WEIR_EVENT_READY) == 1);
    int conn[2];
    assert_int_equal(pipe(conn), 0);
    pid_t pid = child_of();
    if (pid == 0) {
        char byte;
        close(conn[1]);
        CHECK(weir_take(quota, 1, NULL, 0) == WEIR_PASSED);
        CHECK(weir_event_fd(weir) != event_fd);
        /* The parent's events would come before the child's first own one. */
        UNTIL(weir_event_next(weir, &event));
        CHECK(event.type == WEIR_EVENT_FORKED);
        /* Waits until the parent has checked it. */
        CHECK(read(conn[0], &byte, 1) == 0);
        close_in_child(weir);
        _exit(0);
    }
    close(conn[0]);
    UNTIL(root_limiters(&root) == 2);
    close(conn[1]);
    assert_int_equal(STATUS_OF(pid), 0);
    UNTIL(root_limiters(&root) == 1);
    assert_int_equal(weir_sync(weir, GUARD), 0);
    /* The child consumed neither events nor their signal. */
    struct pollfd poll_fd = { .fd = event_fd, .events = POLLIN };
    assert_int_equal(poll(&poll_fd, 1, 0), 1);
    assert_true(weir_event_next(weir, &event));
    assert_int_equal(event.type, WEIR_EVENT_ROOT_UP);
    assert_int_equal(seen_count(&seen, WEIR_EVENT_ROOT_DOWN), 0);
    assert_int_equal(seen_count(&seen, WEIR_EVENT_FORKED), 0);
    weir_close(weir);
}

static void unused_child_leaves_no_trace(void **state)
{
    (void)state;
    struct seen seen;
    struct weir *weir = limiter_ready(root.address, &seen);
    struct weir_handle quota = handle_open(weir, "q");
    for (int i = 0; i < 20; i++) {
        pid_t pid = child_of();
        if (pid == 0)
            _exit(0);
        weir_take(quota, 1, NULL, 0);
        assert_int_equal(STATUS_OF(pid), 0);
    }
    assert_int_equal(weir_sync(weir, GUARD), 0);
    UNTIL(root_limiters(&root) == 1); /* limiters of earlier tests have gone */
    assert_int_equal(seen_count(&seen, WEIR_EVENT_ROOT_DOWN), 0);
    weir_close(weir);
}

static void grandchildren_are_limiters_too(void **state)
{
    (void)state;
    struct weir *weir = limiter_ready(root.address, NULL);
    struct weir_handle quota = handle_open(weir, "t/family");
    uint64_t before = root_passed(&root, "t/family");
    pid_t pid = child_of();
    if (pid == 0) {
        CHECK(weir_take(quota, 1, NULL, 0) == WEIR_PASSED);
        pid_t next = fork();
        if (next == 0) {
            patience_be_child();
            CHECK(weir_take(quota, 1, NULL, 0) == WEIR_PASSED);
            CHECK(weir_sync(weir, GUARD) == 0);
            _exit(0);
        }
        CHECK(STATUS_OF(next) == 0);
        CHECK(weir_sync(weir, GUARD) == 0);
        _exit(0);
    }
    weir_take(quota, 1, NULL, 0);
    assert_int_equal(STATUS_OF(pid), 0);
    assert_int_equal(weir_sync(weir, GUARD), 0);
    assert_int_equal(root_passed(&root, "t/family"), before + 3);
    weir_close(weir);
}

/* ---- Under load ---- */

struct busy {
    struct weir *weir;
    uint32_t stop;
};

static void *keep_busy(void *context)
{
    struct busy *busy = context;
    char name[32];
    struct weir_event event;
    for (unsigned i = 0; !weir_load_acquire(&busy->stop); i++) {
        snprintf(name, sizeof(name), "t/%u", i % 500);
        weir_take_by_name(busy->weir, name, strlen(name), 1, NULL, 0);
        struct weir_handle quota;
        if (weir_handle_open(busy->weir, name, strlen(name), &quota) == 0)
            weir_handle_close(quota);
        weir_event_next(busy->weir, &event);
        if (i % 64 == 0)
            (void)!weir_sync(busy->weir, WEIR_MILLISECOND);
    }
    return NULL;
}

static void *child_thread(void *context)
{
    struct weir *weir = context;
    CHECK_IN_THREAD(weir_take_by_name(weir, "q", 1, 1, NULL, 0) == WEIR_PASSED);
    struct weir_handle quota;
    CHECK_IN_THREAD(weir_handle_open(weir, "t/x", 3, &quota) == 0);
    weir_take(quota, 1, NULL, 0);
    weir_handle_close(quota);
    return NULL;
}

/* Several threads make the child a limiter at the same time. */
static void child_at_work(struct weir *weir, int number)
{
    pthread_t thread[3];
    int threads = number % 4;
    for (int i = 0; i < threads; i++)
        CHECK(pthread_create(&thread[i], NULL, child_thread, weir) == 0);
    STEP("the end of child_thread(weir)");
    child_thread(weir);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    if (number % 8 == 0) {
        CHECK(weir_sync(weir, GUARD) == 0);
        close_in_child(weir);
    }
    if (number % 8 == 1)
        close_in_child(weir);
    _exit(0);
}

static void forks_while_all_move(void **state)
{
    (void)state;
    struct weir *weir = limiter_ready(root.address, NULL);
    struct busy busy = { weir, 0 };
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&thread[i], NULL, keep_busy, &busy);
    const char *said = getenv("WEIR_FORKS");
    int forks = said ? atoi(said) : FORKS;
    for (int i = 0; i < forks; i++) {
        pid_t pid = child_of();
        if (pid == 0)
            child_at_work(weir, i);
        assert_int_equal(STATUS_OF(pid), 0);
    }
    weir_store_release(&busy.stop, 1);
    for (int i = 0; i < 3; i++)
        PATIENTLY(pthread_join(thread[i], NULL));
    assert_int_equal(weir_sync(weir, GUARD), 0);
    weir_close(weir);
}

int main(void)
{
#ifdef WORLD_SANITIZED
    return 77; /* skipped */
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(child_is_a_limiter_whatever_it_does_first),
        cmocka_unit_test(both_are_seen_and_the_parent_is_undisturbed),
        cmocka_unit_test(unused_child_leaves_no_trace),
        cmocka_unit_test(grandchildren_are_limiters_too),
        cmocka_unit_test(forks_while_all_move),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
