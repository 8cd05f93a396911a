/* SPDX-License-Identifier: MIT
 * test_algorithm_permits.c - permits in one state compared with a list of them.
 *
 * The oracle is a list that is walked for every question. Random histories go
 * to both: enters of some dozens of ids, leaves in any order and repeated, time
 * that passes, stands still and goes back, limits and timeouts that change. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/algorithm/algorithm.h"
#include "table_maker.h"

#define IDS 40
#define BEGIN (1000 * WEIR_SECOND)
#define STATE_WORDS (WEIR_ALGORITHM_SIZE_MAX / 8)

struct listed {
    uint64_t units; /* 0: not in flight */
    weir_instant expiry;
};

struct list {
    struct listed of[IDS + 1]; /* by id */
    uint32_t places;
};

static uint64_t list_used(const struct list *list)
{
    uint64_t used = 0;
    for (int id = 1; id <= IDS; id++)
        used += list->of[id].units;
    return used;
}

static uint32_t list_count(const struct list *list)
{
    uint32_t count = 0;
    for (int id = 1; id <= IDS; id++)
        count += list->of[id].units > 0;
    return count;
}

static void list_pass(struct list *list, weir_instant now)
{
    for (int id = 1; id <= IDS; id++) {
        if (list->of[id].expiry <= now)
            list->of[id] = (struct listed){ 0, 0 };
    }
}

static bool list_passes(const struct list *list,
                        const struct weir_algorithm_rule *rule, uint64_t weight)
{
    return rule->quantity > 0 && list_used(list) + weight <= rule->quantity &&
           (weight == 0 || list_count(list) < rule->entries);
}

/* Time until it passes if no permit leaves. */
static weir_duration list_wait(const struct list *list,
                               const struct weir_algorithm_rule *rule,
                               uint64_t weight, weir_instant now)
{
    struct list later = *list;
    weir_instant at = now;
    while (!list_passes(&later, rule, weight)) {
        weir_instant next = WEIR_NEVER;
        for (int id = 1; id <= IDS; id++) {
            if (later.of[id].units > 0 && later.of[id].expiry < next)
                next = later.of[id].expiry;
        }
        assert_true(next != WEIR_NEVER);
        list_pass(&later, at = next);
    }
    return at - now;
}

static bool list_step(struct list *list, const struct weir_algorithm_rule *rule,
                      const struct weir_algorithm_ask *ask, weir_instant now)
{
    struct listed *mine = &list->of[ask->permit];
    if (ask->op != WEIR_ALGORITHM_PEEK)
        list_pass(list, now);
    struct list seen = *list;
    list_pass(&seen, now);
    switch (ask->op) {
    case WEIR_ALGORITHM_PEEK:
        return list_passes(&seen, rule, ask->weight);
    case WEIR_ALGORITHM_CHARGE:
        return true;
    case WEIR_ALGORITHM_REFUND:
        if (ask->permit != 0)
            *mine = (struct listed){ 0, 0 };
        return true;
    case WEIR_ALGORITHM_TAKE:
    case WEIR_ALGORITHM_RESERVE:
        break;
    }
    if (ask->permit != 0 && mine->units > 0) {
        mine->expiry = now + rule->window;
        return true;
    }
    if (!list_passes(list, rule, ask->weight))
        return false;
    if (ask->permit != 0 && ask->weight > 0)
        *mine = (struct listed){ ask->weight, now + rule->window };
    return true;
}

static struct weir_algorithm_rule rule_of(uint64_t limit, uint32_t places,
                                          weir_duration timeout)
{
    return (struct weir_algorithm_rule){ .algorithm = WEIR_PERMITS,
                                         .quantity = limit,
                                         .entries = places,
                                         .window = timeout };
}

static struct weir_algorithm_ask random_ask(struct weir_rng *rng)
{
    static const enum weir_algorithm_op ops[] = {
        WEIR_ALGORITHM_TAKE,   WEIR_ALGORITHM_TAKE,   WEIR_ALGORITHM_TAKE,
        WEIR_ALGORITHM_REFUND, WEIR_ALGORITHM_REFUND, WEIR_ALGORITHM_PEEK,
        WEIR_ALGORITHM_CHARGE, WEIR_ALGORITHM_RESERVE
    };
    return (struct weir_algorithm_ask){
        .op = ops[weir_rng_below(rng, WEIR_COUNT_OF(ops))],
        .weight = weir_rng_below(rng, 8),
        .permit = weir_rng_below(rng, IDS + 1),
    };
}

