/* SPDX-License-Identifier: MIT
 * concurrency/gradient.c - a latency beside its own long mean.
 *
 * While a latency is at most 'tolerance' times the recent mean, the limit grows
 * by 'queue'; above that it shrinks in proportion, by half at most. Known
 * flaws, kept from upstream: a latency that stays high becomes the mean, and
 * the limit grows to its max; 'queue' is added even while the limit shrinks; a
 * dropped request counts as a latency like any other.
 *
 * Source: Gradient2Limit of Netflix's concurrency-limits. */

#include "core/concurrency/controller_internal.h"

#define WARM_UP 10 /* samples in the plain mean that the long one begins with */

static double long_mean(struct weir_controller *controller, double latency)
{
    struct weir_gradient_state *gradient = &controller->gradient;
    weir_audit(latency > 0 && gradient->samples <= WARM_UP);
    if (gradient->samples < WARM_UP) {
        gradient->samples++;
        gradient->sum += latency;
        gradient->mean = gradient->sum / gradient->samples;
    } else {
        double weight = 2 / (controller->options.long_window + 1.0);
        gradient->mean = gradient->mean * (1 - weight) + latency * weight;
    }
    double mean = gradient->mean;
    /* After a time of load it comes down more quickly. */
    if (mean > 2 * latency)
        gradient->mean *= 0.95;
    controller->view.baseline = (weir_duration)gradient->mean;
    return mean;
}

static bool sample_gradient2(struct weir_controller *controller,
                             const struct weir_sample *sample, weir_instant now)
{
    const struct weir_controller_options *options = &controller->options;
    double before = controller->limit;
    double latency = sample->latency > 0 ? (double)sample->latency : 1;
    double mean = long_mean(controller, latency);
    weir_audit(mean > 0);
    double gradient = options->tolerance * mean / latency;
    weir_controller_note_sample(controller, sample, gradient < 1);
    if (sample->in_flight < before / 2)
        return false;
    gradient = gradient < 1 ? gradient : 1;
    gradient = gradient > 0.5 ? gradient : 0.5;
    double next = before * gradient + options->queue;
    next = before * (1 - options->smoothing) + next * options->smoothing;
    weir_controller_move(controller, next,
                         next > before ? WEIR_LIMIT_ROOM : WEIR_LIMIT_SLOW,
                         now);
    return controller->limit != before;
}

const struct weir_controller_family weir_controller_gradient2 = {
    .text = "gradient2",
    .whole = true,
    .sample = sample_gradient2,
};
