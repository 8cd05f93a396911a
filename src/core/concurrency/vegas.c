/* SPDX-License-Identifier: MIT
 * concurrency/vegas.c - the queue length by a latency beside the least one.
 *
 * Of L in flight, L (1 - least / latency) stand in a queue. Fewer than alpha:
 * there is room for more; more than beta: there are too many. 'least' is the
 * least latency since it was last measured. From time to time it is measured
 * anew by forgetting it: so under overload it is measured too high, and the
 * limit rises with it. That flaw is kept from upstream; for a known latency
 * target use the controller 'target'.
 *
 * Source: L. Brakmo, L. Peterson, "TCP Vegas", IEEE JSAC 13(8), 1995;
 * VegasLimit of Netflix's concurrency-limits. */

#include "core/concurrency/controller_internal.h"

#include <math.h>

static void draw_jitter(struct weir_controller *controller)
{
    controller->vegas.jitter = 0.5 + weir_rng_unit(&controller->rng) / 2;
    weir_audit(controller->vegas.jitter >= 0.5 &&
               controller->vegas.jitter <= 1);
    controller->vegas.since = 0;
}

static void init_vegas(struct weir_controller *controller, weir_instant now)
{
    (void)now;
    draw_jitter(controller);
}

/* log10 L in whole numbers, at least 1. */
static double step_of(double limit)
{
    double step = 0;
    for (double power = 10; power <= limit; power *= 10)
        step++;
    return step > 1 ? step : 1;
}

/* Whether this sample is itself the new least one. */
static bool is_baseline(struct weir_controller *controller,
                        weir_duration latency)
{
    struct weir_vegas_state *vegas = &controller->vegas;
    vegas->since++;
    if (vegas->since >= vegas->jitter * controller->options.probe_multiplier *
                            controller->limit) {
        draw_jitter(controller);
        vegas->least = 0;
    }
    if (vegas->least != 0 && latency >= vegas->least)
        return false;
    vegas->least = latency;
    controller->view.baseline = latency;
    return true;
}

static double fallen(const struct weir_controller *controller)
{
    double limit = controller->limit;
    double backoff = controller->options.backoff;
    return backoff > 0 ? limit * backoff : limit - step_of(limit);
}

/* The limit that the sample asks for. */
static double limit_wanted(const struct weir_controller *controller,
                           const struct weir_sample *sample)
{
    const struct weir_controller_options *options = &controller->options;
    double limit = controller->limit;
    double step = step_of(limit);
    weir_audit(controller->vegas.least > 0 &&
               controller->vegas.least <= sample->latency);
    if (weir_is_dropped(sample))
        return fallen(controller);
    if (2.0 * sample->in_flight < limit)
        return limit;
    double queue = ceil(limit * (1 - (double)controller->vegas.least /
                                         (double)sample->latency));
    if (queue <= step)
        return limit + options->beta * step;
    if (queue < options->alpha * step)
        return limit + step;
    if (queue > options->beta * step)
        return fallen(controller);
    return limit;
}

static bool sample_vegas(struct weir_controller *controller,
                         const struct weir_sample *sample, weir_instant now)
{
    const struct weir_controller_options *options = &controller->options;
    weir_controller_note_sample(controller, sample, false);
    if (is_baseline(controller, sample->latency))
        return false;
    double before = controller->limit;
    double next = limit_wanted(controller, sample);
    weir_audit(next >= 0);
    if (next == before)
        return false;
    /* Clamped before it is smoothed, as upstream. */
    next = next < options->max ? next : options->max;
    next = next > options->min ? next : options->min;
    enum weir_limit_reason reason =
        weir_is_dropped(sample) ? WEIR_LIMIT_DROPPED : WEIR_LIMIT_SLOW;
    weir_controller_move(controller,
                         (1 - options->smoothing) * before +
                             options->smoothing * next,
                         next > before ? WEIR_LIMIT_ROOM : reason, now);
    return controller->limit != before;
}

const struct weir_controller_family weir_controller_vegas = {
    .text = "vegas",
    .whole = true,
    .init = init_vegas,
    .sample = sample_vegas,
};
