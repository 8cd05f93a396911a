/* SPDX-License-Identifier: MIT
 * leased/lease_manager.c - the lease manager: pools by quota, holders by
 * client, and the pool that is due next.
 *
 *     name ----------> struct leased: a pool; heap by the next deadline
 *     client, name --> struct client: its holder in that pool
 *     way -----------> list of clients that are pushed to by it
 *
 * A struct client is a client of one quota: the pool knows it as a number. The
 * pool forgets holders that have fallen silent, and the client goes with the
 * holder; with its last client a quota goes too. So memory follows the leases,
 * and has the bounds of the header. The same holds for a quota that is removed
 * or isn't leased any more: no holder is granted any of it, but grants that are
 * out stay accounted until they are over, in case the quota returns before.
 *
 * A server that isn't master knows nothing: begin() starts from nothing, and
 * the pools learn. Its state of an earlier time as master would be wrong, since
 * another master has granted since. */

#include "core/leased/lease_manager.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/base/index.h"

/* Done in one call: rules looked up anew; pools asked for a push. */
#define REVIEW_WORK 256
#define NEXT_WORK 16

struct client {
    uint64_t hash;
    uint32_t of;       /* the quota's index */
    uint32_t number;   /* the pool's number for it */
    uint64_t answered; /* the serial of the last answer */
    uint32_t way;
    uint32_t before, after; /* index + 1: of the same way */
    bool guest;
    uint8_t id_len;
    char id[];
};

struct leased {
    uint64_t hash;
    struct weir_lease_pool *pool; /* owned */
    struct weir_leased leased;
    bool ended;            /* there is no such leased quota */
    weir_instant inherits; /* end of another master's leases */
    weir_instant due;
    weir_instant review_at; /* its capacity steps down; WEIR_NEVER: no more */
    uint32_t place;         /* in the heap */
    uint32_t *client_of;    /* owned; by the pool's number */
    size_t client_capacity;
    uint32_t clients;
    bool of_guest; /* a guest used it first */
    uint8_t name_len;
    char name[];
};

struct weir_lease_manager {
    struct weir_mem mem;
    uint64_t seed;
    struct weir_lease_manager_owner owner;
    bool leases;
    uint64_t serial;      /* the last of all pools, and of all terms */
    weir_instant vacant;  /* WEIR_NEVER: no leases of another master are out */
    uint64_t found, kept; /* numbers beside the mastership; 0: none */
    bool wants_keep, lets_in;
    struct leased **quotas; /* owned; NULL: a free place */
    size_t quota_capacity;
    uint32_t quotas_used, quotas_live;
    uint32_t *free_quotas; /* owned: a stack of free places */
    size_t free_quota_capacity;
    uint32_t free_quota_count;
    struct weir_index quota_index;
    uint32_t *heap; /* owned: quotas by 'due' */
    size_t heap_capacity;
    struct client **clients; /* owned; NULL: a free place */
    size_t client_capacity;
    uint32_t clients_used;
    uint32_t *free_clients; /* owned: a stack of free places */
    size_t free_capacity;
    uint32_t free_count;
    struct weir_index client_index;
    uint32_t *ways; /* owned: first client of each, index + 1 */
    size_t way_capacity;
    uint32_t guest_quotas, guest_clients; /* of all of these */
    uint32_t hand; /* of the review; UINT32_MAX: none runs */
    uint32_t audit_quota, audit_client; /* cursors of the audit */
};

static struct weir_text leased_name(const struct leased *q)
{
    return (struct weir_text){ q->name, q->name_len };
}

static struct weir_text client_id_text(const struct client *c)
{
    return (struct weir_text){ c->id, c->id_len };
}

/* ---- The heap ---- */

static void set_due_place(struct weir_lease_manager *b, uint32_t place,
                          uint32_t index)
{
    weir_assert(place < b->quotas_live && b->quotas[index]);
    b->heap[place] = index;
    b->quotas[index]->place = place;
}

static weir_instant due_at(const struct weir_lease_manager *b, uint32_t place)
{
    weir_assert(place < b->quotas_live);
    return b->quotas[b->heap[place]]->due;
}

static void sift_due(struct weir_lease_manager *b, uint32_t place)
{
    weir_assert(place < b->quotas_live);
    uint32_t index = b->heap[place];
    weir_instant due = b->quotas[index]->due;
    while (place > 0 && due < due_at(b, (place - 1) / 2)) {
        set_due_place(b, place, b->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child + 1 < b->quotas_live &&
            due_at(b, child + 1) < due_at(b, child))
            child++;
        if (child >= b->quotas_live || due_at(b, child) >= due)
            break;
        set_due_place(b, place, b->heap[child]);
        place = child;
    }
    set_due_place(b, place, index);
}

