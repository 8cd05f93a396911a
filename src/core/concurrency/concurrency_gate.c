/* SPDX-License-Identifier: MIT
 * concurrency/concurrency_gate.c - the concurrency gate, lock-free.
 *
 * The units in flight are one word, and so are the units of each class:
 *
 *     63          48 47            24 23             0
 *     +-------------+----------------+----------------+
 *     |    life     |      old       |     young      |
 *     +-------------+----------------+----------------+
 *
 * Units that enter are young. From time to time, when no old ones are left, the
 * young become old and 'life' goes up by one. A permit knows the life that it
 * entered in, so it leaves from the half where it now is. Purpose: the gate
 * knows how many units have been in flight for at least how long (the old ones,
 * since the last change of life), without a list of them. And lost permits are
 * written off by dropping the old ones: a permit of such a life then finds
 * nothing to leave from.
 *
 * Entering is a compare-and-swap of that word, done only if the sum stays
 * within the limit; so the sum is never above it, and a refusal is loads alone.
 * Rejected: adding and taking back, which is quicker if all pass, but exceeds
 * the limit for a moment and lets refused calls disturb the rest.
 *
 * A class with a share counts itself first, and if that keeps it within its
 * share it goes in, for any sum; otherwise it needs room in the sum. So the sum
 * is at most the limit when the last unit came by its room, and since then each
 * class has added its share at most. Two callers of one class may both get in
 * where one after the other only one would: the first has counted itself in the
 * class and not yet in the sum, and the second finds the sum free. That is
 * within the bound, and to prevent it refused calls would have to write.
 *
 *     line 0, 1   limit, mean, deadline, shares: written when a window closes
 *     line …      sum: the units in flight, and when the fraction's next permit
 *                 may be given
 *     line …      of each class, if there are several, the same
 *     line …      lock, the stash, and the state that the lock guards
 *
 * The fraction's permit: the caller that moves 'turn' on by mean / f has it. It
 * may still find that another caller has gone in before; then it puts 'turn'
 * back, unless it has been moved since. A class's share has a fraction too, if
 * the limit is given: whole permits of a share of a part would be none.
 *
 * Callers that find the controller busy put their samples into the stash, and
 * the thread that has the controller empties it. A sample put down just before
 * the lock is given back stays for the next thread. */

#include "core/concurrency/concurrency_gate.h"

#include <math.h>
#include <string.h>

#include "core/base/atomic.h"
#include "core/base/rng.h"
#include "core/concurrency/sample_stash.h"

#define UNITS_BITS 24
#define UNITS_MASK ((1u << UNITS_BITS) - 1)
#define FRACTION_BITS 20 /* of a limit */
#define FRACTION (1u << FRACTION_BITS)
#define FRACTION_MASK (FRACTION - 1)
#define LOOK WEIR_SECOND /* how often lives are checked, at least */
/* However small the limit: else nothing would show that it can be larger. */
#define PAUSE_MAX (10 * WEIR_SECOND)
/* A given limit that is so many times as high shortens a pause. A lower one
 * lengthens none, so small rises would make pauses too short on average. */
#define RISE 2

/* Units in flight below a limit: of all, or of a class. */
struct count {
    _Alignas(WEIR_CACHE_LINE) uint64_t in_flight;
    weir_instant turn;     /* of the next permit by the fraction */
    weir_instant above_at; /* one beyond the whole permits entered; 0: none */
};

struct weir_concurrency_gate {
    /* Read by all, written when a window is closed. */
    _Alignas(WEIR_CACHE_LINE) uint64_t limit; /* times 2^FRACTION_BITS */
    weir_duration mean;
    weir_instant deadline;
    /* likewise; observed: all */
    uint64_t share[WEIR_CONCURRENCY_GATE_CLASSES_MAX];
    /* Only an edit writes these two. */
    uint32_t plain;   /* one class, not observed: the sum is its count */
    uint32_t unheard; /* bits: classes */
    uint64_t spread;  /* pauses are of random length, by this seed; 0: not */

    struct count sum;
    struct count klass[WEIR_CONCURRENCY_GATE_CLASSES_MAX];

    _Alignas(WEIR_CACHE_LINE) uint32_t lock;
    uint32_t refused; /* bits: classes, as in weir_concurrency_gate_uses() */
    uint64_t lost_samples;
    struct weir_sample_stash stash;

    /* Under the lock. */
    _Alignas(WEIR_CACHE_LINE)
        weir_instant look_at; /* when lives are checked, at the
                                             * latest */
    weir_instant life_at;     /* since when the old ones are */
    weir_instant class_life_at[WEIR_CONCURRENCY_GATE_CLASSES_MAX];
    uint64_t lost;

    /* Under the lock, too. */
    _Alignas(WEIR_CACHE_LINE) struct weir_concurrency_gate_options options;
    double guarantee[WEIR_CONCURRENCY_GATE_CLASSES_MAX]; /* permits … */
    bool is_guaranteed; /* … if they are in force */
    _Alignas(WEIR_CACHE_LINE) unsigned char controller[];
};

static struct weir_controller *controller_of(struct weir_concurrency_gate *gate)
{
    return (struct weir_controller *)gate->controller;
}

