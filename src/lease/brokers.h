/* SPDX-License-Identifier: MIT
 * lease/brokers.h - all that one server leases out: a broker for each quota
 * in use, and who its holders are. Pure. One thread at a time; grows by the
 * allocator it was given.
 *
 *     ask(client, quota) -> grant       next() -> client, quota, grant
 *
 * Brokers are made at the first ask and forgotten when nobody holds anything.
 * Which rule a quota has, its owner knows: it is asked for at each first use
 * and after weir_brokers_review(). */

#ifndef WEIR_BROKERS_H
#define WEIR_BROKERS_H

#include "lease/broker.h"

/* Bounds. */
#define WEIR_LEASED_MAX (1u << 16) /* quotas that are leased at a time */
#define WEIR_CLIENT_ID_MAX 255     /* bytes that name a client */
/* Holders of all quotas together: some 200 bytes each. */
#define WEIR_BROKERS_HOLDERS_MAX (1u << 20)
/* What guests, of whom there may be any number by any name, leave of both to
 * those who are known: half. */
#define WEIR_GUESTS_LEASED_MAX (WEIR_LEASED_MAX / 2)
#define WEIR_GUESTS_HOLDERS_MAX (WEIR_BROKERS_HOLDERS_MAX / 2)

/* The clock of one of Doorman's clients may be wrong by so much: its leases are
 * whole seconds of its own wall clock. */
#define WEIR_DOORMAN_GUARD (5 * WEIR_SECOND)

struct weir_brokers;

/* What is known of a quota. What the capacity is leased by is as for
 * weir_broker_set_expiry(): while 'expiry' lies ahead, 'rule.capacity' is as
 * granted; when it is past and 'safe_until' isn't, it is 'safe', and 'expiry'
 * is 'safe_until' (weir_holder_lease() says just that). The owner is asked for
 * the rule anew when 'expiry' has come. */
struct weir_leased {
    struct weir_lease_rule rule;
    weir_duration learning; /* so long leases may be out that another, or an
                             * earlier rule, has given: mostly rule.lease */
    weir_duration guard;    /* so much longer may some of their holders go by
                             * them, as in an ask: WEIR_DOORMAN_GUARD if
                             * Doorman's clients may be among them; else 0 */
    weir_instant expiry;    /* of the capacity; WEIR_NEVER: it is ours */
    double safe;            /* for safe capacities, in all; not of ours */
    weir_instant safe_until;
};
struct weir_brokers_owner {
    void *context;
    /* False: there is no such leased quota, or no more. */
    bool (*rule)(void *context, struct weir_text quota, struct weir_leased *out,
                 weir_instant now);
};

struct weir_brokers_options {
    struct weir_mem mem;
    uint64_t seed;
    struct weir_brokers_owner owner;
};

/* NULL: no memory. It isn't master: nobody gets anything. */
struct weir_brokers *weir_brokers_new(
    const struct weir_brokers_options *options);
void weir_brokers_free(struct weir_brokers *brokers);

/* It is the only one that leases from now on. 'vacant': since when nobody was
 * (at most 'now'; if that isn't known, 'now'; WEIR_NEVER: nobody ever was). For
 * a quota's 'learning' and a bit after it, holders may have what another has
 * told them, and for as long again their safe capacities: its broker learns.
 * What it knew from an earlier time as master is forgotten, but for the last
 * serial. */
void weir_brokers_begin(struct weir_brokers *brokers, weir_instant vacant,
                        weir_instant now);
#define WEIR_KEPT_UNKNOWN UINT64_MAX
/* The number that the one before kept beside the mastership (weir_broker_keep);
 * 0: there is none, and was none; WEIR_KEPT_UNKNOWN: there may be one. Once,
 * right after weir_brokers_begin(). */
void weir_brokers_found(struct weir_brokers *brokers, uint64_t number);
/* As weir_broker_keep(), for all. Where another than 0 was found, nobody is
 * answered before the first one is kept (but heard by weir_brokers_hear()), or
 * weir_brokers_inherit() is false. */
void weir_brokers_keep(struct weir_brokers *brokers, uint64_t number,
                       weir_instant now);
bool weir_brokers_wants_keep(const struct weir_brokers *brokers);
bool weir_brokers_lets_in(struct weir_brokers *brokers); /* of any, likewise */
/* It isn't any more. */
void weir_brokers_end(struct weir_brokers *brokers);
bool weir_brokers_leases(const struct weir_brokers *brokers);
/* Whether holders may still have anything of the one before, by time alone,
 * whatever was heard; not of a quota that isn't leased. */
bool weir_brokers_inherit(const struct weir_brokers *brokers,
                          struct weir_text quota, weir_instant now);
/* Whether holders may have some of a quota of which this server hasn't heard,
 * be the quota in use or not. Not of one that isn't leased. */
bool weir_brokers_learn(const struct weir_brokers *brokers,
                        struct weir_text quota, weir_instant now);

