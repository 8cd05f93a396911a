/* SPDX-License-Identifier: MIT
 * quota/units.c - limits, bursts, durations and units as people write them, and
 * limits as units a second.
 *
 * Everything is an exact rational from the first digit on, without floating
 * point, because a value must be shown as it was entered and a limit must mean
 * the same on every machine:
 *
 *     1.5 Mi B / 10 min
 *     |   |  |   |  '- period: a fixed number of nanoseconds
 *     |   |  |   '- how many of them
 *     |   |  '- ignored
 *     |   '- factor
 *     '- digits over a power of ten
 *
 *     (15 x 2^20) / 10 units every 10 min, reduced: 1572864 units / 10 min
 *
 * A remaining fraction moves into the period ("1.5/s" is 3 every 2 s), so a
 * limit is two integers. The period itself is not reduced against the units: to
 * a reader, 60/min means something else than 1/s.
 *
 * Numbers have at most NUMBER_DIGITS digits, so that they stay below 2^128 when
 * multiplied by the longest period (3.2 x 10^16 ns). */

#include "core/quota/quota.h"

#include <string.h>

#include "core/quota/quota_text.h"

#define NUMBER_DIGITS 22

/* num / den, reduced. */
struct number {
    weir_u128 num;
    weir_u128 den;
};

struct scale {
    const char *name;
    uint64_t value;
};

#define KIBI 1024ull
#define US 1000ull
#define MS 1000000ull
#define MINUTE (60 * WEIR_SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define WEEK (7 * DAY)
#define MONTH (30 * DAY)

static const struct scale factors[] = {
    { "", 1 },
    { "k", 1000 },
    { "K", 1000 },
    { "M", 1000000 },
    { "G", 1000000000 },
    { "T", 1000000000000 },
    { "Ki", KIBI },
    { "ki", KIBI },
    { "Mi", KIBI *KIBI },
    { "Gi", KIBI *KIBI *KIBI },
    { "Ti", KIBI *KIBI *KIBI *KIBI },
};

static const struct scale periods[] = {
    { "ns", 1 },
    { "us", US },
    { "\xC2\xB5s", US },
    { "ms", MS },
    { "s", WEIR_SECOND },
    { "sec", WEIR_SECOND },
    { "second", WEIR_SECOND },
    { "m", MINUTE },
    { "min", MINUTE },
    { "minute", MINUTE },
    { "h", HOUR },
    { "hour", HOUR },
    { "d", DAY },
    { "day", DAY },
    { "w", WEEK },
    { "week", WEEK },
    { "month", MONTH },
};

/* As printed, largest first; 'day' stands alone, '2d' with a count. */
static const struct scale printed[] = {
    { "w", WEEK },        { "d", DAY }, { "h", HOUR }, { "min", MINUTE },
    { "s", WEIR_SECOND }, { "ms", MS }, { "us", US },  { "ns", 1 },
};

