/* SPDX-License-Identifier: MIT
 * test_client_adaptive.c - adaptive quotas through libweir, without a root:
 * local quotas, classes, the view, forks, too many of them. */

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_world.h" /* WORLD_SANITIZED */
#include "compare.h"
#include "weir/weir.h"

#define NOW (1000000 * WEIR_SECOND)
#define MS WEIR_MILLISECOND

static struct weir *open_alone(uint32_t adaptive_max)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.adaptive_max = adaptive_max;
    struct weir *weir;
    assert_int_equal(weir_open(&options, &weir), 0);
    return weir;
}

static struct weir_handle define(struct weir *weir, const char *name,
                                 const char *const *rest)
{
    char named[64], why[256] = "";
    const char *fields[12] = { named, "kind=concurrency", "sharing=adaptive" };
    size_t count = 3;
    snprintf(named, sizeof(named), "name=%s", name);
    while (*rest)
        fields[count++] = *rest++;
    int error = weir_define(weir, fields, why, sizeof(why));
    if (error < 0)
        fail_msg("%d: %s", error, why);
    struct weir_handle handle;
    assert_int_equal(weir_handle_open(weir, name, strlen(name), &handle), 0);
    return handle;
}
#define DEFINE(WEIR, NAME, ...) \
    define(WEIR, NAME, (const char *const[]){ __VA_ARGS__, NULL })

static bool enters(struct weir_handle quota, uint32_t klass,
                   struct weir_permit *out, weir_instant now)
{
    return weir_enter(quota, klass, 1, out, NULL, now) == WEIR_PASSED;
}

static void test_what_is_defined_wrongly(void **state)
{
    (void)state;
    struct weir *weir = open_alone(0);
    char why[256];
    const char *const wrong[][5] = {
        { "name=a", "kind=concurrency", "sharing=adaptive", "target=0s" },
        { "name=a", "sharing=adaptive" },
        { "name=a", "limit" },
        { "name=" },
    };
    const char *const says[] = { "target may be above 0",
                                 "goes with kind=concurrency only",
                                 "written as limit=100/s", "name is empty" };
    for (size_t i = 0; i < 4; i++) {
        assert_compare(weir_define(weir, wrong[i], why, sizeof(why)), <, 0);
        if (!strstr(why, says[i]))
            fail_msg("%s", why);
    }
    assert_int_equal(weir_define(NULL, wrong[0], NULL, 0), WEIR_EINVAL);
    struct weir_adaptive seen;
    struct weir_handle rate, none = { .weir = NULL };
    const char *const sound[] = { "name=r", "limit=5/s", "labels=b=2, a=1",
                                  NULL };
    assert_int_equal(weir_define(weir, sound, NULL, 0), 0);
    assert_int_equal(weir_handle_open(weir, "r", 1, &rate), 0);
    assert_int_equal(weir_adaptive(rate, &seen, NOW), WEIR_ENOENT);
    assert_int_equal(weir_adaptive(none, &seen, NOW), WEIR_ENOENT);
    weir_close(weir);
}

