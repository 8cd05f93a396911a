/* SPDX-License-Identifier: MIT
 * count/merge.c - how a root adds up what limiters say.
 *
 *     limiter A  slot 7 ──┐  cell: last total, what it was told
 *     limiter B  slot 2 ──┼─> use "site/put": bucket, list of its cells
 *     limiter C  slot 9 ──┘
 *
 * A cell remembers the limiter's total, so that what arrives twice adds
 * nothing: the bucket gets the difference between totals, and a total is
 * either announced absolutely (a session's start) or follows from the last
 * answered one.
 *
 * Late counts. A limiter that was cut off comes back with the counts of
 * minutes, of which it says how many have drained from its own bucket. What
 * was made before the bucket was last empty has drained long
 * ago and adds nothing; of counts spread over a time, the share made since
 * then is added; and in all they fill the bucket, but put nobody into debt:
 * what went on while no root could be asked went on by on_stale. (Adding all
 * would refuse everybody for minutes because of a load that is gone; adding
 * none would forget a load that is there.)
 *
 * Slack. A limiter may count, unseen, what it was told: half of the room
 * left in the bucket, divided by those who use it; with twice that
 * unanswered it stops. The stated bound on a bucket is then
 *
 *     high + sum over limiters of (2 * slack + weight)
 *
 * whatever the interval and the round trip, slack being what each was last
 * told. Room shrinks as the bucket fills, so those who were told much must
 * be told again: a cell is due when what others added since it was told is
 * more than half of its slack, or when its slack should be less than half of
 * what it holds. Who is due is found by looking at buckets that moved, in
 * order, a bounded number of cells a time: an overloaded root tells later,
 * it does not do more.
 *
 * Rejected: telling on a timer (millions of idle cells would be told
 * nothing new), and telling only who reports (a limiter that waits for a
 * request would decide on what it heard an hour ago). */

#include "count/merge.h"

#include <string.h>

#include "base/hash.h"

void weir_merge_init(struct weir_merge *merge, const struct weir_mem *mem,
                     uint64_t seed, weir_instant now)
{
    *merge = (struct weir_merge){ .mem = *mem,
                                  .seed = seed,
                                  .origin = now,
                                  .slack = true };
}

void weir_merge_fini(struct weir_merge *merge)
{
    const struct weir_mem *mem = &merge->mem;
    for (uint32_t i = 0; i < merge->use_used; i++) {
        if (merge->uses[i].live)
            mem->free(mem->context, merge->uses[i].name,
                      merge->uses[i].name_len);
    }
    mem->free(mem->context, merge->uses,
              merge->use_capacity * sizeof(*merge->uses));
    weir_index_fini(&merge->index, mem);
}

/* ---- Buckets ---- */

static uint64_t elapsed(const struct weir_merge *merge, weir_instant now)
{
    return now > merge->origin ? now - merge->origin : 0;
}

static uint32_t use_number(const struct weir_merge *merge,
                           const struct weir_use *use)
{
    return (uint32_t)(use - merge->uses) + 1;
}

static struct weir_use *use_at(struct weir_merge *merge, uint32_t number)
{
    weir_assert(number > 0 && number <= merge->use_used);
    return &merge->uses[number - 1];
}

int64_t weir_merge_fill(struct weir_merge *merge, struct weir_use *use,
                        weir_instant now)
{
    if (use->unlimited)
        return 0;
    uint64_t leaked = weir_leaked(use->bucket.leak, elapsed(merge, now));
    int64_t fill = (int64_t)(use->in - leaked);
    if (fill > 0)
        return fill;
    use->in = leaked;
    use->emptied = now;
    return 0;
}

static void set_fill(struct weir_merge *merge, struct weir_use *use,
                     int64_t fill, weir_instant now)
{
    uint64_t leaked = weir_leaked(use->bucket.leak, elapsed(merge, now));
    use->in = leaked + (uint64_t)fill;
}

