/* SPDX-License-Identifier: MIT
 * test_client_shared.c - a shared table, with a real root: which processes may
 * open it, which one is its reporter and which is next, and processes that are
 * killed while they decide.
 *
 * Children end by _exit() or by kill, never into the test. WEIR_KILLS is the
 * number of kills (100; 1,000 in its long form). */

#include "client_world.h"
#include "compare.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/atomic.h"
#include "core/base/rng.h"
#include "core/table/table_lock_internal.h"
#include "libweir/libweir_internal.h"

#define KILLS 100
#define PROCESSES 4
#define LIMIT 5000 /* units a second */
#define BURST 750

static struct root root;
static char path[64];
static unsigned tables;

/* Shared memory in which the processes report to the test. */
struct common {
    uint64_t begun, passed, turns, offices, opened;
    uint64_t last; /* instant of the last unit that passed */
    uint32_t go;   /* the children that were forked early may open the table */
};
static struct common *common;

static int begin(void **state)
{
    (void)state;
    common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(common, MAP_FAILED);
    root_make(&root);
    root_set(&root, "all", "{\"limit\": \"unlimited\"}");
    root_set(&root, "q", "{\"limit\": \"unlimited\", \"parent\": \"all\"}");
    root_set(&root, "limited",
             "{\"limit\": \"5000/s\", \"low_burst\": \"500\","
             " \"high_burst\": \"750\"}");
    root_set(&root, "t/*", "{\"limit\": \"1000000/s\"}");
    root_set(&root, "log",
             "{\"limit\": \"1000000/s\", \"sharing\": \"local\","
             " \"algorithm\": \"sliding_window\"}");
    root_set(&root, "db",
             "{\"kind\": \"concurrency\", \"sharing\": \"local\","
             " \"limit\": \"1000\"}");
    return 0;
}

static int end(void **state)
{
    (void)state;
    root_free(&root);
    return 0;
}

static int begin_table(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "/dev/shm/weir-test-%ld-%u", (long)getpid(),
             tables++);
    memset(common, 0, sizeof(*common));
    return 0;
}

static int end_table(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

/* ---- Opening ---- */

struct told {
    char text[192];
};

static void on_event(void *context, const struct weir_event *event)
{
    struct told *told = context;
    if (told && event->type == WEIR_EVENT_TABLE)
        snprintf(told->text, sizeof(told->text), "%s", event->text);
    if (event->type == WEIR_EVENT_REPORTER)
        weir_fetch_add(&common->offices, 1);
}

static struct weir_options options_of(enum weir_table_role role,
                                      struct told *told)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    /* Exact counts, on a busy machine. */
    options.lock_wait = WEIR_SECOND;
    options.roots = root.address;
    options.table = path;
    options.table_role = role;
    options.on_event = on_event;
    options.event_context = told;
    return options;
}

static struct weir *open_table(enum weir_table_role role)
{
    static struct told told; /* the limiter's thread reads it as well */
    struct weir *weir;
    struct weir_options options = options_of(role, &told);
    told.text[0] = '\0';
    int error = weir_open(&options, &weir);
    if (error < 0)
        fail_msg("weir_open: %d %s", error, told.text);
    return weir;
}

static void is_refused(const struct weir_options *options, int error,
                       const char *why)
{
    struct weir *weir;
    struct told told = { "" };
    struct weir_options copy = *options;
    copy.event_context = &told;
    assert_int_equal(weir_open(&copy, &weir), error);
    if (!strstr(told.text, why))
        fail_msg("\"%s\" isn't in \"%s\"", why, told.text);
}

