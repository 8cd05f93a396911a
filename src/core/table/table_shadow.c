/* SPDX-License-Identifier: MIT
 * table/table_shadow.c - the shadow set: the decisions of a set under trial.
 *
 * A new set of quotas is tried on live traffic: its quotas are in the same
 * table, under separate names, and each request is repeated there. All features
 * of a set work unchanged (chains, templates, counts reported to the roots,
 * fills from them), because the rest of the table treats its quotas as any
 * quotas. Only three things separate the sets: a template rules names of its
 * own set, a decision draws from the random stream of its set, and instances of
 * the shadow set leave half of the slots to the live set. The live set decides,
 * draw by draw, as if the other weren't there, except for room: a table that
 * fills beyond its half is full earlier because of the shadow set's slots.
 *
 *     request --> live slot --decides--> answer
 *                    |
 *                    '------> slot of "shadow:" + name --decides--> counts
 *
 * The step from a name to its shadow slot is a look-up, and may make
 * an instance, so a slot remembers the result (table_shadow_set.c says for
 * how long). It is written under the lock because slots are freed only there: a
 * result that a slow thread writes can't reach the slot's next life. "Full" is
 * remembered as well, as the overflow quota, and dropped when the sweep has
 * freed slots.
 *
 * Cost: one link taken by handle, gcc -O2 of a release build on a busy machine,
 * 20 million takes each, processor time: 13 to 15 ns without a shadow set, 73
 * with a shadow slot, 46 if the set has no quota for the name. The live take
 * then leaves its fast path.
 *
 * Rejected: a second table for the shadow set (with its own sync, fork, memory
 * and names), and finding the shadow slot by name for each request (a hash of
 * up to 255 bytes, and the index). */

#include <string.h>

#include "core/table/table_share.h"
#include "core/table/table_slots_internal.h"
#include "core/table/table_stripe_internal.h"
#include "core/table/table_walk_internal.h"

/* A slot may be freed between look-up and decision; after so many in a row,
 * further tries aren't worth a request's time. */
#define STALE_TRIES 4

/* About so many recent requests decide the probability of refunds. */
#define ODDS_MAX 256

/* ---- Shadow slots ---- */

static const struct weir_ref no_slot = { WEIR_SLOT_NONE, 0 };

/* "shadow:" + 'name' in 'buf'; len 0 when that is too long for a name, or
 * 'name' is of the shadow set itself. */
static struct weir_text shadow_name(struct weir_text name,
                                    char buf[WEIR_NAME_MAX])
{
    weir_assert(name.len <= WEIR_NAME_MAX);
    if (name.len > WEIR_SHADOW_NAME_MAX || weir_name_is_shadow(name))
        return (struct weir_text){ buf, 0 };
    memcpy(buf, WEIR_SHADOW_PREFIX, WEIR_SHADOW_PREFIX_LEN);
    memcpy(buf + WEIR_SHADOW_PREFIX_LEN, name.p, name.len);
    return (struct weir_text){ buf, WEIR_SHADOW_PREFIX_LEN + name.len };
}

static struct weir_ref resolve_locked(struct weir_table *t,
                                      struct weir_text live, weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    char buf[WEIR_NAME_MAX];
    struct weir_text name = shadow_name(live, buf);
    if (name.len == 0)
        return no_slot;
    uint32_t slot;
    switch (weir_slot_resolve(t, name, false, 0, &slot, now)) {
    case WEIR_RESOLVED_FULL:
    case WEIR_RESOLVED_CHAIN:
        weir_store_relaxed(&t->shadow_short, 1);
        break;
    case WEIR_RESOLVED:
        break;
    case WEIR_RESOLVED_FREE:
    case WEIR_RESOLVED_LACKING:
    case WEIR_RESOLVED_NONE:
    case WEIR_RESOLVED_REFUSED:
    case WEIR_RESOLVED_CONTENDED: /* not under the lock */
        return no_slot;
    }
    return (struct weir_ref){ slot, weir_hot(t, slot)->generation };
}

static struct weir_ref learn_locked(struct weir_table *t, struct weir_ref ref,
                                    weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    weir_assert(ref.slot < t->slots);
    char buf[WEIR_NAME_MAX + 1];
    if (!weir_ref_is_live(t, ref))
        return no_slot;
    size_t len = weir_table_name(t, ref.slot, buf);
    uint32_t version = t->shadow_version;
    struct weir_ref found =
        resolve_locked(t, (struct weir_text){ buf, len }, now);
    /* The slot itself, if idle, may have been evicted to make room. */
    if (!weir_ref_is_live(t, ref))
        return found;
    struct shadow_slot *shadow_slot = weir_shadow_slot(t, ref.slot);
    weir_store_relaxed(&shadow_slot->ref,
                       found.slot | (uint64_t)found.generation << 32);
    /* release: a reader that sees the version sees its 'ref', or a later one;
     * pairs with shadow_slot_of(). */
    weir_store_release(&shadow_slot->version, version);
    return found;
}

__attribute__((noinline)) static struct weir_ref learn(struct weir_table *t,
                                                       uint32_t stripe,
                                                       struct weir_ref ref,
                                                       weir_instant now)
{
    if (!weir_table_try_lock_as(t, weir_process_of(t, stripe), 0))
        return no_slot; /* this request isn't repeated there */
    struct weir_ref found = learn_locked(t, ref, now);
    weir_table_unlock(t);
    return found;
}

