/* SPDX-License-Identifier: MIT
 * store/lineage.c - compares a reader's lineage with a store's log.
 *
 * A reader asks for the changes above its epoch. That is right only if the
 * store still has the changes up to it:
 *
 *     reader   1 .. 179 | 180 .. 339
 *     store    1 .. 179 | 180' .. 339' .. 624'      lost: 180 .. 339
 *
 * Two histories that once differ never agree again, so one entry decides: the
 * log's entry of the reader's own epoch. Its identity is a hash of epoch, edit,
 * time and name. The fields are left out, because the upgrade of a schema
 * rewrites their texts; the editor, because an operator may remove names of
 * people from the log. So two histories seem equal if both have, at one epoch,
 * an edit of one quota in one millisecond.
 *
 * An operator may also delete entries. An entry that isn't there, at an epoch
 * that the store has reached, says nothing: the reader reads all anew, and
 * claims no loss.
 *
 * The common part is found by bisection, among the entries that the reader
 * remembers.
 *
 * Rejected: PostgreSQL's timeline, which an older copy of a folder doesn't
 * change, and other stores don't have. A random number for each entry: it needs
 * a new schema, and says nothing about the entries from before. */

#include "store/lineage_log.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/quota/quota_text.h"

struct weir_lineage_entry weir_lineage_last(const struct weir_lineage *lineage)
{
    weir_assert(lineage->count <= WEIR_LINEAGE_MAX);
    if (lineage->count == 0)
        return (struct weir_lineage_entry){ .epoch = 0 };
    return lineage->entries[lineage->count - 1];
}

void weir_lineage_add(struct weir_lineage *lineage,
                      const struct weir_lineage_entry *entry)
{
    weir_assert(entry->epoch > weir_lineage_last(lineage).epoch);
    if (lineage->count == WEIR_LINEAGE_MAX) {
        lineage->count--;
        memmove(lineage->entries, lineage->entries + 1,
                lineage->count * sizeof(*lineage->entries));
    }
    lineage->entries[lineage->count++] = *entry;
}

static struct weir_lineage_entry entry_of(const struct weir_log_row *row)
{
    char buf[3 * WEIR_NUMBER_MAX];
    struct weir_out out = { buf, sizeof(buf), 0 };
    weir_out_number(&out, row->epoch);
    weir_out_string(&out, " ");
    weir_out_number(&out, row->edit);
    weir_out_string(&out, " ");
    weir_out_number(&out, row->at_ms);
    uint64_t hash = weir_hash((struct weir_text){ buf, out.len }, 0);
    return (struct weir_lineage_entry){
        .epoch = row->epoch,
        .edit = row->edit,
        .identity = weir_hash(row->name, hash) | 1, /* 0 is unknown */
    };
}

/* Entries of the log, the newest first. */
struct collected {
    size_t count;
    struct weir_lineage_entry entries[WEIR_LINEAGE_MAX];
};

static int collect_entry(void *context, const struct weir_log_row *row)
{
    struct collected *collected = context;
    weir_assert(collected->count < WEIR_LINEAGE_MAX);
    collected->entries[collected->count++] = entry_of(row);
    return 0;
}

static int take_entry(void *context, const struct weir_log_row *row)
{
    struct weir_lineage_entry *entry = context;
    *entry = entry_of(row);
    return 0;
}

/* Reads at most 'max' entries up to 'epoch'. */
static int read_entries(struct weir_backend *backend, uint64_t epoch,
                        uint64_t max, weir_log_row_each *each, void *context,
                        struct weir_diag *diag)
{
    if (epoch >= INT64_MAX)
        return 0;
    const struct weir_log_query query = { .which = WEIR_LOG_ALL,
                                          .number = epoch + 1,
                                          .max = max };
    return backend->type->read_log(backend, &query, each, context, diag);
}

