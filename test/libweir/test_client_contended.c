/* SPDX-License-Identifier: MIT
 * test_client_contended.c - a process that is stopped while it has a lock of a
 * shared table, with a real root: the others decide, close, and are edited.
 *
 * The other process takes the lock by the table's own functions and stops
 * itself. Before locks were bounded, each of these tests hung for as long as it
 * stayed stopped.
 *
 * In other tests the holder is the thread that takes: a caller that finds a
 * lock taken yields first, and this file has a sched_yield() of its own. */

#include "client_world.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compare.h"
#include "core/base/atomic.h"
#include "core/table/table_bucket_state_internal.h"
#include "io/clock.h"
#include "libweir/libweir_internal.h"

#define TAKES 1000

static struct root root;
static char path[64];
static unsigned tables;

enum held { STATE, WRITER, EXACT };
struct common {
    uint32_t open; /* the holder may open the table */
    uint32_t held; /* enum held: the lock that it takes */
    uint32_t step; /* of a child of fork() and its parent, in turn */
    int64_t slept; /* how often the child's first decision did */
};
static struct common *common;
static pid_t holder;
static struct weir *weir;
static struct weir_handle kept; /* of t/old */

static int begin(void **state)
{
    (void)state;
    common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(common, MAP_FAILED);
    root_make(&root);
    root_set(&root, "log",
             "{\"limit\": \"1000000/s\", \"sharing\": \"local\","
             " \"algorithm\": \"sliding_window\"}");
    root_set(&root, "plain",
             "{\"limit\": \"1000000/s\", \"sharing\": \"local\"}");
    root_set(&root, "once",
             "{\"limit\": \"1/s\", \"sharing\": \"local\","
             " \"algorithm\": \"sliding_log\"}");
    root_set(&root, "child/*",
             "{\"limit\": \"unlimited\", \"sharing\": \"local\","
             " \"parent\": \"log\"}");
    root_set(&root, "exact",
             "{\"limit\": \"1000000/s\", \"sharing\": \"exact\"}");
    root_set(&root, "db",
             "{\"limit\": \"100\", \"kind\": \"concurrency\","
             " \"sharing\": \"local\", \"parent\": \"log\"}");
    root_set(&root, "t/*",
             "{\"limit\": \"1000000/s\", \"sharing\": \"local\"}");
    return 0;
}

static int end(void **state)
{
    (void)state;
    root_free(&root);
    return 0;
}

/* ---- The holder ---- */

static struct weir_options options_of(enum weir_table_role role)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.table = path;
    options.table_role = role;
    if (role != WEIR_TABLE_DECIDES)
        options.roots = root.address;
    return options;
}

/* Takes the lock, stops, and releases it when it goes on. */
static void hold_and_stop(struct weir *other)
{
    struct weir_table *t = other->table;
    struct weir_ref ref;
    if (common->held == WRITER) {
        UNTIL(weir_table_try_lock_as(t, other->process, 0));
        raise(SIGSTOP);
        weir_table_unlock(t);
        weir_locks_heed(other);
        return;
    }
    const char *name = common->held == EXACT ? "exact" : "log";
    assert_true(weir_table_find(t, weir_text_of(name), &ref));
    UNTIL(weir_bucket_state_lock(t, ref.slot, weir_stripe_mine(other), 0));
    raise(SIGSTOP);
    if (weir_bucket_state_unlock(t, ref.slot) & WEIR_OUTCOME_WAKE)
        weir_locks_wake(other);
}

static void run_holder(void)
{
    struct weir *other;
    patience_be_child();
    UNTIL(weir_load(&common->open));
    struct weir_options options = options_of(WEIR_TABLE_DECIDES);
    if (weir_open(&options, &other) < 0 || weir_ready(other, GUARD) < 0)
        _exit(1);
    hold_and_stop(other);
    weir_close(other);
    _exit(0);
}

static uint64_t contended_at_first;

/* Decisions since open_beside() that a lock made. */
static uint64_t contended(void)
{
    struct weir_status status;
    weir_status(weir, &status);
    return status.contended - contended_at_first;
}

/* The limiter of this process on a table in which another process has stopped
 * with that lock. */
