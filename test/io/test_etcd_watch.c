/* SPDX-License-Identifier: MIT
 * test/io/test_etcd_watch.c - a key that is watched at members of etcd that
 * can't answer: fakes, as a real member is hard to bring into that state. */

#include "io/etcd_watch.h"

#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "io/h2_link.h"
#include "patience.h"

#define LINKS 8
#define TIMED_OUT "etcdserver: request timed out"

struct fake {
    struct weir_listener *listener;
    struct weir_h2_link *links[LINKS];
    unsigned count;
    bool is_cut_off; /* from the majority */
    unsigned reads;
    bool is_asked_again; /* the next message is a read */
};

struct world {
    struct event_base *base;
    struct fake fakes[2];
    struct weir_etcd_watch *watch;
    unsigned values, troubles, wells;
    char why[1500];
};

static bool on_call(void *context, struct weir_h2 *h2, int32_t stream,
                    const char *path, const char *authorization)
{
    (void)context;
    (void)h2;
    (void)stream;
    (void)path;
    (void)authorization;
    return true;
}

/* Answers the read of a missing key, at revision 5; the watch goes on
 * silently. */
static void on_message(void *context, struct weir_h2 *h2, int32_t stream,
                       const void *bytes, size_t len)
{
    (void)bytes;
    (void)len;
    struct fake *fake = context;
    if (fake->is_cut_off) {
        weir_h2_finish(h2, stream, WEIR_GRPC_UNAVAILABLE, TIMED_OUT);
        fake->reads++;
    } else if (fake->reads++ == 0 || fake->is_asked_again) {
        weir_h2_send(h2, stream, "\x0a\x02\x18\x05", 4, true);
        weir_h2_finish(h2, stream, WEIR_GRPC_OK, NULL);
    }
}

static void on_accept(void *context, struct weir_stream *stream)
{
    struct fake *fake = context;
    struct weir_h2_link_handler handler = {
        .calls = { .context = fake,
                   .on_call = on_call,
                   .on_message = on_message },
    };
    assert_compare(fake->count, <, LINKS);
    fake->links[fake->count] = weir_h2_link_new(stream, true, &handler);
    weir_h2_link_set_authenticated(fake->links[fake->count++]);
}

static void on_value(void *context, const struct weir_etcd_value *value)
{
    struct world *w = context;
    assert_false(value->found);
    w->values++;
}

static void on_trouble(void *context, const char *why)
{
    struct world *w = context;
    w->troubles += why != NULL;
    w->wells += why == NULL;
    if (why && strstr(why, TIMED_OUT))
        strcpy(w->why, why);
    if (!why)
        event_base_loopbreak(w->base);
}

static void open_fake(struct world *w, struct fake *fake)
{
    struct weir_diag diag;
    struct weir_listener_options options = {
        .address = { .host = "127.0.0.1" },
        .max = LINKS,
        .on_accept = on_accept,
        .context = fake,
    };
    assert_int_equal(
        weir_listener_new(w->base, &options, &fake->listener, &diag), 0);
}

static void close_fake(struct fake *fake)
{
    for (unsigned i = 0; i < fake->count; i++)
        weir_h2_link_close(&fake->links[i]);
    weir_listener_free(&fake->listener);
}

static void open_watch(struct world *w)
{
    struct weir_diag diag;
    struct weir_address endpoints[2];
    for (int i = 0; i < 2; i++) {
        struct weir_listener *listener = w->fakes[i].listener;
        endpoints[i] =
            (struct weir_address){ .host = "127.0.0.1",
                                   .port = weir_listener_port(listener) };
    }
    struct weir_etcd_watch_options options = {
        .base = w->base,
        .endpoints = endpoints,
        .count = 2,
        .key = "config",
        .on_value = on_value,
        .on_trouble = on_trouble,
        .context = w,
    };
    assert_int_equal(weir_etcd_watch_new(&options, &w->watch, &diag), 0);
}

/* A member that is cut off from the majority answers only with an error: that
 * is reported, and the other one is asked. */
static void test_a_member_is_cut_off(void **state)
{
    (void)state;
    struct world w = { .base = event_base_new() };
    open_fake(&w, &w.fakes[0]);
    open_fake(&w, &w.fakes[1]);
    w.fakes[0].is_cut_off = true;
    open_watch(&w);
    while (STILL(w.values == 0))
        event_base_loop(w.base, EVLOOP_ONCE);
    assert_int_equal(w.values, 1);
    assert_non_null(strstr(w.why, "doesn't return the key config"));
    assert_int_equal(w.fakes[0].reads, 1);
    assert_int_equal(w.wells, 1);
    /* And again when the caller asks for a read, not only after half a
     * minute. */
    while (STILL_BELOW(w.fakes[1].reads, 2))
        event_base_loop(w.base, EVLOOP_ONCE);
    w.fakes[1].is_asked_again = true;
    weir_etcd_watch_read(w.watch);
    while (STILL_BELOW(w.fakes[1].reads, 3))
        event_base_loop(w.base, EVLOOP_ONCE);
    assert_int_equal(w.fakes[1].reads, 3);
    weir_etcd_watch_free(&w.watch);
    close_fake(&w.fakes[0]);
    close_fake(&w.fakes[1]);
    event_base_free(w.base);
}

/* All of them are cut off: each is reported once, however often it is asked. */
static void test_no_majority(void **state)
{
    (void)state;
    struct world w = { .base = event_base_new() };
    open_fake(&w, &w.fakes[0]);
    open_fake(&w, &w.fakes[1]);
    w.fakes[0].is_cut_off = w.fakes[1].is_cut_off = true;
    open_watch(&w);
    while (STILL(w.fakes[0].reads + w.fakes[1].reads < 6))
        event_base_loop(w.base, EVLOOP_ONCE);
    assert_int_equal(w.fakes[0].reads + w.fakes[1].reads, 6);
    assert_non_null(strstr(w.why, TIMED_OUT));
    /* Plus the endpoints that were left. */
    assert_in_range(w.troubles, 1, 5);
    weir_etcd_watch_free(&w.watch);
    close_fake(&w.fakes[0]);
    close_fake(&w.fakes[1]);
    event_base_free(w.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_member_is_cut_off),
        cmocka_unit_test(test_no_majority),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
