/* SPDX-License-Identifier: MIT
 * codec/weir_v1.c - weir.v1: the envelope, hello and welcome.
 *
 * Theory of operation. The generated code of protobuf-c handles rare messages
 * with many fields (hello, welcome, one change of a quota), behind a scan
 * (weir_v1_protobuf.c). Frequent ones are encoded and decoded by hand
 * (weir_v1_columns.c), and so are the envelope and the list of changes
 * (weir_v1_quotas.c): a message of 512 quotas needs no array of pointers on
 * either side.
 *
 *     bytes -> envelope -> scan -> protobuf-c -> checks -> message
 *                     \-> columns ------------> checks -/ */

#include "codec/weir_v1.h"

#include <assert.h>

#include "codec/weir_v1_internal.h"
#include "core/quota/quota_text.h"

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
};

#define INTERVAL_MIN (10 * WEIR_MILLISECOND)
#define INTERVAL_MAX (3600 * WEIR_SECOND)

/* ---- Texts and identities ---- */

/* A name for people: may be empty. */
static int get_title(ProtobufCBinaryData data, struct weir_text *out)
{
    struct weir_text text = weir_v1_text_of(data);
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

static size_t pack_hello(const struct weir_hello *hello, uint8_t *p)
{
    Weir__V1__Store store;
    Weir__V1__Hello message = WEIR__V1__HELLO__INIT;
    message.protocol = hello->protocol;
    message.incarnation =
        (ProtobufCBinaryData){ WEIR_INCARNATION_SIZE,
                               (uint8_t *)hello->incarnation };
    message.name = weir_v1_data_of(hello->name);
    message.store = put_store(&hello->store, &store);
    message.epoch = hello->epoch;
    message.region = hello->region;
    message.region_name = weir_v1_data_of(hello->region_name);
    return weir_v1_pack(&message, p);
}

static int get_hello(struct weir_wire_in in, struct weir_arena *arena,
                     struct weir_hello *out)
{
    const void *unpacked;
    int error =
        weir_v1_unpack(&weir__v1__hello__descriptor, in, arena, &unpacked);
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
        regions[i] = weir_v1_data_of(welcome->regions[i]);
    message.n_regions = welcome->region_count;
    message.regions = regions;
    message.protocol = welcome->protocol;
    message.incarnation =
        (ProtobufCBinaryData){ WEIR_INCARNATION_SIZE,
                               (uint8_t *)welcome->incarnation };
    message.name = weir_v1_data_of(welcome->name);
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
    message.master = weir_v1_data_of(welcome->master);
    return weir_v1_pack(&message, p);
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
    int error =
        weir_v1_unpack(&weir__v1__welcome__descriptor, in, arena, &unpacked);
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
        return weir_v1_quotas_size(&message->quotas);
    case WEIR_MESSAGE_FILLS:
        *out_number = TO_LIMITER_FILLS;
        return weir_v1_fills_size(&message->fills, out);
    case WEIR_MESSAGE_ASKS:
        *out_number = TO_ROOT_ASKS;
        return weir_proto_size(&weir_v1_asks, &message->asks);
    case WEIR_MESSAGE_ANSWERS:
        *out_number = TO_LIMITER_ANSWERS;
        return weir_proto_size(&weir_v1_answers, &message->answers);
    case WEIR_MESSAGE_WANTS:
        *out_number = TO_ROOT_WANTS;
        return weir_proto_size(&weir_v1_wants, &message->wants);
    case WEIR_MESSAGE_GRANTS:
        *out_number = TO_LIMITER_GRANTS;
        return weir_proto_size(&weir_v1_grants, &message->grants);
    case WEIR_MESSAGE_LIMITS:
        *out_number = TO_ROOT_LIMITS;
        return weir_proto_size(&weir_v1_limits, &message->limits);
    }
    weir_assert(!"a message of a known type");
    return 0;
}

static uint8_t *put_body(const struct weir_message *message,
                         const struct weir_v1_sizes *sizes, size_t size,
                         uint8_t *p)
{
    switch (message->type) {
    case WEIR_MESSAGE_HELLO:
        return p + pack_hello(&message->hello, p);
    case WEIR_MESSAGE_REPORT:
        return weir_v1_report_put(&message->report, sizes, p);
    case WEIR_MESSAGE_WELCOME:
        return p + pack_welcome(&message->welcome, p);
    case WEIR_MESSAGE_QUOTAS:
        return weir_v1_quotas_put(&message->quotas, p);
    case WEIR_MESSAGE_FILLS:
        return weir_v1_fills_put(&message->fills, sizes, p);
    case WEIR_MESSAGE_ASKS:
        return weir_proto_put(&weir_v1_asks, &message->asks, size, p);
    case WEIR_MESSAGE_ANSWERS:
        return weir_proto_put(&weir_v1_answers, &message->answers, size, p);
    case WEIR_MESSAGE_WANTS:
        return weir_proto_put(&weir_v1_wants, &message->wants, size, p);
    case WEIR_MESSAGE_GRANTS:
        return weir_proto_put(&weir_v1_grants, &message->grants, size, p);
    case WEIR_MESSAGE_LIMITS:
        return weir_proto_put(&weir_v1_limits, &message->limits, size, p);
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
    p = put_body(message, &sizes, body, p);
    weir_assert(p == (uint8_t *)buf + total);
    return total;
}

static int get_fields(const struct weir_proto_message *message,
                      struct weir_wire_in in, struct weir_arena *arena,
                      void *out)
{
    return weir_proto_get(message, in, WEIR_PROTO_AGAIN_REFUSED, arena, out,
                          NULL);
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
        return get_fields(&weir_v1_asks, body, arena, &out->asks);
    }
    if (number == TO_ROOT_WANTS) {
        out->type = WEIR_MESSAGE_WANTS;
        return get_fields(&weir_v1_wants, body, arena, &out->wants);
    }
    if (number == TO_ROOT_LIMITS) {
        out->type = WEIR_MESSAGE_LIMITS;
        return get_fields(&weir_v1_limits, body, arena, &out->limits);
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
        return weir_v1_quotas_get(body, arena, &out->quotas);
    }
    if (number == TO_LIMITER_ANSWERS) {
        out->type = WEIR_MESSAGE_ANSWERS;
        return get_fields(&weir_v1_answers, body, arena, &out->answers);
    }
    if (number == TO_LIMITER_GRANTS) {
        out->type = WEIR_MESSAGE_GRANTS;
        return get_fields(&weir_v1_grants, body, arena, &out->grants);
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
