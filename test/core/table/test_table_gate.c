/* SPDX-License-Identifier: MIT
 * test_table_gate.c - adaptive quotas on a table.
 *
 * With any edits of the quotas, an in-flight counter is the sum of the permits
 * that are out; the units in flight of a concurrency gate are the sum of the
 * permits that it let in, and of those that were out before it; and no permit
 * leaves a gate that it didn't enter. */

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/quota/quota_adaptive.h"
#include "patience.h"
#include "table_calls.h"
#include "table_maker.h"

#define LATER (MADE_AT + WEIR_SECOND)
#define MS WEIR_MILLISECOND

static struct weir_table *t;

static struct weir_table *table_with(uint32_t gate_slots)
{
    struct weir_table_options options = {
        .slots = 64, .stripes = 4, .seed = 7, .gate_slots = gate_slots
    };
    return made_table_of(&options);
}

static int begin(void **state)
{
    (void)state;
    t = table_with(4);
    return 0;
}

static int end(void **state)
{
    (void)state;
    made_audit(t);
    free(t);
    return 0;
}

/* "field=value;field=value" over an adaptive quota of that name. */
static struct weir_quota quota_of(const char *name, const char *fields)
{
    struct weir_quota quota;
    struct weir_diag diag = { .text = "" };
    weir_quota_init(&quota);
    quota.name = weir_text_of(name);
    quota.created = 1;
    quota.kind = WEIR_CONCURRENCY;
    quota.sharing = WEIR_ADAPTIVE;
    while (*fields) {
        size_t len = strcspn(fields, ";");
        const char *equals = strchr(fields, '=');
        struct weir_text field = { fields, (size_t)(equals - fields) };
        struct weir_text value = { equals + 1, len - field.len - 1 };
        if (weir_quota_set(&quota, field, value, &diag) < 0)
            fail_msg("%s", diag.text);
        fields += fields[len] ? len + 1 : len;
    }
    if (weir_quota_check(&quota, &diag) < 0)
        fail_msg("%s", diag.text);
    return quota;
}

static struct weir_ref put(const char *name, const char *fields)
{
    struct weir_quota quota = quota_of(name, fields);
    return made_put(t, &quota, LATER);
}

static bool enters_as(struct weir_ref ref, const char *klass, uint64_t weight,
                      struct weir_permit_record *out)
{
    *out = (struct weir_permit_record){
        .klass = klass ? weir_class_number(weir_text_of(klass)) : 0
    };
    unsigned outcome = weir_table_enter(t, 1, ref, weight, out, NULL, LATER);
    assert_false(outcome & WEIR_OUTCOME_STALE_REF);
    return !(outcome & WEIR_OUTCOME_LIMITED);
}

static bool enters(struct weir_ref ref, uint64_t weight,
                   struct weir_permit_record *out)
{
    return enters_as(ref, NULL, weight, out);
}

static void served(struct weir_permit_record *record, weir_instant now)
{
    weir_table_leave_as(t, record, WEIR_PERMIT_SUCCESS, now);
}

static struct weir_concurrency_gate_view view_of(struct weir_ref ref,
                                                 weir_instant now)
{
    struct weir_concurrency_gate_view view;
    assert_true(weir_table_adaptive(t, ref.slot, &view, now));
    return view;
}

static uint32_t in_flight(struct weir_ref ref)
{
    return view_of(ref, LATER).in_flight;
}

/* Enters and leaves one after the other; each permit is out for 'latency'. */
static void serve(struct weir_ref ref, unsigned count, weir_duration latency,
                  weir_instant *now)
{
    for (unsigned i = 0; i < count; i++) {
        struct weir_permit_record record = { .klass = 0 };
        if (!(weir_table_enter(t, 1, ref, 1, &record, NULL, *now) &
              WEIR_OUTCOME_LIMITED)) {
            *now += latency;
            served(&record, *now);
        } else {
            *now += latency;
        }
    }
}

/* ---- Stories ---- */

