/* SPDX-License-Identifier: MIT
 * lab/plant.h - a storage, processes with a limit in front of it, and those
 * who want something of it.
 *
 * Two streams of requests arrive, each evenly or by chance: bulk, and sync if
 * there is any. They go to the processes in turn; what a process's sluice lets
 * in goes to the storage at once. Who is refused is gone, or, of bulk, comes
 * again later. A caller who has had enough after 'timeout' gives his permit
 * back as dropped; the storage doesn't hear of it.
 *
 * Events are ordered by their instant, then by their number; at one instant
 * answers come before arrivals. So a run is the same each time, and for evenly
 * spaced requests a fact about the controller and not about chance. Time
 * begins at 0. */

#ifndef WEIR_PLANT_H
#define WEIR_PLANT_H

#include "adapt/sluice.h"
#include "lab/storage.h"

#define WEIR_PLANT_INSTANCES_MAX 64

struct weir_plant_note;

struct weir_plant_options {
    struct weir_storage_options storage;
    /* Class 0 is bulk's, the last one (which may be the same) sync's. */
    struct weir_sluice_options sluice;
    /* > 0: instead, each process lets so many a second pass. */
    double fixed_per_s;
    uint32_t instances;       /* 1 .. WEIR_PLANT_INSTANCES_MAX */
    uint32_t instances_first; /* … and so many until 'join_at' */
    weir_instant join_at;     /* 0: all are there from the start */
    bool poisson;
    double rate;          /* of bulk, a second */
    weir_instant step_at; /* from here on 'step_rate'; 0: never */
    double step_rate;
    weir_instant bulk_end;  /* from here on none; 0: to the end */
    double sync_rate;       /* a second */
    weir_duration overhead; /* a request is so much longer on its way */
    weir_duration timeout;  /* 0: callers wait for ever */
    /* > 0: refused bulk comes again after what the sluice says, at least
     * this, and up to as long again by chance. */
    weir_duration retry;
    uint64_t seed;
    weir_instant end;
    /* Called for each request that comes. */
    void (*note)(void *context, const struct weir_plant_note *note);
    void *context;
};

/* One request came. */
struct weir_plant_note {
    weir_instant at;
    bool sync;
    bool again;            /* it had been refused before */
    bool admitted;         /* … and then: */
    weir_duration latency; /* of the storage, or the time-out */
    uint32_t instance;     /* of which … */
    double limit;          /* … what it was then … */
    uint32_t in_flight;    /* … and this, with the request */
};

/* Events that were played. */
uint64_t weir_plant_run(const struct weir_plant_options *options);

#endif /* WEIR_PLANT_H */
