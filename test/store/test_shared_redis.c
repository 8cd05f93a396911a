/* SPDX-License-Identifier: MIT
 * test_shared_redis.c - shared counters in Redis: the suite, and cases of Redis
 * alone: scripts, passwords, databases. */

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "certificate_maker.h"
#include "compare.h"
#include "core/base/atomic.h"
#include "io/clock.h"
#include "patience.h"
#include "shared_rules.h"
#include "shared_suite.h"

#define PASSWORD "open-sesame"
#define PATIENCE (60 * WEIR_SECOND)
/* A fake's answer: passed, nothing is used. */
#define STEP_ANSWER "*7\r\n:1\r\n:0\r\n:0\r\n:0\r\n:9\r\n:0\r\n:0\r\n"

static const struct shared_under_test under_test = {
    .kind = SHARED_SERVER_REDIS,
    .fixed_least = 1,
    .huge = "+PONG\r\n$1000000000\r\n",
    .truncated = "+PO",
};

static struct shared_server server = { .kind = SHARED_SERVER_REDIS,
                                       .password = PASSWORD };

static int set_up(void **state)
{
    (void)state;
    return shared_server_start(&server) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    shared_server_kill(&server);
    return 0;
}

/* Writes a secrets file; returns its path. */
static const char *secrets_of(uint16_t port, const char *password, mode_t mode)
{
    static char path[64];
    strcpy(path, "/tmp/weir-secrets-XXXXXX");
    int fd = mkstemp(path);
    assert_compare(fd, >=, 0);
    dprintf(fd, "# who we are\n\nlocalhost:1 - other\n127.0.0.1:%u - %s\n",
            port, password);
    fchmod(fd, mode);
    close(fd);
    return path;
}

static const char *secrets(const char *password, mode_t mode)
{
    return secrets_of(server.port, password, mode);
}

static redisContext *connect_beside(void)
{
    redisContext *redis = redisConnect("127.0.0.1", server.port);
    assert_false(redis->err);
    freeReplyObject(redisCommand(redis, "AUTH %s", PASSWORD));
    return redis;
}

static void test_a_password(void **state)
{
    (void)state;
    const char *path = secrets(PASSWORD, 0600);
    struct weir_shared *shared = shared_open_at(server.uri, path);
    shared_await(shared);
    weir_shared_close(shared);
    unlink(path);
}

static void test_a_wrong_password(void **state)
{
    (void)state;
    const char *path = secrets("simsalabim", 0600);
    struct weir_shared *shared = shared_open_at(server.uri, path);
    shared_await_error(shared, "see the secrets file");
    struct weir_shared_status status;
    weir_shared_status(shared, &status);
    assert_null(strstr(status.last_error, "simsalabim"));
    weir_shared_close(shared);
    unlink(path);
}

static void test_no_password(void **state)
{
    (void)state;
    struct weir_shared *shared = shared_open_at(server.uri, NULL);
    shared_await_error(shared, "see the secrets file");
    weir_shared_close(shared);
}

static void test_a_secrets_file_that_others_may_read(void **state)
{
    (void)state;
    const char *path = secrets(PASSWORD, 0640);
    struct weir_shared *shared = shared_open_at(server.uri, path);
    shared_await_error(shared, "chmod 600");
    /* It is read at each connect, so an operator can correct it. */
    chmod(path, 0600);
    shared_await(shared);
    weir_shared_close(shared);
    unlink(path);
}