static void set_due(struct weir_lease_manager *b, struct leased *q,
                    weir_instant now)
{
    weir_assert(b->quotas[b->heap[q->place]] == q);
    q->due = weir_lease_pool_deadline(q->pool, now);
    if (q->review_at < q->due)
        q->due = q->review_at;
    sift_due(b, q->place);
}

/* ---- Quotas ---- */

static struct leased *find_leased(const struct weir_lease_manager *b,
                                  struct weir_text quota, uint32_t *out_index)
{
    uint64_t hash = weir_hash(quota, b->seed);
    size_t cursor = 0;
    while (weir_index_find(&b->quota_index, hash, &cursor, out_index)) {
        struct leased *q = b->quotas[*out_index];
        if (weir_text_equal(leased_name(q), quota))
            return q;
    }
    return NULL;
}

static void free_quota(struct weir_lease_manager *b, struct leased *q)
{
    weir_assert(q->clients == 0);
    weir_lease_pool_free(q->pool);
    b->mem.free(b->mem.context, q->client_of,
                q->client_capacity * sizeof(*q->client_of));
    b->mem.free(b->mem.context, q, sizeof(*q) + q->name_len);
}

/* Amounts that holders may have beyond this server's grants. If the capacity is
 * leased, the rule doesn't limit it, since the capacity may not be known
 * yet. */
static struct weir_learning learning_from_before(
    const struct weir_lease_manager *b, const struct weir_leased *leased)
{
    const struct weir_lease_rule *rule = &leased->rule;
    weir_duration lease = leased->learning;
    if (b->vacant == WEIR_NEVER || lease == 0)
        return (struct weir_learning){ 0 };
    bool ours = leased->expiry == WEIR_NEVER;
    bool safe = !ours || rule->safe != 0 || rule->hold;
    /* A limiter's clock may lose a refresh, a region's too; and the wall clock
     * of a client of Doorman's protocol, perhaps at that region, may be behind
     * by 'guard'. */
    weir_instant leases =
        b->vacant + lease + rule->refresh + leased->guard + rule->linger;
    return (struct weir_learning){
        .leases = leases,
        .safes = leases + (safe ? lease : 0),
        .promised = ours ? rule->capacity : WEIR_LEASE_UNITS_MAX,
        .kept = b->found,
    };
}

/* Asks the owner for the rule. False: there is none, or none any more. */
static bool request_rule(const struct weir_lease_manager *b,
                         struct weir_text quota, struct weir_leased *out,
                         weir_instant now)
{
    if (!b->owner.rule(b->owner.context, quota, out, now))
        return false;
    if (out->rule.capacity > WEIR_LEASE_UNITS_MAX)
        out->rule.capacity = WEIR_LEASE_UNITS_MAX;
    if (out->rule.safe > WEIR_LEASE_UNITS_MAX)
        out->rule.safe = WEIR_LEASE_UNITS_MAX;
    return true;
}

static void set_leased(struct leased *q, const struct weir_leased *leased,
                       weir_instant now)
{
    q->leased = *leased;
    q->review_at = leased->expiry > now ? leased->expiry : WEIR_NEVER;
    bool has_safe = leased->safe_until > leased->expiry;
    weir_lease_pool_set_expiry(q->pool, leased->expiry, leased->safe,
                               has_safe ? leased->safe_until : leased->expiry);
}

static struct leased *new_quota(struct weir_lease_manager *b,
                                struct weir_text quota,
                                const struct weir_leased *leased,
                                weir_instant now)
{
    weir_assert(quota.len > 0 && quota.len <= WEIR_NAME_MAX);
    struct leased *q = b->mem.alloc(b->mem.context, sizeof(*q) + quota.len);
    if (!q)
        return NULL;
    q->hash = weir_hash(quota, b->seed);
    q->due = WEIR_NEVER;
    q->name_len = (uint8_t)quota.len;
    memcpy(q->name, quota.p, quota.len);
    struct weir_learning learning = learning_from_before(b, leased);
    q->pool = weir_lease_pool_new(&b->mem, &leased->rule, &learning, &b->serial,
                                  b->seed ^ q->hash, now);
    if (!q->pool) {
        b->mem.free(b->mem.context, q, sizeof(*q) + q->name_len);
        return NULL;
    }
    set_leased(q, leased, now);
    weir_lease_pool_keep(q->pool, b->kept, now);
    q->inherits = learning.safes;
    return q;
}

