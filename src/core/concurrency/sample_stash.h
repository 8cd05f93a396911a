/* SPDX-License-Identifier: MIT
 * concurrency/sample_stash.h - samples that wait for a controller that another
 * thread uses: a ring, with any number of writers and one reader at a time.
 * Inline, so that test_explore_gate finds its accesses.
 *
 * Source: D. Vyukov's bounded queue. */

#ifndef WEIR_SAMPLE_STASH_H
#define WEIR_SAMPLE_STASH_H

#include "core/base/atomic.h"
#include "core/concurrency/controller.h"

#define WEIR_SAMPLE_STASH_MAX 64 /* samples; a power of two */

struct weir_stashed {
    uint64_t turn; /* n: free for the n-th sample; n + 1: to be read */
    struct weir_sample sample;
    weir_instant at;
};

struct weir_sample_stash {
    _Alignas(WEIR_CACHE_LINE) uint64_t put; /* into it, by any thread */
    _Alignas(WEIR_CACHE_LINE) uint64_t got; /* out of it, by the reader */
    struct weir_stashed stashed[WEIR_SAMPLE_STASH_MAX];
};

static inline void weir_sample_stash_init(struct weir_sample_stash *stash)
{
    stash->put = stash->got = 0;
    for (uint64_t i = 0; i < WEIR_SAMPLE_STASH_MAX; i++)
        stash->stashed[i].turn = i;
}

/* Lock-free, any thread. False: it is full. */
static inline bool weir_sample_stash_put(struct weir_sample_stash *stash,
                                         const struct weir_sample *sample,
                                         weir_instant at)
{
    uint64_t number = weir_load_relaxed(&stash->put); /* the swap finds out */
    for (;;) {
        struct weir_stashed *place =
            &stash->stashed[number % WEIR_SAMPLE_STASH_MAX];
        /* Pairs with the release in weir_sample_stash_get(). */
        uint64_t turn = weir_load_acquire(&place->turn);
        if (turn < number)
            return false;
        if (turn == number && weir_cas(&stash->put, &number, number + 1)) {
            place->sample = *sample;
            place->at = at;
            /* Pairs with the acquire in weir_sample_stash_get(). */
            weir_store_release(&place->turn, number + 1);
            return true;
        }
        if (turn > number) /* another thread was quicker; relaxed as above */
            number = weir_load_relaxed(&stash->put);
    }
}

/* The next sample, in their order. Wait-free, the reader. False: there is
 * none. */
static inline bool weir_sample_stash_get(struct weir_sample_stash *stash,
                                         struct weir_sample *out_sample,
                                         weir_instant *out_at)
{
    struct weir_stashed *place =
        &stash->stashed[stash->got % WEIR_SAMPLE_STASH_MAX];
    /* Pairs with the release in weir_sample_stash_put(). */
    if (weir_load_acquire(&place->turn) != stash->got + 1)
        return false;
    *out_sample = place->sample;
    *out_at = place->at;
    weir_audit(out_sample->outcome != WEIR_SAMPLE_IGNORED);
    /* Pairs with the acquire in weir_sample_stash_put(): it is free again. */
    weir_store_release(&place->turn, stash->got + WEIR_SAMPLE_STASH_MAX);
    stash->got++;
    return true;
}

#endif /* WEIR_SAMPLE_STASH_H */
