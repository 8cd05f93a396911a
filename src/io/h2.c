/* SPDX-License-Identifier: MIT
 * io/h2.c - gRPC calls over an nghttp2 session in memory.
 *
 * Theory of operation. nghttp2 speaks HTTP/2; this file adds one struct per
 * stream and the rules of gRPC:
 *
 *     server  HEADERS (POST /path, application/grpc, te: trailers)
 *             DATA*   [flag, length, message]*           END_STREAM
 *       answer HEADERS (200)  DATA*  HEADERS (grpc-status) END_STREAM
 *       refusal HEADERS (200, grpc-status)               END_STREAM
 *
 * Life of a stream: it begins with its headers, and the handler learns of it
 * when these are valid. For the handler it is 'over' at the first of: finish,
 * reset, trailers, a violation. It is freed when nghttp2 closes it. nghttp2
 * also closes streams while it writes, when no handler may be called: such a
 * stream waits in 'closed' for the next feed.
 *
 * Bounds. This file bounds streams, the bytes of one message and of all
 * unfinished ones, headers and output. nghttp2, by its options, bounds unsent
 * answers (to PING, SETTINGS) and streams that are reset as soon as they are
 * opened. At such a bound it sends GOAWAY with an error, and this file learns
 * from an outgoing GOAWAY with an error that the session has failed. To learn
 * it within the feed that caused it, the feed takes some output out of nghttp2.
 *
 * Work. A few bytes may mean much work: one byte of HPACK (RFC 7541) refers to
 * a header of 4 KB, nine bytes are a frame. Therefore work is counted as the
 * bytes are read: each byte is a unit, and each frame, each header and each
 * call has a price in units (test_h2 floods a session with each). A connection
 * with work over WEIR_H2_WORK_FACTOR times its bytes is ended with
 * ENHANCE_YOUR_CALM, and so is one with a header block over
 * WEIR_H2_HEADERS_MAX, before the rest of the block is decoded. A peer can then
 * cause work only by sending many bytes, which the owner of the socket rations.
 * The session announces that it ignores the priorities of RFC 7540, because
 * nghttp2 would keep a tree for them. A client that repeats its call sends some
 * 60 bytes for it, for HPACK's table has its headers. So that a faithful client
 * doesn't come near the bound, a call that its handler answers with OK costs
 * nothing but its frames and headers.
 *
 * Rejected: an empty HPACK table. The gRPC of 2016, which Doorman's clients in
 * Go are built with, acknowledges that setting and uses the table all the same;
 * its second call was an error of the connection.
 *
 * Two traps. Trailers: the data must end without END_STREAM, or nghttp2 never
 * sends the trailers. Early answers: one that ends before the peer's half is
 * followed by RST_STREAM(NO_ERROR), or the stream would count as open for ever.
 *
 * Rejected: nghttp2's own send callback (many small writes), and its
 * stream_user_data to find a stream (unknown until the headers have left). */

#include <stdlib.h>
#include <string.h>

#include "io/h2_internal.h"

#define STREAM_WINDOW (4 << 20)      /* bytes a peer may send ahead */
#define CONNECTION_WINDOW (16 << 20) /* likewise, all streams together */
#define ACKS_MAX 200                 /* unsent answers to PING, SETTINGS */
#define OUT_CHUNK (64u << 10)        /* bytes taken out of nghttp2 at once */
#define WORK_SLACK (256u << 10)      /* units of work before the factor binds */
#define WORK_OF_FRAME 64             /* units per frame of any type */
#define WORK_OF_HEADER 32            /* units per header, and its bytes */
#define WORK_OF_CALL 2048            /* units to make and end a stream */

/* ---- Streams ---- */

static void report_close(struct weir_h2 *h2, struct stream *stream, int status,
                         const char *text)
{
    bool tell = stream->began && !stream->over;
    stream->over = true;
    if (tell && h2->handler.on_close)
        h2->handler.on_close(h2->handler.context, h2, stream->id, status, text);
}

/* Reports the streams that nghttp2 closed while it was writing. */
static void report_closed(struct weir_h2 *h2)
{
    while (h2->closed) {
        struct stream *stream = h2->closed;
        h2->closed = stream->next;
        report_close(h2, stream, stream->grpc_status, stream->text);
        free(stream);
    }
}

static void set_status_text(struct stream *stream, const char *text)
{
    stream->text[0] = '\0';
    strncat(stream->text, text, sizeof(stream->text) - 1);
}

