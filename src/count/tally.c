/* SPDX-License-Identifier: MIT
 * count/tally.c - what a limiter tells each root, and makes of the answers.
 *
 * The state of one slot on one link:
 *
 *     0 ........ acked ........ sent ........ count
 *       the root has  |  in the      | not reported
 *       answered      |  unanswered  | yet
 *                     |  report      |
 *
 * 'acked' moves to 'sent' when the answer comes. The root's fill F holds our
 * total A (= acked), so the bucket here is F - A + count, leaking since F
 * came: nothing counted meanwhile is lost, and nothing is added twice. With
 * several roots the largest such fill is taken, whichever answered when.
 *
 * Where to stop. A root that told slack s for total A lets us count to
 * A + 2s (at least one request), and wants to hear at sent + s. The smallest
 * over the links that answer rules. A link that has been silent for a while
 * rules only if all have: the others see all counts too. While roots are
 * connected and none answers, the stops hold until the node declares the
 * table stale; with no root connected decisions go on from our own counts.
 *
 * A session's start. The same root, back again, remembers what it merged:
 * counts go on from 'acked'. A root that has just been born knows nothing:
 * it is told each bucket as we know it at that moment, without the counts
 * that no root has answered for ('settled' in the table), and those follow
 * as counts. A limiter that meets it later than others says whether another
 * root was its witness: then what the others counted since is in its picture.
 * What comes into use later is told from nothing, because by then
 * the new root hears of it from everybody: a picture drawn later would hold
 * what another limiter is about to tell it, and it would count that twice. */

#include "count/tally.h"

#include <string.h>

#define STOP_NONE(count) ((count) + WEIR_COUNT_FAR)
/* Time constant of the smoothed rates. */
#define RATE_SPAN (2 * WEIR_SECOND)

/* ---- Memory ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + WEIR_CACHE_LINE - 1) & ~(size_t)(WEIR_CACHE_LINE - 1);
}

/* Carves the next array out of the block; sizes only when 'block' is NULL. */
static void *carve(char *block, size_t *at, size_t bytes)
{
    void *p = block ? block + *at : NULL;
    *at += aligned(bytes);
    return p;
}

static size_t lay_out(struct weir_tally *tally, char *block, uint32_t slots,
                      uint32_t links)
{
    size_t at = 0;
    size_t words = ((size_t)slots + 63) / 64;
    tally->fresh = carve(block, &at, words * sizeof(uint64_t));
    tally->told = carve(block, &at, words * sizeof(uint64_t));
    tally->share_mark = carve(block, &at, slots * sizeof(uint64_t));
    tally->announces = carve(block, &at, WEIR_REPORT_ANNOUNCES_MAX *
                                             sizeof(struct weir_announce));
    tally->names = carve(block, &at,
                         WEIR_REPORT_ANNOUNCES_MAX * (WEIR_NAME_MAX + 1));
    tally->counts = carve(block, &at, WEIR_REPORT_COUNTS_MAX *
                                          sizeof(struct weir_count));
    for (uint32_t i = 0; i < links; i++) {
        struct weir_tally_link *link = &tally->link[i];
        link->dirty = carve(block, &at, words * sizeof(uint64_t));
        link->outstanding = carve(
            block, &at, WEIR_REPORT_COUNTS_MAX * sizeof(uint32_t));
        link->cells =
            carve(block, &at, slots * sizeof(struct weir_tally_cell));
    }
    return at;
}

size_t weir_tally_size(uint32_t slots, uint32_t links)
{
    struct weir_tally shape;
    return lay_out(&shape, NULL, slots, links);
}

void weir_tally_init(struct weir_tally *tally, void *block,
                     struct weir_table *table, uint32_t slots,
                     uint32_t links, weir_instant now)
{
    *tally = (struct weir_tally){ .table = table,
                                  .slots = slots,
                                  .link_count = links,
                                  .limiters = 1,
                                  .extrapolated_at = now };
    lay_out(tally, block, slots, links);
}

