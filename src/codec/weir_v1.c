/* SPDX-License-Identifier: MIT
 * codec/weir_v1.c - weir.v1: the envelope, hello, welcome and quotas.
 *
 * Theory of operation. The generated code of protobuf-c handles rare messages
 * with many fields (hello, welcome, one change of a quota). Frequent ones are
 * encoded and decoded by hand (weir_v1_columns.c), and so are the envelope and
 * the list of changes: a message of 512 quotas needs no array of pointers on
 * either side.
 *
 * protobuf-c doesn't validate its input, so a scan over the bytes, by the same
 * descriptors, precedes it. The scan checks that fields have the schema's type,
 * come once except in lists, and fit their width; it bounds nesting and the
 * number of fields and refuses groups. protobuf-c's memory is the caller's
 * arena: a sender that lies about sizes exhausts a block, not the process.
 *
 *     bytes -> envelope -> scan -> protobuf-c -> checks -> message
 *                     \-> columns ------------> checks -/
 *
 * An enumeration has the same numbers here, in quota.h and in the .proto;
 * weir_quota_check() refuses those that this version doesn't know. */

#include "codec/weir_v1.h"

#include <assert.h>

#include "codec/protobuf_bytes.h"
#include "codec/weir_v1_adaptive.h"
#include "codec/weir_v1_columns.h"
#include "core/quota/quota_text.h"
#include "weir.pb-c.h"

/* Numbers of the fields that this file reads and writes. */
enum {
    ENVELOPE_SESSION = 1,
    TO_ROOT_HELLO = 2,
    TO_ROOT_REPORT = 3,
    TO_ROOT_ASKS = 4,
    TO_ROOT_WANTS = 5,
    TO_ROOT_LIMITS = 6,
    TO_LIMITER_WELCOME = 2,
    TO_LIMITER_QUOTAS = 3,
    TO_LIMITER_FILLS = 4,
    TO_LIMITER_ANSWERS = 5,
    TO_LIMITER_GRANTS = 6,

    QUOTAS_FULL = 1,
    QUOTAS_FROM = 2,
    QUOTAS_EPOCH = 3,
    QUOTAS_TARGET = 4,
    QUOTAS_CHANGES = 5,
    QUOTAS_KNOWN = 6,
};

#define SCAN_DEPTH_MAX 4   /* levels of nested messages */
#define SCAN_FIELDS_MAX 64 /* in a hello, a welcome or a change */

static_assert(WEIR_MASTER_MAX == WEIR_NAME_MAX, "one check for both");

#define INTERVAL_MIN (10 * WEIR_MILLISECOND)
#define INTERVAL_MAX (3600 * WEIR_SECOND)

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

/* ---- The scan ---- */

static bool is_varint(ProtobufCType type)
{
    return type != PROTOBUF_C_TYPE_BYTES && type != PROTOBUF_C_TYPE_MESSAGE &&
           type != PROTOBUF_C_TYPE_STRING;
}

/* Whether a number fits the field; protobuf-c would cut a wider one. */
static bool number_fits(ProtobufCType type, uint64_t value)
{
    if (type == PROTOBUF_C_TYPE_UINT32)
        return value <= UINT32_MAX;
    if (type == PROTOBUF_C_TYPE_ENUM)
        return value <= INT32_MAX;
    if (type == PROTOBUF_C_TYPE_BOOL)
        return value <= 1;
    return true;
}

struct scan_level {
    const ProtobufCMessageDescriptor *desc;
    struct weir_wire_in in;
    uint64_t seen; /* a bit for each field's index in the descriptor */
};

