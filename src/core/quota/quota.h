/* SPDX-License-Identifier: MIT
 * quota/quota.h - a quota: its fields, their texts, their valid combinations.
 * Pure: no I/O, no allocation. */

#ifndef WEIR_QUOTA_H
#define WEIR_QUOTA_H

#include <string.h>

#include "core/algorithm/algorithm.h"
#include "core/algorithm/wait_queue.h"
#include "core/concurrency/controller_kind.h"
#include "core/quota/lease.h"

/* The enumerations can grow: weir_quota_check() refuses a value that a later
 * version defines and names the field. The numbers are in the wire format and
 * in the stores: never reuse one. */
enum weir_kind { WEIR_RATE = 1, WEIR_CONCURRENCY = 2 };
enum weir_sharing {
    WEIR_LOCAL = 1,
    WEIR_COUNTED = 2,
    WEIR_LEASED = 3,
    WEIR_EXACT = 4,
    WEIR_ADAPTIVE = 5,
};
/* enum weir_algorithm is in algorithm/algorithm.h. */
enum weir_mode { WEIR_ENFORCE = 1, WEIR_SHADOW = 2, WEIR_OFF = 3 };
enum weir_on_stale {
    WEIR_STALE_PASS = 1,
    WEIR_STALE_LIMIT = 2,
    WEIR_STALE_SHARE = 3,
    WEIR_STALE_HOLD = 4,
};

/* How a leased quota is divided when more is wanted than the limit;
 * leased/fair_share.h has the exact rules. (enum weir_algorithm decides how a
 * lease holder keeps to its part.) */
enum weir_share_algorithm {
    WEIR_SHARE_NONE = 1,         /* as much as wanted; the limit is ignored */
    WEIR_SHARE_STATIC = 2,       /* as much as wanted, at most the whole
                                  * limit */
    WEIR_SHARE_PROPORTIONAL = 3, /* by the wants beyond an equal part */
    WEIR_SHARE_FAIR = 4,         /* weighted max-min */
    WEIR_SHARE_PRIORITY = 5,     /* the higher priority first, then fair */
};

enum weir_scope { /* of an adaptive limit */
                  WEIR_SCOPE_PROCESS = 1,
                  WEIR_SCOPE_FLEET =
                      2, /* one limit, which a root leases to all processes */
};

/* How a template's name matches others. */
enum weir_glob {
    WEIR_GLOB_NAME = 1, /* core/quota/glob.h: '*' is any run of characters */
    WEIR_GLOB_PATH = 2, /* the rules of Go's filepath.Match; no captures */
};

/* The shadow set: a second set of quotas that is tried beside the live one. Its
 * quotas are ordinary ones, but their names, parents and overflow quotas begin
 * with this prefix; names of the live set don't (the protocols refuse them). A
 * template rules names of its own set only. */
#define WEIR_SHADOW_PREFIX "shadow:"
#define WEIR_SHADOW_PREFIX_LEN (sizeof(WEIR_SHADOW_PREFIX) - 1)
#define WEIR_SHADOW_NAME_MAX (WEIR_NAME_MAX - WEIR_SHADOW_PREFIX_LEN)

static inline bool weir_name_is_shadow(struct weir_text name)
{
    return name.len >= WEIR_SHADOW_PREFIX_LEN &&
           memcmp(name.p, WEIR_SHADOW_PREFIX, WEIR_SHADOW_PREFIX_LEN) == 0;
}
/* A name of the shadow set without its prefix; any other name unchanged. */
static inline struct weir_text weir_name_live(struct weir_text name)
{
    if (!weir_name_is_shadow(name))
        return name;
    return (struct weir_text){ name.p + WEIR_SHADOW_PREFIX_LEN,
                               name.len - WEIR_SHADOW_PREFIX_LEN };
}