/* ---- Bits ---- */

static void bit_set(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= (uint64_t)1 << (i % 64);
}

static void bit_clear(uint64_t *bits, uint32_t i)
{
    bits[i / 64] &= ~((uint64_t)1 << (i % 64));
}

/* The first set bit at or after 'from', below 'end'; 'end' if none. */
static uint32_t bit_next(const uint64_t *bits, uint32_t from, uint32_t end)
{
    while (from < end) {
        uint64_t word = bits[from / 64] >> (from % 64);
        if (word != 0) {
            uint32_t found = from + (uint32_t)__builtin_ctzll(word);
            return found < end ? found : end;
        }
        from = (from / 64 + 1) * 64;
    }
    return end;
}

/* ---- What happened ---- */

/* The cell of a slot in its present life; begun anew if need be. */
static struct weir_tally_cell *
cell_of(struct weir_tally *tally, struct weir_tally_link *link,
        uint32_t slot, const struct weir_slot_view *view)
{
    struct weir_tally_cell *cell = &link->cells[slot];
    if (cell->begun && cell->generation == view->generation)
        return cell;
    uint64_t settled = weir_table_settled(tally->table, slot);
    *cell = (struct weir_tally_cell){
        .acked = settled,
        .sent = settled,
        .refused_acked = view->refused,
        .refused_sent = view->refused,
        .mark = settled,
        .generation = view->generation,
        .begun = true,
    };
    return cell;
}

/* Cells begin when their slot is first used, on every link, connected or
 * not: a root that was away is owed the counts from there. */
static void collect_slot(struct weir_tally *tally, uint32_t slot,
                         bool unheard, weir_instant now)
{
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    if (view.state <= WEIR_SLOT_MAKING)
        return;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *link = &tally->link[i];
        struct weir_tally_cell *cell = cell_of(tally, link, slot, &view);
        bit_set(link->dirty, slot);
        if (!link->up || (unheard && link->unanswered)) {
            cell->mark = view.count;
            link->mark_at = now;
        }
    }
    /* Nobody to report to: all is settled as it happens. */
    if (tally->link_count == 0)
        weir_table_set_settled(tally->table, slot, view.count);
}

void weir_tally_collect(struct weir_tally *tally, bool unheard,
                        weir_instant now)
{
    size_t words = weir_table_bits_words(tally->table);
    memset(tally->fresh, 0, words * sizeof(uint64_t));
    weir_table_collect(tally->table, tally->fresh);
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = bit_next(tally->fresh, 0, end); slot < end;
         slot = bit_next(tally->fresh, slot + 1, end))
        collect_slot(tally, slot, unheard, now);
}

/* ---- Where to stop ---- */

static bool rules(const struct weir_tally *tally,
                  const struct weir_tally_link *link)
{
    if (!link->up || link->answering)
        return link->up;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        if (tally->link[i].up && tally->link[i].answering)
            return false;
    }
    return true;
}

static uint64_t at_least_one(uint64_t units)
{
    return units > 0 ? units : 1;
}

/* The smallest slack of the links that rule. */
static void update_slack(struct weir_tally *tally, uint32_t slot)
{
    if (!tally->slack)
        return;
    uint64_t count = weir_table_count(tally->table, slot);
    int64_t report_in = (int64_t)WEIR_COUNT_FAR;
    int64_t stop_in = (int64_t)WEIR_COUNT_FAR;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_link *link = &tally->link[i];
        const struct weir_tally_cell *cell = &link->cells[slot];
        if (!rules(tally, link))
            continue;
        uint64_t reported = link->unanswered ? cell->sent : cell->acked;
        if (!cell->told && cell->counted) {
            /* No slack is known: the next unit is worth a report. */
            int64_t report = (int64_t)(reported + 1 - count);
            report_in = report < report_in ? report : report_in;
        }
        if (!cell->told || cell->slack >= WEIR_COUNT_FAR / 4)
            continue;
        int64_t report = (int64_t)(reported + at_least_one(cell->slack) -
                                   count);
        int64_t stop = (int64_t)(cell->acked +
                                 at_least_one(2 * cell->slack) - count);
        report_in = report < report_in ? report : report_in;
        stop_in = stop < stop_in ? stop : stop_in;
    }
    weir_table_set_slack(tally->table, slot, count + (uint64_t)report_in,
                         count + (uint64_t)stop_in);
}

