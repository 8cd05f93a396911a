/* SPDX-License-Identifier: MIT
 * quota/lease.h - the values exchanged between a lease holder and a lease
 * manager: count/ puts them into messages, lease/ acts on them. */

#ifndef WEIR_LEASE_H
#define WEIR_LEASE_H

#include "core/base/base.h"

/* Bounds. */
#define WEIR_LEASE_MIN WEIR_SECOND
#define WEIR_LEASE_MAX (86400 * WEIR_SECOND)
#define WEIR_LEASE_BANDS_MAX 16           /* priorities of one holder */
#define WEIR_LEASE_CLIENTS_MAX 1000000000 /* in one priority */
#define WEIR_LEASE_UNITS_MAX 1e18         /* wanted, had or granted */

/* The wants of one priority of a lease holder. A holder that is a process has
 * one priority, with one client. */
struct weir_band {
    int64_t priority; /* a higher one is served earlier */
    uint32_t clients; /* 1 .. WEIR_LEASE_CLIENTS_MAX */
    double wants;     /* units a second, or units: 0 .. WEIR_LEASE_UNITS_MAX */
};

/* Of a quota with parts that are guaranteed to bands: what a holder's band is
 * guaranteed of its grant. */
#define WEIR_LEASE_GUARANTEES_MAX 8
struct weir_guarantee {
    int64_t band;
    double units; /* 0 .. WEIR_LEASE_UNITS_MAX */
};

/* The amounts that a lease holder may use, as a staircase down. Time counts
 * from the sending of the request that it answers, by the holder's clock:
 *
 *     capacity |________
 *              |        |
 *         safe |        |___________      (may also be the higher one)
 *              |        |           |
 *              0------lease----safe_lease--->
 *
 * A push has no such instant: its amounts replace the previous ones, and both
 * spans continue unchanged. */
struct weir_grant {
    uint32_t holder; /* the lease pool's number for it; not on the wire, and
                      * ignored by the holder */
    uint64_t serial; /* >= 1; rises as long as the server's process lives, over
                      * all its quotas and terms */
    double capacity; /* 0 .. WEIR_LEASE_UNITS_MAX */
    double safe;     /* the same, from 'lease' to 'safe_lease' */
    weir_duration lease; /* 0: over already, as the lease pool's own is; of a
                          * push 0 */
    weir_duration safe_lease; /* of an answer >= lease, and at most twice the
                               * rule's value of it; after it the grant is 0. Of
                               * a push 0 */
    weir_duration refresh; /* ask again after it; 0 only if an answer's lease is
                            * 0 */
    /* roster token: proves to the next master that all lease holders were
     * heard: see leased/lease_pool_roster.c. 0: none */
    uint64_t roster_token;
    uint64_t cut; /* of a fleet's adaptive limit: weir_fleet_limit_cut() */
};

#endif /* WEIR_LEASE_H */
