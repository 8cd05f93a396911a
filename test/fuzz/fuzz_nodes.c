/* SPDX-License-Identifier: MIT
 * fuzz_nodes.c - lying peers: messages that a decoder accepts are made from
 * the input's bytes, with any numbers in them. A root, a limiter and a region's
 * root (which is both) receive them in any order, while links come and go, and
 * must neither crash nor overflow. */

#include <stdlib.h>
#include <string.h>

#include "codec/weir_v1.h"
#include "core/concurrency/concurrency_gate.h"
#include "core/node/limiter.h"
#include "core/node/region.h"
#include "core/node/root_lease.h"
#include "core/quota/quota_adaptive.h"
#include "io/clock.h"

#define SLOTS 16
#define ROWS 8
#define START (1000 * WEIR_SECOND)

struct input {
    const uint8_t *data;
    size_t size;
    bool asks;   /* starts with 'a': quotas may be exact, and asks come too;
                * so older inputs keep their meaning */
    bool leases; /* starts with 'l': also leased quotas, wants and grants */
    bool fleets; /* starts with 'f': also adaptive ones, of fleets, windows */
};

static uint64_t number(struct input *in)
{
    uint64_t value = 0;
    size_t take = in->size < 8 ? in->size : 8;
    /* Mostly a short number; the first byte gives its length. */
    if (take > 0 && (in->data[0] & 3) != 0)
        take = 1 + (take > 1);
    memcpy(&value, in->data, take);
    in->data += take;
    in->size -= take;
    return value;
}

static const char *const names[] = { "all", "t/a", "t/b", "nobody" };

/* Makes an exact quota of any algorithm; most are sound. */
static void make_exact(struct weir_quota *quota, uint64_t chance)
{
    quota->sharing = WEIR_EXACT;
    quota->algorithm = (enum weir_algorithm)(1 + chance % 7);
    quota->limit.per = chance & 8 ? 7 * WEIR_MILLISECOND : WEIR_SECOND;
    quota->on_stale = WEIR_STALE_SHARE;
    quota->count_limited = chance & 16;
    if (quota->algorithm == WEIR_FIXED_WINDOW && chance & 32) {
        quota->limit.per = 86400 * WEIR_SECOND;
        quota->window = (struct weir_window){ .length = quota->limit.per,
                                              .calendar = WEIR_CALENDAR_DAY };
        quota->tz = chance & 64 ? WEIR_TEXT("+05:30") : WEIR_TEXT("Some/Zone");
    }
    if (quota->algorithm == WEIR_SLIDING_WINDOW)
        quota->sub_windows = 1 + (uint32_t)(chance >> 8) % 60;
    if (quota->algorithm == WEIR_SLIDING_LOG)
        quota->max_entries = 1 + (uint32_t)(chance >> 8) % 64;
    if (quota->algorithm == WEIR_TOKEN_BUCKET)
        quota->initial = (struct weir_burst){ .amount = chance >> 8 };
    if (quota->algorithm == WEIR_TOKEN_BUCKETS)
        quota->next_buckets = WEIR_TEXT("100/s:50, 1/day:5");
}

static void make_leased(struct weir_quota *quota, uint64_t chance)
{
    quota->sharing = WEIR_LEASED;
    quota->share_algorithm = (enum weir_share_algorithm)(1 + chance % 5);
    quota->on_stale = (enum weir_on_stale)(1 + (chance >> 3) % 4);
    quota->lease = WEIR_SECOND * (1 + (chance >> 8) % 60);
    quota->refresh = quota->lease / (1 + (chance >> 16) % 8);
    quota->learning = chance & 32 ? 0 : quota->lease;
}

static void make_adaptive(struct weir_quota *quota, uint64_t chance)
{
    quota->kind = WEIR_CONCURRENCY;
    quota->sharing = WEIR_ADAPTIVE;
    quota->scope = chance & 32 ? WEIR_SCOPE_FLEET : WEIR_SCOPE_PROCESS;
    quota->target = WEIR_MILLISECOND * (1 + (chance >> 8) % 1000);
    quota->on_stale = (enum weir_on_stale)(1 + (chance >> 3) % 4);
    quota->max = chance & 64 ? WEIR_DECIMAL_ONE / 4 : 0;
}

