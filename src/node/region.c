/* SPDX-License-Identifier: MIT
 * node/region.c - what goes between the two halves of a region's root.
 *
 *     limiter half                       root half
 *     table: slot  <--- units, ahead ---  use: carried, its pace
 *     tally        ---- above ----------> merge: the larger picture is told
 *     quotas       ---- sink -----------> catalog
 *     top_age      ---------------------> top_at, adrift
 *
 * Up. A use's slot counts what limiters handed over and what is presumed of
 * them by now: so the limiter half leaves what roots presume of it when the
 * region does, and not at each of its limiters' reports. Uses that moved stand
 * in a queue, and those with a pace stay in it; it is gone through at most
 * every 20 ms, which is as often as a limiter reports.
 *
 * Down. The root half asks for the picture from above when it looks at a
 * bucket or tells of it: there is no copy that could be old. It looks at those
 * that the upstream has just told of, and at all when a link or `stale`
 * changed.
 *
 * Quotas are in three places: the table, whose slots hold what is carried; the
 * catalog, which limiters are sent; and one that gathers a whole set while the
 * former is served. All three are fed by the same changes in the same call, so
 * they differ only while a whole set is under way.
 *
 * Age. The topmost root is heard through the limiter half's heartbeat, once in
 * its interval. Were the plain age told on, a tree of three tiers would look
 * stale to a limiter whose stale_after is three intervals. So what is told is
 * how long the silence has lasted beyond one interval: 0 in a sound tree of any
 * depth, and each tier finds out an interval later than the one above.
 *
 * Rejected: telling what is presumed as passed (tally_carry.c says what would
 * be counted twice), and joining the two pictures by a sum with the common part
 * taken out (nobody knows it: another root of the region may carry some). */

#include "node/region.h"

#include <string.h>

#include "node/root_state.h"

/* Between two walks over what is to be carried on, and how far one goes. */
#define CARRY_EVERY WEIR_REPORT_SPACING
#define CARRY_WORK 100000

struct weir_region {
    struct weir_mem mem;
    struct weir_root *root;       /* owned */
    struct weir_table *table;     /* in 'table_block' */
    struct weir_limiter *limiter; /* in 'limiter_block' */
    void *table_block, *limiter_block; /* owned */
    size_t table_size, limiter_size;
    uint32_t *use_of;             /* owned; by slot: the use's index + 1 */
    uint32_t slots;
    struct weir_merge_upstream upstream;
    struct weir_limiter_sink sink;
    uint64_t restore_epoch;
    weir_instant carry_at;
    weir_instant now;             /* of the walk that is under way */
    bool stale;                   /* as it last was */
    uint64_t carried, no_room;
};

/* ---- Quotas down ---- */

static int take_whole(void *context, const struct weir_store_id *store,
                      weir_instant now)
{
    (void)now;
    struct weir_region *region = context;
    return weir_root_renew(region->root, store);
}

static int take_change(void *context, const struct weir_change *change,
                       weir_instant now)
{
    struct weir_region *region = context;
    return weir_root_apply(region->root, change, now);
}

/* Of a whole set nobody knows what was removed before it: that is its floor. */
static int take_reached(void *context, uint64_t epoch, weir_instant now)
{
    struct weir_region *region = context;
    struct weir_root *root = region->root;
    if (!root->coming && root->ready && root->epoch >= epoch)
        return WEIR_OK;
    if (root->coming)
        weir_catalog_set_floor(root->coming, epoch);
    root->store_epoch = epoch;
    weir_root_settle(root, now);
    return WEIR_OK;
}

int weir_region_restore(struct weir_region *region,
                        const struct weir_store_id *id, uint64_t epoch,
                        weir_instant now)
{
    region->restore_epoch = epoch;
    return weir_limiter_restore(region->limiter, id, now);
}

int weir_region_restore_change(struct weir_region *region,
                               const struct weir_change *change,
                               weir_instant now)
{
    return weir_limiter_restore_change(region->limiter, change, now);
}

void weir_region_restored(struct weir_region *region, weir_instant now)
{
    int error =
        weir_limiter_restored(region->limiter, region->restore_epoch, now);
    weir_assert(error == WEIR_OK); /* it needs no memory */
}

/* ---- Counts up ---- */

static struct weir_ref slot_of(const struct weir_use *use)
{
    return (struct weir_ref){ use->up_slot, use->up_generation };
}

/* The use's slot, found or made. */
static bool find_slot(struct weir_region *region, struct weir_use *use)
{
    struct weir_text name = { use->name, use->name_len };
    struct weir_ref ref;
    if (weir_table_resolve(region->table, name, false, &ref, region->now) !=
        WEIR_RESOLVED)
        return false;
    use->up_slot = ref.slot;
    use->up_generation = ref.generation;
    region->use_of[ref.slot] =
        (uint32_t)(use - region->root->merge.uses) + 1;
    return true;
}

