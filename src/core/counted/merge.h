/* SPDX-License-Identifier: MIT
 * core/counted/merge.h - counted sharing, the root's half: a bucket for each
 * root quota (a quota in use), a limiter cell for each limiter and root quota,
 * and the fills to be sent.
 *
 * Pure; one thread; grows by the allocator it is given. The root node owns
 * links, sessions and quotas; merge has only counts. */

#ifndef WEIR_MERGE_H
#define WEIR_MERGE_H

#include "core/algorithm/leaky.h"
#include "core/base/index.h"
#include "core/counted/above.h"
#include "core/counted/message.h"
#include "core/quota/quota_bucket.h"

/* Bounds. */
#define WEIR_ROOT_QUOTAS_MAX (1u << 24)   /* buckets in use */
#define WEIR_LIMITER_CELLS_MAX (1u << 24) /* of one limiter: its slots */
/* Bound on the units in flight of one limiter, and of all together: a peer may
 * send any number, and sums must not overflow. */
#define WEIR_IN_FLIGHT_MAX ((uint64_t)1 << 51)
/* Unsolicited fills are pushed at most this often on a link … */
#define WEIR_PUSH_SPACING (20 * WEIR_MILLISECOND)
/* … on a root with many links less often: at most this many pushes a second
 * … */
#define WEIR_PUSHES_PER_S 50000
/* … of a bucket that moved by this part of the room up to 'high' … */
#define WEIR_ROOM_GRAINS 32
/* … and at most so many entries a second on a link: about 64 KiB. */
#define WEIR_PUSH_ENTRIES_PER_S 10000

struct weir_limiter_cell;

/* Queues of root quotas. */
enum weir_merge_queue {
    WEIR_MERGE_MOVED,    /* buckets that moved: fills may be due */
    WEIR_MERGE_CARRYING, /* carried units moved: to be carried on */
    WEIR_MERGE_QUEUES
};

/* Root quota: a quota in use, its bucket as this root sees it. */
struct weir_root_quota {
    char *name; /* owned; name_len bytes, no NUL */
    uint8_t name_len;
    bool live;    /* else the array element is free */
    bool counted; /* sharing counted: fills are sent */
    bool unlimited;
    bool inflight;    /* of kind concurrency: 'in_flight' is its fill */
    bool passed_over; /* under overload, some limiters were not sent its
                            * fill */
    bool queued[WEIR_MERGE_QUEUES];
    uint32_t next[WEIR_MERGE_QUEUES]; /* in the queue: index + 1 */
    uint32_t cell_count;
    uint32_t connected; /* cells of limiters that are connected */
    uint64_t hash;
    uint64_t created;    /* of the quota or template: its identity */
    uint64_t rule_epoch; /* of the quota or template, as applied */
    struct weir_bucket bucket;
    uint64_t in;         /* scaled sum, see algorithm/leaky.h */
    uint64_t adopted;    /* of 'in', fills taken over at the cold start */
    uint64_t dry;        /* scaled: all that an empty bucket would have leaked
                          * … */
    int64_t dry_left;    /* … of that, left for late counts to fill */
    uint64_t pace;       /* sum of the cells' paces … */
    weir_u128 pace_from; /* … and of pace * paced_at: units presumed at 'now'
                          * are (pace * now - pace_from) / span */
    uint64_t exposure;   /* sum of the cells' exposures */
    uint64_t added;      /* units, all that were added, modulo 2^64 */
    uint64_t in_flight;  /* units in flight: sum of the last totals of the cells
                          * that are in-flight counters */
    /* Since its cells were last checked for due fills: */
    uint64_t units_moved;  /* bound on the units by which counts moved it … */
    uint64_t pace_most;    /* … and the largest pace of it, or sent of it */
    uint64_t looked_room;  /* the room then, 1/1024 units … */
    uint32_t looked_users; /* … connected limiters … */
    weir_instant looked_at; /* … and the time of the check, as paced_at */
    bool unlooked;          /* not checked yet, or to be checked for another
                             * reason */
    uint64_t passed;        /* units */
    uint64_t refused;       /* units */
    int64_t debt_most;      /* scaled: most debt of one limiter */
    uint64_t beyond;        /* units of 'passed' above that debt; they are in no
                             * fill (merge_debt.c) */
    struct weir_limiter_cell *cells; /* list */
    /* If the root has an upstream: units that limiters handed over. */
    uint64_t carried;           /* units, modulo 2^64 */
    uint64_t carried_refused;   /* the same */
    uint64_t carried_pace;      /* of the cells that hand over, as 'pace' … */
    weir_u128 carried_from;     /* … and 'pace_from' */
    uint64_t carried_in_flight; /* of 'in_flight', that of carried cells */
    /* The region's own: its slot, and the counts entered there. */
    uint32_t up_slot, up_generation; /* 0: none */
    uint64_t up_count, up_refused;
    uint64_t up_in_flight;
    bool up_paced;     /* … and a pace is entered there */
    uint64_t up_whole; /* region-wide count, as last sent up */
};

