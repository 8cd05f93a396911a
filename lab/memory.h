/* SPDX-License-Identifier: MIT
 * lab/memory.h - allocation that ends the program on failure: a simulation that
 * goes on without memory proves nothing, and a command has nothing to save.
 * Freed with free(). */

#ifndef WEIR_MEMORY_H
#define WEIR_MEMORY_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/base.h"

/* Ends the program with status 2, and prints why. Any thread; output that isn't
 * written yet is dropped. */
__attribute__((noreturn)) static inline void weir_no_memory(void)
{
    static const char why[] = "weir: out of memory; give the process more "
                              "(ulimit -v), or ask for less at once\n";
    (void)!write(STDERR_FILENO, why, sizeof why - 1);
    _exit(2);
}

static inline void *weir_must(void *p)
{
    if (!p)
        weir_no_memory();
    return p;
}

/* Zeroed; never NULL, also for 'count' 0. */
static inline void *weir_must_zeroed(size_t count, size_t size)
{
    return weir_must(calloc(count > 0 ? count : 1, size));
}

/* Grows the array to 'need' items of 'size' bytes, doubling; new items aren't
 * zeroed. */
static inline void *weir_must_grow(void *array, size_t *capacity, size_t need,
                                   size_t size)
{
    if (need <= *capacity)
        return array;
    size_t more = *capacity > 0 ? 2 * *capacity : 16;
    *capacity = more > need ? more : need;
    return weir_must(reallocarray(array, *capacity, size));
}

/* A NUL-terminated copy. */
static inline char *weir_must_text(struct weir_text text)
{
    char *copy = weir_must(malloc(text.len + 1));
    if (text.len > 0)
        memcpy(copy, text.p, text.len);
    copy[text.len] = '\0';
    return copy;
}

#endif /* WEIR_MEMORY_H */
