/* SPDX-License-Identifier: MIT
 * node/root_lease.c - wants in, grants out.
 *
 *     WANTS -----------> lease pools -> peer.granted -> GRANTS with the number
 *     lease pools push -> peer.pushed -> GRANTS
 *     begin(), end() ---> peer.master_owed -> GRANTS without any
 *
 * A limiter is a client by its incarnation, so it is the same client when its
 * link comes back; pushes go to it by its peer. A region's roots are one
 * client, by the region's name: any of them that is master leases the same
 * grant on, and the next one finds it. (It doesn't matter which of two took a
 * grant: the account is lowered only by the last serials, and not while the
 * client is learning.) A NUL byte stands before these ids, so they differ from
 * all ids of listeners.
 *
 * Wants are taken once: their numbers rise while the limiter lives, so late or
 * doubled ones are recognized on any link. Wants that aren't taken aren't
 * answered, as if they had been lost, and the limiter sends them again; the
 * same if there is no room to keep an answer.
 *
 * A grant is on its holder's account from when the lease pool has made it. So
 * it may be dropped at any time (the link is gone, the mastership is lost, a
 * newer push of the quota replaces it). A push without room at its peer is
 * dropped: its holder will ask.
 *
 * Not master. Clients get no grant, but the master's address: in the welcome,
 * when it changes, and after each of their wants.
 *
 * Nothing to learn. A master learns the leases that others may have granted
 * before it, and new clients wait meanwhile; but a quota created during its
 * term can't have any. It knows the quotas from before its term only if there
 * is no other root: an elected master may not have read yet all quotas that the
 * former one leased. So a root that is alone, and has its store, treats as new
 * each quota created after the first epoch that it served in its term, under a
 * name that was never removed and matches no leased template. This ends when a
 * leased quota is removed, because the name may come again.
 *
 * A region's root has its capacity from the roots above (root.leases.lessor).
 * Until they have answered for a quota, wants of its clients are received,
 * since their sum is sent up, and answered later: an immediate answer would
 * grant nothing, and take away the leases of the region's former master. A
 * client of a listener is asked to try again.
 *
 * New clients wait in the same way while a number is to be kept
 * (leased/lease_pool_roster.c); so do all clients of a new master that found a
 * number and hasn't kept its own. Their wants are received, and answered when
 * the number is kept. If it can't be kept, they are answered when all leases
 * of the former master are over, because then no roster token of it is valid.
 * There is room for AWAITING_MAX waiting wants. A client without room was
 * received as well: its lease is known, and it repeats its wants. */

#include "core/node/root_lease.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/node/root_adaptive.h"
#include "core/node/root_state.h"

/* Answers that wait for one peer, at most: those of some messages. */
#define ANSWERS_MAX (4 * WEIR_LEASES_MAX)
/* Pushes brought to their peers in one tick. */
#define PUSH_WORK 4096
/* Wants that wait for the roots above; not longer than a limiter remembers. */
#define AWAITING_MAX 4096
#define AWAITING_MOST (10 * WEIR_SECOND)
/* Of a process: one for each guaranteed class, and one for the others. */
#define PROCESS_BANDS_MAX (WEIR_LEASE_GUARANTEES_MAX + 1)
#define REGION_MAX (WEIR_CLIENT_ID_MAX - ROOT_LINK_ID_HEAD)

/* ---- Rules ---- */

/* The topmost roots are at level 0. */
static unsigned level_of(const struct weir_root *root)
{
    if (!root->region)
        return 0;
    return root->region_count > 0 ? (unsigned)root->region_count : 1;
}

/* Holders use the safe capacity only with on_stale `share`. Any quota may be
 * leased through a listener, so an earlier master may have granted it to a
 * client of Doorman's protocol: that is the guard. */
static void lease_rule_of(const struct weir_root *root,
                          const struct weir_quota *quota, struct weir_text name,
                          struct weir_leased *out)
{
    bool promised = !root->leases.unsafe;
    bool safe = promised && quota->on_stale == WEIR_STALE_SHARE;
    bool hold = promised && quota->on_stale == WEIR_STALE_HOLD;
    bool inflight = quota->kind == WEIR_CONCURRENCY;
    if (quota->sharing == WEIR_ADAPTIVE) {
        weir_root_adaptive_rule(root, quota, name, out);
        return;
    }
    *out = (struct weir_leased){
        .rule = { .share = quota->share_algorithm,
                  .capacity = weir_quota_capacity(quota),
                  .safe = safe ? weir_quota_safe(quota) : 0,
                  .hold = hold,
                  .linger = inflight ? quota->permit_timeout : 0,
                  .whole = inflight,
                  .lease = quota->lease,
                  .refresh = weir_quota_refresh(quota, level_of(root)) },
        .learning = weir_quota_learning(quota),
        .guard = WEIR_DOORMAN_GUARD,
        .expiry = WEIR_NEVER,
    };
}

