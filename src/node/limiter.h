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
#include "node/lease_client.h"
#include "quota/table.h"

/* Between two reports on a link, at least: whatever the number of quotas. */
#define WEIR_REPORT_SPACING (20 * WEIR_MILLISECOND)

struct weir_limiter;

/* A region's root hears of its limiter half's quotas. Called from within
 * weir_limiter_receive(). */
struct weir_limiter_sink {
    void *context;
    struct weir_text name; /* the region's; absent: it has none */
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
    struct weir_table *table; /* outlives the limiter */
    uint32_t slots;           /* as the table was made */
    uint32_t links;           /* 0 .. WEIR_ROOTS_MAX */
    struct weir_text name;    /* copied; <= WEIR_NAME_MAX bytes */
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint64_t seed;
    uint32_t asks;          /* under way at once, for exact quotas that
                                 * roots decide: 0 .. WEIR_ASKS_MAX */
    uint32_t leases;        /* leased quotas in use at once: 0 ..
                                 * WEIR_LEASE_PLACES_MAX */
    int64_t lease_priority; /* of what it wants; 0: the quota's */
    uint32_t limits;        /* adaptive limits that roots are told of: 0 ..
                                 * WEIR_LIMITS_MAX */
    const struct weir_lease_speaker *speaker; /* a region's: for its limiters;
                                 * outlives the limiter; NULL: a service's */
    const struct weir_limiter_sink *region;   /* outlives the limiter; NULL: a
                                             * service's */
};

size_t weir_limiter_size(const struct weir_limiter_options *options);
/* 'block': 64-byte aligned, zeroed. */
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
/* When tick() is wanted, at the latest. */
weir_instant weir_limiter_deadline(const struct weir_limiter *limiter,
                                   weir_instant now);
/* Events since last asked (ready, stale, …); false when there is none. */
bool weir_limiter_event(struct weir_limiter *limiter, struct weir_event *out);

/* The quotas of some root are complete in the table. */
bool weir_limiter_ready(const struct weir_limiter *limiter);
/* Up to which it has all of them: one that found no room in the table, and is
 * told by WEIR_EVENT_TABLE_FULL, holds it back. */
uint64_t weir_limiter_epoch(const struct weir_limiter *limiter);
/* Up to which it has seen all of them, and has those that found room; goes
 * back for a while when the others are asked for again. */
uint64_t weir_limiter_seen(const struct weir_limiter *limiter);
uint64_t weir_limiter_reports(const struct weir_limiter *limiter);
uint32_t weir_limiter_links_up(const struct weir_limiter *limiter);
/* Limiters connected to a root, this one included, as last told; at least 1. */
uint32_t weir_limiter_fleet(const struct weir_limiter *limiter);
/* The newest epoch that the root of a link spoke of; 0: none yet. */
uint64_t weir_limiter_root_epoch(const struct weir_limiter *limiter,
                                 uint32_t link);
/* The session of a link that is up, i.e. welcomed; else 0. */
uint64_t weir_limiter_session(const struct weir_limiter *limiter,
                              uint32_t link);
/* Reports all that has happened by now as soon as may be, instead of at the
 * interval's end. */
void weir_limiter_hurry(struct weir_limiter *limiter, weir_instant now);
/* Nothing collected is unreported or unanswered, and no lease waits for its
 * first grant: a good moment to close, or to begin. */
bool weir_limiter_settled(const struct weir_limiter *limiter);

/* ---- Exact quotas that a root decides (limiter_ask.c) ---- */

/* Has a step made by the root that all limiters ask for that name: of the roots
 * that are up the one whose name and the quota's hash highest together; of
 * two with one name the first link's. next() sends it. It is answered once
 * in any case, by then or within 'ask->patience' of the deadline() after
 * it, but WEIR_PATIENCE_MAX at most; 'ask->number' is chosen here. Returns 0;
 * WEIR_ECONNECT: no root that has its quotas is up, or that one is mute (an ask
 * as patient as this one ran out, and it answered nothing meanwhile; it is
 * tried each 400 ms); WEIR_EFULL: 'asks' are under way. */
