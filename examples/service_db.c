/* SPDX-License-Identifier: MIT
 * examples/service_db.c - an HTTP server in front of a database of unknown
 * capacity.
 *
 *     service_db --listen 8080 --roots 127.0.0.1:7077 --database postgres://…
 *
 * GET /sync and GET /bulk send the database the same query. Both enter the
 * quota "db", each as its class, and leave it when the database has answered:
 * the quota adapts its limit to that time. A refused request gets 429 with
 * Retry-After, or waits for its turn: GET /bulk?wait. GET /stats returns the
 * state of the limit.
 *
 * Weir is four calls here: weir_enter(), or weir_enter_wait(), and weir_leave()
 * in ask(), weir_adaptive() in tell_stats(). Each client has a thread and a
 * database connection, so only the quota limits them. */

#include <arpa/inet.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libpq-fe.h>
#include <weir/weir.h>

#define QUESTION "SELECT sell()" /* made by demo_adaptive.py */
#define WAIT_MAX (2 * WEIR_SECOND)
#define REQUEST_MAX 4096

struct service {
    struct weir_handle db;
    const char *database;
    uint32_t sync, bulk; /* classes */
};
static struct service service;

/* A client, with its thread. */
struct client {
    int fd;
    PGconn *database; /* NULL: not yet */
    char request[REQUEST_MAX + 1];
    size_t len;
};

/* ---- HTTP, the necessary subset ---- */

static bool send_all(struct client *client, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(client->fd, text, len, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        text += sent;
        len -= (size_t)sent;
    }
    return true;
}

static bool answer(struct client *client, const char *status,
                   const char *header, const char *body)
{
    char text[1024];
    int len = snprintf(text, sizeof(text),
                       "HTTP/1.1 %s\r\nContent-Length: %zu\r\n%s\r\n%s", status,
                       strlen(body), header, body);
    return send_all(client, text, (size_t)len);
}

/* Whole seconds, as in HTTP: rounded up, so that an obedient client doesn't
 * come too early. */
static bool refuse(struct client *client, const struct weir_reply *reply)
{
    char header[64] = "";
    uint64_t seconds = (reply->retry_after + WEIR_SECOND - 1) / WEIR_SECOND;
    if (!reply->never)
        snprintf(header, sizeof(header), "Retry-After: %" PRIu64 "\r\n",
                 seconds > 0 ? seconds : 1);
    return answer(client, "429 Too Many Requests", header, "");
}

/* ---- The work ---- */

/* Whether the database answered; 'out' is its answer. */
static bool ask_database(struct client *client, char out[64])
{
    if (client->database == NULL)
        client->database = PQconnectdb(service.database);
    PGresult *result = PQexec(client->database, QUESTION);
    bool good = PQresultStatus(result) == PGRES_TUPLES_OK;
    if (good)
        snprintf(out, 64, "%.60s\n", PQgetvalue(result, 0, 0));
    PQclear(result);
    if (!good) { /* the next request connects again */
        PQfinish(client->database);
        client->database = NULL;
    }
    return good;
}

static bool ask(struct client *client, uint32_t klass, bool waits)
{
    struct weir_permit permit;
    struct weir_reply reply;
    enum weir_verdict verdict =
        waits ? weir_enter_wait(service.db, klass, 1, 0, WAIT_MAX, &permit,
                                &reply)
              : weir_enter(service.db, klass, 1, &permit, &reply, 0);
    if (verdict == WEIR_LIMITED)
        return refuse(client, &reply);
    char said[64] = "";
    bool good = ask_database(client, said);
    weir_leave(&permit, good ? WEIR_PERMIT_SUCCESS : WEIR_PERMIT_DROPPED, 0);
    return good ? answer(client, "200 OK", "", said)
                : answer(client, "503 Service Unavailable", "", "");
}

static bool tell_stats(struct client *client)
{
    struct weir_adaptive now = { .reason = "off" };
    char body[256];
    (void)weir_adaptive(service.db, &now, 0);
    snprintf(body, sizeof(body),
             "{\"limit\": %.2f, \"in_flight\": %" PRIu64
             ", \"reason\": \"%s\", \"latency_ms\": %.1f}\n",
             now.limit, now.in_flight, now.reason,
             (double)now.latency / WEIR_MILLISECOND);
    return answer(client, "200 OK", "Content-Type: application/json\r\n", body);
}

static bool serve_one(struct client *client)
{
    const char *line = client->request;
    if (strncmp(line, "GET /sync ", 10) == 0)
        return ask(client, service.sync, false);
    if (strncmp(line, "GET /bulk ", 10) == 0)
        return ask(client, service.bulk, false);
    if (strncmp(line, "GET /bulk?wait ", 15) == 0)
        return ask(client, service.bulk, true);
    if (strncmp(line, "GET /stats ", 11) == 0)
        return tell_stats(client);
    return answer(client, "404 Not Found", "", "");
}

/* Reads one request; false: the client has gone, or its request is too long. */
static bool read_one(struct client *client)
{
    client->len = 0;
    for (;;) {
        ssize_t got = recv(client->fd, client->request + client->len,
                           REQUEST_MAX - client->len, 0);
        if (got <= 0)
            return false;
        client->len += (size_t)got;
        client->request[client->len] = '\0';
        if (strstr(client->request, "\r\n\r\n") != NULL)
            return true;
        if (client->len == REQUEST_MAX)
            return false;
    }
}

static void *serve_client(void *context)
{
    struct client *client = context;
    while (read_one(client) && serve_one(client))
        continue;
    if (client->database != NULL)
        PQfinish(client->database);
    close(client->fd);
    free(client);
    return NULL;
}

/* ---- Start ---- */

static int listen_at(const char *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    address.sin_port = htons((uint16_t)atoi(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
        listen(fd, 256) == 0)
        return fd;
    perror("service_db: listen");
    return -1;
}

static void serve(int listener)
{
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        struct client *client = fd < 0 ? NULL : calloc(1, sizeof(*client));
        pthread_t thread;
        int one = 1;
        if (client == NULL)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        client->fd = fd;
        if (pthread_create(&thread, NULL, serve_client, client) == 0) {
            pthread_detach(thread);
            continue;
        }
        close(fd);
        free(client);
    }
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        { "listen", required_argument, NULL, 'l' },
        { "roots", required_argument, NULL, 'r' },
        { "database", required_argument, NULL, 'd' },
        { NULL, 0, NULL, 0 },
    };
    struct weir_options options = WEIR_OPTIONS_INIT;
    const char *port = NULL;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == 'l')
            port = optarg;
        else if (c == 'r')
            options.roots = optarg;
        else if (c == 'd')
            service.database = optarg;
        else
            return 2;
    }
    if (port == NULL || service.database == NULL) {
        fprintf(stderr,
                "usage: %s --listen PORT --database URL [--roots "
                "HOST:PORT,...]\n",
                argv[0]);
        return 2;
    }
    struct weir *weir;
    int error = weir_open(&options, &weir);
    if (error == 0)
        error = weir_handle_open(weir, "db", 2, &service.db);
    if (error < 0) {
        fprintf(stderr, "service_db: %s\n", weir_strerror(error));
        return 2;
    }
    service.sync = weir_class("sync", 4);
    service.bulk = weir_class("bulk", 4);
    int listener = listen_at(port);
    if (listener < 0)
        return 2;
    serve(listener); /* until it is killed: the roots see it leave */
    return 0;
}