static void update_all_slack(struct weir_tally *tally)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = bit_next(tally->told, 0, end); slot < end;
         slot = bit_next(tally->told, slot + 1, end))
        update_slack(tally, slot);
}

void weir_tally_listen(struct weir_tally *tally, weir_duration patience,
                       weir_instant now)
{
    bool changed = false;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *link = &tally->link[i];
        bool answering = link->up && (!link->unanswered ||
                                      now - link->answered_at < patience);
        changed |= answering != link->answering;
        link->answering = answering;
    }
    if (changed)
        update_all_slack(tally);
}

/* ---- Sessions ---- */

/* The bucket without the counts above 'base', as wire units. */
static int64_t fill_without(const struct weir_slot_view *view, uint64_t base)
{
    if (view->unlimited)
        return 0;
    unsigned frac = view->bucket.leak.frac;
    int64_t unseen = (int64_t)(view->count - base);
    int64_t fill = view->fill - (int64_t)((uint64_t)unseen << frac);
    if (fill <= 0)
        return 0;
    return weir_rescale(fill, frac, WEIR_FILL_FRAC);
}

/* Whether some root has spoken of the slot since. */
static bool told_since(const struct weir_tally *tally, uint32_t slot,
                       weir_instant since)
{
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (cell->told && cell->fill_at >= since)
            return true;
    }
    return false;
}

/* Every slot that holds something is announced to a root that was just born,
 * with what it holds now. */
static void announce_all(struct weir_tally *tally,
                         struct weir_tally_link *link,
                         weir_instant root_born, weir_instant now)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = 0; slot < end; slot++) {
        struct weir_tally_cell *cell = &link->cells[slot];
        cell->begun = false;
        cell->told = false;
        struct weir_slot_view view;
        weir_table_view(tally->table, slot, &view, now);
        if (view.state <= WEIR_SLOT_PLACEHOLDER || view.fill <= 0)
            continue;
        cell_of(tally, link, slot, &view);
        /* All that it never saw was made before it was there. */
        cell->mark = view.count;
        link->mark_at = now;
        cell->adopt = true;
        cell->witnessed = told_since(tally, slot, root_born);
        cell->fill = fill_without(&view, cell->acked);
        cell->fill_at = now;
        bit_set(link->dirty, slot);
    }
}

/* Until a slot is announced in the new session the root can't speak of it,
 * and what it said is getting old: the next unit is worth a report. */
static void forget_told(struct weir_tally *tally,
                        struct weir_tally_link *link)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = bit_next(tally->told, 0, end); slot < end;
         slot = bit_next(tally->told, slot + 1, end))
        link->cells[slot].told = false;
}

void weir_tally_meet(struct weir_tally *tally, uint32_t index)
{
    tally->link[index].meeting = true;
}

void weir_tally_begin(struct weir_tally *tally, uint32_t index,
                      uint64_t session, bool same_root,
                      weir_instant root_born, weir_instant now)
{
    struct weir_tally_link *link = &tally->link[index];
    /* What was unanswered may have been taken or not; the announcement of
     * the absolute 'acked' makes both come out right. */
    for (uint32_t i = 0; i < link->outstanding_count; i++)
        bit_set(link->dirty, link->outstanding[i]);
    link->outstanding_count = 0;
    link->unanswered = false;
    link->number = 0;
    link->stamp = 0;
    link->session = session;
    link->meeting = false;
    link->up = true;
    link->answering = true;
    if (same_root)
        forget_told(tally, link);
    else
        announce_all(tally, link, root_born, now);
    if (link->answered_at == 0)
        link->answered_at = now;
    update_all_slack(tally);
}

