/* SPDX-License-Identifier: MIT
 * test/codec/test_rls.c - Envoy's rate limit service: its bytes compared with
 * protobuf-c, names of descriptors, and limits in the form of
 * envoyproxy/ratelimit's YAML. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/rlqs.h"
#include "codec/rls_rules.h"
#include "compare.h"
#include "core/base/rng.h"
#include "core/quota/glob.h"
#include "core/quota/long_name.h"
#include "rls.pb-c.h"
#include "rls_oracle.h"
#include "seed.h"
#include "wire_variants.h"

#define ROUNDS 20000
#define BYTES_MAX 65536

typedef Envoy__Service__Ratelimit__V3__RateLimitRequest request_pb;
typedef Envoy__Service__Ratelimit__V3__RateLimitDescriptor descriptor_pb;
typedef Envoy__Service__Ratelimit__V3__RateLimitDescriptor__Entry entry_pb;
typedef Envoy__Service__Ratelimit__V3__UInt64Value number_pb;

static _Alignas(16) unsigned char memory[WEIR_RLS_ARENA_SIZE];

static int decode(const void *bytes, size_t len, struct weir_rls_request *out,
                  struct weir_diag *diag)
{
    struct weir_arena arena = { memory, sizeof memory, 0 };
    return weir_rls_decode(bytes, len, &arena, out, diag);
}

static int decode_reports(const void *bytes, size_t len,
                          struct weir_rlqs_reports *out, struct weir_diag *diag)
{
    static unsigned char rlqs_memory[WEIR_RLQS_ARENA_SIZE];
    struct weir_arena arena = { rlqs_memory, sizeof rlqs_memory, 0 };
    return weir_rlqs_decode(bytes, len, &arena, out, diag);
}

static enum wire_verdict judge_rls(void *context, const uint8_t *bytes,
                                   size_t len)
{
    struct weir_rls_request got;
    (void)context;
    if (decode(bytes, len, &got, NULL) < 0)
        return WIRE_REFUSED;
    return oracle_rls(bytes, len, &got) ? WIRE_ALIKE : WIRE_DIFFERS;
}

static enum wire_verdict judge_rlqs(void *context, const uint8_t *bytes,
                                    size_t len)
{
    struct weir_rlqs_reports got;
    (void)context;
    if (decode_reports(bytes, len, &got, NULL) < 0)
        return WIRE_REFUSED;
    return oracle_rlqs(bytes, len, &got) ? WIRE_ALIKE : WIRE_DIFFERS;
}

static uint32_t below(struct weir_rng *rng, uint32_t max)
{
    return (uint32_t)(weir_rng_next(rng) % max);
}

static bool same(struct weir_text text, const char *other)
{
    return weir_text_equal(text, weir_text_of(other));
}

/* ---- Requests ---- */

struct made {
    request_pb request;
    descriptor_pb descriptors[4], *descriptor_list[4];
    entry_pb entries[16], *entry_list[16];
    number_pb hits[4];
};

static char *const words[] = {
    "", "a", "path", "/cart", "10.0.0.1", "\xc3\xa4"
};

static void make_request(struct weir_rng *rng, struct made *made)
{
    size_t used = 0;
    envoy__service__ratelimit__v3__rate_limit_request__init(&made->request);
    made->request.domain = words[1 + below(rng, 5)];
    made->request.hits_addend = below(rng, 3) ? 0 : below(rng, 1u << 31);
    made->request.n_descriptors = 1 + below(rng, 4);
    made->request.descriptors = made->descriptor_list;
    for (size_t i = 0; i < made->request.n_descriptors; i++) {
        descriptor_pb *d = made->descriptor_list[i] = &made->descriptors[i];
        envoy__service__ratelimit__v3__rate_limit_descriptor__init(d);
        d->n_entries = 1 + below(rng, 4);
        d->entries = &made->entry_list[used];
        for (size_t k = 0; k < d->n_entries; k++, used++) {
            entry_pb *e = made->entry_list[used] = &made->entries[used];
            envoy__service__ratelimit__v3__rate_limit_descriptor__entry__init(
                e);
            e->key = words[1 + below(rng, 5)];
            e->value = words[below(rng, 6)];
        }
        if (below(rng, 2)) {
            d->hits_addend = &made->hits[i];
            envoy__service__ratelimit__v3__uint64_value__init(d->hits_addend);
            d->hits_addend->value = weir_rng_next(rng) >> below(rng, 64);
        }
        d->is_negative_hits = below(rng, 2);
    }
}

static void hold_request(const struct made *made,
                         const struct weir_rls_request *got)
{
    assert_true(same(got->domain, made->request.domain));
    assert_int_equal(got->hits, made->request.hits_addend);
    assert_int_equal(got->count, made->request.n_descriptors);
    for (size_t i = 0; i < got->count; i++) {
        const descriptor_pb *d = &made->descriptors[i];
        const struct weir_rls_descriptor *ours = &got->descriptors[i];
        assert_int_equal(ours->entry_count, d->n_entries);
        assert_int_equal(ours->negative, d->is_negative_hits);
        uint64_t hits = d->hits_addend              ? d->hits_addend->value
                        : made->request.hits_addend ? made->request.hits_addend
                                                    : 1;
        assert_true(weir_rls_hits(got, ours) == hits);
        for (size_t k = 0; k < d->n_entries; k++) {
            assert_true(same(ours->entries[k].key, d->entries[k]->key));
            assert_true(same(ours->entries[k].value, d->entries[k]->value));
        }
    }
}

