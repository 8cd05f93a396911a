/* SPDX-License-Identifier: MIT
 * pacer.h - releases work at a rate instead of refusing it: many jobs, each
 * with a rate of its own, in one thread. */

#ifndef WEIR_PACER_H
#define WEIR_PACER_H

#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ====================================================================
 * A limiter refuses; a pacer delays. It queues nothing: the caller keeps the
 * work, and the pacer computes for each job how many units may go now, and
 * which job has the next turn.
 *
 *     struct weir_pacer *pacer = weir_pacer_new(100);
 *     struct weir_pacer_job mail = { .units = 500, .per = WEIR_SECOND };
 *     weir_pacer_add(pacer, &mail, &id, now);
 *     weir_pacer_ready(pacer, id, true, now);      there is work
 *     for (;;) {
 *         struct weir_pacer_turn turn;
 *         while (weir_pacer_turn(pacer, &turn, clock()))
 *             weir_pacer_spend(pacer, turn.job,
 *                              send(turn.job, turn.units), clock());
 *         sleep_until(weir_pacer_next(pacer));
 *     }
 *
 * Guaranteed for each job, in any span of t nanoseconds:
 *
 *     spent <= burst + rate * (t + quantum + lag), rounded up
 *
 * if each turn spends at most the units it was given. A job that is always
 * ready, with turns late by at most 'lag', spends rate * t, exactly: instants
 * are fractions, nothing drifts. A job that wasn't ready for longer than 'lag'
 * comes back with its burst and no more, however long it was away.
 *
 * Fair: turns come in the order in which they were due, and a turn gives the
 * units that the rate has earned. When the thread can't keep up, the jobs take
 * turns in a ring; in each round a job gets its burst once, then units in
 * proportion to its rate. No job starves.
 *
 * A pacer belongs to one thread, or its users hold a lock of their own. No call
 * blocks or reads a clock; only weir_pacer_new() allocates. 'now' is any clock
 * that doesn't jump, never 0 here; while it is earlier than before, jobs earn
 * nothing. O(log jobs), and O(1) where said.
 * ==================================================================== */

#define WEIR_PACER_JOBS_MAX (1u << 20)
#define WEIR_PACER_QUANTUM_MIN WEIR_MILLISECOND
#define WEIR_PACER_QUANTUM_MAX WEIR_SECOND
#define WEIR_PACER_QUANTUM_DEFAULT (10 * WEIR_MILLISECOND)

struct weir_pacer;

/* The rate of one job. */
struct weir_pacer_job {
    uint64_t units;        /* the rate: so many units … */
    weir_duration per;     /* … every 'per' ns: 1 ns to 366 days, at most 100
                            * units a nanosecond. 0 units: nothing goes */
    uint64_t burst;        /* units that may go at once after a pause, up to
                            * WEIR_WEIGHT_MAX; 0: 1 */
    weir_duration quantum; /* the least time between turns; a turn gives all
                            * units earned since the last: 1 ms to 1 s; 0: 10
                            * ms. A job slower than a unit a quantum has a turn
                            * for each unit */
    weir_duration lag;     /* how late a turn may come, or how long the job may
                            * be not ready, without losing earned units, up to a
                            * second; 0: a quantum */
};

struct weir_pacer_turn {
    uint32_t job;
    uint64_t units; /* units that may go now; 1 .. WEIR_WEIGHT_MAX */
};

/* Room for 'jobs' (1 .. WEIR_PACER_JOBS_MAX). NULL: out of range, or no
 * memory. */
WEIR_API struct weir_pacer *weir_pacer_new(uint32_t jobs);
/* NULL is legal. */
WEIR_API void weir_pacer_free(struct weir_pacer *pacer);

/* Adds a job, with its burst, not ready. 'out_job' is its number until it is
 * removed. WEIR_EINVAL (a number outside its range), WEIR_EFULL. */
WEIR_API WEIR_MUST_USE int weir_pacer_add(struct weir_pacer *pacer,
                                          const struct weir_pacer_job *job,
                                          uint32_t *out_job, weir_instant now);
/* The calls below return WEIR_ENOENT, or 0 units, for an unknown job number. */
WEIR_API int weir_pacer_remove(struct weir_pacer *pacer, uint32_t job);

/* Changes the rate from now on. Units spent stay spent, and a fraction of a
 * unit that was earned stays earned. WEIR_EINVAL: nothing has changed. */
WEIR_API WEIR_MUST_USE int weir_pacer_set(struct weir_pacer *pacer,
                                          uint32_t job,
                                          const struct weir_pacer_job *to,
                                          weir_instant now);

/* Whether the job has work that could go if it had its turn. A job that can't
 * go on (no input, an output that is full) isn't ready. While it isn't, it
 * saves up no more than the burst, after 'lag' has passed. */
WEIR_API int weir_pacer_ready(struct weir_pacer *pacer, uint32_t job,
                              bool ready, weir_instant now);

/* How many units of the job may go now, in its turn or not; at most
 * WEIR_WEIGHT_MAX. O(1). */
WEIR_API uint64_t weir_pacer_can(const struct weir_pacer *pacer, uint32_t job,
                                 weir_instant now);

/* Gives the turn to the ready job that has been due for longest: false when
 * none is due. That job gets no other turn until weir_pacer_spend(). */
WEIR_API bool weir_pacer_turn(struct weir_pacer *pacer,
                              struct weir_pacer_turn *out, weir_instant now);

/* The job has sent that many units, 0 included; ends its turn if it has one.
 * Units above its turn are a debt, which delays the next turn, so that a piece
 * of work heavier than the burst can go whole. WEIR_EINVAL: above
 * WEIR_WEIGHT_MAX. */
WEIR_API int weir_pacer_spend(struct weir_pacer *pacer, uint32_t job,
                              uint64_t units, weir_instant now);

/* When the next turn comes; WEIR_NEVER: no job is ready. O(1). */
WEIR_API weir_instant weir_pacer_next(const struct weir_pacer *pacer);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_PACER_H */
