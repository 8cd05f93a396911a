/* SPDX-License-Identifier: MIT
 * protocol/resp/resp_command.c - executes the commands of a Redis client: those
 * of a session, and those that decide.
 *
 * Commands that client libraries send to any server besides their work: those
 * with a meaning here are answered as redis-server 7 does, others with its
 * error. resp_session.c has those about the client itself.
 *
 * CL.THROTTLE answers what redis-cell answers, errors included: five numbers
 * (limited, limit, remaining, seconds to wait, seconds until all is free).
 * WEIR.TAKE and WEIR.PEEK answer four: 0 or 1 if limited; units that would
 * still pass; milliseconds to wait, 0 if passed, -1 if never; and the quota
 * that decided, "" if none did. WEIR.CHARGE and WEIR.SETTLE answer the units
 * that are charged for the work now: no other than before if the name has no
 * quota. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/quota/throttle_name.h"
#include "io/clock.h"
#include "protocol/resp/resp_internal.h"

#define INFO_MAX 2048
#define QUOTED_MAX 128 /* bytes of a client's text in an error */

/* ---- Short commands ---- */

static void run_ping(struct weir_resp_call *call)
{
    if (call->request->count > 2)
        weir_resp_error(call->out,
                        "ERR wrong number of arguments for 'ping' command");
    else if (call->request->count == 2)
        weir_resp_bulk(call->out, weir_resp_argument(call, 1));
    else
        weir_resp_simple(call->out, "PONG");
}

static void run_echo(struct weir_resp_call *call)
{
    weir_resp_bulk(call->out, weir_resp_argument(call, 1));
}

/* There is one database, 0. */
static void run_select(struct weir_resp_call *call)
{
    int64_t database;
    if (!weir_resp_number(weir_resp_argument(call, 1), &database))
        weir_resp_error(call->out,
                        "ERR value is not an integer or out of range");
    else if (database != 0)
        weir_resp_error(call->out, "ERR DB index is out of range");
    else
        weir_resp_simple(call->out, "OK");
}

static void run_quit(struct weir_resp_call *call)
{
    weir_resp_simple(call->out, "OK");
    weir_conn_end(call->conn);
}

/* redis-benchmark prints these parameters; other names have no value. */
static void run_config(struct weir_resp_call *call)
{
    static const struct {
        const char *name, *value;
    } known[] = { { "save", "" }, { "appendonly", "no" } };
    if (!weir_resp_is_word(weir_resp_argument(call, 1), "get") ||
        call->request->count != 3) {
        weir_resp_error(call->out, "ERR there is CONFIG GET name; an agent is "
                                   "configured by its command line");
        return;
    }
    for (size_t i = 0; i < WEIR_COUNT_OF(known); i++) {
        if (!weir_resp_is_word(weir_resp_argument(call, 2), known[i].name))
            continue;
        weir_resp_map(call->out, 1);
        weir_resp_text(call, known[i].name);
        weir_resp_text(call, known[i].value);
        return;
    }
    weir_resp_map(call->out, 0);
}

/* ---- INFO ---- */

static int write_throttle_counts(const struct weir_throttle *throttle,
                                 char *buf, size_t size)
{
    struct weir_throttle_counts keys = weir_throttle_counts(throttle);
    return snprintf(buf, size,
                    "throttle_keys:%u\r\n"
                    "throttle_keys_max:%u\r\n"
                    "throttle_passed:%" PRIu64 "\r\n"
                    "throttle_limited:%" PRIu64 "\r\n"
                    "throttle_evicted:%" PRIu64 "\r\n",
                    keys.keys, keys.keys_max, keys.passed, keys.limited,
                    keys.evicted);
}

