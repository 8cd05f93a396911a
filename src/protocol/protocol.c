/* SPDX-License-Identifier: MIT
 * protocol/protocol.c - one decision, as every protocol requests it, and its
 * authorization.
 *
 * Every decision is made by name: a handle's slot has to be given back under
 * the table's lock. */

#include "protocol/protocol.h"

#include <stdio.h>
#include <string.h>

#include "core/quota/long_name.h"

const struct weir_protocol_taker weir_protocol_any_taker = {
    .identity = { .roles = WEIR_ROLES_ALL, .take = { .all = true } }
};

/* All listeners of an agent are counted and logged as one. */
static struct weir_caller caller_of(const struct weir_protocol_taker *taker)
{
    return (struct weir_caller){ .api = WEIR_API_HTTP,
                                 .address = taker->address,
                                 .listener = taker->listener };
}

static void count_error(const struct weir_protocol_host *host,
                        enum weir_protocol protocol,
                        enum weir_protocol_error error)
{
    weir_assert(protocol < WEIR_PROTOCOL_COUNT);
    weir_assert(error < WEIR_PROTOCOL_ERROR_COUNT);
    if (host->counts)
        host->counts->errors[protocol][error]++;
}

/* front/authorization.h has logged the others. */
static void note_not_admitted(const struct weir_protocol_host *host,
                              enum weir_protocol protocol, int error,
                              const char *peer, const char *why)
{
    if (error == WEIR_ENOMEM)
        weir_protocol_note(host, protocol, WEIR_PROTOCOL_FAILED, peer, why);
    else
        count_error(host, protocol,
                    error == WEIR_EDENIED ? WEIR_PROTOCOL_DENIED
                                          : WEIR_PROTOCOL_UNAUTHENTICATED);
}

int weir_protocol_admit(const struct weir_protocol_host *host,
                        const struct weir_conn *conn,
                        const struct weir_protocol_shown *shown,
                        struct weir_protocol_taker *out, struct weir_diag *diag,
                        weir_instant now)
{
    struct weir_tls_peer names;
    struct weir_identity identity;
    bool is_protected = weir_protocol_is_protected(host);
    *out = weir_protocol_any_taker;
    if (is_protected)
        out->identity = (struct weir_identity){ .roles = 0 };
    out->listener = weir_protocol_name(shown->protocol);
    snprintf(out->address, sizeof out->address, "%s", weir_conn_peer(conn));
    if (!is_protected)
        return 0;
    weir_conn_peer_names(conn, &names);
    struct weir_caller caller = caller_of(out);
    caller.names = &names;
    caller.authorization = shown->authorization;
    int error = weir_authorization_identify(host->authorizer, &caller,
                                            &identity, diag, now);
    if (error == 0)
        error = weir_authorization_admit(host->authorizer, &caller, &identity,
                                         shown->role, diag, now);
    if (error == 0)
        out->identity = identity;
    else if (shown->role == WEIR_ROLE_TAKE)
        note_not_admitted(host, shown->protocol, error, out->address,
                          diag->text);
    return error;
}

int weir_protocol_may(const struct weir_protocol_host *host,
                      const struct weir_protocol_taker *taker,
                      struct weir_text name, struct weir_diag *diag,
                      weir_instant now)
{
    if (taker->identity.take.all)
        return 0;
    weir_assert(weir_protocol_is_protected(host));
    const struct weir_caller caller = caller_of(taker);
    return weir_authorization_admit_name(host->authorizer, &caller,
                                         &taker->identity, name, diag, now);
}

/* ---- Errors ---- */

const char *weir_protocol_name(enum weir_protocol protocol)
{
    static const char *const names[] = {
        [WEIR_PROTOCOL_HTTP] = "http",
        [WEIR_PROTOCOL_RESP] = "resp",
        [WEIR_PROTOCOL_RLS] = "rls",
        [WEIR_PROTOCOL_RLQS] = "rlqs",
    };
    weir_assert(protocol < WEIR_PROTOCOL_COUNT);
    return names[protocol];
}

const char *weir_protocol_error_name(enum weir_protocol_error error)
{
    static const char *const names[] = {
        [WEIR_PROTOCOL_INVALID] = "invalid",
        [WEIR_PROTOCOL_DENIED] = "denied",
        [WEIR_PROTOCOL_TOO_BIG] = "too_big",
        [WEIR_PROTOCOL_NOT_READY] = "not_ready",
        [WEIR_PROTOCOL_UNAUTHENTICATED] = "unauthenticated",
        [WEIR_PROTOCOL_FAILED] = "failed",
    };
    weir_assert(error < WEIR_PROTOCOL_ERROR_COUNT);
    return names[error];
}

