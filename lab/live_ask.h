/* SPDX-License-Identifier: MIT
 * lab/live_ask.h - a client of a root's HTTP port (weir-http(7)). */

#ifndef WEIR_LIVE_ASK_H
#define WEIR_LIVE_ASK_H

#include <jansson.h>

#include "io/stream.h"

#define WEIR_ASK_PATIENCE (10 * WEIR_SECOND)

struct weir_asker; /* of one root */

/* 'answer' is borrowed, NULL if none came or it isn't JSON; 'status' is HTTP's,
 * 0 if no answer came. */
typedef void weir_asked_fn(void *context, int status, const json_t *answer);

struct weir_asker *weir_asker_new(struct event_base *base,
                                  const struct weir_address *http);
/* Calls 'asked' of each request without an answer, with NULL. */
void weir_asker_free(struct weir_asker **asker);
/* Sends a request after those sent before. 'method': "GET", "POST" or "DELETE";
 * 'body' is taken over (NULL: none). 'asked' is called once, from the loop. */
void weir_asker_ask(struct weir_asker *asker, const char *method,
                    const char *path, json_t *body, weir_asked_fn *asked,
                    void *context);

#endif /* WEIR_LIVE_ASK_H */
