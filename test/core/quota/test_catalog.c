/* SPDX-License-Identifier: MIT
 * test/core/quota/test_catalog.c - a set of quotas compared with a naive
 * model. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <limits.h>

#include "compare.h"
#include "mem_maker.h"
#include "quota_maker.h"

static struct weir_catalog *fresh(void)
{
    struct weir_catalog *catalog = weir_catalog_new(&maker_mem, 42);
    assert_non_null(catalog);
    return catalog;
}

static size_t count_children(const struct weir_catalog *catalog,
                             struct weir_text name)
{
    size_t count = 0;
    const struct weir_quota *child = NULL;
    while ((child = weir_catalog_child(catalog, name, child)))
        count++;
    return count;
}

static struct weir_change set_to(const char *name, const char *parent,
                                 uint64_t epoch)
{
    struct weir_change change = { .removed = false };
    weir_quota_init(&change.quota);
    change.quota.name = weir_text_of(name);
    change.quota.parent = weir_text_of(parent);
    change.quota.epoch = epoch;
    change.quota.created = epoch;
    return change;
}

/* Checks and applies; returns the check's error. */
static int try_set(struct weir_catalog *catalog, const char *name,
                   const char *parent, struct weir_diag *diag)
{
    struct weir_change change =
        set_to(name, parent, weir_catalog_epoch(catalog) + 1);
    int error = weir_catalog_check(catalog, &change, diag);
    if (error == 0)
        assert_int_equal(weir_catalog_apply(catalog, &change), 0);
    return error;
}

static int try_remove(struct weir_catalog *catalog, const char *name,
                      struct weir_diag *diag)
{
    struct weir_change change =
        set_to(name, NULL, weir_catalog_epoch(catalog) + 1);
    change.removed = true;
    int error = weir_catalog_check(catalog, &change, diag);
    if (error == 0)
        assert_int_equal(weir_catalog_apply(catalog, &change), 0);
    return error;
}

static void the_tree_stays_sound(void **state)
{
    (void)state;
    struct weir_catalog *catalog = fresh();
    struct weir_diag diag;
    assert_int_equal(try_set(catalog, "b", "a", &diag), WEIR_EPARENT);
    assert_non_null(strstr(diag.text, "'a' doesn't exist"));
    assert_int_equal(try_set(catalog, "a", NULL, &diag), 0);
    assert_int_equal(try_set(catalog, "b", "a", &diag), 0);
    assert_int_equal(try_set(catalog, "c", "b", &diag), 0);
    assert_int_equal(try_set(catalog, "a", "c", &diag), WEIR_ECYCLE);
    assert_non_null(strstr(diag.text, "a -> c -> b -> a"));
    assert_int_equal(try_set(catalog, "a", "a", &diag), WEIR_ECYCLE);
    assert_int_equal(try_remove(catalog, "b", &diag), WEIR_ECHILDREN);
    assert_non_null(strstr(diag.text, "'c'"));
    assert_int_equal(try_remove(catalog, "x", &diag), WEIR_ENOENT);
    assert_int_equal(try_set(catalog, "c", "a", &diag), 0);
    assert_int_equal(try_remove(catalog, "b", &diag), 0);
    assert_int_equal(count_children(catalog, WEIR_TEXT("a")), 1);
    assert_null(weir_catalog_get(catalog, WEIR_TEXT("b")));
    assert_int_equal(try_set(catalog, "t*", "c", &diag), 0);
    assert_int_equal(try_remove(catalog, "c", &diag), WEIR_ECHILDREN);
    assert_int_equal(try_set(catalog, "d", "t*", &diag), WEIR_ENAME);
    assert_int_equal(try_set(catalog, "d", "tx", &diag), WEIR_EPARENT);
    assert_non_null(strstr(diag.text, "instance of the template 't*'"));
    assert_int_equal(try_set(catalog, "u*", "v{1}", &diag), 0);
    weir_catalog_free(catalog);
}

