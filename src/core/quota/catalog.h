/* SPDX-License-Identifier: MIT
 * quota/catalog.h - a whole set of quotas: the tree of a store, kept in memory
 * by a root, checked at every edit, walked by epoch when a limiter asks for
 * changes. Pure; grows by the allocator that the caller passes. */

#ifndef WEIR_CATALOG_H
#define WEIR_CATALOG_H

#include "core/quota/glob.h"
#include "core/quota/quota.h"

/* One change of a set: a quota as it is now, or the removal of a name. A
 * removal has only name, epoch and 'order' 0. A quota is 'reduced' if a newer
 * version sent it and this version can't decide it: it has only a name and a
 * place in the tree, and lets all pass. If not even its name could be read, it
 * is empty, with an epoch of 0. 'resets' is for edits only: an existing
 * quota starts again with an empty bucket. It is then a new creation under the
 * same name, with a new 'created'. */
struct weir_change {
    bool removed;
    bool reduced;
    bool resets;
    struct weir_quota quota;
};

struct weir_catalog; /* opaque; one thread at a time */

/* NULL when there is no memory. 'mem' is copied. */
struct weir_catalog *weir_catalog_new(const struct weir_mem *mem,
                                      uint64_t hash_seed);
void weir_catalog_free(struct weir_catalog *catalog);

/* The number of quotas (templates included), and the highest epoch applied. */
size_t weir_catalog_count(const struct weir_catalog *catalog);
uint64_t weir_catalog_epoch(const struct weir_catalog *catalog);

/* Whether this edit would leave a sound tree. Checks the quota itself
 * (weir_quota_check), that its parent exists (a template's parent with captures
 * may exist or not), that no cycle and no chain deeper than WEIR_DEPTH_MAX
 * arises ('diag' names the path), that 'overflow' exists and is no template,
 * that a removed quota exists and has no children, that there are at most
 * WEIR_TEMPLATES_MAX templates. Returns 0 or the error with 'diag' filled.
 * Changes nothing. */
int weir_catalog_check(const struct weir_catalog *catalog,
                       const struct weir_change *change,
                       struct weir_diag *diag);

/* Whether 'name' is sound in the present catalog: a quota's parent, overflow,
 * chain and place; for a name without a quota, that no quota refers to it. An
 * edit of several changes applies all, then checks each, so that their order
 * doesn't matter. Errors as weir_catalog_check(). */
int weir_catalog_check_place(const struct weir_catalog *catalog,
                             struct weir_text name, struct weir_diag *diag);

/* Applies a change as a store hands it out, its epoch being higher than that of
 * any before; all texts are copied. The tree is not checked again. A change
 * with an epoch not above the catalog's is ignored (0). Returns 0 or
 * WEIR_ENOMEM: then nothing has changed. */
int weir_catalog_apply(struct weir_catalog *catalog,
                       const struct weir_change *change);

/* The templates in the order in which they are tried; NULL past the end. */
size_t weir_catalog_templates(const struct weir_catalog *catalog);
const struct weir_quota *weir_catalog_template(
    const struct weir_catalog *catalog, size_t index);

/* The quota of exactly that name (a template by its pattern), or NULL. The
 * pointer lives until the next apply of that name. */
const struct weir_quota *weir_catalog_get(const struct weir_catalog *catalog,
                                          struct weir_text name);

/* Whether a quota of that name was removed since the floor. */
bool weir_catalog_removed(const struct weir_catalog *catalog,
                          struct weir_text name);

/* The quota that rules 'name': exact, else the first template of its set (live
 * or shadow) by order (ties: weir_glob_compare()) with 'captures' filled (count
 * 0 for the others), else the one that the name contains
 * (core/quota/throttle_name.h; it lives until the next call, and borrows
 * 'name'); NULL when there is none. */
const struct weir_quota *weir_catalog_find(const struct weir_catalog *catalog,
                                           struct weir_text name,
                                           struct weir_captures *captures);

/* The first change with an epoch above 'epoch', removals included, in the
 * order of epochs: false when there is none. 'out' is borrowed until the
 * next apply. O(log n) for the first call and after an apply, O(1) for the
 * others through 'cursor' (zero it to begin; it survives applies). */
struct weir_cursor {
    uint64_t opaque[2];
};
bool weir_catalog_since(const struct weir_catalog *catalog, uint64_t epoch,
                        struct weir_cursor *cursor, struct weir_change *out);

/* At most WEIR_TOMBSTONES_MAX removals are kept, as names: some 120 bytes each
 * with their places in the catalog. When an older one is dropped, the floor
 * rises to its epoch: a limiter with an epoch below the floor must be sent the
 * whole set. */
#define WEIR_TOMBSTONES_MAX 100000
/* Keeps at most 'max' instead, 0 to WEIR_TOMBSTONES_MAX: none for a catalog
 * whose changes are never read, such as a store's. Call it before the first
 * apply. */
void weir_catalog_limit_tombstones(struct weir_catalog *catalog, size_t max);
uint64_t weir_catalog_floor(const struct weir_catalog *catalog);
void weir_catalog_set_floor(struct weir_catalog *catalog, uint64_t epoch);

/* Walks all quotas, by name in byte order (sorted on demand: O(n log n)
 * after changes). 'index' from 0 to count - 1; NULL past that, or when there
 * is no memory to sort in. */
const struct weir_quota *weir_catalog_at(struct weir_catalog *catalog,
                                         size_t index);

/* The quotas that name 'name' as parent (literally; not by captures), one per
 * call: the first for 'after' NULL, then the one after that child, then NULL.
 * In no particular order. */
const struct weir_quota *weir_catalog_child(const struct weir_catalog *catalog,
                                            struct weir_text name,
                                            const struct weir_quota *after);

#endif /* WEIR_CATALOG_H */
