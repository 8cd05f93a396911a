/* SPDX-License-Identifier: MIT
 * cli/replay_run.c - decides requests by quotas, in virtual time.
 *
 * Decisions are those of the table that every limiter has, each at the instant
 * of its request; this file counts them. A name is looked up once: from then on
 * its request is a number, its slot in the table a ref, and its chain a short
 * list of quotas. */

#include "cli/replay.h"

#include <string.h>

#include "lab/memory.h"

#define MINUTE (60 * WEIR_SECOND)
#define NOBODY (-1)

/* A name after its look-up. */
struct known {
    struct weir_ref ref;
    bool looked_up, unknown;
    uint8_t links;
    int *chain; /* owned: of quotas, from the name up */
};

struct run {
    const struct weir_replay_log *log;
    const struct weir_replay_set *set;
    struct weir_replay_result *result;
    struct weir_replay_table replayed;
    struct weir_table *table; /* the same */
    uint32_t stripe;
    struct known *known; /* of each key */
    int *quota_of_slot;  /* -2: not known yet */
};

static void look_up_key(struct run *run, struct known *known,
                        struct weir_text name, weir_instant now)
{
    struct weir_replay_link links[WEIR_DEPTH_MAX];
    enum weir_resolved how =
        weir_table_resolve(run->table, name, false, &known->ref, now);
    known->unknown = how == WEIR_RESOLVED_NONE;
    if (known->looked_up)
        return;
    run->result->crowded +=
        how == WEIR_RESOLVED_FULL || how == WEIR_RESOLVED_CHAIN;
    known->looked_up = true;
    known->links = (uint8_t)weir_replay_chain(run->set, name, links);
    known->chain = weir_must_zeroed(known->links, sizeof *known->chain);
    for (size_t i = 0; i < known->links; i++)
        known->chain[i] = links[i].quota;
}

/* The quota that a reply names, by its name or its template's. */
static int find_replay_quota(struct run *run, const struct weir_reply *reply)
{
    struct weir_text name = { reply->quota, reply->quota_len };
    struct weir_ref ref;
    if (!weir_table_find(run->table, name, &ref) ||
        ref.slot >= run->replayed.slots)
        return NOBODY;
    int *quota = &run->quota_of_slot[ref.slot];
    if (*quota > NOBODY - 1)
        return *quota;
    char buf[WEIR_NAME_MAX + 1];
    uint32_t above = weir_table_template_of(run->table, ref.slot);
    if (above != WEIR_SLOT_NONE)
        name =
            (struct weir_text){ buf, weir_table_name(run->table, above, buf) };
    *quota = weir_replay_set_find(run->set, name);
    return *quota;
}

/* ---- Counting ---- */

static size_t replay_bin(const struct weir_replay_result *result,
                         weir_instant at)
{
    weir_assert(at >= result->begin && at <= result->end);
    weir_duration span = result->end - result->begin + 1;
    return (size_t)((weir_u128)(at - result->begin) * WEIR_REPLAY_BINS / span);
}

static void count_refused(struct weir_replay_count *count, uint32_t weight,
                          size_t bin, weir_instant at)
{
    weir_assert(bin < WEIR_REPLAY_BINS);
    /* The minute of the request before ends here if this request is in
     * another. */
    if (count->refused == 0 || count->last / MINUTE != at / MINUTE)
        count->minute_refused = 0;
    count->minute_refused++;
    if (count->minute_refused > count->worst_refused) {
        count->worst_refused = count->minute_refused;
        count->worst = at / MINUTE * MINUTE;
    }
    count->first = count->refused == 0 ? at : count->first;
    count->last = at;
    count->refused++;
    count->units += weight;
    count->refused_in[bin]++;
}

/* The quota that most of a client's refusals came from, if one had half of
 * them: each refusal by another takes a vote away. */
static void vote_for_quota(struct weir_replay_client *client, int quota)
{
    if (client->votes == 0)
        client->mostly = quota;
    if (client->mostly == quota)
        client->votes++;
    else
        client->votes--;
}

