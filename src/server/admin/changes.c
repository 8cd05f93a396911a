/* SPDX-License-Identifier: MIT
 * server/admin/changes.c - changes with their texts.
 *
 * A change from a store or a request is borrowed. To go to another thread it is
 * copied: the texts of a change go into one block, one after the other, and the
 * copy points there. */

#include "server/admin/changes.h"

#include <stdlib.h>

static int grow_changes(struct weir_changes *list)
{
    if (list->count < list->capacity)
        return 0;
    size_t capacity = list->capacity ? 2 * list->capacity : 16;
    struct weir_change *at = realloc(list->at, capacity * sizeof *at);
    if (!at)
        return WEIR_ENOMEM;
    list->at = at;
    void **texts = realloc(list->texts, capacity * sizeof *texts);
    if (!texts)
        return WEIR_ENOMEM;
    list->texts = texts;
    list->capacity = capacity;
    return 0;
}

int weir_changes_add(struct weir_changes *list,
                     const struct weir_change *change)
{
    int error = grow_changes(list);
    if (error < 0)
        return error;
    weir_assert(list->count < list->capacity);
    /* One byte more: malloc(0) may return NULL. */
    char *texts = malloc(weir_quota_texts_size(&change->quota) + 1);
    if (!texts)
        return WEIR_ENOMEM;
    struct weir_change *copy = &list->at[list->count];
    *copy = *change;
    weir_quota_texts_move(&copy->quota, texts);
    list->texts[list->count] = texts;
    list->count++;
    return 0;
}

void weir_changes_fini(struct weir_changes *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->texts[i]);
    free(list->texts);
    free(list->at);
    *list = (struct weir_changes){ 0 };
}
