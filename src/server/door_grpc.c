/* SPDX-License-Identifier: MIT
 * server/door_grpc.c - the gRPC door, and the pump of the root node.
 *
 *     socket -> weir_h2_link -> stream of Link -> decode -> weir_root_receive
 *                            -> stream of Call -> body   -> weir_admin_call
 *     weir_root_next -> encode -> the peer's stream -> socket
 *
 * A limiter's stream of Link is a peer of the root, by a number that is free.
 * However many messages came in one turn of the loop, the root is pumped once
 * when the turn ends: so what it has to say to a peer leaves in one write.
 *
 * A peer whose socket is full is put on hold: the root then tells it answers
 * only, until the socket has drained.
 *
 * A Call is one request in one message or, as a body may be longer than a
 * message, in several with the same method and path; the bodies are joined.
 * The reply is cut likewise, and goes out as fast as the peer reads. */

#include "server/door_grpc.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "os/h2_link.h"
#include "wire/weir_v1.h"

struct connection;

enum kind { LINK, CALL };

struct stream {
    struct stream *next; /* of the connection */
    struct connection *connection; /* NULL: gone, an answer is awaited */
    enum kind kind;
    int32_t id;
    /* LINK */
    uint32_t peer;
    bool linked; /* the root knows the peer */
    bool held;
    /* CALL */
    char method[WEIR_V1_METHOD_MAX + 1];
    char *target;   /* owned */
    char *body;     /* owned */
    size_t body_len, body_capacity;
    bool asked;     /* the administration has it, and will answer */
    bool over;      /* refused before that */
    char *reply;    /* owned */
    size_t reply_len, reply_sent;
    uint32_t status;
};

struct connection {
    struct connection *next;
    struct connection **self; /* what points here */
    struct weir_door_grpc *door;
    struct weir_h2_link *link; /* owned */
    struct stream *streams;    /* owned */
};

struct weir_door_grpc {
    struct event_base *base; /* borrowed, as the next three */
    struct weir_root *root;
    struct weir_admin *admin;
    const struct weir_log *log;
    struct weir_listener *listener; /* owned; NULL once stopped */
    struct connection *connections; /* owned */
    struct event *timer;            /* owned: the root's deadline */
    struct event *turn;             /* owned: the end of this turn */
    struct stream *peers[WEIR_PEERS_MAX]; /* borrowed; NULL: free */
    uint32_t free_peers[WEIR_PEERS_MAX];  /* a stack */
    uint32_t free_count;
    struct weir_arena arena; /* owned: of the decoder */
    unsigned char *out;      /* owned: of the encoder */
    size_t out_size;
};

/* ---- The pump ---- */

void weir_door_grpc_kick(struct weir_door_grpc *door)
{
    event_active(door->turn, EV_TIMEOUT, 0);
}

static void unlink_peer(struct weir_door_grpc *door, struct stream *stream)
{
    if (!stream->linked)
        return;
    stream->linked = false;
    door->peers[stream->peer] = NULL;
    door->free_peers[door->free_count++] = stream->peer;
    weir_root_link(door->root, stream->peer, false, weir_clock_now());
    weir_door_grpc_kick(door);
}

static bool fit_out(struct weir_door_grpc *door, size_t size)
{
    if (size <= door->out_size)
        return true;
    unsigned char *out = realloc(door->out, size);
    if (!out)
        return false;
    door->out = out;
    door->out_size = size;
    return true;
}

/* What the root says to a peer whose link can't take it is lost, and the
 * link with it: the limiter comes again and is told the rest. */
static void send_message(struct weir_door_grpc *door, struct stream *stream,
                         const struct weir_message *message)
{
    struct weir_h2_link *link = stream->connection->link;
    struct weir_h2 *h2 = weir_h2_link_h2(link);
    size_t size = weir_v1_size(message);
    bool sent = fit_out(door, size) &&
                weir_v1_encode(message, door->out, size) == size &&
                weir_h2_send(h2, stream->id, door->out, size, false) == 0;
    if (!sent) {
        weir_log(door->log, WEIR_LOG_WARNING,
                 "link of %s dropped: it doesn't take what it is told",
                 weir_h2_link_peer(link));
        (void)weir_h2_finish(h2, stream->id, WEIR_GRPC_RESOURCE_EXHAUSTED,
                             "the link is too slow");
        weir_h2_link_flush(link);
        unlink_peer(door, stream);
        return;
    }
    weir_h2_link_flush(link);
    if (!stream->held && weir_h2_link_is_full(link)) {
        stream->held = true;
        weir_root_hold(door->root, stream->peer, true);
    }
}

