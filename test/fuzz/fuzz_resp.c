/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_resp.c - any bytes as requests of a client of Redis: each
 * request lies within them, and bytes after its end don't change it. */

#include <stdlib.h>
#include <string.h>

#include "codec/resp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct weir_resp_request request, again;

static void check_inside(const char *bytes, size_t len)
{
    for (size_t i = 0; i < request.count; i++) {
        const char *p = request.argument[i].p;
        const char *end = p + request.argument[i].len;
        bool in_bytes = p >= bytes && end <= bytes + len;
        bool in_words =
            p >= request.words && end <= request.words + sizeof request.words;
        weir_assert(in_bytes || in_words);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    size_t at = 0;
    while (at < size) {
        size_t used = 0;
        size_t used_again = 0;
        const char *error = NULL;
        int whole =
            weir_resp_decode(bytes + at, size - at, &request, &used, &error);
        if (whole <= 0) {
            weir_assert(whole == 0 || error);
            return 0;
        }
        weir_assert(used > 0 && used <= size - at);
        weir_assert(used <= WEIR_RESP_REQUEST_MAX);
        check_inside(bytes + at, used);
        char *alone = malloc(used);
        memcpy(alone, bytes + at, used);
        weir_assert(
            weir_resp_decode(alone, used, &again, &used_again, &error) == 1);
        weir_assert(used_again == used && again.count == request.count);
        weir_assert(weir_resp_decode(alone, used - 1, &again, &used_again,
                                     &error) == 0);
        free(alone);
        at += used;
    }
    return 0;
}
