/* SPDX-License-Identifier: MIT
 * counted/slack.c - which limiters are sent the fill of a bucket, which fill,
 * and with how much slack (merge.c has the reasons). A root with an upstream
 * sends the larger of its own and the root fill from above. */

#include "core/counted/merge_internal.h"

/* The cells of a bucket are looked at again when it can have moved by this part
 * of a grain, or its room by this part of itself. */
#define UNITS_MOVED_GRAIN 4
#define UNITS_MOVED_ROOM 8

/* The bucket to be sent to limiters. */
struct root_fill {
    int64_t fill;     /* scaled, all presumed included */
    uint64_t pace;    /* of all: units in WEIR_PACE_SPAN */
    uint64_t room;    /* up to 'high', 1/1024 units; UINT64_MAX: no limit is
                    * near */
    uint64_t exposed; /* of half the room, by exposure; 1/1024 units */
    bool above;       /* the root fill from above is in it */
    bool full;        /* no unit may be counted until the roots above answer */
    bool far;         /* send the least of it (merge.c, Overload) */
};

/* The room left up to 'high', 1/1024 units. */
static uint64_t room_of(const struct weir_merge *merge,
                        const struct weir_root_quota *root_quota, int64_t fill)
{
    if (root_quota->unlimited || !merge->slack)
        return UINT64_MAX;
    int64_t room = root_quota->bucket.high - fill;
    if (room <= 0)
        return 0;
    return (uint64_t)weir_rescale(room, root_quota->bucket.leak.frac,
                                  WEIR_FILL_FRAC);
}

/* The part of half the room that is divided by exposure: three quarters of it
 * from 'low' on, and less below (merge.c). */
static uint64_t exposed_of(const struct weir_root_quota *root_quota,
                           const struct root_fill *root_fill)
{
    if (root_fill->room == UINT64_MAX || root_quota->exposure == 0)
        return 0;
    uint64_t most = root_fill->room / 8 * 3;
    int64_t low = root_quota->bucket.low;
    if (root_fill->fill >= low)
        return most;
    uint64_t fill = root_fill->fill > 0 ? (uint64_t)root_fill->fill : 0;
    return (uint64_t)((weir_u128)most * fill / (uint64_t)low);
}

/* Takes the fill from above, if it is the larger. */
static void join_above(const struct weir_root_quota *root_quota,
                       const struct weir_above *above, struct root_fill *out)
{
    weir_assert(above->fill >= 0);
    int64_t fill = weir_root_quota_rescaled(root_quota, above->fill,
                                            above->bucket.leak.frac);
    /* Add units in flight here that were not reported above yet. */
    if (root_quota->inflight)
        fill +=
            (int64_t)(root_quota->carried_in_flight - root_quota->up_in_flight);
    out->above = true;
    if (fill > out->fill) {
        out->fill = fill;
        out->pace = above->pace + root_quota->carried_pace;
    }
    out->full = above->allowance == 0 && !root_quota->unlimited;
    if (!out->full)
        return;
    uint64_t leak = weir_leaked(root_quota->bucket.leak, WEIR_PACE_SPAN) >>
                    root_quota->bucket.leak.frac;
    if (out->fill < root_quota->bucket.high)
        out->fill = root_quota->bucket.high;
    if (out->pace < leak)
        out->pace = leak;
}

/* Only without an upstream: a fill sent upwards is part of the fills sent
 * below. */
static bool is_far(const struct weir_merge *merge,
                   const struct weir_root_quota *root_quota, int64_t fill)
{
    return merge->overloaded && merge->slack && !merge->upstream &&
           !root_quota->unlimited && fill < root_quota->bucket.high / 2;
}

