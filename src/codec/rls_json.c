/* SPDX-License-Identifier: MIT
 * codec/rls_json.c - requests of Envoy's rate limit service from JSON, answers
 * to it.
 *
 * Theory of operation. A message is an object; a table names its members in
 * both spellings. One walk over the object finds each member in the table, and
 * an unknown one is refused, as protobuf's own readers do. One struct tells
 * each member's reader where to write, since there are only four messages.
 *
 * Numbers are as lenient as proto3's JSON asks for: 5, 5.0 and "5" are one. */

#include "codec/rls_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct weir_arena *arena;
    struct weir_rls_request *request;
    struct weir_rls_descriptor *descriptor; /* being read; or NULL */
    struct weir_rls_entry *entry;           /* likewise */
    struct weir_diag *diag;
};

struct member {
    const char *camel, *snake;
    int (*read)(struct reader *reader, json_t *value);
};

/* ---- Values ---- */

static int refuse_rls_type(struct reader *reader, const char *what)
{
    return weir_diag_put(reader->diag, WEIR_ESYNTAX, what);
}

static const struct member *find_member(const struct member *members,
                                        size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(members[i].camel, name) == 0 ||
            strcmp(members[i].snake, name) == 0)
            return &members[i];
    return NULL;
}

static int read_object(struct reader *reader, json_t *object,
                       const struct member *members, size_t count)
{
    const char *name;
    json_t *value;
    unsigned seen = 0;
    if (!json_is_object(object))
        return refuse_rls_type(reader, "a message is an object");
    json_object_foreach(object, name, value)
    {
        const struct member *member = find_member(members, count, name);
        if (!member)
            return weir_diag_set(reader->diag, WEIR_ESYNTAX,
                                 "there is no member '", name, "'", NULL);
        unsigned bit = 1u << (member - members);
        if (seen & bit)
            return weir_diag_set(reader->diag, WEIR_ESYNTAX, "'", name,
                                 "' comes twice", NULL);
        seen |= bit;
        int error = json_is_null(value) ? 0 : member->read(reader, value);
        if (error < 0)
            return error;
    }
    return 0;
}

static int read_json_list(struct reader *reader, json_t *list,
                          int (*read)(struct reader *reader, json_t *value))
{
    size_t i;
    json_t *value;
    if (!json_is_array(list))
        return refuse_rls_type(reader, "descriptors and entries are lists");
    json_array_foreach(list, i, value)
    {
        int error = read(reader, value);
        if (error < 0)
            return error;
    }
    return 0;
}

/* Memory for the rows of a list; NULL, with 'diag' filled: above the bounds. */
static void *make_json_rows(struct reader *reader, json_t *list, size_t width)
{
    void *rows = weir_arena_alloc(reader->arena, json_array_size(list) * width);
    if (!rows)
        weir_diag_put(reader->diag, WEIR_ETOOBIG,
                      "more than 1024 descriptors, or more than 8192 "
                      "descriptor entries, in a request");
    return rows;
}

static int read_json_text(struct reader *reader, json_t *value,
                          struct weir_text *out)
{
    if (!json_is_string(value))
        return refuse_rls_type(reader, "domain, key and value are texts");
    *out = (struct weir_text){ json_string_value(value),
                               json_string_length(value) };
    return 0;
}

static bool is_whole_number(const char *text, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    *out = number;
    return errno == 0 && *end == '\0';
}

static int read_json_number(struct reader *reader, json_t *value, uint64_t max,
                            uint64_t *out)
{
    uint64_t number = 0;
    bool good = false;
    double real = json_real_value(value);
    if (json_is_integer(value)) {
        good = json_integer_value(value) >= 0;
        number = (uint64_t)json_integer_value(value);
    } else if (json_is_string(value)) {
        good = is_whole_number(json_string_value(value), &number);
    } else if (json_is_real(value) && real >= 0 && real < 0x1p64) {
        number = (uint64_t)real;
        good = (double)number == real;
    }
    if (!good || number > max)
        return refuse_rls_type(reader, "a number isn't whole, or out of range");
    *out = number;
    return 0;
}