static int scan_item(struct scan_level *levels, unsigned *depth,
                     const struct weir_wire_item *item)
{
    struct scan_level *level = &levels[*depth];
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(level->desc, item->number);
    if (!field)
        return 0;
    enum weir_wire_type wanted =
        is_varint(field->type) ? WEIR_WIRE_VARINT : WEIR_WIRE_BYTES;
    weir_assert(level->desc->n_fields <= 64);
    uint64_t bit = 1ull << (field - level->desc->fields);
    bool again = level->seen & bit;
    if (item->type != wanted ||
        (again && field->label != PROTOBUF_C_LABEL_REPEATED))
        return WEIR_EPROTOCOL;
    level->seen |= bit;
    if (!number_fits(field->type, item->value))
        return WEIR_EPROTOCOL;
    if (field->type != PROTOBUF_C_TYPE_MESSAGE)
        return 0;
    if (*depth + 1 == SCAN_DEPTH_MAX)
        return WEIR_ETOOBIG;
    levels[++*depth] = (struct scan_level){
        .desc = field->descriptor,
        .in = item->bytes,
    };
    return 0;
}

/* Checks that protobuf-c may be given the bytes. Without recursion: its depth
 * is bounded. */
static int scan(const ProtobufCMessageDescriptor *desc, struct weir_wire_in in)
{
    struct scan_level levels[SCAN_DEPTH_MAX] = { { .desc = desc, .in = in } };
    unsigned depth = 0;
    unsigned fields = 0;
    for (;;) {
        struct weir_wire_item item;
        int got = weir_wire_next(&levels[depth].in, &item);
        if (got < 0)
            return WEIR_ESYNTAX;
        if (got == 0 && depth == 0)
            return 0;
        if (got == 0) {
            depth--;
            continue;
        }
        if (++fields > SCAN_FIELDS_MAX)
            return WEIR_ETOOBIG;
        int error = scan_item(levels, &depth, &item);
        if (error < 0)
            return error;
    }
}

static void *arena_alloc(void *context, size_t size)
{
    return weir_arena_alloc(context, size);
}

static void arena_free(void *context, void *p)
{
    (void)context;
    (void)p;
}

/* Decodes a message of 'desc' into the arena; '*out' is unchanged on
 * failure. */
static int unpack(const ProtobufCMessageDescriptor *desc,
                  struct weir_wire_in in, struct weir_arena *arena,
                  const void **out)
{
    weir_assert(desc->n_fields <= 32);
    int error = scan(desc, in);
    if (error < 0)
        return error;
    ProtobufCAllocator allocator = {
        .alloc = arena_alloc,
        .free = arena_free,
        .allocator_data = arena,
    };
    size_t len = weir_wire_left(in);
    const uint8_t empty = 0;
    const void *message = protobuf_c_message_unpack(desc, &allocator, len,
                                                    len > 0 ? in.p : &empty);
    /* The bytes have been scanned, so only memory can be missing. */
    if (!message)
        return WEIR_ETOOBIG;
    *out = message;
    return 0;
}

/* ---- Texts and identities ---- */

static struct weir_text text_of(ProtobufCBinaryData data)
{
    if (data.len == 0)
        return (struct weir_text){ NULL, 0 };
    return (struct weir_text){ (const char *)data.data, data.len };
}

static ProtobufCBinaryData data_of(struct weir_text text)
{
    return (ProtobufCBinaryData){ text.len, (uint8_t *)text.p };
}

/* A name for people: may be empty. */
static int get_title(ProtobufCBinaryData data, struct weir_text *out)
{
    struct weir_text text = text_of(data);
    if (text.len > WEIR_NAME_MAX)
        return WEIR_ETOOBIG;
    if (weir_utf8_clean(text, "") != text.len)
        return WEIR_EPROTOCOL;
    *out = text;
    return 0;
}

static int get_incarnation(ProtobufCBinaryData data, uint8_t *out)
{
    if (data.len != WEIR_INCARNATION_SIZE)
        return WEIR_EPROTOCOL;
    memcpy(out, data.data, WEIR_INCARNATION_SIZE);
    return 0;
}

