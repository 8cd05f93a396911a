/* SPDX-License-Identifier: MIT
 * quota/throttle_name.c - a limit as a part of a name.
 *
 * Why in the name: a root must know the limit of a quota that it adds up, and a
 * limiter sends the name of each quota that it uses and when it was created.
 * With the limit beside the name in that message, two clients that use one key
 * with two rates would need a rule for which rate wins, the same on every root,
 * with racing edits; and a region would have to forward it. A name needs none
 * of that. The cost is some 15 bytes of each name, once per session.
 *
 * Rejected: a template for each rate, made at the first request with it.
 * Templates have epochs, which only the store assigns. */

#include "core/quota/throttle_name.h"

#include "core/quota/long_name.h"
#include "core/quota/quota_text.h"

#define DIGITS_MAX 16 /* as WEIR_BURST_MAX has them */

/* A number without a leading zero, up to 'c' and with it. */
static bool take_number(struct weir_text *rest, char c, uint64_t *out)
{
    struct weir_text digits = weir_text_cut(rest, c);
    return rest->p && digits.len <= DIGITS_MAX &&
           weir_number_parse(digits, out) && digits.p[0] != '0';
}

bool weir_throttle_rule_check(const struct weir_throttle_rule *rule)
{
    return rule->burst >= 1 && rule->burst <= WEIR_BURST_MAX &&
           rule->count >= 1 && rule->count <= WEIR_BURST_MAX &&
           rule->period_s >= 1 &&
           rule->period_s <= WEIR_PERIOD_MAX / WEIR_SECOND &&
           rule->count <= WEIR_LIMIT_MAX * rule->period_s;
}

bool weir_throttle_name_read(struct weir_text name, struct weir_quota *out)
{
    struct weir_throttle_rule rule;
    struct weir_text prefix = WEIR_TEXT(WEIR_THROTTLE_PREFIX);
    if (!weir_text_begins(name, prefix))
        return false;
    struct weir_text rest = weir_text_drop(name, prefix.len);
    if (!take_number(&rest, ':', &rule.burst) ||
        !take_number(&rest, '/', &rule.count) ||
        !take_number(&rest, 's', &rule.period_s) ||
        !weir_text_begins(rest, WEIR_TEXT(":")) ||
        !weir_throttle_rule_check(&rule))
        return false;
    weir_quota_init(out);
    out->name = name;
    out->limit = (struct weir_limit){ .units = rule.count,
                                      .per = rule.period_s * WEIR_SECOND };
    out->low_burst = (struct weir_burst){ .amount = rule.burst };
    out->high_burst = out->low_burst;
    out->on_stale = WEIR_STALE_SHARE;
    weir_assert(out->limit.units > 0 && out->limit.per <= WEIR_PERIOD_MAX);
    return true;
}

size_t weir_throttle_name_write(const struct weir_throttle_rule *rule,
                                struct weir_text key, char *buf, size_t size)
{
    if (!weir_throttle_rule_check(rule))
        return 0;
    struct weir_out out = { buf, size, 0 };
    weir_out_string(&out, WEIR_THROTTLE_PREFIX);
    weir_out_number(&out, rule->burst);
    weir_out_string(&out, ":");
    weir_out_number(&out, rule->count);
    weir_out_string(&out, "/");
    weir_out_number(&out, rule->period_s);
    weir_out_string(&out, "s:");
    weir_assert(out.len < out.size); /* the rule isn't cut */
    if (key.len > out.size - out.len)
        return 0;
    weir_out_text(&out, key);
    struct weir_text name = { buf, out.len };
    return weir_given_name_check(name, NULL) == 0 ? name.len : 0;
}
