/* SPDX-License-Identifier: MIT
 * core/counted/tally.c - a limiter's reports to each root, and the use of the
 * answers. change.
 *
 * The state of one slot on one link:
 *
 *     0 ........ acked ........ sent ........ count
 *       the root has  |  in the      | not reported
 *       answered      |  unanswered  | yet
 *                     |  report      |
 *
 * 'acked' moves to 'sent' when the answer comes. The root's fill F holds our
 * total A (= acked), so the bucket here is F - A + count, leaking since F came:
 * units counted meanwhile are neither lost nor added twice. With several roots
 * the largest such fill is used; a fill of a link that is down only while no
 * link that is up has sent one.
 *
 * Stops. With each count a root gets our pace, and goes on adding at that pace
 * to A (merge.c); the sum by now is P. The root wants a report when our count
 * differs from A + P by its slack s, either way, and lets us count up to A + P
 * + 2s (at least one request). A take finds the upper bound (the table's
 * report_at, moved on when it comes early, because P grows). Below, no take
 * happens, so slots with a pace are looked at some times a second, and at each
 * interval's end. For the stop, P begins when the answer came; for the report,
 * when the report was sent: while messages travel the stop is rather too early.
 * P ends when no answer came for as long as a pace is good. There is no pace,
 * and P is 0, if an interval has less than a unit, or the slack lasts for some
 * intervals.
 *
 * The smallest stop of the links that answer is used. A link that has been
 * silent for a while is used only if all are silent: the other roots see all
 * counts too. In the same way an overloaded root with a report backoff is used
 * only if all have one. When the slack of one slow root of three was used,
 * limiters that had used it up waited up to a second for its answer, all
 * together, while two roots were idle: a second's deviation was 0.18 of the
 * limit, and is 0.02 (weir-roots, 10 seeds). Using the root with the least
 * backoff was tried too: if all are overloaded, two limiters may use two roots,
 * neither of which holds the counts of both. The same may happen, for up to one
 * backoff, to a limiter that reaches only a root with a backoff and one that
 * reaches others too: they have no root in common, as if links were cut. A root
 * is used for a slot only if it has sent a fill in this session: a link that is
 * up without quotas is not used. While roots are connected and none answers,
 * the stops hold until the node declares the table stale; with no root
 * connected, decisions use our own counts.
 *
 * Between two fills the bucket also grows by the pace of all others, which the
 * root sends: it grows so there too.
 *
 * Units in flight. The count of an in-flight counter is the number of units
 * that its permits hold: it sinks as often as it grows. All of the above holds
 * for it, without a pace. A released permit causes a report when the count has
 * sunk by the slack (table_permit.c), or others would wait for units that are
 * free. Each session reports the count anew, since the root may have given it
 * back meanwhile.
 *
 * A session's start. The same root, back again, remembers its merged totals:
 * counts go on from 'acked'. A cold root knows nothing: we send each bucket as
 * we know it at that moment, without the counts that no root has answered
 * ('settled' in the table); those follow as counts. The fills of other limiters
 * hold both the units we reported and those that roots presume of us, so a cold
 * root is sent the difference from both. A limiter that meets it later than
 * others reports whether another root was its witness: if so, the units that
 * others counted since are in its fill. A slot used later is announced with an
 * empty bucket: by then the root gets its counts from all limiters, and a fill
 * would hold counts that another limiter is about to report, and they would
 * count twice. */

#include "core/counted/tally.h"

#include <string.h>

#include "core/counted/bits.h"
#include "core/counted/tally_parts.h"

#define STOP_NONE(count) ((count) + WEIR_COUNT_FAR)
#define SLACK_NONE ((uint64_t)1 << 61) /* from here on: no limit is near */

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

static size_t at_most(size_t value, size_t most)
{
    return value < most ? value : most;
}