static int get_store(const Weir__V1__Store *store, struct weir_store_id *out)
{
    *out = (struct weir_store_id){ .restores = 0 };
    if (!store)
        return 0;
    if (store->uuid.len != 0 && store->uuid.len != sizeof(out->uuid))
        return WEIR_EPROTOCOL;
    if (store->uuid.len != 0)
        memcpy(out->uuid, store->uuid.data, sizeof(out->uuid));
    out->restores = store->restores;
    return 0;
}

static bool store_is_known(const struct weir_store_id *store)
{
    static const uint8_t none[sizeof(store->uuid)];
    return memcmp(store->uuid, none, sizeof(none)) != 0;
}

/* Fills 'out', to which the message then points; NULL for a store id of
 * zeros. */
static Weir__V1__Store *put_store(const struct weir_store_id *store,
                                  Weir__V1__Store *out)
{
    bool known = store_is_known(store);
    if (!known && store->restores == 0)
        return NULL;
    *out = (Weir__V1__Store)WEIR__V1__STORE__INIT;
    if (known)
        out->uuid = (ProtobufCBinaryData){ sizeof(store->uuid),
                                           (uint8_t *)store->uuid };
    out->restores = store->restores;
    return out;
}

/* ---- Hello ---- */

/* Packs a filled message, or only computes its size ('p' is NULL). */
static size_t pack(const void *message, uint8_t *p)
{
    return p ? protobuf_c_message_pack(message, p)
             : protobuf_c_message_get_packed_size(message);
}

static size_t pack_hello(const struct weir_hello *hello, uint8_t *p)
{
    Weir__V1__Store store;
    Weir__V1__Hello message = WEIR__V1__HELLO__INIT;
    message.protocol = hello->protocol;
    message.incarnation =
        (ProtobufCBinaryData){ WEIR_INCARNATION_SIZE,
                               (uint8_t *)hello->incarnation };
    message.name = data_of(hello->name);
    message.store = put_store(&hello->store, &store);
    message.epoch = hello->epoch;
    message.region = hello->region;
    message.region_name = data_of(hello->region_name);
    return pack(&message, p);
}

static int get_hello(struct weir_wire_in in, struct weir_arena *arena,
                     struct weir_hello *out)
{
    const void *unpacked;
    int error = unpack(&weir__v1__hello__descriptor, in, arena, &unpacked);
    if (error < 0)
        return error;
    const Weir__V1__Hello *message = unpacked;
    out->protocol = message->protocol;
    out->epoch = message->epoch;
    out->region = message->region;
    error = get_incarnation(message->incarnation, out->incarnation);
    if (error == 0)
        error = get_title(message->name, &out->name);
    if (error == 0)
        error = get_title(message->region_name, &out->region_name);
    if (error == 0)
        error = get_store(message->store, &out->store);
    return error;
}

/* ---- Welcome ---- */

static size_t pack_welcome(const struct weir_welcome *welcome, uint8_t *p)
{
    const struct weir_settings *from = &welcome->settings;
    Weir__V1__Settings settings = WEIR__V1__SETTINGS__INIT;
    settings.report_interval_ns = from->report_interval;
    settings.stale_after_ns = from->stale_after;
    settings.slack = from->slack;
    settings.correction_auto = from->correction_auto;
    settings.correction_ppm = from->correction_ppm;

    Weir__V1__Store store;
    ProtobufCBinaryData regions[WEIR_TIERS_MAX];
    Weir__V1__Welcome message = WEIR__V1__WELCOME__INIT;
    weir_assert(welcome->region_count <= WEIR_TIERS_MAX);
    for (size_t i = 0; i < welcome->region_count; i++)
        regions[i] = data_of(welcome->regions[i]);
    message.n_regions = welcome->region_count;
    message.regions = regions;
    message.protocol = welcome->protocol;
    message.incarnation =
        (ProtobufCBinaryData){ WEIR_INCARNATION_SIZE,
                               (uint8_t *)welcome->incarnation };
    message.name = data_of(welcome->name);
    message.age_ns = welcome->age;
    message.ready = welcome->ready;
    message.store = put_store(&welcome->store, &store);
    message.epoch = welcome->epoch;
    message.settings = &settings;
    message.carries = welcome->carries;
    message.last_session = welcome->last_session;
    message.last_number = welcome->last_number;
    message.top_age_ns = welcome->top_age;
    message.provisional = welcome->provisional;
    message.leases = welcome->leases;
    message.term = welcome->term;
    message.master = data_of(welcome->master);
    return pack(&message, p);
}

