/* SPDX-License-Identifier: MIT
 * test/codec/test_yaml.c - sets of quotas as YAML, and where errors are
 * reported. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/yaml.h"
#include "quota_maker.h"

static void reads_what_people_write(void **state)
{
    (void)state;
    static const char text[] =
        "# quotas of the site\n"
        "weir: 1\n"
        "quotas:\n"
        "  - name: site\n"
        "    limit: 1000/s\n"
        "  - {name: \"client_*\", parent: site, limit: 100/s, order: 3,\n"
        "     labels: {team: web, env: 'a,b '}}\n"
        "  - name: 17\n"
        "    parent: ~\n"
        "    limit:\n"
        "    description: |\n"
        "      two\n"
        "      lines\n";
    struct weir_yaml *yaml;
    struct weir_quota *quotas;
    size_t count;
    struct weir_diag diag = { 0 };
    if (weir_yaml_parse(weir_text_of(text), &yaml, &quotas, &count, &diag) < 0)
        fail_msg("%u:%u %s", diag.line, diag.column, diag.text);
    assert_int_equal(count, 3);
    assert_true(weir_text_equal(quotas[0].name, WEIR_TEXT("site")));
    assert_int_equal(quotas[0].limit.units, 1000);
    assert_int_equal(quotas[1].order, 3);
    assert_true(
        weir_text_equal(quotas[1].labels, WEIR_TEXT("env=a,b \nteam=web")));
    assert_true(weir_text_equal(quotas[2].name, WEIR_TEXT("17")));
    assert_int_equal(quotas[2].parent.len, 0);
    assert_true(quotas[2].limit.unlimited);
    assert_true(
        weir_text_equal(quotas[2].description, WEIR_TEXT("two\nlines\n")));
    weir_yaml_free(yaml);
}

static void refuse(const char *text, int wanted, uint32_t line, uint32_t column,
                   const char *sentence)
{
    struct weir_yaml *yaml = NULL;
    struct weir_quota *quotas = NULL;
    size_t count = 77;
    struct weir_diag diag = { 0 };
    int error =
        weir_yaml_parse(weir_text_of(text), &yaml, &quotas, &count, &diag);
    if (error != wanted || diag.line != line || diag.column != column ||
        !strstr(diag.text, sentence))
        fail_msg("gave %d at %u:%u: %s\n%s", error, diag.line, diag.column,
                 diag.text, text);
    assert_null(yaml);
    assert_int_equal(count, 77);
}

#define HEAD "weir: 1\nquotas:\n"

static void refuses_with_line_and_column(void **state)
{
    (void)state;
    refuse("", WEIR_ESYNTAX, 1, 1, "must begin with");
    refuse("[]", WEIR_ESYNTAX, 1, 1, "must begin with");
    refuse("weir: 2\nquotas: []\n", WEIR_ESYNTAX, 1, 7, "'weir: 1'");
    refuse("weir: 1\n", WEIR_ESYNTAX, 2, 1, "must hold");
    refuse("quotas: []\n", WEIR_ESYNTAX, 2, 1, "must hold");
    refuse("weir: 1\nweird: 2\n", WEIR_ESYNTAX, 2, 1, "two keys");
    refuse("weir: 1\nquotas: []\nweir: 1\n", WEIR_ESYNTAX, 3, 1,
           "first on line 1");
    refuse("weir: 1\nquotas: {a: b}\n", WEIR_ESYNTAX, 2, 9, "a list");
    refuse(HEAD "  - a\n", WEIR_ESYNTAX, 3, 5, "must be a mapping");
    refuse(HEAD "  - name: a\n    limt: 1/s\n", WEIR_ENOENT, 4, 5,
           "did you mean 'limit'");
    refuse(HEAD "  - name: a\n    id: 4\n", WEIR_EQUOTA, 4, 5, "store's");
    refuse(HEAD "  - name: a\n    limit: -5/s\n", WEIR_EQUOTA, 4, 12,
           "negative");
    refuse(HEAD "  - name: a\n    limit: [1]\n", WEIR_ESYNTAX, 4, 12,
           "text or number");
    refuse(HEAD "  - name: a\n    labels: x=y\n", WEIR_ESYNTAX, 4, 13,
           "mapping");
    refuse(HEAD "  - name: a\n    labels: {a b: c}\n", WEIR_EQUOTA, 4, 13,
           "key of the label");
    refuse(HEAD "  - name: a\n    labels: {a: 1, a: 2}\n", WEIR_EQUOTA, 4, 13,
           "given twice");
    refuse(HEAD "  - name: a\n    labels: {a: [b]}\n", WEIR_ESYNTAX, 4, 17,
           "must be a text");
    refuse(HEAD "  - limit: 1/s\n", WEIR_ENAME, 3, 5, "name is empty");
    refuse(HEAD "  - name: null\n", WEIR_ENAME, 3, 11, "name is empty");
    refuse(HEAD "  - name: a\n    limit: 1/s\n    limit: 2/s\n", WEIR_ESYNTAX,
           5, 5, "'limit' is given twice; first on line 4");
    refuse(HEAD "  - name: a\n  - name: b\n  - name: a\n", WEIR_EEXIST, 5, 11,
           "'a' is given twice; first on line 3");
    refuse(HEAD "  - name: a\n    low_burst: 2s\n    high_burst: 1s\n",
           WEIR_EQUOTA, 3, 11, "is above");
    refuse(HEAD "  - name: \"a\\0b\"\n", WEIR_ENAME, 3, 11, "NUL");
    refuse(HEAD "  - &x\n    name: a\n", WEIR_ESYNTAX, 3, 5, "anchors");
    refuse(HEAD "  - name: *x\n", WEIR_ESYNTAX, 3, 11, "anchors");
    refuse(HEAD "  - name: !!str a\n", WEIR_ESYNTAX, 3, 11, "tags");
    refuse(HEAD "  - ? [a]\n    : b\n", WEIR_ESYNTAX, 3, 7, "plain word");
    refuse(HEAD "  - name: a\n   limit: 1/s\n", WEIR_ESYNTAX, 4, 4,
           "this is no YAML");
    refuse(HEAD "  - name: 'a\n", WEIR_ESYNTAX, 4, 1, "this is no YAML");
    refuse(HEAD "  - name: a\n--- x\n", WEIR_ESYNTAX, 4, 1, "second document");
    refuse(HEAD "  - name: a\tb\xFF\n", WEIR_ESYNTAX, 1, 1, "no YAML");
}

/* The order of a set of quotas doesn't matter; each comes back unchanged. */
static void check_round_trip(struct made_quota *made, size_t count)
{
    const struct weir_quota **list = calloc(count + 1, sizeof(*list));
    for (size_t i = 0; i < count; i++)
        list[i] = &made[i].quota;
    size_t len = 0;
    char *text = weir_yaml_print(list, count, &len);
    assert_non_null(text);
    assert_int_equal(strlen(text), len);
    struct weir_yaml *yaml;
    struct weir_quota *quotas;
    size_t read;
    struct weir_diag diag = { 0 };
    if (weir_yaml_parse((struct weir_text){ text, len }, &yaml, &quotas, &read,
                        &diag) < 0)
        fail_msg("%u:%u %s\n%s", diag.line, diag.column, diag.text, text);
    assert_int_equal(read, count);
    for (size_t i = 0; i < count; i++) {
        if (!weir_quota_equal(&quotas[i], &made[i].quota))
            fail_msg("quota %zu differs\n%s", i, text);
    }
    weir_yaml_free(yaml);
    free(text);
    free(list);
}

