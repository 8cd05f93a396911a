/* SPDX-License-Identifier: MIT
 * lab/check_unseen.c - the stated bound: the units that the fleet let through,
 * in one bucket, are never above
 *
 *     high + sum over limiters of (2 slack + weight)
 *          + grain + over + (sum of paces - limit) * age, if above 0
 *
 * Proof, for a quota and one root R to which all limiters that use it are
 * linked. R's bucket is the sum of the units reported and of the units that R
 * presumes of each limiter since its last report (merge.c). Two statements:
 *
 * 1. Of a limiter that passes a request, the units that R neither heard of nor
 *    presumes are at most the limiter's allowance. With slack s told, that is
 *    2s (at least one unit), and one weight more for the take that crosses the
 *    stop; or the units beside R's bucket when s was told, if these are more.
 *
 * 2. A report moves units from an allowance into R's bucket: the sum stays.
 *    When R sends a slack, it gives each limiter a part of the room up to
 *    'high'. Right after, bucket and allowances are at most high + the
 *    allowances of the other limiters. Lowering a slack doesn't remove units
 *    from the bucket; they leak. Hence the ceiling:
 *
 *     ceiling = max(high + sum of allowances, former ceiling less the leak)
 *
 * Three terms are added: the changes too small for R to push (merge.c: at most
 * a 25th of the room; a 32nd of 'high' here); the units that other limiters
 * pass, at the paces presumed, while the passing limiter's root fill is on its
 * way and 'age' old; and 'over'. Two buckets with one leak and inflows that
 * never differ by more than d differ by d now, and by d once more that leaked
 * from only one of them while the other was empty (the reflection map is
 * Lipschitz). 'over' is that second d: the most that R presumed beyond the
 * units counted, since the true bucket was last empty.
 *
 * The bound is promised while slack is on. It is suspended, for one quota and
 * root, from a pass that the root's slack doesn't limit. Such a limiter has not
 * been told of the slot in this session (first use, reconnect), or its link is
 * cut, or, with several roots, this root hasn't answered for PATIENCE or asks
 * for fewer reports (another root's slack may rule). The bound is also
 * suspended by an edit until all limiters have it; by late counts, a death with
 * unreported counts, or a refund, since the truth then has units that the root
 * never learns of; and when R has not heard from a limiter with unreported
 * counts for so long that it presumes nothing. It is resumed when every limiter
 * that the root's slack didn't limit has been answered ('loose' until then),
 * from the fleet's present state. The units unknown to the root are then added
 * ('beyond') until the bucket has been empty.
 *
 * A slack is at most half of the room that it is told with. That is judged
 * where a root composes it, by the root's rule at that time, not where the
 * limiter takes it: a slack in transit during an edit was computed from the
 * room before the edit. It may arrive when every limiter already has the edit
 * from another root, over a faster link. The limiter accepts it as this root's
 * last word and obeys the smallest slack of all roots; the sum of allowances
 * includes it. But statement 2 left no room for it, so the bound is resumed
 * from there. */

#include "lab/check_internal.h"

#define NAME "unseen_bound"
/* As in limiters: for how long a silent link's slack rules beside other links
 * that answer, and, after it answers again, until its slack rules again (a tick
 * of the limiter). */
#define PATIENCE (500 * WEIR_MILLISECOND)
#define RULES_AGAIN (200 * WEIR_MILLISECOND)
/* Least time between two checks whether all limiters have an edit. */
#define RETRY (10 * WEIR_MILLISECOND)

/* ---- The ceiling ---- */

/* Error of the presumed units by clocks that ran ahead or were set back. */
static double astray(const struct weir_check *check, uint64_t pace)
{
    double off = (double)(check->ahead + check->behind);
    return check_paced(pace, fmin(off, (double)check->relied));
}

