/* SPDX-License-Identifier: MIT
 * store/store_sqlite.c - quotas in an SQLite file.
 *
 * Several roots on one machine may open one file. WAL lets each read while
 * another writes; BEGIN IMMEDIATE makes edits queue, two seconds at most;
 * synchronous=FULL because losing a confirmed edit in a power failure would set
 * the epoch back.
 *
 *     meta        one row: uuid, restores, epoch, floor, last_id
 *     quotas      id (never reused), epoch, created, name, fields (row.c)
 *     tombstones  name, epoch
 *     log         epoch, edit, at_ms, who, name, was, became
 *     moved       exists after a migration: place, the new URL
 *     never_leased  its row: no root was ever master (store_leased.c)
 *
 * Files of other programs are refused by two numbers in the file's header:
 * application_id identifies Weir, user_version is the schema.
 *
 * SQLite keeps using a file that was moved away, as it holds a descriptor:
 * edits would be lost with that file. Therefore each transaction begins by
 * comparing the path's device and inode with those at the opening. A new store
 * is made beside its path and linked there when it is complete, so that a crash
 * leaves no partial store and two creators can't both succeed. Its mode is
 * 0600, as the snapshot's: only the owner may read quotas and the log of edits.
 * An operator may widen it for a group of users that run roots on it. A root
 * that opens a file readable by all users logs a warning and keeps the mode, as
 * Grafana does. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "core/quota/quota_text.h"
#include "store/backend.h"
#include "store/sqlite_errors.h"

#define APPLICATION_ID 0x57656972 /* "Weir" */
#define BUSY_MS 2000

enum statement {
    SQL_BEGIN_READ,
    SQL_BEGIN_WRITE,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_META,
    SQL_READ,
    SQL_WRITE,
    SQL_DELETE,
    SQL_TOMBSTONE,
    SQL_UNBURY,
    SQL_OLDEST,
    SQL_FORGET,
    SQL_FINISH,
    SQL_LOG,
    SQL_LOG_FORGET,
    SQL_VERSION,
    SQL_LOG_READ, /* this and the ones for the rest of enum weir_log_which */
    SQL_COUNT = SQL_LOG_READ + WEIR_LOG_WHICH_COUNT,
};

struct sqlite_store {
    struct weir_backend base;
    sqlite3 *db;
    sqlite3_stmt *statements[SQL_COUNT];
    dev_t device;
    ino_t inode;
    bool seen;     /* 'version' was set by an earlier call of changed() */
    bool touched;  /* this handle has edited since then */
    bool was_gone; /* the path had no file, or another one, then */
    sqlite3_int64 version;
    char *making; /* temporary path of a new store; NULL: it is complete */
    char path[];
};

static struct sqlite_store *sqlite_store_of(struct weir_backend *backend)
{
    return (struct sqlite_store *)backend;
}

/* ---- Errors --------------------------------------------------------- */

static int refuse_sqlite(struct sqlite_store *store, struct weir_diag *diag)
{
    return weir_sqlite_refuse(store->path, sqlite3_errcode(store->db),
                              sqlite3_errmsg(store->db), diag);
}

static int refuse_system(const char *what, const char *path, int error,
                         struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ESTORE, what, path, ": ",
                         strerrordesc_np(error), NULL);
}

/* ---- Statements ----------------------------------------------------- */

static const char schema_sql[] =
    "CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), uuid BLOB "
    "NOT NULL, restores INTEGER NOT NULL, epoch INTEGER NOT NULL, floor "
    "INTEGER NOT NULL, last_id INTEGER NOT NULL) STRICT;INSERT INTO meta "
    "VALUES (1, zeroblob(16), 0, 0, 0, 0);CREATE TABLE tombstones (name "
    "TEXT NOT NULL UNIQUE, epoch INTEGER PRIMARY KEY) STRICT;CREATE TABLE "
    "quotas (id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL UNIQUE, "
    "created INTEGER NOT NULL, name TEXT NOT NULL UNIQUE, fields TEXT NOT "
    "NULL) STRICT;CREATE TABLE log (epoch INTEGER PRIMARY KEY, edit "
    "INTEGER NOT NULL, at_ms INTEGER NOT NULL, who TEXT NOT NULL, name "
    "TEXT NOT NULL, was TEXT, became TEXT) STRICT;CREATE INDEX log_edit ON "
    "log (edit);CREATE INDEX log_name ON log (name, epoch);";

/* Numbered parameters of the log's: 1 number, 2 name, 3 max. */
#define LOG_COLUMNS                                          \
    "SELECT l.epoch, l.edit, l.at_ms, l.who, l.name, l.was," \
    " l.became FROM log l "
