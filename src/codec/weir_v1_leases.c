/* SPDX-License-Identifier: MIT
 * codec/weir_v1_leases.c - wants and grants as bytes, by hand; and the current
 * values of adaptive limits, in rows of the same shapes.
 *
 * Encoded in rows, as in weir_v1_asks.c, and rows within rows. A message's
 * shape says which fields it has: bits by the fields' numbers. One walk over
 * the bytes reads the fields that come once and counts the rows; another walk
 * then reads each row into the arena. The memory needed is thus known, and
 * bounded, before it is allocated.
 *
 * Amounts are doubles, since a share of a capacity is no whole number. A NaN,
 * an infinite or a negative amount is refused here, because the caller sums
 * them. */

#include "codec/weir_v1_internal.h"
#include "core/quota/quota_text.h"

enum {
    WANTS_NUMBER = 1,
    WANTS_ROWS = 2,
    WANTS_TERM = 3,

    WANT_NAME = 1,
    WANT_HAS = 2,
    WANT_TAKEN = 3,
    WANT_RELEASE = 4,
    WANT_LEARNING = 5,
    WANT_ROWS = 6,
    WANT_SAFE = 7,
    WANT_ROSTER_TOKEN = 8,

    BAND_PRIORITY = 1,
    BAND_CLIENTS = 2,
    BAND_WANTS = 3,

    GRANTS_ANSWER = 1,
    GRANTS_TERM = 2,
    GRANTS_ELSEWHERE = 3,
    GRANTS_MASTER = 4,
    GRANTS_ROWS = 5,

    GRANT_NAME = 1,
    GRANT_ERROR = 2,
    GRANT_SERIAL = 3,
    GRANT_CAPACITY = 4,
    GRANT_SAFE = 5,
    GRANT_LEASE = 6,
    GRANT_REFRESH = 7,
    GRANT_SAFE_LEASE = 8,
    GRANT_ROSTER_TOKEN = 9,

    LIMITS_ROWS = 1,

    LIMIT_NAME = 1,
    LIMIT_LIMIT = 2,
    LIMIT_IN_FLIGHT = 3,
    LIMIT_REASON = 4,
    LIMIT_LATENCY = 5,
    LIMIT_AGE = 6,

    FIELDS = 10, /* above all field numbers */
};

/* ---- Fields in ---- */

/* Bits by field numbers; a field in none of the sets is a varint. */
struct shape {
    uint32_t all;
    uint32_t doubles;
    uint32_t texts;
    unsigned rows; /* the number of the field that repeats; 0: none does */
    size_t rows_max;
};

struct fields {
    uint64_t numbers[FIELDS];
    double doubles[FIELDS];
    struct weir_wire_in texts[FIELDS];
    size_t rows;
};

#define BIT(field) (1u << (field))
#define UP_TO(field) (BIT((field) + 1) - BIT(1))

static const struct shape WANTS = { .all = UP_TO(WANTS_TERM),
                                    .rows = WANTS_ROWS,
                                    .rows_max = WEIR_LEASES_MAX };
static const struct shape WANT = { .all = UP_TO(WANT_ROSTER_TOKEN),
                                   .doubles = BIT(WANT_HAS) | BIT(WANT_SAFE),
                                   .texts = BIT(WANT_NAME),
                                   .rows = WANT_ROWS,
                                   .rows_max = WEIR_LEASE_BANDS_MAX };
static const struct shape BAND = { .all = UP_TO(BAND_WANTS),
                                   .doubles = BIT(BAND_WANTS) };
static const struct shape GRANTS = { .all = UP_TO(GRANTS_ROWS),
                                     .texts = BIT(GRANTS_MASTER),
                                     .rows = GRANTS_ROWS,
                                     .rows_max = WEIR_LEASES_MAX };
static const struct shape GRANT = { .all = UP_TO(GRANT_ROSTER_TOKEN),
                                    .doubles =
                                        BIT(GRANT_CAPACITY) | BIT(GRANT_SAFE),
                                    .texts = BIT(GRANT_NAME) };

static const struct shape LIMITS = { .all = UP_TO(LIMITS_ROWS),
                                     .rows = LIMITS_ROWS,
                                     .rows_max = WEIR_LIMITS_MAX };