/* ---- A request ---- */

static int read_json_key(struct reader *reader, json_t *value)
{
    return read_json_text(reader, value, &reader->entry->key);
}

static int read_json_value(struct reader *reader, json_t *value)
{
    return read_json_text(reader, value, &reader->entry->value);
}

static int read_json_entry(struct reader *reader, json_t *value)
{
    static const struct member members[] = {
        { "key", "key", read_json_key },
        { "value", "value", read_json_value },
    };
    struct weir_rls_descriptor *descriptor = reader->descriptor;
    reader->entry = &descriptor->entries[descriptor->entry_count++];
    return read_object(reader, value, members, WEIR_COUNT_OF(members));
}

static int read_json_entries(struct reader *reader, json_t *value)
{
    reader->descriptor->entries =
        make_json_rows(reader, value, sizeof(struct weir_rls_entry));
    if (!reader->descriptor->entries)
        return WEIR_ETOOBIG;
    return read_json_list(reader, value, read_json_entry);
}

static int read_override_pace(struct reader *reader, json_t *value)
{
    uint64_t unused;
    return read_json_number(reader, value, UINT32_MAX, &unused);
}

static const char *const units[] = {
    [WEIR_RLS_NO_UNIT] = "UNKNOWN", [WEIR_RLS_SECOND] = "SECOND",
    [WEIR_RLS_MINUTE] = "MINUTE",   [WEIR_RLS_HOUR] = "HOUR",
    [WEIR_RLS_DAY] = "DAY",         [WEIR_RLS_MONTH] = "MONTH",
    [WEIR_RLS_YEAR] = "YEAR",       [WEIR_RLS_WEEK] = "WEEK",
};

static int read_override_unit(struct reader *reader, json_t *value)
{
    uint64_t number = 0;
    const char *name = json_string_value(value);
    for (size_t i = 0; name && i < WEIR_COUNT_OF(units); i++)
        if (strcmp(units[i], name) == 0)
            number = i;
    if (!name && read_json_number(reader, value, INT32_MAX, &number) < 0)
        return WEIR_ESYNTAX;
    reader->descriptor->override_unit = (uint32_t)number;
    return 0;
}

static int read_json_override(struct reader *reader, json_t *value)
{
    static const struct member members[] = {
        { "requestsPerUnit", "requests_per_unit", read_override_pace },
        { "unit", "unit", read_override_unit },
    };
    reader->descriptor->override_given = true;
    return read_object(reader, value, members, WEIR_COUNT_OF(members));
}

static int read_hits(struct reader *reader, json_t *value)
{
    reader->descriptor->hits_given = true;
    return read_json_number(reader, value, UINT64_MAX,
                            &reader->descriptor->hits);
}

static int read_negative(struct reader *reader, json_t *value)
{
    if (!json_is_boolean(value))
        return refuse_rls_type(reader, "isNegativeHits is true or false");
    reader->descriptor->negative = json_is_true(value);
    return 0;
}

static int read_json_descriptor(struct reader *reader, json_t *value)
{
    static const struct member members[] = {
        { "entries", "entries", read_json_entries },
        { "limit", "limit", read_json_override },
        { "hitsAddend", "hits_addend", read_hits },
        { "isNegativeHits", "is_negative_hits", read_negative },
    };
    struct weir_rls_request *request = reader->request;
    reader->descriptor = &request->descriptors[request->count++];
    return read_object(reader, value, members, WEIR_COUNT_OF(members));
}

static int read_descriptors(struct reader *reader, json_t *value)
{
    reader->request->descriptors =
        make_json_rows(reader, value, sizeof(struct weir_rls_descriptor));
    if (!reader->request->descriptors)
        return WEIR_ETOOBIG;
    return read_json_list(reader, value, read_json_descriptor);
}

static int read_json_domain(struct reader *reader, json_t *value)
{
    return read_json_text(reader, value, &reader->request->domain);
}

static int read_request_hits(struct reader *reader, json_t *value)
{
    uint64_t hits;
    int error = read_json_number(reader, value, UINT32_MAX, &hits);
    if (error == 0)
        reader->request->hits = (uint32_t)hits;
    return error;
}