static void a_table_is_refused_with_a_sentence(void **state)
{
    (void)state;
    struct weir_options options = options_of(WEIR_TABLE_DECIDES, NULL);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 1000; i++)
        fputs("this is somebody's thesis. ", file);
    fclose(file);
    chmod(path, 0600);
    is_refused(&options, WEIR_ETABLE, "this is not a Weir table");
    chmod(path, 0640);
    is_refused(&options, WEIR_ETABLE, "mode 0600");
    unlink(path);
    assert_int_equal(symlink("/dev/shm/elsewhere", path), 0);
    is_refused(&options, WEIR_ETABLE, path);
    unlink(path);
    options.table = "/nowhere/at/all";
    is_refused(&options, WEIR_ETABLE, "/nowhere/at/all");

    struct weir *weir = open_table(WEIR_TABLE_RUNS);
    struct stat made;
    assert_int_equal(stat(path, &made), 0);
    assert_int_equal(made.st_mode & 0777, 0600);
    options = options_of(WEIR_TABLE_MAY_RUN, NULL);
    options.memory_max = 1 << 20;
    is_refused(&options, WEIR_ETABLE, "another memory_max");
    options = options_of(WEIR_TABLE_MAY_RUN, NULL);
    options.roots = "127.0.0.1:1";
    is_refused(&options, WEIR_ETABLE, "other roots");
    options = options_of(WEIR_TABLE_RUNS, NULL);
    is_refused(&options, WEIR_ELOCKED, "");
    weir->block->version[0] = '9';
    options = options_of(WEIR_TABLE_MAY_RUN, NULL);
    is_refused(&options, WEIR_ETABLE, "made by libweir 9.1.0");
    weir->block->version[0] = WEIR_VERSION[0];
    weir_close(weir);
}

/* A process that made room by the last number died with the writer lock, and
 * the table has numbers again. */
static void the_last_number_s_lock_is_reaped_as_well(void **state)
{
    (void)state;
    struct weir *weir = open_table(WEIR_TABLE_RUNS);
    int told[2];
    uint64_t dead;
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    assert_compare(pid, >=, 0);
    if (pid == 0) {
        uint64_t self = weir_process_self();
        _exit(write(told[1], &self, sizeof(self)) != sizeof(self));
    }
    assert_int_equal(read(told[0], &dead, sizeof(dead)), sizeof(dead));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    UNTIL(weir_table_try_lock_as(weir->table, WEIR_BLOCK_LAST, 0));
    weir_store(&weir->block->member[WEIR_BLOCK_LAST], dead);
    UNTIL((weir_load(&weir->table->writer) & LOCK_OWNER) !=
          WEIR_BLOCK_LAST + 1);
    UNTIL(weir_load(&weir->block->member[WEIR_BLOCK_LAST]) == 0);
    close(told[0]);
    close(told[1]);
    weir_close(weir);
}

static void memory_of_the_callers_is_a_table_as_well(void **state)
{
    (void)state;
    struct weir_options options = options_of(WEIR_TABLE_MAY_RUN, NULL);
    size_t size = weir_table_bytes(&options);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    struct weir *one, *other;
    assert_int_equal(weir_open_in(NULL, size, &options, &one), WEIR_EINVAL);
    assert_int_equal(weir_open_in(memory, size - 1, &options, &one),
                     WEIR_ETABLE);
    assert_int_equal(weir_open_in(memory, size, &options, &one), 0);
    options.table_role = WEIR_TABLE_DECIDES;
    options.roots = NULL;
    assert_int_equal(weir_open_in(memory, size, &options, &other), 0);
    assert_int_equal(weir_ready(other, GUARD), 0);
    struct weir_reply reply;
    assert_int_equal(weir_take_by_name(other, "q", 1, 3, &reply, 0),
                     WEIR_PASSED);
    assert_false(reply.unknown);
    struct weir_handle q = handle_open(one, "q");
    assert_int_equal(weir_sync(other, GUARD), 0);
    UNTIL(root_passed(&root, "q") >= 3);
    struct weir_status status;
    weir_status(other, &status);
    assert_true(status.ready && status.roots_up == 1);
    weir_handle_close(q);
    weir_close(one);
    UNTIL((weir_status(other, &status), !status.ready));
    assert_int_equal(weir_take_by_name(other, "q", 1, 1, &reply, 0),
                     WEIR_PASSED);
    assert_false(reply.unknown);
    weir_close(other);
    munmap(memory, size);
}

/* ---- Processes ---- */

static void turn(struct weir *weir, struct weir_handle q,
                 struct weir_handle limited, struct weir_rng *rng)
{
    char name[64];
    struct weir_permit permit;
    weir_fetch_add(&common->begun, 1);
    if (weir_take(q, 1, NULL, 0) == WEIR_PASSED)
        weir_fetch_add(&common->passed, 1);
    for (int i = 0; i < 20; i++)
        (void)weir_take(limited, 1, NULL, 0);
    (void)weir_take_by_name(weir, "log", 3, 1, NULL, 0);
    int len = snprintf(name, sizeof(name), "t/%u",
                       (unsigned)weir_rng_below(rng, 1500));
    (void)weir_take_by_name(weir, name, (size_t)len, 1, NULL, 0);
    (void)weir_enter_by_name(weir, "db", 2, 0, 1, &permit, NULL, 0);
    struct weir_handle held;
    if (weir_handle_open(weir, name, (size_t)len, &held) == 0)
        weir_handle_close(held);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    weir_fetch_add(&common->turns, 1);
}

