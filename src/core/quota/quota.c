/* SPDX-License-Identifier: MIT
 * quota/quota.c - checks a quota.
 *
 * A quota is checked wherever it enters: by the root that the command line
 * uses, by the store inside its transaction, by a limiter that receives it on
 * the wire. The check trusts nothing, not even that an enumeration has one of
 * its values.
 *
 * One table has the combinations of kind, sharing and algorithm; the first
 * match wins, 0 matches any value. A row without 'reason' is supported; every
 * other row's 'reason' says what to write instead. A combination without a row
 * doesn't exist.
 *
 *     kind         sharing  algorithm
 *     rate         local    any             yes
 *     rate         counted  leaky           yes
 *     rate         counted  token_bucket    yes
 *     rate         counted  any             "...; use exact or local ..."
 *     rate         exact    any             yes
 *     rate         leased   leaky           yes
 *     ...
 *     concurrency  local    (leaky)         yes
 *     concurrency  counted  (leaky)         yes
 *     concurrency  adaptive (leaky)         yes
 *
 * A quota of kind concurrency has no algorithm, and none of an algorithm's
 * fields: its limit is units at a time, nothing leaks and no window ends. The
 * field stays at its default.
 *
 * Every field that is set must belong to that kind, algorithm and sharing
 * (quota_fields.c), and the fields of single algorithms and sharings must be
 * sound (quota_algorithm.c, quota_default.c, quota_adaptive.c). */

#include <string.h>

#include "core/quota/glob.h"
#include "core/quota/quota_internal.h"
#include "core/quota/quota_text.h"

struct combination {
    enum weir_kind kind;
    enum weir_sharing sharing;
    enum weir_algorithm algorithm;
    const char *reason; /* NULL: these go together */
};

static const struct combination combinations[] = {
    { WEIR_RATE, WEIR_LOCAL, 0, NULL },
    { WEIR_RATE, WEIR_COUNTED, WEIR_LEAKY, NULL },
    { WEIR_RATE, WEIR_COUNTED, WEIR_TOKEN_BUCKET, NULL },
    { WEIR_RATE, WEIR_COUNTED, WEIR_LEAKY_QUEUE,
      "algorithm=leaky_queue can't be counted: only one process can give out "
      "turns of a queue; use sharing=exact or local, or algorithm=leaky" },
    { WEIR_RATE, WEIR_COUNTED, WEIR_TOKEN_BUCKETS,
      "algorithm=token_buckets can't be counted: which bucket paid is known in "
      "one place only; use sharing=exact or local, or algorithm=token_bucket" },
    { WEIR_RATE, WEIR_COUNTED, 0,
      "windows and logs can't be counted; use sharing=exact or local, or "
      "algorithm=leaky" },
    { WEIR_RATE, WEIR_EXACT, 0, NULL },
    { WEIR_RATE, WEIR_LEASED, WEIR_LEAKY, NULL },
    { WEIR_RATE, WEIR_LEASED, WEIR_TOKEN_BUCKET, NULL },
    { WEIR_RATE, WEIR_LEASED, 0,
      "a lease is a rate, which only algorithm=leaky and token_bucket can "
      "follow as it changes; use one of them, or sharing=exact or local" },
    { WEIR_RATE, WEIR_ADAPTIVE, 0,
      "sharing=adaptive goes with kind=concurrency only; use counted or "
      "local" },
    { WEIR_CONCURRENCY, 0, WEIR_LEAKY, NULL },
    { WEIR_CONCURRENCY, 0, 0,
      "kind=concurrency has no algorithm: nothing leaks and no window ends; "
      "leave algorithm out" },
};

static size_t count_globs(struct weir_text name)
{
    size_t globs = 0;
    for (size_t i = 0; i < name.len; i++)
        globs += name.p[i] == '*';
    return globs;
}

bool weir_quota_is_leased(const struct weir_quota *quota)
{
    bool fleet =
        quota->sharing == WEIR_ADAPTIVE && quota->scope == WEIR_SCOPE_FLEET;
    return quota->sharing == WEIR_LEASED || fleet;
}

bool weir_quota_is_template(const struct weir_quota *quota)
{
    struct weir_text name = quota->name;
    return weir_text_has(name, '*') ||
           (quota->glob == WEIR_GLOB_PATH &&
            (weir_text_has(name, '?') || weir_text_has(name, '[') ||
             weir_text_has(name, '\\')));
}

