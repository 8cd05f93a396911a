/* SPDX-License-Identifier: MIT
 * quota/quota_algorithm.c - windows, further buckets, zones and stores: their
 * values in force, and their checks.
 *
 * A limit is a rate, and a window turns it into a quantity: limit x window,
 * rounded down. A window into which less than one unit fits is refused: it
 * would refuse everything. By default the window is the period of the limit as
 * entered, and the quantity the number before the slash.
 *
 * A sliding log keeps one entry per take. If more units pass in a window than
 * the default number of entries, it would refuse earlier than the limit says;
 * the operator must then set how many takes it keeps.
 *
 * Only the syntax of a zone's name is checked here: the zones that exist are in
 * a machine's files (io/zone.h). A store's address is checked strictly, because
 * every limiter connects to it: an invalid one is better refused at the
 * edit. */

#include "core/quota/quota_internal.h"

#include <string.h>

#include "core/quota/quota_text.h"

#define ENTRIES_DEFAULT_MAX 1024

struct weir_window weir_quota_window(const struct weir_quota *quota)
{
    struct weir_window window = quota->window;
    if (window.unset)
        return (struct weir_window){ .length = quota->limit.per };
    if (window.calendar != WEIR_CALENDAR_NONE)
        window.length = weir_calendar_length(window.calendar);
    return window;
}

uint64_t weir_quota_quantity(const struct weir_quota *quota)
{
    const struct weir_limit *limit = &quota->limit;
    if (limit->unlimited || limit->per == 0)
        return WEIR_ALGORITHM_QUANTITY_MAX;
    weir_u128 units = weir_quota_window(quota).length;
    units = units * limit->units / limit->per;
    return units < WEIR_ALGORITHM_QUANTITY_MAX ? (uint64_t)units
                                               : WEIR_ALGORITHM_QUANTITY_MAX;
}

uint32_t weir_quota_entries(const struct weir_quota *quota)
{
    if (quota->max_entries > 0)
        return quota->max_entries;
    uint64_t quantity = weir_quota_quantity(quota);
    weir_assert(quantity <= WEIR_ALGORITHM_QUANTITY_MAX);
    if (quantity == 0)
        return 1;
    return quantity < ENTRIES_DEFAULT_MAX ? (uint32_t)quantity
                                          : ENTRIES_DEFAULT_MAX;
}

/* ---- Windows ---- */

static int check_length(const struct weir_quota *quota, struct weir_diag *diag)
{
    struct weir_window window = weir_quota_window(quota);
    if (window.length >= WEIR_WINDOW_MIN && window.length <= WEIR_PERIOD_MAX)
        return 0;
    char text[32];
    text[weir_window_format(&window, text, sizeof(text) - 1)] = '\0';
    if (quota->window.unset)
        return weir_diag_set(diag, WEIR_EQUOTA, "the limit's period ", text,
                             " is no window; write one of 1 ms to 366 days, "
                             "as window=1s",
                             NULL);
    return weir_diag_set(
        diag, WEIR_EQUOTA, "the window ", text,
        " can't be; write one of 1 ms to 366 days, as window=1min", NULL);
}

static int check_quantity(const struct weir_quota *quota,
                          struct weir_diag *diag)
{
    const struct weir_limit *limit = &quota->limit;
    if (limit->units == 0 || weir_quota_quantity(quota) > 0)
        return 0;
    weir_assert(!limit->unlimited && limit->per > 0);
    struct weir_window window = weir_quota_window(quota);
    struct weir_window least = { .length = limit->per / limit->units +
                                           (limit->per % limit->units > 0) };
    char limit_text[64];
    char window_text[32];
    char least_text[32];
    limit_text[weir_limit_format(limit, limit_text, 63)] = '\0';
    window_text[weir_window_format(&window, window_text, 31)] = '\0';
    least_text[weir_window_format(&least, least_text, 31)] = '\0';
    return weir_diag_set(diag, WEIR_EQUOTA, "at ", limit_text,
                         " less than one unit passes in a window of ",
                         window_text, "; write a window of ", least_text,
                         " or more, or a higher limit", NULL);
}