static void test_the_limit_is_found(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "target=100ms;max=40");
    assert_float_equal(view_of(db, LATER).controller.limit, 20, 0);
    weir_instant now = LATER;
    struct weir_permit_record out[30];
    unsigned in = 0;
    while (in < 30 && enters(db, 1, &out[in]))
        in++;
    assert_int_equal(in, 20);
    assert_int_equal(weir_table_in_flight(t, db.slot), 20);
    assert_true(weir_table_peek(t, 1, db, 1, NULL, LATER) &
                WEIR_OUTCOME_LIMITED);
    for (unsigned i = 0; i < in; i++)
        served(&out[i], LATER + 900 * MS);
    now = LATER + 900 * MS;
    serve(db, 300, 300 * MS, &now);
    struct weir_concurrency_gate_view view = view_of(db, now);
    assert_compare(view.controller.limit, <, 2);
    assert_int_equal(view.controller.reason, WEIR_LIMIT_SLOW);
    double low = view.controller.limit;
    serve(db, 3000, 20 * MS, &now);
    view = view_of(db, now);
    assert_compare(view.controller.limit, >, low);
    assert_int_equal(view.controller.reason, WEIR_LIMIT_ROOM);
    assert_int_equal(weir_table_in_flight(t, db.slot), 0);
    assert_int_equal(view.in_flight, 0);
}

static void test_the_limit_is_a_cap(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "limit=3;classes=sync:observed");
    struct weir_permit_record a, b;
    assert_true(enters_as(db, "sync", 2, &a));
    assert_false(enters_as(db, "sync", 2, &b));
    assert_int_equal(in_flight(db), 2);
    assert_true(enters_as(db, "sync", 1, &b));
    weir_table_leave(t, &a);
    weir_table_leave(t, &b);
    db = put("db", "limit=0");
    assert_false(enters(db, 1, &a));
    assert_int_equal(in_flight(db), 0);
}

static void test_classes_have_shares(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "controller=none;max=10;"
                                   "classes=sync:observed,bulk:50%,rest");
    struct weir_permit_record out[16];
    for (unsigned i = 0; i < 10; i++)
        assert_true(enters_as(db, "rest", 1, &out[i]));
    assert_false(enters_as(db, "rest", 1, &out[10]));
    assert_false(enters(db, 1, &out[10]));
    assert_false(enters_as(db, "no such class", 1, &out[10]));
    assert_true(enters_as(db, "sync", 1, &out[10]));
    assert_true(enters_as(db, "bulk", 5, &out[11]));
    assert_false(enters_as(db, "bulk", 1, &out[12]));
    struct weir_concurrency_gate_view view = view_of(db, LATER);
    assert_int_equal(view.in_flight, 16);
    assert_int_equal(view.in_flight_of[0], 1);
    assert_int_equal(view.in_flight_of[1], 5);
    /* Another order of classes: permits of the old classes leave the sum,
     * too. */
    db = put("db", "controller=none;max=10;classes=bulk:50%,sync:observed");
    assert_int_equal(in_flight(db), 16);
    for (unsigned i = 0; i < 12; i++)
        weir_table_leave(t, &out[i]);
    assert_int_equal(in_flight(db), 0);
    assert_true(enters_as(db, "bulk", 10, &out[0]));
    assert_true(enters_as(db, "sync", 1, &out[1]));
    weir_table_leave(t, &out[0]);
    weir_table_leave(t, &out[1]);
    view = view_of(db, LATER);
    assert_int_equal(
        view.in_flight + view.in_flight_of[0] + view.in_flight_of[1], 0);
}

static void test_groups_get_all_or_none(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "controller=none;max=10");
    struct weir_permit_record a, b;
    assert_true(enters(db, 0, &a));
    assert_int_equal(in_flight(db), 0);
    assert_false(enters(db, WEIR_PERMITS_MAX + 1, &a));
    assert_true(enters(db, 6, &a));
    assert_false(enters(db, 5, &b));
    assert_int_equal(in_flight(db), 6);
    assert_true(enters(db, 4, &b));
    weir_table_leave(t, &a);
    weir_table_leave(t, &b);
    /* More than the limit ever is: alone. */
    assert_true(enters(db, 25, &a));
    assert_false(enters(db, 1, &b));
    weir_table_leave(t, &a);
    assert_int_equal(in_flight(db), 0);
}

