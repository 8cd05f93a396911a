/* SPDX-License-Identifier: MIT
 * test_client_exact_locks.c - exact quotas of which another thread has the
 * lock, beside a real root.
 *
 * The store is a fake in this process. The other thread is the test itself: it
 * takes the lock in a step of the store, or before a call, and releases it when
 * the call yields. */

#include "client_world.h"

#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/table/table_bucket_state_internal.h"
#include "libweir/libweir_internal.h"

/* ---- A lock that another thread has ---- */

static void lock_state(struct weir_handle quota)
{
    struct weir *weir = quota.weir;
    UNTIL(weir_bucket_state_lock(weir->table, quota.slot,
                                 weir_stripe_mine(weir), 0));
}

static void unlock_state(struct weir_handle quota)
{
    (void)weir_bucket_state_unlock(quota.weir->table, quota.slot);
}

/* A caller that finds a lock taken yields first. */
static struct {
    struct weir_handle unlocks; /* at the next yield its lock is released */
    unsigned count;
} yields;
static __thread bool is_test;

int sched_yield(void)
{
    if (is_test) {
        yields.count++;
        if (yields.unlocks.weir)
            unlock_state(yields.unlocks);
        yields.unlocks.weir = NULL;
    }
    return (int)syscall(SYS_sched_yield);
}

/* ---- A fake store ---- */

#define BUCKET_STATES 8

struct bucket_state_of {
    char name[WEIR_NAME_MAX + 1];
    uint64_t state[64];
};

/* The test's thread alone makes steps. */
static struct {
    struct bucket_state_of bucket_state[BUCKET_STATES];
    unsigned steps;
    const char *lock_at;      /* in the next step with this name … */
    struct weir_handle locks; /* … the lock of this quota is taken */
} fake;

static uint64_t *fake_state(struct weir_text key)
{
    for (int i = 0; i < BUCKET_STATES; i++) {
        struct bucket_state_of *of = &fake.bucket_state[i];
        if (of->name[0] == '\0')
            memcpy(of->name, key.p, key.len);
        if (weir_text_equal(weir_text_of(of->name), key))
            return of->state;
    }
    fail_msg("too many names");
    return NULL;
}

static int fake_open(const struct weir_exact_options *options,
                     struct weir_shared **out, struct weir_diag *diag)
{
    (void)options;
    (void)diag;
    *out = (struct weir_shared *)&fake;
    return 0;
}

static void fake_close(struct weir_shared *store)
{
    (void)store;
}

static int fake_step(struct weir_shared *store, struct weir_text key,
                     const struct weir_algorithm_rule *rule,
                     const struct weir_algorithm_ask *ask,
                     struct weir_algorithm_answer *out, weir_duration deadline)
{
    (void)store;
    (void)deadline;
    struct weir_algorithm_rule roomy = *rule;
    if (rule->algorithm == WEIR_PERMITS)
        roomy.entries = 20;
    assert_true(weir_algorithm_size(&roomy) <=
                sizeof(fake.bucket_state[0].state));
    fake.steps++;
    if (fake.lock_at && weir_text_equal(weir_text_of(fake.lock_at), key)) {
        lock_state(fake.locks);
        fake.lock_at = NULL;
    }
    weir_algorithm_step(&roomy, fake_state(key), ask, out,
                        WEIR_SECOND * 1000000);
    return 0;
}

static void fake_why(struct weir_shared *store, char *buf, size_t size)
{
    (void)store;
    if (size > 0)
        buf[0] = '\0';
}

static const struct weir_exact exact = {
    .version = WEIR_EXACT_VERSION,
    .open = fake_open,
    .close = fake_close,
    .step = fake_step,
    .why = fake_why,
};

/* ---- The world ---- */

#define EXACT(more)                                          \
    "{\"sharing\":\"exact\",\"algorithm\":\"fixed_window\"," \
    "\"store\":\"redis://localhost:6379\"," more "}"
#define ONE_PERMIT(more)                               \
    "{\"kind\":\"concurrency\",\"sharing\":\"exact\"," \
    "\"limit\":\"1\",\"store\":\"redis://localhost:6379\"" more "}"

static struct root root;

static int make_root(void **state)
{
    (void)state;
    is_test = true;
    root_make(&root);
    return 0;
}

static int free_root(void **state)
{
    (void)state;
    root_free(&root);
    return 0;
}

static struct weir *open_here(void)
{
    struct weir *weir;
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.roots = root.address;
    options.exact = &exact;
    assert_int_equal(weir_open(&options, &weir), 0);
    assert_int_equal(weir_ready(weir, GUARD), 0);
    yields.count = 0;
    return weir;
}

