/* SPDX-License-Identifier: MIT
 * server/door_http.c - HTTP/1.1 in front of the administration.
 *
 * Whoever can reach this port may edit quotas; it listens on loopback only.
 * A browser on the same machine can reach it too, on behalf of any page that
 * it shows. Two checks keep such pages out: the Host must be a loopback name
 * (a page whose name was made to resolve to 127.0.0.1 sends its own), and an
 * Origin, which browsers add to what a page sends elsewhere, must be
 * loopback as well.
 *
 * An edit is answered later. The request then belongs to a 'pending', which
 * outlives the connection if the client goes away first: evhttp frees the
 * request, the pending forgets it, the answer finds nobody. */

#include "server/door_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/http.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "os/clock.h"

struct weir_door_http {
    struct evhttp *http;                /* owned */
    struct evhttp_bound_socket *socket; /* of 'http'; NULL once stopped */
    struct weir_admin *admin;           /* borrowed */
    uint16_t port;
};

struct pending {
    struct evhttp_request *request; /* NULL: the client has gone */
    bool answered;
    bool in_call; /* weir_admin_call() has not returned yet */
};

/* ---- Who asks ---- */

/* "localhost", "127.0.0.1:7078", "[::1]:7078" … */
static bool is_loopback_host(const char *host)
{
    struct weir_address address = { .port = 0 };
    size_t len = strlen(host);
    const char *begin = host;
    const char *end = host + len;
    if (host[0] == '[') {
        begin = host + 1;
        end = strchr(host, ']');
    } else if (strchr(host, ':')) {
        end = strchr(host, ':');
    }
    if (!end || (size_t)(end - begin) >= sizeof address.host)
        return false;
    memcpy(address.host, begin, (size_t)(end - begin));
    return weir_address_is_loopback(&address);
}

static bool is_welcome(struct evhttp_request *request)
{
    struct evkeyvalq *headers = evhttp_request_get_input_headers(request);
    const char *host = evhttp_find_header(headers, "Host");
    const char *origin = evhttp_find_header(headers, "Origin");
    if (host && !is_loopback_host(host))
        return false;
    if (!origin)
        return true;
    const char *slashes = strstr(origin, "://");
    return slashes && is_loopback_host(slashes + 3);
}

/* ---- Answers ---- */

static void send_answer(struct evhttp_request *request,
                        const struct weir_admin_answer *answer)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Content-Type", answer->type);
    evhttp_add_header(headers, "Cache-Control", "no-store");
    evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
    if (answer->allow)
        evhttp_add_header(headers, "Allow", answer->allow);
    struct evbuffer *out = evhttp_request_get_output_buffer(request);
    bool newline = answer->len > 0 && answer->body[answer->len - 1] != '\n';
    if (evbuffer_add(out, answer->body, answer->len) < 0 ||
        (newline && evbuffer_add(out, "\n", 1) < 0)) {
        evhttp_send_error(request, HTTP_INTERNAL, NULL);
        return;
    }
    evhttp_send_reply(request, answer->status, NULL, NULL);
}

static void on_gone(struct evhttp_connection *connection, void *context)
{
    (void)connection;
    struct pending *pending = context;
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

static void refuse(struct evhttp_request *request)
{
    static const char body[] =
        "{\"type\": \"urn:weir:error:WEIR_EINVAL\", \"status\": 403,\n"
        " \"title\": \"The request comes from elsewhere\",\n"
        " \"detail\": \"a root answers requests to localhost, not those "
        "that a browser sends for a page of another origin\",\n"
        " \"error\": \"WEIR_EINVAL\"}\n";
    struct weir_admin_answer answer = { .status = 403,
                                        .type = "application/problem+json",
                                        .body = body,
                                        .len = sizeof body - 1 };
    send_answer(request, &answer);
}

/* ---- Requests ---- */

static const char *method_of(struct evhttp_request *request)
{
    switch ((int)evhttp_request_get_command(request)) {
    case EVHTTP_REQ_GET:
    case EVHTTP_REQ_HEAD: /* evhttp leaves the body out */
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

static void on_request(struct evhttp_request *request, void *context)
{
    struct weir_door_http *door = context;
    if (!is_welcome(request)) {
        refuse(request);
        return;
    }
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
    struct weir_admin_request ask = {
        .method = weir_text_of(method_of(request)),
        .target = weir_text_of(evhttp_request_get_uri(request)),
        .body = { body, len },
    };
    weir_admin_call(door->admin, &ask, on_answer, pending, weir_clock_now());
    pending->in_call = false;
    if (pending->answered)
        free(pending);
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

int weir_door_http_new(struct event_base *base, struct weir_admin *admin,
                       const struct weir_address *address,
                       struct weir_door_http **out, struct weir_diag *diag)
{
    struct weir_door_http *door = calloc(1, sizeof *door);
    struct evhttp *http = door ? evhttp_new(base) : NULL;
    if (!http) {
        free(door);
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    }
    door->http = http;
    door->admin = admin;
    evhttp_set_max_headers_size(http, WEIR_HTTP_HEADERS_MAX);
    evhttp_set_max_body_size(http, WEIR_ADMIN_IMPORT_MAX);
    evhttp_set_timeout(http, WEIR_HTTP_TIMEOUT);
    evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD |
                                         EVHTTP_REQ_PUT | EVHTTP_REQ_PATCH |
                                         EVHTTP_REQ_POST |
                                         EVHTTP_REQ_DELETE);
    evhttp_set_gencb(http, on_request, door);
    errno = 0;
    door->socket = evhttp_bind_socket_with_handle(http, address->host,
                                                  address->port);
    if (!door->socket || find_port(door) < 0) {
        int why = errno ? errno : EINVAL;
        weir_diag_set(diag, WEIR_ESYSTEM, "can't listen: ", strerror(why),
                      why == EADDRINUSE ? "; another process has this port: "
                                          "stop it or take another"
                                        : "", NULL);
        weir_door_http_free(&door);
        return WEIR_ESYSTEM;
    }
    *out = door;
    return 0;
}

uint16_t weir_door_http_port(const struct weir_door_http *door)
{
    return door->port;
}

void weir_door_http_stop(struct weir_door_http *door)
{
    if (door->socket)
        evhttp_del_accept_socket(door->http, door->socket);
    door->socket = NULL;
}

void weir_door_http_free(struct weir_door_http **door)
{
    if (!*door)
        return;
    evhttp_free((*door)->http);
    free(*door);
    *door = NULL;
}
