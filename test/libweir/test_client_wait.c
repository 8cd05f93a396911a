/* SPDX-License-Identifier: MIT
 * test_client_wait.c - callers that wait for a permit: in which order, in which
 * quota's queue, for how long; and that no caller is woken in vain. Threads,
 * without a root. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "compare.h"
#include "core/base/atomic.h"
#include "core/base/rng.h"
#include "core/table/table_bucket_state_internal.h"
#include "io/clock.h"
#include "libweir/libweir_internal.h"
#include "patience.h"
#include "table_maker.h"

#define MS WEIR_MILLISECOND
#define GUARD (60 * WEIR_SECOND) /* allows for a busy machine */
#define WAITERS 10

/* The request that a thread waits with, and its outcome. */
struct waiter {
    struct weir_handle quota;
    uint32_t klass;
    uint64_t weight;
    int64_t priority;
    weir_duration wait_max;
    pthread_t thread;
    uint32_t done; /* 1 + verdict; atomic */
    bool named;    /* the oracle says: admitted */
    struct weir_permit permit;
    struct weir_reply reply;
};

static struct weir *open_alone(void)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir *weir;
    assert_int_equal(weir_open(&options, &weir), 0);
    return weir;
}

static struct weir_handle define(struct weir *weir, const char *name,
                                 const char *const *rest)
{
    char named[64], why[256] = "";
    const char *fields[12] = { named };
    size_t count = 1;
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
#define LOCAL "kind=concurrency", "sharing=local"

static uint32_t waiting(struct weir *weir)
{
    struct weir_status status;
    weir_status(weir, &status);
    return status.waiting;
}

static uint64_t woken(struct weir *weir)
{
    pthread_mutex_lock(&weir->waiting.mutex);
    uint64_t count = weir->waiting.woken;
    pthread_mutex_unlock(&weir->waiting.mutex);
    return count;
}

/* The number of callers in the wait queues. The status also counts callers that
 * are just entering or leaving a queue. */
static uint32_t standing(struct weir *weir)
{
    pthread_mutex_lock(&weir->waiting.mutex);
    uint32_t count = weir->waiting.standing;
    pthread_mutex_unlock(&weir->waiting.mutex);
    return count;
}

/* The number of callers that have come to wait so far and were queued. */
static uint64_t came(struct weir *weir)
{
    pthread_mutex_lock(&weir->waiting.mutex);
    uint64_t count = weir->waiting.tickets;
    pthread_mutex_unlock(&weir->waiting.mutex);
    return count;
}

/* Time between two checks of a condition. */
static const struct timespec moment = { .tv_nsec = 20000 };
#define AWAIT(WHAT)                   \
    do {                              \
        while (STILL(!(WHAT)))        \
            nanosleep(&moment, NULL); \
    } while (0)

static void *wait_to_enter(void *context)
{
    struct waiter *waiter = context;
    enum weir_verdict verdict = weir_enter_wait(
        waiter->quota, waiter->klass, waiter->weight, waiter->priority,
        waiter->wait_max, &waiter->permit, &waiter->reply);
    weir_store(&waiter->done, 1 + (uint32_t)verdict);
    return NULL;
}

/* Begins to wait; returns when the waiter is or was in a queue. (Another caller
 * may leave the queue meanwhile.) */
static void begin(struct weir *weir, struct waiter *waiter)
{
    uint64_t before = came(weir);
    waiter->weight = waiter->weight ? waiter->weight : 1;
    waiter->wait_max = waiter->wait_max ? waiter->wait_max : WEIR_NEVER;
    waiter->done = 0;
    assert_int_equal(
        pthread_create(&waiter->thread, NULL, wait_to_enter, waiter), 0);
    AWAIT(came(weir) > before || weir_load(&waiter->done) != 0);
}

static bool is_in(struct waiter *waiter)
{
    return weir_load(&waiter->done) == 1 + WEIR_PASSED;
}

/* Waits until the waiter is let in. */
static void await_in(struct waiter *waiter)
{
    AWAIT(is_in(waiter));
    PATIENTLY(pthread_join(waiter->thread, NULL));
}

static void leave(struct weir_permit *permit)
{
    weir_leave(permit, WEIR_PERMIT_SUCCESS, 0);
}

static bool enters(struct weir_handle quota, uint32_t klass,
                   struct weir_permit *out)
{
    return weir_enter(quota, klass, 1, out, NULL, 0) == WEIR_PASSED;
}

/* ---- Fields ---- */

static void test_what_is_said_wrongly(void **state)
{
    (void)state;
    static const struct {
        const char *sharing, *field, *sentence;
    } wrong[] = {
        { "sharing=exact", "queue=lifo", "that isn't exact only" },
        { "sharing=local", "queue=random", "fifo, lifo, priority" },
        { "sharing=local", "queue_max=0", "from 1 to" },
        { "sharing=local", "queue_max=1000001", "1 to 1000000" },
    };
    struct weir *weir = open_alone();
    for (unsigned i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        const char *const fields[] = { "name=a",       "kind=concurrency",
                                       "limit=1",      wrong[i].sharing,
                                       wrong[i].field, NULL };
        char why[256] = "";
        assert_compare(weir_define(weir, fields, why, sizeof(why)), <, 0);
        if (!strstr(why, wrong[i].sentence))
            fail_msg("%s", why);
    }
    weir_close(weir);
}

/* ---- Locks ---- */

/* A waiter in a queue, below a window whose lock a thread has lost its
 * processor with: it goes by when_locked, and isn't forgotten. */
static void test_a_lock_above_a_queue(void **state)
{
    (void)state;
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir *weir;
    options.when_locked = WEIR_LOCKED_PASSES;
    assert_int_equal(weir_open(&options, &weir), 0);
    struct weir_handle log = DEFINE(weir, "log", "sharing=local", "limit=9/h",
                                    "algorithm=fixed_window");
    struct weir_handle db = DEFINE(weir, "db", LOCAL, "limit=1", "parent=log");
    struct weir_permit permit;
    struct waiter waiter = { .quota = db };
    assert_true(enters(db, 0, &permit));
    begin(weir, &waiter);
    AWAIT(standing(weir) == 1);
    AWAIT(weir_bucket_state_lock(weir->table, log.slot, 0, 0));
    leave(&permit);
    await_in(&waiter);
    assert_true(waiter.reply.contended);
    (void)weir_bucket_state_unlock(weir->table, log.slot);
    leave(&waiter.permit);
    weir_close(weir);
}

/* ---- Orders ---- */

/* Five callers come one after the other, with these priorities; then one permit
 * at a time is given back. */
static void check_order(const char *queue, const unsigned *order)
{
    static const int64_t priorities[] = { 1, 5, -3, 5, 2 };
    struct weir *weir = open_alone();
    struct weir_handle db = DEFINE(weir, "db", LOCAL, "limit=1", queue);
    struct weir_permit permit;
    struct waiter waiter[5] = { { .done = 0 } };
    assert_true(enters(db, 0, &permit));
    for (unsigned i = 0; i < 5; i++) {
        waiter[i].quota = db;
        waiter[i].priority = priorities[i];
        begin(weir, &waiter[i]);
    }
    assert_int_equal(waiting(weir), 5);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(woken(weir), i);
        leave(&permit);
        /* The leave handed the permit over: no other caller can take it. */
        assert_int_equal(woken(weir), i + 1);
        assert_false(enters(db, 0, &permit));
        await_in(&waiter[order[i]]);
        permit = waiter[order[i]].permit;
        assert_compare(waiter[order[i]].reply.wait, >, 0);
    }
    leave(&permit);
    assert_int_equal(woken(weir), 5);
    assert_true(enters(db, 0, &permit));
    leave(&permit);
    weir_close(weir);
}

