/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_doorman.c - any bytes as a message of Doorman; the first byte
 * chooses its type. A decoded message equals protobuf-c's, and can be encoded
 * and decoded again. */

#include <string.h>

#include "doorman_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rows(const struct weir_doorman_message *message,
                       const struct weir_doorman_message *again)
{
    bool has_rows = message->type == WEIR_DOORMAN_GET_REQUEST ||
                    message->type == WEIR_DOORMAN_SERVER_REQUEST ||
                    message->type == WEIR_DOORMAN_RELEASE_REQUEST;
    for (size_t i = 0; has_rows && i < message->count; i++) {
        struct weir_diag diag = { 0 };
        int error = weir_doorman_check_row(message, i, &diag);
        weir_assert((error < 0) == (diag.text[0] != '\0'));
        weir_assert(weir_doorman_check_row(again, i, NULL) == error);
        if (message->type != WEIR_DOORMAN_RELEASE_REQUEST)
            weir_assert(weir_doorman_check_amounts(message, i, NULL) ==
                        weir_doorman_check_amounts(again, i, NULL));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char first_block[1 << 20], second_block[1 << 20];
    static uint8_t once[1 << 20], twice[1 << 20];
    if (size == 0)
        return 0;
    enum weir_doorman_type type = data[0] % WEIR_DOORMAN_TYPES;
    data++;
    size--;
    struct weir_arena first = { first_block, sizeof(first_block), 0 };
    struct weir_arena second = { second_block, sizeof(second_block), 0 };
    struct weir_doorman_message message, again;
    struct weir_diag diag = { 0 };
    if (weir_doorman_decode(data, size, type, &first, &message, &diag) < 0) {
        weir_assert(diag.text[0] != '\0');
        return 0;
    }
    int len = weir_doorman_encode(&message, once, sizeof(once));
    weir_assert(len >= 0);
    weir_assert(oracle_doorman(type, data, size, once, (size_t)len));
    weir_assert(weir_doorman_decode(once, (size_t)len, type, &second, &again,
                                    NULL) == 0);
    weir_assert(weir_doorman_encode(&again, twice, sizeof(twice)) == len);
    weir_assert(memcmp(once, twice, (size_t)len) == 0);
    if (weir_doorman_check(&message, &diag) < 0)
        weir_assert(diag.text[0] != '\0');
    else
        weir_assert(weir_doorman_check(&again, NULL) == 0);
    check_rows(&message, &again);
    return 0;
}
