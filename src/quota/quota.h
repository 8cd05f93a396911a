/* SPDX-License-Identifier: MIT
 * quota/quota.h - what a quota is: its fields, their texts, which go
 * together. Pure: no I/O, no allocation. */

#ifndef WEIR_QUOTA_H
#define WEIR_QUOTA_H

#include <string.h>

#include "base/base.h"

/* The enumerations leave room: a value that a later version defines is
 * refused today by weir_quota_check(), by name. The numbers are the wire's
 * and the stores': never reuse one. */
enum weir_kind { WEIR_RATE = 1, WEIR_CONCURRENCY = 2 };
enum weir_sharing {
    WEIR_LOCAL = 1,
    WEIR_COUNTED = 2,
    WEIR_LEASED = 3,
    WEIR_EXACT = 4,
    WEIR_ADAPTIVE = 5,
};
enum weir_algorithm { WEIR_LEAKY = 1 };
enum weir_mode { WEIR_ENFORCE = 1, WEIR_SHADOW = 2, WEIR_OFF = 3 };
enum weir_on_stale {
    WEIR_STALE_OPEN = 1,
    WEIR_STALE_CLOSED = 2,
    WEIR_STALE_SHARE = 3,
    WEIR_STALE_HOLD = 4,
};

/* The shadow set: a whole set that is tried beside the live one. Its quotas
 * are ordinary ones whose names, parents and overflow quotas begin with this;
 * no name of the live set does (the doors refuse it). A template rules names
 * of its own set only. */
#define WEIR_SHADOW_PREFIX "shadow:"
#define WEIR_SHADOW_PREFIX_LEN (sizeof(WEIR_SHADOW_PREFIX) - 1)
#define WEIR_SHADOW_NAME_MAX (WEIR_NAME_MAX - WEIR_SHADOW_PREFIX_LEN)

static inline bool weir_name_is_shadow(struct weir_text name)
{
    return name.len >= WEIR_SHADOW_PREFIX_LEN &&
           memcmp(name.p, WEIR_SHADOW_PREFIX, WEIR_SHADOW_PREFIX_LEN) == 0;
}
/* A name of the shadow set without its prefix; any other as it is. */
static inline struct weir_text weir_name_live(struct weir_text name)
{
    if (!weir_name_is_shadow(name))
        return name;
    return (struct weir_text){ name.p + WEIR_SHADOW_PREFIX_LEN,
                               name.len - WEIR_SHADOW_PREFIX_LEN };
}

/* Bounds. */
#define WEIR_LIMIT_MAX 100000000000ull     /* units a second */
#define WEIR_BURST_MAX (1ull << 50)        /* units */
#define WEIR_DESCRIPTION_MAX 1024          /* bytes */
#define WEIR_LABELS_MAX 4096               /* bytes, all labels together */
#define WEIR_LABELS_COUNT_MAX 64           /* labels of one quota */
#define WEIR_TEMPLATES_MAX 1024            /* templates in one store */
#define WEIR_CAPTURES_MAX 9                /* globs in a template's name */

/* A rate as it was entered: 'units' every 'per' nanoseconds. units 0
 * refuses all; 'unlimited' only counts. */
struct weir_limit {
    uint64_t units;
    weir_duration per; /* 1 ns .. WEIR_PERIOD_MAX; never 0 */
    bool unlimited;
};
#define WEIR_PERIOD_MAX (366ull * 86400 * WEIR_SECOND)

/* A burst as it was entered: units, or time of the limit. 'unset': nobody
 * entered it, and 'amount' says nothing: read a quota's bursts through
 * weir_quota_effective() or weir_quota_bursts() only. A low_burst that is
 * unset is 1 s, but never above high_burst; a high_burst that is unset is
 * 1.5 s, but never below low_burst: so entering one alone is no error. */
struct weir_burst {
    uint64_t amount; /* units, or nanoseconds */
    bool in_time;
    bool unset;
};

/* A quota. All texts are borrowed. */
struct weir_quota {
    struct weir_text name;        /* 1 .. WEIR_NAME_MAX bytes of UTF-8 */
    struct weir_text parent;      /* absent: a root of the tree */
    struct weir_text overflow;    /* templates: the quota that stands in */
    struct weir_text description; /* UTF-8 */
    struct weir_text labels;      /* "key=value\n…", sorted by key, unique;
                                   * keys [A-Za-z0-9_./-]{1,63}, values
                                   * UTF-8 without control characters */
    uint64_t id;      /* the store's, never reused; 0: not stored yet */
    uint64_t epoch;   /* of its last change */
    uint64_t created; /* the epoch at which the name was created */
    uint32_t order;   /* templates: first match wins, lowest first */
    enum weir_kind kind;
    struct weir_limit limit;
    struct weir_burst low_burst;
    struct weir_burst high_burst;
    enum weir_algorithm algorithm;
    enum weir_sharing sharing;
    enum weir_mode mode;
    enum weir_on_stale on_stale;
};

/* A quota with every field at its default and no name: rate, counted,
 * leaky, enforce, open, both bursts unset; limit unlimited. */
void weir_quota_init(struct weir_quota *quota);

