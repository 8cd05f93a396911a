/* SPDX-License-Identifier: MIT
 * lab/fleet.c - a fleet: its life, its quota store, and its faults.
 *
 * The events of a fleet belong to four kinds of parts of the world: a node
 * (fleet_node.c), a link that waits (fleet_link.c), and each link's two pipes
 * (net.c). No function walks over all nodes or links unless it concerns all of
 * them, as the death of a root does. So a turn costs the same in a fleet of ten
 * thousand. */

#include "lab/fleet_internal.h"

#include "core/node/root_lease.h"
#include "io/clock.h"
#include "lab/memory.h"

/* Of the decoder: a node's message takes less than a megabyte (8,192 counts of
 * 32 bytes, 512 quotas), and a small block is reused by the next fleet. */
#define ARENA_SIZE (4u << 20)

/* ---- Life ---- */

static bool has_regions(const struct weir_fleet *fleet)
{
    for (uint32_t r = 0; r < fleet->options.roots; r++) {
        if (fleet->options.upstream[r] != 0)
            return true;
    }
    return false;
}

static void make_nodes_and_links(struct weir_fleet *fleet)
{
    weir_assert(!fleet->links && fleet->options.limiters > 0);
    uint32_t limiters = fleet->options.limiters;
    uint32_t roots = fleet->options.roots;
    uint32_t lowers = limiters + (has_regions(fleet) ? roots : 0);
    fleet->lowers = lowers;
    fleet->roots = weir_must_zeroed(roots, sizeof(struct weir_node));
    fleet->limiters = weir_must_zeroed(limiters, sizeof(struct weir_node));
    fleet->links =
        weir_must_zeroed((size_t)lowers * roots, sizeof(struct weir_link));
    for (uint32_t r = 0; r < roots; r++)
        weir_node_init(&fleet->roots[r], fleet, weir_root_place(r));
    for (uint32_t l = 0; l < limiters; l++) {
        weir_node_init(&fleet->limiters[l], fleet, weir_limiter_place(l));
        for (uint32_t r = 0; r < roots; r++)
            weir_link_init(weir_fleet_link(fleet, l, r), fleet, &weir_node_ends,
                           l, r);
    }
    for (uint32_t l = limiters; l < lowers; l++) {
        for (uint32_t r = 0; r < roots; r++) {
            struct weir_link *link = weir_fleet_link(fleet, l, r);
            weir_link_init(link, fleet, &weir_node_ends, l, r);
            link->allowed = fleet->options.upstream[l - limiters] >> r & 1;
        }
    }
}

struct weir_fleet *weir_fleet_new(const struct weir_fleet_options *options)
{
    weir_assert(options->limiters >= 1 &&
                options->limiters <= WEIR_FLEET_LIMITERS_MAX);
    weir_assert(options->roots <= WEIR_FLEET_ROOTS_MAX);
    weir_assert(options->limiters_started <= options->limiters);
    weir_assert(options->settings.report_interval > 0);
    struct weir_fleet *fleet = weir_must_zeroed(1, sizeof(*fleet));
    fleet->options = *options;
    weir_world_init(&fleet->world, options->seed);
    fleet->arena.size = ARENA_SIZE;
    fleet->arena.base = weir_must(malloc(ARENA_SIZE));
    fleet->store = weir_must(weir_catalog_new(&weir_mem_system, options->seed));
    make_nodes_and_links(fleet);
    for (uint32_t r = 0; r < options->roots; r++)
        weir_fleet_start(fleet, weir_root_place(r));
    for (uint32_t l = 0; l < options->limiters_started; l++)
        weir_fleet_start(fleet, weir_limiter_place(l));
    return fleet;
}

void weir_fleet_free(struct weir_fleet *fleet)
{
    if (!fleet)
        return;
    for (uint32_t l = 0; l < fleet->options.limiters; l++)
        weir_node_end(&fleet->limiters[l]);
    for (uint32_t r = 0; r < fleet->options.roots; r++)
        weir_node_end(&fleet->roots[r]);
    size_t count = (size_t)fleet->lowers * fleet->options.roots;
    for (size_t i = 0; i < count; i++)
        weir_link_fini(&fleet->links[i]);
    free(fleet->limiters);
    free(fleet->roots);
    free(fleet->links);
    free(fleet->arena.base);
    weir_catalog_free(fleet->store);
    weir_world_fini(&fleet->world);
    free(fleet);
}

