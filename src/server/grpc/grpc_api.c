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

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "codec/weir_v1.h"
#include "core/base/hash.h"
#include "io/clock.h"
#include "io/h2_link.h"

enum grpc_kind { GRPC_LINK, GRPC_CALL, GRPC_DOORMAN };

struct grpc_stream {
    struct grpc_stream *next; /* of the connection */
    /* NULL: gone, an answer is still to come */
    struct grpc_connection *connection;
    enum grpc_kind kind;
    int32_t id;
    struct weir_identity identity;
    char *authorization; /* owned; the header that it was admitted by */
    /* The role that it needs. 0: none, or a request's that has not come yet. A
     * link's is 'take', until its hello says that it is a region's root. */
    unsigned role;
    /* GRPC_LINK */
    uint32_t peer;
    bool linked; /* the root knows the peer */
    bool paused;
    /* GRPC_DOORMAN */
    enum weir_doorman_method doorman;
    /* GRPC_CALL */
    char method[WEIR_V1_METHOD_MAX + 1];
    char *target; /* owned */
    char *body;   /* owned */
    size_t body_len, body_capacity;
    bool asked;  /* the administration has it, and will answer */
    char *reply; /* owned */
    size_t reply_len, reply_sent;
    uint32_t status;
};

struct grpc_connection {
    struct grpc_connection *next;
    struct grpc_connection **self; /* the pointer to this connection */
    struct weir_grpc_api *api;
    struct weir_h2_link *link;   /* owned */
    struct grpc_stream *streams; /* owned */
    weir_instant since;          /* since it came, or its credential was
                                * reloaded */
    bool known;   /* a credential has been admitted on it since */
    bool guest;   /* it has Doorman's calls without a credential */
    uint32_t way; /* the root's number for it, if it leases; or WEIR_WAY_NONE */
};

struct weir_grpc_api {
    struct weir_grpc_api_options options;      /* connections_max > 0 */
    struct weir_listener *listener;            /* owned; NULL once stopped */
    struct grpc_connection *connections;       /* owned; the newest first */
    struct grpc_stream *peers[WEIR_PEERS_MAX]; /* borrowed; NULL: free */
    uint32_t free_peers[WEIR_PEERS_MAX];       /* a stack */
    uint32_t free_count;
    uint32_t *free_ways; /* owned: a stack, as the peers' */
    uint32_t free_way_count;
    struct weir_arena arena; /* owned: of the decoder */
    unsigned char *out;      /* owned: of the encoder */
    size_t out_size;
};

/* ---- Authorization ---- */

/* 'authorization' is a call's header; "": none. */
static struct weir_caller grpc_caller_of(
    const struct grpc_connection *connection, const char *authorization)
{
    return (struct weir_caller){ .api = WEIR_API_GRPC,
                                 .address = weir_h2_link_peer(connection->link),
                                 .authorization = authorization };
}

/* 0, or an error of weir_authorization_admit(). Role 0: none is needed. */
static int grpc_admit(struct grpc_connection *connection,
                      const struct weir_identity *identity, unsigned role,
                      struct weir_diag *diag)
{
    struct weir_caller caller = grpc_caller_of(connection, "");
    return role == 0
               ? 0
               : weir_authorization_admit(
                     connection->api->options.authorizer, &caller, identity,
                     (enum weir_role)role, diag, weir_clock_now());
}

/* Identifies the peer of a stream and admits it to the role. Doorman's clients
 * have no credential, so there is an option for them. */
