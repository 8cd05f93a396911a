/* SPDX-License-Identifier: MIT
 * lab/model_meter.h - algorithms as models name them: a meter for one key. */

#ifndef WEIR_MODEL_METER_H
#define WEIR_MODEL_METER_H

#include "algo/meter.h"

/* "sliding_N" is a sliding window cut into N. Ends with NULL. */
extern const char *const weir_model_algorithms[];

struct weir_model_meter {
    struct weir_meter_rule rule;
    void *state; /* owned */
};

/* 'algorithm' is an index of the words above; 'quantity' units pass in a
 * 'window', which is the rate of buckets too, with room for 'burst' units;
 * 'initial' is what a token bucket holds at first. */
void weir_model_meter_init(struct weir_model_meter *meter, size_t algorithm,
                           uint64_t quantity, weir_duration window,
                           uint64_t burst, uint64_t initial);
void weir_model_meter_fini(struct weir_model_meter *meter);

struct weir_meter_answer weir_model_meter_ask(struct weir_model_meter *meter,
                                              enum weir_meter_op op,
                                              uint64_t weight,
                                              weir_instant now);

#endif /* WEIR_MODEL_METER_H */