static int32_t zone_offset(void *context, struct weir_text zone)
{
    (void)context;
    return (int32_t)zone.len * 1800 - 43200;
}

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
    uint64_t chance = in->asks ? number(in) : 0;
    if (chance & 0x80)
        make_exact(quota, chance);
    else if (in->fleets && chance & 7)
        make_adaptive(quota, chance);
    else if (in->leases)
        make_leased(quota, chance);
    if (weir_quota_check(quota, NULL) == 0)
        return change;
    struct weir_text name = quota->name;
    weir_quota_init(quota);
    quota->name = name;
    quota->epoch = epoch;
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
            .echo = in->leases ? number(in) : 0,
            .announce_count = number(in) % ROWS,
            .announces = announces,
            .count = number(in) % ROWS,
            .counts = counts,
        };
        report->carried = report->number & 1;
        report->no_room = report->number & 2;
        report->again = report->number & 4;
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
            announces[i].in_flight = announces[i].base >> 1 & 1;
        }
        for (size_t i = 0; i < report->count; i++) {
            counts[i] = (struct weir_count){
                .slot = (uint32_t)number(in) % 64,
                .passed = (int64_t)number(in),
                .refused = number(in),
                .late = (int64_t)number(in),
                .pace = number(in) % (WEIR_PACE_MAX + 1),
            };
            /* From the same bytes, so that inputs keep their meaning. */
            counts[i].carry = counts[i].passed ^ counts[i].late;
            counts[i].ahead = counts[i].refused % (WEIR_AHEAD_MAX + 1);
        }
    }
    uint32_t peer = (uint32_t)(number(in) % 2);
    weir_root_receive(root, peer, &message, now);
    weir_root_receive(weir_region_root(region), peer, &message, now);
}

/* Asks within the decoder's bounds. */
static void feed_asks(struct weir_root *root, struct weir_region *region,
                      struct input *in, weir_instant now)
{
    struct weir_step_ask asks[ROWS];
    struct weir_message message = { .type = WEIR_MESSAGE_ASKS,
                                    .session = 1 + number(in) % 3 };
    uint64_t before = number(in);
    size_t count = 1 + number(in) % (ROWS - 1);
    for (size_t i = 0; i < count && before < UINT64_MAX; i++) {
        asks[i] = (struct weir_step_ask){
            .number = before + 1,
            .name = weir_text_of(names[number(in) % 4]),
            .ask = { .op = (enum weir_algorithm_op)(1 + number(in) % 5),
                     .weight = number(in) % (WEIR_WEIGHT_MAX + 1),
                     .wait_max = number(in),
                     .permit = number(in),
                     .level = (uint8_t)(number(in) % WEIR_BUCKETS_MAX) },
            .patience = number(in),
        };
        before = asks[i].number;
        message.asks = (struct weir_asks){ .count = i + 1, .asks = asks };
    }
    uint32_t peer = (uint32_t)(number(in) % 2);
    if (message.asks.count == 0)
        return;
    weir_root_receive(root, peer, &message, now);
    weir_root_receive(weir_region_root(region), peer, &message, now);
}

static void feed_answers(struct weir_limiter *limiter,
                         struct weir_region *region, struct input *in,
                         uint64_t session, uint64_t of_region, weir_instant now)
{
    struct weir_step_answer answers[ROWS];
    struct weir_message message = { .type = WEIR_MESSAGE_ANSWERS,
                                    .session = session };
    size_t count = 1 + number(in) % (ROWS - 1);
    for (size_t i = 0; i < count; i++)
        answers[i] = (struct weir_step_answer){
            .number = 1 + number(in),
            .error = (enum weir_step_error)(number(in) % 4),
            .answer = { .passed = number(in) & 1,
                        .never = number(in) & 1,
                        .used = (int64_t)number(in),
                        .remaining = number(in),
                        .retry_after = number(in),
                        .wait = number(in) },
        };
    message.answers =
        (struct weir_answers){ .count = count, .answers = answers };
    weir_limiter_receive(limiter, 0, &message, now);
    message.session = of_region;
    weir_region_up_receive(region, 0, &message, now);
}

/* A root above must be able to decode what a region sends it. */
static void check_sent(const struct weir_message *message)
{
    static unsigned char block[WEIR_DECODE_ARENA_SIZE];
    static uint8_t bytes[WEIR_MESSAGE_BYTES_MAX];
    struct weir_arena arena = { block, sizeof block, 0 };
    struct weir_message read;
    if (message->type != WEIR_MESSAGE_WANTS)
        return;
    size_t len = weir_v1_encode(message, bytes, sizeof bytes);
    if (len == 0 || weir_v1_decode(bytes, len, true, &arena, &read) < 0)
        abort();
}

