/* SPDX-License-Identifier: MIT
 * lab/live_act.c - actions on a live run at their instants: the scenario's
 * actions, and each limiter's part of the load.
 *
 * Loads are divided as by a load balancer, among the limiters that run, aren't
 * paused, and have quotas: in equal parts, or by Zipf's weights of their
 * numbers. Each limiter then makes its part with its own random stream, which
 * has the same distribution as drawing a limiter for each request. */

#include <math.h>
#include <stdio.h>

#include "lab/live.h"
#include "lab/memory.h"

/* ---- Load ---- */

static bool limiter_is_open(const struct weir_live_limiter *limiter)
{
    return limiter->running && limiter->settled && !limiter->paused;
}

static double weight_of(const struct weir_load *load, uint32_t limiter)
{
    return load->spread == WEIR_SPREAD_ZIPF
               ? pow(limiter - load->on.first + 1, -load->skew)
               : 1;
}

static void share_load(struct weir_live *live, size_t index, double per_s)
{
    const struct weir_live_load *load = &live->loads[index];
    double weights[WEIR_LIVE_LIMITERS_MAX];
    double sum = 0;
    for (uint32_t i = 0; i < live->scenario->limiters; i++) {
        bool takes =
            load->on[i] && limiter_is_open(weir_live_limiter(live->fleet, i));
        weights[i] = takes ? weight_of(load->load, i) : 0;
        sum += weights[i];
    }
    for (uint32_t i = 0; i < live->scenario->limiters; i++)
        weir_live_rate(live->fleet, i, index,
                       sum > 0 ? per_s * weights[i] / sum : 0);
}

void weir_live_share(struct weir_live *live, weir_duration at)
{
    for (size_t i = 0; i < live->scenario->load_count; i++)
        share_load(live, i, weir_arrival_rate(&live->loads[i].arrival, at));
}

static void set_load(struct weir_live *live, const struct weir_action *action)
{
    for (size_t i = 0; i < live->scenario->load_count; i++) {
        struct weir_arrival *arrival = &live->loads[i].arrival;
        if (strcmp(arrival->load->name, action->name) != 0)
            continue;
        arrival->replaced = true;
        arrival->rate = action->rate;
    }
}

/* ---- Nodes ---- */

void weir_live_draw(struct weir_live *live, const struct weir_selection *nodes,
                    bool *out, uint32_t count)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = out[i] && i >= nodes->first && i <= nodes->last;
        left += out[i];
    }
    uint32_t wanted = nodes->count > 0 ? nodes->count : left;
    for (uint32_t i = 0; i < count; i++) {
        if (!out[i])
            continue;
        out[i] = weir_rng_below(&live->rng, left--) < wanted;
        wanted -= out[i];
    }
}

/* The number of nodes of that kind. */
static uint32_t count_of(const struct weir_live *live, bool root)
{
    return root ? live->scenario->roots : live->scenario->limiters;
}

static void restart(struct weir_live *live, struct weir_node_place place,
                    weir_duration at)
{
    size_t index = place.index + (place.root ? live->scenario->limiters : 0);
    weir_live_kill(live->fleet, place);
    live->restarts[index] = (struct weir_live_restart){ place, at, true };
}

/* The fills of a root that doesn't run are unknown. */
static void forget_fills(struct weir_live *live, uint32_t root)
{
    for (size_t i = 0; i < live->scenario->quota_count; i++)
        live->quotas[i].root_fills[root] = NAN;
}

static void act_on_node(struct weir_live *live,
                        const struct weir_action *action,
                        struct weir_node_place place)
{
    enum weir_action_kind kind = action->kind;
    if (kind == WEIR_ACTION_KILL)
        weir_live_kill(live->fleet, place);
    else if (kind == WEIR_ACTION_START)
        weir_live_start(live->fleet, place);
    else if (kind == WEIR_ACTION_RESTART)
        restart(live, place, action->at + action->span);
    else if (kind == WEIR_ACTION_RESET)
        weir_live_reset(live->fleet, place);
    else
        weir_live_pause(live->fleet, place, kind == WEIR_ACTION_PAUSE);
    if (place.root)
        forget_fills(live, place.index);
}