#define LOG_ORDER " ORDER BY l.epoch DESC LIMIT ?3"

#define NEWEST(table)                         \
    "coalesce((SELECT max(epoch) FROM " table \
    " WHERE epoch <= " WEIR_ROW_EPOCH_MAX_TEXT "), 0)"
#define NEWEST_QUOTA NEWEST("quotas")
#define NEWEST_REMOVAL NEWEST("tombstones")

static const char *const statements_sql[SQL_COUNT] = {
    [SQL_BEGIN_READ] = "BEGIN",
    [SQL_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_META] =
        "SELECT uuid, restores, max(epoch, " NEWEST_QUOTA ", " NEWEST_REMOVAL
        "), floor, max(last_id, coalesce((SELECT max(id) FROM quotas), 0)), "
        "(SELECT user_version FROM pragma_user_version), (SELECT count(*) "
        "FROM sqlite_schema WHERE name = 'moved') FROM meta",
    [SQL_READ] = "SELECT epoch, id, created, name, fields, 0 FROM quotas "
                 "WHERE epoch > ?1 UNION ALL SELECT epoch, 0, 0, name, "
                 "'', 1 FROM tombstones WHERE epoch > ?1 ORDER BY 1",
    [SQL_WRITE] = "INSERT INTO quotas (id, epoch, created, name, fields)"
                  " VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO UPDATE"
                  " SET epoch = excluded.epoch, created = excluded.created,"
                  " fields = excluded.fields",
    [SQL_DELETE] = "DELETE FROM quotas WHERE name = ?1",
    [SQL_TOMBSTONE] = "INSERT OR REPLACE INTO tombstones (name, epoch)"
                      " VALUES (?1, ?2)",
    [SQL_UNBURY] = "DELETE FROM tombstones WHERE name = ?1",
    [SQL_OLDEST] = "SELECT epoch FROM tombstones ORDER BY epoch DESC"
                   " LIMIT 1 OFFSET ?1",
    [SQL_FORGET] = "DELETE FROM tombstones WHERE epoch <= ?1",
    [SQL_FINISH] = "UPDATE meta SET uuid = ?1, restores = ?2, epoch = ?3,"
                   " floor = ?4, last_id = ?5",
    [SQL_LOG] = "INSERT INTO log VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [SQL_LOG_FORGET] = "DELETE FROM log WHERE edit <= ?1",
    [SQL_VERSION] = "PRAGMA data_version",
    [SQL_LOG_READ + WEIR_LOG_ALL] = LOG_COLUMNS "WHERE l.epoch < ?1" LOG_ORDER,
    [SQL_LOG_READ + WEIR_LOG_NAME] =
        LOG_COLUMNS "WHERE l.name = ?2 AND l.epoch < ?1" LOG_ORDER,
    [SQL_LOG_READ + WEIR_LOG_EDIT] = LOG_COLUMNS "WHERE l.edit = ?1" LOG_ORDER,
    [SQL_LOG_READ + WEIR_LOG_SINCE] =
        LOG_COLUMNS "JOIN log o ON o.name = l.name AND o.epoch < l.epoch"
                    " WHERE o.edit = ?1 AND l.edit > ?1" LOG_ORDER,
};

/* Not part of the schema: an upgrade doesn't make it. */
static const char mark_sql[] =
    "CREATE TABLE never_leased (one INTEGER PRIMARY KEY) STRICT;"
    "INSERT INTO never_leased VALUES (1)";

static int prepare_statements(struct sqlite_store *store,
                              struct weir_diag *diag)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        int code = sqlite3_prepare_v3(store->db, statements_sql[i], -1,
                                      SQLITE_PREPARE_PERSISTENT,
                                      &store->statements[i], NULL);
        if (code != SQLITE_OK)
            return refuse_sqlite(store, diag);
    }
    return 0;
}

/* Runs a statement with bound parameters and without result rows. */
static int run_statement(struct sqlite_store *store, enum statement which,
                         struct weir_diag *diag)
{
    sqlite3_stmt *statement = store->statements[which];
    weir_assert(statement);
    int code = sqlite3_step(statement);
    int error = code == SQLITE_DONE || code == SQLITE_ROW
                    ? 0
                    : refuse_sqlite(store, diag);
    sqlite3_reset(statement);
    return error;
}

/* Borrowed until the next step; 'p' is NULL for NULL, but not for ''. */
static struct weir_text sqlite_text_at(sqlite3_stmt *row, int column)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    return (struct weir_text){ text,
                               (size_t)sqlite3_column_bytes(row, column) };
}

static uint64_t sqlite_number_at(sqlite3_stmt *row, int column)
{
    return (uint64_t)sqlite3_column_int64(row, column);
}

/* ---- The file ------------------------------------------------------- */