static void root_fill_of(struct weir_merge *merge,
                         struct weir_root_quota *root_quota,
                         struct root_fill *out, weir_instant now)
{
    weir_assert(root_quota->live);
    struct weir_above above;
    const struct weir_merge_upstream *upstream = merge->upstream;
    *out = (struct root_fill){ .fill = weir_merge_fill(merge, root_quota, now),
                               .pace = root_quota->pace };
    bool known = upstream && root_quota->counted &&
                 upstream->above(upstream->context, root_quota, &above, now) &&
                 above.created == root_quota->created;
    if (known)
        join_above(root_quota, &above, out);
    out->room = room_of(merge, root_quota, out->fill);
    if (known && above.allowance < out->room)
        out->room = above.allowance;
    out->exposed = exposed_of(root_quota, out);
    out->far = is_far(merge, root_quota, out->fill);
}

int64_t weir_merge_sent_fill(struct weir_merge *merge,
                             struct weir_root_quota *root_quota,
                             weir_instant now)
{
    struct root_fill root_fill;
    root_fill_of(merge, root_quota, &root_fill, now);
    return root_fill.fill;
}

/* The part of the fill sent to a limiter: without its own presumed units. */
static int64_t fill_to_send(const struct weir_merge *merge,
                            const struct weir_root_quota *root_quota,
                            const struct weir_limiter_cell *cell,
                            const struct root_fill *root_fill, weir_instant now)
{
    int64_t fill = root_fill->fill - (int64_t)weir_limiter_cell_presumed(
                                         merge, root_quota, cell, now);
    if (!root_fill->above)
        return fill;
    if (root_fill->full && fill < root_quota->bucket.high)
        return root_quota->bucket.high;
    return fill > 0 ? fill : 0;
}

static uint64_t pace_to_send(const struct weir_limiter_cell *cell,
                             const struct root_fill *root_fill)
{
    uint64_t pace = root_fill->pace - cell->pace;
    if (root_fill->above && (root_fill->full || root_fill->pace < cell->pace))
        pace = root_fill->full ? root_fill->pace : 0;
    return pace < WEIR_PACE_MAX ? pace : WEIR_PACE_MAX;
}

/* Slack for the cell's limiter, 1/1024 units: of half the room, a part in
 * proportion to its exposure, and an equal part of the rest. */
static uint64_t slack_of(const struct weir_root_quota *root_quota,
                         const struct weir_limiter_cell *cell,
                         const struct root_fill *root_fill)
{
    if (root_fill->room == UINT64_MAX)
        return UINT64_MAX;
    uint64_t users = root_quota->connected > 0 ? root_quota->connected : 1;
    uint64_t equal = (root_fill->room / 2 - root_fill->exposed) / users;
    if (root_fill->exposed == 0)
        return equal;
    weir_assert(cell->exposure <= root_quota->exposure);
    weir_u128 exposed = (weir_u128)root_fill->exposed * cell->exposure;
    return equal + (uint64_t)(exposed / root_quota->exposure);
}

/* A bucket with this fill as a sum of units: all that were added but those that
 * the cell's limiter passed, modulo 2^64. */
static uint64_t others_in(const struct weir_merge *merge,
                          const struct weir_root_quota *root_quota,
                          const struct weir_limiter_cell *cell, int64_t fill,
                          weir_instant now)
{
    uint64_t leaked =
        weir_leaked(root_quota->bucket.leak, weir_merge_elapsed(merge, now));
    return (((uint64_t)fill + leaked) >> root_quota->bucket.leak.frac) -
           cell->last;
}

/* How many units the fill last sent of the others is off by now. */
static uint64_t others_off(const struct weir_merge *merge,
                           const struct weir_root_quota *root_quota,
                           const struct weir_limiter_cell *cell,
                           const struct root_fill *root_fill, weir_instant now)
{
    uint64_t age = weir_merge_elapsed(merge, now) - cell->sent_at;
    weir_duration good = cell->limiter->pace_good;
    if (good < merge->pace_good)
        good = merge->pace_good;
    if (root_fill->above && age > good)
        age = good;
    weir_i128 since = (weir_i128)cell->sent_pace * (int64_t)age;
    uint64_t believed =
        cell->sent_others + (uint64_t)(since >> WEIR_PACE_SHIFT);
    uint64_t others =
        root_fill->above
            ? others_in(merge, root_quota, cell,
                        fill_to_send(merge, root_quota, cell, root_fill, now),
                        now)
            : weir_limiter_cell_others(merge, root_quota, cell, now);
    /* The limiter never believes its bucket to be below empty. */
    uint64_t empty = others_in(merge, root_quota, cell, 0, now);
    if (root_fill->above && (int64_t)(believed - empty) < 0)
        believed = empty;
    uint64_t off = others - believed;
    return off > INT64_MAX ? 0 - off : off;
}

