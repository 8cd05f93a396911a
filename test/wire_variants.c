/* SPDX-License-Identifier: MIT
 * wire_variants.c - takes a message apart by its descriptor, and writes it
 * again. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire_variants.h"

#include "core/base/base.h"

/* A field has at least 2 bytes; in a variant at most 15 bytes and an unknown
 * field of 25, on each level. */
#define FIELDS_OF(len) ((len) / 2 + 1)
#define VARIANT_OF(len) (64 * (len) + 64)
#define KEY_MAX 5 /* bytes of a key or a length, which have 32 bits */
#define NUMBER_MAX 10
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, GROUP = 3, FIXED32 = 5 };

struct item {
    const ProtobufCFieldDescriptor *field; /* NULL: unknown */
    uint32_t number;
    unsigned type;
    uint64_t value;       /* of a VARINT */
    const uint8_t *bytes; /* of any other */
    size_t len;
};

static uint64_t get_varint(const uint8_t **p)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        value |= (uint64_t)(**p & 0x7f) << shift;
        if (*(*p)++ < 0x80)
            return value;
    }
}

/* In up to 'max' bytes, or in as few as it needs. */
static uint8_t *put_varint(uint8_t *p, uint64_t value, size_t max)
{
    uint8_t *begin = p;
    while (value >= 0x80) {
        *p++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *p++ = (uint8_t)value;
    while ((size_t)(p - begin) < max) {
        p[-1] |= 0x80;
        *p++ = 0;
    }
    return p;
}

static size_t padding(struct weir_rng *rng, size_t max)
{
    return weir_rng_below(rng, 4) == 0 ? weir_rng_below(rng, max + 1) : 0;
}

/* Takes a level apart. The bytes are sound. */
static size_t take_apart(const ProtobufCMessageDescriptor *type,
                         const uint8_t *bytes, size_t len, struct item *items)
{
    size_t count = 0;
    const uint8_t *p = bytes;
    while (p < bytes + len) {
        weir_assert(count < FIELDS_OF(len));
        uint64_t key = get_varint(&p);
        struct item *item = &items[count++];
        *item = (struct item){ .number = (uint32_t)(key >> 3),
                               .type = (unsigned)(key & 7) };
        item->field =
            protobuf_c_message_descriptor_get_field(type, item->number);
        if (item->type == VARINT) {
            item->value = get_varint(&p);
            continue;
        }
        item->len = item->type == FIXED64   ? 8
                    : item->type == FIXED32 ? 4
                                            : get_varint(&p);
        item->bytes = p;
        p += item->len;
    }
    return count;
}

static void shuffle(struct weir_rng *rng, struct item *items, size_t count)
{
    for (size_t i = 0; count > 1 && i < 2 * count; i++) {
        struct item *at = &items[weir_rng_below(rng, count - 1)];
        if (at[0].number == at[1].number)
            continue;
        struct item moved = at[0];
        at[0] = at[1];
        at[1] = moved;
    }
}

static uint8_t *put_unknown(struct weir_rng *rng, uint8_t *p)
{
    static const unsigned types[] = { VARINT, FIXED64, BYTES, FIXED32 };
    unsigned type = types[weir_rng_below(rng, 4)];
    p = put_varint(p, (1000 + weir_rng_below(rng, 1u << 20)) << 3 | type,
                   padding(rng, KEY_MAX));
    size_t len = type == FIXED64   ? 8
                 : type == FIXED32 ? 4
                                   : weir_rng_below(rng, 10);
    if (type == VARINT)
        return put_varint(p, weir_rng_next(rng) >> weir_rng_below(rng, 64),
                          padding(rng, NUMBER_MAX));
    if (type == BYTES)
        p = put_varint(p, len, padding(rng, KEY_MAX));
    for (size_t i = 0; i < len; i++)
        *p++ = (uint8_t)weir_rng_next(rng);
    return p;
}

static bool is_packed(const ProtobufCFieldDescriptor *field)
{
    return field->label == PROTOBUF_C_LABEL_REPEATED &&
           field->type != PROTOBUF_C_TYPE_MESSAGE &&
           field->type != PROTOBUF_C_TYPE_STRING &&
           field->type != PROTOBUF_C_TYPE_BYTES &&
           field->type != PROTOBUF_C_TYPE_DOUBLE;
}

static size_t write_level(struct weir_rng *rng,
                          const ProtobufCMessageDescriptor *type,
                          const uint8_t *bytes, size_t len, uint8_t *out);

static uint8_t *put_numbers(struct weir_rng *rng, const struct item *item,
                            uint8_t *p)
{
    const uint8_t *from = item->bytes;
    while (from < item->bytes + item->len)
        p = put_varint(p, get_varint(&from), padding(rng, NUMBER_MAX));
    return p;
}

static uint8_t *put_item(struct weir_rng *rng, const struct item *item,
                         uint8_t *p)
{
    p = put_varint(p, (uint64_t)item->number << 3 | item->type,
                   padding(rng, KEY_MAX));
    if (item->type == VARINT)
        return put_varint(p, item->value, padding(rng, NUMBER_MAX));
    uint8_t *part = malloc(VARIANT_OF(item->len));
    size_t len = item->len;
    if (item->field && item->field->type == PROTOBUF_C_TYPE_MESSAGE)
        len = write_level(rng, item->field->descriptor, item->bytes, item->len,
                          part);
    else if (item->field && item->type == BYTES && is_packed(item->field))
        len = (size_t)(put_numbers(rng, item, part) - part);
    else
        memcpy(part, item->bytes, len);
    if (item->type == BYTES)
        p = put_varint(p, len, padding(rng, KEY_MAX));
    memcpy(p, part, len);
    free(part);
    return p + len;
}

static size_t write_level(struct weir_rng *rng,
                          const ProtobufCMessageDescriptor *type,
                          const uint8_t *bytes, size_t len, uint8_t *out)
{
    struct item *items = malloc(FIELDS_OF(len) * sizeof *items);
    size_t count = take_apart(type, bytes, len, items);
    uint8_t *p = out;
    shuffle(rng, items, count);
    for (size_t i = 0; i < count; i++)
        p = put_item(rng, &items[i], p);
    if (weir_rng_below(rng, 3) == 0)
        p = put_unknown(rng, p);
    free(items);
    return (size_t)(p - out);
}

static size_t write_same(struct weir_rng *rng,
                         const ProtobufCMessageDescriptor *type,
                         const uint8_t *bytes, size_t len, uint8_t *out)
{
    uint8_t *p = out;
    if (weir_rng_below(rng, 3) == 0)
        p = put_unknown(rng, p);
    return (size_t)(p - out) + write_level(rng, type, bytes, len, p);
}

static size_t write_broken(struct weir_rng *rng, const uint8_t *bytes,
                           size_t len, uint8_t *out)
{
    static const struct {
        size_t len;
        const char *bytes;
    } ends[] = {
        { 2, "\xfb\x3e" },         /* a group of the number 1007 begins */
        { 4, "\xfb\x3e\xfc\x3e" }, /* … and ends */
        { 2, "\xfc\x3e" },         /* … ends, without a beginning */
        { 2, "\x00\x01" },         /* number 0 */
        { 3, "\xfe\x3e\x00" },     /* wire type 6 */
        { 13, "\xf8\x3e\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00" },
        { 4, "\xfa\x3e\x02\x00" }, /* 2 bytes, and one is there */
        { 5, "\xf9\x3e\x00\x00\x00" },
        { 1, "\xf8" },
    };
    size_t which = weir_rng_below(rng, WEIR_COUNT_OF(ends));
    memcpy(out, bytes, len);
    memcpy(out + len, ends[which].bytes, ends[which].len);
    return len + ends[which].len;
}

/* Writes an item of the same number before it. */
static uint8_t *put_double(struct weir_rng *rng, const struct item *item,
                           uint8_t *p)
{
    struct item other = *item;
    if (weir_rng_below(rng, 4) == 0)
        return put_varint(
            put_varint(p, (uint64_t)item->number << 3 | VARINT, 0),
            weir_rng_next(rng), 0);
    if (item->type == VARINT)
        other.value = weir_rng_below(rng, 2)
                          ? weir_rng_next(rng) >> weir_rng_below(rng, 64)
                          : UINT64_MAX; /* -1, also of an enum */
    else if (item->type == BYTES && item->field &&
             item->field->type != PROTOBUF_C_TYPE_MESSAGE)
        other.len = weir_rng_below(rng, item->len + 1);
    return put_item(rng, &other, p);
}

static size_t double_level(struct weir_rng *rng,
                           const ProtobufCMessageDescriptor *type,
                           const uint8_t *bytes, size_t len, uint8_t *out)
{
    struct item *items = malloc(FIELDS_OF(len) * sizeof *items);
    size_t count = take_apart(type, bytes, len, items);
    size_t chosen = count > 0 ? weir_rng_below(rng, count) : 0;
    uint8_t *p = out;
    for (size_t i = 0; i < count; i++) {
        bool part = items[i].field && items[i].type == BYTES &&
                    items[i].field->type == PROTOBUF_C_TYPE_MESSAGE;
        if (i == chosen && part && weir_rng_below(rng, 4) > 0) {
            uint8_t *inner = malloc(VARIANT_OF(items[i].len));
            items[i].len = double_level(rng, items[i].field->descriptor,
                                        items[i].bytes, items[i].len, inner);
            p = put_varint(p, (uint64_t)items[i].number << 3 | BYTES, 0);
            p = put_varint(p, items[i].len, 0);
            memcpy(p, inner, items[i].len);
            p += items[i].len;
            free(inner);
            continue;
        }
        if (i == chosen)
            p = put_double(rng, &items[i], p);
        p = put_item(rng, &items[i], p);
    }
    free(items);
    return (size_t)(p - out);
}

static void judge_variant(const char *name, const uint8_t *bytes, size_t len,
                          unsigned allowed, wire_judge *judge, void *context)
{
    /* An exact copy, so that a sanitizer sees a read past the end. */
    uint8_t *copy = malloc(len > 0 ? len : 1);
    memcpy(copy, bytes, len);
    enum wire_verdict verdict = judge(context, copy, len);
    if (allowed & 1u << verdict) {
        free(copy);
        return;
    }
    for (size_t i = 0; i < len; i++)
        fprintf(stderr, "%02x", copy[i]);
    fail_msg(" is %s, and was %s", name,
             verdict == WIRE_REFUSED ? "refused"
             : verdict == WIRE_ALIKE ? "accepted"
                                     : "read differently");
}

void wire_check(struct weir_rng *rng, const ProtobufCMessageDescriptor *type,
                const void *bytes, size_t len, wire_judge *judge, void *context)
{
    if (len > WIRE_BYTES_MAX)
        return;
    uint8_t *out = malloc(VARIANT_OF(len));
    judge_variant("the same message", out,
                  write_same(rng, type, bytes, len, out), 1u << WIRE_ALIKE,
                  judge, context);
    judge_variant("broken", out, write_broken(rng, bytes, len, out),
                  1u << WIRE_REFUSED, judge, context);
    judge_variant("a message with a field twice", out,
                  double_level(rng, type, bytes, len, out),
                  1u << WIRE_ALIKE | 1u << WIRE_REFUSED, judge, context);
    free(out);
}