static void test_a_chain_is_undone(void **state)
{
    (void)state;
    struct weir_quota rate = made_quota_of("rate", NULL, 1, 3);
    rate.sharing = WEIR_LOCAL;
    made_put(t, &rate, LATER);
    put("db", "controller=none;max=4;parent=rate");
    struct weir_ref leaf = put("leaf", "sharing=local;limit=3;parent=db");
    struct weir_ref db;
    assert_true(weir_table_find(t, WEIR_TEXT("db"), &db));
    struct weir_permit_record a, b = { .klass = 0 };
    struct weir_reply reply;
    assert_true(enters(leaf, 2, &a));
    assert_int_equal(in_flight(db), 2);
    /* The leaf refuses: the units that the gate let in are out again. */
    unsigned outcome = weir_table_enter(t, 1, leaf, 2, &b, &reply, LATER);
    assert_true(outcome & WEIR_OUTCOME_LIMITED);
    assert_int_equal(in_flight(db), 2);
    /* The rate refuses. */
    put("leaf", "sharing=local;limit=30;parent=db");
    assert_true(weir_table_enter(t, 1, leaf, 2, &b, &reply, LATER) &
                WEIR_OUTCOME_LIMITED);
    assert_string_equal(reply.quota, "rate");
    /* The gate refuses: the reply names it, and when to come again. */
    outcome =
        weir_table_enter(t, 1, leaf, 3, &b, &reply, LATER + 9 * WEIR_SECOND);
    assert_true(outcome & WEIR_OUTCOME_LIMITED);
    assert_string_equal(reply.quota, "db");
    assert_int_equal(reply.fill, 2);
    assert_compare(reply.retry_after, >, 0);
    assert_compare(reply.retry_after, <, WEIR_SECOND);
    assert_false(reply.never);
    struct weir_slot_view view;
    weir_table_view(t, weir_parent(weir_hot(t, db.slot)), &view,
                    LATER + 9 * WEIR_SECOND);
    assert_int_equal(view.fill, 0);
    outcome =
        weir_table_enter(t, 1, leaf, 2, &b, &reply, LATER + 9 * WEIR_SECOND);
    assert_false(outcome & WEIR_OUTCOME_LIMITED);
    assert_int_equal(reply.remaining, 0);
    weir_table_leave(t, &a);
    weir_table_leave(t, &b);
    assert_int_equal(in_flight(db), 0);
    assert_int_equal(weir_table_in_flight(t, db.slot), 0);
    assert_int_equal(weir_table_in_flight(t, leaf.slot), 0);
}

static void test_who_holds_nothing_is_judged(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "controller=none;max=2");
    struct weir_permit_record a;
    struct weir_reply reply;
    assert_false(weir_table_take(t, 1, db, 1, NULL, LATER));
    assert_false(weir_table_reserve(t, 1, db, 1, WEIR_SECOND, &reply, LATER) &
                 WEIR_OUTCOME_LIMITED);
    assert_int_equal(in_flight(db), 0);
    assert_true(enters(db, 2, &a));
    assert_true(weir_table_take(t, 1, db, 1, NULL, LATER) &
                WEIR_OUTCOME_LIMITED);
    assert_true(weir_table_reserve(t, 1, db, 1, WEIR_SECOND, &reply, LATER) &
                WEIR_OUTCOME_LIMITED);
    assert_true(weir_table_peek(t, 1, db, 1, &reply, LATER) &
                WEIR_OUTCOME_LIMITED);
    assert_string_equal(reply.quota, "db");
    weir_table_leave(t, &a);
}

static void test_shadow_measures_and_never_refuses(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "controller=none;max=2;mode=shadow");
    struct weir_permit_record a, b, c;
    struct weir_reply reply;
    assert_true(enters(db, 2, &a));
    assert_true(enters(db, 2, &b));
    assert_false(weir_table_peek(t, 1, db, 1, &reply, LATER) &
                 WEIR_OUTCOME_LIMITED);
    assert_true(reply.shadow);
    assert_int_equal(in_flight(db), 2);
    assert_int_equal(weir_table_refused(t, db.slot), 2);
    served(&a, LATER + 5 * MS);
    served(&b, LATER + 5 * MS);
    assert_int_equal(view_of(db, LATER + 5 * MS).controller.windows, 1);
    assert_true(enters(db, 2, &c));
    weir_table_leave(t, &c);
    assert_int_equal(weir_table_in_flight(t, db.slot), 0);
}

