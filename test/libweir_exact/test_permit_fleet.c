/* SPDX-License-Identifier: MIT
 * test_permit_fleet.c - eight processes with libweir share a limit on units in
 * flight, by a real Redis, a real memcached and a root (sharing: exact), and by
 * a root's grants (sharing: leased).
 *
 * Race: all enter and leave as fast as they can. A process with a permit adds
 * its weight to a shared word, and subtracts it before it leaves. So the word
 * is never more than the units in flight, and at no instant may it exceed the
 * limit, wherever a process is stopped.
 *
 * Death: for each store a process that holds most of the limit is killed, all
 * at the same time. Its units can't be had before its permit_timeout is over;
 * then all of them can.
 *
 * With leases there are more processes than units, and no process waits for
 * ever. */

#include "client_world.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weir/exact.h>

#include "compare.h"
#include "core/base/atomic.h"
#include "shared_server.h"

#define PROCESSES 8
#define LIMIT 5u
#define ROUNDS 200u /* per process; WEIR_ROUNDS overrides */

/* The means of sharing. */
enum means { BY_REDIS, BY_MEMCACHED, BY_ROOT, BY_LEASES, MEANS };

/* Shared memory of all processes. */
struct stage {
    uint32_t ready, go; /* atomic */
    uint64_t flying, worst;
    uint64_t passed_by[PROCESSES];
    uint64_t passed, refused, unsure; /* unsure: verdict isn't known */
    uint32_t is_held[MEANS];          /* atomic: the victim has its permit */
    weir_instant entered_at[MEANS];
};

static struct root root;
static struct shared_server redis = { .kind = SHARED_SERVER_REDIS };
static struct shared_server memcached = { .kind = SHARED_SERVER_MEMCACHED };
static struct stage *stage;

static bool is_there(enum means means)
{
    return means == BY_REDIS       ? redis.pid != 0
           : means == BY_MEMCACHED ? memcached.pid != 0
                                   : true;
}

static unsigned rounds_wanted(void)
{
    const char *said = getenv("WEIR_ROUNDS");
    return said ? (unsigned)strtoul(said, NULL, 10) : ROUNDS;
}

static int begin(void **state)
{
    (void)state;
    stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    root_make(&root);
    (void)shared_server_start(&redis);
    (void)shared_server_start(&memcached);
    return stage == MAP_FAILED;
}

static int end(void **state)
{
    (void)state;
    root_free(&root);
    shared_server_kill(&redis);
    shared_server_kill(&memcached);
    munmap(stage, sizeof(*stage));
    return 0;
}

/* A permit of the race is held for a moment only. But if a machine stops a
 * process meanwhile, its permit must not end. */
#define LONG "10min"
#define SHORT "1500ms"
#define SHORT_NS (1500 * WEIR_MILLISECOND)

static void set_quota(const char *name, const char *store, const char *timeout)
{
    char fields[256];
    snprintf(fields, sizeof(fields),
             "{\"kind\":\"concurrency\",\"sharing\":\"exact\",\"limit\":\"%u\","
             "\"store\":\"%s\",\"permit_timeout\":\"%s\",\"deadline\":\"1min\","
             "\"on_stale\":\"limit\"}",
             LIMIT, store, timeout);
    root_set(&root, name, fields);
}

static void set_leased(const char *name, const char *lease, const char *timeout)
{
    char fields[256];
    snprintf(fields, sizeof(fields),
             "{\"kind\":\"concurrency\",\"sharing\":\"leased\","
             "\"limit\":\"%u\",\"lease\":\"%s\",\"refresh\":\"200ms\","
             "\"permit_timeout\":\"%s\","
             "\"on_stale\":\"limit\"}",
             LIMIT, lease, timeout);
    root_set(&root, name, fields);
}

static struct weir *open_one(void)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir *weir;
    options.roots = root.address;
    options.exact = weir_exact();
    if (weir_open(&options, &weir) < 0 || weir_ready(weir, GUARD) < 0)
        _exit(1);
    return weir;
}

/* Its store has answered. */
static bool is_met(struct weir_handle handle)
{
    struct weir_reply reply;
    weir_peek(handle, 0, &reply, 0);
    return (reply.exact || reply.leased) && !reply.stale;
}

/* ---- Race ---- */

static void fly(uint64_t weight)
{
    uint64_t now = weir_fetch_add(&stage->flying, weight) + weight;
    uint64_t worst = weir_load(&stage->worst);
    while (now > worst && !weir_cas(&stage->worst, &worst, now))
        continue;
    sched_yield();
    weir_fetch_sub(&stage->flying, weight);
}

