/* SPDX-License-Identifier: MIT
 * test/pump.c - see pump.h.
 *
 * The order of events: packets by (arrival, tie drawn from the seed), nodes
 * ticked when their deadlines come. After every call into a node its outbox
 * is drained, as the contract of the nodes asks. */

#include "pump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "wire/weir_v1.h"

#define ARENA_SIZE (4u << 20)

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* ---- Packets: a heap by (at, tie) ---- */

static bool sooner(const struct pump_packet *a, const struct pump_packet *b)
{
    return a->at != b->at ? a->at < b->at : a->tie < b->tie;
}

static void packet_swap(struct pump *pump, size_t i, size_t k)
{
    struct pump_packet spare = pump->packets[i];
    pump->packets[i] = pump->packets[k];
    pump->packets[k] = spare;
}

static void packet_push(struct pump *pump, const struct pump_packet *packet)
{
    if (pump->packet_count == pump->packet_capacity) {
        size_t more = pump->packet_capacity ? 2 * pump->packet_capacity : 64;
        pump->packets =
            must(realloc(pump->packets, more * sizeof(*pump->packets)));
        pump->packet_capacity = more;
    }
    size_t i = pump->packet_count++;
    pump->packets[i] = *packet;
    while (i > 0 && sooner(&pump->packets[i], &pump->packets[(i - 1) / 2])) {
        packet_swap(pump, i, (i - 1) / 2);
        i = (i - 1) / 2;
    }
}

static struct pump_packet packet_pop(struct pump *pump)
{
    struct pump_packet first = pump->packets[0];
    pump->packets[0] = pump->packets[--pump->packet_count];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t k = 2 * i + 1; k <= 2 * i + 2; k++) {
            if (k < pump->packet_count &&
                sooner(&pump->packets[k], &pump->packets[least]))
                least = k;
        }
        if (least == i)
            return first;
        packet_swap(pump, i, least);
        i = least;
    }
}

static bool chance(struct pump *pump, double probability)
{
    return probability > 0 && weir_rng_unit(&pump->rng) < probability;
}

/* A link keeps the order, as TCP does, but for what is let overtake. */
static weir_instant arrival(struct pump *pump, bool to_root,
                            uint32_t limiter, uint32_t root)
{
    weir_duration span = pump->options.delay_max - pump->options.delay_min;
    weir_instant at = pump->now + pump->options.delay_min +
                      weir_rng_below(&pump->rng, span + 1);
    weir_instant *last = &pump->last_at[limiter][root][to_root];
    if (chance(pump, pump->options.reorder))
        return at;
    if (at <= *last)
        at = *last + 1;
    *last = at;
    return at;
}

static void send_bytes(struct pump *pump, bool to_root, uint32_t limiter,
                       uint32_t root, const struct weir_message *message)
{
    size_t size = weir_v1_size(message);
    char *bytes = must(malloc(size));
    size_t len = weir_v1_encode(message, bytes, size);
    if (len == 0)
        abort();
    pump->messages++;
    pump->bytes += len;
    int copies = chance(pump, pump->options.loss)    ? 0
                 : chance(pump, pump->options.twice) ? 2
                                                     : 1;
    for (int i = 0; i < copies; i++) {
        struct pump_packet packet = {
            .at = arrival(pump, to_root, limiter, root),
            .tie = weir_rng_next(&pump->rng),
            .to_root = to_root,
            .limiter = limiter,
            .root = root,
            .connection = pump->connection[limiter][root],
            .len = len,
            .bytes = memcpy(must(malloc(len)), bytes, len),
        };
        packet_push(pump, &packet);
    }
    free(bytes);
}

/* ---- Nodes ---- */

static void drain_limiter(struct pump *pump, uint32_t index)
{
    struct weir_limiter *limiter = pump->limiter[index].limiter;
    uint32_t link;
    struct weir_message message;
    while (weir_limiter_next(limiter, &link, &message, pump->now)) {
        if (pump->up[index][link])
            send_bytes(pump, true, index, link, &message);
    }
    struct weir_event event;
    while (weir_limiter_event(limiter, &event))
        continue;
}

static void drain_root(struct pump *pump, uint32_t index)
{
    uint32_t peer;
    struct weir_message message;
    while (weir_root_next(pump->root[index], &peer, &message, pump->now)) {
        if (pump->up[peer][index])
            send_bytes(pump, false, peer, index, &message);
    }
}

