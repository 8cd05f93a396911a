/* SPDX-License-Identifier: MIT
 * codec/weir_v1_messages.c - weir.v1: the fields of all messages but
 * quotas, reports and fills.
 *
 * Asks, answers, wants, grants and limits are rows, unlike a report's columns:
 * a message has a few of them, most often one, with little in common. As in all
 * of weir.v1: a field comes once, zeros are left out, unknown fields are
 * skipped.
 *
 * Amounts are doubles, since a share of a capacity is no whole number. A NaN,
 * an infinite or a negative amount is refused here, because the caller sums
 * them. */

#include <assert.h>

#include "codec/weir_v1_internal.h"
#include "core/concurrency/concurrency_gate.h"
#include "core/quota/quota_text.h"

static_assert(WEIR_MASTER_MAX == WEIR_NAME_MAX, "as of any title");

#define AMOUNT(member) DOUBLE(member), .max = (uint64_t)WEIR_LEASE_UNITS_MAX

#define INTERVAL_MIN (10 * WEIR_MILLISECOND)
#define INTERVAL_MAX (3600 * WEIR_SECOND)

/* ---- Hello and welcome ---- */

#define THIS struct weir_store_id
static const struct weir_proto_field store_fields[] = {
    { 1, BLOCK(uuid) },
    { 2, NUMBER(restores) },
};
static const struct weir_proto_message store = { FIELDS(store_fields) };
#undef THIS

#define THIS struct weir_hello
static const struct weir_proto_field hello_fields[] = {
    { 1, NUMBER(protocol) },   { 2, BLOCK(incarnation), ALWAYS, .min = 1 },
    { 3, TITLE(name) },        { 4, PART(store, store) },
    { 5, NUMBER(epoch) },      { 6, FLAG(region) },
    { 7, TITLE(region_name) }, { 8, NUMBER(features) },
};
const struct weir_proto_message weir_v1_hello = { FIELDS(hello_fields),
                                                  .fields_max =
                                                      WEIR_V1_FIELDS_MAX };
#undef THIS

static int check_settings(void *message)
{
    const struct weir_settings *row = message;
    return row->stale_after < row->report_interval ? WEIR_EPROTOCOL : 0;
}

#define THIS struct weir_settings
static const struct weir_proto_field settings_fields[] = {
    { 1, NUMBER(report_interval), .min = INTERVAL_MIN, .max = INTERVAL_MAX },
    { 2, NUMBER(stale_after) },
    { 3, FLAG(slack) },
    { 4, FLAG(correction_auto) },
    { 5, NUMBER(correction_ppm) },
};
static const struct weir_proto_message settings = { FIELDS(settings_fields),
                                                    .check = check_settings };
#undef THIS

static int check_welcome(void *message)
{
    const struct weir_welcome *welcome = message;
    for (size_t i = 0; i < welcome->region_count; i++) {
        struct weir_text region = welcome->regions[i];
        if (region.len > WEIR_NAME_MAX)
            return WEIR_ETOOBIG;
        if (weir_utf8_clean(region, "") != region.len)
            return WEIR_EPROTOCOL;
    }
    return 0;
}

#define THIS struct weir_welcome
static const struct weir_proto_field welcome_fields[] = {
    { 1, NUMBER(protocol) },
    { 2, BLOCK(incarnation), ALWAYS, .min = 1 },
    { 3, TITLE(name) },
    { 4, FLAG(ready) },
    { 5, PART(store, store) },
    { 6, NUMBER(epoch) },
    { 7, PART(settings, settings), ALWAYS, .min = 1 },
    { 8, NUMBER(age) },
    { 9, FLAG(carries) },
    { 10, NUMBER(last_session) },
    { 11, NUMBER(last_number) },
    { 12, NUMBER(top_age) },
    { 13, FLAG(provisional) },
    { 14, TEXTS(regions, region_count), .max = WEIR_TIERS_MAX },
    { 15, FLAG(leases) },
    { 16, NUMBER(term) },
    { 17, TITLE(master) },
};
const struct weir_proto_message weir_v1_welcome = { FIELDS(welcome_fields),
                                                    .fields_max =
                                                        WEIR_V1_FIELDS_MAX,
                                                    .check = check_welcome };
#undef THIS

/* ---- Asks and answers ---- */