static void test_orders(void **state)
{
    (void)state;
    check_order("queue=fifo", (unsigned[]){ 0, 1, 2, 3, 4 });
    check_order("queue=lifo", (unsigned[]){ 4, 3, 2, 1, 0 });
    check_order("queue=priority", (unsigned[]){ 1, 3, 4, 0, 2 });
}

/* ---- Limits that grow and shrink ---- */

static void test_a_limit_that_shrinks(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    struct weir_handle db = DEFINE(weir, "db", LOCAL, "limit=3");
    struct weir_permit permit[3];
    struct waiter waiter = { .quota = db };
    for (unsigned i = 0; i < 3; i++)
        assert_true(enters(db, 0, &permit[i]));
    begin(weir, &waiter);
    DEFINE(weir, "db", LOCAL, "limit=1");
    leave(&permit[0]);
    leave(&permit[1]);
    assert_int_equal(woken(weir), 0);
    leave(&permit[2]);
    assert_int_equal(woken(weir), 1);
    await_in(&waiter);
    leave(&waiter.permit);
    weir_close(weir);
}

static void test_a_limit_that_grows(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    struct weir_handle db = DEFINE(weir, "db", LOCAL, "limit=1");
    struct weir_permit permit;
    struct waiter waiter[4] = { { .quota = db } };
    assert_true(enters(db, 0, &permit));
    for (unsigned i = 0; i < 4; i++) {
        waiter[i].quota = db;
        begin(weir, &waiter[i]);
    }
    DEFINE(weir, "db", LOCAL, "limit=3");
    await_in(&waiter[0]);
    await_in(&waiter[1]);
    assert_int_equal(standing(weir), 2);
    assert_int_equal(woken(weir), 2);
    /* Off: no caller has to wait for anything. */
    DEFINE(weir, "db", LOCAL, "limit=3", "mode=off");
    await_in(&waiter[2]);
    await_in(&waiter[3]);
    weir_close(weir);
}

