/* SPDX-License-Identifier: MIT
 * test_client_grow.c - tables that grow: a process's own, and a shared one on a
 * file system that becomes full, with processes that are killed within a
 * growth. Without a root: names bring their quotas (throttle_name.h). */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_world.h"
#include "compare.h"
#include "core/base/atomic.h"
#include "core/base/rng.h"
#include "core/table/table_layout.h"
#include "io/clock.h"
#include "libweir/libweir_internal.h"
#include "seed.h"

#define NAMES 10000
#define MIB ((uint64_t)1 << 20)
#ifdef WORLD_SANITIZED
#define VALUES 20000
#else
#define VALUES 100000
#endif

/* No take is limited because a thread that has a lock waits for a processor. */
static struct weir_options patient_options(void)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.lock_wait = WEIR_SECOND;
    return options;
}

static int try_to_open(const struct weir_options *options, struct weir **out)
{
    int error = weir_open(options, out);
#ifdef WORLD_SANITIZED
    /* Audits hold the table's lock for longer than lock_wait may be. */
    if (error == 0)
        (*out)->lock_wait = GUARD;
#endif
    return error;
}

static struct weir *opened(const struct weir_options *options)
{
    struct weir *weir;
    assert_int_equal(try_to_open(options, &weir), 0);
    return weir;
}

/* 3 an hour, with all 3 at once. */
static enum weir_verdict take_value(struct weir *weir, uint32_t value,
                                    struct weir_reply *reply)
{
    char name[64];
    int len = snprintf(name, sizeof(name), "throttle:3:3/3600s:%u", value);
    return weir_take_by_name(weir, name, (size_t)len, 1, reply, 0);
}

static void define(struct weir *weir, const char *const *fields)
{
    char why[256] = "";
    if (weir_define(weir, fields, why, sizeof(why)) < 0)
        fail_msg("%s", why);
}

static struct weir_status status_of(struct weir *weir)
{
    struct weir_status status;
    weir_status(weir, &status);
    return status;
}

/* Waits for the next event that says that the table is full. */
static void wait_for_full(struct weir *weir, struct weir_event *event)
{
    do {
        struct pollfd waits = { .fd = weir_event_fd(weir), .events = POLLIN };
        while (!weir_event_next(weir, event))
            (void)poll(&waits, 1, 1000);
    } while (event->type != WEIR_EVENT_TABLE_FULL);
}

/* ---- A table of one process ---- */

static void many_values_keep_their_limits(void **state)
{
    (void)state;
    struct weir_options options = patient_options();
    struct weir *weir = opened(&options);
    struct weir_status before = status_of(weir);
    assert_compare(before.memory_max, <=, 1024 * MIB);
    assert_compare(before.memory_max, >, 1023 * MIB);
    assert_compare(before.memory, <, 4 * MIB);
    for (int i = 0; i < 4; i++)
        for (uint32_t value = 0; value < VALUES; value++)
            assert_int_equal(take_value(weir, value, NULL),
                             i < 3 ? WEIR_PASSED : WEIR_LIMITED);
    struct weir_status after = status_of(weir);
    assert_int_equal(after.slots_used, VALUES);
    assert_int_equal(after.overflowed + after.unknown, 0);
    assert_compare(after.memory, >, before.memory);
    weir_close(weir);
}

/* So long that the next byte would need another chunk: still, each slot has
 * room for its name. */
#define LONGEST 83

static void names_of_usual_lengths_use_all_slots(void **state)
{
    (void)state;
    struct weir_options options = patient_options();
    struct weir_reply reply;
    options.memory_max = 8 * MIB;
    struct weir *weir = opened(&options);
    uint32_t slots = status_of(weir).slots;
    assert_compare(slots, >, 4 * WEIR_TABLE_GROWTH_MIN);
    for (uint32_t value = 0; value < slots; value++) {
        char name[LONGEST + 1];
        snprintf(name, sizeof(name), "throttle:3:3/3600s:%0*u", LONGEST - 19,
                 value);
        assert_int_equal(strlen(name), LONGEST);
        enum weir_verdict verdict =
            weir_take_by_name(weir, name, LONGEST, 1, &reply, 0);
        if (verdict != WEIR_PASSED || reply.full)
            fail_msg("%u of %u slots have room for their name", value, slots);
    }
    weir_close(weir);
}