/* The most a bucket holds: high and the bound of debt. */
static int64_t fill_most(const struct weir_use *use)
{
    int64_t debt = (int64_t)(WEIR_DEBT_MAX << use->bucket.leak.frac);
    int64_t high = use->bucket.high > 0 ? use->bucket.high : 0;
    return high > WEIR_SCALED_MAX - debt ? WEIR_SCALED_MAX : high + debt;
}

static void add_units(struct weir_merge *merge, struct weir_use *use,
                      int64_t units, bool late, weir_instant now)
{
    use->added += (uint64_t)units;
    if (use->unlimited)
        return;
    int64_t fill = weir_merge_fill(merge, use, now);
    int64_t high = use->bucket.high > fill ? use->bucket.high : fill;
    int64_t most = late ? high : fill_most(use);
    weir_i128 one = (weir_i128)1 << use->bucket.leak.frac;
    weir_i128 wanted = fill + units * one;
    if (wanted > most)
        wanted = most;
    if (wanted < 0) {
        wanted = 0;
        use->emptied = now;
    }
    set_fill(merge, use, (int64_t)wanted, now);
}

static void use_parameters(struct weir_use *use,
                           const struct weir_quota *quota)
{
    use->counted = quota->sharing == WEIR_COUNTED;
    use->unlimited = quota->limit.unlimited;
    use->created = quota->created;
    use->rule_epoch = quota->epoch;
    weir_quota_bucket(quota, &use->bucket);
}

struct weir_use *weir_merge_get(struct weir_merge *merge,
                                struct weir_text name)
{
    uint64_t hash = weir_hash(name, merge->seed);
    size_t cursor = 0;
    uint32_t index;
    while (weir_index_find(&merge->index, hash, &cursor, &index)) {
        struct weir_use *use = &merge->uses[index];
        struct weir_text other = { use->name, use->name_len };
        if (weir_text_equal(name, other))
            return use;
    }
    return NULL;
}

/* A place in the array: a freed one, or a new one. 0: none. */
static uint32_t take_place(struct weir_merge *merge)
{
    uint32_t number = merge->free_use;
    if (number != 0) {
        merge->free_use = use_at(merge, number)->next_touched;
        return number;
    }
    if (merge->use_used == WEIR_USAGES_MAX)
        return 0;
    struct weir_use *uses =
        weir_mem_grow(&merge->mem, merge->uses, sizeof(*uses),
                      &merge->use_capacity, merge->use_used + 1);
    if (!uses)
        return 0;
    merge->uses = uses;
    return ++merge->use_used;
}

static void free_place(struct weir_merge *merge, struct weir_use *use)
{
    *use = (struct weir_use){ .next_touched = merge->free_use };
    merge->free_use = use_number(merge, use);
}

struct weir_use *weir_merge_use(struct weir_merge *merge,
                                struct weir_text name,
                                const struct weir_quota *quota,
                                weir_instant now)
{
    struct weir_use *use = weir_merge_get(merge, name);
    if (use)
        return use;
    uint32_t number = take_place(merge);
    if (number == 0)
        return NULL;
    const struct weir_mem *mem = &merge->mem;
    use = use_at(merge, number);
    memset(use, 0, sizeof(*use));
    use->name = mem->alloc(mem->context, name.len);
    use->hash = weir_hash(name, merge->seed);
    if (!use->name ||
        weir_index_add(&merge->index, mem, use->hash, number - 1) < 0) {
        mem->free(mem->context, use->name, name.len);
        free_place(merge, use);
        return NULL;
    }
    memcpy(use->name, name.p, name.len);
    use->name_len = (uint8_t)name.len;
    use->live = true;
    use_parameters(use, quota);
    use->emptied = now;
    set_fill(merge, use, 0, now);
    use->adopted = use->in;
    merge->use_live++;
    return use;
}

/* ---- The queue of buckets that moved ---- */

