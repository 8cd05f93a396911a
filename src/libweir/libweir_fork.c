/* SPDX-License-Identifier: MIT
 * libweir/libweir_fork.c - a child of fork() becomes a limiter of its own.
 *
 * A child inherits the memory and the descriptors, not the thread. The child's
 * first call of any kind makes it a limiter: another incarnation, the counts so
 * far left to the parent to report, new locks (their former owners are in
 * another process), a new loop and thread. It is the first call and not only
 * the first one off the hot path, because a child that just took units by
 * inherited handles would otherwise spend grants that roots made to the parent,
 * and its units would never be reported. While one thread does it, others go on
 * deciding by the copy of the table.
 *
 * The parent's loop, sockets and eventfds are left as they are: to close them
 * properly would change the parent's epoll set in the kernel. They cost the
 * child a few descriptors. The parent's TLS sessions are left too: the child
 * makes its own, from the files as they are by then, and no byte of a session
 * leaves from two processes. And so are the stores of exact quotas; their
 * threads stayed with the parent.
 *
 * On a shared table the child becomes one more process (libweir_reporter.c):
 * the memory is the same, and so are the handles; stripes and permits stay the
 * parent's. If there is no place for one more it lets all pass.
 *
 * If the table has bucket states with locks, no thread decides before all of
 * this is done: so a lock that is found taken was the parent's. And no thread
 * enters or leaves before: the parent's permits are the parent's to give back,
 * and their units aren't in flight in this process. */

#include "libweir/libweir_internal.h"

#include <string.h>

#include "core/table/table_share.h"
#include "io/clock.h"

/* The parent's loop must not be freed here. */
static void forget_parent_loop(struct weir *weir)
{
    weir->roots.links = NULL;
    weir_login_forget(weir->login);
    weir->kick_event = weir->timer = NULL;
    weir->base = NULL;
    weir->kick_fd = -1;
    weir->thread_runs = false;
    weir->out = NULL; /* the parent's thread may have been growing it */
    weir->out_size = 0;
}

/* The copy of the table, and of the limiter over it. */
static void own_copied_table(struct weir *weir)
{
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    weir_entropy(incarnation, sizeof(incarnation));
    weir_table_forget_permits(weir->table);
    weir_table_break_lock(weir->table);
    weir_limiter_reincarnate(weir->limiter, weir_text_of(weir->name),
                             incarnation, weir_clock_now());
}

void weir_fork_become(struct weir *weir)
{
    weir_assert(!weir_own_is_set(weir));
    weir->forks++;
    weir_name_limiter(weir);
    if (!weir->block)
        own_copied_table(weir);
    weir_stripes_forked(weir);
    weir_locks_init(weir);
    weir_waiting_init(&weir->waiting);
    weir_exact_book_forked(&weir->exact);
    weir->closing = false;
    weir->sync_wanted = weir->sync_begun = weir->sync_done = 0;
    memset(&weir->status, 0, sizeof(weir->status));
    forget_parent_loop(weir);
    weir_kept_forked(weir);
    weir->tell_forked = true;
    /* If any of this fails there is nothing left to try: the child then goes on
     * as if no root could be reached. */
    if (weir_event_queue_init(&weir->events) < 0)
        return;
    if (weir->block)
        weir_reporter_forked(weir);
    else
        (void)!weir_pump_start(weir);
}
