/* SPDX-License-Identifier: MIT
 * front/recent.h - recent samples of some quotas, second by second, for a page
 * that was just opened. One thread. */

#ifndef WEIR_RECENT_H
#define WEIR_RECENT_H

#include "front/top_k.h"

#define WEIR_RECENT_QUOTAS 256     /* names that are kept */
#define WEIR_RECENT_SAMPLES 300    /* of each, about a second apart */
#define WEIR_RECENT_WALK_MAX 20000 /* in use; with more there is no top k */
#define WEIR_RECENT_WALK_EVERY (10 * WEIR_SECOND)
/* A name that is neither in the top k nor shown by a page gives way after … */
#define WEIR_RECENT_KEPT (60 * WEIR_SECOND)

struct weir_recent;

/* The sums at an instant, in units. */
struct weir_recent_sample {
    weir_instant at;
    uint64_t passed, refused;
};

/* 'usages' is copied. Allocates some 2 MB, but only used pages take memory.
 * NULL: no memory. */
struct weir_recent *weir_recent_new(const struct weir_usages *usages);
/* NULL inside is legal. */
void weir_recent_free(struct weir_recent **past);

/* Call it about each second: takes a sample of each kept name. */
void weir_recent_tick(struct weir_recent *past, weir_instant now);
/* A page shows that name: it is kept from now on, if there is room. */
void weir_recent_want(struct weir_recent *past, struct weir_text name,
                      weir_instant now);
/* The name's samples, the oldest first, into 'out' of WEIR_RECENT_SAMPLES. */
size_t weir_recent_of(const struct weir_recent *past, struct weir_text name,
                      struct weir_recent_sample *out);

#endif /* WEIR_RECENT_H */
