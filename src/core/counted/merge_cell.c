/* SPDX-License-Identifier: MIT
 * core/counted/merge_cell.c - one limiter's part of a root's bucket: its cell,
 * the units in flight and the pace that the root presumes of it. */

#include "core/counted/merge_internal.h"

struct weir_limiter_cell *weir_limiter_cell_of(
    const struct weir_merge_limiter *limiter, uint32_t slot)
{
    size_t page = slot / WEIR_LIMITER_CELLS_A_PAGE;
    if (page >= limiter->page_capacity || !limiter->pages[page])
        return NULL;
    return &limiter->pages[page]->cell[slot % WEIR_LIMITER_CELLS_A_PAGE];
}

struct weir_limiter_cell *weir_limiter_cell_make(
    struct weir_merge *merge, struct weir_merge_limiter *limiter, uint32_t slot)
{
    weir_assert(slot < WEIR_LIMITER_CELLS_MAX);
    const struct weir_mem *mem = &merge->mem;
    size_t page = slot / WEIR_LIMITER_CELLS_A_PAGE;
    struct weir_limiter_cell_page **pages = weir_mem_grow(
        mem, limiter->pages, sizeof(*pages), &limiter->page_capacity, page + 1);
    if (!pages)
        return NULL;
    limiter->pages = pages;
    if (!pages[page])
        pages[page] = mem->alloc(mem->context, sizeof(**pages));
    return pages[page] ? &pages[page]->cell[slot % WEIR_LIMITER_CELLS_A_PAGE]
                       : NULL;
}

void weir_limiter_cell_attach(struct weir_merge *merge,
                              struct weir_limiter_cell *cell,
                              struct weir_root_quota *root_quota)
{
    weir_assert(cell->root_quota == 0 && root_quota->live);
    cell->root_quota = weir_root_quota_number(merge, root_quota);
    cell->prev = NULL;
    cell->next = root_quota->cells;
    if (root_quota->cells)
        root_quota->cells->prev = cell;
    root_quota->cells = cell;
    root_quota->cell_count++;
    root_quota->connected += cell->limiter->connected;
    cell->limiter->cells++;
}

void weir_limiter_cell_set_in_flight(struct weir_merge *merge,
                                     struct weir_root_quota *root_quota,
                                     struct weir_limiter_cell *cell,
                                     uint64_t units)
{
    weir_assert(cell->inflight);
    if ((int64_t)units < 0)
        units = 0;
    if (units > WEIR_IN_FLIGHT_MAX)
        units = WEIR_IN_FLIGHT_MAX;
    int64_t moved = (int64_t)(units - cell->last);
    if (moved == 0)
        return;
    root_quota->in_flight += (uint64_t)moved;
    root_quota->added += (uint64_t)moved;
    root_quota->units_moved +=
        moved < 0 ? 0 - (uint64_t)moved : (uint64_t)moved;
    cell->last = units;
    weir_merge_enqueue(merge, root_quota, WEIR_MERGE_MOVED);
    if (!cell->carried)
        return;
    root_quota->carried_in_flight += (uint64_t)moved;
    weir_merge_enqueue(merge, root_quota, WEIR_MERGE_CARRYING);
    weir_assert(cell->last <= WEIR_IN_FLIGHT_MAX);
}

void weir_limiter_cell_release(struct weir_merge *merge,
                               struct weir_limiter_cell *cell)
{
    if (cell->inflight)
        weir_limiter_cell_set_in_flight(
            merge, weir_root_quota_at(merge, cell->root_quota), cell, 0);
}

/* When the cell's pace began, if at 'at' it is 'ahead' of its counts. */
static uint64_t begun_at(uint64_t at, uint64_t ahead, uint64_t pace)
{
    weir_assert(pace > 0);
    weir_u128 since = ((weir_u128)ahead << WEIR_PACE_SHIFT) / pace;
    return since < at ? at - (uint64_t)since : 0;
}

int64_t weir_limiter_cell_set_pace(struct weir_merge *merge,
                                   struct weir_root_quota *root_quota,
                                   struct weir_limiter_cell *cell,
                                   uint64_t pace, uint64_t ahead,
                                   weir_instant now)
{
    weir_assert(weir_root_quota_at(merge, cell->root_quota) == root_quota);
    if (cell->pace == 0 && pace == 0)
        return 0;
    uint64_t before = weir_merge_presumed(merge, root_quota, now);
    uint64_t at = weir_merge_elapsed(merge, now);
    cell->counted_at = at;
    if (ahead != 0 && pace != 0)
        at = begun_at(at, ahead, pace);
    root_quota->pace += pace - cell->pace;
    root_quota->pace_from +=
        (weir_u128)pace * at - (weir_u128)cell->pace * cell->paced_at;
    if (root_quota->pace > root_quota->pace_most)
        root_quota->pace_most = root_quota->pace;
    cell->pace = pace;
    cell->paced_at = at;
    uint64_t gone = before - weir_merge_presumed(merge, root_quota, now);
    root_quota->in += gone;
    return (int64_t)gone;
}

void weir_limiter_cell_drop_pace(struct weir_merge *merge,
                                 struct weir_limiter_cell *cell)
{
    if (cell->pace == 0)
        return;
    struct weir_root_quota *root_quota =
        weir_root_quota_at(merge, cell->root_quota);
    weir_limiter_cell_set_carried(merge, root_quota, cell, false);
    root_quota->pace -= cell->pace;
    root_quota->pace_from -= (weir_u128)cell->pace * cell->paced_at;
    cell->pace = 0;
    root_quota->unlooked = true;
    weir_merge_enqueue(merge, root_quota, WEIR_MERGE_MOVED);
}

void weir_limiter_cell_detach(struct weir_merge *merge,
                              struct weir_limiter_cell *cell)
{
    weir_limiter_cell_drop_pace(merge, cell);
    weir_limiter_cell_release(merge, cell);
    struct weir_root_quota *root_quota =
        weir_root_quota_at(merge, cell->root_quota);
    weir_assert(root_quota->cell_count > 0 && cell->limiter->cells > 0);
    weir_assert(root_quota->connected >= cell->limiter->connected);
    if (cell->prev)
        cell->prev->next = cell->next;
    else
        root_quota->cells = cell->next;
    if (cell->next)
        cell->next->prev = cell->prev;
    root_quota->cell_count--;
    root_quota->connected -= cell->limiter->connected;
    cell->limiter->cells--;
    weir_limiter_cell_set_due(cell, false);
    cell->root_quota = 0;
    weir_assert(cell->pace == 0);
}
