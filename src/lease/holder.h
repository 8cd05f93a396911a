/* SPDX-License-Identifier: MIT
 * lease/holder.h - what one process, or a server between, has of one quota that
 * is leased: the client's half. Pure; plain memory of the caller, nothing to
 * free. One thread at a time.
 *
 *     want() or use() ──> due() ──> ask() ─────> the broker
 *                             granted() <── answer ──'|
 *                             granted() <── push ─────'
 *     limit(now): what new use keeps to            in_use(): what there is
 *
 * What always holds, whatever the messages do (src/lease/holder.c shows why,
 * test_holder holds random histories against a broker's account):
 *
 *   - What is used on the ground of a grant is never more than the capacity of
 *     a grant whose serial is 'taken' of any ask so far, or above it.
 *   - A lease, and its safe capacity's, run from the sending of the ask that is
 *     answered, by this machine's clock: whatever the ways took, the broker
 *     accounts them for longer. A push lowers, or raises until that is over; it
 *     never extends it.
 *   - What is said to be wanted is finite, and at least 0. */

#ifndef WEIR_HOLDER_H
#define WEIR_HOLDER_H

#include "base/rng.h"
#include "quota/lease.h"
#include "quota/quota.h"

/* Wants that weir_holder_want() has changed by more than this part of the
 * larger are told early; smaller changes with the next refresh. */
#define WEIR_HOLDER_CHANGE 0.1
/* Between two asks that are early, at least; the first of all counts as one.
 * What was taken is told at once. */
#define WEIR_HOLDER_SPACING (100 * WEIR_MILLISECOND)
/* An ask without answer is said again after that, then each time doubled. */
#define WEIR_HOLDER_PATIENCE (500 * WEIR_MILLISECOND)
#define WEIR_HOLDER_PATIENCE_MAX (4 * WEIR_SECOND)
/* Asks on their way whose sending is remembered. */
#define WEIR_HOLDER_ASKS 8
/* A holder that was never answered has nothing for so long; then 'on_stale'
 * rules it. */
#define WEIR_HOLDER_FIRST WEIR_SECOND

/* An ask that isn't answered may have been granted. For so long after it was
 * sent a release is worth keeping until a broker can be told. */
#define WEIR_HOLDER_UNSURE (30 * WEIR_SECOND)

/* Use is smoothed over the longer window, and may rise within the shorter. */
#define WEIR_HOLDER_WINDOW (10 * WEIR_SECOND)
#define WEIR_HOLDER_RISE WEIR_SECOND
/* Unused for so long, it wants nothing. */
#define WEIR_HOLDER_IDLE (3 * WEIR_HOLDER_WINDOW)
/* What is wanted beyond what is used, as a part of it: see holder.c. */
#define WEIR_HOLDER_HEADROOM 0.25
/* That a grant is lower by less than this part is said with the next refresh
 * only, if it came with an answer. */
#define WEIR_HOLDER_TOLERANCE 1e-3

/* What is used: totals of units since the holder was made, which never fall.
 * Of a rate 'offered' is enough. */
struct weir_lease_use {
    uint64_t offered; /* passed and refused */
    uint64_t passed;
    uint64_t in_use;  /* permits out: the most since the last call */
    uint64_t awaited; /* of a gauge: units that who waits for them wants */
};

/* What to ask. */
struct weir_holder_ask {
    uint64_t number; /* the answer bears it */
    double wants;
    double has;     /* what it goes by now, or what is in use, if that is
                      * more */
    double safe;    /* what it goes by when its lease is over */
    uint64_t taken; /* the serial of the grant that it goes by; 0: of none of
                      * this broker's */
    bool learning;  /* as weir_holder_learning() says */
    uint64_t roll;  /* the last of another broker, to whom this one follows;
                     * 0: none, or it is this one's */
};

struct weir_holder {
    enum weir_on_stale on_stale;
    bool gauge;     /* what was let in stays until it is given back */
    bool leases_on; /* … and it has promised of its safe capacity */
    bool learning;
    struct weir_rng rng;

    /* What is wanted. */
    double said;                /* by weir_holder_want() */
    bool says;                  /* … which rules */
    double told;                /* in the last ask */
    double rise[2], use[2];     /* units a second, offered and passed: over the
                             * shorter and the longer window */
    double needed;              /* of a gauge: units */
    struct weir_lease_use seen; /* by the last call that took a step … */
    weir_instant seen_at;       /* … and when */
    weir_instant began;   /* the first use after none; WEIR_NEVER: none yet */
    weir_instant used_at; /* the last one seen */
    weir_instant said_at; /* the first one after weir_holder_want(); or
                             * WEIR_NEVER */

    /* What is had. */
    double capacity, safe; /* of the newest grant */
    double in_use;         /* of a gauge: at most … */
    double promised;       /* … and of what it leases on in safe capacity */
    uint64_t serial;       /* of the newest grant; 0: none of this broker */
    uint64_t taken;        /* … and of that which it goes by */
    uint64_t roll;         /* of the newest grant, whosever that was */
    uint64_t term;
    bool met;                /* this broker has answered */
    bool owes;               /* a lower grant isn't taken yet, or not said so */
    weir_instant expiry;     /* of the capacity … */
    weir_instant safe_until; /* … and of the safe one after it */

    /* What was said. */
    uint64_t number;                 /* of the last ask */
    uint64_t answered;               /* the newest ask that was answered */
    uint64_t sent[WEIR_HOLDER_ASKS]; /* the last asks; 0: forgotten */
    weir_instant sent_at[WEIR_HOLDER_ASKS];
    unsigned sent_next;  /* place of the next */
    unsigned unanswered; /* asks since the newest that was answered */
    weir_instant due_at;
    bool early; /* what is due isn't for a refresh: the first, or hurried */
    weir_instant early_from; /* not before this instant */
    weir_duration patience;
    bool pressing; /* others wait for what is to be said */
};

