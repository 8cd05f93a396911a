/* SPDX-License-Identifier: MIT
 * concurrency/controller.h - finds how many requests may be in flight, by how
 * long they take.
 *
 * A controller gets one sample for each request that has come back, and moves a
 * limit. The concurrency gate admits requests (concurrency/concurrency_gate.h).
 * One interface for all kinds:
 *
 *     weir_controller_defaults(&options, WEIR_CONTROLLER_TARGET);
 *     options.target = 200 * WEIR_MILLISECOND;
 *     if (weir_controller_check(&options, &diag) != WEIR_OK) …
 *     c = weir_controller_init(block, &options, now);
 *     … each request: weir_controller_sample(c, &sample, now);
 *     … at weir_controller_deadline(c): weir_controller_tick(c, NULL, now);
 *     weir_controller_limit(c)
 *
 *     kind        moves by                           wants
 *     none        nothing: 'initial' stays           –
 *     request     each answer: over the target       target
 *                 floor(L b), else L + 1
 *     percentile  each n answers: the percentile     target, percentile
 *                 over the target floor(L b), else
 *                 L + 1 where the limit is used
 *     target      windows of a count and an age: by  target, percentile
 *                 how far the percentile is from a
 *                 share of the target; fractions;
 *                 after a stall back at once
 *     vegas       each answer: the queue that its    – (finds a knee, holds
 *                 latency beside the least shows     no target)
 *     gradient2   each answer: its latency beside a  –
 *                 long mean
 *     envoy       each interval: the percentile      –
 *                 beside the latency at a low limit
 *
 * request and percentile are the two of the article "Adaptive concurrency
 * limiting" (Mindbox), exactly, so also with its flaws; request with a guard,
 * drops and other numbers is Netflix's AIMD. vegas and gradient2 are those of
 * Netflix's concurrency-limits, envoy that of Envoy's gradient controller.
 * target is ours. All are new implementations of the described behaviour.
 *
 * Guarantees:
 *   - min <= limit <= max, except while envoy looks for its least latency:
 *     then it is 'probe_limit', if that isn't 0.
 *   - The same options and calls give the same limits: chance comes from the
 *     options' seed. Nothing is allocated; the time a call takes is bounded.
 *   - A sample that is ignored changes nothing.
 *   - target: after a stall (windows in which nothing is answered in time, and
 *     most is dropped or overdue) the first answer within half of the setpoint
 *     takes the limit back to where it was before the stall, never above. If
 *     that is followed by a stall before a window has held the setpoint, the
 *     next answer takes it back to half of that only. The windows of a stall
 *     leave at least an eighth of the limit.
 *   - A 'now' before one given earlier counts as the latest one.
 *
 * A controller may be two: the one of a fleet, which moves the limit, and one
 * in each process, whose limit is given ('given' in the options) and which
 * keeps its samples for the other (concurrency/fleet_limit.h).
 *
 * Plain memory of the caller's, without pointers. One thread at a time; the
 * gate ensures that. */

#ifndef WEIR_CONTROLLER_H
#define WEIR_CONTROLLER_H

#include "core/concurrency/controller_kind.h"

/* "none", "request", …; static texts. */
const char *weir_controller_kind_text(enum weir_controller_kind kind);

/* How a request ended; the numbers are those of enum weir_permit_outcome. */
enum weir_sample_outcome {
    WEIR_SAMPLE_SUCCESS = 0,
    /* Refused or timed out by an overloaded dependency. 'latency' is how long
     * that took: of one that timed out, the time-out. */
    WEIR_SAMPLE_DROPPED = 1,
    /* Cancelled, or invalid in itself: shows nothing about the load. */
    WEIR_SAMPLE_IGNORED = 2,
};

/* One request that has come back, at the 'now' of the call. */
struct weir_sample {
    weir_duration latency; /* counts as WEIR_LATENCY_MAX if longer */
    enum weir_sample_outcome outcome;
    uint32_t in_flight; /* when it began, itself included: >= 1 */
    uint32_t left;      /* in flight after it left, itself not included */
};

#define WEIR_WINDOW_SAMPLES_MAX (1u << 24) /* more don't count in a window */

/* When 'limit' may grow: only if it is used. Otherwise it would grow without
 * end while there is little to do, and be no limit under load. */
enum weir_guard {
    WEIR_GUARD_NONE = 0,
    WEIR_GUARD_BEGUN, /* 2 in_flight >= limit */
    WEIR_GUARD_LEFT,  /* 2 left + 1 >= limit */
    /* 2 left >= limit: the article's first form. At a limit of one it never
     * lets the limit grow again. For comparison, not for use. */
    WEIR_GUARD_LEFT_BARE,
};

