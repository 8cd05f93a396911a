/* SPDX-License-Identifier: MIT
 * server/door_http.c - HTTP/1.1 in front of the administration.
 *
 * Who asks is asked anew for each request, by the certificate of the
 * connection and the header Authorization, before the administration sees it.
 *
 * A browser can reach this door too, on behalf of any page that it shows, and
 * may have a certificate to show: os/origin.h.
 *
 * An edit is answered later. The request then belongs to a 'pending', which
 * outlives the connection if the client goes away first: the pending frees
 * and forgets the request, the answer finds nobody.
 *
 * The page's own files hold nothing of the root's and are given to everybody:
 * a browser that is sent to a page has no token to show yet. */

#include "server/door_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "door/page_file.h"
#include "os/clock.h"
#include "os/origin.h"
#include "server/http_streams.h"
#include "server/http_visitors.h"
#include "server/problem.h"
#include "server/view.h"

struct weir_door_http {
    struct evhttp *http;                /* owned */
    struct evhttp_bound_socket *socket; /* of 'http'; NULL once stopped */
    struct weir_admin *admin;           /* borrowed; NULL: it has gone */
    struct weir_gate *gate;             /* borrowed */
    struct weir_http_visitors *visitors; /* owned; NULL: plain text */
    struct weir_http_streams *streams;   /* owned */
    struct weir_origin_own own;
    uint16_t port;
};

struct pending {
    struct evhttp_request *request; /* NULL: the client has gone */
    bool answered;
    bool in_call; /* weir_admin_call() has not returned yet */
};

/* ---- Who asks ---- */

/* Who it is, and whether it may: 0, WEIR_ECREDENTIAL or WEIR_EDENIED. */
static int let_in(struct weir_door_http *door,
                  struct evhttp_request *request,
                  const struct weir_admin_request *ask,
                  struct weir_identity *out, struct weir_diag *diag)
{
    unsigned role = weir_admin_role(ask);
    if (role == 0) {
        /* Whoever it is, he shows nothing and keeps no connection. */
        if (weir_gate_is_shut(door->gate))
            evhttp_add_header(evhttp_request_get_output_headers(request),
                              "Connection", "close");
        return 0;
    }
    struct evhttp_connection *connection =
        evhttp_request_get_connection(request);
    struct bufferevent *bufferevent =
        evhttp_connection_get_bufferevent(connection);
    const char *shown = evhttp_find_header(
        evhttp_request_get_input_headers(request), "Authorization");
    char *host;
    uint16_t port;
    evhttp_connection_get_peer(connection, &host, &port);
    char address[128];
    snprintf(address, sizeof address, "%s:%u", host, (unsigned)port);
    struct weir_tls_peer names = { .count = 0 };
    if (door->visitors)
        weir_tls_bufferevent_names(bufferevent, &names);
    struct weir_caller caller = { .door = WEIR_DOOR_HTTP,
                                  .address = address,
                                  .names = &names,
                                  .authorization = shown ? shown : "" };
    weir_instant now = weir_clock_now();
    int error = weir_gate_identify(door->gate, &caller, out, diag, now);
    if (door->visitors)
        weir_http_visitors_asked(door->visitors, bufferevent, error == 0);
    return error < 0 ? error
                     : weir_gate_admit(door->gate, &caller, out,
                                       (enum weir_role)role, diag, now);
}

/* ---- Answers ---- */

/* Sends what is in the output buffer. A HEAD is answered as a GET is, but for
 * the body: evhttp would send that too, and without its length, so that the
 * client would take it for the beginning of the next answer. */
static void send_reply(struct evhttp_request *request, int status)
{
    struct evbuffer *out = evhttp_request_get_output_buffer(request);
    if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD) {
        char len[24];
        snprintf(len, sizeof len, "%zu", evbuffer_get_length(out));
        evhttp_add_header(evhttp_request_get_output_headers(request),
                          "Content-Length", len);
        evbuffer_drain(out, evbuffer_get_length(out));
    }
    evhttp_send_reply(request, status, NULL, NULL);
}

static void send_answer(struct evhttp_request *request,
                        const struct weir_admin_answer *answer)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Content-Type", answer->type);
    evhttp_add_header(headers, "Cache-Control", "no-store");
    evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
    if (answer->allow)
        evhttp_add_header(headers, "Allow", answer->allow);
    if (answer->status == 401) {
        evhttp_add_header(headers, "WWW-Authenticate", "Bearer");
        /* A stranger holds no connection. */
        evhttp_add_header(headers, "Connection", "close");
    }
    struct evbuffer *out = evhttp_request_get_output_buffer(request);
    bool newline = answer->len > 0 && answer->body[answer->len - 1] != '\n';
    if (evbuffer_add(out, answer->body, answer->len) < 0 ||
        (newline && evbuffer_add(out, "\n", 1) < 0)) {
        evhttp_send_error(request, HTTP_INTERNAL, NULL);
        return;
    }
    send_reply(request, answer->status);
}

