/* SPDX-License-Identifier: MIT
 * node/root_adaptive.c - fleet limits by name.
 *
 * A limit lives as long as the lease pool of its quota. It is found by the hash
 * of the name in one array, which is walked: it has 1,024 numbers at most, and
 * an ask that brings a window costs far more than that.
 *
 * While a limit is learned, the capacity is what clients have reported, but at
 * least the initial limit: then the pool takes nothing away from those that it
 * has heard. When all are heard, the fleet's limit is the sum of what is out.
 * (It may be more than the former limit by the units of clients that were alone
 * meanwhile, each with a limit that it found itself.) */

#include "core/node/root_adaptive.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/node/root_state.h"
#include "core/quota/quota_adaptive.h"

#define NONE SIZE_MAX
/* Limits without a lease pool are looked for so often. */
#define WALK_EVERY WEIR_SECOND

struct fleet {
    struct weir_fleet_limit *limit; /* owned */
    double shown; /* while the pool learns: what clients have, at most */
    bool learning;
    bool found; /* … of what a client has: not only its first permit */
    weir_instant learns_until; /* if the pool doesn't learn */
    uint8_t name_len;
    char name[WEIR_NAME_MAX];
};

struct root_adaptive {
    struct weir_mem mem;
    uint64_t seed;
    uint64_t *hashes;     /* owned … */
    struct fleet *fleets; /* owned: in the same order */
    size_t count, hash_capacity, capacity;
    weir_instant walk_at;
};

/* ---- Life ---- */

struct root_adaptive *weir_root_adaptive_new(const struct weir_mem *mem,
                                             uint64_t seed)
{
    struct root_adaptive *a = mem->alloc(mem->context, sizeof(*a));
    if (!a)
        return NULL;
    *a = (struct root_adaptive){ .mem = *mem, .seed = seed };
    return a;
}

static void drop_fleet(struct root_adaptive *a, size_t at)
{
    weir_assert(at < a->count);
    weir_fleet_limit_free(a->fleets[at].limit);
    a->count--;
    a->fleets[at] = a->fleets[a->count];
    a->hashes[at] = a->hashes[a->count];
}

void weir_root_adaptive_free(struct root_adaptive *a)
{
    if (!a)
        return;
    while (a->count > 0)
        drop_fleet(a, a->count - 1);
    struct weir_mem mem = a->mem;
    mem.free(mem.context, a->fleets, a->capacity * sizeof(*a->fleets));
    mem.free(mem.context, a->hashes, a->hash_capacity * sizeof(*a->hashes));
    mem.free(mem.context, a, sizeof(*a));
}

void weir_root_adaptive_clear(struct weir_root *root)
{
    struct root_adaptive *a = root->leases.adaptive;
    while (a->count > 0)
        drop_fleet(a, a->count - 1);
}

/* ---- By name ---- */

static struct weir_text fleet_name(const struct fleet *fleet)
{
    return (struct weir_text){ fleet->name, fleet->name_len };
}

static size_t find_fleet(const struct root_adaptive *a, struct weir_text name)
{
    uint64_t hash = weir_hash(name, a->seed);
    for (size_t i = 0; i < a->count; i++)
        if (a->hashes[i] == hash &&
            weir_text_equal(fleet_name(&a->fleets[i]), name))
            return i;
    return NONE;
}

static struct fleet *fleet_of(const struct weir_root *root,
                              struct weir_text name)
{
    struct root_adaptive *a = root->leases.adaptive;
    size_t at = find_fleet(a, name);
    return at == NONE ? NULL : &a->fleets[at];
}

static bool is_of_fleet(const struct weir_quota *quota)
{
    return quota->sharing == WEIR_ADAPTIVE && weir_quota_is_leased(quota);
}

static bool is_of_region(const struct weir_root *root)
{
    return root->leases.lessor.grant != NULL;
}

/* The controller's options, as of one process that is the whole fleet. */
static struct weir_controller_options options_of(const struct weir_root *root,
                                                 const struct weir_quota *quota)
{
    struct weir_concurrency_gate_options gate;
    weir_quota_gate(quota, 1, &gate);
    gate.controller.seed = weir_rng_mix(root->seed + root->leases.term);
    gate.controller.given = is_of_region(root);
    return gate.controller;
}