static weir_instant next_instant(struct weir_rng *rng, weir_instant now)
{
    switch (weir_rng_below(rng, 8)) {
    case 0:
    case 1:
        return now;
    case 2:
        return now - weir_rng_below(rng, WEIR_MILLISECOND);
    case 3:
        return now + weir_rng_below(rng, 10 * WEIR_SECOND);
    default:
        return now + weir_rng_below(rng, WEIR_SECOND / 2);
    }
}

static void check_answer(const struct list *list,
                         const struct weir_algorithm_rule *rule,
                         const struct weir_algorithm_ask *ask, bool passed,
                         const struct weir_algorithm_answer *got,
                         weir_instant now)
{
    struct list seen = *list;
    list_pass(&seen, now);
    uint64_t used = list_used(&seen);
    bool place = list_count(&seen) < rule->entries;
    bool never =
        !passed && (rule->quantity == 0 || ask->weight > rule->quantity);
    assert_int_equal(got->passed, passed);
    assert_int_equal(got->never, never);
    assert_true(got->used == (int64_t)used);
    assert_true(got->remaining ==
                (place && used < rule->quantity ? rule->quantity - used : 0));
    if (!passed && !never)
        assert_true(got->retry_after ==
                    list_wait(&seen, rule, ask->weight, now));
    if (never)
        assert_true(got->retry_after == WEIR_NEVER);
}

static void run_life(struct weir_rng *rng, uint64_t limit, unsigned steps)
{
    static uint64_t state[STATE_WORDS], before[STATE_WORDS];
    struct weir_algorithm_rule rule =
        rule_of(limit, 1 + (uint32_t)weir_rng_below(rng, IDS),
                1 + weir_rng_below(rng, 5 * WEIR_SECOND));
    struct list list = { .places = rule.entries };
    weir_instant now = BEGIN, latest = BEGIN;
    memset(state, 0, sizeof(state));
    assert_true(weir_algorithm_check(&rule));
    for (unsigned i = 0; i < steps; i++) {
        struct weir_algorithm_ask ask = random_ask(rng);
        struct weir_algorithm_answer got;
        now = next_instant(rng, now);
        latest = now > latest ? now : latest;
        memcpy(before, state, sizeof(state));
        bool passed = list_step(&list, &rule, &ask, now);
        weir_algorithm_step(&rule, state, &ask, &got, now);
        check_answer(&list, &rule, &ask, passed, &got, now);
        assert_true(weir_algorithm_sound(&rule, state, latest));
        if (ask.op == WEIR_ALGORITHM_PEEK)
            assert_memory_equal(before, state, sizeof(state));
    }
}

static void test_histories_are_a_lists(void **unused)
{
    (void)unused;
    struct weir_rng rng = made_seed("permits");
    for (unsigned life = 0; life < 300; life++)
        run_life(&rng, weir_rng_below(&rng, 60), 400);
}

/* ---- Stories ---- */

static uint64_t state[STATE_WORDS], other[STATE_WORDS];

static bool enter(const struct weir_algorithm_rule *rule, uint64_t id,
                  uint64_t weight, weir_instant now)
{
    struct weir_algorithm_answer got;
    const struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE,
                                            .weight = weight,
                                            .permit = id };
    weir_algorithm_step(rule, state, &ask, &got, now);
    return got.passed;
}

static void leave(const struct weir_algorithm_rule *rule, uint64_t id,
                  weir_instant now)
{
    struct weir_algorithm_answer got;
    const struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_REFUND,
                                            .permit = id };
    weir_algorithm_step(rule, state, &ask, &got, now);
}

static int64_t used(const struct weir_algorithm_rule *rule, weir_instant now)
{
    struct weir_algorithm_answer got;
    const struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_PEEK };
    weir_algorithm_step(rule, state, &ask, &got, now);
    return got.used;
}

static int clear(void **unused)
{
    (void)unused;
    memset(state, 0, sizeof(state));
    memset(other, 0, sizeof(other));
    return 0;
}

/* Two have the whole limit; one dies, and its part comes back when its time is
 * over. */
