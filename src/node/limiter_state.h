/* SPDX-License-Identifier: MIT
 * node/limiter_state.h - what a limiter node holds; for limiter*.c only. */

#ifndef WEIR_LIMITER_STATE_H
#define WEIR_LIMITER_STATE_H

#include "base/rng.h"
#include "count/tally.h"
#include "node/lease_client.h"
#include "node/limiter.h"

#define LIMITER_EVENTS_MAX 32

enum limiter_link_state { LINK_DOWN, LINK_GREETING, LINK_WAITING, LINK_UP };

struct limiter_link {
    enum limiter_link_state state;
    bool urgent;
    bool first;           /* no report was made in this session yet */
    bool met;             /* 'root' is known */
    bool full_taken;      /* a whole set was begun in this session … */
    uint64_t full_target; /* … and the last of them led to that epoch */
    uint8_t root[WEIR_INCARNATION_SIZE];
    uint64_t session;
    uint64_t root_epoch;      /* the newest it spoke of */
    uint64_t target;          /* the same, in this session */
    weir_duration root_age;   /* by the newest of this session's welcomes */
    struct weir_store_id odd; /* another store it spoke for: told already */
    bool root_ready;
    bool provisional;         /* the root may be behind its store */
    bool ask;                 /* the welcome is wanted again … */
    bool again;               /* … or quotas, from our epoch on */
    bool carries;             /* the root has an upstream */
    bool tried;               /* it was met once, or couldn't be reached */
    uint64_t root_hash;       /* of its name: who is asked for what */
    weir_instant answered_at; /* an ask, in its time */
    weir_duration mute_for;   /* no more patient asks aren't sent, … */
    bool speaks;              /* … but, as something was heard since, … */
    weir_instant probe_at;    /* … once, and not before */
    bool topped;              /* it has told of the topmost root, heard … */
    weir_instant top_at;      /* … at last */
    weir_instant sent_at;     /* hello or report, last time */
    weir_instant report_at;   /* the interval's next report */
    weir_duration resend;
    char below[WEIR_NAME_MAX + 1]; /* a name that the next report tells */
    size_t below_len;              /* 0: none */
};

/* A list of places, by index + 1. */
struct ask_list {
    uint32_t first, last;
};

/* An ask on its way. Its number says which place it has. */
struct ask_place {
    uint32_t next;   /* in its list, index + 1 */
    uint32_t link;   /* when sent: whose answer is awaited … */
    uint64_t number; /* … under this number; 0: it isn't */
    uint64_t ticket;
    weir_instant asked_at;
    weir_instant until;
    struct weir_meter_ask ask;
    int error; /* when answered … */
    struct weir_meter_answer answer;
    bool queued; /* not sent yet */
    uint8_t name_len;
    char name[WEIR_NAME_MAX];
};

struct limiter_asks {
    uint32_t capacity, used;       /* places; those ever used */
    struct ask_place *place;       /* in the limiter's block */
    struct weir_step_ask *scratch; /* the same; of a message */
    struct ask_list free, queued, answered;
    uint32_t under_way;   /* queued, sent, or answered and not told */
    uint64_t sequence;    /* of the last number */
    weir_instant look_at; /* no ask's time is over before */
};

struct lease_place;

struct limiter_leases {
    struct weir_lease_client *client;
    uint32_t *place_of;        /* by slot: place + 1 */
    uint64_t *seen;            /* by slot: its total when its last place
                                * ended */
    struct lease_place *place; /* by place */
    int64_t priority;          /* the process's own; 0: the quota's */
    weir_instant look_at;      /* WEIR_NEVER: no quota was leased yet */
    uint32_t short_of_room;    /* slots without place since there was one */
    bool parting;              /* scratch of an edit */
    bool released;             /* all of it, for good */
};

