/* SPDX-License-Identifier: MIT
 * node/root_peers.c - the queue of peers with messages to be sent, and the
 * limiters by their keys, and as clients of leases. */

#include "core/node/root_state.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/node/root_lease.h"

/* ---- The queue ---- */

void weir_root_enqueue(struct weir_root *root, uint32_t index)
{
    weir_assert(index < root->peers_max);
    struct root_peer *peer = &root->peers[index];
    if (peer->queued || !peer->greeted)
        return;
    peer->queued = true;
    peer->next_queued = 0;
    if (root->queue_last != 0)
        root->peers[root->queue_last - 1].next_queued = index + 1;
    else
        root->queue_first = index + 1;
    root->queue_last = index + 1;
    weir_assert(root->queue_first != 0);
}

void weir_root_enqueue_all(struct weir_root *root)
{
    for (uint32_t i = 0; i < root->peers_max; i++)
        weir_root_enqueue(root, i);
}

void weir_root_welcome_all(struct weir_root *root)
{
    for (uint32_t i = 0; i < root->peers_max; i++) {
        struct root_peer *peer = &root->peers[i];
        if (!peer->greeted)
            continue;
        peer->welcome_owed = true;
        weir_root_enqueue(root, i);
    }
}

bool weir_root_dequeue(struct weir_root *root, uint32_t *out_index)
{
    if (root->queue_first == 0)
        return false;
    *out_index = root->queue_first - 1;
    struct root_peer *peer = &root->peers[*out_index];
    weir_assert(peer->queued);
    root->queue_first = peer->next_queued;
    if (root->queue_first == 0)
        root->queue_last = 0;
    peer->queued = false;
    return true;
}

/* ---- Limiters ---- */

static uint64_t key_hash(const struct weir_root *root,
                         const struct limiter_key *key)
{
    struct weir_text text = { (const char *)key, sizeof *key };
    return weir_hash(text, root->seed);
}

const struct root_limiter *weir_root_find_limiter(const struct weir_root *root,
                                                  const struct limiter_key *key,
                                                  uint32_t *out_index)
{
    uint64_t hash = key_hash(root, key);
    size_t cursor = 0;
    while (weir_index_find(&root->limiter_index, hash, &cursor, out_index)) {
        const struct root_limiter *limiter = root->limiters[*out_index];
        if (memcmp(&limiter->key, key, sizeof *key) == 0)
            return limiter;
    }
    return NULL;
}

/* A free element, or a new one. */
static bool limiter_place(struct weir_root *root, uint32_t *out_index)
{
    weir_assert(root->limiter_live <= root->limiter_used);
    if (root->limiter_live < root->limiter_used) {
        for (uint32_t i = 0; i < root->limiter_used; i++) {
            *out_index = i;
            if (!root->limiters[i]->live)
                return true;
        }
    }
    struct root_limiter **limiters =
        weir_mem_grow(&root->mem, root->limiters, sizeof(*limiters),
                      &root->limiter_capacity, root->limiter_used + 1);
    if (!limiters)
        return false;
    root->limiters = limiters;
    struct root_limiter *limiter =
        root->mem.alloc(root->mem.context, sizeof(struct root_limiter));
    if (!limiter)
        return false;
    *out_index = root->limiter_used;
    weir_assert(root->limiter_used < root->limiter_capacity);
    root->limiters[root->limiter_used++] = limiter;
    return true;
}

bool weir_root_make_limiter(struct weir_root *root,
                            const struct limiter_key *key, uint64_t session,
                            uint32_t *out_index)
{
    if (weir_root_find_limiter(root, key, out_index))
        return true;
    uint32_t index;
    uint64_t hash = key_hash(root, key);
    if (!limiter_place(root, &index) ||
        weir_index_add(&root->limiter_index, &root->mem, hash, index) < 0)
        return false;
    struct root_limiter *limiter = root->limiters[index];
    weir_assert(!limiter->live);
    *limiter = (struct root_limiter){ .key = *key,
                                      .hash = hash,
                                      .live = true,
                                      .last_session = session,
                                      .peer = ROOT_NO_PEER };
    root->limiter_live++;
    weir_assert(root->limiter_live <= root->limiter_used);
    *out_index = index;
    return true;
}

void weir_root_free_limiter(struct weir_root *root, uint32_t index)
{
    weir_assert(index < root->limiter_used);
    struct root_limiter *limiter = root->limiters[index];
    if (limiter->live) {
        weir_merge_forget(&root->merge, &limiter->cells);
        weir_root_forget_limits(root, limiter);
        weir_index_remove(&root->limiter_index, limiter->hash, index);
        limiter->live = false;
        weir_assert(root->limiter_live > 0);
        root->limiter_live--;
    }
}

/* ---- Clients of leases ---- */

struct weir_text weir_root_lease_client_name(const struct weir_root *root,
                                             struct weir_text id)
{
    if (id.len < ROOT_LINK_ID_HEAD || id.p[0] != '\0')
        return id;
    if (id.p[1] == 'r')
        return (struct weir_text){ id.p + ROOT_LINK_ID_HEAD,
                                   id.len - ROOT_LINK_ID_HEAD };
    struct limiter_key key;
    uint32_t index;
    weir_assert(id.len == ROOT_LINK_ID_HEAD + sizeof key);
    memcpy(&key, id.p + ROOT_LINK_ID_HEAD, sizeof key);
    const struct root_limiter *limiter =
        weir_root_find_limiter(root, &key, &index);
    return limiter ? (struct weir_text){ limiter->name, limiter->name_len }
                   : WEIR_TEXT("(gone)");
}

const uint8_t *weir_root_lease_client_incarnation(struct weir_text id)
{
    if (id.len != ROOT_LINK_ID_HEAD + sizeof(struct limiter_key) ||
        id.p[0] != '\0' || id.p[1] != 'l')
        return NULL;
    static_assert(offsetof(struct limiter_key, incarnation) == 0,
                  "an id's first bytes");
    return (const uint8_t *)id.p + ROOT_LINK_ID_HEAD;
}

/* ---- Audits ---- */

static void audit_limiter(const struct weir_root *root, uint32_t index)
{
    const struct root_limiter *limiter = root->limiters[index];
    bool linked = limiter->live && limiter->peer != ROOT_NO_PEER;
    weir_assert(limiter->cells.connected == linked);
    weir_merge_audit_limiter(&limiter->cells);
    if (!linked)
        return;
    weir_assert(limiter->peer < root->peers_max);
    const struct root_peer *peer = &root->peers[limiter->peer];
    weir_assert(peer->greeted && peer->limiter == index);
    uint32_t found;
    weir_assert(weir_root_find_limiter(root, &limiter->key, &found) == limiter);
}

void weir_root_audit(struct weir_root *root, uint32_t n)
{
    weir_assert(root->limiter_live <= root->limiter_used);
    weir_assert(root->limiter_live == root->limiter_index.count);
    weir_assert(root->connected <= root->limiter_live);
    weir_assert((root->queue_first == 0) == (root->queue_last == 0));
    weir_merge_audit(&root->merge, n);
    for (uint32_t i = 0; i < n && i < root->limiter_used; i++) {
        if (root->audit_hand >= root->limiter_used)
            root->audit_hand = 0;
        audit_limiter(root, root->audit_hand++);
    }
    weir_lease_manager_audit(root->leases.manager, n);
}
