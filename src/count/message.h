/* SPDX-License-Identifier: MIT
 * count/message.h - what a limiter and a root say to each other.
 *
 * One stream a root link, five messages:
 *
 *     limiter                                   root
 *        | -- hello: who I am, my epoch -------->  |
 *        | <------- welcome: who I am, settings -- |
 *        | <--------------- quotas (by epoch) ---- |
 *        | -- report n: counts ------------------> |
 *        | <---- fills n: what it came to, slack - |
 *        | <---- fills n: pushed, others moved --- |
 *        | -- report n+1 ------------------------> |
 *
 * Why it survives loss, doubling, reordering and replay, though gRPC would
 * forbid them: the nodes are also run over a network that does all of it.
 *
 *  - Stop and wait. A limiter has at most one report unanswered on a link;
 *    it repeats it, same number and same content, until the fills that
 *    answer it come. A root takes report n only if n is the successor of the
 *    last it took; a repeated one is answered again and counted never. So
 *    both sides know the total that the other holds, and what travels is
 *    the difference to it. It is flow control too: a root that can't keep
 *    up answers later, and nothing piles up anywhere.
 *  - A count says at what pace it presumably goes on, and the root goes on
 *    adding that; the next count of the slot takes its place. What is lost on
 *    the way delays that.
 *  - Totals are absolute where a session begins (announce.base), so a
 *    reconnect that lost an answer counts nothing twice.
 *  - Every message bears the session number of the hello it belongs to;
 *    others are dropped.
 *  - A region's root hands up what its limiters count. They report to all of
 *    its roots, and each names one its carrier: what it hands to a carrier,
 *    whichever, it hands over once (count.carry; tally.c).
 *  - Quotas go in the order of epochs, each in its present state; a limiter
 *    says the epoch it has reached in each report. Any prefix is sound, any
 *    loss is repaired by starting again from there.
 *
 * Messages are plain values; arrays and texts in them are borrowed from who
 * made them until its next call. Fills are in 1/1024 units (WEIR_FILL_ONE),
 * ages and waits in nanoseconds; no instant ever travels. */

#ifndef WEIR_MESSAGE_H
#define WEIR_MESSAGE_H

#include <string.h>

#include "base/base.h"
#include "quota/catalog.h"

#define WEIR_PROTOCOL 1          /* the version in hello and welcome */
#define WEIR_INCARNATION_SIZE 16 /* bytes */
#define WEIR_FILL_FRAC 10        /* bits of a unit's fraction on the wire */
#define WEIR_FILL_ONE 1024       /* a unit of fill on the wire */
#define WEIR_PACE_SHIFT 33
#define WEIR_PACE_SPAN ((weir_duration)1 << WEIR_PACE_SHIFT) /* 8.6 s */
#define WEIR_PACE_MAX ((uint64_t)1 << 40)
#define WEIR_AHEAD_MAX ((uint64_t)1 << 44)
/* A pace is good for so many report intervals of silence. */
#define WEIR_PACE_INTERVALS 2

/* Bounds on one message; a decoder refuses what is over. */
#define WEIR_REPORT_COUNTS_MAX 8192
#define WEIR_REPORT_ANNOUNCES_MAX 2048
#define WEIR_FILLS_MAX 8192
/* A limiter announces no more slots than this in a second on a link, in the
 * long run, whatever the number of names it is flooded with. */
#define WEIR_ANNOUNCES_PER_S 20000
#define WEIR_QUOTAS_MAX 512
#define WEIR_MESSAGE_BYTES_MAX (4u << 20)

enum weir_message_type {
    WEIR_MESSAGE_HELLO = 1,
    WEIR_MESSAGE_WELCOME = 2,
    WEIR_MESSAGE_QUOTAS = 3,
    WEIR_MESSAGE_REPORT = 4,
    WEIR_MESSAGE_FILLS = 5,
};

/* A quota store: which, how often restored, how far. */
struct weir_store_id {
    uint8_t uuid[16];  /* all zero: not known yet */
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
    struct weir_text name;       /* for people: "service@host", <= 255 B */
    struct weir_store_id store;  /* whose quotas it has */
    uint64_t epoch;              /* up to which */
    bool region;                 /* it is the upper half of a region's root */
};

/* What a root tells its limiters to do. */
struct weir_settings {
    weir_duration report_interval; /* 10 ms .. 1 h */
    weir_duration stale_after;     /* >= report_interval */
    bool slack;                    /* report by slack, not only by time */
    bool correction_auto;          /* learn the ratio */
    uint32_t correction_ppm;       /* extrapolate others' counts, 10^-6 */
};

