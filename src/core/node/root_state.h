/* SPDX-License-Identifier: MIT
 * node/root_state.h - the state of a root node; for root*.c and region*.c,
 * and for the lab's checkers. */

#ifndef WEIR_ROOT_STATE_H
#define WEIR_ROOT_STATE_H

#include <assert.h>

#include "core/base/rng.h"
#include "core/counted/merge.h"
#include "core/leased/lease_manager.h"
#include "core/node/root.h"

/* The adaptive limits last received of a limiter; one block, names behind. */
struct root_limits {
    size_t size; /* of the block */
    size_t count;
    weir_instant at;
    struct weir_adaptive_limit limit[];
};

/* A limiter is known by its incarnation, which isn't secret, and the identity
 * of its credential. Compared as bytes. */
struct limiter_key {
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint64_t owner; /* of weir_root_names */
};
static_assert(sizeof(struct limiter_key) ==
                  WEIR_INCARNATION_SIZE + sizeof(uint64_t),
              "no padding");

/* A limiter's id as a client of leases: a NUL byte, its kind, and its key, or
 * the region's name. */
#define ROOT_LINK_ID_HEAD 2

#define ROOT_NO_PEER UINT32_MAX

/* A limiter; outlives its link. */
struct root_limiter {
    struct limiter_key key;
    uint64_t hash;
    char name[WEIR_NAME_MAX + 1];
    uint8_t name_len;
    char region[WEIR_NAME_MAX]; /* region that it is a root of */
    uint8_t region_len;         /* 0: it is none, or its region has no name */
    bool speaks_for_others;     /* it is a root of a region */
    bool live;                  /* else the element is free */
    uint32_t peer;              /* its link, or ROOT_NO_PEER */
    uint32_t session_low;       /* the newest session's number */
    uint64_t last_session; /* of the last report taken, or of the first hello */
    uint64_t last_number;  /* that report's; 0: none */
    weir_instant received_at; /* last report or hello */
    bool muted;               /* silent since: nothing is presumed of it */
    /* Since the last report was taken, and between that and the one before:
     * the longest that a limiter may take for the age of its counts, and the
     * longest interval between reports that it was sent. */
    weir_duration lag[2], interval[2];
    uint64_t epoch;
    uint64_t unknown, contended;
    uint64_t lacking, overflowed;
    weir_instant overflowed_at; /* when 'overflowed' last rose */
    bool passes_on_full;
    uint32_t few_roots;
    uint64_t reports;
    uint64_t wanted;   /* the number of the last wants taken */
    uint64_t features; /* of quotas, that it understands */
    uint64_t lacks;    /* features that quotas had which it wasn't sent … */
    uint64_t lacks_reported;    /* … by weir_root_new_withheld() */
    struct root_limits *limits; /* owned; NULL: none received */
    struct weir_merge_limiter cells;
};

/* Bucket state of an exact quota kept by the root. One block, with the state at
 * its end. */
struct root_bucket_state {
    uint64_t hash;
    uint64_t created, epoch; /* of the quota that 'rule' is from */
    uint32_t zones;          /* by root_asks.zones */
    uint32_t size;           /* of the block */
    struct weir_algorithm_rule rule;
    uint8_t name_len;
    char name[WEIR_NAME_MAX];
    uint64_t state[];
};

struct root_asks {
    struct weir_root_zones zone_of;
    struct weir_root_relay relay; /* 'ask' NULL: kept here */
    uint64_t wall;    /* offset of 'now' to 1970, for calendars … */
    uint64_t aligned; /* … and as it was first, for other windows */
    uint32_t zones;   /* how often they may have changed */
    struct root_bucket_state **bucket_states; /* owned; NULL: a free element */
    size_t capacity;
    uint32_t used, live;
    struct weir_index index;
    size_t bytes;
    uint32_t hand;            /* cursor of the sweep */
    weir_instant barren_till; /* until then no room is searched */
};

/* Capacity of leased quotas, if a region's root gets it from above. */
struct root_lessor {
    void *context;
    /* Lowers '*rule', which is as in the catalog, to the part granted. Returns
     * 0; WEIR_ENOTREADY: it was asked for and not answered yet, '*rule' has no
     * capacity; or another error of weir_root_lease_ask(). */
    int (*grant)(void *context, const struct weir_quota *quota,
                 struct weir_text name, struct weir_leased *rule,
                 weir_instant now);
    /* The wants or leases of its clients have changed. */
    void (*moved)(void *context, struct weir_text name, weir_instant now);
};

