/* SPDX-License-Identifier: MIT
 * test/quota_maker.c - random quotas.
 *
 * Texts are made of the pieces that break parsers: quotes, colons, leading
 * blanks, words that YAML takes for another type, characters of every UTF-8
 * length. */

#include "quota_maker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const pieces[] = {
    "a",
    "Z9",
    "/",
    "_",
    "-",
    ".",
    " ",
    "  ",
    ":",
    ": ",
    " #",
    "#",
    "'",
    "\"",
    "\\",
    "\\n",
    "%",
    "@",
    "`",
    "[",
    "]",
    ",",
    "&x",
    "!t",
    "|",
    ">",
    "?",
    "- ",
    "null",
    "~",
    "true",
    "no",
    "1e3",
    "0x10",
    "=",
    "<<",
    "\xC3\xA9",
    "\xE2\x82\xAC",
    "\xF0\x9F\x98\x80",
    "\xEF\xBB\xBF",
    "\xEF\xBF\xBE",
    "\xE2\x80\xA8",
    "\xC2\xA0",
    "---",
    "...",
    "x\\u0041",
};

static size_t make_text(struct weir_rng *rng, char *buf, size_t room,
                        size_t most)
{
    size_t len = 0;
    for (size_t i = weir_rng_below(rng, most + 1); i > 0; i--) {
        const char *piece = pieces[weir_rng_below(rng, WEIR_COUNT_OF(pieces))];
        size_t piece_len = strlen(piece);
        if (len + piece_len > room)
            break;
        memcpy(buf + len, piece, piece_len);
        len += piece_len;
    }
    return len;
}

struct weir_limit make_limit(struct weir_rng *rng)
{
    static const weir_duration periods[] = {
        1,
        1000,
        1000000,
        WEIR_SECOND,
        60 * WEIR_SECOND,
        3600 * WEIR_SECOND,
        86400 * WEIR_SECOND,
        604800 * WEIR_SECOND,
    };
    struct weir_limit limit = { .per = WEIR_SECOND };
    limit.unlimited = weir_rng_below(rng, 16) == 0;
    if (limit.unlimited)
        return limit;
    limit.per = periods[weir_rng_below(rng, WEIR_COUNT_OF(periods))] *
                (1 + (weir_rng_next(rng) & 1 ? weir_rng_below(rng, 52) : 0));
    if (weir_rng_below(rng, 4) == 0)
        limit.per = 1 + weir_rng_below(rng, WEIR_PERIOD_MAX);
    weir_u128 most = (weir_u128)WEIR_LIMIT_MAX * limit.per / WEIR_SECOND;
    limit.units =
        weir_rng_below(rng, (uint64_t)most + 1) >> weir_rng_below(rng, 64);
    return limit;
}

struct weir_burst make_burst(struct weir_rng *rng)
{
    struct weir_burst burst = { .in_time = weir_rng_next(rng) & 1 };
    uint64_t most = burst.in_time ? WEIR_PERIOD_MAX : WEIR_BURST_MAX;
    burst.amount = weir_rng_below(rng, most + 1) >> weir_rng_below(rng, 55);
    if (weir_rng_below(rng, 3) == 0)
        burst.amount = burst.amount / 1000000 * 1000000;
    return burst;
}

static const char *pick(struct weir_rng *rng, const char *const *from,
                        size_t count)
{
    return from[weir_rng_below(rng, count)];
}

/* In a third of all cases the field is left at its default. */
static void maybe_set(struct weir_rng *rng, struct weir_quota *quota,
                      const char *field, const char *value)
{
    bool wanted = weir_quota_applies(quota, field) && weir_rng_below(rng, 3);
    if (wanted && weir_quota_set(quota, weir_text_of(field),
                                 weir_text_of(value), NULL) < 0)
        abort();
}

static void make_bursts(struct weir_rng *rng, struct weir_quota *quota)
{
    if (weir_quota_applies(quota, "low_burst") && weir_rng_below(rng, 3))
        quota->low_burst = make_burst(rng);
    if (weir_quota_applies(quota, "high_burst") && weir_rng_below(rng, 3))
        quota->high_burst = make_burst(rng);
    if (weir_quota_applies(quota, "initial") && weir_rng_below(rng, 3))
        quota->initial = make_burst(rng);
}