/* ---- Leases ---- */

/* An amount within the decoder's bounds: finite, and not below 0. */
static double units(struct input *in)
{
    static const double scales[] = { 0, 1, 1e-300, 1e9, 1e15 };
    uint64_t value = number(in);
    double amount = (double)(value >> 3 & 1023) * scales[value % 5];
    return amount < WEIR_LEASE_UNITS_MAX ? amount : WEIR_LEASE_UNITS_MAX;
}

/* What was measured, within the decoder's bounds. */
static struct weir_latency_batch batch_of(struct input *in,
                                          struct weir_latency_count *bins)
{
    uint64_t chance = number(in);
    uint32_t samples = 0, bin = (uint32_t)number(in) % WEIR_WINDOW_BINS;
    struct weir_latency_batch batch = {
        .cut = number(in),
        .peak = (uint32_t)(number(in) % (WEIR_CONCURRENCY_GATE_UNITS_MAX + 1)),
        .overdue =
            (uint32_t)(number(in) % (WEIR_CONCURRENCY_GATE_UNITS_MAX + 1)),
        .overdue_age = number(in),
        .bins = bins,
    };
    for (; batch.count < chance % (ROWS + 1) && bin < WEIR_WINDOW_BINS &&
           samples < WEIR_WINDOW_SAMPLES_MAX;
         bin += 1 + (uint32_t)(number(in) % 100)) {
        uint64_t room = WEIR_WINDOW_SAMPLES_MAX - samples;
        uint32_t count = 1 + (uint32_t)(number(in) % room);
        bins[batch.count++] = (struct weir_latency_count){ bin, count };
        samples += count;
    }
    batch.slow = (uint32_t)(number(in) % (samples + 1));
    batch.dropped = (uint32_t)(number(in) % (batch.slow + 1));
    return batch;
}

static void feed_windows(struct weir_wants *wants, struct input *in,
                         struct weir_want_window *windows,
                         struct weir_latency_count (*bins)[ROWS])
{
    wants->windows = windows;
    for (size_t i = 0; i < wants->count; i++) {
        if (wants->wants[i].release || number(in) % 2)
            continue;
        size_t at = wants->window_count++;
        windows[at] =
            (struct weir_want_window){ .want = (uint32_t)i,
                                       .batch = batch_of(in, bins[at]) };
    }
}

static void feed_wants(struct weir_root *root, struct weir_region *region,
                       struct input *in, weir_instant now)
{
    struct weir_want wants[ROWS];
    struct weir_band bands[ROWS][2];
    struct weir_want_window windows[ROWS];
    struct weir_latency_count bins[ROWS][ROWS];
    struct weir_message message = { .type = WEIR_MESSAGE_WANTS,
                                    .session = 1 + number(in) % 3 };
    message.wants = (struct weir_wants){ .number = 1 + number(in),
                                         .term = number(in) % 3,
                                         .count = 1 + number(in) % (ROWS - 1),
                                         .wants = wants };
    for (size_t i = 0; i < message.wants.count; i++) {
        uint64_t chance = number(in);
        wants[i] = (struct weir_want){
            .name = weir_text_of(names[chance % 4]),
            .release = (chance & 0x1c) == 0,
            .taken = number(in),
        };
        if (wants[i].release)
            continue;
        wants[i].learning = chance & 0x20;
        wants[i].has = units(in);
        wants[i].safe = units(in);
        wants[i].roster_token = chance >> 8;
        wants[i].band_count = 1 + (chance >> 6) % 2;
        wants[i].bands = bands[i];
        for (size_t k = 0; k < 2; k++)
            bands[i][k] = (struct weir_band){
                .priority = (int64_t)(number(in) % 5) * 2 + 1 - (int64_t)k,
                .clients = 1 + (uint32_t)(number(in) % WEIR_LEASE_CLIENTS_MAX),
                .wants = units(in),
            };
        if (bands[i][1].priority >= bands[i][0].priority)
            wants[i].band_count = 1;
    }
    if (in->fleets)
        feed_windows(&message.wants, in, windows, bins);
    uint32_t peer = (uint32_t)(number(in) % 2);
    weir_root_receive(root, peer, &message, now);
    weir_root_receive(weir_region_root(region), peer, &message, now);
}

