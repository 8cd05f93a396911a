/* SPDX-License-Identifier: MIT
 * test_client_exact.c - libweir and exact quotas, beside a real root.
 *
 * The stores are fakes in this process: bucket states by name. A fake answers,
 * times out or is unreachable as a test wants it. test_shared_… and live_exact
 * use real stores; this file shows how the library uses one. */

#include "client_world.h"
#include "compare.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/atomic.h"
#include "core/table/table_layout.h"
#include "libweir/libweir_internal.h"

/* ---- Fake stores ---- */

#define BUCKET_STATES 16

struct bucket_state_of {
    char name[WEIR_NAME_MAX + 1];
    uint64_t state[64];
};

/* All fake stores of this process share these states. */
static struct {
    pthread_mutex_t mutex;
    struct bucket_state_of bucket_state[BUCKET_STATES];
    int error;        /* result of a step; 0: it answers */
    bool late;        /* it answers a take only when no caller waits any more */
    const char *lost; /* no take with this name is answered; NULL: all are */
    uint32_t opened, closed, steps;
    char secrets[64];
    char prefix[64]; /* of the last one opened; "": none was given */
} fake = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static struct bucket_state_of *fake_bucket_state(struct weir_text key)
{
    for (int i = 0; i < BUCKET_STATES; i++) {
        struct bucket_state_of *bucket_state = &fake.bucket_state[i];
        if (bucket_state->name[0] == '\0')
            memcpy(bucket_state->name, key.p, key.len);
        if (weir_text_equal(weir_text_of(bucket_state->name), key))
            return bucket_state;
    }
    abort();
}

static int fake_open(const struct weir_exact_options *options,
                     struct weir_shared **out, struct weir_diag *diag)
{
    if (strstr(options->uri, "nonsense"))
        return weir_diag_set(diag, WEIR_ESYNTAX, "that is nonsense", NULL);
    weir_fetch_add(&fake.opened, 1);
    if (options->secrets_file)
        snprintf(fake.secrets, sizeof(fake.secrets), "%s",
                 options->secrets_file);
    snprintf(fake.prefix, sizeof(fake.prefix), "%s",
             options->prefix ? options->prefix : "");
    *out = (struct weir_shared *)&fake;
    return 0;
}

static void fake_close(struct weir_shared *store)
{
    (void)store;
    weir_fetch_add(&fake.closed, 1);
}

static int fake_step(struct weir_shared *store, struct weir_text key,
                     const struct weir_algorithm_rule *rule,
                     const struct weir_algorithm_ask *ask,
                     struct weir_algorithm_answer *out, weir_duration deadline)
{
    (void)store;
    assert_compare(deadline, >, 0);
    assert_compare(weir_algorithm_size(rule), <=,
                   sizeof(fake.bucket_state[0].state));
    pthread_mutex_lock(&fake.mutex);
    int error = fake.error;
    if (fake.lost && ask->op == WEIR_ALGORITHM_TAKE &&
        weir_text_equal(weir_text_of(fake.lost), key))
        error = WEIR_ECONNECT;
    fake.steps++;
    /* States aren't moved from rule to rule: each has room for all entries. */
    struct weir_algorithm_rule roomy = *rule;
    if (rule->algorithm == WEIR_PERMITS)
        roomy.entries = 20;
    if (error == 0)
        weir_algorithm_step(&roomy, fake_bucket_state(key)->state, ask, out,
                            WEIR_SECOND * 1000000);
    if (error == 0 && fake.late && ask->op == WEIR_ALGORITHM_TAKE)
        error = WEIR_ETIMEOUT;
    pthread_mutex_unlock(&fake.mutex);
    return error;
}

static void fake_why(struct weir_shared *store, char *buf, size_t size)
{
    (void)store;
    snprintf(buf, size, "closed for lunch");
}

static const struct weir_exact exact = {
    .version = WEIR_EXACT_VERSION,
    .open = fake_open,
    .close = fake_close,
    .step = fake_step,
    .why = fake_why,
};

static void fake_fail(int error)
{
    pthread_mutex_lock(&fake.mutex);
    fake.error = error;
    pthread_mutex_unlock(&fake.mutex);
}

static void fake_lose(const char *name)
{
    pthread_mutex_lock(&fake.mutex);
    fake.lost = name;
    pthread_mutex_unlock(&fake.mutex);
}

static uint32_t fake_steps(void)
{
    pthread_mutex_lock(&fake.mutex);
    uint32_t steps = fake.steps;
    pthread_mutex_unlock(&fake.mutex);
    return steps;
}

/* ---- The world ---- */

static struct root root;

static int make_root(void **state)
{
    (void)state;
    root_make(&root);
    return 0;
}

static int free_root(void **state)
{
    (void)state;
    root_free(&root);
    return 0;
}

static int reset(void **state)
{
    (void)state;
    memset(fake.bucket_state, 0, sizeof(fake.bucket_state));
    fake.error = 0;
    fake.lost = NULL;
    fake.late = false;
    fake.steps = fake.opened = fake.closed = 0;
    return 0;
}

