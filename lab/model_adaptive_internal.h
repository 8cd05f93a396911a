/* SPDX-License-Identifier: MIT
 * lab/model_adaptive_internal.h - the parts of the model "adaptive": its
 * metrics, and the observer of a plant that computes them. */

#ifndef WEIR_MODEL_ADAPTIVE_INTERNAL_H
#define WEIR_MODEL_ADAPTIVE_INTERNAL_H

#include "lab/model.h"
#include "lab/plant.h"

/* By the model's metrics. */
enum {
    WEIR_ADAPTIVE_OFFERED_RPS,
    WEIR_ADAPTIVE_ADMITTED_RPS,
    WEIR_ADAPTIVE_MEAN_MS,
    WEIR_ADAPTIVE_P95_MS,
    WEIR_ADAPTIVE_P99_MS,
    WEIR_ADAPTIVE_MAX_MS,
    WEIR_ADAPTIVE_SLOW_SHARE,
    WEIR_ADAPTIVE_WINDOWS_OVER,
    WEIR_ADAPTIVE_WORST_WINDOW_MS,
    WEIR_ADAPTIVE_REFUSED,
    WEIR_ADAPTIVE_REFUSED_RPS,
    WEIR_ADAPTIVE_LIMIT_MIN,
    WEIR_ADAPTIVE_LIMIT_MEAN,
    WEIR_ADAPTIVE_LIMIT_MAX,
    WEIR_ADAPTIVE_PERIOD_S,
    WEIR_ADAPTIVE_IN_FLIGHT_MAX,
    WEIR_ADAPTIVE_BEFORE_RPS,
    WEIR_ADAPTIVE_BEFORE_P95_MS,
    WEIR_ADAPTIVE_BEFORE_LIMIT,
    WEIR_ADAPTIVE_FIRST_RPS,
    WEIR_ADAPTIVE_FIRST_P95_MS,
    WEIR_ADAPTIVE_AFTER_RPS,
    WEIR_ADAPTIVE_AFTER_P95_MS,
    WEIR_ADAPTIVE_BACK_RPS,
    WEIR_ADAPTIVE_BACK_P95_MS,
    WEIR_ADAPTIVE_BACK_DONE_RPS,
    WEIR_ADAPTIVE_BACK_WINDOWS_OVER,
    WEIR_ADAPTIVE_SHARE_MIN,
    WEIR_ADAPTIVE_SHARE_MAX,
    WEIR_ADAPTIVE_FALL_S,
    WEIR_ADAPTIVE_SYNC_ADMITTED,
    WEIR_ADAPTIVE_SYNC_MEAN_MS,
    WEIR_ADAPTIVE_SYNC_P95_MS,
    WEIR_ADAPTIVE_BULK_RPS,
    WEIR_ADAPTIVE_BULK_DONE_S,
    WEIR_ADAPTIVE_BULK_TRIES,
};

/* By the model's series. */
enum {
    WEIR_ADAPTIVE_SERIES_OFFERED,
    WEIR_ADAPTIVE_SERIES_ADMITTED,
    WEIR_ADAPTIVE_SERIES_REFUSED,
    WEIR_ADAPTIVE_SERIES_P95,
    WEIR_ADAPTIVE_SERIES_SYNC_P95,
    WEIR_ADAPTIVE_SERIES_TARGET,
    WEIR_ADAPTIVE_SERIES_LIMIT,
    WEIR_ADAPTIVE_SERIES_IN_FLIGHT,
};

/* A change at 'change', reversed 'lasts' later, and repeated each 'every'. 0:
 * never. The first 'grace' of each phase isn't settled. */
struct weir_adaptive_phases {
    weir_instant change;
    weir_duration lasts, every, grace;
    weir_duration shares_after; /* the change's end */
};

struct weir_adaptive_look;
/* Requests before 'settle' don't count. 'run' is borrowed. */
struct weir_adaptive_look *weir_adaptive_look_new(
    struct weir_model_run *run, const struct weir_plant_options *plant,
    const struct weir_adaptive_phases *phases, weir_instant settle);
void weir_adaptive_look_free(struct weir_adaptive_look *look);
/* For weir_plant_options.note; 'context' is the look. */
void weir_adaptive_look_note(void *context, const struct weir_plant_note *note);
/* Fills the metrics and series at the end of the run. */
void weir_adaptive_look_sum_up(struct weir_adaptive_look *look);

#endif /* WEIR_MODEL_ADAPTIVE_INTERNAL_H */