static void test_a_limit_falls_and_is_seen(void **state)
{
    (void)state;
    struct weir *weir = open_alone(0);
    struct weir_handle db = DEFINE(weir, "db", "target=100ms", "max=40",
                                   "classes=sync:observed,bulk:50%");
    struct weir_adaptive seen;
    assert_int_equal(weir_adaptive(db, &seen, NOW), 0);
    assert_float_equal(seen.limit, 20, 0);
    assert_string_equal(seen.reason, "initial");
    uint32_t bulk = weir_class("bulk", 4), sync = weir_class("sync", 4);
    struct weir_permit permit[40];
    unsigned in = 0;
    while (in < 40 && enters(db, bulk, &permit[in], NOW))
        in++;
    assert_int_equal(in, 20);
    assert_true(enters(db, sync, &permit[in++], NOW));
    /* A leave reports an outcome; an invalid one is no sample. */
    weir_leave(&permit[--in], (enum weir_permit_outcome)77, NOW + MS);
    while (in > 0)
        weir_leave(&permit[--in], WEIR_PERMIT_SUCCESS, NOW + 2500 * MS);
    assert_int_equal(weir_adaptive(db, &seen, NOW + 2500 * MS), 0);
    assert_float_equal(seen.limit, 10, 0);
    assert_float_equal(seen.before, 20, 0);
    assert_string_equal(seen.reason, "slow");
    assert_int_equal(seen.moved_at, NOW + 2500 * MS);
    assert_int_equal(seen.in_flight, 0);
    assert_compare(seen.latency, >, 2 * WEIR_SECOND);
    struct weir_status status;
    weir_status(weir, &status);
    assert_int_equal(status.adaptive, 1);
    assert_int_equal(status.adaptive_overflowed, 0);
    weir_close(weir);
}

static void test_one_too_many_is_told_of(void **state)
{
    (void)state;
    struct weir *weir = open_alone(1);
    DEFINE(weir, "a", "max=1");
    struct weir_handle b = DEFINE(weir, "b", "max=1");
    struct weir_permit one, two;
    assert_true(enters(b, 0, &one, NOW) && enters(b, 0, &two, NOW));
    struct weir_status status;
    weir_status(weir, &status);
    assert_int_equal(status.adaptive, 1);
    assert_int_equal(status.adaptive_overflowed, 1);
    struct pollfd fd = { weir_event_fd(weir), POLLIN, 0 };
    assert_int_equal(poll(&fd, 1, 10000), 1);
    struct weir_event event;
    assert_true(weir_event_next(weir, &event));
    assert_int_equal(event.type, WEIR_EVENT_ADAPTIVE_FULL);
    assert_int_equal(event.count, 1);
    assert_non_null(strstr(event.text, "adaptive_max is 1"));
    weir_leave(&one, WEIR_PERMIT_SUCCESS, NOW);
    weir_leave(&two, WEIR_PERMIT_SUCCESS, NOW);
    weir_close(weir);
}

/* The child's checks; its exit status is the number of the failed one. */
static int in_child(struct weir_handle db, struct weir_permit *parents)
{
    struct weir_permit own;
    struct weir_adaptive seen;
    weir_leave(parents, WEIR_PERMIT_SUCCESS, NOW);
    if (weir_adaptive(db, &seen, NOW) != 0 || seen.in_flight != 0)
        return 1;
    if (seen.limit != 2)
        return 2;
    if (!enters(db, 0, &own, NOW) || weir_adaptive(db, &seen, NOW) != 0 ||
        seen.in_flight != 1)
        return 3;
    weir_leave(&own, WEIR_PERMIT_SUCCESS, NOW);
    return weir_adaptive(db, &seen, NOW) == 0 && seen.in_flight == 0 ? 0 : 4;
}

static void test_a_child_has_a_limit_of_its_own(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip();
#endif
    struct weir *weir = open_alone(0);
    struct weir_handle db = DEFINE(weir, "db", "controller=none", "max=2");
    struct weir_permit permit;
    assert_true(enters(db, 0, &permit, NOW));
    pid_t pid = fork();
    if (pid == 0) {
        patience_be_child();
        _exit(in_child(db, &permit));
    }
    int status = STATUS_OF(pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    struct weir_adaptive seen;
    assert_int_equal(weir_adaptive(db, &seen, NOW), 0);
    assert_int_equal(seen.in_flight, 1);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, NOW);
    assert_int_equal(weir_adaptive(db, &seen, NOW), 0);
    assert_int_equal(seen.in_flight, 0);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_defined_wrongly),
        cmocka_unit_test(test_a_limit_falls_and_is_seen),
        cmocka_unit_test(test_one_too_many_is_told_of),
        cmocka_unit_test(test_a_child_has_a_limit_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
