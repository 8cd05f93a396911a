/* SPDX-License-Identifier: MIT
 * codec/yaml.c - a set of quotas as one YAML file: reading.
 *
 * libyaml hands out events with marks; one small shape of them is accepted,
 * read by one function per level: there is no recursion, and nesting is bounded
 * by construction:
 *
 *     stream, document
 *       mapping            "weir", "quotas"           read_quotas_file
 *         sequence                                    read_quotas
 *           mapping        the fields                 read_yaml_quota
 *             mapping      labels only                read_labels
 *
 * Anchors, aliases, tags and further documents are refused: an alias could
 * make a short file a long one, and a tag could mean anything.
 *
 * 'event' is always the event read last. A refusal takes its line and column
 * from it, or from the mark of the refused item. All texts are copied to blocks
 * that the result owns; a hash table keeps the names with their lines.
 * yaml_print.c writes files. */

#include "codec/yaml.h"

#include <stdlib.h>
#include <string.h>

#include "codec/yaml_nodes.h"
#include "core/base/hash.h"
#include "core/quota/quota_text.h"

#define BLOCK_SIZE (256u << 10)
#define FIELDS_MAX 48

struct block {
    struct block *next;
    size_t used;
    size_t size;
    char bytes[];
};

struct weir_yaml {
    struct block *blocks;
    struct weir_quota *quotas;
    uint32_t *lines; /* of each quota */
    size_t count;
    size_t capacity;
    uint32_t *buckets; /* 1 + index of a quota by its name; 0: empty */
    size_t bucket_count;
};

struct reader {
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
    struct weir_yaml *yaml;
    struct weir_diag *diag;
};

/* ---- Refusing, with line and column --------------------------------- */

static int refuse_yaml(struct reader *reader, yaml_mark_t mark, int error,
                       const char *what, const char *more)
{
    weir_yaml_set_mark(reader->diag, mark);
    return weir_diag_set(reader->diag, error, what, more, NULL);
}

static int refuse_yaml_event(struct reader *reader, const char *wanted)
{
    return refuse_yaml(reader, reader->event.start_mark, WEIR_ESYNTAX, wanted,
                       "");
}

/* ---- Events --------------------------------------------------------- */

static int next_event(struct reader *reader)
{
    if (reader->has_event)
        yaml_event_delete(&reader->event);
    reader->has_event = false;
    if (!yaml_parser_parse(&reader->parser, &reader->event))
        return weir_yaml_refuse_parser(&reader->parser, reader->diag);
    reader->has_event = true;
    const yaml_event_t *event = &reader->event;
    bool named =
        event->type == YAML_ALIAS_EVENT ||
        (event->type == YAML_SCALAR_EVENT &&
         (event->data.scalar.anchor || event->data.scalar.tag)) ||
        (event->type == YAML_MAPPING_START_EVENT &&
         (event->data.mapping_start.anchor || event->data.mapping_start.tag)) ||
        (event->type == YAML_SEQUENCE_START_EVENT &&
         (event->data.sequence_start.anchor || event->data.sequence_start.tag));
    if (named)
        return refuse_yaml_event(
            reader,
            "anchors, aliases and tags aren't taken; write the value out");
    return 0;
}

/* Reads the next event, which must be of that type. */
static int expect_event(struct reader *reader, yaml_event_type_t type,
                        const char *wanted)
{
    int error = next_event(reader);
    if (error < 0)
        return error;
    return reader->event.type == type ? 0 : refuse_yaml_event(reader, wanted);
}

/* A scalar's text; the plain spellings of null give the empty text. */
static struct weir_text scalar(const struct reader *reader)
{
    struct weir_text text = {
        (const char *)reader->event.data.scalar.value,
        reader->event.data.scalar.length,
    };
    bool plain = reader->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && (weir_text_equal(text, WEIR_TEXT("~")) ||
                  weir_text_equal(text, WEIR_TEXT("null"))))
        text.len = 0;
    return text;
}

/* ---- Memory of the result ------------------------------------------- */

static int keep_yaml_text(struct weir_yaml *yaml, struct weir_text text,
                          struct weir_text *out)
{
    struct block *block = yaml->blocks;
    if (!block || block->size - block->used < text.len) {
        size_t size = text.len > BLOCK_SIZE ? text.len : BLOCK_SIZE;
        block = malloc(sizeof(*block) + size);
        if (!block)
            return WEIR_ENOMEM;
        *block = (struct block){ .next = yaml->blocks, .size = size };
        yaml->blocks = block;
    }
    char *copy = block->bytes + block->used;
    if (text.len > 0)
        memcpy(copy, text.p, text.len);
    block->used += text.len;
    *out = (struct weir_text){ copy, text.len };
    return 0;
}