static void open_beside(enum held held, weir_duration lock_wait,
                        enum weir_when_locked when_locked)
{
    snprintf(path, sizeof(path), "/dev/shm/weir-test-%ld-%u", (long)getpid(),
             tables++);
    *common = (struct common){ .held = held };
    holder = fork(); /* before this process has threads */
    assert_true(holder >= 0);
    if (holder == 0)
        run_holder();
    struct weir_options options = options_of(WEIR_TABLE_RUNS);
    options.lock_wait = lock_wait;
    options.when_locked = when_locked;
    assert_int_equal(weir_open(&options, &weir), 0);
    assert_int_equal(weir_ready(weir, GUARD), 0);
    /* It has a slot before the lock is taken. The limiter's own thread may have
     * the lock, for which this one may not be allowed to wait. */
    struct weir_reply reply;
    enum weir_verdict verdict;
    UNTIL((verdict = weir_take_by_name(weir, "t/old", 5, 1, &reply, 0),
           !reply.contended));
    assert_int_equal(verdict, WEIR_PASSED);
    UNTIL(weir_handle_open(weir, "t/old", 5, &kept) == 0);
    weir_store(&common->open, 1);
    int status;
    assert_int_equal(PATIENTLY(waitpid(holder, &status, WUNTRACED)), holder);
    assert_true(WIFSTOPPED(status));
    contended_at_first = 0;
    contended_at_first = contended();
}

static void go_on(void)
{
    kill(holder, SIGCONT);
    assert_int_equal(STATUS_OF(holder), 0);
    holder = 0;
}

static int close_table(void **state)
{
    (void)state;
    if (holder != 0) {
        kill(holder, SIGKILL);
        waitpid(holder, NULL, 0);
    }
    holder = 0;
    unlink(path);
    return 0;
}

/* ---- A holder that runs when the caller yields ---- */

static struct {
    void (*act)(void); /* NULL: nothing happens */
    unsigned yields;   /* of the test's thread, since yield_to() */
    struct weir_ref ref;
    weir_duration pause; /* before an unlock_…_later() */
} other;
static __thread bool is_test;

int sched_yield(void)
{
    if (is_test && other.act) {
        other.yields++;
        other.act();
    }
    return (int)syscall(SYS_sched_yield);
}

static void yield_to(void (*act)(void))
{
    is_test = true;
    other.yields = 0;
    other.act = act;
}

static void run_nothing(void)
{
}

static void pass_time(void)
{
    weir_instant until = weir_clock_now() + other.pause;
    while (weir_clock_now() < until)
        world_pause();
}

static void lock_quota(const char *name)
{
    assert_true(weir_table_find(weir->table, weir_text_of(name), &other.ref));
    UNTIL(weir_bucket_state_lock(weir->table, other.ref.slot,
                                 weir_stripe_mine(weir), 0));
}

static void unlock_quota(void)
{
    other.act = run_nothing;
    (void)weir_bucket_state_unlock(weir->table, other.ref.slot);
}

static void unlock_quota_later(void)
{
    pass_time();
    unlock_quota();
}

static void lock_table(void)
{
    UNTIL(weir_table_try_lock_as(weir->table, weir->process, 0));
}

static void unlock_table(void)
{
    other.act = run_nothing;
    weir_table_unlock(weir->table);
}

static void unlock_table_later(void)
{
    pass_time();
    unlock_table();
}

/* A limiter with a table of its own. */
static void open_alone(void)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.roots = root.address;
    assert_int_equal(weir_open(&options, &weir), 0);
    assert_int_equal(weir_ready(weir, GUARD), 0);
}

/* ---- Decisions ---- */

static enum weir_verdict take(const char *name, struct weir_reply *reply)
{
    return weir_take_by_name(weir, name, strlen(name), 1, reply, 0);
}

static uint64_t quantity_of(const char *name)
{
    struct weir_policy policy;
    return weir_policy(weir, name, strlen(name), &policy) == 0 ? policy.quantity
                                                               : 0;
}