/* It opens the table once 'go' is set. */
static pid_t process_later(enum weir_table_role role, uint64_t seed)
{
    pid_t pid = fork();
    assert_compare(pid, >=, 0);
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    UNTIL(weir_load(&common->go));
    struct weir_rng rng = { seed };
    struct weir *weir;
    struct weir_options options = options_of(role, NULL);
    if (weir_open(&options, &weir) < 0)
        _exit(1);
    struct weir_handle q, limited;
    if (weir_handle_open(weir, "q", 1, &q) < 0 ||
        weir_handle_open(weir, "limited", 7, &limited) < 0)
        _exit(2);
    if (weir_ready(weir, GUARD) < 0)
        _exit(3);
    for (;;)
        turn(weir, q, limited, &rng);
}

static pid_t process_of(enum weir_table_role role, uint64_t seed)
{
    weir_store(&common->go, 1u);
    return process_later(role, seed);
}

static void kill_process(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    status = STATUS_OF(pid);
    if (!WIFSIGNALED(status))
        fail_msg("it ended by itself: %d", WEXITSTATUS(status));
}

static void wait_turns(uint64_t more)
{
    uint64_t until = weir_load(&common->turns) + more;
    UNTIL(weir_load(&common->turns) >= until);
}

static uint64_t count_of(struct weir *weir, const char *name)
{
    struct weir_ref ref;
    assert_true(weir_table_find(weir->table, weir_text_of(name), &ref));
    return weir_table_count(weir->table, ref.slot);
}

/* The root has all counts of the table, and no others. */
static void root_has_all(struct weir *weir, uint64_t before)
{
    assert_int_equal(weir_sync(weir, GUARD), 0);
    assert_int_equal(root_passed(&root, "q") - before, count_of(weir, "q"));
}

static void the_reporter_goes_on_when_its_holder_is_killed(void **state)
{
    (void)state;
    uint64_t before = root_passed(&root, "q");
    for (int round = 0; round < 5; round++) {
        pid_t holder = process_of(WEIR_TABLE_MAY_RUN, 1);
        wait_turns(200);
        pid_t next = process_of(WEIR_TABLE_MAY_RUN, 2);
        wait_turns(200);
        uint64_t offices = weir_load(&common->offices);
        kill_process(holder);
        UNTIL(weir_load(&common->offices) > offices);
        wait_turns(200);
        kill_process(next);
    }
    struct weir *weir = open_table(WEIR_TABLE_RUNS);
    assert_int_equal(weir_ready(weir, GUARD), 0);
    root_has_all(weir, before);
    uint64_t count = count_of(weir, "q");
    assert_compare(count, >=, common->passed);
    assert_compare(count, <=, common->begun);
    UNTIL(root_limiters(&root) == 1);
    weir_close(weir);
    printf("%lu units, %lu offices\n", (unsigned long)count,
           (unsigned long)common->offices);
}

