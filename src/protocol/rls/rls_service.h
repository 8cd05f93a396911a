/* SPDX-License-Identifier: MIT
 * protocol/rls/rls_service.h - a call of Envoy's rate limit service, decided.
 * Knows no connections: rls_listener.c passes the calls on. One thread.
 *
 * Each descriptor is decided on its own, by the name of codec/rls_name.h: it is
 * charged if it passes, even if others don't. Envoy's clients expect that. For
 * all or nothing, make one quota the parent of another. */

#ifndef WEIR_RLS_SERVICE_H
#define WEIR_RLS_SERVICE_H

#include "codec/rls_json.h"
#include "codec/rls_rules.h"
#include "protocol/protocol.h"

/* Headers for the downstream client, about the nearest limit. */
enum weir_rls_headers {
    WEIR_RLS_HEADERS_NONE,
    WEIR_RLS_HEADERS_LIMIT, /* RateLimit-Limit, -Remaining, -Reset, as
                             * envoyproxy/ratelimit sends them */
    WEIR_RLS_HEADERS_IETF,  /* RateLimit, RateLimit-Policy, Retry-After */
};

struct weir_rls_options {
    enum weir_rls_headers headers;
    bool shadow;   /* every call passes; statuses show the decisions */
    bool metadata; /* answers have dynamic metadata (codec/rls_metadata.h) */
    bool jitter;   /* the reset of a limited request is up to a quarter longer,
                    * at random */
};

struct weir_rls_service;

/* 'host' is borrowed. NULL: no memory. */
struct weir_rls_service *weir_rls_service_new(
    const struct weir_protocol_host *host,
    const struct weir_rls_options *options);
/* NULL is legal. */
void weir_rls_service_free(struct weir_rls_service *service);
/* From now on only descriptors that these rules match are decided, by the
 * rules' names. NULL, the initial value: all descriptors are decided, by their
 * own names. Borrowed until the next call. */
void weir_rls_service_set_rules(struct weir_rls_service *service,
                                const struct weir_rls_rules *rules);

/* Answers a ShouldRateLimit of 'taker': WEIR_GRPC_OK, and '*out' is the
 * message; or another status, and '*out' the sentence, NUL-terminated: then
 * nothing was charged. PERMISSION_DENIED: the taker may not take from one of
 * the quotas. Borrowed until the next call. A request over a bound of
 * codec/rls.h is answered OVER_LIMIT without statuses, and charges nothing:
 * Envoy lets a request pass if its rate limit service answers an error. */
int weir_rls_service_answer(struct weir_rls_service *service,
                            const struct weir_protocol_taker *taker,
                            const char *peer, struct weir_text message,
                            struct weir_text *out, weir_instant now);

/* The answer to a request of which the listener could not read all. */
struct weir_text weir_rls_service_answer_big(struct weir_rls_service *service,
                                             const char *peer, const char *why);

/* The same in JSON: '*out' is the answer, a new reference, and '*out_over'
 * whether the answer is a refusal; or '*out' is NULL, and '*out_why' the
 * sentence, borrowed as above. */
int weir_rls_service_answer_json(struct weir_rls_service *service,
                                 const struct weir_protocol_taker *taker,
                                 json_t *asked, json_t **out, bool *out_over,
                                 struct weir_text *out_why, weir_instant now);
/* As weir_rls_service_answer_big(), in JSON: a new reference, or NULL: no
 * memory. */
json_t *weir_rls_service_answer_big_json(struct weir_rls_service *service,
                                         const char *peer, const char *why,
                                         bool *out_over);

#endif /* WEIR_RLS_SERVICE_H */
