/* SPDX-License-Identifier: MIT
 * os/stream_private.h - what streams and listeners know of each other. */

#ifndef WEIR_STREAM_PRIVATE_H
#define WEIR_STREAM_PRIVATE_H

#include <sys/socket.h>

#include "os/ration.h"
#include "os/stream.h"

/* The numeric address of 'host' ("localhost" is one); false for a name that
 * has to be looked up. */
bool weir_address_numeric(const struct weir_address *address,
                          struct sockaddr_storage *out, socklen_t *out_len);
/* "127.0.0.1:41234" into 'buf'. */
#define WEIR_PEER_MAX 64
void weir_address_show(const struct sockaddr *address, char *buf);

/* Streams that no owner knows of yet, in the order in which they came. */
struct weir_handshakes {
    struct weir_stream *oldest, *newest;
};

/* What streams want of the listener that accepted them. */
struct weir_handshakes *weir_listener_handshakes(struct weir_listener *);
/* The stream is open: to its owner with it. */
void weir_listener_open(struct weir_listener *listener,
                        struct weir_stream *stream);
void weir_listener_refuse(struct weir_listener *listener, const char *peer,
                          const char *why);
/* The stream made room for others; its owner is told by on_lost. */
void weir_listener_evicted(struct weir_listener *listener, const char *peer,
                           const char *why);
/* NULL: plain text. */
struct weir_tls *weir_listener_tls(const struct weir_listener *listener);
/* The ration of streams that aren't authenticated. */
struct weir_ration *weir_listener_ration(struct weir_listener *listener);
/* The stream has gone. */
void weir_listener_release(struct weir_listener *listener);

/* A connected socket as a stream, which owns it from here on. Without 'tls' it
 * is open; else it is among the handshakes until weir_listener_open() or
 * weir_listener_refuse() is called for it, out of the loop. When it goes,
 * weir_listener_release() is called. NULL: no memory, the socket is closed. */
struct weir_stream *weir_stream_accepted(struct event_base *base, int fd,
                                         const struct sockaddr *peer,
                                         struct weir_tls *tls,
                                         struct weir_listener *listener);
/* Of one among the handshakes: it is refused, in the loop. */
void weir_stream_give_up(struct weir_stream *stream, const char *why);

#endif /* WEIR_STREAM_PRIVATE_H */