static void on_gone(struct evhttp_connection *connection, void *context)
{
    (void)connection;
    struct pending *pending = context;
    /* It is left to us where the client has gone, and goes with a connection
     * that is freed from here. */
    if (!evhttp_request_get_connection(pending->request))
        evhttp_request_free(pending->request);
    pending->request = NULL;
}

static void on_answer(void *context, const struct weir_admin_answer *answer)
{
    struct pending *pending = context;
    pending->answered = true;
    if (pending->request) {
        struct evhttp_connection *connection =
            evhttp_request_get_connection(pending->request);
        evhttp_connection_set_closecb(connection, NULL, NULL);
        send_answer(pending->request, answer);
    }
    if (!pending->in_call)
        free(pending);
}

static void refuse(struct evhttp_request *request, int error, int status,
                   const char *detail)
{
    struct weir_diag diag = { 0 };
    weir_diag_set(&diag, error, detail, NULL);
    json_t *problem = weir_problem(error, status, &diag);
    char *body = problem ? json_dumps(problem, JSON_COMPACT) : NULL;
    struct weir_admin_answer answer = { .status = status,
                                        .type = "application/problem+json",
                                        .body = body ? body : "",
                                        .len = body ? strlen(body) : 0 };
    send_answer(request, &answer);
    free(body);
    json_decref(problem);
}

/* ---- The page ---- */

static void send_file(struct weir_door_http *door,
                      struct evhttp_request *request,
                      const struct weir_page_file *file)
{
    struct evkeyvalq *asked = evhttp_request_get_input_headers(request);
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    const char *known = evhttp_find_header(asked, "If-None-Match");
    const char *takes = evhttp_find_header(asked, "Accept-Encoding");
    bool gzip = takes && strstr(takes, "gzip");
    evhttp_add_header(headers, "ETag", file->etag);
    evhttp_add_header(headers, "Cache-Control", "no-cache");
    evhttp_add_header(headers, "Vary", "Accept-Encoding");
    if (weir_gate_is_shut(door->gate))
        evhttp_add_header(headers, "Connection", "close");
    if (known && strstr(known, file->etag)) {
        evhttp_send_reply(request, HTTP_NOTMODIFIED, NULL, NULL);
        return;
    }
    evhttp_add_header(headers, "Content-Type", file->type);
    evhttp_add_header(headers, "Content-Security-Policy",
                      WEIR_PAGE_POLICY);
    evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
    evhttp_add_header(headers, "Referrer-Policy", "no-referrer");
    if (gzip)
        evhttp_add_header(headers, "Content-Encoding", "gzip");
    /* The bytes are the program's own: sent from where they lie. */
    evbuffer_add_reference(evhttp_request_get_output_buffer(request),
                           gzip ? file->gzip : file->plain,
                           gzip ? file->gzip_len : file->plain_len, NULL, NULL);
    send_reply(request, HTTP_OK);
}

/* ---- Requests ---- */

static const char *method_of(struct evhttp_request *request)
{
    switch ((int)evhttp_request_get_command(request)) {
    case EVHTTP_REQ_GET:
    case EVHTTP_REQ_HEAD: /* send_reply() leaves the body out */
        return "GET";
    case EVHTTP_REQ_PUT:
        return "PUT";
    case EVHTTP_REQ_PATCH:
        return "PATCH";
    case EVHTTP_REQ_POST:
        return "POST";
    case EVHTTP_REQ_DELETE:
        return "DELETE";
    }
    return "OTHER";
}

/* False: it was answered. */
static bool is_welcome(const struct weir_door_http *door,
                       struct evhttp_request *request)
{
    struct evkeyvalq *headers = evhttp_request_get_input_headers(request);
    const struct weir_origin_request asked = {
        .method = method_of(request),
        .host = evhttp_find_header(headers, "Host"),
        .origin = evhttp_find_header(headers, "Origin"),
        .sec_fetch_site = evhttp_find_header(headers, "Sec-Fetch-Site"),
        .content_type = evhttp_find_header(headers, "Content-Type"),
    };
    switch (weir_origin_check(&door->own, &asked)) {
    case WEIR_ORIGIN_WELCOME:
        return true;
    case WEIR_ORIGIN_FOREIGN:
        refuse(request, WEIR_EINVAL, 403, WEIR_ORIGIN_FOREIGN_TEXT);
        return false;
    case WEIR_ORIGIN_SIMPLE:
        refuse(request, WEIR_EINVAL, 415, WEIR_ORIGIN_SIMPLE_TEXT);
        return false;
    }
    weir_assert(false);
    return false;
}

