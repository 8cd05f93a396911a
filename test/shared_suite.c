/* SPDX-License-Identifier: MIT
 * test/shared_suite.c - the requirements on every store of shared counters.
 *
 * Eight processes take as much as they can from a real server, with each
 * algorithm in turn; the units that passed are compared with the rule for that
 * time. Then the server dies, falls silent, or speaks no known protocol.
 * Deadlines are long while the server lives: a busy machine must not be
 * mistaken for a dead server. */

#include "shared_suite.h"
#include "compare.h"
#include "patience.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/atomic.h"
#include "io/clock.h"
#include "shared_rules.h"

#define PROCESSES 8
#define THREADS 4
#define FAR (8 * WEIR_SECOND) /* a deadline that no step misses */
#define PATIENCE (60 * WEIR_SECOND)
#define AWAY_ENOUGH 500 /* refused at once by the rule, no accident */
#define PROBES 3
#define LIMIT 200u /* units a second */
#define DAY (86400 * WEIR_SECOND)

static const struct shared_under_test *under;
static const struct shared_way *way;
static struct shared_server server;

/* ---- Help ---- */

struct weir_shared *shared_open_at(const char *uri, const char *secrets_file)
{
    struct weir_shared_options options = { .uri = uri,
                                           .secrets_file = secrets_file };
    struct weir_shared *shared = NULL;
    struct weir_diag diag = { 0 };
    int error = weir_shared_open(&options, &shared, &diag);
    if (error < 0)
        fail_msg("%s: %s", uri, diag.text);
    return shared;
}

int shared_ask(struct weir_shared *shared, const char *key,
               const struct weir_algorithm_rule *rule,
               enum weir_algorithm_op op, uint64_t weight,
               struct weir_algorithm_answer *out)
{
    struct weir_algorithm_ask ask = { .op = op, .weight = weight };
    return weir_shared_step(shared, weir_text_of(key), rule, &ask, out, FAR);
}

void shared_await(struct weir_shared *shared)
{
    struct weir_algorithm_rule rule =
        shared_rule_of(WEIR_LEAKY, 1000, WEIR_SECOND);
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_PEEK };
    struct weir_algorithm_answer answer;
    weir_instant end = weir_clock_now() + PATIENCE;
    while (weir_shared_step(shared, WEIR_TEXT("await"), &rule, &ask, &answer,
                            WEIR_SECOND) != 0)
        assert_compare(weir_clock_now(), <, end);
}

void shared_await_error(struct weir_shared *shared, const char *text)
{
    struct weir_algorithm_rule rule =
        shared_rule_of(WEIR_LEAKY, 1000, WEIR_SECOND);
    struct weir_algorithm_answer answer;
    struct weir_shared_status status;
    weir_instant end = weir_clock_now() + PATIENCE;
    for (;;) {
        assert_int_not_equal(
            shared_ask(shared, "await", &rule, WEIR_ALGORITHM_PEEK, 0, &answer),
            0);
        weir_shared_status(shared, &status);
        if (strstr(status.last_error, text))
            return;
        if (weir_clock_now() >= end)
            fail_msg("'%s' is not in '%s'", text, status.last_error);
    }
}

static weir_instant wall_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (weir_instant)now.tv_sec * WEIR_SECOND + (weir_instant)now.tv_nsec;
}

static unsigned seconds_wanted(void)
{
    const char *said = getenv("WEIR_SECONDS");
    return said ? (unsigned)strtoul(said, NULL, 10) : 2;
}

/* ---- Access to a store: by store/shared.h ---- */

static void *store_open(void)
{
    return shared_open_at(server.uri, NULL);
}

static void store_close(void *client)
{
    weir_shared_close(client);
}

static int store_step(void *client, const char *key,
                      const struct shared_wish *wish,
                      const struct weir_algorithm_ask *ask,
                      struct weir_algorithm_answer *out, weir_duration deadline)
{
    struct weir_algorithm_rule rule = shared_rule_of_wish(wish);
    return weir_shared_step(client, weir_text_of(key), &rule, ask, out,
                            deadline);
}

static bool store_is_up(void *client)
{
    struct weir_shared_status status;
    weir_shared_status(client, &status);
    return status.up;
}

