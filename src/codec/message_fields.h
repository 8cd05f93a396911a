/* SPDX-License-Identifier: MIT
 * codec/message_fields.h - messages of protobuf by tables of their fields: one
 * description of a message drives both directions and the checks of bounds.
 *
 * For the files of codec/ only, so the macros that make a row are short. */

#ifndef WEIR_MESSAGE_FIELDS_H
#define WEIR_MESSAGE_FIELDS_H

#include "codec/arena.h"
#include "codec/protobuf_bytes.h"

/* The most rows of a table. */
#define WEIR_PROTO_FIELDS_MAX 64
/* The largest struct with defaults, in bytes. */
#define WEIR_PROTO_DEFAULTS_MAX 1024
#define WEIR_PROTO_DURATION_MAX (366 * 86400 * WEIR_SECOND)

enum weir_proto_kind {
    WEIR_PROTO_NUMBER,   /* uint32, uint64, int64 or enum; a bool of at most 1.
                          * The member is unsigned, of 'width' bytes */
    WEIR_PROTO_ZIGZAG,   /* sint64 */
    WEIR_PROTO_INT32,    /* int32; a longer number is cut */
    WEIR_PROTO_BOOL,     /* any number but 0 is true */
    WEIR_PROTO_DOUBLE,   /* with a 'max': from 0 to it. Without: any */
    WEIR_PROTO_DURATION, /* weir_duration: google.protobuf.Duration. A negative
                          * one, or one of WEIR_PROTO_DURATION_MAX or more, is
                          * read as 0. If it comes again, the last one counts */
    WEIR_PROTO_TEXT,     /* struct weir_text: any bytes */
    WEIR_PROTO_TITLE,    /* … clean UTF-8, which may be empty */
    WEIR_PROTO_NAME,     /* … that weir_name_check() accepts */
    WEIR_PROTO_BLOCK,    /* 'width' bytes in the struct; none are zeros */
    WEIR_PROTO_PART,     /* a struct in the struct: a nested message */
    WEIR_PROTO_PARTS,    /* a pointer to structs, and a count of type size_t */
    WEIR_PROTO_TEXTS,    /* the same of texts */
    WEIR_PROTO_LAST,     /* a list of messages of which the last one counts: a
                          * part. Its init() forgets the one before */
    WEIR_PROTO_CONSTANT, /* 'min'; written, never read */
};

/* When a field is written. */
enum weir_proto_presence {
    WEIR_PROTO_FILLED, /* unless it is 0 or empty, as proto3 does */
    WEIR_PROTO_ALWAYS,
    WEIR_PROTO_NOTED,   /* always. Reading sets the bool at 'given_at' */
    WEIR_PROTO_IF,      /* if the bool at 'given_at' is set. Reading sets it */
    WEIR_PROTO_UNLESS,  /* if it isn't set. Reading clears it */
    WEIR_PROTO_CHANGED, /* a number that is neither 0 nor its default. If 0 is
                         * read, the default stays */
    WEIR_PROTO_OWN,     /* a number that isn't its default. 0 is read as 0 */
};

struct weir_proto_message;

/* One field. 'min' and 'max' bound a number's value, a double's value, a text's
 * bytes, a list's rows. An absent field counts as 0, so a 'min' of 1 makes a
 * field necessary in what is read (a part, too). A 'max' of 0 is none. */
struct weir_proto_field {
    uint8_t number;
    enum weir_proto_kind kind;
    uint16_t at;    /* offset in the struct */
    uint16_t width; /* bytes of the member */
    enum weir_proto_presence presence;
    uint8_t above;     /* the number on the wire is so much above the member */
    uint16_t given_at; /* of NOTED, IF and UNLESS */
    uint16_t count_at; /* of a list */
    const struct weir_proto_message *part;
    uint64_t min, max;
};

struct weir_proto_message {
    const struct weir_proto_field *fields; /* in the order of writing */
    uint32_t count;
    uint32_t size;       /* bytes of the struct; 0: its members are in the
                          * struct of the message that it is a part of */
    uint32_t fields_max; /* of the message with its parts, unknown fields
                          * included; 0: no bound but the bytes */
    bool one_at_least;   /* one of the fields must come: a oneof */
    /* Sets the values of absent fields in the struct, which is zeroed unless
     * 'size' is 0. NULL: there are none but zeros. */
    void (*init)(void *message);
    /* After reading: relations between fields. 0 or a negative error. NULL:
     * there are none. */
    int (*check)(void *message);
    /* Of a row of a list that was refused although its bytes are a message (of
     * a newer version): fills in the struct, which has undefined content, as
     * far as it can, and the list is read on. NULL: the list is refused. */
    void (*salvage)(struct weir_wire_in in, void *message);
};

