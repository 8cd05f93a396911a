/* SPDX-License-Identifier: MIT
 * lab/director.c - a scenario's actions, at their instants; see run_internal.h.
 *
 * One part with three queues: the scenario's actions in their order, the starts
 * delayed by restarts, and the undecided expectations. It sleeps until the
 * first of these; while an expectation waits it wakes every millisecond.
 *
 * The nodes of "3 of limiters" are drawn when the action comes, among the nodes
 * on which it has an effect: running ones, but dead ones for a start and paused
 * ones for a resume. The director has its own random stream, so that the draws
 * don't depend on other events. */

#include <math.h>
#include <stdio.h>

#include "lab/memory.h"
#include "lab/run_internal.h"

#define POLL WEIR_MILLISECOND

/* A node to be started later. */
struct birth {
    weir_instant at;
    struct weir_node_place place;
};
/* An expectation that waits until 'until'. */
struct waiting {
    const struct weir_condition *condition;
    weir_instant until;
};
/* The result of an 'always'. */
struct always {
    bool broken;
    double value; /* first value that broke it; else the last */
    weir_duration at;
};

struct weir_director {
    struct weir_part part; /* the first member */
    struct weir_run *run;
    struct weir_rng rng;
    size_t next;          /* of the scenario's actions */
    struct birth *births; /* owned */
    size_t birth_count, birth_capacity;
    struct waiting *waits; /* owned */
    size_t wait_count, wait_capacity;
    struct always *always; /* owned; as the scenario's */
    bool *paused[2];       /* owned; by index: limiters, roots */
};

/* ---- Selected nodes ---- */

typedef void act_fn(struct weir_director *director,
                    const struct weir_action *action,
                    struct weir_node_place place);

static bool is_paused(const struct weir_director *director,
                      struct weir_node_place place)
{
    weir_assert(place.index < (place.root ? director->run->scenario->roots
                                          : director->run->scenario->limiters));
    return director->paused[place.root][place.index];
}

/* Whether the action has an effect on the node. */
static bool affects_node(const struct weir_director *director,
                         enum weir_action_kind kind,
                         struct weir_node_place place)
{
    bool alive = weir_fleet_alive(director->run->fleet, place);
    if (kind == WEIR_ACTION_START)
        return !alive;
    if (kind == WEIR_ACTION_RESUME)
        return is_paused(director, place);
    return alive;
}

/* Draws 'wanted' nodes of those in the range that the action affects. Each is
 * taken with probability: still wanted / left. */
static void each_drawn(struct weir_director *director,
                       const struct weir_action *action, act_fn *act)
{
    const struct weir_selection *nodes = &action->nodes;
    uint32_t left = 0, wanted = nodes->count;
    struct weir_node_place place = { .root = nodes->root };
    for (uint32_t i = nodes->first; i <= nodes->last; i++) {
        place.index = i;
        left += affects_node(director, action->kind, place);
    }
    for (uint32_t i = nodes->first; i <= nodes->last && wanted > 0; i++) {
        place.index = i;
        if (!affects_node(director, action->kind, place))
            continue;
        if (weir_rng_below(&director->rng, left--) >= wanted)
            continue;
        wanted--;
        act(director, action, place);
    }
}

static void each_node(struct weir_director *director,
                      const struct weir_action *action, act_fn *act)
{
    weir_assert(action->nodes.first <= action->nodes.last);
    const struct weir_selection *nodes = &action->nodes;
    if (nodes->count > 0) {
        each_drawn(director, action, act);
        return;
    }
    for (uint32_t i = nodes->first; i <= nodes->last; i++)
        act(director, action,
            (struct weir_node_place){ .root = nodes->root, .index = i });
}

/* Indices of a selection at one end of links; owned by the caller. */
static uint32_t *drawn_of(struct weir_director *director,
                          const struct weir_selection *nodes,
                          uint32_t *out_count)
{
    uint32_t all = nodes->last - nodes->first + 1, left = all;
    uint32_t wanted =
        nodes->count > 0 && nodes->count < all ? nodes->count : all;
    uint32_t *indices = weir_must_zeroed(wanted, sizeof(*indices));
    *out_count = wanted;
    for (uint32_t i = nodes->first, k = 0; k < wanted; i++, left--) {
        if (wanted == all || weir_rng_below(&director->rng, left) < wanted - k)
            indices[k++] = i;
    }
    return indices;
}