#define THIS struct weir_step_ask
static const struct weir_proto_field ask_fields[] = {
    { 1, NUMBER(number), .min = 1 },
    { 2, NAME(name) },
    { 3, NUMBER(ask.op), .min = WEIR_ALGORITHM_TAKE,
      .max = WEIR_ALGORITHM_RESERVE },
    { 4, NUMBER(ask.weight), .max = WEIR_WEIGHT_MAX },
    { 5, NUMBER(ask.wait_max) },
    { 6, NUMBER(ask.level), .max = WEIR_BUCKETS_MAX - 1 },
    { 7, NUMBER(patience) },
    { 8, NUMBER(ask.permit) },
};
static const struct weir_proto_message ask = { FIELDS(ask_fields) };
#undef THIS

static int check_asks(void *message)
{
    const struct weir_asks *asks = message;
    for (size_t i = 1; i < asks->count; i++) {
        if (asks->asks[i].number <= asks->asks[i - 1].number)
            return WEIR_EPROTOCOL;
    }
    return 0;
}

#define THIS struct weir_asks
static const struct weir_proto_field asks_fields[] = {
    { 1, PARTS(asks, count, ask), .min = 1, .max = WEIR_ASKS_MAX },
};
const struct weir_proto_message weir_v1_asks = { FIELDS(asks_fields),
                                                 .check = check_asks };
#undef THIS

/* With an error the other fields are ignored. */
static int check_answer(void *message)
{
    struct weir_step_answer *row = message;
    if (row->error != WEIR_STEP_ANSWERED)
        row->answer = (struct weir_algorithm_answer){ 0 };
    return 0;
}

#define THIS struct weir_step_answer
static const struct weir_proto_field answer_fields[] = {
    { 1, NUMBER(number), .min = 1 },
    { 2, NUMBER(error), .max = WEIR_STEP_DENIED },
    { 3, FLAG(answer.passed) },
    { 4, FLAG(answer.never) },
    { 5, NUMBER(answer.level), .max = WEIR_BUCKETS_MAX - 1 },
    { 6, ZIGZAG(answer.used) },
    { 7, NUMBER(answer.remaining) },
    { 8, NUMBER(answer.retry_after) },
    { 9, NUMBER(answer.wait) },
};
static const struct weir_proto_message answer = { FIELDS(answer_fields),
                                                  .check = check_answer };
#undef THIS

#define THIS struct weir_answers
static const struct weir_proto_field answers_fields[] = {
    { 1, PARTS(answers, count, answer), .min = 1, .max = WEIR_ASKS_MAX },
};
const struct weir_proto_message weir_v1_answers = { FIELDS(answers_fields) };
#undef THIS

/* ---- Wants ---- */

#define THIS struct weir_band
static const struct weir_proto_field band_fields[] = {
    { 1, ZIGZAG(priority) },
    { 2, NUMBER(clients), .min = 1, .max = WEIR_LEASE_CLIENTS_MAX },
    { 3, AMOUNT(wants) },
};
static const struct weir_proto_message band = { FIELDS(band_fields) };
#undef THIS

/* A release has no other field but 'taken'. */
static int check_want(void *message)
{
    const struct weir_want *row = message;
    bool says_more = row->learning || row->has > 0 || row->safe > 0 ||
                     row->roster_token > 0 || row->band_count > 0;
    if (row->release ? says_more : row->band_count == 0)
        return WEIR_EPROTOCOL;
    for (size_t i = 1; i < row->band_count; i++) {
        if (row->bands[i].priority >= row->bands[i - 1].priority)
            return WEIR_EPROTOCOL;
    }
    return 0;
}

#define THIS struct weir_want
static const struct weir_proto_field want_fields[] = {
    { 1, NAME(name) },
    { 2, AMOUNT(has) },
    { 3, NUMBER(taken) },
    { 4, FLAG(release) },
    { 5, FLAG(learning) },
    { 6, PARTS(bands, band_count, band), .max = WEIR_LEASE_BANDS_MAX },
    { 7, AMOUNT(safe) },
    { 8, NUMBER(roster_token) },
};
static const struct weir_proto_message want = { FIELDS(want_fields),
                                                .check = check_want };
#undef THIS

