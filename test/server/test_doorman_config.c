/* SPDX-License-Identifier: MIT
 * test/server/test_doorman_config.c - Doorman files: which are accepted, mended
 * or refused, and the messages. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/quota/quota.h"
#include "server/doorman/doorman_config.h"

#define ALGORITHM "{kind: STATIC, lease_length: 60, refresh_interval: 5}"
#define STAR_HEAD "- identifier_glob: \"*\"\n  capacity: 1\n"
#define STAR STAR_HEAD "  algorithm: " ALGORITHM "\n"

static struct weir_doorman_config *parse(const char *text)
{
    struct weir_doorman_config *config = NULL;
    struct weir_diag diag = { 0 };
    int error = weir_doorman_config_parse(weir_text_of(text), &config, &diag);
    if (error < 0)
        fail_msg("%u:%u %s\n%s", diag.line, diag.column, diag.text, text);
    return config;
}

static void refused(const char *text, int wanted, uint32_t line,
                    const char *sentence)
{
    struct weir_doorman_config *config = NULL;
    struct weir_diag diag = { 0 };
    int error = weir_doorman_config_parse(weir_text_of(text), &config, &diag);
    if (error != wanted || diag.line != line ||
        strcmp(diag.text, sentence) != 0)
        fail_msg("gave %d on line %u: %s\n%s", error, diag.line, diag.text,
                 text);
    assert_null(config);
    assert_int_equal(
        weir_doorman_config_parse(weir_text_of(text), &config, NULL), wanted);
}

static const struct weir_doorman_template *template_of(
    const struct weir_doorman_config *config, size_t i)
{
    size_t count;
    const struct weir_doorman_template *templates =
        weir_doorman_config_templates(config, &count);
    assert_compare(i, <, count);
    return &templates[i];
}

#define TEXT_IS(text, literal) \
    assert_true(weir_text_equal(text, WEIR_TEXT(literal)))

/* ---- Accepted files ---- */

static void reads_every_key(void **state)
{
    (void)state;
    struct weir_doorman_config *config =
        parse("# ours\n"
              "resources:\n"
              "- identifier_glob: db/*\n"
              "  capacity: 500.5\n"
              "  safe_capacity: -1\n"
              "  description: the database\n"
              "  algorithm:\n"
              "    kind: FAIR_SHARE\n"
              "    lease_length: 60\n"
              "    refresh_interval: 15\n"
              "    learning_mode_duration: 30\n"
              "    parameters:\n"
              "    - {name: variant, value: '2'}\n"
              "    - name: odd\n" STAR);
    size_t count;
    const struct weir_doorman_template *one =
        weir_doorman_config_templates(config, &count);
    assert_int_equal(count, 2);
    TEXT_IS(one->glob, "db/*");
    TEXT_IS(one->description, "the database");
    assert_true(one->capacity == 500.5 && one->safe_given);
    assert_true(one->safe_capacity == -1);
    assert_int_equal(one->kind, WEIR_DOORMAN_FAIR_SHARE);
    assert_int_equal(one->lease, 60 * WEIR_SECOND);
    assert_int_equal(one->refresh, 15 * WEIR_SECOND);
    assert_int_equal(one->learning, 30 * WEIR_SECOND);
    assert_true(one->learning_given);
    assert_int_equal(one->parameter_count, 2);
    TEXT_IS(one->parameters[0].name, "variant");
    TEXT_IS(one->parameters[0].value, "2");
    assert_int_equal(one->parameters[1].value.len, 0);
    assert_int_equal(one->line, 3);
    assert_int_equal(one[1].line, 15);
    assert_false(one[1].safe_given);
    const struct weir_diag *warnings;
    assert_int_equal(weir_doorman_config_warnings(config, &warnings), 0);
    weir_doorman_config_free(config);
}