/* The link is what both ends and the test allow. */
static void settle_link(struct pump *pump, uint32_t limiter, uint32_t root)
{
    struct weir_limiter *node = pump->limiter[limiter].limiter;
    bool up = node && pump->root[root] && !pump->cut[limiter][root];
    if (up == pump->up[limiter][root])
        return;
    pump->up[limiter][root] = up;
    pump->connection[limiter][root]++;
    if (pump->root[root]) {
        weir_root_link(pump->root[root], limiter, up, pump->now);
        drain_root(pump, root);
    }
    if (node) {
        weir_limiter_link(node, root, up, pump->now);
        drain_limiter(pump, limiter);
    }
}

static void random_bytes(struct pump *pump, uint8_t *buf, size_t size)
{
    for (size_t i = 0; i < size; i++)
        buf[i] = (uint8_t)weir_rng_next(&pump->rng);
}

void pump_start_limiter(struct pump *pump, uint32_t index)
{
    struct pump_node_limiter *node = &pump->limiter[index];
    struct weir_table_options table = {
        .slots = pump->options.slots,
        .stripes = 2,
        .seed = weir_rng_next(&pump->rng),
    };
    size_t size = (weir_table_size(&table) + 63) / 64 * 64;
    node->table_block = must(aligned_alloc(64, size));
    memset(node->table_block, 0, size);
    node->table = weir_table_init(node->table_block, &table, pump->now);
    node->stripe = weir_table_claim_stripe(node->table);
    struct weir_limiter_options options = {
        .table = node->table,
        .slots = table.slots,
        .links = pump->options.roots,
        .name = WEIR_TEXT("limiter"),
        .seed = weir_rng_next(&pump->rng),
    };
    random_bytes(pump, options.incarnation, WEIR_INCARNATION_SIZE);
    size = (weir_limiter_size(&options) + 63) / 64 * 64;
    node->block = must(calloc(1, size + 64));
    void *at = (void *)(((uintptr_t)node->block + 63) & ~(uintptr_t)63);
    node->limiter = weir_limiter_init(at, &options, pump->now);
    for (uint32_t root = 0; root < pump->options.roots; root++)
        settle_link(pump, index, root);
}

void pump_kill_limiter(struct pump *pump, uint32_t index)
{
    struct pump_node_limiter *node = &pump->limiter[index];
    if (!node->limiter)
        return;
    node->limiter = NULL;
    for (uint32_t root = 0; root < pump->options.roots; root++)
        settle_link(pump, index, root);
    /* What another process sent can't arrive on this one's links. */
    for (size_t i = 0; i < pump->packet_count; i++) {
        if (pump->packets[i].limiter == index)
            pump->packets[i].connection = UINT32_MAX;
    }
    free(node->block);
    free(node->table_block);
    *node = (struct pump_node_limiter){ 0 };
}

static void load_store(struct pump *pump, struct weir_root *root)
{
    struct weir_store_id id = { .uuid = { 1, 2, 3 } };
    weir_root_store(root, &id, pump->epoch, 0, pump->now);
    struct weir_cursor cursor = { { 0, 0 } };
    struct weir_change change;
    uint64_t epoch = weir_catalog_epoch(weir_root_catalog(root));
    while (weir_catalog_since(pump->store, epoch, &cursor, &change)) {
        if (weir_root_apply(root, &change, pump->now) < 0)
            abort();
        epoch = change.quota.epoch;
    }
    weir_root_settle(root, pump->now);
}

void pump_start_root(struct pump *pump, uint32_t index)
{
    if (pump->root[index])
        return;
    struct weir_root_options options = {
        .mem = weir_mem_system,
        .name = WEIR_TEXT("root"),
        .seed = weir_rng_next(&pump->rng),
        .peers_max = PUMP_LIMITERS_MAX,
        .settings = pump->options.settings,
    };
    random_bytes(pump, options.incarnation, WEIR_INCARNATION_SIZE);
    pump->root[index] = must(weir_root_new(&options, pump->now));
    load_store(pump, pump->root[index]);
    for (uint32_t i = 0; i < pump->options.limiters; i++)
        settle_link(pump, i, index);
}

void pump_kill_root(struct pump *pump, uint32_t index)
{
    struct weir_root *root = pump->root[index];
    if (!root)
        return;
    pump->root[index] = NULL;
    for (uint32_t i = 0; i < pump->options.limiters; i++)
        settle_link(pump, i, index);
    weir_root_free(root);
}

