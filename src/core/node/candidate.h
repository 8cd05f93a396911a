/* SPDX-License-Identifier: MIT
 * node/candidate.h - a process that stands for master, among others: the
 * election by leases and one key of a store like etcd, as a machine without
 * sockets or clock.
 *
 *     weir_candidate_link(c, true, now)         a link to the store is up
 *     while (weir_candidate_next(c, &ask, now)) send the ask to the store
 *     weir_candidate_receive(c, &answer, now)   each answer, when it comes
 *     weir_candidate_tick(c, now)               at weir_candidate_deadline(c)
 *     weir_candidate_change(c, &change, now)    after each of these
 *
 * Guarantees, for any loss of messages and failure of processes:
 *
 *  - At no instant do two candidates hold the mastership, provided that their
 *    clocks run at the same rate to 5 % over a ttl, and nothing else writes to
 *    the key. A master holds it from an answer that says so until its lease is
 *    over, counted from the *sending* of the last keep-alive that was
 *    confirmed, less a tenth of the lease; the store counts the whole lease
 *    from the arrival. Holding depends on the clock alone: a process that was
 *    stopped doesn't hold when it wakes, before it has received anything. (A
 *    store restored to an older state has forgotten a lease that isn't over. A
 *    candidate that knew of it waits for a ttl; one that started later can't
 *    know.)
 *  - Terms rise from mastership to mastership: a term is WEIR_CANDIDATE_TERMS
 *    plus the store's revision at which the key was created (or, if the store
 *    was restored, one more than the highest known term).
 *  - No step waits for time if the store can notify it: a candidate that isn't
 *    master watches the key from the revision at which it was read, keeps a
 *    lease ready, and asks for the key when it goes.
 *
 * 'now' is any clock that goes on while the machine sleeps, always the same
 * one. One thread. Lives in the caller's memory; owns nothing. */

#ifndef WEIR_CANDIDATE_H
#define WEIR_CANDIDATE_H

#include "core/base/base.h"
#include "core/base/rng.h"

#define WEIR_CANDIDATE_TEXT_MAX 255 /* bytes of an identity */
#define WEIR_CANDIDATE_TTL_MIN WEIR_SECOND
#define WEIR_CANDIDATE_TTL_MAX (3600 * WEIR_SECOND)
/* Terms begin above all wall-clock times in milliseconds, which elections by
 * other means use as terms: a fleet may change over to this one. */
#define WEIR_CANDIDATE_TERMS ((uint64_t)1 << 50)
#define WEIR_CANDIDATE_FAREWELL WEIR_SECOND /* longest wait after resigning */

struct weir_candidate_options {
    weir_duration ttl;         /* WEIR_CANDIDATE_TTL_MIN .. _MAX */
    struct weir_text identity; /* 1 .. WEIR_CANDIDATE_TEXT_MAX bytes; copied */
    uint64_t seed;             /* of pauses */
};

/* ---- Asks to the store ---- */

enum weir_candidate_ask_type {
    WEIR_CANDIDATE_GRANT,  /* a lease of the ttl */
    WEIR_CANDIDATE_KEEP,   /* 'lease', for another ttl */
    WEIR_CANDIDATE_CREATE, /* the key, with the identity and 'lease', if it
                            * doesn't exist; else returns it; one transaction */
    WEIR_CANDIDATE_WATCH,  /* the key, from 'revision' on, until an answer is
                            * 'over' */
    WEIR_CANDIDATE_REVOKE, /* 'lease', and the key with it */
    WEIR_CANDIDATE_LEAVE,  /* not answered: this server of the store is too slow
                            * or fails; the caller calls _link(false), and links
                            * to another */
};

struct weir_candidate_ask {
    enum weir_candidate_ask_type type;
    uint32_t session; /* how often the link was lost before */
    int64_t lease;
    int64_t revision;
    weir_instant sent_at; /* the 'now' of weir_candidate_next() */

    /* Private. If this CREATE is answered in the raft term of the last
     * keep-alive's answer, the lease lasts until … */
    weir_instant kept_until; /* 0: it confirms nothing */
    uint64_t kept_term;
    int64_t top_revision; /* the highest one received */
};

/* Each ask has one answer; a WATCH has any number, until one is 'over' or
 * 'failed'. Answers may come in any order, late, or, if the link goes, not at
 * all. */
struct weir_candidate_answer {
    struct weir_candidate_ask ask; /* as it was asked */
    bool failed;                   /* refused, or no answer in time */
    bool refused; /* … by a healthy store: its other servers would refuse it
                   * too */
    bool gone;    /* there is no such lease (any more) */
    bool created; /* CREATE: the key is ours now */
    bool changed; /* WATCH: the key has changed, to the fields below */
    bool over;    /* WATCH: no more answers follow */
    bool found;   /* the key exists … */
    struct weir_text value;  /* … */
    int64_t create_revision; /* … */
    int64_t lease;           /* the key's; GRANT: the new one */
    int64_t revision;        /* CREATE: of the store; WATCH: of the change */
    int64_t ttl_s;           /* GRANT, KEEP: as the store has it, > 0 */
    uint64_t raft_term;      /* KEEP, CREATE: of the server that answered */
};