/* A client's wants of one quota, answered when the roots above have
 * answered. */
struct root_awaiting {
    uint32_t peer;
    uint64_t session;
    uint64_t number;
    weir_instant since;
    struct weir_want want;
    struct weir_band bands[WEIR_LEASE_BANDS_MAX];
    char name[WEIR_NAME_MAX];
};

/* Leased quotas: this root's mastership, or the master that it knows. */
struct root_leases {
    struct weir_lease_manager *manager; /* owned */
    struct root_adaptive *adaptive;     /* owned */
    uint64_t term;
    weir_instant ask_from; /* no wants go up before */
    bool unkept;           /* no client is answered before a number is kept */
    bool alone;            /* as weir_root_lease_alone() */
    bool unsafe;           /* no holder is promised a safe capacity */
    uint64_t known; /* quotas created after this epoch were never leased before;
                     * UINT64_MAX: not known … */
    bool forgot;    /* … and not to be known again: a leased quota was
                     * removed */
    uint8_t master_len;
    char master[WEIR_MASTER_MAX];
    struct root_lessor lessor;      /* 'grant' NULL: all capacity is this
                                     * root's */
    struct root_awaiting *awaiting; /* owned */
    uint64_t *awaiting_keys;        /* owned: hashes of peer and name */
    size_t awaiting_count, awaiting_capacity, awaiting_key_capacity;
    struct weir_lease_grant *rows; /* owned scratch: rows of a message … */
    struct weir_guarantee *guarantees; /* … and their guarantees,
                                        * ROOT_GUARANTEES_MAX */
};
/* In a message of grants: with more rows that have some, there are more
 * messages. */
#define ROOT_GUARANTEES_MAX (64 * WEIR_LEASE_GUARANTEES_MAX)

/* Grants to be sent to one peer. */
struct root_grant {
    uint64_t number; /* of the wants that it answers; 0: pushed */
    uint32_t hash;   /* of the name */
    uint32_t name_at;
    uint8_t name_len;
    enum weir_lease_error error;
    struct weir_grant grant;
};
struct root_grants {
    struct root_grant *rows; /* owned; from 'first' on */
    char *names;             /* owned; one after the other */
    size_t first, count, capacity;
    size_t name_bytes, name_capacity;
};

/* A limiter that went beyond its debt of a quota. */
struct root_debtor {
    char quota[WEIR_NAME_MAX];
    char limiter[WEIR_NAME_MAX];
    uint8_t quota_len, limiter_len;
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    bool unreported; /* not returned by weir_root_new_debtor() yet */
    uint64_t units;
    weir_instant at; /* the last such report */
};
struct root_debtors {
    struct root_debtor *rows; /* owned, WEIR_DEBTORS_MAX; NULL: none yet */
    size_t count;
};

struct root_peer {
    bool up;
    bool greeted; /* a hello was taken */
    bool queued;
    bool paused;
    bool welcome_owed;
    bool answer_owed;
    bool master_owed;     /* a grants message is to name the master */
    bool full_owed;       /* the next quotas message begins a whole set … */
    bool planned;         /* 'sent' is valid */
    uint32_t next_queued; /* index + 1 */
    uint32_t limiter;     /* index into the limiters */
    uint64_t session;
    uint64_t number;    /* of the last report taken */
    weir_duration echo; /* … and its echo */
    uint64_t stamp;
    struct weir_store_id store; /* of its quotas, by its hello */
    uint64_t full_known;        /* … planned when 'known' was this */
    uint64_t known;             /* the limiter's epoch, as last received */
    uint64_t sent;              /* epoch up to which changes were sent */
    struct weir_cursor cursor;
    weir_instant progress_at; /* when 'known' last moved, or we sent */
    weir_instant ahead_at;    /* since when 'known' is above our epoch; 0: it
                            * isn't */
    weir_duration ahead_most; /* the longest time allowed for that */
    uint64_t floor;           /* the catalog's, when the sending was planned */
    weir_instant push_at;
    uint64_t last_ask;                    /* the last ask's number */
    struct weir_step_answer *answers;     /* owned: to be sent */
    size_t answer_count, answer_capacity; /* at most WEIR_ASKS_MAX */
    struct root_grants granted;           /* answers to wants */
    struct root_grants pushed;
    uint32_t *unknown; /* owned: slots of the last report */
    size_t unknown_count, unknown_capacity;
    uint32_t *denied; /* owned: denied slots of that report */
    size_t denied_count, denied_capacity;
    struct weir_root_names names; /* allowed to the peer, and their … */
    struct weir_index above;      /* … ancestors, by hash (root_names.c) */
};

