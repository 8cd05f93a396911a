/* SPDX-License-Identifier: MIT
 * store/store_postgres.c - quotas in a PostgreSQL database.
 *
 * One database holds one store, in a schema of its own (a log row as SQLite's):
 *
 *     weir.weir_meta        one row: schema, uuid, restores, epoch, floor,
 *                           last_id
 *     weir.weir_quotas      id, epoch, created, name, fields (row.c)
 *     weir.weir_tombstones  name, epoch
 *     weir.weir_log         epoch, edit, …, name, was, became
 *     weir.weir_never_leased  its row: no root was ever master
 *     weir.weir_moved       exists after a migration: place, the URL of
 *                           the new one
 *
 * Every statement names the schema, and the search path is pg_catalog, so that
 * no other table or function can be used by mistake.
 *
 * An edit begins by locking the meta row; the next editor waits there, two
 * seconds at most. The epoch is in that row and not in a SEQUENCE, which gives
 * numbers out before commits: a reader could see 8, and 7 later.
 *
 * Each edit notifies within its transaction, so that roots are notified if and
 * only if it is committed. A root listens before it first reads, so it misses
 * no change in between.
 *
 * Rows are written by the thousand, in one statement with an array for each
 * column. A statement per row would cost a round trip per row; COPY has a
 * protocol of its own and can't update. Within a transaction a name comes once,
 * so the order of the arrays doesn't matter. Rows are read through a cursor, by
 * the thousand too: a million quotas are never in memory. Names compare as
 * bytes (COLLATE "C"): other orders change with the system's libraries, and an
 * index with them. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/quota/quota_text.h"
#include "io/byte_queue.h"
#include "store/backend.h"
#include "store/postgres_session.h"

#define BATCH_ROWS 1000
#define BATCH_BYTES (1 << 20)
#define COLUMNS_MAX 7
#define FIRST_SCHEMA 2 /* that was kept in PostgreSQL */

/* In the order in which they are written: a bad row of a fresh name goes before
 * the new one comes. */
enum batch_kind { BATCH_FRESH, BATCH_QUOTAS, BATCH_GONE, BATCH_LOG, BATCHES };

struct batch {
    /* each as the text of an array: {1,2} or {"a","b"} */
    struct weir_byte_queue columns[COLUMNS_MAX];
    size_t rows;
    size_t bytes;
};

struct postgres_store {
    struct weir_backend base;
    struct weir_session session;
    struct batch batches[BATCHES];
    bool seen;   /* changed() was called before */
    bool failed; /* no memory for a batch */
};

static struct postgres_store *postgres_store_of(struct weir_backend *backend)
{
    return (struct postgres_store *)backend;
}

static int run_postgres(struct postgres_store *store, const char *sql,
                        struct weir_diag *diag)
{
    return weir_session_run(&store->session, sql, NULL, 0, NULL, diag);
}

static int refuse_postgres_memory(struct postgres_store *store,
                                  struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ENOMEM,
                         "there is no memory for the quota store ",
                         store->session.shown, NULL);
}

/* ---- Batches -------------------------------------------------------- */

static const int batch_columns[BATCHES] = {
    [BATCH_QUOTAS] = 5,
    [BATCH_FRESH] = 1,
    [BATCH_GONE] = 2,
    [BATCH_LOG] = 7,
};

static const char *const batch_sql[BATCHES] = {
    [BATCH_QUOTAS] =
        "INSERT INTO weir.weir_quotas (id, epoch, created, name, fields) "
        "SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], "
        "$4::text[], $5::text[]) ON CONFLICT (id) DO UPDATE SET epoch = "
        "excluded.epoch, created = excluded.created, fields = excluded.fields",
    [BATCH_FRESH] =
        "WITH bad AS (DELETE FROM weir.weir_quotas WHERE name = ANY "
        "($1::text[])) DELETE FROM weir.weir_tombstones WHERE name = ANY "
        "($1::text[])",
    [BATCH_GONE] = "WITH gone AS (DELETE FROM weir.weir_quotas WHERE name = "
                   "ANY ($1::text[])) INSERT INTO weir.weir_tombstones (name, "
                   "epoch) SELECT * FROM unnest($1::text[], $2::bigint[]) ON "
                   "CONFLICT (name) DO UPDATE SET epoch = excluded.epoch",
    [BATCH_LOG] =
        "INSERT INTO weir.weir_log (epoch, edit, at_ms, who, name, "
        "was, became) SELECT * FROM unnest($1::bigint[], $2::bigint[], "
        "$3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[])",
};

