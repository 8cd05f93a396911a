/* SPDX-License-Identifier: MIT
 * codec/weir_v1_quotas.c - weir.v1: quotas, as a list of changes.
 *
 * An enumeration has the same numbers here, in quota.h and in the .proto;
 * weir_quota_check() refuses those that this version doesn't know. Fields that
 * only some quotas have, and which are at their defaults, aren't sent. */

#include <assert.h>

#include "codec/weir_v1_internal.h"

/* Numbers of the fields of a list. */
enum {
    QUOTAS_FULL = 1,
    QUOTAS_FROM = 2,
    QUOTAS_EPOCH = 3,
    QUOTAS_TARGET = 4,
    QUOTAS_CHANGES = 5,
    QUOTAS_KNOWN = 6,
};

static_assert((int)WEIR_CONCURRENCY == (int)WEIR__V1__KIND__CONCURRENCY,
              "kinds have one numbering");
static_assert((int)WEIR_ADAPTIVE == (int)WEIR__V1__SHARING__ADAPTIVE,
              "sharings have one numbering");
static_assert((int)WEIR_SLIDING_WINDOW ==
                  (int)WEIR__V1__ALGORITHM__SLIDING_WINDOW,
              "algorithms have one numbering");
static_assert((int)WEIR_CALENDAR_MONTH == (int)WEIR__V1__CALENDAR__MONTH,
              "calendars have one numbering");
static_assert((int)WEIR_OFF == (int)WEIR__V1__MODE__OFF,
              "modes have one numbering");
static_assert((int)WEIR_SHARE_PRIORITY == (int)WEIR__V1__SHARE__SHARE_PRIORITY,
              "shares have one numbering");
static_assert((int)WEIR_GLOB_PATH == (int)WEIR__V1__GLOB__GLOB_PATH,
              "globs have one numbering");
static_assert((int)WEIR_STALE_HOLD == (int)WEIR__V1__ON_STALE__HOLD,
              "on_stale has one numbering");

/* ---- One change ---- */

static Weir__V1__Burst *put_burst(const struct weir_burst *burst,
                                  Weir__V1__Burst *out)
{
    if (burst->unset)
        return NULL;
    *out = (Weir__V1__Burst)WEIR__V1__BURST__INIT;
    if (burst->in_time) {
        out->amount_case = WEIR__V1__BURST__AMOUNT_TIME_NS;
        out->time_ns = burst->amount;
    } else {
        out->amount_case = WEIR__V1__BURST__AMOUNT_UNITS;
        out->units = burst->amount;
    }
    return out;
}

static int get_quota_burst(const Weir__V1__Burst *burst, struct weir_burst *out)
{
    *out = (struct weir_burst){ .unset = true };
    if (!burst)
        return 0;
    if (burst->amount_case == WEIR__V1__BURST__AMOUNT__NOT_SET)
        return WEIR_EPROTOCOL;
    bool in_time = burst->amount_case == WEIR__V1__BURST__AMOUNT_TIME_NS;
    *out = (struct weir_burst){
        .amount = in_time ? burst->time_ns : burst->units,
        .in_time = in_time,
    };
    return 0;
}

static Weir__V1__Window *put_quota_window(const struct weir_window *window,
                                          Weir__V1__Window *out)
{
    if (window->unset)
        return NULL;
    *out = (Weir__V1__Window)WEIR__V1__WINDOW__INIT;
    out->calendar = (Weir__V1__Calendar)window->calendar;
    out->length_ns = window->length;
    return out;
}

static void get_window(const Weir__V1__Window *window, struct weir_window *out)
{
    if (!window)
        return;
    *out = (struct weir_window){
        .length = window->length_ns,
        .calendar = (enum weir_calendar)window->calendar,
    };
}

