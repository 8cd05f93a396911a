/* SPDX-License-Identifier: MIT
 * test_table_share.c - a table shared by real processes, which are killed at
 * random instructions.
 *
 * The table lies in memory that children of fork() share. Each child has a
 * number and does, until it is killed, a caller's or the sync's work; the test
 * then reaps it by its number. When all are dead and reaped, the table must be
 * as if they had never been there, except for their counts: audited to the last
 * chunk, with no pins. WEIR_KILLS is the number of kills (48). */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "compare.h"
#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_inflight_internal.h"
#include "core/table/table_slots_internal.h"
#include "patience.h"
#include "table_maker.h"

#define PROCESSES 6
#define DIGGER (PROCESSES - 1) /* the test itself */
#define SLOTS 256
#define KILLS 48
#define ROUND 8 /* kills between two audits */

/* Shared by children and test, beside the table. */
struct common {
    uint64_t turns;  /* loops of all children */
    uint64_t passed; /* units of "metered" and "plain" */
};
static struct common *common;
static struct weir_table *table;
static struct weir_rng rng;

/* Time advances with the work done: a name that isn't used for a while is
 * empty. */
static weir_instant now(void)
{
    return MADE_AT + weir_load(&common->turns) * WEIR_MILLISECOND;
}

static void *shared_memory(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    return p;
}

static struct weir_quota quota_named(const char *name, const char *parent)
{
    return made_quota_of(name, parent, 1000000, 1000000);
}

static void put(const char *name, const char *parent)
{
    struct weir_quota quota = quota_named(name, parent);
    made_put(table, &quota, now());
}

static void put_metered(const char *name, const char *parent)
{
    struct weir_quota quota = quota_named(name, parent);
    quota.algorithm = WEIR_SLIDING_WINDOW;
    quota.sharing = WEIR_LOCAL;
    made_put(table, &quota, now());
}

static void put_gauge(const char *name, uint64_t limit)
{
    struct weir_quota quota = made_quota_of(name, "", limit, limit);
    quota.kind = WEIR_CONCURRENCY;
    quota.sharing = WEIR_LOCAL;
    made_put(table, &quota, now());
}

static void put_all(void)
{
    put("all", "");
    put("plain", "all");
    put_metered("metered", "all");
    put_gauge("gauge", 100);
    put("names that need a chunk each/*/*", "all");
    put_metered("m/*", "all");
    put("s/*", "all");
}

static int begin(void **state)
{
    (void)state;
    struct weir_table_options options = { .slots = SLOTS,
                                          .stripes = PROCESSES + 16,
                                          .processes = PROCESSES,
                                          .seed = 1 };
    rng = made_seed("test_table_share");
    common = shared_memory(sizeof(*common));
    table = weir_table_init(shared_memory(weir_table_size(&options)), &options,
                            MADE_AT);
    put_all();
    return 0;
}

/* ---- Children ---- */

struct child {
    pid_t pid;
    uint32_t number;
};

