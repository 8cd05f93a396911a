/* SPDX-License-Identifier: MIT
 * test/store/test_postgres.c - the PostgreSQL store under the suite, and
 * failures that only a server has. Runs beside a server of its own
 * (postgres.py). */

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

#include "compare.h"
#include "io/clock.h"
#include "patience.h"
#include "quota_maker.h"
#include "store/postgres_session.h"
#include "store/store.h"
#include "store_old.h"
#include "store_suite.h"
#include "store_suite_leased.h"
#include "store_suite_lineage.h"
#include "store_suite_presence.h"

#define PASSWORD "open-sesame"
#define PATIENCE_MS 60000
#define URL_MAX 512

/* ---- The server ----------------------------------------------------- */

/* Sends postgres.py a command, and waits until it is done. */
static void control(char verb)
{
    const char *fd = getenv("WEIR_POSTGRES_CONTROL");
    assert_non_null(fd);
    char answer = 0;
    struct pollfd done = { .fd = atoi(fd), .events = POLLIN };
    assert_int_equal(send(done.fd, &verb, 1, 0), 1);
    assert_int_equal(poll(&done, 1, PATIENCE_MS), 1);
    assert_int_equal(recv(done.fd, &answer, 1, 0), 1);
    assert_int_equal(answer, verb);
}

/* The server's URL with another database. On a busy machine a server may be
 * late by more than a store's default time-out of five seconds. */
static void url_of(const char *database, char *url, size_t size)
{
    const char *server = getenv("WEIR_POSTGRES_URL");
    assert_non_null(server);
    assert_non_null(strstr(server, PASSWORD));
    int len = (int)(strrchr(server, '/') - server);
    snprintf(url, size, "%.*s/%s?connect_timeout=60", len, server, database);
}

/* The database in a URL; valid until the next call. */
static const char *database_of(const char *url)
{
    static char name[64];
    const char *begin = strrchr(url, '/') + 1;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(begin, "?"), begin);
    return name;
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

/* Repeats the query until the answer is 'wanted'. */
static void until(PGconn *connection, const char *question, long wanted)
{
    for (int ms = 0; ask(connection, question) != wanted; ms += 2) {
        if (ms > PATIENCE_MS)
            fail_msg("never %ld: %s", wanted, question);
        poll(NULL, 0, 2);
    }
}

/* A database that was never used. */
static void make_database(char *url, size_t size)
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

static void drop_database(const char *url)
{
    char server[URL_MAX];
    char statement[128];
    snprintf(statement, sizeof(statement), "DROP DATABASE %s WITH (FORCE)",
             database_of(url));
    url_of("postgres", server, sizeof(server));
    sql(server, statement);
}

/* Databases of the suite are reused: to make and to drop one is most of a
 * test's cost. */
static struct {
    char url[URL_MAX]; /* "": not made yet */
    bool is_used;
} pool[8];

static void make_url(char *url, size_t size)
{
    size_t i = 0;
    while (pool[i].is_used)
        assert_compare(++i, <, WEIR_COUNT_OF(pool));
    if (pool[i].url[0] == '\0')
        make_database(pool[i].url, sizeof(pool[i].url));
    pool[i].is_used = true;
    snprintf(url, size, "%s", pool[i].url);
}

static void clean(const char *url)
{
    sql(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
             " WHERE datname = current_database()"
             " AND pid <> pg_backend_pid();"
             "SET client_min_messages = error;"
             "DROP SCHEMA IF EXISTS weir CASCADE");
    for (size_t i = 0; i < WEIR_COUNT_OF(pool); i++)
        if (strcmp(pool[i].url, url) == 0)
            pool[i].is_used = false;
}

