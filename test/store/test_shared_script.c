/* SPDX-License-Identifier: MIT
 * test_shared_script.c - Redis's scripts compared with the bucket states in C.
 *
 * The same random history goes to a bucket state in C and to a script on a real
 * server, whose time is an argument here. A script counts in doubles and whole
 * microseconds, so its answers may differ from the integers' by rounding:
 *
 *   passed, level  the same; but if the integers themselves answer otherwise,
 *                  or as the script, a slack earlier or later, either is
 *                  right. Then both begin anew, and it is counted: it must be
 *                  rare
 *   used, remaining, levels    within one unit
 *   retry_after, wait          within the slack, and a billionth
 *
 * The slack is 2 us, plus the time in which two scaled units (2^-20 of a unit,
 * mostly) leak: the integers are exact to one of them. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "compare.h"
#include "io/clock.h"
#include "shared_rules.h"
#include "shared_server.h"
#include "store/shared_script.h"
#include "table_maker.h"

#define RULES_MAX 64
#define MARCH_2024 1709251200000000ull /* microseconds; after a leap day */
#define NAME WEIR_TEXT("a {name} with \xc3\xa4 } blanks")

static struct shared_server server = { .kind = SHARED_SERVER_REDIS };
static redisContext *redis;
static struct weir_script script[WEIR_PERMITS + 1];
static uint64_t bucket_state[WEIR_ALGORITHM_SIZE_MAX / 8];

static int set_up(void **state)
{
    (void)state;
    if (!shared_server_start(&server)) {
        fprintf(stderr, "no redis-server here: tools/install-deps.sh check\n");
        return -1;
    }
    redis = redisConnect("127.0.0.1", server.port);
    for (int i = WEIR_LEAKY; i <= WEIR_PERMITS; i++)
        assert_int_equal(weir_script_init(&script[i], (enum weir_algorithm)i,
                                          WEIR_SCRIPT_TIME_GIVEN),
                         0);
    return redis && !redis->err ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = WEIR_LEAKY; i <= WEIR_PERMITS; i++)
        weir_script_fini(&script[i]);
    redisFree(redis);
    shared_server_kill(&server);
    return 0;
}

static void flush(void)
{
    freeReplyObject(redisCommand(redis, "FLUSHALL"));
    memset(bucket_state, 0, sizeof(bucket_state));
}

static void ask_named(struct weir_text name,
                      const struct weir_algorithm_rule *rule,
                      const struct weir_algorithm_ask *ask, uint64_t now_us,
                      struct weir_algorithm_answer *out)
{
    struct weir_script_call call;
    weir_script_call(&call, "weir", name, rule, ask);
    const char *words[40] = { "EVAL", script[rule->algorithm].text };
    size_t lens[40] = { 4, script[rule->algorithm].len };
    char keys[8], now[24];
    int count = 2;
    words[count] = keys;
    lens[count++] = (size_t)snprintf(keys, sizeof(keys), "%zu", call.keys);
    for (size_t i = 0; i < call.keys; i++) {
        words[count] = call.key[i];
        lens[count++] = call.key_len[i];
    }
    for (size_t i = 0; i < call.arguments; i++) {
        words[count] = call.argument[i];
        lens[count++] = strlen(call.argument[i]);
    }
    words[count] = now;
    lens[count++] =
        (size_t)snprintf(now, sizeof(now), "%llu", (unsigned long long)now_us);
    redisReply *reply = redisCommandArgv(redis, count, words, lens);
    assert_non_null(reply);
    if (reply->type != REDIS_REPLY_ARRAY)
        fail_msg("algorithm %d: %s", (int)rule->algorithm,
                 reply->str ? reply->str : "no array");
    int64_t integers[16];
    for (size_t i = 0; i < reply->elements && i < 16; i++)
        integers[i] = reply->element[i]->integer;
    assert_int_equal(weir_script_answer(integers, reply->elements, out), 0);
    freeReplyObject(reply);
}

static void ask_script(const struct weir_algorithm_rule *rule,
                       const struct weir_algorithm_ask *ask, uint64_t now_us,
                       struct weir_algorithm_answer *out)
{
    ask_named(NAME, rule, ask, now_us, out);
}

/* ---- Tolerance ---- */

static bool near_units(const struct weir_algorithm_rule *rule, int64_t a,
                       int64_t b)
{
    return llabs(a - b) <= (rule->buckets > 1 ? rule->buckets : 1);
}

