/* SPDX-License-Identifier: MIT
 * test/core/node/test_ask.c - exact quotas that a root decides, over the lab's
 * fleet: for any faults of the network no more passes than one bucket state
 * allows, and each request ends once. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "lab/fleet.h"
#include "seed.h"

#define LIMITERS 8
#define ASKS_MAX 20000
#define PATIENCE (50 * WEIR_MILLISECOND)

struct book {
    struct weir_fleet *fleet;
    struct weir_rng rng;
    uint32_t asked;           /* tickets given: 0 … */
    uint8_t ended[ASKS_MAX];  /* number of ends */
    uint32_t passed, refused; /* answers */
    uint32_t away, late, unknown, full, odd;
};

static const struct weir_net calm = { .shape = WEIR_DELAY_UNIFORM,
                                      .delay = WEIR_MILLISECOND,
                                      .spread = WEIR_MILLISECOND / 2 };
static const struct weir_net wild = { .shape = WEIR_DELAY_EXPONENTIAL,
                                      .delay = WEIR_MILLISECOND / 2,
                                      .spread = 2 * WEIR_MILLISECOND,
                                      .loss = 0.05,
                                      .twice = 0.2,
                                      .reorder = 0.3,
                                      .replay = 0.7 };

static void run_on(struct book *book, weir_duration span)
{
    weir_fleet_run(book->fleet, weir_fleet_now(book->fleet) + span);
}

static struct weir_node_place root_place(uint32_t index)
{
    return (struct weir_node_place){ .root = true, .index = index };
}

static struct book *make(uint32_t roots, const struct weir_net *net,
                         uint32_t upstream)
{
    struct book *book = calloc(1, sizeof(*book));
    assert_non_null(book);
    struct weir_fleet_options options = {
        .seed = from_environment("WEIR_SEED", 1),
        .limiters = LIMITERS,
        .limiters_started = upstream ? 0 : LIMITERS,
        .roots = roots,
        .slots = 32,
        .asks = 512,
        .net = *net,
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
    };
    for (uint32_t i = 1; upstream && i < roots; i++)
        options.upstream[i] = upstream;
    book->fleet = weir_fleet_new(&options);
    book->rng.state = from_environment("WEIR_SEED", 1);
    /* As limiters of regions: each is linked to one region's root. */
    for (uint32_t l = 0; upstream && l < LIMITERS; l++) {
        for (uint32_t i = 0; i < roots; i++)
            weir_fleet_allow(book->fleet, l, i, i == 1 + l % (roots - 1));
        weir_fleet_start(book->fleet, (struct weir_node_place){ .index = l });
    }
    return book;
}

static void end(struct book *book)
{
    assert_int_equal(weir_fleet_error(book->fleet), 0);
    weir_fleet_free(book->fleet);
    free(book);
}

static void put(struct book *book, const char *name, uint64_t units,
                uint32_t max_entries)
{
    struct weir_quota quota;
    struct weir_diag diag = { .text = "" };
    weir_quota_init(&quota);
    quota.name = weir_text_of(name);
    quota.limit =
        (struct weir_limit){ .units = units, .per = 60 * WEIR_SECOND };
    quota.sharing = WEIR_EXACT;
    quota.algorithm = WEIR_SLIDING_LOG;
    quota.on_stale = WEIR_STALE_LIMIT;
    quota.max_entries = max_entries;
    if (weir_fleet_put(book->fleet, &quota, &diag) < 0)
        fail_msg("%s", diag.text);
    run_on(book, 3 * WEIR_SECOND);
}

/* ---- Asking ---- */

static void note(struct book *book, uint64_t ticket, int error, bool passed)
{
    assert_compare(ticket, <, book->asked);
    book->ended[ticket]++;
    book->passed += error == 0 && passed;
    book->refused += error == 0 && !passed;
    book->away += error == WEIR_ECONNECT;
    book->late += error == WEIR_ETIMEOUT;
    book->unknown += error == WEIR_ENOENT;
    book->full += error == WEIR_EFULL;
}

static void fetch(struct book *book)
{
    uint64_t ticket;
    int error;
    struct weir_algorithm_answer answer = { .passed = false };
    for (uint32_t l = 0; l < LIMITERS; l++) {
        struct weir_limiter *limiter = weir_fleet_limiter(book->fleet, l);
        while (weir_limiter_answered(limiter, &ticket, &error, &answer))
            note(book, ticket, error, answer.passed);
    }
}

