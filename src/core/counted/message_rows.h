/* SPDX-License-Identifier: MIT
 * counted/message_rows.h - messages of a few rows each: asks and answers of
 * exact quotas, wants and grants of leased ones, limits of adaptive ones.
 * counted/message.h has their order and the rules of all messages. */

#ifndef WEIR_MESSAGE_ROWS_H
#define WEIR_MESSAGE_ROWS_H

#include "core/algorithm/algorithm.h"
#include "core/base/base.h"
#include "core/concurrency/latency_window.h"
#include "core/quota/lease.h"

#define WEIR_ASKS_MAX 1024 /* in a message, and unanswered in a limiter */
#define WEIR_PATIENCE_MAX (60 * WEIR_SECOND) /* of an ask; cut to this */
#define WEIR_LEASES_MAX 1024 /* quotas in one message of wants or grants */
#define WEIR_WINDOWS_MAX 16  /* of them, with what was measured */
#define WEIR_LIMITS_MAX 256  /* adaptive limits in one message */

/* One step of the bucket state of 'name', which the root keeps for all limiters
 * (sharing: exact, store: root). */
struct weir_step_ask {
    uint64_t number; /* > 0 */
    struct weir_text name;
    struct weir_algorithm_ask ask;
    weir_duration patience; /* how long the caller waits at most */
};

/* The wire uses these numbers. */
enum weir_step_error {
    WEIR_STEP_ANSWERED = 0,
    WEIR_STEP_UNKNOWN = 1, /* no exact quota of roots, or not known here yet */
    WEIR_STEP_NO_ROOM = 2, /* for another bucket state; nothing was charged */
    WEIR_STEP_AWAY = 3,    /* a region's root can't reach the roots above, or
                            * they don't answer; it may have been charged */
    WEIR_STEP_DENIED = 4,  /* this link's credential may not take from it */
};

/* The answer to one ask. Each has its own number, not only the first as in a
 * report: a region's root answers in the order of the roots above. */
struct weir_step_answer {
    uint64_t number;
    enum weir_step_error error; /* if not ANSWERED, all zero: */
    struct weir_algorithm_answer answer;
};

struct weir_asks {
    size_t count;                     /* 1 .. WEIR_ASKS_MAX */
    const struct weir_step_ask *asks; /* numbers strictly ascending */
};
struct weir_answers {
    size_t count; /* 1 .. WEIR_ASKS_MAX */
    const struct weir_step_answer *answers;
};

/* A want of a client for one leased quota: a limiter, or a server that asks for
 * its own clients. A release gives everything back, has no other field but
 * 'taken', and is not answered. */
struct weir_want {
    struct weir_text name;
    bool release;
    bool learning;  /* not all of the client's own lease holders have reported:
                     * it may have handed out more than it says */
    double has;     /* the capacity it uses, or has handed out, in the unit of a
                     * band's wants */
    double safe;    /* the capacity it uses when its lease is over, or has
                     * promised for then, in the same unit */
    uint64_t taken; /* the serial of the grant it uses; 0: none of this
                     * master */
    /* roster token, sent to a master that hasn't answered yet: the last one
     * of an earlier master, while that master's grant is in use */
    uint64_t roster_token;
    size_t band_count;             /* 1 .. WEIR_LEASE_BANDS_MAX */
    const struct weir_band *bands; /* priorities strictly descending */
};

/* The latencies measured by an adaptive quota of a fleet, since the last wants
 * that had it: sent once. Lost wants lose it, and a doubled message isn't
 * taken. */
struct weir_want_window {
    uint32_t want; /* the place of its want in this message */
    struct weir_latency_batch batch;
};

struct weir_wants {
    uint64_t number; /* > 0; rises while the limiter lives */
    uint64_t term;   /* the highest term that the root sent on this link: a
                      * master takes only wants sent in its own term. Older
                      * wants may be long out of date, and the previous master
                      * may have granted more since. */
    size_t count;    /* 1 .. WEIR_LEASES_MAX */
    const struct weir_want *wants;
    size_t window_count; /* at most WEIR_WINDOWS_MAX, places ascending */
    const struct weir_want_window *windows;
};

/* The wire uses these numbers. */
enum weir_lease_error {
    WEIR_LEASE_GRANTED = 0,
    WEIR_LEASE_UNKNOWN = 1,    /* no such quota here, or not yet */
    WEIR_LEASE_NOT_LEASED = 2, /* it isn't leased */
    WEIR_LEASE_NO_ROOM = 3,    /* for another quota, holder or priority */
    WEIR_LEASE_DENIED = 4,     /* this link's credential may not take from it */
};

struct weir_lease_grant {
    struct weir_text name;
    enum weir_lease_error error; /* if not GRANTED, all zero: */
    struct weir_grant grant;     /* its 'holder' isn't sent */
    size_t guarantee_count;      /* at most WEIR_LEASE_GUARANTEES_MAX */
    const struct weir_guarantee *guarantees; /* of one twice the first counts */
};

/* Grants; without any, the message says which root is master. */
struct weir_grants {
    uint64_t answer; /* the number of the wants; 0: pushed */
    uint64_t term;
    bool elsewhere; /* this root isn't master: no grant, and 'term' is the
                     * highest it knows */
    struct weir_text master; /* the master's address, as in welcome */
    size_t count;            /* at most WEIR_LEASES_MAX */
    const struct weir_lease_grant *grants;
};

/* The state of an adaptive limit in one process. */
struct weir_adaptive_limit {
    struct weir_text name; /* of the quota or instance */
    double limit;          /* units in flight: 0 .. WEIR_PERMITS_MAX */
    uint32_t in_flight;
    uint32_t reason;       /* of its last move: enum weir_limit_reason, or a
                            * number of a later version */
    weir_duration latency; /* of the last window; 0: none */
    weir_duration age;     /* since it last moved */
};
/* All adaptive limits of a process, or the first ones; they replace those of
 * the last message. There is no answer: a lost message is replaced by the next,
 * sent when a limit has moved. */
struct weir_limits {
    size_t count; /* at most WEIR_LIMITS_MAX */
    const struct weir_adaptive_limit *limits;
};

#endif /* WEIR_MESSAGE_ROWS_H */
