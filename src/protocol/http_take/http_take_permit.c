/* SPDX-License-Identifier: MIT
 * protocol/http_take/http_take_permit.c - POST /v1/enter and /v1/leave:
 * permits over HTTP.
 *
 *     {"name": "db", "weight": 2, "class": "bulk"}    -> {…, "permit": 7}
 *     {"permit": 7, "outcome": "success"}             -> {"left": true}
 *
 * A permit belongs to its connection: when a client dies its connections
 * end, and its permits are given back at once. No keep-alive requests are
 * needed, and no timeout takes a live client for dead. A permit's number is
 * invalid on another connection.
 *
 * A proxy may send requests of several takers on one connection. Therefore a
 * permit stores its taker, and only that taker can give it back before the
 * connection ends.
 *
 * An enter that holds nothing (a quota of kind rate, or none) gets no
 * number. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "protocol/http_take/http_take_internal.h"

#define ROOM_FIRST 8

struct weir_http_take_record {
    uint64_t number; /* 0: free */
    uint64_t owner;  /* owner_of() its taker */
    struct weir_permit permit;
};

/* The taker's identity, hashed. The operator chooses identities, so clients
 * can't make two collide. Without credentials in force all takers have the same
 * identity. */
static uint64_t owner_of(const struct weir_protocol_taker *taker)
{
    return weir_hash(weir_text_of(taker->identity), 0);
}

/* ---- Permits of a connection ---- */

static struct weir_http_take_record *find_record(
    struct weir_http_take_permits *permits, uint64_t number)
{
    for (size_t i = 0; i < permits->room; i++)
        if (permits->held[i].number == number)
            return &permits->held[i];
    return NULL;
}

static struct weir_http_take_record *find_room(
    struct weir_http_take_permits *permits)
{
    size_t room = permits->room ? 2 * permits->room : ROOM_FIRST;
    if (permits->count < permits->room)
        return find_record(permits, 0);
    if (room > WEIR_HTTP_TAKE_PERMITS_MAX)
        return NULL;
    struct weir_http_take_record *held =
        realloc(permits->held, room * sizeof(*permits->held));
    if (!held)
        return NULL;
    memset(held + permits->room, 0,
           (room - permits->room) * sizeof(*permits->held));
    permits->held = held;
    permits->room = room;
    weir_assert(permits->count < room && room <= WEIR_HTTP_TAKE_PERMITS_MAX);
    return find_record(permits, 0);
}

static void leave_record(struct weir_http_take_permits *permits,
                         struct weir_http_take_record *held,
                         enum weir_permit_outcome outcome, weir_instant now)
{
    weir_assert(held->number != 0 && permits->count > 0);
    weir_leave(&held->permit, outcome, now);
    held->number = 0;
    permits->count--;
}

/* The outcome is unknown when the connection has ended. */
void weir_http_take_permits_end(struct weir_http_take_permits *permits)
{
    for (size_t i = 0; i < permits->room; i++)
        if (permits->held[i].number != 0)
            leave_record(permits, &permits->held[i], WEIR_PERMIT_IGNORED, 0);
    weir_assert(permits->count == 0);
    free(permits->held);
    *permits = (struct weir_http_take_permits){ .held = NULL };
}

/* ---- Enter ---- */

static bool holds_units(const struct weir_permit *permit)
{
    static const struct weir_permit nothing;
    return memcmp(permit, &nothing, sizeof nothing) != 0;
}

/* Takes "class" out of 'from'; 0, or the reply is a problem. */
static int read_class(const struct weir_http_take_call *call, json_t *from,
                      uint32_t *out)
{
    json_t *klass = json_object_get(from, "class");
    if (klass && !json_is_string(klass))
        return weir_http_take_refuse(call, "a class is a text");
    size_t len = json_string_length(klass);
    *out = len > 0 ? weir_class(json_string_value(klass), len) : 0;
    (void)json_object_del(from, "class");
    return 0;
}

