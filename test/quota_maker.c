/* SPDX-License-Identifier: MIT
 * test/quota_maker.c - random quotas, and the seed they come from.
 *
 * Texts are made of the pieces that break parsers: quotes, colons, leading
 * blanks, words that YAML takes for something else, characters of every
 * UTF-8 length. */

#include "quota_maker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const pieces[] = {
    "a", "Z9", "/", "_", "-", ".", " ", "  ", ":", ": ", " #", "#", "'",
    "\"", "\\", "\\n", "%", "@", "`", "[", "]", ",", "&x", "!t", "|", ">",
    "?", "- ", "null", "~", "true", "no", "1e3", "0x10", "=", "<<",
    "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xEF\xBB\xBF",
    "\xEF\xBF\xBE", "\xE2\x80\xA8", "\xC2\xA0", "---", "...", "x\\u0041",
};

struct weir_rng maker_seed(const char *what)
{
    const char *given = getenv("WEIR_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0)
                          : (uint64_t)time(NULL) * 1000003u;
    printf("%s: WEIR_SEED=%llu\n", what, (unsigned long long)seed);
    return (struct weir_rng){ seed };
}

static void *maker_alloc(void *context, size_t size)
{
    (void)context;
    return calloc(1, size);
}

static void maker_free(void *context, void *p, size_t size)
{
    (void)context;
    (void)size;
    free(p);
}

const struct weir_mem maker_mem = { NULL, maker_alloc, maker_free };

static size_t make_text(struct weir_rng *rng, char *buf, size_t room,
                        size_t most)
{
    size_t len = 0;
    for (size_t i = weir_rng_below(rng, most + 1); i > 0; i--) {
        const char *piece = pieces[weir_rng_below(rng,
                                                  WEIR_COUNT_OF(pieces))];
        size_t piece_len = strlen(piece);
        if (len + piece_len > room)
            break;
        memcpy(buf + len, piece, piece_len);
        len += piece_len;
    }
    return len;
}

struct weir_limit make_limit(struct weir_rng *rng)
{
    static const weir_duration periods[] = {
        1, 1000, 1000000, WEIR_SECOND, 60 * WEIR_SECOND,
        3600 * WEIR_SECOND, 86400 * WEIR_SECOND, 604800 * WEIR_SECOND,
    };
    struct weir_limit limit = { .per = WEIR_SECOND };
    limit.unlimited = weir_rng_below(rng, 16) == 0;
    if (limit.unlimited)
        return limit;
    limit.per = periods[weir_rng_below(rng, WEIR_COUNT_OF(periods))] *
                (1 + (weir_rng_next(rng) & 1 ? weir_rng_below(rng, 52) : 0));
    if (weir_rng_below(rng, 4) == 0)
        limit.per = 1 + weir_rng_below(rng, WEIR_PERIOD_MAX);
    weir_u128 most = (weir_u128)WEIR_LIMIT_MAX * limit.per / WEIR_SECOND;
    limit.units = weir_rng_below(rng, (uint64_t)most + 1) >>
                  weir_rng_below(rng, 64);
    return limit;
}

struct weir_burst make_burst(struct weir_rng *rng)
{
    struct weir_burst burst = { .in_time = weir_rng_next(rng) & 1 };
    uint64_t most = burst.in_time ? WEIR_PERIOD_MAX : WEIR_BURST_MAX;
    burst.amount = weir_rng_below(rng, most + 1) >> weir_rng_below(rng, 55);
    if (weir_rng_below(rng, 3) == 0)
        burst.amount = burst.amount / 1000000 * 1000000;
    return burst;
}

static void make_bursts(struct weir_rng *rng, struct weir_quota *quota)
{
    struct weir_burst unset = quota->low_burst;
    do {
        quota->low_burst = weir_rng_below(rng, 3) ? make_burst(rng) : unset;
        quota->high_burst = weir_rng_below(rng, 3) ? make_burst(rng) : unset;
    } while (weir_quota_check(quota, NULL) < 0);
}

static void make_labels(struct weir_rng *rng, struct made_quota *out)
{
    char raw[WEIR_LABELS_MAX];
    size_t len = 0;
    for (size_t i = weir_rng_below(rng, 4); i > 0; i--) {
        char value[64];
        size_t value_len = make_text(rng, value, sizeof(value), 5);
        len += (size_t)snprintf(raw + len, sizeof(raw) - len,
                                "key.%u/%c=%.*s\n", (unsigned)i,
                                (char)('a' + weir_rng_below(rng, 26)),
                                (int)value_len, value);
    }
    struct weir_text text = { raw, len };
    if (weir_labels_parse(text, out->labels, &out->quota.labels, NULL) < 0)
        abort();
}

void make_quota(struct weir_rng *rng, unsigned number,
                struct made_quota *out)
{
    struct weir_quota *quota = &out->quota;
    weir_quota_init(quota);
    size_t len = make_text(rng, out->name, 100, 8);
    if (weir_rng_below(rng, 8) == 0)
        out->name[len++] = '*';
    len += (size_t)snprintf(out->name + len, 16, "%u", number);
    quota->name = (struct weir_text){ out->name, len };
    quota->description = (struct weir_text){
        out->description, make_text(rng, out->description, 1024, 12)
    };
    for (size_t i = 0; i < quota->description.len; i++) {
        if (out->description[i] == '_')
            out->description[i] = '\n';
    }
    make_labels(rng, out);
    quota->limit = make_limit(rng);
    quota->sharing = (enum weir_sharing)(1 + weir_rng_below(rng, 2));
    quota->mode = (enum weir_mode)(1 + weir_rng_below(rng, 3));
    quota->on_stale = (enum weir_on_stale)(1 + weir_rng_below(rng, 4));
    quota->order = (uint32_t)weir_rng_next(rng) >> weir_rng_below(rng, 32);
    make_bursts(rng, quota);
}
