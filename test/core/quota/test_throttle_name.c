/* SPDX-License-Identifier: MIT
 * test_throttle_name.c - names that contain their limit: read, written, and
 * used alike for a slot of a table and a catalog of a root. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/quota/catalog.h"
#include "core/quota/throttle_name.h"
#include "mem_maker.h"
#include "table_maker.h"

#define NAME "throttle:16:30/60s:user123"

static struct weir_text written(uint64_t burst, uint64_t count, uint64_t period,
                                struct weir_text key)
{
    static char buf[WEIR_NAME_MAX];
    struct weir_throttle_rule rule = { burst, count, period };
    return (struct weir_text){ buf, weir_throttle_name_write(&rule, key, buf,
                                                             sizeof buf) };
}

static void test_read(void **state)
{
    (void)state;
    struct weir_quota quota;
    struct weir_diag diag;
    struct weir_text name = WEIR_TEXT(NAME);
    assert_true(weir_throttle_name_read(name, &quota));
    assert_int_equal(weir_quota_check(&quota, &diag), 0);
    assert_ptr_equal(quota.name.p, name.p);
    assert_int_equal(quota.limit.units, 30);
    assert_int_equal(quota.limit.per, 60 * WEIR_SECOND);
    uint64_t low, high;
    weir_quota_bursts(&quota, &low, &high);
    assert_int_equal(low, 16);
    assert_int_equal(high, 16);
    assert_int_equal(quota.sharing, WEIR_COUNTED);
    assert_int_equal(quota.created, 0);
}

static void test_one_rule_has_one_name(void **state)
{
    (void)state;
    static const char *const none[] = {
        "",
        "throttle:",
        "throttle:16",
        "throttle:16:30/60:k",
        "throttle:16:30/60s",
        "throttle:016:30/60s:k",
        "throttle:+16:30/60s:k",
        "throttle:16:-3/60s:k",
        "throttle:0:30/60s:k",
        "throttle:1:0/60s:k",
        "throttle:1:1/0s:k",
        "throttle:1:1/31622401s:k",
        "throttle:1:200000000000/1s:k",
        "throttle:1125899906842625:1/1s:k",
        "throttle:99999999999999999999:1/1s:k",
        "shadow:throttle:16:30/60s:k",
        "Throttle:16:30/60s:k",
    };
    struct weir_quota quota;
    for (size_t i = 0; i < WEIR_COUNT_OF(none); i++)
        assert_false(weir_throttle_name_read(weir_text_of(none[i]), &quota));
}

/* Every written name is read as it was written, and gives a sound quota. */
static void test_write(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("throttle_name");
    struct weir_text name = written(16, 30, 60, WEIR_TEXT("user123"));
    assert_true(weir_text_equal(name, WEIR_TEXT(NAME)));
    for (int i = 0; i < 100000; i++) {
        uint64_t burst = weir_rng_next(&rng) >> weir_rng_below(&rng, 64);
        uint64_t count = weir_rng_next(&rng) >> weir_rng_below(&rng, 64);
        uint64_t period =
            weir_rng_next(&rng) >> (39 + weir_rng_below(&rng, 25));
        struct weir_quota quota;
        struct weir_diag diag;
        name = written(burst, count, period, WEIR_TEXT(":k/1s:*"));
        if (name.len == 0)
            continue;
        assert_true(weir_throttle_name_read(name, &quota));
        assert_int_equal(weir_quota_check(&quota, &diag), 0);
        assert_int_equal(quota.limit.units, count);
        assert_int_equal(quota.limit.per, period * WEIR_SECOND);
        assert_int_equal(quota.high_burst.amount, burst);
    }
}