static size_t lay_out(struct weir_tally *tally, char *block, uint32_t slots,
                      uint32_t links, bool region)
{
    size_t at = 0;
    size_t words = weir_bit_words(slots);
    /* A report has a slot once. */
    size_t announces = at_most(slots, WEIR_REPORT_ANNOUNCES_MAX);
    size_t counts = at_most(slots, WEIR_REPORT_COUNTS_MAX);
    tally->fresh = carve(block, &at, words * sizeof(uint64_t));
    tally->recent = carve(block, &at, words * sizeof(uint64_t));
    tally->told = carve(block, &at, words * sizeof(uint64_t));
    tally->share_mark = carve(block, &at, slots * sizeof(uint64_t));
    tally->pace = carve(block, &at, slots * sizeof(*tally->pace));
    tally->paced = carve(block, &at, words * sizeof(uint64_t));
    tally->hold = carve(block, &at, slots * sizeof(*tally->hold));
    tally->handed = carve(block, &at, slots * sizeof(*tally->handed));
    if (region) {
        tally->carried = carve(block, &at, slots * sizeof(*tally->carried));
        tally->share_whole = carve(block, &at, slots * sizeof(uint64_t));
    }
    tally->announces =
        carve(block, &at, announces * sizeof(struct weir_announce));
    tally->names = carve(block, &at, announces * (WEIR_NAME_MAX + 1));
    tally->counts = carve(block, &at, counts * sizeof(struct weir_count));
    for (uint32_t i = 0; i < links; i++) {
        struct weir_tally_link *link = &tally->link[i];
        link->dirty = carve(block, &at, words * sizeof(uint64_t));
        link->outstanding = carve(block, &at, counts * sizeof(uint32_t));
        link->cells = carve(block, &at, slots * sizeof(struct weir_tally_cell));
    }
    return at;
}

size_t weir_tally_size(uint32_t slots, uint32_t links, bool region)
{
    struct weir_tally shape;
    return lay_out(&shape, NULL, slots, links, region);
}

void weir_tally_init(struct weir_tally *tally, void *block,
                     struct weir_table *table, uint32_t slots, uint32_t links,
                     bool region, weir_instant now)
{
    *tally = (struct weir_tally){ .table = table,
                                  .slots = slots,
                                  .link_count = links,
                                  .carrier = WEIR_CARRIER_NONE,
                                  .limiters = 1,
                                  .interval = WEIR_SECOND,
                                  .extrapolated_at = now };
    lay_out(tally, block, slots, links, region);
    for (uint32_t i = 0; i < links; i++)
        tally->link[i].acked_at = now;
}

/* ---- Collecting ---- */

struct weir_tally_cell *weir_tally_cell_of(struct weir_tally *tally,
                                           struct weir_tally_link *link,
                                           uint32_t slot,
                                           const struct weir_slot_view *view)
{
    struct weir_tally_cell *cell = &link->cells[slot];
    /* A recreated quota drops the previous one's units in flight. */
    bool anew = view->inflight && cell->created != (uint32_t)view->created;
    if (cell->begun && cell->generation == view->generation &&
        cell->inflight == view->inflight && !anew)
        return cell;
    uint64_t settled = weir_table_settled(tally->table, slot);
    *cell = (struct weir_tally_cell){
        .acked = settled,
        .sent = settled,
        .prompt = settled,
        .refused_acked = view->refused,
        .refused_sent = view->refused,
        .created = (uint32_t)view->created,
        .generation = view->generation,
        .inflight = view->inflight,
        .sank = tally->inherited,
        .begun = true,
    };
    return cell;
}

/* Cells begin when their slot is first used, on every link, connected or not: a
 * root that was away gets the counts from there on. */
static void collect_slot(struct weir_tally *tally, uint32_t slot,
                         weir_instant now)
{
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    if (view.state <= WEIR_SLOT_MAKING)
        return;
    if (view.sharing != WEIR_COUNTED &&
        weir_bit_next(tally->told, slot, slot + 1) == slot)
        weir_tally_unshare(tally, slot, now);
    weir_tally_handed_of(tally, slot, view.generation, view.inflight);
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *link = &tally->link[i];
        weir_tally_cell_of(tally, link, slot, &view);
        weir_bit_set(link->dirty, slot);
        link->missed |= !link->up;
    }
    /* Without links every count is settled at once. */
    if (tally->link_count == 0)
        weir_table_set_settled(tally->table, slot, view.count);
}

void weir_tally_collect(struct weir_tally *tally, bool all, weir_instant now)
{
    uint32_t end = weir_table_used(tally->table);
    memset(tally->fresh, 0, weir_bit_words(end) * sizeof(uint64_t));
    weir_table_collect(tally->table, tally->fresh);
    end = weir_table_used(tally->table);
    size_t words = weir_bit_words(end);
    for (size_t i = 0; i < words; i++) {
        tally->recent[i] |= tally->fresh[i];
        if (!all)
            continue;
        tally->fresh[i] = tally->recent[i] | tally->paced[i];
        tally->recent[i] = 0;
    }
    for (uint32_t slot = weir_bit_next(tally->fresh, 0, end); slot < end;
         slot = weir_bit_next(tally->fresh, slot + 1, end))
        collect_slot(tally, slot, now);
}

