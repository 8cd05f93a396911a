/* SPDX-License-Identifier: MIT
 * test_table_permit.c - permits in flight: enter and leave on a table.
 *
 * With any edits of the quotas, a name's in-flight counter is exactly the sum
 * of its permits in flight; a chain is entered completely or not at all; and no
 * permit is given back to another name. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "patience.h"
#include "table_calls.h"
#include "table_maker.h"

#define LATER (MADE_AT + WEIR_SECOND)

static struct weir_table *t;

static int begin(void **state)
{
    (void)state;
    t = made_table(64, 4, 7);
    return 0;
}

static int end(void **state)
{
    (void)state;
    made_audit(t);
    free(t);
    return 0;
}

static struct weir_ref put_gauge(const char *name, const char *parent,
                                 uint64_t units)
{
    struct weir_quota quota = made_inflight_of(name, parent, units);
    return made_put(t, &quota, LATER);
}

static struct weir_ref put_rate(const char *name, const char *parent,
                                uint64_t burst)
{
    struct weir_quota quota = made_quota_of(name, parent, 1, burst);
    quota.sharing = WEIR_LOCAL;
    return made_put(t, &quota, LATER);
}

static bool enters(struct weir_ref ref, uint64_t weight,
                   struct weir_permit_record *out)
{
    unsigned outcome = weir_table_enter(t, 1, ref, weight, out, NULL, LATER);
    assert_false(outcome & WEIR_OUTCOME_STALE_REF);
    return !(outcome & WEIR_OUTCOME_LIMITED);
}

static uint64_t in_flight(struct weir_ref ref)
{
    return weir_table_in_flight(t, ref.slot);
}

static uint64_t fill(struct weir_ref ref)
{
    struct weir_slot_view view;
    weir_table_view(t, ref.slot, &view, LATER);
    return (uint64_t)view.fill >> view.bucket.leak.frac;
}

/* ---- Stories ---- */

static void test_what_is_in_flight_is_bounded(void **state)
{
    (void)state;
    struct weir_ref db = put_gauge("db", NULL, 5);
    struct weir_permit_record a, b, c;
    assert_true(enters(db, 3, &a));
    assert_false(enters(db, 3, &b));
    assert_int_equal(b.links, 0);
    assert_true(enters(db, 2, &b));
    assert_false(enters(db, 1, &c));
    assert_int_equal(fill(db), 5);
    /* After any time: nothing leaks. */
    assert_true(weir_table_peek(t, 1, db, 1, NULL, LATER + 1000 * WEIR_SECOND) &
                WEIR_OUTCOME_LIMITED);
    weir_table_leave(t, &a);
    weir_table_leave(t, &a);
    assert_int_equal(in_flight(db), 2);
    assert_true(enters(db, 3, &c));
    weir_table_leave(t, &b);
    weir_table_leave(t, &c);
    assert_int_equal(in_flight(db), 0);
    assert_int_equal(weir_table_refused(t, db.slot), 4);
}

static void test_a_copy_gives_back_at_most_what_is_held(void **state)
{
    (void)state;
    struct weir_ref db = put_gauge("db", NULL, 5);
    struct weir_permit_record a, b, other;
    assert_true(enters(db, 3, &a));
    b = a;
    weir_table_leave(t, &a);
    weir_table_leave(t, &b);
    assert_int_equal(in_flight(db), 0);
    assert_true(enters(db, 3, &a));
    assert_true(enters(db, 1, &other));
    b = a;
    weir_table_leave(t, &a);
    weir_table_leave(t, &b);
    weir_table_leave(t, &other);
    assert_int_equal(in_flight(db), 0);
    assert_true(enters(db, 5, &a));
    assert_false(enters(db, 1, &b));
    weir_table_leave(t, &a);
}

