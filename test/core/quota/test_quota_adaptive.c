/* SPDX-License-Identifier: MIT
 * test_quota_adaptive.c - the fields of adaptive quotas: which go together, and
 * the options of a gate that they make. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/quota/quota_adaptive.h"
#include "quota_by_text.h"

#define ADAPTIVE "name=a;kind=concurrency;sharing=adaptive;"

static void what_is_adaptive(void **state)
{
    (void)state;
    accept(ADAPTIVE "target=150ms;percentile=99.9;min=0.25;max=40");
    accept(ADAPTIVE "limit=50;fleet_min=0.5;fleet_max=200;permit_timeout=5s");
    accept(ADAPTIVE "controller=none;max=40;classes=sync:observed,bulk:50%");
    accept(ADAPTIVE "controller=none;fleet_max=40");
    accept(ADAPTIVE "controller=envoy;percentile=50;max=2");
    accept(ADAPTIVE "controller=gradient2;min=300;mode=shadow");
    static const struct {
        const char *quota, *sentence;
    } wrong[] = {
        { "min=40;max=10", "min 40 is above max 10; raise max or lower min" },
        { "min=2;fleet_max=1.5", "min 2 is above fleet_max 1.5" },
        { "fleet_min=9;fleet_max=8", "fleet_min 9 is above fleet_max 8" },
        { "target=0s", "target may be above 0 and up to 9min" },
        { "target=10min", "target may be above 0" },
        { "percentile=100.0001", "percentile may be above 0 and up to 100" },
        { "max=0", "'0' is no max above 0" },
        { "max=-1", "'-1' is negative" },
        { "max=4x", "'4x' is no max above 0" },
        { "percentile=99.99999", "more than 4 decimals" },
        { "max=1048577", "max may be 0.001 to 1048576" },
        { "min=0.0009", "min may be 0.001 to 1048576" },
        { "controller=vegas;min=0.5", "only controller=target finds limits "
                                      "below one" },
        { "controller=none", "write it as max=40" },
        { "controller=aimd",
          "controller can't be 'aimd'; it is one of "
          "target, percentile, request, vegas, gradient2, envoy, none" },
        { "controller=vegas;target=1s",
          "target goes with sharing=adaptive "
          "and controller=target, percentile or request only; leave it out, "
          "as by controller=vegas target=" },
        { "controller=request;percentile=9", "percentile goes with" },
        { "classes=a:1%,a:2%", "two classes are called 'a:2%'" },
        { "classes=a:60%,b:41%", "shares are more than 100 percent" },
        { "classes=a:101%", "from 0 to 100 percent" },
        { "classes=a:0%", "is no percentage above 0" },
        { "classes=a:observed:5%", "an observed class is never refused" },
        { "classes=a:seen", "'seen' is no class; write NAME:observed" },
        { "classes=a,", "'' is no class" },
        { "classes=a:", "'' is no class" },
        { "classes=sync queue", "'sync queue' is no class" },
        { "classes=a,b,c,d,e,f,g,h,i", "8 classes at most" },
        { "classes=abcdefghijklmnopqrstuvwxyz012345", "31 at most" },
        { "limit=5/s", "has no period; write limit=5" },
        { "on_stale=hold", "units in flight have none" },
        { "algorithm=token_bucket", "kind=concurrency has no algorithm" },
        { "kind=rate;limit=5/s", "goes with kind=concurrency only" },
        { "sharing=local;max=4", "max goes with sharing=adaptive only; leave "
                                 "it out, as by sharing=local max=" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        char text[300];
        snprintf(text, sizeof(text), ADAPTIVE "%s", wrong[i].quota);
        refuse(text, WEIR_EQUOTA, wrong[i].sentence);
    }
    char huge[700];
    snprintf(huge, sizeof(huge), ADAPTIVE "classes=%0520d", 1);
    refuse(huge, WEIR_EQUOTA, "classes is too long");
    struct weir_quota quota;
    build(ADAPTIVE "max=4", &quota, NULL);
    quota.controller = (enum weir_controller_kind)WEIR_CONTROLLER_KINDS;
    struct weir_diag diag;
    assert_int_equal(weir_quota_check(&quota, &diag), WEIR_EQUOTA);
    assert_non_null(strstr(diag.text, "controller holds a value"));
}

static void scopes(void **state)
{
    (void)state;
    accept(ADAPTIVE "scope=fleet;min=0.25;max=40;fleet_max=30;on_stale=limit");
    accept(ADAPTIVE "scope=process;controller=vegas");
    accept(ADAPTIVE "fleet_min=9;max=8");
    static const struct {
        const char *quota, *sentence;
    } wrong[] = {
        { "scope=region",
          "scope can't be 'region'; it is one of process, fleet" },
        { "scope=fleet;controller=vegas",
          "scope goes with sharing=adaptive and controller=target only; leave "
          "it out, as by controller=vegas scope=" },
        { "scope=fleet;controller=none;max=4", "controller=target only" },
        { "scope=fleet;sharing=leased;limit=4", "scope goes with" },
        { "scope=fleet;kind=rate;limit=5/s",
          "goes with kind=concurrency only" },
        { "scope=fleet;fleet_min=9;max=8",
          "fleet_min 9 is above max 8; raise max or lower fleet_min" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        char text[300];
        snprintf(text, sizeof(text), ADAPTIVE "%s", wrong[i].quota);
        refuse(text, WEIR_EQUOTA, wrong[i].sentence);
    }
    struct weir_quota quota;
    struct weir_diag diag;
    build(ADAPTIVE "max=4", &quota, NULL);
    quota.scope = (enum weir_scope)3;
    assert_int_equal(weir_quota_check(&quota, &diag), WEIR_EQUOTA);
    assert_non_null(strstr(diag.text, "scope holds a value"));
}

static struct weir_concurrency_gate_options gate_of(const char *fields,
                                                    uint32_t processes)
{
    char text[200];
    struct weir_quota quota;
    struct weir_concurrency_gate_options options;
    snprintf(text, sizeof(text), ADAPTIVE "%s", fields);
    build(text, &quota, NULL);
    weir_quota_gate(&quota, processes, &options);
    assert_int_equal(weir_concurrency_gate_check(&options, NULL), 0);
    return options;
}

#define BOUNDS(OPTIONS, MIN, MAX)                             \
    do {                                                      \
        assert_float_equal((OPTIONS).controller.min, MIN, 0); \
        assert_float_equal((OPTIONS).controller.max, MAX, 0); \
    } while (0)

static void bounds_of_what_is_adaptive(void **state)
{
    (void)state;
    struct weir_concurrency_gate_options o =
        gate_of("target=7ms;percentile=99.5", 3);
    assert_int_equal(o.controller.target, 7 * WEIR_MILLISECOND);
    assert_float_equal(o.controller.percentile, 99.5, 0);
    assert_int_equal(o.lost_after, 60 * WEIR_SECOND);
    BOUNDS(o, 0.001, 10000);
    BOUNDS(gate_of("max=0.5", 1), 0.001, 0.5);
    BOUNDS(gate_of("controller=gradient2;max=12", 1), 12, 12);
    BOUNDS(gate_of("controller=gradient2;min=300", 1), 300, 300);
    /* Each limiter has a part of the fleet's bound; the tighter bound holds. */
    BOUNDS(gate_of("fleet_max=30;fleet_min=3", 4), 0.75, 7.5);
    BOUNDS(gate_of("fleet_max=30;max=5", 4), 0.001, 5);
    BOUNDS(gate_of("fleet_max=30;max=5", 60), 0.001, 0.5);
    BOUNDS(gate_of("fleet_max=30", 0), 0.001, 30);
    /* Max overrides min. */
    BOUNDS(gate_of("fleet_max=30;min=2", 60), 0.5, 0.5);
    /* Only the controller 'target' has limits below one. */
    BOUNDS(gate_of("fleet_max=30;controller=request", 60), 1, 1);
    /* With one limit for the fleet, min and max are of it, too: a process that
     * is alone has a part of them, and the root, as one, the whole. */
    BOUNDS(gate_of("scope=fleet;max=30;min=3", 4), 0.75, 7.5);
    BOUNDS(gate_of("scope=fleet;max=30;min=3", 1), 3, 30);
    BOUNDS(gate_of("scope=fleet;max=30;fleet_max=20", 4), WEIR_PERMITS_MIN, 5);
    BOUNDS(gate_of("scope=fleet", 1), 0.001, 10000);
    BOUNDS(gate_of("scope=fleet", 4), WEIR_PERMITS_MIN, 2500);
    BOUNDS(gate_of("scope=fleet;max=1", 10000), WEIR_PERMITS_MIN,
           WEIR_PERMITS_MIN);
    o = gate_of("controller=none;fleet_max=40", 2);
    assert_float_equal(o.controller.initial, 20, 0);

    o = gate_of("classes=sync:observed:unheard, bulk:12.5% ,c", 1);
    assert_int_equal(o.classes, 3);
    assert_true(o.class_of[0].observed && o.class_of[0].unheard);
    assert_string_equal(o.class_of[1].name, "bulk");
    assert_float_equal(o.class_of[1].share_percent, 12.5, 0);
    assert_false(o.class_of[2].observed || o.class_of[2].unheard);
    assert_int_equal(weir_class_number(WEIR_TEXT("foobar")), 0xbf9cf968);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_adaptive),
        cmocka_unit_test(scopes),
        cmocka_unit_test(bounds_of_what_is_adaptive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
