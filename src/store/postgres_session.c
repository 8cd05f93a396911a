/* SPDX-License-Identifier: MIT
 * store/postgres_session.c - a connection to PostgreSQL with a bound on every
 * wait.
 *
 * libpq's own PQexec() waits for an answer while the TCP connection lasts,
 * which is for ever if the server's machine is alive but its processes are
 * stopped, or its disk hangs. Therefore statements are sent, and the answer is
 * polled for with a time limit. After it the session is lost, since the server
 * may still execute the statement or not. Keepalives and TCP_USER_TIMEOUT
 * detect a cut network, keepalives also in an idle session.
 *
 * libpq's messages about a connection string may hold parts of it, the password
 * among them; ours never repeat those. Of its other messages only the first
 * line is used: further lines are hints about starting servers. */

#include "store/postgres_session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/quota/quota_text.h"

/* ---- Errors --------------------------------------------------------- */

static int refuse_session_memory(struct weir_session *session,
                                 struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ENOMEM,
                         "there is no memory for the quota store ",
                         session->shown, NULL);
}

static int refuse_read_only(struct weir_session *session,
                            struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", session->shown,
                         " is read-only (a standby?); name the server "
                         "that takes writes, or all of them: 'host=A,B'",
                         NULL);
}

/* The first line of a message, in 'buf'. */
static const char *first_line(const char *message, char *buf, size_t size)
{
    snprintf(buf, size, "%.*s", (int)strcspn(message, "\n"), message);
    return buf;
}

static int refuse_lost(struct weir_session *session, const char *why,
                       struct weir_diag *diag)
{
    char line[WEIR_DIAG_MAX];
    session->lost = true;
    return weir_diag_set(
        diag, WEIR_ESTORE, "the connection to the quota store ", session->shown,
        " is lost: ", first_line(why, line, sizeof(line)), NULL);
}

/* Reports the server's error about a statement. */
static int refuse_result(struct weir_session *session, const PGresult *result,
                         struct weir_diag *diag)
{
    static const struct {
        const char *state;
        int error;
        const char *before;
        const char *after;
    } known[] = {
        { "55P03", WEIR_ELOCKED, "the quota store ",
          " is locked by another process; nothing was changed. Try "
          "again once it lets go (pg_stat_activity names it)" },
        { "53100", WEIR_ESTORE,
          "there is no room on the disk of the quota store ",
          "; nothing was changed" },
        { "42P06", WEIR_EEXIST, "there is a quota store in ", " already" },
        { "42P07", WEIR_EEXIST, "there is a quota store in ", " already" },
    };
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    for (size_t i = 0; state && i < WEIR_COUNT_OF(known); i++) {
        if (strcmp(state, known[i].state) == 0)
            return weir_diag_set(diag, known[i].error, known[i].before,
                                 session->shown, known[i].after, NULL);
    }
    if (state && strcmp(state, "25006") == 0)
        return refuse_read_only(session, diag);
    const char *why = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    return weir_diag_set(
        diag, WEIR_ESTORE, "the quota store ", session->shown,
        " can't be used: ", why ? why : "the server gives no reason", NULL);
}

/* ---- Statements ----------------------------------------------------- */

static int wait_for_server(struct weir_session *session, short events,
                           struct weir_diag *diag)
{
    struct pollfd fd = { PQsocket(session->connection), events, 0 };
    int ready;
    do
        ready = poll(&fd, 1, WEIR_SESSION_ANSWER_MS);
    while (ready < 0 && errno == EINTR);
    if (ready < 0)
        return refuse_lost(session, strerrordesc_np(errno), diag);
    if (ready == 0)
        return refuse_lost(session, "the server doesn't answer", diag);
    return 0;
}

/* Sends the queued bytes; meanwhile it may have to read from the server. */
static int flush_session(struct weir_session *session, struct weir_diag *diag)
{
    for (;;) {
        int left = PQflush(session->connection);
        if (left == 0)
            return 0;
        int error =
            left < 0 ? -1 : wait_for_server(session, POLLIN | POLLOUT, diag);
        if (left < 0 || (error == 0 && !PQconsumeInput(session->connection)))
            error =
                refuse_lost(session, PQerrorMessage(session->connection), diag);
        if (error < 0)
            return error;
    }
}

/* The next result; NULL after the last. */
static int next_result(struct weir_session *session, PGresult **out,
                       struct weir_diag *diag)
{
    while (PQisBusy(session->connection)) {
        int error = wait_for_server(session, POLLIN, diag);
        if (error < 0)
            return error;
        if (!PQconsumeInput(session->connection))
            return refuse_lost(session, PQerrorMessage(session->connection),
                               diag);
    }
    *out = PQgetResult(session->connection);
    return 0;
}

/* The single result of a statement; the rest is read and dropped. A server that
 * shuts down reports it in a result, and then the connection ends. */
static int only_result(struct weir_session *session, PGresult **out,
                       struct weir_diag *diag)
{
    PGresult *first = NULL;
    for (;;) {
        PGresult *result = NULL;
        int error = next_result(session, &result, diag);
        if (error < 0) {
            PQclear(first);
            return error;
        }
        if (!result)
            break;
        if (first)
            PQclear(result);
        else
            first = result;
    }
    *out = first;
    return 0;
}

static int check_result(struct weir_session *session, const PGresult *result,
                        struct weir_diag *diag)
{
    if (!result || PQstatus(session->connection) != CONNECTION_OK)
        return refuse_lost(session,
                           result ? PQresultErrorMessage(result)
                                  : PQerrorMessage(session->connection),
                           diag);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
        return 0;
    return refuse_result(session, result, diag);
}

