/* SPDX-License-Identifier: MIT
 * protocol/rls/rls_listener.c - connections of Envoys.
 *
 *     socket -> io/conn.h -> io/h2.h -> a message -> rls_service.h
 *     socket <- one send  <- io/h2.h <- its answer <----+
 *
 * All calls of one read are answered with one write. A ShouldRateLimit is
 * decided when its message is complete and needs no state: streams that aren't
 * listed are such calls. Listed are ShouldRateLimits of a taker that may not
 * take from all quotas, the streams of Health, of which a Watch lasts, and
 * those of quotas (rlqs_service.h). Each second the listed streams are checked
 * for messages to send without a request.
 *
 * A call is admitted when it begins, and its message may come much later. When
 * credentials are reloaded, each connection notes its newest call: that call
 * and earlier ones, except Health, end as UNAVAILABLE before a decision. A
 * repeated call is then admitted anew, and no call has to keep its credential.
 *
 * The process is ready once it has received the quotas of a root, or if it has
 * no roots. Before that calls are refused as UNAVAILABLE, or pass
 * (weir_protocol_check_start()), and a load balancer waits for the health
 * check. If all roots die afterwards, the listener keeps
 * deciding and reporting itself as serving. */

#include "protocol/rls/rls_listener.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "io/conn.h"
#include "io/h2.h"

#define LOOKS_A_SECOND 10

enum kind {
    CHECK,
    WATCH,
    QUOTAS,
    LIMITED /* ShouldRateLimit of a taker that may not take from all quotas */
};

struct listed {
    struct listed *next;
    int32_t stream;
    enum kind kind;
    bool known_service;
    enum weir_health sent;              /* sent last to a Watch; 0: none */
    struct weir_rlqs_stream *quotas;    /* owned; for QUOTAS */
    struct weir_protocol_taker taker[]; /* one; for LIMITED */
};

/* State of a connection. */
struct visit {
    struct weir_rls_listener *listener; /* NULL: not started */
    struct weir_conn *conn;
    struct weir_h2 *h2;    /* owned */
    struct listed *listed; /* owned */
    weir_instant now;      /* time of this turn */
    int32_t newest;        /* stream of the newest call; 0: none */
    int32_t doubted;       /* calls up to this stream were admitted before the
                            * credentials were reloaded */
};

struct weir_rls_listener {
    const struct weir_protocol_host *host; /* borrowed, as is the next */
    struct weir_rls_service *rls_service;
    struct weir_rlqs_service *quotas;
    struct weir_conn_server *server; /* owned, as is the next */
    struct event *look;              /* runs LOOKS_A_SECOND times a second */
    unsigned looks;
    bool ready;
};

/* ---- Writing ---- */

/* Writing may end streams; their on_close comes at the next feed. */
static void write_output(struct visit *visit)
{
    const void *bytes;
    size_t len;
    while ((len = weir_h2_output(visit->h2, &bytes)) > 0)
        weir_conn_write(visit->conn, bytes, len);
    if (weir_h2_is_over(visit->h2))
        weir_conn_end(visit->conn);
}

/* Ends a call without a verdict, which Envoy lets pass: so it is counted. */
static void finish_with_error(struct visit *visit, int32_t stream,
                              enum weir_protocol protocol,
                              enum weir_protocol_error error, const char *why)
{
    weir_protocol_note(visit->listener->host, protocol, error,
                       weir_conn_peer(visit->conn), why);
    (void)weir_h2_finish(
        visit->h2, stream,
        error == WEIR_PROTOCOL_INVALID           ? WEIR_GRPC_INVALID_ARGUMENT
        : error == WEIR_PROTOCOL_UNAUTHENTICATED ? WEIR_GRPC_UNAVAILABLE
                                                 : WEIR_GRPC_RESOURCE_EXHAUSTED,
        why);
}

static void finish_with_reply(struct visit *visit, int32_t stream,
                              struct weir_text message)
{
    if (weir_h2_send(visit->h2, stream, message.p, message.len, false) < 0)
        finish_with_error(visit, stream, WEIR_PROTOCOL_RLS,
                          WEIR_PROTOCOL_FAILED, "the connection is too slow");
    else
        (void)weir_h2_finish(visit->h2, stream, WEIR_GRPC_OK, NULL);
}