static const struct shape LIMIT = { .all = UP_TO(LIMIT_AGE),
                                    .doubles = BIT(LIMIT_LIMIT),
                                    .texts = BIT(LIMIT_NAME) };

static enum weir_wire_type type_of(const struct shape *shape, unsigned number)
{
    if (shape->doubles & BIT(number))
        return WEIR_WIRE_FIXED64;
    if (number == shape->rows || shape->texts & BIT(number))
        return WEIR_WIRE_BYTES;
    return WEIR_WIRE_VARINT;
}

static bool read_lease_field(const struct shape *shape,
                             const struct weir_wire_item *item,
                             struct fields *out)
{
    unsigned number = item->number;
    if (shape->doubles & BIT(number)) {
        out->doubles[number] = weir_wire_double(item->bytes);
        return weir_double_is_amount(out->doubles[number],
                                     WEIR_LEASE_UNITS_MAX);
    }
    out->numbers[number] = item->value;
    out->texts[number] = item->bytes;
    return true;
}

static int read_lease_fields(struct weir_wire_in in, const struct shape *shape,
                             struct fields *out)
{
    *out = (struct fields){ .rows = 0 };
    uint32_t seen = 0;
    struct weir_wire_item item;
    int got;
    while ((got = weir_wire_next(&in, &item)) > 0) {
        if (item.number >= FIELDS || !(shape->all & BIT(item.number)))
            continue;
        if (item.type != type_of(shape, item.number))
            return WEIR_EPROTOCOL;
        if (item.number == shape->rows) {
            out->rows++;
            continue;
        }
        if (seen & BIT(item.number) || !read_lease_field(shape, &item, out))
            return WEIR_EPROTOCOL;
        seen |= BIT(item.number);
    }
    if (got < 0)
        return WEIR_ESYNTAX;
    return out->rows > shape->rows_max ? WEIR_ETOOBIG : 0;
}

/* ---- Wants ---- */

static int get_band(struct weir_wire_in in, struct weir_band *out)
{
    struct fields fields;
    int error = read_lease_fields(in, &BAND, &fields);
    if (error < 0)
        return error;
    uint64_t clients = fields.numbers[BAND_CLIENTS];
    if (clients < 1 || clients > WEIR_LEASE_CLIENTS_MAX)
        return WEIR_EPROTOCOL;
    *out = (struct weir_band){
        .priority = weir_unzigzag(fields.numbers[BAND_PRIORITY]),
        .clients = (uint32_t)clients,
        .wants = fields.doubles[BAND_WANTS],
    };
    return 0;
}

static int get_bands(struct weir_wire_in in, size_t count,
                     struct weir_arena *arena, const struct weir_band **out)
{
    struct weir_band *bands = weir_arena_alloc(arena, count * sizeof(*bands));
    if (!bands)
        return WEIR_ETOOBIG;
    for (size_t i = 0; i < count; i++) {
        int error = get_band(weir_v1_next_row(&in, WANT.rows), &bands[i]);
        if (error < 0)
            return error;
        if (i > 0 && bands[i].priority >= bands[i - 1].priority)
            return WEIR_EPROTOCOL;
    }
    *out = bands;
    return 0;
}

static int get_want(struct weir_wire_in in, struct weir_arena *arena,
                    struct weir_want *out)
{
    struct fields fields;
    int error = read_lease_fields(in, &WANT, &fields);
    if (error < 0)
        return error;
    const uint64_t *numbers = fields.numbers;
    if (numbers[WANT_RELEASE] > 1 || numbers[WANT_LEARNING] > 1)
        return WEIR_EPROTOCOL;
    *out = (struct weir_want){
        .release = numbers[WANT_RELEASE] == 1,
        .learning = numbers[WANT_LEARNING] == 1,
        .has = fields.doubles[WANT_HAS],
        .safe = fields.doubles[WANT_SAFE],
        .taken = numbers[WANT_TAKEN],
        .roster_token = numbers[WANT_ROSTER_TOKEN],
        .band_count = fields.rows,
    };
    bool says_more =
        out->learning || out->has > 0 || out->safe > 0 || out->roster_token > 0;
    if (out->release ? says_more || fields.rows > 0 : fields.rows == 0)
        return WEIR_EPROTOCOL;
    error = weir_v1_name(fields.texts[WANT_NAME], &out->name);
    if (error < 0 || out->release)
        return error;
    return get_bands(in, fields.rows, arena, &out->bands);
}

