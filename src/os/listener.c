/* SPDX-License-Identifier: MIT
 * os/listener.c - sockets that accept.
 *
 * Theory of operation. libevent's listener accepts with SOCK_NONBLOCK and
 * SOCK_CLOEXEC. Two things stop it for a while: as many streams as allowed
 * (the next one that goes starts it again), and a machine without
 * descriptors (a timer does; the socket would be readable at once, for ever).
 * A listener may be freed while its streams live on: they count on it, so
 * its memory goes with the last of them.
 *
 * With TLS a stream has no owner until its handshake is done. Those streams
 * are in a list, oldest first, and take half of the places: the deadline of a
 * handshake alone would let somebody with many addresses hold all of them. */

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "os/stream_private.h"

#define RETRY_MICROSECONDS 100000 /* after an accept that failed */
#define BACKLOG 1024              /* connections; the kernel has a bound too */

struct weir_listener {
    struct event_base *base;
    struct evconnlistener *ev; /* NULL: freed, its streams live on */
    struct event *retry;
    struct weir_listener_options options;
    size_t live; /* streams accepted and not gone */
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
    if (!listener->ev && listener->live == 0)
        free(listener);
}

static void stop_accepting(struct weir_listener *listener)
{
    (void)evconnlistener_disable(listener->ev);
}

static void start_accepting(struct weir_listener *listener)
{
    if (listener->live < listener->options.max)
        (void)evconnlistener_enable(listener->ev);
}

void weir_listener_release(struct weir_listener *listener)
{
    listener->live--;
    if (listener->ev)
        start_accepting(listener);
    free_if_unused(listener);
}

static void on_retry(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    start_accepting(context);
}

struct weir_handshakes *weir_listener_handshakes(struct weir_listener *l)
{
    return &l->handshakes;
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
    if (listener->ev && listener->options.on_refused)
        listener->options.on_refused(listener->options.context, peer, why);
}

static void bound_handshakes(struct weir_listener *listener)
{
    if (listener->handshakes.count > (listener->options.max + 1) / 2)
        weir_stream_give_up(listener->handshakes.oldest,
                            "it is the slowest of too many handshakes");
}

static void on_connection(struct evconnlistener *ev, evutil_socket_t fd,
                          struct sockaddr *peer, int len, void *context)
{
    (void)ev;
    (void)len;
    struct weir_listener *listener = context;
    listener->live++;
    if (listener->live >= listener->options.max)
        stop_accepting(listener);
    struct weir_tls *tls = listener->options.tls;
    struct weir_stream *stream =
        weir_stream_accepted(listener->base, fd, peer, tls, listener);
    if (!stream)
        weir_listener_release(listener);
    else if (tls)
        bound_handshakes(listener);
    else
        weir_listener_open(listener, stream);
}

static void on_accept_error(struct evconnlistener *ev, void *context)
{
    (void)ev;
    struct weir_listener *listener = context;
    struct timeval delay = { .tv_usec = RETRY_MICROSECONDS };
    stop_accepting(listener);
    (void)event_add(listener->retry, &delay);
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage address = { .ss_family = AF_UNSPEC };
    socklen_t len = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        return 0;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (address.ss_family == AF_INET6) {
        memcpy(&v6, &address, sizeof(v6));
        return ntohs(v6.sin6_port);
    }
    memcpy(&v4, &address, sizeof(v4));
    return ntohs(v4.sin_port);
}

static int refuse(struct weir_listener *listener, struct weir_diag *diag)
{
    const char *advice =
        errno == EADDRINUSE
            ? "; another process has this port: stop it or take another"
            : "";
    weir_diag_set(diag, 0, "can't listen: ", strerror(errno), advice, NULL);
    free(listener);
    return WEIR_ESYSTEM;
}

int weir_listener_new(struct event_base *base,
                      const struct weir_listener_options *options,
                      struct weir_listener **out, struct weir_diag *diag)
{
    struct sockaddr_storage at;
    socklen_t len;
    if (!weir_address_numeric(&options->address, &at, &len))
        return weir_diag_set(diag, WEIR_EINVAL,
                             "listen on a numeric address, not on a name",
                             NULL);
    struct weir_listener *listener = calloc(1, sizeof(*listener));
    if (!listener)
        return WEIR_ENOMEM;
    *listener = (struct weir_listener){
        .base = base,
        .options = *options,
    };
    listener->retry = event_new(base, -1, 0, on_retry, listener);
    if (!listener->retry) {
        free(listener);
        return WEIR_ENOMEM;
    }
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC |
                     LEV_OPT_REUSEABLE;
    if (at.ss_family == AF_INET6)
        flags |= LEV_OPT_BIND_IPV6ONLY;
    listener->ev =
        evconnlistener_new_bind(base, on_connection, listener, flags, BACKLOG,
                                (struct sockaddr *)&at, (int)len);
    if (!listener->ev) {
        event_free(listener->retry);
        return refuse(listener, diag);
    }
    evconnlistener_set_error_cb(listener->ev, on_accept_error);
    listener->port = bound_port(evconnlistener_get_fd(listener->ev));
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
    event_free(self->retry);
    evconnlistener_free(self->ev);
    self->ev = NULL;
    free_if_unused(self);
}