/* Whether no master before this one can have leased the name. */
static bool is_never_leased(const struct weir_root *root,
                            const struct weir_quota *quota,
                            struct weir_text name)
{
    if (quota->created <= root->leases.known || root->leases.lessor.grant ||
        weir_quota_is_template(quota))
        return false;
    /* Its processes may have limits of their own from before an edit. */
    if (quota->sharing == WEIR_ADAPTIVE && quota->epoch != quota->created)
        return false;
    struct weir_captures captures;
    const struct weir_quota *template;
    for (size_t i = 0; i < weir_catalog_templates(root->catalog); i++) {
        template = weir_catalog_template(root->catalog, i);
        if (weir_quota_is_leased(template) &&
            weir_template_match(template->glob, template->name, name,
                                &captures))
            return false;
    }
    return true;
}

/* Notes the epoch after which created quotas are new. */
static void look_at_epoch(struct weir_root *root)
{
    struct root_leases *leases = &root->leases;
    if (leases->known == UINT64_MAX && leases->alone && !leases->forgot &&
        root->ready && weir_root_leases(root))
        leases->known = root->epoch;
}

void weir_root_lease_forget(struct weir_root *root)
{
    root->leases.forgot = true;
    root->leases.known = UINT64_MAX;
}

void weir_root_lease_change(struct weir_root *root,
                            const struct weir_quota *old,
                            const struct weir_change *change)
{
    look_at_epoch(root);
    bool comes = !old && root->ready && !root->coming && !change->removed;
    bool again =
        comes && (weir_catalog_floor(root->catalog) > 0 ||
                  weir_catalog_removed(root->catalog, change->quota.name));
    bool goes = old && weir_quota_is_leased(old) &&
                (change->removed || !weir_quota_is_leased(&change->quota) ||
                 change->quota.created != old->created);
    if (again || goes)
        weir_root_lease_forget(root);
}

/* The leased quota, by the catalog alone. */
static int find_leased_quota(const struct weir_root *root,
                             struct weir_text name,
                             const struct weir_quota **out)
{
    struct weir_captures captures;
    if (!root->ready)
        return WEIR_ENOTREADY;
    *out = weir_catalog_find(root->catalog, name, &captures);
    if (!*out)
        return WEIR_ENOENT;
    return weir_quota_is_leased(*out) ? WEIR_OK : WEIR_EQUOTA;
}

/* The rule and the present capacity of the quota. */
static int find_rule(const struct weir_root *root, struct weir_text name,
                     struct weir_leased *out, weir_instant now)
{
    const struct weir_quota *quota;
    int error = find_leased_quota(root, name, &quota);
    if (error < 0)
        return error;
    lease_rule_of(root, quota, name, out);
    if (is_never_leased(root, quota, name))
        out->learning = 0;
    const struct root_lessor *lessor = &root->leases.lessor;
    if (!lessor->grant)
        return WEIR_OK;
    return lessor->grant(lessor->context, quota, name, out, now);
}

static bool give_rule(void *context, struct weir_text name,
                      struct weir_leased *out, weir_instant now)
{
    const struct weir_root *root = context;
    int error = find_rule(root, name, out, now);
    return error == WEIR_OK || (error == WEIR_ENOTREADY && root->ready);
}

/* Whether the roots above haven't answered for it, or no number is kept. */
static bool is_awaited(const struct weir_root *root, struct weir_text name,
                       weir_instant now)
{
    struct weir_leased leased;
    if (root->leases.unkept &&
        weir_lease_manager_inherit(root->leases.manager, name, now))
        return true;
    return root->leases.lessor.grant &&
           find_rule(root, name, &leased, now) == WEIR_ENOTREADY;
}

int weir_root_lease_rule(const struct weir_root *root, struct weir_text name,
                         struct weir_leased *out)
{
    const struct weir_quota *quota;
    int error = find_leased_quota(root, name, &quota);
    if (error == 0)
        lease_rule_of(root, quota, name, out);
    return error;
}

/* ---- Grants to send ---- */

static struct weir_text grant_name(const struct root_grants *grants,
                                   const struct root_grant *row)
{
    return (struct weir_text){ grants->names + row->name_at, row->name_len };
}

static void clear(struct root_grants *grants)
{
    grants->first = grants->count = grants->name_bytes = 0;
}

static void free_grants(struct root_grants *grants, const struct weir_mem *mem)
{
    mem->free(mem->context, grants->rows,
              grants->capacity * sizeof(*grants->rows));
    mem->free(mem->context, grants->names, grants->name_capacity);
}

