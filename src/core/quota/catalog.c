/* SPDX-License-Identifier: MIT
 * quota/catalog.c - a whole set of quotas in memory.
 *
 * A node is one allocation. Four structures refer to it:
 *
 *     buckets   hash of the name, open addressing: find in O(1)
 *     log       (epoch, node) in the order of epochs: changes since an epoch
 *     templates in the order in which they are tried
 *     children  a list through the nodes that name the same parent
 *
 * A node stands for a name rather than for a quota: it is LIVE, a TOMBSTONE
 * (removed, kept for limiters that must learn of it) or a PHANTOM, a name that
 * is only referred to as a parent. Phantoms are needed because changes come in
 * the order of epochs: a parent that was edited late comes after its children.
 * Only a live node has a quota, its texts and a place among siblings: 500 bytes
 * and more. The others have a name, some 70 bytes, since there may be
 * WEIR_TOMBSTONES_MAX of them.
 *
 * The log is an array, not a list, because a reader's place in it must
 * survive applies: a place is an epoch, found by bisection, and the index
 * kept in a cursor only a guess. A node that changes moves to the end and
 * leaves a hole; holes are squeezed out when the array is full and a quarter
 * of it is holes.
 *
 *     log   [ 3:a | 4:- | 7:b | 8:- | 9:c | 12:a' ]   '-' a hole
 *
 * Texts are copied into a new node at each change. A pointer handed out is
 * valid until that name changes; the neighbours' links are then updated. */

#include "core/quota/catalog.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/quota/quota_text.h"
#include "core/quota/throttle_name.h"

enum state { LIVE, TOMBSTONE, PHANTOM };

struct live_node;

struct node {
    struct weir_text name;   /* in 'quota' of a live node; else behind it */
    struct live_node *child; /* first of those with this parent */
    size_t log_index;
    uint32_t hash;
    uint32_t children;
    enum state state;
};

struct live_node {
    struct node node; /* first */
    struct live_node *sibling_next;
    struct live_node *sibling_prev;
    struct weir_quota quota;
    char texts[];
};

struct entry {
    uint64_t epoch;
    struct node *node; /* NULL: a hole */
};

struct weir_catalog {
    struct weir_mem mem;
    uint64_t seed;
    struct node **buckets; /* a power of two of them */
    size_t bucket_count;
    size_t node_count; /* in buckets, of any state */
    struct entry *log;
    size_t log_count;
    size_t log_capacity;
    size_t log_holes;
    size_t first_tomb; /* no tombstone is before this place of the log */
    const struct weir_quota **templates;
    size_t template_count;
    size_t template_capacity;
    const struct weir_quota **sorted; /* of weir_catalog_at() */
    size_t sorted_capacity;
    bool is_sorted;
    size_t count;
    size_t tombstones;
    size_t tombstones_max;
    uint64_t epoch;
    uint64_t floor;
    struct weir_quota *brought; /* owned: the quota in the last name looked
                                 * up */
};

#define BUCKETS_MIN 64

/* ---- Nodes ---------------------------------------------------------- */

static void *allocate_in_catalog(struct weir_catalog *catalog, size_t size)
{
    return catalog->mem.alloc(catalog->mem.context, size);
}

static void free_in_catalog(struct weir_catalog *catalog, void *p, size_t size)
{
    catalog->mem.free(catalog->mem.context, p, size);
}

static struct live_node *live_of(struct node *node)
{
    weir_assert(node->state == LIVE);
    return (struct live_node *)node;
}

static const struct weir_quota *quota_of(const struct node *node)
{
    weir_assert(node->state == LIVE);
    return &((const struct live_node *)node)->quota;
}

/* The node of a quota that was handed out. */
static const struct live_node *node_of(const struct weir_quota *quota)
{
    return (const void *)((const char *)quota -
                          offsetof(struct live_node, quota));
}

static struct node *make_live_node(struct weir_catalog *catalog,
                                   const struct weir_quota *quota)
{
    struct live_node *live = allocate_in_catalog(
        catalog, sizeof(*live) + weir_quota_texts_size(quota));
    if (!live)
        return NULL;
    live->quota = *quota;
    weir_quota_texts_move(&live->quota, live->texts);
    live->node = (struct node){ .name = live->quota.name, .state = LIVE };
    return &live->node;
}

