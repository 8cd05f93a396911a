/* SPDX-License-Identifier: MIT
 * test/store/test_sqlite.c - the SQLite store under the suite, and failures
 * that only a file has: moved, replaced, locked, garbage, a full disk. */

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "compare.h"
#include "io/clock.h"
#include "patience.h"
#include "store/store.h"
#include "store_old.h"
#include "store_suite.h"
#include "store_suite_leased.h"
#include "store_suite_lineage.h"
#include "store_suite_presence.h"

static void make_url(char *url, size_t size)
{
    char folder[] = "/tmp/weir-store-XXXXXX";
    assert_non_null(mkdtemp(folder));
    snprintf(url, size, "sqlite:%s/quotas.db", folder);
}

static const char *path_of(const char *url)
{
    return url + strlen("sqlite:");
}

static void clean(const char *url)
{
    static const char *const endings[] = { "", "-wal", "-shm", "-journal",
                                           ".away" };
    char path[600];
    for (size_t i = 0; i < WEIR_COUNT_OF(endings); i++) {
        snprintf(path, sizeof(path), "%s%s", path_of(url), endings[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s", path_of(url));
    *strrchr(path, '/') = '\0';
    /* no other file may be left, of a temporary store for example */
    assert_int_equal(rmdir(path), 0);
}

struct fixture {
    char url[512];
    const char *path;
    struct weir_store *store;
    struct weir_diag diag;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    make_url(fixture->url, sizeof(fixture->url));
    fixture->path = path_of(fixture->url);
    assert_int_equal(weir_store_init(fixture->url, NULL), 0);
    *state = fixture;
    return weir_store_open(fixture->url, &fixture->store, NULL);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    weir_store_close(fixture->store);
    clean(fixture->url);
    free(fixture);
    return 0;
}

static int edit(struct fixture *fixture, const char *name)
{
    struct weir_change change = { .removed = false };
    weir_quota_init(&change.quota);
    change.quota.name = weir_text_of(name);
    const struct weir_edit edit = { .changes = &change, .count = 1 };
    uint64_t epoch;
    fixture->diag.text[0] = '\0';
    return weir_store_edit(fixture->store, &edit, &epoch, &fixture->diag);
}

static uint64_t epoch_of(struct fixture *fixture)
{
    struct weir_store_id id;
    uint64_t epoch = UINT64_MAX;
    uint64_t floor;
    store_suite_identity(fixture->store, &id, &epoch, &floor, &fixture->diag);
    return epoch;
}

static int ignore(void *context, const struct weir_change *change)
{
    (void)context;
    (void)change;
    return 0;
}

static void check_refused_everywhere(struct fixture *fixture)
{
    struct weir_store_id id;
    uint64_t epoch;
    uint64_t floor;
    assert_int_equal(edit(fixture, "b"), WEIR_ESTORE);
    assert_non_null(strstr(fixture->diag.text, "moved, removed or replaced"));
    assert_int_equal(
        weir_store_read(fixture->store, 0, ignore, NULL, NULL, &fixture->diag),
        WEIR_ESTORE);
    assert_int_equal(store_suite_identity(fixture->store, &id, &epoch, &floor,
                                          &fixture->diag),
                     WEIR_ESTORE);
}

static void moved_away_and_back(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(edit(fixture, "a"), 0);
    char away[600];
    snprintf(away, sizeof(away), "%s.away", fixture->path);
    weir_store_changed(fixture->store);
    assert_int_equal(rename(fixture->path, away), 0);
    assert_true(weir_store_changed(fixture->store));
    assert_false(weir_store_changed(fixture->store));
    check_refused_everywhere(fixture);
    assert_int_equal(rename(away, fixture->path), 0);
    assert_true(weir_store_changed(fixture->store));
    assert_int_equal(edit(fixture, "b"), 0);
    assert_int_equal(epoch_of(fixture), 2);
}

static void removed(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(edit(fixture, "a"), 0);
    assert_int_equal(unlink(fixture->path), 0);
    check_refused_everywhere(fixture);
}

static void replaced(void **state)
{
    struct fixture *fixture = *state;
    char other[512];
    make_url(other, sizeof(other));
    assert_int_equal(weir_store_init(other, NULL), 0);
    assert_int_equal(rename(path_of(other), fixture->path), 0);
    check_refused_everywhere(fixture);
    clean(other);
}

/* Runs SQL on the file as another program would. */
static sqlite3 *sql(const char *path, const char *statements)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, statements, NULL, NULL, NULL), SQLITE_OK);
    return db;
}