static void clear_batch(struct batch *batch)
{
    for (size_t i = 0; i < COLUMNS_MAX; i++)
        batch->columns[i].len = 0;
    batch->rows = 0;
    batch->bytes = 0;
}

/* Begins an element of at most 'more' bytes in a column, with room for the
 * array's closing brace and a NUL; NULL: no memory. */
static struct weir_byte_queue *begin_element(struct postgres_store *store,
                                             struct batch *batch, int index,
                                             size_t more)
{
    weir_assert(index < COLUMNS_MAX);
    struct weir_byte_queue *column = &batch->columns[index];
    if (!weir_byte_queue_reserve(column, more + 3)) {
        store->failed = true;
        return NULL;
    }
    weir_byte_queue_append(column, column->len == 0 ? "{" : ",", 1);
    return column;
}

static void add_plain(struct postgres_store *store, struct batch *batch,
                      int index, const char *text)
{
    size_t len = strlen(text);
    struct weir_byte_queue *column = begin_element(store, batch, index, len);
    if (!column)
        return;
    weir_byte_queue_append(column, text, len);
    batch->bytes += len + 1;
}

static void add_number_column(struct postgres_store *store, struct batch *batch,
                              int index, uint64_t number)
{
    char buf[WEIR_NUMBER_MAX];
    add_plain(store, batch, index, weir_number_show(number, buf));
}

/* 'p' NULL adds a NULL. */
static void add_text(struct postgres_store *store, struct batch *batch,
                     int index, struct weir_text text)
{
    if (!text.p) {
        add_plain(store, batch, index, "NULL");
        return;
    }
    struct weir_byte_queue *column =
        begin_element(store, batch, index, 2 * text.len + 2);
    if (!column)
        return;
    size_t before = column->len - 1;
    weir_byte_queue_append(column, "\"", 1);
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] == '"' || text.p[i] == '\\')
            weir_byte_queue_append(column, "\\", 1);
        weir_byte_queue_append(column, text.p + i, 1);
    }
    weir_byte_queue_append(column, "\"", 1);
    batch->bytes += column->len - before;
}

static int flush_postgres_batch(struct postgres_store *store,
                                enum batch_kind kind, struct weir_diag *diag)
{
    struct batch *batch = &store->batches[kind];
    const char *values[COLUMNS_MAX];
    if (store->failed)
        return refuse_postgres_memory(store, diag);
    if (batch->rows == 0)
        return 0;
    for (int i = 0; i < batch_columns[kind]; i++) {
        struct weir_byte_queue *column = &batch->columns[i];
        weir_assert(column->len > 0);
        weir_byte_queue_append(column, "}", sizeof("}"));
        values[i] = (const char *)column->p;
    }
    int error = weir_session_run(&store->session, batch_sql[kind], values,
                                 batch_columns[kind], NULL, diag);
    clear_batch(batch);
    return error;
}

/* Counts an added row; writes a full batch. */
static int count_row(struct postgres_store *store, enum batch_kind kind,
                     struct weir_diag *diag)
{
    struct batch *batch = &store->batches[kind];
    batch->rows++;
    if (batch->rows < BATCH_ROWS && batch->bytes < BATCH_BYTES &&
        !store->failed)
        return 0;
    int error = kind == BATCH_QUOTAS
                    ? flush_postgres_batch(store, BATCH_FRESH, diag)
                    : 0;
    if (error < 0)
        return error;
    return flush_postgres_batch(store, kind, diag);
}

/* ---- Opening and making --------------------------------------------- */

static void postgres_close(struct weir_backend *backend)
{
    struct postgres_store *store = postgres_store_of(backend);
    weir_session_close(&store->session);
    for (size_t i = 0; i < BATCHES * COLUMNS_MAX; i++)
        weir_byte_queue_fini(
            &store->batches[i / COLUMNS_MAX].columns[i % COLUMNS_MAX]);
    free(store);
}

static int postgres_make(const char *where, struct weir_backend **out,
                         struct weir_diag *diag)
{
    struct postgres_store *store = calloc(1, sizeof(*store));
    if (!store)
        return weir_diag_put(diag, WEIR_ENOMEM,
                             "there is no memory for the quota store");
    store->base.type = &weir_backend_postgres;
    int error = weir_session_open(&store->session, where, diag);
    if (error < 0)
        free(store);
    else
        *out = &store->base;
    return error;
}

/* Runs a query with one column and at most one row, and copies its text, cut if
 * necessary; "" for NULL and no row. */
