/* SPDX-License-Identifier: MIT
 * test_queue.c - the queue compared with a list that is searched from end to
 * end, and a bucket of rationals. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/algorithm/queue.h"
#include "table_maker.h"

#define STEPS 1000000
#define LIFE 5000
#define ENTRIES_MAX 64
#define BEGIN (1000 * WEIR_SECOND)

/* Level: fill * per, at the instant 'at'. */
struct oracle {
    struct weir_queue_options options;
    struct weir_queue_entry list[ENTRIES_MAX];
    uint32_t length;
    weir_i128 level;
    weir_instant at;
    uint64_t doubts;
};

struct life {
    struct oracle oracle;
    struct weir_queue *queue;
    struct weir_rng *rng;
    size_t size;
    void *copy;
    uint64_t next_id;
    weir_instant now;
    weir_duration beat;
};

static struct weir_queue *made_queue(uint32_t entries, uint64_t units,
                                     weir_duration per, uint64_t burst)
{
    struct weir_queue_options options = {
        .entries = entries, .units = units, .per = per, .burst = burst
    };
    void *block = malloc(weir_queue_size(&options));
    assert_non_null(block);
    return weir_queue_init(block, &options);
}

static weir_i128 level_at(const struct oracle *o, weir_instant now)
{
    weir_i128 elapsed = (weir_i128)now - (weir_i128)o->at;
    weir_i128 level = o->level - elapsed * o->options.units;
    return level > 0 ? level : 0;
}

/* At most 0 if the head may go. */
static weir_i128 excess_at(const struct oracle *o, weir_instant now)
{
    uint64_t burst = o->options.burst;
    uint64_t weight = o->list[0].weight < burst ? o->list[0].weight : burst;
    return level_at(o, now) - (weir_i128)(burst - weight) * o->options.per;
}

/* Index of the earliest deadline among the queued items, or -1. */
static int expired(const struct oracle *o, weir_instant now)
{
    int found = -1;
    for (uint32_t i = 0; i < o->length; i++)
        if (o->list[i].deadline <= now &&
            (found < 0 || o->list[i].deadline < o->list[found].deadline))
            found = (int)i;
    return found;
}

static uint32_t index_of(const struct oracle *o, uint64_t id)
{
    uint32_t i = 0;
    while (i < o->length && o->list[i].id != id)
        i++;
    assert_compare(i, <, o->length); /* handed out twice, or never pushed */
    return i;
}

static void drop(struct oracle *o, uint32_t i)
{
    o->length--;
    memmove(&o->list[i], &o->list[i + 1], (o->length - i) * sizeof(o->list[0]));
}

/* Two units of the finest scale that this rate and burst have. */
static bool is_close(const struct oracle *o, weir_i128 excess)
{
    struct weir_bucket bucket;
    weir_bucket_init(&bucket, o->options.units, o->options.per,
                     o->options.burst, o->options.burst);
    weir_i128 size = excess < 0 ? -excess : excess;
    weir_i128 grain = (weir_i128)o->options.per * 2;
    return size <= grain && size << bucket.leak.frac <= grain;
}

static void check_next(struct life *life)
{
    struct oracle *o = &life->oracle;
    struct weir_queue_entry out;
    int old = expired(o, life->now);
    enum weir_queue_next next = weir_queue_next(life->queue, &out, life->now);
    if (old >= 0) {
        assert_int_equal(next, WEIR_QUEUE_EXPIRED);
        uint32_t i = index_of(o, out.id);
        assert_true(o->list[i].deadline == o->list[old].deadline);
        assert_memory_equal(&out, &o->list[i], sizeof(out));
        drop(o, i);
        return;
    }
    if (o->length == 0) {
        assert_int_equal(next, WEIR_QUEUE_EMPTY);
        return;
    }
    weir_i128 excess = excess_at(o, life->now);
    bool goes = next == WEIR_QUEUE_RELEASED;
    if (is_close(o, excess))
        o->doubts++;
    else
        assert_int_equal(goes, excess <= 0);
    if (!goes) {
        assert_int_equal(next, WEIR_QUEUE_WAIT);
        return;
    }
    assert_memory_equal(&out, &o->list[0], sizeof(out));
    o->level = level_at(o, life->now) + (weir_i128)out.weight * o->options.per;
    o->at = life->now;
    drop(o, 0);
}