static weir_u128 common_divisor(weir_u128 a, weir_u128 b)
{
    while (b != 0) {
        weir_u128 rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static struct number reduced(weir_u128 num, weir_u128 den)
{
    weir_assert(den > 0);
    weir_u128 divisor = common_divisor(num, den);
    return (struct number){ num / divisor, den / divisor };
}

static const struct scale *find_unit_scale(const struct scale *scales,
                                           size_t count, struct weir_text name)
{
    for (size_t i = 0; i < count; i++) {
        if (weir_text_equal(weir_text_of(scales[i].name), name))
            return &scales[i];
    }
    return NULL;
}

static const struct scale *find_period(struct weir_text name)
{
    return find_unit_scale(periods, WEIR_COUNT_OF(periods), name);
}

/* "MiB", "k", "B", "". */
static const struct scale *find_factor(struct weir_text name)
{
    if (name.len > 0 && name.p[name.len - 1] == 'B')
        name.len--;
    return find_unit_scale(factors, WEIR_COUNT_OF(factors), name);
}

static bool begins_with_word(struct weir_text text, const char *word)
{
    size_t len = strlen(word);
    if (text.len < len)
        return false;
    for (size_t i = 0; i < len; i++) {
        if ((text.p[i] | 0x20) != word[i])
            return false;
    }
    return true;
}

/* Sets the message for a text that doesn't begin with a number. */
static int refuse_no_number(struct weir_text text, const char *what,
                            struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    weir_text_show(text, shown);
    if (text.len == 0)
        return weir_diag_set(diag, WEIR_EQUOTA, "the ", what,
                             " is empty; write a number", NULL);
    if (text.p[0] == '-')
        return weir_diag_set(diag, WEIR_EQUOTA, shown, " is negative; the ",
                             what, " must be 0 or more", NULL);
    if (begins_with_word(text, "nan"))
        return weir_diag_set(diag, WEIR_EQUOTA, shown, " is not a number; ",
                             "write the ", what, " in digits", NULL);
    if (begins_with_word(text, "inf"))
        return weir_diag_set(diag, WEIR_EQUOTA, shown, " is not a number; ",
                             "for no limit at all write limit=unlimited", NULL);
    return weir_diag_set(diag, WEIR_EQUOTA, shown, " doesn't begin with a ",
                         "number; write the ", what, " in digits", NULL);
}

/* Takes "12.5" off the front of 'text'. */
static int take_decimal(struct weir_text *text, const char *what,
                        struct number *out, struct weir_diag *diag)
{
    weir_u128 num = 0;
    weir_u128 den = 1;
    size_t digits = 0;
    bool point = false;
    size_t at = 0;
    for (; at < text->len; at++) {
        char c = text->p[at];
        if (c == '.' && !point) {
            point = true;
            continue;
        }
        if (c < '0' || c > '9')
            break;
        if (++digits > NUMBER_DIGITS)
            return weir_diag_set(diag, WEIR_EQUOTA, "the ", what,
                                 " has more than 22 digits", NULL);
        num = num * 10 + (weir_u128)(c - '0');
        den *= point ? 10 : 1;
    }
    if (digits == 0)
        return refuse_no_number(*text, what, diag);
    *out = reduced(num, den);
    *text = weir_text_trim(weir_text_drop(*text, at));
    return 0;
}

static int refuse_factor(struct weir_text name, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA, weir_text_show(name, shown),
                         " is no factor that Weir knows; write k M G T or "
                         "Ki Mi Gi Ti, with or without a B",
                         NULL);
}

static int refuse_period(struct weir_text name, struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EQUOTA, weir_text_show(name, shown),
                         " is no period that Weir knows; write ns us ms s "
                         "min h day w or month",
                         NULL);
}

/* number x unit in whole nanoseconds. */
static int whole_duration(struct number number, uint64_t unit,
                          weir_duration *out, struct weir_diag *diag)
{
    weir_assert(number.den > 0 && unit <= MONTH);
    weir_u128 product = number.num * unit;
    if (product % number.den != 0)
        return weir_diag_put(diag, WEIR_EQUOTA,
                             "a duration is finer than a nanosecond");
    product /= number.den;
    if (product > UINT64_MAX)
        return weir_diag_put(diag, WEIR_EQUOTA,
                             "a duration is longer than 584 years");
    *out = (weir_duration)product;
    return 0;
}

int weir_duration_parse(struct weir_text text, weir_duration *out,
                        struct weir_diag *diag)
{
    struct weir_text rest = weir_text_trim(text);
    struct number number;
    int error = take_decimal(&rest, "duration", &number, diag);
    if (error < 0)
        return error;
    char shown[WEIR_SHOW_MAX];
    if (rest.len == 0)
        return weir_diag_set(diag, WEIR_EQUOTA, weir_text_show(text, shown),
                             " has no unit; write it as 20ms, 1.5s or 2min",
                             NULL);
    const struct scale *unit = find_period(rest);
    if (!unit)
        return refuse_period(rest, diag);
    return whole_duration(number, unit->value, out, diag);
}

/* Decimals of a fraction 'rest' / 'unit' ('unit' is a power of ten), without
 * trailing zeros. */
static void out_fraction(struct weir_out *out, uint64_t rest, uint64_t unit)
{
    weir_assert(rest < unit);
    if (rest == 0)
        return;
    weir_out_string(out, ".");
    for (; rest > 0; rest %= unit) {
        unit /= 10;
        weir_assert(unit > 0);
        weir_out_number(out, rest / unit);
    }
}

size_t weir_duration_format(weir_duration duration, char *buf, size_t size)
{
    struct weir_out out = { buf, size, 0 };
    const struct scale *scale = printed;
    if (duration == 0 || duration % WEIR_SECOND != 0) {
        /* seconds and below carry decimals: 1.5s, 2.25ms */
        while (scale->value > WEIR_SECOND)
            scale++;
        while (scale->value > duration && duration > 0)
            scale++;
    }
    while (duration % scale->value != 0 && scale->value > WEIR_SECOND)
        scale++;
    weir_out_number(&out, duration / scale->value);
    out_fraction(&out, duration % scale->value, scale->value);
    weir_out_string(&out, scale->name);
    return out.len;
}

