/* SPDX-License-Identifier: MIT
 * count/merge_tell.c - which limiters are sent the fill of a bucket, and which
 * fill (merge.c has the reasons). A root with an upstream sends the larger of
 * its own and the root fill from above. */

#include "count/merge_parts.h"

/* The cells of a bucket are looked at again when it can have moved by this part
 * of a grain, or its room by this part of itself. */
#define STIRRED_GRAIN 4
#define STIRRED_ROOM 8

/* The bucket to be sent to limiters. */
struct picture {
    int64_t fill;  /* scaled, all presumed included */
    uint64_t pace; /* of all: units in WEIR_PACE_SPAN */
    uint64_t room; /* up to 'high', 1/1024 units; UINT64_MAX: no limit is
                    * near */
    bool above;    /* the root fill from above is in it */
    bool full;     /* no unit may be counted until the roots above answer */
    bool far;      /* send the least of it (merge.c, Overload) */
};

/* The room left up to 'high', 1/1024 units. */
static uint64_t room_of(const struct weir_merge *merge,
                        const struct weir_use *use, int64_t fill)
{
    if (use->unlimited || !merge->slack)
        return UINT64_MAX;
    int64_t room = use->bucket.high - fill;
    if (room <= 0)
        return 0;
    return (uint64_t)weir_rescale(room, use->bucket.leak.frac, WEIR_FILL_FRAC);
}

/* Takes the fill from above, if it is the larger. */
static void join_above(const struct weir_use *use,
                       const struct weir_above *above, struct picture *out)
{
    int64_t fill = weir_use_rescaled(use, above->fill, above->bucket.leak.frac);
    /* Add units in flight here that were not reported above yet. */
    if (use->gauge)
        fill += (int64_t)(use->carried_held - use->up_held);
    out->above = true;
    if (fill > out->fill) {
        out->fill = fill;
        out->pace = above->pace + use->carried_pace;
    }
    out->full = above->allowance == 0 && !use->unlimited;
    if (!out->full)
        return;
    uint64_t leak =
        weir_leaked(use->bucket.leak, WEIR_PACE_SPAN) >> use->bucket.leak.frac;
    if (out->fill < use->bucket.high)
        out->fill = use->bucket.high;
    if (out->pace < leak)
        out->pace = leak;
}

/* Only without an upstream: a fill sent upwards is part of the fills sent
 * below. */
static bool is_far(const struct weir_merge *merge, const struct weir_use *use,
                   int64_t fill)
{
    return merge->strained && merge->slack && !merge->upstream &&
           !use->unlimited && fill < use->bucket.high / 2;
}

static void picture_of(struct weir_merge *merge, struct weir_use *use,
                       struct picture *out, weir_instant now)
{
    struct weir_above above;
    const struct weir_merge_upstream *upstream = merge->upstream;
    *out = (struct picture){ .fill = weir_merge_fill(merge, use, now),
                             .pace = use->pace };
    bool told = upstream && use->counted &&
                upstream->above(upstream->context, use, &above, now) &&
                above.created == use->created;
    if (told)
        join_above(use, &above, out);
    out->room = room_of(merge, use, out->fill);
    if (told && above.allowance < out->room)
        out->room = above.allowance;
    out->far = is_far(merge, use, out->fill);
}

int64_t weir_merge_told_fill(struct weir_merge *merge, struct weir_use *use,
                             weir_instant now)
{
    struct picture picture;
    picture_of(merge, use, &picture, now);
    return picture.fill;
}

/* The part of the fill sent to a limiter: without its own presumed units. */
static int64_t fill_told(const struct weir_merge *merge,
                         const struct weir_use *use,
                         const struct weir_cell *cell,
                         const struct picture *picture, weir_instant now)
{
    int64_t fill =
        picture->fill - (int64_t)weir_cell_presumed(merge, use, cell, now);
    if (!picture->above)
        return fill;
    if (picture->full && fill < use->bucket.high)
        return use->bucket.high;
    return fill > 0 ? fill : 0;
}

static uint64_t pace_told(const struct weir_cell *cell,
                          const struct picture *picture)
{
    uint64_t pace = picture->pace - cell->pace;
    if (picture->above && (picture->full || picture->pace < cell->pace))
        pace = picture->full ? picture->pace : 0;
    return pace < WEIR_PACE_MAX ? pace : WEIR_PACE_MAX;
}

