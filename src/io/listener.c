/* SPDX-License-Identifier: MIT
 * io/listener.c - sockets that accept streams.
 *
 * Theory of operation. An acceptor (io/accept.h) takes connections; a ration
 * (io/ration.h) bounds the cost of unauthenticated ones. At 'max' streams an
 * unauthenticated one is evicted, and the acceptor pauses until a stream ends.
 * A listener may be freed before its streams: they use it and its ration, so
 * its memory is freed with the last of them.
 *
 * With TLS a stream has no owner until its handshake is done. These streams are
 * in a list, oldest first, so that they can be ended when the TLS files are
 * reloaded. */

#include <stdlib.h>
#include <unistd.h>

#include "io/accept.h"
#include "io/stream_internal.h"

static bool evict_stream(void *context)
{
    struct weir_listener *listener = context;
    return weir_ration_evict(listener->ration,
                             "no descriptor is left, and this connection was "
                             "the oldest without a credential of the "
                             "address with most of them");
}

static void on_listener_socket(void *context, int fd,
                               const struct sockaddr *peer)
{
    struct weir_listener *listener = context;
    weir_assert(listener->acceptor);
    listener->live++;
    if (listener->live >= listener->options.max) {
        (void)weir_ration_evict(listener->ration, "too many peers are "
                                                  "connected");
        weir_acceptor_set_open(listener->acceptor, false);
    }
    struct weir_tls *tls = listener->options.tls;
    struct weir_stream *stream =
        weir_stream_accepted(listener->base, fd, peer, tls, listener);
    if (!stream)
        weir_listener_release(listener);
    else if (!tls)
        weir_listener_open(listener, stream);
}

/* On success the listener owns 'fd'. */
static int start_listener(struct weir_listener *listener, int fd)
{
    const struct weir_listener_options *options = &listener->options;
    const struct weir_ration_options ration = {
        .base = listener->base,
        .places = options->places ? options->places : (options->max + 1) / 2,
    };
    const struct weir_acceptor_options acceptor = {
        .base = listener->base,
        .fd = fd,
        .on_socket = on_listener_socket,
        .make_room = evict_stream,
        .on_short = options->on_short,
        .context = listener,
    };
    listener->ration = weir_ration_new(&ration);
    return listener->ration ? weir_acceptor_new(&acceptor, &listener->acceptor)
                            : WEIR_ENOMEM;
}

int weir_listener_new(struct event_base *base,
                      const struct weir_listener_options *options,
                      struct weir_listener **out, struct weir_diag *diag)
{
    struct weir_listen_address place = { .address = options->address };
    int fd = weir_listen_address_listen(&place, diag);
    if (fd < 0)
        return fd;
    struct weir_listener *listener = calloc(1, sizeof(*listener));
    int error = listener ? 0 : WEIR_ENOMEM;
    if (error == 0) {
        listener->base = base;
        listener->options = *options;
        listener->port = place.address.port;
        error = start_listener(listener, fd);
    }
    if (error < 0) {
        close(fd);
        if (listener)
            weir_listener_free_if_unused(listener);
        return weir_diag_set(diag, error, weir_strerror(error), NULL);
    }
    *out = listener;
    return 0;
}

uint16_t weir_listener_port(const struct weir_listener *listener)
{
    return listener->port;
}

uint64_t weir_listener_refused(const struct weir_listener *listener)
{
    return listener->refused;
}

void weir_listener_doubt(struct weir_listener *listener)
{
    while (listener && listener->handshakes.oldest)
        weir_stream_give_up(listener->handshakes.oldest, WEIR_TLS_OUTDATED);
}

void weir_listener_free(struct weir_listener **listener)
{
    struct weir_listener *self = *listener;
    if (!self)
        return;
    *listener = NULL;
    while (self->handshakes.oldest) {
        struct weir_stream *stream = self->handshakes.oldest;
        weir_stream_close(&stream, false);
    }
    weir_acceptor_free(&self->acceptor);
    weir_listener_free_if_unused(self);
}