/* Fields at their defaults aren't sent. */
static void put_algorithm(const struct weir_quota *quota,
                          Weir__V1__Quota *message)
{
    struct weir_quota fresh;
    weir_quota_init(&fresh);
    message->tz = weir_v1_data_of(quota->tz);
    message->next_buckets = weir_v1_data_of(quota->next_buckets);
    message->store = weir_v1_data_of(quota->store);
    if (quota->deadline != fresh.deadline)
        message->deadline_ns = quota->deadline;
    if (quota->sub_windows != fresh.sub_windows)
        message->sub_windows = quota->sub_windows;
    message->max_entries = quota->max_entries;
    if (quota->max_debt != fresh.max_debt)
        message->max_debt_ns = quota->max_debt;
    message->count_limited = quota->count_limited;
}

static void get_algorithm(const Weir__V1__Quota *message,
                          struct weir_quota *out)
{
    out->tz = weir_v1_text_of(message->tz);
    out->next_buckets = weir_v1_text_of(message->next_buckets);
    out->store = weir_v1_text_of(message->store);
    if (message->deadline_ns != 0)
        out->deadline = message->deadline_ns;
    if (message->sub_windows != 0)
        out->sub_windows = message->sub_windows;
    out->max_entries = message->max_entries;
    if (message->max_debt_ns != 0)
        out->max_debt = message->max_debt_ns;
    out->count_limited = message->count_limited;
    get_window(message->window, &out->window);
}

static Weir__V1__Limit *put_limit(const struct weir_limit *limit,
                                  Weir__V1__Limit *out)
{
    *out = (Weir__V1__Limit)WEIR__V1__LIMIT__INIT;
    out->units = limit->units;
    out->per_ns = limit->per;
    out->unlimited = limit->unlimited;
    return out;
}

static struct weir_limit get_quota_limit(const Weir__V1__Limit *limit)
{
    return (struct weir_limit){
        .units = limit->units,
        .per = limit->per_ns,
        .unlimited = limit->unlimited,
    };
}

/* As put_algorithm(). 'safe' must live as long as 'message'. */
static void put_lease(const struct weir_quota *quota, Weir__V1__Quota *message,
                      Weir__V1__Limit *safe)
{
    struct weir_quota fresh;
    weir_quota_init(&fresh);
    if (quota->share_algorithm != fresh.share_algorithm)
        message->share = (Weir__V1__Share)quota->share_algorithm;
    if (quota->safe_capacity.per != 0)
        message->safe_capacity = put_limit(&quota->safe_capacity, safe);
    if (quota->lease != fresh.lease)
        message->lease_ns = quota->lease;
    if (quota->refresh != WEIR_DURATION_UNSET)
        message->refresh_ns = quota->refresh;
    if (quota->learning != WEIR_DURATION_UNSET) {
        message->learns_case = WEIR__V1__QUOTA__LEARNS_LEARNING_NS;
        message->learning_ns = quota->learning;
    }
    message->priority = quota->priority;
    if (quota->decay_factor != fresh.decay_factor)
        message->decay_ppb = quota->decay_factor;
}

/* A period of 0 would mean no capacity at all: it is refused. */
static int get_lease(const Weir__V1__Quota *message, struct weir_quota *out)
{
    if (message->share != WEIR__V1__SHARE__SHARE_UNSET)
        out->share_algorithm = (enum weir_share_algorithm)message->share;
    if (message->safe_capacity && message->safe_capacity->per_ns == 0)
        return WEIR_EPROTOCOL;
    if (message->safe_capacity)
        out->safe_capacity = get_quota_limit(message->safe_capacity);
    if (message->lease_ns != 0)
        out->lease = message->lease_ns;
    if (message->refresh_ns != 0)
        out->refresh = message->refresh_ns;
    if (message->learns_case == WEIR__V1__QUOTA__LEARNS_LEARNING_NS)
        out->learning = message->learning_ns;
    out->priority = message->priority;
    if (message->decay_ppb != 0)
        out->decay_factor = message->decay_ppb;
    return 0;
}