static void any_process_may_be_killed(void **state)
{
    (void)state;
    const char *said = getenv("WEIR_KILLS");
    int kills = said ? atoi(said) : KILLS;
    struct weir_rng rng = { world_now() };
    printf("seed %lu\n", (unsigned long)rng.state);
    uint64_t before = root_passed(&root, "q");
    pid_t process[PROCESSES];
    weir_instant begun = world_now();
    for (int i = 0; i < PROCESSES; i++)
        process[i] = process_of(WEIR_TABLE_MAY_RUN, weir_rng_next(&rng));
    wait_turns(100);
    for (int k = 0; k < kills; k++) {
        uint32_t i = (uint32_t)weir_rng_below(&rng, PROCESSES);
        wait_turns(weir_rng_below(&rng, 400));
        kill_process(process[i]);
        process[i] = process_of(WEIR_TABLE_MAY_RUN, weir_rng_next(&rng));
    }
    wait_turns(100);
    for (int i = 0; i < PROCESSES; i++)
        kill_process(process[i]);
    double seconds = (double)(world_now() - begun) / WEIR_SECOND;

    struct weir *weir = open_table(WEIR_TABLE_RUNS);
    assert_int_equal(weir_ready(weir, GUARD), 0);
    root_has_all(weir, before);
    uint64_t count = count_of(weir, "q");
    uint64_t limited = count_of(weir, "limited");
    printf("%d killed in %.1f s; %lu units, %lu offices; %.0f/s of a limit of "
           "%d\n",
           kills, seconds, (unsigned long)count, (unsigned long)common->offices,
           (double)limited / seconds, LIMIT);
    /* A process killed between the charge and the verdict has charged a unit
     * that it didn't report as passed. */
    assert_compare(count, >=, common->passed);
    assert_compare(count, <=, common->begun);
    /* Each process may find room for one more at the same moment. */
    if ((double)limited > LIMIT * seconds + BURST + PROCESSES)
        fail_msg("%lu passed in %.3f s", (unsigned long)limited, seconds);
    struct weir_ref db;
    assert_true(weir_table_find(weir->table, WEIR_TEXT("db"), &db));
    /* A reaper that doesn't get a lock repeats later. */
    UNTIL(weir_table_in_flight(weir->table, db.slot) == 0);
    weir_close(weir);
}

static int in_child(struct weir *weir, struct weir_handle q)
{
    struct weir_reply reply;
    for (int i = 0; i < 100; i++) {
        if (weir_take(q, 1, &reply, 0) != WEIR_PASSED || reply.unknown)
            return 1;
    }
    if (weir->process < 2)
        return 2;
    weir_close(weir);
    return 0;
}

static void a_child_of_fork_is_one_more_process(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip();
#endif
    uint64_t before = root_passed(&root, "q");
    struct weir *weir = open_table(WEIR_TABLE_MAY_RUN);
    struct weir_handle q = handle_open(weir, "q");
    assert_int_equal(weir_ready(weir, GUARD), 0);
    assert_int_equal(weir_take(q, 7, NULL, 0), WEIR_PASSED);
    pid_t pid = fork();
    assert_compare(pid, >=, 0);
    if (pid == 0) {
        patience_be_child();
        _exit(in_child(weir, q));
    }
    assert_int_equal(STATUS_OF(pid), 0);
    assert_int_equal(count_of(weir, "q"), 107);
    root_has_all(weir, before);
    weir_close(weir);
}

/* ---- Stopped, and many ---- */

static void take_some(struct weir_handle q, struct weir_handle limited)
{
    for (int i = 0; i < 1000; i++) {
        weir_fetch_add(&common->begun, 1);
        assert_int_equal(weir_take(q, 1, NULL, 0), WEIR_PASSED);
        weir_fetch_add(&common->passed, 1);
        (void)weir_take(limited, 1, NULL, 0);
    }
}

static void stop_process(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(PATIENTLY(waitpid(pid, &status, WUNTRACED)), pid);
    assert_true(WIFSTOPPED(status));
}

/* A process is stopped, in any lock or as reporter. The others decide
 * meanwhile, no process takes its place or its permits, and when it goes on
 * nothing is lost or doubled. */
static void a_stopped_process_does_no_harm(void **state)
{
    (void)state;
    struct weir_rng rng = { world_now() };
    printf("seed %lu\n", (unsigned long)rng.state);
    uint64_t before = root_passed(&root, "q");
    pid_t holder = process_of(WEIR_TABLE_MAY_RUN, weir_rng_next(&rng));
    UNTIL(weir_load(&common->offices) == 1);
    wait_turns(20);
    struct weir *weir = open_table(WEIR_TABLE_MAY_RUN);
    struct weir_handle q = handle_open(weir, "q");
    struct weir_handle limited = handle_open(weir, "limited");
    uint32_t reporter = weir_load(&weir->block->reporter);
    assert_int_not_equal(reporter, weir->process);
    for (int round = 0; round < 10; round++) {
        wait_turns(weir_rng_below(&rng, 50));
        stop_process(holder);
        take_some(q, limited);
        weir_block_reap(weir->block, weir->process);
        assert_int_equal(weir_load(&weir->block->reporter), reporter);
        assert_int_equal(kill(holder, SIGCONT), 0);
        assert_int_equal(weir_sync(weir, GUARD), 0);
    }
    stop_process(holder);
    kill_process(holder); /* woken from its sleep */
    UNTIL(weir_load(&weir->block->reporter) == weir->process);
    take_some(q, limited);
    root_has_all(weir, before);
    uint64_t count = count_of(weir, "q");
    assert_compare(count, >=, common->passed);
    assert_compare(count, <=, common->begun);
    UNTIL(root_limiters(&root) == 1);
    weir_handle_close(q);
    weir_handle_close(limited);
    weir_close(weir);
}

