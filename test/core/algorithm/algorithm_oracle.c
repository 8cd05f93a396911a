/* SPDX-License-Identifier: MIT
 * test/core/algorithm/algorithm_oracle.c - the right answers of bucket states,
 * computed from all requests so far. */

#include "algorithm_oracle.h"
#include "compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

void oracle_init(struct oracle *oracle, const struct told *told)
{
    *oracle = (struct oracle){ .told = told };
}

void oracle_fini(struct oracle *oracle)
{
    free(oracle->events);
}

static bool asks(const struct weir_algorithm_ask *ask)
{
    return ask->op == WEIR_ALGORITHM_TAKE || ask->op == WEIR_ALGORITHM_PEEK ||
           ask->op == WEIR_ALGORITHM_RESERVE;
}

static bool is_window(enum weir_algorithm algorithm)
{
    return algorithm == WEIR_FIXED_WINDOW || algorithm == WEIR_SLIDING_LOG ||
           algorithm == WEIR_SLIDING_WINDOW;
}

/* ---- Buckets ----
 *
 * A level is fill * per: then a leak is units * time, and nothing is ever
 * rounded. */

/* The error of the product's sums, in scaled units, at most: two sums, each
 * rounded down, differ by one, and a bucket that spills passes its error on. */
static weir_i128 grains_of(const struct oracle *o, unsigned k)
{
    weir_i128 grains = 2 + o->detached[k];
    for (; o->told->rates[k].spill; k--)
        grains += 2;
    return grains;
}

/* A refund emptied bucket k. The product's error is gone from that bucket's
 * level, but not from its overflow: the buckets that it feeds have the same
 * error from now on. */
static void emptied(struct oracle *o, unsigned k)
{
    if (o->exact[k])
        return;
    weir_i128 grains = grains_of(o, k);
    for (k++; k < o->told->rule.buckets && o->told->rates[k].spill; k++)
        o->detached[k] += grains;
}

static bool within_grain(const struct oracle *o, unsigned k, weir_i128 level)
{
    unsigned frac = o->told->rule.bucket[k].bucket.leak.frac;
    weir_i128 grain = o->told->rates[k].per * grains_of(o, k);
    weir_i128 size = level < 0 ? -level : level;
    /* For large levels the shift would overflow. */
    return size <= grain && size << frac <= grain;
}

static weir_i128 of_units(const struct oracle *o, unsigned k, uint64_t units)
{
    return (weir_i128)units * o->told->rates[k].per;
}

static weir_i128 first_level(const struct oracle *o)
{
    const struct weir_algorithm_rule *rule = &o->told->rule;
    if (rule->algorithm != WEIR_TOKEN_BUCKET || rule->initial < 0)
        return 0;
    return of_units(o, 0, o->told->rates[0].burst) -
           of_units(o, 0, (uint64_t)rule->initial);
}

/* The levels at 'now', and which of them the product has to the last scaled
 * unit: whole units came when the bucket was surely empty, and no time has
 * passed since; or it surely is empty. */
static void levels_at(struct oracle *o, weir_i128 *level, weir_instant now)
{
    weir_i128 elapsed = (weir_i128)now - (weir_i128)o->at;
    weir_i128 over = 0;
    for (unsigned k = 0; k < o->told->rule.buckets; k++) {
        const struct weir_algorithm_rate *rate = &o->told->rates[k];
        level[k] = o->begun || k > 0 ? o->level[k] : first_level(o);
        o->exact[k] = !o->begun || (o->stored_exact[k] && elapsed == 0);
        if (!o->begun || level[k] < 0)
            continue; /* time does nothing to units above the burst */
        level[k] -= rate->spill ? over : elapsed * rate->units;
        o->exact[k] |= level[k] < 0 && !within_grain(o, k, level[k]);
        over = level[k] < 0 ? -level[k] : 0;
        level[k] = level[k] < 0 ? 0 : level[k];
    }
}

