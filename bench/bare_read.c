/* SPDX-License-Identifier: MIT
 * bench/bare_read.c - FILE: counts its lines by read() and memchr() alone: the
 * floor under programs that read a log by lines. */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECE (1u << 20)

static unsigned long count_lines(int fd)
{
    static char piece[PIECE];
    unsigned long lines = 0;
    for (;;) {
        ssize_t got = read(fd, piece, sizeof piece);
        if (got <= 0)
            return lines;
        const char *end = piece + got;
        const char *at = memchr(piece, '\n', (size_t)got);
        while (at) {
            lines++;
            at = memchr(at + 1, '\n', (size_t)(end - at - 1));
        }
    }
}

int main(int argc, char **argv)
{
    int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        fprintf(stderr, "usage: weir-bench-bare-read FILE\n");
        return 2;
    }
    printf("%lu\n", count_lines(fd));
    close(fd);
    return 0;
}