/* Whether every limiter decides by the quota's current rule. */
static bool all_have(struct weir_check *check, struct check_quota *quota)
{
    if (!quota->edited)
        return true;
    weir_instant now = weir_fleet_now(check->fleet);
    if (now < quota->retry_at)
        return false;
    quota->retry_at = now + RETRY;
    for (uint32_t l = 0; l < check->limiter_count; l++) {
        if (weir_fleet_limiter(check->fleet, l) &&
            weir_limiter_epoch(weir_fleet_limiter(check->fleet, l)) <
                quota->epoch)
            return false;
    }
    quota->edited = false;
    return true;
}

/* Units of all limiters that the root hasn't heard of. The running sum still
 * has the units of limiters that died, so in a small fleet they are counted
 * anew. */
static void count_unheard(struct weir_check *check,
                          const struct check_quota *quota,
                          struct check_image *image, uint32_t root)
{
    if (check->limiter_count > CHECK_SMALL)
        return;
    image->unseen = 0;
    for (uint32_t l = 0; l < check->limiter_count; l++) {
        const struct check_limiter *limiter = &check->limiters[l];
        for (uint32_t s = 0; s < limiter->slot_count; s++) {
            const struct check_slot *slot = &limiter->slots[s];
            if (slot->quota == quota && weir_fleet_table(check->fleet, l))
                image->unseen +=
                    weir_check_slack_unheard(check, slot, l, s, root);
        }
    }
}

/* Resumes the bound from the fleet's present state. */
static bool resume_bound(struct weir_check *check, struct check_quota *quota,
                         uint32_t root)
{
    struct check_image *image = &quota->image[root];
    struct check_held held;
    if (image->loose > 0 || !weir_check_root_follows(check, root) ||
        !weir_check_root_bucket(check, root, quota, &held) ||
        !all_have(check, quota))
        return false;
    count_unheard(check, quota, image, root);
    double unseen = fmax(0, (double)image->unseen - held.presumed);
    double truth = weir_check_truth(check, quota);
    bool exact = check->limiter_count <= CHECK_SMALL;
    image->firm = true;
    image->beyond = fmax(0, truth - held.fill - (exact ? unseen : 0));
    image->ceiling.at = weir_fleet_now(check->fleet);
    image->ceiling.fill = weir_check_slack_bound(quota, image) +
                          fmax(0, held.fill - quota->high) + unseen;
    return true;
}

/* For how long the root may have been silent for the limiter. A limiter whose
 * clock is set back has seen a longer silence than that clock shows after. */
static weir_duration silent_for(const struct weir_check *check,
                                const struct check_link *link, weir_instant now)
{
    return weir_longer(
        weir_since(link->answered_at, now),
        weir_since(link->answered_on, weir_fleet_now(check->fleet)));
}

/* Whether the root's slack certainly limits the limiter. With several roots,
 * the slack of a root that hasn't answered lately or is overloaded may not. */
static bool slack_limits(const struct weir_check *check, uint32_t limiter,
                         uint32_t root, const struct check_slot *slot)
{
    const struct check_link *link = &check->limiters[limiter].link[root];
    weir_instant now = weir_check_limiter_now(check, limiter);
    /* A new session after a reconnect hasn't told the slack yet. */
    if (!weir_fleet_linked(check->fleet, limiter, root) ||
        weir_fleet_root(check->fleet, root)->peers[limiter].session !=
            link->session ||
        weir_table_is_stale(weir_fleet_table(check->fleet, limiter)))
        return false;
    return check->root_count == 1 ||
           (now >= link->unruly_until &&
            silent_for(check, link, now) < PATIENCE &&
            !weir_check_passed_over(check, limiter, root, slot));
}

/* Whether the root has heard from the limiter lately: within the time for which
 * the limiter relies on its paces. */
static bool has_reported(const struct weir_check *check, uint32_t limiter,
                         uint32_t root, const struct check_slot *slot)
{
    const struct check_link *link = &check->limiters[limiter].link[root];
    weir_duration silent = weir_fleet_now(check->fleet) - link->reported_at;
    return slack_limits(check, limiter, root, slot) &&
           silent < weir_limiter_relies(
                        weir_fleet_limiter(check->fleet, limiter), root);
}