/* Bounds. */
#define WEIR_LIMIT_MAX 100000000000ull /* units a second */
#define WEIR_BURST_MAX (1ull << 50)    /* units */
#define WEIR_DESCRIPTION_MAX 1024      /* bytes */
#define WEIR_LABELS_MAX 4096           /* bytes, all labels together */
#define WEIR_LABELS_COUNT_MAX 64       /* labels of one quota */
#define WEIR_TEMPLATES_MAX 1024        /* templates in one store */
#define WEIR_CAPTURES_MAX 9            /* globs in a template's name */
#define WEIR_TZ_MAX 64                 /* bytes of a zone's name */
#define WEIR_NEXT_BUCKETS_MAX 256      /* bytes of next_buckets */
#define WEIR_STORE_MAX 512             /* bytes of a store's address */
#define WEIR_STORE_SERVERS_MAX 16      /* of one memcached:// */
#define WEIR_WINDOW_MIN WEIR_MILLISECOND
#define WEIR_DEADLINE_MIN (WEIR_MILLISECOND / 10)
#define WEIR_DEADLINE_MAX (60 * WEIR_SECOND)
#define WEIR_REFRESH_MIN (100 * WEIR_MILLISECOND)
#define WEIR_DECAY_ONE 1000000000u /* a decay_factor of 1 */
#define WEIR_CLASSES_TEXT_MAX 512  /* bytes of classes */
#define WEIR_DECIMAL_ONE 10000u    /* 1 in min, max, percentile, ... */
#define WEIR_WAITERS_MAX 1000000u  /* callers that wait for a permit */
#define WEIR_MAX_DEBT_MIN WEIR_SECOND
#define WEIR_MAX_DEBT_MAX WEIR_PERIOD_MAX
#define WEIR_PERMIT_TIMEOUT_MIN (100 * WEIR_MILLISECOND)
#define WEIR_PERMIT_TIMEOUT_MAX (86400 * WEIR_SECOND)

/* A rate as it was entered: 'units' every 'per' nanoseconds; or, for kind
 * concurrency, units at a time, without a period. units 0 refuses all;
 * 'unlimited' only counts. */
struct weir_limit {
    uint64_t units;
    weir_duration per; /* 1 ns .. WEIR_PERIOD_MAX; 0: units at a time, for kind
                        * concurrency only, which ignores it with 0 units or
                        * unlimited */
    bool unlimited;
};
#define WEIR_PERIOD_MAX (366ull * 86400 * WEIR_SECOND)

/* A burst as it was entered: units, or time of the limit. 'unset': not entered,
 * 'amount' is not valid: read a quota's bursts through weir_quota_effective()
 * or weir_quota_bursts() only. An unset low_burst is 1 s, but never above
 * high_burst; an unset high_burst is 1.5 s, but never below low_burst: entering
 * one alone is no error. */
struct weir_burst {
    uint64_t amount; /* units, or nanoseconds */
    bool in_time;
    bool unset;
};

/* A window as it was entered. 'unset': it is the limit's period; read it
 * through weir_quota_window(). */
struct weir_window {
    weir_duration length; /* ignored with a calendar; weir_quota_window() fills
                           * it: a month has 30 d */
    enum weir_calendar calendar;
    bool unset;
};

/* For refresh and learning: not entered; weir_quota_refresh() and
 * weir_quota_learning() return the value in force. */
#define WEIR_DURATION_UNSET UINT64_MAX

/* A quota. All texts are borrowed. The fields from 'window' on belong to some
 * kinds, algorithms or sharings only (weir_quota_applies()) and are at their
 * default in any other sound quota. */