/* A name that finds no room is refused, or passes, and says so. */
static void names_without_room_go_by_on_full(void **state)
{
    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        struct weir_options options = patient_options();
        options.memory_max = MIB;
        options.on_full = pass ? WEIR_ON_FULL_PASS : WEIR_ON_FULL_REFUSE;
        struct weir *weir = opened(&options);
        uint32_t slots = status_of(weir).slots;
        assert_true(status_of(weir).overflowed_age == WEIR_NEVER);
        assert_compare(slots, >, 500);
        assert_compare(slots, <, 3000);
        struct weir_reply reply;
        for (uint32_t value = 0; value < slots; value++) {
            assert_int_equal(take_value(weir, value, &reply), WEIR_PASSED);
            assert_false(reply.full);
        }
        assert_int_equal(take_value(weir, slots, &reply),
                         pass ? WEIR_PASSED : WEIR_LIMITED);
        assert_true(reply.full && !reply.unknown);
        assert_int_equal(reply.retry_after > 0, !pass);
        struct weir_status status = status_of(weir);
        assert_int_equal(status.overflowed, 1);
        assert_compare(status.overflowed_age, <, WEIR_NEVER);
        assert_false(status.growth_failed);
        struct weir_event event;
        wait_for_full(weir, &event);
        assert_int_equal(event.count, 1);
        assert_non_null(
            strstr(event.text, pass ? "on_full=pass" : "on_full=refuse"));
        assert_non_null(strstr(event.text, "raise memory_max"));
        /* No quota is missing: a name without one is unknown, as ever. */
        assert_int_equal(weir_take_by_name(weir, "x", 1, 1, &reply, 0),
                         WEIR_PASSED);
        assert_true(reply.unknown && !reply.full);
        weir_close(weir);
    }
}

/* A template's overflow quota comes before on_full; without one, the parent
 * alone doesn't let pass what the instance would refuse. */
static void instances_without_room_go_to_their_overflow(void **state)
{
    (void)state;
    struct weir_options options = patient_options();
    options.memory_max = MIB;
    struct weir *weir = opened(&options);
    define(weir, (const char *[]){ "name=all", "limit=unlimited", NULL });
    define(weir, (const char *[]){ "name=rest", "limit=5/h", "low_burst=5",
                                   "high_burst=5", NULL });
    define(weir, (const char *[]){ "name=a/*", "limit=3/h", "high_burst=3",
                                   "overflow=rest", NULL });
    define(weir, (const char *[]){ "name=b/*", "limit=3/h", "high_burst=3",
                                   "parent=all", NULL });
    struct weir_reply reply;
    uint32_t passed = 0;
    while (status_of(weir).overflowed == 0)
        take_value(weir, passed++, &reply);
    for (int i = 0; i < 6; i++) {
        char name[] = { 'a', '/', (char)('0' + i), '\0' };
        assert_int_equal(weir_take_by_name(weir, name, 3, 1, &reply, 0),
                         i < 5 ? WEIR_PASSED : WEIR_LIMITED);
        assert_true(reply.full);
        assert_string_equal(reply.quota, "rest");
    }
    assert_int_equal(weir_take_by_name(weir, "b/1", 3, 1, &reply, 0),
                     WEIR_LIMITED);
    assert_true(reply.full);
    struct weir_handle handle;
    assert_int_equal(weir_handle_open(weir, "b/2", 3, &handle), WEIR_EFULL);
    assert_int_equal(weir_take(handle, 1, &reply, 0), WEIR_LIMITED);
    assert_true(reply.full);
    struct weir_permit permit;
    assert_int_equal(weir_enter(handle, 0, 1, &permit, &reply, 0),
                     WEIR_LIMITED);
    assert_true(reply.full);
    assert_int_equal(weir_enter_wait(handle, 0, 1, 0, 0, &permit, &reply),
                     WEIR_LIMITED);
    assert_true(reply.full);
    weir_handle_close(handle);
    weir_close(weir);
}

/* A value of such a template finds no room, and its own quota limits nothing:
 * it passes, by its parent if it has one. */