int weir_session_run(struct weir_session *session, const char *sql,
                     const char *const *values, int count,
                     PGresult **out_result, struct weir_diag *diag)
{
    if (session->lost)
        return refuse_lost(session, "it must be opened anew", diag);
    PGresult *result = NULL;
    int error = 0;
    if (!PQsendQueryParams(session->connection, sql, count, NULL, values, NULL,
                           NULL, 0))
        error = refuse_lost(session, PQerrorMessage(session->connection), diag);
    if (error == 0)
        error = flush_session(session, diag);
    if (error == 0)
        error = only_result(session, &result, diag);
    if (error == 0)
        error = check_result(session, result, diag);
    if (error == 0 && out_result)
        *out_result = result;
    else
        PQclear(result);
    return error;
}

bool weir_session_news(struct weir_session *session)
{
    if (!session->lost && (!PQconsumeInput(session->connection) ||
                           PQstatus(session->connection) != CONNECTION_OK))
        session->lost = true;
    bool news = session->lost;
    for (;;) {
        PGnotify *notify = PQnotifies(session->connection);
        if (!notify)
            return news;
        news = true;
        PQfreemem(notify);
    }
}

/* ---- Life ----------------------------------------------------------- */

static void ignore_notice(void *context, const PGresult *notice)
{
    (void)context;
    (void)notice;
}

static int check_string(const char *string, struct weir_diag *diag)
{
    char *why = NULL;
    PQconninfoOption *parsed = PQconninfoParse(string, &why);
    /* Without memory libpq may have none for its message either. */
    bool scarce = !parsed && (!why || strstr(why, "out of memory"));
    PQfreemem(why);
    PQconninfoFree(parsed);
    if (parsed)
        return 0;
    if (scarce)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    return weir_diag_put(
        diag, WEIR_EINVAL,
        "the text behind 'postgres:' isn't understood; write "
        "postgres://USER@HOST:PORT/DATABASE or 'postgres:host=HOST "
        "dbname=DATABASE', and %xx for special characters in a URL");
}

static int refuse_connection(struct weir_session *session,
                             struct weir_diag *diag)
{
    const char *why = PQerrorMessage(session->connection);
    char line[WEIR_DIAG_MAX];
    if (strstr(why, "session is read-only") ||
        strstr(why, "server is in hot standby mode"))
        return refuse_read_only(session, diag);
    return weir_diag_set(diag, WEIR_ESTORE, "can't reach the quota store ",
                         session->shown, ": ",
                         first_line(why, line, sizeof(line)), NULL);
}

static int connect_session(struct weir_session *session, const char *string,
                           struct weir_diag *diag)
{
    /* Keys before 'dbname' are defaults, which the string may override. */
    static const char *const keys[] = { "connect_timeout",
                                        "tcp_user_timeout",
                                        "keepalives_idle",
                                        "keepalives_interval",
                                        "keepalives_count",
                                        "target_session_attrs",
                                        "dbname",
                                        "client_encoding",
                                        "fallback_application_name",
                                        NULL };
    const char *const values[] = { WEIR_SESSION_CONNECT_S,
                                   WEIR_SESSION_UNACKED_MS,
                                   "4",
                                   "2",
                                   "2",
                                   "read-write",
                                   string,
                                   "UTF8",
                                   "weir",
                                   NULL };
    int error = check_string(string, diag);
    if (error < 0)
        return error;
    session->connection = PQconnectdbParams(keys, values, 1);
    if (!session->connection)
        return refuse_session_memory(session, diag);
    if (PQstatus(session->connection) != CONNECTION_OK)
        return refuse_connection(session, diag);
    PQsetNoticeReceiver(session->connection, ignore_notice, NULL);
    if (PQsetnonblocking(session->connection, 1) < 0)
        return refuse_session_memory(session, diag);
    return 0;
}

/* Commits wait for the disk whatever the database's default is: losing a
 * confirmed edit in a power failure would set the epoch back. */
static int prepare_pg_session(struct weir_session *session,
                              struct weir_diag *diag)
{
    const char *encoding =
        PQparameterStatus(session->connection, "server_encoding");
    if (!encoding || strcmp(encoding, "UTF8") != 0)
        return weir_diag_set(
            diag, WEIR_ESTORE, "the database of the quota store ",
            session->shown, " has the encoding ", encoding ? encoding : "?",
            "; make one with 'createdb --encoding UTF8 --template template0'",
            NULL);
    return weir_session_run(
        session,
        "SELECT set_config('search_path', 'pg_catalog', false), "
        "set_config('lock_timeout', '" WEIR_SESSION_LOCK_MS "', false),"
        " set_config('statement_timeout', '0', false),"
        " set_config('idle_in_transaction_session_timeout',"
        " '" WEIR_SESSION_IDLE_MS "', false), set_config('synchronous_commit', "
        "CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE "
        "current_setting('synchronous_commit') END, false)",
        NULL, 0, NULL, diag);
}

int weir_session_open(struct weir_session *session, const char *where,
                      struct weir_diag *diag)
{
    static const char scheme[] = "postgres:";
    *session = (struct weir_session){ .lost = false };
    char *url;
    if (asprintf(&url, "%s%s", scheme, where) < 0)
        return refuse_session_memory(session, diag);
    weir_store_show(url, session->shown);
    /* libpq's URLs begin with our scheme, its connection strings don't. */
    bool is_url = strncmp(where, "//", 2) == 0;
    int error = connect_session(session, is_url ? url : where, diag);
    if (error == 0)
        error = prepare_pg_session(session, diag);
    free(url);
    if (error < 0)
        weir_session_close(session);
    return error;
}

void weir_session_close(struct weir_session *session)
{
    PQfinish(session->connection);
    session->connection = NULL;
}
