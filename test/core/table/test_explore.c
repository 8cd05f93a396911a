/* SPDX-License-Identifier: MIT
 * test_explore.c - the table's takes, sync and edits under every schedule.
 *
 * Each test is a program of a few threads on one table (explore.h). After each
 * of its schedules the promises of table.h are checked:
 *
 *   - conserved: the count and the fill grew by the weights that passed, and
 *     the refusals by those refused;
 *   - bounded: n threads pass 'high' by at most n - 1 weights, for a take
 *     reads, then adds, and each other thread has at most one on its way;
 *   - fair: a take that was refused was refused by a full bucket;
 *   - seen: each pass is marked, or the sync has read it.
 *
 * Then bugs are put in, one at a time, and each must be found.
 *
 * Programs that are explored completely say so in their figures; WEIR_DEEP
 * (explore.h) explores more of them completely, and with more preemptions. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WEIR_EXPLORE
#include "table_sources.h"

#include "explore_case.h"
#include "table_calls.h"
#include "table_stage.h"

#define SLOTS 6
#define THREADS 4
#define LATER (MADE_AT + 10 * WEIR_SECOND)

/* ---- The stage ---- */

struct thread {
    uint32_t asked, passed, refused, stale, kicks;
};

/* All memory that a program writes; the table's block follows. */
struct stage {
    _Alignas(WEIR_CACHE_LINE) struct weir_table *t;
    const char *name; /* quota that the threads take from, and its ref */
    struct weir_ref ref;
    uint64_t before;  /* the count at the start */
    uint64_t told;    /* fill in units that a root sends ... */
    uint64_t told_at; /* ... for this count */
    uint64_t seen;    /* count that the sync read, once marked */
    struct thread threads[THREADS];
};

static void put(struct stage *s, const char *name, const char *parent,
                uint64_t high, weir_instant now)
{
    struct weir_quota quota = made_quota_of(name, parent, 1000, high);
    assert_int_equal(weir_table_put(s->t, &quota, now), WEIR_OK);
}

static void aim(struct stage *s, const char *name)
{
    assert_int_equal(
        weir_table_resolve(s->t, weir_text_of(name), false, &s->ref, LATER),
        WEIR_RESOLVED);
    s->name = name;
    s->before = weir_table_count(s->t, s->ref.slot);
}

static void use(struct stage *s)
{
    weir_table_take(s->t, 0, s->ref, 1, NULL, LATER);
    s->before++;
}

/* ---- The threads ---- */

static void take(struct stage *s, unsigned thread)
{
    struct thread *self = &s->threads[thread];
    /* All on the shared stripe, where they meet. */
    unsigned outcome = weir_table_take(s->t, 0, s->ref, 1, NULL, LATER);
    self->asked++;
    self->kicks += !!(outcome & WEIR_OUTCOME_KICK);
    if (outcome & WEIR_OUTCOME_STALE_REF)
        self->stale++;
    else if (outcome & WEIR_OUTCOME_LIMITED)
        self->refused++;
    else
        self->passed++;
}

static void take_a(void *s)
{
    take(s, 0);
}

static void take_b(void *s)
{
    take(s, 1);
}

static void take_c(void *s)
{
    take(s, 2);
}

static void takes_a(void *s)
{
    take_a(s);
    take_a(s);
}

static void takes_b(void *s)
{
    take_b(s);
    take_b(s);
}

static void refund(void *state)
{
    struct stage *s = state;
    weir_table_refund(s->t, 0, s->ref, 1, LATER);
}

/* As the tally does: reads the counts ... */
static void collect(void *state)
{
    struct stage *s = state;
    uint64_t bits = 0;
    weir_table_collect(s->t, &bits);
    if (bits >> s->ref.slot & 1)
        s->seen = weir_table_count(s->t, s->ref.slot);
}