static void levels_store(struct oracle *o, const weir_i128 *level,
                         weir_instant now)
{
    o->begun = true;
    o->at = now;
    for (unsigned k = 0; k < o->told->rule.buckets; k++) {
        o->level[k] = level[k];
        o->stored_exact[k] = o->exact[k];
        o->detached[k] = o->exact[k] ? 0 : o->detached[k];
    }
}

static weir_i128 added(const struct oracle *o, unsigned k, weir_i128 level,
                       uint64_t weight)
{
    weir_i128 top = of_units(o, k, o->told->rates[k].burst + WEIR_DEBT_MAX);
    weir_i128 sum = level + of_units(o, k, weight);
    if (level >= top)
        return level;
    return sum < top ? sum : top;
}

/* At most 0 if bucket k lets 'ask' pass. */
static weir_i128 excess_of(const struct oracle *o, unsigned k,
                           const weir_i128 *level,
                           const struct weir_algorithm_ask *ask)
{
    uint64_t burst = o->told->rates[k].burst;
    weir_i128 reserve = 0;
    weir_i128 excess =
        level[k] + of_units(o, k, ask->weight) - of_units(o, k, burst);
    weir_i128 bound = excess - of_units(o, k, WEIR_DEBT_MAX);
    if (o->told->rule.algorithm == WEIR_LEAKY_QUEUE) {
        excess = level[k];
        bound = level[k] - of_units(o, k, burst);
    }
    if (ask->op == WEIR_ALGORITHM_RESERVE &&
        o->told->rule.algorithm != WEIR_TOKEN_BUCKETS)
        reserve = (weir_i128)ask->wait_max * o->told->rates[k].units;
    excess -= reserve;
    return reserve > 0 && bound > excess ? bound : excess;
}

/* Checks 'got': the bucket that pays; 'buckets' for none. */
static unsigned payer_of(struct oracle *o, const weir_i128 *level,
                         const struct weir_algorithm_ask *ask,
                         const struct weir_algorithm_answer *got)
{
    unsigned count = o->told->rule.buckets;
    unsigned said = got->passed ? got->level : count;
    struct weir_algorithm_ask take = *ask;
    take.op = WEIR_ALGORITHM_TAKE;
    for (unsigned k = 0; k < count; k++) {
        bool fits = ask->weight <= o->told->rates[k].burst;
        /* A weight above the burst of a token bucket passes only if the bucket
         * holds more than its burst: now or never. */
        if (!fits && (level[k] >= 0 || excess_of(o, k, level, &take) > 0))
            continue;
        weir_i128 excess = excess_of(o, k, level, ask);
        bool waits = ask->op == WEIR_ALGORITHM_RESERVE && ask->wait_max > 0;
        if ((!o->exact[k] || waits) && within_grain(o, k, excess)) {
            o->doubts++;
            if (k == said)
                return k;
            continue;
        }
        if (excess <= 0)
            return k;
    }
    return count;
}

static bool never_fits(const struct oracle *o, const weir_i128 *level,
                       uint64_t weight)
{
    for (unsigned k = 0; k < o->told->rule.buckets; k++)
        if (weight <= o->told->rates[k].burst)
            return false;
    return level[0] >= 0 ||
           of_units(o, 0, weight) >
               of_units(o, 0, o->told->rates[0].burst) - level[0];
}

/* 'used' are the levels in units, rounded up; 'remaining' is the room up to the
 * bursts, rounded down; each bucket by itself. */