/* ---- Sending headers ---- */

static nghttp2_nv pair(const char *name, const char *value, size_t len)
{
    return (nghttp2_nv){
        .name = (uint8_t *)name,
        .value = (uint8_t *)value,
        .namelen = strlen(name),
        .valuelen = len,
    };
}

#define PAIR(name, value) pair((name), (value), sizeof(value) - 1)

/* `grpc-status` and, if there is one, `grpc-message`. */
struct trailers {
    char status[3];
    char text[WEIR_H2_TEXT_MAX];
    nghttp2_nv pairs[2];
    size_t count;
};

static void make_trailers(const struct stream *stream, struct trailers *out)
{
    int status = stream->grpc_status;
    size_t len = 0;
    if (status >= 10)
        out->status[len++] = (char)('0' + status / 10);
    out->status[len++] = (char)('0' + status % 10);
    out->pairs[0] = pair("grpc-status", out->status, len);
    out->count = 1;
    len = weir_grpc_escape(stream->text, out->text, sizeof(out->text));
    if (len > 0)
        out->pairs[out->count++] = pair("grpc-message", out->text, len);
}

/* Hands out the bytes queued for a stream; at their end, the trailers. */
static ssize_t read_out(nghttp2_session *session, int32_t id, uint8_t *buf,
                        size_t length, uint32_t *flags,
                        nghttp2_data_source *source, void *context)
{
    struct weir_h2 *h2 = context;
    struct stream *stream = source->ptr;
    size_t len = weir_byte_queue_left(&stream->out);
    if (len > length)
        len = length;
    if (len > 0) {
        memcpy(buf, stream->out.p + stream->out.head, len);
        weir_byte_queue_take(&stream->out, len);
        weir_assert(h2->queued >= len);
        h2->queued -= len;
    }
    if (weir_byte_queue_left(&stream->out) > 0)
        return (ssize_t)len;
    if (!stream->ending)
        return len > 0 ? (ssize_t)len : NGHTTP2_ERR_DEFERRED;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!h2->server)
        return (ssize_t)len;
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    struct trailers trailers;
    make_trailers(stream, &trailers);
    if (nghttp2_submit_trailer(session, id, trailers.pairs, trailers.count))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    return (ssize_t)len;
}

/* Sends the response's headers; the data follow. */
static int submit_answer(struct weir_h2 *h2, struct stream *stream)
{
    weir_assert(h2->server && !stream->answered);
    if (h2->failed < 0)
        return h2->failed;
    nghttp2_nv pairs[] = {
        PAIR(":status", "200"),
        PAIR("content-type", "application/grpc"),
    };
    nghttp2_data_provider provider = {
        .source.ptr = stream,
        .read_callback = read_out,
    };
    if (nghttp2_submit_response(h2->session, stream->id, pairs,
                                WEIR_COUNT_OF(pairs), &provider))
        return WEIR_ENOMEM;
    stream->answered = true;
    return 0;
}

static void abandon(struct weir_h2 *h2, struct stream *stream,
                    uint32_t error_code)
{
    weir_assert(h2->queued >= weir_byte_queue_left(&stream->out));
    /* The reader stays: the handler may be using its message. */
    h2->queued -= weir_byte_queue_left(&stream->out);
    weir_byte_queue_fini(&stream->out);
    /* This call fails only for want of memory, and then the session has
     * failed. */
    if (h2->failed == 0)
        (void)nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE,
                                        stream->id, error_code);
}

/* Ends our half of a server's stream. */
static void end_answer(struct weir_h2 *h2, struct stream *stream, int status,
                       const char *text)
{
    stream->grpc_status = status;
    set_status_text(stream, text ? text : "");
    stream->ending = true;
    if (h2->failed < 0)
        return;
    if (stream->answered) {
        (void)nghttp2_session_resume_data(h2->session, stream->id);
        return;
    }
    struct trailers trailers;
    make_trailers(stream, &trailers);
    nghttp2_nv pairs[5] = {
        PAIR(":status", "200"),
        PAIR("content-type", "application/grpc"),
        PAIR("grpc-accept-encoding", "identity"),
    };
    memcpy(pairs + 3, trailers.pairs, trailers.count * sizeof(pairs[0]));
    if (nghttp2_submit_response(h2->session, stream->id, pairs,
                                3 + trailers.count, NULL))
        abandon(h2, stream, NGHTTP2_INTERNAL_ERROR);
}