/* ... and receives a fill from a root. */
static void hear(void *state)
{
    struct stage *s = state;
    uint32_t slot = s->ref.slot;
    struct weir_slot_view view;
    weir_table_view(s->t, slot, &view, LATER);
    s->told_at = view.count;
    weir_table_set_fill(s->t, slot, (int64_t)(s->told << view.bucket.leak.frac),
                        s->told_at, LATER);
}

static void collect_and_set_slack(void *state)
{
    struct stage *s = state;
    collect(s);
    weir_table_set_slack(s->t, s->ref.slot, s->before + 2,
                         s->before + WEIR_COUNT_FAR);
}

/* Another scale, so that a mixture of both would show. */
static void edit(void *state)
{
    struct stage *s = state;
    struct weir_quota quota =
        made_quota_of("q", NULL, 50000000000ull, 1ull << 45);
    stage_put(s->t, &quota, LATER);
}

static void hear_and_edit(void *s)
{
    hear(s);
    edit(s);
}

static void edit_and_hear(void *s)
{
    edit(s);
    hear(s);
}

/* A second edit uses the spare copy that the first one left. */
static void edit_two(void *state)
{
    struct stage *s = state;
    edit(s);
    struct weir_quota quota = made_quota_of("other", NULL, 7, 7);
    stage_put(s->t, &quota, LATER);
}

/* Names of every kind that are made and removed again: an instance and its
 * parent, a quota and its parent, a template and its overflow. */
static void make_instance(void *state)
{
    struct stage *s = state;
    struct weir_ref ref;
    weir_table_resolve(s->t, WEIR_TEXT("i_1"), false, &ref, LATER);
}

static void make_quota_twice(void *state)
{
    struct stage *s = state;
    struct weir_quota quota = made_quota_of("new", "above", 1000, 50);
    stage_put(s->t, &quota, LATER);
    stage_drop(s->t, quota.name, LATER);
    stage_put(s->t, &quota, LATER);
}

static void make_template(void *state)
{
    struct stage *s = state;
    struct weir_quota quota = made_quota_of("new_*", NULL, 1000, 50);
    quota.overflow = WEIR_TEXT("rest");
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
    struct weir_quota quota = made_quota_of("stranger", NULL, 7, 7);
    stage_put(s->t, &quota, LATER);
}

/* A take of the live set that is judged in the shadow set as well. */
static void take_both(void *state)
{
    struct stage *s = state;
    struct thread *self = &s->threads[0];
    struct weir_algorithm_ask act = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 };
    unsigned outcome = weir_table_take(s->t, 0, s->ref, 1, NULL, LATER);
    self->asked++;
    self->stale += !!(outcome & WEIR_OUTCOME_STALE_REF);
    self->passed += !(outcome & WEIR_OUTCOME_STALE_REF);
    if (outcome & WEIR_OUTCOME_SHADOW)
        weir_table_shadow(s->t, 0, s->ref, &act, false, LATER);
}

/* The shadow slot is freed, and another name of the shadow set gets it. */
static void drop_shadow_slot_for_stranger(void *state)
{
    struct stage *s = state;
    stage_drop(s->t, WEIR_TEXT("shadow:q"), LATER);
    struct weir_quota quota = made_quota_of("shadow:z", NULL, 1000, 50);
    stage_put(s->t, &quota, LATER);
}

/* The live slot is given to another name, which then learns of a shadow
 * slot. */
static void evict_and_learn(void *state)
{
    struct stage *s = state;
    struct weir_algorithm_ask nothing = { .op = WEIR_ALGORITHM_TAKE };
    struct weir_ref next = stage_evict(s->t, LATER);
    weir_table_shadow(s->t, 0, next, &nothing, false, LATER);
}

static void reparent(void *state)
{
    struct stage *s = state;
    struct weir_quota quota = made_quota_of("q", "other", 1000, 50);
    stage_put(s->t, &quota, LATER);
}

/* ---- Invariants ---- */

