/* SPDX-License-Identifier: MIT
 * server/http_streams.h - server-sent events over the HTTP door: one request
 * that is asked again each second, its answers sent as they come. */

#ifndef WEIR_HTTP_STREAMS_H
#define WEIR_HTTP_STREAMS_H

#include "server/admin.h"

#define WEIR_HTTP_READER_MAX 256             /* bytes that tell readers apart */
#define WEIR_HTTP_STREAM_EVERY 1             /* seconds */
#define WEIR_HTTP_STREAM_BEHIND (256u << 10) /* bytes not sent: no more comes */
#define WEIR_HTTP_STREAM_SLOW 30             /* seconds so; then it is ended */

struct event_base;
struct evhttp_request;
struct weir_http_streams;

struct weir_http_streams_options {
    struct event_base *base; /* borrowed */
    /* Asks what 'request' asks for; answers by 'done' before it returns, and
     * before that writes who it is that asks: by what it showed, or where it
     * comes from. */
    void (*ask)(void *context, struct evhttp_request *request,
                char reader[WEIR_HTTP_READER_MAX], weir_admin_done_fn *done,
                void *done_context);
    /* Sends an answer that ends the request. */
    void (*send)(struct evhttp_request *request,
                 const struct weir_admin_answer *answer);
    void *context; /* of 'ask' */
};

/* NULL: no memory. */
struct weir_http_streams *weir_http_streams_new(
    const struct weir_http_streams_options *options);
/* Takes the request over: an event now and one each second, until the client
 * goes or an answer is no success; that one ends it. So does 503, of who was
 * let in and is one too many. */
void weir_http_streams_open(struct weir_http_streams *streams,
                            struct evhttp_request *request);
/* After evhttp, which ends those that stand. NULL inside is legal. */
void weir_http_streams_free(struct weir_http_streams **streams);

#endif /* WEIR_HTTP_STREAMS_H */
