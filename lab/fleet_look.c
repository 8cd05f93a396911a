/* SPDX-License-Identifier: MIT
 * lab/fleet_look.c - read access to a fleet, without side effects. */

#include "lab/fleet_internal.h"

struct weir_world *weir_fleet_world(struct weir_fleet *fleet)
{
    return &fleet->world;
}

weir_instant weir_fleet_now(const struct weir_fleet *fleet)
{
    return fleet->world.now;
}

int weir_fleet_error(const struct weir_fleet *fleet)
{
    return fleet->error;
}

void weir_fleet_stats(const struct weir_fleet *fleet,
                      struct weir_fleet_stats *out)
{
    *out = fleet->stats;
}

/* ---- Nodes and links ---- */

uint32_t weir_fleet_limiters(const struct weir_fleet *fleet)
{
    return fleet->options.limiters;
}

uint32_t weir_fleet_roots(const struct weir_fleet *fleet)
{
    return fleet->options.roots;
}

bool weir_fleet_alive(const struct weir_fleet *fleet,
                      struct weir_node_place place)
{
    return weir_node_alive(weir_fleet_node(fleet, place));
}

weir_instant weir_fleet_clock_of(const struct weir_fleet *fleet,
                                 struct weir_node_place place)
{
    return weir_node_now(weir_fleet_node(fleet, place));
}

struct weir_table *weir_fleet_table(const struct weir_fleet *fleet,
                                    uint32_t limiter)
{
    return weir_fleet_node(fleet, weir_limiter_place(limiter))->table;
}

struct weir_limiter *weir_fleet_limiter(const struct weir_fleet *fleet,
                                        uint32_t limiter)
{
    return weir_fleet_node(fleet, weir_limiter_place(limiter))->limiter;
}

struct weir_root *weir_fleet_root(const struct weir_fleet *fleet, uint32_t root)
{
    return weir_fleet_node(fleet, weir_root_place(root))->root;
}

struct weir_region *weir_fleet_region(const struct weir_fleet *fleet,
                                      uint32_t root)
{
    return weir_fleet_node(fleet, weir_root_place(root))->region;
}

bool weir_fleet_linked(const struct weir_fleet *fleet, uint32_t limiter,
                       uint32_t root)
{
    const struct weir_link *link = weir_fleet_link(fleet, limiter, root);
    return link->up && link->cut == 0;
}

/* ---- Buckets ---- */

static bool view_limiter_slot(const struct weir_fleet *fleet, uint32_t limiter,
                              struct weir_text name, struct weir_slot_view *out)
{
    const struct weir_node *node =
        weir_fleet_node(fleet, weir_limiter_place(limiter));
    struct weir_ref ref;
    if (!node->table || !weir_table_find(node->table, name, &ref))
        return false;
    weir_table_view(node->table, ref.slot, out, weir_node_now(node));
    return true;
}

double weir_fleet_limiter_fill(struct weir_fleet *fleet, uint32_t limiter,
                               struct weir_text name)
{
    struct weir_slot_view view;
    if (!view_limiter_slot(fleet, limiter, name, &view))
        return 0;
    return (double)view.fill / (double)(1ull << view.bucket.leak.frac);
}

uint64_t weir_fleet_count(struct weir_fleet *fleet, uint32_t limiter,
                          struct weir_text name)
{
    struct weir_slot_view view;
    return view_limiter_slot(fleet, limiter, name, &view) ? view.count : 0;
}

static bool usage_at_root(const struct weir_fleet *fleet, uint32_t root,
                          struct weir_text name, struct weir_usage *out)
{
    const struct weir_node *node =
        weir_fleet_node(fleet, weir_root_place(root));
    return node->root &&
           weir_root_usage_of(node->root, name, out, weir_node_now(node));
}

double weir_fleet_root_fill(struct weir_fleet *fleet, uint32_t root,
                            struct weir_text name)
{
    struct weir_usage usage;
    return usage_at_root(fleet, root, name, &usage) ? usage.fill : 0;
}

uint64_t weir_fleet_root_passed(struct weir_fleet *fleet, uint32_t root,
                                struct weir_text name)
{
    struct weir_usage usage;
    return usage_at_root(fleet, root, name, &usage) ? usage.passed : 0;
}
