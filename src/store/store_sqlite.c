/* SPDX-License-Identifier: MIT
 * store/store_sqlite.c - quotas in an SQLite file.
 *
 * Several roots on one machine may open one file. WAL lets each read while
 * another writes; BEGIN IMMEDIATE makes edits queue, two seconds at most;
 * synchronous=FULL because an edit that was answered, then lost with the
 * power, would set the epoch back.
 *
 *     meta        one row: uuid, restores, epoch, floor
 *     quotas      id (never reused), epoch, created, name and a text column
 *                 for each field, NULL where it has its default
 *     tombstones  name, epoch
 *
 * The columns are those of weir_quota_fields(), each with the very text that
 * a person would enter, so a store can be read with sqlite3 and loses
 * nothing. A new field is a new column and a new schema number.
 *
 * What isn't ours is refused by two numbers in the file's header:
 * application_id says Weir, user_version is the schema.
 *
 * SQLite goes on, without complaint, with a file that was moved away, as it
 * holds a descriptor: an edit would then vanish with that file. So each
 * transaction begins by comparing the path's device and inode with those at
 * the opening. A new store is made beside its path and linked there when it
 * is complete, so that a crash leaves no half of one and two makers can't
 * both succeed. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "quota/quota_text.h"
#include "store/backend.h"

#define APPLICATION_ID 0x57656972 /* "Weir" */
#define BUSY_MS 2000
#define SQL_MAX 4096

enum statement {
    SQL_BEGIN_READ,
    SQL_BEGIN_WRITE,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_META,
    SQL_READ,
    SQL_INSERT,
    SQL_UPDATE,
    SQL_DELETE,
    SQL_BURY,
    SQL_UNBURY,
    SQL_OLDEST,
    SQL_FORGET,
    SQL_FINISH,
    SQL_VERSION,
    SQL_COUNT,
};

struct sqlite_store {
    struct weir_backend base;
    sqlite3 *db;
    sqlite3_stmt *statements[SQL_COUNT];
    dev_t device;
    ino_t inode;
    bool seen;         /* 'version' is from an earlier call of changed() */
    bool touched;      /* an edit through this handle since then */
    bool was_gone;     /* the file wasn't in its place then */
    sqlite3_int64 version;
    char path[];
};

static struct sqlite_store *store_of(struct weir_backend *backend)
{
    return (struct sqlite_store *)backend;
}

/* ---- Errors --------------------------------------------------------- */

static int refuse(const char *path, int code, const char *message,
                  struct weir_diag *diag)
{
    switch (code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return weir_diag_set(diag, WEIR_ELOCKED, "the quota store ", path,
                             " is locked by another process; nothing was "
                             "changed. Try again once it lets go ('fuser ",
                             path, "' names it)", NULL);
    case SQLITE_NOTADB:
        return weir_diag_set(diag, WEIR_ESTORE, path, " isn't a quota store "
                             "of Weir", NULL);
    case SQLITE_CORRUPT:
        return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", path,
                             " is damaged; restore it from a backup", NULL);
    case SQLITE_FULL:
        return weir_diag_set(diag, WEIR_ESTORE, "there is no room on the "
                             "disk for the quota store ", path,
                             "; nothing was changed", NULL);
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", path,
                             " can't be written by this user", NULL);
    case SQLITE_NOMEM:
        return weir_diag_set(diag, WEIR_ENOMEM, "there is no memory for the "
                             "quota store ", path, NULL);
    default:
        return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", path,
                             " can't be used: ", message, NULL);
    }
}

static int fail(struct sqlite_store *store, struct weir_diag *diag)
{
    return refuse(store->path, sqlite3_errcode(store->db),
                  sqlite3_errmsg(store->db), diag);
}

static int refuse_system(const char *what, const char *path, int error,
                         struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ESTORE, what, path, ": ",
                         strerrordesc_np(error), NULL);
}

/* ---- Statements ----------------------------------------------------- */

/* A field with a column: all but those that the store keeps as numbers. */
static const struct weir_field *column(size_t index)
{
    size_t count;
    const struct weir_field *fields = weir_quota_fields(&count);
    for (size_t i = 0; i < count; i++) {
        if (!fields[i].read_only && index-- == 0)
            return &fields[i];
    }
    return NULL;
}

/* 'before' NAME 'after' for each column. */
static void out_columns(struct weir_out *out, const char *before,
                        const char *after)
{
    for (size_t i = 0; column(i); i++) {
        weir_out_string(out, before);
        weir_out_string(out, column(i)->name);
        weir_out_string(out, after);
    }
}

