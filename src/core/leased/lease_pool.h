/* SPDX-License-Identifier: MIT
 * leased/lease_pool.h - a lease pool: which lease holder has how much of one
 * leased quota. The server's half. Pure. One thread at a time; grows by the
 * allocator it was given.
 *
 * A holder asks with its demand, the amount it has, and the serial of the last
 * grant it has taken. It is granted its share by the quota's share algorithm,
 * as far as that is free. If holders that have more than their share stand in
 * the way, the pool sends them lower grants. Once they have taken these (or
 * their leases have run out) the difference is granted on.
 *
 *     ask() -> grant                       the answer, at each holder's pace
 *     next() -> grant, next() -> grant …   pushed to holders that stream
 *     tick(), deadline()                   leases that run out
 *
 * Guarantees (src/core/leased/lease_pool.c shows why, test_lease_pool tests
 * them by random histories):
 *
 *   - The amount out is the sum, over holders, of the largest step of any
 *     staircase that the holder may still be on. It never exceeds the larger of
 *     the capacity and the amount out when the capacity was cut. While it is
 *     above the capacity it rises only by newly reported grants of other pools.
 *   - The same holds for the safe capacities alone and their total.
 *   - An answer is the exact share, if so much is free; a share never exceeds
 *     the demand.
 *   - The algorithms none and static guarantee this only while learning. */

#ifndef WEIR_LEASE_POOL_H
#define WEIR_LEASE_POOL_H

#include "core/leased/fair_share.h"
#include "core/quota/lease.h"

/* Bounds. */
#define WEIR_HOLDERS_MAX WEIR_CLAIMS_MAX

#define WEIR_LEASE_HOLDER_NONE UINT32_MAX

struct weir_lease_pool;

/* The rule by which a quota is leased. */
struct weir_lease_rule {
    enum weir_share_algorithm share;
    double capacity;     /* units a second, or units: >= 0, finite */
    double safe;         /* for each client, for one lease after its own has run
                          * out; below 0: the capacity by the number of clients.
                          * 0 if on_stale is pass or limit */
    bool hold;           /* ignore 'safe': the safe capacity is the whole
                          * grant */
    weir_duration lease; /* WEIR_LEASE_MIN .. WEIR_LEASE_MAX */
    weir_duration refresh; /* 1 .. lease; in one lease a holder's clock may lose
                            * as much against the pool's */
    weir_duration linger;  /* of a quota of kind concurrency: how long a permit
                            * may outlast the grant under which it entered
                            * (permit_timeout); of a rate 0. At most
                            * WEIR_LEASE_MAX */
    uint64_t cut;          /* goes with each grant (quota/lease.h) */
    /* Of the algorithm FAIR: guaranteed parts (leased/fair_share.h). */
    struct weir_band_part parts[WEIR_BAND_PARTS_MAX];
    size_t part_count;
    bool whole; /* grants are whole units; the odd ones, beyond whole shares, go
                 * round, an ask at a time */
};

bool weir_lease_rule_is_same(const struct weir_lease_rule *a,
                             const struct weir_lease_rule *b);

struct weir_lease_pool_ask {
    const struct weir_band *bands; /* 1 .. WEIR_LEASE_BANDS_MAX, each priority
                                    * once */
    size_t band_count;
    double has;     /* the amount in force, or handed out: 0 ..
                     * WEIR_LEASE_UNITS_MAX */
    double safe;    /* in force after its lease, or promised for then: as
                     * 'has' */
    bool learning;  /* it leases on, and hasn't heard all its own holders: it
                     * may have handed out more than it reports */
    uint64_t taken; /* the serial of the last grant that it goes by; 0: none of
                     * this pool's */
    bool streams;   /* it can be pushed to; if not, all its grants are answers
                     * to its asks, 'has' shows which one it has taken, and it
                     * is promised no safe capacity */
    bool mute;      /* … but it doesn't report it: 'has' is 0 */
    /* the last roster token of another pool, if it still goes by a grant of
     * that one; else 0 */
    uint64_t roster_token;
    weir_duration guard; /* how much its clock may be behind (whole seconds of
                          * another machine's wall clock); else 0 */
};

