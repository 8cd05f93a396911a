/* SPDX-License-Identifier: MIT
 * algorithm/algorithm_calendar.c - the number of a minute, hour, day, week or
 * month.
 *
 * All but months have a fixed length, and begin a fixed number of nanoseconds
 * before a multiple of it. Months are counted from January 1970. The beginning
 * of a month is a sum of days. The month of a day is estimated from the mean
 * length of a month, at most one too low, and corrected by one comparison.
 * Proleptic Gregorian; no leap seconds, as in every Unix clock. */

#include "core/algorithm/algorithm_internal.h"

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

/* When a zone's clock is set by whole minutes or hours, these windows follow
 * each other: they use only the rest of the offset, so that none comes
 * twice. */
int64_t weir_calendar_offset(enum weir_calendar calendar, int32_t utc_offset_s)
{
    int64_t offset = utc_offset_s * (int64_t)WEIR_SECOND;
    if (calendar != WEIR_CALENDAR_MINUTE && calendar != WEIR_CALENDAR_HOUR)
        return offset;
    int64_t length = calendar_length(calendar);
    return offset - quotient(offset, length) * length;
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
    return month_day(month + 1) <= day ? month + 1 : month;
}

int64_t weir_calendar_index(enum weir_calendar calendar, int64_t local)
{
    if (calendar == WEIR_CALENDAR_MONTH)
        return month_of(local);
    return quotient(local + begun_before(calendar), calendar_length(calendar));
}

int64_t weir_calendar_start(enum weir_calendar calendar, int64_t index)
{
    if (calendar == WEIR_CALENDAR_MONTH)
        return month_day(index) * DAY;
    return index * calendar_length(calendar) - begun_before(calendar);
}
