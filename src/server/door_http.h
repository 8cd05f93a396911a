/* SPDX-License-Identifier: MIT
 * server/door_http.h - the administration over HTTP/1.1 (libevent's evhttp). */

#ifndef WEIR_DOOR_HTTP_H
#define WEIR_DOOR_HTTP_H

#include "os/stream.h"
#include "server/admin.h"

#define WEIR_HTTP_HEADERS_MAX 16384 /* bytes */
#define WEIR_HTTP_TIMEOUT 30        /* seconds of silence */

struct weir_door_http;

/* Opens the door. WEIR_ESYSTEM with 'diag' filled. 'admin' is borrowed. */
int weir_door_http_new(struct event_base *base, struct weir_admin *admin,
                       const struct weir_address *address,
                       struct weir_door_http **out, struct weir_diag *diag);
uint16_t weir_door_http_port(const struct weir_door_http *door);
/* Takes no new connections. */
void weir_door_http_stop(struct weir_door_http *door);
/* After weir_admin_free() or when nothing waits. NULL inside is legal. */
void weir_door_http_free(struct weir_door_http **door);

#endif /* WEIR_DOOR_HTTP_H */
