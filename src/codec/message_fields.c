/* SPDX-License-Identifier: MIT
 * codec/message_fields.c - messages of protobuf by tables of their fields.
 *
 * Theory of operation. A message is a table with a row for each field: its
 * number, its kind, the member of the struct, its bounds. One reader and one
 * writer use the same tables, so they can't disagree.
 *
 *     get_request:  1 text  id
 *                   2 parts resources --> resource: 1 text id …
 *
 * Rejected: the code that protobuf-c generates. It copies each text, needs a
 * scan of the bytes before it, since it doesn't validate them, and two
 * functions for each message to convert between its structs and ours; it can't
 * express bounds, or "required when written, not when read". The tests compare
 * this file with it.
 *
 * Reading: a list's rows are counted first and allocated in one piece, so each
 * level of a message is walked once for each of its lists and once more. The
 * recursion follows the tables, and no message contains itself. The next field
 * is looked for behind the last one found: senders write them in order.
 *
 * Writing goes from the last byte to the first, so a part's length is known
 * when its head is written, and one walk suffices. The same walk without a
 * buffer gives the size. */

#include "codec/message_fields.h"

#include "core/quota/quota.h"
#include "core/quota/quota_text.h"

/* ---- Values in structs ---- */

static const void *value_in(const void *from, uint16_t at)
{
    return (const char *)from + at;
}

static void *place_in(void *to, uint16_t at)
{
    return (char *)to + at;
}

static inline uint64_t load_unsigned(const void *value, size_t width)
{
    uint64_t eight;
    uint32_t four;
    if (width == 1)
        return *(const uint8_t *)value;
    if (width == sizeof(four)) {
        memcpy(&four, value, sizeof(four));
        return four;
    }
    weir_assert(width == sizeof(eight));
    memcpy(&eight, value, sizeof(eight));
    return eight;
}

static void store_unsigned(void *place, size_t width, uint64_t value)
{
    uint32_t four = (uint32_t)value;
    if (width == 1) {
        *(uint8_t *)place = (uint8_t)value;
    } else if (width == sizeof(four)) {
        memcpy(place, &four, sizeof(four));
    } else {
        weir_assert(width == sizeof(value));
        memcpy(place, &value, sizeof(value));
    }
}

/* The number of a field as it is on the wire. */
static inline uint64_t wire_number(const struct weir_proto_field *field,
                                   const void *from)
{
    if (field->kind == WEIR_PROTO_CONSTANT)
        return field->min;
    uint64_t value = load_unsigned(value_in(from, field->at), field->width);
    if (field->kind == WEIR_PROTO_ZIGZAG)
        return weir_zigzag((int64_t)value);
    if (field->kind == WEIR_PROTO_INT32)
        return (uint64_t)(int64_t)(int32_t)value;
    return value + field->above;
}

static void set_defaults(const struct weir_proto_message *message, void *to)
{
    if (message->size > 0)
        memset(to, 0, message->size);
    if (message->init)
        message->init(to);
}

static bool is_list(const struct weir_proto_field *field)
{
    return field->kind == WEIR_PROTO_PARTS || field->kind == WEIR_PROTO_TEXTS;
}

static enum weir_wire_type wire_type_of(const struct weir_proto_field *field)
{
    switch (field->kind) {
    case WEIR_PROTO_NUMBER:
    case WEIR_PROTO_ZIGZAG:
    case WEIR_PROTO_INT32:
    case WEIR_PROTO_BOOL:
    case WEIR_PROTO_CONSTANT:
        return WEIR_WIRE_VARINT;
    case WEIR_PROTO_DOUBLE:
        return WEIR_WIRE_FIXED64;
    case WEIR_PROTO_DURATION:
    case WEIR_PROTO_TEXT:
    case WEIR_PROTO_TITLE:
    case WEIR_PROTO_NAME:
    case WEIR_PROTO_BLOCK:
    case WEIR_PROTO_PART:
    case WEIR_PROTO_PARTS:
    case WEIR_PROTO_TEXTS:
    case WEIR_PROTO_LAST:
        break;
    }
    return WEIR_WIRE_BYTES;
}

/* A google.protobuf.Duration. Negative parts are read as large numbers. */
struct duration {
    uint64_t seconds;
    uint32_t nanos;
};
#define THIS struct duration
static const struct weir_proto_field duration_fields[] = {
    { 1, NUMBER(seconds) },
    { 2, INT32(nanos) },
};
static const struct weir_proto_message duration_parts = { FIELDS(
    duration_fields) };
#undef THIS

/* ---- Writing, from the end ---- */

