/* SPDX-License-Identifier: MIT
 * test/core/node/lease_world.c - a fleet to which a test grants leases. */

#include "lease_world.h"
#include "seed.h"

uint64_t world_seed(void)
{
    return from_environment("WEIR_SEED", 1);
}

/* ---- The master ---- */

static bool rule_of(void *context, struct weir_text quota,
                    struct weir_leased *out, weir_instant now)
{
    const struct world *world = context;
    (void)now;
    if (!weir_text_equal(quota, WEIR_TEXT("q")) ||
        world->sharing != WEIR_LEASED)
        return false;
    *out = (struct weir_leased){
        .rule = { .share = WEIR_SHARE_FAIR,
                  .capacity = world->capacity,
                  .safe = 0,
                  .lease = world->lease,
                  .refresh = world->lease / 4,
                  .linger = world->kind == WEIR_CONCURRENCY ? TIMEOUT : 0,
                  .whole = world->kind == WEIR_CONCURRENCY },
        .expiry = WEIR_NEVER,
    };
    return true;
}

static void say(struct world *world, uint32_t limiter, uint64_t answer,
                struct weir_text name, int error,
                const struct weir_grant *grant)
{
    if (world->mute)
        return;
    assert_compare(world->count, <, QUEUE);
    assert_compare(name.len, <, 32);
    struct said *said = &world->queue[(world->first + world->count++) % QUEUE];
    *said = (struct said){
        .at = weir_fleet_now(world->fleet) + world->way,
        .limiter = limiter,
        .answer = answer,
    };
    memcpy(said->name, name.p, name.len);
    if (error == 0)
        said->grant.grant = *grant;
    else
        said->grant.error =
            error == WEIR_ENOENT ? WEIR_LEASE_NOT_LEASED : WEIR_LEASE_NO_ROOM;
}

static struct weir_client client_of(const uint32_t *limiter)
{
    return (struct weir_client){
        .id = { (const char *)limiter, sizeof(*limiter) },
        .way = *limiter,
    };
}

static void hear(struct world *world, uint32_t limiter, uint64_t number,
                 const struct weir_want *want)
{
    struct weir_client client = client_of(&limiter);
    weir_instant now = weir_fleet_now(world->fleet);
    if (want->release) {
        world->releases++;
        weir_lease_manager_release(world->manager, &client, want->name,
                                   want->taken, now);
        return;
    }
    struct weir_lease_pool_ask ask = {
        .bands = want->bands,
        .band_count = want->band_count,
        .has = want->has,
        .safe = want->safe,
        .taken = want->taken,
        .streams = true,
    };
    struct weir_grant grant;
    world->priority = want->bands[0].priority;
    world->wanted[limiter] = want->bands[0].wants;
    int error = weir_lease_manager_ask(world->manager, &client, want->name,
                                       &ask, &grant, now);
    say(world, limiter, number, want->name, error, &grant);
}

static void received(void *context, struct weir_node_place to, uint32_t from,
                     const struct weir_message *message)
{
    struct world *world = context;
    if (!to.root)
        return;
    world->session[from] = message->session;
    if (message->type != WEIR_MESSAGE_WANTS || world->mute ||
        from < world->deaf)
        return;
    world->wants++;
    for (size_t i = 0; i < message->wants.count; i++)
        hear(world, from, message->wants.number, &message->wants.wants[i]);
}

static void deliver(struct world *world, struct said *said)
{
    struct weir_node *node = &world->fleet->limiters[said->limiter];
    if (!node->limiter || said->limiter < world->deaf)
        return;
    said->grant.name = weir_text_of(said->name);
    struct weir_message message = {
        .type = WEIR_MESSAGE_GRANTS,
        .session = world->session[said->limiter],
        .grants = { .answer = said->answer,
                    .term = 1,
                    .count = 1,
                    .grants = &said->grant },
    };
    assert_int_equal(
        weir_limiter_receive(node->limiter, 0, &message, weir_node_now(node)),
        0);
    weir_node_rest(node);
}

static void master_turn(struct world *world)
{
    weir_instant now = weir_fleet_now(world->fleet);
    struct weir_lease_manager_push push;
    weir_lease_manager_tick(world->manager, now);
    while (weir_lease_manager_next(world->manager, &push, now))
        say(world, push.way, 0, push.quota, 0, &push.grant);
    while (world->count > 0 && world->queue[world->first].at <= now) {
        struct said *said = &world->queue[world->first];
        world->first = (world->first + 1) % QUEUE;
        world->count--;
        deliver(world, said);
    }
}

/* ---- The world ---- */

void world_put(struct world *world, enum weir_sharing sharing, uint64_t limit,
               enum weir_on_stale on_stale)
{
    struct weir_quota quota;
    struct weir_diag diag = { .text = "" };
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT("q");
    quota.kind = world->kind;
    quota.limit = (struct weir_limit){ limit, WEIR_SECOND, false };
    if (world->kind == WEIR_CONCURRENCY)
        quota.limit.per = 0;
    quota.sharing = sharing;
    quota.on_stale = on_stale;
    quota.priority = world->quota_priority;
    world->sharing = sharing;
    world->capacity = (double)limit;
    weir_lease_manager_review(world->manager);
    if (weir_fleet_put(world->fleet, &quota, &diag) < 0)
        fail_msg("%s", diag.text);
}