/* What was told of adaptive limits. */
struct limiter_limits {
    struct weir_limit_told *rows; /* in the limiter's block; the names' room
                                     * is behind them */
    uint32_t capacity;
    weir_instant look_at;          /* not before; of no meaning without any */
    uint64_t moves;                /* a sum over all limits' last moves */
    uint64_t told[WEIR_ROOTS_MAX]; /* of that, to each link; 0: nothing */
};

#define LIMITER_DENIED_MAX 64 /* denied names that are remembered: the last */

struct limiter_denied {
    uint64_t hash; /* of the name; 0: none */
    weir_instant first;
    bool told; /* as an event */
};

struct weir_limiter {
    struct weir_table *table;
    struct weir_tally tally;
    uint32_t link_count;
    struct limiter_link link[WEIR_ROOTS_MAX];
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    const struct weir_limiter_sink *region;
    char name[WEIR_NAME_MAX];
    size_t name_len;
    struct weir_rng rng;
    uint32_t sessions; /* begun */

    struct weir_settings settings;
    struct weir_store_id store;
    uint64_t epoch;         /* up to which all changes were seen … */
    uint64_t missing;       /* … but this one, the first of those that found
                              * no room in the table; 0: none */
    uint64_t missing_till;  /* what lies above hasn't been tried with it */
    uint32_t missing_live;  /* slots in use when it found none */
    uint64_t missing_count; /* not told of yet … */
    char missing_name[WEIR_NAME_MAX]; /* … and the first of them */
    size_t missing_len;
    weir_instant missing_at;     /* no sooner is it asked for again … */
    weir_duration missing_every; /* … by as much as was waited last */
    uint64_t handed;      /* up to which the region was told of changes */
    bool full;            /* a whole set is under way … */
    uint64_t full_target; /* … until this epoch is reached */
    bool ready;
    bool heard;  /* ever, any root */
    bool topped; /* ever, the topmost one */
    bool stale;
    weir_instant born;      /* this incarnation */
    weir_instant heard_at;  /* the topmost root, or the first to speak */
    weir_instant spoken_at; /* any root */
    weir_instant collect_at;
    weir_instant extrapolate_at;
    weir_instant look_at; /* … at the slots with a pace */
    weir_instant sweep_at;
    uint64_t reports;
    uint64_t full_seen;      /* overflows told as events */
    uint64_t elsewhere;      /* hash of a master that no link leads to; 0: there
                              * is none … */
    bool elsewhere_told;     /* … as an event */
    uint64_t unknown_before; /* counted by an earlier incarnation */

    struct limiter_asks asks;
    struct limiter_leases leases;
    struct limiter_limits limits;

    struct weir_event event[LIMITER_EVENTS_MAX];
    uint32_t event_first, event_count;
    uint64_t events_lost;
    struct limiter_denied denied[LIMITER_DENIED_MAX];
    uint32_t denied_next;
    uint32_t below_hand[2]; /* where the next name below is looked for, of any
                             * and of those in use … */
    weir_instant below_at;  /* … as often as this allows: GCRA */
};

/* ---- limiter.c ---- */

/* An event to be told of, with a text that may be cut; NULL: it is only
 * counted. */
struct weir_event *weir_limiter_note(struct weir_limiter *limiter,
                                     enum weir_event_type type,
                                     struct weir_text text, weir_instant now);

/* ---- limiter_denied.c ---- */

/* The root at 'link' says that this limiter's credential may not take from the
 * quota: the next report tells it a name below, if there is one; else it is an
 * event, once as long as the name is remembered. */
void weir_limiter_note_denied(struct weir_limiter *limiter, uint32_t link,
                              struct weir_text name, weir_instant now);
/* The name that the report to 'link' tells; borrowed until the next denial. */
struct weir_text weir_limiter_below(struct weir_limiter *limiter,
                                    uint32_t link);

/* ---- limiter_quotas.c ---- */

/* None of the quotas in the table counts as had; they stay until others are
 * here. */
void weir_limiter_begin_anew(struct weir_limiter *limiter);
int weir_limiter_take_quotas(struct weir_limiter *limiter,
                             struct limiter_link *link,
                             const struct weir_quotas *quotas,
                             weir_instant now);
