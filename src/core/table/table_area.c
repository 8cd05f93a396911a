/* SPDX-License-Identifier: MIT
 * core/table/table_area.c - allocates blocks of different sizes in a table's
 * block: rules and bucket states.
 *
 * A buddy allocator: a block is AREA_UNIT << order bytes, at a multiple of its
 * size. A block that is given back joins its other half if that is free, and so
 * on up; a new block is cut from the smallest one that is large enough. A map
 * has one byte per unit: whether a free block begins there, and its order. Free
 * blocks of an order are a list through their first bytes. Memory that was
 * never used isn't cut yet, so that an unused area costs no page.
 *
 * A writer may be killed anywhere in here. The allocator is then rebuilt, not
 * repaired: blocks that slots refer to are kept, everything else is given back
 * unit by unit, and joining makes blocks of it.
 *
 * Rejected: lists by size without joining. When quotas are edited their sizes
 * change, and each list would keep the memory it once had.
 *
 * Source: K. Knowlton, "A fast storage allocator", CACM 8(10), 1965. */

#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_grow_internal.h"

#include <string.h>

#define MAP_FREE 0x80u /* | order: a free block begins here */
#define MAP_KEPT 0x40u /* during a rebuild */

/* The first bytes of a free block; units + 1, 0: none. */
struct gap {
    uint32_t next, before;
};

static struct gap *gap_at(const struct weir_table *t, uint32_t unit)
{
    return weir_area(t, unit);
}

static uint8_t *map_of(const struct weir_table *t)
{
    return weir_table_at(t, t->area_map_at);
}

static unsigned order_of(size_t bytes)
{
    unsigned order = 0;
    while (((size_t)AREA_UNIT << order) < bytes)
        order++;
    return order;
}

static void gap_insert(struct weir_table *t, uint32_t unit, unsigned order)
{
    weir_assert(order < AREA_ORDERS);
    weir_assert(unit % (1u << order) == 0);
    weir_assert(unit + (1u << order) <= t->area_used);
    uint32_t next = t->area_free[order];
    *gap_at(t, unit) = (struct gap){ .next = next };
    if (next)
        gap_at(t, next - 1)->before = unit + 1;
    t->area_free[order] = unit + 1;
    map_of(t)[unit] = (uint8_t)(MAP_FREE | order);
}

static void gap_remove(struct weir_table *t, uint32_t unit, unsigned order)
{
    weir_assert(order < AREA_ORDERS);
    weir_assert(map_of(t)[unit] == (MAP_FREE | order));
    const struct gap *gap = gap_at(t, unit);
    if (gap->next)
        gap_at(t, gap->next - 1)->before = gap->before;
    if (gap->before)
        gap_at(t, gap->before - 1)->next = gap->next;
    else
        t->area_free[order] = gap->next;
    map_of(t)[unit] = 0;
}

/* Gives a block back, joined with its free other halves. */
static void join_blocks(struct weir_table *t, uint32_t unit, unsigned order)
{
    weir_assert(order < AREA_ORDERS);
    for (; order + 1 < AREA_ORDERS; order++) {
        uint32_t other = unit ^ (1u << order);
        if (other >= t->area_used || map_of(t)[other] != (MAP_FREE | order))
            break;
        gap_remove(t, other, order);
        unit = unit < other ? unit : other;
    }
    gap_insert(t, unit, order);
}

/* Adds the largest block that can begin at the never-used part. */
static bool grow_area(struct weir_table *t)
{
    uint32_t unit = t->area_used;
    uint32_t end = weir_area_units_of(t, weir_load_acquire(&t->committed));
    unsigned order = AREA_ORDERS - 1;
    while (order > 0 &&
           (unit % (1u << order) != 0 || end - unit < (1u << order)))
        order--;
    if (unit == end) {
        weir_table_note_short(t);
        return false;
    }
    t->area_used = unit + (1u << order);
    join_blocks(t, unit, order);
    weir_assert(t->area_used <= t->area_units);
    return true;
}

/* The smallest order from 'order' on with a free block; AREA_ORDERS: none. */
static unsigned order_with_room(const struct weir_table *t, unsigned order)
{
    while (order < AREA_ORDERS && t->area_free[order] == 0)
        order++;
    return order;
}

uint32_t weir_area_take(struct weir_table *t, size_t bytes)
{
    unsigned wanted = order_of(bytes);
    if (wanted >= AREA_ORDERS)
        return AREA_NONE;
    unsigned order = order_with_room(t, wanted);
    while (order == AREA_ORDERS && grow_area(t))
        order = order_with_room(t, wanted);
    if (order == AREA_ORDERS)
        return AREA_NONE;
    uint32_t unit = t->area_free[order] - 1;
    gap_remove(t, unit, order);
    while (order > wanted) {
        order--;
        gap_insert(t, unit + (1u << order), order);
    }
    memset(weir_area(t, unit), 0, (size_t)AREA_UNIT << wanted);
    weir_assert(unit + (1u << wanted) <= t->area_used);
    return unit;
}

void weir_area_give(struct weir_table *t, uint32_t unit, size_t bytes)
{
    weir_assert(bytes > 0);
    weir_assert(unit % (1u << order_of(bytes)) == 0);
    weir_assert(unit < t->area_used);
    join_blocks(t, unit, order_of(bytes));
}

uint32_t weir_area_units(size_t bytes)
{
    return 1u << order_of(bytes);
}

uint32_t weir_area_count(const struct weir_table *t, unsigned order)
{
    uint32_t count = 0;
    for (uint32_t at = t->area_free[order]; at; at = gap_at(t, at - 1)->next)
        count++;
    return count;
}

/* ---- After a killed writer ---- */

void weir_area_mend_begin(struct weir_table *t)
{
    weir_assert(t->area_used <= t->area_units);
    memset(map_of(t), 0, t->area_used);
    memset(t->area_free, 0, sizeof(t->area_free));
}

void weir_area_keep(struct weir_table *t, uint32_t unit, size_t bytes)
{
    weir_assert(unit < t->area_used);
    weir_assert(bytes > 0);
    memset(map_of(t) + unit, MAP_KEPT, (size_t)1 << order_of(bytes));
}

void weir_area_mend_end(struct weir_table *t)
{
    uint8_t *map = map_of(t);
    for (uint32_t unit = 0; unit < t->area_used; unit++) {
        if (map[unit] == MAP_KEPT)
            map[unit] = 0;
        else
            join_blocks(t, unit, 0);
    }
}
