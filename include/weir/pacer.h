/* SPDX-License-Identifier: MIT
 * pacer.h - work that must not be lost, let go at a rate: many jobs, each
 * with a rate of its own, in one thread. */

#ifndef WEIR_PACER_H
#define WEIR_PACER_H

#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ====================================================================
 * A limiter refuses; a pacer says when. Nothing is queued here: the work
 * stays where it is, and the pacer knows for each job how many units may go
 * now, and which job's turn comes next.
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
 * What holds for each job, in any span of t nanoseconds:
 *
 *     spent <= burst + rate * (t + quantum + lag), rounded up
 *
 * if each turn spends what it was given or less; and a job that is always
 * ready and whose turns are late by at most 'lag' spends rate * t, exactly:
 * instants are fractions, nothing drifts. A job that wasn't ready for longer
 * than 'lag' comes back with its burst and no more, however long it was away.
 *
 * Fair: turns come in the order in which they were due, and a turn gives
 * what the rate has earned. When the thread can't keep up, all jobs wait for
 * each other in a ring, and each time round get a burst and then their share
 * by rate. Nobody starves.
 *
 * A pacer is one thread's, or its users hold a lock of their own. No call
 * blocks or reads a clock; but weir_pacer_new() none allocates. 'now' is any
 * clock that doesn't jump, never 0 here; one that goes back a little earns
 * nothing meanwhile. O(log jobs), and O(1) where said.
 * ==================================================================== */

#define WEIR_PACER_JOBS_MAX (1u << 20)
#define WEIR_PACER_QUANTUM_MIN WEIR_MILLISECOND
#define WEIR_PACER_QUANTUM_MAX WEIR_SECOND
#define WEIR_PACER_QUANTUM_DEFAULT (10 * WEIR_MILLISECOND)

struct weir_pacer;

/* What one job may send. */
struct weir_pacer_job {
    uint64_t units;        /* the rate: so many units … */
    weir_duration per;     /* … every 'per' ns: 1 ns to 366 days, at most 100
                            * units a nanosecond. 0 units: nothing goes */
    uint64_t burst;        /* units that may go at once after a pause, up to
                            * WEIR_WEIGHT_MAX; 0: 1 */
    weir_duration quantum; /* a turn comes at most so often, and then gives
                            * all that was earned meanwhile: a millisecond to
                            * a second; 0: 10 ms. A job slower than a unit a
                            * quantum has a turn for each unit */
    weir_duration lag;     /* how late a turn may come, or how long the job be
                            * not ready, and still be given all that was
                            * earned, up to a second; 0: a quantum */
};

struct weir_pacer_turn {
    uint32_t job;
    uint64_t units; /* that may go now; 1 .. WEIR_WEIGHT_MAX */
};

/* Room for 'jobs' (1 .. WEIR_PACER_JOBS_MAX). NULL: out of range, or no
 * memory. */
WEIR_API struct weir_pacer *weir_pacer_new(uint32_t jobs);
/* NULL is legal. */
WEIR_API void weir_pacer_free(struct weir_pacer *pacer);

/* A job begins, with its burst, and isn't ready. 'out_job' is its number until
 * it is removed. WEIR_EINVAL (a number outside its range), WEIR_EFULL. */
WEIR_API WEIR_MUST_USE int weir_pacer_add(struct weir_pacer *pacer,
                                          const struct weir_pacer_job *job,
                                          uint32_t *out_job, weir_instant now);
/* Below, a number that no job has is WEIR_ENOENT, or 0 units. */
WEIR_API int weir_pacer_remove(struct weir_pacer *pacer, uint32_t job);

/* Other numbers from now on. What was spent stays spent, in units, and a unit
 * half earned stays half earned. WEIR_EINVAL: nothing has changed. */
WEIR_API WEIR_MUST_USE int weir_pacer_set(struct weir_pacer *pacer,
                                          uint32_t job,
                                          const struct weir_pacer_job *to,
                                          weir_instant now);

/* Whether there is work that could go if it were the job's turn. Who can't
 * go on (no input, an output that is full) isn't ready, and saves up no more
 * than the burst, but for a moment ('lag'). */
WEIR_API int weir_pacer_ready(struct weir_pacer *pacer, uint32_t job,
                              bool ready, weir_instant now);

/* How many units of the job may go now, turn or not; at most
 * WEIR_WEIGHT_MAX. O(1). */
WEIR_API uint64_t weir_pacer_can(const struct weir_pacer *pacer, uint32_t job,
                                 weir_instant now);

/* The ready job that is due for longest has its turn: false when none is due.
 * It has no other one until weir_pacer_spend(). */
WEIR_API bool weir_pacer_turn(struct weir_pacer *pacer,
                              struct weir_pacer_turn *out, weir_instant now);

/* The job has sent that many units, 0 included; ends its turn if it has one.
 * More than it could is a debt, which the next turn waits for: so a piece of
 * work heavier than the burst goes whole. WEIR_EINVAL: above
 * WEIR_WEIGHT_MAX. */
WEIR_API int weir_pacer_spend(struct weir_pacer *pacer, uint32_t job,
                              uint64_t units, weir_instant now);

/* When the next turn comes; WEIR_NEVER: no job is ready. O(1). */
WEIR_API weir_instant weir_pacer_next(const struct weir_pacer *pacer);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_PACER_H */
