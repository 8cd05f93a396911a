/* SPDX-License-Identifier: MIT
 * failing_memory.c - makes allocations of a running program fail; a library
 * for LD_PRELOAD.
 *
 * The file that $WEIR_FAILING_MEMORY names is mapped, and a test writes into
 * it when allocations are to fail (failing_memory.py): a program starts with
 * good memory. glibc calls malloc() like any other caller does, so strdup(),
 * asprintf(), fopen(), getaddrinfo() and so on fail too, and so do the
 * libraries of the program.
 *
 * Allocations are counted over all threads. Each that fails leaves its return
 * addresses in the file, for the report of a test that found a fault: the last
 * SITES_MAX of them. */

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SITES_MAX 256
#define SITE_FRAMES 16

/* As in failing_memory.py. */
struct control {
    _Atomic uint64_t from;  /* the first allocation that fails; 0: none does */
    _Atomic uint64_t every; /* from there on each such one fails; 0: no other */
    _Atomic uint64_t count; /* of allocations since 'from' was set */
    _Atomic uint64_t failed;
    uint64_t sites[SITES_MAX][SITE_FRAMES]; /* by 'failed' before */
};

static struct control *control;  /* NULL: nothing fails */
static _Thread_local int inside; /* backtrace() is */

__attribute__((constructor)) static void map_control(void)
{
    const char *path = getenv("WEIR_FAILING_MEMORY");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *first; /* backtrace() loads a library at its first call. */
    (void)backtrace(&first, 1);
    void *p =
        mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p != MAP_FAILED)
        control = p;
}

static void note_site(uint64_t number)
{
    void *frames[SITE_FRAMES];
    inside = 1;
    int depth = backtrace(frames, SITE_FRAMES);
    inside = 0;
    uint64_t *site = control->sites[number % SITES_MAX];
    for (int i = 0; i < SITE_FRAMES; i++)
        site[i] = i < depth ? (uint64_t)(uintptr_t)frames[i] : 0;
}

static int fails(void)
{
    if (!control || inside)
        return 0;
    uint64_t from = atomic_load(&control->from);
    if (from == 0)
        return 0;
    uint64_t count = atomic_fetch_add(&control->count, 1) + 1;
    uint64_t every = atomic_load(&control->every);
    if (count != from &&
        (every == 0 || count < from || (count - from) % every != 0))
        return 0;
    note_site(atomic_fetch_add(&control->failed, 1));
    errno = ENOMEM;
    return 1;
}

/* The next definition of a function: glibc's, or a sanitizer's. */
#define NEXT(name, ...)                                         \
    ({                                                          \
        static __typeof__(name) *next;                          \
        if (!next)                                              \
            next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name); \
        next(__VA_ARGS__);                                      \
    })

void *malloc(size_t size)
{
    return fails() ? NULL : NEXT(malloc, size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : NEXT(calloc, count, size);
}

void *realloc(void *p, size_t size)
{
    return fails() ? NULL : NEXT(realloc, p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : NEXT(aligned_alloc, alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    return fails() ? ENOMEM : NEXT(posix_memalign, out, alignment, size);
}