static uint64_t slack_us(const struct weir_algorithm_rule *rule)
{
    uint64_t most = 2;
    for (uint8_t i = 0; i < rule->buckets; i++) {
        weir_duration two = weir_leak_time(rule->bucket[i].bucket.leak, 2);
        if (two != WEIR_NEVER && two / 1000 + 2 > most)
            most = two / 1000 + 2;
    }
    return most;
}

static bool near_time(weir_duration a, weir_duration b, uint64_t slack)
{
    if (a == WEIR_NEVER || b == WEIR_NEVER)
        return a == b;
    weir_duration apart = a > b ? a - b : b - a;
    return apart <= slack * 1000 + 1000 + a / 1000000000;
}

static bool near(const struct weir_algorithm_rule *rule,
                 const struct weir_algorithm_answer *a,
                 const struct weir_algorithm_answer *b)
{
    uint64_t slack = slack_us(rule);
    return a->passed == b->passed && a->never == b->never &&
           a->level == b->level && near_units(rule, a->used, b->used) &&
           near_units(rule, (int64_t)a->remaining, (int64_t)b->remaining) &&
           near_time(a->retry_after, b->retry_after, slack) &&
           near_time(a->wait, b->wait, slack);
}

static void print_answer(const char *who, const struct weir_algorithm_answer *a)
{
    print_error("  %s: passed %d never %d level %u used %lld remaining %llu "
                "retry %llu wait %llu\n",
                who, a->passed, a->never, a->level, (long long)a->used,
                (unsigned long long)a->remaining,
                (unsigned long long)a->retry_after,
                (unsigned long long)a->wait);
}

/* True: the bucket state in C would answer otherwise a little earlier or
 * later, or as the script. */
static bool is_tie(const struct weir_algorithm_rule *rule,
                   const uint64_t *before, const struct weir_algorithm_ask *ask,
                   const struct weir_algorithm_answer *theirs, uint64_t now_us)
{
    static uint64_t copy[WEIR_ALGORITHM_SIZE_MAX / 8];
    struct weir_algorithm_answer answer[2];
    uint64_t slack = slack_us(rule);
    for (int i = 0; i < 2; i++) {
        memcpy(copy, before, weir_algorithm_size(rule));
        weir_algorithm_step(rule, copy, ask, &answer[i],
                            (i ? now_us + slack : now_us - slack) * 1000);
    }
    /* A queue's `remaining` is 0 until its last unit has left. */
    return answer[0].passed != answer[1].passed ||
           answer[0].level != answer[1].level ||
           near(rule, &answer[0], theirs) || near(rule, &answer[1], theirs);
}

/* ---- Histories ---- */

static uint64_t random_weight(struct weir_rng *rng,
                              const struct weir_algorithm_rule *rule)
{
    uint64_t bound = rule->quantity;
    if (rule->buckets > 0)
        bound = (uint64_t)rule->bucket[0].bucket.high >>
                rule->bucket[0].bucket.leak.frac;
    switch (weir_rng_below(rng, 8)) {
    case 0:
        return 0;
    case 1:
        return weir_rng_below(rng, bound + 10);
    case 2:
        return weir_rng_below(rng, bound / 4 + 2);
    default:
        return 1;
    }
}

static struct weir_algorithm_ask random_ask(
    struct weir_rng *rng, const struct weir_algorithm_rule *rule)
{
    static const enum weir_algorithm_op ops[] = {
        WEIR_ALGORITHM_TAKE, WEIR_ALGORITHM_TAKE,   WEIR_ALGORITHM_TAKE,
        WEIR_ALGORITHM_TAKE, WEIR_ALGORITHM_PEEK,   WEIR_ALGORITHM_CHARGE,
        WEIR_ALGORITHM_TAKE, WEIR_ALGORITHM_REFUND, WEIR_ALGORITHM_RESERVE,
    };
    struct weir_algorithm_ask ask = {
        .op = ops[weir_rng_below(rng, WEIR_COUNT_OF(ops))],
        .weight = random_weight(rng, rule),
        .wait_max = weir_rng_below(rng, 200) * WEIR_MILLISECOND,
    };
    if (rule->buckets > 1)
        ask.level = (uint8_t)weir_rng_below(rng, rule->buckets);
    return ask;
}

