/* SPDX-License-Identifier: MIT
 * test/protocol/test_resp_transaction.c - what was queued comes back. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "io/clock.h"
#include "protocol/resp/resp_transaction.h"
#include "seed.h"

static struct weir_resp_transaction *begun(void)
{
    struct weir_resp_transaction *made =
        weir_resp_transaction_new(&weir_mem_system);
    assert_non_null(made);
    assert_int_equal(weir_resp_transaction_count(made), 0);
    assert_false(weir_resp_transaction_is_broken(made));
    return made;
}

static char bytes[2 * WEIR_RESP_REQUEST_MAX];

/* 'count' arguments of 'len' bytes each. */
static void make_request(struct weir_resp_request *out, size_t count,
                         size_t len)
{
    out->count = count;
    for (size_t i = 0; i < count; i++)
        out->argument[i] = (struct weir_text){ bytes + i, len };
}

static bool is_same(const struct weir_resp_request *a,
                    const struct weir_resp_request *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!weir_text_equal(a->argument[i], b->argument[i]))
            return false;
    return true;
}

static void requests_come_back_in_their_order(void **state)
{
    (void)state;
    static struct weir_resp_request made[WEIR_RESP_QUEUED_MAX], read;
    struct weir_rng rng = { seed_or(5) };
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)weir_rng_next(&rng);
    for (int run = 0; run < 300; run++) {
        struct weir_resp_transaction *queue = begun();
        size_t count = 0;
        int error = 0;
        /* Until it is full: by its bytes, or by its requests. */
        size_t longest = run % 3 == 0 ? 2 : 200;
        while (error == 0) {
            struct weir_resp_request request;
            make_request(&request, 1 + weir_rng_below(&rng, longest) % 64,
                         weir_rng_below(&rng, longest));
            error = weir_resp_transaction_add(queue, &request);
            if (error == 0)
                made[count++] = request;
        }
        assert_int_equal(error, WEIR_ETOOBIG);
        assert_int_equal(weir_resp_transaction_count(queue), count);
        size_t at = 0;
        for (size_t i = 0; i < count; i++) {
            assert_true(weir_resp_transaction_next(queue, &at, &read));
            assert_true(is_same(&read, &made[i]));
        }
        assert_false(weir_resp_transaction_next(queue, &at, &read));
        weir_resp_transaction_free(&queue);
        assert_null(queue);
    }
}

static void its_bounds_are_exact(void **state)
{
    (void)state;
    struct weir_resp_request request, read;
    size_t at = 0;
    struct weir_resp_transaction *queue = begun();
    make_request(&request, 1, 4);
    for (unsigned i = 0; i < WEIR_RESP_QUEUED_MAX; i++)
        assert_int_equal(weir_resp_transaction_add(queue, &request), 0);
    assert_int_equal(weir_resp_transaction_add(queue, &request), WEIR_ETOOBIG);
    assert_int_equal(weir_resp_transaction_count(queue), WEIR_RESP_QUEUED_MAX);
    weir_resp_transaction_free(&queue);
    /* The longest request, "*1 $16370 …". */
    queue = begun();
    make_request(&request, 1, WEIR_RESP_QUEUED_BYTES_MAX - 4 - 8 - 2);
    assert_int_equal(weir_resp_transaction_add(queue, &request), 0);
    assert_true(weir_resp_transaction_next(queue, &at, &read));
    assert_true(is_same(&read, &request));
    make_request(&request, 1, 0);
    assert_int_equal(weir_resp_transaction_add(queue, &request), WEIR_ETOOBIG);
    weir_resp_transaction_free(&queue);
    queue = begun();
    make_request(&request, 1, WEIR_RESP_QUEUED_BYTES_MAX - 4 - 8 - 2 + 1);
    assert_int_equal(weir_resp_transaction_add(queue, &request), WEIR_ETOOBIG);
    assert_int_equal(weir_resp_transaction_count(queue), 0);
    weir_resp_transaction_break(queue);
    assert_true(weir_resp_transaction_is_broken(queue));
    weir_resp_transaction_free(&queue);
    weir_resp_transaction_free(&queue);
}

static void *no_memory(void *context, size_t size)
{
    size_t *left = context;
    if (size > *left)
        return NULL;
    *left -= size;
    return weir_mem_system.alloc(weir_mem_system.context, size);
}

static void give_back(void *context, void *block, size_t size)
{
    *(size_t *)context += size;
    weir_mem_system.free(weir_mem_system.context, block, size);
}

static void without_memory_nothing_is_queued(void **state)
{
    (void)state;
    size_t left = 0;
    const struct weir_mem mem = { &left, no_memory, give_back };
    struct weir_resp_request request, read;
    size_t at = 0;
    assert_null(weir_resp_transaction_new(&mem));
    left = 700;
    struct weir_resp_transaction *queue = weir_resp_transaction_new(&mem);
    assert_non_null(queue);
    make_request(&request, 2, 100);
    assert_int_equal(weir_resp_transaction_add(queue, &request), 0);
    assert_int_equal(weir_resp_transaction_add(queue, &request), WEIR_ENOMEM);
    assert_int_equal(weir_resp_transaction_count(queue), 1);
    assert_true(weir_resp_transaction_next(queue, &at, &read));
    assert_false(weir_resp_transaction_next(queue, &at, &read));
    weir_resp_transaction_free(&queue);
    assert_int_equal(left, 700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_come_back_in_their_order),
        cmocka_unit_test(its_bounds_are_exact),
        cmocka_unit_test(without_memory_nothing_is_queued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
