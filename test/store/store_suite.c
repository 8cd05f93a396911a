/* SPDX-License-Identifier: MIT
 * test/store/store_suite.c - requirements on quota stores, by store.h alone.
 *
 * Each test gets a store of its own. The store's content is always read through
 * a catalog that follows it by epochs, as a root does. */

#include "store_suite.h"
#include "compare.h"
#include "io/clock.h"
#include "patience.h"
#include "store_suite_lineage.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "quota_maker.h"
#include "store/store.h"

#define URL_MAX 512

/* A store and a reader that follows it. */
struct fixture {
    char url[URL_MAX];
    struct weir_store *store;
    struct weir_catalog *seen;
    struct weir_diag diag;
    uint64_t epoch; /* the epoch of the last edit */
};

static const struct store_under_test *under_test;

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    under_test->make_url(fixture->url, sizeof(fixture->url));
    fixture->seen = weir_catalog_new(&weir_mem_system, 1);
    int error = weir_store_init(fixture->url, &fixture->diag);
    if (error == 0)
        error = weir_store_open(fixture->url, &fixture->store, &fixture->diag);
    if (error < 0)
        fail_msg("%s", fixture->diag.text);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    weir_store_close(fixture->store);
    weir_catalog_free(fixture->seen);
    under_test->clean(fixture->url);
    free(fixture);
    return 0;
}

static int follow_one(void *context, const struct weir_change *change)
{
    struct weir_catalog *catalog = context;
    assert_compare(change->quota.epoch, >, weir_catalog_epoch(catalog));
    if (!change->removed)
        assert_int_equal(weir_quota_check(&change->quota, NULL), 0);
    return weir_catalog_apply(catalog, change);
}

/* Brings a catalog up to the store. */
static void follow(struct weir_store *store, struct weir_catalog *catalog)
{
    struct weir_diag diag;
    if (weir_store_read(store, weir_catalog_epoch(catalog), follow_one, catalog,
                        NULL, &diag) < 0)
        fail_msg("%s", diag.text);
}

static struct weir_change set_to(const char *name, const char *parent,
                                 uint64_t units)
{
    struct weir_change change = { .removed = false };
    weir_quota_init(&change.quota);
    change.quota.name = weir_text_of(name);
    change.quota.parent = weir_text_of(parent);
    change.quota.limit = (struct weir_limit){ units, WEIR_SECOND, false };
    return change;
}

static struct weir_change gone(const char *name)
{
    struct weir_change change = { .removed = true };
    change.quota.name = weir_text_of(name);
    return change;
}

static int edit_many(struct fixture *fixture, const struct weir_change *changes,
                     size_t count, unsigned flags)
{
    const struct weir_edit edit = { changes, count, .flags = flags };
    fixture->diag.text[0] = '\0';
    return weir_store_edit(fixture->store, &edit, &fixture->epoch,
                           &fixture->diag);
}

/* An edit by 'who'. */
static uint64_t by(struct fixture *fixture, const char *who,
                   const struct weir_change *changes, size_t count)
{
    const struct weir_edit edit = { changes, count,
                                    .identity = weir_text_of(who) };
    if (weir_store_edit(fixture->store, &edit, &fixture->epoch,
                        &fixture->diag) < 0)
        fail_msg("%s", fixture->diag.text);
    return fixture->epoch;
}

/* An edit through another handle. */
static int edit_by(struct weir_store *store, const struct weir_change *changes,
                   size_t count, uint64_t *epoch, struct weir_diag *diag)
{
    const struct weir_edit edit = { changes, count, .flags = 0 };
    return weir_store_edit(store, &edit, epoch, diag);
}

static int edit(struct fixture *fixture, struct weir_change change)
{
    return edit_many(fixture, &change, 1, 0);
}

/* An edit that must succeed. */
static void must(struct fixture *fixture, struct weir_change change)
{
    if (edit(fixture, change) < 0)
        fail_msg("%s", fixture->diag.text);
}

static const struct weir_quota *look(struct fixture *fixture, const char *name)
{
    follow(fixture->store, fixture->seen);
    return weir_catalog_get(fixture->seen, weir_text_of(name));
}

/* ---- Tests ---------------------------------------------------------- */

static void opening(void **state)
{
    struct fixture *fixture = *state;
    struct weir_diag *diag = &fixture->diag;
    struct weir_store *other;
    char url[URL_MAX];
    under_test->make_url(url, sizeof(url));
    assert_int_equal(weir_store_open(url, &other, diag), WEIR_ENOENT);
    assert_non_null(strstr(diag->text, "weir store init"));
    char shown[WEIR_STORE_SHOW_MAX];
    assert_non_null(strstr(diag->text, weir_store_show(url, shown)));
    assert_int_equal(weir_store_init(fixture->url, diag), WEIR_EEXIST);
    assert_int_equal(weir_store_open("granite:x", &other, diag), WEIR_EINVAL);
    assert_non_null(strstr(diag->text, "'granite:x'"));
    assert_int_equal(weir_store_open("sqlite:", &other, diag), WEIR_EINVAL);
    struct weir_store_state a, b;
    assert_int_equal(weir_store_look(fixture->store, NULL, &a, diag), 0);
    assert_true(a.epoch == 0 && a.floor == 0);
    assert_int_equal(weir_store_init(url, diag), 0);
    assert_int_equal(weir_store_open(url, &other, diag), 0);
    assert_int_equal(weir_store_look(other, NULL, &b, diag), 0);
    assert_memory_not_equal(a.id.uuid, b.id.uuid, sizeof(a.id.uuid));
    weir_store_close(other);
    under_test->clean(url);
}

