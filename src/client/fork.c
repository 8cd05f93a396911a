/* SPDX-License-Identifier: MIT
 * client/fork.c - a child of fork() becomes a limiter of its own.
 *
 * A child inherits the memory and the descriptors, not the thread. It is
 * recognised by a page that the kernel wipes in children (MADV_WIPEONFORK):
 * no handler of pthread_atfork(), which could not be taken back when the
 * library is unloaded.
 *
 * Plain decisions go on in the child at once, on the copy of the table. Its
 * first call off the hot path makes it a limiter: another incarnation, what
 * was counted so far left to the parent to report, new locks (their former
 * holders are in another process), a new loop and thread. The parent's loop,
 * sockets and eventfds are left as they are: to close them properly would be
 * to speak to the kernel about the parent's epoll set. They cost the child a
 * few descriptors. */

#include "client/client.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "os/clock.h"

#define UNFORKED 0x57454952u

int weir_fork_watch(struct weir *weir)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *p = mmap(NULL, page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return WEIR_ESYSTEM;
    if (madvise(p, page, MADV_WIPEONFORK) != 0) {
        munmap(p, page);
        return WEIR_ESYSTEM;
    }
    weir->unforked = p;
    weir_store_release(weir->unforked, UNFORKED);
    return WEIR_OK;
}

void weir_fork_unwatch(struct weir *weir)
{
    munmap(weir->unforked, (size_t)sysconf(_SC_PAGESIZE));
}

static void tell_forked(struct weir *weir)
{
    struct weir_event event = { .type = WEIR_EVENT_FORKED,
                                .at = weir_clock_now(),
                                .count = 1 };
    weir_event_tell(weir, &event);
}

static void become_limiter(struct weir *weir)
{
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    weir_entropy(incarnation, sizeof(incarnation));
    weir_table_break_lock(weir->table);
    weir_limiter_reincarnate(weir->limiter, incarnation, weir_clock_now());
    pthread_mutex_init(&weir->mutex, NULL);
    weir->closing = false;
    weir->sync_wanted = weir->sync_begun = weir->sync_done = 0;
    weir->thread_runs = false;
    memset(&weir->status, 0, sizeof(weir->status));
    weir->out = NULL; /* the parent's thread may have been growing it */
    weir->out_size = 0;
    for (uint32_t i = 0; i < weir->link_count; i++)
        weir->link[i].link = NULL;
    /* Nothing is left to try when this fails: the child then goes on as if
     * no root could be reached. */
    if (weir_event_queue_init(&weir->events) == 0 &&
        weir_pump_start(weir) == 0)
        tell_forked(weir);
}

void weir_fork_check(struct weir *weir)
{
    if (WEIR_LIKELY(weir_load_acquire(weir->unforked) == UNFORKED))
        return;
    /* One thread does it; others go on deciding meanwhile. */
    uint32_t idle = 0;
    if (!weir_cas(&weir->forking, &idle, 1))
        return;
    if (weir_load_acquire(weir->unforked) != UNFORKED) {
        become_limiter(weir);
        weir_store_release(weir->unforked, UNFORKED);
    }
    weir_store_release(&weir->forking, 0);
}