/* The same rule for a name, a parent and an overflow; 'what' is the field's
 * name in messages. */
static int check_name_field(struct weir_text name, const char *what,
                            struct weir_diag *diag)
{
    if (name.len == 0)
        return weir_diag_set(diag, WEIR_ENAME, "the ", what, " is empty; a ",
                             "name has 1 to 255 bytes", NULL);
    char shown[WEIR_SHOW_MAX];
    if (name.len > WEIR_NAME_MAX)
        return weir_diag_set(
            diag, WEIR_ENAME, "the ", what, " ", weir_text_show(name, shown),
            " is too long; a name has 255 bytes at most", NULL);
    size_t clean = weir_utf8_clean(name, "");
    if (clean == name.len)
        return 0;
    weir_text_show(name, shown);
    char at[WEIR_NUMBER_MAX];
    uint32_t character;
    weir_assert(clean < name.len);
    bool broken = weir_utf8_next(weir_text_drop(name, clean), &character) == 0;
    const char *problem = broken           ? " isn't UTF-8"
                          : character == 0 ? " holds a NUL"
                                           : " holds a control character";
    return weir_diag_set(diag, WEIR_ENAME, "the ", what, " ", shown, problem,
                         " at byte ", weir_number_show(clean + 1, at), NULL);
}

int weir_name_check(struct weir_text name, struct weir_diag *diag)
{
    return check_name_field(name, "name", diag);
}

static int check_braces(struct weir_text name, const char *what,
                        struct weir_diag *diag)
{
    if (!weir_text_has(name, '{') && !weir_text_has(name, '}'))
        return 0;
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(
        diag, WEIR_ENAME, "the ", what, " ", weir_text_show(name, shown),
        " holds a brace; {1} to {9} stand in the parent of a template only",
        NULL);
}

/* A name that stands for itself: no glob, no capture. */
static int check_plain(struct weir_text name, const char *what,
                       struct weir_diag *diag)
{
    int error = check_name_field(name, what, diag);
    if (error < 0)
        return error;
    char shown[WEIR_SHOW_MAX];
    if (weir_text_has(name, '*'))
        return weir_diag_set(diag, WEIR_ENAME, "the ", what, " ",
                             weir_text_show(name, shown),
                             " holds a '*'; name one quota", NULL);
    return check_braces(name, what, diag);
}

/* A template's parent expanded over its own pattern, each glob standing for
 * itself, must not give the pattern again. */
static bool is_own_parent(const struct weir_quota *quota)
{
    struct weir_captures captures = { .count = WEIR_CAPTURES_MAX };
    for (size_t i = 0; i < WEIR_CAPTURES_MAX; i++)
        captures.text[i] = WEIR_TEXT("*");
    char expanded[WEIR_NAME_MAX];
    int len = weir_glob_expand(quota->parent, &captures, expanded);
    weir_assert(len <= WEIR_NAME_MAX);
    return len > 0 &&
           weir_text_equal((struct weir_text){ expanded, (size_t)len },
                           quota->name);
}

/* {n} and nothing else in braces, n not above the globs of the name. */
static int check_captures(const struct weir_quota *quota,
                          struct weir_diag *diag)
{
    weir_assert(weir_quota_is_template(quota));
    struct weir_text parent = quota->parent;
    char shown[WEIR_SHOW_MAX];
    weir_text_show(parent, shown);
    size_t globs = count_globs(quota->name);
    for (size_t i = 0; i < parent.len; i++) {
        if (parent.p[i] != '{' && parent.p[i] != '}')
            continue;
        bool whole = parent.p[i] == '{' && i + 2 < parent.len &&
                     parent.p[i + 1] >= '1' && parent.p[i + 1] <= '9' &&
                     parent.p[i + 2] == '}';
        if (!whole)
            return weir_diag_set(diag, WEIR_ENAME, "the parent ", shown,
                                 " holds a brace that isn't part of {1} to {9}",
                                 NULL);
        if ((size_t)(parent.p[i + 1] - '0') > globs)
            return weir_diag_set(diag, WEIR_ENAME, "the parent ", shown,
                                 " uses a capture that the name has no '*' for",
                                 NULL);
        i += 2;
    }
    if (is_own_parent(quota))
        return weir_diag_set(diag, WEIR_ECYCLE, "the parent ", shown,
                             " is the template itself", NULL);
    return 0;
}

