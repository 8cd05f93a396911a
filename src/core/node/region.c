/* SPDX-License-Identifier: MIT
 * core/node/region.c - connects the two halves of a region's root.
 *
 *     limiter half                       root half
 *     table: slot  <--- units, ahead ---  root quota: carried, its pace
 *     tally        ---- above ----------> merge: sends the larger fill
 *     quotas       ---- sink -----------> catalog
 *     top_age      ---------------------> top_at, detached
 *     (its links)  <--- region_lease.c --> lease pools
 *
 * Up. A root quota's slot counts the units that limiters handed over, plus
 * those presumed of them by now. So the limiter half's count differs from the
 * presumed one when the region's does, not at each report of a limiter. Root
 * quotas that moved are put into a queue, and those with a pace stay in it. The
 * queue is walked at most every 20 ms, as often as a limiter reports.
 *
 * Down. The root half reads the root fill from above whenever it looks at a
 * bucket or sends it: there is no copy that could be old. It looks at buckets
 * in the upstream's latest message, and at all when a link or `stale` changed.
 *
 * Quotas are in three places: the table, whose slots have the carried counts;
 * the catalog, which limiters are sent; and a second catalog, which gathers a
 * whole set while the former is served. All three get the same changes in the
 * same call, so they differ only while a whole set is incomplete.
 *
 * Age. The topmost root is received through the limiter half's heartbeat, once
 * in its interval. With the plain age passed on, a tree of three tiers would
 * look stale to a limiter with a stale_after of three intervals. So the age
 * sent is the silence beyond one interval: 0 in a healthy tree of any depth.
 * Each tier notices an outage one interval later than the one above.
 *
 * Loops. Counts of limiters go up, so a region must not be above itself. Each
 * root sends the regions on its way to the top, and a region's root takes no
 * upstream root that names its own region. In a loop the names go round until a
 * root finds its own and refuses that link. While the other links stand, it is
 * refused at once.
 *
 * Rejected: sending presumed units as passed (tally_answer.c says which would
 * count twice), and adding the two fills less the common part (it is unknown:
 * another root of the region may carry some). */

#include "core/node/region.h"

#include <string.h>

#include "core/node/limiter_internal.h"
#include "core/node/region_lease.h"
#include "core/node/root_state.h"

/* Time between two walks over the queue up, and the length of one. */
#define CARRY_EVERY WEIR_REPORT_SPACING
#define CARRY_WORK 100000

/* The regions on the way to the top, ours first. */
struct way {
    struct weir_text names[WEIR_TIERS_MAX];
    char bytes[WEIR_TIERS_MAX][WEIR_NAME_MAX];
    size_t count;
};

/* The peer's ask that the limiter half has sent up. */
struct relay {
    uint32_t peer;
    uint32_t next_free; /* + 1 */
    uint64_t session;
    uint64_t number;
};

struct weir_region {
    struct weir_mem mem;
    struct weir_root *root;            /* owned */
    struct weir_table *table;          /* in 'table_block' */
    struct weir_limiter *limiter;      /* in 'limiter_block' */
    void *table_block, *limiter_block; /* owned */
    size_t table_size, limiter_size;
    uint32_t *use_of; /* owned; by slot: the root quota's index + 1 */
    uint32_t slots;
    struct weir_merge_upstream upstream;
    struct weir_limiter_sink sink;
    struct weir_region_lease *lease; /* owned */
    uint64_t restore_epoch, restore_features;
    weir_instant carry_at;
    weir_instant now;                 /* of the present walk */
    bool stale;                       /* last state */
    struct way way;                   /* ours, and all regions above */
    struct way above[WEIR_ROOTS_MAX]; /* by each link's welcome */
    bool named;                       /* the first of 'way' is ours */
    uint32_t upstreams;
    const char *misplaced[WEIR_ROOTS_MAX]; /* static; of each link */
    bool carries[WEIR_ROOTS_MAX]; /* by link: the root there has an upstream
                                   * itself */
    uint64_t carried, no_room;
    uint32_t relayed;    /* relay places ever used … */
    uint32_t free_relay; /* … and the first free one, + 1 */
    struct relay relay[WEIR_ASKS_MAX];
};