/* Each kind reads the fields listed for it, and ignores the rest. Make it by
 * weir_controller_defaults(); the numbers below are its values. */
struct weir_controller_options {
    enum weir_controller_kind kind;
    /* All: 0 < min <= initial <= max <= WEIR_PERMITS_MAX. If the kind
     * deals in whole ones (all but target), min >= 1.
     *              initial      min      max
     *   none       PERMITS_MAX  1        PERMITS_MAX
     *   request    26           1        50
     *   percentile 26           1        50
     *   target     20           PERMITS_MIN 10,000
     *   vegas      20           1        1,000
     *   gradient2  20           20       200
     *   envoy      3            3        1,000 */
    double initial, min, max;
    uint64_t seed; /* vegas, envoy: of their jitter */
    /* target: the limit is set by weir_controller_give() alone, and samples are
     * kept for weir_controller_collect(). Until it was given for the first
     * time, it is WEIR_GIVEN_FIRST. An edit that ends it keeps the limit within
     * min and max; one that was never given is 'initial'. false. */
    bool given;

    /* request, percentile, target: > 0; 200 ms. */
    weir_duration target;
    /* percentile, target, envoy: 0 < p <= 100, to four places; 95, envoy 50.
     * Nearest rank: the smallest value that p % of the samples don't exceed. */
    double percentile;
    /* request, percentile, target: the part of the limit that is left, at
     * least, after one decrease; 0 < b <= 1, 0.5. vegas: the same if > 0; 0
     * (the default): it falls by log10 L. */
    double backoff;
    /* request: none; percentile: LEFT. */
    enum weir_guard guard;
    /* request, percentile: whether a dropped request counts as one over the
     * target; false, as in the article: it isn't counted. (target: always;
     * vegas: a decrease; gradient2: by its latency, as upstream; envoy: not at
     * all, as upstream.) */
    bool drops;
    /* percentile: samples of a window; 320. target: a window is judged only
     * with as many, or when so many are slow that more could not change the
     * result; 50. 1 … WEIR_WINDOW_SAMPLES_MAX. */
    uint32_t count;

    /* target: a window is at least so old, and twice the mean latency in it;
     * > 0; 2 s. envoy: its interval; 100 ms. */
    weir_duration window_min;
    /* target: from this age on a few samples are enough; >= window_min;
     * 15 s. */
    weir_duration window_max;
    /* target: the percentile is kept at this share of the target; 0 < s <= 1;
     * 0.97. Latency moves in a band around it, and the target should lie
     * above. */
    double setpoint;
    /* target: a window under the setpoint raises the limit by at most this
     * share of it; 0 < g <= 1; 0.1. */
    double growth;

    /* vegas, gradient2: the weight of a new limit, 0 < s <= 1; 1, 0.2. */
    double smoothing;
    /* vegas: alpha and beta as multiples of log10 L; 3, 6. */
    double alpha, beta;
    /* vegas: its least latency is measured anew after about as many samples
     * times the limit; > 0; 30. */
    double probe_multiplier;

    /* gradient2: the multiple of the long mean up to which there is no
     * overload, >= 1; 1.5. Permits added each time; 4. Samples of the long
     * mean, >= 1; 600. */
    double tolerance;
    double queue;
    uint32_t long_window;

    /* envoy: how far over the least latency is no overload; >= 0; 0.25. */
    double buffer;
    /* envoy: the interval between measurements of the least latency, > 0; 60 s;
     * a random part of it by which it is later, 0.15; samples of a measurement,
     * >= 1; 50; the limit meanwhile, >= 1; 3; 0: the limit in force. */
    weir_duration probe_interval;
    double probe_jitter;
    uint32_t probe_count;
    uint32_t probe_limit;
    /* envoy: the least latency, if it is known; then it is never measured;
     * 0. */
    weir_duration least_latency;
};

#define WEIR_GIVEN_FIRST 1.0

void weir_controller_defaults(struct weir_controller_options *options,
                              enum weir_controller_kind kind);
/* WEIR_OK or WEIR_EINVAL, with the reason in 'diag' (or NULL). */
int weir_controller_check(const struct weir_controller_options *options,
                          struct weir_diag *diag);

struct weir_controller;
/* Bytes, at most WEIR_CONTROLLER_SIZE_MAX; by the kind alone. */
size_t weir_controller_size(const struct weir_controller_options *options);
#define WEIR_CONTROLLER_SIZE_MAX (17u << 10)
/* Makes one in 'block' (8-byte aligned); the options must be sound, and are
 * copied. */