/* Amounts that holders may have of another pool, or of this server's pool
 * before a restart. */
struct weir_learning {
    weir_instant leases; /* their leases are over by then … */
    weir_instant safes;  /* … and their safe capacities, >= leases */
    double promised;     /* the most promised in safe capacities, in all; 0:
                          * none; INFINITY: unknown */
    uint64_t kept;       /* the last number that the other pool had kept: see
                          * weir_lease_pool_keep(); 0: none */
};

/* NULL: no memory. The rule must be sound. '*serials' is the last serial of all
 * pools of this server, which share it; borrowed. If 'learning' is NULL, or its
 * instants are past, no holder has anything. Otherwise the pool learns: it
 * hands out only amounts that certainly no other pool's holder has. */
struct weir_lease_pool *weir_lease_pool_new(
    const struct weir_mem *mem, const struct weir_lease_rule *rule,
    const struct weir_learning *learning, uint64_t *serials, uint64_t seed,
    weir_instant now);
void weir_lease_pool_free(struct weir_lease_pool *pool);

/* Replaces the rule. Units out stay out, and are taken back if they exceed the
 * capacity. Learning goes on as it was. */
void weir_lease_pool_set_rule(struct weir_lease_pool *pool,
                              const struct weir_lease_rule *rule);
/* The capacity is itself a staircase: no lease goes beyond 'expiry', then there
 * is 'safe' until 'safe_until'; no safe capacity goes beyond that, and their
 * sum stays within 'safe'. When 'expiry' is over, the caller sets the rule's
 * capacity to 'safe', and 'expiry' to 'safe_until'. WEIR_NEVER: the capacity is
 * this server's own, and 'safe' and 'safe_until' don't count. */
void weir_lease_pool_set_expiry(struct weir_lease_pool *pool,
                                weir_instant expiry, double safe,
                                weir_instant safe_until);

/* Whether a holder has reported an amount of another pool, while this one
 * learned. */
bool weir_lease_pool_has_heard(const struct weir_lease_pool *pool);
/* It is proven that no other pool's holder has anything: learning is over. No
 * holder may have reported an amount (asserted). */
void weir_lease_pool_nothing_out(struct weir_lease_pool *pool,
                                 weir_instant now);

/* 'number' was stored beside the mastership, where a successor will find it; it
 * differs from all before it. From now on grants carry roster tokens, which
 * name the holders that have something. A successor that finds that number and
 * has heard all holders of such a token knows at once how much is out. 0, as at
 * first: none is kept. The successor answers no holder before it has kept a
 * number of its own. */
void weir_lease_pool_keep(struct weir_lease_pool *pool, uint64_t number,
                          weir_instant now);
/* Whether new holders wait: each is given nothing before another number is
 * kept, or until no holder is left with a token that lacks it. Until then no
 * tokens are sent. */
bool weir_lease_pool_wants_keep(const struct weir_lease_pool *pool);
/* True once when the holders that weren't answered may be answered although no
 * number was kept. */
bool weir_lease_pool_lets_in(struct weir_lease_pool *pool);

/* Adds a holder that has, and wants, nothing. 'name': the same whenever it
 * comes back, and to any pool of the quota; as good as random. The caller uses
 * the number for it until weir_lease_pool_gone() returns that number or
 * weir_lease_pool_release() returns true. Returns 0, WEIR_EFULL or
 * WEIR_ENOMEM. */
int weir_lease_pool_join(struct weir_lease_pool *pool, uint64_t name,
                         uint32_t *out_holder);
/* A holder asks. Returns 0 and the answer, or WEIR_EINVAL (an ask out of its
 * range), WEIR_EFULL (too many claims in all), WEIR_ENOMEM: then nothing has
 * changed. WEIR_ENOTREADY: the ask counts, but isn't answered yet: the holder
 * streams, is new, and waits as weir_lease_pool_wants_keep() describes; ask
 * again for it when a number is kept, or on weir_lease_pool_lets_in(). (A
 * holder that can't be pushed to is granted nothing and a short refresh.) If
 * there are more priorities than WEIR_BANDS_MAX in all, some go with the next
 * lower one. O(log holders). 'out' NULL: the ask counts and isn't answered: the
 * server has nothing to give yet, since its own lease pool hasn't answered. */
