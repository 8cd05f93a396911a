/* SPDX-License-Identifier: MIT
 * os/stream_private.h - what streams and listeners know of each other. */

#ifndef WEIR_STREAM_PRIVATE_H
#define WEIR_STREAM_PRIVATE_H

#include <sys/socket.h>

#include "os/stream.h"

/* The numeric address of 'host' ("localhost" is one); false for a name that
 * has to be looked up. */
bool weir_address_numeric(const struct weir_address *address,
                          struct sockaddr_storage *out, socklen_t *out_len);
/* "127.0.0.1:41234" into 'buf'. */
#define WEIR_PEER_MAX 64
void weir_address_show(const struct sockaddr *address, char *buf);

/* A connected socket as a stream, which owns it from here on; when it goes,
 * weir_listener_release() is called. NULL: no memory, the socket is closed. */
struct weir_stream *weir_stream_accepted(struct event_base *base, int fd,
                                         const struct sockaddr *peer,
                                         struct weir_listener *listener);
void weir_listener_release(struct weir_listener *listener);

#endif /* WEIR_STREAM_PRIVATE_H */
