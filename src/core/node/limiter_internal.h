/* SPDX-License-Identifier: MIT
 * node/limiter_internal.h - the state of a limiter node, for limiter*.c. */

#ifndef WEIR_LIMITER_INTERNAL_H
#define WEIR_LIMITER_INTERNAL_H

#include "core/base/rng.h"
#include "core/counted/tally.h"
#include "core/node/lease_client.h"
#include "core/node/limiter.h"

#define LIMITER_EVENTS_MAX 32

enum limiter_link_state { LINK_DOWN, LINK_GREETING, LINK_WAITING, LINK_UP };

struct limiter_link {
    enum limiter_link_state state;
    bool urgent;
    bool first;           /* no report in this session yet */
    bool met;             /* 'root' is known */
    bool full_taken;      /* a whole set was begun in this session … */
    uint64_t full_target; /* … the last of them led to that epoch */
    uint8_t root[WEIR_INCARNATION_SIZE];
    uint64_t session;
    uint64_t root_epoch;        /* the newest it sent */
    uint64_t target;            /* the same, in this session */
    weir_duration root_age;     /* by this session's newest welcome */
    struct weir_store_id store; /* of its last welcome with quotas */
    struct weir_store_id odd;   /* its other store, already reported as an
                               * event */
    bool root_ready;
    bool provisional;         /* the root may be behind its store */
    bool ask;                 /* ask for a welcome … */
    bool again;               /* … or for quotas, from our epoch on */
    bool carries;             /* the root has an upstream */
    bool tried;               /* it was met, or failed to connect, once */
    uint64_t root_hash;       /* of its name, to choose a root for asks */
    weir_instant answered_at; /* when it last answered an ask in time */
    weir_duration mute_for;   /* patience of the longest ask that it let expire:
                               * no ask up to that is sent, … */
    bool speaks;              /* … except, if it has sent since, … */
    weir_instant probe_at;    /* … once, and not before */
    uint32_t roots;       /* on its store, as it last sent; 0: not known … */
    bool roots_sent;      /* … or not sent yet in this session */
    bool topped;          /* its topmost root's age is known, … */
    weir_instant top_at;  /* … and when that root was last received from */
    weir_instant sent_at; /* last hello or report */
    weir_instant report_at; /* when the interval's next report is due */
    weir_duration resend;
    char below[WEIR_NAME_MAX + 1]; /* a name for the next report's 'below' */
    size_t below_len;              /* 0: none */
};

/* A list of ask places, by index + 1. */
struct ask_list {
    uint32_t first, last;
};

/* An unanswered ask. The number is derived from the place. */
struct ask_place {
    uint32_t next;   /* in its list, index + 1 */
    uint32_t link;   /* when sent: to this link … */
    uint64_t number; /* … under this number; 0: not sent */
    uint64_t ticket;
    weir_instant asked_at;
    weir_instant until;
    struct weir_algorithm_ask ask;
    int error; /* when answered … */
    struct weir_algorithm_answer answer;
    bool queued; /* not sent yet */
    uint8_t name_len;
    char name[WEIR_NAME_MAX];
};

struct limiter_asks {
    uint32_t capacity, used;       /* places; the number ever used */
    struct ask_place *place;       /* in the limiter's block */
    struct weir_step_ask *scratch; /* in the block as well; rows of a message */
    struct ask_list free, queued, answered;
    uint32_t under_way;   /* queued, sent, or answered and not handed out */
    uint64_t sequence;    /* of the last number */
    weir_instant look_at; /* no ask expires before this */
};

struct lease_place;

struct limiter_leases {
    struct weir_lease_client *client;
    struct weir_lease_witness witness;
    uint32_t *place_of;        /* by slot: place + 1 */
    uint64_t *seen;            /* by slot: its total when its last place
                                * ended */
    struct lease_place *place; /* by place */
    int64_t priority;          /* the process's own; 0: the quota's */
    weir_instant look_at;      /* WEIR_NEVER: no quota was leased yet */
    uint32_t short_of_room;    /* slots that found no place since there was
                                * one */
    bool parting;              /* scratch of an edit */
    bool released;             /* all leases, for good … */
    bool unreleased;           /* … but those that a lock kept */
    bool inherited;            /* leases of an earlier limiter, kept likewise */
};

/* Adaptive limits as last sent. */
struct limiter_limits {
    struct weir_adaptive_limit
        *rows; /* in the limiter's block, the names behind
                                   * them */
    uint32_t capacity;
    weir_instant look_at;          /* next look; unused without rows */
    uint64_t moves;                /* a sum over all limits' last moves */
    uint64_t sent[WEIR_ROOTS_MAX]; /* the sum last sent on each link; 0: none */
};