/* A place for one more quota, with room in the heap, and to put it on the stack
 * again. 0, WEIR_EFULL or WEIR_ENOMEM. */
static int quota_place(struct weir_lease_manager *b, uint32_t *out_index)
{
    weir_assert(b->quotas_live + b->free_quota_count == b->quotas_used);
    if (b->free_quota_count > 0) {
        *out_index = b->free_quotas[b->free_quota_count - 1];
        return WEIR_OK;
    }
    if (b->quotas_used == WEIR_LEASED_MAX)
        return WEIR_EFULL;
    size_t need = (size_t)b->quotas_used + 1;
    struct leased **quotas = weir_mem_grow(
        &b->mem, b->quotas, sizeof(struct leased *), &b->quota_capacity, need);
    if (!quotas)
        return WEIR_ENOMEM;
    b->quotas = quotas;
    uint32_t *heap =
        weir_mem_grow(&b->mem, b->heap, sizeof(*heap), &b->heap_capacity, need);
    if (!heap)
        return WEIR_ENOMEM;
    b->heap = heap;
    uint32_t *places = weir_mem_grow(&b->mem, b->free_quotas, sizeof(*places),
                                     &b->free_quota_capacity, need);
    if (!places)
        return WEIR_ENOMEM;
    b->free_quotas = places;
    b->free_quotas[b->free_quota_count++] = b->quotas_used++;
    *out_index = b->quotas_used - 1;
    return WEIR_OK;
}

/* 0, WEIR_EFULL or WEIR_ENOMEM: then 'q' is still the caller's. */
static int enter_quota(struct weir_lease_manager *b, struct leased *q,
                       uint32_t *out_index)
{
    uint32_t index;
    int error = quota_place(b, &index);
    if (error < 0)
        return error;
    if (weir_index_add(&b->quota_index, &b->mem, q->hash, index) < 0)
        return WEIR_ENOMEM;
    weir_assert(b->free_quota_count > 0 && !b->quotas[index]);
    b->free_quota_count--;
    b->quotas[index] = q;
    set_due_place(b, b->quotas_live++, index);
    sift_due(b, q->place);
    weir_assert(b->quotas_live + b->free_quota_count == b->quotas_used);
    *out_index = index;
    return WEIR_OK;
}

static void drop_quota(struct weir_lease_manager *b, uint32_t index)
{
    struct leased *q = b->quotas[index];
    weir_assert(b->quotas_live > 0 && b->heap[q->place] == index);
    weir_assert(b->guest_quotas >= q->of_guest);
    uint32_t place = q->place, last = b->heap[--b->quotas_live];
    if (last != index) {
        set_due_place(b, place, last);
        sift_due(b, place);
    }
    weir_index_remove(&b->quota_index, q->hash, index);
    b->guest_quotas -= q->of_guest;
    b->quotas[index] = NULL;
    b->free_quotas[b->free_quota_count++] = index;
    weir_assert(b->quotas_live + b->free_quota_count == b->quotas_used);
    free_quota(b, q);
}

/* ---- Clients ---- */

static uint64_t client_hash(const struct weir_lease_manager *b,
                            const struct leased *q, struct weir_text id)
{
    return weir_hash(id, b->seed ^ q->hash);
}

static struct client *find_client(const struct weir_lease_manager *b,
                                  uint32_t of, struct weir_text id)
{
    weir_assert(of < b->quotas_used && b->quotas[of]);
    uint64_t hash = client_hash(b, b->quotas[of], id);
    size_t cursor = 0;
    uint32_t index;
    while (weir_index_find(&b->client_index, hash, &cursor, &index)) {
        struct client *c = b->clients[index];
        if (c->of == of && weir_text_equal(client_id_text(c), id))
            return c;
    }
    return NULL;
}

static uint32_t index_of_client(const struct weir_lease_manager *b,
                                const struct client *c)
{
    weir_assert(c->number < b->quotas[c->of]->client_capacity);
    return b->quotas[c->of]->client_of[c->number];
}

static void leave_way(struct weir_lease_manager *b, struct client *c)
{
    if (c->way == WEIR_WAY_NONE)
        return;
    weir_assert(c->way < b->way_capacity);
    if (c->before != 0)
        b->clients[c->before - 1]->after = c->after;
    else
        b->ways[c->way] = c->after;
    if (c->after != 0)
        b->clients[c->after - 1]->before = c->before;
    c->way = WEIR_WAY_NONE;
}

