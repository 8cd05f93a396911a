/* SPDX-License-Identifier: MIT
 * counted/message.h - the messages between a limiter and a root.
 *
 * One stream a root link, ten messages:
 *
 *     limiter                                   root
 *        | -- hello: name, epoch --------------->  |
 *        | <-------------- welcome: settings ----- |
 *        | <--------------- quotas (by epoch) ---- |
 *        | -- report n: counts ------------------> |
 *        | <---- fills n: the buckets, slack ----- |
 *        | <---- fills n: pushed, they moved ----- |
 *        | -- report n+1 ------------------------> |
 *        | -- asks: steps of exact quotas -------> |
 *        | <----------------- answers to some ---- |
 *        | -- wants n: of leased quotas -------->  |
 *        | <-------- grants: the answer to n ----- |
 *        | <--------------- grants: pushed ------- |
 *        | -- limits: of adaptive quotas ------->  |
 *
 * The last five are in counted/message_rows.h.
 *
 * The protocol survives loss, doubling, reordering and replay; the nodes are
 * tested over a network that has all of them, though gRPC has none:
 *
 *  - Stop and wait. A limiter has at most one report unanswered on a link; it
 *    repeats the report, same number and same content, until the fills that
 *    answer it come. A root takes report n only if n is the successor of the
 *    last one it took; a repeated report is answered again and never counted
 *    again. Only the difference to the total that the root holds travels. This
 *    is flow control too: an overloaded root answers later, and no queue grows.
 *  - A count carries the limiter's pace. The root goes on adding at that pace
 *    until the next count of the slot replaces the presumed units. A lost
 *    report only delays the replacement.
 *  - Totals are absolute where a session begins: nothing is counted twice.
 *  - A message of another session than its link's is dropped.
 *  - A region's root hands up the counts of its limiters. A limiter reports to
 *    all roots of its region, and names one its carrier: units handed to one
 *    carrier are never handed to another (count.carry; tally.c).
 *  - An ask is taken at most once: numbers rise over the asks of a session, and
 *    a root takes only a number above all it took. A doubled or late ask is
 *    dropped. If an ask or its answer is lost, the caller waits until its
 *    patience ends; the ask is not repeated, since it may have been charged.
 *  - Wants are always sent in full, and repeated; grants have serials, and
 *    wants name the serial that was taken (leased/lease_holder.h,
 *    leased/lease_pool.h). Loss costs time; a doubled or late message is
 *    recognized by its serial or its number.
 *  - Quotas go in the order of epochs, each in its present state; each report
 *    has the epoch that the limiter has reached. After a loss the root starts
 *    again from there.
 *
 * Arrays and texts in messages are borrowed: they belong to the function that
 * made the message, until its next call. Fills are in 1/1024 units, ages and
 * waits in nanoseconds; no instant ever travels. */

#ifndef WEIR_MESSAGE_H
#define WEIR_MESSAGE_H

#include <string.h>

#include "core/algorithm/algorithm.h"
#include "core/base/base.h"
#include "core/counted/message_rows.h"
#include "core/quota/catalog.h"

#define WEIR_PROTOCOL 1          /* the version in hello and welcome */
#define WEIR_INCARNATION_SIZE 16 /* bytes */
#define WEIR_FILL_FRAC 10        /* bits of a unit's fraction on the wire */
#define WEIR_FILL_ONE 1024       /* a unit of fill on the wire */
#define WEIR_PACE_SHIFT 33
#define WEIR_PACE_SPAN ((weir_duration)1 << WEIR_PACE_SHIFT) /* 8.6 s */
#define WEIR_PACE_MAX ((uint64_t)1 << 40)
#define WEIR_AHEAD_MAX ((uint64_t)1 << 44)
#define WEIR_LEAD_MAX (30 * WEIR_SECOND) /* of a count (merge.c, Lead) */
/* A pace is valid for this many report intervals without a report. */
#define WEIR_PACE_INTERVALS 2

/* Bounds on one message; a decoder rejects a message above them. */
#define WEIR_REPORT_COUNTS_MAX 8192
#define WEIR_REPORT_ANNOUNCES_MAX 2048
#define WEIR_FILLS_MAX 8192
/* Most slots that a limiter announces on a link in a second, on average. */
#define WEIR_ANNOUNCES_PER_S 20000
#define WEIR_QUOTAS_MAX 512
#define WEIR_TIERS_MAX 16   /* depth of nested regions */
#define WEIR_MASTER_MAX 255 /* bytes of a master's address */
#define WEIR_MESSAGE_BYTES_MAX (4u << 20)

