/* SPDX-License-Identifier: MIT
 * test/planted.h - plants violations in a copy of some state (a child process)
 * and looks whether an audit finds them. */

#ifndef WEIR_TEST_PLANTED_H
#define WEIR_TEST_PLANTED_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A value of the state that is to be wrong. */
struct planted {
    const char *what;
    void *at;
};

#define PLANTED(lvalue)    \
    {                      \
#lvalue, &(lvalue) \
    }

/* Whether an assertion fails in 'audit' when the lowest bit of the first byte
 * at 'at' (NULL: none) is inverted. */
static inline bool audit_fails(void (*audit)(void *state), void *state,
                               void *at)
{
    static const struct rlimit no_core = { 0, 0 };
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &no_core);
        /* Not cmocka's handler, nor a sanitizer's. */
        signal(SIGILL, SIG_DFL);
        signal(SIGTRAP, SIG_DFL);
        if (at)
            *(unsigned char *)at ^= 1;
        audit(state);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) &&
           (WTERMSIG(status) == SIGILL || WTERMSIG(status) == SIGTRAP);
}

/* The audit passes, and fails with each of these. */
static inline void assert_audit_finds(void (*audit)(void *state), void *state,
                                      const struct planted *planted,
                                      size_t count)
{
    assert_false(audit_fails(audit, state, NULL));
    for (size_t i = 0; i < count; i++)
        if (!audit_fails(audit, state, planted[i].at))
            fail_msg("the audit doesn't find a wrong %s", planted[i].what);
}

#endif /* WEIR_TEST_PLANTED_H */