static int add_fleet(struct weir_root *root, const struct weir_quota *quota,
                     struct weir_text name, weir_instant now)
{
    struct root_adaptive *a = root->leases.adaptive;
    struct weir_controller_options options = options_of(root, quota);
    if (a->count == WEIR_FLEET_LIMITS_MAX)
        return WEIR_EFULL;
    uint64_t *hashes = weir_mem_grow(&a->mem, a->hashes, sizeof(*hashes),
                                     &a->hash_capacity, a->count + 1);
    if (!hashes)
        return WEIR_ENOMEM;
    a->hashes = hashes;
    struct fleet *fleets = weir_mem_grow(&a->mem, a->fleets, sizeof(*fleets),
                                         &a->capacity, a->count + 1);
    if (!fleets)
        return WEIR_ENOMEM;
    a->fleets = fleets;
    struct fleet *fleet = &fleets[a->count];
    *fleet = (struct fleet){ .learning = !is_of_region(root),
                             .name_len = (uint8_t)name.len };
    fleet->limit = weir_fleet_limit_new(&a->mem, &options, now);
    if (!fleet->limit)
        return WEIR_ENOMEM;
    memcpy(fleet->name, name.p, name.len);
    hashes[a->count++] = weir_hash(name, a->seed);
    return WEIR_OK;
}

/* ---- Learning ---- */

/* Whether a client goes by a limit that was found, by it or for it: until it is
 * answered for the first time it has WEIR_GIVEN_FIRST. */
static bool is_found(double has)
{
    return has > 0 && has != WEIR_GIVEN_FIRST;
}

/* The amount that the pool has accounted clients with. */
static double out_of(const struct weir_root *root, struct weir_text name,
                     weir_instant now)
{
    struct weir_leased_stats stats;
    bool is =
        weir_lease_manager_look_of(root->leases.manager, name, &stats, now);
    return is ? stats.pool.out : 0;
}

/* All is learned: the limit is what is out. If nothing was found, what is out
 * is no more than the first client wants. */
static void follow_learning(struct weir_root *root, struct fleet *fleet,
                            weir_instant now)
{
    struct weir_leased_stats stats;
    if (!fleet->learning)
        return;
    bool in_use = weir_lease_manager_look_of(root->leases.manager,
                                             fleet_name(fleet), &stats, now);
    bool waits = now < fleet->learns_until;
    /* A pool that learns knows when it has heard all. If there is no pool any
     * more, nothing is due: the walk drops the limit. */
    if (in_use ? stats.pool.learning : !waits)
        fleet->learns_until = 0;
    if (!in_use || stats.pool.learning || waits)
        return;
    fleet->learning = false;
    if (fleet->found && stats.pool.out > 0)
        weir_fleet_limit_begin(fleet->limit, stats.pool.out, now);
    weir_lease_manager_review_of(root->leases.manager, fleet_name(fleet), now);
}

/* What a client has beyond its account. */
static double news_of(const struct weir_root *root,
                      const struct weir_client *client, struct weir_text name,
                      double has, weir_instant now)
{
    struct weir_lease_holder_stats holder;
    if (!weir_lease_manager_look_client(root->leases.manager, name, client->id,
                                        &holder, now))
        return has;
    return has > holder.out ? has - holder.out : 0;
}