static void limits_nothing(struct weir *weir, char letter)
{
    struct weir_reply reply;
    char name[] = { letter, '/', '1', '\0' };
    for (int i = 0; i < 6; i++) {
        assert_int_equal(weir_take_by_name(weir, name, 3, 1, &reply, 0),
                         WEIR_PASSED);
        assert_true(reply.full && !reply.unknown);
    }
    assert_int_equal(weir_take_by_name(weir, name, 3, 1, NULL, 0), WEIR_PASSED);
    struct weir_permit permit;
    assert_int_equal(
        weir_enter_by_name(weir, name, 3, 0, 1, &permit, &reply, 0),
        WEIR_PASSED);
    assert_true(reply.full);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    struct weir_handle handle;
    assert_int_equal(weir_handle_open(weir, name, 3, &handle), WEIR_EFULL);
    assert_int_equal(weir_take(handle, 1, &reply, 0), WEIR_PASSED);
    assert_true(reply.full);
    weir_handle_close(handle);
}

static void templates_that_limit_nothing_refuse_no_value(void **state)
{
    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        struct weir_options options = patient_options();
        options.memory_max = MIB;
        options.on_full = pass ? WEIR_ON_FULL_PASS : WEIR_ON_FULL_REFUSE;
        struct weir *weir = opened(&options);
        define(weir, (const char *[]){ "name=rest", "limit=2/h", "high_burst=2",
                                       NULL });
        define(weir, (const char *[]){ "name=site", "limit=4/h", "low_burst=4",
                                       "high_burst=4", NULL });
        define(weir, (const char *[]){ "name=s/*", "limit=3/h", "mode=shadow",
                                       "overflow=rest", NULL });
        define(weir,
               (const char *[]){ "name=o/*", "limit=0", "mode=off", NULL });
        define(weir, (const char *[]){ "name=u/*", "limit=unlimited", NULL });
        define(weir, (const char *[]){ "name=c/*", "limit=unlimited",
                                       "parent=site", NULL });
        define(weir, (const char *[]){ "name=p/*", "limit=3/h", NULL });
        define(weir, (const char *[]){ "name=d/*", "limit=unlimited",
                                       "parent=p/{1}", NULL });
        struct weir_reply reply;
        uint32_t passed = 0;
        while (status_of(weir).overflowed == 0)
            take_value(weir, passed++, &reply);
        limits_nothing(weir, 's');
        limits_nothing(weir, 'o');
        limits_nothing(weir, 'u');
        for (int i = 0; i < 6; i++) {
            assert_int_equal(weir_take_by_name(weir, "c/1", 3, 1, &reply, 0),
                             i < 4 ? WEIR_PASSED : WEIR_LIMITED);
            assert_true(reply.full);
            assert_string_equal(reply.quota, "site");
        }
        /* Its parent limits, and has no room either. */
        assert_int_equal(weir_take_by_name(weir, "d/1", 3, 1, &reply, 0),
                         pass ? WEIR_PASSED : WEIR_LIMITED);
        assert_true(reply.full);
        weir_close(weir);
    }
}

#define LOG(name)                                                       \
    (const char *[])                                                    \
    {                                                                   \
        name, "sharing=local", "algorithm=sliding_log", "limit=2000/h", \
            "max_entries=4000", NULL                                    \
    }

/* Until there is no room for one more log; slots are left. */
static void fill_with_logs(struct weir *weir)
{
    char why[256] = "";
    int error = 0;
    for (int i = 0; error == 0; i++) {
        char name[32];
        snprintf(name, sizeof(name), "name=log/%d", i);
        error = weir_define(weir, LOG(name), why, sizeof(why));
    }
    if (error != WEIR_EFULL)
        fail_msg("%d %s", error, why);
}

/* The name has a slot, for its handle, but its quota found no room: as if it
 * had none. */
static void a_handle_whose_quota_finds_no_room_goes_by_on_full(void **state)
{
    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        struct weir_options options = patient_options();
        options.memory_max = MIB;
        options.on_full = pass ? WEIR_ON_FULL_PASS : WEIR_ON_FULL_REFUSE;
        enum weir_verdict verdict = pass ? WEIR_PASSED : WEIR_LIMITED;
        struct weir *weir = opened(&options);
        struct weir_handle handle;
        struct weir_reply reply;
        assert_int_equal(weir_handle_open(weir, "big", 3, &handle), 0);
        assert_int_equal(weir_take(handle, 1, &reply, 0), WEIR_PASSED);
        assert_true(reply.unknown && !reply.full);
        fill_with_logs(weir);
        assert_int_equal(weir_define(weir, LOG("name=big"), NULL, 0),
                         WEIR_EFULL);
        weir_table_set_lacking(weir->table, 1); /* as with roots */
        assert_int_equal(weir_take(handle, 1, &reply, 0), verdict);
        assert_true(reply.full && !reply.unknown);
        assert_int_equal(weir_take(handle, 1, NULL, 0), verdict);
        assert_int_equal(weir_take_by_name(weir, "big", 3, 1, &reply, 0),
                         verdict);
        assert_true(reply.full && !reply.unknown);
        struct weir_permit permit;
        assert_int_equal(weir_enter(handle, 0, 1, &permit, &reply, 0), verdict);
        assert_true(reply.full);
        weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
        weir_table_set_lacking(weir->table, 0);
        assert_int_equal(weir_take(handle, 1, &reply, 0), WEIR_PASSED);
        assert_true(reply.unknown && !reply.full);
        weir_handle_close(handle);
        weir_close(weir);
    }
}

