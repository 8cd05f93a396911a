/* SPDX-License-Identifier: MIT
 * store/postgres_session.h - a connection to PostgreSQL that waits for nothing
 * without a bound, and says in plain words what went wrong. */

#ifndef WEIR_POSTGRES_SESSION_H
#define WEIR_POSTGRES_SESSION_H

#include <libpq-fe.h>

#include "store/store.h"

/* How long a cut network or a server that is stopped can hold up a call:
 * making a connection (to each address that the URL gives), what was sent and
 * isn't acknowledged, an answer. A lock is the server's to give up. The
 * first two can be set otherwise in the URL. */
#define WEIR_SESSION_CONNECT_S "5"
#define WEIR_SESSION_UNACKED_MS "8000"
#define WEIR_SESSION_ANSWER_MS 20000
#define WEIR_SESSION_LOCK_MS "2000"
/* How long the server lets us stop in the middle of a transaction, so that a
 * root whose machine is gone doesn't lock everybody else out. */
#define WEIR_SESSION_IDLE_MS "30000"

struct weir_session {
    PGconn *connection;
    bool lost;                       /* nothing can be done with it any more */
    char shown[WEIR_STORE_SHOW_MAX]; /* the URL without password */
};

/* Connects; 'where' is what follows "postgres:" in a URL. A session that
 * can't write (a standby) is refused. Must be closed only on success. */
int weir_session_open(struct weir_session *session, const char *where,
                      struct weir_diag *diag);
void weir_session_close(struct weir_session *session);

/* Runs one statement with 'count' parameters as texts (NULL: NULL).
 * '*out_result' (NULL: not wanted) is the caller's to PQclear(). WEIR_ELOCKED,
 * WEIR_EEXIST (what should be made is there), WEIR_ENOMEM, WEIR_ESTORE. */
int weir_session_run(struct weir_session *session, const char *sql,
                     const char *const *values, int count,
                     PGresult **out_result, struct weir_diag *diag);

/* Whether somebody notified us since the last call, or the connection is
 * lost. Doesn't wait. */
bool weir_session_news(struct weir_session *session);

#endif /* WEIR_POSTGRES_SESSION_H */