static void an_export_is_read_back(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("yaml");
    enum { QUOTAS = 100 };
    struct made_quota *made = calloc(QUOTAS, sizeof(*made));
    for (int round = 0; round < 60; round++) {
        size_t count = weir_rng_below(&rng, QUOTAS + 1);
        for (unsigned i = 0; i < count; i++) {
            make_quota(&rng, i, &made[i]);
            if (i > 0 && weir_rng_below(&rng, 2) == 0 &&
                !weir_quota_is_template(&made[i - 1].quota))
                made[i].quota.parent = made[i - 1].quota.name;
        }
        check_round_trip(made, count);
    }
    free(made);
}

/* A text that people choose may be a word that means absence in YAML. */
static void words_for_absence_are_texts(void **state)
{
    (void)state;
    struct made_quota made[2];
    for (int i = 0; i < 2; i++)
        weir_quota_init(&made[i].quota);
    made[0].quota.name = made[0].quota.description = WEIR_TEXT("null");
    made[1].quota.name = WEIR_TEXT("~");
    made[1].quota.kind = WEIR_CONCURRENCY;
    made[1].quota.sharing = WEIR_ADAPTIVE;
    made[1].quota.classes = WEIR_TEXT("null");
    made[1].quota.parent = made[0].quota.name;
    check_round_trip(made, 2);
}

static void an_export_is_for_people(void **state)
{
    (void)state;
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT("site/put");
    quota.limit = (struct weir_limit){ 1000, WEIR_SECOND, false };
    quota.labels = WEIR_TEXT("env=true\nteam=web");
    const struct weir_quota *list[] = { &quota };
    size_t len;
    char *text = weir_yaml_print(list, 1, &len);
    assert_string_equal(text, "weir: 1\n"
                              "quotas:\n"
                              "- name: site/put\n"
                              "  limit: 1000/s\n"
                              "  labels: {env: \"true\", team: web}\n");
    free(text);
    text = weir_yaml_print(list, 0, &len);
    assert_string_equal(text, "weir: 1\nquotas: []\n");
    free(text);
}

/* Any cut and any changed byte gives an answer, not a crash. */
static void broken_files_are_answered(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("broken yaml");
    static const char text[] =
        "weir: 1\nquotas:\n- name: a\n  labels: {a: b, c: \"d\\n\"}\n"
        "- {name: 'b', limit: 1.5/s, description: \"\\u0041 x\"}\n";
    char broken[sizeof(text)];
    for (int i = 0; i < 20000; i++) {
        size_t len = weir_rng_below(&rng, sizeof(text));
        memcpy(broken, text, len);
        for (int k = 0; len > 0 && k < 3; k++)
            broken[weir_rng_below(&rng, len)] =
                "{}[]:-\"'\n #&*!|>%@\\\x80 a"[weir_rng_below(&rng, 22)];
        struct weir_yaml *yaml;
        struct weir_quota *quotas;
        size_t count;
        struct weir_diag diag = { 0 };
        int error = weir_yaml_parse((struct weir_text){ broken, len }, &yaml,
                                    &quotas, &count, &diag);
        if (error == 0)
            weir_yaml_free(yaml);
        else
            assert_true(diag.line > 0 && diag.text[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_people_write),
        cmocka_unit_test(refuses_with_line_and_column),
        cmocka_unit_test(an_export_is_read_back),
        cmocka_unit_test(words_for_absence_are_texts),
        cmocka_unit_test(an_export_is_for_people),
        cmocka_unit_test(broken_files_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