/* ---- Counts in one word ---- */

static uint32_t young_in(uint64_t word)
{
    return (uint32_t)word & UNITS_MASK;
}

static uint32_t old_in(uint64_t word)
{
    return (uint32_t)(word >> UNITS_BITS) & UNITS_MASK;
}

static uint16_t life_in(uint64_t word)
{
    return (uint16_t)(word >> (2 * UNITS_BITS));
}

static uint32_t in_flight_in(uint64_t word)
{
    return young_in(word) + old_in(word);
}

/* Empties the count; permits of before find nothing to leave from. */
static void clear_count(struct count *count)
{
    uint64_t word = weir_load_relaxed(&count->in_flight); /* the swap finds
                                                           * out */
    while (
        !weir_cas(&count->in_flight, &word,
                  (uint64_t)(uint16_t)(life_in(word) + 2) << (2 * UNITS_BITS)))
        continue;
    /* A turn of a moment ago is as good. */
    weir_store_relaxed(&count->turn, 0);
    weir_store_relaxed(&count->above_at, 0);
}

/* The next life: the young are the old ones, and the old ones are no more. */
static uint64_t aged(uint64_t word)
{
    return (uint64_t)(uint16_t)(life_in(word) + 1) << (2 * UNITS_BITS) |
           (uint64_t)young_in(word) << UNITS_BITS;
}

/* Adds units if the count stays within 'most'. Returns the new count, or 0, and
 * writes the life to leave from. */
static uint32_t count_in(uint64_t *count, uint32_t units, uint32_t most,
                         uint16_t *out_life)
{
    /* Relaxed: the swap that follows finds out whether it was the latest. */
    weir_audit(units > 0 && most <= WEIR_CONCURRENCY_GATE_UNITS_MAX);
    uint64_t word = weir_load_relaxed(count);
    do {
        if (in_flight_in(word) + units > most)
            return 0;
    } while (!weir_cas(count, &word, word + units));
    *out_life = life_in(word);
    weir_audit(in_flight_in(word + units) == in_flight_in(word) + units &&
               life_in(word + units) == life_in(word));
    return in_flight_in(word) + units;
}

/* Takes away units that came in by that life; false: they were written off, or
 * aren't there (a permit has left twice). 'out_left': the new count. */
static bool count_out(uint64_t *count, uint32_t units, uint16_t life,
                      uint32_t *out_left)
{
    uint64_t word = weir_load_relaxed(count); /* as in count_in() */
    uint64_t next;
    do {
        uint16_t lives = (uint16_t)(life_in(word) - life);
        if (lives > 1)
            return false;
        if ((lives == 0 ? young_in(word) : old_in(word)) < units)
            return false;
        next = word - ((uint64_t)units << (lives * UNITS_BITS));
        weir_audit(in_flight_in(next) + units == in_flight_in(word) &&
                   life_in(next) == life_in(word));
    } while (!weir_cas(count, &word, next));
    *out_left = in_flight_in(next);
    return true;
}

/* ---- Life ---- */

size_t weir_concurrency_gate_size(
    const struct weir_concurrency_gate_options *options)
{
    return sizeof(struct weir_concurrency_gate) +
           weir_controller_size(&options->controller);
}

/* In permits. 'given': the limit is a part of one in which classes have their
 * shares already; rounding up in each part would make them larger. */
static double class_limit(const struct weir_concurrency_gate_class *klass,
                          double limit, bool given)
{
    weir_assert(limit >= 0);
    if (klass->observed)
        return WEIR_CONCURRENCY_GATE_UNITS_MAX;
    if (klass->share_percent <= 0)
        return 0;
    /* As a quotient of whole numbers, where it is one: 30 % of 10 is 3. */
    double share = limit * klass->share_percent / 100;
    if (!given)
        share = weir_larger(ceil(share), 1);
    weir_assert(share <= WEIR_PERMITS_MAX);
    return share;
}

static double share_of_class(const struct weir_concurrency_gate *gate,
                             uint32_t i, double limit)
{
    const struct weir_concurrency_gate_class *klass =
        &gate->options.class_of[i];
    bool given = gate->options.controller.given;
    bool guaranteed = given && gate->is_guaranteed && !klass->observed;
    /* Of a part that has ended, or is less by now, not more than that. */
    return guaranteed ? weir_smaller(gate->guarantee[i], limit)
                      : class_limit(klass, limit, given);
}

/* Updates the words that are read outside of the lock. Relaxed: each word is
 * right by itself, and one of them a window older than another does no harm. */
static void publish_limits(struct weir_concurrency_gate *gate)
{
    const struct weir_controller *controller = controller_of(gate);
    double limit = weir_controller_limit(controller);
    bool given = gate->options.controller.given;
    weir_audit((given || limit > 0) && limit <= WEIR_PERMITS_MAX);
    weir_store_relaxed(&gate->limit, (uint64_t)(limit * FRACTION));
    weir_store_relaxed(&gate->mean, weir_controller_mean(controller));
    for (uint32_t i = 0; i < WEIR_CONCURRENCY_GATE_CLASSES_MAX; i++) {
        bool is = i < gate->options.classes;
        double share = is ? share_of_class(gate, i, limit) : 0;
        weir_store_relaxed(&gate->share[i], (uint64_t)(share * FRACTION));
    }
    weir_store_relaxed(&gate->spread,
                       given ? gate->options.controller.seed | 1 : 0);
    weir_instant due = weir_controller_deadline(controller);
    /* Publishing doesn't delay the next check of lives. */
    weir_store_relaxed(&gate->deadline,
                       due < gate->look_at ? due : gate->look_at);
}