static struct weir *open_with(const struct weir_exact *functions,
                              struct seen *seen)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.roots = root.address;
    options.exact = functions;
    options.exact_secrets_file = "/secret/file";
    options.on_event = seen_event;
    options.event_context = seen;
    memset(seen, 0, sizeof(*seen));
    pthread_mutex_init(&seen->mutex, NULL);
    struct weir *weir;
    assert_int_equal(weir_open(&options, &weir), 0);
    assert_int_equal(weir_ready(weir, GUARD), 0);
    return weir;
}

#define YEAR "/366d" /* of a window by a real clock: no run reaches its end */
#define EXACT(more)                                          \
    "{\"sharing\":\"exact\",\"algorithm\":\"fixed_window\"," \
    "\"store\":\"redis://localhost:6379\"," more "}"

static unsigned take_many(struct weir_handle handle, unsigned count)
{
    unsigned passed = 0;
    for (unsigned i = 0; i < count; i++)
        passed += weir_take(handle, 1, NULL, 0) == WEIR_PASSED;
    return passed;
}

/* ---- Decided by its store ---- */

static void test_two_limiters_share_a_store(void **state)
{
    (void)state;
    struct seen seen[2];
    root_set(&root, "calls", EXACT("\"limit\":\"5/h\""));
    struct weir *weir[2] = { open_with(&exact, &seen[0]),
                             open_with(&exact, &seen[1]) };
    struct weir_handle handle[2] = { handle_open(weir[0], "calls"),
                                     handle_open(weir[1], "calls") };
    assert_int_equal(take_many(handle[0], 3), 3);
    struct weir_reply reply;
    assert_int_equal(weir_peek(handle[1], 1, &reply, 0), WEIR_PASSED);
    assert_true(reply.remaining == 2);
    assert_string_equal(reply.quota, "calls");
    assert_int_equal(weir_take_by_name(weir[1], "calls", 5, 2, &reply, 0),
                     WEIR_PASSED);
    assert_true(reply.fill == 5 && reply.remaining == 0);
    assert_false(reply.stale);
    assert_int_equal(weir_take(handle[0], 1, &reply, 0), WEIR_LIMITED);
    assert_string_equal(reply.quota, "calls");
    assert_true(reply.retry_after > 0 && !reply.never);
    assert_int_equal(weir_take(handle[0], 6, &reply, 0), WEIR_LIMITED);
    assert_true(reply.never && reply.retry_after == WEIR_NEVER);
    weir_refund(handle[1], 2, 0);
    assert_int_equal(take_many(handle[0], 3), 2);
    weir_charge(handle[0], 7, 0);
    assert_int_equal(weir_peek(handle[1], 1, &reply, 0), WEIR_LIMITED);
    assert_true(reply.fill == 12);
    struct weir_request requests[2] = { { "calls", 5, 1, WEIR_PASSED },
                                        { "nobody", 6, 1, WEIR_PASSED } };
    assert_int_equal(weir_take_many(weir[0], requests, 2, 0), 1);
    assert_string_equal(fake.secrets, "/secret/file");
    assert_string_equal(fake.prefix, "");
    weir_close(weir[0]);
    weir_close(weir[1]);
    assert_int_equal(fake.opened, 2);
    assert_int_equal(fake.closed, 2);
}

/* ---- Chains ---- */