static void a_locked_quota_limits_and_says_so(void **state)
{
    (void)state;
    struct weir_reply reply;
    open_beside(STATE, 0, WEIR_LOCKED_LIMITS);
    yield_to(run_nothing);
    for (int i = 0; i < TAKES; i++) {
        assert_int_equal(take("log", &reply), WEIR_LIMITED);
        assert_true(reply.contended);
        assert_string_equal(reply.quota, "log");
        assert_true(reply.retry_after > 0 && reply.retry_after < WEIR_SECOND);
        /* The first has waited in vain: the others don't. */
        weir->lock_wait = GUARD;
    }
    assert_int_equal(contended(), TAKES);
    /* Nor do they yield, which costs a turn of all other threads. */
    assert_true(other.yields < TAKES / 10);
    yield_to(NULL);
    assert_int_equal(take("plain", &reply), WEIR_PASSED);
    assert_false(reply.contended);
    assert_int_equal(take("t/new", NULL), WEIR_PASSED);
    go_on();
    assert_int_equal(take("log", &reply), WEIR_PASSED);
    assert_false(reply.contended);
    weir_close(weir);
}

/* An exact quota is the same: its rule is under the lock of its state. */
static void a_locked_exact_quota_limits_and_says_so(void **state)
{
    (void)state;
    struct weir_reply reply;
    open_beside(EXACT, 0, WEIR_LOCKED_LIMITS);
    for (int i = 0; i < TAKES; i++) {
        assert_int_equal(take("exact", &reply), WEIR_LIMITED);
        assert_true(reply.contended);
        assert_false(reply.exact); /* no store was asked */
        assert_string_equal(reply.quota, "exact");
        assert_true(reply.retry_after > 0 && reply.retry_after < WEIR_SECOND);
        weir->lock_wait = GUARD; /* as above */
    }
    go_on();
    assert_int_equal(take("exact", &reply), WEIR_PASSED);
    assert_false(reply.contended);
    weir_close(weir);
}

static void a_locked_quota_lets_pass_if_told_so(void **state)
{
    (void)state;
    struct weir_reply reply;
    open_beside(STATE, 1, WEIR_LOCKED_PASSES);
    assert_int_equal(take("log", &reply), WEIR_PASSED);
    assert_true(reply.contended);
    assert_int_equal(reply.remaining, UINT64_MAX);
    assert_int_equal(contended(), 1);
    weir_close(weir);
}

static void *take_patiently(void *verdict)
{
    *(enum weir_verdict *)verdict = take("log", NULL);
    return NULL;
}

static bool is_awaited(const char *name)
{
    struct weir_ref ref;
    assert_true(weir_table_find(weir->table, weir_text_of(name), &ref));
    return weir_load(&weir_bucket_state(weir->table, ref.slot)->lock) &
           LOCK_AWAITED;
}

static bool is_log_overdue(void)
{
    struct weir_ref ref;
    assert_true(weir_table_find(weir->table, WEIR_TEXT("log"), &ref));
    return weir_bucket_state_is_overdue(weir->table, ref.slot);
}

static void a_caller_waits_for_the_holder(void **state)
{
    (void)state;
    pthread_t thread;
    enum weir_verdict verdict = WEIR_LIMITED;
    open_beside(STATE, 0, WEIR_LOCKED_LIMITS);
    /* Beyond the option's maximum, so that it outlasts a busy machine. */
    weir->lock_wait = GUARD;
    assert_int_equal(pthread_create(&thread, NULL, take_patiently, &verdict),
                     0);
    UNTIL(is_awaited("log"));
    go_on();
    PATIENTLY(pthread_join(thread, NULL));
    assert_int_equal(verdict, WEIR_PASSED);
    assert_int_equal(contended(), 0);
    weir_close(weir);
}

/* Names that have a slot need no lock. */
static void a_locked_table_limits_new_names(void **state)
{
    (void)state;
    struct weir_reply reply;
    struct weir_handle handle;
    open_beside(WRITER, 0, WEIR_LOCKED_LIMITS);
    for (int i = 0; i < TAKES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "t/%d", i);
        assert_int_equal(take(name, &reply), WEIR_LIMITED);
        assert_true(reply.contended);
        weir->lock_wait = GUARD; /* as above */
    }
    assert_int_equal(contended(), TAKES);
    assert_int_equal(take("nobody", &reply), WEIR_PASSED);
    assert_true(reply.unknown && !reply.contended);
    assert_int_equal(take("throttle:16:30/60s:user", &reply), WEIR_LIMITED);
    assert_true(reply.contended);
    assert_int_equal(take("t/old", NULL), WEIR_PASSED);
    assert_int_equal(take("log", NULL), WEIR_PASSED);
    assert_int_equal(weir_handle_open(weir, "t/1", 3, &handle), WEIR_ETIMEOUT);
    go_on();
    assert_int_equal(take("t/1", NULL), WEIR_PASSED);
    weir_close(weir);
}