/* ---- Listed streams ---- */

static struct listed *find_listed(struct visit *visit, int32_t stream)
{
    struct listed *listed = visit->listed;
    while (listed && listed->stream != stream)
        listed = listed->next;
    return listed;
}

static void drop_listed(struct visit *visit, int32_t stream)
{
    struct listed **at = &visit->listed;
    while (*at && (*at)->stream != stream)
        at = &(*at)->next;
    struct listed *listed = *at;
    if (!listed)
        return;
    *at = listed->next;
    weir_rlqs_stream_free(listed->quotas);
    free(listed);
}

/* False: no memory. */
static bool add_listed(struct visit *visit, int32_t stream, enum kind kind,
                       const struct weir_protocol_taker *taker)
{
    size_t takers = kind == LIMITED;
    struct listed *listed = calloc(1, sizeof *listed + takers * sizeof *taker);
    if (listed && kind == QUOTAS)
        listed->quotas = weir_rlqs_stream_new(visit->listener->quotas, taker);
    if (!listed || (kind == QUOTAS && !listed->quotas)) {
        free(listed);
        return false;
    }
    if (kind == LIMITED)
        listed->taker[0] = *taker;
    listed->stream = stream;
    listed->kind = kind;
    listed->next = visit->listed;
    visit->listed = listed;
    return true;
}

/* Of a stream that may not be listed (NULL); not of Health. */
static enum weir_protocol protocol_of(const struct listed *listed)
{
    return listed && listed->kind == QUOTAS ? WEIR_PROTOCOL_RLQS
                                            : WEIR_PROTOCOL_RLS;
}

static bool is_health(const struct listed *listed)
{
    return listed && (listed->kind == CHECK || listed->kind == WATCH);
}

/* ---- Health ---- */

static bool is_process_ready(struct weir_rls_listener *listener)
{
    listener->ready = listener->ready || weir_protocol_is_ready(listener->host);
    return listener->ready;
}

static bool is_service(struct weir_text name)
{
    return name.len == 0 || weir_text_equal(name, WEIR_TEXT("ratelimit")) ||
           weir_text_equal(name, WEIR_TEXT("envoy.service.ratelimit.v3."
                                           "RateLimitService"));
}

static enum weir_health health_of(struct weir_rls_listener *listener,
                                  const struct listed *listed)
{
    if (!listed->known_service)
        return WEIR_HEALTH_SERVICE_UNKNOWN;
    return is_process_ready(listener) ? WEIR_HEALTH_SERVING
                                      : WEIR_HEALTH_NOT_SERVING;
}

static void send_health(struct visit *visit, struct listed *listed)
{
    unsigned char buf[WEIR_HEALTH_ANSWER_SIZE];
    weir_assert(listed->kind == WATCH);
    enum weir_health health = health_of(visit->listener, listed);
    if (health == listed->sent)
        return;
    weir_health_encode(health, buf);
    if (weir_h2_send(visit->h2, listed->stream, buf, sizeof buf, false) == 0)
        listed->sent = health;
}

static void on_health(struct visit *visit, struct listed *listed,
                      const void *bytes, size_t len)
{
    struct weir_text service;
    unsigned char buf[WEIR_HEALTH_ANSWER_SIZE];
    int32_t stream = listed->stream;
    weir_assert(listed->kind == CHECK || listed->kind == WATCH);
    if (weir_health_decode(bytes, len, &service) < 0) {
        (void)weir_h2_finish(visit->h2, stream, WEIR_GRPC_INVALID_ARGUMENT,
                             "this is no HealthCheckRequest");
        drop_listed(visit, stream);
        return;
    }
    listed->known_service = is_service(service);
    if (listed->kind == WATCH) {
        send_health(visit, listed);
        return;
    }
    weir_health_encode(health_of(visit->listener, listed), buf);
    if (!listed->known_service)
        (void)weir_h2_finish(visit->h2, stream, WEIR_GRPC_NOT_FOUND,
                             "there is 'ratelimit', and no name for all");
    else if (weir_h2_send(visit->h2, stream, buf, sizeof buf, false) < 0)
        (void)weir_h2_finish(visit->h2, stream, WEIR_GRPC_RESOURCE_EXHAUSTED,
                             "the connection is too slow");
    else
        (void)weir_h2_finish(visit->h2, stream, WEIR_GRPC_OK, NULL);
    drop_listed(visit, stream);
}

