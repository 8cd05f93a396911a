/* SPDX-License-Identifier: MIT
 * codec/yaml_print.c - a set of quotas as one YAML file: writing.
 *
 * libyaml's emitter chooses the quotes. It doesn't know that other YAML readers
 * take some plain words for something else than a text (null, true, 1e3), so
 * this file requests quotes for those. Fields at their defaults are left out:
 * the file shows only what was decided. */

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "codec/yaml.h"

struct output {
    char *bytes;
    size_t len;
    size_t capacity;
};

static int append_printed(void *context, unsigned char *bytes, size_t size)
{
    struct output *output = context;
    size_t need = output->len + size + 1;
    if (need > output->capacity) {
        size_t capacity =
            need > 2 * output->capacity ? need : 2 * output->capacity;
        char *grown = realloc(output->bytes, capacity);
        if (!grown)
            return 0;
        output->bytes = grown;
        output->capacity = capacity;
    }
    weir_assert(output->len + size < output->capacity);
    memcpy(output->bytes + output->len, bytes, size);
    output->len += size;
    output->bytes[output->len] = '\0';
    return 1;
}

/* Words and beginnings that YAML readers don't take for a text. */
static bool is_ambiguous(struct weir_text text)
{
    static const char *const words[] = { "null", "true", "false", "yes", "no",
                                         "on",   "off",  "y",     "n",   "~" };
    if (text.len == 0 || memchr("0123456789.+-=<", text.p[0], 15))
        return true;
    if (text.len > 5)
        return false;
    char lower[6] = { 0 };
    for (size_t i = 0; i < text.len; i++)
        lower[i] =
            text.p[i] >= 'A' && text.p[i] <= 'Z' ? text.p[i] | 0x20 : text.p[i];
    for (size_t i = 0; i < WEIR_COUNT_OF(words); i++) {
        if (strcmp(lower, words[i]) == 0)
            return true;
    }
    return false;
}

static bool emit_scalar(yaml_emitter_t *emitter, struct weir_text text,
                        bool quote)
{
    yaml_scalar_style_t style =
        quote ? YAML_DOUBLE_QUOTED_SCALAR_STYLE : YAML_ANY_SCALAR_STYLE;
    static const char nothing[1];
    const char *bytes = text.len > 0 ? text.p : nothing;
    yaml_event_t event;
    return yaml_scalar_event_initialize(&event, NULL, NULL,
                                        (const unsigned char *)bytes,
                                        (int)text.len, 1, 1, style) &&
           yaml_emitter_emit(emitter, &event);
}

static bool emit_map(yaml_emitter_t *emitter, bool flow)
{
    yaml_event_t event;
    return yaml_mapping_start_event_initialize(
               &event, NULL, NULL, 1,
               flow ? YAML_FLOW_MAPPING_STYLE : YAML_BLOCK_MAPPING_STYLE) &&
           yaml_emitter_emit(emitter, &event);
}

static bool emit_map_end(yaml_emitter_t *emitter)
{
    yaml_event_t event;
    return yaml_mapping_end_event_initialize(&event) &&
           yaml_emitter_emit(emitter, &event);
}

static bool emit_labels(yaml_emitter_t *emitter, struct weir_text labels)
{
    if (!emit_map(emitter, true))
        return false;
    struct weir_text key;
    struct weir_text value;
    while (weir_labels_next(&labels, &key, &value)) {
        if (!emit_scalar(emitter, key, is_ambiguous(key)) ||
            !emit_scalar(emitter, value, is_ambiguous(value)))
            return false;
    }
    return emit_map_end(emitter);
}

/* Ambiguous words are quoted in texts that people choose, and in a zone, which
 * other readers may take for a number ("+01:00"). Limits, bursts and Weir's own
 * words are written plain. */
static bool is_free_text(const char *field)
{
    static const char *const names[] = { "name",    "parent", "overflow",
                                         "classes", "tz",     "description" };
    for (size_t i = 0; i < WEIR_COUNT_OF(names); i++) {
        if (strcmp(field, names[i]) == 0)
            return true;
    }
    return false;
}

static bool emit_quota(yaml_emitter_t *emitter, const struct weir_quota *quota)
{
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    if (!emit_map(emitter, false))
        return false;
    for (size_t i = 0; i < count; i++) {
        const char *name = fields[i].name;
        if (fields[i].read_only || weir_quota_is_default(quota, name))
            continue;
        char buf[WEIR_FIELD_VALUE_MAX];
        struct weir_text value = { buf, weir_quota_get(quota, name, buf,
                                                       sizeof(buf)) };
        bool quote = is_free_text(name) && is_ambiguous(value);
        bool done = emit_scalar(emitter, weir_text_of(name), false) &&
                    (fields[i].type == WEIR_FIELD_MAP
                         ? emit_labels(emitter, value)
                         : emit_scalar(emitter, value, quote));
        if (!done)
            return false;
    }
    return emit_map_end(emitter);
}

static bool emit_head(yaml_emitter_t *emitter)
{
    yaml_event_t event;
    return yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING) &&
           yaml_emitter_emit(emitter, &event) &&
           yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1) &&
           yaml_emitter_emit(emitter, &event) && emit_map(emitter, false) &&
           emit_scalar(emitter, WEIR_TEXT("weir"), false) &&
           emit_scalar(emitter, WEIR_TEXT("1"), false) &&
           emit_scalar(emitter, WEIR_TEXT("quotas"), false) &&
           yaml_sequence_start_event_initialize(&event, NULL, NULL, 1,
                                                YAML_BLOCK_SEQUENCE_STYLE) &&
           yaml_emitter_emit(emitter, &event);
}

static bool emit_tail(yaml_emitter_t *emitter)
{
    yaml_event_t event;
    return yaml_sequence_end_event_initialize(&event) &&
           yaml_emitter_emit(emitter, &event) && emit_map_end(emitter) &&
           yaml_document_end_event_initialize(&event, 1) &&
           yaml_emitter_emit(emitter, &event) &&
           yaml_stream_end_event_initialize(&event) &&
           yaml_emitter_emit(emitter, &event);
}

char *weir_yaml_print(const struct weir_quota *const *quotas, size_t count,
                      size_t *out_len)
{
    struct output output = { .bytes = NULL };
    yaml_emitter_t emitter;
    if (!yaml_emitter_initialize(&emitter))
        return NULL;
    yaml_emitter_set_output(&emitter, append_printed, &output);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, -1);
    bool done = emit_head(&emitter);
    for (size_t i = 0; done && i < count; i++)
        done = emit_quota(&emitter, quotas[i]);
    done = done && emit_tail(&emitter);
    yaml_emitter_delete(&emitter);
    if (!done) {
        free(output.bytes);
        return NULL;
    }
    *out_len = output.len;
    return output.bytes;
}
