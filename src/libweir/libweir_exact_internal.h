/* SPDX-License-Identifier: MIT
 * libweir/libweir_exact_internal.h - exact quotas of a limiter: their stores,
 * and decisions by them. */

#ifndef WEIR_LIBWEIR_EXACT_INTERNAL_H
#define WEIR_LIBWEIR_EXACT_INTERNAL_H

#include <pthread.h>

#include "core/table/link_exact.h"
#include "libweir/libweir_exact.h"

struct weir;
struct weir_call;
struct weir_options;

#define WEIR_EXACT_STORES_MAX 16 /* of one limiter */

/* A store of exact quotas. */
struct weir_exact_entry {
    char uri[WEIR_STORE_MAX + 1];
    bool root;                 /* a root decides; else: */
    struct weir_shared *store; /* owned; NULL: 'why' has the reason */
    char why[160];
    uint32_t failed; /* steps without answer in a row, up to "away"; atomic */
    bool sent;       /* the event "away" was sent; the thread's */
};
/* Permits that couldn't be taken out of their store (libweir_exact_leave.c). */
struct weir_late_leave;
struct weir_late_leaves {
    pthread_mutex_t mutex;         /* guards all below */
    uint32_t count;                /* atomic */
    struct weir_late_leave *leave; /* owned */
    size_t room;
};
struct weir_exact_book {
    const struct weir_exact *functions;   /* NULL: not linked */
    bool shared;                          /* the table is shared: no store is
                                           * asked */
    struct weir_exact_root *root;         /* owned */
    char *secrets_file, *tls_ca, *prefix; /* owned; may be NULL */
    pthread_mutex_t mutex;                /* to add an entry */
    uint32_t count;                       /* atomic */
    struct weir_late_leaves late;
    uint64_t drawn; /* permit ids drawn; begins at random; atomic */
    uint32_t full;  /* 1: a store had no room, see 'lost'; 2: event sent;
                     * atomic */
    char lost[WEIR_STORE_MAX + 1]; /* the first such; set before 'full' */
    struct weir_exact_entry entry[WEIR_EXACT_STORES_MAX];
};

/* ---- libweir_exact_decide.c ---- */
/* For a call with the outcome WEIR_OUTCOME_EXACT. Returns its outcome; blocks
 * for at most the deadlines of the chain's exact quotas. 'out_record' is an
 * enter's; NULL for all else. */
unsigned weir_exact_decide(struct weir *weir, struct weir_ref ref,
                           const struct weir_algorithm_ask *ask,
                           struct weir_permit_record *out_record,
                           struct weir_reply *reply, struct weir_call *call);
/* An id that no other permit has, in this process or another; never 0. Any
 * thread. */
uint64_t weir_exact_permit(struct weir *weir);
/* ---- libweir_exact_leave.c ---- */
/* Takes the permit out of the stores of the exact quotas in 'record', each
 * asked for at most its deadline. Call it before they are given back to the
 * table. It waits for their locks for lock_wait; a quota that is locked for
 * longer is left to weir_exact_leave_late(). */
void weir_exact_leave(struct weir *weir,
                      const struct weir_permit_record *record, uint64_t permit);

/* Leaves the permit at the slot's quota to weir_exact_leave_late(). */
void weir_exact_leave_later(struct weir *weir, uint32_t slot, uint64_t permit,
                            uint64_t weight);
/* Takes one such permit out, if there is one; blocks for the deadline at most.
 * Any thread but the background one. */
void weir_exact_leave_late(struct weir *weir);

/* ---- libweir_exact_stores.c ---- */
int weir_exact_book_init(struct weir_exact_book *book,
                         const struct weir_options *options);
/* No step may be running. */
void weir_exact_book_fini(struct weir_exact_book *book);
/* One step in the store of 'away', which is opened if it wasn't; a root steps
 * by its own rule of the name. 0, or WEIR_ECONNECT (also: there are too many
 * stores) or another error of weir_shared_step(). Blocks for the deadline at
 * most. Any thread but the background one. */
int weir_exact_step(struct weir *weir, const struct weir_away *away,
                    const struct weir_algorithm_ask *ask,
                    struct weir_algorithm_answer *out);
/* On the thread: opens the stores of all quotas; sends events of changes. */
void weir_exact_book_prepare(struct weir *weir);
void weir_exact_book_send_events(struct weir *weir);
/* In a child: opens its own stores; no caller waits for a root any more. */
void weir_exact_book_forked(struct weir_exact_book *book);
/* On the thread: hands the callers' steps to the limiter node, before its
 * messages are sent; and its answers to the callers, after. */
void weir_exact_root_ask(struct weir *weir, weir_instant now);
void weir_exact_root_answer(struct weir *weir);

#endif /* WEIR_LIBWEIR_EXACT_INTERNAL_H */