static void check_push(struct life *life)
{
    struct oracle *o = &life->oracle;
    struct weir_queue_entry entry = {
        .id = life->next_id++,
        .weight = weir_rng_below(life->rng, 2 * o->options.burst),
        .deadline = WEIR_NEVER,
    };
    if (entry.weight > WEIR_WEIGHT_MAX)
        entry.weight = WEIR_WEIGHT_MAX;
    if (weir_rng_below(life->rng, 3))
        entry.deadline = life->now + weir_rng_below(life->rng, 40 * life->beat);
    int error = weir_queue_push(life->queue, &entry);
    assert_int_equal(error, o->length == o->options.entries ? WEIR_EFULL : 0);
    if (error == 0)
        o->list[o->length++] = entry;
}

/* At the deadline an item is due, and a nanosecond before none is. */
static void check_deadline(struct life *life)
{
    struct weir_queue_entry out;
    weir_instant at = weir_queue_deadline(life->queue, life->now);
    if (life->oracle.length == 0)
        assert_true(at == WEIR_NEVER);
    if (at > (weir_instant)1 << 61) /* after lifetimes, or never */
        return;
    memcpy(life->copy, life->queue, life->size);
    struct weir_queue *copy = life->copy;
    if (at > life->now)
        assert_int_equal(weir_queue_next(copy, &out, at - 1), WEIR_QUEUE_WAIT);
    assert_compare(weir_queue_next(copy, &out, at), >=, WEIR_QUEUE_RELEASED);
}

static void life_begin(struct life *life)
{
    struct weir_rng *rng = life->rng;
    weir_duration per = weir_rng_next(rng) >> (16 + weir_rng_below(rng, 40));
    uint64_t units = weir_rng_next(rng) >> (10 + weir_rng_below(rng, 53));
    struct weir_queue_options options = {
        .entries = (uint32_t)weir_rng_below(rng, ENTRIES_MAX) + 1,
        .units = units < per ? units + 1 : per + 1,
        .per = per + 1,
        .burst = (weir_rng_next(rng) >> (31 + weir_rng_below(rng, 33))) + 1,
    };
    life->oracle = (struct oracle){ .options = options, .at = BEGIN };
    life->now = BEGIN;
    life->beat = options.per / options.units;
    life->beat = life->beat < (weir_duration)1 << 40 ? life->beat + 1
                                                     : (weir_duration)1 << 40;
    life->size = weir_queue_size(&options);
    assert_compare(life->size, >, 0);
    life->queue = realloc(life->queue, life->size);
    life->copy = realloc(life->copy, life->size);
    assert_true(life->queue != NULL && life->copy != NULL);
    weir_queue_init(life->queue, &options);
}

static void pass_time(struct life *life)
{
    uint64_t burst = life->oracle.options.burst;
    uint64_t longest = burst < 64 ? 4 * burst : 256;
    switch (weir_rng_below(life->rng, 4)) {
    case 0:
        break;
    case 1:
        life->now += weir_rng_below(life->rng, longest * life->beat);
        break;
    case 2:
        if (life->oracle.length > 0)
            life->now = weir_queue_deadline(life->queue, life->now);
        break;
    default:
        life->now -= weir_rng_below(life->rng, 8) == 0 && life->now > BEGIN;
        break;
    }
    if (life->now > (weir_instant)1 << 60)
        life_begin(life);
}

static void test_random_histories(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("queue");
    struct life life = { .rng = &rng };
    uint64_t doubts = 0;
    for (int i = 0; i < STEPS; i++) {
        if (i % LIFE == 0)
            life_begin(&life);
        if (weir_rng_below(&rng, 2))
            check_push(&life);
        else
            check_next(&life);
        if (i % 4 == 0)
            check_deadline(&life);
        pass_time(&life);
        if (i % LIFE == LIFE - 1)
            doubts += life.oracle.doubts;
    }
    printf("queue: %d steps, %llu within a scaled unit of the edge\n", STEPS,
           (unsigned long long)doubts);
    free(life.queue);
    free(life.copy);
}

static void push(struct weir_queue *queue, uint64_t id, uint64_t weight,
                 weir_instant deadline)
{
    const struct weir_queue_entry entry = { id, weight, deadline };
    assert_int_equal(weir_queue_push(queue, &entry), 0);
}

static void next_is(struct weir_queue *queue, enum weir_queue_next next,
                    uint64_t id, weir_instant now)
{
    struct weir_queue_entry out = { 0 };
    assert_int_equal(weir_queue_next(queue, &out, now), next);
    if (next >= WEIR_QUEUE_RELEASED)
        assert_int_equal(out.id, id);
}

/* One a second, a hundred places, all taken by work for the next 2 s. Fresh
 * work comes at second 3: it finds room, and goes at its own turn, not after a
 * hundred seconds. */
