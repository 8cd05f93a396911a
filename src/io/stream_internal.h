/* SPDX-License-Identifier: MIT
 * io/stream_internal.h - the interface between streams and listeners. */

#ifndef WEIR_STREAM_INTERNAL_H
#define WEIR_STREAM_INTERNAL_H

#include <sys/socket.h>

#include "io/ration.h"
#include "io/stream.h"

/* Streams without an owner yet, oldest first. */
struct weir_handshakes {
    struct weir_stream *oldest, *newest;
};

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

/* ---- listener_streams.c: for the streams of a listener ---- */
/* The stream is open: hands it to its owner. */
void weir_listener_open(struct weir_listener *listener,
                        struct weir_stream *stream);
void weir_listener_refuse(struct weir_listener *listener, const char *peer,
                          const char *why);
/* The stream was evicted; its owner learns it by on_lost. */
void weir_listener_evicted(struct weir_listener *listener, const char *peer,
                           const char *why);
/* The stream is freed. */
void weir_listener_release(struct weir_listener *listener);
/* Frees a listener that its owner has freed, after its last stream. */
void weir_listener_free_if_unused(struct weir_listener *listener);

/* ---- stream.c: for listeners ---- */
/* Makes a stream of a connected socket, which it owns from here on. Without
 * 'tls' it is open; else it is in the list of handshakes until the loop calls
 * weir_listener_open() or weir_listener_refuse() for it.
 * weir_listener_release() is called when it is freed. NULL: no memory, the
 * socket is closed. */
struct weir_stream *weir_stream_accepted(struct event_base *base, int fd,
                                         const struct sockaddr *peer,
                                         struct weir_tls *tls,
                                         struct weir_listener *listener);
/* Refuses a stream in the list of handshakes; the loop reports it. */
void weir_stream_give_up(struct weir_stream *stream, const char *why);

#endif /* WEIR_STREAM_INTERNAL_H */
