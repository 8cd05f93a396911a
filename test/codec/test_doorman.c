/* SPDX-License-Identifier: MIT
 * test/codec/test_doorman.c - Doorman's messages: the bytes of the original's
 * encoder, random messages compared with protobuf-c, and refused ones. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "core/base/rng.h"
#include "doorman_oracle.h"
#include "seed.h"
#include "wire_variants.h"

#define ROUNDS 100000
#define BYTES_MAX 65536
#define ROWS 6 /* of a random list */

static struct weir_arena arena;

static int set_up(void **state)
{
    (void)state;
    arena.size = WEIR_DOORMAN_ARENA_SIZE;
    arena.base = malloc(arena.size);
    return arena.base ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(arena.base);
    return 0;
}

/* ---- The original's bytes ---- */

static size_t from_hex(const char *hex, uint8_t *out)
{
    size_t len = strlen(hex) / 2;
    for (size_t i = 0; i < len; i++) {
        char digits[3] = { hex[2 * i], hex[2 * i + 1], '\0' };
        out[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return len;
}

/* Reads the sample and writes it again: the bytes are the same. */
static void read_sample(enum weir_doorman_type type, const char *hex,
                        struct weir_doorman_message *out)
{
    static uint8_t bytes[256];
    uint8_t again[256];
    size_t len = from_hex(hex, bytes);
    struct weir_diag diag;
    if (weir_doorman_decode(bytes, len, type, &arena, out, &diag) < 0)
        fail_msg("%s: %s", hex, diag.text);
    assert_int_equal(out->type, type);
    assert_int_equal(weir_doorman_size(out), len);
    assert_int_equal(weir_doorman_encode(out, again, sizeof(again)), len);
    assert_memory_equal(bytes, again, len);
    int error = weir_doorman_check(out, &diag);
    bool has_rows = type == WEIR_DOORMAN_GET_REQUEST ||
                    type == WEIR_DOORMAN_SERVER_REQUEST ||
                    type == WEIR_DOORMAN_RELEASE_REQUEST;
    for (size_t i = 0; has_rows && i < out->count && error == 0; i++) {
        error = weir_doorman_check_row(out, i, &diag);
        if (error == 0 && type != WEIR_DOORMAN_RELEASE_REQUEST)
            error = weir_doorman_check_amounts(out, i, &diag);
    }
    if (error < 0)
        fail_msg("%s: %s", hex, diag.text);
}

static void assert_written(const struct weir_doorman_message *message,
                           const char *hex)
{
    uint8_t wanted[256];
    uint8_t bytes[256];
    size_t len = from_hex(hex, wanted);
    assert_int_equal(weir_doorman_encode(message, bytes, sizeof(bytes)), len);
    assert_memory_equal(bytes, wanted, len);
}

#define TEXT_IS(text, literal) \
    assert_true(weir_text_equal(text, WEIR_TEXT(literal)))

static void discovery_samples(void **state)
{
    (void)state;
    struct weir_doorman_message message;
    read_sample(WEIR_DOORMAN_DISCOVERY_REQUEST, "", &message);
    read_sample(WEIR_DOORMAN_DISCOVERY_RESPONSE,
                "0a100a0e6c6f63616c686f73743a353130311001", &message);
    TEXT_IS(message.mastership.address, "localhost:5101");
    assert_true(message.is_master);
    read_sample(WEIR_DOORMAN_DISCOVERY_RESPONSE, "0a001000", &message);
    assert_int_equal(message.mastership.address.len, 0);
    assert_false(message.is_master);

    struct weir_doorman_message ours = {
        .type = WEIR_DOORMAN_DISCOVERY_RESPONSE,
        .mastership = { .address = WEIR_TEXT("localhost:5101") },
        .is_master = true,
    };
    assert_written(&ours, "0a100a0e6c6f63616c686f73743a353130311001");
    ours = (struct weir_doorman_message){ .type =
                                              WEIR_DOORMAN_DISCOVERY_RESPONSE };
    assert_written(&ours, "0a001000");
}

static const struct weir_doorman_lease some_lease = {
    .given = true, .expiry_s = 1456502411, .refresh_s = 5, .capacity = 20
};

static void request_samples(void **state)
{
    (void)state;
    struct weir_doorman_message message;
    read_sample(WEIR_DOORMAN_GET_REQUEST, "0a06636c69656e74", &message);
    TEXT_IS(message.id, "client");
    assert_int_equal(message.count, 0);
    read_sample(WEIR_DOORMAN_GET_REQUEST,
                "0a06636c69656e7412150a087265736f757263651001210000000000003"
                "e40",
                &message);
    assert_int_equal(message.count, 1);
    TEXT_IS(message.resources[0].id, "resource");
    assert_int_equal(message.resources[0].priority, 1);
    assert_false(message.resources[0].has.given);
    assert_true(message.resources[0].wants == 30);

    static const char with_has[] =
        "0a06636c69656e7412280a087265736f7572636510001a11088bedc1b605100519"
        "0000000000003440210000000000003e40";
    read_sample(WEIR_DOORMAN_GET_REQUEST, with_has, &message);
    const struct weir_doorman_resource *got = message.resources;
    assert_int_equal(got->priority, 0);
    assert_true(got->has.given);
    assert_int_equal(got->has.expiry_s, 1456502411);
    assert_int_equal(got->has.refresh_s, 5);
    assert_true(got->has.capacity == 20);

    struct weir_doorman_resource resource = { .id = WEIR_TEXT("resource"),
                                              .has = some_lease,
                                              .wants = 30 };
    struct weir_doorman_message ours = { .type = WEIR_DOORMAN_GET_REQUEST,
                                         .id = WEIR_TEXT("client"),
                                         .count = 1,
                                         .resources = &resource };
    assert_written(&ours, with_has);
}

static void response_samples(void **state)
{
    (void)state;
    static const char sample[] =
        "0a260a087265736f757263651211088bedc1b60510051900000000000034401900"
        "00000000000040";
    struct weir_doorman_message message;
    read_sample(WEIR_DOORMAN_GET_RESPONSE, sample, &message);
    assert_int_equal(message.count, 1);
    assert_false(message.mastership.given);
    assert_true(message.grants[0].gets.capacity == 20);
    assert_true(message.grants[0].safe_given);
    assert_true(message.grants[0].safe_capacity == 2);
    struct weir_doorman_grant grant = { .id = WEIR_TEXT("resource"),
                                        .gets = some_lease,
                                        .safe_given = true,
                                        .safe_capacity = 2 };
    struct weir_doorman_message ours = { .type = WEIR_DOORMAN_GET_RESPONSE,
                                         .count = 1,
                                         .grants = &grant };
    assert_written(&ours, sample);

    /* An empty mastership (not master, master unknown) differs from a missing
     * one (this server is master). */
    read_sample(WEIR_DOORMAN_GET_RESPONSE, "1200", &message);
    assert_true(message.mastership.given);
    assert_int_equal(message.mastership.address.len, 0);
    read_sample(WEIR_DOORMAN_GET_RESPONSE, "12050a03666f6f", &message);
    TEXT_IS(message.mastership.address, "foo");
    read_sample(WEIR_DOORMAN_GET_RESPONSE, "", &message);
    assert_false(message.mastership.given);
}

static void server_samples(void **state)
{
    (void)state;
    struct weir_doorman_message message;
    read_sample(WEIR_DOORMAN_SERVER_REQUEST,
                "0a03733a3112120a012a1a0d08011001190000000000000000", &message);
    TEXT_IS(message.id, "s:1");
    TEXT_IS(message.server_resources[0].id, "*");
    assert_int_equal(message.server_resources[0].band_count, 1);
    assert_int_equal(message.server_resources[0].bands[0].priority, 1);
    assert_int_equal(message.server_resources[0].bands[0].num_clients, 1);
    assert_true(message.server_resources[0].bands[0].wants == 0);

    static const char response[] =
        "0a290a01721211088bedc1b60510051900000000000059401a0808031014180528"
        "00210000000000000000";
    read_sample(WEIR_DOORMAN_SERVER_RESPONSE, response, &message);
    const struct weir_doorman_algorithm *algorithm =
        &message.grants[0].algorithm;
    assert_int_equal(algorithm->kind, WEIR_DOORMAN_FAIR_SHARE);
    assert_int_equal(algorithm->lease_length_s, 20);
    assert_int_equal(algorithm->refresh_s, 5);
    assert_true(algorithm->learning_given);
    assert_int_equal(algorithm->learning_s, 0);
    assert_true(message.grants[0].safe_given);
    struct weir_doorman_grant grant = {
        .id = WEIR_TEXT("r"),
        .gets = some_lease,
        .safe_given = true,
        .algorithm = { .given = true,
                       .kind = WEIR_DOORMAN_FAIR_SHARE,
                       .lease_length_s = 20,
                       .refresh_s = 5,
                       .learning_given = true },
    };
    grant.gets.capacity = 100;
    struct weir_doorman_message ours = { .type = WEIR_DOORMAN_SERVER_RESPONSE,
                                         .count = 1,
                                         .grants = &grant };
    assert_written(&ours, response);
}

static void release_samples(void **state)
{
    (void)state;
    struct weir_doorman_message message;
    read_sample(WEIR_DOORMAN_RELEASE_REQUEST,
                "0a06636c69656e7412087265736f75726365120178", &message);
    TEXT_IS(message.id, "client");
    assert_int_equal(message.count, 2);
    TEXT_IS(message.released[0], "resource");
    TEXT_IS(message.released[1], "x");
    read_sample(WEIR_DOORMAN_RELEASE_RESPONSE, "", &message);
    assert_false(message.mastership.given);
}

/* A lease with a capacity below 0, which the original hands out. */
static void lease_sample(void **state)
{
    (void)state;
    struct weir_doorman_message message;
    read_sample(WEIR_DOORMAN_GET_RESPONSE,
                "0a120a0172120d080110051900000000000024c0", &message);
    assert_true(message.grants[0].gets.capacity == -10);
    assert_int_equal(message.grants[0].gets.expiry_s, 1);
}

/* The original refuses a resource without its priority; other encoders leave
 * zeros out. The written message has it. */
static void zeros_may_be_left_out(void **state)
{
    (void)state;
    uint8_t bytes[64];
    size_t len = from_hex("0a0163120c0a017221000000000000f03f", bytes);
    struct weir_doorman_message message;
    assert_int_equal(weir_doorman_decode(bytes, len, WEIR_DOORMAN_GET_REQUEST,
                                         &arena, &message, NULL),
                     0);
    assert_int_equal(message.resources[0].priority, 0);
    assert_true(message.resources[0].wants == 1);
    assert_written(&message, "0a0163120e0a0172100021000000000000f03f");
    assert_int_equal(weir_doorman_decode(NULL, 0,
                                         WEIR_DOORMAN_DISCOVERY_RESPONSE,
                                         &arena, &message, NULL),
                     0);
    assert_written(&message, "0a001000");
}

/* ---- Random messages ---- */

struct made {
    struct weir_doorman_message message;
    struct weir_doorman_resource resources[ROWS];
    struct weir_doorman_server_resource server_resources[ROWS];
    struct weir_doorman_band bands[ROWS][ROWS];
    struct weir_doorman_grant grants[ROWS];
    struct weir_doorman_parameter parameters[ROWS][ROWS];
    struct weir_text released[ROWS];
};

static struct weir_text some_text(struct weir_rng *rng)
{
    static const char letters[] = "resource/\xC3\xBC*0123456789abcdefghijkl";
    size_t from = weir_rng_below(rng, sizeof(letters) - 1);
    size_t len = weir_rng_below(rng, sizeof(letters) - from);
    return (struct weir_text){ letters + from, len };
}

static int64_t some_number(struct weir_rng *rng)
{
    return (int64_t)weir_rng_next(rng) >> weir_rng_below(rng, 65) % 64;
}

static bool coin(struct weir_rng *rng)
{
    return weir_rng_below(rng, 2) > 0;
}

static double some_amount(struct weir_rng *rng)
{
    if (weir_rng_below(rng, 4) == 0)
        return 0;
    return (double)some_number(rng) * weir_rng_unit(rng);
}

static struct weir_doorman_lease make_lease(struct weir_rng *rng, bool given)
{
    if (!given)
        return (struct weir_doorman_lease){ .given = false };
    return (struct weir_doorman_lease){ .given = true,
                                        .expiry_s = some_number(rng),
                                        .refresh_s = some_number(rng),
                                        .capacity = some_amount(rng) };
}

static void make_bands(struct weir_rng *rng, struct made *out, size_t i)
{
    struct weir_doorman_server_resource *to = &out->server_resources[i];
    *to = (struct weir_doorman_server_resource){
        .id = some_text(rng),
        .has = make_lease(rng, coin(rng)),
        .band_count = weir_rng_below(rng, ROWS + 1),
        .bands = out->bands[i],
    };
    for (size_t k = 0; k < to->band_count; k++)
        out->bands[i][k] = (struct weir_doorman_band){
            .priority = some_number(rng),
            .num_clients = some_number(rng),
            .wants = some_amount(rng),
        };
}

static void make_algorithm(struct weir_rng *rng, struct made *out, size_t i)
{
    struct weir_doorman_algorithm *to = &out->grants[i].algorithm;
    *to = (struct weir_doorman_algorithm){
        .given = true,
        .kind = (int32_t)weir_rng_below(rng, 5),
        .lease_length_s = some_number(rng),
        .refresh_s = some_number(rng),
        .parameter_count = weir_rng_below(rng, ROWS + 1),
        .parameters = out->parameters[i],
        .learning_given = coin(rng),
    };
    to->learning_s = to->learning_given ? some_number(rng) : 0;
    for (size_t k = 0; k < to->parameter_count; k++)
        out->parameters[i][k] =
            (struct weir_doorman_parameter){ .name = some_text(rng),
                                             .value = some_text(rng) };
}

static void make_grant(struct weir_rng *rng, struct made *out, size_t i)
{
    struct weir_doorman_grant *to = &out->grants[i];
    *to = (struct weir_doorman_grant){ .id = some_text(rng),
                                       .gets = make_lease(rng, true),
                                       .safe_given = coin(rng) };
    to->safe_capacity = to->safe_given ? some_amount(rng) : 0;
    if (out->message.type == WEIR_DOORMAN_SERVER_RESPONSE && coin(rng))
        make_algorithm(rng, out, i);
}

static void make_list(struct weir_rng *rng, struct made *out)
{
    struct weir_doorman_message *message = &out->message;
    for (size_t i = 0; i < message->count; i++) {
        out->resources[i] = (struct weir_doorman_resource){
            .id = some_text(rng),
            .priority = some_number(rng),
            .has = make_lease(rng, coin(rng)),
            .wants = some_amount(rng),
        };
        make_bands(rng, out, i);
        make_grant(rng, out, i);
        out->released[i] = some_text(rng);
    }
    const void *const lists[WEIR_DOORMAN_TYPES] = {
        [WEIR_DOORMAN_GET_REQUEST] = out->resources,
        [WEIR_DOORMAN_GET_RESPONSE] = out->grants,
        [WEIR_DOORMAN_SERVER_REQUEST] = out->server_resources,
        [WEIR_DOORMAN_SERVER_RESPONSE] = out->grants,
        [WEIR_DOORMAN_RELEASE_REQUEST] = out->released,
    };
    message->grants = lists[message->type];
    if (!message->grants)
        message->count = 0;
}

static void make(struct weir_rng *rng, struct made *out)
{
    struct weir_doorman_message *message = &out->message;
    *message = (struct weir_doorman_message){
        .type = (enum weir_doorman_type)weir_rng_below(rng, WEIR_DOORMAN_TYPES),
        .id = some_text(rng),
        .is_master = coin(rng),
        .count = weir_rng_below(rng, ROWS + 1),
    };
    message->mastership.given = coin(rng);
    if (message->mastership.given)
        message->mastership.address = some_text(rng);
    make_list(rng, out);
}

static int decode_again(enum weir_doorman_type type, const uint8_t *bytes,
                        size_t len, uint8_t *out)
{
    struct weir_doorman_message message;
    int error = weir_doorman_decode(bytes, len, type, &arena, &message, NULL);
    assert_int_equal(error, 0);
    return weir_doorman_encode(&message, out, BYTES_MAX);
}

static enum wire_verdict judge_doorman(void *context, const uint8_t *bytes,
                                       size_t len)
{
    static uint8_t ours[BYTES_MAX];
    struct weir_doorman_message message;
    enum weir_doorman_type type = *(enum weir_doorman_type *)context;
    if (weir_doorman_decode(bytes, len, type, &arena, &message, NULL) < 0)
        return WIRE_REFUSED;
    int size = weir_doorman_encode(&message, ours, sizeof(ours));
    assert_compare(size, >=, 0);
    return oracle_doorman(type, bytes, len, ours, (size_t)size) ? WIRE_ALIKE
                                                                : WIRE_DIFFERS;
}

static void random_messages_go_round(void **state)
{
    (void)state;
    static uint8_t bytes[BYTES_MAX], theirs[BYTES_MAX], again[BYTES_MAX];
    struct weir_rng rng = made_seed("doorman");
    size_t total = 0;
    size_t left_out = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        static struct made made;
        make(&rng, &made);
        enum weir_doorman_type type = made.message.type;
        size_t len = weir_doorman_size(&made.message);
        assert_int_equal(weir_doorman_encode(&made.message, bytes, BYTES_MAX),
                         len);
        if (len > 0)
            assert_int_equal(weir_doorman_encode(&made.message, again, len - 1),
                             WEIR_ETOOBIG);
        assert_int_equal(decode_again(type, bytes, len, again), len);
        assert_memory_equal(bytes, again, len);
        assert_int_equal(oracle_doorman_again(type, bytes, len, false, theirs),
                         len);
        assert_memory_equal(bytes, theirs, len);
        size_t less = oracle_doorman_again(type, bytes, len, true, theirs);
        assert_int_equal(decode_again(type, theirs, less, again), len);
        assert_memory_equal(bytes, again, len);
        wire_check(&rng, oracle_doorman_type(type), bytes, len, judge_doorman,
                   &type);
        total += len;
        left_out += len - less;
    }
    printf("%d messages, %zu bytes, %zu of them zeros to leave out\n", ROUNDS,
           total, left_out);
    assert_compare(left_out, >, 0);
}

/* ---- Refused bytes ---- */

static void assert_bytes_refused(enum weir_doorman_type type, const char *hex,
                                 int wanted)
{
    uint8_t bytes[256];
    size_t len = from_hex(hex, bytes);
    struct weir_doorman_message message = { .count = 77 };
    struct weir_diag diag = { 0 };
    int error = weir_doorman_decode(bytes, len, type, &arena, &message, &diag);
    if (error != wanted || diag.text[0] == '\0')
        fail_msg("%s gives %d: %s", hex, error, diag.text);
    assert_int_equal(message.count, 77);
}

static void broken_bytes_are_refused(void **state)
{
    (void)state;
    enum weir_doorman_type get = WEIR_DOORMAN_GET_REQUEST;
    assert_bytes_refused(get, "0a", WEIR_ESYNTAX);
    assert_bytes_refused(get, "0a0263", WEIR_ESYNTAX);
    assert_bytes_refused(get, "0a016312", WEIR_ESYNTAX);
    assert_bytes_refused(get, "12020a05", WEIR_ESYNTAX);
    assert_bytes_refused(get, "13", WEIR_ESYNTAX);     /* a group */
    assert_bytes_refused(get, "00", WEIR_ESYNTAX);     /* field 0 */
    assert_bytes_refused(get, "0801", WEIR_EPROTOCOL); /* a number */
    assert_bytes_refused(get, "120422020000", WEIR_EPROTOCOL);
    assert_bytes_refused(get, "12041a001a00", WEIR_EPROTOCOL); /* two */
    assert_bytes_refused(WEIR_DOORMAN_DISCOVERY_RESPONSE, "0a000a00",
                         WEIR_EPROTOCOL);
    assert_bytes_refused(WEIR_DOORMAN_DISCOVERY_REQUEST, "0a", WEIR_ESYNTAX);
}

/* Unknown fields are skipped, a number's last value counts, and a text may
 * contain any byte until it is checked. */
static void later_versions_are_read(void **state)
{
    (void)state;
    uint8_t bytes[64];
    size_t len = from_hex("7a00"
                          "0a0161"
                          "0a03620063"
                          "3801"
                          "1206"
                          "1001"
                          "1002"
                          "2801",
                          bytes);
    struct weir_doorman_message message;
    assert_int_equal(weir_doorman_decode(bytes, len, WEIR_DOORMAN_GET_REQUEST,
                                         &arena, &message, NULL),
                     0);
    assert_true(weir_text_equal(message.id, (struct weir_text){ "b\0c", 3 }));
    assert_int_equal(message.resources[0].priority, 2);
}

static void too_many_are_refused(void **state)
{
    (void)state;
    size_t max = WEIR_DOORMAN_RESOURCES_MAX;
    uint8_t *bytes = calloc(max + 1, 2);
    for (size_t i = 0; i <= max; i++)
        bytes[2 * i] = 2 << 3 | 2;
    struct weir_doorman_message message;
    struct weir_diag diag;
    enum weir_doorman_type type = WEIR_DOORMAN_GET_REQUEST;
    assert_int_equal(
        weir_doorman_decode(bytes, 2 * max, type, &arena, &message, &diag), 0);
    assert_int_equal(message.count, max);
    assert_int_equal(
        weir_doorman_decode(bytes, 2 * max + 2, type, &arena, &message, &diag),
        WEIR_ETOOBIG);
    assert_non_null(strstr(diag.text, "too many"));

    struct weir_arena small = { arena.base, 1000, 0 };
    assert_int_equal(
        weir_doorman_decode(bytes, 2000, type, &small, &message, &diag),
        WEIR_ETOOBIG);

    /* 65 bands of one resource. */
    uint8_t bands[4 + 2 * 65] = { 0x12, 0x82, 0x01 };
    for (size_t i = 0; i < 65; i++)
        bands[3 + 2 * i] = 3 << 3 | 2;
    assert_int_equal(weir_doorman_decode(bands, 3 + 2 * 65,
                                         WEIR_DOORMAN_SERVER_REQUEST, &arena,
                                         &message, &diag),
                     WEIR_ETOOBIG);
    free(bytes);
    assert_int_equal(weir_doorman_decode(NULL, WEIR_DOORMAN_BYTES_MAX + 1, type,
                                         &arena, &message, &diag),
                     WEIR_ETOOBIG);
}

static void refused(const struct weir_doorman_message *message,
                    const char *says)
{
    struct weir_diag diag = { 0 };
    int error = weir_doorman_check(message, &diag);
    if (error != WEIR_EINVAL || !strstr(diag.text, says))
        fail_msg("%d, '%s' doesn't say '%s'", error, diag.text, says);
}

/* The first row. */
static void row_accepted(const struct weir_doorman_message *message)
{
    assert_int_equal(weir_doorman_check(message, NULL), 0);
    assert_int_equal(weir_doorman_check_row(message, 0, NULL), 0);
    if (message->type != WEIR_DOORMAN_RELEASE_REQUEST)
        assert_int_equal(weir_doorman_check_amounts(message, 0, NULL), 0);
}

/* Its id is good, and it is to be answered. */
static void amounts_refused(const struct weir_doorman_message *message,
                            const char *says)
{
    struct weir_diag diag = { 0 };
    assert_int_equal(weir_doorman_check(message, NULL), 0);
    assert_int_equal(weir_doorman_check_row(message, 0, NULL), 0);
    int error = weir_doorman_check_amounts(message, 0, &diag);
    if (error != WEIR_EINVAL || !strstr(diag.text, says))
        fail_msg("%d, '%s' doesn't say '%s'", error, diag.text, says);
}

/* A bad row doesn't make the request bad. */
static void row_refused(const struct weir_doorman_message *message,
                        size_t index, const char *says)
{
    struct weir_diag diag = { 0 };
    assert_int_equal(weir_doorman_check(message, NULL), 0);
    int error = weir_doorman_check_row(message, index, &diag);
    if (error != WEIR_EINVAL || !strstr(diag.text, says))
        fail_msg("%d, '%s' doesn't say '%s'", error, diag.text, says);
}

static struct weir_doorman_message get_of(
    struct weir_doorman_resource *resource)
{
    *resource = (struct weir_doorman_resource){ .id = WEIR_TEXT("r") };
    return (struct weir_doorman_message){ .type = WEIR_DOORMAN_GET_REQUEST,
                                          .id = WEIR_TEXT("c"),
                                          .count = 1,
                                          .resources = resource };
}

static void requests_must_make_sense(void **state)
{
    (void)state;
    struct weir_doorman_resource resource;
    struct weir_doorman_message message = get_of(&resource);
    row_accepted(&message);
    const double bad[] = { -1, -DBL_MIN, NAN, INFINITY, -INFINITY, 1.1e18 };
    for (size_t i = 0; i < WEIR_COUNT_OF(bad); i++) {
        resource.wants = bad[i];
        amounts_refused(&message, "resource 'r': wants must be from 0 to 1e18");
    }
    resource.wants = WEIR_DOORMAN_WANTS_MAX;
    resource.has =
        (struct weir_doorman_lease){ .given = true, .capacity = -55 };
    row_accepted(&message);
    resource.has.capacity = NAN;
    amounts_refused(&message, "must be a finite number");
    resource.has.capacity = -INFINITY;
    amounts_refused(&message, "must be a finite number");

    message = get_of(&resource);
    resource.id = WEIR_TEXT("");
    row_refused(&message, 0, "resource_id is empty");
    resource.id = WEIR_TEXT("a\xff");
    row_refused(&message, 0, "resource_id must be UTF-8");
    resource.id = WEIR_TEXT("a/b");
    row_accepted(&message);
}

static void sound_wants_are_the_nearest(void **state)
{
    (void)state;
    const struct {
        double wants, most, sound;
    } rows[] = {
        { 7, 9, 7 },      { 9.5, 9, 9 },       { -1, 9, 0 },
        { NAN, 9, 0 },    { 0, 0, 0 },         { INFINITY, 1e18, 1e18 },
        { -0.0, 9, 0.0 }, { -INFINITY, 9, 0 },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++)
        assert_true(weir_doorman_sound_wants(rows[i].wants, rows[i].most) ==
                    rows[i].sound);
}

static void ids_must_make_sense(void **state)
{
    (void)state;
    static char longest[WEIR_DOORMAN_CLIENT_ID_MAX + 1];
    memset(longest, 'x', sizeof(longest));
    struct weir_doorman_resource resource;
    struct weir_doorman_message message = get_of(&resource);
    message.id = (struct weir_text){ longest, WEIR_DOORMAN_CLIENT_ID_MAX };
    assert_int_equal(weir_doorman_check(&message, NULL), 0);
    message.id.len++;
    refused(&message, "client_id is longer than 65536 bytes");
    message.id = WEIR_TEXT("");
    refused(&message, "client_id is empty");
    message.id = WEIR_TEXT("a\0b");
    refused(&message, "client_id must be UTF-8");
    message.type = WEIR_DOORMAN_SERVER_REQUEST;
    message.id = WEIR_TEXT("");
    refused(&message, "server_id is empty");
}

static void aggregates_must_make_sense(void **state)
{
    (void)state;
    struct weir_doorman_band bands[2] = { { .num_clients = 1 },
                                          { .num_clients = 1 } };
    struct weir_doorman_server_resource resource = { .id = WEIR_TEXT("r"),
                                                     .band_count = 2,
                                                     .bands = bands };
    struct weir_doorman_message message = { .type = WEIR_DOORMAN_SERVER_REQUEST,
                                            .id = WEIR_TEXT("s"),
                                            .count = 1,
                                            .server_resources = &resource };
    row_accepted(&message);
    bands[1].num_clients = 0;
    refused(&message, "subclients should be > 0");
    bands[1].num_clients = INT64_MIN;
    refused(&message, "subclients should be > 0");
    bands[1].num_clients = WEIR_DOORMAN_CLIENTS_MAX;
    refused(&message, "more than 1e9 subclients");
    bands[1].num_clients = INT64_MAX;
    refused(&message, "more than 1e9 subclients");
    bands[1].num_clients = WEIR_DOORMAN_CLIENTS_MAX - 1;
    bands[0].wants = bands[1].wants = 0.6e18;
    amounts_refused(&message, "wants must be from 0 to 1e18");
    bands[0].wants = NAN;
    amounts_refused(&message, "wants must be from 0 to 1e18");
    bands[0].wants = 0;
    row_accepted(&message);
    resource.band_count = 0;
    refused(&message, "subclients should be > 0");
}

static void released_rows_are_checked_one_by_one(void **state)
{
    (void)state;
    char longer[WEIR_DOORMAN_ID_MAX + 1];
    memset(longer, 'x', sizeof(longer));
    const struct weir_text released[] = {
        WEIR_TEXT("a"),     WEIR_TEXT(""),
        WEIR_TEXT("a\xff"), { longer, sizeof(longer) },
        WEIR_TEXT("b"),
    };
    const struct weir_doorman_message message = {
        .type = WEIR_DOORMAN_RELEASE_REQUEST,
        .id = WEIR_TEXT("c"),
        .count = WEIR_COUNT_OF(released),
        .released = released,
    };
    row_accepted(&message);
    row_refused(&message, 1, "resource_id is empty");
    row_refused(&message, 2, "resource_id must be UTF-8");
    row_refused(&message, 3, "resource_id is longer than 255 bytes");
    assert_int_equal(weir_doorman_check_row(&message, 4, NULL), 0);
}

static void responses_must_make_sense(void **state)
{
    (void)state;
    struct weir_doorman_grant grant = { .id = WEIR_TEXT("r"),
                                        .gets = some_lease };
    struct weir_doorman_message message = { .type = WEIR_DOORMAN_GET_RESPONSE,
                                            .count = 1,
                                            .grants = &grant };
    assert_int_equal(weir_doorman_check(&message, NULL), 0);
    grant.safe_capacity = INFINITY;
    refused(&message, "safe_capacity must be a finite number");
    grant.gets.capacity = NAN;
    refused(&message, "the capacity must be a finite number");
    grant.gets.given = false;
    refused(&message, "there is no lease");
    message.mastership.address = WEIR_TEXT("a\nb");
    refused(&message, "master_address must be UTF-8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(discovery_samples),
        cmocka_unit_test(request_samples),
        cmocka_unit_test(response_samples),
        cmocka_unit_test(server_samples),
        cmocka_unit_test(release_samples),
        cmocka_unit_test(lease_sample),
        cmocka_unit_test(zeros_may_be_left_out),
        cmocka_unit_test(random_messages_go_round),
        cmocka_unit_test(broken_bytes_are_refused),
        cmocka_unit_test(later_versions_are_read),
        cmocka_unit_test(too_many_are_refused),
        cmocka_unit_test(requests_must_make_sense),
        cmocka_unit_test(sound_wants_are_the_nearest),
        cmocka_unit_test(ids_must_make_sense),
        cmocka_unit_test(aggregates_must_make_sense),
        cmocka_unit_test(released_rows_are_checked_one_by_one),
        cmocka_unit_test(responses_must_make_sense),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