static struct thread all_of(const struct stage *s)
{
    struct thread sum = { 0 };
    for (unsigned i = 0; i < THREADS; i++) {
        sum.asked += s->threads[i].asked;
        sum.passed += s->threads[i].passed;
        sum.refused += s->threads[i].refused;
        sum.stale += s->threads[i].stale;
        sum.kicks += s->threads[i].kicks;
    }
    return sum;
}

static int64_t units_in(struct stage *s, uint32_t slot)
{
    struct weir_slot_view view;
    weir_table_view(s->t, slot, &view, LATER);
    return view.fill >> view.bucket.leak.frac;
}

static const char *check_seen(struct stage *s)
{
    collect(s);
    EXPLORE_MUST(s->seen == weir_table_count(s->t, s->ref.slot) ||
                 s->before == weir_table_count(s->t, s->ref.slot));
    return NULL;
}

static const char *check_counts(struct stage *s)
{
    struct thread all = all_of(s);
    uint64_t count = weir_table_count(s->t, s->ref.slot);
    EXPLORE_MUST(all.asked == all.passed + all.refused + all.stale);
    EXPLORE_MUST(count - s->before == all.passed);
    EXPLORE_MUST(weir_table_refused(s->t, s->ref.slot) == all.refused);
    return check_seen(s);
}

/* How many units fit, how many threads ask for one; and the most that passed in
 * any schedule. */
static struct {
    uint32_t room, threads, most;
} bound;

static const char *check_takes(void *state)
{
    struct stage *s = state;
    struct thread all = all_of(s);
    if (bound.most < all.passed)
        bound.most = all.passed;
    EXPLORE_MUST(units_in(s, s->ref.slot) == all.passed);
    EXPLORE_MUST(all.passed <= bound.room + bound.threads - 1);
    EXPLORE_MUST(all.refused == 0 || all.passed >= bound.room);
    return check_counts(s);
}

/* A root sent a fill, an edit came: the bucket has that fill and all counts
 * since. */
static const char *check_told(void *state)
{
    struct stage *s = state;
    uint64_t count = weir_table_count(s->t, s->ref.slot);
    EXPLORE_MUST(all_of(s).refused == 0);
    EXPLORE_MUST((uint64_t)units_in(s, s->ref.slot) ==
                 s->told + count - s->told_at);
    made_audit(s->t);
    return check_counts(s);
}

/* One unit was in the bucket, and was given back. */
static const char *check_refund(void *state)
{
    struct stage *s = state;
    uint64_t count = weir_table_count(s->t, s->ref.slot);
    struct thread all = all_of(s);
    EXPLORE_MUST(count - s->before == all.passed - (uint64_t)1);
    EXPLORE_MUST(units_in(s, s->ref.slot) == all.passed);
    EXPLORE_MUST(all.passed <= bound.room + bound.threads - 1);
    return check_seen(s);
}

/* Two threads crossed report_at together: one of them must wake the sync. */
static const char *check_kick(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(all_of(s).passed == 2);
    EXPLORE_MUST(all_of(s).kicks == 1);
    EXPLORE_MUST(weir_table_is_urgent(s->t));
    return check_counts(s);
}

/* report_at was set while two threads crossed it. */
static const char *check_slack(void *state)
{
    struct stage *s = state;
    take_c(s);
    EXPLORE_MUST(all_of(s).passed == 3);
    EXPLORE_MUST(all_of(s).kicks == 1);
    EXPLORE_MUST(weir_table_is_urgent(s->t));
    return check_counts(s);
}

/* The ref's life may have ended, and the name may live on in another slot. In
 * any case no other name was charged. */
static const char *check_life(void *state)
{
    struct stage *s = state;
    struct thread all = all_of(s);
    bool lives = weir_hot(s->t, s->ref.slot)->generation == s->ref.generation;
    EXPLORE_MUST(all.refused == 0);
    EXPLORE_MUST(!lives || all.stale == 0);
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++) {
        char name[WEIR_NAME_MAX + 1];
        if (weir_table_name(s->t, slot, name) == 0)
            continue;
        bool asked = strcmp(name, s->name) == 0;
        EXPLORE_MUST(units_in(s, slot) == (asked ? all.passed : 0));
    }
    made_audit(s->t);
    return NULL;
}