/* ---- Stops ---- */

/* Whether the link is used for the slot. A silent link, or one with a report
 * backoff, is not if a better one has sent a fill of the slot. */
static bool rules(const struct weir_tally *tally,
                  const struct weir_tally_link *link, uint32_t slot)
{
    if (!link->up)
        return false;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_link *other = &tally->link[i];
        if (!other->up || !other->answering || !other->cells[slot].told)
            continue;
        if (!link->answering ||
            (link->report_backoff > 0 && other->report_backoff == 0))
            return false;
    }
    return true;
}

/* Units of a pace since 'then', 1/1024 units. */
static uint64_t paced(const struct weir_tally *tally, uint64_t pace,
                      weir_instant then, weir_instant now)
{
    weir_duration age = weir_age(then, now);
    weir_duration most = weir_tally_pace_good(tally);
    return (uint64_t)(((weir_u128)pace * (age < most ? age : most)) >>
                      (WEIR_PACE_SHIFT - WEIR_FILL_FRAC));
}

/* The same, plus the units that were reported as ahead then. */
static uint64_t presumed(const struct weir_tally *tally,
                         const struct weir_tally_cell *cell, weir_instant then,
                         weir_instant now)
{
    return cell->ahead * WEIR_FILL_ONE + paced(tally, cell->pace, then, now);
}

static uint64_t units_above(uint64_t fine)
{
    return (fine + WEIR_FILL_ONE - 1) / WEIR_FILL_ONE;
}

static uint64_t at_least_one(uint64_t fine)
{
    return fine > WEIR_FILL_ONE ? fine : WEIR_FILL_ONE;
}

/* The count at which to report: off by the slack from the count that the root
 * presumes. */
static uint64_t report_at(const struct weir_tally *tally,
                          const struct weir_tally_link *link,
                          const struct weir_tally_cell *cell, weir_instant now)
{
    uint64_t slack = at_least_one(cell->slack);
    if (link->unanswered)
        return cell->sent + cell->ahead_sent +
               units_above(paced(tally, cell->pace_sent, link->sent_at, now) +
                           slack);
    return cell->acked +
           units_above(presumed(tally, cell, cell->pace_at, now) + slack);
}

/* The count to stop at: off by twice the slack from the least count that the
 * root can presume, whichever messages have arrived. */
static uint64_t stop_at(const struct weir_tally *tally,
                        const struct weir_tally_link *link,
                        const struct weir_tally_cell *cell, weir_instant now)
{
    uint64_t from = cell->acked;
    uint64_t ahead = presumed(tally, cell, cell->pace_held, now);
    /* After this silence the root presumes nothing any more. */
    if (weir_age(cell->pace_at, now) >= weir_tally_pace_good(tally))
        ahead = 0;
    if (link->unanswered && (int64_t)(cell->sent + cell->ahead_sent - from) <
                                (int64_t)(ahead / WEIR_FILL_ONE)) {
        from = cell->sent + cell->ahead_sent;
        ahead = 0;
    }
    return from + units_above(ahead + at_least_one(2 * cell->slack));
}

static void note_sooner(uint64_t at, uint64_t count, int64_t *in)
{
    int64_t distance = (int64_t)(at - count);
    if (distance < *in)
        *in = distance;
}

/* Whether the slot is decided without any root. */
static bool is_stale(struct weir_tally *tally, uint32_t slot, weir_instant now)
{
    if (!weir_table_is_stale(tally->table))
        return false;
    if (!tally->share_above)
        return true;
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    return view.on_stale != WEIR_STALE_SHARE;
}

struct soonest {
    int64_t report_in, stop_in; /* units from the count */
};

/* The soonest of the links that are used. */
static struct soonest soonest_of(const struct weir_tally *tally, uint32_t slot,
                                 uint64_t count, weir_instant now)
{
    struct soonest in = { (int64_t)WEIR_COUNT_FAR, (int64_t)WEIR_COUNT_FAR };
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_link *link = &tally->link[i];
        const struct weir_tally_cell *cell = &link->cells[slot];
        if (!rules(tally, link, slot))
            continue;
        uint64_t reported = link->unanswered ? cell->sent : cell->acked;
        /* While no slack is known the next unit causes a report. */
        if (!cell->told && cell->counted)
            note_sooner(reported + 1, count, &in.report_in);
        if (!cell->told || cell->slack >= SLACK_NONE)
            continue;
        note_sooner(report_at(tally, link, cell, now), count, &in.report_in);
        note_sooner(stop_at(tally, link, cell, now), count, &in.stop_in);
    }
    return in;
}