/* Units that the root has neither heard of nor presumes. */
static double beside(struct weir_check *check, const struct check_slot *slot,
                     uint32_t limiter, uint32_t index, uint32_t root)
{
    const struct weir_limiter_cell *cell =
        weir_check_cell(check, root, limiter, index);
    double units =
        (double)weir_check_slack_unheard(check, slot, limiter, index, root);
    if (!cell)
        return units;
    weir_instant born = weir_fleet_root(check->fleet, root)->merge.origin;
    weir_instant since = born + cell->paced_at;
    weir_instant now = weir_check_root_now(check, root);
    return now > since ? units - check_paced(cell->pace, (double)(now - since))
                       : units;
}

/* No limiter counts more units beside R's bucket than its slack allows. */
static void judge_slack(struct weir_check *check, const struct check_slot *slot,
                        uint32_t limiter, uint32_t index, uint32_t root)
{
    const struct check_quota *quota = slot->quota;
    const struct check_sent *sent = &slot->sent[root];
    double more = beside(check, slot, limiter, index, root);
    double most = sent->held + (double)quota->weight_most;
    if (more <= most + astray(check, sent->pace) + CHECK_TOLERANCE)
        return;
    weir_check_fail(check, NAME,
                    "limiter%u counted %.3f units of \"%s\" that root%u hasn't "
                    "heard of and doesn't presume; its slack is for %.3f",
                    limiter + 1, more, quota->name, root + 1, most);
}

/* Whether the root hasn't heard from some limiter for so long that it presumes
 * nothing of it any more: the bound is suspended. */
static bool suspend_bound(struct weir_check *check, struct check_quota *quota,
                          uint32_t root)
{
    struct check_image *image = &quota->image[root];
    for (uint32_t l = 0; l < check->limiter_count; l++) {
        const struct check_limiter *limiter = &check->limiters[l];
        for (uint32_t s = 0; s < limiter->slot_count; s++) {
            struct check_slot *slot = &limiter->slots[s];
            struct check_sent *sent = &slot->sent[root];
            if (slot->quota != quota || has_reported(check, l, root, slot) ||
                beside(check, slot, l, s, root) <= sent->slack)
                continue;
            weir_check_slack_set_loose(image, sent, true);
            image->firm = false;
        }
    }
    return !image->firm;
}

static void judge_truth(struct weir_check *check, struct check_quota *quota,
                        uint32_t root, const struct check_held *held,
                        weir_duration age)
{
    struct check_image *image = &quota->image[root];
    if (weir_fleet_root(check->fleet, root))
        weir_check_root_clock(check, root);
    if (!image->firm && !resume_bound(check, quota, root))
        return;
    weir_check_slack_settle(check, quota, image);
    double truth = weir_check_truth(check, quota);
    double moved = fmax(0, check_paced(held->pace, (double)age) -
                               quota->per_ns * (double)age);
    double bound = image->ceiling.fill + moved + image->beyond +
                   weir_check_ahead(check, quota) + astray(check, held->pace);
    if (truth > bound + CHECK_TOLERANCE && suspend_bound(check, quota, root))
        return;
    check->stats.bounded++;
    check->share = fmax(check->share, fmin(1, truth / bound));
    if (truth <= bound + CHECK_TOLERANCE)
        return;
    weir_check_fail(
        check, NAME,
        "the fleet's bucket of \"%s\" holds %.3f units; for root%u it "
        "is at most %.3f (high %.3f, %u limiters told %.3f, presumed "
        "too much %.3f, moved %.3f, unknown to the root %.3f)",
        quota->name, truth, root + 1, bound, quota->high, image->sent,
        image->slack, image->over, moved, image->beyond);
}

/* ---- Sessions, reports, fills ---- */

