/* SPDX-License-Identifier: MIT
 * test_weir_v1_leases.c - wants and grants to bytes and back; compared with
 * protobuf-c; broken bytes and invalid amounts are refused. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "compare.h"
#include "weir_v1_bench.h"

#define ROUNDS 3000
#define ROWS 200

/* An amount of a lease, of all magnitudes. */
static double some_units(struct weir_rng *rng)
{
    uint64_t chance = weir_rng_below(rng, 8);
    if (chance < 2)
        return chance == 0 ? 0 : WEIR_LEASE_UNITS_MAX;
    return (double)some(rng) / 32 * weir_rng_unit(rng);
}

struct lease_rows {
    struct weir_want wants[ROWS];
    struct weir_band bands[ROWS][WEIR_LEASE_BANDS_MAX];
    struct weir_lease_grant grants[ROWS];
};

static void random_bands(struct weir_rng *rng, struct weir_band *bands,
                         struct weir_want *want)
{
    int64_t priority = (int64_t)(some(rng) >> 2) - INT64_MAX / 8;
    want->band_count = 1 + weir_rng_below(rng, WEIR_LEASE_BANDS_MAX);
    want->bands = bands;
    for (size_t i = 0; i < want->band_count; i++) {
        bands[i] = (struct weir_band){
            .priority = priority,
            .clients = 1 + (uint32_t)(some(rng) % WEIR_LEASE_CLIENTS_MAX),
            .wants = some_units(rng),
        };
        priority -= 1 + (int64_t)(some(rng) >> 8);
    }
}

static void random_wants(struct weir_rng *rng, struct lease_rows *rows,
                         struct weir_message *out)
{
    size_t count = 1 + weir_rng_below(rng, ROWS);
    for (size_t i = 0; i < count; i++) {
        struct weir_want *want = &rows->wants[i];
        *want = (struct weir_want){ .name = WEIR_TEXT("site/\xc3\xbc"),
                                    .release = weir_rng_below(rng, 8) == 0 };
        want->taken = some(rng);
        if (want->release)
            continue;
        want->learning = weir_rng_below(rng, 2);
        want->has = some_units(rng);
        want->safe = some_units(rng);
        want->roster_token = some(rng);
        random_bands(rng, rows->bands[i], want);
    }
    *out = (struct weir_message){ .type = WEIR_MESSAGE_WANTS,
                                  .session = some(rng),
                                  .wants = { 1 + (some(rng) >> 1), some(rng),
                                             count, rows->wants } };
}

static void random_grants(struct weir_rng *rng, struct lease_rows *rows,
                          struct weir_message *out)
{
    bool answer = weir_rng_below(rng, 2);
    bool elsewhere = weir_rng_below(rng, 8) == 0;
    size_t count = elsewhere ? 0 : weir_rng_below(rng, ROWS);
    for (size_t i = 0; i < count; i++) {
        struct weir_lease_grant *row = &rows->grants[i];
        struct weir_grant *grant = &row->grant;
        *row = (struct weir_lease_grant){
            .name = WEIR_TEXT("site/\xc3\xbc"),
            .error = (enum weir_lease_error)(weir_rng_below(rng, 16) % 5),
        };
        if (row->error != WEIR_LEASE_GRANTED)
            continue;
        grant->serial = 1 + (some(rng) >> 1);
        grant->capacity = some_units(rng);
        grant->safe = some_units(rng);
        grant->roster_token = some(rng);
        grant->safe_lease = answer ? some(rng) >> 1 : 0;
        if (answer && weir_rng_below(rng, 8) == 0)
            continue; /* a lease that is over already */
        grant->lease = answer ? weir_rng_below(rng, grant->safe_lease + 1) : 0;
        grant->refresh = 1 + (some(rng) >> 1);
    }
    *out = (struct weir_message){
        .type = WEIR_MESSAGE_GRANTS,
        .session = some(rng),
        .grants = { .answer = answer ? 1 + (some(rng) >> 1) : 0,
                    .term = some(rng),
                    .elsewhere = elsewhere,
                    .count = count,
                    .grants = rows->grants },
    };
    if (elsewhere && weir_rng_below(rng, 2))
        out->grants.master = WEIR_TEXT("b:7070");
}