void weir_tally_update_slack(struct weir_tally *tally, uint32_t slot,
                             weir_instant now)
{
    if (!tally->slack || is_stale(tally, slot, now))
        return;
    uint64_t count = weir_table_count(tally->table, slot);
    struct soonest in = soonest_of(tally, slot, count, now);
    weir_table_set_slack(tally->table, slot, count + (uint64_t)in.report_in,
                         count + (uint64_t)in.stop_in);
}

/* Units that the slot may count until it stops, 1/1024 units. */
static uint64_t allowance(struct weir_tally *tally, uint32_t slot,
                          uint64_t count, weir_instant now)
{
    if (!tally->slack || is_stale(tally, slot, now))
        return UINT64_MAX;
    int64_t in = soonest_of(tally, slot, count, now).stop_in;
    if (in >= (int64_t)SLACK_NONE / WEIR_FILL_ONE)
        return UINT64_MAX;
    return in > 0 ? (uint64_t)in * WEIR_FILL_ONE : 0;
}

static void update_all_slack(struct weir_tally *tally, weir_instant now)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = weir_bit_next(tally->told, 0, end); slot < end;
         slot = weir_bit_next(tally->told, slot + 1, end))
        weir_tally_update_slack(tally, slot, now);
}

/* Whether the slot needs a report at once on the link. */
static bool deviates(const struct weir_tally *tally,
                     const struct weir_tally_link *link,
                     const struct weir_tally_cell *cell, uint64_t count,
                     weir_instant now)
{
    if (!link->up || link->unanswered || !cell->begun)
        return false;
    if (!cell->told)
        return cell->counted ? count != cell->acked
                             : !weir_tally_announced(link, cell);
    weir_i128 off = (weir_i128)(int64_t)(count - cell->acked) * WEIR_FILL_ONE -
                    presumed(tally, cell, cell->pace_at, now);
    return (off < 0 ? -off : off) >= at_least_one(cell->slack);
}

/* A received fill brought to 'now', scaled; may be below 0. */
static int64_t told_fill(const struct weir_tally *tally,
                         const struct weir_tally_cell *cell,
                         const struct weir_slot_view *view, weir_instant now)
{
    unsigned frac = view->bucket.leak.frac;
    int64_t others =
        (int64_t)paced(tally, cell->others_pace, cell->fill_at, now);
    int64_t fill = weir_rescale(cell->fill + others, WEIR_FILL_FRAC, frac);
    weir_duration age = weir_age(cell->fill_at, now);
    uint64_t leaked = weir_leaked(view->bucket.leak, age);
    uint64_t own = (view->count - cell->fill_total) << frac;
    return (int64_t)((uint64_t)fill + own - leaked);
}

/* The cell with the largest received fill; NULL: none. A link that is up is
 * preferred: a fill of a link that is down holds all units counted since, and
 * another root that gets those as late counts takes at most a full bucket. */
static const struct weir_tally_cell *most_told(
    struct weir_tally *tally, uint32_t slot, const struct weir_slot_view *view,
    int64_t *out_fill, weir_instant now)
{
    const struct weir_tally_cell *most = NULL;
    bool most_up = false;
    int64_t most_fill = 0;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        bool up = tally->link[i].up;
        bool same = cell->generation == view->generation &&
                    cell->inflight == view->inflight;
        if (!cell->told || !same)
            continue;
        int64_t fill = told_fill(tally, cell, view, now);
        if (most && (up == most_up ? fill <= most_fill : most_up))
            continue;
        most = cell;
        most_up = up;
        most_fill = fill;
    }
    *out_fill = most_fill;
    return most;
}

static void update_fill(struct weir_tally *tally, uint32_t slot,
                        const struct weir_slot_view *view, weir_instant now)
{
    int64_t fill;
    if (most_told(tally, slot, view, &fill, now))
        weir_table_set_fill(tally->table, slot, fill, view->count, now);
}

bool weir_tally_above(struct weir_tally *tally, struct weir_ref ref,
                      struct weir_above *out, weir_instant now)
{
    struct weir_slot_view view;
    weir_table_view(tally->table, ref.slot, &view, now);
    if (view.generation != ref.generation || view.sharing != WEIR_COUNTED)
        return false;
    int64_t fill;
    const struct weir_tally_cell *cell =
        most_told(tally, ref.slot, &view, &fill, now);
    if (!cell)
        return false;
    bool stale = is_stale(tally, ref.slot, now);
    if (stale)
        fill = view.fill < view.bucket.high ? view.fill : view.bucket.high;
    bool paced =
        !stale && weir_age(cell->fill_at, now) < weir_tally_pace_good(tally);
    *out = (struct weir_above){
        .bucket = view.bucket,
        .created = view.created,
        .fill = fill > 0 ? fill : 0,
        .pace = paced ? cell->others_pace : 0,
        .allowance = allowance(tally, ref.slot, view.count, now),
    };
    return true;
}

