/* SPDX-License-Identifier: MIT
 * test/core/node/test_lead.c - counts that are old when a root takes them: by
 * the age that reports echo, the root presumes the units since. Peers of an
 * earlier version send no age, or no echo. A root and two limiters, whose
 * messages the tests write; and a root and a limiter, pumped by hand. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/limiter.h"
#include "core/node/root.h"
#include "io/clock.h"
#include "table_maker.h"

#define LIMITERS 2
#define PEERS_MAX 4
#define SLOTS 16
#define HIGH 10000 /* units */
#define PACE_OF(per_s) ((uint64_t)(per_s)*WEIR_PACE_SPAN / WEIR_SECOND)
#define Q WEIR_TEXT("q")

static const struct weir_store_id store = { .uuid = { 7 } };
static const struct weir_settings settings = {
    .report_interval = WEIR_SECOND,
    .stale_after = 60 * WEIR_SECOND,
    .slack = true,
};

struct world {
    struct weir_root *root;
    struct weir_table *table;
    struct weir_limiter *limiter; /* at link 0, if there is one */
    weir_instant born, now;
    uint64_t number[PEERS_MAX]; /* of the last report */
    uint64_t slack;             /* of the last fill, 1/1024 units */
    bool old_root, old_limiter;
    weir_duration echo; /* of the limiter's last report */
};

/* But for what leaks, and for roundings. */
static void assert_close(double is, double should)
{
    if (fabs(is - should) > 0.002 * fmax(1, should))
        fail_msg("%.4f, and should be %.4f", is, should);
}

/* HIGH units, of which one leaks in a day. */
static void apply_quota(struct world *w)
{
    struct weir_change change = { .quota = made_quota_of("q", "", 1, HIGH) };
    change.quota.limit.per = 86400 * WEIR_SECOND;
    change.quota.epoch = change.quota.created = 1;
    assert_int_equal(weir_root_store(w->root, &store, 1, 0, w->now), 0);
    assert_int_equal(weir_root_apply(w->root, &change, w->now), 0);
    weir_root_settle(w->root, w->now);
}

static void receive(struct world *w, uint32_t peer,
                    const struct weir_message *message)
{
    assert_int_equal(weir_root_receive(w->root, peer, message, w->now), 0);
}

/* Takes the root's messages for a limiter that a test writes. */
static void drain(struct world *w)
{
    struct weir_message message;
    uint32_t peer;
    while (weir_root_next(w->root, &peer, &message, w->now)) {
        if (message.type == WEIR_MESSAGE_FILLS && message.fills.count > 0)
            w->slack = message.fills.fills[0].slack;
    }
}

static weir_duration age(const struct world *w)
{
    return w->now - w->born;
}

/* The limiter has passed 'units' more, and goes on at 'per_s'. 'made': the
 * root's age then, 0: none. */
static void report(struct world *w, uint32_t peer, int64_t units,
                   uint64_t per_s, weir_duration made)
{
    const struct weir_announce announce = { .name = Q, .created = 1 };
    const struct weir_count count = { .passed = units, .pace = PACE_OF(per_s) };
    w->number[peer]++;
    struct weir_message message = {
        .type = WEIR_MESSAGE_REPORT,
        .session = 1,
        .report = { .number = w->number[peer],
                    .epoch = 1,
                    .echo = made,
                    .announce_count = w->number[peer] == 1,
                    .announces = &announce,
                    .count = 1,
                    .counts = &count },
    };
    receive(w, peer, &message);
    drain(w);
}

static void greet(struct world *w, uint32_t peer)
{
    struct weir_message message = {
        .type = WEIR_MESSAGE_HELLO,
        .session = 1,
        .hello = { .protocol = WEIR_PROTOCOL,
                   .incarnation = { (uint8_t)(8 + peer) },
                   .store = store,
                   .epoch = 1 },
    };
    weir_root_link(w->root, peer, true, w->now);
    receive(w, peer, &message);
    drain(w);
}

static double fill(struct world *w)
{
    struct weir_usage usage;
    assert_true(weir_root_usage_of(w->root, Q, &usage, w->now));
    return usage.fill;
}

static void wait(struct world *w, weir_duration span)
{
    weir_instant end = w->now + span;
    while (w->now < end) {
        w->now = weir_earlier(w->now + WEIR_SECOND / 10, end);
        weir_root_tick(w->root, w->now);
        drain(w);
    }
}

static int make_root(void **state)
{
    static struct world w;
    w = (struct world){ .born = MADE_AT, .now = MADE_AT };
    struct weir_root_options options = { .mem = weir_mem_system,
                                         .peers_max = PEERS_MAX,
                                         .settings = settings,
                                         .incarnation = { 1 } };
    w.root = weir_root_new(&options, w.now);
    assert_non_null(w.root);
    apply_quota(&w);
    *state = &w;
    return 0;
}