int weir_ratio_parse(struct weir_text text, uint32_t *out,
                     struct weir_diag *diag)
{
    struct weir_text rest = weir_text_trim(text);
    struct number number;
    int error = take_decimal(&rest, "factor", &number, diag);
    if (error < 0)
        return error;
    char shown[WEIR_SHOW_MAX];
    weir_text_show(text, shown);
    if (rest.len > 0 || number.num == 0 || number.num > number.den)
        return weir_diag_set(
            diag, WEIR_EQUOTA, shown,
            " is no factor above 0 and at most 1; write it as 0.5", NULL);
    weir_u128 ratio = number.num * WEIR_DECAY_ONE;
    if (ratio % number.den != 0)
        return weir_diag_set(diag, WEIR_EQUOTA, shown,
                             " has more than 9 decimals", NULL);
    *out = (uint32_t)(ratio / number.den);
    weir_assert(*out > 0 && *out <= WEIR_DECAY_ONE);
    return 0;
}

size_t weir_ratio_format(uint32_t ratio, char *buf, size_t size)
{
    struct weir_out out = { buf, size, 0 };
    weir_out_number(&out, ratio / WEIR_DECAY_ONE);
    out_fraction(&out, ratio % WEIR_DECAY_ONE, WEIR_DECAY_ONE);
    return out.len;
}

#define DECIMAL_MAX (1ull << 53) /* a double's integers */

int weir_decimal_parse(struct weir_text text, const char *what, uint64_t *out,
                       struct weir_diag *diag)
{
    struct weir_text rest = weir_text_trim(text);
    struct number number;
    int error = take_decimal(&rest, what, &number, diag);
    if (error < 0)
        return error;
    char shown[WEIR_SHOW_MAX];
    weir_text_show(text, shown);
    if (rest.len > 0 || number.num == 0)
        return weir_diag_set(diag, WEIR_EQUOTA, shown, " is no ", what,
                             " above 0; write it as 40 or 0.5", NULL);
    weir_u128 decimal = number.num * WEIR_DECIMAL_ONE;
    if (decimal % number.den != 0 || decimal / number.den > DECIMAL_MAX)
        return weir_diag_set(diag, WEIR_EQUOTA, shown,
                             " has more than 4 decimals, or is above 10^11",
                             NULL);
    *out = (uint64_t)(decimal / number.den);
    weir_assert(*out > 0);
    return 0;
}

size_t weir_decimal_format(uint64_t decimal, char *buf, size_t size)
{
    struct weir_out out = { buf, size, 0 };
    weir_out_number(&out, decimal / WEIR_DECIMAL_ONE);
    out_fraction(&out, decimal % WEIR_DECIMAL_ONE, WEIR_DECIMAL_ONE);
    return out.len;
}

/* Indexed by enum weir_calendar. */
static const struct scale calendars[] = {
    { "", 0 },      { "minute", MINUTE }, { "hour", HOUR },
    { "day", DAY }, { "week", WEEK },     { "month", MONTH },
};

weir_duration weir_calendar_length(enum weir_calendar calendar)
{
    weir_assert((size_t)calendar < WEIR_COUNT_OF(calendars));
    return calendars[calendar].value;
}

int weir_window_parse(struct weir_text text, struct weir_window *out,
                      struct weir_diag *diag)
{
    struct weir_window window = { 0 };
    const struct scale *calendar = find_unit_scale(
        calendars, WEIR_COUNT_OF(calendars), weir_text_trim(text));
    if (calendar && calendar->value > 0) {
        window.calendar = (enum weir_calendar)(calendar - calendars);
    } else {
        int error = weir_duration_parse(text, &window.length, diag);
        if (error < 0)
            return error;
    }
    *out = window;
    return 0;
}

size_t weir_window_format(const struct weir_window *window, char *buf,
                          size_t size)
{
    if (window->calendar == WEIR_CALENDAR_NONE)
        return weir_duration_format(window->length, buf, size);
    weir_assert((size_t)window->calendar < WEIR_COUNT_OF(calendars));
    struct weir_out out = { buf, size, 0 };
    weir_out_string(&out, calendars[window->calendar].name);
    return out.len;
}