/* A link came or went: of a whole set that nobody leads to the end any more all
 * is asked for again. */
void weir_limiter_seek_leader(struct weir_limiter *limiter);
/* Asks for what found no room, if slots have come free since. */
void weir_limiter_seek_room(struct weir_limiter *limiter, weir_instant now);

/* ---- limiter_ask.c ---- */

/* No ask is sent before: it would go to another root than others'. */
weir_instant weir_limiter_asks_from(const struct weir_limiter *limiter);

size_t weir_limiter_asks_size(uint32_t asks);
/* 'block': that many bytes, zeroed, 64-byte aligned. */
void weir_limiter_asks_init(struct limiter_asks *asks, void *block,
                            uint32_t capacity);
/* A copy of a process's: nobody waits for what it asked. */
void weir_limiter_asks_forget(struct limiter_asks *asks);
/* What was sent on the link isn't answered any more. */
void weir_limiter_asks_lost(struct weir_limiter *limiter, uint32_t link);
/* Whose time is over. */
void weir_limiter_asks_expire(struct weir_limiter *limiter, weir_instant now);
/* The next message with asks; false: none. */
bool weir_limiter_asks_next(struct weir_limiter *limiter, uint32_t *out_link,
                            struct weir_message *out, weir_instant now);
/* Something was heard of the link's root. */
void weir_limiter_asks_heard(struct limiter_link *link);
void weir_limiter_take_answers(struct weir_limiter *limiter, uint32_t link,
                               const struct weir_answers *answers,
                               weir_instant now);

/* ---- limiter_lease.c ---- */

size_t weir_limiter_leases_size(const struct weir_limiter_options *options);
/* 'block': that many bytes, zeroed, 64-byte aligned. */
void weir_limiter_leases_init(struct limiter_leases *leases, void *block,
                              const struct weir_limiter_options *options);
/* A copy of a process's has none of its leases. */
void weir_limiter_leases_forget(struct weir_limiter *limiter, weir_instant now);
/* The link's root has said how it stands; NULL: the link is down. */
void weir_limiter_leases_link(struct weir_limiter *limiter, uint32_t link,
                              const struct weir_welcome *welcome,
                              weir_instant now);
void weir_limiter_leases_take(struct weir_limiter *limiter, uint32_t link,
                              const struct weir_grants *grants,
                              weir_instant now);
/* A quota or template was put, or dropped. */
void weir_limiter_leases_edited(struct weir_limiter *limiter,
                                const struct weir_quota *quota,
                                weir_instant now);
/* Slots were marked: after each weir_tally_collect(). */
void weir_limiter_leases_fresh(struct weir_limiter *limiter, weir_instant now);
/* The use of all is to be looked at: after a collect. */
bool weir_limiter_leases_due(const struct weir_limiter *limiter,
                             weir_instant now);
/* Does that, if it is due; brings in what was granted. */
void weir_limiter_leases_look(struct weir_limiter *limiter, weir_instant now);
bool weir_limiter_leases_next(struct weir_limiter *limiter, uint32_t *out_link,
                              struct weir_message *out, weir_instant now);
weir_instant weir_limiter_leases_deadline(const struct weir_limiter *limiter,
                                          weir_instant now);

/* ---- limiter_limits.c ---- */

/* Bytes of so many rows, and a message of them; a multiple of a line. */
size_t weir_limiter_limits_size(uint32_t limits);
/* Looks where adaptive limits stand, if it is time. */
void weir_limiter_limits_look(struct weir_limiter *limiter, weir_instant now);
/* WEIR_NEVER where there are none. */
weir_instant weir_limiter_limits_deadline(const struct weir_limiter *limiter);
/* The next message of them; false: none. */
bool weir_limiter_limits_next(struct weir_limiter *limiter, uint32_t *out_link,
                              struct weir_message *out, weir_instant now);

#endif /* WEIR_LIMITER_STATE_H */