/* Relaxed: an enter or leave during an edit may use either. */
static void take_options(struct weir_concurrency_gate *gate,
                         const struct weir_concurrency_gate_options *options)
{
    weir_assert(options->classes > 0 &&
                options->classes <= WEIR_CONCURRENCY_GATE_CLASSES_MAX);
    uint32_t unheard = 0;
    for (uint32_t i = 0; i < options->classes; i++)
        unheard |= (uint32_t)options->class_of[i].unheard << i;
    gate->options = *options;
    gate->is_guaranteed = false; /* it was of the classes of before */
    weir_store_relaxed(&gate->unheard, unheard);
    weir_store_relaxed(&gate->plain,
                       options->classes == 1 && !options->class_of[0].observed);
}

struct weir_concurrency_gate *weir_concurrency_gate_init(
    void *block, const struct weir_concurrency_gate_options *options,
    weir_instant now)
{
    weir_assert(weir_concurrency_gate_check(options, NULL) == WEIR_OK);
    struct weir_concurrency_gate *gate = block;
    memset(gate, 0, sizeof(*gate));
    take_options(gate, options);
    gate->life_at = now;
    gate->look_at = now + LOOK;
    for (uint32_t i = 0; i < WEIR_CONCURRENCY_GATE_CLASSES_MAX; i++)
        gate->class_life_at[i] = now;
    weir_sample_stash_init(&gate->stash);
    weir_controller_init(gate->controller, &options->controller, now);
    publish_limits(gate);
    return gate;
}

/* ---- The controller, under the lock ---- */

static bool try_lock(struct weir_concurrency_gate *gate)
{
    /* Relaxed: a first look, so that a thread that finds the lock taken writes
     * nothing. The exchange pairs with the release in unlock(). */
    return weir_load_relaxed(&gate->lock) == 0 &&
           weir_exchange(&gate->lock, 1) == 0;
}

static void unlock(struct weir_concurrency_gate *gate)
{
    weir_store_release(&gate->lock, 0);
}

/* Drops the old ones of a count: if there are none, or as lost. */
static void age_count(struct weir_concurrency_gate *gate, uint64_t *count,
                      weir_instant *life_at, uint64_t *lost, weir_instant now)
{
    weir_duration most = gate->options.lost_after;
    bool is_lost = most > 0 && now > *life_at && now - *life_at >= most;
    uint64_t word = weir_load_relaxed(count); /* the swap finds out */
    do {
        if (old_in(word) > 0 && !is_lost)
            return;
        weir_audit(in_flight_in(aged(word)) == young_in(word));
    } while (!weir_cas(count, &word, aged(word)));
    *lost += old_in(word);
    *life_at = now;
}

static void age_all(struct weir_concurrency_gate *gate, weir_instant now)
{
    gate->look_at = now + LOOK;
    age_count(gate, &gate->sum.in_flight, &gate->life_at, &gate->lost, now);
    uint64_t again = 0; /* counted above already */
    for (uint32_t i = 0; !gate->plain && i < gate->options.classes; i++)
        age_count(gate, &gate->klass[i].in_flight, &gate->class_life_at[i],
                  &again, now);
}

static struct weir_overdue overdue_permits(
    const struct weir_concurrency_gate *gate, weir_instant now)
{
    /* Relaxed: a count of a moment ago. */
    uint64_t word = weir_load_relaxed(&gate->sum.in_flight);
    return (struct weir_overdue){
        .count = old_in(word),
        .age = weir_since(gate->life_at, now),
    };
}

/* Hands the stashed samples to the controller. Returns whether it moved. */
static bool drain_stash(struct weir_concurrency_gate *gate)
{
    bool moved = false;
    struct weir_sample sample;
    weir_instant at;
    while (weir_sample_stash_get(&gate->stash, &sample, &at))
        moved |= weir_controller_sample(controller_of(gate), &sample, at);
    return moved;
}

/* Does the work that is due and hands over a sample, or NULL; under the
 * lock. */
static void attend(struct weir_concurrency_gate *gate,
                   const struct weir_sample *sample, weir_instant now)
{
    struct weir_controller *controller = controller_of(gate);
    bool moved = drain_stash(gate);
    /* Relaxed: only the lock's owner writes it. */
    if (now >= weir_load_relaxed(&gate->deadline)) {
        struct weir_overdue overdue = overdue_permits(gate, now);
        weir_controller_tick(controller, &overdue, now);
        age_all(gate, now);
        moved = true;
    }
    if (sample != NULL)
        moved |= weir_controller_sample(controller, sample, now);
    /* A limit with a fraction also needs the present mean. */
    if (moved || weir_controller_limit(controller) < 2)
        publish_limits(gate);
}

