/* SPDX-License-Identifier: MIT
 * lab/metric.c - measures computed from the series; see run.h.
 *
 * A window is converted to the samples that lie completely in it. Rates are
 * judged over whole bins, as parts of the limit at that time, so an edit of the
 * limit isn't an oscillation. A measure "against" another limit is divided by
 * that limit.
 *
 * The period of an oscillation comes from the samples: the mean time from one
 * rise over the mean to the next. A rise counts when the passing rate has been
 * half a standard deviation below the mean and is half of one above it, so that
 * noise around the mean doesn't count. */

#include <math.h>

#include "lab/memory.h"
#include "lab/run.h"

/* A measure's input. */
struct view {
    const struct weir_quota_sample *samples;
    const struct weir_fleet_sample *fleet;
    size_t from, to; /* samples: from .. to - 1 */
    double step_s;
    double against_per_s; /* 0: the quota's limit */
    double from_s;        /* of the window */
};

/* ---- Sums and means ---- */

static double sample_units(const struct weir_quota_sample *sample,
                           size_t offset)
{
    return *(const double *)(const void *)((const char *)sample + offset);
}

static double sum_of(const struct view *view, size_t offset)
{
    double sum = 0;
    for (size_t i = view->from; i < view->to; i++)
        sum += sample_units(&view->samples[i], offset);
    return sum;
}

/* Units a second: mean over samples 'from' .. 'to' - 1. */
static double limit_over(const struct view *view, size_t from, size_t to)
{
    if (view->against_per_s > 0)
        return view->against_per_s;
    double sum = 0;
    for (size_t i = from; i < to; i++)
        sum += view->samples[i].limit_per_s;
    return sum / (double)(to - from);
}

/* In seconds of the limit. */
static double limit_seconds(const struct view *view, double units)
{
    return view->from < view->to
               ? units / limit_over(view, view->from, view->to)
               : NAN;
}

struct bins {
    double mean, sd, min, max; /* NaN without a whole bin */
};

static double bin_sum(const struct view *view, size_t first, size_t offset)
{
    size_t end = first + WEIR_RUN_SAMPLES_A_BIN;
    double sum = 0;
    for (size_t i = first; i < end; i++)
        sum += sample_units(&view->samples[i], offset);
    double bin_s = view->step_s * WEIR_RUN_SAMPLES_A_BIN;
    return sum / bin_s / limit_over(view, first, end);
}

static struct bins bins_of(const struct view *view, size_t offset)
{
    struct bins bins = { .mean = NAN, .sd = NAN, .min = NAN, .max = NAN };
    size_t width = WEIR_RUN_SAMPLES_A_BIN, count = 0;
    size_t first = (view->from + width - 1) / width * width;
    double sum = 0, squares = 0;
    for (size_t i = first; i + width <= view->to; i += width) {
        double value = bin_sum(view, i, offset);
        sum += value;
        bins.min = fmin(bins.min, value);
        bins.max = fmax(bins.max, value);
        count++;
    }
    bins.mean = count > 0 ? sum / (double)count : NAN;
    for (size_t i = first; i + width <= view->to; i += width) {
        double off = bin_sum(view, i, offset) - bins.mean;
        squares += off * off;
    }
    bins.sd = count > 0 ? sqrt(squares / (double)count) : NAN;
    return bins;
}

static double bins_mean(const struct view *view, size_t offset)
{
    return bins_of(view, offset).mean;
}

static double bins_sd(const struct view *view, size_t offset)
{
    return bins_of(view, offset).sd;
}

static double bins_min(const struct view *view, size_t offset)
{
    return bins_of(view, offset).min;
}

static double bins_max(const struct view *view, size_t offset)
{
    return bins_of(view, offset).max;
}

#define PASSED offsetof(struct weir_quota_sample, passed)
#define OFFERED offsetof(struct weir_quota_sample, offered)
#define REFUSED offsetof(struct weir_quota_sample, refused)
#define IDEAL_PASSED offsetof(struct weir_quota_sample, ideal_passed)
#define IDEAL_REFUSED offsetof(struct weir_quota_sample, ideal_refused)

/* ---- Oscillation ---- */

static double deviation(const struct view *view, double mean)
{
    double squares = 0;
    for (size_t i = view->from; i < view->to; i++) {
        double off = view->samples[i].passed - mean;
        squares += off * off;
    }
    return sqrt(squares / (double)(view->to - view->from));
}

