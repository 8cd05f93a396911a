/* SPDX-License-Identifier: MIT
 * node/root_ask.c - steps of exact quotas kept by this root.
 *
 * A bucket state is made at the first ask and belongs to this root alone: every
 * client gets the answer of one state, by this root's own catalog and clock. An
 * ask is taken once (its number is above all taken in its session) and answered
 * once. If there are already too many answers to send, an ask is not taken.
 *
 * The rule is looked up at each ask, and changes since the last ask are applied
 * then: a quota that was removed and recreated begins anew; an edit keeps the
 * used amount. So an edit walks over no bucket states, and costs nothing if the
 * quota isn't used.
 *
 * A sweep forgets bucket states that are empty, and those of removed quotas. If
 * memory is still short, a new name gets no state and its limiters go by
 * on_stale: forgetting a state in use would pass its limit twice.
 *
 * A region's root keeps no bucket states: it relays asks to the roots above, so
 * that there is one state for all regions. */

#include <string.h>

#include "core/base/hash.h"
#include "core/node/root_state.h"
#include "core/quota/quota_bucket.h"

/* Bucket states looked at when a new one finds no room. If that frees none, new
 * ones are refused without a look for a while: a flood of names would otherwise
 * use all the time. */
#define SEEK_ROOM 1024
#define BARREN (100 * WEIR_MILLISECOND)

/* ---- Bucket states by name ---- */

static struct weir_text bucket_state_name(
    const struct root_bucket_state *bucket_state)
{
    return (struct weir_text){ bucket_state->name, bucket_state->name_len };
}

static bool find_bucket_state(const struct root_asks *asks,
                              struct weir_text name, uint64_t hash,
                              uint32_t *out_index)
{
    size_t cursor = 0;
    while (weir_index_find(&asks->index, hash, &cursor, out_index)) {
        if (weir_text_equal(bucket_state_name(asks->bucket_states[*out_index]),
                            name))
            return true;
    }
    return false;
}

static void free_block(struct weir_root *root,
                       struct root_bucket_state *bucket_state)
{
    weir_assert(root->asks.bytes >= bucket_state->size);
    root->asks.bytes -= bucket_state->size;
    root->mem.free(root->mem.context, bucket_state, bucket_state->size);
}

static void forget_bucket_state(struct weir_root *root, uint32_t index)
{
    struct root_asks *asks = &root->asks;
    struct root_bucket_state *bucket_state = asks->bucket_states[index];
    weir_assert(bucket_state && asks->live > 0);
    weir_index_remove(&asks->index, bucket_state->hash, index);
    free_block(root, bucket_state);
    asks->bucket_states[index] = NULL;
    asks->live--;
}

void weir_root_asks_fini(struct weir_root *root)
{
    struct root_asks *asks = &root->asks;
    for (uint32_t i = 0; i < asks->used; i++) {
        if (asks->bucket_states[i])
            free_block(root, asks->bucket_states[i]);
    }
    weir_assert(asks->bytes == 0);
    root->mem.free(root->mem.context, asks->bucket_states,
                   asks->capacity * sizeof(*asks->bucket_states));
    weir_index_fini(&asks->index, &root->mem);
}

/* ---- Rules ---- */

/* Only calendars use the current wall clock: setting the clock would empty or
 * stop the other buckets. */
static weir_instant rule_clock(const struct root_asks *asks,
                               const struct weir_algorithm_rule *rule,
                               weir_instant now)
{
    return now +
           (rule->calendar == WEIR_CALENDAR_NONE ? asks->aligned : asks->wall);
}

/* The exact quota that this root keeps; NULL: none. */
static const struct weir_quota *exact_quota(const struct weir_root *root,
                                            struct weir_text name)
{
    struct weir_captures captures;
    if (!root->ready)
        return NULL;
    const struct weir_quota *quota =
        weir_catalog_find(root->catalog, name, &captures);
    bool ours = quota && quota->sharing == WEIR_EXACT &&
                (quota->store.len == 0 ||
                 weir_text_equal(quota->store, WEIR_TEXT("root")));
    return ours ? quota : NULL;
}

static int32_t zone_offset(const struct root_asks *asks,
                           const struct weir_quota *quota)
{
    int32_t offset_s = 0;
    if (weir_tz_fixed(quota->tz, &offset_s) || !asks->zone_of.offset_s)
        return offset_s;
    return asks->zone_of.offset_s(asks->zone_of.context, quota->tz);
}

/* A new bucket state of the quota, not in the index yet; NULL: no room.
 * 'spared': bytes of the state that it replaces. */
