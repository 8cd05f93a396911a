/* SPDX-License-Identifier: MIT
 * leased/lease_pool_internal.h - the state of a lease pool, shared by its
 * files; lease_pool.c explains it. */

#ifndef WEIR_LEASE_POOL_INTERNAL_H
#define WEIR_LEASE_POOL_INTERNAL_H

#include "core/leased/lease_pool.h"

#define NO_CLAIM UINT32_MAX

/* The answers that support a step of a holder that can't be pushed to. */
struct prop {
    weir_instant until; /* the answers of at least that amount are surely
                         * over */
    double since;       /* the largest amount granted after them */
};

/* A claim is a band of a holder. */
struct claim {
    uint32_t next; /* next claim of the same holder, or NO_CLAIM */
    uint32_t mark; /* the ask that last named it */
    int64_t priority;
    int64_t band; /* band in the book: another if the book has no room for its
                   * own */
};

struct holder {
    bool live;
    bool faded;             /* silent, its lease over: on its safe capacity */
    bool known;             /* has asked: its amount is accounted */
    bool streams;           /* as it last reported … */
    bool lost;              /* … but its stream broke */
    bool learns;            /* as it last reported */
    bool waits;             /* had less than its share when last checked */
    bool listed;            /* in the list by 'until' of the leased or the
                             * faded */
    uint32_t first;         /* claim, or NO_CLAIM */
    uint32_t before, after; /* in that list; the free list uses 'after' */
    uint64_t clients;
    double wants;
    double grant, safe;       /* as last sent */
    double step, safe_out;    /* most that it may go by, until … */
    double out;               /* the larger of both: at most in use */
    weir_instant lease_until; /* … by its own clock … */
    weir_instant safe_until;
    weir_instant answered_until;    /* the longest lease of this pool's answers
                                     * alone */
    weir_instant until;             /* … for sure */
    struct prop prop, safe_prop;    /* supports of 'step' and of 'safe_out' */
    double reported, safe_reported; /* reported amounts counted in 'known',
                                     * 'safe_known' */
    uint64_t name;
    uint64_t shown;    /* the token of another pool that it showed; 0: none */
    bool counted;      /* … and its name is in the sum 'names_shown' */
    uint64_t gated_by; /* waits until another number is kept than the one at
                         * this place in their order; 0: it doesn't wait */
    uint64_t token_place;  /* may show a token made under the number of that
                           * place; 0: it shows none … */
    uint64_t token_serial; /* … sent with this serial, or before */
    uint64_t roster_token; /* token last sent; 0: none */
    uint64_t serial;
    uint64_t since; /* no grant from this serial on exceeded the present one */
    uint64_t turn;  /* in which it gave up the odd one of whole units */
};

/* A sum that doesn't drift, and doesn't lose a small value beside one that was
 * large: the roundings are kept (Knuth's TwoSum). */
struct sum {
    double high, low;
};

/* Roster tokens: see lease_pool_roster.c. */
#define ROSTER_TOKENS_SHOWN 16
struct roster_token {
    uint64_t kept;            /* the kept number; 0: none */
    uint64_t place;           /* its place in the order of kept numbers: 1,
                                  * … */
    uint32_t showing;         /* holders that may show a token made under
                                  * it */
    weir_instant quiet_at;    /* the first token is sent not before */
    weir_instant call_at;     /* then tokens are void, or some holders have
                                  * none, and all are pushed a new one … */
    weir_instant called_from; /* … but not before this */
    bool calls;               /* … in this round */
    bool wanted;              /* a holder waits for another number … */
    bool lets_in;             /* … and needn't any more: not reported yet */
    uint64_t names;           /* the sum of the known holders' names … */
    uint32_t deaf;            /* … and how many of these can show no token */
    uint64_t names_shown;     /* sum of the names of holders that showed
                                  * one */
    uint64_t shown[ROSTER_TOKENS_SHOWN]; /* the last different ones */
    uint32_t shown_next;
};

/* Holders by 'until'. */
struct list {
    uint32_t oldest, newest;
};

struct weir_lease_pool {
    struct weir_mem mem;
    struct weir_lease_rule rule;
    weir_instant expiry;     /* of the capacity; unless it is WEIR_NEVER: */
    double safe_total;       /* total of safe capacities … */
    weir_instant safe_until; /* … until then */
    struct weir_learning learning;
    unsigned lessons;       /* ends of 'learning' still ahead */
    double known;           /* reported as held of other pools … */
    double safe_known;      /* … and in safe capacities */
    struct weir_book *book; /* owned */
    struct holder *holders; /* owned */
    size_t capacity;
    uint32_t used, count, free_first;
    struct claim *claims; /* owned: by claim number of the book */
    size_t claim_capacity;
    struct sum out, safe_out, granted; /* over holders */
    uint32_t waiting;                  /* holders that wait … */
    uint32_t rested; /* … and gave up an odd unit in this turn */
    uint64_t turn;   /* > 0 */
    struct roster_token roster_token;
    uint64_t *serials; /* borrowed */
    uint32_t mark;
    struct list lists[2]; /* those leased, those faded */
    uint32_t gone;        /* list by 'after' */
    bool moved;           /* a round may find grants to push */
    bool going;           /* … runs, and is at 'hand' */
    uint32_t hand;
    weir_instant round_at; /* the next round begins not before */
    uint32_t audit_hand;   /* cursor of the audit */
};

