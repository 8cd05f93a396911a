/* SPDX-License-Identifier: MIT
 * lab/live_series.c - the state of a live run, as the series of run.h.
 *
 * Agents name the step of their counts, so it doesn't matter when the parent
 * reads them. Counts since an agent's last line are lost when it is killed: up
 * to a step of its passes is in the roots' counts and not in the series.
 *
 * The true fill is computed when all counts have come: one bucket for each
 * quota, moved once a sample by the units passed in it. So it is exact up to
 * the leak of one sample, and its maximum is that of the samples' ends. The
 * ideal limiter's decisions, and a limiter's fill of a quota that isn't the
 * tightest of its chain, are invisible from outside: they are NaN, for which no
 * condition holds. */

#include <math.h>

#include "lab/live.h"
#include "lab/memory.h"

/* ---- Quotas ---- */

size_t weir_live_quota_index(const struct weir_live *live, const char *name)
{
    struct weir_text text = weir_text_of(name);
    for (size_t i = 0; name && i < live->scenario->quota_count; i++)
        if (weir_text_equal(live->scenario->quotas[i].name, text))
            return i;
    return 0;
}

void weir_live_quota_set(struct weir_live_quota *state,
                         const struct weir_quota *quota, uint64_t epoch)
{
    state->quota = quota;
    state->epoch = epoch;
    state->limit_per_s = state->low = state->high = NAN;
    if (!quota || quota->limit.unlimited)
        return;
    uint64_t low;
    uint64_t high;
    weir_quota_bursts(quota, &low, &high);
    state->limit_per_s =
        (double)quota->limit.units / (double)quota->limit.per * WEIR_SECOND;
    state->low = (double)low;
    state->high = (double)high;
}

/* The parent's index, or SIZE_MAX. */
static size_t index_of_parent(const struct weir_live *live, size_t index)
{
    const struct weir_quota *quota = live->quotas[index].quota;
    for (size_t i = 0; quota && i < live->scenario->quota_count; i++)
        if (quota->parent.len > 0 &&
            weir_text_equal(live->scenario->quotas[i].name, quota->parent))
            return i;
    return SIZE_MAX;
}

/* ---- Counts ---- */

void weir_live_counted(void *context, uint32_t limiter, uint64_t sample,
                       const struct weir_live_counts *loads, uint64_t reports)
{
    (void)limiter;
    struct weir_live *live = context;
    if (sample >= weir_result_capacity(live->scenario))
        return;
    live->result->fleet[sample].reports += (double)reports;
    for (size_t i = 0; i < live->scenario->load_count; i++) {
        size_t quota = live->loads[i].quota;
        for (; quota != SIZE_MAX; quota = index_of_parent(live, quota)) {
            struct weir_quota_sample *samples = live->quotas[quota].samples;
            if (!samples)
                continue;
            struct weir_quota_sample *at = &samples[sample];
            at->offered += loads[i].offered;
            at->passed += loads[i].passed;
            at->refused += loads[i].refused;
        }
        live->result->takes += (uint64_t)loads[i].requests;
    }
}

void weir_live_looked(void *context, uint32_t root, uint64_t sample,
                      const double *fills)
{
    struct weir_live *live = context;
    for (size_t i = 0; i < live->scenario->quota_count; i++) {
        struct weir_live_quota *quota = &live->quotas[i];
        quota->root_fills[root] = fills[i];
        if (quota->samples)
            quota->samples[sample].root_fill =
                fmax(quota->samples[sample].root_fill, fills[i]);
    }
}

/* ---- States ---- */

/* The mean over the limiters that report it. */
static double mean_limiter_fill(const struct weir_live *live, size_t quota)
{
    double sum = 0;
    double count = 0;
    for (size_t i = 0; i < live->scenario->load_count; i++) {
        if (live->loads[i].quota != quota)
            continue;
        for (uint32_t k = 0; k < live->scenario->limiters; k++) {
            const struct weir_live_limiter *limiter =
                weir_live_limiter(live->fleet, k);
            if (!limiter->running || isnan(limiter->fills[i]))
                continue;
            sum += limiter->fills[i];
            count++;
        }
    }
    return sum / count; /* without any: NaN */
}

void weir_live_close(struct weir_live *live, size_t sample)
{
    for (size_t i = 0; i < live->scenario->quota_count; i++) {
        const struct weir_live_quota *quota = &live->quotas[i];
        if (!quota->samples)
            continue;
        struct weir_quota_sample *at = &quota->samples[sample];
        at->limit_per_s = quota->limit_per_s;
        at->low = quota->low;
        at->high = quota->high;
        at->limiter_fill = mean_limiter_fill(live, i);
    }
    struct weir_fleet_sample *fleet = &live->result->fleet[sample];
    uint64_t bytes = weir_live_bytes(live->fleet);
    fleet->bytes = (double)(bytes - live->bytes);
    live->bytes = bytes;
    for (uint32_t i = 0; i < live->scenario->limiters; i++) {
        const struct weir_live_limiter *limiter =
            weir_live_limiter(live->fleet, i);
        fleet->limiters += limiter->running;
        fleet->links += weir_live_links(live->fleet, i);
    }
    for (uint32_t i = 0; i < live->scenario->roots; i++)
        fleet->roots += weir_live_root_runs(live->fleet, i);
}