static void chains_are_at_most_sixteen(void **state)
{
    (void)state;
    struct weir_catalog *catalog = fresh();
    struct weir_diag diag;
    char name[16];
    char parent[16] = "";
    for (int i = 1; i <= 16; i++) {
        snprintf(name, sizeof(name), "q%d", i);
        assert_int_equal(try_set(catalog, name, i > 1 ? parent : NULL, &diag),
                         0);
        memcpy(parent, name, sizeof(name));
    }
    assert_int_equal(try_set(catalog, "q17", "q16", &diag), WEIR_EDEPTH);
    assert_int_equal(try_set(catalog, "t*", "q16", &diag), WEIR_EDEPTH);
    /* a quota that moves takes its descendants along */
    assert_int_equal(try_set(catalog, "top", NULL, &diag), 0);
    assert_int_equal(try_set(catalog, "q1", "top", &diag), WEIR_EDEPTH);
    assert_int_equal(try_set(catalog, "q2", "top", &diag), 0);
    assert_int_equal(try_set(catalog, "wide", "q16", &diag), WEIR_EDEPTH);
    assert_int_equal(try_set(catalog, "q2", "q1", &diag), 0);
    assert_int_equal(try_set(catalog, "q3", "top", &diag), 0);
    assert_int_equal(try_set(catalog, "top", "q1", &diag), 0);
    assert_int_equal(try_set(catalog, "q1", "q16", &diag), WEIR_ECYCLE);
    weir_catalog_free(catalog);
}

static void apply_row(struct weir_catalog *catalog, const char *name,
                      const char *parent)
{
    struct weir_change change =
        set_to(name, parent, weir_catalog_epoch(catalog) + 1);
    assert_int_equal(weir_catalog_apply(catalog, &change), 0);
}

/* A store whose rows another program wrote may have a cycle: the edits that
 * mend it pass. */
static void a_cycle_can_be_mended(void **state)
{
    (void)state;
    struct weir_diag diag;
    static const char *const parents[] = { NULL, "site" };
    for (int own = 0; own < 2; own++) {
        for (int i = 0; i < 3; i++) {
            struct weir_catalog *catalog = fresh();
            apply_row(catalog, "site", NULL);
            apply_row(catalog, "a", own ? "a" : "b");
            apply_row(catalog, "b", own ? NULL : "a");
            int error = i < 2 ? try_set(catalog, "a", parents[i], &diag)
                              : try_remove(catalog, "a", &diag);
            assert_int_equal(error, i < 2 || own ? 0 : WEIR_ECHILDREN);
            weir_catalog_free(catalog);
        }
    }
}

static int try_share(struct weir_catalog *catalog, const char *name,
                     const char *parent, enum weir_sharing sharing,
                     struct weir_diag *diag)
{
    struct weir_change change = set_to(name, parent, 0);
    change.quota.kind = WEIR_CONCURRENCY;
    change.quota.sharing = sharing;
    change.quota.epoch = weir_catalog_epoch(catalog) + 1;
    int error = weir_catalog_check(catalog, &change, diag);
    return error < 0 ? error : weir_catalog_apply(catalog, &change);
}

static void one_of_a_chain_is_adaptive(void **state)
{
    (void)state;
    struct weir_catalog *catalog = fresh();
    struct weir_diag diag;
    assert_int_equal(try_share(catalog, "top", NULL, WEIR_LOCAL, &diag), 0);
    assert_int_equal(try_share(catalog, "db", "top", WEIR_ADAPTIVE, &diag), 0);
    assert_int_equal(try_share(catalog, "q", "db", WEIR_LOCAL, &diag), 0);
    assert_int_equal(try_share(catalog, "r", "q", WEIR_ADAPTIVE, &diag),
                     WEIR_EQUOTA);
    assert_non_null(strstr(diag.text, "'r' and 'db' above it would both be "
                                      "adaptive"));
    /* By an edit of its own, of its ancestor, by a move, by a template. */
    assert_int_equal(try_share(catalog, "q", "db", WEIR_ADAPTIVE, &diag),
                     WEIR_EQUOTA);
    assert_int_equal(try_share(catalog, "top", NULL, WEIR_ADAPTIVE, &diag),
                     WEIR_EQUOTA);
    assert_non_null(strstr(diag.text, "'db' and 'top'"));
    assert_int_equal(try_share(catalog, "s", NULL, WEIR_ADAPTIVE, &diag), 0);
    assert_int_equal(try_share(catalog, "s", "q", WEIR_ADAPTIVE, &diag),
                     WEIR_EQUOTA);
    assert_int_equal(try_share(catalog, "top", "s", WEIR_LOCAL, &diag),
                     WEIR_EQUOTA);
    assert_int_equal(try_share(catalog, "t*", "q", WEIR_ADAPTIVE, &diag),
                     WEIR_EQUOTA);
    assert_int_equal(try_share(catalog, "t*", "top", WEIR_ADAPTIVE, &diag), 0);
    assert_int_equal(try_share(catalog, "db", "top", WEIR_ADAPTIVE, &diag), 0);
    weir_catalog_free(catalog);
}

