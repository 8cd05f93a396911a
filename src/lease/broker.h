/* SPDX-License-Identifier: MIT
 * lease/broker.h - who has how much of one quota that is leased: the server's
 * half. Pure. One thread at a time; grows by the allocator it was given.
 *
 * A holder asks: so much I want, so much I have, that grant of yours I have
 * taken. It is granted what the quota's share algorithm gives it, as far as
 * that is free. What stands in the way of a grant is taken back from those who
 * have more than their share: they are told of a lower grant, and once they
 * have taken it (or their lease has run out) the difference is given on.
 *
 *     ask() -> grant                       the answer, at each holder's pace
 *     next() -> grant, next() -> grant …   pushed to holders that stream
 *     tick(), deadline()                   leases that run out
 *
 * What holds (src/lease/broker.c shows why, test_broker proves it by random
 * histories):
 *
 *   - What is out is the sum, over holders, of the largest step of what each
 *     was told that it may still be on. It never exceeds the larger of the
 *     capacity and what was out when the capacity was cut, and never rises
 *     while it is above the capacity, but by what is heard of others' grants.
 *   - The same of the safe capacities alone, and what there is of that.
 *   - An answer is the exact share, if so much is free; a share is never more
 *     than is wanted.
 *   - none and static promise nothing of the kind, but while learning. */

#ifndef WEIR_BROKER_H
#define WEIR_BROKER_H

#include "lease/share.h"
#include "quota/lease.h"

/* Bounds. */
#define WEIR_HOLDERS_MAX WEIR_CLAIMS_MAX

#define WEIR_HOLDER_NONE UINT32_MAX

struct weir_broker;

/* How a quota is handed out. */
struct weir_lease_rule {
    enum weir_share share;
    double capacity;     /* units a second, or units: >= 0, finite */
    double safe;         /* for each client, once its lease has run out, for
                            * a lease more; below 0: the capacity by the number
                            * of clients. 0 where on_stale is pass or limit */
    bool hold;           /* … whatever 'safe' says: as much as was granted */
    weir_duration lease; /* WEIR_LEASE_MIN .. WEIR_LEASE_MAX */
    weir_duration refresh; /* 1 .. lease; so much slower than ours may a
                            * holder's clock be, in a lease */
    weir_duration linger;  /* of a gauge: so long may a permit outlast what it
                            * was let in by (permit_timeout); of a rate 0.
                            * At most WEIR_LEASE_MAX */
    bool whole; /* fractions are of no use: grants are whole units; the odd
                 * ones, beyond whole shares, go round, an ask at a time */
};

struct weir_broker_ask {
    const struct weir_band *bands; /* 1 .. WEIR_LEASE_BANDS_MAX, each priority
                                    * once */
    size_t band_count;
    double has;     /* what it goes by now, or has handed out: 0 ..
                      * WEIR_LEASE_UNITS_MAX */
    double safe;    /* what it goes by when its lease is over, or has promised
                      * for then: as 'has' */
    bool learning;  /* it leases on, and hasn't heard of all its own holders:
                      * it may have handed out more than it says */
    uint64_t taken; /* the serial of the last grant that it goes by; 0: none
                      * of this broker's */
    bool streams;   /* it can be pushed to; else 'has' says what it has taken,
                      * since all that it is told are answers to its asks */
    bool mute;      /* … but it doesn't say: 'has' is 0 */
    uint64_t roll;  /* the last that another broker has told it, if it goes by
                      * something of that one's still; else 0 */
    weir_duration guard; /* its clock may run so much behind (whole seconds of
                          * another machine's wall clock); else 0 */
};

/* What holders may have of another broker, or of this one's former life. */
struct weir_learning {
    weir_instant leases; /* their leases are over by then … */
    weir_instant safes;  /* … and their safe capacities, >= leases */
    double promised;     /* no more than that in safe capacities, in all; 0:
                          * there are none; INFINITY: not known */
    uint64_t kept;       /* the last number that the other had kept: see
                          * weir_broker_keep(); 0: none */
};

/* NULL: no memory. The rule must be sound. '*serials' is the last serial of all
 * brokers of this server, which share it; borrowed. 'learning' NULL, or its
 * instants past: it is known that no holder has anything. Else it learns:
 * it hands out no more than is certain not to be another's. */
struct weir_broker *weir_broker_new(const struct weir_mem *mem,
                                    const struct weir_lease_rule *rule,
                                    const struct weir_learning *learning,
                                    uint64_t *serials, uint64_t seed,
                                    weir_instant now);
void weir_broker_free(struct weir_broker *broker);

/* Another rule from now on. What is out stays, and is taken back if it is more
 * than the capacity. Learning goes on as it was. */
void weir_broker_set_rule(struct weir_broker *broker,
                          const struct weir_lease_rule *rule);
/* The capacity is itself a staircase: no lease goes beyond 'expiry', then there
 * is 'safe' until 'safe_until', and no safe capacity goes beyond that, or is in
 * sum above it. When 'expiry' is over, the caller sets the rule's capacity to
 * 'safe', and 'expiry' to 'safe_until'. WEIR_NEVER: it is ours, and the others
 * don't count. */