static int grpc_authorize(struct grpc_connection *connection,
                          enum grpc_kind kind, unsigned role,
                          const char *authorization, struct weir_identity *out,
                          struct weir_diag *diag)
{
    struct weir_grpc_api *api = connection->api;
    struct weir_h2_link *link = connection->link;
    if (kind == GRPC_DOORMAN && api->options.doorman_open) {
        connection->guest = true;
        weir_h2_set_authenticated(weir_h2_link_h2(link));
        *out = (struct weir_identity){ .take = weir_name_set_all };
        return 0;
    }
    if (kind == GRPC_DOORMAN &&
        !weir_authorization_is_required(api->options.authorizer) &&
        !api->options.loopback)
        return weir_diag_put(diag, WEIR_EDENIED,
                             "Doorman's calls beyond loopback want "
                             "--doorman-insecure, or credentials");
    struct weir_tls_peer names;
    struct weir_caller caller = grpc_caller_of(connection, authorization);
    caller.names = weir_h2_link_peer_names(link, &names) ? &names : NULL;
    int error = weir_authorization_identify(api->options.authorizer, &caller,
                                            out, diag, weir_clock_now());
    if (error < 0)
        return error;
    connection->known = true;
    weir_h2_link_set_authenticated(link);
    return grpc_admit(connection, out, role, diag);
}

/* The gRPC status for an error of these two. */
static int grpc_status(int error)
{
    return error == WEIR_EDENIED  ? WEIR_GRPC_PERMISSION_DENIED
           : error == WEIR_ENOMEM ? WEIR_GRPC_RESOURCE_EXHAUSTED
                                  : WEIR_GRPC_UNAUTHENTICATED;
}

/* The root, or a call of Doorman's, denied a quota to the peer. */
static void note_denied_quota(void *context, struct weir_text name,
                              weir_instant now)
{
    const struct grpc_stream *stream = context;
    struct weir_caller caller = grpc_caller_of(stream->connection, "");
    (void)weir_authorization_admit_name(
        stream->connection->api->options.authorizer, &caller, &stream->identity,
        name, NULL, now);
}

/* The quotas that the peer may take from, for the root; borrows the stream. */
static struct weir_root_names grpc_names(struct grpc_stream *stream)
{
    return (struct weir_root_names){
        .set = &stream->identity.take,
        .owner = weir_hash(weir_text_of(stream->identity.name), 0),
        .context = stream,
        .denied = note_denied_quota,
    };
}

/* ---- Streams ---- */

static void unlink_peer(struct weir_grpc_api *api, struct grpc_stream *stream)
{
    if (!stream->linked)
        return;
    weir_assert(api->peers[stream->peer] == stream);
    weir_assert(api->free_count < WEIR_PEERS_MAX);
    stream->linked = false;
    api->peers[stream->peer] = NULL;
    api->free_peers[api->free_count++] = stream->peer;
    weir_root_link(api->options.root, stream->peer, false, weir_clock_now());
    weir_root_loop_kick(api->options.loop);
}

static struct grpc_stream *grpc_find_stream(struct grpc_connection *connection,
                                            int32_t id)
{
    struct grpc_stream *stream = connection->streams;
    while (stream && stream->id != id)
        stream = stream->next;
    return stream;
}

static void grpc_stream_free(struct grpc_stream *stream)
{
    weir_assert(!stream->connection && !stream->linked);
    if (stream->authorization)
        OPENSSL_cleanse(stream->authorization, strlen(stream->authorization));
    free(stream->authorization);
    free(stream->target);
    free(stream->body);
    free(stream->reply);
    free(stream);
}

/* Unlinks it as a peer of the root. A call that the administration still has
 * stays until it is answered. */
static void grpc_drop_stream(struct grpc_stream *stream)
{
    weir_assert(stream->connection);
    unlink_peer(stream->connection->api, stream);
    struct grpc_stream **at = &stream->connection->streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    stream->connection = NULL;
    if (!(stream->kind == GRPC_CALL && stream->asked))
        grpc_stream_free(stream);
}

/* Sends the status and drops the stream: no more messages of it come. */
static void grpc_finish(struct grpc_stream *stream, int status, const char *why)
{
    struct weir_h2_link *link = stream->connection->link;
    (void)weir_h2_finish(weir_h2_link_h2(link), stream->id, status, why);
    weir_h2_link_flush(link);
    grpc_drop_stream(stream);
}

