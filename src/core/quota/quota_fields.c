/* SPDX-License-Identifier: MIT
 * core/quota/quota_fields.c - a quota's fields as texts.
 *
 * One table, FIELDS, is behind everything that names a field: the command
 * line's NAME=VALUE, YAML, JSON, the columns of a store, the help. A row has a
 * field's name and type, its member in struct weir_quota, its shape and the
 * quotas that it belongs to; reading, writing and comparing use the shape. A
 * new field is one row, and can't be missed in one of these uses.
 *
 * A field that belongs to some algorithms or sharings only is refused with any
 * other rather than ignored, according to 'belongings'; at its default it is
 * then not shown at all. If a text's row has words, the first is its default,
 * and is stored as an absent text.
 *
 * Values of enumerations are words in separate tables. Combinations that aren't
 * implemented are in the table in quota.c. */

#include <string.h>

#include "core/quota/quota_internal.h"
#include "core/quota/quota_text.h"

#define FIELDS(X)                                                              \
    X(name, TEXT, false, SHAPE_TEXT, NULL, ALL,                                \
      "The unique name, 1 to 255 bytes of UTF-8; with '*' a template.")        \
    X(parent, TEXT, false, SHAPE_TEXT, NULL, ALL,                              \
      "The quota above; a template's may use {1} to {9}. Default: none.")      \
    X(kind, TEXT, false, SHAPE_WORD, kinds, ALL,                               \
      "The kind of count: rate (units over time) or concurrency (units in "    \
      "flight). Default: rate.")                                               \
    X(limit, TEXT, false, SHAPE_LIMIT, NULL, ALL,                              \
      "100/s, 90000/s, 100MiB/s, 5/min, 1000/month, 0 (limits all) or "        \
      "unlimited; of concurrency units at a time, 40. Default: unlimited.")    \
    X(low_burst, TEXT, false, SHAPE_BURST, NULL, LEAKY,                        \
      "Of leaky: fill above which some are limited, in units or time of "      \
      "the limit. Default: 1s, but never above high_burst.")                   \
    X(high_burst, TEXT, false, SHAPE_BURST, NULL, BUCKETS,                     \
      "The bucket's size: fill above which all are limited, in units or "      \
      "time of the limit. Default: 1.5s, but never below low_burst.")          \
    X(max_debt, TEXT, false, SHAPE_DURATION, NULL, COUNTED,                    \
      "Of a counted rate: how much of a bucket one process can fill, as "      \
      "time of the limit, 1s to 366d. Default: 60s.")                          \
    X(algorithm, TEXT, false, SHAPE_WORD, algorithms, ALL,                     \
      "How it decides: leaky, leaky_queue, token_bucket, token_buckets, "      \
      "fixed_window, sliding_log or sliding_window. Default: leaky.")          \
    X(window, TEXT, false, SHAPE_WINDOW, NULL, WINDOWS,                        \
      "Of windows and the log: a duration; of fixed_window also minute, "      \
      "hour, day, week or month. Default: the limit's period.")                \
    X(tz, TEXT, false, SHAPE_TEXT, utc, CALENDARS,                             \
      "Of a calendar's window: UTC, +03:00 or a zone as Europe/Berlin. "       \
      "Default: UTC.")                                                         \
    X(sub_windows, NUMBER, false, SHAPE_COUNT, NULL, SLIDING_WINDOW,           \
      "Of sliding_window: into how many parts a window is cut, 1 to 60. "      \
      "Default: 4.")                                                           \
    X(max_entries, NUMBER, false, SHAPE_COUNT, NULL, SLIDING_LOG,              \
      "Of sliding_log: how many takes it remembers, 1 to 4096. Default: "      \
      "as many as units pass in a window, if that is at most 1024.")           \
    X(count_limited, FLAG, false, SHAPE_FLAG, flags, WINDOWS,                  \
      "Of windows and the log: whether limited units count too, yes or no. "   \
      "Default: no.")                                                          \
    X(initial, TEXT, false, SHAPE_BURST, NULL, INITIAL,                        \
      "Of token_bucket: its tokens at the first use, in units or time "        \
      "of the limit. Default: high_burst.")                                    \
    X(next_buckets, TEXT, false, SHAPE_TEXT, NULL, TOKEN_BUCKETS,              \
      "Of token_buckets: LIMIT:BURST of 1 to 3 further buckets, as in "        \
      "20/s:200, spill:500. Default: none.")                                   \
    X(sharing, TEXT, false, SHAPE_WORD, sharings, ALL,                         \
      "How processes share the quota: local, counted, leased, exact or "       \
      "adaptive. Default: counted.")                                           \
    X(store, TEXT, false, SHAPE_TEXT, root, EXACT,                             \
      "Of exact: the store that decides, root, redis://HOST:PORT, "            \
      "rediss://HOST:PORT or memcached://HOST:PORT. Default: root.")           \
    X(deadline, TEXT, false, SHAPE_DURATION, NULL, EXACT,                      \
      "Of exact: how long the store may take to decide. Default: 20ms.")       \
    X(share_algorithm, TEXT, false, SHAPE_WORD, shares, LEASED,                \
      "Of leased: how shares are set, none, static, proportional_share, "      \
      "fair_share or priority. Default: fair_share.")                          \
    X(safe_capacity, TEXT, false, SHAPE_CAPACITY, NULL, LEASED,                \
      "Of leased: a process's limit under on_stale=share. "                    \
      "Default: dynamic, the limit by the number of processes.")               \
    X(lease, TEXT, false, SHAPE_DURATION, NULL, LEASED,                        \
      "Of leased: how long a share lasts without renewal, 1s to 24h. "         \
      "Default: 60s.")                                                         \
    X(refresh, TEXT, false, SHAPE_DURATION, NULL, LEASED,                      \
      "Of leased: how often shares are renewed, 100ms up to the lease. "       \
      "Default: a quarter of the lease, at most 15s.")                         \
    X(learning, TEXT, false, SHAPE_DURATION, NULL, LEASED,                     \
      "Of leased: how long a new root gives no more than processes report "    \
      "they have, 0s to 24h. Default: the lease.")                             \
    X(priority, NUMBER, false, SHAPE_I64, NULL, LEASED,                        \
      "Of leased: of a process's wants, below 0 too; the highest comes "       \
      "first. Default: 0.")                                                    \
    X(decay_factor, TEXT, false, SHAPE_RATIO, NULL, LEASED,                    \
      "Of leased: refresh is shorter by it at each level of roots, above 0 "   \
      "and at most 1. Default: 1.")                                            \
    X(controller, TEXT, false, SHAPE_WORD, controllers, ADAPTIVE,              \
      "Of adaptive: how the limit moves, target, percentile, request, "        \
      "vegas, gradient2, envoy or none. Default: target.")                     \
    X(scope, TEXT, false, SHAPE_WORD, scopes, SCOPES,                          \
      "Of adaptive with target: whose limit is found, each process its own "   \
      "or one for the fleet. Default: process.")                               \
    X(target, TEXT, false, SHAPE_DURATION, NULL, TARGETS,                      \
      "Of adaptive: how long a request may take. Default: 200ms.")             \
    X(percentile, TEXT, false, SHAPE_DECIMAL, NULL, PERCENTILES,               \
      "Of adaptive: for how many requests in 100 target must hold, as "        \
      "99.9. Default: 95; of envoy 50.")                                       \
    X(min, TEXT, false, SHAPE_DECIMAL, NULL, ADAPTIVE,                         \
      "Of adaptive: the least limit of the scope; with target also below "     \
      "1, as 0.25. Default: the controller's.")                                \
    X(max, TEXT, false, SHAPE_DECIMAL, NULL, ADAPTIVE,                         \
      "Of adaptive: the highest limit of the scope. "                          \
      "Default: the controller's.")                                            \
    X(fleet_min, TEXT, false, SHAPE_DECIMAL, fleet, ADAPTIVE,                  \
      "Of adaptive: the least limit of all processes together. "               \
      "Default: none.")                                                        \
    X(fleet_max, TEXT, false, SHAPE_DECIMAL, fleet, ADAPTIVE,                  \
      "Of adaptive: the highest limit of all processes together. "             \
      "Default: none.")                                                        \
    X(classes, TEXT, false, SHAPE_TEXT, NULL, ADAPTIVE,                        \
      "Of adaptive: NAME:observed (never limited) or NAME:50% (a share) "      \
      "with commas, as sync:observed,bulk:50%. Default: none.")                \
    X(permit_timeout, TEXT, false, SHAPE_DURATION, NULL, PERMITS,              \
      "Of concurrency that is leased, exact or adaptive: when a permit "       \
      "comes back by itself. Default: 60s.")                                   \
    X(queue, TEXT, false, SHAPE_WORD, queues, WAITS,                           \
      "Of concurrency: the order of waiting callers, fifo, lifo or priority. " \
      "Default: fifo.")                                                        \
    X(queue_max, NUMBER, false, SHAPE_COUNT, NULL, WAITS,                      \
      "Of concurrency: callers that may wait in a process; more are refused "  \
      "at once. Default: 1000.")                                               \
    X(mode, TEXT, false, SHAPE_WORD, modes, ALL,                               \
      "enforce, shadow (reports refusals without refusing) or off. "           \
      "Default: enforce.")                                                     \
    X(on_stale, TEXT, false, SHAPE_WORD, stales, ALL,                          \
      "The decision without a root, store or lease: pass, limit, "             \
      "share or hold. Default: pass.")                                         \
    X(order, NUMBER, false, SHAPE_U32, NULL, ALL,                              \
      "Of a template: the first match rules, lowest first. Default: 0.")       \
    X(glob, TEXT, false, SHAPE_WORD, globs, ALL,                               \
      "Of a template: name ('*' is any run of characters) or path (as "        \
      "Go's filepath.Match). Default: name.")                                  \
    X(overflow, TEXT, false, SHAPE_TEXT, NULL, ALL,                            \
      "Of a template: the quota for instances without a slot. "                \
      "Default: none.")                                                        \
    X(description, TEXT, false, SHAPE_TEXT, NULL, ALL,                         \
      "Free text, up to 1024 bytes. Default: none.")                           \
    X(labels, MAP, false, SHAPE_TEXT, NULL, ALL,                               \
      "Free key=value pairs, up to 64. Default: none.")                        \
    X(id, NUMBER, true, SHAPE_U64, NULL, ALL,                                  \
      "The store's number for the quota, never used again.")                   \
    X(epoch, NUMBER, true, SHAPE_U64, NULL, ALL,                               \
      "The store's epoch at the last change.")                                 \
    X(created, NUMBER, true, SHAPE_U64, NULL, ALL,                             \
      "The store's epoch at which the name was created.")

