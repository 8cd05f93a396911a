/* SPDX-License-Identifier: MIT
 * codec/quota_json.c - a quota as a JSON object: jansson.
 *
 * The table of fields says whether JSON has a field as text, number or object.
 * Values pass through the same texts that people write, so the page, the
 * command line and a file can't disagree.
 *
 * A quota borrows its texts. Labels come as an object, so their text is made
 * once and replaces the object: it then lives as long as the other texts. */

#include "codec/quota_json.h"

#include <string.h>

#include "core/quota/quota_text.h"

static json_t *labels_to_json(struct weir_text labels)
{
    json_t *object = json_object();
    struct weir_text key;
    struct weir_text value;
    while (object && weir_labels_next(&labels, &key, &value)) {
        char name[64] = { 0 };
        size_t len = key.len < sizeof(name) ? key.len : sizeof(name) - 1;
        memcpy(name, key.p, len);
        json_t *text = json_stringn(value.len > 0 ? value.p : "", value.len);
        if (json_object_set_new(object, name, text) < 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *number_to_json(struct weir_text text)
{
    int64_t number = INT64_MAX;
    (void)weir_signed_parse(text, &number);
    return json_integer(number);
}

static json_t *field_to_json(const struct weir_quota *quota,
                             const struct weir_field *field)
{
    char buf[WEIR_FIELD_VALUE_MAX];
    size_t len = weir_quota_get(quota, field->name, buf, sizeof(buf));
    struct weir_text text = { buf, len };
    switch (field->type) {
    case WEIR_FIELD_TEXT:
        return json_stringn(buf, len);
    case WEIR_FIELD_NUMBER:
        return number_to_json(text);
    case WEIR_FIELD_MAP:
        return labels_to_json(text);
    case WEIR_FIELD_FLAG:
        return json_boolean(weir_text_equal(text, WEIR_TEXT("yes")));
    }
    return NULL;
}

/* A field that doesn't apply to the quota's algorithm is left out at its
 * default. One that is set is shown, so that the reader's check can refuse
 * it. */
static bool is_field_shown(const struct weir_quota *quota, const char *field)
{
    return weir_quota_applies(quota, field) ||
           !weir_quota_is_default(quota, field);
}

json_t *weir_quota_to_json(const struct weir_quota *quota)
{
    json_t *object = json_object();
    if (!object)
        return NULL;
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (size_t i = 0; i < count; i++) {
        if (!is_field_shown(quota, fields[i].name))
            continue;
        json_t *value = field_to_json(quota, &fields[i]);
        if (json_object_set_new(object, fields[i].name, value) < 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static int refuse_json_type(const char *field, const char *wanted,
                            struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ESYNTAX, "the field '", field, "' must be ",
                         wanted, NULL);
}

/* Writes "key=value\n" lines of an object into 'out'. */
static int collect_labels(json_t *value, struct weir_out *out,
                          struct weir_diag *diag)
{
    const char *key;
    json_t *item;
    json_object_foreach(value, key, item)
    {
        if (!json_is_string(item))
            return refuse_json_type("labels", "an object of strings", diag);
        struct weir_text text = { json_string_value(item),
                                  json_string_length(item) };
        if (text.len > 0 && memchr(text.p, '\n', text.len))
            return weir_diag_set(diag, WEIR_EQUOTA, "the value of the label ",
                                 "'", key, "' holds a line feed", NULL);
        if (strchr(key, '=') || strchr(key, '\n'))
            return weir_diag_set(diag, WEIR_EQUOTA, "the key of the label '",
                                 key, "' isn't 1 to 63 of A-Z a-z 0-9 _ . / ",
                                 "-", NULL);
        weir_out_string(out, key);
        weir_out_string(out, "=");
        weir_out_text(out, text);
        weir_out_string(out, "\n");
    }
    return 0;
}

static int set_json_labels(json_t *object, json_t *value,
                           struct weir_quota *quota, struct weir_diag *diag)
{
    char lines[WEIR_LABELS_MAX + 2];
    struct weir_out out = { lines, sizeof(lines), 0 };
    int error = collect_labels(value, &out, diag);
    if (error < 0)
        return error;
    if (out.len == out.size)
        return weir_diag_put(
            diag, WEIR_EQUOTA,
            "the labels are too long; together they may have 4096 bytes");
    char sorted[WEIR_LABELS_MAX];
    struct weir_text labels;
    error = weir_labels_parse((struct weir_text){ lines, out.len }, sorted,
                              &labels, diag);
    if (error < 0)
        return error;
    json_t *text = json_stringn(sorted, labels.len);
    if (!text || json_object_set_new(object, "labels", text) < 0)
        return weir_diag_put(diag, WEIR_ENOMEM, "there is no memory");
    quota->labels = (struct weir_text){ json_string_value(text), labels.len };
    return 0;
}

/* The store sets id, epoch and created. A program may send back an object that
 * it received, so these fields are accepted. */
static int set_read_only(const char *field, json_t *value,
                         struct weir_quota *quota, struct weir_diag *diag)
{
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0)
        return refuse_json_type(field, "a whole number", diag);
    if (strcmp(field, "id") == 0)
        quota->id = (uint64_t)number;
    if (strcmp(field, "epoch") == 0)
        quota->epoch = (uint64_t)number;
    if (strcmp(field, "created") == 0)
        quota->created = (uint64_t)number;
    return 0;
}

static const struct weir_field *find_json_field(const char *name)
{
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    }
    return NULL;
}

/* A number for a text field is a number of units ("low_burst": 100). Its
 * digits are kept only during the call, so only fields that are parsed may
 * have one. */
static bool takes_digits(const struct weir_field *field)
{
    static const char *const also[] = { "limit", "low_burst", "high_burst",
                                        "initial" };
    for (size_t i = 0; i < WEIR_COUNT_OF(also); i++) {
        if (strcmp(field->name, also[i]) == 0)
            return true;
    }
    return field->type == WEIR_FIELD_NUMBER;
}

static bool takes_sign(const struct weir_field *field)
{
    return strcmp(field->name, "priority") == 0;
}

/* The type that a value of the field must have, in words. */
static const char *wanted_type(const struct weir_field *field)
{
    switch (field->type) {
    case WEIR_FIELD_TEXT:
        break;
    case WEIR_FIELD_NUMBER:
        return "a whole number";
    case WEIR_FIELD_MAP:
        return "an object of strings";
    case WEIR_FIELD_FLAG:
        return "true or false";
    }
    return "a string";
}

static int set_digits(const struct weir_field *field, json_t *value,
                      struct weir_quota *quota, struct weir_diag *diag)
{
    json_int_t number = json_integer_value(value);
    if (!takes_digits(field))
        return refuse_json_type(field->name, wanted_type(field), diag);
    if (number < 0 && !takes_sign(field))
        return weir_diag_set(diag, WEIR_EQUOTA, "the field '", field->name,
                             "' is negative; it must be 0 or more", NULL);
    char digits[WEIR_NUMBER_MAX];
    struct weir_out out = { digits, sizeof(digits), 0 };
    weir_out_signed(&out, number);
    return weir_quota_set(quota, weir_text_of(field->name),
                          (struct weir_text){ digits, out.len }, diag);
}

static int set_json_field(json_t *object, const char *name, json_t *value,
                          struct weir_quota *quota, struct weir_diag *diag)
{
    const struct weir_field *field = find_json_field(name);
    struct weir_text key = weir_text_of(name);
    struct weir_text empty = { NULL, 0 };
    if (!field)
        return weir_quota_set(quota, key, empty, diag);
    if (field->read_only)
        return set_read_only(name, value, quota, diag);
    if (json_is_null(value))
        return weir_quota_set(quota, key, empty, diag);
    if (field->type == WEIR_FIELD_MAP && json_is_object(value))
        return set_json_labels(object, value, quota, diag);
    if (json_is_integer(value))
        return set_digits(field, value, quota, diag);
    if (field->type == WEIR_FIELD_FLAG && json_is_boolean(value))
        return weir_quota_set(
            quota, key,
            json_is_true(value) ? WEIR_TEXT("yes") : WEIR_TEXT("no"), diag);
    if (!json_is_string(value) || field->type == WEIR_FIELD_NUMBER)
        return refuse_json_type(name, wanted_type(field), diag);
    struct weir_text text = { json_string_value(value),
                              json_string_length(value) };
    return weir_quota_set(quota, key, text, diag);
}

int weir_quota_from_json(json_t *object, struct weir_quota *quota,
                         struct weir_diag *diag)
{
    if (!json_is_object(object))
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "a quota must be a JSON object");
    struct weir_quota changed = *quota;
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        int error = set_json_field(object, name, value, &changed, diag);
        if (error < 0)
            return error;
    }
    *quota = changed;
    return 0;
}