static void test_zero_refuses_and_unlimited_counts(void **state)
{
    (void)state;
    struct weir_permit_record a, b;
    struct weir_ref none = put_gauge("none", NULL, 0);
    assert_false(enters(none, 1, &a));
    assert_false(enters(none, 0, &a));
    struct weir_quota quota = made_inflight_of("all", NULL, 0);
    quota.limit = (struct weir_limit){ .per = WEIR_SECOND, .unlimited = true };
    struct weir_ref all = made_put(t, &quota, LATER);
    assert_true(enters(all, WEIR_WEIGHT_MAX, &a));
    assert_true(enters(all, WEIR_WEIGHT_MAX + 9, &b));
    assert_true(in_flight(all) == 2 * WEIR_WEIGHT_MAX);
    /* With a limit it knows the units in flight. */
    put_gauge("all", NULL, 7);
    weir_table_leave(t, &a);
    assert_false(enters(all, 1, &a));
    weir_table_leave(t, &b);
    assert_true(enters(all, 7, &a));
    weir_table_leave(t, &a);
}

static void test_other_calls_hold_nothing(void **state)
{
    (void)state;
    struct weir_ref all = put_rate("all", NULL, 100);
    struct weir_ref db = put_gauge("db", "all", 2);
    struct weir_reply reply;
    struct weir_permit_record a;
    for (int i = 0; i < 5; i++)
        assert_int_equal(weir_table_take(t, 1, db, 2, NULL, LATER) &
                             WEIR_OUTCOME_LIMITED,
                         0);
    assert_int_equal(in_flight(db), 0);
    assert_int_equal(fill(all), 10);
    weir_table_charge(t, 1, db, 40, LATER);
    assert_int_equal(fill(all), 50);
    assert_int_equal(in_flight(db), 0);
    weir_table_refund(t, 1, db, 50, LATER);
    assert_int_equal(fill(all), 0);
    assert_true(enters(db, 2, &a));
    assert_true(weir_table_take(t, 1, db, 1, NULL, LATER) &
                WEIR_OUTCOME_LIMITED);
    assert_true(weir_table_reserve(t, 1, db, 1, WEIR_SECOND, &reply, LATER) &
                WEIR_OUTCOME_LIMITED);
    weir_table_leave(t, &a);
    assert_int_equal(
        weir_table_reserve(t, 1, db, 1, WEIR_SECOND, &reply, LATER), 0);
    assert_int_equal(in_flight(db), 0);
    assert_int_equal(fill(all), 3);
}

static void test_a_chain_is_entered_all_or_none(void **state)
{
    (void)state;
    struct weir_ref host = put_gauge("host", NULL, 3);
    struct weir_ref rate = put_rate("rate", "host", 4);
    struct weir_ref a = put_gauge("a", "rate", 2);
    struct weir_ref b = put_gauge("b", "rate", 9);
    struct weir_permit_record one, two, three;
    assert_true(enters(a, 2, &one));
    assert_int_equal(one.links, 2);
    assert_false(enters(a, 1, &two)); /* a is full */
    assert_false(enters(b, 2, &two)); /* the parent is full */
    assert_int_equal(in_flight(b), 0);
    assert_int_equal(in_flight(host), 2);
    assert_int_equal(fill(rate), 2);
    assert_true(enters(b, 1, &two));
    weir_table_leave(t, &one);
    assert_false(enters(a, 2, &three)); /* the rate is used up */
    assert_int_equal(in_flight(a), 0);
    assert_int_equal(in_flight(host), 1);
    weir_table_leave(t, &two);
    assert_int_equal(in_flight(host), 0);
    assert_int_equal(fill(rate), 3); /* stays charged */
}

static void test_a_chain_of_rates_is_charged_and_holds_nothing(void **state)
{
    (void)state;
    struct weir_ref site = put_rate("site", NULL, 5);
    struct weir_ref api = put_rate("api", "site", 3);
    struct weir_permit_record a, b;
    assert_true(enters(api, 2, &a));
    assert_int_equal(a.links, 0);
    assert_false(enters(api, 2, &b));
    assert_int_equal(b.links, 0);
    assert_int_equal(weir_table_refused(t, api.slot), 2);
    weir_table_leave(t, &a);
    assert_int_equal(fill(api), 2);
    assert_int_equal(fill(site), 2);
    /* The next one enters the parent, which counts units in flight now. */
    put_gauge("site", NULL, 5);
    assert_true(enters(api, 1, &a));
    assert_int_equal(in_flight(site), 1);
    weir_table_leave(t, &a);
    assert_int_equal(in_flight(site), 0);
    assert_int_equal(fill(api), 3);
}

