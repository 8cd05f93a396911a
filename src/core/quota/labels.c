/* SPDX-License-Identifier: MIT
 * quota/labels.c - the free labels of a quota.
 *
 * Labels are one text, "key=value" lines sorted by key, because a quota borrows
 * all its data: two quotas' labels are equal exactly when their bytes are, and
 * a store, a message and a comparison can treat them as plain text.
 * weir_labels_parse() converts labels as people write them, in any order and on
 * one line, to that form once: an insertion sort in a buffer, as there are 64
 * labels at most. */

#include "core/quota/quota.h"

#include <string.h>

#include "core/quota/quota_text.h"

#define LABEL_KEY_MAX 63

/* A line without '=' is a key without a value. */
static void split_label(struct weir_text line, struct weir_text *out_key,
                        struct weir_text *out_value)
{
    *out_value = line;
    *out_key = weir_text_cut(out_value, '=');
}

bool weir_labels_next(struct weir_text *labels, struct weir_text *out_key,
                      struct weir_text *out_value)
{
    if (labels->len == 0)
        return false;
    split_label(weir_text_cut(labels, '\n'), out_key, out_value);
    return true;
}

static bool is_label_key(struct weir_text key)
{
    if (key.len == 0 || key.len > LABEL_KEY_MAX)
        return false;
    for (size_t i = 0; i < key.len; i++) {
        char c = key.p[i];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        bool other = (c >= '0' && c <= '9') || c == '_' || c == '.' ||
                     c == '/' || c == '-';
        if (!letter && !other)
            return false;
    }
    return true;
}

static int check_line(struct weir_text line, struct weir_diag *diag)
{
    struct weir_text key;
    struct weir_text value;
    split_label(line, &key, &value);
    bool has_value = key.len < line.len;
    bool sound = is_label_key(key);
    if (has_value && sound && weir_utf8_clean(value, "") == value.len)
        return 0;
    char shown[WEIR_SHOW_MAX];
    weir_text_show(line, shown);
    if (!has_value)
        return weir_diag_set(diag, WEIR_EQUOTA, "the label ", shown,
                             " has no '='; write key=value", NULL);
    if (!sound)
        return weir_diag_set(diag, WEIR_EQUOTA, "the key of the label ", shown,
                             " isn't 1 to 63 of A-Z a-z 0-9 _ . / -", NULL);
    return weir_diag_set(diag, WEIR_EQUOTA, "the value of the label ", shown,
                         " isn't UTF-8 without control characters", NULL);
}

static int compare_keys(struct weir_text a, struct weir_text b)
{
    return weir_text_compare(weir_text_cut(&a, '='), weir_text_cut(&b, '='));
}

static int refuse_key_twice(struct weir_text line, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    weir_text_show(weir_text_cut(&line, '='), shown);
    return weir_diag_set(diag, WEIR_EQUOTA, "the label ", shown,
                         " is given twice", NULL);
}

static int refuse_long(struct weir_diag *diag)
{
    return weir_diag_put(
        diag, WEIR_EQUOTA,
        "the labels are too long; together they may have 4096 bytes");
}

static int refuse_many(struct weir_diag *diag)
{
    return weir_diag_put(diag, WEIR_EQUOTA,
                         "there are too many labels; 64 are allowed");
}

int weir_labels_check(struct weir_text labels, struct weir_diag *diag)
{
    if (labels.len > WEIR_LABELS_MAX)
        return refuse_long(diag);
    struct weir_text rest = labels;
    struct weir_text last = { NULL, 0 };
    size_t count = 0;
    while (rest.len > 0) {
        struct weir_text line = weir_text_cut(&rest, '\n');
        int error = ++count > WEIR_LABELS_COUNT_MAX ? refuse_many(diag)
                                                    : check_line(line, diag);
        if (error < 0)
            return error;
        int order = last.p ? compare_keys(last, line) : -1;
        if (order == 0)
            return refuse_key_twice(line, diag);
        if (order > 0)
            return weir_diag_put(diag, WEIR_EQUOTA,
                                 "the labels aren't sorted by key");
        last = line;
    }
    if (labels.len > 0 && labels.p[labels.len - 1] == '\n')
        return weir_diag_put(diag, WEIR_EQUOTA,
                             "the labels end with an empty line");
    return 0;
}

/* Puts 'line' into the sorted lines of 'out' ('\n' after each). */
static int insert_line(struct weir_out *out, struct weir_text line,
                       struct weir_diag *diag)
{
    if (out->len + line.len + 1 > out->size)
        return refuse_long(diag);
    struct weir_text rest = { out->buf, out->len };
    size_t at = out->len;
    while (rest.len > 0) {
        struct weir_text other = weir_text_cut(&rest, '\n');
        int order = compare_keys(line, other);
        if (order == 0)
            return refuse_key_twice(line, diag);
        if (order < 0) {
            at = (size_t)(other.p - out->buf);
            break;
        }
    }
    weir_assert(at <= out->len);
    memmove(out->buf + at + line.len + 1, out->buf + at, out->len - at);
    memcpy(out->buf + at, line.p, line.len);
    out->buf[at + line.len] = '\n';
    out->len += line.len + 1;
    weir_assert(out->len <= out->size);
    return 0;
}

int weir_labels_parse(struct weir_text text, char *buf, struct weir_text *out,
                      struct weir_diag *diag)
{
    char sorted[WEIR_LABELS_MAX + 1];
    struct weir_out lines = { sorted, sizeof(sorted), 0 };
    bool by_line = weir_text_has(text, '\n');
    size_t count = 0;
    while (text.len > 0) {
        struct weir_text line = weir_text_cut(&text, by_line ? '\n' : ',');
        if (!by_line)
            line = weir_text_trim(line);
        if (line.len == 0)
            continue;
        int error = ++count > WEIR_LABELS_COUNT_MAX ? refuse_many(diag)
                                                    : check_line(line, diag);
        if (error == 0)
            error = insert_line(&lines, line, diag);
        if (error < 0)
            return error;
    }
    size_t len = lines.len > 0 ? lines.len - 1 : 0;
    weir_assert(len <= WEIR_LABELS_MAX && count <= WEIR_LABELS_COUNT_MAX);
    memcpy(buf, sorted, len);
    *out = (struct weir_text){ buf, len };
    weir_audit(weir_labels_check(*out, NULL) == 0);
    return 0;
}