static bool grow_quotas(struct weir_yaml *yaml)
{
    if (yaml->count < yaml->capacity)
        return true;
    size_t capacity = yaml->capacity > 0 ? 2 * yaml->capacity : 64;
    void *quotas = realloc(yaml->quotas, capacity * sizeof(*yaml->quotas));
    if (!quotas)
        return false;
    yaml->quotas = quotas;
    void *lines = realloc(yaml->lines, capacity * sizeof(*yaml->lines));
    if (!lines)
        return false;
    yaml->lines = lines;
    yaml->capacity = capacity;
    return true;
}

static size_t find_yaml_bucket(const struct weir_yaml *yaml,
                               struct weir_text name)
{
    weir_assert(yaml->count < yaml->bucket_count);
    size_t mask = yaml->bucket_count - 1;
    size_t at = weir_hash(name, (uintptr_t)yaml) & mask;
    while (yaml->buckets[at] > 0 &&
           !weir_text_equal(yaml->quotas[yaml->buckets[at] - 1].name, name))
        at = (at + 1) & mask;
    return at;
}

static bool grow_buckets(struct weir_yaml *yaml)
{
    if (yaml->count + 1 <= yaml->bucket_count / 2)
        return true;
    size_t count = yaml->bucket_count > 0 ? 2 * yaml->bucket_count : 128;
    uint32_t *buckets = calloc(count, sizeof(*buckets));
    if (!buckets)
        return false;
    free(yaml->buckets);
    yaml->buckets = buckets;
    yaml->bucket_count = count;
    for (size_t i = 0; i < yaml->count; i++)
        buckets[find_yaml_bucket(yaml, yaml->quotas[i].name)] = (uint32_t)i + 1;
    return true;
}

void weir_yaml_free(struct weir_yaml *yaml)
{
    if (!yaml)
        return;
    while (yaml->blocks) {
        struct block *next = yaml->blocks->next;
        free(yaml->blocks);
        yaml->blocks = next;
    }
    free(yaml->quotas);
    free(yaml->lines);
    free(yaml->buckets);
    free(yaml);
}

/* ---- The levels ----------------------------------------------------- */

/* Reads a key and refuses anything else. 1: a key, 0: the mapping's end. */
static int next_key(struct reader *reader, struct weir_text *out_key)
{
    int error = next_event(reader);
    if (error < 0)
        return error;
    if (reader->event.type == YAML_MAPPING_END_EVENT)
        return 0;
    if (reader->event.type != YAML_SCALAR_EVENT)
        return refuse_yaml_event(reader, "a key must be a plain word");
    *out_key = scalar(reader);
    return 1;
}

/* Appends "key=value\n" to 'lines' for each pair. */
static int read_labels(struct reader *reader, struct weir_out *lines)
{
    for (;;) {
        struct weir_text key;
        int more = next_key(reader, &key);
        if (more <= 0)
            return more;
        weir_out_text(lines, key);
        weir_out_string(lines, "=");
        bool broken =
            memchr(key.p, '=', key.len) || memchr(key.p, '\n', key.len);
        if (broken)
            return refuse_yaml_event(
                reader,
                "the key of a label must be 1 to 63 of A-Z a-z 0-9 _ . / -");
        int error = expect_event(reader, YAML_SCALAR_EVENT,
                                 "the value of a label must be a text");
        if (error < 0)
            return error;
        struct weir_text value = scalar(reader);
        if (value.len > 0 && memchr(value.p, '\n', value.len))
            return refuse_yaml_event(reader,
                                     "the value of a label must be one line");
        weir_out_text(lines, value);
        weir_out_string(lines, "\n");
        if (lines->len == lines->size)
            return refuse_yaml_event(
                reader,
                "the labels are too long; together they may have 4096 bytes");
    }
}

static int set_yaml_labels(struct reader *reader, struct weir_quota *quota)
{
    yaml_mark_t mark = reader->event.start_mark;
    char lines_bytes[WEIR_LABELS_MAX + 2];
    struct weir_out lines = { lines_bytes, sizeof(lines_bytes), 0 };
    int error = read_labels(reader, &lines);
    if (error < 0)
        return error;
    char sorted[WEIR_LABELS_MAX];
    struct weir_text labels;
    error = weir_labels_parse((struct weir_text){ lines_bytes, lines.len },
                              sorted, &labels, reader->diag);
    if (error < 0) {
        weir_yaml_set_mark(reader->diag, mark);
        return error;
    }
    error = keep_yaml_text(reader->yaml, labels, &quota->labels);
    return error < 0 ? weir_yaml_refuse_memory(reader->diag) : 0;
}