/* The slack sent last is over twice the present one, or at most a quarter. */
static bool slack_moved(const struct weir_root_quota *root_quota,
                        const struct weir_limiter_cell *cell,
                        const struct root_fill *root_fill)
{
    uint64_t slack = slack_of(root_quota, cell, root_fill);
    return slack < cell->sent_slack / 2 ||
           (slack > 0 && slack / 4 >= cell->sent_slack);
}

bool weir_limiter_cell_is_owed(struct weir_merge *merge,
                               struct weir_root_quota *root_quota,
                               const struct weir_limiter_cell *cell,
                               weir_instant now)
{
    if (!merge->overloaded || cell->sent_at == 0)
        return true;
    struct root_fill root_fill;
    root_fill_of(merge, root_quota, &root_fill, now);
    if (!root_fill.far || slack_moved(root_quota, cell, &root_fill))
        return true;
    root_quota->passed_over = true;
    return false;
}

/* The others added more than a grain since the last fill sent (without slack:
 * anything), or the slack has moved. */
static bool cell_moved(const struct weir_merge *merge,
                       const struct weir_root_quota *root_quota,
                       const struct weir_limiter_cell *cell,
                       const struct root_fill *root_fill, weir_instant now)
{
    uint64_t moved = others_off(merge, root_quota, cell, root_fill, now);
    if (!merge->slack)
        return moved > 0;
    /* A fill from above is rounded on the way, except of whole units. */
    uint64_t least = root_fill->above && !root_quota->inflight ? 2 : 1;
    uint64_t grain = (root_fill->room >> WEIR_FILL_FRAC) / WEIR_ROOM_GRAINS;
    if (!root_fill->far && moved >= least && moved >= grain)
        return true;
    return slack_moved(root_quota, cell, root_fill);
}

/* Whether the bucket can have moved by a part of the grain, for any cell, since
 * the last look; if not, the look is spared. A thousand cells are a thousand
 * cache lines, and most buckets are far from full. A fill from above may move
 * at any time. */
static bool has_moved(const struct weir_merge *merge,
                      const struct weir_root_quota *root_quota,
                      const struct root_fill *root_fill, weir_instant now)
{
    if (root_quota->unlooked || !merge->slack || root_fill->above ||
        root_quota->looked_users != root_quota->connected)
        return true;
    uint64_t room = root_fill->room;
    uint64_t near = root_quota->looked_room / UNITS_MOVED_ROOM;
    if (room + near < root_quota->looked_room ||
        room > root_quota->looked_room + near)
        return true;
    weir_duration age = weir_merge_elapsed(merge, now) - root_quota->looked_at;
    weir_u128 paced = (weir_u128)root_quota->pace_most * age >> WEIR_PACE_SHIFT;
    uint64_t grain = (room >> WEIR_FILL_FRAC) / WEIR_ROOM_GRAINS;
    return paced + root_quota->units_moved + 1 > grain / UNITS_MOVED_GRAIN;
}

static void note_looked(const struct weir_merge *merge,
                        struct weir_root_quota *root_quota,
                        const struct root_fill *root_fill, weir_instant now)
{
    root_quota->unlooked = root_fill->above;
    root_quota->units_moved = 0;
    root_quota->looked_room = root_fill->room;
    root_quota->looked_users = root_quota->connected;
    root_quota->looked_at = weir_merge_elapsed(merge, now);
    root_quota->pace_most = root_quota->pace;
}

