/* SPDX-License-Identifier: MIT
 * count/message.h - what a limiter and a root say to each other.
 *
 * One stream a root link, nine messages:
 *
 *     limiter                                   root
 *        | -- hello: who I am, my epoch -------->  |
 *        | <------- welcome: who I am, settings -- |
 *        | <--------------- quotas (by epoch) ---- |
 *        | -- report n: counts ------------------> |
 *        | <---- fills n: what it came to, slack - |
 *        | <---- fills n: pushed, others moved --- |
 *        | -- report n+1 ------------------------> |
 *        | -- asks: steps of exact meters -------> |
 *        | <----------------- answers to some ---- |
 *        | -- wants n: of leased quotas -------->  |
 *        | <-------- grants: the answer to n ----- |
 *        | <--------------- grants: pushed ------- |
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
 *  - An ask is at most once: numbers rise over the asks of a session, and a
 *    root takes only what is above all it took. A doubled or late one is
 *    dropped; what is lost costs who asked its patience, and nothing is said
 *    again, since nobody knows whether it was charged.
 *  - Wants are said in full, and again; grants have serials, and wants say
 *    which was taken (lease/holder.h, lease/broker.h). What is lost costs
 *    time, what is doubled or late is known by its serial or its number.
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

#include "algo/meter.h"
#include "base/base.h"
#include "quota/catalog.h"
#include "quota/lease.h"

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
#define WEIR_ASKS_MAX 1024 /* in a message, and under way in one limiter */
#define WEIR_PATIENCE_MAX (60 * WEIR_SECOND) /* of an ask: more is cut */
#define WEIR_TIERS_MAX 16                    /* of regions above each other */
#define WEIR_LEASES_MAX 1024 /* quotas in one message of wants or grants */
#define WEIR_LIMITS_MAX 256  /* adaptive limits that a limiter tells of */
#define WEIR_MASTER_MAX 255  /* bytes of a master's address */
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

/* A quota store: which, how often restored, how far. */
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
    struct weir_store_id store; /* whose quotas it has */
    uint64_t epoch;             /* up to which */
    bool region; /* it is the upper half of a region's root … */
    struct weir_text region_name; /* … and that region's, <= 255 B; absent: it
                                   * has none. All roots of a region are one
                                   * client of what is leased */
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
    weir_duration age; /* since this incarnation was born */
    bool ready;        /* has its quotas; else store is unknown */
    bool provisional;  /* it can't ask its store, which may be ahead
                                 * of 'epoch': nothing is forgotten for it */
    struct weir_store_id store;
    uint64_t epoch; /* the newest it has */
    struct weir_settings settings;
    bool carries; /* it has an upstream: may be a carrier */
    /* Of one that carries: the last report it took of this limiter, in
     * whatever session; 0 and the session of the first hello it remembers
     * if there was none. */
    uint64_t last_session;
    uint64_t last_number;
    weir_duration top_age;           /* as in fills */
    size_t region_count;             /* the regions between it and the topmost
                                 * roots, its own included; at most … */
    const struct weir_text *regions; /* … WEIR_TIERS_MAX names */
    bool leases;                     /* it is master of the leased quotas … */
    uint64_t term;           /* … for the time of this number, which rises
                                 * with each master; else the highest it has
                                 * heard of */
    struct weir_text master; /* if it isn't, who is: an address, at most
                                 * WEIR_MASTER_MAX bytes; absent: unknown */
};

/* Changes in the order of epochs. 'full': forget what isn't named between
 * here and the message that reaches 'target'. */
struct weir_quotas {
    bool full;       /* the first message of a whole set; 'from' is 0 */
    uint64_t from;   /* holds every change above this epoch … */
    uint64_t epoch;  /* … up to this one, reached when they are applied */
    uint64_t target; /* the root's newest */
    uint64_t known;  /* of a whole set: up to where the root knew the limiter
                       * to be. One that is further by now, and past 'target',
                       * has it from another root, and keeps it. */
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
    bool in_flight;   /* of kind concurrency: the totals that counts lead to
                       * from 'base' are what its permits hold then */
};

/* A slot's counts since the last answered report. */
struct weir_count {
    uint32_t slot;
    int64_t passed;   /* units; refunds make it negative */
    uint64_t refused; /* units */
    int64_t late;     /* of 'passed': what has drained from the limiter's
                       * own bucket before the root could hear of it, or
                       * was above its high burst. Without a 'late_from' the
                       * root alone was the reason: it didn't rule the slot */
    uint64_t pace;    /* what it presumably goes on to pass: units in
                       * WEIR_PACE_SPAN; the root adds that until it hears
                       * of the slot again */
    int64_t carry;    /* of a report that is carried: units to be carried
                         * up, mostly those passed; else 0 */
    uint64_t ahead;   /* of a region's root: units that it presumes of its
                         * limiters by now and 'passed' has not; they end
                         * with the pace. 0 without a pace */
};

struct weir_report {
    uint64_t number; /* 1, 2, … in a session */
    uint64_t epoch;  /* of the limiter's quotas */
    bool no_room;    /* … the next of which its table has no room for: it
                       * needn't be said again … */
    bool again;      /* … but now: there is */
    weir_duration late_from; /* the link was down, or slow, since then */
    uint64_t unknown;        /* requests by unknown names, total */
    bool carried;            /* the root is this limiter's carrier */
    /* A quota of the limiter's, below one that this root has denied it;
     * absent: none. */
    struct weir_text below;
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
    int64_t fill; /* 1/1024 units; without what is presumed of us */
    uint64_t slack;
    uint64_t pace; /* of all others, from here on: units in WEIR_PACE_SPAN */
};

