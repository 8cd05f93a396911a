/* SPDX-License-Identifier: MIT
 * test_client.c - libweir against a real root: opening, handles, decisions,
 * counts, events, threads, closing. */

#include "client_world.h"
#include "compare.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/atomic.h"
#include "libweir/libweir_internal.h"
#include "seed.h"

#define FILES 256 /* descriptors checked */
#define LOCAL_TEN                                                          \
    "{\"limit\": \"10/s\", \"low_burst\": \"10\", \"high_burst\": \"10\"," \
    " \"sharing\": \"local\"}"

#define THREE_AN_HOUR \
    "{\"limit\": \"3/h\", \"low_burst\": \"3\", \"high_burst\": \"3\"}"

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

static enum weir_verdict take_name(struct weir *weir, const char *name)
{
    return weir_take_by_name(weir, name, strlen(name), 1, NULL, 0);
}

/* ---- Opening ---- */

static int open_error(const char *roots, const char *name, uint64_t memory,
                      uint32_t threads)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    /* Exact counts, on a busy machine. */
    options.lock_wait = WEIR_SECOND;
    options.roots = roots;
    options.name = name;
    options.memory_max = memory;
    options.threads_max = threads;
    struct weir *weir = (struct weir *)&options;
    int error = weir_open(&options, &weir);
    assert_int_equal(weir_check(&options), error);
    if (error == 0)
        weir_close(weir);
    else
        assert_ptr_equal(weir, &options);
    return error;
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    char long_name[300];
    memset(long_name, 'n', 299);
    long_name[299] = '\0';
    const char *bad_roots[] = {
        "127.0.0.1", "127.0.0.1:",  "a:70000",
        ":-1",       ",a:1",        "a:1,,b:2",
        "a b:1",     "a:0",         "a:1 ",
        "[::1:3",    "a:1,b:2,A:1", "a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1"
    };
    for (size_t i = 0; i < sizeof(bad_roots) / sizeof(*bad_roots); i++)
        assert_int_equal(open_error(bad_roots[i], NULL, 0, 0), WEIR_EINVAL);
    assert_int_equal(open_error(NULL, long_name, 0, 0), WEIR_EINVAL);
    assert_int_equal(open_error(NULL, "\xff", 0, 0), WEIR_EINVAL);
    assert_int_equal(open_error(NULL, "a\nb", 0, 0), WEIR_EINVAL);
    assert_int_equal(open_error(NULL, NULL, 0, 5000), WEIR_EINVAL);
    assert_int_equal(weir_open(NULL, NULL), WEIR_EINVAL);
    assert_int_equal(weir_check(NULL), WEIR_EINVAL);
    struct weir_options zero = { 0 };
    struct weir *weir;
    assert_int_equal(weir_open(&zero, &weir), WEIR_EINVAL);
    long_name[255] = '\0';
    assert_int_equal(open_error(NULL, long_name, 1, 1), 0);
    assert_int_equal(open_error("", "", 0, 0), 0);
    assert_int_equal(open_error("a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1", NULL, 0, 0),
                     0);
}

static void no_root_is_needed(void **state)
{
    (void)state;
    const char *roots[] = { NULL, "127.0.0.1:1",
                            "no-such-host.invalid:7077,[::1]:1" };
    for (size_t i = 0; i < 3; i++) {
        struct seen seen;
        struct weir *weir = limiter_open(roots[i], &seen);
        assert_int_equal(weir_ready(weir, 0), WEIR_ETIMEOUT);
        assert_int_equal(weir_ready(weir, 20 * WEIR_MILLISECOND),
                         WEIR_ETIMEOUT);
        assert_int_equal(weir_sync(weir, 20 * WEIR_MILLISECOND), WEIR_ETIMEOUT);
        struct weir_handle quota = handle_open(weir, "q");
        assert_int_equal(weir_take(quota, 1, NULL, 0), WEIR_PASSED);
        assert_int_equal(take_name(weir, "q"), WEIR_PASSED);
        if (i == 1)
            UNTIL(seen_count(&seen, WEIR_EVENT_ROOT_DOWN) >= 1);
        struct weir_status status = limiter_status(weir);
        assert_int_equal(status.roots, i);
        assert_int_equal(status.roots_up, 0);
        assert_false(status.ready || status.stale);
        weir_close(weir);
    }
    weir_close(NULL);
}

/* ---- Names and handles ---- */

