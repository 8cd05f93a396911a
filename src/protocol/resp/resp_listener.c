/* SPDX-License-Identifier: MIT
 * protocol/resp/resp_listener.c - connections of clients of Redis.
 *
 * All complete commands are answered into one buffer, so a pipeline of sixteen
 * costs one recv() and one send(). A peer that doesn't read its replies isn't
 * served until it does (io/conn.h): between two commands the buffer is handed
 * over when another reply might not fit. */

#include "protocol/resp/resp_listener.h"

#include <stdlib.h>
#include <string.h>

#include "io/clock.h"
#include "protocol/resp/resp_internal.h"

#define OUT_SIZE (2 * WEIR_RESP_REPLY_MAX)

struct weir_resp_listener {
    const struct weir_protocol_host *host; /* borrowed, as is the next */
    struct weir_throttle *throttle;
    struct weir_conn_server *server; /* owned */
    uint64_t met;                    /* sessions since the start */
    struct weir_resp_request request;
    char out[OUT_SIZE];
};

static void write_replies(struct weir_conn *conn, struct weir_resp_out *out)
{
    /* No reply is longer than WEIR_RESP_REPLY_MAX. */
    weir_assert(!out->full);
    if (out->len > 0)
        weir_conn_write(conn, out->p, out->len);
    out->len = 0;
}

static size_t on_commands(void *context, struct weir_conn *conn,
                          const char *bytes, size_t len, weir_instant now)
{
    struct weir_resp_listener *listener = context;
    struct weir_resp_session *session = weir_conn_state(conn);
    if (session->id == 0) {
        weir_assert(!session->known);
        session->id = ++listener->met;
        session->protocol = 2;
        weir_resp_meet(listener->host, conn, session, now);
    }
    struct weir_resp_out out = { .p = listener->out, .size = OUT_SIZE };
    struct weir_resp_call call = { .host = listener->host,
                                   .throttle = listener->throttle,
                                   .server = listener->server,
                                   .conn = conn,
                                   .session = session,
                                   .request = &listener->request,
                                   .out = &out,
                                   .now = now };
    size_t used = 0;
    while (used < len && weir_conn_is_open(conn)) {
        size_t size = 0;
        const char *error = NULL;
        int whole = weir_resp_decode(bytes + used, len - used,
                                     &listener->request, &size, &error);
        if (whole == 0)
            break;
        out.protocol = session->protocol;
        if (whole < 0) {
            char text[96] = "ERR ";
            (void)strncat(text, error, sizeof text - 5);
            weir_protocol_note(listener->host, WEIR_PROTOCOL_RESP,
                               WEIR_PROTOCOL_INVALID, weir_conn_peer(conn),
                               text);
            weir_resp_error(&out, text);
            weir_conn_end(conn);
            used = len;
            break;
        }
        weir_assert(size > 0 && size <= len - used);
        used += size;
        weir_resp_answer(&call);
        /* The ration ends with the first command, not with the first bytes. */
        weir_conn_set_known(conn, session->known);
        weir_resp_make_room(&call);
    }
    write_replies(conn, &out);
    return used;
}

static void on_session_gone(void *context, struct weir_conn *conn)
{
    (void)context;
    weir_resp_session_fini(weir_conn_state(conn));
}

/* ---- Life ---- */

int weir_resp_listener_new(const struct weir_protocol_host *host,
                           const struct weir_listen_address *place,
                           struct weir_throttle *throttle,
                           struct weir_resp_listener **out,
                           struct weir_diag *diag)
{
    struct weir_resp_listener *listener = calloc(1, sizeof *listener);
    if (!listener)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    listener->host = host;
    listener->throttle = throttle;
    const struct weir_conn_options options = {
        .base = host->base,
        .place = *place,
        .tls = host->tls,
        .on_short = host->on_short,
        .max = weir_protocol_conns_max(host),
        .crowded = WEIR_TEXT("-ERR max number of clients reached\r\n"),
        .unauthenticated_max = weir_protocol_unauthenticated_max(host),
        .state_size = sizeof(struct weir_resp_session),
        .context = listener,
        .on_bytes = on_commands,
        .on_gone = on_session_gone,
    };
    int error = weir_conn_server_new(&options, &listener->server, diag);
    if (error < 0) {
        free(listener);
        return error;
    }
    *out = listener;
    return 0;
}

const struct weir_listen_address *weir_resp_listener_address(
    const struct weir_resp_listener *listener)
{
    return weir_conn_server_address(listener->server);
}

static void recheck_session(void *context, struct weir_conn *conn)
{
    const struct weir_resp_listener *listener = context;
    struct weir_resp_session *session = weir_conn_state(conn);
    if (session->known &&
        !weir_resp_admit(listener->host, conn, session, weir_clock_now()))
        weir_conn_end(conn);
}

void weir_resp_listener_recheck(struct weir_resp_listener *listener)
{
    weir_conn_server_doubt(listener->server);
    if (weir_protocol_is_protected(listener->host))
        weir_conn_server_each(listener->server, recheck_session, listener);
}

void weir_resp_listener_free(struct weir_resp_listener **listener)
{
    if (!*listener)
        return;
    weir_conn_server_free(&(*listener)->server);
    free(*listener);
    *listener = NULL;
}
