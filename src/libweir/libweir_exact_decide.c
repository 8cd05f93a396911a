/* SPDX-License-Identifier: MIT
 * libweir/libweir_exact_decide.c - a decision on a chain with exact quotas.
 *
 *     weir_table_begin()    local and counted links: charged here
 *     each exact link       a step in its store, from the leaf up, each
 *                           within its quota's deadline
 *     one refuses           earlier charges are given back, here and there
 *
 * If a store doesn't answer, can't be opened or isn't linked, its link goes by
 * the quota's on_stale: pass passes all, limit refuses all, share decides by
 * the limit over the number of limiters that the roots reported. A step that
 * timed out may have been charged in the store all the same. That can't be
 * known, and isn't undone: it makes the store refuse too early, never too
 * late. A charge is given back only where it was made: to a store or to the
 * bucket state that stood in for it.
 *
 * Units in flight (kind=concurrency) are also held here, without a bound, as
 * long as their permit is in flight: so its slot stays the name's own, and a
 * leave finds the store by it and takes the permit out there by its id. One
 * random id is a permit's at all stores of its chain. So here a step that timed
 * out can be undone: an id that isn't there is nothing to take out. And while a
 * store is away, share goes by the units held here. If no leave takes a permit
 * out, since its process died or the store was away, it ends at the store by
 * its permit_timeout.
 *
 * A bound. A window doesn't know the origin of units it is given back. So an
 * undo that comes after the edge of a fixed window takes its weight from units
 * that others used in the new one: at most the units under way at the edge pass
 * there beside the limit. */

#include "libweir/libweir_decide.h"

#include <string.h>

#include "core/base/atomic.h"
#include "core/base/rng.h"

#define CLOSED_RETRY WEIR_SECOND
/* The next leave can't be predicted; as STOP_RETRY of the table. */
#define LEAVE_RETRY (20 * WEIR_MILLISECOND)

struct asking {
    struct weir *weir;
    uint32_t stripe;
    struct weir_charge_record charge_record;
    struct weir_algorithm_ask ask;
    struct weir_reply *reply; /* may be NULL */
    struct weir_call *call;
    uint32_t asked;  /* bits: links charged in their store */
    uint32_t shared; /* bits: links charged in the substitute bucket state */
    bool undoes;     /* its charges: waits for no lock */
    uint8_t paid[WEIR_DEPTH_MAX]; /* at which level, of both */
};

/* The result of a link. */
struct link_result {
    struct weir_algorithm_answer answer;
    char name[WEIR_NAME_MAX + 1];
    uint8_t name_len;
    bool gone;      /* the quota doesn't exist any more, or is locked */
    bool stale;     /* its store didn't decide */
    bool shared;    /* … but the bucket state in its place */
    bool in_flight; /* it counts units in flight, not passed ones */
};

static bool op_may_refuse(enum weir_algorithm_op op)
{
    return op != WEIR_ALGORITHM_CHARGE && op != WEIR_ALGORITHM_REFUND;
}

/* ---- One link ---- */

static void answer_pass(struct weir_algorithm_answer *out)
{
    *out = (struct weir_algorithm_answer){ .passed = true,
                                           .remaining = UINT64_MAX };
}

static void answer_limit(struct weir_algorithm_answer *out)
{
    *out = (struct weir_algorithm_answer){ .retry_after = CLOSED_RETRY };
}

static bool fits_rule(const struct weir_algorithm_rule *rule, uint64_t weight)
{
    if (rule->quantity > 0) /* a window or a log */
        return weight <= rule->quantity;
    bool fits = false;
    for (unsigned k = 0; k < rule->buckets; k++) {
        const struct weir_bucket *bucket = &rule->bucket[k].bucket;
        fits |= (int64_t)(weight << bucket->leak.frac) <= bucket->high;
    }
    return fits;
}

/* Another thread has the link's bucket state: waits. False: don't ask again.
 * 'first': the call has waited for no other lock before. */
static bool wait_for_link(struct asking *asking, uint32_t link, bool first)
{
    struct weir *weir = asking->weir;
    const struct weir_charge_record *charge_record = &asking->charge_record;
    if (asking->undoes)
        return false;
    if (weir_call_wait(
            weir, asking->call,
            weir_table_away_is_overdue(weir->table, charge_record, link)))
        return true;
    if (weir_call_is_overdue(weir, asking->call, first))
        weir_table_away_set_overdue(weir->table, charge_record, link);
    return false;
}

/* WEIR_ENOENT: the quota doesn't exist any more; WEIR_ETIMEOUT: another thread
 * had its bucket state for too long. */
