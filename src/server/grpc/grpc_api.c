/* SPDX-License-Identifier: MIT
 * server/grpc/grpc_api.c - the gRPC listener.
 *
 *     socket -> weir_h2_link -> stream of Link -> decode -> weir_root_receive
 *                            -> stream of Call -> body   -> weir_admin_call
 *                            -> a Doorman call   -> weir_doorman_api_call
 *     root_loop -> encode -> the peer's stream -> socket
 *
 * A peer is identified when a call begins, before a byte of it is kept: by the
 * certificate of the connection and the authorization of the call. An unknown
 * peer's call ends there, for any method. The role is checked as soon as the
 * needed role is known: of a Link at once, of a Call by its first message. When
 * credentials are reloaded, each stream is identified and admitted again, by
 * the authorization that it keeps for that: so no message is handled by a
 * credential that was withdrawn before it came. */

#include "server/grpc/grpc_api.h"

#include <stdlib.h>
#include <string.h>

#include "io/clock.h"
#include "server/grpc/grpc_internal.h"

/* ---- Doorman ---- */

static uint32_t way_of(struct grpc_connection *connection)
{
    struct weir_grpc_api *api = connection->api;
    if (connection->way == WEIR_WAY_NONE && api->free_way_count > 0)
        connection->way = api->free_ways[--api->free_way_count];
    return connection->way;
}

static void drop_way(struct grpc_connection *connection)
{
    struct weir_grpc_api *api = connection->api;
    if (connection->way == WEIR_WAY_NONE)
        return;
    weir_assert(api->free_way_count < api->connections_max);
    weir_root_lease_way_lost(api->root, connection->way);
    api->free_ways[api->free_way_count++] = connection->way;
    connection->way = WEIR_WAY_NONE;
}

/* Such a call has just one message. */
static void on_doorman_message(struct grpc_stream *stream, const void *bytes,
                               size_t len)
{
    struct grpc_connection *connection = stream->connection;
    struct weir_grpc_api *api = connection->api;
    struct weir_h2_link *link = connection->link;
    const struct weir_doorman_call call = {
        .method = stream->doorman,
        .bytes = bytes,
        .len = len,
        .way = way_of(connection),
        .names = weir_grpc_names(stream),
    };
    struct weir_text out;
    connection->since = weir_clock_now();
    int status =
        weir_doorman_api_call(api->doorman, &call, &out, connection->since);
    bool answers = status == WEIR_GRPC_OK;
    if (answers && weir_h2_send(weir_h2_link_h2(link), stream->id, out.p,
                                out.len, false) < 0)
        weir_grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED,
                         "the link is too slow");
    else
        weir_grpc_finish(stream, status, answers ? NULL : out.p);
    /* Other lease holders may have to be sent less now. */
    weir_root_loop_kick(api->loop);
}

/* ---- Calls and messages of a connection ---- */

/* Sets the kind of the call by its path, and the role that it needs at once. */
static void set_stream_kind(const struct weir_grpc_api *api, const char *path,
                            struct grpc_stream *stream)
{
    stream->doorman =
        api->doorman ? weir_doorman_method_of(path) : WEIR_DOORMAN_NONE;
    stream->kind = stream->doorman != WEIR_DOORMAN_NONE ? GRPC_DOORMAN
                   : strcmp(path, WEIR_V1_LINK) == 0    ? GRPC_LINK
                                                        : GRPC_CALL;
    stream->role = stream->kind == GRPC_CALL ? 0 : WEIR_ROLE_TAKE;
}

