/* SPDX-License-Identifier: MIT
 * core/node/root_quotas.c - a root's quotas, and which of them each peer is
 * sent.
 *
 * Quotas go by epoch. 'sent' is the epoch sent so far. A report has the
 * limiter's own epoch; when that lags behind 'sent' for too long, sending
 * begins again from it. A limiter of another store, or with an epoch below the
 * floor (removals before it were forgotten), gets the whole set. */

#include "core/node/root_adaptive.h"
#include "core/node/root_state.h"

#include <string.h>

#include "core/quota/quota_feature.h"

/* Quotas that a limiter hasn't confirmed after this are sent again. */
#define QUOTAS_RESEND (2 * WEIR_SECOND)
/* A limiter may be ahead of us for this long: another root may have read an
 * edit first. After that, it has edits that our restored store lacks. */
#define AHEAD_MOST (30 * WEIR_SECOND)
/* Roots that disagree permanently send whole sets in turn: the wait doubles
 * each time, up to this. */
#define AHEAD_LAST (64 * AHEAD_MOST)

/* ---- The quotas of a peer ---- */

/* Whether the limiter can't decide the quota. */
static bool lacks_feature(struct weir_root *root, const struct root_peer *peer,
                          const struct weir_change *change)
{
    struct root_limiter *limiter = root->limiters[peer->limiter];
    if (change->removed)
        return false;
    uint64_t lacks = weir_quota_needs(&change->quota) & ~limiter->features;
    if (lacks == 0)
        return false;
    limiter->lacks |= lacks;
    root->withheld = true;
    root->stats.withheld++;
    return true;
}

/* It goes out as a removal: the limiter may have the quota as it was before,
 * without the feature. */
static void withhold(struct weir_change *change)
{
    const struct weir_quota whole = change->quota;
    *change = (struct weir_change){ .removed = true };
    change->quota.name = whole.name;
    change->quota.epoch = whole.epoch;
}

/* Sets the epoch from which the peer is sent quotas, by the store and epoch
 * that it reported; 'anew': the whole set in any case. */
static void plan(struct weir_root *root, struct root_peer *peer, bool anew,
                 weir_instant now)
{
    weir_assert(peer->greeted);
    bool whole = anew || peer->known == 0 ||
                 !weir_store_id_equal(&peer->store, &root->store) ||
                 peer->known < weir_catalog_floor(root->catalog);
    peer->sent = whole ? 0 : peer->known;
    peer->full_owed = whole;
    peer->full_known = peer->known;
    peer->floor = weir_catalog_floor(root->catalog);
    peer->cursor = (struct weir_cursor){ { 0, 0 } };
    peer->progress_at = now;
    peer->planned = true;
    weir_assert(!peer->full_owed || peer->sent == 0);
}

void weir_root_begin_quotas(struct weir_root *root, struct root_peer *peer,
                            const struct weir_hello *hello, weir_instant now)
{
    weir_assert(peer->greeted);
    peer->ahead_at = 0;
    peer->ahead_most = AHEAD_MOST;
    peer->store = hello->store;
    peer->known = hello->epoch;
    struct root_limiter *limiter = root->limiters[peer->limiter];
    uint64_t features =
        hello->features ? hello->features : WEIR_FEATURES_UNANNOUNCED;
    /* The same limiter, continued by another version: what it has lacks quotas
     * that were withheld from the last one. */
    bool other = limiter->features && limiter->features != features;
    limiter->features = features;
    plan(root, peer, other, now);
}

/* Whether it has been ahead of our store for too long. */
static bool stays_ahead(const struct weir_root *root, struct root_peer *peer,
                        weir_instant now)
{
    weir_assert(peer->greeted);
    bool ahead = root->ready && !root->provisional && !root->coming &&
                 peer->planned && !peer->full_owed && peer->known > root->epoch;
    if (!ahead || peer->ahead_at == 0 || now < peer->ahead_at)
        peer->ahead_at = ahead ? now : 0;
    return ahead && now - peer->ahead_at >= peer->ahead_most;
}