/* Whether the action has an effect on the node; only such nodes are drawn. */
static bool affects_live_node(const struct weir_live *live,
                              enum weir_action_kind kind,
                              struct weir_node_place place)
{
    bool runs = place.root
                    ? weir_live_root_runs(live->fleet, place.index)
                    : weir_live_limiter(live->fleet, place.index)->running;
    return runs == (kind != WEIR_ACTION_START);
}

static void act_on_nodes(struct weir_live *live,
                         const struct weir_action *action)
{
    bool drawn[WEIR_LIVE_LIMITERS_MAX];
    struct weir_node_place place = { .root = action->nodes.root };
    uint32_t count = count_of(live, place.root);
    for (place.index = 0; place.index < count; place.index++)
        drawn[place.index] = action->nodes.count == 0 ||
                             affects_live_node(live, action->kind, place);
    weir_live_draw(live, &action->nodes, drawn, count);
    for (place.index = 0; place.index < count; place.index++)
        if (drawn[place.index])
            act_on_node(live, action, place);
}

static void act_on_links(struct weir_live *live,
                         const struct weir_action *action)
{
    const struct weir_scenario *scenario = live->scenario;
    bool limiters[WEIR_LIVE_LIMITERS_MAX];
    bool roots[WEIR_LIVE_ROOTS_MAX];
    memset(limiters, 1, sizeof limiters);
    memset(roots, 1, sizeof roots);
    if (action->some) {
        weir_live_draw(live, &action->nodes, limiters, scenario->limiters);
        weir_live_draw(live, &action->others, roots, scenario->roots);
    }
    bool cut = action->kind == WEIR_ACTION_CUT;
    for (uint32_t i = 0; i < scenario->limiters; i++)
        for (uint32_t k = 0; k < scenario->roots; k++)
            if (limiters[i] && roots[k])
                weir_live_cut(live->fleet, i, k, cut ? action->ways : 0,
                              action->span);
}

/* ---- Quotas ---- */

/* An edit in transit to a root. */
struct change {
    struct weir_live *live;
    const struct weir_action *action;
    struct weir_live_quota *state;
    const struct weir_quota *before, *after;
    uint64_t epoch; /* of the edit before */
};

/* A refusal because the store is away is a regular result; any other refusal
 * gets a line of its own. */
static void on_changed(void *context, uint64_t epoch, const char *why)
{
    struct change *change = context;
    bool newest = change->state->quota == change->after;
    if (newest && why)
        weir_live_quota_set(change->state, change->before, change->epoch);
    else if (newest)
        change->state->epoch = epoch;
    if (why && !change->live->away && !change->live->done) {
        const struct weir_action *action = change->action;
        char text[WEIR_DIAG_MAX + 64];
        snprintf(text, sizeof text, "%s: %s", action->text, why);
        const struct weir_condition condition = { .text = text,
                                                  .where = action->where };
        weir_result_expect(change->live->result, &condition, action->at, NAN,
                           false);
    }
    free(change);
}

static struct change *begin_change(struct weir_live *live,
                                   const struct weir_action *action,
                                   const char *name,
                                   const struct weir_quota *quota)
{
    struct weir_live_quota *state =
        &live->quotas[weir_live_quota_index(live, name)];
    struct change *change = weir_must_zeroed(1, sizeof *change);
    *change = (struct change){ .live = live,
                               .action = action,
                               .state = state,
                               .before = state->quota,
                               .after = quota,
                               .epoch = state->epoch };
    weir_live_quota_set(state, quota, WEIR_NEVER);
    return change;
}

static void send_quota_set(struct weir_live *live,
                           const struct weir_action *action)
{
    const struct weir_quota *quota = &action->quota;
    weir_live_put(live->fleet, quota, 1, on_changed,
                  begin_change(live, action, quota->name.p, quota));
}

static void send_quota_removal(struct weir_live *live,
                               const struct weir_action *action)
{
    weir_live_remove(live->fleet, action->name, on_changed,
                     begin_change(live, action, action->name, NULL));
}

/* ---- Expectations ---- */

