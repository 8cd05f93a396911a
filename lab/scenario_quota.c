/* SPDX-License-Identifier: MIT
 * lab/scenario_quota.c - quotas of a scenario, and their edits.
 *
 * "quota" statements are checked in order against a catalog like a root's, so a
 * parent precedes its children. An edit ("at T set …") has only the changed
 * fields, and its base depends on the edits before it in time, not in the file.
 * So edits wait until all actions are in order; then each is applied to the
 * quota of its instant, and checked against the catalog of that instant. An
 * edit while the store is away is refused in the run, and has no effect here
 * either. */

#include "core/quota/catalog.h"
#include "core/quota/glob.h"
#include "core/quota/quota_text.h"
#include "io/clock.h"
#include "lab/memory.h"
#include "lab/scenario_internal.h"

/* ---- Fields --------------------------------------------------------- */

/* Takes "field=value …" up to the statement's end, onto 'quota'. */
static int build_quota_fields(struct weir_builder *builder,
                              struct weir_quota *quota)
{
    const struct weir_word *word;
    while ((word = weir_line_take(&builder->line)) != NULL) {
        struct weir_word field;
        struct weir_word value;
        struct weir_diag inner = { 0 };
        if (!weir_word_cut(word, "=", &field, &value))
            return WEIR_REFUSE(builder, word,
                               "%s has no '='; write "
                               "field=value, as in weir-quota(5)",
                               WEIR_SHOWN(word));
        bool outside =
            weir_word_is(&field, "name") || weir_word_is(&field, "labels");
        if (outside)
            return WEIR_REFUSE(builder, &field,
                               "a scenario sets no %s here; take it away",
                               WEIR_SHOWN(&field));
        int error = weir_quota_set(quota, field.text, value.text, &inner);
        if (error < 0)
            return WEIR_REFUSE(builder, error == WEIR_ENOENT ? &field : &value,
                               "%s", inner.text);
    }
    return 0;
}

static size_t quota_field_value(const struct weir_quota *quota,
                                const char *field, char *buf)
{
    if (weir_quota_is_default(quota, field))
        return 0;
    return weir_quota_get(quota, field, buf, WEIR_FIELD_VALUE_MAX);
}

void weir_print_quota(FILE *out, const struct weir_quota *quota,
                      const struct weir_quota *base)
{
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    char is[WEIR_FIELD_VALUE_MAX];
    char was[WEIR_FIELD_VALUE_MAX];
    weir_print_word(out, quota->name);
    for (size_t i = 0; i < count; i++) {
        const char *name = fields[i].name;
        if (fields[i].read_only || strcmp(name, "name") == 0 ||
            strcmp(name, "labels") == 0)
            continue;
        struct weir_text now = { is, quota_field_value(quota, name, is) };
        struct weir_text before = { was, quota_field_value(base, name, was) };
        if (weir_text_equal(now, before))
            continue;
        fprintf(out, " %s=", name);
        if (now.len > 0)
            weir_print_word(out, now);
    }
}

/* ---- The set of quotas at an instant -------------------------------- */

/* For a builder's catalog, which counts its epochs itself. */
static int apply_to_catalog(struct weir_builder *builder,
                            struct weir_catalog *catalog,
                            const struct weir_quota *quota, bool removed,
                            struct weir_where where)
{
    struct weir_change change = { .removed = removed, .quota = *quota };
    struct weir_diag inner = { 0 };
    if (weir_catalog_check(catalog, &change, &inner) < 0)
        return weir_script_refuse(builder->diag, where, "%s", inner.text);
    change.quota.epoch = weir_catalog_epoch(catalog) + 1;
    if (!weir_catalog_get(catalog, quota->name))
        change.quota.created = change.quota.epoch;
    weir_must(weir_catalog_apply(catalog, &change) < 0 ? NULL : catalog);
    return 0;
}

static bool is_named(const struct weir_quota *quota, const char *name)
{
    return weir_text_equal(quota->name, weir_text_of(name));
}

bool weir_scenario_quota_before(const struct weir_scenario *scenario,
                                size_t action, const char *name,
                                struct weir_quota *out)
{
    bool away = false;
    bool found = false;
    struct weir_quota fresh;
    weir_quota_init(&fresh);
    fresh.name = weir_text_of(name);
    *out = fresh;
    for (size_t i = 0; i < scenario->quota_count && !found; i++) {
        found = is_named(&scenario->quotas[i], name);
        if (found)
            *out = scenario->quotas[i];
    }
    for (size_t i = 0; i < action; i++) {
        const struct weir_action *one = &scenario->actions[i];
        away = one->kind == WEIR_ACTION_STORE ? one->flag : away;
        bool ours = !away && one->name && strcmp(one->name, name) == 0;
        if (ours && one->kind == WEIR_ACTION_SET) {
            *out = one->quota;
            found = true;
        } else if (ours && one->kind == WEIR_ACTION_REMOVE) {
            *out = fresh;
            found = false;
        }
    }
    return found;
}

