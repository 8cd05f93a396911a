/* SPDX-License-Identifier: MIT
 * protocol/http_take/http_take.c - the HTTP API: its routes, the roles that
 * they need, and GET /metrics.
 *
 * The listener (front/http_listener.h) reads requests; this file has the routes
 * and the roles that they need. An error of a request is a problem of RFC 9457,
 * and the connection goes on.
 *
 * The page is the root's (front/page/). The process that opens this listener
 * provides the page's data (weir_http_take_views), because this folder knows a
 * limiter only by weir.h. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/json_text.h"
#include "front/text_stream.h"
#include "protocol/http_take/http_take_internal.h"

/* The listener refuses a request by itself. A request that can't be read may
 * have been for a verdict, so it is counted. */
static void refuse_request(void *context, struct weir_http_call *call,
                           int status, const char *detail)
{
    const struct weir_http_take *api = context;
    if (!weir_text_equal(call->method, WEIR_TEXT("GET")))
        weir_protocol_note(api->host, WEIR_PROTOCOL_HTTP,
                           status == 503 ? WEIR_PROTOCOL_FAILED
                                         : WEIR_PROTOCOL_INVALID,
                           weir_conn_peer(call->conn), detail);
    weir_http_take_problem(&call->reply, status, detail);
}

static struct weir_http_take_call make_take_call(
    const struct weir_http_take *api, struct weir_http_call *http,
    weir_instant now)
{
    return (struct weir_http_take_call){ .api = api,
                                         .http = http,
                                         .reply = &http->reply,
                                         .visitor = http->state,
                                         .now = now };
}

/* ---- Authentication ---- */

static enum weir_role role_of(struct weir_text method)
{
    return weir_text_equal(method, WEIR_TEXT("GET")) ? WEIR_ROLE_READ
                                                     : WEIR_ROLE_TAKE;
}

static bool is_admitted(const struct weir_http_take_call *call)
{
    const struct weir_protocol_host *host = call->api->host;
    char shown[WEIR_HTTP_VALUE_MAX];
    struct weir_diag diag = { 0 };
    const char *authorization =
        weir_protocol_is_protected(host)
            ? weir_http_header(call->http, "Authorization", shown)
            : NULL;
    const struct weir_protocol_shown to_admit = { WEIR_PROTOCOL_HTTP,
                                                  role_of(call->http->method),
                                                  authorization ? authorization
                                                                : "" };
    int error = weir_protocol_admit(host, call->http->conn, &to_admit,
                                    &call->visitor->taker, &diag, call->now);
    weir_conn_set_known(call->http->conn, error == 0);
    if (error < 0)
        weir_http_take_problem(call->reply,
                               error == WEIR_EDENIED  ? 403
                               : error == WEIR_ENOMEM ? 503
                                                      : 401,
                               diag.text);
    return error == 0;
}

/* ---- Routes ---- */

static void write_health(const struct weir_http_take_call *call)
{
    call->reply->json = json_pack("{s:b}", "alive", 1);
}

/* For so long names that found no room are news. */
#define FULL_RECENT (60 * WEIR_SECOND)

static const char *on_full_text(const struct weir_status *status)
{
    return status->on_full == WEIR_ON_FULL_PASS ? "pass" : "refuse";
}

/* The table has no room for quotas, or lately had none for names. */
static json_t *full_object(const struct weir_status *status)
{
    char detail[256];
    bool passes = status->on_full == WEIR_ON_FULL_PASS;
    snprintf(detail, sizeof detail, "%s no room; %s %s; %s",
             status->lacking > 0 ? "quotas found" : "names of requests found",
             status->lacking > 0 ? "names without a quota"
                                 : "those without an overflow quota",
             passes ? "pass" : "are refused",
             status->growth_failed
                 ? "the system, or the table's file system, has no more memory"
                 : "raise --memory-max");
    return json_pack("{s:b, s:I, s:I, s:s, s:s}", "ready", 1, "lacking",
                     (json_int_t)status->lacking, "overflowed",
                     (json_int_t)status->overflowed, "on_full",
                     on_full_text(status), "detail", detail);
}

static void write_readiness(const struct weir_http_take_call *call)
{
    const struct weir_protocol_host *host = call->api->host;
    struct weir_status status;
    weir_status(host->weir, &status);
    bool full = status.lacking > 0 || status.overflowed_age < FULL_RECENT;
    if (weir_protocol_is_ready(host) && full)
        call->reply->json = full_object(&status);
    else if (weir_protocol_is_ready(host))
        call->reply->json = json_pack("{s:b}", "ready", 1);
    else
        weir_http_take_problem(
            call->reply, 503,
            weir_protocol_check_start(host, NULL) < 0
                ? "no root has sent its quotas yet; requests are refused"
                : "no root has sent its quotas yet; every name is unknown and "
                  "passes");
}