/* A tombstone or a phantom. */
static struct node *make_name_node(struct weir_catalog *catalog,
                                   struct weir_text name, enum state state)
{
    struct node *node = allocate_in_catalog(catalog, sizeof(*node) + name.len);
    if (!node)
        return NULL;
    char *text = (char *)(node + 1);
    if (name.len > 0)
        memcpy(text, name.p, name.len);
    *node = (struct node){ .name = { text, name.len }, .state = state };
    return node;
}

static void free_node(struct weir_catalog *catalog, struct node *node)
{
    size_t size =
        node->state == LIVE
            ? sizeof(struct live_node) + weir_quota_texts_size(quota_of(node))
            : sizeof(*node) + node->name.len;
    free_in_catalog(catalog, node, size);
}

static uint32_t hash_name(const struct weir_catalog *catalog,
                          struct weir_text name)
{
    return (uint32_t)weir_hash(name, catalog->seed);
}

/* The bucket of the name, or the empty one where it would be. */
static size_t find_hash_bucket(const struct weir_catalog *catalog,
                               struct weir_text name, uint32_t hash)
{
    weir_assert(catalog->node_count < catalog->bucket_count);
    size_t mask = catalog->bucket_count - 1;
    size_t at = hash & mask;
    while (catalog->buckets[at]) {
        const struct node *node = catalog->buckets[at];
        if (node->hash == hash && weir_text_equal(node->name, name))
            break;
        at = (at + 1) & mask;
    }
    return at;
}

static struct node *find_node(const struct weir_catalog *catalog,
                              struct weir_text name)
{
    uint32_t hash = hash_name(catalog, name);
    return catalog->buckets[find_hash_bucket(catalog, name, hash)];
}

/* Room for two more nodes (a name's and its parent's phantom), three
 * quarters full at most. */
static int reserve_buckets(struct weir_catalog *catalog)
{
    if (catalog->node_count + 2 <= catalog->bucket_count / 4 * 3)
        return 0;
    size_t count = catalog->bucket_count * 2;
    struct node **buckets =
        allocate_in_catalog(catalog, count * sizeof(*buckets));
    if (!buckets)
        return WEIR_ENOMEM;
    for (size_t i = 0; i < catalog->bucket_count; i++) {
        struct node *node = catalog->buckets[i];
        if (!node)
            continue;
        size_t at = node->hash & (count - 1);
        while (buckets[at])
            at = (at + 1) & (count - 1);
        buckets[at] = node;
    }
    free_in_catalog(catalog, catalog->buckets,
                    catalog->bucket_count * sizeof(*buckets));
    catalog->buckets = buckets;
    catalog->bucket_count = count;
    weir_assert((count & (count - 1)) == 0);
    weir_assert(catalog->node_count + 2 <= count / 4 * 3);
    return 0;
}

/* Removes a node and closes the gap: nodes pushed past it by a collision move
 * back, so that no marker of removal is needed. */
static void remove_bucket(struct weir_catalog *catalog, size_t hole)
{
    weir_assert(hole < catalog->bucket_count && catalog->buckets[hole]);
    size_t mask = catalog->bucket_count - 1;
    size_t at = hole;
    for (;;) {
        at = (at + 1) & mask;
        struct node *node = catalog->buckets[at];
        if (!node)
            break;
        size_t home = node->hash & mask;
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        catalog->buckets[hole] = node;
        hole = at;
    }
    catalog->buckets[hole] = NULL;
    weir_assert(catalog->node_count > 0);
    catalog->node_count--;
}

/* Frees a phantom without children. */
static void drop_phantom(struct weir_catalog *catalog, struct node *node)
{
    if (node->state != PHANTOM || node->children > 0)
        return;
    weir_assert(!node->child);
    remove_bucket(catalog, find_hash_bucket(catalog, node->name, node->hash));
    free_node(catalog, node);
}

/* ---- Parents and children ------------------------------------------- */

static bool has_literal_parent(const struct weir_quota *quota)
{
    return quota->parent.len > 0 && !weir_text_has(quota->parent, '{');
}

static void unlink_child(struct weir_catalog *catalog, struct node *node)
{
    if (node->state != LIVE || !has_literal_parent(quota_of(node)))
        return;
    struct live_node *live = live_of(node);
    struct node *parent = find_node(catalog, live->quota.parent);
    weir_assert(parent && parent->children > 0);
    if (live->sibling_prev)
        live->sibling_prev->sibling_next = live->sibling_next;
    else
        parent->child = live->sibling_next;
    if (live->sibling_next)
        live->sibling_next->sibling_prev = live->sibling_prev;
    parent->children--;
    drop_phantom(catalog, parent);
}

