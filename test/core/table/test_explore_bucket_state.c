/* SPDX-License-Identifier: MIT
 * test_explore_bucket_state.c - bucket states in the table under every
 * schedule.
 *
 * As test_explore.c, for chains of quotas with bucket states: units taken under
 * a lock are exact, with anything in between; units given back because another
 * link refused, the chain changed or a life ended are available again; and a
 * thread that is killed within a step costs only its own state's units. */

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
#define LEAVES 2
#define LATER (MADE_AT + WEIR_SECOND)

/* ---- The stage ---- */

struct stage {
    _Alignas(WEIR_CACHE_LINE) struct weir_table *t;
    struct weir_ref leaf[LEAVES];
    struct weir_charge_record charge_record;
    struct weir_reply reply; /* of the thread that wants one */
    uint32_t passed[LEAVES], refused, stale;
};

static struct weir_quota window_of(const char *name, const char *parent,
                                   uint64_t quantity)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = weir_text_of(name);
    quota.parent = weir_text_of(parent);
    quota.created = 1;
    quota.sharing = WEIR_LOCAL;
    quota.algorithm = WEIR_FIXED_WINDOW;
    quota.limit =
        (struct weir_limit){ .units = quantity, .per = 3600 * WEIR_SECOND };
    return quota;
}

static void put(struct stage *s, const char *name, const char *parent,
                uint64_t quantity)
{
    struct weir_quota quota = window_of(name, parent, quantity);
    assert_int_equal(weir_table_put(s->t, &quota, MADE_AT), WEIR_OK);
}

static void aim(struct stage *s, int leaf, const char *name)
{
    assert_int_equal(weir_table_resolve(s->t, weir_text_of(name), false,
                                        &s->leaf[leaf], LATER),
                     WEIR_RESOLVED);
}

static uint64_t units_in(struct stage *s, uint32_t slot)
{
    stage_lock(s->t);
    assert_true(weir_bucket_state_seize(s->t, slot));
    uint64_t units = weir_bucket_state_units(s->t, slot, LATER);
    weir_bucket_state_unseize(s->t, slot);
    weir_table_unlock(s->t);
    return units;
}

/* ---- The threads ---- */

static void take_as(struct stage *s, int leaf, uint64_t weight,
                    struct weir_reply *reply)
{
    unsigned outcome;
    for (;;) {
        uint32_t seen = weir_load(&s->t->released);
        outcome = weir_table_take(s->t, 0, s->leaf[leaf], weight, reply, LATER);
        if (!(outcome & WEIR_OUTCOME_CONTENDED))
            break;
        /* As a process sleeps: for good, if no release is noticed. */
        while (weir_load(&s->t->released) == seen)
            weir_pause();
    }
    if (outcome & WEIR_OUTCOME_STALE_REF)
        (void)weir_fetch_add(&s->stale, 1);
    else if (outcome & WEIR_OUTCOME_LIMITED)
        (void)weir_fetch_add(&s->refused, 1);
    else
        (void)weir_fetch_add(&s->passed[leaf], 1);
}

static void take_first(void *state)
{
    take_as(state, 0, 1, NULL);
}

static void take_second(void *state)
{
    take_as(state, 1, 1, NULL);
}

static void take_told(void *state)
{
    struct stage *s = state;
    take_as(s, 0, 1, &s->reply);
}

static void take_too_much(void *state)
{
    struct stage *s = state;
    take_as(s, 0, 100, &s->reply);
}

/* Another quantity: another rule, another state. */
static void edit(void *state)
{
    struct stage *s = state;
    struct weir_quota quota = window_of("q", NULL, 7);
    stage_put(s->t, &quota, LATER);
}

/* A bucket in the slot, without a state in the area. */
static void edit_away(void *state)
{
    struct stage *s = state;
    struct weir_quota quota = made_quota_of("q", NULL, 1, 7);
    quota.sharing = WEIR_LOCAL;
    stage_put(s->t, &quota, LATER);
}

static void reparent(void *state)
{
    struct stage *s = state;
    struct weir_quota quota = window_of("q", "other", 7);
    stage_put(s->t, &quota, LATER);
}

static void evict_for_stranger(void *state)
{
    struct stage *s = state;
    stage_evict(s->t, LATER);
}

