/* SPDX-License-Identifier: MIT
 * test_table_races.c - every single preemption of one call by another.
 *
 * Threads seldom meet in the critical places. So the table is compiled here
 * with the explorer under each of its atomic accesses. For each pair of calls
 * all schedules are run in which one of them is interrupted once by the whole
 * of the other: before its first access, before its second, and so on to the
 * end. test_explore goes deeper with fewer calls. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WEIR_EXPLORE
#include "compare.h"
#include "table_sources.h"

#include "explore_case.h"
#include "fiber.h"
#include "table_calls.h"
#include "table_maker.h"

/* ---- The stage ---- */

#define SLOTS 12
#define LATER (MADE_AT + 10 * WEIR_SECOND)
#define WEIGHT 3

/* All memory that a race writes; the table's block follows. */
struct stage {
    _Alignas(WEIR_CACHE_LINE) struct weir_table *t;
    struct weir_ref leaf;
    unsigned takes;       /* takes of WEIGHT */
    unsigned passed;      /* of these */
    uint64_t seen[SLOTS]; /* counts that the sync read */
    uint64_t report_at;   /* of the leaf, if the slack was set */
    bool dropped;         /* the leaf's quota; the leaf isn't in use */
};

static void put(struct stage *s, const char *name, const char *parent,
                uint64_t units)
{
    struct weir_quota quota = made_quota_of(name, parent, units, 1000);
    assert_int_equal(weir_table_put(s->t, &quota, MADE_AT), WEIR_OK);
}

static void collect(void *state)
{
    struct stage *s = state;
    uint64_t bits = 0;
    weir_table_collect(s->t, &bits);
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++) {
        if (bits >> slot & 1)
            s->seen[slot] = weir_table_count(s->t, slot);
    }
}

static void settle(struct stage *s)
{
    collect(s);
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++)
        weir_table_set_settled(s->t, slot, s->seen[slot]);
}

/* A chain of three instances that stood idle, all settled. */
static struct stage *set_up(size_t *out_bytes)
{
    struct weir_table_options options = {
        .slots = SLOTS, .stripes = 2, .seed = 3, .bucket_state_bytes = AREA_UNIT
    };
    struct weir_table *t;
    struct stage *s = made_stage(sizeof(*s), &options, &t, out_bytes);
    s->t = t;
    put(s, "site", NULL, 1000);
    put(s, "i_*", "p_{1}", 1000);
    put(s, "p_*", "site", 1000);
    put(s, "q", "site", 1000);
    assert_int_equal(
        weir_table_resolve(s->t, WEIR_TEXT("i_1"), false, &s->leaf, MADE_AT),
        WEIR_RESOLVED);
    weir_table_take(s->t, 0, s->leaf, 1, NULL, MADE_AT);
    settle(s);
    weir_table_sweep(s->t, SLOTS, LATER);
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++)
        weir_table_set_slack(s->t, slot, 1u << 30, 1u << 31);
    while (weir_table_urgent(s->t))
        continue;
    return s;
}

/* ---- The calls ---- */

static void do_take(void *state)
{
    struct stage *s = state;
    unsigned outcome = weir_table_take(s->t, 0, s->leaf, WEIGHT, NULL, LATER);
    s->takes++;
    s->passed += !(outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_LIMITED));
}

static void do_take_with_reply(void *state)
{
    struct stage *s = state;
    struct weir_reply reply;
    unsigned outcome = weir_table_take(s->t, 0, s->leaf, WEIGHT, &reply, LATER);
    s->takes++;
    s->passed += !(outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_LIMITED));
}

static void do_charge(void *state)
{
    struct stage *s = state;
    s->takes++;
    s->passed += !(weir_table_charge(s->t, 0, s->leaf, WEIGHT, LATER) &
                   WEIR_OUTCOME_STALE_REF);
}

static void do_reserve(void *state)
{
    struct stage *s = state;
    struct weir_reply reply;
    s->takes++;
    s->passed +=
        !(weir_table_reserve(s->t, 0, s->leaf, WEIGHT, 0, &reply, LATER) &
          WEIR_OUTCOME_STALE_REF);
}

static void make_strangers(struct stage *s)
{
    for (int i = 0; i < 4; i++) {
        char name[16];
        struct weir_ref ref;
        snprintf(name, sizeof(name), "%s%d", i % 2 ? "i_s" : "p_s", i);
        weir_table_resolve(s->t, weir_text_of(name), false, &ref, LATER);
    }
}

/* Frees all idle slots and gives them to other names. */
static void do_evict(void *state)
{
    struct stage *s = state;
    assert_true(weir_table_try_lock(s->t));
    weir_table_evict(s->t, SLOTS, SLOTS, LATER);
    weir_table_evict(s->t, SLOTS, SLOTS, LATER);
    weir_table_unlock(s->t);
    make_strangers(s);
}

static void do_reparent(void *state)
{
    struct stage *s = state;
    struct weir_quota quota = made_quota_of("i_*", "q", 1000, 1000);
    assert_int_equal(weir_table_put(s->t, &quota, LATER), WEIR_OK);
}