void weir_protocol_note(const struct weir_protocol_host *host,
                        enum weir_protocol protocol,
                        enum weir_protocol_error error, const char *peer,
                        const char *why)
{
    count_error(host, protocol, error);
    /* A denied name has a line of front/authorization.h. */
    if (host->log && error != WEIR_PROTOCOL_DENIED)
        weir_log_limited(
            host->log, (enum weir_log_kind)(WEIR_LOG_PROTOCOL + protocol),
            WEIR_LOG_WARNING, "%s: a request of %s is %s: %s",
            weir_protocol_name(protocol), peer,
            error == WEIR_PROTOCOL_TOO_BIG ? "limited" : "refused", why);
}

void weir_protocol_note_refused(const struct weir_protocol_host *host,
                                enum weir_protocol protocol, int error,
                                const char *peer, const char *why)
{
    weir_protocol_note(host, protocol,
                       error == WEIR_EDENIED     ? WEIR_PROTOCOL_DENIED
                       : error == WEIR_ENOTREADY ? WEIR_PROTOCOL_NOT_READY
                                                 : WEIR_PROTOCOL_INVALID,
                       peer, why);
}

/* ---- Before the first quotas ---- */

bool weir_protocol_is_ready(const struct weir_protocol_host *host)
{
    struct weir_status status;
    if (host->start && host->start->ready)
        return true;
    weir_status(host->weir, &status);
    bool ready = status.ready || status.roots == 0;
    if (host->start)
        host->start->ready = ready;
    return ready;
}

int weir_protocol_check_start(const struct weir_protocol_host *host,
                              struct weir_diag *diag)
{
    if (!host->start || host->start->passes || weir_protocol_is_ready(host))
        return 0;
    return weir_diag_put(diag, WEIR_ENOTREADY,
                         "no root has sent its quotas yet");
}

/* ---- Decisions ---- */

void weir_protocol_limit(struct weir_reply *out)
{
    memset(out, 0, sizeof *out);
    out->verdict = WEIR_LIMITED;
    out->never = true;
    out->retry_after = WEIR_NEVER;
}

static void count_verdict(const struct weir_protocol_host *host,
                          enum weir_verdict verdict)
{
    if (!host->counts)
        return;
    host->counts->limited += verdict == WEIR_LIMITED;
    host->counts->passed += verdict != WEIR_LIMITED;
}

/* Clients can't request names of the shadow set. */
int weir_protocol_check(const struct weir_protocol_host *host,
                        const struct weir_protocol_request *ask,
                        struct weir_diag *diag, weir_instant now)
{
    weir_assert(ask->taker);
    int error = weir_protocol_check_start(host, diag);
    if (error < 0)
        return error;
    if (weir_name_is_shadow(ask->name))
        return weir_diag_put(diag, WEIR_ENAME,
                             "a name that begins with "
                             "shadow: is of a set that isn't in force");
    error = weir_given_name_check(ask->name, diag);
    return error < 0 && error != WEIR_ETOOBIG
               ? error
               : weir_protocol_may(host, ask->taker, ask->name, diag, now);
}

int weir_protocol_decide(const struct weir_protocol_host *host,
                         const struct weir_protocol_request *ask,
                         struct weir_reply *out, struct weir_diag *diag,
                         weir_instant now)
{
    int error = weir_protocol_check(host, ask, diag, now);
    if (error < 0)
        return error;
    if (ask->peek) {
        (void)weir_peek_by_name(host->weir, ask->name.p, ask->name.len,
                                ask->weight, out, now);
        return 0;
    }
    (void)weir_take_by_name(host->weir, ask->name.p, ask->name.len, ask->weight,
                            out, now);
    count_verdict(host, out->verdict);
    return 0;
}

int weir_protocol_settle(const struct weir_protocol_host *host,
                         const struct weir_protocol_request *ask,
                         uint64_t *charged, uint64_t actual, bool *out_unknown,
                         struct weir_diag *diag, weir_instant now)
{
    int error = weir_protocol_check(host, ask, diag, now);
    if (error == 0)
        *out_unknown = !weir_settle_by_name(
            host->weir, ask->name.p, ask->name.len, charged, actual, now);
    return error;
}

int weir_protocol_enter(const struct weir_protocol_host *host,
                        const struct weir_protocol_request *ask, uint32_t klass,
                        struct weir_permit *out_permit, struct weir_reply *out,
                        struct weir_diag *diag, weir_instant now)
{
    weir_assert(!ask->peek);
    int error = weir_protocol_check(host, ask, diag, now);
    if (error < 0)
        return error;
    (void)weir_enter_by_name(host->weir, ask->name.p, ask->name.len, klass,
                             ask->weight, out_permit, out, now);
    count_verdict(host, out->verdict);
    return 0;
}