static int get_settings(const Weir__V1__Settings *settings,
                        struct weir_settings *out)
{
    if (!settings || settings->report_interval_ns < INTERVAL_MIN ||
        settings->report_interval_ns > INTERVAL_MAX ||
        settings->stale_after_ns < settings->report_interval_ns)
        return WEIR_EPROTOCOL;
    *out = (struct weir_settings){
        .report_interval = settings->report_interval_ns,
        .stale_after = settings->stale_after_ns,
        .slack = settings->slack,
        .correction_auto = settings->correction_auto,
        .correction_ppm = settings->correction_ppm,
    };
    return 0;
}

static int get_regions(const Weir__V1__Welcome *message,
                       struct weir_arena *arena, struct weir_welcome *out)
{
    if (message->n_regions > WEIR_TIERS_MAX)
        return WEIR_ETOOBIG;
    struct weir_text *regions =
        weir_arena_alloc(arena, message->n_regions * sizeof(*regions));
    if (!regions)
        return WEIR_ETOOBIG;
    int error = 0;
    for (size_t i = 0; i < message->n_regions && error == 0; i++)
        error = get_title(message->regions[i], &regions[i]);
    out->region_count = message->n_regions;
    out->regions = regions;
    return error;
}

static int get_welcome(struct weir_wire_in in, struct weir_arena *arena,
                       struct weir_welcome *out)
{
    const void *unpacked;
    int error = unpack(&weir__v1__welcome__descriptor, in, arena, &unpacked);
    if (error < 0)
        return error;
    const Weir__V1__Welcome *message = unpacked;
    out->protocol = message->protocol;
    out->age = message->age_ns;
    out->ready = message->ready;
    out->epoch = message->epoch;
    out->carries = message->carries;
    out->last_session = message->last_session;
    out->last_number = message->last_number;
    out->top_age = message->top_age_ns;
    out->provisional = message->provisional;
    out->leases = message->leases;
    out->term = message->term;
    error = get_incarnation(message->incarnation, out->incarnation);
    if (error == 0)
        error = get_title(message->name, &out->name);
    if (error == 0)
        error = get_title(message->master, &out->master);
    if (error == 0)
        error = get_store(message->store, &out->store);
    if (error == 0)
        error = get_settings(message->settings, &out->settings);
    if (error == 0)
        error = get_regions(message, arena, out);
    return error;
}

/* ---- Quotas: one change ---- */

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

static int get_burst(const Weir__V1__Burst *burst, struct weir_burst *out)
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

