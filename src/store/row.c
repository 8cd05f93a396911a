/* SPDX-License-Identifier: MIT
 * store/row.c - a quota's fields as one text.
 *
 *     parent: site
 *     limit: 100/s
 *     labels: owner=ann\nteam=web
 *
 * A line for each field that isn't at its default, with the text that an
 * operator would enter; in a value a backslash is written twice, and a line
 * feed as \n. Operators can thus read quotas and the log with sqlite3 or psql.
 *
 * Why one text and not a column per field: a new field then needs no new
 * schema, no ALTER TABLE over a million rows, and no list of columns in each
 * kind of store; and the log keeps two quotas per row in the same form. The
 * cost: SQL can't compare fields, which no statement of ours does. A version
 * that doesn't know a field refuses the row and names the field, rather than
 * lose it. */

#include "store/row.h"

#include <string.h>

#include "core/quota/quota_text.h"

/* Excluded from the text: the name has its own column, and the store sets the
 * rest. */
static bool is_kept_field(const struct weir_field *field)
{
    return !field->read_only && strcmp(field->name, "name") != 0;
}

static void write_escaped(struct weir_out *out, struct weir_text value)
{
    for (size_t i = 0; i < value.len; i++) {
        if (value.p[i] == '\\')
            weir_out_string(out, "\\\\");
        else if (value.p[i] == '\n')
            weir_out_string(out, "\\n");
        else
            weir_out_text(out, (struct weir_text){ value.p + i, 1 });
    }
}

struct weir_text weir_fields_write(const struct weir_quota *quota, char *buf)
{
    struct weir_out out = { buf, WEIR_FIELDS_MAX, 0 };
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (size_t i = 0; i < count; i++) {
        const char *name = fields[i].name;
        if (!is_kept_field(&fields[i]) || weir_quota_is_default(quota, name))
            continue;
        char value[WEIR_FIELD_VALUE_MAX];
        size_t len = weir_quota_get(quota, name, value, sizeof(value));
        weir_out_string(&out, name);
        weir_out_string(&out, ": ");
        write_escaped(&out, (struct weir_text){ value, len });
        weir_out_string(&out, "\n");
    }
    weir_assert(out.len < WEIR_FIELDS_MAX);
    return (struct weir_text){ buf, out.len };
}

/* Reverses the escaping; uses 'scratch' only if the value has escapes. */
static struct weir_text unescape_value(struct weir_text value, char **scratch)
{
    if (value.len == 0 || !memchr(value.p, '\\', value.len))
        return value;
    char *start = *scratch;
    char *at = start;
    for (size_t i = 0; i < value.len; i++) {
        bool escaped = value.p[i] == '\\' && i + 1 < value.len;
        i += escaped;
        *at++ = escaped && value.p[i] == 'n' ? '\n' : value.p[i];
    }
    *scratch = at;
    return (struct weir_text){ start, (size_t)(at - start) };
}

/* Takes a line off 'fields' and splits it; false: it is malformed. */
static bool next_field_line(struct weir_text *fields,
                            struct weir_text *out_name,
                            struct weir_text *out_value)
{
    const char *end = memchr(fields->p, '\n', fields->len);
    const char *colon = memchr(fields->p, ':', fields->len);
    if (!end || !colon || end - colon < 2 || colon[1] != ' ')
        return false;
    *out_name = (struct weir_text){ fields->p, (size_t)(colon - fields->p) };
    *out_value = (struct weir_text){ colon + 2, (size_t)(end - colon - 2) };
    fields->len -= (size_t)(end + 1 - fields->p);
    fields->p = end + 1;
    return true;
}

static int refuse_row(struct weir_text name, const char *why,
                      struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(
        diag, WEIR_ESTORE, "the quota ", weir_text_show(name, shown),
        " in the store can't be read (by a newer Weir, perhaps): ", why, NULL);
}

/* A field that weir_fields_write() never writes could make the row another
 * quota's. */
static bool is_foreign(struct weir_text field)
{
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (size_t i = 0; i < count; i++) {
        if (weir_text_equal(field, weir_text_of(fields[i].name)))
            return !is_kept_field(&fields[i]);
    }
    return false;
}

/* Validated, although only valid quotas are written: other programs may write
 * to a database too, and later code relies on the bounds. */
int weir_fields_read(struct weir_text name, struct weir_text fields,
                     char *scratch, struct weir_quota *quota,
                     struct weir_diag *diag)
{
    struct weir_diag why = { .text = "its fields are no lines" };
    weir_quota_init(quota);
    quota->name = name;
    while (fields.len > 0) {
        struct weir_text field;
        struct weir_text value;
        if (!next_field_line(&fields, &field, &value))
            return refuse_row(name, why.text, diag);
        if (is_foreign(field))
            return refuse_row(name, "its fields name a field kept elsewhere",
                              diag);
        if (weir_quota_set(quota, field, unescape_value(value, &scratch),
                           &why) < 0)
            return refuse_row(name, why.text, diag);
    }
    return weir_quota_check(quota, &why) < 0 ? refuse_row(name, why.text, diag)
                                             : 0;
}