/* Makes 'out' that large; false: no memory. */
static bool grpc_fit_out(struct weir_grpc_api *api, size_t size)
{
    void *out =
        weir_mem_grow(&weir_mem_system, api->out, 1, &api->out_size, size);
    if (!out)
        return false;
    api->out = out;
    return true;
}

/* ---- Links ----
 *
 * The stream of a limiter: a peer of the root, by a number that is free. While
 * a peer's socket is full, the peer is paused: the root sends it answers only,
 * until the socket has drained. */

/* The sender of the root's loop; 'context' is the listener. A message that the
 * peer's link can't take is lost, and the link with it: the limiter connects
 * again and is sent the rest. */
static void grpc_send_message(void *context, uint32_t peer,
                              const struct weir_message *message)
{
    struct weir_grpc_api *api = context;
    struct grpc_stream *stream = api->peers[peer];
    if (!stream)
        return;
    struct weir_h2_link *link = stream->connection->link;
    struct weir_h2 *h2 = weir_h2_link_h2(link);
    size_t size = weir_v1_size(message);
    bool sent = grpc_fit_out(api, size) &&
                weir_v1_encode(message, api->out, size) == size &&
                weir_h2_send(h2, stream->id, api->out, size, false) == 0;
    if (!sent) {
        weir_log_limited(api->options.log, WEIR_LOG_LINK, WEIR_LOG_WARNING,
                         "link of %s dropped: it reads its messages too slowly",
                         weir_h2_link_peer(link));
        grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED,
                    "the link is too slow");
        return;
    }
    weir_h2_link_flush(link);
    if (!stream->paused && weir_h2_link_is_full(link)) {
        stream->paused = true;
        weir_root_pause(api->options.root, stream->peer, true);
    }
}

/* This and the next may end the stream. */
static void grpc_begin_link(struct weir_grpc_api *api,
                            struct grpc_stream *stream)
{
    struct weir_h2_link *link = stream->connection->link;
    if (api->free_count == 0) {
        weir_log_limited(api->options.log, WEIR_LOG_LINK, WEIR_LOG_WARNING,
                         "limiter at %s refused: there are %d already",
                         weir_h2_link_peer(link), WEIR_PEERS_MAX);
        grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED,
                    "the root has as many limiters as it can have");
        return;
    }
    stream->peer = api->free_peers[--api->free_count];
    weir_assert(!stream->linked && !api->peers[stream->peer]);
    stream->linked = true;
    api->peers[stream->peer] = stream;
    const struct weir_root_names names = grpc_names(stream);
    weir_root_link(api->options.root, stream->peer, true, weir_clock_now());
    weir_root_limit_names(api->options.root, stream->peer, &names);
    weir_root_loop_kick(api->options.loop);
    weir_log_limited(api->options.log, WEIR_LOG_CONNECTION, WEIR_LOG_DEBUG,
                     "limiter at %s: link up", weir_h2_link_peer(link));
}

/* A region's root reports for many limiters: that needs a role of its own. */
static int admit_hello(struct grpc_stream *stream,
                       const struct weir_message *message)
{
    if (message->type != WEIR_MESSAGE_HELLO || !message->hello.region)
        return 0;
    struct weir_diag why = { 0 };
    stream->role = WEIR_ROLE_ROOT;
    int error =
        grpc_admit(stream->connection, &stream->identity, stream->role, &why);
    if (error < 0)
        grpc_finish(stream, grpc_status(error), why.text);
    return error;
}

static void grpc_on_link_message(struct weir_grpc_api *api,
                                 struct grpc_stream *stream, const void *bytes,
                                 size_t len)
{
    weir_assert(stream->linked);
    struct weir_message message;
    api->arena.used = 0;
    int error = weir_v1_decode(bytes, len, true, &api->arena, &message);
    if (error == 0 && admit_hello(stream, &message) < 0)
        return;
    if (error == 0)
        error = weir_root_receive(api->options.root, stream->peer, &message,
                                  weir_clock_now());
    weir_root_loop_kick(api->options.loop);
    if (error == 0)
        return;
    const char *peer = weir_h2_link_peer(stream->connection->link);
    weir_log_limited(api->options.log, WEIR_LOG_LINK, WEIR_LOG_WARNING,
                     "link of %s dropped: %s", peer, weir_strerror(error));
    grpc_finish(stream, WEIR_GRPC_INVALID_ARGUMENT, weir_strerror(error));
}

