/* SPDX-License-Identifier: MIT
 * lab/check.c - the checkers' life: the events that they observe, and when each
 * checker judges.
 *
 *     a pass         the books are written; unseen_bound
 *     a decision     verdicts
 *     a message      from a root: its slacks; at a root: conservation; at a
 *                    limiter: epochs, the fills that it takes
 *     an event       the store's edits; one bucket at a time, in turn; bounds
 *     the end        agreement, conservation, random refusals
 *
 * The cost of a judgement depends on the objects that it reads, not on the size
 * of the fleet, so every run of the lab is checked. The first violation is
 * kept, and nothing is judged after it. */

#include "lab/check.h"

#include "core/table/table_read.h"
#include "io/clock.h"
#include "lab/check_internal.h"

/* ---- Observed events ---- */

/* A link of a chain was charged 'units' just now. */
static void note_charged(struct weir_check *check, uint32_t limiter,
                         uint32_t index, struct check_slot *slot, int64_t units)
{
    struct check_quota *quota = slot->quota;
    struct weir_slot_view view;
    weir_table_view(weir_fleet_table(check->fleet, limiter), index, &view,
                    weir_check_limiter_now(check, limiter));
    double truth = weir_check_truth(check, quota) + (double)units;
    quota->truth.fill = truth > 0 ? truth : 0;
    quota->total += (uint64_t)units;
    weir_assert(quota->truth.fill >= 0);
    if (units < 0) {
        quota->refunded -= (uint64_t)units;
        quota->clean = false;
    } else if ((uint64_t)units > quota->weight_most) {
        quota->weight_most = (uint64_t)units;
    }
    /* A take never fills the bucket above high in its limiter's view; a charge
     * may. */
    bool over_high = view.fill > view.bucket.high;
    weir_check_unseen_passed(check, limiter, index, units, over_high);
}

static void check_on_counted(void *context, uint32_t limiter,
                             struct weir_ref ref, int64_t weight)
{
    struct weir_check *check = context;
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    (void)weight;
    weir_check_follow_store(check);
    weir_check_limiter_clock(check, limiter);
    check->busy_at = weir_fleet_now(check->fleet);
    check->stats.passes++;
    check->charged = (struct check_charged){ .limiter = limiter, .ref = ref };
    uint32_t at = ref.slot;
    while (at != WEIR_SLOT_NONE && check->charged.links < WEIR_DEPTH_MAX) {
        weir_check_slot_of(check, limiter, at);
        uint32_t parent = weir_parent(weir_hot(table, at));
        struct check_slot *slot = &check->limiters[limiter].slots[at];
        uint64_t count = weir_table_count(table, at);
        int64_t units = (int64_t)(count - slot->count);
        slot->count = count;
        check->charged.units[check->charged.links++] = units;
        if (slot->quota && units != 0)
            note_charged(check, limiter, at, slot, units);
        at = parent;
    }
}

/* Bounds the wait of a count: a count made while report n was in transit is in
 * report n + 1, and report n was made after report n - 1 had arrived. */
static void note_report(struct weir_check *check, uint32_t limiter,
                        uint32_t root, const struct weir_message *message)
{
    struct check_link *link = &check->limiters[limiter].link[root];
    uint64_t number = message->report.number;
    if (link->reports_session == message->session && number <= link->reports)
        return;
    link->reports_session = message->session;
    link->reports = number;
    weir_instant now = weir_fleet_now(check->fleet);
    weir_duration gap = now - link->reported_at;
    if (gap + link->gap > check->lateness)
        check->lateness = gap + link->gap;
    link->gap = gap;
    link->reported_at = now;
}

static void root_received(struct weir_check *check, uint32_t root,
                          uint32_t limiter, const struct weir_message *message)
{
    weir_check_root_clock(check, root);
    weir_check_epochs_root(check, root);
    if (message->type == WEIR_MESSAGE_HELLO)
        weir_check_conservation_hello(check, root, limiter);
    if (message->type != WEIR_MESSAGE_REPORT ||
        !weir_fleet_table(check->fleet, limiter))
        return;
    note_report(check, limiter, root, message);
    weir_check_unseen_report(check, limiter, root, message);
    weir_check_conservation_report(check, root, limiter, &message->report);
}

static void check_on_received(void *context, struct weir_node_place to,
                              uint32_t from, const struct weir_message *message)
{
    struct weir_check *check = context;
    weir_check_follow_store(check);
    if (to.root) {
        root_received(check, to.index, from, message);
        return;
    }
    weir_check_limiter_clock(check, to.index);
    switch (message->type) {
    case WEIR_MESSAGE_WELCOME:
        check->busy_at = weir_fleet_now(check->fleet);
        weir_check_unseen_welcome(check, to.index, from, message);
        break;
    case WEIR_MESSAGE_FILLS:
        weir_check_unseen_fills(check, to.index, from, message);
        break;
    case WEIR_MESSAGE_QUOTAS:
        weir_check_epochs_quotas(check, to.index, &message->quotas);
        break;
    case WEIR_MESSAGE_HELLO:
    case WEIR_MESSAGE_REPORT:
    case WEIR_MESSAGE_ASKS:
    case WEIR_MESSAGE_ANSWERS:
    case WEIR_MESSAGE_WANTS:
    case WEIR_MESSAGE_GRANTS:
    case WEIR_MESSAGE_LIMITS:
        break;
    }
}