/* The peer broke gRPC's rules: the call ends for both sides. */
static void fail_call(struct weir_h2 *h2, struct stream *stream, int status,
                      const char *text)
{
    if (stream->over)
        return;
    weir_assert(h2->partial >= stream->in.body.len);
    h2->partial -= stream->in.body.len;
    weir_grpc_reader_fini(&stream->in);
    if (h2->server) {
        bool told = stream->began;
        end_answer(h2, stream, status, text);
        stream->over = !told;
    } else {
        abandon(h2, stream, NGHTTP2_CANCEL);
    }
    report_close(h2, stream, status, text);
}

/* A response to a client that doesn't speak gRPC. */
static void refuse_http(struct weir_h2 *h2, struct stream *stream,
                        const char *status)
{
    nghttp2_nv pairs[] = { pair(":status", status, 3) };
    stream->over = true;
    stream->ending = true;
    if (h2->failed == 0 &&
        nghttp2_submit_response(h2->session, stream->id, pairs, 1, NULL))
        abandon(h2, stream, NGHTTP2_INTERNAL_ERROR);
}

/* ---- Work ---- */

/* From now on none of the peer's bytes is read. nghttp2 sends GOAWAY at its
 * next write, and then the session has failed. */
static void end_for(struct weir_h2 *h2, const char *breach)
{
    if (h2->breach)
        return;
    h2->breach = breach;
    if (h2->failed == 0)
        (void)nghttp2_session_terminate_session(h2->session,
                                                NGHTTP2_ENHANCE_YOUR_CALM);
}

static void add_work(struct weir_h2 *h2, size_t units)
{
    h2->work += units;
    if (h2->work > WEIR_H2_WORK_FACTOR * h2->fed + WORK_SLACK)
        end_for(h2, "the peer causes too much work with few bytes");
}

/* Called for every frame, also of an unknown type, and for each
 * CONTINUATION. */
static int on_begin_frame(nghttp2_session *session,
                          const nghttp2_frame_hd *head, void *context)
{
    (void)session;
    (void)head;
    add_work(context, WORK_OF_FRAME);
    return 0;
}

/* ---- Receiving headers ---- */

static bool is_text(const uint8_t *p, size_t len, const char *wanted)
{
    return len == strlen(wanted) && memcmp(p, wanted, len) == 0;
}

static void keep_path(struct stream *stream, const uint8_t *value, size_t len)
{
    stream->path_too_long = len > WEIR_H2_PATH_MAX;
    if (stream->path_too_long)
        return;
    memcpy(stream->path, value, len);
    stream->path[len] = '\0';
}

static void keep_authorization(struct stream *stream, const uint8_t *value,
                               size_t len)
{
    char *copy = !stream->authorization && len <= WEIR_H2_AUTHORIZATION_MAX
                     ? malloc(len + 1)
                     : NULL;
    stream->bad_authorization |= !copy;
    if (!copy)
        return;
    memcpy(copy, value, len);
    copy[len] = '\0';
    stream->authorization = copy;
}

static void keep_request(struct stream *stream, const uint8_t *name,
                         size_t name_len, const uint8_t *value, size_t len)
{
    if (is_text(name, name_len, ":path"))
        keep_path(stream, value, len);
    else if (is_text(name, name_len, ":method"))
        stream->is_post = is_text(value, len, "POST");
    else if (is_text(name, name_len, "te"))
        stream->has_te = is_text(value, len, "trailers");
    else if (is_text(name, name_len, "authorization"))
        keep_authorization(stream, value, len);
}

static void keep_response(struct stream *stream, const uint8_t *name,
                          size_t name_len, const uint8_t *value, size_t len)
{
    struct weir_text text = { (const char *)value, len };
    if (is_text(name, name_len, ":status"))
        stream->http_status = weir_grpc_number(text);
    else if (is_text(name, name_len, "grpc-status"))
        stream->grpc_status = weir_grpc_number(text);
    else if (is_text(name, name_len, "grpc-message"))
        weir_grpc_unescape(text, stream->text, sizeof(stream->text));
}