static int read_enter(const struct weir_http_take_call *call, json_t *from,
                      struct weir_protocol_request *out, uint32_t *out_class)
{
    if (read_class(call, from, out_class) < 0 ||
        weir_http_take_read_request(call, from, out) < 0)
        return -1;
    return out->peek ? weir_http_take_refuse(call, "to peek is of /v1/take")
                     : 0;
}

static void enter_permit(const struct weir_http_take_call *call, json_t *from)
{
    struct weir_http_take_permits *permits = &call->visitor->permits;
    struct weir_protocol_request ask;
    struct weir_permit permit;
    struct weir_reply reply;
    struct weir_diag diag = { 0 };
    uint32_t klass = 0;
    if (read_enter(call, from, &ask, &klass) < 0)
        return;
    struct weir_http_take_record *held = find_room(permits);
    if (!held) {
        weir_http_take_problem(
            call->reply, 503,
            "this connection holds 1024 permits: open another");
        return;
    }
    int error = weir_protocol_enter(call->api->host, &ask, klass, &permit,
                                    &reply, &diag, call->now);
    if (error < 0) {
        weir_http_take_refuse_error(call, error, diag.text);
        return;
    }
    weir_http_take_write_reply(call, &reply, false);
    if (!holds_units(&permit))
        return;
    weir_assert(held->number == 0 && permits->count < permits->room);
    *held = (struct weir_http_take_record){ .number = ++permits->last,
                                            .owner =
                                                owner_of(&call->visitor->taker),
                                            .permit = permit };
    permits->count++;
    json_object_set_new(call->reply->json, "permit",
                        json_integer((json_int_t)held->number));
}

/* A client that holds a permit may be silent meanwhile. */
static void set_quiet(const struct weir_http_take_call *call)
{
    weir_conn_set_quiet(call->http->conn, call->visitor->permits.count > 0);
}

void weir_http_take_enter(const struct weir_http_take_call *call)
{
    json_t *asked = weir_http_take_read_json(call);
    if (asked)
        enter_permit(call, asked);
    json_decref(asked);
    set_quiet(call);
}

/* ---- Leave ---- */

static bool read_outcome(json_t *from, enum weir_permit_outcome *out)
{
    static const char *const words[] = {
        [WEIR_PERMIT_SUCCESS] = "success",
        [WEIR_PERMIT_DROPPED] = "dropped",
        [WEIR_PERMIT_IGNORED] = "ignored",
    };
    const char *word = json_string_value(from);
    *out = WEIR_PERMIT_SUCCESS;
    if (!from)
        return true;
    for (size_t i = 0; word && i < WEIR_COUNT_OF(words); i++) {
        if (strcmp(words[i], word) == 0) {
            *out = (enum weir_permit_outcome)i;
            return true;
        }
    }
    return false;
}

static void leave_permit(const struct weir_http_take_call *call, json_t *from)
{
    struct weir_http_take_permits *permits = &call->visitor->permits;
    json_t *number = json_object_get(from, "permit");
    json_t *said = json_object_get(from, "outcome");
    enum weir_permit_outcome outcome;
    bool good = json_is_integer(number) && json_integer_value(number) > 0 &&
                json_object_size(from) == 1u + (said != NULL);
    if (!good || !read_outcome(said, &outcome)) {
        weir_http_take_problem(
            call->reply, 400,
            "a leave has a permit, which is a number, and may "
            "have an outcome: success, dropped or ignored");
        return;
    }
    struct weir_http_take_record *held =
        find_record(permits, (uint64_t)json_integer_value(number));
    if (!held || held->owner != owner_of(&call->visitor->taker)) {
        weir_http_take_problem(
            call->reply, 404,
            "this connection holds no such permit: it was given "
            "back, or is of another connection or credential");
        return;
    }
    leave_record(permits, held, outcome, call->now);
    call->reply->json = json_pack("{s:b}", "left", 1);
}

void weir_http_take_leave(const struct weir_http_take_call *call)
{
    json_t *asked = weir_http_take_read_json(call);
    if (asked)
        leave_permit(call, asked);
    json_decref(asked);
    set_quiet(call);
}
