/* SPDX-License-Identifier: MIT
 * protocol/protocol.h - the interface between foreign protocols and their host.
 *
 * A listener of this folder serves a foreign protocol (HTTP, that of Redis, …)
 * to programs that don't use libweir. It decides as they would: the host gives
 * it a limiter, and it calls weir_take_by_name() and its like, on this
 * process's own memory. A listener knows no roots, no quotas and no other
 * listener; it owns its connections and the state that its protocol needs.
 *
 *     weir agent                weir serve
 *     a limiter: weir_open()    a limiter linked to this very root
 *              \                  /
 *               struct weir_protocol_host --> http_take, resp_listener, …
 *
 * Each protocol has a type of its own, and all have the same life cycle:
 *
 *     weir_X_new(&host, &options, &x, &diag)   listens
 *     weir_X_place(x)                          its listen address and port
 *     weir_X_recheck(x)                        credentials or certificates
 *                                              were reloaded
 *     weir_X_free(&x)
 *
 * A listener never blocks for long: it doesn't call weir_wait(), and an exact
 * quota's store blocks the loop for its deadline at most. All on the loop's
 * thread. */

#ifndef WEIR_PROTOCOL_H
#define WEIR_PROTOCOL_H

#include "front/authorization.h"
#include "front/log.h"
#include "io/conn.h"

struct event_base;

/* Connections of a listener at once. One more evicts an unauthenticated one; if
 * there is none, it is refused. */
#define WEIR_PROTOCOL_CONNS_MAX 12288

/* A client that was admitted. A plain value. */
struct weir_protocol_taker {
    struct weir_identity identity;
    char address[WEIR_PEER_MAX]; /* "127.0.0.1:41234", "unix" */
    const char *listener;        /* its protocol's name; static */
};
/* The taker if no credentials are in force: it may take from all names. */
extern const struct weir_protocol_taker weir_protocol_any_taker;

/* The protocols, as they are counted. */
enum weir_protocol {
    WEIR_PROTOCOL_HTTP,
    WEIR_PROTOCOL_RESP,
    WEIR_PROTOCOL_RLS,
    WEIR_PROTOCOL_RLQS,
    WEIR_PROTOCOL_COUNT
};
/* Why a request got no decision by a quota. */
enum weir_protocol_error {
    WEIR_PROTOCOL_INVALID,   /* it can't be read, or isn't allowed by the
                              * protocol: answered with an error */
    WEIR_PROTOCOL_DENIED,    /* the credential may not take from the name */
    WEIR_PROTOCOL_TOO_BIG,   /* over a bound: limited */
    WEIR_PROTOCOL_NOT_READY, /* no quotas have come yet */
    WEIR_PROTOCOL_UNAUTHENTICATED, /* no known credential was shown */
    WEIR_PROTOCOL_FAILED,          /* no memory, or the connection is too slow
                                    * for the answer */
    WEIR_PROTOCOL_ERROR_COUNT
};

/* How a descriptor of Envoy's was decided. */
enum weir_rls_outcome {
    WEIR_RLS_OUTCOME_OK,
    WEIR_RLS_OUTCOME_OVER,
    WEIR_RLS_OUTCOME_SHADOW,  /* passed; a quota in mode shadow was over */
    WEIR_RLS_OUTCOME_UNKNOWN, /* passed: no limit rules it */
    WEIR_RLS_OUTCOME_COUNT
};

/* Verdicts of weir_protocol_decide(), without peeks, and errors. */
struct weir_protocol_counts {
    uint64_t passed, limited;
    uint64_t errors[WEIR_PROTOCOL_COUNT][WEIR_PROTOCOL_ERROR_COUNT];
    /* Envoy's rate limit service, by gRPC and JSON. */
    uint64_t rls_calls[2]; /* answered: OK, OVER_LIMIT */
    uint64_t rls_descriptors[WEIR_RLS_OUTCOME_COUNT];
    uint64_t rls_loads[2]; /* of the file of limits: failed, read */
};
/* "rls", "invalid": as labels of metrics. */
const char *weir_protocol_name(enum weir_protocol protocol);
const char *weir_protocol_error_name(enum weir_protocol_error error);

/* The rule before the first quotas. All listeners of a process share it. */
struct weir_protocol_start {
    bool passes; /* all requests pass; else they are refused: WEIR_ENOTREADY */
    bool ready;  /* the quotas have come */
};

/* Given to each listener; borrowed for the listener's life. */
struct weir_protocol_host {
    struct event_base *base;
    struct weir *weir;
    const char *version;                 /* Weir's version; static */
    struct weir_protocol_counts *counts; /* borrowed; NULL: not counted */
    struct weir_log *log;                /* borrowed; NULL: errors aren't
                                          * logged */
    struct weir_protocol_start *start;   /* borrowed; NULL: as 'passes' */
    /* borrowed; NULL, or without credentials in force: every peer may do all */
    struct weir_authorization *authorizer;
    struct weir_conn_tls tls; /* TLS of the listener, at addresses */
    struct weir_accept_short on_short;
    /* of each listener; 0: WEIR_PROTOCOL_CONNS_MAX. Lower if the system
     * gives fewer descriptors */
    size_t conns_max;
    const char *public_origin; /* of its pages, if that isn't the listener's own
                                * address (io/origin.h); borrowed; or NULL */
};