static void test_scripts_that_were_forgotten(void **state)
{
    (void)state;
    const char *path = secrets(PASSWORD, 0600);
    struct weir_shared *shared = shared_open_at(server.uri, path);
    redisContext *beside = connect_beside();
    struct weir_shared_status status;
    for (int i = WEIR_LEAKY; i <= WEIR_SLIDING_WINDOW; i++) {
        struct weir_algorithm_rule rule =
            shared_rule_of((enum weir_algorithm)i, 10, 86400 * WEIR_SECOND);
        struct weir_algorithm_answer answer;
        for (int k = 1; k <= 2; k++) {
            freeReplyObject(redisCommand(beside, "SCRIPT FLUSH"));
            assert_int_equal(shared_ask(shared, "forgotten", &rule,
                                        WEIR_ALGORITHM_CHARGE, 1, &answer),
                             0);
            assert_int_equal(answer.used, k);
        }
    }
    weir_shared_status(shared, &status);
    assert_int_equal(status.reloads, 2 * WEIR_SLIDING_WINDOW);
    redisFree(beside);
    weir_shared_close(shared);
    unlink(path);
}

/* A value of another type, or not of numbers: this bucket state's steps fail,
 * the next one's don't. */
static void test_a_key_that_is_taken(void **state)
{
    (void)state;
    const char *path = secrets(PASSWORD, 0600);
    struct weir_shared *shared = shared_open_at(server.uri, path);
    redisContext *beside = connect_beside();
    freeReplyObject(redisCommand(beside, "LPUSH weir:{taken}:leaky x"));
    freeReplyObject(redisCommand(beside, "SET weir:{odd}:leaky x"));
    struct weir_algorithm_rule rule =
        shared_rule_of(WEIR_LEAKY, 10, WEIR_SECOND);
    struct weir_algorithm_answer answer;
    const char *const names[] = { "taken", "odd" };
    for (size_t i = 0; i < WEIR_COUNT_OF(names); i++) {
        assert_int_equal(shared_ask(shared, names[i], &rule,
                                    WEIR_ALGORITHM_TAKE, 1, &answer),
                         WEIR_EPROTOCOL);
        assert_int_equal(
            shared_ask(shared, "free", &rule, WEIR_ALGORITHM_PEEK, 1, &answer),
            0);
    }
    redisFree(beside);
    weir_shared_close(shared);
    unlink(path);
}

static void test_a_database_of_its_own(void **state)
{
    (void)state;
    const char *path = secrets(PASSWORD, 0600);
    char uri[80];
    snprintf(uri, sizeof(uri), "%s/3", server.uri);
    struct weir_shared *third = shared_open_at(uri, path);
    struct weir_shared *first = shared_open_at(server.uri, path);
    struct weir_algorithm_rule rule =
        shared_rule_of(WEIR_LEAKY, 10, 86400 * WEIR_SECOND);
    struct weir_algorithm_answer answer;
    assert_int_equal(
        shared_ask(third, "db", &rule, WEIR_ALGORITHM_CHARGE, 5, &answer), 0);
    assert_int_equal(
        shared_ask(first, "db", &rule, WEIR_ALGORITHM_PEEK, 0, &answer), 0);
    assert_int_equal(answer.used, 0);
    snprintf(uri, sizeof(uri), "%s/999", server.uri);
    struct weir_shared *none = shared_open_at(uri, path);
    shared_await_error(none, "DB index");
    weir_shared_close(none);
    weir_shared_close(first);
    weir_shared_close(third);
    unlink(path);
}

/* ---- A cluster ---- */

static void await_cluster(redisContext *redis)
{
    for (int tries = 0; tries < 6000; tries++) {
        redisReply *reply = redisCommand(redis, "CLUSTER INFO");
        bool ok = reply && strstr(reply->str, "cluster_state:ok");
        freeReplyObject(reply);
        if (ok)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000 * 1000 }, NULL);
    }
    fail_msg("no cluster");
}

/* A server of a cluster refuses a command with keys of several hash slots, on
 * whichever server they are. So commands that it accepts work in a cluster of
 * many. */
