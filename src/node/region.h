/* SPDX-License-Identifier: MIT
 * node/region.h - a root with an upstream: to its limiters a root like any
 * other, to the upstream roots one more limiter.
 *
 *     upstream roots            region                     limiters
 *         | <--- report ---  limiter node                     |
 *         | ---- quotas -->  + table   <-- carried counts --  |
 *         | ---- fills --->      |                        report
 *                                '--- the fill above -->  root node
 *                                     how far it may go       |
 *                                                         fills, age
 *
 * It is made of a weir_root and a weir_limiter, unchanged, and of what goes
 * between them:
 *
 *  - Quotas come from upstream with their epochs and their store's identity;
 *    the root node is fed with them as it is fed from a store.
 *  - Counts go up once. Each limiter names one connected root its carrier
 *    (message.h); what the root node takes from limiters that named it is
 *    counted in the region's table, and the limiter node reports that.
 *  - Fills: the upstream's picture of a bucket (the table's slot) and the root
 *    node's own. Limiters are told the larger.
 *  - Slack: what the region may count before the upstream must hear of it is
 *    shared out to the region's limiters; when it is used up they are told a
 *    full bucket until the upstream answers.
 *  - Age: how long the topmost root has been silent beyond one interval, which
 *    is usual, is told with each fill. When it wasn't heard for stale_after,
 *    limiters follow each quota's on_stale, but for 'share', which the region
 *    keeps for all of its limiters together.
 *
 * Any depth: a region may be the upstream of another.
 *
 * Pure; one thread; the pump around it is that of a root and that of a
 * limiter. After any calls into either half, weir_region_tick(), and then
 * drain weir_root_next() and weir_region_up_next(). */

#ifndef WEIR_REGION_H
#define WEIR_REGION_H

#include "node/limiter.h"
#include "node/root.h"

struct weir_region;

struct weir_region_options {
    struct weir_root_options root; /* 'name' is the region root's own */
    struct weir_text name;         /* the region's; copied; "": none */
    uint32_t upstreams;            /* 1 .. WEIR_ROOTS_MAX */
    uint32_t slots;                /* quotas and instances, as of a table */
};

/* NULL: no memory. Everything is taken from options->root.mem. */
struct weir_region *weir_region_new(const struct weir_region_options *options,
                                    weir_instant now);
void weir_region_free(struct weir_region *region);

/* The half that limiters speak to; its functions are called directly. Not
 * weir_root_store(), _apply() and _settle(): those are the region's. */
struct weir_root *weir_region_root(struct weir_region *region);

/* ---- The upstream half; as of node/limiter.h ---- */

void weir_region_up_link(struct weir_region *region, uint32_t link, bool up,
                         weir_instant now);
int weir_region_up_receive(struct weir_region *region, uint32_t link,
                           const struct weir_message *message,
                           weir_instant now);
bool weir_region_up_next(struct weir_region *region, uint32_t *out_link,
                         struct weir_message *out, weir_instant now);
bool weir_region_up_event(struct weir_region *region, struct weir_event *out);

/* ---- Both ---- */

/* Why the upstream root was refused, for people; NULL: it wasn't. One whose
 * way to the top leads through a region of our name (it is this root, another
 * of the region, or one below), and one of another tier than the others: what
 * limiters count would go round, or up by two ways. */
const char *weir_region_misplaced(const struct weir_region *region,
                                  uint32_t link);

/* Carries counts up and fills down; also weir_root_tick() and
 * weir_limiter_tick(). */
void weir_region_tick(struct weir_region *region, weir_instant now);
/* The earlier of the two halves'. */
weir_instant weir_region_deadline(const struct weir_region *region,
                                  weir_instant now);

/* Quotas of an earlier life, before any upstream has answered: the identity of
 * their store, then changes in the order of epochs, then settle. The root node
 * is ready then; the upstream is asked for what came after. */
int weir_region_restore(struct weir_region *region,
                        const struct weir_store_id *id, uint64_t epoch,
                        weir_instant now);
int weir_region_restore_change(struct weir_region *region,
                               const struct weir_change *change,
                               weir_instant now);
void weir_region_restored(struct weir_region *region, weir_instant now);

struct weir_region_state {
    uint32_t upstreams_up;
    weir_duration age; /* since the topmost root was heard; WEIR_NEVER: not
                          * yet */
    bool stale;        /* age above stale_after */
    uint64_t reports;  /* sent */
    uint64_t carried;  /* times that a use was carried to the upper half */
    uint64_t no_room;  /* … and times that it found no slot there: it waits
                          * for one */
};
void weir_region_look(const struct weir_region *region,
                      struct weir_region_state *out, weir_instant now);

#endif /* WEIR_REGION_H */
