/* SPDX-License-Identifier: MIT
 * codec/rls.c - Envoy's rate limit service, by tables of its fields
 * (message_fields.h).
 *
 * The tables have their price, which the socket hides: reading and answering a
 * call of one descriptor takes 3,000 instructions, and took 1,000 by functions
 * written by hand for these messages (callgrind); 0.1 us of a call's 3.5. */

#include "codec/rls.h"

#include <assert.h>

#include "codec/message_fields.h"

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

/* WEIR_RLS_ARENA_SIZE counts no gaps between lists. */
static_assert(sizeof(struct weir_rls_entry) % WEIR_ARENA_ALIGN == 0 &&
                  sizeof(struct weir_rls_descriptor) % WEIR_ARENA_ALIGN == 0,
              "rows fill the arena without gaps");

#define THIS struct weir_rls_entry
static const struct weir_proto_field entry_fields[] = {
    { 1, TEXT(key) },
    { 2, TEXT(value) },
};
static const struct weir_proto_message entry = { FIELDS(entry_fields) };
#undef THIS

#define THIS struct weir_rls_descriptor
static const struct weir_proto_field override_fields[] = {
    { 2, INT32(override_unit) },
};
static const struct weir_proto_message override = { FLAT_FIELDS(
    override_fields) };
/* A UInt64Value. */
static const struct weir_proto_field hits_fields[] = {
    { 1, NUMBER(hits) },
};
static const struct weir_proto_message hits = { FLAT_FIELDS(hits_fields) };
static const struct weir_proto_field descriptor_fields[] = {
    { 1, PARTS(entries, entry_count, entry), .max = WEIR_RLS_ENTRIES_MAX },
    { 2, FLAT(override), IF(override_given) },
    { 3, FLAT(hits), IF(hits_given) },
    { 4, BOOL(negative) },
};
static const struct weir_proto_message descriptor_message = { FIELDS(
    descriptor_fields) };
#undef THIS

#define THIS struct weir_rls_request
static const struct weir_proto_field request_fields[] = {
    { 1, TEXT(domain) },
    { 2, PARTS(descriptors, count, descriptor_message),
      .max = WEIR_RLS_DESCRIPTORS_MAX },
    { 3, INT32(hits) },
};
static const struct weir_proto_message request_message = { FIELDS(
    request_fields) };
#undef THIS

/* The unit of a client's own limit is checked, so that a mistake isn't taken
 * for a limit. */
static int check_rls_descriptor(const struct weir_rls_descriptor *descriptor,
                                struct weir_diag *diag)
{
    uint32_t unit = descriptor->override_unit;
    if (descriptor->entry_count == 0)
        return weir_diag_put(diag, WEIR_EINVAL, "descriptor without entries");
    for (size_t i = 0; i < descriptor->entry_count; i++)
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

static int refuse_big_request(struct weir_diag *diag)
{
    return weir_diag_put(diag, WEIR_ETOOBIG,
                         "more than 1024 descriptors, or more than 8192 "
                         "descriptor entries, in a request");
}

int weir_rls_check(const struct weir_rls_request *request,
                   struct weir_diag *diag)
{
    size_t entries = 0;
    int error = 0;
    if (request->domain.len == 0)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "rate limit domain must not be empty");
    if (request->count == 0)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "rate limit descriptor list must not be empty");
    for (size_t i = 0; error == 0 && i < request->count; i++) {
        error = check_rls_descriptor(&request->descriptors[i], diag);
        entries += request->descriptors[i].entry_count;
    }
    if (error == 0 && (request->count > WEIR_RLS_DESCRIPTORS_MAX ||
                       entries > WEIR_RLS_ENTRIES_MAX))
        return refuse_big_request(diag);
    return error;
}