/* ---- Quotas ---- */

/* Sends a response of the stream of quotas, if it isn't empty; false: that
 * failed. */
static bool send_actions(struct visit *visit, struct listed *listed,
                         struct weir_text response)
{
    weir_assert(listed->kind == QUOTAS && listed->quotas);
    if (response.len == 0)
        return true;
    bool is_sent = weir_h2_send(visit->h2, listed->stream, response.p,
                                response.len, false) == 0;
    weir_rlqs_stream_sent(listed->quotas, is_sent);
    return is_sent;
}

/* An answer that can't be sent ends the stream. */
static void on_report(struct visit *visit, struct listed *listed,
                      const void *bytes, size_t len)
{
    struct weir_text out;
    int status =
        weir_rlqs_stream_report(listed->quotas, bytes, len, &out, visit->now);
    if (status == WEIR_GRPC_OK && send_actions(visit, listed, out))
        return;
    if (status == WEIR_GRPC_OK)
        finish_with_error(visit, listed->stream, WEIR_PROTOCOL_RLQS,
                          WEIR_PROTOCOL_FAILED, "the connection is too slow");
    else
        (void)weir_h2_finish(visit->h2, listed->stream, status, out.p);
    drop_listed(visit, listed->stream);
}

/* ---- Reloaded credentials ---- */

/* 'listed' is the stream's entry; NULL: it isn't listed. */
static bool is_doubted(const struct visit *visit, int32_t stream,
                       const struct listed *listed)
{
    return !is_health(listed) && stream <= visit->doubted;
}

static void end_doubted(struct visit *visit, int32_t stream,
                        const struct listed *listed)
{
    finish_with_error(visit, stream, protocol_of(listed),
                      WEIR_PROTOCOL_UNAUTHENTICATED,
                      "the credentials were reloaded after the call began: "
                      "repeat it");
    drop_listed(visit, stream);
}

static void check_listed(struct visit *visit)
{
    struct listed *next;
    for (struct listed *l = visit->listed; l; l = next) {
        next = l->next;
        if (is_doubted(visit, l->stream, l))
            end_doubted(visit, l->stream, l);
        else if (l->kind == WATCH && l->sent != 0)
            send_health(visit, l);
        else if (l->kind == QUOTAS)
            (void)send_actions(visit, l,
                               weir_rlqs_stream_look(l->quotas, visit->now));
    }
}

/* ---- Calls ---- */

static bool admit_call(struct visit *visit, int32_t stream,
                       enum weir_protocol protocol, const char *authorization,
                       struct weir_protocol_taker *out)
{
    const struct weir_protocol_host *host = visit->listener->host;
    struct weir_diag why = { 0 };
    const struct weir_protocol_shown shown = { protocol, WEIR_ROLE_TAKE,
                                               authorization };
    int error =
        weir_protocol_admit(host, visit->conn, &shown, out, &why, visit->now);
    weir_conn_set_known(visit->conn, error == 0);
    if (error == 0)
        weir_h2_set_authenticated(visit->h2);
    if (error < 0)
        (void)weir_h2_finish(visit->h2, stream,
                             error == WEIR_EDENIED ? WEIR_GRPC_PERMISSION_DENIED
                             : error == WEIR_ENOMEM
                                 ? WEIR_GRPC_RESOURCE_EXHAUSTED
                                 : WEIR_GRPC_UNAUTHENTICATED,
                             why.text);
    return error == 0;
}

/* The kind of a path whose streams are listed; -1: another path. */
static int listed_kind(const char *path)
{
    static const char *const paths[] = {
        [CHECK] = WEIR_HEALTH_CHECK,
        [WATCH] = WEIR_HEALTH_WATCH,
        [QUOTAS] = WEIR_RLQS_STREAM,
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(paths); i++)
        if (strcmp(path, paths[i]) == 0)
            return (int)i;
    return -1;
}

