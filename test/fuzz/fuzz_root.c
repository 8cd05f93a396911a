/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_root.c - any bytes as the messages of two peers of a root that
 * has quotas of every sharing: decode, receive, merge, answer. A limiter's
 * decoder must accept the root's answers.
 *
 * An input is a sequence of records: a byte that gives the peer, whether its
 * link is new and how much time has passed; two bytes of length (little
 * endian); and that many bytes of a weir.v1.ToRoot. Unlike fuzz_nodes it makes
 * no messages of its own: the decoder reads them from the input, with the
 * input's numbers. */

#include <stdlib.h>
#include <string.h>

#include "codec/weir_v1.h"
#include "codec/yaml.h"
#include "core/node/root_lease.h"
#include "io/clock.h"

#define PEERS 2
#define RECORDS_MAX 200
#define ARENA_SIZE (4u << 20)
#define START (1000 * WEIR_SECOND)
#define RECORD_HEAD 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char set[] =
    "weir: 1\n"
    "quotas:\n"
    "- {name: all, limit: 100/s}\n"
    "- {name: 't/*', limit: 10/s, parent: all}\n"
    "- {name: free, limit: unlimited}\n"
    "- {name: day, limit: 1000/day, low_burst: 10, high_burst: 20}\n"
    "- {name: gate, kind: concurrency, limit: 5}\n"
    "- {name: 'x/*', limit: 10/s, sharing: exact}\n"
    "- {name: window, limit: 10/min, sharing: exact, algorithm: fixed_window}\n"
    "- {name: log, limit: 10/min, sharing: exact, algorithm: sliding_log}\n"
    "- {name: permits, kind: concurrency, limit: 5, sharing: exact}\n"
    "- {name: 'l/*', limit: 100/s, sharing: leased}\n"
    "- {name: 'f/*', kind: concurrency, sharing: adaptive, scope: fleet}\n"
    "- {name: fleet, kind: concurrency, sharing: adaptive, scope: fleet,\n"
    "   fleet_max: 0.5, percentile: 99.99}\n";

static void apply_set(struct weir_root *root, weir_instant now)
{
    static struct weir_yaml *yaml;
    static struct weir_quota *quotas;
    static size_t count;
    struct weir_diag diag;
    if (!yaml &&
        weir_yaml_parse(weir_text_of(set), &yaml, &quotas, &count, &diag) < 0)
        abort();
    for (size_t i = 0; i < count; i++) {
        struct weir_change change = { .quota = quotas[i] };
        change.quota.id = i + 1;
        change.quota.epoch = i + 1;
        change.quota.created = i + 1;
        if (weir_root_apply(root, &change, now) < 0)
            abort();
    }
    weir_root_settle(root, now);
    weir_root_lease_begin(root, 1, WEIR_NEVER, now);
}

/* A limiter must be able to decode this answer. */
static void check_told(const struct weir_message *message)
{
    static unsigned char block[ARENA_SIZE];
    static uint8_t bytes[WEIR_MESSAGE_BYTES_MAX];
    struct weir_arena arena = { block, sizeof block, 0 };
    struct weir_message read;
    size_t len = weir_v1_encode(message, bytes, sizeof bytes);
    weir_assert(len > 0 && len == weir_v1_size(message));
    weir_assert(weir_v1_decode(bytes, len, false, &arena, &read) == 0);
}

static void pump(struct weir_root *root, weir_instant now)
{
    uint32_t peer;
    struct weir_message message;
    weir_root_tick(root, now);
    while (weir_root_next(root, &peer, &message, now)) {
        weir_assert(peer < PEERS);
        check_told(&message);
    }
}

/* Reads the views of the merged state. */
static void look(struct weir_root *root, weir_instant now)
{
    struct weir_usage usage;
    struct weir_limiter_usage limiter;
    size_t cursor = 0;
    while (weir_root_usage(root, &cursor, &usage, now))
        weir_assert(usage.name.len > 0);
    cursor = 0;
    while (weir_root_limiter_usage(root, &cursor, &limiter, now))
        weir_assert(limiter.name.len <= WEIR_NAME_MAX);
}

/* Links a peer; the second one may take only from some names. */
static void link_up(struct weir_root *root, uint32_t peer, weir_instant now)
{
    static struct weir_name_set set;
    const struct weir_root_names names = { .set = &set };
    if (set.len == 0 && (weir_name_set_add(&set, WEIR_TEXT("t/*")) < 0 ||
                         weir_name_set_add(&set, WEIR_TEXT("x/*")) < 0))
        abort();
    weir_root_link(root, peer, true, now);
    if (peer > 0)
        weir_root_limit_names(root, peer, &names);
}

/* A refused message costs the peer its link, as at the port of weir serve. */
static void receive(struct weir_root *root, uint32_t peer, const uint8_t *bytes,
                    size_t len, weir_instant now)
{
    static unsigned char block[ARENA_SIZE];
    struct weir_arena arena = { block, sizeof block, 0 };
    struct weir_message message;
    int error = weir_v1_decode(bytes, len, true, &arena, &message);
    if (error == 0)
        error = weir_root_receive(root, peer, &message, now);
    if (error == 0)
        return;
    weir_root_link(root, peer, false, now);
    link_up(root, peer, now);
}

static void play(struct weir_root *root, const uint8_t *data, size_t size)
{
    static const weir_duration steps[] = { 0, WEIR_MILLISECOND, WEIR_SECOND,
                                           100 * WEIR_SECOND };
    weir_instant now = START;
    for (uint32_t peer = 0; peer < PEERS; peer++)
        link_up(root, peer, now);
    for (int i = 0; i < RECORDS_MAX && size >= RECORD_HEAD; i++) {
        uint32_t peer = data[0] & 1;
        bool again = data[0] & 2; /* it comes by a new link */
        size_t len = (size_t)data[1] | (size_t)data[2] << 8;
        now += steps[data[0] >> 2 & 3];
        data += RECORD_HEAD;
        size -= RECORD_HEAD;
        len = len < size ? len : size;
        if (again) {
            weir_root_link(root, peer, false, now);
            link_up(root, peer, now);
        }
        receive(root, peer, data, len, now);
        pump(root, now);
        look(root, now);
        data += len;
        size -= len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_root_options options = {
        .mem = weir_mem_system,
        .peers_max = PEERS,
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
    };
    struct weir_root *root = weir_root_new(&options, START);
    weir_assert(root);
    apply_set(root, START);
    play(root, data, size);
    weir_root_free(root);
    return 0;
}