static Weir__V1__Window *put_window(const struct weir_window *window,
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
    message->tz = data_of(quota->tz);
    message->next_buckets = data_of(quota->next_buckets);
    message->store = data_of(quota->store);
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
    out->tz = text_of(message->tz);
    out->next_buckets = text_of(message->next_buckets);
    out->store = text_of(message->store);
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

static struct weir_limit get_limit(const Weir__V1__Limit *limit)
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
        out->safe_capacity = get_limit(message->safe_capacity);
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

static size_t pack_quota(const struct weir_quota *quota, uint8_t *p)
{
    Weir__V1__Limit limit, safe;
    Weir__V1__Burst low, high, initial;
    Weir__V1__Window window;
    Weir__V1__Quota message = WEIR__V1__QUOTA__INIT;
    message.name = data_of(quota->name);
    message.parent = data_of(quota->parent);
    message.overflow = data_of(quota->overflow);
    message.description = data_of(quota->description);
    message.labels = data_of(quota->labels);
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
    message.window = put_window(&quota->window, &window);
    put_algorithm(quota, &message);
    put_lease(quota, &message, &safe);
    weir_v1_adaptive_put(quota, &message);

    Weir__V1__Change change = WEIR__V1__CHANGE__INIT;
    change.change_case = WEIR__V1__CHANGE__CHANGE_QUOTA;
    change.quota = &message;
    return pack(&change, p);
}

static size_t pack_change(const struct weir_change *change, uint8_t *p)
{
    if (!change->removed)
        return pack_quota(&change->quota, p);
    Weir__V1__Removal removal = WEIR__V1__REMOVAL__INIT;
    removal.name = data_of(change->quota.name);
    removal.epoch = change->quota.epoch;
    Weir__V1__Change message = WEIR__V1__CHANGE__INIT;
    message.change_case = WEIR__V1__CHANGE__CHANGE_REMOVAL;
    message.removal = &removal;
    return pack(&message, p);
}

static int get_removal(const Weir__V1__Removal *removal,
                       struct weir_change *out)
{
    *out = (struct weir_change){ .removed = true };
    out->quota.name = text_of(removal->name);
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
    int error = get_burst(message->low_burst, &out->low_burst);
    if (error == 0)
        error = get_burst(message->high_burst, &out->high_burst);
    if (error == 0)
        error = get_burst(message->initial, &out->initial);
    return error;
}

static int get_quota(const Weir__V1__Quota *message, struct weir_change *change)
{
    struct weir_quota *out = &change->quota;
    if (!message->limit)
        return WEIR_EPROTOCOL;
    weir_quota_init(out);
    out->name = text_of(message->name);
    out->parent = text_of(message->parent);
    out->overflow = text_of(message->overflow);
    out->description = text_of(message->description);
    out->labels = text_of(message->labels);
    out->id = message->id;
    out->epoch = message->epoch;
    out->created = message->created;
    out->order = message->order;
    if (message->glob != WEIR__V1__GLOB__GLOB_UNSET)
        out->glob = (enum weir_glob)message->glob;
    out->kind = (enum weir_kind)message->kind;
    out->limit = get_limit(message->limit);
    out->algorithm = (enum weir_algorithm)message->algorithm;
    out->sharing = (enum weir_sharing)message->sharing;
    out->mode = (enum weir_mode)message->mode;
    out->on_stale = (enum weir_on_stale)message->on_stale;
    if (get_bursts(message, out) < 0 || get_lease(message, out) < 0)
        return WEIR_EPROTOCOL;
    get_algorithm(message, out);
    weir_v1_adaptive_get(message, out);
    return weir_quota_check(out, NULL) < 0 ? reduce_quota(change) : 0;
}

static int get_change(struct weir_wire_in in, struct weir_arena *arena,
                      struct weir_change *out)
{
    const void *unpacked;
    int error = unpack(&weir__v1__change__descriptor, in, arena, &unpacked);
    if (error < 0)
        return error;
    const Weir__V1__Change *message = unpacked;
    if (message->change_case == WEIR__V1__CHANGE__CHANGE_REMOVAL)
        return get_removal(message->removal, out);
    if (message->change_case == WEIR__V1__CHANGE__CHANGE_QUOTA)
        return get_quota(message->quota, out);
    return WEIR_EPROTOCOL;
}

/* ---- Quotas: the list ---- */

static size_t quotas_size(const struct weir_quotas *quotas)
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

static uint8_t *put_quotas(const struct weir_quotas *quotas, uint8_t *p)
{
    p = weir_wire_put_number(p, QUOTAS_FULL, quotas->full);
    p = weir_wire_put_number(p, QUOTAS_FROM, quotas->from);
    p = weir_wire_put_number(p, QUOTAS_EPOCH, quotas->epoch);
    p = weir_wire_put_number(p, QUOTAS_TARGET, quotas->target);
    for (size_t i = 0; i < quotas->count; i++) {
        const struct weir_change *change = &quotas->changes[i];
        p = weir_wire_put_head(p, QUOTAS_CHANGES, pack_change(change, NULL));
        p += pack_change(change, p);
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

static int get_quotas(struct weir_wire_in in, struct weir_arena *arena,
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

/* ---- The envelope ---- */

/* The body's size and field number; for a report or fills, each column's
 * size. */
static size_t body_size(const struct weir_message *message,
                        unsigned *out_number, struct weir_v1_sizes *out)
{
    switch (message->type) {
    case WEIR_MESSAGE_HELLO:
        *out_number = TO_ROOT_HELLO;
        return pack_hello(&message->hello, NULL);
    case WEIR_MESSAGE_REPORT:
        *out_number = TO_ROOT_REPORT;
        return weir_v1_report_size(&message->report, out);
    case WEIR_MESSAGE_WELCOME:
        *out_number = TO_LIMITER_WELCOME;
        return pack_welcome(&message->welcome, NULL);
    case WEIR_MESSAGE_QUOTAS:
        *out_number = TO_LIMITER_QUOTAS;
        return quotas_size(&message->quotas);
    case WEIR_MESSAGE_FILLS:
        *out_number = TO_LIMITER_FILLS;
        return weir_v1_fills_size(&message->fills, out);
    case WEIR_MESSAGE_ASKS:
        *out_number = TO_ROOT_ASKS;
        return weir_v1_asks_size(&message->asks);
    case WEIR_MESSAGE_ANSWERS:
        *out_number = TO_LIMITER_ANSWERS;
        return weir_v1_answers_size(&message->answers);
    case WEIR_MESSAGE_WANTS:
        *out_number = TO_ROOT_WANTS;
        return weir_v1_wants_size(&message->wants);
    case WEIR_MESSAGE_GRANTS:
        *out_number = TO_LIMITER_GRANTS;
        return weir_v1_grants_size(&message->grants);
    case WEIR_MESSAGE_LIMITS:
        *out_number = TO_ROOT_LIMITS;
        return weir_v1_limits_size(&message->limits);
    }
    weir_assert(!"a message of a known type");
    return 0;
}

static uint8_t *put_body(const struct weir_message *message,
                         const struct weir_v1_sizes *sizes, uint8_t *p)
{
    switch (message->type) {
    case WEIR_MESSAGE_HELLO:
        return p + pack_hello(&message->hello, p);
    case WEIR_MESSAGE_REPORT:
        return weir_v1_report_put(&message->report, sizes, p);
    case WEIR_MESSAGE_WELCOME:
        return p + pack_welcome(&message->welcome, p);
    case WEIR_MESSAGE_QUOTAS:
        return put_quotas(&message->quotas, p);
    case WEIR_MESSAGE_FILLS:
        return weir_v1_fills_put(&message->fills, sizes, p);
    case WEIR_MESSAGE_ASKS:
        return weir_v1_asks_put(&message->asks, p);
    case WEIR_MESSAGE_ANSWERS:
        return weir_v1_answers_put(&message->answers, p);
    case WEIR_MESSAGE_WANTS:
        return weir_v1_wants_put(&message->wants, p);
    case WEIR_MESSAGE_GRANTS:
        return weir_v1_grants_put(&message->grants, p);
    case WEIR_MESSAGE_LIMITS:
        return weir_v1_limits_put(&message->limits, p);
    }
    weir_assert(!"a message of a known type");
    return p;
}

size_t weir_v1_size(const struct weir_message *message)
{
    unsigned number;
    struct weir_v1_sizes sizes;
    return weir_wire_number_size(message->session) +
           weir_wire_message_size(body_size(message, &number, &sizes));
}

size_t weir_v1_encode(const struct weir_message *message, void *buf,
                      size_t size)
{
    unsigned number;
    struct weir_v1_sizes sizes;
    size_t body = body_size(message, &number, &sizes);
    size_t total =
        weir_wire_number_size(message->session) + weir_wire_message_size(body);
    if (total > size)
        return 0;
    uint8_t *p = buf;
    p = weir_wire_put_number(p, ENVELOPE_SESSION, message->session);
    p = weir_wire_put_head(p, number, body);
    p = put_body(message, &sizes, p);
    weir_assert(p == (uint8_t *)buf + total);
    return total;
}

static int get_body_of_limiter(unsigned number, struct weir_wire_in body,
                               struct weir_arena *arena,
                               struct weir_message *out)
{
    if (number == TO_ROOT_HELLO) {
        out->type = WEIR_MESSAGE_HELLO;
        return get_hello(body, arena, &out->hello);
    }
    if (number == TO_ROOT_ASKS) {
        out->type = WEIR_MESSAGE_ASKS;
        return weir_v1_asks_get(body, arena, &out->asks);
    }
    if (number == TO_ROOT_WANTS) {
        out->type = WEIR_MESSAGE_WANTS;
        return weir_v1_wants_get(body, arena, &out->wants);
    }
    if (number == TO_ROOT_LIMITS) {
        out->type = WEIR_MESSAGE_LIMITS;
        return weir_v1_limits_get(body, arena, &out->limits);
    }
    out->type = WEIR_MESSAGE_REPORT;
    return weir_v1_report_get(body, arena, &out->report);
}

static int get_body_of_root(unsigned number, struct weir_wire_in body,
                            struct weir_arena *arena, struct weir_message *out)
{
    if (number == TO_LIMITER_WELCOME) {
        out->type = WEIR_MESSAGE_WELCOME;
        return get_welcome(body, arena, &out->welcome);
    }
    if (number == TO_LIMITER_QUOTAS) {
        out->type = WEIR_MESSAGE_QUOTAS;
        return get_quotas(body, arena, &out->quotas);
    }
    if (number == TO_LIMITER_ANSWERS) {
        out->type = WEIR_MESSAGE_ANSWERS;
        return weir_v1_answers_get(body, arena, &out->answers);
    }
    if (number == TO_LIMITER_GRANTS) {
        out->type = WEIR_MESSAGE_GRANTS;
        return weir_v1_grants_get(body, arena, &out->grants);
    }
    out->type = WEIR_MESSAGE_FILLS;
    return weir_v1_fills_get(body, arena, &out->fills);
}

int weir_v1_decode(const void *bytes, size_t len, bool to_root,
                   struct weir_arena *arena, struct weir_message *out)
{
    if (len > WEIR_MESSAGE_BYTES_MAX)
        return WEIR_ETOOBIG;
    arena->used = 0;
    unsigned last = to_root ? TO_ROOT_LIMITS : TO_LIMITER_GRANTS;
    unsigned body_number = 0;
    bool has_session = false;
    struct weir_message message = { .session = 0 };
    struct weir_wire_in in = weir_wire_over(bytes, len);
    struct weir_wire_in body = { NULL, NULL };
    struct weir_wire_item item;
    int got;
    while ((got = weir_wire_next(&in, &item)) > 0) {
        if (item.number > last)
            continue;
        bool is_session = item.number == ENVELOPE_SESSION;
        if (item.type != (is_session ? WEIR_WIRE_VARINT : WEIR_WIRE_BYTES))
            return WEIR_EPROTOCOL;
        if (is_session ? has_session : body_number != 0)
            return WEIR_EPROTOCOL;
        if (is_session) {
            has_session = true;
            message.session = item.value;
        } else {
            body_number = item.number;
            body = item.bytes;
        }
    }
    if (got < 0)
        return WEIR_ESYNTAX;
    if (body_number == 0)
        return WEIR_EPROTOCOL;
    int error = to_root
                    ? get_body_of_limiter(body_number, body, arena, &message)
                    : get_body_of_root(body_number, body, arena, &message);
    if (error == 0)
        *out = message;
    return error;
}