/* A row at the end, with the name alone; NULL: no memory. */
static struct root_grant *append_grant(struct weir_root *root,
                                       struct root_grants *grants,
                                       struct weir_text name)
{
    struct root_grant *rows =
        weir_mem_grow(&root->mem, grants->rows, sizeof(*rows),
                      &grants->capacity, grants->count + 1);
    if (!rows)
        return NULL;
    grants->rows = rows;
    char *names =
        weir_mem_grow(&root->mem, grants->names, 1, &grants->name_capacity,
                      grants->name_bytes + name.len);
    if (!names)
        return NULL;
    grants->names = names;
    weir_assert(grants->count < grants->capacity);
    weir_assert(grants->name_bytes + name.len <= grants->name_capacity);
    struct root_grant *row = &rows[grants->count++];
    *row = (struct root_grant){
        .hash = (uint32_t)weir_hash(name, root->seed),
        .name_at = (uint32_t)grants->name_bytes,
        .name_len = (uint8_t)name.len,
    };
    memcpy(names + grants->name_bytes, name.p, name.len);
    grants->name_bytes += name.len;
    return row;
}

/* The row of an unsent push of that quota. */
static struct root_grant *find_row(const struct weir_root *root,
                                   const struct root_grants *grants,
                                   struct weir_text name)
{
    weir_assert(grants->first <= grants->count);
    uint32_t hash = (uint32_t)weir_hash(name, root->seed);
    for (size_t i = grants->first; i < grants->count; i++) {
        struct root_grant *row = &grants->rows[i];
        if (row->hash == hash && weir_text_equal(grant_name(grants, row), name))
            return row;
    }
    return NULL;
}

static void queue_push(struct weir_root *root,
                       const struct weir_lease_manager_push *push)
{
    weir_assert(push->way < root->peers_max);
    struct root_peer *peer = &root->peers[push->way];
    if (!peer->greeted)
        return;
    struct root_grant *row = find_row(root, &peer->pushed, push->quota);
    if (!row && peer->pushed.count < WEIR_LEASES_MAX)
        row = append_grant(root, &peer->pushed, push->quota);
    if (!row)
        return;
    row->grant = push->grant;
    weir_root_enqueue(root, push->way);
}

bool weir_root_owes_grants(const struct root_peer *peer)
{
    return peer->master_owed || peer->granted.count > 0 ||
           (!peer->paused && peer->pushed.count > 0);
}

/* Rows of one number, from the first; they are borrowed from 'grants'.
 * Guarantees are of now: they are no part of the account. */
static size_t take_rows(struct weir_root *root, struct root_grants *grants,
                        weir_instant now)
{
    weir_assert(grants->first < grants->count);
    struct root_leases *leases = &root->leases;
    size_t count = 0, guarantees = 0;
    uint64_t number = grants->rows[grants->first].number;
    while (grants->first < grants->count && count < WEIR_LEASES_MAX &&
           guarantees + WEIR_LEASE_GUARANTEES_MAX <= ROOT_GUARANTEES_MAX) {
        const struct root_grant *from = &grants->rows[grants->first];
        if (from->number != number)
            break;
        struct weir_lease_grant *row = &leases->rows[count++];
        *row = (struct weir_lease_grant){ grant_name(grants, from), from->error,
                                          from->grant };
        row->guarantees = leases->guarantees + guarantees;
        const struct weir_lease_pool *pool =
            weir_lease_manager_pool(leases->manager, row->name);
        if (row->error == WEIR_LEASE_GRANTED && pool)
            row->guarantee_count = weir_lease_pool_guarantees(
                pool, row->grant.holder, leases->guarantees + guarantees, now);
        guarantees += row->guarantee_count;
        grants->first++;
    }
    weir_assert(count > 0);
    if (grants->first == grants->count)
        clear(grants); /* the names stay valid until the next row */
    return count;
}

static void write_rows(struct weir_root *root, struct root_grants *from,
                       struct weir_grants *out, weir_instant now)
{
    out->answer = from->rows[from->first].number;
    out->count = take_rows(root, from, now);
    out->grants = root->leases.rows;
    weir_assert(out->count > 0 && out->count <= WEIR_LEASES_MAX);
    if (out->answer > 0)
        root->stats.lease_grants += out->count;
    else
        root->stats.lease_pushes += out->count;
}