static void write_status(const struct weir_http_take_call *call)
{
    struct weir_status status;
    weir_status(call->api->host->weir, &status);
    call->reply->json = json_pack(
        "{s:s, s:i, s:i, s:I, s:i, s:i, s:I, s:I, s:i, s:s, s:b, s:b, s:I, "
        "s:I, s:I}",
        "version", call->api->host->version, "roots", (int)status.roots,
        "roots_up", (int)status.roots_up, "epoch", (json_int_t)status.epoch,
        "slots", (int)status.slots, "slots_used", (int)status.slots_used,
        "memory", (json_int_t)status.memory, "memory_max",
        (json_int_t)status.memory_max, "lacking", (int)status.lacking,
        "on_full", on_full_text(&status), "ready", (int)status.ready, "stale",
        (int)status.stale, "unknown", (json_int_t)status.unknown, "overflowed",
        (json_int_t)status.overflowed, "contended",
        (json_int_t)status.contended);
}

/* ---- GET /metrics, in Prometheus' text format ---- */

/* Every metric is of the whole process: no label has values that a client or a
 * quota could add, so the text is as long with a million names as with none.
 * The roots list the most refused names (weir-http(7)), as they know them for
 * the fleet.
 *
 * All names begin with weir_agent_, so that one Prometheus that scrapes a root
 * and an agent never gets two meanings of one name. */
struct figure {
    const char *name, *type, *help;
    double value;
};