int weir_build_quota(struct weir_builder *builder)
{
    struct weir_scenario *scenario = builder->scenario;
    const struct weir_word *name;
    int error = weir_line_want(&builder->line, "the quota's name", &name);
    if (error == 0)
        error = weir_build_room(builder, scenario->quota_count);
    if (error < 0)
        return error;
    struct weir_quota quota;
    if (weir_scenario_quota_before(scenario, 0, name->text.p, &quota))
        return WEIR_REFUSE(builder, name, "there is a quota %s already",
                           WEIR_SHOWN(name));
    error = build_quota_fields(builder, &quota);
    if (error < 0)
        return error;
    *WEIR_APPEND(builder, scenario->quotas, scenario->quota_count) = quota;
    return apply_to_catalog(builder, builder->catalog, &quota, false,
                            name->where);
}

/* ---- Edits ---------------------------------------------------------- */

static struct weir_scenario_edit *edit_of(struct weir_builder *builder,
                                          const struct weir_action *action)
{
    for (size_t i = 0; i < builder->edit_count; i++) {
        struct weir_scenario_edit *edit = &builder->edits[i];
        if (edit->where.line == action->where.line &&
            edit->where.column == action->where.column)
            return edit;
    }
    weir_assert(!"an edit has its words");
}

static int apply_quota_edit(struct weir_builder *builder, size_t at, bool away)
{
    struct weir_scenario *scenario = builder->scenario;
    struct weir_action *action = &scenario->actions[at];
    bool removed = action->kind == WEIR_ACTION_REMOVE;
    struct weir_quota quota;
    weir_scenario_quota_before(scenario, at, action->name, &quota);
    if (!removed) {
        builder->line = edit_of(builder, action)->fields;
        int error = build_quota_fields(builder, &quota);
        if (error < 0)
            return error;
        action->quota = quota;
    }
    return away ? 0
                : apply_to_catalog(builder, builder->catalog, &quota, removed,
                                   action->where);
}

static bool is_ruled_by(struct weir_text quota, enum weir_glob glob,
                        struct weir_text name)
{
    return weir_text_equal(quota, name) ||
           weir_template_match(glob, quota, name, NULL);
}

/* Whether the name ever has a quota. */
static bool is_known(const struct weir_scenario *scenario,
                     struct weir_text name)
{
    for (size_t i = 0; i < scenario->quota_count; i++) {
        if (is_ruled_by(scenario->quotas[i].name, scenario->quotas[i].glob,
                        name))
            return true;
    }
    for (size_t i = 0; i < scenario->action_count; i++) {
        const struct weir_action *action = &scenario->actions[i];
        if (action->kind == WEIR_ACTION_SET &&
            is_ruled_by(weir_text_of(action->name), action->quota.glob, name))
            return true;
    }
    return false;
}

static int check_mention(struct weir_builder *builder,
                         const struct weir_mention *mention)
{
    const struct weir_scenario *scenario = builder->scenario;
    /* For the '*' of a load's quota any key will do. */
    char *name = weir_scenario_text(builder->scenario, mention->name);
    for (char *p = name; *p; p++)
        *p = *p == '*' ? '1' : *p;
    if (is_known(scenario, mention->name) ||
        is_known(scenario, weir_text_of(name)))
        return 0;
    size_t count = scenario->quota_count;
    const char **names =
        weir_scenario_alloc(builder->scenario, (count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = scenario->quotas[i].name.p;
    struct weir_word word = { .text = mention->name, .where = mention->where };
    return weir_script_unknown(builder->diag, &word, "quota", names);
}

int weir_build_edits(struct weir_builder *builder)
{
    bool away = false;
    int error = 0;
    const struct weir_scenario *scenario = builder->scenario;
    for (size_t i = 0; error == 0 && i < builder->mention_count; i++)
        error = check_mention(builder, &builder->mentions[i]);
    for (size_t i = 0; error == 0 && i < scenario->action_count; i++) {
        const struct weir_action *action = &scenario->actions[i];
        if (action->kind == WEIR_ACTION_STORE)
            away = action->flag;
        else if (action->kind == WEIR_ACTION_SET ||
                 action->kind == WEIR_ACTION_REMOVE)
            error = apply_quota_edit(builder, i, away);
    }
    return error;
}
