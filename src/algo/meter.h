/* SPDX-License-Identifier: MIT
 * algo/meter.h - one decision of any algorithm, on a state of fixed size.
 *
 * A meter is a rule (what a quota says, in numbers) and a state (some words
 * that the rule knows the size of). One step asks the state one question and
 * moves it. The same step decides in a process's own table (sharing: local),
 * in a root's memory and in a store whose value is replaced by
 * compare-and-swap (sharing: exact); a script that a store runs must answer
 * as the step does, and is tested against it.
 *
 * What always holds:
 *   - A state of zero bytes is a meter that was never used, whatever the
 *     rule. So a name that a store has lost, or a fresh block, needs no making.
 *   - A refused step, or a peek, changes nothing that a later step sees,
 *     unless the rule says 'count_refused'. One exception: the first step of a
 *     token bucket with 'initial' below its burst, of any kind, starts it.
 *   - A step whose clock stands still or goes back never finds the state
 *     emptier than the latest instant it knew. (Windows and the log stand
 *     still. A bucket in one word knows no instant: it is found fuller by what
 *     leaks in the time that the clock went back, and that only until then.)
 *   - Integers only. What can't be whole is rounded towards refusing; a bucket
 *     is right to one scaled unit (2^-frac units), always.
 *   - 'retry_after' is exact: nobody else having come, the same ask passes
 *     then, and a nanosecond earlier it doesn't.
 *
 * Who shares a state between threads holds a lock, or swaps it whole.
 *
 *     algorithm       state              what a bound of it means
 *     leaky           1 word             fill <= burst
 *     token_bucket    1 word             the same bucket seen from above, with
 *                                        'initial' tokens at the first use
 *     leaky_queue     1 word             waits for its turn, at most burst
 *                                        units before it
 *     token_buckets   2 to 4 words       what the first can't pay the next
 *                                        may, at a lower level
 *     fixed_window    2 words            quantity a window
 *     sliding_window  2 + n + 1 words    quantity over the last window, the
 *                                        oldest of n + 1 parts by proportion
 *     sliding_log     2 + 2 entries      quantity over the last window, to the
 *                                        unit; refuses too without a place
 *     permits         2 + 3 entries      quantity at a time, of what was taken
 *                                        and not given back, nor ended after
 *                                        a window; likewise
 *
 * Sources: Turner 1986 (leaky bucket); ITU-T I.371 annex A (the one-word
 * form); RFC 2697 and 2698 (buckets in a row); the sliding window estimate as
 * in Cloudflare's article of 2017, there with n = 1. */

#ifndef WEIR_METER_H
#define WEIR_METER_H

#include "algo/leaky.h"

/* The numbers are the wire's and the stores': never reuse one. */
enum weir_algorithm {
    WEIR_LEAKY = 1,
    WEIR_LEAKY_QUEUE = 2,
    WEIR_TOKEN_BUCKET = 3,
    WEIR_TOKEN_BUCKETS = 4,
    WEIR_FIXED_WINDOW = 5,
    WEIR_SLIDING_LOG = 6,
    WEIR_SLIDING_WINDOW = 7,
    WEIR_PERMITS = 8, /* no quota's: what kind=concurrency is in a store */
};

/* Windows that begin where a calendar says (fixed_window only). */
enum weir_calendar {
    WEIR_CALENDAR_NONE = 0, /* windows of 'window' ns, one begins at 0 */
    WEIR_CALENDAR_MINUTE,
    WEIR_CALENDAR_HOUR,
    WEIR_CALENDAR_DAY,
    WEIR_CALENDAR_WEEK, /* from Monday */
    WEIR_CALENDAR_MONTH,
};

#define WEIR_BUCKETS_MAX 4          /* of token_buckets */
#define WEIR_SUB_WINDOWS_MAX 60     /* of sliding_window */
#define WEIR_ENTRIES_MAX 4096       /* of sliding_log */
#define WEIR_METER_PERMITS_MAX 2048 /* out at a time of one meter */
#define WEIR_METER_SIZE_MAX (16 * (WEIR_ENTRIES_MAX + 1)) /* bytes of state */
#define WEIR_METER_WINDOW_MAX ((weir_duration)1 << 56)    /* 2.3 years */
/* Of a window; one with that much never refuses. */
#define WEIR_METER_QUANTITY_MAX ((uint64_t)1 << 61)

/* One bucket of a rule; made by weir_meter_buckets(). 'spill': it has no rate
 * of its own but gets what overflows from the one before it (RFC 2697), on
 * whose scale it is. */
struct weir_meter_bucket {
    struct weir_bucket bucket; /* scaled; 'high' is the burst */
    bool spill;
};

/* What a quota says, in numbers. Fill it by weir_quota_meter() (quota/), or by
 * hand in tests; weir_meter_check() says whether it is sound. */
