/* SPDX-License-Identifier: MIT
 * protocol/resp/throttle_counted.c - redis-cell's requests and replies, by a
 * counted quota.
 *
 * GCRA and a leaky bucket are equivalent: a tat that is d ahead of now is a
 * bucket that empties in d. Burst, count and period therefore make the quota,
 * and its reply is converted to redis-cell's. The conversion rounds against the
 * client: 'fill' is in whole units, so the units left after a refusal are
 * reported one lower, and below the requested number.
 *
 * A refused caller is told the wait and up to a quarter more
 * (weir_table_jitter()), while the time until all is free has no such part. A
 * client may take the first above the second for an error, so the second is
 * then raised: a wait cut to it could end before the caller may pass, if
 * another reason than the fill limits. */

#include "protocol/resp/throttle_counted.h"

#include <string.h>

#include "codec/resp.h"
#include "core/quota/throttle_name.h"

/* Bytes of a name: a rule, and the longest key of a request. */
#define NAME_MAX_BYTES (WEIR_RESP_REQUEST_MAX + 64)

int weir_throttle_sharing_parse(const char *text, bool *out_counted,
                                struct weir_diag *diag)
{
    bool is_counted = strcmp(text, "counted") == 0;
    if (!is_counted && strcmp(text, "local") != 0)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "there is local and counted, not '", text, "'",
                             NULL);
    *out_counted = is_counted;
    return 0;
}

/* The rule of a request, and the name of its quota. 0, WEIR_EINVAL or
 * WEIR_ENAME. */
static int read_rule(const struct weir_throttle_ask *ask,
                     struct weir_throttle_rule *out, char name[NAME_MAX_BYTES],
                     size_t *out_len)
{
    bool sound = ask->max_burst >= 0 && ask->count > 0 && ask->period_s > 0 &&
                 ask->quantity <= (int64_t)WEIR_WEIGHT_MAX &&
                 ask->quantity >= -(int64_t)WEIR_WEIGHT_MAX;
    *out = (struct weir_throttle_rule){
        .burst = (uint64_t)ask->max_burst + 1,
        .count = (uint64_t)ask->count,
        .period_s = (uint64_t)ask->period_s,
    };
    if (!sound || !weir_throttle_rule_check(out))
        return WEIR_EINVAL;
    *out_len = weir_throttle_name_write(out, ask->key, name, NAME_MAX_BYTES);
    return *out_len > 0 ? 0 : WEIR_ENAME;
}

/* Rounds durations as redis-cell does. */
static int64_t round_wide_to_seconds(weir_u128 time)
{
    return (int64_t)(time / WEIR_SECOND) +
           (time % WEIR_SECOND >= WEIR_MILLISECOND);
}

/* Time until so many units have leaked. */
static int64_t drain_time(const struct weir_throttle_rule *rule, uint64_t units)
{
    return round_wide_to_seconds((weir_u128)units * rule->period_s *
                                 WEIR_SECOND / rule->count);
}

/* 'weight' units were looked for, but not taken. */
static void put_passed(const struct weir_throttle_rule *rule,
                       const struct weir_reply *reply, uint64_t weight,
                       struct weir_throttle_reply *out)
{
    uint64_t left = reply->remaining > weight ? reply->remaining - weight : 0;
    /* A stored quota of that name may have any limit. */
    if (left > rule->burst)
        left = rule->burst;
    out->remaining = (int64_t)left;
    out->retry_after_s = -1;
    out->reset_after_s = drain_time(rule, rule->burst - left);
}

static void put_limited(const struct weir_throttle_rule *rule,
                        const struct weir_reply *reply, uint64_t weight,
                        struct weir_throttle_reply *out)
{
    uint64_t fill = reply->fill > 0 ? (uint64_t)reply->fill : 0;
    fill = fill < rule->burst ? fill + 1 : rule->burst;
    uint64_t left = rule->burst - fill;
    out->limited = true;
    /* If even a weight of 0 doesn't pass, nothing is left. */
    uint64_t most = weight > 0 ? weight - 1 : 0;
    out->remaining = (int64_t)(left < most ? left : most);
    out->reset_after_s = drain_time(rule, fill);
    out->retry_after_s = -1;
    if (!reply->never)
        out->retry_after_s = round_wide_to_seconds(reply->retry_after);
    if (out->reset_after_s < out->retry_after_s)
        out->reset_after_s = out->retry_after_s;
}

static int refund_units(const struct weir_protocol_host *host,
                        struct weir_text name, uint64_t units, weir_instant now)
{
    struct weir_handle handle = { .weir = NULL };
    int error = weir_handle_open(host->weir, name.p, name.len, &handle);
    if (error == 0)
        weir_refund(handle, units, now);
    weir_handle_close(handle);
    return error;
}

int weir_throttle_counted_may(const struct weir_protocol_host *host,
                              const struct weir_protocol_taker *taker,
                              const struct weir_throttle_ask *ask,
                              struct weir_diag *diag, weir_instant now)
{
    char name[NAME_MAX_BYTES];
    size_t len;
    struct weir_throttle_rule rule;
    int error = read_rule(ask, &rule, name, &len);
    if (error < 0)
        return weir_diag_put(
            diag, error,
            error == WEIR_EINVAL
                ? "a burst, a count, a period or a quantity is out of range"
                : "a key that a credential may be limited to is UTF-8 without "
                  "control characters");
    return weir_protocol_may(host, taker, (struct weir_text){ name, len }, diag,
                             now);
}

int weir_throttle_counted_decide(const struct weir_protocol_host *host,
                                 const struct weir_throttle_ask *ask,
                                 struct weir_throttle_reply *out,
                                 weir_instant now)
{
    char name[NAME_MAX_BYTES];
    size_t len;
    struct weir_throttle_rule rule;
    struct weir_reply reply;
    int error = read_rule(ask, &rule, name, &len);
    if (error == 0 && ask->quantity < 0 && !ask->probe)
        error = refund_units(host, (struct weir_text){ name, len },
                             (uint64_t)-ask->quantity, now);
    if (error < 0)
        return error;
    uint64_t weight = ask->quantity > 0 ? (uint64_t)ask->quantity : 0;
    bool looks = ask->probe || weight == 0;
    if (looks)
        (void)weir_peek_by_name(host->weir, name, len, weight, &reply, now);
    else
        (void)weir_take_by_name(host->weir, name, len, weight, &reply, now);
    if (reply.unknown)
        return WEIR_EFULL;
    *out = (struct weir_throttle_reply){ .limit = (int64_t)rule.burst };
    if (reply.verdict == WEIR_LIMITED)
        put_limited(&rule, &reply, weight, out);
    else
        put_passed(&rule, &reply, looks ? weight : 0, out);
    return 0;
}