static void count_decision(struct run *run, size_t index,
                           const struct known *known, bool limited,
                           const struct weir_reply *reply)
{
    const struct weir_replay_request *request = &run->log->requests[index];
    struct weir_replay_result *result = run->result;
    struct weir_replay_client *client = &result->clients[request->client];
    size_t bin = replay_bin(result, request->at);
    result->all.asked++;
    result->all.asked_in[bin]++;
    client->asked++;
    for (size_t i = 0; i < known->links; i++) {
        if (known->chain[i] < 0)
            continue;
        result->quotas[known->chain[i]].asked++;
        result->quotas[known->chain[i]].asked_in[bin]++;
    }
    result->unknown += known->unknown;
    result->shadow += !limited && reply->shadow;
    if (!limited)
        return;
    int quota = find_replay_quota(run, reply);
    count_refused(&result->all, request->weight, bin, request->at);
    if (quota >= 0)
        count_refused(&result->quotas[quota], request->weight, bin,
                      request->at);
    result->refused[index / 8] |= (uint8_t)(1u << (index % 8));
    client->refused++;
    weir_assert(client->refused <= client->asked);
    vote_for_quota(client, quota);
}

/* ---- Deciding ---- */

static void replay_one(struct run *run, size_t index)
{
    const struct weir_replay_request *request = &run->log->requests[index];
    struct known *known = &run->known[request->key];
    struct weir_reply reply;
    if (request->at >= run->replayed.zones_until)
        weir_replay_table_zones(&run->replayed, request->at);
    if (!known->looked_up)
        look_up_key(run, known, run->log->keys.items[request->key],
                    request->at);
    unsigned outcome = 0;
    reply.shadow = false;
    if (!known->unknown)
        outcome = weir_table_take(run->table, run->stripe, known->ref,
                                  request->weight, &reply, request->at);
    if (outcome & WEIR_OUTCOME_STALE_REF) {
        look_up_key(run, known, run->log->keys.items[request->key],
                    request->at);
        outcome = weir_table_take(run->table, run->stripe, known->ref,
                                  request->weight, &reply, request->at);
    }
    count_decision(run, index, known, outcome & WEIR_OUTCOME_LIMITED, &reply);
}

static int by_refused(const void *a, const void *b)
{
    const struct weir_replay_client *x = a, *y = b;
    if (x->refused != y->refused)
        return x->refused < y->refused ? 1 : -1;
    if (x->asked != y->asked)
        return x->asked < y->asked ? 1 : -1;
    return (x->client > y->client) - (x->client < y->client);
}

static void result_init(struct weir_replay_result *result,
                        const struct weir_replay_log *log,
                        const struct weir_replay_set *set)
{
    weir_assert(log->count > 0);
    *result = (struct weir_replay_result){
        .set = set,
        .quotas = weir_must_zeroed(set->count, sizeof *result->quotas),
        .clients =
            weir_must_zeroed(log->clients.count, sizeof *result->clients),
        .client_count = log->clients.count,
        .refused = weir_must_zeroed(log->count / 8 + 1, 1),
        .begin = log->requests[0].at,
        .end = log->requests[log->count - 1].at,
    };
    for (uint32_t i = 0; i < result->client_count; i++) {
        result->clients[i].client = i;
        result->clients[i].mostly = NOBODY;
    }
}

int weir_replay_run(const struct weir_replay_log *log,
                    const struct weir_replay_set *set, uint64_t seed,
                    struct weir_replay_result *out)
{
    result_init(out, log, set);
    struct run run = { .log = log, .set = set, .result = out };
    weir_replay_table_init(&run.replayed, set->quotas, set->count,
                           log->keys.count, seed, out->begin);
    run.table = run.replayed.table;
    run.stripe = run.replayed.stripe;
    run.known = weir_must_zeroed(log->keys.count, sizeof *run.known);
    run.quota_of_slot =
        weir_must(malloc(run.replayed.slots * sizeof *run.quota_of_slot));
    for (uint32_t i = 0; i < run.replayed.slots; i++)
        run.quota_of_slot[i] = NOBODY - 1;
    for (size_t i = 0; i < log->count; i++)
        replay_one(&run, i);
    qsort(out->clients, out->client_count, sizeof *out->clients, by_refused);
    for (uint32_t i = 0; i < log->keys.count; i++)
        free(run.known[i].chain);
    free(run.known);
    free(run.quota_of_slot);
    weir_replay_table_fini(&run.replayed);
    return 0;
}

void weir_replay_result_fini(struct weir_replay_result *result)
{
    free(result->quotas);
    free(result->clients);
    free(result->refused);
}

uint64_t weir_replay_only(const struct weir_replay_result *a,
                          const struct weir_replay_result *b, size_t count)
{
    uint64_t only = 0;
    for (size_t i = 0; i < count / 8 + 1; i++)
        only += (uint64_t)__builtin_popcount(a->refused[i] &
                                             (uint8_t)~b->refused[i]);
    return only;
}