static void names_are_checked(void **state)
{
    (void)state;
    root_set(&root, "any/*", "{\"limit\": \"1/min\"}");
    struct weir *weir = limiter_ready(root.address, NULL);
    UNTIL(limiter_knows(weir, "any/thing"));
    static char name[WEIR_GIVEN_NAME_MAX + 1] = "any/";
    memset(name + 4, 'n', sizeof(name) - 4);
    const struct weir_text bad[] = {
        { "", 0 },         { NULL, 0 },       { "any/\n", 5 },
        { "any/a\0b", 7 }, { "any/\xff", 5 }, { "any/\xc3", 5 },
    };
    struct weir_handle untouched = { NULL, 7, 7 };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        uint64_t unknown = limiter_status(weir).unknown;
        assert_false(weir_name_is_valid(bad[i].p, bad[i].len));
        assert_int_equal(
            weir_handle_open(weir, bad[i].p, bad[i].len, &untouched),
            WEIR_ENAME);
        assert_int_equal(untouched.slot, 7);
        for (int k = 0; k < 9; k++)
            assert_int_equal(
                weir_take_by_name(weir, bad[i].p, bad[i].len, 1, NULL, 0),
                WEIR_PASSED);
        assert_int_equal(
            weir_peek_by_name(weir, bad[i].p, bad[i].len, 1, NULL, 0),
            WEIR_PASSED);
        assert_int_equal(limiter_status(weir).unknown, unknown + 10);
    }
    struct weir_handle quota;
    assert_true(weir_name_is_valid(name, 255));
    assert_int_equal(weir_handle_open(weir, name, 255, &quota), 0);
    /* A name over 255 bytes is limited as any other, and one over its bound in
     * any case. */
    struct weir_reply answer;
    UNTIL(weir_take_by_name(weir, name, 256, 1, &answer, 0) == WEIR_LIMITED);
    assert_int_equal(answer.quota_len, WEIR_NAME_MAX);
    assert_int_equal(weir_peek_by_name(weir, name, 256, 1, NULL, 0),
                     WEIR_LIMITED);
    assert_int_equal(weir_take_by_name(weir, name, 257, 1, NULL, 0),
                     WEIR_PASSED);
    assert_false(weir_name_is_valid(name, sizeof(name)));
    assert_int_equal(weir_take_by_name(weir, name, sizeof(name), 1, &answer, 0),
                     WEIR_LIMITED);
    assert_true(answer.never);
    /* A peek at a template's name makes its instance, and charges nothing. */
    struct weir_reply reply;
    assert_int_equal(weir_peek_by_name(weir, "any/peek", 8, 1, &reply, 0),
                     WEIR_PASSED);
    assert_string_equal(reply.quota, "any/peek");
    assert_int_equal(weir_sync(weir, GUARD), 0);
    assert_int_equal(root_passed(&root, "any/peek"), 0);
    /* The link has outlived them all. */
    assert_int_equal(weir_take_by_name(weir, "any/good", 8, 1, NULL, 0),
                     WEIR_PASSED);
    assert_int_equal(weir_sync(weir, GUARD), 0);
    assert_int_equal(root_passed(&root, "any/good"), 1);
    weir_close(weir);
}

static void zeroed_handle_passes(void **state)
{
    (void)state;
    struct weir_handle none = { 0 };
    struct weir_reply reply;
    memset(&reply, 0xff, sizeof(reply));
    assert_int_equal(weir_take(none, 1, &reply, 0), WEIR_PASSED);
    assert_true(reply.unknown);
    assert_int_equal(reply.quota_len, 0);
    assert_int_equal(weir_peek(none, 1, NULL, 0), WEIR_PASSED);
    assert_int_equal(weir_reserve(none, 1, 0, &reply, 0), WEIR_PASSED);
    assert_int_equal(reply.wait, 0);
    assert_int_equal(weir_wait(none, 1, 0, NULL), WEIR_PASSED);
    weir_charge(none, 1, 0);
    weir_refund(none, 1, 0);
    weir_handle_close(none);
}

static bool is_limited(struct weir_handle quota)
{
    return weir_peek(quota, 1, NULL, 0) == WEIR_LIMITED;
}

static void handle_outlives_its_quota(void **state)
{
    (void)state;
    struct weir *weir = limiter_ready(root.address, NULL);
    struct weir_handle quota = handle_open(weir, "later");
    uint64_t unknown = limiter_status(weir).unknown;
    struct weir_reply reply;
    assert_int_equal(weir_take(quota, 1, &reply, 0), WEIR_PASSED);
    assert_true(reply.unknown);
    assert_int_equal(take_name(weir, "later"), WEIR_PASSED);
    assert_int_equal(weir_reserve(quota, 1, 0, &reply, 0), WEIR_PASSED);
    assert_int_equal(limiter_status(weir).unknown, unknown + 3);
    for (int round = 0; round < 2; round++) {
        root_set(&root, "later", "{\"limit\": \"0/s\"}");
        UNTIL(is_limited(quota));
        assert_int_equal(take_name(weir, "later"), WEIR_LIMITED);
        root_set(&root, "later", "{\"limit\": \"1000/s\"}");
        UNTIL(!is_limited(quota));
        weir_peek(quota, 1, &reply, 0);
        assert_false(reply.unknown);
        assert_string_equal(reply.quota, "later");
        root_set(&root, "later", "{\"limit\": \"0/s\"}");
        UNTIL(is_limited(quota));
        root_remove(&root, "later");
        UNTIL(!is_limited(quota));
        weir_peek(quota, 1, &reply, 0);
        assert_true(reply.unknown);
    }
    weir_handle_close(quota);
    weir_close(weir);
}

