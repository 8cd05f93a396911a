/* SPDX-License-Identifier: MIT
 * algo/lineup.h - those who wait, and who of them comes next.
 *
 *     weir_lineup_join(&line, &my_place);
 *     next = weir_lineup_next(&line, 0);       ... in the line's order
 *     weir_lineup_leave(&line, next);          ... served, or tired of it
 *
 * A line has lanes, for classes that don't stand in each other's way: who comes
 * next can be asked of some lanes alone. Within a lane nobody is overtaken but
 * as the order says.
 *
 * A place is memory of who waits, who fills in lane, ticket and priority first
 * and leaves the rest alone. A line has no lock: one thread at a time. */

#ifndef WEIR_LINEUP_H
#define WEIR_LINEUP_H

#include "base/base.h"

/* Who comes first. The numbers are the wire's and the stores'. */
enum weir_lineup_order {
    WEIR_LINEUP_FIFO = 1,     /* who has waited for longest */
    WEIR_LINEUP_LIFO = 2,     /* who has come last */
    WEIR_LINEUP_PRIORITY = 3, /* the highest priority; in it, the longest */
};

#define WEIR_LINEUP_LANES 9

struct weir_lineup_place {
    uint32_t lane;    /* below WEIR_LINEUP_LANES */
    uint64_t ticket;  /* unique; the lower, the earlier it came */
    int64_t priority; /* the higher, the earlier it is served */
    struct weir_lineup_place *before, *after; /* the line's */
};

struct weir_lineup {
    enum weir_lineup_order order;
    uint32_t count; /* of all lanes */
    uint32_t lanes; /* bits: those in which somebody waits */
    struct weir_lineup_place *first[WEIR_LINEUP_LANES];
    struct weir_lineup_place *last[WEIR_LINEUP_LANES];
};

/* All zero but for the order: nobody waits. */
void weir_lineup_init(struct weir_lineup *line, enum weir_lineup_order order);

/* O(1) for who comes first or last of his lane; else O(n), from its end. */
void weir_lineup_join(struct weir_lineup *line,
                      struct weir_lineup_place *place);
/* It must be in the line. */
void weir_lineup_leave(struct weir_lineup *line,
                       struct weir_lineup_place *place);

/* Who comes next of all lanes but those whose bits are in 'without'; NULL:
 * nobody. */
struct weir_lineup_place *weir_lineup_next(const struct weir_lineup *line,
                                           uint32_t without);

/* Whether anybody in the line comes before this place, which is in none or in
 * another. */
bool weir_lineup_has_before(const struct weir_lineup *line,
                            const struct weir_lineup_place *place);

/* From now on another order, for those who wait as well; O(n log n). */
void weir_lineup_reorder(struct weir_lineup *line,
                         enum weir_lineup_order order);

#endif /* WEIR_LINEUP_H */
