/* SPDX-License-Identifier: MIT
 * protocol/resp/resp_decide.c - the commands that decide.
 *
 * CL.THROTTLE answers what redis-cell answers, errors included: five numbers
 * (limited, limit, remaining, seconds to wait, seconds until all is free).
 * WEIR.TAKE and WEIR.PEEK answer four: 0 or 1 if limited; units that would
 * still pass; milliseconds to wait, 0 if passed, -1 if never; and the quota
 * that decided, "" if none did. */

#include <stdio.h>
#include <string.h>

#include "core/quota/throttle_name.h"
#include "protocol/resp/resp_internal.h"

/* Replies with the host's error: NOPERM for the credential, ERR for the
 * request. */
static void refuse_error(struct weir_resp_call *call, int error,
                         const struct weir_diag *diag)
{
    char text[sizeof diag->text + 8];
    snprintf(text, sizeof text, "%s %s",
             error == WEIR_EDENIED ? "NOPERM" : "ERR", diag->text);
    weir_resp_error(call->out, text);
}

/* ---- CL.THROTTLE ---- */

#define CELL "Cell error: Store error: "

static void refuse_integer(struct weir_resp_call *call, struct weir_text said)
{
    char text[WEIR_RESP_QUOTED_MAX + 64];
    int len =
        said.len < WEIR_RESP_QUOTED_MAX ? (int)said.len : WEIR_RESP_QUOTED_MAX;
    snprintf(text, sizeof text, CELL "Couldn't parse as integer: %.*s", len,
             said.p);
    weir_resp_error(call->out, text);
}

/* False: the error reply is written. */
static bool read_throttle(struct weir_resp_call *call,
                          struct weir_throttle_ask *out)
{
    int64_t *numbers[] = { &out->max_burst, &out->count, &out->period_s,
                           &out->quantity };
    size_t count = call->request->count;
    if (count != 5 && count != 6) {
        weir_resp_error(call->out,
                        CELL "Usage: cl.throttle <key> <max_burst> <count "
                             "per period> <period> [<quantity>]");
        return false;
    }
    out->key = weir_resp_argument(call, 1);
    for (size_t i = 2; i < count; i++) {
        if (weir_resp_number(weir_resp_argument(call, i), numbers[i - 2]))
            continue;
        refuse_integer(call, weir_resp_argument(call, i));
        return false;
    }
    if (out->count != 0 && out->period_s != 0)
        return true;
    weir_resp_error(call->out, CELL "Zero rates are not supported");
    return false;
}

static const char *throttle_error(const struct weir_resp_call *call, int error)
{
    switch (error) {
    case WEIR_ETOOBIG:
        return "ERR a key to throttle by is at most 512 bytes";
    case WEIR_ENAME:
        return "ERR a key that the fleet counts is UTF-8 without control "
               "characters, at most some 200 bytes";
    case WEIR_ENOMEM:
        return "OOM no memory for another key";
    case WEIR_EFULL:
        return "OOM no room for another key: raise --quotas-max";
    }
    return call->throttle ? "ERR a burst, a count and a period can't be below "
                            "zero"
                          : "ERR a burst, a count, a period or a quantity is "
                            "out of range";
}

/* Whether the taker may charge a key that this process counts: 0, or as
 * weir_protocol_may(). A key has one cell for all its rates, so the judged
 * name has a star in place of the rate. A glob that contains a rate doesn't
 * match that name: it would let its taker charge the key of another tenant's
 * rate. */
static int may_throttle_local(const struct weir_resp_call *call,
                              const struct weir_protocol_taker *taker,
                              struct weir_text key, struct weir_diag *diag)
{
    static const char any_rate[] = WEIR_THROTTLE_PREFIX "*:";
    char name[sizeof any_rate - 1 + WEIR_THROTTLE_KEY_MAX];
    size_t len = sizeof any_rate - 1;
    if (key.len > WEIR_THROTTLE_KEY_MAX)
        return 0; /* weir_throttle_decide() refuses this key */
    memcpy(name, any_rate, len);
    if (key.len > 0)
        memcpy(name + len, key.p, key.len);
    return weir_protocol_may(call->host, taker,
                             (struct weir_text){ name, len + key.len }, diag,
                             call->now);
}