static void fill_samples(struct weir_quota_sample *samples, size_t count,
                         double step_s)
{
    double fill = 0;
    for (size_t i = 0; i < count; i++) {
        struct weir_quota_sample *at = &samples[i];
        if (isnan(at->limit_per_s))
            continue;
        double before = fill;
        fill = fmax(0, fill + at->passed - at->limit_per_s * step_s);
        at->fill = fill;
        at->fill_most = fmax(before, fill);
        at->over_high_most =
            fmax(0, at->fill_most - at->high) / at->limit_per_s;
        at->divergence = fabs(at->limiter_fill - fill);
    }
}

void weir_live_fill(struct weir_live *live)
{
    double step_s = (double)live->result->step / WEIR_SECOND;
    for (size_t i = 0; i < live->scenario->quota_count; i++)
        if (live->quotas[i].samples)
            fill_samples(live->quotas[i].samples, live->result->sample_count,
                         step_s);
}

/* ---- Quantities ---- */

static double links_up(const struct weir_live *live)
{
    double links = 0;
    for (uint32_t i = 0; i < live->scenario->limiters; i++)
        links += weir_live_links(live->fleet, i);
    return links;
}

static double limiters_ready(const struct weir_live *live)
{
    double ready = 0;
    for (uint32_t i = 0; i < live->scenario->limiters; i++) {
        const struct weir_live_limiter *limiter =
            weir_live_limiter(live->fleet, i);
        ready += limiter->running && limiter->settled;
    }
    return ready;
}

static double roots_running(const struct weir_live *live)
{
    double roots = 0;
    for (uint32_t i = 0; i < live->scenario->roots; i++)
        roots += weir_live_root_runs(live->fleet, i);
    return roots;
}

/* Of the limiters that run. */
static void epochs(const struct weir_live *live, uint64_t *oldest,
                   uint64_t *newest)
{
    *oldest = WEIR_NEVER;
    *newest = 0;
    for (uint32_t i = 0; i < live->scenario->limiters; i++) {
        const struct weir_live_limiter *limiter =
            weir_live_limiter(live->fleet, i);
        if (!limiter->running)
            continue;
        if (limiter->epoch < *oldest)
            *oldest = limiter->epoch;
        if (limiter->epoch > *newest)
            *newest = limiter->epoch;
    }
}

/* The largest and the smallest root's fill; NaN while a running root hasn't
 * reported. */
static double largest_fill(const struct weir_live *live, size_t quota,
                           double *smallest)
{
    double most = 0;
    *smallest = INFINITY;
    for (uint32_t i = 0; i < live->scenario->roots; i++) {
        double fill = live->quotas[quota].root_fills[i];
        if (!weir_live_root_runs(live->fleet, i))
            continue;
        if (isnan(fill))
            return NAN;
        most = fmax(most, fill);
        *smallest = fmin(*smallest, fill);
    }
    return isinf(*smallest) ? NAN : most;
}

double weir_live_quantity(const struct weir_live *live,
                          const struct weir_condition *condition)
{
    size_t index = weir_live_quota_index(live, condition->quota);
    const struct weir_live_quota *quota = &live->quotas[index];
    uint64_t oldest;
    uint64_t newest;
    double smallest;
    double most = largest_fill(live, index, &smallest);
    epochs(live, &oldest, &newest);
    switch (condition->quantity) {
    case WEIR_QUANTITY_FILL:
        return most;
    case WEIR_QUANTITY_SPREAD:
        return (most - smallest) / quota->limit_per_s;
    case WEIR_QUANTITY_OVER_HIGH:
        return NAN;
    case WEIR_QUANTITY_LIMIT:
        return oldest != WEIR_NEVER && oldest >= quota->epoch
                   ? quota->limit_per_s
                   : NAN;
    case WEIR_QUANTITY_READY:
        return limiters_ready(live);
    case WEIR_QUANTITY_LINKS:
        return links_up(live);
    case WEIR_QUANTITY_ROOTS:
        return roots_running(live);
    case WEIR_QUANTITY_EPOCHS:
        return newest > oldest ? (double)(newest - oldest) : 0;
    }
    return NAN;
}

/* ---- Start ---- */

/* A sample without counts; its other values are unknown yet, or always. */
static const struct weir_quota_sample unseen = { .ideal_passed = NAN,
                                                 .ideal_refused = NAN,
                                                 .limit_per_s = NAN,
                                                 .low = NAN,
                                                 .high = NAN,
                                                 .fill = NAN,
                                                 .fill_most = NAN,
                                                 .over_high_most = NAN,
                                                 .root_fill = NAN,
                                                 .limiter_fill = NAN,
                                                 .divergence = NAN };

void weir_live_series_init(struct weir_live *live)
{
    const struct weir_scenario *scenario = live->scenario;
    const struct weir_result *result = live->result;
    live->quotas =
        weir_must_zeroed(scenario->quota_count, sizeof *live->quotas);
    for (size_t i = 0; i < scenario->quota_count; i++) {
        /* A limiter is at some epoch when it has all of the first quotas. */
        weir_live_quota_set(&live->quotas[i], &scenario->quotas[i], 1);
        for (uint32_t k = 0; k < WEIR_LIVE_ROOTS_MAX; k++)
            live->quotas[i].root_fills[k] = NAN;
    }
    for (size_t i = 0; i < result->quota_count; i++) {
        const struct weir_quota_series *series = &result->quotas[i];
        live->quotas[weir_live_quota_index(live, series->name)].samples =
            series->samples;
        for (size_t k = 0; k < weir_result_capacity(scenario); k++)
            series->samples[k] = unseen;
    }
    for (size_t i = 0; i < weir_result_capacity(scenario); i++)
        result->fleet[i] = (struct weir_fleet_sample){
            .messages = NAN,
            .waiting_bytes = NAN,
            .unseen_share = NAN,
        };
}
