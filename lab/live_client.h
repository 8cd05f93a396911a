/* SPDX-License-Identifier: MIT
 * lab/live_client.h - a client of a root's HTTP port (weir-http(7)). */

#ifndef WEIR_LIVE_CLIENT_H
#define WEIR_LIVE_CLIENT_H

#include <jansson.h>

#include "io/stream.h"

#define WEIR_LIVE_CLIENT_PATIENCE (10 * WEIR_SECOND)

struct weir_live_client; /* of one root */

/* 'answer' is borrowed, NULL if none came or it isn't JSON; 'status' is HTTP's,
 * 0 if no answer came. */
typedef void weir_live_reply_fn(void *context, int status,
                                const json_t *answer);

struct weir_live_client *weir_live_client_new(struct event_base *base,
                                              const struct weir_address *http);
/* Calls 'reply' of each request without an answer, with NULL. */
void weir_live_client_free(struct weir_live_client **client);
/* Sends a request after those sent before. 'method': "GET", "POST" or "DELETE";
 * 'body' is taken over (NULL: none). 'reply' is called once, from the loop. */
void weir_live_client_request(struct weir_live_client *client,
                              const char *method, const char *path,
                              json_t *body, weir_live_reply_fn *reply,
                              void *context);

#endif /* WEIR_LIVE_CLIENT_H */
