/* SPDX-License-Identifier: MIT
 * test/attack/limiters.c - many limiters in one process, which take nothing.
 *
 *     limiters ROOTS COUNT
 *
 * Opens COUNT limiters on ROOTS and prints a line of JSON each 20 ms, until its
 * standard input ends:
 *
 *     {"pid", "at", "up": limiters that have a root}
 *
 * "at" is an instant of CLOCK_MONOTONIC in seconds. WEIR_TLS_CA, WEIR_TLS_CERT
 * and WEIR_TLS_KEY are as for weir(1). */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "load_parts.h"

#define LIMITERS_MAX 4096
#define TELL_EVERY_MS 20
#define MEMORY_MAX 32768 /* of each limiter: it uses none */

static int open_all(struct weir **limiters, size_t count, const char *roots)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.roots = roots;
    options.memory_max = MEMORY_MAX;
    options.tls_ca = getenv("WEIR_TLS_CA");
    options.tls_cert = getenv("WEIR_TLS_CERT");
    options.tls_key = getenv("WEIR_TLS_KEY");
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "crowd-%zu", i);
        options.name = name;
        int error = weir_open(&options, &limiters[i]);
        if (error < 0)
            return error;
    }
    return 0;
}

static size_t count_up(struct weir *const *limiters, size_t count)
{
    size_t up = 0;
    for (size_t i = 0; i < count; i++) {
        struct weir_status status;
        weir_status(limiters[i], &status);
        up += status.roots_up > 0;
    }
    return up;
}

static void tell_until_end(struct weir *const *limiters, size_t count)
{
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    while (poll(&input, 1, TELL_EVERY_MS) == 0) {
        weir_instant now = live_now();
        size_t up = count_up(limiters, count);
        live_tell_begin(now);
        printf("\"up\": %zu", up);
        live_tell_end();
    }
}

int main(int argc, char **argv)
{
    static struct weir *limiters[LIMITERS_MAX];
    size_t count = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    if (count == 0 || count > LIMITERS_MAX) {
        fprintf(stderr, "usage: %s ROOTS COUNT (1 to %d)\n", argv[0],
                LIMITERS_MAX);
        return 2;
    }
    int error = open_all(limiters, count, argv[1]);
    if (error < 0)
        fprintf(stderr, "%s: %s\n", argv[0], weir_strerror(error));
    else
        tell_until_end(limiters, count);
    for (size_t i = 0; i < count && limiters[i]; i++)
        weir_close(limiters[i]);
    return error < 0 ? 2 : 0;
}