static void ask(struct book *book, uint32_t limiter, const char *name,
                enum weir_algorithm_op op)
{
    struct weir_step_ask ask = { .name = weir_text_of(name),
                                 .ask = { .op = op, .weight = 1 },
                                 .patience = PATIENCE };
    assert_compare(book->asked, <, ASKS_MAX);
    uint64_t ticket = book->asked++;
    int error = weir_fleet_ask(book->fleet, limiter, &ask, ticket);
    if (error < 0)
        note(book, ticket, error, false);
}

/* That many takes by random limiters, a quarter millisecond apart; then all
 * have ended, each once. */
static void ask_many(struct book *book, const char *name, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ask(book, (uint32_t)weir_rng_below(&book->rng, LIMITERS), name,
            WEIR_ALGORITHM_TAKE);
        run_on(book, WEIR_MILLISECOND / 4);
        fetch(book);
    }
    run_on(book, 2 * PATIENCE);
    fetch(book);
    for (uint32_t i = 0; i < book->asked; i++) {
        if (book->ended[i] != 1)
            fail_msg("ask %u ended %u times (seed %llu)", i, book->ended[i],
                     (unsigned long long)from_environment("WEIR_SEED", 1));
    }
}

static struct weir_root_stats stats_of(const struct book *book, uint32_t root)
{
    struct weir_root_stats stats;
    weir_root_stats(weir_fleet_root(book->fleet, root), &stats);
    return stats;
}

/* ---- The stories ---- */

static void test_a_calm_fleet_passes_exactly_the_limit(void **state)
{
    (void)state;
    struct book *book = make(2, &calm, 0);
    put(book, "q", 100, 0);
    ask_many(book, "q", 1000);
    assert_int_equal(book->passed, 100);
    assert_int_equal(book->refused, 900);
    end(book);
}

static void test_loss_and_doubles_never_pass_more(void **state)
{
    (void)state;
    struct book *book = make(2, &wild, 0);
    put(book, "q", 300, 0);
    ask_many(book, "q", 4000);
    uint64_t dropped =
        stats_of(book, 0).asks_dropped + stats_of(book, 1).asks_dropped;
    print_message("wild: %u passed of 300, %u refused, %u late; %llu asks "
                  "dropped\n",
                  book->passed, book->refused, book->late,
                  (unsigned long long)dropped);
    assert_compare(book->passed, <=, 300);
    assert_compare(book->passed, >, 200);
    assert_compare(dropped, >, 0);
    assert_compare(book->late, >, 0);
    end(book);
}

/* Links break meanwhile, and messages in flight arrive on the next one. */
static void test_what_a_link_replays_is_dropped(void **state)
{
    (void)state;
    struct book *book = make(1, &wild, 0);
    put(book, "q", 300, 0);
    for (uint32_t i = 0; i < 60; i++) {
        ask_many(book, "q", 40);
        ask(book, i % LIMITERS, "q", WEIR_ALGORITHM_TAKE);
        weir_fleet_reset(book->fleet,
                         (struct weir_node_place){ .index = i % LIMITERS });
        run_on(book, 30 * WEIR_MILLISECOND);
    }
    ask_many(book, "q", 1);
    print_message("resets: %u passed of 300, %u away, %u late\n", book->passed,
                  book->away, book->late);
    assert_compare(book->passed, <=, 300);
    assert_compare(book->passed, >, 200);
    assert_compare(book->away, >, 0);
    end(book);
}

static void test_all_ask_the_same_root(void **state)
{
    (void)state;
    struct book *book = make(3, &calm, 0);
    put(book, "u/*", 5, 0);
    for (uint32_t i = 0; i < 60; i++) {
        char name[16];
        snprintf(name, sizeof(name), "u/%u", i);
        ask_many(book, name, 20);
    }
    uint64_t bucket_states[3];
    for (uint32_t i = 0; i < 3; i++) {
        bucket_states[i] = stats_of(book, i).bucket_states;
        assert_compare(bucket_states[i], >, 0);
    }
    assert_int_equal(bucket_states[0] + bucket_states[1] + bucket_states[2],
                     60);
    assert_int_equal(book->passed, 60 * 5);
    end(book);
}