void weir_tally_end(struct weir_tally *tally, uint32_t index)
{
    struct weir_tally_link *link = &tally->link[index];
    link->meeting = false;
    if (!link->up)
        return;
    link->up = false;
    link->answering = false;
    update_all_slack(tally);
}

/* ---- Reports ---- */

bool weir_tally_pending(const struct weir_tally *tally, uint32_t index)
{
    const struct weir_tally_link *link = &tally->link[index];
    uint32_t end = weir_table_used(tally->table);
    return link->outstanding_count > 0 ||
           bit_next(link->dirty, 0, end) < end;
}

static bool announced(const struct weir_tally_link *link,
                      const struct weir_tally_cell *cell)
{
    return cell->session == (uint32_t)link->session;
}

/* What a newborn root is to take over, leaked since it was drawn. */
static int64_t adopted_fill(const struct weir_tally_cell *cell,
                            const struct weir_slot_view *view,
                            weir_instant now)
{
    if (!cell->adopt)
        return 0;
    unsigned frac = view->bucket.leak.frac;
    uint64_t leaked = weir_leaked(view->bucket.leak, now - cell->fill_at);
    int64_t fill = cell->fill -
                   weir_rescale((int64_t)leaked, frac, WEIR_FILL_FRAC);
    return fill > 0 ? fill : 0;
}

static void write_announce(struct weir_tally *tally, size_t i, uint32_t slot,
                           const struct weir_slot_view *view,
                           const struct weir_tally_cell *cell,
                           weir_instant now)
{
    char *name = tally->names + i * (WEIR_NAME_MAX + 1);
    size_t len = weir_table_name(tally->table, slot, name);
    tally->announces[i] = (struct weir_announce){
        .slot = slot,
        .name = { name, len },
        .created = view->created,
        .base = cell->acked,
        .refused = cell->refused_acked,
        .fill = adopted_fill(cell, view, now),
        .witnessed = cell->adopt && cell->witnessed,
    };
}

/* Late: what was marked when an interval passed unheard, and has drained from
 * our own bucket since or is more than a full one. (What is still in it is in
 * everybody's.) */
static int64_t late_of(const struct weir_tally_link *link,
                       const struct weir_tally_cell *cell,
                       const struct weir_slot_view *view)
{
    int64_t passed = (int64_t)(cell->sent - cell->acked);
    if (link->mark_at == 0 || passed <= 0)
        return 0;
    int64_t late = (int64_t)(cell->mark - cell->acked);
    int64_t high = view->bucket.high > 0 ? view->bucket.high : 0;
    int64_t fill = view->fill < high ? view->fill : high;
    uint64_t one = (uint64_t)1 << view->bucket.leak.frac;
    int64_t held = (int64_t)(((uint64_t)fill + one - 1) >>
                             view->bucket.leak.frac);
    int64_t drained = passed - held;
    late = late < drained ? late : drained;
    return late > 0 ? late : 0;
}

/* Adds one slot; 'again' repeats what was sent. False: no more room. */
static bool report_slot(struct weir_tally *tally,
                        struct weir_tally_link *link, uint32_t slot,
                        bool again, struct weir_report *out,
                        weir_instant now)
{
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    if (view.state != WEIR_SLOT_QUOTA && view.state != WEIR_SLOT_INSTANCE)
        return true;
    struct weir_tally_cell *cell =
        again ? &link->cells[slot] : cell_of(tally, link, slot, &view);
    bool announce = !announced(link, cell);
    if (again && announce && cell->generation != view.generation)
        return true; /* the root never heard of that life: nothing is lost,
                      * it was settled when it ended */
    if (out->count == WEIR_REPORT_COUNTS_MAX ||
        (announce && out->announce_count == WEIR_REPORT_ANNOUNCES_MAX))
        return false;
    if (!again) {
        cell->sent = view.count;
        cell->counted = view.sharing == WEIR_COUNTED && !view.unlimited;
        cell->refused_sent = weir_table_refused(tally->table, slot);
        link->outstanding[link->outstanding_count++] = slot;
    }
    if (announce)
        write_announce(tally, out->announce_count++, slot, &view, cell,
                       now);
    tally->counts[out->count++] = (struct weir_count){
        .slot = slot,
        .passed = (int64_t)(cell->sent - cell->acked),
        .refused = cell->refused_sent - cell->refused_acked,
        .late = late_of(link, cell, &view),
    };
    return true;
}

