/* SPDX-License-Identifier: MIT
 * test/core/concurrency/controller_samples.h - one controller, its clock, and
 * samples for it; for the tests of controllers. */

#ifndef CONTROLLER_SAMPLES_H
#define CONTROLLER_SAMPLES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/concurrency/controller_internal.h"

#define MS WEIR_MILLISECOND
#define NEAR(a, b) assert_float_equal((float)(a), (float)(b), 1e-4f)

static uint64_t block[WEIR_CONTROLLER_SIZE_MAX / 8];
static weir_instant clock_now;

static inline struct weir_controller_options usual(
    enum weir_controller_kind kind, double initial, double min, double max)
{
    struct weir_controller_options options;
    weir_controller_defaults(&options, kind);
    assert_int_equal(weir_controller_check(&options, NULL), WEIR_OK);
    options.initial = initial;
    options.min = min;
    options.max = max;
    return options;
}

static inline struct weir_controller *made(
    const struct weir_controller_options *options)
{
    struct weir_diag diag = { 0 };
    if (weir_controller_check(options, &diag) != WEIR_OK)
        fail_msg("%s", diag.text);
    memset(block, 0xa5, sizeof(block));
    clock_now = 1000 * WEIR_SECOND;
    return weir_controller_init(block, options, clock_now);
}

static inline double limit_of(const struct weir_controller *c)
{
    return weir_controller_limit(c);
}

static inline double feed(struct weir_controller *c, weir_duration latency,
                          uint32_t in_flight, enum weir_sample_outcome outcome)
{
    struct weir_sample sample = { .latency = latency,
                                  .in_flight = in_flight,
                                  .left = in_flight > 0 ? in_flight - 1 : 0,
                                  .outcome = outcome };
    clock_now += MS;
    weir_controller_sample(c, &sample, clock_now);
    return limit_of(c);
}

static inline double ok(struct weir_controller *c, weir_duration latency,
                        uint32_t in_flight)
{
    return feed(c, latency, in_flight, WEIR_SAMPLE_SUCCESS);
}

static inline double dropped(struct weir_controller *c, weir_duration latency,
                             uint32_t in_flight)
{
    return feed(c, latency, in_flight, WEIR_SAMPLE_DROPPED);
}

/* 'count' answers that begin and end within 'span', evenly. */
static inline void answers(struct weir_controller *c, uint32_t count,
                           weir_duration latency, uint32_t slow,
                           weir_duration late, weir_duration span)
{
    for (uint32_t i = 0; i < count; i++) {
        clock_now += span / count;
        struct weir_sample sample = {
            .latency = i < slow ? late : latency,
            .in_flight = 20,
        };
        weir_controller_sample(c, &sample, clock_now);
    }
}

static inline struct weir_controller *target_made(double initial)
{
    struct weir_controller_options o =
        usual(WEIR_CONTROLLER_TARGET, initial, WEIR_PERMITS_MIN, 10000);
    return made(&o);
}

static inline uint64_t windows_of(const struct weir_controller *c)
{
    struct weir_controller_view view;
    weir_controller_view(c, &view);
    return view.windows;
}

#endif /* CONTROLLER_SAMPLES_H */