static void check_levels(const struct oracle *o, const weir_i128 *level,
                         const struct weir_algorithm_answer *got)
{
    bool queue = o->told->rule.algorithm == WEIR_LEAKY_QUEUE;
    int64_t used_min = 0;
    int64_t used_max = 0;
    uint64_t room_min = 0;
    uint64_t room_max = 0;
    for (unsigned k = 0; k < o->told->rule.buckets; k++) {
        weir_i128 per = o->told->rates[k].per;
        weir_i128 high = of_units(o, k, o->told->rates[k].burst);
        unsigned frac = o->told->rule.bucket[k].bucket.leak.frac;
        weir_i128 grain = (per * grains_of(o, k) >> frac) + 1;
        grain = o->exact[k] ? 0 : grain;
        weir_i128 least = level[k] - (level[k] < 0 ? 0 : grain);
        weir_i128 most = level[k] + (level[k] < 0 ? 0 : grain);
        least = least < 0 && level[k] >= 0 ? 0 : least;
        used_min += (int64_t)((least + (least > 0 ? per - 1 : 0)) / per);
        used_max += (int64_t)((most + (most > 0 ? per - 1 : 0)) / per);
        room_max += least < high ? (uint64_t)((high - least) / per) : 0;
        room_min += most < high ? (uint64_t)((high - most) / per) : 0;
        if (queue && most > 0)
            room_min = 0;
        if (queue && least > 0)
            room_max = 0;
    }
    assert_compare(got->used, >=, used_min);
    assert_compare(got->used, <=, used_max);
    assert_compare(got->remaining, >=, room_min);
    assert_compare(got->remaining, <=, room_max);
}

/* A reserve's wait: exactly that long, to the nanosecond. */
static void check_wait(const struct oracle *o, const weir_i128 *level,
                       const struct weir_algorithm_ask *ask,
                       const struct weir_algorithm_answer *got)
{
    struct weir_algorithm_ask take = *ask;
    take.op = WEIR_ALGORITHM_TAKE;
    weir_i128 excess = excess_of(o, 0, level, &take);
    weir_i128 units = o->told->rates[0].units;
    weir_i128 after = excess - units * got->wait;
    assert_compare(got->wait, <=, ask->wait_max);
    assert_true(after <= 0 || within_grain(o, 0, after));
    if (got->wait > 0)
        assert_true(after + units > 0 || within_grain(o, 0, after + units));
}

static void bucket_check(struct oracle *o, const struct weir_algorithm_ask *ask,
                         const struct weir_algorithm_answer *got,
                         weir_instant now)
{
    weir_i128 level[WEIR_BUCKETS_MAX];
    levels_at(o, level, now);
    unsigned payer = payer_of(o, level, ask, got);
    bool pays = payer < o->told->rule.buckets;
    assert_int_equal(got->passed, pays || !asks(ask));
    assert_int_equal(got->never,
                     !got->passed && never_fits(o, level, ask->weight));
    if (ask->op == WEIR_ALGORITHM_RESERVE && pays && o->told->rule.buckets == 1)
        check_wait(o, level, ask, got);

    unsigned k = pays ? payer : 0;
    weir_i128 was = level[0];
    if (ask->op == WEIR_ALGORITHM_REFUND) {
        k = ask->level < o->told->rule.buckets ? ask->level : 0;
        weir_i128 empty = level[k] < 0 ? first_level(o) : 0;
        weir_i128 less = level[k] - of_units(o, k, ask->weight);
        was = level[k] - empty;
        level[k] = less > empty ? less : empty;
        /* If it isn't sure that units are in, giving them back is no change. */
        if (ask->weight > 0 && was > 0 &&
            (o->changed || !within_grain(o, k, was))) {
            if (less <= empty)
                emptied(o, k);
            levels_store(o, level, now);
        }
    } else if (got->passed && ask->op != WEIR_ALGORITHM_PEEK) {
        assert_int_equal(got->level, k);
        level[k] = added(o, k, level[k], ask->weight);
        if (ask->weight > 0)
            levels_store(o, level, now);
    }
    if (!o->begun && was > 0)
        levels_store(o, level, now); /* 'initial' below the burst */
    check_levels(o, level, got);
}

/* ---- Windows and the log ---- */