int weir_rls_decode(const void *bytes, size_t len, struct weir_arena *arena,
                    struct weir_rls_request *out, struct weir_diag *diag)
{
    if (len > WEIR_RLS_BYTES_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG, "the request is over 4 MiB");
    arena->used = 0;
    int error = weir_proto_get(&request_message, weir_wire_over(bytes, len),
                               WEIR_PROTO_AGAIN_PART_REFUSED, arena, out, NULL);
    if (error == WEIR_ETOOBIG)
        return refuse_big_request(diag);
    if (error < 0)
        return weir_diag_put(diag, WEIR_ESYNTAX, "this is no RateLimitRequest");
    return weir_rls_check(out, diag);
}

uint64_t weir_rls_hits(const struct weir_rls_request *request,
                       const struct weir_rls_descriptor *descriptor)
{
    if (descriptor->hits_given)
        return descriptor->hits;
    return request->hits > 0 ? request->hits : 1;
}

/* ---- An answer ---- */

#define THIS struct weir_rls_status
static const struct weir_proto_field limit_fields[] = {
    { 1, NUMBER(requests_per_unit) },
    { 2, NUMBER(unit) },
    { 3, TEXT(name) },
};
static const struct weir_proto_message limit = { FLAT_FIELDS(limit_fields) };
static const struct weir_proto_field status_fields[] = {
    { 1, NUMBER(code) },
    { 2, FLAT(limit), IF(limit_given) },
    { 3, NUMBER(remaining) },
    { 4, DURATION(reset), IF(reset_given) },
};
static const struct weir_proto_message status_message = { FIELDS(
    status_fields) };
#undef THIS

#define THIS struct weir_rls_header
static const struct weir_proto_field header_fields[] = {
    { 1, TEXT(key) },
    { 2, TEXT(value) },
};
static const struct weir_proto_message header = { FIELDS(header_fields) };
#undef THIS

#define THIS struct weir_rls_answer
static const struct weir_proto_field answer_fields[] = {
    { 1, NUMBER(code) },
    { 2, PARTS(statuses, count, status_message),
      .max = WEIR_RLS_DESCRIPTORS_MAX },
    { 3, PARTS(headers, header_count, header), .max = WEIR_RLS_HEADERS_MAX },
    { 6, TEXT(metadata) },
};
static const struct weir_proto_message answer_message = { FIELDS(
    answer_fields) };
#undef THIS

size_t weir_rls_encode(const struct weir_rls_answer *answer, void *buf)
{
    weir_assert(answer->count <= WEIR_RLS_DESCRIPTORS_MAX &&
                answer->header_count <= WEIR_RLS_HEADERS_MAX);
    size_t len =
        weir_proto_encode(&answer_message, answer, buf, WEIR_RLS_ANSWER_MAX);
    weir_assert(len > 0 || answer->count == 0);
    return len;
}

/* ---- Health ---- */

struct health_check {
    struct weir_text service;
};
#define THIS struct health_check
static const struct weir_proto_field health_check_fields[] = {
    { 1, TEXT(service) },
};
static const struct weir_proto_message health_check = { FIELDS(
    health_check_fields) };
#undef THIS

struct health_answer {
    uint32_t status;
};
#define THIS struct health_answer
static const struct weir_proto_field health_answer_fields[] = {
    { 1, NUMBER(status) },
};
static const struct weir_proto_message health_answer = { FIELDS(
    health_answer_fields) };
#undef THIS

int weir_health_decode(const void *bytes, size_t len,
                       struct weir_text *out_service)
{
    struct health_check check;
    if (weir_proto_get(&health_check, weir_wire_over(bytes, len),
                       WEIR_PROTO_AGAIN_PART_REFUSED, NULL, &check, NULL) < 0)
        return WEIR_ESYNTAX;
    *out_service = check.service;
    return 0;
}

void weir_health_encode(enum weir_health health, unsigned char *buf)
{
    const struct health_answer answer = { health };
    size_t len = weir_proto_encode(&health_answer, &answer, buf,
                                   WEIR_HEALTH_ANSWER_SIZE);
    weir_assert(len == WEIR_HEALTH_ANSWER_SIZE);
}
