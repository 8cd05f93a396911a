/* SPDX-License-Identifier: MIT
 * table/table_bucket_state.c - bucket states of several words.
 *
 * Most algorithms change several words at once, so their state is under a lock:
 * the one exception to "a decision takes none". No thread waits for a lock
 * (table_lock.c), so a request may hold those of its whole chain, and the
 * writer those of several slots, without a deadlock.
 *
 *     slot --> bucket state --where--> rule   of the quota, or of its template:
 *                         '----------> state  one for all instances; a state
 *                                             each
 *
 * The slot has META_BUCKET_STATE (META_AWAY: a store decides) and a bucket that
 * never refuses: 'count' then works as everywhere, and the fast path of a take
 * judges it HARD, as with any flag. Its bucket state has
 *
 *     lock     held by a request until it is charged or refused, or by the
 *              writer (it has seized the state) while it edits or frees the
 *              slot. It lies outside of the area, so that it stays a lock when
 *              rule and state are freed
 *     serial   moves when a slot without a bucket state gets one: a caller
 *              that gives units back later finds that it is another one
 *     where    rule and state, in one store: a killed writer leaves the
 *              old pair or the new pair
 *
 * A walk steps the bucket states of its chain one after the other
 * (link_state.c).
 *
 * Time. Windows begin where people expect them, so their time doesn't count
 * from the table's origin but from 1970 in UTC, by an offset that the sync
 * sets. Only calendars follow it as it changes: any other window keeps the
 * first offset, so that a clock that is set back doesn't stop it.
 *
 * Rejected: compare-and-swap of the whole state. Processors swap at most two
 * words; a window has seven and a log thousands. */

#include "core/table/table_bucket_state_internal.h"

#include <string.h>

#include "core/quota/quota_bucket.h"
#include "core/table/table_read.h"

/* ---- The lock ---- */

/* The owner's value if it holds the writer lock; else its stripe + 1. */
#define BY_WRITER LOCK_OWNER

static bool is_seized(const struct bucket_state *m)
{
    return (weir_load_relaxed(&m->lock) & LOCK_OWNER) == BY_WRITER;
}

bool weir_bucket_state_seize(struct weir_table *t, uint32_t slot)
{
    weir_assert(weir_table_is_locked(t));
    /* A table without bucket states never touches their pages. */
    return !t->rules_made ||
           weir_lock_try(&weir_bucket_state(t, slot)->lock, BY_WRITER, 0);
}

void weir_bucket_state_unseize(struct weir_table *t, uint32_t slot)
{
    struct bucket_state *m = weir_bucket_state(t, slot);
    weir_assert(weir_table_is_locked(t));
    if (t->rules_made && is_seized(m) && weir_lock_release(t, &m->lock))
        weir_store_relaxed(&t->wake, 1); /* a hint, as in the unlock */
}

/* ---- Rule and state ---- */

static struct bucket_rule *bucket_rule_of(const struct weir_table *t,
                                          uint64_t where)
{
    uint32_t unit = (uint32_t)where;
    return unit ? weir_area(t, unit - 1) : NULL;
}

static void *state_at(const struct weir_table *t, uint64_t where)
{
    uint32_t unit = (uint32_t)(where >> 32);
    return unit ? weir_area(t, unit - 1) : NULL;
}

static uint64_t where_of(uint32_t rule, uint32_t state)
{
    weir_assert(rule != AREA_NONE);
    uint64_t above = state == AREA_NONE ? 0 : (uint64_t)(state + 1);
    return above << 32 | (rule + 1);
}

static size_t bucket_rule_bytes(const struct bucket_rule *of)
{
    return sizeof(*of) + of->store_len + of->zone_len;
}

/* Under a store's decision a state is needed at most for when the store is
 * away. */
static size_t state_bytes(const struct bucket_rule *of)
{
    if (of->store_len == 0)
        return weir_algorithm_size(&of->rule);
    /* For permits, the slot's in-flight counter takes its place. */
    if (of->on_stale != WEIR_STALE_SHARE || of->rule.algorithm == WEIR_PERMITS)
        return 0;
    return sizeof(struct shared) + weir_algorithm_size(&of->rule);
}