/* ---- Bounds on time and number ---- */

static void test_a_deadline(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    struct weir_handle db = DEFINE(weir, "db", LOCAL, "limit=2");
    struct weir_permit permit, other;
    struct weir_reply reply;
    assert_true(enters(db, 0, &permit));
    struct waiter heavy = { .quota = db, .weight = 2, .wait_max = 200 * MS };
    struct waiter light = { .quota = db };
    begin(weir, &heavy);
    begin(weir, &light);
    /* The second one would fit, but waits behind the first until there is
     * enough for that. */
    AWAIT(weir_load(&heavy.done) != 0);
    PATIENTLY(pthread_join(heavy.thread, NULL));
    assert_int_equal(heavy.done, 1 + WEIR_LIMITED);
    assert_compare(heavy.reply.wait, >=, 200 * MS);
    assert_compare(heavy.reply.retry_after, >, 0);
    await_in(&light);
    leave(&heavy.permit); /* holds nothing */
    assert_false(enters(db, 0, &other));
    /* With a wait of 0 it is a plain enter. */
    assert_int_equal(weir_enter_wait(db, 0, 1, 0, 0, &other, &reply),
                     WEIR_LIMITED);
    leave(&light.permit);
    assert_int_equal(weir_enter_wait(db, 0, 1, 0, 0, &other, &reply),
                     WEIR_PASSED);
    leave(&other);
    /* A weight that never fits doesn't wait. */
    assert_int_equal(
        PATIENTLY(weir_enter_wait(db, 0, 3, 0, WEIR_NEVER, &other, &reply)),
        WEIR_LIMITED);
    assert_true(reply.never);
    leave(&permit);
    weir_close(weir);
}

static void test_a_full_queue(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    struct weir_handle db = DEFINE(weir, "db", LOCAL, "limit=1", "queue_max=1");
    struct weir_permit permit, other;
    struct weir_reply reply;
    struct waiter waiter = { .quota = db };
    assert_true(enters(db, 0, &permit));
    begin(weir, &waiter);
    assert_int_equal(
        PATIENTLY(weir_enter_wait(db, 0, 1, 0, WEIR_NEVER, &other, &reply)),
        WEIR_LIMITED);
    assert_string_equal(reply.quota, "db");
    leave(&permit);
    await_in(&waiter);
    leave(&waiter.permit);
    weir_close(weir);
}

/* A caller that waits and can never fit since an edit blocks no other
 * caller. */
static void test_what_fits_no_more(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    struct weir_handle db = DEFINE(weir, "db", LOCAL, "limit=3");
    struct weir_permit permit;
    assert_true(enters(db, 0, &permit));
    struct waiter heavy = { .quota = db, .weight = 3 };
    begin(weir, &heavy);
    DEFINE(weir, "db", LOCAL, "limit=2");
    AWAIT(weir_load(&heavy.done) != 0);
    PATIENTLY(pthread_join(heavy.thread, NULL));
    assert_int_equal(heavy.done, 1 + WEIR_LIMITED);
    assert_true(heavy.reply.never);
    leave(&permit);
    weir_close(weir);
}

/* ---- Classes ---- */

