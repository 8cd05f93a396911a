/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_rls.c - any bytes as a request of Envoy's, and as a health
 * check. In an accepted request, protobuf-c finds the same. Weir refuses more:
 * requests above its bounds, incomplete ones (WEIR_EINVAL), and varints of over
 * 64 bits, from which protobuf-c drops bits. */

#include "rls_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char memory[WEIR_RLS_ARENA_SIZE];
    struct weir_arena arena = { memory, sizeof memory, 0 };
    struct weir_rls_request request;
    struct weir_text service;
    struct weir_diag diag = { 0 };
    if (weir_rls_decode(data, size, &arena, &request, &diag) == 0)
        weir_assert(oracle_rls(data, size, &request));
    else
        weir_assert(diag.text[0] != '\0');
    if (weir_health_decode(data, size, &service) == 0)
        weir_assert(oracle_health(data, size, service));
    return 0;
}
