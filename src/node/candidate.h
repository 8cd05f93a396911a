/* SPDX-License-Identifier: MIT
 * node/candidate.h - one who wants to be master, among others who do: the
 * election by leases and one key of a store like etcd, as a machine without
 * sockets or clock.
 *
 *     weir_candidate_link(c, true, now)         the store can be asked
 *     while (weir_candidate_next(c, &ask, now)) say it to the store
 *     weir_candidate_receive(c, &answer, now)   of each ask, when it comes
 *     weir_candidate_tick(c, now)               at weir_candidate_deadline(c)
 *     weir_candidate_change(c, &change, now)    after each of these
 *
 * What must hold, whatever happens to messages and processes:
 *
 *  - At no instant do two candidates hold the mastership, as long as their
 *    clocks run at the same rate to 5 % over a ttl, and nobody else writes to
 *    the key. A master holds it from an answer on that says so until its
 *    lease, counted from the *sending* of the last keep-alive that the store
 *    stands by, less a tenth of it, is over; the store counts the whole lease
 *    from when that arrived. To hold is a matter of the clock alone: a process
 *    that was stopped doesn't hold when it wakes, before it has heard anything.
 *    (A store that is put back to an older state has forgotten a lease that
 *    isn't over. Who knows that it was waits for a ttl; one that was born
 *    later can't know.)
 *  - Terms rise from mastership to mastership: a term is WEIR_CANDIDATE_TERMS
 *    and the store's revision at which the key was created (or, should the
 *    store have been put back, one more than the highest term heard of).
 *  - Nobody waits for a time where there is something to hear: who isn't
 *    master watches the key from the revision on at which it was read, keeps a
 *    lease ready, and asks for the key when it goes.
 *
 * 'now' is any clock that goes on while the machine sleeps, always the same
 * one. One thread. Lives in the caller's memory; owns nothing. */

#ifndef WEIR_CANDIDATE_H
#define WEIR_CANDIDATE_H

#include "base/base.h"
#include "base/rng.h"

#define WEIR_CANDIDATE_TEXT_MAX 255 /* bytes of an identity */
#define WEIR_CANDIDATE_TTL_MIN WEIR_SECOND
#define WEIR_CANDIDATE_TTL_MAX (3600 * WEIR_SECOND)
/* Terms begin above all that are times of a wall clock in milliseconds, as
 * those of elections by other means are: a fleet may go over to this one. */
#define WEIR_CANDIDATE_TERMS ((uint64_t)1 << 50)
#define WEIR_CANDIDATE_FAREWELL WEIR_SECOND /* for a hand-over, at most */

struct weir_candidate_options {
    weir_duration ttl;         /* WEIR_CANDIDATE_TTL_MIN .. _MAX */
    struct weir_text identity; /* 1 .. WEIR_CANDIDATE_TEXT_MAX bytes; copied */
    uint64_t seed;             /* of pauses */
};

/* ---- What it asks of the store ---- */

enum weir_candidate_ask_type {
    WEIR_CANDIDATE_GRANT,  /* a lease of the ttl */
    WEIR_CANDIDATE_KEEP,   /* 'lease' for another ttl */
    WEIR_CANDIDATE_CREATE, /* the key, with the identity and 'lease', if there
                            * is none; else what it is; one transaction */
    WEIR_CANDIDATE_WATCH,  /* the key, from 'revision' on, until it says
                            * 'over' */
    WEIR_CANDIDATE_REVOKE, /* 'lease', and the key with it */
    WEIR_CANDIDATE_LEAVE,  /* isn't answered: this server of the store is too
                            * slow or fails; _link(false), and then another */
};

struct weir_candidate_ask {
    enum weir_candidate_ask_type type;
    uint32_t session; /* how often the link was lost before */
    int64_t lease;
    int64_t revision;
    weir_instant sent_at; /* the 'now' of weir_candidate_next() */

    /* Private. A CREATE that is answered in the raft term in which a
     * keep-alive was says that its lease was extended until … */
    weir_instant kept_until; /* 0: it is to say nothing of the kind */
    uint64_t kept_term;
    int64_t top_revision; /* the highest one heard of */
};

/* Of an ask comes one answer, of a WATCH any number until one is 'over' or
 * 'failed'. Answers may come in any order, late, or, if the link goes, not at
 * all. */
struct weir_candidate_answer {
    struct weir_candidate_ask ask; /* as it was asked */
    bool failed;                   /* refused, or no answer in time */
    bool refused; /* … by a store that is well: another server of it would
                       * do the same */
    bool gone;    /* there is no such lease (any more) */
    bool created; /* CREATE: the key is ours now */
    bool changed; /* WATCH: the key has, to what is below */
    bool over;    /* WATCH: nothing more comes of it */
    bool found;   /* there is the key … */
    struct weir_text value;  /* … */
    int64_t create_revision; /* … */
    int64_t lease;           /* the key's; GRANT: the new one */
    int64_t revision;        /* CREATE: of the store; WATCH: of the change */
    int64_t ttl_s;           /* GRANT, KEEP: as the store has it, > 0 */
    uint64_t raft_term;      /* KEEP, CREATE: of the server that answered */
};