/* Limiter cell: one limiter's use of one root quota. */
struct weir_limiter_cell {
    struct weir_limiter_cell *next, *prev;
    struct weir_merge_limiter *limiter;
    uint32_t slot;
    uint32_t root_quota;     /* index + 1 into the root quotas; 0: free */
    uint64_t base;           /* total from which the next count differs */
    uint64_t last;           /* total merged */
    uint64_t pace;           /* pace that the root presumes since … */
    weir_instant paced_at;   /* … the last count was made, since the merge was
                              * … */
    weir_instant counted_at; /* … which came later, by its lead and 'ahead' */
    uint32_t exposure;       /* 1/1024 units: how far the limiter's count may
                              * stray before it can be corrected (merge.c) */
    uint64_t refused_base;
    uint64_t refused_last;
    uint64_t in;         /* scaled sum, as the bucket's, of this cell's part
                          * (merge_debt.c) */
    uint64_t dry;        /* the bucket's, at the last report … */
    uint64_t dry_before; /* … and at the one before */
    /* When a fill was last sent to this limiter: */
    uint64_t sent_others; /* units that others had added, presumed included;
                           * with a root fill from above: all units added but
                           * its own, modulo 2^64 */
    uint64_t sent_slack;  /* 1/1024 units */
    uint64_t sent_pace;   /* of others … */
    weir_instant sent_at; /* … and when, as paced_at; 0: never since the
                           * announcement */
    bool carried;         /* the last report was carried: so are the pace and
                           * the units in flight */
    bool inflight;        /* an in-flight counter: 'last' is the limiter's units
                           * in flight */
};

#define WEIR_LIMITER_CELLS_A_PAGE 64
struct weir_limiter_cell_page {
    uint64_t due; /* bits: cells with a fill to send */
    struct weir_limiter_cell cell[WEIR_LIMITER_CELLS_A_PAGE];
};

/* A limiter's cells. Owned by the root node's record of the limiter; all zero
 * means empty. */
struct weir_merge_limiter {
    struct weir_limiter_cell_page **pages; /* owned */
    size_t page_capacity;
    uint32_t cells;
    uint32_t due; /* cells with a fill to send */
    bool connected;
    bool released; /* its units in flight were given back */
    /* For so long after a report the limiter may rely on its paces, if that is
     * longer than the merge's 'pace_good'. */
    weir_duration pace_good;
};

/* The upstream's view of a bucket. 'above' returns false if there is none. */
struct weir_merge_upstream {
    void *context;
    bool (*above)(void *context, const struct weir_root_quota *root_quota,
                  struct weir_above *out, weir_instant now);
    /* The root quota is removed: its carried units belong to no one now. */
    void (*dropped)(void *context, const struct weir_root_quota *root_quota);
};