/* The rule in force now: in 'spare', if it differs from the stored one. */
static const struct weir_algorithm_rule *rule_in_force(
    const struct bucket_rule *of, struct weir_algorithm_rule *spare)
{
    if (of->zone_len == 0)
        return &of->rule;
    *spare = of->rule;
    /* Relaxed: a step concurrent with the change of a zone counts as before or
     * after it. */
    spare->utc_offset_s = weir_load_relaxed(&of->utc_offset_s);
    return spare;
}

weir_instant weir_bucket_state_now(const struct weir_table *t,
                                   const struct weir_algorithm_rule *rule,
                                   weir_instant now)
{
    /* Relaxed: as with the zone. */
    return now + (rule->calendar == WEIR_CALENDAR_NONE
                      ? weir_load_relaxed(&t->aligned)
                      : weir_load_relaxed(&t->wall));
}

static void bucket_rule_release(struct weir_table *t, uint64_t where)
{
    weir_assert(where != 0);
    struct bucket_rule *of = bucket_rule_of(t, where);
    if (where >> 32)
        weir_area_give(t, (uint32_t)(where >> 32) - 1, state_bytes(of));
    weir_assert(of->refs > 0);
    of->refs--;
    if (of->refs == 0)
        weir_area_give(t, (uint32_t)where - 1, bucket_rule_bytes(of));
}

/* ---- From a quota ---- */

/* A bucket of one word is the slot's own bucket, under either name. */
static bool is_one_word(const struct weir_quota *quota)
{
    return quota->algorithm == WEIR_LEAKY ||
           (quota->algorithm == WEIR_TOKEN_BUCKET && quota->initial.unset);
}

static uint32_t bucket_state_flags(const struct weir_quota *quota)
{
    /* A limit of 0 refuses here; but for units in flight the store must be
     * asked, to take them back. */
    bool inflight = quota->kind == WEIR_CONCURRENCY;
    if (quota->limit.unlimited || (quota->limit.units == 0 && !inflight))
        return 0;
    if (quota->sharing == WEIR_EXACT)
        return META_AWAY;
    return quota->sharing == WEIR_LOCAL && !is_one_word(quota)
               ? META_BUCKET_STATE
               : 0;
}

static struct weir_text store_of_quota(const struct weir_quota *quota)
{
    if (quota->sharing != WEIR_EXACT)
        return (struct weir_text){ "", 0 };
    return quota->store.len > 0 ? quota->store : WEIR_TEXT("root");
}

/* The zone, if the sync must set its offset; else empty. */
static struct weir_text zone_of(const struct weir_quota *quota,
                                int32_t *out_offset_s)
{
    *out_offset_s = 0;
    if (weir_tz_fixed(quota->tz, out_offset_s))
        return (struct weir_text){ "", 0 };
    return quota->tz;
}

static bool bucket_equal(const struct weir_algorithm_bucket *a,
                         const struct weir_algorithm_bucket *b)
{
    return a->spill == b->spill && a->bucket.low == b->bucket.low &&
           a->bucket.high == b->bucket.high &&
           a->bucket.leak.part == b->bucket.leak.part &&
           a->bucket.leak.whole == b->bucket.leak.whole &&
           a->bucket.leak.frac == b->bucket.leak.frac;
}

static bool rule_equal(const struct weir_algorithm_rule *a,
                       const struct weir_algorithm_rule *b)
{
    bool equal =
        a->algorithm == b->algorithm && a->count_limited == b->count_limited &&
        a->buckets == b->buckets && a->sub_windows == b->sub_windows &&
        a->calendar == b->calendar && a->utc_offset_s == b->utc_offset_s &&
        a->entries == b->entries && a->window == b->window &&
        a->quantity == b->quantity && a->initial == b->initial;
    for (int i = 0; i < WEIR_BUCKETS_MAX && equal; i++)
        equal = bucket_equal(&a->bucket[i], &b->bucket[i]);
    return equal;
}

static bool text_is(struct weir_text text, const char *bytes, size_t len)
{
    return text.len == len && memcmp(text.p, bytes, len) == 0;
}

