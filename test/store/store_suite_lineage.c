/* SPDX-License-Identifier: MIT
 * test/store/store_suite_lineage.c - a store whose history was replaced. It
 * isn't the store that is changed here, but what the reader believes that it
 * has. */

#include "store_suite_lineage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

int store_suite_identity(struct weir_store *store, struct weir_store_id *id,
                         uint64_t *epoch, uint64_t *floor,
                         struct weir_diag *diag)
{
    struct weir_store_state state;
    int error = weir_store_look(store, NULL, &state, diag);
    if (error < 0)
        return error;
    *id = state.id;
    *epoch = state.epoch;
    *floor = state.floor;
    return 0;
}

static struct weir_change change_of(const char *name, bool removed)
{
    struct weir_change change = { .removed = removed };
    if (!removed)
        weir_quota_init(&change.quota);
    change.quota.name = weir_text_of(name);
    change.quota.limit = (struct weir_limit){ 1, WEIR_SECOND, false };
    return change;
}

static void must_all(struct weir_store *store,
                     const struct weir_change *changes, size_t count)
{
    const struct weir_edit edit = { .changes = changes, .count = count };
    struct weir_diag diag;
    uint64_t epoch;
    if (weir_store_edit(store, &edit, &epoch, &diag) < 0)
        fail_msg("%s", diag.text);
}

static void must(struct weir_store *store, const char *name, bool removed)
{
    const struct weir_change change = change_of(name, removed);
    must_all(store, &change, 1);
}

static int ignore_change(void *context, const struct weir_change *change)
{
    (void)context;
    (void)change;
    return 0;
}

/* Reads all that the lineage doesn't have; it is zeroed, or of this store. */
static void read_lineage(struct weir_store *store, struct weir_lineage *lineage)
{
    struct weir_store_state state;
    assert_int_equal(weir_store_look(store, NULL, &state, NULL), 0);
    lineage->id = state.id;
    assert_int_equal(weir_store_read(store, weir_lineage_last(lineage).epoch,
                                     ignore_change, NULL, lineage, NULL),
                     0);
    assert_int_equal(weir_lineage_last(lineage).epoch, state.epoch);
}

static enum weir_history history_of(struct weir_store *store,
                                    const struct weir_lineage *lineage,
                                    struct weir_lineage_loss *loss)
{
    struct weir_store_state state;
    assert_int_equal(weir_store_look(store, lineage, &state, NULL), 0);
    *loss = state.loss;
    return state.history;
}

/* Of the changes that the reader has, those from 'kept' on are others than the
 * store's. */
static void replace_from(struct weir_lineage *lineage, size_t kept)
{
    for (size_t i = kept; i < lineage->count; i++)
        lineage->entries[i].identity ^= 2;
}

/* A reader finds which of its changes the store lacks, and how many edits these
 * are. */
static void lose_a_history(struct weir_store *store)
{
    static struct weir_lineage lineage, other;
    struct weir_lineage_loss loss;
    lineage = other = (struct weir_lineage){ .count = 0 };
    assert_int_equal(history_of(store, &lineage, &loss), WEIR_HISTORY_KEPT);
    const struct weir_change pair[] = { change_of("c", false),
                                        change_of("d", false) };
    must(store, "a", false);
    read_lineage(store, &lineage);
    must(store, "b", false);
    must_all(store, pair, 2);
    must(store, "b", true);
    assert_int_equal(history_of(store, &lineage, &loss), WEIR_HISTORY_KEPT);
    read_lineage(store, &lineage);
    assert_int_equal(lineage.count, 5);
    must(store, "b", false);
    assert_int_equal(history_of(store, &lineage, &loss), WEIR_HISTORY_KEPT);
    for (size_t kept = 0; kept < 5; kept++) {
        static const uint64_t edits[] = { 4, 3, 2, 2, 1 };
        other = lineage;
        replace_from(&other, kept);
        assert_int_equal(history_of(store, &other, &loss), WEIR_HISTORY_LOST);
        assert_int_equal(loss.from, kept + 1);
        assert_int_equal(loss.till, 5);
        assert_int_equal(loss.edits, edits[kept]);
        assert_true(loss.all);
    }
    /* A snapshot's reader knows one change. */
    other = lineage;
    other.entries[0] = other.entries[4];
    other.count = 1;
    replace_from(&other, 0);
    assert_int_equal(history_of(store, &other, &loss), WEIR_HISTORY_LOST);
    assert_int_equal(loss.from, 5);
    assert_int_equal(loss.edits, 1);
    assert_false(loss.all);
    /* It may not know its identity, but it knows its epoch. */
    other.entries[0].identity = 0;
    assert_int_equal(history_of(store, &other, &loss), WEIR_HISTORY_KEPT);
    other.entries[0].epoch = 7;
    assert_int_equal(history_of(store, &other, &loss), WEIR_HISTORY_LOST);
    other.id.uuid[0]++;
    assert_int_equal(history_of(store, &other, &loss), WEIR_HISTORY_UNKNOWN);
}

/* Each of two readers that had the lost edits makes sure that the store has
 * another identity than its own; it is raised once. The store is at epoch 6. */
static void mark_replaced_once(struct weir_store *store)
{
    static struct weir_lineage lineage;
    struct weir_store_state now;
    lineage = (struct weir_lineage){ .count = 0 };
    read_lineage(store, &lineage);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_store_mark_replaced(store, &lineage, NULL), 0);
        assert_int_equal(weir_store_look(store, NULL, &now, NULL), 0);
        assert_int_equal(now.id.restores, 1);
        assert_int_equal(now.epoch, 6);
    }
    /* Also if the store has lost the mark of an earlier restoration. */
    lineage.id.restores = 7;
    assert_int_equal(weir_store_mark_replaced(store, &lineage, NULL), 0);
    assert_int_equal(weir_store_look(store, NULL, &now, NULL), 0);
    assert_int_equal(now.id.restores, 8);
    must(store, "b", true);
    /* A reading that began before is of another store. */
    assert_int_equal(
        weir_store_read(store, 6, ignore_change, NULL, &lineage, NULL),
        WEIR_ECHANGED);
}

void store_suite_lineage(struct weir_store *store)
{
    lose_a_history(store);
    mark_replaced_once(store);
}