static void test_a_reply_says_what_is_in_flight(void **state)
{
    (void)state;
    struct weir_ref db = put_gauge("db", NULL, 5);
    struct weir_reply reply;
    struct weir_permit_record a, b;
    assert_false(weir_table_enter(t, 1, db, 2, &a, &reply, LATER) &
                 WEIR_OUTCOME_LIMITED);
    assert_int_equal(reply.fill, 2);
    assert_int_equal(reply.remaining, 3);
    assert_int_equal(weir_table_enter(t, 1, db, 4, &b, &reply, LATER),
                     WEIR_OUTCOME_LIMITED);
    assert_string_equal(reply.quota, "db");
    assert_int_equal(reply.fill, 2);
    assert_false(reply.never);
    assert_in_range(reply.retry_after, 20 * WEIR_MILLISECOND,
                    26 * WEIR_MILLISECOND);
    weir_table_enter(t, 1, db, 6, &b, &reply, LATER);
    assert_true(reply.never);
    assert_true(reply.retry_after == WEIR_NEVER);
    weir_table_leave(t, &a);
}

static void test_a_quota_in_mode_shadow_holds_what_fits(void **state)
{
    (void)state;
    struct weir_quota quota = made_inflight_of("db", NULL, 2);
    quota.mode = WEIR_SHADOW;
    struct weir_ref db = made_put(t, &quota, LATER);
    struct weir_reply reply;
    struct weir_permit_record a, b;
    assert_true(enters(db, 2, &a));
    assert_int_equal(weir_table_enter(t, 1, db, 1, &b, &reply, LATER), 0);
    assert_true(reply.shadow);
    assert_int_equal(b.links, 0);
    assert_int_equal(weir_table_refused(t, db.slot), 1);
    weir_table_leave(t, &b);
    weir_table_leave(t, &a);
    assert_int_equal(in_flight(db), 0);
}

/* ---- Edits ---- */

static void test_edits_leave_in_flight_what_is(void **state)
{
    (void)state;
    struct weir_ref db = put_gauge("db", NULL, 5);
    struct weir_permit_record a, b, none;
    assert_true(enters(db, 4, &a));
    put_gauge("db", NULL, 3);
    assert_false(enters(db, 1, &none));
    put_rate("db", NULL, 10);
    assert_int_equal(fill(db), 0); /* a rate begins empty */
    assert_true(enters(db, 10, &none));
    assert_int_equal(none.links, 0);
    put_gauge("db", NULL, 5);
    assert_int_equal(fill(db), 4); /* and the counter stays */
    assert_true(enters(db, 1, &b));
    put_rate("db", NULL, 10);
    weir_table_leave(t, &a);
    assert_int_equal(fill(db), 0);
    struct weir_quota off = made_inflight_of("db", NULL, 1);
    off.mode = WEIR_OFF;
    made_put(t, &off, LATER);
    assert_true(enters(db, 7, &none));
    assert_int_equal(in_flight(db), 1);
    weir_table_leave(t, &b);
    put_gauge("db", NULL, 5);
    assert_true(enters(db, 5, &a));
    weir_table_leave(t, &a);
}

static void test_a_name_with_permits_out_keeps_its_slot(void **state)
{
    (void)state;
    struct weir_ref db = put_gauge("db", NULL, 5);
    struct weir_permit_record a, b;
    assert_true(enters(db, 4, &a));
    weir_table_drop(t, WEIR_TEXT("db"), LATER);
    /* No handle refers to it, but its slot isn't reused. */
    struct weir_ref other = put_gauge("other", NULL, 5);
    assert_true(other.slot != db.slot);
    /* A removed quota limits nothing. */
    struct weir_ref again;
    assert_true(weir_table_find(t, WEIR_TEXT("db"), &again));
    assert_true(enters(again, 9, &b));
    assert_int_equal(b.links, 0);
    again = put_gauge("db", NULL, 5);
    assert_int_equal(again.slot, db.slot);
    assert_false(enters(again, 2, &b));
    weir_table_drop(t, WEIR_TEXT("db"), LATER);
    weir_table_leave(t, &a);
    assert_int_equal(in_flight(db), 0);
    assert_int_equal(in_flight(other), 0);
}