/* The leaf gets another parent, and its former parent's slot another name. */
static void do_reparent_and_evict(void *state)
{
    struct stage *s = state;
    struct weir_ref held;
    do_reparent(s);
    /* The leaf is kept: only its parent is evicted. */
    assert_true(weir_table_try_lock(s->t));
    bool lives = weir_hot(s->t, s->leaf.slot)->generation == s->leaf.generation;
    if (lives)
        weir_cold(s->t, s->leaf.slot)->refs++;
    weir_table_evict(s->t, SLOTS, SLOTS, LATER);
    if (lives)
        weir_cold(s->t, s->leaf.slot)->refs--;
    weir_table_unlock(s->t);
    weir_table_resolve(s->t, WEIR_TEXT("p_stranger"), false, &held, LATER);
}

/* Another scale, so that a mixture would show. */
static void do_edit(void *state)
{
    struct stage *s = state;
    struct weir_quota quota =
        made_quota_of("i_*", "p_{1}", 50000000000ull, 1ull << 45);
    assert_int_equal(weir_table_put(s->t, &quota, LATER), WEIR_OK);
}

static void do_drop(void *state)
{
    struct stage *s = state;
    s->dropped = true;
    weir_table_drop(s->t, WEIR_TEXT("i_*"), LATER);
    make_strangers(s);
}

/* With a mark to find: a take of nothing makes one. */
static void do_collect(void *state)
{
    struct stage *s = state;
    weir_table_take(s->t, 0, s->leaf, 0, NULL, LATER);
    collect(s);
}

static void do_slack(void *state)
{
    struct stage *s = state;
    s->report_at = weir_table_count(s->t, s->leaf.slot) + 2;
    weir_table_set_slack(s->t, s->leaf.slot, s->report_at, s->report_at + 1000);
}

/* ---- Invariants ---- */

static int64_t units_in(struct stage *s, uint32_t slot)
{
    struct weir_slot_view view;
    weir_table_view(s->t, slot, &view, LATER);
    return view.fill >> view.bucket.leak.frac;
}

static void check_fills(struct stage *s)
{
    int64_t all = (int64_t)s->passed * WEIGHT;
    /* A pass is remembered. */
    if (all > 0 && !s->dropped)
        assert_true(weir_slot_find(s->t, WEIR_TEXT("i_1")) != WEIR_SLOT_NONE);
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++) {
        char name[WEIR_NAME_MAX + 1];
        if (weir_table_name(s->t, slot, name) == 0)
            continue;
        int64_t units = units_in(s, slot);
        if (strcmp(name, "site") == 0 || strcmp(name, "i_1") == 0)
            assert_true(units == all || (s->dropped && units == 0));
        else if (strcmp(name, "p_1") == 0 || strcmp(name, "q") == 0)
            assert_true(units >= 0 && units <= all);
        else /* no other name was asked for */
            assert_int_equal(units, 0);
    }
}

static void check_seen(struct stage *s)
{
    collect(s);
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++) {
        char name[WEIR_NAME_MAX + 1];
        if (weir_table_name(s->t, slot, name) > 0)
            assert_true(s->seen[slot] == weir_table_count(s->t, slot));
    }
}

/* Over report_at the sync is woken, at the next take at the latest. */
static void check_told(struct stage *s)
{
    if (s->report_at == 0)
        return;
    do_take(s);
    assert_true(weir_table_is_urgent(s->t));
}

static const char *check(void *state)
{
    struct stage *s = state;
    check_told(s);
    check_fills(s);
    check_seen(s);
    /* And the next one is seen as well. */
    do_take(s);
    check_seen(s);
    made_audit(s->t);
    return NULL;
}

struct act {
    const char *name;
    void (*run)(void *state);
};

static const struct act takes[] = {
    { "take", do_take },
    { "take-with-reply", do_take_with_reply },
    { "charge", do_charge },
    { "reserve", do_reserve },
};
static const struct act others[] = {
    { "take", do_take },
    { "evict", do_evict },
    { "edit", do_edit },
    { "reparent", do_reparent },
    { "drop", do_drop },
    { "reparent-and-evict", do_reparent_and_evict },
    { "slack", do_slack },
    { "collect", collect },
    { "take-and-collect", do_collect },
};

static uint64_t race(const struct act *a, const struct act *b)
{
    char name[64];
    snprintf(name, sizeof(name), "%s-%s", a->name, b->name);
    struct explore_program program = { .name = name,
                                       .fibers = 2,
                                       .run = { a->run, b->run },
                                       .check = check,
                                       .preemptions = 1,
                                       .quiet = true };
    if (!explore_is_wanted(&program))
        return 0;
    program.state = set_up(&program.state_bytes);
    struct explore_result result;
    explore(&program, &result);
    assert_null(result.wrong);
    assert_compare(result.executions, >, 2);
    free(program.state);
    return result.executions;
}

static void test_one_preemption_of_every_pair(void **state)
{
    (void)state;
    uint64_t executions = 0;
    for (size_t i = 0; i < WEIR_COUNT_OF(takes); i++) {
        for (size_t k = 0; k < WEIR_COUNT_OF(others); k++)
            executions += race(&takes[i], &others[k]);
    }
    printf("%llu schedules\n", (unsigned long long)executions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EXPLORED(test_one_preemption_of_every_pair),
    };
    if (FIBER_UNDER_TSAN) {
        puts("skipped: one thread that changes stacks, nothing to see");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
