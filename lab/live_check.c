/* SPDX-License-Identifier: MIT
 * lab/live_check.c - the scenarios that real processes can run: their faults
 * can be made by a signal, a relay or a rename, and their conditions are
 * visible from outside. Others are refused before any process starts. */

#include "lab/live.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/live_fleet.h"

/* Loopback has an unavoidable delay of its own, so shorter delays are ignored.
 * A longer one matters to the scenario. */
#define DELAY_MAX (5 * WEIR_MILLISECOND)

static int refuse_live(struct weir_diag *diag, const struct weir_where *where,
                       const char *what)
{
    if (where && diag) {
        diag->line = where->line;
        diag->column = where->column;
    }
    return weir_diag_set(diag, WEIR_EINVAL, "--live can't ", what,
                         "; run it in the simulator", NULL);
}

static int check_size(const struct weir_scenario *scenario,
                      struct weir_diag *diag)
{
    char what[80];
    if (scenario->limiters > WEIR_LIVE_LIMITERS_MAX) {
        snprintf(what, sizeof what, "start %u limiters (at most %u)",
                 scenario->limiters, WEIR_LIVE_LIMITERS_MAX);
        return refuse_live(diag, NULL, what);
    }
    if (scenario->roots == 0)
        return refuse_live(diag, NULL, "run without roots");
    if (scenario->load_count > WEIR_LIVE_LOADS_MAX) {
        snprintf(what, sizeof what, "run %zu loads (at most %u)",
                 scenario->load_count, WEIR_LIVE_LOADS_MAX);
        return refuse_live(diag, NULL, what);
    }
    return 0;
}

static int check_net(const struct weir_net *net, const struct weir_where *where,
                     struct weir_diag *diag)
{
    if (net->loss > 0)
        return refuse_live(diag, where, "lose messages (loss)");
    if (net->twice > 0)
        return refuse_live(diag, where, "double messages (twice)");
    if (net->reorder > 0)
        return refuse_live(diag, where, "reorder messages (reorder)");
    if (net->replay > 0)
        return refuse_live(diag, where, "replay messages (replay)");
    if (net->bytes_per_s > 0)
        return refuse_live(diag, where, "make links slow (rate)");
    if (net->delay > DELAY_MAX || net->spread > DELAY_MAX)
        return refuse_live(diag, where,
                           "delay messages by more than 5ms (delay, jitter)");
    return 0;
}

static const struct weir_quota *find_scenario_quota(
    const struct weir_scenario *scenario, struct weir_text name)
{
    for (size_t i = 0; i < scenario->quota_count; i++)
        if (weir_text_equal(scenario->quotas[i].name, name))
            return &scenario->quotas[i];
    return NULL;
}

static int check_live_load(const struct weir_scenario *scenario,
                           const struct weir_load *load, struct weir_diag *diag)
{
    if (load->log)
        return refuse_live(diag, &load->where, "replay an access log (log)");
    if (load->spread == WEIR_SPREAD_STICKY)
        return refuse_live(diag, &load->where,
                           "give each key its limiter (spread=sticky)");
    if (load->keys > 1 || strchr(load->quota, '*'))
        return refuse_live(diag, &load->where,
                           "spread a load over the instances of a template");
    if (!find_scenario_quota(scenario, weir_text_of(load->quota)))
        return refuse_live(diag, &load->where,
                           "see what passes a name that no quota bears");
    return 0;
}

static int check_condition(const struct weir_condition *condition,
                           struct weir_diag *diag)
{
    bool unseen =
        !condition->at_end && condition->quantity == WEIR_QUANTITY_OVER_HIGH;
    return unseen
               ? refuse_live(diag, &condition->where,
                             "see what is above high at each instant (over_high"
                             "; expect max_fill_over_high sees it at the end of"
                             " each sample)")
               : 0;
}

static int check_action(const struct weir_scenario *scenario,
                        const struct weir_action *action,
                        struct weir_diag *diag)
{
    switch (action->kind) {
    case WEIR_ACTION_CPU:
        return refuse_live(diag, &action->where, "slow processors down (cpu)");
    case WEIR_ACTION_CLOCK:
        return refuse_live(diag, &action->where, "move clocks (clock)");
    case WEIR_ACTION_NET:
        return check_net(&action->net, &action->where, diag);
    case WEIR_ACTION_SET:
        if (find_scenario_quota(scenario, action->quota.name))
            return 0;
        return refuse_live(diag, &action->where,
                           "set a quota that isn't there at the start");
    case WEIR_ACTION_EXPECT:
        return check_condition(&action->condition, diag);
    case WEIR_ACTION_KILL:
    case WEIR_ACTION_START:
    case WEIR_ACTION_RESTART:
    case WEIR_ACTION_RESET:
    case WEIR_ACTION_PAUSE:
    case WEIR_ACTION_RESUME:
    case WEIR_ACTION_CUT:
    case WEIR_ACTION_MEND:
    case WEIR_ACTION_REMOVE:
    case WEIR_ACTION_STORE:
    case WEIR_ACTION_LOAD:
        return 0;
    }
    return 0;
}

static int check_live_measure(const struct weir_measure *measure,
                              struct weir_diag *diag)
{
    return measure->load ? refuse_live(diag, &measure->where,
                                       "see what passes of one load (of load)")
                         : 0;
}

static int check_live_claim(const struct weir_claim *claim,
                            struct weir_diag *diag)
{
    int error = 0;
    for (size_t i = 0; i < claim->condition_count && error == 0; i++)
        error = check_live_measure(&claim->conditions[i].measure, diag);
    return error;
}

int weir_live_check(const struct weir_scenario *scenario,
                    struct weir_diag *diag)
{
    int error = check_size(scenario, diag);
    if (error == 0)
        error = check_net(&scenario->net, &scenario->net_where, diag);
    for (size_t i = 0; i < scenario->load_count && error == 0; i++)
        error = check_live_load(scenario, &scenario->loads[i], diag);
    for (size_t i = 0; i < scenario->action_count && error == 0; i++)
        error = check_action(scenario, &scenario->actions[i], diag);
    for (size_t i = 0; i < scenario->always_count && error == 0; i++)
        error = check_condition(&scenario->always[i], diag);
    for (size_t i = 0; i < scenario->measure_count && error == 0; i++)
        error = check_live_measure(&scenario->measures[i], diag);
    for (size_t i = 0; i < scenario->expect_count && error == 0; i++)
        error = check_live_measure(&scenario->expects[i].measure, diag);
    for (size_t i = 0; i < scenario->claim_count && error == 0; i++)
        error = check_live_claim(&scenario->claims[i], diag);
    return error;
}
