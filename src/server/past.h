/* SPDX-License-Identifier: MIT
 * server/past.h - recent samples of some quotas, second by second, for a page
 * that was just opened. One thread. */

#ifndef WEIR_PAST_H
#define WEIR_PAST_H

#include "server/busiest.h"

#define WEIR_PAST_QUOTAS 256     /* names that are kept */
#define WEIR_PAST_SAMPLES 300    /* of each, about a second apart */
#define WEIR_PAST_WALK_MAX 20000 /* in use; with more there is no top k */
#define WEIR_PAST_WALK_EVERY (10 * WEIR_SECOND)
/* A name that is neither in the top k nor shown by a page gives way after … */
#define WEIR_PAST_KEPT (60 * WEIR_SECOND)

struct weir_past;

/* The sums at an instant, in units. */
struct weir_past_sample {
    weir_instant at;
    uint64_t passed, refused;
};

/* 'usages' is copied. Allocates some 2 MB, but only used pages take memory.
 * NULL: no memory. */
struct weir_past *weir_past_new(const struct weir_usages *usages);
/* NULL inside is legal. */
void weir_past_free(struct weir_past **past);

/* Call it about each second: takes a sample of each kept name. */
void weir_past_tick(struct weir_past *past, weir_instant now);
/* A page shows that name: it is kept from now on, if there is room. */
void weir_past_want(struct weir_past *past, struct weir_text name,
                    weir_instant now);
/* The name's samples, the oldest first, into 'out' of WEIR_PAST_SAMPLES. */
size_t weir_past_of(const struct weir_past *past, struct weir_text name,
                    struct weir_past_sample *out);

#endif /* WEIR_PAST_H */