static void write_schema(char *sql)
{
    struct weir_out out = { sql, SQL_MAX - 1, 0 };
    weir_out_string(&out,
        "CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1),"
        " uuid BLOB NOT NULL, restores INTEGER NOT NULL,"
        " epoch INTEGER NOT NULL, floor INTEGER NOT NULL) STRICT;"
        "INSERT INTO meta VALUES (1, randomblob(16), 0, 0, 0);"
        "CREATE TABLE tombstones (name TEXT NOT NULL UNIQUE,"
        " epoch INTEGER PRIMARY KEY) STRICT;"
        "CREATE TABLE quotas (id INTEGER PRIMARY KEY AUTOINCREMENT,"
        " epoch INTEGER NOT NULL UNIQUE, created INTEGER NOT NULL");
    out_columns(&out, ", \"", "\" TEXT");
    weir_out_string(&out, ") STRICT;"
        "CREATE UNIQUE INDEX quotas_name ON quotas (\"name\");");
    sql[out.len] = '\0';
}

/* The statements whose columns come from the table of fields. */
static void write_sql(enum statement which, char *sql)
{
    struct weir_out out = { sql, SQL_MAX - 1, 0 };
    if (which == SQL_READ) {
        weir_out_string(&out, "SELECT epoch, id, created");
        out_columns(&out, ", \"", "\"");
        weir_out_string(&out, " FROM quotas WHERE epoch > ?1"
                              " UNION ALL SELECT epoch, NULL, NULL, name");
        for (size_t i = 1; column(i); i++)
            weir_out_string(&out, ", NULL");
        weir_out_string(&out, " FROM tombstones WHERE epoch > ?1 ORDER BY 1");
    } else if (which == SQL_INSERT) {
        weir_out_string(&out, "INSERT INTO quotas (epoch, created");
        out_columns(&out, ", \"", "\"");
        weir_out_string(&out, ") VALUES (?1, ?2");
        for (size_t i = 0; column(i); i++)
            weir_out_string(&out, ", ?");
        weir_out_string(&out, ")");
    } else {
        weir_out_string(&out, "UPDATE quotas SET epoch = ?1, created = ?2");
        out_columns(&out, ", \"", "\" = ?");
        weir_out_string(&out, " WHERE \"name\" = ?3");
    }
    sql[out.len] = '\0';
}

static const char *const fixed_sql[SQL_COUNT] = {
    [SQL_BEGIN_READ] = "BEGIN",
    [SQL_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_META] = "SELECT uuid, restores, epoch, floor FROM meta",
    [SQL_DELETE] = "DELETE FROM quotas WHERE \"name\" = ?1",
    [SQL_BURY] = "INSERT OR REPLACE INTO tombstones (name, epoch)"
                 " VALUES (?1, ?2)",
    [SQL_UNBURY] = "DELETE FROM tombstones WHERE name = ?1",
    [SQL_OLDEST] = "SELECT epoch FROM tombstones ORDER BY epoch DESC"
                   " LIMIT 1 OFFSET ?1",
    [SQL_FORGET] = "DELETE FROM tombstones WHERE epoch <= ?1",
    [SQL_FINISH] = "UPDATE meta SET epoch = ?1, floor = max(floor, ?2)",
    [SQL_VERSION] = "PRAGMA data_version",
};

static int prepare(struct sqlite_store *store, struct weir_diag *diag)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        char made[SQL_MAX];
        const char *sql = fixed_sql[i];
        if (!sql) {
            write_sql((enum statement)i, made);
            sql = made;
        }
        int code = sqlite3_prepare_v3(store->db, sql, -1,
                                      SQLITE_PREPARE_PERSISTENT,
                                      &store->statements[i], NULL);
        if (code != SQLITE_OK)
            return fail(store, diag);
    }
    return 0;
}

/* Runs a statement that gives no row, its parameters bound. */
static int run(struct sqlite_store *store, enum statement which,
               struct weir_diag *diag)
{
    sqlite3_stmt *statement = store->statements[which];
    int code = sqlite3_step(statement);
    int error = code == SQLITE_DONE || code == SQLITE_ROW ? 0
                                                          : fail(store, diag);
    sqlite3_reset(statement);
    return error;
}

/* ---- The file ------------------------------------------------------- */

static bool is_gone(const struct sqlite_store *store)
{
    struct stat now;
    return stat(store->path, &now) < 0 || now.st_dev != store->device ||
           now.st_ino != store->inode;
}

static int check_path(const struct sqlite_store *store,
                      struct weir_diag *diag)
{
    if (!is_gone(store))
        return 0;
    return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", store->path,
                         " was moved, removed or replaced while it was open; "
                         "put it back, or start again with the file that is "
                         "to be used", NULL);
}

