/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_etcd_v3.c - any bytes as an answer of etcd; the first byte
 * chooses its kind. In an accepted answer, protobuf-c finds the same. Weir
 * refuses more: negative revisions, a part that comes twice, and varints of
 * over 64 bits. */

#include "etcd_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_etcd_answer answer;
    if (size == 0)
        return 0;
    enum weir_etcd_type type = data[0] % (WEIR_ETCD_WATCH + 1);
    if (weir_etcd_decode(type, data + 1, size - 1, &answer) == 0)
        weir_assert(oracle_etcd(type, data + 1, size - 1, &answer));
    return 0;
}
