/* SPDX-License-Identifier: MIT
 * test_exact_fleet.c - the store or root that decides a fleet's exact quota
 * dies. Eight processes with libweir take as much as they can; in the middle
 * the decider is killed; then it comes back.
 *
 *     |<- first ->|<----- away ----->|<----- again ----->|
 *    go         killed    back: it answers connections   end
 *
 * Each span lasts until its event has happened in all processes (and with
 * WEIR_SECONDS half of that longer). At any speed of the machine this holds: in
 * each of these spans no window passes more than the limit by the processes
 * that were answered; nor do all that weren't (on_stale: share) pass more than
 * it together (but for the addition by a root's return, see struct victim). A
 * root that comes back has lost its state, so its window may be passed twice.
 * With two roots the other one decides meanwhile, on a bucket state of its own.
 *
 * How long decisions took and when the first one was answered again is printed:
 * a busy machine makes both longer. */

#include "client_world.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <weir/exact.h>

#include "core/base/atomic.h"
#include "core/counted/tally.h"
#include "io/clock.h"
#include "libweir/libweir_internal.h"
#include "shared_server.h"

#define PROCESSES 8
#define LIMIT 200u /* units a second */
#define LONGEST 500

enum span { BEFORE, FIRST, AWAY, AGAIN, OVER };

/* One process's report to the test; shared memory. */
struct told {
    uint32_t is_ready, went_by, is_back; /* atomic; went_by: in AWAY it was
                                          * answered by on_stale, or by the
                                          * other decider */
    uint64_t asked;
    uint64_t exact, stale; /* units that passed; atomic */
    weir_instant back_at;
    weir_duration longest[LONGEST]; /* the longest first */
};
struct stage {
    uint32_t span;   /* atomic */
    uint32_t beside; /* another root decides in AWAY */
    uint32_t roots;
    struct told told[PROCESSES];
};

static struct root roots[2];
static struct shared_server server;
static struct stage *stage;

static weir_instant wall_now(void)
{
    return weir_clock_now() + weir_clock_wall_offset();
}

static unsigned seconds_wanted(void)
{
    const char *said = getenv("WEIR_SECONDS");
    return said ? (unsigned)strtoul(said, NULL, 10) : 0;
}

static void rest(weir_duration span)
{
    struct timespec pause = { .tv_sec = (time_t)(span / WEIR_SECOND),
                              .tv_nsec = (long)(span % WEIR_SECOND) };
    while (nanosleep(&pause, &pause) < 0 && errno == EINTR)
        ;
}

/* ---- A process ---- */

static void note(struct told *told, weir_duration took)
{
    size_t i = LONGEST;
    while (i > 0 && told->longest[i - 1] < took)
        i--;
    if (i == LONGEST)
        return;
    memmove(&told->longest[i + 1], &told->longest[i],
            (LONGEST - i - 1) * sizeof(took));
    told->longest[i] = took;
}

static void take_one(struct weir_handle handle, struct told *told)
{
    struct weir_reply reply;
    uint32_t span = weir_load(&stage->span); /* in which the request was made */
    weir_instant before = weir_clock_now();
    bool passed = weir_take(handle, 1, &reply, 0) == WEIR_PASSED;
    weir_instant after = weir_clock_now();
    note(told, after - before);
    told->asked++;
    if (passed)
        weir_fetch_add(reply.stale ? &told->stale : &told->exact, 1u);
    /* A caller that is refused at once would otherwise only spin. */
    if (reply.stale)
        rest(WEIR_MILLISECOND / 10);
    if (span == AWAY && reply.stale != stage->beside)
        weir_store(&told->went_by, 1u);
    if (reply.stale || span != AGAIN || weir_load(&told->is_back))
        return;
    told->back_at = after;
    weir_store(&told->is_back, 1u);
}

static bool knows_roots(struct weir *weir)
{
    return limiter_status(weir).roots_up == stage->roots;
}

