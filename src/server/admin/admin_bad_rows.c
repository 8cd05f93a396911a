/* SPDX-License-Identifier: MIT
 * server/admin/admin_bad_rows.c - rows of the store that can't be read: what
 * the root's status shows of them.
 *
 * A row leaves the list when a newer row of its name is read, which an edit
 * writes. A whole reading of the store begins a new list. */

#include "server/admin/admin_internal.h"

#include <stdio.h>
#include <string.h>

#include "core/quota/quota_text.h"

void weir_admin_heal_row(struct weir_admin *admin, struct weir_text name)
{
    struct weir_admin_bad_rows *bad = &admin->bad;
    weir_assert(bad->named <= WEIR_ADMIN_BAD_ROWS_MAX);
    for (size_t i = 0; i < bad->named; i++) {
        struct weir_text named = { bad->rows[i].name, bad->rows[i].name_len };
        if (!weir_text_equal(named, name))
            continue;
        bad->rows[i] = bad->rows[--bad->named];
        bad->count--;
        return;
    }
}

void weir_admin_add_bad_row(struct weir_admin *admin,
                            const struct weir_bad_row *row, weir_instant now)
{
    struct weir_admin_bad_rows *bad = &admin->bad;
    weir_assert(row->name.len <= WEIR_NAME_MAX);
    weir_admin_heal_row(admin, row->name);
    bool kept = weir_root_keep(admin->root, row->name, row->epoch, now);
    bad->count++;
    if (admin->parts.watch.on_bad_row)
        admin->parts.watch.on_bad_row(admin->parts.watch.context, row, kept);
    if (bad->named == WEIR_ADMIN_BAD_ROWS_MAX)
        return;
    struct weir_admin_bad_row *to = &bad->rows[bad->named++];
    *to = (struct weir_admin_bad_row){ .id = row->id,
                                       .kept = kept,
                                       .name_len = (uint8_t)row->name.len };
    if (row->name.len > 0)
        memcpy(to->name, row->name.p, row->name.len);
    snprintf(to->why, sizeof to->why, "%s", row->why);
}

json_t *weir_admin_bad_rows(const struct weir_admin *admin)
{
    json_t *list = json_array();
    for (size_t i = 0; i < admin->bad.named; i++) {
        const struct weir_admin_bad_row *row = &admin->bad.rows[i];
        struct weir_text name = { row->name, row->name_len };
        char shown[WEIR_SHOW_MAX];
        json_array_append_new(list, json_pack("{s:s, s:I, s:b, s:s}", "name",
                                              weir_text_show(name, shown), "id",
                                              (json_int_t)row->id, "kept",
                                              row->kept, "problem", row->why));
    }
    return json_pack("{s:I, s:o}", "count", (json_int_t)admin->bad.count,
                     "rows", list);
}
