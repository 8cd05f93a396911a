/* SPDX-License-Identifier: MIT
 * test_explore_permit.c - permits under every schedule.
 *
 * As test_explore.c, for units in flight: two threads that race for one unit,
 * edits, evictions and removals beside enters and leaves. After each schedule a
 * name's in-flight counter is exactly the sum of its permits that are out, and
 * no slot that changed hands has units in flight; within each, no enter makes
 * more be in flight than the limit. Then bugs are put in, and must be found. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define WEIR_EXPLORE
#include "table_sources.h"

#include "explore_case.h"
#include "table_stage.h"

#define SLOTS 6
#define THREADS 3
#define LATER (MADE_AT + WEIR_SECOND)

/* ---- The stage ---- */

struct stage {
    _Alignas(WEIR_CACHE_LINE) struct weir_table *t;
    struct weir_ref ref[THREADS];
    struct weir_permit_record record[THREADS];
    uint32_t watched; /* slot with the limit 'limit' all the time */
    uint64_t limit;
    /* Of each thread alone. */
    uint32_t passed[THREADS], refused[THREADS], stale[THREADS];
    bool over[THREADS];
};

static void put(struct stage *s, const char *name, const char *parent,
                uint64_t units)
{
    struct weir_quota quota = made_inflight_of(name, parent, units);
    assert_int_equal(weir_table_put(s->t, &quota, MADE_AT), WEIR_OK);
}

static void aim(struct stage *s, unsigned thread, const char *name)
{
    assert_int_equal(weir_table_resolve(s->t, weir_text_of(name), false,
                                        &s->ref[thread], LATER),
                     WEIR_RESOLVED);
}

static void settle(struct stage *s)
{
    uint64_t bits = 0;
    weir_table_collect(s->t, &bits);
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++)
        weir_table_set_settled(s->t, slot, weir_table_count(s->t, slot));
}

/* ---- The threads ---- */

static void enter(struct stage *s, unsigned thread)
{
    unsigned outcome = weir_table_enter(s->t, 0, s->ref[thread], 1,
                                        &s->record[thread], NULL, LATER);
    if (s->limit > 0 && weir_table_in_flight(s->t, s->watched) > s->limit)
        s->over[thread] = true;
    if (outcome & WEIR_OUTCOME_STALE_REF)
        s->stale[thread]++;
    else if (outcome & WEIR_OUTCOME_LIMITED)
        s->refused[thread]++;
    else
        s->passed[thread]++;
}

static void enter_a(void *s)
{
    enter(s, 0);
}

static void enter_b(void *s)
{
    enter(s, 1);
}

static void enter_c(void *s)
{
    enter(s, 2);
}

static void leave_a(void *state)
{
    struct stage *s = state;
    weir_table_leave(s->t, &s->record[0]);
}

static void enter_and_leave(void *state)
{
    enter_a(state);
    leave_a(state);
}

static void lower(void *state)
{
    struct stage *s = state;
    struct weir_quota quota = made_inflight_of("q", NULL, 1);
    stage_put(s->t, &quota, LATER);
}

/* Becomes a rate, is taken from, and has kind concurrency again. */
static void rate_and_back(void *state)
{
    struct stage *s = state;
    struct weir_quota rate = made_quota_of("q", NULL, 1000, 50);
    struct weir_quota inflight = made_inflight_of("q", NULL, 5);
    stage_put(s->t, &rate, LATER);
    weir_table_take(s->t, 0, s->ref[0], 7, NULL, LATER);
    stage_put(s->t, &inflight, LATER);
}

static void reparent(void *state)
{
    struct stage *s = state;
    struct weir_quota quota = made_inflight_of("q", "other", 5);
    stage_put(s->t, &quota, LATER);
}

static void evict_for_stranger(void *state)
{
    struct stage *s = state;
    stage_evict(s->t, LATER);
}

static void drop_for_stranger(void *state)
{
    struct stage *s = state;
    stage_drop(s->t, WEIR_TEXT("q"), LATER);
    struct weir_quota quota = made_inflight_of("stranger", NULL, 5);
    stage_put(s->t, &quota, LATER);
}

/* ---- Invariants ---- */

/* Units of a slot in permits. */
static uint64_t out_of(const struct stage *s, uint32_t slot)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        for (uint32_t k = 0; k < s->record[i].links; k++)
            sum += s->record[i].slot[k] == slot ? s->record[i].weight : 0;
    }
    return sum;
}

static uint32_t sum_of(const uint32_t *counts)
{
    return counts[0] + counts[1] + counts[2];
}

