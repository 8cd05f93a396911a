/* SPDX-License-Identifier: MIT
 * test/test_quota.c - the fields of a quota, and what is refused. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "quota/quota_text.h"
#include "quota_maker.h"

/* Sets "field=value;field=value" on a fresh quota and checks it. */
static int build(const char *text, struct weir_quota *out,
                 struct weir_diag *diag)
{
    weir_quota_init(out);
    while (*text) {
        size_t len = strcspn(text, ";");
        const char *equals = strchr(text, '=');
        struct weir_text field = { text, (size_t)(equals - text) };
        struct weir_text value = { equals + 1, len - field.len - 1 };
        int error = weir_quota_set(out, field, value, diag);
        if (error < 0)
            return error;
        text += text[len] ? len + 1 : len;
    }
    return weir_quota_check(out, diag);
}

static void refuse(const char *text, int wanted, const char *sentence)
{
    struct weir_quota quota;
    struct weir_diag diag = { 0 };
    int error = build(text, &quota, &diag);
    if (error != wanted || !strstr(diag.text, sentence))
        fail_msg("'%s' gave %d: %s", text, error, diag.text);
}

static void accept(const char *text)
{
    struct weir_quota quota;
    struct weir_diag diag = { 0 };
    if (build(text, &quota, &diag) < 0)
        fail_msg("'%s' gave: %s", text, diag.text);
}

static void names(void **state)
{
    (void)state;
    accept("name=a");
    accept("name=\xE2\x82\xAC/\xF0\x9F\x98\x80");
    refuse("limit=1/s", WEIR_ENAME, "the name is empty");
    refuse("name=a\tb", WEIR_ENAME, "control character at byte 2");
    refuse("name=a\x7F", WEIR_ENAME, "control character");
    refuse("name=\xC2\x85", WEIR_ENAME, "control character");
    refuse("name=a\xFFz", WEIR_ENAME, "isn't UTF-8 at byte 2");
    refuse("name=\xC0\xAF", WEIR_ENAME, "isn't UTF-8");
    refuse("name=\xED\xA0\x80", WEIR_ENAME, "isn't UTF-8");
    refuse("name=\xF4\x90\x80\x80", WEIR_ENAME, "isn't UTF-8");
    refuse("name=\xE2\x82", WEIR_ENAME, "isn't UTF-8");
    refuse("name=a{1}", WEIR_ENAME, "brace");
    refuse("name=**********", WEIR_ENAME, "more than 9");
    struct weir_text nul = { "a\0b", 3 };
    struct weir_diag diag;
    assert_int_equal(weir_name_check(nul, &diag), WEIR_ENAME);
    assert_non_null(strstr(diag.text, "holds a NUL at byte 2"));
    char name[257];
    memset(name, 'x', sizeof(name));
    assert_int_equal(weir_name_check((struct weir_text){ name, 255 }, NULL),
                     0);
    assert_int_equal(weir_name_check((struct weir_text){ name, 256 }, &diag),
                     WEIR_ENAME);
    assert_non_null(strstr(diag.text, "too long"));
}

static void parents(void **state)
{
    (void)state;
    accept("name=a;parent=b");
    accept("name=s3_*_put;parent=s3_{1}");
    accept("name=s3_*;parent=s3");
    refuse("name=a;parent=b{1}", WEIR_ENAME, "of a template only");
    refuse("name=a;parent=b*", WEIR_ENAME, "holds a '*'");
    refuse("name=a*;parent=b*", WEIR_ENAME, "write {1}");
    refuse("name=a*;parent=b{2}", WEIR_ENAME, "no '*' for");
    refuse("name=a*;parent=b{0}", WEIR_ENAME, "isn't part of");
    refuse("name=a*;parent=b{1", WEIR_ENAME, "isn't part of");
    refuse("name=a*;parent=b}", WEIR_ENAME, "isn't part of");
    refuse("name=a*b*;parent=a{1}b{2}", WEIR_ECYCLE, "itself");
    refuse("name=a;overflow=b", WEIR_EQUOTA, "no template");
    refuse("name=a*;overflow=b*", WEIR_ENAME, "name one quota");
    accept("name=a*;overflow=b");
}

