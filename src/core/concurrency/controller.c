/* SPDX-License-Identifier: MIT
 * concurrency/controller.c - the part that all controllers share.
 *
 * A kind is a family of four functions over its own state. This file has the
 * options, the clock that doesn't go back, and the view of the last move. A
 * family moves the limit by weir_controller_move() alone, so that min, max and
 * the reason are handled in one place. */

#include "core/concurrency/controller_internal.h"

#include <math.h>
#include <string.h>

#define MEAN_WEIGHT (1.0 / 16) /* of a new latency in the mean */
/* Of a limit that is given: a quick answer counts half after so long. */
#define MEAN_TIME WEIR_SECOND

/* ---- none ---- */

static bool sample_none(struct weir_controller *controller,
                        const struct weir_sample *sample, weir_instant now)
{
    (void)now;
    weir_controller_note_sample(controller, sample, false);
    return false;
}

static const struct weir_controller_family none = {
    .text = "none",
    .whole = true,
    .sample = sample_none,
};

static const struct weir_controller_family
    *const families[WEIR_CONTROLLER_KINDS] = {
        [WEIR_CONTROLLER_NONE] = &none,
        [WEIR_CONTROLLER_REQUEST] = &weir_controller_request,
        [WEIR_CONTROLLER_PERCENTILE] = &weir_controller_percentile,
        [WEIR_CONTROLLER_TARGET] = &weir_controller_target,
        [WEIR_CONTROLLER_VEGAS] = &weir_controller_vegas,
        [WEIR_CONTROLLER_GRADIENT2] = &weir_controller_gradient2,
        [WEIR_CONTROLLER_ENVOY] = &weir_controller_envoy,
    };

static const struct weir_controller_family *controller_family(
    const struct weir_controller *controller)
{
    weir_assert((unsigned)controller->options.kind < WEIR_CONTROLLER_KINDS);
    return families[controller->options.kind];
}

const char *weir_controller_kind_text(enum weir_controller_kind kind)
{
    weir_assert((unsigned)kind < WEIR_CONTROLLER_KINDS);
    return families[kind]->text;
}

const char *weir_limit_reason_text(enum weir_limit_reason reason)
{
    static const char *const texts[WEIR_LIMIT_REASONS] = {
        [WEIR_LIMIT_INITIAL] = "initial",
        [WEIR_LIMIT_SLOW] = "slow",
        [WEIR_LIMIT_DROPPED] = "dropped",
        [WEIR_LIMIT_ROOM] = "headroom",
        [WEIR_LIMIT_MEASURING] = "measuring",
        [WEIR_LIMIT_MEASURED] = "measured",
        [WEIR_LIMIT_EDITED] = "edited",
        [WEIR_LIMIT_RESUMED] = "resumed",
        [WEIR_LIMIT_GIVEN] = "given",
    };
    weir_assert((unsigned)reason < WEIR_LIMIT_REASONS);
    return texts[reason];
}

/* ---- Options ---- */

static const struct {
    double initial, min, max;
} usual_limits[WEIR_CONTROLLER_KINDS] = {
    [WEIR_CONTROLLER_NONE] = { WEIR_PERMITS_MAX, 1, WEIR_PERMITS_MAX },
    [WEIR_CONTROLLER_REQUEST] = { 26, 1, 50 },
    [WEIR_CONTROLLER_PERCENTILE] = { 26, 1, 50 },
    [WEIR_CONTROLLER_TARGET] = { 20, WEIR_PERMITS_MIN, 10000 },
    [WEIR_CONTROLLER_VEGAS] = { 20, 1, 1000 },
    [WEIR_CONTROLLER_GRADIENT2] = { 20, 20, 200 },
    [WEIR_CONTROLLER_ENVOY] = { 3, 3, 1000 },
};

void weir_controller_defaults(struct weir_controller_options *options,
                              enum weir_controller_kind kind)
{
    weir_assert((unsigned)kind < WEIR_CONTROLLER_KINDS);
    *options = (struct weir_controller_options){
        .kind = kind,
        .initial = usual_limits[kind].initial,
        .min = usual_limits[kind].min,
        .max = usual_limits[kind].max,
        .target = 200 * WEIR_MILLISECOND,
        .percentile = kind == WEIR_CONTROLLER_ENVOY ? 50 : 95,
        .backoff = kind == WEIR_CONTROLLER_VEGAS ? 0 : 0.5,
        .guard = kind == WEIR_CONTROLLER_PERCENTILE ? WEIR_GUARD_LEFT
                                                    : WEIR_GUARD_NONE,
        .count = kind == WEIR_CONTROLLER_PERCENTILE ? 320 : 50,
        .window_min =
            kind == WEIR_CONTROLLER_ENVOY ? WEIR_SECOND / 10 : 2 * WEIR_SECOND,
        .window_max = 15 * WEIR_SECOND,
        .setpoint = 0.97,
        .growth = 0.1,
        .smoothing = kind == WEIR_CONTROLLER_VEGAS ? 1 : 0.2,
        .alpha = 3,
        .beta = 6,
        .probe_multiplier = 30,
        .tolerance = 1.5,
        .queue = 4,
        .long_window = 600,
        .buffer = 0.25,
        .probe_interval = 60 * WEIR_SECOND,
        .probe_jitter = 0.15,
        .probe_count = 50,
        .probe_limit = 3,
    };
}