static void test_requests(void **state)
{
    (void)state;
    static struct weir_rls_request got;
    static uint8_t bytes[BYTES_MAX];
    struct weir_rng rng = made_seed("rls");
    for (int round = 0; round < ROUNDS; round++) {
        struct made made;
        make_request(&rng, &made);
        size_t len = envoy__service__ratelimit__v3__rate_limit_request__pack(
            &made.request, bytes);
        struct weir_diag diag = { 0 };
        assert_int_equal(decode(bytes, len, &got, &diag), 0);
        hold_request(&made, &got);
        assert_true(oracle_rls(bytes, len, &got));
        wire_check(&rng, oracle_rls_type, bytes, len, judge_rls, NULL);
        /* If it is cut anywhere, it is refused or is smaller. */
        (void)decode(bytes, below(&rng, (uint32_t)len), &got, NULL);
    }
}

static void refuse(const char *bytes, size_t len, int error, const char *why)
{
    static struct weir_rls_request got;
    struct weir_diag diag = { 0 };
    assert_int_equal(decode(bytes, len, &got, &diag), error);
    assert_non_null(strstr(diag.text, why));
}
#define REFUSE(literal, error, why) \
    refuse(literal, sizeof(literal) - 1, error, why)

static void test_refusals(void **state)
{
    (void)state;
    REFUSE("", WEIR_EINVAL, "domain must not be empty");
    REFUSE("\x0a\x01x", WEIR_EINVAL, "list must not be empty");
    REFUSE("\x0a\x01x\x12\x00", WEIR_EINVAL, "without entries");
    REFUSE("\x0a\x01x\x12\x02\x0a\x00", WEIR_EINVAL, "key is empty");
    REFUSE("\x0a\x05x", WEIR_ESYNTAX, "no RateLimitRequest");
    /* A limit without a unit, and one with an unknown unit. */
    REFUSE("\x0a\x01x\x12\x09\x0a\x03\x0a\x01k\x12\x02\x08\x05", WEIR_EINVAL,
           "the unit must be");
    REFUSE("\x0a\x01x\x12\x09\x0a\x03\x0a\x01k\x12\x02\x10\x63", WEIR_EINVAL,
           "the unit must be");
}

static void test_bounds(void **state)
{
    (void)state;
    static char bytes[WEIR_RLS_BYTES_MAX + 1];
    static const char descriptor[] = "\x12\x05\x0a\x03\x0a\x01k";
    size_t len = 3;
    memcpy(bytes, "\x0a\x01x", 3);
    for (unsigned i = 0; i <= WEIR_RLS_DESCRIPTORS_MAX; i++) {
        memcpy(bytes + len, descriptor, sizeof descriptor - 1);
        len += sizeof descriptor - 1;
    }
    refuse(bytes, len, WEIR_ETOOBIG, "more than 1024 descriptors,");
    refuse(bytes, sizeof bytes, WEIR_ETOOBIG, "over 4 MiB");
    /* One of 8193 entries: 40965 bytes. */
    len = 3;
    memcpy(bytes + len, "\x12\x85\xc0\x02", 4);
    for (len = 7; len < 7 + 8193 * 5; len += 5)
        memcpy(bytes + len, "\x0a\x03\x0a\x01k", 5);
    refuse(bytes, len, WEIR_ETOOBIG, "more than 8192 descriptor entries,");
}

/* ---- Answers ---- */

static void test_answers(void **state)
{
    (void)state;
    static unsigned char buf[WEIR_RLS_ANSWER_MAX];
    static struct weir_rls_status statuses[WEIR_RLS_DESCRIPTORS_MAX];
    static char name[WEIR_RLS_NAME_MAX], value[WEIR_RLS_HEADER_VALUE_MAX];
    static char metadata[WEIR_RLS_METADATA_MAX];
    memset(name, 'n', sizeof name);
    memset(value, 'v', sizeof value);
    struct weir_rls_header headers[WEIR_RLS_HEADERS_MAX];
    struct weir_rng rng = made_seed("rls");
    for (int round = 0; round < 2000; round++) {
        struct weir_rls_answer answer = {
            .code = (enum weir_rls_code)below(&rng, 3),
            .count = below(&rng, WEIR_RLS_DESCRIPTORS_MAX + 1),
            .header_count = below(&rng, WEIR_RLS_HEADERS_MAX + 1),
            .metadata = { metadata, below(&rng, WEIR_RLS_METADATA_MAX + 1) },
            .statuses = statuses,
            .headers = headers,
        };
        for (uint32_t i = 0; i < answer.count; i++)
            statuses[i] = (struct weir_rls_status){
                .code = (enum weir_rls_code)below(&rng, 3),
                .limit_given = below(&rng, 2),
                .unit = (enum weir_rls_unit)below(&rng, 8),
                .requests_per_unit = (uint32_t)weir_rng_next(&rng),
                .name = { name, below(&rng, sizeof name + 1) },
                .remaining = (uint32_t)weir_rng_next(&rng),
                .reset_given = below(&rng, 2),
                .reset = weir_rng_next(&rng) >> below(&rng, 64),
            };
        for (uint32_t i = 0; i < answer.header_count; i++)
            headers[i] =
                (struct weir_rls_header){ { name, 1 + below(&rng, 64) },
                                          { value, sizeof value } };
        size_t len = weir_rls_encode(&answer, buf);
        assert_compare(len, <=, sizeof buf);
        assert_true(oracle_rls_answer(buf, len, &answer));
    }
}

static void test_health(void **state)
{
    (void)state;
    struct weir_text service;
    unsigned char buf[WEIR_HEALTH_ANSWER_SIZE];
    assert_int_equal(weir_health_decode("\x0a\x02hi", 4, &service), 0);
    assert_true(same(service, "hi"));
    assert_true(oracle_health("\x0a\x02hi", 4, service));
    assert_int_equal(weir_health_decode("", 0, &service), 0);
    assert_int_equal(service.len, 0);
    assert_int_equal(weir_health_decode("\x0a\x09", 2, &service), WEIR_ESYNTAX);
    weir_health_encode(WEIR_HEALTH_SERVING, buf);
    assert_memory_equal(buf, "\x08\x01", 2);
}