/* Called for each report with more units than its limiter's debt allows. */
struct weir_merge_watch {
    void *context;
    void (*beyond)(void *context, const struct weir_merge_limiter *limiter,
                   const struct weir_root_quota *root_quota, uint64_t units,
                   weir_instant now);
};

struct weir_merge {
    struct weir_mem mem;
    uint64_t seed;
    weir_instant origin;
    weir_duration learn;     /* for this long after its birth a root adopts
                              * fills */
    weir_duration pace_good; /* for this long a limiter uses a pace it
                              * received */
    weir_duration pace_most; /* for this long an unconfirmed pace lasts, or
                              * twice its limiter's 'pace_good'; 0: as long as
                              * its link */
    /* A report that was made then, or later, was taken: older ones are hardly
     * still to be read. The node sets it. */
    weir_instant read_till;
    bool slack;
    const struct weir_merge_upstream *upstream; /* NULL: a topmost root */
    const struct weir_merge_watch *watch;       /* NULL: none */
    bool overloaded; /* overloaded: send the least (merge.c) */
    bool detached;   /* detached from the roots above: counts cause no debt */
    weir_duration late_from; /* of carried units, the longest since it was last
                              * set to 0 */
    struct weir_index index;
    struct weir_root_quota *root_quotas; /* owned */
    size_t root_quota_capacity;
    uint32_t root_quotas_used; /* array elements ever used */
    uint32_t root_quotas_live;
    uint32_t hand;            /* cursor of the sweep for each new bucket */
    uint32_t audit_hand;      /* cursor of the audit */
    uint32_t free_root_quota; /* list through 'next[0]': index + 1 */
    struct {
        uint32_t first, last; /* index + 1 */
    } queue[WEIR_MERGE_QUEUES];
    uint64_t merged; /* counts merged */
};

void weir_merge_init(struct weir_merge *merge, const struct weir_mem *mem,
                     uint64_t seed, weir_instant now);
void weir_merge_fini(struct weir_merge *merge);

/* ---- Buckets ---- */

/* The bucket of 'name', or NULL. Pointers live until the next _use(). */
struct weir_root_quota *weir_merge_get(struct weir_merge *merge,
                                       struct weir_text name);
/* The same; if there is none, made for 'quota' (its own, or its template). A
 * new one first frees some unused buckets, as _sweep() does. NULL: no memory,
 * or over WEIR_ROOT_QUOTAS_MAX. */
struct weir_root_quota *weir_merge_root_quota(struct weir_merge *merge,
                                              struct weir_text name,
                                              const struct weir_quota *quota,
                                              weir_instant now);
/* The quota was edited: new parameters, and weir_fill_edited() in units. */
void weir_merge_edit(struct weir_merge *merge,
                     struct weir_root_quota *root_quota,
                     const struct weir_quota *quota, weir_instant now);
/* The quota was removed: the bucket and its cells go. */
void weir_merge_drop(struct weir_merge *merge,
                     struct weir_root_quota *root_quota);
/* Scaled, not below 0. */
int64_t weir_merge_fill(struct weir_merge *merge,
                        struct weir_root_quota *root_quota, weir_instant now);
/* The part of the fill that is presumed since the limiters' last counts;
 * scaled. */
uint64_t weir_merge_presumed(const struct weir_merge *merge,
                             const struct weir_root_quota *root_quota,
                             weir_instant now);
/* Looks at 'look' buckets from '*cursor' on. Frees those that are empty and
 * have no cells; after an overload, has the withheld fills sent; ends paces
 * that were not confirmed in time. */
void weir_merge_sweep(struct weir_merge *merge, uint32_t *cursor, uint32_t look,
                      weir_instant now);

/* Puts the root quota at the end of the queue, if it isn't in it. To be called
 * with WEIR_MERGE_MOVED when the root fill from above has moved. */
void weir_merge_enqueue(struct weir_merge *merge,
                        struct weir_root_quota *root_quota,
                        enum weir_merge_queue queue);

/* ---- Limiters ---- */