/* Mostly small steps, now and then a window's, seldom months, and sometimes
 * none. Redis's clock may go back, but then bucket states in one word answer
 * otherwise (core/algorithm/algorithm.h), so here it doesn't; see the test
 * after next. */
static uint64_t random_pause_us(struct weir_rng *rng)
{
    switch (weir_rng_below(rng, 64)) {
    case 0:
        return weir_rng_below(rng, 40ull * 86400 * 1000000);
    case 1:
    case 2:
        return weir_rng_below(rng, 20 * 1000000);
    case 3:
    case 4:
    case 5:
        return weir_rng_below(rng, 400 * 1000);
    case 6:
    case 7:
        return 0;
    default:
        return weir_rng_below(rng, 20 * 1000);
    }
}

/* Sets clocks back and forth, seldom. */
static void set_clocks(struct weir_rng *rng, struct weir_algorithm_rule *rule)
{
    static const int32_t by[] = { 3600, -3600, 1800, -1800 };
    if (rule->calendar == WEIR_CALENDAR_NONE || weir_rng_below(rng, 20) > 0)
        return;
    int32_t offset = rule->utc_offset_s + by[weir_rng_below(rng, 4)];
    rule->utc_offset_s = offset > -86400 && offset < 86400 ? offset : 0;
}

/* Returns how many ties there were. */
static unsigned run_history(const struct shared_rule *named,
                            struct weir_rng *rng, unsigned steps)
{
    struct weir_algorithm_rule told = named->rule;
    const struct weir_algorithm_rule *rule = &told;
    static uint64_t before[WEIR_ALGORITHM_SIZE_MAX / 8];
    uint64_t now_us = MARCH_2024 + weir_rng_below(rng, 1000000000);
    unsigned ties = 0;
    flush();
    for (unsigned i = 0; i < steps; i++) {
        now_us += random_pause_us(rng);
        set_clocks(rng, &told);
        struct weir_algorithm_ask ask = random_ask(rng, rule);
        struct weir_algorithm_answer ours, theirs;
        memcpy(before, bucket_state, weir_algorithm_size(rule));
        weir_algorithm_step(rule, bucket_state, &ask, &ours, now_us * 1000);
        ask_script(rule, &ask, now_us, &theirs);
        if (near(rule, &ours, &theirs))
            continue;
        if (!is_tie(rule, before, &ask, &theirs, now_us)) {
            print_error("%s, step %u: op %d weight %llu\n", named->name, i,
                        ask.op, (unsigned long long)ask.weight);
            print_answer("meter ", &ours);
            print_answer("script", &theirs);
            fail();
        }
        ties++;
        flush();
    }
    return ties;
}

static unsigned steps_wanted(unsigned usual)
{
    const char *said = getenv("WEIR_STEPS");
    return said ? (unsigned)strtoul(said, NULL, 10) : usual;
}

static void test_scripts_answer_as_the_bucket_states(void **state)
{
    (void)state;
    struct shared_rule rules[RULES_MAX];
    size_t count = shared_rules(rules, RULES_MAX);
    struct weir_rng rng = made_seed("scripts");
    unsigned steps = steps_wanted(1000);
    unsigned ties = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(weir_algorithm_check(&rules[i].rule));
        ties += run_history(&rules[i], &rng, steps);
    }
    print_message("%zu rules of %u steps each: %u ties\n", count, steps, ties);
    assert_compare(ties, <=, count * steps / 1000);
}

/* ---- Permits: whole units, whole microseconds, nothing is rounded ---- */

static struct weir_algorithm_ask random_permit(struct weir_rng *rng)
{
    static const enum weir_algorithm_op ops[] = {
        WEIR_ALGORITHM_TAKE,   WEIR_ALGORITHM_TAKE, WEIR_ALGORITHM_TAKE,
        WEIR_ALGORITHM_REFUND, WEIR_ALGORITHM_PEEK, WEIR_ALGORITHM_CHARGE
    };
    /* Ids use all 64 bits; a double would merge some. */
    return (struct weir_algorithm_ask){
        .op = ops[weir_rng_below(rng, WEIR_COUNT_OF(ops))],
        .weight = weir_rng_below(rng, 5),
        .permit = weir_rng_below(rng, 8) ? UINT64_MAX - weir_rng_below(rng, 99)
                                         : weir_rng_below(rng, 2),
    };
}

