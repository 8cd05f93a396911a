/* SPDX-License-Identifier: MIT
 * lab/fleet_node.c - a node of a fleet: its memory, its clock, its processor.
 *
 * A node goes in rounds. A round is one iteration of the daemon's loop: tick if
 * the deadline has come, take the messages that have arrived by then, send the
 * pending messages, sleep.
 *
 *     arrives --> inbox --> take --.
 *     deadline ----------> tick ---+--> say --> leaves when the work is done
 *     kick (a take) ------> tick --'
 *
 * Work takes time by the messages read and written. The node reads or makes a
 * message at the beginning of its work, and until the end of that ('free_at')
 * no other work begins: arrivals wait, deadlines pass. A turn, one message
 * read or those sent at no cost, follows at the end of all work. Without costs
 * all of it happens within the event that caused it. */

#include "lab/fleet_internal.h"

#include <stdio.h>

#include "io/clock.h"

/* A node's clock begins within the first hour after the world's, so that
 * comparing the readings of two clocks gives a visible error. */
#define HOUR (3600 * WEIR_SECOND)

static void run_turn(struct weir_node *node);

static void run_node(struct weir_part *part, weir_instant now)
{
    (void)now;
    run_turn((struct weir_node *)part);
}

void weir_node_init(struct weir_node *node, struct weir_fleet *fleet,
                    struct weir_node_place place)
{
    struct weir_world *world = &fleet->world;
    *node = (struct weir_node){
        .part = { .name = place.root ? "root" : "limiter", .run = run_node },
        .fleet = fleet,
        .place = place,
        .clock = { .since = world->now,
                   .showed = world->now + weir_rng_below(&world->rng, HOUR),
                   .rate = WEIR_CLOCK_TRUE },
    };
}

weir_instant weir_node_now(const struct weir_node *node)
{
    return weir_fleet_clock_at(&node->clock, node->fleet->world.now);
}

/* ---- Memory ---- */

/* Zeroed and aligned to a cache line; '*out_owned' is to be freed. Untouched
 * pages cost nothing. */
static void *make_aligned_block(size_t size, void **out_owned)
{
    *out_owned = weir_must_zeroed(1, size + WEIR_CACHE_LINE);
    uintptr_t at = (uintptr_t)*out_owned + WEIR_CACHE_LINE - 1;
    return (void *)(at & ~(uintptr_t)(WEIR_CACHE_LINE - 1));
}

static void draw_incarnation(struct weir_node *node, uint8_t *out)
{
    for (size_t i = 0; i < WEIR_INCARNATION_SIZE; i++)
        out[i] = (uint8_t)weir_rng_next(&node->fleet->world.rng);
}

static void begin_limiter_memory(struct weir_node *node, struct weir_text name)
{
    weir_assert(!weir_node_alive(node));
    struct weir_fleet *fleet = node->fleet;
    struct weir_table_options table = {
        .slots = fleet->options.slots,
        .stripes = 2,
        .gate_slots = fleet->options.gate_slots,
        .seed = weir_rng_next(&fleet->world.rng),
    };
    void *block =
        make_aligned_block(weir_table_size(&table), &node->table_block);
    node->table = weir_table_init(block, &table, weir_node_now(node));
    node->stripe = weir_table_claim_stripe(node->table);
    struct weir_limiter_options options = {
        .table = node->table,
        .slots = fleet->options.slots,
        .links = fleet->options.roots,
        .asks = fleet->options.asks,
        .leases = fleet->options.leases,
        .limits = fleet->options.gate_slots,
        .name = name,
        .seed = weir_rng_next(&fleet->world.rng),
    };
    draw_incarnation(node, options.incarnation);
    block =
        make_aligned_block(weir_limiter_size(&options), &node->limiter_block);
    node->limiter = weir_limiter_init(block, &options, weir_node_now(node));
}