/* The fields of adaptive quotas, and of all of kind concurrency: 0 or absence
 * means unset. The wire's numbers of controllers are therefore one above ours,
 * in which 0 is target. 'message' borrows the quota's texts. */
static void put_adaptive(const struct weir_quota *quota,
                         Weir__V1__Quota *message)
{
    struct weir_quota fresh;
    weir_quota_init(&fresh);
    if (quota->controller != fresh.controller)
        message->controller = (Weir__V1__Controller)(quota->controller + 1);
    if (quota->target != fresh.target)
        message->target_ns = quota->target;
    if (quota->permit_timeout != fresh.permit_timeout)
        message->permit_timeout_ns = quota->permit_timeout;
    if (quota->queue != fresh.queue)
        message->queue = (Weir__V1__Queue)quota->queue;
    if (quota->queue_max != fresh.queue_max)
        message->queue_max = quota->queue_max;
    message->percentile_e4 = (uint32_t)quota->percentile;
    message->min_e4 = quota->min;
    message->max_e4 = quota->max;
    message->fleet_min_e4 = quota->fleet_min;
    message->fleet_max_e4 = quota->fleet_max;
    message->classes = weir_v1_data_of(quota->classes);
}

static void get_adaptive(const Weir__V1__Quota *message, struct weir_quota *out)
{
    if (message->controller != WEIR__V1__CONTROLLER__CONTROLLER_UNSET)
        out->controller = (enum weir_controller_kind)(message->controller - 1);
    if (message->target_ns != 0)
        out->target = message->target_ns;
    if (message->permit_timeout_ns != 0)
        out->permit_timeout = message->permit_timeout_ns;
    if (message->queue != WEIR__V1__QUEUE__QUEUE_UNSET)
        out->queue = (enum weir_wait_queue_order)message->queue;
    if (message->queue_max != 0)
        out->queue_max = message->queue_max;
    out->percentile = message->percentile_e4;
    out->min = message->min_e4;
    out->max = message->max_e4;
    out->fleet_min = message->fleet_min_e4;
    out->fleet_max = message->fleet_max_e4;
    out->classes = weir_v1_text_of(message->classes);
}

static size_t pack_quota(const struct weir_quota *quota, uint8_t *p)
{
    Weir__V1__Limit limit, safe;
    Weir__V1__Burst low, high, initial;
    Weir__V1__Window window;
    Weir__V1__Quota message = WEIR__V1__QUOTA__INIT;
    message.name = weir_v1_data_of(quota->name);
    message.parent = weir_v1_data_of(quota->parent);
    message.overflow = weir_v1_data_of(quota->overflow);
    message.description = weir_v1_data_of(quota->description);
    message.labels = weir_v1_data_of(quota->labels);
    message.id = quota->id;
    message.epoch = quota->epoch;
    message.created = quota->created;
    message.order = quota->order;
    if (quota->glob != WEIR_GLOB_NAME)
        message.glob = (Weir__V1__Glob)quota->glob;
    message.kind = (Weir__V1__Kind)quota->kind;
    message.limit = put_limit(&quota->limit, &limit);
    message.low_burst = put_burst(&quota->low_burst, &low);
    message.high_burst = put_burst(&quota->high_burst, &high);
    message.algorithm = (Weir__V1__Algorithm)quota->algorithm;
    message.sharing = (Weir__V1__Sharing)quota->sharing;
    message.mode = (Weir__V1__Mode)quota->mode;
    message.on_stale = (Weir__V1__OnStale)quota->on_stale;
    message.initial = put_burst(&quota->initial, &initial);
    message.window = put_quota_window(&quota->window, &window);
    put_algorithm(quota, &message);
    put_lease(quota, &message, &safe);
    put_adaptive(quota, &message);

    Weir__V1__Change change = WEIR__V1__CHANGE__INIT;
    change.change_case = WEIR__V1__CHANGE__CHANGE_QUOTA;
    change.quota = &message;
    return weir_v1_pack(&change, p);
}

