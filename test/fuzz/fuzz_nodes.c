/* SPDX-License-Identifier: MIT
 * fuzz_nodes.c - peers that lie: the input's bytes are choices from which
 * messages are made that a decoder accepts, with any number in them. A root, a
 * limiter and a region's root, which is both, take them in any order, with
 * links that come and go, and must neither crash nor overflow. */

#include <stdlib.h>
#include <string.h>

#include "node/limiter.h"
#include "node/region.h"
#include "os/clock.h"

#define SLOTS 16
#define ROWS 8
#define START (1000 * WEIR_SECOND)

struct input {
    const uint8_t *data;
    size_t size;
};

static uint64_t number(struct input *in)
{
    uint64_t value = 0;
    size_t take = in->size < 8 ? in->size : 8;
    /* A short number mostly: the first byte says how long. */
    if (take > 0 && (in->data[0] & 3) != 0)
        take = 1 + (take > 1);
    memcpy(&value, in->data, take);
    in->data += take;
    in->size -= take;
    return value;
}

static const char *const names[] = { "all", "t/a", "t/b", "nobody" };

static struct weir_change change_of(struct input *in, uint64_t epoch)
{
    struct weir_change change = { .removed = number(in) % 8 == 7 };
    struct weir_quota *quota = &change.quota;
    weir_quota_init(quota);
    quota->name = weir_text_of(number(in) % 2 ? "t/*" : "all");
    if (quota->name.len == 3 && quota->name.p[0] == 't')
        quota->parent = WEIR_TEXT("all");
    quota->limit.units = number(in) % WEIR_LIMIT_MAX;
    quota->limit.per = WEIR_SECOND;
    quota->limit.unlimited = number(in) % 4 == 3;
    quota->created = number(in) % 3;
    quota->epoch = epoch;
    if (weir_quota_check(quota, NULL) < 0)
        quota->limit.unlimited = true;
    return change;
}

static void feed_root(struct weir_root *root, struct weir_region *region,
                      struct input *in, weir_instant now)
{
    struct weir_announce announces[ROWS];
    struct weir_count counts[ROWS];
    struct weir_message message = { .type = WEIR_MESSAGE_REPORT,
                                    .session = 1 + number(in) % 3 };
    if (number(in) % 4 == 0) {
        message.type = WEIR_MESSAGE_HELLO;
        message.hello = (struct weir_hello){
            .protocol = WEIR_PROTOCOL,
            .incarnation = { (uint8_t)(number(in) % 3) },
            .epoch = number(in),
        };
        message.hello.region = message.hello.epoch & 1;
    } else {
        struct weir_report *report = &message.report;
        *report = (struct weir_report){
            .number = number(in) % 8,
            .epoch = number(in),
            .late_from = number(in),
            .announce_count = number(in) % ROWS,
            .announces = announces,
            .count = number(in) % ROWS,
            .counts = counts,
        };
        report->carried = report->number & 1;
        for (size_t i = 0; i < report->announce_count; i++) {
            announces[i] = (struct weir_announce){
                .slot = (uint32_t)number(in),
                .name = weir_text_of(names[number(in) % 4]),
                .created = number(in) % 3,
                .base = number(in),
                .refused = number(in),
                .fill = (int64_t)number(in),
                .witnessed = number(in) & 1,
            };
            announces[i].sank = announces[i].base & 1;
        }
        for (size_t i = 0; i < report->count; i++) {
            counts[i] = (struct weir_count){
                .slot = (uint32_t)number(in) % 64,
                .passed = (int64_t)number(in),
                .refused = number(in),
                .late = (int64_t)number(in),
                .pace = number(in) % (WEIR_PACE_MAX + 1),
            };
            /* Of the same bytes, so that inputs keep their meaning. */
            counts[i].carry = counts[i].passed ^ counts[i].late;
            counts[i].ahead = counts[i].refused % (WEIR_AHEAD_MAX + 1);
        }
    }
    uint32_t peer = (uint32_t)(number(in) % 2);
    weir_root_receive(root, peer, &message, now);
    weir_root_receive(weir_region_root(region), peer, &message, now);
}

/* The sessions of the limiter's link, and of the region's to the root above. */
struct sessions {
    uint64_t limiter, region;
};