void weir_root_write_grants(struct weir_root *root, struct root_peer *peer,
                            struct weir_message *out, weir_instant now)
{
    weir_assert(weir_root_owes_grants(peer));
    bool leases = weir_root_leases(root);
    out->type = WEIR_MESSAGE_GRANTS;
    out->grants =
        (struct weir_grants){ .term = root->leases.term,
                              .elsewhere = !leases,
                              .master = weir_root_lease_master(root) };
    if (peer->granted.count > 0)
        write_rows(root, &peer->granted, &out->grants, now);
    else if (!peer->paused && peer->pushed.count > 0)
        write_rows(root, &peer->pushed, &out->grants, now);
    peer->master_owed = false;
}

void weir_root_welcome_leases(const struct weir_root *root,
                              struct weir_welcome *out)
{
    out->leases = weir_root_leases(root);
    out->term = root->leases.term;
    out->master = weir_root_lease_master(root);
}

/* ---- Wants ---- */

struct link_id {
    char bytes[WEIR_CLIENT_ID_MAX];
};

static struct weir_client lease_client_of(const struct weir_root *root,
                                          uint32_t index, struct link_id *id)
{
    weir_assert(root->peers[index].greeted);
    const struct root_limiter *limiter =
        root->limiters[root->peers[index].limiter];
    bool named = limiter->region_len > 0 && limiter->region_len <= REGION_MAX;
    const void *from = &limiter->key;
    size_t len = sizeof limiter->key;
    if (named) {
        from = limiter->region;
        len = limiter->region_len;
    }
    id->bytes[0] = '\0';
    id->bytes[1] = named ? 'r' : 'l';
    memcpy(id->bytes + ROOT_LINK_ID_HEAD, from, len);
    return (struct weir_client){ .id = { id->bytes, ROOT_LINK_ID_HEAD + len },
                                 .way = index };
}

static enum weir_lease_error lease_error(int error)
{
    if (error == WEIR_OK)
        return WEIR_LEASE_GRANTED;
    if (error == WEIR_EQUOTA)
        return WEIR_LEASE_NOT_LEASED;
    if (error == WEIR_EFULL || error == WEIR_ENOMEM)
        return WEIR_LEASE_NO_ROOM;
    return error == WEIR_EDENIED ? WEIR_LEASE_DENIED : WEIR_LEASE_UNKNOWN;
}

/* As weir_lease_manager_ask(), also of adaptive limits. */
static int ask_manager(struct weir_root *root, const struct weir_client *client,
                       struct weir_text quota,
                       const struct weir_lease_pool_ask *ask,
                       struct weir_grant *out, weir_instant now)
{
    bool is_new;
    int error =
        weir_root_adaptive_asked(root, client, quota, ask->has, &is_new, now);
    if (error == WEIR_OK)
        error = weir_lease_manager_ask(root->leases.manager, client, quota, ask,
                                       out, now);
    if (is_new)
        weir_root_adaptive_joined(root, client, quota, now);
    return error;
}

/* If the lease pools have no rule, finds the reason. */
static int request_lease(struct weir_root *root,
                         const struct weir_client *client,
                         struct weir_text quota,
                         const struct weir_lease_pool_ask *ask,
                         struct weir_grant *out, weir_instant now)
{
    struct weir_leased leased;
    int error = ask_manager(root, client, quota, ask, out, now);
    if (error != WEIR_ENOENT)
        return error;
    error = find_rule(root, quota, &leased, now);
    return error < 0 ? error : WEIR_ENOENT;
}

static void answer_want(struct weir_root *root, uint32_t index, uint64_t number,
                        struct weir_text name, int error,
                        const struct weir_grant *grant)
{
    weir_assert(root->peers[index].greeted);
    struct root_grants *granted = &root->peers[index].granted;
    struct root_grant *row =
        granted->count < ANSWERS_MAX ? append_grant(root, granted, name) : NULL;
    if (!row) {
        root->stats.lease_dropped++;
        return;
    }
    root->stats.lease_refused += error < 0;
    row->number = number;
    row->error = lease_error(error);
    row->grant = *grant;
    weir_root_enqueue(root, index);
}

static bool speaks_for_others(const struct weir_root *root, uint32_t index)
{
    return root->limiters[root->peers[index].limiter]->speaks_for_others;
}

/* Without 'out' the want is received and not answered yet. */
static int receive_want(struct weir_root *root, uint32_t index,
                        const struct weir_want *want, struct weir_grant *out,
                        weir_instant now)
{
    weir_assert(index < root->peers_max);
    struct link_id id;
    struct weir_client client = lease_client_of(root, index, &id);
    struct weir_lease_pool_ask ask = { .bands = want->bands,
                                       .band_count = want->band_count,
                                       .has = want->has,
                                       .safe = want->safe,
                                       .learning = want->learning,
                                       .taken = want->taken,
                                       .roster_token = want->roster_token,
                                       .streams = true };
    struct weir_band bands[PROCESS_BANDS_MAX];
    if (want->band_count > 1 && !speaks_for_others(root, index)) {
        ask.bands = bands;
        ask.band_count = weir_root_adaptive_bands(root, want, bands);
    }
    if (!out)
        return ask_manager(root, &client, want->name, &ask, NULL, now);
    *out = (struct weir_grant){ .serial = 0 };
    return request_lease(root, &client, want->name, &ask, out, now);
}

