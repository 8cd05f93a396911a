/* SPDX-License-Identifier: MIT
 * codec/yaml_nodes.c - reads YAML files that were written for another program.
 *
 * Theory of operation. Two passes over the bytes. The first reads libyaml's
 * events and checks only dangerous parts: nesting (libyaml's time grows by its
 * square), too many documents, tags. The second loads documents as nodes, in
 * which an alias is the node that it stands for: such files name a value once
 * (&usual) and use it often (*usual), and must stay readable. Aliases can make
 * a short file large: the callers that walk the nodes bound that. */

#include "codec/yaml_nodes.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/quota/quota_text.h"

/* ---- Refusing ---- */

void weir_yaml_set_mark(struct weir_diag *diag, yaml_mark_t mark)
{
    if (!diag)
        return;
    diag->line = (uint32_t)mark.line + 1;
    diag->column = (uint32_t)mark.column + 1;
}

int weir_yaml_refuse(struct weir_diag *diag, const yaml_node_t *node, int error,
                     const char *what, const char *shown, const char *why)
{
    if (node)
        weir_yaml_set_mark(diag, node->start_mark);
    return weir_diag_set(diag, error, what, shown, why, NULL);
}

int weir_yaml_refuse_type(const struct weir_yaml_reading *reading,
                          const yaml_node_t *node, const char *name,
                          const char *wanted)
{
    const struct weir_yaml_dialect *dialect = reading->dialect;
    weir_yaml_set_mark(reading->diag, node->start_mark);
    return weir_diag_set(reading->diag, WEIR_ESYNTAX, dialect->before, name,
                         dialect->after, wanted, NULL);
}

int weir_yaml_refuse_memory(struct weir_diag *diag)
{
    return weir_diag_put(diag, WEIR_ENOMEM, "there is no memory for this file");
}

int weir_yaml_refuse_parser(const yaml_parser_t *parser, struct weir_diag *diag)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return weir_yaml_refuse_memory(diag);
    bool reader = parser->error == YAML_READER_ERROR;
    weir_yaml_set_mark(diag, reader ? parser->mark : parser->problem_mark);
    return weir_diag_set(diag, WEIR_ESYNTAX, "this is no YAML: ",
                         parser->problem ? parser->problem : "broken", NULL);
}

/* ---- The first pass ---- */

struct shape {
    unsigned nesting;
    size_t documents;
};

static int refuse_nodes_event(struct weir_diag *diag, const yaml_event_t *event,
                              int error, const char *sentence)
{
    weir_yaml_set_mark(diag, event->start_mark);
    return weir_diag_put(diag, error, sentence);
}

static int check_event(const yaml_event_t *event,
                       const struct weir_yaml_bounds *bounds,
                       struct shape *shape, struct weir_diag *diag)
{
    const yaml_char_t *tag = NULL;
    /* Not every value of libyaml's enum has a case: versions of libyaml
     * differ. */
    switch ((int)event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++shape->documents > bounds->documents)
            return refuse_nodes_event(diag, event, bounds->error, bounds->why);
        return 0;
    case YAML_MAPPING_START_EVENT:
        tag = event->data.mapping_start.tag;
        shape->nesting++;
        break;
    case YAML_SEQUENCE_START_EVENT:
        tag = event->data.sequence_start.tag;
        shape->nesting++;
        break;
    case YAML_SCALAR_EVENT:
        tag = event->data.scalar.tag;
        break;
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        weir_assert(shape->nesting > 0); /* libyaml pairs its events */
        shape->nesting--;
        return 0;
    default:
        return 0;
    }
    if (tag)
        return refuse_nodes_event(diag, event, WEIR_ESYNTAX,
                                  "tags aren't taken");
    if (shape->nesting > bounds->nesting)
        return refuse_nodes_event(diag, event, WEIR_ETOOBIG,
                                  "lists and mappings are nested too deeply");
    return 0;
}

static int check_events(yaml_parser_t *parser,
                        const struct weir_yaml_bounds *bounds,
                        struct shape *shape, struct weir_diag *diag)
{
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return weir_yaml_refuse_parser(parser, diag);
        bool last = event.type == YAML_STREAM_END_EVENT;
        int error = check_event(&event, bounds, shape, diag);
        yaml_event_delete(&event);
        if (error < 0 || last)
            return error;
    }
}

int weir_yaml_parser_init(yaml_parser_t *parser, struct weir_text text,
                          struct weir_diag *diag)
{
    if (!yaml_parser_initialize(parser))
        return weir_yaml_refuse_memory(diag);
    yaml_parser_set_encoding(parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(parser, (const unsigned char *)text.p,
                                 text.len);
    return 0;
}

/* ---- The second pass ---- */

static int load_documents(yaml_parser_t *parser, struct weir_yaml_nodes *nodes,
                          size_t max)
{
    while (nodes->count < max) {
        yaml_document_t *document = &nodes->documents[nodes->count];
        if (!yaml_parser_load(parser, document))
            return weir_yaml_refuse_parser(parser, nodes->diag);
        if (!yaml_document_get_root_node(document)) {
            yaml_document_delete(document);
            return 0;
        }
        nodes->count++;
    }
    return 0;
}

int weir_yaml_nodes_load(struct weir_text text,
                         const struct weir_yaml_bounds *bounds,
                         struct weir_yaml_nodes *nodes)
{
    yaml_parser_t parser;
    struct shape shape = { 0 };
    int error = weir_yaml_parser_init(&parser, text, nodes->diag);
    if (error < 0)
        return error;
    error = check_events(&parser, bounds, &shape, nodes->diag);
    yaml_parser_delete(&parser);
    if (error < 0)
        return error;
    nodes->documents = calloc(shape.documents + 1, sizeof *nodes->documents);
    if (!nodes->documents)
        return weir_yaml_refuse_memory(nodes->diag);
    error = weir_yaml_parser_init(&parser, text, nodes->diag);
    if (error < 0)
        return error;
    error = load_documents(&parser, nodes, shape.documents);
    yaml_parser_delete(&parser);
    return error;
}

void weir_yaml_nodes_fini(struct weir_yaml_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++)
        yaml_document_delete(&nodes->documents[i]);
    free(nodes->documents);
    nodes->documents = NULL;
    nodes->count = 0;
}