/* ---- Quotas of Envoy's own ---- */

/* A report of one bucket {b: 2, a: 1}, 7 passed and 3 denied in 1.5 s. */
static const char usage[] = "\x0a\x01"
                            "d"
                            "\x12\x20"
                            "\x0a\x10"
                            "\x0a\x06\x0a\x01"
                            "b"
                            "\x12\x01"
                            "2"
                            "\x0a\x06\x0a\x01"
                            "a"
                            "\x12\x01"
                            "1"
                            "\x12\x08\x08\x01\x10\x80\xca\xb5\xee\x01"
                            "\x18\x07\x20\x03";

static void test_reports(void **state)
{
    (void)state;
    size_t len = sizeof usage - 1;
    struct weir_rlqs_reports reports;
    struct weir_diag diag = { 0 };
    assert_int_equal(decode_reports(usage, len, &reports, &diag), 0);
    assert_true(same(reports.domain, "d"));
    assert_int_equal(reports.count, 1);
    const struct weir_rlqs_usage got = reports.usages[0];
    assert_int_equal(got.allowed, 7);
    assert_int_equal(got.denied, 3);
    assert_true(got.elapsed == 3 * WEIR_SECOND / 2);
    assert_int_equal(got.pair_count, 2);
    assert_true(same(got.pairs[0].key, "a") && same(got.pairs[0].value, "1"));
    assert_true(same(got.pairs[1].key, "b") && same(got.pairs[1].value, "2"));
    assert_int_equal(got.bucket.len, 16);
    assert_true(oracle_rlqs(usage, len, &reports));
    struct weir_rng rng = made_seed("rls");
    for (int round = 0; round < ROUNDS; round++)
        wire_check(&rng, oracle_rlqs_type, usage, len, judge_rlqs, NULL);
    /* Cut within the bucket, it is refused. */
    for (size_t cut = 4; cut < len; cut++)
        assert_compare(decode_reports(usage, cut, &reports, NULL), <, 0);
}

static void refuse_report(const char *bytes, size_t len, int error,
                          const char *why)
{
    struct weir_rlqs_reports reports;
    struct weir_diag diag = { 0 };
    assert_int_equal(decode_reports(bytes, len, &reports, &diag), error);
    assert_non_null(strstr(diag.text, why));
}
#define REFUSE_REPORT(literal, error, why) \
    refuse_report(literal, sizeof(literal) - 1, error, why)

static void test_broken_reports(void **state)
{
    (void)state;
    REFUSE_REPORT("\x12\x00", WEIR_EINVAL, "has no pairs");
    REFUSE_REPORT("\x12\x02\x0a\x00", WEIR_EINVAL, "has no pairs");
    REFUSE_REPORT("\x12\x07\x0a\x05\x0a\x03\x0a\x01k", WEIR_EINVAL,
                  "empty key or value");
    REFUSE_REPORT("\x12\x12\x0a\x10"
                  "\x0a\x06\x0a\x01k\x12\x01v\x0a\x06\x0a\x01k\x12\x01v",
                  WEIR_EINVAL, "one key twice");
    REFUSE_REPORT("\x12\x05\x0a", WEIR_ESYNTAX, "no RateLimitQuota");
}

static void hold_action(struct weir_rlqs_action action, const char *bytes,
                        size_t len)
{
    unsigned char buf[128];
    assert_int_equal(weir_rlqs_size(&action), len);
    assert_int_equal(weir_rlqs_encode(&action, buf), len);
    assert_memory_equal(buf, bytes, len);
}

/* Of each kind, for a bucket {k: v}. */
static void test_any_action(void **state)
{
    (void)state;
    static unsigned char buf[256];
    struct weir_rng rng = made_seed("rls");
    for (int round = 0; round < ROUNDS; round++) {
        struct weir_rlqs_action action = {
            .bucket = WEIR_TEXT("\x0a\x06\x0a\x01k\x12\x01v"),
            .what = (enum weir_rlqs_what)below(&rng, WEIR_RLQS_ABANDON + 1),
            .tokens = (uint32_t)weir_rng_next(&rng),
            .interval = weir_rng_next(&rng) >> below(&rng, 64),
            .lives = weir_rng_next(&rng) >> below(&rng, 64),
        };
        size_t len = weir_rlqs_encode(&action, buf);
        assert_int_equal(len, weir_rlqs_size(&action));
        assert_true(oracle_rlqs_action(buf, len, &action));
    }
}
#define HOLD_ACTION(action, literal) \
    hold_action(action, literal, sizeof(literal) - 1)

static void test_actions(void **state)
{
    (void)state;
    struct weir_rlqs_action action = { .bucket = WEIR_TEXT("id"),
                                       .what = WEIR_RLQS_ABANDON,
                                       .lives = 15 * WEIR_SECOND };
    HOLD_ACTION(action, "\x0a\x06\x0a\x02id\x1a\x00");
    action.what = WEIR_RLQS_ALLOW_ALL;
    HOLD_ACTION(action, "\x0a\x0e\x0a\x02id\x12\x08\x12\x02\x08\x0f"
                        "\x1a\x02\x08\x00");
    action.what = WEIR_RLQS_DENY_ALL;
    HOLD_ACTION(action, "\x0a\x0e\x0a\x02id\x12\x08\x12\x02\x08\x0f"
                        "\x1a\x02\x08\x01");
    action.what = WEIR_RLQS_BUCKET;
    action.tokens = 5;
    action.interval = WEIR_SECOND;
    HOLD_ACTION(action, "\x0a\x18\x0a\x02id\x12\x12\x12\x02\x08\x0f"
                        "\x1a\x0c\x1a\x0a\x08\x05\x12\x02\x08\x05"
                        "\x1a\x02\x08\x01");
}