void weir_concurrency_gate_tick(struct weir_concurrency_gate *gate,
                                weir_instant now)
{
    if (!try_lock(gate))
        return;
    attend(gate, NULL, now);
    unlock(gate);
}

weir_instant weir_concurrency_gate_deadline(
    const struct weir_concurrency_gate *gate)
{
    return weir_load_relaxed(&gate->deadline); /* a hint */
}

/* The next turn of a limit's fraction, if it is before 'due'; else 'due'. */
static weir_instant due_of(const struct count *count, uint64_t limit,
                           weir_instant due, weir_instant now)
{
    weir_instant turn = weir_load_relaxed(&count->turn); /* a hint */
    return (limit & FRACTION_MASK) != 0 && turn > now ? weir_earlier(turn, due)
                                                      : due;
}

weir_instant weir_concurrency_gate_due(const struct weir_concurrency_gate *gate,
                                       weir_instant now)
{
    /* Relaxed: of a moment ago, all of it. */
    weir_instant due = due_of(&gate->sum, weir_load_relaxed(&gate->limit),
                              weir_load_relaxed(&gate->deadline), now);
    if (weir_load_relaxed(&gate->plain))
        return due;
    for (uint32_t i = 0; i < WEIR_CONCURRENCY_GATE_CLASSES_MAX; i++)
        due = due_of(&gate->klass[i], weir_load_relaxed(&gate->share[i]), due,
                     now);
    return due;
}

/* ---- Entering ---- */

/* The pause after a permit by a fraction of 'part' that was in flight for so
 * long. */
static weir_duration pause_after(double in_flight_for, uint64_t part)
{
    weir_audit(part > 0);
    double pause = in_flight_for * FRACTION / (double)part;
    return pause < (double)PAUSE_MAX ? (weir_duration)pause : PAUSE_MAX;
}

/* The pause between permits by a fraction, as if each were in flight for the
 * mean; 0: these units can't enter by one. */
static weir_duration pause_of_fraction(const struct weir_concurrency_gate *gate,
                                       uint64_t limit, uint32_t in_flight,
                                       uint32_t units)
{
    uint64_t whole = limit >> FRACTION_BITS;
    uint64_t part = limit & FRACTION_MASK;
    bool is_large = in_flight == 0 && units > whole;
    if (is_large)
        part = limit;
    else if (in_flight != whole || units != 1)
        part = 0;
    /* Relaxed: a mean is no promise. */
    return part == 0
               ? 0
               : pause_after((double)weir_load_relaxed(&gate->mean) * units,
                             part);
}

#define SPREAD 0.3 /* of a pause, more or less */

/* By chance, of limits that are given: processes with the same limit would else
 * take their turns in step, and what they share would get requests in
 * bunches. */
static int64_t spread_of(const struct weir_concurrency_gate *gate,
                         weir_duration pause, uint64_t chance)
{
    uint64_t seed = weir_load_relaxed(&gate->spread); /* one of them */
    if (seed == 0)
        return 0;
    double unit =
        (double)(weir_rng_mix(seed + chance) >> 11) / (double)(1ull << 53);
    return (int64_t)((double)pause * SPREAD * (2 * unit - 1));
}

/* A caller that arrives late does not delay the next turn: requests that come
 * every 300 ms may take turns of 400. By half a pause at most, or an idle time
 * would be saved up. */
static weir_instant turn_after(const struct weir_concurrency_gate *gate,
                               weir_instant turn, weir_duration pause,
                               weir_instant now)
{
    /* Not by their difference: callers may come at the turn itself. */
    pause += spread_of(gate, pause, weir_rng_mix(turn) + now);
    weir_instant least = now + pause / 2;
    return turn + pause > least ? turn + pause : least;
}

/* Takes the fraction's turn and goes in; false: the count has changed, and the
 * turn is given back, unless it has moved on. */
static bool take_fraction_turn(struct count *count, uint64_t word,
                               uint32_t units, weir_instant turn,
                               weir_instant next)
{
    weir_audit(next > turn &&
               in_flight_in(word + units) <= WEIR_CONCURRENCY_GATE_UNITS_MAX);
    weir_instant found = turn;
    if (!weir_cas(&count->turn, &found, next))
        return false;
    if (weir_cas(&count->in_flight, &word, word + units))
        return true;
    found = next;
    (void)weir_cas(&count->turn, &found, turn);
    return false;
}

/* Within the limit, whole part and fraction; returns the new count, or 0.
 * Relaxed loads: the swaps find out whether count and turn were the latest, and
 * a limit of a moment ago is one that was in force. */
static uint32_t enter_within(const struct weir_concurrency_gate *gate,
                             struct count *count, uint64_t limit,
                             uint32_t units, uint16_t *out_life,
                             weir_instant now)
{
    weir_audit(limit >> FRACTION_BITS <= WEIR_CONCURRENCY_GATE_UNITS_MAX);
    for (;;) {
        uint64_t word = weir_load_relaxed(&count->in_flight);
        *out_life = life_in(word);
        uint32_t in_flight = in_flight_in(word);
        if (in_flight + units <= limit >> FRACTION_BITS) {
            if (weir_cas(&count->in_flight, &word, word + units))
                return in_flight + units;
            continue;
        }
        weir_duration pause = pause_of_fraction(gate, limit, in_flight, units);
        if (pause == 0)
            return 0;
        weir_instant turn = weir_load_relaxed(&count->turn);
        if (now < turn)
            return 0;
        if (take_fraction_turn(count, word, units, turn,
                               turn_after(gate, turn, pause, now))) {
            /* Relaxed: for end_of_fraction() alone. */
            if (in_flight > 0)
                weir_store_relaxed(&count->above_at, now);
            return in_flight + units;
        }
    }
}

