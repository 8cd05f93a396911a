/* SPDX-License-Identifier: MIT
 * rls_oracle.c - the slow and plain reader, by the generated code. */

#include "rls_oracle.h"

#include <string.h>

#include "rlqs.pb-c.h"
#include "rls.pb-c.h"

typedef Envoy__Service__Ratelimit__V3__RateLimitRequest request_pb;
typedef Envoy__Service__Ratelimit__V3__RateLimitResponse response_pb;
typedef Envoy__Service__Ratelimit__V3__RateLimitDescriptor descriptor_pb;
typedef Envoy__Service__Ratelimit__V3__RateLimitResponse__DescriptorStatus
    status_pb;
/* clang-format off */
#define RLQS(name) Envoy__Service__RateLimitQuota__V3__##name
#define CALL(name) envoy__service__rate_limit_quota__v3__rate_limit_quota_##name
#define CASE(name) ENVOY__SERVICE__RATE_LIMIT_QUOTA__V3__##name
#define ACTION_CASE(name) \
    CASE(RATE_LIMIT_QUOTA_RESPONSE__BUCKET_ACTION__BUCKET_ACTION_##name)
/* clang-format on */
typedef RLQS(RateLimitQuotaUsageReports) reports_pb;
typedef RLQS(RateLimitQuotaUsageReports__BucketQuotaUsage) usage_pb;
typedef RLQS(BucketId) bucket_pb;
typedef RLQS(RateLimitQuotaResponse) actions_pb;
typedef RLQS(RateLimitQuotaResponse__BucketAction) action_pb;
typedef RLQS(TokenBucket) tokens_pb;

/* clang-format off */
const ProtobufCMessageDescriptor *const oracle_rls_type =
    &envoy__service__ratelimit__v3__rate_limit_request__descriptor;
const ProtobufCMessageDescriptor *const oracle_rlqs_type =
    &CALL(usage_reports__descriptor);
/* clang-format on */

static const uint8_t nothing;

static bool same(const char *theirs, struct weir_text ours)
{
    size_t len = strlen(theirs);
    return ours.len >= len && (len == 0 || memcmp(theirs, ours.p, len) == 0) &&
           (ours.len == len || ours.p[len] == '\0');
}

/* ---- RLS ---- */

static bool same_descriptor(const descriptor_pb *theirs,
                            const struct weir_rls_descriptor *ours)
{
    bool same_hits =
        !theirs->hits_addend || theirs->hits_addend->value == ours->hits;
    bool same_unit =
        !theirs->limit || theirs->limit->unit == ours->override_unit;
    if (theirs->n_entries != ours->entry_count ||
        theirs->is_negative_hits != ours->negative ||
        (theirs->limit != NULL) != ours->override_given || !same_unit ||
        (theirs->hits_addend != NULL) != ours->hits_given || !same_hits)
        return false;
    for (size_t i = 0; i < ours->entry_count; i++) {
        if (!same(theirs->entries[i]->key, ours->entries[i].key) ||
            !same(theirs->entries[i]->value, ours->entries[i].value))
            return false;
    }
    return true;
}

static bool same_request(const request_pb *theirs,
                         const struct weir_rls_request *ours)
{
    if (!theirs || !same(theirs->domain, ours->domain) ||
        theirs->hits_addend != ours->hits ||
        theirs->n_descriptors != ours->count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        if (!same_descriptor(theirs->descriptors[i], &ours->descriptors[i]))
            return false;
    }
    return true;
}

bool oracle_rls(const void *bytes, size_t len,
                const struct weir_rls_request *ours)
{
    request_pb *theirs =
        envoy__service__ratelimit__v3__rate_limit_request__unpack(
            NULL, len, len > 0 ? bytes : &nothing);
    bool agrees = same_request(theirs, ours);
    envoy__service__ratelimit__v3__rate_limit_request__free_unpacked(theirs,
                                                                     NULL);
    return agrees;
}

static bool same_duration(int64_t seconds, int32_t nanos, weir_duration ours)
{
    return seconds >= 0 && nanos >= 0 &&
           (uint64_t)seconds == ours / WEIR_SECOND &&
           (uint64_t)nanos == ours % WEIR_SECOND;
}

static bool same_status(const status_pb *theirs,
                        const struct weir_rls_status *ours)
{
    if ((uint32_t)theirs->code != ours->code ||
        theirs->limit_remaining != ours->remaining ||
        (theirs->current_limit != NULL) != ours->limit_given ||
        (theirs->duration_until_reset != NULL) != ours->reset_given)
        return false;
    if (ours->limit_given &&
        ((uint32_t)theirs->current_limit->unit != ours->unit ||
         theirs->current_limit->requests_per_unit != ours->requests_per_unit ||
         !same(theirs->current_limit->name, ours->name)))
        return false;
    return !ours->reset_given ||
           same_duration(theirs->duration_until_reset->seconds,
                         theirs->duration_until_reset->nanos, ours->reset);
}

static bool same_bytes(const ProtobufCBinaryData *theirs, struct weir_text ours)
{
    return theirs->len == ours.len &&
           (ours.len == 0 || memcmp(theirs->data, ours.p, ours.len) == 0);
}

static bool same_answer(const response_pb *theirs,
                        const struct weir_rls_answer *ours)
{
    if (!theirs || (uint32_t)theirs->overall_code != ours->code ||
        theirs->n_statuses != ours->count ||
        theirs->n_response_headers_to_add != ours->header_count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        if (!same_status(theirs->statuses[i], &ours->statuses[i]))
            return false;
    }
    for (size_t i = 0; i < ours->header_count; i++) {
        if (!same(theirs->response_headers_to_add[i]->key,
                  ours->headers[i].key) ||
            !same(theirs->response_headers_to_add[i]->value,
                  ours->headers[i].value))
            return false;
    }
    return same_bytes(&theirs->dynamic_metadata, ours->metadata);
}

bool oracle_rls_answer(const void *bytes, size_t len,
                       const struct weir_rls_answer *ours)
{
    response_pb *theirs =
        envoy__service__ratelimit__v3__rate_limit_response__unpack(
            NULL, len, len > 0 ? bytes : &nothing);
    bool agrees = same_answer(theirs, ours);
    envoy__service__ratelimit__v3__rate_limit_response__free_unpacked(theirs,
                                                                      NULL);
    return agrees;
}

bool oracle_health(const void *bytes, size_t len, struct weir_text service)
{
    Envoy__Service__Ratelimit__V3__HealthCheckRequest *theirs =
        envoy__service__ratelimit__v3__health_check_request__unpack(
            NULL, len, len > 0 ? bytes : &nothing);
    bool agrees = theirs && same(theirs->service, service);
    envoy__service__ratelimit__v3__health_check_request__free_unpacked(theirs,
                                                                       NULL);
    return agrees;
}

/* ---- RLQS ---- */

/* Ours are sorted: each of them is among theirs. Keys come once, but for those
 * that protobuf-c cuts at a NUL. */
static bool same_bucket(const bucket_pb *theirs,
                        const struct weir_rlqs_usage *ours)
{
    if (theirs->n_bucket != ours->pair_count)
        return false;
    for (size_t i = 0; i < ours->pair_count; i++) {
        size_t at = 0;
        while (at < theirs->n_bucket &&
               !(same(theirs->bucket[at]->key, ours->pairs[i].key) &&
                 same(theirs->bucket[at]->value, ours->pairs[i].value)))
            at++;
        if (at == theirs->n_bucket)
            return false;
    }
    return true;
}

static bool same_elapsed(const usage_pb *theirs,
                         const struct weir_rlqs_usage *ours)
{
    if (!theirs->time_elapsed)
        return ours->elapsed == 0;
    int64_t seconds = theirs->time_elapsed->seconds;
    int32_t nanos = theirs->time_elapsed->nanos;
    if (seconds < 0 || seconds >= 366 * 86400 || nanos < 0 ||
        nanos >= (int32_t)WEIR_SECOND)
        return ours->elapsed == 0;
    return same_duration(seconds, nanos, ours->elapsed);
}

static bool same_reports(const reports_pb *theirs,
                         const struct weir_rlqs_reports *ours)
{
    if (!theirs || !same(theirs->domain, ours->domain) ||
        theirs->n_bucket_quota_usages != ours->count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        const usage_pb *a = theirs->bucket_quota_usages[i];
        const struct weir_rlqs_usage *b = &ours->usages[i];
        if (!a->bucket_id || !same_bucket(a->bucket_id, b) ||
            !same_elapsed(a, b) || a->num_requests_allowed != b->allowed ||
            a->num_requests_denied != b->denied)
            return false;
    }
    return true;
}

bool oracle_rlqs(const void *bytes, size_t len,
                 const struct weir_rlqs_reports *ours)
{
    reports_pb *theirs =
        CALL(usage_reports__unpack)(NULL, len, len > 0 ? bytes : &nothing);
    bool agrees = same_reports(theirs, ours);
    CALL(usage_reports__free_unpacked)(theirs, NULL);
    return agrees;
}

static bool same_tokens(const tokens_pb *theirs,
                        const struct weir_rlqs_action *ours)
{
    return theirs->max_tokens == ours->tokens && theirs->tokens_per_fill &&
           theirs->tokens_per_fill->value == ours->tokens &&
           theirs->fill_interval &&
           same_duration(theirs->fill_interval->seconds,
                         theirs->fill_interval->nanos, ours->interval);
}

static bool same_assignment(const action_pb *theirs,
                            const struct weir_rlqs_action *ours)
{
    if (ours->what == WEIR_RLQS_ABANDON)
        return theirs->bucket_action_case == ACTION_CASE(ABANDON_ACTION);
    if (theirs->bucket_action_case != ACTION_CASE(QUOTA_ASSIGNMENT_ACTION))
        return false;
    const RLQS(Duration) *lives =
        theirs->quota_assignment_action->assignment_time_to_live;
    const RLQS(RateLimitStrategy) *strategy =
        theirs->quota_assignment_action->rate_limit_strategy;
    if (!lives || !strategy ||
        !same_duration(lives->seconds, lives->nanos, ours->lives))
        return false;
    if (ours->what == WEIR_RLQS_BUCKET)
        return strategy->strategy_case ==
                   CASE(RATE_LIMIT_STRATEGY__STRATEGY_TOKEN_BUCKET) &&
               same_tokens(strategy->token_bucket, ours);
    return strategy->strategy_case ==
               CASE(RATE_LIMIT_STRATEGY__STRATEGY_BLANKET_RULE) &&
           (strategy->blanket_rule ==
            CASE(RATE_LIMIT_STRATEGY__BLANKET_RULE__DENY_ALL)) ==
               (ours->what == WEIR_RLQS_DENY_ALL);
}

bool oracle_rlqs_action(const void *bytes, size_t len,
                        const struct weir_rlqs_action *ours)
{
    actions_pb *theirs = CALL(response__unpack)(NULL, len, bytes);
    bool agrees = theirs && theirs->n_bucket_action == 1 &&
                  theirs->bucket_action[0]->bucket_id &&
                  same_assignment(theirs->bucket_action[0], ours);
    CALL(response__free_unpacked)(theirs, NULL);
    return agrees;
}
