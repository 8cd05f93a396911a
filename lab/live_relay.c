/* SPDX-License-Identifier: MIT
 * lab/live_relay.c - the path from one limiter to one root of a live run.
 *
 *     limiter <--near-- relay --far--> root
 *
 * A limiter has one connection to a root at a time, so a relay has one pair of
 * streams; a new connection ends the one before. When either stream is lost,
 * the other is closed after writing its pending bytes.
 *
 * A way that is cut keeps the bytes that arrive on it, and forwards them when
 * it is mended: a limiter sees the same of a TCP connection through a network
 * that loses everything for a while. The relay doesn't parse the bytes. */

#include "lab/live_relay.h"
#include "lab/memory.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <stdlib.h>

enum side { NEAR, FAR };

/* One end, and the bytes received that it may not forward. */
struct end {
    struct weir_relay *relay;
    struct weir_stream *stream;
    struct evbuffer *held;
};

struct weir_relay {
    struct event_base *base; /* borrowed */
    struct weir_listener *listener;
    struct weir_address target;
    bool aimed;
    enum weir_way cut;
    bool refusing; /* cut both ways, and the time to notice is over */
    struct event *notice;
    struct end ends[2];
    uint64_t bytes;
};

static enum weir_way way_from(enum side side)
{
    return side == NEAR ? WEIR_WAY_UP : WEIR_WAY_DOWN;
}

static void close_ends(struct weir_relay *relay, bool flush)
{
    for (int side = NEAR; side <= FAR; side++) {
        struct end *end = &relay->ends[side];
        if (end->stream)
            weir_stream_close(&end->stream, flush);
        evbuffer_drain(end->held, evbuffer_get_length(end->held));
    }
}

void weir_relay_reset(struct weir_relay *relay)
{
    close_ends(relay, true);
}

static void pass_on(struct weir_relay *relay, enum side from, const void *bytes,
                    size_t len)
{
    weir_assert(relay->ends[!from].stream);
    relay->bytes += len;
    /* A peer that leaves so many bytes unread is lost. */
    if (weir_stream_write(relay->ends[!from].stream, bytes, len) < 0)
        weir_relay_reset(relay);
}

static void on_relay_bytes(void *context, struct weir_stream *stream,
                           const void *bytes, size_t len)
{
    (void)stream;
    struct end *end = context;
    struct weir_relay *relay = end->relay;
    enum side side = end == &relay->ends[NEAR] ? NEAR : FAR;
    if (relay->cut & way_from(side))
        evbuffer_add(end->held, bytes, len);
    else
        pass_on(relay, side, bytes, len);
}

static void on_relay_lost(void *context, struct weir_stream *stream,
                          const char *why)
{
    (void)stream;
    (void)why;
    const struct end *end = context;
    weir_relay_reset(end->relay);
}

static void set_end(struct weir_relay *relay, enum side side,
                    struct weir_stream *stream)
{
    weir_assert(!relay->ends[side].stream);
    struct weir_stream_handler handler = { .context = &relay->ends[side],
                                           .on_bytes = on_relay_bytes,
                                           .on_lost = on_relay_lost };
    relay->ends[side].stream = stream;
    weir_stream_set_handler(stream, &handler);
}

static void on_relay_accept(void *context, struct weir_stream *stream)
{
    struct weir_relay *relay = context;
    weir_relay_reset(relay);
    struct weir_stream *far = NULL;
    if (relay->aimed && !relay->refusing)
        far = weir_stream_connect(relay->base, &relay->target, NULL, 0,
                                  &(struct weir_stream_handler){ 0 });
    if (!far) {
        weir_stream_close(&stream, false);
        return;
    }
    set_end(relay, NEAR, stream);
    set_end(relay, FAR, far);
}

void weir_relay_aim(struct weir_relay *relay, const struct weir_address *target)
{
    relay->aimed = target;
    if (target)
        relay->target = *target;
}

static void refuse_connections(struct weir_relay *relay)
{
    relay->refusing = true;
    weir_relay_reset(relay);
}

static void on_notice(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    refuse_connections(context);
}

static void release_bytes(struct weir_relay *relay, enum side side)
{
    struct evbuffer *held = relay->ends[side].held;
    size_t len = evbuffer_get_length(held);
    if ((relay->cut & way_from(side)) || len == 0)
        return;
    pass_on(relay, side, evbuffer_pullup(held, -1), len);
    evbuffer_drain(held, evbuffer_get_length(held));
}

void weir_relay_cut(struct weir_relay *relay, enum weir_way ways,
                    weir_duration noticed)
{
    event_del(relay->notice);
    relay->cut = ways;
    relay->refusing = false;
    release_bytes(relay, NEAR);
    release_bytes(relay, FAR);
    if (ways != WEIR_WAY_BOTH)
        return;
    if (noticed == 0) {
        refuse_connections(relay);
        return;
    }
    struct timeval in = { .tv_sec = (time_t)(noticed / WEIR_SECOND),
                          .tv_usec = (long)(noticed % WEIR_SECOND / 1000) };
    event_add(relay->notice, &in);
}

uint16_t weir_relay_port(const struct weir_relay *relay)
{
    return weir_listener_port(relay->listener);
}

bool weir_relay_is_up(const struct weir_relay *relay)
{
    return relay->ends[NEAR].stream && relay->cut == 0;
}

uint64_t weir_relay_bytes(const struct weir_relay *relay)
{
    return relay->bytes;
}

int weir_relay_new(struct event_base *base, struct weir_relay **out,
                   struct weir_diag *diag)
{
    struct weir_relay *relay = calloc(1, sizeof *relay);
    if (!relay)
        weir_no_memory();
    relay->base = base;
    relay->notice = event_new(base, -1, 0, on_notice, relay);
    for (int side = NEAR; side <= FAR; side++)
        relay->ends[side] =
            (struct end){ .relay = relay, .held = evbuffer_new() };
    if (!relay->notice || !relay->ends[NEAR].held || !relay->ends[FAR].held)
        weir_no_memory();
    struct weir_listener_options options = {
        .address = { .host = "127.0.0.1" },
        .max = 64,
        .on_accept = on_relay_accept,
        .context = relay,
    };
    int error = weir_listener_new(base, &options, &relay->listener, diag);
    if (error < 0)
        weir_relay_free(&relay);
    else
        *out = relay;
    return error;
}

void weir_relay_free(struct weir_relay **relay)
{
    struct weir_relay *self = *relay;
    *relay = NULL;
    if (!self)
        return;
    close_ends(self, false);
    weir_listener_free(&self->listener);
    event_free(self->notice);
    evbuffer_free(self->ends[NEAR].held);
    evbuffer_free(self->ends[FAR].held);
    free(self);
}