/* As the client does when a store has refused. */
static void begin_and_undo(void *state)
{
    struct stage *s = state;
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 };
    unsigned outcome = weir_table_begin(s->t, 0, s->leaf[0], &ask,
                                        &s->charge_record, NULL, LATER);
    if (!(outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_LIMITED)))
        weir_table_undo(s->t, &s->charge_record, LATER);
}

/* ---- Invariants ---- */

static const char *check_leaves(struct stage *s)
{
    for (int i = 0; i < LEAVES; i++) {
        EXPLORE_MUST(units_in(s, s->leaf[i].slot) == s->passed[i]);
        EXPLORE_MUST(weir_table_count(s->t, s->leaf[i].slot) == s->passed[i]);
    }
    made_audit(s->t);
    return NULL;
}

/* The second leaf is the first: one quota with one unit, wanted by two. */
static const char *check_one(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(s->passed[0] + s->passed[1] == 1);
    EXPLORE_MUST(s->refused == 1);
    EXPLORE_MUST(units_in(s, s->leaf[0].slot) == 1);
    made_audit(s->t);
    return NULL;
}

/* Of 5 units the other thread took one, before or after. */
static const char *check_told(void *state)
{
    struct stage *s = state;
    const struct weir_reply *reply = &s->reply;
    EXPLORE_MUST(reply->verdict == WEIR_PASSED && !reply->contended);
    EXPLORE_MUST(reply->fill == 1 || reply->fill == 2);
    EXPLORE_MUST((uint64_t)reply->fill + reply->remaining == 5);
    EXPLORE_MUST(strcmp(reply->quota, "q") == 0);
    return NULL;
}

static const char *check_told_never(void *state)
{
    struct stage *s = state;
    const struct weir_reply *reply = &s->reply;
    EXPLORE_MUST(reply->verdict == WEIR_LIMITED && !reply->contended);
    EXPLORE_MUST(reply->fill == 0 || reply->fill == 1);
    EXPLORE_MUST(reply->never && reply->retry_after == WEIR_NEVER);
    return NULL;
}

/* Two leaves below one unit: the refused one gets its own unit back. */
static const char *check_undone(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(s->passed[0] + s->passed[1] == 1);
    return check_leaves(s);
}

static const char *check_edited(void *state)
{
    struct stage *s = state;
    uint32_t passed = s->passed[0] + s->passed[1];
    EXPLORE_MUST(passed == 2);
    EXPLORE_MUST(units_in(s, s->leaf[0].slot) == passed);
    EXPLORE_MUST(weir_table_count(s->t, s->leaf[0].slot) == passed);
    made_audit(s->t);
    return NULL;
}

/* Between state and bucket a take may be counted in both, never in none. */
static const char *check_edited_away(void *state)
{
    struct stage *s = state;
    struct weir_slot_view view;
    weir_table_view(s->t, s->leaf[0].slot, &view, LATER);
    uint32_t passed = s->passed[0] + s->passed[1];
    EXPLORE_MUST(passed == 2);
    EXPLORE_MUST(view.count == passed);
    EXPLORE_MUST(view.fill >> view.bucket.leak.frac >= passed);
    made_audit(s->t);
    return NULL;
}

static const char *check_moved(void *state)
{
    struct stage *s = state;
    struct weir_ref from, to;
    EXPLORE_MUST(weir_table_find(s->t, WEIR_TEXT("parent"), &from));
    EXPLORE_MUST(weir_table_find(s->t, WEIR_TEXT("other"), &to));
    EXPLORE_MUST(s->passed[0] == 1);
    EXPLORE_MUST(units_in(s, from.slot) + units_in(s, to.slot) == 1);
    EXPLORE_MUST(weir_table_count(s->t, from.slot) +
                     weir_table_count(s->t, to.slot) ==
                 1);
    EXPLORE_MUST(units_in(s, s->leaf[0].slot) == 1);
    made_audit(s->t);
    return NULL;
}

/* Only the name that was asked for was charged, whichever name has the slot
 * now. */
static const char *check_life(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(s->passed[0] + s->stale == 1);
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++) {
        char name[WEIR_NAME_MAX + 1];
        if (weir_table_name(s->t, slot, name) == 0)
            continue;
        bool asked = strcmp(name, "i_1") == 0;
        EXPLORE_MUST(units_in(s, slot) == (asked ? s->passed[0] : 0));
    }
    made_audit(s->t);
    return NULL;
}

