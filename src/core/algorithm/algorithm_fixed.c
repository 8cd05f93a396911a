/* SPDX-License-Identifier: MIT
 * algorithm/algorithm_fixed.c - the fixed window: a number of units in each.
 *
 *     word 0   the number of the window that word 1 counts
 *     word 1   units counted in it
 *
 * Word 0 is a number, not the instant at which the window began: when a zone's
 * clocks are set back or forward, a day is 25 or 23 hours long but stays one
 * day. While the clock is before the recorded window, it stands still at that
 * window's beginning. For this reason the numbers of minutes and hours must not
 * follow a zone's clocks back: each would last an hour longer. */

#include "core/algorithm/algorithm_internal.h"

/* ---- Windows of the calendar ----
 *
 * All but months have a fixed length, and begin a fixed number of nanoseconds
 * before a multiple of it. Months are counted from January 1970. The beginning
 * of a month is a sum of days. The month of a day is estimated from the mean
 * length of a month, at most one too low, and corrected by one comparison.
 * Proleptic Gregorian; no leap seconds, as in every Unix clock. */

#define MINUTE ((int64_t)60 * (int64_t)WEIR_SECOND)
#define DAY (1440 * MINUTE)

/* Rounds down; 'b' > 0. */
static int64_t quotient(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static int64_t calendar_length(enum weir_calendar calendar)
{
    switch (calendar) {
    case WEIR_CALENDAR_MINUTE:
        return MINUTE;
    case WEIR_CALENDAR_HOUR:
        return 60 * MINUTE;
    case WEIR_CALENDAR_DAY:
        return DAY;
    case WEIR_CALENDAR_WEEK:
        return 7 * DAY;
    case WEIR_CALENDAR_NONE:
    case WEIR_CALENDAR_MONTH:
        break;
    }
    return 0;
}

/* The offset of local time from UTC, in ns, as windows of this calendar use it.
 * When a zone's clock is set by whole minutes or hours, these windows follow
 * each other: they use only the rest of the offset, so that none comes
 * twice. */
static int64_t calendar_offset(enum weir_calendar calendar,
                               int32_t utc_offset_s)
{
    int64_t offset = utc_offset_s * (int64_t)WEIR_SECOND;
    if (calendar != WEIR_CALENDAR_MINUTE && calendar != WEIR_CALENDAR_HOUR)
        return offset;
    int64_t length = calendar_length(calendar);
    offset -= quotient(offset, length) * length;
    weir_audit(offset >= 0 && offset < length);
    return offset;
}

/* 1970-01-01 was a Thursday: three days into a week. */
static int64_t begun_before(enum weir_calendar calendar)
{
    return calendar == WEIR_CALENDAR_WEEK ? 3 * DAY : 0;
}

/* Leap days in the years before 'year' since the calendar's year 0. */
static int64_t leap_days(int64_t year)
{
    int64_t last = year - 1;
    return quotient(last, 4) - quotient(last, 100) + quotient(last, 400);
}

/* Days from 1970-01-01 to the first of a month, counted from January 1970. */
static int64_t month_day(int64_t month)
{
    static const int16_t before[12] = { 0,   31,  59,  90,  120, 151,
                                        181, 212, 243, 273, 304, 334 };
    int64_t year = 1970 + quotient(month, 12);
    int64_t in_year = month - (year - 1970) * 12;
    /* This year's leap day counts from March on. */
    weir_audit(in_year >= 0 && in_year < 12);
    int64_t leaps = leap_days(in_year >= 2 ? year + 1 : year);
    return (year - 1970) * 365 + leaps - leap_days(1970) + before[in_year];
}

static int64_t month_of(int64_t local)
{
    int64_t day = quotient(local, DAY);
    /* 400 years are 146097 days and 4800 months. A month begins less than three
     * days before its mean beginning and less than two after it. The mean month
     * of four days ago is this month or the previous one. */
    int64_t month = quotient((day - 4) * 4800, 146097);
    month += month_day(month + 1) <= day;
    weir_audit(month_day(month) <= day && day < month_day(month + 1));
    return month;
}

/* The number of the window that contains 'local', in nanoseconds of local time
 * since 1970; consecutive, 0 for the one that contains 1970-01-01 00:00. */
static int64_t calendar_index(enum weir_calendar calendar, int64_t local)
{
    if (calendar == WEIR_CALENDAR_MONTH)
        return month_of(local);
    return quotient(local + begun_before(calendar), calendar_length(calendar));
}

/* The beginning of that window. */
static int64_t calendar_start(enum weir_calendar calendar, int64_t index)
{
    if (calendar == WEIR_CALENDAR_MONTH)
        return month_day(index) * DAY;
    return index * calendar_length(calendar) - begun_before(calendar);
}

/* ---- The window of an instant ---- */

static int64_t index_at(const struct weir_algorithm_rule *rule,
                        weir_instant now)
{
    if (rule->calendar == WEIR_CALENDAR_NONE)
        return (int64_t)(now / rule->window);
    int64_t offset = calendar_offset(rule->calendar, rule->utc_offset_s);
    return calendar_index(rule->calendar, (int64_t)now + offset);
}

/* A window that would begin before the clock's 0 begins at 0. */
static weir_instant start_of(const struct weir_algorithm_rule *rule,
                             int64_t index)
{
    if (rule->calendar == WEIR_CALENDAR_NONE)
        return (weir_instant)index * rule->window;
    int64_t offset = calendar_offset(rule->calendar, rule->utc_offset_s);
    int64_t start = calendar_start(rule->calendar, index) - offset;
    return start > 0 ? (weir_instant)start : 0;
}

int64_t weir_algorithm_window(const struct weir_algorithm_rule *rule,
                              weir_instant *out_start, weir_instant *out_end,
                              weir_instant now)
{
    int64_t index = index_at(rule, now);
    *out_start = start_of(rule, index);
    *out_end = start_of(rule, index + 1);
    weir_assert(*out_start <= now && now < *out_end);
    return index;
}

static bool fixed_check(const struct weir_algorithm_rule *rule)
{
    bool window = rule->window > 0 && rule->window <= WEIR_ALGORITHM_WINDOW_MAX;
    return rule->quantity <= WEIR_ALGORITHM_QUANTITY_MAX &&
           rule->calendar <= WEIR_CALENDAR_MONTH &&
           rule->utc_offset_s > -86400 && rule->utc_offset_s < 86400 &&
           (window || rule->calendar != WEIR_CALENDAR_NONE);
}

static size_t fixed_size(const struct weir_algorithm_rule *rule)
{
    (void)rule;
    return 2 * sizeof(uint64_t);
}

/* The current window: the clock's, or the recorded one if it is later. */
static int64_t current(const struct weir_algorithm_rule *rule,
                       const uint64_t *state, weir_instant now)
{
    int64_t index = index_at(rule, now);
    int64_t known = (int64_t)state[0];
    return index < known ? known : index;
}

static uint64_t used_in(const uint64_t *state, int64_t index)
{
    return (int64_t)state[0] == index ? state[1] : 0;
}

static void fixed_step(const struct weir_algorithm_rule *rule, uint64_t *state,
                       const struct weir_algorithm_ask *ask,
                       struct weir_algorithm_answer *out, weir_instant now)
{
    int64_t index = current(rule, state, now);
    uint64_t used = used_in(state, index);
    uint64_t was = used;
    bool passed = weir_quantity_passes(rule, used, ask->weight);
    if (weir_algorithm_counts(rule, ask, passed))
        used += weir_quantity_adds(rule, used, ask->weight);
    else if (ask->op == WEIR_ALGORITHM_REFUND)
        used -= ask->weight < used ? ask->weight : used;
    if (used != was) {
        weir_audit((int64_t)state[0] <= index);
        weir_audit(used < was || weir_quantity_holds(rule, used));
        state[0] = (uint64_t)index;
        state[1] = used;
    }
    weir_quantity_answer(rule, ask, passed, used, out);
    if (!out->passed && !out->never)
        out->retry_after = start_of(rule, index + 1) - now;
}

static void fixed_charge(const struct weir_algorithm_rule *rule,
                         uint64_t *state, uint64_t units, weir_instant now)
{
    int64_t index = current(rule, state, now);
    uint64_t used = used_in(state, index);
    weir_audit((int64_t)state[0] <= index);
    state[0] = (uint64_t)index;
    state[1] = used + weir_quantity_adds(rule, used, units);
    weir_audit(weir_quantity_holds(rule, state[1]));
}

static void fixed_carry(const struct weir_algorithm_rule *from,
                        const uint64_t *state,
                        const struct weir_algorithm_rule *to,
                        uint64_t *to_state, weir_instant now)
{
    uint64_t used = used_in(state, current(from, state, now));
    if (used > 0)
        fixed_charge(to, to_state, used, now);
}

static weir_instant fixed_idle_at(const struct weir_algorithm_rule *rule,
                                  const uint64_t *state, weir_instant now)
{
    weir_instant end = start_of(rule, (int64_t)state[0] + 1);
    return state[1] > 0 && end > now ? end : now;
}

/* Two days more: the zone may have been another one when the window was
 * recorded. */
static bool fixed_sound(const struct weir_algorithm_rule *rule,
                        const uint64_t *state, weir_instant latest)
{
    int64_t last = index_at(rule, latest + 2 * 86400 * WEIR_SECOND);
    return (int64_t)state[0] >= 0 && (int64_t)state[0] <= last &&
           weir_quantity_holds(rule, state[1]);
}

const struct weir_algorithm_family weir_algorithm_fixed = {
    .check = fixed_check,
    .size = fixed_size,
    .sound = fixed_sound,
    .step = fixed_step,
    .charge = fixed_charge,
    .carry = fixed_carry,
    .idle_at = fixed_idle_at,
};