static void test_a_template_rules_what_was_removed_and_is_held(void **state)
{
    (void)state;
    struct weir_quota template = made_inflight_of("d*", NULL, 7);
    assert_int_equal(weir_table_put(t, &template, LATER), 0);
    put_gauge("host", NULL, 4);
    struct weir_ref db = put_gauge("db", "host", 5);
    struct weir_permit_record a, b;
    assert_true(enters(db, 4, &a));
    weir_table_drop(t, WEIR_TEXT("db"), LATER);
    assert_true(weir_table_find(t, WEIR_TEXT("db"), &db));
    assert_false(enters(db, 4, &b));
    assert_true(enters(db, 3, &b));
    assert_int_equal(b.links, 1);
    weir_table_leave(t, &a);
    weir_table_leave(t, &b);
    assert_int_equal(in_flight(db), 0);
}

static void test_an_instance_with_permits_out_is_not_evicted(void **state)
{
    (void)state;
    struct weir_quota template = made_inflight_of("user/*", NULL, 2);
    assert_int_equal(weir_table_put(t, &template, LATER), 0);
    struct weir_ref busy, idle;
    struct weir_permit_record a, b;
    weir_table_resolve(t, WEIR_TEXT("user/1"), false, &busy, LATER);
    weir_table_resolve(t, WEIR_TEXT("user/2"), false, &idle, LATER);
    assert_true(enters(busy, 2, &a));
    for (int i = 0; i < 200; i++) {
        char name[32];
        struct weir_ref ref;
        snprintf(name, sizeof(name), "user/x%d", i);
        weir_table_resolve(t, weir_text_of(name), false, &ref, LATER);
    }
    assert_false(weir_table_find(t, WEIR_TEXT("user/2"), &idle));
    struct weir_ref found;
    assert_true(weir_table_find(t, WEIR_TEXT("user/1"), &found));
    assert_int_equal(found.generation, busy.generation);
    assert_false(enters(busy, 1, &b));
    /* Instances follow an edit of their template, also of its kind. */
    template.limit.units = 3;
    assert_int_equal(weir_table_put(t, &template, LATER), 0);
    assert_true(enters(busy, 1, &b));
    weir_table_leave(t, &a);
    weir_table_leave(t, &b);
    assert_int_equal(in_flight(busy), 0);
}

/* Roots drop their knowledge of a quota that is removed: the units in flight of
 * a template's instance have to be reported again, too. */
static void test_what_is_held_is_told_of_again(void **state)
{
    (void)state;
    uint64_t bits[1] = { 0 };
    struct weir_quota template = made_inflight_of("user/*", NULL, 2);
    assert_int_equal(weir_table_put(t, &template, LATER), 0);
    struct weir_ref ref;
    struct weir_permit_record a;
    weir_table_resolve(t, WEIR_TEXT("user/1"), false, &ref, LATER);
    assert_true(enters(ref, 2, &a));
    weir_table_collect(t, bits);
    assert_true(bits[0] >> ref.slot & 1);
    weir_table_drop(t, WEIR_TEXT("user/*"), LATER);
    assert_int_equal(weir_table_put(t, &template, LATER), 0);
    bits[0] = 0;
    weir_table_collect(t, bits);
    assert_true(bits[0] >> ref.slot & 1);
    weir_table_leave(t, &a);
}

/* Units of other limiters under a removed name don't count for the next name in
 * the slot; and its first use is reported at once. */