static double period_s(const struct view *view)
{
    if (view->from >= view->to)
        return NAN;
    double mean = sum_of(view, PASSED) / (double)(view->to - view->from);
    double half = deviation(view, mean) / 2;
    size_t rises = 0, first = 0, last = 0;
    bool below = false;
    for (size_t i = view->from; i < view->to; i++) {
        double passed = view->samples[i].passed;
        if (passed < mean - half)
            below = true;
        if (!below || passed <= mean + half)
            continue;
        below = false;
        last = i;
        if (rises++ == 0)
            first = i;
    }
    return rises > 1
               ? (double)(last - first) / (double)(rises - 1) * view->step_s
               : NAN;
}

/* ---- Over the limit, and after it ---- */

static double refused_share(const struct view *view)
{
    double offered = sum_of(view, OFFERED);
    return offered > 0 ? sum_of(view, REFUSED) / offered : 0;
}

static double max_fill_over_high(const struct view *view)
{
    double most = view->from < view->to ? 0 : NAN;
    for (size_t i = view->from; i < view->to; i++) {
        double over = view->samples[i].over_high_most;
        most = over > most || isnan(over) ? over : most;
    }
    return most;
}

static double onset_excess(const struct view *view)
{
    return limit_seconds(view,
                         sum_of(view, PASSED) - sum_of(view, IDEAL_PASSED));
}

static double sum_over_limit(const struct view *view, size_t offset)
{
    return limit_seconds(view, sum_of(view, offset));
}

static double echo_s(const struct view *view)
{
    double last = 0;
    for (size_t i = view->from; i < view->to; i++) {
        if (view->samples[i].refused > 0)
            last = (double)(i + 1) * view->step_s - view->from_s;
    }
    return last;
}

static double divergence(const struct view *view)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = view->from; i < view->to; i++) {
        double value = view->samples[i].divergence;
        if (isnan(value)) /* no limiter knows the quota yet */
            continue;
        sum += value;
        count++;
    }
    return limit_seconds(view, sum / (double)count);
}

/* ---- The fleet ---- */

static double fleet_value(const struct weir_fleet_sample *sample, size_t offset)
{
    return *(const double *)(const void *)((const char *)sample + offset);
}

/* Per second and root link that is up. */
static double per_link(const struct view *view, size_t offset)
{
    double sum = 0, link_seconds = 0;
    for (size_t i = view->from; i < view->to; i++) {
        const struct weir_fleet_sample *sample = &view->fleet[i];
        sum += fleet_value(sample, offset);
        link_seconds += sample->links * view->step_s;
    }
    return link_seconds > 0 ? sum / link_seconds : NAN;
}

static double last_sample(const struct view *view, size_t offset)
{
    return view->from < view->to
               ? fleet_value(&view->fleet[view->to - 1], offset)
               : NAN;
}

/* ---- The table ---- */

#define OF_FLEET(member) offsetof(struct weir_fleet_sample, member)

/* 'by_member' gets the offset of a sample's member. */
static const struct {
    double (*by_view)(const struct view *view);
    double (*by_member)(const struct view *view, size_t offset);
    size_t offset;
} computed[WEIR_METRIC_COUNT] = {
    [WEIR_METRIC_OFFERED_MEAN] = { NULL, bins_mean, OFFERED },
    [WEIR_METRIC_PASSED_MEAN] = { NULL, bins_mean, PASSED },
    [WEIR_METRIC_PASSED_SD] = { NULL, bins_sd, PASSED },
    [WEIR_METRIC_PASSED_MIN] = { NULL, bins_min, PASSED },
    [WEIR_METRIC_PASSED_MAX] = { NULL, bins_max, PASSED },
    [WEIR_METRIC_PERIOD_S] = { .by_view = period_s },
    [WEIR_METRIC_REFUSED_SHARE] = { .by_view = refused_share },
    [WEIR_METRIC_MAX_FILL_OVER_HIGH] = { .by_view = max_fill_over_high },
    [WEIR_METRIC_ONSET_EXCESS] = { .by_view = onset_excess },
    [WEIR_METRIC_ECHO] = { NULL, sum_over_limit, REFUSED },
    [WEIR_METRIC_ECHO_S] = { .by_view = echo_s },
    [WEIR_METRIC_IDEAL_MEAN] = { NULL, bins_mean, IDEAL_PASSED },
    [WEIR_METRIC_IDEAL_SD] = { NULL, bins_sd, IDEAL_PASSED },
    [WEIR_METRIC_IDEAL_ECHO] = { NULL, sum_over_limit, IDEAL_REFUSED },
    [WEIR_METRIC_REPORTS] = { NULL, per_link, OF_FLEET(reports) },
    [WEIR_METRIC_MESSAGES] = { NULL, per_link, OF_FLEET(messages) },
    [WEIR_METRIC_BYTES] = { NULL, per_link, OF_FLEET(bytes) },
    [WEIR_METRIC_DIVERGENCE] = { .by_view = divergence },
    [WEIR_METRIC_WAITING_BYTES] = { NULL, last_sample,
                                    OF_FLEET(waiting_bytes) },
    [WEIR_METRIC_UNSEEN_SHARE] = { NULL, last_sample, OF_FLEET(unseen_share) },
};