static struct zone *zone_find(struct weir_table *t, struct weir_text name)
{
    for (uint32_t i = 0; i < t->zone_count; i++) {
        if (text_is(name, t->zones[i].name, t->zones[i].len))
            return &t->zones[i];
    }
    return NULL;
}

/* Stores a zone's last offset. Zones beyond ZONES_KNOWN are new at each edit:
 * their windows may restart then. */
static void zone_learn(struct weir_table *t, struct weir_text name,
                       int32_t utc_offset_s)
{
    weir_assert(t->zone_count <= ZONES_KNOWN);
    struct zone *zone = zone_find(t, name);
    if (!zone && t->zone_count < ZONES_KNOWN && name.len <= WEIR_TZ_MAX) {
        zone = &t->zones[t->zone_count++];
        zone->len = (uint8_t)name.len;
        memcpy(zone->name, name.p, name.len);
    }
    if (zone)
        zone->utc_offset_s = utc_offset_s;
}

/* A rule to be made, and its texts. */
struct wanted {
    struct weir_text store, zone;
    struct bucket_rule head; /* without them */
};

static void wanted_of(struct weir_table *t, const struct weir_quota *quota,
                      struct wanted *out)
{
    int32_t offset_s;
    memset(out, 0, sizeof(*out));
    out->store = store_of_quota(quota);
    out->zone = zone_of(quota, &offset_s);
    weir_quota_algorithm_rule(quota, offset_s, &out->head.rule);
    const struct zone *zone = zone_find(t, out->zone);
    out->head.utc_offset_s = zone ? zone->utc_offset_s : 0;
    out->head.deadline = quota->deadline;
    out->head.store_len = (uint16_t)out->store.len;
    out->head.zone_len = (uint8_t)out->zone.len;
    if (out->store.len > 0)
        out->head.on_stale = (uint8_t)quota->on_stale;
    weir_assert(out->store.len <= WEIR_STORE_MAX);
}

static bool is_as_wanted(const struct bucket_rule *of,
                         const struct wanted *wanted)
{
    const struct bucket_rule *head = &wanted->head;
    return of && rule_equal(&of->rule, &head->rule) &&
           of->deadline == head->deadline && of->on_stale == head->on_stale &&
           text_is(wanted->store, of->text, of->store_len) &&
           text_is(wanted->zone, of->text + of->store_len, of->zone_len);
}

static uint32_t bucket_rule_make(struct weir_table *t,
                                 const struct wanted *wanted)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(wanted->head.refs == 0);
    uint32_t unit = weir_area_take(t, bucket_rule_bytes(&wanted->head));
    if (unit == AREA_NONE)
        return AREA_NONE;
    uint32_t made = t->rules_made + 1;
    /* Relaxed: read by the sync, which makes rules, and by a child of fork(),
     * in which no other thread runs. After a wrap it isn't "none". */
    weir_store_relaxed(&t->rules_made, made > 0 ? made : 1);
    struct bucket_rule *of = weir_area(t, unit);
    *of = wanted->head;
    memcpy(of->text, wanted->store.p, wanted->store.len);
    if (wanted->zone.len > 0)
        memcpy(of->text + wanted->store.len, wanted->zone.p, wanted->zone.len);
    weir_assert(of->store_len == wanted->store.len);
    return unit;
}

/* Takes a state for the rule in 'unit'; the plan then has both. */
static int plan_state(struct weir_table *t, uint32_t unit,
                      struct bucket_state_plan *out)
{
    struct bucket_rule *of = weir_area(t, unit);
    weir_assert(weir_table_is_locked(t));
    weir_assert(of->refs < UINT32_MAX);
    size_t bytes = state_bytes(of);
    uint32_t state = AREA_NONE;
    if (bytes > 0) {
        state = weir_area_take(t, bytes);
        if (state == AREA_NONE)
            return WEIR_EFULL;
    }
    of->refs++;
    out->where = where_of(unit, state);
    weir_assert(out->where != 0);
    return WEIR_OK;
}