/* Whole units: number x factor, at most 'max'. */
static int whole_units(struct weir_text text, const char *what, uint64_t max,
                       uint64_t *out, struct weir_diag *diag)
{
    struct weir_text rest = weir_text_trim(text);
    struct number number;
    int error = take_decimal(&rest, what, &number, diag);
    if (error < 0)
        return error;
    const struct scale *factor = find_factor(rest);
    if (!factor)
        return refuse_factor(rest, diag);
    char shown[WEIR_SHOW_MAX];
    weir_text_show(text, shown);
    weir_u128 product = number.num * factor->value;
    if (product % number.den != 0)
        return weir_diag_set(diag, WEIR_EQUOTA, shown,
                             " isn't a whole number of units", NULL);
    product /= number.den;
    char bound[WEIR_NUMBER_MAX];
    if (product > max)
        return weir_diag_set(diag, WEIR_EQUOTA, shown, " is too much; the ",
                             what, " may be ", weir_number_show(max, bound),
                             " at most", NULL);
    *out = (uint64_t)product;
    return 0;
}

int weir_units_parse(struct weir_text text, uint64_t *out,
                     struct weir_diag *diag)
{
    return whole_units(text, "number of units", UINT64_MAX, out, diag);
}

/* Millions upwards take a factor; below, digits are easier to read. */
static void out_units(struct weir_out *out, uint64_t units)
{
    static const struct scale nice[] = {
        { "T", 1000000000000 },
        { "G", 1000000000 },
        { "M", 1000000 },
        { "TiB", KIBI * KIBI * KIBI * KIBI },
        { "GiB", KIBI * KIBI * KIBI },
        { "MiB", KIBI * KIBI },
        { "", 1 },
    };
    size_t i = 0;
    while (nice[i].value > 1 && (units == 0 || units % nice[i].value != 0))
        i++;
    weir_out_number(out, units / nice[i].value);
    weir_out_string(out, nice[i].name);
}

int weir_burst_parse(struct weir_text text, struct weir_burst *out,
                     struct weir_diag *diag)
{
    struct weir_text rest = weir_text_trim(text);
    struct number number;
    int error = take_decimal(&rest, "burst", &number, diag);
    if (error < 0)
        return error;
    struct weir_burst burst = { .in_time = find_period(rest) != NULL };
    if (!burst.in_time && !find_factor(rest)) {
        char shown[WEIR_SHOW_MAX];
        return weir_diag_set(diag, WEIR_EQUOTA, weir_text_show(rest, shown),
                             " is neither a factor (k M G Ki Mi Gi) nor a "
                             "duration (ms s min h)",
                             NULL);
    }
    if (!burst.in_time) {
        error = whole_units(text, "burst", WEIR_BURST_MAX, &burst.amount, diag);
    } else {
        error = weir_duration_parse(text, &burst.amount, diag);
        if (error == 0 && burst.amount > WEIR_PERIOD_MAX)
            error =
                weir_diag_put(diag, WEIR_EQUOTA,
                              "a burst may be 366 days of the limit at most");
    }
    if (error < 0)
        return error;
    *out = burst;
    return 0;
}

size_t weir_burst_format(const struct weir_burst *burst, char *buf, size_t size)
{
    if (burst->in_time)
        return weir_duration_format(burst->amount, buf, size);
    struct weir_out out = { buf, size, 0 };
    out_units(&out, burst->amount);
    return out.len;
}

/* "s", "10s", "1.5min". */
static int parse_period(struct weir_text text, weir_duration *out,
                        struct weir_diag *diag)
{
    if (text.len == 0)
        return weir_diag_put(
            diag, WEIR_EQUOTA,
            "the period after '/' is missing; write 100/s or 5/min");
    struct number count = { 1, 1 };
    struct weir_text rest = text;
    if (memchr("0123456789.-", text.p[0], 12)) {
        int error = take_decimal(&rest, "period", &count, diag);
        if (error < 0)
            return error;
    }
    const struct scale *unit = find_period(rest);
    if (!unit)
        return refuse_period(rest, diag);
    weir_duration period = 0;
    int error = whole_duration(count, unit->value, &period, diag);
    if (error < 0)
        return error;
    if (period == 0 || period > WEIR_PERIOD_MAX)
        return weir_diag_put(diag, WEIR_EQUOTA,
                             "the period of a limit may be 1 ns to 366 days");
    *out = period;
    return 0;
}

