/* SPDX-License-Identifier: MIT
 * codec/weir_v1.c - weir.v1: the envelope.
 *
 * Theory of operation. A message has a body in an envelope with its session.
 * Reports and fills, which have thousands of rows, are encoded and decoded by
 * hand, in columns (weir_v1_columns.c); all other bodies by tables of their
 * fields (message_fields.h). */

#include "codec/weir_v1.h"

#include <assert.h>

#include "codec/weir_v1_internal.h"

#define SESSION 1 /* the number of the envelope's first field */

/* The rows of other bodies take no more memory than those of a report. */
#define ROWS(max, type) ((max) * (sizeof(type) + WEIR_ARENA_ALIGN))
#define FITS(bytes) \
    static_assert(WEIR_DECODE_ARENA_SIZE >= (bytes), "no message has more rows")
FITS(ROWS(WEIR_FILLS_MAX, struct weir_fill) +
     (WEIR_FILLS_MAX + WEIR_REPORT_ANNOUNCES_MAX) * sizeof(uint32_t));
FITS(ROWS(WEIR_QUOTAS_MAX, struct weir_change));
FITS(ROWS(WEIR_ASKS_MAX, struct weir_step_ask));
FITS(ROWS(WEIR_ASKS_MAX, struct weir_step_answer));
FITS(ROWS(WEIR_LEASES_MAX, struct weir_want) +
     WEIR_LEASES_MAX * WEIR_LEASE_BANDS_MAX * sizeof(struct weir_band) +
     ROWS(WEIR_WINDOWS_MAX, struct weir_want_window) +
     WEIR_WINDOWS_MAX * (WEIR_ARENA_ALIGN +
                         WEIR_WINDOW_BINS * sizeof(struct weir_latency_count)));
FITS(ROWS(WEIR_LEASES_MAX, struct weir_lease_grant));
FITS(ROWS(WEIR_LIMITS_MAX, struct weir_adaptive_limit));
FITS(ROWS(WEIR_TIERS_MAX, struct weir_text));

/* The bodies: their fields in the envelope of their direction. */
static const struct body {
    enum weir_message_type type;
    bool to_root;
    unsigned number;
    const struct weir_proto_message *fields; /* NULL: columns, by hand */
} bodies[] = {
    { WEIR_MESSAGE_HELLO, true, 2, &weir_v1_hello },
    { WEIR_MESSAGE_REPORT, true, 3, NULL },
    { WEIR_MESSAGE_ASKS, true, 4, &weir_v1_asks },
    { WEIR_MESSAGE_WANTS, true, 5, &weir_v1_wants },
    { WEIR_MESSAGE_LIMITS, true, 6, &weir_v1_limits },
    { WEIR_MESSAGE_WELCOME, false, 2, &weir_v1_welcome },
    { WEIR_MESSAGE_QUOTAS, false, 3, &weir_v1_quotas },
    { WEIR_MESSAGE_FILLS, false, 4, NULL },
    { WEIR_MESSAGE_ANSWERS, false, 5, &weir_v1_answers },
    { WEIR_MESSAGE_GRANTS, false, 6, &weir_v1_grants },
};

static const struct body *body_of_type(enum weir_message_type type)
{
    size_t i = 0;
    while (i < WEIR_COUNT_OF(bodies) && bodies[i].type != type)
        i++;
    weir_assert(i < WEIR_COUNT_OF(bodies));
    return &bodies[i];
}

/* NULL: an unknown field. */
static const struct body *body_of_field(bool to_root, uint32_t number)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(bodies); i++) {
        if (bodies[i].to_root == to_root && bodies[i].number == number)
            return &bodies[i];
    }
    return NULL;
}

/* The body's size; for a report or fills, each column's too. */
static size_t body_size(const struct weir_message *message,
                        const struct body *body, struct weir_v1_sizes *out)
{
    if (body->type == WEIR_MESSAGE_REPORT)
        return weir_v1_report_size(&message->report, out);
    if (body->type == WEIR_MESSAGE_FILLS)
        return weir_v1_fills_size(&message->fills, out);
    return weir_proto_size(body->fields, &message->hello);
}

static uint8_t *put_body(const struct weir_message *message,
                         const struct body *body,
                         const struct weir_v1_sizes *sizes, size_t size,
                         uint8_t *p)
{
    if (body->type == WEIR_MESSAGE_REPORT)
        return weir_v1_report_put(&message->report, sizes, p);
    if (body->type == WEIR_MESSAGE_FILLS)
        return weir_v1_fills_put(&message->fills, sizes, p);
    return weir_proto_put(body->fields, &message->hello, size, p);
}

static int get_body(const struct body *body, struct weir_wire_in in,
                    struct weir_arena *arena, struct weir_message *out)
{
    if (body->type == WEIR_MESSAGE_REPORT)
        return weir_v1_report_get(in, arena, &out->report);
    if (body->type == WEIR_MESSAGE_FILLS)
        return weir_v1_fills_get(in, arena, &out->fills);
    return weir_proto_get(body->fields, in, WEIR_PROTO_AGAIN_REFUSED, arena,
                          &out->hello, NULL);
}

size_t weir_v1_size(const struct weir_message *message)
{
    struct weir_v1_sizes sizes;
    return weir_wire_number_size(message->session) +
           weir_wire_message_size(
               body_size(message, body_of_type(message->type), &sizes));
}

size_t weir_v1_encode(const struct weir_message *message, void *buf,
                      size_t size)
{
    const struct body *body = body_of_type(message->type);
    struct weir_v1_sizes sizes;
    size_t len = body_size(message, body, &sizes);
    size_t total =
        weir_wire_number_size(message->session) + weir_wire_message_size(len);
    if (total > size)
        return 0;
    uint8_t *p = buf;
    p = weir_wire_put_number(p, SESSION, message->session);
    p = weir_wire_put_head(p, body->number, len);
    p = put_body(message, body, &sizes, len, p);
    weir_assert(p == (uint8_t *)buf + total);
    return total;
}

int weir_v1_decode(const void *bytes, size_t len, bool to_root,
                   struct weir_arena *arena, struct weir_message *out)
{
    if (len > WEIR_MESSAGE_BYTES_MAX)
        return WEIR_ETOOBIG;
    arena->used = 0;
    const struct body *body = NULL;
    bool has_session = false;
    struct weir_message message = { .session = 0 };
    struct weir_wire_in in = weir_wire_over(bytes, len);
    struct weir_wire_in body_bytes = { NULL, NULL };
    struct weir_wire_item item;
    int got;
    while ((got = weir_wire_next(&in, &item)) > 0) {
        bool is_session = item.number == SESSION;
        const struct body *found = body_of_field(to_root, item.number);
        if (!is_session && !found)
            continue;
        if (item.type != (is_session ? WEIR_WIRE_VARINT : WEIR_WIRE_BYTES))
            return WEIR_EPROTOCOL;
        if (is_session ? has_session : body != NULL)
            return WEIR_EPROTOCOL;
        if (is_session) {
            has_session = true;
            message.session = item.value;
        } else {
            body = found;
            body_bytes = item.bytes;
        }
    }
    if (got < 0)
        return WEIR_ESYNTAX;
    if (!body)
        return WEIR_EPROTOCOL;
    weir_assert(body->to_root == to_root);
    message.type = body->type;
    int error = get_body(body, body_bytes, arena, &message);
    if (error == 0)
        *out = message;
    return error;
}