static void combinations(void **state)
{
    (void)state;
    accept("name=a;sharing=local");
    accept("name=a;sharing=counted;kind=rate;algorithm=leaky");
    refuse("name=a;sharing=leased", WEIR_EQUOTA,
           "sharing=leased isn't built into this version; use counted or "
           "local");
    refuse("name=a;sharing=exact", WEIR_EQUOTA, "sharing=exact isn't built");
    refuse("name=a;sharing=adaptive", WEIR_EQUOTA, "kind=concurrency only");
    refuse("name=a;kind=concurrency", WEIR_EQUOTA,
           "kind=concurrency isn't built");
    refuse("name=a;algorithm=pacer", WEIR_EQUOTA,
           "algorithm=pacer isn't built into this version; use leaky");
    refuse("name=a;algorithm=magic", WEIR_EQUOTA, "it is one of leaky");
    refuse("name=a;mode=loud", WEIR_EQUOTA, "enforce, shadow, off");
    struct weir_quota quota;
    build("name=a", &quota, NULL);
    quota.sharing = (enum weir_sharing)99;
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
    build("name=a", &quota, NULL);
    quota.algorithm = (enum weir_algorithm)0;
    assert_int_equal(weir_quota_check(&quota, NULL), WEIR_EQUOTA);
}

static void unknown_fields_name_the_nearest(void **state)
{
    (void)state;
    refuse("limt=1/s", WEIR_ENOENT, "did you mean 'limit'");
    refuse("hig_burst=1", WEIR_ENOENT, "did you mean 'high_burst'");
    refuse("a_field_with_a_name_far_longer_than_any=1", WEIR_ENOENT, "did");
    refuse("id=1", WEIR_EQUOTA, "the store's to set");
    refuse("name=a*;order=-1", WEIR_EQUOTA, "whole number");
    refuse("name=a*;order=4294967296", WEIR_EQUOTA, "whole number");
}

static void check_bursts(const char *text, uint64_t low, uint64_t high)
{
    struct weir_quota quota;
    struct weir_diag diag;
    if (build(text, &quota, &diag) < 0)
        fail_msg("'%s' gave: %s", text, diag.text);
    uint64_t got_low;
    uint64_t got_high;
    weir_quota_bursts(&quota, &got_low, &got_high);
    if (got_low != low || got_high != high)
        fail_msg("'%s' gave %llu and %llu", text,
                 (unsigned long long)got_low, (unsigned long long)got_high);
}

static void bursts_in_units(void **state)
{
    (void)state;
    check_bursts("name=a;limit=100/s", 100, 150);
    check_bursts("name=a;limit=1/day", 1, 1);
    check_bursts("name=a;limit=3/2s", 2, 3);
    check_bursts("name=a;limit=1/s", 1, 2);
    check_bursts("name=a;limit=0", 0, 1);
    check_bursts("name=a;limit=100G/s;low_burst=366d;high_burst=366d",
                 WEIR_BURST_MAX, WEIR_BURST_MAX);
    check_bursts("name=a;limit=100/s;low_burst=0", 0, 150);
    check_bursts("name=a;limit=100/s;low_burst=0;high_burst=0", 0, 1);
    /* one alone is never an error */
    check_bursts("name=a;limit=100/s;high_burst=500ms", 50, 50);
    check_bursts("name=a;limit=100/s;high_burst=10", 10, 10);
    check_bursts("name=a;limit=100/s;high_burst=120", 100, 120);
    check_bursts("name=a;limit=100/s;low_burst=5s", 500, 500);
    check_bursts("name=a;limit=100/s;low_burst=140", 140, 150);
    check_bursts("name=a;limit=100/s;low_burst=1000", 1000, 1000);
    /* both, mixed */
    check_bursts("name=a;limit=100/s;low_burst=100;high_burst=1s", 100, 100);
    check_bursts("name=a;limit=0;low_burst=100;high_burst=1s", 1, 1);
    refuse("name=a;limit=100/s;low_burst=101;high_burst=1s", WEIR_EQUOTA,
           "low_burst 101 is above high_burst 1s");
    refuse("name=a;limit=100/s;low_burst=2s;high_burst=1s", WEIR_EQUOTA,
           "is above");
    refuse("name=a;limit=0;low_burst=2;high_burst=1", WEIR_EQUOTA,
           "is above");
}

