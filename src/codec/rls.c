/* SPDX-License-Identifier: MIT
 * codec/rls.c - Envoy's rate limit service, by hand.
 *
 * Theory of operation. A call is decided in a microsecond, and reading it must
 * not cost more: one walk over the bytes, texts left in place, and two arrays
 * in the request for descriptors and entries: their sizes are the bounds. Four
 * messages, a function each: tables would be longer.
 *
 * The entries of a descriptor are adjacent in the array, although its fields
 * may come in any order: a descriptor is read to its end before the next one
 * begins.
 *
 * Writing goes forward. A part's length precedes it, so the sizes of the small
 * parts are computed first. */

#include "codec/rls.h"

#include "codec/protobuf_bytes.h"

#define MINUTE (60 * WEIR_SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

weir_duration weir_rls_unit_length(enum weir_rls_unit unit)
{
    static const weir_duration lengths[] = {
        [WEIR_RLS_SECOND] = WEIR_SECOND, [WEIR_RLS_MINUTE] = MINUTE,
        [WEIR_RLS_HOUR] = HOUR,          [WEIR_RLS_DAY] = DAY,
        [WEIR_RLS_MONTH] = 30 * DAY,     [WEIR_RLS_YEAR] = 365 * DAY,
        [WEIR_RLS_WEEK] = 7 * DAY,
    };
    return (size_t)unit < WEIR_COUNT_OF(lengths) ? lengths[unit] : 0;
}

/* ---- A request ---- */

static int refuse_broken_request(struct weir_diag *diag)
{
    return weir_diag_put(diag, WEIR_ESYNTAX, "this is no RateLimitRequest");
}

int weir_rls_read_entry(struct weir_text bytes, struct weir_rls_entry *out)
{
    struct weir_wire_in in = weir_wire_over(bytes.p, bytes.len);
    struct weir_wire_item item;
    int more;
    *out = (struct weir_rls_entry){ { NULL, 0 }, { NULL, 0 } };
    while ((more = weir_wire_next(&in, &item)) > 0) {
        if (weir_wire_is(&item, 1, WEIR_WIRE_BYTES))
            out->key = weir_wire_text(item.bytes);
        else if (weir_wire_is(&item, 2, WEIR_WIRE_BYTES))
            out->value = weir_wire_text(item.bytes);
    }
    return more < 0 ? WEIR_ESYNTAX : 0;
}

static int read_descriptor_entry(struct weir_wire_in in,
                                 struct weir_rls_entry *out,
                                 struct weir_diag *diag)
{
    return weir_rls_read_entry(weir_wire_text(in), out) < 0
               ? refuse_broken_request(diag)
               : 0;
}

/* The number in field 1 of a wrapper message (UInt64Value). */
static int read_wrapped(struct weir_wire_in in, uint64_t *out)
{
    struct weir_wire_item item;
    int more;
    *out = 0;
    while ((more = weir_wire_next(&in, &item)) > 0)
        if (weir_wire_is(&item, 1, WEIR_WIRE_VARINT))
            *out = item.value;
    return more;
}

/* A limit that the client sends. */
static int read_limit_override(struct weir_wire_in in, uint32_t *out_unit,
                               struct weir_diag *diag)
{
    struct weir_wire_item item;
    int more;
    *out_unit = WEIR_RLS_NO_UNIT;
    while ((more = weir_wire_next(&in, &item)) > 0)
        if (weir_wire_is(&item, 2, WEIR_WIRE_VARINT))
            *out_unit =
                item.value <= WEIR_RLS_WEEK ? (uint32_t)item.value : UINT32_MAX;
    return more < 0 ? refuse_broken_request(diag) : 0;
}

static int add_descriptor_entry(struct weir_rls_request *request,
                                struct weir_rls_descriptor *descriptor,
                                struct weir_wire_in in, struct weir_diag *diag)
{
    if (request->entry_count == WEIR_RLS_ENTRIES_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG,
                             "more than 256 descriptor entries in a request");
    descriptor->entry_count++;
    return read_descriptor_entry(in, &request->entries[request->entry_count++],
                                 diag);
}