struct weir_quota {
    struct weir_text name;        /* 1 .. WEIR_NAME_MAX bytes of UTF-8 */
    struct weir_text parent;      /* absent: a root of the tree */
    struct weir_text overflow;    /* templates: the quota for instances without
                                   * room */
    struct weir_text description; /* UTF-8 */
    struct weir_text labels;      /* "key=value\n…", sorted by key, unique;
                                   * keys [A-Za-z0-9_./-]{1,63}, values
                                   * UTF-8 without control characters */
    uint64_t id;      /* assigned by the store, never reused; 0: not stored
                       * yet */
    uint64_t epoch;   /* of its last change */
    uint64_t created; /* the epoch at which the name was created */
    uint32_t order;   /* templates: lowest first, then by glob.h */
    enum weir_kind kind;
    struct weir_limit limit;
    struct weir_burst low_burst;
    struct weir_burst high_burst;
    enum weir_algorithm algorithm;
    enum weir_sharing sharing;
    enum weir_mode mode;
    enum weir_on_stale on_stale;
    struct weir_window window;
    struct weir_text tz;           /* of a calendar window; absent: UTC */
    struct weir_text next_buckets; /* of token_buckets: "LIMIT:BURST, …" */
    struct weir_text store;        /* of sharing exact; absent: the root */
    struct weir_burst initial;     /* token_bucket; unset: the burst */
    weir_duration deadline;        /* time for a decision by a store */
    uint32_t sub_windows;
    uint32_t max_entries;            /* 0: weir_quota_entries() */
    struct weir_limit safe_capacity; /* for a client after its lease; 'per' 0:
                                      * unset, dynamic: the limit by the number
                                      * of clients */
    weir_duration lease;
    weir_duration refresh;        /* or WEIR_DURATION_UNSET */
    weir_duration learning;       /* or WEIR_DURATION_UNSET; 0: none */
    weir_duration permit_timeout; /* of kind concurrency */
    weir_duration max_debt;       /* counted rates: time of the limit that one
                                   * limiter may put into the bucket; more with
                                   * a large burst: counted/merge_debt.c */
    weir_duration target;         /* this and the following: of a controller */
    struct weir_text classes;     /* "sync:observed, bulk:50%"; absent: one */
    /* In 1 / WEIR_DECIMAL_ONE; 0: unset: the controller's default; for the
     * fleet: none. */
    uint64_t percentile;
    uint64_t min, max;             /* permits of the scope */
    uint64_t fleet_min, fleet_max; /* permits of all processes together */
    int64_t priority;              /* of wants; higher ones are served first */
    uint32_t decay_factor; /* 1 .. WEIR_DECAY_ONE, in 1 / WEIR_DECAY_ONE */
    enum weir_share_algorithm share_algorithm;
    enum weir_controller_kind controller;
    enum weir_scope scope;
    enum weir_wait_queue_order queue; /* the order of waiting callers */
    uint32_t queue_max; /* callers that may wait in a process, 1 .. */
    enum weir_glob glob;
    bool count_limited;
};

/* A quota with every field at its default and no name: rate, counted,
 * leaky, enforce, open, both bursts unset; limit unlimited. */
void weir_quota_init(struct weir_quota *quota);

/* Checks a name alone, of a quota, template, instance or request: 1 ..
 * WEIR_NAME_MAX bytes of UTF-8 without control characters (so no NUL).
 * Returns 0 or WEIR_ENAME. */
int weir_name_check(struct weir_text name, struct weir_diag *diag);

/* Whether the name holds a glob: '*', with WEIR_GLOB_PATH also one of ? [ \. */
bool weir_quota_is_template(const struct weir_quota *quota);

/* Whether roots lease its limit out: leased, or adaptive for the fleet. */
bool weir_quota_is_leased(const struct weir_quota *quota);

/* Checks a quota alone: the name, the ranges, low <= high, the table of
 * combinations. Returns 0, WEIR_ENAME or WEIR_EQUOTA with 'diag' filled: the
 * error, and a correction. */
int weir_quota_check(const struct weir_quota *quota, struct weir_diag *diag);

/* The bursts in force, in the form in which they are entered, never 'unset'.
 * Reading them back gives the same; the wire format carries them in this
 * form. */
void weir_quota_effective(const struct weir_quota *quota,
                          struct weir_burst *out_low,
                          struct weir_burst *out_high);

/* The bursts in units, as the bucket uses them: time converted to units of the
 * limit, high at least one unit. All algorithms but leaky have one burst: low
 * is high. Only for a quota of kind rate that passed the check and isn't
 * unlimited. */
void weir_quota_bursts(const struct weir_quota *quota, uint64_t *out_low,
                       uint64_t *out_high);

/* A burst in units of the limit, rounded up, at most WEIR_BURST_MAX. */
uint64_t weir_burst_units(const struct weir_limit *limit,
                          const struct weir_burst *burst);
/* Whether the burst 'a' is above 'b'. */
bool weir_burst_is_above(const struct weir_limit *limit,
                         const struct weir_burst *a,
                         const struct weir_burst *b);

/* The window in force, never 'unset'. */
struct weir_window weir_quota_window(const struct weir_quota *quota);