/* Waits until no transaction of a dead client is under way. */
static void settle(const char *url)
{
    PGconn *connection = connect_to(url);
    until(connection,
          "SELECT count(*) FROM pg_stat_activity WHERE datname ="
          " current_database() AND pid <> pg_backend_pid()"
          " AND state <> 'idle'",
          0);
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

static void reap(const char *url, uint64_t count)
{
    char statements[300];
    snprintf(statements, sizeof(statements),
             "INSERT INTO weir.weir_tombstones (name, epoch) SELECT 't' || i,"
             " i FROM generate_series(1, %llu) i;"
             "UPDATE weir.weir_meta SET epoch = %llu",
             (unsigned long long)count, (unsigned long long)count);
    sql(url, statements);
}

static const struct store_under_test postgres_store = {
    .name = "postgres",
    .make_url = make_url,
    .clean = clean,
    .settle = settle,
    .set_epoch = set_epoch,
    .reap = reap,
};

/* ---- Failures that only a server has --------------------------------- */

struct fixture {
    char url[URL_MAX];
    struct weir_store *store;
    struct weir_diag diag;
    uint64_t epoch;
};

static struct fixture *fixture_new(void (*make)(char *url, size_t size))
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    make(fixture->url, sizeof(fixture->url));
    if (weir_store_init(fixture->url, &fixture->diag) < 0 ||
        weir_store_open(fixture->url, &fixture->store, &fixture->diag) < 0)
        fail_msg("%s", fixture->diag.text);
    return fixture;
}

static void fixture_free(struct fixture *fixture,
                         void (*give_back)(const char *url))
{
    weir_store_close(fixture->store);
    give_back(fixture->url);
    free(fixture);
}

static int set_up(void **state)
{
    *state = fixture_new(make_url);
    return 0;
}

static int tear_down(void **state)
{
    fixture_free(*state, clean);
    return 0;
}

/* For a test that changes more of its database than the schema of Weir. */
static int set_up_alone(void **state)
{
    *state = fixture_new(make_database);
    return 0;
}

static int tear_down_alone(void **state)
{
    fixture_free(*state, drop_database);
    return 0;
}

static int edit(struct fixture *fixture, const char *name)
{
    struct weir_change change = { .removed = false };
    weir_quota_init(&change.quota);
    change.quota.name = weir_text_of(name);
    const struct weir_edit edit = { .changes = &change, .count = 1 };
    fixture->diag.text[0] = '\0';
    return weir_store_edit(fixture->store, &edit, &fixture->epoch,
                           &fixture->diag);
}

static int reopen(struct fixture *fixture)
{
    weir_store_close(fixture->store);
    fixture->store = NULL;
    fixture->diag.text[0] = '\0';
    return weir_store_open(fixture->url, &fixture->store, &fixture->diag);
}

static int count_one(void *context, const struct weir_change *change)
{
    (void)change;
    ++*(size_t *)context;
    return 0;
}

static size_t count_changes(struct weir_store *store)
{
    struct weir_diag diag;
    size_t count = 0;
    if (weir_store_read(store, 0, count_one, &count, NULL, &diag) < 0)
        fail_msg("%s", diag.text);
    return count;
}

/* A thread that harms the server while an edit waits for a lock. */
struct killer {
    PGconn *connection; /* opened before the edit begins to wait */
    pthread_t thread;
};

/* The waiting process is stopped at once: it gives up after two seconds, and to
 * kill them all takes a while on a busy machine. */
static void *kill_when_it_waits(void *argument)
{
    struct killer *killer = argument;
    long waits = 0;
    for (int ms = 0; waits == 0 && ms < PATIENCE_MS; ms++) {
        waits = ask(killer->connection, "SELECT coalesce(min(pid), 0) FROM"
                                        " pg_locks WHERE NOT granted");
        poll(NULL, 0, 1);
    }
    if (waits > 0)
        kill((pid_t)waits, SIGSTOP);
    control('k');
    PQfinish(killer->connection);
    return NULL;
}

static void start_killer(struct killer *killer, const char *url)
{
    killer->connection = connect_to(url);
    assert_int_equal(
        pthread_create(&killer->thread, NULL, kill_when_it_waits, killer), 0);
}

/* The quota is written, the log's entry waits; then the server dies. */
static void killed_in_the_middle_of_an_edit(void **state)
{
    struct fixture *fixture = *state;
    struct killer killer;
    assert_int_equal(edit(fixture, "a"), 0);
    PGconn *other = connect_to(fixture->url);
    sql_on(other, "BEGIN; LOCK TABLE weir.weir_log IN EXCLUSIVE MODE");
    while (weir_store_changed(fixture->store))
        continue;
    start_killer(&killer, fixture->url);
    assert_int_equal(edit(fixture, "b"), WEIR_ESTORE);
    PATIENTLY(pthread_join(killer.thread, NULL));
    PQfinish(other);
    assert_non_null(strstr(fixture->diag.text, "is lost"));
    assert_null(strstr(fixture->diag.text, PASSWORD));
    assert_true(weir_store_changed(fixture->store));
    assert_int_equal(reopen(fixture), WEIR_ESTORE);
    assert_non_null(strstr(fixture->diag.text, "can't reach"));
    assert_null(strstr(fixture->diag.text, PASSWORD));
    control('s');
    assert_int_equal(reopen(fixture), 0);
    assert_int_equal(count_changes(fixture->store), 1);
    assert_int_equal(edit(fixture, "b"), 0);
    assert_int_equal(fixture->epoch, 2);
}

