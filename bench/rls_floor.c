/* SPDX-License-Identifier: MIT
 * bench/rls_floor.c - the least work to answer a gRPC call: nghttp2, epoll, and
 * prepared bytes. The floor under Envoy's rate limit service.
 *
 *     weir-bench-rls-floor HEX    says its port, serves until killed
 *
 * HEX is the answer, without the gRPC frame. Of a call only its end is noticed:
 * no path, no message, no bounds. One recv and one send for all bytes at
 * hand. */

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MAX 4096
#define READ_SIZE 65536
#define EVENTS 64

struct peer {
    int fd;
    nghttp2_session *session;
};

static uint8_t answer[ANSWER_MAX];
static size_t answer_len;
static nghttp2_session_callbacks *callbacks;

#define PAIR(name, value)                                        \
    {                                                            \
        (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, \
            sizeof(value) - 1, NGHTTP2_NV_FLAG_NONE              \
    }

static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *buf,
                           size_t len, uint32_t *flags,
                           nghttp2_data_source *source, void *context)
{
    (void)source;
    (void)context;
    nghttp2_nv trailers[] = { PAIR("grpc-status", "0") };
    if (len < answer_len)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    memcpy(buf, answer, answer_len);
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    (void)nghttp2_submit_trailer(session, id, trailers, 1);
    return (ssize_t)answer_len;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame,
                    void *context)
{
    (void)context;
    nghttp2_nv headers[] = { PAIR(":status", "200"),
                             PAIR("content-type", "application/grpc") };
    nghttp2_data_provider provider = { .read_callback = read_answer };
    bool ends =
        (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
        frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (ends)
        (void)nghttp2_submit_response(session, frame->hd.stream_id, headers, 2,
                                      &provider);
    return 0;
}

static int begin(int epoll, int listening)
{
    int on = 1;
    nghttp2_settings_entry most = { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                    128 };
    struct peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return -1;
    peer->fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK);
    (void)setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = peer };
    if (peer->fd < 0 ||
        nghttp2_session_server_new(&peer->session, callbacks, peer) ||
        nghttp2_submit_settings(peer->session, 0, &most, 1))
        return -1;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, peer->fd, &event);
}

static void end(struct peer *peer)
{
    nghttp2_session_del(peer->session);
    close(peer->fd);
    free(peer);
}

static void serve(struct peer *peer)
{
    static uint8_t in[READ_SIZE], out[1 << 20];
    size_t used = 0;
    const uint8_t *bytes;
    ssize_t len = recv(peer->fd, in, sizeof in, 0);
    if (len <= 0 ||
        nghttp2_session_mem_recv(peer->session, in, (size_t)len) < 0) {
        end(peer);
        return;
    }
    while ((len = nghttp2_session_mem_send(peer->session, &bytes)) > 0 &&
           used + (size_t)len <= sizeof out) {
        memcpy(out + used, bytes, (size_t)len);
        used += (size_t)len;
    }
    if (used > 0 && send(peer->fd, out, used, 0) != (ssize_t)used)
        end(peer);
}

static int start(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, 512) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        return -1;
    printf("%u\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

static void read_hex(const char *hex)
{
    size_t len = strlen(hex) / 2;
    for (size_t i = 0; i < len && i < ANSWER_MAX - 5; i++) {
        char digits[3] = { hex[2 * i], hex[2 * i + 1], '\0' };
        answer[5 + i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    answer[3] = (uint8_t)(len >> 8);
    answer[4] = (uint8_t)len;
    answer_len = 5 + len;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    read_hex(argv[1]);
    if (nghttp2_session_callbacks_new(&callbacks))
        return 1;
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    int epoll = epoll_create1(0);
    int listening = start();
    struct epoll_event event = { .events = EPOLLIN };
    if (listening < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event) < 0)
        return 1;
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr)
                serve(events[i].data.ptr);
            else if (begin(epoll, listening) < 0)
                return 1;
        }
    }
}
