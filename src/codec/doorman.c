/* SPDX-License-Identifier: MIT
 * codec/doorman.c - Doorman's messages, by a table of their fields.
 *
 * Theory of operation. Fifteen messages of one to five fields each, all
 * numbered from 1 without a hole. Each message is a 'shape', a table with a row
 * per field: the field's type and its offset in the struct. One reader and one
 * writer use the same shapes, so they can't disagree.
 *
 *     shape get_request:  1 text  id
 *                         2 list  resources --> shape resource: 1 text id …
 *
 * Rejected: the code that protobuf-c generates. It would copy each text (a
 * `string` up to its first NUL), need a scan before it (see weir_v1.c), and
 * fifteen functions per direction to convert between its structs and ours; it
 * can't express "required when written, not when read". The tests compare this
 * file with it.
 *
 * Reading: a list's rows are counted first and allocated in one piece, so each
 * of a message's levels (at most four) is walked twice. The recursion follows
 * the shapes, and no shape contains itself. Writing goes from the last byte to
 * the first, so a part's length is known when its head is written. The same
 * walk without a buffer gives the size. */

#include "codec/doorman.h"

#include <assert.h>

#include "codec/protobuf_bytes.h"

enum field_type {
    TEXT, /* left out only if optional and empty */
    INT64,
    INT32,
    BOOL,
    DOUBLE,
    PART,  /* a nested message */
    PARTS, /* a list of messages, a pointer and a count */
    TEXTS, /* a list of texts, a pointer and a count */
};

#define ALWAYS UINT16_MAX /* a field that is required */

/* The offset of a part's 'given' needs no column of its own: it is 0. */
static_assert(offsetof(struct weir_doorman_lease, given) == 0 &&
                  offsetof(struct weir_doorman_mastership, given) == 0 &&
                  offsetof(struct weir_doorman_algorithm, given) == 0,
              "the first member of a part says whether it is given");

struct shape;
struct field {
    enum field_type type;
    uint16_t at;               /* offset of the value, or of the pointer */
    uint16_t given_at;         /* ALWAYS; or the offset of a number's 'given' */
    uint16_t count_at;         /* offset of a list's count */
    uint32_t max;              /* bound of a list's rows */
    const struct shape *shape; /* for PART and PARTS */
};
struct shape {
    const struct field *fields; /* their numbers are 1, 2, … */
    uint32_t count;
    uint32_t size; /* bytes of the struct */
};

/* ---- The table ---- */

#define SHAPE(fields_, type_)                            \
    {                                                    \
        (fields_), WEIR_COUNT_OF(fields_), sizeof(type_) \
    }
#define AT(member) .at = offsetof(struct THIS, member)
#define REQUIRED .given_at = ALWAYS
#define GIVEN(member) .given_at = offsetof(struct THIS, member)
#define COUNT(member) .count_at = offsetof(struct THIS, member)

#define THIS weir_doorman_lease
static const struct field lease_fields[] = {
    { INT64, AT(expiry_s), REQUIRED },
    { INT64, AT(refresh_s), REQUIRED },
    { DOUBLE, AT(capacity), REQUIRED },
};
static const struct shape lease = SHAPE(lease_fields, struct THIS);
#undef THIS

#define THIS weir_doorman_mastership
static const struct field mastership_fields[] = {
    { TEXT, AT(address) },
};
static const struct shape mastership = SHAPE(mastership_fields, struct THIS);
#undef THIS

#define THIS weir_doorman_resource
static const struct field resource_fields[] = {
    { TEXT, AT(id), REQUIRED },
    { INT64, AT(priority), REQUIRED },
    { PART, AT(has), .shape = &lease },
    { DOUBLE, AT(wants), REQUIRED },
};
static const struct shape resource = SHAPE(resource_fields, struct THIS);
#undef THIS