static void be_a_process(const char *address, struct told *told)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_reply reply;
    struct weir *weir;
    options.roots = address;
    options.exact = weir_exact();
    if (weir_open(&options, &weir) < 0 || weir_ready(weir, GUARD) < 0)
        _exit(1);
    struct weir_handle handle = handle_open(weir, "fleet");
    /* Until its store has answered, and the roots have sent the number of
     * limiters. */
    UNTIL(knows_roots(weir));
    UNTIL(weir_load_relaxed(&weir->fleet) == PROCESSES);
    UNTIL(weir_peek(handle, 1, &reply, 0) == WEIR_PASSED && !reply.stale);
    weir_store(&told->is_ready, 1u);
    UNTIL(weir_load(&stage->span) != BEFORE);
    while (weir_load(&stage->span) != OVER)
        take_one(handle, told);
    weir_close(weir);
    _exit(0);
}

static bool all(size_t offset)
{
    for (int i = 0; i < PROCESSES; i++) {
        if (!weir_load((uint32_t *)((char *)&stage->told[i] + offset)))
            return false;
    }
    return true;
}

/* ---- The story ---- */

static struct told sum(void)
{
    struct told out = { .asked = 0 };
    for (int i = 0; i < PROCESSES; i++) {
        const struct told *told = &stage->told[i];
        out.asked += told->asked;
        out.exact += told->exact;
        out.stale += told->stale;
        if (told->back_at > out.back_at)
            out.back_at = told->back_at;
        for (size_t k = 0; k < LONGEST; k++)
            note(&out, told->longest[k]);
    }
    return out;
}

static uint64_t exact_units(void)
{
    uint64_t units = 0;
    for (int i = 0; i < PROCESSES; i++)
        units += weir_load(&stage->told[i].exact);
    return units;
}

static uint64_t windows(weir_instant from, weir_instant to)
{
    return to / WEIR_SECOND - from / WEIR_SECOND + 1;
}

static void print(const char *what, const struct told *told, uint64_t most,
                  uint64_t stale_most, weir_instant back)
{
    size_t rank = (size_t)(told->asked / 1000);
    print_message(
        "  %s: asked %llu; passed %llu, at most %llu; by on_stale "
        "%llu, at most %llu\n  decisions p99.9 %.2f ms, longest "
        "%.2f ms; the last process was answered again %.0f ms after "
        "the return\n",
        what, (unsigned long long)told->asked, (unsigned long long)told->exact,
        (unsigned long long)most, (unsigned long long)told->stale,
        (unsigned long long)stale_most,
        (double)told->longest[rank < LONGEST ? rank : LONGEST - 1] / 1e6,
        (double)told->longest[0] / 1e6,
        (double)(int64_t)(told->back_at - back) / 1e6);
}

struct victim {
    const char *name;
    void (*kill)(void);
    void (*start)(void);
    bool beside; /* another root decides while it is away */
    bool root;   /* it sends each limiter the number of limiters: a small one
                  * while it has met few, so a limiter with a late request takes
                  * too large a share. A limiter that receives a larger number
                  * uses it after WEIR_FLEET_HOLD only; the i-th that it meets
                  * gets i, so all of them take 1 + 1/2 + ... + 1/8 limits, less
                  * than three */
};

static void start_processes(const char *address, bool beside, pid_t *pids)
{
    stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(stage, MAP_FAILED);
    stage->roots = strchr(address, ',') ? 2 : 1;
    stage->beside = beside;
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_a_process(address, &stage->told[i]);
    }
    UNTIL(all(offsetof(struct told, is_ready)));
}

static void end_processes(const pid_t *pids)
{
    weir_store(&stage->span, OVER);
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(STATUS_OF(pids[i]), 0);
}

