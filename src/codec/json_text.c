/* SPDX-License-Identifier: MIT
 * codec/json_text.c - JSON to and from bytes, when allocations fail.
 *
 * The note is a flag of each thread, set by the allocator. It may be set by an
 * object that was then dropped, and the next text on the thread would be lost
 * for that; so the listener forgets the note when a request begins.
 *
 * json_dumps() of jansson 2.14 ignores a failure while it writes the key of a
 * member: the text lacks the key. The text is printed twice instead, first
 * into nothing for its size, and jansson never grows a buffer. */

#include "codec/json_text.h"

#include <stdlib.h>

static _Thread_local bool has_failed;

static void *allocate_json(size_t size)
{
    void *p = malloc(size);
    has_failed = has_failed || !p;
    return p;
}

void weir_json_watch(void)
{
    json_set_alloc_funcs(allocate_json, free);
}

bool weir_json_failed(void)
{
    bool failed = has_failed;
    has_failed = false;
    return failed;
}

json_t *weir_json_read(struct weir_text text, size_t flags, json_error_t *why)
{
    bool before = has_failed;
    has_failed = false;
    json_t *json = json_loadb(text.len ? text.p : "", text.len, flags, why);
    if (has_failed) {
        json_decref(json);
        json = NULL;
        why->text[0] = '\0';
    }
    has_failed = before;
    return json;
}

char *weir_json_print(const json_t *json, size_t flags)
{
    if (weir_json_failed() || !json)
        return NULL;
    size_t len = json_dumpb(json, NULL, 0, flags);
    char *text = len > 0 ? malloc(len + 1) : NULL;
    size_t printed = text ? json_dumpb(json, text, len, flags) : 0;
    bool failed = weir_json_failed();
    if (failed || !text || printed != len) {
        free(text);
        return NULL;
    }
    text[len] = '\0';
    return text;
}