static void epochs_and_ids(void **state)
{
    struct fixture *fixture = *state;
    must(fixture, set_to("a", NULL, 1));
    assert_int_equal(fixture->epoch, 1);
    const struct weir_quota *quota = look(fixture, "a");
    uint64_t id = quota->id;
    assert_compare(id, >, 0);
    assert_int_equal(quota->created, 1);
    must(fixture, set_to("a", NULL, 2));
    assert_int_equal(fixture->epoch, 2);
    quota = look(fixture, "a");
    assert_int_equal(quota->id, id);
    assert_int_equal(quota->epoch, 2);
    assert_int_equal(quota->created, 1);
    /* an edit without a change takes no epoch */
    must(fixture, set_to("a", NULL, 2));
    assert_int_equal(fixture->epoch, 2);
    must(fixture, gone("a"));
    assert_int_equal(fixture->epoch, 3);
    assert_null(look(fixture, "a"));
    must(fixture, set_to("a", NULL, 2));
    quota = look(fixture, "a");
    assert_compare(quota->id, >, id);
    assert_int_equal(quota->created, 4);
    assert_int_equal(edit(fixture, gone("b")), WEIR_ENOENT);
}

static int count_one(void *context, const struct weir_change *change)
{
    size_t *counts = context;
    counts[change->removed]++;
    return 0;
}

static int stop_at_once(void *context, const struct weir_change *change)
{
    (void)change;
    ++*(int *)context;
    return WEIR_EFULL;
}

static void removals_are_told(void **state)
{
    struct fixture *fixture = *state;
    must(fixture, set_to("a", NULL, 1));
    must(fixture, set_to("b", NULL, 1));
    must(fixture, gone("a"));
    size_t counts[2] = { 0, 0 };
    assert_int_equal(
        weir_store_read(fixture->store, 0, count_one, counts, NULL, NULL), 0);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 1);
    counts[0] = counts[1] = 0;
    assert_int_equal(
        weir_store_read(fixture->store, 3, count_one, counts, NULL, NULL), 0);
    assert_int_equal(counts[0] + counts[1], 0);
    must(fixture, set_to("a", NULL, 1));
    counts[0] = counts[1] = 0;
    weir_store_read(fixture->store, 0, count_one, counts, NULL, NULL);
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 0);
    int calls = 0;
    assert_int_equal(
        weir_store_read(fixture->store, 0, stop_at_once, &calls, NULL, NULL),
        WEIR_EFULL);
    assert_int_equal(calls, 1);
    must(fixture, gone("a"));
}

static void a_refused_edit_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    must(fixture, set_to("a", NULL, 1));
    must(fixture, set_to("b", "a", 1));
    struct weir_change bad_limit = set_to("c", NULL, 1);
    bad_limit.quota.low_burst = (struct weir_burst){ 5, false, false };
    bad_limit.quota.high_burst = (struct weir_burst){ 4, false, false };
    const struct {
        struct weir_change changes[3];
        int error;
    } edits[] = {
        { { set_to("c", NULL, 1), set_to("d", "x", 1) }, WEIR_EPARENT },
        { { set_to("c", NULL, 1), set_to("a", "b", 1) }, WEIR_ECYCLE },
        { { set_to("c", "d", 1), set_to("d", "c", 1) }, WEIR_ECYCLE },
        { { set_to("c", NULL, 1), gone("a") }, WEIR_ECHILDREN },
        { { set_to("c", NULL, 1), gone("x") }, WEIR_ENOENT },
        { { set_to("c", NULL, 1), bad_limit }, WEIR_EQUOTA },
        { { set_to("c", NULL, 1), set_to("c", "a", 1) }, WEIR_EEXIST },
        { { set_to("c", "a", 1), gone("a"), gone("b") }, WEIR_EPARENT },
        { { set_to("c", NULL, 1), set_to("", NULL, 1) }, WEIR_ENAME },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(edits); i++) {
        bool three = edits[i].changes[2].quota.name.len > 0;
        int error = edit_many(fixture, edits[i].changes, three ? 3 : 2, 0);
        if (error != edits[i].error)
            fail_msg("edit %zu gave %d: %s", i, error, fixture->diag.text);
        assert_true(fixture->diag.text[0] != '\0');
        assert_null(look(fixture, "c"));
        assert_int_equal(weir_catalog_epoch(fixture->seen), 2);
    }
    assert_int_equal(edit(fixture, set_to("b", "b", 1)), WEIR_ECYCLE);
    assert_int_equal(edit(fixture, gone("a")), WEIR_ECHILDREN);
    must(fixture, set_to("c", NULL, 1));
    assert_int_equal(fixture->epoch, 3);
}

