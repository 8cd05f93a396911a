/* SPDX-License-Identifier: MIT
 * codec/weir_v1_quotas.c - weir.v1: quotas, as a list of changes.
 *
 * An enumeration has the same numbers here, in quota.h and in the .proto;
 * weir_quota_check() refuses those that this version doesn't know. Fields that
 * only some quotas have, and which are at their defaults, aren't sent: 0 or
 * absence means the default. The wire's numbers of controllers are therefore
 * one above ours, in which 0 is one of them. */

#include "codec/weir_v1_internal.h"

#define THIS struct weir_burst
static const struct weir_proto_field burst_fields[] = {
    { 1, NUMBER(amount), UNLESS(in_time) },
    { 2, NUMBER(amount), IF(in_time) },
};
static const struct weir_proto_message burst = { FIELDS(burst_fields),
                                                 .one_at_least = true };
#undef THIS

#define THIS struct weir_window
static const struct weir_proto_field window_fields[] = {
    { 1, NUMBER(length) },
    { 2, ENUM(calendar) },
};
static const struct weir_proto_message window = { FIELDS(window_fields) };
#undef THIS

#define THIS struct weir_limit
static const struct weir_proto_field limit_fields[] = {
    { 1, NUMBER(units) },
    { 2, NUMBER(per) },
    { 3, FLAG(unlimited) },
};
static const struct weir_proto_message limit = { FIELDS(limit_fields) };
/* A period of 0 would mean no capacity at all: it is refused. */
static const struct weir_proto_field safe_fields[] = {
    { 1, NUMBER(units) },
    { 2, NUMBER(per), .min = 1 },
    { 3, FLAG(unlimited) },
};
static const struct weir_proto_message safe = { FIELDS(safe_fields) };
#undef THIS

/* These enumerations have no default on the wire: 0 is refused. */
static void init_quota(void *message)
{
    struct weir_quota *quota = message;
    weir_quota_init(quota);
    quota->kind = (enum weir_kind)0;
    quota->algorithm = (enum weir_algorithm)0;
    quota->sharing = (enum weir_sharing)0;
    quota->mode = (enum weir_mode)0;
    quota->on_stale = (enum weir_on_stale)0;
}

#define THIS struct weir_quota
static const struct weir_proto_field quota_fields[] = {
    { 1, TEXT(name) },
    { 2, TEXT(parent) },
    { 3, TEXT(overflow) },
    { 4, TEXT(description) },
    { 5, TEXT(labels) },
    { 6, NUMBER(id) },
    { 7, NUMBER(epoch) },
    { 8, NUMBER(created) },
    { 9, NUMBER(order) },
    { 10, ENUM(kind) },
    { 11, PART(limit, limit), ALWAYS, .min = 1 },
    { 12, PART(low_burst, burst), UNLESS(low_burst.unset) },
    { 13, PART(high_burst, burst), UNLESS(high_burst.unset) },
    { 14, ENUM(algorithm) },
    { 15, ENUM(sharing) },
    { 16, ENUM(mode) },
    { 17, ENUM(on_stale) },
    { 18, PART(window, window), UNLESS(window.unset) },
    { 19, TEXT(tz) },
    { 20, TEXT(next_buckets) },
    { 21, TEXT(store) },
    { 22, PART(initial, burst), UNLESS(initial.unset) },
    { 23, NUMBER(deadline), CHANGED },
    { 24, NUMBER(sub_windows), CHANGED },
    { 25, NUMBER(max_entries) },
    { 26, FLAG(count_limited) },
    { 27, ENUM(share_algorithm), CHANGED },
    { 28, PART(safe_capacity, safe) },
    { 29, NUMBER(lease), CHANGED },
    { 30, NUMBER(refresh), CHANGED },
    { 31, NUMBER(learning), OWN },
    { 32, ZIGZAG(priority) },
    { 33, NUMBER(decay_factor), CHANGED },
    { 34, NUMBER(permit_timeout), CHANGED },
    { 35, ENUM(glob), CHANGED },
    { 36, ENUM(controller), CHANGED, .above = 1 },
    { 37, NUMBER(target), CHANGED },
    { 38, NUMBER(percentile), .max = UINT32_MAX },
    { 39, NUMBER(min) },
    { 40, NUMBER(max) },
    { 41, NUMBER(fleet_min) },
    { 42, NUMBER(fleet_max) },
    { 43, TEXT(classes) },
    { 44, ENUM(queue), CHANGED },
    { 45, NUMBER(queue_max), CHANGED },
    { 46, NUMBER(max_debt), CHANGED },
    { 47, ENUM(scope), CHANGED },
};
static const struct weir_proto_message quota = { FIELDS(quota_fields),
                                                 .init = init_quota };