#define THIS struct weir_latency_count
static const struct weir_proto_field latency_fields[] = {
    { 1, NUMBER(bin), .max = WEIR_WINDOW_BINS - 1 },
    { 2, NUMBER(count), .min = 1, .max = WEIR_WINDOW_SAMPLES_MAX },
};
static const struct weir_proto_message latency = { FIELDS(latency_fields) };
#undef THIS

static int check_window(void *message)
{
    const struct weir_latency_batch *batch =
        &((const struct weir_want_window *)message)->batch;
    uint64_t samples = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (i > 0 && batch->bins[i].bin <= batch->bins[i - 1].bin)
            return WEIR_EPROTOCOL;
        samples += batch->bins[i].count;
    }
    bool sound = samples <= WEIR_WINDOW_SAMPLES_MAX && batch->slow <= samples &&
                 batch->dropped <= batch->slow;
    return sound ? 0 : WEIR_EPROTOCOL;
}

#define THIS struct weir_want_window
static const struct weir_proto_field window_fields[] = {
    { 1, NUMBER(want), .max = WEIR_LEASES_MAX - 1 },
    { 2, NUMBER(batch.cut) },
    { 3, NUMBER(batch.slow) },
    { 4, NUMBER(batch.dropped) },
    { 5, NUMBER(batch.peak), .max = WEIR_CONCURRENCY_GATE_UNITS_MAX },
    { 6, NUMBER(batch.overdue), .max = WEIR_CONCURRENCY_GATE_UNITS_MAX },
    { 7, NUMBER(batch.overdue_age) },
    { 8, PARTS(batch.bins, batch.count, latency), .max = WEIR_WINDOW_BINS },
};
static const struct weir_proto_message window = { FIELDS(window_fields),
                                                  .check = check_window };
#undef THIS

static int check_wants(void *message)
{
    const struct weir_wants *wants = message;
    for (size_t i = 0; i < wants->window_count; i++) {
        uint32_t at = wants->windows[i].want;
        if (at >= wants->count || wants->wants[at].release ||
            (i > 0 && at <= wants->windows[i - 1].want))
            return WEIR_EPROTOCOL;
    }
    return 0;
}

#define THIS struct weir_wants
static const struct weir_proto_field wants_fields[] = {
    { 1, NUMBER(number), .min = 1 },
    { 2, PARTS(wants, count, want), .min = 1, .max = WEIR_LEASES_MAX },
    { 3, NUMBER(term) },
    { 4, PARTS(windows, window_count, window), .max = WEIR_WINDOWS_MAX },
};
const struct weir_proto_message weir_v1_wants = { FIELDS(wants_fields),
                                                  .check = check_wants };
#undef THIS

/* ---- Grants ---- */

#define THIS struct weir_guarantee
static const struct weir_proto_field guarantee_fields[] = {
    { 1, ZIGZAG(band) },
    { 2, AMOUNT(units) },
};
static const struct weir_proto_message guarantee = { FIELDS(guarantee_fields) };
#undef THIS

#define THIS struct weir_lease_grant
static const struct weir_proto_field grant_fields[] = {
    { 1, NAME(name) },
    { 2, NUMBER(error), .max = WEIR_LEASE_DENIED },
    { 3, NUMBER(grant.serial) },
    { 4, AMOUNT(grant.capacity) },
    { 5, AMOUNT(grant.safe) },
    { 6, NUMBER(grant.lease) },
    { 7, NUMBER(grant.refresh) },
    { 8, NUMBER(grant.safe_lease) },
    { 9, NUMBER(grant.roster_token) },
    { 10, NUMBER(grant.cut) },
    { 11, PARTS(guarantees, guarantee_count, guarantee),
      .max = WEIR_LEASE_GUARANTEES_MAX },
};
static const struct weir_proto_message grant = { FIELDS(grant_fields) };
#undef THIS

/* 'answered': the grant is in an answer, which begins or ends a lease; a pushed
 * grant does neither. */
static bool is_sound_grant(const struct weir_grant *it, bool answered)
{
    if (it->serial == 0)
        return false;
    if (!answered)
        return it->refresh > 0 && it->lease == 0 && it->safe_lease == 0;
    return (it->refresh > 0 || it->lease == 0) && it->safe_lease >= it->lease;
}

