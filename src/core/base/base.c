/* SPDX-License-Identifier: MIT
 * base/base.c - texts, explanations, growing arrays, the assertion. */

#include "core/base/base.h"

#include <stdarg.h>
#include <string.h>

bool weir_text_equal(struct weir_text a, struct weir_text b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

int weir_text_compare(struct weir_text a, struct weir_text b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len > 0 ? memcmp(a.p, b.p, len) : 0;
    if (order != 0)
        return order;
    return (a.len > b.len) - (a.len < b.len);
}

struct weir_text weir_text_of(const char *s)
{
    return (struct weir_text){ s, s ? strlen(s) : 0 };
}

int weir_diag_set(struct weir_diag *diag, int error, ...)
{
    if (!diag)
        return error;
    va_list pieces;
    va_start(pieces, error);
    size_t used = 0;
    for (;;) {
        const char *piece = va_arg(pieces, const char *);
        if (!piece)
            break;
        size_t len = strlen(piece);
        weir_assert(used < sizeof(diag->text));
        size_t room = sizeof(diag->text) - 1 - used;
        if (len > room)
            len = room;
        memcpy(diag->text + used, piece, len);
        used += len;
    }
    va_end(pieces);
    diag->text[used] = '\0';
    return error;
}

void *weir_mem_grow(const struct weir_mem *mem, void *array, size_t size,
                    size_t *capacity, size_t need)
{
    weir_assert(size > 0);
    if (need <= *capacity)
        return array;
    size_t wanted = *capacity > 0 ? *capacity : 8;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2 / size)
            return NULL;
        wanted *= 2;
    }
    void *grown = mem->alloc(mem->context, wanted * size);
    if (!grown)
        return NULL;
    if (*capacity > 0)
        memcpy(grown, array, *capacity * size);
    mem->free(mem->context, array, *capacity * size);
    *capacity = wanted;
    weir_assert(*capacity >= need);
    return grown;
}

/* A trap, not abort(): the pure modules make no system call, and the core dump
 * shows the line in a register of this very frame. */
void weir_assert_failed(const char *what, const char *file, int line)
{
    const char *volatile seen_what = what;
    const char *volatile seen_file = file;
    volatile int seen_line = line;
    (void)seen_what;
    (void)seen_file;
    (void)seen_line;
    __builtin_trap();
}
