/* SPDX-License-Identifier: MIT
 * quota/quota_fields.c - a quota's fields as texts.
 *
 * One table, FIELDS, is behind everything that names a field: the command
 * line's NAME=VALUE, YAML, JSON, the columns of a store, the help. A row says
 * how a field is called and shown, where it lies in struct weir_quota and
 * which of six shapes it has; reading, writing and comparing go by the shape.
 * So a new field is one row, and can't be forgotten on one of the ways.
 *
 * Values of enumerations are words in tables of their own. A word with a
 * 'reason' is known by name and not built; the rest of what isn't built here
 * is said by the table of combinations in quota.c. */

#include "quota/quota.h"

#include <string.h>

#include "quota/quota_text.h"

#define FIELDS(X)                                                           \
    X(name, TEXT, false, SHAPE_TEXT, NULL,                                  \
      "The unique name, 1 to 255 bytes of UTF-8; with '*' a template.")     \
    X(parent, TEXT, false, SHAPE_TEXT, NULL,                                \
      "The quota above; a template's may use {1} to {9}. Default: none.")   \
    X(kind, TEXT, false, SHAPE_WORD, kinds,                                 \
      "What is counted: rate (units over time). Default: rate.")            \
    X(limit, TEXT, false, SHAPE_LIMIT, NULL,                                \
      "100/s, 90000/s, 100MiB/s, 5/min, 0 (refuses all) or unlimited. "     \
      "Default: unlimited.")                                                \
    X(low_burst, TEXT, false, SHAPE_BURST, NULL,                            \
      "Fill above which some are refused, in units or time of the limit. "  \
      "Default: 1s, but never above high_burst.")                           \
    X(high_burst, TEXT, false, SHAPE_BURST, NULL,                           \
      "Fill above which all are refused, in units or time of the limit. "   \
      "Default: 1.5s, but never below low_burst.")                          \
    X(algorithm, TEXT, false, SHAPE_WORD, algorithms,                       \
      "How one bucket decides: leaky. Default: leaky.")                     \
    X(sharing, TEXT, false, SHAPE_WORD, sharings,                           \
      "How processes share the quota: local or counted. "                   \
      "Default: counted.")                                                  \
    X(mode, TEXT, false, SHAPE_WORD, modes,                                 \
      "enforce, shadow (says what it would refuse) or off. "                \
      "Default: enforce.")                                                  \
    X(on_stale, TEXT, false, SHAPE_WORD, stales,                            \
      "What rules without a root: open, closed, share or hold. "            \
      "Default: open.")                                                     \
    X(order, NUMBER, false, SHAPE_U32, NULL,                                \
      "Of a template: the first match rules, lowest first. Default: 0.")    \
    X(overflow, TEXT, false, SHAPE_TEXT, NULL,                              \
      "Of a template: the quota for instances without room. "               \
      "Default: none.")                                                     \
    X(description, TEXT, false, SHAPE_TEXT, NULL,                           \
      "Free text, up to 1024 bytes. Default: none.")                        \
    X(labels, MAP, false, SHAPE_TEXT, NULL,                                 \
      "Free key=value pairs, up to 64. Default: none.")                     \
    X(id, NUMBER, true, SHAPE_U64, NULL,                                    \
      "The store's number for the quota, never used again.")                \
    X(epoch, NUMBER, true, SHAPE_U64, NULL,                                 \
      "The store's epoch at the last change.")                              \
    X(created, NUMBER, true, SHAPE_U64, NULL,                               \
      "The store's epoch at which the name was created.")

enum shape {
    SHAPE_TEXT,
    SHAPE_WORD,
    SHAPE_LIMIT,
    SHAPE_BURST,
    SHAPE_U32,
    SHAPE_U64,
};

struct word {
    const char *text; /* NULL ends a table */
    int value;
    const char *reason; /* why the word isn't taken; NULL: it is */
};

static const struct word kinds[] = {
    { "rate", WEIR_RATE, NULL },
    { "concurrency", WEIR_CONCURRENCY, NULL },
    { NULL, 0, NULL },
};

static const struct word sharings[] = {
    { "local", WEIR_LOCAL, NULL },       { "counted", WEIR_COUNTED, NULL },
    { "leased", WEIR_LEASED, NULL },     { "exact", WEIR_EXACT, NULL },
    { "adaptive", WEIR_ADAPTIVE, NULL }, { NULL, 0, NULL },
};

