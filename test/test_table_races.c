/* SPDX-License-Identifier: MIT
 * test_table_races.c - every interleaving of one call within another.
 *
 * Threads seldom meet where it hurts. So the table is compiled here with a
 * hook under each of its atomic accesses, and for each pair of calls, a
 * victim and an intruder, the intruder runs whole before the victim's first
 * access, before its second, and so on to the end. One preemption at every
 * place there is, in one thread, the same at each run. What an access may see
 * late on a weaker machine isn't tried; that it is sequentially consistent
 * where it must be is argued in the code. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/atomic.h"

static void step(void);

#undef weir_load_relaxed
#undef weir_load_acquire
#undef weir_load
#undef weir_store_relaxed
#undef weir_store_release
#undef weir_store
#undef weir_fetch_add
#undef weir_fetch_sub
#undef weir_fetch_or
#undef weir_exchange
#undef weir_cas
#define weir_load(p) (step(), __atomic_load_n((p), __ATOMIC_SEQ_CST))
#define weir_load_relaxed weir_load
#define weir_load_acquire weir_load
#define weir_store(p, v) \
    (step(), __atomic_store_n((p), (v), __ATOMIC_SEQ_CST))
#define weir_store_relaxed weir_store
#define weir_store_release weir_store
#define weir_fetch_add(p, v) \
    (step(), __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST))
#define weir_fetch_sub(p, v) \
    (step(), __atomic_fetch_sub((p), (v), __ATOMIC_SEQ_CST))
#define weir_fetch_or(p, v) \
    (step(), __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST))
#define weir_exchange(p, v) \
    (step(), __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST))
#define weir_cas(p, expected, v) \
    (step(), __atomic_compare_exchange_n((p), (expected), (v), false, \
                                         __ATOMIC_SEQ_CST, \
                                         __ATOMIC_SEQ_CST))

#include "quota/table.c"
#include "quota/table_edit.c"
#include "quota/table_rule.c"
#include "quota/table_sync.c"
#include "quota/table_take.c"

#include "table_maker.h"

/* ---- The stage ---- */

#define SLOTS 12
#define LATER (MADE_AT + 10 * WEIR_SECOND)
#define WEIGHT 3

struct stage {
    struct weir_table *t;
    struct weir_ref leaf;
    unsigned takes;        /* that asked for WEIGHT */
    unsigned passed;       /* of them */
    uint64_t seen[SLOTS];  /* counts, as the sync read them */
    uint64_t report_at;    /* of the leaf, if the slack was set */
    bool dropped;          /* the leaf's quota, so that nothing holds it */
};

typedef void act(struct stage *stage);

static struct {
    struct stage *stage;
    act *intruder;
    int wait; /* accesses until it comes; -1: it came, or never will */
} hook = { .wait = -1 };

static void step(void)
{
    if (hook.wait < 0 || hook.wait-- > 0)
        return;
    hook.wait = -1;
    hook.intruder(hook.stage);
}

static void put(struct stage *s, const char *name, const char *parent,
                uint64_t units)
{
    struct weir_quota quota = made_quota_of(name, parent, units, 1000);
    assert_int_equal(weir_table_put(s->t, &quota, MADE_AT), WEIR_OK);
}

static void collect(struct stage *s)
{
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
static void set_up(struct stage *s)
{
    memset(s, 0, sizeof(*s));
    s->t = made_table(SLOTS, 2, 3);
    put(s, "site", NULL, 1000);
    put(s, "i_*", "p_{1}", 1000);
    put(s, "p_*", "site", 1000);
    put(s, "q", "site", 1000);
    assert_int_equal(weir_table_resolve(s->t, WEIR_TEXT("i_1"), false,
                                        &s->leaf, MADE_AT),
                     WEIR_RESOLVED);
    weir_table_take(s->t, 0, s->leaf, 1, NULL, MADE_AT);
    settle(s);
    weir_table_sweep(s->t, SLOTS, LATER);
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++)
        weir_table_set_slack(s->t, slot, 1u << 30, 1u << 31);
    while (weir_table_urgent(s->t))
        continue;
}

/* ---- What they do ---- */

static void do_take(struct stage *s)
{
    unsigned outcome =
        weir_table_take(s->t, 0, s->leaf, WEIGHT, NULL, LATER);
    s->takes++;
    s->passed +=
        !(outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_LIMITED));
}

static void do_take_with_reply(struct stage *s)
{
    struct weir_reply reply;
    unsigned outcome =
        weir_table_take(s->t, 0, s->leaf, WEIGHT, &reply, LATER);
    s->takes++;
    s->passed +=
        !(outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_LIMITED));
}

static void do_charge(struct stage *s)
{
    s->takes++;
    s->passed += !(weir_table_charge(s->t, 0, s->leaf, WEIGHT, LATER) &
                   WEIR_OUTCOME_STALE_REF);
}

