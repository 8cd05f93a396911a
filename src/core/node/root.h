/* SPDX-License-Identifier: MIT
 * node/root.h - a root as a message-driven machine: the quotas, a bucket for
 * each root quota (a quota in use), a cell for each limiter and root quota.
 *
 * Pure: the pump around it (the daemon, the simulator, a test) owns links,
 * bytes, store and time. One thread at a time. Peers are numbers that the pump
 * chooses, 0 .. peers_max - 1; a number may be used again after its link went
 * down. */

#ifndef WEIR_ROOT_H
#define WEIR_ROOT_H

#include "core/counted/message.h"
#include "core/quota/catalog.h"
#include "core/quota/name_set.h"

struct weir_root;

#define WEIR_ROOT_BUCKET_STATE_BYTES \
    (64u << 20) /* bucket states of exact quotas */

/* The pump's time-zone files. Called for a quota with a time zone at its first
 * use, and after weir_root_set_wall(…, true). */
struct weir_root_zones {
    void *context;
    int32_t (*offset_s)(void *context, struct weir_text zone);
};

/* Relays asks: a region's root sends them to the roots above. Returns 0:
 * weir_root_answer() will follow; else WEIR_ECONNECT, WEIR_EFULL. */
struct weir_root_relay {
    void *context;
    int (*ask)(void *context, uint32_t peer, uint64_t session,
               const struct weir_step_ask *ask, weir_instant now);
};

struct weir_root_options {
    struct weir_mem mem;
    struct weir_text name; /* copied; <= WEIR_NAME_MAX bytes */
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint64_t seed;
    uint32_t peers_max; /* 1 .. 65,536 */
    struct weir_settings settings;
    bool region;                  /* it has an upstream: node/region.h */
    struct weir_root_zones zones; /* 'offset_s' NULL: all zones are UTC */
};

/* NULL: no memory. */
struct weir_root *weir_root_new(const struct weir_root_options *options,
                                weir_instant now);
void weir_root_free(struct weir_root *root);

/* ---- Called by the pump ---- */

void weir_root_link(struct weir_root *root, uint32_t peer, bool up,
                    weir_instant now);
/* The names that a peer may announce, ask for and want: those of 'set', and
 * those that are charged with them (their ancestors, and their template's
 * overflow). Any other name is answered like one without quota, and the answer
 * says that it was denied. */
#define WEIR_ANCESTORS_MAX \
    4096 /* remembered of a peer; of more, those that
                                 * aren't in 'set' are denied */
struct weir_root_names {
    const struct weir_name_set *set; /* borrowed until the link goes down; NULL:
                                      * every name */
    uint64_t owner; /* a hash of the peer's identity: a limiter of another owner
                     * is another limiter, even with the same incarnation */
    void *context;
    /* Called for each name that is denied, from within weir_root_receive().
     * NULL: not reported. */
    void (*denied)(void *context, struct weir_text name, weir_instant now);
};
/* Call between weir_root_link(true) and the first message; without it, every
 * name is allowed, and the owner is 0. Copied. */
void weir_root_limit_names(struct weir_root *root, uint32_t peer,
                           const struct weir_root_names *names);
/* 0, or WEIR_EPROTOCOL, WEIR_ENOMEM: drop the link. */
int weir_root_receive(struct weir_root *root, uint32_t peer,
                      const struct weir_message *message, weir_instant now);
void weir_root_tick(struct weir_root *root, weir_instant now);
/* Borrowed until the next call of any function here. */
bool weir_root_next(struct weir_root *root, uint32_t *out_peer,
                    struct weir_message *out, weir_instant now);
weir_instant weir_root_deadline(const struct weir_root *root, weir_instant now);
/* The pump's busy time since the last call, in millionths of the time; call it
 * some times a minute. An overloaded root sets a report backoff: the shortest
 * interval between two reports of a limiter. */
#define WEIR_REPORT_BACKOFF_MAX (30 * WEIR_SECOND)
void weir_root_busy(struct weir_root *root, uint32_t ppm, weir_instant now);
/* The peer's output is full: it gets only answers until false. */
void weir_root_pause(struct weir_root *root, uint32_t peer, bool paused);

/* ---- Exact quotas kept by the root (root_ask.c) ---- */

