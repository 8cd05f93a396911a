/* SPDX-License-Identifier: MIT
 * server/http_api.h - the administration over HTTP/1.1. */

#ifndef WEIR_HTTP_API_H
#define WEIR_HTTP_API_H

#include "front/authorization.h"
#include "front/http_listener.h"
#include "io/stream.h"
#include "server/admin/admin.h"

#define WEIR_HTTP_CONNECTIONS_MAX \
    1024                                         /* at once; unauthenticated
                                                  * ones: half of it */
#define WEIR_HTTP_SILENCE_MAX (30 * WEIR_SECOND) /* between two bytes */
/* Bytes of memory for bodies on their way, of all connections. */
#define WEIR_HTTP_BODIES_MAX (2 * WEIR_ADMIN_IMPORT_MAX)

struct weir_http_api;

struct weir_http_api_options {
    struct event_base *base; /* borrowed, as all below */
    struct weir_admin *admin;
    struct weir_authorization *authorizer; /* never NULL */
    struct weir_tls *tls;                  /* a server's; NULL: plain text */
    struct weir_address address;           /* numeric; port 0: any */
    size_t connections_max;    /* > 1; 0: WEIR_HTTP_CONNECTIONS_MAX */
    const char *public_origin; /* the page's, if it isn't the address's own
                                  * (io/origin.h); NULL: none */
};

/* Opens the listener. WEIR_EINVAL, WEIR_ESYSTEM, WEIR_ENOMEM, with 'diag'
 * filled. */
int weir_http_api_new(const struct weir_http_api_options *options,
                      struct weir_http_api **out, struct weir_diag *diag);
uint16_t weir_http_api_port(const struct weir_http_api *api);
/* The HTTP listener. The caller needs it to stop it, and to check its
 * connections again after credentials or certificates were read again. (A
 * connection closes by itself when its certificate ends.) */
struct weir_http_listener *weir_http_api_listener(struct weir_http_api *api);
/* The administration is about to be freed: from now on each answer is that the
 * root is stopping. */
void weir_http_api_leave(struct weir_http_api *api);
/* Drops the answers that are still to come. NULL inside is legal. */
void weir_http_api_free(struct weir_http_api **api);

#endif /* WEIR_HTTP_API_H */