static void make_windows(struct weir_rng *rng, struct weir_quota *quota)
{
    static const char *const calendars[] = { "minute", "hour", "day", "week",
                                             "month" };
    static const char *const zones[] = { "+03:00", "-09:30", "Asia/Tokyo",
                                         "America/Argentina/Ushuaia" };
    if (weir_quota_applies(quota, "window") && weir_rng_below(rng, 3))
        quota->window = (struct weir_window){
            .length = WEIR_WINDOW_MIN + (weir_rng_below(rng, WEIR_PERIOD_MAX) >>
                                         weir_rng_below(rng, 40))
        };
    if (quota->algorithm == WEIR_FIXED_WINDOW)
        maybe_set(rng, quota, "window", pick(rng, calendars, 5));
    maybe_set(rng, quota, "tz", pick(rng, zones, 4));
    maybe_set(rng, quota, "count_limited", "yes");
    if (quota->algorithm == WEIR_SLIDING_WINDOW)
        quota->sub_windows = 1 + (uint32_t)weir_rng_below(rng, 60);
    if (quota->algorithm == WEIR_SLIDING_LOG)
        quota->max_entries = (uint32_t)weir_rng_below(rng, 4097);
}

static void make_rest(struct weir_rng *rng, struct weir_quota *quota)
{
    static const char *const buckets[] = { "20/s:200", "20/s:200, spill:500",
                                           "1/day:1, 3/2s:1Mi,spill:1" };
    static const char *const stores[] = { "redis://s:6379",
                                          "rediss://[::1]:1/7",
                                          "memcached://a:1,b:2" };
    static const char *const debts[] = { "1s", "1.5min", "366d" };
    static const char *const deadlines[] = { "1ms", "100us", "1.5s" };
    if (quota->algorithm == WEIR_TOKEN_BUCKETS)
        quota->next_buckets = weir_text_of(pick(rng, buckets, 3));
    if (quota->sharing == WEIR_EXACT)
        quota->store = weir_text_of(pick(rng, stores, 3));
    maybe_set(rng, quota, "deadline", pick(rng, deadlines, 3));
    maybe_set(rng, quota, "max_debt", pick(rng, debts, 3));
}

static void make_lease(struct weir_rng *rng, struct weir_quota *quota)
{
    static const char *const shares[] = { "none", "static", "priority",
                                          "proportional_share" };
    static const char *const safe[] = { "0", "5/s", "0.001/s", "3/2d" };
    static const char *const leases[] = { "1s", "1.5min", "1d" };
    static const char *const refreshes[] = { "100ms", "1s", "0.75s" };
    static const char *const learnings[] = { "0s", "1ns", "24h" };
    static const char *const priorities[] = { "-9223372036854775808", "-1",
                                              "9223372036854775807" };
    static const char *const queues[] = { "lifo", "priority" };
    static const char *const maxs[] = { "1", "1000000" };
    static const char *const factors[] = { "0.5", "0.000000001", ".25" };
    maybe_set(rng, quota, "share_algorithm", pick(rng, shares, 4));
    maybe_set(rng, quota, "safe_capacity", pick(rng, safe, 4));
    maybe_set(rng, quota, "lease", pick(rng, leases, 3));
    maybe_set(rng, quota, "refresh", pick(rng, refreshes, 3));
    maybe_set(rng, quota, "learning", pick(rng, learnings, 3));
    maybe_set(rng, quota, "priority", pick(rng, priorities, 3));
    maybe_set(rng, quota, "decay_factor", pick(rng, factors, 3));
    maybe_set(rng, quota, "permit_timeout", pick(rng, refreshes, 3));
    maybe_set(rng, quota, "queue", pick(rng, queues, 2));
    maybe_set(rng, quota, "queue_max", pick(rng, maxs, 2));
    if (weir_rng_below(rng, 4) == 0)
        quota->glob = WEIR_GLOB_PATH;
}