static bool carry_units(struct weir_region *region, struct weir_use *use,
                        uint64_t count, uint64_t ahead)
{
    return use->up_generation != 0 &&
           weir_limiter_carry(region->limiter, slot_of(use),
                              (int64_t)(count - use->up_count),
                              use->carried_refused - use->up_refused, ahead,
                              use->carried_pace, region->now);
}

/* Without a slot it waits for one. */
static bool carry_use(void *context, struct weir_use *use)
{
    struct weir_region *region = context;
    const struct weir_merge *merge = &region->root->merge;
    uint64_t ahead = weir_merge_ahead(merge, use, region->now);
    uint64_t count = use->carried + ahead;
    if (!carry_units(region, use, count, ahead) &&
        (!find_slot(region, use) ||
         !carry_units(region, use, count, ahead))) {
        region->no_room++;
        return true;
    }
    use->up_count = count;
    use->up_refused = use->carried_refused;
    region->carried++;
    return use->carried_pace != 0;
}

static void carry_up(struct weir_region *region, weir_instant now)
{
    struct weir_merge *merge = &region->root->merge;
    if (merge->carrying == 0 || now < region->carry_at)
        return;
    region->now = now;
    region->carry_at = now + CARRY_EVERY;
    weir_merge_carry(merge, CARRY_WORK, carry_use, region);
    if (merge->late_from > 0)
        weir_limiter_carry_late(region->limiter, merge->late_from, now);
    merge->late_from = 0;
}

/* ---- Fills and ages down ---- */

static bool above(void *context, const struct weir_use *use,
                  struct weir_above *out, weir_instant now)
{
    struct weir_region *region = context;
    return use->up_generation != 0 &&
           weir_limiter_above(region->limiter, slot_of(use), out, now);
}

static void touch_all(struct weir_region *region)
{
    struct weir_merge *merge = &region->root->merge;
    for (uint32_t i = 0; i < merge->use_used; i++) {
        if (merge->uses[i].live && merge->uses[i].up_generation != 0)
            weir_merge_touch(merge, &merge->uses[i]);
    }
}

/* Roots above have told of these. */
static void touch_told(struct weir_region *region,
                       const struct weir_fills *fills)
{
    struct weir_merge *merge = &region->root->merge;
    for (size_t i = 0; i < fills->count; i++) {
        uint32_t slot = fills->fills[i].slot;
        uint32_t number = slot < region->slots ? region->use_of[slot] : 0;
        if (number == 0)
            continue;
        struct weir_use *use = &merge->uses[number - 1];
        if (use->live && use->up_generation != 0 && use->up_slot == slot)
            weir_merge_touch(merge, use);
    }
}

/* How the topmost root was last heard of. */
static void follow_top(struct weir_region *region, weir_instant now)
{
    struct weir_root *root = region->root;
    weir_duration age = weir_limiter_top_age(region->limiter, now);
    root->topped = age != WEIR_NEVER;
    if (root->topped)
        root->top_at = now - (age < now ? age : now) +
                       weir_limiter_settings(region->limiter)->report_interval;
    bool stale = weir_limiter_stale(region->limiter);
    root->merge.adrift = stale || !root->topped;
    if (stale != region->stale)
        touch_all(region);
    region->stale = stale;
}

/* ---- The upstream half ---- */

void weir_region_up_link(struct weir_region *region, uint32_t link, bool up,
                         weir_instant now)
{
    weir_limiter_link(region->limiter, link, up, now);
    touch_all(region);
}

int weir_region_up_receive(struct weir_region *region, uint32_t link,
                           const struct weir_message *message,
                           weir_instant now)
{
    int error = weir_limiter_receive(region->limiter, link, message, now);
    if (message->type == WEIR_MESSAGE_FILLS)
        touch_told(region, &message->fills);
    else if (message->type == WEIR_MESSAGE_WELCOME)
        touch_all(region);
    follow_top(region, now);
    return error;
}

bool weir_region_up_next(struct weir_region *region, uint32_t *out_link,
                         struct weir_message *out, weir_instant now)
{
    return weir_limiter_next(region->limiter, out_link, out, now);
}

bool weir_region_up_event(struct weir_region *region, struct weir_event *out)
{
    return weir_limiter_event(region->limiter, out);
}

/* ---- Both ---- */

struct weir_root *weir_region_root(struct weir_region *region)
{
    return region->root;
}

void weir_region_tick(struct weir_region *region, weir_instant now)
{
    carry_up(region, now);
    weir_limiter_tick(region->limiter, now);
    follow_top(region, now);
    weir_root_tick(region->root, now);
}

