/* SPDX-License-Identifier: MIT
 * counted/tally_stop.c - when a slot is to be reported, when it stops, and the
 * bucket by the fills of roots.
 *
 * Stops. With each count a root gets our pace, and goes on adding at that pace
 * to A (merge.c); the sum by now is P. The root wants a report when our count
 * differs from A + P by its slack s, either way, and lets us count up to A + P
 * + s and a part of a second s: at least one request; in a region, 2s. A take
 * finds the upper bound (the table's report_at, moved on when it comes early,
 * because P grows). Below, no take happens, so slots with a pace are looked at
 * some times a second, and at each interval's end. P begins when the report was
 * sent: the root presumes at least as much (merge.c, Lead). At a root that
 * takes no echo, P begins for the stop when the answer came, which is rather
 * too early a stop, and we count up to A + P + 2s. P ends when no answer came
 * for as long as a pace is good: two intervals, and twice the shorter of the
 * last two round trips. There is no pace, and P is 0, if an interval has less
 * than a unit, or the slack lasts for some intervals.
 *
 * Of the second s, a limiter near 'low' or above may use as much as it has of
 * all slacks: 2s / (the room by the fill that came with s), for all slacks are
 * half of the room. So a limiter alone stops at the whole room, and n equal
 * ones together at half of the room * (1 + 1/n). That leaves room for reports
 * under way, which far roots need (merge.c): with 2s for all, thirty limiters 2
 * s from their root passed .75 of the limit, not 1.00 (weir-distant, seed 1),
 * and 300 ms from it they held the limit with a standard deviation of .16, not
 * .018 (weir-far). With s for all, a limiter alone was refused requests at half
 * of its burst.
 *
 * Below 'low' nothing is refused but by stops, and each would be a mistake. So
 * the part grows with the bucket's empty part, (low - fill) / low, up to the
 * whole second s. A fill is as old as a round trip: by the leak of that time
 * 'low' is taken to be less. Without this, 20 limiters that used 30 % of the
 * limit and had bursts of 600 units in 200 ms were refused up to .38 % of
 * these, at round trips of 1 to 150 ms, though the bucket never held more than
 * half of 'high'. Now it is .04 % at most (weir-bursts). With it, but not less
 * for a round trip, the thirty limiters at 2 s passed .73 of the limit.
 *
 * The smallest stop of the links that answer is used. A link that has been
 * silent for a while is used only if all are silent: the other roots see all
 * counts too. In the same way an overloaded root with a report backoff is used
 * only if all have one. The same rule chooses the fills: when the fill of a
 * root that had been slow was used, as the largest, nothing passed for 3 s
 * (weir-slow-root). When the slack of one slow root of three was used,
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
 * root sends: it grows so there too. */

#include "core/counted/bits.h"
#include "core/counted/tally_internal.h"

#define STOP_NONE(count) ((count) + WEIR_COUNT_FAR)
#define SLACK_NONE ((uint64_t)1 << 61) /* from here on: no limit is near */

/* Whether the link is used for the slot. A silent link, or one with a report
 * backoff, is not if a better one has sent a fill of the slot. */
static bool is_link_used(const struct weir_tally *tally,
                         const struct weir_tally_link *link, uint32_t slot)
{
    if (!link->up)
        return false;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_link *other = &tally->link[i];
        if (!other->up || !other->answering || !other->cells[slot].has_fill)
            continue;
        if (!link->answering ||
            (link->report_backoff > 0 && other->report_backoff == 0))
            return false;
    }
    return true;
}

/* Units of a pace since 'then', for 'most' at most; 1/1024 units. */
static uint64_t paced_for(weir_duration most, uint64_t pace, weir_instant then,
                          weir_instant now)
{
    weir_duration age = weir_since(then, now);
    return (uint64_t)(((weir_u128)pace * (age < most ? age : most)) >>
                      (WEIR_PACE_SHIFT - WEIR_FILL_FRAC));
}

uint64_t weir_tally_presumed(const struct weir_tally *tally,
                             const struct weir_tally_link *link,
                             const struct weir_tally_cell *cell,
                             weir_instant then, weir_instant now)
{
    return cell->ahead * WEIR_FILL_ONE +
           paced_for(weir_tally_good(tally, link), cell->pace, then, now);
}