static int64_t civil_number(enum weir_calendar calendar, int64_t local)
{
    int64_t second = local / (int64_t)WEIR_SECOND;
    time_t clock = (time_t)(second - (local % (int64_t)WEIR_SECOND < 0));
    struct tm tm;
    gmtime_r(&clock, &tm);
    int64_t month = (tm.tm_year - 70) * 12 + tm.tm_mon;
    int64_t of_day = tm.tm_hour * 3600 + tm.tm_min * 60 + tm.tm_sec;
    int64_t day = (clock - of_day) / 86400;
    int64_t weekday = (tm.tm_wday + 6) % 7;
    switch (calendar) {
    case WEIR_CALENDAR_MINUTE:
        return day * 1440 + tm.tm_hour * 60 + tm.tm_min;
    case WEIR_CALENDAR_HOUR:
        return day * 24 + tm.tm_hour;
    case WEIR_CALENDAR_DAY:
        return day;
    case WEIR_CALENDAR_WEEK:
        return (day - weekday + 3) / 7; /* Mondays: 3 days before a 0 */
    case WEIR_CALENDAR_MONTH:
        return month;
    case WEIR_CALENDAR_NONE:
        break;
    }
    return 0;
}

/* A zone's offset, as far as its windows depend on it: a window of a minute
 * depends on the seconds alone, one of an hour on the minutes and seconds, and
 * neither on whole turns of the hand. */
static int64_t ahead_of(const struct weir_algorithm_rule *rule)
{
    int64_t turn = 0;
    int64_t ahead = rule->utc_offset_s;
    if (rule->calendar == WEIR_CALENDAR_MINUTE)
        turn = 60;
    if (rule->calendar == WEIR_CALENDAR_HOUR)
        turn = 3600;
    while (turn > 0 && ahead < 0)
        ahead += turn;
    while (turn > 0 && ahead >= turn)
        ahead -= turn;
    return ahead;
}

int64_t oracle_window(const struct weir_algorithm_rule *rule, weir_instant now)
{
    if (rule->calendar == WEIR_CALENDAR_NONE)
        return (int64_t)(now / rule->window);
    return civil_number(rule->calendar,
                        (int64_t)now + ahead_of(rule) * (int64_t)WEIR_SECOND);
}

/* The instant in n-ths of a nanosecond; n is 1 except for the sliding
 * window. */
static weir_i128 nths_of(const struct oracle *o, weir_instant now)
{
    const struct weir_algorithm_rule *rule = &o->told->rule;
    unsigned n = rule->algorithm == WEIR_SLIDING_WINDOW ? rule->sub_windows : 1;
    return (weir_i128)now * n;
}

static int64_t part_of(const struct oracle *o, weir_instant now)
{
    const struct weir_algorithm_rule *rule = &o->told->rule;
    if (rule->algorithm == WEIR_FIXED_WINDOW)
        return oracle_window(rule, now);
    return (int64_t)(nths_of(o, now) / rule->window);
}

/* True: some unit of the event may still count, at 'now' in 'part'. */
static bool is_live(const struct oracle *o, const struct event *event,
                    int64_t part, weir_instant now)
{
    const struct weir_algorithm_rule *rule = &o->told->rule;
    if (rule->algorithm == WEIR_FIXED_WINDOW)
        return event->part == part;
    if (rule->algorithm == WEIR_SLIDING_LOG)
        return now - event->at < rule->window;
    return event->part + rule->sub_windows >= part;
}

struct sight {
    weir_instant now; /* never before the newest entry of a log */
    int64_t part;     /* never before the newest known */
    uint64_t live;    /* units that still may count */
    uint64_t used;    /* units that do count, rounded up */
    size_t entries;   /* live events */
};

static void look(const struct oracle *o, struct sight *out, weir_instant now)
{
    const struct weir_algorithm_rule *rule = &o->told->rule;
    *out = (struct sight){ .now = now, .part = part_of(o, now) };
    weir_i128 nths = nths_of(o, now);
    bool log = rule->algorithm == WEIR_SLIDING_LOG;
    if (log && o->count > 0 && o->events[o->count - 1].at > now)
        out->now = o->events[o->count - 1].at;
    out->part = log ? 0 : out->part;
    if (!log && o->known > out->part) {
        out->part = o->known;
        nths = (weir_i128)o->known * rule->window;
    }
    weir_i128 fractions = 0; /* times the window */
    for (size_t i = o->count; i-- > 0;) {
        const struct event *event = &o->events[i];
        if (!is_live(o, event, out->part, out->now))
            break;
        out->live += event->units;
        out->entries++;
        if (rule->algorithm == WEIR_SLIDING_WINDOW &&
            event->part + rule->sub_windows == out->part)
            fractions += (((weir_i128)out->part + 1) * rule->window - nths) *
                         event->units;
        else
            out->used += event->units;
    }
    out->used += (uint64_t)((fractions + rule->window - 1) / rule->window);
}