enum shape {
    SHAPE_TEXT,
    SHAPE_WORD,
    SHAPE_LIMIT,
    SHAPE_BURST,
    SHAPE_WINDOW,
    SHAPE_CAPACITY, /* a limit, or dynamic */
    SHAPE_DURATION,
    SHAPE_RATIO,
    SHAPE_DECIMAL, /* 0 is unset; "none" if there are 'words' */
    SHAPE_FLAG,
    SHAPE_COUNT, /* U32 from 1 */
    SHAPE_U32,
    SHAPE_U64,
    SHAPE_I64,
};

enum belongs {
    TO_ALL,
    TO_LEAKY,
    TO_BUCKETS,
    TO_WINDOWS,
    TO_CALENDARS,
    TO_SLIDING_WINDOW,
    TO_SLIDING_LOG,
    TO_INITIAL,
    TO_TOKEN_BUCKETS,
    TO_COUNTED,
    TO_EXACT,
    TO_LEASED,
    TO_PERMITS,
    TO_ADAPTIVE,
    TO_SCOPES,
    TO_TARGETS,
    TO_PERCENTILES,
    TO_WAITS,
};

#define BIT(VALUE) (1u << (VALUE))
#define ANY UINT32_MAX
#define WINDOWS \
    (BIT(WEIR_FIXED_WINDOW) | BIT(WEIR_SLIDING_WINDOW) | BIT(WEIR_SLIDING_LOG))