static void feed_limiter(struct weir_limiter *limiter,
                         struct weir_region *region, struct input *in,
                         const struct sessions *sessions, weir_instant now)
{
    struct weir_fill fills[ROWS];
    struct weir_change changes[1];
    struct weir_message message = { .session = sessions->limiter };
    switch (number(in) % 3) {
    case 0:
        message.type = WEIR_MESSAGE_WELCOME;
        message.welcome = (struct weir_welcome){
            .protocol = WEIR_PROTOCOL,
            .incarnation = { (uint8_t)number(in) },
            .age = number(in),
            .ready = number(in) & 1,
            .epoch = number(in),
            .settings = { .report_interval = 10 * WEIR_MILLISECOND,
                          .stale_after = WEIR_SECOND,
                          .slack = number(in) & 1,
                          .correction_auto = number(in) & 1 },
        };
        message.welcome.carries = message.welcome.age & 1;
        message.welcome.last_session = message.welcome.epoch;
        message.welcome.last_number = message.welcome.epoch % 8;
        message.welcome.top_age = message.welcome.age;
        break;
    case 1:
        message.type = WEIR_MESSAGE_QUOTAS;
        changes[0] = change_of(in, number(in));
        message.quotas = (struct weir_quotas){
            .full = number(in) & 1,
            .from = number(in),
            .epoch = changes[0].quota.epoch,
            .target = number(in),
            .count = 1,
            .changes = changes,
        };
        break;
    default:
        message.type = WEIR_MESSAGE_FILLS;
        message.fills = (struct weir_fills){
            .answer = number(in) & 1,
            .number = number(in) % 8,
            .stamp = number(in),
            .limiters = (uint32_t)number(in),
            .count = number(in) % ROWS,
            .fills = fills,
        };
        message.fills.top_age = message.fills.stamp;
        for (size_t i = 0; i < message.fills.count; i++)
            fills[i] = (struct weir_fill){ (uint32_t)number(in) % SLOTS,
                                           (int64_t)number(in), number(in),
                                           message.fills.limiters };
    }
    weir_limiter_receive(limiter, 0, &message, now);
    message.session = sessions->region;
    weir_region_up_receive(region, 0, &message, now);
}

static void take(struct weir_table *table, struct input *in,
                 weir_instant now)
{
    struct weir_ref ref;
    struct weir_text name = weir_text_of(names[number(in) % 4]);
    if (weir_table_resolve(table, name, false, &ref, now) !=
        WEIR_RESOLVED_NONE)
        weir_table_take(table, 0, ref, number(in), NULL, now);
}

static void play(struct weir_root *root, struct weir_table *table,
                 struct weir_limiter *limiter, struct weir_region *region,
                 struct input *in)
{
    weir_instant now = START;
    struct weir_message message;
    struct sessions sessions = { 0 };
    uint64_t epoch = 1;
    uint32_t peer;
    for (int steps = 0; in->size > 0 && steps < 500; steps++) {
        uint64_t what = number(in) % 8;
        if (what == 0) {
            struct weir_change change = change_of(in, ++epoch);
            weir_root_apply(root, &change, now);
            weir_root_settle(root, now);
        } else if (what == 1) {
            uint64_t up = number(in);
            weir_root_link(root, up % 2, up & 2, now);
            weir_limiter_link(limiter, 0, up & 4, now);
            weir_root_link(weir_region_root(region), up % 2, up & 2, now);
            weir_region_up_link(region, 0, up & 4, now);
        } else if (what < 5) {
            feed_root(root, region, in, now);
        } else if (what < 7) {
            feed_limiter(limiter, region, in, &sessions, now);
        } else {
            take(table, in, now);
        }
        now += number(in) % (20 * WEIR_SECOND);
        weir_root_tick(root, now);
        weir_limiter_tick(limiter, now);
        weir_region_tick(region, now);
        while (weir_root_next(root, &peer, &message, now))
            continue;
        while (weir_root_next(weir_region_root(region), &peer, &message, now))
            continue;
        while (weir_limiter_next(limiter, &peer, &message, now))
            sessions.limiter = message.session;
        while (weir_region_up_next(region, &peer, &message, now))
            sessions.region = message.session;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char block[1 << 20] __attribute__((aligned(64)));
    static char state[4 << 20] __attribute__((aligned(64)));
    struct weir_table_options options = { .slots = SLOTS, .stripes = 2 };
    memset(block, 0, weir_table_size(&options));
    struct weir_table *table = weir_table_init(block, &options, START);
    struct weir_limiter_options of_limiter = { .table = table,
                                               .slots = SLOTS,
                                               .links = 1 };
    if (weir_limiter_size(&of_limiter) > sizeof(state))
        abort();
    memset(state, 0, weir_limiter_size(&of_limiter));
    struct weir_limiter *limiter =
        weir_limiter_init(state, &of_limiter, START);
    struct weir_root_options of_root = {
        .mem = weir_mem_system,
        .peers_max = 2,
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
    };
    struct weir_root *root = weir_root_new(&of_root, START);
    struct weir_region_options of_region = { .root = of_root,
                                             .upstreams = 1,
                                             .slots = SLOTS };
    struct weir_region *region = weir_region_new(&of_region, START);
    struct input in = { data, size };
    play(root, table, limiter, region, &in);
    weir_region_free(region);
    weir_root_free(root);
    return 0;
}