static void begin_grpc_stream(struct grpc_connection *connection,
                              const struct grpc_stream *begun,
                              const char *authorization)
{
    struct grpc_stream *stream = malloc(sizeof *stream);
    char *kept = strdup(authorization);
    if (!stream || !kept) {
        free(stream);
        free(kept);
        (void)weir_h2_finish(weir_h2_link_h2(connection->link), begun->id,
                             WEIR_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    *stream = *begun;
    stream->authorization = kept;
    stream->connection = connection;
    stream->next = connection->streams;
    connection->streams = stream;
    if (stream->kind == GRPC_LINK)
        weir_grpc_begin_link(connection->api, stream);
}

/* An unauthenticated peer doesn't learn which methods exist. */
static bool on_grpc_call(void *context, struct weir_h2 *h2, int32_t id,
                         const char *path, const char *authorization)
{
    struct grpc_connection *connection = context;
    struct grpc_stream begun = { .id = id };
    struct weir_diag why = { 0 };
    set_stream_kind(connection->api, path, &begun);
    int error = weir_grpc_authorize(connection, begun.kind, begun.role,
                                    authorization, &begun.identity, &why);
    if (error < 0) {
        (void)weir_h2_finish(h2, id, weir_grpc_status(error), why.text);
        return true;
    }
    if (begun.kind == GRPC_CALL && strcmp(path, WEIR_V1_CALL) != 0)
        return false;
    begin_grpc_stream(connection, &begun, authorization);
    return true;
}

static void on_grpc_message(void *context, struct weir_h2 *h2, int32_t id,
                            const void *bytes, size_t len)
{
    (void)h2;
    struct grpc_connection *connection = context;
    struct grpc_stream *stream = weir_grpc_find_stream(connection, id);
    if (!stream)
        return;
    switch (stream->kind) {
    case GRPC_LINK:
        weir_grpc_on_link_message(connection->api, stream, bytes, len);
        return;
    case GRPC_CALL:
        weir_grpc_on_call_message(stream, bytes, len);
        return;
    case GRPC_DOORMAN:
        on_doorman_message(stream, bytes, len);
        return;
    }
}

static void on_grpc_end(void *context, struct weir_h2 *h2, int32_t id)
{
    (void)h2;
    struct grpc_connection *connection = context;
    struct grpc_stream *stream = weir_grpc_find_stream(connection, id);
    if (!stream)
        return;
    switch (stream->kind) {
    case GRPC_LINK:
        weir_grpc_finish(stream, WEIR_GRPC_OK, NULL);
        return;
    case GRPC_CALL:
        weir_grpc_on_call_end(connection->api, stream);
        return;
    case GRPC_DOORMAN:
        weir_grpc_finish(stream, WEIR_GRPC_INVALID_ARGUMENT,
                         "a call without a request");
        return;
    }
}

static void on_grpc_close(void *context, struct weir_h2 *h2, int32_t id,
                          int grpc_status, const char *message)
{
    (void)h2;
    (void)grpc_status;
    (void)message;
    struct grpc_stream *stream = weir_grpc_find_stream(context, id);
    if (stream)
        weir_grpc_drop_stream(stream);
}

/* ---- Connections ---- */

static void on_grpc_drain(void *context, struct weir_h2_link *link)
{
    (void)link;
    struct grpc_connection *connection = context;
    struct grpc_stream *next;
    for (struct grpc_stream *s = connection->streams; s; s = next) {
        next = s->next;
        if (s->linked && s->paused) {
            s->paused = false;
            weir_root_pause(connection->api->root, s->peer, false);
            weir_root_loop_kick(connection->api->loop);
        }
        if (s->reply)
            weir_grpc_send_reply(s); /* this may end the stream */
    }
}

static void connection_free(struct grpc_connection *connection)
{
    while (connection->streams)
        weir_grpc_drop_stream(connection->streams);
    drop_way(connection);
    weir_assert(*connection->self == connection);
    weir_h2_link_close(&connection->link);
    *connection->self = connection->next;
    if (connection->next)
        connection->next->self = connection->self;
    free(connection);
}

static void on_connection_lost(void *context, struct weir_h2_link *link,
                               const char *why)
{
    struct grpc_connection *connection = context;
    weir_log_limited(connection->api->log, WEIR_LOG_CONNECTION, WEIR_LOG_DEBUG,
                     "connection of %s: %s", weir_h2_link_peer(link), why);
    connection_free(connection);
}

static void on_grpc_accept(void *context, struct weir_stream *socket)
{
    struct weir_grpc_api *api = context;
    struct grpc_connection *connection = calloc(1, sizeof *connection);
    if (!connection) {
        weir_stream_close(&socket, false);
        return;
    }
    struct weir_h2_link_handler handler = {
        .context = connection,
        .calls = { .context = connection,
                   .on_call = on_grpc_call,
                   .on_message = on_grpc_message,
                   .on_end = on_grpc_end,
                   .on_close = on_grpc_close },
        .on_drain = on_grpc_drain,
        .on_lost = on_connection_lost,
    };
    connection->api = api;
    connection->way = WEIR_WAY_NONE;
    connection->since = weir_clock_now();
    connection->link = weir_h2_link_new(socket, true, &handler);
    if (!connection->link) {
        free(connection);
        return;
    }
    connection->next = api->connections;
    connection->self = &api->connections;
    if (connection->next)
        connection->next->self = &connection->next;
    api->connections = connection;
    weir_assert(*connection->self == connection);
}

static void note_refused_peer(void *context, const char *peer, const char *why)
{
    struct weir_grpc_api *api = context;
    weir_authorization_note(api->authorizer, WEIR_API_GRPC, WEIR_REFUSED_TLS,
                            peer, why, weir_clock_now());
}

static void note_evicted_peer(void *context, const char *peer, const char *why)
{
    struct weir_grpc_api *api = context;
    weir_authorization_note(api->authorizer, WEIR_API_GRPC,
                            WEIR_REFUSED_CREDENTIAL, peer, why,
                            weir_clock_now());
}

/* ---- Reloaded credentials ---- */

/* Whether the link's limiter has another name now, or may take from other
 * quotas: the root keeps those of its first message. */
static bool is_other_identity(const struct weir_identity *now,
                              const struct weir_identity *before)
{
    return strcmp(now->who, before->who) != 0 ||
           !weir_name_set_equal(&now->take, &before->take);
}

/* Ends a stream if its credential is withdrawn or lacks the role now, and a
 * link if its credential has changed. A call that the administration has got
 * is answered. */
static void recheck_stream(struct grpc_stream *stream)
{
    struct weir_identity identity;
    struct weir_diag why = { 0 };
    if (stream->asked || stream->reply)
        return;
    int error =
        weir_grpc_authorize(stream->connection, stream->kind, stream->role,
                            stream->authorization, &identity, &why);
    if (error < 0)
        weir_grpc_finish(stream, weir_grpc_status(error), why.text);
    else if (stream->kind == GRPC_LINK &&
             is_other_identity(&identity, &stream->identity))
        weir_grpc_finish(
            stream, WEIR_GRPC_UNAVAILABLE,
            "the name or the quotas of the credential have changed");
    else
        stream->identity = identity;
}

void weir_grpc_api_recheck(struct weir_grpc_api *api)
{
    for (struct grpc_connection *c = api->connections; c; c = c->next) {
        struct grpc_stream *next;
        c->known = false;
        c->since = weir_clock_now();
        for (struct grpc_stream *s = c->streams; s; s = next) {
            next = s->next;
            recheck_stream(s);
        }
    }
}

/* Ends each call and link with 'status' and 'why'; the sockets write that and
 * close by themselves. */
static void end_streams(struct grpc_connection *connection, int status,
                        const char *why)
{
    struct weir_h2 *h2 = weir_h2_link_h2(connection->link);
    weir_h2_shutdown(h2);
    for (struct grpc_stream *s = connection->streams; s; s = s->next)
        if (!s->reply)
            (void)weir_h2_finish(h2, s->id, status, why);
}

void weir_grpc_api_doubt(struct weir_grpc_api *api, const struct weir_tls *tls)
{
    struct grpc_connection *next;
    if (tls)
        weir_listener_doubt(api->listener);
    for (struct grpc_connection *c = api->connections; c; c = next) {
        next = c->next;
        const char *why = weir_h2_link_peer_doubt(c->link, tls);
        if (!why)
            continue;
        weir_authorization_note(api->authorizer, WEIR_API_GRPC,
                                WEIR_REFUSED_TLS, weir_h2_link_peer(c->link),
                                why, weir_clock_now());
        end_streams(c, WEIR_GRPC_UNAUTHENTICATED, why);
        connection_free(c);
    }
}

void weir_grpc_api_look(struct weir_grpc_api *api)
{
    weir_grpc_api_doubt(api, NULL);
    if (!weir_authorization_is_required(api->authorizer))
        return;
    weir_instant now = weir_clock_now();
    struct grpc_connection *next;
    for (struct grpc_connection *c = api->connections; c; c = next) {
        next = c->next;
        /* Guests stay, but they have no credential: of too many, the oldest one
         * of the address with most of them makes room. */
        if (c->known || c->guest || c->streams ||
            now < c->since + WEIR_UNAUTHENTICATED_MAX)
            continue;
        weir_authorization_note(api->authorizer, WEIR_API_GRPC,
                                WEIR_REFUSED_CREDENTIAL,
                                weir_h2_link_peer(c->link),
                                "it stayed for 10 s and "
                                "showed no known credential",
                                now);
        connection_free(c);
    }
}

/* ---- Life ---- */

static void destroy_grpc_api(struct weir_grpc_api *api)
{
    weir_listener_free(&api->listener);
    while (api->connections)
        connection_free(api->connections);
    weir_root_loop_set_sender(api->loop, NULL, NULL);
    free(api->free_ways);
    free(api->arena.base);
    free(api->out);
    free(api);
}

static void fill_stacks(struct weir_grpc_api *api)
{
    while (api->free_count < WEIR_PEERS_MAX) {
        api->free_peers[api->free_count] = WEIR_PEERS_MAX - 1 - api->free_count;
        api->free_count++;
    }
    /* The numbers below are those of the root's peers. */
    while (api->free_ways && api->free_way_count < api->connections_max) {
        api->free_ways[api->free_way_count] =
            WEIR_PEERS_MAX + api->free_way_count;
        api->free_way_count++;
    }
    weir_assert(api->free_count == WEIR_PEERS_MAX);
}

int weir_grpc_api_new(const struct weir_grpc_api_options *options,
                      struct weir_grpc_api **out, struct weir_diag *diag)
{
    struct weir_grpc_api *api = calloc(1, sizeof *api);
    if (!api)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    api->root = options->root;
    api->loop = options->loop;
    api->admin = options->admin;
    api->log = options->log;
    weir_assert(options->authorizer);
    api->authorizer = options->authorizer;
    api->connections_max = options->connections_max ? options->connections_max
                                                    : WEIR_CONNECTIONS_MAX;
    api->doorman = options->doorman;
    api->doorman_open = options->doorman_open;
    api->loopback = options->loopback;
    api->free_ways = calloc(api->connections_max, sizeof *api->free_ways);
    fill_stacks(api);
    api->arena.size = WEIR_DECODE_ARENA_SIZE;
    api->arena.base = malloc(api->arena.size);
    int error = 0;
    if (!api->arena.base || !api->free_ways)
        error =
            weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM), NULL);
    struct weir_listener_options listen = {
        .address = options->address,
        .tls = options->tls,
        .max = api->connections_max,
        .on_accept = on_grpc_accept,
        .on_refused = note_refused_peer,
        .on_evicted = note_evicted_peer,
        .context = api,
        .on_short = { weir_log_short, options->log },
    };
    if (error == 0)
        error = weir_listener_new(options->base, &listen, &api->listener, diag);
    if (error < 0) {
        destroy_grpc_api(api);
        return error;
    }
    weir_root_loop_set_sender(api->loop, weir_grpc_send_message, api);
    *out = api;
    return 0;
}

uint16_t weir_grpc_api_port(const struct weir_grpc_api *api)
{
    return weir_listener_port(api->listener);
}

void weir_grpc_api_stop(struct weir_grpc_api *api)
{
    weir_listener_free(&api->listener);
}

void weir_grpc_api_free(struct weir_grpc_api **api)
{
    if (!*api)
        return;
    for (struct grpc_connection *c = (*api)->connections; c; c = c->next)
        end_streams(c, WEIR_GRPC_UNAVAILABLE, "the root is stopping");
    destroy_grpc_api(*api);
    *api = NULL;
}
