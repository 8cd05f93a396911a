/* SPDX-License-Identifier: MIT
 * table/table_stored_name.c - the stored form of a long name, and its slot.
 *
 * A long name is ruled by the quota of exactly its stored form, if there is
 * one; else by the first template that matches the whole name; else by itself
 * (throttle_name.h). long_name.h has the form.
 *
 * The form depends on the template. So each request by a long name first
 * searches the templates, as the first request by any name does, and this time
 * without the lock. If the list is being edited, the search is done under the
 * lock. A slot that is found is used only if it has that template.
 *
 * Clients choose the name's length and bytes, so the search has a bound of work
 * (WEIR_SEARCH_WORK_MAX), and a name that needs more is refused. Rejected: a
 * cache of the names that were searched last, which a client avoids by another
 * name each time. */

#include "core/table/table_stored_name.h"

#include "core/quota/long_name.h"
#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"

/* Whether a quota has exactly this name. */
static bool is_quota(struct weir_table *t, struct weir_text name,
                     struct weir_ref *out)
{
    return weir_table_find(t, name, out) &&
           weir_load_acquire(&weir_cold(t, out->slot)->state) ==
               WEIR_SLOT_QUOTA;
}

void weir_stored_name_make(const struct weir_table *table,
                           struct weir_text given, struct weir_stored_name *out)
{
    struct weir_table *t = (struct weir_table *)(uintptr_t)table;
    struct weir_name_hash hash;
    struct weir_runs runs;
    struct weir_ref ref;
    enum weir_glob glob;
    weir_assert(given.len <= WEIR_GIVEN_NAME_MAX);
    weir_long_name_hash(given, &hash);
    out->template = WEIR_SLOT_NONE;
    out->captures.count = 0;
    out->len = weir_long_name_store(given, &hash, NULL, out->buf);
    if (is_quota(t, weir_stored_name_text(out), &ref))
        return;
    out->template = weir_templates_runs(t, given, &runs, &glob);
    if (out->template == WEIR_TEMPLATE_UNKNOWN) {
        out->template = WEIR_SLOT_NONE;
        out->len = 0;
    }
    if (out->template == WEIR_SLOT_NONE)
        return;
    weir_runs_captures(glob, &runs, &out->captures);
    out->len = weir_long_name_store(given, &hash, &runs, out->buf);
}

bool weir_stored_name_holds(const struct weir_table *t,
                            const struct weir_stored_name *name)
{
    struct weir_captures captures;
    weir_assert(weir_table_is_locked(t));
    return name->len > 0 && weir_templates_match(t, weir_stored_name_text(name),
                                                 &captures) == name->template;
}

/* Whether the slot is as weir_slot_resolve_given() would leave it. */
static bool is_ruled(const struct weir_table *t, uint32_t slot,
                     uint32_t template)
{
    const struct cold *cold = weir_cold(t, slot);
    uint8_t state = weir_load_acquire(&cold->state);
    if (state == WEIR_SLOT_QUOTA)
        return true;
    /* Relaxed: both are written before the state, and again by edits only. */
    return state == WEIR_SLOT_INSTANCE &&
           weir_load_relaxed(&cold->rule) == template &&
           weir_load_relaxed(&cold->aux_len) == 0;
}

bool weir_stored_name_find(struct weir_table *t, struct weir_text given,
                           struct weir_stored_name *out,
                           struct weir_ref *out_ref)
{
    uint32_t version = weir_templates_version(t);
    struct weir_ref ref;
    weir_stored_name_make(t, given, out);
    if (!weir_templates_is_same(t, version) || out->len == 0 ||
        !weir_table_find(t, weir_stored_name_text(out), &ref) ||
        !is_ruled(t, ref.slot, out->template))
        return false;
    *out_ref = ref;
    return true;
}