/* The store isn't read here: during an edit some roots don't have it yet. */
static void check_on_sent(void *context, uint32_t root, uint32_t limiter,
                          const struct weir_message *message)
{
    struct weir_check *check = context;
    if (message->type == WEIR_MESSAGE_FILLS && limiter < check->limiter_count)
        weir_check_unseen_sent(check, root, limiter, &message->fills);
}

static void forget_limiter(struct weir_check *check, uint32_t limiter)
{
    struct check_limiter *known = &check->limiters[limiter];
    for (uint32_t s = 0; s < known->slot_count; s++)
        weir_check_slack_slot_ends(check, &known->slots[s], limiter, s, true);
    free(known->slots);
    *known = (struct check_limiter){ 0 };
}

/* No count of the limiter is older than this instant. */
static void begin_limiter_links(struct weir_check *check, uint32_t limiter)
{
    weir_assert(limiter < check->limiter_count);
    for (uint32_t r = 0; r < check->root_count; r++)
        check->limiters[limiter].link[r].reported_at =
            weir_fleet_now(check->fleet);
}

static void check_on_born(void *context, struct weir_node_place place)
{
    struct weir_check *check = context;
    if (!place.root)
        begin_limiter_links(check, place.index);
}

static void check_on_dying(void *context, struct weir_node_place place)
{
    struct weir_check *check = context;
    weir_check_follow_store(check);
    check->busy_at = weir_fleet_now(check->fleet);
    if (!place.root) {
        forget_limiter(check, place.index);
        return;
    }
    weir_check_unseen_root(check, place.index);
    check->root[place.index] = (struct check_root){ 0 };
}

/* ---- Life ---- */

struct weir_check *weir_check_new(struct weir_fleet *fleet)
{
    weir_assert(weir_fleet_roots(fleet) <= WEIR_ROOTS_MAX);
    struct weir_check *check = weir_must_zeroed(1, sizeof(*check));
    check->fleet = fleet;
    check->limiter_count = weir_fleet_limiters(fleet);
    check->root_count = weir_fleet_roots(fleet);
    check->limiters =
        weir_must_zeroed(check->limiter_count, sizeof(*check->limiters));
    struct weir_fleet_watch watch = {
        .context = check,
        .counted = check_on_counted,
        .received = check_on_received,
        .sent = check_on_sent,
        .dying = check_on_dying,
        .born = check_on_born,
    };
    weir_fleet_watch(fleet, &watch);
    for (uint32_t l = 0; l < check->limiter_count; l++)
        begin_limiter_links(check, l);
    weir_check_follow_store(check);
    return check;
}

void weir_check_free(struct weir_check *check)
{
    if (!check)
        return;
    for (uint32_t l = 0; l < check->limiter_count; l++)
        free(check->limiters[l].slots);
    free(check->limiters);
    for (size_t i = 0; i < check->quota_count; i++)
        free(check->quotas[i]);
    free(check->quotas);
    for (size_t i = 0; i < check->version_count; i++) {
        free(check->versions[i].name);
        free(check->versions[i].parent);
    }
    free(check->versions);
    weir_index_fini(&check->index, &weir_mem_system);
    free(check);
}

/* ---- Judgements ---- */

void weir_check_decided(struct weir_check *check, uint32_t limiter,
                        struct weir_text name, uint64_t weight,
                        unsigned outcome)
{
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    struct weir_ref ref;
    /* A name without a slot isn't judged. */
    if (!table || weight > WEIR_WEIGHT_MAX ||
        !weir_table_find(table, name, &ref))
        return;
    /* A refusal is reported, too. */
    check->busy_at = weir_fleet_now(check->fleet);
    const struct check_charged *charged = &check->charged;
    bool seen = charged->limiter == limiter && charged->ref.slot == ref.slot &&
                charged->ref.generation == ref.generation;
    if (outcome & WEIR_OUTCOME_LIMITED || seen)
        weir_check_verdict(check, limiter, ref, weight, outcome);
}

static const char *sentence(const struct weir_check *check)
{
    return check->sentence[0] ? check->sentence : NULL;
}

const char *weir_check_event(struct weir_check *check)
{
    weir_check_follow_store(check);
    weir_check_image_turn(check);
    weir_check_bounds_event(check);
    return sentence(check);
}

static bool is_quiet(const struct weir_check *check)
{
    weir_instant now = weir_fleet_now(check->fleet);
    return now - check->busy_at >= WEIR_CHECK_SETTLE &&
           now - check->lost_at >= WEIR_CHECK_SETTLE;
}

const char *weir_check_end(struct weir_check *check)
{
    weir_check_follow_store(check);
    if (is_quiet(check)) {
        weir_check_conservation_end(check);
        weir_check_agreement_end(check);
    }
    weir_check_verdicts_end(check);
    return sentence(check);
}

double weir_check_unseen_share(const struct weir_check *check)
{
    return check->share;
}

void weir_check_stats(const struct weir_check *check,
                      struct weir_check_stats *out)
{
    *out = check->stats;
}
