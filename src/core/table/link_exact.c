/* SPDX-License-Identifier: MIT
 * table/link_exact.c - charge records, for chains that aren't decided here
 * alone.
 *
 * Links that a store counts come last: a refusal by this process then costs no
 * round trip, and a charge in a store is hard to take back. Everything else is
 * charged first, and a charge record lists it, for the case that a store
 * refuses. By then some milliseconds have passed: a slot may have ended its
 * life, and an edit may have given it another bucket state. Units are given
 * back only if generation and serial still match, and those of a bucket state
 * only if it isn't locked: an undo doesn't wait, and the units stay charged as
 * those of a request that passed.
 *
 * A quota that shares its limit while its store is away has a bucket state for
 * that. Its rule is the quota's own, divided by the number of limiters that do
 * the same, as last received from the roots; whenever that number changes, a
 * bucket is carried over to its new rate. */

#include "core/table/link_exact.h"

#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_stripe_internal.h"
#include "core/table/table_walk_internal.h"

#include <string.h>

/* ---- Begin ---- */

/* Whether the chain is as it was walked: then the generations are, too. */
static bool is_as_walked(const struct weir_table *t, const struct walk *walk)
{
    for (uint32_t i = 0; i + 1 < walk->links; i++) {
        uint64_t up = weir_load(&weir_hot(t, walk->slot[i])->up);
        if ((uint32_t)up != walk->slot[i + 1])
            return false;
    }
    return weir_ref_is_live(t, walk->ref);
}

static void write_charge_record(const struct weir_table *t,
                                const struct walk *walk,
                                const struct weir_algorithm_ask *ask,
                                struct weir_charge_record *charge_record)
{
    weir_assert(walk->links > 0 && walk->links <= WEIR_DEPTH_MAX);
    *charge_record = (struct weir_charge_record){
        .ref = walk->ref,
        .ask = *ask,
        .stripe = walk->stripe,
        .record = walk->record,
        .links = walk->links,
        .away = walk->away,
        .quiet = walk->quiet & walk->away,
    };
    for (uint32_t i = 0; i < walk->links; i++) {
        charge_record->slot[i] = walk->slot[i];
        charge_record->serial[i] = walk->serial[i];
        charge_record->paid[i] = walk->paid[i];
        charge_record->generation[i] =
            weir_load(&weir_hot(t, walk->slot[i])->generation);
    }
    if (ask->op != WEIR_ALGORITHM_TAKE && ask->op != WEIR_ALGORITHM_RESERVE)
        return;
    charge_record->stepped = walk->stepped;
    /* Otherwise it is unknown which slots have the count: it stays. */
    if (is_as_walked(t, walk))
        charge_record->charged = walk->counted;
    weir_assert(
        (charge_record->charged | charge_record->stepped) >> walk->links == 0);
}

unsigned weir_table_begin(struct weir_table *t, uint32_t stripe,
                          struct weir_ref ref,
                          const struct weir_algorithm_ask *ask,
                          struct weir_charge_record *charge_record,
                          struct weir_reply *reply, weir_instant now)
{
    struct walk walk = { .links = 0 };
    weir_walk_of(&walk, stripe, ref, now);
    walk.whole = true;
    walk.record = charge_record->record;
    unsigned outcome = weir_walk_answer(t, &walk, ask, reply);
    if (outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_CONTENDED))
        return outcome;
    if (outcome & WEIR_OUTCOME_LIMITED)
        *charge_record = (struct weir_charge_record){ .ref = ref,
                                                      .ask = *ask,
                                                      .record = walk.record };
    else
        write_charge_record(t, &walk, ask, charge_record);
    return outcome;
}

/* ---- Undo ---- */

static bool link_lives(const struct weir_table *t,
                       const struct weir_charge_record *charge_record,
                       uint32_t i)
{
    return weir_load(&weir_hot(t, charge_record->slot[i])->generation) ==
           charge_record->generation[i];
}

/* As in a take: first the count, then a check whether the slot is still in the
 * same life. */
