/* SPDX-License-Identifier: MIT
 * lab/model_swarm_trouble.c - the faults of the model "swarm", their end, and
 * its mastership.
 *
 * A fault is drawn from those that the setting allows, and comes at a random
 * instant; several come at once now and then. At the end of the trouble all is
 * mended in a random order within a second.
 *
 * The part "keeper" stands for an election and for those who start processes
 * anew. A master that died or stands still is followed by another root after
 * WEIR_FLEET_LEASE at most, or, one time in three, later: then the processes go
 * on alone. A root that was master and comes back isn't. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/node/root_adaptive.h"
#include "core/node/root_lease.h"
#include "io/clock.h"
#include "lab/memory.h"
#include "lab/model_swarm_internal.h"
#include "lab/run.h"

#define KEEP_EVERY (50 * WEIR_MILLISECOND)
#define MENDING WEIR_SECOND
#define FAULTS_MAX 12
#define CPU_LIMITER (2 * WEIR_MILLISECOND) /* a message, at most */
#define CPU_ROOT (20 * WEIR_MILLISECOND)
#define DRIFT_PPM 500
#define STEP_MS 2000

/* One draw a call or expression, as in swarm.c. */
static uint64_t draw_below(struct swarm_stage *s, uint64_t bound)
{
    return weir_rng_below(&s->chance, bound);
}

static bool draw_one_in(struct swarm_stage *s, uint64_t count)
{
    return draw_below(s, count) == 0;
}

static weir_instant fleet_now(const struct swarm_stage *s)
{
    return weir_fleet_now(s->fleet);
}

static void trace_fault(const struct swarm_stage *s, const char *what, ...)
    __attribute__((format(printf, 2, 3)));