/* The same, but what is given back while the slot is being looked at may stay
 * charged to that name. */
static const char *check_given_back(void *state)
{
    struct stage *s = state;
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++) {
        char name[WEIR_NAME_MAX + 1];
        if (weir_table_name(s->t, slot, name) == 0)
            continue;
        bool asked = strcmp(name, "i_1") == 0;
        EXPLORE_MUST(units_in(s, slot) <= (asked ? 1 : 0));
    }
    made_audit(s->t);
    return NULL;
}

/* The first thread was killed somewhere, perhaps with the second, which waits
 * for the lock. As in a child of fork(), the rest goes on. */
static const char *check_survived(void *state)
{
    struct stage *s = state;
    weir_table_break_lock(s->t);
    made_audit(s->t);
    EXPLORE_MUST(units_in(s, s->leaf[0].slot) <= 2);
    take_first(s);
    edit(s);
    take_first(s);
    EXPLORE_MUST(s->refused == 0);
    EXPLORE_MUST(units_in(s, s->leaf[0].slot) >= 2);
    made_audit(s->t);
    return NULL;
}

/* ---- Running them ---- */

static struct explore_program program_of(const char *name, uint32_t processes)
{
    struct weir_table_options options = { .slots = SLOTS,
                                          .stripes = processes,
                                          .processes = processes,
                                          .seed = 3,
                                          .bucket_state_bytes = 2048 };
    struct explore_program program = { .name = name,
                                       .fibers = 2,
                                       .preemptions = EXPLORE_ALL };
    struct weir_table *t;
    struct stage *s =
        made_stage(sizeof(*s), &options, &t, &program.state_bytes);
    s->t = t;
    program.state = s;
    program.run[0] = take_first;
    program.run[1] = take_second;
    return program;
}

static struct explore_program on_one(const char *name, uint64_t quantity)
{
    struct explore_program program = program_of(name, 1);
    struct stage *s = program.state;
    put(s, "q", NULL, quantity);
    aim(s, 0, "q");
    aim(s, 1, "q");
    stage_settle(s->t);
    return program;
}

static void test_one_unit_is_taken_once(void **state)
{
    (void)state;
    struct explore_program program = on_one("one", 1);
    program.check = check_one;
    explore_sound(&program);
}

/* Another thread may have the state's lock right after the verdict. */
static void test_a_reply_is_the_verdict_s(void **state)
{
    (void)state;
    struct explore_program program = on_one("told", 5);
    program.run[0] = take_told;
    program.check = check_told;
    explore_sound(&program);
    program = on_one("told-never", 5);
    program.run[0] = take_too_much;
    program.check = check_told_never;
    explore_sound(&program);
}

static void test_what_the_parent_refused_is_given_back(void **state)
{
    (void)state;
    struct explore_program program = program_of("undo", 1);
    struct stage *s = program.state;
    put(s, "parent", NULL, 1);
    put(s, "q", "parent", 5);
    put(s, "r", "parent", 5);
    aim(s, 0, "q");
    aim(s, 1, "r");
    stage_settle(s->t);
    program.check = check_undone;
    explore_sound(&program);
}

static void test_takes_beside_edits(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*edit)(void *state);
        const char *(*check)(void *state);
    } edits[] = { { "edit", edit, check_edited },
                  { "edit-away", edit_away, check_edited_away } };
    for (int i = 0; i < 2; i++) {
        struct explore_program program = on_one(edits[i].name, 5);
        program.fibers = 3;
        program.run[2] = edits[i].edit;
        program.check = edits[i].check;
        program.preemptions = 2;
        explore_sound(&program);
    }
}

static void test_a_take_beside_another_parent(void **state)
{
    (void)state;
    struct explore_program program = program_of("reparent", 1);
    struct stage *s = program.state;
    put(s, "parent", NULL, 5);
    put(s, "other", NULL, 5);
    put(s, "q", "parent", 7);
    aim(s, 0, "q");
    stage_settle(s->t);
    program.run[1] = reparent;
    program.check = check_moved;
    explore_sound(&program);
}

static void test_a_stranger_is_never_charged(void **state)
{
    (void)state;
    struct explore_program program = program_of("evict", 1);
    struct stage *s = program.state;
    put(s, "i_*", NULL, 5);
    aim(s, 0, "i_1");
    stage_settle(s->t);
    program.run[1] = evict_for_stranger;
    program.preemptions = explore_bound(3);
    program.check = check_life;
    explore_sound(&program);
}