static size_t pack_change(const struct weir_change *change, uint8_t *p)
{
    if (!change->removed)
        return pack_quota(&change->quota, p);
    Weir__V1__Removal removal = WEIR__V1__REMOVAL__INIT;
    removal.name = weir_v1_data_of(change->quota.name);
    removal.epoch = change->quota.epoch;
    Weir__V1__Change message = WEIR__V1__CHANGE__INIT;
    message.change_case = WEIR__V1__CHANGE__CHANGE_REMOVAL;
    message.removal = &removal;
    return weir_v1_pack(&message, p);
}

static int get_removal(const Weir__V1__Removal *removal,
                       struct weir_change *out)
{
    *out = (struct weir_change){ .removed = true };
    out->quota.name = weir_v1_text_of(removal->name);
    out->quota.epoch = removal->epoch;
    return weir_name_check(out->quota.name, NULL) < 0 ? WEIR_EPROTOCOL : 0;
}

/* A sound message with an invalid quota comes from a newer version, which knows
 * more kinds of quotas. The quota is reduced to its name and its place in the
 * tree, and lets everything pass. If its glob is unknown too, only its name is
 * kept. */
static int reduce_quota(struct weir_change *change)
{
    struct weir_quota quota = change->quota;
    struct weir_quota *out = &change->quota;
    weir_quota_init(out);
    out->name = quota.name;
    if (quota.glob == WEIR_GLOB_NAME || quota.glob == WEIR_GLOB_PATH) {
        out->glob = quota.glob;
        out->parent = quota.parent;
        out->overflow = quota.overflow;
    }
    out->id = quota.id;
    out->epoch = quota.epoch;
    out->created = quota.created;
    out->order = quota.order;
    out->sharing = WEIR_LOCAL;
    out->mode = WEIR_OFF;
    change->reduced = true;
    return weir_quota_check(out, NULL) < 0 ? WEIR_EPROTOCOL : 0;
}

static int get_bursts(const Weir__V1__Quota *message, struct weir_quota *out)
{
    int error = get_quota_burst(message->low_burst, &out->low_burst);
    if (error == 0)
        error = get_quota_burst(message->high_burst, &out->high_burst);
    if (error == 0)
        error = get_quota_burst(message->initial, &out->initial);
    return error;
}

static int get_quota(const Weir__V1__Quota *message, struct weir_change *change)
{
    struct weir_quota *out = &change->quota;
    if (!message->limit)
        return WEIR_EPROTOCOL;
    weir_quota_init(out);
    out->name = weir_v1_text_of(message->name);
    out->parent = weir_v1_text_of(message->parent);
    out->overflow = weir_v1_text_of(message->overflow);
    out->description = weir_v1_text_of(message->description);
    out->labels = weir_v1_text_of(message->labels);
    out->id = message->id;
    out->epoch = message->epoch;
    out->created = message->created;
    out->order = message->order;
    if (message->glob != WEIR__V1__GLOB__GLOB_UNSET)
        out->glob = (enum weir_glob)message->glob;
    out->kind = (enum weir_kind)message->kind;
    out->limit = get_quota_limit(message->limit);
    out->algorithm = (enum weir_algorithm)message->algorithm;
    out->sharing = (enum weir_sharing)message->sharing;
    out->mode = (enum weir_mode)message->mode;
    out->on_stale = (enum weir_on_stale)message->on_stale;
    if (get_bursts(message, out) < 0 || get_lease(message, out) < 0)
        return WEIR_EPROTOCOL;
    get_algorithm(message, out);
    get_adaptive(message, out);
    return weir_quota_check(out, NULL) < 0 ? reduce_quota(change) : 0;
}

static int get_change(struct weir_wire_in in, struct weir_arena *arena,
                      struct weir_change *out)
{
    const void *unpacked;
    int error =
        weir_v1_unpack(&weir__v1__change__descriptor, in, arena, &unpacked);
    if (error < 0)
        return error;
    const Weir__V1__Change *message = unpacked;
    if (message->change_case == WEIR__V1__CHANGE__CHANGE_REMOVAL)
        return get_removal(message->removal, out);
    if (message->change_case == WEIR__V1__CHANGE__CHANGE_QUOTA)
        return get_quota(message->quota, out);
    return WEIR_EPROTOCOL;
}

