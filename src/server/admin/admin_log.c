/* SPDX-License-Identifier: MIT
 * server/admin/admin_log.c - the log of edits, and the undo of one.
 *
 * The log is in the store, not in the root's memory, so it is read on the
 * store's thread, which makes the JSON as well: entries are handed out one by
 * one, borrowed. The request and the thread each own the list; the last to let
 * it go frees it. The thread alone touches it until it reports that it is
 * done. */

#include <stdlib.h>
#include <string.h>

#include "core/base/atomic.h"
#include "server/admin/admin_edit_internal.h"
#include "server/admin/quota_export.h"

struct weir_admin_log {
    uint32_t owners; /* atomic; jansson's own count isn't always */
    json_t *entries; /* owned */
};

void weir_admin_log_drop(struct weir_admin_log *log)
{
    if (!log)
        return;
    uint32_t owners = weir_fetch_sub(&log->owners, 1);
    weir_assert(owners > 0);
    if (owners > 1)
        return;
    json_decref(log->entries);
    free(log);
}

/* ---- On the store's thread ---- */

static json_t *side_of_edit(bool there, const struct weir_quota *quota)
{
    if (!there)
        return json_null();
    struct weir_quota live = weir_shadow_live(quota);
    return weir_quota_export(&live);
}

static int add_log_entry(void *context, const struct weir_log_entry *entry)
{
    struct weir_admin_log *log = context;
    struct weir_text name = weir_name_live(entry->name);
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:s%, s:s%, s:b, s:b, s:o, s:o}", "epoch",
        (json_int_t)entry->epoch, "edit", (json_int_t)entry->edit, "at_ms",
        (json_int_t)entry->at_ms, "identity",
        entry->who.len ? entry->who.p : "", entry->who.len, "name", name.p,
        name.len, "shadow", weir_name_is_shadow(entry->name), "reset",
        entry->reset, "before", side_of_edit(entry->has_before, &entry->before),
        "after", side_of_edit(entry->has_after, &entry->after));
    return json_array_append_new(log->entries, object) < 0 ? WEIR_ENOMEM : 0;
}

static void drop_log(void *log)
{
    weir_admin_log_drop(log);
}

/* ---- On the loop ---- */

int weir_admin_ask_log(struct weir_admin *admin, struct weir_admin_edit *edit)
{
    weir_assert(!edit->log);
    struct weir_admin_log *log = malloc(sizeof *log);
    if (!log)
        return WEIR_ENOMEM;
    *log = (struct weir_admin_log){ .owners = 2, .entries = json_array() };
    edit->log = log;
    const struct weir_store_log_ask ask = {
        .below = edit->epoch,
        .name = weir_admin_edit_name(edit),
        .max = edit->max,
        .each = add_log_entry,
        .end = drop_log,
        .context = log,
    };
    return weir_store_thread_log(admin->store, &ask, edit);
}

json_t *weir_admin_log_answer(const struct weir_admin_edit *edit)
{
    weir_assert(edit->log);
    json_t *entries = edit->log->entries;
    size_t count = json_array_size(entries);
    json_t *answer = json_pack("{s:O}", "entries", entries);
    if (!answer || count < edit->max)
        return answer;
    json_t *last = json_array_get(entries, count - 1);
    json_object_set(answer, "next", json_object_get(last, "epoch"));
    return answer;
}

int weir_admin_read_log(struct weir_admin_call *call,
                        struct weir_admin_edit *edit, struct weir_diag *diag)
{
    char buf[WEIR_NAME_MAX];
    struct weir_quota named = { 0 };
    struct weir_shadow_texts texts;
    size_t below = 0;
    edit->max = 100;
    int error = weir_query_number(call->uri.query, "max", WEIR_ADMIN_LOG_MAX,
                                  &edit->max, diag);
    if (error == 0)
        error = weir_query_number(call->uri.query, "below", SIZE_MAX / 2,
                                  &below, diag);
    if (error == 0)
        error = weir_query_flag(call->uri.query, "shadow", &edit->shadow, diag);
    if (error == 0)
        error =
            weir_query_name(call->uri.query, "quota", buf, &named.name, diag);
    if (error == 0)
        error = weir_shadow_refuse(&named, diag);
    if (error == 0 && edit->shadow)
        error = weir_shadow_quota(&named, &texts, &named, diag);
    if (error < 0)
        return error;
    edit->epoch = below;
    edit->name_len = named.name.len;
    memcpy(edit->name, named.name.p, named.name.len);
    return 0;
}

int weir_admin_read_undo(struct weir_admin_edit *edit, struct weir_diag *diag)
{
    const json_t *epoch = json_object_get(edit->body, "epoch");
    if (!json_is_integer(epoch) || json_integer_value(epoch) < 1)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "the body is {\"epoch\": N}, with an epoch that "
                             "`weir quota log` shows",
                             NULL);
    edit->epoch = (uint64_t)json_integer_value(epoch);
    return 0;
}
