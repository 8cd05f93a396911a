/* SPDX-License-Identifier: MIT
 * lab/fleet_request.c - requests at a limiter, as libweir's callers make them:
 * on a thread of the service, without waiting, and here in no time. A decision
 * that used up some slack kicks the limiter's own part. */

#include "lab/fleet_internal.h"

/* The limiter if it accepts requests, else NULL. */
static struct weir_node *running(const struct weir_fleet *fleet,
                                 uint32_t limiter)
{
    weir_assert(limiter < fleet->options.limiters);
    struct weir_node *node = &fleet->limiters[limiter];
    return node->limiter && !node->paused ? node : NULL;
}

/* As in libweir: roots refuse an invalid name, so no quota rules it. */
static enum weir_resolved resolve_name(struct weir_node *node,
                                       struct weir_text name,
                                       struct weir_ref *out)
{
    if (weir_table_find(node->table, name, out))
        return WEIR_RESOLVED;
    if (weir_name_check(name, NULL) < 0)
        return WEIR_RESOLVED_NONE;
    return weir_table_resolve(node->table, name, false, out,
                              weir_node_now(node));
}

/* Finds or makes the slot that rules the name; false if there is none. */
static bool find_ref(struct weir_node *node, struct weir_text name,
                     struct weir_ref *out)
{
    switch (resolve_name(node, name, out)) {
    case WEIR_RESOLVED:
        return true;
    case WEIR_RESOLVED_FULL:
    case WEIR_RESOLVED_CHAIN:
        weir_table_count_overflow(node->table, node->stripe);
        return true;
    case WEIR_RESOLVED_FREE:
    case WEIR_RESOLVED_LACKING:
    case WEIR_RESOLVED_NONE:
    case WEIR_RESOLVED_REFUSED:
    case WEIR_RESOLVED_CONTENDED: /* a node has one thread */
        break;
    }
    weir_table_count_unknown(node->table, node->stripe);
    return false;
}

/* The request was let through, or counted: 'weight' below 0 is a refund. */
static void counted(struct weir_node *node, struct weir_ref ref, int64_t weight)
{
    struct weir_fleet *fleet = node->fleet;
    for (size_t i = 0; i < fleet->watch_count; i++) {
        const struct weir_fleet_watch *watch = &fleet->watch[i];
        if (watch->counted)
            watch->counted(watch->context, node->place.index, ref, weight);
    }
}

unsigned weir_fleet_take(struct weir_fleet *fleet, uint32_t limiter,
                         struct weir_text name, uint64_t weight,
                         struct weir_reply *reply)
{
    struct weir_node *node = running(fleet, limiter);
    struct weir_ref ref;
    if (reply)
        memset(reply, 0, sizeof(*reply));
    if (!node)
        return WEIR_OUTCOME_LIMITED;
    if (!find_ref(node, name, &ref))
        return 0;
    unsigned outcome = weir_table_take(node->table, node->stripe, ref, weight,
                                       reply, weir_node_now(node));
    if (!(outcome & WEIR_OUTCOME_LIMITED))
        counted(node, ref, (int64_t)weight);
    if (outcome & WEIR_OUTCOME_KICK)
        weir_node_kick(node);
    return outcome;
}

unsigned weir_fleet_peek(struct weir_fleet *fleet, uint32_t limiter,
                         struct weir_text name, uint64_t weight,
                         struct weir_reply *out_reply)
{
    struct weir_node *node = running(fleet, limiter);
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_PEEK,
                                      .weight = weight };
    struct weir_ref ref;
    memset(out_reply, 0, sizeof(*out_reply));
    if (!node)
        return WEIR_OUTCOME_LIMITED;
    if (!find_ref(node, name, &ref))
        return 0;
    unsigned outcome = weir_table_ask(node->table, node->stripe, ref, &ask,
                                      out_reply, weir_node_now(node));
    outcome |= weir_table_note_peek(node->table, ref.slot, weight,
                                    outcome & WEIR_OUTCOME_LIMITED);
    if (outcome & WEIR_OUTCOME_KICK)
        weir_node_kick(node);
    return outcome;
}

unsigned weir_fleet_enter(struct weir_fleet *fleet, uint32_t limiter,
                          struct weir_text name, uint64_t weight,
                          struct weir_permit_record *out_record)
{
    struct weir_node *node = running(fleet, limiter);
    struct weir_ref ref;
    out_record->links = 0;
    if (!node)
        return WEIR_OUTCOME_LIMITED;
    if (!find_ref(node, name, &ref))
        return 0;
    unsigned outcome = weir_table_enter(node->table, node->stripe, ref, weight,
                                        out_record, NULL, weir_node_now(node));
    if (outcome & WEIR_OUTCOME_KICK)
        weir_node_kick(node);
    return outcome;
}

void weir_fleet_leave(struct weir_fleet *fleet, uint32_t limiter,
                      struct weir_permit_record *record)
{
    weir_fleet_leave_as(fleet, limiter, record, WEIR_PERMIT_IGNORED);
}

void weir_fleet_leave_as(struct weir_fleet *fleet, uint32_t limiter,
                         struct weir_permit_record *record,
                         enum weir_permit_outcome outcome)
{
    struct weir_node *node = running(fleet, limiter);
    if (node && (weir_table_leave_as(node->table, record, outcome,
                                     weir_node_now(node)) &
                 WEIR_OUTCOME_KICK))
        weir_node_kick(node);
}

int weir_fleet_ask(struct weir_fleet *fleet, uint32_t limiter,
                   const struct weir_step_ask *ask, uint64_t ticket)
{
    struct weir_node *node = running(fleet, limiter);
    if (!node)
        return WEIR_ECONNECT;
    int error =
        weir_limiter_ask(node->limiter, ask, ticket, weir_node_now(node));
    weir_node_rest(node);
    return error;
}

static void move_fleet_units(struct weir_fleet *fleet, uint32_t limiter,
                             struct weir_text name, enum weir_algorithm_op op,
                             uint64_t weight)
{
    struct weir_node *node = running(fleet, limiter);
    struct weir_ref ref;
    if (!node || !find_ref(node, name, &ref))
        return;
    struct weir_algorithm_ask ask = { .op = op,
                                      .weight = weir_weight_clipped(weight) };
    unsigned outcome = weir_table_ask(node->table, node->stripe, ref, &ask,
                                      NULL, weir_node_now(node));
    bool back = op == WEIR_ALGORITHM_REFUND;
    counted(node, ref, back ? -(int64_t)weight : (int64_t)weight);
    if (outcome & WEIR_OUTCOME_KICK)
        weir_node_kick(node);
}

void weir_fleet_charge(struct weir_fleet *fleet, uint32_t limiter,
                       struct weir_text name, uint64_t weight)
{
    move_fleet_units(fleet, limiter, name, WEIR_ALGORITHM_CHARGE, weight);
}

void weir_fleet_refund(struct weir_fleet *fleet, uint32_t limiter,
                       struct weir_text name, uint64_t weight)
{
    move_fleet_units(fleet, limiter, name, WEIR_ALGORITHM_REFUND, weight);
}