static int check_parent(const struct weir_quota *quota, struct weir_diag *diag)
{
    if (quota->parent.len == 0)
        return 0;
    char shown[WEIR_SHOW_MAX];
    weir_text_show(quota->parent, shown);
    bool template = weir_quota_is_template(quota);
    bool path = quota->glob == WEIR_GLOB_PATH;
    if (template && path && weir_text_has(quota->parent, '{'))
        return weir_diag_set(diag, WEIR_ENAME, "the parent ", shown,
                             " uses a capture, and a template with glob=path "
                             "has none; name one quota, or use glob=name",
                             NULL);
    if (!template || path)
        return check_plain(quota->parent, "parent", diag);
    int error = check_name_field(quota->parent, "parent", diag);
    if (error < 0)
        return error;
    if (weir_text_has(quota->parent, '*'))
        return weir_diag_set(diag, WEIR_ENAME, "the parent ", shown,
                             " holds a '*'; write {1} for the text that the "
                             "name's first '*' matched",
                             NULL);
    return check_captures(quota, diag);
}

static int check_overflow_name(const struct weir_quota *quota,
                               struct weir_diag *diag)
{
    if (quota->overflow.len == 0)
        return 0;
    char shown[WEIR_SHOW_MAX];
    if (!weir_quota_is_template(quota))
        return weir_diag_set(diag, WEIR_EQUOTA,
                             weir_text_show(quota->name, shown),
                             " is no template; overflow stands in for "
                             "instances of one",
                             NULL);
    return check_plain(quota->overflow, "overflow", diag);
}

static int check_pattern(const struct weir_quota *quota, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    weir_text_show(quota->name, shown);
    if (quota->glob == WEIR_GLOB_PATH &&
        weir_glob_path_check(quota->name, NULL) < 0)
        return weir_diag_set(diag, WEIR_ENAME, "the name ", shown,
                             " has a syntax error in its pattern; with "
                             "glob=path a [ ends with ], and a \\ is followed "
                             "by the character that it stands for",
                             NULL);
    if (quota->glob != WEIR_GLOB_PATH &&
        count_globs(quota->name) > WEIR_CAPTURES_MAX)
        return weir_diag_set(diag, WEIR_ENAME, "the name ", shown,
                             " holds more than 9 '*'", NULL);
    return 0;
}

static int check_own_name(const struct weir_quota *quota,
                          struct weir_diag *diag)
{
    int error = check_name_field(quota->name, "name", diag);
    return error < 0 ? error : check_braces(quota->name, "name", diag);
}

/* Units at a time: no period. */
static int check_in_flight(const struct weir_quota *quota,
                           struct weir_diag *diag)
{
    weir_assert(quota->kind == WEIR_CONCURRENCY);
    const struct weir_limit *limit = &quota->limit;
    if (quota->on_stale == WEIR_STALE_HOLD)
        return weir_quota_fault("on_stale=hold refuses a part of a rate, and "
                                "units in flight have none; use share, pass or "
                                "limit",
                                diag);
    if (limit->unlimited || limit->units == 0)
        return 0;
    char shown[64];
    struct weir_limit alone = { .units = limit->units };
    shown[weir_limit_format(&alone, shown, sizeof(shown) - 1)] = '\0';
    if (limit->per != 0)
        return weir_diag_set(diag, WEIR_EQUOTA,
                             "the limit of kind=concurrency is units at a time "
                             "and has no period; write limit=",
                             shown, NULL);
    if (limit->units > WEIR_BURST_MAX)
        return weir_quota_fault("limit may be 2^50 units at most; for no limit "
                                "at all write unlimited",
                                diag);
    return 0;
}

static int check_limit(const struct weir_quota *quota, struct weir_diag *diag)
{
    if (quota->kind == WEIR_CONCURRENCY)
        return check_in_flight(quota, diag);
    weir_assert(quota->kind == WEIR_RATE);
    const struct weir_limit *limit = &quota->limit;
    char shown[64];
    shown[weir_limit_format(limit, shown, sizeof(shown) - 1)] = '\0';
    if (limit->per == 0 && limit->units > 0 && !limit->unlimited)
        return weir_diag_set(diag, WEIR_EQUOTA, "the limit ", shown,
                             " has no period; write it as ", shown, "/s or ",
                             shown, "/min, or write kind=concurrency for ",
                             shown, " at a time", NULL);
    if (limit->per == 0 || limit->per > WEIR_PERIOD_MAX)
        return weir_quota_fault("the period of a limit may be 1 ns to 366 days",
                                diag);
    if (!limit->unlimited && (weir_u128)limit->units * WEIR_SECOND >
                                 (weir_u128)WEIR_LIMIT_MAX * limit->per)
        return weir_quota_fault("the limit is above 100G/s, the highest there "
                                "is; for no limit at all write unlimited",
                                diag);
    return 0;
}