/* The name that was asked for is charged, in the shadow set at most once, and
 * no other name is. */
static const char *check_shadow_slots(void *state)
{
    struct stage *s = state;
    struct thread all = all_of(s);
    EXPLORE_MUST(all.asked == all.passed + all.stale);
    for (uint32_t slot = 0; slot < weir_table_used(s->t); slot++) {
        char name[WEIR_NAME_MAX + 1];
        if (weir_table_name(s->t, slot, name) == 0)
            continue;
        int64_t units = units_in(s, slot);
        if (strcmp(name, s->name) == 0)
            EXPLORE_MUST(units == all.passed);
        else if (strcmp(weir_name_live(weir_text_of(name)).p, s->name) == 0)
            EXPLORE_MUST(units <= all.passed);
        else
            EXPLORE_MUST(units == 0);
    }
    made_audit(s->t);
    return NULL;
}

/* Each link was charged with the weights that passed, beside the first unit. */
static const char *check_chain(void *state)
{
    struct stage *s = state;
    struct thread all = all_of(s);
    uint32_t slot = s->ref.slot;
    for (; slot != WEIR_SLOT_NONE; slot = weir_parent(weir_hot(s->t, slot)))
        EXPLORE_MUST(units_in(s, slot) == 1 + all.passed);
    EXPLORE_MUST(all.passed <= bound.room + bound.threads - 1);
    EXPLORE_MUST(all.refused == 0 || all.passed >= bound.room);
    return check_counts(s);
}

/* The leaf moved from one parent to another: a take charged one of them, never
 * both, never none. */
static const char *check_moved(void *state)
{
    struct stage *s = state;
    struct weir_ref from, to;
    EXPLORE_MUST(weir_table_find(s->t, WEIR_TEXT("parent"), &from));
    EXPLORE_MUST(weir_table_find(s->t, WEIR_TEXT("other"), &to));
    EXPLORE_MUST(units_in(s, from.slot) + units_in(s, to.slot) ==
                 all_of(s).passed);
    made_audit(s->t);
    return check_counts(s);
}

/* The result of the killed fiber, and its names. */
static struct {
    void (*make)(void *state);
    const char *name[2];
} remade;

/* Fiber 0 was killed at some place. The others end; the next caller goes on. */
static const char *check_survived(void *state)
{
    struct stage *s = state;
    struct thread all = all_of(s);
    EXPLORE_MUST(explore_ended(1));
    weir_table_break_lock(s->t);
    uint64_t count = weir_table_count(s->t, s->ref.slot) - s->before;
    EXPLORE_MUST(all.refused == 0 && all.stale == 0);
    EXPLORE_MUST(count == all.passed || count == all.passed + 1);
    int64_t units = units_in(s, s->ref.slot);
    EXPLORE_MUST(units - (int64_t)s->before == (int64_t)count);
    hear(s);
    edit_two(s);
    EXPLORE_MUST(units_in(s, s->ref.slot) == (int64_t)s->told);
    made_audit(s->t);
    return NULL;
}

/* Fiber 0 was killed while it made names. They can be made as if no thread had
 * tried, and no slot is lost. */
static const char *check_remade(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(explore_ended(1));
    weir_table_break_lock(s->t);
    made_audit(s->t);
    remade.make(s);
    struct weir_ref ref;
    for (int i = 0; i < 2; i++)
        EXPLORE_MUST(weir_table_find(s->t, weir_text_of(remade.name[i]), &ref));
    made_audit(s->t);
    return check_counts(s);
}

/* ---- Running them ---- */