/* The quotas for which a field has an effect. */
static const struct belonging {
    uint32_t kinds;
    uint32_t algorithms;
    uint32_t sharings;
    bool calendar;
    const char *with;
    uint32_t controllers; /* 0: any */
} belongings[] = {
    [TO_ALL] = { ANY, ANY, ANY, false, NULL },
    [TO_LEAKY] = { ANY, BIT(WEIR_LEAKY),
                   BIT(WEIR_LOCAL) | BIT(WEIR_COUNTED) | BIT(WEIR_LEASED),
                   false, "algorithm=leaky that is local, counted or leased" },
    [TO_BUCKETS] = { ANY, ~WINDOWS, ANY, false,
                     "the algorithms leaky, leaky_queue, token_bucket and "
                     "token_buckets" },
    [TO_WINDOWS] = { ANY, WINDOWS, ANY, false,
                     "the algorithms fixed_window, sliding_log and "
                     "sliding_window" },
    [TO_CALENDARS] = { ANY, BIT(WEIR_FIXED_WINDOW), ANY, true,
                       "algorithm=fixed_window and a window of minute, hour, "
                       "day, week or month" },
    [TO_SLIDING_WINDOW] = { ANY, BIT(WEIR_SLIDING_WINDOW), ANY, false,
                            "algorithm=sliding_window" },
    [TO_SLIDING_LOG] = { ANY, BIT(WEIR_SLIDING_LOG), ANY, false,
                         "algorithm=sliding_log" },
    [TO_INITIAL] = { ANY, BIT(WEIR_TOKEN_BUCKET),
                     BIT(WEIR_LOCAL) | BIT(WEIR_EXACT), false,
                     "algorithm=token_bucket that is local or exact" },
    [TO_TOKEN_BUCKETS] = { ANY, BIT(WEIR_TOKEN_BUCKETS), ANY, false,
                           "algorithm=token_buckets" },
    [TO_COUNTED] = { BIT(WEIR_RATE), ANY, BIT(WEIR_COUNTED), false,
                     "sharing=counted and kind=rate" },
    [TO_EXACT] = { ANY, ANY, BIT(WEIR_EXACT), false, "sharing=exact" },
    [TO_LEASED] = { ANY, ANY, BIT(WEIR_LEASED), false, "sharing=leased" },
    [TO_PERMITS] = { BIT(WEIR_CONCURRENCY), ANY,
                     BIT(WEIR_LEASED) | BIT(WEIR_EXACT) | BIT(WEIR_ADAPTIVE),
                     false,
                     "kind=concurrency that is leased, exact or adaptive" },
    [TO_ADAPTIVE] = { ANY, ANY, BIT(WEIR_ADAPTIVE), false, "sharing=adaptive" },
    [TO_SCOPES] = { ANY, ANY, BIT(WEIR_ADAPTIVE), false,
                    "sharing=adaptive and controller=target",
                    BIT(WEIR_CONTROLLER_TARGET) },
    [TO_TARGETS] = { ANY, ANY, BIT(WEIR_ADAPTIVE), false,
                     "sharing=adaptive and controller=target, percentile or "
                     "request",
                     BIT(WEIR_CONTROLLER_TARGET) |
                         BIT(WEIR_CONTROLLER_PERCENTILE) |
                         BIT(WEIR_CONTROLLER_REQUEST) },
    [TO_PERCENTILES] = { ANY, ANY, BIT(WEIR_ADAPTIVE), false,
                         "sharing=adaptive and controller=target, percentile "
                         "or envoy",
                         BIT(WEIR_CONTROLLER_TARGET) |
                             BIT(WEIR_CONTROLLER_PERCENTILE) |
                             BIT(WEIR_CONTROLLER_ENVOY) },
    [TO_WAITS] = { BIT(WEIR_CONCURRENCY), ANY, ~BIT(WEIR_EXACT), false,
                   "kind=concurrency that isn't exact" },
};