/* [A-Za-z][A-Za-z0-9_+/-]*, without an empty part: "Europe/Berlin". */
static bool is_zone_name(struct weir_text tz)
{
    static const char also[] = "_+/-0123456789";
    for (size_t i = 0; i < tz.len; i++) {
        char c = tz.p[i];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        bool starts = i == 0 || tz.p[i - 1] == '/';
        if (!letter && (starts || !memchr(also, c, sizeof(also) - 1)))
            return false;
    }
    return tz.len > 0 && tz.p[tz.len - 1] != '/';
}

static bool two_digits(const char *p, int32_t *out)
{
    bool sound = p[0] >= '0' && p[0] <= '9' && p[1] >= '0' && p[1] <= '9';
    if (sound)
        *out = (p[0] - '0') * 10 + p[1] - '0';
    return sound;
}

#define TZ_HOURS_MAX 14 /* the largest offset of any zone (Kiribati) */

bool weir_tz_fixed(struct weir_text tz, int32_t *out_offset_s)
{
    if (tz.len == 0 || weir_text_equal(tz, WEIR_TEXT("UTC"))) {
        *out_offset_s = 0;
        return true;
    }
    int32_t hours;
    int32_t minutes;
    bool sound = tz.len == 6 && (tz.p[0] == '+' || tz.p[0] == '-') &&
                 tz.p[3] == ':' && two_digits(tz.p + 1, &hours) &&
                 two_digits(tz.p + 4, &minutes) && minutes < 60 &&
                 hours * 60 + minutes <= TZ_HOURS_MAX * 60;
    if (sound)
        *out_offset_s = (tz.p[0] == '-' ? -60 : 60) * (hours * 60 + minutes);
    weir_assert(!sound || (*out_offset_s > -86400 && *out_offset_s < 86400));
    return sound;
}

static int check_time_zone(struct weir_text tz, struct weir_diag *diag)
{
    int32_t offset;
    if (weir_tz_fixed(tz, &offset) ||
        (tz.len <= WEIR_TZ_MAX && is_zone_name(tz)))
        return 0;
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA, "tz can't be ",
                         weir_text_show(tz, shown),
                         "; write UTC, an offset from -14:00 to +14:00 as "
                         "+03:00, or a zone's name as Europe/Berlin",
                         NULL);
}

static int check_fixed_window(const struct weir_quota *quota,
                              struct weir_diag *diag)
{
    int error = check_length(quota, diag);
    if (error == 0)
        error = check_quantity(quota, diag);
    return error < 0 ? error : check_time_zone(quota->tz, diag);
}

static int check_sliding(const struct weir_quota *quota, struct weir_diag *diag)
{
    if (quota->window.calendar != WEIR_CALENDAR_NONE)
        return weir_quota_fault("a window that slides begins at no minute or "
                                "month of a calendar; write a duration as "
                                "window=30d, or algorithm=fixed_window",
                                diag);
    int error = check_length(quota, diag);
    return error < 0 ? error : check_quantity(quota, diag);
}

static int check_sliding_window(const struct weir_quota *quota,
                                struct weir_diag *diag)
{
    if (quota->sub_windows < 1 || quota->sub_windows > WEIR_SUB_WINDOWS_MAX)
        return weir_quota_fault("sub_windows may be 1 to 60", diag);
    return check_sliding(quota, diag);
}

static int check_sliding_log(const struct weir_quota *quota,
                             struct weir_diag *diag)
{
    int error = check_sliding(quota, diag);
    if (error < 0)
        return error;
    if (quota->max_entries > WEIR_ENTRIES_MAX)
        return weir_quota_fault("max_entries may be 1 to 4096; for more use "
                                "algorithm=sliding_window, which only counts",
                                diag);
    uint64_t quantity = weir_quota_quantity(quota);
    bool guessed = quota->max_entries == 0 && !quota->limit.unlimited;
    if (!guessed || quantity <= ENTRIES_DEFAULT_MAX)
        return 0;
    char number[WEIR_NUMBER_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA,
                         "a sliding log remembers each take, and ",
                         weir_number_show(quantity, number),
                         " units pass in its window; say how many takes it "
                         "shall remember, at most max_entries=4096, or use "
                         "algorithm=sliding_window",
                         NULL);
}

