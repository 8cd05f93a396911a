/* SPDX-License-Identifier: MIT
 * test/fiber.c - threads that take turns, by setjmp and longjmp.
 *
 * ucontext puts a fiber on a stack of its own, once; but each of its switches
 * makes a system call for the signal mask, which costs ten times the switch
 * itself. So the fiber's first act is a setjmp at the foot of its stack, and
 * from then on all go by longjmp: to where the fiber left off, or, for a
 * restart, to the foot. Frames above it are forgotten, as longjmp always
 * forgets frames. */

/* Its check takes a longjmp to another stack for an error. */
#undef _FORTIFY_SOURCE

#include "fiber.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define STACK_BYTES ((size_t)256 << 10)

struct fiber {
    jmp_buf foot;
    jmp_buf left; /* where it was interrupted */
    bool fresh;   /* begins at the foot */
    void (*run)(void *context);
    void *context;
    const void *stack;
    size_t stack_bytes;
    const char *top; /* of its frames, when it was interrupted */
    void *shadow;    /* the address sanitizer's */
};

/* The code outside of fibers, and the running fiber. */
static struct fiber outside;
static struct fiber *current = &outside;

/* ---- Notices to the address sanitizer ---- */

#if defined(__SANITIZE_ADDRESS__) || FIBER_HAS_FEATURE(address_sanitizer)
#include <sanitizer/common_interface_defs.h>

static void leave(struct fiber *from, const struct fiber *to)
{
    __sanitizer_start_switch_fiber(&from->shadow, to->stack, to->stack_bytes);
}

static void arrive(struct fiber *self, struct fiber *from)
{
    __sanitizer_finish_switch_fiber(self->shadow, &from->stack,
                                    &from->stack_bytes);
}
#else
static void leave(struct fiber *from, const struct fiber *to)
{
    (void)from;
    (void)to;
}

static void arrive(struct fiber *self, struct fiber *from)
{
    (void)self;
    (void)from;
}
#endif

/* ---- Life ---- */

/* The fiber that switched last. While a fiber is made: the context to return
 * to. */
static struct fiber *former;
static ucontext_t maker;

static void at_the_foot(void)
{
    struct fiber *self = current;
    if (_setjmp(self->foot) == 0) {
        arrive(self, &outside);
        leave(self, &outside);
        setcontext(&maker);
    }
    /* Not 'self', which lay in a frame that others may have written to. */
    arrive(current, former);
    current->run(current->context);
    abort();
}

struct fiber *fiber_new(void (*run)(void *context), void *context)
{
    struct fiber *fiber = calloc(1, sizeof(*fiber));
    char *stack = malloc(STACK_BYTES);
    if (!fiber || !stack)
        abort();
    *fiber = (struct fiber){ .fresh = true,
                             .run = run,
                             .context = context,
                             .stack = stack,
                             .stack_bytes = STACK_BYTES };
    ucontext_t foot;
    getcontext(&foot);
    foot.uc_stack.ss_sp = stack;
    foot.uc_stack.ss_size = STACK_BYTES;
    makecontext(&foot, at_the_foot, 0);
    /* The fiber that ran before may have been left by another longjmp. */
    current = fiber;
    leave(&outside, fiber);
    swapcontext(&maker, &foot);
    arrive(&outside, fiber);
    current = &outside;
    return fiber;
}

void fiber_free(struct fiber *fiber)
{
    if (!fiber)
        return;
    free((void *)(uintptr_t)fiber->stack);
    free(fiber);
}

void fiber_restart(struct fiber *fiber)
{
    fiber->fresh = true;
}

/* Continues in 'current', the fiber that was switched to. Never inlined: all
 * frames of the fiber that leaves lie above this one. */
static _Noreturn __attribute__((noinline)) void proceed(void)
{
    bool fresh = current->fresh;
    current->fresh = false;
    former->top = __builtin_frame_address(0);
    leave(former, current);
    _longjmp(fresh ? current->foot : current->left, 1);
}

void fiber_switch(struct fiber *to)
{
    former = current;
    current = to ? to : &outside;
    if (_setjmp(former->left) == 0)
        proceed();
    arrive(current, former);
}

/* ---- Copies ---- */

static size_t frames_bytes(const struct fiber *fiber)
{
    const char *foot = (const char *)fiber->stack + fiber->stack_bytes;
    return (size_t)(foot - fiber->top);
}

size_t fiber_copy_bytes(const struct fiber *fiber)
{
    return sizeof(*fiber) + frames_bytes(fiber);
}

void fiber_copy(const struct fiber *fiber, void *to)
{
    memcpy(to, fiber, sizeof(*fiber));
    memcpy((char *)to + sizeof(*fiber), fiber->top, frames_bytes(fiber));
}

void fiber_put_back(struct fiber *fiber, const void *from)
{
    memcpy(fiber, from, sizeof(*fiber));
    memcpy((char *)(uintptr_t)fiber->top, (const char *)from + sizeof(*fiber),
           frames_bytes(fiber));
}
