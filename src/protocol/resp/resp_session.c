/* SPDX-License-Identifier: MIT
 * protocol/resp/resp_session.c - commands of a Redis client about itself: AUTH,
 * HELLO, CLIENT and RESET.
 *
 * A password is a token of --credentials; a client with a certificate that has
 * the role needs none. The token alone identifies the user; a user name sent
 * with it is ignored. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/resp/resp_internal.h"

#define TOKEN_MAX 512

/* ---- Authentication ---- */

static void forget_credential(struct weir_resp_session *session)
{
    free(session->shown);
    free(session->limited);
    session->shown = NULL;
    session->limited = NULL;
}

void weir_resp_session_fini(struct weir_resp_session *session)
{
    forget_credential(session);
    weir_resp_transaction_free(&session->transaction);
}

const struct weir_protocol_taker *weir_resp_taker(
    const struct weir_resp_session *session)
{
    return session->limited ? session->limited : &weir_protocol_any_taker;
}

/* Without memory the peer isn't admitted. */
static void admit_session(struct weir_resp_session *session,
                          const struct weir_protocol_taker *taker,
                          const char *shown)
{
    bool limited = !taker->identity.take.all;
    forget_credential(session);
    session->shown = shown ? strdup(shown) : NULL;
    session->limited = limited ? malloc(sizeof *session->limited) : NULL;
    session->known =
        (!shown || session->shown) && (!limited || session->limited);
    if (session->limited)
        *session->limited = *taker;
    weir_assert(!session->known || limited == (session->limited != NULL));
}

static int admit_shown(const struct weir_protocol_host *host,
                       const struct weir_conn *conn, const char *authorization,
                       struct weir_protocol_taker *out, struct weir_diag *diag,
                       weir_instant now)
{
    const struct weir_protocol_shown shown = { WEIR_PROTOCOL_RESP,
                                               WEIR_ROLE_TAKE, authorization };
    return weir_protocol_admit(host, conn, &shown, out, diag, now);
}

/* False: the error reply is written. */
static bool log_in(struct weir_resp_call *call, struct weir_text token)
{
    const struct weir_protocol_host *host = call->host;
    char shown[TOKEN_MAX + 8];
    struct weir_protocol_taker taker;
    struct weir_diag diag = { 0 };
    if (!weir_protocol_is_protected(host))
        return true;
    bool fits = token.len <= TOKEN_MAX && !memchr(token.p, '\0', token.len);
    snprintf(shown, sizeof shown, "Bearer %.*s", fits ? (int)token.len : 0,
             token.p);
    int error = admit_shown(host, call->conn, shown, &taker, &diag, call->now);
    if (error == 0)
        admit_session(call->session, &taker, shown);
    if (error == 0 && !call->session->known)
        error = WEIR_ENOMEM;
    if (error == WEIR_ENOMEM)
        weir_resp_error(call->out, "OOM no memory for the credential");
    else if (error == WEIR_EDENIED)
        weir_resp_error(call->out, "NOPERM this token hasn't the role 'take'");
    else if (error < 0)
        weir_resp_error(call->out, "WRONGPASS invalid username-password pair "
                                   "or user is disabled.");
    return error == 0;
}

void weir_resp_meet(const struct weir_protocol_host *host,
                    struct weir_conn *conn, struct weir_resp_session *session,
                    weir_instant now)
{
    struct weir_tls_peer names;
    struct weir_protocol_taker taker;
    struct weir_diag diag = { 0 };
    weir_conn_peer_names(conn, &names);
    /* A peer without a certificate may still send AUTH: this is no refusal. */
    session->known = false;
    if ((!weir_protocol_is_protected(host) || names.count > 0) &&
        admit_shown(host, conn, "", &taker, &diag, now) == 0)
        admit_session(session, &taker, NULL);
}

bool weir_resp_admit(const struct weir_protocol_host *host,
                     struct weir_conn *conn, struct weir_resp_session *session,
                     weir_instant now)
{
    struct weir_protocol_taker taker;
    struct weir_diag diag = { 0 };
    char shown[TOKEN_MAX + 8] = "";
    if (session->shown)
        snprintf(shown, sizeof shown, "%s", session->shown);
    if (admit_shown(host, conn, shown, &taker, &diag, now) < 0)
        return false;
    admit_session(session, &taker, session->shown ? shown : NULL);
    return session->known;
}