static void run_info(struct weir_resp_call *call)
{
    char text[INFO_MAX];
    struct weir_status status;
    struct weir_acceptor_view conns = weir_conn_server_look(call->server);
    weir_status(call->host->weir, &status);
    int len = snprintf(text, sizeof text,
                       "# Server\r\n"
                       "redis_version:7.0.0\r\n"
                       "redis_mode:standalone\r\n"
                       "weir_version:%s\r\n"
                       "process_id:%ld\r\n"
                       "\r\n# Clients\r\n"
                       "connected_clients:%zu\r\n"
                       "maxclients:%zu\r\n"
                       "total_connections_received:%" PRIu64 "\r\n"
                       "rejected_connections:%" PRIu64 "\r\n"
                       "\r\n# Weir\r\n"
                       "roots:%u\r\n"
                       "roots_up:%u\r\n"
                       "ready:%d\r\n"
                       "stale:%d\r\n"
                       "slots:%u\r\n"
                       "slots_used:%u\r\n"
                       "memory:%llu\r\n"
                       "memory_max:%llu\r\n"
                       "lacking:%u\r\n"
                       "overflowed:%llu\r\n"
                       "on_full:%s\r\n"
                       "\r\n# Throttle\r\n"
                       "throttle_sharing:%s\r\n",
                       call->host->version, (long)getpid(), conns.count,
                       weir_protocol_conns_max(call->host), conns.opened,
                       conns.crowded, status.roots, status.roots_up,
                       status.ready, status.stale, status.slots,
                       status.slots_used, (unsigned long long)status.memory,
                       (unsigned long long)status.memory_max, status.lacking,
                       (unsigned long long)status.overflowed,
                       status.on_full == WEIR_ON_FULL_PASS ? "pass" : "refuse",
                       call->throttle ? "local" : "counted");
    if (call->throttle)
        len += write_throttle_counts(call->throttle, text + len,
                                     sizeof text - (size_t)len);
    weir_assert(len > 0 && len < INFO_MAX);
    weir_resp_bulk(call->out, (struct weir_text){ text, (size_t)len });
}

/* ---- Errors of a decision ---- */

/* Replies with an error, and notes it. */
static void refuse_as_resp(struct weir_resp_call *call, const char *text)
{
    weir_protocol_note(call->host, WEIR_PROTOCOL_RESP, WEIR_PROTOCOL_INVALID,
                       weir_conn_peer(call->conn), text);
    weir_resp_error(call->out, text);
}

/* Replies with the host's error: NOPERM for the credential, ERR for the
 * request. */
static void refuse_error(struct weir_resp_call *call, int error,
                         const struct weir_diag *diag)
{
    weir_protocol_note_refused(call->host, WEIR_PROTOCOL_RESP, error,
                               weir_conn_peer(call->conn), diag->text);
    char text[sizeof diag->text + 16];
    snprintf(text, sizeof text, "%s %s",
             error == WEIR_EDENIED     ? "NOPERM"
             : error == WEIR_ENOTREADY ? "TRYAGAIN"
                                       : "ERR",
             diag->text);
    weir_resp_error(call->out, text);
}

/* ---- CL.THROTTLE ---- */

#define CELL "Cell error: Store error: "

static void refuse_integer(struct weir_resp_call *call, struct weir_text said)
{
    char text[QUOTED_MAX + 64];
    int len = said.len < QUOTED_MAX ? (int)said.len : QUOTED_MAX;
    snprintf(text, sizeof text, CELL "Couldn't parse as integer: %.*s", len,
             said.p);
    refuse_as_resp(call, text);
}

/* False: the error reply is written. */
static bool read_throttle(struct weir_resp_call *call,
                          struct weir_throttle_ask *out)
{
    int64_t *numbers[] = { &out->max_burst, &out->count, &out->period_s,
                           &out->quantity };
    size_t count = call->request->count;
    if (count != 5 && count != 6) {
        refuse_as_resp(call, CELL "Usage: cl.throttle <key> <max_burst> <count "
                                  "per period> <period> [<quantity>]");
        return false;
    }
    out->key = weir_resp_argument(call, 1);
    for (size_t i = 2; i < count; i++) {
        if (weir_resp_number(weir_resp_argument(call, i), numbers[i - 2]))
            continue;
        refuse_integer(call, weir_resp_argument(call, i));
        return false;
    }
    if (out->count != 0 && out->period_s != 0)
        return true;
    refuse_as_resp(call, CELL "Zero rates are not supported");
    return false;
}