static uint32_t enter_sum(struct weir_concurrency_gate *gate, uint32_t units,
                          uint16_t *out_life, weir_instant now)
{
    /* Relaxed: a limit of a moment ago. */
    return enter_within(gate, &gate->sum, weir_load_relaxed(&gate->limit),
                        units, out_life, now);
}

/* A permit by a class's share of a given limit is one of the part, too: if it
 * is beyond the whole permits, it has the fraction's turn, or the next one.
 * Else the part would let in its fraction, and its classes theirs as well. */
static void charge_fraction(struct weir_concurrency_gate *gate,
                            uint32_t in_flight, weir_instant now)
{
    struct count *count = &gate->sum;
    /* Relaxed: as in enter_within(). */
    uint64_t limit = weir_load_relaxed(&gate->limit);
    uint64_t part = limit & FRACTION_MASK;
    if (in_flight < limit >> FRACTION_BITS || part == 0 ||
        !weir_load_relaxed(&gate->spread))
        return;
    weir_duration pause =
        pause_after((double)weir_load_relaxed(&gate->mean), part);
    weir_instant turn = weir_load_relaxed(&count->turn);
    weir_instant next =
        turn > now ? turn + pause : turn_after(gate, turn, pause, now);
    next = weir_earlier(next, now + 2 * pause);
    /* If it has moved meanwhile, another permit was beside this. */
    if (next > turn)
        (void)weir_cas(&count->turn, &turn, next);
}

/* By the class's guaranteed share, or as observed; returns the new count, or
 * 0. */
static uint32_t enter_share(struct weir_concurrency_gate *gate, uint32_t units,
                            struct weir_concurrency_gate_permit *permit,
                            weir_instant now)
{
    weir_audit(permit->klass < WEIR_CONCURRENCY_GATE_CLASSES_MAX &&
               !permit->counted);
    struct count *count = &gate->klass[permit->klass];
    /* Relaxed: a share of a moment ago was in force then. */
    uint64_t share = weir_load_relaxed(&gate->share[permit->klass]);
    /* A group above the share isn't let in by its average. */
    uint32_t in_class =
        units == 1
            ? enter_within(gate, count, share, 1, &permit->class_life, now)
            : count_in(&count->in_flight, units,
                       (uint32_t)(share >> FRACTION_BITS), &permit->class_life);
    if (in_class == 0)
        return 0;
    uint32_t in_flight =
        count_in(&gate->sum.in_flight, units, WEIR_CONCURRENCY_GATE_UNITS_MAX,
                 &permit->life);
    uint32_t left;
    if (in_flight == 0) /* 2^23 units: the count has no room for more */
        count_out(&count->in_flight, units, permit->class_life, &left);
    permit->counted = in_flight > 0;
    if (in_flight > 0 && units == 1)
        charge_fraction(gate, in_flight - 1, now);
    return in_flight;
}

/* Written once between two readings: refusals in a row only read. */
static void note_refused(struct weir_concurrency_gate *gate, uint32_t klass)
{
    uint32_t bit = 1u << (klass < WEIR_CONCURRENCY_GATE_CLASSES_MAX
                              ? klass
                              : WEIR_CONCURRENCY_GATE_CLASSES_MAX);
    /* Relaxed: a hint. */
    if ((weir_load_relaxed(&gate->refused) & bit) == 0)
        (void)weir_fetch_or(&gate->refused, bit);
}

static uint32_t enter_class(struct weir_concurrency_gate *gate, uint32_t units,
                            struct weir_concurrency_gate_permit *permit,
                            weir_instant now)
{
    bool named = permit->klass < WEIR_CONCURRENCY_GATE_CLASSES_MAX;
    uint32_t in_flight = named ? enter_share(gate, units, permit, now) : 0;
    if (in_flight > 0)
        return in_flight;
    in_flight = enter_sum(gate, units, &permit->life, now);
    if (in_flight == 0)
        note_refused(gate, permit->klass);
    if (!named)
        return in_flight;
    /* Counted after it is in: it is above its share, so the exact count matters
     * to this class alone. */
    permit->counted =
        in_flight > 0 &&
        count_in(&gate->klass[permit->klass].in_flight, units,
                 WEIR_CONCURRENCY_GATE_UNITS_MAX, &permit->class_life) > 0;
    return in_flight;
}

static inline bool fill_permit(struct weir_concurrency_gate_permit *permit,
                               uint32_t units, uint32_t in_flight,
                               weir_instant now)
{
    if (in_flight == 0)
        return false;
    weir_audit(units > 0 && in_flight >= units && permit->units == 0);
    permit->entered = now;
    permit->in_flight = in_flight;
    permit->units = units;
    return true;
}

