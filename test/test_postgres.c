/* SPDX-License-Identifier: MIT
 * test/test_postgres.c - the PostgreSQL store under the suite, and what only a
 * server can suffer. Runs beside a server of its own (postgres.py). */

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <libpq-fe.h>

#include "store/store.h"
#include "store_suite.h"

#define PASSWORD "open-sesame"
#define PATIENCE_MS 60000
#define URL_MAX 512

/* ---- The server ----------------------------------------------------- */

/* Asks postgres.py for something, and waits until it is done. */
__attribute__((unused)) static void control(char verb)
{
    const char *fd = getenv("WEIR_POSTGRES_CONTROL");
    assert_non_null(fd);
    char answer = 0;
    assert_int_equal(send(atoi(fd), &verb, 1, 0), 1);
    assert_int_equal(recv(atoi(fd), &answer, 1, 0), 1);
    assert_int_equal(answer, verb);
}

/* The server's URL with another database. */
static void url_of(const char *database, char *url, size_t size)
{
    const char *server = getenv("WEIR_POSTGRES_URL");
    assert_non_null(server);
    assert_non_null(strstr(server, PASSWORD));
    int len = (int)(strrchr(server, '/') - server);
    snprintf(url, size, "%.*s/%s", len, server, database);
}

static PGconn *connect_to(const char *url)
{
    PGconn *connection = PQconnectdb(url);
    if (PQstatus(connection) != CONNECTION_OK)
        fail_msg("%s", PQerrorMessage(connection));
    return connection;
}

static void sql_on(PGconn *connection, const char *statements)
{
    PGresult *result = PQexec(connection, statements);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", statements, PQerrorMessage(connection));
    PQclear(result);
}

static void sql(const char *url, const char *statements)
{
    PGconn *connection = connect_to(url);
    sql_on(connection, statements);
    PQfinish(connection);
}

/* The first value of a row. */
static long ask(PGconn *connection, const char *question)
{
    PGresult *result = PQexec(connection, question);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", question, PQerrorMessage(connection));
    long answer = atol(PQgetvalue(result, 0, 0));
    PQclear(result);
    return answer;
}

/* Asks until the answer is 'wanted'. */
static void until(PGconn *connection, const char *question, long wanted)
{
    for (int ms = 0; ask(connection, question) != wanted; ms += 2) {
        if (ms > PATIENCE_MS)
            fail_msg("never %ld: %s", wanted, question);
        poll(NULL, 0, 2);
    }
}

static void make_url(char *url, size_t size)
{
    static int number;
    char server[URL_MAX];
    char name[32];
    char statement[64];
    snprintf(name, sizeof(name), "store%d", ++number);
    snprintf(statement, sizeof(statement), "CREATE DATABASE %s", name);
    url_of("postgres", server, sizeof(server));
    sql(server, statement);
    url_of(name, url, size);
}

static void clean(const char *url)
{
    char server[URL_MAX];
    char statement[64];
    snprintf(statement, sizeof(statement),
             "DROP DATABASE %s WITH (FORCE)", strrchr(url, '/') + 1);
    url_of("postgres", server, sizeof(server));
    sql(server, statement);
}

/* Until no transaction of a client that is gone is under way. */
static void settle(const char *url)
{
    PGconn *connection = connect_to(url);
    until(connection, "SELECT count(*) FROM pg_stat_activity WHERE datname ="
          " current_database() AND pid <> pg_backend_pid()"
          " AND state <> 'idle'", 0);
    PQfinish(connection);
}

static void set_epoch(const char *url, uint64_t epoch)
{
    char statement[80];
    snprintf(statement, sizeof(statement),
             "UPDATE weir.weir_meta SET epoch = %llu",
             (unsigned long long)epoch);
    sql(url, statement);
}

static const struct store_under_test postgres_store = {
    .name = "postgres",
    .make_url = make_url,
    .clean = clean,
    .settle = settle,
    .set_epoch = set_epoch,
};

int main(void)
{
    return store_suite_run(&postgres_store);
}