/* Absent: the lease's length. 0 or less: none. */
static void learning_has_a_default(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        bool given;
        weir_duration learning;
    } rows[] = {
        { "", false, 60 * WEIR_SECOND },
        { "learning_mode_duration: ~, ", false, 60 * WEIR_SECOND },
        { "learning_mode_duration: 0, ", true, 0 },
        { "learning_mode_duration: -7, ", true, 0 },
        { "learning_mode_duration: 2.0, ", true, 2 * WEIR_SECOND },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        char text[400];
        snprintf(text, sizeof(text),
                 "resources:\n" STAR_HEAD
                 "  algorithm: {%slease_length: 60, refresh_interval: 60}\n",
                 rows[i].value);
        struct weir_doorman_config *config = parse(text);
        const struct weir_doorman_template *star = template_of(config, 0);
        assert_int_equal(star->learning, rows[i].learning);
        assert_int_equal(star->learning_given, rows[i].given);
        assert_int_equal(star->kind, WEIR_DOORMAN_NO_ALGORITHM);
        weir_doorman_config_free(config);
    }
}

static void kinds_are_names_or_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        enum weir_doorman_kind kind;
        bool lost;
    } rows[] = {
        { "NO_ALGORITHM", WEIR_DOORMAN_NO_ALGORITHM, false },
        { "STATIC", WEIR_DOORMAN_STATIC, false },
        { "'PROPORTIONAL_SHARE'", WEIR_DOORMAN_PROPORTIONAL_SHARE, false },
        { "FAIR_SHARE", WEIR_DOORMAN_FAIR_SHARE, false },
        { "0", WEIR_DOORMAN_NO_ALGORITHM, false },
        { "3", WEIR_DOORMAN_FAIR_SHARE, false },
        { "7", WEIR_DOORMAN_NO_ALGORITHM, true },
        { "-1", WEIR_DOORMAN_NO_ALGORITHM, true },
        { "9e15", WEIR_DOORMAN_NO_ALGORITHM, true },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        char text[400];
        snprintf(text, sizeof(text),
                 "resources:\n" STAR_HEAD
                 "  algorithm: {kind: %s, lease_length: 60, "
                 "refresh_interval: 5}\n",
                 rows[i].word);
        struct weir_doorman_config *config = parse(text);
        assert_int_equal(template_of(config, 0)->kind, rows[i].kind);
        const struct weir_diag *warnings;
        assert_int_equal(weir_doorman_config_warnings(config, &warnings),
                         rows[i].lost);
        weir_doorman_config_free(config);
    }
}

/* In any case, also in JSON; an algorithm defined once and used twice. */
static void reads_other_spellings(void **state)
{
    (void)state;
    struct weir_doorman_config *config =
        parse("{\"Resources\": [{\"IDENTIFIER_GLOB\": 17, \"capacity\": 1e2,\n"
              "  \"Algorithm\": &usual {\"Kind\": 1, \"lease_length\": 6e1,\n"
              "  \"refresh_Interval\": +5}},\n"
              " {identifier_glob: '*', capacity: .5, algorithm: *usual}]}");
    TEXT_IS(template_of(config, 0)->glob, "17");
    assert_true(template_of(config, 0)->capacity == 100);
    assert_true(template_of(config, 1)->capacity == 0.5);
    assert_int_equal(template_of(config, 1)->kind, WEIR_DOORMAN_STATIC);
    assert_int_equal(template_of(config, 1)->lease, 60 * WEIR_SECOND);
    weir_doorman_config_free(config);
}

/* ---- Mended files ---- */

static void warned(const char *text, size_t count, uint32_t line,
                   const char *sentence)
{
    struct weir_doorman_config *config = parse(text);
    const struct weir_diag *warnings;
    assert_int_equal(weir_doorman_config_warnings(config, &warnings), count);
    if (warnings[0].line != line || strcmp(warnings[0].text, sentence) != 0)
        fail_msg("warned on line %u: %s", warnings[0].line, warnings[0].text);
    weir_doorman_config_free(config);
}

