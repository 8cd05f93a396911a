/* SPDX-License-Identifier: MIT
 * server/http_visitors.h - connections of the HTTP door over TLS, and how many
 * strangers may be among them. evhttp makes connections and ends them, and has
 * no bounds of its own: these are set from the side. */

#ifndef WEIR_HTTP_VISITORS_H
#define WEIR_HTTP_VISITORS_H

#include "server/gate.h"

#define WEIR_HTTP_VISITORS_MAX 1024 /* at once; strangers: half of it */
/* How long one may stay that nobody known has used: enough for the largest
 * import, which shows its token before and is let in after. */
#define WEIR_HTTP_STRANGER_MAX (30 * WEIR_SECOND)
/* Bytes that all strangers together may have sent and not had answered. */
#define WEIR_HTTP_STRANGERS_BYTES (256u << 20)

struct bufferevent;
struct event_base;
struct evconnlistener;
struct weir_http_visitors;

/* 'tls' and 'gate' are borrowed. NULL: no memory. */
struct weir_http_visitors *weir_http_visitors_new(struct weir_tls *tls,
                                                  struct weir_gate *gate);
/* The listener that is stopped while there are too many; NULL: it goes. */
void weir_http_visitors_set_listener(struct weir_http_visitors *visitors,
                                     struct evconnlistener *listener);
/* For evhttp_set_bevcb(), with the visitors as context. Never NULL: evhttp
 * would speak plain text then. */
struct bufferevent *weir_http_visitors_accept(struct event_base *base,
                                              void *context);
/* A whole request has come over one of them; 'known': and was let in. */
void weir_http_visitors_asked(struct weir_http_visitors *visitors,
                              struct bufferevent *bufferevent, bool known);
/* Credentials were read again: nobody is known until the next request. */
void weir_http_visitors_recheck(struct weir_http_visitors *visitors);
/* Certificates were read again: drops whoever shows one that wouldn't be taken
 * now. */
void weir_http_visitors_doubt(struct weir_http_visitors *visitors,
                              const struct weir_tls *tls);
/* To be called each second: drops who has stayed too long, or whose
 * certificate has ended. */
void weir_http_visitors_look(struct weir_http_visitors *visitors);
/* Connections that stand live on. NULL inside is legal. */
void weir_http_visitors_free(struct weir_http_visitors **visitors);

#endif /* WEIR_HTTP_VISITORS_H */
