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
 * find the lock taken don't: if they refused at once, they would use up its
 * turn by refusals. So a call yields also for an overdue lock, and a lock of
 * this process's own table is never overdue. Beside a process that is stopped
 * the yields are in vain: two for each decision.
 *
 * A limiter whose lock_wait is 0 (WEIR_NO_LOCK_WAIT) decides after the first
 * try.
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

static bool yield_once_more(const struct weir *weir,
                            struct weir_lock_wait *wait)
{
    if (wait->yields >= YIELDS)
        return false;
    wait->yields++;
    sched_yield();
    wait->seen = weir_load_acquire(released_word(weir)); /* as above */
    return true;
}

bool weir_call_wait(const struct weir *weir, struct weir_call *call,
                    bool overdue)
{
    if (weir->lock_wait == 0)
        return false;
    if (!overdue && call->wait.until == 0)
        weir_lock_wait_begin(weir, &call->wait, weir->lock_wait);
    if (!(overdue ? yield_once_more(weir, &call->wait)
                  : weir_lock_wait(weir, &call->wait)))
        return false;
    if (!call->given)
        call->now = weir_clock_now();
    return true;
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
    weir_locks_heed(weir);
    return resolved;
}