int weir_bucket_state_plan(struct weir_table *t, uint32_t slot,
                           const struct weir_quota *quota,
                           struct bucket_state_plan *out)
{
    weir_assert(slot < t->used);
    *out = (struct bucket_state_plan){ .flags = bucket_state_flags(quota) };
    if (out->flags == 0)
        return WEIR_OK;
    struct wanted wanted;
    wanted_of(t, quota, &wanted);
    uint64_t where = weir_bucket_state(t, slot)->where;
    const struct bucket_rule *of = bucket_rule_of(t, where);
    if (is_as_wanted(of, &wanted)) {
        out->where = where;
        out->same = true;
        return WEIR_OK;
    }
    uint32_t unit = bucket_rule_make(t, &wanted);
    if (unit == AREA_NONE)
        return WEIR_EFULL;
    int error = plan_state(t, unit, out);
    if (error < 0)
        weir_area_give(t, unit, bucket_rule_bytes(&wanted.head));
    return error;
}

int weir_bucket_state_plan_instance(struct weir_table *t, uint32_t slot,
                                    uint32_t template,
                                    struct bucket_state_plan *out)
{
    weir_assert(weir_table_is_locked(t));
    uint32_t meta = weir_load_relaxed(&weir_hot(t, template)->meta);
    uint64_t rule = weir_bucket_state(t, template)->where;
    uint64_t own = weir_bucket_state(t, slot)->where;
    *out = (struct bucket_state_plan){ .flags = meta & (META_BUCKET_STATE |
                                                        META_AWAY) };
    if (rule == 0)
        return WEIR_OK;
    if ((uint32_t)own == (uint32_t)rule) {
        out->where = own;
        out->same = true;
        return WEIR_OK;
    }
    return plan_state(t, (uint32_t)rule - 1, out);
}

void weir_bucket_state_unplan(struct weir_table *t,
                              const struct bucket_state_plan *plan)
{
    weir_assert(weir_table_is_locked(t));
    if (plan->where != 0 && !plan->same)
        bucket_rule_release(t, plan->where);
}

/* ---- A slot's bucket state comes, changes, goes ---- */

void weir_bucket_state_step(const struct weir_table *t,
                            const struct bucket_rule *of, void *state,
                            const struct weir_algorithm_ask *ask,
                            struct weir_algorithm_answer *out, weir_instant now)
{
    struct weir_algorithm_rule spare;
    const struct weir_algorithm_rule *rule = rule_in_force(of, &spare);
    weir_algorithm_step(rule, state, ask, out,
                        weir_bucket_state_now(t, rule, now));
}

/* Carries the used units over to another rule. */
static void carry_state(const struct weir_table *t, uint64_t from, uint64_t to,
                        weir_instant now)
{
    weir_assert(from != 0 && to != 0);
    const struct bucket_rule *before = bucket_rule_of(t, from);
    const struct bucket_rule *after = bucket_rule_of(t, to);
    struct weir_algorithm_rule spare[2];
    const struct weir_algorithm_rule *rule = rule_in_force(after, &spare[1]);
    /* The units in a store stay there. */
    if (before->store_len > 0 || after->store_len > 0)
        return;
    weir_algorithm_carry(rule_in_force(before, &spare[0]), state_at(t, from),
                         rule, state_at(t, to),
                         weir_bucket_state_now(t, rule, now));
}

/* The same from the slot's own bucket. */
static void carry_bucket(const struct weir_table *t, uint32_t slot, uint64_t to,
                         weir_instant now)
{
    weir_assert(to != 0);
    struct slot_read read;
    weir_slot_read(t, slot, weir_elapsed(t, now), &read);
    if (read.fill <= 0 || weir_slot_read_is_endless(&read) ||
        bucket_rule_of(t, to)->store_len > 0)
        return;
    uint64_t one = (uint64_t)1 << read.leak.frac;
    uint64_t units = ((uint64_t)read.fill + one - 1) >> read.leak.frac;
    struct weir_algorithm_ask ask = {
        .op = WEIR_ALGORITHM_CHARGE,
        .weight = units < WEIR_WEIGHT_MAX ? units : WEIR_WEIGHT_MAX,
    };
    struct weir_algorithm_answer answer;
    weir_bucket_state_step(t, bucket_rule_of(t, to), state_at(t, to), &ask,
                           &answer, now);
}

