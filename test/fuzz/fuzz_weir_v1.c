/* SPDX-License-Identifier: MIT
 * fuzz_weir_v1.c - an accepted message equals protobuf-c's, and is encoded in
 * one form. The first byte chooses the direction. */

#include <stdlib.h>
#include <string.h>

#include "codec/weir_v1.h"
#include "weir_v1_oracle.h"

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_call(const uint8_t *data, size_t size)
{
    struct weir_call_request request;
    struct weir_call_reply reply;
    static uint8_t buf[1 << 20];
    if (weir_v1_request_decode(data, size, &request) == 0)
        require(weir_v1_request_encode(&request, buf, sizeof(buf)) > 0);
    if (weir_v1_reply_decode(data, size, &reply) == 0)
        require(weir_v1_reply_encode(&reply, buf, sizeof(buf)) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char first_block[4 << 20], second_block[4 << 20];
    static uint8_t once[1 << 20], twice[1 << 20];
    if (size == 0)
        return 0;
    bool to_root = data[0] & 1;
    data++;
    size--;
    check_call(data, size);
    struct weir_arena first = { first_block, sizeof(first_block), 0 };
    struct weir_arena second = { second_block, sizeof(second_block), 0 };
    struct weir_message message, again;
    if (weir_v1_decode(data, size, to_root, &first, &message) < 0)
        return 0;
    require(oracle_agrees(data, size, to_root, &message));
    size_t len = weir_v1_encode(&message, once, sizeof(once));
    require(len > 0 && len == weir_v1_size(&message));
    require(weir_v1_decode(once, len, to_root, &second, &again) == 0);
    require(weir_v1_encode(&again, twice, sizeof(twice)) == len);
    require(memcmp(once, twice, len) == 0);
    return 0;
}