/* ---- Decisions ---- */

static void decisions_keep_their_contract(void **state)
{
    (void)state;
    root_set(&root, "ten", LOCAL_TEN);
    struct weir *weir = limiter_ready(root.address, NULL);
    UNTIL(limiter_knows(weir, "ten"));
    struct weir_handle ten = handle_open(weir, "ten");
    struct weir_reply reply;
    weir_instant now = world_now();
    assert_int_equal(weir_peek(ten, 10, &reply, now), WEIR_PASSED);
    assert_int_equal(reply.remaining, 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(weir_take(ten, 1, NULL, now), WEIR_PASSED);
    assert_int_equal(weir_take(ten, 1, NULL, now), WEIR_LIMITED);
    assert_int_equal(weir_take(ten, 1, &reply, now), WEIR_LIMITED);
    assert_false(reply.unknown || reply.never || reply.stale || reply.shadow);
    assert_int_equal(reply.fill, 10);
    assert_int_equal(reply.remaining, 0);
    assert_in_range(reply.retry_after, 100 * WEIR_MILLISECOND,
                    125 * WEIR_MILLISECOND);
    assert_string_equal(reply.quota, "ten");
    assert_int_equal(weir_take(ten, 11, &reply, now), WEIR_LIMITED);
    assert_true(reply.never && reply.retry_after == WEIR_NEVER);
    assert_int_equal(weir_take(ten, UINT64_MAX, NULL, now), WEIR_LIMITED);
    weir_refund(ten, 4, now);
    assert_int_equal(weir_take(ten, 4, &reply, now), WEIR_PASSED);
    assert_int_equal(reply.remaining, 0);
    weir_refund(ten, 1000, now);
    assert_int_equal(weir_peek(ten, 10, &reply, now), WEIR_PASSED);
    assert_int_equal(reply.fill, 0);
    assert_int_equal(weir_peek_by_name(weir, "ten", 3, 10, &reply, now),
                     WEIR_PASSED);
    assert_int_equal(reply.remaining, 10);
    assert_int_equal(weir_peek_by_name(weir, "ten", 3, 11, &reply, now),
                     WEIR_LIMITED);
    assert_true(reply.never);
    weir_charge(ten, 20, now);
    assert_int_equal(weir_peek_by_name(weir, "ten", 3, 1, NULL, now),
                     WEIR_LIMITED);
    assert_int_equal(weir_take(ten, 1, &reply, now), WEIR_LIMITED);
    assert_int_equal(reply.fill, 20);
    now += 2 * WEIR_SECOND;
    assert_int_equal(weir_take(ten, 10, NULL, now), WEIR_PASSED);
    weir_handle_close(ten);
    weir_close(weir);
}

static int64_t fill_of(struct weir_handle quota, weir_instant now)
{
    struct weir_reply reply;
    weir_peek(quota, 0, &reply, now);
    return reply.fill;
}

static uint64_t random_cost(struct weir_rng *rng)
{
    uint64_t most = weir_rng_below(rng, 8) == 0 ? 3 * WEIR_WEIGHT_MAX : 1000;
    return weir_rng_below(rng, most);
}

/* Works whose costs turn out bit by bit, in any order, by handle and by name:
 * the bucket holds what they cost so far. */
static void costs_are_settled(void **state)
{
    (void)state;
    enum { WORKS = 8, STEPS = 2000 };
    root_set(&root, "cost/*",
             "{\"limit\": \"1/h\", \"low_burst\": \"1000000000000\","
             " \"high_burst\": \"1000000000000\", \"sharing\": \"local\"}");
    struct weir *weir = limiter_ready(root.address, NULL);
    UNTIL(limiter_knows(weir, "cost/of"));
    struct weir_handle quota = handle_open(weir, "cost/of");
    struct weir_rng rng = made_seed("costs_are_settled");
    uint64_t charged[WORKS] = { 0 };
    weir_instant now = world_now();
    for (int i = 0; i < STEPS; i++) {
        uint64_t *work = &charged[weir_rng_below(&rng, WORKS)];
        uint64_t cost = random_cost(&rng);
        if (*work == 0 && cost < 1000 &&
            weir_take(quota, cost, NULL, now) == WEIR_PASSED)
            *work = cost;
        if (i % 2)
            weir_settle(quota, work, cost, now);
        else
            assert_true(
                weir_settle_by_name(weir, "cost/of", 7, work, cost, now));
        assert_int_equal(*work, cost);
        int64_t sum = 0;
        for (int k = 0; k < WORKS; k++)
            sum += (int64_t)charged[k];
        assert_int_equal(fill_of(quota, now), sum);
    }
    uint64_t done = (uint64_t)fill_of(quota, now);
    assert_true(weir_refund_by_name(weir, "cost/of", 7, done, now));
    assert_int_equal(fill_of(quota, now), 0);
    /* Up to the bound of a debt, and no further. */
    charged[0] = 0;
    weir_settle(quota, &charged[0], UINT64_MAX, now);
    assert_int_equal(fill_of(quota, now), WEIR_DEBT_MAX);
    weir_settle(quota, &charged[0], 0, now);
    assert_int_equal(fill_of(quota, now), 0);
    weir_handle_close(quota);
    weir_close(weir);
}

/* A charge makes the name, and is the fleet's; a name without quota is counted
 * as such. */
static void charges_by_name_are_the_fleets(void **state)
{
    (void)state;
    root_set(&root, "owed/*",
             "{\"limit\": \"3/h\", \"low_burst\": \"3\", \"high_burst\": \"3\","
             " \"max_debt\": \"366d\"}");
    struct weir *weir = limiter_ready(root.address, NULL);
    UNTIL(limiter_knows(weir, "owed/any"));
    assert_true(weir_charge_by_name(weir, "owed/much", 9, 1000, 0));
    assert_int_equal(weir_sync(weir, GUARD), 0);
    assert_int_equal(root_passed(&root, "owed/much"), 1000);
    struct weir *other = limiter_ready(root.address, NULL);
    struct weir_handle quota = handle_open(other, "owed/much");
    UNTIL(is_limited(quota));
    assert_true(weir_refund_by_name(weir, "owed/much", 9, 999, 0));
    assert_int_equal(weir_sync(weir, GUARD), 0);
    assert_int_equal(root_passed(&root, "owed/much"), 1);
    UNTIL(!is_limited(quota));
    weir_handle_close(quota);
    weir_close(other);
    uint64_t unknown = limiter_status(weir).unknown;
    uint64_t charged = 3;
    assert_false(weir_charge_by_name(weir, "nobody", 6, 1, 0));
    assert_false(weir_refund_by_name(weir, "nobody\n", 7, 1, 0));
    assert_false(weir_settle_by_name(weir, "nobody", 6, &charged, 4, 0));
    assert_true(weir_settle_by_name(weir, "nobody", 6, &charged, 3, 0));
    assert_int_equal(limiter_status(weir).unknown, unknown + 3);
    weir_close(weir);
}

static void reservations_wait_their_turn(void **state)
{
    (void)state;
    root_set(&root, "turn", LOCAL_TEN);
    struct weir *weir = limiter_ready(root.address, NULL);
    UNTIL(limiter_knows(weir, "turn"));
    struct weir_handle turn = handle_open(weir, "turn");
    struct weir_reply reply;
    weir_instant now = world_now();
    assert_int_equal(weir_reserve(turn, 10, 0, &reply, now), WEIR_PASSED);
    assert_int_equal(reply.wait, 0);
    assert_int_equal(weir_reserve(turn, 5, WEIR_SECOND, &reply, now),
                     WEIR_PASSED);
    assert_in_range(reply.wait, WEIR_SECOND / 2, WEIR_SECOND / 2 + 1000);
    assert_int_equal(weir_reserve(turn, 10, WEIR_SECOND, &reply, now),
                     WEIR_LIMITED);
    assert_int_equal(weir_reserve(turn, 11, WEIR_NEVER, &reply, now),
                     WEIR_LIMITED);
    assert_true(reply.never);
    weir_handle_close(turn);
    weir_close(weir);
}

/* By the real clock: the reported wait is a lower bound of the time that
 * passed; so is the time that the bucket needs until one more unit fits. */
static void a_wait_takes_its_time(void **state)
{
    (void)state;
    root_set(&root, "slow",
             "{\"limit\": \"10/h\", \"low_burst\": \"10\","
             " \"high_burst\": \"10\","
             " \"sharing\": \"local\"}");
    root_set(&root, "wait", LOCAL_TEN);
    struct weir *weir = limiter_ready(root.address, NULL);
    UNTIL(limiter_knows(weir, "slow") && limiter_knows(weir, "wait"));
    struct weir_handle slow = handle_open(weir, "slow");
    struct weir_handle wait = handle_open(weir, "wait");
    struct weir_reply reply = { .wait = 0 };
    assert_int_equal(weir_take(slow, 10, NULL, 0), WEIR_PASSED);
    assert_int_equal(weir_wait(slow, 1, 0, NULL), WEIR_LIMITED);
    /* Again, if the machine was so slow that no wait was needed. */
    weir_instant until = world_now() + GUARD;
    while (reply.wait == 0 && world_now() < until) {
        weir_refund(wait, 1000, 0);
        weir_instant before = world_now();
        weir_charge(wait, 12, 0);
        weir_instant asked = world_now();
        assert_int_equal(weir_wait(wait, 1, WEIR_SECOND, &reply), WEIR_PASSED);
        weir_instant after = world_now();
        assert_compare(after, >=, before + 300 * WEIR_MILLISECOND);
        assert_compare(after, >=, asked + reply.wait);
    }
    assert_compare(reply.wait, >, 0);
    weir_handle_close(slow);
    weir_handle_close(wait);
    weir_close(weir);
}

static void many_are_taken_in_order(void **state)
{
    (void)state;
    root_set(&root, "few", LOCAL_TEN);
    struct weir *weir = limiter_ready(root.address, NULL);
    UNTIL(limiter_knows(weir, "few"));
    char too_long[300] = "few";
    struct weir_request requests[40];
    for (int i = 0; i < 40; i++)
        requests[i] = (struct weir_request){ "few", 3, 1, WEIR_PASSED };
    requests[3] = (struct weir_request){ NULL, 0, 1, WEIR_LIMITED };
    requests[4] = (struct weir_request){ "unknown", 7, 1, WEIR_LIMITED };
    requests[5] = (struct weir_request){ too_long, 300, 1, WEIR_LIMITED };
    uint64_t unknown = limiter_status(weir).unknown;
    assert_int_equal(weir_take_many(weir, requests, 0, 0), 0);
    assert_int_equal(weir_take_many(weir, requests, 40, 0), 13);
    for (int i = 0; i < 40; i++)
        assert_int_equal(requests[i].verdict,
                         i < 13 ? WEIR_PASSED : WEIR_LIMITED);
    assert_int_equal(limiter_status(weir).unknown, unknown + 3);
    weir_close(weir);
}

/* ---- Counts ---- */

/* Every way to take, by handle and by name: the shadow set's verdicts show at
 * the root, and nowhere here. */
static void a_shadow_set_is_asked_too(void **state)
{
    (void)state;
    char out[4096];
    root_set(&root, "tried", "{\"limit\": \"1000/s\"}");
    assert_int_equal(root_ask(&root, "POST", "/v1/quotas:import?shadow=1",
                              "[{\"name\": \"tried\", \"limit\": \"1/day\", "
                              "\"low_burst\": 5, \"high_burst\": 5}, "
                              "{\"name\": \"only\", \"limit\": \"0/s\"}]",
                              out, sizeof out),
                     200);
    struct weir *weir = limiter_ready(root.address, NULL);
    struct weir_handle quota = handle_open(weir, "tried");
    struct weir_request requests[] = {
        { .name = "tried", .len = 5, .weight = 1 }
    };
    struct weir_reply reply;
    assert_int_equal(weir_take(quota, 2, NULL, 0), WEIR_PASSED);
    weir_refund(quota, 1, 0);
    assert_int_equal(take_name(weir, "tried"), WEIR_PASSED);
    assert_int_equal(weir_take_many(weir, requests, 1, 0), 1);
    assert_int_equal(weir_reserve(quota, 1, 0, &reply, 0), WEIR_PASSED);
    assert_int_equal(weir_take(quota, 1, &reply, 0), WEIR_PASSED);
    /* Six are too many in the shadow set. */
    assert_int_equal(weir_take(quota, 1, &reply, 0), WEIR_PASSED);
    assert_false(reply.shadow);
    weir_charge(quota, 2, 0);
    assert_int_equal(weir_peek(quota, 1, NULL, 0), WEIR_PASSED);
    assert_int_equal(take_name(weir, "only"), WEIR_PASSED);
    struct weir_handle other = { NULL, 7, 7 };
    assert_int_equal(weir_handle_open(weir, "shadow:tried", 12, &other),
                     WEIR_ENAME);
    assert_false(weir_name_is_valid("shadow:tried", 12));
    assert_int_equal(take_name(weir, "shadow:tried"), WEIR_PASSED);
    assert_int_equal(weir_sync(weir, GUARD), 0);
    assert_int_equal(root_passed(&root, "tried"), 8);
    root_ask(&root, "GET", "/v1/usage?shadow=1", "", out, sizeof out);
    const char *tried = strstr(out, "\"tried\"");
    const char *only = strstr(out, "\"only\"");
    assert_non_null(tried);
    assert_non_null(only);
    assert_memory_equal(strstr(tried, "\"passed\""), "\"passed\": 7,", 12);
    assert_memory_equal(strstr(tried, "\"limited\""), "\"limited\": 1,", 13);
    assert_memory_equal(strstr(only, "\"limited\""), "\"limited\": 1,", 13);
    weir_handle_close(quota);
    weir_close(weir);
    assert_int_equal(
        root_ask(&root, "POST", "/v1/shadow:discard", "", out, sizeof out),
        200);
}

static void sync_stands_on_the_fleet(void **state)
{
    (void)state;
    root_set(&root, "sync",
             "{\"limit\": \"1/h\", \"low_burst\": \"1000\","
             " \"high_burst\": \"1000\"}");
    struct weir *one = limiter_ready(root.address, NULL);
    struct weir *two = limiter_ready(root.address, NULL);
    UNTIL(limiter_knows(one, "sync") && limiter_knows(two, "sync"));
    for (int round = 1; round <= 5; round++) {
        struct weir_reply reply;
        struct weir_handle quota = handle_open(one, "sync");
        assert_int_equal(weir_take(quota, 50, NULL, 0), WEIR_PASSED);
        weir_handle_close(quota);
        assert_int_equal(weir_sync(one, GUARD), 0);
        assert_int_equal(root_passed(&root, "sync"), 50 * round);
        quota = handle_open(two, "sync");
        assert_int_equal(weir_sync(two, GUARD), 0);
        weir_peek(quota, 1, &reply, 0);
        assert_in_range(reply.fill, 50 * round - 1, 50 * round);
        weir_handle_close(quota);
    }
    weir_close(one);
    weir_close(two);
}

/* A close ends before its time only when the root has taken all. A slower one,
 * on a busy machine, may have lost its last report. */
static void closing_delivers_counts(void **state)
{
    (void)state;
    root_set(&root, "last", "{\"limit\": \"1000/s\"}");
    uint64_t least = 0, most = 0;
    weir_instant until = world_now() + GUARD;
    for (int in_time = 0; in_time < 5;) {
        assert_compare(world_now(), <, until);
        struct weir *weir = limiter_ready(root.address, NULL);
        UNTIL(limiter_knows(weir, "last"));
        for (int i = 0; i < 7; i++)
            take_name(weir, "last");
        weir_instant before = world_now();
        weir_close(weir);
        bool quick = world_now() - before < WEIR_CLOSE_PATIENCE;
        in_time += quick;
        least += quick ? 7 : 0;
        most += 7;
        assert_in_range(root_passed(&root, "last"), least, most);
    }
}

/* On a table that is known already: no root has answered this process. */
static void closing_at_once_delivers_counts(void **state)
{
    (void)state;
    char table[64];
    snprintf(table, sizeof(table), "/dev/shm/weir-once-%d", (int)getpid());
    root_set(&root, "once", "{\"limit\": \"1000/s\"}");
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.roots = root.address;
    options.table = table;
    struct weir *weir;
    assert_int_equal(weir_open(&options, &weir), 0);
    UNTIL(limiter_knows(weir, "once"));
    weir_close(weir);
    uint64_t least = root_passed(&root, "once"), most = least;
    weir_instant until = world_now() + GUARD;
    for (int in_time = 0; in_time < 5;) {
        assert_compare(world_now(), <, until);
        assert_int_equal(weir_open(&options, &weir), 0);
        assert_int_equal(take_name(weir, "once"), WEIR_PASSED);
        weir_instant before = world_now();
        weir_close(weir);
        bool quick = world_now() - before < WEIR_CLOSE_PATIENCE;
        in_time += quick;
        least += quick;
        most++;
        assert_in_range(root_passed(&root, "once"), least, most);
    }
    unlink(table);
}

static void two_limiters_keep_apart(void **state)
{
    (void)state;
    root_set(&root, "apart", LOCAL_TEN);
    struct weir *weir[2];
    struct weir_handle quota[2];
    for (int i = 0; i < 2; i++) {
        weir[i] = limiter_ready(root.address, NULL);
        UNTIL(limiter_knows(weir[i], "apart"));
        quota[i] = handle_open(weir[i], "apart");
    }
    weir_instant now = world_now();
    for (int i = 0; i < 20; i++)
        assert_int_equal(weir_take(quota[i % 2], 1, NULL, now), WEIR_PASSED);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_take(quota[i], 1, NULL, now), WEIR_LIMITED);
    weir_close(weir[0]);
    assert_int_equal(weir_take(quota[1], 1, NULL, now), WEIR_LIMITED);
    weir_close(weir[1]);
}