static void report_fresh(struct weir_tally *tally,
                         struct weir_tally_link *link,
                         struct weir_report *out, weir_instant now)
{
    uint32_t end = weir_table_used(tally->table);
    link->outstanding_count = 0;
    for (uint32_t slot = bit_next(link->dirty, 0, end); slot < end;
         slot = bit_next(link->dirty, slot + 1, end)) {
        if (!report_slot(tally, link, slot, false, out, now))
            return;
        bit_clear(link->dirty, slot);
    }
}

static void report_again(struct weir_tally *tally,
                         struct weir_tally_link *link,
                         struct weir_report *out, weir_instant now)
{
    for (uint32_t i = 0; i < link->outstanding_count; i++)
        report_slot(tally, link, link->outstanding[i], true, out, now);
}

void weir_tally_report(struct weir_tally *tally, uint32_t index,
                       struct weir_report *out, weir_instant now)
{
    struct weir_tally_link *link = &tally->link[index];
    *out = (struct weir_report){ .announces = tally->announces,
                                 .counts = tally->counts };
    if (link->unanswered) {
        report_again(tally, link, out, now);
    } else {
        link->number++;
        link->unanswered = true;
        report_fresh(tally, link, out, now);
        for (uint32_t i = 0; i < link->outstanding_count; i++)
            update_slack(tally, link->outstanding[i]);
    }
    out->number = link->number;
    if (link->mark_at != 0) {
        out->late_from = now - link->answered_at;
        out->late_to = now - link->mark_at;
    }
}

/* ---- Answers ---- */

/* The slot is settled when every link that is up, or about to be, has answered
 * for it. */
static void settle(struct weir_tally *tally, uint32_t slot, uint64_t total)
{
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_link *link = &tally->link[i];
        const struct weir_tally_cell *cell = &link->cells[slot];
        if (!link->up && !link->meeting)
            continue;
        if (!cell->begun || (int64_t)(cell->acked - total) < 0)
            return;
    }
    weir_table_set_settled(tally->table, slot, total);
}

static bool listed(const struct weir_fills *fills, uint32_t slot)
{
    for (size_t i = 0; i < fills->unknown_count; i++) {
        if (fills->unknown[i] == slot)
            return true;
    }
    return false;
}

static void acknowledge(struct weir_tally *tally,
                        struct weir_tally_link *link,
                        const struct weir_fills *fills, weir_instant now)
{
    for (uint32_t i = 0; i < link->outstanding_count; i++) {
        uint32_t slot = link->outstanding[i];
        struct weir_tally_cell *cell = &link->cells[slot];
        if (listed(fills, slot)) {
            /* The root doesn't rule it (yet): said again next time. */
            cell->session = (uint32_t)link->session - 1;
            bit_set(link->dirty, slot);
            continue;
        }
        cell->session = (uint32_t)link->session;
        cell->adopt = false;
        cell->acked = cell->sent;
        cell->refused_acked = cell->refused_sent;
        settle(tally, slot, cell->sent);
    }
    link->outstanding_count = 0;
    link->unanswered = false;
    link->answered_at = now;
    /* The marks of those that are to be said again still hold. */
    if (fills->unknown_count == 0)
        link->mark_at = 0;
}