/* A trigger that fires within the commit holds it up. */
static void killed_in_the_middle_of_a_commit(void **state)
{
    struct fixture *fixture = *state;
    struct killer killer;
    sql(fixture->url,
        "CREATE TABLE public.gate ();"
        "CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN LOCK TABLE public.gate; RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON weir.weir_log"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
        " EXECUTE FUNCTION public.wait()");
    PGconn *other = connect_to(fixture->url);
    sql_on(other, "BEGIN; LOCK TABLE public.gate");
    start_killer(&killer, fixture->url);
    assert_int_equal(edit(fixture, "a"), WEIR_ESTORE);
    PATIENTLY(pthread_join(killer.thread, NULL));
    PQfinish(other);
    assert_non_null(strstr(fixture->diag.text, "isn't known whether"));
    control('s');
    assert_int_equal(reopen(fixture), 0);
    assert_int_equal(count_changes(fixture->store), 0);
    assert_int_equal(edit(fixture, "a"), 0);
    assert_int_equal(fixture->epoch, 1);
}

/* An idle handle notices it too, and then stays disconnected. */
static void killed_while_nothing_is_asked(void **state)
{
    struct fixture *fixture = *state;
    while (weir_store_changed(fixture->store))
        continue;
    control('k');
    int ms = 0;
    while (!weir_store_changed(fixture->store) && ms++ < PATIENCE_MS)
        poll(NULL, 0, 1);
    assert_true(weir_store_changed(fixture->store));
    assert_int_equal(edit(fixture, "a"), WEIR_ESTORE);
    control('s');
    assert_int_equal(edit(fixture, "a"), WEIR_ESTORE);
    assert_int_equal(reopen(fixture), 0);
    assert_int_equal(edit(fixture, "a"), 0);
}

/* The session's own bound is twenty seconds. Only here it is cut short: the
 * test checks that it is set, and its effect. */
static bool impatient;
static unsigned bounded;

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    if (impatient && timeout == WEIR_SESSION_ANSWER_MS) {
        bounded++;
        timeout = 200;
    }
    struct timespec span = { .tv_sec = timeout / 1000,
                             .tv_nsec = timeout % 1000 * 1000000L };
    return ppoll(fds, count, timeout < 0 ? NULL : &span, NULL);
}

/* Its processes exist and do nothing: only our own bound ends this. */
static void a_server_that_is_stopped(void **state)
{
    struct fixture *fixture = *state;
    struct weir_store_id id;
    uint64_t floor;
    control('z');
    bounded = 0;
    impatient = true;
    int error = store_suite_identity(fixture->store, &id, &fixture->epoch,
                                     &floor, &fixture->diag);
    impatient = false;
    control('c');
    assert_int_equal(error, WEIR_ESTORE);
    assert_int_equal(bounded, 1);
    assert_non_null(strstr(fixture->diag.text, "doesn't answer"));
    assert_int_equal(reopen(fixture), 0);
    assert_int_equal(edit(fixture, "a"), 0);
}

static void locked_by_another(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(edit(fixture, "a"), 0);
    PGconn *other = connect_to(fixture->url);
    sql_on(other, "BEGIN; UPDATE weir.weir_meta SET epoch = 77");
    assert_int_equal(edit(fixture, "b"), WEIR_ELOCKED);
    assert_non_null(strstr(fixture->diag.text, "locked by another process"));
    assert_int_equal(count_changes(fixture->store), 1);
    PQfinish(other);
    settle(fixture->url);
    assert_int_equal(edit(fixture, "b"), 0);
    assert_int_equal(fixture->epoch, 2);
}

