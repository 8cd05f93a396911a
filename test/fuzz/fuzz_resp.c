/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_resp.c - any bytes as requests of a client of Redis: each
 * request lies within them, and bytes after its end don't change it.
 *
 * In an accepted array, hiredis's reader finds the same strings, and an array
 * that Weir calls incomplete is none yet to hiredis either. Beyond the part of
 * the language that both have:
 *  - inline commands are for servers alone;
 *  - an array of a negative count is an empty request, as to redis-server; to
 *    hiredis *-1 is a null, and a smaller count an error.
 * Weir refuses more: elements that aren't bulk strings, nulls, requests above
 * its bounds, and strings that don't end in CRLF, which hiredis doesn't look
 * at. */

#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

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

static bool is_same_array(const redisReply *theirs)
{
    if (!theirs || theirs->type != REDIS_REPLY_ARRAY ||
        theirs->elements != request.count)
        return false;
    for (size_t i = 0; i < request.count; i++) {
        const redisReply *element = theirs->element[i];
        if (element->type != REDIS_REPLY_STRING ||
            element->len != request.argument[i].len ||
            memcmp(element->str, request.argument[i].p, element->len) != 0)
            return false;
    }
    return true;
}

static void compare_array(const char *bytes, size_t len, bool is_whole)
{
    void *theirs = NULL;
    redisReader *reader = redisReaderCreate();
    weir_assert(reader && redisReaderFeed(reader, bytes, len) == REDIS_OK);
    int status = redisReaderGetReply(reader, &theirs);
    weir_assert(!is_whole || status == REDIS_OK);
    weir_assert(is_whole ? is_same_array(theirs) : theirs == NULL);
    if (theirs)
        freeReplyObject(theirs);
    redisReaderFree(reader);
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
        bool is_array =
            bytes[at] == '*' && size - at > 1 && bytes[at + 1] != '-';
        if (whole >= 0 && is_array)
            compare_array(bytes + at, whole ? used : size - at, whole);
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