void weir_merge_connect(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter, bool connected);
/* The limiter is connected but mute: presumes nothing of it until it
 * reports. */
void weir_merge_mute(struct weir_merge *merge,
                     struct weir_merge_limiter *limiter);
void weir_merge_forget(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter);
/* Gives back, once, the units in flight of a limiter that isn't connected: it
 * sends them again if it comes back. */
void weir_merge_release(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter);
/* Whether every bucket that the limiter uses is empty, units in flight aside:
 * it may be forgotten. */
bool weir_merge_drained(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter, weir_instant now);

/* From now on 'slot' of the limiter means 'root_quota'. A cell of that limiter
 * and root quota goes on from its merged total; a new one begins at the
 * announced base. While the root is young, a new cell fills the bucket up to
 * the fill that the limiter knew. 0 or WEIR_ENOMEM, WEIR_EPROTOCOL (slot out
 * of bounds). */
int weir_merge_announce(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter,
                        struct weir_root_quota *root_quota,
                        const struct weir_announce *announce, weir_instant now);
/* From now on 'slot' has no meaning. */
void weir_merge_unannounce(struct weir_merge *merge,
                           struct weir_merge_limiter *limiter, uint32_t slot);
/* One count of a report that was taken (once, in order). False: the slot is
 * unknown here; it must be announced. */
bool weir_merge_count(struct weir_merge *merge,
                      struct weir_merge_limiter *limiter,
                      const struct weir_count *count,
                      const struct weir_report *report, weir_instant now);

/* Walks the limiter's cells in use: begin with '*cursor' 0; false at the end.
 * Cells may be unannounced meanwhile. */
bool weir_merge_next_cell(const struct weir_merge_limiter *limiter,
                          uint32_t *cursor, struct weir_limiter_cell **out);

/* ---- Carried units ---- */

/* Calls 'each' for root quotas whose carried units moved, or presumably move,
 * since the last call; for at most 'work' of them. 'each' returns true to be
 * called for this one next time in any case. */
void weir_merge_carry(struct weir_merge *merge, uint32_t work,
                      bool (*each)(void *context,
                                   struct weir_root_quota *root_quota),
                      void *context);
/* Units presumed of the limiters carried by this root, beyond 'carried'. */
uint64_t weir_merge_ahead(const struct weir_merge *merge,
                          const struct weir_root_quota *root_quota,
                          weir_instant now);

/* ---- Fills to send ---- */

/* The answer with the slot's fill was lost: send it again. */
void weir_merge_repeat(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter, uint32_t slot);

/* The fill that limiters are sent, all presumed units included; scaled. */
int64_t weir_merge_sent_fill(struct weir_merge *merge,
                             struct weir_root_quota *root_quota,
                             weir_instant now);
/* Finds the limiters that must be sent a moved bucket, since the last call;
 * looks at no more than 'work' cells. */
void weir_merge_look(struct weir_merge *merge, uint32_t work, weir_instant now);
/* Whether the limiter has a fill to be sent. */
bool weir_merge_due(const struct weir_merge_limiter *limiter);
/* Writes up to 'max' due fills, slots ascending; returns how many. */
size_t weir_merge_send_fills(struct weir_merge *merge,
                             struct weir_merge_limiter *limiter,
                             struct weir_fill *fills, size_t max,
                             weir_instant now);

/* ---- Audits (merge_audit.c) ----
 *
 * An assertion fails if kept sums, lists, queues or the index disagree. The
 * cells of a root quota, and the pages of a limiter, are left out if there are
 * more than WEIR_AUDIT_WALK_MAX. */

/* Audits the next 'n' root quotas and their limiter cells, in a circle. */
void weir_merge_audit(struct weir_merge *merge, uint32_t n);
/* Audits a limiter's count of cells, and of cells with a fill to send. */
void weir_merge_audit_limiter(const struct weir_merge_limiter *limiter);

#endif /* WEIR_MERGE_H */
