/* SPDX-License-Identifier: MIT
 * lease/broker_state.h - what a broker keeps. Of broker.c, which says what it
 * means, and broker_look.c, which only reads it. */

#ifndef WEIR_BROKER_STATE_H
#define WEIR_BROKER_STATE_H

#include "lease/broker.h"

#define NO_CLAIM UINT32_MAX

/* What holds up a step of who can't be pushed to. */
struct prop {
    weir_instant until; /* the answers that told so much are over, for sure */
    double since;       /* the most told after them */
};

/* A claim is a band of a holder. */
struct claim {
    uint32_t next; /* of the same holder, or NO_CLAIM */
    uint32_t mark; /* the ask that last named it */
    int64_t priority;
    int64_t band; /* in the book: another where that has no room */
};

struct holder {
    bool live;
    bool faded;             /* silent, its lease over: on its safe capacity */
    bool known;             /* has asked: what it has is accounted */
    bool streams;           /* as it last said … */
    bool lost;              /* … but its stream broke */
    bool learns;            /* as it last said */
    bool waits;             /* had less than its share when last looked at */
    bool listed;            /* … by 'until', among the leased or the faded */
    uint32_t first;         /* claim, or NO_CLAIM */
    uint32_t before, after; /* in that list; the free list uses 'after' */
    uint64_t clients;
    double wants;
    double grant, safe;       /* as last told */
    double step, safe_out;    /* at most gone by, until … */
    double out;               /* the larger of both: at most in use */
    weir_instant lease_until; /* … by its own clock … */
    weir_instant safe_until;
    weir_instant answered_until;    /* the longest lease of our answers alone */
    weir_instant until;             /* … for sure */
    struct prop prop, safe_prop;    /* of 'step' and of 'safe_out' */
    double reported, safe_reported; /* what came of it to 'known', 'heard' */
    uint64_t name;
    uint64_t shown;     /* the roll of another broker that it bore; 0: none */
    bool counted;       /* … and it is among those heard */
    uint64_t gated_by;  /* waits for another number than the one with this
                        * place in the row of those kept; 0: it doesn't */
    uint64_t rolled_by; /* may show a roll told under the one of that place;
                         * 0: it shows none … */
    uint64_t rolled;    /* … told with this serial, or before */
    uint64_t roll;      /* last told; 0: none */
    uint64_t serial;
    uint64_t since; /* from this serial on it was told no more than now */
    uint64_t turn;  /* in which it gave up the odd one of whole units */
};

/* Adding up neither drifts nor loses what is small beside what was large: the
 * roundings are kept (Knuth's TwoSum). */
struct sum {
    double high, low;
};

/* See broker_roll.c. */
#define ROLLS_SHOWN 16
struct roll {
    uint64_t kept;               /* the number; 0: none */
    uint64_t place;              /* of that, in the row of those kept: 1, … */
    uint32_t showing;            /* who may show a roll told since then */
    weir_instant quiet_at;       /* none is told first before then */
    weir_instant call_at;        /* then those told are void, or none is told
                                  * to some, and all are called … */
    weir_instant called_from;    /* … but not before this */
    bool calls;                  /* … which this round does */
    bool wanted;                 /* somebody waits for another … */
    bool lets_in;                /* … and needn't any more: not told yet */
    uint64_t names;              /* the sum of those who are known … */
    uint32_t deaf;               /* … of whom so many could show no roll */
    uint64_t heard;              /* of those who showed one */
    uint64_t shown[ROLLS_SHOWN]; /* the last different ones */
    uint32_t shown_next;
};

/* Holders by 'until'. */
struct list {
    uint32_t oldest, newest;
};

struct weir_broker {
    struct weir_mem mem;
    struct weir_lease_rule rule;
    weir_instant expiry;     /* of the capacity; unless it is WEIR_NEVER: */
    double safe_total;       /* there is so much in safe capacities … */
    weir_instant safe_until; /* … until then */
    struct weir_learning learning;
    unsigned lessons; /* its ends that lie ahead */
    double known;     /* what holders have reported to have of others … */
    double heard;     /* … and to have in safe capacities */
    struct weir_book *book; /* owned */
    struct holder *holders; /* owned */
    size_t capacity;
    uint32_t used, count, free_first;
    struct claim *claims; /* owned: by number of the book */
    size_t claim_capacity;
    struct sum out, safe_out, granted; /* over holders */
    uint32_t waiting;                  /* holders that wait … */
    uint32_t rested; /* … and gave up an odd unit in this turn */
    uint64_t turn;   /* > 0 */
    struct roll roll;
    uint64_t *serials; /* borrowed */
    uint32_t mark;
    struct list lists[2]; /* those leased, those faded */
    uint32_t gone;        /* list by 'after' */
    bool moved;           /* a round may find something to push */
    bool going;           /* … and is at 'hand' */
    uint32_t hand;
    weir_instant round_at; /* the next begins not before */
};

#define TINY 1e-12 /* of an amount: what roundings make of it */

static inline double smaller(double a, double b)
{
    return a < b ? a : b;
}

static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

static inline weir_duration shorter(weir_duration a, weir_duration b)
{
    return a < b ? a : b;
}

static inline weir_duration left_until(weir_instant end, weir_instant now)
{
    return end > now ? end - now : 0;
}

static inline double total(const struct sum *sum)
{
    return larger(0, sum->high + sum->low);
}

static inline bool is_learning(const struct weir_broker *b, weir_instant now)
{
    return now < b->learning.safes;
}

/* ---- broker_ask.c ---- */

bool weir_ask_is_sound(const struct weir_broker_ask *ask);
/* What it says to have. */
double weir_ask_believed(const struct weir_broker *b,
                         const struct weir_broker_ask *ask);

/* ---- broker_whole.c: of a rule that is 'whole' ---- */

/* Share, in whole units within 'room'. */
double weir_whole_grant(const struct weir_broker *b, const struct holder *h,
                        double share, double room);
/* At an ask, of who has more than its share: what of 'grant' stays with it. */
double weir_whole_pass_on(struct weir_broker *b, struct holder *h, double share,
                          double grant);
double weir_whole_above(double share);

/* ---- broker_roll.c ---- */

/* A holder asks for the first time, or otherwise than before. */
void weir_roll_enter(struct weir_broker *b, struct holder *h, bool streams,
                     weir_instant now);
void weir_roll_leave(struct weir_broker *b, struct holder *h, weir_instant now);
/* Rolls told so far say less than is known now. */
void weir_roll_call_later(struct weir_broker *b, weir_instant now);
/* When a round is to tell rolls; WEIR_NEVER: none is. */
weir_instant weir_roll_call_at(const struct weir_broker *b, weir_instant now);
/* A round begins. */
void weir_roll_begin_round(struct weir_broker *b, weir_instant now);
/* It is to be told a roll in this round. */
bool weir_roll_calls(const struct weir_broker *b, const struct holder *h,
                     weir_instant now);
/* It asks, and says what it has taken. */
void weir_roll_taken(struct weir_broker *b, struct holder *h,
                     const struct weir_broker_ask *ask);
/* Is to be given nothing more yet. */
bool weir_roll_gates(const struct weir_broker *b, const struct holder *h);
/* The roll to tell with the grant of its serial; 0: none. */
uint64_t weir_roll_tell(struct weir_broker *b, struct holder *h,
                        weir_instant now);
/* It asks, and its account is up to date: true if all have been heard now. */
bool weir_roll_hears_all(struct weir_broker *b, struct holder *h,
                         const struct weir_broker_ask *ask, weir_instant now);

#endif /* WEIR_BROKER_STATE_H */