/* 0 or WEIR_ENOMEM: then it has none. */
static int set_way(struct weir_lease_manager *b, struct client *c, uint32_t way)
{
    if (c->way == way)
        return WEIR_OK;
    leave_way(b, c);
    weir_assert(c->way == WEIR_WAY_NONE);
    if (way == WEIR_WAY_NONE)
        return WEIR_OK;
    weir_assert(way < WEIR_WAYS_MAX);
    uint32_t *ways = weir_mem_grow(&b->mem, b->ways, sizeof(*ways),
                                   &b->way_capacity, (size_t)way + 1);
    if (!ways)
        return WEIR_ENOMEM;
    b->ways = ways;
    uint32_t index = index_of_client(b, c);
    c->way = way;
    c->before = 0;
    c->after = ways[way];
    if (c->after != 0)
        b->clients[c->after - 1]->before = index + 1;
    ways[way] = index + 1;
    return WEIR_OK;
}

/* The pool forgets the holder itself. */
static void drop_client(struct weir_lease_manager *b, uint32_t index)
{
    struct client *c = b->clients[index];
    weir_assert(b->free_count < b->clients_used);
    weir_assert(b->quotas[c->of]->clients > 0 && b->guest_clients >= c->guest);
    leave_way(b, c);
    weir_index_remove(&b->client_index, c->hash, index);
    b->quotas[c->of]->clients--;
    b->guest_clients -= c->guest;
    b->clients[index] = NULL;
    b->free_clients[b->free_count++] = index;
    b->mem.free(b->mem.context, c, sizeof(*c) + c->id_len);
}

/* A place for one more client, with room to put it on the stack again. 0,
 * WEIR_EFULL or WEIR_ENOMEM. */
static int client_place(struct weir_lease_manager *b, uint32_t *out_index)
{
    weir_assert(b->free_count <= b->clients_used);
    if (b->free_count > 0) {
        *out_index = b->free_clients[b->free_count - 1];
        return WEIR_OK;
    }
    if (b->clients_used == WEIR_LEASE_MANAGER_HOLDERS_MAX)
        return WEIR_EFULL;
    size_t need = (size_t)b->clients_used + 1;
    struct client **clients =
        weir_mem_grow(&b->mem, b->clients, sizeof(struct client *),
                      &b->client_capacity, need);
    if (!clients)
        return WEIR_ENOMEM;
    b->clients = clients;
    uint32_t *places = weir_mem_grow(&b->mem, b->free_clients, sizeof(*places),
                                     &b->free_capacity, need);
    if (!places)
        return WEIR_ENOMEM;
    b->free_clients = places;
    b->free_clients[b->free_count++] = b->clients_used++;
    *out_index = b->clients_used - 1;
    return WEIR_OK;
}

static int join_pool(struct weir_lease_manager *b, struct leased *q,
                     struct weir_text id, uint32_t client, uint32_t *out_number)
{
    uint64_t name = weir_hash(id, 0); /* the same at any server */
    int error = weir_lease_pool_join(q->pool, name, out_number);
    if (error < 0)
        return error;
    uint32_t *client_of =
        weir_mem_grow(&b->mem, q->client_of, sizeof(*client_of),
                      &q->client_capacity, (size_t)*out_number + 1);
    if (!client_of) {
        weir_lease_pool_release(q->pool, *out_number, true, 0);
        return WEIR_ENOMEM;
    }
    q->client_of = client_of;
    client_of[*out_number] = client;
    return WEIR_OK;
}

static int enter_client(struct weir_lease_manager *b, uint32_t of,
                        const struct weir_client *client, struct client **out)
{
    uint32_t index, number;
    struct weir_text id = client->id;
    struct leased *q = b->quotas[of];
    if (client->guest && b->guest_clients == WEIR_GUESTS_HOLDERS_MAX)
        return WEIR_EFULL;
    int error = client_place(b, &index);
    if (error < 0)
        return error;
    struct client *c = b->mem.alloc(b->mem.context, sizeof(*c) + id.len);
    if (!c)
        return WEIR_ENOMEM;
    *c = (struct client){ .hash = client_hash(b, q, id),
                          .of = of,
                          .way = WEIR_WAY_NONE,
                          .guest = client->guest,
                          .id_len = (uint8_t)id.len };
    memcpy(c->id, id.p, id.len);
    error = weir_index_add(&b->client_index, &b->mem, c->hash, index);
    if (error == WEIR_OK) {
        error = join_pool(b, q, id, index, &number);
        if (error < 0)
            weir_index_remove(&b->client_index, c->hash, index);
    }
    if (error < 0) {
        b->mem.free(b->mem.context, c, sizeof(*c) + c->id_len);
        return error;
    }
    weir_assert(b->free_count > 0 && !b->clients[index]);
    c->number = number;
    b->free_count--;
    b->clients[index] = c;
    b->guest_clients += c->guest;
    q->clients++;
    *out = c;
    return WEIR_OK;
}