static void test_what_no_name_can_hold(void **state)
{
    (void)state;
    char key[WEIR_NAME_MAX];
    memset(key, 'k', sizeof key);
    size_t room = WEIR_NAME_MAX - strlen("throttle:16:30/60s:");
    struct weir_text most = { key, room };
    struct weir_text more = { key, room + 1 };
    assert_int_equal(written(16, 30, 60, most).len, WEIR_NAME_MAX);
    assert_int_equal(written(16, 30, 60, more).len, 0);
    assert_int_equal(written(16, 30, 60, WEIR_TEXT("a\nb")).len, 0);
    assert_int_equal(written(16, 30, 60, WEIR_TEXT("\xff")).len, 0);
    assert_int_equal(written(0, 30, 60, WEIR_TEXT("k")).len, 0);
    assert_int_equal(written(WEIR_BURST_MAX + 1, 30, 60, WEIR_TEXT("k")).len,
                     0);
    assert_int_equal(written(1, 1, UINT64_MAX, WEIR_TEXT("k")).len, 0);
    assert_compare(written(1, 1, 1, WEIR_TEXT("")).len, >, 0);
}

/* ---- In a limiter's table ---- */

static struct weir_ref resolve(struct weir_table *t, const char *name,
                               weir_instant now)
{
    struct weir_ref ref = { 0 };
    assert_int_equal(
        weir_table_resolve(t, weir_text_of(name), false, &ref, now),
        WEIR_RESOLVED);
    return ref;
}

static unsigned passing(struct weir_table *t, struct weir_ref ref,
                        unsigned tries, weir_instant now)
{
    unsigned passed = 0;
    for (unsigned i = 0; i < tries; i++)
        passed +=
            !(weir_table_take(t, 0, ref, 1, NULL, now) & WEIR_OUTCOME_LIMITED);
    return passed;
}

static void test_limits(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 1, 1);
    struct weir_ref ref = resolve(t, NAME, MADE_AT);
    assert_int_equal(passing(t, ref, 40, MADE_AT), 16);
    assert_int_equal(passing(t, ref, 40, MADE_AT + 4 * WEIR_SECOND), 2);
    /* Another rate or key makes another name. */
    ref = resolve(t, "throttle:17:30/60s:user123", MADE_AT);
    assert_int_equal(passing(t, ref, 40, MADE_AT), 17);
    ref = resolve(t, "throttle:16:30/60s:user124", MADE_AT);
    assert_int_equal(passing(t, ref, 40, MADE_AT), 16);
    made_audit(t);
    free(t);
}

/* Names come from clients: stored quotas have precedence. */
static void test_templates_rule_it(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 1, 1);
    struct weir_ref ref = resolve(t, NAME, MADE_AT);
    assert_int_equal(passing(t, ref, 10, MADE_AT), 10);
    struct weir_quota all = made_quota_of("*", "", 20, 20);
    made_put(t, &all, MADE_AT);
    assert_int_equal(resolve(t, NAME, MADE_AT).slot, ref.slot);
    assert_int_equal(passing(t, ref, 40, MADE_AT), 20);
    struct weir_ref other = resolve(t, "throttle:30:30/60s:other", MADE_AT);
    assert_int_equal(passing(t, other, 40, MADE_AT), 20);
    weir_table_drop(t, all.name, MADE_AT);
    assert_int_equal(passing(t, other, 40, MADE_AT), 30);
    made_audit(t);
    free(t);
}

/* A stored quota of exactly that name has precedence while it exists; a caller
 * with a handle sees both. */
static void test_a_quota_of_that_name_goes_first(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 1, 1);
    struct weir_ref ref;
    assert_int_equal(weir_table_pin(t, WEIR_TEXT(NAME), &ref, MADE_AT),
                     WEIR_RESOLVED);
    struct weir_quota stored = made_quota_of(NAME, "", 1, 3);
    made_put(t, &stored, MADE_AT);
    assert_int_equal(passing(t, ref, 40, MADE_AT), 3);
    weir_table_drop(t, stored.name, MADE_AT);
    assert_int_equal(passing(t, ref, 40, MADE_AT), 16);
    weir_table_unpin(t, ref);
    made_audit(t);
    free(t);
}

/* Settles all counts, as a root would: these tests have only the table. */
static void settle(struct weir_table *t)
{
    uint64_t bits[64] = { 0 };
    weir_table_collect(t, bits);
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++)
        weir_table_set_settled(t, slot, weir_table_count(t, slot));
}