void pump_cut(struct pump *pump, uint32_t limiter, uint32_t root, bool cut)
{
    pump->cut[limiter][root] = cut;
    settle_link(pump, limiter, root);
}

struct pump *pump_new(const struct pump_options *options)
{
    struct pump *pump = must(calloc(1, sizeof(*pump)));
    pump->options = *options;
    pump->rng.state = options->seed;
    pump->now = 1000 * WEIR_SECOND;
    pump->store = must(weir_catalog_new(&weir_mem_system, options->seed));
    for (uint32_t i = 0; i < options->roots; i++)
        pump_start_root(pump, i);
    for (uint32_t i = 0; i < options->limiters; i++)
        pump_start_limiter(pump, i);
    return pump;
}

void pump_free(struct pump *pump)
{
    for (uint32_t i = 0; i < pump->options.limiters; i++)
        pump_kill_limiter(pump, i);
    for (uint32_t i = 0; i < pump->options.roots; i++)
        pump_kill_root(pump, i);
    while (pump->packet_count > 0)
        free(packet_pop(pump).bytes);
    free(pump->packets);
    weir_catalog_free(pump->store);
    free(pump);
}

/* ---- The store ---- */

static int store_apply(struct pump *pump, struct weir_change *change)
{
    struct weir_diag diag = { 0 };
    int error = weir_catalog_check(pump->store, change, &diag);
    if (error < 0)
        return error;
    const struct weir_quota *before =
        weir_catalog_get(pump->store, change->quota.name);
    change->quota.epoch = ++pump->epoch;
    change->quota.created = before ? before->created : pump->epoch;
    if (weir_catalog_apply(pump->store, change) < 0)
        abort();
    for (uint32_t i = 0; i < pump->options.roots; i++) {
        if (!pump->root[i])
            continue;
        load_store(pump, pump->root[i]);
        drain_root(pump, i);
    }
    return 0;
}

int pump_put(struct pump *pump, const struct weir_quota *quota)
{
    struct weir_change change = { .quota = *quota };
    return store_apply(pump, &change);
}

int pump_remove(struct pump *pump, const char *name)
{
    struct weir_change change = { .removed = true };
    change.quota.name = weir_text_of(name);
    return store_apply(pump, &change);
}

int pump_quota(struct pump *pump, const char *name, const char *parent,
               uint64_t units, weir_duration per, uint64_t low,
               uint64_t high)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = weir_text_of(name);
    quota.parent = weir_text_of(parent);
    quota.limit = (struct weir_limit){ .units = units, .per = per };
    quota.low_burst = (struct weir_burst){ .amount = low };
    quota.high_burst = (struct weir_burst){ .amount = high };
    return pump_put(pump, &quota);
}

/* ---- Time ---- */

static void deliver(struct pump *pump, struct pump_packet *packet)
{
    static char arena_bytes[ARENA_SIZE] __attribute__((aligned(64)));
    struct weir_arena arena = { (unsigned char *)arena_bytes, ARENA_SIZE, 0 };
    uint32_t l = packet->limiter, r = packet->root;
    bool over = packet->connection != pump->connection[l][r];
    if (!pump->up[l][r] || packet->connection == UINT32_MAX ||
        (over && !chance(pump, pump->options.replay)))
        return;
    struct weir_message message;
    int error = weir_v1_decode(packet->bytes, packet->len, packet->to_root,
                               &arena, &message);
    if (error == 0 && message.type == WEIR_MESSAGE_FILLS && pump->on_fill) {
        for (size_t i = 0; i < message.fills.count; i++)
            pump->on_fill(pump->context, l, r, &message.fills.fills[i]);
    }
    if (error == 0 && packet->to_root)
        error = weir_root_receive(pump->root[r], l, &message, pump->now);
    else if (error == 0)
        error = weir_limiter_receive(pump->limiter[l].limiter, r, &message,
                                     pump->now);
    if (error < 0 && pump->error == 0)
        pump->error = error;
    if (packet->to_root)
        drain_root(pump, r);
    else
        drain_limiter(pump, l);
}