static void any_order_in_one_edit(void **state)
{
    struct fixture *fixture = *state;
    struct weir_change tree[] = { set_to("leaf", "middle", 1),
                                  set_to("t*", "leaf{1}", 1),
                                  set_to("middle", "top", 1),
                                  set_to("top", NULL, 1) };
    assert_int_equal(edit_many(fixture, tree, 4, 0), 0);
    assert_int_equal(look(fixture, "top")->epoch, 1);
    assert_int_equal(look(fixture, "middle")->epoch, 2);
    assert_int_equal(look(fixture, "leaf")->epoch, 3);
    assert_int_equal(look(fixture, "t*")->epoch, 4);
    /* parent and child change places */
    struct weir_change swap[] = { set_to("top", "middle", 1),
                                  set_to("middle", NULL, 1) };
    assert_int_equal(edit_many(fixture, swap, 2, 0), 0);
    assert_int_equal(look(fixture, "middle")->epoch, 5);
    assert_int_equal(look(fixture, "top")->epoch, 6);
    /* a parent goes, its child is moved away */
    struct weir_change move[] = { gone("middle"), set_to("top", NULL, 1),
                                  set_to("leaf", "top", 1) };
    assert_int_equal(edit_many(fixture, move, 3, 0), 0);
    assert_null(look(fixture, "middle"));
    /* a tree goes, leaves first */
    struct weir_change down[] = { gone("top"), gone("leaf"), gone("t*") };
    assert_int_equal(edit_many(fixture, down, 3, 0), 0);
    follow(fixture->store, fixture->seen);
    assert_int_equal(weir_catalog_count(fixture->seen), 0);
}

static void replace_and_create(void **state)
{
    struct fixture *fixture = *state;
    struct weir_change first[] = { set_to("a", NULL, 1), set_to("b", "a", 1),
                                   set_to("c", "b", 1) };
    assert_int_equal(edit_many(fixture, first, 3, WEIR_EDIT_CREATE), 0);
    assert_int_equal(edit_many(fixture, first, 1, WEIR_EDIT_CREATE),
                     WEIR_EEXIST);
    struct weir_change second[] = { set_to("c", "d", 1), set_to("d", NULL, 1) };
    assert_int_equal(edit_many(fixture, second, 2, WEIR_EDIT_REPLACE), 0);
    assert_int_equal(fixture->epoch, 7);
    assert_null(look(fixture, "a"));
    assert_null(look(fixture, "b"));
    assert_non_null(look(fixture, "d"));
    assert_int_equal(look(fixture, "c")->created, 3);
    assert_int_equal(weir_catalog_count(fixture->seen), 2);
    assert_int_equal(edit_many(fixture, second, 2, WEIR_EDIT_REPLACE), 0);
    assert_int_equal(fixture->epoch, 7);
    assert_int_equal(edit_many(fixture, NULL, 0, WEIR_EDIT_REPLACE), 0);
    follow(fixture->store, fixture->seen);
    assert_int_equal(weir_catalog_count(fixture->seen), 0);
    assert_int_equal(edit_many(fixture, NULL, 0, 0), 0);
    assert_int_equal(fixture->epoch, 9);
}

/* Changes by another handle may be on their way. */
static bool hears(struct weir_store *store)
{
    int ms = 0;
    while (!weir_store_changed(store) && ms++ < 60000)
        poll(NULL, 0, 1);
    return ms <= 60000;
}

static void two_handles(void **state)
{
    struct fixture *fixture = *state;
    struct weir_store *other;
    assert_int_equal(weir_store_open(fixture->url, &other, NULL), 0);
    weir_store_changed(fixture->store);
    weir_store_changed(other);
    assert_false(weir_store_changed(fixture->store));
    assert_false(weir_store_changed(other));
    must(fixture, set_to("a", NULL, 1));
    assert_true(hears(other));
    assert_false(weir_store_changed(other));
    assert_true(weir_store_changed(fixture->store));
    assert_false(weir_store_changed(fixture->store));
    /* each checks against the other's edit */
    struct weir_change child = set_to("b", "a", 1);
    uint64_t epoch;
    struct weir_diag diag;
    assert_int_equal(edit_by(other, &child, 1, &epoch, &diag), 0);
    assert_int_equal(epoch, 2);
    assert_true(hears(fixture->store));
    assert_int_equal(edit(fixture, gone("a")), WEIR_ECHILDREN);
    must(fixture, gone("b"));
    must(fixture, gone("a"));
    assert_int_equal(edit_by(other, &child, 1, &epoch, &diag), WEIR_EPARENT);
    weir_store_close(other);
}