int weir_v1_wants_get(struct weir_wire_in in, struct weir_arena *arena,
                      struct weir_wants *out)
{
    struct fields fields;
    int error = read_lease_fields(in, &WANTS, &fields);
    if (error < 0)
        return error;
    if (fields.numbers[WANTS_NUMBER] == 0 || fields.rows == 0)
        return WEIR_EPROTOCOL;
    struct weir_want *rows =
        weir_arena_alloc(arena, fields.rows * sizeof(*rows));
    if (!rows)
        return WEIR_ETOOBIG;
    for (size_t i = 0; i < fields.rows; i++) {
        error = get_want(weir_v1_next_row(&in, WANTS.rows), arena, &rows[i]);
        if (error < 0)
            return error;
    }
    *out = (struct weir_wants){ .number = fields.numbers[WANTS_NUMBER],
                                .term = fields.numbers[WANTS_TERM],
                                .count = fields.rows,
                                .wants = rows };
    return 0;
}

static size_t band_size(const struct weir_band *band)
{
    return weir_wire_number_size(weir_zigzag(band->priority)) +
           weir_wire_number_size(band->clients) +
           weir_wire_double_size(band->wants);
}

static size_t want_size(const struct weir_want *want)
{
    size_t size = weir_wire_bytes_size(want->name.len) +
                  weir_wire_double_size(want->has) +
                  weir_wire_number_size(want->taken) +
                  weir_wire_number_size(want->release) +
                  weir_wire_number_size(want->learning) +
                  weir_wire_double_size(want->safe) +
                  weir_wire_number_size(want->roster_token);
    for (size_t i = 0; i < want->band_count; i++)
        size += weir_wire_message_size(band_size(&want->bands[i]));
    return size;
}

size_t weir_v1_wants_size(const struct weir_wants *wants)
{
    size_t size = weir_wire_number_size(wants->number) +
                  weir_wire_number_size(wants->term);
    for (size_t i = 0; i < wants->count; i++)
        size += weir_wire_message_size(want_size(&wants->wants[i]));
    return size;
}

static uint8_t *put_want(const struct weir_want *want, uint8_t *p)
{
    p = weir_wire_put_text(p, WANT_NAME, want->name);
    p = weir_wire_put_double(p, WANT_HAS, want->has);
    p = weir_wire_put_number(p, WANT_TAKEN, want->taken);
    p = weir_wire_put_number(p, WANT_RELEASE, want->release);
    p = weir_wire_put_number(p, WANT_LEARNING, want->learning);
    for (size_t i = 0; i < want->band_count; i++) {
        const struct weir_band *band = &want->bands[i];
        p = weir_wire_put_head(p, WANT_ROWS, band_size(band));
        p = weir_wire_put_number(p, BAND_PRIORITY, weir_zigzag(band->priority));
        p = weir_wire_put_number(p, BAND_CLIENTS, band->clients);
        p = weir_wire_put_double(p, BAND_WANTS, band->wants);
    }
    p = weir_wire_put_double(p, WANT_SAFE, want->safe);
    return weir_wire_put_number(p, WANT_ROSTER_TOKEN, want->roster_token);
}

uint8_t *weir_v1_wants_put(const struct weir_wants *wants, uint8_t *p)
{
    p = weir_wire_put_number(p, WANTS_NUMBER, wants->number);
    for (size_t i = 0; i < wants->count; i++) {
        const struct weir_want *want = &wants->wants[i];
        p = weir_wire_put_head(p, WANTS_ROWS, want_size(want));
        p = put_want(want, p);
    }
    return weir_wire_put_number(p, WANTS_TERM, wants->term);
}

/* ---- Grants ---- */

/* 'answer': the grant is in an answer, which begins or ends a lease; a pushed
 * grant does neither. */
static bool is_sound_grant(const struct weir_grant *grant, bool answer)
{
    if (grant->serial == 0)
        return false;
    if (!answer)
        return grant->refresh > 0 && grant->lease == 0 &&
               grant->safe_lease == 0;
    return (grant->refresh > 0 || grant->lease == 0) &&
           grant->safe_lease >= grant->lease;
}