/* ---- A caller that waits for a permit ---- */

/* The window above the quota is locked for good. */
static void a_waiting_caller_passes_if_told_so(void **state)
{
    (void)state;
    struct weir_handle db;
    struct weir_permit permit;
    struct weir_reply reply;
    open_beside(STATE, 1, WEIR_LOCKED_PASSES);
    UNTIL(weir_handle_open(weir, "db", 2, &db) == 0);
    assert_int_equal(weir_enter_wait(db, 0, 1, 0, GUARD, &permit, &reply),
                     WEIR_PASSED);
    assert_true(reply.contended);
    assert_compare(reply.wait, <, GUARD);
    assert_int_equal(contended(), 1);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    weir_close(weir);
}

/* It asks each millisecond: one request all the same. */
static void a_waiting_caller_is_counted_once(void **state)
{
    (void)state;
    struct weir_handle db;
    struct weir_permit permit;
    struct weir_reply reply;
    open_beside(STATE, 1, WEIR_LOCKED_LIMITS);
    UNTIL(weir_handle_open(weir, "db", 2, &db) == 0);
    assert_int_equal(
        weir_enter_wait(db, 0, 1, 0, 100 * WEIR_MILLISECOND, &permit, &reply),
        WEIR_LIMITED);
    assert_true(reply.contended);
    assert_string_equal(reply.quota, "log");
    assert_int_equal(contended(), 1);
    weir_close(weir);
}

/* ---- A holder that lost its processor ---- */

/* In a table of one process, a thread that has a lock runs, or will soon. */
static void an_own_tables_lock_is_never_overdue(void **state)
{
    (void)state;
    struct weir_reply reply;
    open_alone();
    weir->lock_wait = 1;
    lock_quota("log");
    assert_int_equal(take("log", &reply), WEIR_LIMITED);
    assert_true(reply.contended);
    assert_false(is_log_overdue());
    weir->lock_wait = GUARD;
    yield_to(unlock_quota);
    assert_int_equal(take("log", &reply), WEIR_PASSED);
    assert_false(reply.contended);
    yield_to(NULL);
    weir_close(weir);
}

static const char *new_name_of(const char *template)
{
    static char name[32];
    static unsigned names;
    snprintf(name, sizeof(name), "%s/n%u", template, names++);
    return name;
}

static void lock_log(void)
{
    lock_quota("log");
}

static bool is_table_overdue(void)
{
    return weir_table_is_overdue(weir->table);
}

/* Whether a take passes that finds the lock, yields, and finds it free. It may
 * not: the limiter's own thread takes locks as well. The lock is overdue first,
 * if 'is_overdue' isn't NULL. */
static bool passes_by_a_yield(const char *name, void (*lock)(void),
                              bool (*is_overdue)(void), void (*unlock)(void))
{
    struct weir_reply reply;
    lock();
    if (is_overdue)
        UNTIL(take(name, &reply) == WEIR_LIMITED && is_overdue());
    weir->yields_skip = 0; /* though one of these may have yielded in vain */
    yield_to(unlock);
    enum weir_verdict verdict = take(name, &reply);
    assert_true(other.yields > 0);
    yield_to(NULL);
    return verdict == WEIR_PASSED && !reply.contended;
}

/* One that runs when the caller yields isn't a stopped one, though a caller has
 * waited for it in vain. */
static void a_caller_yields_to_the_holder_of_an_overdue_lock(void **state)
{
    (void)state;
    open_beside(WRITER, 0, WEIR_LOCKED_LIMITS);
    go_on();
    weir->lock_wait = 1;
    UNTIL(passes_by_a_yield("log", lock_log, is_log_overdue, unlock_quota));
    UNTIL(passes_by_a_yield(new_name_of("t"), lock_table, is_table_overdue,
                            unlock_table));
    weir_close(weir);
}

/* ---- One deadline ---- */

/* Whether the quota's lock ended a take that found the name's lock first, and
 * not that of the limiter's own thread. */
static bool meets_both_locks(const char *name)
{
    struct weir_reply reply;
    lock_table();
    other.pause = 2 * weir->lock_wait;
    yield_to(unlock_table_later);
    assert_int_equal(take(name, &reply), WEIR_LIMITED);
    assert_true(reply.contended);
    assert_int_equal(other.yields, 1);
    yield_to(NULL);
    return strcmp(reply.quota, "log") == 0;
}

