/* SPDX-License-Identifier: MIT
 * door/rlqs_desk.h - Envoy's rate limit quota service: who says what each of
 * its buckets let through is told what it may do. Knows no connections:
 * rls_door.c brings the streams. One thread.
 *
 * A bucket's id is the name of a quota, as descriptors have it
 * (wire/rls_name.h), its keys in order: {user: ann, path: /} in the domain d is
 * envoy/d/path=%2F/user=ann. By what that quota is, a bucket is told
 *
 *   - nothing rules it, or without limit: all may pass;
 *   - leased: a token bucket of this process's grant, of which each bucket of
 *     that name has a part by how much it was asked for. What all want is what
 *     the process asks for. Smooth, and never above the limit;
 *   - any other: what passed is charged after the fact; and half of what is
 *     left over the fleet, and of what comes until the next report, is told as
 *     a token bucket, or that none may pass. Over time the limit holds; between
 *     two reports as many halves may pass as there are Envoys. */

#ifndef WEIR_RLQS_DESK_H
#define WEIR_RLQS_DESK_H

#include "door/door.h"
#include "wire/rlqs.h"

#define WEIR_RLQS_BUCKETS_MAX 4096u /* of one stream */
/* A bucket that is silent for so long is abandoned. */
#define WEIR_RLQS_SILENCE_MAX (60 * WEIR_SECOND)
/* An assignment is good for three reports, and for so long at least. */
#define WEIR_RLQS_LIVES_MIN (15 * WEIR_SECOND)

struct weir_rlqs_desk;
struct weir_rlqs_stream;

/* 'host' is borrowed. NULL: no memory. */
struct weir_rlqs_desk *weir_rlqs_desk_new(const struct weir_door_host *host);
/* All its streams have been freed. NULL is legal. */
void weir_rlqs_desk_free(struct weir_rlqs_desk *desk);

/* Of 'taker', which is copied. NULL: no memory. */
struct weir_rlqs_stream *weir_rlqs_stream_new(
    struct weir_rlqs_desk *desk, const struct weir_door_taker *taker);
/* NULL is legal. */
void weir_rlqs_stream_free(struct weir_rlqs_stream *stream);

/* Takes a report. WEIR_GRPC_OK, and '*out' is a RateLimitQuotaResponse, empty
 * if there is nothing to say; or another status, and '*out' the sentence,
 * NUL-terminated: PERMISSION_DENIED where the taker may not take from the quota
 * of a bucket. Borrowed until the next call for any stream of the desk. */
int weir_rlqs_stream_report(struct weir_rlqs_stream *stream, const void *bytes,
                            size_t len, struct weir_text *out,
                            weir_instant now);
/* To be called each second: what has changed since it was told, as above. */
struct weir_text weir_rlqs_stream_look(struct weir_rlqs_stream *stream,
                                       weir_instant now);

#endif /* WEIR_RLQS_DESK_H */
