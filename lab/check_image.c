/* SPDX-License-Identifier: MIT
 * lab/check_image.c - an image of each root's bucket, by plain arithmetic, on
 * the root's own clock: the state that the bucket must have (the statement
 * "buckets" of check_conservation.c). */

#include "lab/check_internal.h"

#define NAME "conservation"

double weir_check_image_grain(const struct check_quota *quota)
{
    return ldexp(2, -quota->rule.leak.frac) + 1e-6 * quota->high;
}

void weir_check_image_compare(struct weir_check *check, uint32_t root,
                              struct check_quota *quota, struct check_span span,
                              double tolerance, const char *when)
{
    weir_assert(span.least <= span.most && tolerance >= 0);
    struct check_image *image = &quota->image[root];
    struct check_held held;
    if (!weir_check_root_bucket(check, root, quota, &held)) {
        image->seen = false;
        image->passed = image->beyond_debt = 0;
        return;
    }
    /* A root stops presuming units of limiters that left or fell silent; it
     * notices an empty bucket only at its next look. Until then the bucket's
     * sums grow from below 0. */
    if (held.pace != image->pace)
        span = CHECK_ANYTHING;
    if (held.pace != image->pace || (held.below && span.most == INFINITY))
        image->sure = false;
    /* A bucket without a limit holds nothing, however many units passed. */
    if (quota->rule.high == WEIR_SCALED_MAX)
        span = CHECK_ANYTHING;
    /* The bucket with the presumed units is never below 0. */
    double least = fmax(0, span.least + held.presumed);
    double most = fmax(0, span.most + held.presumed);
    if (held.fill < least - tolerance || held.fill > most + tolerance)
        weir_check_fail(
            check, NAME,
            "%s, root%u holds %.3f units of \"%s\", and should hold "
            "%.3f .. %.3f, %.3f of it presumed",
            when, root + 1, held.fill, quota->name, least, most, held.presumed);
    /* Takes over the root's value, so that roundings don't add up. */
    image->bucket.fill = held.fill - held.presumed;
    image->passed = held.passed;
    image->beyond_debt = held.beyond_debt;
    image->presumed = held.presumed;
    image->pace = held.pace;
    image->seen = true;
}

bool weir_check_image_advance(struct weir_check *check, uint32_t root,
                              struct check_quota *quota)
{
    weir_assert(root < check->root_count);
    struct check_root *known = &check->root[root];
    weir_instant now = weir_check_root_now(check, root);
    bool back = now < known->latest;
    if (now > known->latest)
        known->latest = now;
    struct check_image *image = &quota->image[root];
    struct check_bucket *bucket = &image->bucket;
    double age = (double)(int64_t)(now - bucket->at);
    bucket->fill -= quota->per_ns * age;
    bucket->at = now;
    image->presumed += check_paced(image->pace, age);
    weir_check_slack_presumed(image, image->presumed);
    bucket->fill = fmax(bucket->fill, -image->presumed);
    bool was_sure = image->sure;
    image->sure = !back && weir_check_root_follows(check, root);
    return image->sure && (was_sure || !image->seen);
}

void weir_check_image_turn(struct weir_check *check)
{
    if (check->quota_count == 0 || check->root_count == 0)
        return;
    uint64_t turn = check->turn++;
    uint32_t root = (uint32_t)(turn % check->root_count);
    struct check_quota *quota =
        check->quotas[turn / check->root_count % check->quota_count];
    struct check_image *image = &quota->image[root];
    if (!quota->ruled || !weir_fleet_root(check->fleet, root))
        return;
    bool sure = weir_check_image_advance(check, root, quota) && image->seen;
    struct check_span as_it_was = { image->bucket.fill, image->bucket.fill };
    weir_check_image_compare(check, root, quota,
                             sure ? as_it_was : CHECK_ANYTHING,
                             weir_check_image_grain(quota), "untouched");
}

double weir_check_edited(double fill, double before, double high)
{
    double debt = fmax(0, fill - before);
    return fmin(fill - debt, high) + debt;
}

void weir_check_image_edit(struct weir_check *check, struct check_quota *quota,
                           bool another, double high, double most)
{
    for (uint32_t r = 0; r < check->root_count; r++) {
        struct check_image *image = &quota->image[r];
        if (!weir_fleet_root(check->fleet, r))
            continue;
        bool sure = weir_check_image_advance(check, r, quota) && image->seen;
        double presumed = image->presumed;
        double fill =
            weir_check_edited(image->bucket.fill + presumed, quota->high, high);
        fill = fmin(fill - presumed, most);
        if (fill < image->bucket.fill)
            quota->clean = false;
        struct check_span kept = { fill, fill };
        if (another)
            kept = (struct check_span){ -INFINITY, -INFINITY };
        weir_check_image_compare(check, r, quota,
                                 sure && quota->ruled ? kept : CHECK_ANYTHING,
                                 CHECK_TOLERANCE, "after an edit");
        if (another)
            image->unseen = 0;
        /* A paused root goes on leaking by the former rule. */
        if (!weir_check_root_follows(check, r))
            quota->clean = false;
    }
    /* Limiters that never saw the removal report their remaining units of the
     * former quota to the new one. */
    if (another && quota->total > 0)
        quota->clean = false;
}