/* Takes the limiter's epoch, and whether it has room for the next. */
void weir_root_follow_epoch(struct weir_root *root, struct root_peer *peer,
                            const struct weir_report *report, weir_instant now)
{
    weir_assert(peer->greeted);
    uint64_t epoch = report->epoch;
    if (epoch != peer->known)
        peer->progress_at = now;
    peer->known = epoch;
    if (peer->planned && root->ready)
        peer->store = root->store; /* its quotas are from our store now */
    if (stays_ahead(root, peer, now)) {
        peer->ahead_at = 0;
        if (peer->ahead_most < AHEAD_LAST)
            peer->ahead_most *= 2;
        plan(root, peer, true, now);
        return;
    }
    if (!peer->full_owed && epoch > peer->sent && epoch <= root->epoch) {
        peer->sent = epoch; /* another root was faster */
        peer->cursor = (struct weir_cursor){ { 0, 0 } };
    }
    bool lost = !peer->paused && !report->no_room &&
                now - peer->progress_at >= QUOTAS_RESEND;
    if (epoch < peer->sent && (report->again || lost))
        plan(root, peer, false, now);
}

void weir_root_follow_floor(struct weir_root *root, struct root_peer *peer,
                            weir_instant now)
{
    weir_assert(peer->greeted);
    uint64_t floor = weir_catalog_floor(root->catalog);
    if (peer->planned && peer->sent < floor && peer->floor < floor)
        plan(root, peer, false, now);
}

bool weir_root_owes_quotas(const struct weir_root *root,
                           const struct root_peer *peer)
{
    return root->ready && peer->planned &&
           (peer->full_owed || peer->sent < root->epoch);
}

void weir_root_write_quotas(struct weir_root *root, struct root_peer *peer,
                            struct weir_message *out, weir_instant now)
{
    weir_assert(weir_root_owes_quotas(root, peer));
    out->type = WEIR_MESSAGE_QUOTAS;
    struct weir_quotas *quotas = &out->quotas;
    *quotas = (struct weir_quotas){ .full = peer->full_owed,
                                    .from = peer->sent,
                                    .epoch = peer->sent,
                                    .target = root->epoch,
                                    .changes = root->changes };
    if (quotas->full)
        quotas->known = peer->full_known;
    while (quotas->count < WEIR_QUOTAS_MAX) {
        struct weir_change *change = &root->changes[quotas->count];
        if (!weir_catalog_since(root->catalog, quotas->epoch, &peer->cursor,
                                change)) {
            quotas->epoch = root->epoch;
            break;
        }
        quotas->epoch = change->quota.epoch;
        quotas->count++;
        if (lacks_feature(root, peer, change))
            withhold(change);
    }
    peer->full_owed = false;
    peer->sent = quotas->epoch;
    peer->progress_at = now;
    weir_assert(peer->sent >= quotas->from);
}

/* ---- The quotas of the root ---- */

static void replan_all(struct weir_root *root, weir_instant now)
{
    for (uint32_t i = 0; i < root->peers_max; i++) {
        struct root_peer *peer = &root->peers[i];
        if (peer->greeted)
            plan(root, peer, false, now);
    }
    weir_root_welcome_all(root);
}

/* The catalog that changes go to. */
static struct weir_catalog *filling(const struct weir_root *root)
{
    return root->coming ? root->coming : root->catalog;
}

int weir_root_renew(struct weir_root *root, const struct weir_store_id *id)
{
    struct weir_catalog *fresh = weir_catalog_new(&root->mem, root->seed);
    if (!fresh)
        return WEIR_ENOMEM;
    weir_catalog_free(root->coming);
    root->coming = fresh;
    root->coming_store = *id;
    weir_assert(root->coming);
    return WEIR_OK;
}

int weir_root_store(struct weir_root *root, const struct weir_store_id *id,
                    uint64_t epoch, uint64_t floor, weir_instant now)
{
    (void)now;
    const struct weir_store_id *before =
        root->coming ? &root->coming_store : &root->store;
    bool another = !weir_store_id_equal(before, id);
    bool back = epoch < weir_catalog_epoch(filling(root));
    int error = another || back ? weir_root_renew(root, id) : WEIR_OK;
    if (error < 0)
        return error;
    root->store_epoch = epoch;
    weir_catalog_set_floor(filling(root), floor);
    weir_assert(weir_catalog_floor(filling(root)) >= floor);
    return WEIR_OK;
}

/* In another store, or another history of it, equal epochs say nothing: every
 * rule is applied anew. */
static void forget_rule_epochs(struct weir_root *root)
{
    for (uint32_t i = 0; i < root->merge.root_quotas_used; i++)
        root->merge.root_quotas[i].rule_epoch = 0;
    for (uint32_t i = 0; i < root->asks.used; i++) {
        if (root->asks.bucket_states[i])
            root->asks.bucket_states[i]->epoch = 0;
    }
}

