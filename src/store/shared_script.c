/* SPDX-License-Identifier: MIT
 * store/shared_script.c - a rule as a script and its arguments.
 *
 * A rule's buckets are scaled for integers; the scripts count in whole units
 * and microseconds, so this file removes both scales. */

#include "store/shared_script.h"

#include <inttypes.h>
#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared_lua.h"

static const char time_of_server[] =
    "local clock = redis.call('TIME')\n"
    "local now = clock[1] * 1000000 + clock[2]\n";
static const char time_given[] = "local now = tonumber(ARGV[#ARGV])\n";

static const struct {
    const char *name;
    const char *text;
} algorithms[] = {
    [WEIR_LEAKY] = { "leaky", weir_lua_shared_bucket },
    [WEIR_LEAKY_QUEUE] = { "leaky_queue", weir_lua_shared_bucket },
    [WEIR_TOKEN_BUCKET] = { "token_bucket", weir_lua_shared_bucket },
    [WEIR_TOKEN_BUCKETS] = { "token_buckets", weir_lua_shared_buckets },
    [WEIR_FIXED_WINDOW] = { "fixed_window", weir_lua_shared_fixed },
    [WEIR_SLIDING_LOG] = { "sliding_log", weir_lua_shared_log },
    [WEIR_SLIDING_WINDOW] = { "sliding_window", weir_lua_shared_sliding },
    [WEIR_PERMITS] = { "permits", weir_lua_shared_permits },
};

const char *weir_script_algorithm(enum weir_algorithm algorithm)
{
    return algorithms[algorithm].name;
}