/* A take that this process refuses by itself sends nothing to a store. */
static void test_local_links_come_first(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "here",
             "{\"sharing\":\"local\",\"limit\":\"2" YEAR
             "\",\"algorithm\":\"fixed_window\"}");
    root_set(&root, "here/leaf",
             EXACT("\"limit\":\"100/h\",\"parent\":\"here\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle handle = handle_open(weir, "here/leaf");
    assert_int_equal(take_many(handle, 5), 2);
    assert_int_equal(fake_steps(), 2);
    weir_close(weir);
}

/* A refused take is charged nowhere: not in this process, not in the stores
 * that were asked before. */
static void test_a_refusal_gives_all_back(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "top", EXACT("\"limit\":\"3/h\""));
    root_set(&root, "mid",
             "{\"sharing\":\"local\",\"limit\":\"10/h\","
             "\"algorithm\":\"sliding_log\",\"parent\":\"top\"}");
    root_set(&root, "leaf", EXACT("\"limit\":\"10/h\",\"parent\":\"mid\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle leaf = handle_open(weir, "leaf");
    struct weir_reply reply;
    assert_int_equal(take_many(leaf, 6), 3);
    assert_int_equal(weir_take(leaf, 1, &reply, 0), WEIR_LIMITED);
    assert_string_equal(reply.quota, "top");
    /* The leaf's store, 'mid' here: both have the units that passed. */
    root_set(&root, "top", EXACT("\"limit\":\"1000/h\""));
    UNTIL(weir_peek(leaf, 7, &reply, 0) == WEIR_PASSED);
    assert_int_equal(weir_peek(leaf, 8, &reply, 0), WEIR_LIMITED);
    assert_int_equal(take_many(leaf, 10), 7);
    weir_close(weir);
}

/* A store gets nothing back that it has not charged. */
static void test_on_stale_owes_a_store_nothing(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "roof", EXACT("\"limit\":\"3/h\""));
    root_set(&root, "flat", EXACT("\"limit\":\"10/h\",\"parent\":\"roof\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle flat = handle_open(weir, "flat");
    struct weir_reply reply;
    assert_int_equal(take_many(flat, 3), 3);
    fake_lose("flat");
    assert_int_equal(weir_take(flat, 1, &reply, 0), WEIR_LIMITED);
    assert_string_equal(reply.quota, "roof");
    fake_lose(NULL);
    root_set(&root, "roof", EXACT("\"limit\":\"1000/h\""));
    UNTIL(weir_peek(flat, 7, &reply, 0) == WEIR_PASSED);
    assert_int_equal(weir_peek(flat, 8, &reply, 0), WEIR_LIMITED);
    weir_close(weir);
}

/* ... and the share that replaced the store gets its charges back. */
static void test_a_share_is_given_back(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "attic", EXACT("\"limit\":\"3/h\""));
    root_set(&root, "room",
             EXACT("\"limit\":\"10" YEAR "\",\"parent\":\"attic\","
                   "\"on_stale\":\"share\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle room = handle_open(weir, "room");
    struct weir_reply reply;
    fake_lose("room");
    assert_int_equal(take_many(room, 20), 3);
    root_set(&root, "attic", EXACT("\"limit\":\"1000/h\""));
    UNTIL(weir_peek(handle_open(weir, "attic"), 500, &reply, 0) == WEIR_PASSED);
    assert_int_equal(take_many(room, 20), 7);
    weir_close(weir);
}

/* The level that was charged gets it back: in buckets here and in a store. */
static void test_a_level_has_its_own_back(void **state)
{
    (void)state;
    static const char *const sharing[] = {
        "\"sharing\":\"local\"",
        "\"sharing\":\"exact\",\"store\":\"redis://localhost:6379\""
    };
    for (int i = 0; i < 2; i++) {
        struct seen seen;
        char text[300], top[16], row[16];
        snprintf(top, sizeof(top), "top%d", i);
        snprintf(row, sizeof(row), "row%d", i);
        root_set(&root, top, EXACT("\"limit\":\"3/h\""));
        snprintf(text, sizeof(text),
                 "{\"algorithm\":\"token_buckets\",\"limit\":\"1/day\","
                 "\"high_burst\":\"2\",\"next_buckets\":\"1/day:5\","
                 "\"parent\":\"%s\",%s}",
                 top, sharing[i]);
        root_set(&root, row, text);
        struct weir *weir = open_with(&exact, &seen);
        struct weir_handle handle = handle_open(weir, row);
        struct weir_reply reply;
        assert_int_equal(take_many(handle, 3), 3);
        assert_int_equal(weir_take(handle, 1, &reply, 0), WEIR_LIMITED);
        assert_string_equal(reply.quota, top);
        root_set(&root, top, EXACT("\"limit\":\"1000/h\""));
        UNTIL(weir_peek(handle_open(weir, top), 500, &reply, 0) == WEIR_PASSED);
        assert_int_equal(weir_take(handle, 1, &reply, 0), WEIR_PASSED);
        assert_int_equal(reply.level, 1);
        weir_close(weir);
    }
}

/* A shadow quota that would have refused gets its count back, once. */
static void test_a_shadow_gives_back_once(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "wall", EXACT("\"limit\":\"3/h\""));
    root_set(
        &root, "shade",
        EXACT("\"limit\":\"2/h\",\"mode\":\"shadow\",\"parent\":\"wall\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle shade = handle_open(weir, "shade");
    assert_int_equal(take_many(shade, 9), 3);
    /* Two passed; the third passed only because a shadow quota refuses none. */
    assert_int_equal(weir_hot(weir->table, shade.slot)->count, 2);
    weir_close(weir);
}

static void test_a_shadow_refuses_nothing(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "quiet", EXACT("\"limit\":\"2/h\",\"mode\":\"shadow\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle handle = handle_open(weir, "quiet");
    struct weir_reply reply;
    assert_int_equal(take_many(handle, 2), 2);
    assert_int_equal(weir_take(handle, 1, &reply, 0), WEIR_PASSED);
    assert_true(reply.shadow);
    weir_close(weir);
}

static void test_templates_have_exact_instances(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "user:*", EXACT("\"limit\":\"2/h\""));
    struct weir *weir = open_with(&exact, &seen);
    for (int i = 0; i < 3; i++) {
        enum weir_verdict verdict = i < 2 ? WEIR_PASSED : WEIR_LIMITED;
        assert_int_equal(weir_take_by_name(weir, "user:a", 6, 1, NULL, 0),
                         verdict);
        assert_int_equal(weir_take_by_name(weir, "user:b", 6, 1, NULL, 0),
                         verdict);
    }
    weir_close(weir);
}

/* ---- Without an answer ---- */

static void test_a_dead_store_goes_by_on_stale(void **state)
{
    (void)state;
    struct seen seen;
    char text[192];
    root_set(&root, "pass", EXACT("\"limit\":\"1/h\",\"on_stale\":\"pass\""));
    root_set(&root, "limit", EXACT("\"limit\":\"9/h\",\"on_stale\":\"limit\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle pass = handle_open(weir, "pass");
    struct weir_handle limit = handle_open(weir, "limit");
    struct weir_reply reply;
    assert_int_equal(take_many(pass, 5), 1);
    /* A late answer doesn't mark the store as dead. */
    fake_fail(WEIR_ETIMEOUT);
    assert_int_equal(weir_take(pass, 1, &reply, 0), WEIR_PASSED);
    assert_true(reply.stale);
    fake_fail(0);
    assert_int_equal(take_many(pass, 1), 0);
    assert_int_equal(seen_count(&seen, WEIR_EVENT_EXACT_AWAY), 0);
    fake_fail(WEIR_ECONNECT);
    assert_int_equal(take_many(pass, 5), 5);
    assert_int_equal(take_many(limit, 5), 0);
    assert_int_equal(weir_take(limit, 1, &reply, 0), WEIR_LIMITED);
    assert_true(reply.stale && reply.retry_after > 0);
    UNTIL(seen_count(&seen, WEIR_EVENT_EXACT_AWAY) == 1);
    seen_text(&seen, WEIR_EVENT_EXACT_AWAY, text);
    assert_string_equal(text, "redis://localhost:6379: closed for lunch");
    fake_fail(0);
    assert_int_equal(take_many(limit, 5), 5);
    assert_int_equal(take_many(pass, 5), 0);
    UNTIL(seen_count(&seen, WEIR_EVENT_EXACT_BACK) == 1);
    weir_close(weir);
}

/* The whole limit is this process's as long as no other shares it, then half of
 * it; used units stay used. (The other is taken for gone after ten seconds: the
 * test waits for this only if WEIR_SECONDS is that long.) */
static void test_a_dead_stores_limit_is_shared(void **state)
{
    (void)state;
    struct seen seen[2];
    const char *said = getenv("WEIR_SECONDS");
    root_set(&root, "shared",
             EXACT("\"limit\":\"10" YEAR "\",\"on_stale\":\"share\""));
    root_set(&root, "bucket",
             "{\"sharing\":\"exact\",\"algorithm\":\"token_bucket\","
             "\"store\":\"redis://localhost:6379\",\"limit\":\"10/h\","
             "\"high_burst\":\"10\",\"on_stale\":\"share\"}");
    struct weir *weir[2] = { open_with(&exact, &seen[0]) };
    fake_fail(WEIR_ECONNECT);
    struct weir_handle window = handle_open(weir[0], "shared");
    struct weir_handle bucket = handle_open(weir[0], "bucket");
    UNTIL(weir_load_relaxed(&weir[0]->fleet) == 1);
    assert_int_equal(take_many(window, 4), 4);
    assert_int_equal(take_many(bucket, 4), 4);
    weir[1] = open_with(&exact, &seen[1]);
    UNTIL(weir_load_relaxed(&weir[0]->fleet) == 2);
    assert_int_equal(take_many(window, 20), 1);
    assert_int_equal(take_many(bucket, 20), 1);
    weir_close(weir[1]);
    if (said && atoi(said) >= 10) {
        UNTIL(weir_load_relaxed(&weir[0]->fleet) == 1);
        assert_int_equal(take_many(window, 20), 5);
        assert_int_equal(take_many(bucket, 20), 5);
    }
    weir_close(weir[0]);
}

/* The weight is above this process's share, not above the limit. */
static void test_a_share_is_no_never(void **state)
{
    (void)state;
    struct seen seen[2];
    root_set(&root, "parts",
             EXACT("\"limit\":\"10" YEAR "\",\"on_stale\":\"share\""));
    struct weir *weir[2] = { open_with(&exact, &seen[0]),
                             open_with(&exact, &seen[1]) };
    struct weir_handle parts = handle_open(weir[0], "parts");
    struct weir_reply reply;
    fake_fail(WEIR_ECONNECT);
    UNTIL(weir_load_relaxed(&weir[0]->fleet) == 2);
    assert_int_equal(weir_take(parts, 6, &reply, 0), WEIR_LIMITED);
    assert_false(reply.never);
    assert_in_range(reply.retry_after, WEIR_SECOND, WEIR_NEVER - 1);
    assert_int_equal(weir_take(parts, 11, &reply, 0), WEIR_LIMITED);
    assert_true(reply.never);
    weir_close(weir[0]);
    weir_close(weir[1]);
}

static void test_not_linked_is_told(void **state)
{
    (void)state;
    struct seen seen;
    char text[192];
    root_set(&root, "lost", EXACT("\"limit\":\"1/h\""));
    struct weir *weir = open_with(NULL, &seen);
    UNTIL(seen_count(&seen, WEIR_EVENT_EXACT_AWAY) > 0);
    seen_text(&seen, WEIR_EVENT_EXACT_AWAY, text);
    assert_string_equal(text, "redis://localhost:6379: link libweir-exact and "
                              "set options.exact = weir_exact()");
    assert_int_equal(take_many(handle_open(weir, "lost"), 5), 5);
    weir_close(weir);
}

static void test_too_many_stores_are_told(void **state)
{
    (void)state;
    struct seen seen;
    char text[192], name[16];
    for (int i = 0; i <= WEIR_EXACT_STORES_MAX; i++) {
        snprintf(name, sizeof(name), "many%d", i);
        snprintf(text, sizeof(text),
                 "{\"sharing\":\"exact\",\"algorithm\":\"fixed_window\","
                 "\"limit\":\"1/h\",\"on_stale\":\"limit\","
                 "\"store\":\"redis://many:%d\"}",
                 i + 1);
        root_set(&root, name, text);
    }
    struct weir *weir = open_with(&exact, &seen);
    UNTIL(seen_count(&seen, WEIR_EVENT_EXACT_AWAY) == 1);
    seen_text(&seen, WEIR_EVENT_EXACT_AWAY, text);
    assert_non_null(strstr(text, "no room for this store"));
    weir_close(weir);
}

static void test_another_version_is_refused(void **state)
{
    (void)state;
    struct weir_exact other = exact;
    other.version = 99;
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.exact = &other;
    struct weir *weir;
    assert_int_equal(weir_open(&options, &weir), WEIR_EINVAL);
}

/* ---- Steps that a root decides ---- */

#define ASKERS 6

struct asker {
    pthread_t thread;
    struct weir_handle handle;
    unsigned takes, passed;
};

static void *ask_on(void *context)
{
    struct asker *asker = context;
    asker->passed = take_many(asker->handle, asker->takes);
    return NULL;
}

static unsigned ask_together(struct weir_handle handle, unsigned takes)
{
    struct asker asker[ASKERS];
    unsigned passed = 0;
    for (int i = 0; i < ASKERS; i++) {
        asker[i] = (struct asker){ .handle = handle, .takes = takes };
        assert_int_equal(
            pthread_create(&asker[i].thread, NULL, ask_on, &asker[i]), 0);
    }
    for (int i = 0; i < ASKERS; i++) {
        PATIENTLY(pthread_join(asker[i].thread, NULL));
        passed += asker[i].passed;
    }
    return passed;
}

static void put_asked(const char *name, const char *deadline)
{
    char fields[200];
    snprintf(fields, sizeof(fields),
             "{\"sharing\":\"exact\",\"store\":\"root\","
             "\"algorithm\":\"fixed_window\",\"limit\":\"100" YEAR "\","
             "\"on_stale\":\"limit\",\"deadline\":\"%s\"}",
             deadline);
    root_set(&root, name, fields);
}

static void test_threads_ask_a_root(void **state)
{
    (void)state;
    struct seen seen;
    put_asked("asked", "1min");
    struct weir *weir = open_with(NULL, &seen);
    assert_int_equal(ask_together(handle_open(weir, "asked"), 50), 100);
    weir_close(weir);
}

/* Most callers don't wait for their answers, which come all the same: to slots
 * that other requests have by then, or to free ones. */
static void test_callers_that_dont_wait_for_a_root(void **state)
{
    (void)state;
    struct seen seen;
    put_asked("hurried", "0.1ms");
    struct weir *weir = open_with(NULL, &seen);
    struct weir_handle hurried = handle_open(weir, "hurried");
    assert_compare(ask_together(hurried, 200), <=, 100);
    put_asked("hurried", "1min");
    UNTIL(take_many(hurried, 200) == 0);
    weir_close(weir);
}

/* Closed while its last requests are on their way. */
static void test_a_close_under_way(void **state)
{
    (void)state;
    struct seen seen;
    put_asked("late", "5ms");
    struct weir *weir = open_with(NULL, &seen);
    struct weir_handle late = handle_open(weir, "late");
    assert_int_equal(kill(root.pid, SIGSTOP), 0);
    assert_int_equal(PATIENTLY(waitpid(root.pid, NULL, WUNTRACED)), root.pid);
    assert_int_equal(ask_together(late, 3), 0);
    weir_close(weir);
    assert_int_equal(kill(root.pid, SIGCONT), 0);
}

#ifndef WORLD_SANITIZED
/* In the child no thread answers the parent's requests. */
static void test_a_child_asks_for_itself(void **state)
{
    (void)state;
    struct seen seen;
    put_asked("child", "1min");
    struct weir *weir = open_with(NULL, &seen);
    struct asker asker = { .handle = handle_open(weir, "child"),
                           .takes = 2000 };
    assert_int_equal(pthread_create(&asker.thread, NULL, ask_on, &asker), 0);
    pid_t child = fork();
    if (child == 0) {
        patience_be_child();
        struct weir_reply reply = { .exact = false };
        while (STILL(!reply.exact))
            (void)weir_take(asker.handle, 1, &reply, 0);
        _exit(0);
    }
    assert_int_equal(STATUS_OF(child), 0);
    PATIENTLY(pthread_join(asker.thread, NULL));
    assert_in_range(asker.passed, 98, 100);
    weir_close(weir);
}
#endif

/* ---- Keys of its own ---- */

static void test_a_prefix_goes_to_the_stores(void **state)
{
    (void)state;
    /* clang-format off */
    static const char *const wrong[] = {
        "", "a b", "a{b", "\n", "caf\xc3\xa9",
        "12345678901234567890123456789012345678901234567890123456789012345"
    };
    /* clang-format on */
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir *weir;
    options.exact = &exact;
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        options.exact_prefix = wrong[i];
        assert_int_equal(weir_open(&options, &weir), WEIR_EINVAL);
    }
    options.exact_prefix = "fleet-2";
    options.roots = root.address;
    root_set(&root, "mine", EXACT("\"limit\":\"4/h\""));
    assert_int_equal(weir_open(&options, &weir), 0);
    assert_int_equal(weir_ready(weir, GUARD), 0);
    assert_int_equal(take_many(handle_open(weir, "mine"), 9), 4);
    assert_string_equal(fake.prefix, "fleet-2");
    weir_close(weir);
}

/* ---- A child of fork() ---- */

#ifndef WORLD_SANITIZED
static void test_a_child_opens_its_own(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "forked", EXACT("\"limit\":\"4/h\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle handle = handle_open(weir, "forked");
    assert_int_equal(take_many(handle, 3), 3);
    assert_int_equal(fake.opened, 1);
    pid_t child = fork();
    if (child == 0) {
        patience_be_child();
        /* The fakes are copies: this copy, too, has one unit left. */
        bool well = take_many(handle, 3) == 1 && fake.opened == 2;
        _exit(well ? 0 : 1);
    }
    assert_int_equal(STATUS_OF(child), 0);
    weir_close(weir);
}

/* A child leaves none of its parent's permits; its own are no copies. */
static void test_a_childs_permits_are_its_own(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "kin",
             "{\"kind\":\"concurrency\",\"sharing\":\"exact\","
             "\"limit\":\"4\",\"deadline\":\"1min\"}");
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle kin = handle_open(weir, "kin");
    struct weir_permit mine[2], more;
    struct weir_reply reply;
    assert_int_equal(weir_enter(kin, 0, 1, &mine[0], &reply, 0), WEIR_PASSED);
    assert_true(reply.exact);
    pid_t child = fork();
    if (child == 0) {
        patience_be_child();
        /* A request waits for a root for half a second only. */
        bool well = weir_sync(weir, GUARD) == 0 &&
                    weir_enter(kin, 0, 1, &mine[1], &reply, 0) == WEIR_PASSED &&
                    reply.exact && reply.fill == 2;
        weir_leave(&mine[0], WEIR_PERMIT_SUCCESS, 0);
        weir_peek(kin, 1, &reply, 0);
        _exit(well && reply.fill == 2 ? 0 : 1);
    }
    assert_int_equal(STATUS_OF(child), 0);
    /* The child died without leaving. If its permit had the parent's next id,
     * that permit would be taken for the child's. */
    assert_int_equal(weir_enter(kin, 0, 2, &mine[1], &reply, 0), WEIR_PASSED);
    assert_true(reply.fill == 4);
    assert_int_equal(weir_enter(kin, 0, 1, &more, &reply, 0), WEIR_LIMITED);
    weir_leave(&mine[0], WEIR_PERMIT_SUCCESS, 0);
    weir_leave(&mine[1], WEIR_PERMIT_SUCCESS, 0);
    assert_int_equal(weir_enter(kin, 0, 3, &more, &reply, 0), WEIR_PASSED);
    weir_close(weir);
}
#endif

/* ---- Permits ---- */

#define IN_FLIGHT(more)                                \
    "{\"kind\":\"concurrency\",\"sharing\":\"exact\"," \
    "\"store\":\"redis://localhost:6379\"," more "}"

/* The units in flight in the store. */
static int64_t fake_used(const char *name)
{
    pthread_mutex_lock(&fake.mutex);
    int64_t used = (int64_t)fake_bucket_state(weir_text_of(name))->state[1];
    pthread_mutex_unlock(&fake.mutex);
    return used;
}

static bool enter(struct weir_handle handle, uint64_t weight,
                  struct weir_permit *out)
{
    return weir_enter(handle, 0, weight, out, NULL, 0) == WEIR_PASSED;
}

static void leave(struct weir_permit *permit)
{
    weir_leave(permit, WEIR_PERMIT_SUCCESS, 0);
}

static void test_two_limiters_share_permits(void **state)
{
    (void)state;
    struct seen seen[2];
    root_set(&root, "pool", IN_FLIGHT("\"limit\":\"3\""));
    struct weir *weir[2] = { open_with(&exact, &seen[0]),
                             open_with(&exact, &seen[1]) };
    struct weir_handle a = handle_open(weir[0], "pool");
    struct weir_handle b = handle_open(weir[1], "pool");
    struct weir_permit permit[4], copy;
    struct weir_reply reply;
    assert_true(enter(a, 2, &permit[0]));
    assert_int_equal(
        weir_enter_by_name(weir[1], "pool", 4, 0, 1, &permit[1], &reply, 0),
        WEIR_PASSED);
    assert_true(reply.exact && reply.fill == 3 && reply.remaining == 0);
    assert_int_equal(weir_enter(a, 0, 1, &permit[2], &reply, 0), WEIR_LIMITED);
    assert_string_equal(reply.quota, "pool");
    assert_true(reply.fill == 3 && !reply.never);
    assert_compare(reply.retry_after, <, WEIR_SECOND);
    leave(&permit[2]); /* it holds nothing */
    assert_int_equal(fake_used("pool"), 3);
    copy = permit[0];
    leave(&permit[0]);
    leave(&permit[0]);
    leave(&copy); /* the store knows which process it belonged to */
    assert_int_equal(fake_used("pool"), 1);
    assert_true(enter(b, 2, &permit[3]));
    leave(&permit[1]);
    leave(&permit[3]);
    assert_int_equal(fake_used("pool"), 0);
    weir_close(weir[0]);
    weir_close(weir[1]);
}

/* A take that doesn't enter is judged, but is nowhere in flight. */
static void test_a_take_holds_nothing_in_a_store(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "brief", IN_FLIGHT("\"limit\":\"2\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle handle = handle_open(weir, "brief");
    struct weir_permit permit;
    assert_int_equal(take_many(handle, 5), 5);
    weir_charge(handle, 7, 0);
    assert_true(enter(handle, 2, &permit));
    weir_refund(handle, 1, 0);
    assert_int_equal(take_many(handle, 5), 0);
    assert_int_equal(weir_peek(handle, 1, NULL, 0), WEIR_LIMITED);
    leave(&permit);
    assert_int_equal(weir_peek(handle, 2, NULL, 0), WEIR_PASSED);
    weir_close(weir);
}

/* One permit, one id, three quotas: refused above is not in flight below. */
static void test_a_chain_of_permits_is_all_or_none(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "dam", IN_FLIGHT("\"limit\":\"3\""));
    root_set(&root, "weir",
             "{\"kind\":\"concurrency\",\"limit\":\"4\","
             "\"sharing\":\"local\",\"parent\":\"dam\"}");
    root_set(&root, "gate", IN_FLIGHT("\"limit\":\"9\",\"parent\":\"weir\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle gate = handle_open(weir, "gate");
    struct weir_handle here = handle_open(weir, "weir");
    struct weir_permit permit[3], more;
    for (int i = 0; i < 3; i++)
        assert_true(enter(gate, 1, &permit[i]));
    assert_false(enter(gate, 1, &more));
    assert_int_equal(fake_used("gate"), 3);
    assert_int_equal(fake_used("dam"), 3);
    assert_int_equal(weir_table_in_flight(weir->table, here.slot), 3);
    for (int i = 0; i < 3; i++)
        leave(&permit[i]);
    assert_int_equal(fake_used("gate") + fake_used("dam"), 0);
    assert_int_equal(weir_table_in_flight(weir->table, here.slot), 0);
    assert_int_equal(weir_table_in_flight(weir->table, gate.slot), 0);
    weir_close(weir);
}

/* A store that answered too late may count it: it is told to drop it. */
static void test_what_came_too_late_isnt_held(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "slow",
             IN_FLIGHT("\"limit\":\"3\",\"on_stale\":"
                       "\"limit\""));
    root_set(&root, "fly", IN_FLIGHT("\"limit\":\"3\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle slow = handle_open(weir, "slow");
    struct weir_permit permit;
    fake.late = true;
    assert_false(enter(slow, 1, &permit));
    assert_int_equal(fake_used("slow"), 0);
    /* `open` lets it pass: it is in flight, there too, until it leaves. */
    assert_true(enter(handle_open(weir, "fly"), 1, &permit));
    assert_int_equal(fake_used("fly"), 1);
    leave(&permit);
    assert_int_equal(fake_used("fly"), 0);
    weir_close(weir);
}

/* Without its store: a share of the limit, by this process's permits. */
static void test_permits_are_shared_without_a_store(void **state)
{
    (void)state;
    struct seen seen[2];
    root_set(&root, "dry",
             IN_FLIGHT("\"limit\":\"7\",\"on_stale\":"
                       "\"share\""));
    struct weir *weir[2] = { open_with(&exact, &seen[0]),
                             open_with(&exact, &seen[1]) };
    struct weir_handle dry = handle_open(weir[0], "dry");
    struct weir_permit permit[4];
    struct weir_reply reply;
    UNTIL(weir_load_relaxed(&weir[0]->fleet) == 2);
    assert_true(enter(dry, 1, &permit[0]));
    fake_fail(WEIR_ECONNECT);
    assert_true(enter(dry, 2, &permit[1]));
    assert_int_equal(weir_enter(dry, 0, 1, &permit[2], &reply, 0),
                     WEIR_LIMITED);
    assert_true(reply.stale && !reply.never);
    leave(&permit[1]);
    assert_true(enter(dry, 1, &permit[2]));
    leave(&permit[2]);
    fake_fail(0);
    assert_true(enter(dry, 1, &permit[3]));
    assert_int_equal(fake_used("dry"), 2);
    leave(&permit[3]);
    leave(&permit[0]);
    assert_int_equal(fake_used("dry"), 0);
    weir_close(weir[0]);
    weir_close(weir[1]);
}

/* A permit is given back after any edit of its quota: to the store, while it is
 * exact; and units in flight go on counting. */
static void test_permits_outlive_edits(void **state)
{
    (void)state;
    struct seen seen;
    struct weir_reply reply;
    root_set(&root, "door", IN_FLIGHT("\"limit\":\"3\""));
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle door = handle_open(weir, "door");
    struct weir_permit permit[3];
    for (int i = 0; i < 3; i++)
        assert_true(enter(door, 1, &permit[i]));
    root_set(&root, "door", IN_FLIGHT("\"limit\":\"0\""));
    UNTIL(weir_peek(door, 0, &reply, 0) == WEIR_LIMITED);
    leave(&permit[0]);
    assert_int_equal(fake_used("door"), 2);
    /* The quota is local now: this process's permits stay in flight. */
    root_set(&root, "door",
             "{\"kind\":\"concurrency\",\"limit\":\"3\","
             "\"sharing\":\"local\"}");
    UNTIL(weir_peek(door, 1, &reply, 0) == WEIR_PASSED);
    assert_int_equal(reply.fill, 2);
    leave(&permit[1]);
    root_remove(&root, "door");
    UNTIL((weir_peek(door, 1, &reply, 0), reply.unknown));
    leave(&permit[2]);
    assert_int_equal(weir_table_in_flight(weir->table, door.slot), 0);
    weir_close(weir);
}

/* ---- Waiting where a reserve can't ---- */

static void test_a_wait_for_the_next_window(void **state)
{
    (void)state;
    struct seen seen;
    root_set(&root, "ticks",
             "{\"sharing\":\"local\",\"limit\":\"2/200ms\","
             "\"algorithm\":\"fixed_window\"}");
    struct weir *weir = open_with(&exact, &seen);
    struct weir_handle handle = handle_open(weir, "ticks");
    struct weir_reply reply;
    /* More than two windows allow, so some calls have to wait. */
    for (int i = 0; i < 6; i++)
        assert_int_equal(weir_wait(handle, 1, GUARD, &reply), WEIR_PASSED);
    assert_int_equal(weir_wait(handle, 3, GUARD, &reply), WEIR_LIMITED);
    assert_true(reply.never);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_two_limiters_share_a_store, reset),
        cmocka_unit_test_setup(test_local_links_come_first, reset),
        cmocka_unit_test_setup(test_a_refusal_gives_all_back, reset),
        cmocka_unit_test_setup(test_on_stale_owes_a_store_nothing, reset),
        cmocka_unit_test_setup(test_a_share_is_given_back, reset),
        cmocka_unit_test_setup(test_a_level_has_its_own_back, reset),
        cmocka_unit_test_setup(test_a_shadow_gives_back_once, reset),
        cmocka_unit_test_setup(test_a_shadow_refuses_nothing, reset),
        cmocka_unit_test_setup(test_templates_have_exact_instances, reset),
        cmocka_unit_test_setup(test_a_dead_store_goes_by_on_stale, reset),
        cmocka_unit_test_setup(test_a_dead_stores_limit_is_shared, reset),
        cmocka_unit_test_setup(test_a_share_is_no_never, reset),
        cmocka_unit_test_setup(test_not_linked_is_told, reset),
        cmocka_unit_test_setup(test_another_version_is_refused, reset),
        cmocka_unit_test_setup(test_threads_ask_a_root, reset),
        cmocka_unit_test_setup(test_callers_that_dont_wait_for_a_root, reset),
        cmocka_unit_test_setup(test_a_close_under_way, reset),
        cmocka_unit_test_setup(test_a_prefix_goes_to_the_stores, reset),
#ifndef WORLD_SANITIZED
        cmocka_unit_test_setup(test_a_child_asks_for_itself, reset),
        cmocka_unit_test_setup(test_a_child_opens_its_own, reset),
#endif
        cmocka_unit_test_setup(test_two_limiters_share_permits, reset),
        cmocka_unit_test_setup(test_a_take_holds_nothing_in_a_store, reset),
        cmocka_unit_test_setup(test_a_chain_of_permits_is_all_or_none, reset),
        cmocka_unit_test_setup(test_what_came_too_late_isnt_held, reset),
        cmocka_unit_test_setup(test_permits_are_shared_without_a_store, reset),
        cmocka_unit_test_setup(test_permits_outlive_edits, reset),
#ifndef WORLD_SANITIZED
        cmocka_unit_test_setup(test_a_childs_permits_are_its_own, reset),
#endif
        cmocka_unit_test_setup(test_a_wait_for_the_next_window, reset),
        /* The last one: its quotas stay. */
        cmocka_unit_test_setup(test_too_many_stores_are_told, reset)
    };
    return cmocka_run_group_tests(tests, make_root, free_root);
}
