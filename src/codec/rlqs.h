/* SPDX-License-Identifier: MIT
 * codec/rlqs.h - Envoy's rate limit quota service on the wire: reports of
 * envoy.service.rate_limit_quota.v3 from bytes, assignments to bytes.
 *
 * A client names its buckets by maps of keys and values, reports how many
 * requests each let through, and receives an assignment with a time to live for
 * each. The bytes are one protobuf message, without the gRPC frame:
 *
 *     RateLimitQuotaUsageReports  1 domain (in the first message), 2 usages
 *       BucketQuotaUsage          1 bucket, 2 elapsed, 3 allowed, 4 denied
 *     RateLimitQuotaResponse      1 actions
 *       BucketAction              1 bucket, 2 assignment or 3 abandon
 *         QuotaAssignmentAction   2 time to live, 3 strategy
 *           RateLimitStrategy     1 all or nothing, 3 token bucket */

#ifndef WEIR_RLQS_H
#define WEIR_RLQS_H

#include "codec/rls.h"

#define WEIR_RLQS_STREAM                                        \
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/" \
    "StreamRateLimitQuotas"

/* Bounds of a message. */
#define WEIR_RLQS_BYTES_MAX (1u << 20)
#define WEIR_RLQS_USAGES_MAX 4096u
#define WEIR_RLQS_PAIRS_MAX 16u /* of one bucket's id */

struct weir_rlqs_pair {
    struct weir_text key, value; /* neither is empty */
};

struct weir_rlqs_usage {
    struct weir_text bucket; /* the id's bytes as received, for the answer */
    struct weir_rlqs_pair *pairs; /* sorted by key, each key once */
    size_t pair_count;            /* at least one */
    uint64_t allowed, denied;     /* requests since the last report */
    weir_duration elapsed;        /* since the last report; 0: not given, or not
                                   * sound */
};

struct weir_rlqs_reports {
    struct weir_text domain;        /* empty: not given */
    struct weir_rlqs_usage *usages; /* may name one bucket twice */
    size_t count;
};

/* Bytes of an arena that fits any message within the bounds: a pair, which has
 * no empty text, takes 8 bytes of the message. */
#define WEIR_RLQS_ARENA_SIZE                                 \
    (WEIR_ARENA_ALIGN +                                      \
     WEIR_RLQS_USAGES_MAX * sizeof(struct weir_rlqs_usage) + \
     WEIR_RLQS_USAGES_MAX * WEIR_RLQS_PAIRS_MAX *            \
         sizeof(struct weir_rlqs_pair))

/* Decodes into 'arena', which is set back first, and checks. Texts point into
 * 'bytes': both must outlive 'out'. Unknown fields are skipped; a field that
 * comes twice is refused. 0, WEIR_ESYNTAX, WEIR_ETOOBIG, or WEIR_EINVAL (a
 * bucket without pairs, with an empty key or value, or one key twice), with a
 * sentence for the peer in 'diag' (may be NULL). */
int weir_rlqs_decode(const void *bytes, size_t len, struct weir_arena *arena,
                     struct weir_rlqs_reports *out, struct weir_diag *diag);

enum weir_rlqs_what {
    WEIR_RLQS_ALLOW_ALL,
    WEIR_RLQS_DENY_ALL,
    WEIR_RLQS_BUCKET, /* 'tokens' at once, and as many each interval */
    WEIR_RLQS_ABANDON,
};
struct weir_rlqs_action {
    struct weir_text bucket; /* the id's bytes */
    enum weir_rlqs_what what;
    bool granted;    /* the bucket is leased; not sent, for the maker of the
                      * action */
    uint32_t tokens; /* BUCKET: > 0; so many at most at once … */
    weir_duration interval; /* … and so many per interval */
    weir_duration lives;    /* time to live of the assignment */
};
/* The bytes of a RateLimitQuotaResponse with one action; the bytes of several
 * may be joined. 'buf' has weir_rlqs_size() bytes. */
size_t weir_rlqs_size(const struct weir_rlqs_action *action);
size_t weir_rlqs_encode(const struct weir_rlqs_action *action, void *buf);

#endif /* WEIR_RLQS_H */