/* NaN is in no range. */
static bool within(double x, double least, double most)
{
    return x >= least && x <= most;
}

static bool is_share(double x)
{
    return x > 0 && x <= 1;
}

static const char *limits_fault(const struct weir_controller_options *o)
{
    double least = families[o->kind]->whole ? 1 : WEIR_PERMITS_MIN;
    if (!within(o->min, least, WEIR_PERMITS_MAX))
        return "min is not in its range";
    if (!within(o->max, least, WEIR_PERMITS_MAX))
        return "max is not in its range";
    if (o->min > o->max)
        return "min is greater than max";
    if (!within(o->initial, o->min, o->max))
        return "initial is not between min and max";
    return NULL;
}

/* Of request, percentile and target. */
static const char *aim_fault(const struct weir_controller_options *o)
{
    if (o->target == 0 || o->target > WEIR_LATENCY_MAX)
        return "target must be more than 0 and at most 9 minutes";
    if (!is_share(o->backoff))
        return "backoff must be more than 0 and at most 1";
    if ((unsigned)o->guard > WEIR_GUARD_LEFT_BARE)
        return "guard is unknown";
    return NULL;
}

static const char *percentile_fault(const struct weir_controller_options *o)
{
    if (!within(o->percentile, 1e-4, 100))
        return "percentile must be more than 0 and at most 100";
    if (o->kind == WEIR_CONTROLLER_ENVOY)
        return NULL;
    if (o->count == 0 || o->count > WEIR_WINDOW_SAMPLES_MAX)
        return "count of a window must be from 1 to 2^24";
    /* One slow answer would decide alone. */
    if (o->percentile == 100 && o->count == 1)
        return "percentile 100 needs a count of at least 2";
    return NULL;
}

static const char *window_fault(const struct weir_controller_options *o)
{
    if (o->window_min == 0 || o->window_min > WEIR_LATENCY_MAX)
        return "window_min must be more than 0 and at most 9 minutes";
    if (o->kind == WEIR_CONTROLLER_ENVOY)
        return NULL;
    if (o->window_max < o->window_min || o->window_max > WEIR_LATENCY_MAX)
        return "window_max must be from window_min to 9 minutes";
    if (!is_share(o->setpoint))
        return "setpoint must be more than 0 and at most 1";
    if (!is_share(o->growth))
        return "growth must be more than 0 and at most 1";
    return NULL;
}

static const char *vegas_fault(const struct weir_controller_options *o)
{
    if (!is_share(o->smoothing))
        return "smoothing must be more than 0 and at most 1";
    if (!within(o->backoff, 0, 1))
        return "backoff must be from 0 to 1";
    if (!within(o->alpha, 0, o->beta) || !within(o->beta, 0, 1e6))
        return "alpha must be at most beta, and beta at most 10^6";
    if (!within(o->probe_multiplier, 1e-3, 1e9))
        return "probe_multiplier must be from 0.001 to 10^9";
    return NULL;
}

static const char *gradient2_fault(const struct weir_controller_options *o)
{
    if (!is_share(o->smoothing))
        return "smoothing must be more than 0 and at most 1";
    if (!within(o->tolerance, 1, 1e6))
        return "tolerance must be from 1 to 10^6";
    if (!within(o->queue, 0, WEIR_PERMITS_MAX))
        return "queue must be from 0 to 2^20";
    if (o->long_window == 0)
        return "long_window must be more than 0";
    return NULL;
}

static const char *envoy_fault(const struct weir_controller_options *o)
{
    if (!within(o->buffer, 0, 1e6))
        return "buffer must be from 0 to 10^6";
    if (o->probe_interval == 0 || o->probe_interval > WEIR_NEVER >> 2)
        return "probe_interval must be more than 0";
    if (!within(o->probe_jitter, 0, 1))
        return "probe_jitter must be from 0 to 1";
    if (o->probe_count == 0 || o->probe_count > WEIR_WINDOW_SAMPLES_MAX)
        return "probe_count must be from 1 to 2^24";
    if (o->probe_limit > WEIR_PERMITS_MAX)
        return "probe_limit must be at most 2^20";
    if (o->least_latency > WEIR_LATENCY_MAX)
        return "least_latency must be at most 9 minutes";
    return NULL;
}