static void set_timer(struct weir_door_grpc *door, weir_instant now)
{
    weir_instant at = weir_root_deadline(door->root, now);
    if (at == WEIR_NEVER) {
        event_del(door->timer);
        return;
    }
    weir_duration wait = at > now ? at - now : 0;
    struct timeval in = { .tv_sec = (time_t)(wait / WEIR_SECOND),
                          .tv_usec = (suseconds_t)(wait % WEIR_SECOND / 1000) };
    /* A wait of less than a microsecond is a microsecond, not a spin. */
    if (wait > 0 && in.tv_sec == 0 && in.tv_usec == 0)
        in.tv_usec = 1;
    event_add(door->timer, &in);
}

static void pump(struct weir_door_grpc *door)
{
    weir_instant now = weir_clock_now();
    if (weir_root_deadline(door->root, now) <= now)
        weir_root_tick(door->root, now);
    uint32_t peer;
    struct weir_message message;
    while (weir_root_next(door->root, &peer, &message, now)) {
        struct stream *stream = door->peers[peer];
        if (stream)
            send_message(door, stream, &message);
    }
    set_timer(door, now);
}

static void on_turn(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    pump(context);
}

/* ---- Link ---- */

static void begin_link(struct weir_door_grpc *door, struct stream *stream)
{
    struct weir_h2_link *link = stream->connection->link;
    if (door->free_count == 0) {
        weir_log(door->log, WEIR_LOG_WARNING,
                 "limiter at %s refused: there are %d already",
                 weir_h2_link_peer(link), WEIR_PEERS_MAX);
        (void)weir_h2_finish(weir_h2_link_h2(link), stream->id,
                             WEIR_GRPC_RESOURCE_EXHAUSTED,
                             "the root has no room for another limiter");
        return;
    }
    stream->peer = door->free_peers[--door->free_count];
    stream->linked = true;
    door->peers[stream->peer] = stream;
    weir_root_link(door->root, stream->peer, true, weir_clock_now());
    weir_door_grpc_kick(door);
    weir_log(door->log, WEIR_LOG_DEBUG, "limiter at %s: link up",
             weir_h2_link_peer(link));
}

static void on_link_message(struct weir_door_grpc *door,
                            struct stream *stream, const void *bytes,
                            size_t len)
{
    if (!stream->linked)
        return;
    struct weir_message message;
    door->arena.used = 0;
    int error = weir_v1_decode(bytes, len, true, &door->arena, &message);
    if (error == 0)
        error = weir_root_receive(door->root, stream->peer, &message,
                                  weir_clock_now());
    weir_door_grpc_kick(door);
    if (error == 0)
        return;
    struct weir_h2_link *link = stream->connection->link;
    weir_log(door->log, WEIR_LOG_WARNING, "link of %s dropped: %s",
             weir_h2_link_peer(link), weir_strerror(error));
    (void)weir_h2_finish(weir_h2_link_h2(link), stream->id,
                         WEIR_GRPC_INVALID_ARGUMENT, weir_strerror(error));
    unlink_peer(door, stream);
}

/* ---- Call ---- */

static void finish_call(struct stream *stream, int status, const char *why)
{
    struct weir_h2_link *link = stream->connection->link;
    (void)weir_h2_finish(weir_h2_link_h2(link), stream->id, status, why);
    weir_h2_link_flush(link);
}

static bool append_body(struct stream *stream, struct weir_text part)
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
    return true;
}

static void on_call_message(struct stream *stream, const void *bytes,
                            size_t len)
{
    struct weir_call_request part;
    if (stream->asked || stream->over)
        return;
    if (weir_v1_request_decode(bytes, len, &part) < 0) {
        stream->over = true;
        finish_call(stream, WEIR_GRPC_INVALID_ARGUMENT,
                    "the message isn't a weir.v1.CallRequest");
        return;
    }
    if (stream->body_len + part.body.len > WEIR_ADMIN_IMPORT_MAX) {
        stream->over = true;
        finish_call(stream, WEIR_GRPC_RESOURCE_EXHAUSTED,
                    "the body is over 64 MiB; import in parts");
        return;
    }
    if (!stream->target) {
        stream->target = calloc(1, part.path.len + 1);
        if (stream->target)
            memcpy(stream->target, part.path.p, part.path.len);
        memcpy(stream->method, part.method.p, part.method.len);
    }
    if (stream->target && append_body(stream, part.body))
        return;
    stream->over = true;
    finish_call(stream, WEIR_GRPC_RESOURCE_EXHAUSTED, "out of memory");
}