/* Raises the bucket by the presumed counts of others. It is never lowered: it
 * may have run empty since the fill came, and been filled again. */
static void follow_others(struct weir_tally *tally, uint32_t slot,
                          const struct weir_slot_view *view, weir_instant now)
{
    int64_t fill;
    if (view->sharing == WEIR_COUNTED && !view->unlimited &&
        !is_stale(tally, slot, now) &&
        most_told(tally, slot, view, &fill, now) && fill > view->fill)
        weir_table_set_fill(tally->table, slot, fill, view->count, now);
}

/* Whether the presumed counts, of us or of others, grow. */
static bool moves(const struct weir_tally *tally,
                  const struct weir_tally_link *link,
                  const struct weir_tally_cell *cell, weir_instant now)
{
    return cell->pace != 0 || (link->unanswered && cell->pace_sent != 0) ||
           (cell->others_pace != 0 &&
            weir_age(cell->fill_at, now) < weir_tally_pace_good(tally));
}

static uint32_t look_at(struct weir_tally *tally, uint32_t slot,
                        weir_instant now)
{
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    uint32_t urgent = 0;
    bool paced = false;
    /* A slot that was removed is in no report, and has no pace. */
    uint32_t links = weir_tally_is_told_of(&view) ? tally->link_count : 0;
    for (uint32_t i = 0; i < links; i++) {
        struct weir_tally_link *link = &tally->link[i];
        const struct weir_tally_cell *cell = &link->cells[slot];
        paced |= link->up && moves(tally, link, cell, now);
        if (!deviates(tally, link, cell, view.count, now))
            continue;
        urgent |= 1u << i;
        weir_bit_set(link->dirty, slot);
    }
    if (paced)
        follow_others(tally, slot, &view, now);
    else
        weir_bit_clear(tally->paced, slot);
    weir_tally_update_slack(tally, slot, now);
    return urgent;
}

uint32_t weir_tally_look(struct weir_tally *tally, weir_instant now)
{
    uint32_t end = weir_table_used(tally->table);
    uint32_t urgent = 0;
    for (uint32_t slot = 0; slot < end; slot += 64) {
        uint64_t word = tally->fresh[slot / 64] | tally->paced[slot / 64];
        for (; word != 0; word &= word - 1)
            urgent |=
                look_at(tally, slot + (uint32_t)__builtin_ctzll(word), now);
    }
    return urgent;
}

void weir_tally_report_backoff(struct weir_tally *tally, uint32_t index,
                               weir_duration report_backoff, weir_instant now)
{
    struct weir_tally_link *link = &tally->link[index];
    if (link->report_backoff == report_backoff)
        return;
    link->report_backoff = report_backoff;
    update_all_slack(tally, now);
}

void weir_tally_listen(struct weir_tally *tally, weir_duration patience,
                       weir_instant now)
{
    bool changed = false;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *link = &tally->link[i];
        weir_duration silent = weir_age(link->answered_at, now);
        bool answering = link->up && (!link->unanswered || silent < patience);
        changed |= answering != link->answering;
        link->answering = answering;
    }
    if (changed)
        update_all_slack(tally, now);
}

/* ---- Sessions ---- */

/* The bucket without the counts above 'base', in 1/1024 units. */
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

/* Whether some root has sent a fill of the slot since. */
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

/* Drops the fill and pace of an earlier session. Counts that were answered too
 * late are dropped from the prompt ones: they have leaked there by now. */
static void forget(struct weir_tally_cell *cell)
{
    cell->told = false;
    cell->prompt = cell->acked;
    cell->pace = cell->others_pace = cell->ahead = 0;
}

/* The part of our total that other limiters' fills hold: the least total that a
 * root which sends us fills has and presumes of it. 'settled' if there is
 * none. */
static uint64_t in_flight_of_us(const struct weir_tally *tally, uint32_t slot,
                                uint64_t settled, weir_instant now)
{
    bool some = false;
    uint64_t least = settled;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (!tally->link[i].up || !cell->told)
            continue;
        uint64_t held =
            cell->acked +
            presumed(tally, cell, cell->pace_held, now) / WEIR_FILL_ONE;
        if (!some || (int64_t)(held - least) < 0)
            least = held;
        some = true;
    }
    return least;
}

