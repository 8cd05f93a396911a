/* SPDX-License-Identifier: MIT
 * front/top_k.c - a bounded choice out of an unbounded set.
 *
 * A root may have a million instances in use, and the page shows the top of
 * them. One walk, and a binary heap of 'max' entries with the least at its
 * root: an instance that doesn't beat the least is skipped, so that nearly all
 * of the walk copies nothing. */

#include "front/top_k.h"

#include <stdlib.h>
#include <string.h>

#include "core/quota/glob.h"

static uint64_t rank_of_usage(const struct weir_used_quota *usage,
                              enum weir_rank rank)
{
    switch (rank) {
    case WEIR_RANK_OFFERED:
        break;
    case WEIR_RANK_REFUSED:
        /* Units don't reach 2^62 in practice, and a wrong order of the top
         * would do no harm. */
        if (usage->refused > 0)
            return (1ull << 63) | usage->refused;
        return usage->passed & ~(1ull << 63);
    }
    return usage->passed + usage->refused;
}

void weir_busy_of(const struct weir_used_quota *usage, struct weir_busy *out)
{
    struct weir_text name = weir_name_live(usage->name);
    *out = (struct weir_busy){
        .name_len = name.len,
        .fill = usage->fill,
        .passed = usage->passed,
        .refused = usage->refused,
        .limiters = usage->limiters,
        .removed = !usage->quota,
    };
    weir_assert(name.len <= WEIR_NAME_MAX);
    memcpy(out->name, name.p, name.len);
    if (!usage->quota)
        return;
    out->mode = usage->quota->mode;
    out->adaptive = usage->quota->sharing == WEIR_ADAPTIVE;
    out->limit = usage->quota->limit;
    uint64_t low;
    if (!out->limit.unlimited)
        weir_quota_bursts(usage->quota, &low, &out->high);
}

const char *weir_mode_word(enum weir_mode mode)
{
    switch (mode) {
    case WEIR_ENFORCE:
        return "enforce";
    case WEIR_SHADOW:
        return "shadow";
    case WEIR_OFF:
        return "off";
    }
    return NULL;
}

const char *weir_busy_mode(const struct weir_busy *busy)
{
    return busy->removed ? NULL : weir_mode_word(busy->mode);
}

static void swap_busy(struct weir_busy *a, struct weir_busy *b)
{
    struct weir_busy c = *a;
    *a = *b;
    *b = c;
}

static void sift_busy_up(struct weir_busy *heap, size_t i)
{
    while (i > 0 && heap[i].rank < heap[(i - 1) / 2].rank) {
        swap_busy(&heap[i], &heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
}

static void sift_busy_down(struct weir_busy *heap, size_t count)
{
    size_t i = 0;
    for (;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2; child++)
            if (child < count && heap[child].rank < heap[least].rank)
                least = child;
        if (least == i)
            return;
        swap_busy(&heap[i], &heap[least]);
        i = least;
    }
}

static int compare_ranks(const void *a, const void *b)
{
    const struct weir_busy *x = a;
    const struct weir_busy *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* Takes 'usage' into the choice if its rank is high enough. */
static void consider_usage(const struct weir_usages *usages,
                           struct weir_busy_choice *choice,
                           struct weir_used_quota *usage, weir_instant now)
{
    const struct weir_busy_query *query = &choice->query;
    struct weir_busy *out = choice->out;
    if (weir_name_is_shadow(usage->name) != query->shadow)
        return;
    choice->used++;
    uint64_t value = rank_of_usage(usage, query->rank);
    if (choice->count == query->max && value <= out[0].rank)
        return;
    if (query->match.len > 0 &&
        !weir_glob_match(query->match, weir_name_live(usage->name), NULL))
        return;
    if (usages->complete)
        usages->complete(usages->context, usage, now);
    weir_assert(choice->count <= query->max);
    bool room = choice->count < query->max;
    struct weir_busy *place = room ? &out[choice->count++] : &out[0];
    weir_busy_of(usage, place);
    place->rank = value;
    if (room)
        sift_busy_up(out, choice->count - 1);
    else
        sift_busy_down(out, choice->count);
}

void weir_top_k_of_all(const struct weir_usages *usages,
                       struct weir_busy_choice *choices, size_t count,
                       weir_instant now)
{
    size_t cursor = 0;
    struct weir_used_quota usage;
    for (size_t i = 0; i < count; i++)
        choices[i].count = choices[i].used = 0;
    while (usages->next(usages->context, &cursor, &usage, now))
        for (size_t i = 0; i < count; i++)
            consider_usage(usages, &choices[i], &usage, now);
    for (size_t i = 0; i < count; i++)
        qsort(choices[i].out, choices[i].count, sizeof *choices[i].out,
              compare_ranks);
}

size_t weir_top_k(const struct weir_usages *usages,
                  const struct weir_busy_query *query, struct weir_busy *out,
                  size_t *out_used, weir_instant now)
{
    struct weir_busy_choice choice = { .query = *query, .out = out };
    weir_top_k_of_all(usages, &choice, 1, now);
    weir_assert(choice.count <= query->max && choice.count <= choice.used);
    *out_used = choice.used;
    return choice.count;
}
