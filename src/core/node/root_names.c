/* SPDX-License-Identifier: MIT
 * core/node/root_names.c - the names that a peer may ask for: one tenant's
 * credential can't charge another tenant's quotas.
 *
 * A name is judged where a message has it: an announcement binds it to a number
 * for the session; counts have only numbers and are not judged; asks and wants
 * have names, and each is judged.
 *
 * A quota's parents are charged with it, and a limiter announces, asks for and
 * wants them by their own names. So a peer that may take from a name may also
 * name its ancestors; these are remembered, by hash, when the name is judged. A
 * message is therefore judged in two passes: first the names that the globs
 * allow, which add their ancestors, then all.
 *
 * A limiter may have to name an ancestor alone: the rest of the chain has
 * drained when a root starts, or goes to another root, or the ancestor was
 * added by an edit. Then it is refused like any other name, and the limiter's
 * next report has a name below it (report.below), which adds it. An ancestor
 * stays allowed as long as the link: if an edit removes it from a chain, that
 * takes effect with the peer's next link.
 *
 * A refused name is answered like one without a quota at this root; the answer
 * also has the reason.
 *
 * Cells outlive links. A limiter with another credential is another limiter,
 * but a credential may be limited to fewer names than before: a peer's hello
 * therefore drops the cells with names that are denied now. */

#include "core/base/hash.h"
#include "core/node/root_state.h"

static uint64_t root_name_hash(const struct weir_root *root,
                               struct weir_text name)
{
    return weir_hash(name, root->seed);
}

static bool is_ancestor(const struct weir_root *root,
                        const struct root_peer *peer, struct weir_text name)
{
    size_t cursor = 0;
    uint32_t value;
    return weir_index_find(&peer->above, root_name_hash(root, name), &cursor,
                           &value);
}

/* Without room or memory an ancestor isn't added, and is refused. */
static void add_above(struct weir_root *root, struct root_peer *peer,
                      struct weir_text name)
{
    weir_assert(peer->above.count <= WEIR_ANCESTORS_MAX);
    if (peer->above.count < WEIR_ANCESTORS_MAX &&
        !weir_name_set_has(peer->names.set, name) &&
        !is_ancestor(root, peer, name))
        (void)weir_index_add(&peer->above, &root->mem,
                             root_name_hash(root, name), 0);
}

/* A catalog bounds the depth of trees, but not of parents by captures. */
static void add_ancestors(struct weir_root *root, struct root_peer *peer,
                          struct weir_text name, struct weir_text *out_overflow)
{
    char names[2][WEIR_NAME_MAX];
    for (int depth = 0; depth < WEIR_DEPTH_MAX; depth++) {
        struct weir_captures captures = { .count = 0 };
        const struct weir_quota *quota =
            weir_catalog_find(root->catalog, name, &captures);
        if (!quota)
            return;
        if (depth == 0)
            *out_overflow = quota->overflow;
        char *buf = names[depth % 2];
        int len = weir_glob_expand(quota->parent, &captures, buf);
        if (len <= 0)
            return;
        weir_assert(len <= WEIR_NAME_MAX);
        name = (struct weir_text){ buf, (size_t)len };
        add_above(root, peer, name);
    }
}

/* Adds the names charged with a name that the peer may take from: its
 * ancestors; and, for a limiter without room for the name, the overflow of its
 * template, which is no template, and that one's ancestors. */
static void add_chain(struct weir_root *root, struct root_peer *peer,
                      struct weir_text name)
{
    struct weir_text overflow = { NULL, 0 };
    struct weir_text none;
    add_ancestors(root, peer, name, &overflow);
    if (overflow.len == 0)
        return;
    add_above(root, peer, overflow);
    add_ancestors(root, peer, overflow, &none);
}

static bool is_limited(const struct root_peer *peer)
{
    return peer->names.set && !peer->names.set->all;
}

void weir_root_names_come(struct weir_root *root, uint32_t index,
                          struct weir_text name)
{
    weir_assert(index < root->peers_max);
    struct root_peer *peer = &root->peers[index];
    if (is_limited(peer) && name.len > 0 &&
        weir_name_set_has(peer->names.set, name))
        add_chain(root, peer, name);
}

static bool is_name_allowed(const struct weir_root *root,
                            const struct root_peer *peer, struct weir_text name)
{
    return !is_limited(peer) || weir_name_set_has(peer->names.set, name) ||
           is_ancestor(root, peer, name);
}

bool weir_root_names_may(struct weir_root *root, uint32_t index,
                         struct weir_text name, weir_instant now)
{
    weir_assert(index < root->peers_max);
    const struct root_peer *peer = &root->peers[index];
    if (is_name_allowed(root, peer, name))
        return true;
    root->stats.denied++;
    if (peer->names.denied)
        peer->names.denied(peer->names.context, name, now);
    return false;
}

/* ---- Cells of an earlier link ---- */

static struct weir_text cell_name(const struct weir_root *root,
                                  const struct weir_limiter_cell *cell)
{
    weir_assert(cell->root_quota <= root->merge.root_quotas_used);
    const struct weir_root_quota *root_quota =
        &root->merge.root_quotas[cell->root_quota - 1];
    return (struct weir_text){ root_quota->name, root_quota->name_len };
}

void weir_root_names_attach(struct weir_root *root, uint32_t index)
{
    const struct root_peer *peer = &root->peers[index];
    weir_assert(peer->greeted);
    struct weir_merge_limiter *cells = &root->limiters[peer->limiter]->cells;
    struct weir_limiter_cell *cell;
    uint32_t cursor = 0;
    if (!is_limited(peer))
        return;
    while (weir_merge_next_cell(cells, &cursor, &cell))
        weir_root_names_come(root, index, cell_name(root, cell));
    cursor = 0;
    while (weir_merge_next_cell(cells, &cursor, &cell)) {
        if (!is_name_allowed(root, peer, cell_name(root, cell)))
            weir_merge_unannounce(&root->merge, cells, cell->slot);
    }
}

/* ---- Life ---- */

void weir_root_names_fini(struct weir_root *root, struct root_peer *peer)
{
    weir_index_fini(&peer->above, &root->mem);
    peer->above = (struct weir_index){ .entries = NULL };
    peer->names = (struct weir_root_names){ .set = NULL };
}

void weir_root_limit_names(struct weir_root *root, uint32_t index,
                           const struct weir_root_names *names)
{
    weir_assert(index < root->peers_max && !root->peers[index].greeted);
    weir_root_names_fini(root, &root->peers[index]);
    root->peers[index].names = *names;
}
