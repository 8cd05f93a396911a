/* SPDX-License-Identifier: MIT
 * node/root_views.c - data for people: usage, limiters, totals. Reads the
 * root's state; nothing is counted for display alone, except the adaptive
 * limits, which processes report themselves, and limiters that reported more
 * than one limiter's debt (counted/merge_debt.c): the debtors.
 *
 * One row for each debtor and quota, at most WEIR_DEBTORS_MAX; a new row takes
 * the place of the one with the oldest report. The exact sums are in the merge;
 * a row has the units since it was made. It outlives the limiter and its
 * cells: names are copied. An episode begins with the first report beyond the
 * debt, and again when there was none for WEIR_DEBTOR_EPISODE. */

#include "core/node/root_state.h"

#include <string.h>

#include "core/quota/quota_feature.h"

/* ---- Debtors ---- */

static bool is_row_of(const struct root_debtor *row,
                      const struct root_limiter *limiter,
                      const struct weir_root_quota *root_quota)
{
    struct weir_text name = { row->quota, row->quota_len };
    return memcmp(row->incarnation, limiter->key.incarnation,
                  WEIR_INCARNATION_SIZE) == 0 &&
           weir_text_equal(name, (struct weir_text){ root_quota->name,
                                                     root_quota->name_len });
}

/* The row of limiter and quota; if there is none, a free or the oldest one. */
static struct root_debtor *take_debtor_row(
    struct root_debtors *debtors, const struct root_limiter *limiter,
    const struct weir_root_quota *root_quota)
{
    weir_assert(debtors->rows && debtors->count <= WEIR_DEBTORS_MAX);
    struct root_debtor *oldest = &debtors->rows[0];
    for (size_t i = 0; i < debtors->count; i++) {
        struct root_debtor *row = &debtors->rows[i];
        if (is_row_of(row, limiter, root_quota))
            return row;
        if (row->at < oldest->at)
            oldest = row;
    }
    if (debtors->count < WEIR_DEBTORS_MAX)
        oldest = &debtors->rows[debtors->count++];
    *oldest = (struct root_debtor){ .quota_len = root_quota->name_len,
                                    .limiter_len = limiter->name_len };
    memcpy(oldest->quota, root_quota->name, root_quota->name_len);
    memcpy(oldest->limiter, limiter->name, limiter->name_len);
    memcpy(oldest->incarnation, limiter->key.incarnation,
           WEIR_INCARNATION_SIZE);
    return oldest;
}

void weir_root_note_beyond(void *context,
                           const struct weir_merge_limiter *cells,
                           const struct weir_root_quota *root_quota,
                           uint64_t units, weir_instant now)
{
    weir_assert(units > 0);
    struct weir_root *root = context;
    struct root_debtors *debtors = &root->debtors;
    const struct root_limiter *limiter =
        (const void *)((const char *)cells -
                       offsetof(struct root_limiter, cells));
    root->stats.beyond_debt += units;
    if (!debtors->rows)
        debtors->rows = root->mem.alloc(
            root->mem.context, WEIR_DEBTORS_MAX * sizeof(*debtors->rows));
    if (!debtors->rows)
        return; /* without memory only the sums are known */
    struct root_debtor *row = take_debtor_row(debtors, limiter, root_quota);
    bool again = row->units > 0 && now - row->at < WEIR_DEBTOR_EPISODE;
    row->unreported |= !again;
    row->units += units;
    row->at = now;
    weir_assert(row->units > 0);
}

void weir_root_free_debtors(struct weir_root *root)
{
    root->mem.free(root->mem.context, root->debtors.rows,
                   WEIR_DEBTORS_MAX * sizeof(*root->debtors.rows));
}

static void write_debtor(const struct root_debtor *row, struct weir_debtor *out,
                         weir_instant now)
{
    *out = (struct weir_debtor){
        .quota = { row->quota, row->quota_len },
        .limiter = { row->limiter, row->limiter_len },
        .units = row->units,
        .silent = weir_since(row->at, now),
    };
    memcpy(out->incarnation, row->incarnation, WEIR_INCARNATION_SIZE);
}