/* By what it showed; where nobody shows anything, where it comes from. */
static void write_reader(const struct weir_door_http *door,
                         struct evhttp_request *request,
                         const struct weir_identity *identity, char *reader)
{
    char *host;
    uint16_t port;
    evhttp_connection_get_peer(evhttp_request_get_connection(request), &host,
                               &port);
    snprintf(reader, WEIR_HTTP_READER_MAX, "%s",
             weir_gate_is_shut(door->gate) ? identity->who : host);
}

static void ask(struct weir_door_http *door, struct evhttp_request *request,
                struct weir_text body, char *reader, weir_admin_done_fn *done,
                void *context)
{
    struct weir_admin_request ask = {
        .method = weir_text_of(method_of(request)),
        .target = weir_text_of(evhttp_request_get_uri(request)),
        .body = body,
    };
    struct weir_identity identity = { .roles = 0 };
    struct weir_diag why = { 0 };
    int error = let_in(door, request, &ask, &identity, &why);
    if (error == 0 && !door->admin)
        error = weir_diag_set(&why, WEIR_ECLOSED, "this root is stopping: "
                              "ask another", NULL);
    ask.who = weir_text_of(identity.who);
    if (reader)
        write_reader(door, request, &identity, reader);
    if (error < 0)
        weir_admin_refuse(error, &why, done, context);
    else
        weir_admin_call(door->admin, &ask, done, context, weir_clock_now());
}

static void ask_event(void *context, struct evhttp_request *request,
                      char reader[WEIR_HTTP_READER_MAX],
                      weir_admin_done_fn *done, void *done_context)
{
    ask(context, request, WEIR_TEXT(""), reader, done, done_context);
}

static void answer_once(struct weir_door_http *door,
                        struct evhttp_request *request)
{
    struct pending *pending = calloc(1, sizeof *pending);
    struct evbuffer *in = evhttp_request_get_input_buffer(request);
    size_t len = evbuffer_get_length(in);
    const char *body = (const char *)evbuffer_pullup(in, -1);
    if (!pending || (len > 0 && !body)) {
        free(pending);
        evhttp_send_error(request, HTTP_INTERNAL, NULL);
        return;
    }
    pending->request = request;
    pending->in_call = true;
    evhttp_connection_set_closecb(evhttp_request_get_connection(request),
                                  on_gone, pending);
    ask(door, request, (struct weir_text){ body, len }, NULL, on_answer,
        pending);
    pending->in_call = false;
    if (pending->answered)
        free(pending);
}

static void hear(struct evhttp_request *request, size_t max)
{
    struct evhttp_connection *connection =
        evhttp_request_get_connection(request);
    bufferevent_setwatermark(evhttp_connection_get_bufferevent(connection),
                             EV_READ, 0, max);
}

static void on_sent(struct evhttp_request *request, void *context)
{
    (void)context;
    hear(request, 0); /* all of the next one */
}

/* While it answers, evhttp reads on, to see that a client goes, and would keep
 * all that comes: who takes no answer, or listens to events, could fill the
 * memory. What is over the bound stays with him. */
static void hear_little(struct evhttp_request *request)
{
    hear(request, WEIR_HTTP_AHEAD_MAX);
    evhttp_request_set_on_complete_cb(request, on_sent, NULL);
}

static void on_request(struct evhttp_request *request, void *context)
{
    struct weir_door_http *door = context;
    hear_little(request);
    if (!is_welcome(door, request))
        return;
    struct weir_text path =
        weir_uri_split(weir_text_of(evhttp_request_get_uri(request))).path;
    bool get = evhttp_request_get_command(request) == EVHTTP_REQ_GET;
    bool head = evhttp_request_get_command(request) == EVHTTP_REQ_HEAD;
    const struct weir_page_file *file =
        get || head ? weir_page_file_find(path) : NULL;
    if (file)
        send_file(door, request, file);
    else if (get && weir_text_equal(path, WEIR_TEXT(WEIR_PAGE_EVENTS)))
        weir_http_streams_open(door->streams, request);
    else
        answer_once(door, request);
}

/* ---- Life ---- */