static void test_an_edit_keeps_what_was_learned(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "target=100ms;max=40");
    weir_instant now = LATER;
    serve(db, 20, 300 * MS, &now);
    double low = view_of(db, now).controller.limit;
    if (low >= 15 || low <= 1)
        fail_msg("limit %g", low);
    struct weir_permit_record a;
    assert_true(enters(db, 1, &a));
    put("db", "target=100ms;max=30");
    assert_float_equal(view_of(db, now).controller.limit, low, 0);
    assert_int_equal(view_of(db, now).controller.reason, WEIR_LIMIT_SLOW);
    assert_int_equal(in_flight(db), 1);
    put("db", "target=100ms;max=0.5");
    assert_float_equal(view_of(db, now).controller.limit, 0.5, 0);
    assert_float_equal(view_of(db, now).controller.before, low, 0);
    assert_int_equal(view_of(db, now).controller.reason, WEIR_LIMIT_EDITED);
    put("db", "controller=vegas;min=7");
    assert_float_equal(view_of(db, now).controller.limit, 7, 0);
    assert_int_equal(in_flight(db), 1);
    served(&a, now);
    assert_int_equal(in_flight(db), 0);
    /* Removed and made again: another gate. */
    weir_table_drop(t, WEIR_TEXT("db"), now);
    db = put("db", "target=100ms;max=40");
    assert_float_equal(view_of(db, now).controller.limit, 20, 0);
}

static void test_who_was_there_before_counts(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "sharing=local;limit=9");
    struct weir_permit_record a, b, c, d;
    assert_true(enters(db, 3, &a));
    assert_true(enters(db, 2, &b));
    db = put("db", "controller=none;max=6");
    assert_int_equal(in_flight(db), 5);
    assert_true(enters(db, 1, &c));
    assert_false(enters(db, 1, &d));
    weir_table_leave(t, &a);
    assert_int_equal(in_flight(db), 3);
    /* Another quota gets the name, then the same again. */
    put("db", "sharing=local;limit=9");
    assert_true(enters(db, 1, &d));
    db = put("db", "controller=none;max=6");
    assert_int_equal(in_flight(db), 4);
    weir_table_leave(t, &b);
    weir_table_leave(t, &c);
    weir_table_leave(t, &d);
    assert_int_equal(in_flight(db), 0);
    assert_int_equal(weir_table_in_flight(t, db.slot), 0);
}

static void test_gate_slots_are_few(void **state)
{
    (void)state;
    uint32_t wanting;
    put("t*", "controller=none;max=2");
    struct weir_ref ref[5];
    for (unsigned i = 0; i < 5; i++) {
        char name[] = { 't', (char)('0' + i), '\0' };
        assert_int_equal(
            weir_table_resolve(t, weir_text_of(name), false, &ref[i], LATER),
            WEIR_RESOLVED);
    }
    assert_int_equal(weir_table_adaptives(t, &wanting), 4);
    assert_int_equal(wanting, 2);
    struct weir_permit_record out[3], stranger;
    assert_true(enters(ref[0], 2, &out[0]));
    assert_false(enters(ref[0], 1, &out[1]));
    /* A quota without a gate slot lets all pass, and counts. */
    assert_true(enters(ref[4], 200, &stranger));
    assert_int_equal(weir_table_in_flight(t, ref[4].slot), 200);
    struct weir_concurrency_gate_view view;
    assert_false(weir_table_adaptive(t, ref[4].slot, &view, LATER));
    /* A quota of that name takes it from the template; its gate slot is
     * free. */
    put("t0", "sharing=local;limit=9");
    weir_table_sweep(t, 64, LATER);
    put("t1", "sharing=local;limit=9");
    weir_table_sweep(t, 64, LATER);
    assert_int_equal(weir_table_adaptives(t, &wanting), 4);
    assert_int_equal(wanting, 0);
    assert_int_equal(in_flight(ref[4]), 200);
    assert_false(enters(ref[4], 1, &out[1]));
    weir_table_leave(t, &stranger);
    assert_int_equal(in_flight(ref[4]), 0);
    assert_true(enters(ref[4], 2, &out[1]));
    weir_table_leave(t, &out[0]);
    weir_table_leave(t, &out[1]);
    assert_int_equal(in_flight(ref[4]), 0);
}

