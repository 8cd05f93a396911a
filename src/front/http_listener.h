/* SPDX-License-Identifier: MIT
 * front/http_listener.h - receives HTTP/1.1 requests for a handler that answers
 * them; shared by the HTTP listeners of roots and agents.
 *
 *     head whole --> method, origin, on_head --> body, if any --> on_request
 *                          |                                        |
 *                          v refused, its body unread               v
 *                        answer                        answer, now or later
 *
 * A request is read strictly (codec/http1.h). Its head alone decides whether it
 * is allowed, so no body of a peer without a role is kept. A refused request
 * ends its connection if its body hasn't come with the head, since a body can't
 * be told from the next request. A connection's requests are answered one at a
 * time; the next ones wait in the peer's socket. All refusals are problems of
 * RFC 9457.
 *
 * All on the loop's thread. */

#ifndef WEIR_HTTP_LISTENER_H
#define WEIR_HTTP_LISTENER_H

#include "front/http_reply.h"
#include "front/uri.h"
#include "io/conn.h"

struct weir_http_listener;
struct weir_http_ticket;

/* A request that is being answered; it exists during the call of on_head or
 * on_request. */
struct weir_http_call {
    struct weir_conn *conn;
    const struct weir_http1_request *request;
    struct weir_text method; /* GET also for HEAD, which is answered without the
                              * body */
    struct weir_text body;   /* complete; in on_request */
    void *state;             /* the connection's: 'state_size' bytes, zero at
                              * first, 16-byte aligned */
    struct weir_http_reply reply; /* initially 200 and application/json */
    bool ends; /* set by the handler: the answer ends the connection */
    /* Set by on_request, to the reader's identity: the request begins a stream,
     * if the answer is 200. */
    char reader[WEIR_HTTP_VALUE_MAX];
    /* Private to the listener: */
    struct weir_http_listener *listener;
    struct weir_http_ticket *ticket;
    struct weir_text head;
    bool is_head; /* a HEAD request */
    bool unread;  /* its body isn't complete: an answer ends the connection */
    bool answered;
};

struct weir_http_options {
    /* base, place, tls, on_short, numbers and times; the rest is set by the
     * listener */
    struct weir_conn_options conns;
    const char *public_origin; /* io/origin.h; borrowed; NULL: none */
    /* As in weir_conn_options. */
    void (*on_unknown)(void *context, const struct weir_conn *conn,
                       weir_instant now);
    /* Bytes of memory for incomplete bodies of all connections; a request over
     * it is refused (503). Memory grows with the bytes that have come. */
    size_t bodies_max;
    size_t state_size;
    void *context; /* of all callbacks */
    /* Decides by the head whether the request is allowed: caller, purpose, and
     * the longest body to read (request->content_length). False: call->reply is
     * the answer. Called again if the body came later than the head. */
    bool (*on_head)(void *context, struct weir_http_call *call,
                    weir_instant now);
    /* Answers: by call->reply, or by weir_http_defer(). */
    void (*on_request)(void *context, struct weir_http_call *call,
                       weir_instant now);
    /* The listener refuses the call by itself: fills call->reply with a
     * problem. The request may be empty: it couldn't be read. */
    void (*problem)(void *context, struct weir_http_call *call, int status,
                    const char *detail);
    /* Whether a client other than a browser may use a form's content type at
     * this path; NULL: nowhere. */
    bool (*takes_forms)(void *context, struct weir_text path);
    /* The connection is about to be freed; NULL: not reported. */
    void (*on_gone)(void *context, void *state);
};

/* Listens. As weir_conn_server_new(). */
int weir_http_listener_new(const struct weir_http_options *options,
                           struct weir_http_listener **out,
                           struct weir_diag *diag);
const struct weir_listen_address *weir_http_listener_address(
    const struct weir_http_listener *listener);
/* Credentials were reloaded: each peer is unauthenticated until its next
 * request. */
void weir_http_listener_recheck(struct weir_http_listener *listener);
/* Certificates were reloaded: as weir_conn_server_doubt(). */
void weir_http_listener_doubt(struct weir_http_listener *listener);
void weir_http_listener_stop(struct weir_http_listener *listener);
/* Answers that are still owed are dropped. NULL inside is legal. */
void weir_http_listener_free(struct weir_http_listener **listener);

/* ---- Functions for handlers ---- */

/* A header's value as a string in 'buf'; NULL: absent; "": too long. */
const char *weir_http_header(const struct weir_http_call *call,
                             const char *name, char buf[WEIR_HTTP_VALUE_MAX]);
/* Whether the path is a file of the page (front/page_file.h); then the reply is
 * that file. */
bool weir_http_file(struct weir_http_call *call);
/* The peer's address without the port: "127.0.0.1", "::1", "unix". */
void weir_http_peer_host(const struct weir_http_call *call,
                         char buf[WEIR_HTTP_VALUE_MAX]);

/* Writes call->reply now, so that borrowed data may be freed. Otherwise it is
 * written when on_head or on_request returns. */
void weir_http_answer(struct weir_http_call *call);

/* A ticket, for an answer that comes later. It outlives the connection, and
 * must be answered. In on_request only, not for a stream. NULL: no memory. */
struct weir_http_ticket *weir_http_defer(struct weir_http_call *call);
/* Takes over both; 'reply' is written, or its borrowed parts copied, before
 * this returns. If the connection has ended, the answer is dropped. */
void weir_http_ticket_answer(struct weir_http_ticket *ticket,
                             struct weir_http_reply *reply);

#endif /* WEIR_HTTP_LISTENER_H */
