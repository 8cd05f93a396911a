/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_share.c - any bytes as claims and capacities: a refused change
 * changes nothing, and every share is from 0 to the amount that is wanted. */

#include <math.h>
#include <string.h>

#include "core/leased/fair_share.h"
#include "mem_maker.h"

#define CLAIMS 64
#define STEP 19 /* bytes */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static double double_of(const uint8_t *data)
{
    double value;
    memcpy(&value, data, sizeof(value));
    return value;
}

static void check_shares(const struct weir_book *book, uint32_t claim,
                         double capacity)
{
    double wants = weir_fair_share(book, WEIR_SHARE_NONE, claim, 0);
    if (!(capacity >= 0)) /* callers must not pass it */
        return;
    for (int a = WEIR_SHARE_NONE; a <= WEIR_SHARE_PRIORITY; a++) {
        double share = weir_fair_share(book, (enum weir_share_algorithm)a,
                                       claim, capacity);
        weir_assert(share >= 0 && share <= wants);
    }
    weir_assert(weir_book_level(book, capacity) >= 0);
}

static void check_sums(const struct weir_book *book, uint32_t claims)
{
    struct weir_book_sum all = weir_book_sum(book);
    weir_assert(all.claims == claims);
    weir_assert(all.wants >= 0 && all.wants <= WEIR_WANTS_MAX * CLAIMS);
    weir_book_audit(book);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_book *book = weir_book_new(&maker_mem, size);
    bool used[CLAIMS] = { false };
    uint32_t claims = 0;
    for (; size >= STEP; data += STEP, size -= STEP) {
        uint32_t claim = data[0] % CLAIMS;
        int64_t band = (int8_t)data[1];
        uint64_t weight = 0;
        memcpy(&weight, data + 2, data[0] & 64 ? 1 : 5);
        double wants = double_of(data + 7);
        if (used[claim] && data[0] & 128) {
            weir_book_remove(book, claim);
            used[claim] = false;
            claims--;
        } else if (used[claim]) {
            int error = weir_book_change(book, claim, band, weight, wants);
            weir_assert(error == 0 || error == WEIR_EINVAL);
        } else if (weir_book_add(book, band, weight, wants, &claim) == 0) {
            weir_assert(claim < CLAIMS && !used[claim]);
            used[claim] = true;
            claims++;
        }
        check_sums(book, claims);
        float capacity;
        memcpy(&capacity, data + 15, sizeof(capacity));
        for (uint32_t i = 0; i < CLAIMS; i++)
            if (used[i])
                check_shares(book, i, (double)capacity);
    }
    weir_book_free(book);
    return 0;
}