static bool had_all_a_turn(void)
{
    for (unsigned i = 0; i < PROCESSES; i++) {
        if (weir_load(&stage->passed_by[i]) == 0)
            return false;
    }
    return true;
}

static void race_one(struct weir_handle handle, uint64_t weight,
                     unsigned number)
{
    struct weir_permit permit;
    struct weir_reply reply;
    if (weir_enter(handle, 0, weight, &permit, &reply, 0) == WEIR_PASSED) {
        weir_fetch_add(&stage->passed, 1);
        weir_fetch_add(&stage->passed_by[number], 1);
        fly(weight);
    } else {
        weir_fetch_add(&stage->refused, 1);
    }
    if (reply.stale)
        weir_fetch_add(&stage->unsure, 1);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
}

/* Until each has had a turn. */
static void race_by_leases(const char *name, unsigned number)
{
    struct weir *weir = open_one();
    struct weir_handle handle = handle_open(weir, name);
    weir_fetch_add(&stage->ready, 1u);
    UNTIL(weir_load(&stage->go));
    UNTIL((race_one(handle, 1, number),
           weir_load(&stage->passed_by[number]) > 0 && had_all_a_turn()));
    weir_close(weir);
    _exit(0);
}

static void race(const char *name, unsigned number)
{
    struct weir *weir = open_one();
    struct weir_handle handle = handle_open(weir, name);
    UNTIL(is_met(handle));
    weir_fetch_add(&stage->ready, 1u);
    UNTIL(weir_load(&stage->go));
    for (unsigned i = rounds_wanted(); i > 0; i--)
        race_one(handle, 1 + (i + number) % 3, number);
    weir_close(weir);
    _exit(0);
}

static pid_t be_child(void)
{
    pid_t child = fork();
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    assert_compare(child, >=, 0);
    return child;
}

static void check_race(const char *name,
                       void (*run)(const char *name, unsigned number))
{
    pid_t child[PROCESSES];
    memset(stage, 0, sizeof(*stage));
    for (unsigned i = 0; i < PROCESSES; i++) {
        child[i] = be_child();
        if (child[i] == 0)
            run(name, i);
    }
    UNTIL(weir_load(&stage->ready) == PROCESSES);
    weir_store(&stage->go, 1u);
    for (unsigned i = 0; i < PROCESSES; i++)
        assert_int_equal(STATUS_OF(child[i]), 0);
    print_message("%s: %llu passed, %llu refused, %llu unsure, at most %llu "
                  "of %u in flight\n",
                  name, (unsigned long long)stage->passed,
                  (unsigned long long)stage->refused,
                  (unsigned long long)stage->unsure,
                  (unsigned long long)stage->worst, LIMIT);
    assert_in_range(stage->worst, 1, LIMIT);
    assert_int_equal(stage->flying, 0);
    assert_compare(stage->passed, >, 0);
    /* And no unit is left behind. */
    struct weir *weir = open_one();
    struct weir_handle handle = handle_open(weir, name);
    struct weir_permit all;
    assert_int_equal(weir_want(handle, LIMIT, 0), 0);
    UNTIL(weir_enter(handle, 0, LIMIT, &all, NULL, 0) == WEIR_PASSED);
    weir_leave(&all, WEIR_PERMIT_SUCCESS, 0);
    weir_close(weir);
}

/* ---- Death ---- */

static const char *const dead[MEANS] = { "redis/dead", "memcached/dead",
                                         "root/dead", "leased/dead" };

static void hold_and_wait(enum means means)
{
    /* The process that leases is the first: a root that knows other holders
     * would first have to hear from all of them. */
    UNTIL(weir_load(&stage->go));
    UNTIL(means == BY_LEASES || weir_load(&stage->is_held[BY_LEASES]));
    struct weir *weir = open_one();
    struct weir_handle handle = handle_open(weir, dead[means]);
    struct weir_permit permit;
    UNTIL(is_met(handle));
    if (weir_want(handle, LIMIT - 1, 0) != 0)
        _exit(1);
    UNTIL((stage->entered_at[means] = world_now(),
           weir_enter(handle, 0, LIMIT - 1, &permit, NULL, 0) == WEIR_PASSED));
    weir_store(&stage->is_held[means], 1u);
    for (;;)
        pause();
}

