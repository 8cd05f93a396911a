/* SPDX-License-Identifier: MIT
 * test_wait_queue.c - the order of a wait queue, compared with an array that is
 * searched from end to end. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/algorithm/wait_queue.h"
#include "core/base/rng.h"
#include "table_maker.h"

#define PLACES 24
#define STEPS 200000

struct oracle {
    struct weir_wait_queue_entry place[PLACES];
    bool waits[PLACES];
    uint64_t tickets;
};

/* True: a comes before b, spelled out. */
static bool is_earlier(enum weir_wait_queue_order order,
                       const struct weir_wait_queue_entry *a,
                       const struct weir_wait_queue_entry *b)
{
    if (order == WEIR_WAIT_QUEUE_PRIORITY && a->priority > b->priority)
        return true;
    if (order == WEIR_WAIT_QUEUE_PRIORITY && a->priority < b->priority)
        return false;
    return order == WEIR_WAIT_QUEUE_LIFO ? a->ticket > b->ticket
                                         : a->ticket < b->ticket;
}

static const struct weir_wait_queue_entry *next_of(
    const struct oracle *oracle, enum weir_wait_queue_order order,
    uint32_t without)
{
    const struct weir_wait_queue_entry *next = NULL;
    for (uint32_t i = 0; i < PLACES; i++) {
        const struct weir_wait_queue_entry *place = &oracle->place[i];
        if (!oracle->waits[i] || (without >> place->lane & 1))
            continue;
        if (!next || is_earlier(order, place, next))
            next = place;
    }
    return next;
}

static uint32_t count_of(const struct oracle *oracle)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PLACES; i++)
        count += oracle->waits[i];
    return count;
}

static void step(struct weir_wait_queue *line, struct oracle *oracle,
                 struct weir_rng *rng)
{
    uint32_t i = (uint32_t)weir_rng_below(rng, PLACES);
    if (weir_rng_below(rng, 50) == 0) {
        weir_wait_queue_reorder(line,
                                1 + (enum weir_wait_queue_order)weir_rng_below(
                                        rng, WEIR_WAIT_QUEUE_PRIORITY));
    } else if (oracle->waits[i]) {
        weir_wait_queue_leave(line, &oracle->place[i]);
        oracle->waits[i] = false;
    } else {
        oracle->place[i] = (struct weir_wait_queue_entry){
            .lane = (uint32_t)weir_rng_below(rng, WEIR_WAIT_QUEUE_LANES),
            .ticket = oracle->tickets++,
            .priority = (int64_t)weir_rng_below(rng, 5) - 2,
        };
        weir_wait_queue_join(line, &oracle->place[i]);
        oracle->waits[i] = true;
    }
}

static void histories(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("line");
    struct oracle oracle = { .tickets = 1 };
    struct weir_wait_queue line;
    weir_wait_queue_init(&line, WEIR_WAIT_QUEUE_FIFO);
    for (uint32_t i = 0; i < STEPS; i++) {
        step(&line, &oracle, &rng);
        uint32_t without = (uint32_t)weir_rng_below(&rng, 8)
                           << weir_rng_below(&rng, WEIR_WAIT_QUEUE_LANES);
        assert_ptr_equal(weir_wait_queue_next(&line, without),
                         next_of(&oracle, line.order, without));
        assert_ptr_equal(weir_wait_queue_next(&line, 0),
                         next_of(&oracle, line.order, 0));
        assert_int_equal(line.count, count_of(&oracle));
    }
}

/* A caller that came early and was moved here from another queue is at the
 * place of its ticket. */
static void late_with_an_early_ticket(void **state)
{
    (void)state;
    struct weir_wait_queue line;
    struct weir_wait_queue_entry first = { .ticket = 1 },
                                 second = { .ticket = 2 };
    weir_wait_queue_init(&line, WEIR_WAIT_QUEUE_FIFO);
    weir_wait_queue_join(&line, &second);
    weir_wait_queue_join(&line, &first);
    assert_ptr_equal(weir_wait_queue_next(&line, 0), &first);
    weir_wait_queue_leave(&line, &first);
    assert_ptr_equal(weir_wait_queue_next(&line, 0), &second);
    weir_wait_queue_leave(&line, &second);
    assert_null(weir_wait_queue_next(&line, 0));
    assert_int_equal(line.lanes, 0);
}

/* For a hundred thousand waiting callers: inserting each anew, from the end,
 * took minutes. */
static void a_long_line_is_reordered(void **state)
{
    (void)state;
    enum { LONG = 300000 };
    static struct weir_wait_queue_entry place[LONG];
    struct weir_rng rng = made_seed("long");
    struct weir_wait_queue line;
    weir_wait_queue_init(&line, WEIR_WAIT_QUEUE_FIFO);
    for (uint32_t i = 0; i < LONG; i++) {
        place[i] = (struct weir_wait_queue_entry){
            .ticket = i, .priority = (int64_t)weir_rng_below(&rng, 1000)
        };
        weir_wait_queue_join(&line, &place[i]);
    }
    weir_wait_queue_reorder(&line, WEIR_WAIT_QUEUE_PRIORITY);
    assert_int_equal(line.count, LONG);
    for (const struct weir_wait_queue_entry *at = line.first[0]; at->after;
         at = at->after) {
        assert_ptr_equal(at->after->before, at);
        assert_true(is_earlier(WEIR_WAIT_QUEUE_PRIORITY, at, at->after));
    }
    weir_wait_queue_reorder(&line, WEIR_WAIT_QUEUE_LIFO);
    for (uint32_t i = LONG; i-- > 0;) {
        assert_ptr_equal(weir_wait_queue_next(&line, 0), &place[i]);
        weir_wait_queue_leave(&line, &place[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_with_an_early_ticket),
        cmocka_unit_test(histories),
        cmocka_unit_test(a_long_line_is_reordered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
