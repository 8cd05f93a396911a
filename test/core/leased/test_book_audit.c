/* SPDX-License-Identifier: MIT
 * test_book_audit.c - the audit of a book of claims finds each planted
 * violation. Its histories are in test_fair_share_water.c. */

#include "planted.h"

/* Its structs are its own. */
#include "core/leased/fair_share.c"
#include "pool_by_hand.h"

static void audit_book(void *context)
{
    weir_book_audit(context);
}

static void test_book(void **state)
{
    (void)state;
    struct weir_book *book = weir_book_new(&maker_mem, 1);
    uint32_t claim;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(weir_book_add(book, i, 1 + i, 1, &claim), 0);
    const struct planted planted[] = {
        PLANTED(book->count),
        PLANTED(book->bands_count),
        PLANTED(book->order[0]),
        PLANTED(book->bands[1].number),
        PLANTED(book->bands[1].claims),
        PLANTED(book->bands[1].root),
        PLANTED(book->root),
    };
    assert_audit_finds(audit_book, book, planted, WEIR_COUNT_OF(planted));
    weir_book_free(book);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_book),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