#define LIMITER_DENIED_MAX 64 /* the last denied names are remembered */

struct limiter_denied {
    uint64_t hash; /* of the name; 0: none */
    weir_instant first;
    bool reported; /* an event was made of it */
};

struct weir_limiter {
    struct weir_table *table;
    struct weir_tally tally;
    uint32_t link_count;
    struct limiter_link link[WEIR_ROOTS_MAX];
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    weir_grow_fn *grow; /* NULL: the table doesn't grow */
    void *grow_context;
    const struct weir_limiter_sink *region;
    const struct weir_limiter_sink *sink; /* gets the quotas: the region, or the
                                           * keeper; NULL: none */
    char name[WEIR_NAME_MAX];
    size_t name_len;
    uint64_t features; /* of quotas, that it announces */
    struct weir_rng rng;
    uint32_t sessions;   /* number of sessions begun */
    uint32_t audit_hand; /* cursor of the audit of the table */

    struct weir_settings settings;
    struct weir_store_id store;
    uint64_t epoch;         /* up to which all changes were seen … */
    uint64_t missing;       /* … except this one, the first of those without
                             * room in the table; 0: none */
    uint64_t missing_till;  /* changes up to it are repeated by a round */
    bool missing_edited;    /* one of them may be in order since */
    uint32_t lacking;       /* quotas without room since the round began */
    uint64_t unfit;         /* the last of them: a hash of its name */
    uint32_t missing_live;  /* slots in use when it found none */
    uint64_t missing_count; /* not reported as an event yet … */
    char missing_name[WEIR_NAME_MAX]; /* … and the first of them */
    size_t missing_len;
    weir_instant missing_at;     /* next time it is asked for … */
    weir_duration missing_every; /* … and the wait before that */
    bool contended;       /* another thread's lock kept one of them out */
    bool slotless;        /* … and one of these has no slot in the table */
    bool unfinished;      /* the end of a whole set is still to come */
    bool restales;        /* … and a change of 'stale' from the table */
    uint64_t handed;      /* epoch up to which the sink has the changes */
    bool full;            /* a whole set is under way … */
    uint64_t full_target; /* … until this epoch is reached */
    bool ready;
    bool received; /* from any root, ever */
    bool topped;   /* from the topmost root, ever */
    bool stale;
    weir_instant born;            /* this incarnation */
    weir_instant received_at;     /* last from the topmost root; at first
                                   * from any */
    weir_instant any_received_at; /* last from any root */
    weir_instant collect_at;
    weir_instant welcome_at; /* roots without quotas are asked for another */
    weir_instant extrapolate_at;
    weir_instant look_at; /* next look at the slots with a pace */
    weir_instant sweep_at;
    uint64_t reports;
    uint64_t full_seen;      /* table overflows reported as events */
    uint64_t elsewhere;      /* hash of a master without a link; 0: none … */
    bool elsewhere_reported; /* … reported as an event */
    uint32_t others;         /* roots known and left out by choice */
    uint32_t roots_up;       /* roots connected, others included … */
    uint32_t roots;          /* … of so many; as of the last interval's end */
    bool few;                /* they are too few … */
    weir_instant few_since;  /* … since then … */
    bool few_reported;       /* … and that was reported as an event */
    /* Counted by an earlier incarnation. */
    uint64_t unknown_before, contended_before, overflowed_before;
    bool passes_on_full;

    struct limiter_asks asks;
    struct limiter_leases leases;
    struct limiter_limits limits;

    struct weir_event event[LIMITER_EVENTS_MAX];
    uint32_t event_first, event_count;
    uint64_t events_lost;
    struct limiter_denied denied[LIMITER_DENIED_MAX];
    uint32_t denied_next;
    uint32_t below_hand[2]; /* where the search for a name below goes on: of all
                             * names and of those in use … */
    weir_instant below_at;  /* … and its rate limit: GCRA */
};

/* ---- limiter_events.c ---- */

/* Queues an event with a text, which may be cut. NULL: no room, the event is
 * only counted. */
struct weir_event *weir_limiter_note(struct weir_limiter *limiter,
                                     enum weir_event_type type,
                                     struct weir_text text, weir_instant now);
/* Notes what an interval's end shows: an overflow of the table, and leased
 * quotas whose master has no link here. */
void weir_limiter_note_interval(struct weir_limiter *limiter, weir_instant now);

/* The root at 'link' denies the quota to this limiter's credential: the next
 * report names a quota below it, if there is one. Otherwise it is an event,
 * once while the name is remembered. */
