/* SPDX-License-Identifier: MIT
 * io/transport.h - the connection object of all ports and clients: one socket
 * on a libevent loop, in plain text or over TLS.
 *
 *      io/stream.h                        io/conn.h
 *      queued: bytes as they come,        in turn: one read, all answers,
 *      writes at the end of the turn      one write
 *                     \                  /
 *                   struct weir_transport ------ struct weir_acceptor
 *                   descriptor, TLS, peer,       accepts; bounds connections,
 *                   events, unsent bytes         descriptors, and the cost of
 *                                                unauthenticated peers
 *
 * Each connection of a policy begins with its transport. The transport knows
 * which step the socket or TLS needs next, watches the socket for it, and calls
 * the policy; the policy decides what is read and when it is written. Only the
 * two policies use this header.
 *
 * Failures. A step that fails sets 'why', also when memory is missing. After
 * the event in which that happened the transport calls on_failed, so a policy
 * needs no check for a failure but the ones that save work.
 *
 * Life. Between weir_transport_enter() and weir_transport_leave(), and so in
 * all callbacks but on_free, the memory stays valid.
 *
 * All on the loop's thread. */

#ifndef WEIR_TRANSPORT_H
#define WEIR_TRANSPORT_H

#include "io/accept.h"
#include "io/address.h"
#include "io/byte_queue.h"
#include "io/tls.h"

struct event;
struct weir_transport;

enum weir_transport_state {
    WEIR_TRANSPORT_NONE, /* without a socket */
    WEIR_TRANSPORT_CONNECTING,
    WEIR_TRANSPORT_SHAKING, /* in the TLS handshake */
    WEIR_TRANSPORT_OPEN,
};

/* The loop calls all but on_free; each may close the transport. */
struct weir_transport_policy {
    /* A client's socket is connected, or the handshake has ended. NULL: not
     * reported. */
    void (*on_open)(struct weir_transport *transport);
    /* Open, and bytes may be there: read once or a few times. */
    void (*on_readable)(struct weir_transport *transport);
    /* Open, and the socket takes bytes again: flush. */
    void (*on_writable)(struct weir_transport *transport);
    /* The timer of weir_transport_arm() has expired, outside of a handshake,
     * which the transport fails itself. NULL: it is never armed. */
    void (*on_late)(struct weir_transport *transport);
    /* 'why' is set: close it. May come again. */
    void (*on_failed)(struct weir_transport *transport);
    /* It is killed and unused: finish the transport, free the memory. */
    void (*on_free)(struct weir_transport *transport);
};

/* In the policy's memory. The policy may write 'paused'. */
struct weir_transport {
    const struct weir_transport_policy *policy; /* static */
    struct event_base *base;                    /* borrowed */
    struct weir_accepted accepted;              /* its place at the acceptor */
    struct weir_tls_session *tls;      /* owned; NULL: plain text, or no
                                        * handshake has begun */
    struct event *readable, *writable; /* owned; NULL: not needed yet … */
    struct event *timer;               /* … all three */
    struct weir_byte_queue queue;      /* bytes that the socket hasn't taken;
                                        * no memory when empty */
    const char *why;                   /* it has failed: a sentence */
    int fd;                            /* -1: none */
    unsigned users;                    /* callers that will use it again */
    enum weir_transport_state state;
    bool ended;               /* our half, after all bytes */
    bool evicted;             /* by the ration; 'why' is set */
    bool killed;              /* to be freed with its last user */
    bool paused;              /* the policy doesn't want to read */
    bool stalled;             /* the socket takes no more bytes */
    bool reads_first;         /* TLS can't write before it has read … */
    bool writes_first;        /* … nor read before it has written */
    bool reads, writes;       /* watched for */
    char peer[WEIR_PEER_MAX]; /* its address, as weir_address_show() */
};

/* Begins without a socket; the memory needn't be zeroed. */
void weir_transport_init(struct weir_transport *transport,
                         const struct weir_transport_policy *policy,
                         struct event_base *base);
/* Takes an accepted socket, which it owns in any case, and joins the acceptor.
 * With TLS the handshake comes first, for WEIR_TLS_HANDSHAKE_MAX. False: no
 * memory; finish it. */
bool weir_transport_accept(struct weir_transport *transport,
                           struct weir_acceptor *acceptor, int fd,
                           const struct sockaddr *peer);
/* Connects, after closing the socket of a former attempt; the timer goes on.
 * An attempt that fails at once sets 'why', and the caller handles that. */
void weir_transport_connect(struct weir_transport *transport,
                            const struct sockaddr *address, socklen_t len);
/* Closes the socket, if there is one, and leaves the ration. A handshake's last
 * words are sent before. */
void weir_transport_close(struct weir_transport *transport);
/* Closes, leaves the acceptor, frees all that it owns. */
void weir_transport_fini(struct weir_transport *transport);

void weir_transport_enter(struct weir_transport *transport);
/* False: the transport was killed; its memory is valid only if another user
 * is left. */
bool weir_transport_leave(struct weir_transport *transport);
/* Calls on_free now or when the last user leaves. */
void weir_transport_kill(struct weir_transport *transport);

/* Each event of the loop calls this: it makes one step, unless the transport
 * has failed, and then watches for the next event or calls on_failed. */
void weir_transport_run(struct weir_transport *transport,
                        void (*step)(struct weir_transport *transport));
/* Marks it as failed, unless it already is. 'why': static, or as long-lived as
 * the session. Outside of a callback the loop reports it soon. */
void weir_transport_fail(struct weir_transport *transport, const char *why);
/* Calls on_readable soon, also while it is paused; within the ration. */
void weir_transport_wake(struct weir_transport *transport);
/* Watches the socket for the step that is needed; called after each callback,
 * and by the policy after a change outside of one. */
void weir_transport_watch(struct weir_transport *transport);
/* The peer is authenticated: no ration any more. */
void weir_transport_admit(struct weir_transport *transport);
/* on_late is called after the delay, unless the state changes before. */
void weir_transport_arm(struct weir_transport *transport, weir_duration delay);

/* Reads once, at most 'size' bytes, and WEIR_RATION_READ as a member of a
 * ration; 0: none now, or it has failed. */
size_t weir_transport_read(struct weir_transport *transport, void *buf,
                           size_t size);
/* Appends to the queue, unsent. False: no memory, and it has failed. */
bool weir_transport_queue(struct weir_transport *transport, const void *bytes,
                          size_t len);
/* Sends, and queues the bytes that the socket doesn't take. */
void weir_transport_send(struct weir_transport *transport, const void *bytes,
                         size_t len);
/* Sends as much of the queue as the socket takes. */
void weir_transport_flush(struct weir_transport *transport);
static inline size_t weir_transport_queued(const struct weir_transport *self)
{
    return weir_byte_queue_left(&self->queue);
}
/* Ends our half, after all queued bytes. False: call it again when the socket
 * takes bytes. */
bool weir_transport_end(struct weir_transport *transport);

#endif /* WEIR_TRANSPORT_H */