static void follow_locked(struct weir_table *t, uint32_t slot,
                          const struct bucket_state_plan *plan, bool empty,
                          weir_instant now)
{
    struct bucket_state *m = weir_bucket_state(t, slot);
    weir_assert(is_seized(m));
    weir_assert(plan->where != 0);
    uint64_t before = weir_load_relaxed(&m->where);
    if (plan->same)
        memset(state_at(t, plan->where), 0,
               state_bytes(bucket_rule_of(t, plan->where)));
    else if (before != 0 && !empty)
        carry_state(t, before, plan->where, now);
    else if (!empty)
        carry_bucket(t, slot, plan->where, now);
    if (before == 0 || empty)
        weir_store_relaxed(&m->serial, m->serial + 1);
    weir_store_relaxed(&m->where, plan->where);
}

void weir_bucket_state_follow(struct weir_table *t, uint32_t slot,
                              const struct bucket_state_plan *plan, bool empty,
                              weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    struct bucket_state *m = weir_bucket_state(t, slot);
    uint64_t before = weir_load_relaxed(&m->where);
    bool stateless = plan->same && plan->where >> 32 == 0;
    if (plan->where == 0 || (plan->same && !empty) || stateless)
        return;
    follow_locked(t, slot, plan, empty, now);
    if (before != 0 && !plan->same)
        bucket_rule_release(t, before);
}

/* Under the bucket state's lock. */
static uint64_t units_locked(const struct weir_table *t, uint64_t where,
                             weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_PEEK };
    struct weir_algorithm_answer answer;
    if (where >> 32 == 0 || bucket_rule_of(t, where)->store_len > 0)
        return 0;
    weir_bucket_state_step(t, bucket_rule_of(t, where), state_at(t, where),
                           &ask, &answer, now);
    return answer.used > 0 ? (uint64_t)answer.used : 0;
}

uint64_t weir_bucket_state_units(struct weir_table *t, uint32_t slot,
                                 weir_instant now)
{
    const struct bucket_state *m = weir_bucket_state(t, slot);
    weir_assert(is_seized(m));
    return units_locked(t, weir_load_relaxed(&m->where), now);
}

uint64_t weir_bucket_state_drop(struct weir_table *t, uint32_t slot,
                                weir_instant now)
{
    /* A table without bucket states never touches their pages. */
    if (!t->rules_made)
        return 0;
    struct bucket_state *m = weir_bucket_state(t, slot);
    uint64_t where = weir_load_relaxed(&m->where);
    if (where == 0)
        return 0;
    weir_assert(is_seized(m));
    uint64_t units = units_locked(t, where, now);
    weir_store_relaxed(&m->where, 0);
    bucket_rule_release(t, where);
    return units;
}

static bool is_idle_locked(const struct weir_table *t, uint64_t where,
                           weir_instant now)
{
    const struct bucket_rule *of = bucket_rule_of(t, where);
    /* A store drops idle states itself, and the state that stands in for it is
     * only for emergencies. */
    if (of->store_len > 0)
        return true;
    struct weir_algorithm_rule spare;
    const struct weir_algorithm_rule *rule = rule_in_force(of, &spare);
    weir_instant at = weir_bucket_state_now(t, rule, now);
    return weir_algorithm_idle_at(rule, state_at(t, where), at) <= at;
}

bool weir_bucket_state_is_idle(const struct weir_table *t, uint32_t slot,
                               weir_instant now)
{
    const struct bucket_state *m = weir_bucket_state(t, slot);
    if (!t->rules_made || weir_load_relaxed(&m->where) == 0)
        return true;
    weir_assert(is_seized(m));
    return is_idle_locked(t, weir_load_relaxed(&m->where), now);
}

bool weir_bucket_state_is_free(const struct weir_table *t, uint32_t slot)
{
    return !t->rules_made ||
           weir_load_relaxed(&weir_bucket_state(t, slot)->lock) == 0;
}

void weir_bucket_state_look(const struct weir_table *t, uint32_t slot,
                            uint32_t *out_own, uint32_t *out_rule,
                            uint32_t *out_refs)
{
    uint64_t where = weir_bucket_state(t, slot)->where;
    const struct bucket_rule *of = bucket_rule_of(t, where);
    *out_own = where >> 32 ? weir_area_units(state_bytes(of)) : 0;
    *out_rule = of ? weir_area_units(bucket_rule_bytes(of)) : 0;
    *out_refs = of ? of->refs : 0;
}

