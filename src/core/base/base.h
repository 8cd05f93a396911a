/* SPDX-License-Identifier: MIT
 * base/base.h - used by every other module: text, memory, assertions. */

#ifndef WEIR_BASE_H
#define WEIR_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

/* A borrowed run of bytes; the function that returns it says how long it lives.
 * Not NUL-terminated. An absent text has len 0; 'p' may then be NULL. */
struct weir_text {
    const char *p;
    size_t len;
};

#define WEIR_TEXT(literal) \
    ((struct weir_text){ (literal), sizeof(literal) - 1 })

bool weir_text_equal(struct weir_text a, struct weir_text b);
/* <0, 0, >0 as memcmp over the bytes, shorter first. */
int weir_text_compare(struct weir_text a, struct weir_text b);
/* A text over a NUL-terminated string; NULL gives an absent text. */
struct weir_text weir_text_of(const char *s);

/* The explanation of an error, for people: parsers and validators write it into
 * the caller's memory. 'line' and 'column' count from 1; 0: unknown. */
#define WEIR_DIAG_MAX 320
struct weir_diag {
    uint32_t line;
    uint32_t column;
    char text[WEIR_DIAG_MAX];
};

/* Writes pieces of text into 'diag' (NULL: does nothing), cut at its end;
 * the list of 'const char *' ends with NULL. Returns 'error'. */
int weir_diag_set(struct weir_diag *diag, int error, ...);
/* The same with one piece; NULL: weir_strerror(error). */
int weir_diag_put(struct weir_diag *diag, int error, const char *text);

/* An allocator, for the few parts that must grow. free() gets the size too.
 * alloc returns zeroed memory or NULL; free(NULL, 0) is legal. */
struct weir_mem {
    void *context;
    void *(*alloc)(void *context, size_t size);
    void (*free)(void *context, void *p, size_t size);
};

/* Grows an array of 'size'-byte items from '*capacity' to hold at least
 * 'need' (doubling; NULL with a capacity of 0: there is none yet). Returns the
 * array, also for a 'need' of 0, zeroed past the old capacity; or NULL, if
 * there is no memory: then nothing has changed. */
void *weir_mem_grow(const struct weir_mem *mem, void *array, size_t size,
                    size_t *capacity, size_t need);

/* Assertions stay on in production: for conditions that no input can cause. The
 * handler must not return; the default traps. */
void weir_assert_failed(const char *what, const char *file, int line)
    __attribute__((noreturn, cold));
#define weir_assert(condition) \
    ((condition) ? (void)0 : weir_assert_failed(#condition, __FILE__, __LINE__))

/* An assertion that is too expensive for releases: in a hot function, or one
 * that walks. WEIR_AUDITS (meson.build) is 1 in debug builds and beside
 * sanitizers; where it is 0, nothing is evaluated. */
#define weir_audit(condition) weir_assert(!WEIR_AUDITS || (condition))
/* How many slots, quotas or pools an owner audits at each of its ticks, with
 * weir_assert(): all of them where audits are on. In a release the background
 * thread reaches each of n after n / WEIR_AUDITS_PER_TICK ticks. */
#define WEIR_AUDITS_PER_TICK (WEIR_AUDITS ? UINT32_MAX : 4u)
/* An audit at a tick leaves out a list or an array that is longer than this. */
#define WEIR_AUDIT_WALK_MAX (WEIR_AUDITS ? UINT32_MAX : 16u)

#define WEIR_LIKELY(x) __builtin_expect(!!(x), 1)
#define WEIR_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define WEIR_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define WEIR_CACHE_LINE 64

__extension__ typedef unsigned __int128 weir_u128;
__extension__ typedef __int128 weir_i128;

/* Rounded up to whole cache lines. */
static inline size_t weir_aligned(size_t size)
{
    return (size + WEIR_CACHE_LINE - 1) & ~(size_t)(WEIR_CACHE_LINE - 1);
}

/* Carves the next array out of a block, at a cache line. 'block' NULL: sums up
 * the sizes only. */
static inline void *weir_carve(char *block, size_t *at, size_t size)
{
    weir_assert(*at % WEIR_CACHE_LINE == 0);
    void *p = block ? block + *at : NULL;
    *at += weir_aligned(size);
    return p;
}

static inline double weir_smaller(double a, double b)
{
    return a < b ? a : b;
}

static inline double weir_larger(double a, double b)
{
    return a > b ? a : b;
}

static inline weir_duration weir_shorter(weir_duration a, weir_duration b)
{
    return a < b ? a : b;
}

static inline weir_duration weir_longer(weir_duration a, weir_duration b)
{
    return a > b ? a : b;
}

/* The time since 'then'; 0 if a clock stepped back. */
static inline weir_duration weir_since(weir_instant then, weir_instant now)
{
    return now > then ? now - then : 0;
}

/* Instants. Any thread. */
static inline weir_instant weir_earlier(weir_instant a, weir_instant b)
{
    return a < b ? a : b;
}

static inline weir_instant weir_later(weir_instant a, weir_instant b)
{
    return a > b ? a : b;
}

/* now + span; WEIR_NEVER on overflow. */
static inline weir_instant weir_after(weir_instant now, weir_duration span)
{
    return span < WEIR_NEVER - now ? now + span : WEIR_NEVER;
}

/* now - span; 0 on underflow. */
static inline weir_instant weir_before(weir_instant now, weir_duration span)
{
    return now > span ? now - span : 0;
}

#endif /* WEIR_BASE_H */