static int read_value(struct postgres_store *store, const char *sql, char *buf,
                      size_t size, struct weir_diag *diag)
{
    PGresult *row;
    int error = weir_session_run(&store->session, sql, NULL, 0, &row, diag);
    if (error < 0)
        return error;
    snprintf(buf, size, "%s", PQntuples(row) > 0 ? PQgetvalue(row, 0, 0) : "");
    PQclear(row);
    return 0;
}

/* Whether there is a store of any schema in the database. */
static int look_for(struct postgres_store *store, bool *out_there,
                    struct weir_diag *diag)
{
    char table[64] = "";
    int error = read_value(store, "SELECT to_regclass('weir.weir_meta')", table,
                           sizeof(table), diag);
    if (error == 0)
        *out_there = table[0] != '\0';
    return error;
}

static int check_postgres_schema(struct postgres_store *store, uint64_t schema,
                                 struct weir_diag *diag)
{
    char has[WEIR_NUMBER_MAX];
    char reads[WEIR_NUMBER_MAX];
    const char *shown = store->session.shown;
    if (schema == WEIR_STORE_SCHEMA)
        return 0;
    weir_number_show(schema, has);
    if (schema < FIRST_SCHEMA)
        return weir_diag_set(
            diag, WEIR_ESCHEMA, "the quota store ", shown, " has schema ", has,
            ", which no Weir has made; restore it from a backup", NULL);
    if (schema < WEIR_STORE_SCHEMA)
        return weir_diag_set(diag, WEIR_ESCHEMA, "the quota store ", shown,
                             " was made by an older Weir (schema ", has,
                             "); run 'weir store upgrade ", shown, "'", NULL);
    return weir_diag_set(diag, WEIR_ESCHEMA, "the quota store ", shown,
                         " has schema ", has, ", this program reads up to ",
                         weir_number_show(WEIR_STORE_SCHEMA, reads),
                         "; upgrade Weir here", NULL);
}

static uint64_t postgres_number_at(const PGresult *rows, int row, int column)
{
    uint64_t number = 0;
    weir_number_parse(weir_text_of(PQgetvalue(rows, row, column)), &number);
    return number;
}

/* 0: the store has no meta row. */
static int read_schema(struct postgres_store *store, uint64_t *out,
                       struct weir_diag *diag)
{
    char schema[WEIR_NUMBER_MAX] = "";
    int error = read_value(store, "SELECT schema FROM weir.weir_meta", schema,
                           sizeof(schema), diag);
    if (error == 0 && !weir_number_parse(weir_text_of(schema), out))
        *out = 0;
    return error;
}

/* Refuses a database without a store. */
static int check_there(struct postgres_store *store, struct weir_diag *diag)
{
    bool there = false;
    int error = look_for(store, &there, diag);
    const char *shown = store->session.shown;
    if (error < 0 || there)
        return error;
    return weir_diag_set(diag, WEIR_ENOENT, "there is no quota store in ",
                         shown, "; create it with 'weir store init ", shown,
                         "'", NULL);
}

/* Listens before any read. */
static int postgres_open(struct weir_backend *backend, struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    uint64_t schema = 0;
    int error = check_there(store, diag);
    if (error == 0)
        error = read_schema(store, &schema, diag);
    if (error == 0)
        error = check_postgres_schema(store, schema, diag);
    return error < 0 ? error : run_postgres(store, "LISTEN weir_epoch", diag);
}

/* If two processes create a store at once, one waits here (the lock's number is
 * "Weir") and then sees the other's. */
static const char *const making_sql[] = {
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    "SELECT pg_advisory_xact_lock(1466263922)",
};

static const char *const schema_sql[] = {
    /* The database's owner may have created the schema for a user that may
     * not. */
    "DO $$ BEGIN IF to_regnamespace('weir') IS NULL THEN"
    " CREATE SCHEMA weir; END IF; END $$",
    "CREATE TABLE weir.weir_meta (one boolean PRIMARY KEY DEFAULT true"
    " CHECK (one), schema integer NOT NULL, uuid uuid NOT NULL,"
    " restores bigint NOT NULL, epoch bigint NOT NULL,"
    " floor bigint NOT NULL, last_id bigint NOT NULL)",
    "CREATE TABLE weir.weir_quotas (id bigint PRIMARY KEY,"
    " epoch bigint NOT NULL UNIQUE, created bigint NOT NULL,"
    " name text COLLATE \"C\" NOT NULL UNIQUE, fields text NOT NULL)",
    "CREATE TABLE weir.weir_tombstones (epoch bigint PRIMARY KEY,"
    " name text COLLATE \"C\" NOT NULL UNIQUE)",
    "CREATE TABLE weir.weir_log (epoch bigint PRIMARY KEY,"
    " edit bigint NOT NULL, at_ms bigint NOT NULL, who text NOT NULL,"
    " name text COLLATE \"C\" NOT NULL, was text, became text)",
    "CREATE INDEX weir_log_edit ON weir.weir_log (edit)",
    "CREATE INDEX weir_log_name ON weir.weir_log (name, epoch)",
};

