/* SPDX-License-Identifier: MIT
 * libweir/libweir_kick.c - begins the library's threads, and wakes the one that
 * runs the pump: by its eventfd, or in a shared table by the word that the
 * reporter's watcher waits for. */

#include "libweir/libweir_internal.h"

#include <unistd.h>

#include "io/process.h"

void weir_pump_wake(struct weir *weir)
{
    uint64_t one = 1;
    ssize_t done = write(weir->kick_fd, &one, sizeof(one));
    (void)done; /* EAGAIN: it is awake anyway */
}

void weir_pump_kick(struct weir *weir)
{
    if (weir->block)
        weir_block_kick(weir->block);
    else
        weir_pump_wake(weir);
}

bool weir_client_thread(struct weir *weir, const char *name,
                        void *(*run)(void *), pthread_t *out)
{
    int error = weir_thread_start(out, run, weir);
    if (error == 0)
        pthread_setname_np(*out, name);
    return error == 0;
}
