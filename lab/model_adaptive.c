/* SPDX-License-Identifier: MIT
 * lab/model_adaptive.c - a limit moved by latency, in front of a storage of
 * unknown capacity.
 *
 * The storages, loads and targets are those of Mindbox's article "Adaptive
 * concurrency limiting" and of its sandbox, and some of ours; the concurrency
 * gate and controllers are the product's (adapt/). Unset parameters have the
 * controller's own defaults. An impossible combination (min above max) is
 * replaced by the nearest possible one, so that a figure may cover such a
 * corner. */

#include "lab/model_adaptive_internal.h"

#include <math.h>

#include "lab/fleet.h"
#include "lab/memory.h"

/* By enum weir_controller_kind, then one that is no controller. */
static const char *const controllers[] = { "none",   "request",    "percentile",
                                           "target", "vegas",      "gradient2",
                                           "envoy",  "fixed_rate", NULL };
#define FIXED_RATE WEIR_CONTROLLER_KINDS

static const char *const arrivals[] = { "regular", "poisson", NULL };
/* By enum weir_guard; then the controller's own. */
static const char *const guards[] = { "none",      "begun", "left",
                                      "left_bare", "own",   NULL };
#define OWN_GUARD 4
static const char *const scopes[] = { "process", "fleet", NULL };
static const char *const class_words[] = { "one", "two", NULL };
static const char *const no_or_yes[] = { "no", "yes", NULL };

enum {
    CONTROLLER,
    SCOPE,
    ROOTS,
    RTT,
    DIES_AT,
    TAKEOVER,
    INSTANCES,
    INSTANCES_FIRST,
    JOIN_AT,
    ARRIVALS,
    RATE,
    STEP_AT,
    STEP_RATE,
    BULK_END,
    SYNC_RATE,
    CLASSES,
    RETRY,
    STORAGE,
    LATENCY,
    PER_S,
    FLOOR,
    WORKERS,
    SLOWNESS,
    SLOW_AT,
    SLOW_FOR,
    SLOW_EVERY,
    HANG_AT,
    HANG_FOR,
    BLIP_AT,
    BLIP_COUNT,
    BLIP_LATENCY,
    TIMEOUT,
    CANCEL,
    OVERHEAD,
    TARGET,
    INITIAL,
    MIN,
    MAX,
    COUNT,
    WINDOW_MIN,
    WINDOW_MAX,
    BACKOFF,
    GUARD,
    SETPOINT,
    GROWTH,
    FIXED_PER_S,
    SETTLE,
    GRACE,
    SHARES_AFTER,
};
#define A_COUNT(called, given, least, most, said)                  \
    {                                                              \
        .name = called, .kind = WEIR_MODEL_COUNT, .preset = given, \
        .min = least, .max = most, .sentence = said                \
    }
#define A_REAL(called, given, least, most, said)                  \
    {                                                             \
        .name = called, .kind = WEIR_MODEL_REAL, .preset = given, \
        .min = least, .max = most, .sentence = said               \
    }
#define A_WORD(called, given, those, said)                        \
    {                                                             \
        .name = called, .kind = WEIR_MODEL_WORD, .preset = given, \
        .words = those, .sentence = said                          \
    }
#define A_TIME(called, given, said)                                   \
    {                                                                 \
        .name = called, .kind = WEIR_MODEL_DURATION, .preset = given, \
        .sentence = said                                              \
    }
#define A_RATE(called, given, said)                               \
    {                                                             \
        .name = called, .kind = WEIR_MODEL_RATE, .preset = given, \
        .sentence = said                                          \
    }
#define A_SHARE(called, given, said)                               \
    {                                                              \
        .name = called, .kind = WEIR_MODEL_SHARE, .preset = given, \
        .sentence = said                                           \
    }