static void test_one_of_a_chain_adapts(void **state)
{
    (void)state;
    struct weir_ref top = put("top", "controller=none;max=3");
    struct weir_ref low = put("low", "controller=none;max=1;parent=top");
    struct weir_permit_record a, b;
    assert_true(enters(low, 2, &a));
    assert_false(enters(low, 2, &b));
    assert_int_equal(in_flight(top), 2);
    assert_int_equal(weir_table_in_flight(t, low.slot), 2);
    /* So the gate of the lower one, which is full, is not asked by a request
     * that isn't an enter either. */
    struct weir_reply reply;
    assert_int_equal(weir_table_peek(t, 1, low, 1, NULL, LATER), 0);
    assert_int_equal(weir_table_take(t, 1, low, 1, NULL, LATER), 0);
    assert_int_equal(weir_table_reserve(t, 1, low, 1, 0, &reply, LATER), 0);
    weir_table_leave(t, &a);
    assert_int_equal(in_flight(top), 0);
}

static void test_the_fleet_shares_its_bounds(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "fleet_max=60;fleet_min=6");
    struct weir_ref own = put("own", "max=10");
    assert_float_equal(view_of(db, LATER).controller.limit, 20, 0);
    weir_table_set_fleet(t, 12, LATER);
    assert_float_equal(view_of(db, LATER).controller.limit, 5, 0);
    assert_int_equal(view_of(db, LATER).controller.reason, WEIR_LIMIT_EDITED);
    assert_float_equal(view_of(own, LATER).controller.limit, 10, 0);
    weir_table_set_fleet(t, 0, LATER);
    assert_float_equal(view_of(db, LATER).controller.limit, 6, 0);
}

/* The limit of the process becomes a part of the fleet's and back, and then
 * another sharing, with units in flight: they stay, and nothing that was
 * learned is lost. */
static void test_scopes_are_switched_under_load(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "target=100ms;max=40");
    weir_instant now = LATER;
    serve(db, 20, 300 * MS, &now);
    double low = view_of(db, now).controller.limit;
    assert_int_equal(weir_table_leasing(t, db.slot), WEIR_LEASING_NONE);
    struct weir_permit_record a, b, c, d;
    assert_true(enters(db, 1, &a));

    /* Nothing is granted yet: what was found is in force. */
    put("db", "target=100ms;max=40;scope=fleet");
    assert_int_equal(weir_table_leasing(t, db.slot), WEIR_LEASING_GRANTED);
    assert_float_equal(view_of(db, now).controller.limit, low, 0);
    assert_int_equal(in_flight(db), 1);
    assert_true(weir_table_set_lease(t, db.slot, 2, 7, now));
    assert_float_equal(view_of(db, now).controller.limit, 2, 0);
    assert_int_equal(view_of(db, now).controller.reason, WEIR_LIMIT_GIVEN);
    assert_true(enters(db, 1, &b));
    assert_false(enters(db, 1, &c));
    /* Neither its bounds nor another size of the fleet move a given part. */
    put("db", "target=100ms;max=1;scope=fleet");
    weir_table_set_fleet(t, 9, now);
    assert_float_equal(view_of(db, now).controller.limit, 2, 0);

    /* A limit of its own again, from its part on, within its bounds. */
    put("db", "target=100ms;max=40");
    assert_int_equal(weir_table_leasing(t, db.slot), WEIR_LEASING_NONE);
    assert_float_equal(view_of(db, now).controller.limit, 2, 0);
    assert_int_equal(in_flight(db), 2);
    put("db", "target=100ms;max=40;scope=fleet");
    assert_true(weir_table_set_lease(t, db.slot, 30, 8, now));
    put("db", "controller=gradient2;max=25");
    assert_float_equal(view_of(db, now).controller.limit, 25, 0);
    assert_false(weir_table_collect_window(t, db.slot, NULL, NULL, now));

    /* Other sharings and back, with the same units in flight. */
    put("db", "sharing=leased;limit=9");
    assert_true(weir_table_set_lease(t, db.slot, 3, 0, now));
    assert_int_equal(weir_table_in_flight(t, db.slot), 2);
    assert_true(enters(db, 1, &c));
    assert_false(enters(db, 1, &d));
    put("db", "target=100ms;scope=fleet");
    assert_int_equal(in_flight(db), 3);
    assert_true(weir_table_set_lease(t, db.slot, 3, 9, now));
    assert_false(enters(db, 1, &d));
    served(&a, now);
    served(&b, now);
    served(&c, now);
    assert_int_equal(in_flight(db), 0);
}