static void describe(void *state, const void *p, char *buf, size_t bytes)
{
    static const char *const fields[] = { "count",      "base", "part", "high",
                                          "stop",       "up",   "band", "early",
                                          "generation", "meta" };
    struct stage *s = state;
    size_t at = (size_t)((const char *)p - (const char *)s->t);
    size_t in = (at - sizeof(*s->t)) % sizeof(struct hot);
    size_t field = in < 48 ? in / 8 : 6 + (in - 48) / 4;
    if (at >= sizeof(*s->t) && at < s->t->cold_at)
        snprintf(buf, bytes, "hot[%zu].%s",
                 (at - sizeof(*s->t)) / sizeof(struct hot), fields[field]);
    else
        snprintf(buf, bytes, "table+%zu", at);
}

static struct explore_program program_of(const char *name)
{
    struct weir_table_options options = {
        .slots = SLOTS, .stripes = 1, .seed = 3, .bucket_state_bytes = AREA_UNIT
    };
    struct explore_program program = { .name = name,
                                       .preemptions = EXPLORE_ALL,
                                       .describe = describe };
    struct weir_table *t;
    struct stage *s =
        made_stage(sizeof(*s), &options, &t, &program.state_bytes);
    /* Two buckets: each second name splits one. */
    t->index_shape = (uint64_t)1 << 32 | 2;
    s->t = t;
    program.state = s;
    return program;
}

static void run_planted(struct explore_program *program,
                        enum explore_plant_kind kind, const void *word)
{
    program->plant = (struct explore_plant){ .kind = kind, .word = word };
    explore_planted(program);
}

/* A bucket for 'room' units, idle: the first take lifts it. */
static struct explore_program on_one_quota(const char *name, uint32_t room,
                                           uint32_t threads)
{
    struct explore_program program = program_of(name);
    struct stage *s = program.state;
    put(s, "q", NULL, room, MADE_AT);
    aim(s, "q");
    stage_settle(s->t);
    program.fibers = threads;
    program.check = check_takes;
    bound.room = room;
    bound.threads = threads;
    bound.most = 0;
    return program;
}

/* The same with one unit in it: takes need neither lift nor mark, and so fewer
 * steps. */
static struct explore_program on_one_in_use(const char *name, uint32_t room,
                                            uint32_t threads)
{
    struct explore_program program = on_one_quota(name, room, threads);
    use(program.state);
    return program;
}

/* ---- Takes ---- */

static void test_two_take_twice(void **state)
{
    (void)state;
    struct explore_program program = on_one_quota("two-twice", 3, 2);
    program.run[0] = takes_a;
    program.run[1] = takes_b;
    if (explore_sound(&program))
        assert_int_equal(bound.most, 4);
}

static void test_three_take_once(void **state)
{
    (void)state;
    struct explore_program program = on_one_quota("three-once", 1, 3);
    program.run[0] = take_a;
    program.run[1] = take_b;
    program.run[2] = take_c;
    if (explore_sound(&program))
        assert_int_equal(bound.most, 3);
}

static void test_two_take_and_one_gives_back(void **state)
{
    (void)state;
    struct explore_program program = on_one_in_use("refund", 2, 3);
    program.run[0] = take_a;
    program.run[1] = take_b;
    program.run[2] = refund;
    program.check = check_refund;
    explore_sound(&program);
}

static void test_one_of_two_kicks(void **state)
{
    (void)state;
    struct explore_program program = on_one_quota("kick", 50, 3);
    struct stage *s = program.state;
    weir_table_set_slack(s->t, s->ref.slot, s->before + 2,
                         s->before + WEIR_COUNT_FAR);
    program.run[0] = take_a;
    program.run[1] = take_b;
    program.run[2] = collect;
    program.check = check_kick;
    explore_sound(&program);
    /* If report_at is set only now, the take that crosses it finds it, or the
     * next take does. */
    program = on_one_in_use("slack", 50, 3);
    program.run[0] = take_a;
    program.run[1] = take_b;
    program.run[2] = collect_and_set_slack;
    program.check = check_slack;
    program.preemptions = explore_all_or(4);
    explore_sound(&program);
}