/* ---- Names ---- */

static const char *name_of(const char *domain, const char *key,
                           struct weir_text value, bool glob)
{
    static char shown[1024];
    struct weir_rls_name name;
    weir_rls_name_begin(&name, shown, sizeof shown - 1, weir_text_of(domain));
    weir_rls_name_add(&name, weir_text_of(key), value, glob);
    assert_false(name.too_long);
    shown[name.len] = '\0';
    return shown;
}
#define NAME(domain, key, value) name_of(domain, key, WEIR_TEXT(value), false)

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(NAME("shop", "path", "/cart"),
                        "envoy/shop/path=%2Fcart");
    assert_string_equal(NAME("a/b", "x=y", "x=y"), "envoy/a%2Fb/x%3Dy=x=y");
    assert_string_equal(NAME("d", "k", ""), "envoy/d/k=");
    assert_string_equal(NAME("d", "k", "*?[\\~%"),
                        "envoy/d/k=%2A%3F%5B%5C%7E%25");
    assert_string_equal(NAME("d", "k", "gr\xc3\xbc\xc3\x9f"),
                        "envoy/d/k=gr\xc3\xbc\xc3\x9f");
    assert_string_equal(NAME("d", "k", "\xff\x01\xc2\x80"),
                        "envoy/d/k=%FF%01%C2%80");
    assert_string_equal(name_of("d", "k", WEIR_TEXT("a*/b"), true),
                        "envoy/d/k=a*%2Fb");
}

/* Any bytes give a sound name, and different bytes another. */
static void test_any_names(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("rls");
    for (int round = 0; round < ROUNDS; round++) {
        char value[200];
        char other[200];
        struct weir_text text = { value, below(&rng, sizeof value) };
        for (size_t i = 0; i < text.len; i++)
            value[i] = (char)(below(&rng, 4) ? "ab/%*~"[below(&rng, 6)]
                                             : (int)below(&rng, 256));
        memcpy(other, value, sizeof value);
        struct weir_text same_text = { other, text.len };
        if (text.len > 0)
            other[below(&rng, (uint32_t)text.len)] ^= 1;
        char first[1024];
        strcpy(first, name_of("d", "k", text, false));
        assert_int_equal(weir_given_name_check(weir_text_of(first), NULL), 0);
        assert_true(weir_glob_path_match(WEIR_TEXT("envoy/d/k=*"),
                                         weir_text_of(first)));
        assert_string_equal(first, name_of("d", "k", text, false));
        if (text.len > 0)
            assert_string_not_equal(first, name_of("d", "k", same_text, false));
    }
}

/* ---- Limits ---- */

static int parse_texts(const char *const *texts, size_t count,
                       struct weir_rls_rules **out, size_t *out_file,
                       struct weir_diag *diag)
{
    struct weir_text files[4];
    size_t file;
    for (size_t i = 0; i < count; i++)
        files[i] = weir_text_of(texts[i]);
    int error = weir_rls_rules_parse(files, count, out,
                                     out_file ? out_file : &file, diag);
    return error;
}

static struct weir_rls_rules *parse(const char *text)
{
    struct weir_rls_rules *rules;
    struct weir_diag diag = { 0 };
    int error = parse_texts(&text, 1, &rules, NULL, &diag);
    if (error < 0)
        fail_msg("%u:%u: %s", diag.line, diag.column, diag.text);
    return rules;
}

/* "path=/cart user=ann" in the domain d. */
static const struct weir_rls_rule *find(const struct weir_rls_rules *rules,
                                        const char *asked)
{
    static char buf[256];
    struct weir_rls_entry entries[8];
    uint32_t count = 0;
    snprintf(buf, sizeof buf, "%s", asked);
    for (char *word = strtok(buf, " "); word; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        entries[count++] = (struct weir_rls_entry){ weir_text_of(word),
                                                    weir_text_of(equals + 1) };
    }
    return weir_rls_rules_find(rules, WEIR_TEXT("d"), entries, count);
}

static const char tree[] =
    "domain: d\n"
    "descriptors:\n"
    "- {key: a, value: '1', rate_limit: {unit: second, requests_per_unit: 1},\n"
    "   descriptors: [{key: b, rate_limit:\n"
    "     {unit: second, requests_per_unit: 2}}]}\n"
    "- {key: a, value: 1*, rate_limit: {unit: second, requests_per_unit: 3}}\n"
    "- {key: a, value: '*2', rate_limit: {unit: second,\n"
    "   requests_per_unit: 4}}\n"
    "- {key: a, rate_limit: {unit: second, requests_per_unit: 5},\n"
    "   descriptors: [{key: b, value: x, rate_limit:\n"
    "     {unit: week, requests_per_unit: 6}}]}\n"
    "- {key: bare, descriptors: [{key: c, value: y*z, share_threshold: yes,\n"
    "   rate_limit: {unit: year, requests_per_unit: 7}}]}\n";

static uint32_t limit_of(const struct weir_rls_rules *rules, const char *asked)
{
    const struct weir_rls_rule *rule = find(rules, asked);
    return rule ? rule->requests_per_unit : 0;
}