void weir_resp_run_auth(struct weir_resp_call *call)
{
    size_t count = call->request->count;
    if (count > 3) {
        weir_resp_error(call->out, "ERR syntax error");
        return;
    }
    if (!weir_protocol_is_protected(call->host) && count == 2) {
        weir_resp_error(call->out,
                        "ERR AUTH <password> called without any password "
                        "configured for the default user. Are you sure your "
                        "configuration is correct?");
        return;
    }
    if (log_in(call, weir_resp_argument(call, count - 1)))
        weir_resp_simple(call->out, "OK");
}

void weir_resp_run_reset(struct weir_resp_call *call)
{
    struct weir_resp_session *session = call->session;
    weir_resp_session_fini(session);
    weir_resp_meet(call->host, call->conn, session, call->now);
    session->name[0] = '\0';
    session->protocol = call->out->protocol = 2;
    weir_resp_simple(call->out, "RESET");
}

/* False: the error reply is written. */
static bool check_client_name(struct weir_resp_call *call,
                              struct weir_text name)
{
    bool is_sound = name.len <= WEIR_RESP_NAME_MAX;
    for (size_t i = 0; i < name.len && is_sound; i++)
        is_sound = name.p[i] > ' ' && name.p[i] <= '~';
    if (!is_sound)
        weir_resp_error(call->out,
                        "ERR Client names cannot contain spaces, newlines or "
                        "special characters, and have 63 bytes at most.");
    return is_sound;
}

static void keep_client_name(struct weir_resp_call *call, struct weir_text name)
{
    weir_assert(name.len <= WEIR_RESP_NAME_MAX);
    memcpy(call->session->name, name.p, name.len);
    call->session->name[name.len] = '\0';
}

static void write_hello(struct weir_resp_call *call)
{
    weir_resp_map(call->out, 7);
    weir_resp_text(call, "server");
    /* Some clients accept no other name. */
    weir_resp_text(call, "redis");
    weir_resp_text(call, "version");
    weir_resp_text(call, "7.0.0");
    weir_resp_text(call, "proto");
    weir_resp_integer(call->out, call->session->protocol);
    weir_resp_text(call, "id");
    weir_resp_integer(call->out, (int64_t)call->session->id);
    weir_resp_text(call, "mode");
    weir_resp_text(call, "standalone");
    weir_resp_text(call, "role");
    weir_resp_text(call, "master");
    weir_resp_text(call, "modules");
    weir_resp_array(call->out, 0);
}

/* The options of HELLO. */
struct hello {
    struct weir_text token, name;
    bool has_token, has_name;
};

/* False: the error reply is written. */
static bool read_hello(struct weir_resp_call *call, struct hello *out)
{
    size_t count = call->request->count;
    size_t at = 2;
    while (at < count) {
        struct weir_text option = weir_resp_argument(call, at);
        if (weir_resp_is_word(option, "auth") && at + 2 < count) {
            out->has_token = true;
            out->token = weir_resp_argument(call, at + 2);
            at += 3;
        } else if (weir_resp_is_word(option, "setname") && at + 1 < count) {
            out->has_name = true;
            out->name = weir_resp_argument(call, at + 1);
            at += 2;
        } else {
            char text[128];
            snprintf(text, sizeof text,
                     "ERR Syntax error in HELLO option '%.*s'",
                     option.len < 64 ? (int)option.len : 64, option.p);
            weir_resp_error(call->out, text);
            return false;
        }
    }
    return true;
}

/* False: the error reply is written. */
static bool read_version(struct weir_resp_call *call, int64_t *out)
{
    if (call->request->count > 1 &&
        !weir_resp_number(weir_resp_argument(call, 1), out)) {
        weir_resp_error(call->out, "ERR Protocol version is not an integer "
                                   "or out of range");
        return false;
    }
    if (*out == 2 || *out == 3)
        return true;
    weir_resp_error(call->out, "NOPROTO unsupported protocol version");
    return false;
}

