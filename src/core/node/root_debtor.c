/* SPDX-License-Identifier: MIT
 * core/node/root_debtor.c - limiters that reported more than one limiter's debt
 * (counted/merge_debt.c), remembered for the operator.
 *
 * One row for each limiter and quota, at most WEIR_DEBTORS_MAX; a new row takes
 * the place of the one with the oldest report. The exact sums are in the merge;
 * a row has the units since it was made. It outlives the limiter and its
 * cells: names are copied. An episode begins with the first report beyond the
 * debt, and again when there was none for WEIR_DEBTOR_EPISODE. */

#include "core/node/root_state.h"

#include <string.h>

static bool is_row_of(const struct root_debtor *row,
                      const struct root_limiter *limiter,
                      const struct weir_root_quota *root_quota)
{
    struct weir_text name = { row->quota, row->quota_len };
    return memcmp(row->incarnation, limiter->key.incarnation,
                  WEIR_INCARNATION_SIZE) == 0 &&
           weir_text_equal(name, (struct weir_text){ root_quota->name,
                                                     root_quota->name_len });
}

/* The row of limiter and quota; if there is none, a free or the oldest one. */
static struct root_debtor *take_debtor_row(
    struct root_debtors *debtors, const struct root_limiter *limiter,
    const struct weir_root_quota *root_quota)
{
    weir_assert(debtors->rows && debtors->count <= WEIR_DEBTORS_MAX);
    struct root_debtor *oldest = &debtors->rows[0];
    for (size_t i = 0; i < debtors->count; i++) {
        struct root_debtor *row = &debtors->rows[i];
        if (is_row_of(row, limiter, root_quota))
            return row;
        if (row->at < oldest->at)
            oldest = row;
    }
    if (debtors->count < WEIR_DEBTORS_MAX)
        oldest = &debtors->rows[debtors->count++];
    *oldest = (struct root_debtor){ .quota_len = root_quota->name_len,
                                    .limiter_len = limiter->name_len };
    memcpy(oldest->quota, root_quota->name, root_quota->name_len);
    memcpy(oldest->limiter, limiter->name, limiter->name_len);
    memcpy(oldest->incarnation, limiter->key.incarnation,
           WEIR_INCARNATION_SIZE);
    return oldest;
}

void weir_root_note_beyond(void *context,
                           const struct weir_merge_limiter *cells,
                           const struct weir_root_quota *root_quota,
                           uint64_t units, weir_instant now)
{
    weir_assert(units > 0);
    struct weir_root *root = context;
    struct root_debtors *debtors = &root->debtors;
    const struct root_limiter *limiter =
        (const void *)((const char *)cells -
                       offsetof(struct root_limiter, cells));
    root->stats.beyond_debt += units;
    if (!debtors->rows)
        debtors->rows = root->mem.alloc(
            root->mem.context, WEIR_DEBTORS_MAX * sizeof(*debtors->rows));
    if (!debtors->rows)
        return; /* without memory only the sums are known */
    struct root_debtor *row = take_debtor_row(debtors, limiter, root_quota);
    bool again = row->units > 0 && now - row->at < WEIR_DEBTOR_EPISODE;
    row->untold |= !again;
    row->units += units;
    row->at = now;
    weir_assert(row->units > 0);
}

void weir_root_free_debtors(struct weir_root *root)
{
    root->mem.free(root->mem.context, root->debtors.rows,
                   WEIR_DEBTORS_MAX * sizeof(*root->debtors.rows));
}

/* ---- Views ---- */

static void write_debtor(const struct root_debtor *row, struct weir_debtor *out,
                         weir_instant now)
{
    *out = (struct weir_debtor){
        .quota = { row->quota, row->quota_len },
        .limiter = { row->limiter, row->limiter_len },
        .units = row->units,
        .silent = weir_since(row->at, now),
    };
    memcpy(out->incarnation, row->incarnation, WEIR_INCARNATION_SIZE);
}

bool weir_root_debtor(const struct weir_root *root, size_t *cursor,
                      struct weir_debtor *out, weir_instant now)
{
    if (*cursor >= root->debtors.count)
        return false;
    write_debtor(&root->debtors.rows[(*cursor)++], out, now);
    return true;
}

bool weir_root_debtor_of(const struct weir_root *root, struct weir_text quota,
                         struct weir_debtor *out, weir_instant now)
{
    const struct root_debtor *last = NULL;
    for (size_t i = 0; i < root->debtors.count; i++) {
        const struct root_debtor *row = &root->debtors.rows[i];
        struct weir_text name = { row->quota, row->quota_len };
        if (weir_text_equal(name, quota) && (!last || row->at > last->at))
            last = row;
    }
    if (last)
        write_debtor(last, out, now);
    return last;
}

bool weir_root_new_debtor(struct weir_root *root, struct weir_debtor *out,
                          weir_instant now)
{
    weir_assert(root->debtors.count <= WEIR_DEBTORS_MAX);
    for (size_t i = 0; i < root->debtors.count; i++) {
        struct root_debtor *row = &root->debtors.rows[i];
        if (!row->untold)
            continue;
        row->untold = false;
        write_debtor(row, out, now);
        return true;
    }
    return false;
}