static void test_finding(void **state)
{
    (void)state;
    struct weir_rls_rules *rules = parse(tree);
    assert_int_equal(limit_of(rules, "a=1"), 1);
    assert_int_equal(limit_of(rules, "a=12"), 3); /* the first in the file */
    assert_int_equal(limit_of(rules, "a=22"), 4);
    assert_int_equal(limit_of(rules, "a=7"), 5);
    assert_int_equal(limit_of(rules, "a="), 5);
    assert_int_equal(limit_of(rules, "a=1 b=q"), 2);
    assert_int_equal(limit_of(rules, "a=7 b=x"), 6);
    /* There is no backtracking: "1*" applies to 12, and has nothing below. */
    assert_int_equal(limit_of(rules, "a=12 b=x"), 0);
    assert_int_equal(limit_of(rules, "a=7 b=y"), 0);
    assert_int_equal(limit_of(rules, "bare=1"), 0);
    assert_int_equal(limit_of(rules, "bare=1 c=yyz"), 7);
    assert_int_equal(limit_of(rules, "z=1"), 0);
    assert_null(weir_rls_rules_find(rules, WEIR_TEXT("e"), NULL, 0));
    weir_rls_rules_free(rules);
    /* A file without descriptors, which has no nodes at all. */
    rules = parse("domain: d\n");
    assert_int_equal(limit_of(rules, "a=1"), 0);
    weir_rls_rules_free(rules);
    /* Neither has an empty list, here or further down. */
    rules = parse("{domain: d, descriptors: []}");
    assert_int_equal(limit_of(rules, "a=1"), 0);
    weir_rls_rules_free(rules);
    rules = parse("{domain: d, descriptors: [{key: a, descriptors: []}]}");
    assert_int_equal(limit_of(rules, "a=1"), 0);
    assert_int_equal(limit_of(rules, "a=1 b=1"), 0);
    weir_rls_rules_free(rules);
}

static void refuse_file(const char *text, int error, uint32_t line,
                        const char *why)
{
    struct weir_rls_rules *rules = NULL;
    struct weir_diag diag = { 0 };
    assert_int_equal(parse_texts(&text, 1, &rules, NULL, &diag), error);
    assert_null(rules);
    assert_int_equal(diag.line, line);
    if (!strstr(diag.text, why))
        fail_msg("'%s' lacks '%s'", diag.text, why);
}

static void test_broken_files(void **state)
{
    (void)state;
    refuse_file("", WEIR_EINVAL, 0, "empty");
    refuse_file("domain: ''\n", WEIR_EINVAL, 1, "empty domain");
    refuse_file("domain: [\n", WEIR_ESYNTAX, 2, "no YAML");
    refuse_file("domain: d\nfoo: 1\n", WEIR_ESYNTAX, 2, "unknown key 'foo'");
    refuse_file("domain: d\ndomain: e\n", WEIR_ESYNTAX, 2, "given twice");
    refuse_file("domain: d\ndescriptors:\n- {value: x}\n", WEIR_EINVAL, 3,
                "empty key");
    refuse_file("domain: d\ndescriptors: 7\n", WEIR_ESYNTAX, 2, "a list");
    refuse_file("domain: d\ndescriptors:\n- {key: a}\n- {key: a}\n",
                WEIR_EEXIST, 4, "duplicate descriptor");
    refuse_file("domain: d\ndescriptors:\n- {key: a, value: x*}\n"
                "- {key: a, value: x*}\n",
                WEIR_EEXIST, 4, "duplicate descriptor");
    refuse_file("domain: d\ndescriptors: [{key: a}]\n---\ndomain: d\n"
                "descriptors: [{key: a}]\n",
                WEIR_EEXIST, 5, "duplicate descriptor");
    refuse_file("domain: d\ndescriptors:\n- key: a\n"
                "  rate_limit: {unit: fortnight, requests_per_unit: 1}\n",
                WEIR_EINVAL, 3, "invalid rate limit unit 'fortnight'");
    refuse_file("domain: d\ndescriptors:\n- key: a\n"
                "  rate_limit: {unit: day, requests_per_unit: 1.5}\n",
                WEIR_ESYNTAX, 4, "a whole number");
    refuse_file("domain: d\ndescriptors:\n- key: a\n"
                "  rate_limit: {unit: day}\n",
                WEIR_EINVAL, 3, "no requests_per_unit");
    refuse_file("domain: d\ndescriptors:\n- key: a\n"
                "  rate_limit: {unit: day, unlimited: true}\n",
                WEIR_EINVAL, 3, "when unlimited");
    refuse_file("domain: d\ndescriptors:\n- key: a\n"
                "  share_threshold: true\n",
                WEIR_EINVAL, 3, "wildcard values");
    refuse_file("domain: d\ndescriptors:\n- key: a\n  rate_limit:\n"
                "    {unlimited: yes, name: x, replaces: [{name: x}]}\n",
                WEIR_EINVAL, 3, "name of same descriptor");
    refuse_file("domain: d\ndescriptors:\n- key: a\n  rate_limit:\n"
                "    {unlimited: yes, name: x, replaces: [{name: ''}]}\n",
                WEIR_EINVAL, 5, "empty replaces");
    refuse_file("domain: !x d\n", WEIR_ESYNTAX, 1, "tags");
    refuse_file("domain: d\ndescriptors:\n- {key: a, metadata: [1]}\n",
                WEIR_ESYNTAX, 3, "metadata must be a mapping");
    refuse_file("domain: d\ndescriptors:\n- key: a\n"
                "  rate_limit: {unlimited: yes}\n  metadata: &m {x: *m}\n",
                WEIR_ETOOBIG, 5, "nested more than 32 deep");
    /* A cycle of aliases ends at the depth bound. */
    refuse_file("domain: d\ndescriptors: &d\n- {key: a, descriptors: *d}\n",
                WEIR_ETOOBIG, 2, "nested more than 16 deep");
}