/* The name is checked first and kept last, so that a refused HELLO changes
 * nothing. */
void weir_resp_run_hello(struct weir_resp_call *call)
{
    int64_t protocol = call->session->protocol;
    struct hello hello = { .has_token = false };
    if (!read_version(call, &protocol) || !read_hello(call, &hello) ||
        (hello.has_name && !check_client_name(call, hello.name)) ||
        (hello.has_token && !log_in(call, hello.token)))
        return;
    if (!call->session->known) {
        weir_resp_error(call->out,
                        "NOAUTH HELLO must be called with the client already "
                        "authenticated, otherwise the HELLO <proto> AUTH "
                        "<user> <pass> option can be used to authenticate "
                        "the client and select the RESP protocol version at "
                        "the same time");
        return;
    }
    if (hello.has_name)
        keep_client_name(call, hello.name);
    call->session->protocol = call->out->protocol = (uint8_t)protocol;
    write_hello(call);
}

/* ---- CLIENT ---- */

static void run_set_name(struct weir_resp_call *call)
{
    struct weir_text name = weir_resp_argument(call, 2);
    if (!check_client_name(call, name))
        return;
    keep_client_name(call, name);
    weir_resp_simple(call->out, "OK");
}

static void write_client_name(struct weir_resp_call *call)
{
    if (call->session->name[0])
        weir_resp_text(call, call->session->name);
    else
        weir_resp_null(call->out);
}

static void write_client_id(struct weir_resp_call *call)
{
    weir_resp_integer(call->out, (int64_t)call->session->id);
}

/* In Redis's order. Client libraries demand numbers that aren't known here:
 * they are 0. */
static void write_client_line(struct weir_resp_call *call)
{
    char text[448];
    int len = snprintf(
        text, sizeof text,
        "id=%" PRIu64 " addr=%s name=%s age=0 idle=0 flags=N "
        "db=0 sub=0 psub=0 ssub=0 multi=-1 qbuf=0 qbuf-free=0 "
        "argv-mem=0 multi-mem=0 obl=0 oll=0 omem=0 tot-mem=0 "
        "events=r cmd=client|%s user=default redir=-1 "
        "resp=%u\n",
        call->session->id, weir_conn_peer(call->conn), call->session->name,
        weir_resp_is_word(weir_resp_argument(call, 1), "list") ? "list"
                                                               : "info",
        call->session->protocol);
    weir_assert(len > 0 && (size_t)len < sizeof text);
    weir_resp_text(call, text);
}

/* Whether this client is among those of CLIENT LIST ID: 0 or 1; -1: the error
 * reply is written. */
static int is_listed_id(struct weir_resp_call *call)
{
    int found = 0;
    for (size_t i = 3; i < call->request->count; i++) {
        int64_t id;
        if (!weir_resp_number(weir_resp_argument(call, i), &id) || id < 1) {
            weir_resp_error(call->out, "ERR Invalid client ID");
            return -1;
        }
        found |= (uint64_t)id == call->session->id;
    }
    return found;
}

/* The same for CLIENT LIST TYPE. */
static int is_listed_type(struct weir_resp_call *call)
{
    static const char *const others[] = { "master", "replica", "slave",
                                          "pubsub" };
    struct weir_text type = weir_resp_argument(call, 3);
    if (weir_resp_is_word(type, "normal"))
        return 1;
    for (size_t i = 0; i < WEIR_COUNT_OF(others); i++)
        if (weir_resp_is_word(type, others[i]))
            return 0;
    char text[96];
    snprintf(text, sizeof text, "ERR Unknown client type '%.*s'",
             type.len < 32 ? (int)type.len : 32, type.p);
    weir_resp_error(call->out, text);
    return -1;
}