static void test_a_cluster(void **state)
{
    (void)state;
    struct shared_server one = { .kind = SHARED_SERVER_REDIS, .cluster = true };
    assert_true(shared_server_start(&one));
    struct weir_shared *shared = shared_open_at(one.uri, NULL);
    shared_await_error(shared, "CLUSTERDOWN");

    redisContext *beside = redisConnect("127.0.0.1", one.port);
    for (int slot = 0; slot < 16384; slot++)
        redisAppendCommand(beside, "CLUSTER ADDSLOTS %d", slot);
    for (int slot = 0; slot < 16384; slot++) {
        void *reply = NULL;
        assert_int_equal(redisGetReply(beside, &reply), REDIS_OK);
        freeReplyObject(reply);
    }
    await_cluster(beside);
    shared_await(shared);
    const char *const names[] = { "plain", "}", "{}", "}{", "a}b{c", "%7D" };
    for (size_t i = 0; i < WEIR_COUNT_OF(names); i++)
        for (int k = WEIR_LEAKY; k <= WEIR_SLIDING_WINDOW; k++) {
            struct weir_algorithm_rule rule =
                shared_rule_of((enum weir_algorithm)k, 10, 86400 * WEIR_SECOND);
            struct weir_algorithm_answer answer;
            assert_int_equal(shared_ask(shared, names[i], &rule,
                                        WEIR_ALGORITHM_CHARGE, 3, &answer),
                             0);
            assert_int_equal(answer.used, 3);
        }
    redisFree(beside);
    weir_shared_close(shared);
    shared_server_kill(&one);
    char nodes[64];
    snprintf(nodes, sizeof(nodes), "/tmp/weir-nodes-%u.conf", one.port);
    unlink(nodes);
}

/* ---- A scripted server: it greets, then does as configured ---- */

struct fake {
    const char *answer;  /* to each step */
    const char *refusal; /* of AUTH; NULL: none comes */
    weir_duration delay; /* of each answer after the greeting */
    int fd;
    uint16_t port;
    pthread_t thread;
    uint32_t stop, answers; /* after the greetings */
};

static void pause_for(weir_duration time)
{
    nanosleep(&(struct timespec){ .tv_nsec = (long)time }, NULL);
}

/* The next command from 'at' on; NULL: none. */
static const char *next_command(const char *at, bool *out_ping)
{
    const char *ping = strstr(at, "\nPING\r"), *step = strstr(at, "\nEVAL");
    *out_ping = ping && (!step || ping < step);
    const char *found = *out_ping ? ping : step;
    return found ? found + 1 : NULL;
}

static void serve(struct fake *fake, int fd)
{
    char command[8192];
    for (bool greeted = false; !weir_load(&fake->stop); greeted = true) {
        ssize_t got = recv(fd, command, sizeof(command) - 1, 0);
        if (got <= 0)
            return;
        command[got] = '\0';
        if (fake->refusal) {
            (void)!send(fd, fake->refusal, strlen(fake->refusal), MSG_NOSIGNAL);
            return;
        }
        bool ping;
        const char *at = next_command(command, &ping);
        for (; at; at = next_command(at, &ping)) {
            if (greeted) {
                weir_fetch_add(&fake->answers, 1u);
                pause_for(fake->delay);
            }
            const char *answer = ping ? "+PONG\r\n" : fake->answer;
            (void)!send(fd, answer, strlen(answer), MSG_NOSIGNAL);
        }
    }
}

static void *be_a_fake(void *context)
{
    struct fake *fake = context;
    while (!weir_load(&fake->stop)) {
        struct pollfd readable = { .fd = fake->fd, .events = POLLIN };
        if (poll(&readable, 1, 20) <= 0)
            continue;
        int fd = accept(fake->fd, NULL, NULL);
        serve(fake, fd);
        close(fd);
    }
    return NULL;
}

static void fake_listen(struct fake *fake)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    fake->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fake->fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(fake->fd, 16), 0);
    getsockname(fake->fd, (struct sockaddr *)&at, &len);
    fake->port = ntohs(at.sin_port);
}

static struct weir_shared *fake_open(const struct fake *fake,
                                     const char *secrets_file)
{
    char uri[64];
    snprintf(uri, sizeof(uri), "redis://127.0.0.1:%u", fake->port);
    return shared_open_at(uri, secrets_file);
}

