/* SPDX-License-Identifier: MIT
 * libweir/libweir_grow.c - the memory of a limiter's table as it grows
 * (docs/design/growing-tables.md), and how many slots a budget is.
 *
 * A private table is address space that can't be touched; a growth makes parts
 * of it accessible. The kernel gives a page at its first use.
 *
 * A shared table is a sparse file that every process maps at its full size. A
 * growth allocates parts of the file. A page that a file system could not
 * provide at its first use would kill the process that touches it (SIGBUS);
 * allocated parts can't.
 *
 * The limiter's records of each root grow with a private table, in the same
 * way. Those of a shared table are all committed when it is opened: another
 * process may grow the table at any time, and a reporter that can't commit
 * records for its slots would have to leave their counts unreported.
 *
 * The budget bounds the memory of slots in this process: in the table, and in
 * these records. It is address space at first, and a process may be short of
 * that as well (ulimit -v): then half of the budget is tried, and so on. */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/atomic.h"
#include "core/table/table_grow.h"
#include "io/clock.h"
#include "libweir/libweir_decide.h"

#define HUGE_PAGE ((uint64_t)2 << 20)
/* From so many slots on, memory is committed by huge pages: a cold decision
 * costs three misses, and with huge pages only of the cache and not also of the
 * TLB. A small table would waste them. */
#define HUGE_SLOTS 16384

/* ---- Commits ---- */

static uint64_t rounded_up(uint64_t at, uint64_t unit)
{
    return (at + unit - 1) & ~(unit - 1);
}

/* Parts of this process's own memory: a block of 'size' bytes. */
static int commit_pages(void *memory, size_t size,
                        const struct weir_table_range *ranges, uint32_t count,
                        bool huge)
{
    uint64_t unit = huge ? HUGE_PAGE : (uint64_t)sysconf(_SC_PAGESIZE);
    uintptr_t block = (uintptr_t)memory;
    uintptr_t end = block + size;
    for (uint32_t i = 0; i < count; i++) {
        uintptr_t from = (block + ranges[i].at) & ~(unit - 1);
        uintptr_t to = rounded_up(block + ranges[i].at + ranges[i].bytes, unit);
        from = from < block ? block : from;
        to = to > end ? end : to;
        if (mprotect((void *)from, to - from, PROT_READ | PROT_WRITE) < 0)
            return -errno;
        if (huge) /* a refusal is no harm */
            (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
    }
    return 0;
}

static int commit_table(const struct weir *weir,
                        const struct weir_table_range *ranges, uint32_t count,
                        uint32_t slots)
{
    return commit_pages(weir->table_block, weir->table_size, ranges, count,
                        slots >= HUGE_SLOTS);
}

struct weir_limiter_options weir_records_shape(const struct weir *weir)
{
    return (struct weir_limiter_options){
        .slots = weir->slots,
        .links = weir->link_count,
        .asks = WEIR_ASKS_MAX,
        .leases = weir->leases_max,
        .limits = weir->gate_slots < WEIR_LIMITS_MAX ? weir->gate_slots
                                                     : WEIR_LIMITS_MAX,
    };
}

/* By small pages: most records are of names that are used rarely. */
int weir_grow_records(const struct weir *weir, uint32_t from, uint32_t to)
{
    struct weir_table_range ranges[WEIR_LIMITER_RANGES_MAX];
    struct weir_limiter_options shape = weir_records_shape(weir);
    uint32_t count = weir_limiter_ranges(&shape, from, to, ranges);
    return commit_pages(weir->limiter_block, weir->limiter_size, ranges, count,
                        false);
}

static int commit_private(const struct weir *weir, uint32_t from,
                          const struct weir_table_range *ranges, uint32_t count,
                          uint32_t slots)
{
    int error = commit_table(weir, ranges, count, slots);
    return error < 0 ? error : weir_grow_records(weir, from, slots);
}

/* The kernel clears pages of a file when they are allocated, and other threads
 * that allocate parts of it wait meanwhile: a step of a shared table is small.
 * 'beside': also while another caller grows. */
static bool grow_once(struct weir *weir, bool beside)
{
    uint32_t most =
        weir->block ? WEIR_TABLE_GROWTH_STEP : WEIR_TABLE_GROWTH_MAX;
    struct weir_table_range ranges[WEIR_TABLE_RANGES_MAX];
    uint32_t slots;
    uint32_t from = weir_table_committed(weir->table);
    uint32_t count = weir_table_growth(weir->table, most, ranges, &slots);
    if (count == 0)
        return false;
    if (!weir_table_begin_growth(weir->table, weir_clock_now()) && !beside)
        return false;
    int error = weir->block
                    ? weir_block_allocate(weir->table_fd, weir->block->table_at,
                                          ranges, count)
                    : commit_private(weir, from, ranges, count, slots);
    if (error < 0) {
        weir_table_stop_growing(weir->table);
        return false;
    }
    weir_table_grown(weir->table, slots);
    return true;
}

static bool grow_or_see(struct weir *weir, uint32_t had, bool beside)
{
    return (weir_table_is_short(weir->table) && grow_once(weir, beside)) ||
           weir_table_committed(weir->table) > had;
}

bool weir_grow(struct weir *weir, uint32_t had)
{
    return grow_or_see(weir, had, true);
}

/* The kernel locks a file while it allocates parts of it, and the thread that
 * has that lock may lose its processor: a decision allocates none beside
 * another caller. */
bool weir_grow_or_wait(struct weir *weir, uint32_t had, struct weir_call *call)
{
    if (!weir->block)
        return weir_grow(weir, had);
    while (!grow_or_see(weir, had, false)) {
        if (!weir_table_is_growing(weir->table, weir_clock_now()) ||
            !weir_call_wait(weir, call, false))
            return weir_table_committed(weir->table) > had;
    }
    return true;
}

void weir_grow_ahead(struct weir *weir, weir_instant now)
{
    if (weir_table_wants_growth(weir->table)) {
        while (weir_table_wants_growth(weir->table) && grow_once(weir, false))
            continue;
        return;
    }
    if (!weir_table_growth_failed(weir->table)) {
        weir->grow_at = 0;
        return;
    }
    if (weir->grow_at == 0)
        weir->grow_at = now + WEIR_GROW_AGAIN;
    if (now < weir->grow_at)
        return;
    weir->grow_at = 0;
    weir_table_resume_growing(weir->table);
}

/* ---- A private table ---- */

void *weir_pages_map(size_t size, int protection)
{
    void *p = mmap(NULL, size, protection,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void weir_pages_clear(void *pages, size_t size)
{
    /* Refused for pages that the process has locked in memory. */
    if (madvise(pages, size, MADV_DONTNEED) < 0)
        memset(pages, 0, size);
}

int weir_grow_reserve(struct weir *weir, const struct weir_table_options *table)
{
    struct weir_table_range ranges[WEIR_TABLE_RANGES_MAX];
    /* By huge pages, so that no array's end is short of one. */
    weir->table_size = rounded_up(weir_table_size(table), HUGE_PAGE);
    weir->table_block = weir_pages_map(weir->table_size, PROT_NONE);
    if (!weir->table_block)
        return WEIR_ENOMEM;
    uint32_t count = weir_table_first_ranges(table, ranges);
    if (commit_table(weir, ranges, count, table->committed) == 0)
        return WEIR_OK;
    weir_grow_release(weir);
    return WEIR_ENOMEM;
}

void weir_grow_release(struct weir *weir)
{
    if (weir->table_block)
        munmap(weir->table_block, weir->table_size);
    weir->table_block = NULL;
    weir->table_size = 0;
}