static int step_shared(struct asking *asking, uint32_t link,
                       const struct weir_algorithm_ask *ask,
                       struct weir_algorithm_answer *out)
{
    struct weir *weir = asking->weir;
    uint32_t fleet = weir_load_relaxed(&weir->fleet);
    bool first = !weir_call_has_waited(asking->call);
    unsigned wake = 0;
    int error;
    do {
        error =
            weir_table_step_shared(weir->table, &asking->charge_record, link,
                                   fleet, ask, out, &wake, asking->call->now);
    } while (error == WEIR_ETIMEOUT && wait_for_link(asking, link, first));
    weir_verdict_of(weir, wake);
    return error;
}

/* The request to the store; errors as above. */
static int find_away(struct asking *asking, uint32_t link,
                     struct weir_away *out)
{
    struct weir *weir = asking->weir;
    bool first = !weir_call_has_waited(asking->call);
    unsigned wake = 0;
    int error;
    do {
        error = weir_table_away(weir->table, &asking->charge_record, link, out,
                                &wake);
    } while (error == WEIR_ETIMEOUT && wait_for_link(asking, link, first));
    weir_verdict_of(weir, wake);
    return error;
}

/* The time of the store isn't one of waiting for locks. */
static int step_store(struct asking *asking, const struct weir_away *away,
                      const struct weir_algorithm_ask *ask,
                      struct weir_algorithm_answer *out)
{
    weir_instant *until = &asking->call->wait.until;
    weir_instant begun = *until ? weir_clock_now() : 0;
    int error = weir_exact_step(asking->weir, away, ask, out);
    if (*until)
        *until = weir_after(*until, weir_clock_now() - begun);
    return error;
}

/* By when_locked. */
static void answer_contended(struct asking *asking,
                             struct weir_algorithm_answer *out)
{
    weir_table_count_contended(asking->weir->table, asking->stripe);
    if (asking->reply)
        asking->reply->contended = true;
    if (asking->weir->when_locked == WEIR_LOCKED_PASSES)
        answer_pass(out);
    else
        *out =
            (struct weir_algorithm_answer){ .retry_after = WEIR_LOCKED_RETRY };
}

/* By the units held here, for an enter including its own. */
static void share_in_flight(const struct asking *asking, uint32_t link,
                            const struct weir_away *away,
                            struct weir_algorithm_answer *out)
{
    uint64_t weight = asking->ask.weight;
    uint64_t in_flight = weir_table_in_flight(asking->weir->table,
                                              asking->charge_record.slot[link]);
    uint64_t others = in_flight;
    struct weir_algorithm_rule rule = away->rule;
    weir_algorithm_rule_share(&rule, weir_load_relaxed(&asking->weir->fleet));
    if (asking->charge_record.record)
        others = in_flight > weight ? in_flight - weight : 0;
    uint64_t room = rule.quantity > others ? rule.quantity - others : 0;
    *out = (struct weir_algorithm_answer){
        .passed = rule.quantity > 0 && weight <= room,
        .used = (int64_t)in_flight,
        .remaining = room > weight ? room - weight : 0,
    };
    if (!out->passed)
        out->retry_after = LEAVE_RETRY;
}

static void answer_share(struct asking *asking, uint32_t link,
                         const struct weir_away *away,
                         struct link_result *result)
{
    struct weir_algorithm_answer *out = &result->answer;
    if (result->in_flight) {
        share_in_flight(asking, link, away, out);
        return;
    }
    int error = step_shared(asking, link, &asking->ask, out);
    result->shared = error == 0;
    if (error == WEIR_ETIMEOUT)
        answer_contended(asking, out);
    else if (error < 0)
        answer_pass(out);
    /* A weight above this process's part isn't above the limit. */
    else if (out->never && fits_rule(&away->rule, asking->ask.weight))
        answer_limit(out);
}

static void answer_stale(struct asking *asking, uint32_t link,
                         const struct weir_away *away,
                         struct link_result *result)
{
    struct weir_algorithm_answer *out = &result->answer;
    /* The refunded units were charged in the store; they are lost there, and
     * not this process's to use once more. */
    if (asking->ask.op == WEIR_ALGORITHM_REFUND) {
        answer_pass(out);
        return;
    }
    switch (away->on_stale) {
    case WEIR_STALE_LIMIT:
        answer_limit(out);
        return;
    case WEIR_STALE_SHARE:
        answer_share(asking, link, away, result);
        return;
    case WEIR_STALE_PASS:
    case WEIR_STALE_HOLD: /* no exact quota has it */
        break;
    }
    answer_pass(out);
}

