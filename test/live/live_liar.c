/* SPDX-License-Identifier: MIT
 * test/live/live_liar.c - a limiter with false reports.
 *
 *     live_liar HOST:PORT QUOTA UNITS...
 *     live_liar HOST:PORT QUOTA slow|quick
 *
 * Speaks a limiter's protocol to one root, without a limiter's code: hello,
 * then for each of UNITS (from -2^63 to 2^63 - 1) a report that this many units
 * of QUOTA have passed. When the root has answered all reports it prints "told"
 * and ends.
 *
 * Or it is a process of a fleet with one adaptive limit, and every 100 ms says
 * that it has measured as many latencies as a batch may have: all as long as
 * they can be and dropped, with as many requests overdue, or all 0. It prints
 * "told" after the first grant, and ends when it is killed. */

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/weir_v1.h"
#include "core/concurrency/latency_window.h"
#include "io/root_link.h"

#define BYTES_MAX 4096
#define ARENA (4u << 20)
#define WANTS 50.0 /* in flight */

struct liar {
    struct event_base *base;
    struct weir_root_link *link;
    struct weir_arena arena;
    struct weir_text quota;
    uint64_t created, epoch; /* of the quota; 0: not received yet */
    char **units;
    int count;
    uint64_t number; /* of the last report, or of the last wants */
    /* Of a fleet's process: */
    enum { REPORTS, SLOW, QUICK } lie;
    struct event *timer;
    uint64_t term;
    struct weir_grant grant; /* the last */
};

static void send_message(struct liar *liar, const struct weir_message *message)
{
    static unsigned char bytes[BYTES_MAX];
    size_t len = weir_v1_encode(message, bytes, sizeof(bytes));
    weir_root_link_send(liar->link, bytes, len);
}

static void say_hello(void *context)
{
    struct weir_message hello = {
        .type = WEIR_MESSAGE_HELLO,
        .session = 1,
        .hello = { .protocol = WEIR_PROTOCOL, .name = WEIR_TEXT("liar") },
    };
    pid_t pid = getpid();
    hello.hello.incarnation[15] = 0xee;
    memcpy(hello.hello.incarnation, &pid, sizeof(pid));
    send_message(context, &hello);
}

static void report(struct liar *liar)
{
    if (liar->created == 0)
        return;
    if (liar->number == (uint64_t)liar->count) {
        puts("told");
        event_base_loopbreak(liar->base);
        return;
    }
    struct weir_announce announce = { .name = liar->quota,
                                      .created = liar->created };
    struct weir_count count = { .passed = (int64_t)strtoll(
                                    liar->units[liar->number], NULL, 10) };
    liar->number++;
    struct weir_message message = {
        .type = WEIR_MESSAGE_REPORT,
        .session = 1,
        .report = { .number = liar->number,
                    .epoch = liar->epoch,
                    .announce_count = liar->number == 1,
                    .announces = &announce,
                    .count = 1,
                    .counts = &count },
    };
    send_message(liar, &message);
}

/* ---- A process of a fleet ---- */

static void measure(evutil_socket_t none, short what, void *context)
{
    struct liar *liar = context;
    (void)none;
    (void)what;
    bool slow = liar->lie == SLOW;
    struct weir_latency_count bin = { slow ? WEIR_WINDOW_BINS - 1 : 0,
                                      WEIR_WINDOW_SAMPLES_MAX };
    struct weir_want_window window = {
        .batch = { .cut = liar->grant.cut,
                   .slow = slow ? bin.count : 0,
                   .dropped = slow ? bin.count : 0,
                   .peak = WEIR_PERMITS_MAX,
                   .overdue = slow ? WEIR_PERMITS_MAX : 0,
                   .overdue_age = slow ? 60 * WEIR_SECOND : 0,
                   .count = 1,
                   .bins = &bin }
    };
    struct weir_band band = { .clients = 1, .wants = WANTS };
    struct weir_want want = { .name = liar->quota,
                              .has = liar->grant.capacity,
                              .taken = liar->grant.serial,
                              .band_count = 1,
                              .bands = &band };
    struct weir_message message = { .type = WEIR_MESSAGE_WANTS,
                                    .session = 1,
                                    .wants = { .number = ++liar->number,
                                               .term = liar->term,
                                               .count = 1,
                                               .wants = &want,
                                               .window_count = 1,
                                               .windows = &window } };
    send_message(liar, &message);
}