struct back {
    uint8_t *begin; /* of the buffer */
    uint8_t *p;     /* the first byte written so far; NULL: there is no buffer,
                     * or the bytes don't fit, and they are only counted */
    size_t len;     /* bytes so far */
};

/* Whether there is a buffer with 'len' bytes before 'p', which then begins with
 * them. */
static inline bool back_room(struct back *back, size_t len)
{
    back->len += len;
    if (!back->p)
        return false;
    bool fits = (size_t)(back->p - back->begin) >= len;
    back->p = fits ? back->p - len : NULL;
    return fits;
}

static inline void back_bytes(struct back *back, const void *bytes, size_t len)
{
    if (back_room(back, len) && len > 0)
        memcpy(back->p, bytes, len);
}

static inline void back_varint(struct back *back, uint64_t value)
{
    if (back_room(back, value < 0x80 ? 1 : weir_varint_size(value)))
        weir_varint_put(back->p, value);
}

static inline void back_key(struct back *back,
                            const struct weir_proto_field *field)
{
    back_varint(back, (uint64_t)field->number << 3 | wire_type_of(field));
}

/* The head of bytes that were written after the first 'before' bytes. */
static void back_head(struct back *back, const struct weir_proto_field *field,
                      size_t before)
{
    back_varint(back, back->len - before);
    back_key(back, field);
}

/* 'anyway': write them even if there are none. */
static void back_block(struct back *back, const struct weir_proto_field *field,
                       const void *bytes, size_t len, bool anyway)
{
    size_t before = back->len;
    if (len == 0 && !anyway)
        return;
    back_bytes(back, bytes, len);
    back_head(back, field, before);
}

static inline void back_number(struct back *back,
                               const struct weir_proto_field *field,
                               const void *from, bool anyway)
{
    uint64_t value = wire_number(field, from);
    if (value == 0 && !anyway)
        return;
    back_varint(back, value);
    back_key(back, field);
}

static void back_double(struct back *back, const struct weir_proto_field *field,
                        double value, bool anyway)
{
    uint64_t bits = weir_double_bits(value);
    uint8_t bytes[sizeof(bits)];
    if (value == 0 && !anyway)
        return;
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(bits >> (8 * i));
    back_bytes(back, bytes, sizeof(bytes));
    back_key(back, field);
}

static bool is_zero(const unsigned char *bytes, size_t len)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

static void write_fields(struct back *back,
                         const struct weir_proto_message *message,
                         const void *from);

static void write_part(struct back *back, const struct weir_proto_field *field,
                       const void *from, bool anyway)
{
    size_t before = back->len;
    write_fields(back, field->part, from);
    if (back->len > before || anyway)
        back_head(back, field, before);
}

static void write_duration(struct back *back,
                           const struct weir_proto_field *field,
                           weir_duration duration, bool anyway)
{
    struct duration parts = { duration / WEIR_SECOND,
                              (uint32_t)(duration % WEIR_SECOND) };
    size_t before = back->len;
    write_fields(back, &duration_parts, &parts);
    if (back->len > before || anyway)
        back_head(back, field, before);
}

static void write_list(struct back *back, const struct weir_proto_field *field,
                       const void *from)
{
    const char *rows = *(const char *const *)value_in(from, field->at);
    size_t i = *(const size_t *)value_in(from, field->count_at);
    weir_audit(i <= field->max);
    while (i-- > 0) {
        const void *row = rows + i * field->width;
        const struct weir_text *text = row;
        if (field->part)
            write_part(back, field, row, true);
        else
            back_block(back, field, text->p, text->len, true);
    }
}

static void write_value(struct back *back, const struct weir_proto_field *field,
                        const void *from, bool anyway)
{
    const void *value = value_in(from, field->at);
    const struct weir_text *text = value;
    switch (field->kind) {
    case WEIR_PROTO_NUMBER:
    case WEIR_PROTO_ZIGZAG:
    case WEIR_PROTO_INT32:
    case WEIR_PROTO_BOOL:
    case WEIR_PROTO_CONSTANT:
        back_number(back, field, from, anyway);
        return;
    case WEIR_PROTO_DOUBLE:
        back_double(back, field, *(const double *)value, anyway);
        return;
    case WEIR_PROTO_TEXT:
    case WEIR_PROTO_TITLE:
    case WEIR_PROTO_NAME:
        back_block(back, field, text->p, text->len, anyway);
        return;
    case WEIR_PROTO_BLOCK:
        if (anyway || !is_zero(value, field->width))
            back_block(back, field, value, field->width, true);
        return;
    case WEIR_PROTO_DURATION:
        write_duration(back, field, *(const weir_duration *)value, anyway);
        return;
    case WEIR_PROTO_PART:
    case WEIR_PROTO_LAST:
        write_part(back, field, value, anyway);
        return;
    case WEIR_PROTO_PARTS:
    case WEIR_PROTO_TEXTS:
        write_list(back, field, from);
        return;
    }
}