/* Announces every slot with a non-empty bucket, and its fill, to a cold
 * root. */
static void announce_all(struct weir_tally *tally, struct weir_tally_link *link,
                         weir_instant root_born, weir_instant now)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = 0; slot < end; slot++) {
        struct weir_tally_cell *cell = &link->cells[slot];
        /* Unwritten memory stays unwritten: of a million cells most are of
         * unused quotas, and cost no memory yet. */
        if (cell->begun) {
            cell->begun = false;
            forget(cell);
        }
        struct weir_slot_view view;
        weir_table_view(tally->table, slot, &view, now);
        if (view.state <= WEIR_SLOT_PLACEHOLDER || view.fill <= 0)
            continue;
        weir_tally_cell_of(tally, link, slot, &view);
        /* Other limiters' fills hold the units presumed of us, like those
         * answered: report the difference. */
        cell->acked = in_flight_of_us(tally, slot, cell->acked, now);
        cell->sent = cell->prompt = cell->acked;
        cell->unruled_at = 0;
        weir_bit_set(link->dirty, slot);
        if (view.inflight)
            continue;
        /* All counts that it lacks are from before it connected. */
        link->missed = true;
        cell->adopt = true;
        cell->witnessed = told_since(tally, slot, root_born);
        cell->fill = fill_without(&view, cell->acked);
        cell->fill_at = now;
    }
}

/* Until a slot is announced in the new session the root can't send its fill,
 * and the old fill ages: the next unit causes a report. */
static void forget_told(struct weir_tally *tally, struct weir_tally_link *link)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = weir_bit_next(tally->told, 0, end); slot < end;
         slot = weir_bit_next(tally->told, slot + 1, end))
        forget(&link->cells[slot]);
}

void weir_tally_meet(struct weir_tally *tally, uint32_t index)
{
    tally->link[index].meeting = true;
    tally->link[index].report_backoff = 0;
}

void weir_tally_begin(struct weir_tally *tally, uint32_t index,
                      uint64_t session, bool same_root, weir_instant root_born,
                      weir_instant now)
{
    struct weir_tally_link *link = &tally->link[index];
    /* The unanswered report may have been taken or not. Announcing the absolute
     * 'acked' is right in both cases. */
    for (uint32_t i = 0; i < link->outstanding_count; i++) {
        struct weir_tally_cell *cell = &link->cells[link->outstanding[i]];
        weir_bit_set(link->dirty, link->outstanding[i]);
        cell->sank |= (int64_t)(cell->sent - cell->acked) < 0;
    }
    link->outstanding_count = 0;
    link->unanswered = false;
    link->number = 0;
    link->stamp = 0;
    link->hand = link->announce_hand = 0;
    link->made_at = link->acked_at;
    link->session = session;
    link->meeting = false;
    link->up = true;
    link->answering = true;
    if (same_root)
        forget_told(tally, link);
    else
        announce_all(tally, link, root_born, now);
    if (same_root)
        weir_tally_say_in_flight(tally, link);
    if (link->answered_at == 0)
        link->answered_at = now;
    update_all_slack(tally, now);
}

void weir_tally_end(struct weir_tally *tally, uint32_t index, weir_instant now)
{
    struct weir_tally_link *link = &tally->link[index];
    link->meeting = false;
    if (!link->up)
        return;
    link->up = false;
    link->answering = false;
    update_all_slack(tally, now);
}

/* ---- Answers ---- */

/* Marks the slot settled when every link that is up, or about to be, has
 * answered for it. */
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
    if (tally->carries && !weir_tally_is_handed(tally, slot, total))
        return;
    weir_table_set_settled(tally->table, slot, total);
}

/* Both lists ascend: '*at' is where the last search stopped. */
static bool listed(const struct weir_fills *fills, size_t *at, uint32_t slot)
{
    while (*at < fills->unknown_count && fills->unknown[*at] < slot)
        ++*at;
    return *at < fills->unknown_count && fills->unknown[*at] == slot;
}