/* Not inlined: a refused caller needn't save the registers that it uses. */
__attribute__((noinline)) static bool admit(
    struct weir_concurrency_gate *gate, uint32_t klass, uint32_t units,
    struct weir_concurrency_gate_permit *permit, weir_instant now)
{
    /* Relaxed: a thread that misses it by a moment leaves it to the next. */
    if (WEIR_UNLIKELY(now >= weir_load_relaxed(&gate->deadline)))
        weir_concurrency_gate_tick(gate, now);
    /* Written in place, here and in leave: a copy of fields just written in
     * parts would be read in one piece, and wait for all of them (18 ns). */
    permit->klass = (uint16_t)klass;
    permit->counted = false;
    /* Relaxed: see take_options(). */
    uint32_t in_flight = weir_load_relaxed(&gate->plain)
                             ? enter_sum(gate, units, &permit->life, now)
                             : enter_class(gate, units, permit, now);
    return fill_permit(permit, units, in_flight, now);
}

bool weir_concurrency_gate_enter_sure(
    struct weir_concurrency_gate *gate, uint32_t klass, uint32_t units,
    struct weir_concurrency_gate_permit *out_permit, weir_instant now)
{
    weir_assert(units > 0 && units <= WEIR_PERMITS_MAX);
    out_permit->units = 0;
    /* Relaxed: see take_options(). */
    if (klass >= WEIR_CONCURRENCY_GATE_CLASSES_MAX ||
        weir_load_relaxed(&gate->plain))
        return false;
    /* Relaxed: as in admit(). */
    if (now >= weir_load_relaxed(&gate->deadline))
        weir_concurrency_gate_tick(gate, now);
    out_permit->klass = (uint16_t)klass;
    out_permit->counted = false;
    return fill_permit(out_permit, units,
                       enter_share(gate, units, out_permit, now), now);
}

/* Whether there is plainly no room and no work due: the usual result if many
 * are refused, and so it comes first. Relaxed: a moment ago there was none. */
static bool is_plainly_full(const struct weir_concurrency_gate *gate,
                            uint32_t units, weir_instant now)
{
    uint64_t limit = weir_load_relaxed(&gate->limit);
    uint32_t in_flight = in_flight_in(weir_load_relaxed(&gate->sum.in_flight));
    return weir_load_relaxed(&gate->plain) && in_flight > 0 &&
           (limit & FRACTION_MASK) == 0 &&
           in_flight + units > limit >> FRACTION_BITS &&
           now < weir_load_relaxed(&gate->deadline);
}

bool weir_concurrency_gate_enter(
    struct weir_concurrency_gate *gate, uint32_t klass, uint32_t units,
    struct weir_concurrency_gate_permit *out_permit, weir_instant now)
{
    weir_assert(units > 0 && units <= WEIR_PERMITS_MAX);
    out_permit->units = 0;
    return !is_plainly_full(gate, units, now) &&
           admit(gate,
                 klass < WEIR_CONCURRENCY_GATE_CLASSES_MAX
                     ? klass
                     : WEIR_CONCURRENCY_GATE_CLASS_NONE,
                 units, out_permit, now);
}

double weir_concurrency_gate_limit(const struct weir_concurrency_gate *gate)
{
    return (double)weir_load_relaxed(&gate->limit) / FRACTION; /* likewise */
}

uint32_t weir_concurrency_gate_in_flight(
    const struct weir_concurrency_gate *gate)
{
    return in_flight_in(
        weir_load_relaxed(&gate->sum.in_flight)); /* of a moment ago */
}

uint32_t weir_concurrency_gate_free_units(
    const struct weir_concurrency_gate *gate, weir_instant now)
{
    /* Relaxed: of a moment ago, all of it. */
    uint64_t limit = weir_load_relaxed(&gate->limit);
    uint64_t whole = limit >> FRACTION_BITS;
    uint32_t in_flight = weir_concurrency_gate_in_flight(gate);
    bool fraction = in_flight == whole && (limit & FRACTION_MASK) != 0 &&
                    now >= weir_load_relaxed(&gate->sum.turn);
    return fraction ? 1 : in_flight < whole ? (uint32_t)whole - in_flight : 0;
}

/* ---- Leaving ---- */

static void hand_in(struct weir_concurrency_gate *gate,
                    const struct weir_sample *sample, weir_instant now)
{
    if (!try_lock(gate)) {
        if (!weir_sample_stash_put(&gate->stash, sample, now))
            weir_fetch_add(&gate->lost_samples, 1);
        return;
    }
    attend(gate, sample, now);
    unlock(gate);
}

/* Above whole permits a permit by the fraction is in flight only until the next
 * of all of them leaves, which then is the one beyond. It is charged for that
 * time, where its pause was for a mean. Not for less than the time to the next
 * leave has on average, a mean / (whole + 1): else short ones, given in quick
 * succession, would make one whole permit more for a while.
 *
 * Another permit by the fraction may enter beside this. Then its time is taken
 * for this one's, and it has the whole pause: the bounds below hold for it as
 * well. */