static void test_shares_are_kept(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    struct weir_handle db = DEFINE(
        weir, "db", "kind=concurrency", "sharing=adaptive", "controller=none",
        "max=4", "classes=sync:50%,bulk,seen:observed");
    uint32_t bulk = weir_class("bulk", 4), sync = weir_class("sync", 4);
    struct weir_permit held[4], own[3], seen;
    struct waiter waiter[2] = { { .quota = db, .klass = bulk },
                                { .quota = db, .klass = sync } };
    for (unsigned i = 0; i < 4; i++)
        assert_true(enters(db, bulk, &held[i]));
    begin(weir, &waiter[0]);
    /* Bulk doesn't wait for permits of sync's own share, but it does for those
     * that sync would borrow. */
    assert_true(enters(db, sync, &own[0]));
    assert_true(enters(db, sync, &own[1]));
    assert_false(enters(db, sync, &own[2]));
    assert_true(enters(db, weir_class("seen", 4), &seen));
    leave(&seen);
    begin(weir, &waiter[1]);
    /* This permit is of sync's own share, so sync gets it though bulk came
     * first. */
    leave(&own[0]);
    await_in(&waiter[1]);
    assert_int_equal(standing(weir), 1);
    leave(&held[0]); /* five are in flight */
    leave(&held[1]);
    assert_int_equal(woken(weir), 1);
    leave(&own[1]);
    await_in(&waiter[0]);
    assert_int_equal(woken(weir), 2);
    weir_close(weir);
}

/* A limit below one: one permit at a time, and a pause after each that no leave
 * ends. */
static void test_a_fraction(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    struct weir_handle db =
        DEFINE(weir, "db", "kind=concurrency", "sharing=adaptive", "target=1s",
               "min=0.5", "max=0.5");
    struct waiter waiter = { .quota = db };
    struct weir_permit permit;
    for (unsigned i = 0; i < 3; i++) {
        weir_instant now = weir_clock_now();
        assert_int_equal(weir_enter_wait(db, 0, 1, 0, GUARD, &permit, NULL),
                         WEIR_PASSED);
        weir_leave(&permit, WEIR_PERMIT_SUCCESS, now + 100 * MS);
    }
    begin(weir, &waiter);
    await_in(&waiter);
    weir_close(weir);
}

/* ---- Chains ---- */

static void test_chains(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    DEFINE(weir, "all", LOCAL, "limit=2");
    struct weir_handle a = DEFINE(weir, "a", LOCAL, "limit=1", "parent=all");
    struct weir_handle b = DEFINE(weir, "b", LOCAL, "limit=2", "parent=all");
    struct weir_permit in_a, in_b, other;
    assert_true(enters(a, 0, &in_a));
    assert_true(enters(b, 0, &in_b));
    /* The first waits at 'a', the others at their common parent. */
    struct waiter waiter[3] = { { .quota = a },
                                { .quota = b },
                                { .quota = b } };
    for (unsigned i = 0; i < 3; i++)
        begin(weir, &waiter[i]);
    leave(&in_b);
    await_in(&waiter[1]);
    assert_int_equal(standing(weir), 2);
    /* There is room at 'a', but at the parent those that wait there come first.
     * The first now waits there, too. */
    leave(&in_a);
    await_in(&waiter[2]);
    assert_int_equal(standing(weir), 1);
    assert_false(enters(b, 0, &other));
    DEFINE(weir, "a", LOCAL, "limit=0", "parent=all");
    /* Since this edit it never fits at 'a'; it was refused. */
    AWAIT(weir_load(&waiter[0].done) == 1 + WEIR_LIMITED);
    PATIENTLY(pthread_join(waiter[0].thread, NULL));
    DEFINE(weir, "a", LOCAL, "limit=1", "parent=all");
    begin(weir, &waiter[0]);
    leave(&waiter[1].permit);
    await_in(&waiter[0]);
    assert_int_equal(woken(weir), 4);
    weir_close(weir);
}

/* The first of its own queue doesn't overtake those that wait further up. */
static void test_nobody_is_overtaken_above(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    DEFINE(weir, "all", LOCAL, "limit=4");
    struct weir_handle a = DEFINE(weir, "a", LOCAL, "limit=1", "parent=all");
    struct weir_handle b = DEFINE(weir, "b", LOCAL, "limit=8", "parent=all");
    struct weir_permit in_a, in_b[2];
    assert_true(enters(a, 0, &in_a));
    assert_true(enters(b, 0, &in_b[0]));
    assert_true(enters(b, 0, &in_b[1]));
    static struct waiter heavy, light; /* outlive a failure */
    heavy = (struct waiter){ .quota = b, .weight = 3 };
    light = (struct waiter){ .quota = a };
    begin(weir, &heavy); /* at 'all' */
    begin(weir, &light); /* at 'a' */
    leave(&in_a);
    assert_int_equal(standing(weir), 2);
    leave(&in_b[0]);
    await_in(&heavy);
    assert_int_equal(standing(weir), 1);
    leave(&in_b[1]);
    await_in(&light);
    weir_close(weir);
}

