/* SPDX-License-Identifier: MIT
 * codec/rls_metadata.c - dynamic metadata: from YAML, to a
 * google.protobuf.Struct.
 *
 * Theory of operation. It is an object of jansson's in between, since /json
 * sends it as one. The messages of a Struct are nested by their lengths, so
 * size_of() walks what put() then writes:
 *
 *     Struct  1: entries { 1: key, 2: Value }
 *     Value   1: null  2: number  3: text  4: bool  5: Struct  6: List
 *     List    1: Values */

#include "codec/rls_metadata.h"

#include <stdlib.h>
#include <string.h>

#include "codec/protobuf_bytes.h"
#include "codec/yaml_nodes.h"

/* ---- From YAML ---- */

struct from_yaml {
    yaml_document_t *document;
    uint32_t nodes;
    size_t *room; /* bytes; borrowed */
};

static bool take_room(struct from_yaml *from, size_t bytes)
{
    if (bytes > *from->room)
        return false;
    *from->room -= bytes;
    return true;
}

static json_t *number_of(struct weir_text text)
{
    char digits[64];
    char *end;
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] == '_')
            continue;
        /* No words such as inf, and no base but ten. */
        if (!strchr("0123456789+-.eE", text.p[i]) || len + 1 == sizeof digits)
            return NULL;
        digits[len++] = text.p[i];
    }
    digits[len] = '\0';
    double value = strtod(digits, &end);
    if (len == 0 || *end != '\0')
        return NULL;
    /* A leading 0 is octal. */
    const char *first = digits + (digits[0] == '+' || digits[0] == '-');
    if (first[0] == '0' && first[1] >= '0' && first[1] <= '9' &&
        strspn(first, "01234567") == strlen(first))
        value = (double)strtol(digits, NULL, 8);
    if (value >= -0x1p53 && value <= 0x1p53 &&
        (double)(json_int_t)value == value)
        return json_integer((json_int_t)value);
    return json_real(value);
}

static json_t *scalar_of(const yaml_node_t *node)
{
    static const char *const yes[] = { "true", "yes", "on", "y" };
    static const char *const no[] = { "false", "no", "off", "n" };
    static const char *const none[] = { "null", "~", "" };
    struct weir_text text = weir_yaml_scalar(node);
    if (weir_yaml_is_word(node, none, WEIR_COUNT_OF(none)))
        return json_null();
    if (weir_yaml_is_word(node, yes, WEIR_COUNT_OF(yes)))
        return json_true();
    if (weir_yaml_is_word(node, no, WEIR_COUNT_OF(no)))
        return json_false();
    json_t *number = weir_yaml_is_plain(node) ? number_of(text) : NULL;
    return number ? number : json_stringn(text.p, text.len);
}

static json_t *value_of(struct from_yaml *from, const yaml_node_t *node,
                        uint32_t depth);

static json_t *object_of(struct from_yaml *from, const yaml_node_t *node,
                         uint32_t depth)
{
    json_t *object = json_object();
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         object && pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key =
            yaml_document_get_node(from->document, pair->key);
        json_t *value =
            value_of(from, yaml_document_get_node(from->document, pair->value),
                     depth + 1);
        struct weir_text name = key && key->type == YAML_SCALAR_NODE
                                    ? weir_yaml_scalar(key)
                                    : (struct weir_text){ NULL, 0 };
        if (!name.p || !take_room(from, name.len)) {
            json_decref(value);
            value = NULL;
        }
        if (!value || json_object_setn_new(object, name.p, name.len, value)) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static json_t *list_of(struct from_yaml *from, const yaml_node_t *node,
                       uint32_t depth)
{
    json_t *list = json_array();
    size_t count = weir_yaml_items(node);
    for (size_t i = 0; list && i < count; i++) {
        const yaml_node_t *item = weir_yaml_item(from->document, node, i);
        if (json_array_append_new(list, value_of(from, item, depth + 1))) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *value_of(struct from_yaml *from, const yaml_node_t *node,
                        uint32_t depth)
{
    if (depth > WEIR_RLS_METADATA_DEPTH_MAX ||
        ++from->nodes > WEIR_RLS_METADATA_NODES_MAX ||
        !take_room(from, WEIR_RLS_METADATA_NODE) ||
        (node->type == YAML_SCALAR_NODE &&
         !take_room(from, node->data.scalar.length)))
        return NULL;
    if (node->type == YAML_MAPPING_NODE)
        return object_of(from, node, depth);
    return node->type == YAML_SEQUENCE_NODE ? list_of(from, node, depth)
                                            : scalar_of(node);
}

json_t *weir_rls_metadata_from_yaml(yaml_document_t *document,
                                    const yaml_node_t *mapping, size_t *room)
{
    struct from_yaml from = { .document = document, .room = room };
    weir_assert(mapping->type == YAML_MAPPING_NODE);
    return value_of(&from, mapping, 0);
}

/* ---- Of an answer ---- */

/* "key=value"; what isn't UTF-8 has no place in a Struct, and is empty. */
static json_t *entry_of(const struct weir_rls_entry *entry)
{
    size_t len = entry->key.len + 1 + entry->value.len;
    char *text = malloc(len);
    if (!text)
        return NULL;
    /* Both may have any bytes, a NUL too. */
    if (entry->key.len > 0)
        memcpy(text, entry->key.p, entry->key.len);
    text[entry->key.len] = '=';
    if (entry->value.len > 0)
        memcpy(text + entry->key.len + 1, entry->value.p, entry->value.len);
    json_t *shown = json_stringn(text, len);
    free(text);
    return shown ? shown : json_string("");
}

static json_t *entries_of(const struct weir_rls_descriptor *descriptor)
{
    json_t *list = json_array();
    for (size_t i = 0; i < descriptor->entry_count; i++)
        json_array_append_new(list, entry_of(&descriptor->entries[i]));
    return list;
}

json_t *weir_rls_metadata_new(const struct weir_rls_request *request)
{
    json_t *object = json_object();
    json_t *list = json_array();
    for (size_t i = 0; i < request->count; i++) {
        const struct weir_rls_descriptor *d = &request->descriptors[i];
        json_t *shown = json_object();
        json_object_set_new(shown, "entries", entries_of(d));
        if (d->hits_given)
            json_object_set_new(shown, "hitsAddend",
                                json_integer((json_int_t)d->hits));
        json_array_append_new(list, shown);
    }
    json_object_set_new(object, "domain",
                        json_stringn(request->domain.p, request->domain.len));
    if (request->hits > 0)
        json_object_set_new(object, "hitsAddend", json_integer(request->hits));
    if (json_object_set_new(object, "descriptors", list) == 0)
        return object;
    json_decref(object);
    return NULL;
}

static void merge_into(json_t *to, const json_t *from)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)from, key, value)
    {
        json_t *there = json_object_get(to, key);
        if (!there)
            json_object_set_new(to, key, json_deep_copy(value));
        else if (json_is_object(there) && json_is_object(value))
            merge_into(there, value);
    }
}