static void feed_grants(struct weir_limiter *limiter,
                        struct weir_region *region, struct input *in,
                        uint64_t session, uint64_t of_region, weir_instant now)
{
    struct weir_lease_grant grants[ROWS];
    struct weir_guarantee guarantees[ROWS];
    struct weir_message message = { .type = WEIR_MESSAGE_GRANTS,
                                    .session = session };
    message.grants = (struct weir_grants){ .answer = number(in) % 16,
                                           .term = number(in),
                                           .grants = grants };
    message.grants.elsewhere = message.grants.term % 8 == 7;
    if (message.grants.elsewhere)
        message.grants.master = WEIR_TEXT("there:1");
    else
        message.grants.count = number(in) % ROWS;
    for (size_t i = 0; i < message.grants.count; i++) {
        uint64_t chance = number(in);
        weir_duration lease = message.grants.answer > 0 ? number(in) : 0;
        grants[i] = (struct weir_lease_grant){
            .name = weir_text_of(names[chance % 4]),
            .error = chance & 64 ? (enum weir_lease_error)(chance >> 3 & 3)
                                 : WEIR_LEASE_GRANTED,
        };
        if (grants[i].error != WEIR_LEASE_GRANTED)
            continue;
        grants[i].grant = (struct weir_grant){
            .serial = 1 + number(in) % 1000,
            .capacity = units(in),
            .safe = units(in),
            .lease = lease,
            .safe_lease = lease < UINT64_MAX / 2 ? 2 * lease : lease,
            .refresh = 1 + number(in) % (60 * WEIR_SECOND),
            .roster_token = chance >> 8,
            .cut = in->fleets ? chance >> 16 : 0,
        };
        if (in->fleets && chance & 128) {
            guarantees[i] = (struct weir_guarantee){
                chance & 256 ? weir_class_number(WEIR_TEXT("sync"))
                             : (int64_t)number(in),
                units(in)
            };
            grants[i].guarantees = &guarantees[i];
            grants[i].guarantee_count = 1;
        }
    }
    weir_limiter_receive(limiter, 0, &message, now);
    message.session = of_region;
    weir_region_up_receive(region, 0, &message, now);
}

/* This root becomes the master, or stops being it. */
static void elect(struct weir_root *root, struct input *in, weir_instant now)
{
    uint64_t chance = number(in);
    struct weir_text master = { "there:1", chance & 4 ? 7 : 0 };
    weir_instant vacant = chance & 8 ? now : WEIR_NEVER;
    if (chance & 3)
        weir_root_lease_begin(root, weir_root_lease_term(root) + 1, vacant,
                              now);
    else
        weir_root_lease_end(root, number(in) % 16, master, now);
}

/* A client of Doorman's protocol, which has no link; the amounts that it sends
 * may be any numbers. */
static void come_to_the_door(struct weir_root *root, struct input *in,
                             weir_instant now)
{
    struct weir_grant grant;
    struct weir_band band = { .priority = (int64_t)number(in), .clients = 1 };
    struct weir_lease_pool_ask ask = { .bands = &band, .band_count = 1 };
    struct weir_client who = { weir_text_of(names[number(in) % 4]),
                               WEIR_WAY_NONE };
    struct weir_text quota = weir_text_of(names[number(in) % 4]);
    uint64_t bits = number(in);
    memcpy(&band.wants, &bits, sizeof(bits));
    bits = number(in);
    memcpy(&ask.has, &bits, sizeof(bits));
    ask.guard = number(in) % (10 * WEIR_SECOND);
    if (bits % 8 == 0)
        weir_root_lease_release(root, &who, quota, 0, now);
    if (weir_root_lease_ask(root, &who, quota, &ask, &grant, now) == 0 &&
        !(grant.capacity >= 0 && grant.capacity <= band.wants &&
          grant.safe >= 0 && grant.safe <= WEIR_LEASE_UNITS_MAX))
        abort();
}

/* A caller of the limiter asks. */
static void ask(struct weir_limiter *limiter, struct input *in,
                weir_instant now)
{
    struct weir_step_ask ask = {
        .name = weir_text_of(names[number(in) % 4]),
        .ask = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 },
        .patience = number(in),
    };
    (void)weir_limiter_ask(limiter, &ask, 7, now);
}

static void fetch(struct weir_limiter *limiter)
{
    struct weir_algorithm_answer answer;
    uint64_t ticket;
    int error;
    while (weir_limiter_answered(limiter, &ticket, &error, &answer)) {
        if (ticket != 7)
            abort();
    }
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
        message.welcome.provisional = message.welcome.age & 2;
        if (in->leases) {
            message.welcome.leases = number(in) & 1;
            message.welcome.term = number(in) % 16;
        }
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
        message.fills.age = message.fills.stamp;
        for (size_t i = 0; i < message.fills.count; i++)
            fills[i] = (struct weir_fill){ (uint32_t)number(in) % SLOTS,
                                           (int64_t)number(in), number(in),
                                           message.fills.limiters };
    }
    weir_limiter_receive(limiter, 0, &message, now);
    message.session = sessions->region;
    weir_region_up_receive(region, 0, &message, now);
}