static void overflow_must_stay(void **state)
{
    (void)state;
    struct weir_catalog *catalog = fresh();
    struct weir_diag diag;
    struct weir_change change = set_to("t*", NULL, 1);
    change.quota.overflow = WEIR_TEXT("rest");
    assert_int_equal(weir_catalog_check(catalog, &change, &diag), WEIR_EQUOTA);
    assert_int_equal(try_set(catalog, "rest", NULL, &diag), 0);
    assert_int_equal(weir_catalog_check(catalog, &change, &diag), 0);
    change.quota.epoch = 2;
    assert_int_equal(weir_catalog_apply(catalog, &change), 0);
    assert_int_equal(try_remove(catalog, "rest", &diag), WEIR_ECHILDREN);
    assert_int_equal(try_remove(catalog, "t*", &diag), 0);
    assert_int_equal(try_remove(catalog, "rest", &diag), 0);
    weir_catalog_free(catalog);
}

static int try_glob(struct weir_catalog *catalog, const char *name,
                    enum weir_glob glob, struct weir_diag *diag)
{
    struct weir_change change =
        set_to(name, NULL, weir_catalog_epoch(catalog) + 1);
    change.quota.glob = glob;
    int error = weir_catalog_check(catalog, &change, diag);
    if (error == 0)
        assert_int_equal(weir_catalog_apply(catalog, &change), 0);
    return error;
}

static bool is_ruled(struct weir_catalog *catalog, const char *name)
{
    struct weir_captures captures = { .count = 9 };
    const struct weir_quota *quota =
        weir_catalog_find(catalog, weir_text_of(name), &captures);
    assert_true(!quota || captures.count == 0);
    return quota;
}

/* A quota with [ in its name is a template by its glob alone. */
static void globs_of_paths(void **state)
{
    (void)state;
    struct weir_catalog *catalog = fresh();
    struct weir_diag diag;
    assert_int_equal(try_glob(catalog, "db/[0-9]/*", WEIR_GLOB_PATH, &diag), 0);
    assert_int_equal(weir_catalog_templates(catalog), 1);
    assert_true(is_ruled(catalog, "db/7/x"));
    assert_false(is_ruled(catalog, "db/7/x/y"));
    assert_false(is_ruled(catalog, "db/x/7"));
    assert_int_equal(try_remove(catalog, "db/[0-9]/*", &diag), 0);
    assert_int_equal(weir_catalog_templates(catalog), 0);

    assert_int_equal(try_set(catalog, "a[0-9]", NULL, &diag), 0);
    assert_false(is_ruled(catalog, "a1"));
    assert_int_equal(try_set(catalog, "child", "a[0-9]", &diag), 0);
    assert_int_equal(try_glob(catalog, "a[0-9]", WEIR_GLOB_PATH, &diag),
                     WEIR_ECHILDREN);
    assert_non_null(strstr(diag.text, "remove or move 'child' first"));
    assert_int_equal(try_set(catalog, "child", NULL, &diag), 0);
    assert_int_equal(try_glob(catalog, "a[0-9]", WEIR_GLOB_PATH, &diag), 0);
    assert_true(is_ruled(catalog, "a1"));
    assert_int_equal(try_set(catalog, "child", "a[0-9]", &diag), WEIR_EPARENT);
    struct weir_change change =
        set_to("t*", NULL, weir_catalog_epoch(catalog) + 1);
    change.quota.overflow = WEIR_TEXT("a[0-9]");
    assert_int_equal(weir_catalog_check(catalog, &change, &diag), WEIR_EQUOTA);
    assert_non_null(strstr(diag.text, "is a template"));
    assert_int_equal(try_glob(catalog, "a[0-9]", WEIR_GLOB_NAME, &diag), 0);
    assert_int_equal(weir_catalog_templates(catalog), 0);
    assert_false(is_ruled(catalog, "a1"));
    weir_catalog_free(catalog);
}

