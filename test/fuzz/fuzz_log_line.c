/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_log_line.c - any bytes as lines of an access log: the parts
 * that are found lie within the line, and the minute that the clock remembers
 * from the line before changes nothing. */

#include <string.h>

#include "lab/log_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inside(struct weir_text line, struct weir_text part)
{
    if (part.len == 0 || (part.len == 1 && part.p[0] == '-'))
        return;
    weir_assert(part.p >= line.p && part.p + part.len <= line.p + line.len);
}

static void check_line(struct weir_text line, struct weir_log_clock *clock)
{
    struct weir_log_clock fresh = { .text = "" };
    struct weir_log_line one, two;
    const char *why = weir_log_line_begin(line, clock, &one);
    const char *again = weir_log_line_begin(line, &fresh, &two);
    weir_assert(!why == !again);
    if (why)
        return;
    weir_assert(one.at == two.at && one.at >= 0);
    check_inside(line, one.client);
    check_inside(line, one.user);
    if (weir_log_line_end(&one))
        return;
    check_inside(line, one.method);
    check_inside(line, one.path);
    check_inside(line, one.protocol);
    check_inside(line, one.status);
    check_inside(line, one.referer);
    check_inside(line, one.agent);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_log_clock clock = { .text = "" };
    const char *at = (const char *)data;
    const char *end = at + size;
    while (at < end) {
        const char *feed = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((feed ? feed : end) - at);
        check_line((struct weir_text){ at, len }, &clock);
        at += len + 1;
    }
    return 0;
}