static void link_child(struct node *parent, struct live_node *live)
{
    live->sibling_prev = NULL;
    live->sibling_next = parent->child;
    if (parent->child)
        parent->child->sibling_prev = live;
    parent->child = live;
    parent->children++;
    weir_assert(parent->children > 0 && parent->child == live);
}

/* The node of a parent's name, made as a phantom if necessary. */
static struct node *need_parent(struct weir_catalog *catalog,
                                struct weir_text name)
{
    uint32_t hash = hash_name(catalog, name);
    size_t at = find_hash_bucket(catalog, name, hash);
    if (catalog->buckets[at])
        return catalog->buckets[at];
    struct node *node = make_name_node(catalog, name, PHANTOM);
    if (!node)
        return NULL;
    node->hash = hash;
    catalog->buckets[at] = node;
    catalog->node_count++;
    weir_assert(catalog->node_count < catalog->bucket_count);
    return node;
}

/* ---- Templates ------------------------------------------------------ */

static bool is_tried_before(const struct weir_quota *a,
                            const struct weir_quota *b)
{
    if (a->order != b->order)
        return a->order < b->order;
    return weir_glob_compare(a->name, b->name) < 0;
}

static void remove_template(struct weir_catalog *catalog,
                            const struct weir_quota *quota)
{
    size_t at = 0;
    while (at < catalog->template_count && catalog->templates[at] != quota)
        at++;
    weir_assert(at < catalog->template_count);
    catalog->template_count--;
    memmove(&catalog->templates[at], &catalog->templates[at + 1],
            (catalog->template_count - at) * sizeof(*catalog->templates));
}

static void insert_template(struct weir_catalog *catalog,
                            const struct weir_quota *quota)
{
    weir_assert(catalog->template_count < catalog->template_capacity);
    size_t at = catalog->template_count++;
    for (; at > 0; at--) {
        if (!is_tried_before(quota, catalog->templates[at - 1]))
            break;
        catalog->templates[at] = catalog->templates[at - 1];
    }
    catalog->templates[at] = quota;
    weir_assert(catalog->template_count <= catalog->count);
}

/* ---- The log -------------------------------------------------------- */

static void squeeze_log(struct weir_catalog *catalog)
{
    size_t to = 0;
    size_t first_tomb = 0;
    for (size_t from = 0; from < catalog->log_count; from++) {
        if (from == catalog->first_tomb)
            first_tomb = to;
        if (!catalog->log[from].node)
            continue;
        catalog->log[to] = catalog->log[from];
        catalog->log[to].node->log_index = to;
        to++;
    }
    weir_assert(to + catalog->log_holes == catalog->log_count);
    if (catalog->first_tomb >= catalog->log_count)
        first_tomb = to;
    catalog->first_tomb = first_tomb;
    catalog->log_count = to;
    catalog->log_holes = 0;
    weir_assert(catalog->first_tomb <= catalog->log_count);
}

static int reserve_log(struct weir_catalog *catalog)
{
    if (catalog->log_count < catalog->log_capacity)
        return 0;
    if (catalog->log_holes > catalog->log_capacity / 4) {
        squeeze_log(catalog);
        return 0;
    }
    void *log =
        weir_mem_grow(&catalog->mem, catalog->log, sizeof(*catalog->log),
                      &catalog->log_capacity, catalog->log_count + 1);
    if (!log)
        return WEIR_ENOMEM;
    catalog->log = log;
    return 0;
}

static void leave_log(struct weir_catalog *catalog, struct node *node)
{
    if (node->state == PHANTOM)
        return;
    weir_assert(catalog->log[node->log_index].node == node);
    catalog->log[node->log_index].node = NULL;
    catalog->log_holes++;
    weir_assert(catalog->log_holes <= catalog->log_count);
}

static void enter_log(struct weir_catalog *catalog, struct node *node,
                      uint64_t epoch)
{
    weir_assert(catalog->log_count < catalog->log_capacity);
    weir_assert(catalog->log_count == 0 ||
                catalog->log[catalog->log_count - 1].epoch < epoch);
    node->log_index = catalog->log_count;
    catalog->log[catalog->log_count++] = (struct entry){ epoch, node };
}

