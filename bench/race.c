/* SPDX-License-Identifier: MIT
 * bench/race.c - a race demonstrated: eight processes request more units from
 * one store than the limit allows, in three ways.
 *
 *     get, then set   read the bucket state, step it, write it back: the write
 *                     overwrites units that other processes passed meanwhile
 *     locked          the same under a lock of the key (SET NX PX): right, but
 *                     the processes wait for each other
 *     ours            store/shared.h: one script in Redis; a counter or a
 *                     compare-and-swap in memcached
 *
 * Limits are by the day, so that the elapsed time adds no unit: each algorithm
 * has exactly 'limit' units. A second table makes a compare-and-swap in
 * memcached each step, from one process to eight, and counts the swaps lost to
 * other processes.
 *
 *     weir-bench-race [--quick] [--json FILE]
 *
 * --quick is the test: Weir's way with every algorithm, the others with one. It
 * doesn't depend on the machine's speed. No period ends while it runs
 * (period_of()), each wait has its maximum length, and no step loses too many
 * swaps: a refused step writes nothing, so a key is written at most QUICK_LIMIT
 * times, which is less often than one step tries.
 *
 * Starts its servers itself. Exit status: 1 if Weir's way or the lock let
 * through another number than the limit. */

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/atomic.h"
#include "io/clock.h"
#include "shared_rules.h"
#include "shared_server.h"
#include "store/shared.h"
#include "store/shared_state.h"

#define PROCESSES 8
#define HOUR (3600 * WEIR_SECOND)
#define DAY (24 * HOUR)
#define PATIENCE (60 * WEIR_SECOND)
#define STEPS_MAX 4096 /* of one process */
#define LOCK_MS 600000 /* a lock that expires lets two processes in */
#define QUICK_LIMIT 40
_Static_assert(QUICK_LIMIT < WEIR_SHARED_SWAPS_MAX, "see above");

enum way { GET_THEN_SET, LOCKED, OURS_REDIS, OURS_MEMCACHED, WAYS };

static const char *const way_names[WAYS] = { "get, then set", "locked",
                                             "ours, Redis", "ours, memcached" };

/* Memory shared by all processes. */
struct board {
    uint32_t ready, go;
    struct tally {
        uint64_t passed, failed, swaps_lost;
        uint32_t steps;
        uint32_t took_ns[STEPS_MAX];
    } of[PROCESSES];
};

struct run {
    enum way way;
    unsigned processes;
    unsigned steps; /* of each process */
    const char *key;
    struct weir_algorithm_rule rule;
    enum weir_algorithm_op op;
};

struct outcome {
    uint64_t passed, failed, swaps_lost, steps;
    double p50_us, p99_us, per_s;
};

static struct shared_server redis_server = { .kind = SHARED_SERVER_REDIS };
static struct shared_server memcached_server = { .kind =
                                                     SHARED_SERVER_MEMCACHED };

/* ---- By hand, in Redis ---- */

static weir_instant wall_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (weir_instant)now.tv_sec * WEIR_SECOND + (weir_instant)now.tv_nsec;
}

/* Reads the bucket state, steps it, writes it back. */
static int get_then_set(redisContext *redis, const struct run *run,
                        struct weir_algorithm_answer *out)
{
    static uint64_t state[WEIR_ALGORITHM_SIZE_MAX / 8];
    static uint8_t value[WEIR_STATE_BYTES_MAX];
    weir_instant now = wall_now();
    memset(state, 0, weir_algorithm_size(&run->rule));
    redisReply *reply = redisCommand(redis, "GET hand:%s", run->key);
    int error = 0;
    if (reply && reply->type == REDIS_REPLY_STRING)
        error = weir_state_unpack(&run->rule, (const uint8_t *)reply->str,
                                  reply->len, state, now);
    if (!reply || error < 0)
        return WEIR_EPROTOCOL;
    freeReplyObject(reply);
    struct weir_algorithm_ask ask = { .op = run->op,
                                      .weight = 1,
                                      .wait_max = WEIR_NEVER };
    weir_algorithm_step(&run->rule, state, &ask, out, now);
    if (!out->passed)
        return 0;
    size_t size = weir_state_pack(&run->rule, state, value);
    reply = redisCommand(redis, "SET hand:%s %b", run->key, value, size);
    error = reply && reply->type == REDIS_REPLY_STATUS ? 0 : WEIR_EPROTOCOL;
    freeReplyObject(reply);
    return error;
}