static bool check_throttle(struct weir_resp_call *call)
{
    struct weir_throttle_ask ask;
    return read_throttle(call, &ask);
}

static const char *throttle_error(const struct weir_resp_call *call, int error)
{
    switch (error) {
    case WEIR_ENAME:
        return "ERR a key that the fleet counts is UTF-8 without control "
               "characters";
    case WEIR_ENOMEM:
        return "OOM no memory for another key";
    case WEIR_EFULL:
        return "OOM no room for another key: raise --memory-max";
    }
    return call->throttle ? "ERR a burst, a count and a period can't be below "
                            "zero"
                          : "ERR a burst, a count, a period or a quantity is "
                            "out of range";
}

/* Whether the taker may charge a key that this process counts: 0, or as
 * weir_protocol_may(). A key has one cell for all its rates, so the judged
 * name has a star in place of the rate. A glob that contains a rate doesn't
 * match that name: it would let its taker charge the key of another tenant's
 * rate. */
static int may_throttle_local(const struct weir_resp_call *call,
                              const struct weir_protocol_taker *taker,
                              struct weir_text key, struct weir_diag *diag)
{
    static const char any_rate[] = WEIR_THROTTLE_PREFIX "*:";
    char name[sizeof any_rate - 1 + WEIR_RESP_REQUEST_MAX];
    size_t len = sizeof any_rate - 1;
    weir_assert(key.len <= WEIR_RESP_REQUEST_MAX);
    memcpy(name, any_rate, len);
    if (key.len > 0)
        memcpy(name + len, key.p, key.len);
    return weir_protocol_may(call->host, taker,
                             (struct weir_text){ name, len + key.len }, diag,
                             call->now);
}

static bool may_throttle(struct weir_resp_call *call,
                         const struct weir_throttle_ask *ask)
{
    struct weir_diag diag = { 0 };
    const struct weir_protocol_taker *taker = weir_resp_taker(call->session);
    int error =
        call->throttle ? 0 : weir_protocol_check_start(call->host, &diag);
    if (error == 0 && !taker->identity.take.all)
        error = call->throttle
                    ? may_throttle_local(call, taker, ask->key, &diag)
                    : weir_throttle_counted_may(call->host, taker, ask, &diag,
                                                call->now);
    if (error < 0)
        refuse_error(call, error, &diag);
    return error == 0;
}

/* CL.THROTTLE and CL.PROBE. */
static void run_throttle(struct weir_resp_call *call)
{
    struct weir_throttle_ask ask = { .quantity = 1, .probe = call->looks };
    struct weir_throttle_reply reply;
    if (!read_throttle(call, &ask) || !may_throttle(call, &ask))
        return;
    int error =
        call->throttle
            ? weir_throttle_decide(call->throttle, &ask, &reply, call->now)
            : weir_throttle_counted_decide(call->host, &ask, &reply, call->now);
    if (error < 0) {
        refuse_as_resp(call, throttle_error(call, error));
        return;
    }
    weir_resp_array(call->out, 5);
    weir_resp_integer(call->out, reply.limited);
    weir_resp_integer(call->out, reply.limit);
    weir_resp_integer(call->out, reply.remaining);
    weir_resp_integer(call->out, reply.retry_after_s);
    weir_resp_integer(call->out, reply.reset_after_s);
}