int weir_root_adaptive_asked(struct weir_root *root,
                             const struct weir_client *client,
                             struct weir_text name, double has, bool *out_new,
                             weir_instant now)
{
    struct weir_captures captures;
    struct weir_lease_holder_stats holder;
    *out_new = false;
    const struct weir_quota *quota =
        weir_catalog_find(root->catalog, name, &captures);
    if (!weir_lease_manager_leases(root->leases.manager) || !quota ||
        !is_of_fleet(quota))
        return WEIR_OK;
    if (!(has >= 0 && has <= WEIR_LEASE_UNITS_MAX))
        return WEIR_EINVAL;
    struct fleet *fleet = fleet_of(root, name);
    if (!fleet) {
        int error = add_fleet(root, quota, name, now);
        if (error < 0)
            return error;
        fleet = fleet_of(root, name);
        if (is_found(has))
            fleet->learns_until = now + WEIR_FLEET_LEARNING;
    }
    *out_new = !weir_lease_manager_look_client(root->leases.manager, name,
                                               client->id, &holder, now);
    follow_learning(root, fleet, now);
    if (!fleet->learning)
        return WEIR_OK;
    fleet->found = fleet->found || is_found(has);
    fleet->shown =
        news_of(root, client, name, has, now) + out_of(root, name, now);
    weir_lease_manager_review_of(root->leases.manager, name, now);
    return WEIR_OK;
}

void weir_root_adaptive_joined(struct weir_root *root,
                               const struct weir_client *client,
                               struct weir_text name, weir_instant now)
{
    struct fleet *fleet = fleet_of(root, name);
    struct weir_lease_holder_stats holder;
    if (fleet && weir_lease_manager_look_client(root->leases.manager, name,
                                                client->id, &holder, now))
        weir_fleet_limit_forget(fleet->limit, holder.number);
}

/* ---- Windows ---- */

static void tick_fleet(struct weir_root *root, struct fleet *fleet,
                       weir_instant now)
{
    follow_learning(root, fleet, now);
    if (!fleet->learning && weir_fleet_limit_tick(fleet->limit, now))
        weir_lease_manager_review_of(root->leases.manager, fleet_name(fleet),
                                     now);
}

void weir_root_adaptive_take(struct weir_root *root, struct weir_text name,
                             const struct weir_grant *grant,
                             const struct weir_latency_batch *batch,
                             weir_instant now)
{
    struct fleet *fleet = fleet_of(root, name);
    if (!fleet)
        return;
    follow_learning(root, fleet, now);
    if (fleet->learning)
        return;
    (void)weir_fleet_limit_take(fleet->limit, grant->holder, grant->capacity,
                                batch, now);
    if (!is_of_region(root))
        tick_fleet(root, fleet, now);
}

bool weir_root_adaptive_collect(struct weir_root *root, struct weir_text name,
                                struct weir_latency_count *bins,
                                struct weir_latency_batch *out,
                                weir_instant now)
{
    struct fleet *fleet = fleet_of(root, name);
    if (!fleet)
        return false;
    weir_assert(is_of_region(root));
    weir_fleet_limit_collect(fleet->limit, bins, out, now);
    return true;
}

/* ---- The limit ---- */

/* The units that the root leases out: a region's root the whole maximum, since
 * its own lease is less. */
static double capacity_of(const struct weir_root *root,
                          const struct weir_quota *quota,
                          const struct fleet *fleet)
{
    struct weir_controller_options options = options_of(root, quota);
    if (is_of_region(root))
        return options.max;
    if (!fleet)
        return options.initial;
    double limit = weir_fleet_limit_limit(fleet->limit);
    return fleet->learning ? weir_larger(limit, fleet->shown) : limit;
}

/* The classes that are guaranteed a share, as bands of wants. */
static size_t parts_of(const struct weir_quota *quota,
                       struct weir_band_part out[WEIR_BAND_PARTS_MAX])
{
    struct weir_concurrency_gate_options gate;
    size_t count = 0;
    weir_quota_gate(quota, 1, &gate);
    for (uint32_t i = 0; i < gate.classes; i++) {
        const struct weir_concurrency_gate_class *klass = &gate.class_of[i];
        if (klass->share_percent > 0)
            out[count++] = (struct weir_band_part){
                weir_class_number(weir_text_of(klass->name)),
                klass->share_percent / 100
            };
    }
    return count;
}

/* The guaranteed classes of the quota, if it is a fleet's. */
static size_t parts_by_name(const struct weir_root *root, struct weir_text name,
                            struct weir_band_part out[WEIR_BAND_PARTS_MAX])
{
    struct weir_captures captures;
    const struct weir_quota *quota =
        weir_catalog_find(root->catalog, name, &captures);
    return quota && is_of_fleet(quota) ? parts_of(quota, out) : 0;
}

