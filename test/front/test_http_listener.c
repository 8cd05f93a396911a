/* SPDX-License-Identifier: MIT
 * test/front/test_http_listener.c - the HTTP listener: the calls of the
 * handler, answers that come later, bodies that come in parts, streams.
 *
 * The handler answers /now with the length of the body, and /late when the test
 * calls give(); /events is a stream. /secret is refused by its head, and so is
 * every request once 'refuses' is set. */

#include "compare.h"
#include "front/http_listener.h"
#include "patience.h"

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

#define HEAD " HTTP/1.1\r\nHost: localhost\r\n"
#define JSON "Content-Type: application/json\r\n"
#define SIZE 8192

struct world {
    struct event_base *base;
    struct weir_http_listener *listener;
    struct weir_http_ticket *tickets[4];
    size_t late, heads, requests, gone;
    bool refuses;
};

static bool is_path(const struct weir_http_call *call, const char *path)
{
    return weir_text_equal(weir_uri_split(call->request->target).path,
                           weir_text_of(path));
}

static void problem(void *context, struct weir_http_call *call, int status,
                    const char *detail)
{
    (void)context;
    call->reply.status = status;
    call->reply.type = "application/problem+json";
    call->reply.bytes = weir_text_of(detail);
}

static bool on_head(void *context, struct weir_http_call *call,
                    weir_instant now)
{
    struct world *w = context;
    (void)now;
    w->heads++;
    weir_conn_set_known(call->conn, true);
    bool refused = w->refuses || is_path(call, "/secret");
    if (refused)
        problem(w, call, 401, "who are you?");
    return !refused;
}

static void on_request(void *context, struct weir_http_call *call,
                       weir_instant now)
{
    struct world *w = context;
    (void)now;
    w->requests++;
    if (is_path(call, "/late")) {
        w->tickets[w->late] = weir_http_defer(call);
        assert_non_null(w->tickets[w->late++]);
        return;
    }
    if (is_path(call, "/events"))
        strcpy(call->reader, "me");
    call->reply.json = json_pack("{s:I}", "length", (json_int_t)call->body.len);
}

static void on_gone(void *context, void *state)
{
    struct world *w = context;
    (void)state;
    w->gone++;
}

static int setup_with(void **state, weir_duration rate_grace)
{
    struct weir_diag diag;
    struct world *w = calloc(1, sizeof *w);
    w->base = event_base_new();
    const struct weir_http_options options = {
        .conns = { .base = w->base,
                   .place = { .address = { .host = "127.0.0.1" } },
                   .max = 8,
                   .rate_grace = rate_grace },
        .bodies_max = 64 << 10,
        .state_size = 1,
        .context = w,
        .on_head = on_head,
        .on_request = on_request,
        .problem = problem,
        .on_gone = on_gone,
    };
    assert_int_equal(weir_http_listener_new(&options, &w->listener, &diag), 0);
    *state = w;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, 0);
}

static int setup_without_grace(void **state)
{
    return setup_with(state, 1);
}

static int teardown(void **state)
{
    struct world *w = *state;
    weir_http_listener_free(&w->listener);
    event_base_free(w->base);
    free(w);
    return 0;
}