static struct root_bucket_state *make_bucket_state(
    struct weir_root *root, struct weir_text name,
    const struct weir_quota *quota, size_t spared)
{
    weir_assert(root->asks.bytes >= spared && name.len <= WEIR_NAME_MAX);
    struct root_asks *asks = &root->asks;
    struct weir_algorithm_rule rule;
    weir_quota_algorithm_rule(quota, zone_offset(asks, quota), &rule);
    size_t size = sizeof(struct root_bucket_state) + weir_algorithm_size(&rule);
    if (asks->bytes - spared + size > WEIR_ROOT_BUCKET_STATE_BYTES)
        return NULL;
    struct root_bucket_state *bucket_state =
        root->mem.alloc(root->mem.context, size);
    if (!bucket_state)
        return NULL;
    asks->bytes += size;
    bucket_state->hash = weir_hash(name, root->seed);
    bucket_state->created = quota->created;
    bucket_state->epoch = quota->epoch;
    bucket_state->zones = asks->zones;
    bucket_state->size = (uint32_t)size;
    bucket_state->rule = rule;
    bucket_state->name_len = (uint8_t)name.len;
    memcpy(bucket_state->name, name.p, name.len);
    return bucket_state;
}

/* False: no room. */
static bool enter_bucket_state(struct weir_root *root,
                               struct root_bucket_state *bucket_state,
                               uint32_t *out_index)
{
    struct root_asks *asks = &root->asks;
    uint32_t index = asks->used;
    for (uint32_t i = 0; asks->live < asks->used && i < asks->used; i++) {
        if (!asks->bucket_states[i]) {
            index = i;
            break;
        }
    }
    struct root_bucket_state **bucket_states = weir_mem_grow(
        &root->mem, asks->bucket_states, sizeof(struct root_bucket_state *),
        &asks->capacity, index + 1);
    if (!bucket_states)
        return false;
    asks->bucket_states = bucket_states;
    if (weir_index_add(&asks->index, &root->mem, bucket_state->hash, index) < 0)
        return false;
    weir_assert(index <= asks->used && !asks->bucket_states[index]);
    asks->used += index == asks->used;
    asks->bucket_states[index] = bucket_state;
    asks->live++;
    weir_assert(asks->live <= asks->used);
    *out_index = index;
    return true;
}

/* Makes the quota's bucket state; NULL: no room for it. */
static struct root_bucket_state *begin_bucket_state(
    struct weir_root *root, struct weir_text name,
    const struct weir_quota *quota, weir_instant now)
{
    uint32_t index;
    struct root_bucket_state *bucket_state =
        make_bucket_state(root, name, quota, 0);
    if (!bucket_state && now >= root->asks.barren_till) {
        weir_root_sweep_bucket_states(root, SEEK_ROOM, now);
        bucket_state = make_bucket_state(root, name, quota, 0);
        if (!bucket_state)
            root->asks.barren_till = now + BARREN;
    }
    if (!bucket_state)
        return NULL;
    weir_assert(bucket_state->created == quota->created);
    if (enter_bucket_state(root, bucket_state, &index))
        return bucket_state;
    free_block(root, bucket_state);
    return NULL;
}

/* Applies an edit: the used amount stays. Without room for the new state the
 * old one is used further. */
static struct root_bucket_state *carry_bucket_state(
    struct weir_root *root, uint32_t index, const struct weir_quota *quota,
    weir_instant now)
{
    struct root_bucket_state *before = root->asks.bucket_states[index];
    weir_assert(before && before->created == quota->created);
    struct root_bucket_state *bucket_state =
        make_bucket_state(root, bucket_state_name(before), quota, before->size);
    if (!bucket_state)
        return before;
    weir_algorithm_carry(&before->rule, before->state, &bucket_state->rule,
                         bucket_state->state,
                         rule_clock(&root->asks, &bucket_state->rule, now));
    root->asks.bucket_states[index] = bucket_state;
    free_block(root, before);
    return bucket_state;
}

static struct root_bucket_state *bucket_state_of(struct weir_root *root,
                                                 struct weir_text name,
                                                 const struct weir_quota *quota,
                                                 weir_instant now)
{
    struct root_asks *asks = &root->asks;
    uint32_t index;
    if (!find_bucket_state(asks, name, weir_hash(name, root->seed), &index))
        return begin_bucket_state(root, name, quota, now);
    struct root_bucket_state *bucket_state = asks->bucket_states[index];
    if (bucket_state->created != quota->created) {
        forget_bucket_state(root, index);
        return begin_bucket_state(root, name, quota, now);
    }
    if (bucket_state->epoch != quota->epoch)
        return carry_bucket_state(root, index, quota, now);
    if (bucket_state->zones != asks->zones && bucket_state->rule.calendar)
        bucket_state->rule.utc_offset_s = zone_offset(asks, quota);
    bucket_state->zones = asks->zones;
    weir_assert(bucket_state->created == quota->created);
    return bucket_state;
}

/* ---- Asks ---- */

static struct weir_step_answer *answer_place(struct weir_root *root,
                                             struct root_peer *peer)
{
    weir_assert(peer->answer_count < WEIR_ASKS_MAX);
    struct weir_step_answer *answers =
        weir_mem_grow(&root->mem, peer->answers, sizeof(*answers),
                      &peer->answer_capacity, peer->answer_count + 1);
    if (!answers)
        return NULL;
    peer->answers = answers;
    return &answers[peer->answer_count];
}