static void must(const char *what, int error)
{
    if (error == 0)
        return;
    fprintf(stderr, "%s in an idler: %s\n", what, weir_strerror(error));
    _exit(1);
}

/* One of many: takes a unit now and then. */
static pid_t idler(uint64_t seed)
{
    pid_t pid = fork();
    assert_compare(pid, >=, 0);
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct weir_rng rng = { seed };
    struct weir *weir;
    struct weir_options options = options_of(WEIR_TABLE_MAY_RUN, NULL);
    must("weir_open", weir_open(&options, &weir));
    struct weir_handle q, limited;
    /* So many begin at once that one may get no lock within a second. */
    int error;
    UNTIL((error = weir_handle_open(weir, "q", 1, &q)) != WEIR_ETIMEOUT);
    must("q", error);
    UNTIL((error = weir_handle_open(weir, "limited", 7, &limited)) !=
          WEIR_ETIMEOUT);
    must("limited", error);
    must("weir_ready", weir_ready(weir, GUARD));
    weir_fetch_add(&common->opened, 1);
    for (;;) {
        turn(weir, q, limited, &rng);
        nanosleep(&(struct timespec){ .tv_nsec = 20 * WEIR_MILLISECOND }, NULL);
    }
}

static void all_places_are_taken(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip(); /* 62 times shadow memory */
#endif
    uint64_t before = root_passed(&root, "q");
    pid_t process[WEIR_PROCESSES_MAX];
    for (unsigned i = 0; i < WEIR_PROCESSES_MAX; i++)
        process[i] = idler(i + 1);
    UNTIL(weir_load(&common->opened) == WEIR_PROCESSES_MAX);
    wait_turns(2 * WEIR_PROCESSES_MAX);
    struct weir *weir = NULL;
    struct weir_options options = options_of(WEIR_TABLE_MAY_RUN, NULL);
    assert_int_equal(weir_open(&options, &weir), WEIR_EFULL);
    kill_process(process[0]);
    UNTIL(weir_open(&options, &weir) == 0);
    wait_turns(2 * WEIR_PROCESSES_MAX);
    assert_int_equal(weir_ready(weir, GUARD), 0);
    for (unsigned i = 1; i < WEIR_PROCESSES_MAX; i++)
        kill_process(process[i]);
    UNTIL(weir_load(&weir->block->reporter) == weir->process);
    root_has_all(weir, before);
    uint64_t count = count_of(weir, "q");
    assert_compare(count, >=, common->passed);
    assert_compare(count, <=, common->begun);
    for (uint32_t i = 1; i < WEIR_BLOCK_LAST; i++)
        UNTIL(i == weir->process || weir_load(&weir->block->member[i]) == 0);
    weir_close(weir);
}

/* ---- Sharings that aren't counted ---- */

/* Number of permits let through, by both processes in turn. */
static unsigned enter_all(struct weir *const *weir, const char *name,
                          struct weir_permit *out, unsigned most)
{
    unsigned count = 0;
    for (unsigned tries = 0; tries < 2 * most && count < most; tries++)
        count += weir_enter_by_name(weir[tries % 2], name, strlen(name), 0, 1,
                                    &out[count], NULL, 0) == WEIR_PASSED;
    return count;
}

/* Leases belong to the limiter, whichever process runs it: all share its
 * grants. For other sharings see the manual: exact ones go by on_stale,
 * adaptive ones let all pass. */