/* ---- Quotas down ---- */

static int take_whole(void *context, const struct weir_store_id *store,
                      weir_instant now)
{
    (void)now;
    struct weir_region *region = context;
    return weir_root_renew(region->root, store);
}

static int apply_change_below(void *context, const struct weir_change *change,
                              weir_instant now)
{
    struct weir_region *region = context;
    return weir_root_apply(region->root, change, now);
}

/* A whole set doesn't have the removals before its epoch: that is its floor. */
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
    weir_assert(root->ready && !root->coming && root->epoch >= epoch);
    return WEIR_OK;
}

int weir_region_restore(struct weir_region *region,
                        const struct weir_store_id *id, uint64_t epoch,
                        uint64_t features, weir_instant now)
{
    region->restore_epoch = epoch;
    region->restore_features = features;
    return weir_limiter_restore(region->limiter, id, now);
}

int weir_region_restore_change(struct weir_region *region,
                               const struct weir_change *change,
                               weir_instant now)
{
    return weir_limiter_apply(region->limiter, change, now);
}

void weir_region_restored(struct weir_region *region, weir_instant now)
{
    int error = weir_limiter_restored(region->limiter, region->restore_epoch,
                                      region->restore_features, now);
    weir_assert(error == WEIR_OK); /* it needs no memory */
}

/* ---- Counts up ---- */

static struct weir_ref slot_of(const struct weir_root_quota *root_quota)
{
    return (struct weir_ref){ root_quota->up_slot, root_quota->up_generation };
}

/* Only for the root quota's own slot: another one may have taken it over. */
static void drop_slot(void *context, const struct weir_root_quota *root_quota)
{
    struct weir_region *region = context;
    uint32_t number =
        (uint32_t)(root_quota - region->root->merge.root_quotas) + 1;
    if (root_quota->up_generation == 0 ||
        region->use_of[root_quota->up_slot] != number)
        return;
    weir_assert(root_quota->up_slot < region->slots);
    region->use_of[root_quota->up_slot] = 0;
    weir_table_uncarry_in_flight(region->table, root_quota->up_slot);
}

/* Finds the root quota's slot, or makes it. */
static bool find_slot(struct weir_region *region,
                      struct weir_root_quota *root_quota)
{
    struct weir_text name = { root_quota->name, root_quota->name_len };
    struct weir_ref ref;
    if (weir_table_resolve(region->table, name, false, &ref, region->now) !=
        WEIR_RESOLVED)
        return false;
    if (ref.slot != root_quota->up_slot)
        drop_slot(region, root_quota);
    weir_assert(ref.slot < region->slots);
    root_quota->up_slot = ref.slot;
    root_quota->up_generation = ref.generation;
    region->use_of[ref.slot] =
        (uint32_t)(root_quota - region->root->merge.root_quotas) + 1;
    return true;
}

/* Enters the units that limiters handed over, and those presumed of them, in
 * the slot. False: it has none, or the slot was reused. */
static bool carry_units(struct weir_region *region,
                        struct weir_root_quota *root_quota, uint64_t count,
                        uint64_t ahead)
{
    struct weir_ref ref = slot_of(root_quota);
    if (ref.generation == 0 ||
        !weir_table_carry(
            region->table, ref, (int64_t)(count - root_quota->up_count),
            root_quota->carried_refused - root_quota->up_refused, region->now))
        return false;
    weir_assert(ref.slot < region->slots);
    weir_tally_presume(&region->limiter->tally, ref, ahead,
                       root_quota->carried_pace);
    return true;
}

/* Reports all units that the region passed, by any carrier: with them the
 * limiter half computes the region's part for `share`. */
