/* SPDX-License-Identifier: MIT
 * io/accept.h - accepts a listener's connections, and bounds them.
 *
 * An acceptor owns the listening socket, knows all connections that came by it,
 * and holds two bounds: their number, and the ration (io/ration.h) of those
 * whose peers are unauthenticated. At the number of connections it evicts an
 * unauthenticated one. If there is none, it pauses, or refuses the new one.
 *
 * A connection that can't be accepted for want of a descriptor stays in the
 * kernel's queue and keeps the socket readable: a loop that only logs the error
 * would spin. Therefore the acceptor first evicts a connection. If there is
 * none, it frees the descriptor that it keeps in reserve, accepts the
 * connection with it and closes it, so that the peer learns at once; then it
 * pauses for WEIR_ACCEPT_REST.
 *
 * On the loop's thread. */

#ifndef WEIR_ACCEPT_H
#define WEIR_ACCEPT_H

#include <sys/queue.h>
#include <sys/socket.h>

#include "core/base/base.h"
#include "io/address.h"
#include "io/ration.h"

#define WEIR_ACCEPTS_MAX 64                       /* in one turn of the loop */
#define WEIR_ACCEPT_REST (100 * WEIR_MILLISECOND) /* without descriptors */

struct event_base;
struct weir_acceptor;
struct weir_tls;

/* Called when no descriptor is left, at most once in WEIR_ACCEPT_REST. 'count'
 * connections were closed at once since the last call; 'why': the error ("Too
 * many open files"). */
struct weir_accept_short {
    void (*tell)(void *context, uint64_t count, const char *why); /* or NULL */
    void *context;
};

struct weir_acceptor_options {
    struct event_base *base; /* borrowed */
    struct weir_listen_address place;
    struct weir_tls *tls; /* a server's, which must outlive all connections;
                           * NULL: plain text. At a path, which only this host
                           * reaches, always plain text */
    size_t max;           /* connections at once, > 0 */
    size_t places;        /* unauthenticated ones among them, > 0 */
    /* At 'max' connections of authenticated peers: true: the next ones wait in
     * the kernel's queue; false: one more is sent 'crowded' (not over TLS;
     * static), and is closed. */
    bool pauses;
    struct weir_text crowded;
    /* A new connection: 'fd' is non-blocking and close-on-exec, and the callee
     * owns it. The callee may not free the acceptor. */
    void (*on_socket)(void *context, int fd, const struct sockaddr *peer);
    void *context; /* of on_socket */
    struct weir_accept_short on_short;
};

/* Listens. WEIR_EINVAL, WEIR_ESYSTEM (as weir_listen_address_listen(), and no
 * descriptor for the reserve), WEIR_ENOMEM, with 'diag' filled. */
int weir_acceptor_new(const struct weir_acceptor_options *options,
                      struct weir_acceptor **out, struct weir_diag *diag);
/* The listen address, with the port in use. */
const struct weir_listen_address *weir_acceptor_address(
    const struct weir_acceptor *acceptor);
/* NULL: plain text. */
struct weir_tls *weir_acceptor_tls(const struct weir_acceptor *acceptor);
/* Stops listening; connections go on. */
void weir_acceptor_stop(struct weir_acceptor *acceptor);
/* Stops; the memory is freed with the last connection. NULL inside is legal. */
void weir_acceptor_free(struct weir_acceptor **acceptor);

/* A connection as its acceptor sees it, in the memory of its owner. */
struct weir_accepted {
    struct weir_acceptor *acceptor; /* NULL: none */
    /* in the ration until the peer is authenticated; the owner sets its two
     * functions and its context, which is the connection, before it joins */
    struct weir_ration_member member;
    TAILQ_ENTRY(weir_accepted) among; /* of the acceptor, oldest first */
};
/* May evict another connection. */
void weir_acceptor_join(struct weir_acceptor *acceptor,
                        struct weir_accepted *accepted,
                        const struct sockaddr *peer);
/* The connection is freed. No effect without an acceptor. */
void weir_acceptor_leave(struct weir_accepted *accepted);
/* Calls 'fn' for each connection, the context of its member, oldest first; it
 * may end that one. */
void weir_acceptor_each(struct weir_acceptor *acceptor,
                        void (*fn)(void *context, void *connection),
                        void *context);

struct weir_acceptor_view {
    size_t count; /* connections */
    /* Since the start: connections that joined, and those that found no room or
     * were evicted. */
    uint64_t opened, crowded;
};
struct weir_acceptor_view weir_acceptor_look(
    const struct weir_acceptor *acceptor);

#endif /* WEIR_ACCEPT_H */