static bool peeks(struct weir *weir, const char *name, struct weir_reply *reply)
{
    return weir_peek_by_name(weir, name, strlen(name), 1, reply, 0) ==
           WEIR_PASSED;
}

/* One limiter uses up a name, and a parent, that another one only peeks at. */
static void peeks_hear_of_the_fleet(void **state)
{
    (void)state;
    root_set(&root, "heard", THREE_AN_HOUR);
    root_set(&root, "heard/*",
             "{\"limit\": \"unlimited\", \"parent\": \"heard\"}");
    root_set(&root, "looked/*", THREE_AN_HOUR);
    struct weir *user = limiter_ready(root.address, NULL);
    struct weir *looker = limiter_ready(root.address, NULL);
    const char *used[] = { "looked/at", "heard/of" };
    for (int i = 0; i < 2; i++) {
        UNTIL(limiter_knows(user, used[i]));
        while (take_name(user, used[i]) == WEIR_PASSED)
            ;
    }
    assert_int_equal(weir_sync(user, GUARD), 0);
    for (int i = 0; i < 2; i++) {
        struct weir_reply reply;
        bool passed = peeks(looker, used[i], &reply);
        while (reply.unknown)
            passed = peeks(looker, used[i], &reply);
        /* The root may have answered since. */
        assert_true(passed ? reply.stale : !reply.stale);
        UNTIL(!peeks(looker, used[i], &reply));
        assert_false(reply.stale);
        assert_string_equal(reply.quota, i == 0 ? used[i] : "heard");
        assert_int_equal(limiter_status(looker).roots_up, 1);
    }
    struct weir_reply reply;
    UNTIL(peeks(looker, "looked/aside", &reply) && !reply.stale);
    weir_close(user);
    weir_close(looker);
}

