/* SPDX-License-Identifier: MIT
 * io/root_link.c - a call that is repeated whenever it ends.
 *
 * The pause before the next try grows, and is reset only after a link that
 * lasted a while: otherwise a root that welcomes us and drops us at once would
 * be called without end. For the same reason a loss is reported once, until a
 * message has come or another kind of failure. */

#include "io/root_link.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/weir_v1.h"
#include "io/clock.h"
#include "io/h2_link.h"

#define BACKOFF_FIRST (50 * WEIR_MILLISECOND)
/* Meanwhile callers are decided without the root: a root that is back is
 * reached within a second. */
#define BACKOFF_MOST (800 * WEIR_MILLISECOND)

struct weir_root_link {
    struct weir_root_link_options options;
    struct weir_address address;
    char host[sizeof(((struct weir_address *)0)->host)];

    struct weir_h2_link *link; /* owned; NULL: not connecting */
    int32_t stream;            /* the Link call */
    bool told_down;            /* the loss was reported already */
    int told_error;            /* the kind of the loss; or 0 */
    weir_instant good_at;      /* time of the first valid message; 0: none
                                * yet */
    struct event *retry;       /* owned */
    weir_duration backoff;
};

/* ---- Down ---- */

/* Ends the connection and tries again later. */
static void drop_root_link(struct weir_root_link *link, const char *why)
{
    weir_instant now = weir_clock_now();
    weir_h2_link_close(&link->link);
    if (link->good_at && now - link->good_at > WEIR_ROOT_LINK_GOOD_FOR)
        link->backoff = BACKOFF_FIRST;
    weir_assert(!link->link);
    link->good_at = 0;
    struct timeval pause = weir_timeval_of(link->backoff);
    evtimer_add(link->retry, &pause);
    link->backoff =
        link->backoff * 2 < BACKOFF_MOST ? link->backoff * 2 : BACKOFF_MOST;
    bool news = !link->told_down;
    link->told_down = true;
    const struct weir_root_link_handler *handler = &link->options.handler;
    handler->on_down(handler->context, news ? why : NULL);
}

/* A root that answers, but can't be understood or refuses us, is news after a
 * root that didn't answer; reported once for each kind of error. */
static void report_down_again(struct weir_root_link *link, int error)
{
    link->told_down &= link->told_error == error;
    link->told_error = error;
}

/* One read may hold bytes behind those after which the link was dropped. */
static bool is_former_h2(const struct weir_root_link *link,
                         const struct weir_h2 *h2)
{
    return !link->link || weir_h2_link_h2(link->link) != h2;
}

/* ---- The connection ---- */

static void on_root_open(void *context, struct weir_h2_link *h2_link)
{
    struct weir_root_link *link = context;
    (void)h2_link;
    link->options.handler.on_up(link->options.handler.context);
}

static void on_root_lost(void *context, struct weir_h2_link *h2_link,
                         const char *why)
{
    (void)h2_link;
    drop_root_link(context, why);
}

static void on_root_message(void *context, struct weir_h2 *h2, int32_t stream,
                            const void *bytes, size_t len)
{
    struct weir_root_link *link = context;
    const struct weir_root_link_handler *handler = &link->options.handler;
    (void)stream;
    if (is_former_h2(link, h2))
        return;
    int error = handler->on_bytes(handler->context, bytes, len);
    if (error < 0) {
        report_down_again(link, error);
        drop_root_link(link, weir_strerror(error));
        return;
    }
    /* The root speaks our protocol: the next loss is reported again. */
    link->told_down = false;
    link->told_error = 0;
    if (!link->good_at)
        link->good_at = weir_clock_now();
}