/* Counts that no root has answered reach the next root only if the limiter
 * reports them again. */
static void reset_told(struct weir_check *check, struct check_slot *slot,
                       uint32_t limiter, uint32_t index, uint32_t root)
{
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    slot->sent[root] = (struct check_sent){ 0 };
    if (slot->quota && table)
        weir_check_slack_set_loose(&slot->quota->image[root], &slot->sent[root],
                                   slot->count !=
                                       weir_table_settled(table, index));
}

void weir_check_unseen_root(struct weir_check *check, uint32_t root)
{
    for (size_t i = 0; i < check->quota_count; i++) {
        check->quotas[i]->image[root] = (struct check_image){ 0 };
        check->quotas[i]->clean = false;
    }
    for (uint32_t l = 0; l < check->limiter_count; l++) {
        struct check_limiter *limiter = &check->limiters[l];
        for (uint32_t s = 0; s < limiter->slot_count; s++)
            reset_told(check, &limiter->slots[s], l, s, root);
    }
}

/* Whether the message is of the current session. Otherwise it is late or
 * repeated, and the limiter ignores it. */
static bool is_of_session(const struct weir_check *check, uint32_t limiter,
                          uint32_t root, const struct weir_message *message)
{
    const struct weir_limiter *node = weir_fleet_limiter(check->fleet, limiter);
    return message->session == weir_limiter_session(node, root);
}

/* A session begins: slacks told before no longer rule. */
void weir_check_unseen_welcome(struct weir_check *check, uint32_t limiter,
                               uint32_t root,
                               const struct weir_message *message)
{
    struct check_limiter *known = &check->limiters[limiter];
    struct check_link *link = &known->link[root];
    if (message->session == link->session ||
        !is_of_session(check, limiter, root, message))
        return;
    const struct weir_settings *settings = &message->welcome.settings;
    check->slack_on = settings->slack;
    check->pace_good = WEIR_PACE_INTERVALS * settings->report_interval;
    check->relied = weir_longer(check->relied, check->pace_good);
    check->extrapolates =
        settings->correction_auto || settings->correction_ppm > 0;
    link->session = message->session;
    link->stamp = link->number = 0;
    link->answered_at = link->answered_on = link->unruly_until = 0;
    link->backs_off = false;
    for (uint32_t s = 0; s < known->slot_count; s++) {
        struct check_slot *slot = &known->slots[s];
        if (!slot->quota)
            continue;
        struct check_sent *sent = &slot->sent[root];
        weir_check_slack_withdraw(check, slot->quota, sent, root);
        sent->announced = 0;
        weir_check_slack_set_loose(
            &slot->quota->image[root], sent,
            weir_check_slack_unheard(check, slot, limiter, s, root) != 0);
    }
}

/* The limiter announces slots to the root. */
void weir_check_unseen_report(struct weir_check *check, uint32_t limiter,
                              uint32_t root, const struct weir_message *message)
{
    const struct weir_report *report = &message->report;
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    if (message->session != check->limiters[limiter].link[root].session)
        return;
    for (size_t i = 0; i < report->announce_count; i++) {
        const struct weir_announce *announce = &report->announces[i];
        if (announce->slot >= weir_table_used(table))
            continue;
        struct check_slot *slot =
            weir_check_slot_of(check, limiter, announce->slot);
        struct check_quota *quota = slot->quota;
        if (quota && quota->len == announce->name.len &&
            memcmp(quota->name, announce->name.p, quota->len) == 0)
            slot->sent[root].announced = report->number;
    }
}

/* A slot that is unknown to the root must be announced again. Until the root
 * has answered the announcement in this session, the limiter takes no fill of
 * the slot, since the fill may mean the slot's former owner. */
static void forget_unknown(struct weir_check *check, uint32_t limiter,
                           uint32_t root, const struct weir_fills *fills)
{
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    for (size_t i = 0; i < fills->unknown_count; i++) {
        if (fills->unknown[i] < weir_table_used(table))
            weir_check_slot_of(check, limiter, fills->unknown[i])
                ->sent[root]
                .announced = 0;
    }
}