static int reopen(struct fixture *fixture)
{
    weir_store_close(fixture->store);
    fixture->store = NULL;
    fixture->diag.text[0] = '\0';
    return weir_store_open(fixture->url, &fixture->store, &fixture->diag);
}

static void of_a_newer_schema(void **state)
{
    struct fixture *fixture = *state;
    sqlite3_close(sql(fixture->path, "PRAGMA user_version = 4"));
    /* an open handle notices it too */
    assert_int_equal(edit(fixture, "a"), WEIR_ESCHEMA);
    assert_int_equal(reopen(fixture), WEIR_ESCHEMA);
    assert_non_null(strstr(fixture->diag.text, "has schema 4, this program "
                                               "reads up to 3"));
}

/* A store made by a Weir of schema 1, with a quota that has every field. */
static const char schema_1[] =
    "PRAGMA journal_mode = WAL;"
    "PRAGMA application_id = 1466263922; PRAGMA user_version = 1;"
    "CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1),"
    " uuid BLOB NOT NULL, restores INTEGER NOT NULL,"
    " epoch INTEGER NOT NULL, floor INTEGER NOT NULL) STRICT;"
    "INSERT INTO meta VALUES (1, x'000102030405060708090a0b0c0d0e0f', 3, 9,"
    " 2);"
    "CREATE TABLE tombstones (name TEXT NOT NULL UNIQUE,"
    " epoch INTEGER PRIMARY KEY) STRICT;"
    "CREATE TABLE quotas (id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " epoch INTEGER NOT NULL UNIQUE, created INTEGER NOT NULL,"
    " \"name\" TEXT, \"parent\" TEXT, \"overflow\" TEXT,"
    " \"description\" TEXT, \"labels\" TEXT, \"kind\" TEXT,"
    " \"limit\" TEXT, \"low_burst\" TEXT, \"high_burst\" TEXT,"
    " \"algorithm\" TEXT, \"sharing\" TEXT, \"mode\" TEXT,"
    " \"on_stale\" TEXT, \"order\" TEXT) STRICT;"
    "CREATE UNIQUE INDEX quotas_name ON quotas (\"name\");"
    "INSERT INTO quotas VALUES (5, 7, 6, 'odd \\ name', NULL, NULL,"
    " 'back\\slash, \\n', 'a=1' || char(10) || 'b=\\', 'rate', '5/min',"
    " '10', '20min', 'leaky', 'local', 'shadow', 'closed', NULL);"
    "INSERT INTO quotas VALUES (6, 8, 8, 'x*', 'odd \\ name', 'odd \\ name',"
    " NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '4');"
    "INSERT INTO quotas (id, epoch, created, \"name\") VALUES (11, 9, 9,"
    " 'late'); DELETE FROM quotas WHERE id = 11;"
    "INSERT INTO tombstones VALUES ('late', 9);";

static int keep(void *context, const struct weir_change *change)
{
    return weir_catalog_apply(context, change);
}

static void check_upgraded(struct fixture *fixture)
{
    struct weir_catalog *seen = weir_catalog_new(&weir_mem_system, 1);
    if (weir_store_read(fixture->store, 0, keep, seen, NULL, &fixture->diag) <
        0)
        fail_msg("%s", fixture->diag.text);
    assert_int_equal(weir_catalog_count(seen), 2);
    assert_int_equal(weir_catalog_epoch(seen), 9);
    const struct weir_quota *odd =
        weir_catalog_get(seen, weir_text_of("odd \\ name"));
    assert_non_null(odd);
    struct weir_quota wanted;
    weir_quota_init(&wanted);
    wanted.name = weir_text_of("odd \\ name");
    wanted.description = weir_text_of("back\\slash, \\n");
    wanted.labels = weir_text_of("a=1\nb=\\");
    wanted.limit = (struct weir_limit){ 5, 60 * WEIR_SECOND, false };
    wanted.low_burst = (struct weir_burst){ 10, false, false };
    wanted.high_burst = (struct weir_burst){ 1200 * WEIR_SECOND, true, false };
    wanted.sharing = WEIR_LOCAL;
    wanted.mode = WEIR_SHADOW;
    wanted.on_stale = WEIR_STALE_LIMIT;
    assert_true(weir_quota_equal(odd, &wanted));
    assert_int_equal(odd->id, 5);
    assert_int_equal(odd->created, 6);
    const struct weir_quota *x = weir_catalog_get(seen, weir_text_of("x*"));
    assert_int_equal(x->order, 4);
    assert_true(weir_text_equal(x->parent, wanted.name));
    assert_true(weir_text_equal(x->overflow, wanted.name));
    weir_catalog_free(seen);
}

