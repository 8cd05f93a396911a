/* SPDX-License-Identifier: MIT
 * test_permit_fleet.c - eight processes with libweir share what may be in
 * flight, by a real Redis, a real memcached and a root (sharing: exact), and
 * by what a root grants them (sharing: leased).
 *
 * Race: all enter and leave as fast as they can. Who has a permit adds its
 * weight to a word that all share, and takes it away before he leaves; so that
 * word is never more than what permits hold, and at no instant may it be above
 * the limit, whoever is stopped where.
 *
 * Death: one that holds most of it is killed. The rest can't be had before its
 * permit_timeout is over, and then all of it can.
 *
 * With leases, there are more processes than units, and none waits for ever. */

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

#include "base/atomic.h"
#include "shared_server.h"

#define PROCESSES 8
#define LIMIT 5u
#define ROUNDS 400u /* a process */

/* Memory that all share. */
struct stage {
    uint32_t ready, go; /* atomic */
    uint64_t flying, worst;
    uint64_t passed_by[PROCESSES];
    uint64_t passed, refused, unsure; /* unsure: its store didn't say it */
    weir_instant entered_at;
};

static struct root root;
static struct shared_server redis = { .kind = SHARED_SERVER_REDIS };
static struct shared_server memcached = { .kind = SHARED_SERVER_MEMCACHED };
static struct stage *stage;

static int begin(void **state)
{
    (void)state;
    stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    root_make(&root);
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

static void set_quota(const char *name, const char *store, const char *timeout)
{
    char fields[256];
    snprintf(fields, sizeof(fields),
             "{\"kind\":\"concurrency\",\"sharing\":\"exact\",\"limit\":\"%u\","
             "\"store\":\"%s\",\"permit_timeout\":\"%s\",\"deadline\":\"10s\","
             "\"on_stale\":\"closed\"}",
             LIMIT, store, timeout);
    root_set(&root, name, fields);
}

static struct weir *open_one(void)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir *weir;
    options.roots = root.address;
    options.quotas_max = 1024;
    options.exact = weir_exact();
    if (weir_open(&options, &weir) < 0 || weir_ready(weir, GUARD) < 0)
        _exit(1);
    return weir;
}

/* Its store has been met. */
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
    if (weir_enter(handle, 0, weight, &permit, &reply, 0) == WEIR_PASS) {
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
    for (unsigned i = 0; i < ROUNDS; i++)
        race_one(handle, 1 + (i + number) % 3, number);
    weir_close(weir);
    _exit(0);
}

static pid_t be_child(void)
{
    pid_t child = fork();
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    assert_true(child >= 0);
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
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status = -1;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    print_message("%s: %llu passed, %llu refused, %llu unsure, at most %llu "
                  "of %u in flight\n",
                  name, (unsigned long long)stage->passed,
                  (unsigned long long)stage->refused,
                  (unsigned long long)stage->unsure,
                  (unsigned long long)stage->worst, LIMIT);
    assert_true(stage->worst <= LIMIT && stage->flying == 0);
    assert_true(stage->passed > 0);
    /* And nothing stays behind. */
    struct weir *weir = open_one();
    struct weir_handle handle = handle_open(weir, name);
    struct weir_permit all;
    assert_int_equal(weir_want(handle, LIMIT, 0), 0);
    UNTIL(weir_enter(handle, 0, LIMIT, &all, NULL, 0) == WEIR_PASS);
    weir_leave(&all, WEIR_PERMIT_SUCCESS, 0);
    weir_close(weir);
}

/* ---- Death ---- */

#define TIMEOUT (1500 * WEIR_MILLISECOND)

static void hold_and_wait(const char *name)
{
    UNTIL(weir_load(&stage->go));
    struct weir *weir = open_one();
    struct weir_handle handle = handle_open(weir, name);
    struct weir_permit permit;
    UNTIL(is_met(handle));
    assert_int_equal(weir_want(handle, LIMIT - 1, 0), 0);
    UNTIL((stage->entered_at = world_now(),
           weir_enter(handle, 0, LIMIT - 1, &permit, NULL, 0) == WEIR_PASS));
    weir_store(&stage->ready, 1u);
    for (;;)
        pause();
}

static void check_death(const char *name)
{
    memset(stage, 0, sizeof(*stage));
    /* Before there is a thread: one of a sanitizer's locks that it holds just
     * then would stay locked in the child. */
    pid_t child = be_child();
    if (child == 0)
        hold_and_wait(name);
    struct weir *weir = open_one();
    struct weir_handle handle = handle_open(weir, name);
    struct weir_permit permit, rest;
    struct weir_reply reply;
    UNTIL(is_met(handle));
    weir_store(&stage->go, 1u);
    UNTIL(weir_load(&stage->ready));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(weir_want(handle, LIMIT, 0), 0);
    UNTIL(weir_enter(handle, 0, 1, &permit, &reply, 0) == WEIR_PASS);
    UNTIL(weir_enter(handle, 0, LIMIT - 1, &rest, &reply, 0) == WEIR_PASS);
    weir_duration after = world_now() - stage->entered_at;
    print_message("%s: had after %.2f s of %.2f s\n", name, (double)after / 1e9,
                  (double)TIMEOUT / 1e9);
    assert_true(after >= TIMEOUT);
    weir_leave(&rest, WEIR_PERMIT_SUCCESS, 0);
    weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
    weir_close(weir);
}

/* ---- By whom ---- */

static void test_by_redis(void **state)
{
    (void)state;
    if (!shared_server_start(&redis))
        skip();
    set_quota("redis", redis.uri, "10s");
    set_quota("redis/dead", redis.uri, "1500ms");
    check_race("redis", race);
    check_death("redis/dead");
}

static void test_by_memcached(void **state)
{
    (void)state;
    if (!shared_server_start(&memcached))
        skip();
    set_quota("memcached", memcached.uri, "10s");
    set_quota("memcached/dead", memcached.uri, "1500ms");
    check_race("memcached", race);
    check_death("memcached/dead");
}

static void test_by_a_root(void **state)
{
    (void)state;
    set_quota("root", "root", "10s");
    set_quota("root/dead", "root", "1500ms");
    check_race("root", race);
    check_death("root/dead");
}

static void test_by_leases(void **state)
{
    (void)state;
    static const char fields[] =
        "{\"kind\":\"concurrency\",\"sharing\":\"leased\",\"limit\":\"5\","
        "\"lease\":\"2s\",\"refresh\":\"200ms\",\"permit_timeout\":\"1500ms\","
        "\"on_stale\":\"closed\"}";
    root_set(&root, "leased", fields);
    root_set(&root, "leased/dead", fields);
    check_race("leased", race_by_leases);
    check_death("leased/dead");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_redis),
        cmocka_unit_test(test_by_memcached),
        cmocka_unit_test(test_by_a_root),
        cmocka_unit_test(test_by_leases),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
