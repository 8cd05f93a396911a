/* SPDX-License-Identifier: MIT
 * lab/quantity.c - a fleet's present state, for the expectations during a run;
 * see run_internal.h. No side effects. */

#include <math.h>

#include "lab/run_internal.h"

/* ---- Fills ---- */

double weir_largest_root_fill(const struct weir_run *run, struct weir_text name)
{
    double most = NAN;
    for (uint32_t i = 0; i < run->scenario->roots; i++) {
        if (weir_fleet_alive(run->fleet, weir_root_place(i)))
            most = fmax(most, weir_fleet_root_fill(run->fleet, i, name));
    }
    return most;
}

static double smallest_root_fill(const struct weir_run *run,
                                 struct weir_text name)
{
    double least = NAN;
    for (uint32_t i = 0; i < run->scenario->roots; i++) {
        if (weir_fleet_alive(run->fleet, weir_root_place(i)))
            least = fmin(least, weir_fleet_root_fill(run->fleet, i, name));
    }
    return least;
}

/* The slot of that name, if the limiter runs and has a quota there. */
static bool view_of_limiter(const struct weir_run *run, uint32_t limiter,
                            struct weir_text name, struct weir_slot_view *out)
{
    struct weir_table *table = weir_fleet_table(run->fleet, limiter);
    struct weir_ref ref;
    if (!table || !weir_table_find(table, name, &ref))
        return false;
    weir_table_view(
        table, ref.slot, out,
        weir_fleet_clock_of(run->fleet, weir_limiter_place(limiter)));
    return out->state >= WEIR_SLOT_QUOTA;
}

bool weir_limiter_belief(const struct weir_run *run, uint32_t limiter,
                         struct weir_text name, double *out_fill)
{
    struct weir_slot_view view;
    if (!view_of_limiter(run, limiter, name, &view))
        return false;
    *out_fill =
        view.unlimited ? 0 : ldexp((double)view.fill, -view.bucket.leak.frac);
    return true;
}

/* ---- Limits ---- */

static double leak_per_second(struct weir_leak leak)
{
    double scaled = (double)leak.whole + ldexp((double)leak.part, -64);
    return ldexp(scaled * 1e9, -leak.frac);
}

/* The limit of all running limiters; NaN while they differ, or one doesn't have
 * the quota. */
static double limit_in_force(const struct weir_run *run, struct weir_text name)
{
    double found = NAN;
    for (uint32_t i = 0; i < run->scenario->limiters; i++) {
        struct weir_slot_view view;
        if (!weir_fleet_alive(run->fleet, weir_limiter_place(i)))
            continue;
        if (!view_of_limiter(run, i, name, &view) || view.unlimited)
            return NAN;
        double limit = leak_per_second(view.bucket.leak);
        if (!isnan(found) && limit != found)
            return NAN;
        found = limit;
    }
    return found;
}

/* ---- Counts ---- */

uint32_t weir_count_links(const struct weir_run *run)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->scenario->limiters; i++) {
        for (uint32_t k = 0; k < run->scenario->roots; k++)
            count += weir_fleet_linked(run->fleet, i, k);
    }
    return count;
}

uint32_t weir_count_alive(const struct weir_run *run, bool roots)
{
    uint32_t count = 0;
    uint32_t of = roots ? run->scenario->roots : run->scenario->limiters;
    for (uint32_t i = 0; i < of; i++)
        count += weir_fleet_alive(run->fleet, roots ? weir_root_place(i)
                                                    : weir_limiter_place(i));
    return count;
}

uint32_t weir_count_ready(const struct weir_run *run)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->scenario->limiters; i++) {
        const struct weir_limiter *limiter = weir_fleet_limiter(run->fleet, i);
        count += limiter && weir_limiter_ready(limiter);
    }
    return count;
}

static double epochs_apart(const struct weir_run *run)
{
    uint64_t oldest = UINT64_MAX, newest = 0;
    for (uint32_t i = 0; i < run->scenario->limiters; i++) {
        const struct weir_limiter *limiter = weir_fleet_limiter(run->fleet, i);
        if (!limiter)
            continue;
        uint64_t epoch = weir_limiter_epoch(limiter);
        oldest = epoch < oldest ? epoch : oldest;
        newest = epoch > newest ? epoch : newest;
    }
    return newest >= oldest ? (double)(newest - oldest) : 0;
}

/* Between the roots, in seconds of the limit. */
static double fill_spread(struct weir_run *run, struct weir_text name)
{
    const struct weir_quota *quota =
        weir_catalog_find(weir_fleet_catalog(run->fleet), name, NULL);
    if (!quota || quota->limit.unlimited || quota->limit.units == 0)
        return NAN;
    double per_s = (double)quota->limit.units * (double)WEIR_SECOND /
                   (double)quota->limit.per;
    return (weir_largest_root_fill(run, name) - smallest_root_fill(run, name)) /
           per_s;
}

/* Of a template: over all its instances. */
static double most_over_high(struct weir_run *run, struct weir_text name)
{
    double most = 0;
    const struct weir_truth_bucket *bucket;
    for (size_t i = 0; (bucket = weir_truth_at(run->truth, i)) != NULL; i++) {
        if (weir_truth_is_of(bucket, name))
            most = fmax(most, bucket->over_high_most);
    }
    return most;
}

double weir_quantity_now(struct weir_run *run, enum weir_quantity quantity,
                         const char *quota)
{
    struct weir_text name =
        weir_text_of(weir_quota_meant(run->scenario, quota));
    switch (quantity) {
    case WEIR_QUANTITY_FILL:
        return weir_largest_root_fill(run, name);
    case WEIR_QUANTITY_SPREAD:
        return fill_spread(run, name);
    case WEIR_QUANTITY_OVER_HIGH:
        return most_over_high(run, name);
    case WEIR_QUANTITY_LIMIT:
        return limit_in_force(run, name);
    case WEIR_QUANTITY_READY:
        return weir_count_ready(run);
    case WEIR_QUANTITY_LINKS:
        return weir_count_links(run);
    case WEIR_QUANTITY_ROOTS:
        return weir_count_alive(run, true);
    case WEIR_QUANTITY_EPOCHS:
        return epochs_apart(run);
    }
    return NAN;
}