/* Without a root: on from its part, within an equal part of the bounds; what is
 * granted then counts again. */
static void test_alone_and_back(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "target=100ms;max=40;scope=fleet");
    weir_instant now = LATER;
    weir_table_set_fleet(t, 4, now);
    assert_float_equal(view_of(db, now).controller.limit, WEIR_GIVEN_FIRST, 0);
    assert_true(weir_table_set_lease(t, db.slot, 30, 1, now));
    assert_true(weir_table_set_lease(t, db.slot, INFINITY, 1, now));
    assert_int_equal(weir_table_leasing(t, db.slot), WEIR_LEASING_CLOSED);
    assert_float_equal(view_of(db, now).controller.limit, 10, 0);
    weir_table_set_fleet(t, 8, now);
    assert_float_equal(view_of(db, now).controller.limit, 5, 0);
    serve(db, 20, 300 * MS, &now);
    assert_compare(view_of(db, now).controller.limit, <, 5);
    assert_true(weir_table_set_lease(t, db.slot, 6.5, 2, now));
    assert_int_equal(weir_table_leasing(t, db.slot), WEIR_LEASING_GRANTED);
    assert_float_equal(view_of(db, now).controller.limit, 6.5, 0);
}

static void test_a_fork_has_nothing_in_flight(void **state)
{
    (void)state;
    struct weir_ref db = put("db", "target=100ms;max=40;classes=a:10%,b");
    weir_instant now = LATER;
    serve(db, 100, 300 * MS, &now);
    double low = view_of(db, now).controller.limit;
    struct weir_permit_record a;
    assert_true(enters_as(db, "a", 1, &a));
    /* At fork() a thread of the parent was in the controller, and a writer in
     * an edit. */
    assert_true(weir_table_try_lock(t));
    t->writer = 1;
    weir_table_forget_permits(t);
    weir_table_break_lock(t);
    assert_int_equal(in_flight(db), 0);
    assert_int_equal(weir_table_in_flight(t, db.slot), 0);
    assert_compare(view_of(db, now).controller.limit, <=, low);
    assert_compare(view_of(db, now).controller.limit, >, low * 0.99);
    assert_true(enters_as(db, "b", 1, &a));
    weir_table_leave(t, &a);
    assert_int_equal(in_flight(db), 0);
}

/* ---- Any history ---- */

#define NAMES 4
#define OUT_MAX 40

struct out {
    struct weir_permit_record record;
    unsigned name;
    uint32_t life;     /* of the gate that let it in; 0: none */
    uint64_t stranger; /* the life of the gate in which it is untracked */
};

static struct world {
    const char *name[NAMES];
    bool lives[NAMES], adapts[NAMES];
    uint64_t max[NAMES];
    uint32_t life[NAMES];
    struct out out[OUT_MAX];
    unsigned outs;
} world;

static void edit_something(struct weir_rng *rng, unsigned name)
{
    char fields[64];
    uint64_t kind = weir_rng_below(rng, 9);
    if (kind == 0) {
        weir_table_drop(t, weir_text_of(world.name[name]), LATER);
        world.lives[name] = world.adapts[name] = false;
        return;
    }
    /* Local, leased, adaptive, and so much of a fleet's limit. */
    bool adapts = kind > 2, granted = kind == 2 || kind > 5;
    if (adapts)
        world.max[name] = 1 + weir_rng_below(rng, 9);
    static const char *const forms[] = {
        "",
        "sharing=local;limit=%llu",
        "sharing=leased;limit=%llu",
        "controller=none;permit_timeout=24h;max=%llu",
        "scope=fleet;permit_timeout=24h;fleet_max=%llu",
    };
    unsigned long long limit = adapts ? world.max[name] : 1000;
    snprintf(fields, sizeof(fields),
             forms[kind < 3   ? kind
                   : kind < 6 ? 3
                              : 4],
             limit);
    struct weir_ref ref = put(world.name[name], fields);
    if (granted)
        assert_true(weir_table_set_lease(t, ref.slot, (double)limit,
                                         weir_rng_below(rng, 3), LATER));
    if (adapts && !world.adapts[name]) {
        world.life[name]++;
        for (unsigned i = 0; i < world.outs; i++) {
            if (world.out[i].name == name)
                world.out[i].life = world.life[name];
        }
    }
    world.lives[name] = true;
    world.adapts[name] = adapts;
}