static struct weir_ref shadow_slot_of(struct weir_table *t, uint32_t stripe,
                                      struct weir_ref ref, weir_instant now)
{
    const struct shadow_slot *shadow_slot = weir_shadow_slot(t, ref.slot);
    /* acquire: pairs with learn_locked(). It also orders the read of the slot's
     * generation after it: the generation moves before an entry of the next
     * life is written. */
    uint32_t version = weir_load_acquire(&shadow_slot->version);
    uint64_t word = weir_load_relaxed(&shadow_slot->ref);
    struct weir_ref found = { (uint32_t)word, (uint32_t)(word >> 32) };
    /* Relaxed: as in weir_shadow_outcome(). */
    bool known = version == weir_load_relaxed(&t->shadow_version) &&
                 weir_ref_is_live(t, ref);
    if (known && (found.slot == WEIR_SLOT_NONE || weir_ref_is_live(t, found)))
        return found;
    return learn(t, stripe, ref, now);
}

void weir_shadow_meet(struct weir_table *t, struct weir_ref ref,
                      weir_instant now)
{
    weir_assert(weir_table_is_locked(t));
    if (weir_shadow_outcome(t) == 0)
        return;
    struct weir_ref shadow_slot = learn_locked(t, ref, now);
    if (shadow_slot.slot != WEIR_SLOT_NONE)
        weir_table_mark_chain(t, shadow_slot.slot);
}

/* ---- The probability of a refund ---- */

/* All relaxed: the sample is as good without a lost count. */
static void note_odds(struct shadow_slot *shadow_slot, bool passed)
{
    uint16_t *one = passed ? &shadow_slot->passed : &shadow_slot->refused;
    uint16_t *other = passed ? &shadow_slot->refused : &shadow_slot->passed;
    uint16_t count = weir_load_relaxed(one);
    uint16_t others = weir_load_relaxed(other);
    if (count < ODDS_MAX) {
        weir_store_relaxed(one, (uint16_t)(count + 1));
        return;
    }
    /* All of one kind: nothing to write. */
    if (others == 0)
        return;
    weir_store_relaxed(one, (uint16_t)(count / 2));
    weir_store_relaxed(other, (uint16_t)(others / 2));
}

static bool draw_refund(struct weir_table *t, uint32_t stripe,
                        const struct shadow_slot *shadow_slot)
{
    uint64_t passed = weir_load_relaxed(&shadow_slot->passed);
    uint64_t refused = weir_load_relaxed(&shadow_slot->refused);
    if (refused == 0)
        return true;
    uint64_t chance = weir_stripe_draw(t, stripe, SHADOW) >> 32;
    return chance * (passed + refused) >> 32 < passed;
}

/* ---- The calls ---- */

/* Links that a store decides pass, and those that another thread has locked: no
 * caller should wait for an answer that doesn't change its verdict. */
static unsigned ask_slot(struct weir_table *t, uint32_t stripe,
                         struct weir_ref shadow_slot,
                         const struct weir_algorithm_ask *ask, weir_instant now)
{
    struct walk walk;
    weir_walk_of(&walk, stripe, shadow_slot, now);
    walk.set = SHADOW;
    walk.whole = true;
    struct weir_algorithm_ask once = *ask;
    once.when_locked = WEIR_LOCKED_PASSES;
    return weir_walk_run(t, &walk, &once);
}

unsigned weir_table_shadow(struct weir_table *t, uint32_t stripe,
                           struct weir_ref ref,
                           const struct weir_algorithm_ask *ask, bool limited,
                           weir_instant now)
{
    unsigned kick = 0; /* of all tries */
    bool decides =
        ask->op == WEIR_ALGORITHM_TAKE || ask->op == WEIR_ALGORITHM_RESERVE;
    for (int tries = 0; tries < STALE_TRIES; tries++) {
        struct weir_ref shadow_slot = shadow_slot_of(t, stripe, ref, now);
        if (shadow_slot.slot == WEIR_SLOT_NONE ||
            (ask->op == WEIR_ALGORITHM_REFUND &&
             !draw_refund(t, stripe, weir_shadow_slot(t, ref.slot))))
            break;
        unsigned outcome = ask_slot(t, stripe, shadow_slot, ask, now);
        kick |= outcome & WEIR_OUTCOME_KICK;
        if (outcome & WEIR_OUTCOME_STALE_REF)
            continue;
        if (decides && !limited)
            note_odds(weir_shadow_slot(t, ref.slot),
                      !(outcome & WEIR_OUTCOME_LIMITED));
        break;
    }
    return kick;
}

unsigned weir_table_shadow_name(struct weir_table *t, uint32_t stripe,
                                struct weir_text live,
                                const struct weir_algorithm_ask *ask,
                                weir_instant now)
{
    unsigned kick = 0; /* of all tries */
    char buf[WEIR_NAME_MAX];
    struct weir_text name = shadow_name(live, buf);
    if (weir_shadow_outcome(t) == 0 || name.len == 0)
        return 0;
    for (int tries = 0; tries < STALE_TRIES; tries++) {
        struct weir_ref ref;
        uint32_t process = weir_process_of(t, stripe);
        if (!weir_is_resolved(
                weir_table_resolve_as(t, process, name, false, &ref, now)))
            break;
        unsigned outcome = ask_slot(t, stripe, ref, ask, now);
        kick |= outcome & WEIR_OUTCOME_KICK;
        if (!(outcome & WEIR_OUTCOME_STALE_REF))
            break;
    }
    return kick;
}