static const char *check_exact(void *state)
{
    struct stage *s = state;
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++)
        EXPLORE_MUST(weir_table_in_flight(s->t, slot) == out_of(s, slot));
    for (unsigned i = 0; i < THREADS; i++) {
        EXPLORE_MUST(!s->over[i]);
        EXPLORE_MUST(s->passed[i] > 0 || s->record[i].links == 0);
    }
    made_audit(s->t);
    return NULL;
}

static const char *check_one(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(sum_of(s->passed) == 1);
    EXPLORE_MUST(weir_table_in_flight(s->t, s->ref[0].slot) == 1);
    return check_exact(s);
}

/* One thread enters and leaves, another enters: it may find the unit or not. */
static const char *check_left(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(sum_of(s->passed) >= 1);
    EXPLORE_MUST(s->record[0].links == 0);
    return check_exact(s);
}

/* Two leaves below one unit: the parent is entered first, so one of them gets
 * it, and the other never entered its own leaf. */
static const char *check_below(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(sum_of(s->passed) == 1);
    return check_exact(s);
}

static const char *check_passed_all(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(sum_of(s->refused) + sum_of(s->stale) == 0);
    return check_exact(s);
}

/* One parent or the other, and the quota itself. */
static const char *check_moved(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(s->passed[0] == 1);
    EXPLORE_MUST(s->record[0].links == 2);
    return check_exact(s);
}

/* A slot may change hands, but a slot with a permit keeps its name. */
static const char *check_life(void *state)
{
    struct stage *s = state;
    char name[WEIR_NAME_MAX + 1] = "";
    EXPLORE_MUST(s->passed[0] + s->stale[0] == 1);
    if (s->record[0].links > 0) {
        weir_table_name(s->t, s->record[0].slot[0], name);
        EXPLORE_MUST(strcmp(name, "i_1") == 0 || strcmp(name, "q") == 0);
    }
    return check_exact(s);
}

/* ---- Running them ---- */

/* 'processes' share the table; 0: it isn't shared. */
static struct explore_program program_among(const char *name,
                                            uint32_t processes)
{
    struct weir_table_options options = {
        .slots = SLOTS,
        .stripes = processes > 0 ? processes : 1,
        .processes = processes,
        .seed = 3,
        .bucket_state_bytes = AREA_UNIT,
    };
    struct explore_program program = { .name = name,
                                       .fibers = 2,
                                       .check = check_exact,
                                       .preemptions = EXPLORE_ALL };
    struct weir_table *t;
    struct stage *s =
        made_stage(sizeof(*s), &options, &t, &program.state_bytes);
    s->t = t;
    program.state = s;
    program.run[0] = enter_a;
    program.run[1] = enter_b;
    program.run[2] = enter_c;
    return program;
}

static struct explore_program program_of(const char *name)
{
    return program_among(name, 0);
}

static struct explore_program on_one(const char *name, uint64_t limit)
{
    struct explore_program program = program_of(name);
    struct stage *s = program.state;
    put(s, "q", NULL, limit);
    for (unsigned i = 0; i < THREADS; i++)
        aim(s, i, "q");
    settle(s);
    s->watched = s->ref[0].slot;
    return program;
}

static void test_one_unit_is_held_once(void **state)
{
    (void)state;
    struct explore_program program = on_one("one", 1);
    struct stage *s = program.state;
    s->limit = 1;
    program.fibers = 3;
    program.check = check_one;
    explore_sound(&program);
}

static void test_what_was_left_is_there(void **state)
{
    (void)state;
    struct explore_program program = on_one("leave", 1);
    struct stage *s = program.state;
    s->limit = 1;
    program.run[0] = enter_and_leave;
    program.check = check_left;
    explore_sound(&program);
}

static void test_leaves_below_one_unit(void **state)
{
    (void)state;
    struct explore_program program = program_of("below");
    struct stage *s = program.state;
    put(s, "parent", NULL, 1);
    put(s, "q", "parent", 1);
    put(s, "r", "parent", 1);
    aim(s, 0, "q");
    aim(s, 1, "r");
    settle(s);
    struct weir_ref parent;
    assert_true(weir_table_find(s->t, WEIR_TEXT("parent"), &parent));
    s->watched = parent.slot;
    s->limit = 1;
    program.check = check_below;
    explore_sound(&program);
}

static void test_enters_beside_edits(void **state)
{
    (void)state;
    struct explore_program lowered = on_one("lower", 5);
    lowered.run[0] = enter_and_leave;
    lowered.fibers = 3;
    lowered.run[2] = lower;
    lowered.preemptions = explore_bound(2);
    explore_sound(&lowered);
    struct explore_program rate = on_one("rate", 5);
    rate.run[1] = rate_and_back;
    rate.preemptions = explore_bound(3);
    rate.check = check_passed_all;
    explore_sound(&rate);
}