struct word {
    const char *text; /* NULL ends a table */
    int value;
};

static const struct word kinds[] = {
    { "rate", WEIR_RATE },
    { "concurrency", WEIR_CONCURRENCY },
    { NULL, 0 },
};

static const struct word sharings[] = {
    { "local", WEIR_LOCAL },       { "counted", WEIR_COUNTED },
    { "leased", WEIR_LEASED },     { "exact", WEIR_EXACT },
    { "adaptive", WEIR_ADAPTIVE }, { NULL, 0 },
};

static const struct word algorithms[] = {
    { "leaky", WEIR_LEAKY },
    { "leaky_queue", WEIR_LEAKY_QUEUE },
    { "token_bucket", WEIR_TOKEN_BUCKET },
    { "token_buckets", WEIR_TOKEN_BUCKETS },
    { "fixed_window", WEIR_FIXED_WINDOW },
    { "sliding_log", WEIR_SLIDING_LOG },
    { "sliding_window", WEIR_SLIDING_WINDOW },
    { NULL, 0 },
};

static const struct word shares[] = {
    { "none", WEIR_SHARE_NONE },
    { "static", WEIR_SHARE_STATIC },
    { "proportional_share", WEIR_SHARE_PROPORTIONAL },
    { "fair_share", WEIR_SHARE_FAIR },
    { "priority", WEIR_SHARE_PRIORITY },
    { NULL, 0 },
};

static const struct word controllers[] = {
    { "target", WEIR_CONTROLLER_TARGET },
    { "percentile", WEIR_CONTROLLER_PERCENTILE },
    { "request", WEIR_CONTROLLER_REQUEST },
    { "vegas", WEIR_CONTROLLER_VEGAS },
    { "gradient2", WEIR_CONTROLLER_GRADIENT2 },
    { "envoy", WEIR_CONTROLLER_ENVOY },
    { "none", WEIR_CONTROLLER_NONE },
    { NULL, 0 },
};

static const struct word scopes[] = {
    { "process", WEIR_SCOPE_PROCESS },
    { "fleet", WEIR_SCOPE_FLEET },
    { NULL, 0 },
};

static const struct word queues[] = {
    { "fifo", WEIR_WAIT_QUEUE_FIFO },
    { "lifo", WEIR_WAIT_QUEUE_LIFO },
    { "priority", WEIR_WAIT_QUEUE_PRIORITY },
    { NULL, 0 },
};

static const struct word modes[] = {
    { "enforce", WEIR_ENFORCE },
    { "shadow", WEIR_SHADOW },
    { "off", WEIR_OFF },
    { NULL, 0 },
};

static const struct word globs[] = {
    { "name", WEIR_GLOB_NAME },
    { "path", WEIR_GLOB_PATH },
    { NULL, 0 },
};

static const struct word stales[] = {
    { "pass", WEIR_STALE_PASS },
    { "limit", WEIR_STALE_LIMIT },
    { "share", WEIR_STALE_SHARE },
    { "hold", WEIR_STALE_HOLD },
    { NULL, 0 },
};

static const struct word utc[] = { { "UTC", 0 }, { NULL, 0 } };
static const struct word fleet[] = { { "none", 0 }, { NULL, 0 } };
static const struct word root[] = { { "root", 0 }, { NULL, 0 } };

/* The first two are used for output. */
static const struct word flags[] = {
    { "no", false },  { "yes", true }, { "false", false },
    { "true", true }, { NULL, 0 },
};

