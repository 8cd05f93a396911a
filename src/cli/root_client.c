/* SPDX-License-Identifier: MIT
 * cli/root_client.c - one request of a command at a time, on a loop that runs
 * until it is answered.
 *
 * All roots share a store, so any of them can answer. The client uses the first
 * that it can reach, and keeps it. A request that only reads goes on to the
 * next root after any error; an edit does so only if no connection was made,
 * because a root that went silent may have made it. */

#include "cli/root_client.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codec/weir_v1.h"
#include "core/quota/quota.h"
#include "front/http_problem.h"
#include "front/uri.h"
#include "io/clock.h"
#include "io/h2_link.h"
#include "io/name_lookup.h"
#include "server/admin/admin.h"

#define CONNECT_TIMEOUT (2 * WEIR_SECOND) /* for each root */
#define ANSWER_TIMEOUT_S 120              /* for an answer */
#define REPLY_MAX (256u << 20)            /* bytes */
#define HTTP_CREATED 201
#define CHUNK (1u << 20) /* bytes of a body in one message */
#define READY_PAUSE (20 * (long)WEIR_MILLISECOND) /* between two asks */

struct root {
    struct weir_address address;
    char host[256]; /* that its certificate must be for */
    char name[300];
    char why[160]; /* why the request failed */
    bool refused;  /* … because the handshake of TLS failed */
};

struct weir_root_client {
    struct event_base *base;   /* owned */
    struct weir_login *login;  /* owned */
    struct weir_h2_link *link; /* owned; NULL: none */
    struct root roots[WEIR_ROOTS_MAX];
    size_t count;
    size_t current;
    bool only;
    bool opened; /* 'link' was connected */
    bool lost;

    /* The request. */
    int32_t call;
    struct weir_text method, path, body; /* borrowed */
    size_t sent;                         /* bytes of the body */
    bool sent_all;
    bool done;
    bool timed_out;
    int grpc_status;
    uint32_t status;
    char *reply; /* owned */
    size_t reply_len;
    bool too_big;
    char message[160]; /* from the trailers */
};

/* ---- The link's callbacks ---- */

static void send_body(struct weir_root_client *c)
{
    weir_assert(c->sent <= c->body.len);
    struct weir_h2 *h2 = weir_h2_link_h2(c->link);
    while (!c->sent_all && !weir_h2_link_is_full(c->link)) {
        size_t left = c->body.len - c->sent;
        size_t chunk = left < CHUNK ? left : CHUNK;
        struct weir_call_request part = { c->method,
                                          c->path,
                                          { c->body.p + c->sent, chunk } };
        size_t size = weir_v1_request_size(&part);
        void *bytes = malloc(size);
        bool last = chunk == left;
        if (!bytes || weir_v1_request_encode(&part, bytes, size) != size ||
            weir_h2_send(h2, c->call, bytes, size, last) < 0)
            c->lost = true;
        free(bytes);
        c->sent += chunk;
        weir_assert(c->sent <= c->body.len);
        c->sent_all = last || c->lost;
    }
    weir_h2_link_flush(c->link);
}

static void on_reply_part(void *context, struct weir_h2 *h2, int32_t stream,
                          const void *bytes, size_t len)
{
    (void)h2;
    (void)stream;
    struct weir_root_client *c = context;
    struct weir_call_reply part;
    if (weir_v1_reply_decode(bytes, len, &part) < 0 ||
        c->reply_len + part.body.len > REPLY_MAX) {
        c->too_big = true;
        return;
    }
    c->status = part.status;
    char *reply = realloc(c->reply, c->reply_len + part.body.len + 1);
    if (!reply) {
        c->too_big = true;
        return;
    }
    c->reply = reply;
    if (part.body.len > 0)
        memcpy(reply + c->reply_len, part.body.p, part.body.len);
    c->reply_len += part.body.len;
}

static void on_call_close(void *context, struct weir_h2 *h2, int32_t stream,
                          int grpc_status, const char *message)
{
    (void)h2;
    struct weir_root_client *c = context;
    if (stream != c->call)
        return;
    c->done = true;
    c->grpc_status = grpc_status;
    snprintf(c->message, sizeof c->message, "%s", message ? message : "");
}

static void on_root_open(void *context, struct weir_h2_link *link)
{
    (void)link;
    struct weir_root_client *c = context;
    c->opened = true;
}