static void templates_are_tried_in_order(void **state)
{
    (void)state;
    struct weir_catalog *catalog = fresh();
    static const struct {
        const char *name;
        uint32_t order;
    } made[] = { { "a*", 5 }, { "ab*", 1 }, { "*bcx*", 1 }, { "abcd", 0 } };
    for (uint64_t i = 0; i < 4; i++) {
        struct weir_change change = set_to(made[i].name, NULL, i + 1);
        change.quota.order = made[i].order;
        assert_int_equal(weir_catalog_apply(catalog, &change), 0);
    }
    struct weir_captures captures = { .count = 7 };
    const struct weir_quota *quota =
        weir_catalog_find(catalog, WEIR_TEXT("abcd"), &captures);
    assert_true(weir_text_equal(quota->name, WEIR_TEXT("abcd")));
    assert_int_equal(captures.count, 0);
    quota = weir_catalog_find(catalog, WEIR_TEXT("abcde"), &captures);
    assert_true(weir_text_equal(quota->name, WEIR_TEXT("ab*")));
    assert_true(weir_text_equal(captures.text[0], WEIR_TEXT("cde")));
    quota = weir_catalog_find(catalog, WEIR_TEXT("ax"), &captures);
    assert_true(weir_text_equal(quota->name, WEIR_TEXT("a*")));
    assert_null(weir_catalog_find(catalog, WEIR_TEXT("b"), &captures));
    struct weir_change change = set_to("a*", NULL, 5);
    change.quota.created = 1;
    assert_int_equal(weir_catalog_apply(catalog, &change), 0);
    quota = weir_catalog_find(catalog, WEIR_TEXT("abcde"), &captures);
    assert_true(weir_text_equal(quota->name, WEIR_TEXT("a*")));
    weir_catalog_free(catalog);
}

static void templates_are_bounded(void **state)
{
    (void)state;
    struct weir_catalog *catalog = fresh();
    struct weir_diag diag;
    char name[16];
    for (int i = 0; i < WEIR_TEMPLATES_MAX; i++) {
        snprintf(name, sizeof(name), "%d*", i);
        assert_int_equal(try_set(catalog, name, NULL, &diag), 0);
    }
    assert_int_equal(try_set(catalog, "x*", NULL, &diag), WEIR_EFULL);
    assert_int_equal(try_set(catalog, "0*", NULL, &diag), 0);
    assert_int_equal(try_set(catalog, "x", NULL, &diag), 0);
    weir_catalog_free(catalog);
}

static void old_tombstones_raise_the_floor(void **state)
{
    (void)state;
    struct weir_catalog *catalog = fresh();
    char name[32];
    uint64_t epoch = 0;
    struct weir_change keep = set_to("keep", "gone0", ++epoch);
    assert_int_equal(weir_catalog_apply(catalog, &keep), 0);
    for (int i = 0; i < WEIR_TOMBSTONES_MAX + 10; i++) {
        snprintf(name, sizeof(name), "gone%d", i);
        struct weir_change change = set_to(name, NULL, ++epoch);
        assert_int_equal(weir_catalog_apply(catalog, &change), 0);
        change.removed = true;
        change.quota.epoch = ++epoch;
        assert_int_equal(weir_catalog_apply(catalog, &change), 0);
    }
    assert_int_equal(weir_catalog_floor(catalog), 21);
    assert_int_equal(count_children(catalog, WEIR_TEXT("gone0")), 1);
    struct weir_cursor cursor = { { 0 } };
    struct weir_change change;
    size_t seen = 0;
    for (; weir_catalog_since(catalog, 0, &cursor, &change); seen++)
        assert_true(change.removed || change.quota.epoch == 1);
    assert_int_equal(seen, WEIR_TOMBSTONES_MAX + 1);
    weir_catalog_free(catalog);
}

