/* SPDX-License-Identifier: MIT
 * test/protocol/test_rlqs_service.c - assignments of Envoy's buckets whose
 * sending fails. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "io/h2.h"
#include "protocol/rlqs/rlqs_service.h"

#define START (1000 * WEIR_SECOND)
#define BUCKET "\x0a\x06\x0a\x01k\x12\x01v"
/* Domain d, the bucket, one second. */
#define REPORT \
    "\x0a\x01" \
    "d\x12\x0e\x0a\x08" BUCKET "\x12\x02\x08\x01"

struct world {
    struct weir *weir;
    struct weir_protocol_host host;
    struct weir_rlqs_service *service;
    struct weir_rlqs_stream *stream;
};

static struct world world;

/* Without roots every name is unknown: all may pass. */
static int begin(void **state)
{
    (void)state;
    struct weir_options options = WEIR_OPTIONS_INIT;
    assert_int_equal(weir_open(&options, &world.weir), 0);
    world.host = (struct weir_protocol_host){ .weir = world.weir };
    world.service = weir_rlqs_service_new(&world.host);
    world.stream =
        weir_rlqs_stream_new(world.service, &weir_protocol_any_taker);
    assert_non_null(world.stream);
    return 0;
}

static int end(void **state)
{
    (void)state;
    weir_rlqs_stream_free(world.stream);
    weir_rlqs_service_free(world.service);
    weir_close(world.weir);
    return 0;
}

static void check_action(struct weir_text out, enum weir_rlqs_what what)
{
    unsigned char bytes[64];
    const struct weir_rlqs_action action = { .bucket = WEIR_TEXT(BUCKET),
                                             .what = what,
                                             .lives = WEIR_RLQS_LIVES_MIN };
    assert_int_equal(out.len, weir_rlqs_encode(&action, bytes));
    assert_memory_equal(out.p, bytes, out.len);
}

/* Reports the bucket; the answer is that all may pass. */
static void report(weir_instant now)
{
    struct weir_text out;
    assert_int_equal(weir_rlqs_stream_report(world.stream, REPORT,
                                             sizeof REPORT - 1, &out, now),
                     WEIR_GRPC_OK);
    check_action(out, WEIR_RLQS_ALLOW_ALL);
}

static struct weir_text look(weir_instant now)
{
    return weir_rlqs_stream_look(world.stream, now);
}

static void an_assignment_is_sent_once(void **state)
{
    (void)state;
    report(START);
    weir_rlqs_stream_sent(world.stream, true);
    assert_int_equal(look(START + WEIR_SECOND).len, 0);
}

static void an_unsent_assignment_is_repeated(void **state)
{
    (void)state;
    report(START);
    weir_rlqs_stream_sent(world.stream, false);
    check_action(look(START + WEIR_SECOND), WEIR_RLQS_ALLOW_ALL);
    weir_rlqs_stream_sent(world.stream, true);
    assert_int_equal(look(START + 2 * WEIR_SECOND).len, 0);
}

static void an_unsent_abandon_is_repeated(void **state)
{
    (void)state;
    weir_instant late = START + WEIR_RLQS_SILENCE_MAX + WEIR_SECOND;
    report(START);
    weir_rlqs_stream_sent(world.stream, true);
    check_action(look(late), WEIR_RLQS_ABANDON);
    weir_rlqs_stream_sent(world.stream, false);
    check_action(look(late + WEIR_SECOND), WEIR_RLQS_ABANDON);
    weir_rlqs_stream_sent(world.stream, true);
    assert_int_equal(look(late + 2 * WEIR_SECOND).len, 0);
}

static void a_report_revives_a_bucket_whose_abandon_is_unsent(void **state)
{
    (void)state;
    weir_instant late = START + WEIR_RLQS_SILENCE_MAX + WEIR_SECOND;
    report(START);
    weir_rlqs_stream_sent(world.stream, true);
    check_action(look(late), WEIR_RLQS_ABANDON);
    weir_rlqs_stream_sent(world.stream, false);
    report(late + WEIR_SECOND);
    weir_rlqs_stream_sent(world.stream, true);
    assert_int_equal(look(late + 2 * WEIR_SECOND).len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_assignment_is_sent_once, begin, end),
        cmocka_unit_test_setup_teardown(an_unsent_assignment_is_repeated, begin,
                                        end),
        cmocka_unit_test_setup_teardown(an_unsent_abandon_is_repeated, begin,
                                        end),
        cmocka_unit_test_setup_teardown(
            a_report_revives_a_bucket_whose_abandon_is_unsent, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