/* ---- Events ---- */

static bool is_readable(int fd)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
    return poll(&poll_fd, 1, 0) == 1;
}

/* The next event, except that a root finds this machine too busy. */
static bool next_event(struct weir *weir, struct weir_event *out)
{
    bool found = weir_event_next(weir, out);
    while (found && out->type == WEIR_EVENT_REPORT_BACKOFF)
        found = weir_event_next(weir, out);
    return found;
}

static void events_wait(void **state)
{
    (void)state;
    struct seen seen;
    struct weir *weir = limiter_ready(root.address, &seen);
    int fd = weir_event_fd(weir);
    struct weir_event event;
    UNTIL(seen_count(&seen, WEIR_EVENT_READY) == 1);
    assert_true(is_readable(fd));
    assert_true(next_event(weir, &event));
    assert_int_equal(event.type, WEIR_EVENT_ROOT_UP);
    assert_true(is_readable(fd));
    assert_true(next_event(weir, &event));
    assert_int_equal(event.type, WEIR_EVENT_READY);
    assert_false(next_event(weir, &event));
    weir_close(weir);
}

/* The events of a limiter without roots, which has no others. */
static void events_overflow(void **state)
{
    (void)state;
    struct weir *weir = limiter_open(NULL, NULL);
    int fd = weir_event_fd(weir);
    struct weir_event event = { .type = WEIR_EVENT_TABLE_FULL, .at = 1 };
    assert_false(is_readable(fd));
    for (int i = 0; i < WEIR_EVENT_QUEUE_MAX + 5; i++)
        weir_event_send(weir, &event);
    unsigned kept = 0;
    while (weir_event_next(weir, &event) && event.type == WEIR_EVENT_TABLE_FULL)
        kept++;
    assert_int_equal(kept, WEIR_EVENT_QUEUE_MAX);
    assert_int_equal(event.type, WEIR_EVENT_LOST);
    assert_int_equal(event.count, 5);
    assert_false(is_readable(fd));
    assert_false(weir_event_next(weir, &event));
    weir_close(weir);
}

