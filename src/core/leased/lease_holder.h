/* SPDX-License-Identifier: MIT
 * leased/lease_holder.h - a lease holder: the part of one leased quota that a
 * process, or a server in between, has. The client's half. Pure; plain memory
 * of the caller, nothing to free. One thread at a time.
 *
 *     want() or use() ──> due() ──> ask() ─────> the lease pool
 *                             granted() <── answer ──'|
 *                             granted() <── push ─────'
 *     limit(now): what new use keeps to            in_use(): units in use
 *
 * Guarantees, however messages are lost or delayed
 * (src/core/leased/lease_holder.c shows why, test_lease_holder holds random
 * histories against a pool's account):
 *
 *   - Use under a grant is never more than the capacity of a grant with the
 *     serial 'taken' of any ask so far, or a higher one.
 *   - A lease, and its safe capacity's, run from the sending of the ask that is
 *     answered, by this machine's clock. The pool accounts them for longer,
 *     with any delay. A push lowers, or raises until the lease is over; it
 *     never extends it.
 *   - The demand in an ask is finite, and at least 0. */

#ifndef WEIR_LEASE_HOLDER_H
#define WEIR_LEASE_HOLDER_H

#include "core/base/rng.h"
#include "core/quota/lease.h"
#include "core/quota/quota.h"

/* A change of weir_lease_holder_want() by more than this part of the larger
 * value is sent early; smaller changes with the next refresh. */
#define WEIR_LEASE_HOLDER_CHANGE 0.1
/* Least time between two early asks; the first of all counts as one. An ask
 * that reports a taken serial isn't delayed. */
#define WEIR_LEASE_HOLDER_SPACING (100 * WEIR_MILLISECOND)
/* An ask without answer is repeated after that, then each time doubled. */
#define WEIR_LEASE_HOLDER_PATIENCE (500 * WEIR_MILLISECOND)
#define WEIR_LEASE_HOLDER_PATIENCE_MAX (4 * WEIR_SECOND)
/* Asks on their way with a remembered sending time. */
#define WEIR_LEASE_HOLDER_ASKS 8
/* A holder that was never answered has nothing for so long; then 'on_stale'
 * decides. */
#define WEIR_LEASE_HOLDER_FIRST WEIR_SECOND

/* An unanswered ask may have been granted. For so long after it was sent a
 * release is kept until it can be sent. */
#define WEIR_LEASE_HOLDER_UNSURE (30 * WEIR_SECOND)

/* Use is smoothed over the longer window, and may rise within the shorter. */
#define WEIR_LEASE_HOLDER_WINDOW (10 * WEIR_SECOND)
#define WEIR_LEASE_HOLDER_RISE WEIR_SECOND
/* Unused for so long, it wants nothing. */
#define WEIR_LEASE_HOLDER_IDLE (3 * WEIR_LEASE_HOLDER_WINDOW)
/* Units. A request now and then isn't refused for want of a grant. */
#define WEIR_LEASE_HOLDER_LEAST 0.1
/* The demand beyond the use, as a part of it: see lease_holder.c. */
#define WEIR_LEASE_HOLDER_HEADROOM 0.25
/* A grant that came with an answer and is lower by less than this part is
 * acknowledged only with the next refresh. */
#define WEIR_LEASE_HOLDER_TOLERANCE 1e-3

/* Totals of units used since the holder was made, which never fall. Of a rate
 * 'offered' is enough. */
struct weir_lease_use {
    uint64_t offered; /* passed and refused */
    uint64_t passed;
    uint64_t in_use;  /* permits in flight: the most since the last call */
    uint64_t awaited; /* concurrency: units that waiting callers want */
    bool fractions;   /* … and a grant may be a part of a unit: until it is
                       * idle, it wants WEIR_LEASE_HOLDER_LEAST at least */
};

/* An ask to send. */
struct weir_lease_holder_ask {
    uint64_t number; /* the answer bears it */
    double wants;
    double has;     /* the amount in force, or the units in use, if that is
                     * more */
    double safe;    /* the amount in force after its lease */
    uint64_t taken; /* the serial of the grant that it goes by; 0: none of this
                     * pool's */
    bool learning;  /* as weir_lease_holder_learning() says */
    /* the last roster token of another pool, which this one follows; 0:
     * none, or it is this one's */
    uint64_t roster_token;
};