#define AS_FIELD(NAME, TYPE, READ_ONLY, SHAPE, WORDS, BELONGS, HELP) \
    { #NAME, WEIR_FIELD_##TYPE, READ_ONLY, HELP },
static const struct weir_field fields[] = { FIELDS(AS_FIELD) };

struct place {
    enum shape shape;
    size_t offset;
    size_t size;
    const struct word *words;
    enum belongs belongs;
};
#define AS_PLACE(NAME, TYPE, READ_ONLY, SHAPE, WORDS, BELONGS, HELP) \
    { SHAPE, offsetof(struct weir_quota, NAME),                      \
      sizeof(((struct weir_quota *)0)->NAME), WORDS, TO_##BELONGS },
static const struct place places[] = { FIELDS(AS_PLACE) };

#define FIELD_COUNT WEIR_COUNT_OF(fields)

const struct weir_field *weir_quota_fields(size_t *out_count)
{
    *out_count = FIELD_COUNT;
    return fields;
}

static size_t find_quota_field(struct weir_text name)
{
    size_t i = 0;
    while (i < FIELD_COUNT &&
           !weir_text_equal(weir_text_of(fields[i].name), name))
        i++;
    return i;
}

static size_t smaller_index(size_t a, size_t b)
{
    return a < b ? a : b;
}

#define NEAR_MAX 24

/* The number of letters to change to turn one word into the other
 * (Levenshtein), with a single row of the table. */
static size_t edit_distance(struct weir_text a, struct weir_text b)
{
    weir_assert(b.len <= NEAR_MAX);
    size_t row[NEAR_MAX + 1];
    for (size_t j = 0; j <= b.len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            size_t change = diagonal + (a.p[i - 1] != b.p[j - 1]);
            diagonal = row[j];
            row[j] =
                smaller_index(change, smaller_index(row[j], row[j - 1]) + 1);
        }
    }
    return row[b.len];
}

static int refuse_unknown_field(struct weir_text name, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    weir_text_show(name, shown);
    struct weir_text tried = { name.p, smaller_index(name.len, NEAR_MAX) };
    size_t nearest = 0;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        size_t far = edit_distance(tried, weir_text_of(fields[i].name));
        if (!fields[i].read_only && far < best) {
            best = far;
            nearest = i;
        }
    }
    weir_assert(best < SIZE_MAX);
    return weir_diag_set(diag, WEIR_ENOENT, "there is no field ", shown,
                         "; did you mean '", fields[nearest].name, "'?", NULL);
}

static int refuse_word(size_t field, struct weir_text value,
                       struct weir_diag *diag)
{
    weir_assert(field < FIELD_COUNT);
    char list[128];
    struct weir_out out = { list, sizeof(list) - 1, 0 };
    for (const struct word *word = places[field].words; word->text; word++) {
        weir_out_string(&out, out.len > 0 ? ", " : "");
        weir_out_string(&out, word->text);
    }
    weir_assert(out.len > 0 && out.len < out.size); /* not cut */
    list[out.len] = '\0';
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA, fields[field].name, " can't be ",
                         weir_text_show(value, shown), "; it is one of ", list,
                         NULL);
}

static int set_word(size_t field, void *member, struct weir_text value,
                    struct weir_diag *diag)
{
    weir_assert(field < FIELD_COUNT && places[field].words);
    for (const struct word *word = places[field].words; word->text; word++) {
        if (!weir_text_equal(weir_text_of(word->text), value))
            continue;
        /* every enumeration here has the representation of an int */
        memcpy(member, &word->value, sizeof(word->value));
        return 0;
    }
    return refuse_word(field, value, diag);
}

static void set_text_field(size_t field, struct weir_text *member,
                           struct weir_text value)
{
    weir_assert(places[field].shape == SHAPE_TEXT);
    const struct word *words = places[field].words;
    bool none = words && weir_text_equal(weir_text_of(words->text), value);
    *member = none ? (struct weir_text){ NULL, 0 } : value;
}

static int set_flag(size_t field, bool *member, struct weir_text value,
                    struct weir_diag *diag)
{
    weir_assert(places[field].size == sizeof(*member));
    for (const struct word *word = flags; word->text; word++) {
        if (weir_text_equal(weir_text_of(word->text), value)) {
            *member = word->value;
            return 0;
        }
    }
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA, fields[field].name, " can't be ",
                         weir_text_show(value, shown), "; it is yes or no",
                         NULL);
}

static int set_number_field(size_t field, void *member, struct weir_text value,
                            struct weir_diag *diag)
{
    weir_assert(places[field].size == 4 || places[field].size == 8);
    uint64_t number = 0;
    bool small = places[field].shape != SHAPE_U64;
    bool counts = places[field].shape == SHAPE_COUNT;
    bool sound = weir_number_parse(value, &number);
    char shown[WEIR_SHOW_MAX];
    if (!sound || (small && number > UINT32_MAX) || (counts && number == 0))
        return weir_diag_set(diag, WEIR_EQUOTA, fields[field].name,
                             " can't be ", weir_text_show(value, shown),
                             "; it is a whole number from ", counts ? "1" : "0",
                             " to ", small ? "4294967295" : "2^64 - 1", NULL);
    uint32_t narrow = (uint32_t)number;
    memcpy(member, small ? (void *)&narrow : (void *)&number,
           places[field].size);
    return 0;
}