struct weir_welcome {
    uint32_t protocol;
    uint8_t incarnation[WEIR_INCARNATION_SIZE]; /* of the root */
    struct weir_text name;
    weir_duration age;          /* since this incarnation was born */
    bool ready;                 /* has its quotas; else store is unknown */
    struct weir_store_id store;
    uint64_t epoch;             /* the newest it has */
    struct weir_settings settings;
    bool carries;               /* it has an upstream: may be a carrier */
    /* Of one that carries: the last report it took of this limiter, in
     * whatever session; 0 and the session of the first hello it remembers
     * if there was none. */
    uint64_t last_session;
    uint64_t last_number;
    weir_duration top_age;      /* as in fills */
};

/* Changes in the order of epochs. 'full': forget what isn't named between
 * here and the message that reaches 'target'. */
struct weir_quotas {
    bool full;        /* the first message of a whole set; 'from' is 0 */
    uint64_t from;    /* holds every change above this epoch … */
    uint64_t epoch;   /* … up to this one, reached when they are applied */
    uint64_t target;  /* the root's newest */
    size_t count;
    const struct weir_change *changes;
};

/* From now on 'slot' means the quota 'name' on this link. 'base' is the
 * total from which this link's counts are differences; 'fill' the bucket as
 * the limiter knew it without its counts above 'base' (a root that has just
 * been born takes it over). */
struct weir_announce {
    uint32_t slot;
    struct weir_text name;
    uint64_t created; /* of the quota, or of the instance's template */
    uint64_t base;    /* modulo 2^64 */
    uint64_t refused; /* the same of refusals */
    int64_t fill;     /* 1/1024 units */
    bool witnessed;   /* another root has spoken since this one was born:
                       * what others counted since is in 'fill' */
    bool sank;        /* a report that lowered the total is in doubt: a root
                       * that knows the slot may rightly hold less than
                       * 'base' */
};

/* A slot's counts since the last answered report. */
struct weir_count {
    uint32_t slot;
    int64_t passed;   /* units; refunds make it negative */
    uint64_t refused; /* units */
    int64_t late;     /* of 'passed': what has drained from the limiter's
                       * own bucket before the root could hear of it, or
                       * was above its high burst */
    uint64_t pace;    /* what it presumably goes on to pass: units in
                       * WEIR_PACE_SPAN; the root adds that until it hears
                       * of the slot again */
    int64_t carry;      /* of a report that is carried: units to be carried
                         * up, mostly those passed; else 0 */
    uint64_t ahead;     /* of a region's root: units that it presumes of its
                         * limiters by now and 'passed' has not; they end
                         * with the pace. 0 without a pace */
};

struct weir_report {
    uint64_t number;  /* 1, 2, … in a session */
    uint64_t epoch;   /* of the limiter's quotas */
    weir_duration late_from; /* the link was down, or slow, since then */
    uint64_t unknown; /* requests by unknown names, total */
    bool carried;     /* the root is this limiter's carrier */
    size_t announce_count;
    const struct weir_announce *announces;
    size_t count;
    const struct weir_count *counts; /* slots strictly ascending */
};

/* A bucket as the root sees it, this limiter's counts up to report 'number'
 * included. 'slack' is how far the limiter's count may leave what those and
 * their pace predict before it must report at once: 1/1024 units;
 * UINT64_MAX: nothing to fear. */
struct weir_fill {
    uint32_t slot;
    int64_t fill;     /* 1/1024 units; without what is presumed of us */
    uint64_t slack;
    uint64_t pace;    /* of all others, from here on: units in WEIR_PACE_SPAN */
};

struct weir_fills {
    bool answer;      /* to report 'number'; else pushed after it */
    uint64_t number;  /* the last report taken */
    uint64_t stamp;   /* rises with every fills message of a session */
    weir_duration stretch; /* report no more often than this; 0: as set */
    uint32_t limiters;     /* connected to this root */
    weir_duration top_age; /* how long the topmost root has been silent beyond
                            * what is usual; 0: this is one, or it was just
                            * heard; WEIR_NEVER: it never was */
    size_t count;
    const struct weir_fill *fills;   /* slots strictly ascending */
    size_t unknown_count;
    const uint32_t *unknown;         /* announced slots it has no quota for:
                                      * announce them again later */
};

struct weir_message {
    enum weir_message_type type;
    uint64_t session; /* of the link: the limiter's choice, in every one */
    union {
        struct weir_hello hello;
        struct weir_welcome welcome;
        struct weir_quotas quotas;
        struct weir_report report;
        struct weir_fills fills;
    };
};

#endif /* WEIR_MESSAGE_H */