static void give_back_count(struct weir_table *t,
                            const struct weir_charge_record *charge_record,
                            uint32_t i)
{
    uint64_t *count = &weir_hot(t, charge_record->slot[i])->count;
    if (!(charge_record->charged >> i & 1) || !link_lives(t, charge_record, i))
        return;
    weir_fetch_sub(count, charge_record->ask.weight);
    if (link_lives(t, charge_record, i))
        weir_slot_mark(t, charge_record->slot[i]);
    else
        weir_fetch_add(count, charge_record->ask.weight);
}

unsigned weir_table_undo(struct weir_table *t,
                         const struct weir_charge_record *charge_record,
                         weir_instant now)
{
    weir_assert(charge_record->links <= WEIR_DEPTH_MAX);
    weir_assert((charge_record->charged | charge_record->stepped) >>
                    charge_record->links ==
                0);
    struct walk walk = { .links = charge_record->links };
    weir_walk_of(&walk, charge_record->stripe, charge_record->ref, now);
    walk.record = charge_record->record;
    walk.stepped = charge_record->stepped;
    memcpy(walk.slot, charge_record->slot, sizeof(walk.slot));
    memcpy(walk.serial, charge_record->serial, sizeof(walk.serial));
    memcpy(walk.paid, charge_record->paid, sizeof(walk.paid));
    for (uint32_t i = 0; i < charge_record->links; i++)
        give_back_count(t, charge_record, i);
    uint32_t stepped = walk.stepped;
    walk.stepped = 0;
    weir_walk_undo(t, &walk, &charge_record->ask);
    for (uint32_t i = 0; i < walk.links; i++) {
        if (!(stepped >> i & 1))
            continue;
        walk.stepped |= 1u << i;
        weir_link_state_give_back(t, &walk, i, &charge_record->ask);
    }
    return walk.kick;
}

void weir_table_count_refused(struct weir_table *t, uint32_t stripe,
                              struct weir_charge_record *charge_record,
                              uint32_t link)
{
    weir_assert(link < charge_record->links);
    const uint32_t *slot = charge_record->slot;
    if (!(charge_record->quiet >> link & 1)) {
        weir_stripe_refuse_links(t, stripe, slot, 1u | 1u << link,
                                 charge_record->ask.weight);
        return;
    }
    give_back_count(t, charge_record, link);
    charge_record->charged &= ~(1u << link);
    weir_stripe_refuse_links(t, stripe, slot, 1u << link,
                             charge_record->ask.weight);
}

/* ---- Requests to a store ---- */

static bool away_locked(const struct bucket_rule *of, struct weir_away *out)
{
    if (!of || of->store_len == 0)
        return false;
    out->rule = of->rule;
    out->rule.utc_offset_s = of->zone_len ? weir_load_relaxed(&of->utc_offset_s)
                                          : of->rule.utc_offset_s;
    out->deadline = of->deadline;
    out->on_stale = (enum weir_on_stale)of->on_stale;
    out->store_len = of->store_len;
    memcpy(out->store, of->text, of->store_len);
    out->store[of->store_len] = '\0';
    return true;
}

/* The slot keeps its name as long as it has units in flight. */
int weir_table_away_record(struct weir_table *t, uint32_t stripe, uint32_t slot,
                           struct weir_away *out, unsigned *out_wake)
{
    if (!weir_bucket_state_lock(t, slot, stripe, LOCK_AWAITED))
        return WEIR_ETIMEOUT;
    bool away = away_locked(weir_bucket_state_rule(t, slot), out);
    *out_wake |= weir_bucket_state_unlock(t, slot);
    if (!away)
        return WEIR_ENOENT;
    out->name_len = (uint8_t)weir_table_name(t, slot, out->name);
    return WEIR_OK;
}

int weir_table_away(struct weir_table *t,
                    const struct weir_charge_record *charge_record,
                    uint32_t link, struct weir_away *out, unsigned *out_wake)
{
    weir_assert(link < charge_record->links);
    int error = weir_table_away_record(
        t, charge_record->stripe, charge_record->slot[link], out, out_wake);
    return error < 0 || link_lives(t, charge_record, link) ? error
                                                           : WEIR_ENOENT;
}

bool weir_table_away_is_overdue(const struct weir_table *t,
                                const struct weir_charge_record *charge_record,
                                uint32_t link)
{
    weir_assert(link < charge_record->links);
    return weir_bucket_state_is_overdue(t, charge_record->slot[link]);
}