void weir_limiter_note_denied(struct weir_limiter *limiter, uint32_t link,
                              struct weir_text name, weir_instant now);
/* The name for the report's 'below' on 'link'; borrowed until the next
 * denial. */
struct weir_text weir_limiter_below(struct weir_limiter *limiter,
                                    uint32_t link);

/* ---- limiter_quotas.c ---- */

/* Treats the quotas in the table as not received; they stay until a new set
 * replaces them. */
void weir_limiter_begin_anew(struct weir_limiter *limiter);
int weir_limiter_take_quotas(struct weir_limiter *limiter,
                             struct limiter_link *link,
                             const struct weir_quotas *quotas,
                             weir_instant now);
/* Call when a link came or went: if no link completes a started whole set, asks
 * for all of it again. */
void weir_limiter_seek_leader(struct weir_limiter *limiter);
/* Asks for the quotas without room, if slots have come free since. */
void weir_limiter_seek_room(struct weir_limiter *limiter, weir_instant now);
/* Ends a whole set, unless another thread's lock keeps out a change of it. */
void weir_limiter_finish(struct weir_limiter *limiter, weir_instant now);

/* ---- limiter_ask.c ---- */

/* No ask is sent before this: other limiters would choose another root. */
weir_instant weir_limiter_asks_from(const struct weir_limiter *limiter);

size_t weir_limiter_asks_size(uint32_t asks);
/* 'block': that many bytes, zeroed, 64-byte aligned. */
void weir_limiter_asks_init(struct limiter_asks *asks, void *block,
                            uint32_t capacity);
/* For a forked copy: forgets the parent's asks. */
void weir_limiter_asks_forget(struct limiter_asks *asks);
/* The asks sent on the link get no answer any more. */
void weir_limiter_asks_lost(struct weir_limiter *limiter, uint32_t link);
/* Ends the asks that have run out of time. */
void weir_limiter_asks_expire(struct weir_limiter *limiter, weir_instant now);
/* The next message with asks; false: none. */
bool weir_limiter_asks_next(struct weir_limiter *limiter, uint32_t *out_link,
                            struct weir_message *out, weir_instant now);
void weir_limiter_take_answers(struct weir_limiter *limiter, uint32_t link,
                               const struct weir_answers *answers,
                               weir_instant now);

/* ---- limiter_lease.c ---- */

size_t weir_limiter_leases_size(const struct weir_limiter_options *options);
/* Its arrays of slots, in their order; returns how many. */
#define LEASES_ARRAYS_MAX 2
uint32_t weir_limiter_leases_arrays(
    const struct weir_limiter_options *options,
    struct weir_slot_array out[LEASES_ARRAYS_MAX]);
/* 'block': that many bytes, zeroed, 64-byte aligned. */
void weir_limiter_leases_init(struct weir_limiter *limiter, void *block,
                              const struct weir_limiter_options *options);
/* For a forked copy: it has none of the parent's leases. */
void weir_limiter_leases_forget(struct weir_limiter *limiter, weir_instant now);
/* The link's root sent its state; NULL: the link is down. */
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
/* weir_tally_collect(), and looks at the leased slots that it found. */
void weir_limiter_collect(struct weir_limiter *limiter, bool all,
                          weir_instant now);
/* The use of all leases is to be looked at: after a collect. */
bool weir_limiter_leases_due(const struct weir_limiter *limiter,
                             weir_instant now);
/* Looks, if it is due; enters the new grants. */
void weir_limiter_leases_look(struct weir_limiter *limiter, weir_instant now);
bool weir_limiter_leases_next(struct weir_limiter *limiter, uint32_t *out_link,
                              struct weir_message *out, weir_instant now);
weir_instant weir_limiter_leases_deadline(const struct weir_limiter *limiter,
                                          weir_instant now);

/* ---- limiter_limits.c ---- */

/* Bytes for that many rows and a message of them; a multiple of a cache
 * line. */
size_t weir_limiter_limits_size(uint32_t limits);
/* Reads the state of all adaptive limits, if it is time. */
void weir_limiter_limits_look(struct weir_limiter *limiter, weir_instant now);
/* WEIR_NEVER if there are none. */
weir_instant weir_limiter_limits_deadline(const struct weir_limiter *limiter);
/* The next message of limits; false: none. */
bool weir_limiter_limits_next(struct weir_limiter *limiter, uint32_t *out_link,
                              struct weir_message *out, weir_instant now);

#endif /* WEIR_LIMITER_INTERNAL_H */