#define THIS weir_doorman_band
static const struct field band_fields[] = {
    { INT64, AT(priority), REQUIRED },
    { INT64, AT(num_clients), REQUIRED },
    { DOUBLE, AT(wants), REQUIRED },
};
static const struct shape band = SHAPE(band_fields, struct THIS);
#undef THIS

#define THIS weir_doorman_server_resource
static const struct field server_resource_fields[] = {
    { TEXT, AT(id), REQUIRED },
    { PART, AT(has), .shape = &lease },
    { PARTS, AT(bands), COUNT(band_count), .max = WEIR_DOORMAN_BANDS_MAX,
      .shape = &band },
};
static const struct shape server_resource =
    SHAPE(server_resource_fields, struct THIS);
#undef THIS

#define THIS weir_doorman_parameter
static const struct field parameter_fields[] = {
    { TEXT, AT(name), REQUIRED },
    { TEXT, AT(value) },
};
static const struct shape parameter = SHAPE(parameter_fields, struct THIS);
#undef THIS

#define THIS weir_doorman_algorithm
static const struct field algorithm_fields[] = {
    { INT32, AT(kind), REQUIRED },
    { INT64, AT(lease_length_s), REQUIRED },
    { INT64, AT(refresh_s), REQUIRED },
    { PARTS, AT(parameters), COUNT(parameter_count),
      .max = WEIR_DOORMAN_PARAMETERS_MAX, .shape = &parameter },
    { INT64, AT(learning_s), GIVEN(learning_given) },
};
static const struct shape algorithm = SHAPE(algorithm_fields, struct THIS);
#undef THIS

#define THIS weir_doorman_grant
static const struct field grant_fields[] = {
    { TEXT, AT(id), REQUIRED },
    { PART, AT(gets), REQUIRED, .shape = &lease },
    { DOUBLE, AT(safe_capacity), GIVEN(safe_given) },
};
static const struct shape grant = SHAPE(grant_fields, struct THIS);
static const struct field server_grant_fields[] = {
    { TEXT, AT(id), REQUIRED },
    { PART, AT(gets), REQUIRED, .shape = &lease },
    { PART, AT(algorithm), .shape = &algorithm },
    { DOUBLE, AT(safe_capacity), GIVEN(safe_given) },
};
static const struct shape server_grant =
    SHAPE(server_grant_fields, struct THIS);
#undef THIS

#define THIS weir_doorman_message
#define LIST(member) AT(member), COUNT(count), .max = WEIR_DOORMAN_RESOURCES_MAX
static const struct field discovery_response_fields[] = {
    { PART, AT(mastership), REQUIRED, .shape = &mastership },
    { BOOL, AT(is_master), REQUIRED },
};
static const struct field get_request_fields[] = {
    { TEXT, AT(id), REQUIRED },
    { PARTS, LIST(resources), .shape = &resource },
};
static const struct field get_response_fields[] = {
    { PARTS, LIST(grants), .shape = &grant },
    { PART, AT(mastership), .shape = &mastership },
};
static const struct field server_request_fields[] = {
    { TEXT, AT(id), REQUIRED },
    { PARTS, LIST(server_resources), .shape = &server_resource },
};
static const struct field server_response_fields[] = {
    { PARTS, LIST(grants), .shape = &server_grant },
    { PART, AT(mastership), .shape = &mastership },
};
static const struct field release_request_fields[] = {
    { TEXT, AT(id), REQUIRED },
    { TEXTS, LIST(released) },
};
static const struct field release_response_fields[] = {
    { PART, AT(mastership), .shape = &mastership },
};

