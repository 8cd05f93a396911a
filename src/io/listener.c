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

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "io/accept.h"
#include "io/listen_address.h"
#include "io/stream_private.h"

struct weir_listener {
    struct event_base *base;
    struct weir_acceptor *acceptor; /* owned; NULL: the listener is freed, its
                                     * streams still exist */
    struct weir_ration *ration;     /* owned */
    struct weir_listener_options options;
    size_t live; /* streams accepted and not ended */
    struct weir_handshakes handshakes;
    uint64_t refused;
    uint16_t port;
};

bool weir_address_numeric(const struct weir_address *address,
                          struct sockaddr_storage *out, socklen_t *out_len)
{
    struct sockaddr_in v4 = {
        .sin_family = AF_INET,
        .sin_port = htons(address->port),
    };
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6,
        .sin6_port = htons(address->port),
    };
    const char *host = address->host;
    if (strcasecmp(host, "localhost") == 0)
        host = "127.0.0.1";
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        memcpy(out, &v4, sizeof(v4));
        *out_len = sizeof(v4);
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
        memcpy(out, &v6, sizeof(v6));
        *out_len = sizeof(v6);
        return true;
    }
    return false;
}

static void free_if_unused(struct weir_listener *listener)
{
    if (listener->acceptor || listener->live > 0)
        return;
    weir_ration_free(&listener->ration);
    free(listener);
}

void weir_listener_release(struct weir_listener *listener)
{
    listener->live--;
    if (listener->acceptor && listener->live < listener->options.max)
        weir_acceptor_set_open(listener->acceptor, true);
    free_if_unused(listener);
}

struct weir_handshakes *weir_listener_handshakes(struct weir_listener *l)
{
    return &l->handshakes;
}

struct weir_tls *weir_listener_tls(const struct weir_listener *listener)
{
    return listener->options.tls;
}

struct weir_ration *weir_listener_ration(struct weir_listener *listener)
{
    return listener->ration;
}

void weir_listener_open(struct weir_listener *listener,
                        struct weir_stream *stream)
{
    listener->options.on_accept(listener->options.context, stream);
}

void weir_listener_refuse(struct weir_listener *listener, const char *peer,
                          const char *why)
{
    listener->refused++;
    if (listener->acceptor && listener->options.on_refused)
        listener->options.on_refused(listener->options.context, peer, why);
}

void weir_listener_evicted(struct weir_listener *listener, const char *peer,
                           const char *why)
{
    if (listener->acceptor && listener->options.on_evicted)
        listener->options.on_evicted(listener->options.context, peer, why);
}

static bool make_room(void *context)
{
    struct weir_listener *listener = context;
    return weir_ration_evict(listener->ration,
                             "no descriptor is left, and this connection was "
                             "the oldest without a credential of the "
                             "address with most of them");
}

static void on_socket(void *context, int fd, const struct sockaddr *peer)
{
    struct weir_listener *listener = context;
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
static int start(struct weir_listener *listener, int fd)
{
    const struct weir_listener_options *options = &listener->options;
    const struct weir_ration_options ration = {
        .base = listener->base,
        .places = options->places ? options->places : (options->max + 1) / 2,
    };
    const struct weir_acceptor_options acceptor = {
        .base = listener->base,
        .fd = fd,
        .on_socket = on_socket,
        .make_room = make_room,
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
        error = start(listener, fd);
    }
    if (error < 0) {
        close(fd);
        if (listener)
            free_if_unused(listener);
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
    free_if_unused(self);
}