static void touch(struct weir_merge *merge, struct weir_use *use)
{
    if (use->touched)
        return;
    uint32_t number = use_number(merge, use);
    use->touched = true;
    use->next_touched = 0;
    if (merge->touched_last != 0)
        use_at(merge, merge->touched_last)->next_touched = number;
    else
        merge->touched = number;
    merge->touched_last = number;
}

static struct weir_use *next_touched(struct weir_merge *merge)
{
    if (merge->touched == 0)
        return NULL;
    struct weir_use *use = use_at(merge, merge->touched);
    merge->touched = use->next_touched;
    if (merge->touched == 0)
        merge->touched_last = 0;
    use->touched = false;
    use->next_touched = 0;
    return use;
}

/* ---- Cells ---- */

static struct weir_cell *cell_of(const struct weir_merge_limiter *limiter,
                                 uint32_t slot)
{
    size_t page = slot / WEIR_CELLS_A_PAGE;
    if (page >= limiter->page_capacity || !limiter->pages[page])
        return NULL;
    return &limiter->pages[page]->cell[slot % WEIR_CELLS_A_PAGE];
}

static struct weir_cell *cell_make(struct weir_merge *merge,
                                   struct weir_merge_limiter *limiter,
                                   uint32_t slot)
{
    const struct weir_mem *mem = &merge->mem;
    size_t page = slot / WEIR_CELLS_A_PAGE;
    struct weir_cell_page **pages =
        weir_mem_grow(mem, limiter->pages, sizeof(*pages),
                      &limiter->page_capacity, page + 1);
    if (!pages)
        return NULL;
    limiter->pages = pages;
    if (!pages[page])
        pages[page] = mem->alloc(mem->context, sizeof(**pages));
    return pages[page] ? &pages[page]->cell[slot % WEIR_CELLS_A_PAGE] : NULL;
}

static void set_due(struct weir_cell *cell, bool due)
{
    struct weir_merge_limiter *limiter = cell->limiter;
    uint64_t *bits = &limiter->pages[cell->slot / WEIR_CELLS_A_PAGE]->due;
    uint64_t bit = (uint64_t)1 << (cell->slot % WEIR_CELLS_A_PAGE);
    bool was = (*bits & bit) != 0;
    if (was == due)
        return;
    *bits ^= bit;
    limiter->due += due ? 1 : (uint32_t)-1;
}

static void cell_attach(struct weir_merge *merge, struct weir_cell *cell,
                        struct weir_use *use)
{
    cell->use = use_number(merge, use);
    cell->prev = NULL;
    cell->next = use->cells;
    if (use->cells)
        use->cells->prev = cell;
    use->cells = cell;
    use->cell_count++;
    use->connected += cell->limiter->connected;
    cell->limiter->cells++;
}

static void cell_detach(struct weir_merge *merge, struct weir_cell *cell)
{
    struct weir_use *use = use_at(merge, cell->use);
    if (cell->prev)
        cell->prev->next = cell->next;
    else
        use->cells = cell->next;
    if (cell->next)
        cell->next->prev = cell->prev;
    use->cell_count--;
    use->connected -= cell->limiter->connected;
    cell->limiter->cells--;
    set_due(cell, false);
    cell->use = 0;
}

/* ---- Edits ---- */

/* A fill on another scale, within what the bucket holds now. */
static int64_t rescaled(const struct weir_use *use, int64_t fill,
                        unsigned from)
{
    unsigned to = use->bucket.leak.frac;
    if (to > from && fill > fill_most(use) >> (to - from))
        return fill_most(use);
    return weir_rescale(fill, from, to);
}