/* An expectation that waits beyond the end is judged at the end. */
static void begin_expect(struct weir_live *live,
                         const struct weir_action *action)
{
    weir_duration until = action->at + action->span;
    weir_duration span = live->scenario->span;
    live->expects[live->expect_count++] = (struct weir_live_expect){
        .condition = &action->condition,
        .until = until < span ? until : span,
    };
}

/* The scenario's time, in whole milliseconds: the tick is no finer. */
static weir_duration scenario_time(const struct weir_live *live,
                                   weir_instant now)
{
    return (now - live->start) / WEIR_MILLISECOND * WEIR_MILLISECOND -
           live->held;
}

/* Whether the expectation is decided: it holds, or it is late and patience is
 * over. A late one stops the scenario's time at its deadline, so that later
 * actions stay later. */
static bool is_answered(struct weir_live *live, struct weir_live_expect *expect,
                        weir_instant now)
{
    weir_duration at = scenario_time(live, now);
    double value = weir_live_quantity(live, expect->condition);
    bool held = weir_condition_holds(expect->condition, value);
    if (!held && at < expect->until)
        return false;
    if (!held && expect->late == 0)
        expect->late = now;
    if (!held && now - expect->late < live->options->patience) {
        live->held += at - expect->until;
        return false;
    }
    weir_result_expect(live->result, expect->condition, at, value, held);
    return true;
}

/* Returns whether none is late and undecided. */
static bool judge_expects(struct weir_live *live, weir_instant now)
{
    size_t kept = 0;
    bool goes_on = true;
    for (size_t i = 0; i < live->expect_count; i++) {
        struct weir_live_expect expect = live->expects[i];
        if (is_answered(live, &expect, now))
            continue;
        goes_on &= expect.late == 0;
        live->expects[kept++] = expect;
    }
    live->expect_count = kept;
    return goes_on;
}

/* ---- Actions ---- */

static void perform_action(struct weir_live *live,
                           const struct weir_action *action)
{
    switch (action->kind) {
    case WEIR_ACTION_KILL:
    case WEIR_ACTION_START:
    case WEIR_ACTION_RESTART:
    case WEIR_ACTION_RESET:
    case WEIR_ACTION_PAUSE:
    case WEIR_ACTION_RESUME:
        act_on_nodes(live, action);
        return;
    case WEIR_ACTION_CUT:
    case WEIR_ACTION_MEND:
        act_on_links(live, action);
        return;
    case WEIR_ACTION_SET:
        send_quota_set(live, action);
        return;
    case WEIR_ACTION_REMOVE:
        send_quota_removal(live, action);
        return;
    case WEIR_ACTION_STORE:
        live->away = action->flag;
        weir_live_store_away(live->fleet, action->flag);
        return;
    case WEIR_ACTION_LOAD:
        set_load(live, action);
        return;
    case WEIR_ACTION_EXPECT:
        begin_expect(live, action);
        return;
    case WEIR_ACTION_CPU: /* live_check.c has refused all but nothing */
    case WEIR_ACTION_CLOCK:
    case WEIR_ACTION_NET:
        return;
    }
}

static void start_again(struct weir_live *live, weir_duration at)
{
    uint32_t nodes = live->scenario->limiters + live->scenario->roots;
    for (uint32_t i = 0; i < nodes; i++) {
        struct weir_live_restart *restart = &live->restarts[i];
        if (!restart->waits || restart->at > at)
            continue;
        restart->waits = false;
        weir_live_start(live->fleet, restart->place);
    }
}

/* Expectations are tested before later actions are done, also at the same
 * instant. */
weir_duration weir_live_act(struct weir_live *live, weir_instant now)
{
    const struct weir_scenario *scenario = live->scenario;
    bool goes_on = judge_expects(live, now);
    start_again(live, scenario_time(live, now));
    while (goes_on && live->next_action < scenario->action_count &&
           scenario->actions[live->next_action].at <=
               scenario_time(live, now)) {
        perform_action(live, &scenario->actions[live->next_action++]);
        goes_on = judge_expects(live, now);
    }
    return scenario_time(live, now);
}
