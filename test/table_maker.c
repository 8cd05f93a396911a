/* SPDX-License-Identifier: MIT
 * test/table_maker.c - tables for tests, and an audit of one. */

#include "table_maker.h"
#include "compare.h"
#include "core/table/table_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void *made_stage(size_t head, const struct weir_table_options *options,
                 struct weir_table **out_table, size_t *out_bytes)
{
    size_t bytes = head + weir_table_size(options);
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, WEIR_CACHE_LINE, bytes), 0);
    memset(block, 0, bytes);
    *out_table = weir_table_init((char *)block + head, options, MADE_AT);
    *out_bytes = bytes;
    return block;
}

struct weir_table *made_table_of(const struct weir_table_options *options)
{
    struct weir_table *table;
    size_t bytes;
    made_stage(0, options, &table, &bytes);
    return table;
}

struct weir_table *made_table(uint32_t slots, uint32_t stripes, uint64_t seed)
{
    struct weir_table_options options = { .slots = slots,
                                          .stripes = stripes,
                                          .seed = seed };
    return made_table_of(&options);
}

struct weir_quota made_quota_of(const char *name, const char *parent,
                                uint64_t units, uint64_t burst)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = weir_text_of(name);
    quota.parent = weir_text_of(parent);
    quota.limit = (struct weir_limit){ .units = units, .per = WEIR_SECOND };
    quota.low_burst = (struct weir_burst){ .amount = burst };
    quota.high_burst = quota.low_burst;
    quota.created = 1;
    return quota;
}

struct weir_quota made_inflight_of(const char *name, const char *parent,
                                   uint64_t units)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = weir_text_of(name);
    quota.parent = weir_text_of(parent);
    quota.created = 1;
    quota.kind = WEIR_CONCURRENCY;
    quota.sharing = WEIR_LOCAL;
    quota.limit = (struct weir_limit){ .units = units };
    assert_int_equal(weir_quota_check(&quota, NULL), 0);
    return quota;
}

struct weir_ref made_put(struct weir_table *t, const struct weir_quota *quota,
                         weir_instant now)
{
    /* Other threads may have a lock of the table. */
    int error;
    do {
        error = weir_table_put(t, quota, now);
    } while (error == WEIR_ETIMEOUT);
    assert_int_equal(error, WEIR_OK);
    struct weir_ref ref;
    assert_true(weir_table_find(t, quota->name, &ref));
    return ref;
}

/* ---- The audit ---- */

void made_audit(const struct weir_table *t)
{
    struct weir_table *table = (struct weir_table *)(uintptr_t)t;
    uint32_t *scratch = calloc(t->slots, sizeof(*scratch));
    assert_non_null(scratch);
    assert_false(weir_table_is_locked(t));
    assert_compare(weir_name_index_count(t), <=,
                   t->slots + 2); /* or no audit */
    uint32_t hand = 0;
    for (uint32_t at = 0; at < t->used; at += WEIR_TABLE_AUDIT_MAX)
        weir_table_audit(table, &hand, WEIR_TABLE_AUDIT_MAX);
    weir_table_audit_whole(table, scratch, t->slots);
    for (uint32_t slot = 0; slot < t->used; slot++) {
        assert_int_equal(weir_bucket_state(t, slot)->lock, 0);
        /* The audit itself allows for a writer that was killed in a switch. */
        if (weir_cold(t, slot)->state == WEIR_SLOT_FREE)
            continue;
        assert_false(weir_hot(t, slot)->base & 1);
        assert_false(weir_hot(t, slot)->meta & META_SEQ_ONE);
    }
    free(scratch);
}
