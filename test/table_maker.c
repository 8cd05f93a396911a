/* SPDX-License-Identifier: MIT
 * test/table_maker.c - tables for tests, and an audit of one. */

#include "table_maker.h"
#include "compare.h"

#include "core/quota/throttle_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

struct weir_rng made_seed(const char *what)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = (uint64_t)now.tv_sec * WEIR_SECOND + (uint64_t)now.tv_nsec;
    const char *given = getenv("WEIR_SEED");
    if (given)
        seed = strtoull(given, NULL, 0);
    printf("%s: WEIR_SEED=%llu\n", what, (unsigned long long)seed);
    fflush(stdout);
    return (struct weir_rng){ seed };
}

struct weir_table *made_table(uint32_t slots, uint32_t stripes, uint64_t seed)
{
    struct weir_table_options options = { .slots = slots,
                                          .stripes = stripes,
                                          .seed = seed };
    size_t size = weir_table_size(&options);
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, WEIR_CACHE_LINE, size), 0);
    memset(block, 0, size);
    return weir_table_init(block, &options, MADE_AT);
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

struct weir_ref made_put(struct weir_table *t, const struct weir_quota *quota,
                         weir_instant now)
{
    assert_int_equal(weir_table_put(t, quota, now), WEIR_OK);
    struct weir_ref ref;
    assert_true(weir_table_find(t, quota->name, &ref));
    return ref;
}

/* ---- The audit ---- */

static uint32_t count_chunks(const struct weir_table *t, uint32_t first)
{
    uint32_t count = 0;
    for (; first != CHUNK_NONE; first = weir_chunk(t, first)->next) {
        assert_compare(first, <, t->chunk_used);
        assert_compare(++count, <=, t->chunk_used);
    }
    return count;
}

/* The number of index entries of each slot. */
static void count_entries(const struct weir_table *t, uint32_t *entries)
{
    for (uint32_t b = 0; b <= t->bucket_mask; b++) {
        for (int i = 0; i < BUCKET_ENTRIES; i++) {
            uint32_t slot = (uint32_t)weir_index(t, b)->entry[i] - 1;
            if (slot < t->slots)
                entries[slot]++;
        }
    }
}

/* The rule is a template's, or the one in the name. */
static void audit_rule(const struct weir_table *t, uint32_t slot)
{
    const struct cold *cold = weir_cold(t, slot);
    struct weir_quota brought;
    char name[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(t, slot, name);
    if (cold->rule == WEIR_SLOT_NONE)
        assert_true(
            weir_throttle_name_read((struct weir_text){ name, len }, &brought));
    else
        assert_int_equal(weir_cold(t, cold->rule)->state, WEIR_SLOT_TEMPLATE);
}

static void audit_live(const struct weir_table *t, uint32_t slot)
{
    char name[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(t, slot, name);
    assert_compare(len, >, 0);
    struct weir_ref ref;
    assert_true(weir_table_find((struct weir_table *)(uintptr_t)t,
                                (struct weir_text){ name, len }, &ref));
    assert_int_equal(ref.slot, slot);
    assert_false(weir_hot(t, slot)->base & 1);
    assert_false(weir_hot(t, slot)->meta & META_SEQ_ONE);
    const struct cold *cold = weir_cold(t, slot);
    if (cold->state == WEIR_SLOT_INSTANCE)
        audit_rule(t, slot);
}

static void audit_slots(const struct weir_table *t, uint32_t *children,
                        const uint32_t *entries)
{
    uint32_t live = 0, templates = 0, chunks = 0;
    for (uint32_t slot = 0; slot < t->used; slot++) {
        const struct cold *cold = weir_cold(t, slot);
        bool free = cold->state == WEIR_SLOT_FREE;
        assert_int_not_equal(cold->state, WEIR_SLOT_MAKING);
        assert_int_equal(weir_hot(t, slot)->generation & 1, !free);
        assert_int_equal(entries[slot], !free);
        if (free)
            continue;
        live++;
        audit_live(t, slot);
        chunks += count_chunks(t, weir_name(t, slot)->more);
        chunks += count_chunks(t, cold->aux);
        uint32_t parent = weir_parent(weir_hot(t, slot));
        if (parent != WEIR_SLOT_NONE)
            children[parent]++;
        if (cold->state == WEIR_SLOT_TEMPLATE) {
            templates++;
            if (cold->rule != WEIR_SLOT_NONE)
                children[cold->rule]++;
        }
    }
    assert_int_equal(live, weir_table_live(t));
    assert_int_equal(templates, t->template_count);
    chunks += count_chunks(t, t->chunk_head);
    assert_int_equal(chunks, t->chunk_used);
}

/* Units of the area used by bucket states, and free units: their sum is the
 * area used so far. */
static void audit_area(const struct weir_table *t)
{
    uint32_t units = 0;
    for (uint32_t slot = 0; slot < t->used; slot++) {
        const struct cold *cold = weir_cold(t, slot);
        uint32_t own, rule, refs;
        weir_bucket_state_look(t, slot, &own, &rule, &refs);
        assert_int_equal(weir_bucket_state(t, slot)->lock, 0);
        if (cold->state == WEIR_SLOT_FREE ||
            cold->state == WEIR_SLOT_PLACEHOLDER)
            assert_int_equal(refs, 0);
        units += own;
        /* A rule shared by several is counted at the first of them. */
        bool first = rule > 0;
        uint32_t sharing = 0;
        for (uint32_t other = 0; other < t->used && rule > 0; other++) {
            bool same = (uint32_t)weir_bucket_state(t, other)->where ==
                        (uint32_t)weir_bucket_state(t, slot)->where;
            sharing += same;
            first = first && !(same && other < slot);
        }
        assert_int_equal(sharing, refs);
        units += first ? rule : 0;
    }
    for (unsigned order = 0; order < AREA_ORDERS; order++)
        units += weir_area_count(t, order) << order;
    assert_int_equal(units, t->area_used);
}

void made_audit(const struct weir_table *t)
{
    audit_area(t);
    uint32_t *children = calloc(2 * (size_t)t->slots, sizeof(*children));
    assert_non_null(children);
    uint32_t *entries = children + t->slots;
    count_entries(t, entries);
    audit_slots(t, children, entries);
    for (uint32_t slot = 0; slot < t->used; slot++) {
        const struct cold *cold = weir_cold(t, slot);
        if (cold->state == WEIR_SLOT_FREE) {
            assert_int_equal(children[slot], 0);
            continue;
        }
        /* References beyond those by children are pins. */
        assert_compare(cold->refs, >=, children[slot]);
    }
    free(children);
    uint32_t free_slots = 0;
    for (uint32_t slot = t->free_head; slot != WEIR_SLOT_NONE;
         slot = weir_cold(t, slot)->aux) {
        assert_int_equal(weir_cold(t, slot)->state, WEIR_SLOT_FREE);
        assert_compare(++free_slots, <=, t->used);
    }
    assert_int_equal(free_slots + weir_table_live(t), t->used);
    for (uint32_t i = 1; i < t->template_count; i++)
        assert_compare(t->templates[i - 1].order, <=, t->templates[i].order);
}
