/* SPDX-License-Identifier: MIT
 * test/store/store_old.c - the upgrade of a store of schema 2, by store.h
 * alone. */

#include "store_old.h"
#include "compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "io/clock.h"
#include "store/store.h"

/* What a quota, or a side of an entry of the log, must be. */
struct wanted {
    const char *name;
    enum weir_on_stale on_stale;
    const char *description;
    const char *labels;
};

static void check_quota(const struct weir_quota *quota,
                        const struct wanted *wanted)
{
    assert_int_equal(quota->on_stale, wanted->on_stale);
    assert_true(
        weir_text_equal(quota->description, weir_text_of(wanted->description)));
    assert_true(weir_text_equal(quota->labels, weir_text_of(wanted->labels)));
}

/* ---- The quotas ----------------------------------------------------- */

static const struct wanted wanted_quotas[] = {
    { "first", WEIR_STALE_LIMIT, NULL, NULL },
    { "changed", WEIR_STALE_SHARE, NULL, NULL },
    { "last", WEIR_STALE_PASS, NULL, NULL },
    { "on_stale: closed", WEIR_STALE_PASS, NULL, NULL },
    { "words", WEIR_STALE_LIMIT, "on_stale: open\non_stale: closed\n, closed",
      "on_stale=closed\nx=on_stale: closed" },
    { "hold", WEIR_STALE_HOLD, NULL, NULL },
    { "plain", WEIR_STALE_PASS, "closed", NULL },
};

static int keep(void *context, const struct weir_change *change)
{
    return weir_catalog_apply(context, change);
}

static struct weir_catalog *read_all(struct weir_store *store)
{
    struct weir_catalog *seen = weir_catalog_new(&weir_mem_system, 1);
    struct weir_diag diag;
    if (weir_store_read(store, 0, keep, seen, NULL, &diag) < 0)
        fail_msg("%s", diag.text);
    return seen;
}

static void check_quotas(struct weir_store *store)
{
    struct weir_catalog *seen = read_all(store);
    assert_int_equal(weir_catalog_count(seen), WEIR_COUNT_OF(wanted_quotas));
    for (size_t i = 0; i < WEIR_COUNT_OF(wanted_quotas); i++) {
        const struct wanted *wanted = &wanted_quotas[i];
        const struct weir_quota *quota =
            weir_catalog_get(seen, weir_text_of(wanted->name));
        assert_non_null(quota);
        check_quota(quota, wanted);
        assert_int_equal(quota->count_limited,
                         weir_text_equal(quota->name, WEIR_TEXT("plain")));
        /* Limiters read rows of newer epochs only: theirs stay. */
        assert_int_equal(quota->id, i + 1);
    }
    assert_int_equal(weir_catalog_get(seen, weir_text_of("changed"))->epoch, 3);
    weir_catalog_free(seen);
}

/* ---- The log -------------------------------------------------------- */

/* The newest first. No side: name NULL. */
static const struct {
    uint64_t epoch;
    struct wanted before, after;
} wanted_log[] = {
    { 10,
      { "reset", WEIR_STALE_PASS, NULL, NULL },
      { "reset", WEIR_STALE_PASS, NULL, NULL } },
    { 9,
      { "gone", WEIR_STALE_LIMIT, "on_stale: closed", NULL },
      { NULL, 0, NULL, NULL } },
    { 3,
      { "changed", WEIR_STALE_LIMIT, NULL, NULL },
      { "changed", WEIR_STALE_SHARE, NULL, NULL } },
    { 2, { NULL, 0, NULL, NULL }, { "changed", WEIR_STALE_LIMIT, NULL, NULL } },
    { 1, { NULL, 0, NULL, NULL }, { "first", WEIR_STALE_LIMIT, NULL, NULL } },
};

static int check_entry(void *context, const struct weir_log_entry *entry)
{
    size_t i = (*(size_t *)context)++;
    assert_compare(i, <, WEIR_COUNT_OF(wanted_log));
    assert_int_equal(entry->epoch, wanted_log[i].epoch);
    assert_int_equal(entry->has_before, wanted_log[i].before.name != NULL);
    assert_int_equal(entry->has_after, wanted_log[i].after.name != NULL);
    assert_int_equal(entry->reset, i == 0);
    if (entry->has_before)
        check_quota(&entry->before, &wanted_log[i].before);
    if (entry->has_after)
        check_quota(&entry->after, &wanted_log[i].after);
    if (entry->epoch == 2)
        assert_true(
            weir_text_equal(entry->identity, WEIR_TEXT("on_stale: closed")));
    return 0;
}

static void check_log(struct weir_store *store)
{
    struct weir_diag diag;
    size_t count = 0;
    if (weir_store_log(store, 0, weir_text_of(NULL), 100, check_entry, &count,
                       &diag) < 0)
        fail_msg("%s", diag.text);
    assert_int_equal(count, WEIR_COUNT_OF(wanted_log));
}

/* ---- Taken back ----------------------------------------------------- */

static void undo(struct weir_store *store, uint64_t epoch)
{
    struct weir_diag diag;
    uint64_t made;
    if (weir_store_undo(store, epoch, WEIR_TEXT("undoer"), &made, &diag) < 0)
        fail_msg("%s", diag.text);
}

static void check_undo(struct weir_store *store)
{
    static const struct wanted wanted[] = {
        { "changed", WEIR_STALE_LIMIT, NULL, NULL },
        { "gone", WEIR_STALE_LIMIT, "on_stale: closed", NULL },
    };
    undo(store, 3);
    undo(store, 9);
    struct weir_catalog *seen = read_all(store);
    assert_int_equal(weir_catalog_epoch(seen), STORE_OLD_EPOCH + 2);
    for (size_t i = 0; i < WEIR_COUNT_OF(wanted); i++) {
        const struct weir_quota *quota =
            weir_catalog_get(seen, weir_text_of(wanted[i].name));
        assert_non_null(quota);
        check_quota(quota, &wanted[i]);
    }
    weir_catalog_free(seen);
}

void store_old_check_upgrade(const char *url)
{
    struct weir_store *store;
    struct weir_diag diag;
    unsigned from = 0;
    assert_int_equal(weir_store_open(url, &store, &diag), WEIR_ESCHEMA);
    assert_non_null(strstr(diag.text, "(schema 2); run 'weir store upgrade "));
    if (weir_store_upgrade(url, &from, &diag) < 0)
        fail_msg("%s", diag.text);
    assert_int_equal(from, 2);
    assert_int_equal(weir_store_upgrade(url, &from, NULL), 0);
    assert_int_equal(from, WEIR_STORE_SCHEMA);
    if (weir_store_open(url, &store, &diag) < 0)
        fail_msg("%s", diag.text);
    check_quotas(store);
    check_log(store);
    check_undo(store);
    weir_store_close(store);
}