static void begin_region(struct weir_node *node,
                         const struct weir_root_options *root)
{
    struct weir_region_options options = {
        .root = *root,
        .upstreams = node->fleet->options.roots,
        .slots = node->fleet->options.slots,
    };
    node->region = weir_must(weir_region_new(&options, weir_node_now(node)));
    node->root = weir_region_root(node->region);
}

static void begin_root(struct weir_node *node, struct weir_text name)
{
    weir_assert(!weir_node_alive(node));
    struct weir_fleet *fleet = node->fleet;
    struct weir_root_options options = {
        .mem = weir_mem_system,
        .name = name,
        .seed = weir_rng_next(&fleet->world.rng),
        .peers_max = fleet->lowers,
        .settings = fleet->options.settings,
    };
    draw_incarnation(node, options.incarnation);
    if (fleet->options.upstream[node->place.index] != 0) {
        begin_region(node, &options);
        return;
    }
    node->root = weir_must(weir_root_new(&options, weir_node_now(node)));
    weir_node_load(node);
}

void weir_node_begin(struct weir_node *node)
{
    char name[32];
    snprintf(name, sizeof(name), "%s%u", node->part.name,
             node->place.index + 1);
    if (node->place.root)
        begin_root(node, weir_text_of(name));
    else
        begin_limiter_memory(node, weir_text_of(name));
    weir_node_rest(node);
}

static struct weir_packet *next_packet(struct weir_node *node)
{
    struct weir_packet *packet = node->inbox;
    if (!packet)
        return NULL;
    node->inbox = packet->next;
    if (node->batch > 0)
        node->batch--;
    return packet;
}

void weir_node_end(struct weir_node *node)
{
    struct weir_packet *packet;
    while ((packet = next_packet(node)) != NULL)
        weir_packet_free(packet);
    if (node->region)
        weir_region_free(node->region);
    else
        weir_root_free(node->root);
    free(node->limiter_block);
    free(node->table_block);
    node->root = NULL;
    node->region = NULL;
    node->limiter = NULL;
    node->table = NULL;
    node->limiter_block = node->table_block = NULL;
    node->paused = node->sending = false;
    weir_assert(node->batch == 0);
    node->free_at = 0;
    weir_node_rest(node);
}

void weir_node_load(struct weir_node *node)
{
    static const struct weir_store_id id = { .uuid = { 1, 2, 3 } };
    const struct weir_fleet *fleet = node->fleet;
    struct weir_root *root = node->root;
    if (!root || node->region || node->paused || fleet->store_away)
        return;
    weir_instant now = weir_node_now(node);
    int error = weir_root_store(root, &id, fleet->epoch,
                                weir_catalog_floor(fleet->store), now);
    struct weir_cursor cursor = { { 0, 0 } };
    struct weir_change change;
    uint64_t epoch = weir_catalog_epoch(weir_root_catalog(root));
    while (error == 0 &&
           weir_catalog_since(fleet->store, epoch, &cursor, &change)) {
        error = weir_root_apply(root, &change, now);
        epoch = change.quota.epoch;
    }
    if (error < 0)
        abort();
    weir_root_settle(root, now);
    weir_node_rest(node);
}

/* ---- The processor ---- */

static size_t items_of(const struct weir_message *message)
{
    switch (message->type) {
    case WEIR_MESSAGE_REPORT:
        return message->report.count + message->report.announce_count;
    case WEIR_MESSAGE_FILLS:
        return message->fills.count;
    case WEIR_MESSAGE_QUOTAS:
        return message->quotas.count;
    case WEIR_MESSAGE_ASKS:
        return message->asks.count;
    case WEIR_MESSAGE_ANSWERS:
        return message->answers.count;
    case WEIR_MESSAGE_WANTS:
        return message->wants.count;
    case WEIR_MESSAGE_GRANTS:
        return message->grants.count;
    case WEIR_MESSAGE_LIMITS:
        return message->limits.count;
    case WEIR_MESSAGE_HELLO:
    case WEIR_MESSAGE_WELCOME:
        break;
    }
    return 0;
}

