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
#include "core/concurrency/concurrency_gate.h"
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
    struct weir_want_window windows[WEIR_WINDOWS_MAX];
    struct weir_latency_count bins[WEIR_WINDOWS_MAX][WEIR_WINDOW_BINS];
    struct weir_band bands[ROWS][WEIR_LEASE_BANDS_MAX];
    struct weir_lease_grant grants[ROWS];
    struct weir_guarantee guarantees[ROWS][2];
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

/* Some of the bins, with counts of all magnitudes, at most
 * WEIR_WINDOW_SAMPLES_MAX together. Returns that sum. */
static uint64_t random_bins(struct weir_rng *rng,
                            struct weir_latency_count *bins,
                            struct weir_latency_batch *batch)
{
    uint64_t samples = 0, spread = 1 + weir_rng_below(rng, 200);
    uint64_t bin = weir_rng_below(rng, WEIR_WINDOW_BINS + 1);
    while (bin < WEIR_WINDOW_BINS && samples < WEIR_WINDOW_SAMPLES_MAX) {
        uint64_t count = 1 + some(rng) % (WEIR_WINDOW_SAMPLES_MAX - samples);
        samples += count;
        bins[batch->count++] =
            (struct weir_latency_count){ (uint32_t)bin, (uint32_t)count };
        bin += 1 + weir_rng_below(rng, spread);
    }
    batch->bins = bins;
    return samples;
}

static struct weir_latency_batch random_batch(struct weir_rng *rng,
                                              struct weir_latency_count *bins)
{
    struct weir_latency_batch batch = {
        .cut = some(rng),
        .peak = (uint32_t)(some(rng) % (WEIR_CONCURRENCY_GATE_UNITS_MAX + 1)),
        .overdue =
            (uint32_t)(some(rng) % (WEIR_CONCURRENCY_GATE_UNITS_MAX + 1)),
        .overdue_age = some(rng),
    };
    uint64_t samples = random_bins(rng, bins, &batch);
    batch.slow = (uint32_t)(some(rng) % (samples + 1));
    batch.dropped = (uint32_t)(some(rng) % (batch.slow + (uint64_t)1));
    return batch;
}

