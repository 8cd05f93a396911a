/* SPDX-License-Identifier: MIT
 * fuzz_h2.c - any bytes into a session, as server (even first byte) and as
 * client (odd). Bit 1: the client's preface comes before. The handler
 * answers, finishes and resets by what comes. */

#include <stdlib.h>
#include <string.h>

#include "wire/h2.h"

#define STREAMS_SEEN 4096

struct owner {
    uint8_t open[STREAMS_SEEN]; /* by stream / 2 */
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

static uint8_t *place(void *context, int32_t stream)
{
    struct owner *owner = context;
    return &owner->open[(size_t)stream / 2 % STREAMS_SEEN];
}

static bool on_call(void *context, struct weir_h2 *h2, int32_t stream,
                    const char *path)
{
    (void)h2;
    require(strlen(path) <= WEIR_H2_PATH_MAX);
    *place(context, stream) = 1;
    return true;
}

static void on_message(void *context, struct weir_h2 *h2, int32_t stream,
                       const void *bytes, size_t len)
{
    require(*place(context, stream) == 1);
    if (len == 3) {
        *place(context, stream) = 0;
        weir_h2_reset(h2, stream);
        return;
    }
    (void)weir_h2_send(h2, stream, bytes, len, len == 5);
}

static void on_end(void *context, struct weir_h2 *h2, int32_t stream)
{
    require(*place(context, stream) == 1);
    *place(context, stream) = 0;
    require(weir_h2_finish(h2, stream, WEIR_GRPC_OK, "fine %") == 0);
}

static void on_close(void *context, struct weir_h2 *h2, int32_t stream,
                     int status, const char *message)
{
    (void)h2;
    require(status >= 0 && strlen(message) < WEIR_H2_TEXT_MAX);
    require(*place(context, stream) == 1);
    *place(context, stream) = 0;
}

static void drain(struct weir_h2 *h2)
{
    const void *bytes;
    for (int i = 0; i < 1000 && weir_h2_output(h2, &bytes) > 0; i++)
        (void)weir_h2_feed(h2, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct owner owner;
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    if (size < 2)
        return 0;
    memset(&owner, 0, sizeof(owner));
    bool server = !(data[0] & 1);
    struct weir_h2_handler handler = { &owner, on_call, on_message, on_end,
                                       on_close };
    struct weir_h2 *h2 = weir_h2_new(server, &handler);
    require(h2 != NULL);
    if (server && data[0] & 2)
        require(weir_h2_feed(h2, preface, sizeof(preface) - 1) == 0);
    for (int i = 0; !server && i < 3; i++)
        *place(&owner, weir_h2_call(h2, "/weir.v1.Root/Link", "x")) = 1;
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
    for (size_t i = 0; i < STREAMS_SEEN; i++)
        require(owner.open[i] == 0);
    weir_h2_free(&h2);
    return 0;
}