static struct weir_shared *fake_start(struct fake *fake, const char *answer,
                                      weir_duration delay)
{
    *fake = (struct fake){ .answer = answer, .delay = delay };
    fake_listen(fake);
    assert_int_equal(pthread_create(&fake->thread, NULL, be_a_fake, fake), 0);
    return fake_open(fake, NULL);
}

/* Closing the store ends its connection, which the fake waits for. */
static void fake_stop(struct fake *fake, struct weir_shared *shared)
{
    weir_store(&fake->stop, 1u);
    weir_shared_close(shared);
    PATIENTLY(pthread_join(fake->thread, NULL));
    close(fake->fd);
}

static void test_a_redirection_is_told(void **state)
{
    (void)state;
    struct fake fake;
    struct weir_shared *shared =
        fake_start(&fake, "-MOVED 3999 10.0.0.9:6379\r\n", 0);
    shared_await_error(shared, "aren't followed: MOVED 3999 10.0.0.9:6379");
    fake_stop(&fake, shared);
}

/* A server that isn't Redis echoes the command that it was sent. */
static void test_a_password_in_an_error(void **state)
{
    (void)state;
    struct fake fake = {
        .refusal = "-ERR unknown command 'AUTH', with args beginning with: "
                   "'" PASSWORD "' \r\n"
    };
    fake_listen(&fake);
    const char *path = secrets_of(fake.port, PASSWORD, 0600);
    assert_int_equal(pthread_create(&fake.thread, NULL, be_a_fake, &fake), 0);
    struct weir_shared *shared = fake_open(&fake, path);
    shared_await_error(shared, "ERR unknown command 'AUTH'");
    struct weir_shared_status status;
    weir_shared_status(shared, &status);
    assert_null(strstr(status.last_error, PASSWORD));
    fake_stop(&fake, shared);
    unlink(path);
}

/* Always later than the deadline. A step that is sent when the server seems to
 * be back uses up its deadline. Otherwise the server gets only PINGs: two per
 * probe, and some at the beginning. */
static void test_a_slow_server_is_asked_seldom(void **state)
{
    (void)state;
    struct fake fake;
    weir_instant start = weir_clock_now();
    struct weir_shared *shared =
        fake_start(&fake, ":1\r\n", 30 * WEIR_MILLISECOND);
    struct weir_algorithm_rule rule =
        shared_rule_of(WEIR_LEAKY, 10, WEIR_SECOND);
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 };
    struct weir_algorithm_answer answer;
    unsigned away = 0, steps = 0;
    /* For the time of some probes. */
    while (weir_clock_now() < start + 3 * WEIR_SHARED_PROBE || away < 100) {
        assert_compare(weir_clock_now(), <, start + PATIENCE);
        int result = weir_shared_step(shared, WEIR_TEXT("slow"), &rule, &ask,
                                      &answer, 10 * WEIR_MILLISECOND);
        assert_compare(result, <, 0);
        steps++;
        away += result == WEIR_ECONNECT;
        pause_for(WEIR_MILLISECOND);
    }
    unsigned asked = weir_load(&fake.answers);
    weir_duration took = weir_clock_now() - start;
    unsigned most = (unsigned)(2 * (took / (WEIR_SHARED_PROBE * 3 / 4)) + 5);
    print_message("  of %u steps %u were refused at once; it was asked %u "
                  "times\n",
                  steps, away, asked);
    assert_in_range(asked, 0, most);
    assert_in_range(steps - away, 0, most);
    fake_stop(&fake, shared);
}

/* One quota's deadline is shorter than any answer takes: only its own steps
 * fail, not those of other quotas. A round in which this machine was as slow as
 * a dead server proves nothing: it is repeated until some were quiet. */