void weir_fleet_watch(struct weir_fleet *fleet,
                      const struct weir_fleet_watch *watch)
{
    weir_assert(fleet->watch_count < WEIR_FLEET_WATCHES_MAX);
    fleet->watch[fleet->watch_count++] = *watch;
}

void weir_fleet_run(struct weir_fleet *fleet, weir_instant until)
{
    while (weir_world_step(&fleet->world, until))
        continue;
}

void weir_fleet_lead(struct weir_fleet *fleet, uint32_t root, bool first)
{
    bool of_region = fleet->roots[root].region != NULL;
    weir_assert(weir_node_alive(&fleet->roots[root]));
    fleet->term++;
    for (uint32_t r = 0; r < fleet->options.roots; r++) {
        struct weir_node *node = &fleet->roots[r];
        weir_instant now = weir_node_now(node);
        bool told = weir_node_alive(node) && !node->region && !of_region;
        if (r == root)
            weir_root_lease_begin(node->root, fleet->term,
                                  first ? WEIR_NEVER : now, now);
        else if (told)
            weir_root_lease_end(node->root, fleet->term,
                                (struct weir_text){ NULL, 0 }, now);
        weir_node_rest(node);
    }
}

/* ---- The quota store ---- */

static void load_roots(struct weir_fleet *fleet)
{
    for (uint32_t r = 0; r < fleet->options.roots; r++)
        weir_node_load(&fleet->roots[r]);
}

static int apply_edit(struct weir_fleet *fleet, struct weir_change *change,
                      struct weir_diag *diag)
{
    if (fleet->store_away)
        return weir_diag_put(diag, WEIR_ESTORE, "the quota store is away");
    int error = weir_catalog_check(fleet->store, change, diag);
    if (error < 0)
        return error;
    const struct weir_quota *before =
        weir_catalog_get(fleet->store, change->quota.name);
    weir_assert(fleet->epoch == weir_catalog_epoch(fleet->store));
    change->quota.epoch = ++fleet->epoch;
    bool goes_on = before && !change->resets;
    change->quota.created = goes_on ? before->created : fleet->epoch;
    change->quota.id = before ? before->id : fleet->epoch;
    if (weir_catalog_apply(fleet->store, change) < 0)
        weir_no_memory();
    load_roots(fleet);
    return 0;
}

int weir_fleet_put(struct weir_fleet *fleet, const struct weir_quota *quota,
                   struct weir_diag *diag)
{
    struct weir_change change = { .quota = *quota };
    return apply_edit(fleet, &change, diag);
}

int weir_fleet_empty(struct weir_fleet *fleet, struct weir_text name,
                     struct weir_diag *diag)
{
    const struct weir_quota *quota = weir_catalog_get(fleet->store, name);
    if (!quota)
        return WEIR_ENOENT;
    char texts[WEIR_FIELD_VALUE_MAX * 3];
    struct weir_change change = { .resets = true, .quota = *quota };
    weir_assert(weir_quota_texts_size(quota) <= sizeof(texts));
    weir_quota_texts_move(&change.quota, texts);
    return apply_edit(fleet, &change, diag);
}

int weir_fleet_remove(struct weir_fleet *fleet, const char *name,
                      struct weir_diag *diag)
{
    struct weir_change change = { .removed = true };
    change.quota.name = weir_text_of(name);
    return apply_edit(fleet, &change, diag);
}

void weir_fleet_store_away(struct weir_fleet *fleet, bool away)
{
    fleet->store_away = away;
    load_roots(fleet);
}

const struct weir_catalog *weir_fleet_catalog(const struct weir_fleet *fleet)
{
    return fleet->store;
}

/* ---- Faults: a node ---- */

/* The node's links to roots: 'i' from 0; NULL after the last. */
static struct weir_link *link_above(const struct weir_node *node, uint32_t i)
{
    const struct weir_fleet *fleet = node->fleet;
    uint32_t index = node->place.index;
    if (node->place.root)
        index += fleet->options.limiters;
    return i < fleet->options.roots && index < fleet->lowers
               ? weir_fleet_link(fleet, index, i)
               : NULL;
}