static void test_blow_up(void **state)
{
    (void)state;
    char text[4096] = "domain: d\ndescriptors:\n- {key: x0, descriptors: &a0 "
                      "[{key: y}]}\n";
    /* Each level refers to the previous one ten times. */
    for (int i = 1; i < 8; i++) {
        char level[400];
        int len = snprintf(level, sizeof level,
                           "- {key: x%d, descriptors: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            len += snprintf(level + len, sizeof level - (size_t)len,
                            "{key: k%d, descriptors: *a%d},", k, i - 1);
        snprintf(level + len, sizeof level - (size_t)len, "]}\n");
        strcat(text, level);
    }
    struct weir_rls_rules *rules = NULL;
    struct weir_diag diag = { 0 };
    const char *texts[] = { text };
    assert_int_equal(parse_texts(texts, 1, &rules, NULL, &diag), WEIR_ETOOBIG);
    assert_non_null(strstr(diag.text, "more than 100000 descriptors"));
    /* 3,000 limits have one metadata, of 100 values. */
    char *many = malloc(1 << 18);
    size_t at = (size_t)sprintf(many, "domain: d\ndescriptors:\n- {key: k, "
                                      "metadata: &m {x: [&s x");
    for (int i = 1; i < 100; i++)
        at += (size_t)sprintf(many + at, ", *s");
    at += (size_t)sprintf(many + at, "]}, rate_limit: &r {unlimited: yes}}\n");
    for (int i = 1; i < 3000; i++)
        at += (size_t)sprintf(
            many + at, "- {key: k%d, metadata: *m, rate_limit: *r}\n", i);
    texts[0] = many;
    assert_int_equal(parse_texts(texts, 1, &rules, NULL, &diag), WEIR_ETOOBIG);
    assert_non_null(strstr(diag.text, "of all limits over 64 MiB"));
    free(many);
}

/* ---- Quotas ---- */

static void hold_quota(const struct weir_quota *quotas, size_t count,
                       const char *name, const char *field, const char *value)
{
    char buf[WEIR_FIELD_VALUE_MAX];
    for (size_t i = 0; i < count; i++) {
        if (!same(quotas[i].name, name))
            continue;
        size_t len = weir_quota_get(&quotas[i], field, buf, sizeof buf);
        assert_int_equal(len, strlen(value));
        assert_memory_equal(buf, value, len);
        return;
    }
    fail_msg("no quota is called %s", name);
}

static void test_quotas(void **state)
{
    (void)state;
    struct weir_rls_rules *rules = parse(tree);
    struct weir_rls_quotas *made;
    const struct weir_quota *quotas;
    size_t count, file;
    struct weir_rls_quotas_options options = { .overflow = 0 };
    assert_int_equal(weir_rls_quotas_new(rules, &options, &made, &quotas,
                                         &count, &file, NULL),
                     0);
    assert_int_equal(count, 7);
    hold_quota(quotas, count, "envoy/d/a=1", "limit", "1/s");
    hold_quota(quotas, count, "envoy/d/a=1", "algorithm", "token_bucket");
    hold_quota(quotas, count, "envoy/d/a=1/b=*", "glob", "path");
    hold_quota(quotas, count, "envoy/d/a=*/b=x", "high_burst", "1w");
    hold_quota(quotas, count, "envoy/d/bare=*/c=y%2Az", "limit", "7/365d");
    weir_rls_quotas_free(made);
    options.overflow = 1000;
    assert_int_equal(weir_rls_quotas_new(rules, &options, &made, &quotas,
                                         &count, &file, NULL),
                     0);
    /* The templates' values share a thousand times the limit of one, by a name
     * that no descriptor has. */
    hold_quota(quotas, count, "envoy/d/a=*/b=x", "overflow",
               "envoy/d/a=%2A/b=x~overflow");
    hold_quota(quotas, count, "envoy/d/a=%2A/b=x~overflow", "limit", "6000/w");
    hold_quota(quotas, count, "envoy/d/a=%2A/b=x~overflow", "high_burst", "1w");
    hold_quota(quotas, count, "envoy/d/a=1", "overflow", "");
    weir_rls_quotas_free(made);
    options.exact = WEIR_TEXT("redis://10.0.0.5:6379");
    assert_int_equal(weir_rls_quotas_new(rules, &options, &made, &quotas,
                                         &count, &file, NULL),
                     0);
    hold_quota(quotas, count, "envoy/d/a=1", "algorithm", "fixed_window");
    hold_quota(quotas, count, "envoy/d/a=1", "sharing", "exact");
    weir_rls_quotas_free(made);
    options.deadline = 5 * WEIR_MILLISECOND;
    options.on_stale = WEIR_STALE_LIMIT;
    assert_int_equal(weir_rls_quotas_new(rules, &options, &made, &quotas,
                                         &count, &file, NULL),
                     0);
    hold_quota(quotas, count, "envoy/d/a=1", "deadline", "5ms");
    hold_quota(quotas, count, "envoy/d/a=1", "on_stale", "limit");
    weir_rls_quotas_free(made);
    weir_rls_rules_free(rules);
}

