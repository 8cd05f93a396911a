/* SPDX-License-Identifier: MIT
 * node/limiter.h - a limiter as a message-driven machine: a table, and the
 * messages about it to each root.
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

#include "core/counted/message.h"
#include "core/counted/tally.h"
#include "core/node/lease_client.h"
#include "core/table/table_grow.h"
#include "core/table/table_sync.h"

/* Shortest time between two reports on a link, for any number of quotas. */
#define WEIR_REPORT_SPACING (20 * WEIR_MILLISECOND)

/* A limiter says that it is connected to fewer roots than there are after this.
 * A root that was killed is counted for up to 20 s (WEIR_PRESENCE_TTL), and DNS
 * may need 30 s and a lookup's 10 s for a new one. */
#define WEIR_FEW_ROOTS_AFTER (60 * WEIR_SECOND)

struct weir_limiter;

/* Passes the quotas of a region's limiter half on to its root half, or those of
 * a service to its snapshot. Called from within weir_limiter_receive(), and
 * while quotas are restored. */
struct weir_limiter_sink {
    void *context;
    struct weir_text name; /* the region's; absent: it has none */
    /* A whole set of that store begins; the previous quotas stay until
     * reached() is called. */
    int (*whole)(void *context, const struct weir_store_id *store,
                 weir_instant now);
    /* The next change, in the order of epochs. */
    int (*change)(void *context, const struct weir_change *change,
                  weir_instant now);
    /* All changes up to 'epoch' were handed over. */
    int (*reached)(void *context, uint64_t epoch, weir_instant now);
};

/* After a call of the table that found no room, before which 'had' slots were
 * committed: commits more memory (table_grow.h). Whether the call may find room
 * now. */
typedef bool weir_grow_fn(void *context, uint32_t had);

struct weir_limiter_options {
    struct weir_table *table; /* outlives the limiter */
    uint32_t slots;           /* as the table was made */
    uint32_t links;           /* 0 .. WEIR_ROOTS_MAX */
    struct weir_text name;    /* copied; <= WEIR_NAME_MAX bytes */
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint64_t seed;
    uint32_t asks;          /* asks unanswered at once, for exact quotas kept by
                             * roots: 0 .. WEIR_ASKS_MAX */
    uint32_t leases;        /* leased quotas in use at once: 0 ..
                                 * WEIR_LEASE_PLACES_MAX */
    int64_t lease_priority; /* of its wants; 0: the quota's */
    uint32_t limits;        /* adaptive limits in its messages: 0 ..
                             * WEIR_LIMITS_MAX */
    const struct weir_lease_speaker *speaker; /* a region's: wants on behalf of
                                               * its limiters; outlives the
                                               * limiter; NULL: a service's */
    const struct weir_limiter_sink *region;   /* outlives the limiter; NULL: a
                                             * service's */
    const struct weir_limiter_sink *keeper;   /* outlives the limiter: gets the
                                             * quotas too, of a service, to
                                             * keep them; NULL: none */
    uint64_t features;  /* of quotas, that it announces; 0: WEIR_FEATURES_ALL. A
                        * test sets fewer */
    weir_grow_fn *grow; /* NULL: the table doesn't grow */
    void *grow_context;
    bool passes_on_full; /* names without room pass; for the roots' views */
};

size_t weir_limiter_size(const struct weir_limiter_options *options);
/* Ranges of the block that must be committed before the table uses slots from
 * 'from' to below 'to'; 'from' 0: and before weir_limiter_init(). Returns how
 * many. */
#define WEIR_LIMITER_RANGES_MAX (WEIR_TALLY_ARRAYS_MAX + 3)
uint32_t weir_limiter_ranges(
    const struct weir_limiter_options *options, uint32_t from, uint32_t to,
    struct weir_table_range out[WEIR_LIMITER_RANGES_MAX]);
/* 'block': 64-byte aligned, zeroed; the ranges above are committed. */
struct weir_limiter *weir_limiter_init(
    void *block, const struct weir_limiter_options *options, weir_instant now);

/* The link to root number 'link' is up (a fresh session: hello follows from
 * next()) or lost. */
void weir_limiter_link(struct weir_limiter *limiter, uint32_t link, bool up,
                       weir_instant now);
/* 0, or WEIR_EPROTOCOL: the link is to be dropped (and reported down). A
 * message of an older session is ignored (0). */
int weir_limiter_receive(struct weir_limiter *limiter, uint32_t link,
                         const struct weir_message *message, weir_instant now);
void weir_limiter_tick(struct weir_limiter *limiter, weir_instant now);
/* The next message to send, borrowed until the next call of any function
 * here; false when there is none. */
bool weir_limiter_next(struct weir_limiter *limiter, uint32_t *out_link,
                       struct weir_message *out, weir_instant now);
/* The latest time for the next tick(). */
weir_instant weir_limiter_deadline(const struct weir_limiter *limiter,
                                   weir_instant now);
/* Events since last asked (ready, stale, …); false when there is none. */
bool weir_limiter_event(struct weir_limiter *limiter, struct weir_event *out);

/* The quotas of some root are complete in the table. */
bool weir_limiter_ready(const struct weir_limiter *limiter);
/* The epoch up to which it has all quotas. A quota without room in the table,
 * reported as WEIR_EVENT_TABLE_FULL, holds it back. */
uint64_t weir_limiter_epoch(const struct weir_limiter *limiter);
uint64_t weir_limiter_reports(const struct weir_limiter *limiter);
uint32_t weir_limiter_links_up(const struct weir_limiter *limiter);
/* Limiters connected to a root, this one included, by the last fills; at least
 * 1. */
