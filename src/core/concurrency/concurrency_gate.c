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
 *     line 0      limit, mean, deadline, shares: written when a window closes
 *     line …      held: the units in flight
 *     line …      turn: when the fraction's next permit may be given
 *     line …      of each class, if there are several: its units in flight
 *     line …      lock, the stash, and the state that the lock guards
 *
 * The fraction's permit: the caller that moves 'turn' on by mean / f has it. It
 * may still find that another caller has gone in before; then it puts 'turn'
 * back, unless it has been moved since.
 *
 * The stash is a ring. Callers that find the controller busy put their samples
 * into it, and the thread that has the controller empties it. A sample put down
 * just before the lock is given back stays for the next thread. Source of the
 * ring: D. Vyukov's bounded queue, with one reader. */

#include "core/concurrency/concurrency_gate.h"

#include <math.h>
#include <string.h>

#include "core/base/atomic.h"

#define UNITS_BITS 24
#define UNITS_MASK ((1u << UNITS_BITS) - 1)
#define FRACTION_BITS 20 /* of a limit */
#define FRACTION (1u << FRACTION_BITS)
#define FRACTION_MASK (FRACTION - 1)
#define STASH 64         /* samples; a power of two */
#define LOOK WEIR_SECOND /* how often lives are checked, at least */
/* However small the limit: else nothing would show that it can be larger. */
#define PAUSE_MAX (10 * WEIR_SECOND)

struct stashed {
    uint64_t turn; /* n: free for the n-th sample; n + 1: to be read */
    struct weir_sample sample;
    weir_instant at;
};

struct klass {
    _Alignas(WEIR_CACHE_LINE) uint64_t in_flight;
};

struct weir_concurrency_gate {
    /* Read by all, written when a window is closed. */
    _Alignas(WEIR_CACHE_LINE) uint64_t limit; /* times 2^FRACTION_BITS */
    weir_duration mean;
    weir_instant deadline;
    /* permits; observed: all */
    uint32_t share[WEIR_CONCURRENCY_GATE_CLASSES_MAX];
    /* Only an edit writes these two. */
    uint32_t plain;   /* one class, not observed: the sum is its count */
    uint32_t unheard; /* bits: classes */

    _Alignas(WEIR_CACHE_LINE) uint64_t in_flight;
    _Alignas(WEIR_CACHE_LINE) weir_instant turn;
    struct klass klass[WEIR_CONCURRENCY_GATE_CLASSES_MAX];

    _Alignas(WEIR_CACHE_LINE) uint32_t lock;
    uint64_t lost_samples;
    _Alignas(WEIR_CACHE_LINE) uint64_t put; /* into the stash, by any thread */

    /* Under the lock. */
    _Alignas(WEIR_CACHE_LINE) uint64_t got; /* out of the stash */
    weir_instant look_at;                   /* when lives are checked, at the
                                             * latest */
    weir_instant life_at;                   /* since when the old ones are */
    weir_instant class_life_at[WEIR_CONCURRENCY_GATE_CLASSES_MAX];
    uint64_t lost;
    struct stashed stash[STASH];