/* The observations of a surviving limiter about one death. */
struct survivor {
    struct weir_handle handle;
    struct weir_permit permit, rest;
    bool has_one, has_rest;
    weir_duration after;
};

/* First one unit, the one that the dead process did not hold; then the
 * others. */
static void try_enter(struct survivor *survivor, enum means means)
{
    if (!survivor->has_one)
        survivor->has_one =
            weir_enter(survivor->handle, 0, 1, &survivor->permit, NULL, 0) ==
            WEIR_PASSED;
    if (!survivor->has_one || survivor->has_rest)
        return;
    survivor->has_rest = weir_enter(survivor->handle, 0, LIMIT - 1,
                                    &survivor->rest, NULL, 0) == WEIR_PASSED;
    survivor->after = world_now() - stage->entered_at[means];
}

static bool have_all(struct survivor *survivor)
{
    bool all = true;
    for (enum means i = 0; i < MEANS; i++) {
        if (!is_there(i))
            continue;
        try_enter(&survivor[i], i);
        all = all && survivor[i].has_rest;
    }
    return all;
}

static bool are_held(void)
{
    bool all = true;
    for (enum means i = 0; i < MEANS; i++)
        all = all && (!is_there(i) || weir_load(&stage->is_held[i]));
    return all;
}

static void kill_holder(pid_t child)
{
    kill(child, SIGKILL);
    (void)STATUS_OF(child);
}

static void test_deaths(void **state)
{
    (void)state;
    struct survivor survivor[MEANS] = { { .has_one = false } };
    pid_t child[MEANS];
    memset(stage, 0, sizeof(*stage));
    set_quota(dead[BY_ROOT], "root", SHORT);
    set_leased(dead[BY_LEASES], "2s", SHORT);
    if (is_there(BY_REDIS))
        set_quota(dead[BY_REDIS], redis.uri, SHORT);
    if (is_there(BY_MEMCACHED))
        set_quota(dead[BY_MEMCACHED], memcached.uri, SHORT);
    /* Before there is a thread: a sanitizer's lock that a thread holds just
     * then would stay locked in the child. */
    for (enum means i = 0; i < MEANS; i++) {
        child[i] = is_there(i) ? be_child() : 0;
        if (is_there(i) && child[i] == 0)
            hold_and_wait(i);
    }
    struct weir *weir = open_one();
    for (enum means i = 0; i < MEANS; i++) {
        survivor[i].handle = handle_open(weir, dead[i]);
        UNTIL(!is_there(i) || is_met(survivor[i].handle));
    }
    weir_store(&stage->go, 1u);
    UNTIL(are_held());
    for (enum means i = 0; i < MEANS; i++) {
        if (!is_there(i))
            continue;
        kill_holder(child[i]);
        assert_int_equal(weir_want(survivor[i].handle, LIMIT, 0), 0);
    }
    UNTIL(have_all(survivor));
    for (enum means i = 0; i < MEANS; i++) {
        print_message("%s: had after %.2f s of %.2f s\n", dead[i],
                      (double)survivor[i].after / 1e9, (double)SHORT_NS / 1e9);
        /* A store's clock may be slewed, by one in a thousand. */
        if (is_there(i))
            assert_compare(survivor[i].after, >=, SHORT_NS - SHORT_NS / 1000);
        weir_leave(&survivor[i].rest, WEIR_PERMIT_SUCCESS, 0);
        weir_leave(&survivor[i].permit, WEIR_PERMIT_SUCCESS, 0);
    }
    weir_close(weir);
}

/* ---- Races ---- */

static void test_a_race_by_redis(void **state)
{
    (void)state;
    if (!is_there(BY_REDIS))
        skip();
    set_quota("redis", redis.uri, LONG);
    check_race("redis", race);
}

static void test_a_race_by_memcached(void **state)
{
    (void)state;
    if (!is_there(BY_MEMCACHED))
        skip();
    set_quota("memcached", memcached.uri, LONG);
    check_race("memcached", race);
}

static void test_a_race_by_a_root(void **state)
{
    (void)state;
    set_quota("root", "root", LONG);
    check_race("root", race);
}

static void test_a_race_by_leases(void **state)
{
    (void)state;
    set_leased("leased", LONG, LONG);
    check_race("leased", race_by_leases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_race_by_redis),
        cmocka_unit_test(test_a_race_by_memcached),
        cmocka_unit_test(test_a_race_by_a_root),
        cmocka_unit_test(test_a_race_by_leases),
        cmocka_unit_test(test_deaths),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