static void on_root_drain(void *context, struct weir_h2_link *link)
{
    (void)link;
    send_body(context);
}

static void on_root_lost(void *context, struct weir_h2_link *link,
                         const char *why)
{
    struct weir_root_client *c = context;
    c->lost = true;
    c->roots[c->current].refused = weir_h2_link_is_refused(link);
    c->opened &= !weir_h2_link_is_refused(link);
    snprintf(c->roots[c->current].why, sizeof c->roots[0].why, "%s", why);
}

/* ---- One root ---- */

static bool connect_root(struct weir_root_client *c, struct weir_diag *diag)
{
    if (c->link)
        return true;
    struct weir_h2_link_handler handler = {
        .context = c,
        .calls = { .context = c,
                   .on_message = on_reply_part,
                   .on_close = on_call_close },
        .on_open = on_root_open,
        .on_drain = on_root_drain,
        .on_lost = on_root_lost,
    };
    c->opened = c->lost = false;
    struct weir_tls *tls;
    if (weir_login_tls(c->login, &tls, diag) < 0)
        return false;
    struct root *root = &c->roots[c->current];
    struct weir_stream *stream = weir_stream_connect_as(
        c->base, &root->address, root->host, tls, CONNECT_TIMEOUT,
        &(struct weir_stream_handler){ 0 });
    if (stream)
        c->link = weir_h2_link_new(stream, false, &handler);
    return c->link;
}

static void on_timeout(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_root_client *c = context;
    c->timed_out = true;
}

static void run_until_answer(struct weir_root_client *c)
{
    struct timeval in = { .tv_sec = ANSWER_TIMEOUT_S };
    struct event *timeout = event_new(c->base, -1, 0, on_timeout, c);
    c->timed_out = !timeout || event_add(timeout, &in) < 0;
    while (!c->done && !c->lost && !c->timed_out && !c->too_big)
        if (event_base_loop(c->base, EVLOOP_ONCE) != 0)
            c->lost = true;
    if (timeout)
        event_free(timeout);
}

/* False: the credentials can't be read; the root's 'why' has the reason. */
static bool begin_root_call(struct weir_root_client *c)
{
    struct root *root = &c->roots[c->current];
    struct weir_diag diag = { 0 };
    char authorization[WEIR_H2_AUTHORIZATION_MAX + 1];
    if (weir_login_authorization(c->login, authorization, &diag) < 0) {
        snprintf(root->why, sizeof root->why, "%.*s", (int)sizeof root->why - 1,
                 diag.text);
        return false;
    }
    c->call = weir_h2_call(weir_h2_link_h2(c->link), WEIR_V1_CALL, root->name,
                           authorization[0] ? authorization : NULL);
    explicit_bzero(authorization, sizeof authorization);
    return c->call > 0;
}

static void send_first_part(struct weir_root_client *c)
{
    weir_assert(c->link);
    c->sent = 0;
    c->sent_all = c->done = c->too_big = false;
    c->reply_len = 0;
    c->status = 0;
    c->message[0] = '\0';
    c->roots[c->current].why[0] = '\0';
    if (!begin_root_call(c)) {
        c->lost = true;
        return;
    }
    send_body(c);
}

/* Whether the root answered; if not, its 'why' has the reason. */
static bool request_root(struct weir_root_client *c)
{
    struct root *root = &c->roots[c->current];
    struct weir_diag diag = { .text = "out of memory" };
    if (!connect_root(c, &diag)) {
        snprintf(root->why, sizeof root->why, "%.*s", (int)sizeof root->why - 1,
                 diag.text);
        return false;
    }
    send_first_part(c);
    if (!c->lost)
        run_until_answer(c);
    bool answered = c->done && c->grpc_status == WEIR_GRPC_OK && c->status;
    if (answered)
        return true;
    if (!root->why[0])
        snprintf(root->why, sizeof root->why, "%s",
                 c->timed_out    ? "it doesn't answer in time"
                 : c->too_big    ? "its answer is too big or isn't Weir's"
                 : c->message[0] ? c->message
                                 : "the connection ended");
    weir_h2_link_close(&c->link);
    return false;
}

/* ---- All roots ---- */