int weir_lineage_read(struct weir_lineage *lineage,
                      struct weir_backend *backend, uint64_t epoch,
                      struct weir_diag *diag)
{
    uint64_t last = weir_lineage_last(lineage).epoch;
    if (epoch <= last)
        return 0;
    uint64_t max =
        epoch - last < WEIR_LINEAGE_MAX ? epoch - last : WEIR_LINEAGE_MAX;
    struct collected found = { .count = 0 };
    int error = read_entries(backend, epoch, max, collect_entry, &found, diag);
    if (error < 0)
        return error;
    for (size_t i = found.count; i-- > 0;) {
        if (found.entries[i].epoch > weir_lineage_last(lineage).epoch)
            weir_lineage_add(lineage, &found.entries[i]);
    }
    /* A store of schema 1 had no log. */
    if (weir_lineage_last(lineage).epoch < epoch)
        weir_lineage_add(lineage,
                         &(struct weir_lineage_entry){ .epoch = epoch });
    weir_assert(weir_lineage_last(lineage).epoch == epoch);
    return 0;
}

/* The state of the change in a store that has reached 'epoch'. */
static int find_entry(struct weir_backend *backend,
                      const struct weir_lineage_entry *entry, uint64_t epoch,
                      enum weir_history *out, struct weir_diag *diag)
{
    if (entry->epoch > epoch || entry->identity == 0) {
        *out = entry->epoch <= epoch ? WEIR_HISTORY_KEPT : WEIR_HISTORY_LOST;
        return 0;
    }
    struct weir_lineage_entry found = { .epoch = 0 };
    int error =
        read_entries(backend, entry->epoch, 1, take_entry, &found, diag);
    if (error < 0)
        return error;
    if (found.epoch != entry->epoch)
        *out = WEIR_HISTORY_UNKNOWN;
    else
        *out = found.identity == entry->identity ? WEIR_HISTORY_KEPT
                                                 : WEIR_HISTORY_LOST;
    return 0;
}

/* 'kept' of the entries are in the store. An edit is counted at its last
 * change. */
static void count_loss(const struct weir_lineage *lineage, size_t kept,
                       struct weir_lineage_loss *out)
{
    weir_assert(kept < lineage->count);
    const struct weir_lineage_entry *entries = lineage->entries;
    *out = (struct weir_lineage_loss){
        .from = entries[kept].epoch,
        .till = entries[lineage->count - 1].epoch,
        .all = kept > 0 || entries[0].epoch == 1,
    };
    for (size_t i = kept; i < lineage->count; i++) {
        bool last =
            i + 1 == lineage->count || entries[i + 1].edit != entries[i].edit;
        out->edits += last;
    }
    weir_assert(out->edits > 0);
}

static int find_loss(const struct weir_lineage *lineage,
                     struct weir_backend *backend, uint64_t epoch,
                     struct weir_lineage_loss *out, struct weir_diag *diag)
{
    size_t kept = 0;
    size_t lost = lineage->count - 1;
    while (kept < lost) {
        size_t middle = kept + (lost - kept) / 2;
        enum weir_history found = WEIR_HISTORY_KEPT;
        int error =
            find_entry(backend, &lineage->entries[middle], epoch, &found, diag);
        if (error < 0)
            return error;
        if (found == WEIR_HISTORY_LOST)
            lost = middle;
        else
            kept = middle + 1;
    }
    count_loss(lineage, kept, out);
    return 0;
}

int weir_lineage_check(const struct weir_lineage *lineage,
                       struct weir_backend *backend, uint64_t epoch,
                       enum weir_history *out,
                       struct weir_lineage_loss *out_loss,
                       struct weir_diag *diag)
{
    struct weir_lineage_entry last = weir_lineage_last(lineage);
    *out = WEIR_HISTORY_KEPT;
    if (last.epoch == 0)
        return 0;
    if (last.epoch + WEIR_STORE_LOG_MAX <= epoch) {
        *out = WEIR_HISTORY_UNKNOWN;
        return 0;
    }
    int error = find_entry(backend, &last, epoch, out, diag);
    if (error < 0 || *out != WEIR_HISTORY_LOST)
        return error;
    return find_loss(lineage, backend, epoch, out_loss, diag);
}