/* ---- Threads ---- */

struct taker {
    struct weir *weir;
    struct weir_handle quota;
    pthread_barrier_t *barrier;
    uint64_t passed;
};

static void *take_much(void *context)
{
    struct taker *taker = context;
    for (int i = 0; i < 2000; i++) {
        taker->passed += weir_take(taker->quota, 1, NULL, 0) == WEIR_PASSED;
        take_name(taker->weir, "nobody");
    }
    pthread_barrier_wait(taker->barrier);
    return NULL;
}

static unsigned free_stripes(struct weir *weir)
{
    unsigned count = 0;
    uint32_t found[4], stripe;
    while ((stripe = weir_table_claim_stripe(weir->table)) != 0)
        found[count++] = stripe;
    for (unsigned i = 0; i < count; i++)
        weir_table_release_stripe(weir->table, found[i]);
    return count;
}

static void threads_give_stripes_back(void **state)
{
    (void)state;
    root_set(&root, "crowd", "{\"limit\": \"unlimited\"}");
    struct weir *weir = limiter_ready(root.address, NULL);
    UNTIL(limiter_knows(weir, "crowd"));
    struct weir_handle quota = handle_open(weir, "crowd");
    uint64_t unknown = 0, passed = 0;
    for (int round = 0; round < 5; round++) {
        pthread_t thread[16];
        struct taker taker[16];
        pthread_barrier_t barrier;
        pthread_barrier_init(&barrier, NULL, 17);
        for (int i = 0; i < 16; i++) {
            taker[i] = (struct taker){ weir, quota, &barrier, 0 };
            pthread_create(&thread[i], NULL, take_much, &taker[i]);
        }
        PATIENTLY(pthread_barrier_wait(&barrier));
        for (int i = 0; i < 16; i++) {
            PATIENTLY(pthread_join(thread[i], NULL));
            passed += taker[i].passed;
            unknown += 2000;
        }
        pthread_barrier_destroy(&barrier);
        /* One stripe is this thread's. */
        assert_int_equal(free_stripes(weir), 3);
    }
    assert_int_equal(passed, 16 * 5 * 2000);
    assert_int_equal(limiter_status(weir).unknown, unknown);
    assert_int_equal(weir_sync(weir, GUARD), 0);
    assert_int_equal(root_passed(&root, "crowd"), passed);
    weir_close(weir);
}