static int refuse_all(struct weir_root_client *c, struct weir_diag *diag)
{
    char list[WEIR_DIAG_MAX] = "";
    size_t len = 0;
    bool refused = true;
    for (size_t i = 0; i < c->count && len < sizeof list; i++) {
        if (c->only && i != c->current)
            continue;
        refused = refused && c->roots[i].refused;
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s (%s)",
                                len ? ", " : "", c->roots[i].name,
                                c->roots[i].why);
    }
    if (refused)
        return weir_diag_set(
            diag, WEIR_ECONNECT, "no root admits this client at ", list,
            "; look at --tls-ca, --tls-cert and --tls-key", NULL);
    return weir_diag_set(
        diag, WEIR_ECONNECT, "no root answers at ", list,
        "; start one with `weir serve` or name others with --roots", NULL);
}

static int refuse_half(struct weir_root_client *c, struct weir_diag *diag)
{
    const struct root *root = &c->roots[c->current];
    return weir_diag_set(
        diag, WEIR_ECONNECT, "the root at ", root->name,
        c->timed_out ? " may yet do it (" : " went away before it answered (",
        root->why, "); look whether the change was made before you repeat it",
        NULL);
}

/* Whether the root is there, and refused the call itself. */
static bool was_refused(const struct weir_root_client *c)
{
    return c->done && !c->lost && c->grpc_status != WEIR_GRPC_OK &&
           c->grpc_status != WEIR_GRPC_UNAVAILABLE;
}

static int refuse_call(struct weir_root_client *c, struct weir_diag *diag)
{
    const char *said = c->roots[c->current].why;
    if (c->grpc_status == WEIR_GRPC_UNAUTHENTICATED)
        return weir_diag_put(diag, WEIR_ECREDENTIAL, said);
    if (c->grpc_status == WEIR_GRPC_PERMISSION_DENIED)
        return weir_diag_put(diag, WEIR_EDENIED, said);
    return weir_diag_set(
        diag, WEIR_EPROTOCOL, "what answers at ", c->roots[c->current].name,
        " doesn't take the request (", c->roots[c->current].why,
        "); is it a root of Weir, of this version?", NULL);
}

/* Reads the error of a root that couldn't fulfil a request. */
static int read_problem(struct weir_root_client *c, json_t *answer,
                        struct weir_diag *diag)
{
    weir_assert(c->status >= 400);
    const char *detail = json_string_value(json_object_get(answer, "detail"));
    const char *name = json_string_value(json_object_get(answer, "error"));
    int error = name ? weir_error_named(name) : 0;
    if (error == 0)
        error = WEIR_EPROTOCOL;
    char status[32];
    snprintf(status, sizeof status, "status %u", c->status);
    return weir_diag_put(diag, error, detail ? detail : status);
}

static int read_answer(struct weir_root_client *c, json_t **out,
                       struct weir_diag *diag)
{
    json_error_t why;
    json_t *answer = json_loadb(c->reply ? c->reply : "", c->reply_len,
                                JSON_DECODE_ANY, &why);
    if (!answer)
        return weir_diag_set(diag, WEIR_EPROTOCOL, "the answer of ",
                             c->roots[c->current].name,
                             " isn't JSON: is it a root of Weir?", NULL);
    if (c->status >= 400) {
        int error = read_problem(c, answer, diag);
        json_decref(answer);
        return error;
    }
    *out = answer;
    return 0;
}

static int request_roots(struct weir_root_client *c, json_t **out,
                         struct weir_diag *diag)
{
    weir_assert(c->count > 0 && c->current < c->count);
    bool edit = !weir_text_equal(c->method, WEIR_TEXT("GET"));
    size_t first = c->current;
    size_t tries = c->only ? 1 : c->count;
    int error = 0;
    for (size_t i = 0; i < tries; i++) {
        if (!c->only && c->current != (first + i) % c->count) {
            weir_h2_link_close(&c->link);
            c->current = (first + i) % c->count;
        }
        if (request_root(c)) {
            error = read_answer(c, out, diag);
            if (error != WEIR_ENOTREADY)
                return error;
            continue;
        }
        if (was_refused(c))
            return refuse_call(c, diag);
        if (edit && c->opened)
            return refuse_half(c, diag);
    }
    return error < 0 ? error : refuse_all(c, diag);
}

