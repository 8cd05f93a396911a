/* SPDX-License-Identifier: MIT
 * test_lease_client.c - lease holders by name: which root they ask, when, in
 * how many messages, and which holder an answer belongs to. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/lease_client.h"

#define T0 ((weir_instant)1000 * WEIR_SECOND)
#define MS WEIR_MILLISECOND
#define LINKS 3

struct stage {
    struct weir_lease_client *client;
    weir_instant now;
    uint64_t serial;
    /* Of the last message: */
    uint32_t link;
    struct weir_wants wants;
};

static void begin_as(struct stage *stage, uint32_t places,
                     const struct weir_lease_speaker *speaker,
                     const struct weir_lease_witness *witness)
{
    struct weir_lease_client_options options = { .places = places,
                                                 .links = LINKS,
                                                 .seed = 7,
                                                 .speaker = speaker,
                                                 .witness = witness };
    size_t size = weir_lease_client_size(&options);
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, WEIR_CACHE_LINE, size), 0);
    memset(block, 0, size);
    *stage = (struct stage){ .now = T0 };
    stage->client = weir_lease_client_init(block, &options);
}

static void begin(struct stage *stage, uint32_t places,
                  const struct weir_lease_speaker *speaker)
{
    begin_as(stage, places, speaker, NULL);
}

static void end(struct stage *stage)
{
    free(stage->client);
}

static uint32_t open_name(struct stage *stage, const char *name)
{
    struct weir_lease_want want = { .name = weir_text_of(name),
                                    .on_stale = WEIR_STALE_LIMIT,
                                    .ticket = (uint64_t)name[0] };
    return weir_lease_client_open(stage->client, &want, stage->now);
}

static void link_up(struct stage *stage, uint32_t link, bool leases,
                    uint64_t term, uint64_t root)
{
    struct weir_lease_link state = {
        .up = true, .leases = leases, .term = term, .root = root
    };
    weir_lease_client_link(stage->client, link, &state, stage->now);
}

static void link_down(struct stage *stage, uint32_t link)
{
    struct weir_lease_link state = { .up = false };
    weir_lease_client_link(stage->client, link, &state, stage->now);
}

/* A master, and one name to ask for. Returns its place. */
static uint32_t begin_asking(struct stage *stage)
{
    begin(stage, 8, NULL);
    link_up(stage, 0, true, 1, 10);
    return open_name(stage, "a");
}

static bool next(struct stage *stage)
{
    return weir_lease_client_next(stage->client, &stage->link, &stage->wants,
                                  stage->now);
}

/* The message's want of that name; NULL: it isn't in it. */
static const struct weir_want *want_of(const struct stage *stage,
                                       const char *name)
{
    for (size_t i = 0; i < stage->wants.count; i++) {
        if (weir_text_equal(stage->wants.wants[i].name, weir_text_of(name)))
            return &stage->wants.wants[i];
    }
    return NULL;
}

static void tell(struct stage *stage, uint32_t link, uint64_t answer,
                 uint64_t term, const char *name, double capacity)
{
    struct weir_lease_grant grant = {
        .name = weir_text_of(name),
        .grant = { .serial = ++stage->serial,
                   .capacity = capacity,
                   .lease = answer ? 60 * WEIR_SECOND : 0,
                   .safe_lease = answer ? 60 * WEIR_SECOND : 0,
                   .refresh = 15 * WEIR_SECOND },
    };
    struct weir_grants grants = {
        .answer = answer, .term = term, .count = 1, .grants = &grant
    };
    weir_lease_client_take(stage->client, link, &grants, stage->now);
}

static void tell_error(struct stage *stage, uint32_t link, uint64_t answer,
                       uint64_t term, const char *name,
                       enum weir_lease_error error)
{
    struct weir_lease_grant grant = { .name = weir_text_of(name),
                                      .error = error };
    struct weir_grants grants = {
        .answer = answer, .term = term, .count = 1, .grants = &grant
    };
    weir_lease_client_take(stage->client, link, &grants, stage->now);
}

static void tell_elsewhere(struct stage *stage, uint32_t link, uint64_t term,
                           const char *master)
{
    struct weir_grants grants = { .term = term,
                                  .elsewhere = true,
                                  .master = weir_text_of(master) };
    weir_lease_client_take(stage->client, link, &grants, stage->now);
}