static void test_leases_are_what_the_proto_says(void **state)
{
    struct bench *bench = *state;
    static struct lease_rows rows;
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_message message, out;
        if (i % 2)
            random_wants(&bench->rng, &rows, &message);
        else
            random_grants(&bench->rng, &rows, &message);
        round_trip(bench, &message, &out);
    }
}

/* Byte by byte: one want, one grant. */
static void test_a_lease_in_bytes(void **state)
{
    struct bench *bench = *state;
    const struct weir_band band = { .priority = -1, .clients = 1, .wants = 30 };
    const struct weir_want want = { .name = WEIR_TEXT("db"),
                                    .has = 20,
                                    .safe = 2,
                                    .taken = 7,
                                    .band_count = 1,
                                    .bands = &band };
    struct weir_message out, message = {
        .type = WEIR_MESSAGE_WANTS,
        .session = 5,
        .wants = { 9, 3, 1, &want },
    };
    static const char wants[] =
        "\x08\x05\x2a\x2d\x08\x09\x12\x27\x0a\x02"
        "db"
        "\x11\0\0\0\0\0\0\x34\x40\x18\x07"
        "\x32\x0d\x08\x01\x10\x01\x19\0\0\0\0\0\0\x3e\x40"
        "\x39\0\0\0\0\0\0\0\x40"
        "\x18\x03";
    assert_int_equal(round_trip(bench, &message, &out), sizeof(wants) - 1);
    assert_memory_equal(bench->bytes, wants, sizeof(wants) - 1);

    const struct weir_lease_grant grant = { .name = WEIR_TEXT("db"),
                                            .grant = { .serial = 8,
                                                       .capacity = 25,
                                                       .safe = 2,
                                                       .lease = 300,
                                                       .safe_lease = 600,
                                                       .refresh = 5 } };
    message = (struct weir_message){
        .type = WEIR_MESSAGE_GRANTS,
        .session = 5,
        .grants = { .answer = 9, .term = 3, .count = 1, .grants = &grant },
    };
    static const char grants[] =
        "\x08\x05\x32\x26\x08\x09\x10\x03\x2a\x20\x0a\x02"
        "db"
        "\x18\x08\x21\0\0\0\0\0\0\x39\x40\x29\0\0\0\0\0\0\0\x40"
        "\x30\xac\x02\x38\x05\x40\xd8\x04";
    assert_int_equal(round_trip(bench, &message, &out), sizeof(grants) - 1);
    assert_memory_equal(bench->bytes, grants, sizeof(grants) - 1);
    assert_true(out.grants.grants[0].grant.capacity == 25);
    assert_int_equal(out.grants.grants[0].grant.lease, 300);
    assert_int_equal(out.grants.grants[0].grant.safe_lease, 600);
}

static void test_damaged_leases(void **state)
{
    struct bench *bench = *state;
    static struct lease_rows rows;
    unsigned refused = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_message message;
        if (i % 2)
            random_wants(&bench->rng, &rows, &message);
        else
            random_grants(&bench->rng, &rows, &message);
        refused += !damaged_is_read_alike(bench, &message);
    }
    printf("refused: %u of %d\n", refused, ROUNDS);
    assert_compare(refused, >, 0);
    assert_compare(refused, <, ROUNDS);
}

/* A want of "a" with one band, followed by 'more'; its length is 'len'. */
#define WANT(len, more) "\x2a" len "\x08\x01\x12" more
#define BAND "\x32\x02\x10\x01"
#define NAN_BITS "\0\0\0\0\0\0\xf8\x7f"
#define INFINITE_BITS "\0\0\0\0\0\0\xf0\x7f"
#define MINUS_BITS "\0\0\0\0\0\0\xf0\xbf"
#define MINUS_0_BITS "\0\0\0\0\0\0\0\x80"
#define ONE_BITS "\0\0\0\0\0\0\xf0\x3f"
#define ABOVE_MAX_BITS "\0\0\0\x1f\xb2\xc9\xab\x43" /* 1e18 * 1.001 */