/* The name's lock takes all of the time: the quota's is not waited for. */
static void waits_for_two_locks_have_one_deadline(void **state)
{
    (void)state;
    open_beside(STATE, 0, WEIR_LOCKED_LIMITS);
    weir->lock_wait = 50 * WEIR_MILLISECOND;
    UNTIL(meets_both_locks(new_name_of("child")));
    /* No take has waited for this lock: others may. */
    assert_false(is_log_overdue());
    go_on();
    weir_close(weir);
}

/* A wait's end is judged by the time that it is then. */
static void a_wait_takes_time(void **state)
{
    (void)state;
    struct weir_reply reply;
    open_alone();
    weir->lock_wait = GUARD;
    other.pause = WEIR_SECOND;
    for (int given = 0; given <= 1; given++) {
        weir_instant now = weir_clock_now();
        UNTIL(take("once", NULL) == WEIR_PASSED);
        lock_quota("once");
        yield_to(unlock_quota_later);
        assert_int_equal(
            weir_take_by_name(weir, "once", 4, 1, &reply, given ? now : 0),
            given ? WEIR_LIMITED : WEIR_PASSED);
        assert_false(reply.contended);
        assert_int_equal(other.yields, 1);
        yield_to(NULL);
    }
    weir_close(weir);
}

/* ---- A limiter that waits for no lock ---- */

static void no_decision_waits(void **state)
{
    (void)state;
    struct weir_reply reply;
    open_beside(STATE, WEIR_NO_LOCK_WAIT, WEIR_LOCKED_LIMITS);
    assert_int_equal(weir->lock_wait, 0);
    assert_int_equal(take("log", &reply), WEIR_LIMITED);
    assert_true(reply.contended);
    /* Other processes wait as long as they may. */
    assert_false(is_log_overdue());
    yield_to(run_nothing);
    for (int i = 0; i < TAKES; i++)
        assert_int_equal(take("log", NULL), WEIR_LIMITED);
    assert_true(other.yields < TAKES / 10);
    yield_to(NULL);
    go_on();
    UNTIL(take("log", NULL) == WEIR_PASSED);
    weir_close(weir);
}

/* It is no wait. */
static void a_decision_yields_to_a_holder(void **state)
{
    (void)state;
    open_beside(WRITER, WEIR_NO_LOCK_WAIT, WEIR_LOCKED_LIMITS);
    go_on();
    UNTIL(passes_by_a_yield("log", lock_log, NULL, unlock_quota));
    UNTIL(passes_by_a_yield(new_name_of("t"), lock_table, NULL, unlock_table));
    weir_close(weir);
}

static uint32_t pins_of(struct weir_handle quota)
{
    return weir_load_relaxed(&weir_cold(weir->table, quota.slot)->refs);
}

static void a_handle_is_given_back_later(void **state)
{
    (void)state;
    struct weir_reply reply;
    struct weir_handle handle;
    open_beside(WRITER, WEIR_NO_LOCK_WAIT, WEIR_LOCKED_LIMITS);
    assert_int_equal(take("t/new", &reply), WEIR_LIMITED);
    assert_true(reply.contended);
    assert_true(reply.retry_after > 0 && reply.retry_after < WEIR_SECOND);
    assert_false(weir_table_is_overdue(weir->table));
    assert_int_equal(weir_handle_open(weir, "t/1", 3, &handle), WEIR_ETIMEOUT);
    weir_handle_close(kept);
    assert_int_equal(pins_of(kept), 1);
    go_on();
    UNTIL(pins_of(kept) == 0);
    weir_close(weir);
}

/* ---- A child of fork() ---- */

