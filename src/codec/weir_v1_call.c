/* SPDX-License-Identifier: MIT
 * codec/weir_v1_call.c - CallRequest and CallReply as bytes, by hand.
 *
 * Theory of operation. Two messages of three fields: the body may be
 * megabytes of JSON, and by hand it is borrowed instead of copied. */

#include "codec/protobuf_bytes.h"
#include "codec/weir_v1.h"

enum {
    REQUEST_METHOD = 1,
    REQUEST_PATH = 2,
    REQUEST_BODY = 3,

    REPLY_STATUS = 1,
    REPLY_BODY = 2,
};

size_t weir_v1_request_size(const struct weir_call_request *request)
{
    return weir_wire_bytes_size(request->method.len) +
           weir_wire_bytes_size(request->path.len) +
           weir_wire_bytes_size(request->body.len);
}

size_t weir_v1_request_encode(const struct weir_call_request *request,
                              void *buf, size_t size)
{
    if (weir_v1_request_size(request) > size)
        return 0;
    uint8_t *p = buf;
    p = weir_wire_put_text(p, REQUEST_METHOD, request->method);
    p = weir_wire_put_text(p, REQUEST_PATH, request->path);
    p = weir_wire_put_text(p, REQUEST_BODY, request->body);
    return (size_t)(p - (uint8_t *)buf);
}

size_t weir_v1_reply_size(const struct weir_call_reply *reply)
{
    return weir_wire_number_size(reply->status) +
           weir_wire_bytes_size(reply->body.len);
}

size_t weir_v1_reply_encode(const struct weir_call_reply *reply, void *buf,
                            size_t size)
{
    if (weir_v1_reply_size(reply) > size)
        return 0;
    uint8_t *p = buf;
    p = weir_wire_put_number(p, REPLY_STATUS, reply->status);
    p = weir_wire_put_text(p, REPLY_BODY, reply->body);
    return (size_t)(p - (uint8_t *)buf);
}

/* Printable ASCII without a space. */
static int check_token(struct weir_text text, size_t max)
{
    if (text.len == 0)
        return WEIR_EPROTOCOL;
    if (text.len > max)
        return WEIR_ETOOBIG;
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] <= ' ' || text.p[i] > '~')
            return WEIR_EPROTOCOL;
    }
    return 0;
}

int weir_v1_request_decode(const void *bytes, size_t len,
                           struct weir_call_request *out)
{
    struct weir_text texts[REQUEST_BODY + 1] = { { NULL, 0 } };
    struct weir_wire_in in = weir_wire_over(bytes, len);
    struct weir_wire_item item;
    int got;
    while ((got = weir_wire_next(&in, &item)) > 0) {
        if (item.number > REQUEST_BODY)
            continue;
        if (item.type != WEIR_WIRE_BYTES || texts[item.number].p)
            return WEIR_EPROTOCOL;
        texts[item.number] = weir_wire_text(item.bytes);
    }
    if (got < 0)
        return WEIR_ESYNTAX;
    int error = check_token(texts[REQUEST_METHOD], WEIR_V1_METHOD_MAX);
    if (error == 0)
        error = check_token(texts[REQUEST_PATH], WEIR_V1_URL_MAX);
    if (error < 0)
        return error;
    *out = (struct weir_call_request){
        .method = texts[REQUEST_METHOD],
        .path = texts[REQUEST_PATH],
        .body = texts[REQUEST_BODY],
    };
    return 0;
}

int weir_v1_reply_decode(const void *bytes, size_t len,
                         struct weir_call_reply *out)
{
    struct weir_call_reply reply = { 0 };
    struct weir_wire_in in = weir_wire_over(bytes, len);
    struct weir_wire_item item;
    int got;
    while ((got = weir_wire_next(&in, &item)) > 0) {
        if (item.number > REPLY_BODY)
            continue;
        bool is_status = item.number == REPLY_STATUS;
        if (item.type != (is_status ? WEIR_WIRE_VARINT : WEIR_WIRE_BYTES))
            return WEIR_EPROTOCOL;
        if (is_status ? reply.status != 0 : reply.body.p != NULL)
            return WEIR_EPROTOCOL;
        if (is_status && (item.value < 100 || item.value > 599))
            return WEIR_EPROTOCOL;
        if (is_status)
            reply.status = (uint32_t)item.value;
        else
            reply.body = weir_wire_text(item.bytes);
    }
    if (got < 0)
        return WEIR_ESYNTAX;
    if (reply.status == 0)
        return WEIR_EPROTOCOL;
    *out = reply;
    return 0;
}