static void test_broken_wants(void **state)
{
    struct bench *bench = *state;
    struct weir_message out;
    static const char sound[] = WANT("\x14", "\x10\x0a\x01"
                                             "a"
                                             "\x11" ONE_BITS BAND);
    assert_int_equal(
        weir_v1_decode(sound, sizeof(sound) - 1, true, &bench->arena, &out), 0);
    assert_true(out.wants.wants[0].has == 1);
    REFUSE(true, WEIR_EPROTOCOL, "\x2a\x00");
    REFUSE(true, WEIR_EPROTOCOL, "\x2a\x02\x08\x01"); /* no want */
    /* no number; no name; no band; a band without clients; two of a priority */
    REFUSE(true, WEIR_EPROTOCOL,
           "\x2a\x09\x12\x07\x0a\x01"
           "a" BAND);
    REFUSE(true, WEIR_EPROTOCOL, WANT("\x08", "\x04" BAND));
    REFUSE(true, WEIR_EPROTOCOL,
           WANT("\x07", "\x03\x0a\x01"
                        "a"));
    REFUSE(true, WEIR_EPROTOCOL,
           WANT("\x09", "\x05\x0a\x01"
                        "a\x32\x00"));
    REFUSE(true, WEIR_EPROTOCOL,
           WANT("\x0f", "\x0b\x0a\x01"
                        "a" BAND BAND));
    /* a release that wants something; 'learning' of 2; 'has' as a varint */
    REFUSE(true, WEIR_EPROTOCOL,
           WANT("\x0d", "\x09\x0a\x01"
                        "a\x20\x01" BAND));
    REFUSE(true, WEIR_EPROTOCOL,
           WANT("\x0d", "\x09\x0a\x01"
                        "a\x28\x02" BAND));
    REFUSE(true, WEIR_EPROTOCOL,
           WANT("\x0d", "\x09\x0a\x01"
                        "a\x10\x01" BAND));
    /* 'has' twice */
    REFUSE(true, WEIR_EPROTOCOL,
           WANT("\x1d", "\x19\x0a\x01"
                        "a\x11" ONE_BITS "\x11" ONE_BITS BAND));
#define HAS(bits)                      \
    REFUSE(true, WEIR_EPROTOCOL,       \
           WANT("\x14", "\x10\x0a\x01" \
                        "a\x11" bits BAND))
    HAS(NAN_BITS);
    HAS(INFINITE_BITS);
    HAS(MINUS_BITS);
    HAS(MINUS_0_BITS);
    HAS(ABOVE_MAX_BITS);
    REFUSE(true, WEIR_EPROTOCOL,
           WANT("\x14", "\x10\x0a\x01"
                        "a" BAND "\x39" MINUS_BITS));
#define BAND_WANTS(bits)               \
    REFUSE(true, WEIR_EPROTOCOL,       \
           WANT("\x14", "\x10\x0a\x01" \
                        "a\x32\x0b\x10\x01\x19" bits))
    BAND_WANTS(NAN_BITS);
    BAND_WANTS(MINUS_BITS);
    /* 17 bands */
    REFUSE(true, WEIR_ETOOBIG,
           WANT("\x4b", "\x47\x0a\x01"
                        "a" BAND BAND BAND BAND BAND BAND BAND BAND BAND BAND
                            BAND BAND BAND BAND BAND BAND BAND));
}