/* Not part of the schema: an upgrade doesn't make it. */
static const char *const mark_sql[] = {
    "CREATE TABLE weir.weir_never_leased (one boolean PRIMARY KEY)",
    "INSERT INTO weir.weir_never_leased VALUES (true)",
};

/* For the presence of roots. Not part of the schema either: the first root on a
 * store that is older makes it, if its user may. */
static const char roots_sql[] =
    "DO $$ BEGIN IF to_regclass('weir.weir_roots') IS NULL THEN"
    " CREATE TABLE weir.weir_roots (id text PRIMARY KEY,"
    " seen timestamptz NOT NULL); END IF; END $$";

/* Runs the statements up to the first failure. */
static int run_all_postgres(struct postgres_store *store,
                            const char *const *sql, size_t count,
                            struct weir_diag *diag)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < count; i++)
        error = run_postgres(store, sql[i], diag);
    return error;
}

static int postgres_create(struct weir_backend *backend, struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    bool there = false;
    int error =
        run_all_postgres(store, making_sql, WEIR_COUNT_OF(making_sql), diag);
    if (error == 0)
        error = look_for(store, &there, diag);
    if (error == 0 && there)
        return weir_diag_set(diag, WEIR_EEXIST, "there is a quota store in ",
                             store->session.shown, " already", NULL);
    if (error == 0)
        error = run_all_postgres(store, schema_sql, WEIR_COUNT_OF(schema_sql),
                                 diag);
    char schema[WEIR_NUMBER_MAX];
    const char *const values[] = { weir_number_show(WEIR_STORE_SCHEMA,
                                                    schema) };
    if (error == 0)
        error = weir_session_run(&store->session,
                                 "INSERT INTO weir.weir_meta VALUES (true,"
                                 " $1::integer, '00000000-0000-0000-0000-"
                                 "000000000000', 0, 0, 0, 0)",
                                 values, 1, NULL, diag);
    if (error == 0)
        error =
            run_all_postgres(store, mark_sql, WEIR_COUNT_OF(mark_sql), diag);
    if (error == 0)
        error = run_postgres(store, roots_sql, diag);
    return error;
}

/* ---- Transactions --------------------------------------------------- */

static void postgres_rollback(struct weir_backend *backend)
{
    struct postgres_store *store = postgres_store_of(backend);
    for (size_t i = 0; i < BATCHES; i++)
        clear_batch(&store->batches[i]);
    store->failed = false;
    if (!store->session.lost &&
        PQtransactionStatus(store->session.connection) != PQTRANS_IDLE)
        run_postgres(store, "ROLLBACK", NULL);
}

/* Edits don't use REPEATABLE READ, which would show the state from before the
 * wait for the lock. */
