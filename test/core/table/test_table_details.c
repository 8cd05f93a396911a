/* SPDX-License-Identifier: MIT
 * test_table_details.c - the view of slots: the limits in force, with the
 * names of their parents, and none of the shadow set. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "table_maker.h"

static struct weir_slot_details seen(struct weir_table *t, struct weir_ref ref,
                                     weir_instant now)
{
    struct weir_slot_details show;
    assert_true(weir_table_details(t, 0, ref.slot, &show, now));
    assert_int_equal(show.generation, ref.generation);
    return show;
}

static void test_a_quota_and_its_parent(void **state)
{
    struct weir_table *t = made_table(64, 2, 7);
    struct weir_quota top = made_quota_of("site", NULL, 900, 900);
    struct weir_quota quota = made_quota_of("site/write", "site", 100, 150);
    (void)state;
    made_put(t, &top, MADE_AT);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    weir_instant now = MADE_AT + 1;
    for (int i = 0; i < 200; i++)
        (void)weir_table_take(t, 1, ref, 1, NULL, now);
    struct weir_slot_details show = seen(t, ref, now);
    assert_int_equal(show.state, WEIR_SLOT_QUOTA);
    assert_int_equal(show.mode, WEIR_ENFORCE);
    assert_string_equal(show.name, "site/write");
    assert_string_equal(show.parent, "site");
    assert_int_equal(show.ruler_len, 0);
    assert_false(show.elsewhere || show.inflight);
    assert_float_equal(show.limit, 100, 1e-6);
    assert_float_equal(show.granted, show.limit, 0);
    assert_float_equal(show.high, 150, 1e-6);
    assert_float_equal(show.fill, 150, 1);
    assert_int_equal(show.count + show.refused, 200);
    assert_int_equal(show.count, 150);
    /* A second later the limit's units have leaked. */
    show = seen(t, ref, now + WEIR_SECOND);
    assert_float_equal(show.fill, 50, 1);
    made_audit(t);
    free(t);
}

static void test_a_template_and_its_instance(void **state)
{
    struct weir_table *t = made_table(64, 2, 7);
    struct weir_quota top = made_quota_of("team/a", NULL, 7, 7);
    struct weir_quota template = made_quota_of("user/*/*", "team/{1}", 3, 3);
    struct weir_ref instance;
    (void)state;
    made_put(t, &top, MADE_AT);
    struct weir_ref ref = made_put(t, &template, MADE_AT);
    assert_int_equal(
        weir_table_resolve(t, WEIR_TEXT("user/a/x"), false, &instance, MADE_AT),
        WEIR_RESOLVED);
    struct weir_slot_details show = seen(t, ref, MADE_AT);
    assert_int_equal(show.state, WEIR_SLOT_TEMPLATE);
    assert_string_equal(show.parent, "team/{1}");
    show = seen(t, instance, MADE_AT);
    assert_int_equal(show.state, WEIR_SLOT_INSTANCE);
    assert_string_equal(show.parent, "team/a");
    assert_string_equal(show.ruler, "user/*/*");
    assert_int_equal(show.ruler_slot, ref.slot);
    assert_float_equal(show.limit, 3, 1e-6);
    free(t);
}

static void test_a_name_that_brings_its_limit(void **state)
{
    struct weir_table *t = made_table(64, 2, 7);
    struct weir_ref ref;
    (void)state;
    assert_int_equal(weir_table_resolve(t, WEIR_TEXT("throttle:4:30/60s:ann"),
                                        false, &ref, MADE_AT),
                     WEIR_RESOLVED);
    struct weir_slot_details show = seen(t, ref, MADE_AT);
    assert_int_equal(show.state, WEIR_SLOT_INSTANCE);
    assert_int_equal(show.ruler_slot, WEIR_SLOT_NONE);
    assert_int_equal(show.ruler_len, 0);
    assert_true(show.limit == 0.5 && show.high == 4);
    free(t);
}

static void test_modes_and_no_limit(void **state)
{
    struct weir_table *t = made_table(64, 2, 7);
    struct weir_quota quota = made_quota_of("a", NULL, 10, 10);
    (void)state;
    quota.mode = WEIR_SHADOW;
    assert_int_equal(seen(t, made_put(t, &quota, MADE_AT), MADE_AT).mode,
                     WEIR_SHADOW);
    quota.mode = WEIR_OFF;
    quota.epoch++;
    assert_int_equal(seen(t, made_put(t, &quota, MADE_AT), MADE_AT).mode,
                     WEIR_OFF);
    quota = made_quota_of("b", NULL, 10, 10);
    quota.limit.unlimited = true;
    struct weir_slot_details show =
        seen(t, made_put(t, &quota, MADE_AT), MADE_AT);
    assert_true(isinf(show.limit) && isinf(show.high));
    quota = made_quota_of("c", NULL, 0, 10);
    show = seen(t, made_put(t, &quota, MADE_AT), MADE_AT);
    assert_float_equal(show.limit, 0, 0);
    free(t);
}

static void test_what_was_granted(void **state)
{
    struct weir_table *t = made_table(64, 2, 7);
    struct weir_quota quota = made_quota_of("part", NULL, 100, 150);
    (void)state;
    quota.sharing = WEIR_LEASED;
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    struct weir_slot_details show = seen(t, ref, MADE_AT);
    assert_float_equal(show.limit, 100, 1e-6);
    assert_float_equal(show.granted, 0, 0); /* nothing yet */
    weir_table_set_lease(t, ref.slot, 12.5, 0, MADE_AT);
    show = seen(t, ref, MADE_AT);
    assert_float_equal(show.limit, 100, 1e-6);
    assert_float_equal(show.granted, 12.5, 1e-6);
    free(t);
}

static void test_what_a_window_decides(void **state)
{
    struct weir_table *t = made_table(64, 2, 7);
    struct weir_quota quota = made_quota_of("calls", NULL, 30, 30);
    (void)state;
    quota.sharing = WEIR_LOCAL;
    quota.algorithm = WEIR_FIXED_WINDOW;
    quota.low_burst.unset = quota.high_burst.unset = true;
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    (void)weir_table_take(t, 1, ref, 4, NULL, MADE_AT);
    struct weir_slot_details show = seen(t, ref, MADE_AT);
    assert_true(show.elsewhere);
    assert_int_equal(show.count, 4);
    free(t);
}

static void test_nobody_lives_there(void **state)
{
    struct weir_table *t = made_table(64, 2, 7);
    struct weir_quota quota = made_quota_of("shadow:a", NULL, 10, 10);
    struct weir_slot_details show;
    (void)state;
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    assert_false(weir_table_details(t, 0, ref.slot, &show, MADE_AT));
    quota = made_quota_of("b", NULL, 10, 10);
    ref = made_put(t, &quota, MADE_AT);
    assert_true(weir_table_details(t, 0, ref.slot, &show, MADE_AT));
    weir_table_drop(t, WEIR_TEXT("b"), MADE_AT);
    assert_false(weir_table_details(t, 0, ref.slot, &show, MADE_AT));
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_quota_and_its_parent),
        cmocka_unit_test(test_a_template_and_its_instance),
        cmocka_unit_test(test_a_name_that_brings_its_limit),
        cmocka_unit_test(test_modes_and_no_limit),
        cmocka_unit_test(test_what_was_granted),
        cmocka_unit_test(test_what_a_window_decides),
        cmocka_unit_test(test_nobody_lives_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