static bool on_call_begun(void *context, struct weir_h2 *h2, int32_t stream,
                          const char *path, const char *authorization)
{
    (void)h2;
    struct visit *visit = context;
    struct weir_protocol_taker taker = weir_protocol_any_taker;
    int kind = listed_kind(path);
    bool decides = strcmp(path, WEIR_RLS_SHOULD_RATE_LIMIT) == 0;
    weir_assert(visit->doubted <= visit->newest);
    visit->newest = stream; /* the ids of a peer's streams always rise */
    if (kind < 0 && !decides)
        return false;
    enum weir_protocol protocol =
        kind == QUOTAS ? WEIR_PROTOCOL_RLQS : WEIR_PROTOCOL_RLS;
    if ((decides || kind == QUOTAS) &&
        !admit_call(visit, stream, protocol, authorization, &taker))
        return true;
    if (decides && taker.identity.take.all)
        return true; /* it needs no state */
    if (!add_listed(visit, stream, decides ? LIMITED : (enum kind)kind, &taker))
        finish_with_error(visit, stream, protocol, WEIR_PROTOCOL_FAILED,
                          "out of memory");
    return true;
}

static void answer_call(struct visit *visit, int32_t stream,
                        const struct weir_protocol_taker *taker,
                        const void *bytes, size_t len)
{
    struct weir_text answer;
    int status = weir_rls_service_answer(
        visit->listener->rls_service, taker, weir_conn_peer(visit->conn),
        (struct weir_text){ bytes, len }, &answer, visit->now);
    if (status == WEIR_GRPC_OK)
        finish_with_reply(visit, stream, answer);
    else
        (void)weir_h2_finish(visit->h2, stream, status, answer.p);
}

static void on_grpc_message(void *context, struct weir_h2 *h2, int32_t stream,
                            const void *bytes, size_t len)
{
    (void)h2;
    struct visit *visit = context;
    struct listed *listed = find_listed(visit, stream);
    if (is_doubted(visit, stream, listed)) {
        end_doubted(visit, stream, listed);
        return;
    }
    if (!listed) {
        answer_call(visit, stream, &weir_protocol_any_taker, bytes, len);
        return;
    }
    switch (listed->kind) {
    case CHECK:
    case WATCH:
        on_health(visit, listed, bytes, len);
        return;
    case QUOTAS:
        on_report(visit, listed, bytes, len);
        return;
    case LIMITED:
        answer_call(visit, stream, listed->taker, bytes, len);
        drop_listed(visit, stream);
        return;
    }
}

/* A ShouldRateLimit that can't be read whole is over the limit; a stream of
 * quotas ends with an error, as any other. */
static bool on_call_too_big(void *context, struct weir_h2 *h2, int32_t stream)
{
    struct visit *visit = context;
    const struct listed *listed = find_listed(visit, stream);
    if (listed && listed->kind != LIMITED)
        return false;
    (void)h2;
    finish_with_reply(visit, stream,
                      weir_rls_service_answer_big(
                          visit->listener->rls_service,
                          weir_conn_peer(visit->conn),
                          "its message is over 4 MiB, or the unfinished ones "
                          "of its connection are over 16 MiB"));
    drop_listed(visit, stream);
    return true;
}

/* The peer has sent its last message, which a Watch does at once. */
static void on_call_half_closed(void *context, struct weir_h2 *h2,
                                int32_t stream)
{
    struct visit *visit = context;
    const struct listed *listed = find_listed(visit, stream);
    if (listed && listed->kind == WATCH && listed->sent != 0)
        return;
    static const char why[] = "a call without a request";
    if (listed && listed->kind == QUOTAS)
        (void)weir_h2_finish(h2, stream, WEIR_GRPC_OK, NULL);
    else if (is_health(listed))
        (void)weir_h2_finish(h2, stream, WEIR_GRPC_INVALID_ARGUMENT, why);
    else
        finish_with_error(visit, stream, WEIR_PROTOCOL_RLS,
                          WEIR_PROTOCOL_INVALID, why);
    drop_listed(visit, stream);
}

static void on_call_closed(void *context, struct weir_h2 *h2, int32_t stream,
                           int status, const char *message)
{
    (void)h2;
    (void)status;
    (void)message;
    drop_listed(context, stream);
}

/* ---- Connections ---- */

