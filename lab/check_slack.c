/* SPDX-License-Identifier: MIT
 * lab/check_slack.c - the allowances of limiters: the slacks that each root has
 * sent them, and the ceiling that follows (the proof is in check_unseen.c). */

#include "lab/check_internal.h"

/* Units presumed in excess while the bucket was empty have leaked
 * nevertheless. */
void weir_check_slack_presumed(struct check_image *image, double presumed)
{
    image->over = fmax(image->over, presumed - (double)image->unseen);
}

double weir_check_slack_bound(const struct check_quota *quota,
                              const struct check_image *image)
{
    return quota->high + quota->high / WEIR_ROOM_GRAINS + image->slack +
           (double)image->sent * (double)quota->weight_most + image->over;
}

void weir_check_slack_settle(struct weir_check *check,
                             struct check_quota *quota,
                             struct check_image *image)
{
    weir_check_leak(&image->ceiling, quota->per_ns,
                    weir_fleet_now(check->fleet));
    image->ceiling.fill =
        fmax(image->ceiling.fill, weir_check_slack_bound(quota, image));
}

void weir_check_slack_doubt(struct check_quota *quota)
{
    for (uint32_t r = 0; r < WEIR_ROOTS_MAX; r++)
        quota->image[r].firm = false;
}

int64_t weir_check_slack_unheard(struct weir_check *check,
                                 const struct check_slot *slot,
                                 uint32_t limiter, uint32_t index,
                                 uint32_t root)
{
    const struct weir_limiter_cell *cell =
        weir_check_cell(check, root, limiter, index);
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    uint64_t received = cell ? cell->last : weir_table_settled(table, index);
    return (int64_t)(slot->count - received);
}

void weir_check_slack_set_loose(struct check_image *image,
                                struct check_sent *sent, bool loose)
{
    weir_assert(loose || !sent->loose || image->loose > 0);
    image->loose += (uint32_t)loose - (uint32_t)sent->loose;
    sent->loose = loose;
}

void weir_check_slack_withdraw(struct weir_check *check,
                               struct check_quota *quota,
                               struct check_sent *sent, uint32_t root)
{
    struct check_image *image = &quota->image[root];
    if (!sent->sent)
        return;
    weir_check_slack_settle(check, quota, image);
    image->slack -= sent->slack;
    weir_assert(image->sent > 0);
    image->sent--;
    sent->sent = false;
}

void weir_check_slack_receive(struct weir_check *check,
                              struct check_quota *quota,
                              struct check_sent *sent, uint32_t root,
                              double slack, double beside)
{
    struct check_image *image = &quota->image[root];
    weir_check_slack_withdraw(check, quota, sent, root);
    weir_check_slack_settle(check, quota, image);
    sent->sent = true;
    sent->at = weir_fleet_now(check->fleet);
    sent->slack = fmax(1, 2 * slack);
    sent->held = fmax(sent->slack, beside);
    image->slack += sent->slack;
    image->sent++;
    weir_assert(image->sent > 0 && sent->slack >= 1);
}

/* Whether counts that die with the limiter may be unknown to a root for good.
 * Counts that another root answered are settled. But a root whose link was cut
 * by then never heard of them: roots don't report to each other, and the
 * limiter comes back with nothing. */
static bool dies_unheard(struct weir_check *check,
                         const struct check_slot *slot, uint32_t limiter,
                         uint32_t index, uint32_t root)
{
    if (weir_check_cell(check, root, limiter, index))
        return weir_check_slack_unheard(check, slot, limiter, index, root) != 0;
    return slot->count != slot->sent[root].received;
}

void weir_check_slack_slot_ends(struct weir_check *check,
                                struct check_slot *slot, uint32_t limiter,
                                uint32_t index, bool died)
{
    struct check_quota *quota = slot->quota;
    for (uint32_t r = 0; quota && r < check->root_count; r++) {
        struct check_image *image = &quota->image[r];
        weir_check_slack_withdraw(check, quota, &slot->sent[r], r);
        weir_check_slack_set_loose(image, &slot->sent[r], false);
        if (!died || !dies_unheard(check, slot, limiter, index, r))
            continue;
        image->unseen -=
            weir_check_slack_unheard(check, slot, limiter, index, r);
        image->firm = false;
        quota->clean = false;
    }
}