/* ---- After a killed writer, or a process that has gone ---- */

/* An edit changes the bucket state first and the slot's flags after it. A
 * decision that finds the old flags beside a new state that has no steps (a
 * store decides now) repeats its walk, so the two agree whenever the state
 * isn't locked. */
static void mend_flags(struct weir_table *t, uint32_t slot)
{
    struct hot *hot = weir_hot(t, slot);
    uint32_t meta = weir_load_relaxed(&hot->meta);
    const struct bucket_rule *of = weir_bucket_state_rule(t, slot);
    if (!of || !(meta & (META_BUCKET_STATE | META_AWAY)))
        return;
    uint32_t flags = of->store_len > 0 ? META_AWAY : META_BUCKET_STATE;
    uint32_t mended = (meta & ~(META_BUCKET_STATE | META_AWAY)) | flags;
    if (mended != meta)
        weir_store_relaxed(&hot->meta, mended);
}

/* The state is seized. A slot that was being made will be freed, and then a
 * request of its last life may have the lock: it loses its state here. */
static void mend_edit(struct weir_table *t, uint32_t slot)
{
    if (weir_cold(t, slot)->state == WEIR_SLOT_MAKING)
        weir_store_relaxed(&weir_bucket_state(t, slot)->where, 0);
    else
        mend_flags(t, slot);
}

/* It is unknown how far a thread came that stopped within a step or an edit:
 * its bucket state starts anew. Only other reapers touch a state that a dead
 * process has locked; those that wait for it change the bits beside the owner.
 * A state that a writer has seized is the reaper's as soon as it has the writer
 * lock. It stays BY_WRITER: if the reaper dies as well, the next one finds that
 * the slot's edit is unfinished. */
static void reset_dead_state(struct weir_table *t, uint32_t slot,
                             uint32_t owner, uint32_t by)
{
    struct bucket_state *m = weir_bucket_state(t, slot);
    weir_assert(owner != 0);
    if (owner != BY_WRITER && !weir_lock_inherit(&m->lock, owner, by + 1))
        return;
    uint64_t where = weir_load_relaxed(&m->where);
    if (where >> 32)
        memset(state_at(t, where), 0, state_bytes(bucket_rule_of(t, where)));
    if (owner == BY_WRITER)
        mend_edit(t, slot);
    if (weir_lock_release(t, &m->lock))
        weir_store_relaxed(&t->wake, 1); /* a hint, as in the unlock */
}

/* Drops a bucket state that its slot doesn't use yet, or no longer, unless a
 * thread is stepping it now. */
static void forget_half_bucket_state(struct weir_table *t, uint32_t slot)
{
    struct bucket_state *m = weir_bucket_state(t, slot);
    uint32_t meta = weir_load_relaxed(&weir_hot(t, slot)->meta);
    uint64_t where = weir_load_relaxed(&m->where);
    if (where == 0)
        return;
    bucket_rule_of(t, where)->refs = 0;
    if (meta & (META_BUCKET_STATE | META_AWAY))
        return;
    /* Its holder may be dead as well: the state then stays until the slot is
     * freed. */
    if (!weir_lock_try(&m->lock, BY_WRITER, 0))
        return;
    weir_store_relaxed(&m->where, 0);
    if (weir_lock_release(t, &m->lock))
        weir_store_relaxed(&t->wake, 1); /* a hint, as in the unlock */
}

/* Under the writer lock: rebuilds the area from the slots' references. */
static void remake_area(struct weir_table *t)
{
    uint32_t used = weir_table_used(t);
    for (uint32_t slot = 0; slot < used; slot++)
        forget_half_bucket_state(t, slot);
    weir_area_mend_begin(t);
    for (uint32_t slot = 0; slot < used; slot++) {
        uint64_t where = weir_load_relaxed(&weir_bucket_state(t, slot)->where);
        if (where == 0)
            continue;
        struct bucket_rule *of = bucket_rule_of(t, where);
        if (of->refs++ == 0)
            weir_area_keep(t, (uint32_t)where - 1, bucket_rule_bytes(of));
        if (where >> 32)
            weir_area_keep(t, (uint32_t)(where >> 32) - 1, state_bytes(of));
    }
    weir_area_mend_end(t);
}

