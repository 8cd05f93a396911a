/* SPDX-License-Identifier: MIT
 * client/link.c - the connection to one root: a gRPC call that is begun
 * again, after a growing pause, whenever it ends. Background thread only. */

#include "client/client.h"

#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "os/clock.h"

#define BACKOFF_FIRST (50 * WEIR_MILLISECOND)
#define BACKOFF_MOST (2 * WEIR_SECOND)
/* A link that stood for so long is tried again at once when it is lost; one
 * that ends soon after each welcome isn't, for all its good beginnings. */
#define GOOD_FOR WEIR_SECOND

static void tell_down(struct weir_client_link *link, const char *why)
{
    if (link->told_down)
        return;
    link->told_down = true;
    struct weir_event event = { .type = WEIR_EVENT_ROOT_DOWN,
                                .at = weir_clock_now(),
                                .count = 1 };
    snprintf(event.text, sizeof(event.text), "%.100s: %.88s", link->text,
             why);
    weir_event_tell(link->weir, &event);
}

/* Ends the connection and tries again later. */
static void drop(struct weir_client_link *link, const char *why)
{
    struct weir *weir = link->weir;
    weir_instant now = weir_clock_now();
    weir_h2_link_close(&link->link);
    weir_limiter_link(weir->limiter, link->index, false, now);
    tell_down(link, why);
    if (link->good_at && now - link->good_at > GOOD_FOR)
        link->backoff = BACKOFF_FIRST;
    link->good_at = 0;
    struct timeval pause = {
        .tv_sec = (time_t)(link->backoff / WEIR_SECOND),
        .tv_usec = (suseconds_t)(link->backoff % WEIR_SECOND / 1000),
    };
    evtimer_add(link->retry, &pause);
    link->backoff = link->backoff * 2 < BACKOFF_MOST ? link->backoff * 2
                                                     : BACKOFF_MOST;
    weir_pump_run(weir);
}

/* One read may hold more than the bytes after which the link was dropped. */
static bool is_gone(const struct weir_client_link *link,
                    const struct weir_h2 *h2)
{
    return !link->link || weir_h2_link_h2(link->link) != h2;
}

static void on_open(void *context, struct weir_h2_link *h2_link)
{
    struct weir_client_link *link = context;
    (void)h2_link;
    weir_limiter_link(link->weir->limiter, link->index, true,
                      weir_clock_now());
    weir_pump_run(link->weir);
}

/* To who knows that nobody answers it is news that somebody does, and isn't
 * understood or doesn't want us; once for each kind. */
static void tell_again(struct weir_client_link *link, int error)
{
    link->told_down &= link->told_error == error;
    link->told_error = error;
}

static void on_lost(void *context, struct weir_h2_link *h2_link,
                    const char *why)
{
    (void)h2_link;
    drop(context, why);
}

static void on_message(void *context, struct weir_h2 *h2, int32_t stream,
                       const void *bytes, size_t len)
{
    struct weir_client_link *link = context;
    struct weir *weir = link->weir;
    (void)stream;
    if (is_gone(link, h2))
        return;
    struct weir_message message;
    int error = weir_v1_decode(bytes, len, false, &weir->arena, &message);
    if (error == 0)
        error = weir_limiter_receive(weir->limiter, link->index, &message,
                                     weir_clock_now());
    if (error < 0) {
        tell_again(link, error);
        drop(link, weir_strerror(error));
        return;
    }
    /* It speaks our protocol: the next loss is news again. */
    link->told_down = false;
    link->told_error = 0;
    if (!link->good_at)
        link->good_at = weir_clock_now();
    weir_pump_run(weir);
}

static void on_close(void *context, struct weir_h2 *h2, int32_t stream,
                     int grpc_status, const char *message)
{
    struct weir_client_link *link = context;
    (void)stream;
    if (is_gone(link, h2))
        return;
    char why[128];
    bool said = message && *message;
    /* Of a lost connection, of a peer that can't serve, or won't serve us: the
     * text is all there is to say. */
    bool is_plain = grpc_status == WEIR_GRPC_UNAVAILABLE ||
                    grpc_status == WEIR_GRPC_UNAUTHENTICATED ||
                    grpc_status == WEIR_GRPC_PERMISSION_DENIED;
    if (is_plain && said)
        snprintf(why, sizeof(why), "%.120s", message);
    else
        snprintf(why, sizeof(why), "the call ended with gRPC status %d%s%.80s",
                 grpc_status, said ? ": " : "", said ? message : "");
    if (weir_h2_link_is_refused(link->link))
        tell_again(link, WEIR_ETLS);
    else if (grpc_status == WEIR_GRPC_UNAUTHENTICATED ||
             grpc_status == WEIR_GRPC_PERMISSION_DENIED)
        tell_again(link, WEIR_ECREDENTIAL);
    drop(link, why);
}