/* The parent's quota found no room. With `refuse` it might refuse; with `pass`
 * the rest of the chain decides. */
static void a_child_of_a_quota_without_room_goes_by_on_full(void **state)
{
    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        struct weir_options options = patient_options();
        options.memory_max = MIB;
        options.on_full = pass ? WEIR_ON_FULL_PASS : WEIR_ON_FULL_REFUSE;
        struct weir *weir = opened(&options);
        define(weir, (const char *[]){ "name=child", "limit=9/h", "low_burst=9",
                                       "high_burst=9", "parent=big", NULL });
        define(weir, (const char *[]){ "name=grandchild", "limit=99/h",
                                       "low_burst=99", "high_burst=99",
                                       "parent=child", NULL });
        define(weir, (const char *[]){ "name=gate", "kind=concurrency",
                                       "sharing=local", "limit=2", "parent=big",
                                       NULL });
        fill_with_logs(weir);
        assert_int_equal(weir_define(weir, LOG("name=big"), NULL, 0),
                         WEIR_EFULL);
        struct weir_reply reply;
        assert_int_equal(weir_take_by_name(weir, "child", 5, 1, &reply, 0),
                         WEIR_PASSED);
        assert_false(reply.full);
        uint64_t before = status_of(weir).overflowed;
        weir_table_set_lacking(weir->table, 1); /* as with roots */
        struct weir_handle handle;
        assert_int_equal(weir_handle_open(weir, "child", 5, &handle), 0);
        for (int i = 0; i < 12; i++) {
            enum weir_verdict verdict;
            if (i % 3 == 0)
                verdict = weir_take(handle, 1, &reply, 0);
            else if (i % 3 == 1)
                verdict = weir_take_by_name(weir, "child", 5, 1, &reply, 0);
            else
                verdict =
                    weir_take_by_name(weir, "grandchild", 10, 1, &reply, 0);
            assert_int_equal(verdict,
                             pass && i < 8 ? WEIR_PASSED : WEIR_LIMITED);
            assert_int_equal(reply.full, !pass || i < 8);
        }
        assert_int_equal(status_of(weir).overflowed - before, pass ? 8 : 12);
        assert_int_equal(weir_take(handle, 1, NULL, 0), WEIR_LIMITED);
        weir_handle_close(handle);
        for (int i = 0; i < 3; i++) {
            struct weir_permit permit;
            assert_int_equal(
                weir_enter_by_name(weir, "gate", 4, 0, 1, &permit, &reply, 0),
                pass && i < 2 ? WEIR_PASSED : WEIR_LIMITED);
            assert_int_equal(reply.full, !pass || i < 2);
        }
        weir_close(weir);
    }
}

/* In a child: its exit status is the result. */
static void in_child(void (*run)(void))
{
    pid_t pid = fork();
    assert_compare(pid, >=, 0);
    if (pid == 0) {
        signal(SIGBUS, SIG_DFL); /* cmocka would go on with the next test */
        signal(SIGSEGV, SIG_DFL);
        run();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 77))
        fail_msg("the child: %s %d", WIFSIGNALED(status) ? "signal" : "exit",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (status != 0)
        skip();
}

#define MUST(condition)                                             \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            _exit(1);                                               \
        }                                                           \
    } while (0)