static bool store_start(void)
{
    server.kind = under->kind;
    return shared_server_start(&server);
}

static void store_kill(void)
{
    shared_server_kill(&server);
}

static void store_stop(void)
{
    shared_server_stop(&server);
}

static void store_go_on(void)
{
    shared_server_go_on(&server);
}

static const struct shared_way store_way = {
    .open = store_open,
    .close = store_close,
    .step = store_step,
    .is_up = store_is_up,
    .start = store_start,
    .kill = store_kill,
    .stop = store_stop,
    .go_on = store_go_on,
};

/* ---- Access under test ---- */

static void put(const char *key, const struct shared_wish *wish)
{
    if (way->put)
        way->put(key, wish);
}

static int ask_until(void *client, const char *key,
                     const struct shared_wish *wish, enum weir_algorithm_op op,
                     uint64_t weight, struct weir_algorithm_answer *out,
                     weir_duration deadline)
{
    struct weir_algorithm_ask ask = { .op = op, .weight = weight };
    return way->step(client, key, wish, &ask, out, deadline);
}

static int ask_for(void *client, const char *key,
                   const struct shared_wish *wish, enum weir_algorithm_op op,
                   uint64_t weight, struct weir_algorithm_answer *out)
{
    return ask_until(client, key, wish, op, weight, out, FAR);
}

static struct shared_wish wish_of(int algorithm, uint64_t quantity,
                                  weir_duration per)
{
    return (struct shared_wish){ .algorithm = (enum weir_algorithm)algorithm,
                                 .quantity = quantity,
                                 .per = per,
                                 .initial = -1 };
}

static bool is_answered(void *client)
{
    struct shared_wish wish = wish_of(WEIR_LEAKY, 1000, WEIR_SECOND);
    struct weir_algorithm_answer answer;
    return ask_until(client, "await", &wish, WEIR_ALGORITHM_PEEK, 0, &answer,
                     WEIR_SECOND) == 0;
}

static void await_answer(void *client)
{
    weir_instant end = weir_clock_now() + PATIENCE;
    while (!is_answered(client))
        assert_compare(weir_clock_now(), <, end);
}

/* A client that has met its server: by steps, it waits for a root only as long
 * as their deadline. */
static void *open_client(void)
{
    void *client = way->open();
    await_answer(client);
    return client;
}

static int start_server(void **state)
{
    (void)state;
    server = (struct shared_server){ .pid = 0 };
    if (!way->start()) {
        fprintf(stderr, "no such server here: tools/install-deps.sh check\n");
        return -1;
    }
    struct shared_wish wish = wish_of(WEIR_LEAKY, 1000, WEIR_SECOND);
    put("await", &wish);
    wish = wish_of(WEIR_TOKEN_BUCKET, LIMIT, WEIR_SECOND);
    put("dying", &wish);
    return 0;
}

static int kill_server(void **state)
{
    (void)state;
    way->kill();
    return 0;
}

/* ---- A story ---- */

static void test_what_is_charged_is_there(void **state)
{
    (void)state;
    void *client = open_client();
    for (int i = WEIR_LEAKY; i <= WEIR_SLIDING_WINDOW; i++) {
        const char *name = shared_algorithm_names[i];
        struct shared_wish wish = wish_of(i, 10, DAY);
        struct weir_algorithm_answer answer;
        put(name, &wish);
        assert_int_equal(
            ask_for(client, name, &wish, WEIR_ALGORITHM_CHARGE, 7, &answer), 0);
        assert_int_equal(answer.used, 7);
        assert_int_equal(
            ask_for(client, name, &wish, WEIR_ALGORITHM_REFUND, 2, &answer), 0);
        assert_int_equal(answer.used, 5);
        assert_int_equal(
            ask_for(client, name, &wish, WEIR_ALGORITHM_PEEK, 4, &answer), 0);
        assert_int_equal(answer.used, 5);
        assert_int_equal(answer.passed, i != WEIR_LEAKY_QUEUE);
        assert_int_equal(
            ask_for(client, name, &wish, WEIR_ALGORITHM_TAKE, 11, &answer), 0);
        assert_false(answer.passed);
        assert_true(answer.never);
        assert_int_equal(answer.used, 5);
    }
    way->close(client);
}

