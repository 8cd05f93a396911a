/* SPDX-License-Identifier: MIT
 * bench/resp_load.c - sends requests to a server of lines (Redis, memcached,
 * Weir's RESP listener) as fast as it answers, over some connections, with a
 * fixed number of requests under way on each.
 *
 *     resp_load PORT CLIENTS PIPELINE REQUESTS LINES REQUEST
 *
 * REQUEST is sent unchanged, but for \r, \n and "KKKKKK", which is replaced by
 * a number below 100,000, another in each. An answer has LINES lines. One
 * thread, epoll. Prints requests a second. bench/resp starts the server and
 * measures its processor time. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_MAX 1024
#define CLIENTS_MAX 1024
#define PIPELINE_MAX 256
#define KEYS 100000
#define PRIME 7919

struct load {
    int clients, pipeline, lines;
    long requests, sent, answered, errors;
    char request[REQUEST_MAX];
    size_t len;
    char *key; /* in 'request'; NULL: none */
    int epoll;
    int fd[CLIENTS_MAX];
    long waiting[CLIENTS_MAX]; /* lines */
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* Replaces \r and \n by their bytes. */
static void read_request(struct load *load, const char *text)
{
    for (; *text && load->len < REQUEST_MAX - 1; text++) {
        char c = *text;
        if (c == '\\' && (text[1] == 'r' || text[1] == 'n'))
            c = *++text == 'r' ? '\r' : '\n';
        load->request[load->len++] = c;
    }
    load->key = strstr(load->request, "KKKKKK");
}

static void ask(struct load *load, int client)
{
    static char out[PIPELINE_MAX * REQUEST_MAX];
    size_t len = 0;
    for (int i = 0; i < load->pipeline; i++) {
        if (load->key) {
            char digits[8];
            snprintf(digits, sizeof digits, "%06ld", load->sent * PRIME % KEYS);
            memcpy(load->key, digits, 6);
        }
        memcpy(out + len, load->request, load->len);
        len += load->len;
        load->sent++;
    }
    load->waiting[client] = (long)load->pipeline * load->lines;
    if (send(load->fd[client], out, len, MSG_NOSIGNAL) != (ssize_t)len)
        die("send");
}

static void hear(struct load *load, int client)
{
    char in[65536];
    ssize_t got = recv(load->fd[client], in, sizeof in, 0);
    if (got <= 0)
        die("recv");
    load->errors += in[0] == '-' || in[0] == 'E';
    for (const char *at = in;;) {
        at = memchr(at, '\n', (size_t)(in + got - at));
        if (!at)
            break;
        at++;
        load->waiting[client]--;
    }
    if (load->waiting[client] > 0)
        return;
    load->answered += load->pipeline;
    if (load->sent < load->requests)
        ask(load, client);
}

static void begin(struct load *load, int client, int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) < 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = { .events = EPOLLIN,
                                 .data.u32 = (uint32_t)client };
    if (epoll_ctl(load->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        die("epoll_ctl");
    load->fd[client] = fd;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void run(struct load *load)
{
    struct epoll_event events[CLIENTS_MAX];
    for (int i = 0; i < load->clients; i++)
        ask(load, i);
    while (load->answered < load->sent) {
        int count = epoll_wait(load->epoll, events, CLIENTS_MAX, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < count; i++)
            hear(load, (int)events[i].data.u32);
    }
}

int main(int argc, char **argv)
{
    static struct load load;
    if (argc != 7) {
        fprintf(stderr, "resp_load PORT CLIENTS PIPELINE REQUESTS LINES "
                        "REQUEST\n");
        return 2;
    }
    load.clients = atoi(argv[2]);
    load.pipeline = atoi(argv[3]);
    load.requests = atol(argv[4]);
    load.lines = atoi(argv[5]);
    if (load.clients < 1 || load.clients > CLIENTS_MAX || load.pipeline < 1 ||
        load.pipeline > PIPELINE_MAX)
        return 2;
    read_request(&load, argv[6]);
    load.epoll = epoll_create1(0);
    for (int i = 0; i < load.clients; i++)
        begin(&load, i, atoi(argv[1]));
    double start = seconds();
    run(&load);
    printf("%.0f %ld %ld\n", (double)load.answered / (seconds() - start),
           load.answered, load.errors);
    return 0;
}