/* Whether the presence allows the field; a FILLED or CHANGED one isn't written
 * if it is 0 or empty either. */
static bool is_present(const struct weir_proto_field *field, const void *from,
                       const void *defaults)
{
    enum weir_proto_presence presence = field->presence;
    if (presence == WEIR_PROTO_IF || presence == WEIR_PROTO_UNLESS)
        return *(const bool *)value_in(from, field->given_at) ==
               (presence == WEIR_PROTO_IF);
    if (presence == WEIR_PROTO_CHANGED || presence == WEIR_PROTO_OWN)
        return wire_number(field, from) != wire_number(field, defaults);
    return true;
}

static void write_field(struct back *back, const struct weir_proto_field *field,
                        const void *from, const void *defaults)
{
    bool anyway = field->presence != WEIR_PROTO_FILLED &&
                  field->presence != WEIR_PROTO_CHANGED;
    if (field->presence != WEIR_PROTO_FILLED &&
        !is_present(field, from, defaults))
        return;
    if (field->kind == WEIR_PROTO_NUMBER)
        back_number(back, field, from, anyway);
    else
        write_value(back, field, from, anyway);
}

static void write_rows(struct back *back,
                       const struct weir_proto_message *message,
                       const void *from, const void *defaults)
{
    for (size_t i = message->count; i-- > 0;)
        write_field(back, &message->fields[i], from, defaults);
}

static void write_with_defaults(struct back *back,
                                const struct weir_proto_message *message,
                                const void *from)
{
    uint64_t defaults[WEIR_PROTO_DEFAULTS_MAX / sizeof(uint64_t)];
    weir_assert(message->size <= sizeof(defaults));
    set_defaults(message, defaults);
    write_rows(back, message, from, defaults);
}

static void write_fields(struct back *back,
                         const struct weir_proto_message *message,
                         const void *from)
{
    if (message->init)
        write_with_defaults(back, message, from);
    else
        write_rows(back, message, from, NULL);
}

size_t weir_proto_size(const struct weir_proto_message *message,
                       const void *from)
{
    struct back back = { NULL, NULL, 0 };
    write_fields(&back, message, from);
    return back.len;
}

uint8_t *weir_proto_put(const struct weir_proto_message *message,
                        const void *from, size_t size, uint8_t *p)
{
    struct back back = { p, p + size, 0 };
    write_fields(&back, message, from);
    weir_assert(back.len == size && back.p == p);
    return p + size;
}

size_t weir_proto_encode(const struct weir_proto_message *message,
                         const void *from, void *buf, size_t size)
{
    struct back back = { buf, (uint8_t *)buf + size, 0 };
    write_fields(&back, message, from);
    if (!back.p)
        return 0;
    memmove(buf, back.p, back.len);
    return back.len;
}

/* ---- Reading ---- */

struct reader {
    struct weir_arena *arena;
    enum weir_proto_again again;
    size_t fields_left; /* that may still come */
    const char *why;
};

static int refuse_message(struct reader *reader, const char *why)
{
    reader->why = why;
    return WEIR_EPROTOCOL;
}

static int read_number(struct reader *reader,
                       const struct weir_proto_field *field, uint64_t value,
                       void *place)
{
    if (value == 0 && field->presence == WEIR_PROTO_CHANGED)
        return 0;
    if (field->kind == WEIR_PROTO_ZIGZAG)
        value = (uint64_t)weir_unzigzag(value);
    else if (field->kind == WEIR_PROTO_BOOL)
        value = value != 0;
    uint64_t max = field->max;
    if (max == 0)
        max = UINT64_MAX >> (64 - 8 * field->width);
    if (field->kind == WEIR_PROTO_NUMBER && (value < field->min || value > max))
        return refuse_message(reader, "a number is out of its bounds");
    store_unsigned(place, field->width, value - field->above);
    return 0;
}

static int read_double(struct reader *reader,
                       const struct weir_proto_field *field,
                       struct weir_wire_in in, double *out)
{
    double value = weir_wire_double(in);
    if (field->max > 0 && !weir_double_is_amount(value, (double)field->max))
        return refuse_message(reader, "a number is out of its bounds");
    *out = value;
    return 0;
}

