/* SPDX-License-Identifier: MIT
 * test/server/test_http_api.c - the administration's HTTP listener: while the
 * root stops, and its answers to HEAD. */

#include "compare.h"
#include "patience.h"
#include "server/http_api.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    struct event_base *base;
    struct weir_http_api *api;
    struct weir_authorization authorizer;
};

static void open_door(struct world *w)
{
    struct weir_diag diag;
    *w = (struct world){ .base = event_base_new() };
    struct weir_http_api_options options = {
        .base = w->base,
        .authorizer = &w->authorizer,
        .address = { .host = "127.0.0.1" },
    };
    assert_int_equal(weir_http_api_new(&options, &w->api, &diag), 0);
}

static int connect_to(const struct world *w)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons(weir_http_api_port(w->api)),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void on_answer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    assert_true(what & EV_READ);
    event_base_loopbreak(context);
}

/* The listener is closed, and a connected client sends one more request: the
 * answer is made without the administration, which is gone. */
static void test_a_request_after_the_end(void **state)
{
    (void)state;
    static const char request[] = "GET /v1/quotas HTTP/1.1\r\n"
                                  "Host: localhost\r\n\r\n";
    struct world w;
    char answer[4096] = "";
    open_door(&w);
    int fd = connect_to(&w);
    PATIENTLY(event_base_loop(w.base, EVLOOP_ONCE));
    weir_http_listener_stop(weir_http_api_listener(w.api));
    weir_http_api_leave(w.api);
    assert_int_equal(write(fd, request, sizeof request - 1),
                     sizeof request - 1);
    assert_int_equal(
        event_base_once(w.base, fd, EV_READ, on_answer, w.base, NULL), 0);
    PATIENTLY(event_base_dispatch(w.base));
    assert_compare(read(fd, answer, sizeof answer - 1), >, 0);
    assert_non_null(strstr(answer, " 503 "));
    assert_non_null(strstr(answer, "stopping"));
    close(fd);
    weir_http_api_free(&w.api);
    event_base_free(w.base);
}

/* Reads until the other side ends the connection. */
struct reader {
    struct event_base *base;
    char bytes[8192];
    size_t len;
};

static void on_bytes(evutil_socket_t fd, short what, void *context)
{
    struct reader *reader = context;
    assert_true(what & EV_READ);
    ssize_t got = read(fd, reader->bytes + reader->len,
                       sizeof reader->bytes - 1 - reader->len);
    assert_compare(got, >=, 0);
    reader->len += (size_t)got;
    if (got == 0)
        event_base_loopbreak(reader->base);
}

/* A HEAD gets the length of a GET's body, and no byte of it, so the next answer
 * on the connection begins where the client expects it. */
static void test_head_has_no_body(void **state)
{
    (void)state;
    static const char requests[] = "HEAD /v1/quotas HTTP/1.1\r\n"
                                   "Host: localhost\r\n\r\n"
                                   "GET /v1/quotas HTTP/1.1\r\n"
                                   "Host: localhost\r\n"
                                   "Connection: close\r\n\r\n";
    struct world w;
    open_door(&w);
    struct reader reader = { .base = w.base };
    int fd = connect_to(&w);
    assert_int_equal(write(fd, requests, sizeof requests - 1),
                     sizeof requests - 1);
    struct event *event =
        event_new(w.base, fd, EV_READ | EV_PERSIST, on_bytes, &reader);
    assert_int_equal(event_add(event, NULL), 0);
    PATIENTLY(event_base_dispatch(w.base));
    const char *head = strstr(reader.bytes, "Content-Length: ");
    const char *get = strstr(reader.bytes, "\r\n\r\n");
    assert_non_null(head);
    assert_non_null(get);
    assert_true(head < get);
    get += strlen("\r\n\r\n");
    assert_memory_equal(get, "HTTP/1.1 503 ", strlen("HTTP/1.1 503 "));
    const char *body = strstr(get, "\r\n\r\n");
    assert_non_null(body);
    assert_int_equal(strlen(body + strlen("\r\n\r\n")),
                     atoi(head + strlen("Content-Length: ")));
    event_free(event);
    close(fd);
    weir_http_api_free(&w.api);
    event_base_free(w.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_has_no_body),
        cmocka_unit_test(test_a_request_after_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