static void test_a_charge_record_beside_an_eviction(void **state)
{
    (void)state;
    struct explore_program program = program_of("receipt", 1);
    struct stage *s = program.state;
    put(s, "i_*", NULL, 5);
    aim(s, 0, "i_1");
    stage_settle(s->t);
    program.run[0] = begin_and_undo;
    program.run[1] = evict_for_stranger;
    program.preemptions = explore_bound(3);
    program.check = check_given_back;
    explore_sound(&program);
}

static void run_killed(const char *name, void (*killed)(void *state))
{
    struct explore_program program = on_one(name, 7);
    program.run[0] = killed;
    program.check = check_survived;
    program.preemptions = 1;
    explore_killed(&program, 2);
}

static void test_killed_threads_leave_a_sound_table(void **state)
{
    (void)state;
    run_killed("killed-take", take_first);
    run_killed("killed-edit", edit);
    run_killed("killed-edit-away", edit_away);
}

/* ---- A reaper that is killed, or stopped, halfway ---- */

/* Processes of a shared table: the dead writer, its reaper, another one. */
#define PROCESSES 4
enum { WRITER = 1, REAPER, NEXT_REAPER };

/* The writer makes the quota's state another one, and is killed before it
 * changes the slot's flags. */
static void edit_half(struct stage *s, enum weir_sharing sharing)
{
    struct weir_quota quota = window_of("q", NULL, 7);
    struct bucket_state_plan plan;
    uint32_t slot = s->leaf[0].slot;
    quota.sharing = sharing;
    assert_true(weir_table_try_lock_as(s->t, WRITER, 0));
    assert_int_equal(weir_bucket_state_plan(s->t, slot, &quota, &plan), 0);
    assert_true(weir_bucket_state_seize(s->t, slot));
    weir_bucket_state_follow(s->t, slot, &plan, false, LATER);
}

static void reap(void *state)
{
    struct stage *s = state;
    weir_table_reap_locks(s->t, WRITER, REAPER);
}

/* A store decides after the edit; before it, or after its repair, the state. */
static const char *check_reaped(void *state)
{
    struct stage *s = state;
    weir_table_reap_locks(s->t, WRITER, NEXT_REAPER);
    weir_table_reap_locks(s->t, REAPER, NEXT_REAPER);
    made_audit(s->t);
    EXPLORE_MUST(s->refused == 0 && s->stale == 0);
    take_first(s);
    EXPLORE_MUST(s->refused == 0 && s->stale == 0);
    return NULL;
}

static void run_reaped(const char *name, enum weir_sharing before,
                       enum weir_sharing after)
{
    struct explore_program program = program_of(name, PROCESSES);
    struct stage *s = program.state;
    struct weir_quota quota = window_of("q", NULL, 5);
    quota.sharing = before;
    assert_int_equal(weir_table_put(s->t, &quota, MADE_AT), WEIR_OK);
    aim(s, 0, "q");
    stage_settle(s->t);
    edit_half(s, after);
    program.run[0] = reap;
    program.run[1] = take_first;
    program.check = check_reaped;
    program.preemptions = 1;
    explore_killed(&program, 2);
}

static void test_a_take_beside_a_stopped_reaper(void **state)
{
    (void)state;
    run_reaped("reaped-local-exact", WEIR_LOCAL, WEIR_EXACT);
    run_reaped("reaped-exact-local", WEIR_EXACT, WEIR_LOCAL);
    run_reaped("reaped-local-local", WEIR_LOCAL, WEIR_LOCAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EXPLORED(test_one_unit_is_taken_once),
        EXPLORED(test_a_reply_is_the_verdict_s),
        EXPLORED(test_what_the_parent_refused_is_given_back),
        EXPLORED(test_takes_beside_edits),
        EXPLORED(test_a_take_beside_another_parent),
        EXPLORED(test_a_stranger_is_never_charged),
        EXPLORED(test_a_charge_record_beside_an_eviction),
        EXPLORED(test_killed_threads_leave_a_sound_table),
        EXPLORED(test_a_take_beside_a_stopped_reaper),
    };
    if (!explore_begin())
        return EXPLORE_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
