/* SPDX-License-Identifier: MIT
 * client/block.h - memory in which processes share a table; for client/ only.
 * What it is for and what always holds: block.c. */

#ifndef WEIR_BLOCK_H
#define WEIR_BLOCK_H

#include "node/limiter.h"
#include "os/process.h"

#define WEIR_BLOCK_LAYOUT 3
#define WEIR_BLOCK_MEMBERS WEIR_TABLE_PROCESSES_MAX /* number 0 is nobody's … */
#define WEIR_BLOCK_LAST \
    (WEIR_BLOCK_MEMBERS - 1) /* … nor is the last, but of
                                                     * who makes room */
#define WEIR_BLOCK_LOOK_EVERY (100 * WEIR_MILLISECOND)
#define WEIR_BLOCK_SLOTS_DEFAULT 16384
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

    uint32_t office;  /* number of who runs the limiter; 0: nobody */
    uint32_t sexton;  /* number of who buries now; 0: nobody */
    uint32_t kicks;   /* a word to wait at: for the office */
    uint32_t changes; /* likewise: for everybody else */
    uint64_t look_at; /* instant: when to see next who has died */

    /* Written by the office. */
    struct weir_limiter_estate estate;
    uint32_t ready;
    uint32_t roots_up;
    uint64_t epoch, reports;
    uint64_t sync_done;
    uint64_t sync_wanted; /* by anybody */

    uint64_t member[WEIR_BLOCK_MEMBERS]; /* weir_process_self(); 0: free */
    uint64_t roots[WEIR_BLOCK_MEMBERS];  /* hash of the addresses that it names,
                                         * if it may run the limiter; or 0 */
};
#define WEIR_BLOCK_READY 0x5745495242314f4bull

struct weir_block_shape {
    uint32_t slots;   /* 0: as it is, or the default */
    uint32_t stripes; /* 0: the default; of who makes it */
};

/* Bytes of a block; 0: the shape is out of range. */
size_t weir_block_size(const struct weir_block_shape *shape);
/* Maps the file at 'path', made if there is none, and enters it. WEIR_ETABLE,
 * WEIR_EFULL and WEIR_ESYSTEM with 'diag'. */
int weir_block_open(const char *path, const struct weir_block_shape *shape,
                    struct weir_block **out, struct weir_diag *diag);
void weir_block_unmap(struct weir_block *block);
/* Makes a block of the memory, or waits until it is made; and checks it. Errors
 * as above. */
int weir_block_enter(void *memory, size_t size,
                     const struct weir_block_shape *shape,
                     struct weir_block **out, struct weir_diag *diag);

static inline struct weir_table *weir_block_table(struct weir_block *block)
{
    return (struct weir_table *)(void *)((char *)block + block->table_at);
}

/* This process is one of those: its number in '*out'; or WEIR_EFULL, or
 * WEIR_ETABLE: one that lives names other roots. 'roots': as in the block; who
 * names none agrees with all. Of two that disagree and come at one instant both
 * may be refused. */
int weir_block_join(struct weir_block *block, uint64_t roots, uint32_t *out);
/* It is so no more; all that it had is given back. */
void weir_block_leave(struct weir_block *block, uint32_t number);
/* Whether it is time to look who has died, and so this caller's to do; to be
 * asked each WEIR_BLOCK_LOOK_EVERY. */
bool weir_block_is_due(struct weir_block *block, weir_instant now);
/* Whether any of them names roots. */
bool weir_block_has_roots(const struct weir_block *block);
/* Looks who has died, and buries them. */
void weir_block_bury(struct weir_block *block, uint32_t number);
/* The office is given to 'number' if nobody has it. */
bool weir_block_take_office(struct weir_block *block, uint32_t number);
/* And nothing that its limiter was told stops anybody; it runs no more. */
void weir_block_quit_office(struct weir_block *block, uint32_t number);
void weir_block_kick(struct weir_block *block);
void weir_block_tell_change(struct weir_block *block);

#endif /* WEIR_BLOCK_H */
