/* SPDX-License-Identifier: MIT
 * concurrency/concurrency_gate.h - the concurrency gate: admits requests under
 * a limit that moves.
 *
 *     struct weir_concurrency_gate_permit permit;
 *     if (!weir_concurrency_gate_enter(gate, klass, 1, &permit, now))
 *         … refused; weir_concurrency_gate_wait() guesses for how long …
 *     … the request …
 *     weir_concurrency_gate_leave(gate, &permit, WEIR_SAMPLE_SUCCESS, now);
 *
 * A gate contains a controller (concurrency/controller.h), which gets a sample
 * of each request that leaves and sets the limit. No thread is needed for it:
 * when a window's time is over, the next thread that enters, is refused or
 * leaves closes it. A thread that calls weir_concurrency_gate_tick() is
 * allowed and not necessary: while no request comes, the limit doesn't matter.
 *
 * The limit. Without classes, at the moment when a permit is given, no more
 * than the limit is in flight (rounded up, see below), however many threads
 * race. A limit that falls below the units in flight takes nothing away: the
 * gate refuses until enough have left. Below one, a limit of f is one permit
 * that is given at most once every mean latency / f: 0.25 is one in flight,
 * then a pause of three times as long, and so f in flight on average. The mean
 * is that of answers: while nothing is answered, the one permit is in flight
 * until its caller gives up, and so more than f on average, but never more than
 * one. Twenty processes in front of a storage that bears eleven requests need
 * that: they can't have one each. Above one, the fraction is one permit more,
 * given as rarely: on average it adds at most the fraction. A caller that
 * arrives late does not delay the next permit (by up to half a pause). However
 * small the limit, a pause is at most ten seconds, so that the gate notices
 * when more is possible.
 *
 * Groups. A permit may be of several units (a page and all of its queries): it
 * gets all of them or none. A group larger than the whole limit is let in when
 * nothing else is in flight, and then in such intervals that on average the
 * limit holds.
 *
 * Classes. Each has a guaranteed share of the limit: while it has less in
 * flight, it is let in, even if other classes have borrowed that share and fill
 * the limit. Above its share it may borrow unused units. A class without a
 * share only borrows: it is refused first. A class that is 'observed' is never
 * refused, but its units are in flight like all others, so that the other
 * classes make room. In total, however threads race, the units in flight never
 * exceed the limit, plus the shares, plus the observed units.
 *
 * Lost and doubled permits. A permit given back twice counts once. A copy of a
 * permit given back may take another permit's units, but the count is wrong
 * only until that one leaves. A permit that is never given back is written off
 * after 'lost_after'; if it does come back, nothing happens.
 *
 * Edits. A gate can take other options. Units in flight stay, and leave by
 * their permits as usual; the limit stays as far as the options allow. A class
 * that keeps name and number keeps its count; units of any other class count in
 * the sum alone.
 *
 * Threads: enter, leave, wait and view from any number at once. Enter is
 * lock-free; a refusal writes nothing that another thread reads. Leave never
 * waits: one thread at a time uses the controller, the others put their samples
 * down for it (STASH in concurrency_gate.c; when that is full the sample is
 * lost, and counted). One thread at a time uses a permit. Plain memory without
 * pointers; after fork() the child needs another gate, because a thread may
 * have been in the middle of a change. */

#ifndef WEIR_CONCURRENCY_GATE_H
#define WEIR_CONCURRENCY_GATE_H

#include "core/concurrency/controller.h"

#define WEIR_CONCURRENCY_GATE_CLASSES_MAX 8
#define WEIR_CONCURRENCY_GATE_NAME_MAX 31 /* bytes of a class's name */
#define WEIR_CONCURRENCY_GATE_UNITS_MAX \
    (1u << 23) /* in flight, observed included */

struct weir_concurrency_gate_class {
    char name[WEIR_CONCURRENCY_GATE_NAME_MAX +
              1];         /* unique; may be "" if it is the only
                                          * class */
    double share_percent; /* of the limit; >= 0, in all at most 100. Rounded up
                           * to whole permits, at least one if not 0 */
    bool observed;        /* never refused; 'share_percent' is 0 then */
    bool unheard;         /* the controller gets no samples of its requests */
};

struct weir_concurrency_gate_options {
    struct weir_controller_options controller;
    uint32_t classes; /* 1 .. WEIR_CONCURRENCY_GATE_CLASSES_MAX */
    struct weir_concurrency_gate_class
        class_of[WEIR_CONCURRENCY_GATE_CLASSES_MAX];
    /* Permits are written off when at least so old and at most a little more
     * than twice; 0: never. */
    weir_duration lost_after;
};

/* One class, "", without a share; the controller's defaults for 'kind'. */
void weir_concurrency_gate_defaults(
    struct weir_concurrency_gate_options *options,
    enum weir_controller_kind kind);
/* WEIR_OK or WEIR_EINVAL, with the reason in 'diag' (or NULL). */
int weir_concurrency_gate_check(
    const struct weir_concurrency_gate_options *options,
    struct weir_diag *diag);

struct weir_concurrency_gate;
/* Bytes, by the options. */
size_t weir_concurrency_gate_size(
    const struct weir_concurrency_gate_options *options);
/* Makes one in 'block', aligned to WEIR_CACHE_LINE; the options must be sound,
 * and are copied. */
struct weir_concurrency_gate *weir_concurrency_gate_init(
    void *block, const struct weir_concurrency_gate_options *options,
    weir_instant now);

/* Changes the options, while lock-free calls go on. The options must be sound,
 * and the block large enough for their kind. 'anew': the gate is for another
 * quota from now on: nothing is in flight, all that was learned is forgotten,
 * and earlier permits hold nothing. False: another thread uses the controller,
 * nothing has changed; call again. */
