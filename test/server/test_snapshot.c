/* SPDX-License-Identifier: MIT
 * test/server/test_snapshot.c - a snapshot is the whole set of some moment, or
 * it is refused: if it is cut at any length, a byte is changed anywhere, its
 * writer is killed, the disk is full, or the set changes while it is
 * written. */

#include <errno.h>
#include <event2/event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "codec/weir_v1.h"
#include "compare.h"
#include "core/base/atomic.h"
#include "core/base/hash.h"
#include "io/clock.h"
#include "patience.h"
#include "quota_maker.h"
#include "server/snapshot/root_snapshot.h"

#define KILLS 30
#define MANY 8000 /* quotas: some tens of pieces, and above half a megabyte */

static const struct weir_store_id first_store = { { 1, 2, 3 }, 4 };
static const struct weir_store_id second_store = { { 9, 9 }, 0 };
static struct weir_log quiet = { .level = WEIR_LOG_ERROR };
static struct weir_log loud = { .level = WEIR_LOG_INFO };

/* A root with quotas, a loop, and the writer between them. */
struct house {
    char folder[64];
    char path[96];
    struct event_base *base;
    struct weir_root *root;
    struct weir_root_snapshot kept;
    struct weir_snapshot *snapshot;
    struct weir_rng rng;
    uint64_t epoch;
};

/* ---- The root under test ---- */

static void apply(struct house *house, const struct weir_change *change)
{
    assert_int_equal(weir_root_apply(house->root, change, 1), 0);
}

static void put(struct house *house, unsigned number)
{
    struct made_quota made;
    make_quota(&house->rng, number, &made);
    struct weir_change change = { .quota = made.quota };
    change.quota.epoch = change.quota.id = ++house->epoch;
    change.quota.created = house->epoch;
    apply(house, &change);
}

/* Removes the quota at a random place of the set. */
static void drop_any(struct house *house)
{
    struct weir_catalog *catalog = weir_root_catalog(house->root);
    size_t count = weir_catalog_count(catalog);
    if (count == 0)
        return;
    size_t at = weir_rng_below(&house->rng, count);
    char name[WEIR_NAME_MAX];
    const struct weir_quota *quota = weir_catalog_at(catalog, at);
    memcpy(name, quota->name.p, quota->name.len);
    struct weir_change change = {
        .removed = true,
        .quota = { .name = { name, quota->name.len }, .epoch = ++house->epoch },
    };
    apply(house, &change);
}

static void settle(struct house *house)
{
    weir_root_settle(house->root, 1);
}

static void begin_store(struct house *house, const struct weir_store_id *id)
{
    assert_int_equal(weir_root_store(house->root, id, 0, 0, 1), 0);
    house->epoch = 0;
}

static void open_snapshot(struct house *house, struct weir_log *log)
{
    house->kept = (struct weir_root_snapshot){ house->root, log };
    struct weir_snapshot_options options = {
        .base = house->base,
        .source = weir_root_snapshot_source(&house->kept),
        .path = house->path,
        .every = WEIR_MILLISECOND,
    };
    assert_int_equal(weir_snapshot_new(&options, &house->snapshot, NULL), 0);
}

static void open_house(struct house *house)
{
    *house = (struct house){ .folder = "/tmp/weir-snapshot-XXXXXX" };
    assert_non_null(mkdtemp(house->folder));
    snprintf(house->path, sizeof house->path, "%s/snapshot", house->folder);
    house->rng = made_seed("snapshot");
    house->base = event_base_new();
    struct weir_root_options options = {
        .mem = weir_mem_system,
        .name = WEIR_TEXT("root"),
        .peers_max = 1,
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = WEIR_SECOND },
    };
    house->root = weir_root_new(&options, 1);
    assert_non_null(house->root);
    begin_store(house, &first_store);
}

static void close_house(struct house *house)
{
    char command[128];
    weir_snapshot_free(&house->snapshot);
    weir_root_free(house->root);
    event_base_free(house->base);
    snprintf(command, sizeof command, "rm -rf %s", house->folder);
    assert_int_equal(system(command), 0);
}