static struct child child_of(uint32_t number,
                             void (*act)(uint32_t, struct weir_rng *))
{
    struct child child = { .number = number };
    struct weir_rng own = { weir_rng_next(&rng) };
    child.pid = fork();
    assert_compare(child.pid, >=, 0);
    if (child.pid != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test fail */
    for (;;) {
        act(number, &own);
        weir_fetch_add(&common->turns, 1);
    }
}

/* Some turns of any child, then some more instructions: the kill hits the child
 * anywhere. */
static void let_run(struct weir_rng *from)
{
    uint64_t until = weir_load(&common->turns) + weir_rng_below(from, 300);
    while (STILL(weir_load(&common->turns) < until))
        sched_yield();
    for (uint64_t i = weir_rng_below(from, 2000); i > 0; i--)
        weir_pause();
}

static void kill_child(struct child child)
{
    int status;
    kill(child.pid, SIGKILL);
    status = STATUS_OF(child.pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void reap(uint32_t number)
{
    while (STILL(!weir_table_reap(table, number, DIGGER)))
        weir_table_reap_locks(table, number, DIGGER);
}

/* ---- The children's work ---- */

static void take_some(uint32_t stripe, const char *name)
{
    struct weir_ref ref;
    if (!weir_table_find(table, weir_text_of(name), &ref))
        return;
    unsigned outcome = weir_table_take(table, stripe, ref, 1, NULL, now());
    if (!(outcome & (WEIR_OUTCOME_LIMITED | WEIR_OUTCOME_STALE_REF)))
        weir_fetch_add(&common->passed, 1);
}

static void use_name(uint32_t number, uint32_t stripe, struct weir_rng *from)
{
    char name[128];
    struct weir_ref ref;
    uint64_t which = weir_rng_below(from, 3 * SLOTS);
    if (which % 4 == 0)
        snprintf(name, sizeof(name), "names that need a chunk each/x/%u",
                 (unsigned)which % 128);
    else
        snprintf(name, sizeof(name), which % 4 == 1 ? "m/%u" : "s/%u",
                 (unsigned)which);
    if (weir_table_resolve_as(table, number, weir_text_of(name), false, &ref,
                              now()) == WEIR_RESOLVED)
        weir_table_take(table, stripe, ref, 1, NULL, now());
}

static void hold_name(uint32_t number, struct weir_rng *from)
{
    char name[32];
    struct weir_ref ref;
    snprintf(name, sizeof(name), "held/%u", (unsigned)weir_rng_below(from, 32));
    if (weir_table_pin_as(table, number, weir_text_of(name), &ref, now()) ==
            WEIR_RESOLVED &&
        weir_rng_below(from, 2) == 0)
        weir_table_unpin_as(table, number, ref);
}

static void enter(uint32_t stripe, struct weir_rng *from)
{
    static struct weir_permit_record in_flight;
    struct weir_ref ref;
    if (in_flight.links > 0 && weir_rng_below(from, 2) == 0)
        weir_table_leave(table, &in_flight);
    if (in_flight.links == 0 &&
        weir_table_find(table, WEIR_TEXT("gauge"), &ref))
        weir_table_enter(table, stripe, ref, 1 + weir_rng_below(from, 3),
                         &in_flight, NULL, now());
}

/* A caller's thread, usually with a stripe of its own. */
static void call(uint32_t number, struct weir_rng *from)
{
    uint32_t stripe = weir_table_claim_stripe_as(table, number);
    for (int i = 0; i < 8; i++) {
        take_some(stripe, weir_rng_below(from, 2) ? "plain" : "metered");
        use_name(number, stripe, from);
        hold_name(number, from);
        enter(stripe, from);
    }
    weir_table_release_stripe(table, stripe);
}

/* As if roots had answered all counts. */
static void settle(void)
{
    uint64_t bits[SLOTS / 64];
    weir_table_collect(table, bits);
    for (uint32_t slot = 0; slot < weir_table_used(table); slot++)
        weir_table_set_settled(table, slot, weir_table_count(table, slot));
}

/* The sync: quotas come, change and go. */
static void edit(uint32_t number, struct weir_rng *from)
{
    char name[64], parent[64];
    (void)number;
    snprintf(name, sizeof(name),
             weir_rng_below(from, 3) ? "edited/%u" : "t%u/*",
             (unsigned)weir_rng_below(from, 8));
    snprintf(parent, sizeof(parent),
             weir_rng_below(from, 2) ? "all"
                                     : "a parent whose name is rather long/%u",
             (unsigned)weir_rng_below(from, 4));
    struct weir_quota quota = quota_named(name, parent);
    quota.sharing = weir_rng_below(from, 2) ? WEIR_LOCAL : WEIR_COUNTED;
    if (weir_rng_below(from, 2) && quota.sharing == WEIR_LOCAL)
        quota.algorithm = WEIR_FIXED_WINDOW;
    quota.order = (uint32_t)weir_rng_below(from, 3);
    if (weir_rng_below(from, 3) == 0)
        weir_table_drop(table, quota.name, now());
    else
        (void)!weir_table_put(table, &quota, now());
    settle();
    weir_table_sweep(table, 64, now());
}

/* ---- At rest ---- */

/* No process is left: only children and templates' overflows refer to slots. */
static void held_by_nobody(void)
{
    for (uint32_t i = 0; i < table->pin_used; i++)
        assert_int_equal(weir_pin(table, i)->count, 0);
    for (uint32_t i = table->commons; i < table->stripe_count; i++)
        assert_int_equal(weir_stripe(table, i)->owned, 0);
    uint32_t *refs = calloc(SLOTS, sizeof(*refs));
    assert_non_null(refs);
    for (uint32_t slot = 0; slot < table->used; slot++) {
        uint32_t parent = weir_parent(weir_hot(table, slot));
        if (weir_cold(table, slot)->state != WEIR_SLOT_FREE &&
            parent != WEIR_SLOT_NONE)
            refs[parent]++;
        assert_int_equal(weir_table_in_flight(table, slot), 0);
        for (uint32_t p = 0; p < PROCESSES; p++)
            assert_int_equal(*weir_in_flight_of(table, p, slot), 0);
    }
    for (uint32_t slot = 0; slot < table->used; slot++) {
        if (weir_cold(table, slot)->state != WEIR_SLOT_FREE)
            assert_int_equal(weir_cold(table, slot)->refs, refs[slot]);
    }
    free(refs);
}

static uint64_t count_of(const char *name)
{
    struct weir_ref ref;
    assert_true(weir_table_find(table, weir_text_of(name), &ref));
    return weir_table_count(table, ref.slot);
}

/* ---- Stories ---- */

static void take_once(uint32_t number, struct weir_rng *from)
{
    (void)from;
    take_some(number, "plain");
    _exit(0);
}

static void two_processes_decide_on_one_table(void **state)
{
    (void)state;
    uint64_t before = count_of("plain");
    for (uint32_t number = 1; number < 3; number++) {
        struct child child = child_of(number, take_once);
        assert_int_equal(STATUS_OF(child.pid), 0);
    }
    assert_int_equal(count_of("plain"), before + 2);
}

static void pin_and_wait(uint32_t number, struct weir_rng *from)
{
    struct weir_ref ref;
    (void)from;
    weir_table_pin_as(table, number, WEIR_TEXT("kept"), &ref, now());
    weir_table_pin_as(table, number, WEIR_TEXT("kept"), &ref, now());
    weir_fetch_add(&common->turns, 1);
    pause();
}

static void what_a_dead_one_held_is_given_back_once(void **state)
{
    (void)state;
    struct weir_ref own, ref;
    assert_int_equal(
        weir_table_pin_as(table, DIGGER, WEIR_TEXT("kept"), &own, now()),
        WEIR_RESOLVED);
    uint64_t turns = weir_load(&common->turns);
    struct child child = child_of(1, pin_and_wait);
    while (STILL(weir_load(&common->turns) == turns))
        sched_yield();
    assert_int_equal(weir_cold(table, own.slot)->refs, 3);
    kill_child(child);
    reap(1);
    reap(1);
    assert_int_equal(weir_cold(table, own.slot)->refs, 1);
    /* No other process can give back its pin. */
    weir_table_unpin_as(table, 2, own);
    assert_int_equal(weir_cold(table, own.slot)->refs, 1);
    weir_table_inherit_pins(table, DIGGER, 3);
    assert_int_equal(weir_cold(table, own.slot)->refs, 2);
    weir_table_unpin_as(table, DIGGER, own);
    assert_true(weir_table_find(table, WEIR_TEXT("kept"), &ref));
    weir_table_unpin_as(table, 3, own);
    assert_false(weir_table_find(table, WEIR_TEXT("kept"), &ref));
    held_by_nobody();
}

/* The sync is notified: it gives back the slot's grant. */
static void what_a_dead_one_held_was_unpinned(void **state)
{
    (void)state;
    struct weir_table_options options = { .slots = 8,
                                          .stripes = 4,
                                          .processes = 3 };
    struct weir_table *own = weir_table_init(
        shared_memory(weir_table_size(&options)), &options, MADE_AT);
    struct weir_quota quota = made_quota_of("leased", "", 10, 10);
    quota.sharing = WEIR_LEASED;
    struct weir_ref ref = made_put(own, &quota, MADE_AT);
    for (uint32_t number = 1; number < 3; number++)
        assert_int_equal(
            weir_table_pin_as(own, number, quota.name, &ref, MADE_AT),
            WEIR_RESOLVED);
    assert_true(weir_table_reap(own, 1, 0));
    assert_false(weir_table_was_unpinned(own, ref.slot));
    assert_true(weir_table_reap(own, 2, 0));
    assert_true(weir_table_was_unpinned(own, ref.slot));
    made_audit(own);
    munmap(own, weir_table_size(&options));
}

/* The list of names that a process has pinned has a bound. */
static void what_is_held_has_a_bound(void **state)
{
    (void)state;
    enum { NAMES = 1000, SHARERS = 8 };
    struct weir_table_options options = { .slots = NAMES,
                                          .stripes = SHARERS,
                                          .processes = SHARERS };
    struct weir_table *own = weir_table_init(
        shared_memory(weir_table_size(&options)), &options, MADE_AT);
    uint32_t in_flight = 0;
    struct weir_ref ref = { .slot = 0 };
    enum weir_resolved resolved = WEIR_RESOLVED;
    char name[16];
    while (resolved == WEIR_RESOLVED) {
        snprintf(name, sizeof(name), "n%u", in_flight / SHARERS);
        resolved = weir_table_pin_as(own, in_flight % SHARERS,
                                     weir_text_of(name), &ref, MADE_AT);
        in_flight += resolved == WEIR_RESOLVED;
    }
    assert_int_equal(resolved, WEIR_RESOLVED_FULL);
    assert_int_equal(in_flight, WEIR_TABLE_PINS(NAMES));
    /* Another pin by a process that has one already needs no more room. */
    assert_int_equal(weir_table_pin_as(own, 0, WEIR_TEXT("n0"), &ref, MADE_AT),
                     WEIR_RESOLVED);
    weir_table_unpin_as(own, 0, ref);
    weir_table_unpin_as(own, 0, ref);
    assert_int_equal(weir_table_pin_as(own, in_flight % SHARERS,
                                       weir_text_of(name), &ref, MADE_AT),
                     WEIR_RESOLVED);
    made_audit(own);
    munmap(own, weir_table_size(&options));
}

static void lock_and_wait(uint32_t number, struct weir_rng *from)
{
    (void)from;
    assert_true(weir_table_try_lock_as(table, number, 0));
    weir_fetch_add(&common->turns, 1);
    pause();
}

static void only_the_dead_ones_lock_is_broken(void **state)
{
    (void)state;
    uint64_t turns = weir_load(&common->turns);
    struct child child = child_of(2, lock_and_wait);
    while (STILL(weir_load(&common->turns) == turns))
        sched_yield();
    /* The death of another process leaves this one's locks alone. */
    weir_table_reap_locks(table, 1, DIGGER);
    assert_int_equal(weir_load(&table->writer), 3);
    assert_false(weir_table_reap(table, 1, DIGGER));
    kill_child(child);
    reap(2);
    assert_int_equal(weir_load(&table->writer), 0);
    reap(1);
    made_audit(table);
}

/* A request that found the slot in its last life has the lock of its state when
 * a writer, which makes the slot anew, is killed. */
static void a_slot_that_was_being_made_is_free(void **state)
{
    (void)state;
    struct weir_table_options options = { .slots = 8,
                                          .stripes = 4,
                                          .processes = 4 };
    struct weir_table *own = weir_table_init(
        shared_memory(weir_table_size(&options)), &options, MADE_AT);
    struct weir_quota quota = made_quota_of("t/*", "", 10, 10);
    struct weir_ref ref;
    quota.algorithm = WEIR_SLIDING_WINDOW;
    quota.sharing = WEIR_LOCAL;
    made_put(own, &quota, MADE_AT);
    assert_true(weir_table_try_lock_as(own, 1, 0));
    uint32_t slot = weir_slot_take(own, WEIR_TEXT("t/1"));
    assert_int_not_equal(slot, WEIR_SLOT_NONE);
    assert_true(weir_bucket_state_lock(own, slot, 2, 0));
    weir_table_reap_locks(own, 1, 3);
    assert_false(weir_table_find(own, WEIR_TEXT("t/1"), &ref));
    assert_int_equal(weir_cold(own, slot)->state, WEIR_SLOT_FREE);
    (void)weir_bucket_state_unlock(own, slot);
    made_audit(own);
    assert_int_equal(
        weir_table_resolve_as(own, 3, WEIR_TEXT("t/1"), false, &ref, MADE_AT),
        WEIR_RESOLVED);
    made_audit(own);
    munmap(own, weir_table_size(&options));
}

/* The same, but the writer had given the slot its state. */
static void a_state_of_a_slot_that_was_being_made_is_free(void **state)
{
    (void)state;
    struct weir_table_options options = { .slots = 8,
                                          .stripes = 4,
                                          .processes = 4 };
    struct weir_table *own = weir_table_init(
        shared_memory(weir_table_size(&options)), &options, MADE_AT);
    struct weir_quota quota = made_quota_of("q", "", 10, 10);
    struct bucket_state_plan plan;
    quota.algorithm = WEIR_SLIDING_WINDOW;
    quota.sharing = WEIR_LOCAL;
    assert_true(weir_table_try_lock_as(own, 1, 0));
    uint32_t slot = weir_slot_take(own, WEIR_TEXT("q"));
    assert_int_equal(weir_bucket_state_plan(own, slot, &quota, &plan), 0);
    assert_true(weir_bucket_state_seize(own, slot));
    weir_bucket_state_follow(own, slot, &plan, true, MADE_AT);
    weir_table_reap_locks(own, 1, 3);
    assert_int_equal(weir_cold(own, slot)->state, WEIR_SLOT_FREE);
    made_audit(own);
    munmap(own, weir_table_size(&options));
}

/* Numbers from 1 on are callers, 0 is the sync. */
static struct child start(uint32_t number)
{
    return child_of(number, number == 0 ? edit : call);
}

static void any_may_be_killed_at_any_instant(void **state)
{
    (void)state;
    const char *said = getenv("WEIR_KILLS");
    int kills = said ? atoi(said) : KILLS;
    int locked = 0, metered = 0;
    struct child child[DIGGER];
    for (int done = 0; done < kills; done += ROUND) {
        for (uint32_t i = 0; i < DIGGER; i++)
            child[i] = start(i);
        for (int k = 0; k < ROUND; k++) {
            uint32_t i = (uint32_t)weir_rng_below(&rng, DIGGER);
            let_run(&rng);
            kill_child(child[i]);
            locked += (weir_load(&table->writer) & LOCK_OWNER) == i + 1;
            reap(i);
            child[i] = start(i);
        }
        for (uint32_t i = 0; i < DIGGER; i++) {
            kill_child(child[i]);
            locked += (weir_load(&table->writer) & LOCK_OWNER) == i + 1;
            for (uint32_t slot = 0; slot < table->used; slot++)
                metered += i == DIGGER - 1 &&
                           weir_bucket_state(table, slot)->lock != 0;
            reap(i);
        }
        made_audit(table);
        held_by_nobody();
        settle();
        weir_table_sweep(table, SLOTS, now());
        put_all();
        made_audit(table);
    }
    printf("%d killed in turn, %d of all with the writer lock, %d of the last "
           "with a meter's\n",
           kills, locked, metered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes_decide_on_one_table),
        cmocka_unit_test(what_a_dead_one_held_is_given_back_once),
        cmocka_unit_test(what_a_dead_one_held_was_unpinned),
        cmocka_unit_test(what_is_held_has_a_bound),
        cmocka_unit_test(only_the_dead_ones_lock_is_broken),
        cmocka_unit_test(a_slot_that_was_being_made_is_free),
        cmocka_unit_test(a_state_of_a_slot_that_was_being_made_is_free),
        cmocka_unit_test(any_may_be_killed_at_any_instant),
    };
    return cmocka_run_group_tests_name("table_share", tests, begin, NULL);
}