/* ---- Calls of the administration ----
 *
 * A call is one request in one message or, as a body may be longer than a
 * message, in several with the same method and path; the bodies are joined. The
 * reply is cut likewise, and goes out as fast as the peer reads. */

static bool append_call_body(struct grpc_stream *stream, struct weir_text part)
{
    size_t need = stream->body_len + part.len;
    if (need > stream->body_capacity) {
        size_t capacity = 2 * stream->body_capacity;
        if (capacity < need)
            capacity = need;
        char *body = realloc(stream->body, capacity);
        if (!body)
            return false;
        stream->body = body;
        stream->body_capacity = capacity;
    }
    if (part.len > 0)
        memcpy(stream->body + stream->body_len, part.p, part.len);
    stream->body_len = need;
    weir_assert(stream->body_len <= stream->body_capacity);
    return true;
}

/* The first message of a call names the method and path; true: it is
 * admitted. */
static bool begin_call_request(struct grpc_stream *stream,
                               const struct weir_call_request *part)
{
    struct weir_admin_request request = { .method = part->method,
                                          .target = part->path };
    struct weir_diag why = { 0 };
    stream->role = weir_admin_role(&request);
    int error =
        grpc_admit(stream->connection, &stream->identity, stream->role, &why);
    if (error < 0) {
        grpc_finish(stream, grpc_status(error), why.text);
        return false;
    }
    stream->target = calloc(1, part->path.len + 1);
    if (!stream->target) {
        grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return false;
    }
    memcpy(stream->target, part->path.p, part->path.len);
    memcpy(stream->method, part->method.p, part->method.len);
    return true;
}

static void grpc_on_call_message(struct grpc_stream *stream, const void *bytes,
                                 size_t len)
{
    struct weir_call_request part;
    if (stream->asked)
        return;
    if (weir_v1_request_decode(bytes, len, &part) < 0) {
        grpc_finish(stream, WEIR_GRPC_INVALID_ARGUMENT,
                    "the message isn't a weir.v1.CallRequest");
        return;
    }
    if (!stream->target && !begin_call_request(stream, &part))
        return;
    const struct weir_admin_request request = {
        .method = weir_text_of(stream->method),
        .target = weir_text_of(stream->target),
    };
    struct weir_diag why = { 0 };
    if (weir_admin_check_body(&request, stream->body_len + part.body.len,
                              &why) < 0)
        grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED, why.text);
    else if (!append_call_body(stream, part.body))
        grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED, "out of memory");
}

/* Sends as much as the link takes now; the rest when it has drained. */
static void grpc_send_reply(struct grpc_stream *stream)
{
    struct weir_grpc_api *api = stream->connection->api;
    struct weir_h2_link *link = stream->connection->link;
    while (!weir_h2_link_is_full(link)) {
        size_t left = stream->reply_len - stream->reply_sent;
        size_t chunk = left < WEIR_CALL_CHUNK ? left : WEIR_CALL_CHUNK;
        struct weir_call_reply part = {
            .status = stream->status,
            .body = { stream->reply + stream->reply_sent, chunk },
        };
        size_t size = weir_v1_reply_size(&part);
        bool sent = grpc_fit_out(api, size) &&
                    weir_v1_reply_encode(&part, api->out, size) == size &&
                    weir_h2_send(weir_h2_link_h2(link), stream->id, api->out,
                                 size, false) == 0;
        stream->reply_sent += chunk;
        weir_assert(stream->reply_sent <= stream->reply_len);
        if (sent && stream->reply_sent < stream->reply_len)
            continue;
        grpc_finish(stream, sent ? WEIR_GRPC_OK : WEIR_GRPC_RESOURCE_EXHAUSTED,
                    sent ? NULL : "out of memory");
        return;
    }
    weir_h2_link_flush(link);
}