static double limit(const struct stage *stage, uint32_t place)
{
    return weir_lease_holder_limit(
        weir_lease_client_holder(stage->client, place), stage->now);
}

static bool changed(struct stage *stage, uint32_t *out_place)
{
    return weir_lease_client_changed(stage->client, out_place, stage->now);
}

static void settle(struct stage *stage)
{
    uint32_t place;
    while (changed(stage, &place))
        continue;
}

/* Wakes that were set before something else came first: for the patience of a
 * request, and for the first grant. */
static void wake_in_vain(struct stage *stage)
{
    weir_instant till = stage->now + WEIR_LEASE_HOLDER_FIRST;
    for (int i = 0; i < 2; i++) {
        weir_instant due =
            weir_lease_client_deadline(stage->client, stage->now);
        if (due > till)
            return;
        stage->now = due;
        assert_false(next(stage));
        settle(stage);
    }
}

/* ---- The stories ---- */

/* Requests that are due at about the same time go in one message; an answer
 * finds each by its name. */
static void wants_are_gathered(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, 8, NULL);
    link_up(&stage, 0, true, 1, 11);
    uint32_t a = open_name(&stage, "a");
    uint32_t b = open_name(&stage, "b");
    weir_lease_client_want(stage.client, a, 5, stage.now);
    weir_lease_client_want(stage.client, b, 7, stage.now);
    assert_true(next(&stage));
    assert_int_equal(stage.link, 0);
    assert_int_equal(stage.wants.count, 2);
    assert_true(want_of(&stage, "a")->bands[0].wants == 5);
    assert_int_equal(want_of(&stage, "b")->bands[0].clients, 1);
    assert_false(next(&stage));
    settle(&stage);
    uint64_t number = stage.wants.number;
    stage.now += 2 * MS;
    tell(&stage, 0, number, 1, "b", 7);
    tell(&stage, 0, number, 1, "a", 4);
    assert_true(limit(&stage, a) == 4 && limit(&stage, b) == 7);
    uint32_t place;
    unsigned seen = 0;
    while (changed(&stage, &place))
        seen |= 1u << place;
    assert_int_equal(seen, 1u << a | 1u << b);
    wake_in_vain(&stage);
    assert_compare(weir_lease_client_deadline(stage.client, stage.now), >,
                   T0 + 10 * WEIR_SECOND);
    end(&stage);
}

/* Two that are due some milliseconds apart go together, too. */
static void what_is_due_soon_goes_along(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, 8, NULL);
    link_up(&stage, 0, true, 1, 11);
    open_name(&stage, "a");
    assert_true(next(&stage));
    assert_int_equal(stage.wants.count, 1);
    stage.now += 3 * MS;
    open_name(&stage, "b");
    assert_true(next(&stage));
    uint64_t first = stage.wants.number;
    settle(&stage);
    /* Without an answer, each request is sent again, after its patience. */
    unsigned messages = 0;
    for (int i = 0; i < 700; i++, stage.now += MS) {
        settle(&stage);
        while (next(&stage)) {
            assert_compare(stage.wants.number, >, first);
            messages++;
        }
    }
    assert_in_range(messages, 1, 2);
    end(&stage);
}

/* No root is linked: nothing is sent, and the client isn't woken for it. */
static void without_a_root_it_sleeps(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, 8, NULL);
    uint32_t a = open_name(&stage, "a");
    settle(&stage);
    assert_false(next(&stage));
    assert_int_equal(weir_lease_client_deadline(stage.client, stage.now),
                     T0 + WEIR_LEASE_HOLDER_FIRST);
    stage.now = T0 + WEIR_LEASE_HOLDER_FIRST;
    uint32_t place;
    assert_true(changed(&stage, &place) && place == a);
    settle(&stage);
    assert_true(weir_lease_client_deadline(stage.client, stage.now) ==
                WEIR_NEVER);
    assert_false(weir_lease_client_waits(stage.client));
    end(&stage);
}

/* Two roots say that they are master: the one with the higher term is asked; an
 * answer of the other one is ignored. */