#define LATER "isn't built into this version; use leaky"
static const struct word algorithms[] = {
    { "leaky", WEIR_LEAKY, NULL },
    { "token", 0, LATER },
    { "fixed_window", 0, LATER },
    { "sliding_log", 0, LATER },
    { "sliding_window", 0, LATER },
    { "pacer", 0, LATER },
    { NULL, 0, NULL },
};

static const struct word modes[] = {
    { "enforce", WEIR_ENFORCE, NULL },
    { "shadow", WEIR_SHADOW, NULL },
    { "off", WEIR_OFF, NULL },
    { NULL, 0, NULL },
};

static const struct word stales[] = {
    { "open", WEIR_STALE_OPEN, NULL },
    { "closed", WEIR_STALE_CLOSED, NULL },
    { "share", WEIR_STALE_SHARE, NULL },
    { "hold", WEIR_STALE_HOLD, NULL },
    { NULL, 0, NULL },
};

#define AS_FIELD(NAME, TYPE, READ_ONLY, SHAPE, WORDS, HELP) \
    { #NAME, WEIR_FIELD_##TYPE, READ_ONLY, HELP },
static const struct weir_field fields[] = { FIELDS(AS_FIELD) };

struct place {
    enum shape shape;
    size_t offset;
    size_t size;
    const struct word *words;
};
#define AS_PLACE(NAME, TYPE, READ_ONLY, SHAPE, WORDS, HELP) \
    { SHAPE, offsetof(struct weir_quota, NAME),             \
      sizeof(((struct weir_quota *)0)->NAME), WORDS },
static const struct place places[] = { FIELDS(AS_PLACE) };

#define FIELD_COUNT WEIR_COUNT_OF(fields)

const struct weir_field *weir_quota_fields(size_t *out_count)
{
    *out_count = FIELD_COUNT;
    return fields;
}

static size_t find_field(struct weir_text name)
{
    size_t i = 0;
    while (i < FIELD_COUNT &&
           !weir_text_equal(weir_text_of(fields[i].name), name))
        i++;
    return i;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

#define NEAR_MAX 24

/* How many letters must change to make one word of the other (Levenshtein),
 * over a single row of the table. */
static size_t distance(struct weir_text a, struct weir_text b)
{
    size_t row[NEAR_MAX + 1];
    for (size_t j = 0; j <= b.len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            size_t change = diagonal + (a.p[i - 1] != b.p[j - 1]);
            diagonal = row[j];
            row[j] = least(change, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[b.len];
}

static int refuse_field(struct weir_text name, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    weir_text_show(name, shown);
    struct weir_text tried = { name.p, least(name.len, NEAR_MAX) };
    size_t nearest = 0;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        size_t far = distance(tried, weir_text_of(fields[i].name));
        if (!fields[i].read_only && far < best) {
            best = far;
            nearest = i;
        }
    }
    return weir_diag_set(diag, WEIR_ENOENT, "there is no field ", shown,
                         "; did you mean '", fields[nearest].name, "'?",
                         NULL);
}

static int refuse_word(size_t field, struct weir_text value,
                       struct weir_diag *diag)
{
    char list[128];
    struct weir_out out = { list, sizeof(list) - 1, 0 };
    for (const struct word *word = places[field].words; word->text; word++) {
        if (word->reason)
            continue;
        weir_out_string(&out, out.len > 0 ? ", " : "");
        weir_out_string(&out, word->text);
    }
    list[out.len] = '\0';
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA, fields[field].name, " can't be ",
                         weir_text_show(value, shown), "; it is one of ",
                         list, NULL);
}

static int set_word(size_t field, void *member, struct weir_text value,
                    struct weir_diag *diag)
{
    for (const struct word *word = places[field].words; word->text; word++) {
        if (!weir_text_equal(weir_text_of(word->text), value))
            continue;
        if (word->reason)
            return weir_diag_set(diag, WEIR_EQUOTA, fields[field].name, "=",
                                 word->text, " ", word->reason, NULL);
        /* every enumeration here has the representation of an int */
        memcpy(member, &word->value, sizeof(word->value));
        return 0;
    }
    return refuse_word(field, value, diag);
}

static int set_number(size_t field, void *member, struct weir_text value,
                      struct weir_diag *diag)
{
    uint64_t number = 0;
    bool small = places[field].shape == SHAPE_U32;
    bool sound = weir_number_parse(value, &number);
    char shown[WEIR_SHOW_MAX];
    if (!sound || (small && number > UINT32_MAX))
        return weir_diag_set(diag, WEIR_EQUOTA, fields[field].name, " can't "
                             "be ", weir_text_show(value, shown),
                             "; it is a whole number from 0 to ",
                             small ? "4294967295" : "2^64 - 1", NULL);
    uint32_t narrow = (uint32_t)number;
    memcpy(member, small ? (void *)&narrow : (void *)&number,
           places[field].size);
    return 0;
}

static void reset(struct weir_quota *quota, size_t field)
{
    struct weir_quota fresh;
    weir_quota_init(&fresh);
    memcpy((char *)quota + places[field].offset,
           (char *)&fresh + places[field].offset, places[field].size);
}

int weir_quota_set(struct weir_quota *quota, struct weir_text field,
                   struct weir_text value, struct weir_diag *diag)
{
    size_t i = find_field(field);
    if (i == FIELD_COUNT)
        return refuse_field(field, diag);
    if (fields[i].read_only)
        return weir_diag_set(diag, WEIR_EQUOTA, fields[i].name, " is the "
                             "store's to set; leave it out", NULL);
    if (value.len == 0) {
        reset(quota, i);
        return 0;
    }
    void *member = (char *)quota + places[i].offset;
    switch (places[i].shape) {
    case SHAPE_TEXT:
        memcpy(member, &value, sizeof(value));
        return 0;
    case SHAPE_WORD:
        return set_word(i, member, value, diag);
    case SHAPE_LIMIT:
        return weir_limit_parse(value, member, diag);
    case SHAPE_BURST:
        return weir_burst_parse(value, member, diag);
    case SHAPE_U32:
    case SHAPE_U64:
        return set_number(i, member, value, diag);
    }
    weir_assert(!"a field has a shape");
}

static size_t get_word(size_t field, const void *member,
                       struct weir_out *out)
{
    int value;
    memcpy(&value, member, sizeof(value));
    for (const struct word *word = places[field].words; word->text; word++) {
        if (word->value == value && !word->reason)
            weir_out_string(out, word->text);
    }
    return out->len;
}

static size_t get_burst(const struct weir_quota *quota, bool is_low,
                        char *buf, size_t size)
{
    struct weir_burst low;
    struct weir_burst high;
    weir_quota_effective(quota, &low, &high);
    return weir_burst_format(is_low ? &low : &high, buf, size);
}

size_t weir_quota_get(const struct weir_quota *quota, const char *field,
                      char *buf, size_t size)
{
    size_t i = find_field(weir_text_of(field));
    if (i == FIELD_COUNT)
        return 0;
    struct weir_out out = { buf, size, 0 };
    const void *member = (const char *)quota + places[i].offset;
    switch (places[i].shape) {
    case SHAPE_TEXT:
        weir_out_text(&out, *(const struct weir_text *)member);
        return out.len;
    case SHAPE_WORD:
        return get_word(i, member, &out);
    case SHAPE_LIMIT:
        return weir_limit_format(member, buf, size);
    case SHAPE_BURST:
        return get_burst(quota, member == &quota->low_burst, buf, size);
    case SHAPE_U32:
        weir_out_number(&out, *(const uint32_t *)member);
        return out.len;
    case SHAPE_U64:
        weir_out_number(&out, *(const uint64_t *)member);
        return out.len;
    }
    weir_assert(!"a field has a shape");
}

static bool same(size_t field, const struct weir_quota *a,
                 const struct weir_quota *b)
{
    const void *x = (const char *)a + places[field].offset;
    const void *y = (const char *)b + places[field].offset;
    switch (places[field].shape) {
    case SHAPE_TEXT:
        return weir_text_equal(*(const struct weir_text *)x,
                               *(const struct weir_text *)y);
    case SHAPE_LIMIT: {
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
    case SHAPE_WORD:
    case SHAPE_U32:
    case SHAPE_U64:
        return memcmp(x, y, places[field].size) == 0;
    }
    weir_assert(!"a field has a shape");
}

bool weir_quota_is_default(const struct weir_quota *quota, const char *field)
{
    size_t i = find_field(weir_text_of(field));
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