static void print_metric_head(FILE *out, const char *name, const char *type,
                              const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void print_verdicts(FILE *out, const struct weir_protocol_counts *counts)
{
    static const char name[] = "weir_agent_decisions_total";
    print_metric_head(out, name, "counter",
                      "Verdicts of the listeners on quotas of the roots.");
    fprintf(out, "%s{verdict=\"passed\"} %.17g\n", name,
            (double)counts->passed);
    fprintf(out, "%s{verdict=\"limited\"} %.17g\n", name,
            (double)counts->limited);
}

static void print_errors(FILE *out, const struct weir_protocol_counts *counts)
{
    static const char name[] = "weir_agent_errors_total";
    print_metric_head(out, name, "counter",
                      "Requests without a decision by a quota.");
    for (int i = 0; i < WEIR_PROTOCOL_COUNT; i++)
        for (int k = 0; k < WEIR_PROTOCOL_ERROR_COUNT; k++)
            fprintf(out, "%s{protocol=\"%s\",kind=\"%s\"} %.17g\n", name,
                    weir_protocol_name((enum weir_protocol)i),
                    weir_protocol_error_name((enum weir_protocol_error)k),
                    (double)counts->errors[i][k]);
}

static void print_counter(FILE *out, const char *name, const char *help,
                          const char *label, const char *const *values,
                          const uint64_t *counts, size_t count)
{
    print_metric_head(out, name, "counter", help);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s{%s=\"%s\"} %.17g\n", name, label, values[i],
                (double)counts[i]);
}

static void print_rls(FILE *out, const struct weir_protocol_counts *counts)
{
    static const char *const codes[] = { "ok", "over_limit" };
    static const char *const loads[] = { "error", "ok" };
    static const char *const outcomes[WEIR_RLS_OUTCOME_COUNT] = {
        [WEIR_RLS_OUTCOME_OK] = "ok",
        [WEIR_RLS_OUTCOME_OVER] = "over_limit",
        [WEIR_RLS_OUTCOME_SHADOW] = "shadow_over_limit",
        [WEIR_RLS_OUTCOME_UNKNOWN] = "unknown",
    };
    print_counter(out, "weir_agent_rls_calls_total",
                  "Answers of Envoy's rate limit service.", "code", codes,
                  counts->rls_calls, WEIR_COUNT_OF(codes));
    print_counter(out, "weir_agent_rls_descriptors_total",
                  "Descriptors in them.", "verdict", outcomes,
                  counts->rls_descriptors, WEIR_RLS_OUTCOME_COUNT);
    print_counter(out, "weir_agent_rls_config_loads_total",
                  "Readings of --envoy-config.", "result", loads,
                  counts->rls_loads, WEIR_COUNT_OF(loads));
}

static void print_limiter(FILE *out, const struct weir_status *status)
{
    const struct figure figures[] = {
        { "weir_agent_ready", "gauge",
          "Whether the quotas of a root, or of the snapshot, are complete "
          "here.",
          status->ready },
        { "weir_agent_stale", "gauge",
          "Whether no root answered for stale_after: on_stale decides.",
          status->stale },
        { "weir_agent_roots", "gauge", "Roots that the agent was given.",
          status->roots },
        { "weir_agent_roots_up", "gauge",
          "Roots that the agent is connected to.", status->roots_up },
        { "weir_agent_roots_there", "gauge",
          "Roots that share the roots' store; 0: not known.",
          status->roots_there },
        { "weir_agent_few_roots", "gauge",
          "Whether there have been more roots than the agent is connected to, "
          "for a minute.",
          status->few_roots },
        { "weir_agent_epoch", "gauge", "The epoch of the quotas here.",
          (double)status->epoch },
        { "weir_agent_slots", "gauge",
          "Quotas and instances that --memory-max has room for.",
          status->slots },
        { "weir_agent_slots_used", "gauge",
          "Slots that quotas and instances occupy.", status->slots_used },
        { "weir_agent_memory_bytes", "gauge",
          "Memory committed for quotas and instances.",
          (double)status->memory },
        { "weir_agent_memory_max_bytes", "gauge",
          "The most that it may be: --memory-max.",
          (double)status->memory_max },
        { "weir_agent_quotas_lacking", "gauge",
          "Quotas that found no room; names without quota go by --on-full.",
          status->lacking },
        { "weir_agent_passes_on_full", "gauge",
          "Whether names without room pass (--on-full pass) or are refused.",
          status->on_full == WEIR_ON_FULL_PASS },
        { "weir_agent_reports_total", "counter", "Reports sent to roots.",
          (double)status->reports },
        { "weir_agent_unknown_requests_total", "counter",
          "Requests by names without quota, which passed.",
          (double)status->unknown },
        { "weir_agent_overflowed_requests_total", "counter",
          "Requests by names for whose quota there is no room, decided by "
          "an overflow quota or --on-full.",
          (double)status->overflowed },
        { "weir_agent_contended_requests_total", "counter",
          "Requests decided by --when-locked, without a lock that another "
          "process had.",
          (double)status->contended },
        { "weir_agent_adaptive_limits", "gauge",
          "Adaptive quotas that have a limit of their own here.",
          status->adaptive },
        { "weir_agent_adaptive_overflowed", "gauge",
          "Adaptive quotas that found no room for a limit and let all pass.",
          status->adaptive_overflowed },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(figures); i++) {
        print_metric_head(out, figures[i].name, figures[i].type,
                          figures[i].help);
        fprintf(out, "%s %.17g\n", figures[i].name, figures[i].value);
    }
}

static void refuse_without_memory(const struct weir_http_take_call *call)
{
    weir_http_take_problem(call->reply, 503, weir_strerror(WEIR_ENOMEM));
}

static void write_metrics(const struct weir_http_take_call *call)
{
    const struct weir_protocol_host *host = call->api->host;
    struct weir_status status;
    char *text = NULL;
    size_t len;
    struct weir_text_stream stream = { 0 };
    FILE *out = weir_text_open(&stream);
    if (out) {
        weir_status(host->weir, &status);
        print_metric_head(out, "weir_agent_build_info", "gauge",
                          "The running version.");
        fprintf(out, "weir_agent_build_info{version=\"%s\"} 1\n",
                host->version);
        print_limiter(out, &status);
        if (host->counts) {
            print_verdicts(out, host->counts);
            print_errors(out, host->counts);
            print_rls(out, host->counts);
        }
        text = weir_text_close(&stream, out, &len);
    }
    if (!text) {
        refuse_without_memory(call);
        return;
    }
    text[len - 1] = '\0'; /* without the last line end, which every body gets */
    call->reply->type = "text/plain; version=0.0.4; charset=utf-8";
    call->reply->text = text;
}

/* ---- The table of routes ---- */

static void on_visitor_gone(void *context, void *state)
{
    (void)context;
    struct weir_http_take_visitor *visitor = state;
    weir_http_take_permits_end(&visitor->permits);
}

static void write_routes(const struct weir_http_take_call *call);

/* 'asked': the body. */
typedef void answer_fn(const struct weir_http_take_call *call, json_t *asked);

static const struct route {
    const char *path, *method;
    bool is_open; /* needs no credential */
    bool forms;   /* accepts a form's content type */
    /* limits a request with a body over the bound; NULL: it is refused */
    void (*limit)(const struct weir_http_take_call *call, const char *why);
    answer_fn *answer; /* to a body of JSON; NULL: there is none, and … */
    void (*write)(const struct weir_http_take_call *call);
} routes[] = {
    { "/v1/take", "POST", false, false, weir_http_take_limit,
      weir_http_take_decide, NULL },
    { "/v1/charge", "POST", false, false, NULL, weir_http_take_charge, NULL },
    { "/v1/settle", "POST", false, false, NULL, weir_http_take_settle, NULL },
    { "/v1/enter", "POST", false, false, weir_http_take_limit,
      weir_http_take_enter, NULL },
    { "/v1/leave", "POST", false, false, NULL, weir_http_take_leave, NULL },
    /* Clients of envoyproxy/ratelimit post JSON by curl -d, with a form's
     * type. */
    { "/json", "POST", false, true, weir_http_take_rls_limit,
      weir_http_take_rls, NULL },
    { "/v1", "GET", false, false, NULL, NULL, write_routes },
    { "/v1/status", "GET", false, false, NULL, NULL, write_status },
    { "/metrics", "GET", false, false, NULL, NULL, write_metrics },
    { "/healthz", "GET", true, false, NULL, NULL, write_health },
    { "/readyz", "GET", true, false, NULL, NULL, write_readiness },
};

static void add_route(json_t *list, const char *method, const char *path,
                      bool is_open)
{
    const char *role =
        is_open ? "" : weir_role_name(role_of(weir_text_of(method)));
    json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "method", method,
                                          "path", path, "role", role));
}

