/* SPDX-License-Identifier: MIT
 * os/process.h - who a process is, and whether it still is. */

#ifndef WEIR_PROCESS_H
#define WEIR_PROCESS_H

#include "base/base.h"

/* A number that no other process of this host has had since it was started, or
 * will have: its id and when it began. 0: /proc can't be read. */
uint64_t weir_process_self(void);
/* Whether that process may still run a thread: of what isn't known it is
 * assumed. For 0: false. One that called exec() is the same. */
bool weir_process_lives(uint64_t process);

/* Processes know each other by those numbers if they have both of these in
 * common: since when the host runs, and which ids its processes go by here. */
struct weir_process_world {
    uint64_t boot;
    uint64_t names; /* the PID namespace */
};
/* 0 or WEIR_ESYSTEM: /proc can't be read. */
int weir_process_world(struct weir_process_world *out);

/* Waits until '*word' isn't 'seen' and somebody has called the other, at most
 * 'most'; may return at any time. Words of memory that processes share. */
void weir_futex_wait(uint32_t *word, uint32_t seen, weir_duration most);
void weir_futex_wake(uint32_t *word);

#endif /* WEIR_PROCESS_H */