struct world *world_begin_kind(enum weir_kind kind, uint64_t limit,
                               enum weir_sharing sharing,
                               enum weir_on_stale on_stale)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world->kind = kind;
    world->ceiling = (double)limit;
    struct weir_fleet_options options = {
        .seed = world_seed(),
        .limiters = LIMITERS,
        .limiters_started = LIMITERS,
        .roots = 1,
        .slots = 32,
        .leases = 8,
        .net = { .shape = WEIR_DELAY_FIXED, .delay = WAY },
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
    };
    struct weir_lease_manager_options manager = {
        .mem = weir_mem_system,
        .seed = world_seed(),
        .owner = { .context = world, .rule = rule_of },
    };
    struct weir_fleet_watch watch = { .context = world, .received = received };
    world->fleet = weir_fleet_new(&options);
    weir_fleet_watch(world->fleet, &watch);
    world->manager = weir_lease_manager_new(&manager);
    assert_non_null(world->manager);
    world->lease = 20 * WEIR_SECOND;
    world->way = WAY;
    /* Long ago: no limiter has a lease of another master. */
    weir_lease_manager_begin(world->manager, WEIR_NEVER,
                             weir_fleet_now(world->fleet));
    world_put(world, sharing, limit, on_stale);
    weir_fleet_run(world->fleet,
                   weir_fleet_now(world->fleet) + 3 * WEIR_SECOND);
    world->began = weir_fleet_now(world->fleet);
    return world;
}

struct world *world_begin(enum weir_sharing sharing,
                          enum weir_on_stale on_stale)
{
    return world_begin_kind(WEIR_RATE, LIMIT, sharing, on_stale);
}

void world_end(struct world *world)
{
    assert_int_equal(weir_fleet_error(world->fleet), 0);
    weir_lease_manager_free(world->manager);
    weir_fleet_free(world->fleet);
    free(world);
}

void world_offer(struct world *world, double a, double b, double c, double d)
{
    double offered[LIMITERS] = { a, b, c, d };
    memcpy(world->offered, offered, sizeof(offered));
}

uint64_t world_passed(const struct world *world)
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < LIMITERS; l++)
        sum += world->passed[l];
    return sum;
}

void world_forget(struct world *world)
{
    memset(world->passed, 0, sizeof(world->passed));
    memset(world->refused, 0, sizeof(world->refused));
}

struct weir_lease_view world_lease(struct world *world, uint32_t limiter)
{
    struct weir_lease_view view = { .leasing = WEIR_LEASING_NONE };
    struct weir_ref ref;
    struct weir_table *table = weir_fleet_table(world->fleet, limiter);
    if (weir_table_find(table, WEIR_TEXT("q"), &ref))
        weir_table_lease_view(table, ref.slot, &view);
    return view;
}

/* ---- Load ---- */

uint32_t world_out(const struct world *world)
{
    uint32_t sum = 0;
    for (uint32_t l = 0; l < LIMITERS; l++)
        sum += world->out[l];
    return sum;
}

void world_enter(struct world *world, uint32_t limiter)
{
    struct flying *flying = world->flying;
    while (flying < world->flying + FLYING && flying->record.links > 0)
        flying++;
    assert_true(flying < world->flying + FLYING);
    unsigned outcome = weir_fleet_enter(world->fleet, limiter, WEIR_TEXT("q"),
                                        1, &flying->record);
    bool passed = !(outcome & WEIR_OUTCOME_LIMITED);
    world->passed[limiter] += passed;
    world->refused[limiter] += !passed;
    if (!passed)
        return;
    assert_int_equal(flying->record.links, 1);
    flying->limiter = limiter;
    flying->until = weir_fleet_now(world->fleet) + world->stay;
    world->out[limiter]++;
    assert_compare(world_out(world), <=, world->ceiling);
}

static void leave_those_done(struct world *world)
{
    if (world_out(world) == 0)
        return;
    for (struct flying *f = world->flying; f < world->flying + FLYING; f++) {
        if (f->record.links == 0 || f->until > weir_fleet_now(world->fleet))
            continue;
        weir_fleet_leave(world->fleet, f->limiter, &f->record);
        world->out[f->limiter]--;
    }
}

static void take(struct world *world, uint32_t limiter)
{
    weir_instant now = weir_fleet_now(world->fleet);
    size_t bin = (now - world->began) / (100 * WEIR_MILLISECOND);
    bool passed =
        !(weir_fleet_take(world->fleet, limiter, WEIR_TEXT("q"), 1, NULL) &
          WEIR_OUTCOME_LIMITED);
    world->passed[limiter] += passed;
    world->refused[limiter] += !passed;
    world->level += passed;
    if (bin < BINS)
        world->bin[bin] += passed;
}

static void ask(struct world *world, uint32_t limiter)
{
    double *owed = &world->owed[limiter];
    *owed += world->offered[limiter] * (double)STEP / (double)WEIR_SECOND;
    for (; *owed >= 1; *owed -= 1) {
        if (world->kind == WEIR_CONCURRENCY)
            world_enter(world, limiter);
        else
            take(world, limiter);
    }
}

void world_run(struct world *world, weir_duration span)
{
    double leaks = world->capacity * (double)STEP / (double)WEIR_SECOND;
    weir_instant until = weir_fleet_now(world->fleet) + span;
    while (weir_fleet_now(world->fleet) < until) {
        weir_fleet_run(world->fleet, weir_fleet_now(world->fleet) + STEP);
        master_turn(world);
        leave_those_done(world);
        world->level = world->level > leaks ? world->level - leaks : 0;
        for (uint32_t l = 0; l < LIMITERS; l++)
            ask(world, l);
        if (world->level > world->level_most)
            world->level_most = world->level;
    }
}

struct world *world_begin_flight(uint64_t limit, weir_duration stay)
{
    struct world *world = world_begin_kind(WEIR_CONCURRENCY, limit, WEIR_LEASED,
                                           WEIR_STALE_LIMIT);
    world->stay = stay;
    return world;
}