static bool is_file_gone(const struct sqlite_store *store)
{
    struct stat now;
    return stat(store->path, &now) < 0 || now.st_dev != store->device ||
           now.st_ino != store->inode;
}

static int check_path(const struct sqlite_store *store, struct weir_diag *diag)
{
    if (!is_file_gone(store))
        return 0;
    return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", store->path,
                         " was moved, removed or replaced while it was open; "
                         "put it back, or start again with the file that is "
                         "to be used",
                         NULL);
}

/* Reads a number of the file's header. */
static int read_pragma(struct sqlite_store *store, const char *sql,
                       sqlite3_int64 *out, struct weir_diag *diag)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL) != SQLITE_OK)
        return refuse_sqlite(store, diag);
    int error = 0;
    if (sqlite3_step(statement) == SQLITE_ROW)
        *out = sqlite3_column_int64(statement, 0);
    else
        error = refuse_sqlite(store, diag);
    sqlite3_finalize(statement);
    return error;
}

static int check_newer(struct sqlite_store *store, uint64_t schema,
                       struct weir_diag *diag)
{
    char has[WEIR_NUMBER_MAX];
    char reads[WEIR_NUMBER_MAX];
    if (schema <= WEIR_STORE_SCHEMA)
        return 0;
    return weir_diag_set(diag, WEIR_ESCHEMA, "the quota store ", store->path,
                         " has schema ", weir_number_show(schema, has),
                         ", this program reads up to ",
                         weir_number_show(WEIR_STORE_SCHEMA, reads),
                         "; upgrade Weir here", NULL);
}

static int check_sqlite_schema(struct sqlite_store *store, unsigned *out_schema,
                               struct weir_diag *diag)
{
    sqlite3_int64 application = 0;
    sqlite3_int64 schema = 0;
    int error = read_pragma(store, "PRAGMA application_id", &application, diag);
    if (error == 0)
        error = read_pragma(store, "PRAGMA user_version", &schema, diag);
    if (error < 0)
        return error;
    if (application != APPLICATION_ID || schema < 1)
        return weir_sqlite_refuse(store->path, SQLITE_NOTADB, "", diag);
    *out_schema = (unsigned)schema;
    return check_newer(store, (uint64_t)schema, diag);
}

static int refuse_older(const char *path, unsigned schema,
                        struct weir_diag *diag)
{
    char has[WEIR_NUMBER_MAX];
    return weir_diag_set(diag, WEIR_ESCHEMA, "the quota store ", path,
                         " was made by an older Weir (schema ",
                         weir_number_show(schema, has),
                         "); run 'weir store upgrade sqlite:", path, "'", NULL);
}

static void sqlite_close(struct weir_backend *backend)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(store->statements[i]);
    sqlite3_close(store->db);
    if (store->making)
        unlink(store->making);
    free(store->making);
    free(store);
}

/* "./" disables names with a meaning in SQLite (":memory:"). */
static int sqlite_make(const char *where, struct weir_backend **out,
                       struct weir_diag *diag)
{
    struct sqlite_store *store =
        calloc(1, sizeof(*store) + strlen(where) + sizeof("./"));
    if (!store)
        return weir_sqlite_refuse(where, SQLITE_NOMEM, "", diag);
    store->base.type = &weir_backend_sqlite;
    strcpy(store->path, where[0] == ':' ? "./" : "");
    strcat(store->path, where);
    *out = &store->base;
    return 0;
}

static int set_pragmas(struct sqlite_store *store, struct weir_diag *diag)
{
    int code = sqlite3_exec(
        store->db, "PRAGMA synchronous = FULL;PRAGMA trusted_schema = OFF",
        NULL, NULL, NULL);
    return code == SQLITE_OK ? 0 : refuse_sqlite(store, diag);
}

/* Opens a file of any schema up to this program's. */
static int open_sqlite_file(struct sqlite_store *store, unsigned *out_schema,
                            struct weir_diag *diag)
{
    struct stat file;
    if (stat(store->path, &file) < 0) {
        if (errno != ENOENT)
            return refuse_system("can't open the quota store ", store->path,
                                 errno, diag);
        return weir_diag_set(
            diag, WEIR_ENOENT, "there is no quota store ", store->path,
            "; create it with 'weir store init sqlite:", store->path, "'",
            NULL);
    }
    store->device = file.st_dev;
    store->inode = file.st_ino;
    if (!S_ISREG(file.st_mode))
        return weir_sqlite_refuse(store->path, SQLITE_NOTADB, "", diag);
    int code =
        sqlite3_open_v2(store->path, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK)
        return weir_sqlite_refuse(store->path, code, sqlite3_errstr(code),
                                  diag);
    sqlite3_busy_timeout(store->db, BUSY_MS);
    int error = check_sqlite_schema(store, out_schema, diag);
    return error < 0 ? error : set_pragmas(store, diag);
}