/* ---- Life ---- */

struct weir_lease_manager *weir_lease_manager_new(
    const struct weir_lease_manager_options *options)
{
    struct weir_lease_manager *b =
        options->mem.alloc(options->mem.context, sizeof(*b));
    if (!b)
        return NULL;
    b->mem = options->mem;
    b->seed = options->seed;
    b->owner = options->owner;
    b->hand = UINT32_MAX;
    return b;
}

static void drop_all_clients(struct weir_lease_manager *b)
{
    for (uint32_t i = 0; i < b->clients_used; i++) {
        if (b->clients[i])
            drop_client(b, i);
    }
    for (uint32_t i = 0; i < b->quotas_used; i++) {
        if (b->quotas[i])
            drop_quota(b, i);
    }
    weir_assert(b->quotas_live == 0 && b->guest_quotas == 0);
    weir_assert(b->free_count == b->clients_used && b->guest_clients == 0);
}

void weir_lease_manager_free(struct weir_lease_manager *b)
{
    if (!b)
        return;
    drop_all_clients(b);
    struct weir_mem mem = b->mem;
    mem.free(mem.context, b->quotas,
             b->quota_capacity * sizeof(struct leased *));
    mem.free(mem.context, b->heap, b->heap_capacity * sizeof(*b->heap));
    mem.free(mem.context, b->free_quotas,
             b->free_quota_capacity * sizeof(*b->free_quotas));
    mem.free(mem.context, b->clients,
             b->client_capacity * sizeof(struct client *));
    mem.free(mem.context, b->free_clients,
             b->free_capacity * sizeof(*b->free_clients));
    mem.free(mem.context, b->ways, b->way_capacity * sizeof(*b->ways));
    weir_index_fini(&b->quota_index, &mem);
    weir_index_fini(&b->client_index, &mem);
    mem.free(mem.context, b, sizeof(*b));
}

void weir_lease_manager_begin(struct weir_lease_manager *b, weir_instant vacant,
                              weir_instant now)
{
    drop_all_clients(b);
    b->leases = true;
    b->found = b->kept = 0;
    b->wants_keep = b->lets_in = false;
    b->vacant = vacant < now || vacant == WEIR_NEVER ? vacant : now;
    weir_assert(b->quotas_live == 0);
}

bool weir_lease_manager_nothing_out(struct weir_lease_manager *b,
                                    weir_instant now)
{
    weir_assert(b->leases);
    for (uint32_t i = 0; i < b->quotas_used; i++)
        if (b->quotas[i] && weir_lease_pool_has_heard(b->quotas[i]->pool))
            return false;
    b->vacant = WEIR_NEVER;
    for (uint32_t i = 0; i < b->quotas_used; i++) {
        struct leased *q = b->quotas[i];
        if (!q)
            continue;
        weir_lease_pool_nothing_out(q->pool, now);
        q->inherits = now;
        set_due(b, q, now);
    }
    return true;
}

void weir_lease_manager_found(struct weir_lease_manager *b, uint64_t number)
{
    weir_assert(b->quotas_live == 0);
    b->found = number;
}

/* When the pools have tokens to push shows when each is asked next: if all were
 * due at once, all would push at one instant. */
void weir_lease_manager_keep(struct weir_lease_manager *b, uint64_t number,
                             weir_instant now)
{
    b->kept = number;
    b->wants_keep = false;
    for (uint32_t i = 0; i < b->quotas_used; i++) {
        if (b->quotas[i])
            weir_lease_pool_keep(b->quotas[i]->pool, number, now);
    }
}

bool weir_lease_manager_wants_keep(const struct weir_lease_manager *b)
{
    return b->wants_keep;
}

bool weir_lease_manager_lets_in(struct weir_lease_manager *b)
{
    bool lets_in = b->lets_in;
    b->lets_in = false;
    return lets_in;
}

void weir_lease_manager_end(struct weir_lease_manager *b)
{
    drop_all_clients(b);
    b->leases = false;
}

