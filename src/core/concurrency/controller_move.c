/* SPDX-License-Identifier: MIT
 * concurrency/controller_move.c - how a kind of controller moves the limit,
 * and notes the samples that it has judged. */

#include "core/concurrency/controller_internal.h"

#include <math.h>

void weir_controller_move(struct weir_controller *controller, double limit,
                          enum weir_limit_reason reason, weir_instant now)
{
    weir_audit(limit >= 0); /* and not NaN */
    const struct weir_controller_options *options = &controller->options;
    limit = limit < options->max ? limit : options->max;
    limit = limit > options->min ? limit : options->min;
    if (limit == controller->limit)
        return;
    controller->view.before = controller->limit;
    controller->view.reason = reason;
    controller->view.moved_at = now;
    controller->limit = limit;
    weir_assert(controller->limit >= options->min &&
                controller->limit <= options->max);
}

void weir_controller_cut(struct weir_controller *controller, bool dropped,
                         weir_instant now)
{
    double before = controller->limit;
    weir_controller_move(controller,
                         floor(before * controller->options.backoff),
                         dropped ? WEIR_LIMIT_DROPPED : WEIR_LIMIT_SLOW, now);
    weir_audit(controller->limit <= before);
}

bool weir_guard_lets(enum weir_guard guard, double limit,
                     const struct weir_sample *sample)
{
    switch (guard) {
    case WEIR_GUARD_NONE:
        return true;
    case WEIR_GUARD_BEGUN:
        return 2.0 * sample->in_flight >= limit;
    case WEIR_GUARD_LEFT:
        return 2.0 * sample->left + 1 >= limit;
    case WEIR_GUARD_LEFT_BARE:
        return 2.0 * sample->left >= limit;
    }
    return true;
}

void weir_controller_note_window(struct weir_controller *controller)
{
    struct weir_controller_view *view = &controller->view;
    struct weir_latency_window *window = controller->window;
    weir_assert(window->samples > 0 && window->slow <= window->samples);
    view->windows++;
    view->samples = window->samples;
    view->slow = window->slow;
    view->latency =
        weir_latency_window_percentile(window, controller->millionths);
    weir_latency_window_clear(window);
    weir_assert(window->samples == 0);
}

void weir_controller_note_sample(struct weir_controller *controller,
                                 const struct weir_sample *sample, bool slow)
{
    controller->view.windows++;
    controller->view.samples = 1;
    controller->view.slow = slow ? 1 : 0;
    controller->view.latency = sample->latency;
}