static int lock(redisContext *redis, const struct run *run)
{
    weir_instant end = weir_clock_now() + PATIENCE;
    while (weir_clock_now() < end) {
        redisReply *reply = redisCommand(redis, "SET lock:%s %d NX PX %d",
                                         run->key, getpid(), LOCK_MS);
        bool mine = reply && reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
        if (mine)
            return 0;
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
    }
    return WEIR_ETIMEOUT;
}

static void unlock(redisContext *redis, const struct run *run)
{
    freeReplyObject(
        redisCommand(redis, "EVAL %s 1 lock:%s %d",
                     "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                     "redis.call('DEL', KEYS[1]) end",
                     run->key, getpid()));
}

static int step_by_hand(redisContext *redis, const struct run *run,
                        struct weir_algorithm_answer *out)
{
    if (run->way == GET_THEN_SET)
        return get_then_set(redis, run, out);
    int error = lock(redis, run);
    if (error < 0)
        return error;
    error = get_then_set(redis, run, out);
    unlock(redis, run);
    return error;
}

/* ---- A process ---- */

static int step(redisContext *redis, struct weir_shared *shared,
                const struct run *run, struct weir_algorithm_answer *out)
{
    if (redis)
        return step_by_hand(redis, run, out);
    struct weir_algorithm_ask ask = { .op = run->op,
                                      .weight = 1,
                                      .wait_max = WEIR_NEVER };
    return weir_shared_step(shared, weir_text_of(run->key), &run->rule, &ask,
                            out, WEIR_SHARED_DEADLINE_MAX);
}

static void open_way(const struct run *run, redisContext **out_redis,
                     struct weir_shared **out_shared)
{
    if (run->way == GET_THEN_SET || run->way == LOCKED) {
        *out_redis = redisConnect("127.0.0.1", redis_server.port);
        if (!*out_redis || (*out_redis)->err)
            _exit(1);
        return;
    }
    struct weir_shared_options options = {
        .uri = run->way == OURS_REDIS ? redis_server.uri : memcached_server.uri,
    };
    if (weir_shared_open(&options, out_shared, NULL) < 0)
        _exit(1);
    /* The first connection isn't a part of the measurement. */
    struct weir_shared_status status = { .up = false };
    weir_instant end = weir_clock_now() + PATIENCE;
    while (!status.up) {
        if (weir_clock_now() > end)
            _exit(1);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        weir_shared_status(*out_shared, &status);
    }
}