void weir_merge_edit(struct weir_merge *merge, struct weir_use *use,
                     const struct weir_quota *quota, weir_instant now)
{
    int64_t fill = weir_merge_fill(merge, use, now);
    uint64_t leaked = weir_leaked(use->bucket.leak, elapsed(merge, now));
    int64_t adopted = (int64_t)(use->adopted - leaked);
    unsigned from = use->bucket.leak.frac;
    if (use->created != quota->created)
        fill = adopted = 0;
    use_parameters(use, quota);
    set_fill(merge, use, rescaled(use, fill, from), now);
    leaked = weir_leaked(use->bucket.leak, elapsed(merge, now));
    use->adopted =
        leaked + (uint64_t)rescaled(use, adopted > 0 ? adopted : 0, from);
    touch(merge, use);
    for (struct weir_cell *cell = use->cells; cell; cell = cell->next) {
        if (cell->limiter->connected)
            set_due(cell, true);
    }
}

void weir_merge_drop(struct weir_merge *merge, struct weir_use *use)
{
    while (use->cells)
        cell_detach(merge, use->cells);
    /* A touched use is in the queue by number: it leaves when it is its
     * turn, and the place is freed then. */
    const struct weir_mem *mem = &merge->mem;
    weir_index_remove(&merge->index, use->hash, use_number(merge, use) - 1);
    mem->free(mem->context, use->name, use->name_len);
    use->name = NULL;
    use->name_len = 0;
    use->live = false;
    merge->use_live--;
    if (!use->touched)
        free_place(merge, use);
}

void weir_merge_sweep(struct weir_merge *merge, uint32_t *cursor,
                      uint32_t look, weir_instant now)
{
    for (uint32_t i = 0; i < look && i < merge->use_used; i++) {
        *cursor = *cursor + 1 < merge->use_used ? *cursor + 1 : 0;
        struct weir_use *use = &merge->uses[*cursor];
        if (!use->live || use->cell_count > 0)
            continue;
        if (weir_merge_fill(merge, use, now) == 0)
            weir_merge_drop(merge, use);
    }
}

/* ---- Limiters ---- */

/* Calls for each cell in use. */
static void each_cell(struct weir_merge *merge,
                      struct weir_merge_limiter *limiter,
                      void (*each)(struct weir_merge *, struct weir_cell *))
{
    for (size_t p = 0; p < limiter->page_capacity; p++) {
        if (!limiter->pages[p])
            continue;
        for (int i = 0; i < WEIR_CELLS_A_PAGE; i++) {
            struct weir_cell *cell = &limiter->pages[p]->cell[i];
            if (cell->use != 0)
                each(merge, cell);
        }
    }
}

static void cell_connect(struct weir_merge *merge, struct weir_cell *cell)
{
    use_at(merge, cell->use)->connected++;
}

static void cell_disconnect(struct weir_merge *merge, struct weir_cell *cell)
{
    use_at(merge, cell->use)->connected--;
    set_due(cell, false);
}

void weir_merge_connect(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter, bool connected)
{
    if (limiter->connected == connected)
        return;
    limiter->connected = connected;
    each_cell(merge, limiter, connected ? cell_connect : cell_disconnect);
}

void weir_merge_forget(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter)
{
    const struct weir_mem *mem = &merge->mem;
    each_cell(merge, limiter, cell_detach);
    for (size_t p = 0; p < limiter->page_capacity; p++) {
        if (limiter->pages[p])
            mem->free(mem->context, limiter->pages[p],
                      sizeof(*limiter->pages[p]));
    }
    mem->free(mem->context, limiter->pages,
              limiter->page_capacity * sizeof(*limiter->pages));
    *limiter = (struct weir_merge_limiter){ 0 };
}

bool weir_merge_drained(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter, weir_instant now)
{
    for (size_t p = 0; p < limiter->page_capacity; p++) {
        if (!limiter->pages[p])
            continue;
        for (int i = 0; i < WEIR_CELLS_A_PAGE; i++) {
            const struct weir_cell *cell = &limiter->pages[p]->cell[i];
            if (cell->use != 0 &&
                weir_merge_fill(merge, use_at(merge, cell->use), now) > 0)
                return false;
        }
    }
    return true;
}