static void test_rates(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    DEFINE(weir, "rate", "sharing=local", "limit=20/s", "low_burst=1",
           "high_burst=1");
    struct weir_handle db = DEFINE(weir, "db", LOCAL, "limit=2", "parent=rate");
    struct weir_handle rate;
    struct weir_permit permit[3];
    struct weir_reply reply;
    assert_int_equal(weir_handle_open(weir, "rate", 4, &rate), 0);
    weir_instant before = weir_clock_now();
    assert_int_equal(weir_enter_wait(db, 0, 1, 0, GUARD, &permit[0], NULL),
                     WEIR_PASSED);
    assert_int_equal(weir_enter_wait(db, 0, 1, 0, GUARD, &permit[1], &reply),
                     WEIR_PASSED);
    weir_duration both = weir_clock_now() - before;
    assert_in_range(both, 50 * MS, GUARD);
    assert_in_range(reply.wait, 0, both);
    before = weir_clock_now();
    assert_int_equal(weir_enter_wait(db, 0, 1, 0, 60 * MS, &permit[2], &reply),
                     WEIR_LIMITED);
    assert_in_range(reply.wait, 60 * MS, weir_clock_now() - before);
    /* In a chain without kind concurrency it is a weir_wait(). */
    assert_int_equal(weir_enter_wait(rate, 0, 1, 0, GUARD, &permit[2], &reply),
                     WEIR_PASSED);
    leave(&permit[2]);
    struct weir_handle none = { .weir = NULL };
    assert_int_equal(weir_enter_wait(none, 0, 1, 0, 0, &permit[2], &reply),
                     WEIR_PASSED);
    assert_true(reply.unknown);
    weir_close(weir);
}

/* A leave makes room for one caller, then a rate refuses. Callers that the rate
 * would refuse aren't woken, they keep no other caller out, and when the rate
 * has room they are let in in their order. */
static void test_a_rate_wakes_nobody(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    DEFINE(weir, "db", LOCAL, "limit=1");
    struct weir_handle slow =
        DEFINE(weir, "slow", "sharing=local", "limit=1/h", "low_burst=2",
               "high_burst=2", "parent=db");
    struct weir_handle free =
        DEFINE(weir, "free", LOCAL, "limit=9", "parent=db");
    struct weir_permit permit;
    static struct waiter waiter[6]; /* outlive a failure */
    memset(waiter, 0, sizeof(waiter));
    waiter[1].wait_max = 300 * MS;
    assert_true(enters(slow, 0, &permit));
    for (unsigned i = 0; i < 6; i++) {
        waiter[i].quota = slow;
        begin(weir, &waiter[i]);
    }
    leave(&permit); /* and with it goes the last unit of the hour */
    await_in(&waiter[0]);
    assert_int_equal(woken(weir), 1);
    leave(&waiter[0].permit);
    assert_int_equal(woken(weir), 1);
    assert_true(enters(free, 0, &permit));
    leave(&permit);
    AWAIT(weir_load(&waiter[1].done) == 1 + WEIR_LIMITED); /* too late */
    PATIENTLY(pthread_join(waiter[1].thread, NULL));
    DEFINE(weir, "slow", "sharing=local", "limit=unlimited", "parent=db");
    for (unsigned i = 2; i < 6; i++) {
        await_in(&waiter[i]);
        assert_int_equal(woken(weir), i);
        leave(&waiter[i].permit);
    }
    assert_int_equal(standing(weir), 0);
    weir_close(weir);
}

/* A caller that a rate refuses doesn't block those behind it. It is tried again
 * when the rate has room, though no caller leaves then. */
static void test_who_stands_behind_a_rate(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    DEFINE(weir, "db", LOCAL, "limit=1");
    struct weir_handle slow =
        DEFINE(weir, "slow", "sharing=local", "limit=1/h", "low_burst=2",
               "high_burst=2", "parent=db");
    struct weir_handle other =
        DEFINE(weir, "other", LOCAL, "limit=9", "parent=db");
    struct weir_permit permit;
    static struct waiter waiter[3];
    memset(waiter, 0, sizeof(waiter));
    waiter[0].quota = waiter[1].quota = slow;
    waiter[2].quota = other;
    assert_true(enters(slow, 0, &permit));
    for (unsigned i = 0; i < 3; i++)
        begin(weir, &waiter[i]);
    leave(&permit);
    await_in(&waiter[0]);
    leave(&waiter[0].permit);
    await_in(&waiter[2]);
    assert_int_equal(woken(weir), 2);
    leave(&waiter[2].permit);
    assert_int_equal(standing(weir), 1);
    DEFINE(weir, "slow", "sharing=local", "limit=20/s", "low_burst=2",
           "high_burst=2", "parent=db");
    await_in(&waiter[1]);
    leave(&waiter[1].permit);
    weir_close(weir);
}