static void release_want(struct weir_root *root, uint32_t index,
                         const struct weir_want *want, weir_instant now)
{
    weir_assert(want->release);
    struct link_id id;
    struct weir_client client = lease_client_of(root, index, &id);
    weir_lease_manager_release(root->leases.manager, &client, want->name,
                               want->taken, now);
}

static uint64_t awaiting_key(const struct weir_root *root, uint32_t index,
                             struct weir_text name)
{
    return weir_hash(name, root->seed + index);
}

/* The peer's waiting want of that name; AWAITING_MAX: none. */
static size_t find_awaiting(const struct weir_root *root, uint32_t index,
                            struct weir_text name)
{
    weir_assert(index < root->peers_max);
    const struct root_leases *leases = &root->leases;
    if (leases->awaiting_count == 0)
        return AWAITING_MAX;
    uint64_t key = awaiting_key(root, index, name);
    for (size_t i = 0; i < leases->awaiting_count; i++) {
        const struct root_awaiting *waits = &leases->awaiting[i];
        if (leases->awaiting_keys[i] == key && waits->peer == index &&
            weir_text_equal(waits->want.name, name))
            return i;
    }
    return AWAITING_MAX;
}

/* Its place, or the next free one; NULL: none. */
static struct root_awaiting *await_place(struct weir_root *root, uint32_t index,
                                         struct weir_text name)
{
    struct root_leases *leases = &root->leases;
    size_t at = find_awaiting(root, index, name);
    if (at < AWAITING_MAX)
        return &leases->awaiting[at];
    if (leases->awaiting_count == AWAITING_MAX)
        return NULL;
    uint64_t *keys = weir_mem_grow(
        &root->mem, leases->awaiting_keys, sizeof(*keys),
        &leases->awaiting_key_capacity, leases->awaiting_count + 1);
    if (!keys)
        return NULL;
    leases->awaiting_keys = keys;
    struct root_awaiting *awaiting =
        weir_mem_grow(&root->mem, leases->awaiting, sizeof(*awaiting),
                      &leases->awaiting_capacity, leases->awaiting_count + 1);
    if (!awaiting)
        return NULL;
    leases->awaiting = awaiting;
    for (size_t i = 0; i < leases->awaiting_count; i++)
        awaiting[i].want.name.p = awaiting[i].name;
    weir_assert(leases->awaiting_count < AWAITING_MAX);
    keys[leases->awaiting_count] = awaiting_key(root, index, name);
    return &awaiting[leases->awaiting_count++];
}

static void await_upstream(struct weir_root *root, uint32_t index,
                           uint64_t number, const struct weir_want *want,
                           weir_instant now)
{
    weir_assert(want->band_count <= WEIR_LEASE_BANDS_MAX);
    struct root_awaiting *waits = await_place(root, index, want->name);
    if (!waits) {
        root->stats.lease_dropped++;
        return;
    }
    waits->peer = index;
    waits->session = root->peers[index].session;
    waits->number = number;
    waits->since = now;
    waits->want = *want;
    memcpy(waits->name, want->name.p, want->name.len);
    memcpy(waits->bands, want->bands, want->band_count * sizeof(*want->bands));
    waits->want.name.p = waits->name;
}

static void drop_awaiting(struct root_leases *leases, size_t at)
{
    weir_assert(at < leases->awaiting_count);
    struct root_awaiting *waits = &leases->awaiting[at];
    *waits = leases->awaiting[--leases->awaiting_count];
    waits->want.name.p = waits->name;
    leases->awaiting_keys[at] = leases->awaiting_keys[leases->awaiting_count];
}

/* The client has sent newer wants. */
static void await_no_more(struct weir_root *root, uint32_t index,
                          struct weir_text name)
{
    size_t at = find_awaiting(root, index, name);
    if (at < AWAITING_MAX)
        drop_awaiting(&root->leases, at);
}

/* Only a region's root may send the wants of many clients. */
static bool may_send_want(const struct weir_root *root, uint32_t index,
                          const struct weir_want *want)
{
    if (speaks_for_others(root, index))
        return true;
    for (size_t i = 0; i < want->band_count; i++)
        if (want->bands[i].clients != 1)
            return false;
    return !want->learning && want->band_count <= PROCESS_BANDS_MAX;
}