static float smoothed(float before, float sample, weir_duration span)
{
    float weight = (float)span / (float)(span + RATE_SPAN);
    return before + (sample - before) * weight;
}

/* Learns what others add from how the bucket moved beyond our own counts. */
static void learn_rates(struct weir_tally *tally,
                        struct weir_tally_cell *cell,
                        const struct weir_slot_view *view, int64_t fill,
                        weir_instant now)
{
    weir_duration span = now - cell->fill_at;
    if (!cell->told || span < WEIR_MILLISECOND || view->unlimited)
        return;
    unsigned frac = view->bucket.leak.frac;
    float unit = (float)((uint64_t)1 << frac);
    float leaked = (float)weir_leaked(view->bucket.leak, span) / unit;
    float own = (float)(int64_t)(cell->acked - cell->fill_total);
    float moved = (float)(fill - cell->fill) / WEIR_FILL_ONE;
    float others = moved + leaked - own;
    /* An empty bucket hides what leaked through it. */
    if (fill <= 0 || others < 0)
        others = 0;
    float seconds = (float)span / (float)WEIR_SECOND;
    tally->predicted = tally->predicted * 0.99f +
                       cell->others_per_s * seconds;
    tally->observed = tally->observed * 0.99f + others;
    cell->others_per_s =
        smoothed(cell->others_per_s, others / seconds, span);
    cell->own_per_s = smoothed(cell->own_per_s, own / seconds, span);
}

/* A told fill brought to 'now', scaled; may be below 0. */
static int64_t told_fill(const struct weir_tally_cell *cell,
                         const struct weir_slot_view *view, weir_instant now)
{
    unsigned frac = view->bucket.leak.frac;
    int64_t fill = weir_rescale(cell->fill, WEIR_FILL_FRAC, frac);
    uint64_t leaked = weir_leaked(view->bucket.leak, now - cell->fill_at);
    uint64_t own = (view->count - cell->fill_total) << frac;
    return (int64_t)((uint64_t)fill + own - leaked);
}

/* The largest over the links. */
static void update_fill(struct weir_tally *tally, uint32_t slot,
                        const struct weir_slot_view *view, weir_instant now)
{
    const struct weir_tally_cell *most = NULL;
    int64_t most_fill = 0;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (!cell->told || cell->generation != view->generation)
            continue;
        int64_t fill = told_fill(cell, view, now);
        if (most && fill <= most_fill)
            continue;
        most = cell;
        most_fill = fill;
    }
    if (most)
        weir_table_set_fill(tally->table, slot, most_fill, view->count, now);
}

static void take_fill(struct weir_tally *tally, struct weir_tally_link *link,
                      const struct weir_fill *told, weir_instant now)
{
    struct weir_tally_cell *cell = &link->cells[told->slot];
    struct weir_slot_view view;
    weir_table_view(tally->table, told->slot, &view, now);
    /* Until the announcement of this life is answered, the root may speak of
     * a former owner of the slot. */
    if (!cell->begun || !announced(link, cell) ||
        cell->generation != view.generation || view.sharing != WEIR_COUNTED)
        return;
    learn_rates(tally, cell, &view, told->fill, now);
    cell->fill = told->fill;
    cell->fill_total = cell->acked;
    cell->fill_at = now;
    cell->slack = told->slack;
    cell->told = true;
    bit_set(tally->told, told->slot);
    if (!view.unlimited)
        update_fill(tally, told->slot, &view, now);
    update_slack(tally, told->slot);
}

