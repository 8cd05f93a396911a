/* SPDX-License-Identifier: MIT
 * lab/check_conservation.c - no count is lost and none is doubled.
 *
 * Three statements, each exact:
 *
 *   cells    a root's total of a limiter's slot is never above the table's
 *            count (a report counted twice would be); in the end, if both run
 *            and are linked, the two are equal
 *   sums     a root's total of passed units rises by the sum of its cells'
 *            rises
 *   buckets  a root's bucket moves by its reported units and its leak, and by
 *            nothing else: an image of each is kept, by plain arithmetic, on
 *            the root's own clock. Presumed units come on top, so the image
 *            may be below 0, but never the image and the presumed units
 *            together
 *
 * Five intended deviations are allowed. Late counts fill a bucket but put no
 * limiter into debt: the image takes over the root's value between adding none
 * of them and filling the bucket. A cold root takes over fills from limiters,
 * so it may hold more. An edit keeps units, up to high and one limiter's debt
 * under the new rule. Units that a root counts as beyond a limiter's debt are
 * in no bucket; a root counts none as beyond while the bucket with them would
 * hold less than such a debt. A clock that is set back makes a bucket fuller. A
 * root without the store's newest edits, because it is paused, isn't judged
 * until it has them. */

#include "lab/check_internal.h"

#define NAME "conservation"

/* ---- Reports ---- */

static const struct weir_root_quota *root_quota_of_cell(
    struct weir_check *check, uint32_t root,
    const struct weir_limiter_cell *cell)
{
    return &weir_fleet_root(check->fleet, root)
                ->merge.root_quotas[cell->root_quota - 1];
}

/* The quota of the root's limiter cell. */
static struct check_quota *quota_of_cell(struct weir_check *check,
                                         uint32_t root,
                                         const struct weir_limiter_cell *cell)
{
    const struct weir_root_quota *root_quota =
        root_quota_of_cell(check, root, cell);
    return weir_check_quota_of(
        check, (struct weir_text){ root_quota->name, root_quota->name_len });
}

static const struct weir_announce *announce_of(const struct weir_report *report,
                                               uint32_t slot)
{
    for (size_t i = 0; i < report->announce_count; i++) {
        if (report->announces[i].slot == slot)
            return &report->announces[i];
    }
    return NULL;
}

/* Whether a cold root may have taken over the limiter's fill. */
static bool adopts(struct weir_check *check, uint32_t index,
                   const struct weir_announce *announce)
{
    const struct weir_merge *merge =
        &weir_fleet_root(check->fleet, index)->merge;
    weir_instant now = weir_check_root_now(check, index);
    bool young = now <= merge->origin || now - merge->origin <= merge->learn;
    return young && announce && announce->fill > 0;
}

/* A root that dropped a limiter's cells while the limiter was away and its
 * buckets were empty knows none of its counts. The limiter reports the
 * unanswered ones again, as late counts, so they add nothing. */
void weir_check_conservation_hello(struct weir_check *check, uint32_t root,
                                   uint32_t limiter)
{
    struct check_limiter *known = &check->limiters[limiter];
    for (uint32_t s = 0; s < known->slot_count; s++) {
        const struct weir_limiter_cell *cell =
            weir_check_cell(check, root, limiter, s);
        struct check_sent *sent = &known->slots[s].sent[root];
        sent->pace = cell ? cell->pace : 0;
        if (!cell)
            sent->created = 0;
    }
}

/* Units that the report must have brought for the slot: its count less the
 * root's former count or, for a slot new to the root, less the announced count.
 * False: unknown. */
static bool foreseen(struct check_sent *sent,
                     const struct weir_root_quota *root_quota,
                     const struct weir_limiter_cell *cell,
                     const struct weir_announce *announce, int64_t *out_units)
{
    bool known = sent->created == root_quota->created;
    uint64_t received = sent->received;
    if (announce && (!known || (int64_t)(announce->base - received) > 0))
        received = announce->base;
    sent->received = cell->last;
    sent->created = root_quota->created;
    *out_units = (int64_t)(cell->last - received);
    /* Less than before: the slot has begun another life. */
    return (known || announce) && *out_units >= 0;
}

/* How a root may have counted a report's units of a slot. */
struct taking {
    bool sure; /* it brought 'units', for certain */
    int64_t units;
    uint64_t quicker; /* increase of its pace … */
    bool silent;      /* … which the root had perhaps stopped presuming */
    bool alone;       /* no other limiter has a cell, and this one is
                       * announced */
    bool late;        /* some units may count as drained */
    bool capped;      /* they put no limiter into debt */
    bool adopted;     /* the root may have taken over the limiter's fill */
};

/* Whether the root removed an unused bucket and made it again. Then its total
 * of passed units is less than before, or equals the count of its only limiter,
 * which has just announced it. */
static bool is_made_again(const struct taking *taking, uint64_t before,
                          uint64_t passed)
{
    if (passed < before)
        return true;
    return taking->sure && taking->alone &&
           (int64_t)(passed - before) != taking->units &&
           (int64_t)passed == taking->units;
}

/* No limiter has put more into a bucket than the bucket holds, unless another
 * limiter took some back. */
static void check_beyond(struct weir_check *check, uint32_t root,
                         const struct check_quota *quota, double with_all,
                         uint64_t beyond)
{
    if (beyond > 0 && quota->refunded == 0 && quota->image[root].sure &&
        with_all < quota->debt - CHECK_TOLERANCE)
        weir_check_fail(check, NAME,
                        "root%u says that %llu units of \"%s\" are beyond a "
                        "debt of %.3f, and with them it would hold %.3f",
                        root + 1, (unsigned long long)beyond, quota->name,
                        quota->debt, with_all);
}