static void acknowledge(struct weir_tally *tally, struct weir_tally_link *link,
                        const struct weir_fills *fills, weir_instant now)
{
    size_t at = 0;
    bool ruled = fills->unknown_count == 0;
    for (uint32_t i = 0; i < link->outstanding_count; i++) {
        uint32_t slot = link->outstanding[i];
        struct weir_tally_cell *cell = &link->cells[slot];
        if (!cell->reported)
            continue; /* since then another name has the slot, unannounced */
        cell->reported = false;
        if (listed(fills, &at, slot)) {
            /* The root doesn't know the name (yet): report it again. */
            cell->session = (uint32_t)link->session - 1;
            cell->pace = cell->ahead = 0;
            weir_tally_hand_back(tally, slot, cell);
            cell->carry = 0;
            if (cell->unruled_at == 0)
                cell->unruled_at = link->acked_at + 1; /* never 0 */
            weir_bit_set(link->dirty, slot);
            continue;
        }
        ruled = true;
        cell->session = (uint32_t)link->session;
        weir_tally_hand_rest(tally, link, slot);
        weir_tally_take_over(tally, link, slot);
        cell->adopt = cell->sank = false;
        cell->acked = cell->sent;
        if (!weir_tally_is_late(tally, link, cell, now))
            cell->prompt = cell->sent;
        cell->unruled_at = 0;
        cell->carry = 0;
        cell->ahead = cell->ahead_sent;
        cell->pace = cell->pace_sent;
        cell->pace_at = link->sent_at;
        cell->pace_held = now;
        cell->refused_acked = cell->refused_sent;
        settle(tally, slot, cell->sent);
    }
    link->outstanding_count = 0;
    link->unanswered = false;
    link->answered_at = now;
    if (!ruled)
        return; /* it has no quotas yet: all is reported again, and is older */
    link->acked_at = link->made_at;
    link->missed = false;
    link->late_since = 0;
}

/* Learns the rate of others: the bucket's change beyond our own counts. */
static void learn_rates(struct weir_tally *tally, uint32_t slot,
                        struct weir_tally_cell *cell,
                        const struct weir_slot_view *view, int64_t fill,
                        weir_instant now)
{
    weir_duration span = weir_age(cell->fill_at, now);
    if (!cell->told || span < WEIR_MILLISECOND || view->unlimited ||
        weir_table_hold_is_paused(tally->table) || view->inflight)
        return;
    unsigned frac = view->bucket.leak.frac;
    float unit = (float)((uint64_t)1 << frac);
    float leaked = (float)weir_leaked(view->bucket.leak, span) / unit;
    float own = (float)(int64_t)(cell->acked - cell->fill_total);
    float moved = (float)(fill - cell->fill) / WEIR_FILL_ONE;
    float others = moved + leaked - own;
    struct weir_tally_added added = { own, others, fill };
    weir_tally_learn_part(tally, slot, cell, view, &added, now);
    /* An empty bucket hides the units that leaked from it. */
    if (fill <= 0 || others < 0)
        others = 0;
    float seconds = (float)span / (float)WEIR_SECOND;
    tally->predicted = tally->predicted * 0.99f + cell->others_per_s * seconds;
    tally->observed = tally->observed * 0.99f + others;
    cell->others_per_s =
        weir_smoothed(cell->others_per_s, others / seconds, span);
}

/* Whether the fill is a region's root's "full, no slack", sent when its
 * allowance is used up, until those above answer. That is no root fill of the
 * bucket, and no sign of others' counts. Without a band, a fill is mostly
 * "full" anyway. */
static bool is_blind(const struct weir_fill *told,
                     const struct weir_slot_view *view)
{
    int64_t full =
        weir_rescale(view->bucket.high, view->bucket.leak.frac, WEIR_FILL_FRAC);
    return told->slack == 0 && told->pace != 0 && told->fill >= full &&
           view->bucket.low < view->bucket.high;
}

/* Whether the last fill of some root is no root fill of the bucket. */
static bool blinds(const struct weir_tally *tally, uint32_t slot)
{
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (cell->told && cell->blind)
            return true;
    }
    return false;
}