struct weir_lease_holder {
    enum weir_on_stale on_stale;
    bool inflight;  /* of kind concurrency: units stay in use until they are
                     * given back */
    bool leases_on; /* … and it has promised part of its safe capacity */
    bool learning;
    struct weir_rng rng;

    /* Demand. */
    double declared;            /* by weir_lease_holder_want() */
    bool is_declared;           /* … which decides */
    double wants_sent;          /* sent in the last ask */
    double rise[2], use[2];     /* units a second, offered and passed: over the
                                 * shorter and the longer window */
    double needed;              /* of kind concurrency: units */
    struct weir_lease_use seen; /* at the last step … */
    weir_instant seen_at;       /* … and when */
    weir_instant began;   /* the first use after none; WEIR_NEVER: none yet */
    weir_instant used_at; /* the last use */
    weir_instant want_used_at; /* the first use after
                                * weir_lease_holder_want(); or WEIR_NEVER */

    /* The grant. */
    double capacity, safe; /* of the newest grant */
    double in_use;         /* of kind concurrency: at most … */
    double promised;       /* … and of its holders' safe capacities */
    uint64_t serial;       /* of the newest grant; 0: none of this pool */
    uint64_t taken;        /* … and of the grant that it goes by */
    uint64_t roster_token; /* token of the newest grant, of any pool … */
    uint64_t cut;          /* … and its cut */
    uint64_t term;
    bool met;                /* this pool has answered */
    bool owes;               /* a lower grant isn't taken yet, or not
                              * acknowledged */
    weir_instant expiry;     /* of the capacity … */
    weir_instant safe_until; /* … and of the safe one after it */

    /* Asks. */
    uint64_t number;   /* of the last ask */
    uint64_t answered; /* the newest ask that was answered */
    uint64_t sent[WEIR_LEASE_HOLDER_ASKS]; /* the last asks; 0: forgotten */
    weir_instant sent_at[WEIR_LEASE_HOLDER_ASKS];
    unsigned sent_next;  /* place of the next */
    unsigned unanswered; /* asks since the newest that was answered */
    weir_instant due_at;
    bool early; /* the next ask isn't for a refresh: the first, or hurried */
    weir_instant early_from; /* not before this instant */
    weir_duration patience;
    bool pressing; /* other holders wait for the next ask */
};

/* Makes the holder of a quota in use. 'inflight': the quota's kind is
 * concurrency, or it is held by a server in between, which hands its grant
 * out; else a rate, which obeys a lower grant at once. 'seed' spreads the
 * refreshes of many. */
void weir_lease_holder_init(struct weir_lease_holder *holder,
                            enum weir_on_stale on_stale, bool inflight,
                            uint64_t seed, weir_instant now);

/* For a holder that is new only to its pool: 'used' units a second were used
 * for long. Until it is answered, WEIR_LEASE_HOLDER_FIRST at most, it goes by
 * 'capacity', which it has by another account, and reports it. Both 0 ..
 * WEIR_LEASE_UNITS_MAX; before its first use and ask only. */
void weir_lease_holder_begin_with(struct weir_lease_holder *holder,
                                  double capacity, double used,
                                  weir_instant now);

/* ---- Demand ---- */

/* Declares it: 0 .. WEIR_LEASE_UNITS_MAX, no NaN (asserted). It decides until
 * use was seen for a window after it; then use does. */
void weir_lease_holder_want(struct weir_lease_holder *holder, double wants,
                            weir_instant now);
/* Call it at the first use, each 100 ms or so while it is used, and each second
 * or so later. A total below that of the last call counts as no use. */
void weir_lease_holder_use(struct weir_lease_holder *holder,
                           const struct weir_lease_use *use, weir_instant now);
/* The demand now; 0 for long: the holder may be released. */
double weir_lease_holder_wants(const struct weir_lease_holder *holder,
                               weir_instant now);
/* An ask has more news than the demand (the bands of a server in between have
 * moved): ask early. */