static int read_descriptor_field(struct weir_rls_request *request,
                                 struct weir_rls_descriptor *descriptor,
                                 const struct weir_wire_item *item,
                                 struct weir_diag *diag)
{
    if (weir_wire_is(item, 1, WEIR_WIRE_BYTES))
        return add_descriptor_entry(request, descriptor, item->bytes, diag);
    if (weir_wire_is(item, 2, WEIR_WIRE_BYTES)) {
        descriptor->override_given = true;
        return read_limit_override(item->bytes, &descriptor->override_unit,
                                   diag);
    }
    if (weir_wire_is(item, 3, WEIR_WIRE_BYTES)) {
        descriptor->hits_given = true;
        return read_wrapped(item->bytes, &descriptor->hits) < 0
                   ? refuse_broken_request(diag)
                   : 0;
    }
    if (weir_wire_is(item, 4, WEIR_WIRE_VARINT))
        descriptor->negative = item->value != 0;
    return 0;
}

static int read_rls_descriptor(struct weir_rls_request *request,
                               struct weir_wire_in in, struct weir_diag *diag)
{
    if (request->count == WEIR_RLS_DESCRIPTORS_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG,
                             "more than 64 descriptors in a request");
    struct weir_rls_descriptor *descriptor =
        &request->descriptors[request->count++];
    struct weir_wire_item item;
    int more;
    int error = 0;
    *descriptor = (struct weir_rls_descriptor){
        .entries = &request->entries[request->entry_count]
    };
    while (error == 0 && (more = weir_wire_next(&in, &item)) != 0)
        error = more < 0
                    ? refuse_broken_request(diag)
                    : read_descriptor_field(request, descriptor, &item, diag);
    return error;
}

static int read_request_field(struct weir_rls_request *request,
                              const struct weir_wire_item *item,
                              struct weir_diag *diag)
{
    if (weir_wire_is(item, 1, WEIR_WIRE_BYTES))
        request->domain = weir_wire_text(item->bytes);
    else if (weir_wire_is(item, 2, WEIR_WIRE_BYTES))
        return read_rls_descriptor(request, item->bytes, diag);
    else if (weir_wire_is(item, 3, WEIR_WIRE_VARINT))
        request->hits = (uint32_t)item->value;
    return 0;
}

/* The unit of a client's own limit is checked, so that a mistake isn't taken
 * for a limit. */
static int check_rls_descriptor(const struct weir_rls_descriptor *descriptor,
                                struct weir_diag *diag)
{
    uint32_t unit = descriptor->override_unit;
    if (descriptor->entry_count == 0)
        return weir_diag_put(diag, WEIR_EINVAL, "descriptor without entries");
    for (uint32_t i = 0; i < descriptor->entry_count; i++)
        if (descriptor->entries[i].key.len == 0)
            return weir_diag_put(diag, WEIR_EINVAL,
                                 "descriptor entry key is empty");
    if (descriptor->override_given &&
        (unit < WEIR_RLS_SECOND || unit > WEIR_RLS_WEEK))
        return weir_diag_put(
            diag, WEIR_EINVAL,
            "limit: the unit must be SECOND, MINUTE, HOUR, DAY, "
            "WEEK, MONTH or YEAR");
    return 0;
}

int weir_rls_check(const struct weir_rls_request *request,
                   struct weir_diag *diag)
{
    int error = 0;
    if (request->domain.len == 0)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "rate limit domain must not be empty");
    if (request->count == 0)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "rate limit descriptor list must not be empty");
    for (uint32_t i = 0; error == 0 && i < request->count; i++)
        error = check_rls_descriptor(&request->descriptors[i], diag);
    return error;
}