static int sqlite_open(struct weir_backend *backend, struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    unsigned schema;
    int error = open_sqlite_file(store, &schema, diag);
    if (error < 0)
        return error;
    if (schema < WEIR_STORE_SCHEMA)
        return refuse_older(store->path, schema, diag);
    error = prepare_statements(store, diag);
    return error < 0 ? error : check_path(store, diag);
}

static int sqlite_check_mode(const char *where, struct weir_diag *diag)
{
    struct stat file;
    char mode[8];
    if (stat(where, &file) < 0 || !(file.st_mode & (S_IROTH | S_IWOTH)))
        return 0;
    snprintf(mode, sizeof(mode), "%04o", (unsigned)(file.st_mode & 0777));
    return weir_diag_set(diag, WEIR_EINVAL, "any user of this machine may ",
                         file.st_mode & S_IWOTH ? "write" : "read",
                         " the quota store ", where, " (mode ", mode,
                         "): chmod o-rw it, and the files beside it with "
                         "names that end in -wal and -shm",
                         NULL);
}

/* ---- Creating and upgrading ------------------------------------------ */

static int refuse_existing(const char *path, struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_EEXIST, "there is a file ", path,
                         " already; remove it or choose another name", NULL);
}

/* Runs the steps up to the first failure. */
static int run_all_sqlite(struct sqlite_store *store, const char *const *steps,
                          size_t count, struct weir_diag *diag)
{
    for (size_t i = 0; i < count; i++) {
        if (sqlite3_exec(store->db, steps[i], NULL, NULL, NULL) != SQLITE_OK)
            return refuse_sqlite(store, diag);
    }
    return 0;
}

/* SQLite would create the file with a mode by the umask; it gives the files
 * beside it (-wal, -shm, -journal) the mode of this one. */
