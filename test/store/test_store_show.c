/* SPDX-License-Identifier: MIT
 * test/store/test_store_show.c - no view shows the password of a store's
 * URL. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "store/store.h"

static void passwords_are_hidden(void **state)
{
    (void)state;
    static const struct {
        const char *url, *shown;
    } cases[] = {
        { "sqlite:/var/q.db", "sqlite:/var/q.db" },
        { "sqlite:password=x", "sqlite:password=x" },
        { "postgres://h/db", "postgres://h/db" },
        { "postgres://u@h:5/db?a=b", "postgres://u@h:5/db?a=b" },
        { "postgres://u:PW@h/db", "postgres://u:***@h/db" },
        { "postgres://:PW@/db", "postgres://:***@/db" },
        { "postgresql://u:PW@h/db", "postgresql://u:***@h/db" },
        { "postgres://u:P@W:P@[::1]:5/d", "postgres://u:***@[::1]:5/d" },
        { "postgres://u:P/W@h/db", "postgres://u:***@h/db" },
        { "postgres://h/db?password=PW", "postgres://h/db?password=***" },
        { "postgres://h/db?sslpassword=PW&x=y",
          "postgres://h/db?sslpassword=***&x=y" },
        { "postgres://h/db?%70assword=PW", "postgres://h/db?%70assword=***" },
        { "postgres:host=h password=PW dbname=d",
          "postgres:host=h password=*** dbname=d" },
        { "postgres:host=h password = 'P W\\' x' dbname=d",
          "postgres:host=h password =*** dbname=d" },
        { "postgres:password=P\\ W user=u", "postgres:password=*** user=u" },
        { "postgres:password='P W", "postgres:password=***" },
        { "postgres:password=", "postgres:password=***" },
        { "postgres:host='a password=b' port=1",
          "postgres:host='a password=b' port=1" },
        { "postgres:", "postgres:" },
        { "granite:x", "granite:x" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(cases); i++) {
        char buf[WEIR_STORE_SHOW_MAX];
        assert_string_equal(weir_store_show(cases[i].url, buf), cases[i].shown);
        assert_null(strstr(buf, "PW"));
    }
}

static void long_ones_are_cut(void **state)
{
    (void)state;
    char url[2 * WEIR_STORE_SHOW_MAX];
    char buf[WEIR_STORE_SHOW_MAX];
    memset(url, 'x', sizeof(url));
    memcpy(url, "postgres://", 11);
    url[sizeof(url) - 1] = '\0';
    assert_int_equal(strlen(weir_store_show(url, buf)),
                     WEIR_STORE_SHOW_MAX - 1);
}

/* libpq would repeat the whole string. */
static void what_is_not_understood_is_not_repeated(void **state)
{
    (void)state;
    static const char *const urls[] = {
        "postgres:password=pass PW", "postgres://u:PW@[::1/db",
        "postgres://u:PW@h/db?x",    "postgres:PW",
        "postgres:password='PW",
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(urls); i++) {
        struct weir_diag diag;
        struct weir_store *store;
        assert_int_equal(weir_store_open(urls[i], &store, &diag), WEIR_EINVAL);
        assert_null(strstr(diag.text, "PW"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passwords_are_hidden),
        cmocka_unit_test(long_ones_are_cut),
        cmocka_unit_test(what_is_not_understood_is_not_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