static void on_call_answer(void *context,
                           const struct weir_admin_answer *answer)
{
    struct grpc_stream *stream = context;
    weir_assert(stream->asked && !stream->reply);
    stream->asked = false;
    if (!stream->connection) {
        grpc_stream_free(stream);
        return;
    }
    stream->reply = malloc(answer->len + 1);
    if (!stream->reply) {
        grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    memcpy(stream->reply, answer->body, answer->len);
    stream->reply_len = answer->len;
    stream->status = (uint32_t)answer->status;
    grpc_send_reply(stream);
}

static void grpc_on_call_end(struct weir_grpc_api *api,
                             struct grpc_stream *stream)
{
    if (stream->asked)
        return;
    if (!stream->target) {
        grpc_finish(stream, WEIR_GRPC_INVALID_ARGUMENT,
                    "a call without a request");
        return;
    }
    struct weir_admin_request request = {
        .method = weir_text_of(stream->method),
        .target = weir_text_of(stream->target),
        .body = { stream->body, stream->body_len },
        .identity = weir_text_of(stream->identity.name),
    };
    stream->asked = true;
    weir_admin_call(api->options.admin, &request, on_call_answer, stream,
                    weir_clock_now());
}

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
    weir_assert(api->free_way_count < api->options.connections_max);
    weir_root_lease_way_lost(api->options.root, connection->way);
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
        .names = grpc_names(stream),
    };
    struct weir_text out;
    connection->since = weir_clock_now();
    int status = weir_doorman_api_call(api->options.doorman, &call, &out,
                                       connection->since);
    bool answers = status == WEIR_GRPC_OK;
    if (answers && weir_h2_send(weir_h2_link_h2(link), stream->id, out.p,
                                out.len, false) < 0)
        grpc_finish(stream, WEIR_GRPC_RESOURCE_EXHAUSTED,
                    "the link is too slow");
    else
        grpc_finish(stream, status, answers ? NULL : out.p);
    /* Other lease holders may have to be sent less now. */
    weir_root_loop_kick(api->options.loop);
}

/* ---- Calls and messages of a connection ---- */

/* Sets the kind of the call by its path, and the role that it needs at once. */
static void set_stream_kind(const struct weir_grpc_api *api, const char *path,
                            struct grpc_stream *stream)
{
    stream->doorman =
        api->options.doorman ? weir_doorman_method_of(path) : WEIR_DOORMAN_NONE;
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
        grpc_begin_link(connection->api, stream);
}

/* An unauthenticated peer doesn't learn which methods exist. */
static bool on_grpc_call(void *context, struct weir_h2 *h2, int32_t id,
                         const char *path, const char *authorization)
{
    struct grpc_connection *connection = context;
    struct grpc_stream begun = { .id = id };
    struct weir_diag why = { 0 };
    set_stream_kind(connection->api, path, &begun);
    int error = grpc_authorize(connection, begun.kind, begun.role,
                               authorization, &begun.identity, &why);
    if (error < 0) {
        (void)weir_h2_finish(h2, id, grpc_status(error), why.text);
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
    struct grpc_stream *stream = grpc_find_stream(connection, id);
    if (!stream)
        return;
    switch (stream->kind) {
    case GRPC_LINK:
        grpc_on_link_message(connection->api, stream, bytes, len);
        return;
    case GRPC_CALL:
        grpc_on_call_message(stream, bytes, len);
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
    struct grpc_stream *stream = grpc_find_stream(connection, id);
    if (!stream)
        return;
    switch (stream->kind) {
    case GRPC_LINK:
        grpc_finish(stream, WEIR_GRPC_OK, NULL);
        return;
    case GRPC_CALL:
        grpc_on_call_end(connection->api, stream);
        return;
    case GRPC_DOORMAN:
        grpc_finish(stream, WEIR_GRPC_INVALID_ARGUMENT,
                    "a call without a request");
        return;
    }
}

static void on_grpc_close(void *context, struct weir_h2 *h2, int32_t id,
                          int status, const char *message)
{
    (void)h2;
    (void)status;
    (void)message;
    struct grpc_stream *stream = grpc_find_stream(context, id);
    if (stream)
        grpc_drop_stream(stream);
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
            weir_root_pause(connection->api->options.root, s->peer, false);
            weir_root_loop_kick(connection->api->options.loop);
        }
        if (s->reply)
            grpc_send_reply(s); /* this may end the stream */
    }
}