static int set_signed(size_t field, int64_t *member, struct weir_text value,
                      struct weir_diag *diag)
{
    weir_assert(places[field].size == sizeof(*member));
    char shown[WEIR_SHOW_MAX];
    if (weir_signed_parse(value, member))
        return 0;
    return weir_diag_set(diag, WEIR_EQUOTA, fields[field].name, " can't be ",
                         weir_text_show(value, shown),
                         "; it is a whole number from -2^63 to 2^63 - 1", NULL);
}

static const struct weir_text dynamic = { "dynamic", 7 };

static int set_capacity_field(struct weir_limit *member, struct weir_text value,
                              struct weir_diag *diag)
{
    if (!weir_text_equal(value, dynamic))
        return weir_limit_parse(value, member, diag);
    *member = (struct weir_limit){ 0 };
    return 0;
}

static int set_decimal(size_t field, uint64_t *member, struct weir_text value,
                       struct weir_diag *diag)
{
    weir_assert(places[field].size == sizeof(*member));
    const struct word *words = places[field].words;
    if (!words || !weir_text_equal(weir_text_of(words->text), value))
        return weir_decimal_parse(value, fields[field].name, member, diag);
    *member = 0;
    return 0;
}

static void reset_field(struct weir_quota *quota, size_t field)
{
    weir_assert(field < FIELD_COUNT && !fields[field].read_only);
    struct weir_quota fresh;
    weir_quota_init(&fresh);
    memcpy((char *)quota + places[field].offset,
           (char *)&fresh + places[field].offset, places[field].size);
}

static int set_member(size_t field, void *member, struct weir_text value,
                      struct weir_diag *diag)
{
    weir_assert(field < FIELD_COUNT);
    switch (places[field].shape) {
    case SHAPE_TEXT:
        set_text_field(field, member, value);
        return 0;
    case SHAPE_WORD:
        return set_word(field, member, value, diag);
    case SHAPE_LIMIT:
        return weir_bound_parse(value, member, diag);
    case SHAPE_BURST:
        return weir_burst_parse(value, member, diag);
    case SHAPE_WINDOW:
        return weir_window_parse(value, member, diag);
    case SHAPE_CAPACITY:
        return set_capacity_field(member, value, diag);
    case SHAPE_DURATION:
        return weir_duration_parse(value, member, diag);
    case SHAPE_RATIO:
        return weir_ratio_parse(value, member, diag);
    case SHAPE_DECIMAL:
        return set_decimal(field, member, value, diag);
    case SHAPE_FLAG:
        return set_flag(field, member, value, diag);
    case SHAPE_COUNT:
    case SHAPE_U32:
    case SHAPE_U64:
        return set_number_field(field, member, value, diag);
    case SHAPE_I64:
        return set_signed(field, member, value, diag);
    }
    weir_assert(!"a field has a shape");
}

int weir_quota_set(struct weir_quota *quota, struct weir_text field,
                   struct weir_text value, struct weir_diag *diag)
{
    size_t i = find_quota_field(field);
    if (i == FIELD_COUNT)
        return refuse_unknown_field(field, diag);
    if (fields[i].read_only)
        return weir_diag_set(diag, WEIR_EQUOTA, fields[i].name,
                             " is the store's to set; leave it out", NULL);
    if (value.len == 0) {
        reset_field(quota, i);
        return 0;
    }
    return set_member(i, (char *)quota + places[i].offset, value, diag);
}

static bool same(size_t field, const struct weir_quota *a,
                 const struct weir_quota *b)
{
    weir_assert(field < FIELD_COUNT);
    const void *x = (const char *)a + places[field].offset;
    const void *y = (const char *)b + places[field].offset;
    switch (places[field].shape) {
    case SHAPE_TEXT:
        return weir_text_equal(*(const struct weir_text *)x,
                               *(const struct weir_text *)y);
    case SHAPE_LIMIT:
    case SHAPE_CAPACITY: {
        const struct weir_limit *p = x;
        const struct weir_limit *q = y;
        if (p->unlimited || q->unlimited)
            return p->unlimited == q->unlimited;
        return p->units == q->units && p->per == q->per;
    }
    case SHAPE_BURST: {
        const struct weir_burst *p = x;
        const struct weir_burst *q = y;
        if (p->unset || q->unset)
            return p->unset == q->unset;
        return p->amount == q->amount && p->in_time == q->in_time;
    }
    case SHAPE_WINDOW: {
        const struct weir_window *p = x;
        const struct weir_window *q = y;
        if (p->unset || q->unset)
            return p->unset == q->unset;
        return p->calendar == q->calendar &&
               (p->calendar != WEIR_CALENDAR_NONE || p->length == q->length);
    }
    case SHAPE_WORD:
    case SHAPE_DURATION:
    case SHAPE_RATIO:
    case SHAPE_DECIMAL:
    case SHAPE_FLAG:
    case SHAPE_COUNT:
    case SHAPE_U32:
    case SHAPE_U64:
    case SHAPE_I64:
        return memcmp(x, y, places[field].size) == 0;
    }
    weir_assert(!"a field has a shape");
}

