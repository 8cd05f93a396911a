/* SPDX-License-Identifier: MIT
 * lab/check_agreement.c - limiters hold the fills that roots send, and in the
 * end roots and limiters agree with the truth.
 *
 * Whenever a limiter takes the fill of a root that limits it, its bucket holds
 * that fill and the units counted since, or more (another root may have told
 * more).
 *
 * When the network is whole and no requests are made, within WEIR_CHECK_SETTLE
 *
 *     every limiter has an answer to all its reports and the store's newest
 *         quotas
 *     every root holds the true bucket, if no doubt about the quota ever
 *         arose: not less, and more only by the units that leaked from the
 *         truth while counts were in transit
 *     every limiter that a root has sent a fill since holds that root's bucket,
 *         up to changes too small to send, either way: the grain of the room;
 *         unless the root is overloaded and another one isn't
 *
 * A doubt arises when a living root can no longer know all units: counts that
 * died with a limiter before that root heard of them (another root may have),
 * roots that died and learnt fills from limiters, late counts, and refunds of
 * units that another bucket holds. */

#include "lab/check_internal.h"

#define NAME "agreement"

/* The limiter has just taken the root's fill. */
void weir_check_agreement_received(struct weir_check *check, uint32_t limiter,
                                   uint32_t root, const struct weir_fill *fill,
                                   const struct check_quota *quota)
{
    const struct weir_limiter_cell *cell =
        weir_check_cell(check, root, limiter, fill->slot);
    struct weir_slot_view view;
    weir_table_view(weir_fleet_table(check->fleet, limiter), fill->slot, &view,
                    weir_check_limiter_now(check, limiter));
    if (!cell || view.sharing != WEIR_COUNTED || view.unlimited ||
        quota->refunded > 0)
        return;
    /* Units counted since the root's fill, or a little more. */
    double since = fmax(0, (double)(int64_t)(view.count - cell->last));
    double least = (double)fill->fill / WEIR_FILL_ONE + since;
    double own = ldexp((double)view.fill, -view.bucket.leak.frac);
    if (own < least - CHECK_TOLERANCE)
        weir_check_fail(
            check, NAME,
            "limiter%u holds %.3f units of \"%s\", was just told %.3f "
            "by root%u, and has counted %.0f since",
            limiter + 1, own, quota->name, (double)fill->fill / WEIR_FILL_ONE,
            root + 1, since);
}

static bool is_linked_to_all(struct weir_check *check, uint32_t limiter)
{
    uint32_t linked = 0;
    for (uint32_t r = 0; r < check->root_count; r++)
        linked += weir_fleet_linked(check->fleet, limiter, r);
    return linked > 0 && linked == check->root_count;
}

static void check_settled(struct weir_check *check, uint32_t limiter)
{
    const struct weir_limiter *node = weir_fleet_limiter(check->fleet, limiter);
    check->stats.ends++;
    if (!weir_limiter_settled(node))
        weir_check_fail(check, NAME,
                        "in the end limiter%u has counts that aren't answered",
                        limiter + 1);
    if (weir_limiter_epoch(node) != check->epoch)
        weir_check_fail(
            check, NAME,
            "in the end limiter%u is at epoch %llu, the store at %llu",
            limiter + 1, (unsigned long long)weir_limiter_epoch(node),
            (unsigned long long)check->epoch);
}

static void check_root_fill(struct weir_check *check, struct check_quota *quota,
                            uint32_t root)
{
    struct check_held held;
    if (!quota->clean || !quota->judged ||
        !weir_check_root_follows(check, root) ||
        !weir_check_root_bucket(check, root, quota, &held))
        return;
    double truth = weir_check_truth(check, quota);
    /* Before an edit the quota may have leaked faster. */
    double late =
        quota->per_ns_most * (double)(check->lateness + check->behind);
    double off = weir_check_ahead(check, quota);
    check->stats.ends++;
    if (held.fill < truth - off - quota->image[root].over - CHECK_TOLERANCE ||
        held.fill > truth + late + CHECK_TOLERANCE)
        weir_check_fail(check, NAME,
                        "in the end root%u holds %.3f units of \"%s\", and the "
                        "truth is %.3f",
                        root + 1, held.fill, quota->name, truth);
}

static double read_limiter_fill(struct weir_check *check, uint32_t limiter,
                                uint32_t slot)
{
    struct weir_slot_view view;
    weir_table_view(weir_fleet_table(check->fleet, limiter), slot, &view,
                    weir_check_limiter_now(check, limiter));
    return ldexp((double)view.fill, -view.bucket.leak.frac);
}

static void check_limiter_fill(struct weir_check *check, uint32_t limiter,
                               uint32_t index)
{
    struct check_slot *slot = weir_check_slot_of(check, limiter, index);
    struct check_quota *quota = slot->quota;
    if (!quota || !quota->clean || !quota->judged || check->extrapolates)
        return;
    double own = read_limiter_fill(check, limiter, index);
    double most = 0;
    for (uint32_t r = 0; r < check->root_count; r++) {
        const struct check_sent *sent = &slot->sent[r];
        struct check_held held;
        if (!sent->sent || sent->at < check->lost_at ||
            !weir_check_root_bucket(check, r, quota, &held))
            return;
        double untold = quota->high / WEIR_ROOM_GRAINS + CHECK_TOLERANCE +
                        weir_check_ahead(check, quota);
        most = fmax(most, held.fill + untold);
        check->stats.ends++;
        if (own < held.fill - untold &&
            !weir_check_passed_over(check, limiter, r, slot))
            weir_check_fail(
                check, NAME,
                "in the end limiter%u holds %.3f units of \"%s\", and "
                "root%u, which has told it, %.3f",
                limiter + 1, own, quota->name, r + 1, held.fill);
    }
    /* The limiter can't know how long the fill was in transit. */
    double off = quota->per_ns_most * (double)(check->lateness + check->behind);
    if (own > most + off)
        weir_check_fail(
            check, NAME,
            "in the end limiter%u holds %.3f units of \"%s\", and no "
            "root more than %.3f",
            limiter + 1, own, quota->name, most);
}

void weir_check_agreement_end(struct weir_check *check)
{
    for (uint32_t l = 0; l < check->limiter_count; l++) {
        if (!weir_fleet_limiter(check->fleet, l) || !is_linked_to_all(check, l))
            continue;
        check_settled(check, l);
        uint32_t used = weir_table_used(weir_fleet_table(check->fleet, l));
        for (uint32_t slot = 0; slot < used; slot++)
            check_limiter_fill(check, l, slot);
    }
    for (size_t i = 0; i < check->quota_count; i++) {
        for (uint32_t r = 0; r < check->root_count; r++)
            check_root_fill(check, check->quotas[i], r);
    }
}