/* Sets the offset from 'now' to nanoseconds since 1970, which windows and
 * calendars use; 0 at first. 'zones': time zones may have changed. */
void weir_root_set_wall(struct weir_root *root, uint64_t offset, bool zones);
/* The answer to a relayed ask; dropped if its session is over. */
void weir_root_answer(struct weir_root *root, uint32_t peer, uint64_t session,
                      const struct weir_step_answer *answer);

/* ---- Quotas, as the pump reads them from the store ---- */

/* Names the store; before the first change. An identity that differs from the
 * last one (or a lower epoch: a restored backup) begins a whole set: changes
 * are gathered apart, and the previous quotas are served until settle(). Then
 * limiters are sent the whole set. */
int weir_root_store(struct weir_root *root, const struct weir_store_id *id,
                    uint64_t epoch, uint64_t floor, weir_instant now);
/* Begins a whole set in any case, of the same store or another. */
int weir_root_renew(struct weir_root *root, const struct weir_store_id *id);
/* One change, in the order of epochs. */
int weir_root_apply(struct weir_root *root, const struct weir_change *change,
                    weir_instant now);
/* The store has a row of this name and epoch that can't be read: a whole set
 * that was begun keeps the quota that is served, if it is of the same store.
 * Returns whether there is one. */
bool weir_root_keep(struct weir_root *root, struct weir_text name,
                    uint64_t epoch, weir_instant now);
/* All changes up to the newest were applied: limiters may have them now. The
 * first call makes the root ready. */
void weir_root_settle(struct weir_root *root, weir_instant now);
bool weir_root_ready(const struct weir_root *root);
/* The store can't be read: the quotas served may be older than its, and
 * limiters that are ahead keep theirs. False, as at first, ends that. Each
 * change is sent to limiters. */
void weir_root_set_provisional(struct weir_root *root, bool provisional);
/* So many roots are on this root's store, itself included; limiters are told.
 * 0, as at first: not known. */
void weir_root_set_roots(struct weir_root *root, uint32_t roots);
/* Identity of the store that the quotas are from. */
void weir_root_identity(const struct weir_root *root,
                        struct weir_store_id *out);
/* The quotas that are served. */
struct weir_catalog *weir_root_catalog(struct weir_root *root);

/* ---- Views ---- */

/* A limiter that reported more units of a counted quota than it may put into
 * the bucket (max_debt). Its texts live until the next message is received. */
#define WEIR_DEBTORS_MAX 64 /* the last ones are remembered */
#define WEIR_DEBTOR_EPISODE (60 * WEIR_SECOND)
struct weir_debtor {
    struct weir_text quota;
    struct weir_text limiter; /* its name; may be empty */
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint64_t units;       /* in no fill; since it was remembered */
    weir_duration silent; /* since its last such report */
};
/* Walks the remembered debtors: start with '*cursor' 0; false at the end. */
bool weir_root_debtor(const struct weir_root *root, size_t *cursor,
                      struct weir_debtor *out, weir_instant now);
/* The last debtor of 'quota'; false: none is remembered. */
bool weir_root_debtor_of(const struct weir_root *root, struct weir_text quota,
                         struct weir_debtor *out, weir_instant now);
/* A debtor with a new episode (the first such report in WEIR_DEBTOR_EPISODE);
 * returns each once. False: none. */
bool weir_root_new_debtor(struct weir_root *root, struct weir_debtor *out,
                          weir_instant now);

/* A feature of quotas (quota_feature.h) that a limiter doesn't announce,
 * because it is older, and that some quotas have: it isn't sent these, and
 * their names are unknown to it. Texts live until the next message. */
struct weir_withheld {
    struct weir_text limiter; /* its name; may be empty */
    const char *feature;      /* weir_quota_feature_text() */
};
/* Returns each limiter and feature once, when the first quota was withheld.
 * False: none. */
bool weir_root_new_withheld(struct weir_root *root, struct weir_withheld *out);

/* A quota in use. */
struct weir_usage {
    struct weir_text name;          /* borrowed until the next call */
    const struct weir_quota *quota; /* its quota or template; NULL: removed */
    double fill;                    /* units */
    uint64_t passed;                /* units since this root first saw it */
    uint64_t refused;               /* units */
    uint32_t limiters;              /* limiters that use it */
    struct weir_debtor debtor;      /* as weir_root_debtor_of(), of
                                 * weir_root_usage_of() alone; 0 units: none */
};
/* Walks quotas in use: start with '*cursor' 0; false at the end. */
bool weir_root_usage(struct weir_root *root, size_t *cursor,
                     struct weir_usage *out, weir_instant now);