typedef const char *check_function(const struct weir_controller_options *o);

/* The checks of each kind: up to three; NULL: none. */
static check_function *const checks[WEIR_CONTROLLER_KINDS][3] = {
    [WEIR_CONTROLLER_REQUEST] = { aim_fault },
    [WEIR_CONTROLLER_PERCENTILE] = { aim_fault, percentile_fault },
    [WEIR_CONTROLLER_TARGET] = { aim_fault, percentile_fault, window_fault },
    [WEIR_CONTROLLER_VEGAS] = { vegas_fault },
    [WEIR_CONTROLLER_GRADIENT2] = { gradient2_fault },
    [WEIR_CONTROLLER_ENVOY] = { percentile_fault, window_fault, envoy_fault },
};

int weir_controller_check(const struct weir_controller_options *options,
                          struct weir_diag *diag)
{
    if ((unsigned)options->kind >= WEIR_CONTROLLER_KINDS)
        return weir_diag_put(diag, WEIR_EINVAL, "no such controller");
    const char *fault = limits_fault(options);
    for (int i = 0; fault == NULL && i < 3; i++) {
        check_function *check = checks[options->kind][i];
        fault = check == NULL ? NULL : check(options);
    }
    if (fault == NULL)
        return WEIR_OK;
    return weir_diag_set(diag, WEIR_EINVAL, "controller ",
                         weir_controller_kind_text(options->kind), ": ", fault,
                         NULL);
}

/* ---- Life ---- */

size_t weir_controller_size(const struct weir_controller_options *options)
{
    _Static_assert(sizeof(struct weir_controller) +
                           sizeof(struct weir_latency_window) <=
                       WEIR_CONTROLLER_SIZE_MAX,
                   "the header says how large it may be");
    weir_assert((unsigned)options->kind < WEIR_CONTROLLER_KINDS);
    bool windows = families[options->kind]->windows;
    return sizeof(struct weir_controller) +
           (windows ? sizeof(struct weir_latency_window) : 0);
}

/* A probe has set the limit, and keeps it until the probe has ended. */
static bool probes(const struct weir_controller *controller)
{
    return controller->options.kind == WEIR_CONTROLLER_ENVOY &&
           controller->envoy.probing != 0;
}

static bool is_pinned(const struct weir_controller *controller)
{
    return probes(controller) &&
           controller->limit == controller->options.probe_limit;
}

/* The guarantee of controller.h. */
static bool is_limit_sound(const struct weir_controller *controller)
{
    const struct weir_controller_options *options = &controller->options;
    double limit = controller->limit;
    if (options->given)
        return limit >= 0 && limit <= WEIR_PERMITS_MAX;
    return is_pinned(controller) ||
           (limit >= options->min && limit <= options->max);
}

struct weir_controller *weir_controller_init(
    void *block, const struct weir_controller_options *options,
    weir_instant now)
{
    weir_assert(weir_controller_check(options, NULL) == WEIR_OK);
    struct weir_controller *controller = block;
    memset(controller, 0, sizeof(*controller));
    controller->options = *options;
    controller->millionths = weir_percentile_millionths(options->percentile);
    controller->limit = controller->view.before =
        options->given ? WEIR_GIVEN_FIRST : options->initial;
    controller->now = controller->view.moved_at = now;
    controller->rng.state = options->seed;
    const struct weir_controller_family *family = controller_family(controller);
    if (family->windows)
        weir_latency_window_init(controller->window);
    if (family->init != NULL)
        family->init(controller, now);
    weir_assert(is_limit_sound(controller));
    return controller;
}

/* ---- Edits ---- */

/* Whether samples under 'a' mean the same under 'b': all but the bounds and the
 * seed. */
static bool is_same_rule(const struct weir_controller_options *a,
                         const struct weir_controller_options *b)
{
    return a->kind == b->kind && a->given == b->given &&
           a->target == b->target && a->percentile == b->percentile &&
           a->backoff == b->backoff && a->guard == b->guard &&
           a->drops == b->drops && a->count == b->count &&
           a->window_min == b->window_min && a->window_max == b->window_max &&
           a->setpoint == b->setpoint && a->growth == b->growth &&
           a->smoothing == b->smoothing && a->alpha == b->alpha &&
           a->beta == b->beta && a->probe_multiplier == b->probe_multiplier &&
           a->tolerance == b->tolerance && a->queue == b->queue &&
           a->long_window == b->long_window && a->buffer == b->buffer &&
           a->probe_interval == b->probe_interval &&
           a->probe_jitter == b->probe_jitter &&
           a->probe_count == b->probe_count &&
           a->probe_limit == b->probe_limit &&
           a->least_latency == b->least_latency;
}