static void of_an_older_schema(void **state)
{
    struct fixture *fixture = *state;
    weir_store_close(fixture->store);
    fixture->store = NULL;
    unlink(fixture->path);
    sqlite3_close(sql(fixture->path, schema_1));
    assert_int_equal(reopen(fixture), WEIR_ESCHEMA);
    assert_non_null(strstr(fixture->diag.text, "weir store upgrade"));
    unsigned from = 0;
    if (weir_store_upgrade(fixture->url, &from, &fixture->diag) < 0)
        fail_msg("%s", fixture->diag.text);
    assert_int_equal(from, 1);
    assert_int_equal(weir_store_upgrade(fixture->url, &from, NULL), 0);
    assert_int_equal(from, WEIR_STORE_SCHEMA);
    assert_int_equal(reopen(fixture), 0);
    struct weir_store_id id;
    uint64_t epoch, floor;
    assert_int_equal(
        store_suite_identity(fixture->store, &id, &epoch, &floor, NULL), 0);
    for (int i = 0; i < 16; i++)
        assert_int_equal(id.uuid[i], i);
    assert_int_equal(id.restores, 3);
    assert_int_equal(epoch, 9);
    assert_int_equal(floor, 2);
    check_upgraded(fixture);
    /* an id is never given twice */
    assert_int_equal(edit(fixture, "new"), 0);
    struct weir_catalog *seen = weir_catalog_new(&weir_mem_system, 1);
    weir_store_read(fixture->store, 9, keep, seen, NULL, NULL);
    assert_int_equal(weir_catalog_get(seen, weir_text_of("new"))->id, 12);
    weir_catalog_free(seen);
}

/* One step of the upgrade fails: the store is unchanged. */
static void an_upgrade_that_fails(void **state)
{
    struct fixture *fixture = *state;
    weir_store_close(fixture->store);
    fixture->store = NULL;
    unlink(fixture->path);
    sqlite3_close(sql(fixture->path, schema_1));
    sqlite3_close(sql(fixture->path, "CREATE TABLE log (x)"));
    unsigned from = 0;
    assert_int_equal(weir_store_upgrade(fixture->url, &from, &fixture->diag),
                     WEIR_ESTORE);
    assert_int_equal(from, 0);
    sqlite3_close(sql(fixture->path, "DROP TABLE log"));
    assert_int_equal(weir_store_upgrade(fixture->url, &from, NULL), 0);
    assert_int_equal(from, 1);
    assert_int_equal(reopen(fixture), 0);
    check_upgraded(fixture);
}

