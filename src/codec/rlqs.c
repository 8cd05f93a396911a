/* SPDX-License-Identifier: MIT
 * codec/rlqs.c - Envoy's rate limit quota service, by hand.
 *
 * Theory of operation. A message may name thousands of buckets, so it is read
 * one usage at a time: a first walk checks the whole message, a second one
 * hands out its usages. A bucket's id is a map with its pairs in any order:
 * they are sorted by key, so that a bucket has one name. The bytes as received
 * are kept too, for the answers.
 *
 * An answer is a list of actions. Since protobuf reads two messages in a row
 * as one, each action is encoded by itself and its bytes are joined. */

#include "codec/rlqs.h"

#include "codec/protobuf_bytes.h"

static int refuse_broken_usage(struct weir_diag *diag)
{
    return weir_diag_put(diag, WEIR_ESYNTAX,
                         "these are no RateLimitQuotaUsageReports");
}

/* ---- A bucket's id ---- */

static int read_bucket_pair(struct weir_wire_in in, struct weir_rls_entry *out,
                            struct weir_diag *diag)
{
    if (weir_rls_read_entry(weir_wire_text(in), out) < 0)
        return refuse_broken_usage(diag);
    if (out->key.len == 0 || out->value.len == 0)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "a bucket_id has an empty key or value");
    return 0;
}

/* Inserts a pair in the order of keys. */
static int insert_pair(struct weir_rlqs_usage *usage,
                       const struct weir_rls_entry *pair,
                       struct weir_diag *diag)
{
    uint32_t at = usage->pair_count;
    if (at == WEIR_RLQS_PAIRS_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG,
                             "a bucket_id has more than 16 pairs");
    while (at > 0 &&
           weir_text_compare(usage->pairs[at - 1].key, pair->key) > 0) {
        usage->pairs[at] = usage->pairs[at - 1];
        at--;
    }
    usage->pairs[at] = *pair;
    usage->pair_count++;
    weir_assert(usage->pair_count <= WEIR_RLQS_PAIRS_MAX);
    if (at > 0 && weir_text_equal(usage->pairs[at - 1].key, pair->key))
        return weir_diag_put(diag, WEIR_EINVAL,
                             "a bucket_id has one key twice");
    return 0;
}

static int read_bucket(struct weir_wire_in in, struct weir_rlqs_usage *usage,
                       struct weir_diag *diag)
{
    struct weir_wire_item item;
    int more;
    int error = 0;
    usage->bucket = weir_wire_text(in);
    usage->pair_count = 0;
    while (error == 0 && (more = weir_wire_next(&in, &item)) != 0) {
        struct weir_rls_entry pair;
        if (more < 0)
            return refuse_broken_usage(diag);
        if (!weir_wire_is(&item, 1, WEIR_WIRE_BYTES))
            continue;
        error = read_bucket_pair(item.bytes, &pair, diag);
        if (error == 0)
            error = insert_pair(usage, &pair, diag);
    }
    return error;
}

/* ---- A usage ---- */

static int read_duration(struct weir_wire_in in, weir_duration *out)
{
    struct weir_wire_item item;
    uint64_t seconds = 0;
    uint64_t nanos = 0;
    int more;
    while ((more = weir_wire_next(&in, &item)) > 0) {
        if (weir_wire_is(&item, 1, WEIR_WIRE_VARINT))
            seconds = item.value;
        else if (weir_wire_is(&item, 2, WEIR_WIRE_VARINT))
            nanos = item.value;
    }
    /* Negative, or over 366 days: taken as not given. */
    bool sound = seconds < 366ull * 86400 && nanos < WEIR_SECOND;
    *out = sound ? seconds * WEIR_SECOND + nanos : 0;
    return more;
}

static int read_usage_field(const struct weir_wire_item *item,
                            struct weir_rlqs_usage *usage,
                            struct weir_diag *diag)
{
    if (weir_wire_is(item, 1, WEIR_WIRE_BYTES))
        return read_bucket(item->bytes, usage, diag);
    if (weir_wire_is(item, 2, WEIR_WIRE_BYTES))
        return read_duration(item->bytes, &usage->elapsed) < 0
                   ? refuse_broken_usage(diag)
                   : 0;
    if (weir_wire_is(item, 3, WEIR_WIRE_VARINT))
        usage->allowed = item->value;
    else if (weir_wire_is(item, 4, WEIR_WIRE_VARINT))
        usage->denied = item->value;
    return 0;
}

static int read_usage(struct weir_wire_in in, struct weir_rlqs_usage *out,
                      struct weir_diag *diag)
{
    struct weir_wire_item item;
    int more;
    int error = 0;
    out->pair_count = 0;
    out->allowed = out->denied = 0;
    out->elapsed = 0;
    out->bucket = (struct weir_text){ NULL, 0 };
    while (error == 0 && (more = weir_wire_next(&in, &item)) != 0)
        error = more < 0 ? refuse_broken_usage(diag)
                         : read_usage_field(&item, out, diag);
    if (error == 0 && out->pair_count == 0)
        return weir_diag_put(diag, WEIR_EINVAL, "a bucket_id has no pairs");
    return error;
}

