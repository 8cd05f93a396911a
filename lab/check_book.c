/* SPDX-License-Identifier: MIT
 * lab/check_book.c - the checkers' books: the quota of each slot, and the units
 * that all tables let through of it.
 *
 * The truth is taken at its source. A slot's count is the sum of all units that
 * its table ever let through, so the books charge each link of a chain with the
 * same units as the table, under any modes and parents of that instant. The
 * true bucket leaks at the rate of the store's quota, from the edit on, by the
 * world's clock. */

#include "lab/check_internal.h"

#include "core/base/hash.h"
#include "core/quota/quota_bucket.h"
#include "io/clock.h"
#include "lab/memory.h"

/* ---- Quotas ---- */

/* A bucket's scaled parameter in units. */
static double bucket_units(const struct weir_bucket *bucket, int64_t scaled)
{
    return (double)scaled / (double)((uint64_t)1 << bucket->leak.frac);
}

static double leak_per_ns(const struct weir_quota *quota)
{
    return (double)quota->limit.units / (double)quota->limit.per;
}

/* Units that one limiter may put into a bucket (weir-quota(5)). */
static double debt_of(const struct weir_check *check,
                      const struct weir_quota *quota, double high)
{
    if (quota->sharing != WEIR_COUNTED || quota->kind != WEIR_RATE ||
        quota->limit.unlimited || quota->limit.units == 0)
        return INFINITY;
    double span = fmax((double)quota->max_debt, (double)check->pace_good);
    return fmax(span * leak_per_ns(quota), 3 * high);
}

static double high_of(const struct weir_quota *quota)
{
    struct weir_bucket rule;
    weir_quota_bucket(quota, &rule);
    return quota->limit.unlimited ? 0 : bucket_units(&rule, rule.high);
}

/* Takes over the name's rule from the store. A new creation is another quota,
 * which begins empty. */
static void update_rule(struct weir_check *check, struct check_quota *quota)
{
    struct weir_text name = { quota->name, quota->len };
    struct weir_captures captures;
    const struct weir_quota *now =
        weir_catalog_find(weir_fleet_catalog(check->fleet), name, &captures);
    weir_check_truth(check, quota);
    bool another = !now || quota->created != now->created;
    double high = now ? high_of(now) : 0;
    double debt = now ? debt_of(check, now, high) : INFINITY;
    double cut = now && now->limit.unlimited ? INFINITY : high;
    double fill = weir_check_edited(quota->truth.fill, quota->high, cut);
    weir_check_image_edit(check, quota, another, cut, high + debt);
    weir_check_slack_doubt(quota);
    if (fill < quota->truth.fill)
        quota->clean = false;
    quota->truth.fill = another ? 0 : fill;
    quota->edited = true;
    quota->ruled = now != NULL;
    quota->judged = now && now->sharing == WEIR_COUNTED &&
                    now->mode == WEIR_ENFORCE && !now->limit.unlimited &&
                    now->limit.units > 0;
    quota->created = now ? now->created : 0;
    quota->epoch = now ? now->epoch : check->epoch;
    if (now)
        weir_quota_bucket(now, &quota->rule);
    else
        weir_bucket_open(&quota->rule);
    bool leaks = now && !now->limit.unlimited;
    quota->per_ns = leaks ? leak_per_ns(now) : 0;
    quota->per_ns_most = fmax(quota->per_ns_most, quota->per_ns);
    quota->high = high;
    quota->debt = debt;
    weir_assert(quota->high >= 0 && quota->per_ns >= 0);
}

struct check_quota *weir_check_quota_of(struct weir_check *check,
                                        struct weir_text name)
{
    uint64_t hash = weir_hash(name, 0);
    size_t cursor = 0;
    uint32_t at;
    while (weir_index_find(&check->index, hash, &cursor, &at)) {
        struct check_quota *quota = check->quotas[at];
        if (quota->len == name.len &&
            memcmp(quota->name, name.p, name.len) == 0)
            return quota;
    }
    check->quotas =
        weir_must_grow(check->quotas, &check->quota_capacity,
                       check->quota_count + 1, sizeof(*check->quotas));
    struct check_quota *quota = weir_must_zeroed(1, sizeof(*quota));
    weir_assert(name.len <= WEIR_NAME_MAX);
    memcpy(quota->name, name.p, name.len);
    quota->len = name.len;
    quota->truth.at = weir_fleet_now(check->fleet);
    quota->clean = true;
    at = (uint32_t)check->quota_count++;
    check->quotas[at] = quota;
    if (weir_index_add(&check->index, &weir_mem_system, hash, at) < 0)
        weir_no_memory();
    update_rule(check, quota);
    return quota;
}

/* ---- Slots ---- */

struct check_slot *weir_check_slot_of(struct weir_check *check,
                                      uint32_t limiter, uint32_t slot)
{
    weir_assert(limiter < check->limiter_count);
    struct check_limiter *known = &check->limiters[limiter];
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    if (slot >= known->slot_count) {
        known->slots = weir_must_grow(known->slots, &known->slot_capacity,
                                      slot + 1, sizeof(*known->slots));
        memset(known->slots + known->slot_count, 0,
               (slot + 1 - known->slot_count) * sizeof(*known->slots));
        known->slot_count = slot + 1;
    }
    struct check_slot *entry = &known->slots[slot];
    struct weir_slot_view view;
    weir_table_view(table, slot, &view, 0);
    if (entry->quota && entry->generation == view.generation)
        return entry;
    weir_check_slack_slot_ends(check, entry, limiter, slot, false);
    char name[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(table, slot, name);
    /* A life that began since the last read starts from the count at that
     * read. */
    *entry = (struct check_slot){ .generation = view.generation,
                                  .count = entry->count };
    if (len > 0)
        entry->quota =
            weir_check_quota_of(check, (struct weir_text){ name, len });
    return entry;
}

/* ---- The store ---- */

static void remember_version(struct weir_check *check,
                             const struct weir_change *change)
{
    check->versions =
        weir_must_grow(check->versions, &check->version_capacity,
                       check->version_count + 1, sizeof(*check->versions));
    struct check_version *version = &check->versions[check->version_count++];
    const struct weir_quota *quota = &change->quota;
    *version = (struct check_version){
        .epoch = quota->epoch,
        .created = quota->created,
        .name = weir_must_text(quota->name),
        .parent = weir_must_text(quota->parent),
        .removed = change->removed,
        .mode = quota->mode,
    };
    if (!change->removed)
        weir_quota_bucket(quota, &version->rule);
}

void weir_check_follow_store(struct weir_check *check)
{
    const struct weir_catalog *store = weir_fleet_catalog(check->fleet);
    uint64_t newest = weir_catalog_epoch(store);
    if (newest == check->epoch)
        return;
    struct weir_cursor cursor = { { 0, 0 } };
    struct weir_change change;
    uint64_t epoch = check->epoch;
    while (weir_catalog_since(store, epoch, &cursor, &change)) {
        /* Two edits of a name in one event: the first one wasn't observed. */
        if (change.quota.epoch != epoch + 1)
            check->blind = change.quota.epoch - 1;
        remember_version(check, &change);
        epoch = change.quota.epoch;
    }
    uint64_t before = check->epoch;
    check->epoch = newest;
    for (size_t i = 0; i < check->quota_count; i++) {
        struct check_quota *quota = check->quotas[i];
        struct weir_text name = { quota->name, quota->len };
        struct weir_captures captures;
        const struct weir_quota *now =
            weir_catalog_find(store, name, &captures);
        if (now ? now->epoch > before || now->created != quota->created
                : quota->ruled)
            update_rule(check, quota);
    }
}