static void test_idle_ones_go(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 1, 1);
    char name[WEIR_NAME_MAX];
    for (int i = 0; i < 1000; i++) {
        weir_instant now = MADE_AT + (weir_instant)i * WEIR_SECOND;
        struct weir_throttle_rule rule = { 1, 2, 1 };
        char key[16];
        int len = snprintf(key, sizeof key, "user%d", i);
        size_t size = weir_throttle_name_write(
            &rule, (struct weir_text){ key, (size_t)len }, name, sizeof name);
        name[size] = '\0';
        assert_int_equal(passing(t, resolve(t, name, now), 5, now), 1);
        settle(t);
    }
    /* Each slot is in use by its passed units: none is evicted for one more. */
    for (int i = 0; i < 64; i++) {
        int len = snprintf(name, sizeof name, "throttle:1:1/1000s:%d", i);
        struct weir_ref ref;
        weir_instant now = MADE_AT + (weir_instant)(2000 + i) * WEIR_SECOND;
        assert_int_equal(
            weir_table_resolve(t, (struct weir_text){ name, (size_t)len },
                               false, &ref, now),
            WEIR_RESOLVED);
        assert_int_equal(passing(t, ref, 5, now), 1);
    }
    struct weir_ref ref;
    assert_int_equal(weir_table_resolve(t, WEIR_TEXT(NAME), false, &ref,
                                        MADE_AT + 2100 * WEIR_SECOND),
                     WEIR_RESOLVED_LACKING);
    made_audit(t);
    free(t);
}

/* An instance of no stored template is shown as such. */
static void test_it_is_shown(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 1, 1);
    struct weir_slot_details show;
    struct weir_ref ref = resolve(t, NAME, MADE_AT);
    assert_int_equal(passing(t, ref, 20, MADE_AT), 16);
    assert_true(weir_table_details(t, 0, ref.slot, &show, MADE_AT));
    assert_int_equal(show.state, WEIR_SLOT_INSTANCE);
    assert_string_equal(show.name, NAME);
    assert_int_equal(show.ruler_slot, WEIR_SLOT_NONE);
    assert_int_equal(show.ruler_len, 0);
    assert_string_equal(show.ruler, "");
    assert_int_equal(show.count, 16);
    free(t);
}

/* ---- At a root ---- */

static void test_catalog(void **state)
{
    (void)state;
    struct weir_catalog *catalog = weir_catalog_new(&maker_mem, 1);
    struct weir_captures captures;
    struct weir_change all = { .quota = made_quota_of("*", "", 7, 7) };
    struct weir_change same = { .quota = made_quota_of(NAME, "", 8, 8) };
    all.quota.epoch = all.quota.created = 1;
    same.quota.epoch = same.quota.created = 2;
    const struct weir_quota *quota =
        weir_catalog_find(catalog, WEIR_TEXT(NAME), &captures);
    assert_int_equal(quota->limit.units, 30);
    assert_int_equal(captures.count, 0);
    assert_int_equal(quota->created, 0);
    assert_null(weir_catalog_find(catalog, WEIR_TEXT("throttle:x"), NULL));
    assert_int_equal(weir_catalog_apply(catalog, &all), 0);
    quota = weir_catalog_find(catalog, WEIR_TEXT(NAME), &captures);
    assert_int_equal(quota->limit.units, 7);
    assert_int_equal(weir_catalog_apply(catalog, &same), 0);
    quota = weir_catalog_find(catalog, WEIR_TEXT(NAME), &captures);
    assert_int_equal(quota->limit.units, 8);
    weir_catalog_free(catalog);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_one_rule_has_one_name),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_what_no_name_can_hold),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_templates_rule_it),
        cmocka_unit_test(test_a_quota_of_that_name_goes_first),
        cmocka_unit_test(test_idle_ones_go),
        cmocka_unit_test(test_it_is_shown),
        cmocka_unit_test(test_catalog),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