/* For some of the wants that aren't releases. */
static void random_windows(struct weir_rng *rng, struct lease_rows *rows,
                           struct weir_wants *wants)
{
    uint64_t rare = 1 + weir_rng_below(rng, 20);
    wants->windows = rows->windows;
    for (size_t i = 0;
         i < wants->count && wants->window_count < WEIR_WINDOWS_MAX; i++) {
        size_t at = wants->window_count;
        if (wants->wants[i].release || weir_rng_below(rng, rare) > 0)
            continue;
        rows->windows[at] = (struct weir_want_window){
            .want = (uint32_t)i, .batch = random_batch(rng, rows->bins[at])
        };
        wants->window_count++;
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
    if (weir_rng_below(rng, 2))
        random_windows(rng, rows, &out->wants);
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
        grant->cut = some(rng);
        row->guarantees = rows->guarantees[i];
        row->guarantee_count = weir_rng_below(rng, 3);
        for (size_t k = 0; k < row->guarantee_count; k++)
            rows->guarantees[i][k] =
                (struct weir_guarantee){ (int64_t)some(rng), some_units(rng) };
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

/* ---- What was measured ---- */

/* Two wants, the second a release, and windows: as the decoder reads them. */
static int decode_windows(struct bench *bench,
                          const struct weir_want_window *windows, size_t count)
{
    static const struct weir_band band = { .clients = 1, .wants = 1 };
    const struct weir_want wants[] = {
        { .name = WEIR_TEXT("a"), .band_count = 1, .bands = &band },
        { .name = WEIR_TEXT("b"), .release = true },
        { .name = WEIR_TEXT("c"), .band_count = 1, .bands = &band },
    };
    struct weir_message out = { .session = 42 };
    struct weir_message message = { .type = WEIR_MESSAGE_WANTS,
                                    .session = 5,
                                    .wants = { 9, 3, 3, wants, count,
                                               windows } };
    size_t size =
        weir_v1_encode(&message, bench->bytes, WEIR_MESSAGE_BYTES_MAX);
    assert_int_equal(size, weir_v1_size(&message));
    int error = weir_v1_decode(bench->bytes, size, true, &bench->arena, &out);
    if (error < 0)
        assert_int_equal(out.session, 42);
    return error;
}

static int decode_batch(struct bench *bench,
                        const struct weir_latency_batch *batch)
{
    struct weir_want_window window = { .batch = *batch };
    return decode_windows(bench, &window, 1);
}

/* A window belongs to a want that isn't a release, each to another one. */
static void test_places_of_windows(void **state)
{
    struct bench *bench = *state;
    struct weir_want_window rows[] = { { .want = 0 }, { .want = 2 } };
    assert_int_equal(decode_windows(bench, rows, 2), 0);
    assert_int_equal(decode_windows(bench, rows + 1, 1), 0);
    static const uint32_t wrong[][2] = { { 2, 0 },
                                         { 0, 0 },
                                         { 0, 1 },
                                         { 0, 3 },
                                         { 0, WEIR_LEASES_MAX - 1 },
                                         { 0, WEIR_LEASES_MAX },
                                         { 0, UINT32_MAX } };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        rows[0].want = wrong[i][0];
        rows[1].want = wrong[i][1];
        assert_int_equal(decode_windows(bench, rows, 2), WEIR_EPROTOCOL);
    }
}

static void test_broken_windows(void **state)
{
    struct bench *bench = *state;
    struct weir_latency_count bins[] = { { 7, 3 }, { 8, 2 } };
    const struct weir_latency_batch sound = {
        .cut = UINT64_MAX,
        .slow = 5,
        .dropped = 5,
        .peak = WEIR_CONCURRENCY_GATE_UNITS_MAX,
        .overdue = WEIR_CONCURRENCY_GATE_UNITS_MAX,
        .overdue_age = UINT64_MAX,
        .count = 2,
        .bins = bins
    };
    assert_int_equal(decode_batch(bench, &sound), 0);
    struct weir_latency_batch batch = sound;
    batch.slow = 6; /* of five requests */
    assert_int_equal(decode_batch(bench, &batch), WEIR_EPROTOCOL);
    batch = sound;
    batch.slow = 4; /* with five dropped ones */
    assert_int_equal(decode_batch(bench, &batch), WEIR_EPROTOCOL);
    batch = sound;
    batch.peak++;
    assert_int_equal(decode_batch(bench, &batch), WEIR_EPROTOCOL);
    batch = sound;
    batch.overdue = UINT32_MAX;
    assert_int_equal(decode_batch(bench, &batch), WEIR_EPROTOCOL);
    batch = (struct weir_latency_batch){ .slow = 1 }; /* of no request */
    assert_int_equal(decode_batch(bench, &batch), WEIR_EPROTOCOL);
}

static void test_broken_bins(void **state)
{
    struct bench *bench = *state;
    static const struct {
        struct weir_latency_count bins[2];
        int wanted;
    } cases[] = {
        { { { 0, 1 }, { WEIR_WINDOW_BINS - 1, 1 } }, 0 },
        { { { 0, 1 }, { 1, WEIR_WINDOW_SAMPLES_MAX - 1 } }, 0 },
        { { { 0, 2 }, { 1, WEIR_WINDOW_SAMPLES_MAX - 1 } }, WEIR_EPROTOCOL },
        { { { 0, 1 }, { 1, UINT32_MAX } }, WEIR_EPROTOCOL },
        { { { 0, 1 }, { 1, 0 } }, WEIR_EPROTOCOL },
        { { { 5, 1 }, { 5, 1 } }, WEIR_EPROTOCOL },
        { { { 5, 1 }, { 4, 1 } }, WEIR_EPROTOCOL },
        { { { 5, 1 }, { WEIR_WINDOW_BINS, 1 } }, WEIR_EPROTOCOL },
        { { { 5, 1 }, { UINT32_MAX, 1 } }, WEIR_EPROTOCOL },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(cases); i++) {
        const struct weir_latency_batch batch = { .count = 2,
                                                  .bins = cases[i].bins };
        assert_int_equal(decode_batch(bench, &batch), cases[i].wanted);
    }
    /* Sums that would be small again in 32 bits. */
    static struct weir_latency_count many[257];
    for (size_t i = 0; i < WEIR_COUNT_OF(many); i++)
        many[i] =
            (struct weir_latency_count){ (uint32_t)i, WEIR_WINDOW_SAMPLES_MAX };
    const struct weir_latency_batch batch = { .count = 257, .bins = many };
    assert_int_equal(decode_batch(bench, &batch), WEIR_EPROTOCOL);
}

/* Byte by byte: fields of a later version are skipped, in the window and in a
 * bin; a field that comes twice is refused. */
static void test_a_window_in_bytes(void **state)
{
    struct bench *bench = *state;
    struct weir_message out;
#define WINDOW(len, more)                 \
    "\x2a" len "\x08\x01\x12\x07\x0a\x01" \
    "a" BAND "\x22" more
    static const char plain[] =
        WINDOW("\x1b", "\x0e\x10\x09\x18\x01\x28\x04\x42\x04\x08\x07\x10"
                       "\x02\x20\x01");
    static const char newer[] =
        WINDOW("\x21", "\x14\x10\x09\x18\x01\x28\x04\x42\x07\x08\x07\x10"
                       "\x02\x48\x80\x01\x20\x01\x7a\x01\x05");
    const char *texts[] = { plain, newer };
    const size_t sizes[] = { sizeof(plain) - 1, sizeof(newer) - 1 };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            weir_v1_decode(texts[i], sizes[i], true, &bench->arena, &out), 0);
        assert_int_equal(out.wants.window_count, 1);
        const struct weir_want_window *window = &out.wants.windows[0];
        assert_int_equal(window->want, 0);
        assert_int_equal(window->batch.cut, 9);
        assert_int_equal(window->batch.slow, 1);
        assert_int_equal(window->batch.dropped, 1);
        assert_int_equal(window->batch.peak, 4);
        assert_int_equal(window->batch.count, 1);
        assert_int_equal(window->batch.bins[0].bin, 7);
        assert_int_equal(window->batch.bins[0].count, 2);
    }
    REFUSE(true, WEIR_EPROTOCOL, /* a bin of no request */
           WINDOW("\x11", "\x04\x42\x02\x08\x07"));
    REFUSE(true, WEIR_EPROTOCOL, /* the cut twice */
           WINDOW("\x11", "\x04\x10\x01\x10\x01"));
    REFUSE(true, WEIR_EPROTOCOL, /* the cut as a fixed64 */
           WINDOW("\x16", "\x09\x11" ONE_BITS));
    REFUSE(true, WEIR_ESYNTAX, /* a bin that is longer than its window */
           WINDOW("\x11", "\x04\x42\x09\x08\x07"));
}