/* What the limiter knew of the bucket, if that is more than we do. Without a
 * witness it is the bucket as it was before our birth: of several such the
 * largest counts, for they are of one history, and what was counted since
 * stays on top. With one, what was counted since is in it. */
static void adopt_fill(struct weir_merge *merge, struct weir_use *use,
                       const struct weir_announce *announce,
                       weir_instant now)
{
    if (use->unlimited || announce->fill <= 0 ||
        elapsed(merge, now) > merge->learn)
        return;
    unsigned frac = use->bucket.leak.frac;
    int64_t most = fill_most(use);
    int64_t fill = announce->fill >= weir_rescale(most, frac, WEIR_FILL_FRAC)
                       ? most
                       : weir_rescale(announce->fill, WEIR_FILL_FRAC, frac);
    uint64_t leaked = weir_leaked(use->bucket.leak, elapsed(merge, now));
    int64_t adopted = (int64_t)(use->adopted - leaked);
    int64_t present = weir_merge_fill(merge, use, now);
    int64_t known = announce->witnessed ? present
                    : adopted > 0       ? adopted
                                        : 0;
    if (fill > adopted)
        use->adopted = leaked + (uint64_t)fill;
    if (fill <= known)
        return;
    int64_t sum = present + (fill - known);
    set_fill(merge, use, sum < most ? sum : most, now);
    /* Others are told that it moved. */
    use->added += ((uint64_t)(fill - known) >> frac) + 1;
    touch(merge, use);
}

int weir_merge_announce(struct weir_merge *merge,
                        struct weir_merge_limiter *limiter,
                        struct weir_use *use,
                        const struct weir_announce *announce,
                        weir_instant now)
{
    if (announce->slot >= WEIR_CELLS_MAX)
        return WEIR_EPROTOCOL;
    struct weir_cell *cell = cell_make(merge, limiter, announce->slot);
    if (!cell)
        return WEIR_ENOMEM;
    bool known = cell->use == use_number(merge, use);
    if (!known) {
        if (cell->use != 0)
            cell_detach(merge, cell);
        *cell = (struct weir_cell){ .limiter = limiter,
                                    .slot = announce->slot };
        cell_attach(merge, cell, use);
        adopt_fill(merge, use, announce, now);
    }
    if (!known || (int64_t)(announce->base - cell->last) > 0)
        cell->last = announce->base;
    if (!known || (int64_t)(announce->refused - cell->refused_last) > 0)
        cell->refused_last = announce->refused;
    cell->base = announce->base;
    cell->refused_base = announce->refused;
    cell->told_added = use->added;
    cell->told_last = cell->last;
    return WEIR_OK;
}

void weir_merge_unannounce(struct weir_merge *merge,
                           struct weir_merge_limiter *limiter, uint32_t slot)
{
    struct weir_cell *cell = cell_of(limiter, slot);
    if (cell && cell->use != 0)
        cell_detach(merge, cell);
}

/* Of counts made between 'from' and 'to' ago, those made since the bucket
 * was last empty. A root that is young doesn't know when that was: it takes
 * the limiter's word that they have drained. */
static int64_t late_kept(const struct weir_merge *merge,
                         const struct weir_use *use, int64_t late,
                         weir_duration from, weir_duration to,
                         weir_instant now)
{
    weir_duration since = now - use->emptied;
    if (elapsed(merge, now) <= merge->learn)
        return 0;
    if (since >= from)
        return late;
    if (since <= to)
        return 0;
    return (int64_t)((weir_i128)late * (int64_t)(since - to) /
                     (int64_t)(from - to));
}