static void of_another_schema(void **state)
{
    struct fixture *fixture = *state;
    unsigned from = 0;
    assert_int_equal(weir_store_upgrade(fixture->url, &from, NULL), 0);
    assert_int_equal(from, WEIR_STORE_SCHEMA);
    sql(fixture->url, "UPDATE weir.weir_meta SET schema = 4");
    /* an open handle notices it too */
    assert_int_equal(edit(fixture, "a"), WEIR_ESCHEMA);
    assert_int_equal(reopen(fixture), WEIR_ESCHEMA);
    assert_non_null(strstr(fixture->diag.text, "has schema 4, this program "
                                               "reads up to 3"));
    sql(fixture->url, "UPDATE weir.weir_meta SET schema = 1");
    assert_int_equal(reopen(fixture), WEIR_ESCHEMA);
    assert_non_null(strstr(fixture->diag.text, "which no Weir has made"));
    assert_int_equal(weir_store_upgrade(fixture->url, &from, NULL),
                     WEIR_ESCHEMA);
}

/* What a Weir of schema 2 made. */
static void make_old(const char *url)
{
    sql(url, "INSERT INTO weir.weir_quotas (id, epoch, created, name, fields)"
             " VALUES" STORE_OLD_QUOTAS ";"
             "INSERT INTO weir.weir_log (epoch, edit, at_ms, who, name, was,"
             " became) VALUES" STORE_OLD_LOG ";"
             "INSERT INTO weir.weir_tombstones (name, epoch)"
             " VALUES ('gone', 9);"
             "UPDATE weir.weir_meta SET epoch = 10, last_id = 7, schema = 2");
}

static void of_schema_2(void **state)
{
    struct fixture *fixture = *state;
    make_old(fixture->url);
    store_old_check_upgrade(fixture->url);
}

/* A root of the older Weir that has the store open is notified. */
static void an_upgrade_is_news(void **state)
{
    struct fixture *fixture = *state;
    unsigned from;
    make_old(fixture->url);
    while (weir_store_changed(fixture->store))
        continue;
    assert_int_equal(weir_store_upgrade(fixture->url, &from, NULL), 0);
    UNTIL(weir_store_changed(fixture->store));
}

/* One step of it fails: it is what it was. */
static void an_upgrade_that_fails(void **state)
{
    struct fixture *fixture = *state;
    unsigned from = 0;
    make_old(fixture->url);
    sql(fixture->url, "ALTER TABLE weir.weir_log RENAME TO away");
    assert_int_equal(weir_store_upgrade(fixture->url, &from, &fixture->diag),
                     WEIR_ESTORE);
    assert_int_equal(from, 0);
    PGconn *other = connect_to(fixture->url);
    assert_int_equal(ask(other, "SELECT count(*) FROM weir.weir_quotas WHERE"
                                " fields LIKE '%on_stale: limit%'"),
                     0);
    sql_on(other, "ALTER TABLE weir.away RENAME TO weir_log");
    PQfinish(other);
    store_old_check_upgrade(fixture->url);
}

static void a_damaged_store(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(edit(fixture, "a"), 0);
    sql(fixture->url, "UPDATE weir.weir_quotas SET fields = E'colour: red\\n',"
                      " epoch = 2; UPDATE weir.weir_meta SET epoch = 2");
    /* The others can be edited, and an edit of the bad one replaces it. */
    assert_int_equal(edit(fixture, "b"), 0);
    assert_int_equal(edit(fixture, "a"), 0);
    PGconn *other = connect_to(fixture->url);
    assert_int_equal(ask(other, "SELECT count(*) FROM weir.weir_quotas WHERE"
                                " fields LIKE '%colour%'"),
                     0);
    PQfinish(other);
    sql(fixture->url, "DELETE FROM weir.weir_meta");
    assert_int_equal(edit(fixture, "c"), WEIR_ESTORE);
    assert_non_null(strstr(fixture->diag.text, "is damaged"));
    sql(fixture->url, "DROP TABLE weir.weir_quotas");
    assert_int_equal(edit(fixture, "c"), WEIR_ESTORE);
}