enum weir_message_type {
    WEIR_MESSAGE_HELLO = 1,
    WEIR_MESSAGE_WELCOME = 2,
    WEIR_MESSAGE_QUOTAS = 3,
    WEIR_MESSAGE_REPORT = 4,
    WEIR_MESSAGE_FILLS = 5,
    WEIR_MESSAGE_ASKS = 6,
    WEIR_MESSAGE_ANSWERS = 7,
    WEIR_MESSAGE_WANTS = 8,
    WEIR_MESSAGE_GRANTS = 9,
    WEIR_MESSAGE_LIMITS = 10,
};

/* A quota store, how often it was restored. */
struct weir_store_id {
    uint8_t uuid[16]; /* all zero: not known yet */
    uint64_t restores;
};

static inline bool weir_store_id_equal(const struct weir_store_id *a,
                                       const struct weir_store_id *b)
{
    return memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0 &&
           a->restores == b->restores;
}

struct weir_hello {
    uint32_t protocol;
    uint8_t incarnation[WEIR_INCARNATION_SIZE]; /* of the limiter's table */
    struct weir_text name;      /* for people: "service@host", <= 255 B */
    struct weir_store_id store; /* the store that its quotas are from */
    uint64_t epoch;             /* newest epoch that it has */
    bool region; /* sent by the limiter half of a region's root … */
    struct weir_text region_name; /* … of this region, <= 255 B; absent: none.
                                   * Its roots are one client of leases */
    uint64_t features;            /* as of quota_feature.h; 0: none announced */
};

/* Settings that a root sends to its limiters. */
struct weir_settings {
    weir_duration report_interval; /* 10 ms .. 1 h */
    weir_duration stale_after;     /* >= report_interval */
    bool slack;                    /* report by slack, not only by time */
    bool correction_auto;          /* learn the ratio of others' counts */
    uint32_t correction_ppm;       /* extrapolate others' counts, 10^-6 */
};

struct weir_welcome {
    uint32_t protocol;
    uint8_t incarnation[WEIR_INCARNATION_SIZE]; /* of the root */
    struct weir_text name;
    weir_duration age; /* since this incarnation was born */
    bool ready;        /* has its quotas; else store is unknown */
    bool provisional;  /* it can't read its store, which may be ahead of
                        * 'epoch': limiters forget no quota because of it */
    struct weir_store_id store;
    uint64_t epoch; /* the newest it has */
    struct weir_settings settings;
    bool carries; /* it has an upstream: may be a carrier */
    /* If it carries: the last report it took from this limiter, in any session.
     * If there was none: 0, and the session of the first hello that it
     * remembers. */
    uint64_t last_session;
    uint64_t last_number;
    weir_duration top_age;           /* as in fills */
    size_t region_count;             /* regions from this root to the topmost
                                      * roots, its own included; at most … */
    const struct weir_text *regions; /* … WEIR_TIERS_MAX names */
    bool leases;                     /* it is master of the leased quotas … */
    uint64_t term; /* … in this term: it rises with each master. If it
                              * isn't master: the highest term it knows */
    struct weir_text master; /* if it isn't master: the master's address, at
                              * most WEIR_MASTER_MAX bytes; absent: unknown */
};

/* Changes in the order of epochs. If 'full', the limiter forgets each quota
 * that is not named from here to the message that reaches 'target'. */
struct weir_quotas {
    bool full;       /* the first message of a whole set; 'from' is 0 */
    uint64_t from;   /* holds every change above this epoch … */
    uint64_t epoch;  /* … up to this one, reached when they are applied */
    uint64_t target; /* the root's newest */
    uint64_t known;  /* of a whole set: the epoch that the root believed the
                      * limiter had. A limiter beyond it and beyond 'target' has
                      * newer quotas from another root, and keeps them */
    size_t count;
    const struct weir_change *changes;
};

/* From now on 'slot' means the quota 'name' on this link. Counts of this link
 * are differences to the total 'base'. 'fill' is the bucket as the limiter knew
 * it, without its own counts above 'base'; a cold root takes it over. */
