/* SPDX-License-Identifier: MIT
 * io/etcd.c - calls to etcd over any endpoint that answers.
 *
 * Theory of operation. One HTTP/2 connection at a time, to the endpoint
 * 'index'. Endpoints are members of one cluster, so any of them will do. If one
 * fails, the next one is tried without a pause. 'tries' counts the endpoints
 * left since the last answer: after each full round the client pauses.
 *
 *     connect --open--> up --lost, left--> end all calls, next endpoint
 *        ^                                      |
 *        +------- at once, or after a pause ----+
 *
 * A call is a slot in a short table, found by its HTTP/2 stream. Exactly one
 * finish_etcd_call() empties each filled slot, except for a cancelled call.
 * Each keep-alive is a call of its own, half-closed after its one message,
 * although etcd offers a stream of them: a late answer thus can't be taken for
 * another's. */

#include "io/etcd.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "io/clock.h"
#include "io/h2_link.h"

#define BACKOFF_FIRST (100 * 1000000ull)
#define PAUSE_MOST (2 * WEIR_SECOND)

struct slot {
    bool is_used;
    int32_t stream;
    enum weir_etcd_type type;
    weir_instant due; /* 0: never */
    weir_etcd_outcome_fn *on_outcome;
    void *context;
};

struct endpoint {
    struct weir_address address;
    char text[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    bool is_told; /* the file's error has been reported */
};

struct weir_etcd {
    struct event_base *base;
    struct weir_etcd_handler handler;
    weir_duration patience;
    weir_duration pause_most;
    struct endpoint endpoints[WEIR_ETCD_ENDPOINTS_MAX];
    uint32_t count;
    uint32_t index;
    uint32_t tries; /* endpoints left since the last answer */
    weir_duration backoff;
    struct weir_rng rng;
    struct weir_login *login;  /* owned, as all below */
    struct weir_h2_link *link; /* NULL: in a pause */
    bool is_up;
    struct event *retry;
    struct event *timer; /* for the calls' deadlines */
    struct slot slots[WEIR_ETCD_CALLS_MAX];
};

/* ---- Endpoints ---- */

static int parse_endpoint(struct weir_text text, struct weir_address *out,
                          struct weir_diag *diag)
{
    struct weir_text plain = WEIR_TEXT("http://");
    struct weir_text tls = WEIR_TEXT("https://");
    if (text.len > tls.len && memcmp(text.p, tls.p, tls.len) == 0)
        return weir_diag_put(
            diag, WEIR_EINVAL,
            "write an endpoint of etcd as HOST:PORT, and name a CA to trust "
            "for TLS");
    if (text.len > plain.len && memcmp(text.p, plain.p, plain.len) == 0) {
        text.p += plain.len;
        text.len -= plain.len;
    }
    int error = weir_address_parse(text, out, diag);
    if (error == 0 && out->port == 0)
        error = weir_diag_put(diag, WEIR_EINVAL,
                              "an endpoint of etcd needs a port");
    return error;
}

int weir_etcd_endpoints_parse(struct weir_text text,
                              struct weir_address out[WEIR_ETCD_ENDPOINTS_MAX],
                              uint32_t *out_count, struct weir_diag *diag)
{
    uint32_t count = 0;
    const char *end = text.p + text.len;
    for (const char *p = text.p; p <= end; count++) {
        if (count == WEIR_ETCD_ENDPOINTS_MAX)
            return weir_diag_put(diag, WEIR_EINVAL,
                                 "more than 16 endpoints of etcd");
        const char *comma = memchr(p, ',', (size_t)(end - p));
        if (!comma)
            comma = end;
        struct weir_text one = { p, (size_t)(comma - p) };
        int error = parse_endpoint(one, &out[count], diag);
        if (error < 0)
            return error;
        p = comma + 1;
    }
    *out_count = count;
    return 0;
}

const char *weir_etcd_endpoint(const struct weir_etcd *etcd)
{
    return etcd->endpoints[etcd->index].text;
}

/* ---- Calls ---- */

static struct slot *slot_of_stream(struct weir_etcd *etcd, int32_t stream)
{
    for (size_t i = 0; i < WEIR_ETCD_CALLS_MAX; i++)
        if (etcd->slots[i].is_used && etcd->slots[i].stream == stream)
            return &etcd->slots[i];
    return NULL;
}

static struct slot *free_slot(struct weir_etcd *etcd)
{
    for (size_t i = 0; i < WEIR_ETCD_CALLS_MAX; i++)
        if (!etcd->slots[i].is_used)
            return &etcd->slots[i];
    return NULL;
}

/* Reports the end of a call; its slot is free before the report. */
static void finish_etcd_call(struct slot *slot, int status, const char *message)
{
    weir_assert(slot->is_used && slot->on_outcome);
    struct slot ended = *slot;
    slot->is_used = false;
    struct weir_etcd_outcome outcome = {
        .is_over = true,
        .status = status,
        .message = message ? message : "",
    };
    ended.on_outcome(ended.context, &outcome);
}

static void finish_all(struct weir_etcd *etcd, int status, const char *why)
{
    for (size_t i = 0; i < WEIR_ETCD_CALLS_MAX; i++)
        if (etcd->slots[i].is_used)
            finish_etcd_call(&etcd->slots[i], status, why);
}

static void set_etcd_timer(struct event *event, weir_duration delay)
{
    struct timeval time = weir_timeval_of(delay);
    (void)evtimer_add(event, &time);
}

/* Sets the timer to the next deadline. */
static void set_deadline(struct weir_etcd *etcd)
{
    weir_instant due = WEIR_NEVER;
    for (size_t i = 0; i < WEIR_ETCD_CALLS_MAX; i++) {
        const struct slot *slot = &etcd->slots[i];
        if (slot->is_used && slot->due != 0 && slot->due < due)
            due = slot->due;
    }
    weir_instant now = weir_clock_now();
    if (due != WEIR_NEVER)
        set_etcd_timer(etcd->timer, due > now ? due - now + 1000 : 0);
}

static void on_deadline(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_etcd *etcd = context;
    weir_instant now = weir_clock_now();
    for (size_t i = 0; i < WEIR_ETCD_CALLS_MAX; i++) {
        struct slot *slot = &etcd->slots[i];
        if (!slot->is_used || slot->due == 0 || slot->due > now)
            continue;
        if (etcd->link)
            weir_h2_reset(weir_h2_link_h2(etcd->link), slot->stream);
        finish_etcd_call(slot, WEIR_GRPC_DEADLINE_EXCEEDED,
                         "no answer in time");
    }
    if (etcd->link)
        weir_h2_link_flush(etcd->link);
    set_deadline(etcd);
}

/* Begins the call on the open connection. Returns its stream, or an error. */
static int32_t begin_etcd_call(struct weir_etcd *etcd,
                               const struct weir_etcd_ask *ask)
{
    struct weir_h2 *h2 = weir_h2_link_h2(etcd->link);
    int32_t stream = weir_h2_call(h2, weir_etcd_path(ask->type),
                                  weir_etcd_endpoint(etcd), NULL);
    if (stream < 0)
        return stream;
    struct weir_etcd_bytes bytes;
    weir_etcd_encode(ask, &bytes);
    int error = weir_h2_send(h2, stream, bytes.p, bytes.len,
                             ask->type != WEIR_ETCD_WATCH);
    if (error < 0) {
        weir_h2_reset(h2, stream);
        return error;
    }
    weir_h2_link_flush(etcd->link);
    return stream;
}

int weir_etcd_call(struct weir_etcd *etcd, const struct weir_etcd_call *call)
{
    if (!etcd->is_up)
        return WEIR_ECLOSED;
    struct slot *slot = free_slot(etcd);
    if (!slot)
        return WEIR_EFULL;
    int32_t stream = begin_etcd_call(etcd, &call->ask);
    if (stream == WEIR_ECLOSED) /* the connection accepts no more calls:
                                 * on_etcd_retry() */
        set_etcd_timer(etcd->retry, 0);
    if (stream < 0)
        return stream;
    *slot = (struct slot){
        .is_used = true,
        .stream = stream,
        .type = call->ask.type,
        .due = weir_clock_now() + call->patience,
        .on_outcome = call->on_outcome,
        .context = call->context,
    };
    set_deadline(etcd);
    return WEIR_OK;
}

/* ---- The connection ---- */

static weir_duration next_pause(struct weir_etcd *etcd)
{
    if (etcd->backoff > etcd->pause_most)
        etcd->backoff = etcd->pause_most;
    weir_duration half = etcd->backoff / 2;
    etcd->backoff *= 2;
    return half + weir_rng_below(&etcd->rng, half + 1);
}

static void drop_etcd_link(struct weir_etcd *etcd, const char *why)
{
    struct endpoint *endpoint = &etcd->endpoints[etcd->index];
    char text[WEIR_LISTEN_ADDRESS_TEXT_MAX + 200];
    snprintf(text, sizeof text, "etcd %s: %.180s", endpoint->text, why);
    bool is_news = !endpoint->is_told;
    endpoint->is_told = true;
    etcd->is_up = false;
    weir_h2_link_close(&etcd->link);
    finish_all(etcd, WEIR_GRPC_UNAVAILABLE, text);

    weir_assert(!etcd->link && !etcd->is_up);
    etcd->index = (etcd->index + 1) % etcd->count;
    bool in_vain = ++etcd->tries % etcd->count == 0;
    set_etcd_timer(etcd->retry, in_vain ? next_pause(etcd) : 0);
    etcd->handler.on_down(etcd->handler.context, is_news ? text : NULL);
}

static void note_etcd_well(struct weir_etcd *etcd)
{
    etcd->tries = 0;
    etcd->backoff = BACKOFF_FIRST;
    for (uint32_t i = 0; i < etcd->count; i++)
        etcd->endpoints[i].is_told = false;
}

/* One read may hold bytes behind those after which the link was dropped. */
static bool is_former_session(const struct weir_etcd *etcd,
                              const struct weir_h2 *h2)
{
    return !etcd->link || weir_h2_link_h2(etcd->link) != h2;
}

static void on_etcd_message(void *context, struct weir_h2 *h2, int32_t stream,
                            const void *bytes, size_t len)
{
    struct weir_etcd *etcd = context;
    struct slot *slot = slot_of_stream(etcd, stream);
    if (is_former_session(etcd, h2) || !slot)
        return;
    struct weir_etcd_answer answer;
    if (weir_etcd_decode(slot->type, bytes, len, &answer) < 0) {
        weir_h2_reset(h2, stream);
        finish_etcd_call(slot, WEIR_GRPC_INTERNAL,
                         "its answer can't be understood");
        return;
    }
    note_etcd_well(etcd);
    bool is_watch = slot->type == WEIR_ETCD_WATCH;
    struct slot answered = *slot;
    struct weir_etcd_outcome outcome = {
        .is_over = !is_watch || answer.canceled,
        .status = WEIR_GRPC_OK,
        .message = "",
        .answer = &answer,
    };
    slot->due = 0;
    if (outcome.is_over)
        slot->is_used = false;
    if (answer.canceled)
        weir_h2_reset(h2, stream);
    answered.on_outcome(answered.context, &outcome);
}

static void on_etcd_close(void *context, struct weir_h2 *h2, int32_t stream,
                          int grpc_status, const char *message)
{
    struct weir_etcd *etcd = context;
    struct slot *slot = slot_of_stream(etcd, stream);
    if (is_former_session(etcd, h2) || !slot)
        return;
    finish_etcd_call(slot, grpc_status, message);
}

static void on_etcd_open(void *context, struct weir_h2_link *link)
{
    (void)link;
    struct weir_etcd *etcd = context;
    weir_assert(etcd->link && !etcd->is_up);
    etcd->is_up = true;
    etcd->handler.on_up(etcd->handler.context);
}

static void on_etcd_lost(void *context, struct weir_h2_link *link,
                         const char *why)
{
    (void)link;
    drop_etcd_link(context, why);
}

bool weir_etcd_is_up(const struct weir_etcd *etcd)
{
    return etcd->is_up && !weir_h2_link_is_lost(etcd->link);
}

void weir_etcd_leave(struct weir_etcd *etcd, const char *why)
{
    if (etcd->link)
        drop_etcd_link(etcd, why);
}

static int open_etcd_link(struct weir_etcd *etcd, struct weir_tls *tls)
{
    weir_assert(!etcd->link);
    struct weir_stream_handler none = { 0 };
    struct weir_h2_link_handler handler = {
        .context = etcd,
        .calls = { .context = etcd,
                   .on_message = on_etcd_message,
                   .on_close = on_etcd_close },
        .on_open = on_etcd_open,
        .on_lost = on_etcd_lost,
    };
    struct weir_stream *stream =
        weir_stream_connect(etcd->base, &etcd->endpoints[etcd->index].address,
                            tls, etcd->patience, &none);
    if (stream)
        etcd->link = weir_h2_link_new(stream, false, &handler);
    return etcd->link ? 0 : WEIR_ENOMEM;
}

static void on_etcd_retry(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_etcd *etcd = context;
    if (etcd->link) {
        drop_etcd_link(etcd, "it is about to end the connection");
        return;
    }
    struct weir_tls *tls;
    struct weir_diag diag = { .text = "" };
    int error = weir_login_tls(etcd->login, &tls, &diag);
    if (error > 0)
        etcd->handler.on_file(etcd->handler.context, diag.text);
    if (error >= 0)
        error = open_etcd_link(etcd, tls);
    if (error < 0)
        drop_etcd_link(etcd, diag.text[0] ? diag.text : weir_strerror(error));
}

/* ---- Life ---- */

int weir_etcd_new(const struct weir_etcd_options *options,
                  struct weir_etcd **out, struct weir_diag *diag)
{
    weir_assert(options->count > 0 &&
                options->count <= WEIR_ETCD_ENDPOINTS_MAX);
    struct weir_login_options files = options->login;
    files.token_file = NULL;
    int error = weir_login_check(&files, diag);
    if (error < 0)
        return error;
    struct weir_etcd *etcd = calloc(1, sizeof *etcd);
    if (!etcd)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    etcd->base = options->base;
    etcd->handler = options->handler;
    etcd->patience = options->patience;
    etcd->pause_most = options->pause ? options->pause : PAUSE_MOST;
    etcd->count = options->count;
    etcd->backoff = BACKOFF_FIRST;
    for (uint32_t i = 0; i < options->count; i++) {
        etcd->endpoints[i].address = options->endpoints[i];
        weir_address_text(&options->endpoints[i], etcd->endpoints[i].text);
    }
    weir_entropy(&etcd->rng, sizeof etcd->rng);
    etcd->login = weir_login_new(&files);
    etcd->retry = evtimer_new(options->base, on_etcd_retry, etcd);
    etcd->timer = evtimer_new(options->base, on_deadline, etcd);
    if (!etcd->login || !etcd->retry || !etcd->timer) {
        weir_etcd_free(&etcd);
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    }
    set_etcd_timer(etcd->retry, 0);
    *out = etcd;
    return 0;
}

void weir_etcd_free(struct weir_etcd **etcd)
{
    struct weir_etcd *self = *etcd;
    if (!self)
        return;
    *etcd = NULL;
    self->is_up = false;
    finish_all(self, WEIR_GRPC_CANCELLED, "");
    weir_h2_link_close(&self->link);
    if (self->retry)
        event_free(self->retry);
    if (self->timer)
        event_free(self->timer);
    weir_login_free(&self->login);
    free(self);
}

bool weir_etcd_is_refusal(int status)
{
    return weir_etcd_advice(status)[0] != '\0';
}

const char *weir_etcd_advice(int status)
{
    switch (status) {
    case WEIR_GRPC_UNAUTHENTICATED:
    case WEIR_GRPC_PERMISSION_DENIED:
    case WEIR_GRPC_INVALID_ARGUMENT:
        return ": etcd demands a client certificate: name one of a common "
               "name that is an etcd user that may read and write the key";
    case WEIR_GRPC_RESOURCE_EXHAUSTED:
        return ": etcd is out of space or throttles: compact and "
               "defragment it, then disarm its alarm";
    case WEIR_GRPC_UNIMPLEMENTED:
        return ": is this etcd 3.4 or later? (v2 isn't spoken)";
    default: /* of a number, not of an enum */
        return "";
    }
}
