/* SPDX-License-Identifier: MIT
 * server/admin/changes.h - a list of changes that owns its texts, to be handed
 * from one thread to another. */

#ifndef WEIR_CHANGES_H
#define WEIR_CHANGES_H

#include "core/quota/catalog.h"

struct weir_changes {
    struct weir_change *at; /* owned, and the block of texts of each */
    void **texts;           /* owned */
    size_t count;
    size_t capacity;
};

/* Copies 'change' to the end. 0 or WEIR_ENOMEM: then nothing has changed.
 * A zeroed list is empty. */
int weir_changes_add(struct weir_changes *list,
                     const struct weir_change *change);
void weir_changes_fini(struct weir_changes *list);

#endif /* WEIR_CHANGES_H */
