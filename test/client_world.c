/* SPDX-License-Identifier: MIT
 * test/client_world.c - real roots, limiters and their events.
 *
 * A root is a process of its own that dies with the test; edits and views go
 * over HTTP by blocking sockets. Its ports are the kernel's choice, and no
 * other process gets them while it is dead: the test is bound to them, too.
 * Only a listener that sets SO_REUSEADDR may be bound beside it. */

#include "client_world.h"
#include "compare.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

weir_instant world_now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * WEIR_SECOND + (uint64_t)at.tv_nsec;
}

void world_pause(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

unsigned world_count(const char *folder)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    unsigned count = 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* ---- Roots ---- */

static void run(const char *format, const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof(command), format, a, b);
    assert_int_equal(PATIENTLY(system(command)), 0);
}

static const char *build(void)
{
    const char *path = getenv("WEIR_BUILD");
    if (!path)
        fail_msg("WEIR_BUILD isn't set: `meson test -C build NAME` sets it");
    return path;
}

static int reserve(char *out_address, size_t size)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_compare(fd, >=, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(out_address, size, "127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

static void make_folder(struct root *root)
{
    memset(root, 0, sizeof(*root));
    strcpy(root->folder, "/tmp/weir-client-XXXXXX");
    assert_non_null(mkdtemp(root->folder));
    root->reserved[0] = reserve(root->address, sizeof(root->address));
    root->reserved[1] = reserve(root->http, sizeof(root->http));
    root->stale_after = "10s";
}

static void make_store(struct root *root)
{
    make_folder(root);
    snprintf(root->store, sizeof(root->store), "sqlite:%s/q.db", root->folder);
    run("%s/weir store init %s >/dev/null", build(), root->store);
}

void root_make(struct root *root)
{
    make_store(root);
    root_start(root);
}

void root_make_soon_stale(struct root *root)
{
    make_store(root);
    root->stale_after = "1s";
    root_start(root);
}

void root_make_beside(struct root *root, const struct root *first)
{
    make_folder(root);
    memcpy(root->store, first->store, sizeof(root->store));
    root_start(root);
}

/* The root writes its ports when it answers. */
static bool is_started(const char *path)
{
    char address[32], http[32];
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    int read = fscanf(file, "listen=%31s http=%31s", address, http);
    fclose(file);
    return read == 2;
}

void root_start(struct root *root)
{
    char program[256], ports[96], log[96];
    snprintf(program, sizeof(program), "%s/weir", build());
    snprintf(ports, sizeof(ports), "%s/ports", root->folder);
    snprintf(log, sizeof(log), "%s/log", root->folder);
    unlink(ports);
    root->pid = fork();
    assert_compare(root->pid, >=, 0);
    if (root->pid == 0) {
        /* Nothing here may allocate: limiters of this process may have been in
         * the allocator when it was forked. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
            _exit(1);
        execl(program, "weir", "serve", "--store", root->store, "--listen",
              root->address, "--http", root->http, "--port-file", ports,
              "--report-interval", "100ms", "--stale-after", root->stale_after,
              NULL);
        _exit(1);
    }
    UNTIL(is_started(ports));
}

void root_kill(struct root *root, int signal)
{
    assert_compare(root->pid, >, 0); /* kill(0) would signal our whole group */
    assert_int_equal(kill(root->pid, signal), 0);
    (void)STATUS_OF(root->pid);
    root->pid = 0;
}

void root_free(struct root *root)
{
    if (root->pid)
        root_kill(root, SIGKILL);
    close(root->reserved[0]);
    close(root->reserved[1]);
    run("rm -r %s%s", root->folder, "");
}

void root_save(const struct root *root)
{
    run("cd %s && mkdir -p kept && cp q.db* kept/%s", root->folder, "");
}

void root_restore(const struct root *root)
{
    run("cd %s && rm q.db* && cp kept/* .%s", root->folder, "");
}

static int connect_http(const struct root *root)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    at.sin_port = htons((uint16_t)atoi(strchr(root->http, ':') + 1));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_compare(fd, >=, 0);
    assert_int_equal(PATIENTLY(connect(fd, (struct sockaddr *)&at, sizeof(at))),
                     0);
    return fd;
}

int root_ask(const struct root *root, const char *method, const char *path,
             const char *body, char *out, size_t size)
{
    char text[65536];
    int len = snprintf(text, sizeof(text),
                       "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n"
                       "Content-Type: application/json\r\n"
                       "Content-Length: %zu\r\n\r\n%s",
                       method, path, root->http, strlen(body), body);
    int fd = connect_http(root);
    assert_int_equal(send(fd, text, (size_t)len, MSG_NOSIGNAL), len);
    size_t got = 0;
    ssize_t part = 1;
    while (part > 0 && got < sizeof(text) - 1) {
        part = PATIENTLY(recv(fd, text + got, sizeof(text) - 1 - got, 0));
        got += part > 0 ? (size_t)part : 0;
    }
    close(fd);
    text[got] = '\0';
    int status = 0;
    assert_int_equal(sscanf(text, "HTTP/1.1 %d", &status), 1);
    const char *begin = strstr(text, "\r\n\r\n");
    if (out)
        snprintf(out, size, "%s", begin ? begin + 4 : "");
    return status;
}

void root_set(const struct root *root, const char *name, const char *fields)
{
    char path[300], said[512];
    snprintf(path, sizeof(path), "/v1/quotas/%s", name);
    int status = root_ask(root, "PUT", path, fields, said, sizeof(said));
    if (status / 100 != 2)
        fail_msg("PUT %s: %d %s", path, status, said);
}

void root_remove(const struct root *root, const char *name)
{
    char path[300];
    snprintf(path, sizeof(path), "/v1/quotas/%s", name);
    assert_int_equal(root_ask(root, "DELETE", path, "", NULL, 0) / 100, 2);
}

/* The number after 'key', from 'from' on. */
static uint64_t number_after(const char *from, const char *key)
{
    const char *at = from ? strstr(from, key) : NULL;
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

uint64_t root_passed(const struct root *root, const char *name)
{
    char text[65536], key[300];
    root_ask(root, "GET", "/v1/usage?limit=1000", "", text, sizeof(text));
    snprintf(key, sizeof(key), "\"name\": \"%s\"", name);
    return number_after(strstr(text, key), "\"passed\": ");
}

uint64_t root_metric(const struct root *root, const char *name)
{
    char text[65536], key[100];
    root_ask(root, "GET", "/metrics", "", text, sizeof(text));
    snprintf(key, sizeof(key), "\n%s ", name);
    return number_after(text, key);
}

unsigned root_limiters(const struct root *root)
{
    char text[65536];
    root_ask(root, "GET", "/v1/status", "", text, sizeof(text));
    return (unsigned)number_after(text, "\"limiters_connected\": ");
}

/* ---- Limiters ---- */

void seen_event(void *context, const struct weir_event *event)
{
    struct seen *seen = context;
    pthread_mutex_lock(&seen->mutex);
    seen->count[event->type % 24]++;
    memcpy(seen->text[event->type % 24], event->text, sizeof(event->text));
    pthread_mutex_unlock(&seen->mutex);
}

unsigned seen_count(struct seen *seen, enum weir_event_type type)
{
    pthread_mutex_lock(&seen->mutex);
    unsigned count = seen->count[type];
    pthread_mutex_unlock(&seen->mutex);
    return count;
}

void seen_text(struct seen *seen, enum weir_event_type type, char *out)
{
    pthread_mutex_lock(&seen->mutex);
    memcpy(out, seen->text[type], sizeof(seen->text[type]));
    pthread_mutex_unlock(&seen->mutex);
}

struct weir *limiter_open(const char *roots, struct seen *seen)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    /* Exact counts, on a busy machine. */
    options.lock_wait = WEIR_SECOND;
    options.roots = roots;
    options.threads_max = 4;
    if (seen) {
        memset(seen, 0, sizeof(*seen));
        pthread_mutex_init(&seen->mutex, NULL);
        options.on_event = seen_event;
        options.event_context = seen;
    }
    struct weir *weir;
    assert_int_equal(weir_open(&options, &weir), 0);
    return weir;
}

struct weir *limiter_ready(const char *roots, struct seen *seen)
{
    struct weir *weir = limiter_open(roots, seen);
    assert_int_equal(weir_ready(weir, GUARD), 0);
    return weir;
}

struct weir_handle handle_open(struct weir *weir, const char *name)
{
    struct weir_handle handle;
    assert_int_equal(weir_handle_open(weir, name, strlen(name), &handle), 0);
    return handle;
}

struct weir_status limiter_status(struct weir *weir)
{
    struct weir_status status;
    weir_status(weir, &status);
    return status;
}

bool limiter_knows(struct weir *weir, const char *name)
{
    struct weir_handle quota = handle_open(weir, name);
    struct weir_reply reply;
    weir_peek(quota, 1, &reply, 0);
    weir_handle_close(quota);
    return !reply.unknown;
}
