/* SPDX-License-Identifier: MIT
 * test/lease_world.h - leased quotas in limiters, over the lab's fleet. The
 * master of the leases is played here, by the product's own brokers: it hears
 * the wants that reach a root, and answers and pushes after a way's delay.
 *
 * An oracle watches: one bucket, which leaks at the whole limit and takes all
 * that passes anywhere. What passed in any span is the limit times the span
 * and a bound at most, exactly if its level is never above that bound. */

#ifndef WEIR_LEASE_WORLD_H
#define WEIR_LEASE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lab/fleet_parts.h"
#include "lease/brokers.h"
#include "node/root_lease.h"
#include "os/clock.h"
#include "compare.h"

#define LIMITERS 4
#define LIMIT 1000
#define LOW 1000.0 /* bursts: 1 s and 1.5 s of it */
#define HIGH 1500.0
#define STEP WEIR_MILLISECOND
#define WAY WEIR_MILLISECOND
#define QUEUE 4096
#define TIMEOUT (30 * WEIR_SECOND) /* of permits */
#define FLYING 512
#define BINS 4096 /* of 100 ms */

struct said {
    weir_instant at;
    uint32_t limiter;
    uint64_t answer;
    struct weir_lease_grant grant;
    char name[32];
};

/* A permit that is out. */
struct flying {
    uint32_t limiter;
    weir_instant until; /* then it leaves */
    struct weir_hold hold;
};

struct world {
    struct weir_fleet *fleet;
    struct weir_brokers *brokers;
    enum weir_kind kind;       /* of "q" */
    enum weir_sharing sharing; /* likewise */
    double capacity;
    weir_duration lease;
    bool mute;                 /* the master */
    weir_duration way; /* of what it says */
    uint32_t deaf; /* limiters from 0 on that neither ask nor hear */
    uint64_t session[LIMITERS];
    struct said queue[QUEUE];
    size_t first, count;
    uint32_t wants, releases; /* heard */
    int64_t priority;         /* … last */
    double wanted[LIMITERS];  /* … last */
    int64_t quota_priority;

    double offered[LIMITERS]; /* a second */
    double owed[LIMITERS];
    double level, level_most;
    uint64_t passed[LIMITERS], refused[LIMITERS];
    uint32_t bin[BINS]; /* passed */
    weir_instant began;

    struct flying flying[FLYING];
    uint32_t out[LIMITERS]; /* permits */
    double ceiling;         /* never so many in all as are above it */
    weir_duration stay;
};