bool weir_lease_manager_leases(const struct weir_lease_manager *b)
{
    return b->leases;
}

/* ---- Rules ---- */

/* Returns whether the quota is still leased. */
static bool review_rule(struct weir_lease_manager *b, uint32_t index,
                        weir_instant now)
{
    weir_assert(index < b->quotas_used && b->quotas[index]);
    struct leased *q = b->quotas[index];
    struct weir_leased leased;
    q->ended = !request_rule(b, leased_name(q), &leased, now);
    q->review_at = WEIR_NEVER;
    if (!q->ended) {
        if (!weir_lease_rule_is_same(&q->leased.rule, &leased.rule))
            weir_lease_pool_set_rule(q->pool, &leased.rule);
        set_leased(q, &leased, now);
    }
    set_due(b, q, now);
    return !q->ended;
}

void weir_lease_manager_review(struct weir_lease_manager *b)
{
    b->hand = 0;
}

void weir_lease_manager_review_of(struct weir_lease_manager *b,
                                  struct weir_text quota, weir_instant now)
{
    uint32_t index;
    if (find_leased(b, quota, &index))
        review_rule(b, index, now);
}

/* ---- Asks ---- */

static int open_leased(struct weir_lease_manager *b, struct weir_text quota,
                       bool guest, uint32_t *out_index, weir_instant now)
{
    struct weir_leased leased;
    const struct leased *known = find_leased(b, quota, out_index);
    if (known && (!known->ended || review_rule(b, *out_index, now)))
        return WEIR_OK;
    if (known || quota.len == 0 || quota.len > WEIR_NAME_MAX ||
        !request_rule(b, quota, &leased, now))
        return WEIR_ENOENT;
    if (guest && b->guest_quotas == WEIR_GUESTS_LEASED_MAX)
        return WEIR_EFULL;
    struct leased *q = new_quota(b, quota, &leased, now);
    if (!q)
        return WEIR_ENOMEM;
    int error = enter_quota(b, q, out_index);
    if (error < 0) {
        free_quota(b, q);
        return error;
    }
    q->of_guest = guest;
    b->guest_quotas += guest;
    weir_assert(b->guest_quotas <= b->quotas_live);
    return WEIR_OK;
}

/* With its last client a quota goes too. */
static bool drop_if_idle(struct weir_lease_manager *b, uint32_t index,
                         weir_instant now)
{
    weir_assert(index < b->quotas_used && b->quotas[index]);
    struct leased *q = b->quotas[index];
    bool idle = q->clients == 0;
    b->wants_keep |= weir_lease_pool_wants_keep(q->pool);
    b->lets_in |= weir_lease_pool_lets_in(q->pool);
    if (idle)
        drop_quota(b, index);
    else
        set_due(b, q, now);
    return idle;
}

/* For a known client, or a new one. 'out' NULL: the ask only counts. */
static int ask_pool(struct weir_lease_manager *b, uint32_t index,
                    const struct weir_client *client,
                    const struct weir_lease_pool_ask *ask,
                    struct weir_grant *out, weir_instant now)
{
    struct leased *q = b->quotas[index];
    struct client *c = find_client(b, index, client->id);
    bool fresh = !c;
    int error = fresh ? enter_client(b, index, client, &c) : WEIR_OK;
    if (error < 0)
        return error;
    weir_assert(c->of == index);
    error = set_way(b, c, client->way);
    if (error == WEIR_OK)
        error = weir_lease_pool_ask(q->pool, c->number, ask, out, now);
    if (error == WEIR_OK && out)
        c->answered = out->serial;
    if (error < 0 && error != WEIR_ENOTREADY && fresh) {
        weir_lease_pool_release(q->pool, c->number, true, now);
        drop_client(b, index_of_client(b, c));
    }
    return error;
}

int weir_lease_manager_ask(struct weir_lease_manager *b,
                           const struct weir_client *client,
                           struct weir_text quota,
                           const struct weir_lease_pool_ask *ask,
                           struct weir_grant *out, weir_instant now)
{
    uint32_t index;
    if (client->id.len == 0 || client->id.len > WEIR_CLIENT_ID_MAX)
        return WEIR_EINVAL;
    if (!b->leases)
        return WEIR_ENOTREADY;
    int error = open_leased(b, quota, client->guest, &index, now);
    if (error < 0)
        return error;
    error = ask_pool(b, index, client, ask, out, now);
    drop_if_idle(b, index, now);
    return error;
}