static int get_grant(struct weir_wire_in in, bool answer,
                     struct weir_lease_grant *out)
{
    struct fields fields;
    int error = read_lease_fields(in, &GRANT, &fields);
    if (error < 0)
        return error;
    const uint64_t *numbers = fields.numbers;
    if (numbers[GRANT_ERROR] > WEIR_LEASE_DENIED)
        return WEIR_EPROTOCOL;
    *out = (struct weir_lease_grant){
        .error = (enum weir_lease_error)numbers[GRANT_ERROR],
    };
    if (out->error == WEIR_LEASE_GRANTED) {
        out->grant = (struct weir_grant){
            .serial = numbers[GRANT_SERIAL],
            .capacity = fields.doubles[GRANT_CAPACITY],
            .safe = fields.doubles[GRANT_SAFE],
            .lease = numbers[GRANT_LEASE],
            .safe_lease = numbers[GRANT_SAFE_LEASE],
            .refresh = numbers[GRANT_REFRESH],
            .roster_token = numbers[GRANT_ROSTER_TOKEN],
        };
        if (!is_sound_grant(&out->grant, answer))
            return WEIR_EPROTOCOL;
    }
    return weir_v1_name(fields.texts[GRANT_NAME], &out->name);
}

static int get_master(const struct fields *fields, struct weir_grants *out)
{
    uint64_t elsewhere = fields->numbers[GRANTS_ELSEWHERE];
    struct weir_text master = weir_wire_text(fields->texts[GRANTS_MASTER]);
    if (master.len > WEIR_MASTER_MAX)
        return WEIR_ETOOBIG;
    if (elsewhere > 1 || weir_utf8_clean(master, "") != master.len)
        return WEIR_EPROTOCOL;
    if (elsewhere == 1 ? fields->rows > 0 : master.len > 0)
        return WEIR_EPROTOCOL;
    out->elsewhere = elsewhere == 1;
    out->master = master;
    return 0;
}

int weir_v1_grants_get(struct weir_wire_in in, struct weir_arena *arena,
                       struct weir_grants *out)
{
    struct fields fields;
    int error = read_lease_fields(in, &GRANTS, &fields);
    if (error < 0)
        return error;
    error = get_master(&fields, out);
    if (error < 0)
        return error;
    struct weir_lease_grant *rows =
        weir_arena_alloc(arena, fields.rows * sizeof(*rows));
    if (!rows)
        return WEIR_ETOOBIG;
    out->answer = fields.numbers[GRANTS_ANSWER];
    out->term = fields.numbers[GRANTS_TERM];
    out->count = fields.rows;
    out->grants = rows;
    for (size_t i = 0; i < fields.rows && error == 0; i++)
        error = get_grant(weir_v1_next_row(&in, GRANTS.rows), out->answer > 0,
                          &rows[i]);
    return error;
}

static size_t grant_size(const struct weir_lease_grant *row)
{
    const struct weir_grant *grant = &row->grant;
    return weir_wire_bytes_size(row->name.len) +
           weir_wire_number_size(row->error) +
           weir_wire_number_size(grant->serial) +
           weir_wire_double_size(grant->capacity) +
           weir_wire_double_size(grant->safe) +
           weir_wire_number_size(grant->lease) +
           weir_wire_number_size(grant->refresh) +
           weir_wire_number_size(grant->safe_lease) +
           weir_wire_number_size(grant->roster_token);
}

size_t weir_v1_grants_size(const struct weir_grants *grants)
{
    size_t size = weir_wire_number_size(grants->answer) +
                  weir_wire_number_size(grants->term) +
                  weir_wire_number_size(grants->elsewhere) +
                  weir_wire_bytes_size(grants->master.len);
    for (size_t i = 0; i < grants->count; i++)
        size += weir_wire_message_size(grant_size(&grants->grants[i]));
    return size;
}

static uint8_t *put_grant(const struct weir_lease_grant *row, uint8_t *p)
{
    const struct weir_grant *grant = &row->grant;
    p = weir_wire_put_text(p, GRANT_NAME, row->name);
    p = weir_wire_put_number(p, GRANT_ERROR, row->error);
    p = weir_wire_put_number(p, GRANT_SERIAL, grant->serial);
    p = weir_wire_put_double(p, GRANT_CAPACITY, grant->capacity);
    p = weir_wire_put_double(p, GRANT_SAFE, grant->safe);
    p = weir_wire_put_number(p, GRANT_LEASE, grant->lease);
    p = weir_wire_put_number(p, GRANT_REFRESH, grant->refresh);
    p = weir_wire_put_number(p, GRANT_SAFE_LEASE, grant->safe_lease);
    return weir_wire_put_number(p, GRANT_ROSTER_TOKEN, grant->roster_token);
}