/* An edit: units above the new burst were granted by the old rule. */
static void test_a_rule_takes_back_what_is_above(void **state)
{
    (void)state;
    void *client = open_client();
    static const int64_t initial[3] = { 100, 40, -1 };
    static const int64_t used[3] = { -85, -30, 0 };
    struct shared_wish wish = wish_of(WEIR_TOKEN_BUCKET, 10, DAY);
    struct weir_algorithm_answer answer;
    wish.initial = initial[0];
    put("above", &wish);
    assert_int_equal(
        ask_for(client, "above", &wish, WEIR_ALGORITHM_CHARGE, 5, &answer), 0);
    for (int i = 0; i < 3; i++) {
        wish.initial = initial[i];
        put("above", &wish);
        assert_int_equal(
            ask_for(client, "above", &wish, WEIR_ALGORITHM_PEEK, 1, &answer),
            0);
        assert_int_equal(answer.used, used[i]);
    }
    way->close(client);
}

static void test_names_of_any_bytes_are_their_own(void **state)
{
    (void)state;
    char longest[WEIR_NAME_MAX + 1], sibling[WEIR_NAME_MAX + 1];
    for (size_t i = 0; i < WEIR_NAME_MAX; i++)
        longest[i] = "a} \xc3\xa4{\n%\x7f"[i % 9];
    longest[WEIR_NAME_MAX] = '\0';
    memcpy(sibling, longest, sizeof(sibling));
    sibling[WEIR_NAME_MAX - 1] = 'b';
    const char *const names[] = { longest, sibling, "a b", "a%20b",
                                  "a:b",   "}",     "{}",  "\xf0\x9f\x8c\x8a" };
    void *client = open_client();
    struct shared_wish wishes[] = {
        wish_of(WEIR_LEAKY, 100, DAY),
        wish_of(WEIR_FIXED_WINDOW, 100, DAY),
    };
    struct weir_algorithm_answer answer;
    for (size_t r = 0; r < WEIR_COUNT_OF(wishes); r++)
        for (size_t i = 0; i < WEIR_COUNT_OF(names); i++) {
            assert_int_equal(ask_for(client, names[i], &wishes[r],
                                     WEIR_ALGORITHM_TAKE, i + 1, &answer),
                             0);
            assert_int_equal(answer.used, i + 1);
        }
    way->close(client);
}

static int take_at(void *client, const char *key, struct shared_wish *wish,
                   int32_t utc_offset_s, uint64_t weight,
                   struct weir_algorithm_answer *out)
{
    wish->utc_offset_s = utc_offset_s;
    put(key, wish);
    return ask_for(client, key, wish, WEIR_ALGORITHM_TAKE, weight, out);
}

/* In each zone it is about half past twelve, so that an hour more or less is
 * the same day, and no window ends while this runs. (A minute may: zones are
 * whole minutes from UTC.) */
static void test_clocks_that_are_set(void **state)
{
    (void)state;
    const int32_t half_past_twelve = 45000;
    void *client = open_client();
    for (int i = WEIR_CALENDAR_HOUR; i <= WEIR_CALENDAR_MONTH; i++) {
        struct shared_wish wish = wish_of(WEIR_FIXED_WINDOW, 10, WEIR_SECOND);
        struct weir_algorithm_answer answer;
        char key[32];
        snprintf(key, sizeof(key), "clocks/%d", i);
        int32_t of_day = (int32_t)(wall_now() / WEIR_SECOND % 86400);
        int32_t offset = (half_past_twelve - of_day) / 60 * 60;
        wish.calendar = (enum weir_calendar)i;
        assert_int_equal(take_at(client, key, &wish, offset, 7, &answer), 0);
        assert_int_equal(take_at(client, key, &wish, offset - 3600, 2, &answer),
                         0);
        assert_int_equal(answer.used, 9);
        assert_int_equal(take_at(client, key, &wish, offset + 3600, 2, &answer),
                         0);
        assert_false(answer.passed);
        assert_int_equal(answer.used, 9);
    }
    way->close(client);
}

/* ---- Eight processes ---- */

/* The observations of one process; instants of the wall clock, which the stores
 * use. The least that must have passed is known from the refusals: then all was
 * used up. So it doesn't matter when the machine was too busy to ask. */