bool weir_root_debtor(const struct weir_root *root, size_t *cursor,
                      struct weir_debtor *out, weir_instant now)
{
    if (*cursor >= root->debtors.count)
        return false;
    weir_assert(root->debtors.rows && root->debtors.count <= WEIR_DEBTORS_MAX);
    write_debtor(&root->debtors.rows[(*cursor)++], out, now);
    return true;
}

bool weir_root_debtor_of(const struct weir_root *root, struct weir_text quota,
                         struct weir_debtor *out, weir_instant now)
{
    const struct root_debtor *last = NULL;
    for (size_t i = 0; i < root->debtors.count; i++) {
        const struct root_debtor *row = &root->debtors.rows[i];
        struct weir_text name = { row->quota, row->quota_len };
        if (weir_text_equal(name, quota) && (!last || row->at > last->at))
            last = row;
    }
    if (last)
        write_debtor(last, out, now);
    return last;
}

bool weir_root_new_debtor(struct weir_root *root, struct weir_debtor *out,
                          weir_instant now)
{
    weir_assert(root->debtors.count <= WEIR_DEBTORS_MAX);
    for (size_t i = 0; i < root->debtors.count; i++) {
        struct root_debtor *row = &root->debtors.rows[i];
        if (!row->unreported)
            continue;
        row->unreported = false;
        write_debtor(row, out, now);
        return true;
    }
    return false;
}

/* ---- Withheld quotas ---- */

bool weir_root_new_withheld(struct weir_root *root, struct weir_withheld *out)
{
    for (size_t i = 0; root->withheld && i < root->limiter_used; i++) {
        struct root_limiter *limiter = root->limiters[i];
        uint64_t news =
            limiter->live ? limiter->lacks & ~limiter->lacks_reported : 0;
        for (unsigned bit = 0; bit < WEIR_FEATURE_COUNT; bit++) {
            if (!(news >> bit & 1))
                continue;
            limiter->lacks_reported |= (uint64_t)1 << bit;
            *out = (struct weir_withheld){
                .limiter = { limiter->name, limiter->name_len },
                .feature =
                    weir_quota_feature_text((enum weir_quota_feature)bit),
            };
            return true;
        }
    }
    root->withheld = false;
    return false;
}

/* ---- Usage ---- */

static void write_usage(struct weir_root *root,
                        struct weir_root_quota *root_quota,
                        struct weir_usage *out, weir_instant now)
{
    weir_assert(root_quota->live);
    struct weir_captures captures;
    struct weir_text name = { root_quota->name, root_quota->name_len };
    int64_t fill = weir_merge_sent_fill(&root->merge, root_quota, now);
    *out = (struct weir_usage){
        .name = name,
        .quota = weir_catalog_find(root->catalog, name, &captures),
        .fill = (double)fill /
                (double)((uint64_t)1 << root_quota->bucket.leak.frac),
        .passed = root_quota->passed,
        .refused = root_quota->refused,
        .limiters = root_quota->connected,
    };
}

bool weir_root_usage(struct weir_root *root, size_t *cursor,
                     struct weir_usage *out, weir_instant now)
{
    while (*cursor < root->merge.root_quotas_used) {
        struct weir_root_quota *root_quota =
            &root->merge.root_quotas[(*cursor)++];
        if (!root_quota->live)
            continue;
        write_usage(root, root_quota, out, now);
        return true;
    }
    return false;
}

bool weir_root_usage_of(struct weir_root *root, struct weir_text name,
                        struct weir_usage *out, weir_instant now)
{
    struct weir_root_quota *root_quota = weir_merge_get(&root->merge, name);
    if (!root_quota)
        return false;
    write_usage(root, root_quota, out, now);
    weir_root_debtor_of(root, name, &out->debtor, now);
    return true;
}