/* ---- Whether a field applies ---- */

/* Whether the field is for rates only and the quota counts units in flight:
 * these have no algorithm. */
static bool is_of_rates(const struct weir_quota *quota, size_t field)
{
    weir_assert(field < FIELD_COUNT);
    return quota->kind == WEIR_CONCURRENCY &&
           belongings[places[field].belongs].algorithms != ANY;
}

static bool applies(const struct weir_quota *quota, size_t field)
{
    weir_assert(field < FIELD_COUNT);
    const struct belonging *to = &belongings[places[field].belongs];
    if (is_of_rates(quota, field))
        return false;
    return (to->kinds & BIT(quota->kind & 31)) &&
           (to->algorithms & BIT(quota->algorithm & 31)) &&
           (to->sharings & BIT(quota->sharing & 31)) &&
           (to->controllers == 0 ||
            (to->controllers & BIT(quota->controller & 31))) &&
           (!to->calendar || quota->window.calendar != WEIR_CALENDAR_NONE);
}

bool weir_quota_applies(const struct weir_quota *quota, const char *field)
{
    size_t i = find_quota_field(weir_text_of(field));
    return i < FIELD_COUNT && applies(quota, i);
}

/* ---- Reading ---- */

/* The word of an enumeration's value; NULL: it has none. */
static const char *word_of_value(size_t field, const void *member)
{
    int value;
    weir_assert(places[field].size == sizeof(value) && places[field].words);
    memcpy(&value, member, sizeof(value));
    const struct word *word = places[field].words;
    while (word->text && word->value != value)
        word++;
    return word->text;
}

int weir_quota_check_words(const struct weir_quota *quota,
                           struct weir_diag *diag)
{
    const char *wrong = NULL;
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (places[i].shape == SHAPE_WORD &&
            !word_of_value(i, (const char *)quota + places[i].offset))
            wrong = fields[i].name;
    if ((unsigned)quota->window.calendar > WEIR_CALENDAR_MONTH)
        wrong = "window";
    if (!wrong)
        return 0;
    return weir_diag_set(diag, WEIR_EQUOTA, wrong,
                         " holds a value that this version doesn't know; it "
                         "may come from a newer one",
                         NULL);
}

static size_t write_burst(const struct weir_quota *quota, const void *member,
                          char *buf, size_t size)
{
    weir_assert(member == &quota->low_burst || member == &quota->high_burst ||
                member == &quota->initial);
    struct weir_burst low;
    struct weir_burst high;
    weir_quota_effective(quota, &low, &high);
    if (member == &quota->low_burst)
        return weir_burst_format(&low, buf, size);
    if (member == &quota->initial && !quota->initial.unset)
        return weir_burst_format(&quota->initial, buf, size);
    return weir_burst_format(&high, buf, size);
}

static size_t get_text(size_t field, const struct weir_text *member,
                       struct weir_out *out)
{
    const struct word *words = places[field].words;
    if (member->len == 0 && words)
        weir_out_string(out, words->text);
    weir_out_text(out, *member);
    return out->len;
}

static size_t get_capacity(const struct weir_limit *member, char *buf,
                           size_t size)
{
    struct weir_out out = { buf, size, 0 };
    if (member->per > 0)
        return weir_limit_format(member, buf, size);
    weir_out_text(&out, dynamic);
    return out.len;
}

static size_t get_duration(const struct weir_quota *quota,
                           const weir_duration *member, char *buf, size_t size)
{
    weir_duration duration = *member;
    if (member == &quota->refresh && duration == WEIR_DURATION_UNSET)
        duration = weir_quota_refresh(quota, 0);
    if (member == &quota->learning)
        duration = weir_quota_learning(quota);
    return weir_duration_format(duration, buf, size);
}

static size_t get_decimal(size_t field, const struct weir_quota *quota,
                          const uint64_t *member, char *buf, size_t size)
{
    struct weir_out out = { buf, size, 0 };
    const struct word *words = places[field].words;
    uint64_t decimal = *member;
    if (decimal == 0 && words) {
        weir_out_string(&out, words->text);
        return out.len;
    }
    if (decimal == 0 && member == &quota->percentile)
        decimal = weir_quota_percentile(quota);
    else if (decimal == 0)
        decimal = weir_quota_bound(quota, member == &quota->max);
    weir_assert(decimal > 0);
    return weir_decimal_format(decimal, buf, size);
}

static size_t write_number(struct weir_out *out, uint64_t number)
{
    weir_out_number(out, number);
    return out->len;
}