static inline uint64_t seed(void)
{
    const char *text = getenv("WEIR_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}

/* ---- The master ---- */

static inline bool rule_of(void *context, struct weir_text quota,
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

static inline void say(struct world *world, uint32_t limiter, uint64_t answer,
                       struct weir_text name, int error,
                       const struct weir_grant *grant)
{
    if (world->mute)
        return;
    assert_compare(world->count, <, QUEUE);
    assert_compare(name.len, <, 32);
    struct said *said =
        &world->queue[(world->first + world->count++) % QUEUE];
    *said = (struct said){
        .at = weir_fleet_now(world->fleet) + world->way,
        .limiter = limiter,
        .answer = answer,
    };
    memcpy(said->name, name.p, name.len);
    if (error == 0)
        said->grant.grant = *grant;
    else
        said->grant.error = error == WEIR_ENOENT ? WEIR_LEASE_NOT_LEASED
                                                 : WEIR_LEASE_NO_ROOM;
}

static inline struct weir_client client_of(const uint32_t *limiter)
{
    return (struct weir_client){
        .id = { (const char *)limiter, sizeof(*limiter) },
        .way = *limiter,
    };
}

static inline void hear(struct world *world, uint32_t limiter, uint64_t number,
                        const struct weir_want *want)
{
    struct weir_client client = client_of(&limiter);
    weir_instant now = weir_fleet_now(world->fleet);
    if (want->release) {
        world->releases++;
        weir_brokers_release(world->brokers, &client, want->name, want->taken,
                             now);
        return;
    }
    struct weir_broker_ask ask = {
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
    int error = weir_brokers_ask(world->brokers, &client, want->name, &ask,
                                 &grant, now);
    say(world, limiter, number, want->name, error, &grant);
}

static inline void received(void *context, struct weir_place to, uint32_t from,
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

static inline void deliver(struct world *world, struct said *said)
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
    assert_int_equal(weir_limiter_receive(node->limiter, 0, &message,
                                          weir_node_now(node)),
                     0);
    weir_node_rest(node);
}

static inline void master_turn(struct world *world)
{
    weir_instant now = weir_fleet_now(world->fleet);
    struct weir_brokers_push push;
    weir_brokers_tick(world->brokers, now);
    while (weir_brokers_next(world->brokers, &push, now))
        say(world, push.way, 0, push.quota, 0, &push.grant);
    while (world->count > 0 && world->queue[world->first].at <= now) {
        struct said *said = &world->queue[world->first];
        world->first = (world->first + 1) % QUEUE;
        world->count--;
        deliver(world, said);
    }
}

/* ---- The world ---- */

static inline void put(struct world *world, enum weir_sharing sharing,
                       uint64_t limit, enum weir_on_stale on_stale)
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
    weir_brokers_review(world->brokers);
    if (weir_fleet_put(world->fleet, &quota, &diag) < 0)
        fail_msg("%s", diag.text);
}

static inline struct world *begin_kind(enum weir_kind kind, uint64_t limit,
                                       enum weir_sharing sharing,
                                       enum weir_on_stale on_stale)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world->kind = kind;
    world->ceiling = (double)limit;
    struct weir_fleet_options options = {
        .seed = seed(),
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
    struct weir_brokers_options brokers = {
        .mem = weir_mem_system,
        .seed = seed(),
        .owner = { .context = world, .rule = rule_of },
    };
    struct weir_fleet_watch watch = { .context = world,
                                      .received = received };
    world->fleet = weir_fleet_new(&options);
    weir_fleet_watch(world->fleet, &watch);
    world->brokers = weir_brokers_new(&brokers);
    assert_non_null(world->brokers);
    world->lease = 20 * WEIR_SECOND;
    world->way = WAY;
    /* Long ago: nobody has leases of another. */
    weir_brokers_begin(world->brokers, WEIR_NEVER,
                       weir_fleet_now(world->fleet));
    put(world, sharing, limit, on_stale);
    weir_fleet_run(world->fleet,
                   weir_fleet_now(world->fleet) + 3 * WEIR_SECOND);
    world->began = weir_fleet_now(world->fleet);
    return world;
}

static inline struct world *begin(enum weir_sharing sharing,
                                  enum weir_on_stale on_stale)
{
    return begin_kind(WEIR_RATE, LIMIT, sharing, on_stale);
}

static inline void end(struct world *world)
{
    assert_int_equal(weir_fleet_error(world->fleet), 0);
    weir_brokers_free(world->brokers);
    weir_fleet_free(world->fleet);
    free(world);
}

static inline void offer(struct world *world, uint32_t limiter)
{
    double *owed = &world->owed[limiter];
    *owed += world->offered[limiter] * (double)STEP / (double)WEIR_SECOND;
    weir_instant now = weir_fleet_now(world->fleet);
    size_t bin = (now - world->began) / (100 * WEIR_MILLISECOND);
    for (; *owed >= 1; *owed -= 1) {
        bool passed = !(weir_fleet_take(world->fleet, limiter, WEIR_TEXT("q"),
                                        1, NULL) &
                        WEIR_OUTCOME_LIMITED);
        world->passed[limiter] += passed;
        world->refused[limiter] += !passed;
        world->level += passed;
        if (bin < BINS)
            world->bin[bin] += passed;
    }
}

static inline void run(struct world *world, weir_duration span)
{
    weir_instant until = weir_fleet_now(world->fleet) + span;
    while (weir_fleet_now(world->fleet) < until) {
        weir_fleet_run(world->fleet, weir_fleet_now(world->fleet) + STEP);
        master_turn(world);
        double leaks =
            world->capacity * (double)STEP / (double)WEIR_SECOND;
        world->level = world->level > leaks ? world->level - leaks : 0;
        for (uint32_t l = 0; l < LIMITERS; l++)
            offer(world, l);
        if (world->level > world->level_most)
            world->level_most = world->level;
    }
}

static inline void offer_each(struct world *world, double a, double b, double c,
                              double d)
{
    double offered[LIMITERS] = { a, b, c, d };
    memcpy(world->offered, offered, sizeof(offered));
}

static inline uint64_t passed_of_all(const struct world *world)
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < LIMITERS; l++)
        sum += world->passed[l];
    return sum;
}

static inline void forget(struct world *world)
{
    memset(world->passed, 0, sizeof(world->passed));
    memset(world->refused, 0, sizeof(world->refused));
}

/* How a limiter stands to "q". */
static inline struct weir_lease_view lease_of(struct world *world,
                                              uint32_t limiter)
{
    struct weir_lease_view view = { .leasing = WEIR_LEASING_NONE };
    struct weir_ref ref;
    struct weir_table *table = weir_fleet_table(world->fleet, limiter);
    if (weir_table_find(table, WEIR_TEXT("q"), &ref))
        weir_table_lease_view(table, ref.slot, &view);
    return view;
}

/* ---- What is in flight ---- */

static inline uint32_t out_of_all(const struct world *world)
{
    uint32_t sum = 0;
    for (uint32_t l = 0; l < LIMITERS; l++)
        sum += world->out[l];
    return sum;
}

static inline void enter(struct world *world, uint32_t limiter)
{
    struct flying *flying = world->flying;
    while (flying < world->flying + FLYING && flying->hold.links > 0)
        flying++;
    assert_true(flying < world->flying + FLYING);
    unsigned outcome = weir_fleet_enter(world->fleet, limiter, WEIR_TEXT("q"),
                                        1, &flying->hold);
    bool passed = !(outcome & WEIR_OUTCOME_LIMITED);
    world->passed[limiter] += passed;
    world->refused[limiter] += !passed;
    if (!passed)
        return;
    assert_int_equal(flying->hold.links, 1);
    flying->limiter = limiter;
    flying->until = weir_fleet_now(world->fleet) + world->stay;
    world->out[limiter]++;
    assert_compare(out_of_all(world), <=, world->ceiling);
}

static inline void leave_those_done(struct world *world)
{
    for (struct flying *f = world->flying; f < world->flying + FLYING; f++) {
        if (f->hold.links == 0 || f->until > weir_fleet_now(world->fleet))
            continue;
        weir_fleet_leave(world->fleet, f->limiter, &f->hold);
        world->out[f->limiter]--;
    }
}

/* As run(), of enters. What all have out is judged after each. */
static inline void fly(struct world *world, weir_duration span)
{
    weir_instant until = weir_fleet_now(world->fleet) + span;
    while (weir_fleet_now(world->fleet) < until) {
        weir_fleet_run(world->fleet, weir_fleet_now(world->fleet) + STEP);
        master_turn(world);
        leave_those_done(world);
        for (uint32_t l = 0; l < LIMITERS; l++) {
            double *owed = &world->owed[l];
            *owed += world->offered[l] * (double)STEP / (double)WEIR_SECOND;
            for (; *owed >= 1; *owed -= 1)
                enter(world, l);
        }
    }
}

static inline struct world *begin_flight(uint64_t limit, weir_duration stay)
{
    struct world *world =
        begin_kind(WEIR_CONCURRENCY, limit, WEIR_LEASED, WEIR_STALE_CLOSED);
    world->stay = stay;
    return world;
}

#endif /* WEIR_LEASE_WORLD_H */