static int connect_to(const struct world *w)
{
    uint16_t port = weir_http_listener_address(w->listener)->address.port;
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* Turns the loop until the received text, 'said', ends with 'end'. */
static void hear(const struct world *w, int fd, const char *end, char *said)
{
    size_t len = 0;
    said[0] = '\0';
    while (STILL(len < strlen(end) ||
                 strcmp(said + len - strlen(end), end) != 0)) {
        event_base_loop(w->base, EVLOOP_NONBLOCK);
        ssize_t got = recv(fd, said + len, SIZE - 1 - len, MSG_DONTWAIT);
        assert_int_not_equal(got, 0);
        len += got > 0 ? (size_t)got : 0;
        said[len] = '\0';
    }
}

/* Turns the loop until the listener has ended the connection. */
static void hear_end(const struct world *w, int fd)
{
    char rest[64];
    while (STILL(recv(fd, rest, sizeof rest, MSG_DONTWAIT) != 0))
        event_base_loop(w->base, EVLOOP_NONBLOCK);
}

static void turn_until(const struct world *w, const size_t *count, size_t is)
{
    while (STILL(*count < is))
        event_base_loop(w->base, EVLOOP_NONBLOCK);
    assert_int_equal(*count, is);
}

static void give(struct world *w, size_t i, const char *text)
{
    struct weir_http_reply reply = { .status = 200, .type = "text/plain" };
    reply.text = strdup(text);
    weir_http_ticket_answer(w->tickets[i], &reply);
}

static void requests_behind_a_late_answer_wait(void **state)
{
    struct world *w = *state;
    char said[SIZE];
    int fd = connect_to(w);
    say(fd, "GET /late" HEAD "\r\nGET /now" HEAD "\r\nHEAD /late" HEAD "\r\n"
            "GET /late" HEAD "Connection: close\r\n\r\n");
    turn_until(w, &w->requests, 1);
    give(w, 0, "first");
    hear(w, fd, "{\"length\":0}\n", said);
    assert_non_null(strstr(said, "first\nHTTP/1.1 200 OK"));
    turn_until(w, &w->requests, 3);
    give(w, 1, "second");
    turn_until(w, &w->requests, 4);
    give(w, 2, "third");
    hear(w, fd, "third\n", said);
    assert_non_null(strstr(said, "Content-Length: 7\r\n")); /* second */
    assert_null(strstr(said, "second"));
    hear_end(w, fd);
    close(fd);
}

static void a_late_answer_finds_nobody(void **state)
{
    struct world *w = *state;
    int fd = connect_to(w);
    say(fd, "GET /late" HEAD "\r\n");
    turn_until(w, &w->requests, 1);
    /* The client has gone: the listener notices it when it writes. */
    close(fd);
    give(w, 0, "nobody");
    turn_until(w, &w->gone, 1);
    /* The listener is freed. */
    fd = connect_to(w);
    say(fd, "GET /late" HEAD "\r\n");
    turn_until(w, &w->requests, 2);
    weir_http_listener_free(&w->listener);
    assert_int_equal(w->gone, 2);
    give(w, 1, "nobody");
    close(fd);
}

/* The listener is freed when an answer is there and not written yet. */
static void a_late_answer_is_not_fetched(void **state)
{
    struct world *w = *state;
    int fd = connect_to(w);
    say(fd, "GET /late" HEAD "\r\n");
    turn_until(w, &w->requests, 1);
    give(w, 0, "nobody");
    weir_http_listener_free(&w->listener);
    close(fd);
}

static void a_body_comes_in_parts(void **state)
{
    struct world *w = *state;
    char said[SIZE];
    int fd = connect_to(w);
    say(fd, "POST /now" HEAD JSON "Expect: 100-continue\r\n"
            "Content-Length: 30000\r\n\r\n");
    hear(w, fd, "HTTP/1.1 100 Continue\r\n\r\n", said);
    assert_int_equal(w->heads, 1);
    for (int i = 0; i < 30000; i += 10) {
        say(fd, "0123456789");
        event_base_loop(w->base, EVLOOP_NONBLOCK);
    }
    hear(w, fd, "{\"length\":30000}\n", said);
    assert_int_equal(w->heads, 2); /* before the body and behind it */
    assert_int_equal(w->requests, 1);
    /* The connection goes on. */
    say(fd, "POST /now" HEAD JSON "Content-Length: 3\r\n\r\nabc");
    hear(w, fd, "{\"length\":3}\n", said);
    close(fd);
}

static void a_body_of_a_refused_request_is_not_read(void **state)
{
    struct world *w = *state;
    char said[SIZE];
    int fd = connect_to(w);
    say(fd, "POST /secret" HEAD JSON "Expect: 100-continue\r\n"
            "Content-Length: 1000000000\r\n\r\n");
    hear(w, fd, "who are you?\n", said);
    assert_memory_equal(said, "HTTP/1.1 401", 12);
    assert_non_null(strstr(said, "WWW-Authenticate: Bearer\r\n"));
    assert_non_null(strstr(said, "Connection: close\r\n"));
    hear_end(w, fd);
    close(fd);
    /* Its body could be taken for a request. */
    fd = connect_to(w);
    say(fd, "POST /now" HEAD "Content-Length: 500\r\n\r\n"
            "GET /now" HEAD "\r\n");
    hear(w, fd, "\n", said);
    assert_memory_equal(said, "HTTP/1.1 415", 12);
    hear_end(w, fd);
    close(fd);
    assert_int_equal(w->requests, 0);
}

static void a_role_that_goes_while_a_body_comes(void **state)
{
    struct world *w = *state;
    char said[SIZE];
    int fd = connect_to(w);
    say(fd, "POST /now" HEAD JSON "Expect: 100-continue\r\n"
            "Content-Length: 3\r\n\r\n");
    hear(w, fd, "\r\n\r\n", said);
    w->refuses = true;
    say(fd, "abc");
    hear(w, fd, "who are you?\n", said);
    assert_int_equal(w->requests, 0);
    hear_end(w, fd);
    close(fd);
}

static void bodies_of_all_have_a_bound(void **state)
{
    static const char head[] =
        "POST /now" HEAD JSON "Content-Length: 40000\r\n\r\n";
    struct world *w = *state;
    char said[SIZE];
    char *body = calloc(1, 40001);
    memset(body, 'x', 39999);
    int fd[3];
    for (size_t i = 0; i < 3; i++) {
        fd[i] = connect_to(w);
        say(fd[i], head);
        turn_until(w, &w->heads, i + 1);
    }
    say(fd[0], body);
    /* In small parts, so that the first body is complete before this one. */
    while (STILL(recv(fd[1], said, 1, MSG_DONTWAIT | MSG_PEEK) < 0)) {
        event_base_loop(w->base, EVLOOP_NONBLOCK);
        (void)!send(fd[1], "12345678", 8, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    hear(w, fd[1], "try again\n", said);
    assert_memory_equal(said, "HTTP/1.1 503", 12);
    hear_end(w, fd[1]);
    say(fd[0], "x");
    hear(w, fd[0], "{\"length\":40000}\n", said);
    /* There is room again. */
    say(fd[2], body);
    say(fd[2], "x");
    hear(w, fd[2], "{\"length\":40000}\n", said);
    for (size_t i = 0; i < 3; i++)
        close(fd[i]);
    free(body);
}

/* The grace is over at once: 500 bytes a second, from the first second on. */
static void a_body_that_comes_too_slowly(void **state)
{
    struct world *w = *state;
    char said[SIZE];
    int slow = connect_to(w);
    say(slow, "POST /now" HEAD JSON "Content-Length: 60000\r\n\r\nx");
    int part = connect_to(w);
    say(part, "GET /now" HEAD "\r\nGET /now");
    hear(w, part, "{\"length\":0}\n", said);
    /* No request is incomplete here, however long it takes. */
    int idle = connect_to(w);
    say(idle, "GET /now" HEAD "\r\n");
    hear(w, idle, "{\"length\":0}\n", said);
    turn_until(w, &w->heads, 3);
    hear_end(w, slow);
    hear_end(w, part);
    say(idle, "GET /now" HEAD "\r\n");
    hear(w, idle, "{\"length\":0}\n", said);
    close(slow);
    close(part);
    close(idle);
}

static void a_stream_is_asked_again_and_ends_with_its_role(void **state)
{
    struct world *w = *state;
    char said[SIZE];
    int fd = connect_to(w);
    say(fd, "GET /events" HEAD "\r\n");
    hear(w, fd, "data: {\"length\":0}\n\n", said);
    assert_non_null(strstr(said, "Content-Type: text/event-stream\r\n"));
    assert_null(strstr(said, "Content-Length"));
    hear(w, fd, "data: {\"length\":0}\n\n", said);
    assert_compare(w->heads, >=, 2);
    w->refuses = true;
    hear(w, fd, "event: problem\ndata: who are you?\n\n", said);
    hear_end(w, fd);
    close(fd);
}

static void methods_that_nothing_knows(void **state)
{
    struct world *w = *state;
    char said[SIZE];
    int fd = connect_to(w);
    say(fd, "BREW /secret" HEAD "\r\n");
    hear(w, fd, "DELETE\n", said);
    assert_memory_equal(said, "HTTP/1.1 501", 12);
    assert_null(strstr(said, "Connection: close"));
    say(fd, "get /now" HEAD "\r\n");
    hear(w, fd, "DELETE\n", said);
    assert_int_equal(w->heads, 0);
    close(fd);
}

static size_t allocations_left = SIZE_MAX; /* of jansson */

static void *scarce_malloc(size_t size)
{
    if (allocations_left == 0)
        return NULL;
    allocations_left--;
    return malloc(size);
}

/* Every allocation for an answer fails once. */
static void an_answer_without_memory_is_503(void **state)
{
    struct world *w = *state;
    char said[SIZE] = "";
    int fd = connect_to(w);
    json_set_alloc_funcs(scarce_malloc, free);
    for (size_t left = 0; !strstr(said, "{\"length\":0}"); left++) {
        size_t len = 0;
        allocations_left = left;
        say(fd, "GET /now" HEAD "\r\n");
        turn_until(w, &w->requests, left + 1);
        while (STILL(len == 0 || said[len - 1] != '\n')) {
            ssize_t got = recv(fd, said, SIZE - 1, MSG_DONTWAIT);
            len = got > 0 ? (size_t)got : 0;
            said[len] = '\0';
        }
        bool is_whole =
            strstr(said, "200 OK") && strstr(said, "{\"length\":0}");
        if (!is_whole)
            assert_memory_equal(said, "HTTP/1.1 503", 12);
    }
    assert_compare(w->requests, >, 3);
    json_set_alloc_funcs(malloc, free);
    close(fd);
}

#define TEST(FN) cmocka_unit_test_setup_teardown(FN, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(requests_behind_a_late_answer_wait),
        TEST(a_late_answer_finds_nobody),
        TEST(a_late_answer_is_not_fetched),
        TEST(a_body_comes_in_parts),
        TEST(a_body_of_a_refused_request_is_not_read),
        TEST(a_role_that_goes_while_a_body_comes),
        TEST(bodies_of_all_have_a_bound),
        cmocka_unit_test_setup_teardown(a_body_that_comes_too_slowly,
                                        setup_without_grace, teardown),
        TEST(a_stream_is_asked_again_and_ends_with_its_role),
        TEST(methods_that_nothing_knows),
        TEST(an_answer_without_memory_is_503),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
