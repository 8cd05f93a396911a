/* SPDX-License-Identifier: MIT
 * test/shared_server.c - real servers, started and killed. */

#include "shared_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons(port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
}

/* The test binds the port, too, so that no other process gets it while the
 * server is dead. The servers set SO_REUSEADDR, and may be bound beside it. */
static void reserve(struct shared_server *server)
{
    struct sockaddr_in at = loopback(0);
    socklen_t len = sizeof(at);
    int on = 1;
    if (server->reserved > 0)
        close(server->reserved);
    server->reserved = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->reserved < 0 ||
        setsockopt(server->reserved, SOL_SOCKET, SO_REUSEADDR, &on,
                   sizeof(on)) != 0 ||
        bind(server->reserved, (struct sockaddr *)&at, len) != 0 ||
        getsockname(server->reserved, (struct sockaddr *)&at, &len) != 0)
        abort();
    server->port = ntohs(at.sin_port);
}

int shared_server_connect(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = loopback(port);
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void run_redis(const struct shared_server *server)
{
    char port[8], nodes[64];
    snprintf(port, sizeof(port), "%u", server->port);
    snprintf(nodes, sizeof(nodes), "weir-nodes-%u.conf", server->port);
    const char *words[] = {
        "redis-server",
        server->cert ? "--tls-port" : "--port",
        port,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        "/tmp",
        "--requirepass",
        server->password ? server->password : "",
        "--cluster-enabled",
        server->cluster ? "yes" : "no",
        "--cluster-config-file",
        nodes,
        /* Read only if there is a certificate. */
        server->cert ? "--port" : NULL,
        "0",
        "--tls-cert-file",
        server->cert,
        "--tls-key-file",
        server->key,
        "--tls-ca-cert-file",
        server->cert,
        "--tls-auth-clients",
        "no",
        NULL,
    };
    execvp("redis-server", (char *const *)words);
    execvp("valkey-server", (char *const *)words);
}

static void run_memcached(const struct shared_server *server)
{
    char port[8];
    snprintf(port, sizeof(port), "%u", server->port);
    /* A server that changes its user would outlive a test that dies: the change
     * clears the setting of prctl(). */
    execlp("memcached", "memcached", "-p", port, "-U", "0", "-l", "127.0.0.1",
           "-u", "root", "-t", "2", (char *)NULL);
}

static void run(const struct shared_server *server, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    if (server->kind == SHARED_SERVER_REDIS)
        run_redis(server);
    else
        run_memcached(server);
    _exit(127);
}

/* True: the child runs. If it doesn't, there is no such program, or no port. */
static bool is_running(struct shared_server *server, int *out_status)
{
    if (waitpid(server->pid, out_status, WNOHANG) != server->pid)
        return true;
    server->pid = 0;
    return false;
}

/* True: it accepts connections. */
static bool await(struct shared_server *server, int *out_status)
{
    for (int tries = 0; tries < 6000; tries++) {
        if (!is_running(server, out_status))
            return false;
        int fd = shared_server_connect(server->port);
        if (fd >= 0) {
            close(fd);
            return true;
        }
        nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000 * 1000 }, NULL);
    }
    shared_server_kill(server);
    return false;
}

bool shared_server_start(struct shared_server *server)
{
    bool chosen = server->port != 0;
    for (int tries = 0; tries < 5; tries++) {
        /* The bus of a cluster is 10,000 ports above. */
        while (!chosen &&
               (server->port == 0 || (server->cluster && server->port > 55000)))
            reserve(server);
        snprintf(server->uri, sizeof(server->uri), "%s://127.0.0.1:%u",
                 server->kind == SHARED_SERVER_MEMCACHED ? "memcached"
                 : server->cert                          ? "rediss"
                                                         : "redis",
                 server->port);
        pid_t parent = getpid();
        int status = 0;
        server->pid = fork();
        if (server->pid == 0)
            run(server, parent);
        if (await(server, &status))
            return true;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
            return false;
        server->port = chosen ? server->port : 0;
    }
    return false;
}

void shared_server_kill(struct shared_server *server)
{
    if (server->pid == 0)
        return;
    kill(server->pid, SIGKILL);
    while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    server->pid = 0;
}

void shared_server_stop(struct shared_server *server)
{
    kill(server->pid, SIGSTOP);
    /* The signal is on its way: waits until it has arrived. */
    while (waitpid(server->pid, NULL, WUNTRACED) < 0 && errno == EINTR)
        ;
}

void shared_server_go_on(struct shared_server *server)
{
    kill(server->pid, SIGCONT);
}