static void open_with_few_addresses(void)
{
    struct weir_options options = patient_options();
    struct weir *weir;
    struct rlimit few = { 400 * MIB, 400 * MIB };
    MUST(setrlimit(RLIMIT_AS, &few) == 0);
    int error = try_to_open(&options, &weir);
    if (error < 0)
        fprintf(stderr, "weir_open: %d\n", error);
    MUST(error == 0);
    struct weir_status status = status_of(weir);
    MUST(status.memory_max >= 100 * MIB && status.memory_max < 400 * MIB);
    struct weir_event event;
    MUST(weir_event_next(weir, &event) && event.type == WEIR_EVENT_TABLE);
    MUST(strstr(event.text, "ulimit -v"));
    for (uint32_t value = 0; value < 3000; value++)
        MUST(take_value(weir, value, NULL) == WEIR_PASSED);
    weir_close(weir);
}

/* Memory of this process that it may write to, in bytes. */
static uint64_t writable(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    MUST(file);
    while (kib == 0 && fgets(line, sizeof(line), file))
        (void)sscanf(line, "VmData: %lu kB", &kib);
    fclose(file);
    MUST(kib > 0);
    return kib * 1024;
}

/* A system that doesn't promise more memory than it has charges all that a
 * process may write to, and mlockall() makes all of that resident. */
static void open_with_three_roots(void)
{
    struct weir_options options = patient_options();
    struct weir *weir;
    uint64_t before = writable();
    options.roots = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    MUST(try_to_open(&options, &weir) == 0);
    uint64_t opened = writable() - before;
    for (uint32_t value = 0; value < 20000; value++)
        MUST(take_value(weir, value, NULL) == WEIR_PASSED);
    uint64_t grown = writable() - before;
    fprintf(stderr, "may write to %lu KiB, with 20,000 names %lu KiB more\n",
            (unsigned long)(opened / 1024),
            (unsigned long)((grown - opened) / 1024));
    MUST(opened < 32 * MIB);
    MUST(grown > opened + 20 * MIB && grown < opened + 100 * MIB);
    weir_close(weir);
}

static void unused_memory_cannot_be_written_to(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip(); /* a sanitizer has memory of its own */
#endif
    in_child(open_with_three_roots);
}

static void a_process_with_few_addresses_has_a_smaller_table(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip(); /* a sanitizer needs terabytes of addresses */
#endif
    in_child(open_with_few_addresses);
}

/* ---- A shared table on a full file system ---- */

static char folder[] = "/tmp/weir-grow-XXXXXX";

static struct weir_options shared_options(void)
{
    struct weir_options options = patient_options();
    static char path[sizeof(folder) + 8];
    snprintf(path, sizeof(path), "%s/table", folder);
    options.table = path;
    return options;
}

/* Stands for the library's own. Each range that is allocated of a table's file
 * begins and ends on a page, or at the file's end: of a page that is allocated
 * in part only, a first write may need blocks that the file system doesn't
 * have. */
static uint32_t allocated, torn; /* atomic: the library's thread grows too */

int fallocate(int fd, int mode, off_t at, off_t bytes)
{
    struct stat file;
    off_t page = sysconf(_SC_PAGESIZE);
    MUST(fstat(fd, &file) == 0 && at + bytes <= file.st_size);
    if (at % page != 0 ||
        ((at + bytes) % page != 0 && at + bytes != file.st_size))
        weir_fetch_add(&torn, 1);
    weir_fetch_add(&allocated, 1);
    return (int)syscall(SYS_fallocate, fd, mode, at, bytes);
}

static void whole_pages_of_the_file_are_allocated(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    struct weir_options options = shared_options();
    struct weir *weir = opened(&options);
    uint32_t first = weir_load(&allocated);
    assert_compare(first, >, 10);
    for (uint32_t value = 0; value < 2000; value++)
        assert_int_equal(take_value(weir, value, NULL), WEIR_PASSED);
    assert_compare(weir_load(&allocated), >, first + 10);
    assert_int_equal(weir_load(&torn), 0);
    weir_close(weir);
    unlink(options.table);
    rmdir(folder);
}

/* Names until one finds no room. */
static uint32_t fill_table(struct weir *weir, uint32_t from)
{
    struct weir_reply reply = { .full = false };
    uint32_t value = from;
    for (; !reply.full; value++) {
        enum weir_verdict verdict = take_value(weir, value, &reply);
        MUST(!reply.contended && !reply.stale);
        MUST(verdict == WEIR_PASSED || reply.full);
    }
    return value;
}

