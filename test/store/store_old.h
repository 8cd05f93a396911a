/* SPDX-License-Identifier: MIT
 * test/store/store_old.h - what a store of schema 2 held, and what it must hold
 * after its upgrade, whatever kind of store it is. */

#ifndef WEIR_STORE_OLD_H
#define WEIR_STORE_OLD_H

/* Rows in SQL: VALUES of the columns id, epoch, created, name, fields. The
 * words of on_stale were open and closed, count_limited was count_refused.
 * "words" has texts that contain these words as well, and lines that a
 * careless replacement would take for the field. */
#define STORE_OLD_QUOTAS                                          \
    " (1, 1, 1, 'first', 'on_stale: closed\nlimit: 5/s\n'),"      \
    " (2, 3, 2, 'changed', 'limit: 9/s\non_stale: share\n'),"     \
    " (3, 4, 4, 'last', 'limit: 7/s\non_stale: open\n'),"         \
    " (4, 5, 5, 'on_stale: closed', 'limit: 1/s\n'),"             \
    " (5, 6, 6, 'words', 'limit: 2/s\non_stale: closed\n"         \
    "description: on_stale: open\\non_stale: closed\\n, closed\n" \
    "labels: on_stale=closed\\nx=on_stale: closed\n'),"           \
    " (6, 7, 7, 'hold', 'on_stale: hold\nlimit: 3/s\n'),"         \
    " (7, 8, 8, 'plain', 'limit: 4/s\nsharing: local\n"           \
    "algorithm: fixed_window\ncount_refused: yes\n"               \
    "description: closed\n')"

/* Likewise of epoch, edit, at_ms, who, name, was, became. */
#define STORE_OLD_LOG                                              \
    " (1, 1, 1700000000001, 'ann', 'first', NULL,"                 \
    " 'on_stale: closed\nlimit: 5/s\n'),"                          \
    " (2, 2, 1700000000002, 'on_stale: closed', 'changed', NULL,"  \
    " 'limit: 9/s\non_stale: closed\n'),"                          \
    " (3, 3, 1700000000003, 'bob', 'changed',"                     \
    " 'limit: 9/s\non_stale: closed\n',"                           \
    " 'limit: 9/s\non_stale: share\n'),"                           \
    " (9, 9, 1700000000009, 'bob', 'gone', 'on_stale: closed\n"    \
    "description: on_stale: closed\n', NULL),"                     \
    " (10, 10, 1700000000010, 'bob', 'reset', 'on_stale: open\n'," \
    " 'on_stale: open\n')"

/* The epoch of such a store. */
#define STORE_OLD_EPOCH 10

/* Upgrades the store at 'url', whose schema is 2 and which holds the rows
 * above; reads it, its log, and takes edits back. */
void store_old_check_upgrade(const char *url);

#endif /* WEIR_STORE_OLD_H */