/* units x (number / period), every bound checked. */
static int make_limit(struct weir_text text, struct number units,
                      weir_duration period, struct weir_limit *out,
                      struct weir_diag *diag)
{
    char shown[WEIR_SHOW_MAX];
    weir_text_show(text, shown);
    weir_assert(period > 0 && period <= WEIR_PERIOD_MAX);
    weir_u128 per = units.den * period;
    bool huge = units.num > UINT64_MAX;
    if (!huge && per > WEIR_PERIOD_MAX)
        return weir_diag_set(diag, WEIR_EQUOTA, shown,
                             " can't be kept exactly; write whole units over a "
                             "longer period, as in 3/2s",
                             NULL);
    if (huge || units.num * WEIR_SECOND > WEIR_LIMIT_MAX * per)
        return weir_diag_set(diag, WEIR_EQUOTA, shown,
                             " is above 100G/s, the highest limit there is; "
                             "for no limit at all write unlimited",
                             NULL);
    *out = (struct weir_limit){ .units = (uint64_t)units.num,
                                .per = (weir_duration)per };
    return 0;
}

int weir_bound_parse(struct weir_text text, struct weir_limit *out,
                     struct weir_diag *diag)
{
    bool alone = text.len > 0 && !weir_text_has(text, '/');
    uint64_t units = 0;
    if (!alone || weir_text_equal(weir_text_trim(text), WEIR_TEXT("unlimited")))
        return weir_limit_parse(text, out, diag);
    int error = whole_units(text, "limit", WEIR_BURST_MAX, &units, diag);
    if (error < 0)
        return error;
    *out = (struct weir_limit){ .units = units,
                                .per = units > 0 ? 0 : WEIR_SECOND };
    return 0;
}

int weir_limit_parse(struct weir_text text, struct weir_limit *out,
                     struct weir_diag *diag)
{
    text = weir_text_trim(text);
    if (weir_text_equal(text, WEIR_TEXT("unlimited"))) {
        *out = (struct weir_limit){ .per = WEIR_SECOND, .unlimited = true };
        return 0;
    }
    struct weir_text rest = text;
    struct number units;
    int error = take_decimal(&rest, "limit", &units, diag);
    if (error < 0)
        return error;
    struct weir_text after = rest;
    struct weir_text name = weir_text_cut(&after, '/');
    const struct scale *factor = find_factor(weir_text_trim(name));
    if (!factor)
        return refuse_factor(name, diag);
    weir_duration period = WEIR_SECOND;
    char shown[WEIR_SHOW_MAX];
    if (!after.p && units.num > 0)
        return weir_diag_set(diag, WEIR_EQUOTA, weir_text_show(text, shown),
                             " has no period; write it as 100/s or 5/min",
                             NULL);
    if (after.p) {
        error = parse_period(weir_text_trim(after), &period, diag);
        if (error < 0)
            return error;
    }
    units = reduced(units.num * factor->value, units.den);
    return make_limit(text, units, period, out, diag);
}

size_t weir_limit_format(const struct weir_limit *limit, char *buf, size_t size)
{
    struct weir_out out = { buf, size, 0 };
    if (limit->unlimited) {
        weir_out_string(&out, "unlimited");
        return out.len;
    }
    out_units(&out, limit->units);
    if (limit->per == 0 || (limit->units == 0 && limit->per == WEIR_SECOND))
        return out.len;
    const struct scale *scale = printed;
    while (limit->per % scale->value != 0)
        scale++;
    weir_out_string(&out, "/");
    if (limit->per == DAY) {
        weir_out_string(&out, "day");
        return out.len;
    }
    if (limit->per != scale->value)
        weir_out_number(&out, limit->per / scale->value);
    weir_out_string(&out, scale->name);
    return out.len;
}

/* ---- Limits as units a second, for lease pools ----
 *
 * A limit is two integers; the capacity of a lease pool and of a Doorman file
 * is a double. From a limit to a double is one division, rounded once: num /
 * den is taken to 64 bits and a sticky one, which a conversion then rounds to
 * the nearest double.
 *
 *     units x 10^9 << s
 *     -----------------  =  1xxxxx…xxx|y  x 2^-s
 *           per
 *
 * The way back finds, of all limits that this division turns into 'rate', the
 * one that a person would have written: digits over a power of ten, if that
 * gives 'rate' again; else the simplest fraction of units over nanoseconds, by
 * the convergents of Euclid's algorithm. One of these always gives 'rate'
 * again, if the rate isn't below one unit in the longest period P: the last
 * convergent p/q with q <= P is off by less than 1 / (q x P), so relatively by
 * less than 1 / (p x P) <= 2^-54.8, and half of a double's last place is 2^-54
 * at least. */