static int on_begin_headers(nghttp2_session *session,
                            const nghttp2_frame *frame, void *context)
{
    (void)session;
    struct weir_h2 *h2 = context;
    h2->block = 0;
    if (!h2->server || frame->hd.type != NGHTTP2_HEADERS ||
        frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    add_work(h2, WORK_OF_CALL);
    return weir_h2_new_stream(h2, frame->hd.stream_id)
               ? 0
               : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
                     const uint8_t *name, size_t name_len, const uint8_t *value,
                     size_t len, uint8_t flags, void *context)
{
    (void)session;
    (void)flags;
    struct weir_h2 *h2 = context;
    size_t size = name_len + len + WORK_OF_HEADER;
    h2->block += size;
    add_work(h2, size);
    if (h2->block > WEIR_H2_HEADERS_MAX)
        end_for(h2, "the peer's headers are over 8192 bytes");
    /* The rest of the header block isn't decoded. */
    if (h2->breach)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    struct stream *stream = weir_h2_find_stream(h2, frame->hd.stream_id);
    if (!stream || stream->over)
        return 0;
    if (is_text(name, name_len, "content-type"))
        stream->is_grpc =
            weir_grpc_is_type((struct weir_text){ (const char *)value, len });
    else if (is_text(name, name_len, "grpc-encoding"))
        stream->encoded = !is_text(value, len, "identity");
    else if (h2->server)
        keep_request(stream, name, name_len, value, len);
    else
        keep_response(stream, name, name_len, value, len);
    return 0;
}

/* ---- A call at the server ---- */

static void begin_server_call(struct weir_h2 *h2, struct stream *stream)
{
    weir_assert(h2->server && !stream->began);
    if (!stream->is_post)
        refuse_http(h2, stream, "405");
    else if (!stream->is_grpc)
        refuse_http(h2, stream, "415");
    else if (!stream->has_te)
        fail_call(h2, stream, WEIR_GRPC_INTERNAL,
                  "te: trailers is missing; a proxy may have taken it");
    else if (stream->encoded)
        fail_call(h2, stream, WEIR_GRPC_UNIMPLEMENTED,
                  "send without compression: only identity is read here");
    else if (stream->path_too_long || stream->path[0] != '/')
        fail_call(h2, stream, WEIR_GRPC_UNIMPLEMENTED, "no such method");
    else if (stream->bad_authorization)
        fail_call(h2, stream, WEIR_GRPC_UNAUTHENTICATED,
                  "authorization: send one, of at most 640 bytes");
    if (stream->over)
        return;
    /* No other callback comes for this stream before on_call has returned. */
    stream->began = true;
    bool taken =
        h2->handler.on_call &&
        h2->handler.on_call(h2->handler.context, h2, stream->id, stream->path,
                            stream->authorization ? stream->authorization : "");
    weir_h2_wipe_authorization(stream);
    if (taken)
        return;
    if (stream->over)
        return;
    stream->began = false;
    fail_call(h2, stream, WEIR_GRPC_UNIMPLEMENTED, "no such method");
}

static void end_request(struct weir_h2 *h2, struct stream *stream)
{
    if (stream->over)
        return;
    if (weir_grpc_is_partial(&stream->in))
        fail_call(h2, stream, WEIR_GRPC_INTERNAL,
                  "the stream ended within a message");
    else if (h2->handler.on_end)
        h2->handler.on_end(h2->handler.context, h2, stream->id);
}

/* ---- A call at the client ---- */

static void check_response(struct weir_h2 *h2, struct stream *stream)
{
    if (stream->http_status >= 100 && stream->http_status < 200)
        return;
    if (stream->grpc_status < 0 && stream->http_status != 200)
        fail_call(h2, stream, weir_grpc_status_of_http(stream->http_status),
                  "the peer answered with an HTTP error");
    else if (!stream->is_grpc)
        fail_call(h2, stream, WEIR_GRPC_UNKNOWN,
                  "the peer doesn't speak gRPC: another port?");
    else if (stream->encoded)
        fail_call(h2, stream, WEIR_GRPC_INTERNAL,
                  "the peer compresses, but only identity was offered");
}

static void end_response(struct weir_h2 *h2, struct stream *stream)
{
    if (stream->over)
        return;
    if (stream->grpc_status < 0)
        report_close(h2, stream, WEIR_GRPC_UNKNOWN,
                     "the answer ended without a grpc-status");
    else if (weir_grpc_is_partial(&stream->in))
        report_close(h2, stream, WEIR_GRPC_INTERNAL,
                     "the answer ended within a message");
    else
        report_close(h2, stream, stream->grpc_status, stream->text);
    /* The peer has ended the call, so it doesn't read the rest of our half. */
    if (nghttp2_session_get_stream_local_close(h2->session, stream->id) == 0)
        abandon(h2, stream, NGHTTP2_CANCEL);
}

/* ---- Frames ---- */

static void on_headers_whole(struct weir_h2 *h2, const nghttp2_frame *frame)
{
    struct stream *stream = weir_h2_find_stream(h2, frame->hd.stream_id);
    if (!stream || stream->over)
        return;
    if (!h2->server)
        check_response(h2, stream);
    else if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        begin_server_call(h2, stream);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame,
                         void *context)
{
    (void)session;
    struct weir_h2 *h2 = context;
    if (frame->hd.type == NGHTTP2_PING)
        h2->pong |= (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        h2->goaway = true;
    if (frame->hd.type == NGHTTP2_HEADERS)
        on_headers_whole(h2, frame);
    bool has_end =
        frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (!has_end || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    struct stream *stream = weir_h2_find_stream(h2, frame->hd.stream_id);
    if (stream && h2->server)
        end_request(h2, stream);
    else if (stream)
        end_response(h2, stream);
    return 0;
}

/* A message of this call has no room. */
static void fail_big(struct weir_h2 *h2, struct stream *stream,
                     const char *text)
{
    const struct weir_h2_handler *to = &h2->handler;
    if (!to->on_too_big || !to->on_too_big(to->context, h2, stream->id))
        fail_call(h2, stream, WEIR_GRPC_RESOURCE_EXHAUSTED, text);
}

static void fail_read(struct weir_h2 *h2, struct stream *stream,
                      enum weir_grpc_read state)
{
    switch (state) {
    case WEIR_GRPC_COMPRESSED:
        fail_call(h2, stream, WEIR_GRPC_INTERNAL,
                  "a compressed message without grpc-encoding");
        return;
    case WEIR_GRPC_BROKEN:
        fail_call(h2, stream, WEIR_GRPC_INTERNAL, "this is no gRPC message");
        return;
    case WEIR_GRPC_TOO_BIG:
        fail_big(h2, stream, "the message is over 4 MiB");
        return;
    case WEIR_GRPC_NO_MEMORY:
        fail_call(h2, stream, WEIR_GRPC_RESOURCE_EXHAUSTED,
                  "no memory for the message");
        return;
    case WEIR_GRPC_MORE:
    case WEIR_GRPC_MESSAGE:
        return;
    }
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id,
                   const uint8_t *bytes, size_t len, void *context)
{
    (void)session;
    (void)flags;
    struct weir_h2 *h2 = context;
    struct stream *stream = weir_h2_find_stream(h2, id);
    struct weir_text left = { (const char *)bytes, len };
    while (stream && !stream->over) {
        struct weir_text message;
        size_t before = stream->in.body.len;
        weir_assert(h2->partial >= before);
        enum weir_grpc_read state =
            weir_grpc_read(&stream->in, &left, WEIR_H2_MESSAGE_MAX, &message);
        h2->partial += stream->in.body.len - before;
        if (h2->partial > h2->in_max) {
            fail_big(h2, stream,
                     "too many unfinished messages on this connection");
            return 0;
        }
        if (state != WEIR_GRPC_MESSAGE) {
            fail_read(h2, stream, state);
            return 0;
        }
        if (h2->handler.on_message)
            h2->handler.on_message(h2->handler.context, h2, id, message.p,
                                   message.len);
    }
    return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame,
                         void *context)
{
    struct weir_h2 *h2 = context;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        h2->goaway = true;
        if (frame->goaway.error_code != NGHTTP2_NO_ERROR && h2->failed == 0)
            h2->failed = WEIR_EPROTOCOL;
    }
    int32_t id = frame->hd.stream_id;
    if (h2->server && frame->hd.type == NGHTTP2_HEADERS &&
        frame->hd.flags & NGHTTP2_FLAG_END_STREAM && h2->failed == 0 &&
        nghttp2_session_get_stream_remote_close(session, id) == 0)
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id,
                                        NGHTTP2_NO_ERROR);
    return 0;
}

static int status_of_reset(uint32_t error_code)
{
    switch (error_code) {
    case NGHTTP2_REFUSED_STREAM:
        return WEIR_GRPC_UNAVAILABLE;
    case NGHTTP2_CANCEL:
        return WEIR_GRPC_CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM:
        return WEIR_GRPC_RESOURCE_EXHAUSTED;
    case NGHTTP2_INADEQUATE_SECURITY:
        return WEIR_GRPC_PERMISSION_DENIED;
    default:
        return WEIR_GRPC_INTERNAL;
    }
}

/* nghttp2 has closed a stream. */
static void stream_gone(struct weir_h2 *h2, struct stream *stream, int status,
                        const char *text)
{
    weir_h2_unlink_stream(h2, stream);
    if (h2->feeding || stream->over || !stream->began) {
        report_close(h2, stream, status, text);
        free(stream);
        return;
    }
    stream->grpc_status = status;
    set_status_text(stream, text);
    stream->next = h2->closed;
    h2->closed = stream;
}

static int on_stream_close(nghttp2_session *session, int32_t id,
                           uint32_t error_code, void *context)
{
    (void)session;
    struct weir_h2 *h2 = context;
    struct stream *stream = weir_h2_find_stream(h2, id);
    if (stream)
        stream_gone(h2, stream, status_of_reset(error_code),
                    "the stream was reset");
    return 0;
}

/* The headers of a call could not be sent: the session is ending. */
static int on_frame_not_send(nghttp2_session *session,
                             const nghttp2_frame *frame, int error,
                             void *context)
{
    (void)session;
    (void)error;
    struct weir_h2 *h2 = context;
    if (h2->server || frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    struct stream *stream = weir_h2_find_stream(h2, frame->hd.stream_id);
    if (stream)
        stream_gone(h2, stream, WEIR_GRPC_UNAVAILABLE,
                    "the connection takes no new calls");
    return 0;
}

/* ---- The session ---- */

static int make_callbacks(nghttp2_session_callbacks **out)
{
    nghttp2_session_callbacks *callbacks;
    if (nghttp2_session_callbacks_new(&callbacks))
        return WEIR_ENOMEM;
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks,
                                                          on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks,
                                                            on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks,
                                                         on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks,
                                                              on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks,
                                                         on_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks,
                                                             on_frame_not_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks,
                                                           on_stream_close);
    *out = callbacks;
    return 0;
}

static int make_session(struct weir_h2 *h2)
{
    nghttp2_session_callbacks *callbacks;
    if (make_callbacks(&callbacks) < 0)
        return WEIR_ENOMEM;
    nghttp2_option *option;
    if (nghttp2_option_new(&option)) {
        nghttp2_session_callbacks_del(callbacks);
        return WEIR_ENOMEM;
    }
    nghttp2_option_set_max_outbound_ack(option, ACKS_MAX);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_peer_max_concurrent_streams(option, WEIR_H2_STREAMS_MAX);
    nghttp2_mem memory = weir_h2_memory(h2);
    int error = h2->server
                    ? nghttp2_session_server_new3(&h2->session, callbacks, h2,
                                                  option, &memory)
                    : nghttp2_session_client_new3(&h2->session, callbacks, h2,
                                                  option, &memory);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return error ? WEIR_ENOMEM : 0;
}

static int submit_settings(struct weir_h2 *h2)
{
    nghttp2_settings_entry entries[5] = {
        { NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1 },
        { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, WEIR_H2_STREAMS_MAX },
        { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW },
        { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, WEIR_H2_HEADERS_MAX },
        { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
    };
    size_t count = h2->server ? 4 : 5;
    if (nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, entries,
                                count) ||
        nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE, 0,
                                              CONNECTION_WINDOW))
        return WEIR_ENOMEM;
    return 0;
}