/* ---- Changes ---- */

enum weir_candidate_why {
    WEIR_CANDIDATE_WON,
    WEIR_CANDIDATE_OTHER,    /* another candidate is master */
    WEIR_CANDIDATE_VACANT,   /* there is no master */
    WEIR_CANDIDATE_UNKNOWN,  /* nothing was received from the store for a ttl */
    WEIR_CANDIDATE_RAN_OUT,  /* was master: no keep-alive was answered */
    WEIR_CANDIDATE_NO_LEASE, /* …: the store has dropped the lease */
    WEIR_CANDIDATE_KEY_LOST, /* …: the key was removed or written to */
    WEIR_CANDIDATE_RESIGNED, /* …: it resigned */
};

struct weir_candidate_change {
    enum weir_candidate_why why;
    bool is_master;
    uint64_t term; /* of this mastership, or of the other master's; 0: no
                    * master */
};

/* Private, except for its size. */
struct weir_candidate {
    weir_duration ttl;
    struct weir_rng rng;
    char identity[WEIR_CANDIDATE_TEXT_MAX];
    size_t identity_len;

    /* The link. */
    bool is_linked;
    bool is_leaving;
    uint32_t session;
    uint32_t unanswered;      /* asks */
    uint32_t failures;        /* in a row */
    weir_instant answered_at; /* the last answer, or when the wait began */
    weir_instant lost_at;     /* when the key was last known */
    weir_instant retry_at;    /* only keep-alives before this */
    weir_duration backoff;
    enum weir_candidate_ask_type troubled; /* the ask that failed last */

    /* The lease. */
    int64_t lease;            /* 0: none */
    weir_instant lease_until; /* by our clock */
    weir_instant kept_until; /* … if a keep-alive's answer is confirmed … */
    uint64_t kept_term;      /* … by an answer in this raft term */
    weir_instant keep_at;    /* the next keep-alive */
    int64_t stale;           /* a lease to be revoked; 0: none */
    bool is_granting;
    bool is_revoking;

    /* The key. */
    weir_instant creating_at; /* the unanswered CREATE was sent then; 0: none */
    bool want_key;            /* the key is to be created, or read again */
    bool is_read;             /* the key is as below, at 'revision' */
    bool is_watching;
    bool is_watched; /* … and the watch has begun */
    int64_t revision;
    int64_t top_revision;     /* over all links */
    weir_instant quiet_until; /* until then another may hold a lease that the
                               * store forgot */

    /* The mastership. */
    bool is_master;
    bool is_resigned;
    weir_instant farewell_at;
    int64_t created_at; /* the revision at which the master's key was created */
    uint64_t term;
    uint64_t top_term; /* the highest one known */
    char master[WEIR_CANDIDATE_TEXT_MAX];
    size_t master_len;
    bool has_change;
    struct weir_candidate_change change;
};

/* WEIR_EINVAL: outside the ranges. Not linked, not master. */
int weir_candidate_init(struct weir_candidate *c,
                        const struct weir_candidate_options *options);
/* The link is up, or down. Answers of an earlier link are ignored. */
void weir_candidate_link(struct weir_candidate *c, bool up, weir_instant now);
void weir_candidate_receive(struct weir_candidate *c,
                            const struct weir_candidate_answer *answer,
                            weir_instant now);
void weir_candidate_tick(struct weir_candidate *c, weir_instant now);
/* The next ask; false: none. */
bool weir_candidate_next(struct weir_candidate *c,
                         struct weir_candidate_ask *out, weir_instant now);
/* When _tick() and _next() are to be called again; UINT64_MAX: never. */
weir_instant weir_candidate_deadline(const struct weir_candidate *c);

/* Whether it is master and no other candidate can be. Call it immediately
 * before each act that needs the mastership. */
bool weir_candidate_holds(const struct weir_candidate *c, weir_instant now);
/* The master's identity, if known; empty: no master, or unknown. Never our own
 * identity while another is master. Borrowed until the next call. */
struct weir_text weir_candidate_master(const struct weir_candidate *c);
/* The change since the last call; true once. Of several changes it is the last;
 * if the term differs, there was no mastership in between. */
bool weir_candidate_change(struct weir_candidate *c,
                           struct weir_candidate_change *out);

/* Resigns for good, and asks the store to revoke its lease: the other
 * candidates are notified at once. */
void weir_candidate_resign(struct weir_candidate *c, weir_instant now);
/* After that: the lease was revoked, or WEIR_CANDIDATE_FAREWELL is over. */
bool weir_candidate_is_gone(const struct weir_candidate *c, weir_instant now);

#endif /* WEIR_CANDIDATE_H */