static void hash_script(struct weir_script *script)
{
    unsigned char digest[SHA_DIGEST_LENGTH];
    SHA1((const unsigned char *)script->text, script->len, digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        snprintf(script->id + 2 * i, 3, "%02x", digest[i]);
}

int weir_script_init(struct weir_script *script, enum weir_algorithm algorithm,
                     enum weir_script_time time)
{
    const char *pieces[] = {
        time == WEIR_SCRIPT_TIME_SERVER ? time_of_server : time_given,
        weir_lua_shared_common,
        algorithms[algorithm].text,
    };
    size_t size = 1;
    for (size_t i = 0; i < WEIR_COUNT_OF(pieces); i++)
        size += strlen(pieces[i]);
    script->text = calloc(1, size);
    if (!script->text)
        return WEIR_ENOMEM;
    script->len = 0;
    for (size_t i = 0; i < WEIR_COUNT_OF(pieces); i++) {
        size_t len = strlen(pieces[i]);
        memcpy(script->text + script->len, pieces[i], len);
        script->len += len;
    }
    weir_assert(script->len == size - 1);
    hash_script(script);
    return 0;
}

void weir_script_fini(struct weir_script *script)
{
    free(script->text);
    script->text = NULL;
}

/* ---- Arguments ---- */

static void add_double(struct weir_script_call *call, double value)
{
    weir_assert(call->arguments < WEIR_SCRIPT_ARGUMENTS_MAX - 1);
    snprintf(call->argument[call->arguments++], WEIR_SCRIPT_ARGUMENT_MAX,
             "%.17g", value);
}

static void add_integer(struct weir_script_call *call, int64_t value)
{
    weir_assert(call->arguments < WEIR_SCRIPT_ARGUMENTS_MAX - 1);
    snprintf(call->argument[call->arguments++], WEIR_SCRIPT_ARGUMENT_MAX,
             "%" PRId64, value);
}

static void add_script_word(struct weir_script_call *call, const char *word)
{
    weir_assert(call->arguments < WEIR_SCRIPT_ARGUMENTS_MAX - 1);
    snprintf(call->argument[call->arguments++], WEIR_SCRIPT_ARGUMENT_MAX, "%s",
             word);
}

static double unscaled(const struct weir_bucket *bucket, int64_t scaled)
{
    return ldexp((double)scaled, -(int)bucket->leak.frac);
}

/* Units per microsecond. */
static double bucket_rate(const struct weir_bucket *bucket)
{
    double per_ns = bucket->leak.whole + ldexp((double)bucket->leak.part, -64);
    return ldexp(per_ns, -(int)bucket->leak.frac) * 1000;
}

/* As in algorithm_word.c: for a token bucket only, unless it refuses nothing or
 * everything. */
static double bucket_first_fill(const struct weir_algorithm_rule *rule)
{
    const struct weir_bucket *bucket = &rule->bucket[0].bucket;
    if (rule->algorithm != WEIR_TOKEN_BUCKET || rule->initial < 0 ||
        bucket->high < 0 || bucket->high == WEIR_SCALED_MAX)
        return 0;
    return unscaled(bucket, bucket->high) - (double)rule->initial;
}

static void add_bucket_words(struct weir_script_call *call,
                             const struct weir_algorithm_rule *rule)
{
    const struct weir_bucket *bucket = &rule->bucket[0].bucket;
    add_double(call, bucket_rate(bucket));
    add_double(call, unscaled(bucket, bucket->high));
    add_double(call, bucket_first_fill(rule));
    add_integer(call, rule->algorithm == WEIR_LEAKY_QUEUE);
}

static void add_buckets(struct weir_script_call *call,
                        const struct weir_algorithm_rule *rule, uint8_t level)
{
    add_integer(call, level);
    add_integer(call, rule->buckets);
    for (size_t i = 0; i < rule->buckets; i++) {
        const struct weir_algorithm_bucket *bucket = &rule->bucket[i];
        add_double(call, bucket_rate(&bucket->bucket));
        add_double(call, unscaled(&bucket->bucket, bucket->bucket.high));
        add_integer(call, bucket->spill);
    }
}

/* The arguments that the windows and the log share. */
static void add_window(struct weir_script_call *call,
                       const struct weir_algorithm_rule *rule)
{
    add_integer(call, (int64_t)rule->quantity);
    add_double(call, (double)rule->window / 1000);
    add_integer(call, rule->count_limited);
}

/* The id as text: a double wouldn't hold it. */
static void add_permits(struct weir_script_call *call,
                        const struct weir_algorithm_rule *rule, uint64_t permit)
{
    add_integer(call, (int64_t)rule->quantity);
    add_double(call, (double)rule->window / 1000);
    snprintf(call->argument[call->arguments++], WEIR_SCRIPT_ARGUMENT_MAX,
             "%016" PRIx64, permit);
}

static void add_rule_words(struct weir_script_call *call,
                           const struct weir_algorithm_rule *rule,
                           const struct weir_algorithm_ask *ask)
{
    switch (rule->algorithm) {
    case WEIR_LEAKY:
    case WEIR_LEAKY_QUEUE:
    case WEIR_TOKEN_BUCKET:
        add_bucket_words(call, rule);
        return;
    case WEIR_TOKEN_BUCKETS:
        add_buckets(call, rule, ask->level);
        return;
    case WEIR_FIXED_WINDOW:
        add_window(call, rule);
        add_integer(call, rule->calendar);
        add_integer(call, rule->utc_offset_s);
        return;
    case WEIR_SLIDING_LOG:
        add_window(call, rule);
        add_integer(call, rule->entries);
        return;
    case WEIR_SLIDING_WINDOW:
        add_window(call, rule);
        add_integer(call, rule->sub_windows);
        return;
    case WEIR_PERMITS:
        add_permits(call, rule, ask->permit);
        return;
    }
}

/* ---- A call ---- */

/* Writes the name, escaped so that it can't end the hash tag; returns its
 * length. */
static size_t tagged(struct weir_text name, char *out)
{
    size_t len = 0;
    for (size_t i = 0; i < name.len; i++) {
        const char *escape = name.p[i] == '}'   ? "%7D"
                             : name.p[i] == '%' ? "%25"
                                                : NULL;
        if (escape) {
            memcpy(out + len, escape, 3);
            len += 3;
        } else {
            out[len++] = name.p[i];
        }
    }
    return len;
}

static void add_key(struct weir_script_call *call, const char *prefix,
                    struct weir_text name, const char *algorithm,
                    const char *part)
{
    weir_assert(call->keys < WEIR_SCRIPT_KEYS_MAX);
    char *key = call->key[call->keys];
    int head = snprintf(key, WEIR_SCRIPT_KEY_MAX, "%s:{", prefix);
    weir_assert(head > 0 &&
                (size_t)head + 3 * name.len + 40 < WEIR_SCRIPT_KEY_MAX);
    size_t len = (size_t)head + tagged(name, key + head);
    int tail = snprintf(key + len, WEIR_SCRIPT_KEY_MAX - len, "}:%s%s",
                        algorithm, part);
    call->key_len[call->keys++] = len + (size_t)tail;
}

void weir_script_call(struct weir_script_call *out, const char *prefix,
                      struct weir_text name,
                      const struct weir_algorithm_rule *rule,
                      const struct weir_algorithm_ask *ask)
{
    static const char *const ops[] = {
        [WEIR_ALGORITHM_TAKE] = "take",
        [WEIR_ALGORITHM_PEEK] = "peek",
        [WEIR_ALGORITHM_CHARGE] = "charge",
        [WEIR_ALGORITHM_REFUND] = "refund",
        [WEIR_ALGORITHM_RESERVE] = "reserve",
    };
    out->keys = 0;
    out->arguments = 0;
    const char *algorithm = algorithms[rule->algorithm].name;
    add_key(out, prefix, name, algorithm, "");
    if (rule->algorithm == WEIR_SLIDING_LOG || rule->algorithm == WEIR_PERMITS)
        add_key(out, prefix, name, algorithm, ":entries");
    add_script_word(out, ops[ask->op]);
    add_integer(out, (int64_t)ask->weight);
    add_double(out, (double)ask->wait_max / 1000);
    add_rule_words(out, rule, ask);
}

/* ---- An answer ---- */

static bool is_time(int64_t us)
{
    return us >= -1;
}

static weir_duration duration_of_us(int64_t us)
{
    if (us < 0 || (uint64_t)us > WEIR_NEVER / 1000)
        return WEIR_NEVER;
    return (weir_duration)us * 1000;
}

int weir_script_answer(const int64_t *integers, size_t count,
                       struct weir_algorithm_answer *out)
{
    if (count != WEIR_SCRIPT_ANSWER_LEN || (integers[0] | 1) != 1 ||
        (integers[1] | 1) != 1 || integers[2] < 0 ||
        integers[2] >= WEIR_BUCKETS_MAX || integers[4] < 0 ||
        !is_time(integers[5]) || !is_time(integers[6]))
        return WEIR_EPROTOCOL;
    *out = (struct weir_algorithm_answer){
        .passed = integers[0] == 1,
        .never = integers[1] == 1,
        .level = (uint8_t)integers[2],
        .used = integers[3],
        .remaining = (uint64_t)integers[4],
        .retry_after = duration_of_us(integers[5]),
        .wait = duration_of_us(integers[6]),
    };
    return 0;
}
