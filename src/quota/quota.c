/* SPDX-License-Identifier: MIT
 * quota/quota.c - is this quota sound, and what do its bursts come to?
 *
 * A quota is checked at every door: by the command line's root, by the store
 * inside its transaction, by a limiter that hears it on the wire. So the
 * check trusts nothing, not even that an enumeration holds one of its
 * values.
 *
 * Which kind, sharing and algorithm go together is one table, first match
 * wins, 0 stands for any value. A row without 'reason' is what this version
 * can do; every other row says what to write instead. What no row names
 * doesn't exist.
 *
 *     kind         sharing  algorithm
 *     rate         local    leaky       yes
 *     rate         counted  leaky       yes
 *     rate         leased   any         "sharing=leased isn't built ..."
 *     ...
 *
 * Bursts are compared as they were entered where both are units or both are
 * time, and in units of the limit else; with limit 0 or none at all such a
 * comparison means nothing and is left out. */

#include "quota/quota.h"

#include <string.h>

#include "quota/glob.h"
#include "quota/quota_text.h"

struct combination {
    enum weir_kind kind;
    enum weir_sharing sharing;
    enum weir_algorithm algorithm;
    const char *reason; /* NULL: these go together */
};

static const struct combination combinations[] = {
    { WEIR_RATE, WEIR_LOCAL, WEIR_LEAKY, NULL },
    { WEIR_RATE, WEIR_COUNTED, WEIR_LEAKY, NULL },
    { WEIR_RATE, WEIR_LEASED, 0,
      "sharing=leased isn't built into this version; use counted or local" },
    { WEIR_RATE, WEIR_EXACT, 0,
      "sharing=exact isn't built into this version; use counted or local" },
    { WEIR_RATE, WEIR_ADAPTIVE, 0,
      "sharing=adaptive goes with kind=concurrency only; use counted or "
      "local" },
    { WEIR_CONCURRENCY, 0, 0,
      "kind=concurrency isn't built into this version; use rate" },
};

static const struct weir_burst low_default = { WEIR_SECOND, true, false };
static const struct weir_burst high_default = { 3 * WEIR_SECOND / 2, true,
                                                false };

void weir_quota_init(struct weir_quota *quota)
{
    *quota = (struct weir_quota){
        .kind = WEIR_RATE,
        .limit = { .per = WEIR_SECOND, .unlimited = true },
        .low_burst = { .in_time = true, .unset = true },
        .high_burst = { .in_time = true, .unset = true },
        .algorithm = WEIR_LEAKY,
        .sharing = WEIR_COUNTED,
        .mode = WEIR_ENFORCE,
        .on_stale = WEIR_STALE_OPEN,
    };
}

static size_t count_globs(struct weir_text name)
{
    size_t globs = 0;
    for (size_t i = 0; i < name.len; i++)
        globs += name.p[i] == '*';
    return globs;
}

bool weir_quota_is_template(const struct weir_quota *quota)
{
    return count_globs(quota->name) > 0;
}

/* The same rule for a name, a parent and an overflow; 'what' is how the
 * field is called. */
static int check_name(struct weir_text name, const char *what,
                      struct weir_diag *diag)
{
    if (name.len == 0)
        return weir_diag_set(diag, WEIR_ENAME, "the ", what, " is empty; a ",
                             "name has 1 to 255 bytes", NULL);
    char shown[WEIR_SHOW_MAX];
    if (name.len > WEIR_NAME_MAX)
        return weir_diag_set(diag, WEIR_ENAME, "the ", what, " ",
                             weir_text_show(name, shown),
                             " is too long; a name has 255 bytes at most",
                             NULL);
    size_t clean = weir_utf8_clean(name, "");
    if (clean == name.len)
        return 0;
    weir_text_show(name, shown);
    char at[WEIR_NUMBER_MAX];
    uint32_t character;
    struct weir_text rest = { name.p + clean, name.len - clean };
    bool broken = weir_utf8_next(rest, &character) == 0;
    const char *problem = broken ? " isn't UTF-8"
                          : character == 0 ? " holds a NUL"
                                           : " holds a control character";
    return weir_diag_set(diag, WEIR_ENAME, "the ", what, " ", shown, problem,
                         " at byte ", weir_number_show(clean + 1, at), NULL);
}

int weir_name_check(struct weir_text name, struct weir_diag *diag)
{
    return check_name(name, "name", diag);
}

static bool holds(struct weir_text text, char c)
{
    return text.len > 0 && memchr(text.p, c, text.len);
}

static int check_braces(struct weir_text name, const char *what,
                        struct weir_diag *diag)
{
    if (!holds(name, '{') && !holds(name, '}'))
        return 0;
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_ENAME, "the ", what, " ",
                         weir_text_show(name, shown), " holds a brace; {1} "
                         "to {9} stand in the parent of a template only",
                         NULL);
}

