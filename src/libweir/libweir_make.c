/* SPDX-License-Identifier: MIT
 * libweir/libweir_make.c - makes the parts of a limiter: its name, table, node
 * and locks; and memory for a pacer. */

#include "libweir/libweir_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/algorithm/pacer_state.h"
#include "io/clock.h"

void weir_name_limiter(struct weir *weir)
{
    if (weir->named)
        return;
    snprintf(weir->name, sizeof(weir->name), "%.200s/%ld",
             program_invocation_short_name, (long)getpid());
    /* A program's name may be any bytes; roots take text only. */
    if (weir_name_check(weir_text_of(weir->name), NULL) < 0)
        snprintf(weir->name, sizeof(weir->name), "process/%ld", (long)getpid());
}

/* Pages that cost nothing until they are used; NULL on failure. */
static void *map_pages(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void unmap_pages(void *p, size_t size)
{
    if (p)
        munmap(p, size);
}

static struct weir_limiter_options node_options(const struct weir *weir)
{
    return (struct weir_limiter_options){
        .table = weir->table,
        .slots = weir->slots,
        .links = weir->link_count,
        .asks = WEIR_ASKS_MAX,
        .leases = weir->leases_max,
        .limits = weir->gate_slots < WEIR_LIMITS_MAX ? weir->gate_slots
                                                     : WEIR_LIMITS_MAX,
        .lease_priority = weir->lease_priority,
        .name = weir_text_of(weir->name),
    };
}

void weir_limiter_make(struct weir *weir)
{
    weir_assert(weir->table && weir->limiter_block);
    struct weir_limiter_options options = node_options(weir);
    weir_entropy(&options.seed, sizeof(options.seed));
    if (weir->block)
        memcpy(options.incarnation, weir->block->handover.incarnation,
               WEIR_INCARNATION_SIZE);
    else
        weir_entropy(options.incarnation, sizeof(options.incarnation));
    weir->limiter =
        weir_limiter_init(weir->limiter_block, &options, weir_clock_now());
}

int weir_table_make(struct weir *weir)
{
    weir_assert(weir->slots > 0 && weir->stripes > 0);
    struct weir_table_options table = { .slots = weir->slots,
                                        .stripes = weir->stripes,
                                        .gate_slots = weir->gate_slots };
    weir_instant now = weir_clock_now();
    weir_entropy(&table.seed, sizeof(table.seed));
    weir->table_size = weir_table_size(&table);
    weir->table_block = map_pages(weir->table_size);
    if (!weir->table_block)
        return WEIR_ENOMEM;
    /* A cold decision costs three misses; with huge pages only of the cache
     * and not also of the TLB. A refusal is no harm. */
    madvise(weir->table_block, weir->table_size, MADV_HUGEPAGE);
    weir->table = weir_table_init(weir->table_block, &table, now);
    weir_zones_follow(weir, false, now);
    return WEIR_OK;
}

int weir_nodes_make(struct weir *weir)
{
    weir_assert(weir->table && !weir->limiter_block);
    struct weir_limiter_options options = node_options(weir);
    weir_entropy(&weir->id, sizeof(weir->id));
    weir->id |= 2; /* 0 and 1 mean something else */
    weir->limiter_size = weir_limiter_size(&options);
    weir->limiter_block = map_pages(weir->limiter_size);
    weir->arena_block = map_pages(WEIR_DECODE_ARENA_SIZE);
    if (!weir->limiter_block || !weir->arena_block)
        return WEIR_ENOMEM;
    weir->arena =
        (struct weir_arena){ weir->arena_block, WEIR_DECODE_ARENA_SIZE, 0 };
    if (!weir->block)
        weir_limiter_make(weir);
    return WEIR_OK;
}

void weir_memory_free(struct weir *weir)
{
    weir_exact_book_fini(&weir->exact);
    unmap_pages(weir->table_block, weir->table_size);
    if (weir->unmaps)
        weir_block_unmap(weir->block);
    unmap_pages(weir->limiter_block, weir->limiter_size);
    unmap_pages(weir->arena_block, WEIR_DECODE_ARENA_SIZE);
    weir_login_free(&weir->login);
    weir_mem_system.free(NULL, weir->out, weir->out_size);
    weir_mem_system.free(NULL, weir, sizeof(*weir));
}

void weir_locks_init(struct weir *weir)
{
    weir_condition_init(&weir->changed);
    pthread_mutex_init(&weir->mutex, NULL);
}

struct weir_pacer *weir_pacer_new(uint32_t jobs)
{
    size_t size = weir_pacer_size(jobs);
    void *block = size > 0 ? malloc(size) : NULL;
    return block ? weir_pacer_init(block, jobs) : NULL;
}

void weir_pacer_free(struct weir_pacer *pacer)
{
    free(pacer);
}
