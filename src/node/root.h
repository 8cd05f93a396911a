/* SPDX-License-Identifier: MIT
 * node/root.h - a root as a message-driven machine: the quotas, a bucket for
 * each that is in use, a cell for each limiter and quota.
 *
 * Pure: the pump around it (the daemon, the simulator, a test) owns links,
 * bytes, store and time. One thread at a time. Peers are numbers that the
 * pump chooses, 0 .. peers_max - 1; a number may be used again after its
 * link went down. */

#ifndef WEIR_ROOT_H
#define WEIR_ROOT_H

#include "count/message.h"
#include "quota/catalog.h"
#include "quota/name_set.h"

struct weir_root;

#define WEIR_ROOT_METER_BYTES (64u << 20) /* of exact quotas' meters, in all */

/* What a pump that has files knows of time zones; any quota that names one is
 * asked for at its first use, and after weir_root_set_wall(…, true). */
struct weir_root_zones {
    void *context;
    int32_t (*offset_s)(void *context, struct weir_text zone);
};

/* Who decides in a root's stead: a region's root asks those above. 0: it will
 * be answered by weir_root_answer(); else WEIR_ECONNECT, WEIR_EFULL. */
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
    struct weir_root_zones zones; /* 'offset_s' NULL: all are UTC */
};

/* NULL: no memory. */
struct weir_root *weir_root_new(const struct weir_root_options *options,
                                weir_instant now);
void weir_root_free(struct weir_root *root);

/* ---- The pump's partner ---- */

void weir_root_link(struct weir_root *root, uint32_t peer, bool up,
                    weir_instant now);
/* Names that a peer may announce, ask for and want: those of 'set', and those
 * that are charged with them (their ancestors, and their template's overflow).
 * Another name is answered like one without quota, and the answer says that it
 * was denied. */
#define WEIR_ANCESTORS_MAX \
    4096 /* remembered of a peer; of more, those that
                                 * aren't in 'set' are denied */
struct weir_root_names {
    const struct weir_name_set *set; /* borrowed until the link goes down; NULL:
                                      * every name */
    uint64_t owner; /* a hash of the peer's identity: a limiter of another
                     * owner is another one, whatever its incarnation */
    void *context;
    /* Called for each name that is denied, from within weir_root_receive().
     * NULL: not reported. */
    void (*denied)(void *context, struct weir_text name, weir_instant now);
};
/* Between weir_root_link(true) and the first message; without it, every name
 * of owner 0. Copied. */
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
/* How busy the pump was since it last said so, in millionths of the time; some
 * times a minute. A root that can't keep up asks limiters to report no more
 * often than stats.stretch. */
#define WEIR_STRETCH_MAX (30 * WEIR_SECOND)
void weir_root_busy(struct weir_root *root, uint32_t ppm, weir_instant now);
/* The peer's output is full: nothing but answers for it until false. */
void weir_root_hold(struct weir_root *root, uint32_t peer, bool hold);

/* ---- Exact quotas that the root decides (root_ask.c) ---- */

/* What 'now' lacks to nanoseconds since 1970: windows and calendars go by that.
 * 0 until it is said. 'zones': they may have changed. */
void weir_root_set_wall(struct weir_root *root, uint64_t offset, bool zones);
/* Of what was relayed; one for a session that is over is dropped. */
void weir_root_answer(struct weir_root *root, uint32_t peer, uint64_t session,
                      const struct weir_step_answer *answer);

/* ---- Quotas, as the pump reads them from the store ---- */

/* Which store this is; before the first change. With an identity that differs
 * from the last one (or a lower epoch: a restored backup) a whole set begins:
 * changes gather apart, and what stood before is served until they are
 * settled. Then limiters are sent the whole set. */
int weir_root_store(struct weir_root *root, const struct weir_store_id *id,
                    uint64_t epoch, uint64_t floor, weir_instant now);
/* A whole set of the same store, or of another, begins in any case. */
int weir_root_renew(struct weir_root *root, const struct weir_store_id *id);
/* One change, in the order of epochs. */
int weir_root_apply(struct weir_root *root, const struct weir_change *change,
                    weir_instant now);
/* All changes up to the newest were handed over: what limiters may know. The
 * first call makes the root ready. */
