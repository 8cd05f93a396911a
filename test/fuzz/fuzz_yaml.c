/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_yaml.c - any bytes as a YAML file; an accepted set must be
 * read back from its own export, and its quotas are those of the tree that
 * libyaml loads of the same bytes: as many, in that order, with these texts.
 *
 * Weir, which reads libyaml's events, refuses more: anchors, aliases, tags, a
 * second document, all keys that it doesn't know, and keys that come twice. */

#include <stddef.h>
#include <stdlib.h>
#include <yaml.h>

#include "codec/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- libyaml's tree ---- */

static struct weir_text text_of(const yaml_node_t *scalar)
{
    weir_assert(scalar->type == YAML_SCALAR_NODE);
    struct weir_text text = { (const char *)scalar->data.scalar.value,
                              scalar->data.scalar.length };
    bool is_null = scalar->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
                   (weir_text_equal(text, WEIR_TEXT("~")) ||
                    weir_text_equal(text, WEIR_TEXT("null")));
    return is_null ? (struct weir_text){ NULL, 0 } : text;
}

/* The value of a key; NULL: the mapping doesn't have it. */
static const yaml_node_t *value_of(yaml_document_t *document,
                                   const yaml_node_t *mapping, const char *key)
{
    weir_assert(mapping->type == YAML_MAPPING_NODE);
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *name = yaml_document_get_node(document, pair->key);
        if (weir_text_equal(text_of(name), weir_text_of(key)))
            return yaml_document_get_node(document, pair->value);
    }
    return NULL;
}

static void compare_quota(yaml_document_t *document, const yaml_node_t *theirs,
                          const struct weir_quota *ours)
{
    static const struct {
        const char *key;
        size_t at;
    } texts[] = {
        { "name", offsetof(struct weir_quota, name) },
        { "parent", offsetof(struct weir_quota, parent) },
        { "overflow", offsetof(struct weir_quota, overflow) },
        { "description", offsetof(struct weir_quota, description) },
        { "tz", offsetof(struct weir_quota, tz) },
        { "store", offsetof(struct weir_quota, store) },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(texts); i++) {
        const struct weir_text *text =
            (const void *)((const char *)ours + texts[i].at);
        const yaml_node_t *value = value_of(document, theirs, texts[i].key);
        struct weir_text said = value ? text_of(value) : WEIR_TEXT("");
        /* The default, which a quota has as an empty text. */
        if (strcmp(texts[i].key, "store") == 0 &&
            weir_text_equal(said, WEIR_TEXT("root")))
            said = WEIR_TEXT("");
        weir_assert(weir_text_equal(*text, said));
    }
}

static void compare_file(struct weir_text text, const struct weir_quota *quotas,
                         size_t count)
{
    yaml_parser_t parser;
    yaml_document_t document;
    weir_assert(yaml_parser_initialize(&parser));
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.p,
                                 text.len);
    weir_assert(yaml_parser_load(&parser, &document));
    const yaml_node_t *list =
        value_of(&document, yaml_document_get_root_node(&document), "quotas");
    size_t theirs = 0;
    if (list && list->type == YAML_SEQUENCE_NODE)
        theirs = (size_t)(list->data.sequence.items.top -
                          list->data.sequence.items.start);
    weir_assert(theirs == count);
    for (size_t i = 0; i < count; i++)
        compare_quota(&document,
                      yaml_document_get_node(
                          &document, list->data.sequence.items.start[i]),
                      &quotas[i]);
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
}

/* ---- The export ---- */

static void check(const struct weir_quota *quotas, size_t count)
{
    const struct weir_quota **list = calloc(count + 1, sizeof(*list));
    for (size_t i = 0; i < count; i++)
        list[i] = &quotas[i];
    size_t len = 0;
    char *text = weir_yaml_print(list, count, &len);
    weir_assert(text);
    struct weir_yaml *yaml;
    struct weir_quota *back;
    size_t back_count;
    struct weir_diag diag;
    int error = weir_yaml_parse((struct weir_text){ text, len }, &yaml, &back,
                                &back_count, &diag);
    weir_assert(error == 0 && back_count == count);
    for (size_t i = 0; i < count; i++)
        weir_assert(weir_quota_equal(&quotas[i], &back[i]));
    weir_yaml_free(yaml);
    free(text);
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_yaml *yaml;
    struct weir_quota *quotas;
    size_t count;
    struct weir_diag diag = { 0 };
    struct weir_text text = { (const char *)data, size };
    if (weir_yaml_parse(text, &yaml, &quotas, &count, &diag) < 0) {
        weir_assert(diag.text[0] != '\0');
        return 0;
    }
    compare_file(text, quotas, count);
    check(quotas, count);
    weir_yaml_free(yaml);
    return 0;
}