static struct weir_snapshot_state look(const struct house *house)
{
    struct weir_snapshot_state state;
    weir_snapshot_look(house->snapshot, &state);
    return state;
}

/* Turns the loop until that many snapshots were written or failed. */
static void wait_for(struct house *house, uint64_t written, uint64_t failures)
{
    while (
        STILL(look(house).written < written || look(house).failures < failures))
        assert_int_equal(event_base_loop(house->base, EVLOOP_ONCE), 0);
}

/* ---- A snapshot's content ---- */

struct copy {
    struct weir_catalog *catalog; /* owned */
    struct weir_snapshot_info info;
    unsigned stores;
};

static int on_store(void *context, const struct weir_snapshot_info *info)
{
    struct copy *copy = context;
    copy->stores++;
    copy->info = *info;
    return 0;
}

static int on_change(void *context, const struct weir_change *change)
{
    struct copy *copy = context;
    return weir_catalog_apply(copy->catalog, change);
}

static int read_copy(const char *path, struct copy *copy,
                     struct weir_diag *diag)
{
    *copy = (struct copy){ .catalog = weir_catalog_new(&weir_mem_system, 1) };
    struct weir_snapshot_sink sink = { copy, on_store, on_change };
    struct weir_snapshot_info info;
    int error = weir_snapshot_read(path, &sink, &info, diag);
    /* All or nothing. */
    assert_int_equal(copy->stores, error == 0);
    if (error < 0)
        assert_int_equal(weir_catalog_epoch(copy->catalog), 0);
    return error;
}

static void assert_same_change(const struct weir_change *a,
                               const struct weir_change *b)
{
    const struct weir_change *changes[] = { a, b };
    static char bytes[2][16384];
    size_t sizes[2];
    for (size_t i = 0; i < 2; i++) {
        struct weir_message message = {
            .type = WEIR_MESSAGE_QUOTAS,
            .quotas = { .count = 1, .changes = changes[i] },
        };
        sizes[i] = weir_v1_encode(&message, bytes[i], sizeof bytes[i]);
        assert_compare(sizes[i], >, 0);
    }
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
}

/* Quotas and removals, with their epochs. */
static void assert_same_set(const struct weir_catalog *a,
                            const struct weir_catalog *b)
{
    struct weir_cursor of_a = { { 0, 0 } };
    struct weir_cursor of_b = { { 0, 0 } };
    struct weir_change from_a, from_b;
    assert_int_equal(weir_catalog_count(a), weir_catalog_count(b));
    while (weir_catalog_since(a, 0, &of_a, &from_a)) {
        assert_true(weir_catalog_since(b, 0, &of_b, &from_b));
        assert_same_change(&from_a, &from_b);
    }
    assert_false(weir_catalog_since(b, 0, &of_b, &from_b));
}

static void assert_snapshot_is_root(struct house *house)
{
    struct copy copy;
    struct weir_diag diag = { 0 };
    int error = read_copy(house->path, &copy, &diag);
    if (error < 0)
        fail_msg("%s", diag.text);
    struct weir_root_stats stats;
    struct weir_store_id id;
    weir_root_stats(house->root, &stats);
    weir_root_identity(house->root, &id);
    assert_same_set(copy.catalog, weir_root_catalog(house->root));
    assert_int_equal(copy.info.epoch, stats.epoch);
    assert_memory_equal(&copy.info.store, &id, sizeof id);
    assert_int_equal(copy.info.floor,
                     weir_catalog_floor(weir_root_catalog(house->root)));
    weir_catalog_free(copy.catalog);
}

static int refused(const char *path)
{
    struct copy copy;
    struct weir_diag diag = { 0 };
    int error = read_copy(path, &copy, &diag);
    weir_catalog_free(copy.catalog);
    if (error < 0)
        assert_non_null(strstr(diag.text, "; it isn't used"));
    return error;
}

static char *read_file(const char *path, size_t *out_len)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *out_len = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*out_len + 1);
    assert_int_equal(fread(bytes, 1, *out_len, file), *out_len);
    fclose(file);
    return bytes;
}

