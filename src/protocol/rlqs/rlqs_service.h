/* SPDX-License-Identifier: MIT
 * protocol/rlqs/rlqs_service.h - Envoy's rate limit quota service: an Envoy
 * reports how much each of its buckets let through, and receives an assignment
 * for each. Knows no connections: rls_listener.c passes the streams on. One
 * thread.
 *
 * A bucket's id is the name of a quota, as descriptors have it
 * (codec/rls_name.h), its keys in order: {user: ann, path: /} in the domain d
 * is envoy/d/path=%2F/user=ann. The bucket's assignment depends on that quota:
 *
 *   - none, or one without limit: all may pass;
 *   - leased: a token bucket with a part of this process's grant, divided among
 *     the buckets of that name by their demands. The sum of the demands is the
 *     process's want. Smooth, and never above the limit;
 *   - any other: passed requests are charged after the fact. The assignment is
 *     a token bucket of half of the units that the fleet has left and that
 *     refill until the next report, or that none may pass. Over time the limit
 *     holds; between two reports each Envoy may pass such a half. */

#ifndef WEIR_RLQS_SERVICE_H
#define WEIR_RLQS_SERVICE_H

#include "codec/rlqs.h"
#include "protocol/protocol.h"

#define WEIR_RLQS_BUCKETS_MAX 4096u /* buckets of one stream */
/* A bucket without reports for so long is abandoned. */
#define WEIR_RLQS_SILENCE_MAX (60 * WEIR_SECOND)
/* An assignment lives for three reports, and at least so long. */
#define WEIR_RLQS_LIVES_MIN (15 * WEIR_SECOND)

struct weir_rlqs_service;
struct weir_rlqs_stream;

/* 'host' is borrowed. NULL: no memory. */
struct weir_rlqs_service *weir_rlqs_service_new(
    const struct weir_protocol_host *host);
/* Free all its streams before. NULL is legal. */
void weir_rlqs_service_free(struct weir_rlqs_service *service);

/* A stream of 'taker', which is copied. NULL: no memory. */
struct weir_rlqs_stream *weir_rlqs_stream_new(
    struct weir_rlqs_service *service, const struct weir_protocol_taker *taker);
/* NULL is legal. */
void weir_rlqs_stream_free(struct weir_rlqs_stream *stream);

/* Takes a report. WEIR_GRPC_OK, and '*out' is a RateLimitQuotaResponse, empty
 * if there are no actions; or another status, and '*out' the sentence,
 * NUL-terminated: PERMISSION_DENIED if the taker may not take from the quota of
 * a bucket. Borrowed until the next call for a stream of the same service. */
int weir_rlqs_stream_report(struct weir_rlqs_stream *stream, const void *bytes,
                            size_t len, struct weir_text *out,
                            weir_instant now);
/* Call it each second: the assignments that have changed since they were sent,
 * as a response like the above. */
struct weir_text weir_rlqs_stream_look(struct weir_rlqs_stream *stream,
                                       weir_instant now);
/* Call it when a response of one of the two above that isn't empty was sent, or
 * couldn't be: then its actions are repeated in the next response. */
void weir_rlqs_stream_sent(struct weir_rlqs_stream *stream, bool is_sent);

#endif /* WEIR_RLQS_SERVICE_H */
