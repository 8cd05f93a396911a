/* SPDX-License-Identifier: MIT
 * codec/rlqs.c - Envoy's rate limit quota service, by tables of its fields
 * (message_fields.h).
 *
 * Theory of operation. A bucket's id is a map with its pairs in any order: they
 * are sorted by key, so that a bucket has one name. The bytes as received are
 * kept too, for the answers: so an id is first read as a text, then as a
 * message. In two ids of one usage, protobuf would see one map; a field that
 * comes twice is refused instead.
 *
 * An answer is a list of actions. Since protobuf reads two messages in a row
 * as one, each action is encoded by itself and its bytes are joined. */

#include "codec/rlqs.h"

#include "codec/message_fields.h"

/* ---- Reports ---- */

#define THIS struct weir_rlqs_pair
static const struct weir_proto_field pair_fields[] = {
    { 1, TEXT(key) },
    { 2, TEXT(value) },
};
static const struct weir_proto_message pair = { FIELDS(pair_fields) };
#undef THIS

#define THIS struct weir_rlqs_usage
static const struct weir_proto_field bucket_fields[] = {
    { 1, PARTS(pairs, pair_count, pair), .max = WEIR_RLQS_PAIRS_MAX },
};
static const struct weir_proto_message bucket = { FLAT_FIELDS(bucket_fields) };
static const struct weir_proto_field usage_fields[] = {
    { 1, TEXT(bucket) },
    { 2, DURATION(elapsed) },
    { 3, NUMBER(allowed) },
    { 4, NUMBER(denied) },
};
static const struct weir_proto_message usage = { FIELDS(usage_fields) };
#undef THIS

#define THIS struct weir_rlqs_reports
static const struct weir_proto_field reports_fields[] = {
    { 1, TEXT(domain) },
    { 2, PARTS(usages, count, usage), .max = WEIR_RLQS_USAGES_MAX },
};
static const struct weir_proto_message reports = { FIELDS(reports_fields) };
#undef THIS

/* By insertion: there are a few pairs, mostly in order. */
static void sort_pairs(struct weir_rlqs_pair *pairs, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct weir_rlqs_pair moved = pairs[i];
        size_t at = i;
        for (; at > 0 && weir_text_compare(pairs[at - 1].key, moved.key) > 0;
             at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = moved;
    }
}

static int check_pairs(const struct weir_rlqs_usage *from,
                       struct weir_diag *diag)
{
    if (from->pair_count == 0)
        return weir_diag_put(diag, WEIR_EINVAL, "a bucket_id has no pairs");
    for (size_t i = 0; i < from->pair_count; i++) {
        const struct weir_rlqs_pair *at = &from->pairs[i];
        if (at->key.len == 0 || at->value.len == 0)
            return weir_diag_put(diag, WEIR_EINVAL,
                                 "a bucket_id has an empty key or value");
        if (i > 0 && weir_text_equal(at[-1].key, at->key))
            return weir_diag_put(diag, WEIR_EINVAL,
                                 "a bucket_id has one key twice");
    }
    return 0;
}

static int refuse_reports(int error, struct weir_diag *diag)
{
    if (error == WEIR_ETOOBIG)
        return weir_diag_put(diag, error,
                             "more than 4096 buckets in a report, or more than "
                             "16 pairs in a bucket_id");
    return weir_diag_put(diag, WEIR_ESYNTAX,
                         "these are no RateLimitQuotaUsageReports");
}

static int read_pairs(struct weir_rlqs_usage *of, struct weir_arena *arena,
                      struct weir_diag *diag)
{
    int error =
        weir_proto_get(&bucket, weir_wire_over(of->bucket.p, of->bucket.len),
                       WEIR_PROTO_AGAIN_REFUSED, arena, of, NULL);
    if (error < 0)
        return refuse_reports(error, diag);
    sort_pairs(of->pairs, of->pair_count);
    return check_pairs(of, diag);
}

int weir_rlqs_decode(const void *bytes, size_t len, struct weir_arena *arena,
                     struct weir_rlqs_reports *out, struct weir_diag *diag)
{
    if (len > WEIR_RLQS_BYTES_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG, "a report is over 1 MiB");
    arena->used = 0;
    int error = weir_proto_get(&reports, weir_wire_over(bytes, len),
                               WEIR_PROTO_AGAIN_REFUSED, arena, out, NULL);
    if (error < 0)
        return refuse_reports(error, diag);
    for (size_t i = 0; i < out->count && error == 0; i++)
        error = read_pairs(&out->usages[i], arena, diag);
    return error;
}

/* ---- Actions ---- */

struct response {
    struct weir_rlqs_action action;
    bool is_assigned; /* else abandoned */
    bool has_tokens;  /* else all or nothing: */
    uint32_t blanket;
};
enum { ALLOW_ALL, DENY_ALL }; /* numbers of the wire */

#define THIS struct response
static const struct weir_proto_field tokens_fields[] = {
    { 1, NUMBER(action.tokens) },
};
static const struct weir_proto_message tokens = { FLAT_FIELDS(tokens_fields) };
static const struct weir_proto_field token_bucket_fields[] = {
    { 1, NUMBER(action.tokens) },
    { 2, FLAT(tokens), ALWAYS },
    { 3, DURATION(action.interval), ALWAYS },
};
static const struct weir_proto_message token_bucket = { FLAT_FIELDS(
    token_bucket_fields) };
static const struct weir_proto_field strategy_fields[] = {
    { 1, NUMBER(blanket), UNLESS(has_tokens) },
    { 3, FLAT(token_bucket), IF(has_tokens) },
};
static const struct weir_proto_message strategy = { FLAT_FIELDS(
    strategy_fields) };
static const struct weir_proto_field assignment_fields[] = {
    { 2, DURATION(action.lives), ALWAYS },
    { 3, FLAT(strategy) },
};
static const struct weir_proto_message assignment = { FLAT_FIELDS(
    assignment_fields) };
static const struct weir_proto_message abandon = { .count = 0 };
static const struct weir_proto_field action_fields[] = {
    { 1, TEXT(action.bucket), ALWAYS },
    { 2, FLAT(assignment), IF(is_assigned) },
    { 3, FLAT(abandon), UNLESS(is_assigned) },
};
static const struct weir_proto_message action = { FLAT_FIELDS(action_fields) };
static const struct weir_proto_field response_fields[] = {
    { 1, FLAT(action) },
};
static const struct weir_proto_message response = { FIELDS(response_fields) };
#undef THIS

static struct response response_of(const struct weir_rlqs_action *sent)
{
    return (struct response){
        .action = *sent,
        .is_assigned = sent->what != WEIR_RLQS_ABANDON,
        .has_tokens = sent->what == WEIR_RLQS_BUCKET,
        .blanket = sent->what == WEIR_RLQS_DENY_ALL ? DENY_ALL : ALLOW_ALL,
    };
}

size_t weir_rlqs_size(const struct weir_rlqs_action *sent)
{
    const struct response made = response_of(sent);
    return weir_proto_size(&response, &made);
}

size_t weir_rlqs_encode(const struct weir_rlqs_action *sent, void *buf)
{
    const struct response made = response_of(sent);
    size_t size = weir_proto_size(&response, &made);
    weir_proto_put(&response, &made, size, buf);
    return size;
}