typedef void link_fn(struct weir_fleet *fleet, uint32_t limiter, uint32_t root,
                     const struct weir_action *action);

static void each_link(struct weir_director *director,
                      const struct weir_action *action, link_fn *act)
{
    const struct weir_scenario *scenario = director->run->scenario;
    struct weir_selection every_limiter = { .last = scenario->limiters - 1 };
    struct weir_selection every_root = { .root = true,
                                         .last = scenario->roots - 1 };
    uint32_t limiters, roots;
    uint32_t *limiter = drawn_of(
        director, action->some ? &action->nodes : &every_limiter, &limiters);
    uint32_t *root = drawn_of(
        director, action->some ? &action->others : &every_root, &roots);
    for (uint32_t i = 0; i < limiters; i++) {
        for (uint32_t k = 0; k < roots; k++)
            act(director->run->fleet, limiter[i], root[k], action);
    }
    free(limiter);
    free(root);
}

/* ---- Actions on nodes ---- */

static void set_paused(struct weir_director *director,
                       struct weir_node_place place, bool paused)
{
    director->paused[place.root][place.index] = paused;
    weir_fleet_pause(director->run->fleet, place, paused);
    if (!place.root)
        weir_loads_pause(director->run->loads, place.index, paused);
}

static void kill_node(struct weir_director *director,
                      const struct weir_action *action,
                      struct weir_node_place place)
{
    (void)action;
    if (is_paused(director, place))
        set_paused(director, place, false);
    weir_fleet_kill(director->run->fleet, place);
}

static void start_node(struct weir_director *director,
                       const struct weir_action *action,
                       struct weir_node_place place)
{
    (void)action;
    weir_fleet_start(director->run->fleet, place);
}

static void restart_node(struct weir_director *director,
                         const struct weir_action *action,
                         struct weir_node_place place)
{
    kill_node(director, action, place);
    director->births =
        weir_must_grow(director->births, &director->birth_capacity,
                       director->birth_count + 1, sizeof(struct birth));
    director->births[director->birth_count++] = (struct birth){
        .at = weir_fleet_now(director->run->fleet) + action->span,
        .place = place,
    };
}

static void reset_node(struct weir_director *director,
                       const struct weir_action *action,
                       struct weir_node_place place)
{
    (void)action;
    weir_fleet_reset(director->run->fleet, place);
}

static void pause_node(struct weir_director *director,
                       const struct weir_action *action,
                       struct weir_node_place place)
{
    if (weir_fleet_alive(director->run->fleet, place))
        set_paused(director, place, action->kind == WEIR_ACTION_PAUSE);
}

static void slow_node(struct weir_director *director,
                      const struct weir_action *action,
                      struct weir_node_place place)
{
    weir_fleet_cpu(director->run->fleet, place, action->span, action->span2);
}

static void clock_node(struct weir_director *director,
                       const struct weir_action *action,
                       struct weir_node_place place)
{
    weir_fleet_clock(director->run->fleet, place, action->step, action->ppm);
}

/* ---- Actions on links ---- */

static void cut_link(struct weir_fleet *fleet, uint32_t limiter, uint32_t root,
                     const struct weir_action *action)
{
    weir_fleet_cut(fleet, limiter, root, action->ways, action->span);
}

static void mend_link(struct weir_fleet *fleet, uint32_t limiter, uint32_t root,
                      const struct weir_action *action)
{
    (void)action;
    weir_fleet_cut(fleet, limiter, root, 0, 0);
}

static void net_link(struct weir_fleet *fleet, uint32_t limiter, uint32_t root,
                     const struct weir_action *action)
{
    weir_fleet_net(fleet, limiter, root, &action->net);
}

/* ---- Actions on quotas ---- */

/* A refusal because the store is away is a regular result; any other refusal
 * gets a line of its own. */
static void edited(struct weir_director *director,
                   const struct weir_action *action, int error,
                   const struct weir_diag *diag)
{
    struct weir_run *run = director->run;
    weir_truth_edited(run->truth);
    if (error == WEIR_OK || error == WEIR_ESTORE)
        return;
    char text[WEIR_DIAG_MAX + 64];
    snprintf(text, sizeof(text), "%s: %s", action->text, diag->text);
    const struct weir_condition condition = { .text = text,
                                              .where = action->where };
    weir_result_expect(run->result, &condition, action->at, NAN, false);
}

