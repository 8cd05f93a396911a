/* SPDX-License-Identifier: MIT
 * test/doorman_oracle.c - the generated code, by its descriptors. */

#include "doorman_oracle.h"

#include <string.h>

#include "doorman.pb-c.h"

#define MESSAGE_MAX 128 /* bytes of the largest struct that is generated */

static const ProtobufCMessageDescriptor *const descriptors[] = {
    &doorman__discovery_request__descriptor,
    &doorman__discovery_response__descriptor,
    &doorman__get_capacity_request__descriptor,
    &doorman__get_capacity_response__descriptor,
    &doorman__get_server_capacity_request__descriptor,
    &doorman__get_server_capacity_response__descriptor,
    &doorman__release_capacity_request__descriptor,
    &doorman__release_capacity_response__descriptor,
};

const ProtobufCMessageDescriptor *oracle_doorman_type(
    enum weir_doorman_type type)
{
    return descriptors[type];
}

static bool is_named(const ProtobufCFieldDescriptor *field, const char *name)
{
    return strcmp(field->name, name) == 0;
}

/* True: the field is optional in the original. */
static bool is_optional(const ProtobufCMessageDescriptor *message,
                        const ProtobufCFieldDescriptor *field)
{
    bool in_discovery = message == &doorman__discovery_response__descriptor;
    return is_named(field, "has") || is_named(field, "safe_capacity") ||
           is_named(field, "learning_mode_duration") ||
           is_named(field, "algorithm") || is_named(field, "master_address") ||
           is_named(field, "value") ||
           (is_named(field, "mastership") && !in_discovery);
}

static const void *at(const ProtobufCMessage *message, unsigned offset)
{
    return (const char *)message + offset;
}

static const ProtobufCMessage *part_of(const ProtobufCMessage *message,
                                       const ProtobufCFieldDescriptor *field)
{
    return *(const ProtobufCMessage *const *)at(message, field->offset);
}

static size_t count_of(const ProtobufCMessage *message,
                       const ProtobufCFieldDescriptor *field)
{
    return *(const size_t *)at(message, field->quantifier_offset);
}

static bool is_there(const ProtobufCMessage *message,
                     const ProtobufCFieldDescriptor *field)
{
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return part_of(message, field) != NULL;
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        const char *text = *(char *const *)at(message, field->offset);
        return text && text != field->default_value;
    }
    return *(const protobuf_c_boolean *)at(message, field->quantifier_offset);
}

static size_t number_size(const ProtobufCFieldDescriptor *field)
{
    bool is_int = field->type == PROTOBUF_C_TYPE_ENUM ||
                  field->type == PROTOBUF_C_TYPE_BOOL;
    return is_int ? sizeof(int) : sizeof(int64_t);
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool same(const ProtobufCMessage *theirs, const ProtobufCMessage *ours);

static bool same_part(const ProtobufCMessage *theirs,
                      const ProtobufCMessage *ours)
{
    if (!ours)
        return !theirs;
    if (theirs)
        return same(theirs, ours);
    _Alignas(16) char zeros[MESSAGE_MAX];
    ProtobufCMessage *empty = (ProtobufCMessage *)zeros;
    if (ours->descriptor->sizeof_message > sizeof(zeros))
        return false;
    ours->descriptor->message_init(empty);
    return same(empty, ours);
}

static bool same_list(const ProtobufCMessage *theirs,
                      const ProtobufCMessage *ours,
                      const ProtobufCFieldDescriptor *field)
{
    size_t count = count_of(theirs, field);
    if (count != count_of(ours, field))
        return false;
    void *const *a = *(void *const *const *)at(theirs, field->offset);
    void *const *b = *(void *const *const *)at(ours, field->offset);
    bool is_text = field->type == PROTOBUF_C_TYPE_STRING;
    for (size_t i = 0; i < count; i++) {
        if (!(is_text ? same_text(a[i], b[i]) : same(a[i], b[i])))
            return false;
    }
    return true;
}

static bool same_field(const ProtobufCMessage *theirs,
                       const ProtobufCMessage *ours,
                       const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return same_list(theirs, ours, field);
    bool optional = is_optional(ours->descriptor, field);
    if (!optional && !is_there(ours, field))
        return false;
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return same_text(*(char *const *)at(theirs, field->offset),
                         *(char *const *)at(ours, field->offset));
    if (optional && is_there(ours, field) != is_there(theirs, field))
        return false;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return same_part(part_of(theirs, field), part_of(ours, field));
    return memcmp(at(theirs, field->offset), at(ours, field->offset),
                  number_size(field)) == 0;
}

static bool same(const ProtobufCMessage *theirs, const ProtobufCMessage *ours)
{
    const ProtobufCMessageDescriptor *descriptor = ours->descriptor;
    if (theirs->descriptor != descriptor || ours->n_unknown_fields > 0)
        return false;
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        if (!same_field(theirs, ours, &descriptor->fields[i]))
            return false;
    }
    return true;
}

static ProtobufCMessage *unpack(enum weir_doorman_type type, const void *bytes,
                                size_t len)
{
    static const uint8_t empty;
    return protobuf_c_message_unpack(descriptors[type], NULL, len,
                                     len > 0 ? bytes : &empty);
}

bool oracle_doorman(enum weir_doorman_type type, const void *bytes, size_t len,
                    const void *ours, size_t ours_len)
{
    ProtobufCMessage *a = unpack(type, bytes, len);
    ProtobufCMessage *b = unpack(type, ours, ours_len);
    bool agrees = a && b && same(a, b);
    protobuf_c_message_free_unpacked(a, NULL);
    protobuf_c_message_free_unpacked(b, NULL);
    return agrees;
}

/* ---- As proto3 ---- */

static void leave_out_zeros(ProtobufCMessage *message);

static void leave_out_zero(ProtobufCMessage *message,
                           const ProtobufCFieldDescriptor *field)
{
    static const char zeros[sizeof(int64_t)];
    char *value = (char *)message + field->offset;
    bool is_part = field->type == PROTOBUF_C_TYPE_MESSAGE;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        for (size_t i = 0; is_part && i < count_of(message, field); i++)
            leave_out_zeros((*(ProtobufCMessage ***)value)[i]);
        return;
    }
    if (is_part && is_there(message, field))
        leave_out_zeros(*(ProtobufCMessage **)value);
    if (is_part || field->type == PROTOBUF_C_TYPE_STRING ||
        is_optional(message->descriptor, field))
        return;
    if (memcmp(value, zeros, number_size(field)) == 0)
        *(protobuf_c_boolean *)((char *)message + field->quantifier_offset) =
            false;
}

static void leave_out_zeros(ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++)
        leave_out_zero(message, &message->descriptor->fields[i]);
}

size_t oracle_doorman_again(enum weir_doorman_type type, const void *bytes,
                            size_t len, bool proto3, void *buf)
{
    ProtobufCMessage *message = unpack(type, bytes, len);
    if (!message)
        return 0;
    if (proto3)
        leave_out_zeros(message);
    size_t written = protobuf_c_message_pack(message, buf);
    protobuf_c_message_free_unpacked(message, NULL);
    return written;
}