/* A weight that is too much for a rate blocks only that weight, not lighter
 * ones. */
static void test_a_light_one_behind_a_rate(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    struct weir_handle db = DEFINE(weir, "db", LOCAL, "limit=8");
    struct weir_handle slow =
        DEFINE(weir, "slow", "sharing=local", "limit=1/h", "low_burst=10",
               "high_burst=10", "parent=db");
    struct weir_permit permit;
    static struct waiter heavy, light;
    heavy = (struct waiter){ .quota = slow, .weight = 8 };
    light = (struct waiter){ .quota = slow };
    assert_int_equal(weir_enter(db, 0, 8, &permit, NULL, 0), WEIR_PASSED);
    begin(weir, &heavy);
    begin(weir, &light);
    weir_charge(slow, 5, 0);
    leave(&permit);
    await_in(&light);
    assert_false(is_in(&heavy));
    leave(&light.permit);
    DEFINE(weir, "slow", "sharing=local", "limit=20/s", "low_burst=10",
           "high_burst=10", "parent=db");
    await_in(&heavy);
    leave(&heavy.permit);
    weir_close(weir);
}

/* A caller that is let in at its own quota, but not further up, waits further
 * up if that queue has a place left. */
static void test_a_full_queue_above(void **state)
{
    (void)state;
    struct weir *weir = open_alone();
    DEFINE(weir, "all", LOCAL, "limit=4", "queue_max=1");
    struct weir_handle a = DEFINE(weir, "a", LOCAL, "limit=1", "parent=all");
    struct weir_handle b = DEFINE(weir, "b", LOCAL, "limit=8", "parent=all");
    struct weir_permit in_a, in_b[2];
    assert_true(enters(a, 0, &in_a));
    assert_true(enters(b, 0, &in_b[0]));
    assert_true(enters(b, 0, &in_b[1]));
    static struct waiter heavy, light;
    heavy = (struct waiter){ .quota = b, .weight = 3 };
    light = (struct waiter){ .quota = a };
    begin(weir, &heavy); /* at 'all' */
    begin(weir, &light); /* at 'a' */
    leave(&in_a);
    AWAIT(weir_load(&light.done) == 1 + WEIR_LIMITED);
    PATIENTLY(pthread_join(light.thread, NULL));
    assert_string_equal(light.reply.quota, "all");
    assert_int_equal(standing(weir), 1);
    leave(&in_b[0]);
    await_in(&heavy);
    weir_close(weir);
}

/* ---- Histories ---- */

struct oracle {
    enum weir_wait_queue_order order;
    uint64_t limit, held;
    struct waiter waiter[WAITERS];
    uint64_t ticket[WAITERS]; /* 0: doesn't wait */
    uint64_t tickets;
};

static bool is_before(const struct oracle *oracle, unsigned a, unsigned b)
{
    int64_t first = oracle->waiter[a].priority;
    int64_t second = oracle->waiter[b].priority;
    if (oracle->order == WEIR_WAIT_QUEUE_PRIORITY && first != second)
        return first > second;
    bool earlier = oracle->ticket[a] < oracle->ticket[b];
    return oracle->order == WEIR_WAIT_QUEUE_LIFO ? !earlier : earlier;
}

/* Lets in the next waiter of the order, again and again, until one doesn't
 * fit. */
static void oracle_serves(struct oracle *oracle)
{
    for (;;) {
        unsigned next = WAITERS;
        for (unsigned i = 0; i < WAITERS; i++) {
            bool stands = oracle->ticket[i] != 0 && !oracle->waiter[i].named;
            if (stands && (next == WAITERS || is_before(oracle, i, next)))
                next = i;
        }
        if (next == WAITERS ||
            oracle->held + oracle->waiter[next].weight > oracle->limit)
            return;
        oracle->held += oracle->waiter[next].weight;
        oracle->waiter[next].named = true;
    }
}