static bool node_is_busy(const struct weir_node *node)
{
    return node->fleet->world.now < node->free_at;
}

/* Accounts for the processor's work on a message read or written. */
static void account_work(struct weir_node *node,
                         const struct weir_message *message)
{
    if (!node_is_busy(node))
        node->free_at = node->fleet->world.now;
    weir_duration cost = node->per_message + node->per_item * items_of(message);
    node->free_at += cost;
    node->worked += cost;
}

/* Once a second, as the daemon's loop does. */
static void note_load(struct weir_node *node)
{
    weir_instant now = node->fleet->world.now;
    weir_duration span = now - node->reported_at;
    if (!node->root || span < WEIR_SECOND)
        return;
    weir_duration share = (node->worked - node->reported_work) * 1000000 / span;
    weir_assert(node->worked >= node->reported_work);
    weir_root_busy(node->root, share < 1000000 ? (uint32_t)share : 1000000,
                   weir_node_now(node));
    node->reported_at = now;
    node->reported_work = node->worked;
}

/* ---- A turn ---- */

static void send_pending_above(struct weir_node *node, weir_instant now)
{
    struct weir_message message;
    uint32_t peer;
    uint32_t lower = node->fleet->options.limiters + node->place.index;
    while (!node_is_busy(node) &&
           weir_region_up_next(node->region, &peer, &message, now)) {
        account_work(node, &message);
        weir_link_send(weir_fleet_link(node->fleet, lower, peer), true,
                       &message, node->free_at);
    }
    struct weir_event event;
    while (weir_region_up_event(node->region, &event))
        continue;
}

static void show_sent(struct weir_node *node, uint32_t limiter,
                      const struct weir_message *message)
{
    const struct weir_fleet *fleet = node->fleet;
    for (size_t i = 0; i < fleet->watch_count; i++) {
        const struct weir_fleet_watch *watch = &fleet->watch[i];
        if (watch->sent)
            watch->sent(watch->context, node->place.index, limiter, message);
    }
}

/* A busy node sends the rest of the round's messages when it is free. */
static void send_pending(struct weir_node *node)
{
    weir_assert(!node_is_busy(node) && node->batch == 0);
    weir_instant now = weir_node_now(node);
    struct weir_message message;
    uint32_t peer;
    while (node->limiter && !node_is_busy(node) &&
           weir_limiter_next(node->limiter, &peer, &message, now)) {
        account_work(node, &message);
        weir_link_send(weir_fleet_link(node->fleet, node->place.index, peer),
                       true, &message, node->free_at);
    }
    struct weir_event event;
    while (node->limiter && weir_limiter_event(node->limiter, &event))
        continue;
    if (node->region) {
        weir_region_tick(node->region, now);
        send_pending_above(node, now);
    }
    while (node->root && !node_is_busy(node) &&
           weir_root_next(node->root, &peer, &message, now)) {
        account_work(node, &message);
        show_sent(node, peer, &message);
        weir_link_send(weir_fleet_link(node->fleet, peer, node->place.index),
                       false, &message, node->free_at);
    }
    node->sending = node_is_busy(node);
}

static bool node_is_urgent(const struct weir_node *node)
{
    return node->limiter && weir_table_is_urgent(node->table);
}

static weir_instant node_deadline(const struct weir_node *node,
                                  weir_instant now)
{
    weir_assert(weir_node_alive(node));
    if (node->region)
        return weir_region_deadline(node->region, now);
    return node->limiter ? weir_limiter_deadline(node->limiter, now)
                         : weir_root_deadline(node->root, now);
}

void weir_node_rest(struct weir_node *node)
{
    struct weir_world *world = &node->fleet->world;
    weir_instant at = WEIR_NEVER;
    if (weir_node_alive(node) && !node->paused) {
        if (!node_is_busy(node) && node->batch == 0)
            send_pending(node);
        weir_instant due = node_deadline(node, weir_node_now(node));
        at = weir_fleet_clock_when(&node->clock, due, world->now);
        if (node->inbox || node_is_urgent(node) || at <= world->now)
            at = world->now + 1; /* another turn, after other parts' turns */
        if (node_is_busy(node))
            at = node->free_at;
    }
    weir_world_wake(world, &node->part, at);
}