static void a_server_that_takes_no_writes(void **state)
{
    struct fixture *fixture = *state;
    char statement[128];
    snprintf(statement, sizeof(statement),
             "ALTER DATABASE %s SET"
             " default_transaction_read_only = on",
             database_of(fixture->url));
    sql(fixture->url, statement);
    assert_int_equal(reopen(fixture), WEIR_ESTORE);
    assert_non_null(strstr(fixture->diag.text, "is read-only"));
    assert_null(strstr(fixture->diag.text, PASSWORD));
    assert_int_equal(weir_store_init(fixture->url, &fixture->diag),
                     WEIR_ESTORE);
}

static void a_database_of_another_encoding(void **state)
{
    struct fixture *fixture = *state;
    char server[URL_MAX];
    char latin[URL_MAX];
    url_of("postgres", server, sizeof(server));
    sql(server, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0"
                " LOCALE 'C'");
    url_of("latin", latin, sizeof(latin));
    assert_int_equal(weir_store_init(latin, &fixture->diag), WEIR_ESTORE);
    assert_non_null(strstr(fixture->diag.text, "LATIN1"));
    drop_database(latin);
}

static void nobody_there(void **state)
{
    struct fixture *fixture = *state;
    char missing[URL_MAX];
    url_of("missing", missing, sizeof(missing));
    const char *const urls[] = {
        missing,
        "postgres://weir:open-sesame@127.0.0.1:1/x",
        "postgres:host=/tmp/weir-none password=open-sesame",
    };
    struct weir_store *store;
    for (size_t i = 0; i < WEIR_COUNT_OF(urls); i++) {
        assert_int_equal(weir_store_open(urls[i], &store, &fixture->diag),
                         WEIR_ESTORE);
        assert_null(strstr(fixture->diag.text, PASSWORD));
        assert_null(strchr(fixture->diag.text, '\n'));
    }
}

/* The message of libpq instead of reading a string; NULL: it reads. */
static const char *no_memory;

PQconninfoOption *__real_PQconninfoParse(const char *string, char **out_why);
PQconninfoOption *__wrap_PQconninfoParse(const char *string, char **out_why);

PQconninfoOption *__wrap_PQconninfoParse(const char *string, char **out_why)
{
    if (!no_memory)
        return __real_PQconninfoParse(string, out_why);
    *out_why = no_memory[0] ? strdup(no_memory) : NULL;
    return NULL;
}

/* A good string that libpq has no memory to read isn't a wrong one. */
static void no_memory_for_the_string(void **state)
{
    struct fixture *fixture = *state;
    static const char *const says[] = { "", "out of memory\n" };
    struct weir_store *store;
    for (size_t i = 0; i < WEIR_COUNT_OF(says); i++) {
        no_memory = says[i];
        int error = weir_store_open(fixture->url, &store, &fixture->diag);
        no_memory = NULL;
        assert_int_equal(error, WEIR_ENOMEM);
    }
    assert_int_equal(
        weir_store_open("postgres:nonsense", &store, &fixture->diag),
        WEIR_EINVAL);
}

/* A search path and tables with our names don't affect the store. */
static void a_strange_search_path(void **state)
{
    struct fixture *fixture = *state;
    char statement[128];
    sql(fixture->url, "CREATE SCHEMA odd; CREATE TABLE odd.weir_quotas (x int);"
                      "CREATE FUNCTION odd.unnest(bigint[]) RETURNS int"
                      " LANGUAGE sql AS 'SELECT 1'");
    snprintf(statement, sizeof(statement),
             "ALTER DATABASE %s SET search_path"
             " = odd, pg_catalog",
             database_of(fixture->url));
    sql(fixture->url, statement);
    assert_int_equal(reopen(fixture), 0);
    assert_int_equal(edit(fixture, "a"), 0);
    assert_int_equal(count_changes(fixture->store), 1);
}

/* ---- From one kind to the other ------------------------------------- */

static int same_row(void *context, const struct weir_change *change)
{
    struct weir_catalog *catalog = context;
    return weir_catalog_apply(catalog, change);
}

struct log_sum {
    uint64_t entries, epochs, times;
};

static int sum_log(void *context, const struct weir_log_entry *entry)
{
    struct log_sum *sum = context;
    sum->entries++;
    sum->epochs += entry->epoch * (1 + entry->has_before + entry->has_after);
    sum->times += entry->at_ms;
    return 0;
}

struct contents {
    struct weir_store_id id;
    uint64_t epoch, floor;
    struct weir_catalog *set; /* owned */
    struct log_sum log;
};