/* Units that pass in one window: limit x window, rounded down, at most
 * WEIR_ALGORITHM_QUANTITY_MAX, which is also the value without a limit. For a
 * quota that has windows and passed the check: 0 only with a limit of 0. */
uint64_t weir_quota_quantity(const struct weir_quota *quota);

/* Entries of a sliding log in force: max_entries, or the units that pass in a
 * window, 1 .. 1024. */
uint32_t weir_quota_entries(const struct weir_quota *quota);

/* The renewal interval of leases granted by a root 'level' levels below the
 * topmost (0): refresh x decay_factor^level, at least WEIR_REFRESH_MIN. If
 * refresh is unset: a quarter of the lease, at most 15 s. For a leased quota
 * that passed the check: at most the lease. */
weir_duration weir_quota_refresh(const struct weir_quota *quota,
                                 unsigned level);
/* The learning time of a root that takes over; if unset, the lease. */
weir_duration weir_quota_learning(const struct weir_quota *quota);
/* The capacity of a lease pool: units a second, or at a time; 'safe' below 0:
 * dynamic. */
double weir_quota_capacity(const struct weir_quota *quota);
double weir_quota_safe(const struct weir_quota *quota);

/* One of token_buckets' further buckets. 'spill': it has no limit and gets the
 * overflow of the one before. */
struct weir_next_bucket {
    struct weir_limit limit;
    uint64_t burst; /* units, 1 .. WEIR_BURST_MAX */
    bool spill;
};
/* Takes the first bucket off a text "20/s:200, spill:500". Returns 1, or 0 at
 * the text's end, or WEIR_EQUOTA. */
int weir_next_bucket_parse(struct weir_text *text, struct weir_next_bucket *out,
                           struct weir_diag *diag);

/* "+03:00", "-11:30", "UTC", "" (UTC): seconds east of Greenwich. false:
 * another text, which may be the name of a zone. */
bool weir_tz_fixed(struct weir_text tz, int32_t *out_offset_s);

/* ---- Fields as texts: one table serves the command line, YAML, JSON and
 * the stores. Fields: name parent kind limit low_burst high_burst max_debt
 * algorithm window tz sub_windows max_entries count_limited initial
 * next_buckets sharing store deadline share_algorithm safe_capacity lease
 * refresh learning priority decay_factor controller scope target percentile
 * min max fleet_min fleet_max classes permit_timeout queue queue_max mode
 * on_stale order glob overflow description labels; read: id epoch created. */

enum weir_field_type {
    WEIR_FIELD_TEXT,
    WEIR_FIELD_NUMBER,
    WEIR_FIELD_MAP,
    WEIR_FIELD_FLAG,
};
struct weir_field {
    const char *name;
    enum weir_field_type type; /* its type in YAML and JSON */
    bool read_only;
    const char *help; /* one sentence, with the default */
};
const struct weir_field *weir_quota_fields(size_t *out_count);

/* Sets a field from a text that a person wrote. Texts stay borrowed from
 * 'value'. An empty value resets to the default. Returns 0, WEIR_ENOENT (no
 * such field: 'diag' names the nearest) or WEIR_EQUOTA (the value). */
int weir_quota_set(struct weir_quota *quota, struct weir_text field,
                   struct weir_text value, struct weir_diag *diag);

/* Writes a field's value as weir_quota_set() would read it back without loss.
 * Returns the bytes written (no NUL), at most 'size'; 0 for a field that
 * doesn't exist, or is at its default and doesn't apply. A value at its default
 * is written too, an unset one (a burst, a window, ...) as the one in force: to
 * keep 'unset', call weir_quota_is_default() first. WEIR_FIELD_VALUE_MAX bytes
 * always suffice. */
#define WEIR_FIELD_VALUE_MAX 4200
size_t weir_quota_get(const struct weir_quota *quota, const char *field,
                      char *buf, size_t size);
/* Whether the field has its default value (an export leaves it out). */
bool weir_quota_is_default(const struct weir_quota *quota, const char *field);

/* Whether the field has an effect with the quota's kind, algorithm, window and
 * sharing. A sound quota has every other field at its default. */
bool weir_quota_applies(const struct weir_quota *quota, const char *field);

/* To store a quota: the bytes of all its texts together, and copying them into
 * a block of that size, which 'quota' then borrows. */
