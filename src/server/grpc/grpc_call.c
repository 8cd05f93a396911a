/* SPDX-License-Identifier: MIT
 * server/grpc/grpc_call.c - a call of the administration.
 *
 * It is one request in one message or, as a body may be longer than a message,
 * in several with the same method and path; the bodies are joined. The reply is
 * cut likewise, and goes out as fast as the peer reads. */

#include <stdlib.h>
#include <string.h>

#include "io/clock.h"
#include "server/grpc/grpc_internal.h"

static bool append_call_body(struct grpc_stream *stream, struct weir_text part)
{
    size_t need = stream->body_len + part.len;
    if (need > stream->body_capacity) {
        size_t capacity = 2 * stream->body_capacity;
        if (capacity < need)
            capacity = need;
        char *body = realloc(stream->body, capacity);
        if (!body)
            return false;
        stream->body = body;
        stream->body_capacity = capacity;
    }
    if (part.len > 0)
        memcpy(stream->body + stream->body_len, part.p, part.len);
    stream->body_len = need;
    weir_assert(stream->body_len <= stream->body_capacity);
    return true;
}

/* The first message of a call names the method and path; true: it is
 * admitted. */
static bool begin_call_request(struct grpc_stream *stream,
                               const struct weir_call_request *part)
{
    struct weir_admin_request request = { .method = part->method,
                                          .target = part->path };
    struct weir_diag why = { 0 };
    stream->role = weir_admin_role(&request);
    int error = weir_grpc_admit(stream->connection, &stream->identity,
                                stream->role, &why);
    if (error < 0) {
        weir_grpc_finish(stream, weir_grpc_status(error), why.text);
        return false;
    }
    stream->target = calloc(1, part->path.len + 1);
    if (!stream->target) {
        weir_grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return false;
    }
    memcpy(stream->target, part->path.p, part->path.len);
    memcpy(stream->method, part->method.p, part->method.len);
    return true;
}

void weir_grpc_on_call_message(struct grpc_stream *stream, const void *bytes,
                               size_t len)
{
    struct weir_call_request part;
    if (stream->asked)
        return;
    if (weir_v1_request_decode(bytes, len, &part) < 0) {
        weir_grpc_finish(stream, WEIR_GRPC_INVALID_ARGUMENT,
                         "the message isn't a weir.v1.CallRequest");
        return;
    }
    if (!stream->target && !begin_call_request(stream, &part))
        return;
    const struct weir_admin_request request = {
        .method = weir_text_of(stream->method),
        .target = weir_text_of(stream->target),
    };
    struct weir_diag why = { 0 };
    if (weir_admin_check_body(&request, stream->body_len + part.body.len,
                              &why) < 0)
        weir_grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED, why.text);
    else if (!append_call_body(stream, part.body))
        weir_grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED, "out of memory");
}

void weir_grpc_send_reply(struct grpc_stream *stream)
{
    struct weir_grpc_api *api = stream->connection->api;
    struct weir_h2_link *link = stream->connection->link;
    while (!weir_h2_link_is_full(link)) {
        size_t left = stream->reply_len - stream->reply_sent;
        size_t chunk = left < WEIR_CALL_CHUNK ? left : WEIR_CALL_CHUNK;
        struct weir_call_reply part = {
            .status = stream->status,
            .body = { stream->reply + stream->reply_sent, chunk },
        };
        size_t size = weir_v1_reply_size(&part);
        bool sent = weir_grpc_fit_out(api, size) &&
                    weir_v1_reply_encode(&part, api->out, size) == size &&
                    weir_h2_send(weir_h2_link_h2(link), stream->id, api->out,
                                 size, false) == 0;
        stream->reply_sent += chunk;
        weir_assert(stream->reply_sent <= stream->reply_len);
        if (sent && stream->reply_sent < stream->reply_len)
            continue;
        weir_grpc_finish(stream, sent ? WEIR_GRPC_OK : WEIR_GRPC_INTERNAL,
                         sent ? NULL : "the reply can't be sent");
        return;
    }
    weir_h2_link_flush(link);
}

static void on_call_answer(void *context,
                           const struct weir_admin_answer *answer)
{
    struct grpc_stream *stream = context;
    weir_assert(stream->asked && !stream->reply);
    stream->asked = false;
    if (!stream->connection) {
        weir_grpc_stream_free(stream);
        return;
    }
    stream->reply = malloc(answer->len + 1);
    if (!stream->reply) {
        weir_grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    memcpy(stream->reply, answer->body, answer->len);
    stream->reply_len = answer->len;
    stream->status = (uint32_t)answer->status;
    weir_grpc_send_reply(stream);
}

void weir_grpc_on_call_end(struct weir_grpc_api *api,
                           struct grpc_stream *stream)
{
    if (stream->asked)
        return;
    if (!stream->target) {
        weir_grpc_finish(stream, WEIR_GRPC_INVALID_ARGUMENT,
                         "a call without a request");
        return;
    }
    struct weir_admin_request request = {
        .method = weir_text_of(stream->method),
        .target = weir_text_of(stream->target),
        .body = { stream->body, stream->body_len },
        .who = weir_text_of(stream->identity.who),
    };
    stream->asked = true;
    weir_admin_call(api->admin, &request, on_call_answer, stream,
                    weir_clock_now());
}