/* ---- Nodes ---- */

struct weir_text weir_yaml_scalar(const yaml_node_t *scalar)
{
    return (struct weir_text){ (const char *)scalar->data.scalar.value,
                               scalar->data.scalar.length };
}

bool weir_yaml_is_plain(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE &&
           node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static bool is_same_key(const char *name, struct weir_text text, bool any_case)
{
    return strlen(name) == text.len &&
           (any_case ? strncasecmp(name, text.p, text.len)
                     : memcmp(name, text.p, text.len)) == 0;
}

bool weir_yaml_is_word(const yaml_node_t *node, const char *const *words,
                       size_t count)
{
    for (size_t i = 0; weir_yaml_is_plain(node) && i < count; i++) {
        if (is_same_key(words[i], weir_yaml_scalar(node), true))
            return true;
    }
    return false;
}

/* Whether it is plain and empty, ~ or null, which means absence. */
static bool is_null(const yaml_node_t *node)
{
    static const char *const words[] = { "", "~", "null" };
    return weir_yaml_is_word(node, words, WEIR_COUNT_OF(words));
}

size_t weir_yaml_items(const yaml_node_t *list)
{
    return (size_t)(list->data.sequence.items.top -
                    list->data.sequence.items.start);
}

const yaml_node_t *weir_yaml_item(yaml_document_t *document,
                                  const yaml_node_t *list, size_t i)
{
    return yaml_document_get_node(document, list->data.sequence.items.start[i]);
}

/* ---- Mappings ---- */

static const struct weir_yaml_key *find_key(
    const struct weir_yaml_reading *reading, const struct weir_yaml_key *keys,
    size_t count, struct weir_text name)
{
    for (size_t i = 0; i < count; i++) {
        if (is_same_key(keys[i].name, name, reading->dialect->any_case))
            return &keys[i];
    }
    return NULL;
}

static int refuse_key_twice(const struct weir_yaml_reading *reading,
                            const yaml_node_t *node, const char *name,
                            uint32_t line)
{
    char number[WEIR_NUMBER_MAX];
    return weir_yaml_refuse(reading->diag, node, WEIR_ESYNTAX, name,
                            " is given twice; first on line ",
                            weir_number_show(line, number));
}

/* Reads one pair; 'lines' has the line of each key given so far. */
static int read_yaml_pair(const struct weir_yaml_reading *reading,
                          const yaml_node_pair_t *pair,
                          const struct weir_yaml_key *keys, size_t count,
                          uint32_t *lines, void *to)
{
    yaml_node_t *name = yaml_document_get_node(reading->document, pair->key);
    yaml_node_t *value = yaml_document_get_node(reading->document, pair->value);
    if (name->type != YAML_SCALAR_NODE)
        return weir_yaml_refuse_type(reading, name, "a key", "a word");
    const struct weir_yaml_key *key =
        find_key(reading, keys, count, weir_yaml_scalar(name));
    if (!key)
        return reading->dialect->unknown(reading, name);
    uint32_t *line = &lines[key - keys];
    if (*line > 0)
        return refuse_key_twice(reading, name, key->name, *line);
    *line = (uint32_t)name->start_mark.line + 1;
    if (is_null(value))
        return 0;
    return key->read(reading, value, key->name, (char *)to + key->at);
}

int weir_yaml_read_mapping(const struct weir_yaml_reading *reading,
                           const yaml_node_t *node, const char *what,
                           const struct weir_yaml_key *keys, size_t count,
                           void *to)
{
    uint32_t lines[WEIR_YAML_KEYS_MAX] = { 0 };
    weir_assert(count <= WEIR_YAML_KEYS_MAX);
    if (reading->dialect->null_is_empty && is_null(node))
        return 0;
    if (node->type != YAML_MAPPING_NODE)
        return weir_yaml_refuse_type(reading, node, what, "a mapping");
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    const yaml_node_pair_t *end = node->data.mapping.pairs.top;
    if (end - pair > WEIR_YAML_PAIRS_MAX)
        return weir_yaml_refuse(reading->diag, node, WEIR_ETOOBIG, what,
                                " has more than 64 keys", "");
    int error = 0;
    for (; pair < end && error == 0; pair++)
        error = read_yaml_pair(reading, pair, keys, count, lines, to);
    return error;
}

int weir_yaml_read_count(const struct weir_yaml_reading *reading,
                         const yaml_node_t *node, const char *name, size_t max,
                         size_t *out)
{
    char number[WEIR_NUMBER_MAX];
    if (node->type != YAML_SEQUENCE_NODE)
        return weir_yaml_refuse_type(reading, node, name, "a list");
    *out = weir_yaml_items(node);
    if (*out <= max)
        return 0;
    weir_yaml_set_mark(reading->diag, node->start_mark);
    return weir_diag_set(reading->diag, WEIR_ETOOBIG, name, " has more than ",
                         weir_number_show(max, number), " items", NULL);
}

int weir_yaml_read_text(const struct weir_yaml_reading *reading,
                        const yaml_node_t *node, const char *name, void *to)
{
    if (node->type != YAML_SCALAR_NODE)
        return weir_yaml_refuse_type(reading, node, name, "a text");
    *(struct weir_text *)to = weir_yaml_scalar(node);
    return 0;
}
