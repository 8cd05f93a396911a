/* SPDX-License-Identifier: MIT
 * core/counted/merge_bucket.c - a root's bucket of a quota in use: its fill,
 * the units presumed in it, its limiter cells, and the queue of buckets that
 * moved (merge.c has the reasons). */

#include "core/counted/merge_internal.h"

#include <string.h>

#include "core/base/hash.h"

/* ---- Finding limiter cells ---- */

struct weir_limiter_cell *weir_limiter_cell_of(
    const struct weir_merge_limiter *limiter, uint32_t slot)
{
    size_t page = slot / WEIR_LIMITER_CELLS_A_PAGE;
    if (page >= limiter->page_capacity || !limiter->pages[page])
        return NULL;
    return &limiter->pages[page]->cell[slot % WEIR_LIMITER_CELLS_A_PAGE];
}

bool weir_merge_next_cell(const struct weir_merge_limiter *limiter,
                          uint32_t *cursor, struct weir_limiter_cell **out)
{
    size_t end = limiter->page_capacity * WEIR_LIMITER_CELLS_A_PAGE;
    while (*cursor < end) {
        struct weir_limiter_cell *cell = weir_limiter_cell_of(limiter, *cursor);
        *cursor += cell ? 1 : WEIR_LIMITER_CELLS_A_PAGE;
        if (!cell || cell->root_quota == 0)
            continue;
        *out = cell;
        return true;
    }
    return false;
}

/* ---- Presumed units: a pace over the time since its count came ---- */

/* Pace times nanoseconds as a fill; not below 0, for a clock may step back, and
 * bounded, for peers may lie. */
static uint64_t scaled_pace(const struct weir_root_quota *root_quota,
                            weir_u128 sum)
{
    if ((weir_i128)sum <= 0)
        return 0;
    weir_u128 scaled = (sum << root_quota->bucket.leak.frac) >> WEIR_PACE_SHIFT;
    return scaled < (uint64_t)WEIR_SCALED_MAX / 4
               ? (uint64_t)scaled
               : (uint64_t)WEIR_SCALED_MAX / 4;
}

/* Units that limiters have presumably counted since they reported. */
uint64_t weir_merge_presumed(const struct weir_merge *merge,
                             const struct weir_root_quota *root_quota,
                             weir_instant now)
{
    if (root_quota->pace == 0)
        return 0;
    weir_u128 sum =
        (weir_u128)root_quota->pace * weir_merge_elapsed(merge, now) -
        root_quota->pace_from;
    return scaled_pace(root_quota, sum);
}

uint64_t weir_limiter_cell_presumed(const struct weir_merge *merge,
                                    const struct weir_root_quota *root_quota,
                                    const struct weir_limiter_cell *cell,
                                    weir_instant now)
{
    if (cell->pace == 0)
        return 0;
    int64_t age = (int64_t)(weir_merge_elapsed(merge, now) - cell->paced_at);
    return scaled_pace(root_quota, (weir_u128)((weir_i128)cell->pace * age));
}

uint64_t weir_limiter_cell_others(const struct weir_merge *merge,
                                  const struct weir_root_quota *root_quota,
                                  const struct weir_limiter_cell *cell,
                                  weir_instant now)
{
    uint64_t scaled = weir_merge_presumed(merge, root_quota, now) -
                      weir_limiter_cell_presumed(merge, root_quota, cell, now);
    return root_quota->added - cell->last +
           (scaled >> root_quota->bucket.leak.frac);
}

/* ---- The fill ---- */

/* Notes that an empty bucket lost this much leak. Kept up to the size of the
 * largest bucket: late counts can use no more. */
static void ran_dry(struct weir_root_quota *root_quota, weir_i128 scaled)
{
    weir_assert(scaled >= 0);
    int64_t dry = scaled < WEIR_SCALED_MAX ? (int64_t)scaled : WEIR_SCALED_MAX;
    root_quota->dry += (uint64_t)dry;
    root_quota->dry_left =
        weir_fill_smaller(root_quota->dry_left + dry, WEIR_SCALED_MAX);
    weir_assert(root_quota->dry_left >= 0);
}

