/* SPDX-License-Identifier: MIT
 * store/shared_state.c - a rule and its bucket state as 64-bit words,
 * little-endian.
 *
 *     magic and length of the rule | the rule | the state
 *
 * The bytes come from outside: an invalid rule, a state with another length
 * than its rule's, or an impossible state is refused. */

#include "store/shared_state.h"

#include <string.h>

/* Clocks of the processes that share a store differ by less than this. */
#define CLOCKS_APART (3600 * WEIR_SECOND)
#define MAGIC 0x3130524945570000ull /* "WEIR01", and two bytes of length */

static void put_state_word(uint8_t *buf, uint64_t word)
{
    for (unsigned i = 0; i < 8; i++)
        buf[i] = (uint8_t)(word >> (8 * i));
}

static uint64_t get_state_word(const uint8_t *buf)
{
    uint64_t word = 0;
    for (unsigned i = 0; i < 8; i++)
        word |= (uint64_t)buf[i] << (8 * i);
    return word;
}

/* ---- The rule ---- */

static uint8_t buckets_of(const struct weir_algorithm_rule *rule)
{
    return rule->buckets < WEIR_BUCKETS_MAX ? rule->buckets : WEIR_BUCKETS_MAX;
}

/* Returns the number of words. */
static size_t rule_words(const struct weir_algorithm_rule *rule,
                         uint64_t words[WEIR_STATE_RULE_WORDS])
{
    size_t n = 0;
    words[n++] =
        (uint64_t)rule->algorithm | (uint64_t)rule->count_limited << 8 |
        (uint64_t)rule->buckets << 16 | (uint64_t)rule->sub_windows << 24 |
        (uint64_t)rule->calendar << 32;
    words[n++] = (uint64_t)(int64_t)rule->utc_offset_s;
    words[n++] = rule->entries;
    words[n++] = rule->window;
    words[n++] = rule->quantity;
    words[n++] = (uint64_t)rule->initial;
    for (uint8_t i = 0; i < buckets_of(rule); i++) {
        const struct weir_algorithm_bucket *bucket = &rule->bucket[i];
        words[n++] = bucket->bucket.leak.part;
        words[n++] = (uint64_t)bucket->bucket.leak.whole |
                     (uint64_t)bucket->bucket.leak.frac << 8 |
                     (uint64_t)bucket->spill << 16;
        words[n++] = (uint64_t)bucket->bucket.low;
        words[n++] = (uint64_t)bucket->bucket.high;
    }
    weir_assert(n <= WEIR_STATE_RULE_WORDS);
    return n;
}

/* Makes a rule of 'count' words; false: they are no valid rule. */
static bool rule_of_words(const uint64_t *words, size_t count,
                          struct weir_algorithm_rule *out)
{
    if (count < 6 || (uint8_t)(words[0] >> 16) > WEIR_BUCKETS_MAX ||
        count != 6 + 4 * (size_t)(uint8_t)(words[0] >> 16))
        return false;
    *out = (struct weir_algorithm_rule){
        .algorithm = (enum weir_algorithm)(words[0] & 0xff),
        .count_limited = words[0] >> 8 & 1,
        .buckets = (uint8_t)(words[0] >> 16),
        .sub_windows = (uint8_t)(words[0] >> 24),
        .calendar = (enum weir_calendar)(words[0] >> 32 & 0xff),
        .utc_offset_s = (int32_t)(int64_t)words[1],
        .entries = (uint32_t)words[2],
        .window = words[3],
        .quantity = words[4],
        .initial = (int64_t)words[5],
    };
    for (uint8_t i = 0; i < out->buckets; i++) {
        const uint64_t *word = words + 6 + 4 * (size_t)i;
        out->bucket[i] = (struct weir_algorithm_bucket){
            .bucket = { .leak = { .part = word[0],
                                  .whole = (uint8_t)word[1],
                                  .frac = (uint8_t)(word[1] >> 8) },
                        .low = (int64_t)word[2],
                        .high = (int64_t)word[3] },
            .spill = word[1] >> 16 & 1,
        };
    }
    return weir_algorithm_check(out);
}

/* ---- Rule and state ---- */

size_t weir_state_pack(const struct weir_algorithm_rule *rule,
                       const uint64_t *state, uint8_t *buf)
{
    uint64_t words[WEIR_STATE_RULE_WORDS];
    size_t count = rule_words(rule, words);
    size_t size = 0;
    put_state_word(buf, MAGIC | count);
    size += 8;
    for (size_t i = 0; i < count; i++, size += 8)
        put_state_word(buf + size, words[i]);
    for (size_t i = 0; i < weir_algorithm_size(rule) / 8; i++, size += 8)
        put_state_word(buf + size, state[i]);
    weir_assert(size <= WEIR_STATE_BYTES_MAX);
    return size;
}

int weir_state_unpack(const struct weir_algorithm_rule *rule,
                      const uint8_t *buf, size_t len, uint64_t *state,
                      weir_instant now)
{
    if (len < 8 || len % 8 != 0 || len > WEIR_STATE_BYTES_MAX)
        return WEIR_EPROTOCOL;
    uint64_t head = get_state_word(buf);
    size_t count = (size_t)(head & 0xffff);
    if ((head & ~0xffffull) != MAGIC || count > WEIR_STATE_RULE_WORDS ||
        len < 8 * (1 + count))
        return WEIR_EPROTOCOL;
    uint64_t words[WEIR_STATE_RULE_WORDS], ours[WEIR_STATE_RULE_WORDS];
    for (size_t i = 0; i < count; i++)
        words[i] = get_state_word(buf + 8 * (1 + i));
    struct weir_algorithm_rule was;
    if (!rule_of_words(words, count, &was) ||
        len != 8 * (1 + count) + weir_algorithm_size(&was))
        return WEIR_EPROTOCOL;

    uint64_t found[WEIR_ALGORITHM_SIZE_MAX / 8];
    size_t size = weir_algorithm_size(&was);
    for (size_t i = 0; i < size / 8; i++)
        found[i] = get_state_word(buf + 8 * (1 + count + i));
    if (!weir_algorithm_sound(&was, found, now + CLOCKS_APART))
        return WEIR_EPROTOCOL;
    memset(state, 0, weir_algorithm_size(rule));
    bool same =
        rule_words(rule, ours) == count && memcmp(words, ours, 8 * count) == 0;
    if (same)
        memcpy(state, found, size);
    else
        weir_algorithm_carry(&was, found, rule, state, now);
    return 0;
}