struct seen {
    uint64_t asked, passed, lost, other;
    weir_instant first_asked, last_answered;  /* of all */
    weir_instant first_refused, last_refused; /* answered; asked */
    weir_instant refused_asked;               /* the last one, for `idle` */
    weir_duration idle; /* time that a full bucket may have wasted in between */
    uint64_t full;      /* a bit per second since the start: all was used up */
    uint32_t apart;     /* refusals that are more than a second apart */
    weir_instant apart_answered;
    double bucket; /* units that must have passed of a bucket, from the above */
    int error;     /* an error other than a refusal */
};

static void note_refusal(struct seen *seen, weir_instant start,
                         weir_instant asked, weir_instant answered)
{
    if (seen->first_refused == 0) {
        seen->first_refused = answered;
        seen->refused_asked = asked;
    }
    weir_duration gap = answered - seen->refused_asked;
    seen->idle += gap > WEIR_SECOND ? gap - WEIR_SECOND : 0;
    seen->refused_asked = asked;
    seen->last_refused = asked;
    uint64_t second = (asked - start) / WEIR_SECOND;
    if (second == (answered - start) / WEIR_SECOND && second < 64)
        seen->full |= (uint64_t)1 << second;
    if (asked >= seen->apart_answered + WEIR_SECOND) {
        seen->apart++;
        seen->apart_answered = answered;
    }
}

static void ask_once(void *client, const char *key,
                     const struct shared_wish *wish, weir_instant start,
                     struct seen *seen)
{
    struct weir_algorithm_answer answer;
    weir_instant asked = wall_now();
    int error = ask_for(client, key, wish, WEIR_ALGORITHM_TAKE, 1, &answer);
    weir_instant answered = wall_now();
    seen->asked++;
    if (error == WEIR_EFULL) { /* nothing was charged */
        seen->lost++;
        return;
    }
    if (error < 0) {
        seen->other++;
        seen->error = error;
        return;
    }
    if (seen->first_asked == 0)
        seen->first_asked = asked;
    seen->last_answered = answered;
    seen->passed += answer.passed;
    if (!answer.passed)
        note_refusal(seen, start, asked, answered);
}