/* Slack for one limiter of this bucket, 1/1024 units. */
static uint64_t slack_of(const struct weir_use *use, uint64_t room)
{
    uint64_t users = use->connected > 0 ? use->connected : 1;
    return room == UINT64_MAX ? UINT64_MAX : room / (2 * users);
}

/* A bucket with this fill as a sum of units: all that were added but those that
 * the cell's limiter passed, modulo 2^64. */
static uint64_t others_in(const struct weir_merge *merge,
                          const struct weir_use *use,
                          const struct weir_cell *cell, int64_t fill,
                          weir_instant now)
{
    uint64_t leaked =
        weir_leaked(use->bucket.leak, weir_merge_elapsed(merge, now));
    return (((uint64_t)fill + leaked) >> use->bucket.leak.frac) - cell->last;
}

/* How many units the fill last sent of the others is off by now. */
static uint64_t others_off(const struct weir_merge *merge,
                           const struct weir_use *use,
                           const struct weir_cell *cell,
                           const struct picture *picture, weir_instant now)
{
    uint64_t age = weir_merge_elapsed(merge, now) - cell->told_at;
    if (picture->above && age > merge->pace_good)
        age = merge->pace_good;
    weir_i128 since = (weir_i128)cell->told_pace * (int64_t)age;
    uint64_t believed =
        cell->told_others + (uint64_t)(since >> WEIR_PACE_SHIFT);
    uint64_t others =
        picture->above
            ? others_in(merge, use, cell,
                        fill_told(merge, use, cell, picture, now), now)
            : weir_cell_others(merge, use, cell, now);
    /* The limiter never believes its bucket to be below empty. */
    uint64_t empty = others_in(merge, use, cell, 0, now);
    if (picture->above && (int64_t)(believed - empty) < 0)
        believed = empty;
    uint64_t off = others - believed;
    return off > INT64_MAX ? 0 - off : off;
}

/* The slack sent last is over twice the present one, or at most a quarter. */
static bool slack_moved(const struct weir_use *use,
                        const struct weir_cell *cell, uint64_t room)
{
    uint64_t slack = slack_of(use, room);
    return slack < cell->told_slack / 2 ||
           (slack > 0 && slack / 4 >= cell->told_slack);
}

bool weir_cell_is_owed(struct weir_merge *merge, struct weir_use *use,
                       const struct weir_cell *cell, weir_instant now)
{
    if (!merge->strained || cell->told_at == 0)
        return true;
    struct picture picture;
    picture_of(merge, use, &picture, now);
    if (!picture.far || slack_moved(use, cell, picture.room))
        return true;
    use->passed_over = true;
    return false;
}

/* The others added more than a grain since the last fill sent (without slack:
 * anything), or the slack has moved. */
static bool cell_moved(const struct weir_merge *merge,
                       const struct weir_use *use, const struct weir_cell *cell,
                       const struct picture *picture, weir_instant now)
{
    uint64_t moved = others_off(merge, use, cell, picture, now);
    if (!merge->slack)
        return moved > 0;
    /* A fill from above is rounded on the way, except of whole units. */
    uint64_t least = picture->above && !use->gauge ? 2 : 1;
    uint64_t grain = (picture->room >> WEIR_FILL_FRAC) / WEIR_ROOM_GRAINS;
    if (!picture->far && moved >= least && moved >= grain)
        return true;
    return slack_moved(use, cell, picture->room);
}

/* Whether the bucket can have moved by a part of the grain, for any cell, since
 * the last look; if not, the look is spared. A thousand cells are a thousand
 * cache lines, and most buckets are far from full. A fill from above may move
 * at any time. */