static void write_file(const char *path, const char *bytes, size_t len)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

/* ---- The stories ---- */

static void test_what_was_written_is_read(void **state)
{
    (void)state;
    struct house house;
    open_house(&house);
    for (unsigned i = 0; i < 3000; i++)
        put(&house, i);
    for (unsigned i = 0; i < 500; i++)
        drop_any(&house);
    settle(&house);
    open_snapshot(&house, &quiet);
    assert_false(weir_snapshot_usable(house.snapshot));
    wait_for(&house, 1, 0);
    assert_snapshot_is_root(&house);
    /* No change: nothing is written, and a stop has nothing to do. */
    weir_snapshot_finish(house.snapshot);
    assert_int_equal(look(&house).written, 1);
    put(&house, 1);
    settle(&house);
    weir_snapshot_finish(house.snapshot);
    assert_int_equal(look(&house).written, 2);
    assert_snapshot_is_root(&house);
    /* After a restart it knows that the file is up to date. */
    weir_snapshot_free(&house.snapshot);
    open_snapshot(&house, &quiet);
    assert_true(weir_snapshot_usable(house.snapshot));
    weir_snapshot_finish(house.snapshot);
    assert_int_equal(look(&house).written, 0);
    close_house(&house);
}

static uint64_t lineage_in(struct house *house)
{
    struct copy copy;
    assert_int_equal(read_copy(house->path, &copy, NULL), 0);
    weir_catalog_free(copy.catalog);
    return copy.info.lineage;
}

/* It is written only with the epoch that it is of. */
static void test_the_lineage_of_its_epoch(void **state)
{
    (void)state;
    struct house house;
    open_house(&house);
    put(&house, 1);
    settle(&house);
    open_snapshot(&house, &quiet);
    weir_snapshot_set_lineage(house.snapshot, 1, 77);
    wait_for(&house, 1, 0);
    assert_int_equal(lineage_in(&house), 77);
    put(&house, 2);
    settle(&house);
    weir_snapshot_finish(house.snapshot);
    assert_int_equal(lineage_in(&house), 0);
    close_house(&house);
}

static char *put_number(char *p, uint64_t number, size_t size)
{
    for (size_t i = 0; i < size; i++)
        *p++ = (char)(unsigned char)(number >> (8 * i));
    return p;
}

/* Version 1, of an empty set. */
static void test_a_snapshot_without_lineage(void **state)
{
    (void)state;
    struct house house;
    open_house(&house);
    char bytes[80] = "WEIRSNAP";
    char *p = put_number(bytes + 8, 1, 4);
    memcpy(p, first_store.uuid, 16);
    char *end = put_number(p + 16, first_store.restores, 8);
    p = put_number(end, 0, 4);
    const uint64_t numbers[] = { 5, 5, 0, 123 }; /* epoch, floor, …, when */
    for (size_t i = 0; i < WEIR_COUNT_OF(numbers); i++)
        p = put_number(p, numbers[i], 8);
    struct weir_text header = { bytes, (size_t)(end - bytes) };
    struct weir_text rest = { end, (size_t)(p - end) };
    p = put_number(p, weir_hash(rest, weir_hash(header, 0)), 8);
    write_file(house.path, bytes, (size_t)(p - bytes));
    assert_int_equal(lineage_in(&house), 0);
    open_snapshot(&house, &quiet);
    assert_int_equal(look(&house).info.epoch, 5);
    assert_int_equal(look(&house).info.at_ms, 123);
    close_house(&house);
}

static void write_small(struct house *house)
{
    for (unsigned i = 0; i < 12; i++)
        put(house, i);
    drop_any(house);
    settle(house);
    open_snapshot(house, &quiet);
    wait_for(house, 1, 0);
    assert_snapshot_is_root(house);
}

