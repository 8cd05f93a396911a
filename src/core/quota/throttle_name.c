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

#define NUMBER_MAX 16 /* digits, as WEIR_BURST_MAX has them */

/* ---- Reading ---- */

static bool take_digits(struct weir_text *rest, uint64_t *out)
{
    uint64_t value = 0;
    size_t at = 0;
    for (; at < rest->len && at <= NUMBER_MAX; at++) {
        unsigned digit = (unsigned)(unsigned char)rest->p[at] - '0';
        if (digit > 9)
            break;
        value = value * 10 + digit;
    }
    if (at == 0 || at > NUMBER_MAX || rest->p[0] == '0')
        return false;
    *rest = (struct weir_text){ rest->p + at, rest->len - at };
    *out = value;
    return true;
}

static bool take_text(struct weir_text *rest, const char *text)
{
    size_t len = strlen(text);
    if (rest->len < len || memcmp(rest->p, text, len) != 0)
        return false;
    *rest = (struct weir_text){ rest->p + len, rest->len - len };
    return true;
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
    struct weir_text rest = name;
    if (!take_text(&rest, WEIR_THROTTLE_PREFIX) ||
        !take_digits(&rest, &rule.burst) || !take_text(&rest, ":") ||
        !take_digits(&rest, &rule.count) || !take_text(&rest, "/") ||
        !take_digits(&rest, &rule.period_s) || !take_text(&rest, "s:") ||
        !weir_throttle_rule_check(&rule))
        return false;
    weir_quota_init(out);
    out->name = name;
    out->limit = (struct weir_limit){ .units = rule.count,
                                      .per = rule.period_s * WEIR_SECOND };
    out->low_burst = (struct weir_burst){ .amount = rule.burst };
    out->high_burst = out->low_burst;
    out->on_stale = WEIR_STALE_SHARE;
    return true;
}

/* ---- Writing ---- */

static char *write_digits(char *at, uint64_t value)
{
    char digits[NUMBER_MAX + 4];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

static char *write_chars(char *at, const char *text)
{
    size_t len = strlen(text);
    memcpy(at, text, len);
    return at + len;
}

size_t weir_throttle_name_write(const struct weir_throttle_rule *rule,
                                struct weir_text key, char *buf)
{
    if (!weir_throttle_rule_check(rule))
        return 0;
    char *at = write_chars(buf, WEIR_THROTTLE_PREFIX);
    at = write_chars(write_digits(at, rule->burst), ":");
    at = write_chars(write_digits(at, rule->count), "/");
    at = write_chars(write_digits(at, rule->period_s), "s:");
    size_t len = (size_t)(at - buf);
    if (key.len > WEIR_NAME_MAX - len)
        return 0;
    if (key.len > 0)
        memcpy(at, key.p, key.len);
    len += key.len;
    return weir_name_check((struct weir_text){ buf, len }, NULL) == 0 ? len : 0;
}
