/* SPDX-License-Identifier: MIT
 * front/recent.c - a ring of samples for each of a bounded number of names.
 *
 * The names are the top k of the quotas, and quotas that pages show. The top k
 * is found by a walk of all quotas in use, some times a minute and only while
 * that is cheap (WEIR_RECENT_WALK_MAX in use are a few milliseconds); a root
 * of a million instances keeps only the quotas that pages show. Each second
 * costs a look-up of each kept name.
 *
 * A name is found by comparing it with all: there are few, and most differ in
 * their length or first bytes. */

#include "front/recent.h"

#include <stdlib.h>
#include <string.h>

struct kept {
    char name[WEIR_NAME_MAX];
    size_t name_len;     /* 0: the slot is free */
    weir_instant wanted; /* time of the last request for it */
    size_t count;        /* of samples */
    size_t next;         /* index of the next one */
};

struct weir_recent {
    struct weir_usages usages;
    weir_instant walk_at;
    struct weir_busy *busy;             /* WEIR_RECENT_QUOTAS; owned */
    struct weir_recent_sample *samples; /* of all, one after the other; owned */
    struct kept kept[WEIR_RECENT_QUOTAS];
};

static struct weir_recent_sample *ring_of_samples(
    const struct weir_recent *past, const struct kept *kept)
{
    return past->samples + (kept - past->kept) * WEIR_RECENT_SAMPLES;
}

/* ---- The kept names ---- */

static const struct kept *find_kept(const struct weir_recent *past,
                                    struct weir_text name)
{
    for (size_t i = 0; i < WEIR_RECENT_QUOTAS; i++) {
        const struct kept *kept = &past->kept[i];
        if (kept->name_len == name.len &&
            memcmp(kept->name, name.p, name.len) == 0)
            return kept;
    }
    return NULL;
}

/* A free slot, or that of the name wanted longest ago; NULL: all are still
 * wanted. */
static struct kept *find_free_slot(struct weir_recent *past, weir_instant now)
{
    struct kept *oldest = &past->kept[0];
    for (size_t i = 0; i < WEIR_RECENT_QUOTAS; i++) {
        struct kept *kept = &past->kept[i];
        if (kept->name_len == 0)
            return kept;
        if (kept->wanted < oldest->wanted)
            oldest = kept;
    }
    return now >= oldest->wanted + WEIR_RECENT_KEPT ? oldest : NULL;
}

void weir_recent_want(struct weir_recent *past, struct weir_text name,
                      weir_instant now)
{
    weir_assert(name.len > 0 && name.len <= WEIR_NAME_MAX);
    struct kept *kept = (struct kept *)find_kept(past, name);
    if (!kept) {
        kept = find_free_slot(past, now);
        if (!kept)
            return;
        *kept = (struct kept){ .name_len = name.len };
        memcpy(kept->name, name.p, name.len);
    }
    kept->wanted = now;
}

static void want_top_k(struct weir_recent *past, weir_instant now)
{
    const struct weir_usages *usages = &past->usages;
    past->walk_at = now + WEIR_RECENT_WALK_EVERY;
    if (usages->count(usages->context) > WEIR_RECENT_WALK_MAX)
        return;
    const struct weir_busy_query query = { .rank = WEIR_RANK_OFFERED,
                                           .max = WEIR_RECENT_QUOTAS };
    size_t used;
    size_t count = weir_top_k(usages, &query, past->busy, &used, now);
    for (size_t i = 0; i < count; i++)
        weir_recent_want(
            past,
            (struct weir_text){ past->busy[i].name, past->busy[i].name_len },
            now);
}

/* ---- Samples ---- */

static void take_recent_sample(struct weir_recent *past, struct kept *kept,
                               weir_instant now)
{
    struct weir_used_quota usage;
    struct weir_text name = { kept->name, kept->name_len };
    if (!past->usages.of(past->usages.context, name, &usage, now))
        return;
    struct weir_recent_sample *at = ring_of_samples(past, kept);
    size_t last = (kept->next + WEIR_RECENT_SAMPLES - 1) % WEIR_RECENT_SAMPLES;
    /* The root forgot the quota meanwhile, and counts it from 0. */
    if (kept->count > 0 &&
        (usage.passed < at[last].passed || usage.refused < at[last].refused))
        kept->count = 0;
    at[kept->next] = (struct weir_recent_sample){ .at = now,
                                                  .passed = usage.passed,
                                                  .refused = usage.refused };
    kept->next = (kept->next + 1) % WEIR_RECENT_SAMPLES;
    if (kept->count < WEIR_RECENT_SAMPLES)
        kept->count++;
    weir_assert(kept->next < WEIR_RECENT_SAMPLES);
}

void weir_recent_tick(struct weir_recent *past, weir_instant now)
{
    if (now >= past->walk_at)
        want_top_k(past, now);
    for (size_t i = 0; i < WEIR_RECENT_QUOTAS; i++)
        if (past->kept[i].name_len > 0)
            take_recent_sample(past, &past->kept[i], now);
}

size_t weir_recent_of(const struct weir_recent *past, struct weir_text name,
                      struct weir_recent_sample *out)
{
    const struct kept *kept = name.len > 0 ? find_kept(past, name) : NULL;
    if (!kept)
        return 0;
    size_t first = kept->next + WEIR_RECENT_SAMPLES - kept->count;
    for (size_t i = 0; i < kept->count; i++)
        out[i] = ring_of_samples(past, kept)[(first + i) % WEIR_RECENT_SAMPLES];
    return kept->count;
}

/* ---- Life ---- */

struct weir_recent *weir_recent_new(const struct weir_usages *usages)
{
    struct weir_recent *past = calloc(1, sizeof *past);
    if (!past)
        return NULL;
    past->usages = *usages;
    past->busy = calloc(WEIR_RECENT_QUOTAS, sizeof *past->busy);
    past->samples = calloc((size_t)WEIR_RECENT_QUOTAS * WEIR_RECENT_SAMPLES,
                           sizeof *past->samples);
    if (!past->busy || !past->samples)
        weir_recent_free(&past);
    return past;
}

void weir_recent_free(struct weir_recent **past)
{
    if (!*past)
        return;
    free((*past)->busy);
    free((*past)->samples);
    free(*past);
    *past = NULL;
}
