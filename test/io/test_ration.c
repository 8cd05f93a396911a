/* SPDX-License-Identifier: MIT
 * test_ration.c - turns and places of unauthenticated peers, in virtual time: a
 * turn has the cost that the test sets, and nothing else takes time. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "core/base/rng.h"
#include "io/ration.h"
#include "seed.h"

#define PEERS 400
#define MICROSECOND (WEIR_MILLISECOND / 1000)

struct peer {
    struct weir_ration_member member;
    struct field *field;
    weir_duration cost; /* of a turn */
    weir_duration used;
    unsigned turns;
    unsigned admitted_at; /* in the turn of that number; 0: never */
    bool greedy;          /* has more to read after each turn */
    bool leaves;          /* in its turn */
    bool returns;         /* with another connection, once it was admitted */
    bool frees;           /* leaves in its turn, and frees the ration */
    bool evicted;
};

struct field {
    struct weir_ration *ration;
    weir_instant now;
    uint64_t used;
    struct peer peers[PEERS];
    struct peer *last_turn;
};

static struct weir_rng rng;

static void join(struct field *field, size_t i, unsigned host);

static uint64_t time_used(void *context)
{
    return ((struct field *)context)->used;
}

static void turn(void *context)
{
    struct peer *peer = context;
    struct field *field = peer->field;
    assert_non_null(peer->member.ration);
    assert_false(peer->member.waits);
    field->used += (uint64_t)peer->cost;
    field->last_turn = peer;
    peer->used += peer->cost;
    peer->turns++;
    if (peer->leaves || peer->frees)
        weir_ration_leave(&peer->member);
    else if (peer->turns == peer->admitted_at)
        weir_ration_admit(&peer->member);
    else if (peer->greedy)
        weir_ration_wait(&peer->member);
    if (peer->frees)
        weir_ration_free(&field->ration);
    if (peer->returns && !peer->member.ration) {
        peer->turns = 0;
        join(field, (size_t)(peer - field->peers), 1);
        weir_ration_wait(&peer->member);
    }
}

static void evict(void *context, const char *why)
{
    struct peer *peer = context;
    assert_null(peer->member.ration);
    assert_true(strlen(why) > 0);
    peer->evicted = true;
}

/* True: the hosts of the tests have a slot each; a collision is possible. */
static bool hosts_differ(struct field *field)
{
    bool differ = true;
    for (unsigned i = 0; i < 4; i++) {
        join(field, i, i);
        for (unsigned k = 0; k < i; k++)
            differ &=
                field->peers[k].member.source != field->peers[i].member.source;
    }
    for (unsigned i = 0; i < 4; i++)
        weir_ration_leave(&field->peers[i].member);
    return differ;
}

static void field_init(struct field *field, size_t places)
{
    memset(field, 0, sizeof *field);
    const struct weir_ration_options options = { .places = places,
                                                 .time_used = time_used,
                                                 .context = field };
    field->now = 1000 * WEIR_SECOND;
    for (size_t i = 0; i < PEERS; i++)
        field->peers[i] = (struct peer){
            .member = { .turn = turn,
                        .evict = evict,
                        .context = &field->peers[i] },
            .field = field,
            .cost = 100 * MICROSECOND,
        };
    do {
        weir_ration_free(&field->ration);
        field->ration = weir_ration_new(&options);
        assert_non_null(field->ration);
    } while (!hosts_differ(field));
}

static void field_fini(struct field *field)
{
    for (size_t i = 0; i < PEERS; i++)
        weir_ration_leave(&field->peers[i].member);
    weir_ration_free(&field->ration);
}

/* From 10.0.0.'host'. */
static void join(struct field *field, size_t i, unsigned host)
{
    struct sockaddr_in from = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(0x0a000000u + host),
    };
    weir_ration_join(field->ration, &field->peers[i].member,
                     (const struct sockaddr *)&from);
}

/* The loop, with nothing else to do, up to 'end'. */
static void run(struct field *field, weir_instant end)
{
    while (field->now < end) {
        uint64_t before = field->used;
        weir_instant next = weir_ration_serve(field->ration, field->now);
        field->now += field->used - before;
        if (next > field->now)
            field->now = next;
        if (next == WEIR_NEVER)
            field->now = end;
    }
}

