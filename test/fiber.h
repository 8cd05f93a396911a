/* SPDX-License-Identifier: MIT
 * test/fiber.h - threads that take turns: one runs, and names the next.
 *
 * Runs on one thread of the operating system. Not for the thread sanitizer,
 * which would see one thread's stack jump about. */

#ifndef WEIR_FIBER_H
#define WEIR_FIBER_H

#include <stdbool.h>
#include <stddef.h>

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
/* A function's frames are on its own stack, and can be copied with it; the
 * address sanitizer keeps some of them elsewhere. */
#define FIBER_CAN_COPY (!FIBER_UNDER_ASAN && !FIBER_UNDER_TSAN)

struct fiber;

/* 'run' must not return: it ends by switching to another for good. The fiber
 * begins at the first switch to it. Aborts without memory. */
struct fiber *fiber_new(void (*run)(void *context), void *context);
void fiber_free(struct fiber *fiber);

/* Resets the fiber, which must not be running: the next switch to it calls
 * 'run' anew. */
void fiber_restart(struct fiber *fiber);

/* The frames of a fiber that doesn't run, in that many bytes. A fiber that gets
 * a copy back continues there once more. Only if FIBER_CAN_COPY. */
size_t fiber_copy_bytes(const struct fiber *fiber);
void fiber_copy(const struct fiber *fiber, void *to);
void fiber_put_back(struct fiber *fiber, const void *from);

/* Continues where 'to' was interrupted; NULL: the code outside of fibers.
 * Returns when another fiber switches back. */
void fiber_switch(struct fiber *to);

#endif /* WEIR_FIBER_H */
