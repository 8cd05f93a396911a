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
static bool set_client_name(struct weir_resp_call *call, struct weir_text name)
{
    bool is_sound = name.len <= WEIR_RESP_NAME_MAX;
    for (size_t i = 0; i < name.len && is_sound; i++)
        is_sound = name.p[i] > ' ' && name.p[i] <= '~';
    if (!is_sound) {
        weir_resp_error(call->out,
                        "ERR Client names cannot contain spaces, newlines or "
                        "special characters, and have 63 bytes at most.");
        return false;
    }
    memcpy(call->session->name, name.p, name.len);
    call->session->name[name.len] = '\0';
    return true;
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

void weir_resp_run_hello(struct weir_resp_call *call)
{
    size_t count = call->request->count;
    int64_t protocol = call->session->protocol;
    size_t at = 2;
    if (count > 1 &&
        !weir_resp_number(weir_resp_argument(call, 1), &protocol)) {
        weir_resp_error(call->out, "ERR Protocol version is not an integer "
                                   "or out of range");
        return;
    }
    if (protocol != 2 && protocol != 3) {
        weir_resp_error(call->out, "NOPROTO unsupported protocol version");
        return;
    }
    while (at < count) {
        bool is_auth =
            weir_resp_is_word(weir_resp_argument(call, at), "auth") &&
            at + 2 < count;
        bool is_name =
            weir_resp_is_word(weir_resp_argument(call, at), "setname") &&
            at + 1 < count;
        if (!is_auth && !is_name) {
            weir_resp_error(call->out, "ERR Syntax error in HELLO");
            return;
        }
        if (is_auth ? !log_in(call, weir_resp_argument(call, at + 2))
                    : !set_client_name(call, weir_resp_argument(call, at + 1)))
            return;
        at += is_auth ? 3 : 2;
    }
    if (!call->session->known) {
        weir_resp_error(call->out,
                        "NOAUTH HELLO must be called with the client already "
                        "authenticated, otherwise the HELLO <proto> AUTH "
                        "<user> <pass> option can be used to authenticate "
                        "the client and select the RESP protocol version at "
                        "the same time");
        return;
    }
    call->session->protocol = call->out->protocol = (uint8_t)protocol;
    write_hello(call);
}

/* ---- CLIENT ---- */

static void run_set_name(struct weir_resp_call *call)
{
    if (set_client_name(call, weir_resp_argument(call, 2)))
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

/* Accepted without effect. */
static void accept_silently(struct weir_resp_call *call)
{
    weir_resp_simple(call->out, "OK");
}

static void write_client_info(struct weir_resp_call *call)
{
    char text[256];
    snprintf(text, sizeof text, "id=%" PRIu64 " addr=%s name=%s db=0 resp=%u",
             call->session->id, weir_conn_peer(call->conn), call->session->name,
             call->session->protocol);
    weir_resp_text(call, text);
}

void weir_resp_run_client(struct weir_resp_call *call)
{
    static const struct {
        const char *name;
        size_t count; /* with CLIENT and the subcommand */
        void (*run)(struct weir_resp_call *call);
    } parts[] = {
        { "setname", 3, run_set_name },     { "getname", 2, write_client_name },
        { "id", 2, write_client_id },       { "info", 2, write_client_info },
        { "setinfo", 4, accept_silently },  { "no-evict", 3, accept_silently },
        { "no-touch", 3, accept_silently },
    };
    struct weir_text name = weir_resp_argument(call, 1);
    for (size_t i = 0; i < WEIR_COUNT_OF(parts); i++) {
        if (!weir_resp_is_word(name, parts[i].name) ||
            call->request->count != parts[i].count)
            continue;
        parts[i].run(call);
        return;
    }
    char text[128];
    snprintf(text, sizeof text,
             "ERR unknown subcommand or wrong number of arguments for '%.*s'. "
             "Try CLIENT HELP.",
             name.len < 32 ? (int)name.len : 32, name.p);
    weir_resp_error(call->out, text);
}
