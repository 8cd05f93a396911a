/* SPDX-License-Identifier: MIT
 * test/shared_server.h - a Redis, Valkey or memcached of the test's own, on a
 * free port of loopback; gone with the test's process, however that ends. */

#ifndef SHARED_SERVER_H
#define SHARED_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum shared_server_kind { SHARED_SERVER_REDIS, SHARED_SERVER_MEMCACHED };

struct shared_server {
    enum shared_server_kind kind;
    const char *password;   /* Redis; NULL: none */
    const char *cert, *key; /* Redis; files, for TLS and nothing else; NULL:
                             * plain text */
    bool cluster;           /* Redis; a cluster of this one */
    uint16_t port;          /* 0: a free one, and then it stays that */
    int reserved; /* a socket that keeps the port meanwhile; 0: none */
    pid_t pid;    /* 0: it doesn't run */
    char uri[64];
};

/* Starts it and waits until it answers; false: there is no such program here.
 */
bool shared_server_start(struct shared_server *server);
/* As a power cut does. */
void shared_server_kill(struct shared_server *server);
/* It keeps its connections and says nothing, until it goes on. */
void shared_server_stop(struct shared_server *server);
void shared_server_go_on(struct shared_server *server);

/* Connects; -1: nobody is there. */
int shared_server_connect(uint16_t port);

#endif /* SHARED_SERVER_H */