static void mends_with_a_warning(void **state)
{
    (void)state;
    warned("resources:\n- {identifier_glob: a, capcity: 3, capacity: 1,\n"
           "   algorithm: " ALGORITHM "}\n" STAR,
           1, 2, "no key is called 'capcity': it is ignored");
    warned("version: 2\nresources:\n" STAR, 1, 1,
           "no key is called 'version': it is ignored");
    warned("resources:\n- {identifier_glob: a, capacity: 1}\n" STAR, 1, 2,
           "the entry of 'a' has no algorithm: it is NO_ALGORITHM");
    warned("resources:\n- {identifier_glob: a, safe_capacity: 1,\n"
           "   algorithm: " ALGORITHM "}\n" STAR,
           1, 2, "the entry of 'a' has no capacity: it is 0");
    warned("resources:\n- {identifier_glob: a, capacity: 1e15,\n"
           "   algorithm: " ALGORITHM "}\n" STAR,
           1, 2,
           "the entry of 'a' has a capacity that a limit can't have: it is "
           "1e11 at most, and 0 if it is tiny");
    warned("resources:\n- {capacity: 1, algorithm: " ALGORITHM "}\n" STAR, 1, 2,
           "an entry without identifier_glob matches nothing");
    warned("resources:\n- {identifier_glob: a, capacity: 1, algorithm:\n"
           "   " ALGORITHM "}\n"
           "- {identifier_glob: a, capacity: 2, algorithm: " ALGORITHM
           "}\n" STAR,
           1, 4,
           "there is an earlier entry of 'a', which rules: this one is never "
           "used");

    struct weir_doorman_config *config =
        parse("resources:\n- {identifier_glob: a, capacity: 1}\n" STAR);
    const struct weir_doorman_template *one = template_of(config, 0);
    assert_int_equal(one->kind, WEIR_DOORMAN_NO_ALGORITHM);
    assert_int_equal(one->lease, WEIR_DOORMAN_LEASE_DEFAULT);
    assert_int_equal(one->refresh, WEIR_DOORMAN_REFRESH_DEFAULT);
    assert_int_equal(one->learning, WEIR_DOORMAN_LEASE_DEFAULT);
    weir_doorman_config_free(config);
}

static void counts_more_warnings_than_it_keeps(void **state)
{
    (void)state;
    char text[4000] = "resources:\n" STAR;
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text),
                 "  key%d: 1\n", i);
    struct weir_doorman_config *config = parse(text);
    const struct weir_diag *warnings;
    assert_int_equal(weir_doorman_config_warnings(config, &warnings), 40);
    assert_int_equal(warnings[WEIR_DOORMAN_WARNINGS_MAX - 1].line,
                     5 + WEIR_DOORMAN_WARNINGS_MAX - 1);
    weir_doorman_config_free(config);
}

/* ---- Refused files ---- */

static void refuses_as_the_original(void **state)
{
    (void)state;
    refused("resources:\n- {identifier_glob: 'a[', capacity: 1}\n" STAR,
            WEIR_ESYNTAX, 2, "syntax error in pattern");
    static const char missing[] =
        "must have a refresh interval and a lease length";
    refused("resources:\n" STAR_HEAD "  algorithm: {}\n", WEIR_EINVAL, 2,
            missing);
    refused("resources:\n" STAR_HEAD "  algorithm: {lease_length: 5}\n",
            WEIR_EINVAL, 2, missing);
    refused("resources:\n- {identifier_glob: a, capacity: 1, algorithm:\n"
            "   {kind: STATIC, refresh_interval: 5}}\n" STAR,
            WEIR_EINVAL, 2, missing);
    refused("resources:\n" STAR_HEAD
            "  algorithm: {lease_length: 5, refresh_interval: 0}\n",
            WEIR_EINVAL, 2,
            "invalid refresh interval, must be at least 1 second");
    refused("resources:\n" STAR_HEAD
            "  algorithm: {lease_length: 0, refresh_interval: 1}\n",
            WEIR_EINVAL, 2, "Invalid lease length, must be at least 1 second");
    refused("resources:\n" STAR_HEAD
            "  algorithm: {lease_length: 5, refresh_interval: 6}\n",
            WEIR_EINVAL, 2,
            "Lease length must be larger than the refresh interval");
    refused("resources:\n" STAR_HEAD, WEIR_EINVAL, 2,
            "the entry for * must specify an algorithm");
    refused("resources:\n" STAR STAR, WEIR_EINVAL, 2,
            "the entry for \"*\" must be the last one");
    static const char no_star[] = "the resource respository must contain at "
                                  "least an entry for \"*\"";
    refused("", WEIR_EINVAL, 0, no_star);
    refused("~\n", WEIR_EINVAL, 0, no_star);
    refused("resources:\n", WEIR_EINVAL, 0, no_star);
    refused("resources: []\n", WEIR_EINVAL, 0, no_star);
    refused("resources:\n- {identifier_glob: a, capacity: 1}\n", WEIR_EINVAL, 0,
            no_star);
}