static void test_cut_at_every_length(void **state)
{
    (void)state;
    struct house house;
    open_house(&house);
    write_small(&house);
    size_t len;
    char *bytes = read_file(house.path, &len);
    for (size_t cut = 0; cut < len; cut++) {
        write_file(house.path, bytes, cut);
        assert_int_equal(refused(house.path), WEIR_ESYNTAX);
    }
    printf("cut at each of %zu lengths: refused\n", len);
    free(bytes);
    close_house(&house);
}

static void test_each_byte_changed(void **state)
{
    (void)state;
    struct house house;
    open_house(&house);
    write_small(&house);
    size_t len;
    char *bytes = read_file(house.path, &len);
    for (size_t at = 0; at < len; at++) {
        char change = (char)(1 + weir_rng_below(&house.rng, 255));
        bytes[at] ^= change;
        write_file(house.path, bytes, len);
        assert_compare(refused(house.path), <, 0);
        bytes[at] ^= change;
    }
    bytes[len] = 'x';
    write_file(house.path, bytes, len + 1);
    assert_int_equal(refused(house.path), WEIR_ESYNTAX);
    write_file(house.path, "weir: 1\nquotas: []\n ............................",
               45);
    assert_int_equal(refused(house.path), WEIR_ESYNTAX);
    assert_int_equal(refused("/tmp/weir/no/such/snapshot"), WEIR_ENOENT);
    free(bytes);
    close_house(&house);
}

/* The set changes between any two pieces: quotas already written, quotas not
 * yet written, new ones, removals, half an edit at the end. */
static void test_changes_meanwhile(void **state)
{
    (void)state;
    struct house house;
    open_house(&house);
    for (unsigned i = 0; i < MANY; i++)
        put(&house, i);
    settle(&house);
    open_snapshot(&house, &quiet);
    uint64_t edits = 0;
    while (STILL(look(&house).written == 0)) {
        assert_int_equal(event_base_loop(house.base, EVLOOP_ONCE), 0);
        if (look(&house).written > 0 || edits > 24)
            continue;
        edits++;
        for (unsigned i = 0; i < 5; i++)
            put(&house, (unsigned)weir_rng_below(&house.rng, MANY + 1000));
        drop_any(&house);
        /* The last edit stays open for a while. */
        if (edits <= 24)
            settle(&house);
        else
            event_base_loop(house.base, EVLOOP_NONBLOCK);
        if (edits > 24)
            settle(&house);
    }
    printf("%llu edits while it was written\n", (unsigned long long)edits);
    assert_compare(edits, >=, 20);
    assert_snapshot_is_root(&house);
    close_house(&house);
}

/* Half an edit is in the catalog: the earlier snapshot stays. */
static void test_half_an_edit_isnt_written(void **state)
{
    (void)state;
    struct house house;
    open_house(&house);
    write_small(&house);
    size_t before, after;
    char *old = read_file(house.path, &before);
    put(&house, 100);
    weir_snapshot_finish(house.snapshot);
    char *now = read_file(house.path, &after);
    assert_int_equal(before, after);
    assert_memory_equal(old, now, before);
    settle(&house);
    weir_snapshot_finish(house.snapshot);
    assert_snapshot_is_root(&house);
    free(old);
    free(now);
    close_house(&house);
}

/* Another store replaces the first one while the first one's set is written. */
static void test_another_store_meanwhile(void **state)
{
    (void)state;
    struct house house;
    open_house(&house);
    for (unsigned i = 0; i < MANY; i++)
        put(&house, i);
    settle(&house);
    open_snapshot(&house, &quiet);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(PATIENTLY(event_base_loop(house.base, EVLOOP_ONCE)),
                         0);
    assert_int_equal(look(&house).written, 0);
    weir_snapshot_forget(house.snapshot);
    begin_store(&house, &second_store);
    put(&house, 7);
    settle(&house);
    wait_for(&house, 1, 0);
    assert_snapshot_is_root(&house);
    assert_int_equal(look(&house).failures, 0);
    close_house(&house);
}