/* All links of the node. */
static struct weir_link *link_of(const struct weir_node *node, uint32_t i)
{
    const struct weir_fleet *fleet = node->fleet;
    if (!node->place.root)
        return link_above(node, i);
    return i < fleet->lowers ? weir_fleet_link(fleet, i, node->place.index)
                             : link_above(node, i - fleet->lowers);
}

static void settle_links(struct weir_node *node)
{
    struct weir_link *link;
    for (uint32_t i = 0; (link = link_of(node, i)) != NULL; i++)
        weir_link_settle(link);
}

void weir_fleet_kill(struct weir_fleet *fleet, struct weir_node_place place)
{
    struct weir_node *node = weir_fleet_node(fleet, place);
    if (!weir_node_alive(node))
        return;
    for (size_t i = 0; i < fleet->watch_count; i++) {
        if (fleet->watch[i].dying)
            fleet->watch[i].dying(fleet->watch[i].context, place);
    }
    weir_node_end(node);
    weir_assert(!weir_node_alive(node));
    settle_links(node);
    struct weir_link *link;
    for (uint32_t i = 0; (link = link_above(node, i)) != NULL; i++)
        link->oldest = link->connection;
}

void weir_fleet_start(struct weir_fleet *fleet, struct weir_node_place place)
{
    struct weir_node *node = weir_fleet_node(fleet, place);
    if (weir_node_alive(node))
        return;
    weir_node_begin(node);
    weir_assert(weir_node_alive(node));
    for (size_t i = 0; i < fleet->watch_count; i++) {
        if (fleet->watch[i].born)
            fleet->watch[i].born(fleet->watch[i].context, place);
    }
    settle_links(node);
}

void weir_fleet_reset(struct weir_fleet *fleet, struct weir_node_place place)
{
    struct weir_node *node = weir_fleet_node(fleet, place);
    struct weir_link *link;
    for (uint32_t i = 0; (link = link_of(node, i)) != NULL; i++) {
        weir_link_break(link);
        weir_link_settle(link);
    }
}

void weir_fleet_pause(struct weir_fleet *fleet, struct weir_node_place place,
                      bool paused)
{
    struct weir_node *node = weir_fleet_node(fleet, place);
    if (!weir_node_alive(node) || node->paused == paused)
        return;
    node->paused = paused;
    weir_node_rest(node);
    weir_node_load(node);
    weir_node_kick(node);
}

void weir_fleet_cpu(struct weir_fleet *fleet, struct weir_node_place place,
                    weir_duration per_message, weir_duration per_item)
{
    struct weir_node *node = weir_fleet_node(fleet, place);
    node->per_message = per_message;
    node->per_item = per_item;
}

void weir_fleet_clock(struct weir_fleet *fleet, struct weir_node_place place,
                      int64_t step, double drift_ppm)
{
    struct weir_node *node = weir_fleet_node(fleet, place);
    weir_fleet_clock_set(&node->clock, step, drift_ppm, fleet->world.now);
    weir_node_rest(node);
}

/* ---- Faults: a link ---- */

uint32_t weir_fleet_upper(const struct weir_fleet *fleet, uint32_t root)
{
    weir_assert(fleet->options.upstream[root] != 0);
    return fleet->options.limiters + root;
}

void weir_fleet_cut(struct weir_fleet *fleet, uint32_t limiter, uint32_t root,
                    enum weir_way cut, weir_duration noticed)
{
    struct weir_link *link = weir_fleet_link(fleet, limiter, root);
    link->cut = (uint8_t)cut;
    link->noticed_at = fleet->world.now + noticed;
    weir_link_settle(link);
}

void weir_fleet_allow(struct weir_fleet *fleet, uint32_t limiter, uint32_t root,
                      bool allowed)
{
    struct weir_link *link = weir_fleet_link(fleet, limiter, root);
    link->allowed = allowed;
    weir_link_settle(link);
}

void weir_fleet_net(struct weir_fleet *fleet, uint32_t limiter, uint32_t root,
                    const struct weir_net *net)
{
    weir_fleet_link(fleet, limiter, root)->net = *net;
}