static void run_del(struct weir_resp_call *call)
{
    int64_t count = 0;
    /* DEL's keys aren't judged one by one, and may be another tenant's. */
    if (!weir_resp_taker(call->session)->identity.take.all) {
        weir_resp_error(call->out, "NOPERM a credential that may take from "
                                   "some quotas alone may not delete keys");
        return;
    }
    if (!call->throttle) {
        weir_resp_error(call->out, "ERR a key that the fleet counts goes when "
                                   "it is idle, and not before");
        return;
    }
    for (size_t i = 1; i < call->request->count; i++)
        count += weir_throttle_forget(call->throttle,
                                      weir_resp_argument(call, i), call->now);
    weir_resp_integer(call->out, count);
}

/* ---- WEIR.TAKE ---- */

static int64_t to_milliseconds(const struct weir_reply *reply)
{
    if (reply->verdict == WEIR_PASSED)
        return 0;
    if (reply->never || reply->retry_after == WEIR_NEVER)
        return -1;
    weir_duration most = WEIR_NEVER - WEIR_MILLISECOND;
    weir_duration wait = reply->retry_after < most ? reply->retry_after : most;
    return (int64_t)((wait + WEIR_MILLISECOND - 1) / WEIR_MILLISECOND);
}

/* False: the error reply is written. */
static bool read_weight(struct weir_resp_call *call, int64_t *out)
{
    const char *why = NULL;
    *out = 1;
    if (call->request->count > 3)
        why = "ERR a name and a weight are enough";
    else if (call->request->count == 3 &&
             (!weir_resp_number(weir_resp_argument(call, 2), out) || *out < 0 ||
              *out > (int64_t)WEIR_WEIGHT_MAX))
        why = "ERR a weight is a number from 0 to 4294967296";
    if (why)
        refuse_as_resp(call, why);
    return !why;
}

static bool check_take(struct weir_resp_call *call)
{
    int64_t weight;
    return read_weight(call, &weight);
}

/* And WEIR.PEEK. */
static void run_take(struct weir_resp_call *call)
{
    int64_t weight;
    struct weir_diag diag = { 0 };
    struct weir_reply reply = { .verdict = WEIR_PASSED };
    if (!read_weight(call, &weight))
        return;
    struct weir_protocol_request ask = { .name = weir_resp_argument(call, 1),
                                         .weight = (uint64_t)weight,
                                         .peek = call->looks,
                                         .taker =
                                             weir_resp_taker(call->session) };
    int error =
        weir_protocol_decide(call->host, &ask, &reply, &diag, call->now);
    if (error < 0) {
        refuse_error(call, error, &diag);
        return;
    }
    weir_resp_array(call->out, 4);
    weir_resp_integer(call->out, reply.verdict == WEIR_LIMITED);
    weir_resp_integer(call->out, reply.remaining > INT64_MAX
                                     ? INT64_MAX
                                     : (int64_t)reply.remaining);
    weir_resp_integer(call->out, to_milliseconds(&reply));
    weir_resp_bulk(call->out,
                   (struct weir_text){ reply.quota, reply.quota_len });
}

/* ---- WEIR.CHARGE, WEIR.SETTLE ---- */

/* Reads the units at 'first' and behind it, of which WEIR.CHARGE has one and
 * WEIR.SETTLE two. False: the error reply is written. */
static bool read_units(struct weir_resp_call *call, size_t first,
                       uint64_t out[2])
{
    for (size_t i = first; i < call->request->count; i++) {
        int64_t units;
        if (!weir_resp_number(weir_resp_argument(call, i), &units) ||
            units < 0 || units > (int64_t)WEIR_DEBT_MAX) {
            refuse_as_resp(call, "ERR units are a number from 0 to "
                                 "1099511627776");
            return false;
        }
        out[i - first] = (uint64_t)units;
    }
    return true;
}

static bool check_settle(struct weir_resp_call *call)
{
    uint64_t units[2];
    return read_units(call, 2, units);
}

