/* SPDX-License-Identifier: MIT
 * core/counted/tally_report.c - a tally's reports: the counts of each slot
 * that moved, the late part of these, and the presumed pace. */

#include <string.h>

#include "core/counted/bits.h"
#include "core/counted/tally_internal.h"

/* A pace is sent if the slack lasts for fewer intervals than this. */
#define PACE_WORTH 4
/* Counts are late after some intervals, but not sooner than this. */
#define LATE_LEAST WEIR_SECOND
/* The time that an announcement uses up, and the most that is saved up. */
#define ANNOUNCE_EACH (WEIR_SECOND / WEIR_ANNOUNCES_PER_S)
#define ANNOUNCES_SAVED (WEIR_REPORT_ANNOUNCES_MAX * ANNOUNCE_EACH)

bool weir_tally_pending(const struct weir_tally *tally, uint32_t index)
{
    weir_assert(index < tally->link_count);
    const struct weir_tally_link *link = &tally->link[index];
    uint32_t end = weir_table_used(tally->table);
    return link->outstanding_count > 0 ||
           weir_bit_next(link->dirty, 0, end) < end;
}

bool weir_tally_paced(const struct weir_tally *tally)
{
    uint32_t end = weir_table_used(tally->table);
    return weir_bit_next(tally->paced, 0, end) < end;
}

/* The fill for a cold root, leaked since it was taken. */
static int64_t adopted_fill(const struct weir_tally_cell *cell,
                            const struct weir_slot_view *view, weir_instant now)
{
    /* A fill from before a reset isn't taken over. */
    if (!cell->adopt || cell->created != (uint32_t)view->created)
        return 0;
    unsigned frac = view->bucket.leak.frac;
    weir_duration age = weir_since(cell->fill_at, now);
    uint64_t leaked = weir_leaked(view->bucket.leak, age);
    int64_t fill =
        cell->fill - weir_rescale((int64_t)leaked, frac, WEIR_FILL_FRAC);
    return fill > 0 ? fill : 0;
}

static void write_announce(struct weir_tally *tally, size_t i, uint32_t slot,
                           const struct weir_slot_view *view,
                           const struct weir_tally_cell *cell, weir_instant now)
{
    weir_assert(i < WEIR_REPORT_ANNOUNCES_MAX);
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
        .sank = cell->sank,
        .in_flight = cell->inflight,
    };
}

static bool is_overdue(const struct weir_tally *tally,
                       const struct weir_tally_link *link, weir_instant then,
                       weir_instant now)
{
    return weir_since(then, now) >=
           weir_longer(weir_tally_good(tally, link), LATE_LEAST);
}

static bool is_link_late(const struct weir_tally *tally,
                         const struct weir_tally_link *link, weir_instant now)
{
    return (link->missed && link->answered_at > 0) ||
           is_overdue(tally, link, link->acked_at, now);
}

bool weir_tally_is_late(const struct weir_tally *tally,
                        const struct weir_tally_link *link,
                        const struct weir_tally_cell *cell, weir_instant now)
{
    return is_link_late(tally, link, now) ||
           (cell->unruled_at > 0 &&
            is_overdue(tally, link, cell->unruled_at, now));
}

/* Late units: of those not answered in time, the ones that drained from our own
 * bucket since, or are more than a full bucket. Of the units still in the
 * bucket an equal part counts as ours, the rest as other cut-off limiters'. A
 * cold root takes over all of it from us. */
static int64_t late_of(const struct weir_tally *tally,
                       const struct weir_tally_cell *cell,
                       const struct weir_slot_view *view)
{
    int64_t passed = (int64_t)(cell->sent - cell->acked);
    int64_t unanswered = (int64_t)(cell->sent - cell->prompt);
    if (passed <= 0)
        return 0;
    int64_t high = view->bucket.high > 0 ? view->bucket.high : 0;
    uint64_t fill = (uint64_t)(view->fill < high ? view->fill : high);
    if (!cell->adopt && tally->limiters > 1)
        fill /= tally->limiters;
    uint64_t one = (uint64_t)1 << view->bucket.leak.frac;
    int64_t held = (int64_t)((fill + one - 1) >> view->bucket.leak.frac);
    int64_t late = unanswered > held ? unanswered - held : 0;
    weir_assert(late >= 0);
    return late < passed ? late : passed;
}

/* How fast the slot passes, units a second; smoothed. 0 after a pause of
 * 'most'. */