static void test_files_of_one_domain(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "domain: d\ndescriptors:\n- {key: a, value: x*, rate_limit:\n"
        "  {unit: day, requests_per_unit: 1}}\n",
        "domain: e\n---\ndomain: d\ndescriptors:\n"
        "- {key: a, value: '*y', rate_limit: {unit: day, requests_per_unit: "
        "2}}\n- {key: a, value: q, rate_limit: {unit: day, requests_per_unit: "
        "3}}\n",
        "domain: d\ndescriptors:\n- {key: b, rate_limit: {unit: day, "
        "requests_per_unit: 4}}\n- {key: a, value: q}\n"
    };
    struct weir_rls_rules *rules;
    struct weir_diag diag = { 0 };
    size_t file = 0;
    assert_int_equal(parse_texts(texts, 2, &rules, &file, &diag), 0);
    assert_int_equal(limit_of(rules, "a=xy"), 1);
    assert_int_equal(limit_of(rules, "a=zy"), 2);
    assert_int_equal(limit_of(rules, "a=q"), 3);
    weir_rls_rules_free(rules);
    /* The error is of the file whose descriptor is there already, or of the
     * one that is broken. */
    assert_int_equal(parse_texts(texts, 3, &rules, &file, &diag), WEIR_EEXIST);
    assert_true((file == 1 && diag.line == 6) || (file == 2 && diag.line == 4));
    static const char *const broken[] = { "domain: d\n", "domain: d\nx: 1\n" };
    assert_int_equal(parse_texts(broken, 2, &rules, &file, &diag),
                     WEIR_ESYNTAX);
    assert_int_equal(file, 1);
    assert_int_equal(diag.line, 2);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t number;
    } good[] = {
        { "0100", 64 }, { "0o17", 15 },    { "0x1F", 31 },
        { "0b11", 3 },  { "1_000", 1000 }, { "+5", 5 },
        { "0_7", 7 },   { "0", 0 },        { "4294967295", UINT32_MAX }
    };
    static const char *const bad[] = {
        "08", "1.5", "1e3", "0x", "_", "-1", "'5'", "4294967296", "0b2", "1:30"
    };
    char text[200];
    for (size_t i = 0; i < WEIR_COUNT_OF(good) + WEIR_COUNT_OF(bad); i++) {
        bool is_good = i < WEIR_COUNT_OF(good);
        snprintf(text, sizeof text,
                 "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, "
                 "requests_per_unit: %s}}\n",
                 is_good ? good[i].text : bad[i - WEIR_COUNT_OF(good)]);
        if (!is_good) {
            refuse_file(text, WEIR_ESYNTAX, 3, "octal");
            continue;
        }
        struct weir_rls_rules *rules = parse(text);
        assert_int_equal(limit_of(rules, "a=1"), good[i].number);
        weir_rls_rules_free(rules);
    }
}

#define LONG_ROUTE                                                     \
    "httproute/a-namespace-of-a-team-with-a-long-name/a-route-with-a-" \
    "long-name-too-as-kubernetes-allows-them/rule/0/match/0/"          \
    "www.a-host-of-some-length.example.com"

/* What Envoy Gateway makes of a route: names at the top, nulls, empty lists,
 * the route's name as a key and as a value. */
static void test_gateway(void **state)
{
    (void)state;
    static const char text[] = "name: default/eg/http\n"
                               "domain: default/eg/http\n"
                               "descriptors:\n"
                               "  - key: " LONG_ROUTE "\n"
                               "    value: " LONG_ROUTE "\n"
                               "    rate_limit: null\n"
                               "    descriptors:\n"
                               "      - key: rule-0-match-0\n"
                               "        value: rule-0-match-0\n"
                               "        descriptors:\n"
                               "          - key: masked_remote_address\n"
                               "            value: \"\"\n"
                               "            rate_limit:\n"
                               "              requests_per_unit: 5\n"
                               "              unit: SECOND\n"
                               "              unlimited: false\n"
                               "              name: \"\"\n"
                               "              replaces: []\n"
                               "            descriptors: []\n"
                               "            shadow_mode: false\n"
                               "            detailed_metric: false\n";
    struct weir_rls_rules *rules = parse(text);
    const struct weir_rls_entry entries[] = {
        { WEIR_TEXT(LONG_ROUTE), WEIR_TEXT(LONG_ROUTE) },
        { WEIR_TEXT("rule-0-match-0"), WEIR_TEXT("rule-0-match-0") },
        { WEIR_TEXT("masked_remote_address"), WEIR_TEXT("10.0.0.0/16") },
    };
    const struct weir_rls_rule *rule =
        weir_rls_rules_find(rules, WEIR_TEXT("default/eg/http"), entries, 3);
    assert_non_null(rule);
    struct weir_rls_quotas *made;
    const struct weir_quota *quotas;
    size_t count, file;
    struct weir_diag diag = { 0 };
    const struct weir_rls_quotas_options options = { .overflow = 1000 };
    if (weir_rls_quotas_new(rules, &options, &made, &quotas, &count, &file,
                            &diag) < 0)
        fail_msg("%s", diag.text);
    assert_int_equal(count, 2);
    char buf[WEIR_GIVEN_NAME_MAX];
    struct weir_rls_name name;
    weir_rls_name_begin(&name, buf, sizeof buf, WEIR_TEXT("default/eg/http"));
    weir_rls_quota_name(rule, entries, 3, &name);
    assert_true(weir_glob_path_match(quotas[0].name,
                                     (struct weir_text){ buf, name.len }));
    weir_rls_quotas_free(made);
    weir_rls_rules_free(rules);
    /* This pattern would miss a value that equals its key. */
    rules = parse("domain: d\ndescriptors:\n- {key: " LONG_ROUTE
                  ", value: 'httproute/*', rate_limit: {unit: day, "
                  "requests_per_unit: 1}}\n");
    assert_int_equal(weir_rls_quotas_new(rules, &options, &made, &quotas,
                                         &count, &file, &diag),
                     WEIR_ENAME);
    assert_int_equal(diag.line, 3);
    weir_rls_rules_free(rules);
}

