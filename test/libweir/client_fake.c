/* SPDX-License-Identifier: MIT
 * test/libweir/client_fake.c - roots that misbehave, each on a thread and a
 * loop of its own.
 *
 * Those below HTTP/2 write bytes to the socket; those above it are servers of
 * our own wire code that send messages that no root sends. */

#include "client_world.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/weir_v1.h"
#include "core/base/atomic.h"
#include "io/h2_link.h"

#define STREAMS_MAX 64

struct fake {
    enum vice vice;
    uint8_t incarnation; /* its first byte: fakes are roots of their own */
    struct event_base *base;
    struct weir_listener *listener;
    struct event *timer;
    pthread_t thread;
    char address[32];
    uint32_t accepted, stop, cut;
    struct weir_tls *tls;
    pthread_mutex_t mutex; /* of 'shown' */
    char shown[600];
    struct weir_stream *stream[STREAMS_MAX];
    struct weir_h2_link *link[STREAMS_MAX];
    char arena[1 << 20];
};

/* ---- Below HTTP/2 ---- */

/* SETTINGS; HEADERS of stream 1: 200, application/grpc; DATA that begins a
 * message of 2^31 - 1 bytes. */
static const char too_long[] =
    "\0\0\0\4\0\0\0\0\0"
    "\0\0\24\1\4\0\0\0\1\210\17\20\20application/grpc"
    "\0\0\5\0\0\0\0\0\1\0\177\377\377\377";

static void on_bytes(void *context, struct weir_stream *stream,
                     const void *bytes, size_t len)
{
    struct fake *fake = context;
    (void)bytes;
    (void)len;
    static const char garbage[] =
        "SSH-2.0-\377\376\0\1 this is no HTTP/2 at all, is it?\r\n\r\n";
    if (fake->vice == VICE_GARBAGE)
        (void)!weir_stream_write(stream, garbage, sizeof(garbage));
    if (fake->vice == VICE_TOO_LONG)
        (void)!weir_stream_write(stream, too_long, sizeof(too_long) - 1);
}

/* ---- Above ---- */

static bool on_call(void *context, struct weir_h2 *h2, int32_t stream,
                    const char *path, const char *authorization)
{
    (void)stream;
    struct fake *fake = context;
    struct weir_tls_peer names = { .count = 0 };
    for (int i = 0; i < STREAMS_MAX; i++)
        if (fake->link[i] && weir_h2_link_h2(fake->link[i]) == h2)
            weir_h2_link_peer_names(fake->link[i], &names);
    pthread_mutex_lock(&fake->mutex);
    snprintf(fake->shown, sizeof(fake->shown), "%s|%s", names.name[0],
             authorization);
    pthread_mutex_unlock(&fake->mutex);
    return strcmp(path, WEIR_V1_LINK) == 0;
}

static void welcome(struct fake *fake, struct weir_h2 *h2, int32_t stream,
                    uint64_t session)
{
    struct weir_message message = {
        .type = WEIR_MESSAGE_WELCOME,
        .session = session,
        .welcome = { .protocol = fake->vice == VICE_VERSION ? 7 : 1,
                     .name = WEIR_TEXT("fake"),
                     .incarnation = { fake->incarnation },
                     .ready = true,
                     .store = { .uuid = { 2 } },
                     .epoch = 3,
                     .settings = { .report_interval = WEIR_SECOND,
                                   .stale_after = WEIR_SECOND } },
    };
    char out[512];
    size_t len = weir_v1_encode(&message, out, sizeof(out));
    (void)!weir_h2_send(h2, stream, out, len, false);
}

static void on_message(void *context, struct weir_h2 *h2, int32_t stream,
                       const void *bytes, size_t len)
{
    struct fake *fake = context;
    struct weir_arena arena = { (unsigned char *)fake->arena,
                                sizeof(fake->arena), 0 };
    struct weir_message message;
    if (weir_v1_decode(bytes, len, true, &arena, &message) < 0)
        return;
    if (fake->vice == VICE_JUNK) {
        (void)!weir_h2_send(h2, stream, "\377\377\377junk", 7, false);
        (void)!weir_h2_send(h2, stream, "\377\377\377junk", 7, false);
    }
    if (fake->vice == VICE_VERSION || fake->vice >= VICE_FLAPS)
        welcome(fake, h2, stream, message.session);
    if (fake->vice == VICE_STATUS || fake->vice == VICE_FLAPS)
        (void)!weir_h2_finish(h2, stream, WEIR_GRPC_UNAVAILABLE,
                              "closed for lunch");
}

