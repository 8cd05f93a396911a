/* SPDX-License-Identifier: MIT
 * lab/live_client.c - requests to a root's HTTP port, by libevent's evhttp,
 * which keeps one connection with one request at a time. */

#include "lab/live_client.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <string.h>

#include "lab/memory.h"

struct pending {
    struct weir_live_client *client;
    weir_live_reply_fn *reply;
    void *context;
    struct pending *next, **where; /* in the client's list */
};

struct weir_live_client {
    struct evhttp_connection *connection;
    struct pending *pending; /* not answered yet */
};

static void remove_pending(struct pending *pending)
{
    weir_assert(*pending->where == pending);
    *pending->where = pending->next;
    if (pending->next)
        pending->next->where = pending->where;
    free(pending);
}

static void on_http_answer(struct evhttp_request *request, void *context)
{
    struct pending *pending = context;
    weir_live_reply_fn *reply = pending->reply;
    void *of = pending->context;
    remove_pending(pending);
    int status = request ? evhttp_request_get_response_code(request) : 0;
    json_t *answer = NULL;
    if (status > 0) {
        struct evbuffer *body = evhttp_request_get_input_buffer(request);
        size_t len = evbuffer_get_length(body);
        answer =
            json_loadb((const char *)evbuffer_pullup(body, -1), len, 0, NULL);
    }
    reply(of, status, answer);
    json_decref(answer);
}

static struct pending *add_pending(struct weir_live_client *client,
                                   weir_live_reply_fn *reply, void *context)
{
    struct pending *pending = weir_must_zeroed(1, sizeof *pending);
    *pending = (struct pending){ .client = client,
                                 .reply = reply,
                                 .context = context,
                                 .next = client->pending,
                                 .where = &client->pending };
    if (pending->next)
        pending->next->where = &pending->next;
    client->pending = pending;
    return pending;
}

static enum evhttp_cmd_type command_of(const char *method)
{
    return strcmp(method, "GET") == 0    ? EVHTTP_REQ_GET
           : strcmp(method, "POST") == 0 ? EVHTTP_REQ_POST
                                         : EVHTTP_REQ_DELETE;
}

void weir_live_client_request(struct weir_live_client *client,
                              const char *method, const char *path,
                              json_t *body, weir_live_reply_fn *reply,
                              void *context)
{
    struct pending *pending = add_pending(client, reply, context);
    struct evhttp_request *request =
        weir_must(evhttp_request_new(on_http_answer, pending));
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Host", "localhost");
    evhttp_add_header(headers, "Content-Type", "application/json");
    if (body) {
        char *text = weir_must(json_dumps(body, JSON_COMPACT));
        evbuffer_add(evhttp_request_get_output_buffer(request), text,
                     strlen(text));
        free(text);
        json_decref(body);
    }
    /* On failure the callback comes, or, if no request was made, this call. */
    if (evhttp_make_request(client->connection, request, command_of(method),
                            path) < 0)
        on_http_answer(NULL, pending);
}

struct weir_live_client *weir_live_client_new(struct event_base *base,
                                              const struct weir_address *http)
{
    struct weir_live_client *client = weir_must_zeroed(1, sizeof *client);
    client->connection = weir_must(
        evhttp_connection_base_new(base, NULL, http->host, http->port));
    evhttp_connection_set_timeout(client->connection,
                                  WEIR_LIVE_CLIENT_PATIENCE / WEIR_SECOND);
    return client;
}

void weir_live_client_free(struct weir_live_client **client)
{
    struct weir_live_client *self = *client;
    *client = NULL;
    if (!self)
        return;
    evhttp_connection_free(self->connection); /* without callbacks */
    while (self->pending)
        on_http_answer(NULL, self->pending);
    free(self);
}
