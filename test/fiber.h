/* SPDX-License-Identifier: MIT
 * test/fiber.h - threads that take turns: one runs, and says who is next.
 *
 * For one thread of the operating system. Not for the thread sanitizer,
 * which would see one thread's stack jump about. */

#ifndef WEIR_FIBER_H
#define WEIR_FIBER_H

#include <stdbool.h>

#if defined(__has_feature)
#define FIBER_HAS_FEATURE(x) __has_feature(x)
#else
#define FIBER_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || FIBER_HAS_FEATURE(thread_sanitizer)
#define FIBER_UNDER_TSAN true
#else
#define FIBER_UNDER_TSAN false
#endif
#if defined(__SANITIZE_ADDRESS__) || FIBER_HAS_FEATURE(address_sanitizer)
#define FIBER_UNDER_ASAN true
#else
#define FIBER_UNDER_ASAN false
#endif

struct fiber;

/* 'run' must not return: it ends by switching to another for good. The fiber
 * begins at the first switch to it. Aborts without memory. */
struct fiber *fiber_new(void (*run)(void *context), void *context);
void fiber_free(struct fiber *fiber);

/* Forgets where the fiber, which must not be the one that runs, was: the next
 * switch to it calls 'run' anew. */
void fiber_restart(struct fiber *fiber);

/* Goes on where 'to' left off; NULL is who isn't a fiber. Returns when some
 * other switches back. */
void fiber_switch(struct fiber *to);

#endif /* WEIR_FIBER_H */