bool weir_merge_count(struct weir_merge *merge,
                      struct weir_merge_limiter *limiter,
                      const struct weir_count *count,
                      const struct weir_report *report, weir_instant now)
{
    struct weir_cell *cell = cell_of(limiter, count->slot);
    if (!cell || cell->use == 0)
        return false;
    struct weir_use *use = use_at(merge, cell->use);
    uint64_t total = cell->base + (uint64_t)count->passed;
    int64_t delta = (int64_t)(total - cell->last);
    uint64_t refused = cell->refused_base + count->refused;
    uint64_t refused_delta = refused - cell->refused_last;
    cell->base = cell->last = total;
    cell->refused_base = cell->refused_last = refused;
    if ((int64_t)refused_delta > 0)
        use->refused += refused_delta;
    use->passed += (uint64_t)delta;
    merge->merged++;

    int64_t late = count->late < delta ? count->late : delta;
    if (late > 0) {
        weir_merge_fill(merge, use, now);
        delta -= late - late_kept(merge, use, late, report->late_from,
                                  report->late_to, now);
    }
    add_units(merge, use, delta, report->late_from > 0, now);
    if (use->counted) {
        set_due(cell, true);
        if (delta != 0)
            touch(merge, use);
    }
    return true;
}

/* ---- What is told ---- */

/* What a limiter of this bucket may count unseen, in units. */
static uint64_t slack_of(struct weir_merge *merge, struct weir_use *use,
                         weir_instant now)
{
    if (use->unlimited || !merge->slack)
        return UINT64_MAX;
    int64_t room = use->bucket.high - weir_merge_fill(merge, use, now);
    if (room <= 0)
        return 0;
    uint64_t users = use->connected > 0 ? use->connected : 1;
    return ((uint64_t)room >> use->bucket.leak.frac) / (2 * users);
}

/* Others added more, since the cell was told, than half of its slack (without
 * slack: anything); or its slack has shrunk by half, or grown from nothing. */
static bool cell_moved(const struct weir_merge *merge,
                       const struct weir_use *use,
                       const struct weir_cell *cell, uint64_t slack)
{
    uint64_t own = cell->last - cell->told_last;
    uint64_t others = use->added - cell->told_added - own;
    uint64_t moved = others > INT64_MAX ? 0 - others : others;
    if (!merge->slack)
        return moved > 0;
    if (moved > 0 && moved >= cell->told_slack / 2)
        return true;
    return slack < cell->told_slack / 2 ||
           (slack > 0 && slack / 4 >= cell->told_slack);
}

static void look_at(struct weir_merge *merge, struct weir_use *use,
                    weir_instant now)
{
    uint64_t slack = slack_of(merge, use, now);
    for (struct weir_cell *cell = use->cells; cell; cell = cell->next) {
        if (cell->limiter->connected && cell_moved(merge, use, cell, slack))
            set_due(cell, true);
    }
}

void weir_merge_look(struct weir_merge *merge, uint32_t work,
                     weir_instant now)
{
    while (work > 0) {
        struct weir_use *use = next_touched(merge);
        if (!use)
            return;
        if (!use->live) {
            free_place(merge, use);
            continue;
        }
        look_at(merge, use, now);
        work = work > use->cell_count ? work - use->cell_count : 0;
    }
}

void weir_merge_repeat(struct weir_merge *merge,
                       struct weir_merge_limiter *limiter, uint32_t slot)
{
    struct weir_cell *cell = cell_of(limiter, slot);
    if (cell && cell->use != 0 && use_at(merge, cell->use)->counted)
        set_due(cell, true);
}

bool weir_merge_due(const struct weir_merge_limiter *limiter)
{
    return limiter->due > 0;
}

static void tell(struct weir_merge *merge, struct weir_cell *cell,
                 struct weir_fill *out, weir_instant now)
{
    struct weir_use *use = use_at(merge, cell->use);
    int64_t fill = weir_merge_fill(merge, use, now);
    out->slot = cell->slot;
    out->fill = weir_rescale(fill, use->bucket.leak.frac, WEIR_FILL_FRAC);
    out->slack = slack_of(merge, use, now);
    cell->told_added = use->added;
    cell->told_last = cell->last;
    cell->told_slack = out->slack;
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
            set_due(cell, false);
            tell(merge, cell, &fills[count++], now);
        }
    }
    return count;
}