size_t weir_quota_texts_size(const struct weir_quota *quota);
void weir_quota_texts_move(struct weir_quota *quota, char *block);

/* Whether two quotas are equal in all fields but id, epoch and created. */
bool weir_quota_equal(const struct weir_quota *a, const struct weir_quota *b);

/* Converts labels that a person wrote into the form of 'labels': "b=2, a=1"
 * becomes "a=1\nb=2" in 'buf' of WEIR_LABELS_MAX bytes, where '*out' then
 * points; 'text' must not be in 'buf'. A text with a line feed is split by
 * lines, in which commas and blanks are part of a value. WEIR_EQUOTA: a key or
 * value isn't allowed, or a key comes twice. */
int weir_labels_parse(struct weir_text text, char *buf, struct weir_text *out,
                      struct weir_diag *diag);
/* Whether labels are in that form. Returns 0 or WEIR_EQUOTA. */
int weir_labels_check(struct weir_text labels, struct weir_diag *diag);
/* Takes the first "key=value" off 'labels'; false when there is none. */
bool weir_labels_next(struct weir_text *labels, struct weir_text *out_key,
                      struct weir_text *out_value);

/* "100/s", "90000/s", "100MiB/s", "100/min", "1.5k/h", "3/10s", "1/day",
 * "0", "unlimited". Decimal factors k M G T, binary Ki Mi Gi Ti with an
 * optional B; periods ns us ms s m min h d day w month (30 days), with an
 * optional count. */
int weir_limit_parse(struct weir_text text, struct weir_limit *out,
                     struct weir_diag *diag);
size_t weir_limit_format(const struct weir_limit *limit, char *buf,
                         size_t size);
/* ---- Limits as numbers, for lease pools and Doorman's files ---- */

/* Units a second: the nearest double. Unlimited: WEIR_LIMIT_MAX. */
double weir_limit_rate(const struct weir_limit *limit);
/* The limit for which weir_limit_rate() returns 'rate' again, with the digits
 * that a person would write: 0.1 is 1/10s. Returns 0; or 1: there is no such
 * limit, and '*out' is the nearest (WEIR_LIMIT_MAX, a unit in WEIR_PERIOD_MAX,
 * or 0); or WEIR_EINVAL: NaN, infinite or below 0. */
int weir_limit_of_rate(double rate, struct weir_limit *out);

/* The same, or "40", "16Ki": units at a time. */
int weir_bound_parse(struct weir_text text, struct weir_limit *out,
                     struct weir_diag *diag);
/* "150", "1Mi" (units) or "1.5s", "200ms" (time of the limit). */
int weir_burst_parse(struct weir_text text, struct weir_burst *out,
                     struct weir_diag *diag);
size_t weir_burst_format(const struct weir_burst *burst, char *buf,
                         size_t size);
/* "1s", "20ms", "1.5 s"; for options and time-outs too. */
int weir_duration_parse(struct weir_text text, weir_duration *out,
                        struct weir_diag *diag);
size_t weir_duration_format(weir_duration duration, char *buf, size_t size);
/* "0.5", "1": above 0, at most 1, with 9 decimals at most; in 1 /
 * WEIR_DECAY_ONE. */
int weir_ratio_parse(struct weir_text text, uint32_t *out,
                     struct weir_diag *diag);
size_t weir_ratio_format(uint32_t ratio, char *buf, size_t size);
/* "0.25", "40", "99.9": above 0, with 4 decimals at most; in 1 /
 * WEIR_DECIMAL_ONE. 'what' names the value in messages. */
int weir_decimal_parse(struct weir_text text, const char *what, uint64_t *out,
                       struct weir_diag *diag);
size_t weir_decimal_format(uint64_t decimal, char *buf, size_t size);
/* "1min", or minute, hour, day, week, month of the calendar. */
int weir_window_parse(struct weir_text text, struct weir_window *out,
                      struct weir_diag *diag);
weir_duration weir_calendar_length(enum weir_calendar calendar); /* nominal */
size_t weir_window_format(const struct weir_window *w, char *buf, size_t size);
/* Units as a weight: "1", "4Ki", "10M". */
int weir_units_parse(struct weir_text text, uint64_t *out,
                     struct weir_diag *diag);

#endif /* WEIR_QUOTA_H */