static void make_adaptive(struct weir_rng *rng, struct weir_quota *quota)
{
    static const char *const controllers[] = {
        "percentile", "request", "vegas", "gradient2", "envoy", "target"
    };
    static const char *const targets[] = { "1ns", "150ms", "9min" };
    static const char *const percentiles[] = { "99.99", "50", "100", "0.0001" };
    static const char *const mins[] = { "1", "2.5", "10" };
    static const char *const maxs[] = { "1048576", "40", "12.0625" };
    static const char *const classes[] = { "sync:observed, bulk:50%", "a",
                                           "x:0.5%,y:unheard,z:99.5%" };
    maybe_set(rng, quota, "controller", pick(rng, controllers, 6));
    maybe_set(rng, quota, "target", pick(rng, targets, 3));
    maybe_set(rng, quota, "percentile", pick(rng, percentiles, 4));
    maybe_set(rng, quota, "min", pick(rng, mins, 3));
    maybe_set(rng, quota, "max", pick(rng, maxs, 3));
    maybe_set(rng, quota, "fleet_min", pick(rng, mins, 3));
    maybe_set(rng, quota, "fleet_max", pick(rng, maxs, 3));
    maybe_set(rng, quota, "classes", pick(rng, classes, 3));
    maybe_set(rng, quota, "permit_timeout", "1.5s");
    if (quota->controller == WEIR_CONTROLLER_TARGET)
        maybe_set(rng, quota, "scope", "fleet");
}

/* Units in flight, without an algorithm. */
static void make_in_flight(struct weir_rng *rng, struct weir_quota *quota)
{
    quota->kind = WEIR_CONCURRENCY;
    quota->sharing = weir_rng_below(rng, 2) ? WEIR_ADAPTIVE : WEIR_LOCAL;
    make_adaptive(rng, quota);
    quota->on_stale = (enum weir_on_stale)(1 + weir_rng_below(rng, 3));
    quota->limit = (struct weir_limit){
        .units =
            1 + (weir_rng_below(rng, WEIR_BURST_MAX) >> weir_rng_below(rng, 50))
    };
}

/* Repeats until it is sound: most windows and bursts don't go with most
 * limits. */
static void make_algorithm(struct weir_rng *rng, struct weir_quota *quota)
{
    static const enum weir_sharing sharings[] = { WEIR_LOCAL, WEIR_COUNTED,
                                                  WEIR_EXACT, WEIR_LEASED };
    const struct weir_quota plain = *quota;
    do {
        *quota = plain;
        quota->sharing = sharings[weir_rng_below(rng, 4)];
        quota->algorithm = (enum weir_algorithm)(1 + weir_rng_below(rng, 7));
        quota->on_stale = (enum weir_on_stale)(1 + weir_rng_below(rng, 4));
        make_bursts(rng, quota);
        make_windows(rng, quota);
        make_rest(rng, quota);
        make_lease(rng, quota);
    } while (weir_quota_check(quota, NULL) < 0);
}

static void make_labels(struct weir_rng *rng, struct made_quota *out)
{
    char raw[WEIR_LABELS_MAX];
    size_t len = 0;
    for (size_t i = weir_rng_below(rng, 4); i > 0; i--) {
        char value[64];
        size_t value_len = make_text(rng, value, sizeof(value), 5);
        len += (size_t)snprintf(
            raw + len, sizeof(raw) - len, "key.%u/%c=%.*s\n", (unsigned)i,
            (char)('a' + weir_rng_below(rng, 26)), (int)value_len, value);
    }
    struct weir_text text = { raw, len };
    if (weir_labels_parse(text, out->labels, &out->quota.labels, NULL) < 0)
        abort();
}

void make_quota(struct weir_rng *rng, unsigned number, struct made_quota *out)
{
    struct weir_quota *quota = &out->quota;
    weir_quota_init(quota);
    size_t len = make_text(rng, out->name, 100, 8);
    if (weir_rng_below(rng, 8) == 0)
        out->name[len++] = '*';
    len += (size_t)snprintf(out->name + len, 16, "%u", number);
    quota->name = (struct weir_text){ out->name, len };
    quota->description =
        (struct weir_text){ out->description,
                            make_text(rng, out->description, 1024, 12) };
    for (size_t i = 0; i < quota->description.len; i++) {
        if (out->description[i] == '_')
            out->description[i] = '\n';
    }
    make_labels(rng, out);
    quota->limit = make_limit(rng);
    quota->mode = (enum weir_mode)(1 + weir_rng_below(rng, 3));
    quota->order = (uint32_t)weir_rng_next(rng) >> weir_rng_below(rng, 32);
    if (weir_rng_below(rng, 8) == 0)
        make_in_flight(rng, quota);
    else
        make_algorithm(rng, quota);
}
