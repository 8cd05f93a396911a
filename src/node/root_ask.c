/* SPDX-License-Identifier: MIT
 * node/root_ask.c - steps of exact quotas that this root makes.
 *
 * A quota's meter is made at the first ask and is this root's alone: whoever
 * asks gets the answer of one meter, by this root's own catalog and clock. An
 * ask is taken once (its number is above all that were taken in its session)
 * and answered once; what isn't answered at once, because there are too many
 * answers to be said already, isn't taken either.
 *
 * A rule is looked up at each ask, and what has changed since the last is made
 * good then: a quota that was removed and made again begins anew, an edit
 * carries what was used. So no edit walks over meters, and one of a quota that
 * nobody asks for costs nothing.
 *
 * A sweep forgets meters that are as good as new, and those of quotas that are
 * gone. When memory is short although, a new name is refused a meter and its
 * limiters go by on_stale: to forget one that is in use would be to admit its
 * limit twice.
 *
 * A region's root keeps no meters: it hands asks to the roots above, so that
 * there is one meter for all regions. */

#include <string.h>

#include "base/hash.h"
#include "node/root_state.h"
#include "quota/quota_meter.h"

/* Meters looked at when a new one finds no room; in vain, new ones are refused
 * without a look for a while, or a flood of names would have all the time. */
#define SEEK_ROOM 1024
#define BARREN (100 * WEIR_MILLISECOND)

/* ---- Meters by name ---- */

static struct weir_text name_of(const struct root_meter *meter)
{
    return (struct weir_text){ meter->name, meter->name_len };
}

static bool find(const struct root_asks *asks, struct weir_text name,
                 uint64_t hash, uint32_t *out_index)
{
    size_t cursor = 0;
    while (weir_index_find(&asks->index, hash, &cursor, out_index)) {
        if (weir_text_equal(name_of(asks->meters[*out_index]), name))
            return true;
    }
    return false;
}

static void free_block(struct weir_root *root, struct root_meter *meter)
{
    root->asks.bytes -= meter->size;
    root->mem.free(root->mem.context, meter, meter->size);
}

static void forget(struct weir_root *root, uint32_t index)
{
    struct root_asks *asks = &root->asks;
    struct root_meter *meter = asks->meters[index];
    weir_index_remove(&asks->index, meter->hash, index);
    free_block(root, meter);
    asks->meters[index] = NULL;
    asks->live--;
}

void weir_root_asks_fini(struct weir_root *root)
{
    struct root_asks *asks = &root->asks;
    for (uint32_t i = 0; i < asks->used; i++) {
        if (asks->meters[i])
            free_block(root, asks->meters[i]);
    }
    root->mem.free(root->mem.context, asks->meters,
                   asks->capacity * sizeof(*asks->meters));
    weir_index_fini(&asks->index, &root->mem);
}

/* ---- Rules ---- */

/* Nobody's wall clock but a calendar's: one that is set would else empty
 * buckets, or stop them. */
static weir_instant clock_of(const struct root_asks *asks,
                             const struct weir_meter_rule *rule,
                             weir_instant now)
{
    return now +
           (rule->calendar == WEIR_CALENDAR_NONE ? asks->aligned : asks->wall);
}