static uint64_t flying(unsigned name, bool all)
{
    uint64_t units = 0;
    for (unsigned i = 0; i < world.outs; i++) {
        const struct out *out = &world.out[i];
        if (out->name == name && (all || out->life == world.life[name]))
            units += out->record.weight;
    }
    return units;
}

static void enter_something(struct weir_rng *rng, unsigned name)
{
    struct weir_ref ref;
    if (!world.lives[name] || world.outs == OUT_MAX ||
        !weir_table_find(t, weir_text_of(world.name[name]), &ref))
        return;
    struct out *out = &world.out[world.outs];
    uint64_t weight = 1 + weir_rng_below(rng, 4);
    uint64_t before = flying(name, false);
    bool fits = !world.adapts[name] || before + weight <= world.max[name] ||
                before == 0;
    /* Above the limit, alone, it has to wait for its turn. */
    bool alone = world.adapts[name] && before == 0 && weight > world.max[name];
    bool in = enters(ref, weight, &out->record);
    if (!alone)
        assert_int_equal(in, fits);
    if (!in)
        return;
    out->name = name;
    out->life = world.adapts[name] ? world.life[name] : 0;
    world.outs++;
}

static void leave_something(struct weir_rng *rng)
{
    if (world.outs == 0)
        return;
    unsigned i = (unsigned)weir_rng_below(rng, world.outs);
    weir_table_leave_as(t, &world.out[i].record,
                        (enum weir_permit_outcome)weir_rng_below(rng, 3),
                        LATER);
    world.out[i] = world.out[--world.outs];
}

static void check_world(void)
{
    for (unsigned name = 0; name < NAMES; name++) {
        struct weir_ref ref;
        if (!weir_table_find(t, weir_text_of(world.name[name]), &ref)) {
            assert_int_equal(flying(name, true), 0);
            continue;
        }
        assert_int_equal(weir_table_in_flight(t, ref.slot), flying(name, true));
        if (world.adapts[name])
            assert_int_equal(in_flight(ref), flying(name, false));
    }
}

static void test_any_history(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("any history");
    world = (struct world){ .name = { "a", "b", "c", "d" } };
    for (unsigned i = 0; i < 30000; i++) {
        uint64_t what = weir_rng_below(&rng, 16);
        unsigned name = (unsigned)weir_rng_below(&rng, NAMES);
        if (what == 0)
            edit_something(&rng, name);
        else if (what < 9)
            enter_something(&rng, name);
        else
            leave_something(&rng);
        check_world();
    }
    while (world.outs > 0)
        leave_something(&rng);
    check_world();
}

/* ---- Threads ---- */

#define THREADS 3
#define ROUNDS 20000

static void *come_and_go(void *context)
{
    unsigned number = (unsigned)(uintptr_t)context;
    struct weir_rng rng = { number * 977 + 1 };
    uint32_t stripe = weir_table_claim_stripe(t);
    static const char *const klass[] = { "sync", "bulk", "none", "rest" };
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct weir_ref ref;
        struct weir_permit_record record = { .klass = weir_class_number(
                                                 weir_text_of(klass[i % 4])) };
        if (!weir_table_find(t, WEIR_TEXT("db"), &ref))
            continue;
        weir_instant now = LATER + i * MS;
        if (weir_table_enter(t, stripe, ref, 1 + i % 3, &record, NULL, now) &
            (WEIR_OUTCOME_LIMITED | WEIR_OUTCOME_STALE_REF))
            continue;
        weir_table_leave_as(t, &record,
                            (enum weir_permit_outcome)weir_rng_below(&rng, 3),
                            now + weir_rng_below(&rng, 300) * MS);
    }
    weir_table_release_stripe(t, stripe);
    return NULL;
}

