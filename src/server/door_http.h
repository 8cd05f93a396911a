/* SPDX-License-Identifier: MIT
 * server/door_http.h - the administration over HTTP/1.1. */

#ifndef WEIR_DOOR_HTTP_H
#define WEIR_DOOR_HTTP_H

#include "os/stream.h"
#include "server/admin.h"
#include "server/gate.h"

#define WEIR_HTTP_CONNECTIONS_MAX \
    1024                                         /* at once; unauthenticated
                                                  * ones: half of it */
#define WEIR_HTTP_SILENCE_MAX (30 * WEIR_SECOND) /* between two bytes */
/* Bytes of memory for bodies on their way, of all connections. */
#define WEIR_HTTP_BODIES_MAX (2 * WEIR_ADMIN_IMPORT_MAX)

struct weir_door_http;

struct weir_door_http_options {
    struct event_base *base; /* borrowed, as all below */
    struct weir_admin *admin;
    struct weir_gate *gate;      /* never NULL */
    struct weir_tls *tls;        /* a server's; NULL: plain text */
    struct weir_address address; /* numeric; port 0: any */
    size_t connections_max;      /* > 1; 0: WEIR_HTTP_CONNECTIONS_MAX */
    const char *public_origin;   /* the page's, if it isn't the address's own
                                  * (os/origin.h); NULL: none */
};

/* Opens the listener. WEIR_EINVAL, WEIR_ESYSTEM, WEIR_ENOMEM, with 'diag'
 * filled. */
int weir_door_http_new(const struct weir_door_http_options *options,
                       struct weir_door_http **out, struct weir_diag *diag);
uint16_t weir_door_http_port(const struct weir_door_http *door);
/* Credentials were read again: each peer is unknown until its next request. */
void weir_door_http_recheck(struct weir_door_http *door);
/* Certificates were read again: as weir_door_grpc_doubt(). (A connection
 * closes by itself when its certificate ends.) */
void weir_door_http_doubt(struct weir_door_http *door);
/* Takes no new connections. */
void weir_door_http_stop(struct weir_door_http *door);
/* The administration is about to be freed: from now on each answer is that the
 * root is stopping. */
void weir_door_http_leave(struct weir_door_http *door);
/* Drops the answers that are still to come. NULL inside is legal. */
void weir_door_http_free(struct weir_door_http **door);

#endif /* WEIR_DOOR_HTTP_H */
