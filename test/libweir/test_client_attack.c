/* SPDX-License-Identifier: MIT
 * test_client_attack.c - libweir and roots that die, hang, lie or send garbage.
 * In each case: no crash, no hang, decisions go on, an event gives the reason,
 * and the limiter retries, less and less often. */

#include "client_world.h"
#include "compare.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "core/base/atomic.h"
#include "libweir/libweir_internal.h"

static uint32_t broken_pipes;

static void on_broken_pipe(int signal)
{
    (void)signal;
    weir_fetch_add(&broken_pipes, 1);
}

static enum weir_verdict take(struct weir *weir, const char *name)
{
    return weir_take_by_name(weir, name, strlen(name), 1, NULL, 0);
}

/* ---- Peers that aren't roots ---- */

/* All of them are tried at the same time, from the first test on. */
static const enum vice vices[] = { VICE_CLOSES,   VICE_GARBAGE, VICE_JUNK,
                                   VICE_TOO_LONG, VICE_VERSION, VICE_STATUS,
                                   VICE_FLAPS,    VICE_SILENT };

static struct victim {
    struct seen seen;
    struct fake *fake;
    struct weir *weir;
    weir_instant began;
} victims[VICE_NONE]; /* indexed by vice */

static int begin_attempts(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEIR_COUNT_OF(vices); i++) {
        struct victim *victim = &victims[vices[i]];
        victim->fake = fake_new(vices[i]);
        victim->began = world_now();
        victim->weir = limiter_open(fake_address(victim->fake), &victim->seen);
    }
    return 0;
}

static void suffer(enum vice vice, unsigned attempts, const char *says)
{
    struct victim *victim = &victims[vice];
    UNTIL(fake_accepted(victim->fake) >= attempts);
    weir_instant took = world_now() - victim->began;
    assert_int_equal(take(victim->weir, "q"), WEIR_PASSED);
    assert_int_equal(weir_ready(victim->weir, 0), WEIR_ETIMEOUT);
    if (says) {
        char text[192];
        UNTIL(seen_count(&victim->seen, WEIR_EVENT_ROOT_DOWN) > 0);
        seen_text(&victim->seen, WEIR_EVENT_ROOT_DOWN, text);
        if (!strstr(text, says))
            fail_msg("vice %d: the event says '%s'", (int)vice, text);
    }
    /* Pauses of 50, 100, 200, 400 ms before the fifth attempt. */
    if (attempts >= 5)
        assert_compare(took, >=, 700 * WEIR_MILLISECOND);
    weir_close(victim->weir);
    fake_free(victim->fake);
}

static void roots_that_close_are_tried_again(void **state)
{
    (void)state;
    suffer(VICE_CLOSES, 5, ":");
}

static void what_is_not_http2_is_told(void **state)
{
    (void)state;
    suffer(VICE_GARBAGE, 5, "gRPC port");
}

static void messages_that_are_none_are_told(void **state)
{
    (void)state;
    suffer(VICE_JUNK, 5, weir_strerror(WEIR_ESYNTAX));
}

static void too_long_messages_are_refused(void **state)
{
    (void)state;
    suffer(VICE_TOO_LONG, 5, ":");
}

static void other_versions_are_told(void **state)
{
    (void)state;
    suffer(VICE_VERSION, 5, weir_strerror(WEIR_EPROTOCOL));
}

static void calls_that_end_are_begun_again(void **state)
{
    (void)state;
    suffer(VICE_STATUS, 5, "lunch");
}

static void flapping_is_damped(void **state)
{
    (void)state;
    suffer(VICE_FLAPS, 5, "lunch");
}

static void silence_is_borne(void **state)
{
    (void)state;
    suffer(VICE_SILENT, 1, NULL);
}