static void apply_quota_set(struct weir_director *director,
                            const struct weir_action *action)
{
    struct weir_diag diag = { 0 };
    int error = weir_fleet_put(director->run->fleet, &action->quota, &diag);
    edited(director, action, error, &diag);
}

static void apply_quota_removal(struct weir_director *director,
                                const struct weir_action *action)
{
    struct weir_diag diag = { 0 };
    int error = weir_fleet_remove(director->run->fleet, action->name, &diag);
    edited(director, action, error, &diag);
}

/* ---- Expectations ---- */

static double condition_value(const struct weir_director *director,
                              const struct weir_condition *condition)
{
    return weir_quantity_now(director->run, condition->quantity,
                             condition->quota);
}

static weir_duration since_start(const struct weir_director *director)
{
    return weir_fleet_now(director->run->fleet) - director->run->start;
}

/* Whether it holds or its time is over; then the result is recorded. */
static bool condition_is_settled(struct weir_director *director,
                                 const struct waiting *waiting, bool over)
{
    double value = condition_value(director, waiting->condition);
    bool held = weir_condition_holds(waiting->condition, value);
    if (held || over)
        weir_result_expect(director->run->result, waiting->condition,
                           since_start(director), value, held);
    return held || over;
}

static void begin_expectation(struct weir_director *director,
                              const struct weir_action *action)
{
    director->waits =
        weir_must_grow(director->waits, &director->wait_capacity,
                       director->wait_count + 1, sizeof(struct waiting));
    director->waits[director->wait_count++] = (struct waiting){
        .condition = &action->condition,
        .until = weir_fleet_now(director->run->fleet) + action->span,
    };
}

static void judge_waits(struct weir_director *director, bool over)
{
    weir_instant now = weir_fleet_now(director->run->fleet);
    size_t kept = 0;
    for (size_t i = 0; i < director->wait_count; i++) {
        struct waiting *waiting = &director->waits[i];
        if (!condition_is_settled(director, waiting,
                                  over || waiting->until <= now))
            director->waits[kept++] = *waiting;
    }
    director->wait_count = kept;
    weir_assert(kept <= director->wait_capacity);
}

void weir_director_sampled(struct weir_director *director)
{
    const struct weir_scenario *scenario = director->run->scenario;
    for (size_t i = 0; i < scenario->always_count; i++) {
        struct always *always = &director->always[i];
        if (always->broken)
            continue;
        always->value = condition_value(director, &scenario->always[i]);
        always->at = since_start(director);
        always->broken =
            !weir_condition_holds(&scenario->always[i], always->value);
    }
}

void weir_director_end(struct weir_director *director)
{
    const struct weir_scenario *scenario = director->run->scenario;
    judge_waits(director, true);
    for (size_t i = 0; i < scenario->always_count; i++) {
        const struct always *always = &director->always[i];
        weir_result_expect(director->run->result, &scenario->always[i],
                           always->at, always->value, !always->broken);
    }
}

/* ---- Turns ---- */

static void apply_action(struct weir_director *director,
                         const struct weir_action *action)
{
    struct weir_run *run = director->run;
    if (run->options->trace)
        fprintf(stderr, "at %.9f s: %s\n", (double)action->at / 1e9,
                action->text);
    switch (action->kind) {
    case WEIR_ACTION_KILL:
        each_node(director, action, kill_node);
        break;
    case WEIR_ACTION_START:
        each_node(director, action, start_node);
        break;
    case WEIR_ACTION_RESTART:
        each_node(director, action, restart_node);
        break;
    case WEIR_ACTION_RESET:
        each_node(director, action, reset_node);
        break;
    case WEIR_ACTION_PAUSE:
    case WEIR_ACTION_RESUME:
        each_node(director, action, pause_node);
        break;
    case WEIR_ACTION_CPU:
        each_node(director, action, slow_node);
        break;
    case WEIR_ACTION_CLOCK:
        each_node(director, action, clock_node);
        break;
    case WEIR_ACTION_CUT:
        each_link(director, action, cut_link);
        break;
    case WEIR_ACTION_MEND:
        each_link(director, action, mend_link);
        break;
    case WEIR_ACTION_NET:
        each_link(director, action, net_link);
        break;
    case WEIR_ACTION_SET:
        apply_quota_set(director, action);
        break;
    case WEIR_ACTION_REMOVE:
        apply_quota_removal(director, action);
        break;
    case WEIR_ACTION_STORE:
        weir_fleet_store_away(run->fleet, action->flag);
        break;
    case WEIR_ACTION_LOAD:
        weir_loads_rate(run->loads, action->name, &action->rate);
        break;
    case WEIR_ACTION_EXPECT:
        begin_expectation(director, action);
        break;
    }
}

