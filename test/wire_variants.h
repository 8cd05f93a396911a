/* SPDX-License-Identifier: MIT
 * wire_variants.h - a decoder of protobuf reads other bytes of a message as it
 * reads the usual ones, as other writers and broken or hostile peers send them.
 *
 * Each of the three is called for one message, at random:
 *  - The same message in other bytes: at each level the fields in another order
 *    (rows of a list keep theirs), unknown fields of each type among them, and
 *    keys, lengths and numbers, packed ones too, in more bytes than they need.
 *    It must be accepted.
 *  - The message with a field behind it that is a group, has the number 0, an
 *    unknown type, a varint of 11 bytes, or is cut. It must be refused.
 *  - One of its fields, at any level, comes twice, first with another content
 *    (a negative enum, too) or as another type. It may be refused.
 * An accepted message must be the one that protobuf-c reads. */

#ifndef WEIR_WIRE_VARIANTS_H
#define WEIR_WIRE_VARIANTS_H

#include <protobuf-c/protobuf-c.h>

#include "core/base/rng.h"

/* Longer messages are left alone. */
#define WIRE_BYTES_MAX 4096u

enum wire_verdict {
    WIRE_REFUSED,
    WIRE_ALIKE,   /* accepted, and protobuf-c reads the same */
    WIRE_DIFFERS, /* accepted, and protobuf-c reads another message */
};
typedef enum wire_verdict wire_judge(void *context, const uint8_t *bytes,
                                     size_t len);

void wire_check(struct weir_rng *rng, const ProtobufCMessageDescriptor *type,
                const void *bytes, size_t len, wire_judge *judge,
                void *context);

#endif /* WEIR_WIRE_VARIANTS_H */