static void edit(struct weir *weir, const struct oracle *oracle)
{
    static const char *const queues[] = { "", "queue=fifo", "queue=lifo",
                                          "queue=priority" };
    char limit[32];
    snprintf(limit, sizeof(limit), "limit=%u", (unsigned)oracle->limit);
    struct weir_handle again =
        DEFINE(weir, "db", LOCAL, limit, queues[oracle->order]);
    weir_handle_close(again);
}

static void come(struct weir *weir, struct oracle *oracle, unsigned i,
                 struct weir_rng *rng)
{
    struct waiter *waiter = &oracle->waiter[i];
    struct weir_handle quota = waiter->quota;
    *waiter = (struct waiter){
        .quota = quota,
        .weight = 1 + weir_rng_below(rng, 3),
        .priority = (int64_t)weir_rng_below(rng, 3),
    };
    oracle->ticket[i] = ++oracle->tickets;
    oracle_serves(oracle);
    if (!waiter->named) {
        begin(weir, waiter);
        return;
    }
    /* This caller is let in at once and no other: none of those that waited
     * before fits. */
    assert_int_equal(
        PATIENTLY(weir_enter_wait(quota, 0, waiter->weight, waiter->priority,
                                  WEIR_NEVER, &waiter->permit, NULL)),
        WEIR_PASSED);
    waiter->done = 1 + WEIR_PASSED;
    waiter->thread = pthread_self();
}

static void go(struct oracle *oracle, unsigned i)
{
    struct waiter *waiter = &oracle->waiter[i];
    oracle->held -= waiter->weight;
    oracle->ticket[i] = 0;
    waiter->named = false;
    oracle_serves(oracle);
    leave(&waiter->permit);
}

/* Exactly those are in that the oracle names. */
static void compare(struct weir *weir, struct oracle *oracle)
{
    uint32_t stand = 0;
    for (unsigned i = 0; i < WAITERS; i++) {
        struct waiter *waiter = &oracle->waiter[i];
        stand += oracle->ticket[i] != 0 && !waiter->named;
        if (oracle->ticket[i] == 0 || !waiter->named)
            continue;
        AWAIT(is_in(waiter));
        if (waiter->thread != pthread_self()) {
            PATIENTLY(pthread_join(waiter->thread, NULL));
            waiter->thread = pthread_self();
        }
    }
    assert_int_equal(standing(weir), stand);
}

static void test_histories(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("wait");
    struct weir *weir = open_alone();
    struct oracle oracle = { .order = WEIR_WAIT_QUEUE_FIFO, .limit = 4 };
    struct weir_handle db = DEFINE(weir, "db", LOCAL, "limit=4");
    for (unsigned i = 0; i < WAITERS; i++)
        oracle.waiter[i].quota = db;
    for (unsigned step = 0; step < 1500; step++) {
        unsigned i = (unsigned)weir_rng_below(&rng, WAITERS);
        if (weir_rng_below(&rng, 20) == 0) {
            /* One after the other: a caller that serves in between would let in
             * as many as the new limit allows, but in the old order. */
            uint64_t limit = 3 + weir_rng_below(&rng, 4);
            oracle.order =
                1 + (enum weir_wait_queue_order)weir_rng_below(&rng, 3);
            edit(weir, &oracle);
            oracle_serves(&oracle);
            compare(weir, &oracle);
            oracle.limit = limit;
            edit(weir, &oracle);
            oracle_serves(&oracle);
        } else if (oracle.ticket[i] == 0) {
            come(weir, &oracle, i, &rng);
        } else if (oracle.waiter[i].named) {
            go(&oracle, i);
        }
        compare(weir, &oracle);
    }
    oracle.limit = 1000;
    edit(weir, &oracle);
    oracle_serves(&oracle);
    compare(weir, &oracle);
    weir_close(weir);
}

/* ---- Races ---- */

#define RACERS 6
#define ROUNDS 400 /* unless WEIR_ROUNDS is set */
#define ROOM 2

static unsigned rounds_wanted(void)
{
    const char *said = getenv("WEIR_ROUNDS");
    return said ? (unsigned)strtoul(said, NULL, 10) : ROUNDS;
}

struct race {
    struct weir_handle quota;
    unsigned rounds;       /* of each thread */
    uint32_t in;           /* atomic */
    uint32_t seed;         /* atomic */
    uint64_t late, served; /* atomic */
};

/* Waits not at all, for about as long as a hand-over takes, or until it is let
 * in; then holds the permit for a moment. */