/* 'batch': what it measured; NULL: nothing. WEIR_OK, or WEIR_EPROTOCOL: a value
 * is out of its range. */
static int take_want(struct weir_root *root, uint32_t index, uint64_t number,
                     const struct weir_want *want,
                     const struct weir_latency_batch *batch, weir_instant now)
{
    const struct root_lessor *lessor = &root->leases.lessor;
    struct weir_grant grant = { .serial = 0 };
    if (!weir_root_names_may(root, index, want->name, now)) {
        if (!want->release)
            answer_want(root, index, number, want->name, WEIR_EDENIED, &grant);
        return WEIR_OK;
    }
    if (want->release) {
        await_no_more(root, index, want->name);
        release_want(root, index, want, now);
    } else if (!may_send_want(root, index, want)) {
        return WEIR_EPROTOCOL;
    } else {
        bool awaited = is_awaited(root, want->name, now);
        int error =
            receive_want(root, index, want, awaited ? NULL : &grant, now);
        if (error == WEIR_EINVAL)
            return WEIR_EPROTOCOL;
        if (error == WEIR_ENOTREADY || (awaited && error == WEIR_OK)) {
            await_upstream(root, index, number, want, now);
        } else {
            await_no_more(root, index, want->name);
            answer_want(root, index, number, want->name, error, &grant);
            if (batch && error == WEIR_OK)
                weir_root_adaptive_take(root, want->name, &grant, batch, now);
        }
    }
    if (lessor->moved)
        lessor->moved(lessor->context, want->name, now);
    return WEIR_OK;
}

static bool is_awaiting_alive(const struct weir_root *root,
                              const struct root_awaiting *waits)
{
    const struct root_peer *peer = &root->peers[waits->peer];
    return peer->greeted && peer->session == waits->session;
}

static void answer_awaiting_want(struct weir_root *root, size_t at,
                                 weir_instant now)
{
    weir_assert(at < root->leases.awaiting_count);
    struct root_awaiting *waits = &root->leases.awaiting[at];
    struct weir_grant grant;
    waits->want.bands = waits->bands;
    if (is_awaiting_alive(root, waits)) {
        int error = receive_want(root, waits->peer, &waits->want, &grant, now);
        if (error == WEIR_ENOTREADY)
            return;
        answer_want(root, waits->peer, waits->number, waits->want.name, error,
                    &grant);
    }
    drop_awaiting(&root->leases, at);
}

void weir_root_lease_answered(struct weir_root *root, struct weir_text name,
                              weir_instant now)
{
    struct root_leases *leases = &root->leases;
    weir_lease_manager_review_of(leases->manager, name, now);
    bool awaited = is_awaited(root, name, now);
    for (size_t i = leases->awaiting_count; i > 0 && !awaited; i--) {
        if (weir_text_equal(leases->awaiting[i - 1].want.name, name))
            answer_awaiting_want(root, i - 1, now);
    }
}

/* Answers all wants that needn't wait any more. */
static void answer_ready_wants(struct weir_root *root, weir_instant now)
{
    struct root_leases *leases = &root->leases;
    for (size_t i = leases->awaiting_count; i > 0; i--) {
        const struct weir_text name = leases->awaiting[i - 1].want.name;
        if (!is_awaited(root, name, now))
            answer_awaiting_want(root, i - 1, now);
    }
}

static void sweep_awaiting(struct root_leases *leases, weir_instant now)
{
    for (size_t i = leases->awaiting_count; i > 0; i--) {
        if (now - leases->awaiting[i - 1].since >= AWAITING_MOST)
            drop_awaiting(leases, i - 1);
    }
}

int weir_root_take_wants(struct weir_root *root, uint32_t index,
                         const struct weir_wants *wants, weir_instant now)
{
    struct root_peer *peer = &root->peers[index];
    weir_assert(peer->greeted);
    struct root_limiter *limiter = root->limiters[peer->limiter];
    limiter->received_at = now;
    weir_root_enqueue(root, index);
    if (!weir_root_leases(root) || wants->term != root->leases.term) {
        peer->master_owed = true;
        return WEIR_OK;
    }
    if (wants->number <= limiter->wanted) {
        root->stats.lease_dropped += wants->count;
        return WEIR_OK;
    }
    limiter->wanted = wants->number;
    int error = WEIR_OK;
    for (size_t i = 0; i < wants->count; i++)
        weir_root_names_come(root, index, wants->wants[i].name);
    size_t next = 0;
    for (size_t i = 0; i < wants->count && error == WEIR_OK; i++) {
        bool has = next < wants->window_count && wants->windows[next].want == i;
        error = take_want(root, index, wants->number, &wants->wants[i],
                          has ? &wants->windows[next].batch : NULL, now);
        next += has;
    }
    if (weir_lease_manager_lets_in(root->leases.manager))
        answer_ready_wants(root, now);
    return error;
}