/* Checks a name alone, of a quota, template, instance or request: 1 ..
 * WEIR_NAME_MAX bytes of UTF-8 without control characters (so no NUL).
 * Returns 0 or WEIR_ENAME. */
int weir_name_check(struct weir_text name, struct weir_diag *diag);

/* Whether the name holds a glob ('*'). */
bool weir_quota_is_template(const struct weir_quota *quota);

/* Checks a quota alone: the name, the ranges, low <= high, the table of
 * combinations. Returns 0, WEIR_ENAME or WEIR_EQUOTA with 'diag' filled:
 * what is wrong, and what to write instead. */
int weir_quota_check(const struct weir_quota *quota, struct weir_diag *diag);

/* The bursts as a person would enter them, none of them 'unset': what is
 * the same when read back, and what goes on the wire. */
void weir_quota_effective(const struct weir_quota *quota,
                          struct weir_burst *out_low,
                          struct weir_burst *out_high);

/* The bursts in units, as the bucket uses them: time turned into units of
 * the limit, high at least one unit. Only for a quota that passed the
 * check and isn't unlimited. */
void weir_quota_bursts(const struct weir_quota *quota, uint64_t *out_low,
                       uint64_t *out_high);

/* ---- Fields as texts: one table serves the command line, YAML, JSON and
 * the stores. Fields: name parent overflow description labels kind limit
 * low_burst high_burst algorithm sharing mode on_stale order; read-only:
 * id epoch created. ---- */

enum weir_field_type { WEIR_FIELD_TEXT, WEIR_FIELD_NUMBER, WEIR_FIELD_MAP };
struct weir_field {
    const char *name;
    enum weir_field_type type; /* how YAML and JSON show it */
    bool read_only;
    const char *help;          /* one sentence, with the default */
};
const struct weir_field *weir_quota_fields(size_t *out_count);

/* Sets a field from what a person wrote. Texts stay borrowed from 'value'.
 * An empty value resets to the default. Returns 0, WEIR_ENOENT (no such
 * field: 'diag' names the nearest) or WEIR_EQUOTA (the value). */
int weir_quota_set(struct weir_quota *quota, struct weir_text field,
                   struct weir_text value, struct weir_diag *diag);

/* Writes a field's value as weir_quota_set() would read it back without
 * loss. Returns the bytes written (no NUL), at most 'size'; 0 for a field
 * that doesn't exist. A value at its default is written too, a burst that is
 * unset as the one in force: who must keep 'unset' asks
 * weir_quota_is_default() first. WEIR_FIELD_VALUE_MAX bytes always
 * suffice. */
#define WEIR_FIELD_VALUE_MAX 4200
size_t weir_quota_get(const struct weir_quota *quota, const char *field,
                      char *buf, size_t size);
/* Whether the field has its default value (an export leaves it out). */
bool weir_quota_is_default(const struct weir_quota *quota,
                           const char *field);

/* Whether two quotas say the same: all fields but id, epoch and created. */
bool weir_quota_equal(const struct weir_quota *a, const struct weir_quota *b);

/* Puts labels that a person wrote into the form that 'labels' has: "b=2, a=1"
 * becomes "a=1\nb=2" in 'buf' of WEIR_LABELS_MAX bytes, where '*out' then
 * points; 'text' must not be in 'buf'. A text with a line feed is taken by
 * lines, in which commas and blanks are part of a value. WEIR_EQUOTA: a key or
 * value isn't allowed, or a key comes twice. */
int weir_labels_parse(struct weir_text text, char *buf,
                      struct weir_text *out, struct weir_diag *diag);
/* Whether labels are in that form. Returns 0 or WEIR_EQUOTA. */
int weir_labels_check(struct weir_text labels, struct weir_diag *diag);
/* Takes the first "key=value" off 'labels'; false when there is none. */
bool weir_labels_next(struct weir_text *labels, struct weir_text *out_key,
                      struct weir_text *out_value);

/* "100/s", "90000/s", "100MiB/s", "100/min", "1.5k/h", "3/10s", "1/day",
 * "0", "unlimited". Decimal factors k M G T, binary Ki Mi Gi Ti with an
 * optional B; periods ns us ms s m min h d day w, with an optional count. */
int weir_limit_parse(struct weir_text text, struct weir_limit *out,
                     struct weir_diag *diag);
size_t weir_limit_format(const struct weir_limit *limit, char *buf,
                         size_t size);
/* "150", "1Mi" (units) or "1.5s", "200ms" (time of the limit). */
int weir_burst_parse(struct weir_text text, struct weir_burst *out,
                     struct weir_diag *diag);
size_t weir_burst_format(const struct weir_burst *burst, char *buf,
                         size_t size);
/* "1s", "20ms", "1.5 s"; for options and time-outs too. */
int weir_duration_parse(struct weir_text text, weir_duration *out,
                        struct weir_diag *diag);
size_t weir_duration_format(weir_duration duration, char *buf, size_t size);
/* Units as a weight: "1", "4Ki", "10M". */
int weir_units_parse(struct weir_text text, uint64_t *out,
                     struct weir_diag *diag);

#endif /* WEIR_QUOTA_H */