/* The quota that this root decides; NULL: there is none. */
static const struct weir_quota *quota_of(const struct weir_root *root,
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

static int32_t offset_of(const struct root_asks *asks,
                         const struct weir_quota *quota)
{
    int32_t offset_s = 0;
    if (weir_tz_fixed(quota->tz, &offset_s) || !asks->zone_of.offset_s)
        return offset_s;
    return asks->zone_of.offset_s(asks->zone_of.context, quota->tz);
}

/* A fresh meter of the quota, not in the index yet; NULL: no room. 'spared':
 * bytes that it takes the place of. */
static struct root_meter *make(struct weir_root *root, struct weir_text name,
                               const struct weir_quota *quota, size_t spared)
{
    struct root_asks *asks = &root->asks;
    struct weir_meter_rule rule;
    weir_quota_meter(quota, offset_of(asks, quota), &rule);
    size_t size = sizeof(struct root_meter) + weir_meter_size(&rule);
    if (asks->bytes - spared + size > WEIR_ROOT_METER_BYTES)
        return NULL;
    struct root_meter *meter = root->mem.alloc(root->mem.context, size);
    if (!meter)
        return NULL;
    asks->bytes += size;
    meter->hash = weir_hash(name, root->seed);
    meter->created = quota->created;
    meter->epoch = quota->epoch;
    meter->zones = asks->zones;
    meter->size = (uint32_t)size;
    meter->rule = rule;
    meter->name_len = (uint8_t)name.len;
    memcpy(meter->name, name.p, name.len);
    return meter;
}

/* False: no room. */
static bool add(struct weir_root *root, struct root_meter *meter,
                uint32_t *out_index)
{
    struct root_asks *asks = &root->asks;
    uint32_t index = asks->used;
    for (uint32_t i = 0; asks->live < asks->used && i < asks->used; i++) {
        if (!asks->meters[i]) {
            index = i;
            break;
        }
    }
    struct root_meter **meters =
        weir_mem_grow(&root->mem, asks->meters, sizeof(struct root_meter *),
                      &asks->capacity, index + 1);
    if (!meters)
        return false;
    asks->meters = meters;
    if (weir_index_add(&asks->index, &root->mem, meter->hash, index) < 0)
        return false;
    asks->used += index == asks->used;
    asks->meters[index] = meter;
    asks->live++;
    *out_index = index;
    return true;
}

/* The quota's meter as it is now; NULL: no room for it. */
static struct root_meter *begin(struct weir_root *root, struct weir_text name,
                                const struct weir_quota *quota,
                                weir_instant now)
{
    uint32_t index;
    struct root_meter *meter = make(root, name, quota, 0);
    if (!meter && now >= root->asks.barren_till) {
        weir_root_sweep_meters(root, SEEK_ROOM, now);
        meter = make(root, name, quota, 0);
        if (!meter)
            root->asks.barren_till = now + BARREN;
    }
    if (!meter)
        return NULL;
    if (add(root, meter, &index))
        return meter;
    free_block(root, meter);
    return NULL;
}

/* The quota has changed: what was used stays used. Without room for the new
 * state the old one decides on. */
static struct root_meter *carry(struct weir_root *root, uint32_t index,
                                const struct weir_quota *quota,
                                weir_instant now)
{
    struct root_meter *before = root->asks.meters[index];
    struct root_meter *meter = make(root, name_of(before), quota, before->size);
    if (!meter)
        return before;
    weir_meter_carry(&before->rule, before->state, &meter->rule, meter->state,
                     clock_of(&root->asks, &meter->rule, now));
    root->asks.meters[index] = meter;
    free_block(root, before);
    return meter;
}

static struct root_meter *meter_of(struct weir_root *root,
                                   struct weir_text name,
                                   const struct weir_quota *quota,
                                   weir_instant now)
{
    struct root_asks *asks = &root->asks;
    uint32_t index;
    if (!find(asks, name, weir_hash(name, root->seed), &index))
        return begin(root, name, quota, now);
    struct root_meter *meter = asks->meters[index];
    if (meter->created != quota->created) {
        forget(root, index);
        return begin(root, name, quota, now);
    }
    if (meter->epoch != quota->epoch)
        return carry(root, index, quota, now);
    if (meter->zones != asks->zones && meter->rule.calendar)
        meter->rule.utc_offset_s = offset_of(asks, quota);
    meter->zones = asks->zones;
    return meter;
}

/* ---- Asks ---- */

static struct weir_step_answer *answer_place(struct weir_root *root,
                                             struct root_peer *peer)
{
    struct weir_step_answer *answers =
        weir_mem_grow(&root->mem, peer->answers, sizeof(*answers),
                      &peer->answer_capacity, peer->answer_count + 1);
    if (!answers)
        return NULL;
    peer->answers = answers;
    return &answers[peer->answer_count];
}

static enum weir_step_error decide(struct weir_root *root,
                                   const struct weir_step_ask *ask,
                                   struct weir_meter_answer *out,
                                   weir_instant now)
{
    const struct weir_quota *quota = quota_of(root, ask->name);
    if (!quota)
        return WEIR_STEP_UNKNOWN;
    struct root_meter *meter = meter_of(root, ask->name, quota, now);
    if (!meter)
        return WEIR_STEP_NO_ROOM;
    weir_meter_step(&meter->rule, meter->state, &ask->ask, out,
                    clock_of(&root->asks, &meter->rule, now));
    return WEIR_STEP_ANSWERED;
}

/* Whether the answer is here already. */
static bool answer(struct weir_root *root, uint32_t index,
                   const struct weir_step_ask *ask,
                   struct weir_step_answer *out, weir_instant now)
{
    const struct weir_root_relay *relay = &root->asks.relay;
    *out = (struct weir_step_answer){ .number = ask->number };
    if (!weir_root_names_may(root, index, ask->name, now)) {
        out->error = WEIR_STEP_DENIED;
        return true;
    }
    if (!relay->ask) {
        out->error = decide(root, ask, &out->answer, now);
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
    for (size_t i = 0; i < asks->count; i++)
        weir_root_names_come(root, index, asks->asks[i].name);
    for (size_t i = 0; i < asks->count; i++) {
        const struct weir_step_ask *ask = &asks->asks[i];
        if (ask->number <= peer->asked || peer->answer_count == WEIR_ASKS_MAX) {
            root->stats.asks_dropped++;
            continue;
        }
        struct weir_step_answer *place = answer_place(root, peer);
        if (!place)
            return WEIR_ENOMEM;
        peer->asked = ask->number;
        if (!answer(root, index, ask, place, now)) {
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

/* Without memory for it, it is lost, as on the way. */
void weir_root_answer(struct weir_root *root, uint32_t index, uint64_t session,
                      const struct weir_step_answer *said)
{
    weir_assert(index < root->peers_max);
    struct root_peer *peer = &root->peers[index];
    if (!peer->greeted || peer->session != session ||
        peer->answer_count == WEIR_ASKS_MAX)
        return;
    struct weir_step_answer *place = answer_place(root, peer);
    if (!place)
        return;
    *place = *said;
    peer->answer_count++;
    weir_root_enqueue(root, index);
}

void weir_root_say_answers(struct root_peer *peer, struct weir_message *out)
{
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

/* A quota that isn't here yet may still come, with a set that isn't settled. */
static bool is_nobodys(const struct weir_root *root,
                       const struct root_meter *meter)
{
    if (!root->ready)
        return false;
    const struct weir_quota *quota = quota_of(root, name_of(meter));
    return !quota || quota->created != meter->created;
}

static bool is_idle(const struct root_asks *asks,
                    const struct root_meter *meter, weir_instant now)
{
    weir_instant at = clock_of(asks, &meter->rule, now);
    return weir_meter_idle_at(&meter->rule, meter->state, at) <= at;
}

void weir_root_sweep_meters(struct weir_root *root, uint32_t work,
                            weir_instant now)
{
    struct root_asks *asks = &root->asks;
    for (uint32_t i = 0; i < work && i < asks->used; i++) {
        if (asks->hand >= asks->used)
            asks->hand = 0;
        uint32_t index = asks->hand++;
        const struct root_meter *meter = asks->meters[index];
        if (meter && (is_nobodys(root, meter) || is_idle(asks, meter, now)))
            forget(root, index);
    }
}