static int open_link(struct weir_client_link *link, struct weir_tls *tls)
{
    struct weir *weir = link->weir;
    struct weir_stream_handler none = { 0 };
    struct weir_h2_link_handler handler = {
        .context = link,
        .calls = { .context = link,
                   .on_message = on_message,
                   .on_close = on_close },
        .on_open = on_open,
        .on_lost = on_lost,
    };
    struct weir_stream *stream =
        weir_stream_connect(weir->base, &link->address, tls, 0, &none);
    if (stream)
        link->link = weir_h2_link_new(stream, false, &handler);
    return link->link ? 0 : WEIR_ENOMEM;
}

/* Files that have changed and can't be used, while others are in force. */
static void tell_files(struct weir *weir, const struct weir_diag *diag)
{
    struct weir_event event = { .type = WEIR_EVENT_CREDENTIAL,
                                .at = weir_clock_now(),
                                .count = 1 };
    snprintf(event.text, sizeof(event.text), "%.191s", diag->text);
    weir_event_tell(weir, &event);
}

/* The connection and its call, or why not. */
static int begin(struct weir_client_link *link, struct weir_diag *diag)
{
    struct weir *weir = link->weir;
    struct weir_tls *tls;
    char authorization[WEIR_H2_AUTHORIZATION_MAX + 1] = "";
    int error = weir_login_tls(weir->login, &tls, diag);
    if (error > 0)
        tell_files(weir, diag);
    if (error >= 0)
        error = weir_login_authorization(weir->login, authorization, diag);
    if (error == 0)
        error = open_link(link, tls);
    if (error == 0)
        link->stream = weir_h2_call(
            weir_h2_link_h2(link->link), WEIR_V1_LINK, link->address.host,
            authorization[0] ? authorization : NULL);
    explicit_bzero(authorization, sizeof(authorization));
    return error;
}

void weir_client_link_connect(struct weir_client_link *link)
{
    struct weir_diag diag = { .text = "" };
    int error = begin(link, &diag);
    if (error == 0) {
        weir_h2_link_flush(link->link);
        return;
    }
    if (diag.text[0])
        tell_again(link, error);
    drop(link, diag.text[0] ? diag.text : weir_strerror(error));
}
static void on_retry(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    weir_client_link_connect(context);
}

int weir_client_link_init(struct weir *weir, uint32_t index)
{
    struct weir_client_link *link = &weir->link[index];
    link->weir = weir;
    link->index = index;
    link->link = NULL;
    link->told_down = false;
    link->told_error = 0;
    link->good_at = 0;
    link->backoff = BACKOFF_FIRST;
    bool v6 = strchr(link->address.host, ':') != NULL;
    snprintf(link->text, sizeof(link->text), v6 ? "[%s]:%u" : "%s:%u",
             link->address.host, link->address.port);
    link->retry = evtimer_new(weir->base, on_retry, link);
    return link->retry ? WEIR_OK : WEIR_ENOMEM;
}

void weir_client_link_send(struct weir_client_link *link,
                           const struct weir_message *message)
{
    struct weir *weir = link->weir;
    size_t size = weir_v1_size(message);
    if (!link->link)
        return;
    char *out = weir_mem_grow(&weir_mem_system, weir->out, 1,
                              &weir->out_size, size);
    if (!out)
        return; /* the limiter says it again */
    weir->out = out;
    size_t len = weir_v1_encode(message, out, size);
    weir_h2_send(weir_h2_link_h2(link->link), link->stream, out, len, false);
    weir_h2_link_flush(link->link);
}

void weir_client_link_fini(struct weir_client_link *link)
{
    weir_h2_link_close(&link->link);
    if (link->retry)
        event_free(link->retry);
    link->retry = NULL;
}