static void test_a_short_deadline_is_its_quotas_own(void **state)
{
    (void)state;
    struct fake fake;
    struct weir_shared *shared =
        fake_start(&fake, STEP_ANSWER, 5 * WEIR_MILLISECOND);
    struct weir_algorithm_rule rule =
        shared_rule_of(WEIR_LEAKY, 10, WEIR_SECOND);
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 };
    struct weir_algorithm_answer answer;
    unsigned quiet = 0, rounds = 0;
    weir_instant end = weir_clock_now() + PATIENCE;
    shared_await(shared);
    while (quiet < 3 && weir_clock_now() < end) {
        struct weir_shared_status before, after;
        weir_shared_status(shared, &before);
        int result = weir_shared_step(shared, WEIR_TEXT("short"), &rule, &ask,
                                      &answer, WEIR_MILLISECOND / 10);
        int other = shared_ask(shared, "patient", &rule, WEIR_ALGORITHM_TAKE, 1,
                               &answer);
        weir_shared_status(shared, &after);
        rounds++;
        quiet += result < 0 && other == 0 && after.refused == before.refused;
        shared_await(shared);
    }
    print_message("  the other wasn't touched in %u of %u rounds\n", quiet,
                  rounds);
    assert_int_equal(quiet, 3);
    fake_stop(&fake, shared);
}

/* ---- A server that gets later and later ---- */

#define LATE_MAX 1024u /* answers under way */
#define LATE_CALLERS 8

struct late {
    struct fake fake;
    struct weir_shared *shared;
    weir_instant due[LATE_MAX];
    size_t first, end; /* of 'due'; end - first are under way */
    weir_duration delay;
};

/* Each answer is a little later than the one before it, until it is 60 ms. */
static void late_add(struct late *late, bool greeting)
{
    weir_duration delay = greeting ? 0 : late->delay;
    assert_compare(late->end - late->first, <, LATE_MAX);
    late->due[late->end++ % LATE_MAX] = weir_clock_now() + delay;
    if (!greeting && late->delay < 60 * WEIR_MILLISECOND)
        late->delay += WEIR_MILLISECOND / 20;
}

static void late_read(struct late *late, int fd, bool *greeted)
{
    static char commands[65536];
    ssize_t got = recv(fd, commands, sizeof(commands) - 1, MSG_DONTWAIT);
    if (got <= 0)
        return;
    commands[got] = '\0';
    bool ping;
    const char *at = next_command(commands, &ping);
    for (; at; at = next_command(at, &ping)) {
        late_add(late, !*greeted);
        *greeted = true;
    }
}

static void late_write(struct late *late, int fd, bool *greeted)
{
    while (late->first < late->end &&
           late->due[late->first % LATE_MAX] <= weir_clock_now()) {
        const char *answer = *greeted ? STEP_ANSWER : "+PONG\r\n";
        late->first++;
        *greeted = true;
        (void)!send(fd, answer, strlen(answer), MSG_NOSIGNAL);
    }
}

static void *be_late(void *context)
{
    struct late *late = context;
    int fd = accept(late->fake.fd, NULL, NULL);
    bool asked = false, answered = false;
    while (!weir_load(&late->fake.stop)) {
        struct pollfd readable = { .fd = fd, .events = POLLIN };
        poll(&readable, 1, 1);
        late_read(late, fd, &asked);
        late_write(late, fd, &answered);
    }
    close(fd);
    return NULL;
}

static void *call_late(void *context)
{
    struct late *late = context;
    struct weir_algorithm_rule rule =
        shared_rule_of(WEIR_LEAKY, 10, WEIR_SECOND);
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 };
    struct weir_algorithm_answer answer;
    struct weir_shared_status status = { .refused = 0 };
    weir_instant end = weir_clock_now() + PATIENCE;
    while (status.refused == 0 && weir_clock_now() < end) {
        weir_shared_step(late->shared, WEIR_TEXT("late"), &rule, &ask, &answer,
                         WEIR_SHARED_DEADLINE);
        weir_shared_status(late->shared, &status);
    }
    return NULL;
}