static int postgres_begin(struct weir_backend *backend, enum weir_begin how,
                          struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    if (how == WEIR_BEGIN_READ)
        return run_postgres(
            store, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", diag);
    int error = run_postgres(
        store, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", diag);
    if (error == 0)
        error =
            run_postgres(store,
                         how == WEIR_BEGIN_FREE
                             ? "SELECT FROM weir.weir_meta FOR UPDATE NOWAIT"
                             : "SELECT FROM weir.weir_meta FOR UPDATE",
                         diag);
    if (error < 0)
        postgres_rollback(backend);
    return error;
}

static int postgres_commit(struct weir_backend *backend, struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    PGresult *result;
    int error =
        weir_session_run(&store->session, "COMMIT", NULL, 0, &result, diag);
    if (error < 0 && store->session.lost)
        return weir_diag_set(
            diag, WEIR_ESTORE, "the connection to the quota store ",
            store->session.shown,
            " was lost during the commit, so it isn't known whether the "
            "change was made: look before you make it again",
            NULL);
    if (error < 0)
        return error;
    bool committed = strcmp(PQcmdStatus(result), "COMMIT") == 0;
    PQclear(result);
    if (committed)
        return 0;
    return weir_diag_set(diag, WEIR_ESTORE, "the quota store ",
                         store->session.shown,
                         " took the change back; nothing was changed", NULL);
}

static int digit_of(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* The server writes a uuid as 32 digits and some hyphens. */
static void parse_uuid(const char *text, uint8_t *uuid)
{
    for (size_t i = 0; i < 16; i++) {
        text += *text == '-';
        uuid[i] = (uint8_t)(digit_of(text[0]) << 4 | digit_of(text[1]));
        text += 2;
    }
}

static int postgres_move(struct weir_backend *backend, const char *to,
                         struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    static const char *const make[] = {
        "DROP TABLE IF EXISTS weir.weir_moved",
        "CREATE TABLE weir.weir_moved (place text NOT NULL)",
    };
    int error = run_all_postgres(store, make, to ? 2 : 1, diag);
    return error < 0 || !to ? error
                            : weir_session_run(&store->session,
                                               "INSERT INTO"
                                               " weir.weir_moved VALUES ($1)",
                                               &to, 1, NULL, diag);
}

static int postgres_unmark(struct weir_backend *backend, bool *out_was,
                           struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    char table[64] = "";
    PGresult *rows;
    *out_was = false;
    int error =
        read_value(store, "SELECT to_regclass('weir.weir_never_leased')", table,
                   sizeof(table), diag);
    if (error < 0 || !table[0])
        return error;
    error = weir_session_run(&store->session,
                             "DELETE FROM weir.weir_never_leased"
                             " RETURNING one",
                             NULL, 0, &rows, diag);
    if (error < 0)
        return error;
    *out_was = PQntuples(rows) > 0;
    PQclear(rows);
    return 0;
}

/* NULL if there is no such row: greatest() leaves it out. */
#define NEWEST(table)                          \
    "(SELECT max(epoch) FROM weir.weir_" table \
    " WHERE epoch <= " WEIR_ROW_EPOCH_MAX_TEXT ")"
#define NEWEST_QUOTA NEWEST("quotas")
#define NEWEST_REMOVAL NEWEST("tombstones")

static int postgres_meta(struct weir_backend *backend,
                         struct weir_store_meta *out, struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    PGresult *row;
    out->moved_to[0] = '\0';
    int error = weir_session_run(
        &store->session,
        "SELECT schema, uuid, restores, greatest(epoch, " NEWEST_QUOTA
        ", " NEWEST_REMOVAL "), floor, greatest(last_id, (SELECT max(id) FROM "
        "weir.weir_quotas)), to_regclass('weir.weir_moved') FROM "
        "weir.weir_meta",
        NULL, 0, &row, diag);
    if (error < 0)
        return error;
    if (PQntuples(row) != 1 || PQgetlength(row, 0, 1) != 36) {
        error = weir_diag_set(diag, WEIR_ESTORE, "the quota store ",
                              store->session.shown,
                              " is damaged; restore it from a backup", NULL);
    } else {
        error =
            check_postgres_schema(store, postgres_number_at(row, 0, 0), diag);
        parse_uuid(PQgetvalue(row, 0, 1), out->id.uuid);
        out->id.restores = postgres_number_at(row, 0, 2);
        out->epoch = postgres_number_at(row, 0, 3);
        out->floor = postgres_number_at(row, 0, 4);
        out->last_id = postgres_number_at(row, 0, 5);
        if (error == 0 && !PQgetisnull(row, 0, 6))
            error = read_value(store, "SELECT place FROM weir.weir_moved",
                               out->moved_to, sizeof(out->moved_to), diag);
    }
    PQclear(row);
    return error;
}

/* ---- Reading -------------------------------------------------------- */

typedef int each_result(const PGresult *rows, int row, void *context);

static int fetch_rows(struct postgres_store *store, int *out_count,
                      each_result *each, void *context, struct weir_diag *diag)
{
    PGresult *rows;
    int error = weir_session_run(&store->session, "FETCH 1000 FROM weir_cursor",
                                 NULL, 0, &rows, diag);
    if (error < 0)
        return error;
    *out_count = PQntuples(rows);
    for (int i = 0; error == 0 && i < *out_count; i++)
        error = each(rows, i, context);
    PQclear(rows);
    return error;
}

/* After a failure the cursor stays open until the end of the transaction. */
static int read_cursor(struct postgres_store *store, const char *sql,
                       const char *const *values, int count, each_result *each,
                       void *context, struct weir_diag *diag)
{
    int rows = 1;
    int error =
        weir_session_run(&store->session, sql, values, count, NULL, diag);
    while (error == 0 && rows > 0)
        error = fetch_rows(store, &rows, each, context, diag);
    return error < 0 ? error : run_postgres(store, "CLOSE weir_cursor", diag);
}

static struct weir_text postgres_text_at(const PGresult *rows, int row,
                                         int column)
{
    if (PQgetisnull(rows, row, column))
        return (struct weir_text){ NULL, 0 };
    return (struct weir_text){ PQgetvalue(rows, row, column),
                               (size_t)PQgetlength(rows, row, column) };
}

struct reading {
    weir_row_each *each;
    weir_log_row_each *each_log;
    void *context;
};

static int report_row(const PGresult *rows, int at, void *context)
{
    const struct reading *reading = context;
    const struct weir_row row = {
        .epoch = postgres_number_at(rows, at, 0),
        .id = postgres_number_at(rows, at, 1),
        .created = postgres_number_at(rows, at, 2),
        .name = postgres_text_at(rows, at, 3),
        .fields = postgres_text_at(rows, at, 4),
        .removed = postgres_number_at(rows, at, 5) == 1,
    };
    return reading->each(reading->context, &row);
}

static int postgres_read(struct weir_backend *backend, uint64_t epoch,
                         weir_row_each *each, void *context,
                         struct weir_diag *diag)
{
    struct reading reading = { .each = each, .context = context };
    char number[WEIR_NUMBER_MAX];
    const char *above =
        weir_number_show(epoch < INT64_MAX ? epoch : INT64_MAX, number);
    const char *const values[] = { epoch > 0 ? above : "-9223372036854775808" };
    return read_cursor(
        postgres_store_of(backend),
        "DECLARE weir_cursor NO SCROLL CURSOR FOR SELECT epoch, id, "
        "created, name, fields, 0 FROM weir.weir_quotas WHERE epoch > "
        "$1::bigint UNION ALL SELECT epoch, 0, 0, name, '', 1 FROM "
        "weir.weir_tombstones WHERE epoch > $1::bigint ORDER BY 1",
        values, 1, report_row, &reading, diag);
}

static int report_log_row(const PGresult *rows, int at, void *context)
{
    const struct reading *reading = context;
    const struct weir_log_row row = {
        .epoch = postgres_number_at(rows, at, 0),
        .edit = postgres_number_at(rows, at, 1),
        .at_ms = postgres_number_at(rows, at, 2),
        .identity = postgres_text_at(rows, at, 3),
        .name = postgres_text_at(rows, at, 4),
        .was = postgres_text_at(rows, at, 5),
        .became = postgres_text_at(rows, at, 6),
    };
    return reading->each_log(reading->context, &row);
}

/* Parameters: 1 number, 2 max, 3 name. */
#define LOG_COLUMNS                                    \
    "DECLARE weir_cursor NO SCROLL CURSOR FOR"         \
    " SELECT l.epoch, l.edit, l.at_ms, l.who, l.name," \
    " l.was, l.became FROM weir.weir_log l "
#define LOG_ORDER " ORDER BY l.epoch DESC LIMIT $2::bigint"

static const struct {
    const char *sql;
    int values;
} log_sql[WEIR_LOG_WHICH_COUNT] = {
    [WEIR_LOG_ALL] = { LOG_COLUMNS "WHERE l.epoch < $1::bigint" LOG_ORDER, 2 },
    [WEIR_LOG_NAME] = { LOG_COLUMNS "WHERE l.name = $3::text"
                                    " AND l.epoch < $1::bigint" LOG_ORDER,
                        3 },
    [WEIR_LOG_EDIT] = { LOG_COLUMNS "WHERE l.edit = $1::bigint" LOG_ORDER, 2 },
    [WEIR_LOG_SINCE] = { LOG_COLUMNS "JOIN weir.weir_log o"
                                     " ON o.name = l.name AND o.epoch < l.epoch"
                                     " WHERE o.edit = $1::bigint"
                                     " AND l.edit > $1::bigint" LOG_ORDER,
                         2 },
};

static int postgres_read_log(struct weir_backend *backend,
                             const struct weir_log_query *query,
                             weir_log_row_each *each, void *context,
                             struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    struct reading reading = { .each_log = each, .context = context };
    char number[WEIR_NUMBER_MAX];
    char max[WEIR_NUMBER_MAX];
    char *name =
        strndup(query->name.len > 0 ? query->name.p : "", query->name.len);
    if (!name)
        return refuse_postgres_memory(store, diag);
    const char *const values[] = { weir_number_show(query->number, number),
                                   weir_number_show(query->max, max), name };
    int error = read_cursor(store, log_sql[query->which].sql, values,
                            log_sql[query->which].values, report_log_row,
                            &reading, diag);
    free(name);
    return error;
}

/* ---- Writing -------------------------------------------------------- */

static int postgres_write(struct weir_backend *backend,
                          const struct weir_row *row, bool fresh,
                          struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    bool gone = row->removed;
    struct batch *batch = &store->batches[gone ? BATCH_GONE : BATCH_QUOTAS];
    if (gone) {
        add_text(store, batch, 0, row->name);
        add_number_column(store, batch, 1, row->epoch);
        return count_row(store, BATCH_GONE, diag);
    }
    if (fresh) {
        add_text(store, &store->batches[BATCH_FRESH], 0, row->name);
        int error = count_row(store, BATCH_FRESH, diag);
        if (error < 0)
            return error;
    }
    add_number_column(store, batch, 0, row->id);
    add_number_column(store, batch, 1, row->epoch);
    add_number_column(store, batch, 2, row->created);
    add_text(store, batch, 3, row->name);
    add_text(store, batch, 4, row->fields);
    return count_row(store, BATCH_QUOTAS, diag);
}

static int postgres_log(struct weir_backend *backend,
                        const struct weir_log_row *row, struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    struct batch *batch = &store->batches[BATCH_LOG];
    add_number_column(store, batch, 0, row->epoch);
    add_number_column(store, batch, 1, row->edit);
    add_number_column(store, batch, 2, row->at_ms);
    add_text(store, batch, 3, row->identity.p ? row->identity : WEIR_TEXT(""));
    add_text(store, batch, 4, row->name);
    add_text(store, batch, 5, row->was);
    add_text(store, batch, 6, row->became);
    return count_row(store, BATCH_LOG, diag);
}

static int forget_removals(struct postgres_store *store, uint64_t *floor,
                           struct weir_diag *diag)
{
    char kept[WEIR_NUMBER_MAX];
    const char *const values[] = { weir_number_show(WEIR_TOMBSTONES_MAX,
                                                    kept) };
    PGresult *oldest;
    int error = weir_session_run(
        &store->session,
        "WITH oldest AS (SELECT epoch FROM weir.weir_tombstones"
        " ORDER BY epoch DESC OFFSET $1::bigint LIMIT 1),"
        " gone AS (DELETE FROM weir.weir_tombstones t USING oldest o"
        " WHERE t.epoch <= o.epoch) SELECT epoch FROM oldest",
        values, 1, &oldest, diag);
    if (error < 0)
        return error;
    if (PQntuples(oldest) == 1)
        *floor = postgres_number_at(oldest, 0, 0);
    PQclear(oldest);
    return 0;
}

static int forget_postgres_log(struct postgres_store *store, uint64_t epoch,
                               struct weir_diag *diag)
{
    char upto[WEIR_NUMBER_MAX];
    if (epoch <= WEIR_STORE_LOG_MAX)
        return 0;
    const char *const values[] = { weir_number_show(epoch - WEIR_STORE_LOG_MAX,
                                                    upto) };
    return weir_session_run(
        &store->session, "DELETE FROM weir.weir_log WHERE edit <= $1::bigint",
        values, 1, NULL, diag);
}

/* Updates the meta row and notifies all listening roots. */
static int update_meta(struct postgres_store *store,
                       const struct weir_store_meta *meta, uint64_t floor,
                       struct weir_diag *diag)
{
    char numbers[4][WEIR_NUMBER_MAX];
    char uuid[2 * sizeof(meta->id.uuid) + 1];
    for (size_t i = 0; i < sizeof(meta->id.uuid); i++)
        snprintf(uuid + 2 * i, 3, "%02x", meta->id.uuid[i]);
    const char *const values[] = {
        uuid,
        weir_number_show(meta->id.restores, numbers[0]),
        weir_number_show(meta->epoch, numbers[1]),
        weir_number_show(floor, numbers[2]),
        weir_number_show(meta->last_id, numbers[3]),
    };
    return weir_session_run(
        &store->session,
        "WITH moved AS (UPDATE weir.weir_meta SET uuid = $1::uuid,"
        " restores = $2::bigint, epoch = $3::bigint, floor = $4::bigint,"
        " last_id = $5::bigint) SELECT pg_notify('weir_epoch', $3::text)",
        values, WEIR_COUNT_OF(values), NULL, diag);
}

static int postgres_finish(struct weir_backend *backend,
                           const struct weir_store_meta *meta, bool removed,
                           struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    uint64_t floor = meta->floor;
    int error = 0;
    for (int i = 0; error == 0 && i < BATCHES; i++)
        error = flush_postgres_batch(store, (enum batch_kind)i, diag);
    if (error == 0 && removed)
        error = forget_removals(store, &floor, diag);
    if (error == 0)
        error = forget_postgres_log(store, meta->epoch, diag);
    return error < 0 ? error : update_meta(store, meta, floor, diag);
}

/* A lost session returns true: the caller's next call reports it. */
static bool postgres_changed(struct weir_backend *backend)
{
    struct postgres_store *store = postgres_store_of(backend);
    bool first = !store->seen;
    store->seen = true;
    return weir_session_news(&store->session) || first;
}

/* ---- Making one newer ----------------------------------------------- */

/* A column is rewritten by so many statements, each for the rows of some
 * epochs, so that each ends within WEIR_SESSION_ANSWER_MS. One statement for a
 * million rows that all change took 12 s (PostgreSQL 15, four busy cores). */
#define UPGRADE_PARTS 10
#define IN_PART " AND epoch % $1::bigint = $2::bigint"

/* The words of on_stale. */
static const char *const from_2[] = {
    WEIR_FIELDS_2_TO_3("weir.weir_quotas", "fields") IN_PART,
    WEIR_FIELDS_2_TO_3("weir.weir_log", "was") IN_PART,
    WEIR_FIELDS_2_TO_3("weir.weir_log", "became") IN_PART,
};

static int upgrade_from_2(struct postgres_store *store, struct weir_diag *diag)
{
    static const char *const last[] = {
        "UPDATE weir.weir_meta SET schema = 3",
        /* An older root that has the store open finds out at once. */
        "NOTIFY weir_epoch",
    };
    size_t count = UPGRADE_PARTS * WEIR_COUNT_OF(from_2);
    char parts[WEIR_NUMBER_MAX];
    char part[WEIR_NUMBER_MAX];
    int error = 0;
    for (size_t i = 0; error == 0 && i < count; i++) {
        const char *const values[] = {
            weir_number_show(UPGRADE_PARTS, parts),
            weir_number_show(i % UPGRADE_PARTS, part),
        };
        error = weir_session_run(&store->session, from_2[i / UPGRADE_PARTS],
                                 values, WEIR_COUNT_OF(values), NULL, diag);
    }
    return error < 0 ? error
                     : run_all_postgres(store, last, WEIR_COUNT_OF(last), diag);
}

static int postgres_upgrade(struct weir_backend *backend, unsigned *out_from,
                            struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    uint64_t schema = 0;
    int error = check_there(store, diag);
    if (error == 0)
        error = postgres_begin(backend, WEIR_BEGIN_WRITE, diag);
    if (error == 0)
        error = read_schema(store, &schema, diag);
    if (error == 0 && schema == 2)
        error = upgrade_from_2(store, diag);
    else if (error == 0)
        error = check_postgres_schema(store, schema, diag);
    if (error == 0)
        error = postgres_commit(backend, diag);
    if (error == 0)
        *out_from = (unsigned)schema;
    return error;
}

/* ---- Presence ------------------------------------------------------- */

/* The meta row is locked: two roots don't make the table at once. */
static int postgres_present(struct weir_backend *backend, const char *root,
                            bool leaves, uint32_t *out_roots,
                            struct weir_diag *diag)
{
    struct postgres_store *store = postgres_store_of(backend);
    char ttl[WEIR_NUMBER_MAX], count[WEIR_NUMBER_MAX] = "";
    uint64_t roots = 0;
    const char *const values[] = {
        root, weir_number_show(WEIR_PRESENCE_TTL / WEIR_SECOND, ttl)
    };
    int error = run_postgres(store, roots_sql, diag);
    if (error == 0)
        error = weir_session_run(
            &store->session,
            "DELETE FROM weir.weir_roots WHERE id = $1 OR"
            " abs(extract(epoch FROM clock_timestamp() - seen)) > $2::bigint",
            values, 2, NULL, diag);
    if (error == 0 && !leaves)
        error = weir_session_run(
            &store->session,
            "INSERT INTO weir.weir_roots VALUES ($1, clock_timestamp())",
            values, 1, NULL, diag);
    if (error == 0)
        error = read_value(store, "SELECT count(*) FROM weir.weir_roots", count,
                           sizeof count, diag);
    if (error == 0 && weir_number_parse(weir_text_of(count), &roots))
        *out_roots = (uint32_t)roots;
    return error;
}

const struct weir_backend_type weir_backend_postgres = {
    .scheme = "postgres",
    .example = "postgres://HOST/DATABASE",
    .make = postgres_make,
    .create = postgres_create,
    .open = postgres_open,
    .upgrade = postgres_upgrade,
    .close = postgres_close,
    .begin = postgres_begin,
    .commit = postgres_commit,
    .rollback = postgres_rollback,
    .meta = postgres_meta,
    .read = postgres_read,
    .read_log = postgres_read_log,
    .write = postgres_write,
    .log = postgres_log,
    .finish = postgres_finish,
    .move = postgres_move,
    .present = postgres_present,
    .unmark = postgres_unmark,
    .changed = postgres_changed,
};
