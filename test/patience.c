/* SPDX-License-Identifier: MIT
 * test/patience.c - an alarm ends a process that waits in vain.
 *
 * An alarm and not a time-out of each call: most calls have none, and a test
 * also waits in calls of the library under test. The alarm's handler prints the
 * awaited condition and ends the process. fork() gives a child no alarm of its
 * parent's, and execve() gives a program no handler. */

#include "patience.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define MILLISECOND 1000000

static struct {
    const char *file; /* NULL: the process doesn't wait */
    int line;
    const char *what;
    const unsigned *counter; /* NULL: there is none */
    unsigned wanted;
    pid_t child; /* child waited for; 0: none */
} awaited;

static pid_t first;  /* the test; other processes are children of it */
static bool guarded; /* a child that called patience_be_child() */
static unsigned patience_s = 60;

static bool is_child(void)
{
    return getpid() != first;
}

static unsigned seconds(void)
{
    return is_child() ? (patience_s * 3 + 3) / 4 : patience_s;
}

/* May be called in a signal's handler: so it doesn't use stdio's streams. */
static _Noreturn void give_up(const char *file, int line, const char *what,
                              const char *got)
{
    char text[1024];
    snprintf(text, sizeof(text), "%s:%d: expected %swithin %u s: %s; got %s\n",
             file, line, is_child() ? "of a child " : "", seconds(), what, got);
    (void)!write(STDERR_FILENO, text, strlen(text));
    _exit(PATIENCE_STATUS);
}

static void on_alarm(int number)
{
    (void)number;
    char what[512], got[64] = "nothing";
    if (awaited.child > 0)
        kill(awaited.child, SIGKILL);
    snprintf(what, sizeof(what), "%s", awaited.what);
    if (awaited.counter) {
        snprintf(what, sizeof(what), "%s >= %u", awaited.what, awaited.wanted);
        snprintf(got, sizeof(got), "%u", *awaited.counter);
    }
    give_up(awaited.file, awaited.line, what, got);
}

__attribute__((constructor)) static void begin(void)
{
    const char *said = getenv("WEIR_PATIENCE");
    if (said && atoi(said) > 0)
        patience_s = (unsigned)atoi(said);
    first = getpid();
    /* Without SA_RESTART: under ThreadSanitizer a handler may run only when
     * the call that it interrupts has returned. */
    struct sigaction action = { .sa_handler = on_alarm };
    sigaction(SIGALRM, &action, NULL);
}

void patience_be_child(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    guarded = true;
    patience_begin("fork()", 0, "its first wait, or its end");
}

void patience_begin(const char *file, int line, const char *what)
{
    /* The output so far must be seen if the test ends here. A child has a copy
     * of its parent's unwritten output. */
    if (!is_child())
        fflush(stdout);
    awaited.file = file;
    awaited.line = line;
    awaited.what = what;
    awaited.counter = NULL;
    awaited.child = 0;
    alarm(seconds());
}

long patience_end(long result)
{
    int error = errno;
    if (guarded) {
        patience_begin(awaited.file, awaited.line, "its next wait, or its end");
    } else if (awaited.file) {
        alarm(0);
        awaited.file = NULL;
    }
    errno = error;
    return result;
}

bool patience_on(const char *file, int line, const char *what,
                 const unsigned *counter, unsigned wanted)
{
    if (awaited.line == line && awaited.file && strcmp(awaited.file, file) == 0)
        return true;
    patience_begin(file, line, what);
    awaited.wanted = wanted;
    awaited.counter = counter;
    return true;
}

static uint64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * SECOND + (uint64_t)at.tv_nsec;
}

uint64_t patience_until(void)
{
    return now() + seconds() * SECOND;
}

void patience_pause(uint64_t until, const char *file, int line,
                    const char *what)
{
    if (now() > until) {
        if (!is_child())
            fflush(stdout);
        give_up(file, line, what, "false");
    }
    nanosleep(&(struct timespec){ .tv_nsec = MILLISECOND }, NULL);
}

int patience_status(const char *file, int line, pid_t pid)
{
    int status = -1;
    patience_begin(file, line, "the end of a child");
    awaited.child = pid;
    pid_t ended = waitpid(pid, &status, 0);
    if (ended != pid)
        give_up(file, line, "the end of a child", strerror(errno));
    patience_end(0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == PATIENCE_STATUS)
        give_up(file, line, "the end of a child",
                "one that waited in vain, as it says above");
    return status;
}
