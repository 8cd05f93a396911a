/* SPDX-License-Identifier: MIT
 * concurrency/controller_internal.h - the state that the kinds of controllers
 * share; for the files that implement one. */

#ifndef WEIR_CONTROLLER_INTERNAL_H
#define WEIR_CONTROLLER_INTERNAL_H

#include "core/base/rng.h"
#include "core/concurrency/controller.h"
#include "core/concurrency/latency_window.h"

struct weir_target_state {
    weir_instant opened;     /* the window */
    weir_instant due;        /* when it is checked without a sample */
    weir_instant cut_at;     /* requests begun before it show the state before:
                              * the last decrease, resumption, or first answer
                              * of a stall; 0: none */
    weir_duration hold;      /* upper bound of the percentile */
    weir_duration round;     /* of a fleet: half of a window's least age */
    uint32_t dropped;        /* of the window's samples */
    uint32_t peak;           /* most in flight in it */
    weir_instant in_time_at; /* of the last answer within 'hold'; 0: none */
    double full;             /* limit before the stall, after a resumption half
                              * of it; 0: nothing to go back to */
    uint32_t stall;          /* enum stall of target.c */
};

struct weir_vegas_state {
    weir_duration least; /* latency without load; 0: unknown */
    double since;        /* samples since it was measured */
    double jitter;       /* factor of the next measurement's time: 0.5 … 1 */
};

struct weir_gradient_state {
    double mean; /* of the long window */
    double sum;  /* of its first samples */
    uint32_t samples;
};

struct weir_envoy_state {
    weir_duration least;   /* 0: not measured yet */
    weir_instant due;      /* end of the interval */
    weir_instant probe_at; /* when 'least' is measured next */
    weir_instant probing;  /* since when it is being measured; 0: it isn't */
    double resumed;        /* the limit after that */
    uint32_t floors;       /* intervals in a row that ended at the least */
};

struct weir_controller {
    struct weir_controller_options options;
    uint32_t millionths; /* options.percentile */
    double limit;
    weir_instant now;                 /* the latest one given */
    double mean;                      /* of latencies; 0: none came */
    weir_instant mean_at;             /* of the last of them */
    uint64_t cut;                     /* of the limit that was given … */
    bool was_given;                   /* … if one was */
    struct weir_controller_view view; /* its last move and window */
    struct weir_rng rng;
    union {
        struct weir_target_state target;
        struct weir_vegas_state vegas;
        struct weir_gradient_state gradient;
        struct weir_envoy_state envoy;
    };
    struct weir_latency_window
        window[]; /* one if the family has windows, else none */
};

/* A kind. 'sample' never gets an ignored sample, nor a latency above
 * WEIR_LATENCY_MAX; 'now' never goes back. init, tick and deadline may be NULL;
 * the state of the kind is all zeros before init. */
struct weir_controller_family {
    const char *text;
    bool windows; /* has a window */
    bool whole;   /* deals in whole permits */
    void (*init)(struct weir_controller *controller, weir_instant now);
    bool (*sample)(struct weir_controller *controller,
                   const struct weir_sample *sample, weir_instant now);
    bool (*tick)(struct weir_controller *controller,
                 const struct weir_overdue *overdue, weir_instant now);
    weir_instant (*deadline)(const struct weir_controller *controller);
};

/* The clock doesn't go back. */
static inline weir_instant weir_controller_clock(
    struct weir_controller *controller, weir_instant now)
{
    if (now > controller->now)
        controller->now = now;
    return controller->now;
}

/* ---- For fleet_limit.c: of kinds that take batches ---- */

/* Adds a batch to the window; never judges it. Returns whether an answer in it
 * ended a stall, or its silence: then the window is a new one. */
bool weir_controller_merge(struct weir_controller *controller,
                           const struct weir_latency_batch *batch,
                           weir_instant now);
/* The members come in turn, and each has come once after so long: a window has
 * two such rounds, within 'window_max'. */
void weir_controller_set_round(struct weir_controller *controller,
                               weir_duration round);
/* Whether the window is over: the next tick() judges it. */
bool weir_controller_is_due(const struct weir_controller *controller,
                            const struct weir_overdue *overdue,
                            weir_instant now);
/* Ends the window without judging it. */
void weir_controller_skip(struct weir_controller *controller, weir_instant now);
/* Whether it waits for the answer that ends a stall. */
bool weir_controller_is_stalled(const struct weir_controller *controller);
/* Requests that began before it show an earlier limit; 0: none. */
weir_instant weir_controller_cut_at(const struct weir_controller *controller);

extern const struct weir_controller_family weir_controller_request;
extern const struct weir_controller_family weir_controller_percentile;
extern const struct weir_controller_family weir_controller_target;
extern const struct weir_controller_family weir_controller_vegas;
extern const struct weir_controller_family weir_controller_gradient2;
extern const struct weir_controller_family weir_controller_envoy;

/* Sets the limit, kept within min and max, and notes the reason if it
 * changes. */
void weir_controller_move(struct weir_controller *controller, double limit,
                          enum weir_limit_reason reason, weir_instant now);
/* Notes a judged window, and empties it. */
void weir_controller_note_window(struct weir_controller *controller);
/* For kinds without windows: notes a sample. */
void weir_controller_note_sample(struct weir_controller *controller,
                                 const struct weir_sample *sample, bool slow);

/* floor(limit * backoff), as in the article: for whole limits. */
void weir_controller_cut(struct weir_controller *controller, bool dropped,
                         weir_instant now);
bool weir_guard_lets(enum weir_guard guard, double limit,
                     const struct weir_sample *sample);

static inline bool weir_is_dropped(const struct weir_sample *sample)
{
    return sample->outcome == WEIR_SAMPLE_DROPPED;
}

#endif /* WEIR_CONTROLLER_INTERNAL_H */