static void report_whole(struct weir_region *region,
                         struct weir_root_quota *root_quota)
{
    weir_assert(root_quota->up_generation != 0);
    uint64_t presumed =
        weir_merge_presumed(&region->root->merge, root_quota, region->now);
    uint64_t whole =
        root_quota->passed + (presumed >> root_quota->bucket.leak.frac);
    weir_tally_region(&region->limiter->tally, slot_of(root_quota),
                      (int64_t)(whole - root_quota->up_whole));
    root_quota->up_whole = whole;
}

/* All its carried units are in the slot. */
static bool is_up(const struct weir_root_quota *root_quota, uint64_t count)
{
    return root_quota->up_generation != 0 && root_quota->carried_pace == 0 &&
           !root_quota->up_paced && count == root_quota->up_count &&
           root_quota->carried_refused == root_quota->up_refused;
}

/* Sets the slot to the units in flight of all limiters that we carry. */
static bool report_in_flight(struct weir_region *region,
                             const struct weir_root_quota *root_quota)
{
    uint64_t in_flight = root_quota->carried_in_flight < WEIR_IN_FLIGHT_MAX
                             ? root_quota->carried_in_flight
                             : WEIR_IN_FLIGHT_MAX;
    return root_quota->up_generation != 0 &&
           weir_table_carry_in_flight(
               region->table, slot_of(root_quota), in_flight,
               root_quota->carried_refused - root_quota->up_refused);
}

static bool carry_units_in_flight(struct weir_region *region,
                                  struct weir_root_quota *root_quota)
{
    if (!report_in_flight(region, root_quota) &&
        !(find_slot(region, root_quota) &&
          report_in_flight(region, root_quota)))
        return false;
    weir_assert(root_quota->up_generation != 0);
    root_quota->up_in_flight = root_quota->carried_in_flight;
    root_quota->up_refused = root_quota->carried_refused;
    region->carried++;
    return true;
}

/* Without a slot the root quota waits for one. */
static bool carry_root_quota(void *context, struct weir_root_quota *root_quota)
{
    weir_assert(root_quota->live);
    struct weir_region *region = context;
    bool in_flight = root_quota->inflight ||
                     root_quota->carried_in_flight != root_quota->up_in_flight;
    if (in_flight && !carry_units_in_flight(region, root_quota)) {
        region->no_room++;
        return true;
    }
    if (root_quota->inflight) {
        /* Earlier counts were of the other kind. */
        root_quota->up_count = root_quota->carried;
        root_quota->up_paced = false;
        return false;
    }
    const struct weir_merge *merge = &region->root->merge;
    uint64_t ahead = weir_merge_ahead(merge, root_quota, region->now);
    uint64_t count = root_quota->carried + ahead;
    bool is_new = !is_up(root_quota, count);
    if (is_new && !carry_units(region, root_quota, count, ahead) &&
        (!find_slot(region, root_quota) ||
         !carry_units(region, root_quota, count, ahead))) {
        region->no_room++;
        return true;
    }
    root_quota->up_count = count;
    root_quota->up_refused = root_quota->carried_refused;
    root_quota->up_paced = root_quota->carried_pace != 0;
    region->carried += is_new;
    report_whole(region, root_quota);
    return root_quota->pace != 0;
}

static void carry_up(struct weir_region *region, weir_instant now)
{
    struct weir_merge *merge = &region->root->merge;
    if (merge->queue[WEIR_MERGE_CARRYING].first == 0 || now < region->carry_at)
        return;
    region->now = now;
    region->carry_at = now + CARRY_EVERY;
    weir_merge_carry(merge, CARRY_WORK, carry_root_quota, region);
    if (merge->late_from > 0)
        weir_tally_late(&region->limiter->tally,
                        weir_before(now, merge->late_from));
    merge->late_from = 0;
    weir_assert(merge->late_from == 0);
}

/* ---- Fills and ages down ---- */

static bool above(void *context, const struct weir_root_quota *root_quota,
                  struct weir_above *out, weir_instant now)
{
    struct weir_region *region = context;
    return root_quota->up_generation != 0 &&
           weir_tally_above(&region->limiter->tally, slot_of(root_quota), out,
                            now);
}

