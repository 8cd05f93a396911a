/* SPDX-License-Identifier: MIT
 * count/merge.h - counted sharing, the root's half: a bucket for each quota
 * in use, a cell for each limiter and quota, and what limiters are told.
 *
 * Pure; one thread; grows by the allocator it is given. The root node above
 * it owns links, sessions and quotas; here are only counts. */

#ifndef WEIR_MERGE_H
#define WEIR_MERGE_H

#include "algo/leaky.h"
#include "base/index.h"
#include "count/above.h"
#include "count/message.h"
#include "quota/quota_bucket.h"

/* Bounds. */
#define WEIR_USAGES_MAX (1u << 24) /* buckets in use */
#define WEIR_CELLS_MAX (1u << 24)  /* of one limiter: its slots */
/* Units that one limiter may say it has in flight, and that all have: peers may
 * lie, and sums must not overflow. */
#define WEIR_IN_FLIGHT_MAX ((uint64_t)1 << 51)
/* Fills that nobody asked for go out at most this often on a link … */
#define WEIR_PUSH_SPACING (20 * WEIR_MILLISECOND)
/* … of a root with many links less often: so many in a second on all … */
#define WEIR_PUSHES_PER_S 50000
/* … of a picture that has moved by this part of the room up to 'high' … */
#define WEIR_ROOM_GRAINS 32
/* … and at most so many entries a second on a link, so some 64 KiB. */
#define WEIR_PUSH_ENTRIES_PER_S 10000

struct weir_cell;

/* A quota in use: its bucket as this root sees it. */
struct weir_use {
    char *name; /* owned; name_len bytes, no NUL */
    uint8_t name_len;
    bool live;    /* else the place is free */
    bool counted; /* sharing counted: fills are told */
    bool unlimited;
    bool gauge;            /* of kind concurrency: 'held' is its fill */
    bool touched;          /* in the queue of those to look at */
    bool passed_over;      /* not all was told of it, under overload */
    uint32_t next_touched; /* index + 1 */
    uint32_t cell_count;
    uint32_t connected; /* cells of limiters that are connected */
    uint64_t hash;
    uint64_t created;    /* of the quota or template: its identity */
    uint64_t rule_epoch; /* of the quota or template, as applied */
    struct weir_bucket bucket;
    uint64_t in;         /* scaled sum, see algo/leaky.h */
    uint64_t adopted;    /* of 'in', what limiters knew at our birth */
    uint64_t dry;        /* scaled: all that leaked from nothing, ever … */
    int64_t dry_left;    /* … and what late counts may make up for */
    uint64_t pace;       /* sum of the cells' paces … */
    weir_u128 pace_from; /* … and of pace * paced_at: what is presumed by
                              * now is (pace * now - pace_from) / span */
    uint64_t added;      /* units, all that came in, modulo 2^64 */
    uint64_t held;       /* units in flight: the sum of the last totals of
                              * cells that count such */
    /* Since who is to be told was last looked for: */
    uint64_t stirred;       /* units by which counts moved it, at most … */
    uint64_t pace_most;     /* … and the most it, or what was told, went on */
    uint64_t looked_room;   /* the room then, 1/1024 units … */
    uint32_t looked_users;  /* … who used it … */
    weir_instant looked_at; /* … and since when, as paced_at */
    bool unlooked;          /* never, or there is another reason to look */
    uint64_t passed;        /* units */
    uint64_t refused;       /* units */
    int64_t debt_most;      /* scaled: what one limiter may put in */
    uint64_t beyond;        /* units of 'passed' that were more than that, and
                              * are in no fill (merge_debt.c) */
    struct weir_cell *cells; /* list */
    /* Where the root has an upstream: what cells' limiters handed to it. */
    uint64_t carried;         /* units, modulo 2^64 */
    uint64_t carried_refused; /* the same */
    uint64_t carried_pace;    /* of the cells that do, as 'pace' … */
    weir_u128 carried_from;   /* … and 'pace_from' */
    uint64_t carried_held;    /* units: of 'held', that of cells that do */
    bool carrying;            /* in the queue of those to be carried on */
    uint32_t next_carrying;   /* index + 1 */
    /* The region's: its slot, and how much of all that it has there. */
    uint32_t up_slot, up_generation; /* 0: none */
    uint64_t up_count, up_refused;
    uint64_t up_held;
    bool up_paced;     /* … and it goes on there */
    uint64_t up_whole; /* what was said of the whole region's */
};

