/* SPDX-License-Identifier: MIT
 * algorithm/algorithm.h - one decision of any algorithm, on a state of fixed
 * size.
 *
 * A bucket state has a rule (the quota's numbers) and a state (some words; the
 * rule determines how many). One step makes one request of the state and
 * updates it. The same step decides in a process's own table (sharing:
 * local), in a root's memory, and in a store that replaces the value by
 * compare-and-swap (sharing: exact). A script that runs in a store must answer
 * as the step does, and is tested against it.
 *
 * Invariants:
 *   - A state of zero bytes was never used, under any rule. A name that a store
 *     has lost, or a fresh block, needs no initialization.
 *   - A refused step, or a peek, changes nothing that a later step sees,
 *     unless the rule says 'count_limited'. One exception: the first step of a
 *     token bucket with 'initial' below its burst, of any kind, starts it.
 *   - If the clock stands still or goes back, a step never finds the state
 *     emptier than at the latest instant that it has recorded. (Windows and the
 *     log stand still. A bucket in one word records no instant: it is found
 *     fuller by the units that leak in the time that the clock went back, and
 *     only until the clock has caught up.)
 *   - Integers only. Fractions are rounded towards refusing; a bucket is
 *     always right to one scaled unit (2^-frac units).
 *   - 'retry_after' is exact: without other requests, the same request passes
 *     then, and does not pass a nanosecond earlier.
 *
 * Threads that share a state hold a lock, or swap the whole state.
 *
 *     algorithm       state              the bound means
 *     leaky           1 word             fill <= burst
 *     token_bucket    1 word             the same bucket seen from above, with
 *                                        'initial' tokens at the first use
 *     leaky_queue     1 word             waits for its turn, at most burst
 *                                        units before it
 *     token_buckets   2 to 4 words       the first bucket with enough tokens
 *                                        pays; a later one is a lower level
 *     fixed_window    2 words            quantity a window
 *     sliding_window  2 + n + 1 words    quantity over the last window, the
 *                                        oldest of n + 1 parts by proportion
 *     sliding_log     2 + 2 entries      quantity over the last window, to the
 *                                        unit; a full log refuses too
 *     permits         2 + 3 entries      quantity at a time: units taken, not
 *                                        given back, and not expired after a
 *                                        window; full, it refuses too
 *
 * Sources: Turner 1986 (leaky bucket); ITU-T I.371 annex A (the one-word form);
 * RFC 2697 and 2698 (buckets in a row); the sliding window estimate as in
 * Cloudflare's article of 2017, there with n = 1. */

#ifndef WEIR_ALGORITHM_H
#define WEIR_ALGORITHM_H

#include "core/algorithm/leaky.h"

/* The numbers are in the wire format and in the stores: never reuse one. */
enum weir_algorithm {
    WEIR_LEAKY = 1,
    WEIR_LEAKY_QUEUE = 2,
    WEIR_TOKEN_BUCKET = 3,
    WEIR_TOKEN_BUCKETS = 4,
    WEIR_FIXED_WINDOW = 5,
    WEIR_SLIDING_LOG = 6,
    WEIR_SLIDING_WINDOW = 7,
    WEIR_PERMITS = 8, /* no quota names it: kind=concurrency in a store */
};

/* Windows that begin at calendar boundaries (fixed_window only). */
enum weir_calendar {
    WEIR_CALENDAR_NONE = 0, /* windows of 'window' ns, one begins at 0 */
    WEIR_CALENDAR_MINUTE,
    WEIR_CALENDAR_HOUR,
    WEIR_CALENDAR_DAY,
    WEIR_CALENDAR_WEEK, /* from Monday */
    WEIR_CALENDAR_MONTH,
};

#define WEIR_BUCKETS_MAX 4              /* of token_buckets */
#define WEIR_SUB_WINDOWS_MAX 60         /* of sliding_window */
#define WEIR_ENTRIES_MAX 4096           /* of sliding_log */
#define WEIR_ALGORITHM_PERMITS_MAX 2048 /* in flight at a time of one state */
#define WEIR_ALGORITHM_SIZE_MAX \
    (16 * (WEIR_ENTRIES_MAX + 1))                          /* bytes of state */
#define WEIR_ALGORITHM_WINDOW_MAX ((weir_duration)1 << 56) /* 2.3 years */
/* Of a window; with this quantity it never refuses. */
#define WEIR_ALGORITHM_QUANTITY_MAX ((uint64_t)1 << 61)

/* One bucket of a rule; made by weir_algorithm_buckets(). 'spill': it has no
 * rate of its own but gets the overflow of the bucket before it (RFC 2697),
 * and is on the same scale. */
struct weir_algorithm_bucket {
    struct weir_bucket bucket; /* scaled; 'high' is the burst */
    bool spill;
};

/* A quota's limit in numbers. weir_quota_algorithm_rule() (quota/) fills it,
 * or a test by hand; weir_algorithm_check() says whether it is sound. */
struct weir_algorithm_rule {
    enum weir_algorithm algorithm;
    bool count_limited;  /* windows and the log: refused units count too */
    uint8_t buckets;     /* how many: 1; token_buckets: 2 .. WEIR_BUCKETS_MAX */
    uint8_t sub_windows; /* sliding_window: 1 .. WEIR_SUB_WINDOWS_MAX */
    enum weir_calendar calendar;
    int32_t utc_offset_s; /* of a calendar's zone at 'now', seconds; a calendar
                           * of minutes or hours uses it modulo its length */
    uint32_t entries;     /* sliding_log: 1 .. WEIR_ENTRIES_MAX; permits:
                           * 1 .. WEIR_ALGORITHM_PERMITS_MAX */
    weir_duration window; /* windows and the log: > 0; permits: the time until
                           * one expires */
    uint64_t quantity;    /* windows and the log: units that pass in one window;
                           * permits: units in flight at a time; at most
                           * WEIR_ALGORITHM_QUANTITY_MAX */
    /* token_bucket: units in it at the first use, may be above the burst;
     * -1: the burst. */
    int64_t initial;
    struct weir_algorithm_bucket bucket[WEIR_BUCKETS_MAX]; /* the buckets */
};