static void other_sharings_on_a_shared_table(void **state)
{
    (void)state;
    root_set(&root, "leased",
             "{\"kind\":\"concurrency\",\"sharing\":\"leased\","
             "\"limit\":\"5\",\"learning\":\"0s\","
             "\"on_stale\":\"limit\"}");
    root_set(&root, "exact/limit",
             "{\"sharing\":\"exact\",\"store\":\"root\","
             "\"limit\":\"1000000/s\",\"on_stale\":\"limit\"}");
    root_set(&root, "exact/pass",
             "{\"sharing\":\"exact\",\"store\":\"root\","
             "\"limit\":\"1/h\",\"on_stale\":\"pass\"}");
    root_set(&root, "adaptive",
             "{\"kind\":\"concurrency\",\"sharing\":\"adaptive\","
             "\"target\":\"1s\",\"min\":\"1\",\"max\":\"1\"}");
    struct weir_permit permit[20];
    struct weir *weir[] = { open_table(WEIR_TABLE_RUNS),
                            open_table(WEIR_TABLE_DECIDES) };
    assert_int_equal(weir_ready(weir[1], GUARD), 0);
    unsigned in = 0;
    UNTIL((in += enter_all(weir, "leased", permit + in, 10 - in)) >= 5);
    assert_int_equal(in + enter_all(weir, "leased", permit + in, 10), 5);
    for (unsigned i = 0; i < in; i++)
        weir_leave(&permit[i], WEIR_PERMIT_SUCCESS, 0);
    assert_int_equal(enter_all(weir, "leased", permit, 10), 5);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(
            weir_take_by_name(weir[i], "exact/limit", 11, 1, NULL, 0),
            WEIR_LIMITED);
        for (unsigned k = 0; k < 10; k++)
            assert_int_equal(
                weir_take_by_name(weir[i], "exact/pass", 10, 1, NULL, 0),
                WEIR_PASSED);
    }
    assert_int_equal(enter_all(weir, "adaptive", permit + 5, 10), 10);
    for (unsigned i = 0; i < 15; i++)
        weir_leave(&permit[i], WEIR_PERMIT_SUCCESS, 0);
    weir_close(weir[1]);
    weir_close(weir[0]);
}

/* ---- The roots of several processes ---- */

/* The root of another fleet. */
static struct root elsewhere;

static struct weir *open_by(const char *roots, enum weir_table_role role,
                            int expected)
{
    struct weir *weir = NULL;
    struct weir_options options = options_of(role, NULL);
    options.roots = roots;
    assert_int_equal(weir_open(&options, &weir), expected);
    return weir;
}

static bool is_known(struct weir *weir, const char *name)
{
    struct weir_reply reply;
    (void)weir_take_by_name(weir, name, strlen(name), 1, &reply, 0);
    return !reply.unknown;
}

/* Processes that have gone, also by a kill, are not counted; nor are processes
 * that only decide. */
static void a_newcomer_s_roots_rule_when_nobody_runs(void **state)
{
    (void)state;
    root_make(&elsewhere);
    root_set(&elsewhere, "there", "{\"limit\": \"unlimited\"}");
    /* Forked before this process has threads. */
    pid_t killed = process_later(WEIR_TABLE_MAY_RUN, 1);
    struct weir *decider = open_by(NULL, WEIR_TABLE_DECIDES, 0);
    struct weir *one = open_table(WEIR_TABLE_MAY_RUN);
    assert_int_equal(weir_ready(one, GUARD), 0);
    struct weir_options options = options_of(WEIR_TABLE_MAY_RUN, NULL);
    options.roots = elsewhere.address;
    is_refused(&options, WEIR_ETABLE, "end them first, or name theirs");
    weir_close(one);
    weir_store(&common->go, 1u);
    wait_turns(50);
    kill_process(killed);

    struct weir *other = open_by(elsewhere.address, WEIR_TABLE_RUNS, 0);
    UNTIL(is_known(decider, "there") && !is_known(decider, "q"));
    assert_int_equal(weir_sync(other, GUARD), 0);
    UNTIL(root_limiters(&elsewhere) == 1);
    (void)open_by(root.address, WEIR_TABLE_MAY_RUN, WEIR_ETABLE);
    weir_close(other);
    one = open_table(WEIR_TABLE_RUNS);
    UNTIL(is_known(decider, "q") && !is_known(decider, "there"));
    weir_close(one);
    weir_close(decider);
    root_free(&elsewhere);
}

static bool is_up(struct weir *weir)
{
    return limiter_status(weir).roots_up == 1;
}

