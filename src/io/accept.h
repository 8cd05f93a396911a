/* SPDX-License-Identifier: MIT
 * io/accept.h - a listening socket on the loop, which keeps working when the
 * process has no descriptor left.
 *
 * A connection that can't be accepted for want of a descriptor stays in the
 * kernel's queue and keeps the socket readable: a loop that only logs the error
 * would spin. Therefore the acceptor first asks its owner to close the least
 * needed connection. If there is none, it frees the descriptor that it keeps in
 * reserve, accepts the connection with it and closes it, so that the peer
 * learns at once; then it pauses for WEIR_ACCEPT_REST.
 *
 * On the loop's thread. */

#ifndef WEIR_ACCEPT_H
#define WEIR_ACCEPT_H

#include <sys/socket.h>

#include "core/base/base.h"

#define WEIR_ACCEPTS_MAX 64                       /* in one turn of the loop */
#define WEIR_ACCEPT_REST (100 * WEIR_MILLISECOND) /* without descriptors */

struct event_base;
struct weir_acceptor;

/* Called when no descriptor is left, at most once in WEIR_ACCEPT_REST. 'count'
 * connections were closed at once since the last call; 'why': the error ("Too
 * many open files"). */
struct weir_accept_short {
    void (*tell)(void *context, uint64_t count, const char *why); /* or NULL */
    void *context;
};

struct weir_acceptor_options {
    struct event_base *base; /* borrowed */
    int fd; /* listening, not blocking; owned by the acceptor on success */
    /* A new connection: 'fd' is non-blocking and close-on-exec, and the callee
     * owns it. The callee may pause the acceptor, not free it. */
    void (*on_socket)(void *context, int fd, const struct sockaddr *peer);
    /* Closes the connection that is needed least; false: there is none. NULL:
     * never. */
    bool (*make_room)(void *context);
    void *context; /* of both */
    struct weir_accept_short on_short;
};

/* WEIR_ENOMEM, WEIR_ESYSTEM (no descriptor for the reserve): the caller keeps
 * 'fd'. */
int weir_acceptor_new(const struct weir_acceptor_options *options,
                      struct weir_acceptor **out);
/* Starts or pauses accepting; a new acceptor accepts. */
void weir_acceptor_set_open(struct weir_acceptor *acceptor, bool open);
/* Closes the socket. NULL inside is legal. */
void weir_acceptor_free(struct weir_acceptor **acceptor);

#endif /* WEIR_ACCEPT_H */