static void test_old_work_does_not_hold_up_fresh_work(void **state)
{
    (void)state;
    struct weir_queue *queue = made_queue(100, 1, WEIR_SECOND, 1);
    const struct weir_queue_entry fresh = { 1000, 1, WEIR_NEVER };
    for (uint64_t id = 0; id < 100; id++)
        push(queue, id, 1, BEGIN + 2 * WEIR_SECOND);
    next_is(queue, WEIR_QUEUE_RELEASED, 0, BEGIN);
    next_is(queue, WEIR_QUEUE_WAIT, 0, BEGIN + WEIR_SECOND / 2);
    next_is(queue, WEIR_QUEUE_RELEASED, 1, BEGIN + WEIR_SECOND);
    push(queue, 100, 1, BEGIN + 2 * WEIR_SECOND);
    push(queue, 101, 1, BEGIN + 2 * WEIR_SECOND);

    weir_instant now = BEGIN + 3 * WEIR_SECOND;
    assert_int_equal(weir_queue_push(queue, &fresh), WEIR_EFULL);
    bool handed[102] = { true, true };
    struct weir_queue_entry out;
    while (weir_queue_next(queue, &out, now) == WEIR_QUEUE_EXPIRED) {
        assert_false(handed[out.id]);
        handed[out.id] = true;
    }
    for (size_t id = 0; id < WEIR_COUNT_OF(handed); id++)
        assert_true(handed[id]);
    assert_int_equal(weir_queue_push(queue, &fresh), 0);
    next_is(queue, WEIR_QUEUE_RELEASED, 1000, now);
    next_is(queue, WEIR_QUEUE_EMPTY, 0, now);
    free(queue);
}

/* An item that waits in the middle expires in the middle, at its own
 * instant. */
static void test_expires_wherever_it_stands(void **state)
{
    (void)state;
    struct weir_queue *queue = made_queue(4, 1, WEIR_SECOND, 1);
    push(queue, 0, 1, WEIR_NEVER);
    push(queue, 1, 1, WEIR_NEVER);
    push(queue, 2, 1, BEGIN + 5);
    push(queue, 3, 1, WEIR_NEVER);
    next_is(queue, WEIR_QUEUE_RELEASED, 0, BEGIN);
    assert_true(weir_queue_deadline(queue, BEGIN) == BEGIN + 5);
    next_is(queue, WEIR_QUEUE_WAIT, 0, BEGIN + 4);
    next_is(queue, WEIR_QUEUE_EXPIRED, 2, BEGIN + 5);
    next_is(queue, WEIR_QUEUE_WAIT, 0, BEGIN + 5);
    next_is(queue, WEIR_QUEUE_RELEASED, 1, BEGIN + WEIR_SECOND);
    next_is(queue, WEIR_QUEUE_WAIT, 0, BEGIN + WEIR_SECOND);
    next_is(queue, WEIR_QUEUE_RELEASED, 3, BEGIN + 2 * WEIR_SECOND);
    free(queue);
}

static void test_a_weight_above_the_burst_owes_the_rest(void **state)
{
    (void)state;
    struct weir_queue *queue = made_queue(4, 10, WEIR_SECOND, 5);
    push(queue, 0, 25, WEIR_NEVER);
    push(queue, 1, 0, WEIR_NEVER);
    push(queue, 2, 5, WEIR_NEVER);
    next_is(queue, WEIR_QUEUE_RELEASED, 0, BEGIN);
    next_is(queue, WEIR_QUEUE_WAIT, 0, BEGIN + 2 * WEIR_SECOND - 1000);
    next_is(queue, WEIR_QUEUE_RELEASED, 1, BEGIN + 2 * WEIR_SECOND);
    next_is(queue, WEIR_QUEUE_WAIT, 0, BEGIN + 2 * WEIR_SECOND);
    next_is(queue, WEIR_QUEUE_RELEASED, 2, BEGIN + 25 * WEIR_SECOND / 10);
    free(queue);
}

static void test_options_have_ranges(void **state)
{
    (void)state;
    struct weir_queue_options sound = { 1, 1, 1, 1 };
    assert_compare(weir_queue_size(&sound), >, 0);
    struct weir_queue_options wrong[] = {
        { 0, 1, 1, 1 }, { WEIR_QUEUE_MAX + 1, 1, 1, 1 },
        { 1, 1, 0, 1 }, { 1, 101, 1, 1 },
        { 1, 1, 1, 0 }, { 1, 1, 1, ((uint64_t)1 << 50) + 1 },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(wrong); i++)
        assert_int_equal(weir_queue_size(&wrong[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_histories),
        cmocka_unit_test(test_old_work_does_not_hold_up_fresh_work),
        cmocka_unit_test(test_expires_wherever_it_stands),
        cmocka_unit_test(test_a_weight_above_the_burst_owes_the_rest),
        cmocka_unit_test(test_options_have_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