/* Drops the oldest tombstone. Its node is freed, or becomes a phantom. */
static void forget_tombstone(struct weir_catalog *catalog)
{
    weir_assert(catalog->tombstones > 0);
    struct entry *entry = &catalog->log[catalog->first_tomb];
    while (!entry->node || entry->node->state != TOMBSTONE) {
        entry++;
        weir_assert(entry < catalog->log + catalog->log_count);
    }
    catalog->first_tomb = (size_t)(entry - catalog->log) + 1;
    struct node *node = entry->node;
    if (entry->epoch > catalog->floor)
        catalog->floor = entry->epoch;
    leave_log(catalog, node);
    catalog->tombstones--;
    node->state = PHANTOM;
    drop_phantom(catalog, node);
}

/* ---- Life ----------------------------------------------------------- */

struct weir_catalog *weir_catalog_new(const struct weir_mem *mem,
                                      uint64_t hash_seed)
{
    struct weir_catalog *catalog = mem->alloc(mem->context, sizeof(*catalog));
    if (!catalog)
        return NULL;
    catalog->mem = *mem;
    catalog->seed = hash_seed;
    catalog->tombstones_max = WEIR_TOMBSTONES_MAX;
    catalog->bucket_count = BUCKETS_MIN;
    catalog->buckets =
        allocate_in_catalog(catalog, BUCKETS_MIN * sizeof(*catalog->buckets));
    catalog->brought = allocate_in_catalog(catalog, sizeof(*catalog->brought));
    if (!catalog->buckets || !catalog->brought) {
        weir_catalog_free(catalog);
        return NULL;
    }
    return catalog;
}

void weir_catalog_free(struct weir_catalog *catalog)
{
    if (!catalog)
        return;
    for (size_t i = 0; catalog->buckets && i < catalog->bucket_count; i++) {
        if (catalog->buckets[i])
            free_node(catalog, catalog->buckets[i]);
    }
    free_in_catalog(catalog, catalog->buckets,
                    catalog->bucket_count * sizeof(*catalog->buckets));
    free_in_catalog(catalog, catalog->log,
                    catalog->log_capacity * sizeof(*catalog->log));
    free_in_catalog(catalog, catalog->templates,
                    catalog->template_capacity * sizeof(*catalog->templates));
    free_in_catalog(catalog, catalog->sorted,
                    catalog->sorted_capacity * sizeof(*catalog->sorted));
    free_in_catalog(catalog, catalog->brought, sizeof(*catalog->brought));
    struct weir_mem mem = catalog->mem;
    mem.free(mem.context, catalog, sizeof(*catalog));
}

void weir_catalog_limit_tombstones(struct weir_catalog *catalog, size_t max)
{
    weir_assert(catalog->epoch == 0 && max <= WEIR_TOMBSTONES_MAX);
    catalog->tombstones_max = max;
}

size_t weir_catalog_count(const struct weir_catalog *catalog)
{
    return catalog->count;
}

size_t weir_catalog_templates(const struct weir_catalog *catalog)
{
    return catalog->template_count;
}

uint64_t weir_catalog_epoch(const struct weir_catalog *catalog)
{
    return catalog->epoch;
}

uint64_t weir_catalog_floor(const struct weir_catalog *catalog)
{
    return catalog->floor;
}

void weir_catalog_set_floor(struct weir_catalog *catalog, uint64_t epoch)
{
    if (epoch > catalog->floor)
        catalog->floor = epoch;
}

/* ---- Applying ------------------------------------------------------- */

/* Reserves all memory that an apply may need, before anything changes. */
static int reserve_apply(struct weir_catalog *catalog)
{
    if (reserve_buckets(catalog) < 0)
        return WEIR_ENOMEM;
    void *templates = weir_mem_grow(
        &catalog->mem, catalog->templates, sizeof(*catalog->templates),
        &catalog->template_capacity, catalog->template_count + 1);
    if (!templates)
        return WEIR_ENOMEM;
    catalog->templates = templates;
    return reserve_log(catalog);
}