static void be_a_process(const struct run *run, struct board *board,
                         struct tally *tally)
{
    redisContext *redis = NULL;
    struct weir_shared *shared = NULL;
    open_way(run, &redis, &shared);
    weir_fetch_add(&board->ready, 1u);
    while (!weir_load(&board->go))
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    for (unsigned i = 0; i < run->steps; i++) {
        struct weir_algorithm_answer answer = { .passed = false };
        weir_instant before = weir_clock_now();
        int error = step(redis, shared, run, &answer);
        weir_duration took = weir_clock_now() - before;
        tally->took_ns[tally->steps++] =
            took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
        tally->failed += error < 0;
        tally->passed += error == 0 && answer.passed;
    }
    if (shared) {
        struct weir_shared_status status;
        weir_shared_status(shared, &status);
        tally->swaps_lost = status.swaps_lost;
    }
    weir_shared_close(shared);
    _exit(0);
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static struct outcome sum_up(const struct board *board, unsigned processes,
                             weir_duration took)
{
    static uint32_t all[PROCESSES * STEPS_MAX];
    struct outcome out = { .passed = 0 };
    for (unsigned i = 0; i < processes; i++) {
        const struct tally *tally = &board->of[i];
        memcpy(all + out.steps, tally->took_ns, tally->steps * sizeof(*all));
        out.steps += tally->steps;
        out.passed += tally->passed;
        out.failed += tally->failed;
        out.swaps_lost += tally->swaps_lost;
    }
    if (out.steps == 0)
        return out;
    qsort(all, out.steps, sizeof(*all), by_size);
    out.p50_us = all[out.steps / 2] / 1e3;
    out.p99_us = all[out.steps - 1 - out.steps / 100] / 1e3;
    out.per_s = (double)out.steps / ((double)took / 1e9);
    return out;
}

static void give_up(const struct run *run, const pid_t *pids, unsigned ended)
{
    fprintf(stderr,
            "weir-bench-race: process %u has ended before the race "
            "(%s)\n",
            ended, way_names[run->way]);
    for (unsigned i = 0; i < run->processes; i++)
        if (i != ended)
            kill(pids[i], SIGKILL);
    shared_server_kill(&redis_server);
    shared_server_kill(&memcached_server);
    exit(2);
}

/* Waits until all are ready. A process that ended before couldn't open its
 * store, and would be waited for without end. */
static void await_all(const struct run *run, struct board *board,
                      const pid_t *pids)
{
    while (weir_load(&board->ready) < run->processes) {
        for (unsigned i = 0; i < run->processes; i++)
            if (waitpid(pids[i], NULL, WNOHANG) != 0)
                give_up(run, pids, i);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

static struct outcome run_all(const struct run *run)
{
    struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        abort();
    pid_t pids[PROCESSES];
    for (unsigned i = 0; i < run->processes; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            be_a_process(run, board, &board->of[i]);
    }
    await_all(run, board, pids);
    weir_instant start = weir_clock_now();
    weir_store(&board->go, 1u);
    for (unsigned i = 0; i < run->processes; i++)
        while (waitpid(pids[i], NULL, 0) < 0 && errno == EINTR)
            ;
    struct outcome out =
        sum_up(board, run->processes, weir_clock_now() - start);
    munmap(board, sizeof(*board));
    return out;
}

/* ---- The tables ---- */

/* About a day. A fixed window begins at a multiple of its length; one that
 * ended during a race would let through twice as much. None of this length ends
 * within the hour. */
static weir_duration period_of(weir_instant now)
{
    weir_duration period = DAY;
    while (period - now % period < HOUR)
        period += HOUR;
    return period;
}

/* A race with a bound of 'limit' units in all. The queue asks for its turn, and
 * serves one request beside those that wait. */
static struct run race_of(enum weir_algorithm algorithm, enum way way,
                          unsigned limit, unsigned steps, const char *key)
{
    unsigned bound = limit;
    if (algorithm == WEIR_LEAKY_QUEUE)
        bound = limit - 1;
    if (algorithm == WEIR_TOKEN_BUCKETS)
        bound = limit / 2; /* of each */
    return (struct run){
        .way = way,
        .processes = PROCESSES,
        .steps = steps,
        .key = key,
        .rule = shared_rule_of(algorithm, bound, period_of(wall_now())),
        .op = algorithm == WEIR_LEAKY_QUEUE ? WEIR_ALGORITHM_RESERVE
                                            : WEIR_ALGORITHM_TAKE,
    };
}

static bool is_right(enum way way, const struct outcome *out, unsigned limit)
{
    return way == GET_THEN_SET || (out->passed == limit && out->failed == 0);
}

static void tell(FILE *json, enum weir_algorithm algorithm, enum way way,
                 unsigned limit, const struct outcome *out)
{
    const char *name = shared_algorithm_names[algorithm];
    printf("%-15s %-16s %9" PRIu64 " %7.2f %9.0f %9.0f %9.0f%s\n", name,
           way_names[way], out->passed, (double)out->passed / limit,
           out->p50_us, out->p99_us, out->per_s,
           is_right(way, out, limit) ? "" : "  WRONG");
    if (!is_right(way, out, limit))
        printf("    expected %u passed and 0 without an answer, got %" PRIu64
               " and %" PRIu64 "\n",
               limit, out->passed, out->failed);
    fflush(stdout);
    fprintf(json,
            "%s{\"algorithm\":\"%s\",\"way\":\"%s\",\"limit\":%u,"
            "\"passed\":%" PRIu64 ",\"failed\":%" PRIu64
            ",\"p50_us\":%.1f,\"p99_us\":%.1f,\"per_s\":%.0f}",
            algorithm == WEIR_LEAKY && way == 0 ? "" : ",\n", name,
            way_names[way], limit, out->passed, out->failed, out->p50_us,
            out->p99_us, out->per_s);
}

static bool race(FILE *json, bool quick)
{
    bool right = true;
    unsigned limit = quick ? QUICK_LIMIT : 400;
    unsigned steps = limit * 10 / PROCESSES;
    printf("%u processes, %u asks, limit %u:\n%-15s %-16s %9s %7s %9s %9s "
           "%9s\n",
           PROCESSES, steps * PROCESSES, limit, "algorithm", "way", "passed",
           "/limit", "p50 us", "p99 us", "asks/s");
    for (enum weir_algorithm algorithm = WEIR_LEAKY;
         algorithm <= WEIR_SLIDING_WINDOW; algorithm++)
        for (enum way way = 0; way < WAYS; way++) {
            bool ours = way == OURS_REDIS || way == OURS_MEMCACHED;
            if (quick && !ours && algorithm != WEIR_LEAKY)
                continue;
            char key[64];
            snprintf(key, sizeof(key), "race/%s/%d",
                     shared_algorithm_names[algorithm], way);
            struct run run = race_of(algorithm, way, limit, steps, key);
            struct outcome out = run_all(&run);
            right &= is_right(way, &out, limit);
            tell(json, algorithm, way, limit, &out);
        }
    return right;
}

/* Each step of each process changes the same value. */
static void contend(FILE *json, unsigned steps)
{
    printf("\ncompare-and-swap in memcached, every step one on the same "
           "key:\n%-10s %9s %9s %9s %11s %8s\n",
           "processes", "asks/s", "p50 us", "p99 us", "lost/step", "gave up");
    for (unsigned processes = 1; processes <= PROCESSES; processes *= 2) {
        char key[64];
        snprintf(key, sizeof(key), "contend/%u", processes);
        struct run run = { .way = OURS_MEMCACHED,
                           .processes = processes,
                           .steps = steps,
                           .key = key,
                           .rule =
                               shared_rule_of(WEIR_TOKEN_BUCKET, 1000000, DAY),
                           .op = WEIR_ALGORITHM_TAKE };
        struct outcome out = run_all(&run);
        double lost = (double)out.swaps_lost / (double)out.steps;
        printf("%-10u %9.0f %9.0f %9.0f %11.3f %8" PRIu64 "\n", processes,
               out.per_s, out.p50_us, out.p99_us, lost, out.failed);
        fprintf(json,
                "%s{\"processes\":%u,\"per_s\":%.0f,\"p50_us\":%.1f,"
                "\"p99_us\":%.1f,\"lost_per_step\":%.4f,\"gave_up\":%" PRIu64
                "}",
                processes == 1 ? "" : ",\n", processes, out.per_s, out.p50_us,
                out.p99_us, lost, out.failed);
    }
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const char *path = "/dev/null";
    if (argc > 2 && strcmp(argv[argc - 2], "--json") == 0)
        path = argv[argc - 1];
    FILE *json = fopen(path, "w");
    if (!json || !shared_server_start(&redis_server) ||
        !shared_server_start(&memcached_server)) {
        fprintf(stderr, "weir-bench-race: needs redis-server, memcached and "
                        "a place to write to: tools/install-deps.sh check\n");
        return 2;
    }
    fprintf(json, "{\"race\":[\n");
    bool right = race(json, quick);
    fprintf(json, "],\n\"swaps\":[\n");
    contend(json, quick ? 25 : 2000);
    fprintf(json, "]}\n");
    fclose(json);
    shared_server_kill(&redis_server);
    shared_server_kill(&memcached_server);
    return right ? 0 : 1;
}
