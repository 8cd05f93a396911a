/* SPDX-License-Identifier: MIT
 * libweir/libweir_pacer.c - memory for a pacer; the rest is in
 * algorithm/pacer_state.c. */

#include <stdlib.h>

#include "core/algorithm/pacer_state.h"

struct weir_pacer *weir_pacer_new(uint32_t jobs)
{
    size_t size = weir_pacer_size(jobs);
    void *block = size > 0 ? malloc(size) : NULL;
    return block ? weir_pacer_init(block, jobs) : NULL;
}

void weir_pacer_free(struct weir_pacer *pacer)
{
    free(pacer);
}
