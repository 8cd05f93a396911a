/* SPDX-License-Identifier: MIT
 * node/root_state.h - what a root node holds; for root*.c and region.c
 * only. */

#ifndef WEIR_ROOT_STATE_H
#define WEIR_ROOT_STATE_H

#include "base/rng.h"
#include "count/merge.h"
#include "node/root.h"

/* A limiter, by its incarnation; outlives its link. */
struct root_limiter {
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint64_t hash;
    char name[WEIR_NAME_MAX + 1];
    uint8_t name_len;
    bool live;             /* else the place is free */
    uint32_t peer;         /* its link, or UINT32_MAX */
    uint32_t session_low;  /* the newest session's number */
    uint64_t last_session; /* of the last report taken, or of the first hello */
    uint64_t last_number;  /* that report's; 0: none */
    weir_instant heard_at;
    uint64_t epoch;
    uint64_t unknown;
    uint64_t reports;
    struct weir_merge_limiter cells;
};

struct root_peer {
    bool up;
    bool greeted;          /* a hello was taken */
    bool queued;
    bool hold;
    bool welcome_owed;
    bool answer_owed;
    bool full_owed;        /* the next quotas message begins a whole set */
    bool planned;          /* 'sent' is where the quotas stand */
    uint32_t next_queued;  /* index + 1 */
    uint32_t limiter;      /* index into the limiters */
    uint64_t session;
    uint64_t number;       /* of the last report taken */
    uint64_t stamp;
    struct weir_store_id store; /* as the hello said */
    uint64_t known;        /* epoch of the limiter, as it last said */
    uint64_t sent;         /* epoch up to which changes were sent */
    struct weir_cursor cursor;
    weir_instant progress_at; /* when 'known' last moved, or we sent */
    weir_instant push_at;
    uint32_t *unknown;     /* owned: slots of the last report */
    size_t unknown_count, unknown_capacity;
};

struct weir_root {
    struct weir_mem mem;
    char name[WEIR_NAME_MAX + 1];
    size_t name_len;
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint64_t seed;
    struct weir_settings settings;

    bool ready;
    bool rule_all;         /* a template changed: look at all buckets */
    struct weir_store_id store;
    uint64_t epoch;        /* what limiters may know */
    uint64_t store_epoch;  /* what the store said it has */
    struct weir_catalog *catalog; /* owned */
    struct weir_catalog *coming;  /* owned; a whole set that isn't settled yet;
                                   * NULL: none */
    struct weir_store_id coming_store;

    bool region;           /* it has an upstream, and … */
    bool topped;           /* … has heard of the topmost root … */
    weir_instant top_at;   /* … last, as far as that is unusual */

    struct weir_merge merge;
    struct root_limiter **limiters; /* owned */
    size_t limiter_capacity;
    uint32_t limiter_used;
    uint32_t limiter_live;
    uint32_t connected;
    struct weir_index limiter_index;

    struct root_peer *peers; /* owned */
    uint32_t peers_max;
    uint32_t queue_first, queue_last; /* index + 1 */

    weir_duration stretch; /* reports no more often than this; 0: as set */
    weir_instant judge_at; /* of the stretch: not before */
    bool due_waiting;      /* somebody is due, later */
    weir_instant look_at;  /* next look for pushes */
    weir_instant sweep_at;
    uint32_t sweep_hand;
    struct weir_root_stats stats;

    struct weir_fill *fills;      /* owned scratch */
    struct weir_change *changes;  /* owned scratch */
};

#endif /* WEIR_ROOT_STATE_H */
