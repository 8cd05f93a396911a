/* SPDX-License-Identifier: MIT
 * codec/protobuf_bytes.h - the bytes of protobuf: reads and writes numbers and
 * fields, for message_fields.c and for the columns of weir.v1. Inline, because
 * a report has tens of thousands of them. */

#ifndef WEIR_PROTOBUF_BYTES_H
#define WEIR_PROTOBUF_BYTES_H

#include <string.h>

#include "core/base/base.h"

#define WEIR_VARINT_MAX 10   /* bytes of the longest varint */
#define WEIR_VARINT_32_MAX 5 /* bytes of the longest 32-bit varint */

enum weir_wire_type {
    WEIR_WIRE_VARINT = 0,
    WEIR_WIRE_FIXED64 = 1,
    WEIR_WIRE_BYTES = 2,
    WEIR_WIRE_FIXED32 = 5,
};

/* The bytes that are still to be read. */
struct weir_wire_in {
    const uint8_t *p;
    const uint8_t *end;
};

/* One field as it was read. */
struct weir_wire_item {
    uint32_t number;
    enum weir_wire_type type;
    uint64_t value;            /* for a varint */
    struct weir_wire_in bytes; /* for any other type */
};

static inline struct weir_wire_in weir_wire_over(const void *p, size_t len)
{
    const uint8_t *bytes = p;
    if (!bytes)
        return (struct weir_wire_in){ NULL, NULL };
    return (struct weir_wire_in){ bytes, bytes + len };
}

static inline size_t weir_wire_left(struct weir_wire_in in)
{
    return (size_t)(in.end - in.p);
}

static inline struct weir_text weir_wire_text(struct weir_wire_in in)
{
    return (struct weir_text){ (const char *)in.p, weir_wire_left(in) };
}

static inline uint64_t weir_zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
}

static inline int64_t weir_unzigzag(uint64_t value)
{
    return (int64_t)((value >> 1) ^ (0 - (value & 1)));
}

/* Reads a varint of any length; false when it is cut, too long or past 64
 * bits. */
static inline bool weir_varint_get_slow(struct weir_wire_in *in, uint64_t *out)
{
    size_t left = (size_t)(in->end - in->p);
    uint64_t value = 0;
    for (unsigned i = 0; i < WEIR_VARINT_MAX && i < left; i++) {
        uint64_t byte = in->p[i];
        if (i == WEIR_VARINT_MAX - 1 && byte > 1)
            return false;
        value |= (byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            in->p += i + 1;
            *out = value;
            return true;
        }
    }
    return false;
}

/* The same; nearly all varints have one or two bytes. */
static inline bool weir_varint_get(struct weir_wire_in *in, uint64_t *out)
{
    if (WEIR_UNLIKELY(in->end - in->p < 2))
        return weir_varint_get_slow(in, out);
    uint64_t first = in->p[0];
    if (first < 0x80) {
        in->p += 1;
        *out = first;
        return true;
    }
    uint64_t second = in->p[1];
    if (WEIR_LIKELY(second < 0x80)) {
        in->p += 2;
        *out = (first & 0x7f) | second << 7;
        return true;
    }
    return weir_varint_get_slow(in, out);
}

/* Bytes of a varint: its bits divided by 7, rounded up, at least 1. */
static inline size_t weir_varint_size(uint64_t value)
{
    unsigned bits = 64 - (unsigned)__builtin_clzll(value | 1);
    return (bits * 9 + 64) / 64;
}

static inline uint8_t *weir_varint_put(uint8_t *p, uint64_t value)
{
    while (value >= 0x80) {
        *p++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *p++ = (uint8_t)value;
    return p;
}

/* A key or a length, of 32 bits: more bytes than those take are refused, as
 * other readers do. */
static inline bool weir_varint_get_32(struct weir_wire_in *in, uint64_t *out)
{
    const uint8_t *before = in->p;
    return weir_varint_get(in, out) && *out <= UINT32_MAX &&
           in->p - before <= WEIR_VARINT_32_MAX;
}

/* The next field: 1, 0 at the end, or -1 when the bytes are broken (groups
 * included). */
static inline int weir_wire_next(struct weir_wire_in *in,
                                 struct weir_wire_item *out)
{
    if (in->p == in->end)
        return 0;
    uint64_t key;
    if (!weir_varint_get_32(in, &key) || key < 8)
        return -1;
    out->number = (uint32_t)(key >> 3);
    out->type = (enum weir_wire_type)(key & 7);
    out->value = 0;
    out->bytes = (struct weir_wire_in){ NULL, NULL };
    if (out->type == WEIR_WIRE_VARINT)
        return weir_varint_get(in, &out->value) ? 1 : -1;
    uint64_t len;
    if (out->type == WEIR_WIRE_BYTES) {
        if (!weir_varint_get_32(in, &len))
            return -1;
    } else if (out->type == WEIR_WIRE_FIXED64) {
        len = 8;
    } else if (out->type == WEIR_WIRE_FIXED32) {
        len = 4;
    } else {
        return -1;
    }
    if (len > weir_wire_left(*in))
        return -1;
    out->bytes = (struct weir_wire_in){ in->p, in->p + len };
    in->p += len;
    return 1;
}

/* ---- Writing fields: their sizes and bytes. Field numbers are below 16 (a
 * key of one byte). A number that is 0 and bytes that are empty are left out.
 * ---- */

static inline size_t weir_wire_number_size(uint64_t value)
{
    return value == 0 ? 0 : 1 + weir_varint_size(value);
}

/* A field that is written even if it is empty (a message). */
static inline size_t weir_wire_message_size(size_t len)
{
    return 1 + weir_varint_size(len) + len;
}

static inline size_t weir_wire_bytes_size(size_t len)
{
    return len == 0 ? 0 : weir_wire_message_size(len);
}

static inline uint64_t weir_double_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* The double of a field of WEIR_WIRE_FIXED64. */
static inline double weir_wire_double(struct weir_wire_in bytes)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < sizeof(bits); i++)
        bits |= (uint64_t)bytes.p[i] << (8 * i);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Whether it is at least 0 and at most 'max'. Read as integers, the bits of
 * such doubles rise with their values, and the bits of all others (NaN,
 * infinity, negative ones, -0) are above. */
static inline bool weir_double_is_amount(double value, double max)
{
    return weir_double_bits(value) <= weir_double_bits(max);
}

static inline uint8_t *weir_wire_put_number(uint8_t *p, unsigned number,
                                            uint64_t value)
{
    if (value == 0)
        return p;
    *p++ = (uint8_t)(number << 3 | WEIR_WIRE_VARINT);
    return weir_varint_put(p, value);
}

/* Only the key and the length; the bytes follow. */
static inline uint8_t *weir_wire_put_head(uint8_t *p, unsigned number,
                                          size_t len)
{
    *p++ = (uint8_t)(number << 3 | WEIR_WIRE_BYTES);
    return weir_varint_put(p, len);
}

static inline uint8_t *weir_wire_put_text(uint8_t *p, unsigned number,
                                          struct weir_text text)
{
    if (text.len == 0)
        return p;
    p = weir_wire_put_head(p, number, text.len);
    memcpy(p, text.p, text.len);
    return p + text.len;
}

#endif /* WEIR_PROTOBUF_BYTES_H */