static float passing_rate(struct weir_tally *tally, uint32_t slot,
                          uint64_t count, weir_duration most, weir_instant now)
{
    weir_assert(slot < tally->slots);
    struct weir_tally_pace *pace = &tally->pace[slot];
    weir_duration span = now - pace->at;
    int64_t own = (int64_t)(count - pace->count);
    if (now < pace->at || (own <= 0 && span > most))
        return 0;
    float sample = (float)own * (float)WEIR_SECOND / (float)(span + 1);
    float per_s = weir_smoothed(pace->per_s, sample, span);
    if (own != 0)
        *pace = (struct weir_tally_pace){ per_s, count, now };
    return per_s;
}

/* The pace to report. None if the slack is enough for some intervals, or an
 * interval has less than a unit. */
static uint64_t pace_of(struct weir_tally *tally,
                        const struct weir_tally_link *link, uint32_t slot,
                        const struct weir_slot_view *view, weir_instant now)
{
    const struct weir_tally_cell *cell = &link->cells[slot];
    weir_duration interval = weir_tally_interval(tally, link);
    float per_s = passing_rate(tally, slot, view->count,
                               weir_tally_good(tally, link), now);
    float units = per_s * (float)interval / (float)WEIR_SECOND;
    if (!tally->slack || !cell->has_fill || units < 1 ||
        units * WEIR_FILL_ONE * PACE_WORTH < (float)cell->slack)
        return 0;
    weir_bit_set(tally->paced, slot);
    float pace = per_s * (float)WEIR_PACE_SPAN / (float)WEIR_SECOND;
    return pace < (float)WEIR_PACE_MAX ? (uint64_t)(pace + 0.5f)
                                       : WEIR_PACE_MAX;
}

/* A region's root has the sum of its limiters' paces. */
static uint64_t pace_to_report(struct weir_tally *tally,
                               const struct weir_tally_link *link,
                               uint32_t slot, const struct weir_slot_view *view,
                               weir_instant now)
{
    if (view->inflight)
        return 0;
    if (!tally->carried)
        return pace_of(tally, link, slot, view, now);
    uint64_t pace = tally->slack ? tally->carried[slot].pace : 0;
    if (pace != 0)
        weir_bit_set(tally->paced, slot);
    return pace < WEIR_PACE_MAX ? pace : WEIR_PACE_MAX;
}

/* Sets the cell to the next report's values. */
static void draw_up(struct weir_tally *tally, struct weir_tally_link *link,
                    uint32_t slot, const struct weir_slot_view *view,
                    weir_instant now)
{
    weir_assert(slot < tally->slots);
    struct weir_tally_cell *cell = &link->cells[slot];
    uint64_t ahead = weir_tally_ahead_of(tally, slot);
    cell->reported = true;
    cell->pace_sent = pace_to_report(tally, link, slot, view, now);
    cell->ahead_sent = 0;
    if (cell->pace_sent != 0)
        cell->ahead_sent = ahead < WEIR_AHEAD_MAX ? ahead : WEIR_AHEAD_MAX;
    cell->sent = view->count - ahead;
    cell->counted = view->sharing == WEIR_COUNTED && !view->unlimited;
    cell->refused_sent = weir_table_refused(tally->table, slot);
    cell->carry = 0;
    if (link->carried && !view->inflight && weir_tally_announced(link, cell)) {
        uint64_t *handed =
            weir_tally_handed_of(tally, slot, view->generation, false);
        cell->carry = (int64_t)(cell->sent - *handed);
        *handed = cell->sent;
    }
    weir_assert(cell->pace_sent <= WEIR_PACE_MAX);
}

/* How many slots may be announced now. */
static size_t announce_room(struct weir_tally_link *link, weir_instant now)
{
    weir_instant earliest = weir_before(now, ANNOUNCES_SAVED);
    if (link->announced_till < earliest)
        link->announced_till = earliest;
    weir_assert(link->announced_till >= earliest);
    uint64_t room = weir_since(link->announced_till, now) / ANNOUNCE_EACH;
    return room < WEIR_REPORT_ANNOUNCES_MAX ? (size_t)room
                                            : WEIR_REPORT_ANNOUNCES_MAX;
}

enum added { ADDED, ADDED_NOT_NOW, ADDED_NO_ROOM };