/* Schema 2 had the tables of today but the mark's. */
static void of_schema_2(void **state)
{
    struct fixture *fixture = *state;
    weir_store_close(fixture->store);
    fixture->store = NULL;
    sqlite3_close(sql(fixture->path,
                      "INSERT INTO quotas (id, epoch, created, name, fields)"
                      " VALUES" STORE_OLD_QUOTAS ";"
                      "INSERT INTO log (epoch, edit, at_ms, who, name, was,"
                      " became) VALUES" STORE_OLD_LOG ";"
                      "INSERT INTO tombstones (name, epoch)"
                      " VALUES ('gone', 9);"
                      "DROP TABLE never_leased;"
                      "UPDATE meta SET epoch = 10, last_id = 7;"
                      "PRAGMA user_version = 2"));
    store_old_check_upgrade(fixture->url);
    bool never = true;
    assert_int_equal(
        weir_store_take_never_leased(fixture->url, true, &never, NULL), 0);
    assert_false(never); /* it isn't known */
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_compare(fd, >=, 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
}

static void not_a_store(void **state)
{
    struct fixture *fixture = *state;
    weir_store_close(fixture->store);
    fixture->store = NULL;
    unlink(fixture->path);
    char garbage[5000];
    memset(garbage, 'g', sizeof(garbage));
    const size_t sizes[] = { 0, 1, 99, 600, 5000 };
    for (size_t i = 0; i < WEIR_COUNT_OF(sizes); i++) {
        write_file(fixture->path, garbage, sizes[i]);
        assert_int_equal(reopen(fixture), WEIR_ESTORE);
        assert_non_null(strstr(fixture->diag.text, "isn't a quota store"));
        assert_int_equal(weir_store_init(fixture->url, NULL), WEIR_EEXIST);
    }
    unlink(fixture->path);
    sqlite3_close(sql(fixture->path, "CREATE TABLE t (x)"));
    assert_int_equal(reopen(fixture), WEIR_ESTORE);
    unlink(fixture->path);
    assert_int_equal(reopen(fixture), WEIR_ENOENT);
    struct weir_diag diag;
    struct weir_store *store;
    assert_int_equal(weir_store_open("sqlite:/tmp", &store, &diag),
                     WEIR_ESTORE);
    assert_int_equal(weir_store_init("sqlite:/tmp/no/such/folder/x", &diag),
                     WEIR_ESTORE);
}

/* The write-ahead log of a store that was removed without it. */
static void a_log_that_was_left_behind(void **state)
{
    struct fixture *fixture = *state;
    char log[sizeof(fixture->url) + 8];
    char kept[sizeof(log) + 8];
    snprintf(log, sizeof(log), "%s-wal", fixture->path);
    snprintf(kept, sizeof(kept), "%s.kept", log);
    assert_int_equal(edit(fixture, "old"), 0);
    assert_int_equal(link(log, kept), 0);
    weir_store_close(fixture->store);
    fixture->store = NULL;
    unlink(fixture->path);
    assert_int_equal(rename(kept, log), 0);
    assert_int_equal(weir_store_init(fixture->url, &fixture->diag),
                     WEIR_EEXIST);
    assert_non_null(strstr(fixture->diag.text, "-wal of a store that was"));
    unlink(log);
    assert_int_equal(weir_store_init(fixture->url, NULL), 0);
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

/* A migrated store answers only with its new place, to handles that are open
 * and to new ones, until it is declared in use again. */
static void migrated(void **state)
{
    struct fixture *fixture = *state;
    struct weir_store *other;
    char to[sizeof(fixture->url) + 8];
    char third[sizeof(fixture->url) + 8];
    size_t quotas;
    uint64_t epoch, floor, restores;
    struct weir_store_id id;
    assert_int_equal(edit(fixture, "a"), 0);
    snprintf(to, sizeof(to), "%s.to", fixture->url);
    snprintf(third, sizeof(third), "%s.third", fixture->url);
    bool never = true;
    assert_int_equal(weir_store_migrate(fixture->url, to, &quotas, NULL), 0);
    assert_int_equal(weir_store_take_never_leased(to, true, &never, NULL), 0);
    assert_false(never); /* leases of the other one may be out */
    assert_int_equal(edit(fixture, "b"), WEIR_ESTORE);
    assert_non_null(strstr(fixture->diag.text, "was migrated to "));
    assert_non_null(strstr(fixture->diag.text, to));
    assert_int_equal(
        weir_store_undo(fixture->store, 1, weir_text_of("ann"), &epoch, NULL),
        WEIR_ESTORE);
    assert_int_equal(
        store_suite_identity(fixture->store, &id, &epoch, &floor, NULL),
        WEIR_ESTORE);
    assert_int_equal(weir_store_open(fixture->url, &other, NULL), WEIR_ESTORE);
    assert_int_equal(weir_store_migrate(fixture->url, third, &quotas, NULL),
                     WEIR_ESTORE);
    assert_int_equal(weir_store_open(third, &other, NULL), WEIR_ENOENT);
    assert_int_equal(weir_store_restored(fixture->url, &restores, NULL), 0);
    assert_int_equal(edit(fixture, "b"), 0);
    assert_int_equal(weir_store_open(to, &other, NULL), 0);
    weir_store_close(other);
    unlink(strchr(to, ':') + 1);
}

static mode_t mode_of(const char *path, const char *ending)
{
    char name[600];
    struct stat file;
    snprintf(name, sizeof(name), "%s%s", path, ending);
    assert_int_equal(stat(name, &file), 0);
    return file.st_mode & 0777;
}

/* With any umask; SQLite gives the files beside it the store's own mode. */
static void open_to_its_owner_alone(void **state)
{
    (void)state;
    struct fixture fixture = { .store = NULL };
    make_url(fixture.url, sizeof(fixture.url));
    fixture.path = path_of(fixture.url);
    mode_t before = umask(0);
    assert_int_equal(weir_store_init(fixture.url, NULL), 0);
    assert_int_equal(weir_store_open(fixture.url, &fixture.store, NULL), 0);
    assert_int_equal(edit(&fixture, "a"), 0);
    umask(before);
    assert_int_equal(mode_of(fixture.path, ""), 0600);
    assert_int_equal(mode_of(fixture.path, "-wal"), 0600);
    assert_int_equal(mode_of(fixture.path, "-shm"), 0600);
    weir_store_close(fixture.store);
    clean(fixture.url);
}

/* A wider mode is the operator's choice; 'diag' names the rights of others. */
static void others_may_read_it(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(weir_store_check_mode(fixture->url, &fixture->diag), 0);
    chmod(fixture->path, 0660);
    assert_int_equal(weir_store_check_mode(fixture->url, &fixture->diag), 0);
    chmod(fixture->path, 0644);
    assert_int_equal(weir_store_check_mode(fixture->url, &fixture->diag),
                     WEIR_EINVAL);
    assert_non_null(strstr(fixture->diag.text, "may read the quota store /"));
    assert_non_null(strstr(fixture->diag.text, "(mode 0644)"));
    chmod(fixture->path, 0606);
    assert_int_equal(weir_store_check_mode(fixture->url, &fixture->diag),
                     WEIR_EINVAL);
    assert_non_null(strstr(fixture->diag.text, "may write the quota store /"));
    assert_int_equal(mode_of(fixture->path, ""), 0606);
    assert_int_equal(edit(fixture, "a"), 0);
    unlink(fixture->path);
    assert_int_equal(weir_store_check_mode(fixture->url, &fixture->diag), 0);
    assert_int_equal(weir_store_check_mode("postgres:dbname=a", &fixture->diag),
                     0);
}

static void count_bad_row(void *context, const struct weir_bad_row *row)
{
    assert_true(weir_text_equal(row->name, WEIR_TEXT("a")));
    assert_non_null(strstr(row->why, "'much'"));
    assert_int_equal(row->epoch, 1);
    ++*(int *)context;
}

static void rows_that_say_nothing(void **state)
{
    struct fixture *fixture = *state;
    int bad = 0;
    assert_int_equal(edit(fixture, "a"), 0);
    sqlite3_close(sql(fixture->path, "UPDATE quotas SET fields = "
                                     "'limit: much' || char(10);"
                                     "UPDATE meta SET epoch = epoch + 1"));
    weir_store_watch_rows(fixture->store, count_bad_row, &bad);
    assert_int_equal(
        weir_store_read(fixture->store, 0, ignore, NULL, NULL, &fixture->diag),
        0);
    assert_int_equal(bad, 1);
    /* The others can be edited, and the bad one is replaced. */
    assert_int_equal(reopen(fixture), 0);
    assert_int_equal(edit(fixture, "b"), 0);
    assert_int_equal(edit(fixture, "a"), 0);
    weir_store_watch_rows(fixture->store, count_bad_row, &bad);
    assert_int_equal(
        weir_store_read(fixture->store, 0, ignore, NULL, NULL, &fixture->diag),
        0);
    assert_int_equal(bad, 1);
    sqlite3_close(sql(fixture->path, "DELETE FROM meta"));
    assert_int_equal(edit(fixture, "c"), WEIR_ESTORE);
}

/* The lock is held by another process; reads go on, edits name that process. */
static void locked_by_another_process(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(edit(fixture, "a"), 0);
    int ready[2];
    int done[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done), 0);
    pid_t child = fork();
    char byte = 'x';
    if (child == 0) {
        patience_be_child();
        close(done[1]);
        sql(fixture->path, "BEGIN IMMEDIATE; DELETE FROM quotas");
        bool told =
            write(ready[1], &byte, 1) == 1 && read(done[0], &byte, 1) >= 0;
        _exit(told ? 0 : 1);
    }
    assert_int_equal(PATIENTLY(read(ready[0], &byte, 1)), 1);
    assert_int_equal(edit(fixture, "b"), WEIR_ELOCKED);
    assert_non_null(strstr(fixture->diag.text, "locked by another process"));
    assert_non_null(strstr(fixture->diag.text, fixture->path));
    assert_int_equal(epoch_of(fixture), 1);
    assert_int_equal(
        weir_store_read(fixture->store, 0, ignore, NULL, NULL, NULL), 0);
    close(done[1]);
    assert_int_equal(STATUS_OF(child), 0);
    close(done[0]);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(edit(fixture, "b"), 0);
    assert_int_equal(epoch_of(fixture), 2);
}

/* A file may not grow in the child: as on a full disk. */
static void no_room_on_the_disk(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(edit(fixture, "a"), 0);
    pid_t child = fork();
    if (child == 0) {
        patience_be_child();
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = { 16384, 16384 };
        setrlimit(RLIMIT_FSIZE, &limit);
        int error = reopen(fixture);
        char name[16];
        for (int i = 0; error == 0 && i < 1000; i++) {
            snprintf(name, sizeof(name), "q%d", i);
            error = edit(fixture, name);
        }
        _exit(error == WEIR_ESTORE && fixture->diag.text[0] ? 0 : 1);
    }
    assert_int_equal(STATUS_OF(child), 0);
    uint64_t epoch = epoch_of(fixture);
    assert_compare(epoch, >=, 1);
    assert_compare(epoch, <, 1000);
    assert_int_equal(edit(fixture, "after"), 0);
    assert_int_equal(epoch_of(fixture), epoch + 1);
}

static void set_epoch(const char *url, uint64_t epoch)
{
    char statement[64];
    snprintf(statement, sizeof(statement), "UPDATE meta SET epoch = %llu",
             (unsigned long long)epoch);
    sqlite3_close(sql(path_of(url), statement));
}

static void reap(const char *url, uint64_t count)
{
    char statements[300];
    snprintf(statements, sizeof(statements),
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
             " WHERE i < %llu) INSERT INTO tombstones (name, epoch)"
             " SELECT 't' || i, i FROM n; UPDATE meta SET epoch = %llu",
             (unsigned long long)count, (unsigned long long)count);
    sqlite3_close(sql(path_of(url), statements));
}

static void age_roots(const char *url, int seconds)
{
    char statement[100];
    snprintf(statement, sizeof statement, "UPDATE roots SET seen = seen - %d",
             seconds);
    sqlite3_close(sql(path_of(url), statement));
}

static void roots_on_it(void **state)
{
    struct fixture *fixture = *state;
    store_suite_presence(fixture->url, age_roots);
}

static const struct store_under_test sqlite_store = {
    .name = "sqlite",
    .make_url = make_url,
    .clean = clean,
    .set_epoch = set_epoch,
    .reap = reap,
};

int main(void)
{
#define UNDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        UNDER(moved_away_and_back),
        UNDER(removed),
        UNDER(replaced),
        UNDER(of_a_newer_schema),
        UNDER(of_an_older_schema),
        UNDER(of_schema_2),
        UNDER(an_upgrade_that_fails),
        UNDER(not_a_store),
        UNDER(a_log_that_was_left_behind),
        UNDER(never_leased),
        UNDER(never_leased_restored),
        UNDER(migrated),
        UNDER(roots_on_it),
        cmocka_unit_test(open_to_its_owner_alone),
        UNDER(others_may_read_it),
        UNDER(rows_that_say_nothing),
        UNDER(locked_by_another_process),
        UNDER(no_room_on_the_disk),
    };
    int failed = store_suite_run(&sqlite_store);
    return failed +
           cmocka_run_group_tests_name("sqlite files", tests, NULL, NULL);
}