/* On a file system of its own, which is gone with the process. */
static void fill_small_file_system(void)
{
    if (unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("weir", folder, "tmpfs", 0, "size=16m") < 0) {
        fprintf(stderr, "skipped: a tmpfs can't be mounted here: %s\n",
                strerror(errno));
        _exit(77);
    }
    struct weir_options options = shared_options();
    struct weir *one, *other;
    MUST(try_to_open(&options, &one) == 0);
    MUST(try_to_open(&options, &other) == 0);
    MUST(status_of(one).slots > 500000);
    uint32_t made = fill_table(one, 0);
    MUST(made > 4000 && made < 16000);
    MUST(weir_table_growth_failed(one->table));
    MUST(status_of(one).growth_failed);
    struct weir_event event;
    wait_for_full(one, &event);
    MUST(!strstr(event.text, "memory_max"));
    MUST(strstr(event.text, "the table's file system is full"));
    /* Names in the table are decided on by both, others are refused. */
    for (uint32_t value = 0; value < 4000; value++)
        MUST(take_value(other, value, NULL) == WEIR_PASSED);
    struct weir_reply reply;
    MUST(take_value(other, made + 1, &reply) == WEIR_LIMITED && reply.full);
    /* There is room again, and the table is told so. */
    MUST(mount("weir", folder, "tmpfs", MS_REMOUNT, "size=64m") == 0);
    weir_table_resume_growing(one->table);
    MUST(fill_table(other, made) > 2 * made);
    uint32_t *scratch = calloc(1 << 20, sizeof(*scratch));
    MUST(scratch);
    weir_table_audit_whole(one->table, scratch, 1 << 20);
    weir_close(other);
    weir_close(one);
}

static void a_full_file_system_makes_the_table_full(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weir-grow-XXXXXX");
    assert_non_null(mkdtemp(folder));
    in_child(fill_small_file_system);
    rmdir(folder);
}

/* As MUST, for what this machine may not have. */
static void run_or_skip(const char *command)
{
    if (system(command) == 0)
        return;
    fprintf(stderr, "skipped: no ext4 can be mounted here: %s\n", command);
    _exit(77);
}

/* Writes a file until the file system has no block left for it. */
static void fill_file_system(void)
{
    char path[sizeof(folder) + 8];
    static const char zeros[1 << 16];
    snprintf(path, sizeof(path), "%s/rest", folder);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    MUST(fd >= 0);
    for (size_t part = sizeof(zeros); part > 0; part /= 2)
        while (write(fd, zeros, part) > 0)
            continue;
    MUST(errno == ENOSPC && fsync(fd) == 0);
    close(fd);
}

/* Its blocks are smaller than a page. A write to a page with a block that isn't
 * allocated would be the end of this process (SIGBUS). */
static void fill_small_blocks(void)
{
    char command[256];
    if (unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("weir", folder, "tmpfs", 0, "size=64m") < 0) {
        fprintf(stderr, "skipped: a tmpfs can't be mounted here: %s\n",
                strerror(errno));
        _exit(77);
    }
    snprintf(command, sizeof(command),
             "cd %s && truncate -s 32M image && exec 2>/dev/null &&"
             " mkfs.ext4 -q -b 1024 -m 0 -O ^has_journal image &&"
             " mount -o loop image .",
             folder);
    run_or_skip(command);
    struct weir_options options = shared_options();
    struct weir *weir;
    MUST(try_to_open(&options, &weir) == 0);
    for (uint32_t value = 0; value < 500; value++)
        MUST(take_value(weir, value, NULL) == WEIR_PASSED);
    fill_file_system();
    uint32_t made = fill_table(weir, 500);
    MUST(made >= WEIR_TABLE_GROWTH_MIN / 2 && made < 2000);
    for (uint32_t value = 0; value < made - 1; value++)
        MUST(take_value(weir, value, NULL) == WEIR_PASSED);
    weir_close(weir);
}

static void blocks_smaller_than_a_page_kill_no_process(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weir-grow-XXXXXX");
    assert_non_null(mkdtemp(folder));
    in_child(fill_small_blocks);
    rmdir(folder);
}

/* ---- Opening the file ---- */

/* A table that its maker didn't finish is made anew: not in a process whose
 * files may not be so long. */