static void give_birth(struct weir_director *director, weir_instant now)
{
    size_t kept = 0;
    for (size_t i = 0; i < director->birth_count; i++) {
        struct birth birth = director->births[i];
        if (birth.at <= now)
            weir_fleet_start(director->run->fleet, birth.place);
        else
            director->births[kept++] = birth;
    }
    director->birth_count = kept;
    weir_assert(kept <= director->birth_capacity);
}

/* Whether the action is a part of building the fleet; it isn't repeated when
 * the scenario begins. */
static bool is_of_building(const struct weir_action *action)
{
    return action->at == 0 && (action->kind == WEIR_ACTION_NET ||
                               action->kind == WEIR_ACTION_CPU ||
                               action->kind == WEIR_ACTION_CLOCK);
}

static void sleep_until_next(struct weir_director *director)
{
    const struct weir_run *run = director->run;
    weir_instant now = weir_fleet_now(run->fleet), next = WEIR_NEVER;
    if (director->next < run->scenario->action_count)
        next = run->start + run->scenario->actions[director->next].at;
    for (size_t i = 0; i < director->birth_count; i++)
        next = weir_earlier(next, director->births[i].at);
    for (size_t i = 0; i < director->wait_count; i++)
        next = weir_earlier(next,
                            weir_earlier(now + POLL, director->waits[i].until));
    weir_world_wake(weir_fleet_world(run->fleet), &director->part, next);
}

static void run_director(struct weir_part *part, weir_instant now)
{
    struct weir_director *director = (struct weir_director *)part;
    const struct weir_scenario *scenario = director->run->scenario;
    give_birth(director, now);
    while (director->next < scenario->action_count &&
           director->run->start + scenario->actions[director->next].at <= now) {
        const struct weir_action *action = &scenario->actions[director->next++];
        if (!is_of_building(action))
            apply_action(director, action);
    }
    judge_waits(director, false);
    sleep_until_next(director);
}

void weir_director_start(struct weir_director *director)
{
    weir_assert(director->next == 0);
    run_director(&director->part, director->run->start);
}

/* ---- Before the start ---- */

static void set_linkages(struct weir_fleet *fleet,
                         const struct weir_scenario *scenario)
{
    const struct weir_linkage *links = scenario->linkages;
    for (size_t i = 0; i < scenario->linkage_count; i++) {
        for (uint32_t l = links[i].limiters.first; l <= links[i].limiters.last;
             l++) {
            for (uint32_t r = 0; r < scenario->roots; r++)
                weir_fleet_allow(fleet, l, r, false);
        }
    }
    for (size_t i = 0; i < scenario->linkage_count; i++) {
        for (uint32_t l = links[i].limiters.first; l <= links[i].limiters.last;
             l++) {
            for (uint32_t r = links[i].roots.first; r <= links[i].roots.last;
                 r++)
                weir_fleet_allow(fleet, l, r, true);
        }
    }
}

void weir_director_build(struct weir_director *director)
{
    const struct weir_scenario *scenario = director->run->scenario;
    set_linkages(director->run->fleet, scenario);
    for (size_t i = 0; i < scenario->action_count; i++) {
        if (is_of_building(&scenario->actions[i]))
            apply_action(director, &scenario->actions[i]);
    }
}

struct weir_director *weir_director_new(struct weir_run *run)
{
    const struct weir_scenario *scenario = run->scenario;
    struct weir_director *director = weir_must_zeroed(1, sizeof(*director));
    *director = (struct weir_director){
        .part = { .name = "director", .run = run_director },
        .run = run,
        .rng = { .state = weir_rng_mix(run->options->seed ^ 0xd17ec7) },
        .always =
            weir_must_zeroed(scenario->always_count, sizeof(struct always)),
        .paused = { weir_must_zeroed(scenario->limiters, sizeof(bool)),
                    weir_must_zeroed(scenario->roots, sizeof(bool)) },
    };
    return director;
}

void weir_director_free(struct weir_director *director)
{
    if (!director)
        return;
    weir_world_wake(weir_fleet_world(director->run->fleet), &director->part,
                    WEIR_NEVER);
    free(director->births);
    free(director->waits);
    free(director->always);
    free(director->paused[0]);
    free(director->paused[1]);
    free(director);
}