static size_t find_yaml_field(struct weir_text name)
{
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    size_t i = 0;
    while (i < count && !weir_text_equal(weir_text_of(fields[i].name), name))
        i++;
    return i;
}

/* Reads the value of a known field that comes for the first time. */
static int read_field_value(struct reader *reader,
                            const struct weir_field *field,
                            struct weir_quota *quota)
{
    int error = next_event(reader);
    if (error < 0)
        return error;
    bool is_map = reader->event.type == YAML_MAPPING_START_EVENT;
    if (is_map && field->type == WEIR_FIELD_MAP)
        return set_yaml_labels(reader, quota);
    if (reader->event.type != YAML_SCALAR_EVENT)
        return refuse_yaml(reader, reader->event.start_mark, WEIR_ESYNTAX,
                           field->name,
                           " must be a text or number on one line");
    struct weir_text value = scalar(reader);
    if (field->type == WEIR_FIELD_MAP && value.len > 0)
        return refuse_yaml(reader, reader->event.start_mark, WEIR_ESYNTAX,
                           field->name, " must be a mapping, {key: value}");
    struct weir_text kept;
    error = keep_yaml_text(reader->yaml, value, &kept);
    if (error < 0)
        return weir_yaml_refuse_memory(reader->diag);
    error =
        weir_quota_set(quota, weir_text_of(field->name), kept, reader->diag);
    if (error < 0)
        weir_yaml_set_mark(reader->diag, reader->event.start_mark);
    return error;
}

static int refuse_yaml_twice(struct reader *reader, yaml_mark_t mark,
                             struct weir_text what, uint32_t line, int error)
{
    char shown[WEIR_SHOW_MAX];
    char number[WEIR_NUMBER_MAX];
    weir_yaml_set_mark(reader->diag, mark);
    return weir_diag_set(reader->diag, error, weir_text_show(what, shown),
                         " is given twice; first on line ",
                         weir_number_show(line, number), NULL);
}

/* Reads the fields up to the mapping's end. */
static int read_yaml_fields(struct reader *reader, struct weir_quota *quota,
                            yaml_mark_t *out_name_mark)
{
    uint32_t lines[FIELDS_MAX] = { 0 };
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    weir_assert(count <= FIELDS_MAX);
    for (;;) {
        struct weir_text key;
        int more = next_key(reader, &key);
        if (more <= 0)
            return more;
        yaml_mark_t mark = reader->event.start_mark;
        size_t i = find_yaml_field(key);
        if (i == count || fields[i].read_only) {
            int error = weir_quota_set(
                quota, key, (struct weir_text){ NULL, 0 }, reader->diag);
            weir_yaml_set_mark(reader->diag, mark);
            return error;
        }
        if (lines[i] > 0)
            return refuse_yaml_twice(reader, mark, key, lines[i], WEIR_ESYNTAX);
        lines[i] = (uint32_t)mark.line + 1;
        int error = read_field_value(reader, &fields[i], quota);
        if (error < 0)
            return error;
        if (strcmp(fields[i].name, "name") == 0)
            *out_name_mark = reader->event.start_mark;
    }
}

static int add_yaml_quota(struct reader *reader, const struct weir_quota *quota,
                          yaml_mark_t mark)
{
    struct weir_yaml *yaml = reader->yaml;
    if (yaml->count == WEIR_YAML_QUOTAS_MAX)
        return refuse_yaml(reader, mark, WEIR_ETOOBIG,
                           "there are more than 4000000 quotas", "");
    if (!grow_quotas(yaml) || !grow_buckets(yaml))
        return weir_yaml_refuse_memory(reader->diag);
    size_t at = find_yaml_bucket(yaml, quota->name);
    if (yaml->buckets[at] > 0)
        return refuse_yaml_twice(reader, mark, quota->name,
                                 yaml->lines[yaml->buckets[at] - 1],
                                 WEIR_EEXIST);
    weir_assert(yaml->count < yaml->capacity);
    yaml->quotas[yaml->count] = *quota;
    yaml->lines[yaml->count] = (uint32_t)mark.line + 1;
    yaml->buckets[at] = (uint32_t)++yaml->count;
    return 0;
}