/* A turn costs a little more than the test's figure. */
static void assert_about(double is, double wanted)
{
    assert_compare(is, >, 0.95 * wanted);
    assert_compare(is, <, 1.02 * wanted);
}

static void test_all_get_a_part(void **state)
{
    (void)state;
    static struct field field;
    field_init(&field, PEERS);
    for (unsigned i = 0; i < 200; i++) {
        join(&field, i, i);
        field.peers[i].greedy = true;
        weir_ration_wait(&field.peers[i].member);
    }
    run(&field, field.now + 10 * WEIR_SECOND);
    assert_about((double)field.used, 10e9 / WEIR_RATION_PART);
    assert_compare(weir_ration_look(field.ration).used, >=, field.used);
    /* After a rest a source may use only the burst. */
    for (unsigned i = 0; i < 200; i++)
        weir_ration_leave(&field.peers[i].member);
    field.now += 3600 * WEIR_SECOND;
    uint64_t before = field.used;
    join(&field, 0, 0);
    weir_ration_wait(&field.peers[0].member);
    weir_instant start = field.now;
    run(&field, start + 100 * WEIR_MILLISECOND);
    assert_compare(field.used - before, <=,
                   (100 * WEIR_MILLISECOND + WEIR_RATION_BURST) /
                           WEIR_RATION_PART +
                       WEIR_RATION_TURNS_MAX);
    field_fini(&field);
}

/* One peer from one address gets as much as 300 from another, although each of
 * its turns costs ten times as much. */
static void test_sources_are_equal(void **state)
{
    (void)state;
    static struct field field;
    field_init(&field, PEERS);
    for (unsigned i = 0; i < 301; i++) {
        join(&field, i, i == 0 ? 1 : 2);
        field.peers[i].greedy = true;
        weir_ration_wait(&field.peers[i].member);
    }
    field.peers[0].cost = WEIR_MILLISECOND;
    /* Peers with a late first turn have fewer turns at first. */
    run(&field, field.now + WEIR_SECOND);
    for (unsigned i = 0; i < 301; i++)
        field.peers[i].turns = 0;
    field.peers[0].used = 0;
    run(&field, field.now + 10 * WEIR_SECOND);
    assert_about((double)field.peers[0].used, 5e9 / WEIR_RATION_PART);
    /* Within a source peers are equal. */
    for (unsigned i = 2; i < 301; i++)
        assert_in_range(field.peers[i].turns, field.peers[1].turns - 1,
                        field.peers[1].turns + 1);
    field_fini(&field);
}

/* 200 handshakes of 2 ms in two turns each, all from one address, beside floods
 * from two others. Instead of a third of half a processor they get nearly a
 * whole one, and afterwards the floods get no less than before. */
static void test_admitted_peers_cost_nothing(void **state)
{
    (void)state;
    static struct field field;
    field_init(&field, PEERS);
    struct peer *flood = &field.peers[PEERS - 2];
    for (unsigned i = 0; i < 2; i++) {
        join(&field, (size_t)(PEERS - 2 + i), 1 + i);
        flood[i].greedy = true;
        flood[i].cost = WEIR_MILLISECOND;
        weir_ration_wait(&flood[i].member);
    }
    run(&field, field.now + WEIR_SECOND);
    weir_instant start = field.now;
    weir_instant end = start;
    for (unsigned i = 0; i < 200; i++) {
        struct peer *peer = &field.peers[i];
        join(&field, i, 3);
        peer->greedy = true;
        peer->cost = WEIR_MILLISECOND;
        peer->admitted_at = 2;
        weir_ration_wait(&peer->member);
    }
    while (weir_ration_look(field.ration).members > 2)
        run(&field, end += WEIR_MILLISECOND);
    printf("handshakes of 400 ms took %.0f ms\n",
           (double)(field.now - start) / 1e6);
    assert_compare(field.now - start, <, 600 * WEIR_MILLISECOND);
    uint64_t before = field.used;
    run(&field, field.now + 10 * WEIR_SECOND);
    assert_about((double)(field.used - before), 10e9 / WEIR_RATION_PART);
    field_fini(&field);
}

