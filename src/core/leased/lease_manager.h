/* SPDX-License-Identifier: MIT
 * leased/lease_manager.h - the lease manager of a server: a lease pool for each
 * quota in use, and its holders. Pure. One thread at a time; grows by the
 * allocator it was given.
 *
 *     ask(client, quota) -> grant       next() -> client, quota, grant
 *
 * A pool is made at the first ask and forgotten when it has no holders. The
 * owner knows the rule of each quota: the manager asks for it at each first use
 * and after weir_lease_manager_review(). */

#ifndef WEIR_LEASE_MANAGER_H
#define WEIR_LEASE_MANAGER_H

#include "core/leased/lease_pool.h"

/* Bounds. */
#define WEIR_LEASED_MAX (1u << 16) /* quotas that are leased at a time */
#define WEIR_CLIENT_ID_MAX 255     /* bytes that name a client */
/* Holders of all quotas together: some 200 bytes each. */
#define WEIR_LEASE_MANAGER_HOLDERS_MAX (1u << 20)
/* Guests, any number under any names, may fill half of both; the rest is for
 * known clients. */
#define WEIR_GUESTS_LEASED_MAX (WEIR_LEASED_MAX / 2)
#define WEIR_GUESTS_HOLDERS_MAX (WEIR_LEASE_MANAGER_HOLDERS_MAX / 2)

/* The wall clock of a client of Doorman's protocol may be behind by so much.
 * Its leases end at a whole second of it, rounded down. */
#define WEIR_DOORMAN_GUARD WEIR_SECOND
/* A silent client is waited for so much longer than its lease by the master
 * that granted it: the original's clients go on until they reach a server
 * again. No start and no takeover waits for that. */
#define WEIR_DOORMAN_PATIENCE (5 * WEIR_SECOND)

struct weir_lease_manager;

/* A quota's lease settings. 'expiry', 'safe' and 'safe_until' are as for
 * weir_lease_pool_set_expiry(): while 'expiry' lies ahead, 'rule.capacity' is
 * as granted; when it is past and 'safe_until' isn't, 'rule.capacity' is
 * 'safe', and 'expiry' is 'safe_until' (as weir_lease_holder_lease() returns
 * them). The owner is asked for the rule anew when 'expiry' has come. */
struct weir_leased {
    struct weir_lease_rule rule;
    weir_duration learning; /* how long leases of another server, or of an
                             * earlier rule, may be out: mostly rule.lease */
    weir_duration guard;    /* how much longer than a lease and a refresh some
                             * of their holders may go by them:
                             * WEIR_DOORMAN_GUARD if Doorman's clients may be
                             * among them; else 0 */
    weir_instant expiry;    /* of the capacity; WEIR_NEVER: it is our own */
    double safe;            /* for safe capacities, in all; unless our own */
    weir_instant safe_until;
};
struct weir_lease_manager_owner {
    void *context;
    /* False: there is no such leased quota, or no longer. */
    bool (*rule)(void *context, struct weir_text quota, struct weir_leased *out,
                 weir_instant now);
};

struct weir_lease_manager_options {
    struct weir_mem mem;
    uint64_t seed;
    struct weir_lease_manager_owner owner;
};

/* NULL: no memory. It isn't master: it grants nothing. */
struct weir_lease_manager *weir_lease_manager_new(
    const struct weir_lease_manager_options *options);
void weir_lease_manager_free(struct weir_lease_manager *manager);

/* This server is the only one that leases from now on. 'vacant': when the last
 * master ended (at most 'now'; if that isn't known, 'now'; WEIR_NEVER: there
 * never was one). For a quota's 'learning' and a bit after it, holders may have
 * grants of another master, and for as long again their safe capacities: its
 * pool learns. The state of an earlier time as master is forgotten, but for the
 * last serial. */
void weir_lease_manager_begin(struct weir_lease_manager *manager,
                              weir_instant vacant, weir_instant now);
/* It is proven that no lease of another master is out: all learning ends, as if
 * begin() had had WEIR_NEVER. False: a client has reported an amount all the
 * same, and learning goes on. */
bool weir_lease_manager_nothing_out(struct weir_lease_manager *manager,
                                    weir_instant now);
#define WEIR_KEPT_UNKNOWN UINT64_MAX
/* The number that the last master kept beside the mastership
 * (weir_lease_pool_keep); 0: there is none, and was none; WEIR_KEPT_UNKNOWN:
 * there may be one. Once, right after weir_lease_manager_begin(). */
void weir_lease_manager_found(struct weir_lease_manager *manager,
                              uint64_t number);
/* As weir_lease_pool_keep(), for all. If a number other than 0 was found, no
 * holder is answered before the first one is kept (but its asks count), or
 * weir_lease_manager_inherit() is false. */
void weir_lease_manager_keep(struct weir_lease_manager *manager,
                             uint64_t number, weir_instant now);
bool weir_lease_manager_wants_keep(const struct weir_lease_manager *manager);
bool weir_lease_manager_lets_in(
    struct weir_lease_manager *manager); /* of any, likewise */
/* This server isn't master any more. */
void weir_lease_manager_end(struct weir_lease_manager *manager);
bool weir_lease_manager_leases(const struct weir_lease_manager *manager);
/* Whether holders may still have grants of the last master, by time alone,
 * without regard to asks heard; not of a quota that isn't leased. */
bool weir_lease_manager_inherit(const struct weir_lease_manager *manager,
                                struct weir_text quota, weir_instant now);