/* Sends what the link takes now; the rest when it has drained. */
static void send_reply(struct stream *stream)
{
    struct weir_door_grpc *door = stream->connection->door;
    struct weir_h2_link *link = stream->connection->link;
    while (!weir_h2_link_is_full(link)) {
        size_t left = stream->reply_len - stream->reply_sent;
        size_t chunk = left < WEIR_CALL_CHUNK ? left : WEIR_CALL_CHUNK;
        struct weir_call_reply part = {
            .status = stream->status,
            .body = { stream->reply + stream->reply_sent, chunk },
        };
        size_t size = weir_v1_reply_size(&part);
        bool sent = fit_out(door, size) &&
                    weir_v1_reply_encode(&part, door->out, size) == size &&
                    weir_h2_send(weir_h2_link_h2(link), stream->id,
                                 door->out, size, false) == 0;
        stream->reply_sent += chunk;
        if (sent && stream->reply_sent < stream->reply_len)
            continue;
        free(stream->reply);
        stream->reply = NULL;
        finish_call(stream, sent ? WEIR_GRPC_OK : WEIR_GRPC_INTERNAL,
                    sent ? NULL : "the reply can't be sent");
        return;
    }
    weir_h2_link_flush(link);
}

static void stream_free(struct stream *stream)
{
    free(stream->target);
    free(stream->body);
    free(stream->reply);
    free(stream);
}