static void test_threads_beside_edits(void **state)
{
    (void)state;
    static const char *const edits[] = {
        "target=100ms;max=40;classes=sync:observed,bulk:50%,rest",
        "target=50ms;fleet_max=4;classes=sync:observed,bulk:50%,rest",
        "controller=vegas;classes=bulk:10%,sync:unheard",
        "sharing=local;limit=2",
        "controller=percentile;max=2",
        "controller=envoy;mode=shadow",
    };
    struct weir_ref db = put("db", edits[0]);
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(
            pthread_create(&thread[i], NULL, come_and_go, (void *)i), 0);
    for (unsigned i = 0; i < 600; i++) {
        struct weir_concurrency_gate_view view;
        if (i % 13 == 12)
            weir_table_drop(t, WEIR_TEXT("db"), LATER);
        const char *edit = edits[i % WEIR_COUNT_OF(edits)];
        struct weir_quota quota = quota_of("db", edit);
        quota.created += i / 4; /* another quota of the same name */
        made_put(t, &quota, LATER);
        put("other", edits[(i + 1) % WEIR_COUNT_OF(edits)]);
        weir_table_set_fleet(t, 1 + i % 5, LATER);
        weir_table_tick(t, LATER + i * MS);
        if (weir_table_find(t, WEIR_TEXT("db"), &db))
            weir_table_adaptive(t, db.slot, &view, LATER + i * MS);
    }
    for (unsigned i = 0; i < THREADS; i++)
        PATIENTLY(pthread_join(thread[i], NULL));
    assert_true(weir_table_find(t, WEIR_TEXT("db"), &db));
    assert_int_equal(weir_table_in_flight(t, db.slot), 0);
}

/* ---- Threads, stopped and checked ---- */

static uint32_t halted, resting; /* atomic */

static void *come_and_go_till_halted(void *context)
{
    struct weir_ref ref = *(struct weir_ref *)context;
    uint32_t stripe = weir_table_claim_stripe(t);
    while (weir_load(&halted) != 2) {
        struct weir_permit_record record = { .klass = 0 };
        weir_table_enter(t, stripe, ref, 1, &record, NULL, LATER);
        weir_table_leave(t, &record);
        if (weir_load(&halted) != 1)
            continue;
        weir_fetch_add(&resting, 1);
        while (weir_load(&halted) == 1)
            sched_yield();
        weir_fetch_sub(&resting, 1);
    }
    weir_table_release_stripe(t, stripe);
    return NULL;
}

static void await_resting(uint32_t count)
{
    while (STILL(weir_load(&resting) != count))
        sched_yield();
}

/* A permit that enters while the quota is replaced leaves in the counters that
 * it entered: nothing stays in flight. */
static void test_threads_beside_another_life(void **state)
{
    (void)state;
    struct weir_quota quota = quota_of("db", "target=100ms;min=100;max=100");
    struct weir_ref db = made_put(t, &quota, LATER);
    struct weir_concurrency_gate_view view;
    pthread_t thread[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, come_and_go_till_halted, &db);
    for (quota.created = 2; quota.created < 300; quota.created++) {
        made_put(t, &quota, LATER);
        weir_store(&halted, 1u);
        await_resting(THREADS);
        assert_int_equal(weir_table_in_flight(t, db.slot), 0);
        assert_true(weir_table_adaptive(t, db.slot, &view, LATER));
        assert_int_equal(view.in_flight, 0);
        weir_store(&halted, 0u);
        await_resting(0);
    }
    weir_store(&halted, 2u);
    for (unsigned i = 0; i < THREADS; i++)
        PATIENTLY(pthread_join(thread[i], NULL));
}

#define STORY(NAME) cmocka_unit_test_setup_teardown(NAME, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(test_the_limit_is_found),
        STORY(test_the_limit_is_a_cap),
        STORY(test_classes_have_shares),
        STORY(test_groups_get_all_or_none),
        STORY(test_a_chain_is_undone),
        STORY(test_who_holds_nothing_is_judged),
        STORY(test_shadow_measures_and_never_refuses),
        STORY(test_an_edit_keeps_what_was_learned),
        STORY(test_who_was_there_before_counts),
        STORY(test_gate_slots_are_few),
        STORY(test_one_of_a_chain_adapts),
        STORY(test_the_fleet_shares_its_bounds),
        STORY(test_scopes_are_switched_under_load),
        STORY(test_alone_and_back),
        STORY(test_a_fork_has_nothing_in_flight),
        STORY(test_any_history),
        STORY(test_threads_beside_edits),
        STORY(test_threads_beside_another_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