static bool has_stirred(const struct weir_merge *merge,
                        const struct weir_use *use,
                        const struct picture *picture, weir_instant now)
{
    if (use->unlooked || !merge->slack || picture->above ||
        use->looked_users != use->connected)
        return true;
    uint64_t room = picture->room;
    uint64_t near = use->looked_room / STIRRED_ROOM;
    if (room + near < use->looked_room || room > use->looked_room + near)
        return true;
    weir_duration age = weir_merge_elapsed(merge, now) - use->looked_at;
    weir_u128 paced = (weir_u128)use->pace_most * age >> WEIR_PACE_SHIFT;
    uint64_t grain = (room >> WEIR_FILL_FRAC) / WEIR_ROOM_GRAINS;
    return paced + use->stirred + 1 > grain / STIRRED_GRAIN;
}

static void note_looked(const struct weir_merge *merge, struct weir_use *use,
                        const struct picture *picture, weir_instant now)
{
    use->unlooked = picture->above;
    use->stirred = 0;
    use->looked_room = picture->room;
    use->looked_users = use->connected;
    use->looked_at = weir_merge_elapsed(merge, now);
    use->pace_most = use->pace;
}

/* Returns the cells looked at. */
static uint32_t look_at(struct weir_merge *merge, struct weir_use *use,
                        weir_instant now)
{
    struct picture picture;
    picture_of(merge, use, &picture, now);
    if (!has_stirred(merge, use, &picture, now))
        return 1;
    note_looked(merge, use, &picture, now);
    use->passed_over |= picture.far;
    for (struct weir_cell *cell = use->cells; cell; cell = cell->next) {
        if (!cell->limiter->connected)
            continue;
        if (cell_moved(merge, use, cell, &picture, now))
            weir_cell_set_due(cell, true);
        else if (cell->told_pace > use->pace_most)
            use->pace_most = cell->told_pace;
    }
    return use->cell_count;
}

void weir_merge_look(struct weir_merge *merge, uint32_t work, weir_instant now)
{
    uint32_t last = merge->touched_last;
    uint32_t number = 0;
    while (work > 0 && number != last) {
        struct weir_use *use = weir_merge_next_touched(merge);
        if (!use)
            return;
        number = weir_use_number(merge, use);
        if (!use->live) {
            weir_use_free_if_left(merge, use);
            continue;
        }
        uint32_t cells = look_at(merge, use, now);
        work = work > cells ? work - cells : 0;
        /* Presumed units move the bucket without a count. */
        if (use->pace != 0)
            weir_merge_touch(merge, use);
    }
}

void weir_merge_repeat(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter, uint32_t slot)
{
    struct weir_cell *cell = weir_cell_of(limiter, slot);
    if (cell && cell->use != 0 && weir_use_at(merge, cell->use)->counted)
        weir_cell_set_due(cell, true);
}

bool weir_merge_due(const struct weir_merge_limiter *limiter)
{
    return limiter->due > 0;
}

static void tell(struct weir_merge *merge, struct weir_cell *cell,
                 struct weir_fill *out, weir_instant now)
{
    struct weir_use *use = weir_use_at(merge, cell->use);
    struct picture picture;
    picture_of(merge, use, &picture, now);
    int64_t fill = fill_told(merge, use, cell, &picture, now);
    out->slot = cell->slot;
    out->fill = weir_rescale(fill, use->bucket.leak.frac, WEIR_FILL_FRAC);
    out->slack = slack_of(use, picture.room);
    out->pace = use->gauge ? 0 : pace_told(cell, &picture);
    cell->told_others = picture.above ? others_in(merge, use, cell, fill, now)
                                      : weir_cell_others(merge, use, cell, now);
    cell->told_slack = out->slack;
    cell->told_pace = out->pace;
    if (out->pace > use->pace_most)
        use->pace_most = out->pace;
    cell->told_at = weir_merge_elapsed(merge, now);
}

size_t weir_merge_tell(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter,
                       struct weir_fill *fills, size_t max, weir_instant now)
{
    size_t count = 0;
    for (size_t p = 0; p < limiter->page_capacity; p++) {
        struct weir_cell_page *page = limiter->pages[p];
        if (!page)
            continue;
        uint64_t due = page->due;
        while (due != 0) {
            if (count == max || limiter->due == 0)
                return count;
            unsigned bit = (unsigned)__builtin_ctzll(due);
            due &= due - 1;
            struct weir_cell *cell = &page->cell[bit];
            weir_cell_set_due(cell, false);
            tell(merge, cell, &fills[count++], now);
        }
    }
    return count;
}
