/* SPDX-License-Identifier: MIT
 * node/root_adaptive.h - adaptive limits of fleets in a root: what its clients
 * measured becomes a limit, which is leased out like that of any leased quota.
 *
 *     wants with a window --take()--> fleet limit --limit()--> lease pool
 *                                         |
 *                             tick(): the limit moved: its rule is reviewed
 *
 * A master has a fleet limit (concurrency/fleet_limit.h) for each such quota
 * that is in use, of its term alone. While it learns what the clients have, of
 * a former master or by limits that they found themselves, the limit is not
 * judged. It begins with the sum of what they have; if none of them has
 * anything but its first permit, with the controller's initial limit.
 *
 * A region's root finds no limit: it sends what its clients measured up, added
 * together, and leases on what it is granted.
 *
 * The root's one thread. */

#ifndef WEIR_ROOT_ADAPTIVE_H
#define WEIR_ROOT_ADAPTIVE_H

#include "core/concurrency/fleet_limit.h"
#include "core/leased/lease_manager.h"
#include "core/node/root.h"

/* Limits of a root at a time. Quotas above are refused with NO_ROOM, and their
 * processes go on alone. */
#define WEIR_FLEET_LIMITS_MAX 1024
/* Leases of such quotas: after so long without a root a process goes on alone,
 * and it reports what it measured so often. */
#define WEIR_FLEET_LEASE (5 * WEIR_SECOND)
#define WEIR_FLEET_REFRESH (WEIR_SECOND / 2)
/* … while nothing is answered: the first answer takes the limit back. */
#define WEIR_FLEET_REFRESH_STALLED (WEIR_SECOND / 10)
/* Clients with limits of their own, after an edit of the scope, are all heard
 * within so long. */
#define WEIR_FLEET_LEARNING (2 * WEIR_SECOND)

struct root_adaptive;

/* NULL: no memory. */
struct root_adaptive *weir_root_adaptive_new(const struct weir_mem *mem,
                                             uint64_t seed);
void weir_root_adaptive_free(struct root_adaptive *adaptive); /* or NULL */
/* Forgets all: another term begins, or none. */
void weir_root_adaptive_clear(struct weir_root *root);

/* A client asks for a quota, and says that it has so much: an adaptive limit
 * has to exist before its first grant. 'has' may be any number. Returns 0, also
 * of a quota without such a limit, WEIR_EINVAL, WEIR_EFULL or WEIR_ENOMEM.
 * 'out_new': it isn't a member yet; when it is, call joined(). */
int weir_root_adaptive_asked(struct weir_root *root,
                             const struct weir_client *client,
                             struct weir_text name, double has, bool *out_new,
                             weir_instant now);
/* … its number may have been another's until a moment ago. */
void weir_root_adaptive_joined(struct weir_root *root,
                               const struct weir_client *client,
                               struct weir_text name, weir_instant now);
/* … what it measured; 'grant': the answer that it gets. */
void weir_root_adaptive_take(struct weir_root *root, struct weir_text name,
                             const struct weir_grant *grant,
                             const struct weir_latency_batch *batch,
                             weir_instant now);
/* Of a region's root: what its clients measured since the last call. 'bins':
 * room for WEIR_WINDOW_BINS, which 'out' borrows. False: there is nothing. */
bool weir_root_adaptive_collect(struct weir_root *root, struct weir_text name,
                                struct weir_latency_count *bins,
                                struct weir_latency_batch *out,
                                weir_instant now);

/* The rule by which parts of the limit are leased: what there is, which has
 * fractions, and the cut that goes with it. Before the first ask it is the
 * initial limit. */
void weir_root_adaptive_rule(const struct weir_root *root,
                             const struct weir_quota *quota,
                             struct weir_text name, struct weir_leased *out);
/* The bands of a process's want: those that it names of classes which are
 * guaranteed shares, and all others in one: a process would else have as many
 * shares as it names bands. 'out': room for WEIR_LEASE_GUARANTEES_MAX + 1.
 * Returns how many. */
size_t weir_root_adaptive_bands(const struct weir_root *root,
                                const struct weir_want *want,
                                struct weir_band *out);
/* Of a region's root: the cut that came with its own grant. */
void weir_root_adaptive_granted(struct weir_root *root, struct weir_text name,
                                double capacity, uint64_t cut,
                                weir_instant now);
/* Quotas may have changed. */
void weir_root_adaptive_review(struct weir_root *root, weir_instant now);

void weir_root_adaptive_tick(struct weir_root *root, weir_instant now);
weir_instant weir_root_adaptive_deadline(const struct weir_root *root);

/* For people. False: the quota isn't in use as such a one here. */
bool weir_root_adaptive_view(const struct weir_root *root,
                             struct weir_text name,
                             struct weir_fleet_limit_view *out,
                             weir_instant now);
/* Walks the names of those that are; start with '*cursor' 0; false at the end.
 * The name is borrowed until the next ask or tick. */
bool weir_root_adaptive_next(const struct weir_root *root, size_t *cursor,
                             struct weir_text *out_name);

/* A process, or a region, that has a part of a fleet's limit. */
struct weir_fleet_member {
    struct weir_text name; /* for people; borrowed until the root's next call */
    const uint8_t *incarnation; /* of a limiter; likewise; else NULL */
    double granted, wants;      /* units in flight */
    double has;       /* that it may still go by: at least 'granted' */
    uint64_t clients; /* processes: a region has several */
    bool out;         /* left out: its samples don't count */
};
/* Walks them; start with '*cursor' 0; false at the end, or if the quota isn't
 * in use as such a one here. */
bool weir_root_adaptive_member(const struct weir_root *root,
                               struct weir_text name, uint32_t *cursor,
                               struct weir_fleet_member *out, weir_instant now);

/* A member that was left out of a quota's limit, or is back; each change is
 * returned once. Texts live until the next call of any function of the root.
 * False: there is none. */
struct weir_fleet_news {
    struct weir_text quota, member;
    bool out;
};
bool weir_root_adaptive_news(struct weir_root *root,
                             struct weir_fleet_news *out, weir_instant now);

#endif /* WEIR_ROOT_ADAPTIVE_H */
