/* SPDX-License-Identifier: MIT
 * door/http_listener.h - requests of HTTP/1.1 in front of a handler that
 * answers them: what the HTTP listeners of a root and of an agent share.
 *
 *     head whole --> method, origin, on_head --> body, if any --> on_request
 *                          |                                        |
 *                          v refused, its body unread               v
 *                        answer                        answer, now or later
 *
 * A request is read strictly (wire/http1.h). Its head alone decides whether it
 * may be made at all, so that no body is kept of a peer without a role. A
 * refused request whose body has not come with the head is the last on its
 * connection, since nothing tells a body from the next request. One request of
 * a connection is answered at a time; those behind it wait in the peer's
 * socket. All refusals are problems of RFC 9457.
 *
 * All on the loop's thread. */

#ifndef WEIR_HTTP_LISTENER_H
#define WEIR_HTTP_LISTENER_H

#include "door/http_reply.h"
#include "os/talk.h"

struct weir_http_listener;
struct weir_http_ticket;

/* A request that is being answered; lives as long as the call of on_head or
 * on_request. */
struct weir_http_call {
    struct weir_talk *talk;
    const struct weir_http1_request *request;
    struct weir_text method; /* GET for HEAD, whose body is left out */
    struct weir_text body;   /* whole; in on_request */
    void *state;             /* of the connection: 'state_size' bytes, zero at
                              * first, 16-byte aligned */
    struct weir_http_reply reply; /* 200 and application/json at first */
    bool ends; /* to be set: the answer ends the connection */
    /* To be set by on_request, to the reader's identity: the request begins a
     * stream, if the answer is 200. */
    char reader[WEIR_HTTP_VALUE_MAX];
    /* The listener's own: */
    struct weir_http_listener *listener;
    struct weir_http_ticket *ticket;
    struct weir_text head;
    bool is_head; /* may be read */
    bool unread;  /* its body isn't here yet: an answer ends the connection */
    bool answered;
};

struct weir_http_options {
    struct event_base *base; /* borrowed */
    struct weir_place place;
    struct weir_talk_tls tls;
    const char *public_origin; /* os/origin.h; borrowed; NULL: none */
    /* As in weir_talk_options: */
    struct weir_accept_short on_short;
    size_t max, unknown_max;
    weir_duration silence_max, stranger_max;
    void (*on_unknown)(void *context, const struct weir_talk *talk,
                       weir_instant now);
    /* Bytes of memory for bodies on their way, of all connections; a request
     * over it is refused (503). Memory grows with the bytes that have come. */
    size_t bodies_max;
    size_t state_size;
    void *context; /* of all functions */
    /* Whether the request may be made, by its head: caller, purpose, and
     * how long a body is read (request->content_length). False: call->reply
     * is the answer. Called again when the body came later than the head. */
    bool (*on_head)(void *context, struct weir_http_call *call,
                    weir_instant now);
    /* Answers: by call->reply, or by weir_http_defer(). */
    void (*on_request)(void *context, struct weir_http_call *call,
                       weir_instant now);
    /* Makes the reply a problem. */
    void (*problem)(void *context, struct weir_http_reply *reply, int status,
                    const char *detail);
    /* Whether a type of content that forms have is taken at this path, from a
     * client that is no browser; NULL: nowhere. */
    bool (*takes_forms)(void *context, struct weir_text path);
    /* The connection goes; NULL: nothing to do. */
    void (*on_gone)(void *context, void *state);
};

/* Listens. As weir_talk_server_new(). */
int weir_http_listener_new(const struct weir_http_options *options,
                           struct weir_http_listener **out,
                           struct weir_diag *diag);
const struct weir_place *weir_http_listener_place(
    const struct weir_http_listener *listener);
/* Credentials were read again: each peer is unknown until its next request. */
void weir_http_listener_recheck(struct weir_http_listener *listener);
/* Certificates were read again: as weir_talk_server_doubt(). */
void weir_http_listener_doubt(struct weir_http_listener *listener);
void weir_http_listener_stop(struct weir_http_listener *listener);
/* Answers that are still owed are dropped then. NULL inside is legal. */
void weir_http_listener_free(struct weir_http_listener **listener);

/* ---- For a handler ---- */

/* The path of a target, without its query. */
struct weir_text weir_http_path(struct weir_text target);
/* A header's value as a string in 'buf'; NULL: there is no such header; "": it
 * is too long. */
const char *weir_http_header(const struct weir_http_call *call,
                             const char *name, char buf[WEIR_HTTP_VALUE_MAX]);
/* Whether a file of the page (door/page_file.h) is asked for; then the reply is
 * that file. */
bool weir_http_file(struct weir_http_call *call);
/* The address of the peer, without its port: "127.0.0.1", "unix". */
void weir_http_peer_host(const struct weir_http_call *call,
                         char buf[WEIR_HTTP_VALUE_MAX]);

/* Writes call->reply now, so that what it borrows may go. Else it is written
 * when on_head or on_request returns. */
void weir_http_answer(struct weir_http_call *call);

/* A ticket, for an answer that comes later. It outlives the connection, and has
 * to be answered. In on_request only, not of a stream. NULL: no memory. */
struct weir_http_ticket *weir_http_defer(struct weir_http_call *call);
/* Takes both over; 'reply' is written, or copied as far as it borrows, before
 * this returns. A peer that has gone gets nothing. */
void weir_http_ticket_answer(struct weir_http_ticket *ticket,
                             struct weir_http_reply *reply);

#endif /* WEIR_HTTP_LISTENER_H */
