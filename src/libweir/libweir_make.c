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

static void unmap_pages(void *p, size_t size)
{
    if (p)
        munmap(p, size);
}

static bool grow_for_node(void *context, uint32_t had)
{
    return weir_grow(context, had);
}

static struct weir_limiter_options node_options(const struct weir *weir)
{
    struct weir_limiter_options options = weir_records_shape(weir);
    options.table = weir->table;
    options.lease_priority = weir->lease_priority;
    options.grow = grow_for_node;
    options.grow_context = (void *)(uintptr_t)weir;
    options.passes_on_full = weir->on_full == WEIR_ON_FULL_PASS;
    options.name = weir_text_of(weir->name);
    options.keeper = weir_kept_sink(weir);
    return options;
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

static struct weir_table_options own_table_options(const struct weir *weir,
                                                   uint32_t slots)
{
    return (struct weir_table_options){
        .slots = slots,
        .committed =
            slots < WEIR_TABLE_GROWTH_MIN ? slots : WEIR_TABLE_GROWTH_MIN,
        .stripes = weir->stripes,
        .gate_slots = weir->gate_slots,
    };
}

/* ---- The budget ---- */

/* Addresses that a table leaves to a process that has few. */
#define ADDRESSES_LEFT ((size_t)64 << 20)

/* A slot's bytes are a difference: the rest has options of its own. */
#define SLOTS_MEASURED 65536

uint64_t weir_slots_bytes(const struct weir *weir, uint32_t slots)
{
    if (weir->block)
        return weir_block_slots_bytes(slots);
    uint64_t bytes[2];
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t measured = (i + 1) * SLOTS_MEASURED;
        struct weir_table_options table = own_table_options(weir, measured);
        struct weir_limiter_options node = weir_records_shape(weir);
        node.slots = measured;
        bytes[i] = weir_table_size(&table) + weir_limiter_size(&node);
    }
    return (bytes[1] - bytes[0]) * slots / SLOTS_MEASURED;
}

uint32_t weir_slots_within(const struct weir *weir, uint64_t memory_max)
{
    uint64_t some = weir_slots_bytes(weir, SLOTS_MEASURED);
    uint64_t slots = memory_max < WEIR_SLOTS_MEMORY_MAX
                         ? memory_max * SLOTS_MEASURED / some
                         : WEIR_SLOTS_MAX;
    if (slots == 0)
        return 1;
    return slots < WEIR_SLOTS_MAX ? (uint32_t)slots : WEIR_SLOTS_MAX;
}

/* ---- The parts ---- */

int weir_table_make(struct weir *weir)
{
    weir_assert(weir->slots > 0 && weir->stripes > 0);
    struct weir_table_options table = own_table_options(weir, weir->slots);
    weir_instant now = weir_clock_now();
    weir_entropy(&table.seed, sizeof(table.seed));
    int error = weir_grow_reserve(weir, &table);
    if (error < 0)
        return error;
    weir->table = weir_table_init(weir->table_block, &table, now);
    weir_table_set_on_full(weir->table, 0, weir->on_full == WEIR_ON_FULL_PASS);
    weir_zones_follow(weir, false, now);
    return WEIR_OK;
}

static void free_nodes(struct weir *weir)
{
    unmap_pages(weir->limiter_block, weir->limiter_size);
    unmap_pages(weir->arena_block, WEIR_DECODE_ARENA_SIZE);
    weir->limiter_block = weir->arena_block = NULL;
}

int weir_nodes_make(struct weir *weir)
{
    weir_assert(weir->table && !weir->limiter_block);
    struct weir_limiter_options options = node_options(weir);
    weir_entropy(&weir->id, sizeof(weir->id));
    weir->id |= 2; /* 0 and 1 mean something else */
    weir->limiter_size = weir_limiter_size(&options);
    weir->limiter_block = weir_pages_map(weir->limiter_size, PROT_NONE);
    weir->arena_block =
        weir_pages_map(WEIR_DECODE_ARENA_SIZE, PROT_READ | PROT_WRITE);
    uint32_t slots =
        weir->block ? weir->slots : weir_table_committed(weir->table);
    if (!weir->limiter_block || !weir->arena_block ||
        weir_grow_records(weir, 0, slots) < 0) {
        free_nodes(weir);
        return WEIR_ENOMEM;
    }
    weir->arena =
        (struct weir_arena){ weir->arena_block, WEIR_DECODE_ARENA_SIZE, 0 };
    if (!weir->block)
        weir_limiter_make(weir);
    return WEIR_OK;
}

/* Whether the rest of the process can still map something: a thread's stack,
 * say. */
static bool has_addresses_left(void)
{
    void *p = weir_pages_map(ADDRESSES_LEFT, PROT_NONE);
    unmap_pages(p, ADDRESSES_LEFT);
    return p != NULL;
}

int weir_memory_make(struct weir *weir)
{
    weir_assert(!weir->block);
    for (;; weir->slots /= 2) {
        bool least = weir->slots < 2 * WEIR_TABLE_GROWTH_MIN;
        int error = weir_table_make(weir);
        if (error == 0)
            error = weir_nodes_make(weir);
        if (error == 0 && !least && !has_addresses_left()) {
            free_nodes(weir);
            error = WEIR_ENOMEM;
        }
        if (error != WEIR_ENOMEM || least)
            return error;
        weir_grow_release(weir);
    }
}

void weir_memory_free(struct weir *weir)
{
    weir_exact_book_fini(&weir->exact);
    weir_kept_fini(weir);
    weir_unpins_fini(&weir->unpins);
    weir_grow_release(weir);
    if (weir->unmaps)
        weir_block_unmap(weir->block);
    if (weir->table_fd >= 0)
        close(weir->table_fd);
    free_nodes(weir);
    weir_login_free(&weir->login);
    weir_mem_system.free(NULL, weir->out, weir->out_size);
    weir_mem_system.free(NULL, weir, sizeof(*weir));
}

void weir_locks_init(struct weir *weir)
{
    weir_condition_init(&weir->changed);
    pthread_mutex_init(&weir->mutex, NULL);
    pthread_mutex_init(&weir->defining, NULL);
    weir_unpins_init(&weir->unpins);
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