void weir_root_lease_detach(struct weir_root *root, uint32_t index)
{
    weir_assert(index < root->peers_max);
    struct root_peer *peer = &root->peers[index];
    weir_lease_manager_way_lost(root->leases.manager, index);
    /* A client that wants much and reads nothing occupies no memory. */
    weir_root_lease_free_peer(peer, &root->mem);
    peer->granted = peer->pushed = (struct root_grants){ .first = 0 };
    peer->master_owed = false;
}

void weir_root_lease_tick(struct weir_root *root, weir_instant now)
{
    struct weir_lease_manager_push push;
    look_at_epoch(root);
    sweep_awaiting(&root->leases, now);
    weir_root_adaptive_tick(root, now);
    weir_lease_manager_tick(root->leases.manager, now);
    for (int work = 0; work < PUSH_WORK; work++) {
        if (!weir_lease_manager_next(root->leases.manager, &push, now))
            break;
        queue_push(root, &push);
    }
    if (weir_lease_manager_lets_in(root->leases.manager))
        answer_ready_wants(root, now);
}

/* ---- Listeners ---- */

static bool is_of_listener(const struct weir_root *root,
                           const struct weir_client *client)
{
    return client->id.len > 0 && client->id.p[0] != '\0' &&
           client->way >= root->peers_max &&
           (client->way < WEIR_WAYS_MAX || client->way == WEIR_WAY_NONE);
}

int weir_root_lease_ask(struct weir_root *root,
                        const struct weir_client *client,
                        struct weir_text quota,
                        const struct weir_lease_pool_ask *ask,
                        struct weir_grant *out, weir_instant now)
{
    if (!is_of_listener(root, client) || ask->streams)
        return WEIR_EINVAL;
    if (!root->ready)
        return WEIR_ENOTREADY;
    const struct root_lessor *lessor = &root->leases.lessor;
    struct weir_client guest = *client;
    guest.guest = true;
    bool awaited = is_awaited(root, quota, now);
    struct weir_grant grant;
    int error = awaited ? weir_lease_manager_ask(root->leases.manager, &guest,
                                                 quota, ask, NULL, now)
                        : request_lease(root, &guest, quota, ask, &grant, now);
    if (lessor->moved)
        lessor->moved(lessor->context, quota, now);
    if (awaited && error == WEIR_OK)
        error = WEIR_ENOTREADY;
    root->stats.lease_refused += error < 0 && error != WEIR_ENOTREADY;
    if (error < 0)
        return error;
    weir_assert(grant.serial > 0);
    root->stats.lease_grants++;
    *out = grant;
    return WEIR_OK;
}

void weir_root_lease_release(struct weir_root *root,
                             const struct weir_client *client,
                             struct weir_text quota, uint64_t taken,
                             weir_instant now)
{
    const struct root_lessor *lessor = &root->leases.lessor;
    if (!is_of_listener(root, client))
        return;
    weir_lease_manager_release(root->leases.manager, client, quota, taken, now);
    if (lessor->moved)
        lessor->moved(lessor->context, quota, now);
}

void weir_root_lease_way_lost(struct weir_root *root, uint32_t way)
{
    weir_assert(way >= root->peers_max);
    weir_lease_manager_way_lost(root->leases.manager, way);
}

/* ---- Mastership ---- */

/* Drops all unsent grants: they are of the former term. */
static void drop_all_grants(struct weir_root *root)
{
    root->leases.awaiting_count = 0;
    for (uint32_t i = 0; i < root->peers_max; i++) {
        struct root_peer *peer = &root->peers[i];
        clear(&peer->granted);
        clear(&peer->pushed);
        if (!peer->greeted)
            continue;
        peer->master_owed = true;
        weir_root_enqueue(root, i);
    }
    weir_assert(root->leases.awaiting_count == 0);
}

void weir_root_lease_begin(struct weir_root *root, uint64_t term,
                           weir_instant vacant, weir_instant now)
{
    weir_assert(term > 0);
    root->leases.term = term;
    root->leases.master_len = 0;
    root->leases.known = UINT64_MAX;
    root->leases.forgot = root->provisional;
    root->leases.ask_from = vacant == WEIR_NEVER ? now : now + WEIR_ROSTER;
    root->leases.unkept = false;
    weir_lease_manager_begin(root->leases.manager, vacant, now);
    weir_root_adaptive_clear(root);
    drop_all_grants(root);
    weir_assert(weir_root_leases(root));
}