/* ---- The loop ---- */

static void on_accept(void *context, struct weir_stream *stream)
{
    struct fake *fake = context;
    uint32_t index = weir_fetch_add(&fake->accepted, 1);
    if (fake->vice == VICE_CLOSES || index >= STREAMS_MAX) {
        weir_stream_close(&stream, false);
        return;
    }
    if (fake->vice <= VICE_GARBAGE || fake->vice == VICE_TOO_LONG) {
        struct weir_stream_handler raw = { .context = fake,
                                           .on_bytes = on_bytes };
        weir_stream_set_handler(stream, &raw);
        fake->stream[index] = stream;
        return;
    }
    struct weir_h2_link_handler handler = {
        .context = fake,
        .calls = { .context = fake,
                   .on_call = on_call,
                   .on_message = on_message },
    };
    fake->link[index] = weir_h2_link_new(stream, true, &handler);
    weir_h2_link_set_authenticated(fake->link[index]);
}

static void on_time(evutil_socket_t fd, short what, void *context)
{
    struct fake *fake = context;
    (void)fd;
    (void)what;
    if (weir_load_acquire(&fake->stop))
        event_base_loopbreak(fake->base);
    uint32_t asked = 1;
    bool cut = weir_cas(&fake->cut, &asked, 0);
    for (int i = 0; cut && i < STREAMS_MAX; i++)
        weir_h2_link_close(&fake->link[i]);
}

static void *serve(void *context)
{
    struct fake *fake = context;
    event_base_dispatch(fake->base);
    return NULL;
}

/* Takes 'tls'. */
static struct fake *make(enum vice vice, struct weir_tls *tls)
{
    static uint8_t made;
    struct fake *fake = calloc(1, sizeof(*fake));
    assert_non_null(fake);
    fake->vice = vice;
    fake->incarnation = ++made;
    fake->tls = tls;
    pthread_mutex_init(&fake->mutex, NULL);
    fake->base = event_base_new();
    struct weir_listener_options options = {
        .address = { .host = "127.0.0.1" },
        .tls = tls,
        .max = 1000,
        .on_accept = on_accept,
        .context = fake,
    };
    assert_int_equal(
        weir_listener_new(fake->base, &options, &fake->listener, NULL), 0);
    snprintf(fake->address, sizeof(fake->address), "127.0.0.1:%u",
             weir_listener_port(fake->listener));
    fake->timer = event_new(fake->base, -1, EV_PERSIST, on_time, fake);
    event_add(fake->timer, &(struct timeval){ .tv_usec = 5000 });
    assert_int_equal(pthread_create(&fake->thread, NULL, serve, fake), 0);
    return fake;
}

struct fake *fake_new(enum vice vice)
{
    return make(vice, NULL);
}

struct fake *fake_new_tls(enum vice vice, const char *folder, const char *who)
{
    char ca[128], cert[128], key[128];
    snprintf(ca, sizeof(ca), "%s/ca.crt", folder);
    snprintf(cert, sizeof(cert), "%s/%s.crt", folder, who);
    snprintf(key, sizeof(key), "%s/%s.key", folder, who);
    struct weir_tls_options options = { true, "h2", ca, cert, key, false };
    struct weir_tls *tls;
    struct weir_diag diag;
    if (weir_tls_new(&options, &tls, &diag) < 0)
        fail_msg("%s", diag.text);
    return make(vice, tls);
}

void fake_cut(struct fake *fake)
{
    weir_store_release(&fake->cut, 1);
}

void fake_shown(struct fake *fake, char *out, size_t size)
{
    pthread_mutex_lock(&fake->mutex);
    snprintf(out, size, "%s", fake->shown);
    pthread_mutex_unlock(&fake->mutex);
}

void fake_free(struct fake *fake)
{
    weir_store_release(&fake->stop, 1);
    PATIENTLY(pthread_join(fake->thread, NULL));
    for (int i = 0; i < STREAMS_MAX; i++) {
        weir_stream_close(&fake->stream[i], false);
        weir_h2_link_close(&fake->link[i]);
    }
    weir_listener_free(&fake->listener);
    event_free(fake->timer);
    event_base_free(fake->base);
    weir_tls_free(&fake->tls);
    pthread_mutex_destroy(&fake->mutex);
    free(fake);
}

const char *fake_address(const struct fake *fake)
{
    return fake->address;
}

unsigned fake_accepted(const struct fake *fake)
{
    return weir_load_acquire(&fake->accepted);
}