static bool is_announced(const struct check_link *link,
                         const struct check_sent *sent)
{
    return sent->announced > 0 && sent->announced <= link->number;
}

/* Whether the limiter takes the message, as in counted/tally.c: it is the
 * answer that the limiter waits for, or not older than the last one. */
static bool is_taken(struct check_link *link, const struct weir_fills *fills)
{
    bool answer = fills->answer && fills->number == link->number + 1;
    if (!answer &&
        (fills->number != link->number || fills->stamp <= link->stamp))
        return false;
    link->number = fills->number;
    if (fills->stamp > link->stamp)
        link->stamp = fills->stamp;
    return true;
}

static void note_fill_answer(struct weir_check *check, uint32_t limiter,
                             struct check_link *link)
{
    weir_instant now = weir_check_limiter_now(check, limiter);
    if (silent_for(check, link, now) > PATIENCE)
        link->unruly_until = now + RULES_AGAIN;
    link->answered_at = now;
    link->answered_on = weir_fleet_now(check->fleet);
}

static void note_travel(struct weir_check *check, uint32_t limiter,
                        uint32_t root, uint32_t slot)
{
    const struct weir_limiter_cell *cell =
        weir_check_cell(check, root, limiter, slot);
    weir_instant born = weir_fleet_root(check->fleet, root)->merge.origin;
    weir_duration since = weir_check_root_now(check, root) - born;
    if (cell && since > cell->sent_at)
        check->travel = check->travel > since - cell->sent_at
                            ? check->travel
                            : since - cell->sent_at;
}

/* The room from which the slack was computed. */
static double room_of_slack(const struct check_quota *quota,
                            const struct weir_fill *fill)
{
    return quota->high - (double)fill->fill / WEIR_FILL_ONE;
}

/* Whether the slack exceeds half of the room that the fill leaves under the
 * rule. */
static bool has_too_much(const struct check_quota *quota,
                         const struct weir_fill *fill)
{
    return 2 * (double)fill->slack / WEIR_FILL_ONE >
           fmax(0, room_of_slack(quota, fill)) + CHECK_TOLERANCE;
}

/* The quota that the root's fill is about, if the root's name for the slot is
 * the checkers' name; NULL otherwise, for example if the slot has another owner
 * by now. */
static const struct check_quota *quota_of_fill(struct weir_check *check,
                                               uint32_t root, uint32_t limiter,
                                               uint32_t slot)
{
    const struct check_limiter *known = &check->limiters[limiter];
    const struct weir_limiter_cell *cell =
        weir_check_cell(check, root, limiter, slot);
    if (!cell || slot >= known->slot_count)
        return NULL;
    const struct check_quota *quota = known->slots[slot].quota;
    const struct weir_root_quota *root_quota =
        &weir_fleet_root(check->fleet, root)
             ->merge.root_quotas[cell->root_quota - 1];
    bool same = quota && quota->len == root_quota->name_len &&
                memcmp(quota->name, root_quota->name, quota->len) == 0;
    return same ? quota : NULL;
}

void weir_check_unseen_sent(struct weir_check *check, uint32_t root,
                            uint32_t limiter, const struct weir_fills *fills)
{
    if (!weir_check_root_follows(check, root))
        return;
    for (size_t i = 0; i < fills->count; i++) {
        const struct weir_fill *fill = &fills->fills[i];
        const struct check_quota *quota =
            fill->slack == UINT64_MAX
                ? NULL
                : quota_of_fill(check, root, limiter, fill->slot);
        if (!quota || !quota->judged || !has_too_much(quota, fill))
            continue;
        weir_check_fail(check, NAME,
                        "root%u lets limiter%u count %.3f units of \"%s\" "
                        "unseen, with room for %.3f",
                        root + 1, limiter + 1,
                        (double)fill->slack / WEIR_FILL_ONE, quota->name,
                        room_of_slack(quota, fill));
    }
}