static int read_text(struct reader *reader,
                     const struct weir_proto_field *field,
                     struct weir_wire_in in, struct weir_text *out)
{
    struct weir_text text = weir_wire_text(in);
    if (field->max > 0 && text.len > field->max)
        return WEIR_ETOOBIG;
    bool sound = text.len >= field->min;
    if (field->kind == WEIR_PROTO_TITLE)
        sound = sound && weir_utf8_clean(text, "") == text.len;
    else if (field->kind == WEIR_PROTO_NAME)
        sound = weir_name_check(text, NULL) == 0;
    if (!sound)
        return refuse_message(reader, "a text isn't sound");
    *out = text;
    return 0;
}

static int read_block(struct reader *reader,
                      const struct weir_proto_field *field,
                      struct weir_wire_in in, void *place)
{
    size_t len = weir_wire_left(in);
    if (len == 0 && field->min == 0)
        return 0;
    if (len != field->width)
        return refuse_message(reader, "bytes have another length");
    memcpy(place, in.p, len);
    return 0;
}

static int read_fields(struct reader *reader,
                       const struct weir_proto_message *message,
                       struct weir_wire_in in, void *to);

static int read_duration(struct reader *reader, struct weir_wire_in in,
                         weir_duration *out)
{
    struct duration parts;
    int error = read_fields(reader, &duration_parts, in, &parts);
    bool sound = parts.seconds < WEIR_PROTO_DURATION_MAX / WEIR_SECOND &&
                 parts.nanos < WEIR_SECOND;
    *out = sound ? parts.seconds * WEIR_SECOND + parts.nanos : 0;
    return error;
}

/* Reads one row of a list; make_rows() has made room for it. */
static int read_row(struct reader *reader, const struct weir_proto_field *field,
                    struct weir_wire_in in, void *to)
{
    size_t *count = place_in(to, field->count_at);
    char *rows = *(char **)place_in(to, field->at);
    weir_assert(*count < field->max);
    void *row = rows + field->width * (*count)++;
    if (field->part) {
        int error = read_fields(reader, field->part, in, row);
        if (error == 0 || error == WEIR_ESYNTAX || !field->part->salvage)
            return error;
        field->part->salvage(in, row);
        return 0;
    }
    *(struct weir_text *)row = weir_wire_text(in);
    return 0;
}

static int read_value(struct reader *reader,
                      const struct weir_proto_field *field,
                      const struct weir_wire_item *item, void *to)
{
    void *place = place_in(to, field->at);
    switch (field->kind) {
    case WEIR_PROTO_NUMBER:
    case WEIR_PROTO_ZIGZAG:
    case WEIR_PROTO_INT32:
    case WEIR_PROTO_BOOL:
        return read_number(reader, field, item->value, place);
    case WEIR_PROTO_DOUBLE:
        return read_double(reader, field, item->bytes, place);
    case WEIR_PROTO_TEXT:
    case WEIR_PROTO_TITLE:
    case WEIR_PROTO_NAME:
        return read_text(reader, field, item->bytes, place);
    case WEIR_PROTO_BLOCK:
        return read_block(reader, field, item->bytes, place);
    case WEIR_PROTO_DURATION:
        return read_duration(reader, item->bytes, place);
    case WEIR_PROTO_PART:
    case WEIR_PROTO_LAST:
        return read_fields(reader, field->part, item->bytes, place);
    case WEIR_PROTO_PARTS:
    case WEIR_PROTO_TEXTS:
        return read_row(reader, field, item->bytes, to);
    case WEIR_PROTO_CONSTANT:
        break;
    }
    return 0;
}

/* Counts the rows of a list and makes room for them. */
static int make_rows(struct reader *reader,
                     const struct weir_proto_field *field,
                     struct weir_wire_in in, void *to)
{
    size_t rows = 0;
    struct weir_wire_item item;
    int got;
    while ((got = weir_wire_next(&in, &item)) > 0)
        rows += item.number == field->number;
    if (got < 0)
        return WEIR_ESYNTAX;
    if (rows == 0)
        return 0;
    if (rows > field->max)
        return WEIR_ETOOBIG;
    weir_assert(reader->arena);
    void *block = weir_arena_alloc(reader->arena, rows * field->width);
    if (!block)
        return WEIR_ETOOBIG;
    *(void **)place_in(to, field->at) = block;
    return 0;
}

/* The row of a field, or the count of rows. 'from': looked for from there
 * on. */
static size_t find_row(const struct weir_proto_message *message,
                       uint32_t number, size_t from)
{
    size_t i = from;
    for (size_t looked = 0; looked < message->count; looked++, i++) {
        if (i >= message->count)
            i = 0;
        if (message->fields[i].number == number)
            return i;
    }
    return message->count;
}