static void test_a_new_life_knows_of_no_others(void **state)
{
    (void)state;
    struct weir_ref db = put_gauge("db", NULL, 5);
    struct weir_permit_record a;
    weir_table_set_fill(t, db.slot, 5, 0, LATER);
    assert_false(enters(db, 1, &a));
    weir_table_drop(t, WEIR_TEXT("db"), LATER);
    struct weir_ref other = put_gauge("other", NULL, 5);
    assert_int_equal(other.slot, db.slot);
    assert_true(enters(other, 5, &a));
    weir_table_leave(t, &a);
    weir_table_drop(t, WEIR_TEXT("other"), LATER);
    struct weir_ref rate = put_rate("rate", NULL, 9);
    weir_table_take(t, 1, rate, 7, NULL, LATER);
    weir_table_drop(t, WEIR_TEXT("rate"), LATER);
    struct weir_ref third = put_gauge("third", NULL, 5);
    assert_int_equal(third.slot, rate.slot);
    assert_int_equal(weir_table_settled(t, third.slot), 0);
}

static void test_a_fork_forgets_its_parents_permits(void **state)
{
    (void)state;
    struct weir_ref db = put_gauge("db", NULL, 5);
    struct weir_permit_record a;
    assert_true(enters(db, 4, &a));
    weir_table_forget_permits(t);
    assert_int_equal(in_flight(db), 0);
    assert_true(enters(db, 5, &a));
    weir_table_leave(t, &a);
}

/* A permit that a store refuses isn't in flight. */
static void test_an_undone_enter_holds_nothing(void **state)
{
    (void)state;
    struct weir_quota exact = made_quota_of("exact", NULL, 1, 5);
    exact.sharing = WEIR_EXACT;
    made_put(t, &exact, LATER);
    struct weir_ref db = put_gauge("db", "exact", 5);
    struct weir_permit_record a;
    struct weir_charge_record charge_record = { .record = &a };
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE, .weight = 2 };
    assert_int_equal(weir_table_enter(t, 1, db, 2, &a, NULL, LATER),
                     WEIR_OUTCOME_EXACT);
    assert_int_equal(in_flight(db), 0);
    assert_false(weir_table_begin(t, 1, db, &ask, &charge_record, NULL, LATER) &
                 WEIR_OUTCOME_LIMITED);
    assert_int_equal(in_flight(db), 2);
    weir_table_undo(t, &charge_record, LATER);
    assert_int_equal(in_flight(db), 0);
    assert_int_equal(a.links, 0);
    charge_record.record = NULL;
    assert_false(weir_table_begin(t, 1, db, &ask, &charge_record, NULL, LATER) &
                 WEIR_OUTCOME_LIMITED);
    assert_int_equal(in_flight(db), 0);
}

/* ---- A long history, compared with a list ---- */

#define NAMES 6
#define OUT_MAX 64

static const char *const names[NAMES] = { "a", "b", "c", "d", "e", "f" };

struct out {
    struct weir_permit_record record;
    uint64_t units[NAMES]; /* units of each name */
};

static void edit_at_random(struct weir_rng *rng)
{
    unsigned k = (unsigned)weir_rng_below(rng, NAMES);
    unsigned above = k + 1 + (unsigned)weir_rng_below(rng, NAMES - k);
    const char *parent = above < NAMES ? names[above] : NULL;
    uint64_t units = weir_rng_below(rng, 20);
    struct weir_quota quota = made_inflight_of(names[k], parent, units);
    switch (weir_rng_below(rng, 8)) {
    case 0:
        weir_table_drop(t, quota.name, LATER);
        return;
    case 1:
        put_rate(names[k], parent, units + 1);
        return;
    case 2:
        quota.mode = WEIR_OFF;
        break;
    case 3:
        quota.mode = WEIR_SHADOW;
        break;
    case 4:
        quota.created += weir_rng_below(rng, 5);
        break;
    default:
        break;
    }
    assert_int_equal(weir_table_put(t, &quota, LATER), 0);
}

static int name_of_slot(uint32_t slot)
{
    char name[WEIR_NAME_MAX + 1];
    weir_table_name(t, slot, name);
    for (int k = 0; k < NAMES; k++) {
        if (strcmp(name, names[k]) == 0)
            return k;
    }
    return -1;
}