/* Every field of quotas with nasty texts, also after opening again. */
static void nothing_is_lost(void **state)
{
    struct fixture *fixture = *state;
    struct weir_rng rng = made_seed("store");
    enum { QUOTAS = 300 };
    struct made_quota *made = calloc(QUOTAS, sizeof(*made));
    struct weir_change *changes = calloc(QUOTAS, sizeof(*changes));
    for (unsigned i = 0; i < QUOTAS; i++) {
        make_quota(&rng, i, &made[i]);
        changes[i].quota = made[i].quota;
    }
    if (edit_many(fixture, changes, QUOTAS, 0) < 0)
        fail_msg("%s", fixture->diag.text);
    weir_store_close(fixture->store);
    assert_int_equal(weir_store_open(fixture->url, &fixture->store, NULL), 0);
    follow(fixture->store, fixture->seen);
    assert_int_equal(weir_catalog_count(fixture->seen), QUOTAS);
    for (unsigned i = 0; i < QUOTAS; i++) {
        const struct weir_quota *quota =
            weir_catalog_get(fixture->seen, made[i].quota.name);
        assert_non_null(quota);
        assert_true(weir_quota_equal(quota, &made[i].quota));
    }
    /* so that the same again is no change */
    assert_int_equal(edit_many(fixture, changes, QUOTAS, 0), 0);
    assert_int_equal(fixture->epoch, QUOTAS);
    free(changes);
    free(made);
}

/* The oldest removals are forgotten, and the floor names the epoch. A handle
 * below the floor reads the set anew. */
/* Most are put into the store by SQL; by edits if WEIR_SECONDS is set, of
 * 100,010 changes each. */
static void old_removals_raise_the_floor(void **state)
{
    struct fixture *fixture = *state;
    enum { EXTRA = 10, ALL = WEIR_TOMBSTONES_MAX + EXTRA };
    unsigned buried = getenv("WEIR_SECONDS") ? 0 : WEIR_TOMBSTONES_MAX;
    unsigned count = ALL - buried;
    struct weir_store *other;
    if (buried > 0)
        under_test->reap(fixture->url, buried);
    assert_int_equal(weir_store_open(fixture->url, &other, NULL), 0);
    char(*many)[8] = calloc(count, sizeof(*many));
    struct weir_change *changes = calloc(count, sizeof(*changes));
    for (unsigned i = 0; i < count; i++) {
        snprintf(many[i], sizeof(many[i]), "%u", i % 1000000);
        changes[i] = set_to(many[i], NULL, 1);
    }
    uint64_t epoch;
    assert_int_equal(edit_by(other, changes, count, &epoch, NULL), 0);
    assert_int_equal(edit_many(fixture, NULL, 0, WEIR_EDIT_REPLACE), 0);
    assert_int_equal(fixture->epoch, buried + 2 * count);
    struct weir_store_state now;
    assert_int_equal(weir_store_look(fixture->store, NULL, &now, NULL), 0);
    assert_int_equal(now.floor, buried > 0 ? EXTRA : ALL + EXTRA);
    size_t counts[2] = { 0, 0 };
    weir_store_read(fixture->store, 0, count_one, counts, NULL, NULL);
    assert_int_equal(counts[0], 0);
    assert_int_equal(counts[1], WEIR_TOMBSTONES_MAX);
    struct weir_change remains = gone(many[0]);
    assert_int_equal(edit_by(other, &remains, 1, &epoch, NULL), WEIR_ENOENT);
    weir_store_close(other);
    free(changes);
    free(many);
}

/* ---- The log -------------------------------------------------------- */

#define LOGGED_MAX 128

/* Entries as received. */
struct logged {
    size_t count;
    struct weir_log_entry entries[LOGGED_MAX];
    char names[LOGGED_MAX][16];
    char who[LOGGED_MAX][16];
};

static int log_one(void *context, const struct weir_log_entry *entry)
{
    struct logged *logged = context;
    size_t i = logged->count++;
    assert_compare(i, <, LOGGED_MAX);
    logged->entries[i] = *entry;
    snprintf(logged->names[i], sizeof(logged->names[i]), "%.*s",
             (int)entry->name.len, entry->name.p);
    snprintf(logged->who[i], sizeof(logged->who[i]), "%.*s",
             (int)entry->identity.len, entry->identity.p);
    return 0;
}

static struct logged *read_log(struct fixture *fixture, uint64_t below,
                               const char *name, size_t max)
{
    static struct logged logged;
    logged.count = 0;
    if (weir_store_log(fixture->store, below, weir_text_of(name), max, log_one,
                       &logged, &fixture->diag) < 0)
        fail_msg("%s", fixture->diag.text);
    return &logged;
}

static void who_did_what(void **state)
{
    struct fixture *fixture = *state;
    struct weir_change tree[] = { set_to("b", "a", 1), set_to("a", NULL, 1) };
    struct weir_change more = set_to("a", NULL, 7);
    struct weir_change less = gone("b");
    by(fixture, "ann", tree, 2);
    by(fixture, "bob", &more, 1);
    by(fixture, "bob", &more, 1); /* an edit without a change */
    by(fixture, "", &less, 1);
    assert_int_equal(edit(fixture, gone("x")), WEIR_ENOENT);
    const struct logged *logged = read_log(fixture, 0, NULL, 100);
    static const struct {
        const char *name, *who;
        uint64_t edit;
        bool before, after;
    } wanted[] = {
        { "b", "", 4, true, false },
        { "a", "bob", 3, true, true },
        { "b", "ann", 2, false, true },
        { "a", "ann", 2, false, true },
    };
    assert_int_equal(logged->count, WEIR_COUNT_OF(wanted));
    for (size_t i = 0; i < logged->count; i++) {
        const struct weir_log_entry *entry = &logged->entries[i];
        assert_int_equal(entry->epoch, 4 - i);
        assert_int_equal(entry->edit, wanted[i].edit);
        assert_string_equal(logged->names[i], wanted[i].name);
        assert_string_equal(logged->who[i], wanted[i].who);
        assert_int_equal(entry->has_before, wanted[i].before);
        assert_int_equal(entry->has_after, wanted[i].after);
        assert_compare(entry->at_ms, >, 1600000000000);
    }
    assert_int_equal(logged->entries[1].before.limit.units, 1);
    assert_int_equal(logged->entries[1].after.limit.units, 7);
}