/* In a fork, any lock belongs to a thread of another process. */
void weir_bucket_states_mend(struct weir_table *t)
{
    uint32_t used = t->rules_made ? weir_table_used(t) : 0;
    for (uint32_t slot = 0; slot < used; slot++) {
        const struct bucket_state *m = weir_bucket_state(t, slot);
        uint32_t owner = weir_load_relaxed(&m->lock) & LOCK_OWNER;
        if (owner != 0)
            reset_dead_state(t, slot, owner, 0);
    }
    if (used > 0)
        remake_area(t);
}

static bool is_left_by(const struct weir_table *t, uint32_t owner,
                       uint32_t process, bool writer)
{
    if (owner == BY_WRITER)
        return writer;
    return owner != 0 && owner <= t->stripe_count &&
           weir_process_of(t, owner - 1) == process;
}

void weir_bucket_states_reap(struct weir_table *t, uint32_t process,
                             uint32_t by, bool writer)
{
    weir_assert(by < t->commons);
    uint32_t used = t->rules_made ? weir_table_used(t) : 0;
    for (uint32_t slot = 0; slot < used; slot++) {
        const struct bucket_state *m = weir_bucket_state(t, slot);
        /* acquire: the dead process wrote the state. */
        uint32_t owner = weir_load_acquire(&m->lock) & LOCK_OWNER;
        if (is_left_by(t, owner, process, writer))
            reset_dead_state(t, slot, owner, by);
    }
    if (used > 0 && writer)
        remake_area(t);
}

/* ---- Any thread ---- */

const struct bucket_rule *weir_bucket_state_rule(const struct weir_table *t,
                                                 uint32_t slot)
{
    return bucket_rule_of(
        t, weir_load_relaxed(&weir_bucket_state(t, slot)->where));
}

void *weir_bucket_state_state(const struct weir_table *t, uint32_t slot)
{
    return state_at(t, weir_load_relaxed(&weir_bucket_state(t, slot)->where));
}

/* ---- The sync ---- */

uint32_t weir_table_rules_made(const struct weir_table *t)
{
    return weir_load_relaxed(&t->rules_made);
}

bool weir_table_store_of(const struct weir_table *t, uint32_t slot,
                         char out[WEIR_STORE_MAX + 1])
{
    uint8_t state = weir_load_acquire(&weir_cold(t, slot)->state);
    if (!t->rules_made ||
        (state != WEIR_SLOT_QUOTA && state != WEIR_SLOT_TEMPLATE))
        return false;
    /* Only the sync removes a quota's rule. */
    const struct bucket_rule *of = bucket_rule_of(
        t, weir_load_relaxed(&weir_bucket_state(t, slot)->where));
    if (!of || of->store_len == 0)
        return false;
    memcpy(out, of->text, of->store_len);
    out[of->store_len] = '\0';
    return true;
}

void weir_table_set_wall(struct weir_table *t, uint64_t offset)
{
    weir_store_relaxed(&t->wall, offset);
    if (t->aligned == 0)
        weir_store_relaxed(&t->aligned, offset);
    weir_assert(t->aligned != 0 || offset == 0);
}

void weir_table_set_zones(struct weir_table *t, weir_zone_offset_fn *offset_of,
                          void *context)
{
    uint32_t used = t->rules_made ? weir_table_used(t) : 0;
    for (uint32_t slot = 0; slot < used; slot++) {
        uint8_t state = weir_load_acquire(&weir_cold(t, slot)->state);
        if (state != WEIR_SLOT_QUOTA && state != WEIR_SLOT_TEMPLATE)
            continue;
        /* Only the sync removes a quota's rule. */
        struct bucket_rule *of = bucket_rule_of(
            t, weir_load_relaxed(&weir_bucket_state(t, slot)->where));
        if (!of || of->zone_len == 0)
            continue;
        struct weir_text zone = { of->text + of->store_len, of->zone_len };
        int32_t offset_s = offset_of(context, zone);
        weir_store_relaxed(&of->utc_offset_s, offset_s);
        zone_learn(t, zone, offset_s);
    }
}
