/* SPDX-License-Identifier: MIT
 * lab/check_epochs.c - nodes have the quotas that the store had.
 *
 * The store's edits are remembered, each with its epoch. A limiter at epoch e
 * is checked for the last edit of every name up to e: the quota is there with
 * that rule, parent and mode, or is gone. Epochs of nodes only rise. A
 * limiter's epoch may restart while it receives the whole set anew (a second
 * root begins with all of it); it isn't judged until the set is complete. */

#include "core/table/table_read.h"
#include "lab/check_internal.h"

#define NAME "epochs"
/* With more edits than this they aren't all checked for each message. */
#define VERSIONS_MAX 1000

static bool is_last(const struct weir_check *check, size_t at, uint64_t epoch)
{
    const struct check_version *version = &check->versions[at];
    for (size_t i = at + 1; i < check->version_count; i++) {
        const struct check_version *later = &check->versions[i];
        if (later->epoch > epoch)
            return true;
        if (strcmp(later->name, version->name) == 0)
            return false;
    }
    return true;
}

static bool same_parent(struct weir_table *table, uint32_t slot,
                        const struct check_version *version)
{
    char name[WEIR_NAME_MAX + 1] = "";
    uint32_t parent = weir_parent(weir_hot(table, slot));
    if (parent != WEIR_SLOT_NONE)
        weir_table_name(table, parent, name);
    return strcmp(name, version->parent) == 0;
}

static const char *difference(struct weir_table *table,
                              const struct check_version *version)
{
    struct weir_ref ref;
    struct weir_slot_view view = { .state = WEIR_SLOT_FREE };
    if (weir_table_find(table, weir_text_of(version->name), &ref))
        weir_table_view(table, ref.slot, &view, 0);
    bool there =
        view.state == WEIR_SLOT_QUOTA || view.state == WEIR_SLOT_TEMPLATE;
    if (version->removed)
        return there ? "which was removed" : NULL;
    if (!there)
        return weir_table_live(table) == table->slots
                   ? NULL /* no room: the limiter said so in an event */
                   : "and doesn't have it";
    if (view.created != version->created)
        return "as an earlier one of that name";
    if (view.bucket.high != version->rule.high ||
        view.bucket.leak.part != version->rule.leak.part ||
        view.bucket.leak.whole != version->rule.leak.whole)
        return "with another limit";
    uint32_t flags = weir_hot(table, ref.slot)->meta;
    if (((flags & META_OFF) != 0) != (version->mode == WEIR_OFF) ||
        ((flags & META_SHADOW) != 0) != (version->mode == WEIR_SHADOW))
        return "in another mode";
    if (view.state == WEIR_SLOT_QUOTA && !same_parent(table, ref.slot, version))
        return "under another parent";
    return NULL;
}

static void check_quota_set(struct weir_check *check, uint32_t limiter,
                            uint64_t epoch)
{
    struct weir_table *table = weir_fleet_table(check->fleet, limiter);
    if (epoch <= check->blind || check->version_count > VERSIONS_MAX)
        return;
    check->stats.quota_sets++;
    for (size_t i = 0; i < check->version_count; i++) {
        const struct check_version *version = &check->versions[i];
        if (version->epoch > epoch)
            return;
        const char *what =
            is_last(check, i, epoch) ? difference(table, version) : NULL;
        if (what)
            weir_check_fail(
                check, NAME,
                "limiter%u is at epoch %llu and has \"%s\" of epoch %llu %s",
                limiter + 1, (unsigned long long)epoch, version->name,
                (unsigned long long)version->epoch, what);
    }
}

void weir_check_epochs_quotas(struct weir_check *check, uint32_t limiter,
                              const struct weir_quotas *quotas)
{
    struct check_limiter *known = &check->limiters[limiter];
    uint64_t epoch =
        weir_limiter_epoch(weir_fleet_limiter(check->fleet, limiter));
    known->anew |= quotas->full;
    if (epoch < known->epoch && !known->anew)
        weir_check_fail(check, NAME,
                        "limiter%u goes back from epoch %llu to %llu",
                        limiter + 1, (unsigned long long)known->epoch,
                        (unsigned long long)epoch);
    if (epoch > check->epoch)
        weir_check_fail(check, NAME,
                        "limiter%u is at epoch %llu, the store at %llu",
                        limiter + 1, (unsigned long long)epoch,
                        (unsigned long long)check->epoch);
    known->epoch = epoch;
    if (epoch >= quotas->target)
        known->anew = false;
    if (!known->anew && epoch > 0)
        check_quota_set(check, limiter, epoch);
}

void weir_check_epochs_root(struct weir_check *check, uint32_t index)
{
    weir_assert(index < check->root_count);
    struct check_root *known = &check->root[index];
    struct weir_root *root = weir_fleet_root(check->fleet, index);
    uint64_t epoch = weir_catalog_epoch(weir_root_catalog(root));
    if (epoch < known->epoch || epoch > check->epoch)
        weir_check_fail(
            check, NAME,
            "root%u goes from epoch %llu to %llu, the store being at %llu",
            index + 1, (unsigned long long)known->epoch,
            (unsigned long long)epoch, (unsigned long long)check->epoch);
    known->epoch = epoch;
}
