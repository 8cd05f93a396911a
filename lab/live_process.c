/* SPDX-License-Identifier: MIT
 * lab/live_process.c - a child process whose output lines come as events.
 *
 * A child holds one end of two pipes: its input, and the output with the lines.
 * After the end of its output the child has ended, or is killed, so no signal
 * handler is needed.
 *
 * Between fork() and exec() only async-signal-safe functions are called, since
 * the parent may have threads. PR_SET_PDEATHSIG has no effect if the parent
 * died before the call, so the child then checks its parent's id. */

#include "lab/live_process.h"
#include "lab/memory.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXEC_FAILED 127

struct weir_process {
    struct weir_process_handler handler;
    struct event *readable;
    struct event *writable;
    struct evbuffer *partial; /* not a whole line yet */
    struct evbuffer *unsent;  /* not written yet */
    pid_t pid;
    int in, out;      /* the parent's ends */
    bool busy, freed; /* in a callback; and freed by it */
};

/* ---- The child ---- */

static _Noreturn void become(char *const *argv, int in, int out,
                             enum weir_process_lines lines, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXEC_FAILED);
    setpgid(0, 0);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    if (lines == WEIR_LINES_BOTH)
        dup2(out, STDERR_FILENO);
    close_range(STDERR_FILENO + 1, ~0u, 0);
    execv(argv[0], argv);
    _exit(EXEC_FAILED);
}

/* 'ours' are the parent's ends of the two pipes: input, output. */
static pid_t fork_process(char *const *argv, enum weir_process_lines lines,
                          int ours[2])
{
    int input[2] = { -1, -1 };
    int output[2] = { -1, -1 };
    pid_t pid = -1;
    if (pipe2(input, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0) {
        pid_t parent = getpid();
        pid = fork();
        if (pid == 0)
            become(argv, input[0], output[1], lines, parent);
    }
    int error = errno;
    if (pid < 0) {
        close(input[1]);
        close(output[0]);
    }
    close(input[0]);
    close(output[1]);
    ours[0] = input[1];
    ours[1] = output[0];
    errno = error;
    return pid;
}

/* ---- End of the process ---- */

static int reap_process(struct weir_process *process)
{
    weir_assert(process->pid > 0);
    int status = 0;
    kill(process->pid, SIGKILL);
    while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR)
        ;
    process->pid = 0;
    return status;
}

static void free_process(struct weir_process *process)
{
    weir_assert(process->freed && process->pid == 0 && !process->busy);
    if (process->readable)
        event_free(process->readable);
    if (process->writable)
        event_free(process->writable);
    if (process->partial)
        evbuffer_free(process->partial);
    if (process->unsent)
        evbuffer_free(process->unsent);
    close(process->in);
    close(process->out);
    free(process);
}

void weir_process_free(struct weir_process **process)
{
    struct weir_process *self = *process;
    *process = NULL;
    if (!self)
        return;
    if (self->pid > 0)
        reap_process(self);
    self->freed = true;
    if (!self->busy)
        free_process(self);
}

static void call_on_end(struct weir_process *process)
{
    int status = reap_process(process);
    char why[64];
    if (WIFSIGNALED(status))
        snprintf(why, sizeof why, "signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(why, sizeof why, "exit status %d%s", WEXITSTATUS(status),
                 WEXITSTATUS(status) == EXEC_FAILED ? ": can't be run" : "");
    event_del(process->readable);
    event_del(process->writable);
    process->handler.on_end(process->handler.context, status == 0 ? NULL : why);
}

/* ---- Lines ---- */

static void on_output_readable(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct weir_process *process = context;
    int got = evbuffer_read(process->partial, fd, -1);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    process->busy = true;
    while (!process->freed) {
        char *line = evbuffer_readln(process->partial, NULL, EVBUFFER_EOL_LF);
        if (!line)
            break;
        process->handler.on_line(process->handler.context, line);
        free(line);
    }
    if (!process->freed &&
        evbuffer_get_length(process->partial) > WEIR_PROCESS_LINE_MAX)
        evbuffer_drain(process->partial, WEIR_PROCESS_LINE_MAX);
    if (!process->freed && got <= 0)
        call_on_end(process);
    process->busy = false;
    if (process->freed)
        free_process(process);
}

static void on_input_writable(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct weir_process *process = context;
    /* The end of a child is noticed by its output. */
    int sent = evbuffer_write(process->unsent, fd);
    bool again = sent < 0 && (errno == EAGAIN || errno == EINTR);
    if ((sent < 0 && !again) || evbuffer_get_length(process->unsent) == 0)
        event_del(process->writable);
}

void weir_process_write(struct weir_process *process, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    evbuffer_add_vprintf(process->unsent, format, args);
    va_end(args);
    evbuffer_add(process->unsent, "\n", 1);
    if (process->pid > 0)
        event_add(process->writable, NULL);
}

void weir_process_pause(struct weir_process *process, bool paused)
{
    if (process->pid > 0)
        kill(process->pid, paused ? SIGSTOP : SIGCONT);
}

/* ---- Life ---- */

int weir_process_new(struct event_base *base, char *const *argv,
                     enum weir_process_lines lines,
                     const struct weir_process_handler *handler,
                     struct weir_process **out, struct weir_diag *diag)
{
    int ours[2];
    pid_t pid = fork_process(argv, lines, ours);
    if (pid < 0)
        return weir_diag_set(diag, WEIR_ESYSTEM,
                             "can't start a process: ", strerror(errno), NULL);
    struct weir_process *process = calloc(1, sizeof *process);
    if (!process)
        weir_no_memory();
    *process = (struct weir_process){ .handler = *handler,
                                      .pid = pid,
                                      .in = ours[0],
                                      .out = ours[1],
                                      .partial = evbuffer_new(),
                                      .unsent = evbuffer_new() };
    evutil_make_socket_nonblocking(process->in);
    evutil_make_socket_nonblocking(process->out);
    process->readable = event_new(base, process->out, EV_READ | EV_PERSIST,
                                  on_output_readable, process);
    process->writable = event_new(base, process->in, EV_WRITE | EV_PERSIST,
                                  on_input_writable, process);
    if (!process->readable || !process->writable || !process->partial ||
        !process->unsent)
        weir_no_memory();
    event_add(process->readable, NULL);
    *out = process;
    return 0;
}