/* A number of the file's header. */
static int read_pragma(struct sqlite_store *store, const char *sql,
                       sqlite3_int64 *out, struct weir_diag *diag)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL) != SQLITE_OK)
        return fail(store, diag);
    int error = 0;
    if (sqlite3_step(statement) == SQLITE_ROW)
        *out = sqlite3_column_int64(statement, 0);
    else
        error = fail(store, diag);
    sqlite3_finalize(statement);
    return error;
}

static int check_schema(struct sqlite_store *store, struct weir_diag *diag)
{
    sqlite3_int64 application = 0;
    sqlite3_int64 schema = 0;
    int error = read_pragma(store, "PRAGMA application_id", &application,
                            diag);
    if (error == 0)
        error = read_pragma(store, "PRAGMA user_version", &schema, diag);
    if (error < 0)
        return error;
    if (application != APPLICATION_ID || schema < 1)
        return refuse(store->path, SQLITE_NOTADB, "", diag);
    if (schema <= WEIR_STORE_SCHEMA)
        return 0;
    char has[WEIR_NUMBER_MAX];
    char reads[WEIR_NUMBER_MAX];
    return weir_diag_set(diag, WEIR_ESCHEMA, "the quota store ", store->path,
                         " has schema ",
                         weir_number_show((uint64_t)schema, has),
                         ", this program reads up to ",
                         weir_number_show(WEIR_STORE_SCHEMA, reads),
                         "; upgrade Weir here", NULL);
}

static void sqlite_close(struct weir_backend *backend)
{
    struct sqlite_store *store = store_of(backend);
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(store->statements[i]);
    sqlite3_close(store->db);
    free(store);
}

/* "./" keeps names that mean something to SQLite (":memory:") plain. */
static struct sqlite_store *new_store(const char *where)
{
    struct sqlite_store *store = calloc(1, sizeof(*store) + strlen(where) +
                                               sizeof("./"));
    if (!store)
        return NULL;
    store->base.type = &weir_backend_sqlite;
    strcpy(store->path, where[0] == ':' ? "./" : "");
    strcat(store->path, where);
    return store;
}

static int open_file(struct sqlite_store *store, struct weir_diag *diag)
{
    struct stat file;
    if (stat(store->path, &file) < 0) {
        if (errno != ENOENT)
            return refuse_system("can't open the quota store ", store->path,
                                 errno, diag);
        return weir_diag_set(diag, WEIR_ENOENT, "there is no quota store ",
                             store->path, "; create it with 'weir store init "
                             "sqlite:", store->path, "'", NULL);
    }
    store->device = file.st_dev;
    store->inode = file.st_ino;
    if (!S_ISREG(file.st_mode))
        return refuse(store->path, SQLITE_NOTADB, "", diag);
    int code = sqlite3_open_v2(store->path, &store->db,
                               SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                               NULL);
    if (code != SQLITE_OK)
        return refuse(store->path, code, sqlite3_errstr(code), diag);
    sqlite3_busy_timeout(store->db, BUSY_MS);
    int error = check_schema(store, diag);
    if (error < 0)
        return error;
    code = sqlite3_exec(store->db, "PRAGMA synchronous = FULL;"
                        "PRAGMA trusted_schema = OFF", NULL, NULL, NULL);
    if (code != SQLITE_OK)
        return fail(store, diag);
    error = prepare(store, diag);
    return error < 0 ? error : check_path(store, diag);
}

static int sqlite_open(const char *where, struct weir_backend **out,
                       struct weir_diag *diag)
{
    struct sqlite_store *store = new_store(where);
    if (!store)
        return refuse(where, SQLITE_NOMEM, "", diag);
    int error = open_file(store, diag);
    if (error < 0) {
        sqlite_close(&store->base);
        return error;
    }
    *out = &store->base;
    return 0;
}

/* ---- Making one ----------------------------------------------------- */

static int fill_new(const char *path, struct weir_diag *diag)
{
    char schema[SQL_MAX];
    char header[128];
    write_schema(schema);
    snprintf(header, sizeof(header), "PRAGMA application_id = %d;"
             "PRAGMA user_version = %d;", APPLICATION_ID, WEIR_STORE_SCHEMA);
    sqlite3 *db = NULL;
    int code = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE |
                               SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                               NULL);
    const char *const steps[] = { "PRAGMA journal_mode = WAL", "BEGIN",
                                  header, schema, "COMMIT" };
    for (size_t i = 0; code == SQLITE_OK && i < WEIR_COUNT_OF(steps); i++)
        code = sqlite3_exec(db, steps[i], NULL, NULL, NULL);
    int error = code == SQLITE_OK
                    ? 0
                    : refuse(path, code, sqlite3_errmsg(db), diag);
    sqlite3_close(db);
    return error;
}