/* Judges the bucket after the report. */
static void check_bucket(struct weir_check *check, uint32_t root,
                         struct check_quota *quota, const struct taking *taking)
{
    struct check_image *image = &quota->image[root];
    struct check_held held;
    if (!weir_check_root_bucket(check, root, quota, &held))
        return;
    bool sure = weir_check_image_advance(check, root, quota);
    if (!image->seen) {
        image->bucket.fill = image->presumed = 0;
        image->passed = image->beyond_debt = image->pace = 0;
    }
    image->pace += taking->quicker;
    int64_t units = (int64_t)(held.passed - image->passed);
    bool again = is_made_again(taking, image->passed, held.passed);
    if (taking->sure && !again && units != taking->units)
        weir_check_fail(check, NAME,
                        "after a report, root%u says that %lld units more of "
                        "\"%s\" have passed, and it heard of %lld",
                        root + 1, (long long)units, quota->name,
                        (long long)taking->units);
    uint64_t beyond = held.beyond_debt - (again ? 0 : image->beyond_debt);
    double before = image->bucket.fill;
    check_beyond(check, root, quota, before + (double)units, beyond);
    double after = before + (double)(units - (int64_t)beyond);
    struct check_span span = { after, after };
    if (taking->late)
        span.least = fmin(before, after);
    if (taking->capped)
        span.most = fmin(after, fmax(before, quota->high));
    if (taking->adopted)
        span.most = INFINITY;
    sure &= !again && !taking->silent && quota->ruled;
    weir_check_image_compare(check, root, quota, sure ? span : CHECK_ANYTHING,
                             weir_check_image_grain(quota), "after a report");
    bool doubt =
        taking->late || taking->capped || taking->adopted || beyond > 0;
    if (doubt)
        quota->clean = false;
    weir_check_unseen_merged(check, quota, root, units, doubt || again);
}

static void check_count(struct weir_check *check, uint32_t root,
                        uint32_t limiter, const struct weir_report *report,
                        const struct weir_count *count)
{
    const struct weir_limiter_cell *cell =
        weir_check_cell(check, root, limiter, count->slot);
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    if (!cell || !table || count->slot >= weir_table_used(table))
        return;
    struct check_quota *quota = quota_of_cell(check, root, cell);
    uint64_t passed = weir_table_count(table, count->slot);
    int64_t more = (int64_t)(cell->last - passed);
    if (more > (int64_t)quota->refunded)
        weir_check_fail(
            check, NAME,
            "root%u counts %lld units of \"%s\" that limiter%u never "
            "let through",
            root + 1, (long long)more, quota->name, limiter + 1);
    const struct weir_announce *announce = announce_of(report, count->slot);
    struct check_sent *sent =
        &weir_check_slot_of(check, limiter, count->slot)->sent[root];
    bool capped = report->late_from > 0;
    struct taking taking = {
        .quicker = cell->pace - sent->pace,
        .silent = sent->pace != 0 &&
                  weir_check_root_now(check, root) - sent->paced_at >=
                      check->pace_good,
        .alone =
            announce && root_quota_of_cell(check, root, cell)->cell_count == 1,
        .late = capped || count->late > 0,
        .capped = capped,
        .adopted = adopts(check, root, announce),
    };
    taking.sure = foreseen(sent, root_quota_of_cell(check, root, cell), cell,
                           announce, &taking.units);
    sent->pace = cell->pace;
    sent->paced_at = weir_check_root_now(check, root);
    check_bucket(check, root, quota, &taking);
}

void weir_check_conservation_report(struct weir_check *check, uint32_t root,
                                    uint32_t limiter,
                                    const struct weir_report *report)
{
    check->stats.reports += report->count;
    for (size_t i = 0; i < report->count; i++)
        check_count(check, root, limiter, report, &report->counts[i]);
}

/* ---- The end ---- */

/* A root knows all counts of each running limiter that is linked to it. */
static void check_known(struct weir_check *check, uint32_t root,
                        uint32_t limiter)
{
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    uint32_t used = weir_table_used(table);
    for (uint32_t slot = 0; slot < used; slot++) {
        struct check_slot *entry = weir_check_slot_of(check, limiter, slot);
        const struct weir_limiter_cell *cell =
            weir_check_cell(check, root, limiter, slot);
        uint64_t count = weir_table_count(table, slot);
        struct check_quota *quota =
            cell ? quota_of_cell(check, root, cell) : NULL;
        if (!quota || quota != entry->quota)
            continue;
        check->stats.ends++;
        if (cell->last != count)
            weir_check_fail(
                check, NAME,
                "in the end root%u has heard of %llu units of \"%s\" "
                "from limiter%u, which let %llu through",
                root + 1, (unsigned long long)cell->last, quota->name,
                limiter + 1, (unsigned long long)count);
    }
}

void weir_check_conservation_end(struct weir_check *check)
{
    for (uint32_t l = 0; l < check->limiter_count; l++) {
        if (!weir_fleet_limiter(check->fleet, l))
            continue;
        for (uint32_t r = 0; r < check->root_count; r++) {
            if (weir_fleet_linked(check->fleet, l, r))
                check_known(check, r, l);
        }
    }
}