static void touch_all(struct weir_region *region)
{
    struct weir_merge *merge = &region->root->merge;
    for (uint32_t i = 0; i < merge->root_quotas_used; i++) {
        if (merge->root_quotas[i].live &&
            merge->root_quotas[i].up_generation != 0)
            weir_merge_enqueue(merge, &merge->root_quotas[i], WEIR_MERGE_MOVED);
    }
}

/* Touches the buckets in the upstream's message. */
static void touch_filled(struct weir_region *region,
                         const struct weir_fills *fills)
{
    struct weir_merge *merge = &region->root->merge;
    for (size_t i = 0; i < fills->count; i++) {
        uint32_t slot = fills->fills[i].slot;
        uint32_t number = slot < region->slots ? region->use_of[slot] : 0;
        if (number == 0)
            continue;
        struct weir_root_quota *root_quota = &merge->root_quotas[number - 1];
        weir_assert(number <= merge->root_quotas_used);
        if (root_quota->live && root_quota->up_generation != 0 &&
            root_quota->up_slot == slot)
            weir_merge_enqueue(merge, root_quota, WEIR_MERGE_MOVED);
    }
}

/* Age of the topmost root's last message; WEIR_NEVER: none yet. */
static weir_duration top_age_above(const struct weir_limiter *limiter,
                                   weir_instant now)
{
    return limiter->topped ? weir_since(limiter->received_at, now) : WEIR_NEVER;
}

/* No linked root currently has its quotas from a store. */
static bool is_provisional(const struct weir_limiter *limiter)
{
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        const struct limiter_link *link = &limiter->link[i];
        if (link->state == LINK_UP && link->root_ready && !link->provisional)
            return false;
    }
    return true;
}

/* Takes over the topmost root's age and the staleness. */
static void follow_top(struct weir_region *region, weir_instant now)
{
    struct weir_root *root = region->root;
    const struct weir_limiter *limiter = region->limiter;
    weir_duration age = top_age_above(limiter, now);
    root->topped = age != WEIR_NEVER;
    if (root->topped)
        root->top_at =
            weir_before(now, age) + limiter->settings.report_interval;
    root->merge.detached = limiter->stale || !root->topped;
    weir_root_set_provisional(root, is_provisional(limiter));
    if (limiter->stale != region->stale)
        touch_all(region);
    region->stale = limiter->stale;
}

/* ---- Exact quotas: asks up, answers down ---- */

/* A free relay; its number is the ticket. There always is one: the limiter half
 * has no more unanswered asks than there are relays. */
static uint32_t relay_place(struct weir_region *region)
{
    uint32_t first = region->free_relay;
    if (first == 0) {
        weir_assert(region->relayed < WEIR_ASKS_MAX);
        return region->relayed++;
    }
    weir_assert(first <= region->relayed);
    region->free_relay = region->relay[first - 1].next_free;
    return first - 1;
}

static void relay_free(struct weir_region *region, uint32_t place)
{
    weir_assert(place < region->relayed);
    region->relay[place].next_free = region->free_relay;
    region->free_relay = place + 1;
}

static int relay_ask(void *context, uint32_t peer, uint64_t session,
                     const struct weir_step_ask *ask, weir_instant now)
{
    struct weir_region *region = context;
    const struct limiter_asks *asks = &region->limiter->asks;
    if (asks->under_way == asks->capacity)
        return WEIR_EFULL;
    uint32_t place = relay_place(region);
    weir_assert(place < region->relayed);
    int error = weir_limiter_ask(region->limiter, ask, place, now);
    if (error < 0) {
        relay_free(region, place);
        return error;
    }
    region->relay[place] = (struct relay){ .peer = peer,
                                           .session = session,
                                           .number = ask->number };
    return WEIR_OK;
}

/* Timeouts are not answered: the caller doesn't wait any more. */
static enum weir_step_error step_error(int error)
{
    if (error == 0)
        return WEIR_STEP_ANSWERED;
    if (error == WEIR_ENOENT)
        return WEIR_STEP_UNKNOWN;
    if (error == WEIR_EDENIED)
        return WEIR_STEP_DENIED;
    return error == WEIR_EFULL ? WEIR_STEP_NO_ROOM : WEIR_STEP_AWAY;
}