static const struct shape shapes[WEIR_DOORMAN_TYPES] = {
    [WEIR_DOORMAN_DISCOVERY_REQUEST] = { NULL, 0, sizeof(struct THIS) },
    [WEIR_DOORMAN_DISCOVERY_RESPONSE] =
        SHAPE(discovery_response_fields, struct THIS),
    [WEIR_DOORMAN_GET_REQUEST] = SHAPE(get_request_fields, struct THIS),
    [WEIR_DOORMAN_GET_RESPONSE] = SHAPE(get_response_fields, struct THIS),
    [WEIR_DOORMAN_SERVER_REQUEST] = SHAPE(server_request_fields, struct THIS),
    [WEIR_DOORMAN_SERVER_RESPONSE] = SHAPE(server_response_fields, struct THIS),
    [WEIR_DOORMAN_RELEASE_REQUEST] = SHAPE(release_request_fields, struct THIS),
    [WEIR_DOORMAN_RELEASE_RESPONSE] =
        SHAPE(release_response_fields, struct THIS),
};
#undef LIST
#undef THIS

/* ---- Values in structs ---- */

static const void *value_in(const void *from, uint16_t at)
{
    return (const char *)from + at;
}

static void *place_in(void *to, uint16_t at)
{
    return (char *)to + at;
}

static uint64_t number_in(const struct field *field, const void *from)
{
    const void *value = value_in(from, field->at);
    if (field->type == BOOL)
        return *(const bool *)value;
    if (field->type == INT32)
        return (uint64_t)(int64_t) * (const int32_t *)value;
    return (uint64_t) * (const int64_t *)value;
}

static void set_doorman_number(const struct field *field, void *to,
                               uint64_t number)
{
    void *place = place_in(to, field->at);
    if (field->type == BOOL)
        *(bool *)place = number != 0;
    else if (field->type == INT32)
        *(int32_t *)place = (int32_t)number;
    else
        *(int64_t *)place = (int64_t)number;
}

/* Whether a field that isn't a list is written. A text is written if it isn't
 * empty. */
static bool is_given(const struct field *field, const void *from)
{
    if (field->given_at == ALWAYS)
        return true;
    if (field->type == TEXT)
        return ((const struct weir_text *)value_in(from, field->at))->len > 0;
    uint16_t at = field->type == PART ? field->at : field->given_at;
    return *(const bool *)value_in(from, at);
}

static size_t doorman_row_size(const struct field *field)
{
    return field->shape ? field->shape->size : sizeof(struct weir_text);
}

/* ---- Writing, from the end ---- */

struct back {
    uint8_t *p; /* the first byte written so far; NULL: only count */
    size_t len; /* bytes so far */
};

static void back_bytes(struct back *back, const void *bytes, size_t len)
{
    back->len += len;
    if (!back->p || len == 0)
        return;
    back->p -= len;
    memcpy(back->p, bytes, len);
}

static void back_varint(struct back *back, uint64_t value)
{
    uint8_t bytes[WEIR_VARINT_MAX];
    back_bytes(back, bytes, (size_t)(weir_varint_put(bytes, value) - bytes));
}

static void back_key(struct back *back, unsigned number,
                     enum weir_wire_type type)
{
    back_varint(back, number << 3 | (unsigned)type);
}

/* A part's head; the part's bytes were written after the first 'before'
 * bytes. */
static void back_head(struct back *back, unsigned number, size_t before)
{
    back_varint(back, back->len - before);
    back_key(back, number, WEIR_WIRE_BYTES);
}

static void back_text(struct back *back, unsigned number,
                      const struct weir_text *text)
{
    size_t before = back->len;
    back_bytes(back, text->p, text->len);
    back_head(back, number, before);
}

static void back_double(struct back *back, unsigned number, const double *value)
{
    uint64_t bits;
    uint8_t bytes[8];
    memcpy(&bits, value, sizeof(bits));
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(bits >> (8 * i));
    back_bytes(back, bytes, sizeof(bytes));
    back_key(back, number, WEIR_WIRE_FIXED64);
}

static void write_fields(struct back *back, const struct shape *shape,
                         const void *from);

static void write_part(struct back *back, unsigned number,
                       const struct shape *shape, const void *from)
{
    size_t before = back->len;
    write_fields(back, shape, from);
    back_head(back, number, before);
}