static void end_of_fraction(const struct weir_concurrency_gate *gate,
                            struct count *count, uint64_t limit, uint32_t left,
                            weir_instant now)
{
    /* Relaxed: the mean of a moment ago. */
    uint64_t part = limit & FRACTION_MASK;
    if (left == 0 || left != limit >> FRACTION_BITS || part == 0 ||
        weir_load_relaxed(&count->above_at) == 0)
        return;
    weir_instant entered = weir_exchange(&count->above_at, 0);
    double mean = (double)weir_load_relaxed(&gate->mean);
    double charged = weir_larger((double)weir_since(entered, now),
                                 mean / ((double)left + 1));
    weir_duration charged_pause = pause_after(charged, part);
    weir_duration mean_pause = pause_after(mean, part);
    weir_instant turn = weir_load_relaxed(&count->turn);
    if (entered == 0 || charged_pause >= mean_pause)
        return;
    weir_instant next = weir_before(turn, mean_pause - charged_pause);
    next = next > entered ? next : entered;
    if (next < turn)
        (void)weir_cas(&count->turn, &turn, next);
}

void weir_concurrency_gate_leave(struct weir_concurrency_gate *gate,
                                 struct weir_concurrency_gate_permit *permit,
                                 enum weir_sample_outcome outcome,
                                 weir_instant now)
{
    uint32_t units = permit->units;
    permit->units = 0;
    if (units == 0)
        return;
    uint32_t klass = permit->klass;
    weir_audit(!permit->counted || klass < WEIR_CONCURRENCY_GATE_CLASSES_MAX);
    uint32_t left, left_in_class;
    bool was_in = count_out(&gate->sum.in_flight, units, permit->life, &left);
    /* The class last, as enter_share() counts there first: a share that is free
     * again before the sum would let another permit in beside this one. */
    /* Relaxed, here and below: the limit and the share of a moment ago. */
    if (permit->counted && klass < WEIR_CONCURRENCY_GATE_CLASSES_MAX &&
        count_out(&gate->klass[klass].in_flight, units, permit->class_life,
                  &left_in_class))
        end_of_fraction(gate, &gate->klass[klass],
                        weir_load_relaxed(&gate->share[klass]), left_in_class,
                        now);
    if (!was_in)
        return;
    end_of_fraction(gate, &gate->sum, weir_load_relaxed(&gate->limit), left,
                    now);
    /* Relaxed: see take_options(). */
    bool unheard = klass < WEIR_CONCURRENCY_GATE_CLASSES_MAX &&
                   (weir_load_relaxed(&gate->unheard) >> klass & 1);
    if (outcome == WEIR_SAMPLE_IGNORED || unheard)
        return;
    struct weir_sample sample = {
        .latency = weir_since(permit->entered, now),
        .outcome = outcome,
        .in_flight = permit->in_flight,
        .left = left,
    };
    hand_in(gate, &sample, now);
}

/* ---- Edits ---- */

/* Forgets classes that have changed. Their permits leave from the sum alone. */
static void forget_classes(struct weir_concurrency_gate *gate,
                           const struct weir_concurrency_gate_options *options)
{
    const struct weir_concurrency_gate_options *before = &gate->options;
    for (uint32_t i = 0; i < WEIR_CONCURRENCY_GATE_CLASSES_MAX; i++) {
        bool same = i < options->classes && i < before->classes &&
                    weir_text_equal(weir_text_of(options->class_of[i].name),
                                    weir_text_of(before->class_of[i].name));
        if (!same)
            clear_count(&gate->klass[i]);
    }
}

/* For another quota: samples in the stash aren't for its controller. */
static void restart_gate(struct weir_concurrency_gate *gate,
                         const struct weir_concurrency_gate_options *options,
                         weir_instant now)
{
    (void)drain_stash(gate);
    clear_count(&gate->sum);
    for (uint32_t i = 0; i < WEIR_CONCURRENCY_GATE_CLASSES_MAX; i++)
        clear_count(&gate->klass[i]);
    weir_store_relaxed(&gate->lost_samples, 0);
    gate->lost = 0;
    gate->life_at = now;
    weir_controller_init(gate->controller, &options->controller, now);
}

bool weir_concurrency_gate_edit(
    struct weir_concurrency_gate *gate,
    const struct weir_concurrency_gate_options *options, bool anew,
    weir_instant now)
{
    weir_assert(weir_concurrency_gate_check(options, NULL) == WEIR_OK);
    if (!try_lock(gate))
        return false;
    if (anew) {
        restart_gate(gate, options, now);
    } else {
        (void)drain_stash(gate);
        weir_controller_edit(controller_of(gate), &options->controller, now);
        forget_classes(gate, options);
    }
    take_options(gate, options);
    publish_limits(gate);
    unlock(gate);
    return true;
}

/* ---- A limit that is given ---- */

/* The rest of a pause takes this part of its time: it began by a lower limit,
 * perhaps by far, when nothing was answered. */
static void hasten(struct count *count, double part, weir_instant now)
{
    /* Relaxed: of another turn, taken since, the pause is a new one. */
    weir_instant turn = weir_load_relaxed(&count->turn);
    weir_audit(part >= 0 && part <= 1);
    if (turn > now)
        (void)weir_cas(&count->turn, &turn,
                       now + (weir_duration)((double)(turn - now) * part));
}