static void test_a_leave_beside_edits(void **state)
{
    (void)state;
    struct explore_program program = on_one("leave-rate", 5);
    enter_a(program.state);
    program.run[0] = leave_a;
    program.run[1] = rate_and_back;
    explore_sound(&program);
}

static void test_an_enter_beside_another_parent(void **state)
{
    (void)state;
    struct explore_program program = program_of("reparent");
    struct stage *s = program.state;
    put(s, "parent", NULL, 5);
    put(s, "other", NULL, 5);
    put(s, "q", "parent", 5);
    aim(s, 0, "q");
    settle(s);
    program.run[1] = reparent;
    program.preemptions = explore_bound(3);
    program.check = check_moved;
    explore_sound(&program);
}

static struct explore_program on_instance(const char *name)
{
    struct explore_program program = program_of(name);
    struct stage *s = program.state;
    put(s, "i_*", NULL, 5);
    aim(s, 0, "i_1");
    settle(s);
    program.run[1] = evict_for_stranger;
    program.preemptions = explore_bound(3);
    program.check = check_life;
    return program;
}

static void test_no_stranger_is_given_what_is_held(void **state)
{
    (void)state;
    struct explore_program evicted = on_instance("evict");
    explore_sound(&evicted);
    struct explore_program left = on_instance("evict-leave");
    left.run[0] = enter_and_leave;
    explore_sound(&left);
    struct explore_program dropped = on_one("drop", 5);
    dropped.run[1] = drop_for_stranger;
    dropped.preemptions = explore_bound(3);
    dropped.check = check_life;
    explore_sound(&dropped);
}

/* ---- Bugs put in ---- */

static void test_bugs_are_found(void **state)
{
    (void)state;
    static const enum explore_plant_kind kinds[] = { EXPLORE_TORN,
                                                     EXPLORE_BLIND };
    for (unsigned i = 0; i < WEIR_COUNT_OF(kinds); i++) {
        struct explore_program program =
            i == 0 ? on_one("torn", 1) : on_instance("blind");
        struct stage *s = program.state;
        uint32_t slot = s->ref[0].slot;
        if (i == 0)
            program.check = check_one;
        /* i == 1: the enter doesn't notice that the slot has changed hands. */
        const void *words[] = { &weir_inflight(s->t, slot)->in_flight,
                                &weir_hot(s->t, slot)->generation };
        program.plant =
            (struct explore_plant){ .kind = kinds[i], .word = words[i] };
        explore_planted(&program);
    }
}

/* ---- A reaper that is killed ---- */

/* Processes of a shared table: one that died with a permit, its reaper, and the
 * reaper after that. */
#define PROCESSES 4
enum { DEAD = 1, REAPER, NEXT_REAPER };

static void reap(void *state)
{
    struct stage *s = state;
    weir_table_reap_locks(s->t, DEAD, REAPER);
    (void)weir_table_reap(s->t, DEAD, REAPER);
}

/* Wherever the reaper was killed, the next one leaves nothing in flight. */
static const char *check_given_back(void *state)
{
    struct stage *s = state;
    for (uint32_t dead = DEAD; dead <= REAPER; dead++)
        weir_table_reap_locks(s->t, dead, NEXT_REAPER);
    for (uint32_t dead = DEAD; dead <= REAPER; dead++)
        EXPLORE_MUST(weir_table_reap(s->t, dead, NEXT_REAPER));
    EXPLORE_MUST(weir_table_in_flight(s->t, s->ref[0].slot) == 0);
    made_audit(s->t);
    return NULL;
}

static void test_a_killed_reaper_loses_no_units(void **state)
{
    (void)state;
    struct explore_program program = program_among("killed-reaper", PROCESSES);
    struct stage *s = program.state;
    put(s, "q", NULL, 5);
    aim(s, 0, "q");
    assert_int_equal(
        weir_table_enter(s->t, DEAD, s->ref[0], 1, &s->record[0], NULL, LATER) &
            WEIR_OUTCOME_LIMITED,
        0);
    settle(s);
    program.fibers = 1;
    program.run[0] = reap;
    program.check = check_given_back;
    explore_killed(&program, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EXPLORED(test_one_unit_is_held_once),
        EXPLORED(test_what_was_left_is_there),
        EXPLORED(test_leaves_below_one_unit),
        EXPLORED(test_enters_beside_edits),
        EXPLORED(test_a_leave_beside_edits),
        EXPLORED(test_an_enter_beside_another_parent),
        EXPLORED(test_no_stranger_is_given_what_is_held),
        EXPLORED(test_a_killed_reaper_loses_no_units),
        EXPLORED(test_bugs_are_found),
    };
    if (!explore_begin())
        return EXPLORE_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
