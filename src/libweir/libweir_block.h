/* SPDX-License-Identifier: MIT
 * libweir/libweir_block.h - the memory of a shared table; for client/ only. Its
 * purpose and invariants: libweir_block.c. */

#ifndef WEIR_LIBWEIR_BLOCK_H
#define WEIR_LIBWEIR_BLOCK_H

#include "core/node/limiter.h"
#include "core/table/table_grow.h"
#include "io/process.h"

#define WEIR_BLOCK_LAYOUT 5
#define WEIR_BLOCK_MEMBERS \
    WEIR_TABLE_PROCESSES_MAX /* number 0 is no member's
                                                     * … */
#define WEIR_BLOCK_LAST \
    (WEIR_BLOCK_MEMBERS - 1) /* … nor is the last: it is for making room */
#define WEIR_BLOCK_LOOK_EVERY (100 * WEIR_MILLISECOND)
/* Of memory_max: a file's, of which only what is used is allocated; and of the
 * caller's memory. */
#define WEIR_BLOCK_FILE_DEFAULT ((uint64_t)1 << 30)
#define WEIR_BLOCK_MEMORY_DEFAULT ((uint64_t)16 << 20)
/* Enough for any number of slots: they take less than 64 KiB each. */
#define WEIR_SLOTS_MEMORY_MAX ((uint64_t)WEIR_SLOTS_MAX << 16)
#define WEIR_BLOCK_STRIPES_DEFAULT 256

/* Words are atomic unless they are said to be constant. */
struct weir_block {
    uint64_t state; /* 0, its maker, or WEIR_BLOCK_READY: then constant are */
    uint32_t layout;
    uint32_t padding;
    char version[16];
    struct weir_process_world world;
    uint64_t size;     /* bytes, all of it */
    uint64_t table_at; /* from the block's first byte */

    uint32_t reporter; /* number of the reporter; 0: none */
    uint32_t reaper;   /* number of the reaper; 0: none */
    uint32_t kicks;    /* a word to wait at: for the reporter */
    uint32_t changes;  /* likewise: for all other members */
    uint64_t look_at;  /* instant of the next check for dead members */

    /* Written by the reporter. */
    struct weir_limiter_handover handover;
    uint32_t ready;
    uint32_t roots_up;
    uint64_t epoch, reports;
    uint64_t sync_done;
    uint64_t sync_wanted; /* by any member */

    uint64_t member[WEIR_BLOCK_MEMBERS]; /* weir_process_self(); 0: free */
    uint64_t roots[WEIR_BLOCK_MEMBERS];  /* hash of the root addresses that it
                                          * names, if it may run the limiter; or
                                          * 0 */
};
#define WEIR_BLOCK_READY 0x5745495242314f4bull

struct weir_block_shape {
    uint64_t memory_max; /* bytes for slots; 0: as in the block, or the
                          * default */
    uint32_t stripes;    /* 0: the default; the maker's counts */
    bool fixed;          /* all of it is memory: it doesn't grow */
};

/* Bytes of a block; 0: the shape is out of range. */
size_t weir_block_size(const struct weir_block_shape *shape);
/* The part of memory_max that so many slots are. */
uint64_t weir_block_slots_bytes(uint32_t slots);
/* Maps the file at 'path', made if there is none, and enters it; '*out_fd' is
 * the caller's to close, after its last growth. WEIR_ETABLE, WEIR_EFULL and
 * WEIR_ESYSTEM with 'diag'. */
int weir_block_open(const char *path, const struct weir_block_shape *shape,
                    struct weir_block **out, int *out_fd,
                    struct weir_diag *diag);
void weir_block_unmap(struct weir_block *block);
/* Allocates ranges from the byte 'at' of the file on, in whole pages up to its
 * end, so that they can be touched. 0, or a negative errno: then none can. */
int weir_block_allocate(int fd, uint64_t at,
                        const struct weir_table_range *ranges, uint32_t count);
/* Makes a block of the memory, or waits for its maker; and checks it. It is all
 * committed. Errors as above. */
int weir_block_enter(void *memory, size_t size,
                     const struct weir_block_shape *shape,
                     struct weir_block **out, struct weir_diag *diag);

static inline struct weir_table *weir_block_table(struct weir_block *block)
{
    return (struct weir_table *)(void *)((char *)block + block->table_at);
}

/* Makes this process a member: its number in '*out'; or WEIR_EFULL, or
 * WEIR_ETABLE: a live member names other roots. 'roots': as in the block; a
 * member without roots agrees with all. If two that disagree join at one
 * instant, both may be refused. */
int weir_block_join(struct weir_block *block, uint64_t roots, uint32_t *out);
/* Ends the membership; all its entries are given back. */
void weir_block_leave(struct weir_block *block, uint32_t number);
/* Whether a check for dead members is due, and so this caller's to do; call it
 * each WEIR_BLOCK_LOOK_EVERY. */
bool weir_block_is_due(struct weir_block *block, weir_instant now);
/* Whether any member names roots. */
bool weir_block_has_roots(const struct weir_block *block);
/* Finds dead members and reaps them. */
void weir_block_reap(struct weir_block *block, uint32_t number);
/* Makes 'number' the reporter if there is none. */
bool weir_block_become_reporter(struct weir_block *block, uint32_t number);
/* Ends that: stops sent to its limiter are lifted, and the limiter runs no
 * more. */
void weir_block_resign_reporter(struct weir_block *block, uint32_t number);
void weir_block_kick(struct weir_block *block);
void weir_block_signal_change(struct weir_block *block);

#endif /* WEIR_LIBWEIR_BLOCK_H */