static uint64_t units_rounded_up(uint64_t fine)
{
    return (fine + WEIR_FILL_ONE - 1) / WEIR_FILL_ONE;
}

static uint64_t at_least_one_unit(uint64_t fine)
{
    return fine > WEIR_FILL_ONE ? fine : WEIR_FILL_ONE;
}

/* The count at which to report: off by the slack from the count that the root
 * presumes. */
static uint64_t report_at(const struct weir_tally *tally,
                          const struct weir_tally_link *link,
                          const struct weir_tally_cell *cell, weir_instant now)
{
    uint64_t slack = at_least_one_unit(cell->slack);
    if (link->unanswered)
        return cell->sent + cell->ahead_sent +
               units_rounded_up(paced_for(weir_tally_good(tally, link),
                                          cell->pace_sent, link->sent_at, now) +
                                slack);
    return cell->acked +
           units_rounded_up(
               weir_tally_presumed(tally, link, cell, cell->pace_at, now) +
               slack);
}

/* Units that the root presumes of the unanswered report's pace at least, if it
 * has taken the report. */
static uint64_t paced_by_echo(const struct weir_tally *tally,
                              const struct weir_tally_link *link,
                              const struct weir_tally_cell *cell,
                              weir_instant now)
{
    weir_assert(link->unanswered);
    if (link->echo == 0 ||
        weir_since(link->sent_at, now) >= weir_tally_good(tally, link))
        return 0;
    return paced_for(WEIR_LEAD_MAX, cell->pace_sent, link->sent_at, now);
}

/* The distance up to 'to'. A root may send any fill, so it may wrap. */
static int64_t up_to(int64_t to, int64_t fill)
{
    return (int64_t)((uint64_t)to - (uint64_t)fill);
}

/* A part of the slack, as large as 'part' of 'whole'. */
static uint64_t part_of(uint64_t slack, int64_t part, int64_t whole)
{
    if (part <= 0 || whole <= 0)
        return 0;
    if (part >= whole)
        return slack;
    return (uint64_t)((weir_u128)slack * (uint64_t)part / (uint64_t)whole);
}

/* How far the count may go beyond the presumed one: the slack, and of a second
 * slack this limiter's share of all slacks, which are half of the room, or the
 * empty part of the bucket below 'low', if that is more. 1/1024 units. */
static uint64_t allowed(const struct weir_tally_cell *cell)
{
    uint64_t slack = cell->slack;
    weir_assert(slack < SLACK_NONE);
    uint64_t by_share =
        part_of(slack, 2 * (int64_t)slack, up_to(cell->fill_high, cell->fill));
    uint64_t by_empty =
        part_of(slack, up_to(cell->fill_low, cell->fill), cell->fill_low);
    return slack + (by_share > by_empty ? by_share : by_empty);
}

/* The count to stop at: off from the least count that the root can presume,
 * whichever messages have arrived. In a region, and at a root that takes no
 * echo, it is off by twice the slack. */
static uint64_t stop_at(const struct weir_tally *tally,
                        const struct weir_tally_link *link,
                        const struct weir_tally_cell *cell, weir_instant now)
{
    uint64_t from = cell->acked;
    uint64_t ahead =
        weir_tally_presumed(tally, link, cell, cell->pace_held, now);
    /* After this silence the root presumes nothing any more. */
    if (weir_since(cell->pace_at, now) >= weir_tally_good(tally, link))
        ahead = 0;
    if (link->unanswered) {
        uint64_t sent = cell->sent + cell->ahead_sent;
        uint64_t since = paced_by_echo(tally, link, cell, now);
        if ((int64_t)(sent - from) + (int64_t)(since / WEIR_FILL_ONE) <
            (int64_t)(ahead / WEIR_FILL_ONE)) {
            from = sent;
            ahead = since;
        }
    }
    bool tiers = tally->carried || tally->carrier != WEIR_CARRIER_NONE;
    bool once = link->root_age > 0 && !tiers;
    uint64_t slack = once ? allowed(cell) : 2 * cell->slack;
    return from + units_rounded_up(ahead + at_least_one_unit(slack));
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
    weir_assert(slot < tally->slots);
    struct soonest in = { (int64_t)WEIR_COUNT_FAR, (int64_t)WEIR_COUNT_FAR };
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_link *link = &tally->link[i];
        const struct weir_tally_cell *cell = &link->cells[slot];
        if (!is_link_used(tally, link, slot))
            continue;
        uint64_t reported = link->unanswered ? cell->sent : cell->acked;
        /* While no slack is known the next unit causes a report. */
        if (!cell->has_fill && cell->counted)
            note_sooner(reported + 1, count, &in.report_in);
        if (!cell->has_fill || cell->slack >= SLACK_NONE)
            continue;
        note_sooner(report_at(tally, link, cell, now), count, &in.report_in);
        note_sooner(stop_at(tally, link, cell, now), count, &in.stop_in);
    }
    return in;
}