/* Replies with the units that are charged for the work now. */
static void settle(struct weir_resp_call *call, uint64_t charged,
                   uint64_t actual)
{
    struct weir_diag diag = { 0 };
    struct weir_protocol_request ask = { .name = weir_resp_argument(call, 1),
                                         .taker =
                                             weir_resp_taker(call->session) };
    bool unknown;
    int error = weir_protocol_settle(call->host, &ask, &charged, actual,
                                     &unknown, &diag, call->now);
    if (error < 0)
        refuse_error(call, error, &diag);
    else
        weir_resp_integer(call->out, (int64_t)charged);
}

static void run_charge(struct weir_resp_call *call)
{
    uint64_t units[2];
    if (read_units(call, 2, units))
        settle(call, 0, units[0]);
}

static void run_settle(struct weir_resp_call *call)
{
    uint64_t units[2];
    if (read_units(call, 2, units))
        settle(call, units[0], units[1]);
}

/* ---- Transactions ---- */

static void run_multi(struct weir_resp_call *call)
{
    struct weir_resp_session *session = call->session;
    if (session->transaction) {
        weir_resp_error(call->out, "ERR MULTI calls can not be nested");
        return;
    }
    session->transaction = weir_resp_transaction_new(&weir_mem_system);
    if (session->transaction)
        weir_resp_simple(call->out, "OK");
    else
        weir_resp_error(call->out, "OOM no memory for a transaction");
}

static void run_discard(struct weir_resp_call *call)
{
    if (!call->session->transaction) {
        weir_resp_error(call->out, "ERR DISCARD without MULTI");
        return;
    }
    weir_resp_transaction_free(&call->session->transaction);
    weir_resp_simple(call->out, "OK");
}

static void run_watch(struct weir_resp_call *call)
{
    weir_resp_error(call->out,
                    call->session->transaction
                        ? "ERR WATCH inside MULTI is not allowed"
                        : "ERR a limiter has no values to WATCH: leave it out, "
                          "and EXEC answers with the verdicts");
}

static void run_unwatch(struct weir_resp_call *call)
{
    weir_resp_simple(call->out, "OK");
}

/* The command is left out, and with it the transaction. */
static void break_transaction(struct weir_resp_call *call)
{
    if (call->session->transaction)
        weir_resp_transaction_break(call->session->transaction);
}

static void queue_command(struct weir_resp_call *call,
                          const struct weir_resp_command *command)
{
    if (command->flags & WEIR_RESP_ALONE) {
        break_transaction(call);
        weir_resp_error(call->out,
                        "ERR Command not allowed inside a transaction");
        return;
    }
    if (command->check && !command->check(call)) {
        break_transaction(call);
        return;
    }
    int error =
        weir_resp_transaction_add(call->session->transaction, call->request);
    if (error == 0) {
        weir_resp_simple(call->out, "QUEUED");
        return;
    }
    break_transaction(call);
    refuse_as_resp(call, error == WEIR_ENOMEM
                             ? "OOM no memory for another command"
                             : "ERR a transaction has at most 256 commands "
                               "and 16 KiB; send DISCARD and smaller ones");
}

/* ---- The table ---- */

static void show_commands(struct weir_resp_call *call);
static void run_exec(struct weir_resp_call *call);