static enum weir_step_error step_bucket_state(struct weir_root *root,
                                              const struct weir_step_ask *ask,
                                              struct weir_algorithm_answer *out,
                                              weir_instant now)
{
    const struct weir_quota *quota = exact_quota(root, ask->name);
    if (!quota)
        return WEIR_STEP_UNKNOWN;
    struct root_bucket_state *bucket_state =
        bucket_state_of(root, ask->name, quota, now);
    if (!bucket_state)
        return WEIR_STEP_NO_ROOM;
    weir_algorithm_step(&bucket_state->rule, bucket_state->state, &ask->ask,
                        out, rule_clock(&root->asks, &bucket_state->rule, now));
    return WEIR_STEP_ANSWERED;
}

/* Whether there is an answer now. */
static bool answer_ask(struct weir_root *root, uint32_t index,
                       const struct weir_step_ask *ask,
                       struct weir_step_answer *out, weir_instant now)
{
    weir_assert(index < root->peers_max);
    const struct weir_root_relay *relay = &root->asks.relay;
    *out = (struct weir_step_answer){ .number = ask->number };
    if (!weir_root_names_may(root, index, ask->name, now)) {
        out->error = WEIR_STEP_DENIED;
        return true;
    }
    if (!relay->ask) {
        out->error = step_bucket_state(root, ask, &out->answer, now);
        return true;
    }
    int error =
        relay->ask(relay->context, index, root->peers[index].session, ask, now);
    if (error < 0)
        out->error = error == WEIR_EFULL ? WEIR_STEP_NO_ROOM : WEIR_STEP_AWAY;
    return error < 0;
}

int weir_root_take_asks(struct weir_root *root, uint32_t index,
                        const struct weir_asks *asks, weir_instant now)
{
    struct root_peer *peer = &root->peers[index];
    weir_assert(peer->greeted);
    for (size_t i = 0; i < asks->count; i++)
        weir_root_names_come(root, index, asks->asks[i].name);
    for (size_t i = 0; i < asks->count; i++) {
        const struct weir_step_ask *ask = &asks->asks[i];
        if (ask->number <= peer->last_ask ||
            peer->answer_count == WEIR_ASKS_MAX) {
            root->stats.asks_dropped++;
            continue;
        }
        struct weir_step_answer *place = answer_place(root, peer);
        if (!place)
            return WEIR_ENOMEM;
        peer->last_ask = ask->number;
        if (!answer_ask(root, index, ask, place, now)) {
            root->stats.asks++;
            continue;
        }
        peer->answer_count++;
        root->stats.asks += place->error == WEIR_STEP_ANSWERED;
        root->stats.asks_refused += place->error != WEIR_STEP_ANSWERED;
    }
    if (peer->answer_count > 0)
        weir_root_enqueue(root, index);
    return WEIR_OK;
}

/* Without memory the answer is lost, as on the way. */
void weir_root_answer(struct weir_root *root, uint32_t index, uint64_t session,
                      const struct weir_step_answer *answer)
{
    weir_assert(index < root->peers_max);
    struct root_peer *peer = &root->peers[index];
    if (!peer->greeted || peer->session != session ||
        peer->answer_count == WEIR_ASKS_MAX)
        return;
    struct weir_step_answer *place = answer_place(root, peer);
    if (!place)
        return;
    *place = *answer;
    peer->answer_count++;
    weir_root_enqueue(root, index);
}

void weir_root_write_answers(struct root_peer *peer, struct weir_message *out)
{
    weir_assert(peer->answer_count > 0);
    out->type = WEIR_MESSAGE_ANSWERS;
    out->answers = (struct weir_answers){ .count = peer->answer_count,
                                          .answers = peer->answers };
    peer->answer_count = 0;
}

/* ---- Time ---- */

void weir_root_set_wall(struct weir_root *root, uint64_t offset, bool zones)
{
    root->asks.wall = offset;
    if (root->asks.aligned == 0)
        root->asks.aligned = offset;
    root->asks.zones += zones;
}

/* While a set isn't settled, a missing quota may still come. */
static bool is_nobodys(const struct weir_root *root,
                       const struct root_bucket_state *bucket_state)
{
    weir_assert(bucket_state);
    if (!root->ready)
        return false;
    const struct weir_quota *quota =
        exact_quota(root, bucket_state_name(bucket_state));
    return !quota || quota->created != bucket_state->created;
}

static bool is_bucket_state_idle(const struct root_asks *asks,
                                 const struct root_bucket_state *bucket_state,
                                 weir_instant now)
{
    weir_instant at = rule_clock(asks, &bucket_state->rule, now);
    return weir_algorithm_idle_at(&bucket_state->rule, bucket_state->state,
                                  at) <= at;
}

void weir_root_sweep_bucket_states(struct weir_root *root, uint32_t work,
                                   weir_instant now)
{
    struct root_asks *asks = &root->asks;
    weir_assert(asks->live <= asks->used);
    for (uint32_t i = 0; i < work && i < asks->used; i++) {
        if (asks->hand >= asks->used)
            asks->hand = 0;
        uint32_t index = asks->hand++;
        const struct root_bucket_state *bucket_state =
            asks->bucket_states[index];
        if (bucket_state && (is_nobodys(root, bucket_state) ||
                             is_bucket_state_idle(asks, bucket_state, now)))
            forget_bucket_state(root, index);
    }
}