static int publish(const char *made, const char *path,
                   struct weir_diag *diag)
{
    if (link(made, path) == 0)
        return 0;
    if (errno == EEXIST)
        return weir_diag_set(diag, WEIR_EEXIST, "there is a file ", path,
                             " already; remove it or choose another name",
                             NULL);
    return refuse_system("can't create the quota store ", path, errno, diag);
}

static int sqlite_init(const char *where, struct weir_diag *diag)
{
    struct stat file;
    struct sqlite_store *store = new_store(where);
    char *made = NULL;
    if (!store || asprintf(&made, "%s.new-%ld", store->path,
                           (long)getpid()) < 0) {
        free(store);
        return refuse(where, SQLITE_NOMEM, "", diag);
    }
    int error;
    if (lstat(store->path, &file) == 0) {
        error = weir_diag_set(diag, WEIR_EEXIST, "there is a file ",
                              store->path, " already; remove it or choose "
                              "another name", NULL);
    } else {
        unlink(made);
        error = fill_new(made, diag);
        if (error == 0)
            error = publish(made, store->path, diag);
        unlink(made);
    }
    free(made);
    free(store);
    return error;
}

/* ---- Transactions --------------------------------------------------- */

static int sqlite_begin(struct weir_backend *backend, bool write,
                        struct weir_diag *diag)
{
    struct sqlite_store *store = store_of(backend);
    int error = check_path(store, diag);
    if (error < 0)
        return error;
    return run(store, write ? SQL_BEGIN_WRITE : SQL_BEGIN_READ, diag);
}

static int sqlite_commit(struct weir_backend *backend,
                         struct weir_diag *diag)
{
    struct sqlite_store *store = store_of(backend);
    int error = check_path(store, diag);
    if (error == 0)
        error = run(store, SQL_COMMIT, diag);
    store->touched = store->touched || error == 0;
    return error;
}

/* Some errors have rolled back already, and a commit may have failed. */
static void sqlite_rollback(struct weir_backend *backend)
{
    struct sqlite_store *store = store_of(backend);
    if (!sqlite3_get_autocommit(store->db))
        run(store, SQL_ROLLBACK, NULL);
}

static int sqlite_meta(struct weir_backend *backend,
                       struct weir_store_meta *out, struct weir_diag *diag)
{
    struct sqlite_store *store = store_of(backend);
    sqlite3_stmt *row = store->statements[SQL_META];
    int code = sqlite3_step(row);
    int error = 0;
    if (code != SQLITE_ROW) {
        error = code == SQLITE_DONE
                    ? refuse(store->path, SQLITE_CORRUPT, "", diag)
                    : fail(store, diag);
    } else if (sqlite3_column_bytes(row, 0) != sizeof(out->id.uuid)) {
        error = refuse(store->path, SQLITE_CORRUPT, "", diag);
    } else {
        memcpy(out->id.uuid, sqlite3_column_blob(row, 0),
               sizeof(out->id.uuid));
        out->id.restores = (uint64_t)sqlite3_column_int64(row, 1);
        out->epoch = (uint64_t)sqlite3_column_int64(row, 2);
        out->floor = (uint64_t)sqlite3_column_int64(row, 3);
    }
    sqlite3_reset(row);
    return error;
}

static int read_row(struct sqlite_store *store, struct weir_change *out,
                    struct weir_diag *diag)
{
    sqlite3_stmt *row = store->statements[SQL_READ];
    struct weir_quota *quota = &out->quota;
    weir_quota_init(quota);
    out->removed = sqlite3_column_type(row, 1) == SQLITE_NULL;
    quota->epoch = (uint64_t)sqlite3_column_int64(row, 0);
    quota->id = (uint64_t)sqlite3_column_int64(row, 1);
    quota->created = (uint64_t)sqlite3_column_int64(row, 2);
    for (int i = 0; column((size_t)i); i++) {
        const char *text = (const char *)sqlite3_column_text(row, i + 3);
        if (!text)
            continue;
        struct weir_text value = {
            text, (size_t)sqlite3_column_bytes(row, i + 3)
        };
        struct weir_diag why = { 0 };
        struct weir_text field = weir_text_of(column((size_t)i)->name);
        if (weir_quota_set(quota, field, value, &why) == 0)
            continue;
        char shown[WEIR_SHOW_MAX];
        return weir_diag_set(diag, WEIR_ESTORE, "the quota ",
                             weir_text_show(quota->name, shown), " in ",
                             store->path, " can't be read: ", why.text, NULL);
    }
    return 0;
}

