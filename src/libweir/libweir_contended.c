/* SPDX-License-Identifier: MIT
 * libweir/libweir_contended.c - waiting for a lock of the table.
 *
 * The table never waits (table_lock.c). A call that finds a lock taken says so,
 * and is made again here: at once, after a yield, and then whenever a lock was
 * released, by a futex that all processes of a shared table use. This ends at
 * the deadline: the limiter's lock_wait for a decision. The decision is then
 * made without the lock, as the limiter's 'when_locked' says.
 *
 *     spin (in the table) --> yield --> sleep, wake, try again … --> decide
 *
 * A holder that has only lost its processor runs as soon as the threads that
 * find the lock taken don't. If they refused at once, they would use up its
 * turn by refusals: most of their requests, in a loop. So a lock of this
 * process's own table is never overdue, and for an overdue one a call yields.
 * Beside a holder that is stopped the yields are in vain, and on a busy machine
 * each costs a turn of all other threads. So after a call that yielded in vain
 * the next one doesn't yield, then three don't, up to VAIN_MAX, until a yield
 * has helped.
 *
 * A limiter whose lock_wait is 0 (WEIR_NO_LOCK_WAIT) takes each lock for an
 * overdue one.
 *
 * A thread with a real-time priority has to sleep: to its yields, a thread of a
 * lower priority that holds the lock never runs.
 *
 * The process that releases a lock may die before it wakes the sleepers, so
 * they sleep for SLEEP_MOST at most. */

#include <sched.h>

#include "core/base/atomic.h"
#include "core/table/table_share.h"
#include "io/clock.h"
#include "io/process.h"
#include "libweir/libweir_decide.h"

#define YIELDS 2
#define VAIN_MAX 127
#define SLEEP_MOST WEIR_MILLISECOND

static uint32_t *released_word(const struct weir *weir)
{
    return (uint32_t *)(uintptr_t)weir_table_released(weir->table);
}

void weir_locks_wake(struct weir *weir)
{
    weir_futex_wake(released_word(weir));
}

void weir_locks_heed(struct weir *weir)
{
    if (weir_table_wake(weir->table))
        weir_locks_wake(weir);
}

void weir_lock_wait_begin(const struct weir *weir, struct weir_lock_wait *wait,
                          weir_duration most)
{
    *wait = (struct weir_lock_wait){
        .until = weir_after(weir_clock_now(), most),
        .seen = weir_load_acquire(released_word(weir)),
    };
}

bool weir_lock_wait(const struct weir *weir, struct weir_lock_wait *wait)
{
    weir_instant now = weir_clock_now();
    if (now >= wait->until)
        return false;
    weir_duration left = wait->until - now;
    if (wait->yields++ < YIELDS)
        sched_yield();
    else
        weir_futex_wait(released_word(weir), wait->seen,
                        left < SLEEP_MOST ? left : SLEEP_MOST);
    /* Before the next try: a release after it moves the word. */
    wait->seen = weir_load_acquire(released_word(weir));
    return true;
}

/* The holder may be stopped. So many calls don't yield: yields_skip; its value
 * after the last yield in vain: yields_vain, 0 after one that helped. Relaxed:
 * threads may lose each other's counts. */
static bool yield_to_holder(struct weir *weir, struct weir_call *call)
{
    uint32_t skip = weir_load_relaxed(&weir->yields_skip);
    if (call->yields == 0 && skip > 0) {
        weir_store_relaxed(&weir->yields_skip, skip - 1);
        return false;
    }
    if (call->yields == YIELDS) {
        uint32_t vain = weir_load_relaxed(&weir->yields_vain);
        vain = vain < VAIN_MAX ? 2 * vain + 1 : VAIN_MAX;
        weir_store_relaxed(&weir->yields_vain, vain);
        weir_store_relaxed(&weir->yields_skip, vain);
        return false;
    }
    call->yields++;
    sched_yield();
    call->wait.seen = weir_load_acquire(released_word(weir)); /* as above */
    return true;
}

bool weir_call_wait(struct weir *weir, struct weir_call *call, bool overdue)
{
    bool yields = overdue || weir->lock_wait == 0;
    if (!yields && call->wait.until == 0)
        weir_lock_wait_begin(weir, &call->wait, weir->lock_wait);
    if (!(yields ? yield_to_holder(weir, call)
                 : weir_lock_wait(weir, &call->wait)))
        return false;
    if (!call->given)
        call->now = weir_clock_now();
    return true;
}

void weir_call_got_lock(struct weir *weir, const struct weir_call *call)
{
    if (call->yields > 0)
        weir_store_relaxed(&weir->yields_vain, 0);
}

enum weir_verdict weir_decide_nameless(struct weir *weir,
                                       struct weir_reply *reply)
{
    bool passes = weir->when_locked == WEIR_LOCKED_PASSES;
    uint32_t stripe = weir_stripe_mine(weir);
    weir_table_count_contended(weir->table, stripe);
    if (reply)
        *reply = (struct weir_reply){
            .verdict = passes ? WEIR_PASSED : WEIR_LIMITED,
            .contended = true,
            .remaining = passes ? UINT64_MAX : 0,
            .retry_after = passes ? 0
                                  : weir_table_jitter(weir->table, stripe,
                                                      WEIR_LOCKED_RETRY),
        };
    return passes ? WEIR_PASSED : WEIR_LIMITED;
}

enum weir_resolved weir_resolve_patiently(struct weir *weir,
                                          struct weir_text name,
                                          struct weir_ref *out,
                                          struct weir_call *call)
{
    enum weir_resolved resolved;
    bool first = !weir_call_has_waited(call);
    do {
        resolved = weir_table_resolve_given(weir->table, weir->process, name,
                                            false, out, call->now);
    } while (resolved == WEIR_RESOLVED_CONTENDED &&
             weir_call_wait(weir, call, weir_table_is_overdue(weir->table)));
    if (resolved == WEIR_RESOLVED_CONTENDED &&
        weir_call_is_overdue(weir, call, first))
        weir_table_set_overdue(weir->table);
    if (resolved != WEIR_RESOLVED_CONTENDED)
        weir_call_got_lock(weir, call);
    weir_locks_heed(weir);
    return resolved;
}