static void take(struct weir_table *table, struct input *in, weir_instant now)
{
    struct weir_ref ref;
    struct weir_text name = weir_text_of(names[number(in) % 4]);
    if (weir_table_resolve(table, name, false, &ref, now) <=
        WEIR_RESOLVED_CHAIN)
        weir_table_take(table, 0, ref, number(in), NULL, now);
}

static void play_leases(struct weir_root *root, struct weir_limiter *limiter,
                        struct weir_region *region, struct input *in,
                        const struct sessions *sessions, weir_instant now)
{
    switch (number(in) % 8) {
    case 0:
        elect(root, in, now);
        break;
    case 1:
        elect(weir_region_root(region), in, now);
        break;
    case 2:
        come_to_the_door(root, in, now);
        break;
    case 3:
        come_to_the_door(weir_region_root(region), in, now);
        break;
    case 4:
    case 5:
        feed_grants(limiter, region, in, sessions->limiter, sessions->region,
                    now);
        break;
    default:
        feed_wants(root, region, in, now);
    }
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
        uint64_t what = number(in) % (in->leases ? 20 : in->asks ? 12 : 8);
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
        } else if (what == 7) {
            take(table, in, now);
        } else if (what < 10) {
            feed_asks(root, region, in, now);
        } else if (what == 10) {
            feed_answers(limiter, region, in, sessions.limiter, sessions.region,
                         now);
        } else if (what >= 12) {
            play_leases(root, limiter, region, in, &sessions, now);
        } else {
            ask(limiter, in, now);
            weir_root_set_wall(root, (uint64_t)now << (number(in) % 8), true);
        }
        now += number(in) % (20 * WEIR_SECOND);
        weir_root_tick(root, now);
        weir_limiter_tick(limiter, now);
        weir_region_tick(region, now);
        while (weir_root_next(root, &peer, &message, now))
            continue;
        while (weir_root_next(weir_region_root(region), &peer, &message, now))
            continue;
        while (weir_limiter_next(limiter, &peer, &message, now)) {
            check_sent(&message);
            sessions.limiter = message.session;
        }
        fetch(limiter);
        while (weir_region_up_next(region, &peer, &message, now)) {
            check_sent(&message);
            sessions.region = message.session;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char block[2 << 20] __attribute__((aligned(64)));
    static char state[4 << 20] __attribute__((aligned(64)));
    bool fleets = size > 0 && data[0] == 'f';
    struct weir_table_options options = { .slots = SLOTS,
                                          .stripes = 2,
                                          .gate_slots = fleets ? 4 : 0 };
    if (weir_table_size(&options) > sizeof(block))
        abort();
    memset(block, 0, weir_table_size(&options));
    struct weir_table *table = weir_table_init(block, &options, START);
    struct weir_limiter_options of_limiter = {
        .table = table,
        .slots = SLOTS,
        .links = 1,
        .asks = 8,
        .leases = 8,
        .limits = fleets ? 4 : 0,
    };
    if (weir_limiter_size(&of_limiter) > sizeof(state))
        abort();
    memset(state, 0, weir_limiter_size(&of_limiter));
    struct weir_limiter *limiter = weir_limiter_init(state, &of_limiter, START);
    struct weir_root_options of_root = {
        .mem = weir_mem_system,
        .peers_max = 2,
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 3 * WEIR_SECOND,
                      .slack = true },
        .zones = { .offset_s = zone_offset },
    };
    struct weir_root *root = weir_root_new(&of_root, START);
    struct weir_region_options of_region = { .root = of_root,
                                             .upstreams = 1,
                                             .slots = SLOTS };
    struct weir_region *region = weir_region_new(&of_region, START);
    struct input in = { .data = data, .size = size };
    in.fleets = fleets;
    in.leases = in.fleets || (size > 0 && data[0] == 'l');
    in.asks = in.leases || (size > 0 && data[0] == 'a');
    in.data += in.asks;
    in.size -= in.asks;
    play(root, table, limiter, region, &in);
    weir_region_free(region);
    weir_root_free(root);
    return 0;
}
