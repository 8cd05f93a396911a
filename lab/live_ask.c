/* SPDX-License-Identifier: MIT
 * lab/live_ask.c - requests to a root's HTTP port, by libevent's evhttp, which
 * keeps one connection with one request at a time. */

#include "lab/live_ask.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <string.h>

#include "lab/memory.h"

struct question {
    struct weir_asker *asker;
    weir_asked_fn *asked;
    void *context;
    struct question *next, **where; /* in the asker's list */
};

struct weir_asker {
    struct evhttp_connection *connection;
    struct question *questions; /* not answered yet */
};

static void forget(struct question *question)
{
    *question->where = question->next;
    if (question->next)
        question->next->where = question->where;
    free(question);
}

static void on_answer(struct evhttp_request *request, void *context)
{
    struct question *question = context;
    weir_asked_fn *asked = question->asked;
    void *whom = question->context;
    forget(question);
    int status = request ? evhttp_request_get_response_code(request) : 0;
    json_t *answer = NULL;
    if (status > 0) {
        struct evbuffer *body = evhttp_request_get_input_buffer(request);
        size_t len = evbuffer_get_length(body);
        answer =
            json_loadb((const char *)evbuffer_pullup(body, -1), len, 0, NULL);
    }
    asked(whom, status, answer);
    json_decref(answer);
}

static struct question *remember(struct weir_asker *asker, weir_asked_fn *asked,
                                 void *context)
{
    struct question *question = weir_must_zeroed(1, sizeof *question);
    *question = (struct question){ .asker = asker,
                                   .asked = asked,
                                   .context = context,
                                   .next = asker->questions,
                                   .where = &asker->questions };
    if (question->next)
        question->next->where = &question->next;
    asker->questions = question;
    return question;
}

static enum evhttp_cmd_type command_of(const char *method)
{
    return strcmp(method, "GET") == 0    ? EVHTTP_REQ_GET
           : strcmp(method, "POST") == 0 ? EVHTTP_REQ_POST
                                         : EVHTTP_REQ_DELETE;
}

void weir_asker_ask(struct weir_asker *asker, const char *method,
                    const char *path, json_t *body, weir_asked_fn *asked,
                    void *context)
{
    struct question *question = remember(asker, asked, context);
    struct evhttp_request *request =
        weir_must(evhttp_request_new(on_answer, question));
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
    if (evhttp_make_request(asker->connection, request, command_of(method),
                            path) < 0)
        on_answer(NULL, question);
}

struct weir_asker *weir_asker_new(struct event_base *base,
                                  const struct weir_address *http)
{
    struct weir_asker *asker = weir_must_zeroed(1, sizeof *asker);
    asker->connection = weir_must(
        evhttp_connection_base_new(base, NULL, http->host, http->port));
    evhttp_connection_set_timeout(asker->connection,
                                  WEIR_ASK_PATIENCE / WEIR_SECOND);
    return asker;
}

void weir_asker_free(struct weir_asker **asker)
{
    struct weir_asker *self = *asker;
    *asker = NULL;
    if (!self)
        return;
    evhttp_connection_free(self->connection); /* without callbacks */
    while (self->questions)
        on_answer(NULL, self->questions);
    free(self);
}