static void test_who_dies_gives_back_in_the_end(void **unused)
{
    (void)unused;
    struct weir_algorithm_rule rule = rule_of(5, 5, WEIR_SECOND);
    assert_true(enter(&rule, 11, 3, BEGIN));
    assert_true(enter(&rule, 12, 2, BEGIN + WEIR_SECOND / 2));
    assert_false(enter(&rule, 13, 1, BEGIN + WEIR_SECOND - 1));
    assert_true(enter(&rule, 13, 3, BEGIN + WEIR_SECOND));
    leave(&rule, 11, BEGIN + WEIR_SECOND); /* late: its time is over already */
    assert_int_equal(used(&rule, BEGIN + WEIR_SECOND), 5);
    leave(&rule, 12, BEGIN + WEIR_SECOND);
    leave(&rule, 12, BEGIN + WEIR_SECOND);
    assert_int_equal(used(&rule, BEGIN + WEIR_SECOND), 3);
    leave(&rule, 13, BEGIN + WEIR_SECOND);
    for (size_t i = 0; i < weir_algorithm_size(&rule) / 8; i++)
        assert_true(state[i] == 0);
}

/* Lowering a limit takes no permit away, and forgets none: with fewer entries
 * than permits, units stay until the last of them ends. */
static void test_a_lower_limit_forgets_nobody(void **unused)
{
    (void)unused;
    struct weir_algorithm_rule rule = rule_of(6, 6, WEIR_SECOND);
    struct weir_algorithm_rule lower = rule_of(2, 2, WEIR_SECOND);
    for (uint64_t id = 1; id <= 6; id++)
        assert_true(enter(&rule, id, 1, BEGIN + id));
    weir_algorithm_carry(&rule, state, &lower, other, BEGIN + 10);
    memcpy(state, other, sizeof(state));
    assert_true(weir_algorithm_sound(&lower, state, BEGIN + 10));
    assert_int_equal(used(&lower, BEGIN + 10), 6);
    leave(&lower, 6, BEGIN + 10);
    assert_int_equal(used(&lower, BEGIN + 10), 5);
    assert_false(enter(&lower, 7, 1, BEGIN + 10));
    assert_int_equal(used(&lower, BEGIN + 5 + WEIR_SECOND - 1), 5);
    assert_int_equal(used(&lower, BEGIN + 5 + WEIR_SECOND), 0);
}

/* A rate's units aren't in flight, nor the other way round. */
static void test_a_kind_begins_anew(void **unused)
{
    (void)unused;
    struct weir_algorithm_rule permits = rule_of(6, 6, WEIR_SECOND);
    struct weir_algorithm_rule rate = { .algorithm = WEIR_LEAKY,
                                        .initial = -1 };
    struct weir_algorithm_rate said = { 5, WEIR_SECOND, 10, false };
    weir_algorithm_buckets(&rate, &said, 1);
    assert_true(enter(&rate, 0, 7, BEGIN));
    weir_algorithm_carry(&rate, state, &permits, other, BEGIN);
    memcpy(state, other, sizeof(state));
    assert_int_equal(used(&permits, BEGIN), 0);
    assert_true(enter(&permits, 3, 4, BEGIN));
    memset(other, 0, sizeof(other));
    weir_algorithm_carry(&permits, state, &rate, other, BEGIN);
    assert_true(other[0] == 0);
}

/* Random bytes: any that aren't a state are detected. */
static void test_nonsense_is_refused(void **unused)
{
    (void)unused;
    struct weir_algorithm_rule rule = rule_of(6, 6, WEIR_SECOND);
    assert_true(enter(&rule, 1, 2, BEGIN) && enter(&rule, 2, 2, BEGIN + 5));
    assert_true(weir_algorithm_sound(&rule, state, BEGIN + 5));
    static const struct {
        unsigned word;
        uint64_t value;
    } wrong[] = {
        { 0, 7 }, { 0, 1 }, { 1, 3 },          { 1, UINT64_MAX }, { 2, 0 },
        { 4, 0 }, { 4, 5 }, { 3, UINT64_MAX }, { 6, UINT64_MAX }, { 6, 0 },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++) {
        uint64_t was = state[wrong[i].word];
        state[wrong[i].word] = wrong[i].value;
        assert_false(weir_algorithm_sound(&rule, state, BEGIN + 5));
        state[wrong[i].word] = was;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories_are_a_lists),
        cmocka_unit_test_setup(test_who_dies_gives_back_in_the_end, clear),
        cmocka_unit_test_setup(test_a_lower_limit_forgets_nobody, clear),
        cmocka_unit_test_setup(test_a_kind_begins_anew, clear),
        cmocka_unit_test_setup(test_nonsense_is_refused, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