void weir_check_unseen_fills(struct weir_check *check, uint32_t limiter,
                             uint32_t root, const struct weir_message *message)
{
    struct check_link *link = &check->limiters[limiter].link[root];
    const struct weir_fills *fills = &message->fills;
    uint64_t number = link->number;
    if (!is_of_session(check, limiter, root, message))
        return;
    link->backs_off = fills->report_backoff > 0;
    if (!is_taken(link, fills))
        return;
    if (link->number != number)
        weir_check_bounds_answered(check, limiter, root);
    if (fills->answer)
        note_fill_answer(check, limiter, link);
    const struct weir_limiter *node = weir_fleet_limiter(check->fleet, limiter);
    check->relied = weir_longer(check->relied, weir_limiter_relies(node, root));
    forget_unknown(check, limiter, root, fills);
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    for (size_t i = 0; i < fills->count; i++) {
        const struct weir_fill *fill = &fills->fills[i];
        if (fill->slot >= weir_table_used(table) || fill->slack == UINT64_MAX)
            continue;
        struct check_slot *slot =
            weir_check_slot_of(check, limiter, fill->slot);
        struct check_quota *quota = slot->quota;
        if (!quota || !quota->judged || !is_announced(link, &slot->sent[root]))
            continue;
        double slack = (double)fill->slack / WEIR_FILL_ONE;
        struct check_sent *sent = &slot->sent[root];
        /* Of a root that doesn't limit it, a limiter follows no fill. */
        if (slack_limits(check, limiter, root, slot))
            weir_check_agreement_received(check, limiter, root, fill, quota);
        note_travel(check, limiter, root, fill->slot);
        double more = beside(check, slot, limiter, fill->slot, root);
        weir_check_slack_receive(check, quota, sent, root, slack, more);
        if (has_too_much(quota, fill))
            quota->image[root].firm = false; /* of the rule before */
        if (fills->answer && more <= sent->slack + (double)quota->weight_most)
            weir_check_slack_set_loose(&quota->image[root], sent, false);
    }
}

/* ---- Passes ---- */

/* Age of a limiter's root fill, capped: paces are presumed for some report
 * intervals only. */
static weir_duration age_of(const struct weir_check *check,
                            const struct check_sent *sent)
{
    weir_duration age = weir_fleet_now(check->fleet) - sent->at + check->travel;
    return weir_shorter(age, check->relied);
}

void weir_check_unseen_passed(struct weir_check *check, uint32_t limiter,
                              uint32_t index, int64_t units, bool over_high)
{
    struct check_slot *slot = &check->limiters[limiter].slots[index];
    struct check_quota *quota = slot->quota;
    for (uint32_t r = 0; r < check->root_count; r++) {
        struct check_image *image = &quota->image[r];
        struct check_sent *sent = &slot->sent[r];
        struct check_held held;
        bool has = weir_check_root_bucket(check, r, quota, &held);
        if (has)
            weir_check_slack_presumed(image, held.presumed);
        image->unseen += units;
        if (!quota->judged || !check->slack_on)
            continue;
        if (has && sent->sent && units > 0 && !over_high &&
            slack_limits(check, limiter, r, slot)) {
            judge_truth(check, quota, r, &held, age_of(check, sent));
            if (!sent->loose)
                judge_slack(check, slot, limiter, index, r);
            continue;
        }
        weir_check_slack_set_loose(image, sent, true);
        image->firm = false;
    }
}

void weir_check_unseen_merged(struct weir_check *check,
                              struct check_quota *quota, uint32_t root,
                              int64_t units, bool doubt)
{
    weir_assert(root < check->root_count);
    (void)check;
    struct check_image *image = &quota->image[root];
    image->unseen -= units;
    if (doubt)
        image->firm = false;
}