/* Returns the cells looked at. */
static uint32_t check_due_cells(struct weir_merge *merge,
                                struct weir_root_quota *root_quota,
                                weir_instant now)
{
    weir_assert(root_quota->live);
    struct root_fill root_fill;
    root_fill_of(merge, root_quota, &root_fill, now);
    if (!has_moved(merge, root_quota, &root_fill, now))
        return 1;
    note_looked(merge, root_quota, &root_fill, now);
    root_quota->passed_over |= root_fill.far;
    for (struct weir_limiter_cell *cell = root_quota->cells; cell;
         cell = cell->next) {
        if (!cell->limiter->connected)
            continue;
        if (cell_moved(merge, root_quota, cell, &root_fill, now))
            weir_limiter_cell_set_due(cell, true);
        else if (cell->sent_pace > root_quota->pace_most)
            root_quota->pace_most = cell->sent_pace;
    }
    return root_quota->cell_count;
}

void weir_merge_look(struct weir_merge *merge, uint32_t work, weir_instant now)
{
    uint32_t last = merge->queue[WEIR_MERGE_MOVED].last;
    uint32_t number = 0;
    while (work > 0 && number != last) {
        struct weir_root_quota *root_quota =
            weir_merge_dequeue(merge, WEIR_MERGE_MOVED);
        if (!root_quota)
            return;
        number = weir_root_quota_number(merge, root_quota);
        if (!root_quota->live) {
            weir_root_quota_free_if_left(merge, root_quota);
            continue;
        }
        uint32_t cells = check_due_cells(merge, root_quota, now);
        work = work > cells ? work - cells : 0;
        /* Presumed units move the bucket without a count. */
        if (root_quota->pace != 0)
            weir_merge_enqueue(merge, root_quota, WEIR_MERGE_MOVED);
    }
}

void weir_merge_repeat(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter, uint32_t slot)
{
    struct weir_limiter_cell *cell = weir_limiter_cell_of(limiter, slot);
    if (cell && cell->root_quota != 0 &&
        weir_root_quota_at(merge, cell->root_quota)->counted)
        weir_limiter_cell_set_due(cell, true);
}

bool weir_merge_due(const struct weir_merge_limiter *limiter)
{
    return limiter->due > 0;
}

static void write_fill(struct weir_merge *merge, struct weir_limiter_cell *cell,
                       struct weir_fill *out, weir_instant now)
{
    weir_assert(cell->limiter->connected);
    struct weir_root_quota *root_quota =
        weir_root_quota_at(merge, cell->root_quota);
    struct root_fill root_fill;
    root_fill_of(merge, root_quota, &root_fill, now);
    int64_t fill = fill_to_send(merge, root_quota, cell, &root_fill, now);
    out->slot = cell->slot;
    out->fill =
        weir_rescale(fill, root_quota->bucket.leak.frac, WEIR_FILL_FRAC);
    out->slack = slack_of(root_quota, cell, &root_fill);
    out->pace = root_quota->inflight ? 0 : pace_to_send(cell, &root_fill);
    cell->sent_others =
        root_fill.above
            ? others_in(merge, root_quota, cell, fill, now)
            : weir_limiter_cell_others(merge, root_quota, cell, now);
    cell->sent_slack = out->slack;
    cell->sent_pace = out->pace;
    if (out->pace > root_quota->pace_most)
        root_quota->pace_most = out->pace;
    cell->sent_at = weir_merge_elapsed(merge, now);
    weir_assert(out->pace <= WEIR_PACE_MAX);
}

size_t weir_merge_send_fills(struct weir_merge *merge,
                             struct weir_merge_limiter *limiter,
                             struct weir_fill *fills, size_t max,
                             weir_instant now)
{
    size_t count = 0;
    for (size_t p = 0; p < limiter->page_capacity; p++) {
        struct weir_limiter_cell_page *page = limiter->pages[p];
        if (!page)
            continue;
        uint64_t due = page->due;
        while (due != 0) {
            if (count == max || limiter->due == 0)
                return count;
            unsigned bit = (unsigned)__builtin_ctzll(due);
            due &= due - 1;
            struct weir_limiter_cell *cell = &page->cell[bit];
            weir_limiter_cell_set_due(cell, false);
            write_fill(merge, cell, &fills[count++], now);
        }
    }
    return count;
}
