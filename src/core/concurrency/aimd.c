/* SPDX-License-Identifier: MIT
 * core/concurrency/aimd.c - the article's two controllers: add one, or cut to
 * a share.
 *
 * Both are ports, with the article's flaws. Per request, each one in flight
 * when it gets slow cuts again (12 in flight: 12, 6, 3, 1), so that half of the
 * capacity is lost to a saw-tooth over all of the range. The windows of the
 * percentile are of a count alone: at 75 requests/s one takes six seconds, at
 * 4,000 a twelfth of one. That is shorter than a cut takes to show, and so
 * there are several cuts. A request that hangs gives no sample, and moves
 * neither.
 *
 * The percentile is over the target if and only if enough of the samples are:
 * so the decision needs two counts, and the bins are for the view.
 *
 * Source: "Adaptive concurrency limiting", Mindbox, and its sandbox (as
 * described; it has no licence). With guard BEGUN, drops and 0.9: AIMDLimit of
 * Netflix's concurrency-limits. */

#include "core/concurrency/controller_internal.h"

static void raise_by_one(struct weir_controller *controller,
                         const struct weir_sample *sample, weir_instant now)
{
    if (weir_guard_lets(controller->options.guard, controller->limit, sample))
        weir_controller_move(controller, controller->limit + 1, WEIR_LIMIT_ROOM,
                             now);
}

static bool is_slow(const struct weir_controller *controller,
                    const struct weir_sample *sample)
{
    return weir_is_dropped(sample) ||
           sample->latency > controller->options.target;
}

static bool is_drop_ignored(const struct weir_controller *controller,
                            const struct weir_sample *sample)
{
    return weir_is_dropped(sample) && !controller->options.drops;
}

static bool sample_request(struct weir_controller *controller,
                           const struct weir_sample *sample, weir_instant now)
{
    if (is_drop_ignored(controller, sample))
        return false;
    double before = controller->limit;
    weir_audit(before >= 1); /* whole permits */
    bool slow = is_slow(controller, sample);
    weir_controller_note_sample(controller, sample, slow);
    if (slow)
        weir_controller_cut(controller, weir_is_dropped(sample), now);
    else
        raise_by_one(controller, sample, now);
    return controller->limit != before;
}

static bool sample_percentile(struct weir_controller *controller,
                              const struct weir_sample *sample,
                              weir_instant now)
{
    if (is_drop_ignored(controller, sample))
        return false;
    struct weir_latency_window *window = controller->window;
    uint32_t count = controller->options.count;
    weir_audit(window->samples < count);
    weir_latency_window_add(window, sample->latency,
                            is_slow(controller, sample), 1);
    if (window->samples < count)
        return false;
    weir_controller_note_window(controller);
    if (controller->view.slow >=
        weir_latency_window_trip(count, controller->millionths))
        weir_controller_cut(controller, false, now);
    else
        raise_by_one(controller, sample, now);
    return true;
}

const struct weir_controller_family weir_controller_request = {
    .text = "request",
    .whole = true,
    .sample = sample_request,
};

const struct weir_controller_family weir_controller_percentile = {
    .text = "percentile",
    .windows = true,
    .whole = true,
    .sample = sample_percentile,
};