/* A limit that is meant as none has an overflow quota too. */
static void test_any_limit_has_an_overflow(void **state)
{
    (void)state;
    static const char *const units[] = { "second", "minute", "hour", "day",
                                         "week",   "month",  "year" };
    static const uint32_t limits[] = { 0,         1,          1000000,
                                       100000000, 1000000000, 4294967295 };
    static const uint32_t values[] = { 1, 1000, 1000000000 };
    for (size_t i = 0; i < 7 * 6 * 3 * 2; i++) {
        char text[160], limit[64];
        snprintf(text, sizeof text,
                 "domain: d\ndescriptors:\n  - key: k\n    rate_limit: "
                 "{unit: %s, requests_per_unit: %u}\n",
                 units[i % 7], limits[i / 7 % 6]);
        struct weir_rls_rules *rules = parse(text);
        struct weir_rls_quotas *made;
        const struct weir_quota *quotas;
        size_t count, file;
        struct weir_diag diag = { 0 };
        struct weir_rls_quotas_options options = {
            .overflow = values[i / 42 % 3],
            .exact = i / 126 ? WEIR_TEXT("root") : WEIR_TEXT("")
        };
        if (weir_rls_quotas_new(rules, &options, &made, &quotas, &count, &file,
                                &diag) < 0)
            fail_msg("%s: %s", text, diag.text);
        size_t len = weir_quota_get(&quotas[1], "limit", limit, sizeof limit);
        if (i == 5 * 7 + 42)
            hold_quota(quotas, count, "envoy/d/k=%2A~overflow", "limit",
                       "100G/s");
        assert_true(len > 0 && count == 2);
        weir_rls_quotas_free(made);
        weir_rls_rules_free(rules);
    }
}

/* The quota for a descriptor's name, as the catalog finds it: exactly, or by
 * the first template. */
static const struct weir_quota *look_up(const struct weir_quota *quotas,
                                        size_t count, struct weir_text name)
{
    const struct weir_quota *found = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct weir_quota *q = &quotas[i];
        if (weir_text_equal(q->name, name))
            return q;
        if (q->glob != WEIR_GLOB_PATH || !weir_glob_path_match(q->name, name))
            continue;
        if (!found || q->order < found->order ||
            (q->order == found->order &&
             weir_glob_compare(q->name, found->name) < 0))
            found = q;
    }
    return found;
}

/* Random trees, random descriptors: the quota found by their name is the limit
 * that applies in the file. */
static void test_the_same_rules(void **state)
{
    (void)state;
    static const char *const values[] = { "", "x", "xy", "x*", "*y", "z*" };
    struct weir_rng rng = made_seed("rls");
    unsigned ruled = 0;
    for (int round = 0; round < 2000; round++) {
        char text[4096] = "domain: d\ndescriptors:\n";
        for (unsigned bits = below(&rng, 63) + 1, i = 0; i < 6; i++) {
            if (!(bits >> i & 1))
                continue;
            char line[600];
            int len = snprintf(line, sizeof line,
                               "- {key: a, value: \"%s\", rate_limit: {unit: "
                               "second, requests_per_unit: %u}, descriptors: [",
                               values[i], i + 1);
            for (unsigned k = 0; k < 6; k++)
                if (below(&rng, 2))
                    len += snprintf(line + len, sizeof line - (size_t)len,
                                    "{key: b, value: \"%s\", rate_limit: "
                                    "{unit: second, requests_per_unit: %u}},",
                                    values[k], 10 * (i + 1) + k);
            snprintf(line + len, sizeof line - (size_t)len, "]}\n");
            strcat(text, line);
        }
        struct weir_rls_rules *rules = parse(text);
        struct weir_rls_quotas *made;
        const struct weir_quota *quotas;
        size_t count, file;
        const struct weir_rls_quotas_options options = { .overflow = 0 };
        assert_int_equal(weir_rls_quotas_new(rules, &options, &made, &quotas,
                                             &count, &file, NULL),
                         0);
        for (int i = 0; i < 40; i++) {
            static const char *const asked[] = {
                "", "x", "xy", "xx", "zy", "q"
            };
            const struct weir_rls_entry entries[] = {
                { WEIR_TEXT("a"), weir_text_of(asked[below(&rng, 6)]) },
                { WEIR_TEXT("b"), weir_text_of(asked[below(&rng, 6)]) },
            };
            uint32_t depth = 1 + below(&rng, 2);
            const struct weir_rls_rule *rule =
                weir_rls_rules_find(rules, WEIR_TEXT("d"), entries, depth);
            if (!rule)
                continue;
            char buf[WEIR_NAME_MAX];
            struct weir_rls_name name;
            weir_rls_name_begin(&name, buf, sizeof buf, WEIR_TEXT("d"));
            weir_rls_quota_name(rule, entries, depth, &name);
            const struct weir_quota *quota = look_up(
                quotas, count, (struct weir_text){ name.buf, name.len });
            assert_non_null(quota);
            assert_int_equal(quota->limit.units, rule->requests_per_unit);
            ruled++;
        }
        weir_rls_quotas_free(made);
        weir_rls_rules_free(rules);
    }
    assert_compare(ruled, >, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_health),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_broken_reports),
        cmocka_unit_test(test_actions),
        cmocka_unit_test(test_any_action),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_any_names),
        cmocka_unit_test(test_finding),
        cmocka_unit_test(test_broken_files),
        cmocka_unit_test(test_blow_up),
        cmocka_unit_test(test_quotas),
        cmocka_unit_test(test_files_of_one_domain),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_gateway),
        cmocka_unit_test(test_any_limit_has_an_overflow),
        cmocka_unit_test(test_the_same_rules),
    };
    return cmocka_run_group_tests_name("rls", tests, NULL, NULL);
}