/* Another thread has the link's rule. Its name needs no lock. */
static void answer_locked(struct asking *asking, uint32_t link,
                          struct link_result *out)
{
    out->name_len = (uint8_t)weir_table_name(
        asking->weir->table, asking->charge_record.slot[link], out->name);
    answer_contended(asking, &out->answer);
}

static void step_link(struct asking *asking, uint32_t link,
                      struct link_result *out)
{
    struct weir_away away;
    memset(out, 0, sizeof(*out));
    int found = find_away(asking, link, &away);
    if (found < 0) {
        out->gone = true;
        if (found == WEIR_ETIMEOUT)
            answer_locked(asking, link, out);
        else
            answer_pass(&out->answer);
        return;
    }
    memcpy(out->name, away.name, sizeof(out->name));
    out->name_len = away.name_len;
    out->in_flight = away.rule.algorithm == WEIR_PERMITS;
    int error = step_store(asking, &away, &asking->ask, &out->answer);
    out->stale = error < 0;
    /* The store may hold it all the same. */
    if (error == WEIR_ETIMEOUT && out->in_flight)
        asking->asked |= 1u << link;
    if (out->stale)
        answer_stale(asking, link, &away, out);
}

/* ---- The chain ---- */

static void name_in_reply(const struct link_result *result,
                          struct weir_reply *reply)
{
    memcpy(reply->quota, result->name, sizeof(reply->quota));
    reply->quota_len = result->name_len;
}

static void explain_exact_pass(const struct asking *asking,
                               const struct link_result *result)
{
    struct weir_reply *reply = asking->reply;
    const struct weir_algorithm_answer *answer = &result->answer;
    if (!reply)
        return;
    reply->stale = reply->stale || result->stale;
    reply->exact = reply->exact || !(result->stale || result->gone);
    if (answer->level > reply->level)
        reply->level = answer->level;
    if (answer->wait > reply->wait)
        reply->wait = answer->wait;
    if (result->gone || answer->remaining > reply->remaining)
        return;
    reply->remaining = answer->remaining;
    reply->fill = answer->used;
    name_in_reply(result, reply);
}

/* A quota in mode shadow is named only if no other limits the request. */
static void explain_exact_shadow(const struct asking *asking,
                                 const struct link_result *result)
{
    struct weir_reply *reply = asking->reply;
    if (!reply || reply->quota_len > 0 || result->gone)
        return;
    reply->exact = reply->exact || !result->stale;
    reply->fill = result->answer.used;
    name_in_reply(result, reply);
}

/* A store returns when enough permits end by timeout; most leave before
 * that. */
static weir_duration exact_retry_of(const struct link_result *result)
{
    weir_duration retry = result->answer.retry_after;
    bool guess = result->in_flight && retry > LEAVE_RETRY && !result->stale;
    return guess ? LEAVE_RETRY : retry;
}

static void explain_exact_refusal(const struct asking *asking,
                                  const struct link_result *result)
{
    struct weir_reply *reply = asking->reply;
    const struct weir_algorithm_answer *answer = &result->answer;
    if (!reply)
        return;
    bool stale = reply->stale || result->stale;
    bool shadow = reply->shadow;
    *reply = (struct weir_reply){
        .verdict = WEIR_LIMITED,
        .contended = reply->contended,
        .never = answer->never,
        .stale = stale,
        .shadow = shadow,
        .exact = reply->exact || !(result->stale || result->gone),
        .fill = answer->used,
        .retry_after = WEIR_NEVER,
    };
    if (!answer->never)
        reply->retry_after = weir_table_jitter(
            asking->weir->table, asking->stripe, exact_retry_of(result));
    name_in_reply(result, reply);
}

static void refund_store(struct asking *asking, uint32_t link,
                         const struct weir_algorithm_ask *back)
{
    struct weir_algorithm_answer ignored;
    struct weir_away away;
    int error = find_away(asking, link, &away);
    if (error == 0)
        (void)step_store(asking, &away, back, &ignored);
    else if (error == WEIR_ETIMEOUT && back->permit != 0)
        weir_exact_leave_later(asking->weir, asking->charge_record.slot[link],
                               back->permit, back->weight);
}

/* To the stores that let it pass before another refused. A store that doesn't
 * answer stays a little too full, and so does a locked quota's: an undo waits
 * for no lock. A permit is taken out there later. */
static void refund_stores(struct asking *asking)
{
    asking->undoes = true;
    for (uint32_t link = 0; link < asking->charge_record.links; link++) {
        struct weir_algorithm_ask back = { .op = WEIR_ALGORITHM_REFUND,
                                           .weight = asking->ask.weight,
                                           .level = asking->paid[link],
                                           .permit = asking->ask.permit };
        struct weir_algorithm_answer ignored;
        if (asking->shared >> link & 1)
            (void)step_shared(asking, link, &back, &ignored);
        else if (asking->asked >> link & 1)
            refund_store(asking, link, &back);
    }
}