static void test_two_take_of_a_chain(void **state)
{
    (void)state;
    struct explore_program program = program_of("chain");
    struct stage *s = program.state;
    put(s, "site", NULL, 2, MADE_AT);
    put(s, "parent", "site", 50, MADE_AT);
    put(s, "q", "parent", 50, MADE_AT);
    aim(s, "q");
    stage_settle(s->t);
    use(s);
    bound.room = 1;
    bound.threads = program.fibers = 2;
    program.run[0] = take_a;
    program.run[1] = take_b;
    program.check = check_chain;
    explore_sound(&program);
}

/* ---- Takes beside the sync ---- */

/* The sync is one thread: it receives, then edits, or the other way round. */
static void test_takes_beside_the_sync(void **state)
{
    (void)state;
    struct explore_program program = on_one_in_use("hear-and-edit", 50, 3);
    ((struct stage *)program.state)->told = 1;
    program.run[0] = take_a;
    program.run[1] = take_b;
    program.run[2] = hear_and_edit;
    program.check = check_told;
    explore_sound(&program);
    program = on_one_in_use("edit-and-hear", 50, 3);
    ((struct stage *)program.state)->told = 1;
    program.run[0] = take_a;
    program.run[1] = take_b;
    program.run[2] = edit_and_hear;
    program.check = check_told;
    program.preemptions = explore_all_or(3);
    explore_sound(&program);
}

/* More than the table promises: receive and edit at once. The root then sends
 * an empty bucket, which means the same before and after the edit. */
static void test_takes_beside_sync_and_edit(void **state)
{
    (void)state;
    struct explore_program program = on_one_in_use("hear-or-edit", 50, 4);
    program.run[0] = take_a;
    program.run[1] = take_b;
    program.run[2] = hear;
    program.run[3] = edit;
    program.check = check_told;
    program.preemptions = explore_bound(2);
    explore_sound(&program);
}

/* ---- Takes beside lives that end ---- */

static struct explore_program on_an_instance(const char *name)
{
    struct explore_program program = program_of(name);
    struct stage *s = program.state;
    put(s, "i_*", NULL, 50, MADE_AT);
    aim(s, "i_1");
    stage_settle(s->t);
    program.fibers = 2;
    program.run[0] = take_a;
    program.run[1] = evict_for_stranger;
    program.check = check_life;
    return program;
}

static void test_a_handle_never_charges_a_stranger(void **state)
{
    (void)state;
    struct explore_program program = on_an_instance("evict");
    explore_sound(&program);
    program = on_an_instance("evict-two");
    program.fibers = 3;
    program.run[2] = take_b;
    program.preemptions = explore_all_or(2);
    explore_sound(&program);
}

static void test_a_take_beside_a_drop(void **state)
{
    (void)state;
    struct explore_program program = on_one_in_use("drop", 50, 2);
    program.run[0] = take_a;
    program.run[1] = drop_for_stranger;
    program.check = check_life;
    explore_sound(&program);
}

/* 'known': the slot already remembers its shadow slot. */
static void run_shadow_slots(const char *name, const char *live,
                             const char *aimed, const char *shadow_slot,
                             void (*beside)(void *), bool known)
{
    struct explore_program program = program_of(name);
    struct stage *s = program.state;
    put(s, live, NULL, 50, MADE_AT);
    put(s, shadow_slot, NULL, 50, MADE_AT);
    put(s, "shadow:i_2", NULL, 50, MADE_AT);
    aim(s, aimed);
    struct weir_algorithm_ask nothing = { .op = WEIR_ALGORITHM_TAKE };
    if (known)
        weir_table_shadow(s->t, 0, s->ref, &nothing, false, MADE_AT);
    stage_settle(s->t);
    program.fibers = 2;
    program.run[0] = take_both;
    program.run[1] = beside;
    program.check = check_shadow_slots;
    program.preemptions = explore_bound(2);
    explore_sound(&program);
}