static void open_void_file_with_short_files(void)
{
    struct weir_options options = shared_options();
    struct weir *weir;
    uint64_t nobody = 0;
    MUST(try_to_open(&options, &weir) == 0);
    weir_close(weir);
    int fd = open(options.table, O_RDWR);
    MUST(fd >= 0 && pwrite(fd, &nobody, sizeof(nobody), 0) == sizeof(nobody));
    close(fd);
    struct rlimit few = { MIB, MIB };
    MUST(setrlimit(RLIMIT_FSIZE, &few) == 0);
    MUST(try_to_open(&options, &weir) == WEIR_ETABLE);
}

static void a_file_that_may_not_be_so_long_is_refused(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weir-grow-XXXXXX");
    assert_non_null(mkdtemp(folder));
    in_child(open_void_file_with_short_files);
    unlink(shared_options().table);
    rmdir(folder);
}

/* A file of another kind, which ends within a page. */
static void a_file_that_is_no_table_keeps_its_length(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weir-grow-XXXXXX");
    assert_non_null(mkdtemp(folder));
    struct weir_options options = shared_options();
    struct weir *weir;
    struct stat file;
    int fd = open(options.table, O_RDWR | O_CREAT, 0600);
    assert_compare(fd, >=, 0);
    assert_int_equal(ftruncate(fd, 3000), 0);
    assert_int_equal(weir_open(&options, &weir), WEIR_ETABLE);
    assert_int_equal(fstat(fd, &file), 0);
    assert_int_equal(file.st_size, 3000);
    close(fd);
    unlink(options.table);
    rmdir(folder);
}

/* Another process has the file's lock, and is stopped: an open that never
 * returned would be the end of a test's patience. */