/* This client alone: the others may belong to other tenants. */
static void write_client_list(struct weir_resp_call *call)
{
    size_t count = call->request->count;
    if (count == 2) {
        write_client_line(call);
        return;
    }
    struct weir_text option = weir_resp_argument(call, 2);
    int listed = -1;
    if (count > 3 && weir_resp_is_word(option, "id"))
        listed = is_listed_id(call);
    else if (count == 4 && weir_resp_is_word(option, "type"))
        listed = is_listed_type(call);
    else
        weir_resp_error(call->out, "ERR syntax error");
    if (listed == 1)
        write_client_line(call);
    else if (listed == 0)
        weir_resp_text(call, "");
}

/* The name and version of a client library aren't kept. */
static void accept_client_library(struct weir_resp_call *call)
{
    struct weir_text option = weir_resp_argument(call, 2);
    if (weir_resp_is_word(option, "lib-name") ||
        weir_resp_is_word(option, "lib-ver")) {
        weir_resp_simple(call->out, "OK");
        return;
    }
    char text[96];
    snprintf(text, sizeof text, "ERR Unrecognized option '%.*s'",
             option.len < 32 ? (int)option.len : 32, option.p);
    weir_resp_error(call->out, text);
}

/* ON or OFF, without effect: no client and no key is evicted for another. */
static void accept_client_switch(struct weir_resp_call *call)
{
    struct weir_text value = weir_resp_argument(call, 2);
    if (weir_resp_is_word(value, "on") || weir_resp_is_word(value, "off"))
        weir_resp_simple(call->out, "OK");
    else
        weir_resp_error(call->out, "ERR syntax error");
}

static void run_client_reply(struct weir_resp_call *call)
{
    if (weir_resp_is_word(weir_resp_argument(call, 2), "on"))
        weir_resp_simple(call->out, "OK");
    else
        weir_resp_error(call->out, "ERR every command has a reply: there is "
                                   "CLIENT REPLY ON");
}

static void run_client_tracking(struct weir_resp_call *call)
{
    if (weir_resp_is_word(weir_resp_argument(call, 2), "off"))
        weir_resp_simple(call->out, "OK");
    else
        weir_resp_error(call->out, "ERR a limiter has no values that a client "
                                   "may cache: there is CLIENT TRACKING OFF");
}

static void write_client_redirection(struct weir_resp_call *call)
{
    weir_resp_integer(call->out, -1);
}

static void write_client_help(struct weir_resp_call *call)
{
    static const char *const lines[] = {
        "CLIENT <subcommand> [<arg> ...]. Subcommands are:",
        "GETNAME",
        "    The name of this connection.",
        "GETREDIR",
        "    -1: nothing is tracked.",
        "ID",
        "    The number of this connection.",
        "INFO, LIST [ID <id> ... | TYPE <type>]",
        "    Shows this connection, and no other.",
        "NO-EVICT (ON|OFF), NO-TOUCH (ON|OFF), REPLY ON, TRACKING OFF",
        "    Accepted without effect.",
        "SETINFO (LIB-NAME|LIB-VER) <text>",
        "    Accepted without effect.",
        "SETNAME <name>",
        "    Names this connection.",
    };
    weir_resp_lines(call, lines, WEIR_COUNT_OF(lines));
}

static const struct weir_resp_part *find_client_part(
    struct weir_resp_call *call)
{
    static const struct weir_resp_part parts[] = {
        { "getname", 2, write_client_name },
        { "getredir", 2, write_client_redirection },
        { "help", 2, write_client_help },
        { "id", 2, write_client_id },
        { "info", 2, write_client_line },
        { "list", -2, write_client_list },
        { "no-evict", 3, accept_client_switch },
        { "no-touch", 3, accept_client_switch },
        { "reply", 3, run_client_reply },
        { "setinfo", 4, accept_client_library },
        { "setname", 3, run_set_name },
        { "tracking", -3, run_client_tracking },
    };
    return weir_resp_find_part(call, "CLIENT", parts, WEIR_COUNT_OF(parts));
}

bool weir_resp_check_client(struct weir_resp_call *call)
{
    return find_client_part(call) != NULL;
}

void weir_resp_run_client(struct weir_resp_call *call)
{
    const struct weir_resp_part *part = find_client_part(call);
    if (part)
        part->run(call);
}