static const struct weir_model_field fields[] = {
    A_WORD("controller", WEIR_CONTROLLER_TARGET, controllers,
           "what moves the limit"),
    A_WORD("scope", 0, scopes,
           "fleet: one limit for all processes, which the roots lease"),
    A_COUNT("roots", 3, 1, WEIR_FLEET_ROOTS_MAX, "of a fleet"),
    A_TIME("rtt", 2e6, "round trip between a process and a root of a fleet"),
    A_TIME("dies_at", 0, "the master root of a fleet dies then; 0: never ..."),
    A_TIME("takeover", 3e9, "... and another one leads so much later"),
    A_COUNT("instances", 1, 1, WEIR_PLANT_INSTANCES_MAX,
            "processes in front of the one storage"),
    A_COUNT("instances_first", 0, 0, WEIR_PLANT_INSTANCES_MAX,
            "... so many until join_at; 0: all"),
    A_TIME("join_at", 0, "when the others join; 0: never"),
    A_WORD("arrivals", 0, arrivals, "evenly or by chance"),
    A_RATE("rate", 75, "at which bulk comes"),
    A_TIME("step_at", 0, "when that becomes step_rate; 0: never"),
    A_RATE("step_rate", 300, "see step_at"),
    A_TIME("bulk_end", 0, "bulk ends then; 0: never"),
    A_RATE("sync_rate", 0, "at which sync comes"),
    A_WORD("classes", 1, class_words,
           "two: sync is counted and never limited; one: as bulk"),
    A_TIME("retry", 0,
           "limited bulk comes again, at least so much later and "
           "up to twice; 0: never"),
    A_WORD("storage", 0, weir_storage_kinds,
           "slow by the last second, a pool, or flat"),
    A_TIME("latency", 180e6, "of the storage"),
    A_REAL("per_s", 50, 0.001, 1e9,
           "recent: that is with so many arrivals in the last second"),
    A_TIME("floor", 0, "recent: the least latency"),
    A_COUNT("workers", 10, 1, WEIR_STORAGE_WORKERS_MAX, "of a pool"),
    A_REAL("slowness", 3, 0.001, 1000, "times as slow ..."),
    A_TIME("slow_at", 0, "... from then on; 0: never ..."),
    A_TIME("slow_for", 0, "... for so long; 0: to the end ..."),
    A_TIME("slow_every", 0, "... and again that often; 0: once"),
    A_TIME("hang_at", 0, "the storage stands still from then on; 0: never"),
    A_TIME("hang_for", 10e9, "... for so long"),
    A_TIME("blip_at", 0, "some answers from then on are very slow; 0: never"),
    A_COUNT("blip_count", 10, 0, 1000000, "... so many, in a row"),
    A_TIME("blip_latency", 500e6, "... they take so long"),
    A_TIME("timeout", 0, "after which callers give up; 0: never"),
    A_WORD("cancel", 0, no_or_yes,
           "pool: their requests leave the queue; no: are served all the same"),
    A_TIME("overhead", 0, "of the way to the storage and back"),
    A_TIME("target", 200e6, "that the latency is to stay under"),
    A_REAL("initial", 0, 0, WEIR_PERMITS_MAX,
           "limit of each process; 0: the controller's own"),
    A_REAL("min", 0, 0, WEIR_PERMITS_MAX, "... at least; the same"),
    A_REAL("max", 0, 0, WEIR_PERMITS_MAX, "... at most; the same"),
    A_COUNT("count", 0, 0, WEIR_WINDOW_SAMPLES_MAX,
            "samples of a window; the same"),
    A_TIME("window_min", 0, "target: age of a window at least; the same"),
    A_TIME("window_max", 0, "target: ... with few samples; the same"),
    A_SHARE("backoff", 0, "of the limit that a decrease leaves; the same"),
    A_WORD("guard", OWN_GUARD, guards, "when the limit may grow"),
    A_SHARE("setpoint", 0, "target: of the target; 0: the controller's own"),
    A_SHARE("growth", 0, "target: in a window, at most; the same"),
    A_RATE("fixed_per_s", 55,
           "fixed_rate: rate that passes, all processes together"),
    A_TIME("settle", 0, "requests before it aren't measured"),
    A_TIME("grace", 30e9, "nor for so long after something changes"),
    A_TIME("shares_after", 20e9,
           "shares count from so long after the change's end on"),
    { .name = NULL },
};