static void *race(void *context)
{
    struct race *all = context;
    struct weir_rng rng = { weir_fetch_add(&all->seed, 1) };
    for (unsigned i = 0; i < all->rounds; i++) {
        static const weir_duration patience[] = { 0, 20000, 100000,
                                                  WEIR_NEVER };
        struct weir_permit permit;
        enum weir_verdict verdict =
            weir_enter_wait(all->quota, 0, 1, (int64_t)i % 3,
                            patience[weir_rng_below(&rng, 4)], &permit, NULL);
        if (verdict == WEIR_LIMITED) {
            weir_fetch_add(&all->late, 1);
            continue;
        }
        weir_fetch_add(&all->served, 1);
        if (weir_fetch_add(&all->in, 1) >= ROOM)
            weir_assert_failed("more are in than there is room", __FILE__,
                               __LINE__);
        for (uint64_t spin = weir_rng_below(&rng, 2000); spin > 0; spin--)
            weir_pause();
        weir_fetch_sub(&all->in, 1);
        leave(&permit);
    }
    return NULL;
}

/* Each wait ends with a permit or without one, never with both or neither: no
 * permit is lost, and none is given twice. */
static void check_race(const char *const *fields)
{
    struct weir *weir = open_alone();
    struct race all = { .quota = define(weir, "db", fields),
                        .rounds = rounds_wanted(),
                        .seed = 7 };
    pthread_t thread[RACERS];
    for (unsigned i = 0; i < RACERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, race, &all), 0);
    for (unsigned i = 0; i < RACERS; i++)
        PATIENTLY(pthread_join(thread[i], NULL));
    assert_int_equal(all.late + all.served, RACERS * all.rounds);
    assert_int_equal(standing(weir), 0);
    struct weir_permit permit[ROOM + 1];
    for (unsigned i = 0; i < ROOM; i++)
        assert_true(enters(all.quota, 0, &permit[i]));
    assert_false(enters(all.quota, 0, &permit[ROOM]));
    weir_close(weir);
}

static void test_races(void **state)
{
    (void)state;
    check_race((const char *const[]){ LOCAL, "limit=2", NULL });
    check_race((const char *const[]){ LOCAL, "limit=2", "queue=lifo", NULL });
    check_race((const char *const[]){ "kind=concurrency", "sharing=adaptive",
                                      "controller=none", "max=2", NULL });
}

/* Queues one above the other, each with another order: a caller that is sent
 * from one to the other gets in in the end, and all callers do. */
static void test_races_in_chains(void **state)
{
    (void)state;
    static const char *const queues[] = { "queue=fifo", "queue=lifo",
                                          "queue=priority" };
    for (unsigned i = 0; i < 9; i++) {
        struct weir *weir = open_alone();
        struct race all = { .rounds = rounds_wanted(), .seed = 7 };
        struct race half = { .rounds = all.rounds, .seed = 70 };
        pthread_t thread[2 * RACERS];
        DEFINE(weir, "all", LOCAL, "limit=2", queues[i % 3]);
        all.quota =
            DEFINE(weir, "a", LOCAL, "limit=2", "parent=all", queues[i / 3]);
        half.quota =
            DEFINE(weir, "b", LOCAL, "limit=1", "parent=all", queues[i / 3]);
        for (unsigned k = 0; k < 2 * RACERS; k++)
            assert_int_equal(
                pthread_create(&thread[k], NULL, race, k % 2 ? &all : &half),
                0);
        for (unsigned k = 0; k < 2 * RACERS; k++)
            PATIENTLY(pthread_join(thread[k], NULL));
        assert_int_equal(standing(weir), 0);
        assert_int_equal(weir->waiting.first_due != NULL, 0);
        weir_close(weir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_said_wrongly),
        cmocka_unit_test(test_a_lock_above_a_queue),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_a_limit_that_shrinks),
        cmocka_unit_test(test_a_limit_that_grows),
        cmocka_unit_test(test_a_deadline),
        cmocka_unit_test(test_a_full_queue),
        cmocka_unit_test(test_what_fits_no_more),
        cmocka_unit_test(test_shares_are_kept),
        cmocka_unit_test(test_a_fraction),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_nobody_is_overtaken_above),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_a_rate_wakes_nobody),
        cmocka_unit_test(test_who_stands_behind_a_rate),
        cmocka_unit_test(test_a_light_one_behind_a_rate),
        cmocka_unit_test(test_a_full_queue_above),
        cmocka_unit_test(test_histories),
        cmocka_unit_test(test_races),
        cmocka_unit_test(test_races_in_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
