/* SPDX-License-Identifier: MIT
 * quota/lease.h - what who leases a quota and who leases it out say of it: the
 * words that count/ puts into messages and lease/ acts by. */

#ifndef WEIR_LEASE_H
#define WEIR_LEASE_H

#include "base/base.h"

/* Bounds. */
#define WEIR_LEASE_MIN WEIR_SECOND
#define WEIR_LEASE_MAX (86400 * WEIR_SECOND)
#define WEIR_LEASE_BANDS_MAX 16           /* priorities of one holder's wants */
#define WEIR_LEASE_CLIENTS_MAX 1000000000 /* in one of them */
#define WEIR_LEASE_UNITS_MAX 1e18         /* wanted, had or granted */

/* What one priority of a holder wants. A holder that is a process has one, with
 * one client. */
struct weir_band {
    int64_t priority; /* the higher, the earlier served */
    uint32_t clients; /* 1 .. WEIR_LEASE_CLIENTS_MAX */
    double wants;     /* units a second, or units: 0 .. WEIR_LEASE_UNITS_MAX */
};

/* What a holder may go by: a staircase down. From the sending of the ask that
 * it answers, by the holder's clock:
 *
 *     capacity |________
 *              |        |
 *         safe |        |___________      (it may be the higher one, too)
 *              |        |           |
 *              0------lease----safe_lease--->
 *
 * A push has no such instant: its amounts take the place of those before, and
 * both spans go on as they were. */
struct weir_grant {
    uint32_t holder; /* the broker's number for it; not on the wire, and the
                      * holder doesn't look at it */
    uint64_t serial; /* >= 1; rises as long as the server's process lives, over
                      * all its quotas and terms */
    double capacity; /* 0 .. WEIR_LEASE_UNITS_MAX */
    double safe;     /* the same, from 'lease' to 'safe_lease' */
    weir_duration lease; /* 0: over already, as the broker's own is; of a push
                          * 0 */
    weir_duration safe_lease; /* of an answer >= lease, and at most twice what
                               * the rule says of that; after it there is
                               * nothing. Of a push 0 */
    weir_duration refresh; /* ask again after it; 0 only where the lease of an
                            * answer is */
    uint64_t roll; /* who has anything of the quota, as a number that a holder
                    * shows to the next master: see lease/broker_roll.c. 0:
                    * there is none */
};

#endif /* WEIR_LEASE_H */