static void test_two_roots_one_path(void **state)
{
    (void)state;
    struct house house, other;
    open_house(&house);
    open_house(&other);
    for (unsigned i = 0; i < 5000; i++)
        put(&house, i);
    put(&other, 1);
    settle(&house);
    settle(&other);
    snprintf(other.path, sizeof other.path, "%s", house.path);
    open_snapshot(&house, &quiet);
    open_snapshot(&other, &quiet);
    /* The first writer has its file open, and waits for its loop. */
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(PATIENTLY(event_base_loop(house.base, EVLOOP_ONCE)),
                         0);
    wait_for(&other, 0, 1);
    assert_non_null(strstr(look(&other).problem, "another program writes"));
    wait_for(&house, 1, 0);
    assert_snapshot_is_root(&house);
    close_house(&other);
    close_house(&house);
}

/* ---- Killed ---- */

/* Writes sets of 100, 101, … quotas for ever, and counts them. */
static void write_for_ever(struct house *house, uint32_t *written)
{
    house->base = event_base_new();
    open_snapshot(house, &quiet);
    for (unsigned i = 0;; i++) {
        put(house, 100 + i);
        settle(house);
        weir_snapshot_finish(house->snapshot);
        weir_fetch_add(written, 1u);
    }
}

/* Waits until the child has written 'count', and a random moment longer. */
static void let_write(struct weir_rng *rng, uint32_t *written, uint32_t count)
{
    struct timespec pause = { .tv_nsec = 100000 };
    while (STILL(weir_load(written) < count))
        nanosleep(&pause, NULL);
    pause.tv_nsec = (long)weir_rng_below(rng, 5000000);
    nanosleep(&pause, NULL);
}