/* One limiter's use of one quota. */
struct weir_cell {
    struct weir_cell *next, *prev;
    struct weir_merge_limiter *limiter;
    uint32_t slot;
    uint32_t use;            /* index + 1 into the uses; 0: free */
    uint64_t base;           /* total from which the next count differs */
    uint64_t last;           /* total merged */
    uint64_t pace;           /* what it presumably adds since … */
    weir_instant paced_at;   /* … the last count, since our birth */
    weir_instant counted_at; /* … which is later, if it had a lead by then */
    uint64_t refused_base;
    uint64_t refused_last;
    uint64_t in;         /* scaled sum, as the bucket's, of what this cell
                              * put in (merge_debt.c) */
    uint64_t dry;        /* the bucket's, at the last report … */
    uint64_t dry_before; /* … and at the one before */
    /* When this limiter was last told: */
    uint64_t told_others; /* units that others added, presumed included;
                              * with a picture from above, all that came in
                              * but its own, modulo 2^64 */
    uint64_t told_slack;  /* 1/1024 units */
    uint64_t told_pace;   /* of others … */
    weir_instant told_at; /* … since then, as paced_at; 0: not since it
                              * was announced */
    bool carried;         /* its last report was: the pace is, too, and
                              * what is in flight */
    bool gauge;           /* 'last' is what its limiter has in flight */
};

#define WEIR_CELLS_A_PAGE 64
struct weir_cell_page {
    uint64_t due; /* bits: cells to be told */
    struct weir_cell cell[WEIR_CELLS_A_PAGE];
};

/* A limiter's cells. Owned by the root node's record of the limiter; zeroed
 * is empty. */
struct weir_merge_limiter {
    struct weir_cell_page **pages; /* owned */
    size_t page_capacity;
    uint32_t cells;
    uint32_t due; /* cells to be told */
    bool connected;
    bool released; /* what it had in flight was given back */
};

/* What the roots above tell of a bucket; false: nothing. */
struct weir_merge_upstream {
    void *context;
    bool (*above)(void *context, const struct weir_use *use,
                  struct weir_above *out, weir_instant now);
    /* The use goes, and all that was carried of it is nobody's. */
    void (*dropped)(void *context, const struct weir_use *use);
};

/* Called for each report with more units than its limiter's debt allows. */
struct weir_merge_watch {
    void *context;
    void (*beyond)(void *context, const struct weir_merge_limiter *limiter,
                   const struct weir_use *use, uint64_t units,
                   weir_instant now);
};

struct weir_merge {
    struct weir_mem mem;
    uint64_t seed;
    weir_instant origin;
    weir_duration learn;     /* so long after its birth a root adopts fills */
    weir_duration pace_good; /* so long a limiter goes by a pace it was told */
    weir_duration pace_most; /* so long one lasts that isn't said again; 0: as
                              * long as its link */
    bool slack;
    const struct weir_merge_upstream *upstream; /* NULL: a topmost root's */
    const struct weir_merge_watch *watch;       /* NULL: none */
    bool strained; /* overloaded: tell the least (merge.c) */
    bool adrift;   /* it can't be asked: counts put nobody into debt */
    weir_duration late_from; /* of what was carried since it was last 0 */
    struct weir_index index;
    struct weir_use *uses; /* owned */
    size_t use_capacity;
    uint32_t use_used; /* places ever used */
    uint32_t use_live;
    uint32_t hand;         /* of the sweep that each new bucket pays for */
    uint32_t free_use;     /* list through next_touched: index + 1 */
    uint32_t touched;      /* queue of uses: first, index + 1 */
    uint32_t touched_last; /* last, index + 1 */
    uint32_t carrying, carrying_last; /* the same, of uses to be carried on */
    uint64_t merged;                  /* counts */
};

void weir_merge_init(struct weir_merge *merge, const struct weir_mem *mem,
                     uint64_t seed, weir_instant now);
void weir_merge_fini(struct weir_merge *merge);

/* ---- Buckets ---- */

/* The bucket of 'name', or NULL. Pointers live until the next _use(). */
struct weir_use *weir_merge_get(struct weir_merge *merge,
                                struct weir_text name);