/* ---- State that must stay unchanged ---- */

/* A sanitizer has another heap, and reports leaks itself. */
static uint64_t heap_in_use(void)
{
    return mallinfo2().uordblks;
}

static void nothing_leaks(void **state)
{
    (void)state;
    const char *roots[] = { root.address, NULL, "127.0.0.1:1",
                            "no-such-host.invalid:1" };
    unsigned files = 0, threads = 0;
    uint64_t heap = 0;
    for (int i = 0; i < 220; i++) {
        struct weir *weir = limiter_open(roots[i % 4], NULL);
        if (i % 8 == 0)
            assert_int_equal(weir_ready(weir, GUARD), 0);
        take_name(weir, "any/leak");
        weir_close(weir);
        if (i != 19)
            continue;
        files = world_count("/proc/self/fd");
        threads = world_count("/proc/self/task");
        heap = heap_in_use();
    }
    /* A thread that was joined may still be listed for a moment. */
    UNTIL(world_count("/proc/self/fd") <= files);
    UNTIL(world_count("/proc/self/task") <= threads);
    /* Less than 100 bytes each: the allocator's own. */
    UNTIL(heap_in_use() <= heap + 20000);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void check_close_on_exec(const bool *open_before)
{
    for (int fd = 0; fd < FILES; fd++) {
        if (is_open(fd) && !open_before[fd] &&
            !(fcntl(fd, F_GETFD) & FD_CLOEXEC))
            fail_msg("descriptor %d would be inherited", fd);
    }
}

/* The mask of blocked signals of the thread called 'name'. */
static uint64_t blocked_by(const char *name)
{
    uint64_t mask = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[300], line[256], found[64] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/status",
                 entry->d_name);
        FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        while (file && fgets(line, sizeof(line), file)) {
            sscanf(line, "Name: %63s", found);
            if (strcmp(found, name) == 0)
                sscanf(line, "SigBlk: %lx", &mask);
        }
        if (file)
            fclose(file);
    }
    closedir(dir);
    return mask;
}