/* A limit that is low only to measure isn't the learned one. */
static double learned(const struct weir_controller *controller)
{
    return probes(controller) ? controller->envoy.resumed : controller->limit;
}

void weir_controller_edit(struct weir_controller *controller,
                          const struct weir_controller_options *options,
                          weir_instant now)
{
    weir_assert(options->min <= options->max);
    struct weir_controller_options next = *options;
    struct weir_controller_view view = controller->view;
    double mean = controller->mean;
    double limit = learned(controller);
    bool fixed = next.kind == WEIR_CONTROLLER_NONE;
    bool unknown = controller->options.given && !controller->was_given;
    bool measures = limit != controller->limit;
    next.initial = fixed || unknown ? options->initial : limit;
    next.initial = next.initial < next.max ? next.initial : next.max;
    next.initial = next.initial > next.min ? next.initial : next.min;
    if (measures || !is_same_rule(&controller->options, &next)) {
        weir_controller_init(controller, &next, now);
        controller->mean = mean;
        if (!probes(controller)) {
            controller->view.before = view.before;
            controller->view.reason = view.reason;
            controller->view.moved_at = view.moved_at;
            controller->limit = limit;
        }
    }
    controller->options = next;
    if (probes(controller))
        controller->envoy.resumed = next.initial;
    if (!is_pinned(controller) && !next.given &&
        next.initial != controller->limit)
        weir_controller_move(controller, next.initial, WEIR_LIMIT_EDITED, now);
    weir_assert(is_limit_sound(controller));
}

/* ---- Samples and time ---- */

/* One process of many that share a limit has an answer in a second. One in less
 * than half of the mean shows that the mean is of another time, such as the end
 * of a hang: then it counts by the time since the last. Pauses by that mean
 * would else be too long for sixteen such answers. */
static void note_mean(struct weir_controller *controller, weir_duration latency,
                      weir_instant now)
{
    double x = (double)latency;
    double weight = MEAN_WEIGHT;
    if (controller->mean == 0)
        controller->mean = x;
    if (controller->options.given && 2 * x < controller->mean) {
        double since = (double)weir_since(controller->mean_at, now);
        weight = weir_larger(weight, since / (since + (double)MEAN_TIME));
    }
    controller->mean_at = now;
    controller->mean += weight * (x - controller->mean);
    weir_audit(controller->mean >= 0);
}

bool weir_controller_sample(struct weir_controller *controller,
                            const struct weir_sample *sample, weir_instant now)
{
    now = weir_controller_clock(controller, now);
    if (sample->outcome == WEIR_SAMPLE_IGNORED)
        return false;
    struct weir_sample shorter;
    if (WEIR_UNLIKELY(sample->latency > WEIR_LATENCY_MAX)) {
        shorter = *sample;
        shorter.latency = WEIR_LATENCY_MAX;
        sample = &shorter;
    }
    if (!weir_is_dropped(sample))
        note_mean(controller, sample->latency, now);
    bool judged =
        controller_family(controller)->sample(controller, sample, now);
    weir_audit(is_limit_sound(controller));
    return judged;
}

bool weir_controller_tick(struct weir_controller *controller,
                          const struct weir_overdue *overdue, weir_instant now)
{
    static const struct weir_overdue nothing;
    now = weir_controller_clock(controller, now);
    const struct weir_controller_family *family = controller_family(controller);
    if (family->tick == NULL)
        return false;
    bool judged =
        family->tick(controller, overdue == NULL ? &nothing : overdue, now);
    weir_audit(is_limit_sound(controller));
    return judged;
}

weir_instant weir_controller_deadline(const struct weir_controller *controller)
{
    const struct weir_controller_family *family = controller_family(controller);
    return family->deadline == NULL || controller->options.given
               ? WEIR_NEVER
               : family->deadline(controller);
}

/* ---- Fleets ---- */

bool weir_controller_merges(enum weir_controller_kind kind)
{
    weir_assert((unsigned)kind < WEIR_CONTROLLER_KINDS);
    return kind == WEIR_CONTROLLER_TARGET;
}

double weir_controller_limit(const struct weir_controller *controller)
{
    return controller_family(controller)->whole ? floor(controller->limit)
                                                : controller->limit;
}

weir_duration weir_controller_mean(const struct weir_controller *controller)
{
    if (controller->mean >= 1)
        return (weir_duration)controller->mean;
    if (controller->mean > 0)
        return 1;
    weir_duration target = controller->options.target;
    return target == 0 ? WEIR_MILLISECOND : target;
}

void weir_controller_view(const struct weir_controller *controller,
                          struct weir_controller_view *out)
{
    *out = controller->view;
    out->limit = weir_controller_limit(controller);
}