int weir_rls_decode(const void *bytes, size_t len, struct weir_rls_request *out,
                    struct weir_diag *diag)
{
    struct weir_wire_in in = weir_wire_over(bytes, len);
    struct weir_wire_item item;
    int more;
    int error = 0;
    out->domain = (struct weir_text){ NULL, 0 };
    out->hits = 0;
    out->count = 0;
    out->entry_count = 0;
    if (len > WEIR_RLS_BYTES_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG, "the request is over 64 KiB");
    while (error == 0 && (more = weir_wire_next(&in, &item)) != 0)
        error = more < 0 ? refuse_broken_request(diag)
                         : read_request_field(out, &item, diag);
    return error < 0 ? error : weir_rls_check(out, diag);
}

uint64_t weir_rls_hits(const struct weir_rls_request *request,
                       const struct weir_rls_descriptor *descriptor)
{
    if (descriptor->hits_given)
        return descriptor->hits;
    return request->hits > 0 ? request->hits : 1;
}

/* ---- An answer ---- */

static size_t rls_limit_size(const struct weir_rls_status *status)
{
    return weir_wire_number_size(status->requests_per_unit) +
           weir_wire_number_size(status->unit) +
           weir_wire_bytes_size(status->name.len);
}

static size_t status_size(const struct weir_rls_status *status)
{
    size_t size = weir_wire_number_size(status->code) +
                  weir_wire_number_size(status->remaining);
    if (status->limit_given)
        size += weir_wire_message_size(rls_limit_size(status));
    if (status->reset_given)
        size += weir_wire_message_size(weir_wire_duration_size(status->reset));
    return size;
}

static uint8_t *put_status(uint8_t *p, const struct weir_rls_status *status)
{
    p = weir_wire_put_head(p, 2, status_size(status));
    p = weir_wire_put_number(p, 1, status->code);
    if (status->limit_given) {
        p = weir_wire_put_head(p, 2, rls_limit_size(status));
        p = weir_wire_put_number(p, 1, status->requests_per_unit);
        p = weir_wire_put_number(p, 2, status->unit);
        p = weir_wire_put_text(p, 3, status->name);
    }
    p = weir_wire_put_number(p, 3, status->remaining);
    if (status->reset_given)
        p = weir_wire_put_duration(p, 4, status->reset);
    return p;
}

static uint8_t *put_header(uint8_t *p, const struct weir_rls_header *header)
{
    p = weir_wire_put_head(p, 3,
                           weir_wire_bytes_size(header->key.len) +
                               weir_wire_bytes_size(header->value.len));
    p = weir_wire_put_text(p, 1, header->key);
    return weir_wire_put_text(p, 2, header->value);
}

size_t weir_rls_encode(const struct weir_rls_answer *answer, void *buf)
{
    uint8_t *p = weir_wire_put_number(buf, 1, answer->code);
    weir_assert(answer->count <= WEIR_RLS_DESCRIPTORS_MAX &&
                answer->header_count <= WEIR_RLS_HEADERS_MAX);
    for (uint32_t i = 0; i < answer->count; i++) {
        weir_assert(answer->statuses[i].name.len <= WEIR_RLS_NAME_MAX);
        p = put_status(p, &answer->statuses[i]);
    }
    for (uint32_t i = 0; i < answer->header_count; i++) {
        const struct weir_rls_header *header = &answer->headers[i];
        weir_assert(header->key.len <= 64 &&
                    header->value.len <= WEIR_RLS_HEADER_VALUE_MAX);
        p = put_header(p, header);
    }
    return (size_t)(p - (uint8_t *)buf);
}

/* ---- Health ---- */

int weir_health_decode(const void *bytes, size_t len,
                       struct weir_text *out_service)
{
    struct weir_wire_in in = weir_wire_over(bytes, len);
    struct weir_wire_item item;
    struct weir_text service = { NULL, 0 };
    int more;
    while ((more = weir_wire_next(&in, &item)) > 0)
        if (weir_wire_is(&item, 1, WEIR_WIRE_BYTES))
            service = weir_wire_text(item.bytes);
    if (more < 0)
        return WEIR_ESYNTAX;
    *out_service = service;
    return 0;
}

void weir_health_encode(enum weir_health health, unsigned char *buf)
{
    uint8_t *end = weir_wire_put_number(buf, 1, health);
    weir_assert(end == buf + WEIR_HEALTH_ANSWER_SIZE);
}
