/* SPDX-License-Identifier: MIT
 * libweir/libweir_own.c - whether the limiter is this process's own.
 *
 * A child of fork() is recognised by a page that the kernel wipes in children
 * (MADV_WIPEONFORK): no handler of pthread_atfork(), which could not be taken
 * back when the library is unloaded. All calls ask here, so this file calls
 * libweir_fork.c, which uses all parts of a limiter, by a pointer. */

#include "libweir/libweir_internal.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/atomic.h"

int weir_own_init(struct weir *weir, weir_become_fn *become)
{
    weir_assert(weir->id > 1 && become);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *p = mmap(NULL, page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return WEIR_ESYSTEM;
    if (madvise(p, page, MADV_WIPEONFORK) != 0) {
        munmap(p, page);
        return WEIR_ESYSTEM;
    }
    weir->own = p;
    weir->become = become;
    weir_store_release(&weir->own->id, weir->id);
    return WEIR_OK;
}

void weir_own_fini(struct weir *weir)
{
    weir_assert(weir->own);
    munmap(weir->own, (size_t)sysconf(_SC_PAGESIZE));
}

bool weir_own_is_set(const struct weir *weir)
{
    /* acquire: a thread that finds it made sees all that was written for it. */
    return WEIR_LIKELY(weir_load_acquire(&weir->own->id) != 0);
}

void weir_own_try(struct weir *weir)
{
    uint32_t idle = 0;
    if (weir_own_is_set(weir) || !weir_cas(&weir->own->forking, &idle, 1))
        return;
    if (!weir_own_is_set(weir)) {
        weir->become(weir);
        weir_assert(weir->id > 1);
        weir_store_release(&weir->own->id, weir->id);
    }
    weir_store_release(&weir->own->forking, 0);
}

void weir_own_ensure(struct weir *weir)
{
    while (!weir_own_is_set(weir)) {
        weir_own_try(weir);
        /* The other thread allocates and starts a thread: not for long. */
        if (!weir_own_is_set(weir))
            sched_yield();
    }
}