int weir_root_client_request(struct weir_root_client *c, weir_duration patience,
                             const char *method, const char *path, json_t *body,
                             json_t **out, struct weir_diag *diag)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    if (body && !text)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    if (text && strlen(text) > WEIR_ADMIN_IMPORT_MAX) {
        free(text);
        return weir_diag_put(
            diag, WEIR_ETOOBIG,
            "this is more than 64 MiB at once; import it in parts");
    }
    c->method = weir_text_of(method);
    c->path = weir_text_of(path);
    c->body = weir_text_of(text ? text : "");
    static const struct timespec pause = { .tv_nsec = READY_PAUSE };
    weir_instant end = weir_after(weir_clock_now(), patience);
    for (;;) {
        int error = request_roots(c, out, diag);
        if (error != WEIR_ENOTREADY || weir_clock_now() >= end) {
            free(text);
            return error;
        }
        (void)nanosleep(&pause, NULL);
    }
}

bool weir_root_client_created(const struct weir_root_client *c)
{
    return c->status == HTTP_CREATED;
}

/* ---- Life ---- */

static void put_root(struct weir_root_client *c,
                     const struct weir_address *address, const char *host,
                     struct weir_text name)
{
    struct root *root = &c->roots[c->count++];
    root->address = *address;
    snprintf(root->host, sizeof root->host, "%s", host);
    snprintf(root->name, sizeof root->name, "%.*s", (int)name.len, name.p);
}

struct service {
    struct weir_root_client *client;
    struct weir_address given;
    bool answered;
    char why[160];
};

/* More roots than a client can have aren't used: a command needs one. */
static void on_service_found(void *context, const struct weir_address *found,
                             size_t count, const char *why)
{
    struct service *service = context;
    struct weir_root_client *c = service->client;
    for (size_t i = 0; i < count && c->count < WEIR_ROOTS_MAX; i++) {
        char name[WEIR_LISTEN_ADDRESS_TEXT_MAX];
        weir_address_text(&found[i], name);
        put_root(c, &found[i], weir_address_certified(&service->given),
                 weir_text_of(name));
    }
    snprintf(service->why, sizeof service->why, "%s", why ? why : "");
    service->answered = true;
}

/* Waits for the answer. */
static int add_service(struct weir_root_client *c,
                       const struct weir_address *given, struct weir_diag *diag)
{
    struct service service = { .client = c, .given = *given };
    struct weir_name_lookup *lookup =
        weir_name_lookup_new(c->base, given, on_service_found, &service);
    if (!lookup)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    while (!service.answered && event_base_loop(c->base, EVLOOP_ONCE) == 0)
        ;
    weir_name_lookup_free(&lookup);
    if (service.answered && !service.why[0])
        return 0;
    return weir_diag_set(diag, WEIR_ESYSTEM, "--roots: ", given->host, ": ",
                         service.why, NULL);
}

static int add_root(struct weir_root_client *c, struct weir_text text,
                    struct weir_diag *diag)
{
    struct weir_address address;
    struct weir_diag inner = { 0 };
    if (c->count == WEIR_ROOTS_MAX)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "--roots names more than 8 roots");
    int error = weir_root_address_parse(text, &address, &inner);
    if (error < 0)
        return weir_diag_set(diag, error, "--roots: ", inner.text, NULL);
    if (weir_address_is_service(&address))
        return add_service(c, &address, diag);
    put_root(c, &address, address.host, text);
    return 0;
}

static int add_roots(struct weir_root_client *c, const char *roots,
                     struct weir_diag *diag)
{
    for (const char *at = roots;; at++) {
        size_t len = strcspn(at, ",");
        int error = add_root(c, (struct weir_text){ at, len }, diag);
        at += len;
        if (error < 0 || *at == '\0')
            return error;
    }
}

static int check_client_login(const struct weir_root_client *c,
                              const struct weir_login_options *login,
                              struct weir_diag *diag)
{
    int error = weir_login_check(login, diag);
    for (size_t i = 0; i < c->count && error == 0; i++)
        error = weir_login_check_address(login, &c->roots[i].address, diag);
    return error;
}

struct weir_root_client *weir_root_client_new(const struct weir_cli *cli)
{
    struct weir_diag diag = { 0 };
    struct weir_root_client *c = calloc(1, sizeof *c);
    if (c) {
        c->base = event_base_new();
        c->login = weir_login_new(&cli->login);
    }
    int error = c && c->base && c->login ? 0 : WEIR_ENOMEM;
    if (error < 0)
        weir_diag_put(&diag, error, NULL);
    else
        error = add_roots(c, cli->roots, &diag);
    if (error == 0)
        error = check_client_login(c, &cli->login, &diag);
    if (error == 0)
        return c;
    weir_cli_fail("%s", diag.text);
    weir_root_client_free(&c);
    return NULL;
}