void weir_lease_holder_hurry(struct weir_lease_holder *holder,
                             weir_instant now);

/* Its lease is over and it decides without it (on_stale=pass): it goes by this
 * amount now, and reports it, as far as it wants that much. */
void weir_lease_holder_goes_by(struct weir_lease_holder *holder,
                               double capacity, weir_instant now);

/* ---- Asking ---- */

/* When to ask; an instant past: at once. */
weir_instant weir_lease_holder_due(const struct weir_lease_holder *holder);
/* The ask, which is sent 'now'. 'number' is the caller's and above all before
 * it (asserted), over sessions and pools too, so that no late answer is taken
 * for another ask's. */
void weir_lease_holder_ask(struct weir_lease_holder *holder, uint64_t number,
                           struct weir_lease_holder_ask *out, weir_instant now);
/* A grant has come: the answer to ask 'number', or a push (0), of a master of
 * 'term'. Returns whether it counts: a grant that is late, doubled, overtaken,
 * of an old master or out of its range changes nothing. If true, first apply
 * weir_lease_holder_limit() to new use; then, of kind concurrency, call
 * weir_lease_holder_in_use(). */
bool weir_lease_holder_granted(struct weir_lease_holder *holder,
                               uint64_t number, uint64_t term,
                               const struct weir_grant *grant,
                               weir_instant now);
/* A server in between has promised so much of its safe capacity to its own
 * holders (weir_lease_pool_stats: safe_out; >= 0, finite). Call it before each
 * weir_lease_holder_in_use(). */
void weir_lease_holder_promised(struct weir_lease_holder *holder,
                                double promised);
/* Whether a server in between hasn't heard all its own holders yet: its pool is
 * learning. Until it has, it takes no grant, since there may be more in use
 * than it knows. */
void weir_lease_holder_learning(struct weir_lease_holder *holder,
                                bool learning);
/* The units in use: permits in flight, or those that a server in between has
 * handed out (>= 0, finite). Call it after each grant and before each ask, and
 * while it is above the limit, whenever it has fallen: when it fits, the lower
 * grant is taken. */
void weir_lease_holder_in_use(struct weir_lease_holder *holder, double in_use);
/* Another pool is asked from now on (or the same, which has forgotten all): its
 * serials start anew, and messages under way from the former count no more. The
 * lease goes on. Must be called before the first ask to it. */
void weir_lease_holder_lost(struct weir_lease_holder *holder, weir_instant now);

/* ---- The grant ---- */

/* The limit of new use: the newest grant while its lease lasts, then as
 * 'on_stale' says: pass INFINITY, limit 0, share and hold the safe capacity
 * while that lasts (which the pool has made the last grant if the quota says
 * hold), then 0. Without any grant so far: 0 for WEIR_LEASE_HOLDER_FIRST, then
 * INFINITY if pass, else 0. A holder with on_stale=pass then goes by no grant:
 * the guarantee that use stays within the capacity doesn't hold for it. The
 * limit changes by time alone at 'expiry', and at 'safe_until'. */
double weir_lease_holder_limit(const struct weir_lease_holder *holder,
                               weir_instant now);
/* Until when the pool may account the holder with something: by a lease or a
 * safe capacity that it was granted, or by an ask that isn't answered. 0: it
 * never asked. */
weir_instant weir_lease_holder_owes_until(
    const struct weir_lease_holder *holder);
/* The capacity that a server in between may lease on, for any 'on_stale': to be
 * handed to its pool after each grant, and at 'expiry'. */
struct weir_lease_holder_lease {
    double capacity;
    weir_instant expiry;
    double safe; /* from 'expiry' to … */
    weir_instant safe_until;
};
void weir_lease_holder_lease(const struct weir_lease_holder *holder,
                             struct weir_lease_holder_lease *out,
                             weir_instant now);
/* The least amount to account it with: finite. */
double weir_lease_holder_has(const struct weir_lease_holder *holder,
                             weir_instant now);

/* To release a holder, send the pool a release, once, and forget the holder; a
 * holder that owes nothing need not send one. If the message is lost, the lease
 * runs out. A holder of kind concurrency is released when nothing is in use. */

#endif /* WEIR_LEASE_HOLDER_H */