static void a_stopped_process_hinders_no_open_for_long(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weir-grow-XXXXXX");
    assert_non_null(mkdtemp(folder));
    struct weir_options options = shared_options();
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_compare(pid, >=, 0);
    if (pid == 0) {
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        int fd = open(options.table, O_RDWR | O_CREAT, 0600);
        MUST(fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0);
        MUST(write(ready[1], "", 1) == 1);
        for (;;)
            pause();
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct weir *weir;
    assert_int_equal(weir_open(&options, &weir), WEIR_ETABLE);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(weir_open(&options, &weir), 0);
    weir_close(weir);
    close(ready[0]);
    close(ready[1]);
    unlink(options.table);
    rmdir(folder);
}

/* ---- Processes that are killed within a growth ---- */

#define KILLS 40
#define NAMES_A_CHILD 8192

/* Returns never: the parent kills this child. '*done' counts its takes. */
static void add_names(uint32_t from, uint32_t *done)
{
    struct weir_options options = shared_options();
    struct weir *weir;
    MUST(try_to_open(&options, &weir) == 0);
    for (uint32_t i = 0; i < NAMES_A_CHILD; i++) {
        (void)take_value(weir, from + i, NULL);
        weir_store(done, i + 1);
    }
    for (;;)
        pause();
}

/* Kills the child after 'takes' of its takes, or, if 'growing', sooner: when a
 * growth has begun and not ended. */
static void kill_child(struct weir *weir, pid_t pid, const uint32_t *done,
                       uint32_t takes, bool growing)
{
    int status;
    while (weir_load(done) < takes) {
        if (growing && weir_load(done) > 0 &&
            weir_table_is_growing(weir->table, weir_clock_now()))
            break;
        assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
        sched_yield();
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* A commit of parts of a file clears their pages, while other decisions may
 * wait for the file. Without a reporter only decisions grow the table. */
static void a_decision_grows_a_shared_table_by_a_little(void **state)
{
    (void)state;
    struct weir_reply reply;
    snprintf(folder, sizeof(folder), "/dev/shm/weir-XXXXXX");
    assert_non_null(mkdtemp(folder));
    struct weir_options options = shared_options();
    options.table_role = WEIR_TABLE_DECIDES;
    struct weir *weir = opened(&options);
    for (uint32_t i = 0; i < NAMES; i++) {
        uint32_t before = weir_table_committed(weir->table);
        assert_int_equal(take_value(weir, i, &reply), WEIR_PASSED);
        assert_false(reply.full);
        assert_compare(weir_table_committed(weir->table) - before, <=,
                       WEIR_TABLE_GROWTH_STEP);
    }
    weir_close(weir);
    unlink(options.table);
    rmdir(folder);
}

/* A caller that finds another one growing the table waits as for a lock. */
static void a_decision_waits_for_a_growth_as_for_a_lock(void **state)
{
    (void)state;
    struct weir_reply reply;
    snprintf(folder, sizeof(folder), "/dev/shm/weir-XXXXXX");
    assert_non_null(mkdtemp(folder));
    struct weir_options options = shared_options();
    options.table_role = WEIR_TABLE_DECIDES;
    struct weir *weir = opened(&options);
    struct weir_table *table = weir->table;
    uint32_t i = 0;
    while (weir_table_live(table) < weir_table_committed(table))
        assert_int_equal(take_value(weir, i++, NULL), WEIR_PASSED);
    /* Of an instant to come, so that the test may be slow. */
    assert_true(weir_table_begin_growth(table, weir_clock_now() + GUARD));
    assert_false(weir_table_begin_growth(table, weir_clock_now()));
    weir->lock_wait = WEIR_SECOND;
    assert_int_equal(take_value(weir, i, &reply), WEIR_LIMITED);
    assert_true(reply.contended && !reply.full);
    assert_int_equal(take_value(weir, 0, NULL), WEIR_PASSED);
    /* That caller was killed long ago. */
    weir_table_grown(table, weir_table_committed(table));
    assert_true(weir_table_begin_growth(table, 1));
    assert_int_equal(take_value(weir, i, &reply), WEIR_PASSED);
    assert_false(reply.contended || reply.full);
    weir_close(weir);
    unlink(options.table);
    rmdir(folder);
}

static void killed_processes_leave_a_sound_table(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("killed_processes_leave_a_sound_table");
    snprintf(folder, sizeof(folder), "/dev/shm/weir-XXXXXX");
    assert_non_null(mkdtemp(folder));
    struct weir_options options = shared_options();
    struct weir *weir = opened(&options);
    uint32_t *scratch = calloc(1 << 20, sizeof(*scratch));
    assert_non_null(scratch);
    uint32_t *done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(done != MAP_FAILED);
    uint32_t grown = 0;
    for (uint32_t i = 0; i < KILLS; i++) {
        uint32_t before = weir_table_committed(weir->table);
        uint32_t takes = 1 + weir_rng_below(&rng, NAMES_A_CHILD / 2);
        weir_store(done, 0);
        pid_t pid = fork();
        assert_compare(pid, >=, 0);
        if (pid == 0)
            add_names(i * NAMES_A_CHILD, done);
        bool growing = i % 2 == 0;
        kill_child(weir, pid, done, growing ? NAMES_A_CHILD : takes, growing);
        grown += weir_table_committed(weir->table) > before;
        /* Another process decides on, whatever the dead one held. */
        struct weir_reply reply;
        (void)take_value(weir, 1000000 + i, &reply);
        assert_false(reply.full);
        weir_table_audit_whole(weir->table, scratch, 1 << 20);
    }
    print_message("%u killed; %u times the table had grown\n", KILLS, grown);
    assert_compare(grown, >, 0);
    munmap(done, sizeof(*done));
    free(scratch);
    weir_close(weir);
    unlink(options.table);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_values_keep_their_limits),
        cmocka_unit_test(names_of_usual_lengths_use_all_slots),
        cmocka_unit_test(names_without_room_go_by_on_full),
        cmocka_unit_test(instances_without_room_go_to_their_overflow),
        cmocka_unit_test(templates_that_limit_nothing_refuse_no_value),
        cmocka_unit_test(a_handle_whose_quota_finds_no_room_goes_by_on_full),
        cmocka_unit_test(a_child_of_a_quota_without_room_goes_by_on_full),
        cmocka_unit_test(a_process_with_few_addresses_has_a_smaller_table),
        cmocka_unit_test(unused_memory_cannot_be_written_to),
        cmocka_unit_test(whole_pages_of_the_file_are_allocated),
        cmocka_unit_test(a_full_file_system_makes_the_table_full),
        cmocka_unit_test(blocks_smaller_than_a_page_kill_no_process),
        cmocka_unit_test(a_decision_grows_a_shared_table_by_a_little),
        cmocka_unit_test(a_file_that_may_not_be_so_long_is_refused),
        cmocka_unit_test(a_file_that_is_no_table_keeps_its_length),
        cmocka_unit_test(a_stopped_process_hinders_no_open_for_long),
        cmocka_unit_test(a_decision_waits_for_a_growth_as_for_a_lock),
        cmocka_unit_test(killed_processes_leave_a_sound_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