static int read_yaml_quota(struct reader *reader)
{
    yaml_mark_t mark = reader->event.start_mark;
    struct weir_quota quota;
    weir_quota_init(&quota);
    int error = read_yaml_fields(reader, &quota, &mark);
    if (error < 0)
        return error;
    error = weir_quota_check(&quota, reader->diag);
    if (error < 0) {
        weir_yaml_set_mark(reader->diag, mark);
        return error;
    }
    return add_yaml_quota(reader, &quota, mark);
}

static int read_quotas(struct reader *reader)
{
    int error = next_event(reader);
    if (error < 0)
        return error;
    bool is_empty =
        reader->event.type == YAML_SCALAR_EVENT && scalar(reader).len == 0;
    if (is_empty)
        return 0;
    if (reader->event.type != YAML_SEQUENCE_START_EVENT)
        return refuse_yaml_event(
            reader, "quotas must be a list, a '- name: ...' for each");
    for (;;) {
        error = next_event(reader);
        if (error < 0)
            return error;
        if (reader->event.type == YAML_SEQUENCE_END_EVENT)
            return 0;
        if (reader->event.type != YAML_MAPPING_START_EVENT)
            return refuse_yaml_event(
                reader,
                "a quota must be a mapping, 'name: ...' and its other fields");
        error = read_yaml_quota(reader);
        if (error < 0)
            return error;
    }
}

static int read_version(struct reader *reader)
{
    int error = expect_event(reader, YAML_SCALAR_EVENT, "weir must be 1");
    if (error < 0)
        return error;
    if (weir_text_equal(scalar(reader), WEIR_TEXT("1")))
        return 0;
    return refuse_yaml_event(
        reader, "this version of Weir reads files that begin with 'weir: 1'");
}

static int read_quotas_file(struct reader *reader)
{
    uint32_t lines[2] = { 0 };
    for (;;) {
        struct weir_text key;
        int more = next_key(reader, &key);
        if (more < 0)
            return more;
        if (more == 0)
            break;
        yaml_mark_t mark = reader->event.start_mark;
        bool is_version = weir_text_equal(key, WEIR_TEXT("weir"));
        if (!is_version && !weir_text_equal(key, WEIR_TEXT("quotas")))
            return refuse_yaml_event(
                reader, "there are two keys here, 'weir' and 'quotas'");
        if (lines[is_version] > 0)
            return refuse_yaml_twice(reader, mark, key, lines[is_version],
                                     WEIR_ESYNTAX);
        lines[is_version] = (uint32_t)mark.line + 1;
        int error = is_version ? read_version(reader) : read_quotas(reader);
        if (error < 0)
            return error;
    }
    if (lines[0] == 0 || lines[1] == 0)
        return refuse_yaml_event(reader,
                                 "the file must hold 'weir: 1' and 'quotas:'");
    return 0;
}

static int read_yaml_stream(struct reader *reader)
{
    static const char wanted[] = "the file must begin with 'weir: 1'";
    int error = expect_event(reader, YAML_STREAM_START_EVENT, wanted);
    if (error == 0)
        error = expect_event(reader, YAML_DOCUMENT_START_EVENT, wanted);
    if (error == 0)
        error = expect_event(reader, YAML_MAPPING_START_EVENT, wanted);
    if (error == 0)
        error = read_quotas_file(reader);
    if (error == 0)
        error = expect_event(reader, YAML_DOCUMENT_END_EVENT, wanted);
    if (error == 0)
        error = expect_event(reader, YAML_STREAM_END_EVENT,
                             "a second document isn't taken");
    return error;
}

int weir_yaml_parse(struct weir_text text, struct weir_yaml **out,
                    struct weir_quota **quotas, size_t *count,
                    struct weir_diag *diag)
{
    if (diag)
        diag->line = diag->column = 0;
    if (text.len > WEIR_YAML_BYTES_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG,
                             "the file is larger than 256 MiB");
    struct reader reader = { .diag = diag };
    reader.yaml = calloc(1, sizeof(*reader.yaml));
    if (!reader.yaml)
        return weir_yaml_refuse_memory(diag);
    int error = weir_yaml_parser_init(&reader.parser, text, diag);
    if (error == 0) {
        error = read_yaml_stream(&reader);
        if (reader.has_event)
            yaml_event_delete(&reader.event);
        yaml_parser_delete(&reader.parser);
    }
    if (error < 0) {
        weir_yaml_free(reader.yaml);
        return error;
    }
    *out = reader.yaml;
    *quotas = reader.yaml->quotas;
    *count = reader.yaml->count;
    return 0;
}