/* With an error the other fields of a grant are ignored. */
static int check_grants(void *message)
{
    const struct weir_grants *grants = message;
    if (grants->elsewhere ? grants->count > 0 : grants->master.len > 0)
        return WEIR_EPROTOCOL;
    struct weir_lease_grant *rows = (struct weir_lease_grant *)grants->grants;
    for (size_t i = 0; i < grants->count; i++) {
        if (rows[i].error != WEIR_LEASE_GRANTED) {
            rows[i].grant = (struct weir_grant){ 0 };
            rows[i].guarantee_count = 0;
        } else if (!is_sound_grant(&rows[i].grant, grants->answer > 0)) {
            return WEIR_EPROTOCOL;
        }
    }
    return 0;
}

#define THIS struct weir_grants
static const struct weir_proto_field grants_fields[] = {
    { 1, NUMBER(answer) },
    { 2, NUMBER(term) },
    { 3, FLAG(elsewhere) },
    { 4, TITLE(master) },
    { 5, PARTS(grants, count, grant), .max = WEIR_LEASES_MAX },
};
const struct weir_proto_message weir_v1_grants = { FIELDS(grants_fields),
                                                   .check = check_grants };
#undef THIS

/* ---- Limits ---- */

#define THIS struct weir_adaptive_limit
static const struct weir_proto_field adaptive_limit_fields[] = {
    { 1, NAME(name) },        { 2, DOUBLE(limit), .max = WEIR_PERMITS_MAX },
    { 3, NUMBER(in_flight) }, { 4, NUMBER(reason) },
    { 5, NUMBER(latency) },   { 6, NUMBER(age) },
};
static const struct weir_proto_message adaptive_limit = { FIELDS(
    adaptive_limit_fields) };
#undef THIS

#define THIS struct weir_limits
static const struct weir_proto_field limits_fields[] = {
    { 1, PARTS(limits, count, adaptive_limit), .max = WEIR_LIMITS_MAX },
};
const struct weir_proto_message weir_v1_limits = { FIELDS(limits_fields) };
#undef THIS

/* ---- Calls ---- */

/* Printable ASCII without a space. */
static bool is_token(struct weir_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] <= ' ' || text.p[i] > '~')
            return false;
    }
    return true;
}

static int check_request(void *message)
{
    const struct weir_call_request *row = message;
    return is_token(row->method) && is_token(row->path) ? 0 : WEIR_EPROTOCOL;
}

#define THIS struct weir_call_request
static const struct weir_proto_field request_fields[] = {
    { 1, TEXT(method), .min = 1, .max = WEIR_V1_METHOD_MAX },
    { 2, TEXT(path), .min = 1, .max = WEIR_V1_URL_MAX },
    { 3, TEXT(body) },
};
static const struct weir_proto_message call_request = { FIELDS(request_fields),
                                                        .check =
                                                            check_request };
#undef THIS

#define THIS struct weir_call_reply
static const struct weir_proto_field reply_fields[] = {
    { 1, NUMBER(status), .min = 100, .max = 599 },
    { 2, TEXT(body) },
};
static const struct weir_proto_message call_reply = { FIELDS(reply_fields) };
#undef THIS

size_t weir_v1_request_size(const struct weir_call_request *request)
{
    return weir_proto_size(&call_request, request);
}

size_t weir_v1_request_encode(const struct weir_call_request *request,
                              void *buf, size_t size)
{
    return weir_proto_encode(&call_request, request, buf, size);
}

size_t weir_v1_reply_size(const struct weir_call_reply *reply)
{
    return weir_proto_size(&call_reply, reply);
}

size_t weir_v1_reply_encode(const struct weir_call_reply *reply, void *buf,
                            size_t size)
{
    return weir_proto_encode(&call_reply, reply, buf, size);
}

static int decode_call(const struct weir_proto_message *message,
                       const void *bytes, size_t len, void *out)
{
    return weir_proto_get(message, weir_wire_over(bytes, len),
                          WEIR_PROTO_AGAIN_REFUSED, NULL, out, NULL);
}

int weir_v1_request_decode(const void *bytes, size_t len,
                           struct weir_call_request *out)
{
    struct weir_call_request request;
    int error = decode_call(&call_request, bytes, len, &request);
    if (error == 0)
        *out = request;
    return error;
}

int weir_v1_reply_decode(const void *bytes, size_t len,
                         struct weir_call_reply *out)
{
    struct weir_call_reply reply;
    int error = decode_call(&call_reply, bytes, len, &reply);
    if (error == 0)
        *out = reply;
    return error;
}