static void trace_fault(const struct swarm_stage *s, const char *what, ...)
{
    if (!s->run->options->trace)
        return;
    va_list arguments;
    va_start(arguments, what);
    fprintf(stderr, "    ");
    vfprintf(stderr, what, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

/* ---- Nodes ---- */

static struct swarm_node *swarm_node_at(struct swarm_stage *s,
                                        struct weir_node_place place)
{
    return &s->node[place.root][place.index];
}

static const char *node_kind(struct weir_node_place place)
{
    return place.root ? "root" : "limiter";
}

static void start_swarm_node(struct swarm_stage *s,
                             struct weir_node_place place)
{
    trace_fault(s, "start %s%u", node_kind(place), place.index + 1);
    swarm_node_at(s, place)->start_at = WEIR_NEVER;
    weir_fleet_start(s->fleet, place);
}

static void pause_swarm_node(struct swarm_stage *s,
                             struct weir_node_place place, bool paused)
{
    trace_fault(s, "%s %s%u", paused ? "pause" : "resume", node_kind(place),
                place.index + 1);
    if (!weir_fleet_alive(s->fleet, place))
        return;
    swarm_node_at(s, place)->paused = paused;
    weir_fleet_pause(s->fleet, place, paused);
}

static void kill_swarm_node(struct swarm_stage *s, struct weir_node_place place)
{
    struct swarm_node *node = swarm_node_at(s, place);
    trace_fault(s, "kill %s%u", node_kind(place), place.index + 1);
    weir_fleet_kill(s->fleet, place);
    node->paused = false;
    node->life++;
    /* Half of them come back. */
    if (draw_one_in(s, 2))
        node->start_at = fleet_now(s) + draw_below(s, 8 * WEIR_SECOND);
}

static struct weir_node_place any_limiter(struct swarm_stage *s)
{
    return weir_limiter_place((uint32_t)draw_below(s, s->limiters));
}

static struct weir_node_place any_root(struct swarm_stage *s)
{
    return weir_root_place((uint32_t)draw_below(s, s->roots));
}

static struct weir_node_place any_node(struct swarm_stage *s)
{
    return draw_one_in(s, 3) ? any_root(s) : any_limiter(s);
}

/* ---- Mastership ---- */

static bool may_lead(const struct swarm_stage *s, uint32_t root)
{
    return weir_fleet_alive(s->fleet, weir_root_place(root)) &&
           !s->node[1][root].paused;
}

static void lead(struct swarm_stage *s, uint32_t root)
{
    trace_fault(s, "root%u leads", root + 1);
    weir_fleet_lead(s->fleet, root, s->master == SWARM_NONE);
    s->master = root;
    s->leads_at = 0;
}

/* Another root leads, by chance; the same one if there is no other. */
static void lead_another(struct swarm_stage *s)
{
    uint32_t ready[SWARM_ROOTS_MAX], count = 0;
    for (uint32_t i = 0; i < s->roots; i++)
        if (may_lead(s, i))
            ready[count++] = i;
    if (count > 0)
        lead(s, ready[draw_below(s, count)]);
}

static bool has_master(const struct swarm_stage *s)
{
    return s->master != SWARM_NONE && may_lead(s, s->master) &&
           weir_root_leases(weir_fleet_root(s->fleet, s->master));
}

static weir_duration draw_takeover(struct swarm_stage *s)
{
    weir_duration soon = draw_below(s, WEIR_FLEET_LEASE);
    return draw_one_in(s, 3) ? WEIR_FLEET_LEASE + soon : soon;
}

static void keep_master(struct swarm_stage *s, weir_instant now)
{
    if (has_master(s)) {
        s->leads_at = 0;
        return;
    }
    if (s->leads_at == 0)
        s->leads_at = now + draw_takeover(s);
    if (now >= s->leads_at)
        lead_another(s);
}

static void run_keeper(struct weir_part *part, weir_instant now)
{
    struct swarm_stage *s =
        (void *)((char *)part - offsetof(struct swarm_stage, keeper));
    for (uint32_t i = 0; i < s->roots; i++)
        if (s->node[1][i].start_at <= now)
            start_swarm_node(s, weir_root_place(i));
    for (uint32_t i = 0; i < s->limiters; i++)
        if (s->node[0][i].start_at <= now)
            start_swarm_node(s, weir_limiter_place(i));
    keep_master(s, now);
    weir_world_wake(weir_fleet_world(s->fleet), part, now + KEEP_EVERY);
}

/* ---- Faults ---- */

static void cut_any_link(struct swarm_stage *s)
{
    uint32_t limiter = any_limiter(s).index, root = any_root(s).index;
    enum weir_way way = (enum weir_way)(1 + draw_below(s, 3));
    weir_duration noticed = draw_below(s, 2 * WEIR_SECOND);
    trace_fault(s, "cut limiter%u from root%u, ways %u", limiter + 1, root + 1,
                way);
    weir_fleet_cut(s->fleet, limiter, root, way, noticed);
}

/* All processes lose a root, and notice it late. */
static void cut_root(struct swarm_stage *s)
{
    uint32_t root = any_root(s).index;
    weir_duration noticed = draw_below(s, 2 * WEIR_SECOND);
    trace_fault(s, "cut root%u off", root + 1);
    for (uint32_t i = 0; i < s->limiters; i++)
        weir_fleet_cut(s->fleet, i, root, WEIR_WAY_BOTH, noticed);
}

static void mend_cuts(struct swarm_stage *s)
{
    trace_fault(s, "mend");
    for (uint32_t i = 0; i < s->limiters; i++)
        for (uint32_t r = 0; r < s->roots; r++)
            weir_fleet_cut(s->fleet, i, r, 0, 0);
}

static void reset_links(struct swarm_stage *s)
{
    struct weir_node_place place = any_node(s);
    trace_fault(s, "reset %s%u", node_kind(place), place.index + 1);
    weir_fleet_reset(s->fleet, place);
}

static void kill_any(struct swarm_stage *s)
{
    kill_swarm_node(s, any_node(s));
}

static void start_any(struct swarm_stage *s)
{
    start_swarm_node(s, any_node(s));
}

static void kill_master(struct swarm_stage *s)
{
    if (s->master != SWARM_NONE)
        kill_swarm_node(s, weir_root_place(s->master));
}

static void set_any_clock(struct swarm_stage *s)
{
    struct weir_node_place place = any_node(s);
    bool jumps = draw_one_in(s, 2);
    double sign = draw_one_in(s, 2) ? -1 : 1;
    double step = jumps ? sign * (double)(1 + draw_below(s, STEP_MS)) : 0;
    double drift = jumps ? 0 : sign * (double)(1 + draw_below(s, DRIFT_PPM));
    trace_fault(s, "clock of %s%u: step %.0f ms, drift %.0f ppm",
                node_kind(place), place.index + 1, step, drift);
    weir_fleet_clock(s->fleet, place, (int64_t)(step * 1e6), drift);
    if (jumps)
        weir_swarm_check_clock(s->check);
}

static void pause_or_resume(struct swarm_stage *s)
{
    struct weir_node_place place = any_node(s);
    pause_swarm_node(s, place, !swarm_node_at(s, place)->paused);
}

static void slow_any_node(struct swarm_stage *s)
{
    struct weir_node_place place = any_node(s);
    weir_duration cost = draw_below(s, place.root ? CPU_ROOT : CPU_LIMITER);
    trace_fault(s, "cpu of %s%u: %llu us", node_kind(place), place.index + 1,
                (unsigned long long)cost / 1000);
    weir_fleet_cpu(s->fleet, place, cost, 0);
}

static void put_swarm_quota(struct swarm_stage *s,
                            const struct weir_quota *quota)
{
    int error = weir_fleet_put(s->fleet, quota, NULL);
    weir_assert(error == 0 || error == WEIR_ESTORE);
}

/* What is edited is as at first, but for one thing. */
static void edit_quota(struct swarm_stage *s)
{
    struct weir_quota quota = s->quota;
    uint64_t what = draw_below(s, 6);
    uint64_t permits =
        1 + draw_below(s, 2 * (uint64_t)s->values[SWARM_WORKERS]);
    trace_fault(s, "edit %llu, %llu permits", (unsigned long long)what,
                (unsigned long long)permits);
    switch (what) {
    case 0:
        (void)weir_fleet_remove(s->fleet, SWARM_NAME, NULL);
        return;
    case 1:
        quota.scope = WEIR_SCOPE_PROCESS;
        break;
    case 2:
        quota.max = weir_larger(quota.min, permits * WEIR_DECIMAL_ONE);
        break;
    case 3:
        quota.min = permits * WEIR_DECIMAL_ONE;
        break;
    case 4:
        quota.target = quota.target * (1 + draw_below(s, 4)) / 2;
        break;
    default:
        break;
    }
    put_swarm_quota(s, &quota);
}

static void switch_store(struct swarm_stage *s)
{
    s->away = !s->away;
    trace_fault(s, "store %s", s->away ? "away" : "back");
    weir_fleet_store_away(s->fleet, s->away);
}

static void change_load(struct swarm_stage *s)
{
    static const double loads[] = { 0.05, 0.3, 1, 2 };
    s->load = loads[draw_below(s, WEIR_COUNT_OF(loads))];
    trace_fault(s, "load %g", s->load);
}

static const struct {
    int field; /* the setting that allows it */
    void (*happen)(struct swarm_stage *s);
} menu[] = {
    { SWARM_CUTS, cut_any_link },      { SWARM_CUTS, cut_any_link },
    { SWARM_CUTS, cut_root },          { SWARM_CUTS, mend_cuts },
    { SWARM_CUTS, reset_links },       { SWARM_DEATHS, kill_any },
    { SWARM_DEATHS, kill_any },        { SWARM_DEATHS, start_any },
    { SWARM_MASTERS, kill_master },    { SWARM_MASTERS, kill_master },
    { SWARM_MASTERS, lead_another },   { SWARM_CLOCKS, set_any_clock },
    { SWARM_PAUSES, pause_or_resume }, { SWARM_CPU, slow_any_node },
    { SWARM_EDITS, edit_quota },       { SWARM_EDITS, edit_quota },
    { SWARM_STORE, switch_store },     { SWARM_LOADS, change_load },
};

static bool has_trouble(const struct swarm_stage *s)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(menu); i++)
        if (s->values[menu[i].field] > 0)
            return true;
    return false;
}

