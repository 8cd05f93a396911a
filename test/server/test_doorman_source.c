/* SPDX-License-Identifier: MIT
 * test/server/test_doorman_source.c - a Doorman file as a store: the changes
 * that a listener receives, first and after each edit, good or bad. */

#include "server/doorman/doorman_source.h"

#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "compare.h"
#include "io/clock.h"

#define STAR                                    \
    "- identifier_glob: \"*\"\n  capacity: 1\n" \
    "  algorithm: {kind: STATIC, lease_length: 60, refresh_interval: 5}\n"
#define ENTRY(NAME, CAPACITY)                                 \
    "- identifier_glob: " NAME "\n  capacity: " CAPACITY "\n" \
    "  algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}\n"

struct world {
    char path[64];
    struct weir_catalog *catalog;
    struct weir_log log;
    struct weir_doorman_source *source;
    unsigned stores, changes, removals, settles;
    uint64_t epoch; /* of the last change */
    uint64_t announced, floor;
    int trouble;
    char why[WEIR_DIAG_MAX];
    unsigned left; /* calls that find memory; 0: all do */
};

/* Whether this call finds none; so do all after it. */
static bool is_scarce(struct world *w)
{
    if (w->left == 0)
        return false;
    if (w->left == 1)
        return true;
    w->left--;
    return false;
}

static int on_store(void *context, const struct weir_store_id *id,
                    uint64_t epoch, uint64_t floor, weir_instant now)
{
    (void)now;
    struct world *w = context;
    const struct weir_store_id none = { .restores = 0 };
    assert_false(weir_store_id_equal(id, &none));
    if (is_scarce(w))
        return WEIR_ENOMEM;
    w->stores++;
    w->announced = epoch;
    w->floor = floor;
    return 0;
}

static int on_change(void *context, const struct weir_change *change,
                     weir_instant now)
{
    (void)now;
    struct world *w = context;
    assert_compare(change->quota.epoch, >, w->epoch);
    if (is_scarce(w))
        return WEIR_ENOMEM;
    w->epoch = change->quota.epoch;
    w->changes += !change->removed;
    w->removals += change->removed;
    assert_int_equal(weir_catalog_apply(w->catalog, change), 0);
    return 0;
}

static void on_settle(void *context, const struct weir_lineage_entry *newest,
                      weir_instant now)
{
    (void)newest;
    (void)now;
    ((struct world *)context)->settles++;
}

static void on_trouble(void *context, int error, const char *why)
{
    struct world *w = context;
    w->trouble = error;
    snprintf(w->why, sizeof w->why, "%s", why);
}

static struct weir_catalog *catalog(void *context)
{
    return ((struct world *)context)->catalog;
}