/* Whether credentials are in force. */
static inline bool weir_protocol_is_protected(
    const struct weir_protocol_host *host)
{
    return host->authorizer && weir_authorization_is_required(host->authorizer);
}

/* For struct weir_conn_options. */
static inline size_t weir_protocol_conns_max(
    const struct weir_protocol_host *host)
{
    return host->conns_max ? host->conns_max : WEIR_PROTOCOL_CONNS_MAX;
}

/* Likewise: how long a connection may last without showing a credential. */
static inline weir_duration weir_protocol_unauthenticated_max(
    const struct weir_protocol_host *host)
{
    return weir_protocol_is_protected(host) ? WEIR_UNAUTHENTICATED_MAX : 0;
}

/* A credential that a peer shows for a role. */
struct weir_protocol_shown {
    enum weir_protocol protocol;
    enum weir_role role;
    const char *authorization; /* "Bearer …"; "": none; not NULL */
};
/* Whether the connection's peer has the role, by the header shown and its
 * certificate, if any: 0, WEIR_ECREDENTIAL, WEIR_EDENIED or WEIR_ENOMEM with
 * 'diag' filled, logged, and counted if the role is WEIR_ROLE_TAKE. Without
 * credentials in force 0, and '*out' is as weir_protocol_any_taker, but has the
 * peer's address. On an error
 * '*out' allows no name. It may be slow: a listener calls it once per
 * connection, or once per request if the protocol shows a credential with
 * each. */
int weir_protocol_admit(const struct weir_protocol_host *host,
                        const struct weir_conn *conn,
                        const struct weir_protocol_shown *shown,
                        struct weir_protocol_taker *out, struct weir_diag *diag,
                        weir_instant now);
/* Whether the taker may take from 'name': 0, or WEIR_EDENIED with 'diag'
 * filled, counted and logged. weir_protocol_check() calls it; code that decides
 * without weir_protocol_check() must call it. */
int weir_protocol_may(const struct weir_protocol_host *host,
                      const struct weir_protocol_taker *taker,
                      struct weir_text name, struct weir_diag *diag,
                      weir_instant now);

/* Counts an error, and logs it, limited by its protocol. 'peer': the client's
 * address; 'why': the sentence that it gets. */
void weir_protocol_note(const struct weir_protocol_host *host,
                        enum weir_protocol protocol,
                        enum weir_protocol_error error, const char *peer,
                        const char *why);
/* The same for an error of weir_protocol_decide() and its like. */
void weir_protocol_note_refused(const struct weir_protocol_host *host,
                                enum weir_protocol protocol, int error,
                                const char *peer, const char *why);

/* 0, or WEIR_ENOTREADY with 'diag' filled: no root has sent its quotas yet, and
 * requests are refused until then. The functions below call it. */
int weir_protocol_check_start(const struct weir_protocol_host *host,
                              struct weir_diag *diag);
/* Whether the limiter has quotas, or no root. */
bool weir_protocol_is_ready(const struct weir_protocol_host *host);

/* A request for a decision, in any protocol. */
struct weir_protocol_request {
    struct weir_text name;
    uint64_t weight;
    bool peek;                               /* charges nothing */
    const struct weir_protocol_taker *taker; /* never NULL (asserted) */
};
/* Whether 'ask' is valid and allowed; the errors are those of
 * weir_protocol_decide(). */
int weir_protocol_check(const struct weir_protocol_host *host,
                        const struct weir_protocol_request *ask,
                        struct weir_diag *diag, weir_instant now);
/* Decides. WEIR_ENAME, with 'diag' filled, for an invalid name, WEIR_EDENIED
 * for a name that the taker may not take from, WEIR_ENOTREADY as above. A name
 * without quota passes, and the reply says so. A name over WEIR_GIVEN_NAME_MAX
 * bytes is limited; a protocol with shorter requests has a bound of its own,
 * over which it limits, or answers an error if it can do no better. */
int weir_protocol_decide(const struct weir_protocol_host *host,
                         const struct weir_protocol_request *ask,
                         struct weir_reply *out, struct weir_diag *diag,
                         weir_instant now);

/* For work of a cost known afterwards: charges or gives back the difference
 * between '*charged', the units charged for it so far, and 'actual', as
 * weir_settle_by_name(). 'ask' has a name and a taker. '*out_unknown': the name
 * has no quota, and nothing changed. Errors as above. */
int weir_protocol_settle(const struct weir_protocol_host *host,
                         const struct weir_protocol_request *ask,
                         uint64_t *charged, uint64_t actual, bool *out_unknown,
                         struct weir_diag *diag, weir_instant now);

/* The reply of a request that no quota can decide, and that is limited. */
void weir_protocol_limit(struct weir_reply *out);

/* Takes units and holds them in 'out_permit', as weir_enter(). 'klass' is a
 * weir_class() or 0; no peeks. Errors as above; nothing is held then. */
int weir_protocol_enter(const struct weir_protocol_host *host,
                        const struct weir_protocol_request *ask, uint32_t klass,
                        struct weir_permit *out_permit, struct weir_reply *out,
                        struct weir_diag *diag, weir_instant now);

#endif /* WEIR_PROTOCOL_H */