void weir_tally_update_slack(struct weir_tally *tally, uint32_t slot,
                             weir_instant now)
{
    weir_assert(slot < tally->slots);
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

void weir_tally_update_all_slack(struct weir_tally *tally, weir_instant now)
{
    uint32_t end = weir_table_used(tally->table);
    for (uint32_t slot = weir_bit_next(tally->filled, 0, end); slot < end;
         slot = weir_bit_next(tally->filled, slot + 1, end))
        weir_tally_update_slack(tally, slot, now);
}

void weir_tally_report_backoff(struct weir_tally *tally, uint32_t index,
                               weir_duration report_backoff, weir_instant now)
{
    weir_assert(index < tally->link_count);
    struct weir_tally_link *link = &tally->link[index];
    if (link->report_backoff == report_backoff)
        return;
    link->report_backoff = report_backoff;
    weir_tally_update_all_slack(tally, now);
}

void weir_tally_listen(struct weir_tally *tally, weir_duration patience,
                       weir_instant now)
{
    bool changed = false;
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_link *link = &tally->link[i];
        weir_duration silent =
            weir_since(weir_later(link->answered_at, link->sent_at), now);
        bool answering = link->up && (!link->unanswered || silent < patience);
        changed |= answering != link->answering;
        link->answering = answering;
    }
    if (changed)
        weir_tally_update_all_slack(tally, now);
}

/* ---- The bucket by the fills of roots ---- */

/* For how long the others are presumed to go on at the pace of the fill. A
 * limiter without answers goes by its own counts then, but a region must
 * not pass its limiters the others' part of the limit before on_stale holds. */
static weir_duration others_for(const struct weir_tally *tally,
                                const struct weir_tally_link *link)
{
    weir_duration good = weir_tally_good(tally, link);
    bool held = tally->carried && !link->answering && tally->pace_held > good;
    return held ? tally->pace_held : good;
}

/* A received fill brought to 'now', scaled; may be below 0. */
static int64_t fill_by_now(const struct weir_tally *tally,
                           const struct weir_tally_link *link,
                           const struct weir_tally_cell *cell,
                           const struct weir_slot_view *view, weir_instant now)
{
    unsigned frac = view->bucket.leak.frac;
    int64_t others = (int64_t)paced_for(others_for(tally, link),
                                        cell->others_pace, cell->fill_at, now);
    int64_t fill = weir_rescale(cell->fill + others, WEIR_FILL_FRAC, frac);
    weir_duration age = weir_since(cell->fill_at, now);
    uint64_t leaked = weir_leaked(view->bucket.leak, age);
    uint64_t own = (view->count - cell->fill_total) << frac;
    return (int64_t)((uint64_t)fill + own - leaked);
}

static int64_t high_of(const struct weir_bucket *bucket)
{
    return weir_rescale_saturated(bucket->high, bucket->leak.frac,
                                  WEIR_FILL_FRAC);
}

/* 'low', less the leak of a round trip; not below 0. */
static int64_t low_in_time(const struct weir_tally_link *link,
                           const struct weir_bucket *bucket)
{
    struct weir_leak leak = bucket->leak;
    weir_duration trip = weir_tally_round_trip(link);
    weir_u128 leaked =
        (weir_u128)trip * leak.whole + (((weir_u128)trip * leak.part) >> 64);
    return leaked < (weir_u128)bucket->low ? bucket->low - (int64_t)leaked : 0;
}