/* ---- What it tells ---- */

enum weir_candidate_why {
    WEIR_CANDIDATE_WON,
    WEIR_CANDIDATE_OTHER,    /* another is master */
    WEIR_CANDIDATE_VACANT,   /* nobody is */
    WEIR_CANDIDATE_UNKNOWN,  /* the store hasn't been heard for a ttl */
    WEIR_CANDIDATE_RAN_OUT,  /* was master: no keep-alive was answered */
    WEIR_CANDIDATE_NO_LEASE, /* …: the store has dropped the lease */
    WEIR_CANDIDATE_KEY_LOST, /* …: somebody removed the key or wrote to it */
    WEIR_CANDIDATE_RESIGNED, /* …: by its own wish */
};

struct weir_candidate_change {
    enum weir_candidate_why why;
    bool is_master;
    uint64_t term; /* of this mastership, or of the other master's; 0:
                    * nobody's */
};

/* Private, but for its size. */
struct weir_candidate {
    weir_duration ttl;
    struct weir_rng rng;
    char identity[WEIR_CANDIDATE_TEXT_MAX];
    size_t identity_len;

    /* The link. */
    bool is_linked;
    bool is_leaving;
    uint32_t session;
    uint32_t unanswered;   /* asks */
    uint32_t failures;     /* in a row */
    weir_instant heard_at; /* the last answer, or when the wait began */
    weir_instant lost_at;  /* the sight of the key */
    weir_instant retry_at; /* nothing but keep-alives before */
    weir_duration backoff;
    enum weir_candidate_ask_type troubled; /* what has failed last */

    /* The lease. */
    int64_t lease;            /* 0: none */
    weir_instant lease_until; /* by our clock */
    weir_instant kept_until; /* … if the store stands by a keep-alive that was
                               * answered … */
    uint64_t kept_term;      /* … in this raft term */
    weir_instant keep_at;    /* the next keep-alive */
    int64_t stale;           /* a lease to be revoked; 0: none */
    bool is_granting;
    bool is_revoking;

    /* The key. */
    weir_instant creating_at; /* the CREATE that is waited for; 0: none is */
    bool want_key;            /* it has to be asked for, or read again */
    bool is_read;             /* is as below, at 'revision' */
    bool is_watching;
    bool is_watched; /* and the watch has begun */
    int64_t revision;
    int64_t top_revision;     /* over all links */
    weir_instant quiet_until; /* another may hold what the store forgot */

    /* The mastership. */
    bool is_master;
    bool is_resigned;
    weir_instant farewell_at;
    int64_t created_at; /* the revision at which the master's key was made */
    uint64_t term;
    uint64_t top_term; /* the highest one heard of */
    char master[WEIR_CANDIDATE_TEXT_MAX];
    size_t master_len;
    bool has_change;
    struct weir_candidate_change change;
};

/* WEIR_EINVAL: outside the ranges. Not linked, not master. */
int weir_candidate_init(struct weir_candidate *c,
                        const struct weir_candidate_options *options);
/* The link is up, or down; after 'down' no answer of before may come, and
 * if it does, it isn't heard. */
void weir_candidate_link(struct weir_candidate *c, bool up, weir_instant now);
void weir_candidate_receive(struct weir_candidate *c,
                            const struct weir_candidate_answer *answer,
                            weir_instant now);
void weir_candidate_tick(struct weir_candidate *c, weir_instant now);
/* The next thing to be asked; false: nothing. */
bool weir_candidate_next(struct weir_candidate *c,
                         struct weir_candidate_ask *out, weir_instant now);
/* When _tick() and _next() want to be called again; UINT64_MAX: never. */
weir_instant weir_candidate_deadline(const struct weir_candidate *c);

/* Whether it is master and nobody else can be. To be asked at the moment at
 * which it matters. */
bool weir_candidate_holds(const struct weir_candidate *c, weir_instant now);
/* Until when, if no more keep-alives are answered; 0: it doesn't hold. */
weir_instant weir_candidate_until(const struct weir_candidate *c);
/* Who is master, as far as is known; empty: nobody, or it isn't known. Never
 * our own identity when it isn't us. Borrowed until the next call. */
struct weir_text weir_candidate_master(const struct weir_candidate *c);
/* What has changed since the last call; true once. Of several changes the
 * last is told; a master of another term than before was none in between. */
bool weir_candidate_change(struct weir_candidate *c,
                           struct weir_candidate_change *out);

/* Stands down for good, and asks for its lease to be revoked: the others
 * hear of that at once. */
void weir_candidate_resign(struct weir_candidate *c, weir_instant now);
/* After that: the store has done so, or it takes too long. */
bool weir_candidate_is_gone(const struct weir_candidate *c, weir_instant now);

#endif /* WEIR_CANDIDATE_H */
