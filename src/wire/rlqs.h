/* SPDX-License-Identifier: MIT
 * wire/rlqs.h - Envoy's rate limit quota service on the wire: reports of
 * envoy.service.rate_limit_quota.v3 from bytes, assignments to bytes.
 *
 * A client names its buckets by maps of keys and values, says how many
 * requests each let through, and is told what each may do until when. The
 * bytes are one protobuf message, without the gRPC frame:
 *
 *     RateLimitQuotaUsageReports  1 domain (in the first message), 2 usages
 *       BucketQuotaUsage          1 bucket, 2 elapsed, 3 allowed, 4 denied
 *     RateLimitQuotaResponse      1 actions
 *       BucketAction              1 bucket, 2 assignment or 3 abandon
 *         QuotaAssignmentAction   2 time to live, 3 strategy
 *           RateLimitStrategy     1 all or nothing, 3 token bucket */

#ifndef WEIR_RLQS_H
#define WEIR_RLQS_H

#include "wire/rls.h"

#define WEIR_RLQS_STREAM                                        \
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/" \
    "StreamRateLimitQuotas"

/* Bounds of a message. */
#define WEIR_RLQS_BYTES_MAX (1u << 20)
#define WEIR_RLQS_USAGES_MAX 4096u
#define WEIR_RLQS_PAIRS_MAX 16u /* of one bucket */

struct weir_rlqs_usage {
    /* By key, each once; as many as 'pair_count', at least one, neither key
     * nor value empty. */
    struct weir_rls_entry pairs[WEIR_RLQS_PAIRS_MAX];
    uint32_t pair_count;
    uint64_t allowed, denied; /* requests since the last report */
    weir_duration elapsed;    /* since then; 0: not said */
    struct weir_text bucket;  /* the bytes of the id, to be said again */
};

/* What is still to be read of a message. */
struct weir_rlqs_reports {
    struct weir_text domain; /* empty: none given */
    struct weir_text left;
    uint32_t count; /* of usages */
};

/* Begins to read: checks all of the message, so that what follows can't fail.
 * 0, WEIR_ESYNTAX, WEIR_ETOOBIG, or WEIR_EINVAL (a bucket without pairs, with
 * an empty key or value, or one key twice). */
int weir_rlqs_read(const void *bytes, size_t len, struct weir_rlqs_reports *out,
                   struct weir_diag *diag);
/* The next usage; false: there is none. Texts point into the message. */
bool weir_rlqs_next(struct weir_rlqs_reports *reports,
                    struct weir_rlqs_usage *out);

enum weir_rlqs_what {
    WEIR_RLQS_ALLOW_ALL,
    WEIR_RLQS_DENY_ALL,
    WEIR_RLQS_BUCKET, /* so many tokens at once, and each interval */
    WEIR_RLQS_ABANDON,
};
struct weir_rlqs_action {
    struct weir_text bucket; /* the bytes of its id */
    enum weir_rlqs_what what;
    bool granted;    /* by a lease; for who makes the action, and not sent */
    uint32_t tokens; /* BUCKET: > 0; at most so many at once … */
    weir_duration interval; /* … and so many each interval */
    weir_duration lives;    /* how long it is good for */
};
/* The bytes of a RateLimitQuotaResponse with this action alone; messages of
 * this kind may be joined. 'buf' has weir_rlqs_size() bytes. */
size_t weir_rlqs_size(const struct weir_rlqs_action *action);
size_t weir_rlqs_encode(const struct weir_rlqs_action *action, void *buf);

#endif /* WEIR_RLQS_H */