static void the_highest_term_is_asked(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, 8, NULL);
    link_up(&stage, 0, true, 4, 10);
    uint32_t a = open_name(&stage, "a");
    assert_true(next(&stage) && stage.link == 0);
    uint64_t number = stage.wants.number;
    link_up(&stage, 1, true, 5, 11);
    assert_true(next(&stage) && stage.link == 1);
    tell(&stage, 0, number, 4, "a", 99);
    assert_true(limit(&stage, a) == 0);
    tell(&stage, 1, stage.wants.number, 5, "a", 3);
    assert_true(limit(&stage, a) == 3);
    assert_int_equal(weir_lease_client_master(stage.client), 1);
    end(&stage);
}

/* A master of an old term isn't asked any more as soon as any root reports a
 * higher term. */
static void an_old_master_is_none(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, 8, NULL);
    link_up(&stage, 0, true, 4, 10);
    link_up(&stage, 1, false, 4, 11);
    assert_int_equal(weir_lease_client_master(stage.client), 0);
    tell_elsewhere(&stage, 1, 6, "10.0.0.9:7077");
    assert_int_equal(weir_lease_client_master(stage.client),
                     WEIR_LEASE_PLACE_NONE);
    struct weir_text at = weir_lease_client_elsewhere(stage.client);
    assert_true(weir_text_equal(at, WEIR_TEXT("10.0.0.9:7077")));
    end(&stage);
}

/* While no root says that it is master, all are asked in turn; the root that
 * answers with a grant is master. */
static void in_turn_while_nobody_is_master(void **state)
{
    (void)state;
    struct stage stage;
    unsigned asked = 0;
    begin(&stage, 8, NULL);
    for (uint32_t i = 0; i < LINKS; i++)
        link_up(&stage, i, false, 0, 10 + i);
    uint32_t a = open_name(&stage, "a");
    for (int i = 0; i < 5000; i++, stage.now += MS) {
        while (next(&stage)) {
            asked |= 1u << stage.link;
            if (stage.link == 2)
                tell(&stage, 2, stage.wants.number, 9, "a", 3);
        }
    }
    assert_int_equal(asked, 7);
    assert_int_equal(weir_lease_client_master(stage.client), 2);
    assert_true(limit(&stage, a) == 3);
    end(&stage);
}

/* The link breaks and comes back. The same master is asked at once and knows
 * the grant by its serial; another incarnation begins anew. */
static void a_link_that_comes_back(void **state)
{
    (void)state;
    struct stage stage;
    uint32_t a = begin_asking(&stage);
    assert_true(next(&stage));
    tell(&stage, 0, stage.wants.number, 1, "a", 3);
    stage.now += WEIR_SECOND;
    assert_false(next(&stage));
    link_down(&stage, 0);
    link_up(&stage, 0, true, 1, 10);
    assert_true(next(&stage));
    assert_int_equal(want_of(&stage, "a")->taken, stage.serial);
    assert_true(want_of(&stage, "a")->has == 3);
    stage.now += WEIR_SECOND;
    link_down(&stage, 0);
    link_up(&stage, 0, true, 1, 77);
    assert_true(next(&stage));
    assert_int_equal(want_of(&stage, "a")->taken, 0);
    assert_true(want_of(&stage, "a")->has == 3); /* its lease goes on */
    assert_true(limit(&stage, a) == 3);
    end(&stage);
}

/* An error leaves the lease in force; the root is asked again with growing
 * patience. */
static void errors_are_borne_with_patience(void **state)
{
    (void)state;
    struct stage stage;
    unsigned asks = 0;
    uint32_t a = begin_asking(&stage);
    for (int i = 0; i < 60000; i++, stage.now += MS) {
        settle(&stage);
        while (next(&stage)) {
            asks++;
            tell_error(&stage, 0, stage.wants.number, 1, "a",
                       WEIR_LEASE_NO_ROOM);
        }
    }
    assert_int_equal(weir_lease_client_error(stage.client, a),
                     WEIR_LEASE_NO_ROOM);
    assert_in_range(asks, 60 / 4, 60 / 3);
    tell_error(&stage, 0, 0, 1, "nobody's", WEIR_LEASE_UNKNOWN);
    end(&stage);
}

/* A closed quota is given back, once; one that was never asked for is dropped
 * silently. */