bool weir_concurrency_gate_give(struct weir_concurrency_gate *gate,
                                double limit, uint64_t cut, weir_instant now)
{
    weir_assert(limit >= 0 && limit <= WEIR_PERMITS_MAX);
    if (!try_lock(gate))
        return false;
    (void)drain_stash(gate);
    double before = weir_controller_limit(controller_of(gate));
    weir_controller_give(controller_of(gate), limit, cut, now);
    publish_limits(gate);
    if (limit >= RISE * before && limit > 0) {
        hasten(&gate->sum, before / limit, now);
        for (uint32_t i = 0; i < gate->options.classes; i++)
            hasten(&gate->klass[i], before / limit, now);
    }
    unlock(gate);
    return true;
}

bool weir_concurrency_gate_guarantee(
    struct weir_concurrency_gate *gate,
    const double permits[WEIR_CONCURRENCY_GATE_CLASSES_MAX])
{
    if (!try_lock(gate))
        return false;
    for (uint32_t i = 0; permits && i < WEIR_CONCURRENCY_GATE_CLASSES_MAX;
         i++) {
        weir_assert(permits[i] >= 0);
        gate->guarantee[i] = weir_smaller(permits[i], WEIR_PERMITS_MAX);
    }
    gate->is_guaranteed = permits != NULL;
    publish_limits(gate);
    unlock(gate);
    return true;
}

void weir_concurrency_gate_uses(
    struct weir_concurrency_gate *gate,
    struct weir_concurrency_gate_use out[WEIR_CONCURRENCY_GATE_CLASSES_MAX + 1])
{
    uint32_t refused = weir_exchange(&gate->refused, 0);
    uint32_t named = 0;
    /* Relaxed: counts of a moment ago. */
    uint32_t sum = in_flight_in(weir_load_relaxed(&gate->sum.in_flight));
    for (uint32_t i = 0; i <= WEIR_CONCURRENCY_GATE_CLASSES_MAX; i++) {
        bool last = i == WEIR_CONCURRENCY_GATE_CLASSES_MAX;
        out[i].refused = refused >> i & 1;
        out[i].in_flight =
            last ? (sum > named ? sum - named : 0)
                 : in_flight_in(weir_load_relaxed(&gate->klass[i].in_flight));
        named += out[i].in_flight;
    }
    weir_assert((refused >> (WEIR_CONCURRENCY_GATE_CLASSES_MAX + 1)) == 0);
}

bool weir_concurrency_gate_collect(struct weir_concurrency_gate *gate,
                                   struct weir_latency_count *bins,
                                   struct weir_latency_batch *out,
                                   weir_instant now)
{
    if (!try_lock(gate))
        return false;
    attend(gate, NULL, now);
    struct weir_overdue overdue = overdue_permits(gate, now);
    weir_controller_collect(controller_of(gate), &overdue, bins, out, now);
    unlock(gate);
    return true;
}

struct weir_concurrency_gate_permit weir_concurrency_gate_found(
    struct weir_concurrency_gate *gate, uint32_t units)
{
    struct weir_concurrency_gate_permit permit = {
        .klass = WEIR_CONCURRENCY_GATE_CLASS_NONE
    };
    if (count_in(&gate->sum.in_flight, units, WEIR_CONCURRENCY_GATE_UNITS_MAX,
                 &permit.life))
        permit.units = units;
    return permit;
}

/* ---- Views ---- */

weir_duration weir_concurrency_gate_wait(
    const struct weir_concurrency_gate *gate, weir_instant now)
{
    /* Relaxed: a guess. */
    weir_instant turn = weir_load_relaxed(&gate->sum.turn);
    weir_duration mean = weir_load_relaxed(&gate->mean);
    uint64_t whole = weir_load_relaxed(&gate->limit) >> FRACTION_BITS;
    if (whole == 0 && turn > now)
        return turn - now;
    weir_duration next = mean / (whole > 0 ? whole : 1);
    return next > 0 ? next : 1;
}

bool weir_concurrency_gate_view(struct weir_concurrency_gate *gate,
                                struct weir_concurrency_gate_view *out,
                                weir_instant now)
{
    if (!try_lock(gate))
        return false;
    struct weir_overdue overdue = overdue_permits(gate, now);
    *out = (struct weir_concurrency_gate_view){
        /* Relaxed: counts of a moment ago, here and below. */
        .in_flight = in_flight_in(weir_load_relaxed(&gate->sum.in_flight)),
        .overdue = overdue.count,
        .overdue_age = overdue.count > 0 ? overdue.age : 0,
        .lost = gate->lost,
        .lost_samples = weir_load_relaxed(&gate->lost_samples),
    };
    weir_controller_view(controller_of(gate), &out->controller);
    for (uint32_t i = 0; i < gate->options.classes; i++) {
        out->in_flight_of[i] =
            gate->plain
                ? out->in_flight
                : in_flight_in(weir_load_relaxed(&gate->klass[i].in_flight));
        if (!gate->options.class_of[i].observed)
            out->share_of[i] = (double)gate->share[i] / FRACTION;
    }
    unlock(gate);
    return true;
}