static bool begin_visit(struct weir_rls_listener *listener,
                        struct weir_conn *conn, struct visit *visit)
{
    const struct weir_h2_handler handler = {
        .context = visit,
        .on_call = on_call_begun,
        .on_message = on_grpc_message,
        .on_too_big = on_call_too_big,
        .on_end = on_call_half_closed,
        .on_close = on_call_closed,
    };
    weir_assert(!visit->h2 && !visit->listed);
    visit->listener = listener;
    visit->conn = conn;
    visit->h2 = weir_h2_new(true, &handler);
    return visit->h2 != NULL;
}

static size_t on_visit_bytes(void *context, struct weir_conn *conn,
                             const char *bytes, size_t len, weir_instant now)
{
    struct visit *visit = weir_conn_state(conn);
    visit->now = now;
    if (!visit->h2 && !begin_visit(context, conn, visit)) {
        weir_conn_end(conn);
        return len;
    }
    if (len == 0)
        check_listed(visit);
    int error = weir_h2_feed(visit->h2, bytes, len);
    write_output(visit);
    if (error < 0)
        weir_conn_end(conn);
    return len;
}

static void on_visit_gone(void *context, struct weir_conn *conn)
{
    (void)context;
    struct visit *visit = weir_conn_state(conn);
    while (visit->listed)
        drop_listed(visit, visit->listed->stream);
    weir_h2_free(&visit->h2);
}

static void wake_visit(void *context, struct weir_conn *conn)
{
    (void)context;
    const struct visit *visit = weir_conn_state(conn);
    if (visit->listed)
        weir_conn_wake(conn);
}

/* Runs periodically, and at once when the process has become ready. */
static void on_look_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_rls_listener *listener = context;
    bool was_ready = listener->ready;
    if (is_process_ready(listener) == was_ready &&
        ++listener->looks % LOOKS_A_SECOND != 0)
        return;
    weir_conn_server_each(listener->server, wake_visit, NULL);
}

/* ---- Life ---- */

int weir_rls_listener_new(const struct weir_protocol_host *host,
                          const struct weir_listen_address *place,
                          struct weir_rls_service *rls_service,
                          struct weir_rlqs_service *quotas,
                          struct weir_rls_listener **out,
                          struct weir_diag *diag)
{
    const struct timeval often = { .tv_usec = 1000000 / LOOKS_A_SECOND };
    weir_assert(host && rls_service && quotas);
    struct weir_rls_listener *listener = calloc(1, sizeof *listener);
    if (!listener)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    listener->host = host;
    listener->rls_service = rls_service;
    listener->quotas = quotas;
    const struct weir_conn_options options = {
        .base = host->base,
        .place = *place,
        .tls = host->tls,
        .on_short = host->on_short,
        .max = weir_protocol_conns_max(host),
        .unauthenticated_max = weir_protocol_unauthenticated_max(host),
        .state_size = sizeof(struct visit),
        .context = listener,
        .on_bytes = on_visit_bytes,
        .on_gone = on_visit_gone,
    };
    int error = weir_conn_server_new(&options, &listener->server, diag);
    if (error == 0)
        listener->look =
            event_new(host->base, -1, EV_PERSIST, on_look_timer, listener);
    if (error == 0 &&
        (!listener->look || event_add(listener->look, &often) < 0))
        error = weir_diag_put(diag, WEIR_ENOMEM, NULL);
    if (error < 0) {
        weir_rls_listener_free(&listener);
        return error;
    }
    *out = listener;
    return 0;
}

const struct weir_listen_address *weir_rls_listener_address(
    const struct weir_rls_listener *listener)
{
    return weir_conn_server_address(listener->server);
}

static void doubt_calls(void *context, struct weir_conn *conn)
{
    struct visit *visit = weir_conn_state(conn);
    visit->doubted = visit->newest;
    wake_visit(context, conn);
}

void weir_rls_listener_recheck(struct weir_rls_listener *listener)
{
    weir_conn_server_doubt(listener->server);
    if (weir_protocol_is_protected(listener->host))
        weir_conn_server_each(listener->server, doubt_calls, NULL);
}

void weir_rls_listener_free(struct weir_rls_listener **listener)
{
    if (!*listener)
        return;
    if ((*listener)->look)
        event_free((*listener)->look);
    weir_conn_server_free(&(*listener)->server);
    free(*listener);
    *listener = NULL;
}