static void take_grants(struct liar *liar, const struct weir_grants *grants)
{
    liar->term = grants->term;
    if (grants->count == 0 || grants->grants[0].error != WEIR_LEASE_GRANTED)
        return;
    if (liar->grant.serial == 0) {
        puts("told");
        fflush(stdout);
    }
    liar->grant = grants->grants[0].grant;
}

static void begin(struct liar *liar)
{
    static const struct timeval every = { 0, 100000 };
    if (liar->lie == REPORTS) {
        report(liar);
        return;
    }
    liar->timer = event_new(liar->base, -1, EV_PERSIST, measure, liar);
    if (!liar->timer || event_add(liar->timer, &every) < 0)
        abort();
}

/* ---- Messages ---- */

static void take_quotas(struct liar *liar, const struct weir_quotas *quotas)
{
    bool heard = liar->created > 0;
    for (size_t i = 0; i < quotas->count; i++) {
        const struct weir_quota *quota = &quotas->changes[i].quota;
        if (weir_text_equal(quota->name, liar->quota))
            liar->created = quota->created;
    }
    liar->epoch = quotas->epoch;
    if (!heard)
        begin(liar);
}

static int take_bytes(void *context, const void *bytes, size_t len)
{
    struct liar *liar = context;
    struct weir_message message;
    int error = weir_v1_decode(bytes, len, false, &liar->arena, &message);
    if (error < 0)
        return error;
    if (message.type == WEIR_MESSAGE_QUOTAS)
        take_quotas(liar, &message.quotas);
    if (message.type == WEIR_MESSAGE_FILLS && message.fills.answer &&
        message.fills.number == liar->number)
        report(liar);
    if (message.type == WEIR_MESSAGE_GRANTS)
        take_grants(liar, &message.grants);
    return 0;
}

static void end(void *context, const char *why)
{
    (void)context;
    fprintf(stderr, "live_liar: the link is down: %s\n", why ? why : "");
    exit(1);
}

static void pass_over(void *context, const char *why)
{
    (void)context;
    (void)why;
}

int main(int argc, char **argv)
{
    struct weir_address address;
    struct weir_diag diag = { 0 };
    const struct weir_login_options none = { 0 };
    if (argc < 4 ||
        weir_address_parse(weir_text_of(argv[1]), &address, &diag) < 0) {
        fprintf(stderr,
                "usage: %s HOST:PORT QUOTA UNITS...|slow|quick\n%s", argv[0],
                diag.text);
        return 2;
    }
    struct liar liar = { .base = event_base_new(),
                         .quota = weir_text_of(argv[2]),
                         .units = argv + 3,
                         .count = argc - 3,
                         .lie = strcmp(argv[3], "slow") == 0    ? SLOW
                                : strcmp(argv[3], "quick") == 0 ? QUICK
                                                                : REPORTS,
                         .arena = { .base = malloc(ARENA), .size = ARENA } };
    struct weir_login *login = weir_login_new(&none);
    const struct weir_root_link_options options = {
        .base = liar.base,
        .address = &address,
        .login = login,
        .handler = { .context = &liar,
                     .on_up = say_hello,
                     .on_bytes = take_bytes,
                     .on_down = end,
                     .on_file = pass_over },
    };
    liar.link = weir_root_link_new(&options);
    if (!liar.base || !liar.arena.base || !login || !liar.link)
        abort();
    weir_root_link_connect(liar.link);
    event_base_dispatch(liar.base);
    if (liar.timer)
        event_free(liar.timer);
    weir_root_link_free(&liar.link);
    weir_login_free(&login);
    event_base_free(liar.base);
    free(liar.arena.base);
    return 0;
}