static void gather(struct weir_store *store, struct contents *out)
{
    *out = (struct contents){ .set = weir_catalog_new(&weir_mem_system, 1) };
    assert_int_equal(
        store_suite_identity(store, &out->id, &out->epoch, &out->floor, NULL),
        0);
    assert_int_equal(weir_store_read(store, 0, same_row, out->set, NULL, NULL),
                     0);
    assert_int_equal(weir_store_log(store, 0, weir_text_of(NULL), 1000000,
                                    sum_log, &out->log, NULL),
                     0);
}

/* The store at 'url' has the same content, ids and epochs included. */
static void compare(const struct contents *was, const char *url)
{
    struct weir_store *store;
    struct contents is;
    assert_int_equal(weir_store_open(url, &store, NULL), 0);
    gather(store, &is);
    weir_store_close(store);
    assert_memory_equal(&was->id, &is.id, sizeof(is.id));
    assert_int_equal(was->epoch, is.epoch);
    assert_int_equal(was->floor, is.floor);
    assert_memory_equal(&was->log, &is.log, sizeof(is.log));
    assert_int_equal(weir_catalog_count(was->set), weir_catalog_count(is.set));
    struct weir_cursor at[2] = { { { 0 } } };
    struct weir_change x, y;
    while (weir_catalog_since(was->set, 0, &at[0], &x)) {
        assert_true(weir_catalog_since(is.set, 0, &at[1], &y));
        assert_int_equal(x.removed, y.removed);
        assert_int_equal(x.quota.epoch, y.quota.epoch);
        assert_int_equal(x.quota.id, y.quota.id);
        assert_int_equal(x.quota.created, y.quota.created);
        assert_true(weir_text_equal(x.quota.name, y.quota.name));
        assert_true(x.removed || weir_quota_equal(&x.quota, &y.quota));
    }
    assert_false(weir_catalog_since(is.set, 0, &at[1], &y));
    weir_catalog_free(is.set);
}

static void fill(struct weir_store *store)
{
    enum { QUOTAS = 1000 };
    struct weir_rng rng = made_seed("migrate");
    struct made_quota *made = calloc(QUOTAS, sizeof(*made));
    struct weir_change *changes = calloc(QUOTAS, sizeof(*changes));
    for (unsigned i = 0; i < QUOTAS; i++) {
        make_quota(&rng, i, &made[i]);
        changes[i].quota = made[i].quota;
    }
    struct weir_edit edit = { .changes = changes,
                              .count = QUOTAS,
                              .identity =
                                  weir_text_of("a \"quoted\\\" one, {}") };
    uint64_t epoch;
    struct weir_diag diag;
    if (weir_store_edit(store, &edit, &epoch, &diag) < 0)
        fail_msg("%s", diag.text);
    edit = (struct weir_edit){ .flags = WEIR_EDIT_REPLACE };
    assert_int_equal(weir_store_edit(store, &edit, &epoch, NULL), 0);
    assert_int_equal(weir_store_undo(store, epoch, edit.identity, &epoch, NULL),
                     0);
    for (unsigned i = 0; i < QUOTAS; i++)
        changes[i].quota.mode = WEIR_OFF;
    edit = (struct weir_edit){ .changes = changes, .count = QUOTAS / 2 };
    assert_int_equal(weir_store_edit(store, &edit, &epoch, NULL), 0);
    free(changes);
    free(made);
}

static void remove_folder(const char *url)
{
    char command[URL_MAX + 16];
    snprintf(command, sizeof(command), "rm -r '%s'", url + strlen("sqlite:"));
    *strrchr(command, '/') = '\0';
    strcat(command, "'");
    assert_int_equal(system(command), 0);
}

/* store_suite_leased.c */
static void never_leased(void **state)
{
    store_suite_never_leased(((const struct fixture *)*state)->url);
}

static void never_leased_restored(void **state)
{
    store_suite_never_leased_restored(((const struct fixture *)*state)->url);
}