/* If any process has roots, one without roots isn't the reporter: it could
 * reach none. If it came first, it gives way; if it is left alone, it becomes
 * reporter again. */
static void who_has_roots_runs_it(void **state)
{
    (void)state;
    struct weir *without = open_by(NULL, WEIR_TABLE_MAY_RUN, 0);
    UNTIL(weir_load(&common->offices) == 1);
    struct weir *with = open_table(WEIR_TABLE_RUNS);
    assert_int_equal(weir_ready(with, GUARD), 0);
    UNTIL(is_up(without));
    assert_int_equal(weir_load(&with->block->reporter), with->process);
    weir_close(with);
    UNTIL(weir_load(&without->block->reporter) == without->process);
    with = open_table(WEIR_TABLE_MAY_RUN);
    /* When the open returns, the process without roots has given way. */
    assert_int_equal(weir_load(&with->block->reporter), with->process);
    struct weir *third = open_table(WEIR_TABLE_MAY_RUN);
    UNTIL(is_up(without));
    weir_close(with);
    UNTIL(weir_load(&third->block->reporter) == third->process);
    assert_true(is_known(without, "q"));
    weir_close(third);
    weir_close(without);
}

/* ---- The child's copy of its parent's thread ---- */

static int status_of(pid_t pid)
{
    int status = STATUS_OF(pid);
    return status;
}

static void a_child_s_thread_ends_and_the_parent_s_stripe_stays(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip();
#endif
    struct weir *weir = open_table(WEIR_TABLE_MAY_RUN);
    uint32_t stripe = weir_stripe_mine(weir);
    fflush(NULL);
    pid_t pid = fork();
    assert_compare(pid, >=, 0);
    if (pid == 0) {
        patience_be_child();
        pthread_exit(NULL); /* ends without any call of the library */
    }
    assert_int_equal(status_of(pid), 0);
    uint32_t other = weir_table_claim_stripe_as(weir->table, weir->process);
    assert_int_not_equal(other, stripe);
    weir_table_release_stripe(weir->table, other);
    weir_close(weir);
}

static void *call_first(void *context)
{
    (void)weir_stripe_mine(context);
    return NULL;
}

static int call_second(struct weir *weir, uint32_t parents)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, call_first, weir) != 0)
        return 1;
    PATIENTLY(pthread_join(thread, NULL));
    return weir_stripe_mine(weir) == parents ? 2 : 0;
}

static void a_child_s_second_caller_has_a_stripe_of_its_own(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip();
#endif
    /* Of a process with a limiter, and of one without. */
    static const enum weir_table_role roles[] = { WEIR_TABLE_MAY_RUN,
                                                  WEIR_TABLE_DECIDES };
    for (size_t i = 0; i < 2; i++) {
        struct weir *weir = open_table(roles[i]);
        uint32_t stripe = weir_stripe_mine(weir);
        pid_t pid = fork();
        assert_compare(pid, >=, 0);
        if (pid == 0) {
            patience_be_child();
            _exit(call_second(weir, stripe));
        }
        assert_int_equal(status_of(pid), 0);
        assert_int_equal(weir_stripe_mine(weir), stripe);
        weir_close(weir);
    }
}

/* ---- No room ---- */

static int without_place(struct weir *weir, struct weir_handle q)
{
    struct weir_reply reply;
    struct weir_permit permit;
    if (weir_take(q, 1, &reply, 0) != WEIR_PASSED || !reply.unknown)
        return 1;
    if (weir_take_by_name(weir, "limited", 7, 1000000, &reply, 0) !=
            WEIR_PASSED ||
        !reply.unknown)
        return 2;
    if (weir_enter_by_name(weir, "db", 2, 0, 1, &permit, NULL, 0) !=
        WEIR_PASSED)
        return 3;
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    if (weir_handle_open(weir, "limited", 7, &q) < 0)
        return 4;
    weir_handle_close(q);
    weir_close(weir);
    return 0;
}