static const struct weir_quota_sample *find_samples(
    const struct weir_quota_series *series, size_t count, const char *name)
{
    for (size_t i = 0; i < count && name; i++) {
        if (strcmp(series[i].name, name) == 0)
            return series[i].samples;
    }
    return NULL;
}

double weir_metric_of(const struct weir_scenario *scenario,
                      const struct weir_result *result,
                      const struct weir_measure *measure)
{
    if (scenario->model)
        return result->model_metrics[measure->metric];
    const char *name = weir_quota_meant(scenario, measure->quota);
    const struct weir_interval *over = &measure->over;
    weir_duration to = over->to > 0 ? over->to : scenario->span;
    struct view view = {
        .fleet = result->fleet,
        .from = (over->from + result->step - 1) / result->step,
        .to = to / result->step,
        .step_s = (double)result->step / 1e9,
        .against_per_s = measure->against_per_s,
        .from_s = (double)over->from / 1e9,
    };
    if (view.to > result->sample_count)
        view.to = result->sample_count;
    view.samples =
        measure->load
            ? find_samples(result->loads, result->load_count, measure->load)
            : find_samples(result->quotas, result->quota_count, name);
    if (!view.samples)
        return NAN;
    size_t row = (size_t)measure->metric;
    weir_assert(row < WEIR_METRIC_COUNT);
    return computed[row].by_view
               ? computed[row].by_view(&view)
               : computed[row].by_member(&view, computed[row].offset);
}

/* ---- Judging ---- */

static bool is_equal(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
}

bool weir_condition_holds(const struct weir_condition *condition, double value)
{
    double bound = condition->value;
    switch (condition->comparison) {
    case WEIR_IS_LESS:
        return value < bound;
    case WEIR_IS_AT_MOST:
        return value < bound || is_equal(value, bound);
    case WEIR_IS_EQUAL:
        return is_equal(value, bound);
    case WEIR_IS_AT_LEAST:
        return value > bound || is_equal(value, bound);
    case WEIR_IS_MORE:
        return value > bound;
    case WEIR_IS_WITHIN:
        return value >= bound && value <= condition->value2;
    }
    return false;
}

static bool claim_holds(const struct weir_scenario *scenario,
                        const struct weir_result *result,
                        const struct weir_claim *claim)
{
    for (size_t i = 0; i < claim->condition_count; i++) {
        const struct weir_condition *condition = &claim->conditions[i];
        bool other = condition->variant &&
                     (!scenario->variant ||
                      strcmp(condition->variant, scenario->variant) != 0);
        double value = weir_metric_of(scenario, result, &condition->measure);
        if (!other && !weir_condition_holds(condition, value))
            return false;
    }
    return true;
}

void weir_result_judge(const struct weir_scenario *scenario,
                       struct weir_result *result)
{
    result->measures =
        weir_must_zeroed(scenario->measure_count, sizeof(double));
    for (size_t i = 0; i < scenario->measure_count; i++)
        result->measures[i] =
            weir_metric_of(scenario, result, &scenario->measures[i]);
    for (size_t i = 0; i < scenario->expect_count; i++) {
        const struct weir_condition *expect = &scenario->expects[i];
        double value = weir_metric_of(scenario, result, &expect->measure);
        weir_result_expect(result, expect, scenario->span, value,
                           weir_condition_holds(expect, value));
    }
    result->claims = weir_must_zeroed(scenario->claim_count, sizeof(bool));
    for (size_t i = 0; i < scenario->claim_count; i++)
        result->claims[i] = claim_holds(scenario, result, &scenario->claims[i]);
}