/* ---- Grants ---- */

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
    assert_int_equal(WEIR_WINDOWS_MAX, 16);
    assert_int_equal(WEIR_WINDOW_BINS, 930);
    assert_int_equal(WEIR_LEASE_GUARANTEES_MAX, 8);
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
    memcpy(p, "\x2a\x22", 2); /* 17 empty windows */
    for (int i = 0; i < WEIR_WINDOWS_MAX + 1; i++)
        memcpy(p + 2 + 2 * i, "\x22\x00", 2);
    refuse(bench, true, WEIR_ETOOBIG, p, 2 + 34);
    memcpy(p, "\x2a\xc9\x0e\x22\xc6\x0e", 6); /* one of 931 empty bins */
    for (int i = 0; i < WEIR_WINDOW_BINS + 1; i++)
        memcpy(p + 6 + 2 * i, "\x42\x00", 2);
    refuse(bench, true, WEIR_ETOOBIG, p, 6 + 1862);
    memcpy(p, "\x32\x14\x2a\x12", 4); /* a grant with nine guarantees */
    for (int i = 0; i < WEIR_LEASE_GUARANTEES_MAX + 1; i++)
        memcpy(p + 4 + 2 * i, "\x5a\x00", 2);
    refuse(bench, false, WEIR_ETOOBIG, p, 4 + 18);
}

/* The largest messages fit into the bound of a message, and into the arena. */
static void test_the_largest(void **state)
{
    struct bench *bench = *state;
    static struct weir_want wants[WEIR_LEASES_MAX];
    static struct weir_band bands[WEIR_LEASE_BANDS_MAX];
    static struct weir_want_window windows[WEIR_WINDOWS_MAX];
    static struct weir_latency_count bins[WEIR_WINDOW_BINS];
    static char name[WEIR_NAME_MAX];
    memset(name, 'n', sizeof(name));
    for (uint32_t i = 0; i < WEIR_WINDOW_BINS; i++)
        bins[i] = (struct weir_latency_count){ i, WEIR_WINDOW_SAMPLES_MAX /
                                                      WEIR_WINDOW_BINS };
    for (uint32_t i = 0; i < WEIR_WINDOWS_MAX; i++)
        windows[i] = (struct weir_want_window){
            .want = WEIR_LEASES_MAX - WEIR_WINDOWS_MAX + i,
            .batch = { .cut = UINT64_MAX,
                       .overdue_age = UINT64_MAX,
                       .peak = WEIR_CONCURRENCY_GATE_UNITS_MAX,
                       .overdue = WEIR_CONCURRENCY_GATE_UNITS_MAX,
                       .count = WEIR_WINDOW_BINS,
                       .bins = bins },
        };
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
        .wants = { UINT64_MAX, UINT64_MAX, WEIR_LEASES_MAX, wants,
                   WEIR_WINDOWS_MAX, windows },
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
        cmocka_unit_test(test_places_of_windows),
        cmocka_unit_test(test_broken_windows),
        cmocka_unit_test(test_broken_bins),
        cmocka_unit_test(test_a_window_in_bytes),
        cmocka_unit_test(test_broken_grants),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_the_largest),
    };
    return cmocka_run_group_tests(tests, bench_set_up, bench_tear_down);
}