struct weir_h2 *weir_h2_new(bool server, const struct weir_h2_handler *handler)
{
    struct weir_h2 *h2 = calloc(1, sizeof(*h2));
    if (!h2)
        return NULL;
    h2->server = server;
    h2->in_max = server ? WEIR_H2_OPEN_IN_MAX : WEIR_H2_IN_MAX;
    h2->handler = *handler;
    h2->pong = true;
    if (make_session(h2) < 0 || submit_settings(h2) < 0)
        weir_h2_free(&h2);
    return h2;
}

void weir_h2_free(struct weir_h2 **h2)
{
    struct weir_h2 *self = *h2;
    if (!self)
        return;
    *h2 = NULL;
    weir_h2_free_memory(self);
    while (self->streams) {
        struct stream *stream = self->streams;
        weir_h2_unlink_stream(self, stream);
        free(stream);
    }
    while (self->closed) {
        struct stream *stream = self->closed;
        self->closed = stream->next;
        free(stream);
    }
    weir_byte_queue_fini(&self->out);
    free(self);
}

/* Takes frames out of nghttp2, up to about OUT_CHUNK bytes. */
static void fill_out(struct weir_h2 *h2)
{
    while (h2->failed == 0 && weir_byte_queue_left(&h2->out) < OUT_CHUNK) {
        const uint8_t *bytes;
        ssize_t len = nghttp2_session_mem_send(h2->session, &bytes);
        if (len == 0)
            return;
        if (len < 0 || !weir_byte_queue_reserve(&h2->out, (size_t)len)) {
            h2->failed = WEIR_ENOMEM;
            return;
        }
        weir_byte_queue_append(&h2->out, bytes, (size_t)len);
    }
}