/* A removal costs a name, not a quota. */
static void tombstones_are_small(void **state)
{
    (void)state;
    enum { COUNT = 10000, BYTES_MAX = 160 };
    for (int keeps = 0; keeps < 2; keeps++) {
        struct scarce scarce = { INT_MAX, 0 };
        struct weir_mem mem = scarce_mem(&scarce);
        struct weir_catalog *catalog = weir_catalog_new(&mem, 1);
        if (!keeps)
            weir_catalog_limit_tombstones(catalog, 0);
        char name[32];
        uint64_t epoch = 0;
        for (int i = 0; i < COUNT; i++) {
            snprintf(name, sizeof(name), "team/service/quota-%05d", i);
            struct weir_change change = set_to(name, NULL, ++epoch);
            assert_int_equal(weir_catalog_apply(catalog, &change), 0);
            change.removed = true;
            change.quota.epoch = ++epoch;
            assert_int_equal(weir_catalog_apply(catalog, &change), 0);
        }
        if (scarce.bytes > (keeps ? COUNT * BYTES_MAX : 8192u))
            fail_msg("%zu bytes for %d removals", scarce.bytes, COUNT);
        assert_int_equal(weir_catalog_count(catalog), 0);
        assert_int_equal(weir_catalog_floor(catalog), keeps ? 0 : epoch);
        assert_int_equal(weir_catalog_removed(catalog, weir_text_of(name)),
                         keeps);
        weir_catalog_free(catalog);
        assert_int_equal(scarce.bytes, 0);
    }
}

/* ---- The model: an array of names ----------------------------------- */

#define MODEL_NAMES 40

struct model {
    struct weir_quota quotas[MODEL_NAMES]; /* by name; created 0: none */
    bool removed[MODEL_NAMES];
    char names[MODEL_NAMES][16];
    uint64_t epoch;
    uint64_t floor;
    size_t tombstones_max;
};

/* Drops the oldest removals beyond the bound. */
static void forget_removals(struct model *model)
{
    for (;;) {
        size_t count = 0;
        int oldest = -1;
        for (int i = 0; i < MODEL_NAMES; i++) {
            if (!model->removed[i])
                continue;
            count++;
            if (oldest < 0 ||
                model->quotas[i].epoch < model->quotas[oldest].epoch)
                oldest = i;
        }
        if (count <= model->tombstones_max)
            return;
        model->floor = model->quotas[oldest].epoch;
        model->removed[oldest] = false;
        model->quotas[oldest].epoch = 0;
    }
}

static void check_since(const struct model *model,
                        const struct weir_catalog *catalog, uint64_t from)
{
    struct weir_cursor cursor = { { 0 } };
    uint64_t at = from;
    for (;;) {
        int next = -1;
        for (int i = 0; i < MODEL_NAMES; i++) {
            uint64_t epoch = model->quotas[i].epoch;
            if (epoch > at && (next < 0 || epoch < model->quotas[next].epoch))
                next = i;
        }
        struct weir_change change;
        bool more = weir_catalog_since(catalog, from, &cursor, &change);
        assert_int_equal(more, next >= 0);
        if (!more)
            return;
        assert_int_equal(change.removed, model->removed[next]);
        assert_true(
            weir_text_equal(change.quota.name, model->quotas[next].name));
        at = model->quotas[next].epoch;
        assert_int_equal(change.quota.epoch, at);
    }
}

static void check_model(const struct model *model, struct weir_catalog *catalog,
                        struct weir_rng *rng)
{
    size_t live = 0;
    for (int i = 0; i < MODEL_NAMES; i++) {
        const struct weir_quota *want = &model->quotas[i];
        struct weir_text name = weir_text_of(model->names[i]);
        const struct weir_quota *got = weir_catalog_get(catalog, name);
        bool alive = want->epoch > 0 && !model->removed[i];
        assert_int_equal(got != NULL, alive);
        live += alive;
        assert_int_equal(weir_catalog_removed(catalog, name),
                         model->removed[i]);
        if (alive)
            assert_true(weir_quota_equal(got, want));
        size_t children = 0;
        for (int k = 0; k < MODEL_NAMES; k++)
            children += !model->removed[k] && model->quotas[k].epoch > 0 &&
                        weir_text_equal(model->quotas[k].parent, name);
        assert_int_equal(count_children(catalog, name), children);
    }
    assert_int_equal(weir_catalog_count(catalog), live);
    assert_int_equal(weir_catalog_epoch(catalog), model->epoch);
    assert_int_equal(weir_catalog_floor(catalog), model->floor);
    for (size_t i = 1; i < live; i++)
        assert_true(weir_text_compare(weir_catalog_at(catalog, i - 1)->name,
                                      weir_catalog_at(catalog, i)->name) < 0);
    assert_null(weir_catalog_at(catalog, live));
    check_since(model, catalog, weir_rng_below(rng, model->epoch + 1));
}