void weir_lease_manager_release(struct weir_lease_manager *b,
                                const struct weir_client *client,
                                struct weir_text quota, uint64_t taken,
                                weir_instant now)
{
    uint32_t index;
    struct leased *q = find_leased(b, quota, &index);
    struct client *c = q ? find_client(b, index, client->id) : NULL;
    if (!c)
        return;
    weir_assert(c->of == index);
    bool same_way = client->way != WEIR_WAY_NONE && client->way == c->way;
    bool sure = same_way || (taken != 0 && taken >= c->answered);
    uint32_t place = index_of_client(b, c);
    if (weir_lease_pool_release(q->pool, c->number, sure, now))
        drop_client(b, place);
    drop_if_idle(b, index, now);
}

void weir_lease_manager_way_lost(struct weir_lease_manager *b, uint32_t way)
{
    while (way < b->way_capacity && b->ways[way] != 0) {
        struct client *c = b->clients[b->ways[way] - 1];
        weir_assert(c->way == way);
        weir_lease_pool_stream_lost(b->quotas[c->of]->pool, c->number);
        leave_way(b, c);
    }
}

/* ---- Time ---- */

/* Drops clients that fell silent; false: the quota has gone with the last. */
static bool settle_clients(struct weir_lease_manager *b, uint32_t index,
                           weir_instant now)
{
    struct leased *q = b->quotas[index];
    uint32_t number;
    if (q->review_at <= now)
        review_rule(b, index, now);
    weir_lease_pool_tick(q->pool, now);
    while (weir_lease_pool_gone(q->pool, &number)) {
        weir_assert(number < q->client_capacity);
        drop_client(b, q->client_of[number]);
    }
    return !drop_if_idle(b, index, now);
}

bool weir_lease_manager_next(struct weir_lease_manager *b,
                             struct weir_lease_manager_push *out,
                             weir_instant now)
{
    for (int work = 0; work < NEXT_WORK && b->quotas_live > 0; work++) {
        uint32_t index = b->heap[0];
        struct leased *q = b->quotas[index];
        if (q->due > now)
            return false;
        if (!settle_clients(b, index, now))
            continue;
        bool found = weir_lease_pool_next(q->pool, &out->grant, now);
        set_due(b, q, now);
        if (!found)
            continue;
        weir_assert(out->grant.holder < q->client_capacity);
        const struct client *c = b->clients[q->client_of[out->grant.holder]];
        out->way = c->way;
        out->quota = leased_name(q);
        if (c->way != WEIR_WAY_NONE && !q->ended)
            return true;
    }
    return false;
}

void weir_lease_manager_tick(struct weir_lease_manager *b, weir_instant now)
{
    for (int work = 0; work < REVIEW_WORK && b->hand != UINT32_MAX; work++) {
        if (b->hand >= b->quotas_used) {
            b->hand = UINT32_MAX;
            break;
        }
        uint32_t index = b->hand++;
        if (b->quotas[index])
            review_rule(b, index, now);
    }
}

weir_instant weir_lease_manager_deadline(const struct weir_lease_manager *b,
                                         weir_instant now)
{
    if (b->hand != UINT32_MAX)
        return now;
    return b->quotas_live > 0 ? due_at(b, 0) : WEIR_NEVER;
}

bool weir_lease_manager_inherit(const struct weir_lease_manager *b,
                                struct weir_text quota, weir_instant now)
{
    uint32_t index;
    struct weir_leased leased;
    const struct leased *q = find_leased(b, quota, &index);
    if (q)
        return now < q->inherits;
    return b->leases && request_rule(b, quota, &leased, now) &&
           now < learning_from_before(b, &leased).safes;
}

/* ---- Views ---- */

uint32_t weir_lease_manager_count(const struct weir_lease_manager *b,
                                  uint32_t *out_holders)
{
    *out_holders = b->clients_used - b->free_count;
    return b->quotas_live;
}

static void write_leased_stats(const struct leased *q,
                               struct weir_leased_stats *out, weir_instant now)
{
    weir_assert(q->pool);
    out->quota = leased_name(q);
    out->rule = q->leased.rule;
    weir_lease_pool_stats(q->pool, &out->pool, now);
}

bool weir_lease_manager_look(const struct weir_lease_manager *b,
                             uint32_t *cursor, struct weir_leased_stats *out,
                             weir_instant now)
{
    while (*cursor < b->quotas_used &&
           (!b->quotas[*cursor] || b->quotas[*cursor]->ended))
        ++*cursor;
    if (*cursor >= b->quotas_used)
        return false;
    write_leased_stats(b->quotas[(*cursor)++], out, now);
    return true;
}

