/* SPDX-License-Identifier: MIT
 * server/door_http.h - the administration over HTTP/1.1 (libevent's evhttp). */

#ifndef WEIR_DOOR_HTTP_H
#define WEIR_DOOR_HTTP_H

#include "os/stream.h"
#include "server/admin.h"
#include "server/gate.h"

#define WEIR_HTTP_HEADERS_MAX 16384 /* bytes */
#define WEIR_HTTP_TIMEOUT 30        /* seconds of silence */
#define WEIR_HTTP_AHEAD_MAX 4096    /* bytes kept of who talks on, unanswered */

struct weir_door_http;

struct weir_door_http_options {
    struct event_base *base;  /* borrowed, as all below */
    struct weir_admin *admin;
    struct weir_gate *gate;   /* never NULL */
    struct weir_tls *tls;     /* a server's; NULL: plain text */
    struct weir_address address;
    const char *public_origin; /* of the page, if it isn't the address's own
                                * (os/origin.h); NULL: none */
};

/* Opens the door. WEIR_ESYSTEM, WEIR_ENOMEM, with 'diag' filled. */
int weir_door_http_new(const struct weir_door_http_options *options,
                       struct weir_door_http **out, struct weir_diag *diag);
uint16_t weir_door_http_port(const struct weir_door_http *door);
/* Credentials were read again. */
void weir_door_http_recheck(struct weir_door_http *door);
/* Certificates were read again: as weir_door_grpc_doubt(). */
void weir_door_http_doubt(struct weir_door_http *door,
                          const struct weir_tls *tls);
/* To be called each second: drops strangers who stay too long, and whose
 * certificate has ended. */
void weir_door_http_look(struct weir_door_http *door);
/* Takes no new connections. */
void weir_door_http_stop(struct weir_door_http *door);
/* The administration is about to go: from now on requests are answered that
 * the root is stopping. */
void weir_door_http_leave(struct weir_door_http *door);
/* After weir_admin_free() or when nothing waits. NULL inside is legal. */
void weir_door_http_free(struct weir_door_http **door);

#endif /* WEIR_DOOR_HTTP_H */
