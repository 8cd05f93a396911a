/* SPDX-License-Identifier: MIT
 * io/process.h - identities of processes, and whether they still live; threads
 * and futexes. */

#ifndef WEIR_PROCESS_H
#define WEIR_PROCESS_H

#include <pthread.h>

#include "core/base/base.h"

/* The calling process's identity: its id and start time, a number that no
 * other process of this host has had or will have since boot. 0: /proc can't
 * be read. */
uint64_t weir_process_self(void);
/* Whether that process may still run a thread; true if it can't be found out.
 * For 0: false. exec() doesn't change the identity. */
bool weir_process_lives(uint64_t process);

/* Two processes can use each other's identities if both of these are equal: the
 * host's boot and the PID namespace. */
struct weir_process_world {
    uint64_t boot;
    uint64_t names; /* the PID namespace */
};
/* 0 or WEIR_ESYSTEM: /proc can't be read. */
int weir_process_world(struct weir_process_world *out);

/* Starts a thread to which the system delivers no signal: the program's
 * handlers run in its own threads. 0, or an errno. */
int weir_thread_start(pthread_t *out, void *(*run)(void *context),
                      void *context);

/* Waits until '*word' isn't 'seen' and weir_futex_wake() was called, at most
 * for 'most'; may return at any time. For words of shared memory. */
void weir_futex_wait(uint32_t *word, uint32_t seen, weir_duration most);
void weir_futex_wake(uint32_t *word);

#endif /* WEIR_PROCESS_H */
