/* SPDX-License-Identifier: MIT
 * test_table_audit.c - the audits of a table find each planted violation. That
 * they find none where there is none is shown by all tests of tables, which
 * call them. */

#include "compare.h"
#include "planted.h"
#include "table_maker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void audit_all(void *context)
{
    made_audit(context);
}

/* A root with a child, a template with an instance, a quota with a bucket
 * state, and a slot that was freed. */
static struct weir_table *table_in_use(void)
{
    struct weir_table *t = made_table(16, 2, 1);
    struct weir_quota quota = made_quota_of("top", NULL, 100, 100);
    made_put(t, &quota, MADE_AT);
    quota = made_quota_of("top/low", "top", 10, 10);
    made_put(t, &quota, MADE_AT);
    quota = made_quota_of("user/*", "top", 10, 10);
    made_put(t, &quota, MADE_AT);
    quota = made_quota_of("window", NULL, 10, 10);
    quota.sharing = WEIR_LOCAL;
    quota.algorithm = WEIR_FIXED_WINDOW;
    quota.low_burst = quota.high_burst = (struct weir_burst){ .unset = true };
    made_put(t, &quota, MADE_AT);
    struct weir_ref ref;
    assert_int_equal(
        weir_table_resolve(t, WEIR_TEXT("user/7"), false, &ref, MADE_AT),
        WEIR_RESOLVED);
    quota = made_quota_of("gone", NULL, 1, 1);
    made_put(t, &quota, MADE_AT);
    weir_table_drop(t, WEIR_TEXT("gone"), MADE_AT);
    assert_compare(t->free_head, !=, WEIR_SLOT_NONE);
    assert_compare(t->rules_made, >, 0);
    return t;
}

static uint32_t slot_of(struct weir_table *t, const char *name)
{
    struct weir_ref ref;
    assert_true(weir_table_find(t, weir_text_of(name), &ref));
    return ref.slot;
}

static void test_planted_violations_are_found(void **state)
{
    (void)state;
    struct weir_table *t = table_in_use();
    uint32_t top = slot_of(t, "top");
    uint32_t low = slot_of(t, "top/low");
    uint32_t user = slot_of(t, "user/7");
    uint32_t window = slot_of(t, "window");
    struct bucket_rule *rule =
        weir_area(t, (uint32_t)weir_bucket_state(t, window)->where - 1);
    const struct planted planted[] = {
        PLANTED(t->live),
        PLANTED(t->template_count),
        PLANTED(t->chunk_used),
        PLANTED(t->free_head),
        PLANTED(t->area_used),
        PLANTED(weir_hot(t, top)->generation),
        PLANTED(weir_hot(t, t->free_head)->generation),
        PLANTED(weir_hot(t, low)->up),
        PLANTED(weir_hot(t, low)->base),
        PLANTED(weir_cold(t, weir_cold(t, user)->rule)->state),
        PLANTED(weir_cold(t, user)->rule),
        PLANTED(weir_name(t, top)->head[0]),
        PLANTED(rule->refs),
    };
    assert_audit_finds(audit_all, t, planted, WEIR_COUNT_OF(planted));
    free(t);
}

/* A tick audits a few slots and goes on at the next one. */
static void test_an_audit_comes_round(void **state)
{
    (void)state;
    struct weir_table *t = table_in_use();
    uint32_t hand = 0;
    for (uint32_t i = 1; i <= t->used; i++) {
        weir_table_audit(t, &hand, 1);
        assert_int_equal(hand, i);
    }
    weir_table_audit(t, &hand, 2);
    assert_int_equal(hand, 2);
    free(t);
}

/* Not by waiting for a lock that a stopped process has. */
static void test_a_taken_lock_is_left_alone(void **state)
{
    (void)state;
    struct weir_table *t = table_in_use();
    uint32_t hand = 0;
    uint32_t scratch[16];
    t->writer = 1;
    weir_table_audit(t, &hand, 1);
    weir_table_audit_whole(t, scratch, 16);
    assert_int_equal(hand, 0);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted_violations_are_found),
        cmocka_unit_test(test_an_audit_comes_round),
        cmocka_unit_test(test_a_taken_lock_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