    /* Under the lock, too. */
    _Alignas(WEIR_CACHE_LINE) struct weir_concurrency_gate_options options;
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
static void clear_count(uint64_t *count)
{
    uint64_t word = weir_load_relaxed(count); /* the swap finds out */
    while (
        !weir_cas(count, &word,
                  (uint64_t)(uint16_t)(life_in(word) + 2) << (2 * UNITS_BITS)))
        continue;
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

/* ---- Options ---- */

void weir_concurrency_gate_defaults(
    struct weir_concurrency_gate_options *options,
    enum weir_controller_kind kind)
{
    *options = (struct weir_concurrency_gate_options){ .classes = 1 };
    weir_controller_defaults(&options->controller, kind);
}

static bool is_class_named_before(
    const struct weir_concurrency_gate_options *options, uint32_t klass)
{
    weir_assert(klass < options->classes);
    struct weir_text name = weir_text_of(options->class_of[klass].name);
    for (uint32_t i = 0; i < klass; i++)
        if (weir_text_equal(weir_text_of(options->class_of[i].name), name))
            return true;
    return false;
}

static const char *classes_fault(
    const struct weir_concurrency_gate_options *options)
{
    if (options->classes == 0 ||
        options->classes > WEIR_CONCURRENCY_GATE_CLASSES_MAX)
        return "there must be one to eight classes";
    double sum = 0;
    for (uint32_t i = 0; i < options->classes; i++) {
        const struct weir_concurrency_gate_class *klass = &options->class_of[i];
        if (memchr(klass->name, '\0', sizeof(klass->name)) == NULL)
            return "a class's name is longer than 31 bytes";
        if (options->classes > 1 && klass->name[0] == '\0')
            return "a class among several needs a name";
        if (is_class_named_before(options, i))
            return "two classes have one name";
        if (!(klass->share_percent >= 0 && klass->share_percent <= 100))
            return "a class's share must be from 0 to 100 percent";
        if (klass->observed && klass->share_percent > 0)
            return "an observed class is never refused: it has no share";
        sum += klass->share_percent;
    }
    return sum > 100 + 1e-9 ? "shares are more than 100 percent" : NULL;
}

int weir_concurrency_gate_check(
    const struct weir_concurrency_gate_options *options, struct weir_diag *diag)
{
    const char *fault = classes_fault(options);
    if (fault == NULL)
        return weir_controller_check(&options->controller, diag);
    return weir_diag_set(diag, WEIR_EINVAL, "classes: ", fault, NULL);
}

/* ---- Life ---- */

size_t weir_concurrency_gate_size(
    const struct weir_concurrency_gate_options *options)
{
    return sizeof(struct weir_concurrency_gate) +
           weir_controller_size(&options->controller);
}

static uint32_t class_limit(const struct weir_concurrency_gate_class *klass,
                            double limit)
{
    weir_assert(limit >= 0);
    if (klass->observed)
        return WEIR_CONCURRENCY_GATE_UNITS_MAX;
    if (klass->share_percent <= 0)
        return 0;
    /* As a quotient of whole numbers, where it is one: 30 % of 10 is 3. */
    double share = ceil(limit * klass->share_percent / 100);
    weir_audit(share <= WEIR_PERMITS_MAX);
    return share > 1 ? (uint32_t)share : 1;
}

/* Updates the words that are read outside of the lock. Relaxed: each word is
 * right by itself, and one of them a window older than another does no harm. */
static void publish_limits(struct weir_concurrency_gate *gate)
{
    const struct weir_controller *controller = controller_of(gate);
    double limit = weir_controller_limit(controller);
    weir_audit(limit > 0 && limit <= WEIR_PERMITS_MAX);
    weir_store_relaxed(&gate->limit, (uint64_t)(limit * FRACTION));
    weir_store_relaxed(&gate->mean, weir_controller_mean(controller));
    for (uint32_t i = 0; i < WEIR_CONCURRENCY_GATE_CLASSES_MAX; i++) {
        bool is = i < gate->options.classes;
        weir_store_relaxed(&gate->share[i],
                           is ? class_limit(&gate->options.class_of[i], limit)
                              : 0);
    }
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
    for (uint64_t i = 0; i < STASH; i++)
        gate->stash[i].turn = i;
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
    age_count(gate, &gate->in_flight, &gate->life_at, &gate->lost, now);
    uint64_t again = 0; /* counted above already */
    for (uint32_t i = 0; !gate->plain && i < gate->options.classes; i++)
        age_count(gate, &gate->klass[i].in_flight, &gate->class_life_at[i],
                  &again, now);
}

static struct weir_overdue overdue_permits(
    const struct weir_concurrency_gate *gate, weir_instant now)
{
    /* Relaxed: a count of a moment ago. */
    uint64_t word = weir_load_relaxed(&gate->in_flight);
    return (struct weir_overdue){
        .count = old_in(word),
        .age = weir_since(gate->life_at, now),
    };
}

/* Hands the stashed samples to the controller. Returns whether it moved. */
static bool drain_stash(struct weir_concurrency_gate *gate)
{
    bool moved = false;
    for (;;) {
        struct stashed *stashed = &gate->stash[gate->got % STASH];
        /* Pairs with the release in stash(). */
        if (weir_load_acquire(&stashed->turn) != gate->got + 1)
            return moved;
        moved |= weir_controller_sample(controller_of(gate), &stashed->sample,
                                        stashed->at);
        /* Pairs with the acquire in stash(): the place is free again. */
        weir_audit(stashed->sample.outcome != WEIR_SAMPLE_IGNORED);
        weir_store_release(&stashed->turn, gate->got + STASH);
        gate->got++;
    }
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

/* Puts a sample down for the next owner of the lock. */
static void stash(struct weir_concurrency_gate *gate,
                  const struct weir_sample *sample, weir_instant now)
{
    uint64_t number = weir_load_relaxed(&gate->put); /* the swap finds out */
    for (;;) {
        struct stashed *place = &gate->stash[number % STASH];
        /* Pairs with the release in drain_stash(). */
        uint64_t turn = weir_load_acquire(&place->turn);
        if (turn < number) { /* full */
            weir_fetch_add(&gate->lost_samples, 1);
            return;
        }
        if (turn == number && weir_cas(&gate->put, &number, number + 1)) {
            place->sample = *sample;
            place->at = now;
            weir_store_release(&place->turn,
                               number + 1); /* see drain_stash() */
            return;
        }
        if (turn > number) /* another thread was quicker; relaxed as above */
            number = weir_load_relaxed(&gate->put);
    }
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

weir_instant weir_concurrency_gate_due(const struct weir_concurrency_gate *gate,
                                       weir_instant now)
{
    /* Relaxed: of a moment ago. */
    weir_instant turn = weir_load_relaxed(&gate->turn);
    weir_instant deadline = weir_load_relaxed(&gate->deadline);
    bool fraction = (weir_load_relaxed(&gate->limit) & FRACTION_MASK) != 0;
    return fraction && turn > now && turn < deadline ? turn : deadline;
}

/* ---- Entering ---- */

/* The pause between permits by a fraction; 0: these units can't enter by
 * one. */
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
    if (part == 0)
        return 0;
    /* Relaxed: a mean is no promise. */
    double mean = (double)weir_load_relaxed(&gate->mean);
    double pause = mean * units * FRACTION / (double)part;
    return pause < (double)PAUSE_MAX ? (weir_duration)pause : PAUSE_MAX;
}

/* A caller that arrives late does not delay the next turn: requests that come
 * every 300 ms may take turns of 400. By half a pause at most, or an idle time
 * would be saved up. */
static weir_instant turn_after(weir_instant turn, weir_duration pause,
                               weir_instant now)
{
    weir_instant least = now + pause / 2;
    return turn + pause > least ? turn + pause : least;
}

/* Takes the fraction's turn and goes in; false: the count has changed, and the
 * turn is given back, unless it has moved on. */
static bool take_fraction_turn(struct weir_concurrency_gate *gate,
                               uint64_t word, uint32_t units, weir_instant turn,
                               weir_instant next)
{
    weir_audit(next > turn &&
               in_flight_in(word + units) <= WEIR_CONCURRENCY_GATE_UNITS_MAX);
    weir_instant found = turn;
    if (!weir_cas(&gate->turn, &found, next))
        return false;
    if (weir_cas(&gate->in_flight, &word, word + units))
        return true;
    found = next;
    (void)weir_cas(&gate->turn, &found, turn);
    return false;
}

/* Within the limit, whole part and fraction; returns the new count, or 0.
 * Relaxed loads: the swaps find out whether count and turn were the latest, and
 * a limit of a moment ago is one that was in force. */
static uint32_t enter_within(struct weir_concurrency_gate *gate, uint32_t units,
                             uint16_t *out_life, weir_instant now)
{
    uint64_t limit = weir_load_relaxed(&gate->limit);
    weir_audit(limit >> FRACTION_BITS <= WEIR_PERMITS_MAX);
    for (;;) {
        uint64_t word = weir_load_relaxed(&gate->in_flight);
        *out_life = life_in(word);
        uint32_t in_flight = in_flight_in(word);
        if (in_flight + units <= limit >> FRACTION_BITS) {
            if (weir_cas(&gate->in_flight, &word, word + units))
                return in_flight + units;
            continue;
        }
        weir_duration pause = pause_of_fraction(gate, limit, in_flight, units);
        if (pause == 0)
            return 0;
        weir_instant turn = weir_load_relaxed(&gate->turn);
        if (now < turn)
            return 0;
        if (take_fraction_turn(gate, word, units, turn,
                               turn_after(turn, pause, now)))
            return in_flight + units;
    }
}

/* By the class's guaranteed share, or as observed; returns the new count, or
 * 0. */
static uint32_t enter_share(struct weir_concurrency_gate *gate, uint32_t units,
                            struct weir_concurrency_gate_permit *permit)
{
    weir_audit(permit->klass < WEIR_CONCURRENCY_GATE_CLASSES_MAX &&
               !permit->counted);
    uint64_t *count = &gate->klass[permit->klass].in_flight;
    /* Relaxed: a share of a moment ago was in force then. */
    uint32_t share = weir_load_relaxed(&gate->share[permit->klass]);
    if (count_in(count, units, share, &permit->class_life) == 0)
        return 0;
    uint32_t in_flight =
        count_in(&gate->in_flight, units, WEIR_CONCURRENCY_GATE_UNITS_MAX,
                 &permit->life);
    uint32_t left;
    if (in_flight == 0) /* 2^23 units: the count has no room for more */
        count_out(count, units, permit->class_life, &left);
    permit->counted = in_flight > 0;
    return in_flight;
}

static uint32_t enter_class(struct weir_concurrency_gate *gate, uint32_t units,
                            struct weir_concurrency_gate_permit *permit,
                            weir_instant now)
{
    if (permit->klass >= WEIR_CONCURRENCY_GATE_CLASSES_MAX)
        return enter_within(gate, units, &permit->life, now);
    uint32_t in_flight = enter_share(gate, units, permit);
    if (in_flight > 0)
        return in_flight;
    in_flight = enter_within(gate, units, &permit->life, now);
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
                             ? enter_within(gate, units, &permit->life, now)
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
    return fill_permit(out_permit, units, enter_share(gate, units, out_permit),
                       now);
}

/* Whether there is plainly no room and no work due: the usual result if many
 * are refused, and so it comes first. Relaxed: a moment ago there was none. */
static bool is_plainly_full(const struct weir_concurrency_gate *gate,
                            uint32_t units, weir_instant now)
{
    uint64_t limit = weir_load_relaxed(&gate->limit);
    uint32_t in_flight = in_flight_in(weir_load_relaxed(&gate->in_flight));
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
        weir_load_relaxed(&gate->in_flight)); /* of a moment ago */
}

uint32_t weir_concurrency_gate_free_units(
    const struct weir_concurrency_gate *gate, weir_instant now)
{
    /* Relaxed: of a moment ago, all of it. */
    uint64_t limit = weir_load_relaxed(&gate->limit);
    uint64_t whole = limit >> FRACTION_BITS;
    uint32_t in_flight = weir_concurrency_gate_in_flight(gate);
    bool fraction = in_flight == whole && (limit & FRACTION_MASK) != 0 &&
                    now >= weir_load_relaxed(&gate->turn);
    return fraction ? 1 : in_flight < whole ? (uint32_t)whole - in_flight : 0;
}

/* ---- Leaving ---- */

static void hand_in(struct weir_concurrency_gate *gate,
                    const struct weir_sample *sample, weir_instant now)
{
    if (!try_lock(gate)) {
        stash(gate, sample, now);
        return;
    }
    attend(gate, sample, now);
    unlock(gate);
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
    bool was_in = count_out(&gate->in_flight, units, permit->life, &left);
    /* The class last, as enter_share() counts there first: a share that is free
     * again before the sum would let another permit in beside this one. */
    if (permit->counted && klass < WEIR_CONCURRENCY_GATE_CLASSES_MAX)
        count_out(&gate->klass[klass].in_flight, units, permit->class_life,
                  &left_in_class);
    if (!was_in)
        return;
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
            clear_count(&gate->klass[i].in_flight);
    }
}

/* For another quota: samples in the stash aren't for its controller. */
static void restart_gate(struct weir_concurrency_gate *gate,
                         const struct weir_concurrency_gate_options *options,
                         weir_instant now)
{
    (void)drain_stash(gate);
    clear_count(&gate->in_flight);
    for (uint32_t i = 0; i < WEIR_CONCURRENCY_GATE_CLASSES_MAX; i++)
        clear_count(&gate->klass[i].in_flight);
    weir_store_relaxed(&gate->turn, 0); /* a turn of a moment ago */
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

struct weir_concurrency_gate_permit weir_concurrency_gate_found(
    struct weir_concurrency_gate *gate, uint32_t units)
{
    struct weir_concurrency_gate_permit permit = {
        .klass = WEIR_CONCURRENCY_GATE_CLASS_NONE
    };
    if (count_in(&gate->in_flight, units, WEIR_CONCURRENCY_GATE_UNITS_MAX,
                 &permit.life))
        permit.units = units;
    return permit;
}

/* ---- Views ---- */

weir_duration weir_concurrency_gate_wait(
    const struct weir_concurrency_gate *gate, weir_instant now)
{
    /* Relaxed: a guess. */
    weir_instant turn = weir_load_relaxed(&gate->turn);
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
        .in_flight = in_flight_in(weir_load_relaxed(&gate->in_flight)),
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
            out->share_of[i] = gate->share[i];
    }
    unlock(gate);
    return true;
}
