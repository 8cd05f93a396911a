/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_etcd_v3.c - any bytes as an answer of etcd; the first byte
 * chooses its kind. The decoder refuses it, or its texts lie within the bytes.
 */

#include "codec/etcd_v3.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_within(struct weir_text text, const uint8_t *data,
                           size_t size)
{
    const uint8_t *p = (const uint8_t *)text.p;
    weir_assert(text.len == 0 || (p >= data && p + text.len <= data + size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_etcd_answer answer;
    if (size == 0)
        return 0;
    enum weir_etcd_type type = data[0] % (WEIR_ETCD_WATCH + 1);
    if (weir_etcd_decode(type, data + 1, size - 1, &answer) == 0) {
        require_within(answer.value, data, size);
        require_within(answer.reason, data, size);
    }
    return 0;
}
