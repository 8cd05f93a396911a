/* SPDX-License-Identifier: MIT
 * algorithm/pacer_state.h - the pacer in the caller's memory; the rest of its
 * contract is in the installed weir/pacer.h. Pure. */

#ifndef WEIR_ALGO_PACER_H
#define WEIR_ALGO_PACER_H

#include "core/base/base.h"
#include "weir/pacer.h"

/* The bytes a pacer needs; 0 when 'jobs' is out of its range. */
size_t weir_pacer_size(uint32_t jobs);
/* Initializes a pacer in 'block' (8-byte aligned, weir_pacer_size() bytes). */
struct weir_pacer *weir_pacer_init(void *block, uint32_t jobs);

#endif /* WEIR_ALGO_PACER_H */