static bool is_part(const struct weir_band_part *parts, size_t count,
                    int64_t band)
{
    for (size_t i = 0; i < count; i++)
        if (parts[i].band == band)
            return true;
    return false;
}

size_t weir_root_adaptive_bands(const struct weir_root *root,
                                const struct weir_want *want,
                                struct weir_band *out)
{
    struct weir_band_part parts[WEIR_BAND_PARTS_MAX];
    size_t part_count = parts_by_name(root, want->name, parts);
    size_t count = 0, others = SIZE_MAX;
    weir_assert(want->band_count > 0);
    for (size_t i = 0; i < want->band_count; i++) {
        const struct weir_band *band = &want->bands[i];
        bool other = !is_part(parts, part_count, band->priority);
        if (other && others < count) {
            out[others].wants = weir_smaller(out[others].wants + band->wants,
                                             WEIR_LEASE_UNITS_MAX);
            continue;
        }
        others = other ? count : others;
        out[count++] = *band;
    }
    weir_assert(count > 0 && count <= part_count + 1);
    return count;
}

/* Nothing is promised for the time after a lease, and a permit that outlasts
 * one isn't waited for: the latencies show what is in flight. */
void weir_root_adaptive_rule(const struct weir_root *root,
                             const struct weir_quota *quota,
                             struct weir_text name, struct weir_leased *out)
{
    weir_assert(is_of_fleet(quota));
    const struct fleet *fleet = fleet_of(root, name);
    *out = (struct weir_leased){
        .rule = { .share = WEIR_SHARE_FAIR,
                  .capacity = capacity_of(root, quota, fleet),
                  .lease = WEIR_FLEET_LEASE,
                  .refresh = WEIR_FLEET_REFRESH },
        .learning = WEIR_FLEET_LEASE,
        .expiry = WEIR_NEVER,
    };
    out->rule.part_count = parts_of(quota, out->rule.parts);
    if (!fleet || is_of_region(root))
        return;
    out->rule.cut = weir_fleet_limit_cut(fleet->limit);
    if (weir_fleet_limit_is_stalled(fleet->limit))
        out->rule.refresh = WEIR_FLEET_REFRESH_STALLED;
}

void weir_root_adaptive_granted(struct weir_root *root, struct weir_text name,
                                double capacity, uint64_t cut, weir_instant now)
{
    struct fleet *fleet = fleet_of(root, name);
    if (fleet)
        weir_fleet_limit_give(fleet->limit, capacity, cut, now);
}

static void review_fleet(struct weir_root *root, struct fleet *fleet,
                         weir_instant now)
{
    struct weir_captures captures;
    const struct weir_quota *quota =
        weir_catalog_find(root->catalog, fleet_name(fleet), &captures);
    if (!quota || !is_of_fleet(quota))
        return; /* its pool ends, and then it does */
    struct weir_controller_options options = options_of(root, quota);
    weir_fleet_limit_edit(fleet->limit, &options, now);
}

void weir_root_adaptive_review(struct weir_root *root, weir_instant now)
{
    struct root_adaptive *a = root->leases.adaptive;
    for (size_t i = 0; i < a->count; i++)
        review_fleet(root, &a->fleets[i], now);
}

/* ---- Time ---- */

/* The lease pool gives the numbers of holders that have gone to others. */
static void forget_gone(struct weir_root *root, struct fleet *fleet,
                        weir_instant now)
{
    struct weir_lease_holder_stats holder;
    struct weir_text client;
    uint32_t known = 0, next = 0;
    while (weir_lease_manager_look_holder(root->leases.manager,
                                          fleet_name(fleet), &next, &client,
                                          &holder, now)) {
        for (; known + 1 < next; known++)
            weir_fleet_limit_forget(fleet->limit, known);
        known = next;
    }
    for (; known < weir_fleet_limit_numbers(fleet->limit); known++)
        weir_fleet_limit_forget(fleet->limit, known);
}