struct weir_root {
    struct weir_mem mem;
    char name[WEIR_NAME_MAX + 1];
    size_t name_len;
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint64_t seed;
    struct weir_settings settings;

    bool ready;
    bool provisional; /* the store may be ahead of 'epoch' */
    bool rule_all;    /* a template changed: look at all buckets */
    bool withheld;    /* some limiter's 'lacks' may be unreported */
    struct weir_store_id store;
    uint64_t epoch;               /* limiters may have all changes up to this */
    uint64_t store_epoch;         /* the store has all changes up to this */
    struct weir_catalog *catalog; /* owned */
    struct weir_catalog *coming;  /* owned; a whole set that isn't settled yet;
                                   * NULL: none */
    struct weir_store_id coming_store;
    uint32_t roots; /* on the store; 0: not known */

    const struct weir_text *regions; /* borrowed: on the way to the top */
    size_t region_count;
    bool region;         /* it has an upstream, and … */
    bool topped;         /* … the topmost root's age is known: … */
    weir_instant top_at; /* … its last message, plus the usual interval */

    struct weir_merge merge;
    struct weir_merge_watch watch; /* of the merge; writes: */
    struct root_debtors debtors;
    struct root_asks asks;
    struct root_leases leases;
    struct root_limiter **limiters; /* owned */
    size_t limiter_capacity;
    uint32_t limiter_used;
    uint32_t limiter_live;
    uint32_t connected;
    struct weir_index limiter_index;

    struct root_peer *peers; /* owned */
    uint32_t peers_max;
    uint32_t queue_first, queue_last; /* index + 1 */

    /* Shortest interval between reports that the root asks for; 0: none. */
    weir_duration report_backoff;
    weir_instant judge_at; /* the backoff isn't changed before */
    bool due_waiting;      /* some fills are due later */
    weir_instant look_at;  /* next look for pushes */
    weir_instant sweep_at;
    uint32_t sweep_hand;
    uint32_t audit_hand; /* cursor of the audit of limiters */
    struct weir_root_stats stats;

    struct weir_fill *fills;     /* owned scratch */
    struct weir_change *changes; /* owned scratch */
};

/* ---- root_views.c ---- */

/* As of struct weir_merge_watch. */
void weir_root_note_beyond(void *context,
                           const struct weir_merge_limiter *cells,
                           const struct weir_root_quota *root_quota,
                           uint64_t units, weir_instant now);
void weir_root_free_debtors(struct weir_root *root);
/* 0 or WEIR_ENOMEM. */
int weir_root_take_limits(struct weir_root *root, uint32_t peer,
                          const struct weir_limits *limits, weir_instant now);
void weir_root_forget_limits(struct weir_root *root,
                             struct root_limiter *limiter);

/* ---- root_names.c ---- */

/* Remembers the ancestors of 'name' if the peer may take from it. Call it for
 * each name of a message, before the first is judged. */
void weir_root_names_come(struct weir_root *root, uint32_t peer,
                          struct weir_text name);
/* Whether the peer may ask for 'name'. A denial is counted and reported. */
bool weir_root_names_may(struct weir_root *root, uint32_t peer,
                         struct weir_text name, weir_instant now);
/* After the peer's hello: drops its limiter's cells of denied names. */
void weir_root_names_attach(struct weir_root *root, uint32_t peer);
void weir_root_names_fini(struct weir_root *root, struct root_peer *peer);

/* ---- root_ask.c ---- */