uint32_t weir_limiter_fleet(const struct weir_limiter *limiter);
/* The newest epoch that the root of a link sent; 0: none yet. */
uint64_t weir_limiter_root_epoch(const struct weir_limiter *limiter,
                                 uint32_t link);
/* The session of a link that is up, i.e. welcomed; else 0. */
uint64_t weir_limiter_session(const struct weir_limiter *limiter,
                              uint32_t link);
/* For so long after it made a report to a link's root it relies on the paces of
 * that report. */
weir_duration weir_limiter_relies(const struct weir_limiter *limiter,
                                  uint32_t link);
/* The incarnation of the root at a link that is up, borrowed; else NULL. */
const uint8_t *weir_limiter_root(const struct weir_limiter *limiter,
                                 uint32_t link);
/* So many roots are known beside those of the links, and left out by choice. */
void weir_limiter_set_others(struct weir_limiter *limiter, uint32_t others);
/* The roots there are, as last received; 0: not known. 'out_few': the limiter
 * is connected to fewer, for WEIR_FEW_ROOTS_AFTER at least. */
uint32_t weir_limiter_roots(const struct weir_limiter *limiter, bool *out_few);
/* Reports all counts up to now as soon as possible, not at the interval's
 * end. */
void weir_limiter_hurry(struct weir_limiter *limiter, weir_instant now);
/* All collected counts were reported and answered, and no lease waits for its
 * first grant: a good moment to close, or to begin. */
bool weir_limiter_settled(const struct weir_limiter *limiter);

/* ---- Exact quotas kept by roots (limiter_ask.c) ---- */

/* Each root was met, or could not be reached, once. */
bool weir_limiter_tried(const struct weir_limiter *limiter);
/* Asks for one step at the root that all limiters choose for that name: the
 * root, of those that are up, with the highest hash of its name and the quota's
 * (on equal names: the first link). next() sends the ask. It gets exactly one
 * answer, within 'ask->patience' of the deadline() after it, and within
 * WEIR_PATIENCE_MAX. 'ask->number' is set here. Returns 0; WEIR_ECONNECT: no
 * root with quotas is up, or the chosen one is mute (an ask with this patience
 * ran out without any answer from it; it is tried each 400 ms); WEIR_EFULL:
 * 'asks' asks are unanswered. */
int weir_limiter_ask(struct weir_limiter *limiter,
                     const struct weir_step_ask *ask, uint64_t ticket,
                     weir_instant now);
/* The next answer; false: none. '*out_error' is 0; WEIR_ETIMEOUT: none came in
 * time; WEIR_ECONNECT: the root went away, or is a region's root that can't
 * reach those above (with both, the step may have been charged); WEIR_ENOENT,
 * WEIR_EFULL: as enum weir_step_error. '*out' is written on success only. */
bool weir_limiter_answered(struct weir_limiter *limiter, uint64_t *out_ticket,
                           int *out_error, struct weir_algorithm_answer *out);

/* ---- Leased quotas (limiter_lease.c) ---- */

/* Gives all leases back, with the next messages, and wants no more: for a
 * service that ends. */
void weir_limiter_release(struct weir_limiter *limiter, weir_instant now);

/* ---- From a snapshot ---- */

/* For a region's root, and a service with a snapshot: restores its quotas, from
 * 'store', as if a root had sent them: apply() for each change, then
 * restored(). Only before the first root is met. 'features': those of the
 * limiter that had the quotas (quota_feature.h). If this one has more, the next
 * root is asked for the whole set. */
int weir_limiter_restore(struct weir_limiter *limiter,
                         const struct weir_store_id *store, weir_instant now);
int weir_limiter_apply(struct weir_limiter *limiter,
                       const struct weir_change *change, weir_instant now);
int weir_limiter_restored(struct weir_limiter *limiter, uint64_t epoch,
                          uint64_t features, weir_instant now);

/* The keeper is no longer called. */
void weir_limiter_forget_keeper(struct weir_limiter *limiter);

/* Turns a copy of a table (after fork) into another limiter: a new incarnation,
 * no links; earlier counts are the parent's to report. The parent's sync thread
 * may have been stopped anywhere. */
void weir_limiter_reincarnate(struct weir_limiter *limiter,
                              struct weir_text name, const uint8_t *incarnation,
                              weir_instant now);

/* ---- Handover in a shared table (limiter_handover.c) ---- */

/* Handover: the state that the next limiter of a table needs to be the same
 * limiter to the roots. Plain bytes, kept in memory that outlives the
 * process. */
struct weir_limiter_handover {
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint32_t sessions;        /* number of sessions begun; an upper bound */
    uint32_t received;        /* a message of a root came … */
    weir_instant received_at; /* … from the topmost one, last */
    uint64_t wants;           /* numbers of wants; an upper bound */
    weir_duration stale_after, report_interval; /* as set; 0: not known */
    struct {
        uint64_t met; /* 'root' is whole */
        uint8_t root[WEIR_INCARNATION_SIZE];
    } link[WEIR_ROOTS_MAX];
};
/* Writes the handover. It may be interrupted anywhere: a half-written one
 * counts as older than it is. 'incarnation' isn't written: it was given. */
void weir_limiter_hand_over(struct weir_limiter *limiter,
                            struct weir_limiter_handover *out);
/* Continues as the former limiter of the table, which is gone. The limiter was
 * just made, with the same incarnation and links. The handover is its own from
 * now on, in case it dies before it reaches a root. */
void weir_limiter_inherit(struct weir_limiter *limiter,
                          struct weir_limiter_handover *handover,
                          weir_instant now);

#endif /* WEIR_LIMITER_H */