static void on_root_close(void *context, struct weir_h2 *h2, int32_t stream,
                          int grpc_status, const char *message)
{
    struct weir_root_link *link = context;
    (void)stream;
    if (is_former_h2(link, h2))
        return;
    char why[128];
    bool said = message && *message;
    /* For a lost connection, and a peer that can't or won't serve us, the text
     * says all. */
    bool is_plain = grpc_status == WEIR_GRPC_UNAVAILABLE ||
                    grpc_status == WEIR_GRPC_UNAUTHENTICATED ||
                    grpc_status == WEIR_GRPC_PERMISSION_DENIED;
    if (is_plain && said)
        snprintf(why, sizeof(why), "%.120s", message);
    else
        snprintf(why, sizeof(why), "the call ended with gRPC status %d%s%.80s",
                 grpc_status, said ? ": " : "", said ? message : "");
    if (weir_h2_link_is_refused(link->link))
        report_down_again(link, WEIR_ETLS);
    else if (grpc_status == WEIR_GRPC_UNAUTHENTICATED ||
             grpc_status == WEIR_GRPC_PERMISSION_DENIED)
        report_down_again(link, WEIR_ECREDENTIAL);
    drop_root_link(link, why);
}

static int open_root_link(struct weir_root_link *link, struct weir_tls *tls)
{
    weir_assert(!link->link);
    struct weir_stream_handler none = { 0 };
    struct weir_h2_link_handler handler = {
        .context = link,
        .calls = { .context = link,
                   .on_message = on_root_message,
                   .on_close = on_root_close },
        .on_open = on_root_open,
        .on_lost = on_root_lost,
    };
    struct weir_stream *stream = weir_stream_connect_as(
        link->options.base, &link->address, link->host, tls, 0, &none);
    if (stream)
        link->link = weir_h2_link_new(stream, false, &handler);
    return link->link ? 0 : WEIR_ENOMEM;
}

/* Connects and begins the call; or the error. */
static int begin_root_link(struct weir_root_link *link, struct weir_diag *diag)
{
    struct weir_tls *tls;
    char authorization[WEIR_H2_AUTHORIZATION_MAX + 1] = "";
    const struct weir_root_link_handler *handler = &link->options.handler;
    int error = weir_login_tls(link->options.login, &tls, diag);
    if (error > 0)
        handler->on_file(handler->context, diag->text);
    if (error >= 0)
        error =
            weir_login_authorization(link->options.login, authorization, diag);
    if (error == 0)
        error = open_root_link(link, tls);
    if (error == 0)
        link->stream =
            weir_h2_call(weir_h2_link_h2(link->link), WEIR_V1_LINK, link->host,
                         authorization[0] ? authorization : NULL);
    explicit_bzero(authorization, sizeof(authorization));
    return error;
}

void weir_root_link_connect(struct weir_root_link *link)
{
    struct weir_diag diag = { .text = "" };
    int error = begin_root_link(link, &diag);
    if (error == 0) {
        weir_h2_link_flush(link->link);
        return;
    }
    if (diag.text[0])
        report_down_again(link, error);
    drop_root_link(link, diag.text[0] ? diag.text : weir_strerror(error));
}

static void on_root_retry(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    weir_root_link_connect(context);
}

void weir_root_link_send(struct weir_root_link *link, const void *bytes,
                         size_t len)
{
    if (!link->link)
        return;
    weir_h2_send(weir_h2_link_h2(link->link), link->stream, bytes, len, false);
    weir_h2_link_flush(link->link);
}

size_t weir_root_link_queued(const struct weir_root_link *link)
{
    return link->link ? weir_h2_link_queued(link->link) : 0;
}

/* ---- Life ---- */

struct weir_root_link *weir_root_link_new(
    const struct weir_root_link_options *options)
{
    struct weir_root_link *link = calloc(1, sizeof(*link));
    if (!link)
        return NULL;
    link->options = *options;
    link->address = *options->address;
    snprintf(link->host, sizeof link->host, "%s",
             options->host ? options->host : options->address->host);
    link->backoff = BACKOFF_FIRST;
    link->retry = evtimer_new(options->base, on_root_retry, link);
    if (!link->retry)
        weir_root_link_free(&link);
    return link;
}

void weir_root_link_free(struct weir_root_link **link)
{
    if (!*link)
        return;
    weir_h2_link_close(&(*link)->link);
    if ((*link)->retry)
        event_free((*link)->retry);
    free(*link);
    *link = NULL;
}