static void make_trouble(struct swarm_stage *s)
{
    size_t what;
    do {
        what = draw_below(s, WEIR_COUNT_OF(menu));
    } while (s->values[menu[what].field] == 0);
    menu[what].happen(s);
}

/* ---- Their end ---- */

static void mend_network(struct swarm_stage *s)
{
    const struct weir_net net = { .shape = WEIR_DELAY_EXPONENTIAL,
                                  .delay = swarm_time(s, SWARM_DELAY),
                                  .spread = swarm_time(s, SWARM_JITTER) };
    trace_fault(s, "the network is whole");
    for (uint32_t i = 0; i < s->limiters; i++)
        for (uint32_t r = 0; r < s->roots; r++)
            weir_fleet_net(s->fleet, i, r, &net);
}

static void mend_nodes(struct swarm_stage *s, bool root)
{
    for (uint32_t i = 0; i < (root ? s->roots : s->limiters); i++) {
        struct weir_node_place place = { .root = root, .index = i };
        start_swarm_node(s, place);
        pause_swarm_node(s, place, false);
        weir_fleet_cpu(s->fleet, place, 0, 0);
        weir_fleet_clock(s->fleet, place, 0, 0);
    }
}

static void mend_limiters(struct swarm_stage *s)
{
    mend_nodes(s, false);
}