int weir_h2_feed(struct weir_h2 *h2, const void *bytes, size_t len)
{
    weir_assert(!h2->feeding);
    h2->feeding = true;
    report_closed(h2);
    if (h2->failed == 0 && len > 0) {
        h2->fed += len;
        add_work(h2, len);
        ssize_t used = nghttp2_session_mem_recv(h2->session, bytes, len);
        if (used < 0 && h2->failed == 0)
            h2->failed =
                used == NGHTTP2_ERR_NOMEM ? WEIR_ENOMEM : WEIR_EPROTOCOL;
    }
    fill_out(h2);
    report_closed(h2);
    h2->feeding = false;
    return h2->failed;
}

void weir_h2_end(struct weir_h2 *h2, const char *why)
{
    weir_assert(!h2->feeding);
    h2->feeding = true;
    if (h2->failed == 0)
        h2->failed = WEIR_ECLOSED;
    report_closed(h2);
    /* A handler may end other calls, but can't begin one: the session has
     * failed. */
    for (struct stream *stream = h2->streams; stream;) {
        bool tell = stream->began && !stream->over;
        if (!tell) {
            stream = stream->next;
            continue;
        }
        report_close(h2, stream, WEIR_GRPC_UNAVAILABLE, why);
        stream = h2->streams;
    }
    h2->feeding = false;
}