static void enter_at_random(struct weir_rng *rng, struct out *out)
{
    unsigned k = (unsigned)weir_rng_below(rng, NAMES);
    struct weir_ref ref;
    memset(out, 0, sizeof(*out));
    if (!weir_table_find(t, weir_text_of(names[k]), &ref))
        return;
    enters(ref, weir_rng_below(rng, 6), &out->record);
    for (uint32_t i = 0; i < out->record.links; i++) {
        int name = name_of_slot(out->record.slot[i]);
        assert_compare(name, >=, 0);
        assert_int_equal(out->units[name], 0);
        out->units[name] = out->record.weight;
    }
}

static void check_names(const struct out *outs)
{
    for (int k = 0; k < NAMES; k++) {
        uint64_t sum = 0;
        for (int i = 0; i < OUT_MAX; i++)
            sum += outs[i].units[k];
        struct weir_ref ref;
        bool there = weir_table_find(t, weir_text_of(names[k]), &ref);
        assert_true(there || sum == 0);
        if (there)
            assert_int_equal(in_flight(ref), sum);
    }
}

/* An enter by a life that is over is undone; its request to wake the sync isn't
 * lost with it. */
static void test_a_kick_isnt_lost(void **state)
{
    (void)state;
    struct weir_ref ref = put_gauge("told", NULL, 3);
    struct weir_ref old = { ref.slot, ref.generation + 2 };
    struct weir_permit_record record;
    (void)weir_table_urgent(t);
    assert_int_equal(weir_table_enter(t, 1, old, 1, &record, NULL, LATER),
                     WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_KICK);
    assert_int_equal(weir_table_in_flight(t, ref.slot), 0);
}

/* A writer was killed between the end of a life and the check of its permits:
 * the name lives on, with them. */
static void test_a_killed_writer_frees_nothing_that_is_held(void **state)
{
    (void)state;
    struct weir_ref ref = put_gauge("held", NULL, 3);
    struct weir_ref empty = put_gauge("empty", NULL, 3);
    struct weir_ref found;
    struct weir_permit_record record;
    assert_true(enters(ref, 2, &record));
    assert_true(weir_table_try_lock(t));
    weir_store(&weir_hot(t, ref.slot)->generation, ref.generation + 1);
    weir_store(&weir_hot(t, empty.slot)->generation, empty.generation + 1);
    weir_table_break_lock(t);
    assert_false(weir_table_find(t, WEIR_TEXT("empty"), &found));
    assert_true(weir_table_find(t, WEIR_TEXT("held"), &found));
    assert_int_equal(found.slot, ref.slot);
    assert_int_not_equal(found.generation, ref.generation);
    assert_int_equal(weir_table_in_flight(t, ref.slot), 2);
    weir_table_leave(t, &record);
}

static void test_random_histories(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("permits");
    static struct out outs[OUT_MAX];
    memset(outs, 0, sizeof(outs));
    uint64_t entered = 0;
    for (int i = 0; i < 20000; i++) {
        struct out *out = &outs[weir_rng_below(&rng, OUT_MAX)];
        if (weir_rng_below(&rng, 5) == 0)
            edit_at_random(&rng);
        else if (out->record.links == 0)
            enter_at_random(&rng, out);
        else
            weir_table_leave(t, &out->record);
        if (out->record.links == 0)
            memset(out->units, 0, sizeof(out->units));
        entered += out->record.links;
        check_names(outs);
    }
    assert_compare(entered, >, 1000);
    for (int i = 0; i < OUT_MAX; i++)
        weir_table_leave(t, &outs[i].record);
    memset(outs, 0, sizeof(outs));
    check_names(outs);
}

/* ---- Threads ---- */

#define ENTERERS 3
#define ROUNDS 30000
#define KEPT 4

struct enterer {
    pthread_t thread;
    struct weir_rng rng;
    uint64_t entered, over;
};

static uint32_t running; /* atomic */