static void signals_are_left_alone(void **state)
{
    (void)state;
    struct sigaction before[65], after;
    for (int i = 1; i < 65; i++)
        sigaction(i, NULL, &before[i]);
    bool open_before[FILES];
    for (int fd = 0; fd < FILES; fd++)
        open_before[fd] = is_open(fd);
    sigset_t mask, mask_after;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    struct weir *weir = limiter_ready(root.address, NULL);
    check_close_on_exec(open_before);
    /* All but SIGKILL, SIGSTOP and the two that belong to the C library. */
    uint64_t all = ~(uint64_t)0 & ~(1ull << (SIGKILL - 1)) &
                   ~(1ull << (SIGSTOP - 1)) & ~(3ull << 31);
    UNTIL((blocked_by("weir") & all) == all);
    for (int i = 1; i < 65; i++) {
        if (sigaction(i, NULL, &after) == 0)
            assert_ptr_equal(after.sa_handler, before[i].sa_handler);
    }
    pthread_sigmask(SIG_BLOCK, NULL, &mask_after);
    for (int i = 1; i < 65; i++)
        assert_int_equal(sigismember(&mask, i), sigismember(&mask_after, i));
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(no_root_is_needed),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(zeroed_handle_passes),
        cmocka_unit_test(handle_outlives_its_quota),
        cmocka_unit_test(decisions_keep_their_contract),
        cmocka_unit_test(costs_are_settled),
        cmocka_unit_test(charges_by_name_are_the_fleets),
        cmocka_unit_test(reservations_wait_their_turn),
        cmocka_unit_test(a_wait_takes_its_time),
        cmocka_unit_test(many_are_taken_in_order),
        cmocka_unit_test(a_shadow_set_is_asked_too),
        cmocka_unit_test(sync_stands_on_the_fleet),
        cmocka_unit_test(closing_delivers_counts),
        cmocka_unit_test(closing_at_once_delivers_counts),
        cmocka_unit_test(two_limiters_keep_apart),
        cmocka_unit_test(peeks_hear_of_the_fleet),
        cmocka_unit_test(events_wait),
        cmocka_unit_test(events_overflow),
        cmocka_unit_test(threads_give_stripes_back),
        cmocka_unit_test(nothing_leaks),
        cmocka_unit_test(signals_are_left_alone),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