/* ---- Buckets ---- */

static int refuse_bucket(struct weir_text part, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA, weir_text_show(part, shown),
                         " is not a bucket of next_buckets; write LIMIT:BURST "
                         "in units as 20/s:200, or spill:500",
                         NULL);
}

static int parse_bucket(struct weir_text part, struct weir_next_bucket *out,
                        struct weir_diag *diag)
{
    struct weir_text burst = part;
    struct weir_text limit = weir_text_trim(weir_text_cut(&burst, ':'));
    if (!burst.p)
        return refuse_bucket(part, diag);
    struct weir_next_bucket bucket = {
        .limit = { .per = WEIR_SECOND },
        .spill = weir_text_equal(limit, WEIR_TEXT("spill")),
    };
    int error = 0;
    if (!bucket.spill)
        error = weir_limit_parse(limit, &bucket.limit, diag);
    if (error == 0)
        error = weir_units_parse(burst, &bucket.burst, diag);
    if (error < 0)
        return error;
    if (bucket.limit.unlimited || (!bucket.spill && bucket.limit.units == 0))
        return weir_quota_fault("a bucket of next_buckets has a limit above 0; "
                                "write it as 20/s:200",
                                diag);
    if (bucket.burst == 0 || bucket.burst > WEIR_BURST_MAX)
        return weir_quota_fault("the burst of a bucket of next_buckets may be "
                                "1 to 2^50 units",
                                diag);
    weir_assert(bucket.spill == (bucket.limit.units == 0));
    *out = bucket;
    return 1;
}

int weir_next_bucket_parse(struct weir_text *text, struct weir_next_bucket *out,
                           struct weir_diag *diag)
{
    if (text->len == 0)
        return 0;
    struct weir_text rest = *text;
    struct weir_text part = weir_text_trim(weir_text_cut(&rest, ','));
    int got = parse_bucket(part, out, diag);
    /* A comma at the end has an empty bucket behind it, which is an error. */
    if (got > 0 && rest.p && rest.len == 0)
        return refuse_bucket((struct weir_text){ NULL, 0 }, diag);
    weir_assert(rest.len < text->len);
    if (got > 0)
        *text = rest;
    return got;
}

static int check_token_buckets(const struct weir_quota *quota,
                               struct weir_diag *diag)
{
    weir_assert(quota->algorithm == WEIR_TOKEN_BUCKETS);
    struct weir_text rest = quota->next_buckets;
    if (rest.len > WEIR_NEXT_BUCKETS_MAX)
        return weir_quota_fault(
            "next_buckets is too long; it may have 256 bytes", diag);
    size_t count = 0;
    struct weir_next_bucket bucket;
    int got = weir_next_bucket_parse(&rest, &bucket, diag);
    for (; got > 0; count++)
        got = weir_next_bucket_parse(&rest, &bucket, diag);
    if (got < 0)
        return got;
    if (count == 0)
        return weir_quota_fault("token_buckets needs further buckets; write "
                                "them as next_buckets='20/s:200, spill:500', "
                                "or use algorithm=token_bucket",
                                diag);
    return weir_quota_fault(
        count < WEIR_BUCKETS_MAX ? NULL : "next_buckets may be 3 at most",
        diag);
}

/* ---- Stores ---- */

static const struct scheme {
    const char *name;
    bool several; /* addresses */
    bool path;    /* "/0" behind it */
} schemes[] = {
    { "redis://", false, true },
    { "rediss://", false, true },
    { "memcached://", true, false },
};

static bool is_number_to(struct weir_text text, uint64_t from, uint64_t to)
{
    uint64_t number;
    return text.len <= 5 && weir_number_parse(text, &number) &&
           number >= from && number <= to;
}

