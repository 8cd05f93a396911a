/* SPDX-License-Identifier: MIT
 * table/table_template.c - the list of templates, in the order of matching.
 *
 * Searches are made under the lock, and also without it, beside a writer that
 * may be stopped anywhere. So the list has a version, which is odd while the
 * list is being edited: what a search found is true if the version was even
 * before it and is the same after it. An edit of a template takes it out of the
 * list and puts it back, with an odd version from the first step to the last. A
 * killed writer leaves it odd until the table is mended. */

#include "core/quota/glob.h"
#include "core/quota/long_name.h"
#include "core/table/table_read.h"
#include "core/table/table_slots_internal.h"

#include <string.h>

typedef uint64_t __attribute__((may_alias)) entry_word;
static_assert(sizeof(struct template_entry) == sizeof(entry_word), "");

/* Stores a whole entry at once: a killed writer leaves each entry somewhere in
 * the list, one of them perhaps twice. */
static void entry_store(struct weir_table *t, uint32_t i,
                        struct template_entry entry)
{
    weir_assert(i < WEIR_TEMPLATES_MAX);
    weir_assert(entry.slot < t->slots);
    uint64_t word;
    memcpy(&word, &entry, sizeof(word));
    weir_store_relaxed((entry_word *)&t->templates[i], word);
}

static struct template_entry entry_load(const struct weir_table *t, uint32_t i)
{
    struct template_entry entry;
    uint64_t word = weir_load_relaxed((const entry_word *)&t->templates[i]);
    memcpy(&entry, &word, sizeof(entry));
    return entry;
}

void weir_templates_edit(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    weir_store_relaxed(&t->template_version, t->template_version | 1);
    /* Before the edit: pairs with the fence in weir_templates_is_same(). */
    weir_fence_release();
}

void weir_templates_edited(struct weir_table *t)
{
    weir_assert(t->template_version & 1);
    /* release: pairs with weir_templates_version(). */
    weir_store_release(&t->template_version, t->template_version + 1);
}

void weir_templates_remove(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->template_count <= WEIR_TEMPLATES_MAX);
    weir_assert(t->template_version & 1);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->template_count; i++) {
        struct template_entry entry = t->templates[i];
        if (entry.slot == slot)
            continue;
        if (kept != i)
            entry_store(t, kept, entry);
        kept++;
    }
    weir_store_relaxed(&t->template_count, kept);
    weir_assert(kept <= t->template_count);
}

static bool sorts_before(const struct weir_table *t,
                         const struct weir_quota *quota,
                         const struct template_entry *other)
{
    if (quota->order != other->order)
        return quota->order < other->order;
    char buf[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(t, other->slot, buf);
    return weir_glob_compare(quota->name, (struct weir_text){ buf, len }) < 0;
}

/* Binary search: each entry of the same order requires loading its name. */
void weir_templates_insert(struct weir_table *t, const struct weir_quota *quota,
                           uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->template_count < WEIR_TEMPLATES_MAX);
    weir_assert(t->template_version & 1);
    uint32_t from = 0;
    uint32_t to = t->template_count;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (sorts_before(t, quota, &t->templates[middle]))
            to = middle;
        else
            from = middle + 1;
    }
    for (uint32_t i = t->template_count; i > from; i--)
        entry_store(t, i, t->templates[i - 1]);
    struct template_entry entry = {
        .order = quota->order,
        .slot = slot & 0xFFFFFF,
        .path = quota->glob == WEIR_GLOB_PATH,
    };
    entry_store(t, from, entry);
    weir_store_relaxed(&t->template_count, t->template_count + 1);
}

uint32_t weir_templates_runs(const struct weir_table *t, struct weir_text name,
                             struct weir_runs *runs, enum weir_glob *out_glob)
{
    bool shadow = weir_name_is_shadow(name);
    size_t work = name.len > WEIR_NAME_MAX ? WEIR_SEARCH_WORK_MAX : SIZE_MAX;
    /* Relaxed: a search without the lock checks the version. */
    uint32_t count = weir_load_relaxed(&t->template_count);
    for (uint32_t i = 0; i < count; i++) {
        char buf[WEIR_NAME_MAX + 1];
        struct template_entry entry = entry_load(t, i);
        size_t len = weir_table_name(t, entry.slot, buf);
        struct weir_text pattern = { buf, len };
        *out_glob = entry.path ? WEIR_GLOB_PATH : WEIR_GLOB_NAME;
        if (weir_name_is_shadow(pattern) == shadow &&
            weir_template_runs_within(*out_glob, pattern, name, runs, &work))
            return entry.slot;
        if (work == 0)
            return WEIR_TEMPLATE_UNKNOWN;
    }
    return WEIR_SLOT_NONE;
}

uint32_t weir_templates_match(const struct weir_table *t, struct weir_text name,
                              struct weir_captures *captures)
{
    struct weir_runs runs;
    enum weir_glob glob;
    uint32_t template = weir_templates_runs(t, name, &runs, &glob);
    weir_assert(template != WEIR_TEMPLATE_UNKNOWN);
    if (template != WEIR_SLOT_NONE)
        weir_runs_captures(glob, &runs, captures);
    return template;
}

/* ---- After a killed writer ---- */

static bool is_listed_before(const struct weir_table *t, uint32_t end,
                             uint32_t slot)
{
    for (uint32_t i = 0; i < end; i++) {
        if (t->templates[i].slot == slot)
            return true;
    }
    return false;
}

/* An entry being moved may be there twice, or its slot may no longer be a
 * template; the entry behind the last may be a valid one. */
void weir_templates_mend(struct weir_table *t)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(t->template_count <= WEIR_TEMPLATES_MAX);
    uint32_t count = t->template_count;
    uint32_t kept = 0;
    weir_templates_edit(t);
    if (count < WEIR_TEMPLATES_MAX)
        count++;
    for (uint32_t i = 0; i < count; i++) {
        struct template_entry entry = t->templates[i];
        if (entry.slot >= t->used || is_listed_before(t, kept, entry.slot) ||
            weir_cold(t, entry.slot)->state != WEIR_SLOT_TEMPLATE)
            continue;
        entry_store(t, kept++, entry);
    }
    weir_store_relaxed(&t->template_count, kept);
    weir_templates_edited(t);
    weir_assert(kept <= count);
}