static bool has_place(const struct oracle *o, const struct sight *sight)
{
    return o->told->rule.algorithm != WEIR_SLIDING_LOG ||
           sight->entries < o->told->rule.entries;
}

static void count_units(struct oracle *o, const struct sight *sight,
                        uint64_t units)
{
    uint64_t top = o->told->rule.quantity + WEIR_DEBT_MAX;
    uint64_t left = top - sight->live;
    units = units < left ? units : left;
    if (units == 0)
        return;
    o->known = sight->part;
    if (!has_place(o, sight)) {
        o->events[o->count - 1].units += units;
        o->events[o->count - 1].at = sight->now;
        return;
    }
    if (o->count == o->room) {
        o->room = o->room ? 2 * o->room : 64;
        o->events = realloc(o->events, o->room * sizeof(*o->events));
        assert_non_null(o->events);
    }
    o->events[o->count++] =
        (struct event){ .at = sight->now, .part = sight->part, .units = units };
}

static void give_units(struct oracle *o, const struct sight *sight,
                       uint64_t units)
{
    if (units == 0 || sight->live == 0)
        return;
    o->known = sight->part;
    /* Events that no longer count are dropped, also in case a clock goes
     * back. */
    size_t dead = 0;
    while (!is_live(o, &o->events[dead], sight->part, sight->now))
        dead++;
    o->count -= dead;
    memmove(o->events, o->events + dead, o->count * sizeof(*o->events));
    while (units > 0 && o->count > 0 &&
           is_live(o, &o->events[o->count - 1], sight->part, sight->now)) {
        struct event *newest = &o->events[o->count - 1];
        uint64_t back = units < newest->units ? units : newest->units;
        newest->units -= back;
        units -= back;
        o->count -= newest->units == 0;
    }
}

static void window_check(struct oracle *o, const struct weir_algorithm_ask *ask,
                         const struct weir_algorithm_answer *got,
                         weir_instant now)
{
    const struct weir_algorithm_rule *rule = &o->told->rule;
    struct sight sight;
    look(o, &sight, now);
    bool passes = rule->quantity > 0 &&
                  (weir_u128)sight.used + ask->weight <= rule->quantity &&
                  (ask->weight == 0 || has_place(o, &sight));
    assert_int_equal(got->passed, passes || !asks(ask));
    assert_int_equal(got->never,
                     !got->passed &&
                         (rule->quantity == 0 || ask->weight > rule->quantity));
    bool counts = ask->op == WEIR_ALGORITHM_CHARGE ||
                  (asks(ask) && ask->op != WEIR_ALGORITHM_PEEK &&
                   (passes || rule->count_limited));
    if (counts)
        count_units(o, &sight, ask->weight);
    else if (ask->op == WEIR_ALGORITHM_REFUND)
        give_units(o, &sight, ask->weight);

    look(o, &sight, now);
    uint64_t left =
        sight.used < rule->quantity ? rule->quantity - sight.used : 0;
    assert_true(got->used == (int64_t)sight.used);
    assert_true(got->remaining == (has_place(o, &sight) ? left : 0));
}

void oracle_check(struct oracle *oracle, const struct weir_algorithm_ask *ask,
                  const struct weir_algorithm_answer *got, bool changed,
                  weir_instant now)
{
    oracle->changed = changed;
    if (got->passed)
        assert_true(got->retry_after == 0 && !got->never);
    else
        assert_true(got->retry_after > 0 && got->wait == 0);
    if (is_window(oracle->told->rule.algorithm))
        window_check(oracle, ask, got, now);
    else
        bucket_check(oracle, ask, got, now);
}

/* ---- Rules ---- */

static uint64_t random_bits(struct weir_rng *rng, unsigned bits)
{
    uint64_t any = weir_rng_next(rng);
    return any >> (63 - weir_rng_below(rng, bits));
}