static int make_root_and_limiters(void **state)
{
    make_root(state);
    struct world *w = *state;
    wait(w, 20 * WEIR_SECOND);
    for (uint32_t i = 0; i < LIMITERS; i++)
        greet(w, i);
    return 0;
}

static int unmake(void **state)
{
    struct world *w = *state;
    weir_root_free(w->root);
    free(w->limiter);
    free(w->table);
    return 0;
}

/* ---- The root ---- */

/* A report was under way for a quarter of a second: at 100/s that are 25 units
 * more. The next one replaces them, and none is counted twice. */
static void test_a_pace_begins_when_its_counts_were_made(void **state)
{
    struct world *w = *state;
    report(w, 0, 40, 100, age(w) - WEIR_SECOND / 4);
    assert_close(fill(w), 65);
    wait(w, WEIR_SECOND);
    assert_close(fill(w), 165);
    report(w, 0, 110, 0, age(w) - WEIR_SECOND / 4);
    assert_close(fill(w), 150);
}

/* A limiter of an earlier version echoes nothing; another one is wrong, or
 * lies. */
static void test_an_echo_may_be_none_or_wrong(void **state)
{
    struct world *w = *state;
    report(w, 0, 40, 100, 0);
    assert_close(fill(w), 40);
    report(w, 0, 0, 100, age(w) + WEIR_SECOND);
    assert_close(fill(w), 40);
    report(w, 0, 0, 100, WEIR_NEVER);
    assert_close(fill(w), 40);
    wait(w, 40 * WEIR_SECOND);
    report(w, 0, 0, 100, 1);
    assert_close(fill(w), 40 + 100 * 30);
}

/* The root is slow: it reads nothing for ten seconds, and then reports that
 * have waited. No limiter is silent by that, until the root has read a newer
 * report of another one. */
static void test_a_slow_root_calls_no_limiter_silent(void **state)
{
    struct world *w = *state;
    report(w, 0, 0, 100, age(w));
    report(w, 1, 0, 100, age(w));
    weir_duration made = age(w);
    wait(w, 10 * WEIR_SECOND);
    assert_close(fill(w), 2000);
    report(w, 1, 100, 100, made + WEIR_SECOND);
    wait(w, 2 * WEIR_SECOND);
    assert_close(fill(w), 1200 + 1200);
    report(w, 1, 1100, 100, age(w));
    wait(w, WEIR_SECOND);
    assert_close(fill(w), 1200 + 100);
}

/* Slack goes by the square root of pace * (lead + 20 ms): 140 ms have twice the
 * exposure of 20 ms. Three quarters of all are divided so, if the bucket is
 * filled to 'low', and less below. All of it is half of the room at most. */
static void goes_by_exposure(struct world *w, double filled)
{
    report(w, 0, (int64_t)(filled * HIGH), 10, age(w));
    report(w, 1, 0, 10, age(w));
    uint64_t equal = w->slack;
    report(w, 0, 0, 10, age(w) - 60 * WEIR_MILLISECOND);
    uint64_t far = w->slack;
    report(w, 1, 0, 10, age(w));
    uint64_t near = w->slack;
    double room = (1 - filled) * HIGH * 1024;
    double exposed = filled * 3 / 8;
    assert_close((double)equal / room, 1. / 4);
    assert_close((double)far / room, (.5 - exposed) / 2 + 2. / 3 * exposed);
    assert_close((double)near / room, (.5 - exposed) / 2 + 1. / 3 * exposed);
    assert_true(near + far <= (uint64_t)room / 2);
}

static void test_slack_goes_by_exposure(void **state)
{
    goes_by_exposure(*state, 0.95);
}

static void test_slack_goes_half_by_exposure(void **state)
{
    goes_by_exposure(*state, 0.5);
}

static void test_slack_of_an_empty_bucket_is_equal(void **state)
{
    goes_by_exposure(*state, 0);
}

/* ---- Beside a peer of an earlier version ---- */

static void say(struct world *w)
{
    struct weir_message message;
    uint32_t link;
    while (weir_limiter_next(w->limiter, &link, &message, w->now)) {
        if (message.type == WEIR_MESSAGE_REPORT) {
            w->echo = message.report.echo;
            if (w->old_limiter)
                message.report.echo = 0;
        }
        receive(w, 0, &message);
    }
}

static void hear(struct world *w)
{
    struct weir_message message;
    uint32_t peer;
    while (weir_root_next(w->root, &peer, &message, w->now)) {
        if (peer != 0)
            continue;
        if (message.type == WEIR_MESSAGE_FILLS && w->old_root)
            message.fills.age = 0;
        if (message.type == WEIR_MESSAGE_FILLS && message.fills.count > 0)
            w->slack = message.fills.fills[0].slack;
        assert_int_equal(weir_limiter_receive(w->limiter, 0, &message, w->now),
                         0);
    }
}