size_t weir_h2_output(struct weir_h2 *h2, const void **out_bytes)
{
    weir_byte_queue_take(&h2->out, 0);
    if (weir_byte_queue_left(&h2->out) == 0)
        fill_out(h2);
    size_t len = weir_byte_queue_left(&h2->out);
    if (len == 0)
        return 0;
    *out_bytes = h2->out.p + h2->out.head;
    /* The bytes handed out stay in place until the next call. */
    h2->out.head = 0;
    h2->out.len = 0;
    return len;
}

/* ---- Calls by the owner ---- */

/* Whether HTTP allows these texts in a call's headers. */
static bool is_callable(const char *path, const char *authorization)
{
    size_t len = authorization ? strlen(authorization) : 0;
    return path[0] == '/' && strlen(path) <= WEIR_H2_PATH_MAX &&
           len <= WEIR_H2_AUTHORIZATION_MAX &&
           (len == 0 ||
            nghttp2_check_header_value((const uint8_t *)authorization, len));
}

int32_t weir_h2_call(struct weir_h2 *h2, const char *path,
                     const char *authority, const char *authorization)
{
    if (h2->server || !is_callable(path, authorization))
        return WEIR_EINVAL;
    if (h2->failed != 0 || h2->goaway ||
        !nghttp2_session_check_request_allowed(h2->session))
        return WEIR_ECLOSED;
    if (h2->stream_count >= WEIR_H2_STREAMS_MAX)
        return WEIR_EFULL;
    struct stream *stream = weir_h2_new_stream(h2, 0);
    if (!stream)
        return WEIR_ENOMEM;
    nghttp2_nv pairs[] = {
        PAIR(":method", "POST"),
        PAIR(":scheme", "http"),
        pair(":path", path, strlen(path)),
        pair(":authority", authority, strlen(authority)),
        PAIR("te", "trailers"),
        PAIR("content-type", "application/grpc"),
        PAIR("user-agent", "weir"),
        { .name = NULL }, /* authorization, if any */
    };
    size_t count = WEIR_COUNT_OF(pairs) - 1;
    if (authorization) {
        pairs[count] =
            pair("authorization", authorization, strlen(authorization));
        pairs[count++].flags |= NGHTTP2_NV_FLAG_NO_INDEX;
    }
    nghttp2_data_provider provider = {
        .source.ptr = stream,
        .read_callback = read_out,
    };
    int32_t id = nghttp2_submit_request(h2->session, NULL, pairs, count,
                                        &provider, NULL);
    if (id < 0) {
        weir_h2_unlink_stream(h2, stream);
        free(stream);
        return WEIR_ENOMEM;
    }
    stream->id = id;
    stream->began = true;
    return id;
}

