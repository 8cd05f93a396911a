/* SPDX-License-Identifier: MIT
 * test_root_links.c - links whose roots are sockets that say nothing: the test
 * itself says which root has been met. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/root_links.h"
#include "patience.h"

#define ADDRESSES 2
#define ACCEPTED_MAX 64

/* An address at which connections are accepted. */
struct door {
    struct event *event;
    int listener;
    int fd[ACCEPTED_MAX];
    unsigned accepted;
    bool cuts; /* each new connection ends at once */
};

struct world {
    struct event_base *base;
    struct weir_login *login;
    struct weir_root_links *links;
    struct door door[ADDRESSES];
    unsigned ups[ADDRESSES]; /* of each link */
};

static void on_accept(evutil_socket_t listener, short what, void *context)
{
    struct door *door = context;
    (void)what;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    assert_true(door->accepted < ACCEPTED_MAX);
    door->fd[door->accepted++] = door->cuts ? -1 : fd;
    if (door->cuts)
        close(fd);
}

static void open_door(struct world *world, struct door *door,
                      struct weir_address *out)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    door->listener =
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(door->listener >= 0);
    assert_int_equal(bind(door->listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(door->listener, ACCEPTED_MAX), 0);
    assert_int_equal(getsockname(door->listener, (struct sockaddr *)&at, &len),
                     0);
    strcpy(out->host, "127.0.0.1");
    out->port = ntohs(at.sin_port);
    door->event = event_new(world->base, door->listener, EV_READ | EV_PERSIST,
                            on_accept, door);
    assert_int_equal(event_add(door->event, NULL), 0);
}

static void close_door(struct door *door)
{
    event_free(door->event);
    close(door->listener);
    for (unsigned i = 0; i < door->accepted; i++)
        if (door->fd[i] >= 0)
            close(door->fd[i]);
}

static void on_address(void *context, uint32_t link)
{
    (void)context;
    (void)link;
}

static void on_up(void *context, uint32_t link)
{
    struct world *world = context;
    world->ups[link]++;
}

static int on_bytes(void *context, uint32_t link, const void *bytes, size_t len)
{
    (void)context;
    (void)link;
    (void)bytes;
    (void)len;
    return 0;
}

static void on_down(void *context, uint32_t link, const char *why)
{
    (void)context;
    (void)link;
    (void)why;
}

static void on_file(void *context, const char *why)
{
    (void)context;
    fail_msg("no file is used, but: %s", why);
}

static void turn(struct world *world)
{
    event_base_loop(world->base, EVLOOP_ONCE);
}

static void open_world(struct world *world)
{
    struct weir_address roots[ADDRESSES];
    const struct weir_login_options plain = { 0 };
    memset(world, 0, sizeof *world);
    memset(roots, 0, sizeof roots);
    world->base = event_base_new();
    world->login = weir_login_new(&plain);
    assert_non_null(world->base);
    assert_non_null(world->login);
    for (int i = 0; i < ADDRESSES; i++)
        open_door(world, &world->door[i], &roots[i]);
    const struct weir_root_links_options options = {
        .base = world->base,
        .roots = roots,
        .count = ADDRESSES,
        .login = world->login,
        .handler = { .context = world,
                     .on_address = on_address,
                     .on_up = on_up,
                     .on_bytes = on_bytes,
                     .on_down = on_down,
                     .on_file = on_file },
    };
    world->links = weir_root_links_new(&options);
    assert_non_null(world->links);
    weir_root_links_connect(world->links);
}

static void close_world(struct world *world)
{
    weir_root_links_free(&world->links);
    for (int i = 0; i < ADDRESSES; i++)
        close_door(&world->door[i]);
    weir_login_free(&world->login);
    event_base_free(world->base);
}

/* The door to which the link leads. */
static struct door *door_of(struct world *world, uint32_t link)
{
    const char *text = weir_root_links_text(world->links, link);
    for (int i = 0; i < ADDRESSES; i++) {
        struct sockaddr_in at;
        socklen_t len = sizeof at;
        char shown[32];
        getsockname(world->door[i].listener, (struct sockaddr *)&at, &len);
        snprintf(shown, sizeof shown, "127.0.0.1:%u", ntohs(at.sin_port));
        if (strcmp(shown, text) == 0)
            return &world->door[i];
    }
    fail_msg("link %u leads to no door, but to '%s'", link, text);
    return NULL;
}

/* Two addresses lead to one root, and one link is closed. Then the other
 * address ends each connection: the first one is used again. */
static void an_address_that_ends_each_call(void **state)
{
    (void)state;
    static const uint8_t root[WEIR_INCARNATION_SIZE] = { 1 };
    struct world world;
    open_world(&world);
    while (STILL(world.ups[0] == 0 || world.ups[1] == 0))
        turn(&world);
    struct door *closed = door_of(&world, 0);
    struct door *kept = door_of(&world, 1);
    while (STILL(closed->accepted + kept->accepted < 2))
        turn(&world);
    weir_root_links_meet(world.links, 1, root);
    weir_root_links_meet(world.links, 0, root);
    kept->cuts = true;
    while (STILL_BELOW(kept->accepted, 2))
        turn(&world);
    assert_int_equal(closed->accepted, 1);
    while (STILL_BELOW(closed->accepted, 2))
        turn(&world);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_that_ends_each_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