static size_t get_member(size_t field, const struct weir_quota *quota,
                         char *buf, size_t size)
{
    weir_assert(field < FIELD_COUNT);
    struct weir_out out = { buf, size, 0 };
    const void *member = (const char *)quota + places[field].offset;
    struct weir_window window = weir_quota_window(quota);
    switch (places[field].shape) {
    case SHAPE_TEXT:
        return get_text(field, member, &out);
    case SHAPE_WORD:
        weir_out_string(&out, word_of_value(field, member));
        return out.len;
    case SHAPE_LIMIT:
        return weir_limit_format(member, buf, size);
    case SHAPE_BURST:
        return write_burst(quota, member, buf, size);
    case SHAPE_WINDOW:
        return weir_window_format(&window, buf, size);
    case SHAPE_CAPACITY:
        return get_capacity(member, buf, size);
    case SHAPE_DURATION:
        return get_duration(quota, member, buf, size);
    case SHAPE_RATIO:
        return weir_ratio_format(*(const uint32_t *)member, buf, size);
    case SHAPE_DECIMAL:
        return get_decimal(field, quota, member, buf, size);
    case SHAPE_FLAG:
        weir_out_string(&out, flags[*(const bool *)member].text);
        return out.len;
    case SHAPE_COUNT:
        return write_number(&out, member == &quota->max_entries
                                      ? weir_quota_entries(quota)
                                      : *(const uint32_t *)member);
    case SHAPE_U32:
        return write_number(&out, *(const uint32_t *)member);
    case SHAPE_U64:
        return write_number(&out, *(const uint64_t *)member);
    case SHAPE_I64:
        weir_out_signed(&out, *(const int64_t *)member);
        return out.len;
    }
    weir_assert(!"a field has a shape");
}

size_t weir_quota_get(const struct weir_quota *quota, const char *field,
                      char *buf, size_t size)
{
    size_t i = find_quota_field(weir_text_of(field));
    if (i == FIELD_COUNT)
        return 0;
    if (!applies(quota, i) && weir_quota_is_default(quota, field))
        return 0;
    size_t len = get_member(i, quota, buf, size);
    weir_assert(len <= size);
    return len;
}

bool weir_quota_is_default(const struct weir_quota *quota, const char *field)
{
    size_t i = find_quota_field(weir_text_of(field));
    struct weir_quota fresh;
    weir_quota_init(&fresh);
    return i < FIELD_COUNT && same(i, quota, &fresh);
}

bool weir_quota_equal(const struct weir_quota *a, const struct weir_quota *b)
{
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (!fields[i].read_only && !same(i, a, b))
            return false;
    }
    return true;
}

/* ---- Fields that don't apply ---- */

#define EDIT_MAX 160

/* The field because of which 'field' doesn't apply, and its value: most often
 * the one just edited. */
static void out_reason(const struct weir_quota *quota, size_t field,
                       struct weir_out *out)
{
    weir_assert(!applies(quota, field));
    const struct belonging *to = &belongings[places[field].belongs];
    const char *reason = to->controllers ? "controller" : "window";
    if (!(to->algorithms & BIT(quota->algorithm & 31)))
        reason = "algorithm";
    if (!(to->kinds & BIT(quota->kind & 31)) || is_of_rates(quota, field))
        reason = "kind";
    if (!(to->sharings & BIT(quota->sharing & 31)))
        reason = "sharing";
    char value[64];
    size_t len = weir_quota_get(quota, reason, value, sizeof(value));
    weir_out_string(out, reason);
    weir_out_string(out, "=");
    weir_out_text(out, (struct weir_text){ value, len });
}

int weir_quota_check_fields(const struct weir_quota *quota,
                            struct weir_diag *diag)
{
    struct weir_quota fresh;
    weir_quota_init(&fresh);
    char edit[EDIT_MAX];
    struct weir_out out = { edit, sizeof(edit) - 1, 0 };
    size_t first = FIELD_COUNT;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (applies(quota, i) || same(i, quota, &fresh))
            continue;
        if (first == FIELD_COUNT)
            out_reason(quota, i, &out);
        first = smaller_index(first, i);
        weir_out_string(&out, " ");
        weir_out_string(&out, fields[i].name);
        weir_out_string(&out, "=");
    }
    if (first == FIELD_COUNT)
        return 0;
    weir_assert(out.len < sizeof(edit));
    edit[out.len] = '\0';
    const char *with = is_of_rates(quota, first)
                           ? "kind=rate"
                           : belongings[places[first].belongs].with;
    return weir_diag_set(diag, WEIR_EQUOTA, fields[first].name, " goes with ",
                         with, " only; leave it out, as by ", edit, NULL);
}

size_t weir_quota_texts_size(const struct weir_quota *quota)
{
    size_t size = 0;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (places[i].shape == SHAPE_TEXT)
            size += ((const struct weir_text *)((const char *)quota +
                                                places[i].offset))
                        ->len;
    }
    return size;
}

void weir_quota_texts_move(struct weir_quota *quota, char *block)
{
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (places[i].shape != SHAPE_TEXT)
            continue;
        struct weir_text *text = (void *)((char *)quota + places[i].offset);
        if (text->len > 0)
            memcpy(block, text->p, text->len);
        text->p = text->len > 0 ? block : NULL;
        block += text->len;
    }
}