static void ask_both(const struct weir_algorithm_rule *rule,
                     const struct weir_algorithm_ask *ask, uint64_t now_us)
{
    struct weir_algorithm_answer ours, theirs;
    weir_algorithm_step(rule, bucket_state, ask, &ours, now_us * 1000);
    ask_script(rule, ask, now_us, &theirs);
    assert_int_equal(ours.passed, theirs.passed);
    assert_int_equal(ours.never, theirs.never);
    assert_true(ours.used == theirs.used);
    assert_true(ours.remaining == theirs.remaining);
    assert_true(ours.retry_after == theirs.retry_after);
}

static void test_permits_answer_as_the_bucket_state(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("permits by script");
    unsigned steps = steps_wanted(1000);
    for (unsigned life = 0; life < 12; life++) {
        /* As many entries as units, so that no take lacks one. */
        uint64_t limit = weir_rng_below(&rng, 200);
        struct weir_algorithm_rule rule = {
            .algorithm = WEIR_PERMITS,
            .quantity = limit,
            .entries = (uint32_t)limit + 1,
            .window = (1 + weir_rng_below(&rng, 3000)) * WEIR_MILLISECOND,
        };
        uint64_t now_us = MARCH_2024;
        flush();
        for (unsigned i = 0; i < steps; i++) {
            struct weir_algorithm_ask ask = random_permit(&rng);
            now_us += weir_rng_below(&rng, 3) * weir_rng_below(&rng, 20000);
            ask_both(&rule, &ask, now_us);
        }
    }
}

/* A state with only one of its keys left counts as unused, and nothing of it
 * stays. */
static void test_half_of_the_permits_is_none(void **state)
{
    (void)state;
    static const char *const gone[] = { "weir:{half}:permits",
                                        "weir:{half}:permits:entries" };
    const struct weir_algorithm_rule rule = { .algorithm = WEIR_PERMITS,
                                              .quantity = 5,
                                              .entries = 5,
                                              .window = 60 * WEIR_SECOND };
    struct weir_algorithm_answer out;
    for (size_t i = 0; i < WEIR_COUNT_OF(gone); i++) {
        struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_TAKE,
                                          .weight = 5,
                                          .permit = 77 };
        flush();
        ask_named(WEIR_TEXT("half"), &rule, &ask, MARCH_2024, &out);
        assert_true(out.passed && out.used == 5);
        redisReply *reply = redisCommand(redis, "DEL %s", gone[i]);
        assert_int_equal(reply->integer, 1);
        freeReplyObject(reply);
        ask.permit = 78;
        ask_named(WEIR_TEXT("half"), &rule, &ask, MARCH_2024, &out);
        assert_true(out.passed && out.used == 5);
        ask.op = WEIR_ALGORITHM_REFUND;
        ask_named(WEIR_TEXT("half"), &rule, &ask, MARCH_2024, &out);
        reply = redisCommand(redis, "DBSIZE");
        assert_int_equal(reply->integer, 0);
        freeReplyObject(reply);
    }
}

/* Seconds by which a zone's clocks may be set back while a window is kept: it
 * may be kept that much longer. */
static int32_t set_back_s(const struct weir_algorithm_rule *rule)
{
    if (rule->calendar == WEIR_CALENDAR_NONE)
        return 0;
    return rule->calendar == WEIR_CALENDAR_HOUR ? 1800 : 3600;
}

static int32_t kept_longer_s(const struct weir_algorithm_rule *rule)
{
    static const int32_t longer[] = { 0, 60, 3600, 86400, 86400, 86400 };
    return longer[rule->calendar];
}

static long long kept_ms(const struct weir_algorithm_rule *rule,
                         const struct weir_algorithm_ask *ask)
{
    struct weir_script_call call;
    weir_script_call(&call, "weir", NAME, rule, ask);
    redisReply *reply =
        redisCommand(redis, "PTTL %b", call.key[0], call.key_len[0]);
    long long ttl_ms = reply->integer;
    freeReplyObject(reply);
    return ttl_ms;
}

/* A state that a store has expired must be as if it had never been used: the
 * expiry is neither early nor missing. */