/* A name that stands for itself: no glob, no capture. */
static int check_plain(struct weir_text name, const char *what,
                       struct weir_diag *diag)
{
    int error = check_name(name, what, diag);
    if (error < 0)
        return error;
    char shown[WEIR_SHOW_MAX];
    if (holds(name, '*'))
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
    return len > 0 &&
           weir_text_equal((struct weir_text){ expanded, (size_t)len },
                           quota->name);
}

/* {n} and nothing else in braces, n not above the globs of the name. */
static int check_captures(const struct weir_quota *quota,
                          struct weir_diag *diag)
{
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
                                 " holds a brace that isn't part of {1} to "
                                 "{9}", NULL);
        if ((size_t)(parent.p[i + 1] - '0') > globs)
            return weir_diag_set(diag, WEIR_ENAME, "the parent ", shown,
                                 " uses a capture that the name has no '*' "
                                 "for", NULL);
        i += 2;
    }
    if (is_own_parent(quota))
        return weir_diag_set(diag, WEIR_ECYCLE, "the parent ", shown,
                             " is the template itself", NULL);
    return 0;
}

static int check_parent(const struct weir_quota *quota,
                        struct weir_diag *diag)
{
    if (quota->parent.len == 0)
        return 0;
    if (!weir_quota_is_template(quota))
        return check_plain(quota->parent, "parent", diag);
    int error = check_name(quota->parent, "parent", diag);
    if (error < 0)
        return error;
    char shown[WEIR_SHOW_MAX];
    if (holds(quota->parent, '*'))
        return weir_diag_set(diag, WEIR_ENAME, "the parent ",
                             weir_text_show(quota->parent, shown),
                             " holds a '*'; write {1} for what the first "
                             "'*' of the name matched", NULL);
    return check_captures(quota, diag);
}

static int check_overflow(const struct weir_quota *quota,
                          struct weir_diag *diag)
{
    if (quota->overflow.len == 0)
        return 0;
    char shown[WEIR_SHOW_MAX];
    if (!weir_quota_is_template(quota))
        return weir_diag_set(diag, WEIR_EQUOTA,
                             weir_text_show(quota->name, shown), " is no "
                             "template; overflow stands in for instances of "
                             "one", NULL);
    return check_plain(quota->overflow, "overflow", diag);
}

static int check_names(const struct weir_quota *quota, struct weir_diag *diag)
{
    int error = check_name(quota->name, "name", diag);
    if (error == 0)
        error = check_braces(quota->name, "name", diag);
    if (error < 0)
        return error;
    char shown[WEIR_SHOW_MAX];
    if (count_globs(quota->name) > WEIR_CAPTURES_MAX)
        return weir_diag_set(diag, WEIR_ENAME, "the name ",
                             weir_text_show(quota->name, shown),
                             " holds more than 9 '*'", NULL);
    error = check_parent(quota, diag);
    return error < 0 ? error : check_overflow(quota, diag);
}

static int check_limit(const struct weir_limit *limit, struct weir_diag *diag)
{
    if (limit->per == 0 || limit->per > WEIR_PERIOD_MAX)
        return weir_diag_set(diag, WEIR_EQUOTA, "the period of a limit may "
                             "be 1 ns to 366 days", NULL);
    if (!limit->unlimited && (weir_u128)limit->units * WEIR_SECOND >
                                 (weir_u128)WEIR_LIMIT_MAX * limit->per)
        return weir_diag_set(diag, WEIR_EQUOTA, "the limit is above 100G/s, "
                             "the highest there is; for no limit at all "
                             "write unlimited", NULL);
    return 0;
}

static uint64_t burst_units(const struct weir_limit *limit,
                            const struct weir_burst *burst)
{
    weir_u128 units = burst->amount;
    if (burst->in_time)
        units = (units * limit->units + limit->per - 1) / limit->per;
    return units < WEIR_BURST_MAX ? (uint64_t)units : WEIR_BURST_MAX;
}

static bool is_above(const struct weir_limit *limit,
                     const struct weir_burst *a, const struct weir_burst *b)
{
    if (a->in_time == b->in_time)
        return a->amount > b->amount;
    if (limit->unlimited || limit->units == 0)
        return false;
    return burst_units(limit, a) > burst_units(limit, b);
}

void weir_quota_effective(const struct weir_quota *quota,
                          struct weir_burst *out_low,
                          struct weir_burst *out_high)
{
    struct weir_burst low = quota->low_burst;
    struct weir_burst high = quota->high_burst;
    if (low.unset)
        low = low_default;
    if (high.unset)
        high = high_default;
    if (quota->high_burst.unset && is_above(&quota->limit, &low, &high))
        high = low;
    if (quota->low_burst.unset && is_above(&quota->limit, &low, &high))
        low = high;
    *out_low = low;
    *out_high = high;
}