/* The same, made for 'quota' (its own, or its template) if need be; some that
 * nobody uses go for it, as in _sweep(). NULL: no memory, or over
 * WEIR_USAGES_MAX. */
struct weir_use *weir_merge_use(struct weir_merge *merge, struct weir_text name,
                                const struct weir_quota *quota,
                                weir_instant now);
/* The quota behind it was edited: new parameters, same fill in units. */
void weir_merge_edit(struct weir_merge *merge, struct weir_use *use,
                     const struct weir_quota *quota, weir_instant now);
/* The quota was removed: the bucket and its cells go. */
void weir_merge_drop(struct weir_merge *merge, struct weir_use *use);
/* Scaled, not below 0. */
int64_t weir_merge_fill(struct weir_merge *merge, struct weir_use *use,
                        weir_instant now);
/* Of it, what limiters have presumably counted since they reported; scaled. */
uint64_t weir_merge_presumed(const struct weir_merge *merge,
                             const struct weir_use *use, weir_instant now);
/* Frees those of 'look' buckets from '*cursor' on that nobody uses and that
 * are empty; after an overload, makes up for what wasn't told of the others.
 * Paces end there that nobody says any more. */
void weir_merge_sweep(struct weir_merge *merge, uint32_t *cursor, uint32_t look,
                      weir_instant now);

/* ---- Limiters ---- */

void weir_merge_connect(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter, bool connected);
/* It is connected and silent: nothing is presumed of it until it speaks. */
void weir_merge_hush(struct weir_merge *merge,
                     struct weir_merge_limiter *limiter);
void weir_merge_forget(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter);
/* Gives back what is in flight at a limiter that isn't connected, once: it says
 * it again, should it come back. */
void weir_merge_release(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter);
/* Whether every bucket the limiter uses is empty, but for what is in flight: it
 * may be forgotten. */
bool weir_merge_drained(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter, weir_instant now);

/* 'slot' of the limiter is 'use' from now on. A cell that knows the limiter
 * goes on from what it has merged; a new one begins at the announced base,
 * and, while the root is young, its bucket is filled to what the limiter
 * knew, if that is more. 0 or
 * WEIR_ENOMEM, WEIR_EPROTOCOL (slot out of bounds). */
int weir_merge_announce(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter,
                        struct weir_use *use,
                        const struct weir_announce *announce, weir_instant now);
/* 'slot' means nothing from now on. */
void weir_merge_unannounce(struct weir_merge *merge,
                           struct weir_merge_limiter *limiter, uint32_t slot);
/* One count of a report that is taken (once, in order). False: the slot
 * means nothing here; it must be announced. */
bool weir_merge_count(struct weir_merge *merge,
                      struct weir_merge_limiter *limiter,
                      const struct weir_count *count,
                      const struct weir_report *report, weir_instant now);

/* ---- What is carried ---- */

/* Calls for uses whose carried units have moved, or presumably move, since the
 * last call; at most 'work' of them. 'each' says whether the use is to be
 * carried on the next time whatever happens. */
void weir_merge_carry(struct weir_merge *merge, uint32_t work,
                      bool (*each)(void *context, struct weir_use *use),
                      void *context);
/* Units that are presumed of those who carry by us, beyond 'carried'. */
uint64_t weir_merge_ahead(const struct weir_merge *merge,
                          const struct weir_use *use, weir_instant now);

/* ---- What is told ---- */

/* The picture from above has moved. */
void weir_merge_touch(struct weir_merge *merge, struct weir_use *use);

/* The answer that told of the slot was lost: it is to be told again. */
void weir_merge_repeat(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter, uint32_t slot);

/* The fill that limiters are told, all presumed included; scaled. */
int64_t weir_merge_told_fill(struct weir_merge *merge, struct weir_use *use,
                             weir_instant now);
/* Finds who must be told of buckets that moved since the last call: at most
 * 'work' cells are looked at. */
void weir_merge_look(struct weir_merge *merge, uint32_t work, weir_instant now);
/* Whether the limiter has something to be told. */
bool weir_merge_due(const struct weir_merge_limiter *limiter);
/* Writes up to 'max' due fills, slots ascending; returns how many. */
size_t weir_merge_tell(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter,
                       struct weir_fill *fills, size_t max, weir_instant now);

#endif /* WEIR_MERGE_H */
