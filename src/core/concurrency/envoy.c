/* SPDX-License-Identifier: MIT
 * concurrency/envoy.c - a percentile beside the latency that a low limit gave.
 *
 * From time to time the limit is pinned so low that nothing can queue, and the
 * percentile of 'probe_count' requests that begin then is the least latency.
 * In between, each interval multiplies the limit by
 *
 *     clamp(least (1 + buffer) / percentile, 1/2, 2)
 *
 * and adds a square root of it, so that the limit can rise and be tested. Five
 * intervals in a row that end at 'min' mean that the least latency has probably
 * changed, and it is measured at once. There is no guard: while there is little
 * to do the limit grows to its max. All that is as upstream.
 *
 *     measuring --(probe_count samples)--> steering --(probe_at)--> measuring
 *
 * Upstream has timers; here an interval that is over is judged by the first
 * call after it, before that call's own sample is counted.
 *
 * Source: the gradient controller of Envoy's adaptive concurrency filter, as
 * documented there. */

#include "core/concurrency/controller_internal.h"

#include <math.h>

#define FLOORS_MAX 5 /* intervals in a row at 'min' */

static void probe_begin(struct weir_controller *controller, weir_instant now)
{
    struct weir_envoy_state *envoy = &controller->envoy;
    weir_assert(envoy->probing == 0);
    envoy->probing = now > 0 ? now : 1;
    envoy->resumed = controller->limit;
    envoy->floors = 0;
    weir_latency_window_clear(controller->window);
    uint32_t pinned = controller->options.probe_limit;
    if (pinned == 0 || pinned == controller->limit)
        return;
    /* It may be below 'min', so the usual way can't set it. */
    controller->view.before = controller->limit;
    controller->view.reason = WEIR_LIMIT_MEASURING;
    controller->view.moved_at = now;
    controller->limit = pinned;
}

static weir_instant later(struct weir_controller *controller, weir_instant now)
{
    const struct weir_controller_options *options = &controller->options;
    double most = (double)options->probe_interval * options->probe_jitter;
    weir_instant at = now + options->probe_interval +
                      (weir_duration)(most * weir_rng_unit(&controller->rng));
    weir_assert(at > now);
    return at;
}

static void probe_end(struct weir_controller *controller, weir_instant now)
{
    struct weir_envoy_state *envoy = &controller->envoy;
    weir_assert(envoy->probing != 0);
    weir_controller_note_window(controller);
    envoy->least = controller->view.latency;
    controller->view.baseline = envoy->least;
    envoy->probing = 0;
    envoy->probe_at = later(controller, now);
    envoy->due = now + controller->options.window_min;
    weir_controller_move(controller, envoy->resumed, WEIR_LIMIT_MEASURED, now);
}

static void init_envoy(struct weir_controller *controller, weir_instant now)
{
    controller->envoy = (struct weir_envoy_state){
        .least = controller->options.least_latency,
        .due = now + controller->options.window_min,
        .probe_at = WEIR_NEVER,
    };
    controller->view.baseline = controller->envoy.least;
    if (controller->envoy.least == 0)
        probe_begin(controller, now);
}

static void steer(struct weir_controller *controller, weir_instant now)
{
    const struct weir_controller_options *options = &controller->options;
    struct weir_envoy_state *envoy = &controller->envoy;
    weir_assert(envoy->probing == 0);
    double latency = (double)controller->view.latency;
    double gradient = (double)envoy->least * (1 + options->buffer) /
                      (latency > 0 ? latency : 1);
    gradient = gradient < 2 ? gradient : 2;
    gradient = gradient > 0.5 ? gradient : 0.5;
    double before = controller->limit;
    double next = before * gradient;
    next = floor(next + sqrt(next));
    weir_controller_move(controller, next,
                         next > before ? WEIR_LIMIT_ROOM : WEIR_LIMIT_SLOW,
                         now);
    weir_assert(controller->limit >= options->min);
    envoy->floors = controller->limit <= options->min ? envoy->floors + 1 : 0;
    if (envoy->floors >= FLOORS_MAX && options->least_latency == 0)
        probe_begin(controller, now);
}

static bool tick_envoy(struct weir_controller *controller,
                       const struct weir_overdue *overdue, weir_instant now)
{
    struct weir_envoy_state *envoy = &controller->envoy;
    (void)overdue;
    if (envoy->probing != 0)
        return false;
    if (now >= envoy->probe_at) {
        probe_begin(controller, now);
        return true;
    }
    if (now < envoy->due)
        return false;
    envoy->due = now + controller->options.window_min;
    if (controller->window->samples == 0)
        return false;
    weir_controller_note_window(controller);
    steer(controller, now);
    return true;
}

static bool sample_envoy(struct weir_controller *controller,
                         const struct weir_sample *sample, weir_instant now)
{
    bool judged = tick_envoy(controller, NULL, now);
    weir_instant probing = controller->envoy.probing;
    weir_instant begun = weir_before(now, sample->latency);
    weir_audit(probing <= now || probing == 1);
    if (weir_is_dropped(sample) || (probing != 0 && begun < probing))
        return judged;
    weir_latency_window_add(controller->window, sample->latency, false, 1);
    if (probing == 0 ||
        controller->window->samples < controller->options.probe_count)
        return judged;
    probe_end(controller, now);
    return true;
}

static weir_instant deadline_envoy(const struct weir_controller *controller)
{
    const struct weir_envoy_state *envoy = &controller->envoy;
    if (envoy->probing != 0)
        return WEIR_NEVER;
    return envoy->due < envoy->probe_at ? envoy->due : envoy->probe_at;
}

const struct weir_controller_family weir_controller_envoy = {
    .text = "envoy",
    .windows = true,
    .whole = true,
    .init = init_envoy,
    .sample = sample_envoy,
    .tick = tick_envoy,
    .deadline = deadline_envoy,
};