static void hand_down_answers(struct weir_region *region)
{
    uint64_t place;
    int error;
    struct weir_algorithm_answer answer = { .passed = false };
    while (weir_limiter_answered(region->limiter, &place, &error, &answer)) {
        weir_assert(place < region->relayed);
        const struct relay *relay = &region->relay[place];
        struct weir_step_answer out = { .number = relay->number,
                                        .error = step_error(error) };
        if (error == 0)
            out.answer = answer;
        if (error != WEIR_ETIMEOUT)
            weir_root_answer(region->root, relay->peer, relay->session, &out);
        relay_free(region, (uint32_t)place);
    }
}

/* ---- The way to the top ---- */

static bool way_has(const struct way *way, struct weir_text name)
{
    for (size_t i = 0; i < way->count; i++) {
        if (weir_text_equal(way->names[i], name))
            return true;
    }
    return false;
}

/* False: too many. */
static bool way_add(struct way *way, struct weir_text name)
{
    if (name.len == 0 || way_has(way, name))
        return true;
    if (way->count == WEIR_TIERS_MAX)
        return false;
    char *bytes = way->bytes[way->count];
    weir_assert(way->count < WEIR_TIERS_MAX && name.len <= WEIR_NAME_MAX);
    memcpy(bytes, name.p, name.len);
    way->names[way->count++] = (struct weir_text){ bytes, name.len };
    return true;
}

static bool is_above_us(const struct weir_region *region,
                        const struct weir_welcome *welcome)
{
    for (size_t i = 0; region->named && i < welcome->region_count; i++) {
        if (weir_text_equal(welcome->regions[i], region->way.names[0]))
            return false;
    }
    return true;
}

static bool is_of_one_tier(const struct weir_region *region, uint32_t link,
                           bool carries)
{
    for (uint32_t i = 0; i < region->upstreams; i++) {
        if (i != link && weir_limiter_session(region->limiter, i) != 0 &&
            region->carries[i] != carries)
            return false;
    }
    return true;
}

static bool is_same_way(const struct way *a, const struct way *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        if (a->names[i].len != b->names[i].len ||
            memcmp(a->bytes[i], b->bytes[i], a->names[i].len) != 0)
            return false;
    }
    return a->count == b->count;
}

/* Builds the way anew from all links; false: too many regions. */
static bool follow_way(struct weir_region *region)
{
    struct way before = region->way;
    bool fits = true;
    region->way.count = region->named;
    for (uint32_t link = 0; link < region->upstreams; link++) {
        const struct way *above = &region->above[link];
        for (size_t i = 0; i < above->count; i++)
            fits &= way_add(&region->way, above->names[i]);
    }
    region->root->region_count = region->way.count;
    if (!is_same_way(&before, &region->way))
        weir_root_welcome_all(region->root);
    weir_assert(region->way.count <= WEIR_TIERS_MAX);
    return fits;
}

static const char *misplacement(struct weir_region *region, uint32_t link,
                                const struct weir_welcome *welcome)
{
    weir_assert(link < region->upstreams);
    if (!is_above_us(region, welcome))
        return "it is of this region, or below it: name roots above the "
               "region with --upstream";
    if (!is_of_one_tier(region, link, welcome->carries))
        return "it is of another tier than the others above: counts would go "
               "up twice; name one tier";
    struct way *above = &region->above[link];
    bool fits = true;
    above->count = 0;
    for (size_t i = 0; i < welcome->region_count; i++)
        fits &= way_add(above, welcome->regions[i]);
    if (!fits || !follow_way(region))
        return "more than 16 regions lead to the top: use fewer tiers";
    return NULL;
}

/* This link leads no way to the top. */
static void lose_way(struct weir_region *region, uint32_t link)
{
    weir_assert(link < region->upstreams);
    region->above[link].count = 0;
    follow_way(region);
}