static void parts_of_the_log(void **state)
{
    struct fixture *fixture = *state;
    for (uint64_t i = 1; i <= 20; i++) {
        struct weir_change change = set_to(i % 2 ? "odd" : "even", NULL, i);
        by(fixture, "ann", &change, 1);
    }
    const struct logged *logged = read_log(fixture, 0, "even", 3);
    assert_int_equal(logged->count, 3);
    assert_int_equal(logged->entries[0].epoch, 20);
    assert_int_equal(logged->entries[2].epoch, 16);
    logged = read_log(fixture, 16, "even", 100);
    assert_int_equal(logged->count, 7);
    assert_int_equal(logged->entries[0].epoch, 14);
    logged = read_log(fixture, 3, NULL, 100);
    assert_int_equal(logged->count, 2);
    assert_int_equal(read_log(fixture, 0, "none", 9)->count, 0);
    assert_int_equal(read_log(fixture, 0, NULL, 0)->count, 0);
    struct weir_edit odd = { .identity = weir_text_of("a\nb") };
    assert_int_equal(
        weir_store_edit(fixture->store, &odd, &fixture->epoch, &fixture->diag),
        WEIR_EINVAL);
}

static int undo(struct fixture *fixture, uint64_t epoch)
{
    fixture->diag.text[0] = '\0';
    return weir_store_undo(fixture->store, epoch, weir_text_of("undoer"),
                           &fixture->epoch, &fixture->diag);
}

static void an_edit_is_taken_back(void **state)
{
    struct fixture *fixture = *state;
    struct weir_change first[] = { set_to("a", NULL, 1), set_to("b", "a", 1) };
    struct weir_change second[] = { set_to("a", "c", 2), gone("b"),
                                    set_to("c", NULL, 2) };
    by(fixture, "ann", first, 2);
    by(fixture, "bob", second, 3);
    /* any of its epochs names the edit */
    assert_int_equal(undo(fixture, 4), 0);
    assert_int_equal(fixture->epoch, 8);
    assert_int_equal(look(fixture, "a")->limit.units, 1);
    assert_int_equal(look(fixture, "a")->parent.len, 0);
    assert_non_null(look(fixture, "b"));
    assert_null(look(fixture, "c"));
    assert_string_equal(read_log(fixture, 0, NULL, 1)->who[0], "undoer");
    /* an undo is an edit, and so can be undone */
    assert_int_equal(undo(fixture, 8), 0);
    assert_int_equal(look(fixture, "c")->limit.units, 2);
    assert_null(look(fixture, "b"));
}

static void what_stands_in_the_way_of_an_undo(void **state)
{
    struct fixture *fixture = *state;
    struct weir_change first[] = { set_to("a", NULL, 1), set_to("b", NULL, 1) };
    struct weir_change later = set_to("b", NULL, 2);
    struct weir_change child = set_to("c", "a", 1);
    assert_int_equal(undo(fixture, 0), WEIR_ENOENT);
    assert_int_equal(undo(fixture, UINT64_MAX), WEIR_ENOENT);
    by(fixture, "ann", first, 2);
    assert_int_equal(undo(fixture, 3), WEIR_ENOENT);
    by(fixture, "bob", &later, 1);
    assert_int_equal(undo(fixture, 1), WEIR_ECHANGED);
    assert_non_null(strstr(fixture->diag.text, "'b'"));
    assert_non_null(strstr(fixture->diag.text, "'bob'"));
    assert_non_null(strstr(fixture->diag.text, " UTC "));
    /* removed and put again counts as changed */
    must(fixture, gone("b"));
    must(fixture, later);
    assert_int_equal(undo(fixture, 3), WEIR_ECHANGED);
    by(fixture, "bob", &child, 1);
    must(fixture, set_to("d", NULL, 1));
    must(fixture, set_to("c", "d", 1));
    /* 'd' has a child by now */
    assert_int_equal(undo(fixture, 7), WEIR_ECHILDREN);
    assert_int_equal(read_log(fixture, 0, NULL, 100)->count, 8);
    assert_int_equal(look(fixture, "d")->epoch, 7);
    assert_int_equal(undo(fixture, 8), 0);
    assert_int_equal(undo(fixture, 7), 0);
    later.resets = true;
    must(fixture, later);
    assert_int_equal(look(fixture, "b")->created, fixture->epoch);
}