static void what_is_closed_is_given_back(void **state)
{
    (void)state;
    struct stage stage;
    uint32_t a = begin_asking(&stage);
    assert_true(next(&stage));
    tell(&stage, 0, stage.wants.number, 1, "a", 3);
    uint32_t b = open_name(&stage, "b");
    weir_lease_client_close(stage.client, a, stage.now);
    weir_lease_client_close(stage.client, b, stage.now);
    assert_int_equal(weir_lease_client_find(stage.client, WEIR_TEXT("a")),
                     WEIR_LEASE_PLACE_NONE);
    assert_true(next(&stage));
    assert_int_equal(stage.wants.count, 1);
    const struct weir_want *want = want_of(&stage, "a");
    assert_true(want->release && want->band_count == 0 && want->has == 0);
    assert_int_equal(want->taken, stage.serial);
    assert_false(next(&stage));
    wake_in_vain(&stage);
    assert_true(weir_lease_client_deadline(stage.client, stage.now) ==
                WEIR_NEVER);
    /* A late push finds no place. */
    tell(&stage, 0, 0, 1, "a", 9);
    end(&stage);
}

/* While no root is known to be master, a release waits: only a master has
 * something to take back. */
static void a_release_waits_for_a_master(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, 8, NULL);
    link_up(&stage, 0, true, 1, 10);
    link_up(&stage, 1, false, 1, 20);
    uint32_t a = open_name(&stage, "a");
    assert_true(next(&stage));
    tell(&stage, 0, stage.wants.number, 1, "a", 3);
    settle(&stage);
    weir_lease_client_close(stage.client, a, stage.now);
    link_down(&stage, 0);
    assert_false(next(&stage));
    assert_compare(weir_lease_client_deadline(stage.client, stage.now), >,
                   stage.now);
    link_up(&stage, 1, true, 2, 20);
    assert_true(next(&stage));
    assert_int_equal(stage.link, 1);
    assert_true(want_of(&stage, "a")->release);
    end(&stage);
}

/* A request that isn't answered yet may have been granted. A quota closed
 * meanwhile is given back, whether its last lease is over or it had none. */
static void an_ask_under_way_is_given_back(void **state)
{
    (void)state;
    struct stage stage;
    uint32_t a = begin_asking(&stage);
    assert_true(next(&stage));
    uint64_t number = stage.wants.number;
    settle(&stage);
    stage.now += WEIR_LEASE_HOLDER_FIRST;
    settle(&stage);
    weir_lease_client_close(stage.client, a, stage.now);
    assert_true(next(&stage));
    assert_true(want_of(&stage, "a")->release);
    assert_false(next(&stage));
    tell(&stage, 0, number, 1, "a", 3);
    /* Opened again before that answer: it asks anew, and ignores the answer. */
    a = open_name(&stage, "a");
    assert_true(next(&stage));
    assert_false(want_of(&stage, "a")->release);
    tell(&stage, 0, number, 1, "a", 3);
    assert_true(limit(&stage, a) == 0);
    tell(&stage, 0, stage.wants.number, 1, "a", 5);
    assert_true(limit(&stage, a) == 5);
    end(&stage);
}

/* The same if there is no master at the close: the next master receives the
 * release, even if it was asked before it was known to be master. This lasts
 * for half a minute, since the place is needed for others. */
static void an_ask_under_way_waits_for_a_master(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct stage stage;
        begin(&stage, 1, NULL);
        link_up(&stage, 0, false, 0, 10);
        uint32_t a = open_name(&stage, "a");
        assert_true(next(&stage));
        uint64_t number = stage.wants.number;
        stage.now += 2 * WEIR_LEASE_HOLDER_FIRST;
        settle(&stage);
        weir_lease_client_close(stage.client, a, stage.now);
        settle(&stage);
        assert_false(next(&stage));
        stage.now += (late ? 31 : 15) * WEIR_SECOND;
        settle(&stage);
        tell(&stage, 0, number, 1, "a", 3);
        settle(&stage);
        assert_int_equal(next(&stage), !late);
        assert_true(late || want_of(&stage, "a")->release);
        assert_int_not_equal(open_name(&stage, "b"), WEIR_LEASE_PLACE_NONE);
        end(&stage);
    }
}

