/* SPDX-License-Identifier: MIT
 * server/http_visitors.c - a list of the TLS connections of evhttp.
 *
 * A visitor is made when evhttp asks for a bufferevent, and goes with the
 * session of TLS in it, which tells us by the destructor of its own data: the
 * one hook that a connection of evhttp has from its first byte to its last.
 * What is to go is shut down below TLS; evhttp sees an end and cleans up.
 *
 * A stranger is who has not been let in: no handshake, no request yet, or
 * none that showed anything. Strangers have a time, a number and a sum of
 * bytes; who is known has evhttp's own limits only (silence, a body's size).
 *
 * evhttp reads a whole body before it asks anybody, hence the sum: without it
 * each stranger could have us keep 64 MiB. */

#include "server/http_visitors.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/listener.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "os/clock.h"

#define ADDRESS_MAX 64

struct visitor {
    struct visitor *next, **self; /* the oldest first */
    struct weir_http_visitors *visitors; /* NULL: they have gone */
    struct bufferevent *bufferevent; /* borrowed; outlives this */
    weir_instant since;
    bool shaken; /* the handshake is done */
    bool known;
    bool dropped;
    size_t bytes; /* since its last request */
    char address[ADDRESS_MAX];
};

struct weir_http_visitors {
    struct weir_tls *tls;
    struct weir_gate *gate;
    struct evconnlistener *listener; /* borrowed; NULL: none any more */
    struct visitor *first, **end;
    size_t count;
    size_t strangers;
    size_t bytes; /* of strangers */
    int index;    /* of our data in a session */
};

static bool is_stranger(const struct visitor *visitor)
{
    return !visitor->known;
}

/* ---- Coming and going ---- */

static void take_off(struct visitor *visitor)
{
    struct weir_http_visitors *all = visitor->visitors;
    *visitor->self = visitor->next;
    if (visitor->next)
        visitor->next->self = visitor->self;
    else
        all->end = visitor->self;
    all->count--;
    if (!is_stranger(visitor))
        return;
    all->strangers--;
    all->bytes -= visitor->bytes;
}

static void drop(struct visitor *visitor)
{
    if (visitor->dropped)
        return;
    visitor->dropped = true;
    shutdown(bufferevent_getfd(visitor->bufferevent), SHUT_RDWR);
}

static void on_input(struct evbuffer *input,
                     const struct evbuffer_cb_info *info, void *context)
{
    (void)input;
    struct visitor *visitor = context;
    struct weir_http_visitors *all = visitor->visitors;
    if (!all || !is_stranger(visitor))
        return;
    visitor->bytes += info->n_added;
    all->bytes += info->n_added;
    if (all->bytes > WEIR_HTTP_STRANGERS_BYTES)
        drop(visitor);
}

/* The session goes, and the connection with it. */
static void on_free(void *session, void *data, CRYPTO_EX_DATA *list,
                    int index, long number, void *context)
{
    (void)session;
    (void)list;
    (void)index;
    (void)number;
    (void)context;
    struct visitor *visitor = data;
    if (!visitor)
        return;
    evbuffer_remove_cb(bufferevent_get_input(visitor->bufferevent), on_input,
                       visitor);
    struct weir_http_visitors *all = visitor->visitors;
    if (all) {
        if (!visitor->shaken)
            weir_gate_note(all->gate, WEIR_DOOR_HTTP, WEIR_REFUSED_TLS,
                           visitor->address, "no handshake of TLS",
                           weir_clock_now());
        take_off(visitor);
        if (all->listener && all->count < WEIR_HTTP_VISITORS_MAX)
            evconnlistener_enable(all->listener);
    }
    free(visitor);
}