static void refuses_other_types(void **state)
{
    (void)state;
    refused("[]", WEIR_ESYNTAX, 1,
            "cannot unmarshal the file: it must be a mapping");
    refused("resources: 5\n", WEIR_ESYNTAX, 1,
            "cannot unmarshal resources: it must be a list");
    refused("resources: [a]\n", WEIR_ESYNTAX, 1,
            "cannot unmarshal an entry of resources: it must be a mapping");
    refused("resources:\n- identifier_glob: [a]\n", WEIR_ESYNTAX, 2,
            "cannot unmarshal identifier_glob: it must be a text");
    static const char *const numbers[] = {
        "\"100\"", "1OO", "010", "0x10", "1_000", ".inf",  ".nan",
        "1e999",   "[1]", "e5",  "1e",   "--1",   "5.5.5", "true",
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(numbers); i++) {
        char text[100];
        snprintf(text, sizeof(text), "resources:\n- capacity: %s\n",
                 numbers[i]);
        refused(text, WEIR_ESYNTAX, 2,
                "cannot unmarshal capacity: it must be a number");
    }
    refused("resources:\n- algorithm: {lease_length: 15.5}\n", WEIR_ESYNTAX, 2,
            "cannot unmarshal lease_length: it must be a whole number of "
            "seconds");
    refused("resources:\n- algorithm:\n    kind: fair_share\n", WEIR_ESYNTAX, 3,
            "cannot unmarshal kind: it must be NO_ALGORITHM, STATIC, "
            "PROPORTIONAL_SHARE, FAIR_SHARE or a number");
    refused("resources:\n- algorithm: STATIC\n", WEIR_ESYNTAX, 2,
            "cannot unmarshal algorithm: it must be a mapping");
    refused("? [a]\n: b\n", WEIR_ESYNTAX, 1,
            "cannot unmarshal a key: it must be a word");
}

static void refuses_what_the_original_fell_over(void **state)
{
    (void)state;
    refused("resources:\n- {identifier_glob: a, algorithm: " ALGORITHM
            "}\n" STAR,
            WEIR_EINVAL, 2, "the entry has no capacity");
    refused("resources:\n- {identifier_glob: a, capacity: -0.5}\n" STAR,
            WEIR_EINVAL, 2, "the capacity must be 0 or more");
    refused("resources:\n- {identifier_glob: \"a\\nb\", capacity: 1}\n" STAR,
            WEIR_ENAME, 2,
            "the name 'a?b' holds a control character at byte 2");
    refused("resources:\n" STAR_HEAD "  algorithm: {lease_length: 99999999, "
            "refresh_interval: 1}\n",
            WEIR_EINVAL, 2,
            "lease_length and learning_mode_duration must be "
            "at most 366 days");
    refused("resources:\n" STAR_HEAD "  algorithm: {lease_length: 90000, "
            "refresh_interval: 1}\n",
            WEIR_EINVAL, 2, "lease_length must be at most 24 hours");
    refused("resources:\n- capacity: 1\n  Capacity: 2\n", WEIR_ESYNTAX, 3,
            "capacity is given twice; first on line 2");
    refused("a: &x {capacity: 1}\nresources:\n- <<: *x\n", WEIR_ESYNTAX, 3,
            "cannot unmarshal <<: it must be written out, or an alias");
    refused("resources:\n" STAR "--- x\n", WEIR_ESYNTAX, 5,
            "a second document isn't taken");
    refused("resources: !!set {}\n", WEIR_ESYNTAX, 1, "tags aren't taken");
    refused("a: 'b\n", WEIR_ESYNTAX, 2,
            "this is no YAML: found unexpected end of stream");
}

/* Cycles of aliases, nesting, and lists that are longer than they look. */
static void hostile_files_end(void **state)
{
    (void)state;
    refused("&a [*a]", WEIR_ESYNTAX, 1,
            "cannot unmarshal the file: it must be a mapping");
    refused("resources: &a\n- algorithm: &b\n    parameters: *a\n", WEIR_EINVAL,
            2, "must have a refresh interval and a lease length");
    size_t len = 1 << 20;
    char *deep = malloc(len + 1);
    memset(deep, '[', len);
    deep[len] = '\0';
    refused(deep, WEIR_ETOOBIG, 1, "lists and mappings are nested too deeply");
    free(deep);

    struct weir_doorman_config *config = NULL;
    struct weir_text large = { "", WEIR_DOORMAN_CONFIG_BYTES_MAX + 1 };
    assert_int_equal(weir_doorman_config_parse(large, &config, NULL),
                     WEIR_ETOOBIG);
}

