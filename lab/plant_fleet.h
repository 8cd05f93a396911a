/* SPDX-License-Identifier: MIT
 * lab/plant_fleet.h - the processes of a plant as limiters with roots. */

#ifndef WEIR_PLANT_FLEET_H
#define WEIR_PLANT_FLEET_H

#include "core/table/table_permit.h"
#include "lab/plant.h"

/* Of a process with a gate, or of one of a fleet. */
struct weir_plant_permit {
    union {
        struct weir_concurrency_gate_permit gate;
        struct weir_permit_record record;
    };
};

struct weir_plant_fleet;
/* 'options' is borrowed. No process runs yet. */
struct weir_plant_fleet *weir_plant_fleet_new(
    const struct weir_plant_options *options);
void weir_plant_fleet_free(struct weir_plant_fleet *fleet); /* or NULL */
void weir_plant_fleet_start(struct weir_plant_fleet *fleet, uint32_t instance);
/* Messages and time, up to 'now'. */
void weir_plant_fleet_run(struct weir_plant_fleet *fleet, weir_instant now);
bool weir_plant_fleet_enter(struct weir_plant_fleet *fleet, uint32_t instance,
                            bool sync, struct weir_permit_record *out_record);
void weir_plant_fleet_leave(struct weir_plant_fleet *fleet, uint32_t instance,
                            struct weir_permit_record *record,
                            enum weir_sample_outcome outcome);
void weir_plant_fleet_view(struct weir_plant_fleet *fleet, uint32_t instance,
                           struct weir_concurrency_gate_view *out);

#endif /* WEIR_PLANT_FLEET_H */