static bool may_throttle(struct weir_resp_call *call,
                         const struct weir_throttle_ask *ask)
{
    struct weir_diag diag = { 0 };
    const struct weir_protocol_taker *taker = weir_resp_taker(call->session);
    if (taker->names.all)
        return true;
    int error = call->throttle
                    ? may_throttle_local(call, taker, ask->key, &diag)
                    : weir_throttle_counted_may(call->host, taker, ask, &diag,
                                                call->now);
    if (error < 0)
        refuse_error(call, error, &diag);
    return error == 0;
}

static void decide_by_key(struct weir_resp_call *call, bool probe)
{
    struct weir_throttle_ask ask = { .quantity = 1, .probe = probe };
    struct weir_throttle_reply reply;
    if (!read_throttle(call, &ask) || !may_throttle(call, &ask))
        return;
    int error =
        call->throttle
            ? weir_throttle_decide(call->throttle, &ask, &reply, call->now)
            : weir_throttle_counted_decide(call->host, &ask, &reply, call->now);
    if (error < 0) {
        weir_resp_error(call->out, throttle_error(call, error));
        return;
    }
    weir_resp_array(call->out, 5);
    weir_resp_integer(call->out, reply.limited);
    weir_resp_integer(call->out, reply.limit);
    weir_resp_integer(call->out, reply.remaining);
    weir_resp_integer(call->out, reply.retry_after_s);
    weir_resp_integer(call->out, reply.reset_after_s);
}

void weir_resp_cl_throttle(struct weir_resp_call *call)
{
    decide_by_key(call, false);
}

void weir_resp_cl_probe(struct weir_resp_call *call)
{
    decide_by_key(call, true);
}

void weir_resp_del(struct weir_resp_call *call)
{
    int64_t count = 0;
    /* DEL's keys aren't judged one by one, and may be another tenant's. */
    if (!weir_resp_taker(call->session)->names.all) {
        weir_resp_error(call->out, "NOPERM a credential that may take from "
                                   "some quotas alone may not delete keys");
        return;
    }
    if (!call->throttle) {
        weir_resp_error(call->out, "ERR a key that the fleet counts goes when "
                                   "it is idle, and not before");
        return;
    }
    for (size_t i = 1; i < call->request->count; i++)
        count += weir_throttle_forget(call->throttle,
                                      weir_resp_argument(call, i), call->now);
    weir_resp_integer(call->out, count);
}

/* ---- WEIR.TAKE ---- */

static int64_t to_milliseconds(const struct weir_reply *reply)
{
    if (reply->verdict == WEIR_PASSED)
        return 0;
    if (reply->never || reply->retry_after == WEIR_NEVER)
        return -1;
    weir_duration most = WEIR_NEVER - WEIR_MILLISECOND;
    weir_duration wait = reply->retry_after < most ? reply->retry_after : most;
    return (int64_t)((wait + WEIR_MILLISECOND - 1) / WEIR_MILLISECOND);
}

static void decide_by_name(struct weir_resp_call *call, bool peek)
{
    int64_t weight = 1;
    struct weir_diag diag = { 0 };
    struct weir_reply reply = { .verdict = WEIR_PASSED };
    bool has_weight = call->request->count == 3;
    if (has_weight &&
        (!weir_resp_number(weir_resp_argument(call, 2), &weight) ||
         weight < 0 || weight > (int64_t)WEIR_WEIGHT_MAX)) {
        weir_resp_error(call->out, "ERR a weight is a number from 0 to "
                                   "4294967296");
        return;
    }
    struct weir_protocol_request ask = { .name = weir_resp_argument(call, 1),
                                         .weight = (uint64_t)weight,
                                         .peek = peek,
                                         .taker =
                                             weir_resp_taker(call->session) };
    if (call->request->count > 3) {
        weir_resp_error(call->out, "ERR a name and a weight are enough");
        return;
    }
    int error =
        weir_protocol_decide(call->host, &ask, &reply, &diag, call->now);
    if (error < 0) {
        refuse_error(call, error, &diag);
        return;
    }
    weir_resp_array(call->out, 4);
    weir_resp_integer(call->out, reply.verdict == WEIR_LIMITED);
    weir_resp_integer(call->out, reply.remaining > INT64_MAX
                                     ? INT64_MAX
                                     : (int64_t)reply.remaining);
    weir_resp_integer(call->out, to_milliseconds(&reply));
    weir_resp_bulk(call->out,
                   (struct weir_text){ reply.quota, reply.quota_len });
}

void weir_resp_take(struct weir_resp_call *call)
{
    decide_by_name(call, false);
}

void weir_resp_peek(struct weir_resp_call *call)
{
    decide_by_name(call, true);
}