static int receive_packet(struct weir_node *node, struct weir_link *link,
                          const struct weir_packet *packet)
{
    weir_assert(weir_node_alive(node));
    struct weir_fleet *fleet = node->fleet;
    weir_instant now = weir_node_now(node);
    struct weir_message message;
    bool to_root = packet->pipe == &link->to_root;
    int error = weir_v1_decode(packet->bytes, packet->len, to_root,
                               &fleet->arena, &message);
    if (error < 0)
        return error;
    account_work(node, &message);
    uint32_t from = to_root ? link->limiter : link->root;
    if (to_root)
        error = weir_root_receive(node->root, from, &message, now);
    else if (node->region)
        error = weir_region_up_receive(node->region, from, &message, now);
    else
        error = weir_limiter_receive(node->limiter, from, &message, now);
    for (size_t i = 0; i < fleet->watch_count && error == 0; i++) {
        const struct weir_fleet_watch *watch = &fleet->watch[i];
        if (watch->received)
            watch->received(watch->context, node->place, from, &message);
    }
    return error;
}

static void take_packet(struct weir_node *node, struct weir_packet *packet)
{
    struct weir_link *link = weir_link_of(packet);
    int error = 0;
    if (weir_link_admits(link, packet))
        error = receive_packet(node, link, packet);
    weir_packet_free(packet);
    weir_link_relieve(link);
    if (error == 0)
        return;
    if (node->fleet->error == 0)
        node->fleet->error = error;
    weir_link_drop(link);
}

static void tick_node(struct weir_node *node)
{
    weir_instant now = weir_node_now(node);
    if (node_deadline(node, now) > now && !node_is_urgent(node))
        return;
    if (node->limiter)
        weir_limiter_tick(node->limiter, now);
    else if (node->region)
        weir_region_tick(node->region, now);
    else
        weir_root_tick(node->root, now);
}

static void begin_round(struct weir_node *node)
{
    weir_assert(node->batch == 0);
    note_load(node);
    tick_node(node);
    for (const struct weir_packet *p = node->inbox; p; p = p->next)
        node->batch++;
}

static void run_turn(struct weir_node *node)
{
    bool runs = weir_node_alive(node) && !node->paused && !node_is_busy(node);
    if (runs && !node->sending) {
        if (node->batch == 0)
            begin_round(node);
        struct weir_packet *packet = next_packet(node);
        if (packet)
            take_packet(node, packet);
    }
    weir_node_rest(node);
}

/* ---- Events from outside ---- */

/* The node takes the packet now, or when it is free. */
static void arrive_at_node(struct weir_node *node, struct weir_packet *packet)
{
    packet->next = NULL;
    if (node->inbox)
        node->inbox_last->next = packet;
    else
        node->inbox = packet;
    node->inbox_last = packet;
    if (node->inbox == packet)
        run_turn(node);
}

void weir_node_kick(struct weir_node *node)
{
    weir_instant now = node->fleet->world.now;
    if (weir_node_alive(node) && !node->paused)
        weir_world_wake(&node->fleet->world, &node->part,
                        node_is_busy(node) ? node->free_at : now);
}

static void switch_node_link(struct weir_node *node, uint32_t peer, bool above,
                             bool up)
{
    weir_instant now = weir_node_now(node);
    if (node->limiter)
        weir_limiter_link(node->limiter, peer, up, now);
    else if (node->region && above)
        weir_region_up_link(node->region, peer, up, now);
    else if (node->root)
        weir_root_link(node->root, peer, up, now);
    weir_node_rest(node);
}

const struct weir_link_ends weir_node_ends = {
    .arrive = arrive_at_node,
    .switch_link = switch_node_link,
    .resume = weir_node_rest,
};