#define TINY 1e-12     /* relative size of rounding errors */
#define TOLERANCE 1e-3 /* of a share: smaller moves wait for an ask */

static inline weir_duration left_until(weir_instant end, weir_instant now)
{
    return end > now ? end - now : 0;
}

static inline double total(const struct sum *sum)
{
    return weir_larger(0, sum->high + sum->low);
}

static inline bool is_learning(const struct weir_lease_pool *b,
                               weir_instant now)
{
    return now < b->learning.safes;
}

static inline bool is_less(double a, double than)
{
    return a < than - TOLERANCE * than;
}

/* ---- lease_pool_share.c ---- */

bool weir_ask_is_sound(const struct weir_lease_pool_ask *ask);
/* The amount that it reports to have, as far as trusted. */
double weir_ask_believed(const struct weir_lease_pool *b,
                         const struct weir_lease_pool_ask *ask);
/* Sets the holder's claims by its ask. On an error (WEIR_ENOMEM) they are as
 * before. */
int weir_ask_claim_all(struct weir_lease_pool *b, struct holder *h,
                       const struct weir_lease_pool_ask *ask);
void weir_ask_drop_claims(struct weir_lease_pool *b, struct holder *h);

/* Whether the sum is kept within the capacity: two algorithms don't. */
bool weir_pool_is_held(const struct weir_lease_pool *b, weir_instant now);
/* A holder waits, or more is out than there is. */
bool weir_pool_is_short(const struct weir_lease_pool *b, weir_instant now);
/* Our own lease is over: the capacity is our safe capacity. */
bool weir_pool_is_at_safe(const struct weir_lease_pool *b);
double weir_pool_share(const struct weir_lease_pool *b, const struct holder *h,
                       weir_instant now);
/* The share; by a rule that is 'whole' with the odd unit. */
double weir_pool_share_above(const struct weir_lease_pool *b, double share);
/* The amount to grant to a holder with that share. */
double weir_pool_grant(const struct weir_lease_pool *b, const struct holder *h,
                       double share, weir_instant now);
/* Of a rule that is 'whole', at an ask of a holder that has more than its
 * share: the part of 'grant' that it keeps. */
double weir_pool_pass_on(struct weir_lease_pool *b, struct holder *h,
                         double share, double grant);
/* Safe capacity for a holder with that grant. */
double weir_pool_safe(const struct weir_lease_pool *b, const struct holder *h,
                      double grant, weir_instant now);

/* ---- lease_pool_roster.c ---- */

/* A holder asks for the first time, or its 'streams' has changed. */
void weir_roster_enter(struct weir_lease_pool *b, struct holder *h,
                       bool streams, weir_instant now);
void weir_roster_leave(struct weir_lease_pool *b, struct holder *h,
                       weir_instant now);
/* Tokens sent so far are outdated: pushes new ones after a while. */
void weir_roster_later(struct weir_lease_pool *b, weir_instant now);
/* When a round is to push tokens; WEIR_NEVER: none is. */
weir_instant weir_roster_at(const struct weir_lease_pool *b, weir_instant now);
/* A round begins. */
void weir_roster_begin_round(struct weir_lease_pool *b, weir_instant now);
/* Whether 'h' is to be pushed a token in this round. */
bool weir_roster_calls(const struct weir_lease_pool *b, const struct holder *h,
                       weir_instant now);
/* Whether 'h' may show a token made under the present number. */
bool weir_roster_shows(const struct weir_lease_pool *b, const struct holder *h);
/* A holder's ask reports the serial it has taken. */
void weir_roster_taken(struct weir_lease_pool *b, struct holder *h,
                       const struct weir_lease_pool_ask *ask);
/* Whether 'h' is to be given nothing more yet. */
bool weir_roster_excludes(const struct weir_lease_pool *b,
                          const struct holder *h);
/* The token to send with the grant of its serial; 0: none. */
uint64_t weir_roster_issue_token(struct weir_lease_pool *b, struct holder *h,
                                 weir_instant now);
/* A holder asks, and its account is up to date: true if all have been heard
 * now. */
bool weir_roster_has_met_all(struct weir_lease_pool *b, struct holder *h,
                             const struct weir_lease_pool_ask *ask,
                             weir_instant now);

#endif /* WEIR_LEASE_POOL_INTERNAL_H */