/* A resting source doesn't save up time that was given back: its members that
 * aren't admitted get the same part as any other. */
static void test_claims_are_not_saved(void **state)
{
    (void)state;
    static struct field field;
    field_init(&field, PEERS);
    for (unsigned i = 0; i < 100; i++) {
        struct peer *peer = &field.peers[i];
        join(&field, i, 1);
        peer->cost = WEIR_MILLISECOND;
        peer->admitted_at = 2 + i % 2; /* in a turn, or outside of one */
        for (int turns = 0; turns < 2; turns++) {
            weir_ration_wait(&peer->member);
            run(&field, field.now + 10 * WEIR_MILLISECOND);
        }
        weir_ration_admit(&peer->member);
        assert_null(peer->member.ration);
    }
    for (unsigned i = 100; i < 102; i++) {
        join(&field, i, i - 99);
        field.peers[i].greedy = true;
        weir_ration_wait(&field.peers[i].member);
    }
    run(&field, field.now + 8 * WEIR_MILLISECOND);
    assert_in_range(field.peers[100].turns, field.peers[101].turns - 3,
                    field.peers[101].turns + 3);
    field_fini(&field);
}

/* A crowd in which each member is admitted in its turn and comes again with
 * another connection: another address gets its turn soon all the same. */
static void test_a_crowd_keeps_nobody_out(void **state)
{
    (void)state;
    for (unsigned turns = 1; turns <= 2; turns++) {
        static struct field field;
        field_init(&field, PEERS);
        for (unsigned i = 1; i < 100; i++) {
            struct peer *peer = &field.peers[i];
            peer->admitted_at = turns;
            peer->greedy = peer->returns = true;
            join(&field, i, 1);
            weir_ration_wait(&peer->member);
        }
        run(&field, field.now + WEIR_SECOND);
        weir_instant came = field.now;
        join(&field, 0, 2);
        weir_ration_wait(&field.peers[0].member);
        while (field.peers[0].turns == 0 && field.now < came + WEIR_SECOND)
            run(&field, field.now + 1);
        printf("beside a crowd admitted in %u turns: served after %.2f ms\n",
               turns, (double)(field.now - came) / 1e6);
        assert_compare(field.now - came, <, 10 * WEIR_MILLISECOND);
        for (unsigned i = 1; i < 100; i++)
            field.peers[i].returns = false;
        field_fini(&field);
    }
}

/* A listener that is freed except for its last connection is freed with it. */
static void test_it_is_freed_in_a_turn(void **state)
{
    (void)state;
    static struct field field;
    field_init(&field, PEERS);
    join(&field, 0, 1);
    field.peers[0].frees = true;
    weir_ration_wait(&field.peers[0].member);
    struct weir_ration *ration = field.ration;
    assert_true(weir_ration_serve(ration, field.now) == WEIR_NEVER);
    assert_null(field.ration);
}

/* A new peer from the flooding address, and one from another. */
static void test_a_newcomer_is_served_soon(void **state)
{
    (void)state;
    for (unsigned host = 1; host <= 2; host++) {
        static struct field field;
        field_init(&field, PEERS);
        for (unsigned i = 1; i < 300; i++) {
            join(&field, i, 1);
            field.peers[i].greedy = true;
            weir_ration_wait(&field.peers[i].member);
        }
        run(&field, field.now + WEIR_SECOND);
        weir_instant came = field.now;
        join(&field, 0, host);
        weir_ration_wait(&field.peers[0].member);
        while (field.peers[0].turns == 0)
            run(&field, field.now + 1);
        printf("from %s address: served after %.2f ms\n",
               host == 1 ? "the flooding" : "another",
               (double)(field.now - came) / 1e6);
        assert_compare(field.now - came, <, 3 * WEIR_MILLISECOND);
        field_fini(&field);
    }
}