static void test_a_dead_root_is_followed_by_an_empty_bucket_state(void **state)
{
    (void)state;
    struct book *book = make(2, &calm, 0);
    put(book, "q", 100, 0);
    ask_many(book, "q", 500);
    uint32_t asked = stats_of(book, 0).bucket_states == 1 ? 0 : 1;
    ask(book, 0, "q", WEIR_ALGORITHM_TAKE);
    weir_fleet_kill(book->fleet, root_place(asked));
    ask_many(book, "q", 500);
    assert_int_equal(book->passed, 200);
    assert_compare(book->away + book->late, >, 0);
    weir_fleet_kill(book->fleet, root_place(!asked));
    ask_many(book, "q", 10);
    assert_int_equal(book->passed, 200);
    end(book);
}

static uint32_t many_by(struct book *book, uint32_t limiter, uint32_t count)
{
    uint32_t before = book->late;
    for (uint32_t i = 0; i < count; i++) {
        ask(book, limiter, "q", WEIR_ALGORITHM_TAKE);
        run_on(book, 10 * WEIR_MILLISECOND);
        fetch(book);
    }
    return book->late - before;
}

/* Its links stay up, and it sends nothing: requests wait their full patience
 * only once. */
static void test_a_mute_root_is_waited_for_once(void **state)
{
    (void)state;
    struct book *book = make(1, &calm, 0);
    put(book, "q", 1000, 0);
    ask_many(book, "q", 10);
    weir_fleet_pause(book->fleet, root_place(0), true);
    uint32_t waited = many_by(book, 0, 50);
    /* Those sent in the first one's 50 ms, and at each report's time. */
    assert_compare(waited, >=, 1);
    assert_compare(waited, <=, 6);
    assert_compare(book->away, >=, 40);
    weir_fleet_pause(book->fleet, root_place(0), false);
    run_on(book, WEIR_SECOND);
    fetch(book);
    uint32_t passed = book->passed;
    /* The first request of each limiter tries the root. */
    for (uint32_t i = 0; i < LIMITERS; i++)
        many_by(book, i, 1);
    ask_many(book, "q", 50);
    assert_int_equal(book->passed, passed + LIMITERS + 50);
    end(book);
}

/* A root that sends all answers late counts as mute: takes are charged there in
 * vain. Now and then it is tried. */
static void test_a_late_root_is_waited_for_now_and_then(void **state)
{
    (void)state;
    static const struct weir_net slow = { .shape = WEIR_DELAY_UNIFORM,
                                          .delay = 40 * WEIR_MILLISECOND };
    struct book *book = make(1, &slow, 0);
    put(book, "q", 1000, 0);
    uint32_t waited = 0;
    for (int i = 0; i < 10; i++)
        waited += many_by(book, 0, 50);
    /* Five in the first one's time, and one each 400 ms of five seconds. */
    assert_compare(waited, >=, 5);
    assert_compare(waited, <=, 5 + 5 + 14);
    assert_int_equal(book->passed, 0);
    /* A more patient request is answered in spite of the others. */
    for (int i = 0; i < 10; i++) {
        many_by(book, 0, 5);
        struct weir_step_ask patient = { .name = WEIR_TEXT("q"),
                                         .ask = { .op = WEIR_ALGORITHM_TAKE,
                                                  .weight = 1 },
                                         .patience = 4 * PATIENCE };
        assert_int_equal(
            weir_fleet_ask(book->fleet, 0, &patient, book->asked++), 0);
        run_on(book, 4 * PATIENCE);
        fetch(book);
        assert_int_equal(book->passed, i + 1);
    }
    end(book);
}

/* Setting a wall clock doesn't change the length of a minute. */
static void test_a_clock_that_is_set_gives_and_takes_nothing(void **state)
{
    (void)state;
    static const uint64_t hour = 3600 * WEIR_SECOND;
    static const uint64_t day = 24 * hour;
    struct book *book = make(1, &calm, 0);
    struct weir_root *root = weir_fleet_root(book->fleet, 0);
    weir_root_set_wall(root, 20000 * day, false);
    put(book, "q", 100, 0);
    ask_many(book, "q", 200);
    assert_int_equal(book->passed, 100);
    weir_root_set_wall(root, 20000 * day + hour, false);
    ask_many(book, "q", 200);
    assert_int_equal(book->passed, 100);
    weir_root_set_wall(root, 20000 * day - hour, false);
    run_on(book, 61 * WEIR_SECOND);
    ask_many(book, "q", 200);
    assert_int_equal(book->passed, 200);
    end(book);
}

/* A request without an answer ends, however patient its limiter claims to
 * be. */