static int find_port(struct weir_door_http *door)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    evutil_socket_t fd = evhttp_bound_socket_get_fd(door->socket);
    if (getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        return WEIR_ESYSTEM;
    door->port = ntohs(at.ss_family == AF_INET6
                           ? ((struct sockaddr_in6 *)&at)->sin6_port
                           : ((struct sockaddr_in *)&at)->sin_port);
    return 0;
}

static void set_limits(struct evhttp *http)
{
    evhttp_set_max_headers_size(http, WEIR_HTTP_HEADERS_MAX);
    evhttp_set_max_body_size(http, WEIR_ADMIN_IMPORT_MAX);
    evhttp_set_timeout(http, WEIR_HTTP_TIMEOUT);
    evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD |
                                         EVHTTP_REQ_PUT | EVHTTP_REQ_PATCH |
                                         EVHTTP_REQ_POST |
                                         EVHTTP_REQ_DELETE);
}

static int bind_door(struct weir_door_http *door,
                     const struct weir_address *address,
                     struct weir_diag *diag)
{
    errno = 0;
    door->socket = evhttp_bind_socket_with_handle(door->http, address->host,
                                                  address->port);
    if (door->socket && find_port(door) == 0)
        return 0;
    int why = errno ? errno : EINVAL;
    return weir_diag_set(diag, WEIR_ESYSTEM, "can't listen: ", strerror(why),
                         why == EADDRINUSE
                             ? "; another process has this port: stop it or "
                               "take another"
                             : "", NULL);
}

static int use_tls(struct weir_door_http *door, struct weir_tls *tls,
                   struct weir_diag *diag)
{
    if (!tls)
        return 0;
    door->visitors = weir_http_visitors_new(tls, door->gate);
    if (!door->visitors)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    evhttp_set_bevcb(door->http, weir_http_visitors_accept, door->visitors);
    return 0;
}

static int use_streams(struct weir_door_http *door, struct event_base *base,
                       struct weir_diag *diag)
{
    const struct weir_http_streams_options options = {
        .base = base, .ask = ask_event, .send = send_answer, .context = door
    };
    door->streams = weir_http_streams_new(&options);
    return door->streams ? 0
                         : weir_diag_set(diag, WEIR_ENOMEM,
                                         weir_strerror(WEIR_ENOMEM), NULL);
}

int weir_door_http_new(const struct weir_door_http_options *options,
                       struct weir_door_http **out, struct weir_diag *diag)
{
    weir_assert(options->gate);
    struct weir_door_http *door = calloc(1, sizeof *door);
    struct evhttp *http = door ? evhttp_new(options->base) : NULL;
    if (!http) {
        free(door);
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    }
    door->http = http;
    door->admin = options->admin;
    door->gate = options->gate;
    door->own = (struct weir_origin_own){
        .tls = options->tls,
        .of_loopback =
            !options->tls && weir_address_is_loopback(&options->address),
        .public_origin = options->public_origin,
    };
    set_limits(http);
    evhttp_set_gencb(http, on_request, door);
    int error = use_streams(door, options->base, diag);
    if (error == 0)
        error = use_tls(door, options->tls, diag);
    if (error == 0)
        error = bind_door(door, &options->address, diag);
    if (error < 0) {
        weir_door_http_free(&door);
        return error;
    }
    if (door->visitors)
        weir_http_visitors_set_listener(
            door->visitors, evhttp_bound_socket_get_listener(door->socket));
    *out = door;
    return 0;
}

uint16_t weir_door_http_port(const struct weir_door_http *door)
{
    return door->port;
}

void weir_door_http_recheck(struct weir_door_http *door)
{
    if (door->visitors)
        weir_http_visitors_recheck(door->visitors);
}

void weir_door_http_doubt(struct weir_door_http *door,
                          const struct weir_tls *tls)
{
    if (door->visitors)
        weir_http_visitors_doubt(door->visitors, tls);
}

void weir_door_http_look(struct weir_door_http *door)
{
    if (door->visitors)
        weir_http_visitors_look(door->visitors);
}

void weir_door_http_stop(struct weir_door_http *door)
{
    if (door->visitors)
        weir_http_visitors_set_listener(door->visitors, NULL);
    if (door->socket)
        evhttp_del_accept_socket(door->http, door->socket);
    door->socket = NULL;
}

void weir_door_http_leave(struct weir_door_http *door)
{
    door->admin = NULL;
}

void weir_door_http_free(struct weir_door_http **door)
{
    if (!*door)
        return;
    if ((*door)->visitors)
        weir_http_visitors_set_listener((*door)->visitors, NULL);
    evhttp_free((*door)->http);
    weir_http_streams_free(&(*door)->streams);
    weir_http_visitors_free(&(*door)->visitors);
    free(*door);
    *door = NULL;
}