struct weir_meter_rule {
    enum weir_algorithm algorithm;
    bool count_refused;  /* windows and the log: the refused count too */
    uint8_t buckets;     /* how many: 1; token_buckets: 2 .. WEIR_BUCKETS_MAX */
    uint8_t sub_windows; /* sliding_window: 1 .. WEIR_SUB_WINDOWS_MAX */
    enum weir_calendar calendar;
    int32_t utc_offset_s; /* of a calendar's zone at 'now', seconds; of it
                           * minutes and hours count no whole ones */
    uint32_t entries;     /* sliding_log: 1 .. WEIR_ENTRIES_MAX; permits:
                           * 1 .. WEIR_METER_PERMITS_MAX */
    weir_duration window; /* windows and the log: > 0; permits: until one ends
                           * by itself */
    uint64_t quantity;    /* the same: units that pass in one window, or are
                           * out at a time, at most WEIR_METER_QUANTITY_MAX */
    /* token_bucket: units in it at the first use, may be above the burst;
     * -1: the burst. */
    int64_t initial;
    struct weir_meter_bucket bucket[WEIR_BUCKETS_MAX]; /* of the buckets */
};

enum weir_meter_op {
    WEIR_METER_TAKE = 1, /* charges if it passes */
    WEIR_METER_PEEK,     /* charges nothing */
    /* Charges whatever the state; saturates at WEIR_DEBT_MAX above the
     * bound. */
    WEIR_METER_CHARGE,
    /* Gives back, never below an empty meter; a window's newest units first.
     * At once after a take it undoes that exactly, but for one case: when a
     * take has used up the units above a token bucket's burst, they are
     * gone. */
    WEIR_METER_REFUND,
    /* Charges now what may go on after 'wait', if that is at most 'wait_max'.
     * For leaky, leaky_queue and token_bucket; elsewhere a take. */
    WEIR_METER_RESERVE,
};

struct weir_meter_ask {
    enum weir_meter_op op;
    uint64_t weight;        /* units, 0 .. WEIR_WEIGHT_MAX */
    weir_duration wait_max; /* of a reserve */
    uint8_t level;          /* of a refund: the level that paid */
    uint64_t permit;        /* of permits: which one is taken, or given back; 0:
                             * none, then nothing is held. Not 2^64 - 1 */
};

struct weir_meter_answer {
    bool passed;
    bool never; /* the weight is above the bound itself */
    /* token_buckets: which one paid, or would, from 0; a charge that none can
     * pay is the first one's. */
    uint8_t level;
    /* Units in the bucket or window, rounded up, the weight included if it was
     * charged; below 0 in a token bucket above its burst. */
    int64_t used;
    uint64_t remaining; /* units that would still pass now, in all */
    /* Refused: when this ask would pass if nobody else came; WEIR_NEVER with
     * 'never', and where nothing leaks. */
    weir_duration retry_after;
    weir_duration wait; /* of a reserve that passed */
};

/* Whether a rule is within the bounds named here, and its parts go together.
 * Wait-free. */
bool weir_meter_check(const struct weir_meter_rule *rule);

/* A bucket as people say it: 'units' every 'per' nanoseconds (per > 0, at most
 * 100 units a nanosecond; of no meaning with 'spill') and a burst. */
struct weir_meter_rate {
    uint64_t units;
    weir_duration per;
    uint64_t burst; /* units, at most 2^50 */
    bool spill;     /* not the first */
};

/* Makes 'rule->buckets' and 'rule->bucket' on scales that go together, with
 * room for 'rule->initial' (set it first). 1 <= count <= WEIR_BUCKETS_MAX. */
void weir_meter_buckets(struct weir_meter_rule *rule,
                        const struct weir_meter_rate *rates, uint8_t count);

/* Bytes of state, a multiple of 8, at most WEIR_METER_SIZE_MAX. 'rule' must
 * be sound. Wait-free. */
size_t weir_meter_size(const struct weir_meter_rule *rule);

/* Whether steps up to the instant 'latest' can have left this state: for bytes
 * that came from outside, because a step trusts what it is given. */
bool weir_meter_sound(const struct weir_meter_rule *rule, const void *state,
                      weir_instant latest);

/* Asks 'state' (weir_meter_size() bytes, 8-byte aligned, zero when new). 'now'
 * is nanoseconds, below 2^62, of a clock that this state's users agree on;
 * with a calendar, since 1970-01-01 UTC. Not thread-safe; bounded: at most one
 * pass over the state. 'rule', 'state', 'ask' and 'out' must not be NULL. */
void weir_meter_step(const struct weir_meter_rule *rule, void *state,
                     const struct weir_meter_ask *ask,
                     struct weir_meter_answer *out, weir_instant now);

/* The rule has changed: 'state' becomes what 'to' would have made of the same
 * past, as well as it can be known: units used stay used. 'to_state' (zeroed,
 * of weir_meter_size(to) bytes) may not overlap. Another algorithm begins
 * with what was used at 'now' in its newest bucket or window. */
void weir_meter_carry(const struct weir_meter_rule *from, const void *state,
                      const struct weir_meter_rule *to, void *to_state,
                      weir_instant now);

/* The instant from which an unused state equals a zeroed one: when a store may
 * forget it. At most WEIR_NEVER. */
weir_instant weir_meter_idle_at(const struct weir_meter_rule *rule,
                                const void *state, weir_instant now);

/* Where the window of 'now' begins and ends: [out_start, out_end). For
 * fixed_window, with or without a calendar; proleptic Gregorian. Returns its
 * number, which stays the same where a zone's clocks are set before it ends;
 * of its beginning and end one moves then. */
int64_t weir_meter_window(const struct weir_meter_rule *rule,
                          weir_instant *out_start, weir_instant *out_end,
                          weir_instant now);

#endif /* WEIR_METER_H */