uint8_t *weir_v1_grants_put(const struct weir_grants *grants, uint8_t *p)
{
    p = weir_wire_put_number(p, GRANTS_ANSWER, grants->answer);
    p = weir_wire_put_number(p, GRANTS_TERM, grants->term);
    p = weir_wire_put_number(p, GRANTS_ELSEWHERE, grants->elsewhere);
    p = weir_wire_put_text(p, GRANTS_MASTER, grants->master);
    for (size_t i = 0; i < grants->count; i++) {
        const struct weir_lease_grant *grant = &grants->grants[i];
        p = weir_wire_put_head(p, GRANTS_ROWS, grant_size(grant));
        p = put_grant(grant, p);
    }
    return p;
}

/* ---- Limits ---- */

static int get_told_limit(struct weir_wire_in in, struct weir_limit_told *out)
{
    struct fields fields;
    int error = read_lease_fields(in, &LIMIT, &fields);
    if (error < 0)
        return error;
    const uint64_t *numbers = fields.numbers;
    if (fields.doubles[LIMIT_LIMIT] > WEIR_PERMITS_MAX ||
        numbers[LIMIT_IN_FLIGHT] > UINT32_MAX ||
        numbers[LIMIT_REASON] > UINT32_MAX)
        return WEIR_EPROTOCOL;
    *out = (struct weir_limit_told){
        .limit = fields.doubles[LIMIT_LIMIT],
        .in_flight = (uint32_t)numbers[LIMIT_IN_FLIGHT],
        .reason = (uint32_t)numbers[LIMIT_REASON],
        .latency = numbers[LIMIT_LATENCY],
        .age = numbers[LIMIT_AGE],
    };
    return weir_v1_name(fields.texts[LIMIT_NAME], &out->name);
}

int weir_v1_limits_get(struct weir_wire_in in, struct weir_arena *arena,
                       struct weir_limits *out)
{
    struct fields fields;
    int error = read_lease_fields(in, &LIMITS, &fields);
    if (error < 0)
        return error;
    struct weir_limit_told *rows =
        weir_arena_alloc(arena, (fields.rows + 1) * sizeof(*rows));
    if (!rows)
        return WEIR_ETOOBIG;
    for (size_t i = 0; i < fields.rows; i++) {
        error = get_told_limit(weir_v1_next_row(&in, LIMITS.rows), &rows[i]);
        if (error < 0)
            return error;
    }
    *out = (struct weir_limits){ .count = fields.rows, .limits = rows };
    return 0;
}

static size_t told_limit_size(const struct weir_limit_told *told)
{
    return weir_wire_bytes_size(told->name.len) +
           weir_wire_double_size(told->limit) +
           weir_wire_number_size(told->in_flight) +
           weir_wire_number_size(told->reason) +
           weir_wire_number_size(told->latency) +
           weir_wire_number_size(told->age);
}

size_t weir_v1_limits_size(const struct weir_limits *limits)
{
    size_t size = 0;
    for (size_t i = 0; i < limits->count; i++)
        size += weir_wire_message_size(told_limit_size(&limits->limits[i]));
    return size;
}

uint8_t *weir_v1_limits_put(const struct weir_limits *limits, uint8_t *p)
{
    for (size_t i = 0; i < limits->count; i++) {
        const struct weir_limit_told *told = &limits->limits[i];
        p = weir_wire_put_head(p, LIMITS_ROWS, told_limit_size(told));
        p = weir_wire_put_text(p, LIMIT_NAME, told->name);
        p = weir_wire_put_double(p, LIMIT_LIMIT, told->limit);
        p = weir_wire_put_number(p, LIMIT_IN_FLIGHT, told->in_flight);
        p = weir_wire_put_number(p, LIMIT_REASON, told->reason);
        p = weir_wire_put_number(p, LIMIT_LATENCY, told->latency);
        p = weir_wire_put_number(p, LIMIT_AGE, told->age);
    }
    return p;
}