bool weir_root_limiter_usage(struct weir_root *root, size_t *cursor,
                             struct weir_limiter_usage *out, weir_instant now)
{
    while (*cursor < root->limiter_used) {
        const struct root_limiter *limiter = root->limiters[(*cursor)++];
        if (!limiter->live)
            continue;
        *out = (struct weir_limiter_usage){
            .name = { limiter->name, limiter->name_len },
            .connected = limiter->cells.connected,
            .silent = now - limiter->received_at,
            .epoch = limiter->epoch,
            .unknown = limiter->unknown,
            .contended = limiter->contended,
            .lacking = limiter->lacking,
            .overflowed = limiter->overflowed,
            .overflowed_age = now - limiter->overflowed_at,
            .passes_on_full = limiter->passes_on_full,
            .few_roots = limiter->few_roots,
            .of_region = limiter->speaks_for_others,
            .reports = limiter->reports,
            .quotas = limiter->cells.cells,
        };
        if (limiter->limits) {
            out->limit_count = limiter->limits->count;
            out->limits = limiter->limits->limit;
            out->limits_age = now - limiter->limits->at;
        }
        memcpy(out->incarnation, limiter->key.incarnation,
               WEIR_INCARNATION_SIZE);
        return true;
    }
    return false;
}

void weir_root_stats(const struct weir_root *root, struct weir_root_stats *out)
{
    weir_assert(root->limiter_live <= root->limiter_used);
    *out = root->stats;
    out->limiters_connected = root->connected;
    out->limiters_known = root->limiter_live;
    out->quotas = weir_catalog_count(root->catalog);
    out->quotas_used = root->merge.root_quotas_live;
    out->epoch = root->epoch;
    out->roots = root->roots;
    out->counts = root->merge.merged;
    out->report_backoff = root->report_backoff;
    out->bucket_states = root->asks.live;
    out->bucket_state_bytes = root->asks.bytes;
    out->leased =
        weir_lease_manager_count(root->leases.manager, &out->lease_holders);
    for (uint32_t i = 0; i < root->limiter_used; i++) {
        if (!root->limiters[i]->live)
            continue;
        out->unknown += root->limiters[i]->unknown;
        out->contended += root->limiters[i]->contended;
        out->overflowed += root->limiters[i]->overflowed;
        out->limiters_lacking += root->limiters[i]->cells.connected &&
                                 root->limiters[i]->lacking > 0;
        out->limiters_few_roots += root->limiters[i]->cells.connected &&
                                   root->limiters[i]->few_roots > 0;
    }
}

/* ---- Adaptive limits ---- */

void weir_root_forget_limits(struct weir_root *root,
                             struct root_limiter *limiter)
{
    if (limiter->limits)
        root->mem.free(root->mem.context, limiter->limits,
                       limiter->limits->size);
    limiter->limits = NULL;
}

/* Copies the limits of names that the peer may take from. */
static void copy_limits(struct weir_root *root, uint32_t peer,
                        const struct weir_limits *limits,
                        struct root_limits *out, weir_instant now)
{
    weir_assert(out->count == 0);
    char *names = (char *)&out->limit[limits->count];
    for (size_t i = 0; i < limits->count; i++)
        weir_root_names_come(root, peer, limits->limits[i].name);
    for (size_t i = 0; i < limits->count; i++) {
        const struct weir_text name = limits->limits[i].name;
        if (!weir_root_names_may(root, peer, name, now))
            continue;
        struct weir_adaptive_limit *limit = &out->limit[out->count++];
        *limit = limits->limits[i];
        limit->name.p = names;
        memcpy(names, name.p, name.len);
        names += name.len;
    }
    weir_assert(out->count <= limits->count);
}

int weir_root_take_limits(struct weir_root *root, uint32_t peer,
                          const struct weir_limits *limits, weir_instant now)
{
    weir_assert(root->peers[peer].greeted);
    struct root_limiter *limiter = root->limiters[root->peers[peer].limiter];
    size_t size = sizeof(struct root_limits) +
                  limits->count * sizeof(struct weir_adaptive_limit);
    for (size_t i = 0; i < limits->count; i++)
        size += limits->limits[i].name.len;
    weir_root_forget_limits(root, limiter);
    if (limits->count == 0)
        return 0;
    limiter->limits = root->mem.alloc(root->mem.context, size);
    if (!limiter->limits)
        return WEIR_ENOMEM;
    limiter->limits->size = size;
    limiter->limits->at = now;
    limiter->limits->count = 0;
    copy_limits(root, peer, limits, limiter->limits, now);
    return 0;
}
