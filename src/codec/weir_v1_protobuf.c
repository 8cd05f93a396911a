/* SPDX-License-Identifier: MIT
 * codec/weir_v1_protobuf.c - weir.v1 by protobuf-c's generated code.
 *
 * protobuf-c doesn't validate its input, so a scan over the bytes, by the same
 * descriptors, precedes it. The scan checks that fields have the schema's type,
 * come once except in lists, and fit their width; it bounds nesting and the
 * number of fields and refuses groups. protobuf-c's memory is the caller's
 * arena: a sender that lies about sizes exhausts a block, not the process. */

#include "codec/weir_v1_internal.h"

#define SCAN_DEPTH_MAX 4   /* levels of nested messages */
#define SCAN_FIELDS_MAX 64 /* in a hello, a welcome or a change */

static bool is_varint(ProtobufCType type)
{
    return type != PROTOBUF_C_TYPE_BYTES && type != PROTOBUF_C_TYPE_MESSAGE &&
           type != PROTOBUF_C_TYPE_STRING;
}

/* Whether a number fits the field; protobuf-c would cut a wider one. */
static bool number_fits(ProtobufCType type, uint64_t value)
{
    if (type == PROTOBUF_C_TYPE_UINT32)
        return value <= UINT32_MAX;
    if (type == PROTOBUF_C_TYPE_ENUM)
        return value <= INT32_MAX;
    if (type == PROTOBUF_C_TYPE_BOOL)
        return value <= 1;
    return true;
}

struct scan_level {
    const ProtobufCMessageDescriptor *desc;
    struct weir_wire_in in;
    uint64_t seen; /* a bit for each field's index in the descriptor */
};

static int scan_item(struct scan_level *levels, unsigned *depth,
                     const struct weir_wire_item *item)
{
    weir_assert(*depth < SCAN_DEPTH_MAX);
    struct scan_level *level = &levels[*depth];
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(level->desc, item->number);
    if (!field)
        return 0;
    enum weir_wire_type wanted =
        is_varint(field->type) ? WEIR_WIRE_VARINT : WEIR_WIRE_BYTES;
    weir_assert(level->desc->n_fields <= 64);
    uint64_t bit = 1ull << (field - level->desc->fields);
    bool again = level->seen & bit;
    if (item->type != wanted ||
        (again && field->label != PROTOBUF_C_LABEL_REPEATED))
        return WEIR_EPROTOCOL;
    level->seen |= bit;
    if (!number_fits(field->type, item->value))
        return WEIR_EPROTOCOL;
    if (field->type != PROTOBUF_C_TYPE_MESSAGE)
        return 0;
    if (*depth + 1 == SCAN_DEPTH_MAX)
        return WEIR_ETOOBIG;
    levels[++*depth] = (struct scan_level){
        .desc = field->descriptor,
        .in = item->bytes,
    };
    return 0;
}

/* Checks that protobuf-c may be given the bytes. Without recursion: its depth
 * is bounded. */
static int scan(const ProtobufCMessageDescriptor *desc, struct weir_wire_in in)
{
    struct scan_level levels[SCAN_DEPTH_MAX] = { { .desc = desc, .in = in } };
    unsigned depth = 0;
    unsigned fields = 0;
    for (;;) {
        struct weir_wire_item item;
        int got = weir_wire_next(&levels[depth].in, &item);
        if (got < 0)
            return WEIR_ESYNTAX;
        if (got == 0 && depth == 0)
            return 0;
        if (got == 0) {
            depth--;
            continue;
        }
        if (++fields > SCAN_FIELDS_MAX)
            return WEIR_ETOOBIG;
        int error = scan_item(levels, &depth, &item);
        if (error < 0)
            return error;
    }
}

static void *arena_alloc(void *context, size_t size)
{
    return weir_arena_alloc(context, size);
}

static void arena_free(void *context, void *p)
{
    (void)context;
    (void)p;
}

int weir_v1_unpack(const ProtobufCMessageDescriptor *desc,
                   struct weir_wire_in in, struct weir_arena *arena,
                   const void **out)
{
    weir_assert(desc->n_fields <= 32);
    int error = scan(desc, in);
    if (error < 0)
        return error;
    ProtobufCAllocator allocator = {
        .alloc = arena_alloc,
        .free = arena_free,
        .allocator_data = arena,
    };
    size_t len = weir_wire_left(in);
    const uint8_t empty = 0;
    const void *message = protobuf_c_message_unpack(desc, &allocator, len,
                                                    len > 0 ? in.p : &empty);
    /* The bytes have been scanned, so only memory can be missing. */
    if (!message)
        return WEIR_ETOOBIG;
    *out = message;
    return 0;
}

size_t weir_v1_pack(const void *message, uint8_t *p)
{
    return p ? protobuf_c_message_pack(message, p)
             : protobuf_c_message_get_packed_size(message);
}