static void sleep_until(weir_instant wall)
{
    struct timespec at = { .tv_sec = (time_t)(wall / WEIR_SECOND),
                           .tv_nsec = (long)(wall % WEIR_SECOND) };
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

/* Shared by the eight: a bucket state of each algorithm. */
struct bucket_state {
    char key[64];
    struct shared_wish wish;
    struct seen seen[PROCESSES]; /* each process has its own */
};

#define BUCKET_STATES (WEIR_SLIDING_WINDOW - WEIR_LEAKY + 1)

/* Asks for each at least once, however late it is. */
static void be_a_process(struct bucket_state *bucket_states, int number,
                         weir_instant start, weir_instant end)
{
    patience_be_child();
    void *client = way->open();
    while (STILL(!is_answered(client)))
        continue;
    sleep_until(start);
    do {
        for (int i = 0; i < BUCKET_STATES; i++)
            ask_once(client, bucket_states[i].key, &bucket_states[i].wish,
                     start, &bucket_states[i].seen[number]);
    } while (wall_now() < end);
    way->close(client);
    _exit(0);
}

/* Units that must have passed of a bucket, less a step or so for rounding. */
static double of_bucket(const struct seen *seen)
{
    if (seen->first_refused == 0)
        return 0;
    double span = (double)(int64_t)(seen->last_refused - seen->first_refused -
                                    seen->idle);
    return LIMIT + LIMIT * span / 1e9 - 1;
}

/* Units that must have passed: at least and at most. */
struct bounds {
    double least, most;
};

/* A bucket is full of tokens at first. The store's clock advanced by at most
 * the time between the first and the last step. */
static struct bounds bounds_of(enum weir_algorithm algorithm,
                               const struct seen *all, weir_instant start)
{
    weir_duration ran = all->last_answered - start;
    double most = LIMIT + 1 +
                  LIMIT * (double)(all->last_answered - all->first_asked) / 1e9;
    switch (algorithm) {
    case WEIR_LEAKY:
    case WEIR_TOKEN_BUCKET:
        return (struct bounds){ all->bucket, most };
    case WEIR_TOKEN_BUCKETS:
        /* The second bucket gets only the overflow of the first, until the
         * first is empty. */
        return (struct bounds){ all->bucket > 0 ? all->bucket + LIMIT : 0,
                                most * 2 };
    case WEIR_LEAKY_QUEUE:
        /* One at a time; a caller that comes late for its turn leaves a gap. */
        return (struct bounds){ 1, most - LIMIT + 1 };
    case WEIR_FIXED_WINDOW:
        return (struct bounds){ LIMIT * under->fixed_least *
                                    __builtin_popcountll(all->full),
                                LIMIT * (double)(ran / WEIR_SECOND + 1) };
    case WEIR_SLIDING_LOG:
        return (struct bounds){ LIMIT * all->apart,
                                LIMIT * (double)(ran / WEIR_SECOND + 1) };
    case WEIR_SLIDING_WINDOW:
        /* Any four parts of a second that follow each other hold at most the
         * limit. */
        return (struct bounds){ all->apart > 0 ? LIMIT : 0,
                                LIMIT * (double)(ran / WEIR_SECOND + 1) };
    case WEIR_PERMITS:
        break;
    }
    return (struct bounds){ 0, 0 };
}

static void add_seen(struct seen *all, const struct seen *one)
{
    all->asked += one->asked;
    all->passed += one->passed;
    all->lost += one->lost;
    all->other += one->other;
    all->error = all->error ? all->error : one->error;
    all->full |= one->full;
    if (one->first_asked < all->first_asked)
        all->first_asked = one->first_asked;
    if (one->last_answered > all->last_answered)
        all->last_answered = one->last_answered;
    if (one->apart > all->apart)
        all->apart = one->apart;
    double bucket = of_bucket(one);
    if (bucket > all->bucket)
        all->bucket = bucket;
}

/* From the beginning of a second to the middle of another. Returns the instant
 * of that beginning. */
static weir_instant run_processes(struct bucket_state *bucket_states,
                                  unsigned seconds)
{
    weir_instant start = (wall_now() / WEIR_SECOND + 1) * WEIR_SECOND;
    weir_instant end = start + seconds * WEIR_SECOND - WEIR_SECOND / 2;
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            be_a_process(bucket_states, i, start, end);
    }
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(STATUS_OF(pids[i]), 0);
    return start;
}

static void check_bucket_state(const struct bucket_state *bucket_state,
                               weir_instant start)
{
    struct seen all = { .first_asked = WEIR_NEVER };
    for (int i = 0; i < PROCESSES; i++)
        if (bucket_state->seen[i].first_asked != 0)
            add_seen(&all, &bucket_state->seen[i]);
    if (all.other > 0)
        fail_msg("%s: %s", bucket_state->key, weir_strerror(all.error));
    struct bounds bounds = bounds_of(bucket_state->wish.algorithm, &all, start);
    print_message("  %-20s asked %8llu passed %6llu of %.0f..%.0f, "
                  "swaps lost for good %llu\n",
                  bucket_state->key, (unsigned long long)all.asked,
                  (unsigned long long)all.passed, bounds.least, bounds.most,
                  (unsigned long long)all.lost);
    if ((double)all.passed > bounds.most || (double)all.passed < bounds.least)
        fail_msg("%s: %llu passed, not %.0f to %.0f", bucket_state->key,
                 (unsigned long long)all.passed, bounds.least, bounds.most);
}