static void drop_unused(struct weir_root *root, weir_instant now)
{
    struct root_adaptive *a = root->leases.adaptive;
    struct weir_leased_stats stats;
    for (size_t i = a->count; i > 0; i--) {
        if (weir_lease_manager_look_of(root->leases.manager,
                                       fleet_name(&a->fleets[i - 1]), &stats,
                                       now))
            forget_gone(root, &a->fleets[i - 1], now);
        else
            drop_fleet(a, i - 1);
    }
}

void weir_root_adaptive_tick(struct weir_root *root, weir_instant now)
{
    struct root_adaptive *a = root->leases.adaptive;
    if (!is_of_region(root))
        for (size_t i = 0; i < a->count; i++)
            tick_fleet(root, &a->fleets[i], now);
    if (now >= a->walk_at) {
        a->walk_at = now + WALK_EVERY;
        drop_unused(root, now);
    }
}

weir_instant weir_root_adaptive_deadline(const struct weir_root *root)
{
    const struct root_adaptive *a = root->leases.adaptive;
    weir_instant due = a->count > 0 ? a->walk_at : WEIR_NEVER;
    for (size_t i = 0; i < a->count && !is_of_region(root); i++) {
        const struct fleet *fleet = &a->fleets[i];
        if (!fleet->learning)
            due = weir_earlier(due, weir_fleet_limit_deadline(fleet->limit));
        else if (fleet->learns_until > 0)
            due = weir_earlier(due, fleet->learns_until);
    }
    return due;
}

/* ---- Views ---- */

bool weir_root_adaptive_view(const struct weir_root *root,
                             struct weir_text name,
                             struct weir_fleet_limit_view *out,
                             weir_instant now)
{
    const struct fleet *fleet = fleet_of(root, name);
    if (!fleet)
        return false;
    weir_fleet_limit_view(fleet->limit, out, now);
    out->learning = fleet->learning;
    return true;
}

bool weir_root_adaptive_next(const struct weir_root *root, size_t *cursor,
                             struct weir_text *out_name)
{
    const struct root_adaptive *a = root->leases.adaptive;
    if (*cursor >= a->count)
        return false;
    *out_name = fleet_name(&a->fleets[(*cursor)++]);
    return true;
}

/* The lease pool's next holder, from that number on; its own is '*number' - 1
 * then. */
static bool next_member(const struct weir_root *root, const struct fleet *fleet,
                        uint32_t *number, struct weir_fleet_member *out,
                        weir_instant now)
{
    struct weir_lease_holder_stats holder;
    struct weir_text client;
    if (!weir_lease_manager_look_holder(root->leases.manager, fleet_name(fleet),
                                        number, &client, &holder, now))
        return false;
    weir_assert(*number > 0);
    *out = (struct weir_fleet_member){
        .name = weir_root_lease_client_name(root, client),
        .incarnation = weir_root_lease_client_incarnation(client),
        .granted = holder.granted,
        .wants = holder.wants,
        .has = weir_larger(holder.out, holder.granted),
        .clients = holder.clients,
        .out = weir_fleet_limit_is_out(fleet->limit, *number - 1),
    };
    return true;
}

bool weir_root_adaptive_member(const struct weir_root *root,
                               struct weir_text name, uint32_t *cursor,
                               struct weir_fleet_member *out, weir_instant now)
{
    const struct fleet *fleet = fleet_of(root, name);
    return fleet && next_member(root, fleet, cursor, out, now);
}

bool weir_root_adaptive_news(struct weir_root *root,
                             struct weir_fleet_news *out, weir_instant now)
{
    struct root_adaptive *a = root->leases.adaptive;
    for (size_t i = 0; i < a->count; i++) {
        const struct fleet *fleet = &a->fleets[i];
        struct weir_fleet_member member;
        uint32_t number;
        bool is_out;
        while (weir_fleet_limit_news(fleet->limit, &number, &is_out)) {
            uint32_t next = number;
            /* A holder that has gone is no news. */
            if (!next_member(root, fleet, &next, &member, now) ||
                next != number + 1)
                continue;
            *out = (struct weir_fleet_news){ .quota = fleet_name(fleet),
                                             .member = member.name,
                                             .out = is_out };
            return true;
        }
    }
    return false;
}