static void write_list(struct back *back, unsigned number,
                       const struct field *field, const void *from)
{
    const char *rows = *(const char *const *)value_in(from, field->at);
    size_t size = doorman_row_size(field);
    size_t i = *(const size_t *)value_in(from, field->count_at);
    while (i-- > 0) {
        const void *row = rows + i * size;
        if (field->shape)
            write_part(back, number, field->shape, row);
        else
            back_text(back, number, row);
    }
}

static void write_field(struct back *back, unsigned number,
                        const struct field *field, const void *from)
{
    switch (field->type) {
    case TEXT:
        back_text(back, number, value_in(from, field->at));
        return;
    case INT64:
    case INT32:
    case BOOL:
        back_varint(back, number_in(field, from));
        back_key(back, number, WEIR_WIRE_VARINT);
        return;
    case DOUBLE:
        back_double(back, number, value_in(from, field->at));
        return;
    case PART:
        write_part(back, number, field->shape, value_in(from, field->at));
        return;
    case PARTS:
    case TEXTS:
        write_list(back, number, field, from);
        return;
    }
}

static bool is_list(const struct field *field)
{
    return field->type == PARTS || field->type == TEXTS;
}

static void write_fields(struct back *back, const struct shape *shape,
                         const void *from)
{
    for (unsigned number = shape->count; number > 0; number--) {
        const struct field *field = &shape->fields[number - 1];
        if (is_list(field) || is_given(field, from))
            write_field(back, number, field, from);
    }
}

size_t weir_doorman_size(const struct weir_doorman_message *message)
{
    struct back back = { NULL, 0 };
    write_fields(&back, &shapes[message->type], message);
    return back.len;
}

int weir_doorman_encode(const struct weir_doorman_message *message, void *buf,
                        size_t size)
{
    size_t len = weir_doorman_size(message);
    if (len > size || len > WEIR_DOORMAN_BYTES_MAX)
        return WEIR_ETOOBIG;
    if (len == 0)
        return 0;
    struct back back = { (uint8_t *)buf + len, 0 };
    write_fields(&back, &shapes[message->type], message);
    weir_assert(back.p == buf);
    return (int)len;
}

/* ---- Reading ---- */

struct reader {
    struct weir_arena *arena;
    struct weir_diag *diag;
};

static int refuse_bytes(const struct reader *reader)
{
    return weir_diag_set(reader->diag, WEIR_ESYNTAX,
                         "the bytes are no protobuf message", NULL);
}

static int refuse_doorman_field(const struct reader *reader, const char *why)
{
    return weir_diag_set(reader->diag, WEIR_EPROTOCOL,
                         "the bytes are no message of doorman.Capacity: ", why,
                         NULL);
}

static double read_double(struct weir_wire_in in)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < sizeof(bits); i++)
        bits |= (uint64_t)in.p[i] << (8 * i);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static enum weir_wire_type wire_type_of(const struct field *field)
{
    switch (field->type) {
    case INT64:
    case INT32:
    case BOOL:
        return WEIR_WIRE_VARINT;
    case DOUBLE:
        return WEIR_WIRE_FIXED64;
    case TEXT:
    case PART:
    case PARTS:
    case TEXTS:
        break;
    }
    return WEIR_WIRE_BYTES;
}

static const struct field *find_shape_field(const struct shape *shape,
                                            uint32_t number)
{
    return number <= shape->count ? &shape->fields[number - 1] : NULL;
}

static int read_doorman_fields(const struct reader *reader,
                               const struct shape *shape,
                               struct weir_wire_in in, void *to);

/* Reads one row of a list; make_rows() has made room for it. */
static int read_doorman_row(const struct reader *reader,
                            const struct field *field, struct weir_wire_in in,
                            void *to)
{
    size_t *count = place_in(to, field->count_at);
    char *rows = *(char **)place_in(to, field->at);
    void *row = rows + doorman_row_size(field) * (*count)++;
    if (field->shape)
        return read_doorman_fields(reader, field->shape, in, row);
    *(struct weir_text *)row = weir_wire_text(in);
    return 0;
}