/* As a root's GET /v1: for people that explore, and for tests of all routes. */
static void write_routes(const struct weir_http_take_call *call)
{
    const struct weir_http_take_views *views = call->api->views;
    json_t *list = json_array();
    const char *path;
    for (size_t i = 0; i < WEIR_COUNT_OF(routes); i++)
        add_route(list, routes[i].method, routes[i].path, routes[i].is_open);
    for (size_t i = 0; views && (path = views->path(i)) != NULL; i++)
        add_route(list, "GET", path, false);
    call->reply->json = json_pack("{s:o}", "routes", list);
}

static const struct route *find_api_route(struct weir_text path)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(routes); i++)
        if (weir_text_equal(path, weir_text_of(routes[i].path)))
            return &routes[i];
    return NULL;
}

static bool takes_forms(void *context, struct weir_text path)
{
    (void)context;
    const struct route *route = find_api_route(path);
    return route && route->forms;
}

/* ---- Requests ---- */

/* Answers GET of one of the page's views; false: no such path. */
static bool answer_view(const struct weir_http_take_call *call)
{
    const struct weir_http_take_views *views = call->api->views;
    struct weir_diag diag = { 0 };
    int status =
        views ? views->answer(views->context, call->http->request->target,
                              &call->reply->json, &diag, call->now)
              : 0;
    if (status != 0 && status != 200)
        weir_http_take_problem(call->reply, status, diag.text);
    return status != 0;
}

/* The reader is identified by its token; without one, or without credentials in
 * force, by its address. */
static void write_reader(const struct weir_http_take_call *call)
{
    char shown[WEIR_HTTP_VALUE_MAX];
    char *reader = call->http->reader;
    const char *authorization =
        weir_http_header(call->http, "Authorization", shown);
    if (weir_protocol_is_protected(call->api->host) && authorization &&
        authorization[0])
        snprintf(reader, WEIR_HTTP_VALUE_MAX, "%s", authorization);
    else
        weir_http_peer_host(call->http, reader);
}

/* Answers a path that is no route: a view of the page, or 404. */
static void answer_no_route(const struct weir_http_take_call *call)
{
    struct weir_text path = weir_uri_split(call->http->request->target).path;
    bool is_get = weir_text_equal(call->http->method, WEIR_TEXT("GET"));
    if (!is_get || !answer_view(call))
        weir_http_take_problem(
            call->reply, 404,
            "nothing answers at this path; GET /v1 lists those "
            "that do; quotas are edited at a root");
    else if (!call->http->is_head &&
             weir_text_equal(path, WEIR_TEXT(WEIR_PAGE_EVENTS)))
        write_reader(call);
}

/* Whether the request has the route's method. */
static bool has_method(const struct weir_http_take_call *call,
                       const struct route *route)
{
    if (weir_text_equal(call->http->method, weir_text_of(route->method)))
        return true;
    weir_http_take_problem(call->reply, 405, "this path wants another method");
    weir_http_add_header(call->reply, "Allow", "%s%s", route->method,
                         strcmp(route->method, "GET") == 0 ? ", HEAD" : "");
    return false;
}