static void a_child_without_a_place_touches_nothing(void **state)
{
    (void)state;
#ifdef WORLD_SANITIZED
    skip();
#endif
    struct weir *weir = open_table(WEIR_TABLE_MAY_RUN);
    struct weir_block *block = weir->block;
    struct weir_handle q = handle_open(weir, "q");
    assert_int_equal(weir_ready(weir, GUARD), 0);
    uint64_t count = count_of(weir, "q");
    for (uint32_t i = 1; i < WEIR_BLOCK_LAST; i++)
        weir_store(&block->member[i], weir_load(&block->member[weir->process]));
    pid_t pid = fork();
    assert_compare(pid, >=, 0);
    if (pid == 0) {
        patience_be_child();
        _exit(without_place(weir, q));
    }
    assert_int_equal(status_of(pid), 0);
    assert_int_equal(count_of(weir, "q"), count);
    assert_int_equal(weir_load(&block->reporter), weir->process);
    for (uint32_t i = 1; i < WEIR_BLOCK_LAST; i++)
        if (i != weir->process)
            weir_store(&block->member[i], 0);
    weir_close(weir);
}

/* ---- Watching ---- */

static void one_of_all_looks_who_has_died(void **state)
{
    (void)state;
    static struct weir_block block;
    weir_instant now = world_now();
    for (int turn = 0; turn < 3; turn++) {
        assert_true(weir_block_is_due(&block, now));
        for (int other = 0; other < WEIR_PROCESSES_MAX; other++)
            assert_false(weir_block_is_due(&block, now));
        now += WEIR_BLOCK_LOOK_EVERY; /* as a process that is alone does */
    }
    /* The instant is another clock's, or was never set. */
    weir_store(&block.look_at, WEIR_NEVER);
    assert_true(weir_block_is_due(&block, now));
}

/* Whether the watcher's thread has begun by then or not. */
static void who_syncs_at_once_is_heard(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct weir *weir = open_table(WEIR_TABLE_RUNS);
        assert_int_equal(weir_ready(weir, GUARD), 0);
        assert_int_equal(weir_sync(weir, GUARD), 0);
        weir_close(weir);
    }
}

static void who_cannot_run_it_does_not_wake_the_others(void **state)
{
    (void)state;
    struct weir *holder = open_table(WEIR_TABLE_RUNS);
    struct weir *one = open_table(WEIR_TABLE_MAY_RUN);
    struct weir *other = open_table(WEIR_TABLE_MAY_RUN);
    struct weir_block *block = one->block;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){ 0, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    uint32_t changes = weir_load(&block->changes);
    weir_instant begun = world_now();
    weir_close(holder);
    /* The reporter has left, and one of the others has tried and failed. */
    UNTIL(weir_load(&block->changes) - changes >= 2);
    for (int i = 0; i < 200; i++)
        world_pause();
    changes = weir_load(&block->changes) - changes;
    weir_duration took = world_now() - begun;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    /* Each tries once a second: taking and quitting are two changes, and the
     * reporter left. */
    uint64_t most = 2 * 2 * (took / WEIR_SECOND + 1) + 1;
    printf("%u changes in %.3f s\n", changes, (double)took / WEIR_SECOND);
    if (changes > most)
        fail_msg("%u changes in %.3f s while no process can run it", changes,
                 (double)took / WEIR_SECOND);
    assert_int_equal(weir_ready(other, GUARD), 0);
    weir_close(one);
    weir_close(other);
}

#define STORY(story) \
    cmocka_unit_test_setup_teardown(story, begin_table, end_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(a_table_is_refused_with_a_sentence),
        STORY(the_last_number_s_lock_is_reaped_as_well),
        STORY(memory_of_the_callers_is_a_table_as_well),
        STORY(the_reporter_goes_on_when_its_holder_is_killed),
        STORY(a_stopped_process_does_no_harm),
        STORY(all_places_are_taken),
        STORY(other_sharings_on_a_shared_table),
        STORY(a_newcomer_s_roots_rule_when_nobody_runs),
        STORY(who_has_roots_runs_it),
        STORY(a_child_of_fork_is_one_more_process),
        STORY(a_child_s_thread_ends_and_the_parent_s_stripe_stays),
        STORY(a_child_s_second_caller_has_a_stripe_of_its_own),
        STORY(a_child_without_a_place_touches_nothing),
        STORY(one_of_all_looks_who_has_died),
        STORY(who_syncs_at_once_is_heard),
        STORY(who_cannot_run_it_does_not_wake_the_others),
        STORY(any_process_may_be_killed),
    };
    return cmocka_run_group_tests_name("client_shared", tests, begin, end);
}