/* Replaces the node of a name, if there is one. */
static void replace_node(struct weir_catalog *catalog, struct node *old,
                         struct node *node)
{
    weir_assert(!old || old->hash == node->hash);
    size_t at = find_hash_bucket(catalog, node->name, node->hash);
    if (!old)
        catalog->node_count++;
    catalog->buckets[at] = node;
    if (!old)
        return;
    weir_assert(old->state != LIVE || catalog->count > 0);
    weir_assert(old->state != TOMBSTONE || catalog->tombstones > 0);
    node->child = old->child;
    node->children = old->children;
    if (old->state == LIVE)
        catalog->count--;
    if (old->state == TOMBSTONE)
        catalog->tombstones--;
    leave_log(catalog, old);
    if (old->state == LIVE && weir_quota_is_template(quota_of(old)))
        remove_template(catalog, quota_of(old));
    free_node(catalog, old);
}

static void enter_node(struct weir_catalog *catalog, struct node *node,
                       uint64_t epoch, struct node *parent)
{
    weir_assert(epoch > catalog->epoch);
    enter_log(catalog, node, epoch);
    catalog->epoch = epoch;
    catalog->is_sorted = false;
    if (node->state == TOMBSTONE) {
        catalog->tombstones++;
        if (catalog->tombstones > catalog->tombstones_max)
            forget_tombstone(catalog);
        weir_assert(catalog->tombstones <= catalog->tombstones_max);
        return;
    }
    catalog->count++;
    if (parent)
        link_child(parent, live_of(node));
    if (weir_quota_is_template(quota_of(node)))
        insert_template(catalog, quota_of(node));
    weir_assert(catalog->count <= catalog->node_count);
}

int weir_catalog_apply(struct weir_catalog *catalog,
                       const struct weir_change *change)
{
    const struct weir_quota *quota = &change->quota;
    if (quota->epoch <= catalog->epoch)
        return 0;
    if (reserve_apply(catalog) < 0)
        return WEIR_ENOMEM;
    struct node *node = change->removed
                            ? make_name_node(catalog, quota->name, TOMBSTONE)
                            : make_live_node(catalog, quota);
    if (!node)
        return WEIR_ENOMEM;
    node->hash = hash_name(catalog, node->name);
    bool has_parent = !change->removed && has_literal_parent(quota);
    struct node *parent =
        has_parent ? need_parent(catalog, quota->parent) : NULL;
    if (has_parent && !parent) {
        free_node(catalog, node);
        return WEIR_ENOMEM;
    }
    struct node *old = find_node(catalog, node->name);
    /* counted first, so that leaving the same parent can't drop it */
    if (parent)
        parent->children++;
    if (old)
        unlink_child(catalog, old);
    weir_assert(!parent || parent->children > 0);
    if (parent)
        parent->children--;
    /* an unchecked set may have a quota that is its own parent */
    if (parent == old && parent)
        parent = node;
    replace_node(catalog, old, node);
    enter_node(catalog, node, quota->epoch, parent);
    weir_assert(!parent || (parent->children == 0) == !parent->child);
    weir_assert(catalog->count + catalog->tombstones <= catalog->node_count);
    return 0;
}

/* ---- Reading -------------------------------------------------------- */

const struct weir_quota *weir_catalog_get(const struct weir_catalog *catalog,
                                          struct weir_text name)
{
    const struct node *node = find_node(catalog, name);
    return node && node->state == LIVE ? quota_of(node) : NULL;
}

bool weir_catalog_removed(const struct weir_catalog *catalog,
                          struct weir_text name)
{
    const struct node *node = find_node(catalog, name);
    return node && node->state == TOMBSTONE;
}

const struct weir_quota *weir_catalog_find(const struct weir_catalog *catalog,
                                           struct weir_text name,
                                           struct weir_captures *captures)
{
    struct weir_captures found = { .count = 0 };
    const struct weir_quota *quota = weir_catalog_get(catalog, name);
    bool shadow = weir_name_is_shadow(name);
    for (size_t i = 0; !quota && i < catalog->template_count; i++) {
        const struct weir_quota *template = catalog->templates[i];
        if (weir_name_is_shadow(template->name) == shadow &&
            weir_template_match(template->glob, template->name, name, &found))
            quota = template;
    }
    if (!quota && weir_throttle_name_read(name, catalog->brought))
        quota = catalog->brought;
    if (quota && captures)
        *captures = found;
    return quota;
}

const struct weir_quota *weir_catalog_template(
    const struct weir_catalog *catalog, size_t index)
{
    return index < catalog->template_count ? catalog->templates[index] : NULL;
}

const struct weir_quota *weir_catalog_child(const struct weir_catalog *catalog,
                                            struct weir_text name,
                                            const struct weir_quota *after)
{
    const struct live_node *next;
    if (after) {
        next = node_of(after)->sibling_next;
    } else {
        const struct node *node = find_node(catalog, name);
        next = node ? node->child : NULL;
    }
    return next ? &next->quota : NULL;
}