static const struct weir_proto_field removal_fields[] = {
    { 1, NAME(name) },
    { 2, NUMBER(epoch) },
};
static const struct weir_proto_message removal = { FIELDS(removal_fields) };
#undef THIS

/* A sound message with an invalid quota comes from a newer version, which knows
 * more kinds of quotas. The quota is reduced to its name and its place in the
 * tree, and lets everything pass. If its glob is unknown too, only its name is
 * kept. */
static int reduce_quota(struct weir_change *change)
{
    struct weir_quota whole = change->quota;
    struct weir_quota *out = &change->quota;
    weir_quota_init(out);
    out->name = whole.name;
    if (whole.glob == WEIR_GLOB_NAME || whole.glob == WEIR_GLOB_PATH) {
        out->glob = whole.glob;
        out->parent = whole.parent;
        out->overflow = whole.overflow;
    }
    out->id = whole.id;
    out->epoch = whole.epoch;
    out->created = whole.created;
    out->order = whole.order;
    out->sharing = WEIR_LOCAL;
    out->mode = WEIR_OFF;
    change->reduced = true;
    return weir_quota_check(out, NULL) < 0 ? WEIR_EPROTOCOL : 0;
}

static int check_change(void *message)
{
    struct weir_change *row = message;
    bool sound = row->removed || weir_quota_check(&row->quota, NULL) == 0;
    return sound ? 0 : reduce_quota(row);
}

/* Of a quota that isn't sound. */
#define THIS struct weir_quota
static const struct weir_proto_field stub_fields[] = {
    { 1, NAME(name) },
    { 6, NUMBER(id) },
    { 7, NUMBER(epoch) },
    { 8, NUMBER(created) },
};
static const struct weir_proto_message stub = { FIELDS(stub_fields) };
#undef THIS

#define THIS struct weir_change
static const struct weir_proto_field stub_change_fields[] = {
    { 1, PART(quota, stub), UNLESS(removed) },
    { 2, PART(quota, removal), IF(removed) },
};
static const struct weir_proto_message stub_change = {
    FIELDS(stub_change_fields), .one_at_least = true
};

/* Of a quota, not of a removal. Without a name and an epoch the change is empty
 * but for 'reduced'. */
static void salvage_change(struct weir_wire_in in, void *message)
{
    struct weir_change *change = message;
    struct weir_change read;
    *change = (struct weir_change){ .reduced = true };
    if (weir_proto_get(&stub_change, in, WEIR_PROTO_AGAIN_REFUSED, NULL, &read,
                       NULL) < 0 ||
        read.removed)
        return;
    *change = read;
    if (reduce_quota(change) < 0)
        *change = (struct weir_change){ .reduced = true };
}

static const struct weir_proto_field change_fields[] = {
    { 1, PART(quota, quota), UNLESS(removed) },
    { 2, PART(quota, removal), IF(removed) },
};
static const struct weir_proto_message change = {
    FIELDS(change_fields), .fields_max = WEIR_V1_FIELDS_MAX,
    .one_at_least = true, .check = check_change, .salvage = salvage_change
};
#undef THIS

#define THIS struct weir_quotas
static const struct weir_proto_field quotas_fields[] = {
    { 1, FLAG(full) },
    { 2, NUMBER(from) },
    { 3, NUMBER(epoch) },
    { 4, NUMBER(target) },
    { 5, PARTS(changes, count, change), .max = WEIR_QUOTAS_MAX },
    { 6, NUMBER(known) },
};
const struct weir_proto_message weir_v1_quotas = { FIELDS(quotas_fields) };
#undef THIS