static void mend_roots(struct swarm_stage *s)
{
    mend_nodes(s, true);
}

/* If there is no master, there is one soon. */
static void mend_mastership(struct swarm_stage *s)
{
    s->leads_at = s->leads_at > 0 ? fleet_now(s) : 0;
}

static void mend_quota(struct swarm_stage *s)
{
    trace_fault(s, "the quota is as at first, the store is back");
    s->away = false;
    weir_fleet_store_away(s->fleet, false);
    put_swarm_quota(s, &s->quota);
}

static void mend_load(struct swarm_stage *s)
{
    s->load = 1;
}

static void (*const mends[])(struct swarm_stage *s) = {
    mend_cuts,       mend_network, mend_limiters, mend_roots,
    mend_mastership, mend_quota,   mend_load,
};

/* Mends something that isn't mended yet. */
static void mend_one(struct swarm_stage *s)
{
    size_t what;
    weir_assert(s->mends != 0);
    do {
        what = draw_below(s, WEIR_COUNT_OF(mends));
    } while (!(s->mends & 1u << what));
    s->mends &= ~(1u << what);
    mends[what](s);
}

/* ---- The part ---- */

static void run_trouble(struct weir_part *part, weir_instant now)
{
    struct swarm_stage *s =
        (void *)((char *)part - offsetof(struct swarm_stage, trouble));
    struct weir_world *world = weir_fleet_world(s->fleet);
    weir_instant end = s->mended - MENDING;
    if (now >= end) {
        mend_one(s);
        if (s->mends != 0)
            weir_world_wake(world, part,
                            now +
                                draw_below(s, MENDING / WEIR_COUNT_OF(mends)));
        return;
    }
    /* Often some come at once, and overtake each other. */
    for (uint64_t times = draw_one_in(s, 3) ? 3 : 1; times > 0; times--)
        make_trouble(s);
    s->left--;
    weir_instant at = end;
    if (s->left > 0)
        at = now + 1 + draw_below(s, 2 * (end - now) / (s->left + 1));
    weir_world_wake(world, part, weir_earlier(at, end));
}

static void start_nodes(struct swarm_stage *s)
{
    for (uint32_t i = 0; i < SWARM_LIMITERS_MAX; i++)
        s->node[0][i].start_at = s->node[1][i].start_at = WEIR_NEVER;
    uint32_t started = (uint32_t)swarm_value(s, SWARM_STARTED);
    for (uint32_t i = 0; i < s->limiters && i < started; i++)
        s->node[0][i].start_at = s->start - draw_below(s, WEIR_SECOND);
}

void weir_swarm_trouble_start(struct swarm_stage *s)
{
    struct weir_world *world = weir_fleet_world(s->fleet);
    s->keeper = (struct weir_part){ .name = "keeper", .run = run_keeper };
    s->trouble = (struct weir_part){ .name = "trouble", .run = run_trouble };
    s->master = SWARM_NONE;
    s->mends = (1u << WEIR_COUNT_OF(mends)) - 1;
    lead_another(s);
    start_nodes(s);
    weir_world_wake(world, &s->keeper, world->now);
    weir_duration first = swarm_time(s, SWARM_TROUBLE);
    if (has_trouble(s)) {
        s->left = 1 + (uint32_t)draw_below(s, FAULTS_MAX);
        first = draw_below(s, first / s->left);
    }
    weir_world_wake(world, &s->trouble, s->start + first);
}

void weir_swarm_trouble_end(struct swarm_stage *s)
{
    struct weir_world *world = weir_fleet_world(s->fleet);
    weir_world_wake(world, &s->keeper, WEIR_NEVER);
    weir_world_wake(world, &s->trouble, WEIR_NEVER);
}