static void test_a_shadow_slot_is_never_a_strangers(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        run_shadow_slots(known ? "twin-drop-known" : "twin-drop", "q", "q",
                         "shadow:q", drop_shadow_slot_for_stranger, known);
        run_shadow_slots(known ? "twin-evict-known" : "twin-evict", "i_*",
                         "i_1", "shadow:i_1", evict_and_learn, known);
    }
}

static void test_a_take_beside_another_parent(void **state)
{
    (void)state;
    struct explore_program program = program_of("reparent");
    struct stage *s = program.state;
    put(s, "parent", NULL, 50, MADE_AT);
    put(s, "other", NULL, 50, MADE_AT);
    put(s, "q", "parent", 50, MADE_AT);
    aim(s, "q");
    stage_settle(s->t);
    program.fibers = 2;
    program.run[0] = take_a;
    program.run[1] = reparent;
    program.check = check_moved;
    explore_sound(&program);
}

/* ---- A name is found while its bucket is split ---- */

/* Names that the split from 3 to 4 buckets moves, found by trying. */
static struct {
    char name[2][8];
    bool found[2];
} moving;

static void choose_moving(const struct weir_table *t)
{
    const uint64_t before = (uint64_t)3 << 32 | 3;
    const uint64_t after = (uint64_t)3 << 32 | 4;
    uint32_t count = 0;
    for (uint32_t i = 0; count < 2; i++) {
        char name[8];
        snprintf(name, sizeof(name), "m%u", i % 100);
        uint32_t tag =
            weir_name_index_tag(weir_table_hash(t, weir_text_of(name)));
        if (weir_name_index_first(before, tag) != 1 ||
            weir_name_index_first(after, tag) != 3 ||
            weir_name_index_second(after, tag) == 1)
            continue;
        snprintf(moving.name[count], sizeof(moving.name[count]), "%s", name);
        count++;
    }
}

static void find_moving(void *state)
{
    struct stage *s = state;
    struct weir_ref ref;
    for (int i = 0; i < 2; i++)
        moving.found[i] =
            weir_table_find(s->t, weir_text_of(moving.name[i]), &ref);
}

static void put_last(void *state)
{
    struct stage *s = state;
    struct weir_quota quota = made_quota_of("last", NULL, 1000, 50);
    weir_table_put(s->t, &quota, LATER);
}

static const char *check_found(void *state)
{
    struct stage *s = state;
    EXPLORE_MUST(moving.found[0] && moving.found[1]);
    EXPLORE_MUST(weir_name_index_count(s->t) == 4);
    made_audit(s->t);
    return NULL;
}

static struct explore_program on_a_split(const char *name)
{
    struct explore_program program = program_of(name);
    struct stage *s = program.state;
    choose_moving(s->t);
    put(s, "q", NULL, 50, MADE_AT);
    put(s, moving.name[0], NULL, 50, MADE_AT);
    put(s, moving.name[1], NULL, 50, MADE_AT);
    aim(s, "q");
    stage_settle(s->t);
    assert_int_equal(weir_name_index_count(s->t), 3);
    program.fibers = 2;
    program.run[0] = put_last;
    program.run[1] = find_moving;
    program.check = check_found;
    return program;
}

static void test_a_name_is_found_while_its_bucket_is_split(void **state)
{
    (void)state;
    struct explore_program program = on_a_split("split");
    explore_sound(&program);
}

/* A lookup that does not read the shape again. */
static void test_a_shape_read_once_is_found(void **state)
{
    (void)state;
    struct explore_program program = on_a_split("split-once");
    struct stage *s = program.state;
    run_planted(&program, EXPLORE_BLIND, &s->t->index_shape);
}

/* ---- Threads that are killed ---- */

static void test_killed_threads_leave_others_alone(void **state)
{
    (void)state;
    struct explore_program program = on_one_quota("killed-take", 50, 2);
    program.run[0] = take_a;
    program.run[1] = takes_b;
    program.check = check_survived;
    explore_killed(&program, 2);
    program = on_one_in_use("killed-edit", 50, 2);
    program.run[0] = edit_two;
    program.run[1] = take_b;
    program.check = check_survived;
    explore_killed(&program, 2);
}