void weir_rls_metadata_merge(json_t *object, const json_t *of_limit)
{
    if (json_object_size(of_limit) == 0)
        return;
    json_t *merged = json_object_get(object, "metadata");
    if (!merged) {
        merged = json_object();
        if (json_object_set_new(object, "metadata", merged) < 0)
            return; /* no memory; 'merged' is freed */
    }
    merge_into(merged, of_limit);
}

/* ---- As bytes ---- */

enum { NULL_FIELD = 1, NUMBER, TEXT_FIELD, BOOL_FIELD, OBJECT, LIST };

static size_t struct_size(const json_t *object);
static size_t value_size(const json_t *value);

static size_t list_size(const json_t *list)
{
    size_t size = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        size += weir_wire_message_size(value_size(json_array_get(list, i)));
    return size;
}

static size_t value_size(const json_t *value)
{
    if (json_is_object(value))
        return weir_wire_message_size(struct_size(value));
    if (json_is_array(value))
        return weir_wire_message_size(list_size(value));
    if (json_is_string(value))
        return weir_wire_message_size(json_string_length(value));
    return json_is_number(value) ? 9 : 2;
}

static size_t pair_size(const char *key, const json_t *value)
{
    return weir_wire_message_size(strlen(key)) +
           weir_wire_message_size(value_size(value));
}

static size_t struct_size(const json_t *object)
{
    size_t size = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) size +=
        weir_wire_message_size(pair_size(key, value));
    return size;
}

static uint8_t *put_text(uint8_t *p, unsigned number, const char *text,
                         size_t len)
{
    p = weir_wire_put_head(p, number, len);
    memcpy(p, text, len);
    return p + len;
}

static uint8_t *put_number(uint8_t *p, double number)
{
    uint64_t bits = weir_double_bits(number);
    *p++ = NUMBER << 3 | WEIR_WIRE_FIXED64;
    for (int i = 0; i < 8; i++)
        *p++ = (uint8_t)(bits >> (8 * i));
    return p;
}

static uint8_t *put_struct(uint8_t *p, const json_t *object);

static uint8_t *put_value(uint8_t *p, const json_t *value)
{
    if (json_is_object(value))
        return put_struct(weir_wire_put_head(p, OBJECT, struct_size(value)),
                          value);
    if (json_is_string(value))
        return put_text(p, TEXT_FIELD, json_string_value(value),
                        json_string_length(value));
    if (json_is_number(value))
        return put_number(p, json_number_value(value));
    if (!json_is_array(value)) {
        unsigned field = json_is_boolean(value) ? BOOL_FIELD : NULL_FIELD;
        *p++ = (uint8_t)(field << 3 | WEIR_WIRE_VARINT);
        *p++ = json_is_true(value);
        return p;
    }
    p = weir_wire_put_head(p, LIST, list_size(value));
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        p = put_value(weir_wire_put_head(p, 1, value_size(item)), item);
    }
    return p;
}

static uint8_t *put_struct(uint8_t *p, const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        p = weir_wire_put_head(p, 1, pair_size(key, value));
        p = put_text(p, 1, key, strlen(key));
        p = put_value(weir_wire_put_head(p, 2, value_size(value)), value);
    }
    return p;
}

size_t weir_rls_metadata_encode(const json_t *object, void *buf, size_t size)
{
    size_t len = struct_size(object);
    if (len > size)
        return 0;
    uint8_t *end = put_struct(buf, object);
    weir_assert(end == (uint8_t *)buf + len);
    return len;
}