/* The lease is over, but the master still keeps a safe capacity for it. */
static void a_safe_capacity_is_given_back(void **state)
{
    (void)state;
    struct stage stage;
    uint32_t a = begin_asking(&stage);
    assert_true(next(&stage));
    struct weir_lease_grant grant = {
        .name = WEIR_TEXT("a"),
        .grant = { .serial = 1,
                   .capacity = 3,
                   .safe = 1,
                   .lease = 10 * WEIR_SECOND,
                   .safe_lease = 60 * WEIR_SECOND,
                   .refresh = 5 * WEIR_SECOND },
    };
    struct weir_grants grants = {
        .answer = stage.wants.number, .term = 1, .count = 1, .grants = &grant
    };
    weir_lease_client_take(stage.client, 0, &grants, stage.now);
    link_down(&stage, 0);
    stage.now += 20 * WEIR_SECOND;
    settle(&stage);
    weir_lease_client_close(stage.client, a, stage.now);
    stage.now += 20 * WEIR_SECOND;
    settle(&stage);
    link_up(&stage, 0, true, 1, 10);
    assert_true(next(&stage));
    assert_true(want_of(&stage, "a")->release);
    end(&stage);
}

/* Closed and opened again before anything was sent: it goes on. */
static void opened_again_it_goes_on(void **state)
{
    (void)state;
    struct stage stage;
    uint32_t a = begin_asking(&stage);
    assert_true(next(&stage));
    tell(&stage, 0, stage.wants.number, 1, "a", 3);
    settle(&stage);
    weir_lease_client_close(stage.client, a, stage.now);
    uint32_t again = open_name(&stage, "a");
    assert_true(limit(&stage, again) == 3);
    uint32_t place;
    assert_true(changed(&stage, &place) && place == again);
    assert_false(next(&stage));
    end(&stage);
}

/* No root is linked when it is closed: it is dropped when its lease ends. */
static void what_nobody_hears_ends_with_its_lease(void **state)
{
    (void)state;
    struct stage stage;
    begin(&stage, 1, NULL);
    link_up(&stage, 0, true, 1, 10);
    uint32_t a = open_name(&stage, "a");
    assert_true(next(&stage));
    tell(&stage, 0, stage.wants.number, 1, "a", 3);
    settle(&stage);
    link_down(&stage, 0);
    weir_lease_client_close(stage.client, a, stage.now);
    assert_int_equal(open_name(&stage, "b"), WEIR_LEASE_PLACE_NONE);
    stage.now += 61 * WEIR_SECOND;
    settle(&stage);
    assert_int_not_equal(open_name(&stage, "b"), WEIR_LEASE_PLACE_NONE);
    end(&stage);
}

/* A lease that runs out is reported, at that time. */
static void a_lease_that_runs_out_is_told_of(void **state)
{
    (void)state;
    struct stage stage;
    uint32_t place;
    uint32_t a = begin_asking(&stage);
    assert_true(next(&stage));
    tell(&stage, 0, stage.wants.number, 1, "a", 3);
    settle(&stage);
    link_down(&stage, 0);
    wake_in_vain(&stage);
    assert_int_equal(weir_lease_client_deadline(stage.client, stage.now),
                     T0 + 60 * WEIR_SECOND);
    stage.now = T0 + 60 * WEIR_SECOND;
    assert_true(changed(&stage, &place) && place == a);
    assert_true(limit(&stage, a) == 0);
    assert_false(changed(&stage, &place));
    end(&stage);
}

/* More requests than fit in a message are sent in several; each once. */
static void many_are_said_in_several_messages(void **state)
{
    (void)state;
    struct stage stage;
    enum { MANY = 3 * WEIR_LEASES_MAX / 2 };
    begin(&stage, MANY, NULL);
    link_up(&stage, 0, true, 1, 10);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof(name), "q%d", i);
        assert_int_not_equal(open_name(&stage, name), WEIR_LEASE_PLACE_NONE);
    }
    assert_int_equal(open_name(&stage, "more"), WEIR_LEASE_PLACE_NONE);
    assert_true(next(&stage));
    assert_int_equal(stage.wants.count, WEIR_LEASES_MAX);
    assert_true(next(&stage));
    assert_int_equal(stage.wants.count, MANY - WEIR_LEASES_MAX);
    assert_false(next(&stage));
    weir_lease_client_forget(stage.client);
    assert_int_equal(weir_lease_client_find(stage.client, WEIR_TEXT("q1")),
                     WEIR_LEASE_PLACE_NONE);
    assert_int_not_equal(open_name(&stage, "more"), WEIR_LEASE_PLACE_NONE);
    assert_false(next(&stage)); /* its links are gone as well */
    end(&stage);
}