static void test_broken_grants(void **state)
{
    /* of a push: without serial; without refresh; with a lease; error 5 */
    REFUSE(false, WEIR_EPROTOCOL,
           "\x32\x07\x2a\x05\x0a\x01"
           "a\x38\x01");
    REFUSE(false, WEIR_EPROTOCOL,
           "\x32\x07\x2a\x05\x0a\x01"
           "a\x18\x01");
    REFUSE(false, WEIR_EPROTOCOL,
           "\x32\x0b\x2a\x09\x0a\x01"
           "a\x18\x01\x30\x01\x38\x01");
    REFUSE(false, WEIR_EPROTOCOL,
           "\x32\x07\x2a\x05\x0a\x01"
           "a\x10\x05");
    /* … with a safe_lease */
    REFUSE(false, WEIR_EPROTOCOL,
           "\x32\x0b\x2a\x09\x0a\x01"
           "a\x18\x01\x38\x01\x40\x01");
    /* of an answer: a lease without refresh; one that outlasts safe_lease */
    REFUSE(false, WEIR_EPROTOCOL,
           "\x32\x0d\x08\x01\x2a\x09\x0a\x01"
           "a\x18\x01\x30\x01\x40\x01");
    REFUSE(false, WEIR_EPROTOCOL,
           "\x32\x0f\x08\x01\x2a\x0b\x0a\x01"
           "a\x18\x01\x30\x02\x38\x01\x40\x01");
    /* capacity or safe that is an invalid amount */
    REFUSE(false, WEIR_EPROTOCOL,
           "\x32\x12\x2a\x10\x0a\x01"
           "a\x18\x01\x21" NAN_BITS "\x38\x01");
    REFUSE(false, WEIR_EPROTOCOL,
           "\x32\x12\x2a\x10\x0a\x01"
           "a\x18\x01\x29" MINUS_BITS "\x38\x01");
    /* another master, and a grant; an address of this one; a NUL in it */
    REFUSE(false, WEIR_EPROTOCOL,
           "\x32\x0b\x18\x01\x2a\x07\x0a\x01"
           "a\x18\x01\x38\x01");
    REFUSE(false, WEIR_EPROTOCOL,
           "\x32\x03\x22\x01"
           "b");
    REFUSE(false, WEIR_EPROTOCOL, "\x32\x05\x18\x01\x22\x01\0");
}

static void test_too_many(void **state)
{
    struct bench *bench = *state;
    unsigned char *p = bench->bytes;
    memcpy(p, "\x2a\x8c\x10", 3); /* 1,030 empty wants */
    for (int i = 0; i < 1030; i++)
        memcpy(p + 3 + 2 * i, "\x12\x00", 2);
    refuse(bench, true, WEIR_ETOOBIG, p, 3 + 2060);
    memcpy(p, "\x32\x8c\x10", 3); /* and grants */
    for (int i = 0; i < 1030; i++)
        memcpy(p + 3 + 2 * i, "\x2a\x00", 2);
    refuse(bench, false, WEIR_ETOOBIG, p, 3 + 2060);
}

/* The largest messages fit into the bound of a message, and into the arena. */
static void test_the_largest(void **state)
{
    struct bench *bench = *state;
    static struct weir_want wants[WEIR_LEASES_MAX];
    static struct weir_band bands[WEIR_LEASE_BANDS_MAX];
    static char name[WEIR_NAME_MAX];
    memset(name, 'n', sizeof(name));
    for (size_t i = 0; i < WEIR_LEASE_BANDS_MAX; i++)
        bands[i] = (struct weir_band){
            .priority = INT64_MIN + WEIR_LEASE_BANDS_MAX - (int64_t)i,
            .clients = WEIR_LEASE_CLIENTS_MAX,
            .wants = WEIR_LEASE_UNITS_MAX,
        };
    for (size_t i = 0; i < WEIR_LEASES_MAX; i++)
        wants[i] = (struct weir_want){
            .name = { name, sizeof(name) },
            .learning = true,
            .has = WEIR_LEASE_UNITS_MAX,
            .safe = WEIR_LEASE_UNITS_MAX,
            .taken = UINT64_MAX,
            .band_count = WEIR_LEASE_BANDS_MAX,
            .bands = bands,
        };
    struct weir_message out, message = {
        .type = WEIR_MESSAGE_WANTS,
        .session = UINT64_MAX,
        .wants = { UINT64_MAX, UINT64_MAX, WEIR_LEASES_MAX, wants },
    };
    size_t size = round_trip(bench, &message, &out);
    printf("the largest wants: %zu bytes\n", size);
}