static void bounds_are_bounds(void **state)
{
    (void)state;
    size_t max = WEIR_DOORMAN_TEMPLATES_MAX;
    char *text = malloc((max + 2) * 80);
    char *end = text + sprintf(text, "usual: &u " ALGORITHM "\nresources:\n");
    for (size_t i = 0; i + 1 < max; i++)
        end += sprintf(end,
                       "- {identifier_glob: r%zu, capacity: %zu, "
                       "algorithm: *u}\n",
                       i, i);
    char *middle = end;
    end += sprintf(end, STAR);
    struct weir_doorman_config *config = parse(text);
    size_t count;
    weir_doorman_config_templates(config, &count);
    assert_int_equal(count, max);
    const struct weir_doorman_template *found =
        weir_doorman_config_get(config, WEIR_TEXT("r7777"));
    assert_true(found && found->capacity == 7777);
    weir_doorman_config_free(config);
    sprintf(middle, "- {identifier_glob: more, capacity: 1}\n" STAR);
    refused(text, WEIR_ETOOBIG, 3, "resources has more than 10000 items");
    free(text);
}

/* ---- Sources ---- */

static void a_bad_file_changes_nothing(void **state)
{
    (void)state;
    struct weir_doorman_config *config = parse("resources:\n" STAR);
    struct weir_doorman_config *before = config;
    struct weir_diag diag;
    assert_int_equal(
        weir_doorman_config_parse(WEIR_TEXT("resources: []"), &config, &diag),
        WEIR_EINVAL);
    assert_ptr_equal(config, before);
    assert_non_null(weir_doorman_config_get(config, WEIR_TEXT("*")));
    weir_doorman_config_free(config);
    weir_doorman_config_free(NULL);
}

static void sources(void **state)
{
    (void)state;
    static const struct {
        const char *text, *path;
        bool etcd;
    } rows[] = {
        { "config.yml", "config.yml", false },
        { "file:config.yml", "config.yml", false },
        { "colons:in:name:good:idea:config.yml",
          "colons:in:name:good:idea:config.yml", false },
        { "etcd:/config.yml", "/config.yml", true },
        { "file:etcd:x", "etcd:x", false },
        { "FILE:x", "FILE:x", false },
    };
    struct weir_doorman_location source;
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        assert_int_equal(weir_doorman_location_parse(weir_text_of(rows[i].text),
                                                     &source, NULL),
                         0);
        assert_int_equal(source.etcd, rows[i].etcd);
        assert_true(weir_text_equal(source.path, weir_text_of(rows[i].path)));
    }
    struct weir_diag diag;
    assert_int_equal(weir_doorman_location_parse(WEIR_TEXT(""), &source, &diag),
                     WEIR_EINVAL);
    assert_int_equal(
        weir_doorman_location_parse(WEIR_TEXT("file:"), &source, &diag),
        WEIR_EINVAL);
    assert_int_equal(
        weir_doorman_location_parse(WEIR_TEXT("etcd:"), &source, &diag),
        WEIR_EINVAL);
    assert_non_null(strstr(diag.text, "file:PATH"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_key),
        cmocka_unit_test(learning_has_a_default),
        cmocka_unit_test(kinds_are_names_or_numbers),
        cmocka_unit_test(reads_other_spellings),
        cmocka_unit_test(mends_with_a_warning),
        cmocka_unit_test(counts_more_warnings_than_it_keeps),
        cmocka_unit_test(refuses_as_the_original),
        cmocka_unit_test(refuses_other_types),
        cmocka_unit_test(refuses_what_the_original_fell_over),
        cmocka_unit_test(hostile_files_end),
        cmocka_unit_test(bounds_are_bounds),
        cmocka_unit_test(a_bad_file_changes_nothing),
        cmocka_unit_test(sources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
