/* SPDX-License-Identifier: MIT
 * lab/check_view.c - the state of the nodes, as all checkers read it: true
 * buckets, clocks, a root's buckets and cells; and the first violation.
 *
 * A node's clock may run ahead of the world's. Its bucket then leaks too early,
 * once for the whole time that the clock gained. These gains are added up over
 * all nodes, and so are the losses, for the comparison at the end: a clock that
 * is set back makes buckets fuller. */

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "lab/check_internal.h"

void weir_check_fail(struct weir_check *check, const char *checker,
                     const char *what, ...)
{
    if (check->sentence[0])
        return;
    size_t len = (size_t)snprintf(check->sentence, sizeof(check->sentence),
                                  "%s: ", checker);
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(check->sentence + len, sizeof(check->sentence) - len, what,
              arguments);
    va_end(arguments);
}

/* ---- Buckets ---- */

void weir_check_leak(struct check_bucket *bucket, double per_ns,
                     weir_instant now)
{
    weir_assert(bucket->fill >= 0 && per_ns >= 0);
    bucket->fill -= per_ns * (double)(int64_t)(now - bucket->at);
    if (bucket->fill < 0)
        bucket->fill = 0;
    bucket->at = now;
}

double weir_check_truth(struct weir_check *check, struct check_quota *quota)
{
    weir_check_leak(&quota->truth, quota->per_ns, weir_fleet_now(check->fleet));
    if (quota->truth.fill <= 0) {
        quota->ahead = check->ahead;
        for (uint32_t r = 0; r < check->root_count; r++)
            quota->image[r].beyond = quota->image[r].over = 0;
    }
    return quota->truth.fill;
}

double weir_check_ahead(const struct weir_check *check,
                        const struct check_quota *quota)
{
    return quota->per_ns_most * (double)(check->ahead - quota->ahead);
}

/* ---- Clocks ---- */

static int64_t clock_offset(struct weir_check *check, bool root, uint32_t index)
{
    struct weir_node_place place = { root, index };
    return (int64_t)(weir_fleet_clock_of(check->fleet, place) -
                     weir_fleet_now(check->fleet));
}

static void note_clock(struct weir_check *check, int64_t *offset, bool *known,
                       int64_t now)
{
    if (*known && now > *offset)
        check->ahead += (weir_duration)(now - *offset);
    else if (*known)
        check->behind += (weir_duration)(*offset - now);
    *offset = now;
    *known = true;
}

void weir_check_limiter_clock(struct weir_check *check, uint32_t limiter)
{
    struct check_limiter *known = &check->limiters[limiter];
    note_clock(check, &known->offset, &known->known,
               clock_offset(check, false, limiter));
}

void weir_check_root_clock(struct weir_check *check, uint32_t root)
{
    struct check_root *known = &check->root[root];
    note_clock(check, &known->offset, &known->known,
               clock_offset(check, true, root));
}

/* ---- Roots ---- */

bool weir_check_root_follows(const struct weir_check *check, uint32_t index)
{
    struct weir_root *root = weir_fleet_root(check->fleet, index);
    return root && weir_root_ready(root) &&
           weir_catalog_epoch(weir_root_catalog(root)) == check->epoch;
}

/* Reads a copy: a query of the root would advance its bucket. */
bool weir_check_root_bucket(struct weir_check *check, uint32_t index,
                            const struct check_quota *quota,
                            struct check_held *out)
{
    struct weir_root *root = weir_fleet_root(check->fleet, index);
    struct weir_text name = { quota->name, quota->len };
    struct weir_root_quota *root_quota =
        root ? weir_merge_get(&root->merge, name) : NULL;
    if (!root_quota)
        return false;
    struct weir_root_quota copy = *root_quota;
    weir_instant now = weir_check_root_now(check, index);
    int unit = -root_quota->bucket.leak.frac;
    uint64_t presumed = weir_merge_presumed(&root->merge, root_quota, now);
    int64_t fill = weir_merge_fill(&root->merge, &copy, now);
    *out = (struct check_held){
        .fill = ldexp((double)fill, unit),
        .below = copy.in != root_quota->in,
        .presumed = ldexp((double)presumed, unit),
        .pace = root_quota->pace,
        .passed = root_quota->passed,
        .beyond_debt = root_quota->beyond,
    };
    return true;
}

const struct weir_limiter_cell *weir_check_cell(struct weir_check *check,
                                                uint32_t index,
                                                uint32_t limiter, uint32_t slot)
{
    const struct weir_root *root = weir_fleet_root(check->fleet, index);
    if (!root || !root->peers[limiter].greeted)
        return NULL;
    const struct weir_merge_limiter *cells =
        &root->limiters[root->peers[limiter].limiter]->cells;
    size_t page = slot / WEIR_LIMITER_CELLS_A_PAGE;
    if (page >= cells->page_capacity || !cells->pages[page])
        return NULL;
    const struct weir_limiter_cell *cell =
        &cells->pages[page]->cell[slot % WEIR_LIMITER_CELLS_A_PAGE];
    return cell->root_quota != 0 ? cell : NULL;
}

bool weir_check_passed_over(const struct weir_check *check, uint32_t limiter,
                            uint32_t root, const struct check_slot *slot)
{
    const struct check_link *links = check->limiters[limiter].link;
    if (!links[root].backs_off)
        return false;
    for (uint32_t r = 0; r < check->root_count; r++) {
        if (weir_fleet_linked(check->fleet, limiter, r) &&
            !links[r].backs_off && slot->sent[r].sent)
            return true;
    }
    return false;
}
