/* SPDX-License-Identifier: MIT
 * bench/peer.c - a line in, a line out.
 *
 * A peer's program reads lines and answers each with a JSON object on one line,
 * so that it takes its turn in the rounds like a function of this program:
 *
 *     -> run direct 100000
 *     <- {"ns": 31.7, "disturbed": 0}
 *     -> rest                          (free the memory)
 *     <- {"ns": 0, "disturbed": 0}
 *
 * It ends with its standard input. It times itself as the harness does: one
 * thread by processor time, two by the wall clock.
 *
 * Rejected: linking Rust and Go into this program, since their foreign calls
 * would be measured. */

#include "peer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEERS_MAX 4

struct peer {
    const char *name;
    const char *note; /* reason why it isn't there, or NULL */
    pid_t pid;
    FILE *to;
    FILE *from;
};

static struct peer peers[PEERS_MAX];

static struct peer *peer_find(const char *name)
{
    for (int i = 0; i < PEERS_MAX; i++) {
        if (peers[i].name == NULL)
            peers[i].name = name;
        if (strcmp(peers[i].name, name) == 0)
            return &peers[i];
    }
    abort();
}

static void peer_spawn(struct peer *peer, const char *path)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        abort();
    peer->pid = fork();
    if (peer->pid < 0)
        abort();
    if (peer->pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        execl(path, path, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    peer->to = fdopen(to[1], "w");
    peer->from = fdopen(from[0], "r");
    if (peer->to == NULL || peer->from == NULL)
        abort();
}

const char *bench_peer_start(const char *name, const char *dir)
{
    struct peer *peer = peer_find(name);
    if (peer->to != NULL || peer->note != NULL)
        return peer->note;
    char path[4096];
    snprintf(path, sizeof(path), "%s/bench-%s", dir == NULL ? "." : dir, name);
    if (dir == NULL || access(path, X_OK) != 0) {
        peer->note = "not built";
        return peer->note;
    }
    signal(SIGPIPE, SIG_IGN);
    peer_spawn(peer, path);
    return NULL;
}

static double peer_answer(struct peer *peer, bool *out_disturbed)
{
    char line[256];
    double ns;
    int disturbed;
    if (fgets(line, sizeof(line), peer->from) == NULL)
        return -1;
    if (sscanf(line, "{\"ns\": %lf, \"disturbed\": %d}", &ns, &disturbed) != 2)
        return -1;
    *out_disturbed = disturbed != 0;
    return ns;
}

double bench_peer_ask(const char *name, const char *request, uint64_t n,
                      bool *out_disturbed)
{
    struct peer *peer = peer_find(name);
    fprintf(peer->to, "run %s %llu\n", request, (unsigned long long)n);
    fflush(peer->to);
    return peer_answer(peer, out_disturbed);
}

void bench_peer_rest(const char *name)
{
    struct peer *peer = peer_find(name);
    bool disturbed;
    fprintf(peer->to, "rest\n");
    fflush(peer->to);
    (void)peer_answer(peer, &disturbed);
}

void bench_peer_stop_all(void)
{
    for (int i = 0; i < PEERS_MAX; i++) {
        if (peers[i].to == NULL)
            continue;
        fclose(peers[i].to);
        fclose(peers[i].from);
        waitpid(peers[i].pid, NULL, 0);
        peers[i] = (struct peer){ 0 };
    }
}
