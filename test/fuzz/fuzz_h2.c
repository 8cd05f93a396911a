/* SPDX-License-Identifier: MIT
 * fuzz_h2.c - any bytes into a session, as server (even first byte) and as
 * client (odd). Bit 1: the client's preface comes before. The input decides
 * whether the handler answers, finishes or resets a call. */

#include <stdlib.h>
#include <string.h>

#include "io/h2.h"

/* The calls that are open, as the handler knows them. */
struct owner {
    int32_t open[2 * WEIR_H2_STREAMS_MAX];
    size_t count;
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void begin(struct owner *owner, int32_t stream)
{
    require(stream > 0 && owner->count < 2 * WEIR_H2_STREAMS_MAX);
    owner->open[owner->count++] = stream;
}

static size_t place(const struct owner *owner, int32_t stream)
{
    size_t i = 0;
    while (i < owner->count && owner->open[i] != stream)
        i++;
    require(i < owner->count);
    return i;
}

static void end(struct owner *owner, int32_t stream)
{
    size_t i = place(owner, stream);
    owner->open[i] = owner->open[--owner->count];
}

static bool on_call(void *context, struct weir_h2 *h2, int32_t stream,
                    const char *path, const char *authorization)
{
    (void)authorization;
    (void)h2;
    require(strlen(path) <= WEIR_H2_PATH_MAX);
    begin(context, stream);
    return true;
}

static void on_message(void *context, struct weir_h2 *h2, int32_t stream,
                       const void *bytes, size_t len)
{
    (void)place(context, stream);
    if (len == 3) {
        end(context, stream);
        weir_h2_reset(h2, stream);
        return;
    }
    (void)weir_h2_send(h2, stream, bytes, len, len == 5);
}

static void on_end(void *context, struct weir_h2 *h2, int32_t stream)
{
    end(context, stream);
    require(weir_h2_finish(h2, stream, WEIR_GRPC_OK, "fine %") == 0);
}

static void on_close(void *context, struct weir_h2 *h2, int32_t stream,
                     int status, const char *message)
{
    (void)h2;
    require(status >= 0 && strlen(message) < WEIR_H2_TEXT_MAX);
    end(context, stream);
}

static void drain(struct weir_h2 *h2)
{
    const void *bytes;
    for (int i = 0; i < 1000 && weir_h2_output(h2, &bytes) > 0; i++)
        (void)weir_h2_feed(h2, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct owner owner = { .count = 0 };
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    if (size < 2)
        return 0;
    bool server = !(data[0] & 1);
    struct weir_h2_handler handler = { &owner, on_call, on_message, on_end,
                                       on_close };
    struct weir_h2 *h2 = weir_h2_new(server, &handler);
    require(h2 != NULL);
    if (server && data[0] & 2)
        require(weir_h2_feed(h2, preface, sizeof(preface) - 1) == 0);
    for (int i = 0; !server && i < 3; i++)
        begin(&owner, weir_h2_call(h2, "/weir.v1.Root/Link", "x", NULL));
    drain(h2);
    size_t piece = (size_t)data[1] + 1;
    data += 2;
    size -= 2;
    int error = 0;
    while (size > 0 && error == 0) {
        size_t len = piece < size ? piece : size;
        error = weir_h2_feed(h2, data, len);
        drain(h2);
        data += len;
        size -= len;
    }
    require(error == 0 || error == WEIR_EPROTOCOL);
    weir_h2_end(h2, "the end");
    require(owner.count == 0);
    weir_h2_free(&h2);
    return 0;
}
