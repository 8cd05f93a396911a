/* SPDX-License-Identifier: MIT
 * lab/arrivals.c - instants of requests; see load.h.
 *
 * An arrival is the instant at which the integral of the rate passes the next
 * amount: 1 for regular arrivals, an exponential of mean 1 for a Poisson
 * process. The rate is a product of steps, bursts (on or off) and a sine. It is
 * held constant over spans that end at the next change of any of these; the
 * sine is cut into 64 spans a period. */

#include <math.h>

#include "lab/load.h"

#define SINE_SPANS 64

/* A span of constant rate. */
struct span {
    double per_s;
    weir_duration end; /* since the start; WEIR_NEVER */
};

static weir_duration earlier(weir_duration a, weir_duration b)
{
    return a < b ? a : b;
}

static struct span step_span(const struct weir_arrival *arrival,
                             weir_duration at)
{
    const struct weir_load *load = arrival->load;
    struct weir_rate_step step = { 0 };
    weir_duration end = WEIR_NEVER;
    for (size_t i = 0; i < load->step_count && !arrival->replaced; i++) {
        if (load->steps[i].at > at) {
            end = load->steps[i].at;
            break;
        }
        step = load->steps[i];
    }
    if (arrival->replaced)
        step = arrival->rate;
    return (struct span){
        .per_s = step.per_s * (step.times_limit ? arrival->base_per_s : 1),
        .end = end,
    };
}

static void burst_span(const struct weir_load *load, weir_duration at,
                       struct span *span)
{
    if (load->burst_every == 0)
        return;
    weir_duration begin = at / load->burst_every * load->burst_every;
    bool on = at - begin < load->burst_on;
    span->per_s *= on;
    span->end =
        earlier(span->end, begin + (on ? load->burst_on : load->burst_every));
}

static void sine_span(const struct weir_load *load, weir_duration at,
                      struct span *span)
{
    if (load->sine_period < SINE_SPANS)
        return;
    weir_duration width = load->sine_period / SINE_SPANS;
    weir_duration begin = at / width * width;
    double middle = (double)begin + (double)width / 2;
    double turn = 2 * acos(-1) * middle / (double)load->sine_period;
    span->per_s *= fmax(0, 1 + load->sine_part * sin(turn));
    span->end = earlier(span->end, begin + width);
}

static struct span steady_span(const struct weir_arrival *arrival,
                               weir_duration at)
{
    struct span span = step_span(arrival, at);
    /* A rate of 0 stays 0, with any bursts or sine. */
    if (span.per_s > 0) {
        burst_span(arrival->load, at, &span);
        sine_span(arrival->load, at, &span);
    }
    return span;
}

weir_instant weir_arrival_next(struct weir_arrival *arrival,
                               struct weir_rng *rng)
{
    double need = arrival->load->arrivals == WEIR_ARRIVALS_REGULAR
                      ? 1
                      : -log(1 - weir_rng_unit(rng));
    weir_duration at = arrival->at - arrival->start;
    double rest = arrival->rest;
    while (at <= arrival->span) {
        struct span span = steady_span(arrival, at);
        double gap = need / span.per_s * 1e9 + rest;
        double whole =
            span.end == WEIR_NEVER ? HUGE_VAL : (double)(span.end - at);
        if (span.per_s > 0 && gap < whole && gap < 1e18) {
            arrival->at = arrival->start + at + (weir_duration)gap;
            arrival->rest = gap - floor(gap);
            return arrival->at;
        }
        if (span.end == WEIR_NEVER)
            break;
        need -= span.per_s * (whole - rest) / 1e9;
        need = fmax(need, 0);
        rest = 0;
        at = span.end;
    }
    return WEIR_NEVER;
}

double weir_arrival_rate(const struct weir_arrival *arrival, weir_duration at)
{
    return steady_span(arrival, at).per_s;
}