static void connection_free(struct grpc_connection *connection)
{
    while (connection->streams)
        grpc_drop_stream(connection->streams);
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
    weir_log_limited(connection->api->options.log, WEIR_LOG_CONNECTION,
                     WEIR_LOG_DEBUG, "connection of %s: %s",
                     weir_h2_link_peer(link), why);
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
    weir_authorization_note(api->options.authorizer, WEIR_API_GRPC,
                            WEIR_REFUSED_TLS, peer, why, weir_clock_now());
}

static void note_evicted_peer(void *context, const char *peer, const char *why)
{
    struct weir_grpc_api *api = context;
    weir_authorization_note(api->options.authorizer, WEIR_API_GRPC,
                            WEIR_REFUSED_CREDENTIAL, peer, why,
                            weir_clock_now());
}

/* ---- Reloaded credentials ---- */

/* Whether the link's limiter has another name now, or may take from other
 * quotas: the root keeps those of its first message. */
static bool is_other_identity(const struct weir_identity *now,
                              const struct weir_identity *before)
{
    return strcmp(now->name, before->name) != 0 ||
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
    int error = grpc_authorize(stream->connection, stream->kind, stream->role,
                               stream->authorization, &identity, &why);
    if (error < 0)
        grpc_finish(stream, grpc_status(error), why.text);
    else if (stream->kind == GRPC_LINK &&
             is_other_identity(&identity, &stream->identity))
        grpc_finish(stream, WEIR_GRPC_UNAVAILABLE,
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
        note_refused_peer(api, weir_h2_link_peer(c->link), why);
        end_streams(c, WEIR_GRPC_UNAUTHENTICATED, why);
        connection_free(c);
    }
}

void weir_grpc_api_look(struct weir_grpc_api *api)
{
    weir_grpc_api_doubt(api, NULL);
    if (!weir_authorization_is_required(api->options.authorizer))
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
        note_evicted_peer(api, weir_h2_link_peer(c->link),
                          "it stayed for 10 s and showed no known credential");
        connection_free(c);
    }
}

/* ---- Life ---- */

static void destroy_grpc_api(struct weir_grpc_api *api)
{
    weir_listener_free(&api->listener);
    while (api->connections)
        connection_free(api->connections);
    weir_root_loop_set_sender(api->options.loop, NULL, NULL);
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
    while (api->free_ways &&
           api->free_way_count < api->options.connections_max) {
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
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    weir_assert(options->authorizer);
    api->options = *options;
    if (options->connections_max == 0)
        api->options.connections_max = WEIR_CONNECTIONS_MAX;
    api->free_ways =
        calloc(api->options.connections_max, sizeof *api->free_ways);
    fill_stacks(api);
    api->arena.size = WEIR_DECODE_ARENA_SIZE;
    api->arena.base = malloc(api->arena.size);
    int error = 0;
    if (!api->arena.base || !api->free_ways)
        error = weir_diag_put(diag, WEIR_ENOMEM, NULL);
    struct weir_listener_options listen = {
        .address = options->address,
        .tls = options->tls,
        .max = api->options.connections_max,
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
    weir_root_loop_set_sender(api->options.loop, grpc_send_message, api);
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