static int read_item(struct reader *reader,
                     const struct weir_proto_field *field, bool again,
                     const struct weir_wire_item *item, void *to)
{
    if (item->type != wire_type_of(field))
        return refuse_message(reader, "a field has another type");
    bool part = field->kind == WEIR_PROTO_PART;
    if (again && !is_list(field) && field->kind != WEIR_PROTO_LAST &&
        (part || reader->again == WEIR_PROTO_AGAIN_REFUSED))
        return refuse_message(reader, part ? "a part comes twice"
                                           : "a field comes twice");
    int error = read_value(reader, field, item, to);
    if (error < 0)
        return error;
    if (field->presence == WEIR_PROTO_IF || field->presence == WEIR_PROTO_NOTED)
        *(bool *)place_in(to, field->given_at) = true;
    else if (field->presence == WEIR_PROTO_UNLESS)
        *(bool *)place_in(to, field->given_at) = false;
    return 0;
}

/* Reads the bytes to their end; sets a bit for each row that was there. */
static int read_items(struct reader *reader,
                      const struct weir_proto_message *message,
                      struct weir_wire_in in, void *to, uint64_t *out_seen)
{
    uint64_t seen = 0;
    size_t next = 0;
    for (;;) {
        struct weir_wire_item item;
        int got = weir_wire_next(&in, &item);
        *out_seen = seen;
        if (got <= 0)
            return got < 0 ? WEIR_ESYNTAX : 0;
        if (reader->fields_left-- == 0)
            return WEIR_ETOOBIG;
        size_t row = find_row(message, item.number, next);
        if (row == message->count)
            continue;
        weir_assert(row < WEIR_PROTO_FIELDS_MAX);
        next = row;
        int error = read_item(reader, &message->fields[row], seen >> row & 1,
                              &item, to);
        if (error < 0)
            return error;
        seen |= 1ull << row;
    }
}

static int check_message(struct reader *reader,
                         const struct weir_proto_message *message,
                         uint64_t seen, void *to)
{
    for (size_t i = 0; i < message->count; i++) {
        const struct weir_proto_field *field = &message->fields[i];
        size_t rows = seen >> i & 1;
        if (is_list(field))
            rows = *(const size_t *)value_in(to, field->count_at);
        if (rows == 0 && field->min > 0)
            return refuse_message(reader, "a field is missing");
    }
    if (message->one_at_least && seen == 0)
        return refuse_message(reader, "a field is missing");
    return message->check ? message->check(to) : 0;
}

/* Whether no number comes twice, and each member has a width that its kind can
 * fill. */
static bool is_sound_table(const struct weir_proto_message *message)
{
    for (size_t i = 0; i < message->count; i++) {
        const struct weir_proto_field *field = &message->fields[i];
        size_t width = field->width;
        bool number = wire_type_of(field) == WEIR_WIRE_VARINT &&
                      field->kind != WEIR_PROTO_CONSTANT;
        if (find_row(message, field->number, 0) != i || field->number == 0 ||
            (number && width != 1 && width != 4 && width != 8) ||
            (is_list(field) && field->max == 0))
            return false;
    }
    return message->count <= WEIR_PROTO_FIELDS_MAX;
}

static int read_fields(struct reader *reader,
                       const struct weir_proto_message *message,
                       struct weir_wire_in in, void *to)
{
    weir_audit(is_sound_table(message));
    set_defaults(message, to);
    int error = 0;
    for (size_t i = 0; i < message->count && error == 0; i++) {
        if (is_list(&message->fields[i]))
            error = make_rows(reader, &message->fields[i], in, to);
    }
    if (error < 0)
        return error;
    size_t left = reader->fields_left;
    if (message->fields_max > 0)
        reader->fields_left = message->fields_max;
    uint64_t seen;
    error = read_items(reader, message, in, to, &seen);
    if (message->fields_max > 0)
        reader->fields_left = left;
    return error < 0 ? error : check_message(reader, message, seen, to);
}

int weir_proto_get(const struct weir_proto_message *message,
                   struct weir_wire_in in, enum weir_proto_again again,
                   struct weir_arena *arena, void *out, const char **out_why)
{
    struct reader reader = { .arena = arena,
                             .again = again,
                             .fields_left = SIZE_MAX,
                             .why = "its values contradict each other" };
    int error = read_fields(&reader, message, in, out);
    if (error == WEIR_EPROTOCOL && out_why)
        *out_why = reader.why;
    return error;
}