/* The most frequent first. */
static const struct weir_resp_command commands[] = {
    { "cl.throttle", -1, WEIR_RESP_WRITE, 1, 1, run_throttle, "module", "1.0.0",
      "Takes units of a key whose limit comes with the request.",
      "key #max_burst #count #period [#quantity]", check_throttle },
    { "weir.take", -2, WEIR_RESP_WRITE, 0, 0, run_take, "module", "1.0.0",
      "Takes units of a quota.", "name [#weight]", check_take },
    { "ping", -1, 0, 0, 0, run_ping, "connection", "1.0.0",
      "Answers PONG, or the message.", "[message]" },
    { "cl.probe", -1, 0, 1, 1, run_throttle, "module", "1.0.0",
      "Answers as CL.THROTTLE, and takes nothing.",
      "key #max_burst #count #period [#quantity]", check_throttle },
    { "weir.peek", -2, 0, 0, 0, run_take, "module", "1.0.0",
      "Answers as WEIR.TAKE, and takes nothing.", "name [#weight]",
      check_take },
    { "weir.charge", 3, WEIR_RESP_WRITE, 0, 0, run_charge, "module", "1.0.0",
      "Charges units of a quota without a decision.", "name #units",
      check_settle },
    { "weir.settle", 4, WEIR_RESP_WRITE, 0, 0, run_settle, "module", "1.0.0",
      "Charges or gives back the difference to the actual cost.",
      "name #charged #actual", check_settle },
    { "multi", 1, WEIR_RESP_NOW, 0, 0, run_multi, "transactions", "1.2.0",
      "Queues the next commands.", "" },
    { "exec", 1, WEIR_RESP_NOW, 0, 0, run_exec, "transactions", "1.2.0",
      "Executes the queued commands.", "" },
    { "discard", 1, WEIR_RESP_NOW, 0, 0, run_discard, "transactions", "2.0.0",
      "Drops the queued commands.", "" },
    { "watch", -2, WEIR_RESP_NOW, 0, 0, run_watch, "transactions", "2.2.0",
      "Is refused: a limiter has no values to watch.", "key+" },
    { "unwatch", 1, 0, 0, 0, run_unwatch, "transactions", "2.2.0",
      "Has no effect.", "" },
    { "del", -2, WEIR_RESP_WRITE, 1, -1, run_del, "generic", "1.0.0",
      "Resets keys of CL.THROTTLE.", "key+" },
    { "echo", 2, 0, 0, 0, run_echo, "connection", "1.0.0",
      "Answers the message.", "message" },
    { "select", 2, 0, 0, 0, run_select, "connection", "1.0.0",
      "Accepts the only database, 0.", "#index" },
    { "client", -2, 0, 0, 0, weir_resp_run_client, "connection", "2.4.0",
      "Names and shows this connection.", "subcommand",
      weir_resp_check_client },
    { "command", -1, WEIR_RESP_ALONE, 0, 0, show_commands, "server", "2.8.13",
      "Describes the commands.", "[subcommand]" },
    { "config", -2, WEIR_RESP_ALONE, 0, 0, run_config, "server", "2.0.0",
      "Answers the few parameters that clients ask for.", "subcommand" },
    { "info", -1, WEIR_RESP_ALONE, 0, 0, run_info, "server", "1.0.0",
      "Shows the state of the agent.", "[section]" },
    { "auth", -2, WEIR_RESP_OPEN | WEIR_RESP_ALONE, 0, 0, weir_resp_run_auth,
      "connection", "1.0.0", "Shows a token.", "[username] password" },
    { "hello", -1, WEIR_RESP_OPEN | WEIR_RESP_ALONE, 0, 0, weir_resp_run_hello,
      "connection", "6.0.0", "Chooses the protocol's version.", "[#protover]" },
    { "reset", 1, WEIR_RESP_OPEN | WEIR_RESP_NOW, 0, 0, weir_resp_run_reset,
      "connection", "6.2.0", "Begins the session anew.", "" },
    { "quit", -1, WEIR_RESP_OPEN | WEIR_RESP_NOW, 0, 0, run_quit, "connection",
      "1.0.0", "Ends the connection.", "" },
};

static const struct weir_resp_command *find_resp_command(struct weir_text name)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(commands); i++)
        if (weir_resp_is_word(name, commands[i].name))
            return &commands[i];
    return NULL;
}

/* ---- COMMAND ---- */

static void write_command_count(struct weir_resp_call *call)
{
    weir_resp_integer(call->out, (int64_t)WEIR_COUNT_OF(commands));
}