static const struct weir_model_metric metrics[] = {
    { "offered_rps", "requests offered, a second" },
    { "passed_rps", "requests admitted, a second" },
    { "mean_ms", "latency of the storage, of bulk, mean" },
    { "p95_ms", "the same, 95th percentile" },
    { "p99_ms", "the same, 99th percentile" },
    { "max_ms", "the same, highest" },
    { "slow_share", "share of admitted bulk over the target" },
    { "windows_over", "share of windows of 15 s with a p95 over the target" },
    { "worst_window_ms", "highest p95 of such a window" },
    { "limited", "requests refused" },
    { "limited_rps", "the same, a second" },
    { "limit_min", "lowest limit of a process" },
    { "limit_mean", "the same, as a request found it on average" },
    { "limit_max", "the same, highest" },
    { "period_s", "seconds from one fall of the limit to the next" },
    { "in_flight_max", "most in flight through one process" },
    { "before_rps", "bulk admitted a second, before a change" },
    { "before_p95_ms", "its p95 then" },
    { "before_limit", "the highest limit of a process then, from the start" },
    { "first_rps", "bulk admitted a second, for 'grace' after the change" },
    { "first_p95_ms", "its p95 then" },
    { "after_rps", "the same after that, while it lasts" },
    { "after_p95_ms", "its p95 then" },
    { "back_rps", "the same, 'grace' after it has changed back" },
    { "back_p95_ms", "its p95 then" },
    { "back_done_rps",
      "bulk answered in time a second, for 'grace' from the change's end" },
    { "back_windows_over",
      "windows of 15 s from then on with a p95 over the target" },
    { "share_min", "least bulk answered by a process, of the mean, from "
                   "'shares_after' on" },
    { "share_max", "the same, most" },
    { "fall_s", "seconds from the change until the limit is lower" },
    { "sync_passed", "share of sync that is admitted" },
    { "sync_mean_ms", "latency of sync, mean" },
    { "sync_p95_ms", "the same, 95th percentile" },
    { "bulk_rps", "bulk admitted, a second" },
    { "bulk_done_s", "seconds from the start until all bulk is answered" },
    { "bulk_tries", "times that a request of bulk comes, mean" },
    { NULL, NULL },
};

static const struct weir_model_series series[] = {
    { "offered", "requests a second", true },
    { "passed", "requests a second", true },
    { "limited", "requests a second", true },
    { "p95", "ms", false },
    { "sync_p95", "ms", false },
    { "target", "ms", false },
    { "limit", "requests in flight", false },
    { "in_flight", "requests in flight", false },
    { NULL, NULL, false },
};

/* ---- Options from the fields ---- */

static weir_duration plant_time(const double *values, int field)
{
    return (weir_duration)values[field];
}

static double value_or(const double *values, int field, double otherwise)
{
    return values[field] > 0 ? values[field] : otherwise;
}

static double between(double low, double value, double high)
{
    return fmin(fmax(low, value), high);
}

static void set_controller(struct weir_controller_options *controller,
                           const double *values)
{
    controller->target = plant_time(values, TARGET);
    if (controller->target == 0)
        controller->target = 1;
    controller->max = value_or(values, MAX, controller->max);
    controller->min = value_or(values, MIN, controller->min);
    /* Controllers with whole limits need whole bounds. */
    if (controller->kind != WEIR_CONTROLLER_TARGET) {
        controller->max = fmax(controller->max, 1);
        controller->min = fmax(controller->min, 1);
    }
    controller->max = fmax(controller->max, WEIR_PERMITS_MIN);
    controller->min = fmin(controller->min, controller->max);
    controller->initial =
        between(controller->min, value_or(values, INITIAL, controller->initial),
                controller->max);
    controller->count = (uint32_t)value_or(values, COUNT, controller->count);
    controller->window_min = (weir_duration)value_or(
        values, WINDOW_MIN, (double)controller->window_min);
    controller->window_max = (weir_duration)value_or(
        values, WINDOW_MAX, (double)controller->window_max);
    if (controller->window_max < controller->window_min)
        controller->window_max = controller->window_min;
    controller->backoff = value_or(values, BACKOFF, controller->backoff);
    controller->setpoint = value_or(values, SETPOINT, controller->setpoint);
    controller->growth = value_or(values, GROWTH, controller->growth);
    if (values[GUARD] < OWN_GUARD)
        controller->guard = (enum weir_guard)values[GUARD];
}

static void set_gate(struct weir_plant_options *plant, const double *values)
{
    struct weir_concurrency_gate_options *gate = &plant->gate;
    bool moves = values[CONTROLLER] < FIXED_RATE;
    enum weir_controller_kind kind =
        moves ? (enum weir_controller_kind)values[CONTROLLER]
              : WEIR_CONTROLLER_NONE;
    weir_assert(strcmp(controllers[kind], weir_controller_kind_text(kind)) ==
                0);
    weir_concurrency_gate_defaults(gate, kind);
    set_controller(&gate->controller, values);
    gate->controller.seed = plant->seed;
    if (!moves)
        plant->fixed_per_s = fmax(values[FIXED_PER_S] / plant->instances, 0.01);
    if (values[SYNC_RATE] > 0 && values[CLASSES] == 1) {
        gate->classes = 2;
        gate->class_of[0] =
            (struct weir_concurrency_gate_class){ .name = "bulk" };
        gate->class_of[1] =
            (struct weir_concurrency_gate_class){ .name = "sync",
                                                  .observed = true };
    }
    weir_assert(weir_concurrency_gate_check(gate, NULL) == WEIR_OK);
}