void weir_root_asks_fini(struct weir_root *root);
/* 0 or WEIR_ENOMEM. */
int weir_root_take_asks(struct weir_root *root, uint32_t peer,
                        const struct weir_asks *asks, weir_instant now);
void weir_root_write_answers(struct root_peer *peer, struct weir_message *out);
/* Forgets some bucket states that are empty, or have no quota here. */
void weir_root_sweep_bucket_states(struct weir_root *root, uint32_t work,
                                   weir_instant now);

/* ---- root_lease.c ---- */

/* False: no memory. */
bool weir_root_leases_init(struct weir_root *root);
/* A quota is about to be edited. */
void weir_root_lease_change(struct weir_root *root,
                            const struct weir_quota *old,
                            const struct weir_change *change);
/* All quotas are about to be replaced. */
void weir_root_lease_forget(struct weir_root *root);
void weir_root_leases_fini(struct weir_root *root);
/* 0 or WEIR_EPROTOCOL. */
int weir_root_take_wants(struct weir_root *root, uint32_t peer,
                         const struct weir_wants *wants, weir_instant now);
/* The peer has lost its link, or speaks for another limiter. */
void weir_root_lease_detach(struct weir_root *root, uint32_t peer);
void weir_root_lease_free_peer(struct root_peer *peer,
                               const struct weir_mem *mem);
/* Whether there are grants to be sent to the peer; writes that message. Answers
 * are sent even if the peer's output is full. */
bool weir_root_owes_grants(const struct root_peer *peer);
void weir_root_write_grants(struct weir_root *root, struct root_peer *peer,
                            struct weir_message *out, weir_instant now);
void weir_root_welcome_leases(const struct weir_root *root,
                              struct weir_welcome *out);
/* The roots above have answered for the quota: applies its new rule, and
 * answers the clients that wait for it. */
void weir_root_lease_answered(struct weir_root *root, struct weir_text name,
                              weir_instant now);
/* Moves pushes to the peers that they are for. */
void weir_root_lease_tick(struct weir_root *root, weir_instant now);

/* ---- root_quotas.c ---- */

/* A session begins: plans the quotas to be sent from the hello's epoch on. */
void weir_root_begin_quotas(struct weir_root *root, struct root_peer *peer,
                            const struct weir_hello *hello, weir_instant now);
/* Takes the epoch of the limiter's report, and whether it has room. */
void weir_root_follow_epoch(struct weir_root *root, struct root_peer *peer,
                            const struct weir_report *report, weir_instant now);
/* If removals that the peer wasn't sent yet were forgotten, plans the whole
 * set. */
void weir_root_follow_floor(struct weir_root *root, struct root_peer *peer,
                            weir_instant now);
/* Whether there are quotas to be sent to the peer; writes that message. */
bool weir_root_owes_quotas(const struct weir_root *root,
                           const struct root_peer *peer);
void weir_root_write_quotas(struct weir_root *root, struct root_peer *peer,
                            struct weir_message *out, weir_instant now);

/* ---- root_peers.c ---- */

/* The peer has a message to be sent. */
void weir_root_enqueue(struct weir_root *root, uint32_t peer);
void weir_root_enqueue_all(struct weir_root *root);
/* Takes the first peer out of the queue; false: the queue is empty. */
bool weir_root_dequeue(struct weir_root *root, uint32_t *out_peer);
/* The content of welcomes has changed: sends them to all. */
void weir_root_welcome_all(struct weir_root *root);
/* The limiter of that key, and its index; NULL: unknown. */
const struct root_limiter *weir_root_find_limiter(const struct weir_root *root,
                                                  const struct limiter_key *key,
                                                  uint32_t *out_index);
/* The same by its index, made if it is unknown. False: no memory. */
bool weir_root_make_limiter(struct weir_root *root,
                            const struct limiter_key *key, uint64_t session,
                            uint32_t *out_index);
/* Forgets the limiter and its cells; the element is used again. */
void weir_root_free_limiter(struct weir_root *root, uint32_t index);
/* Audits the next 'n' of: root quotas with their cells, limiters, leased quotas
 * and their clients. An assertion fails if what belongs together disagrees. */
void weir_root_audit(struct weir_root *root, uint32_t n);

#endif /* WEIR_ROOT_STATE_H */