static void write_all_commands(struct weir_resp_call *call)
{
    weir_resp_array(call->out, WEIR_COUNT_OF(commands));
    for (size_t i = 0; i < WEIR_COUNT_OF(commands); i++) {
        weir_resp_make_room(call);
        weir_resp_describe(call, &commands[i]);
    }
}

/* COMMAND INFO. */
static void write_some_commands(struct weir_resp_call *call)
{
    if (call->request->count == 2) {
        write_all_commands(call);
        return;
    }
    weir_resp_array(call->out, call->request->count - 2);
    for (size_t i = 2; i < call->request->count; i++) {
        const struct weir_resp_command *command =
            find_resp_command(weir_resp_argument(call, i));
        weir_resp_make_room(call);
        if (command)
            weir_resp_describe(call, command);
        else
            weir_resp_null(call->out);
    }
}

/* COMMAND DOCS. Unknown names are left out. */
static void write_docs(struct weir_resp_call *call)
{
    const struct weir_resp_command *found[WEIR_RESP_ARGUMENTS_MAX];
    size_t count = 0;
    for (size_t i = 2; i < call->request->count; i++) {
        found[count] = find_resp_command(weir_resp_argument(call, i));
        count += found[count] != NULL;
    }
    if (call->request->count == 2)
        for (; count < WEIR_COUNT_OF(commands); count++)
            found[count] = &commands[count];
    weir_resp_map(call->out, count);
    for (size_t i = 0; i < count; i++) {
        weir_resp_make_room(call);
        weir_resp_document(call, found[i]);
    }
}

_Static_assert(WEIR_COUNT_OF(commands) <= WEIR_RESP_ARGUMENTS_MAX,
               "COMMAND DOCS has room for each");

static void write_command_names(struct weir_resp_call *call)
{
    if (call->request->count > 2) {
        weir_resp_error(call->out, "ERR syntax error");
        return;
    }
    weir_resp_array(call->out, WEIR_COUNT_OF(commands));
    for (size_t i = 0; i < WEIR_COUNT_OF(commands); i++)
        weir_resp_text(call, commands[i].name);
}

/* COMMAND GETKEYS. */
static void write_keys(struct weir_resp_call *call)
{
    size_t count = call->request->count - 2;
    const struct weir_resp_command *command =
        find_resp_command(weir_resp_argument(call, 2));
    if (!command || !weir_resp_has_arity(count, command->arity) ||
        count <= command->key) {
        weir_resp_error(call->out, command ? "ERR Invalid number of arguments "
                                             "specified for command"
                                           : "ERR Invalid command specified");
        return;
    }
    if (command->key == 0) {
        weir_resp_error(call->out, "ERR The command has no key arguments");
        return;
    }
    size_t keys = command->last_key < 0 ? count - command->key : 1;
    weir_resp_array(call->out, keys);
    for (size_t i = 0; i < keys; i++)
        weir_resp_bulk(call->out,
                       weir_resp_argument(call, 2 + command->key + i));
}

static void write_command_help(struct weir_resp_call *call)
{
    static const char *const lines[] = {
        "COMMAND [<subcommand> [<arg> ...]]. Subcommands are:",
        "(no subcommand)",
        "    Describes all commands.",
        "COUNT",
        "    The number of commands.",
        "DOCS [<name> ...]",
        "    What they are for, and their arguments.",
        "GETKEYS <command> [<arg> ...]",
        "    The keys of a command.",
        "INFO [<name> ...]",
        "    Describes these commands.",
        "LIST",
        "    The names of the commands.",
    };
    weir_resp_lines(call, lines, WEIR_COUNT_OF(lines));
}

static void show_commands(struct weir_resp_call *call)
{
    static const struct weir_resp_part parts[] = {
        { "count", 2, write_command_count },
        { "docs", -2, write_docs },
        { "getkeys", -3, write_keys },
        { "help", 2, write_command_help },
        { "info", -2, write_some_commands },
        { "list", -2, write_command_names },
    };
    if (call->request->count == 1) {
        write_all_commands(call);
        return;
    }
    const struct weir_resp_part *part =
        weir_resp_find_part(call, "COMMAND", parts, WEIR_COUNT_OF(parts));
    if (part)
        part->run(call);
}