static void random_rate(struct weir_algorithm_rate *rate, struct weir_rng *rng)
{
    weir_duration per = random_bits(rng, 55) + 1;
    uint64_t units = random_bits(rng, 62) + 1;
    bool people = weir_rng_below(rng, 2) == 0;
    if (people) {
        static const weir_duration periods[] = { WEIR_SECOND, 60 * WEIR_SECOND,
                                                 3600 * WEIR_SECOND,
                                                 86400 * WEIR_SECOND };
        per = periods[weir_rng_below(rng, 4)];
        units = random_bits(rng, 14) + 1;
    }
    rate->per = per;
    rate->units = units <= per * 100 ? units : per * 100;
    rate->burst = random_bits(rng, weir_rng_below(rng, 4) ? 8 : 50) + 1;
}

static void random_window(struct weir_algorithm_rule *rule,
                          struct weir_rng *rng)
{
    rule->window = random_bits(rng, 55) + 1;
    if (weir_rng_below(rng, 2))
        rule->window = (random_bits(rng, 6) + 1) * WEIR_SECOND;
    rule->quantity = random_bits(rng, weir_rng_below(rng, 4) ? 8 : 61);
    rule->count_limited = weir_rng_below(rng, 4) == 0;
    uint64_t parts = weir_rng_below(rng, 2) ? 4 : WEIR_SUB_WINDOWS_MAX;
    rule->sub_windows = (uint8_t)(weir_rng_below(rng, parts) + 1);
    if (rule->window < rule->sub_windows)
        rule->window = rule->sub_windows;
    rule->entries =
        (uint32_t)random_bits(rng, weir_rng_below(rng, 8) ? 6 : 12) + 1;
    if (rule->algorithm == WEIR_FIXED_WINDOW && weir_rng_below(rng, 2)) {
        rule->calendar = (enum weir_calendar)(weir_rng_below(rng, 5) + 1);
        rule->utc_offset_s = (int32_t)weir_rng_below(rng, 2 * 86399) - 86399;
    }
}

void told_random(struct told *told, enum weir_algorithm algorithm,
                 struct weir_rng *rng)
{
    uint8_t count = 1;
    *told = (struct told){ .rule = { .algorithm = algorithm, .initial = -1 } };
    if (algorithm == WEIR_TOKEN_BUCKETS)
        count = (uint8_t)(weir_rng_below(rng, WEIR_BUCKETS_MAX - 1) + 2);
    for (uint8_t k = 0; k < count; k++) {
        random_rate(&told->rates[k], rng);
        told->rates[k].spill = k > 0 && weir_rng_below(rng, 2);
        if (!told->rates[k].spill)
            continue;
        told->rates[k].units = told->rates[k - 1].units;
        told->rates[k].per = told->rates[k - 1].per;
    }
    if (algorithm == WEIR_TOKEN_BUCKET && weir_rng_below(rng, 2))
        told->rule.initial =
            (int64_t)weir_rng_below(rng, 2 * told->rates[0].burst + 2);
    random_window(&told->rule, rng);
    weir_algorithm_buckets(&told->rule, told->rates, count);
    assert_true(weir_algorithm_check(&told->rule));
}

void told_simple(struct told *told, enum weir_algorithm algorithm,
                 uint64_t units, weir_duration per, uint64_t burst)
{
    *told = (struct told){
        .rule = { .algorithm = algorithm,
                  .sub_windows = 4,
                  .entries = units < WEIR_ENTRIES_MAX ? (uint32_t)units + 1
                                                      : WEIR_ENTRIES_MAX,
                  .window = per,
                  .quantity = units,
                  .initial = -1 },
        .rates = { { .units = units, .per = per, .burst = burst },
                   { .units = units,
                     .per = per,
                     .burst = burst,
                     .spill = true } },
    };
    weir_algorithm_buckets(&told->rule, told->rates,
                           algorithm == WEIR_TOKEN_BUCKETS ? 2 : 1);
    assert_true(weir_algorithm_check(&told->rule));
}
