/* SPDX-License-Identifier: MIT
 * test_candidate_answers.c - a single candidate, and answers that come late, or
 * in another order than they were sent. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/node/candidate.h"

#define TTL (10 * WEIR_SECOND)

/* A candidate with a lease (number 1) that requests the key. */
static struct weir_candidate_answer ask_for_key(struct weir_candidate *c)
{
    struct weir_candidate_options options = { TTL, WEIR_TEXT("a:1"), 1 };
    struct weir_candidate_answer answer = { .lease = 1, .ttl_s = 10 };
    assert_int_equal(weir_candidate_init(c, &options), 0);
    weir_candidate_link(c, true, 1);
    assert_true(weir_candidate_next(c, &answer.ask, 1));
    assert_int_equal(answer.ask.type, WEIR_CANDIDATE_GRANT);
    weir_candidate_receive(c, &answer, 2);
    struct weir_candidate_answer next = { .failed = false };
    assert_true(weir_candidate_next(c, &next.ask, 2));
    assert_int_equal(next.ask.type, WEIR_CANDIDATE_CREATE);
    return next;
}

/* Likewise: another candidate has the key since revision 10, and the key is
 * watched. */
static struct weir_candidate_answer watch_another(struct weir_candidate *c)
{
    struct weir_candidate_answer answer = ask_for_key(c);
    answer.found = true;
    answer.value = WEIR_TEXT("b:1");
    answer.lease = 2;
    answer.revision = answer.create_revision = 10;
    weir_candidate_receive(c, &answer, 3);
    struct weir_candidate_answer watch = { .failed = false };
    assert_true(weir_candidate_next(c, &watch.ask, 3));
    assert_int_equal(watch.ask.type, WEIR_CANDIDATE_WATCH);
    assert_int_equal(watch.ask.revision, 11);
    weir_candidate_receive(c, &watch, 4);
    watch.changed = true;
    return watch;
}

/* The key is read, then goes; the answer to the read comes after that. */
static void an_answer_that_the_watch_overtook(void **state)
{
    (void)state;
    struct weir_candidate c;
    struct weir_candidate_answer watch = watch_another(&c);
    struct weir_candidate_answer create = {
        .found = true, .revision = 12, .create_revision = 12, .lease = 3
    };
    watch.revision = 11;
    weir_candidate_receive(&c, &watch, 5);
    assert_true(weir_candidate_next(&c, &create.ask, 5));
    assert_int_equal(create.ask.type, WEIR_CANDIDATE_CREATE);
    watch.revision = 13;
    weir_candidate_receive(&c, &watch, 6);
    create.value = WEIR_TEXT("c:1");
    weir_candidate_receive(&c, &create, 7);
    /* the key is free, so it is requested again */
    assert_int_equal(weir_candidate_master(&c).len, 0);
    assert_true(weir_candidate_next(&c, &create.ask, 7));
    assert_int_equal(create.ask.type, WEIR_CANDIDATE_CREATE);
}

/* The key goes, comes and goes again; it is won; only then the watch reports
 * all of that. */
static void a_watch_that_the_answer_overtook(void **state)
{
    (void)state;
    struct weir_candidate c;
    struct weir_candidate_answer watch = watch_another(&c);
    struct weir_candidate_answer create = { .created = true, .revision = 14 };
    watch.revision = 11;
    weir_candidate_receive(&c, &watch, 5);
    assert_true(weir_candidate_next(&c, &create.ask, 5));
    weir_candidate_receive(&c, &create, 6);
    assert_true(weir_candidate_holds(&c, 7));
    watch.found = true;
    watch.revision = watch.create_revision = 12;
    watch.lease = 3;
    weir_candidate_receive(&c, &watch, 7);
    assert_true(weir_candidate_holds(&c, 7));
    watch.found = false;
    watch.revision = 13;
    weir_candidate_receive(&c, &watch, 8);
    assert_true(weir_candidate_holds(&c, 8));
    watch.revision = 15;
    weir_candidate_receive(&c, &watch, 9);
    assert_false(weir_candidate_holds(&c, 9));
}

static void assert_held_until(const struct weir_candidate *c, weir_instant at)
{
    assert_true(weir_candidate_holds(c, at - 1));
    assert_false(weir_candidate_holds(c, at));
}

/* A keep-alive counts from its request, for each answer separately. */
static void keep_alives_that_are_answered_late(void **state)
{
    (void)state;
    struct weir_candidate c;
    struct weir_candidate_answer create = ask_for_key(&c);
    create.created = true;
    create.revision = 9;
    weir_candidate_receive(&c, &create, 2);
    weir_duration held = TTL - TTL / 10;
    assert_held_until(&c, 1 + held);
    struct weir_candidate_answer keep[2] = { { .ttl_s = 10 }, { .ttl_s = 10 } };
    struct weir_candidate_ask watch;
    assert_true(weir_candidate_next(&c, &watch, 2));
    for (size_t i = 0; i < 2; i++) {
        /* messages come, but not the answers to the keep-alives below */
        weir_candidate_receive(&c,
                               &(struct weir_candidate_answer){ .ask = watch },
                               (2 + 3 * i) * WEIR_SECOND);
        weir_instant at = weir_candidate_deadline(&c);
        while (!weir_candidate_next(&c, &keep[i].ask, at))
            at = weir_candidate_deadline(&c);
        assert_int_equal(keep[i].ask.type, WEIR_CANDIDATE_KEEP);
        assert_int_equal(keep[i].ask.sent_at, at);
    }
    weir_instant at = 8 * WEIR_SECOND;
    keep[0].raft_term = keep[1].raft_term = 4;
    weir_candidate_receive(&c, &keep[1], at);
    assert_held_until(&c, 1 + held);
    create.created = false;
    create.found = true;
    create.lease = 1;
    create.create_revision = 9;
    assert_true(weir_candidate_next(&c, &create.ask, at));
    assert_int_equal(create.ask.type, WEIR_CANDIDATE_CREATE);
    weir_candidate_receive(&c, &keep[0], at);
    create.raft_term = 5; /* another server leads than has answered */
    weir_candidate_receive(&c, &create, at);
    assert_held_until(&c, 1 + held);
    create.ask.kept_term = 5;
    weir_candidate_receive(&c, &create, at);
    assert_held_until(&c, keep[1].ask.sent_at + held);
}

static void what_is_out_of_range(void **state)
{
    (void)state;
    char long_name[WEIR_CANDIDATE_TEXT_MAX + 1] = "";
    struct weir_candidate c;
    struct weir_candidate_options options = { TTL, WEIR_TEXT("a:1"), 1 };
    assert_int_equal(weir_candidate_init(&c, &options), 0);
    options.ttl = WEIR_CANDIDATE_TTL_MIN - 1;
    assert_int_equal(weir_candidate_init(&c, &options), WEIR_EINVAL);
    options.ttl = WEIR_CANDIDATE_TTL_MAX + 1;
    assert_int_equal(weir_candidate_init(&c, &options), WEIR_EINVAL);
    options.ttl = TTL;
    options.identity.len = 0;
    assert_int_equal(weir_candidate_init(&c, &options), WEIR_EINVAL);
    options.identity = (struct weir_text){ long_name, sizeof long_name };
    assert_int_equal(weir_candidate_init(&c, &options), WEIR_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_that_the_watch_overtook),
        cmocka_unit_test(a_watch_that_the_answer_overtook),
        cmocka_unit_test(keep_alives_that_are_answered_late),
        cmocka_unit_test(what_is_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