void weir_root_client_free(struct weir_root_client **client)
{
    struct weir_root_client *c = *client;
    *client = NULL;
    if (!c)
        return;
    weir_h2_link_close(&c->link);
    if (c->base) {
        /* The rest of the link's output (GOAWAY) is sent here. */
        event_base_loop(c->base, EVLOOP_NONBLOCK);
        event_base_free(c->base);
    }
    weir_login_free(&c->login);
    free(c->reply);
    free(c);
}

size_t weir_root_client_count(const struct weir_root_client *c)
{
    return c->count;
}

const char *weir_root_client_name(const struct weir_root_client *c, size_t n)
{
    return c->roots[n].name;
}

void weir_root_client_only(struct weir_root_client *c, size_t n)
{
    if (c->current != n)
        weir_h2_link_close(&c->link);
    c->current = n;
    c->only = true;
}

/* ---- For the commands: errors are printed ---- */

int weir_cli_request(struct weir_root_client *client, const char *method,
                     const char *path, json_t *body, json_t **out)
{
    struct weir_diag diag = { 0 };
    if (weir_root_client_request(client, WEIR_CLIENT_READY, method, path, body,
                                 out, &diag) == 0)
        return 0;
    return weir_cli_fail("%s", diag.text);
}

void weir_cli_print_json(json_t *value)
{
    json_dumpf(value, stdout,
               JSON_INDENT(1) | JSON_REAL_PRECISION(12) | JSON_ENCODE_ANY);
    fputc('\n', stdout);
    json_decref(value);
}

json_t *weir_cli_answer(const struct weir_cli *cli, const char *method,
                        const char *path, json_t *body, int *out_status)
{
    struct weir_root_client *client = weir_root_client_new(cli);
    json_t *answer = NULL;
    *out_status = WEIR_EXIT_ERROR;
    if (client)
        *out_status = weir_cli_request(client, method, path, body, &answer);
    weir_root_client_free(&client);
    json_decref(body);
    if (!answer || !cli->json)
        return answer;
    weir_cli_print_json(answer);
    return NULL;
}

const char *weir_cli_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

double weir_cli_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

long long weir_cli_whole(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_real(value) ? (long long)json_real_value(value)
                               : json_integer_value(value);
}

bool weir_cli_is(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

int weir_cli_quota_path(const char *name, const char *query, char *buf)
{
    struct weir_diag diag = { 0 };
    if (weir_name_check(weir_text_of(name), &diag) < 0)
        return weir_cli_fail("%s", diag.text);
    char encoded[3 * WEIR_NAME_MAX];
    int len = weir_uri_encode(weir_text_of(name), encoded, sizeof encoded);
    weir_assert(len > 0);
    snprintf(buf, WEIR_CLI_PATH_MAX, "/v1/quotas/%.*s%s", len, encoded, query);
    return 0;
}

json_t *weir_cli_quota_all(struct weir_root_client *client, const char *path,
                           uint64_t *out_epoch)
{
    json_t *list = json_array();
    char next[WEIR_CLI_PATH_MAX];
    snprintf(next, sizeof next, "%s", path);
    for (;;) {
        json_t *page;
        if (weir_cli_request(client, "GET", next, NULL, &page) != 0) {
            json_decref(list);
            return NULL;
        }
        *out_epoch = (uint64_t)weir_cli_whole(page, "epoch");
        json_array_extend(list, json_object_get(page, "quotas"));
        const char *after = json_string_value(json_object_get(page, "next"));
        if (!after) {
            json_decref(page);
            return list;
        }
        char encoded[3 * WEIR_NAME_MAX];
        int len = weir_uri_encode(weir_text_of(after), encoded, sizeof encoded);
        snprintf(next, sizeof next, "%s%cafter=%.*s", path,
                 strchr(path, '?') ? '&' : '?', len > 0 ? len : 0, encoded);
        json_decref(page);
    }
}

json_t *weir_cli_by_name(const json_t *list)
{
    size_t index;
    json_t *quota;
    json_t *by_name = json_object();
    json_array_foreach(list, index, quota)
        json_object_set(by_name, weir_cli_text(quota, "name"), quota);
    return by_name;
}