/* Its answers keep coming, but no caller waits for them any more: it counts as
 * dead. */
static void test_a_server_that_is_always_late(void **state)
{
    (void)state;
    static struct late late;
    pthread_t callers[LATE_CALLERS];
    memset(&late, 0, sizeof(late));
    fake_listen(&late.fake);
    assert_int_equal(pthread_create(&late.fake.thread, NULL, be_late, &late),
                     0);
    late.shared = fake_open(&late.fake, NULL);
    for (int i = 0; i < LATE_CALLERS; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_late, &late),
                         0);
    for (int i = 0; i < LATE_CALLERS; i++)
        PATIENTLY(pthread_join(callers[i], NULL));
    struct weir_shared_status status;
    weir_shared_status(late.shared, &status);
    print_message("  %llu steps were answered, %llu late, %llu then refused "
                  "at once\n",
                  (unsigned long long)status.steps,
                  (unsigned long long)status.timeouts,
                  (unsigned long long)status.refused);
    assert_compare(status.refused, >, 0);
    fake_stop(&late.fake, late.shared);
}

/* ---- TLS ---- */

static struct weir_shared *open_tls(const char *uri, const char *ca)
{
    struct weir_shared_options options = { .uri = uri, .tls_ca = ca };
    struct weir_shared *shared = NULL;
    struct weir_diag diag = { 0 };
    if (weir_shared_open(&options, &shared, &diag) < 0)
        fail_msg("%s", diag.text);
    return shared;
}

static void test_tls(void **state)
{
    (void)state;
    struct maker_pki pki;
    maker_pki_init(&pki);
    struct maker_leaf leaf = { .name = "redis", .also = "IP:127.0.0.1" };
    maker_pki_issue(&pki, "redis", pki.ca, &leaf);
    struct shared_server secure = {
        .kind = SHARED_SERVER_REDIS,
        .cert = maker_pki_path(&pki, "redis.crt"),
        .key = maker_pki_path(&pki, "redis.key"),
    };
    assert_true(shared_server_start(&secure));
    struct weir_shared *shared =
        open_tls(secure.uri, maker_pki_path(&pki, "ca.crt"));
    shared_await(shared);
    weir_shared_close(shared);

    shared = open_tls(secure.uri, maker_pki_path(&pki, "other.crt"));
    shared_await_error(shared, "certificate");
    weir_shared_close(shared);
    shared_server_kill(&secure);
    maker_pki_fini(&pki);
}

static void test_tls_without_its_authority(void **state)
{
    (void)state;
    struct weir_shared_options options = { .uri = "rediss://127.0.0.1:1",
                                           .tls_ca = "/nowhere/ca.crt" };
    struct weir_shared *shared = NULL;
    struct weir_diag diag = { 0 };
    assert_int_equal(weir_shared_open(&options, &shared, &diag), WEIR_ENOENT);
    assert_non_null(strstr(diag.text, "/nowhere/ca.crt"));
    assert_null(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cluster),
        cmocka_unit_test(test_a_redirection_is_told),
        cmocka_unit_test(test_a_slow_server_is_asked_seldom),
        cmocka_unit_test(test_a_short_deadline_is_its_quotas_own),
        cmocka_unit_test(test_a_server_that_is_always_late),
        cmocka_unit_test(test_tls),
        cmocka_unit_test(test_tls_without_its_authority),
        cmocka_unit_test(test_a_password),
        cmocka_unit_test(test_a_wrong_password),
        cmocka_unit_test(test_a_password_in_an_error),
        cmocka_unit_test(test_no_password),
        cmocka_unit_test(test_a_secrets_file_that_others_may_read),
        cmocka_unit_test(test_scripts_that_were_forgotten),
        cmocka_unit_test(test_a_key_that_is_taken),
        cmocka_unit_test(test_a_database_of_its_own),
    };
    int failed = cmocka_run_group_tests_name("redis", tests, set_up, tear_down);
    return failed + shared_suite_run(&under_test);
}