enum weir_algorithm_op {
    WEIR_ALGORITHM_TAKE = 1, /* charges if it passes */
    WEIR_ALGORITHM_PEEK,     /* charges nothing */
    /* Charges at any fill; saturates at WEIR_DEBT_MAX above the bound. */
    WEIR_ALGORITHM_CHARGE,
    /* Gives units back, never below empty; a window's newest units first. Right
     * after a take it undoes the take exactly, with one exception: units above
     * a token bucket's burst that a take has used are gone. */
    WEIR_ALGORITHM_REFUND,
    /* Charges now a request that may proceed after 'wait', if that is at most
     * 'wait_max'. For leaky, leaky_queue and token_bucket; others: as a
     * take. */
    WEIR_ALGORITHM_RESERVE,
};

/* Beside enum weir_when_locked: a table that can't get the lock of a bucket
 * state doesn't decide, and its caller asks again. */
#define WEIR_LOCKED_RETURNS 2

struct weir_algorithm_ask {
    enum weir_algorithm_op op;
    uint64_t weight;        /* units, 0 .. WEIR_WEIGHT_MAX */
    weir_duration wait_max; /* of a reserve */
    uint8_t level;          /* of a refund: the level that paid */
    uint8_t when_locked; /* of a table, enum weir_when_locked or RETURNS … */
    bool waited;         /* … after the caller has waited for the lock */
    uint64_t permit;     /* permits: the id of the permit taken or given
                             * back; 0: none, nothing is stored. Not 2^64 - 1 */
};

struct weir_algorithm_answer {
    bool passed;
    bool never; /* the weight is above the bound itself */
    /* token_buckets: the bucket that paid, or would, from 0. A charge that no
     * bucket can pay goes to the first one. */
    uint8_t level;
    /* Units in the bucket or window, rounded up, the weight included if it was
     * charged; below 0 in a token bucket above its burst. */
    int64_t used;
    uint64_t remaining; /* units that would still pass now, in total */
    /* Refused: the time until this request would pass without other requests;
     * WEIR_NEVER with 'never', and if nothing leaks. */
    weir_duration retry_after;
    weir_duration wait; /* of a reserve that passed */
};

/* Whether a rule is within the bounds of this header and its parts are
 * consistent. Wait-free. */
bool weir_algorithm_check(const struct weir_algorithm_rule *rule);

/* A bucket as people write it: 'units' every 'per' nanoseconds (per > 0, at
 * most 100 units a nanosecond; ignored with 'spill') and a burst. */
struct weir_algorithm_rate {
    uint64_t units;
    weir_duration per;
    uint64_t burst; /* units, at most 2^50 */
    bool spill;     /* not for the first bucket */
};

/* Makes 'rule->buckets' and 'rule->bucket' on compatible scales, with room for
 * 'rule->initial' (set it first). 1 <= count <= WEIR_BUCKETS_MAX. */
void weir_algorithm_buckets(struct weir_algorithm_rule *rule,
                            const struct weir_algorithm_rate *rates,
                            uint8_t count);

/* Bytes of state, a multiple of 8, at most WEIR_ALGORITHM_SIZE_MAX. 'rule' must
 * be sound. Wait-free. */
size_t weir_algorithm_size(const struct weir_algorithm_rule *rule);

/* Whether steps up to the instant 'latest' can have produced this state. Check
 * bytes from outside with it, because a step trusts its input. */
bool weir_algorithm_sound(const struct weir_algorithm_rule *rule,
                          const void *state, weir_instant latest);

/* Makes one request of 'state' (weir_algorithm_size() bytes, 8-byte aligned,
 * zero when new). 'now' is nanoseconds, below 2^62, of a clock that this
 * state's users agree on; with a calendar, since 1970-01-01 UTC. Not
 * thread-safe; bounded: at most one pass over the state. 'rule', 'state',
 * 'ask' and 'out' must not be NULL. */
void weir_algorithm_step(const struct weir_algorithm_rule *rule, void *state,
                         const struct weir_algorithm_ask *ask,
                         struct weir_algorithm_answer *out, weir_instant now);

/* The rule has changed: writes to 'to_state' the state that the rule 'to' would
 * have after the same history, as far as 'state' tells: units used stay used.
 * 'to_state' (zeroed, of weir_algorithm_size(to) bytes) may not overlap. If the
 * algorithm changes, the units in use at 'now' go to the newest bucket or
 * window. */
void weir_algorithm_carry(const struct weir_algorithm_rule *from,
                          const void *state,
                          const struct weir_algorithm_rule *to, void *to_state,
                          weir_instant now);

/* The instant from which the state, if not used again, equals a zeroed one and
 * a store may drop it. At most WEIR_NEVER. */
weir_instant weir_algorithm_idle_at(const struct weir_algorithm_rule *rule,
                                    const void *state, weir_instant now);

/* The bounds of the window that contains 'now': [out_start, out_end). For
 * fixed_window, with or without a calendar; proleptic Gregorian. Returns the
 * window's number, which stays the same if the zone's clocks change before it
 * ends; its beginning or its end moves then. */
int64_t weir_algorithm_window(const struct weir_algorithm_rule *rule,
                              weir_instant *out_start, weir_instant *out_end,
                              weir_instant now);

#endif /* WEIR_ALGORITHM_H */