weir_instant weir_region_deadline(const struct weir_region *region,
                                  weir_instant now)
{
    weir_instant due = weir_root_deadline(region->root, now);
    weir_instant up = weir_limiter_deadline(region->limiter, now);
    if (up < due)
        due = up;
    if (weir_table_is_urgent(region->table))
        due = now;
    if (region->root->merge.carrying != 0 && region->carry_at < due)
        due = region->carry_at;
    return due > now ? due : now;
}

void weir_region_look(const struct weir_region *region,
                      struct weir_region_state *out, weir_instant now)
{
    *out = (struct weir_region_state){
        .upstreams_up = weir_limiter_links_up(region->limiter),
        .age = weir_limiter_top_age(region->limiter, now),
        .stale = weir_limiter_stale(region->limiter),
        .reports = weir_limiter_reports(region->limiter),
        .carried = region->carried,
        .no_room = region->no_room,
    };
}

/* ---- Life ---- */

/* Zeroed and on a cache line; '*out_owned' is to be freed. */
static void *make_block(const struct weir_mem *mem, size_t size,
                        void **out_owned)
{
    *out_owned = mem->alloc(mem->context, size + WEIR_CACHE_LINE);
    uintptr_t at = (uintptr_t)*out_owned + WEIR_CACHE_LINE - 1;
    return (void *)(at & ~(uintptr_t)(WEIR_CACHE_LINE - 1));
}

static bool make_table(struct weir_region *region,
                       const struct weir_root_options *root, weir_instant now)
{
    struct weir_table_options options = { .slots = region->slots,
                                          .stripes = 1,
                                          .seed = ~root->seed };
    region->table_size = weir_table_size(&options);
    void *block =
        make_block(&region->mem, region->table_size, &region->table_block);
    if (region->table_block)
        region->table = weir_table_init(block, &options, now);
    return region->table_block != NULL;
}

static bool make_limiter(struct weir_region *region,
                         const struct weir_region_options *options,
                         weir_instant now)
{
    struct weir_limiter_options limiter = { .table = region->table,
                                            .slots = region->slots,
                                            .links = options->upstreams,
                                            .name = options->root.name,
                                            .seed = options->root.seed + 1,
                                            .region = &region->sink };
    memcpy(limiter.incarnation, options->root.incarnation,
           WEIR_INCARNATION_SIZE);
    region->limiter_size = weir_limiter_size(&limiter);
    void *block =
        make_block(&region->mem, region->limiter_size, &region->limiter_block);
    if (region->limiter_block)
        region->limiter = weir_limiter_init(block, &limiter, now);
    return region->limiter_block != NULL;
}

static bool make_parts(struct weir_region *region,
                       const struct weir_region_options *options,
                       weir_instant now)
{
    const struct weir_mem *mem = &region->mem;
    struct weir_root_options root = options->root;
    root.region = true;
    region->root = weir_root_new(&root, now);
    region->use_of =
        mem->alloc(mem->context, region->slots * sizeof(*region->use_of));
    if (!region->root || !region->use_of ||
        !make_table(region, &root, now) || !make_limiter(region, options, now))
        return false;
    region->root->merge.upstream = &region->upstream;
    return true;
}

struct weir_region *weir_region_new(const struct weir_region_options *options,
                                    weir_instant now)
{
    weir_assert(options->upstreams >= 1 &&
                options->upstreams <= WEIR_ROOTS_MAX);
    weir_assert(options->slots >= 1 && options->slots <= WEIR_SLOTS_MAX);
    const struct weir_mem *mem = &options->root.mem;
    struct weir_region *region = mem->alloc(mem->context, sizeof(*region));
    if (!region)
        return NULL;
    region->mem = *mem;
    region->slots = options->slots;
    region->upstream =
        (struct weir_merge_upstream){ .context = region, .above = above };
    region->sink = (struct weir_limiter_sink){ .context = region,
                                               .whole = take_whole,
                                               .change = take_change,
                                               .reached = take_reached };
    if (make_parts(region, options, now))
        return region;
    weir_region_free(region);
    return NULL;
}

void weir_region_free(struct weir_region *region)
{
    if (!region)
        return;
    const struct weir_mem mem = region->mem;
    weir_root_free(region->root);
    if (region->table_block)
        mem.free(mem.context, region->table_block,
                 region->table_size + WEIR_CACHE_LINE);
    if (region->limiter_block)
        mem.free(mem.context, region->limiter_block,
                 region->limiter_size + WEIR_CACHE_LINE);
    if (region->use_of)
        mem.free(mem.context, region->use_of,
                 region->slots * sizeof(*region->use_of));
    mem.free(mem.context, region, sizeof(*region));
}