static void on_answer(void *context, const struct weir_admin_answer *answer)
{
    struct stream *stream = context;
    stream->asked = false;
    if (!stream->connection) {
        stream_free(stream);
        return;
    }
    stream->reply = malloc(answer->len + 1);
    if (!stream->reply) {
        finish_call(stream, WEIR_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    memcpy(stream->reply, answer->body, answer->len);
    stream->reply_len = answer->len;
    stream->status = (uint32_t)answer->status;
    send_reply(stream);
}

static void on_call_end(struct weir_door_grpc *door, struct stream *stream)
{
    if (stream->asked || stream->over)
        return;
    if (!stream->target) {
        finish_call(stream, WEIR_GRPC_INVALID_ARGUMENT,
                    "a call without a request");
        return;
    }
    struct weir_admin_request request = {
        .method = weir_text_of(stream->method),
        .target = weir_text_of(stream->target),
        .body = { stream->body, stream->body_len },
    };
    stream->asked = true;
    weir_admin_call(door->admin, &request, on_answer, stream,
                    weir_clock_now());
}

/* ---- Streams of a connection ---- */

static struct stream *find_stream(struct connection *connection, int32_t id)
{
    struct stream *stream = connection->streams;
    while (stream && stream->id != id)
        stream = stream->next;
    return stream;
}

/* A call that the administration still has stays until it is answered. */
static void drop_stream(struct stream *stream)
{
    unlink_peer(stream->connection->door, stream);
    struct stream **at = &stream->connection->streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    stream->connection = NULL;
    if (!(stream->kind == CALL && stream->asked))
        stream_free(stream);
}

static bool on_call(void *context, struct weir_h2 *h2, int32_t id,
                    const char *path, const char *authorization)
{
    (void)h2;
    (void)authorization;
    struct connection *connection = context;
    bool is_link = strcmp(path, WEIR_V1_LINK) == 0;
    if (!is_link && strcmp(path, WEIR_V1_CALL) != 0)
        return false;
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return false;
    stream->kind = is_link ? LINK : CALL;
    stream->id = id;
    stream->connection = connection;
    stream->next = connection->streams;
    connection->streams = stream;
    if (is_link)
        begin_link(connection->door, stream);
    return true;
}

static void on_message(void *context, struct weir_h2 *h2, int32_t id,
                       const void *bytes, size_t len)
{
    (void)h2;
    struct connection *connection = context;
    struct stream *stream = find_stream(connection, id);
    if (!stream)
        return;
    if (stream->kind == LINK)
        on_link_message(connection->door, stream, bytes, len);
    else
        on_call_message(stream, bytes, len);
}

static void on_end(void *context, struct weir_h2 *h2, int32_t id)
{
    struct connection *connection = context;
    struct stream *stream = find_stream(connection, id);
    if (!stream)
        return;
    if (stream->kind == CALL) {
        on_call_end(connection->door, stream);
        return;
    }
    unlink_peer(connection->door, stream);
    (void)weir_h2_finish(h2, id, WEIR_GRPC_OK, NULL);
}

static void on_close(void *context, struct weir_h2 *h2, int32_t id,
                     int grpc_status, const char *message)
{
    (void)h2;
    (void)grpc_status;
    (void)message;
    struct stream *stream = find_stream(context, id);
    if (stream)
        drop_stream(stream);
}

/* ---- Connections ---- */

static void on_drain(void *context, struct weir_h2_link *link)
{
    (void)link;
    struct connection *connection = context;
    struct stream *next;
    for (struct stream *s = connection->streams; s; s = next) {
        next = s->next;
        if (s->reply)
            send_reply(s);
        if (!s->linked || !s->held)
            continue;
        s->held = false;
        weir_root_hold(connection->door->root, s->peer, false);
        weir_door_grpc_kick(connection->door);
    }
}

static void connection_free(struct connection *connection)
{
    while (connection->streams)
        drop_stream(connection->streams);
    weir_h2_link_close(&connection->link);
    *connection->self = connection->next;
    if (connection->next)
        connection->next->self = connection->self;
    free(connection);
}

static void on_lost(void *context, struct weir_h2_link *link,
                    const char *why)
{
    struct connection *connection = context;
    weir_log(connection->door->log, WEIR_LOG_DEBUG, "connection of %s: %s",
             weir_h2_link_peer(link), why);
    connection_free(connection);
}

static void on_accept(void *context, struct weir_stream *socket)
{
    struct weir_door_grpc *door = context;
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection) {
        weir_stream_close(&socket, false);
        return;
    }
    struct weir_h2_link_handler handler = {
        .context = connection,
        .calls = { .context = connection,
                   .on_call = on_call,
                   .on_message = on_message,
                   .on_end = on_end,
                   .on_close = on_close },
        .on_drain = on_drain,
        .on_lost = on_lost,
    };
    connection->door = door;
    connection->link = weir_h2_link_new(socket, true, &handler);
    if (!connection->link) {
        free(connection);
        return;
    }
    connection->next = door->connections;
    connection->self = &door->connections;
    if (connection->next)
        connection->next->self = &connection->next;
    door->connections = connection;
}

/* ---- Life ---- */

static void destroy(struct weir_door_grpc *door)
{
    weir_listener_free(&door->listener);
    while (door->connections)
        connection_free(door->connections);
    if (door->timer)
        event_free(door->timer);
    if (door->turn)
        event_free(door->turn);
    free(door->arena.base);
    free(door->out);
    free(door);
}

int weir_door_grpc_new(const struct weir_door_grpc_options *options,
                       struct weir_door_grpc **out, struct weir_diag *diag)
{
    struct weir_door_grpc *door = calloc(1, sizeof *door);
    if (!door)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    door->base = options->base;
    door->root = options->root;
    door->admin = options->admin;
    door->log = options->log;
    while (door->free_count < WEIR_PEERS_MAX) {
        door->free_peers[door->free_count] =
            WEIR_PEERS_MAX - 1 - door->free_count;
        door->free_count++;
    }
    door->timer = event_new(door->base, -1, 0, on_turn, door);
    door->turn = event_new(door->base, -1, 0, on_turn, door);
    door->arena.size = WEIR_DECODE_ARENA_SIZE;
    door->arena.base = malloc(door->arena.size);
    int error = door->timer && door->turn && door->arena.base
                    ? 0
                    : weir_diag_set(diag, WEIR_ENOMEM,
                                    weir_strerror(WEIR_ENOMEM), NULL);
    struct weir_listener_options listen = {
        .address = options->address,
        .max = WEIR_CONNECTIONS_MAX,
        .on_accept = on_accept,
        .context = door,
    };
    if (error == 0)
        error = weir_listener_new(door->base, &listen, &door->listener, diag);
    if (error < 0) {
        destroy(door);
        return error;
    }
    *out = door;
    return 0;
}

uint16_t weir_door_grpc_port(const struct weir_door_grpc *door)
{
    return weir_listener_port(door->listener);
}

void weir_door_grpc_stop(struct weir_door_grpc *door)
{
    weir_listener_free(&door->listener);
}

/* Says to each call and link why it ends; the sockets write that and close
 * by themselves. */
static void end_streams(struct connection *connection)
{
    struct weir_h2 *h2 = weir_h2_link_h2(connection->link);
    weir_h2_shutdown(h2);
    for (struct stream *s = connection->streams; s; s = s->next)
        if (!s->reply)
            (void)weir_h2_finish(h2, s->id, WEIR_GRPC_UNAVAILABLE,
                                 "the root is stopping");
}

void weir_door_grpc_free(struct weir_door_grpc **door)
{
    if (!*door)
        return;
    for (struct connection *c = (*door)->connections; c; c = c->next)
        end_streams(c);
    destroy(*door);
    *door = NULL;
}