bool weir_concurrency_gate_edit(
    struct weir_concurrency_gate *gate,
    const struct weir_concurrency_gate_options *options, bool anew,
    weir_instant now);

/* Of a gate whose limit is given (options.controller.given): sets it, as
 * weir_controller_give(); 0 refuses all. Shares of classes aren't rounded then,
 * and have fractions as the limit has. False: another thread uses the
 * controller, nothing has changed; call again. */
bool weir_concurrency_gate_give(struct weir_concurrency_gate *gate,
                                double limit, uint64_t cut, weir_instant now);
/* … the permits that its classes are guaranteed, instead of their shares of it,
 * until the next edit; of a class without a share 0. NULL: their shares of it
 * again. False: likewise. */
bool weir_concurrency_gate_guarantee(
    struct weir_concurrency_gate *gate,
    const double permits[WEIR_CONCURRENCY_GATE_CLASSES_MAX]);
/* The use by each class, of a gate with several; the last one: requests of no
 * class. */
struct weir_concurrency_gate_use {
    uint32_t in_flight;
    bool refused; /* one was, since the last call */
};
void weir_concurrency_gate_uses(struct weir_concurrency_gate *gate,
                                struct weir_concurrency_gate_use
                                    out[WEIR_CONCURRENCY_GATE_CLASSES_MAX + 1]);
/* … takes what was measured since the last call, as weir_controller_collect().
 * False: likewise. */
bool weir_concurrency_gate_collect(struct weir_concurrency_gate *gate,
                                   struct weir_latency_count *bins,
                                   struct weir_latency_batch *out,
                                   weir_instant now);

/* The units that an enter holds: plain memory of the caller's. All zero:
 * none. */
struct weir_concurrency_gate_permit {
    weir_instant entered;
    uint32_t units;     /* 0: it holds nothing */
    uint32_t in_flight; /* when it was given, its own included */
    uint16_t life;      /* of the sum: the generation that it counts in */
    uint16_t class_life;
    uint16_t klass;
    bool counted; /* in its class */
};

/* A request of no class has no share: it only borrows. */
#define WEIR_CONCURRENCY_GATE_CLASS_NONE UINT16_MAX
/* Asks for 'units' (1 .. WEIR_PERMITS_MAX) for a class by its number; an
 * unknown number counts as no class. 'out_permit' is always written; if
 * refused, it holds nothing. */
bool weir_concurrency_gate_enter(
    struct weir_concurrency_gate *gate, uint32_t klass, uint32_t units,
    struct weir_concurrency_gate_permit *out_permit, weir_instant now);
/* The same within the class's guarantee alone: its share, or observed. Units
 * that it might borrow are left to waiting requests. */
bool weir_concurrency_gate_enter_sure(
    struct weir_concurrency_gate *gate, uint32_t klass, uint32_t units,
    struct weir_concurrency_gate_permit *out_permit, weir_instant now);

/* Counts units in flight that entered in another way: the permit may be given
 * back in parts, as ignored. It holds nothing if there are too many. */
struct weir_concurrency_gate_permit weir_concurrency_gate_found(
    struct weir_concurrency_gate *gate, uint32_t units);

/* Gives back the permit's units and empties it; an empty permit is legal. The
 * time in flight is the sample's latency. */
void weir_concurrency_gate_leave(struct weir_concurrency_gate *gate,
                                 struct weir_concurrency_gate_permit *permit,
                                 enum weir_sample_outcome outcome,
                                 weir_instant now);

/* How long a caller that was just refused should wait. A guess, > 0: at least
 * until a fraction's turn, else until the next is likely to leave. */
weir_duration weir_concurrency_gate_wait(
    const struct weir_concurrency_gate *gate, weir_instant now);

/* Any thread, wait-free: how many units of no class might enter now, and how
 * many are in flight. */
uint32_t weir_concurrency_gate_free_units(
    const struct weir_concurrency_gate *gate, weir_instant now);
uint32_t weir_concurrency_gate_in_flight(
    const struct weir_concurrency_gate *gate);
/* The limit in force; any thread, wait-free. */
double weir_concurrency_gate_limit(const struct weir_concurrency_gate *gate);

/* Closes a window if it is due, and if no other thread does. */
void weir_concurrency_gate_tick(struct weir_concurrency_gate *gate,
                                weir_instant now);
/* When tick() may have work; see the head of this file. */
weir_instant weir_concurrency_gate_deadline(
    const struct weir_concurrency_gate *gate);
/* When a caller that was just refused may be let in, although no permit leaves:
 * at a fraction's turn, or when a window is over. */
weir_instant weir_concurrency_gate_due(const struct weir_concurrency_gate *gate,
                                       weir_instant now);

struct weir_concurrency_gate_view {
    struct weir_controller_view controller;
    uint32_t in_flight;
    uint32_t in_flight_of[WEIR_CONCURRENCY_GATE_CLASSES_MAX];
    double share_of[WEIR_CONCURRENCY_GATE_CLASSES_MAX]; /* permits */
    uint32_t overdue; /* in flight for at least … */
    weir_duration overdue_age;
    uint64_t lost;         /* units written off */
    uint64_t lost_samples; /* dropped because the stash was full */
};
/* False: another thread uses the controller; 'out' is unchanged. */
bool weir_concurrency_gate_view(struct weir_concurrency_gate *gate,
                                struct weir_concurrency_gate_view *out,
                                weir_instant now);

#endif /* WEIR_CONCURRENCY_GATE_H */