static struct weir_storage_options storage_of(const double *values)
{
    return (struct weir_storage_options){
        .kind = (enum weir_storage_kind)values[STORAGE],
        .latency = plant_time(values, LATENCY),
        .per_s = values[PER_S],
        .floor = plant_time(values, FLOOR),
        .workers = (uint32_t)values[WORKERS],
        .slowness = values[SLOWNESS],
        .slow_at = plant_time(values, SLOW_AT),
        .slow_for = plant_time(values, SLOW_FOR),
        .slow_every = plant_time(values, SLOW_EVERY),
        .hang_at = plant_time(values, HANG_AT),
        .hang_for = plant_time(values, HANG_FOR),
        .blip_at = plant_time(values, BLIP_AT),
        .blip_count = (uint32_t)values[BLIP_COUNT],
        .blip_latency = plant_time(values, BLIP_LATENCY),
        .leaves_after = values[CANCEL] == 1 ? plant_time(values, TIMEOUT) : 0,
    };
}

static struct weir_plant_options plant_of(const struct weir_model_run *run)
{
    const double *values = run->values;
    double instances = values[INSTANCES];
    struct weir_plant_options plant = {
        .storage = storage_of(values),
        .instances = (uint32_t)instances,
        .instances_first = (uint32_t)fmin(
            value_or(values, INSTANCES_FIRST, instances), instances),
        .join_at = plant_time(values, JOIN_AT),
        .poisson = values[ARRIVALS] == 1,
        .rate = values[RATE],
        .step_at = plant_time(values, STEP_AT),
        .step_rate = values[STEP_RATE],
        .bulk_end = plant_time(values, BULK_END),
        .sync_rate = values[SYNC_RATE],
        .overhead = plant_time(values, OVERHEAD),
        .timeout = plant_time(values, TIMEOUT),
        .retry = plant_time(values, RETRY),
        .seed = run->seed,
        .end = run->span,
        .note = weir_adaptive_look_note,
    };
    plant.fleet = values[SCOPE] == 1;
    plant.roots = (uint32_t)values[ROOTS];
    plant.rtt = plant_time(values, RTT);
    plant.dies_at = plant_time(values, DIES_AT);
    plant.takeover = plant_time(values, TAKEOVER);
    set_gate(&plant, values);
    return plant;
}

/* The first change that is configured. */
static struct weir_adaptive_phases phases_of(const double *values)
{
    static const struct {
        int at, lasts, every; /* fields; -1: none */
    } changes[] = {
        { JOIN_AT, -1, -1 },       { DIES_AT, -1, -1 },
        { STEP_AT, -1, -1 },       { SLOW_AT, SLOW_FOR, SLOW_EVERY },
        { HANG_AT, HANG_FOR, -1 }, { BLIP_AT, -1, -1 },
    };
    struct weir_adaptive_phases phases = {
        .grace = plant_time(values, GRACE),
        .shares_after = plant_time(values, SHARES_AFTER),
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(changes); i++) {
        if (values[changes[i].at] == 0 || phases.change > 0)
            continue;
        phases.change = plant_time(values, changes[i].at);
        if (changes[i].lasts >= 0)
            phases.lasts = plant_time(values, changes[i].lasts);
        if (changes[i].every >= 0)
            phases.every = plant_time(values, changes[i].every);
    }
    return phases;
}

static void play_adaptive(struct weir_model_run *run)
{
    struct weir_plant_options plant = plant_of(run);
    struct weir_adaptive_phases phases = phases_of(run->values);
    struct weir_adaptive_look *look = weir_adaptive_look_new(
        run, &plant, &phases, plant_time(run->values, SETTLE));
    plant.context = look;
    run->events = weir_plant_run(&plant);
    weir_adaptive_look_sum_up(look);
    weir_adaptive_look_free(look);
}

const struct weir_model weir_model_adaptive = {
    .name = "adaptive",
    .sentence = "a limit that is moved by latency, before a storage",
    .fields = fields,
    .metrics = metrics,
    .series = series,
    .play = play_adaptive,
};