/* Who asks: an id that is the same whenever it comes back, and by which way it
 * does: a link or connection, which keeps the order of what comes by it. */
struct weir_client {
    struct weir_text id; /* 1 .. WEIR_CLIENT_ID_MAX bytes; copied */
    uint32_t way;        /* the caller's; WEIR_WAY_NONE: not known */
    bool guest;          /* anybody: he fills no more than half of the tables,
                          * with the quotas that he is the first to use, too */
};
#define WEIR_WAY_NONE UINT32_MAX
#define WEIR_WAYS_MAX (1u << 20)

/* Of a client's asks by several ways those by the newest count: once one of
 * them has come, the caller hands in none by an older way, nor of an older life
 * of the client's. 'ask->streams': it can be pushed to by its way, which is
 * known. Returns 0 and what to answer; WEIR_ENOTREADY: it isn't master, or it
 * was heard, as weir_broker_ask() says; WEIR_ENOENT: no such quota;
 * WEIR_EINVAL, WEIR_EFULL, WEIR_ENOMEM as weir_broker_ask(): nothing has
 * changed. */
int weir_brokers_ask(struct weir_brokers *brokers,
                     const struct weir_client *client, struct weir_text quota,
                     const struct weir_broker_ask *ask, struct weir_grant *out,
                     weir_instant now);
/* The same, but it isn't answered: nobody leases to this server as yet. */
int weir_brokers_hear(struct weir_brokers *brokers,
                      const struct weir_client *client, struct weir_text quota,
                      const struct weir_broker_ask *ask, weir_instant now);
/* A server that leases to others what it is leased itself doesn't ask for it
 * before that has passed since weir_brokers_begin(): its holders are heard
 * first, so that what it says to want and to have isn't next to nothing. */
#define WEIR_ROLL_CALL WEIR_SECOND

/* Gives back what the client has of the quota, if anything. 'taken' is the last
 * grant that it went by; 0: it doesn't say. It counts at once if no ask can
 * have overtaken it: that grant is of its last ask or after it, or it comes by
 * the way of that ask. Else the client wants nothing any more, and has what it
 * has until its lease is over: what is late or doubled must not free what was
 * granted since. */
void weir_brokers_release(struct weir_brokers *brokers,
                          const struct weir_client *client,
                          struct weir_text quota, uint64_t taken,
                          weir_instant now);
/* Nobody comes by that way any more. */
void weir_brokers_way_lost(struct weir_brokers *brokers, uint32_t way);

struct weir_brokers_push {
    uint32_t way;
    struct weir_text quota; /* borrowed until the next call */
    struct weir_grant grant;
};
/* The next to be pushed; false: none for now. */
bool weir_brokers_next(struct weir_brokers *brokers,
                       struct weir_brokers_push *out, weir_instant now);

/* Rules may have changed: all are asked for anew, some with each tick(). */
void weir_brokers_review(struct weir_brokers *brokers);
/* That of one may have changed, its expiry for example. */
void weir_brokers_review_of(struct weir_brokers *brokers,
                            struct weir_text quota, weir_instant now);
void weir_brokers_tick(struct weir_brokers *brokers, weir_instant now);
/* When tick(), then next(), are wanted. */
weir_instant weir_brokers_deadline(const struct weir_brokers *brokers,
                                   weir_instant now);

/* ---- What people look at ---- */

/* Quotas in use, and the holders of all together. */
uint32_t weir_brokers_count(const struct weir_brokers *brokers,
                            uint32_t *out_holders);

struct weir_leased_stats {
    struct weir_text quota; /* borrowed until the next call */
    struct weir_lease_rule rule;
    struct weir_broker_stats broker;
};
/* Walks the quotas in use: begin with '*cursor' 0; false at the end. */
bool weir_brokers_look(const struct weir_brokers *brokers, uint32_t *cursor,
                       struct weir_leased_stats *out, weir_instant now);
bool weir_brokers_look_of(const struct weir_brokers *brokers,
                          struct weir_text quota, struct weir_leased_stats *out,
                          weir_instant now);
/* The same, also of one that isn't leased any more while something of it may be
 * out. */
bool weir_brokers_left_of(const struct weir_brokers *brokers,
                          struct weir_text quota, struct weir_leased_stats *out,
                          weir_instant now);
/* The holders of one, likewise. */
bool weir_brokers_look_holder(const struct weir_brokers *brokers,
                              struct weir_text quota, uint32_t *cursor,
                              struct weir_text *out_client,
                              struct weir_holder_stats *out, weir_instant now);
/* What all clients want of a quota, for who asks on their behalf: as
 * weir_broker_bands(). 0: nobody uses it. */
size_t weir_brokers_bands(const struct weir_brokers *brokers,
                          struct weir_text quota, struct weir_band *out,
                          size_t max);

#endif /* WEIR_BROKERS_H */
