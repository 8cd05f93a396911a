/* SPDX-License-Identifier: MIT
 * test/shared_server.h - a Redis, Valkey or memcached of the test's own, on a
 * free port of loopback; it ends with the test's process, however that ends. */

#ifndef SHARED_SERVER_H
#define SHARED_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum shared_server_kind { SHARED_SERVER_REDIS, SHARED_SERVER_MEMCACHED };

struct shared_server {
    enum shared_server_kind kind;
    const char *password;   /* for Redis; NULL: none */
    const char *cert, *key; /* for Redis; files, for TLS only; NULL: plain
                             * text */
    bool cluster;           /* for Redis; a cluster of this one server */
    uint16_t port;          /* 0: a free one is chosen, and kept */
    int reserved; /* a socket that keeps the port meanwhile; 0: none */
    pid_t pid;    /* 0: not running */
    char uri[64];
};

/* Starts it and waits until it answers; false: there is no such program here.
 */
bool shared_server_start(struct shared_server *server);
/* Kills it, like a power cut. */
void shared_server_kill(struct shared_server *server);
/* It keeps its connections and is silent, until it continues. */
void shared_server_stop(struct shared_server *server);
void shared_server_go_on(struct shared_server *server);

/* Connects; -1: no server accepts. */
int shared_server_connect(uint16_t port);

#endif /* SHARED_SERVER_H */