/* Every field comes back, of quotas with nasty texts. */
static void an_undo_loses_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct weir_rng rng = made_seed("undo");
    enum { QUOTAS = 300 };
    struct made_quota *made = calloc(QUOTAS, sizeof(*made));
    struct weir_change *changes = calloc(QUOTAS, sizeof(*changes));
    for (unsigned i = 0; i < QUOTAS; i++) {
        make_quota(&rng, i, &made[i]);
        changes[i].quota = made[i].quota;
    }
    by(fixture, "ann", changes, QUOTAS);
    assert_int_equal(edit_many(fixture, NULL, 0, WEIR_EDIT_REPLACE), 0);
    if (undo(fixture, fixture->epoch) < 0)
        fail_msg("%s", fixture->diag.text);
    follow(fixture->store, fixture->seen);
    assert_int_equal(weir_catalog_count(fixture->seen), QUOTAS);
    for (unsigned i = 0; i < QUOTAS; i++) {
        const struct weir_quota *quota =
            weir_catalog_get(fixture->seen, made[i].quota.name);
        assert_non_null(quota);
        assert_true(weir_quota_equal(quota, &made[i].quota));
        assert_compare(quota->id, >, QUOTAS);
    }
    free(changes);
    free(made);
}

/* The log drops whole edits: each edit in it can be undone. */
static void old_edits_leave_the_log(void **state)
{
    struct fixture *fixture = *state;
    struct weir_change two[] = { set_to("a", NULL, 1), set_to("b", NULL, 1) };
    by(fixture, "ann", two, 2);
    two[0].quota.limit.units = two[1].quota.limit.units = 2;
    by(fixture, "ann", two, 2);
    under_test->set_epoch(fixture->url, WEIR_STORE_LOG_MAX + 2);
    must(fixture, set_to("c", NULL, 1));
    const struct logged *logged = read_log(fixture, 0, NULL, 100);
    assert_int_equal(logged->count, 3);
    assert_int_equal(logged->entries[2].epoch, 3);
    assert_int_equal(undo(fixture, 2), WEIR_ENOENT);
    assert_int_equal(undo(fixture, 3), 0);
    assert_int_equal(look(fixture, "a")->limit.units, 1);
    assert_int_equal(read_log(fixture, 0, NULL, 100)->count, 3);
}

/* An edit made for an older set than the current one is refused. */
static void an_edit_of_what_was(void **state)
{
    struct fixture *fixture = *state;
    struct weir_change change = set_to("a", NULL, 1);
    struct weir_edit edit = { .changes = &change, .count = 1 };
    edit.flags = WEIR_EDIT_BASED;
    assert_int_equal(
        weir_store_edit(fixture->store, &edit, &fixture->epoch, &fixture->diag),
        0);
    change.quota.limit.units = 2;
    assert_int_equal(
        weir_store_edit(fixture->store, &edit, &fixture->epoch, &fixture->diag),
        WEIR_ECHANGED);
    assert_int_equal(look(fixture, "a")->limit.units, 1);
    edit.based = 1;
    assert_int_equal(
        weir_store_edit(fixture->store, &edit, &fixture->epoch, &fixture->diag),
        0);
    assert_int_equal(look(fixture, "a")->limit.units, 2);
}

/* ---- The shadow set ------------------------------------------------- */

static void each_set_is_replaced_alone(void **state)
{
    struct fixture *fixture = *state;
    struct weir_change both[] = { set_to("a", NULL, 1), set_to("b", NULL, 1),
                                  set_to("shadow:a", NULL, 1),
                                  set_to("shadow:c", "shadow:a", 1) };
    assert_int_equal(edit_many(fixture, both, 4, 0), 0);
    assert_int_equal(edit_many(fixture, both, 1, WEIR_EDIT_REPLACE), 0);
    assert_null(look(fixture, "b"));
    assert_non_null(look(fixture, "shadow:c"));
    assert_int_equal(
        edit_many(fixture, both + 2, 1, WEIR_EDIT_REPLACE | WEIR_EDIT_SHADOW),
        0);
    assert_null(look(fixture, "shadow:c"));
    assert_non_null(look(fixture, "shadow:a"));
    assert_non_null(look(fixture, "a"));
}

/* ---- Two processes -------------------------------------------------- */

enum { EDITS = 50 };

static void edit_beside(const char *url, char first)
{
    struct weir_store *store;
    struct weir_diag diag;
    if (weir_store_open(url, &store, &diag) < 0)
        _exit(1);
    for (int i = 0; i < EDITS; i++) {
        char name[8];
        uint64_t epoch;
        snprintf(name, sizeof(name), "%c%d", first, i);
        struct weir_change change = set_to(name, NULL, 1);
        int error = WEIR_ELOCKED;
        /* A stopped process may have the lock for longer than others wait. */
        while (error == WEIR_ELOCKED)
            error = edit_by(store, &change, 1, &epoch, &diag);
        if (error < 0)
            _exit(2);
    }
    weir_store_close(store);
    _exit(0);
}

