/* SPDX-License-Identifier: MIT
 * server/grpc/grpc_link.c - the stream of a limiter: a peer of the root, by a
 * number that is free.
 *
 * While a peer's socket is full, the peer is paused: the root sends it answers
 * only, until the socket has drained. */

#include "io/clock.h"
#include "server/grpc/grpc_internal.h"

/* A message that the peer's link can't take is lost, and the link with it: the
 * limiter connects again and is sent the rest. */
void weir_grpc_send_message(void *context, uint32_t peer,
                            const struct weir_message *message)
{
    struct weir_grpc_api *api = context;
    struct grpc_stream *stream = api->peers[peer];
    if (!stream)
        return;
    struct weir_h2_link *link = stream->connection->link;
    struct weir_h2 *h2 = weir_h2_link_h2(link);
    size_t size = weir_v1_size(message);
    bool sent = weir_grpc_fit_out(api, size) &&
                weir_v1_encode(message, api->out, size) == size &&
                weir_h2_send(h2, stream->id, api->out, size, false) == 0;
    if (!sent) {
        weir_log_limited(api->log, WEIR_LOG_LINK, WEIR_LOG_WARNING,
                         "link of %s dropped: it reads its messages too slowly",
                         weir_h2_link_peer(link));
        weir_grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED,
                         "the link is too slow");
        return;
    }
    weir_h2_link_flush(link);
    if (!stream->paused && weir_h2_link_is_full(link)) {
        stream->paused = true;
        weir_root_pause(api->root, stream->peer, true);
    }
}

void weir_grpc_begin_link(struct weir_grpc_api *api, struct grpc_stream *stream)
{
    struct weir_h2_link *link = stream->connection->link;
    if (api->free_count == 0) {
        weir_log_limited(api->log, WEIR_LOG_LINK, WEIR_LOG_WARNING,
                         "limiter at %s refused: there are %d already",
                         weir_h2_link_peer(link), WEIR_PEERS_MAX);
        weir_grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED,
                         "the root has as many limiters as it can have");
        return;
    }
    stream->peer = api->free_peers[--api->free_count];
    weir_assert(!stream->linked && !api->peers[stream->peer]);
    stream->linked = true;
    api->peers[stream->peer] = stream;
    const struct weir_root_names names = weir_grpc_names(stream);
    weir_root_link(api->root, stream->peer, true, weir_clock_now());
    weir_root_limit_names(api->root, stream->peer, &names);
    weir_root_loop_kick(api->loop);
    weir_log_limited(api->log, WEIR_LOG_CONNECTION, WEIR_LOG_DEBUG,
                     "limiter at %s: link up", weir_h2_link_peer(link));
}

/* A region's root reports for many limiters: that needs a role of its own. */
static int admit_hello(struct grpc_stream *stream,
                       const struct weir_message *message)
{
    if (message->type != WEIR_MESSAGE_HELLO || !message->hello.region)
        return 0;
    struct weir_diag why = { 0 };
    stream->role = WEIR_ROLE_ROOT;
    int error = weir_grpc_admit(stream->connection, &stream->identity,
                                stream->role, &why);
    if (error < 0)
        weir_grpc_finish(stream, weir_grpc_status(error), why.text);
    return error;
}

void weir_grpc_on_link_message(struct weir_grpc_api *api,
                               struct grpc_stream *stream, const void *bytes,
                               size_t len)
{
    weir_assert(stream->linked);
    struct weir_message message;
    api->arena.used = 0;
    int error = weir_v1_decode(bytes, len, true, &api->arena, &message);
    if (error == 0 && admit_hello(stream, &message) < 0)
        return;
    if (error == 0)
        error = weir_root_receive(api->root, stream->peer, &message,
                                  weir_clock_now());
    weir_root_loop_kick(api->loop);
    if (error == 0)
        return;
    const char *peer = weir_h2_link_peer(stream->connection->link);
    weir_log_limited(api->log, WEIR_LOG_LINK, WEIR_LOG_WARNING,
                     "link of %s dropped: %s", peer, weir_strerror(error));
    weir_grpc_finish(stream, WEIR_GRPC_INVALID_ARGUMENT, weir_strerror(error));
}
