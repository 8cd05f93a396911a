/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_units.c - any text as any field: an accepted value must be
 * printed and read back, and a quota that passes its check has bursts. */

#include <string.h>

#include "core/quota/glob.h"
#include "core/quota/quota.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_field(const char *field, struct weir_text value)
{
    struct weir_quota quota;
    struct weir_quota back;
    struct weir_diag diag;
    weir_quota_init(&quota);
    weir_quota_init(&back);
    if (weir_quota_set(&quota, weir_text_of(field), value, &diag) < 0)
        return;
    if (weir_quota_is_default(&quota, field) || value.len > WEIR_LABELS_MAX)
        return;
    char buf[WEIR_FIELD_VALUE_MAX];
    /* A valid name, unless the name is the field in question. */
    if (strcmp(field, "name") != 0)
        quota.name = back.name = WEIR_TEXT("a*b*");
    size_t len = weir_quota_get(&quota, field, buf, sizeof(buf));
    int error = weir_quota_set(&back, weir_text_of(field),
                               (struct weir_text){ buf, len }, &diag);
    weir_assert(error == 0);
    weir_assert(weir_quota_equal(&quota, &back));
    if (weir_quota_check(&quota, &diag) < 0 || quota.limit.unlimited)
        return;
    uint64_t low;
    uint64_t high;
    weir_quota_bursts(&quota, &low, &high);
    weir_assert(low <= high && high >= 1 && high <= WEIR_BURST_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_text text = { (const char *)data, size };
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (size_t i = 0; i < count; i++)
        check_field(fields[i].name, text);
    weir_duration duration;
    uint64_t units;
    (void)weir_duration_parse(text, &duration, NULL);
    (void)weir_units_parse(text, &units, NULL);
    char buf[WEIR_LABELS_MAX];
    struct weir_text labels;
    struct weir_diag diag;
    if (weir_labels_parse(text, buf, &labels, &diag) == 0)
        weir_assert(weir_labels_check(labels, &diag) == 0);
    size_t half = size / 2;
    struct weir_captures captures;
    char name[WEIR_NAME_MAX];
    if (weir_glob_match((struct weir_text){ text.p, half },
                        (struct weir_text){ text.p + half, size - half },
                        &captures))
        (void)weir_glob_expand(text, &captures, name);
    return 0;
}
