/* SPDX-License-Identifier: MIT
 * test_table_grow.c - a table that grows within address space of which only the
 * committed ranges can be touched. */

#include "compare.h"
#include "core/table/table_grow.h"
#include "core/table/table_index.h"
#include "table_maker.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define SLOTS 40000
#define FIRST 1024

struct grower {
    struct weir_table *t;
    size_t size;
};

/* Makes the ranges accessible: anything else is a segmentation fault. */
static void commit(void *block, const struct weir_table_range *ranges,
                   uint32_t count)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t from = ranges[i].at & ~(page - 1);
        uint64_t to = (ranges[i].at + ranges[i].bytes + page - 1) & ~(page - 1);
        assert_int_equal(
            mprotect((char *)block + from, to - from, PROT_READ | PROT_WRITE),
            0);
    }
}

static struct grower made_grower(const struct weir_table_options *options)
{
    struct weir_table_range ranges[WEIR_TABLE_RANGES_MAX];
    struct grower grower = { .size = weir_table_size(options) };
    void *block = mmap(NULL, grower.size, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(block, MAP_FAILED);
    commit(block, ranges, weir_table_first_ranges(options, ranges));
    grower.t = weir_table_init(block, options, MADE_AT);
    return grower;
}

static bool grow(struct weir_table *t)
{
    struct weir_table_range ranges[WEIR_TABLE_RANGES_MAX];
    uint32_t slots;
    uint32_t count =
        weir_table_growth(t, WEIR_TABLE_GROWTH_MAX, ranges, &slots);
    if (count == 0)
        return false;
    commit(t, ranges, count);
    weir_table_grown(t, slots);
    return true;
}

static int put(struct weir_table *t, const struct weir_quota *quota)
{
    int error = weir_table_put(t, quota, MADE_AT);
    while (error == WEIR_EFULL && weir_table_is_short(t) && grow(t))
        error = weir_table_put(t, quota, MADE_AT);
    return error;
}

static enum weir_resolved resolve(struct weir_table *t, struct weir_text name)
{
    struct weir_ref ref;
    enum weir_resolved how = weir_table_resolve(t, name, false, &ref, MADE_AT);
    while (how != WEIR_RESOLVED && weir_table_is_short(t) && grow(t))
        how = weir_table_resolve(t, name, false, &ref, MADE_AT);
    return how;
}

static struct weir_text name_of(char *buf, const char *before, uint32_t i)
{
    /* One name in four is longer than its slot has bytes for. */
    int len = i % 4 == 0
                  ? sprintf(buf, "%s/%u/a-name-of-some-more-bytes", before, i)
                  : sprintf(buf, "%s/%u", before, i);
    return (struct weir_text){ buf, (size_t)len };
}

/* ---- One thread ---- */

/* Quotas of every kind of memory that a slot may need. */
static void fill_with_quotas(struct weir_table *t, uint32_t count)
{
    char name[64];
    for (uint32_t i = 0; i < count; i++) {
        name_of(name, "quota", i);
        struct weir_quota quota = made_quota_of(name, NULL, 1000, 1000);
        if (i % 3 == 0)
            quota = made_inflight_of(name, NULL, 5);
        if (i % 5 == 0)
            quota.sharing = WEIR_LEASED;
        if (i % 7 == 1)
            quota.algorithm = WEIR_SLIDING_WINDOW;
        assert_int_equal(put(t, &quota), WEIR_OK);
    }
}

static void every_name_is_found(struct weir_table *t, const char *before,
                                uint32_t count)
{
    char name[64];
    struct weir_ref ref;
    for (uint32_t i = 0; i < count; i++)
        assert_true(weir_table_find(t, name_of(name, before, i), &ref));
}

static void a_table_grows_to_its_slots(void **state)
{
    (void)state;
    for (uint32_t processes = 0; processes <= 3; processes += 3) {
        struct weir_table_options options = { .slots = SLOTS,
                                              .committed = FIRST,
                                              .stripes = 4,
                                              .processes = processes,
                                              .gate_slots =
                                                  processes == 0 ? 4 : 0,
                                              .seed = 3 };
        struct grower grower = made_grower(&options);
        struct weir_table *t = grower.t;
        uint64_t before = weir_table_committed_bytes(t);
        assert_compare(before, <, grower.size / 8);
        fill_with_quotas(t, SLOTS / 2);
        made_audit(t);
        every_name_is_found(t, "quota", SLOTS / 2);
        struct weir_quota template = made_quota_of("value/*", NULL, 3, 3);
        assert_int_equal(put(t, &template), WEIR_OK);
        char name[64];
        uint32_t made = 0;
        while (resolve(t, name_of(name, "value", made)) == WEIR_RESOLVED)
            made++;
        /* Long names have used up the chunks, or all slots are in use. */
        assert_false(weir_table_is_short(t) || grow(t));
        assert_int_equal(weir_table_committed(t), SLOTS);
        assert_compare(weir_table_live(t), >, SLOTS * 3 / 4);
        assert_compare(weir_table_committed_bytes(t), <=, grower.size);
        every_name_is_found(t, "quota", SLOTS / 2);
        every_name_is_found(t, "value", made);
        made_audit(t);
        munmap(t, grower.size);
    }
}

/* As if the system had no memory: the table is full, and goes on. */
static void a_growth_that_fails_makes_the_table_full(void **state)
{
    (void)state;
    struct weir_table_options options = {
        .slots = SLOTS, .committed = FIRST, .stripes = 2, .seed = 4
    };
    struct grower grower = made_grower(&options);
    struct weir_table *t = grower.t;
    char name[64];
    uint32_t i = 0;
    int error = WEIR_OK;
    for (; error == WEIR_OK; i++) {
        name_of(name, "quota", i);
        struct weir_quota quota = made_quota_of(name, NULL, 1, 1);
        error = weir_table_put(t, &quota, MADE_AT);
    }
    assert_int_equal(error, WEIR_EFULL);
    assert_true(weir_table_is_short(t) && weir_table_wants_growth(t));
    weir_table_stop_growing(t);
    assert_false(weir_table_is_short(t) || weir_table_wants_growth(t));
    assert_true(weir_table_is_crowded(t));
    struct weir_quota another = made_quota_of(name, NULL, 1, 1);
    assert_int_equal(put(t, &another), WEIR_EFULL);
    /* A call at that moment says what it lacked later: it can't grow either. */
    weir_store_relaxed(&t->short_of, weir_table_committed(t));
    assert_false(weir_table_is_short(t));
    weir_table_resume_growing(t);
    assert_int_equal(put(t, &another), WEIR_OK);
    every_name_is_found(t, "quota", i);
    made_audit(t);
    munmap(t, grower.size);
}

/* Between a call that finds no room and its caller's growth, another thread may
 * grow: the caller sees it. An older growth that ends late hides nothing. */
static void a_growth_by_another_thread_is_seen(void **state)
{
    (void)state;
    struct weir_table_options options = {
        .slots = SLOTS, .committed = FIRST, .stripes = 2, .seed = 11
    };
    struct grower grower = made_grower(&options);
    struct weir_table *t = grower.t;
    uint32_t i = 0, had = 0;
    for (; !weir_table_is_short(t); i++) {
        char name[64];
        name_of(name, "quota", 4 * i + 1);
        struct weir_quota quota = made_quota_of(name, NULL, 1, 1);
        had = weir_table_committed(t);
        (void)weir_table_put(t, &quota, MADE_AT);
    }
    assert_true(grow(t)); /* another thread */
    assert_false(weir_table_is_short(t));
    assert_compare(weir_table_committed(t), >, had);
    for (; !weir_table_is_short(t); i++) {
        char name[64];
        name_of(name, "quota", 4 * i + 1);
        struct weir_quota quota = made_quota_of(name, NULL, 1, 1);
        (void)weir_table_put(t, &quota, MADE_AT);
    }
    weir_table_grown(t, FIRST); /* a third one, late */
    assert_true(weir_table_is_short(t));
    munmap(t, grower.size);
}

/* A view of a template that is being removed may read any slot's number as its
 * pattern's first chunk. */
static void a_torn_chunk_is_never_beyond_the_memory(void **state)
{
    (void)state;
    struct weir_table_options options = {
        .slots = SLOTS, .committed = FIRST, .stripes = 2, .seed = 12
    };
    struct grower grower = made_grower(&options);
    char pattern[64] = "x";
    for (uint32_t slot = 0; slot < FIRST; slot++)
        weir_chunks_load(grower.t, slot, sizeof(pattern), pattern);
    assert_string_equal(pattern, "");
    munmap(grower.t, grower.size);
}

/* From 65,536 slots on, a flood of names doesn't make the table grow while old
 * ones are idle. */
static void idle_instances_come_before_a_growth(void **state)
{
    (void)state;
    struct weir_table_options options = {
        .slots = 100000, .committed = 65536, .stripes = 2, .seed = 7
    };
    struct grower grower = made_grower(&options);
    struct weir_table *t = grower.t;
    struct weir_quota template = made_quota_of("v*", NULL, 3, 3);
    assert_int_equal(put(t, &template), WEIR_OK);
    char name[64];
    for (uint32_t i = 1; i < 65536; i++) {
        sprintf(name, "v%u", i);
        assert_int_equal(resolve(t, weir_text_of(name)), WEIR_RESOLVED);
    }
    assert_true(weir_table_is_crowded(t));
    uint64_t *bits = calloc(weir_table_bits_words(t), sizeof(*bits));
    assert_non_null(bits);
    weir_table_collect(t, bits);
    for (uint32_t i = 0; i < 100; i++) {
        struct weir_ref ref;
        sprintf(name, "v%u", 65536 + i);
        assert_int_equal(weir_table_resolve(t, weir_text_of(name), false, &ref,
                                            MADE_AT + WEIR_SECOND),
                         WEIR_RESOLVED);
    }
    assert_false(weir_table_is_short(t));
    made_audit(t);
    free(bits);
    munmap(t, grower.size);
}

/* ---- Parents ---- */

/* The parent's name for an instance of "leaf/T/I". */
static void has_its_parent(struct weir_table *t, uint32_t tenant, uint32_t i)
{
    char name[64], parent[64];
    struct weir_ref ref, above;
    sprintf(name, "leaf/%u/%u", tenant, i);
    if (!weir_table_find(t, weir_text_of(name), &ref))
        return;
    sprintf(parent, "tenant/%u", tenant);
    if (!weir_table_find(t, weir_text_of(parent), &above) ||
        weir_parent(weir_hot(t, ref.slot)) != above.slot)
        fail_msg("%s was made without its parent", name);
    weir_table_mark(t, ref.slot); /* so that it isn't idle */
}

/* A tenant's limit holds for all of its names, also for one that takes the last
 * slot: it isn't made if there is no room for its parent. */
static void no_instance_is_made_without_its_parent(void **state)
{
    (void)state;
    struct weir_table_options options = {
        .slots = 8 * FIRST, .committed = FIRST, .stripes = 2, .seed = 8
    };
    struct grower grower = made_grower(&options);
    struct weir_table *t = grower.t;
    struct weir_quota tenants = made_quota_of("tenant/*", NULL, 3, 3);
    struct weir_quota leaves = made_quota_of("leaf/*/*", "tenant/{1}", 3, 3);
    struct weir_quota odd = made_quota_of("odd", NULL, 3, 3);
    assert_int_equal(put(t, &tenants), WEIR_OK);
    assert_int_equal(put(t, &leaves), WEIR_OK);
    assert_int_equal(put(t, &odd), WEIR_OK);
    char name[64];
    uint32_t made = 0;
    enum weir_resolved how = WEIR_RESOLVED;
    for (; how == WEIR_RESOLVED; made++) {
        sprintf(name, "leaf/%u/%u", made, made);
        how = resolve(t, weir_text_of(name));
        has_its_parent(t, made, made);
    }
    assert_int_equal(how, WEIR_RESOLVED_CHAIN);
    assert_compare(made, >, 3 * FIRST);
    made_audit(t);
    munmap(t, grower.size);
}

/* A template that gets a parent while the table has no room for the parents:
 * its instances get them as soon as it has. */
static void instances_get_the_parents_that_had_no_room(void **state)
{
    (void)state;
    struct weir_table_options options = {
        .slots = 4 * FIRST, .committed = FIRST, .stripes = 2, .seed = 9
    };
    struct grower grower = made_grower(&options);
    struct weir_table *t = grower.t;
    struct weir_quota tenants = made_quota_of("tenant/*", NULL, 3, 3);
    struct weir_quota leaves = made_quota_of("leaf/*/*", NULL, 3, 3);
    assert_int_equal(put(t, &tenants), WEIR_OK);
    assert_int_equal(put(t, &leaves), WEIR_OK);
    char name[64];
    for (uint32_t i = 0; i < FIRST - 10; i++) {
        sprintf(name, "leaf/%u/%u", i, i);
        assert_int_equal(resolve(t, weir_text_of(name)), WEIR_RESOLVED);
    }
    leaves = made_quota_of("leaf/*/*", "tenant/{1}", 3, 3);
    assert_int_equal(put(t, &leaves), WEIR_OK);
    assert_true(weir_table_is_short(t));
    assert_true(grow(t));
    (void)weir_table_sweep(t, FIRST, MADE_AT);
    assert_false(weir_table_is_short(t));
    for (uint32_t i = 0; i < FIRST - 10; i++)
        has_its_parent(t, i, i);
    made_audit(t);
    munmap(t, grower.size);
}

/* ---- Threads: names are found while the index grows ---- */

#define THREADS 3

struct reader {
    struct weir_table *t;
    uint32_t made; /* names 0 .. made - 1 are in the table; atomic */
    uint32_t done;
};

static void *read_names(void *argument)
{
    struct reader *reader = argument;
    struct weir_rng rng = { (uint64_t)(uintptr_t)&rng };
    char name[64];
    struct weir_ref ref;
    while (!weir_load_acquire(&reader->done)) {
        uint32_t made = weir_load_acquire(&reader->made);
        if (made == 0)
            continue;
        uint32_t i = (uint32_t)weir_rng_below(&rng, made);
        if (!weir_table_find(reader->t, name_of(name, "value", i), &ref))
            abort();
    }
    return NULL;
}

static void names_are_found_while_the_index_grows(void **state)
{
    (void)state;
    struct weir_table_options options = {
        .slots = SLOTS, .committed = FIRST, .stripes = 2, .seed = 5
    };
    struct grower grower = made_grower(&options);
    struct reader reader = { .t = grower.t };
    struct weir_quota template = made_quota_of("value/*", NULL, 3, 3);
    assert_int_equal(put(grower.t, &template), WEIR_OK);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, read_names, &reader);
    char name[64];
    for (uint32_t i = 0; i < SLOTS - 1; i++) {
        assert_int_equal(resolve(grower.t, name_of(name, "value", i)),
                         WEIR_RESOLVED);
        weir_store_release(&reader.made, i + 1);
    }
    weir_store_release(&reader.done, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_compare(weir_name_index_count(grower.t), >, SLOTS / 2);
    made_audit(grower.t);
    munmap(grower.t, grower.size);
}

/* ---- A quota without room costs no search of its own ---- */

#define FULL 2000 /* visited in two steps, the second one in part again */

static void quotas_without_room_search_once(void **state)
{
    (void)state;
    struct weir_table *t = made_table(FULL, 2, 6);
    char name[64];
    for (uint32_t i = 0; i < FULL + 50; i++) {
        name_of(name, "q", 4 * i + 1);
        struct weir_quota quota = made_quota_of(name, NULL, 1, 1);
        int error = weir_table_put(t, &quota, MADE_AT);
        assert_int_equal(error, i < FULL ? WEIR_OK : WEIR_EFULL);
        /* The hand moves in a search only. */
        if (i == FULL)
            t->hand = 7;
        assert_true(i <= FULL || t->hand == 7);
    }
    struct weir_quota quota = made_quota_of("late", NULL, 1, 1);
    assert_int_equal(weir_table_put(t, &quota, MADE_AT + WEIR_SECOND),
                     WEIR_EFULL);
    assert_int_not_equal(t->hand, 7);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_grows_to_its_slots),
        cmocka_unit_test(a_growth_that_fails_makes_the_table_full),
        cmocka_unit_test(a_growth_by_another_thread_is_seen),
        cmocka_unit_test(a_torn_chunk_is_never_beyond_the_memory),
        cmocka_unit_test(idle_instances_come_before_a_growth),
        cmocka_unit_test(no_instance_is_made_without_its_parent),
        cmocka_unit_test(instances_get_the_parents_that_had_no_room),
        cmocka_unit_test(names_are_found_while_the_index_grows),
        cmocka_unit_test(quotas_without_room_search_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
