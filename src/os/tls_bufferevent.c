/* SPDX-License-Identifier: MIT
 * os/tls_bufferevent.c - TLS for evhttp, which knows bufferevents only. */

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>

#include "os/tls_private.h"

struct bufferevent *weir_tls_bufferevent(struct weir_tls *tls,
                                         struct event_base *base)
{
    SSL *ssl = SSL_new(weir_tls_context_of(tls)->ssl);
    if (!ssl)
        return NULL;
    /* The session holds OpenSSL's context by itself; a server's has no more
     * to it. */
    struct bufferevent *bufferevent = bufferevent_openssl_socket_new(
        base, -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (!bufferevent) {
        SSL_free(ssl);
        return NULL;
    }
    /* What was read ahead with the end of the handshake would wait for more
     * to come: libevent asks OpenSSL for whole records only. */
    SSL_set_read_ahead(ssl, 0);
    /* HTTP says itself where a message ends. */
    bufferevent_openssl_set_allow_dirty_shutdown(bufferevent, 1);
    return bufferevent;
}

void weir_tls_bufferevent_names(struct bufferevent *bufferevent,
                                struct weir_tls_peer *out)
{
    out->count = 0;
    const SSL *ssl = bufferevent_openssl_get_ssl(bufferevent);
    if (ssl)
        weir_tls_names_of(ssl, out);
}

const char *weir_tls_bufferevent_doubt(struct bufferevent *bufferevent,
                                       const struct weir_tls *now)
{
    const SSL *ssl = bufferevent_openssl_get_ssl(bufferevent);
    return ssl ? weir_tls_doubt(ssl, now) : NULL;
}