void weir_table_away_set_overdue(struct weir_table *t,
                                 const struct weir_charge_record *charge_record,
                                 uint32_t link)
{
    weir_assert(link < charge_record->links);
    weir_lock_set_overdue(
        &weir_bucket_state(t, charge_record->slot[link])->lock);
}

/* ---- In place of a store ---- */

static void share_bucket(struct weir_bucket *bucket, uint32_t limiters)
{
    weir_assert(limiters > 0);
    int64_t one = (int64_t)1 << bucket->leak.frac;
    weir_u128 rate =
        ((weir_u128)bucket->leak.whole << 64 | bucket->leak.part) / limiters;
    bucket->leak.whole = (uint8_t)(rate >> 64);
    bucket->leak.part = (uint64_t)rate;
    int64_t high = bucket->high / limiters;
    if (high < one && bucket->high >= one)
        high = one;
    bucket->low = bucket->high = high;
    weir_assert(bucket->low <= bucket->high);
}

void weir_algorithm_rule_share(struct weir_algorithm_rule *rule,
                               uint32_t limiters)
{
    if (limiters <= 1)
        return;
    if (rule->quantity > 0)
        rule->quantity =
            rule->quantity > limiters ? rule->quantity / limiters : 1;
    if (rule->initial > 0)
        rule->initial /= limiters;
    for (int i = 0; i < rule->buckets; i++)
        share_bucket(&rule->bucket[i].bucket, limiters);
}

/* A bucket's words mean something at one rate only. Windows count units. */
static void carry_shared(const struct weir_algorithm_rule *whole,
                         struct shared *state,
                         const struct weir_algorithm_rule *to, weir_instant now)
{
    weir_assert(state->limiters <= UINT32_MAX);
    uint64_t words[WEIR_BUCKETS_MAX] = { 0 };
    size_t bytes = weir_algorithm_size(to);
    bool is_bucket = to->quantity == 0 && bytes <= sizeof(words);
    if (state->limiters == 0 || !is_bucket)
        return;
    struct weir_algorithm_rule from = *whole;
    weir_algorithm_rule_share(&from, (uint32_t)state->limiters);
    weir_algorithm_carry(&from, state + 1, to, words, now);
    memcpy(state + 1, words, bytes);
}

static void step_shared_locked(const struct bucket_rule *of,
                               struct shared *state, uint32_t limiters,
                               const struct weir_algorithm_ask *ask,
                               struct weir_algorithm_answer *out,
                               weir_instant now)
{
    weir_assert(limiters > 0);
    weir_assert(of->store_len > 0);
    struct weir_algorithm_rule rule = of->rule;
    if (of->zone_len)
        rule.utc_offset_s = weir_load_relaxed(&of->utc_offset_s);
    weir_algorithm_rule_share(&rule, limiters);
    if (state->limiters != limiters)
        carry_shared(&of->rule, state, &rule, now);
    state->limiters = limiters;
    weir_algorithm_step(&rule, state + 1, ask, out, now);
    weir_assert(state->limiters == limiters);
}

int weir_table_step_shared(struct weir_table *t,
                           const struct weir_charge_record *charge_record,
                           uint32_t link, uint32_t limiters,
                           const struct weir_algorithm_ask *ask,
                           struct weir_algorithm_answer *out,
                           unsigned *out_wake, weir_instant now)
{
    weir_assert(link < charge_record->links);
    uint32_t slot = charge_record->slot[link];
    if (!weir_bucket_state_lock(t, slot, charge_record->stripe, LOCK_AWAITED))
        return WEIR_ETIMEOUT;
    const struct bucket_rule *of = weir_bucket_state_rule(t, slot);
    struct shared *state = weir_bucket_state_state(t, slot);
    bool can =
        of && of->store_len > 0 && of->on_stale == WEIR_STALE_SHARE && state;
    if (can)
        step_shared_locked(of, state, limiters > 0 ? limiters : 1, ask, out,
                           weir_bucket_state_now(t, &of->rule, now));
    *out_wake |= weir_bucket_state_unlock(t, slot);
    return can && link_lives(t, charge_record, link) ? WEIR_OK : WEIR_ENOENT;
}