static int check_burst(const struct weir_burst *burst, const char *what,
                       struct weir_diag *diag)
{
    if (burst->unset)
        return 0;
    if (burst->in_time && burst->amount > WEIR_PERIOD_MAX)
        return weir_diag_set(diag, WEIR_EQUOTA, what,
                             " may be 366 days of the limit at most", NULL);
    if (!burst->in_time && burst->amount > WEIR_BURST_MAX)
        return weir_diag_set(diag, WEIR_EQUOTA, what,
                             " may be 2^50 units at most", NULL);
    return 0;
}

static int check_bursts(const struct weir_quota *quota, struct weir_diag *diag)
{
    int error = check_burst(&quota->low_burst, "low_burst", diag);
    if (error == 0)
        error = check_burst(&quota->high_burst, "high_burst", diag);
    if (error == 0)
        error = check_burst(&quota->initial, "initial", diag);
    if (error < 0)
        return error;
    struct weir_burst low;
    struct weir_burst high;
    weir_quota_effective(quota, &low, &high);
    if (!weir_burst_is_above(&quota->limit, &low, &high))
        return 0;
    char low_text[48];
    char high_text[48];
    low_text[weir_burst_format(&low, low_text, 47)] = '\0';
    high_text[weir_burst_format(&high, high_text, 47)] = '\0';
    return weir_diag_set(diag, WEIR_EQUOTA, "low_burst ", low_text,
                         " is above high_burst ", high_text,
                         "; raise high_burst or lower low_burst", NULL);
}

static int check_combination(const struct weir_quota *quota,
                             struct weir_diag *diag)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(combinations); i++) {
        const struct combination *row = &combinations[i];
        bool match =
            row->kind == quota->kind &&
            (row->sharing == 0 || row->sharing == quota->sharing) &&
            (row->algorithm == 0 || row->algorithm == quota->algorithm);
        if (match)
            return weir_quota_fault(row->reason, diag);
    }
    return weir_quota_fault("these kind, sharing and algorithm don't go "
                            "together; use kind=rate sharing=counted "
                            "algorithm=leaky",
                            diag);
}

static const char *description_fault(const struct weir_quota *quota)
{
    size_t len = quota->description.len;
    if (len > WEIR_DESCRIPTION_MAX)
        return "the description is too long; it may have 1024 bytes";
    if (weir_utf8_clean(quota->description, "\t\n") != len)
        return "the description isn't UTF-8 without control characters";
    return NULL;
}

static int check_texts(const struct weir_quota *quota, struct weir_diag *diag)
{
    int error = weir_quota_fault(description_fault(quota), diag);
    return error < 0 ? error : weir_labels_check(quota->labels, diag);
}

static int check_debt(const struct weir_quota *quota, struct weir_diag *diag)
{
    bool sound = quota->max_debt >= WEIR_MAX_DEBT_MIN &&
                 quota->max_debt <= WEIR_MAX_DEBT_MAX;
    return weir_quota_fault(
        sound ? NULL : "max_debt may be 1 s to 366 d; write it as max_debt=60s",
        diag);
}

/* In this order: each relies on those before it. */
static int (*const checks[])(const struct weir_quota *quota,
                             struct weir_diag *diag) = {
    check_own_name,
    check_pattern,
    check_parent,
    check_overflow_name,
    check_texts,
    weir_quota_check_words,
    check_combination,
    check_limit,
    check_bursts,
    check_debt,
    weir_quota_check_fields,
    weir_quota_check_algorithm,
    weir_quota_check_lease,
    weir_quota_check_adaptive,
};

int weir_quota_check(const struct weir_quota *quota, struct weir_diag *diag)
{
    int error = 0;
    for (size_t i = 0; i < WEIR_COUNT_OF(checks) && error == 0; i++)
        error = checks[i](quota, diag);
    weir_assert(error <= 0);
    return error;
}