static int make_file(struct sqlite_store *store, struct weir_diag *diag)
{
    unlink(store->making); /* left by a dead process with the same pid */
    int fd = open(store->making,
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return refuse_system("can't create the quota store ", store->path,
                             errno, diag);
    close(fd);
    return 0;
}

/* Leaves the transaction open. */
static int fill_new_sqlite(struct sqlite_store *store, struct weir_diag *diag)
{
    char header[128];
    snprintf(header, sizeof(header),
             "PRAGMA application_id = %d;PRAGMA user_version = %d;",
             APPLICATION_ID, WEIR_STORE_SCHEMA);
    int code =
        sqlite3_open_v2(store->making, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK)
        return refuse_sqlite(store, diag);
    int error = set_pragmas(store, diag);
    const char *const steps[] = { "PRAGMA journal_mode = WAL", "BEGIN", header,
                                  schema_sql, mark_sql };
    if (error == 0)
        error = run_all_sqlite(store, steps, WEIR_COUNT_OF(steps), diag);
    return error < 0 ? error : prepare_statements(store, diag);
}

/* SQLite would take a log left by an earlier store of that name for the new
 * store's, and apply it. */
static int check_leftovers(const char *path, struct weir_diag *diag)
{
    static const char *const ends[] = { "-wal", "-journal" };
    for (size_t i = 0; i < WEIR_COUNT_OF(ends); i++) {
        char *left;
        struct stat file;
        if (asprintf(&left, "%s%s", path, ends[i]) < 0)
            return weir_sqlite_refuse(path, SQLITE_NOMEM, "", diag);
        bool there = lstat(left, &file) == 0;
        int error =
            there ? weir_diag_set(diag, WEIR_EEXIST, "there is a file ", left,
                                  " of a store that was here before; put "
                                  "that one back, or remove the file",
                                  NULL)
                  : 0;
        free(left);
        if (error < 0)
            return error;
    }
    return 0;
}

static int publish_file(const char *made, const char *path,
                        struct weir_diag *diag)
{
    int error = check_leftovers(path, diag);
    if (error < 0)
        return error;
    if (link(made, path) == 0)
        return 0;
    if (errno == EEXIST)
        return refuse_existing(path, diag);
    return refuse_system("can't create the quota store ", path, errno, diag);
}

static int sqlite_create(struct weir_backend *backend, struct weir_diag *diag)
{
    struct stat file;
    char *making; /* undefined after an error */
    struct sqlite_store *store = sqlite_store_of(backend);
    int error = check_leftovers(store->path, diag);
    if (lstat(store->path, &file) == 0)
        error = refuse_existing(store->path, diag);
    else if (error == 0 &&
             asprintf(&making, "%s.new-%ld", store->path, (long)getpid()) < 0)
        error = weir_sqlite_refuse(store->path, SQLITE_NOMEM, "", diag);
    else if (error == 0)
        store->making = making;
    if (error == 0)
        error = make_file(store, diag);
    return error < 0 ? error : fill_new_sqlite(store, diag);
}

/* Closing the store moves the write-ahead log into the file. */
static int finish_new(struct sqlite_store *store, struct weir_diag *diag)
{
    int error = run_statement(store, SQL_COMMIT, diag);
    if (error < 0)
        return error;
    for (int i = 0; i < SQL_COUNT; i++) {
        sqlite3_finalize(store->statements[i]);
        store->statements[i] = NULL;
    }
    sqlite3_close(store->db);
    store->db = NULL;
    return publish_file(store->making, store->path, diag);
}

/* Schema 1 had a column for each field, no log, and the last id in SQLite's own
 * table. A field's line is written as in row.c. */
#define FIELD_1(column, field)                                         \
    " || coalesce('" field ": ' || replace(replace(quotas_1.\"" column \
    "\", '\\', '\\\\'), char(10), '\\n') || char(10), '')"

static const char *const from_1[] = {
    "ALTER TABLE quotas RENAME TO quotas_1;ALTER TABLE meta RENAME TO "
    "meta_1;ALTER TABLE tombstones RENAME TO tombstones_1",
    schema_sql,
    "DELETE FROM meta;INSERT INTO meta SELECT 1, uuid, restores, epoch, "
    "floor, coalesce((SELECT seq FROM sqlite_sequence WHERE name = "
    "'quotas_1'), 0) FROM meta_1;INSERT INTO tombstones SELECT name, epoch "
    "FROM tombstones_1;INSERT INTO quotas SELECT id, epoch, created, name, "
    "''" FIELD_1("parent", "parent") FIELD_1("overflow", "overflow")
        FIELD_1("description", "description") FIELD_1("labels", "labels")
            FIELD_1("kind", "kind") FIELD_1("limit", "limit") FIELD_1(
                "low_burst", "low_burst") FIELD_1("high_burst", "high_burst")
                FIELD_1("algorithm", "algorithm") FIELD_1("sharing", "sharing")
                    FIELD_1("mode", "mode") FIELD_1("on_stale", "on_stale")
                        FIELD_1("order", "order") " FROM quotas_1",
    "DROP TABLE quotas_1; DROP TABLE meta_1; DROP TABLE tombstones_1;"
    "PRAGMA user_version = 2",
};

/* The words of on_stale. */
static const char *const from_2[] = {
    WEIR_FIELDS_2_TO_3("quotas", "fields"),
    WEIR_FIELDS_2_TO_3("log", "was"),
    WEIR_FIELDS_2_TO_3("log", "became"),
    "PRAGMA user_version = 3",
};

static int sqlite_upgrade(struct weir_backend *backend, unsigned *out_from,
                          struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    static const char *const begin[] = { "BEGIN IMMEDIATE" };
    static const char *const commit[] = { "COMMIT" };
    unsigned schema;
    int error = open_sqlite_file(store, &schema, diag);
    if (error == 0)
        error = run_all_sqlite(store, begin, 1, diag);
    /* Checked again: another process may have been quicker. */
    if (error == 0)
        error = check_sqlite_schema(store, &schema, diag);
    if (error == 0 && schema < 2)
        error = run_all_sqlite(store, from_1, WEIR_COUNT_OF(from_1), diag);
    if (error == 0 && schema < 3)
        error = run_all_sqlite(store, from_2, WEIR_COUNT_OF(from_2), diag);
    if (error == 0)
        error = run_all_sqlite(store, commit, 1, diag);
    if (error == 0)
        *out_from = schema;
    return error;
}

/* ---- Transactions --------------------------------------------------- */

static int sqlite_begin(struct weir_backend *backend, enum weir_begin how,
                        struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    int error = check_path(store, diag);
    if (error < 0)
        return error;
    if (how == WEIR_BEGIN_READ)
        return run_statement(store, SQL_BEGIN_READ, diag);
    sqlite3_busy_timeout(store->db, how == WEIR_BEGIN_FREE ? 0 : BUSY_MS);
    error = run_statement(store, SQL_BEGIN_WRITE, diag);
    sqlite3_busy_timeout(store->db, BUSY_MS);
    return error;
}

static int sqlite_commit(struct weir_backend *backend, struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    if (store->making)
        return finish_new(store, diag);
    int error = check_path(store, diag);
    if (error == 0)
        error = run_statement(store, SQL_COMMIT, diag);
    store->touched = store->touched || error == 0;
    return error;
}

/* Some errors have already rolled back, and a commit may have failed. */
static void sqlite_rollback(struct weir_backend *backend)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    if (!sqlite3_get_autocommit(store->db))
        run_statement(store, SQL_ROLLBACK, NULL);
}