/* "HOST:PORT", "[::1]:PORT". */
static bool is_address(struct weir_text text)
{
    size_t colon = text.len;
    while (colon > 0 && text.p[colon - 1] != ':')
        colon--;
    if (colon < 2)
        return false;
    struct weir_text port = { text.p + colon, text.len - colon };
    struct weir_text host = { text.p, colon - 1 };
    weir_assert(host.len + 1 + port.len == text.len && host.len > 0);
    bool six = host.p[0] == '[';
    if (six && (host.len < 4 || host.p[host.len - 1] != ']'))
        return false;
    for (size_t i = six; i + six < host.len; i++) {
        char c = host.p[i];
        bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                     (c >= '0' && c <= '9') || c == '.';
        if (!plain && !(six ? c == ':' || c == '%' : c == '-' || c == '_'))
            return false;
    }
    return is_number_to(port, 1, 65535);
}

static bool is_address_list(const struct scheme *scheme, struct weir_text rest)
{
    if (scheme->path) {
        struct weir_text path = rest;
        rest = weir_text_cut(&path, '/');
        if (path.p && !is_number_to(path, 0, 65535))
            return false;
    }
    size_t max = scheme->several ? WEIR_STORE_SERVERS_MAX : 1;
    for (size_t i = 0; i < max; i++) {
        if (!is_address(weir_text_cut(&rest, ',')))
            return false;
        if (!rest.p)
            return true;
    }
    return false;
}

static bool is_store(struct weir_text store)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(schemes); i++) {
        size_t len = strlen(schemes[i].name);
        if (store.len > len && store.len <= WEIR_STORE_MAX &&
            memcmp(store.p, schemes[i].name, len) == 0)
            return is_address_list(&schemes[i], weir_text_drop(store, len));
    }
    return false;
}

static int check_store(struct weir_text store, struct weir_diag *diag)
{
    if (store.len == 0)
        return 0; /* the root */
    if (memchr(store.p, '@', store.len))
        return weir_quota_fault("a quota is no place for a store's password; "
                                "write HOST:PORT alone here, and user and "
                                "password into the limiters' secrets file",
                                diag);
    if (is_store(store))
        return 0;
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA, "store can't be ",
                         weir_text_show(store, shown),
                         "; write root, redis://HOST:PORT, "
                         "redis://HOST:PORT/DB, rediss://HOST:PORT or "
                         "memcached://HOST:PORT,HOST:PORT",
                         NULL);
}

static int check_exact(const struct weir_quota *quota, struct weir_diag *diag)
{
    weir_assert(quota->sharing == WEIR_EXACT);
    int error = check_store(quota->store, diag);
    if (error < 0)
        return error;
    if (quota->on_stale == WEIR_STALE_HOLD)
        return weir_quota_fault("on_stale=hold doesn't go with sharing=exact, "
                                "whose store holds the fill; use share, pass "
                                "or limit",
                                diag);
    if (quota->deadline < WEIR_DEADLINE_MIN ||
        quota->deadline > WEIR_DEADLINE_MAX)
        return weir_quota_fault(
            "deadline may be 0.1 ms to 1 min; write it as deadline=20ms", diag);
    return 0;
}

/* ---- All of them ---- */

static int check_rule(const struct weir_quota *quota, struct weir_diag *diag)
{
    switch (quota->algorithm) {
    case WEIR_LEAKY:
    case WEIR_LEAKY_QUEUE:
    case WEIR_TOKEN_BUCKET:
        return 0;
    case WEIR_TOKEN_BUCKETS:
        return check_token_buckets(quota, diag);
    case WEIR_FIXED_WINDOW:
        return check_fixed_window(quota, diag);
    case WEIR_SLIDING_LOG:
        return check_sliding_log(quota, diag);
    case WEIR_SLIDING_WINDOW:
        return check_sliding_window(quota, diag);
    case WEIR_PERMITS:
        break;
    }
    weir_assert(!"an algorithm is one of these");
}

int weir_quota_check_algorithm(const struct weir_quota *quota,
                               struct weir_diag *diag)
{
    int error = check_rule(quota, diag);
    if (error == 0 && quota->sharing == WEIR_EXACT)
        error = check_exact(quota, diag);
    return error;
}