void weir_quota_bursts(const struct weir_quota *quota, uint64_t *out_low,
                       uint64_t *out_high)
{
    struct weir_burst low;
    struct weir_burst high;
    weir_quota_effective(quota, &low, &high);
    uint64_t high_units = burst_units(&quota->limit, &high);
    uint64_t low_units = burst_units(&quota->limit, &low);
    if (high_units == 0)
        high_units = 1;
    *out_low = low_units < high_units ? low_units : high_units;
    *out_high = high_units;
}

static int check_burst(const struct weir_burst *burst, const char *what,
                       struct weir_diag *diag)
{
    if (burst->unset)
        return 0;
    if (burst->in_time && burst->amount > WEIR_PERIOD_MAX)
        return weir_diag_set(diag, WEIR_EQUOTA, what, " may be 366 days of "
                             "the limit at most", NULL);
    if (!burst->in_time && burst->amount > WEIR_BURST_MAX)
        return weir_diag_set(diag, WEIR_EQUOTA, what, " may be 2^50 units at "
                             "most", NULL);
    return 0;
}

static int check_bursts(const struct weir_quota *quota,
                        struct weir_diag *diag)
{
    int error = check_burst(&quota->low_burst, "low_burst", diag);
    if (error == 0)
        error = check_burst(&quota->high_burst, "high_burst", diag);
    if (error < 0)
        return error;
    struct weir_burst low;
    struct weir_burst high;
    weir_quota_effective(quota, &low, &high);
    if (!is_above(&quota->limit, &low, &high))
        return 0;
    char low_text[48];
    char high_text[48];
    low_text[weir_burst_format(&low, low_text, 47)] = '\0';
    high_text[weir_burst_format(&high, high_text, 47)] = '\0';
    return weir_diag_set(diag, WEIR_EQUOTA, "low_burst ", low_text,
                         " is above high_burst ", high_text,
                         "; raise high_burst or lower low_burst", NULL);
}

static int check_enumerations(const struct weir_quota *quota,
                              struct weir_diag *diag)
{
    const char *wrong = NULL;
    if (quota->kind < WEIR_RATE || quota->kind > WEIR_CONCURRENCY)
        wrong = "kind";
    if (quota->sharing < WEIR_LOCAL || quota->sharing > WEIR_ADAPTIVE)
        wrong = "sharing";
    if (quota->algorithm != WEIR_LEAKY)
        wrong = "algorithm";
    if (quota->mode < WEIR_ENFORCE || quota->mode > WEIR_OFF)
        wrong = "mode";
    if (quota->on_stale < WEIR_STALE_OPEN ||
        quota->on_stale > WEIR_STALE_HOLD)
        wrong = "on_stale";
    if (!wrong)
        return 0;
    return weir_diag_set(diag, WEIR_EQUOTA, wrong, " holds a value that this "
                         "version doesn't know; it may come from a newer "
                         "one", NULL);
}

static int check_combination(const struct weir_quota *quota,
                             struct weir_diag *diag)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(combinations); i++) {
        const struct combination *row = &combinations[i];
        bool match = row->kind == quota->kind &&
                     (row->sharing == 0 || row->sharing == quota->sharing) &&
                     (row->algorithm == 0 ||
                      row->algorithm == quota->algorithm);
        if (!match)
            continue;
        if (!row->reason)
            return 0;
        return weir_diag_set(diag, WEIR_EQUOTA, row->reason, NULL);
    }
    return weir_diag_set(diag, WEIR_EQUOTA, "these kind, sharing and "
                         "algorithm don't go together; use kind=rate "
                         "sharing=counted algorithm=leaky", NULL);
}

static int check_texts(const struct weir_quota *quota, struct weir_diag *diag)
{
    if (quota->description.len > WEIR_DESCRIPTION_MAX)
        return weir_diag_set(diag, WEIR_EQUOTA, "the description is too "
                             "long; it may have 1024 bytes", NULL);
    size_t clean = weir_utf8_clean(quota->description, "\t\n");
    if (clean != quota->description.len)
        return weir_diag_set(diag, WEIR_EQUOTA, "the description isn't UTF-8 "
                             "without control characters", NULL);
    return weir_labels_check(quota->labels, diag);
}

int weir_quota_check(const struct weir_quota *quota, struct weir_diag *diag)
{
    int error = check_names(quota, diag);
    if (error == 0)
        error = check_texts(quota, diag);
    if (error == 0)
        error = check_enumerations(quota, diag);
    if (error == 0)
        error = check_combination(quota, diag);
    if (error == 0)
        error = check_limit(&quota->limit, diag);
    if (error == 0)
        error = check_bursts(quota, diag);
    return error;
}
