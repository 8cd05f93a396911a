/* SPDX-License-Identifier: MIT
 * base/base.c - texts, explanations, growing arrays, the assertion,
 * and one sentence for each error code. */

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
    weir_assert(used < sizeof(diag->text));
    diag->text[used] = '\0';
    return error;
}

int weir_diag_put(struct weir_diag *diag, int error, const char *text)
{
    return weir_diag_set(diag, error, text ? text : weir_strerror(error), NULL);
}

void *weir_mem_grow(const struct weir_mem *mem, void *array, size_t size,
                    size_t *capacity, size_t need)
{
    weir_assert(size > 0 && (array || *capacity == 0));
    /* Without an array there is one after the call, also for no items: NULL
     * means that there is no memory. */
    if (array && need <= *capacity)
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

static const char *const sentences[] = {
    [-WEIR_OK] = "success",
    [-WEIR_EINVAL] = "an argument is outside its range: see the function's "
                     "comment in weir/weir.h",
    [-WEIR_ENOMEM] = "out of memory: give the process more; a limiter takes "
                     "less with a smaller memory_max, a region's root with "
                     "fewer --slots",
    [-WEIR_ENAME] = "bad name: 1 to 255 bytes of UTF-8 without NUL or "
                    "control characters",
    [-WEIR_EQUOTA] = "the quota's fields contradict each other",
    [-WEIR_EPARENT] = "the parent doesn't exist: create it first",
    [-WEIR_ECYCLE] = "the quota would be its own ancestor: choose another "
                     "parent",
    [-WEIR_EDEPTH] = "the chain would be longer than 16 quotas: flatten the "
                     "tree",
    [-WEIR_EEXIST] = "it exists already: choose another name or change that "
                     "one",
    [-WEIR_ENOENT] = "there is no such thing: check the spelling",
    [-WEIR_ECHILDREN] = "the quota has children: remove them or give them "
                        "another parent first",
    [-WEIR_EFULL] = "no room: raise the bound or use fewer",
    [-WEIR_ETIMEOUT] = "it took longer than the time given: wait longer or "
                       "look at the roots",
    [-WEIR_ESYNTAX] = "it can't be parsed",
    [-WEIR_ETOOBIG] = "over the bound: send or store less at once",
    [-WEIR_EPROTOCOL] = "the peer broke the protocol: is it a Weir of another "
                        "version, or no Weir?",
    [-WEIR_ESTORE] = "the quota store can't be used",
    [-WEIR_ELOCKED] = "the quota store is locked by another process: try "
                      "again when it is done",
    [-WEIR_ESCHEMA] = "the quota store was made by another version of Weir: "
                      "upgrade the older of the two",
    [-WEIR_ESYSTEM] = "a system call failed: errno says more",
    [-WEIR_ECONNECT] = "no root can be reached: is `weir serve` running, and "
                       "is the address right?",
    [-WEIR_ECLOSED] = "the limiter was closed",
    [-WEIR_ENOTREADY] = "the root has not read its quotas yet: try again "
                        "soon, or look at its store",
    [-WEIR_ECREDENTIAL] = "no credential that the root knows: give a client "
                          "certificate or a token",
    [-WEIR_EDENIED] = "the credential's role doesn't allow that: ask for "
                      "another one",
    [-WEIR_ECHANGED] = "it has been changed since: look at it again",
    [-WEIR_ETLS] = "TLS failed: are certificate, key and authority the right "
                   "ones?",
    [-WEIR_ETABLE] = "the shared table can't be used: is it of this user, and "
                     "of this version of Weir?",
};

const char *weir_strerror(int error)
{
    if (error > 0 || error <= -(int)WEIR_COUNT_OF(sentences))
        return "unknown error";
    return sentences[-error];
}
