/* SPDX-License-Identifier: MIT
 * server/doorman/doorman_quota.c - an entry of a Doorman file as a quota.
 *
 * When its servers are gone, the original goes on by the safe capacity or, if
 * that is below 0, without any limit. A lease holder does the same by on_stale:
 * share, or open. */

#include "server/doorman/doorman_quota.h"

static enum weir_share_algorithm share_of_kind(enum weir_doorman_kind kind)
{
    switch (kind) {
    case WEIR_DOORMAN_NO_ALGORITHM:
        return WEIR_SHARE_NONE;
    case WEIR_DOORMAN_STATIC:
        return WEIR_SHARE_STATIC;
    case WEIR_DOORMAN_PROPORTIONAL_SHARE:
        return WEIR_SHARE_PROPORTIONAL;
    case WEIR_DOORMAN_FAIR_SHARE:
        return WEIR_SHARE_FAIR;
    }
    weir_assert(false);
}

/* Sets the fields for the time without a server, as in the original. */
static void set_safe(const struct weir_doorman_template *entry,
                     struct weir_quota *quota)
{
    bool is_unlimited = entry->safe_given && entry->safe_capacity < 0;
    quota->on_stale = is_unlimited ? WEIR_STALE_PASS : WEIR_STALE_SHARE;
    /* A rate above the largest limit becomes that limit. */
    if (entry->safe_given && !is_unlimited)
        (void)weir_limit_of_rate(entry->safe_capacity, &quota->safe_capacity);
}

int weir_doorman_quota(const struct weir_doorman_template *entry,
                       uint32_t place, struct weir_quota *out,
                       struct weir_diag *diag)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = entry->glob;
    quota.description = entry->description;
    quota.glob = WEIR_GLOB_PATH;
    bool is_template = weir_quota_is_template(&quota);
    quota.order = is_template ? place : 0;
    quota.sharing = WEIR_LEASED;
    quota.share_algorithm = share_of_kind(entry->kind);
    quota.lease = entry->lease;
    quota.refresh = entry->refresh;
    quota.learning =
        entry->learning_given ? entry->learning : WEIR_DURATION_UNSET;
    set_safe(entry, &quota);
    (void)weir_limit_of_rate(entry->capacity, &quota.limit);
    int error = weir_quota_check(&quota, diag);
    if (error < 0 && diag)
        diag->line = entry->line;
    if (error == 0)
        *out = quota;
    return error;
}