/* ---- Requests ---- */

/* In Redis's words. */
static void refuse_unknown_command(struct weir_resp_call *call)
{
    char text[3 * QUOTED_MAX];
    struct weir_text name = weir_resp_argument(call, 0);
    int len =
        snprintf(text, sizeof text,
                 "ERR unknown command '%.*s', with args beginning with: ",
                 name.len < QUOTED_MAX ? (int)name.len : QUOTED_MAX, name.p);
    for (size_t i = 1; i < call->request->count; i++) {
        struct weir_text said = weir_resp_argument(call, i);
        if (said.len > QUOTED_MAX || (size_t)len + said.len + 4 > sizeof text)
            break;
        len += snprintf(text + len, sizeof text - (size_t)len, "'%.*s' ",
                        (int)said.len, said.p);
    }
    weir_resp_error(call->out, text);
}

static void refuse_argument_count(struct weir_resp_call *call,
                                  const struct weir_resp_command *command)
{
    char text[96];
    snprintf(text, sizeof text,
             "ERR wrong number of arguments for '%s' command", command->name);
    weir_resp_error(call->out, text);
}

/* Whether the client may send this command now; else the error is written. */
static bool check_command(struct weir_resp_call *call,
                          const struct weir_resp_command *command)
{
    if (!call->session->known &&
        !(command && command->flags & WEIR_RESP_OPEN)) {
        static const char why[] = "NOAUTH Authentication required.";
        weir_protocol_note(call->host, WEIR_PROTOCOL_RESP,
                           WEIR_PROTOCOL_UNAUTHENTICATED,
                           weir_conn_peer(call->conn), why);
        weir_resp_error(call->out, why);
        return false;
    }
    if (!command) {
        refuse_unknown_command(call);
        return false;
    }
    if (!weir_resp_has_arity(call->request->count, command->arity)) {
        refuse_argument_count(call, command);
        return false;
    }
    return true;
}

static void execute(struct weir_resp_call *call,
                    const struct weir_resp_command *command)
{
    call->looks = !(command->flags & WEIR_RESP_WRITE);
    command->run(call);
}

static void execute_queued(struct weir_resp_call *call,
                           const struct weir_resp_transaction *transaction)
{
    struct weir_resp_request request;
    struct weir_resp_call queued = *call;
    size_t at = 0;
    queued.request = &request;
    weir_resp_array(call->out, weir_resp_transaction_count(transaction));
    while (weir_resp_transaction_next(transaction, &at, &request)) {
        weir_resp_make_room(call);
        execute(&queued, find_resp_command(weir_resp_argument(&queued, 0)));
    }
}

static void run_exec(struct weir_resp_call *call)
{
    struct weir_resp_transaction *transaction = call->session->transaction;
    if (!transaction) {
        weir_resp_error(call->out, "ERR EXEC without MULTI");
        return;
    }
    call->session->transaction = NULL;
    if (weir_resp_transaction_is_broken(transaction))
        refuse_as_resp(call, "EXECABORT Transaction discarded because of "
                             "previous errors.");
    else
        execute_queued(call, transaction);
    weir_resp_transaction_free(&transaction);
}

void weir_resp_answer(struct weir_resp_call *call)
{
    weir_assert(call->session->id != 0);
    if (call->request->count == 0)
        return;
    const struct weir_resp_command *command =
        find_resp_command(weir_resp_argument(call, 0));
    if (!check_command(call, command)) {
        break_transaction(call);
        return;
    }
    if (!call->session->transaction || command->flags & WEIR_RESP_NOW) {
        execute(call, command);
        return;
    }
    queue_command(call, command);
}