/* Ticks what is due; returns the earliest deadline. */
static weir_instant tick_nodes(struct pump *pump)
{
    weir_instant next = WEIR_NEVER;
    for (uint32_t i = 0; i < pump->options.limiters; i++) {
        struct weir_limiter *node = pump->limiter[i].limiter;
        if (!node)
            continue;
        bool urgent = weir_table_is_urgent(pump->limiter[i].table);
        if (urgent || weir_limiter_deadline(node, pump->now) <= pump->now) {
            weir_limiter_tick(node, pump->now);
            drain_limiter(pump, i);
        }
        weir_instant due = weir_limiter_deadline(node, pump->now);
        next = due < next ? due : next;
    }
    for (uint32_t i = 0; i < pump->options.roots; i++) {
        struct weir_root *node = pump->root[i];
        if (!node)
            continue;
        if (weir_root_deadline(node, pump->now) <= pump->now) {
            weir_root_tick(node, pump->now);
            drain_root(pump, i);
        }
        weir_instant due = weir_root_deadline(node, pump->now);
        next = due < next ? due : next;
    }
    return next;
}

void pump_run(struct pump *pump, weir_instant until)
{
    for (;;) {
        weir_instant next = tick_nodes(pump);
        if (pump->packet_count > 0 && pump->packets[0].at < next)
            next = pump->packets[0].at;
        if (next > until)
            break;
        /* A deadline of now means: again, a little later. */
        pump->now = next > pump->now ? next : pump->now + 1;
        while (pump->packet_count > 0 &&
               pump->packets[0].at <= pump->now) {
            struct pump_packet packet = packet_pop(pump);
            deliver(pump, &packet);
            free(packet.bytes);
        }
    }
    pump->now = until > pump->now ? until : pump->now;
}

/* ---- Requests ---- */

static bool resolve(struct pump *pump, uint32_t limiter, const char *name,
                    struct weir_ref *out)
{
    struct weir_table *table = pump->limiter[limiter].table;
    struct weir_text text = weir_text_of(name);
    return weir_table_find(table, text, out) ||
           weir_table_resolve(table, text, false, out, pump->now) !=
               WEIR_RESOLVED_NONE;
}

unsigned pump_take(struct pump *pump, uint32_t limiter, const char *name,
                   uint64_t weight, struct weir_reply *reply)
{
    struct pump_node_limiter *node = &pump->limiter[limiter];
    struct weir_ref ref;
    if (!node->limiter || !resolve(pump, limiter, name, &ref))
        return 0;
    unsigned outcome = weir_table_take(node->table, node->stripe, ref,
                                       weight, reply, pump->now);
    if (outcome & WEIR_OUTCOME_KICK) {
        weir_limiter_tick(node->limiter, pump->now);
        drain_limiter(pump, limiter);
    }
    return outcome;
}

void pump_charge(struct pump *pump, uint32_t limiter, const char *name,
                 uint64_t weight)
{
    struct pump_node_limiter *node = &pump->limiter[limiter];
    struct weir_ref ref;
    if (node->limiter && resolve(pump, limiter, name, &ref))
        weir_table_charge(node->table, node->stripe, ref, weight, pump->now);
}

/* ---- Looking ---- */

static bool view_of(struct pump *pump, uint32_t limiter, const char *name,
                    struct weir_slot_view *out)
{
    struct weir_table *table = pump->limiter[limiter].table;
    struct weir_ref ref;
    if (!table || !weir_table_find(table, weir_text_of(name), &ref))
        return false;
    weir_table_view(table, ref.slot, out, pump->now);
    return true;
}

double pump_limiter_fill(struct pump *pump, uint32_t limiter,
                         const char *name)
{
    struct weir_slot_view view;
    if (!view_of(pump, limiter, name, &view))
        return 0;
    return (double)view.fill / (double)(1ull << view.bucket.leak.frac);
}

uint64_t pump_count(struct pump *pump, uint32_t limiter, const char *name)
{
    struct weir_slot_view view;
    return view_of(pump, limiter, name, &view) ? view.count : 0;
}

double pump_root_fill(struct pump *pump, uint32_t root, const char *name)
{
    struct weir_usage usage;
    if (!pump->root[root] ||
        !weir_root_usage_of(pump->root[root], weir_text_of(name), &usage,
                            pump->now))
        return 0;
    return usage.fill;
}

uint64_t pump_root_passed(struct pump *pump, uint32_t root,
                          const char *name)
{
    struct weir_usage usage;
    if (!pump->root[root] ||
        !weir_root_usage_of(pump->root[root], weir_text_of(name), &usage,
                            pump->now))
        return 0;
    return usage.passed;
}