/* ---- Undo ---- */

/* The units of a window stay charged instead. */
static void test_an_undo_waits_for_no_lock(void **state)
{
    (void)state;
    struct weir_reply reply;
    root_set(&root, "ceiling", EXACT("\"limit\":\"1/h\""));
    root_set(&root, "floor", EXACT("\"limit\":\"9/h\",\"parent\":\"ceiling\""));
    struct weir *weir = open_here();
    struct weir_handle floor = handle_open(weir, "floor");
    assert_int_equal(weir_take(floor, 1, &reply, 0), WEIR_PASSED);
    unsigned steps = fake.steps;
    fake.lock_at = "ceiling";
    fake.locks = floor;
    assert_int_equal(weir_take(floor, 1, &reply, 0), WEIR_LIMITED);
    assert_string_equal(reply.quota, "ceiling");
    assert_int_equal(fake.steps, steps + 2);
    assert_int_equal(yields.count, 0);
    unlock_state(floor);
    weir_close(weir);
}

/* ---- Leave ---- */

static void test_a_leave_waits_for_a_lock(void **state)
{
    (void)state;
    struct weir_permit permit;
    struct weir_reply reply;
    root_set(&root, "lift", ONE_PERMIT(""));
    struct weir *weir = open_here();
    struct weir_handle lift = handle_open(weir, "lift");
    assert_int_equal(weir_enter(lift, 0, 1, &permit, &reply, 0), WEIR_PASSED);
    assert_true(reply.exact);
    unsigned steps = fake.steps;
    weir->lock_wait = GUARD;
    lock_state(lift);
    yields.unlocks = lift;
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    assert_int_equal(fake.steps, steps + 1);
    assert_int_equal(weir_enter(lift, 0, 1, &permit, &reply, 0), WEIR_PASSED);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    weir_close(weir);
}

/* … and is made by the next call if it has waited for long enough. */
static void test_a_leave_is_made_later(void **state)
{
    (void)state;
    struct weir_permit permit;
    struct weir_reply reply;
    root_set(&root, "hoist", ONE_PERMIT(""));
    struct weir *weir = open_here();
    struct weir_handle hoist = handle_open(weir, "hoist");
    for (int i = 0; i < 2; i++) {
        weir->lock_wait = i; /* WEIR_NO_LOCK_WAIT; a nanosecond */
        UNTIL(weir_enter(hoist, 0, 1, &permit, &reply, 0) == WEIR_PASSED);
        assert_true(reply.exact);
        unsigned steps = fake.steps;
        lock_state(hoist);
        weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
        assert_int_equal(fake.steps, steps);
        /* Still locked: it stays to be made. */
        assert_int_equal(weir_enter(hoist, 0, 1, &permit, &reply, 0),
                         WEIR_LIMITED);
        assert_true(reply.contended && !reply.exact);
        assert_int_equal(fake.steps, steps);
        unlock_state(hoist);
        assert_int_equal(weir_enter(hoist, 0, 1, &permit, &reply, 0),
                         WEIR_PASSED);
        assert_int_equal(fake.steps, steps + 2);
        weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    }
    weir_close(weir);
}

/* So is an undo, which doesn't wait at all. */
static void test_an_enter_is_undone_later(void **state)
{
    (void)state;
    struct weir_permit permit;
    struct weir_reply reply;
    root_set(&root, "crane", EXACT("\"limit\":\"1/h\""));
    root_set(&root, "hook", ONE_PERMIT(",\"parent\":\"crane\""));
    struct weir *weir = open_here();
    struct weir_handle hook = handle_open(weir, "hook");
    assert_int_equal(weir_enter(hook, 0, 1, &permit, &reply, 0), WEIR_PASSED);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    fake.lock_at = "crane";
    fake.locks = hook;
    assert_int_equal(weir_enter(hook, 0, 1, &permit, &reply, 0), WEIR_LIMITED);
    assert_string_equal(reply.quota, "crane");
    unlock_state(hook);
    /* Its permit isn't in flight at the store of 'hook'. */
    assert_int_equal(weir_enter(hook, 0, 1, &permit, &reply, 0), WEIR_LIMITED);
    assert_string_equal(reply.quota, "crane");
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_undo_waits_for_no_lock),
        cmocka_unit_test(test_a_leave_waits_for_a_lock),
        cmocka_unit_test(test_a_leave_is_made_later),
        cmocka_unit_test(test_an_enter_is_undone_later),
    };
    return cmocka_run_group_tests(tests, make_root, free_root);
}