int weir_rlqs_read(const void *bytes, size_t len, struct weir_rlqs_reports *out,
                   struct weir_diag *diag)
{
    struct weir_wire_in in = weir_wire_over(bytes, len);
    struct weir_wire_item item;
    struct weir_rlqs_usage usage;
    int more;
    int error = 0;
    *out = (struct weir_rlqs_reports){ .left = { bytes, len } };
    if (len > WEIR_RLQS_BYTES_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG, "a report is over 1 MiB");
    while (error == 0 && (more = weir_wire_next(&in, &item)) != 0) {
        if (more < 0)
            return refuse_broken_usage(diag);
        if (weir_wire_is(&item, 1, WEIR_WIRE_BYTES))
            out->domain = weir_wire_text(item.bytes);
        if (!weir_wire_is(&item, 2, WEIR_WIRE_BYTES))
            continue;
        if (++out->count > WEIR_RLQS_USAGES_MAX)
            return weir_diag_put(diag, WEIR_ETOOBIG,
                                 "more than 4096 buckets in a report");
        error = read_usage(item.bytes, &usage, diag);
    }
    return error;
}

bool weir_rlqs_next(struct weir_rlqs_reports *reports,
                    struct weir_rlqs_usage *out)
{
    struct weir_wire_in in = weir_wire_over(reports->left.p, reports->left.len);
    struct weir_wire_item item;
    bool found = false;
    while (!found && weir_wire_next(&in, &item) > 0)
        found = weir_wire_is(&item, 2, WEIR_WIRE_BYTES);
    reports->left = weir_wire_text(in);
    if (!found)
        return false;
    int error = read_usage(item.bytes, out, NULL);
    weir_assert(error == 0); /* weir_rlqs_read() has checked the message */
    return true;
}

/* ---- Actions ---- */

static size_t bucket_size(const struct weir_rlqs_action *action)
{
    return weir_wire_number_size(action->tokens) +
           weir_wire_message_size(weir_wire_number_size(action->tokens)) +
           weir_wire_message_size(weir_wire_duration_size(action->interval));
}

/* A member of a oneof is written even if it is 0 (ALLOW_ALL). */
#define BLANKET_SIZE 2

static size_t strategy_size(const struct weir_rlqs_action *action)
{
    if (action->what == WEIR_RLQS_BUCKET)
        return weir_wire_message_size(bucket_size(action));
    return BLANKET_SIZE;
}

static size_t assignment_size(const struct weir_rlqs_action *action)
{
    return weir_wire_message_size(weir_wire_duration_size(action->lives)) +
           weir_wire_message_size(strategy_size(action));
}

static size_t action_size(const struct weir_rlqs_action *action)
{
    size_t size = weir_wire_message_size(action->bucket.len);
    if (action->what == WEIR_RLQS_ABANDON)
        return size + weir_wire_message_size(0);
    return size + weir_wire_message_size(assignment_size(action));
}

size_t weir_rlqs_size(const struct weir_rlqs_action *action)
{
    return weir_wire_message_size(action_size(action));
}

static uint8_t *put_strategy(uint8_t *p, const struct weir_rlqs_action *action)
{
    p = weir_wire_put_head(p, 3, strategy_size(action));
    if (action->what != WEIR_RLQS_BUCKET) {
        *p++ = 1 << 3 | WEIR_WIRE_VARINT;
        *p++ = action->what == WEIR_RLQS_DENY_ALL;
        return p;
    }
    p = weir_wire_put_head(p, 3, bucket_size(action));
    p = weir_wire_put_number(p, 1, action->tokens);
    p = weir_wire_put_head(p, 2, weir_wire_number_size(action->tokens));
    p = weir_wire_put_number(p, 1, action->tokens);
    return weir_wire_put_duration(p, 3, action->interval);
}

size_t weir_rlqs_encode(const struct weir_rlqs_action *action, void *buf)
{
    uint8_t *p = weir_wire_put_head(buf, 1, action_size(action));
    p = weir_wire_put_head(p, 1, action->bucket.len);
    memcpy(p, action->bucket.p, action->bucket.len);
    p += action->bucket.len;
    if (action->what == WEIR_RLQS_ABANDON) {
        p = weir_wire_put_head(p, 3, 0);
    } else {
        p = weir_wire_put_head(p, 2, assignment_size(action));
        p = weir_wire_put_duration(p, 2, action->lives);
        p = put_strategy(p, action);
    }
    size_t size = (size_t)(p - (uint8_t *)buf);
    weir_assert(size == weir_rlqs_size(action));
    return size;
}
