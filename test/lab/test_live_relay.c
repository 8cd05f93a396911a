/* SPDX-License-Identifier: MIT
 * test/lab/test_live_relay.c - the relay between a limiter and a root of a live
 * run: bytes that it forwards, holds back, ends and refuses.
 *
 * A client connects through the relay to a server in the same loop; each sends
 * a word now and then, and the loop runs until the other has received it. That
 * a word does not arrive is shown by another path on which one does. */

#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "lab/live_relay.h"
#include "patience.h"

/* One end of the connection. */
struct peer {
    struct weir_stream *stream;
    char heard[64];
    bool lost;
};

struct scene {
    struct event_base *base;
    struct weir_listener *listener;
    struct weir_relay *relay;
    struct peer client, server;
};

static void on_bytes(void *context, struct weir_stream *stream,
                     const void *bytes, size_t len)
{
    (void)stream;
    struct peer *peer = context;
    size_t had = strlen(peer->heard);
    assert_compare(had + len, <, sizeof peer->heard);
    memcpy(peer->heard + had, bytes, len);
    peer->heard[had + len] = '\0';
}

static void on_lost(void *context, struct weir_stream *stream, const char *why)
{
    (void)stream;
    (void)why;
    struct peer *peer = context;
    peer->lost = true;
}

static struct weir_stream_handler handler_of(struct peer *peer)
{
    return (struct weir_stream_handler){ .context = peer,
                                         .on_bytes = on_bytes,
                                         .on_lost = on_lost };
}

static void on_accept(void *context, struct weir_stream *stream)
{
    struct scene *scene = context;
    struct weir_stream_handler handler = handler_of(&scene->server);
    scene->server.stream = stream;
    weir_stream_set_handler(stream, &handler);
}

static void forget(struct peer *peer)
{
    if (peer->stream)
        weir_stream_close(&peer->stream, false);
    *peer = (struct peer){ 0 };
}

/* A new connection, without any state of the previous one. */
static void open_client(struct scene *scene)
{
    forget(&scene->client);
    forget(&scene->server);
    struct weir_stream_handler handler = handler_of(&scene->client);
    struct weir_address at = { "127.0.0.1", weir_relay_port(scene->relay) };
    scene->client.stream =
        weir_stream_connect(scene->base, &at, NULL, 0, &handler);
    assert_non_null(scene->client.stream);
}

static void say(struct peer *peer, const char *word)
{
    assert_int_equal(weir_stream_write(peer->stream, word, strlen(word)), 0);
}

static void until_heard(struct scene *scene, const struct peer *peer,
                        const char *words)
{
    while (STILL(strcmp(peer->heard, words) != 0))
        assert_int_equal(event_base_loop(scene->base, EVLOOP_ONCE), 0);
}

static void until_lost(struct scene *scene, const struct peer *peer)
{
    while (STILL(!peer->lost))
        assert_int_equal(event_base_loop(scene->base, EVLOOP_ONCE), 0);
}

static void aim(struct scene *scene)
{
    struct weir_address at = { "127.0.0.1",
                               weir_listener_port(scene->listener) };
    weir_relay_aim(scene->relay, &at);
}

static void meet(struct scene *scene)
{
    open_client(scene);
    say(&scene->client, "hello");
    until_heard(scene, &scene->server, "hello");
    say(&scene->server, "welcome");
    until_heard(scene, &scene->client, "welcome");
    assert_true(weir_relay_is_up(scene->relay));
}

static int setup(void **state)
{
    static struct scene scene;
    struct weir_listener_options options = {
        .address = { .host = "127.0.0.1" },
        .max = 16,
        .on_accept = on_accept,
        .context = &scene,
    };
    scene = (struct scene){ .base = event_base_new() };
    assert_int_equal(
        weir_listener_new(scene.base, &options, &scene.listener, NULL), 0);
    assert_int_equal(weir_relay_new(scene.base, &scene.relay, NULL), 0);
    aim(&scene);
    *state = &scene;
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;
    forget(&scene->client);
    forget(&scene->server);
    weir_relay_free(&scene->relay);
    weir_listener_free(&scene->listener);
    event_base_free(scene->base);
    return 0;
}

static void test_passes_on_what_comes(void **state)
{
    struct scene *scene = *state;
    assert_false(weir_relay_is_up(scene->relay));
    meet(scene);
    assert_int_equal(weir_relay_bytes(scene->relay), strlen("hellowelcome"));
}

static void test_one_way_waits_and_the_other_goes_on(void **state)
{
    struct scene *scene = *state;
    meet(scene);
    weir_relay_cut(scene->relay, WEIR_WAY_UP, 0);
    assert_false(weir_relay_is_up(scene->relay));
    say(&scene->client, " again");
    say(&scene->server, "!");
    until_heard(scene, &scene->client, "welcome!");
    assert_string_equal(scene->server.heard, "hello");
    weir_relay_cut(scene->relay, 0, 0);
    until_heard(scene, &scene->server, "hello again");
    assert_true(weir_relay_is_up(scene->relay));
    assert_false(scene->client.lost);
}

static void test_a_cut_is_noticed_later(void **state)
{
    struct scene *scene = *state;
    meet(scene);
    weir_relay_cut(scene->relay, WEIR_WAY_BOTH, 20 * WEIR_MILLISECOND);
    say(&scene->client, " anybody there?");
    until_lost(scene, &scene->client);
    until_lost(scene, &scene->server);
    assert_string_equal(scene->server.heard, "hello");
    /* No connection comes through until it is mended. */
    open_client(scene);
    until_lost(scene, &scene->client);
    weir_relay_cut(scene->relay, 0, 0);
    meet(scene);
}

static void test_mended_before_it_was_noticed(void **state)
{
    struct scene *scene = *state;
    meet(scene);
    weir_relay_cut(scene->relay, WEIR_WAY_BOTH, 3600 * WEIR_SECOND);
    weir_relay_cut(scene->relay, 0, 0);
    say(&scene->client, " again");
    until_heard(scene, &scene->server, "hello again");
}

static void test_reset_ends_this_connection_only(void **state)
{
    struct scene *scene = *state;
    meet(scene);
    weir_relay_reset(scene->relay);
    until_lost(scene, &scene->client);
    until_lost(scene, &scene->server);
    meet(scene);
}

static void test_leads_where_it_is_aimed(void **state)
{
    struct scene *scene = *state;
    weir_relay_aim(scene->relay, NULL);
    open_client(scene);
    until_lost(scene, &scene->client);
    aim(scene);
    meet(scene);
}

static void test_an_end_that_goes_takes_the_other_along(void **state)
{
    struct scene *scene = *state;
    meet(scene);
    say(&scene->server, ", bye");
    weir_stream_close(&scene->server.stream, true);
    until_lost(scene, &scene->client);
    assert_string_equal(scene->client.heard, "welcome, bye");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_passes_on_what_comes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_one_way_waits_and_the_other_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_cut_is_noticed_later, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_mended_before_it_was_noticed,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_reset_ends_this_connection_only,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_leads_where_it_is_aimed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_an_end_that_goes_takes_the_other_along, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