void weir_root_lease_found(struct weir_root *root, uint64_t number)
{
    weir_assert(weir_root_leases(root) && root->leases.awaiting_count == 0);
    weir_lease_manager_found(root->leases.manager, number);
    root->leases.unkept = number != 0;
}

/* Waiting clients were received before, and are answered now. */
void weir_root_lease_keep(struct weir_root *root, uint64_t number,
                          weir_instant now)
{
    struct root_leases *leases = &root->leases;
    weir_assert(number > 0);
    weir_lease_manager_keep(leases->manager, number, now);
    leases->unkept = false;
    answer_ready_wants(root, now);
}

bool weir_root_lease_wants_keep(const struct weir_root *root)
{
    return weir_lease_manager_wants_keep(root->leases.manager);
}

void weir_root_lease_alone(struct weir_root *root, bool alone)
{
    root->leases.alone = alone;
}

bool weir_root_lease_nothing_out(struct weir_root *root, weir_instant now)
{
    weir_assert(weir_root_leases(root));
    bool ends = weir_lease_manager_nothing_out(root->leases.manager, now);
    if (ends)
        answer_ready_wants(root, now);
    return ends;
}

void weir_root_lease_promise_safe(struct weir_root *root, bool promise)
{
    weir_assert(!weir_root_leases(root));
    root->leases.unsafe = !promise;
}

/* An address that isn't clean text isn't sent: it counts as unknown. */
static void set_known_master(struct root_leases *leases,
                             struct weir_text master)
{
    struct weir_diag diag;
    weir_assert(master.len <= WEIR_MASTER_MAX);
    leases->master_len = 0;
    if (weir_name_check(master, &diag) < 0)
        return;
    leases->master_len = (uint8_t)master.len;
    memcpy(leases->master, master.p, master.len);
    weir_assert(leases->master_len == master.len);
}

void weir_root_lease_end(struct weir_root *root, uint64_t term,
                         struct weir_text master, weir_instant now)
{
    (void)now;
    if (term > root->leases.term)
        root->leases.term = term;
    set_known_master(&root->leases, master);
    weir_lease_manager_end(root->leases.manager);
    weir_root_adaptive_clear(root);
    drop_all_grants(root);
    weir_assert(!weir_root_leases(root));
}

bool weir_root_leases(const struct weir_root *root)
{
    return weir_lease_manager_leases(root->leases.manager);
}

uint64_t weir_root_lease_term(const struct weir_root *root)
{
    return root->leases.term;
}

struct weir_text weir_root_lease_master(const struct weir_root *root)
{
    const struct root_leases *leases = &root->leases;
    if (leases->master_len == 0)
        return (struct weir_text){ NULL, 0 };
    return (struct weir_text){ leases->master, leases->master_len };
}

/* ---- Views ---- */

const struct weir_lease_manager *weir_root_lease_manager(
    const struct weir_root *root)
{
    return root->leases.manager;
}

/* ---- Life ---- */

bool weir_root_leases_init(struct weir_root *root)
{
    struct weir_lease_manager_options options = {
        .mem = root->mem,
        .seed = root->seed,
        .owner = { .context = root, .rule = give_rule },
    };
    weir_assert(!root->leases.manager && !root->leases.rows);
    root->leases.manager = weir_lease_manager_new(&options);
    root->leases.rows = root->mem.alloc(
        root->mem.context, WEIR_LEASES_MAX * sizeof(*root->leases.rows));
    root->leases.guarantees =
        root->mem.alloc(root->mem.context,
                        ROOT_GUARANTEES_MAX * sizeof(*root->leases.guarantees));
    root->leases.adaptive = weir_root_adaptive_new(&root->mem, root->seed);
    return root->leases.manager && root->leases.rows &&
           root->leases.guarantees && root->leases.adaptive;
}

void weir_root_leases_fini(struct weir_root *root)
{
    weir_lease_manager_free(root->leases.manager);
    weir_root_adaptive_free(root->leases.adaptive);
    root->mem.free(root->mem.context, root->leases.awaiting,
                   root->leases.awaiting_capacity *
                       sizeof(*root->leases.awaiting));
    root->mem.free(root->mem.context, root->leases.awaiting_keys,
                   root->leases.awaiting_key_capacity *
                       sizeof(*root->leases.awaiting_keys));
    root->mem.free(root->mem.context, root->leases.rows,
                   WEIR_LEASES_MAX * sizeof(*root->leases.rows));
    root->mem.free(root->mem.context, root->leases.guarantees,
                   ROOT_GUARANTEES_MAX * sizeof(*root->leases.guarantees));
}

void weir_root_lease_free_peer(struct root_peer *peer,
                               const struct weir_mem *mem)
{
    free_grants(&peer->granted, mem);
    free_grants(&peer->pushed, mem);
}