static void note_charge(struct asking *asking, uint32_t link,
                        const struct link_result *result)
{
    weir_assert(link < asking->charge_record.links);
    asking->paid[link] = result->answer.level;
    if (result->shared)
        asking->shared |= 1u << link;
    else if (!result->gone && !result->stale)
        asking->asked |= 1u << link;
}

static unsigned refuse_exact(struct asking *asking, uint32_t link,
                             const struct link_result *result)
{
    struct weir *weir = asking->weir;
    explain_exact_refusal(asking, result);
    if (asking->ask.op == WEIR_ALGORITHM_PEEK)
        return WEIR_OUTCOME_LIMITED;
    unsigned kick =
        weir_table_undo(weir->table, &asking->charge_record, asking->call->now);
    weir_table_count_refused(weir->table, asking->stripe,
                             &asking->charge_record, link);
    refund_stores(asking);
    return WEIR_OUTCOME_LIMITED | kick;
}

/* A quota in mode shadow would have refused. */
static void refuse_exact_quietly(struct asking *asking, uint32_t link)
{
    if (asking->reply)
        asking->reply->shadow = true;
    if (asking->ask.op != WEIR_ALGORITHM_PEEK)
        weir_table_count_refused(asking->weir->table, asking->stripe,
                                 &asking->charge_record, link);
}

static unsigned step_stores(struct asking *asking)
{
    const struct weir_charge_record *charge_record = &asking->charge_record;
    for (uint32_t link = 0; link < charge_record->links; link++) {
        struct link_result result;
        bool quiet = charge_record->quiet >> link & 1;
        if (!(charge_record->away >> link & 1))
            continue;
        step_link(asking, link, &result);
        bool passed = result.answer.passed || !op_may_refuse(asking->ask.op);
        if (!passed && !quiet)
            return refuse_exact(asking, link, &result);
        if (!passed)
            refuse_exact_quietly(asking, link);
        else
            note_charge(asking, link, &result);
        if (quiet)
            explain_exact_shadow(asking, &result);
        else
            explain_exact_pass(asking, &result);
    }
    return 0;
}

/* Charges the links that no store decides; waits for their locks. */
static unsigned begin_exact(struct asking *asking, struct weir_ref ref,
                            const struct weir_algorithm_ask *ask)
{
    struct weir *weir = asking->weir;
    struct weir_call *call = asking->call;
    struct weir_algorithm_ask local = *ask;
    bool first = !weir_call_has_waited(call);
    unsigned outcome;
    local.when_locked = WEIR_LOCKED_RETURNS;
    do {
        outcome =
            weir_table_begin(weir->table, asking->stripe, ref, &local,
                             &asking->charge_record, asking->reply, call->now);
        if (!(outcome & WEIR_OUTCOME_CONTENDED)) {
            weir_call_got_lock(weir, call);
            return outcome;
        }
        weir_verdict_of(weir, outcome);
    } while (weir_call_wait(weir, call, outcome & WEIR_OUTCOME_OVERDUE));
    local.when_locked = weir->when_locked;
    local.waited = weir_call_is_overdue(weir, call, first);
    return weir_table_begin(weir->table, asking->stripe, ref, &local,
                            &asking->charge_record, asking->reply, call->now);
}

unsigned weir_exact_decide(struct weir *weir, struct weir_ref ref,
                           const struct weir_algorithm_ask *ask,
                           struct weir_permit_record *out_record,
                           struct weir_reply *reply, struct weir_call *call)
{
    struct asking asking = { .weir = weir,
                             .stripe = weir_stripe_mine(weir),
                             .charge_record = { .record = out_record },
                             .reply = reply,
                             .call = call };
    unsigned outcome = begin_exact(&asking, ref, ask);
    if (outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_LIMITED))
        return outcome;
    weir_assert(asking.charge_record.links <= WEIR_DEPTH_MAX);
    asking.ask = asking.charge_record.ask;
    if (ask->permit != 0)
        weir_exact_leave_late(weir);
    return outcome | step_stores(&asking);
}

uint64_t weir_exact_permit(struct weir *weir)
{
    static const uint64_t stride = 0x9e3779b97f4a7c15ull;
    uint64_t *drawn = &weir->exact.drawn;
    uint64_t id;
    do {
        struct weir_rng rng = { weir_fetch_add(drawn, stride) };
        id = weir_rng_next(&rng);
    } while (id == 0 || id == UINT64_MAX);
    return id;
}