int weir_tally_fills(struct weir_tally *tally, uint32_t index,
                     const struct weir_fills *fills, weir_instant now)
{
    struct weir_tally_link *link = &tally->link[index];
    if (fills->number > link->number)
        return WEIR_EPROTOCOL;
    if (link->unanswered && fills->number == link->number) {
        if (!fills->answer)
            return WEIR_OK; /* it overtook the answer; others will come */
        acknowledge(tally, link, fills, now);
    } else if (fills->stamp <= link->stamp ||
               fills->number + link->unanswered < link->number) {
        return WEIR_OK; /* doubled, or older than what was answered */
    }
    if (fills->stamp > link->stamp)
        link->stamp = fills->stamp;
    if (fills->limiters > 0)
        tally->limiters = fills->limiters;
    for (size_t i = 0; i < fills->count; i++) {
        if (fills->fills[i].slot >= weir_table_used(tally->table))
            return WEIR_EPROTOCOL;
        take_fill(tally, link, &fills->fills[i], now);
    }
    return WEIR_OK;
}

/* ---- What others presumably add ---- */

void weir_tally_set_slack(struct weir_tally *tally, bool slack,
                          weir_instant now)
{
    if (tally->slack == slack)
        return;
    tally->slack = slack;
    weir_tally_stale(tally, !slack, now);
}

void weir_tally_stale(struct weir_tally *tally, bool stale, weir_instant now)
{
    tally->extrapolated_at = now;
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = bit_next(tally->told, 0, end); slot < end;
         slot = bit_next(tally->told, slot + 1, end)) {
        uint64_t count = weir_table_count(tally->table, slot);
        tally->share_mark[slot] = count;
        if (stale)
            weir_table_set_slack(tally->table, slot, STOP_NONE(count),
                                 STOP_NONE(count));
        else
            update_slack(tally, slot);
    }
}

/* Our part of a quota's use, at least an equal one. */
static float part_of(const struct weir_tally *tally, uint32_t slot)
{
    float own = 0, others = 0;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (!cell->told || cell->own_per_s < own)
            continue;
        own = cell->own_per_s;
        others = cell->others_per_s;
    }
    float least = 1.0f / (float)(tally->limiters ? tally->limiters : 1);
    float part = own + others > 0 ? own / (own + others) : least;
    return part > least ? part : least;
}

static float others_of(const struct weir_tally *tally, uint32_t slot)
{
    float most = 0;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (cell->told && cell->others_per_s > most)
            most = cell->others_per_s;
    }
    return most;
}

static void extrapolate_slot(struct weir_tally *tally, uint32_t slot,
                             bool share, float seconds, weir_instant now)
{
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    uint64_t own = view.count - tally->share_mark[slot];
    tally->share_mark[slot] = view.count;
    if (view.sharing != WEIR_COUNTED || view.unlimited)
        return;
    float units = 0;
    if (!share)
        units = others_of(tally, slot) * tally->ratio * seconds;
    else if (view.on_stale == WEIR_STALE_SHARE && (int64_t)own > 0)
        units = (float)own * (1.0f / part_of(tally, slot) - 1.0f);
    float unit = (float)((uint64_t)1 << view.bucket.leak.frac);
    if (units > 0 && units * unit < (float)WEIR_SCALED_MAX / 4)
        weir_table_add_others(tally->table, slot, (int64_t)(units * unit));
}

void weir_tally_extrapolate(struct weir_tally *tally, bool share,
                            weir_instant now)
{
    weir_duration span = now - tally->extrapolated_at;
    tally->extrapolated_at = now;
    float seconds = (float)span / (float)WEIR_SECOND;
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = bit_next(tally->told, 0, end); slot < end;
         slot = bit_next(tally->told, slot + 1, end))
        extrapolate_slot(tally, slot, share, seconds, now);
}

void weir_tally_disown(struct weir_tally *tally)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = 0; slot < end; slot++)
        weir_table_set_settled(tally->table, slot,
                               weir_table_count(tally->table, slot));
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *link = &tally->link[i];
        for (uint32_t slot = 0; slot < end; slot++)
            link->cells[slot] = (struct weir_tally_cell){ 0 };
        link->outstanding_count = 0;
        link->unanswered = false;
        link->meeting = false;
        link->up = false;
        link->answering = false;
        link->answered_at = 0;
        link->mark_at = 0;
    }
}
