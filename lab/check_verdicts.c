/* SPDX-License-Identifier: MIT
 * lab/check_verdicts.c - a limiter decides by the documented rule.
 *
 * The state from which a take was decided is known afterwards: nothing else has
 * happened since, and a pass added its weight. So each link's fill is compared
 * with the rule after the decision, in the table's own integers. Asking the
 * limiter before would use up its random numbers.
 *
 *     passed    fill + weight <= high, below the stop, at every link; all
 *               links were charged the weight, those that are off nothing
 *     refused   some link refuses, for certain or at random; none was charged
 *
 * A single random refusal can't be judged, many can: the probabilities of all
 * random decisions are summed, and at the end the number of refusals must be
 * within SIGMAS standard deviations of the sum. (Draws with a lower variance
 * than independent ones pass as well.) */

#include "core/table/table_read.h"
#include "lab/check_internal.h"

#define NAME "verdicts"
#define SIGMAS 6
#define SPARE 5 /* refusals: few draws aren't normally distributed */

/* The decisions that one link's rule allows. */
struct ruling {
    bool never, may; /* it refuses for certain; it refuses at random */
    double chance;   /* of a random refusal */
};

static struct ruling by_fill(const struct slot_read *read, int64_t fill,
                             uint64_t weight)
{
    if (fill + (int64_t)(weight << read->leak.frac) > read->high)
        return (struct ruling){ .never = true };
    int64_t above = fill - (read->high - read->band);
    if (above <= 0)
        return (struct ruling){ 0 };
    return (struct ruling){ .may = true,
                            .chance = (double)above / (double)read->band };
}

static struct ruling by_flags(const struct weir_table *table, uint32_t slot,
                              const struct slot_read *read)
{
    if (read->flags & META_PASS)
        return (struct ruling){ 0 };
    if (read->flags & META_LIMIT)
        return (struct ruling){ .never = true };
    double chance = weir_cold(table, slot)->hold / 255.0;
    return (struct ruling){ .never = chance >= 1,
                            .may = chance > 0,
                            .chance = chance };
}

/* 'charged': units that this take has added to the link. */
static struct ruling rule_link(const struct weir_table *table, uint32_t slot,
                               const struct slot_read *read, uint64_t weight,
                               int64_t charged)
{
    if (read->flags & (META_OFF | META_SHADOW))
        return (struct ruling){ 0 };
    if (read->flags & META_STALE)
        return by_flags(table, slot, read);
    if (read->high == WEIR_SCALED_MAX)
        return (struct ruling){ 0 };
    int64_t count = (int64_t)read->count - charged;
    if (count - (int64_t)weir_hot(table, slot)->stop >= 0)
        return (struct ruling){ .never = true };
    int64_t fill = read->fill - (int64_t)((uint64_t)charged << read->leak.frac);
    return by_fill(read, fill > 0 ? fill : 0, weight);
}

static void fail_verdict(struct weir_check *check, uint32_t limiter,
                         const struct weir_table *table, uint32_t slot,
                         const struct slot_read *read, const char *what)
{
    char name[WEIR_NAME_MAX + 1] = "";
    weir_table_name(table, slot, name);
    double one = (double)((uint64_t)1 << read->leak.frac);
    weir_check_fail(
        check, NAME,
        "limiter%u %s \"%s\" (fill %.3f, low %.3f, high %.3f, count "
        "%llu, stop %llu)",
        limiter + 1, what, name, (double)read->fill / one,
        (double)(read->high - read->band) / one, (double)read->high / one,
        (unsigned long long)read->count,
        (unsigned long long)weir_hot(table, slot)->stop);
}

/* Whether a pass charged the link the right number of units. */
static bool rightly_charged(const struct slot_read *read, int64_t charged,
                            uint64_t weight)
{
    if (read->flags & META_OFF)
        return charged == 0;
    if ((read->flags & META_SHADOW) && charged == 0)
        return true;
    return charged == (int64_t)weight;
}

static void note_chance(struct weir_check *check, double chance, bool limited)
{
    if (chance <= 0)
        return;
    check->expected += chance;
    check->variance += chance * (1 - chance);
    check->chances++;
    weir_assert(check->refused <= check->chances);
    check->refused += limited;
}

void weir_check_verdict(struct weir_check *check, uint32_t limiter,
                        struct weir_ref ref, uint64_t weight, unsigned outcome)
{
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    uint64_t elapsed =
        weir_elapsed(table, weir_check_limiter_now(check, limiter));
    bool limited = outcome & WEIR_OUTCOME_LIMITED;
    const struct check_charged *charged = &check->charged;
    struct ruling worst = { 0 };
    uint32_t slot = ref.slot;
    for (uint32_t i = 0; i < WEIR_DEPTH_MAX && slot != WEIR_SLOT_NONE; i++) {
        struct slot_read read;
        weir_slot_read(table, slot, elapsed, &read);
        int64_t units = limited ? 0 : charged->units[i];
        if (limited &&
            weir_check_slot_of(check, limiter, slot)->count != read.count)
            fail_verdict(check, limiter, table, slot, &read,
                         "refused, and charged");
        if (!limited && !rightly_charged(&read, units, weight))
            fail_verdict(check, limiter, table, slot, &read,
                         "passed, and didn't charge its weight to");
        struct ruling ruling = rule_link(table, slot, &read, weight, units);
        if (ruling.never && !limited)
            fail_verdict(check, limiter, table, slot, &read,
                         "passed without room in");
        worst.never |= ruling.never;
        worst.may |= ruling.may;
        worst.chance = fmax(worst.chance, ruling.chance);
        if (limited && !worst.never && !worst.may &&
            weir_parent(weir_hot(table, slot)) == WEIR_SLOT_NONE)
            fail_verdict(check, limiter, table, slot, &read,
                         "refused with room in");
        slot = weir_parent(weir_hot(table, slot));
    }
    check->stats.decisions++;
    if (!worst.never)
        note_chance(check, worst.chance, limited);
}

void weir_check_verdicts_end(struct weir_check *check)
{
    double off = (double)check->refused - check->expected;
    weir_assert(check->variance >= 0);
    if (fabs(off) > SIGMAS * sqrt(check->variance) + SPARE)
        weir_check_fail(
            check, NAME,
            "of %llu requests in the band between low and high %llu "
            "were refused, and %.1f are to be expected",
            (unsigned long long)check->chances,
            (unsigned long long)check->refused, check->expected);
}