static void take_fill(struct weir_tally *tally, struct weir_tally_link *link,
                      const struct weir_fill *told, weir_instant now)
{
    struct weir_tally_cell *cell = &link->cells[told->slot];
    struct weir_slot_view view;
    weir_table_view(tally->table, told->slot, &view, now);
    /* Until the announcement of this life is answered, the fill may be of a
     * former owner of the slot. */
    if (!cell->begun || !weir_tally_announced(link, cell) ||
        cell->generation != view.generation ||
        cell->inflight != view.inflight || view.sharing != WEIR_COUNTED)
        return;
    if (weir_table_leasing(tally->table, told->slot) == WEIR_LEASING_PARTING) {
        weir_table_end_lease(tally->table, told->slot, now);
        weir_table_view(tally->table, told->slot, &view, now);
    }
    bool blind = is_blind(told, &view);
    if (!blind && !cell->blind)
        learn_rates(tally, told->slot, cell, &view, told->fill, now);
    cell->fill = told->fill;
    cell->others_pace = view.inflight ? 0 : told->pace;
    if (cell->others_pace != 0)
        weir_bit_set(tally->paced, told->slot);
    cell->fill_total = cell->acked;
    if (tally->carried)
        cell->fill_ours = tally->carried[told->slot].whole;
    cell->fill_at = now;
    cell->slack = told->slack;
    cell->told = true;
    cell->blind = blind;
    weir_bit_set(tally->told, told->slot);
    if (!view.unlimited)
        update_fill(tally, told->slot, &view, now);
    if (view.on_stale == WEIR_STALE_HOLD && !view.unlimited)
        weir_tally_learn_hold(tally, told->slot, blinds(tally, told->slot),
                              now);
    weir_tally_update_slack(tally, told->slot, now);
}

static void hear_of_fleet(struct weir_tally *tally, uint32_t limiters,
                          weir_instant now)
{
    bool fewer = limiters < tally->limiters &&
                 now < tally->limiters_at + WEIR_FLEET_HOLD;
    if (limiters == 0 || fewer)
        return;
    tally->limiters = limiters;
    tally->limiters_at = now;
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
        return WEIR_OK; /* doubled, or older than those taken */
    }
    if (fills->stamp > link->stamp)
        link->stamp = fills->stamp;
    hear_of_fleet(tally, fills->limiters, now);
    for (size_t i = 0; i < fills->count; i++) {
        if (fills->fills[i].slot >= weir_table_used(tally->table))
            return WEIR_EPROTOCOL;
        take_fill(tally, link, &fills->fills[i], now);
    }
    return WEIR_OK;
}

/* ---- Slack on and off, staleness ---- */

void weir_tally_set_slack(struct weir_tally *tally, bool slack,
                          weir_instant now)
{
    if (tally->slack == slack)
        return;
    tally->slack = slack;
    weir_tally_stale(tally, !slack, now);
}

/* Sets the bucket as the region's limiters were last sent it. It follows the
 * others a little longer than our own decisions do. */
static void follow_last(struct weir_tally *tally, uint32_t slot,
                        weir_instant now)
{
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    if (view.sharing == WEIR_COUNTED && !view.unlimited)
        update_fill(tally, slot, &view, now);
}

void weir_tally_stale(struct weir_tally *tally, bool stale, weir_instant now)
{
    tally->extrapolated_at = now;
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = weir_bit_next(tally->told, 0, end); slot < end;
         slot = weir_bit_next(tally->told, slot + 1, end)) {
        uint64_t count = weir_table_count(tally->table, slot);
        tally->share_mark[slot] = count;
        if (tally->carried)
            tally->share_whole[slot] = tally->carried[slot].whole;
        if (stale && tally->carried)
            follow_last(tally, slot, now);
        if (stale && (!tally->slack || is_stale(tally, slot, now)))
            weir_table_set_slack(tally->table, slot, STOP_NONE(count),
                                 STOP_NONE(count));
        else
            weir_tally_update_slack(tally, slot, now);
    }
}

void weir_tally_unshare(struct weir_tally *tally, uint32_t slot,
                        weir_instant now)
{
    for (uint32_t i = 0; i < tally->link_count; i++) {
        forget(&tally->link[i].cells[slot]);
        tally->link[i].cells[slot].counted = false;
    }
    weir_bit_clear(tally->told, slot);
    weir_tally_update_slack(tally, slot, now);
}

void weir_tally_disown(struct weir_tally *tally, weir_instant now)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = 0; slot < end; slot++)
        weir_table_set_settled(tally->table, slot,
                               weir_table_count(tally->table, slot));
    memset(tally->handed, 0, tally->slots * sizeof(*tally->handed));
    tally->carrier = WEIR_CARRIER_NONE;
    tally->carries = false;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *link = &tally->link[i];
        for (uint32_t slot = 0; slot < end; slot++) {
            if (link->cells[slot].begun)
                link->cells[slot] = (struct weir_tally_cell){ 0 };
        }
        link->outstanding_count = 0;
        link->unanswered = false;
        link->meeting = false;
        link->up = false;
        link->answering = false;
        link->answered_at = 0;
        link->acked_at = now;
        link->missed = false;
        link->carried = false;
        link->late_since = 0;
    }
}