bool weir_lease_manager_look_of(const struct weir_lease_manager *b,
                                struct weir_text quota,
                                struct weir_leased_stats *out, weir_instant now)
{
    uint32_t index;
    const struct leased *q = find_leased(b, quota, &index);
    if (!q || q->ended)
        return false;
    write_leased_stats(q, out, now);
    return true;
}

bool weir_lease_manager_left_of(const struct weir_lease_manager *b,
                                struct weir_text quota,
                                struct weir_leased_stats *out, weir_instant now)
{
    uint32_t index;
    const struct leased *q = find_leased(b, quota, &index);
    if (q)
        write_leased_stats(q, out, now);
    return q != NULL;
}

bool weir_lease_manager_look_holder(const struct weir_lease_manager *b,
                                    struct weir_text quota, uint32_t *cursor,
                                    struct weir_text *out_client,
                                    struct weir_lease_holder_stats *out,
                                    weir_instant now)
{
    uint32_t index;
    const struct leased *q = find_leased(b, quota, &index);
    while (q && !q->ended && *cursor < q->client_capacity) {
        uint32_t number = (*cursor)++;
        if (!weir_lease_pool_holder(q->pool, number, out, now))
            continue;
        *out_client = client_id_text(b->clients[q->client_of[number]]);
        return true;
    }
    return false;
}

bool weir_lease_manager_look_client(const struct weir_lease_manager *b,
                                    struct weir_text quota,
                                    struct weir_text client,
                                    struct weir_lease_holder_stats *out,
                                    weir_instant now)
{
    uint32_t index;
    const struct leased *q = find_leased(b, quota, &index);
    const struct client *c = q ? find_client(b, index, client) : NULL;
    return c && weir_lease_pool_holder(q->pool, c->number, out, now);
}

const struct weir_lease_pool *weir_lease_manager_pool(
    const struct weir_lease_manager *b, struct weir_text quota)
{
    uint32_t index;
    const struct leased *q = find_leased(b, quota, &index);
    return q && !q->ended ? q->pool : NULL;
}

/* ---- Audits ---- */

static void audit_quota(const struct weir_lease_manager *b, uint32_t index,
                        uint32_t n)
{
    const struct leased *q = b->quotas[index];
    uint32_t found;
    struct weir_lease_pool_stats stats;
    if (!q)
        return;
    weir_assert(q->place < b->quotas_live && b->heap[q->place] == index);
    weir_assert(due_at(b, q->place > 0 ? (q->place - 1) / 2 : 0) <= q->due);
    weir_assert(find_leased(b, leased_name(q), &found) == q && found == index);
    weir_assert(q->clients > 0);
    weir_lease_pool_stats(q->pool, &stats, 0);
    weir_assert(q->clients == stats.holders);
    weir_lease_pool_audit(q->pool, n);
}

static void audit_client(const struct weir_lease_manager *b, uint32_t index)
{
    const struct client *c = b->clients[index];
    if (!c)
        return;
    weir_assert(find_client(b, c->of, client_id_text(c)) == c);
    weir_assert(index_of_client(b, c) == index);
    if (c->way == WEIR_WAY_NONE)
        return;
    weir_assert(c->way < b->way_capacity);
    if (c->before == 0)
        weir_assert(b->ways[c->way] == index + 1);
    else
        weir_assert(b->clients[c->before - 1]->after == index + 1);
    if (c->after != 0)
        weir_assert(b->clients[c->after - 1]->before == index + 1);
}

void weir_lease_manager_audit(struct weir_lease_manager *b, uint32_t n)
{
    weir_assert(b->quotas_live + b->free_quota_count == b->quotas_used);
    weir_assert(b->quotas_live == b->quota_index.count);
    weir_assert(b->free_count <= b->clients_used);
    weir_assert(b->clients_used - b->free_count == b->client_index.count);
    weir_assert(b->guest_quotas <= b->quotas_live);
    weir_assert(b->guest_clients <= b->clients_used - b->free_count);
    for (uint32_t i = 0; i < n && i < b->quotas_used; i++) {
        if (b->audit_quota >= b->quotas_used)
            b->audit_quota = 0;
        audit_quota(b, b->audit_quota++, n);
    }
    for (uint32_t i = 0; i < n && i < b->clients_used; i++) {
        if (b->audit_client >= b->clients_used)
            b->audit_client = 0;
        audit_client(b, b->audit_client++);
    }
}