static size_t speak_two(void *context, uint32_t place, uint64_t ticket,
                        struct weir_band *out_bands, bool *out_learning,
                        weir_instant now)
{
    struct stage *stage = context;
    assert_int_equal(ticket, 'a');
    weir_lease_client_want(stage->client, place, 30, now);
    weir_lease_client_leased_on(stage->client, place, 12, 0, true);
    out_bands[0] = (struct weir_band){ 5, 3, 10 };
    out_bands[1] = (struct weir_band){ -5, 100, 20 };
    *out_learning = true;
    return 2;
}

/* A client that speaks for others sends their bands, and the units it has
 * leased out. */
static void others_are_spoken_for(void **state)
{
    (void)state;
    struct stage stage;
    struct weir_lease_speaker speaker = { &stage, speak_two };
    begin(&stage, 4, &speaker);
    link_up(&stage, 0, true, 1, 10);
    struct weir_lease_want want = { .name = WEIR_TEXT("a"),
                                    .on_stale = WEIR_STALE_SHARE,
                                    .inflight = true,
                                    .ticket = 'a' };
    weir_lease_client_open(stage.client, &want, stage.now);
    assert_true(next(&stage));
    const struct weir_want *said = want_of(&stage, "a");
    assert_true(said->learning && said->has == 12);
    assert_int_equal(said->band_count, 2);
    assert_int_equal(said->bands[1].clients, 100);
    end(&stage);
}

/* ---- What was measured ---- */

/* Places with an even ticket have measured something: one request in bin
 * 'place', for each collect() since the last one. */
struct measured {
    uint32_t collected[64]; /* by place */
    uint32_t calls;
};

static bool collect(void *context, uint32_t place, uint64_t ticket,
                    struct weir_latency_count *bins,
                    struct weir_latency_batch *out, weir_instant now)
{
    struct measured *measured = context;
    (void)now;
    measured->calls++;
    measured->collected[place]++;
    if (ticket % 2)
        return false;
    /* All of the room that was promised. */
    for (uint32_t i = 0; i < WEIR_WINDOW_BINS; i++)
        bins[i] = (struct weir_latency_count){ i, place + 1 };
    *out = (struct weir_latency_batch){ .cut = place + 100,
                                        .count = WEIR_WINDOW_BINS,
                                        .bins = bins };
    return true;
}

static void begin_measuring(struct stage *stage, struct measured *measured,
                            uint32_t places)
{
    static struct weir_lease_witness witness;
    *measured = (struct measured){ .calls = 0 };
    witness =
        (struct weir_lease_witness){ .context = measured, .collect = collect };
    begin_as(stage, places, NULL, &witness);
    link_up(stage, 0, true, 1, 11);
}

static void open_numbered(struct stage *stage, uint32_t place, uint64_t ticket)
{
    char name[16];
    snprintf(name, sizeof(name), "n%u", place);
    struct weir_lease_want want = { .name = weir_text_of(name),
                                    .on_stale = WEIR_STALE_LIMIT,
                                    .ticket = ticket };
    assert_int_equal(weir_lease_client_open(stage->client, &want, stage->now),
                     place);
}

/* Each window is that of its want, in whole. Returns a bit for each place whose
 * want is in the message. */