static void test_places(void **state)
{
    (void)state;
    static struct field field;
    field_init(&field, 100);
    for (unsigned i = 0; i < 10; i++)
        join(&field, i, 1);
    for (unsigned i = 10; i < 100; i++)
        join(&field, i, 2);
    /* Each new peer takes a place from the address that has the most. */
    for (unsigned i = 100; i < 150; i++)
        join(&field, i, 2);
    for (unsigned i = 150; i < 170; i++)
        join(&field, i, 3);
    for (unsigned i = 0; i < 10; i++)
        assert_false(field.peers[i].evicted);
    for (unsigned i = 10; i < 170; i++)
        assert_int_equal(field.peers[i].evicted, i < 80);
    assert_int_equal(weir_ration_look(field.ration).members, 100);
    assert_int_equal(weir_ration_look(field.ration).evicted, 70);
    while (weir_ration_evict(field.ration, "for a test"))
        continue;
    assert_int_equal(weir_ration_look(field.ration).members, 0);
    field_fini(&field);
}

/* IPv6 addresses count by their network of 64 bits; other addresses are told
 * apart, unless they collide. */
static void test_sources(void **state)
{
    (void)state;
    static struct field field;
    field_init(&field, PEERS);
    unsigned same = 0;
    for (size_t i = 0; i < 200; i++) {
        struct sockaddr_in6 from = { .sin6_family = AF_INET6 };
        from.sin6_addr.s6_addr[7] = (uint8_t)(i / 2);
        from.sin6_addr.s6_addr[15] = (uint8_t)i;
        weir_ration_join(field.ration, &field.peers[i].member,
                         (const struct sockaddr *)&from);
        uint32_t source = field.peers[i].member.source;
        if (i % 2 == 1)
            assert_int_equal(source, field.peers[i - 1].member.source);
        else if (i > 0)
            same += source == field.peers[i - 1].member.source;
    }
    assert_compare(same, <, 10);
    weir_ration_join(field.ration, &field.peers[200].member, NULL);
    field_fini(&field);
}

/* Members come and go, also within a turn: each waiting member gets a turn, and
 * nothing is left. */
static void test_random_histories(void **state)
{
    (void)state;
    static struct field field;
    field_init(&field, 150);
    unsigned waits = 0;
    unsigned turns = 0;
    for (int step = 0; step < 200000; step++) {
        size_t i = weir_rng_below(&rng, PEERS);
        struct peer *peer = &field.peers[i];
        uint64_t what = weir_rng_below(&rng, 10);
        peer->leaves = what == 0;
        peer->admitted_at = peer->turns + (unsigned)weir_rng_below(&rng, 3);
        peer->greedy = what == 1;
        peer->cost = (weir_duration)weir_rng_below(&rng, WEIR_MILLISECOND);
        if (!peer->member.ration)
            join(&field, i, (unsigned)weir_rng_below(&rng, 20));
        else if (what == 2)
            weir_ration_leave(&peer->member);
        else if (what == 3)
            weir_ration_admit(&peer->member);
        else
            weir_ration_wait(&peer->member);
        if (what > 6) {
            field.now += weir_rng_below(&rng, WEIR_MILLISECOND);
            (void)weir_ration_serve(field.ration, field.now);
        }
    }
    for (size_t i = 0; i < PEERS; i++) {
        field.peers[i].greedy = false;
        waits += field.peers[i].member.waits;
        turns += field.peers[i].turns;
    }
    assert_int_equal(waits, weir_ration_look(field.ration).waiting);
    run(&field, field.now + 100 * WEIR_SECOND);
    for (size_t i = 0; i < PEERS; i++)
        turns -= field.peers[i].turns;
    assert_int_equal(0u - turns, waits);
    assert_int_equal(weir_ration_look(field.ration).waiting, 0);
    field_fini(&field);
}

int main(void)
{
    rng = made_seed("ration");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_get_a_part),
        cmocka_unit_test(test_sources_are_equal),
        cmocka_unit_test(test_admitted_peers_cost_nothing),
        cmocka_unit_test(test_claims_are_not_saved),
        cmocka_unit_test(test_a_crowd_keeps_nobody_out),
        cmocka_unit_test(test_it_is_freed_in_a_turn),
        cmocka_unit_test(test_a_newcomer_is_served_soon),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_random_histories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