/* WEIR_KILLS is the number of kills. */
static void test_killed_writer(void **state)
{
    (void)state;
    const char *given = getenv("WEIR_KILLS");
    unsigned kills = given ? (unsigned)atoi(given) : KILLS;
    struct house house;
    open_house(&house);
    unsigned whole = 0;
    uint32_t *written = mmap(NULL, sizeof(*written), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(written, MAP_FAILED);
    for (unsigned i = 0; i < 100; i++)
        put(&house, i);
    for (unsigned round = 0; round < kills; round++) {
        fflush(NULL);
        weir_store(written, 0);
        pid_t child = fork();
        assert_compare(child, >=, 0);
        if (child == 0)
            write_for_ever(&house, written);
        /* In the first round it has written one, so there is a file. */
        let_write(&house.rng, written,
                  round == 0 ? 1 : (uint32_t)weir_rng_below(&house.rng, 4));
        kill(child, SIGKILL);
        (void)STATUS_OF(child);
        struct copy copy;
        struct weir_diag diag = { 0 };
        int error = read_copy(house.path, &copy, &diag);
        if (error < 0 && error != WEIR_ENOENT)
            fail_msg("%s", diag.text);
        /* The set of a whole edit: the first 100, and later ones, in order. */
        if (error == 0)
            assert_int_equal(copy.info.changes, copy.info.epoch);
        whole += error == 0;
        weir_catalog_free(copy.catalog);
    }
    printf("%u writers killed: a whole snapshot after %u of them\n", kills,
           whole);
    assert_compare(whole, >, 0);
    munmap(written, sizeof(*written));
    close_house(&house);
}

/* ---- Disk full ---- */

/* Limits the disk or the file to half a megabyte; true: a file system to
 * unmount. */
static bool narrow(const struct house *house)
{
    if (mount("tmpfs", house->folder, "tmpfs", 0, "size=512k") == 0)
        return true;
    struct rlimit limit = { 512 << 10, RLIM_INFINITY };
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return false;
}

static void widen(const struct house *house, bool mounted)
{
    struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
    if (mounted)
        assert_int_equal(
            mount("tmpfs", house->folder, "tmpfs", MS_REMOUNT, "size=64m"), 0);
    else
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Redirects the output of weir_log() to 'path'. */
static int redirect(const char *path)
{
    int before = dup(STDERR_FILENO);
    assert_non_null(freopen(path, "w", stderr));
    return before;
}

static unsigned restore(int before, const char *path, const char *wanted)
{
    fflush(stderr);
    assert_compare(dup2(before, STDERR_FILENO), >=, 0);
    close(before);
    size_t len;
    char *said = read_file(path, &len);
    said[len] = '\0';
    unsigned count = 0;
    for (char *at = strstr(said, wanted); at; at = strstr(at + 1, wanted))
        count++;
    free(said);
    return count;
}

static void test_disk_full(void **state)
{
    (void)state;
    struct house house;
    char log[64] = "/tmp/weir-snapshot-log-XXXXXX";
    open_house(&house);
    close(mkstemp(log));
    bool mounted = narrow(&house);
    int before = redirect(log);
    put(&house, 1);
    settle(&house);
    open_snapshot(&house, &loud);
    wait_for(&house, 1, 0);
    size_t old_len, len;
    char *old = read_file(house.path, &old_len);
    for (unsigned i = 0; i < MANY; i++)
        put(&house, i);
    settle(&house);
    wait_for(&house, 1, 3);
    /* The root goes on, the old snapshot stays, and no other file is left. */
    assert_true(weir_root_ready(house.root));
    assert_true(weir_snapshot_usable(house.snapshot));
    char *now = read_file(house.path, &len);
    assert_int_equal(len, old_len);
    assert_memory_equal(old, now, len);
    printf("%s: %s\n", mounted ? "a full tmpfs" : "RLIMIT_FSIZE",
           look(&house).problem);
    widen(&house, mounted);
    wait_for(&house, 2, 0);
    assert_snapshot_is_root(&house);
    assert_int_equal(restore(before, log, "no new snapshot"), 1);
    unlink(log);
    free(old);
    free(now);
    if (mounted)
        umount2(house.folder, MNT_DETACH);
    close_house(&house);
}

/* ---- Many ---- */

static void put_plain(struct house *house, unsigned number)
{
    char name[48];
    struct weir_change change = { .removed = false };
    weir_quota_init(&change.quota);
    int len =
        snprintf(name, sizeof name, "tenant/%u/user/%u", number / 100, number);
    change.quota.name = (struct weir_text){ name, (size_t)len };
    change.quota.limit =
        (struct weir_limit){ .units = 1 + number, .per = WEIR_SECOND };
    change.quota.epoch = change.quota.id = ++house->epoch;
    change.quota.created = house->epoch;
    apply(house, &change);
}

/* WEIR_SNAPSHOT_QUOTAS sets their number; a million, for the night. */
static void test_many(void **state)
{
    (void)state;
    struct house house;
    open_house(&house);
    const char *given = getenv("WEIR_SNAPSHOT_QUOTAS");
    unsigned count = given ? (unsigned)atoi(given) : 50000;
    for (unsigned i = 0; i < count; i++)
        put_plain(&house, i);
    settle(&house);
    open_snapshot(&house, &quiet);
    weir_instant begun = weir_clock_now();
    wait_for(&house, 1, 0);
    weir_duration written = weir_clock_now() - begun;
    struct copy copy;
    begun = weir_clock_now();
    assert_int_equal(read_copy(house.path, &copy, NULL), 0);
    weir_duration read = weir_clock_now() - begun;
    assert_same_set(copy.catalog, weir_root_catalog(house.root));
    weir_catalog_free(copy.catalog);
    struct stat status;
    assert_int_equal(stat(house.path, &status), 0);
    printf("%u quotas: %.1f MB, written in %.2f s, longest turn of the loop "
           "%.2f ms; read in %.2f s\n",
           count, (double)status.st_size / 1e6, (double)written / 1e9,
           (double)look(&house).longest_turn / 1e6, (double)read / 1e9);
    close_house(&house);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_the_lineage_of_its_epoch),
        cmocka_unit_test(test_a_snapshot_without_lineage),
        cmocka_unit_test(test_cut_at_every_length),
        cmocka_unit_test(test_each_byte_changed),
        cmocka_unit_test(test_changes_meanwhile),
        cmocka_unit_test(test_half_an_edit_isnt_written),
        cmocka_unit_test(test_another_store_meanwhile),
        cmocka_unit_test(test_two_roots_one_path),
        cmocka_unit_test(test_killed_writer),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