/* How often this thread has slept. */
static long sleeps(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

static bool is_all_pinned(void)
{
    return weir_load(&weir->unpins.parent) == 0 &&
           weir_load(&weir->unpins.count) == 0;
}

/* A wait of a second for a lock would sleep a thousand times. */
static int decide_in_child(bool closes)
{
    struct weir_reply reply;
    long before = sleeps();
    if (weir_take(kept, 1, &reply, 0) != WEIR_PASSED || reply.unknown)
        return 1;
    common->slept = sleeps() - before;
    if (closes)
        weir_handle_close(kept);
    weir_store(&common->step, 1);
    UNTIL(weir_load(&common->step) == 2);
    UNTIL(is_all_pinned());
    weir_store(&common->step, 3);
    UNTIL(weir_load(&common->step) == 4);
    weir_close(weir);
    return 0;
}

static void decide_in_a_child(bool closes, uint32_t pins)
{
    open_beside(WRITER, WEIR_NO_LOCK_WAIT, WEIR_LOCKED_LIMITS);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        patience_be_child();
        _exit(decide_in_child(closes));
    }
    UNTIL(weir_load(&common->step) == 1);
    assert_compare(common->slept, <, 100);
    assert_int_equal(pins_of(kept), 1);
    go_on();
    weir_store(&common->step, 2);
    UNTIL(weir_load(&common->step) == 3);
    assert_int_equal(pins_of(kept), pins);
    weir_store(&common->step, 4);
    assert_int_equal(STATUS_OF(pid), 0);
    assert_int_equal(pins_of(kept), 1);
    weir_close(weir);
}

static void a_child_waits_for_no_lock_either(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip();
#endif
    decide_in_a_child(false, 2);
}

static void a_child_gives_back_what_it_pins_later(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip();
#endif
    decide_in_a_child(true, 1);
}

/* ---- Edits ---- */

static void an_edit_is_made_when_the_quota_is_free(void **state)
{
    (void)state;
    open_beside(STATE, 0, WEIR_LOCKED_LIMITS);
    root_set(&root, "log",
             "{\"limit\": \"2000000/s\", \"sharing\": \"local\","
             " \"algorithm\": \"sliding_window\"}");
    root_set(&root, "plain",
             "{\"limit\": \"1000/s\", \"sharing\": \"local\","
             " \"low_burst\": \"777\", \"high_burst\": \"777\"}");
    /* Later edits don't wait for it. */
    UNTIL(quantity_of("plain") == 777);
    go_on();
    UNTIL(quantity_of("log") == 2000000);
    weir_close(weir);
}

static void an_edit_is_made_when_the_table_is_free(void **state)
{
    (void)state;
    open_beside(WRITER, 0, WEIR_LOCKED_LIMITS);
    root_set(&root, "plain",
             "{\"limit\": \"1000/s\", \"sharing\": \"local\","
             " \"low_burst\": \"888\", \"high_burst\": \"888\"}");
    assert_int_equal(weir_sync(weir, GUARD), 0); /* the thread goes on */
    assert_int_not_equal(quantity_of("plain"), 888);
    /* The reaper breaks the lock of the dead. */
    kill(holder, SIGKILL);
    assert_int_equal(PATIENTLY(waitpid(holder, NULL, 0)), holder);
    holder = 0;
    UNTIL(quantity_of("plain") == 888);
    UNTIL(take("t/new", NULL) == WEIR_PASSED);
    weir_close(weir);
}

/* ---- The end ---- */

static void a_limiter_closes_beside_any_lock(void **state)
{
    (void)state;
    for (enum held held = STATE; held <= WRITER; held++) {
        open_beside(held, 0, WEIR_LOCKED_LIMITS);
        PATIENTLY((weir_close(weir), 0));
        close_table(NULL);
    }
}

#define TEST(FUNCTION) cmocka_unit_test_teardown(FUNCTION, close_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_locked_quota_limits_and_says_so),
        TEST(a_locked_exact_quota_limits_and_says_so),
        TEST(a_locked_quota_lets_pass_if_told_so),
        TEST(a_caller_waits_for_the_holder),
        TEST(a_locked_table_limits_new_names),
        TEST(a_waiting_caller_passes_if_told_so),
        TEST(a_waiting_caller_is_counted_once),
        TEST(an_own_tables_lock_is_never_overdue),
        TEST(a_caller_yields_to_the_holder_of_an_overdue_lock),
        TEST(waits_for_two_locks_have_one_deadline),
        TEST(a_wait_takes_time),
        TEST(no_decision_waits),
        TEST(a_decision_yields_to_a_holder),
        TEST(a_handle_is_given_back_later),
        TEST(a_child_waits_for_no_lock_either),
        TEST(a_child_gives_back_what_it_pins_later),
        TEST(an_edit_is_made_when_the_quota_is_free),
        TEST(an_edit_is_made_when_the_table_is_free),
        TEST(a_limiter_closes_beside_any_lock),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