static void edits_of_two_processes_queue(void **state)
{
    struct fixture *fixture = *state;
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0)
            edit_beside(fixture->url, (char)('a' + i));
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(STATUS_OF(children[i]), 0);
    follow(fixture->store, fixture->seen);
    assert_int_equal(weir_catalog_count(fixture->seen), 2 * EDITS);
    assert_int_equal(weir_catalog_epoch(fixture->seen), 2 * EDITS);
    const struct logged *logged = read_log(fixture, 0, NULL, 1000);
    assert_int_equal(logged->count, 2 * EDITS);
    for (size_t i = 0; i < logged->count; i++)
        assert_int_equal(logged->entries[i].epoch, 2 * EDITS - i);
}

/* Of processes that make a store at once one succeeds. */
static void makers_at_once(void **state)
{
    enum { MAKERS = 6 };
    (void)state;
    char url[URL_MAX];
    pid_t children[MAKERS];
    int made = 0, status;
    under_test->make_url(url, sizeof(url));
    for (int i = 0; i < MAKERS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            int error = WEIR_ELOCKED;
            while (error == WEIR_ELOCKED) /* by a process that was stopped */
                error = weir_store_init(url, NULL);
            _exit(error == 0 ? 0 : error == WEIR_EEXIST ? 1 : 2);
        }
    }
    for (int i = 0; i < MAKERS; i++) {
        status = STATUS_OF(children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
        made += WEXITSTATUS(status) == 0;
    }
    assert_int_equal(made, 1);
    under_test->clean(url);
}

static void restored(void **state)
{
    struct fixture *fixture = *state;
    struct weir_store_state before, after;
    uint64_t restores;
    must(fixture, set_to("a", NULL, 1));
    weir_store_look(fixture->store, NULL, &before, NULL);
    while (weir_store_changed(fixture->store))
        continue;
    assert_int_equal(weir_store_restored(fixture->url, &restores, NULL), 0);
    assert_true(hears(fixture->store));
    assert_int_equal(weir_store_look(fixture->store, NULL, &after, NULL), 0);
    assert_int_equal(after.epoch, 1);
    assert_int_equal(restores, before.id.restores + 1);
    assert_int_equal(after.id.restores, restores);
    assert_memory_equal(after.id.uuid, before.id.uuid, sizeof(after.id.uuid));
    must(fixture, set_to("b", "a", 1));
    assert_int_equal(
        weir_store_restored("sqlite:/tmp/weir-none", &restores, NULL),
        WEIR_ENOENT);
}

/* store_suite_lineage.c */
static void lineage(void **state)
{
    store_suite_lineage(((const struct fixture *)*state)->store);
}

/* ---- Random edits against arrays ------------------------------------ */

enum { NAMES = 12, EDITS_OF_MODEL = 200 };

struct model {
    bool exists[NAMES];
    int parent[NAMES]; /* -1: none */
    uint64_t units[NAMES];
};

static bool is_sound(const struct model *model)
{
    for (int i = 0; i < NAMES; i++) {
        int at = i;
        int steps = 0;
        while (model->exists[i] && model->parent[at] >= 0) {
            at = model->parent[at];
            if (!model->exists[at] || ++steps > NAMES)
                return false;
        }
    }
    return true;
}

static const char *const names[NAMES] = { "a", "b", "c", "d", "e", "f",
                                          "g", "h", "i", "j", "k", "l" };

/* Up to four changes of different names; returns how many. Clears 'legal' when
 * one removes a missing quota. */
static size_t random_edit(struct weir_rng *rng, struct model *model,
                          struct weir_change *changes, bool *legal)
{
    bool used[NAMES] = { false };
    size_t count = 1 + weir_rng_below(rng, 4);
    for (size_t i = 0; i < count; i++) {
        size_t k = weir_rng_below(rng, NAMES);
        while (used[k])
            k = (k + 1) % NAMES;
        used[k] = true;
        if (weir_rng_below(rng, 4) == 0) {
            *legal = *legal && model->exists[k];
            model->exists[k] = false;
            changes[i] = gone(names[k]);
            continue;
        }
        bool root = weir_rng_below(rng, 2) == 0;
        int parent = root ? -1 : (int)weir_rng_below(rng, NAMES);
        model->exists[k] = true;
        model->parent[k] = parent;
        model->units[k] = weir_rng_below(rng, 3);
        changes[i] =
            set_to(names[k], root ? NULL : names[parent], model->units[k]);
    }
    return count;
}

static void compare(struct fixture *fixture, const struct model *model)
{
    follow(fixture->store, fixture->seen);
    for (int i = 0; i < NAMES; i++) {
        const struct weir_quota *quota =
            weir_catalog_get(fixture->seen, weir_text_of(names[i]));
        assert_int_equal(quota != NULL, model->exists[i]);
        if (!quota)
            continue;
        assert_int_equal(quota->limit.units, model->units[i]);
        int at = model->parent[i];
        struct weir_text parent = weir_text_of(at < 0 ? NULL : names[at]);
        assert_true(weir_text_equal(quota->parent, parent));
        assert_int_equal(
            weir_catalog_check_place(fixture->seen, quota->name, NULL), 0);
    }
}

