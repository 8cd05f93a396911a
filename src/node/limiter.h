/* SPDX-License-Identifier: MIT
 * node/limiter.h - a limiter as a message-driven machine: a table, and what
 * is to be said about it to each root.
 *
 * Pure: the pump around it (a client's thread, the simulator, a test) owns
 * links, bytes and time. One thread at a time, the table's "sync".
 *
 *     link(up) -> next() -> … receive() -> next() -> … tick() -> next() …
 *
 * After every call but next() itself, drain next() and then sleep until
 * deadline() or until the table kicks. */

#ifndef WEIR_LIMITER_H
#define WEIR_LIMITER_H

#include "count/above.h"
#include "count/message.h"
#include "quota/table.h"

/* Between two reports on a link, at least: whatever the number of quotas. */
#define WEIR_REPORT_SPACING (20 * WEIR_MILLISECOND)

struct weir_limiter;

/* A region's root hears of its limiter half's quotas. Called from within
 * weir_limiter_receive(). */
struct weir_limiter_sink {
    void *context;
    /* A whole set of that store begins; what stood before stands until
     * reached() is called. */
    int (*whole)(void *context, const struct weir_store_id *store,
                 weir_instant now);
    /* The next change, in the order of epochs. */
    int (*change)(void *context, const struct weir_change *change,
                  weir_instant now);
    /* All changes up to 'epoch' were handed over. */
    int (*reached)(void *context, uint64_t epoch, weir_instant now);
};

struct weir_limiter_options {
    struct weir_table *table;   /* outlives the limiter */
    uint32_t slots;             /* as the table was made */
    uint32_t links;             /* 0 .. WEIR_ROOTS_MAX */
    struct weir_text name;      /* copied; <= WEIR_NAME_MAX bytes */
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint64_t seed;
    const struct weir_limiter_sink *region; /* outlives the limiter; NULL: a
                                             * service's */
};

size_t weir_limiter_size(const struct weir_limiter_options *options);
/* 'block': 64-byte aligned, zeroed. */
struct weir_limiter *
weir_limiter_init(void *block, const struct weir_limiter_options *options,
                  weir_instant now);

/* The link to root number 'link' is up (a fresh session: hello follows from
 * next()) or lost. */
void weir_limiter_link(struct weir_limiter *limiter, uint32_t link, bool up,
                       weir_instant now);
/* 0, or WEIR_EPROTOCOL: the link is to be dropped (and reported down). A
 * message of an older session is ignored (0). */
int weir_limiter_receive(struct weir_limiter *limiter, uint32_t link,
                         const struct weir_message *message,
                         weir_instant now);
void weir_limiter_tick(struct weir_limiter *limiter, weir_instant now);
/* The next message to send, borrowed until the next call of any function
 * here; false when there is none. */
bool weir_limiter_next(struct weir_limiter *limiter, uint32_t *out_link,
                       struct weir_message *out, weir_instant now);
/* When tick() is wanted, at the latest. */
weir_instant weir_limiter_deadline(const struct weir_limiter *limiter,
                                   weir_instant now);
/* Events since last asked (ready, stale, …); false when there is none. */
bool weir_limiter_event(struct weir_limiter *limiter,
                        struct weir_event *out);

/* The quotas of some root are complete in the table. */
bool weir_limiter_ready(const struct weir_limiter *limiter);
uint64_t weir_limiter_epoch(const struct weir_limiter *limiter);
uint64_t weir_limiter_reports(const struct weir_limiter *limiter);
uint32_t weir_limiter_links_up(const struct weir_limiter *limiter);
/* The session of a link that is up, i.e. welcomed; else 0. */
uint64_t weir_limiter_session(const struct weir_limiter *limiter,
                              uint32_t link);
/* Reports all that has happened by now as soon as may be, instead of at the
 * interval's end. */
void weir_limiter_hurry(struct weir_limiter *limiter, weir_instant now);
/* Nothing collected is unreported or unanswered: a good moment to close. */
bool weir_limiter_settled(const struct weir_limiter *limiter);

/* ---- Of a region ---- */

/* How long ago the topmost root was heard; WEIR_NEVER: not yet. */
weir_duration weir_limiter_top_age(const struct weir_limiter *limiter,
                                   weir_instant now);
/* It is above stale_after: quotas are decided by their on_stale. */
bool weir_limiter_stale(const struct weir_limiter *limiter);
const struct weir_settings *
weir_limiter_settings(const struct weir_limiter *limiter);

/* A region's limiters let through 'units' more (below 0: fewer were presumed
 * rightly), 'refused' more; 'ahead' of all are presumed by now and go on at
 * 'pace'. False: the ref's life is over. */
bool weir_limiter_carry(struct weir_limiter *limiter, struct weir_ref ref,
                        int64_t units, uint64_t refused, uint64_t ahead,
                        uint64_t pace, weir_instant now);
/* Some of it was counted 'age' ago. */
void weir_limiter_carry_late(struct weir_limiter *limiter, weir_duration age,
                             weir_instant now);

/* What roots tell of a bucket; false: nothing. */
bool weir_limiter_above(struct weir_limiter *limiter, struct weir_ref ref,
                        struct weir_above *out, weir_instant now);

/* Quotas that it had before, from 'store', as if a root had sent them: changes,
 * then settled. Only before a root was met. */
int weir_limiter_restore(struct weir_limiter *limiter,
                         const struct weir_store_id *store, weir_instant now);
int weir_limiter_restore_change(struct weir_limiter *limiter,
                                const struct weir_change *change,
                                weir_instant now);
int weir_limiter_restored(struct weir_limiter *limiter, uint64_t epoch,
                          weir_instant now);

/* A copy of a table (after fork) becomes another limiter: a new incarnation,
 * no links, what was counted so far is the other's to report. The other's
 * sync may have been stopped anywhere. */
void weir_limiter_reincarnate(struct weir_limiter *limiter,
                              struct weir_text name,
                              const uint8_t *incarnation, weir_instant now);

#endif /* WEIR_LIMITER_H */
