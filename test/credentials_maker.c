/* SPDX-License-Identifier: MIT
 * test/credentials_maker.c - credentials of a text: a file in memory. */

#include "credentials_maker.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int credentials_make(struct weir_text text, struct weir_credentials **out,
                     struct weir_diag *diag)
{
    int fd = memfd_create("credentials", MFD_CLOEXEC);
    weir_assert(fd >= 0 && fchmod(fd, 0600) == 0);
    for (size_t at = 0; at < text.len;) {
        ssize_t written = write(fd, text.p + at, text.len - at);
        weir_assert(written > 0);
        at += (size_t)written;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int error = weir_credentials_open(path, out, diag);
    close(fd);
    return error;
}