struct weir_controller *weir_controller_init(
    void *block, const struct weir_controller_options *options,
    weir_instant now);

/* Takes other options, which must be sound and of a kind that fits the block.
 * The limit stays, as far as they allow (of 'none' it is 'initial'). If only
 * min, max, initial or seed have changed, all that was learned stays; else
 * windows and measurements begin anew. */
void weir_controller_edit(struct weir_controller *controller,
                          const struct weir_controller_options *options,
                          weir_instant now);

/* A request has come back. Returns whether a window was closed or the limit
 * moved: then read the limit again. */
bool weir_controller_sample(struct weir_controller *controller,
                            const struct weir_sample *sample, weir_instant now);

/* Permits still in flight, and their least age: a latency with only a lower
 * bound. */
struct weir_overdue {
    uint32_t count;
    weir_duration age;
};

/* Time has passed: call it at the deadline, if no sample came by then; earlier
 * or later does no harm. 'overdue' or NULL: permits still in flight; if they
 * are over the target, they count as slow (target only; the other kinds ignore
 * them, as upstream). Returns as above. */
bool weir_controller_tick(struct weir_controller *controller,
                          const struct weir_overdue *overdue, weir_instant now);

/* Whether a kind may be given its limit, and takes batches: target. */
bool weir_controller_merges(enum weir_controller_kind kind);
/* Of a controller with 'given': sets the limit, 0 .. WEIR_PERMITS_MAX, whatever
 * min and max are. 'cut': what weir_fleet_limit_cut() was for that limit. If it
 * is another one than before, the samples of requests that began before now
 * count no more. */
void weir_controller_give(struct weir_controller *controller, double limit,
                          uint64_t cut, weir_instant now);
/* Of a controller with 'given': takes all samples since the last call. 'bins':
 * room for WEIR_WINDOW_BINS, which 'out' borrows. 'overdue' as of tick(). */
struct weir_latency_count;
struct weir_latency_batch;
void weir_controller_collect(struct weir_controller *controller,
                             const struct weir_overdue *overdue,
                             struct weir_latency_count *bins,
                             struct weir_latency_batch *out, weir_instant now);

/* When to call tick() even if no sample comes; WEIR_NEVER: never. */
weir_instant weir_controller_deadline(const struct weir_controller *controller);

/* How many may be in flight. With target it has fractions, and may be
 * below one: half a permit is one that is in flight half of the time. Other
 * kinds return whole numbers. */
double weir_controller_limit(const struct weir_controller *controller);

/* The reason for the present limit. */
enum weir_limit_reason {
    WEIR_LIMIT_INITIAL = 0, /* nothing has been decided yet */
    WEIR_LIMIT_SLOW,        /* fell: answers took too long */
    WEIR_LIMIT_DROPPED,     /* fell: requests were dropped, or are overdue */
    WEIR_LIMIT_ROOM,        /* rose: answers are quick and it is used */
    WEIR_LIMIT_MEASURING,   /* low for a while, to find the least latency */
    WEIR_LIMIT_MEASURED,    /* back at the limit before that */
    WEIR_LIMIT_EDITED,      /* its bounds were changed */
    WEIR_LIMIT_RESUMED,     /* back where it was: answers come again */
    WEIR_LIMIT_GIVEN,       /* a part of a fleet's limit */
};
#define WEIR_LIMIT_REASONS 9
/* "slow", …; static texts. */
const char *weir_limit_reason_text(enum weir_limit_reason reason);

/* A read-only view of a controller. */
struct weir_controller_view {
    double limit;
    double before;                 /* the limit before it last moved */
    enum weir_limit_reason reason; /* of its last move */
    weir_instant moved_at;         /* when; at first, its creation */
    uint64_t windows;              /* judged; of kinds without windows, samples
                                    * that counted */
    /* Of the last window judged; of kinds without windows, the last sample; 0
     * before. */
    weir_duration latency; /* its percentile, or the sample's */
    uint32_t samples;
    uint32_t slow; /* of them above the setpoint or target: dropped included */
    /* vegas, gradient2, envoy: the latency that samples are compared with. */
    weir_duration baseline;
};
void weir_controller_view(const struct weir_controller *controller,
                          struct weir_controller_view *out);

/* The mean of recent answers' latencies, ns, at least 1: for pauses and hints.
 * Dropped requests aren't in it: how long callers wait in vain says nothing
 * about when a permit will be free again. Before the first answer, the target,
 * or 1 ms if there is none. Of a limit that is given it falls to much quicker
 * answers within a second or a few of them. */
weir_duration weir_controller_mean(const struct weir_controller *controller);

#endif /* WEIR_CONTROLLER_H */