/* All of them, and a good one among them. */
static void one_good_root_is_enough(void **state)
{
    (void)state;
    struct root root;
    struct fake *fake[7];
    char roots[512];
    root_make(&root);
    root_set(&root, "good", "{\"limit\": \"0/s\"}");
    int len = snprintf(roots, sizeof(roots), "%s", root.address);
    for (int i = 0; i < 7; i++) {
        enum vice vice = i < VICE_VERSION ? (enum vice)i : VICE_STATUS;
        fake[i] = fake_new(vice);
        len += snprintf(roots + len, sizeof(roots) - (size_t)len, ",%s",
                        fake_address(fake[i]));
    }
    struct weir *weir = limiter_ready(roots, NULL);
    UNTIL(take(weir, "good") == WEIR_LIMITED);
    assert_int_equal(weir_sync(weir, GUARD), 0);
    weir_close(weir);
    for (int i = 0; i < 7; i++)
        fake_free(fake[i]);
    root_free(&root);
}

/* ---- Roots that fail ---- */

static bool is_stale(struct weir *weir)
{
    return limiter_status(weir).stale;
}

/* On a busy machine a limiter that takes its root for dead soon may report this
 * at any time; but only once each time, followed by one report that the root
 * answers again. */
static void dead_root_comes_back(void **state)
{
    (void)state;
    struct seen seen;
    struct root root;
    root_make_soon_stale(&root);
    root_set(&root, "q",
             "{\"limit\": \"1/h\", \"high_burst\": \"1000\","
             " \"on_stale\": \"limit\"}");
    struct weir *weir = limiter_ready(root.address, &seen);
    UNTIL(limiter_knows(weir, "q"));
    for (unsigned round = 1; round <= 2; round++) {
        /* Only when earlier takes are answered: until then a stop is in
         * force. */
        UNTIL(take(weir, "q") == WEIR_PASSED);
        unsigned lost = seen_count(&seen, WEIR_EVENT_ROOT_DOWN);
        root_kill(&root, round == 1 ? SIGKILL : SIGTERM);
        UNTIL(seen_count(&seen, WEIR_EVENT_ROOT_DOWN) > lost);
        UNTIL(is_stale(weir));
        assert_int_equal(take(weir, "q"), WEIR_LIMITED);
        UNTIL(seen_count(&seen, WEIR_EVENT_STALE) >= round);
        unsigned fresh = seen_count(&seen, WEIR_EVENT_FRESH);
        root_start(&root);
        UNTIL(seen_count(&seen, WEIR_EVENT_FRESH) > fresh);
        UNTIL(take(weir, "q") == WEIR_PASSED);
        UNTIL(limiter_status(weir).roots_up == 1);
    }
    root_kill(&root, SIGKILL);
    UNTIL(is_stale(weir));
    weir_close(weir);
    assert_int_equal(seen_count(&seen, WEIR_EVENT_STALE),
                     seen_count(&seen, WEIR_EVENT_FRESH) + 1);
    root_free(&root);
}

static struct {
    struct weir *weir;
    uint32_t closed; /* atomic */
} closing;

static void *close_it(void *context)
{
    (void)context;
    weir_close(closing.weir);
    weir_store(&closing.closed, 1u);
    return NULL;
}

/* It ends, though the root is silent and no end closes. (WEIR_CLOSE_PATIENCE
 * bounds it at 100 ms; a busy machine needs longer.) */
static void stopped_root_is_stale_and_closing_is_bounded(void **state)
{
    (void)state;
    struct seen seen;
    struct root root;
    pthread_t thread;
    root_make_soon_stale(&root);
    root_set(&root, "q", "{\"limit\": \"1/min\", \"high_burst\": \"1000\"}");
    struct weir *weir = limiter_ready(root.address, &seen);
    UNTIL(limiter_knows(weir, "q"));
    assert_int_equal(kill(root.pid, SIGSTOP), 0);
    assert_int_equal(PATIENTLY(waitpid(root.pid, NULL, WUNTRACED)), root.pid);
    for (int i = 0; i < 100; i++)
        take(weir, "q");
    assert_int_equal(weir_sync(weir, 50 * WEIR_MILLISECOND), WEIR_ETIMEOUT);
    UNTIL(seen_count(&seen, WEIR_EVENT_STALE) > 0 && is_stale(weir));
    take(weir, "q");
    closing.weir = weir;
    closing.closed = 0;
    assert_int_equal(pthread_create(&thread, NULL, close_it, NULL), 0);
    UNTIL(weir_load(&closing.closed));
    PATIENTLY(pthread_join(thread, NULL));
    assert_int_equal(kill(root.pid, SIGCONT), 0);
    root_free(&root);
}