static bool note_place(struct weir_region *region, uint32_t link,
                       const struct weir_welcome *welcome)
{
    weir_assert(link < region->upstreams);
    region->misplaced[link] = misplacement(region, link, welcome);
    region->carries[link] = welcome->carries;
    if (region->misplaced[link])
        lose_way(region, link);
    return !region->misplaced[link];
}

const char *weir_region_misplaced(const struct weir_region *region,
                                  uint32_t link)
{
    weir_assert(link < WEIR_ROOTS_MAX);
    return region->misplaced[link];
}

/* ---- The upstream half ---- */

const uint8_t *weir_region_up_root(const struct weir_region *region,
                                   uint32_t link)
{
    return weir_limiter_root(region->limiter, link);
}

void weir_region_up_others(struct weir_region *region, uint32_t others)
{
    weir_limiter_set_others(region->limiter, others);
}

void weir_region_up_link(struct weir_region *region, uint32_t link, bool up,
                         weir_instant now)
{
    weir_assert(link < region->upstreams);
    weir_limiter_link(region->limiter, link, up, now);
    weir_region_lease_link(region->lease, link, NULL, now);
    if (!up)
        lose_way(region, link);
    touch_all(region);
    hand_down_answers(region);
}

static bool is_current(const struct weir_region *region, uint32_t link,
                       const struct weir_message *message)
{
    uint64_t session = weir_limiter_session(region->limiter, link);
    return session != 0 && session == message->session;
}

static void take_welcome(struct weir_region *region, uint32_t link,
                         const struct weir_message *message, weir_instant now)
{
    if (is_current(region, link, message))
        weir_region_lease_link(region->lease, link, &message->welcome, now);
    touch_all(region);
}

/* The region handles leases itself: the limiter half's table has none. */
static int take_grants(struct weir_region *region, uint32_t link,
                       const struct weir_message *message, weir_instant now)
{
    if (is_current(region, link, message))
        weir_region_lease_take(region->lease, link, &message->grants, now);
    return WEIR_OK;
}

int weir_region_up_receive(struct weir_region *region, uint32_t link,
                           const struct weir_message *message, weir_instant now)
{
    weir_assert(link < region->upstreams);
    if (message->type == WEIR_MESSAGE_WELCOME &&
        !note_place(region, link, &message->welcome))
        return WEIR_EPROTOCOL;
    if (message->type == WEIR_MESSAGE_GRANTS)
        return take_grants(region, link, message, now);
    int error = weir_limiter_receive(region->limiter, link, message, now);
    if (message->type == WEIR_MESSAGE_FILLS)
        touch_filled(region, &message->fills);
    else if (message->type == WEIR_MESSAGE_WELCOME)
        take_welcome(region, link, message, now);
    else if (message->type == WEIR_MESSAGE_ANSWERS)
        hand_down_answers(region);
    follow_top(region, now);
    return error;
}

bool weir_region_up_next(struct weir_region *region, uint32_t *out_link,
                         struct weir_message *out, weir_instant now)
{
    if (!weir_region_lease_next(region->lease, out_link, &out->wants, now))
        return weir_limiter_next(region->limiter, out_link, out, now);
    weir_assert(*out_link < region->upstreams);
    out->type = WEIR_MESSAGE_WANTS;
    out->session = weir_limiter_session(region->limiter, *out_link);
    return true;
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
    hand_down_answers(region);
    follow_top(region, now);
    weir_region_lease_tick(region->lease, now);
    weir_root_tick(region->root, now);
}

weir_instant weir_region_deadline(const struct weir_region *region,
                                  weir_instant now)
{
    weir_instant due =
        weir_earlier(weir_root_deadline(region->root, now),
                     weir_limiter_deadline(region->limiter, now));
    due = weir_earlier(due, weir_region_lease_deadline(region->lease, now));
    if (weir_table_is_urgent(region->table) ||
        region->limiter->asks.answered.first != 0)
        due = now;
    if (region->root->merge.queue[WEIR_MERGE_CARRYING].first != 0)
        due = weir_earlier(due, region->carry_at);
    return weir_later(due, now);
}