static void read_address(struct visitor *visitor)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    char host[46];
    char port[8];
    int fd = bufferevent_getfd(visitor->bufferevent);
    if (getpeername(fd, (struct sockaddr *)&at, &len) == 0 &&
        getnameinfo((struct sockaddr *)&at, len, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(visitor->address, sizeof visitor->address, "%s:%s", host,
                 port);
}

static void on_progress(const SSL *session, int where, int ret)
{
    (void)ret;
    struct visitor *visitor = SSL_get_app_data(session);
    if (!visitor)
        return;
    if ((where & SSL_CB_HANDSHAKE_START) && !visitor->shaken)
        read_address(visitor);
    if (where & SSL_CB_HANDSHAKE_DONE)
        visitor->shaken = true;
}

static void drop_oldest_stranger(struct weir_http_visitors *all)
{
    struct visitor *visitor = all->first;
    while (visitor && (visitor->known || visitor->dropped))
        visitor = visitor->next;
    if (visitor)
        drop(visitor);
}

static void put_on(struct weir_http_visitors *all, struct visitor *visitor)
{
    visitor->visitors = all;
    visitor->self = all->end;
    *all->end = visitor;
    all->end = &visitor->next;
    all->count++;
    all->strangers++;
    if (all->strangers > WEIR_HTTP_VISITORS_MAX / 2)
        drop_oldest_stranger(all);
    if (all->count >= WEIR_HTTP_VISITORS_MAX && all->listener)
        evconnlistener_disable(all->listener);
}

struct bufferevent *weir_http_visitors_accept(struct event_base *base,
                                              void *context)
{
    struct weir_http_visitors *all = context;
    struct visitor *visitor = calloc(1, sizeof *visitor);
    struct bufferevent *made = weir_tls_bufferevent(all->tls, base);
    if (!visitor || !made)
        abort(); /* no memory, and never plain text instead */
    visitor->bufferevent = made;
    visitor->since = weir_clock_now();
    SSL *session = bufferevent_openssl_get_ssl(made);
    if (SSL_set_ex_data(session, all->index, visitor) != 1 ||
        SSL_set_app_data(session, visitor) != 1 ||
        !evbuffer_add_cb(bufferevent_get_input(made), on_input, visitor))
        abort(); /* as above */
    SSL_set_info_callback(session, on_progress);
    put_on(all, visitor);
    return made;
}

/* ---- What they do ---- */

static void set_known(struct visitor *visitor, bool known)
{
    struct weir_http_visitors *all = visitor->visitors;
    if (is_stranger(visitor)) {
        all->strangers--;
        all->bytes -= visitor->bytes;
    }
    visitor->bytes = 0;
    visitor->known = known;
    if (is_stranger(visitor))
        all->strangers++;
}

void weir_http_visitors_asked(struct weir_http_visitors *visitors,
                              struct bufferevent *bufferevent, bool known)
{
    const SSL *session = bufferevent_openssl_get_ssl(bufferevent);
    struct visitor *visitor = SSL_get_ex_data(session, visitors->index);
    set_known(visitor, visitor->known || known);
}

void weir_http_visitors_recheck(struct weir_http_visitors *visitors)
{
    for (struct visitor *v = visitors->first; v; v = v->next) {
        if (v->known)
            v->since = weir_clock_now();
        set_known(v, false);
    }
}

void weir_http_visitors_doubt(struct weir_http_visitors *visitors,
                              const struct weir_tls *tls)
{
    for (struct visitor *v = visitors->first; v; v = v->next) {
        const char *why =
            v->dropped ? NULL : weir_tls_bufferevent_doubt(v->bufferevent, tls);
        if (!why)
            continue;
        weir_gate_note(visitors->gate, WEIR_DOOR_HTTP, WEIR_REFUSED_TLS,
                       v->address, why, weir_clock_now());
        drop(v);
    }
}

void weir_http_visitors_look(struct weir_http_visitors *visitors)
{
    weir_http_visitors_doubt(visitors, NULL);
    weir_instant now = weir_clock_now();
    bool shut = weir_gate_is_shut(visitors->gate);
    for (struct visitor *v = visitors->first; v; v = v->next) {
        bool slow = !v->shaken && now >= v->since + WEIR_TLS_HANDSHAKE_MAX;
        bool strange = shut && is_stranger(v) && v->shaken &&
                       now >= v->since + WEIR_HTTP_STRANGER_MAX;
        if (v->dropped || (!slow && !strange))
            continue;
        if (strange)
            weir_gate_note(visitors->gate, WEIR_DOOR_HTTP,
                           WEIR_REFUSED_CREDENTIAL, v->address, "it stayed "
                           "for 30 s and showed nothing that is known", now);
        drop(v);
    }
}

/* ---- Life ---- */

struct weir_http_visitors *weir_http_visitors_new(struct weir_tls *tls,
                                                  struct weir_gate *gate)
{
    struct weir_http_visitors *made = calloc(1, sizeof *made);
    int index = SSL_get_ex_new_index(0, NULL, NULL, NULL, on_free);
    if (!made || index < 0) {
        free(made);
        return NULL;
    }
    made->tls = tls;
    made->gate = gate;
    made->end = &made->first;
    made->index = index;
    return made;
}

void weir_http_visitors_set_listener(struct weir_http_visitors *visitors,
                                     struct evconnlistener *listener)
{
    visitors->listener = listener;
}

void weir_http_visitors_free(struct weir_http_visitors **visitors)
{
    if (!*visitors)
        return;
    for (struct visitor *v = (*visitors)->first; v; v = v->next)
        v->visitors = NULL;
    free(*visitors);
    *visitors = NULL;
}
