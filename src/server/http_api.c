/* SPDX-License-Identifier: MIT
 * server/http_api.c - HTTP/1.1 in front of the administration.
 *
 * The listener (front/http_listener.h) reads a request's head and asks this
 * file to admit it. The caller is identified again for each request, by the
 * certificate of the connection and the header Authorization, before a byte of
 * its body is kept or the administration sees it.
 *
 * The answer to a read is there at once, the answer to an edit when the edit is
 * in force. Both go to a ticket, which outlives the connection if the client
 * goes away first.
 *
 * The page's own files have no data of the root and are given to every client:
 * a browser that opens the page has no token to show yet. */

#include "server/http_api.h"

#include <stdio.h>
#include <stdlib.h>

#include "front/http_problem.h"
#include "io/clock.h"

struct weir_http_api {
    struct weir_http_listener *listener;   /* owned */
    struct weir_admin *admin;              /* borrowed; NULL: it is gone */
    struct weir_authorization *authorizer; /* borrowed */
};

/* ---- Answers ---- */

static struct weir_http_reply reply_of_answer(
    const struct weir_admin_answer *answer)
{
    struct weir_http_reply reply = { .status = answer->status,
                                     .type = answer->type,
                                     .bytes = { answer->body, answer->len } };
    if (answer->allow)
        weir_http_add_header(&reply, "Allow", "%s", answer->allow);
    return reply;
}

static void answer_ticket(void *context, const struct weir_admin_answer *answer)
{
    struct weir_http_reply reply = reply_of_answer(answer);
    weir_http_ticket_answer(context, &reply);
}

static void answer_refusal(void *context,
                           const struct weir_admin_answer *answer)
{
    struct weir_http_call *call = context;
    call->reply = reply_of_answer(answer);
    weir_http_answer(call);
}

/* Answers for the listener itself, which refused the request. */
static void fill_problem(void *context, struct weir_http_call *call, int status,
                         const char *detail)
{
    struct weir_diag diag = { 0 };
    int error = status == 413   ? WEIR_ETOOBIG
                : status == 503 ? WEIR_EFULL
                                : WEIR_EINVAL;
    (void)context;
    weir_diag_put(&diag, error, detail);
    call->reply.status = status;
    call->reply.type = "application/problem+json";
    call->reply.json = weir_http_problem(error, status, &diag);
}

/* ---- Callers ---- */

/* Whether the caller has the role: 0, WEIR_ECREDENTIAL or WEIR_EDENIED. '*out'
 * is the identity of a known caller. */
static int identify_caller(struct weir_http_api *api,
                           const struct weir_http_call *call, unsigned role,
                           struct weir_identity *out, struct weir_diag *diag,
                           weir_instant now)
{
    char buf[WEIR_HTTP_VALUE_MAX];
    struct weir_tls_peer names;
    const char *shown = weir_http_header(call, "Authorization", buf);
    weir_conn_peer_names(call->conn, &names);
    const struct weir_caller caller = { .api = WEIR_API_HTTP,
                                        .address = weir_conn_peer(call->conn),
                                        .names = &names,
                                        .authorization = shown ? shown : "" };
    int error =
        weir_authorization_identify(api->authorizer, &caller, out, diag, now);
    if (error < 0)
        return error;
    weir_conn_set_known(call->conn, true);
    return weir_authorization_admit(api->authorizer, &caller, out,
                                    (enum weir_role)role, diag, now);
}

static struct weir_admin_request admin_request_of(
    const struct weir_http_call *call)
{
    const struct weir_identity *identity = call->state;
    return (struct weir_admin_request){
        .method = call->method,
        .target = call->request->target,
        .body = call->body,
        .identity = weir_text_of(identity->name),
    };
}

static bool admit_head(void *context, struct weir_http_call *call,
                       weir_instant now)
{
    struct weir_http_api *api = context;
    const struct weir_admin_request ask = admin_request_of(call);
    struct weir_identity *identity = call->state;
    struct weir_diag why = { 0 };
    unsigned role = weir_admin_role(&ask);
    bool is_file = weir_http_file(call);
    *identity = (struct weir_identity){ .roles = 0 };
    /* The connection of a peer that needed no credential isn't kept. */
    if (is_file || role == 0)
        call->ends = weir_authorization_is_required(api->authorizer);
    if (is_file)
        return false;
    int error =
        role == 0 ? 0 : identify_caller(api, call, role, identity, &why, now);
    if (error == 0)
        error =
            weir_admin_check_body(&ask, call->request->content_length, &why);
    if (error == 0 && !api->admin)
        error =
            weir_diag_put(&why, WEIR_ECLOSED,
                          "this root is stopping: send the request to another");
    if (error < 0)
        weir_admin_refuse(error, &why, answer_refusal, call);
    return error == 0;
}