/* ---- State of adaptive limits ---- */

static void check_limits(const struct weir_limits *a,
                         const struct weir_limits *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        const struct weir_adaptive_limit *x = &a->limits[i], *y = &b->limits[i];
        assert_true(weir_text_equal(x->name, y->name));
        assert_float_equal(x->limit, y->limit, 0);
        assert_int_equal(x->in_flight, y->in_flight);
        assert_int_equal(x->reason, y->reason);
        assert_int_equal(x->latency, y->latency);
        assert_int_equal(x->age, y->age);
    }
}

static void test_limits(void **state)
{
    struct bench *bench = *state;
    static struct weir_adaptive_limit rows[WEIR_LIMITS_MAX];
    struct weir_rng *rng = &bench->rng;
    for (int i = 0; i < ROUNDS; i++) {
        struct weir_message out,
            message = { .type = WEIR_MESSAGE_LIMITS, .session = some(rng) };
        size_t count =
            i == 0 ? WEIR_LIMITS_MAX : weir_rng_below(rng, WEIR_LIMITS_MAX + 1);
        for (size_t k = 0; k < count; k++)
            rows[k] = (struct weir_adaptive_limit){
                .name = WEIR_TEXT("site/\xc3\xbc"),
                .limit = weir_rng_below(rng, 9)
                             ? weir_rng_unit(rng) * WEIR_PERMITS_MAX
                             : WEIR_PERMITS_MAX,
                .in_flight = (uint32_t)some(rng),
                .reason = (uint32_t)weir_rng_below(rng, 9),
                .latency = some(rng),
                .age = some(rng),
            };
        message.limits = (struct weir_limits){ count, rows };
        round_trip(bench, &message, &out);
        check_limits(&message.limits, &out.limits);
        if (count > 0)
            damaged_is_read_alike(bench, &message);
    }
}

/* Limits with rows. */
static void test_broken_limits(void **state)
{
    struct bench *bench = *state;
    /* no name; a NUL in it; an invalid limit; one above the maximum */
    REFUSE(true, WEIR_EPROTOCOL, "\x32\x04\x0a\x02\x18\x01");
    REFUSE(true, WEIR_EPROTOCOL, "\x32\x05\x0a\x03\x0a\x01\0");
    REFUSE(true, WEIR_EPROTOCOL,
           "\x32\x0e\x0a\x0c\x0a\x01"
           "a\x11" NAN_BITS);
    REFUSE(true, WEIR_EPROTOCOL,
           "\x32\x0e\x0a\x0c\x0a\x01"
           "a\x11" ABOVE_MAX_BITS);
    REFUSE(true, WEIR_EPROTOCOL,
           "\x32\x0b\x0a\x09\x0a\x01"
           "a\x18\x80\x80\x80\x80\x10");
    unsigned char *p = bench->bytes;
    memcpy(p, "\x32\x82\x04", 3); /* 257 empty rows */
    for (int i = 0; i < 257; i++)
        memcpy(p + 3 + 2 * i, "\x0a\x00", 2);
    refuse(bench, true, WEIR_ETOOBIG, p, 3 + 514);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_broken_limits),
        cmocka_unit_test(test_leases_are_what_the_proto_says),
        cmocka_unit_test(test_damaged_leases),
        cmocka_unit_test(test_a_lease_in_bytes),
        cmocka_unit_test(test_broken_wants),
        cmocka_unit_test(test_broken_grants),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_the_largest),
    };
    return cmocka_run_group_tests(tests, bench_set_up, bench_tear_down);
}