static void test_patience_has_an_end(void **state)
{
    (void)state;
    struct book *book = make(1, &calm, 0);
    put(book, "q", 1000, 0);
    weir_fleet_pause(book->fleet, root_place(0), true);
    struct weir_step_ask for_ever = { .name = WEIR_TEXT("q"),
                                      .ask = { .op = WEIR_ALGORITHM_TAKE,
                                               .weight = 1 },
                                      .patience = WEIR_NEVER };
    assert_int_equal(weir_fleet_ask(book->fleet, 0, &for_ever, book->asked++),
                     0);
    run_on(book, WEIR_PATIENCE_MAX + WEIR_SECOND);
    fetch(book);
    assert_int_equal(book->ended[0], 1);
    end(book);
}

static void test_regions_share_one_bucket_state(void **state)
{
    (void)state;
    struct book *book = make(3, &calm, 1u << 0);
    put(book, "q", 100, 0);
    ask_many(book, "q", 1000);
    assert_int_equal(book->passed, 100);
    assert_int_equal(book->refused, 900);
    assert_int_equal(stats_of(book, 0).bucket_states, 1);
    assert_int_equal(
        stats_of(book, 1).bucket_states + stats_of(book, 2).bucket_states, 0);
    weir_fleet_kill(book->fleet, root_place(0));
    run_on(book, WEIR_SECOND);
    ask_many(book, "q", 20);
    assert_int_equal(book->away, 20);
    end(book);
}

static void test_an_edit_carries_and_a_removal_forgets(void **state)
{
    (void)state;
    struct book *book = make(1, &calm, 0);
    put(book, "q", 100, 0);
    ask_many(book, "q", 150);
    put(book, "q", 130, 0);
    ask_many(book, "q", 150);
    assert_int_equal(book->passed, 130);
    assert_int_equal(weir_fleet_remove(book->fleet, "q", NULL), 0);
    run_on(book, 3 * WEIR_SECOND);
    assert_int_equal(stats_of(book, 0).bucket_states, 0);
    ask_many(book, "q", 7);
    assert_int_equal(book->unknown, 7);
    put(book, "q", 10, 0);
    ask_many(book, "q", 20);
    assert_int_equal(book->passed, 140);
    end(book);
}

/* States in use stay; those that are as good as new go. */
static void test_memory_is_bounded(void **state)
{
    (void)state;
    struct book *book = make(1, &calm, 0);
    put(book, "u/*", 4096, 4096);
    char name[16];
    for (uint32_t i = 0; i < 1200; i++) {
        snprintf(name, sizeof(name), "u/%u", i);
        ask(book, i % LIMITERS, name, WEIR_ALGORITHM_TAKE);
        run_on(book, 5 * WEIR_MILLISECOND);
    }
    ask_many(book, "u/0", 1);
    struct weir_root_stats stats = stats_of(book, 0);
    assert_compare(stats.bucket_state_bytes, <=, WEIR_ROOT_BUCKET_STATE_BYTES);
    assert_compare(stats.bucket_states, <, 1200);
    assert_compare(stats.bucket_states, >, 900);
    assert_int_equal(book->passed, stats.bucket_states + 1);
    assert_int_equal(book->full, 1200 - stats.bucket_states);
    run_on(book, 61 * WEIR_SECOND);
    assert_int_equal(stats_of(book, 0).bucket_states, 0);
    assert_int_equal(stats_of(book, 0).bucket_state_bytes, 0);
    ask_many(book, name, 1);
    assert_int_equal(book->passed, stats.bucket_states + 2);
    end(book);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_calm_fleet_passes_exactly_the_limit),
        cmocka_unit_test(test_loss_and_doubles_never_pass_more),
        cmocka_unit_test(test_what_a_link_replays_is_dropped),
        cmocka_unit_test(test_all_ask_the_same_root),
        cmocka_unit_test(test_a_dead_root_is_followed_by_an_empty_bucket_state),
        cmocka_unit_test(test_a_mute_root_is_waited_for_once),
        cmocka_unit_test(test_a_clock_that_is_set_gives_and_takes_nothing),
        cmocka_unit_test(test_a_late_root_is_waited_for_now_and_then),
        cmocka_unit_test(test_patience_has_an_end),
        cmocka_unit_test(test_regions_share_one_bucket_state),
        cmocka_unit_test(test_an_edit_carries_and_a_removal_forgets),
        cmocka_unit_test(test_memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