int64_t weir_merge_fill(struct weir_merge *merge,
                        struct weir_root_quota *root_quota, weir_instant now)
{
    if (root_quota->inflight)
        return root_quota->in_flight < WEIR_IN_FLIGHT_MAX
                   ? (int64_t)root_quota->in_flight
                   : (int64_t)WEIR_IN_FLIGHT_MAX;
    if (root_quota->unlimited)
        return 0;
    uint64_t out =
        weir_leaked(root_quota->bucket.leak, weir_merge_elapsed(merge, now)) -
        weir_merge_presumed(merge, root_quota, now);
    int64_t fill = (int64_t)(root_quota->in - out);
    if (fill > 0)
        return fill;
    root_quota->in = out;
    ran_dry(root_quota, -(weir_i128)fill);
    return 0;
}

void weir_root_quota_set_fill(struct weir_merge *merge,
                              struct weir_root_quota *root_quota, int64_t fill,
                              weir_instant now)
{
    weir_assert(fill >= 0);
    uint64_t leaked =
        weir_leaked(root_quota->bucket.leak, weir_merge_elapsed(merge, now));
    root_quota->in =
        leaked - weir_merge_presumed(merge, root_quota, now) + (uint64_t)fill;
}

int64_t weir_root_quota_add(struct weir_merge *merge,
                            struct weir_root_quota *root_quota, int64_t units,
                            int64_t instead, bool late, weir_instant now)
{
    root_quota->added += (uint64_t)units;
    if (root_quota->unlimited)
        return 0;
    int64_t fill = weir_merge_fill(merge, root_quota, now);
    /* Presumed units may never be counted: they take no room from real counts,
     * except from late ones, which have no claim to room. */
    int64_t beside = (int64_t)weir_merge_presumed(merge, root_quota, now);
    int64_t most = weir_root_quota_fill_most(root_quota) + beside;
    if (late) {
        int64_t full = root_quota->bucket.high;
        most = full > fill - instead ? full : fill - instead;
    }
    weir_i128 one = (weir_i128)1 << root_quota->bucket.leak.frac;
    weir_i128 wanted = fill + units * one - instead;
    if (wanted > most)
        wanted = most;
    if (wanted < 0) {
        ran_dry(root_quota, -wanted);
        wanted = 0;
    }
    /* Leaked and presumed units are in both. */
    int64_t more = (int64_t)wanted - fill;
    root_quota->in += (uint64_t)more;
    return more + instead;
}

int64_t weir_root_quota_rescaled(const struct weir_root_quota *root_quota,
                                 int64_t fill, unsigned from)
{
    weir_assert(fill >= 0);
    unsigned to = root_quota->bucket.leak.frac;
    int64_t most = weir_root_quota_fill_most(root_quota);
    if (to > from && fill > most >> (to - from))
        return most;
    return weir_rescale(fill, from, to);
}

/* ---- Root quotas by name ---- */

void weir_root_quota_use(const struct weir_merge *merge,
                         struct weir_root_quota *root_quota,
                         const struct weir_quota *quota)
{
    root_quota->unlooked = true;
    root_quota->counted = quota->sharing == WEIR_COUNTED;
    root_quota->unlimited = quota->limit.unlimited;
    root_quota->inflight = quota->kind == WEIR_CONCURRENCY;
    root_quota->created = quota->created;
    root_quota->rule_epoch = quota->epoch;
    weir_quota_bucket(quota, &root_quota->bucket);
    root_quota->debt_most =
        weir_root_quota_debt_of(merge, root_quota, quota->max_debt);
    weir_assert(root_quota->debt_most >= 0);
}

struct weir_root_quota *weir_merge_get(struct weir_merge *merge,
                                       struct weir_text name)
{
    uint64_t hash = weir_hash(name, merge->seed);
    size_t cursor = 0;
    uint32_t index;
    while (weir_index_find(&merge->index, hash, &cursor, &index)) {
        struct weir_root_quota *root_quota = &merge->root_quotas[index];
        weir_assert(root_quota->live);
        struct weir_text other = { root_quota->name, root_quota->name_len };
        if (weir_text_equal(name, other))
            return root_quota;
    }
    return NULL;
}