/* Random changes without any check, as a reader by epochs gets them. */
static void as_the_naive_model(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("catalog");
    static const size_t bounds[] = { WEIR_TOMBSTONES_MAX, 0, 1, 7 };
    for (int round = 0; round < 40; round++) {
        struct model model = { .tombstones_max = bounds[round % 4] };
        struct weir_catalog *catalog = fresh();
        weir_catalog_limit_tombstones(catalog, model.tombstones_max);
        for (int i = 0; i < MODEL_NAMES; i++)
            snprintf(model.names[i], sizeof(model.names[i]), "%s%d",
                     i % 5 ? "n" : "*", i);
        for (int step = 0; step < 300; step++) {
            size_t i = weir_rng_below(&rng, MODEL_NAMES);
            size_t p = weir_rng_below(&rng, MODEL_NAMES);
            model.epoch += 1 + weir_rng_below(&rng, 3);
            bool orphan = weir_rng_below(&rng, 3) == 0;
            struct weir_change change = set_to(
                model.names[i], orphan ? NULL : model.names[p], model.epoch);
            change.quota.order = (uint32_t)weir_rng_below(&rng, 3);
            change.removed = weir_rng_below(&rng, 3) == 0;
            assert_int_equal(weir_catalog_apply(catalog, &change), 0);
            model.quotas[i] = change.quota;
            model.removed[i] = change.removed;
            forget_removals(&model);
            if (step % 10 == 0)
                check_model(&model, catalog, &rng);
        }
        check_model(&model, catalog, &rng);
        weir_catalog_free(catalog);
    }
}

static void a_cursor_survives_applies(void **state)
{
    (void)state;
    struct weir_catalog *catalog = fresh();
    char name[16];
    for (int i = 1; i <= 100; i++) {
        snprintf(name, sizeof(name), "q%d", i);
        try_set(catalog, name, NULL, NULL);
    }
    struct weir_cursor cursor = { { 0 } };
    struct weir_change change;
    uint64_t last = 0;
    for (int i = 1; weir_catalog_since(catalog, 0, &cursor, &change); i++) {
        assert_compare(change.quota.epoch, >, last);
        last = change.quota.epoch;
        if (i > 60)
            continue;
        snprintf(name, sizeof(name), "q%d", i);
        try_set(catalog, name, NULL, NULL);
    }
    assert_int_equal(last, 160);
    weir_catalog_free(catalog);
}

/* ---- Memory runs out at each place in turn -------------------------- */

static void no_memory_changes_nothing(void **state)
{
    (void)state;
    struct scarce scarce = { 1000000, 0 };
    struct weir_mem mem = scarce_mem(&scarce);
    struct weir_catalog *catalog = weir_catalog_new(&mem, 1);
    char name[16];
    char parent[16];
    for (uint64_t i = 1; i <= 500; i++) {
        snprintf(name, sizeof(name), "q%d", (int)i);
        snprintf(parent, sizeof(parent), "p%d", (int)i);
        struct weir_change change = set_to(name, parent, i);
        int tries = 0;
        for (;; tries++) {
            scarce.left = tries;
            size_t count = weir_catalog_count(catalog);
            if (weir_catalog_apply(catalog, &change) == 0)
                break;
            assert_int_equal(weir_catalog_count(catalog), count);
            assert_int_equal(weir_catalog_epoch(catalog), i - 1);
            assert_null(weir_catalog_get(catalog, weir_text_of(name)));
        }
        assert_compare(tries, >=, 2);
        assert_int_equal(count_children(catalog, weir_text_of(parent)), 1);
    }
    scarce.left = 100;
    weir_catalog_free(catalog);
    assert_int_equal(scarce.bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tree_stays_sound),
        cmocka_unit_test(chains_are_at_most_sixteen),
        cmocka_unit_test(a_cycle_can_be_mended),
        cmocka_unit_test(one_of_a_chain_is_adaptive),
        cmocka_unit_test(overflow_must_stay),
        cmocka_unit_test(templates_are_tried_in_order),
        cmocka_unit_test(globs_of_paths),
        cmocka_unit_test(templates_are_bounded),
        cmocka_unit_test(old_tombstones_raise_the_floor),
        cmocka_unit_test(tombstones_are_small),
        cmocka_unit_test(as_the_naive_model),
        cmocka_unit_test(a_cursor_survives_applies),
        cmocka_unit_test(no_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