/* Beside a take of an untouched quota; 'idle' instances fill the table, so that
 * one is evicted for each name. */
static void run_remade(const char *name, void (*make)(void *state),
                       const char *first, const char *second, uint32_t idle)
{
    struct explore_program program = on_one_in_use(name, 50, 2);
    struct stage *s = program.state;
    put(s, "i_*", "p", 50, MADE_AT);
    for (uint32_t i = 0; i < idle; i++) {
        char instance[] = { 'i', '_', (char)('a' + i), '\0' };
        struct weir_ref ref;
        weir_table_resolve(s->t, weir_text_of(instance), false, &ref, MADE_AT);
    }
    stage_settle(s->t);
    remade.make = make;
    remade.name[0] = first;
    remade.name[1] = second;
    program.run[0] = make;
    program.run[1] = take_b;
    program.check = check_remade;
    explore_killed(&program, 2);
}

static void test_a_name_is_made_after_its_maker_was_killed(void **state)
{
    (void)state;
    run_remade("killed-instance", make_instance, "i_1", "p", 0);
    run_remade("killed-quota", make_quota_twice, "new", "above", 0);
    run_remade("killed-template", make_template, "new_*", "rest", 0);
    /* q, i_*, p and three instances: the table is full. */
    run_remade("killed-evict", make_instance, "i_1", "p", 3);
    /* Four names: the next one splits a bucket. */
    run_remade("killed-split", make_quota_twice, "new", "above", 1);
}

/* ---- Bugs put in ---- */

/* The lift overwrites a fill that a root sent meanwhile. */
static void test_a_torn_lift_is_found(void **state)
{
    (void)state;
    struct explore_program program = on_one_quota("torn-lift", 50, 2);
    struct stage *s = program.state;
    s->told = 1;
    program.run[0] = take_a;
    program.run[1] = hear;
    program.check = check_told;
    run_planted(&program, EXPLORE_TORN, &weir_hot(s->t, s->ref.slot)->base);
}

static void test_a_torn_add_is_found(void **state)
{
    (void)state;
    struct explore_program program = on_one_quota("torn-add", 50, 2);
    struct stage *s = program.state;
    program.run[0] = take_a;
    program.run[1] = take_b;
    run_planted(&program, EXPLORE_TORN, &weir_hot(s->t, s->ref.slot)->count);
}

static void test_a_missing_generation_check_is_found(void **state)
{
    (void)state;
    struct explore_program program = on_an_instance("no-generation");
    struct stage *s = program.state;
    run_planted(&program, EXPLORE_BLIND,
                &weir_hot(s->t, s->ref.slot)->generation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EXPLORED(test_two_take_twice),
        EXPLORED(test_three_take_once),
        EXPLORED(test_two_take_and_one_gives_back),
        EXPLORED(test_one_of_two_kicks),
        EXPLORED(test_two_take_of_a_chain),
        EXPLORED(test_takes_beside_the_sync),
        EXPLORED(test_a_handle_never_charges_a_stranger),
        EXPLORED(test_a_take_beside_a_drop),
        EXPLORED(test_a_shadow_slot_is_never_a_strangers),
        EXPLORED(test_a_take_beside_another_parent),
        EXPLORED(test_killed_threads_leave_others_alone),
        EXPLORED(test_a_name_is_made_after_its_maker_was_killed),
        EXPLORED(test_a_torn_lift_is_found),
        EXPLORED(test_a_torn_add_is_found),
        EXPLORED(test_a_missing_generation_check_is_found),
        EXPLORED(test_a_name_is_found_while_its_bucket_is_split),
        EXPLORED(test_a_shape_read_once_is_found),
        EXPLORED(test_takes_beside_sync_and_edit),
    };
    if (!explore_begin())
        return EXPLORE_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