static int read_doorman_field(const struct reader *reader,
                              const struct field *field,
                              const struct weir_wire_item *item, void *to)
{
    switch (field->type) {
    case TEXT:
        *(struct weir_text *)place_in(to, field->at) =
            weir_wire_text(item->bytes);
        return 0;
    case INT64:
    case INT32:
    case BOOL:
        set_doorman_number(field, to, item->value);
        break;
    case DOUBLE:
        *(double *)place_in(to, field->at) = read_double(item->bytes);
        break;
    case PART:
        *(bool *)place_in(to, field->at) = true;
        return read_doorman_fields(reader, field->shape, item->bytes,
                                   place_in(to, field->at));
    case PARTS:
    case TEXTS:
        return read_doorman_row(reader, field, item->bytes, to);
    }
    if (field->given_at != ALWAYS)
        *(bool *)place_in(to, field->given_at) = true;
    return 0;
}

/* Counts the rows of the list 'number' and makes room for them. */
static int make_rows(const struct reader *reader, const struct field *field,
                     unsigned number, struct weir_wire_in in, void *to)
{
    size_t rows = 0;
    struct weir_wire_item item;
    int got = weir_wire_next(&in, &item);
    for (; got > 0; got = weir_wire_next(&in, &item))
        rows += item.number == number;
    if (got < 0)
        return refuse_bytes(reader);
    if (rows == 0)
        return 0;
    void *block = NULL;
    if (rows <= field->max)
        block = weir_arena_alloc(reader->arena, rows * doorman_row_size(field));
    if (!block)
        return weir_diag_set(
            reader->diag, WEIR_ETOOBIG,
            "too many resources, bands or parameters in one message", NULL);
    *(void **)place_in(to, field->at) = block;
    return 0;
}

static int make_lists(const struct reader *reader, const struct shape *shape,
                      struct weir_wire_in in, void *to)
{
    int error = 0;
    for (unsigned i = 0; i < shape->count && error == 0; i++) {
        if (is_list(&shape->fields[i]))
            error = make_rows(reader, &shape->fields[i], i + 1, in, to);
    }
    return error;
}

/* 'to' is a zeroed struct. */
static int read_doorman_fields(const struct reader *reader,
                               const struct shape *shape,
                               struct weir_wire_in in, void *to)
{
    int error = make_lists(reader, shape, in, to);
    if (error < 0)
        return error;
    uint32_t seen = 0; /* a bit for each part */
    for (;;) {
        struct weir_wire_item item;
        int got = weir_wire_next(&in, &item);
        if (got < 0)
            return refuse_bytes(reader);
        if (got == 0)
            return 0;
        const struct field *field = find_shape_field(shape, item.number);
        if (!field)
            continue;
        if (item.type != wire_type_of(field))
            return refuse_doorman_field(reader, "a field has another type");
        /* protobuf would merge the two; no known sender sends two. */
        if (field->type == PART && (seen >> item.number & 1))
            return refuse_doorman_field(reader, "a part comes twice");
        seen |= 1u << item.number;
        error = read_doorman_field(reader, field, &item, to);
        if (error < 0)
            return error;
    }
}

int weir_doorman_decode(const void *bytes, size_t len,
                        enum weir_doorman_type type, struct weir_arena *arena,
                        struct weir_doorman_message *out,
                        struct weir_diag *diag)
{
    if (len > WEIR_DOORMAN_BYTES_MAX)
        return weir_diag_set(diag, WEIR_ETOOBIG, "a message has at most 4 MiB",
                             NULL);
    arena->used = 0;
    struct reader reader = { .arena = arena, .diag = diag };
    struct weir_doorman_message message = { .type = type };
    int error = read_doorman_fields(&reader, &shapes[type],
                                    weir_wire_over(bytes, len), &message);
    if (error == 0)
        *out = message;
    return error;
}