void weir_broker_set_expiry(struct weir_broker *broker, weir_instant expiry,
                            double safe, weir_instant safe_until);

/* 'number' is kept beside the mastership, where a successor is sure to find
 * it; it is another than any before it. From now on holders are told by rolls
 * who else has something, and a successor that finds that number and has heard
 * all of such a roll knows at once what is out. 0, as at first: none is kept.
 * The successor answers nobody before it has kept a number of its own. */
void weir_broker_keep(struct weir_broker *broker, uint64_t number,
                      weir_instant now);
/* Somebody new is given nothing before another number is kept, or nobody is
 * left who was told a roll without him. Till it is kept no rolls are told. */
bool weir_broker_wants_keep(const struct weir_broker *broker);
/* Those that weren't answered may be now, though no number was kept: once true
 * when it has come to that. */
bool weir_broker_lets_in(struct weir_broker *broker);

/* Makes a holder that has, and wants, nothing. 'name': the same whenever it
 * comes back, and to any broker of the quota; as good as random. Its number is
 * the caller's to know it by until weir_broker_gone() or weir_broker_release()
 * says otherwise. Returns 0, WEIR_EFULL or WEIR_ENOMEM. */
int weir_broker_join(struct weir_broker *broker, uint64_t name,
                     uint32_t *out_holder);
/* A holder asks. Returns 0 and what to answer, or WEIR_EINVAL (an ask out of
 * its range), WEIR_EFULL (too many claims in all), WEIR_ENOMEM: then nothing
 * has changed. WEIR_ENOTREADY: it was heard, and isn't to be answered yet: it
 * streams, is new, and waits as weir_broker_wants_keep() says; to be asked anew
 * when a number is kept, or weir_broker_lets_in(). (One that can't be pushed to
 * is granted nothing, and is to ask again soon.) Of more priorities than
 * WEIR_BANDS_MAX in all, some go with the next lower one. O(log holders). */
int weir_broker_ask(struct weir_broker *broker, uint32_t holder,
                    const struct weir_broker_ask *ask, struct weir_grant *out,
                    weir_instant now);
/* The same, but it isn't answered: the server has nothing to give as yet, since
 * its own broker hasn't answered. */
int weir_broker_hear(struct weir_broker *broker, uint32_t holder,
                     const struct weir_broker_ask *ask, weir_instant now);
/* A push didn't reach it, or it can't be pushed to any more: its stream broke.
 * What it was told stays accounted. */
void weir_broker_stream_lost(struct weir_broker *broker, uint32_t holder);
/* It gives all back. If that isn't 'sure' (an ask may have overtaken it), it is
 * taken for silent from now on. True: it is forgotten, and its number free;
 * false: weir_broker_gone() will say so. */
bool weir_broker_release(struct weir_broker *broker, uint32_t holder, bool sure,
                         weir_instant now);

/* The next grant to push; false: none for now. Those who have more than their
 * share are told of less while somebody waits for it, and who waits is told of
 * more when it is free; and all are told a roll when theirs is void, once a
 * refresh at most. At most WEIR_BROKER_WORK holders are looked at in a
 * call: false may come early, with a deadline of 'now'. */
#define WEIR_BROKER_WORK 256
bool weir_broker_next(struct weir_broker *broker, struct weir_grant *out,
                      weir_instant now);
/* Those whose lease, one refresh and 'linger' have passed without an ask want
 * nothing any more; what they go by then, their safe capacity, stays accounted
 * until that is over likewise, and then they are forgotten. */
void weir_broker_tick(struct weir_broker *broker, weir_instant now);
/* The next that tick() has forgotten; its number may be used again by the next
 * join(). */
bool weir_broker_gone(struct weir_broker *broker, uint32_t *out_holder);
/* When tick(), then next(), are wanted. */
weir_instant weir_broker_deadline(const struct weir_broker *broker,
                                  weir_instant now);

struct weir_broker_stats {
    uint32_t holders;
    uint64_t clients; /* of all holders together */
    double capacity;  /* of the rule */
    double wants;
    double granted;  /* the sum of what holders were last told */
    double out;      /* … and of the largest that they may be using … */
    double safe_out; /* … or will, when their leases are over */
    bool learning;
};
void weir_broker_stats(const struct weir_broker *broker,
                       struct weir_broker_stats *out, weir_instant now);
/* One holder, for a table of them. */
struct weir_holder_stats {
    double wants, granted, out;
    uint64_t clients;
    weir_duration left; /* of its lease; 0: it has run out */
    bool streams;
};
bool weir_broker_holder(const struct weir_broker *broker, uint32_t holder,
                        struct weir_holder_stats *out, weir_instant now);
/* What all want together, a band for each priority, for who asks on their
 * behalf. Returns how many, at most 'max': what is left over is added to the
 * lowest. */
size_t weir_broker_bands(const struct weir_broker *broker,
                         struct weir_band *out, size_t max);

#endif /* WEIR_BROKER_H */