/* Adds one slot; 'again' repeats the report. 'room': announcements left. */
static enum added report_slot(struct weir_tally *tally,
                              struct weir_tally_link *link, uint32_t slot,
                              bool again, size_t room, struct weir_report *out,
                              weir_instant now)
{
    weir_assert(slot < tally->slots);
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    if (!weir_tally_is_reported(&view))
        return ADDED;
    struct weir_tally_cell *cell =
        again ? &link->cells[slot]
              : weir_tally_cell_of(tally, link, slot, &view);
    bool announce = !weir_tally_announced(link, cell);
    if (again && !cell->reported)
        return ADDED; /* another name has the slot since: the counts of the
                       * life before were settled */
    if (again && announce && cell->generation != view.generation)
        return ADDED; /* the root never got that life: nothing is lost, it
                       * was settled when it ended */
    if (out->count == WEIR_REPORT_COUNTS_MAX)
        return ADDED_NO_ROOM;
    if (announce && (room == 0 || (!again && slot < link->announce_hand)))
        return ADDED_NOT_NOW;
    if (!again) {
        draw_up(tally, link, slot, &view, now);
        weir_assert(link->outstanding_count < WEIR_REPORT_COUNTS_MAX);
        link->outstanding[link->outstanding_count++] = slot;
    }
    if (announce)
        write_announce(tally, out->announce_count++, slot, &view, cell, now);
    tally->counts[out->count++] = (struct weir_count){
        .slot = slot,
        .passed = (int64_t)(cell->sent - cell->acked),
        .refused = cell->refused_sent - cell->refused_acked,
        .late = !cell->inflight && weir_tally_is_late(tally, link, cell, now)
                    ? late_of(tally, cell, &view)
                    : 0,
        .pace = cell->pace_sent,
        /* Even if the row has no change: a carrier uses the total. */
        .carry = cell->inflight && link->carried
                     ? (int64_t)(cell->sent - cell->acked)
                     : cell->carry,
        .ahead = cell->ahead_sent,
    };
    return ADDED;
}

/* Goes on where the last report had no room. Announcements have a cursor of
 * their own: under a flood of names each report still has the slots that the
 * root knows, and each new name gets its turn. */
static void report_fresh(struct weir_tally *tally, struct weir_tally_link *link,
                         struct weir_report *out, weir_instant now)
{
    weir_assert(link->unanswered);
    uint32_t end = weir_table_used(tally->table);
    size_t most = announce_room(link, now);
    uint32_t waiting = end; /* the first that could not be announced */
    uint32_t slot = weir_bit_next(link->dirty, link->hand, end);
    link->outstanding_count = 0;
    if (link->hand == 0)
        link->round_at = now;
    for (; slot < end; slot = weir_bit_next(link->dirty, slot + 1, end)) {
        size_t room = most - out->announce_count;
        enum added added =
            report_slot(tally, link, slot, false, room, out, now);
        if (added == ADDED_NO_ROOM)
            break;
        if (added == ADDED)
            weir_bit_clear(link->dirty, slot);
        else if (waiting == end || waiting < link->announce_hand)
            waiting = slot;
    }
    link->announced_till += out->announce_count * ANNOUNCE_EACH;
    link->left_out = slot < end || link->hand > 0 || waiting < end;
    link->hand = slot < end ? slot : 0;
    link->announce_hand =
        waiting < end && waiting >= link->announce_hand ? waiting : 0;
    if (link->hand == 0)
        link->made_at = link->round_at;
    weir_assert(link->outstanding_count == out->count);
}

/* The root's age by now; 0: it sent none in this session. */
static weir_duration root_age_now(const struct weir_tally_link *link,
                                  weir_instant now)
{
    return link->root_age > 0
               ? link->root_age + weir_since(link->root_age_at, now)
               : 0;
}

static void report_again(struct weir_tally *tally, struct weir_tally_link *link,
                         struct weir_report *out, weir_instant now)
{
    weir_assert(link->outstanding_count <= WEIR_REPORT_COUNTS_MAX);
    for (uint32_t i = 0; i < link->outstanding_count; i++)
        report_slot(tally, link, link->outstanding[i], true,
                    WEIR_REPORT_ANNOUNCES_MAX, out, now);
}

void weir_tally_report(struct weir_tally *tally, uint32_t index,
                       struct weir_report *out, weir_instant now)
{
    weir_assert(index < tally->link_count);
    struct weir_tally_link *link = &tally->link[index];
    *out = (struct weir_report){ .announces = tally->announces,
                                 .counts = tally->counts };
    if (link->unanswered) {
        report_again(tally, link, out, now);
    } else {
        link->number++;
        link->unanswered = true;
        link->sent_at = now;
        link->echo = root_age_now(link, now);
        link->carried = tally->carrier == index;
        report_fresh(tally, link, out, now);
        for (uint32_t i = 0; i < link->outstanding_count; i++)
            weir_tally_update_slack(tally, link->outstanding[i], now);
    }
    out->number = link->number;
    out->echo = link->echo; /* if repeated, the counts are as old as before */
    if (link->missed || is_link_late(tally, link, now))
        out->late_from = weir_since(link->acked_at, now);
    if (link->late_since > 0 &&
        weir_since(link->late_since, now) > out->late_from)
        out->late_from = weir_since(link->late_since, now);
    out->carried = link->carried;
    weir_assert(link->unanswered && out->number > 0);
}