static int sqlite_read(struct weir_backend *backend, uint64_t epoch,
                       weir_store_each *each, void *context,
                       struct weir_diag *diag)
{
    struct sqlite_store *store = store_of(backend);
    sqlite3_stmt *row = store->statements[SQL_READ];
    sqlite3_bind_int64(row, 1, epoch < INT64_MAX ? (sqlite3_int64)epoch
                                                 : INT64_MAX);
    int error = 0;
    while (error == 0) {
        int code = sqlite3_step(row);
        if (code == SQLITE_DONE)
            break;
        struct weir_change change;
        error = code == SQLITE_ROW ? read_row(store, &change, diag)
                                   : fail(store, diag);
        if (error == 0)
            error = each(context, &change);
    }
    sqlite3_reset(row);
    return error;
}

static void bind_text(sqlite3_stmt *statement, int at, struct weir_text text)
{
    sqlite3_bind_text64(statement, at, text.len > 0 ? text.p : "", text.len,
                        SQLITE_TRANSIENT, SQLITE_UTF8);
}

static void bind_quota(sqlite3_stmt *statement,
                       const struct weir_quota *quota)
{
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)quota->epoch);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)quota->created);
    for (int i = 0; column((size_t)i); i++) {
        const char *name = column((size_t)i)->name;
        char buf[WEIR_FIELD_VALUE_MAX];
        if (weir_quota_is_default(quota, name)) {
            sqlite3_bind_null(statement, i + 3);
            continue;
        }
        size_t len = weir_quota_get(quota, name, buf, sizeof(buf));
        bind_text(statement, i + 3, (struct weir_text){ buf, len });
    }
}

static int sqlite_put(struct weir_backend *backend, struct weir_quota *quota,
                      struct weir_diag *diag)
{
    struct sqlite_store *store = store_of(backend);
    bool fresh = quota->id == 0;
    enum statement which = fresh ? SQL_INSERT : SQL_UPDATE;
    bind_quota(store->statements[which], quota);
    int error = run(store, which, diag);
    if (error < 0 || !fresh)
        return error;
    quota->id = (uint64_t)sqlite3_last_insert_rowid(store->db);
    bind_text(store->statements[SQL_UNBURY], 1, quota->name);
    return run(store, SQL_UNBURY, diag);
}

static int sqlite_remove(struct weir_backend *backend, struct weir_text name,
                         uint64_t epoch, struct weir_diag *diag)
{
    struct sqlite_store *store = store_of(backend);
    bind_text(store->statements[SQL_DELETE], 1, name);
    int error = run(store, SQL_DELETE, diag);
    if (error < 0)
        return error;
    bind_text(store->statements[SQL_BURY], 1, name);
    sqlite3_bind_int64(store->statements[SQL_BURY], 2, (sqlite3_int64)epoch);
    return run(store, SQL_BURY, diag);
}

static int forget(struct sqlite_store *store, sqlite3_int64 *out_floor,
                  struct weir_diag *diag)
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
        return fail(store, diag);
    sqlite3_bind_int64(store->statements[SQL_FORGET], 1, *out_floor);
    return run(store, SQL_FORGET, diag);
}

static int sqlite_finish(struct weir_backend *backend, uint64_t epoch,
                         bool removed, struct weir_diag *diag)
{
    struct sqlite_store *store = store_of(backend);
    sqlite3_int64 floor = 0;
    int error = removed ? forget(store, &floor, diag) : 0;
    if (error < 0)
        return error;
    sqlite3_stmt *statement = store->statements[SQL_FINISH];
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)epoch);
    sqlite3_bind_int64(statement, 2, floor);
    return run(store, SQL_FINISH, diag);
}

/* ---- What happened meanwhile ---------------------------------------- */

/* data_version moves when another connection has committed; own commits
 * don't move it. A file that went or came back is news too: the caller's
 * next read will say which. */
static bool sqlite_changed(struct weir_backend *backend)
{
    struct sqlite_store *store = store_of(backend);
    bool gone = is_gone(store);
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
    .init = sqlite_init,
    .open = sqlite_open,
    .close = sqlite_close,
    .begin = sqlite_begin,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .meta = sqlite_meta,
    .read = sqlite_read,
    .put = sqlite_put,
    .remove = sqlite_remove,
    .finish = sqlite_finish,
    .changed = sqlite_changed,
};