/* Called only for a store that has the table. */
static int read_moved_sqlite(struct sqlite_store *store,
                             struct weir_store_meta *out,
                             struct weir_diag *diag)
{
    sqlite3_stmt *row;
    if (sqlite3_prepare_v2(store->db, "SELECT place FROM moved", -1, &row,
                           NULL) != SQLITE_OK)
        return refuse_sqlite(store, diag);
    if (sqlite3_step(row) == SQLITE_ROW)
        snprintf(out->moved_to, sizeof(out->moved_to), "%s",
                 sqlite_text_at(row, 0).p);
    sqlite3_finalize(row);
    return 0;
}

static int sqlite_move(struct weir_backend *backend, const char *to,
                       struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    static const char *const make[] = {
        "DROP TABLE IF EXISTS moved",
        "CREATE TABLE moved (place TEXT NOT NULL) STRICT",
    };
    /* To clear it, only the first step. */
    int error = run_all_sqlite(store, make, to ? WEIR_COUNT_OF(make) : 1, diag);
    if (!to)
        return error;
    char *insert = sqlite3_mprintf("INSERT INTO moved VALUES (%Q)", to);
    if (!insert)
        return weir_sqlite_refuse(store->path, SQLITE_NOMEM, "", diag);
    const char *const steps[] = { insert };
    if (error == 0)
        error = run_all_sqlite(store, steps, 1, diag);
    sqlite3_free(insert);
    return error;
}

#define SECONDS_NOW "CAST(strftime('%%s', 'now') AS INTEGER)"

static int sqlite_present(struct weir_backend *backend, const char *root,
                          bool leaves, uint32_t *out_roots,
                          struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    char delete[256], insert[256];
    snprintf(delete, sizeof delete,
             "DELETE FROM roots WHERE id = x'%s' OR abs(seen - " SECONDS_NOW
             ") > %d",
             root, (int)(WEIR_PRESENCE_TTL / WEIR_SECOND));
    snprintf(insert, sizeof insert,
             "INSERT INTO roots VALUES (x'%s', " SECONDS_NOW ")", root);
    const char *const steps[] = {
        "CREATE TABLE IF NOT EXISTS roots (id BLOB PRIMARY KEY, seen INTEGER "
        "NOT NULL) STRICT",
        delete,
        insert,
    };
    sqlite3_int64 roots = 0;
    int error = run_all_sqlite(store, steps, leaves ? 2 : 3, diag);
    if (error == 0)
        error = read_pragma(store, "SELECT count(*) FROM roots", &roots, diag);
    *out_roots = (uint32_t)roots;
    return error;
}

static int sqlite_unmark(struct weir_backend *backend, bool *out_was,
                         struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    static const char *const steps[] = { "DELETE FROM never_leased" };
    sqlite3_int64 tables = 0;
    *out_was = false;
    int error = read_pragma(store,
                            "SELECT count(*) FROM sqlite_schema"
                            " WHERE name = 'never_leased'",
                            &tables, diag);
    if (error == 0 && tables > 0) {
        error = run_all_sqlite(store, steps, WEIR_COUNT_OF(steps), diag);
        *out_was = error == 0 && sqlite3_changes(store->db) > 0;
    }
    return error;
}

static int sqlite_meta(struct weir_backend *backend,
                       struct weir_store_meta *out, struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    sqlite3_stmt *row = store->statements[SQL_META];
    int code = sqlite3_step(row);
    int error = 0;
    out->moved_to[0] = '\0';
    if (code != SQLITE_ROW) {
        error = code == SQLITE_DONE
                    ? weir_sqlite_refuse(store->path, SQLITE_CORRUPT, "", diag)
                    : refuse_sqlite(store, diag);
    } else if (sqlite3_column_bytes(row, 0) != sizeof(out->id.uuid)) {
        error = weir_sqlite_refuse(store->path, SQLITE_CORRUPT, "", diag);
    } else {
        memcpy(out->id.uuid, sqlite3_column_blob(row, 0), sizeof(out->id.uuid));
        out->id.restores = sqlite_number_at(row, 1);
        out->epoch = sqlite_number_at(row, 2);
        out->floor = sqlite_number_at(row, 3);
        out->last_id = sqlite_number_at(row, 4);
        error = check_newer(store, sqlite_number_at(row, 5), diag);
        if (error == 0 && sqlite_number_at(row, 6) > 0)
            error = read_moved_sqlite(store, out, diag);
    }
    sqlite3_reset(row);
    return error;
}