int weir_h2_send(struct weir_h2 *h2, int32_t id, const void *bytes, size_t len,
                 bool last)
{
    struct stream *stream = weir_h2_find_stream(h2, id);
    if (!stream || stream->over || stream->ending)
        return WEIR_ENOENT;
    if (len > WEIR_H2_MESSAGE_MAX)
        return WEIR_ETOOBIG;
    size_t total = WEIR_GRPC_HEAD + len;
    if (weir_h2_queued(h2) + total > WEIR_H2_OUT_MAX)
        return WEIR_EFULL;
    if (!weir_byte_queue_reserve(&stream->out, total))
        return WEIR_ENOMEM;
    if (h2->server && !stream->answered) {
        int error = submit_answer(h2, stream);
        if (error < 0)
            return error;
    }
    uint8_t head[WEIR_GRPC_HEAD];
    weir_grpc_head(head, len);
    weir_byte_queue_append(&stream->out, head, sizeof(head));
    weir_byte_queue_append(&stream->out, bytes, len);
    h2->queued += total;
    stream->ending = last && !h2->server;
    /* This fails if the stream isn't deferred; then its data are read
     * anyway. */
    if (h2->failed == 0)
        (void)nghttp2_session_resume_data(h2->session, id);
    return 0;
}

int weir_h2_finish(struct weir_h2 *h2, int32_t id, int grpc_status,
                   const char *message)
{
    struct stream *stream = weir_h2_find_stream(h2, id);
    if (!h2->server || !stream || stream->over)
        return WEIR_ENOENT;
    if (grpc_status < 0 || grpc_status > 16)
        return WEIR_EINVAL;
    if (grpc_status == 0) {
        weir_assert(h2->work >= WORK_OF_CALL);
        h2->work -= WORK_OF_CALL;
    }
    stream->over = true;
    end_answer(h2, stream, grpc_status, message);
    return 0;
}

void weir_h2_reset(struct weir_h2 *h2, int32_t id)
{
    struct stream *stream = weir_h2_find_stream(h2, id);
    if (!stream || stream->over)
        return;
    stream->over = true;
    abandon(h2, stream, NGHTTP2_CANCEL);
}

void weir_h2_shutdown(struct weir_h2 *h2)
{
    if (h2->failed != 0 || h2->goaway)
        return;
    int32_t last = nghttp2_session_get_last_proc_stream_id(h2->session);
    (void)nghttp2_submit_goaway(h2->session, NGHTTP2_FLAG_NONE,
                                h2->server ? last : 0, NGHTTP2_NO_ERROR, NULL,
                                0);
    h2->goaway = true;
}

size_t weir_h2_queued(const struct weir_h2 *h2)
{
    return h2->queued + weir_byte_queue_left(&h2->out);
}

bool weir_h2_is_over(const struct weir_h2 *h2)
{
    return h2->failed != 0 || (h2->goaway && weir_h2_idle(h2));
}

const char *weir_h2_breach(const struct weir_h2 *h2)
{
    return h2->breach;
}

uint64_t weir_h2_work(const struct weir_h2 *h2)
{
    return h2->work;
}

void weir_h2_set_authenticated(struct weir_h2 *h2)
{
    h2->in_max = WEIR_H2_IN_MAX;
}

bool weir_h2_idle(const struct weir_h2 *h2)
{
    if (h2->failed != 0)
        return true;
    return h2->stream_count == 0 && !h2->closed &&
           weir_byte_queue_left(&h2->out) == 0 &&
           !nghttp2_session_want_write(h2->session);
}

void weir_h2_ping(struct weir_h2 *h2)
{
    if (h2->failed != 0)
        return;
    h2->pong = false;
    (void)nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, NULL);
}

bool weir_h2_pong(const struct weir_h2 *h2)
{
    return h2->pong;
}
