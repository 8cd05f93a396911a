/* SPDX-License-Identifier: MIT
 * store/shared_state.h - the value of a bucket in a store: its rule, then its
 * state, so that a process with another rule can carry it over. */

#ifndef WEIR_SHARED_STATE_H
#define WEIR_SHARED_STATE_H

#include "core/algorithm/algorithm.h"

#define WEIR_STATE_RULE_WORDS (6 + 4 * WEIR_BUCKETS_MAX)
#define WEIR_STATE_BYTES_MAX \
    (8 * (1 + WEIR_STATE_RULE_WORDS) + WEIR_ALGORITHM_SIZE_MAX)

/* Writes 'rule' and 'state' into 'buf' (WEIR_STATE_BYTES_MAX bytes); returns
 * the number of bytes. */
size_t weir_state_pack(const struct weir_algorithm_rule *rule,
                       const uint64_t *state, uint8_t *buf);

/* Reads a value of weir_state_pack() as a state of 'rule' at 'now': it is
 * carried over if its rule was another. 'state': WEIR_ALGORITHM_SIZE_MAX bytes.
 * WEIR_EPROTOCOL: the bytes are no such value. */
int weir_state_unpack(const struct weir_algorithm_rule *rule,
                      const uint8_t *buf, size_t len, uint64_t *state,
                      weir_instant now);

#endif /* WEIR_SHARED_STATE_H */