static bool check_head(void *context, struct weir_http_call *http,
                       weir_instant now)
{
    const struct weir_http_take_call call = make_take_call(context, http, now);
    const struct route *route =
        find_api_route(weir_uri_split(http->request->target).path);
    /* A browser that opens the page has no credential yet, and the page's files
     * hold no data of the limiter. */
    if (call.api->views && weir_http_file(http))
        return false;
    if ((!(route && route->is_open) && !is_admitted(&call)) ||
        (route && !has_method(&call, route)))
        return false;
    /* Memory for bodies is for peers with a role. */
    bool has_no_body = route && route->is_open;
    size_t most = has_no_body ? 0 : WEIR_HTTP_TAKE_BODY_MAX;
    if (http->request->content_length <= most)
        return true;
    const char *why = has_no_body ? "a request of this path has no body"
                                  : "a body has 64 KiB at most";
    if (route && route->limit) {
        route->limit(&call, why);
        return false;
    }
    weir_protocol_note(call.api->host, WEIR_PROTOCOL_HTTP,
                       WEIR_PROTOCOL_INVALID, weir_conn_peer(call.http->conn),
                       why);
    weir_http_take_problem(call.reply, 413, why);
    return false;
}

/* Parses the body, and passes it on; if it is no JSON, the reply is a
 * problem. */
static void answer_json(const struct weir_http_take_call *call,
                        answer_fn *answer)
{
    struct weir_text body = call->http->body;
    json_error_t error;
    json_t *asked = weir_json_read(body, JSON_REJECT_DUPLICATES, &error);
    if (asked) {
        answer(call, asked);
        json_decref(asked);
        return;
    }
    if (!error.text[0]) {
        refuse_without_memory(call);
        return;
    }
    char text[JSON_ERROR_TEXT_LENGTH + 64];
    snprintf(text, sizeof text, "the body is no JSON: line %d, column %d: %s",
             error.line, error.column, error.text);
    weir_protocol_note(call->api->host, WEIR_PROTOCOL_HTTP,
                       WEIR_PROTOCOL_INVALID, weir_conn_peer(call->http->conn),
                       text);
    weir_http_take_problem(call->reply, 400, text);
}

static void answer_request(void *context, struct weir_http_call *http,
                           weir_instant now)
{
    const struct weir_http_take_call call = make_take_call(context, http, now);
    const struct route *route =
        find_api_route(weir_uri_split(http->request->target).path);
    if (!route)
        answer_no_route(&call);
    else if (route->answer)
        answer_json(&call, route->answer);
    else
        route->write(&call);
    /* A client that holds a permit may be silent meanwhile. */
    weir_conn_set_quiet(http->conn, call.visitor->permits.count > 0);
}

/* ---- Life ---- */

int weir_http_take_new(const struct weir_protocol_host *host,
                       const struct weir_listen_address *place,
                       struct weir_rls_service *service,
                       const struct weir_http_take_views *views,
                       struct weir_http_take **out, struct weir_diag *diag)
{
    weir_assert(host && service);
    struct weir_http_take *api = calloc(1, sizeof *api);
    if (!api)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    api->host = host;
    api->service = service;
    api->views = views;
    const struct weir_http_options options = {
        .conns = { .base = host->base,
                   .place = *place,
                   .tls = host->tls,
                   .on_short = host->on_short,
                   .max = weir_protocol_conns_max(host),
                   .silence_max = WEIR_HTTP_TAKE_SILENCE_MAX,
                   .unauthenticated_max =
                       weir_protocol_unauthenticated_max(host) },
        .public_origin = host->public_origin,
        .bodies_max = WEIR_HTTP_TAKE_BODIES_MAX,
        .state_size = sizeof(struct weir_http_take_visitor),
        .context = api,
        .on_head = check_head,
        .on_request = answer_request,
        .problem = refuse_request,
        .takes_forms = takes_forms,
        .on_gone = on_visitor_gone,
    };
    int error = weir_http_listener_new(&options, &api->listener, diag);
    if (error < 0) {
        weir_http_take_free(&api);
        return error;
    }
    *out = api;
    return 0;
}

const struct weir_listen_address *weir_http_take_address(
    const struct weir_http_take *api)
{
    return weir_http_listener_address(api->listener);
}

void weir_http_take_recheck(struct weir_http_take *api)
{
    weir_http_listener_doubt(api->listener);
}

void weir_http_take_free(struct weir_http_take **api)
{
    if (!*api)
        return;
    weir_http_listener_free(&(*api)->listener);
    free(*api);
    *api = NULL;
}