void weir_tally_set_band(const struct weir_tally_link *link,
                         struct weir_tally_cell *cell,
                         const struct weir_bucket *bucket)
{
    cell->fill_high = high_of(bucket);
    cell->fill_low = weir_rescale_saturated(low_in_time(link, bucket),
                                            bucket->leak.frac, WEIR_FILL_FRAC);
}

/* Limits that an edit lowered cut the bucket in the table, and a root cuts its
 * own when it has the edit. Received fills are cut too, or the table's bucket
 * would follow them up again. Until now they leaked at the former rate, as the
 * table's did. */
static void follow_edit(struct weir_tally *tally, uint32_t slot,
                        const struct weir_slot_view *view, weir_instant now)
{
    int64_t high = high_of(&view->bucket);
    for (uint32_t i = 0; i < tally->link_count; i++) {
        struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        if (!cell->has_fill || cell->fill_high == high || view->inflight)
            continue;
        int64_t fill = fill_by_now(tally, &tally->link[i], cell, view, now);
        if (fill > view->fill)
            fill = view->fill;
        cell->fill = weir_rescale(fill, view->bucket.leak.frac, WEIR_FILL_FRAC);
        cell->fill_total = view->count;
        if (tally->carried)
            cell->fill_ours = tally->carried[slot].whole;
        cell->fill_at = now;
        weir_tally_set_band(&tally->link[i], cell, &view->bucket);
    }
}

/* Which fills are preferred. A fill of a link that is down holds all units
 * counted since, and another root that gets those as late counts takes at most
 * a full bucket. A root with a report backoff has old counts, and a limiter
 * can't soon correct what it takes them for. */
enum preference { FILL_OF_DOWN, FILL_OF_UP, FILL_OF_USED };

static enum preference preference_of(const struct weir_tally *tally,
                                     const struct weir_tally_link *link,
                                     uint32_t slot)
{
    if (!link->up)
        return FILL_OF_DOWN;
    return is_link_used(tally, link, slot) ? FILL_OF_USED : FILL_OF_UP;
}

/* The link with the largest of the preferred fills; NULL: none. */
static const struct weir_tally_link *largest_root_fill(
    struct weir_tally *tally, uint32_t slot, const struct weir_slot_view *view,
    int64_t *out_fill, weir_instant now)
{
    const struct weir_tally_link *most = NULL;
    enum preference most_preferred = FILL_OF_DOWN;
    int64_t most_fill = 0;
    follow_edit(tally, slot, view, now);
    for (uint32_t i = 0; i < tally->link_count; i++) {
        const struct weir_tally_cell *cell = &tally->link[i].cells[slot];
        bool same = cell->generation == view->generation &&
                    cell->inflight == view->inflight;
        if (!cell->has_fill || !same)
            continue;
        int64_t fill = fill_by_now(tally, &tally->link[i], cell, view, now);
        enum preference preferred = preference_of(tally, &tally->link[i], slot);
        if (most && (preferred == most_preferred ? fill <= most_fill
                                                 : preferred < most_preferred))
            continue;
        most = &tally->link[i];
        most_preferred = preferred;
        most_fill = fill;
    }
    *out_fill = most_fill;
    return most;
}

void weir_tally_update_fill(struct weir_tally *tally, uint32_t slot,
                            const struct weir_slot_view *view, weir_instant now)
{
    weir_assert(slot < tally->slots);
    int64_t fill;
    if (largest_root_fill(tally, slot, view, &fill, now))
        weir_table_set_fill(tally->table, slot, fill, view->count, now);
}

bool weir_tally_above(struct weir_tally *tally, struct weir_ref ref,
                      struct weir_above *out, weir_instant now)
{
    weir_assert(ref.slot < tally->slots);
    struct weir_slot_view view;
    weir_table_view(tally->table, ref.slot, &view, now);
    if (view.generation != ref.generation || view.sharing != WEIR_COUNTED)
        return false;
    int64_t fill;
    const struct weir_tally_link *link =
        largest_root_fill(tally, ref.slot, &view, &fill, now);
    if (!link)
        return false;
    bool stale = is_stale(tally, ref.slot, now);
    if (stale && view.on_stale == WEIR_STALE_SHARE)
        fill = view.fill;
    if (stale && fill > view.bucket.high)
        fill = view.bucket.high;
    const struct weir_tally_cell *cell = &link->cells[ref.slot];
    bool paced = !(stale && view.on_stale == WEIR_STALE_SHARE) &&
                 weir_since(cell->fill_at, now) < others_for(tally, link);
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
        largest_root_fill(tally, slot, view, &fill, now) && fill > view->fill)
        weir_table_set_fill(tally->table, slot, fill, view->count, now);
}