/* An element of the array: a freed one, or a new one. 0: none. */
static uint32_t take_root_quota(struct weir_merge *merge)
{
    uint32_t number = merge->free_root_quota;
    if (number != 0) {
        weir_assert(!weir_root_quota_at(merge, number)->live);
        merge->free_root_quota = weir_root_quota_at(merge, number)->next[0];
        return number;
    }
    if (merge->root_quotas_used == WEIR_ROOT_QUOTAS_MAX)
        return 0;
    struct weir_root_quota *grown =
        weir_mem_grow(&merge->mem, merge->root_quotas, sizeof(*grown),
                      &merge->root_quota_capacity, merge->root_quotas_used + 1);
    if (!grown)
        return 0;
    merge->root_quotas = grown;
    weir_assert(merge->root_quotas_used < merge->root_quota_capacity);
    return ++merge->root_quotas_used;
}

static bool is_queued(const struct weir_root_quota *root_quota)
{
    return root_quota->queued[WEIR_MERGE_MOVED] ||
           root_quota->queued[WEIR_MERGE_CARRYING];
}

static void free_root_quota(struct weir_merge *merge,
                            struct weir_root_quota *root_quota)
{
    weir_assert(!is_queued(root_quota));
    *root_quota =
        (struct weir_root_quota){ .next = { merge->free_root_quota } };
    merge->free_root_quota = weir_root_quota_number(merge, root_quota);
}

struct weir_root_quota *weir_root_quota_make(struct weir_merge *merge,
                                             struct weir_text name,
                                             const struct weir_quota *quota,
                                             weir_instant now)
{
    uint32_t number = take_root_quota(merge);
    if (number == 0)
        return NULL;
    const struct weir_mem *mem = &merge->mem;
    struct weir_root_quota *root_quota = weir_root_quota_at(merge, number);
    memset(root_quota, 0, sizeof(*root_quota));
    root_quota->name = mem->alloc(mem->context, name.len);
    root_quota->hash = weir_hash(name, merge->seed);
    if (!root_quota->name ||
        weir_index_add(&merge->index, mem, root_quota->hash, number - 1) < 0) {
        mem->free(mem->context, root_quota->name, name.len);
        free_root_quota(merge, root_quota);
        return NULL;
    }
    memcpy(root_quota->name, name.p, name.len);
    root_quota->name_len = (uint8_t)name.len;
    root_quota->live = true;
    root_quota->dry_left = WEIR_SCALED_MAX; /* from before its creation */
    weir_root_quota_use(merge, root_quota, quota);
    weir_root_quota_set_fill(merge, root_quota, 0, now);
    root_quota->adopted = root_quota->in;
    merge->root_quotas_live++;
    weir_assert(merge->root_quotas_live <= merge->root_quotas_used);
    return root_quota;
}

/* ---- Queues ---- */

void weir_root_quota_free_if_left(struct weir_merge *merge,
                                  struct weir_root_quota *root_quota)
{
    weir_assert(!root_quota->live);
    if (!is_queued(root_quota))
        free_root_quota(merge, root_quota);
}

void weir_merge_enqueue(struct weir_merge *merge,
                        struct weir_root_quota *root_quota,
                        enum weir_merge_queue queue)
{
    if (root_quota->queued[queue])
        return;
    uint32_t number = weir_root_quota_number(merge, root_quota);
    uint32_t last = merge->queue[queue].last;
    root_quota->queued[queue] = true;
    root_quota->next[queue] = 0;
    if (last != 0)
        weir_root_quota_at(merge, last)->next[queue] = number;
    else
        merge->queue[queue].first = number;
    merge->queue[queue].last = number;
    weir_assert(merge->queue[queue].first != 0);
}

struct weir_root_quota *weir_merge_dequeue(struct weir_merge *merge,
                                           enum weir_merge_queue queue)
{
    uint32_t first = merge->queue[queue].first;
    if (first == 0)
        return NULL;
    struct weir_root_quota *root_quota = weir_root_quota_at(merge, first);
    weir_assert(root_quota->queued[queue]);
    merge->queue[queue].first = root_quota->next[queue];
    if (merge->queue[queue].first == 0)
        merge->queue[queue].last = 0;
    root_quota->queued[queue] = false;
    root_quota->next[queue] = 0;
    return root_quota;
}