static void test_eight_processes(void **state)
{
    (void)state;
    unsigned seconds = seconds_wanted();
    size_t size = BUCKET_STATES * sizeof(struct bucket_state);
    struct bucket_state *bucket_states = mmap(
        NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(bucket_states, MAP_FAILED);
    for (int i = 0; i < BUCKET_STATES; i++) {
        bucket_states[i].wish = wish_of(WEIR_LEAKY + i, LIMIT, WEIR_SECOND);
        snprintf(bucket_states[i].key, sizeof(bucket_states[i].key), "eight/%s",
                 shared_algorithm_names[WEIR_LEAKY + i]);
        put(bucket_states[i].key, &bucket_states[i].wish);
    }
    print_message("%d processes, %u windows, limit %u/s:\n", PROCESSES, seconds,
                  LIMIT);
    weir_instant start = run_processes(bucket_states, seconds);
    for (int i = 0; i < BUCKET_STATES; i++)
        check_bucket_state(&bucket_states[i], start);
    munmap(bucket_states, size);
}

/* ---- A server that dies ---- */

struct caller {
    void *client;
    uint32_t *stop;
    pthread_t thread;
    uint64_t answered, timeouts, away, other; /* atomic */
    weir_duration longest[1000]; /* the longest steps, the longest first */
};

static void note(struct caller *caller, weir_duration took)
{
    size_t max = WEIR_COUNT_OF(caller->longest), i = max;
    while (i > 0 && caller->longest[i - 1] < took)
        i--;
    if (i == max)
        return;
    memmove(&caller->longest[i + 1], &caller->longest[i],
            (max - i - 1) * sizeof(took));
    caller->longest[i] = took;
}

static void *call_on(void *context)
{
    struct caller *caller = context;
    struct shared_wish wish = wish_of(WEIR_TOKEN_BUCKET, LIMIT, WEIR_SECOND);
    while (!weir_load(caller->stop)) {
        struct weir_algorithm_answer answer;
        weir_instant before = weir_clock_now();
        int result =
            ask_until(caller->client, "dying", &wish, WEIR_ALGORITHM_TAKE, 1,
                      &answer, WEIR_SHARED_DEADLINE);
        note(caller, weir_clock_now() - before);
        weir_fetch_add(result == 0               ? &caller->answered
                       : result == WEIR_ETIMEOUT ? &caller->timeouts
                       : result == WEIR_ECONNECT ? &caller->away
                                                 : &caller->other,
                       1u);
        /* A caller that is refused at once would otherwise only spin. */
        if (result == WEIR_ECONNECT)
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
    return NULL;
}

static void start_callers(struct caller *callers, void *client, uint32_t *stop)
{
    *stop = 0;
    memset(callers, 0, THREADS * sizeof(*callers));
    for (int i = 0; i < THREADS; i++) {
        callers[i].client = client;
        callers[i].stop = stop;
        assert_int_equal(
            pthread_create(&callers[i].thread, NULL, call_on, &callers[i]), 0);
    }
}

/* Sums up into the first caller; prints the times of decisions. */
static void stop_callers(struct caller *callers, uint32_t *stop,
                         const char *what)
{
    weir_store(stop, 1u);
    for (int i = 0; i < THREADS; i++)
        PATIENTLY(pthread_join(callers[i].thread, NULL));
    for (int i = 1; i < THREADS; i++) {
        callers[0].answered += callers[i].answered;
        callers[0].timeouts += callers[i].timeouts;
        callers[0].away += callers[i].away;
        callers[0].other += callers[i].other;
        for (size_t k = 0; k < WEIR_COUNT_OF(callers[i].longest); k++)
            note(&callers[0], callers[i].longest[k]);
    }
    const struct caller *all = &callers[0];
    uint64_t steps = all->answered + all->timeouts + all->away + all->other;
    size_t rank = (size_t)(steps / 1000);
    size_t last = WEIR_COUNT_OF(all->longest) - 1;
    print_message("  %s: %llu answered, %llu timeouts, %llu refused at once; "
                  "p99.9 %.2f ms, longest %.2f ms\n",
                  what, (unsigned long long)all->answered,
                  (unsigned long long)all->timeouts,
                  (unsigned long long)all->away,
                  (double)all->longest[rank < last ? rank : last] / 1e6,
                  (double)all->longest[0] / 1e6);
}

static void await_status(void *client, bool up)
{
    weir_instant end = weir_clock_now() + PATIENCE;
    while (way->is_up(client) != up) {
        assert_compare(weir_clock_now(), <, end);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

static uint64_t answered(struct caller *callers)
{
    uint64_t count = 0;
    for (int i = 0; i < THREADS; i++)
        count += weir_load(&callers[i].answered);
    return count;
}

static uint64_t away(struct caller *callers)
{
    uint64_t count = 0;
    for (int i = 0; i < THREADS; i++)
        count += weir_load(&callers[i].away);
    return count;
}

static void await_count(uint64_t (*count)(struct caller *callers),
                        struct caller *callers, uint64_t least)
{
    weir_instant end = weir_clock_now() + PATIENCE;
    while (count(callers) < least) {
        if (weir_clock_now() >= end)
            fail_msg("%llu answered, %llu refused at once: fewer than %llu",
                     (unsigned long long)answered(callers),
                     (unsigned long long)away(callers),
                     (unsigned long long)least);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

static void test_a_server_that_is_killed(void **state)
{
    (void)state;
    void *client = open_client();
    struct caller callers[THREADS];
    uint32_t stop;
    start_callers(callers, client, &stop);
    await_count(answered, callers, AWAY_ENOUGH);
    way->kill();
    await_status(client, false);
    await_count(away, callers, AWAY_ENOUGH);
    assert_true(way->start());
    weir_instant back = weir_clock_now();
    await_status(client, true);
    await_count(answered, callers, answered(callers) + AWAY_ENOUGH);
    print_message("  back %.0f ms after the server\n",
                  (double)(weir_clock_now() - back) / 1e6);
    stop_callers(callers, &stop, "killed");
    await_answer(client);
    way->close(client);
}

/* The server falls silent. The first steps cost their deadline, the next ones
 * nothing, and its late answers are dropped. Each thread that waits in vain for
 * a store marks it as away before it goes on, so each waits once; but an
 * earlier answer may be counted meanwhile. A root is asked again by a caller
 * that is more patient than those before, as its limiter saw it: how often is
 * tested by test_ask.c, in virtual time. */
static void test_a_server_that_is_silent(void **state)
{
    (void)state;
    void *client = open_client();
    struct caller callers[THREADS];
    uint32_t stop;
    way->stop();
    start_callers(callers, client, &stop);
    await_count(away, callers, AWAY_ENOUGH);
    stop_callers(callers, &stop, "silent");
    assert_int_equal(callers[0].answered, 0);
    assert_compare(callers[0].timeouts, >=, 1);
    if (way == &store_way)
        assert_in_range(callers[0].timeouts, 1, 2 * THREADS);
    way->go_on();
    await_answer(client);
    way->close(client);
}

static void test_a_server_that_comes_later(void **state)
{
    (void)state;
    way->kill();
    void *client = way->open();
    await_status(client, false);
    assert_true(way->start());
    await_answer(client);
    way->close(client);
}

/* ---- Servers of another kind ---- */

enum fake_way {
    FAKE_GARBAGE,
    FAKE_SILENT,
    FAKE_TRUNCATED,
    FAKE_HUGE,
    FAKE_CLOSES,
    FAKE_WAYS
};

struct fake {
    enum fake_way way;
    int fd;
    uint16_t port;
    pthread_t thread;
    uint32_t stop, accepted; /* atomic */
};

static void say(int fd, const char *bytes, size_t len)
{
    (void)!send(fd, bytes, len, MSG_NOSIGNAL);
}

static void answer_one(struct fake *fake, int fd)
{
    char noise[4096];
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (char)(i * 131 + 7);
    struct pollfd readable = { .fd = fd, .events = POLLIN };
    while (!weir_load(&fake->stop) && poll(&readable, 1, 20) == 0)
        ;
    (void)!recv(fd, noise, 1, MSG_DONTWAIT);
    if (fake->way == FAKE_GARBAGE)
        say(fd, noise, sizeof(noise));
    if (fake->way == FAKE_TRUNCATED)
        say(fd, under->truncated, strlen(under->truncated));
    if (fake->way == FAKE_HUGE) {
        say(fd, under->huge, strlen(under->huge));
        for (int i = 0; i < 100; i++)
            say(fd, noise, sizeof(noise));
    }
    /* The silent one keeps the connection until the other end or the test
     * closes it. */
    char byte;
    readable.revents = 0;
    while (fake->way == FAKE_SILENT && !weir_load(&fake->stop))
        if (poll(&readable, 1, 20) > 0 && recv(fd, &byte, 1, 0) <= 0)
            break;
    close(fd);
}

static void *be_a_fake(void *context)
{
    struct fake *fake = context;
    while (!weir_load(&fake->stop)) {
        struct pollfd readable = { .fd = fake->fd, .events = POLLIN };
        if (poll(&readable, 1, 20) <= 0)
            continue;
        int fd = accept(fake->fd, NULL, NULL);
        if (fd < 0)
            continue;
        weir_fetch_add(&fake->accepted, 1u);
        answer_one(fake, fd);
    }
    return NULL;
}

static void fake_start(struct fake *fake, enum fake_way vice)
{
    *fake = (struct fake){ .way = vice };
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    fake->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fake->fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(fake->fd, 16), 0);
    getsockname(fake->fd, (struct sockaddr *)&at, &len);
    fake->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&fake->thread, NULL, be_a_fake, fake), 0);
}

static void fake_stop(struct fake *fake)
{
    weir_store(&fake->stop, 1u);
    PATIENTLY(pthread_join(fake->thread, NULL));
    close(fake->fd);
}

static void step_by_none(struct weir_shared *shared, int algorithm)
{
    struct weir_algorithm_answer answer = { .used = -7 };
    struct weir_algorithm_rule rule =
        shared_rule_of((enum weir_algorithm)algorithm, 10, WEIR_SECOND);
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 };
    int result = weir_shared_step(shared, WEIR_TEXT("fake"), &rule, &ask,
                                  &answer, WEIR_SHARED_DEADLINE);
    assert_compare(result, <, 0);
    assert_int_equal(answer.used, -7);
}

/* Until each has got some probes, and steps are refused. The huge one begins
 * with a right answer to the probe, so it is up until the rest is read. */
static bool are_probed(struct fake *fakes, struct weir_shared **shared)
{
    for (int vice = 0; vice < FAKE_WAYS; vice++) {
        struct weir_shared_status status;
        weir_shared_status(shared[vice], &status);
        assert_false(status.up && vice != FAKE_HUGE);
        if (status.refused == 0 || weir_load(&fakes[vice].accepted) < PROBES)
            return false;
    }
    return true;
}

static void test_a_server_that_is_none(void **state)
{
    (void)state;
    static struct fake fakes[FAKE_WAYS];
    struct weir_shared *shared[FAKE_WAYS];
    for (int vice = 0; vice < FAKE_WAYS; vice++) {
        fake_start(&fakes[vice], (enum fake_way)vice);
        char uri[64];
        snprintf(uri, sizeof(uri), "%s://127.0.0.1:%u",
                 under->kind == SHARED_SERVER_REDIS ? "redis" : "memcached",
                 fakes[vice].port);
        shared[vice] = shared_open_at(uri, NULL);
    }
    weir_instant end = weir_clock_now() + PATIENCE;
    for (int i = WEIR_LEAKY; !are_probed(fakes, shared);
         i = i % WEIR_SLIDING_WINDOW + 1) {
        assert_compare(weir_clock_now(), <, end);
        for (int vice = 0; vice < FAKE_WAYS; vice++)
            step_by_none(shared[vice], i);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    for (int vice = 0; vice < FAKE_WAYS; vice++) {
        struct weir_shared_status status;
        weir_shared_status(shared[vice], &status);
        print_message("  way %d: %s\n", vice, status.last_error);
        weir_shared_close(shared[vice]);
        fake_stop(&fakes[vice]);
    }
}

int shared_suite_run(const struct shared_under_test *under_test)
{
    under = under_test;
    way = under->way ? under->way : &store_way;
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_what_is_charged_is_there),
        cmocka_unit_test(test_a_rule_takes_back_what_is_above),
        cmocka_unit_test(test_clocks_that_are_set),
        cmocka_unit_test(test_eight_processes),
        cmocka_unit_test(test_a_server_that_is_killed),
        cmocka_unit_test(test_a_server_that_is_silent),
        cmocka_unit_test(test_a_server_that_comes_later),
    };
    const struct CMUnitTest of_stores[] = {
        cmocka_unit_test(test_names_of_any_bytes_are_their_own),
        cmocka_unit_test(test_a_server_that_is_none),
    };
    int failed = cmocka_run_group_tests_name("shared_suite", all, start_server,
                                             kill_server);
    if (way == &store_way)
        failed += cmocka_run_group_tests_name(
            "shared_suite of stores", of_stores, start_server, kill_server);
    return failed;
}
