/* SPDX-License-Identifier: MIT
 * store/postgres_session.h - a connection to PostgreSQL with a bound on every
 * wait and plain error messages. */

#ifndef WEIR_POSTGRES_SESSION_H
#define WEIR_POSTGRES_SESSION_H

#include <libpq-fe.h>

#include "store/store.h"

/* How long a cut network or a stopped server can delay a call: connecting (to
 * each address of the URL), unacknowledged bytes, an answer. The server ends
 * the wait for a lock. The URL can override the first two. */
#define WEIR_SESSION_CONNECT_S "5"
#define WEIR_SESSION_UNACKED_MS "8000"
#define WEIR_SESSION_ANSWER_MS 20000
#define WEIR_SESSION_LOCK_MS "2000"
/* How long a transaction may be idle before the server ends it, so that a root
 * on a dead machine doesn't lock out the others. */
#define WEIR_SESSION_IDLE_MS "30000"

struct weir_session {
    PGconn *connection;
    bool lost;                       /* the session is unusable */
    char shown[WEIR_STORE_SHOW_MAX]; /* the URL without password */
};

/* Connects; 'where' is the URL behind "postgres:". A session that can't write
 * (a standby) is refused. Must be closed only on success. */
int weir_session_open(struct weir_session *session, const char *where,
                      struct weir_diag *diag);
void weir_session_close(struct weir_session *session);

/* Runs one statement with 'count' parameters as texts (NULL: NULL). The caller
 * PQclear()s '*out_result' ('out_result' NULL: not wanted). WEIR_ELOCKED,
 * WEIR_EEXIST (the object to create exists), WEIR_ENOMEM, WEIR_ESTORE. */
int weir_session_run(struct weir_session *session, const char *sql,
                     const char *const *values, int count,
                     PGresult **out_result, struct weir_diag *diag);

/* Whether a notification came since the last call, or the connection is lost.
 * Doesn't wait. */
bool weir_session_news(struct weir_session *session);

#endif /* WEIR_POSTGRES_SESSION_H */
