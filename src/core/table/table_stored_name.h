/* SPDX-License-Identifier: MIT
 * table/table_stored_name.h - the stored form of a given long name, by the
 * templates of a table. */

#ifndef WEIR_TABLE_STORED_NAME_H
#define WEIR_TABLE_STORED_NAME_H

#include "core/quota/glob.h"
#include "core/table/table.h"

/* The quota that rules a given name. */
struct weir_stored_name {
    uint32_t template;             /* WEIR_SLOT_NONE: no template */
    struct weir_captures captures; /* of the template, in the given name */
    size_t len; /* 0: the template's name leaves no room for a hash, or the
                 * search took WEIR_SEARCH_WORK_MAX */
    char buf[WEIR_NAME_MAX];
};

static inline struct weir_text weir_stored_name_text(
    const struct weir_stored_name *name)
{
    return (struct weir_text){ name->buf, name->len };
}

/* Under the lock. 'given' is long (weir_name_is_long()), of at most
 * WEIR_GIVEN_NAME_MAX bytes. */
void weir_stored_name_make(const struct weir_table *table,
                           struct weir_text given,
                           struct weir_stored_name *out);
/* Under the lock: whether the template that rules the given name is also the
 * first that matches its stored form. If not, roots would count it by another
 * quota. */
bool weir_stored_name_holds(const struct weir_table *table,
                            const struct weir_stored_name *name);

/* Finds the slot of a given long name without the lock; false: it isn't there,
 * or was not found for certain. '*out' is written in any case; it may be of
 * quotas that were just edited. Lock-free. */
bool weir_stored_name_find(struct weir_table *table, struct weir_text given,
                           struct weir_stored_name *out,
                           struct weir_ref *out_ref);

#endif /* WEIR_TABLE_STORED_NAME_H */