void weir_root_settle(struct weir_root *root, weir_instant now);
bool weir_root_ready(const struct weir_root *root);
/* The store can't be asked (any more): what is served may be behind it, and
 * limiters that are ahead keep what they have. False (at first) ends that;
 * limiters are told of both. */
void weir_root_set_provisional(struct weir_root *root, bool provisional);
/* Of the store whose quotas these are. */
void weir_root_identity(const struct weir_root *root,
                        struct weir_store_id *out);
/* What is served. */
struct weir_catalog *weir_root_catalog(struct weir_root *root);

/* ---- What people look at ---- */

/* A limiter that reported more units of a counted quota than it may put into
 * the bucket (max_debt). Its texts live until the next message is received. */
#define WEIR_DEBTORS_MAX 64 /* remembered: the last ones */
#define WEIR_DEBTOR_EPISODE (60 * WEIR_SECOND)
struct weir_debtor {
    struct weir_text quota;
    struct weir_text limiter; /* its name; may be empty */
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    uint64_t units;       /* in no fill, while it is remembered */
    weir_duration silent; /* since its last such report */
};
/* Walks the remembered ones: start with '*cursor' 0; false at the end. */
bool weir_root_debtor(const struct weir_root *root, size_t *cursor,
                      struct weir_debtor *out, weir_instant now);
/* The last one of 'quota'; false: none is remembered. */
bool weir_root_debtor_of(const struct weir_root *root, struct weir_text quota,
                         struct weir_debtor *out, weir_instant now);
/* One whose episode began (the first such report in WEIR_DEBTOR_EPISODE): each
 * once. False: there is none. */
bool weir_root_new_debtor(struct weir_root *root, struct weir_debtor *out,
                          weir_instant now);

/* A quota in use. */
struct weir_usage {
    struct weir_text name;          /* borrowed until the next call */
    const struct weir_quota *quota; /* its quota or template; NULL: removed */
    double fill;                    /* units */
    uint64_t passed;                /* units since this root first saw it */
    uint64_t refused;               /* units */
    uint32_t limiters;              /* that use it */
    struct weir_debtor debtor;      /* as weir_root_debtor_of(), of
                                 * weir_root_usage_of() alone; 0 units: none */
};
/* Walks quotas in use: start with '*cursor' 0; false at the end. */
bool weir_root_usage(struct weir_root *root, size_t *cursor,
                     struct weir_usage *out, weir_instant now);
bool weir_root_usage_of(struct weir_root *root, struct weir_text name,
                        struct weir_usage *out, weir_instant now);

/* A limiter this root knows, connected or not forgotten yet. */
struct weir_limiter_usage {
    struct weir_text name;
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    bool connected;
    weir_duration silent; /* since its last report */
    uint64_t epoch;       /* of its quotas */
    uint64_t unknown;     /* requests by names without quota */
    uint64_t reports;
    uint32_t quotas;                      /* in use there */
    size_t limit_count;                   /* its adaptive limits, … */
    const struct weir_limit_told *limits; /* … until the next message */
    weir_duration limits_age;             /* as they were so long ago */
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
    uint64_t fills;  /* told */
    uint64_t pushes; /* fills messages not asked for */
    uint64_t protocol_errors;
    uint64_t unknown;       /* requests by names without quota */
    uint64_t denied;        /* names that a peer may not ask for */
    uint64_t beyond_debt;   /* units reported beyond a limiter's debt */
    uint64_t asks;          /* steps of exact meters made, or relayed */
    uint64_t asks_dropped;  /* doubled, late, or too many unanswered */
    uint64_t asks_refused;  /* unknown here, or no room */
    uint64_t meters;        /* of exact quotas in memory … */
    uint64_t meter_bytes;   /* … and what they take */
    uint32_t leased;        /* leased quotas in use, by this master … */
    uint32_t lease_holders; /* … and who has, or wants, some of them */
    uint64_t lease_grants;  /* told: answers … */
    uint64_t lease_pushes;  /* … and grants not asked for */
    uint64_t lease_dropped; /* wants that came late or doubled, or had no
                               * room: not answered */
    uint64_t lease_refused; /* wants of unknown or other quotas, or for which
                               * there was no room */
    uint32_t busy_ppm;      /* as weir_root_busy() last heard */
    weir_duration stretch;  /* limiters report no more often; 0: as set */
};
void weir_root_stats(const struct weir_root *root, struct weir_root_stats *out);

#endif /* WEIR_ROOT_H */