/* ---- Looks between reports ---- */

/* Whether the slot needs a report at once on the link. */
static bool deviates(const struct weir_tally *tally,
                     const struct weir_tally_link *link,
                     const struct weir_tally_cell *cell, uint64_t count,
                     weir_instant now)
{
    if (!link->up || link->unanswered || !cell->begun)
        return false;
    if (!cell->has_fill)
        return cell->counted ? count != cell->acked
                             : !weir_tally_announced(link, cell);
    weir_i128 off = (weir_i128)(int64_t)(count - cell->acked) * WEIR_FILL_ONE -
                    weir_tally_presumed(tally, link, cell, cell->pace_at, now);
    return (off < 0 ? -off : off) >= at_least_one_unit(cell->slack);
}

/* Whether the presumed counts, of us or of others, grow. */
static bool moves(const struct weir_tally *tally,
                  const struct weir_tally_link *link,
                  const struct weir_tally_cell *cell, weir_instant now)
{
    return cell->pace != 0 || (link->unanswered && cell->pace_sent != 0) ||
           (cell->others_pace != 0 &&
            weir_since(cell->fill_at, now) < weir_tally_good(tally, link));
}

static uint32_t check_slot_deviation(struct weir_tally *tally, uint32_t slot,
                                     weir_instant now)
{
    weir_assert(slot < tally->slots);
    struct weir_slot_view view;
    weir_table_view(tally->table, slot, &view, now);
    uint32_t urgent = 0;
    bool paced = false;
    /* A slot that was removed is in no report, and has no pace. */
    uint32_t links = weir_tally_is_reported(&view) ? tally->link_count : 0;
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
    weir_assert(end <= tally->slots);
    uint32_t urgent = 0;
    for (uint32_t slot = 0; slot < end; slot += 64) {
        uint64_t word = tally->fresh[slot / 64] | tally->paced[slot / 64];
        for (; word != 0; word &= word - 1)
            urgent |= check_slot_deviation(
                tally, slot + (uint32_t)__builtin_ctzll(word), now);
    }
    return urgent;
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
        weir_tally_update_fill(tally, slot, &view, now);
}

void weir_tally_stale(struct weir_tally *tally, bool stale, weir_instant now)
{
    tally->extrapolated_at = now;
    uint32_t end = weir_table_used(tally->table);
    weir_assert(end <= tally->slots);
    for (uint32_t slot = weir_bit_next(tally->filled, 0, end); slot < end;
         slot = weir_bit_next(tally->filled, slot + 1, end)) {
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

void weir_tally_forget_fill(struct weir_tally_cell *cell)
{
    cell->has_fill = false;
    cell->prompt = cell->acked;
    cell->pace = cell->others_pace = cell->ahead = 0;
    weir_assert(!cell->has_fill && cell->pace == 0);
}

void weir_tally_update_heard(struct weir_tally *tally, uint32_t slot)
{
    bool heard = false;
    for (uint32_t i = 0; i < tally->link_count; i++)
        heard |= tally->link[i].cells[slot].has_fill &&
                 !tally->link[i].cells[slot].blind;
    weir_table_set_heard(tally->table, slot, heard);
}

void weir_tally_unshare(struct weir_tally *tally, uint32_t slot,
                        weir_instant now)
{
    weir_assert(slot < tally->slots);
    for (uint32_t i = 0; i < tally->link_count; i++) {
        weir_tally_forget_fill(&tally->link[i].cells[slot]);
        tally->link[i].cells[slot].counted = false;
    }
    weir_bit_clear(tally->filled, slot);
    weir_tally_update_heard(tally, slot);
    weir_tally_update_slack(tally, slot, now);
}
