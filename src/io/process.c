/* SPDX-License-Identifier: MIT
 * io/process.c - identities of processes, by /proc; threads and futexes.
 *
 * The system reuses a process's id after its death, so the identity also has
 * its start time, in ticks since boot. A zombie is dead: its threads have
 * ended, and the parent may never wait for it. A process looks like a zombie
 * too if only its first thread has ended, but then it has more than one
 * thread. */

#include "io/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "io/clock.h"

#define START_BITS 40 /* 348 years of 10 ms */
#define START_MASK (((uint64_t)1 << START_BITS) - 1)

/* Reads a small file of /proc; false: it can't be read. */
static bool read_proc_file(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, buf, size - 1);
    close(fd);
    if (len <= 0)
        return false;
    buf[len] = '\0';
    return true;
}

struct looks {
    char state;
    long threads;
    uint64_t start;
};

/* 0, WEIR_ENOENT (no such process), or WEIR_ESYSTEM. */
static int look_at_process(pid_t pid, struct looks *out)
{
    char path[64], text[1024];
    if (kill(pid, 0) < 0 && errno == ESRCH)
        return WEIR_ENOENT;
    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    if (!read_proc_file(path, text, sizeof(text)))
        return kill(pid, 0) < 0 && errno == ESRCH ? WEIR_ENOENT : WEIR_ESYSTEM;
    /* The process name before it may contain blanks and parentheses. */
    const char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest,
                        ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                        "%*s %*s %*s %*s %ld %*s %" SCNu64,
                        &out->state, &out->threads, &out->start) != 3)
        return WEIR_ESYSTEM;
    return 0;
}

static uint64_t process_number(pid_t pid, uint64_t start)
{
    return (uint64_t)pid << START_BITS | (start & START_MASK);
}

uint64_t weir_process_self(void)
{
    struct looks looks;
    pid_t pid = getpid();
    return look_at_process(pid, &looks) == 0 ? process_number(pid, looks.start)
                                             : 0;
}

bool weir_process_lives(uint64_t process)
{
    struct looks looks;
    pid_t pid = (pid_t)(process >> START_BITS);
    if (pid <= 0)
        return false;
    int error = look_at_process(pid, &looks);
    if (error < 0)
        return error != WEIR_ENOENT;
    if (process_number(pid, looks.start) != process || looks.state == 'X')
        return false;
    return looks.state != 'Z' || looks.threads > 1;
}

int weir_process_world(struct weir_process_world *out)
{
    char boot[64];
    struct stat names;
    if (!read_proc_file("/proc/sys/kernel/random/boot_id", boot,
                        sizeof(boot)) ||
        stat("/proc/self/ns/pid", &names) < 0)
        return WEIR_ESYSTEM;
    *out = (struct weir_process_world){
        .boot = weir_hash(weir_text_of(boot), 0),
        .names = names.st_ino,
    };
    return 0;
}

int weir_thread_start(pthread_t *out, void *(*run)(void *context),
                      void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(out, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void weir_futex_wait(uint32_t *word, uint32_t seen, weir_duration most)
{
    struct timespec timeout = weir_timespec_of(most);
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

void weir_futex_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