/* The client that asks: an id that is the same whenever it comes back, and its
 * way: a link or connection, which keeps the order of messages. */
struct weir_client {
    struct weir_text id; /* 1 .. WEIR_CLIENT_ID_MAX bytes; copied */
    uint32_t way;        /* the caller's; WEIR_WAY_NONE: not known */
    bool guest;          /* unknown client: guests fill no more than half of the
                          * tables, with the quotas that they use first, too */
};
#define WEIR_WAY_NONE UINT32_MAX
#define WEIR_WAYS_MAX (1u << 20)

/* If a client asks by several ways, the newest counts: once it has come, the
 * caller hands in none by an older way, nor of an older life of the client's.
 * 'ask->streams': it can be pushed to by its way, which is known. Returns 0 and
 * the answer; WEIR_ENOTREADY: this server isn't master, or the ask only counts,
 * as weir_lease_pool_ask() describes; WEIR_ENOENT: no such quota; WEIR_EINVAL,
 * WEIR_EFULL, WEIR_ENOMEM as weir_lease_pool_ask(): nothing has changed. 'out'
 * NULL: the ask only counts, since this server has no lease itself yet. */
int weir_lease_manager_ask(struct weir_lease_manager *manager,
                           const struct weir_client *client,
                           struct weir_text quota,
                           const struct weir_lease_pool_ask *ask,
                           struct weir_grant *out, weir_instant now);
/* A server that leases its own lease on asks for it only after this time since
 * weir_lease_manager_begin(): its holders are heard first, so that its demand
 * and its amount aren't next to nothing. */
#define WEIR_ROSTER WEIR_SECOND

/* Gives back the client's part of the quota, if any. 'taken' is the last grant
 * that it went by; 0: not known. It counts at once if no ask can have overtaken
 * it: that grant is of its last ask or after it, or it comes by the way of that
 * ask. Else the client wants nothing any more, and keeps its grant until its
 * lease is over: a late or doubled release must not free units that were
 * granted since. */
void weir_lease_manager_release(struct weir_lease_manager *manager,
                                const struct weir_client *client,
                                struct weir_text quota, uint64_t taken,
                                weir_instant now);
/* That way is closed. */
void weir_lease_manager_way_lost(struct weir_lease_manager *manager,
                                 uint32_t way);

struct weir_lease_manager_push {
    uint32_t way;
    struct weir_text quota; /* borrowed until the next call */
    struct weir_grant grant;
};
/* The next to be pushed; false: none for now. */
bool weir_lease_manager_next(struct weir_lease_manager *manager,
                             struct weir_lease_manager_push *out,
                             weir_instant now);

/* Rules may have changed: all are asked for anew, some with each tick(). */
void weir_lease_manager_review(struct weir_lease_manager *manager);
/* The same for one quota, if its expiry has changed for example. */
void weir_lease_manager_review_of(struct weir_lease_manager *manager,
                                  struct weir_text quota, weir_instant now);
void weir_lease_manager_tick(struct weir_lease_manager *manager,
                             weir_instant now);
/* When to call tick(), then next(). */
weir_instant weir_lease_manager_deadline(
    const struct weir_lease_manager *manager, weir_instant now);

/* ---- Views ---- */

/* Quotas in use, and the holders of all together. */
uint32_t weir_lease_manager_count(const struct weir_lease_manager *manager,
                                  uint32_t *out_holders);

struct weir_leased_stats {
    struct weir_text quota; /* borrowed until the next call */
    struct weir_lease_rule rule;
    struct weir_lease_pool_stats pool;
};
/* Walks the quotas in use: begin with '*cursor' 0; false at the end. */
bool weir_lease_manager_look(const struct weir_lease_manager *manager,
                             uint32_t *cursor, struct weir_leased_stats *out,
                             weir_instant now);
bool weir_lease_manager_look_of(const struct weir_lease_manager *manager,
                                struct weir_text quota,
                                struct weir_leased_stats *out,
                                weir_instant now);
/* The same, also of a quota that isn't leased any more while some of it may be
 * out. */
bool weir_lease_manager_left_of(const struct weir_lease_manager *manager,
                                struct weir_text quota,
                                struct weir_leased_stats *out,
                                weir_instant now);
/* The holders of one, likewise. */
bool weir_lease_manager_look_holder(const struct weir_lease_manager *manager,
                                    struct weir_text quota, uint32_t *cursor,
                                    struct weir_text *out_client,
                                    struct weir_lease_holder_stats *out,
                                    weir_instant now);
/* One of them, by its id. False: it has asked for nothing, or has gone. */
bool weir_lease_manager_look_client(const struct weir_lease_manager *manager,
                                    struct weir_text quota,
                                    struct weir_text client,
                                    struct weir_lease_holder_stats *out,
                                    weir_instant now);
/* Its lease pool, borrowed until the next call that isn't a look; NULL: the
 * quota isn't in use. */
const struct weir_lease_pool *weir_lease_manager_pool(
    const struct weir_lease_manager *manager, struct weir_text quota);

/* Audits the next 'n' quotas with their pools (weir_lease_pool_audit(), 'n'
 * holders of each), and the next 'n' clients, in a circle: an assertion fails
 * if the heap, the indexes, the lists or the counts disagree. */
void weir_lease_manager_audit(struct weir_lease_manager *manager, uint32_t n);

#endif /* WEIR_LEASE_MANAGER_H */
