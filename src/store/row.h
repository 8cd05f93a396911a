/* SPDX-License-Identifier: MIT
 * store/row.h - quotas as the rows that every kind of store keeps. */

#ifndef WEIR_ROW_H
#define WEIR_ROW_H

#include "store/store.h"

/* Epochs are at most this. A row with another epoch, which only another program
 * can have written, is bad, and isn't the newest. As a text, for SQL. */
#define WEIR_ROW_EPOCH_MAX (UINT64_C(1) << 62)
#define WEIR_ROW_EPOCH_MAX_TEXT "4611686018427387904"

/* A quota, or the removal of a name. weir_fields_write() made 'fields'. Texts
 * are borrowed. */
struct weir_row {
    uint64_t id;
    uint64_t epoch;
    uint64_t created;
    struct weir_text name;
    struct weir_text fields;
    bool removed;
};

/* A change in the log. 'was' and 'became' are fields; 'p' NULL: the quota
 * didn't exist before, or doesn't after. */
struct weir_log_row {
    uint64_t epoch;
    uint64_t edit;
    uint64_t at_ms;
    struct weir_text identity;
    struct weir_text name;
    struct weir_text was;
    struct weir_text became;
};

/* The most bytes that any quota's fields have as a text. */
#define WEIR_FIELDS_MAX 16384

/* Writes the fields that aren't at their defaults, without the name and the
 * store's own fields, into 'buf' of WEIR_FIELDS_MAX bytes. The text lies there;
 * its 'p' is never NULL. */
struct weir_text weir_fields_write(const struct weir_quota *quota, char *buf);

/* SQL for every kind of store: such texts of schema 2 get the words of schema
 * 3. on_stale was open and closed, now pass and limit; count_limited was
 * count_refused. A line begins at the start or after a line feed, and no value
 * contains one: so nothing but these fields is changed. */
#define WEIR_FIELDS_2_TO_3(table, column)                               \
    "UPDATE " table " SET " column " = substr(replace(replace(replace(" \
    "'\n' || " column ", '\non_stale: open\n', '\non_stale: pass\n'),"  \
    " '\non_stale: closed\n', '\non_stale: limit\n'),"                  \
    " '\ncount_refused: ', '\ncount_limited: '), 2) WHERE " column      \
    " LIKE '%on_stale: %' OR " column " LIKE '%count_refused: %'"

/* Initialises 'quota' with 'name' and sets the fields of such a text. 'scratch'
 * holds fields.len bytes; the quota's texts are borrowed from the arguments.
 * WEIR_ESTORE: that is no valid quota, or has a field that this version doesn't
 * know ('diag' names it). */
int weir_fields_read(struct weir_text name, struct weir_text fields,
                     char *scratch, struct weir_quota *quota,
                     struct weir_diag *diag);

#endif /* WEIR_ROW_H */