static void write_file(struct world *w, const char *text)
{
    FILE *file = fopen(w->path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int open_source(struct world *w, struct weir_diag *diag)
{
    struct weir_doorman_source_options options = {
        .log = &w->log,
        .catalog = catalog,
        .context = w,
        .place = { .path = weir_text_of(w->path) },
        .to = { .context = w,
                .on_store = on_store,
                .on_change = on_change,
                .on_settle = on_settle,
                .on_trouble = on_trouble },
    };
    return weir_doorman_source_new(&options, &w->source, diag);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    strcpy(w->path, "/tmp/weir-doorman.XXXXXX");
    int fd = mkstemp(w->path);
    assert_compare(fd, >=, 0);
    close(fd);
    w->log.level = WEIR_LOG_ERROR;
    w->catalog = weir_catalog_new(&weir_mem_system, 1);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    weir_doorman_source_free(&w->source);
    weir_catalog_free(w->catalog);
    unlink(w->path);
    free(w);
    return 0;
}

static double capacity_of(const struct world *w, const char *name)
{
    const struct weir_quota *quota =
        weir_catalog_get(w->catalog, weir_text_of(name));
    return quota ? weir_limit_rate(&quota->limit) : -1;
}

/* The first reading gives a whole set; its last change has the announced epoch.
 * A later one gives only changed, new and removed quotas. */
static void test_what_changes_is_told(void **state)
{
    struct world *w = *state;
    struct weir_diag diag = { 0 };
    write_file(w, "resources:\n" ENTRY("a", "10") ENTRY("b", "20.5")
                      ENTRY("c_*", "30") STAR);
    assert_int_equal(open_source(w, &diag), 0);
    assert_int_equal(w->stores, 1);
    assert_int_equal(w->changes, 4);
    assert_int_equal(w->settles, 1);
    assert_int_equal(w->epoch, w->announced);
    assert_compare(w->epoch - w->changes, >=, w->floor);
    assert_float_equal(capacity_of(w, "b"), 20.5, 0);

    write_file(w, "resources:\n" ENTRY("a", "10") ENTRY("d", "5")
                      ENTRY("c_*", "31") STAR);
    weir_doorman_source_look(w->source, true);
    assert_int_equal(w->stores, 1);
    assert_int_equal(w->changes, 6);
    assert_int_equal(w->removals, 1);
    assert_int_equal(w->settles, 2);
    assert_float_equal(capacity_of(w, "b"), -1, 0);
    assert_float_equal(capacity_of(w, "c_*"), 31, 0);
    assert_int_equal(w->trouble, 0);
}

/* A broken file changes nothing, nor does a missing one. */
static void test_bad_files(void **state)
{
    struct world *w = *state;
    struct weir_diag diag = { 0 };
    struct weir_doorman_source_state now;
    write_file(w, "resources:\n" ENTRY("a", "10") STAR);
    assert_int_equal(open_source(w, &diag), 0);
    write_file(w, "resources:\n" ENTRY("a", "11"));
    weir_doorman_source_look(w->source, true);
    assert_compare(w->trouble, <, 0);
    assert_non_null(strstr(w->why, "the resource respository must contain at "
                                   "least an entry for \"*\""));
    unlink(w->path);
    weir_doorman_source_look(w->source, true);
    assert_non_null(strstr(w->why, "No such file"));
    weir_doorman_source_state(w->source, &now);
    assert_int_equal(now.failures, 2);
    assert_int_equal(w->changes, 2);
    assert_float_equal(capacity_of(w, "a"), 10, 0);

    write_file(w, "resources:\n" ENTRY("a", "12") STAR);
    weir_doorman_source_look(w->source, false);
    assert_int_equal(w->trouble, 0);
    assert_float_equal(capacity_of(w, "a"), 12, 0);
}

/* An edit of comments alone takes an epoch, as a server has that starts with
 * that file; reading the same content again takes none. */
static void test_nothing_but_an_epoch(void **state)
{
    struct world *w = *state;
    struct weir_diag diag = { 0 };
    write_file(w, "resources:\n" ENTRY("a", "10") STAR);
    assert_int_equal(open_source(w, &diag), 0);
    uint64_t before = w->epoch;
    weir_doorman_source_look(w->source, true);
    assert_int_equal(w->epoch, before);

    write_file(w, "# about a\nresources:\n" ENTRY("a", "10") STAR);
    struct timespec later[2] = { { .tv_sec = time(NULL) + 9 },
                                 { .tv_sec = time(NULL) + 9 } };
    assert_int_equal(utimensat(AT_FDCWD, w->path, later, 0), 0);
    weir_doorman_source_look(w->source, false);
    assert_int_equal(w->changes, 3);
    assert_compare(w->epoch, >, before);
    before = w->epoch;

    weir_doorman_source_free(&w->source);
    weir_catalog_free(w->catalog);
    w->catalog = weir_catalog_new(&weir_mem_system, 1);
    w->epoch = 0;
    assert_int_equal(open_source(w, &diag), 0);
    assert_int_equal(w->epoch, before);
}

/* The listener has no memory for a change: what is missing is handed over at a
 * later look, and a state that the file has by then, after it. */
static void test_no_memory_for_a_change(void **state)
{
    struct world *w = *state;
    struct weir_diag diag = { 0 };
    unsigned changes = 5; /* two are gone, and two new, and one other */
    for (unsigned found = 1; found <= changes + 1; found++) {
        bool moves = found % 2;
        write_file(w, "resources:\n" ENTRY("a", "1") ENTRY("b", "2")
                          ENTRY("c", "3") STAR);
        if (!w->source)
            assert_int_equal(open_source(w, &diag), 0);
        else
            weir_doorman_source_look(w->source, true);
        assert_float_equal(capacity_of(w, "a"), 1, 0);
        unsigned settles = w->settles;
        write_file(w, "resources:\n" ENTRY("c", "4") ENTRY("d", "5")
                          ENTRY("e", "6") STAR);
        w->left = found;
        for (unsigned look = 0; look < 3 && found <= changes; look++) {
            weir_doorman_source_look(w->source, true);
            assert_int_equal(w->trouble, WEIR_ESTORE);
            assert_non_null(strstr(w->why, "no memory"));
            assert_int_equal(w->settles, settles);
        }
        w->left = 0;
        if (moves)
            write_file(w, "resources:\n" ENTRY("c", "7") ENTRY("d", "5")
                              ENTRY("e", "6") STAR);
        weir_doorman_source_look(w->source, moves || found > changes);
        assert_int_equal(w->trouble, 0);
        assert_float_equal(capacity_of(w, "a"), -1, 0);
        assert_float_equal(capacity_of(w, "b"), -1, 0);
        assert_float_equal(capacity_of(w, "c"), moves ? 7 : 4, 0);
        assert_float_equal(capacity_of(w, "d"), 5, 0);
        assert_float_equal(capacity_of(w, "e"), 6, 0);
        assert_int_equal(weir_catalog_count(w->catalog), 4);
    }
}

/* Writes 'count' entries, "a1", "a2" … for the letter 'a'. */
static void write_many(struct world *w, char letter, unsigned count)
{
    FILE *file = fopen(w->path, "w");
    assert_non_null(file);
    fputs("resources:\n", file);
    for (unsigned i = 1; i <= count; i++)
        fprintf(file,
                "- {identifier_glob: %c%u, capacity: 1, algorithm: {kind: "
                "STATIC, lease_length: 60, refresh_interval: 5}}\n",
                letter, i);
    fputs(STAR, file);
    assert_int_equal(fclose(file), 0);
}

/* Every entry gives way to another in the next revision: each change has an
 * epoch of its own, above those of the state before. */
static void test_all_entries_are_replaced(void **state)
{
    struct world *w = *state;
    struct weir_diag diag = { 0 };
    const struct timespec same[2] = { { .tv_sec = time(NULL) },
                                      { .tv_sec = time(NULL) } };
    const unsigned count = WEIR_DOORMAN_TEMPLATES_MAX - 1;
    write_many(w, 'a', count);
    assert_int_equal(utimensat(AT_FDCWD, w->path, same, 0), 0);
    assert_int_equal(open_source(w, &diag), 0);
    write_many(w, 'b', count);
    assert_int_equal(utimensat(AT_FDCWD, w->path, same, 0), 0);
    weir_doorman_source_look(w->source, true);
    assert_int_equal(w->removals, count);
    assert_int_equal(w->changes, 2 * count + 1);
    assert_float_equal(capacity_of(w, "a1"), -1, 0);
    assert_float_equal(capacity_of(w, "b1"), 1, 0);
}

static void make_socket(const char *path)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    strcpy(at.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd);
}

/* A file that can't be opened is reported once. A socket, since the user root
 * may open any file. */
static void test_one_that_cant_be_opened(void **state)
{
    struct world *w = *state;
    struct weir_diag diag = { 0 };
    struct weir_doorman_source_state now;
    write_file(w, "resources:\n" ENTRY("a", "10") STAR);
    assert_int_equal(open_source(w, &diag), 0);
    unlink(w->path);
    make_socket(w->path);
    for (int look = 0; look < 3; look++)
        weir_doorman_source_look(w->source, false);
    weir_doorman_source_state(w->source, &now);
    assert_int_equal(now.failures, 1);
    assert_compare(w->trouble, <, 0);
    unlink(w->path);
    write_file(w, "resources:\n" ENTRY("a", "12") STAR);
    weir_doorman_source_look(w->source, false);
    assert_float_equal(capacity_of(w, "a"), 12, 0);
}

static void test_none_at_the_start(void **state)
{
    struct world *w = *state;
    struct weir_diag diag = { 0 };
    unlink(w->path);
    assert_int_equal(open_source(w, &diag), WEIR_ENOENT);
    assert_non_null(strstr(diag.text, w->path));
    assert_null(w->source);
    assert_int_equal(w->stores, 0);
}

/* Of equal globs the first rules; one without a glob matches nothing. */
static void test_doubles(void **state)
{
    struct world *w = *state;
    struct weir_diag diag = { 0 };
    write_file(w, "resources:\n" ENTRY("a", "10") ENTRY("a", "20")
                      ENTRY("\"\"", "30") STAR);
    assert_int_equal(open_source(w, &diag), 0);
    assert_int_equal(w->changes, 2);
    assert_float_equal(capacity_of(w, "a"), 10, 0);
}

static void assert_rules(const struct world *w, const char *id, double capacity)
{
    struct weir_captures captures;
    const struct weir_quota *quota =
        weir_catalog_find(w->catalog, weir_text_of(id), &captures);
    if ((quota ? weir_limit_rate(&quota->limit) : -1) != capacity)
        fail_msg("%s: another's than %g", id, capacity);
}

/* The exact id first, then globs, both in the order of the file. */
static void test_who_rules(void **state)
{
    struct world *w = *state;
    struct weir_diag diag = { 0 };
    write_file(w, "resources:\n" ENTRY("db*", "1") ENTRY("db/*", "2")
                      ENTRY("db1", "3") ENTRY("db1", "4") ENTRY("'*1'", "5")
                          ENTRY("''", "6") STAR);
    assert_int_equal(open_source(w, &diag), 0);
    assert_rules(w, "db1", 3);
    assert_rules(w, "db2", 1);
    assert_rules(w, "db/x", 2);
    assert_rules(w, "x1", 5);
    assert_rules(w, "x", 1);
    assert_rules(w, "a/b", -1);
    assert_rules(w, "db/x/y", -1);
}

static void test_an_entry_as_a_quota(void **state)
{
    (void)state;
    struct weir_doorman_template entry = {
        .glob = WEIR_TEXT("db?"),
        .capacity = 0.1,
        .safe_given = true,
        .safe_capacity = 2.5,
        .kind = WEIR_DOORMAN_PROPORTIONAL_SHARE,
        .lease = 60 * WEIR_SECOND,
        .refresh = 15 * WEIR_SECOND,
        .learning_given = true,
    };
    struct weir_quota quota;
    struct weir_diag diag = { 0 };
    assert_int_equal(weir_doorman_quota(&entry, 7, &quota, &diag), 0);
    assert_int_equal(quota.sharing, WEIR_LEASED);
    assert_int_equal(quota.share_algorithm, WEIR_SHARE_PROPORTIONAL);
    assert_int_equal(quota.glob, WEIR_GLOB_PATH);
    assert_int_equal(quota.order, 7);
    assert_int_equal(quota.on_stale, WEIR_STALE_SHARE);
    assert_int_equal(quota.learning, 0);
    assert_float_equal(weir_limit_rate(&quota.limit), 0.1, 0);
    assert_float_equal(weir_quota_safe(&quota), 2.5, 0);
    entry.safe_capacity = -1;
    entry.learning_given = false;
    assert_int_equal(weir_doorman_quota(&entry, 7, &quota, &diag), 0);
    assert_int_equal(quota.on_stale, WEIR_STALE_PASS);
    assert_int_equal(weir_quota_learning(&quota), 60 * WEIR_SECOND);
    entry.line = 3;
    entry.lease = 2 * WEIR_LEASE_MAX;
    assert_compare(weir_doorman_quota(&entry, 7, &quota, &diag), <, 0);
    assert_int_equal(diag.line, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_changes_is_told, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_bad_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_all_entries_are_replaced, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_but_an_epoch, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory_for_a_change, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_one_that_cant_be_opened, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_none_at_the_start, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_doubles, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_rules, set_up, tear_down),
        cmocka_unit_test(test_an_entry_as_a_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