struct weir_fills {
    bool answer;           /* to report 'number'; else pushed after it */
    uint64_t number;       /* the last report taken */
    uint64_t stamp;        /* rises with every fills message of a session */
    weir_duration stretch; /* report no more often than this; 0: as set */
    uint32_t limiters;     /* connected to this root */
    weir_duration top_age; /* how long the topmost root has been silent beyond
                            * what is usual; 0: this is one, or it was just
                            * heard; WEIR_NEVER: it never was */
    size_t count;
    const struct weir_fill *fills; /* slots strictly ascending */
    size_t unknown_count;
    const uint32_t *unknown; /* announced slots it has no quota for:
                                      * announce them again later */
    size_t denied_count;     /* <= WEIR_REPORT_ANNOUNCES_MAX */
    const uint32_t *denied;  /* slots announced by that report whose
                                      * names this link's credential may not
                                      * take from; unknown too once they have
                                      * counts */
};

/* One step of the meter 'name', which the root keeps for all (sharing: exact,
 * store: root). */
struct weir_step_ask {
    uint64_t number; /* > 0 */
    struct weir_text name;
    struct weir_meter_ask ask;
    weir_duration patience; /* who asks waits no longer than that */
};

/* The numbers are the wire's. */
enum weir_step_error {
    WEIR_STEP_ANSWERED = 0,
    WEIR_STEP_UNKNOWN = 1, /* no exact quota of a root's, or not here yet */
    WEIR_STEP_NO_ROOM = 2, /* for another meter; nothing was charged */
    WEIR_STEP_AWAY = 3,    /* of a region's root: those above are away, or don't
                            * answer; whether it was charged isn't known */
    WEIR_STEP_DENIED = 4,  /* this link's credential may not take from it */
};

/* Of one ask. Each has its number, not the first alone as in a report: a
 * region's root answers in the order in which roots above do. */
struct weir_step_answer {
    uint64_t number;
    enum weir_step_error error; /* if it is any, all zero: */
    struct weir_meter_answer answer;
};

struct weir_asks {
    size_t count;                     /* 1 .. WEIR_ASKS_MAX */
    const struct weir_step_ask *asks; /* numbers strictly ascending */
};
struct weir_answers {
    size_t count; /* 1 .. WEIR_ASKS_MAX */
    const struct weir_step_answer *answers;
};

/* What a limiter, or who asks on behalf of others, wants of one leased quota.
 * A release gives all back, has nothing but 'taken' beside, and isn't
 * answered. */
struct weir_want {
    struct weir_text name;
    bool release;
    bool learning;  /* its own holders haven't all been heard of: it may have
                     * handed out more than it says */
    double has;     /* what it goes by, or has handed out: as a band's wants */
    double safe;    /* what it goes by when its lease is over, or has promised
                     * for then: likewise */
    uint64_t taken; /* the serial of the grant that it goes by; 0: none of this
                     * master */
    uint64_t roll;  /* to a master that hasn't answered yet: the last one of
                     * another's, if it goes by a grant of that one's still */
    size_t band_count;             /* 1 .. WEIR_LEASE_BANDS_MAX */
    const struct weir_band *bands; /* priorities strictly descending */
};

struct weir_wants {
    uint64_t number; /* > 0; rises as long as the limiter lives */
    uint64_t term;   /* the highest that the root has told on this link: a
                      * master hears only what was said when it was one. What
                      * was sent before may be of long ago, and the master
                      * before may have granted more since. */
    size_t count;    /* 1 .. WEIR_LEASES_MAX */
    const struct weir_want *wants;
};

/* The numbers are the wire's. */
enum weir_lease_error {
    WEIR_LEASE_GRANTED = 0,
    WEIR_LEASE_UNKNOWN = 1,    /* no such quota here, or not yet */
    WEIR_LEASE_NOT_LEASED = 2, /* it is shared in another way */
    WEIR_LEASE_NO_ROOM = 3,    /* for another quota, holder or priority */
    WEIR_LEASE_DENIED = 4,     /* this link's credential may not take from it */
};

struct weir_lease_grant {
    struct weir_text name;
    enum weir_lease_error error; /* if it is any, all zero: */
    struct weir_grant grant;     /* its 'holder' doesn't travel */
};

/* Without any grant it says who is master. */
struct weir_grants {
    uint64_t answer; /* the number of the wants; 0: pushed */
    uint64_t term;
    bool elsewhere; /* this root isn't master; then there is no grant, and
                      * 'term' is the highest it has heard of */
    struct weir_text master; /* … but there, as in welcome */
    size_t count;            /* at most WEIR_LEASES_MAX */
    const struct weir_lease_grant *grants;
};

/* Where an adaptive limit of one process stands. */
struct weir_limit_told {
    struct weir_text name; /* of the quota or instance */
    double limit;          /* units in flight: 0 .. WEIR_PERMITS_MAX */
    uint32_t in_flight;
    uint32_t reason;       /* of its last move, by the numbers of enum
                            * weir_limit_reason; or one of a later version */
    weir_duration latency; /* of the last window; 0: none */
    weir_duration age;     /* since it last moved */
};
/* All of them, or the first; those told before are forgotten. Nobody answers:
 * what is lost is told again when something has moved. */
struct weir_limits {
    size_t count; /* at most WEIR_LIMITS_MAX */
    const struct weir_limit_told *limits;
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
        struct weir_asks asks;
        struct weir_answers answers;
        struct weir_wants wants;
        struct weir_grants grants;
        struct weir_limits limits;
    };
};

#endif /* WEIR_MESSAGE_H */