static void pass(struct world *w, weir_duration span)
{
    weir_instant end = w->now + span;
    while (w->now < end) {
        w->now = weir_earlier(w->now + WEIR_SECOND / 10, end);
        weir_limiter_tick(w->limiter, w->now);
        weir_root_tick(w->root, w->now);
        for (int i = 0; i < 8; i++) {
            say(w);
            hear(w);
        }
    }
}

static void begin_limiter(struct world *w)
{
    w->table = made_table(SLOTS, 2, 1);
    struct weir_limiter_options options = { .table = w->table,
                                            .slots = SLOTS,
                                            .links = 1,
                                            .name = WEIR_TEXT("l"),
                                            .incarnation = { 20 },
                                            .seed = 1 };
    size_t size = (weir_limiter_size(&options) + 63) & ~(size_t)63;
    void *block = aligned_alloc(64, size);
    assert_non_null(block);
    memset(block, 0, size);
    w->limiter = weir_limiter_init(block, &options, w->now);
    weir_root_link(w->root, 0, true, w->now);
    weir_limiter_link(w->limiter, 0, true, w->now);
    pass(w, 10 * WEIR_SECOND);
}

static bool takes(struct world *w, struct weir_ref ref)
{
    return !(weir_table_take(w->table, 0, ref, 1, NULL, w->now) &
             WEIR_OUTCOME_LIMITED);
}

/* Passes units, and reports when it has to. */
static void use(struct world *w, struct weir_ref ref, double units)
{
    for (double used = 0; used < units;) {
        if (takes(w, ref))
            used++;
        else
            pass(w, WEIR_SECOND);
    }
    pass(w, 5 * WEIR_SECOND);
    assert_close(fill(w), units);
}

/* One of 'limiters', of which the others pass nothing, has an equal part of the
 * slacks, half of the room together. In a bucket with 'used' units it stops at
 * 'slacks' times its slack beyond the counts that the root presumes. */
static void stops_at(struct world *w, uint32_t limiters, double used,
                     double slacks)
{
    for (uint32_t other = 1; other < limiters; other++) {
        greet(w, other);
        report(w, other, 0, 0, 0);
    }
    begin_limiter(w);
    struct weir_ref ref;
    assert_true(weir_table_find(w->table, Q, &ref));
    use(w, ref, used);
    double slack = (double)w->slack / WEIR_FILL_ONE;
    assert_close(slack, (HIGH - used) / 2 / limiters);
    double units = 0;
    while (takes(w, ref))
        units++;
    assert_close(units, ceil(slack * slacks));
    assert_int_equal(w->echo != 0, !w->old_root);
    /* All of them reach the root. */
    pass(w, 5 * WEIR_SECOND);
    assert_close(fill(w), units + used);
}

/* By its share of the slacks it stops beyond its slack, */
static void test_one_of_two_limiters(void **state)
{
    stops_at(*state, 2, 8000, 1 + 1. / 2);
}

static void test_one_of_four_limiters(void **state)
{
    stops_at(*state, 4, 9000, 1 + 1. / 4);
}

static void test_a_limiter_alone_has_all_of_the_room(void **state)
{
    stops_at(*state, 1, 8000, 2);
}

/* or by the bucket's empty part. */
static void test_a_limiter_beside_a_bucket_half_empty(void **state)
{
    stops_at(*state, 4, 5000, 1 + 1. / 2);
}

static void test_a_limiter_beside_an_empty_bucket(void **state)
{
    stops_at(*state, 4, 1, 2);
}

static void test_a_root_may_send_no_age(void **state)
{
    struct world *w = *state;
    w->old_root = true;
    stops_at(w, 4, 9000, 2);
}

static void test_a_limiter_may_send_no_echo(void **state)
{
    struct world *w = *state;
    w->old_limiter = true;
    stops_at(w, 4, 9000, 1 + 1. / 4);
}

#define BY_HAND(test) \
    cmocka_unit_test_setup_teardown(test, make_root_and_limiters, unmake)
#define PUMPED(test) cmocka_unit_test_setup_teardown(test, make_root, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BY_HAND(test_a_pace_begins_when_its_counts_were_made),
        BY_HAND(test_an_echo_may_be_none_or_wrong),
        BY_HAND(test_a_slow_root_calls_no_limiter_silent),
        BY_HAND(test_slack_goes_by_exposure),
        BY_HAND(test_slack_goes_half_by_exposure),
        BY_HAND(test_slack_of_an_empty_bucket_is_equal),
        PUMPED(test_one_of_two_limiters),
        PUMPED(test_one_of_four_limiters),
        PUMPED(test_a_limiter_alone_has_all_of_the_room),
        PUMPED(test_a_limiter_beside_a_bucket_half_empty),
        PUMPED(test_a_limiter_beside_an_empty_bucket),
        PUMPED(test_a_root_may_send_no_age),
        PUMPED(test_a_limiter_may_send_no_echo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