/* num / den to the nearest double. 'num' > 0, 'den' 1 .. WEIR_PERIOD_MAX, so
 * that the quotient of 'num' shifted to the left end has 64 bits. */
static double divided(weir_u128 num, uint64_t den)
{
    weir_assert(num > 0 && den > 0 && den <= WEIR_PERIOD_MAX);
    int shift = 0;
    for (; !(num >> 127); shift++)
        num <<= 1;
    weir_u128 quotient = num / den;
    bool sticky = num % den != 0;
    for (; quotient >> 64; shift--) {
        sticky |= quotient & 1;
        quotient >>= 1;
    }
    uint64_t bits = (uint64_t)(1023 - shift) << 52; /* 2^-shift */
    double power;
    memcpy(&power, &bits, sizeof(power));
    return (double)((uint64_t)quotient | sticky) * power;
}

double weir_limit_rate(const struct weir_limit *limit)
{
    if (limit->unlimited)
        return (double)WEIR_LIMIT_MAX;
    if (limit->units == 0)
        return 0;
    weir_assert(limit->per > 0 && limit->per <= WEIR_PERIOD_MAX);
    return divided((weir_u128)limit->units * WEIR_SECOND, limit->per);
}

#define SECONDS_MAX 10000000u /* the largest power of ten in a period */
#define EXACT_MAX (1ull << 53)

/* As digits over a power of ten seconds. */
static bool as_decimal(double rate, struct weir_limit *out)
{
    weir_assert(rate > 0 && rate <= (double)WEIR_LIMIT_MAX);
    for (uint32_t ten = 1; ten <= SECONDS_MAX; ten *= 10) {
        double scaled = rate * ten + 0.5;
        if (scaled >= (double)EXACT_MAX)
            return false;
        uint64_t units = (uint64_t)scaled;
        if ((double)units / ten != rate)
            continue;
        struct number number = reduced(units, ten);
        *out = (struct weir_limit){
            .units = (uint64_t)number.num,
            .per = (weir_duration)number.den * WEIR_SECOND,
        };
        return true;
    }
    return false;
}

/* As a fraction of units over nanoseconds: num / den is the rate's, exactly. */
static bool as_fraction(double rate, struct weir_limit *out)
{
    uint64_t bits;
    memcpy(&bits, &rate, sizeof(bits));
    /* 2^-25 < rate <= 2^37, so that 'den' has 107 bits at most */
    unsigned down = 1075 - (unsigned)(bits >> 52);
    weir_assert(down >= 15 && down <= 77);
    weir_u128 num = (bits & (EXACT_MAX / 2 - 1)) | EXACT_MAX / 2;
    weir_u128 den = (weir_u128)WEIR_SECOND << down;
    weir_u128 p[2] = { 0, 1 }; /* the convergents before */
    weir_u128 q[2] = { 1, 0 };
    while (den > 0) {
        weir_u128 times = num / den;
        if (q[1] > 0 && times > (WEIR_PERIOD_MAX - q[0]) / q[1])
            return false;
        weir_u128 next_p = times * p[1] + p[0];
        weir_u128 next_q = times * q[1] + q[0];
        struct weir_limit limit = { .units = (uint64_t)next_p,
                                    .per = (weir_duration)next_q };
        if (weir_limit_rate(&limit) == rate) {
            *out = limit;
            return true;
        }
        p[0] = p[1], p[1] = next_p;
        q[0] = q[1], q[1] = next_q;
        weir_u128 rest = num % den;
        num = den;
        den = rest;
    }
    return false;
}

int weir_limit_of_rate(double rate, struct weir_limit *out)
{
    const struct weir_limit most = { .units = WEIR_LIMIT_MAX,
                                     .per = WEIR_SECOND };
    const struct weir_limit least = { .units = 1, .per = WEIR_PERIOD_MAX };
    const struct weir_limit none = { .per = WEIR_SECOND };
    if (!(rate >= 0) || rate - rate != 0) /* NaN; infinite */
        return WEIR_EINVAL;
    if (rate > (double)WEIR_LIMIT_MAX) {
        *out = most;
        return 1;
    }
    if (rate == 0) {
        *out = none;
        return 0;
    }
    if (rate < weir_limit_rate(&least)) {
        *out = rate * 2 < weir_limit_rate(&least) ? none : least;
        return 1;
    }
    if (!as_decimal(rate, out)) {
        bool found = as_fraction(rate, out);
        weir_assert(found); /* see above */
    }
    return 0;
}