struct weir_announce {
    uint32_t slot;
    struct weir_text name;
    uint64_t created; /* of the quota, or of the instance's template */
    uint64_t base;    /* modulo 2^64 */
    uint64_t refused; /* the same, of refused units */
    int64_t fill;     /* 1/1024 units */
    bool witnessed;   /* another root has answered since this root started:
                       * counts of other limiters since then are in 'fill' */
    bool sank;        /* the limiter doesn't know whether a report that lowered
                       * the total was taken: the root's total may rightly be
                       * below 'base' */
    bool in_flight;   /* kind concurrency: 'base' plus a count is the number of
                       * units in flight */
};

/* A slot's counts since the last answered report. */
struct weir_count {
    uint32_t slot;
    int64_t passed;   /* units; refunds make it negative */
    uint64_t refused; /* units */
    int64_t late;     /* of 'passed': units that drained from the limiter's own
                       * bucket before the root received them, or were above its
                       * high burst. Without a 'late_from' only this root was
                       * the cause: it didn't limit the slot */
    uint64_t pace;    /* presumed pace from here on, units in WEIR_PACE_SPAN;
                       * the root adds it until the next count of the slot */
    int64_t carry;    /* if the report is carried: units to be carried up,
                       * mostly the passed ones; else 0 */
    uint64_t ahead;   /* of a region's root: units that it presumes of its
                       * limiters by now and 'passed' lacks; they end with the
                       * pace. 0 without a pace */
};

struct weir_report {
    uint64_t number; /* 1, 2, … in a session */
    uint64_t epoch;  /* of the limiter's quotas */
    bool no_room;    /* for the next epoch: the root shouldn't resend it … */
    bool again;      /* … until this: there is room now */
    weir_duration late_from; /* the link was down, or slow, for this long */
    uint64_t unknown;        /* requests by unknown names, in total */
    uint64_t contended;      /* those decided without a lock, in total */
    uint64_t lacking;        /* quotas that found no room in the table */
    uint64_t overflowed;     /* requests by names without room, in total */
    bool passes_on_full;     /* on_full of these is `pass`, not `refuse` */
    uint32_t few_roots;      /* roots connected, if there are more; else 0 */
    weir_duration echo; /* the root's age when they were made; 0: unknown */
    weir_duration lead; /* not sent: the root's reckoning (merge.c, Lead) */
    bool carried;       /* the root is this limiter's carrier */
    /* Of its table, a quota below a name that this root denied, or absent. */
    struct weir_text below;
    size_t announce_count;
    const struct weir_announce *announces;
    size_t count;
    const struct weir_count *counts; /* slots strictly ascending */
};

/* A bucket as the root sees it, this limiter's counts up to report 'number'
 * included. 'slack', in 1/1024 units: the limiter must report at once when its
 * count differs by more from those counts plus their pace. UINT64_MAX: no limit
 * is near. */
struct weir_fill {
    uint32_t slot;
    int64_t fill; /* 1/1024 units; without units presumed of this limiter */
    uint64_t slack;
    uint64_t pace; /* of all other limiters, from now on, in WEIR_PACE_SPAN */
};

struct weir_fills {
    bool answer;     /* answers report 'number'; else pushed after it */
    uint64_t number; /* the last report taken */
    uint64_t stamp;  /* rises with every fills message of a session */
    weir_duration report_backoff; /* shortest interval between reports */
    uint32_t limiters;            /* connected to this root */
    uint32_t roots;               /* on this root's store; 0: not known */
    weir_duration age;            /* of the root by then; 0: an older root */
    weir_duration top_age; /* how long the topmost root has been silent beyond
                            * the usual; 0: this root is topmost, or has just
                            * received from it; WEIR_NEVER: it never has */
    size_t count;
    const struct weir_fill *fills; /* slots strictly ascending */
    size_t unknown_count;
    const uint32_t *unknown; /* slots without a quota here: announce again */
    size_t denied_count;     /* <= WEIR_REPORT_ANNOUNCES_MAX */
    const uint32_t *denied;  /* slots announced by that report with names that
                              * this link's credential may not take from; also
                              * in 'unknown' once they have counts */
};

struct weir_message {
    enum weir_message_type type;
    uint64_t session; /* of the link, chosen by the limiter; in every message */
    union {
        struct weir_hello hello;
        struct weir_welcome welcome;
        struct weir_quotas quotas;
        struct weir_report report;
        struct weir_fills fills;
        struct weir_asks asks;
        struct weir_answers answers;
        struct weir_wants wants;
        struct weir_grants grants;
        struct weir_limits limits;
    };
};

#endif /* WEIR_MESSAGE_H */
