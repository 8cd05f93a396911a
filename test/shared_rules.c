/* SPDX-License-Identifier: MIT
 * test/shared_rules.c - rules of every algorithm, by hand. */

#include "shared_rules.h"

const char *const shared_algorithm_names[WEIR_SLIDING_WINDOW + 1] = {
    [WEIR_LEAKY] = "leaky",
    [WEIR_LEAKY_QUEUE] = "leaky_queue",
    [WEIR_TOKEN_BUCKET] = "token_bucket",
    [WEIR_TOKEN_BUCKETS] = "token_buckets",
    [WEIR_FIXED_WINDOW] = "fixed_window",
    [WEIR_SLIDING_LOG] = "sliding_log",
    [WEIR_SLIDING_WINDOW] = "sliding_window",
};

static struct weir_algorithm_rule bucket(enum weir_algorithm algorithm,
                                         uint64_t units, weir_duration per,
                                         uint64_t burst, int64_t initial)
{
    struct weir_algorithm_rule rule = { .algorithm = algorithm,
                                        .initial = initial };
    struct weir_algorithm_rate rate = { .units = units,
                                        .per = per,
                                        .burst = burst };
    weir_algorithm_buckets(&rule, &rate, 1);
    return rule;
}

static struct weir_algorithm_rule buckets(
    const struct weir_algorithm_rate *rates, uint8_t count)
{
    struct weir_algorithm_rule rule = { .algorithm = WEIR_TOKEN_BUCKETS,
                                        .initial = -1 };
    weir_algorithm_buckets(&rule, rates, count);
    return rule;
}

static struct weir_algorithm_rule window(enum weir_algorithm algorithm,
                                         uint64_t quantity,
                                         weir_duration window, uint8_t parts,
                                         bool count_limited)
{
    return (struct weir_algorithm_rule){ .algorithm = algorithm,
                                         .count_limited = count_limited,
                                         .sub_windows = parts,
                                         .entries = 100,
                                         .window = window,
                                         .quantity = quantity,
                                         .initial = -1 };
}

static struct weir_algorithm_rule calendar(enum weir_calendar calendar,
                                           int32_t utc_offset_s)
{
    struct weir_algorithm_rule rule =
        window(WEIR_FIXED_WINDOW, 30, WEIR_SECOND, 0, false);
    rule.calendar = calendar;
    rule.utc_offset_s = utc_offset_s;
    return rule;
}

struct weir_algorithm_rule shared_rule_of(enum weir_algorithm algorithm,
                                          uint64_t quantity, weir_duration per)
{
    switch (algorithm) {
    case WEIR_LEAKY:
    case WEIR_LEAKY_QUEUE:
    case WEIR_TOKEN_BUCKET:
        return bucket(algorithm, quantity, per, quantity, -1);
    case WEIR_TOKEN_BUCKETS:
        return buckets(
            (struct weir_algorithm_rate[]){
                { .units = quantity, .per = per, .burst = quantity },
                { .units = quantity, .per = per, .burst = quantity },
            },
            2);
    case WEIR_FIXED_WINDOW:
    case WEIR_SLIDING_LOG:
    case WEIR_SLIDING_WINDOW:
    case WEIR_PERMITS:
        break;
    }
    struct weir_algorithm_rule rule =
        window(algorithm, quantity, per, 4, false);
    rule.entries = (uint32_t)quantity;
    return rule;
}

struct weir_algorithm_rule shared_rule_of_wish(const struct shared_wish *wish)
{
    if (wish->algorithm == WEIR_TOKEN_BUCKET)
        return bucket(wish->algorithm, wish->quantity, wish->per,
                      wish->quantity, wish->initial);
    struct weir_algorithm_rule rule =
        shared_rule_of(wish->algorithm, wish->quantity, wish->per);
    rule.calendar = wish->calendar;
    rule.utc_offset_s = wish->utc_offset_s;
    return rule;
}

#define MS WEIR_MILLISECOND

size_t shared_rules(struct shared_rule *out, size_t max)
{
    const struct weir_algorithm_rate spilling[] = {
        { .units = 100, .per = WEIR_SECOND, .burst = 20 },
        { .burst = 50, .spill = true },
        { .units = 7, .per = WEIR_SECOND, .burst = 30 },
        { .burst = 10, .spill = true },
    };
    const struct weir_algorithm_rate two[] = {
        { .units = 3, .per = WEIR_SECOND, .burst = 4 },
        { .units = 1, .per = 10 * WEIR_SECOND, .burst = 40 },
    };
    const struct shared_rule all[] = {
        { "leaky", bucket(WEIR_LEAKY, 100, WEIR_SECOND, 20, -1) },
        { "leaky, slow", bucket(WEIR_LEAKY, 1, 7 * WEIR_SECOND, 3, -1) },
        { "leaky, fast", bucket(WEIR_LEAKY, 1000000, WEIR_SECOND, 1000, -1) },
        { "queue", bucket(WEIR_LEAKY_QUEUE, 100, WEIR_SECOND, 20, -1) },
        { "token", bucket(WEIR_TOKEN_BUCKET, 100, WEIR_SECOND, 20, -1) },
        { "token, initial 0",
          bucket(WEIR_TOKEN_BUCKET, 100, WEIR_SECOND, 20, 0) },
        { "token, initial 50",
          bucket(WEIR_TOKEN_BUCKET, 100, WEIR_SECOND, 20, 50) },
        { "two buckets", buckets(two, 2) },
        { "four, spilling", buckets(spilling, 4) },
        { "fixed", window(WEIR_FIXED_WINDOW, 30, 300 * MS, 0, false) },
        { "fixed, counting", window(WEIR_FIXED_WINDOW, 30, 300 * MS, 0, true) },
        { "fixed, nothing", window(WEIR_FIXED_WINDOW, 0, 300 * MS, 0, true) },
        { "a minute", calendar(WEIR_CALENDAR_MINUTE, 0) },
        { "an hour", calendar(WEIR_CALENDAR_HOUR, 5400) },
        { "a day", calendar(WEIR_CALENDAR_DAY, -12600) },
        { "a week", calendar(WEIR_CALENDAR_WEEK, 3600) },
        { "a month", calendar(WEIR_CALENDAR_MONTH, 7200) },
        { "log", window(WEIR_SLIDING_LOG, 30, 300 * MS, 0, false) },
        { "log, counting", window(WEIR_SLIDING_LOG, 30, 300 * MS, 0, true) },
        { "log, more than places",
          window(WEIR_SLIDING_LOG, 100000, 3000 * MS, 0, false) },
        { "sliding, 1", window(WEIR_SLIDING_WINDOW, 30, 300 * MS, 1, false) },
        { "sliding, 4", window(WEIR_SLIDING_WINDOW, 30, 300 * MS, 4, false) },
        { "sliding, 7, counting",
          window(WEIR_SLIDING_WINDOW, 30, 300 * MS, 7, true) },
        { "sliding, 60",
          window(WEIR_SLIDING_WINDOW, 300, 60 * WEIR_SECOND, 60, false) },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(all) && i < max; i++)
        out[i] = all[i];
    return WEIR_COUNT_OF(all);
}