/* The first place of the log with an epoch above 'epoch'. */
static size_t bisect(const struct weir_catalog *catalog, uint64_t epoch)
{
    size_t from = 0;
    size_t to = catalog->log_count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (catalog->log[middle].epoch > epoch)
            to = middle;
        else
            from = middle + 1;
    }
    weir_assert(from == 0 || catalog->log[from - 1].epoch <= epoch);
    return from;
}

/* A cursor is the last epoch that it returned and the place after it. */
bool weir_catalog_since(const struct weir_catalog *catalog, uint64_t epoch,
                        struct weir_cursor *cursor, struct weir_change *out)
{
    if (cursor->opaque[0] > epoch)
        epoch = cursor->opaque[0];
    size_t at = (size_t)cursor->opaque[1];
    bool guessed = at > 0 && at <= catalog->log_count &&
                   catalog->log[at - 1].epoch == epoch;
    if (!guessed)
        at = bisect(catalog, epoch);
    while (at < catalog->log_count && !catalog->log[at].node)
        at++;
    if (at == catalog->log_count)
        return false;
    weir_assert(catalog->log[at].epoch > epoch);
    const struct node *node = catalog->log[at].node;
    cursor->opaque[0] = catalog->log[at].epoch;
    cursor->opaque[1] = at + 1;
    out->removed = node->state == TOMBSTONE;
    out->quota = out->removed ? (struct weir_quota){ .name = node->name }
                              : *quota_of(node);
    out->quota.epoch = catalog->log[at].epoch;
    return true;
}

/* ---- The order of names ---------------------------------------------- */

static void merge_halves(const struct weir_quota **from, size_t middle,
                         size_t end, const struct weir_quota **to)
{
    size_t left = 0;
    size_t right = middle;
    for (size_t i = 0; i < end; i++) {
        bool take_left =
            right == end ||
            (left < middle &&
             weir_text_compare(from[left]->name, from[right]->name) <= 0);
        weir_assert(take_left ? left < middle : right < end);
        to[i] = take_left ? from[left++] : from[right++];
    }
}

/* Sorts 'count' pointers by the names' bytes; 'scratch' has room for as many. A
 * bottom-up merge sort, since the pure modules have no qsort(): glibc's may
 * call malloc(). Runs double from 1; each pass merges pairs of them into the
 * other array. No recursion; n log n comparisons in any order (a million names:
 * a second or two, because of cache misses in the names' texts). */
static void sort_by_name(const struct weir_quota **quotas,
                         const struct weir_quota **scratch, size_t count)
{
    const struct weir_quota **from = quotas;
    const struct weir_quota **to = scratch;
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t at = 0; at < count; at += 2 * run) {
            size_t left = count - at;
            merge_halves(from + at, run < left ? run : left,
                         2 * run < left ? 2 * run : left, to + at);
        }
        const struct weir_quota **other = from;
        from = to;
        to = other;
    }
    if (from != quotas)
        memcpy(quotas, from, count * sizeof(*quotas));
}

/* Grows 'sorted' to twice the quotas (the second half is scratch) and fills
 * it. */
static bool sort_quotas(struct weir_catalog *catalog)
{
    void *array =
        weir_mem_grow(&catalog->mem, catalog->sorted, sizeof(*catalog->sorted),
                      &catalog->sorted_capacity, 2 * catalog->count);
    if (!array)
        return false;
    catalog->sorted = array;
    size_t count = 0;
    for (size_t i = 0; i < catalog->log_count; i++) {
        const struct node *node = catalog->log[i].node;
        if (node && node->state == LIVE)
            catalog->sorted[count++] = quota_of(node);
    }
    weir_assert(count == catalog->count);
    sort_by_name(catalog->sorted, catalog->sorted + count, count);
    catalog->is_sorted = true;
    return true;
}

const struct weir_quota *weir_catalog_at(struct weir_catalog *catalog,
                                         size_t index)
{
    if (index >= catalog->count)
        return NULL;
    if (!catalog->is_sorted && !sort_quotas(catalog))
        return NULL;
    weir_audit(index == 0 ||
               weir_text_compare(catalog->sorted[index - 1]->name,
                                 catalog->sorted[index]->name) < 0);
    return catalog->sorted[index];
}