static void there_and_back(void **state)
{
    struct fixture *fixture = *state;
    char folder[] = "/tmp/weir-migrate-XXXXXX";
    char file[URL_MAX];
    char back[URL_MAX];
    size_t quotas = 0;
    struct contents was;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "sqlite:%s/q.db", folder);
    fill(fixture->store);
    gather(fixture->store, &was);
    if (weir_store_migrate(fixture->url, file, &quotas, &fixture->diag) < 0)
        fail_msg("%s", fixture->diag.text);
    assert_int_equal(quotas, 1000);
    compare(&was, file);
    /* the old one answers only with the new place, until it is used again */
    assert_int_equal(edit(fixture, "late"), WEIR_ESTORE);
    assert_non_null(strstr(fixture->diag.text, file));
    assert_int_equal(reopen(fixture), WEIR_ESTORE);
    uint64_t restores;
    assert_int_equal(weir_store_restored(fixture->url, &restores, NULL), 0);
    assert_int_equal(reopen(fixture), 0);
    assert_int_equal(edit(fixture, "late"), 0);
    make_url(back, sizeof(back));
    if (weir_store_migrate(file, back, &quotas, &fixture->diag) < 0)
        fail_msg("%s", fixture->diag.text);
    compare(&was, back);
    weir_catalog_free(was.set);
    /* neither kind is overwritten */
    assert_int_equal(weir_store_migrate(file, back, &quotas, NULL),
                     WEIR_EEXIST);
    assert_int_equal(weir_store_migrate(back, file, &quotas, NULL),
                     WEIR_EEXIST);
    assert_int_equal(weir_store_migrate(back, back, &quotas, NULL),
                     WEIR_EEXIST);
    clean(back);
    remove_folder(file);
}

/* The source fails in the middle: there is no store, and no trace of one. */
static void a_copy_that_fails(void **state)
{
    struct fixture *fixture = *state;
    char folder[] = "/tmp/weir-migrate-XXXXXX";
    char file[URL_MAX];
    char other[URL_MAX];
    size_t quotas = 7;
    struct weir_store *store;
    fill(fixture->store);
    sql(fixture->url, "ALTER TABLE weir.weir_log RENAME TO gone");
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "sqlite:%s/q.db", folder);
    make_url(other, sizeof(other));
    assert_int_equal(
        weir_store_migrate(fixture->url, file, &quotas, &fixture->diag),
        WEIR_ESTORE);
    assert_int_equal(
        weir_store_migrate(fixture->url, other, &quotas, &fixture->diag),
        WEIR_ESTORE);
    assert_int_equal(quotas, 7);
    assert_int_equal(weir_store_open(file, &store, NULL), WEIR_ENOENT);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(weir_store_open(other, &store, NULL), WEIR_ENOENT);
    assert_int_equal(weir_store_init(other, NULL), 0);
    clean(other);
}

static void age_roots(const char *url, int seconds)
{
    char statement[160];
    snprintf(statement, sizeof statement,
             "UPDATE weir.weir_roots SET seen = seen - interval '%d seconds'",
             seconds);
    sql(url, statement);
}

static void roots_on_it(void **state)
{
    struct fixture *fixture = *state;
    /* A new store has the table, since the roots' user may not be one that
     * makes tables; on one that is older the first root makes it. */
    sql(fixture->url, "DROP TABLE weir.weir_roots");
    store_suite_presence(fixture->url, age_roots);
}

int main(void)
{
#define UNDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define ALONE(test) \
    cmocka_unit_test_setup_teardown(test, set_up_alone, tear_down_alone)
    const struct CMUnitTest tests[] = {
        UNDER(locked_by_another),
        UNDER(never_leased),
        UNDER(never_leased_restored),
        UNDER(of_another_schema),
        UNDER(of_schema_2),
        UNDER(an_upgrade_is_news),
        UNDER(an_upgrade_that_fails),
        UNDER(a_damaged_store),
        ALONE(a_server_that_takes_no_writes),
        UNDER(a_database_of_another_encoding),
        UNDER(nobody_there),
        UNDER(no_memory_for_the_string),
        ALONE(a_strange_search_path),
        UNDER(there_and_back),
        UNDER(roots_on_it),
        UNDER(a_copy_that_fails),
        UNDER(killed_in_the_middle_of_an_edit),
        ALONE(killed_in_the_middle_of_a_commit),
        UNDER(killed_while_nothing_is_asked),
        UNDER(a_server_that_is_stopped),
    };
    int failed = store_suite_run(&postgres_store);
    return failed +
           cmocka_run_group_tests_name("postgres server", tests, NULL, NULL);
}