static void run(const struct victim *victim, const char *address)
{
    pid_t pids[PROCESSES];
    start_processes(address, victim->beside, pids);
    weir_duration part = seconds_wanted() * WEIR_SECOND / 2;
    weir_instant go = wall_now();
    weir_store(&stage->span, FIRST);
    UNTIL(exact_units() > LIMIT); /* so a window has ended */
    rest(part);
    victim->kill();
    weir_instant killed = wall_now();
    weir_store(&stage->span, AWAY);
    UNTIL(all(offsetof(struct told, went_by)));
    rest(part);
    weir_instant returns = wall_now();
    victim->start();
    weir_instant back = weir_clock_now();
    weir_store(&stage->span, AGAIN);
    UNTIL(all(offsetof(struct told, is_back)));
    uint64_t units = exact_units();
    UNTIL(exact_units() > units);
    rest(part);
    end_processes(pids);
    weir_instant end = wall_now();

    struct told told = sum();
    uint64_t most = LIMIT * (windows(go, killed) + windows(returns, end));
    if (victim->beside)
        most += LIMIT * windows(killed, end);
    uint64_t stale_most = LIMIT * windows(go, end);
    if (victim->root && end - killed >= WEIR_FLEET_HOLD)
        stale_most *= 3;
    print(victim->name, &told, most, stale_most, back);
    assert_in_range(told.exact, LIMIT + 1, most);
    assert_in_range(told.stale, 0, stale_most);
    munmap(stage, sizeof(*stage));
}

static void put(const char *store)
{
    char fields[300];
    snprintf(fields, sizeof(fields),
             "{\"sharing\":\"exact\",\"store\":\"%s\",\"on_stale\":\"share\","
             "\"deadline\":\"10s\",\"algorithm\":\"fixed_window\","
             "\"limit\":\"%u/s\"}",
             store, LIMIT);
    root_set(&roots[0], "fleet", fields);
}

/* ---- The victims ---- */

static struct root *decides;

static void kill_root(void)
{
    root_kill(decides, SIGKILL);
}

static void start_root(void)
{
    root_start(decides);
}

static void kill_server(void)
{
    shared_server_kill(&server);
}

static void start_server(void)
{
    assert_true(shared_server_start(&server));
}

static void test_a_root_that_is_killed(void **state)
{
    (void)state;
    const struct victim root = {
        .name = "root", .kill = kill_root, .start = start_root, .root = true
    };
    root_make(&roots[0]);
    put("root");
    decides = &roots[0];
    run(&root, roots[0].address);
    root_free(&roots[0]);
}

static void kill_who_decides(void)
{
    uint64_t asked[2];
    for (int i = 0; i < 2; i++)
        asked[i] = root_metric(&roots[i], "weir_exact_requests_total");
    /* All ask the same root. */
    assert_true((asked[0] == 0) != (asked[1] == 0));
    decides = &roots[asked[0] == 0];
    kill_root();
}

static void test_one_of_two_roots_is_killed(void **state)
{
    (void)state;
    const struct victim root = { .name = "one of two roots",
                                 .kill = kill_who_decides,
                                 .start = start_root,
                                 .beside = true,
                                 .root = true };
    char both[80];
    root_make(&roots[0]);
    root_make_beside(&roots[1], &roots[0]);
    put("root");
    snprintf(both, sizeof(both), "%s,%s", roots[0].address, roots[1].address);
    run(&root, both);
    root_free(&roots[1]);
    root_free(&roots[0]);
}

static void run_store(enum shared_server_kind kind, const char *name)
{
    const struct victim store = { .name = name,
                                  .kill = kill_server,
                                  .start = start_server };
    server = (struct shared_server){ .kind = kind };
    if (!shared_server_start(&server)) {
        print_message("  no %s here\n", name);
        skip();
    }
    root_make(&roots[0]);
    put(server.uri);
    run(&store, roots[0].address);
    shared_server_kill(&server);
    root_free(&roots[0]);
}

static void test_a_redis_that_is_killed(void **state)
{
    (void)state;
    run_store(SHARED_SERVER_REDIS, "redis");
}

static void test_a_memcached_that_is_killed(void **state)
{
    (void)state;
    run_store(SHARED_SERVER_MEMCACHED, "memcached");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_root_that_is_killed),
        cmocka_unit_test(test_one_of_two_roots_is_killed),
        cmocka_unit_test(test_a_redis_that_is_killed),
        cmocka_unit_test(test_a_memcached_that_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