/* A holder of a quota that is wanted from now on. 'gauge': the quota's kind is
 * concurrency, or it is a server's between, which has its grant handed out;
 * else a rate, where a lower grant is in force at once. 'seed' spreads the
 * refreshes of many. */
void weir_holder_init(struct weir_holder *holder, enum weir_on_stale on_stale,
                      bool gauge, uint64_t seed, weir_instant now);

/* It isn't new but to its broker: 'used' units a second were used for long.
 * Until it is answered, WEIR_HOLDER_FIRST at most, it goes by a capacity that
 * it has by another account, and says to have it. Both 0 ..
 * WEIR_LEASE_UNITS_MAX; before its first use and ask only. */
void weir_holder_begin_with(struct weir_holder *holder, double capacity,
                            double used, weir_instant now);

/* ---- What is wanted ---- */

/* Says so: 0 .. WEIR_LEASE_UNITS_MAX, no NaN (asserted). It rules until use
 * was seen for a window after it; then use does. */
void weir_holder_want(struct weir_holder *holder, double wants,
                      weir_instant now);
/* To be called at the first use, each 100 ms or so while it is used, and each
 * second or so later. A total below that of the last call counts as no use. */
void weir_holder_use(struct weir_holder *holder,
                     const struct weir_lease_use *use, weir_instant now);
/* What is wanted now; 0 for long: it may be released. */
double weir_holder_wants(const struct weir_holder *holder, weir_instant now);
/* There is more to tell than wants (the bands of a server between have moved):
 * ask early. */
void weir_holder_hurry(struct weir_holder *holder, weir_instant now);

/* ---- Asking ---- */

/* When to ask; an instant past: at once. */
weir_instant weir_holder_due(const struct weir_holder *holder);
/* The ask, which is sent 'now', by a number of the caller's: above all before
 * it (asserted), over sessions and brokers too, so that no late answer is
 * taken for another's. */
void weir_holder_ask_by(struct weir_holder *holder, uint64_t number,
                        struct weir_holder_ask *out, weir_instant now);
/* The same, numbered 1, 2, … */
void weir_holder_ask(struct weir_holder *holder, struct weir_holder_ask *out,
                     weir_instant now);
/* A grant has come: the answer to ask 'number', or a push (0), of a master of
 * 'term'. Whether it counts: one that is late, doubled, overtaken, of an old
 * master or out of its range changes nothing. If it does, first have new use
 * keep to weir_holder_limit(), then, of a gauge, tell what is in use. */
bool weir_holder_granted(struct weir_holder *holder, uint64_t number,
                         uint64_t term, const struct weir_grant *grant,
                         weir_instant now);
/* A server between has promised so much of its safe capacity to its own holders
 * (weir_broker_stats: safe_out; >= 0, finite). To be called before each call of
 * weir_holder_in_use(). */
void weir_holder_promised(struct weir_holder *holder, double promised);
/* Whether a server between hasn't heard of all its own holders yet: its broker
 * is learning. Until it has, it takes no grant, since there may be more in use
 * than it knows. */
void weir_holder_learning(struct weir_holder *holder, bool learning);
/* What a gauge has in use: its permits out, or what a server between has handed
 * out (>= 0, finite). To be called after each grant and before each ask, and
 * while it is above the limit, whenever it has fallen: when it fits, the lower
 * grant is taken. */
void weir_holder_in_use(struct weir_holder *holder, double in_use);
/* Another broker is asked from now on (or the same, which has forgotten all):
 * its serials start anew, and what is still under way from the former counts no
 * more. The lease goes on. Must be called before the first ask to it. */
void weir_holder_lost(struct weir_holder *holder, weir_instant now);

/* ---- What is had ---- */

/* What new use must keep to: the newest grant while its lease lasts, then what
 * 'on_stale' says: pass INFINITY, limit 0, share and hold the safe capacity
 * while that lasts (which the broker has made the last grant if the quota says
 * hold), then 0. Without any grant so far: 0 for WEIR_HOLDER_FIRST, then
 * INFINITY if pass, else 0. A holder with pass goes by no promise: that
 * never more is in use than there is doesn't hold of it. */
double weir_holder_limit(const struct weir_holder *holder, weir_instant now);
/* When that changes by time alone: when the lease is over, and when its safe
 * capacity is. */
weir_instant weir_holder_expiry(const struct weir_holder *holder);
weir_instant weir_holder_safe_until(const struct weir_holder *holder);
/* Until when the broker may account the holder with something: by a lease or a
 * safe capacity that it was told of, or by an ask that isn't answered. 0: it
 * never asked. */
weir_instant weir_holder_owes_until(const struct weir_holder *holder);
/* What a server between may lease on, whatever 'on_stale' says: to be handed to
 * its broker after each grant, and at 'expiry'. */
struct weir_holder_lease {
    double capacity;
    weir_instant expiry;
    double safe; /* from 'expiry' to … */
    weir_instant safe_until;
};
void weir_holder_lease(const struct weir_holder *holder,
                       struct weir_holder_lease *out, weir_instant now);
/* What it is to be accounted with, at least: finite. */
double weir_holder_has(const struct weir_holder *holder, weir_instant now);

/* To release is to tell the broker so, once, and to forget the holder; nothing
 * is to be told by one that owes nothing. If that is lost, the lease runs out.
 * A gauge is released when nothing is in use. */

#endif /* WEIR_HOLDER_H */