int weir_lease_pool_ask(struct weir_lease_pool *pool, uint32_t holder,
                        const struct weir_lease_pool_ask *ask,
                        struct weir_grant *out, weir_instant now);
/* A push didn't reach it, or its stream broke and it can't be pushed to any
 * more. Its grants stay accounted. */
void weir_lease_pool_stream_lost(struct weir_lease_pool *pool, uint32_t holder);
/* The holder gives all back. If that isn't 'sure' (an ask may have overtaken
 * it), it is treated as silent from now on. True: it is forgotten, and its
 * number free; false: weir_lease_pool_gone() will return it. */
bool weir_lease_pool_release(struct weir_lease_pool *pool, uint32_t holder,
                             bool sure, weir_instant now);

/* The next grant to push; false: none for now. While a holder waits, holders
 * with more than their share get a lower grant, and waiting holders get more
 * when it is free. All get a new roster token when theirs is void, at most once
 * a refresh. A call looks at WEIR_LEASE_POOL_WORK holders at most: false may
 * come early, with a deadline of 'now'. */
#define WEIR_LEASE_POOL_WORK 256
bool weir_lease_pool_next(struct weir_lease_pool *pool, struct weir_grant *out,
                          weir_instant now);
/* Holders that didn't ask for their lease, one refresh and 'linger' want
 * nothing any more. Their safe capacity stays accounted until its time is over
 * likewise; then they are forgotten. */
void weir_lease_pool_tick(struct weir_lease_pool *pool, weir_instant now);
/* The next holder that tick() has forgotten; the next join() may use its number
 * again. */
bool weir_lease_pool_gone(struct weir_lease_pool *pool, uint32_t *out_holder);
/* When to call tick(), then next(). */
weir_instant weir_lease_pool_deadline(const struct weir_lease_pool *pool,
                                      weir_instant now);

struct weir_lease_pool_stats {
    uint32_t holders;
    uint64_t clients; /* of all holders together */
    double capacity;  /* of the rule */
    double wants;
    double granted; /* the sum of the last grants */
    double out; /* … and of the largest steps that they may be using … */
    double safe_out; /* … or will use after their leases */
    bool learning;
};
void weir_lease_pool_stats(const struct weir_lease_pool *pool,
                           struct weir_lease_pool_stats *out, weir_instant now);
/* One holder, for a table of them. */
struct weir_lease_holder_stats {
    uint32_t number;
    double wants, granted, out;
    uint64_t clients;
    weir_duration left; /* of its lease; 0: it has run out */
    bool streams;
};
bool weir_lease_pool_holder(const struct weir_lease_pool *pool, uint32_t holder,
                            struct weir_lease_holder_stats *out,
                            weir_instant now);
/* The units that its bands are guaranteed of the present capacity, those with a
 * part of it, 0 included; at most WEIR_LEASE_GUARANTEES_MAX. Returns how
 * many. */
size_t weir_lease_pool_guarantees(const struct weir_lease_pool *pool,
                                  uint32_t holder, struct weir_guarantee *out,
                                  weir_instant now);
/* The demand of all holders, a band for each priority, for a server that asks
 * on their behalf. Returns the number of bands, at most 'max': the remaining
 * bands are added to the lowest. */
size_t weir_lease_pool_bands(const struct weir_lease_pool *pool,
                             struct weir_band *out, size_t max);

/* Audits the sums over all holders and the next 'n' holders, in a circle: an
 * assertion fails if sums, claims, lists or counts disagree. The sums are left
 * out if there are more holders than WEIR_AUDIT_WALK_MAX. */
void weir_lease_pool_audit(struct weir_lease_pool *pool, uint32_t n);

#endif /* WEIR_LEASE_POOL_H */