static uint64_t check_windows(const struct stage *stage)
{
    const struct weir_wants *wants = &stage->wants;
    uint64_t places = 0;
    assert_compare(wants->window_count, <=, WEIR_WINDOWS_MAX);
    for (size_t i = 0; i < wants->window_count; i++) {
        const struct weir_want_window *window = &wants->windows[i];
        assert_compare(window->want, <, wants->count);
        assert_true(i == 0 || window->want > wants->windows[i - 1].want);
        const struct weir_want *want = &wants->wants[window->want];
        assert_false(want->release);
        uint32_t place = (uint32_t)atoi(want->name.p + 1);
        assert_int_equal(window->batch.cut, place + 100);
        assert_int_equal(window->batch.count, WEIR_WINDOW_BINS);
        for (uint32_t k = 0; k < WEIR_WINDOW_BINS; k++) {
            assert_int_equal(window->batch.bins[k].bin, k);
            assert_int_equal(window->batch.bins[k].count, place + 1);
        }
    }
    for (size_t i = 0; i < wants->count; i++) {
        uint64_t place = 1ull << atoi(wants->wants[i].name.p + 1);
        assert_false(places & place);
        places |= place;
    }
    return places;
}

/* Windows go with their wants; a quota that has measured nothing has none. */
static void windows_go_with_their_wants(void **state)
{
    (void)state;
    struct stage stage;
    struct measured measured;
    begin_measuring(&stage, &measured, 8);
    for (uint32_t i = 0; i < 5; i++)
        open_numbered(&stage, i, i);
    assert_true(next(&stage));
    assert_int_equal(check_windows(&stage), 0x1f);
    assert_int_equal(stage.wants.window_count, 3);
    assert_int_equal(measured.calls, 5);
    assert_false(next(&stage));
    /* A want that isn't sent takes nothing, a release neither. */
    tell(&stage, 0, stage.wants.number, 1, "n2", 3);
    settle(&stage);
    weir_lease_client_close(stage.client, 2, stage.now);
    assert_true(next(&stage));
    assert_int_equal(check_windows(&stage), 1 << 2);
    assert_int_equal(stage.wants.window_count, 0);
    assert_int_equal(measured.calls, 5);
    end(&stage);
}

/* No more windows fit into a message: the rest goes in the next ones, at once,
 * and each want once. */
static void the_next_message_has_the_rest(void **state)
{
    (void)state;
    enum { PLACES = 60 };
    for (uint32_t step = 1; step <= 3; step++) {
        struct stage stage;
        struct measured measured;
        uint64_t sent = 0, number = 0;
        uint32_t messages = 0, windows = 0;
        begin_measuring(&stage, &measured, PLACES);
        for (uint32_t i = 0; i < PLACES; i++)
            open_numbered(&stage, i, step == 1 ? 0 : i % step);
        while (next(&stage)) {
            uint64_t places = check_windows(&stage);
            assert_int_equal(places & sent, 0);
            assert_compare(stage.wants.number, >, number);
            number = stage.wants.number;
            sent |= places;
            windows += (uint32_t)stage.wants.window_count;
            messages++;
        }
        assert_int_equal(sent, (1ull << PLACES) - 1);
        uint32_t even = step == 1 ? 60 : step == 2 ? 30 : 40;
        assert_int_equal(windows, even);
        assert_int_equal(messages,
                         (even + WEIR_WINDOWS_MAX - 1) / WEIR_WINDOWS_MAX);
        for (uint32_t i = 0; i < PLACES; i++)
            assert_int_equal(measured.collected[i], 1);
        end(&stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_go_with_their_wants),
        cmocka_unit_test(the_next_message_has_the_rest),
        cmocka_unit_test(wants_are_gathered),
        cmocka_unit_test(what_is_due_soon_goes_along),
        cmocka_unit_test(without_a_root_it_sleeps),
        cmocka_unit_test(the_highest_term_is_asked),
        cmocka_unit_test(an_old_master_is_none),
        cmocka_unit_test(in_turn_while_nobody_is_master),
        cmocka_unit_test(a_link_that_comes_back),
        cmocka_unit_test(errors_are_borne_with_patience),
        cmocka_unit_test(what_is_closed_is_given_back),
        cmocka_unit_test(a_release_waits_for_a_master),
        cmocka_unit_test(an_ask_under_way_is_given_back),
        cmocka_unit_test(an_ask_under_way_waits_for_a_master),
        cmocka_unit_test(a_safe_capacity_is_given_back),
        cmocka_unit_test(opened_again_it_goes_on),
        cmocka_unit_test(what_nobody_hears_ends_with_its_lease),
        cmocka_unit_test(a_lease_that_runs_out_is_told_of),
        cmocka_unit_test(many_are_said_in_several_messages),
        cmocka_unit_test(others_are_spoken_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
