/* SPDX-License-Identifier: MIT
 * test/patience.h - waits with a bound: each wait of a test has a minute.
 *
 * When the minute is over, the program prints the place, the condition and the
 * counter reached so far; then it ends with status PATIENCE_STATUS. The tests
 * after it do not run: they would meet unfinished work, and each would wait as
 * long.
 *
 * $WEIR_PATIENCE is another number of seconds, for tests that are made longer
 * and for sanitizers. A child of fork() has three quarters of it, so that the
 * child's message comes before that of its parent.
 *
 * Only one thread of a process may wait by these at a time; UNTIL() may be used
 * by any thread. In Python: patience.py. */

#ifndef WEIR_PATIENCE_H
#define WEIR_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PATIENCE_STATUS 124

/* Makes a call that may block, and returns its result as a long. */
#define PATIENTLY(CALL) \
    (patience_begin(__FILE__, __LINE__, #CALL), patience_end((long)(CALL)))

/* Conditions of a loop; the test waits for its end, and leaves it in no other
 * way:
 *
 *     while (STILL(!done))
 *         turn();
 *
 * STILL_BELOW's counter is an unsigned; the message prints it. */
#define STILL(CONDITION)                                                       \
    ((CONDITION)                                                               \
         ? patience_on(__FILE__, __LINE__, #CONDITION " to be false", NULL, 0) \
         : patience_end(0) != 0)
#define STILL_BELOW(COUNTER, WANTED)                                       \
    ((COUNTER) < (WANTED)                                                  \
         ? patience_on(__FILE__, __LINE__, #COUNTER, &(COUNTER), (WANTED)) \
         : patience_end(0) != 0)

/* Evaluates the condition each millisecond until it holds. */
#define UNTIL(CONDITION)                                            \
    do {                                                            \
        uint64_t until_ = patience_until();                         \
        while (!(CONDITION))                                        \
            patience_pause(until_, __FILE__, __LINE__, #CONDITION); \
    } while (0)

/* The status of a child that ends by itself, or was killed. If the child waited
 * in vain, so has its parent, and it ends. */
#define STATUS_OF(PID) patience_status(__FILE__, __LINE__, (PID))

/* The first call in a child of fork() that ends by itself. The child ends with
 * its parent, and has its seconds for each of its waits and for the time
 * between them. */
void patience_be_child(void);

/* In such a child: names its next step. */
#define STEP(WHAT) patience_begin(__FILE__, __LINE__, (WHAT))

/* ---- For the macros ---- */

void patience_begin(const char *file, int line, const char *what);
/* Returns 'result'. */
long patience_end(long result);
/* Returns true. The time begins when the place is another one, or a wait has
 * ended. */
bool patience_on(const char *file, int line, const char *what,
                 const unsigned *counter, unsigned wanted);
/* On the monotonic clock, in nanoseconds. */
uint64_t patience_until(void);
void patience_pause(uint64_t until, const char *file, int line,
                    const char *what);
int patience_status(const char *file, int line, pid_t pid);

#endif /* WEIR_PATIENCE_H */
