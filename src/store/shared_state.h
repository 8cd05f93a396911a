/* SPDX-License-Identifier: MIT
 * store/shared_state.h - a meter as a value that a store keeps: its rule, then
 * its state, so that who has another rule can carry it over. */

#ifndef WEIR_SHARED_STATE_H
#define WEIR_SHARED_STATE_H

#include "algo/meter.h"

#define WEIR_STATE_RULE_WORDS (6 + 4 * WEIR_BUCKETS_MAX)
#define WEIR_STATE_BYTES_MAX \
    (8 * (1 + WEIR_STATE_RULE_WORDS) + WEIR_METER_SIZE_MAX)

/* Writes 'rule' and 'state' into 'buf' (WEIR_STATE_BYTES_MAX bytes); returns
 * how many. */
size_t weir_state_pack(const struct weir_meter_rule *rule,
                       const uint64_t *state, uint8_t *buf);

/* Reads what weir_state_pack() wrote, as a meter of 'rule' at 'now': carried
 * over if it was another's. 'state': WEIR_METER_SIZE_MAX bytes. WEIR_EPROTOCOL:
 * these bytes are none of ours. */
int weir_state_unpack(const struct weir_meter_rule *rule, const uint8_t *buf,
                      size_t len, uint64_t *state, weir_instant now);

#endif /* WEIR_SHARED_STATE_H */