/* A row is { NUMBER, KIND(member), presence, .min = … }. THIS is the type of
 * the struct that the table is about. */
#define AT(member) offsetof(THIS, member), sizeof(((THIS *)NULL)->member)
#define NUMBER(member) WEIR_PROTO_NUMBER, AT(member)
#define FLAG(member) WEIR_PROTO_NUMBER, AT(member), .max = 1
#define ENUM(member) WEIR_PROTO_NUMBER, AT(member), .max = INT32_MAX
#define ZIGZAG(member) WEIR_PROTO_ZIGZAG, AT(member)
#define INT32(member) WEIR_PROTO_INT32, AT(member)
#define BOOL(member) WEIR_PROTO_BOOL, AT(member)
#define DOUBLE(member) WEIR_PROTO_DOUBLE, AT(member)
#define DURATION(member) WEIR_PROTO_DURATION, AT(member)
#define TEXT(member) WEIR_PROTO_TEXT, AT(member)
#define TITLE(member) WEIR_PROTO_TITLE, AT(member), .max = WEIR_NAME_MAX
#define NAME(member) WEIR_PROTO_NAME, AT(member), .min = 1
#define BLOCK(member) WEIR_PROTO_BLOCK, AT(member)
#define PART(member, part_) WEIR_PROTO_PART, AT(member), .part = &(part_)
#define LIST(member, count_)                                 \
    offsetof(THIS, member), sizeof(*((THIS *)NULL)->member), \
        .count_at = offsetof(THIS, count_)
#define PARTS(member, count, part_) \
    WEIR_PROTO_PARTS, LIST(member, count), .part = &(part_)
#define TEXTS(member, count) WEIR_PROTO_TEXTS, LIST(member, count)
#define CONSTANT(value) WEIR_PROTO_CONSTANT, ALWAYS, .min = (value)
/* Members of a flat struct: a part without a struct of its own. */
#define FLAT(part_) WEIR_PROTO_PART, .part = &(part_)
#define FLAT_LAST(part_) WEIR_PROTO_LAST, .part = &(part_)
#define ALWAYS .presence = WEIR_PROTO_ALWAYS
#define NOTED(member) \
    .presence = WEIR_PROTO_NOTED, .given_at = offsetof(THIS, member)
#define CHANGED .presence = WEIR_PROTO_CHANGED
#define OWN .presence = WEIR_PROTO_OWN
#define IF(member) .presence = WEIR_PROTO_IF, .given_at = offsetof(THIS, member)
#define UNLESS(member) \
    .presence = WEIR_PROTO_UNLESS, .given_at = offsetof(THIS, member)
/* A message, from its table; one whose members are in another struct. */
#define FLAT_FIELDS(fields_) \
    .fields = (fields_), .count = WEIR_COUNT_OF(fields_)
#define FIELDS(fields_) FLAT_FIELDS(fields_), .size = sizeof(THIS)

/* The bytes that the message takes. */
size_t weir_proto_size(const struct weir_proto_message *message,
                       const void *from);
/* Writes these 'size' bytes to 'p' and returns their end. */
uint8_t *weir_proto_put(const struct weir_proto_message *message,
                        const void *from, size_t size, uint8_t *p);
/* Writes the message into 'buf' of 'size' bytes, and leaves its rest undefined
 * afterwards. Returns the bytes written, 0 if they didn't fit. */
size_t weir_proto_encode(const struct weir_proto_message *message,
                         const void *from, void *buf, size_t size);

/* A field that is no list and comes again: */
enum weir_proto_again {
    WEIR_PROTO_AGAIN_REFUSED,
    WEIR_PROTO_AGAIN_PART_REFUSED, /* of the others the last one counts */
};

/* Reads the message into 'out', a struct of message->size bytes, whose content
 * is undefined if this fails. Texts point into the bytes, lists into 'arena'
 * (NULL: the message has none): both must outlive 'out'. Unknown fields are
 * skipped. Returns 0, WEIR_ESYNTAX (broken bytes), WEIR_ETOOBIG (above a bound
 * of texts, rows or fields, or no room in 'arena'), WEIR_EPROTOCOL (any other
 * violation of the table) or the error of a check(). 'out_why' (may be NULL): a
 * few words on a WEIR_EPROTOCOL. */
int weir_proto_get(const struct weir_proto_message *message,
                   struct weir_wire_in in, enum weir_proto_again again,
                   struct weir_arena *arena, void *out, const char **out_why);

#endif /* WEIR_MESSAGE_FIELDS_H */