static void do_reserve(struct stage *s)
{
    struct weir_reply reply;
    s->takes++;
    s->passed += !(weir_table_reserve(s->t, 0, s->leaf, WEIGHT, 0, &reply,
                                      LATER) &
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

/* Frees all that is idle and gives the slots to others. */
static void do_evict(struct stage *s)
{
    weir_table_lock(s->t);
    weir_table_evict(s->t, SLOTS, SLOTS, LATER);
    weir_table_evict(s->t, SLOTS, SLOTS, LATER);
    weir_table_unlock(s->t);
    make_strangers(s);
}

static void do_reparent(struct stage *s)
{
    struct weir_quota quota = made_quota_of("i_*", "q", 1000, 1000);
    assert_int_equal(weir_table_put(s->t, &quota, LATER), WEIR_OK);
}

/* The leaf hangs elsewhere, and its former parent is a stranger's slot. */
static void do_reparent_and_evict(struct stage *s)
{
    struct weir_ref held;
    do_reparent(s);
    /* The leaf is kept: only its parent goes. */
    weir_table_lock(s->t);
    bool lives = weir_hot(s->t, s->leaf.slot)->generation ==
                 s->leaf.generation;
    if (lives)
        weir_cold(s->t, s->leaf.slot)->refs++;
    weir_table_evict(s->t, SLOTS, SLOTS, LATER);
    if (lives)
        weir_cold(s->t, s->leaf.slot)->refs--;
    weir_table_unlock(s->t);
    weir_table_resolve(s->t, WEIR_TEXT("p_stranger"), false, &held, LATER);
}

/* Another scale, so that a mixture would show. */
static void do_edit(struct stage *s)
{
    struct weir_quota quota =
        made_quota_of("i_*", "p_{1}", 50000000000ull, 1ull << 45);
    assert_int_equal(weir_table_put(s->t, &quota, LATER), WEIR_OK);
}

static void do_drop(struct stage *s)
{
    s->dropped = true;
    weir_table_drop(s->t, WEIR_TEXT("i_*"), LATER);
    make_strangers(s);
}

/* With a mark to find: a take of nothing makes one. */
static void do_collect(struct stage *s)
{
    weir_table_take(s->t, 0, s->leaf, 0, NULL, LATER);
    collect(s);
}

static void do_slack(struct stage *s)
{
    s->report_at = weir_table_count(s->t, s->leaf.slot) + 2;
    weir_table_set_slack(s->t, s->leaf.slot, s->report_at,
                         s->report_at + 1000);
}

/* ---- What must hold ---- */

static int64_t units_in(struct stage *s, uint32_t slot)
{
    struct weir_slot_view view;
    weir_table_view(s->t, slot, &view, LATER);
    return view.fill >> view.bucket.leak.frac;
}

static void check_fills(struct stage *s)
{
    int64_t all = (int64_t)s->passed * WEIGHT;
    /* Who passed is remembered. */
    if (all > 0 && !s->dropped)
        assert_true(weir_slot_find(s->t, WEIR_TEXT("i_1")) !=
                    WEIR_SLOT_NONE);
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++) {
        char name[WEIR_NAME_MAX + 1];
        if (weir_table_name(s->t, slot, name) == 0)
            continue;
        int64_t units = units_in(s, slot);
        if (strcmp(name, "site") == 0 || strcmp(name, "i_1") == 0)
            assert_true(units == all || (s->dropped && units == 0));
        else if (strcmp(name, "p_1") == 0 || strcmp(name, "q") == 0)
            assert_true(units >= 0 && units <= all);
        else /* nobody asked for anything else */
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

/* Over report_at somebody is told, at the next take at the latest. */
static void check_told(struct stage *s)
{
    if (s->report_at == 0)
        return;
    do_take(s);
    assert_true(weir_table_is_urgent(s->t));
}

static void race(act *victim, act *intruder)
{
    int places = 0;
    for (bool came = true; came; places++) {
        struct stage stage;
        set_up(&stage);
        hook.stage = &stage;
        hook.intruder = intruder;
        hook.wait = places;
        victim(&stage);
        came = hook.wait < 0;
        hook.wait = -1;
        if (came)
            check_told(&stage);
        check_fills(&stage);
        check_seen(&stage);
        /* And the next one is seen as well. */
        do_take(&stage);
        check_seen(&stage);
        made_audit(stage.t);
        free(stage.t);
    }
    assert_true(places > 1);
}

static act *const takes[] = { do_take, do_take_with_reply, do_charge,
                              do_reserve };
static act *const others[] = { do_evict, do_reparent, do_reparent_and_evict,
                               do_edit,  do_drop,     do_slack,
                               collect,  do_collect };

static void test_takes_are_intruded_upon(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEIR_COUNT_OF(takes); i++) {
        race(takes[i], do_take);
        for (size_t k = 0; k < WEIR_COUNT_OF(others); k++)
            race(takes[i], others[k]);
    }
}

static void test_takes_intrude(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEIR_COUNT_OF(takes); i++) {
        for (size_t k = 0; k < WEIR_COUNT_OF(others); k++)
            race(others[k], takes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_are_intruded_upon),
        cmocka_unit_test(test_takes_intrude),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