/* ---- The list ---- */

size_t weir_v1_quotas_size(const struct weir_quotas *quotas)
{
    size_t size = weir_wire_number_size(quotas->full) +
                  weir_wire_number_size(quotas->from) +
                  weir_wire_number_size(quotas->epoch) +
                  weir_wire_number_size(quotas->target) +
                  weir_wire_number_size(quotas->known);
    for (size_t i = 0; i < quotas->count; i++)
        size += weir_wire_message_size(pack_change(&quotas->changes[i], NULL));
    return size;
}

uint8_t *weir_v1_quotas_put(const struct weir_quotas *quotas, uint8_t *p)
{
    p = weir_wire_put_number(p, QUOTAS_FULL, quotas->full);
    p = weir_wire_put_number(p, QUOTAS_FROM, quotas->from);
    p = weir_wire_put_number(p, QUOTAS_EPOCH, quotas->epoch);
    p = weir_wire_put_number(p, QUOTAS_TARGET, quotas->target);
    for (size_t i = 0; i < quotas->count; i++) {
        const struct weir_change *change = &quotas->changes[i];
        size_t size = pack_change(change, NULL);
        p = weir_wire_put_head(p, QUOTAS_CHANGES, size);
        size_t packed = pack_change(change, p);
        weir_assert(packed == size);
        p += packed;
    }
    return weir_wire_put_number(p, QUOTAS_KNOWN, quotas->known);
}

/* The number of changes; a first walk that skips their contents. */
static int count_changes(struct weir_wire_in in, size_t *out_count)
{
    size_t count = 0;
    struct weir_wire_item item;
    int got;
    while ((got = weir_wire_next(&in, &item)) > 0)
        count += item.number == QUOTAS_CHANGES;
    if (got < 0)
        return WEIR_ESYNTAX;
    if (count > WEIR_QUOTAS_MAX)
        return WEIR_ETOOBIG;
    *out_count = count;
    return 0;
}

int weir_v1_quotas_get(struct weir_wire_in in, struct weir_arena *arena,
                       struct weir_quotas *out)
{
    size_t count;
    int error = count_changes(in, &count);
    if (error < 0)
        return error;
    struct weir_change *changes =
        weir_arena_alloc(arena, count * sizeof(*changes));
    if (!changes)
        return WEIR_ETOOBIG;
    uint64_t numbers[QUOTAS_KNOWN + 1] = { 0 };
    uint32_t seen = 0;
    size_t filled = 0;
    struct weir_wire_item item;
    while (weir_wire_next(&in, &item) > 0) {
        if (item.number > QUOTAS_KNOWN)
            continue;
        bool is_change = item.number == QUOTAS_CHANGES;
        if (item.type != (is_change ? WEIR_WIRE_BYTES : WEIR_WIRE_VARINT))
            return WEIR_EPROTOCOL;
        if (is_change) {
            weir_assert(filled < count);
            error = get_change(item.bytes, arena, &changes[filled++]);
            if (error < 0)
                return error;
            continue;
        }
        if (seen & 1u << item.number)
            return WEIR_EPROTOCOL;
        seen |= 1u << item.number;
        numbers[item.number] = item.value;
    }
    if (numbers[QUOTAS_FULL] > 1)
        return WEIR_EPROTOCOL;
    *out = (struct weir_quotas){
        .full = numbers[QUOTAS_FULL] == 1,
        .from = numbers[QUOTAS_FROM],
        .epoch = numbers[QUOTAS_EPOCH],
        .target = numbers[QUOTAS_TARGET],
        .known = numbers[QUOTAS_KNOWN],
        .count = count,
        .changes = changes,
    };
    return 0;
}
