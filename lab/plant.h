/* SPDX-License-Identifier: MIT
 * lab/plant.h - a storage, processes with a limit in front of it, and their
 * callers.
 *
 * Two streams of requests arrive, each evenly or at random: bulk, and sync if
 * there is any. They go to the processes in turn; a request that a process's
 * concurrency gate admits goes to the storage at once. A refused request is
 * gone or, if bulk, comes again later. A caller whose 'timeout' is over gives
 * its permit back as dropped; the storage doesn't learn of it.
 *
 * With 'fleet' the processes are limiters with roots (lab/fleet.h), and one
 * limit is found for all of them. The roots elect nobody: the first leads, and
 * if it dies, the next one does after 'takeover'.
 *
 * Events are ordered by their instant, then by their number; at one instant
 * answers come before arrivals. So a run is the same each time; with evenly
 * spaced requests its result is a property of the controller, without chance.
 * Time begins at 0. */

#ifndef WEIR_PLANT_H
#define WEIR_PLANT_H

#include "core/concurrency/concurrency_gate.h"
#include "lab/storage.h"

#define WEIR_PLANT_INSTANCES_MAX 128

struct weir_plant_note;

struct weir_plant_options {
    struct weir_storage_options storage;
    /* Class 0 is bulk's, the last one (perhaps the same) sync's. */
    struct weir_concurrency_gate_options gate;
    /* The gate's controller is that of the fleet: a quota with its target,
     * percentile, min, max and classes. */
    bool fleet;
    uint32_t roots;         /* 1 .. WEIR_FLEET_ROOTS_MAX */
    weir_duration rtt;      /* between processes and roots */
    weir_instant dies_at;   /* the master dies; 0: never */
    weir_duration takeover; /* until the next one leads; WEIR_NEVER: none */
    /* > 0: each process lets so many pass a second, without a gate. */
    double fixed_per_s;
    uint32_t instances;       /* 1 .. WEIR_PLANT_INSTANCES_MAX */
    uint32_t instances_first; /* … but only so many until 'join_at' */
    weir_instant join_at;     /* 0: all from the start */
    bool poisson;
    double rate;          /* of bulk, a second */
    weir_instant step_at; /* from then on 'step_rate'; 0: never */
    double step_rate;
    weir_instant bulk_end;  /* no bulk from then on; 0: to the end */
    double sync_rate;       /* a second */
    weir_duration overhead; /* added to the time of each request */
    weir_duration timeout;  /* 0: callers wait for ever */
    /* > 0: refused bulk comes again after the time that the concurrency gate
     * returns, at least this, plus up to as long again at random. */
    weir_duration retry;
    uint64_t seed;
    weir_instant end;
    /* Called for each request that arrives. */
    void (*note)(void *context, const struct weir_plant_note *note);
    void *context;
};

/* One request arrived. */
struct weir_plant_note {
    weir_instant at;
    bool sync;
    bool again;            /* it had been refused before */
    bool admitted;         /* … and, if so: */
    weir_duration latency; /* of the storage, or the time-out */
    bool in_time;          /* answered before the time-out */
    uint32_t instance;     /* the process that got it … */
    double limit;          /* … its limit at that time … */
    uint32_t in_flight; /* … and its requests in flight, this one included */
};

/* Returns the number of events. */
uint64_t weir_plant_run(const struct weir_plant_options *options);

#endif /* WEIR_PLANT_H */