/* ---- Requests ---- */

static bool is_stream(const struct weir_http_call *call)
{
    return !call->is_head && weir_text_equal(call->method, WEIR_TEXT("GET")) &&
           weir_text_equal(weir_uri_split(call->request->target).path,
                           WEIR_TEXT(WEIR_PAGE_EVENTS));
}

static void pass_request(void *context, struct weir_http_call *call,
                         weir_instant now)
{
    struct weir_http_api *api = context;
    const struct weir_identity *identity = call->state;
    const struct weir_admin_request ask = admin_request_of(call);
    struct weir_http_ticket *ticket = weir_http_defer(call);
    if (!ticket) {
        fill_problem(api, call, 503, weir_strerror(WEIR_ENOMEM));
        return;
    }
    /* A reader is its identity; without credentials in force, its address. */
    if (is_stream(call) && weir_authorization_is_required(api->authorizer))
        snprintf(call->reader, sizeof call->reader, "%s", identity->name);
    else if (is_stream(call))
        weir_http_peer_host(call, call->reader);
    weir_admin_call(api->admin, &ask, answer_ticket, ticket, now);
}

/* ---- Refused connections ---- */

static void note_refused_tls(void *context, const char *address,
                             const char *why, weir_instant now)
{
    weir_authorization_note(context, WEIR_API_HTTP, WEIR_REFUSED_TLS, address,
                            why, now);
}

static void note_unknown_peer(void *context, const struct weir_conn *conn,
                              weir_instant now)
{
    const struct weir_http_api *api = context;
    weir_authorization_note(api->authorizer, WEIR_API_HTTP,
                            WEIR_REFUSED_CREDENTIAL, weir_conn_peer(conn),
                            "it has shown no known credential for 10 s", now);
}

/* ---- Life ---- */

int weir_http_api_new(const struct weir_http_api_options *options,
                      struct weir_http_api **out, struct weir_diag *diag)
{
    weir_assert(options->authorizer);
    struct weir_http_api *api = calloc(1, sizeof *api);
    if (!api)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    api->admin = options->admin;
    api->authorizer = options->authorizer;
    size_t max = options->connections_max ? options->connections_max
                                          : WEIR_HTTP_CONNECTIONS_MAX;
    const struct weir_http_options http = {
        .conns = { .base = options->base,
                   .place = { .address = options->address },
                   .tls = { .tls = options->tls,
                            .on_refused = note_refused_tls,
                            .context = options->authorizer },
                   .on_short = { weir_log_short, options->authorizer->log },
                   .max = max,
                   .unknown_max = max / 2,
                   .silence_max = WEIR_HTTP_SILENCE_MAX,
                   .unauthenticated_max =
                       weir_authorization_is_required(api->authorizer)
                           ? WEIR_UNAUTHENTICATED_MAX
                           : 0 },
        .public_origin = options->public_origin,
        .on_unknown = note_unknown_peer,
        .bodies_max = WEIR_HTTP_BODIES_MAX,
        .state_size = sizeof(struct weir_identity),
        .context = api,
        .on_head = admit_head,
        .on_request = pass_request,
        .problem = fill_problem,
    };
    int error = weir_http_listener_new(&http, &api->listener, diag);
    if (error < 0) {
        free(api);
        return error;
    }
    *out = api;
    return 0;
}

uint16_t weir_http_api_port(const struct weir_http_api *api)
{
    return weir_http_listener_address(api->listener)->address.port;
}

struct weir_http_listener *weir_http_api_listener(struct weir_http_api *api)
{
    return api->listener;
}

void weir_http_api_leave(struct weir_http_api *api)
{
    api->admin = NULL;
}

void weir_http_api_free(struct weir_http_api **api)
{
    if (!*api)
        return;
    weir_http_listener_free(&(*api)->listener);
    free(*api);
    *api = NULL;
}