static void test_expiry_is_when_a_bucket_state_is_idle(void **state)
{
    (void)state;
    struct shared_rule rules[RULES_MAX];
    size_t count = shared_rules(rules, RULES_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct weir_algorithm_rule *rule = &rules[i].rule;
        struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_CHARGE,
                                          .weight = 2 };
        struct weir_algorithm_answer answer;
        uint64_t now_us = MARCH_2024 + 12345;
        flush();
        weir_algorithm_step(rule, bucket_state, &ask, &answer, now_us * 1000);
        weir_instant before = weir_clock_now();
        ask_script(rule, &ask, now_us, &answer);
        struct weir_algorithm_rule set_back = *rule;
        set_back.utc_offset_s -= set_back_s(rule);
        weir_instant idle =
            weir_algorithm_idle_at(rule, bucket_state, now_us * 1000);
        weir_instant late =
            weir_algorithm_idle_at(&set_back, bucket_state, now_us * 1000);
        long long ttl_ms = kept_ms(rule, &ask);
        /* The part of that time which may be over by now. */
        long long gone_ms = (long long)((weir_clock_now() - before) / 1000000);
        assert_true(ttl_ms > 0 || gone_ms > 9000);
        if (idle == WEIR_NEVER)
            continue;
        long long least_ms = (long long)((late - now_us * 1000) / 1000000);
        long long most_ms = (long long)((idle - now_us * 1000) / 1000000) +
                            (long long)kept_longer_s(rule) * 1000;
        /* The script adds ten seconds. */
        if (ttl_ms > most_ms + 10003 || ttl_ms < least_ms + 9000 - gone_ms)
            fail_msg("%s: forgotten after %lld ms, idle after %lld to %lld",
                     rules[i].name, ttl_ms, least_ms, most_ms);
    }
}

/* A server with a clock that was set back must not let counted units through
 * again. */
static void test_a_clock_that_goes_back_empties_nothing(void **state)
{
    (void)state;
    for (int i = WEIR_LEAKY; i <= WEIR_SLIDING_WINDOW; i++) {
        struct weir_algorithm_rule rule =
            shared_rule_of((enum weir_algorithm)i, 10, WEIR_SECOND);
        struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_CHARGE,
                                          .weight = 40 };
        struct weir_algorithm_answer answer;
        flush();
        ask_script(&rule, &ask, MARCH_2024, &answer);
        ask = (struct weir_algorithm_ask){ .op = WEIR_ALGORITHM_TAKE,
                                           .weight = 5 };
        if (i == WEIR_TOKEN_BUCKETS) /* for its second bucket */
            ask_script(&rule, &ask, MARCH_2024, &answer);
        if (i == WEIR_TOKEN_BUCKETS)
            ask_script(&rule, &ask, MARCH_2024, &answer);
        ask_script(&rule, &ask, MARCH_2024 - 600000000, &answer);
        assert_false(answer.passed);
        ask_script(&rule, &ask, MARCH_2024 - 1, &answer);
        assert_false(answer.passed);
    }
}

/* Another rule under the same name: used units stay used. */
static void test_a_changed_rule_keeps_what_was_used(void **state)
{
    (void)state;
    for (int i = WEIR_LEAKY; i <= WEIR_SLIDING_WINDOW; i++) {
        struct weir_algorithm_rule minute =
            shared_rule_of((enum weir_algorithm)i, 10, 60 * WEIR_SECOND);
        struct weir_algorithm_rule hour =
            shared_rule_of((enum weir_algorithm)i, 20, 3600 * WEIR_SECOND);
        hour.sub_windows = 6;
        struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_CHARGE,
                                          .weight = 8 };
        struct weir_algorithm_answer answer;
        flush();
        ask_script(&minute, &ask, MARCH_2024, &answer);
        ask.op = WEIR_ALGORITHM_PEEK;
        ask_script(&hour, &ask, MARCH_2024 + 1, &answer);
        assert_int_equal(answer.used, 8);
        ask.op = WEIR_ALGORITHM_CHARGE;
        ask_script(&hour, &ask, MARCH_2024 + 2, &answer);
        ask.op = WEIR_ALGORITHM_PEEK;
        ask_script(&minute, &ask, MARCH_2024 + 3, &answer);
        assert_int_equal(answer.used, 16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scripts_answer_as_the_bucket_states),
        cmocka_unit_test(test_permits_answer_as_the_bucket_state),
        cmocka_unit_test(test_half_of_the_permits_is_none),
        cmocka_unit_test(test_expiry_is_when_a_bucket_state_is_idle),
        cmocka_unit_test(test_a_clock_that_goes_back_empties_nothing),
        cmocka_unit_test(test_a_changed_rule_keeps_what_was_used),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