int weir_rls_from_json(json_t *object, struct weir_arena *arena,
                       struct weir_rls_request *out, struct weir_diag *diag)
{
    static const struct member members[] = {
        { "domain", "domain", read_json_domain },
        { "descriptors", "descriptors", read_descriptors },
        { "hitsAddend", "hits_addend", read_request_hits },
    };
    struct reader reader = { .arena = arena, .request = out, .diag = diag };
    arena->used = 0;
    *out = (struct weir_rls_request){ .count = 0 };
    int error = read_object(&reader, object, members, WEIR_COUNT_OF(members));
    return error < 0 ? error : weir_rls_check(out, diag);
}

/* ---- An answer ---- */

static const char *const codes[] = {
    [WEIR_RLS_UNKNOWN] = "UNKNOWN",
    [WEIR_RLS_OK] = "OK",
    [WEIR_RLS_OVER_LIMIT] = "OVER_LIMIT",
};

/* A member that finds no memory is left out; the end of the call notices it. */
static void set_json_number(json_t *to, const char *name, uint64_t number)
{
    if (number > 0)
        json_object_set_new(to, name, json_integer((json_int_t)number));
}

static void set_json_text(json_t *to, const char *name, struct weir_text text)
{
    if (text.len > 0)
        json_object_set_new(to, name, json_stringn(text.p, text.len));
}

static json_t *show_limit(const struct weir_rls_status *status)
{
    json_t *limit = json_object();
    set_json_number(limit, "requestsPerUnit", status->requests_per_unit);
    if (status->unit != WEIR_RLS_NO_UNIT)
        set_json_text(limit, "unit", weir_text_of(units[status->unit]));
    set_json_text(limit, "name", status->name);
    return limit;
}

static json_t *duration_to_json(weir_duration duration)
{
    char text[40];
    uint64_t seconds = duration / WEIR_SECOND;
    uint64_t rest = duration % WEIR_SECOND;
    if (rest > 0)
        snprintf(text, sizeof text, "%" PRIu64 ".%09" PRIu64 "s", seconds,
                 rest);
    else
        snprintf(text, sizeof text, "%" PRIu64 "s", seconds);
    return json_string(text);
}

static json_t *show_status(const struct weir_rls_status *status)
{
    json_t *shown = json_object();
    if (status->code != WEIR_RLS_UNKNOWN)
        set_json_text(shown, "code", weir_text_of(codes[status->code]));
    if (status->limit_given)
        json_object_set_new(shown, "currentLimit", show_limit(status));
    set_json_number(shown, "limitRemaining", status->remaining);
    if (status->reset_given)
        json_object_set_new(shown, "durationUntilReset",
                            duration_to_json(status->reset));
    return shown;
}

static json_t *show_header(const struct weir_rls_header *header)
{
    json_t *shown = json_object();
    set_json_text(shown, "key", header->key);
    set_json_text(shown, "value", header->value);
    return shown;
}

json_t *weir_rls_to_json(const struct weir_rls_answer *answer, json_t *metadata)
{
    json_t *shown = json_object();
    json_t *statuses = json_array();
    json_t *headers = json_array();
    if (answer->code != WEIR_RLS_UNKNOWN)
        set_json_text(shown, "overallCode", weir_text_of(codes[answer->code]));
    for (size_t i = 0; i < answer->count; i++)
        json_array_append_new(statuses, show_status(&answer->statuses[i]));
    for (size_t i = 0; i < answer->header_count; i++)
        json_array_append_new(headers, show_header(&answer->headers[i]));
    bool whole = json_array_size(statuses) == answer->count &&
                 json_array_size(headers) == answer->header_count;
    if (answer->header_count > 0)
        json_object_set_new(shown, "responseHeadersToAdd", headers);
    else
        json_decref(headers);
    if (metadata && json_object_set(shown, "dynamicMetadata", metadata) < 0)
        whole = false;
    if (json_object_set_new(shown, "statuses", statuses) == 0 && whole)
        return shown;
    json_decref(shown);
    return NULL;
}