/* SQLite gives NULL for a text that it couldn't read (from a damaged page). */
static bool is_text_lost(sqlite3_stmt *at, int column)
{
    return !sqlite3_column_text(at, column) &&
           sqlite3_column_type(at, column) != SQLITE_NULL;
}

static int each_row(struct sqlite_store *store, sqlite3_stmt *at,
                    weir_row_each *each, void *context, struct weir_diag *diag)
{
    if (is_text_lost(at, 3) || is_text_lost(at, 4))
        return refuse_sqlite(store, diag);
    const struct weir_row row = {
        .epoch = sqlite_number_at(at, 0),
        .id = sqlite_number_at(at, 1),
        .created = sqlite_number_at(at, 2),
        .name = sqlite_text_at(at, 3),
        .fields = sqlite_text_at(at, 4),
        .removed = sqlite_number_at(at, 5) == 1,
    };
    return each(context, &row);
}

static int sqlite_read(struct weir_backend *backend, uint64_t epoch,
                       weir_row_each *each, void *context,
                       struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    sqlite3_stmt *row = store->statements[SQL_READ];
    sqlite3_int64 above = epoch < INT64_MAX ? (sqlite3_int64)epoch : INT64_MAX;
    sqlite3_bind_int64(row, 1, epoch > 0 ? above : INT64_MIN);
    int error = 0;
    while (error == 0) {
        int code = sqlite3_step(row);
        if (code == SQLITE_DONE)
            break;
        error = code == SQLITE_ROW ? each_row(store, row, each, context, diag)
                                   : refuse_sqlite(store, diag);
    }
    sqlite3_reset(row);
    return error;
}

static int each_log_row(sqlite3_stmt *at, weir_log_row_each *each,
                        void *context)
{
    const struct weir_log_row row = {
        .epoch = sqlite_number_at(at, 0),
        .edit = sqlite_number_at(at, 1),
        .at_ms = sqlite_number_at(at, 2),
        .identity = sqlite_text_at(at, 3),
        .name = sqlite_text_at(at, 4),
        .was = sqlite_text_at(at, 5),
        .became = sqlite_text_at(at, 6),
    };
    return each(context, &row);
}

/* 'p' NULL binds NULL. */
static void bind_text(sqlite3_stmt *statement, int at, struct weir_text text)
{
    if (text.p)
        sqlite3_bind_text64(statement, at, text.p, text.len, SQLITE_TRANSIENT,
                            SQLITE_UTF8);
    else
        sqlite3_bind_null(statement, at);
}

static int sqlite_read_log(struct weir_backend *backend,
                           const struct weir_log_query *query,
                           weir_log_row_each *each, void *context,
                           struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    sqlite3_stmt *row = store->statements[SQL_LOG_READ + query->which];
    sqlite3_bind_int64(row, 1, (sqlite3_int64)query->number);
    bind_text(row, 2, query->name);
    sqlite3_bind_int64(row, 3, (sqlite3_int64)query->max);
    int error = 0;
    while (error == 0) {
        int code = sqlite3_step(row);
        if (code == SQLITE_DONE)
            break;
        error = code == SQLITE_ROW ? each_log_row(row, each, context)
                                   : refuse_sqlite(store, diag);
    }
    sqlite3_reset(row);
    return error;
}

static int write_tombstone(struct sqlite_store *store,
                           const struct weir_row *row, struct weir_diag *diag)
{
    bind_text(store->statements[SQL_DELETE], 1, row->name);
    int error = run_statement(store, SQL_DELETE, diag);
    if (error < 0)
        return error;
    bind_text(store->statements[SQL_TOMBSTONE], 1, row->name);
    sqlite3_bind_int64(store->statements[SQL_TOMBSTONE], 2,
                       (sqlite3_int64)row->epoch);
    return run_statement(store, SQL_TOMBSTONE, diag);
}

static int sqlite_write(struct weir_backend *backend,
                        const struct weir_row *row, bool fresh,
                        struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    if (row->removed)
        return write_tombstone(store, row, diag);
    if (fresh) {
        bind_text(store->statements[SQL_DELETE], 1, row->name);
        int error = run_statement(store, SQL_DELETE, diag);
        if (error < 0)
            return error;
    }
    sqlite3_stmt *write = store->statements[SQL_WRITE];
    sqlite3_bind_int64(write, 1, (sqlite3_int64)row->id);
    sqlite3_bind_int64(write, 2, (sqlite3_int64)row->epoch);
    sqlite3_bind_int64(write, 3, (sqlite3_int64)row->created);
    bind_text(write, 4, row->name);
    bind_text(write, 5, row->fields);
    int error = run_statement(store, SQL_WRITE, diag);
    if (error < 0 || !fresh)
        return error;
    bind_text(store->statements[SQL_UNBURY], 1, row->name);
    return run_statement(store, SQL_UNBURY, diag);
}