static void another_store_beside_ours_is_refused(void **state)
{
    (void)state;
    struct seen seen;
    struct root ours, other;
    root_make(&ours);
    root_make(&other);
    root_set(&ours, "q", "{\"limit\": \"0/s\"}");
    struct weir *weir;
    char roots[80];
    snprintf(roots, sizeof(roots), "%s,%s", ours.address, other.address);
    root_kill(&other, SIGKILL);
    weir = limiter_ready(roots, &seen);
    UNTIL(take(weir, "q") == WEIR_LIMITED);
    root_start(&other);
    UNTIL(seen_count(&seen, WEIR_EVENT_STORE_CHANGED) >= 1);
    UNTIL(seen_count(&seen, WEIR_EVENT_ROOT_DOWN) >= 2);
    assert_int_equal(take(weir, "q"), WEIR_LIMITED);
    assert_int_equal(limiter_status(weir).roots_up, 1);
    /* As the only root its store is now in force. */
    root_kill(&ours, SIGKILL);
    UNTIL(limiter_status(weir).roots_up == 1 && !limiter_knows(weir, "q"));
    assert_int_equal(take(weir, "q"), WEIR_PASSED);
    assert_int_equal(seen_count(&seen, WEIR_EVENT_STORE_CHANGED), 1);
    weir_close(weir);
    root_free(&ours);
    root_free(&other);
}

static void restored_store_rules(void **state)
{
    (void)state;
    struct root root;
    root_make(&root);
    root_set(&root, "kept", "{\"limit\": \"10/s\"}");
    root_kill(&root, SIGTERM);
    root_save(&root);
    root_start(&root);
    struct weir *weir = limiter_ready(root.address, NULL);
    root_set(&root, "kept", "{\"limit\": \"0/s\"}");
    root_set(&root, "gone", "{\"limit\": \"0/s\"}");
    UNTIL(take(weir, "gone") == WEIR_LIMITED);
    UNTIL(take(weir, "kept") == WEIR_LIMITED);
    uint64_t epoch = limiter_status(weir).epoch;
    root_kill(&root, SIGTERM);
    root_restore(&root);
    root_start(&root);
    UNTIL(take(weir, "gone") == WEIR_PASSED);
    UNTIL(take(weir, "kept") == WEIR_PASSED);
    assert_compare(limiter_status(weir).epoch, <, epoch);
    root_set(&root, "new", "{\"limit\": \"0/s\"}");
    UNTIL(take(weir, "new") == WEIR_LIMITED);
    weir_close(weir);
    root_free(&root);
}

static void no_broken_pipe_was_signalled(void **state)
{
    (void)state;
    assert_int_equal(weir_load_acquire(&broken_pipes), 0);
}

int main(void)
{
    signal(SIGPIPE, on_broken_pipe);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roots_that_close_are_tried_again),
        cmocka_unit_test(what_is_not_http2_is_told),
        cmocka_unit_test(messages_that_are_none_are_told),
        cmocka_unit_test(too_long_messages_are_refused),
        cmocka_unit_test(other_versions_are_told),
        cmocka_unit_test(calls_that_end_are_begun_again),
        cmocka_unit_test(flapping_is_damped),
        cmocka_unit_test(silence_is_borne),
        cmocka_unit_test(one_good_root_is_enough),
        cmocka_unit_test(dead_root_comes_back),
        cmocka_unit_test(stopped_root_is_stale_and_closing_is_bounded),
        cmocka_unit_test(another_store_beside_ours_is_refused),
        cmocka_unit_test(restored_store_rules),
        cmocka_unit_test(no_broken_pipe_was_signalled),
    };
    return cmocka_run_group_tests(tests, begin_attempts, NULL);
}