/* The whole set is complete: it replaces the quotas served. */
static void take_over(struct weir_root *root)
{
    weir_assert(root->coming);
    if (!weir_store_id_equal(&root->store, &root->coming_store))
        forget_rule_epochs(root);
    weir_catalog_free(root->catalog);
    root->catalog = root->coming;
    root->coming = NULL;
    root->store = root->coming_store;
    if (root->ready)
        weir_root_lease_forget(root);
    root->ready = false;
    root->rule_all = true;
    weir_assert(!root->coming && root->catalog);
}

/* Applies the present quota of the bucket, if it has changed. */
static void update_bucket_rule(struct weir_root *root,
                               struct weir_root_quota *root_quota,
                               weir_instant now)
{
    weir_assert(root_quota->live);
    struct weir_captures captures;
    struct weir_text name = { root_quota->name, root_quota->name_len };
    const struct weir_quota *quota =
        weir_catalog_find(root->catalog, name, &captures);
    if (!quota)
        weir_merge_drop(&root->merge, root_quota);
    else if (quota->created != root_quota->created ||
             quota->epoch != root_quota->rule_epoch)
        weir_merge_edit(&root->merge, root_quota, quota, now);
}

int weir_root_apply(struct weir_root *root, const struct weir_change *change,
                    weir_instant now)
{
    /* A template may become a plain quota, and a removal has only the name. */
    const struct weir_quota *old =
        weir_catalog_get(filling(root), change->quota.name);
    bool template = weir_quota_is_template(&change->quota) ||
                    (old && weir_quota_is_template(old));
    weir_root_lease_change(root, old, change);
    int error = weir_catalog_apply(filling(root), change);
    if (error < 0)
        return error;
    if (root->coming)
        return WEIR_OK;
    if (template) {
        root->rule_all = true;
        return WEIR_OK;
    }
    weir_root_adaptive_review(root, now);
    weir_lease_manager_review_of(root->leases.manager, change->quota.name, now);
    struct weir_root_quota *root_quota =
        weir_merge_get(&root->merge, change->quota.name);
    if (root_quota)
        update_bucket_rule(root, root_quota, now);
    return WEIR_OK;
}

bool weir_root_keep(struct weir_root *root, struct weir_text name,
                    uint64_t epoch, weir_instant now)
{
    const struct weir_store_id *ours = &root->store;
    const struct weir_quota *served = weir_catalog_get(root->catalog, name);
    if (!served || !root->coming)
        return served;
    if (memcmp(ours->uuid, root->coming_store.uuid, sizeof ours->uuid) != 0)
        return false;
    struct weir_change change = { .quota = *served };
    change.quota.epoch = epoch;
    return weir_root_apply(root, &change, now) == WEIR_OK;
}

void weir_root_settle(struct weir_root *root, weir_instant now)
{
    if (root->coming)
        take_over(root);
    for (uint32_t i = 0; root->rule_all && i < root->merge.root_quotas_used;
         i++) {
        if (root->merge.root_quotas[i].live)
            update_bucket_rule(root, &root->merge.root_quotas[i], now);
    }
    if (root->rule_all) {
        weir_root_adaptive_review(root, now);
        weir_lease_manager_review(root->leases.manager);
    }
    root->rule_all = false;
    uint64_t epoch = weir_catalog_epoch(root->catalog);
    root->epoch = epoch > root->store_epoch ? epoch : root->store_epoch;
    if (root->ready) {
        weir_root_enqueue_all(root);
        return;
    }
    root->ready = true;
    weir_assert(!root->coming);
    replan_all(root, now);
}

void weir_root_set_provisional(struct weir_root *root, bool provisional)
{
    if (root->provisional == provisional)
        return;
    if (provisional)
        weir_root_lease_forget(root);
    root->provisional = provisional;
    weir_root_welcome_all(root);
}

void weir_root_set_roots(struct weir_root *root, uint32_t roots)
{
    root->roots = roots;
}

bool weir_root_ready(const struct weir_root *root)
{
    return root->ready;
}

void weir_root_identity(const struct weir_root *root, struct weir_store_id *out)
{
    *out = root->store;
}

struct weir_catalog *weir_root_catalog(struct weir_root *root)
{
    return root->catalog;
}