static int sqlite_log(struct weir_backend *backend,
                      const struct weir_log_row *row, struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    sqlite3_stmt *log = store->statements[SQL_LOG];
    sqlite3_bind_int64(log, 1, (sqlite3_int64)row->epoch);
    sqlite3_bind_int64(log, 2, (sqlite3_int64)row->edit);
    sqlite3_bind_int64(log, 3, (sqlite3_int64)row->at_ms);
    bind_text(log, 4, row->identity.p ? row->identity : WEIR_TEXT(""));
    bind_text(log, 5, row->name);
    bind_text(log, 6, row->was);
    bind_text(log, 7, row->became);
    return run_statement(store, SQL_LOG, diag);
}

static int forget_tombstones(struct sqlite_store *store,
                             sqlite3_int64 *out_floor, struct weir_diag *diag)
{
    sqlite3_stmt *oldest = store->statements[SQL_OLDEST];
    sqlite3_bind_int64(oldest, 1, WEIR_TOMBSTONES_MAX);
    int code = sqlite3_step(oldest);
    if (code == SQLITE_ROW)
        *out_floor = sqlite3_column_int64(oldest, 0);
    sqlite3_reset(oldest);
    if (code == SQLITE_DONE)
        return 0;
    if (code != SQLITE_ROW)
        return refuse_sqlite(store, diag);
    sqlite3_bind_int64(store->statements[SQL_FORGET], 1, *out_floor);
    return run_statement(store, SQL_FORGET, diag);
}

static int forget_sqlite_log(struct sqlite_store *store, uint64_t epoch,
                             struct weir_diag *diag)
{
    if (epoch <= WEIR_STORE_LOG_MAX)
        return 0;
    sqlite3_bind_int64(store->statements[SQL_LOG_FORGET], 1,
                       (sqlite3_int64)(epoch - WEIR_STORE_LOG_MAX));
    return run_statement(store, SQL_LOG_FORGET, diag);
}

static int sqlite_finish(struct weir_backend *backend,
                         const struct weir_store_meta *meta, bool removed,
                         struct weir_diag *diag)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    sqlite3_int64 floor = (sqlite3_int64)meta->floor;
    int error = removed ? forget_tombstones(store, &floor, diag) : 0;
    if (error == 0)
        error = forget_sqlite_log(store, meta->epoch, diag);
    if (error < 0)
        return error;
    sqlite3_stmt *statement = store->statements[SQL_FINISH];
    sqlite3_bind_blob(statement, 1, meta->id.uuid, sizeof(meta->id.uuid),
                      SQLITE_TRANSIENT);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)meta->id.restores);
    sqlite3_bind_int64(statement, 3, (sqlite3_int64)meta->epoch);
    sqlite3_bind_int64(statement, 4, floor);
    sqlite3_bind_int64(statement, 5, (sqlite3_int64)meta->last_id);
    return run_statement(store, SQL_FINISH, diag);
}

/* ---- Changes by others ---------------------------------------------- */

/* data_version changes when another connection has committed, not with own
 * commits. A file that was moved away or put back counts as a change: the
 * caller's next read reports which. */
static bool sqlite_changed(struct weir_backend *backend)
{
    struct sqlite_store *store = sqlite_store_of(backend);
    bool gone = is_file_gone(store);
    bool news = gone != store->was_gone || store->touched || !store->seen;
    store->was_gone = gone;
    store->touched = false;
    sqlite3_busy_timeout(store->db, 0);
    sqlite3_stmt *row = store->statements[SQL_VERSION];
    if (sqlite3_step(row) == SQLITE_ROW) {
        sqlite3_int64 version = sqlite3_column_int64(row, 0);
        news = news || version != store->version;
        store->version = version;
        store->seen = true;
    }
    sqlite3_reset(row);
    sqlite3_busy_timeout(store->db, BUSY_MS);
    return news;
}

const struct weir_backend_type weir_backend_sqlite = {
    .scheme = "sqlite",
    .example = "sqlite:FILE",
    .make = sqlite_make,
    .create = sqlite_create,
    .open = sqlite_open,
    .upgrade = sqlite_upgrade,
    .check_mode = sqlite_check_mode,
    .close = sqlite_close,
    .begin = sqlite_begin,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .meta = sqlite_meta,
    .read = sqlite_read,
    .read_log = sqlite_read_log,
    .write = sqlite_write,
    .log = sqlite_log,
    .finish = sqlite_finish,
    .move = sqlite_move,
    .present = sqlite_present,
    .unmark = sqlite_unmark,
    .changed = sqlite_changed,
};