int weir_limiter_ask(struct weir_limiter *limiter,
                     const struct weir_step_ask *ask, uint64_t ticket,
                     weir_instant now);
/* The next answer; false: none. '*out_error' is 0; WEIR_ETIMEOUT: none came in
 * time; WEIR_ECONNECT: the root went away, or is one of a region that those
 * above are away from (of both it isn't known whether it was charged);
 * WEIR_ENOENT, WEIR_EFULL: as enum weir_step_error. '*out' is written on
 * success only. */
bool weir_limiter_answered(struct weir_limiter *limiter, uint64_t *out_ticket,
                           int *out_error, struct weir_meter_answer *out);

/* Whether there is one: the deadline doesn't tell. */
bool weir_limiter_has_answers(const struct weir_limiter *limiter);
/* How many more may be under way now. */
uint32_t weir_limiter_asks_left(const struct weir_limiter *limiter);

/* ---- Leased quotas (limiter_lease.c) ---- */

/* Those of a region's root to be driven by it: of a service's the limiter sees
 * to all. */
struct weir_lease_client *weir_limiter_leases(struct weir_limiter *limiter);
/* Gives all back, with the next messages, and asks for no more: a service that
 * ends. */
void weir_limiter_release(struct weir_limiter *limiter, weir_instant now);

/* ---- Of a region ---- */

/* How long ago the topmost root was heard; WEIR_NEVER: not yet. */
weir_duration weir_limiter_top_age(const struct weir_limiter *limiter,
                                   weir_instant now);
/* It is above stale_after: quotas are decided by their on_stale. */
bool weir_limiter_stale(const struct weir_limiter *limiter);
/* No root that it is linked to has its quotas from a store by now. */
bool weir_limiter_provisional(const struct weir_limiter *limiter);
const struct weir_settings *weir_limiter_settings(
    const struct weir_limiter *limiter);

/* A region's limiters let through 'units' more (below 0: fewer were presumed
 * rightly), 'refused' more; 'ahead' of all are presumed by now and go on at
 * 'pace'. False: the ref's life is over. */
bool weir_limiter_carry(struct weir_limiter *limiter, struct weir_ref ref,
                        int64_t units, uint64_t refused, uint64_t ahead,
                        uint64_t pace, weir_instant now);
/* Of a gauge: its limiters have 'units' in flight by now, and refused so many
 * more. False: the ref's life is over. */
bool weir_limiter_carry_held(struct weir_limiter *limiter, struct weir_ref ref,
                             uint64_t units, uint64_t refused);
/* All of the region's limiters passed 'units' more (as above), whichever root
 * carries them. Nothing happens if the ref's life is over. */
void weir_limiter_region(struct weir_limiter *limiter, struct weir_ref ref,
                         int64_t units);
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
                              struct weir_text name, const uint8_t *incarnation,
                              weir_instant now);

/* ---- Of a table that processes share (limiter_estate.c) ---- */

/* What the next limiter of a table must know of the one before, to be the same
 * one to the roots. Plain bytes, to be kept where it outlives the process. */
struct weir_limiter_estate {
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint32_t sessions;     /* begun; an upper bound */
    uint32_t heard;        /* whether any root was … */
    weir_instant heard_at; /* … the topmost one at last */
    uint64_t wants;        /* numbers of wants; an upper bound */
    weir_duration stale_after, report_interval; /* as set; 0: not known */
    struct {
        uint64_t met; /* 'root' is whole */
        uint8_t root[WEIR_INCARNATION_SIZE];
    } link[WEIR_ROOTS_MAX];
};
/* Writes how it stands. May be cut short anywhere: what is half written is
 * taken for older than it is. 'incarnation' isn't written: it was given. */
void weir_limiter_bequeath(const struct weir_limiter *limiter,
                           struct weir_limiter_estate *out);
/* The limiter was just made, over a table whose former limiter is no more, with
 * that one's incarnation and the same links: it goes on from there. The estate
 * is its own then, for should it die before it spoke to anybody. */
void weir_limiter_inherit(struct weir_limiter *limiter,
                          struct weir_limiter_estate *estate, weir_instant now);

#endif /* WEIR_LIMITER_H */