static void as_the_naive_model(void **state)
{
    struct fixture *fixture = *state;
    struct weir_rng rng = made_seed("edits");
    struct model model = { .exists = { false } };
    struct weir_store *handles[2] = { fixture->store, NULL };
    assert_int_equal(weir_store_open(fixture->url, &handles[1], NULL), 0);
    uint64_t accepted = 0, last = 0;
    for (int i = 0; i < EDITS_OF_MODEL; i++) {
        struct model next = model;
        struct weir_change changes[4];
        bool legal = true;
        size_t count = random_edit(&rng, &next, changes, &legal);
        fixture->store = handles[weir_rng_below(&rng, 2)];
        int error = edit_many(fixture, changes, count, 0);
        legal = legal && is_sound(&next);
        if ((error == 0) != legal)
            fail_msg("edit %d gave %d: %s", i, error, fixture->diag.text);
        if (legal) {
            accepted++;
            assert_compare(fixture->epoch, >=, last);
            bool back = fixture->epoch > last && weir_rng_below(&rng, 3) == 0;
            if (back && undo(fixture, fixture->epoch) < 0)
                fail_msg("undo of edit %d: %s", i, fixture->diag.text);
            if (!back)
                model = next;
            last = fixture->epoch;
        }
        compare(fixture, &model);
    }
    /* About half are accepted, so this bound is many deviations away. */
    printf("%d of %d edits were accepted\n", (int)accepted, EDITS_OF_MODEL);
    assert_in_range(accepted, 20, EDITS_OF_MODEL - 10);
    fixture->store = handles[0];
    weir_store_close(handles[1]);
}

/* ---- A writer is killed --------------------------------------------- */

/* Edits without end; writes a byte for each that was answered. */
static void write_until_killed(const char *url, int fd)
{
    struct weir_store *store;
    struct weir_diag diag;
    if (weir_store_open(url, &store, &diag) < 0)
        _exit(1);
    for (uint64_t i = 1;; i++) {
        struct weir_change changes[] = {
            set_to("leaf", i % 2 ? "left" : "right", i),
            set_to("left", i % 2 ? NULL : "right", i),
            set_to("right", i % 2 ? "left" : NULL, i)
        };
        uint64_t epoch;
        if (edit_by(store, changes, 3, &epoch, &diag) < 0)
            _exit(2);
        if (write(fd, "x", 1) != 1)
            _exit(3);
    }
}

static void a_killed_writer_leaves_a_sound_store(void **state)
{
    struct fixture *fixture = *state;
    uint64_t last = 0;
    for (int round = 0; round < 8; round++) {
        int fds[2];
        assert_int_equal(pipe(fds), 0);
        pid_t child = fork();
        if (child == 0)
            write_until_killed(fixture->url, fds[1]);
        close(fds[1]);
        char byte;
        for (int i = 0; i < 5 + round; i++)
            assert_int_equal(PATIENTLY(read(fds[0], &byte, 1)), 1);
        kill(child, SIGKILL);
        int status = STATUS_OF(child);
        assert_true(WIFSIGNALED(status));
        uint64_t answered = 5 + (uint64_t)round;
        while (PATIENTLY(read(fds[0], &byte, 1)) == 1)
            answered++;
        close(fds[0]);
        if (under_test->settle)
            under_test->settle(fixture->url);
        const struct weir_quota *leaf = look(fixture, "leaf");
        uint64_t epoch = weir_catalog_epoch(fixture->seen);
        /* every answered edit is there, and at most one more */
        assert_in_range(epoch, last + 3 * answered, last + 3 * (answered + 1));
        assert_int_equal((epoch - last) % 3, 0);
        assert_int_equal(leaf->limit.units, look(fixture, "left")->limit.units);
        assert_int_equal(leaf->limit.units,
                         look(fixture, "right")->limit.units);
        assert_int_equal(
            weir_catalog_check_place(fixture->seen, leaf->name, NULL), 0);
        /* the epoch goes on from there, for this handle too */
        must(fixture, set_to("mine", NULL, (uint64_t)round + 1));
        assert_int_equal(fixture->epoch, epoch + 1);
        must(fixture, gone("mine"));
        last = fixture->epoch;
    }
}

int store_suite_run(const struct store_under_test *store)
{
    under_test = store;
#define UNDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        UNDER(opening),
        UNDER(epochs_and_ids),
        UNDER(removals_are_told),
        UNDER(a_refused_edit_changes_nothing),
        UNDER(any_order_in_one_edit),
        UNDER(replace_and_create),
        UNDER(two_handles),
        UNDER(nothing_is_lost),
        UNDER(old_removals_raise_the_floor),
        UNDER(who_did_what),
        UNDER(parts_of_the_log),
        UNDER(an_edit_is_taken_back),
        UNDER(what_stands_in_the_way_of_an_undo),
        UNDER(an_undo_loses_nothing),
        UNDER(old_edits_leave_the_log),
        UNDER(an_edit_of_what_was),
        UNDER(each_set_is_replaced_alone),
        UNDER(edits_of_two_processes_queue),
        UNDER(makers_at_once),
        UNDER(lineage),
        UNDER(restored),
        UNDER(as_the_naive_model),
        UNDER(a_killed_writer_leaves_a_sound_store)
    };
    return cmocka_run_group_tests_name(store->name, tests, NULL, NULL);
}
