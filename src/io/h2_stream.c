/* SPDX-License-Identifier: MIT
 * io/h2_stream.c - the streams of a session: a list, and an array indexed by
 * id that finds recent ones without a search. */

#include <stdlib.h>

#include "io/h2_internal.h"

static struct stream **recent_of(struct weir_h2 *h2, int32_t id)
{
    return &h2->recent[(uint32_t)id / 2 % WEIR_H2_RECENT];
}

struct stream *weir_h2_find_stream(struct weir_h2 *h2, int32_t id)
{
    struct stream **recent = recent_of(h2, id);
    struct stream *stream = *recent;
    if (!stream || stream->id != id)
        stream = h2->streams;
    while (stream && stream->id != id)
        stream = stream->next;
    *recent = stream;
    return stream;
}

struct stream *weir_h2_new_stream(struct weir_h2 *h2, int32_t id)
{
    if (h2->stream_count >= WEIR_H2_STREAMS_MAX)
        return NULL;
    struct stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    *stream = (struct stream){
        .id = id, .grpc_status = -1, .next = h2->streams, .self = &h2->streams
    };
    if (stream->next)
        stream->next->self = &stream->next;
    h2->streams = stream;
    h2->stream_count++;
    return stream;
}

/* Volatile: otherwise the compiler drops writes that nothing reads. */
void weir_h2_wipe_authorization(struct stream *stream)
{
    volatile char *p = stream->authorization;
    while (p && *p)
        *p++ = '\0';
    free(stream->authorization);
    stream->authorization = NULL;
}

static void drop_buffers(struct weir_h2 *h2, struct stream *stream)
{
    weir_h2_wipe_authorization(stream);
    weir_assert(h2->queued >= weir_byte_queue_left(&stream->out) &&
                h2->partial >= stream->in.body.len);
    h2->queued -= weir_byte_queue_left(&stream->out);
    weir_byte_queue_fini(&stream->out);
    h2->partial -= stream->in.body.len;
    weir_grpc_reader_fini(&stream->in);
}

void weir_h2_unlink_stream(struct weir_h2 *h2, struct stream *stream)
{
    *stream->self = stream->next;
    if (stream->next)
        stream->next->self = stream->self;
    *recent_of(h2, stream->id) = NULL;
    weir_assert(h2->stream_count > 0);
    h2->stream_count--;
    drop_buffers(h2, stream);
}
