/* SPDX-License-Identifier: MIT
 * node/region.h - a root with an upstream. Its limiters see a root like any
 * other, the upstream roots see one more limiter.
 *
 *     upstream roots            region                     limiters
 *         | <--- report ---  limiter node                     |
 *         | ---- quotas -->  + table   <-- carried counts --  |
 *         | ---- fills --->      |                        report
 *                                '--- root fill, slack --> root node
 *                                                             |
 *                                                         fills, age
 *
 * It consists of a weir_root and a weir_limiter, unchanged, and of this glue:
 *
 *  - Quotas come from upstream with their epochs and their store's identity.
 *    The root node gets them as it does from a store.
 *  - Counts go up once. Each limiter names one connected root its carrier
 *    (message.h). Counts that the root node takes from limiters that named it
 *    are added in the region's table, and the limiter node reports them.
 *  - Fills: the upstream's fill of a bucket (the table's slot) and the root
 *    node's own. Limiters are sent the larger.
 *  - Slack: the units that the region may count before it must report up are
 *    divided among the region's limiters. When they are used up, limiters are
 *    sent a full bucket until the upstream answers.
 *  - Age: each fill carries the time for which the topmost root has been
 *    silent, beyond the usual interval. After stale_after without that root,
 *    limiters follow each quota's on_stale, except 'share', which the region
 *    computes for all of its limiters together.
 *
 * Any depth: a region may be the upstream of another.
 *
 * Pure; one thread; its pump is that of a root plus that of a limiter. After
 * any calls into either half, call weir_region_tick(), and then drain
 * weir_root_next() and weir_region_up_next(). */

#ifndef WEIR_REGION_H
#define WEIR_REGION_H

#include "core/node/limiter.h"
#include "core/node/root.h"

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

/* The half that limiters connect to; its functions are called directly. Except
 * weir_root_store(), _apply() and _settle(): the region calls those. */
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

/* The incarnation of the root at an upstream link that is up, borrowed; else
 * NULL. */
const uint8_t *weir_region_up_root(const struct weir_region *region,
                                   uint32_t link);

/* As weir_limiter_set_others(). */
void weir_region_up_others(struct weir_region *region, uint32_t others);

/* Why the upstream root was refused, as a text; NULL: it wasn't. It is refused
 * if its way to the top has a region of our name (it is this root, another of
 * the region, or one below), or if it is of another tier than the others:
 * counts would go round, or up by two ways. */
const char *weir_region_misplaced(const struct weir_region *region,
                                  uint32_t link);

/* Carries counts up and fills down; also weir_root_tick() and
 * weir_limiter_tick(). */
void weir_region_tick(struct weir_region *region, weir_instant now);
/* The earlier deadline of both halves. */
weir_instant weir_region_deadline(const struct weir_region *region,
                                  weir_instant now);

/* Restores quotas of an earlier process, before any upstream has answered: the
 * identity of their store, then changes in the order of epochs, then
 * restored(). Then the root node is ready; the upstream is asked for later
 * changes, or for all if that process had fewer 'features'. */
int weir_region_restore(struct weir_region *region,
                        const struct weir_store_id *id, uint64_t epoch,
                        uint64_t features, weir_instant now);
int weir_region_restore_change(struct weir_region *region,
                               const struct weir_change *change,
                               weir_instant now);
void weir_region_restored(struct weir_region *region, weir_instant now);

struct weir_region_state {
    uint32_t upstreams_up;
    weir_duration age; /* of the topmost root's last message; WEIR_NEVER: none
                        * yet */
    bool stale;        /* age above stale_after */
    uint64_t reports;  /* sent */
    uint64_t carried;  /* root quotas carried to the limiter half */
    uint64_t no_room; /* … of these, without a slot there: they wait for one */
};
void weir_region_look(const struct weir_region *region,
                      struct weir_region_state *out, weir_instant now);

#endif /* WEIR_REGION_H */