bool weir_root_usage_of(struct weir_root *root, struct weir_text name,
                        struct weir_usage *out, weir_instant now);

/* A limiter in this root's records, connected or not forgotten yet. */
struct weir_limiter_usage {
    struct weir_text name;
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    bool connected;
    weir_duration silent;         /* since its last report */
    uint64_t epoch;               /* of its quotas */
    uint64_t unknown;             /* requests by names without quota */
    uint64_t contended;           /* requests decided without a lock */
    uint64_t lacking;             /* quotas for which it has no room */
    uint64_t overflowed;          /* requests by names without room, … */
    weir_duration overflowed_age; /* … since this number last rose */
    bool passes_on_full;          /* its on_full is `pass`, not `refuse` */
    uint32_t few_roots;           /* roots connected to, if there are more for
                                   * a minute; else 0 */
    bool of_region; /* it is a root of a region, and decides nothing */
    uint64_t reports;
    uint32_t quotas;                          /* in use there */
    size_t limit_count;                       /* its adaptive limits, … */
    const struct weir_adaptive_limit *limits; /* … until the next message */
    weir_duration limits_age;                 /* age of these limits */
};
bool weir_root_limiter_usage(struct weir_root *root, size_t *cursor,
                             struct weir_limiter_usage *out, weir_instant now);

struct weir_root_stats {
    uint32_t limiters_connected;
    uint32_t limiters_known;
    uint64_t quotas;      /* in the catalog */
    uint64_t quotas_used; /* buckets in use */
    uint64_t epoch;
    uint64_t reports; /* taken */
    uint64_t reports_repeated;
    uint64_t counts; /* merged */
    uint64_t fills;  /* sent */
    uint64_t pushes; /* unsolicited fills messages */
    uint64_t protocol_errors;
    uint64_t unknown;            /* requests by names without quota */
    uint64_t contended;          /* requests decided without a lock */
    uint64_t overflowed;         /* requests by names without room */
    uint32_t limiters_lacking;   /* connected, without room for all quotas */
    uint32_t roots;              /* on this root's store; 0: not known */
    uint32_t limiters_few_roots; /* connected, to fewer roots than there are */
    uint64_t denied;             /* names that a peer may not ask for */
    uint64_t withheld;           /* changes not sent to a limiter, which doesn't
                             * announce a feature of the quota */
    uint64_t beyond_debt;        /* units reported beyond a limiter's debt */
    uint64_t asks;               /* exact steps made, or relayed */
    uint64_t asks_dropped;       /* doubled, late, or too many unanswered */
    uint64_t asks_refused;       /* unknown here, or no room */
    uint64_t bucket_states; /* bucket states of exact quotas in memory … */
    uint64_t bucket_state_bytes; /* … and their size */
    uint32_t leased;             /* leased quotas in use, by this master … */
    uint32_t lease_holders; /* … and the lease holders that have, or want,
                             * capacity */
    uint64_t lease_grants;  /* sent: answers … */
    uint64_t lease_pushes;  /* … and unsolicited grants */
    uint64_t lease_dropped; /* wants that came late or doubled, or had no room:
                             * not answered */
    uint64_t lease_refused; /* wants of quotas that are unknown or not leased,
                             * or without room */
    uint32_t busy_ppm;      /* of the last weir_root_busy() */
    weir_duration report_backoff; /* report backoff: shortest interval between
                             * reports; 0: none */
};
void weir_root_stats(const struct weir_root *root, struct weir_root_stats *out);

/* ---- Clients of leases, for people ---- */

/* A client's name for people: for a limiter's or region's id its name; any
 * other id unchanged. Borrowed until the next call of any function of the
 * root. */
struct weir_text weir_root_lease_client_name(const struct weir_root *root,
                                             struct weir_text client_id);
/* The WEIR_INCARNATION_SIZE bytes of a limiter, in its id; NULL: the client is
 * none. */
const uint8_t *weir_root_lease_client_incarnation(struct weir_text client_id);

#endif /* WEIR_ROOT_H */