static void labels_and_descriptions(void **state)
{
    (void)state;
    char buf[WEIR_LABELS_MAX];
    struct weir_text out;
    assert_int_equal(weir_labels_parse(WEIR_TEXT("b=2, a=1,,c=x=y "), buf,
                                       &out, NULL), 0);
    assert_true(weir_text_equal(out, WEIR_TEXT("a=1\nb=2\nc=x=y")));
    struct weir_diag diag;
    assert_int_equal(weir_labels_parse(WEIR_TEXT("a=1,a=2"), buf, &out,
                                       &diag), WEIR_EQUOTA);
    assert_non_null(strstr(diag.text, "'a' is given twice"));
    assert_int_equal(weir_labels_parse(WEIR_TEXT("a"), buf, &out, &diag),
                     WEIR_EQUOTA);
    assert_int_equal(weir_labels_parse(WEIR_TEXT("a b=1"), buf, &out, &diag),
                     WEIR_EQUOTA);
    refuse("name=a;labels=b=1\na=1", WEIR_EQUOTA, "aren't sorted");
    refuse("name=a;labels=a=1\n", WEIR_EQUOTA, "empty line");
    refuse("name=a;labels=a=\x01", WEIR_EQUOTA, "control");
    refuse("name=a;description=\xFF", WEIR_EQUOTA, "isn't UTF-8");
    accept("name=a;description=two\nlines\t.;labels=a=1\nb=");
    char long_text[1100];
    memset(long_text, 'x', sizeof(long_text));
    struct weir_quota quota;
    build("name=a", &quota, NULL);
    quota.description = (struct weir_text){ long_text, 1025 };
    assert_int_equal(weir_quota_check(&quota, &diag), WEIR_EQUOTA);
}

/* Every field of a random quota, read back from its text. */
static void fields_are_read_back(void **state)
{
    (void)state;
    struct weir_rng rng = maker_seed("fields");
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (unsigned i = 0; i < 5000; i++) {
        static struct made_quota made;
        make_quota(&rng, i, &made);
        struct weir_quota back;
        weir_quota_init(&back);
        static char values[20][WEIR_FIELD_VALUE_MAX];
        for (size_t f = 0; f < count; f++) {
            size_t len = weir_quota_get(&made.quota, fields[f].name,
                                        values[f], sizeof(values[f]));
            struct weir_text value = { values[f], len };
            bool skip = fields[f].read_only ||
                        weir_quota_is_default(&made.quota, fields[f].name);
            if (!skip)
                assert_int_equal(
                    weir_quota_set(&back, weir_text_of(fields[f].name),
                                   value, NULL), 0);
        }
        assert_true(weir_quota_equal(&made.quota, &back));
        uint64_t want[2];
        uint64_t got[2];
        if (back.limit.unlimited)
            continue;
        weir_quota_bursts(&made.quota, &want[0], &want[1]);
        weir_quota_bursts(&back, &got[0], &got[1]);
        assert_memory_equal(want, got, sizeof(want));
    }
}

static void an_empty_value_is_the_default(void **state)
{
    (void)state;
    struct weir_quota quota;
    struct weir_quota fresh;
    assert_int_equal(build("name=a;limit=5/s;low_burst=1;mode=off;"
                           "sharing=local;parent=p;limit=;low_burst=;mode=;"
                           "sharing=;parent=", &quota, NULL), 0);
    build("name=a", &fresh, NULL);
    assert_true(weir_quota_equal(&quota, &fresh));
}

/* Every byte at every place of a text that is plain otherwise: whole words of
 * plain text are passed over, and nothing else is. */
static void clean_text_ends_where_a_byte_is_not(void **state)
{
    (void)state;
    char text[21] = "a/~ Z0123456789~/ bc";
    for (size_t at = 0; at < 20; at++) {
        for (unsigned byte = 0; byte < 256; byte++) {
            char before = text[at];
            text[at] = (char)byte;
            bool plain = byte >= 0x20 && byte < 0x7F;
            size_t clean = weir_utf8_clean((struct weir_text){ text, 20 }, "");
            assert_int_equal(clean, plain ? 20 : at);
            text[at] = before;
        }
    }
    assert_int_equal(weir_utf8_clean(WEIR_TEXT("12345678\u00e9"), ""), 10);
    assert_int_equal(weir_utf8_clean(WEIR_TEXT("1234567\t\n"), "\t\n"), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(clean_text_ends_where_a_byte_is_not),
        cmocka_unit_test(parents),
        cmocka_unit_test(combinations),
        cmocka_unit_test(unknown_fields_name_the_nearest),
        cmocka_unit_test(bursts_in_units),
        cmocka_unit_test(labels_and_descriptions),
        cmocka_unit_test(fields_are_read_back),
        cmocka_unit_test(an_empty_value_is_the_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