void weir_region_look(const struct weir_region *region,
                      struct weir_region_state *out, weir_instant now)
{
    *out = (struct weir_region_state){
        .upstreams_up = weir_limiter_links_up(region->limiter),
        .age = top_age_above(region->limiter, now),
        .stale = region->limiter->stale,
        .reports = weir_limiter_reports(region->limiter),
        .carried = region->carried,
        .no_room = region->no_room,
    };
}

/* ---- Life ---- */

/* Zeroed and on a cache line; '*out_owned' is to be freed. */
static void *allocate_aligned(const struct weir_mem *mem, size_t size,
                              void **out_owned)
{
    *out_owned = mem->alloc(mem->context, size + WEIR_CACHE_LINE);
    uintptr_t at = (uintptr_t)*out_owned + WEIR_CACHE_LINE - 1;
    return (void *)(at & ~(uintptr_t)(WEIR_CACHE_LINE - 1));
}

static bool make_table(struct weir_region *region,
                       const struct weir_root_options *root, weir_instant now)
{
    weir_assert(region->slots > 0);
    struct weir_table_options options = { .slots = region->slots,
                                          .stripes = 1,
                                          .seed = ~root->seed };
    region->table_size = weir_table_size(&options);
    void *block = allocate_aligned(&region->mem, region->table_size,
                                   &region->table_block);
    if (region->table_block)
        region->table = weir_table_init(block, &options, now);
    return region->table_block != NULL;
}

static bool make_limiter(struct weir_region *region,
                         const struct weir_region_options *options,
                         weir_instant now)
{
    weir_assert(region->table);
    struct weir_limiter_options limiter = { .table = region->table,
                                            .slots = region->slots,
                                            .links = options->upstreams,
                                            .asks = WEIR_ASKS_MAX,
                                            .name = options->root.name,
                                            .seed = options->root.seed + 1,
                                            .region = &region->sink };
    memcpy(limiter.incarnation, options->root.incarnation,
           WEIR_INCARNATION_SIZE);
    region->limiter_size = weir_limiter_size(&limiter);
    void *block = allocate_aligned(&region->mem, region->limiter_size,
                                   &region->limiter_block);
    if (region->limiter_block)
        region->limiter = weir_limiter_init(block, &limiter, now);
    return region->limiter_block != NULL;
}

static bool make_region_parts(struct weir_region *region,
                              const struct weir_region_options *options,
                              weir_instant now)
{
    const struct weir_mem *mem = &region->mem;
    struct weir_root_options root = options->root;
    root.region = true;
    region->root = weir_root_new(&root, now);
    region->use_of =
        mem->alloc(mem->context, region->slots * sizeof(*region->use_of));
    if (!region->root || !region->use_of || !make_table(region, &root, now) ||
        !make_limiter(region, options, now))
        return false;
    region->lease = weir_region_lease_new(mem, region->root, region->upstreams,
                                          region->slots, ~root.seed);
    if (!region->lease)
        return false;
    region->root->merge.upstream = &region->upstream;
    region->root->asks.relay =
        (struct weir_root_relay){ .context = region, .ask = relay_ask };
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
    region->upstreams = options->upstreams;
    region->named = options->name.len > 0;
    way_add(&region->way, options->name);
    region->upstream = (struct weir_merge_upstream){ .context = region,
                                                     .above = above,
                                                     .dropped = drop_slot };
    region->sink = (struct weir_limiter_sink){ .context = region,
                                               .whole = take_whole,
                                               .change = apply_change_below,
                                               .reached = take_reached };
    if (region->named)
        region->sink.name = region->way.names[0];
    if (make_region_parts(region, options, now)) {
        region->root->regions = region->way.names;
        region->root->region_count = region->way.count;
        return region;
    }
    weir_region_free(region);
    return NULL;
}

void weir_region_free(struct weir_region *region)
{
    if (!region)
        return;
    const struct weir_mem mem = region->mem;
    weir_region_lease_free(region->lease);
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