/* 'solid' is never edited: its units in flight never exceed its limit. */
static void enter_once(struct enterer *self, uint32_t stripe,
                       struct weir_permit_record *record)
{
    struct weir_ref leaf, solid;
    const char *name = names[weir_rng_below(&self->rng, 3)];
    weir_table_leave(t, record);
    if (!weir_table_find(t, weir_text_of(name), &leaf))
        return;
    struct weir_reply reply;
    bool tells = weir_rng_below(&self->rng, 4) == 0;
    weir_table_enter(t, stripe, leaf, 1 + weir_rng_below(&self->rng, 2), record,
                     tells ? &reply : NULL, LATER);
    self->entered += record->links;
    weir_table_find(t, WEIR_TEXT("solid"), &solid);
    self->over += in_flight(solid) > 5;
}

static void *enter_and_leave(void *arg)
{
    struct enterer *self = arg;
    struct weir_permit_record record[KEPT] = { { .links = 0 } };
    uint32_t stripe = weir_table_claim_stripe(t);
    /* While the main thread waits for a processor there may be no quota to
     * enter: each thread goes on until it has entered one. */
    for (int i = 0; i < ROUNDS || self->entered == 0; i++)
        enter_once(self, stripe, &record[weir_rng_below(&self->rng, KEPT)]);
    for (int i = 0; i < KEPT; i++)
        weir_table_leave(t, &record[i]);
    weir_table_release_stripe(t, stripe);
    weir_fetch_sub(&running, 1);
    return NULL;
}

static void disturb(struct weir_rng *rng)
{
    const char *name = names[weir_rng_below(rng, 3)];
    switch (weir_rng_below(rng, 5)) {
    case 0:
        weir_table_drop(t, weir_text_of(name), LATER);
        break;
    case 1:
        put_rate(name, "solid", 1u << 20);
        break;
    case 2:
        put_gauge(name, NULL, 6);
        break;
    default:
        put_gauge(name, "solid", 4);
    }
}

static void test_threads_enter_beside_edits(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("threads");
    struct enterer enterers[ENTERERS];
    put_gauge("solid", NULL, 5);
    /* Else the threads may be done before the first edit. */
    for (int i = 0; i < 3; i++)
        put_gauge(names[i], "solid", 4);
    weir_store(&running, ENTERERS);
    for (uint64_t i = 0; i < ENTERERS; i++) {
        enterers[i] = (struct enterer){ .rng = { rng.state + i } };
        assert_int_equal(pthread_create(&enterers[i].thread, NULL,
                                        enter_and_leave, &enterers[i]),
                         0);
    }
    while (STILL(weir_load(&running) > 0))
        disturb(&rng);
    for (int i = 0; i < ENTERERS; i++) {
        PATIENTLY(pthread_join(enterers[i].thread, NULL));
        assert_compare(enterers[i].entered, >, 0);
        assert_int_equal(enterers[i].over, 0);
    }
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++)
        assert_int_equal(weir_table_in_flight(t, slot), 0);
}

#define STORY(test) cmocka_unit_test_setup_teardown((test), begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(test_what_is_in_flight_is_bounded),
        STORY(test_a_copy_gives_back_at_most_what_is_held),
        STORY(test_zero_refuses_and_unlimited_counts),
        STORY(test_other_calls_hold_nothing),
        STORY(test_a_chain_is_entered_all_or_none),
        STORY(test_a_chain_of_rates_is_charged_and_holds_nothing),
        STORY(test_a_reply_says_what_is_in_flight),
        STORY(test_a_quota_in_mode_shadow_holds_what_fits),
        STORY(test_edits_leave_in_flight_what_is),
        STORY(test_a_name_with_permits_out_keeps_its_slot),
        STORY(test_a_template_rules_what_was_removed_and_is_held),
        STORY(test_an_instance_with_permits_out_is_not_evicted),
        STORY(test_what_is_held_is_told_of_again),
        STORY(test_a_new_life_knows_of_no_others),
        STORY(test_a_fork_forgets_its_parents_permits),
        STORY(test_an_undone_enter_holds_nothing),
        STORY(test_a_kick_isnt_lost),
        STORY(test_a_killed_writer_frees_nothing_that_is_held),
        STORY(test_random_histories),
        STORY(test_threads_enter_beside_edits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
