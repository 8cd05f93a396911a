/* SPDX-License-Identifier: MIT
 * table/table_take.c - the decision.
 *
 * One walk up the chain reads and judges, a second one charges. Between the
 * two, other threads may charge as well: k racing takes can exceed 'high' by
 * (k - 1) weights. That is part of the stated bound, and the price of a take
 * that never loops on a word that other threads write.
 *
 * Cases at a link in the first walk:
 *
 *     off, placeholder       the link is skipped
 *     fill + weight > high   refused
 *     count at 'stop'        refused: too many units that no root has seen
 *     low < fill             refused if the draw says so: one draw for the
 *                            whole chain, so that the largest of its
 *                            probabilities decides and not their product
 *     shadow                 would be refused: noted, not charged, goes on
 *     bucket state           not judged by this walk: when it passes, the
 *     (meter) bucket states step (table_bucket_state.c), before the
 *                            charge
 *     store                  the chain isn't decided here alone: nothing is
 *                            charged, the caller goes on by weir_table_begin()
 *     in-flight counter      judged as a bucket is, and never charged: an enter
 *     (gauge)                adds to it (table_permit.c), before the bucket
 *                            states step
 *
 * Most takes need only the bare comparison. So each link is first judged by its
 * line alone, in registers; the first link for which that isn't enough sends
 * the whole chain to the longer walk.
 *
 * A refused request writes only to its thread's stripe. */

#include "core/table/table_walk.h"

/* Forces inlining, to keep values in registers: the compiler's heuristic counts
 * lines, not calls. */
#define INLINE static inline __attribute__((always_inline))

/* ---- The stripe ---- */

void weir_slot_mark(struct weir_table *t, uint32_t slot)
{
    uint64_t *word = &weir_bits(t)[slot / 64];
    uint64_t bit = (uint64_t)1 << (slot % 64);
    if (!(weir_load(word) & bit))
        weir_fetch_or(word, bit);
}

static void refusal_evict(struct weir_table *t, struct refusal *entry)
{
    uint32_t slot = entry->slot;
    uint64_t units = entry->units;
    /* First out of the entry, then into the slot: a sum read in between is too
     * low for a moment, never too high. */
    weir_store_relaxed(&entry->slot, WEIR_SLOT_NONE);
    /* release: a reader of a later 'units' sees that the slot was removed. */
    weir_fence_release();
    if (slot != WEIR_SLOT_NONE && units > 0) {
        weir_fetch_add(&weir_cold(t, slot)->refused, units);
        weir_slot_mark(t, slot);
    }
    weir_store_relaxed(&entry->units, 0);
}

__attribute__((noinline)) static unsigned count_refused_slowly(
    struct weir_table *t, uint32_t stripe, uint32_t slot, uint64_t weight)
{
    if (stripe < t->commons) {
        weir_fetch_add(&weir_cold(t, slot)->refused, weight);
        weir_slot_mark(t, slot);
        return WEIR_OUTCOME_LIMITED;
    }
    struct refusal *entry =
        &weir_stripe(t, stripe)->refusals[slot % STRIPE_ENTRIES];
    refusal_evict(t, entry);
    weir_store_relaxed(&entry->units, weight);
    weir_store_release(&entry->slot, slot);
    weir_store_release(&entry->events, entry->events + 1);
    return WEIR_OUTCOME_LIMITED;
}

INLINE unsigned count_refused(struct weir_table *t, uint32_t stripe,
                              uint32_t slot, uint64_t weight)
{
    struct refusal *entry =
        &weir_stripe(t, stripe)->refusals[slot % STRIPE_ENTRIES];
    /* Entries of a shared stripe have no slot. */
    if (WEIR_UNLIKELY(entry->slot != slot))
        return count_refused_slowly(t, stripe, slot, weight);
    weir_store_relaxed(&entry->units, entry->units + weight);
    /* release: the sync that sees the event reads these units. */
    weir_store_release(&entry->events, entry->events + 1);
    return WEIR_OUTCOME_LIMITED;
}

/* Draws race on the shared stripe: a lost step is just as random. */
static uint64_t draw(struct chance *from)
{
    uint64_t *state = &from->rng.state;
    struct weir_rng rng = { weir_load_relaxed(state) };
    uint64_t chance = weir_rng_next(&rng);
    weir_store_relaxed(state, rng.state);
    return chance;
}

/* The random number of a decision. Each run of 16 draws falls once into every
 * sixteenth of the range, in strides of 5 up or down from a place that is drawn
 * for the run. Each single draw is uniform, so no position in a pattern of
 * requests gives a caller an advantage. Of a few in a row, almost exactly the
 * right share passes: a quarter of the spread of independent draws over five, a
 * seventh over fifteen. Rejected: a random order of the sixteenths (twice that
 * spread), and one sequence without new starts (a caller that makes every 13th
 * request would pass for long and then be refused for long). */
static uint64_t draw_evenly(struct chance *from)
{
    uint64_t chance = draw(from);
    uint64_t *word = &from->run;
    uint64_t run = weir_load_relaxed(word);
    uint64_t place = run % 16;
    uint64_t stride = run & 16 ? 5 : 11;
    uint64_t sixteenth = (run >> 5) + place * stride;
    /* Relaxed, as for the generator: a lost step is a sixteenth drawn twice. */
    weir_store_relaxed(word, place < 15 ? run + 1 : chance & ~(uint64_t)15);
    return sixteenth << 60 | chance >> 4;
}

/* The random number of a walk: one draw for the whole chain. */
static uint64_t walk_chance(struct weir_table *t, uint32_t stripe,
                            struct walk *walk)
{
    if (!walk->drawn)
        walk->chance = draw_evenly(&weir_stripe(t, stripe)->chance[walk->set]);
    walk->drawn = true;
    return walk->chance;
}

uint64_t weir_stripe_draw(struct weir_table *t, uint32_t stripe, enum set set)
{
    return draw(&weir_stripe(t, stripe)->chance[set]);
}

/* ---- Reading ---- */

/* Reads the parameters in the spare, while a writer rewrites the slot's line or
 * after it was killed there. */
void weir_slot_read_spare(const struct weir_table *t, uint32_t slot,
                          uint64_t elapsed, struct look *out)
{
    const struct hot *hot = weir_hot(t, slot);
    for (;;) {
        uint32_t seq = weir_load_acquire(&t->spare_seq);
        uint64_t base = weir_load_acquire(&hot->base);
        uint32_t owner = weir_load_relaxed(&t->spare_slot);
        uint64_t part = weir_load_relaxed(&t->spare_part);
        int64_t high = weir_load_relaxed(&t->spare_high);
        weir_mini band = weir_load_relaxed(&t->spare_band);
        uint32_t meta = weir_load_relaxed(&t->spare_meta);
        uint64_t count = weir_load_relaxed(&hot->count);
        weir_fence_acquire();
        /* Checked first: the spare may belong to another slot by now, and the
         * writer that was filling it may be dead. */
        if (!(base & 1)) {
            weir_slot_read(t, slot, elapsed, out);
            return;
        }
        if (weir_load_relaxed(&t->spare_seq) != seq || (seq & 1))
            continue;
        if (owner != slot)
            continue;
        out->base = base;
        out->count = count;
        out->leak = weir_meta_leak(meta, part);
        out->high = high;
        out->band = weir_mini_get(band);
        out->flags = meta & META_FLAGS;
        out->fill = weir_fill_of(count, base, out->leak, elapsed);
        if (meta & META_INFLIGHT)
            weir_slot_read_inflight(t, slot, out);
        return;
    }
}

static bool drawn_against(struct weir_table *t, uint32_t stripe,
                          struct walk *walk, const struct look *look)
{
    return weir_band_refuses(look->fill, look->high - look->band, look->band,
                             walk_chance(t, stripe, walk));
}

/* Whether a stale slot refuses. */
static bool flagged_refuses(struct weir_table *t, uint32_t stripe,
                            struct walk *walk, uint32_t slot,
                            const struct look *look)
{
    if (look->flags & META_PASS)
        return false;
    if (look->flags & META_LIMIT)
        return true;
    uint8_t hold = weir_load_relaxed(&weir_cold(t, slot)->hold);
    return walk_chance(t, stripe, walk) >> 32 < (uint64_t)hold * 0x1010101u;
}

static bool link_refuses(struct weir_table *t, uint32_t stripe,
                         struct walk *walk, uint32_t slot,
                         const struct look *look, uint64_t weight)
{
    if (WEIR_UNLIKELY(look->flags & META_STALE))
        return flagged_refuses(t, stripe, walk, slot, look);
    /* Before the stop, which may still belong to the previous limit. */
    if (weir_slot_read_is_endless(look))
        return false;
    uint64_t stop = weir_load_relaxed(&weir_hot(t, slot)->stop);
    if ((int64_t)(look->count - stop) >= 0)
        return true;
    int64_t fill = look->fill > 0 ? look->fill : 0;
    if (fill + (int64_t)(weight << look->leak.frac) > look->high)
        return true;
    if (WEIR_LIKELY(fill <= look->high - look->band))
        return false;
    return drawn_against(t, stripe, walk, look);
}

static inline void prefetch_above(const struct weir_table *t, uint64_t up)
{
    uint32_t above = (uint32_t)(up >> 32);
    if (above != WEIR_SLOT_NONE)
        __builtin_prefetch(weir_hot(t, above), 1);
}

/* Notes the other deciders of a link. A link that is off isn't charged, and
 * in-flight counters change by enters and leaves alone. */
static inline void note_flags(struct walk *walk, uint32_t flags, uint32_t bit)
{
    if (flags & (META_OFF | META_INFLIGHT))
        walk->skip |= bit;
    if (WEIR_UNLIKELY(flags & (META_PASS | META_HOLD)))
        walk->free |= bit;
    if (WEIR_LIKELY(
            !(flags & (META_BUCKET_STATE | META_AWAY | META_INFLIGHT))) ||
        (flags & META_OFF))
        return;
    walk->inflights |= flags & META_INFLIGHT ? bit : 0;
    walk->adaptive |= flags & META_ADAPTIVE ? bit : 0;
    walk->bucket_states |= flags & META_BUCKET_STATE ? bit : 0;
    walk->away |= flags & META_AWAY ? bit : 0;
    walk->quiet |= flags & META_SHADOW ? bit : 0;
}

/* Judges the chain from 'slot' up. Returns whether it passes; 'walk' then
 * describes the links read, up to the refuser. */
static bool walk_up(struct weir_table *t, uint32_t stripe, uint32_t slot,
                    uint64_t weight, struct walk *walk)
{
    do {
        uint64_t up = weir_load_relaxed(&weir_hot(t, slot)->up);
        prefetch_above(t, up);
        struct look look;
        weir_slot_read(t, slot, walk->elapsed, &look);
        uint32_t bit = 1u << walk->links;
        walk->slot[walk->links++] = slot;
        if (look.fill < 0)
            walk->lift |= bit;
        note_flags(walk, look.flags, bit);
        bool judged =
            !(look.flags & (META_OFF | META_BUCKET_STATE | META_AWAY));
        if (judged && link_refuses(t, stripe, walk, slot, &look, weight)) {
            if (!(look.flags & META_SHADOW)) {
                walk->refuser = walk->links - 1;
                return false;
            }
            walk->skip |= bit;
            walk->shadow |= bit;
        }
        slot = (uint32_t)up;
    } while (slot != WEIR_SLOT_NONE && walk->links < WEIR_DEPTH_MAX);
    return true;
}

/* The verdict from a link's line alone. */
enum judged {
    EASY, /* passes, not near any bound */
    IDLE, /* passes; the bucket was empty: lift it */
    OVER, /* refused, whatever the draw */
    HARD, /* ask link_refuses() */
};

/* weir_slot_read() and link_refuses() for a slot without flags, outside of its
 * band and of an edit. A result computed from a torn line is discarded at the
 * end: this keeps so few values live that none is spilled. Sets only the
 * members of 'out' that a lift needs. */
INLINE enum judged judge(const struct hot *hot, uint64_t elapsed,
                         uint64_t weight, struct look *out)
{
    uint32_t meta = weir_load_acquire(&hot->meta);
    uint64_t base = weir_load_acquire(&hot->base);
    if (WEIR_UNLIKELY((meta & (META_FLAGS | META_SEQ_ONE)) | (base & 1)))
        return HARD;
    struct weir_leak leak = weir_meta_leak(meta, weir_load_relaxed(&hot->part));
    uint64_t count = weir_load_relaxed(&hot->count);
    int64_t found = weir_fill_of(count, base, leak, elapsed);
    int64_t fill = found > 0 ? found : 0;
    *out = (struct look){ .base = base, .fill = found };
    int64_t high = weir_load_relaxed(&hot->high);
    enum judged judged = found < 0 ? IDLE : EASY;
    if (fill + (int64_t)(weight << leak.frac) > high)
        judged = high == WEIR_SCALED_MAX ? HARD : OVER;
    else if (fill > high - weir_mini_get(weir_load_relaxed(&hot->band)) ||
             (int64_t)(weir_load_relaxed(&hot->stop) - count) <= 0)
        judged = HARD;
    weir_fence_acquire();
    return WEIR_LIKELY(weir_load_relaxed(&hot->meta) == meta) ? judged : HARD;
}

/* ---- Charging ---- */

INLINE bool lift_seen(struct hot *hot, struct look *look)
{
    return weir_cas(&hot->base, &look->base,
                    look->base - ((uint64_t)look->fill << 1));
}

void weir_slot_lift(struct weir_table *t, uint32_t slot, uint64_t elapsed)
{
    struct hot *hot = weir_hot(t, slot);
    struct look look;
    do {
        weir_slot_read(t, slot, elapsed, &look);
    } while (look.fill < 0 && !lift_seen(hot, &look));
}

/* The count came within 'report_within' of 'stop': marks the slot, and
 * requests an early report when the count went over report_at.
 *
 * 'report_within' moves before the mark is set; weir_table_collect() clears
 * the mark before it moves 'report_within' back, and reads the count after
 * that. All of these accesses are sequentially consistent. A take that finds
 * 'report_within' moved, or the mark set, has added to the count before the
 * collect that undoes it, which therefore reports it; and no slot keeps a
 * moved 'report_within' without a mark. If the sync moves 'stop' meanwhile,
 * the loop notices and computes the distance again: the sync resets
 * 'report_within' last.
 *
 * A slot without a stop, such as a name at its first use, requests nothing
 * while a report is scheduled anyway: otherwise each name of a flood would wake
 * the sync. */
__attribute__((noinline)) static unsigned touch(struct weir_table *t,
                                                uint32_t slot, uint64_t count)
{
    struct hot *hot = weir_hot(t, slot);
    uint64_t *report = &weir_cold(t, slot)->report_at;
    uint64_t stop, report_at;
    bool over;
    do {
        report_at = weir_load(report);
        stop = weir_load(&hot->stop);
        over = (int64_t)(count - report_at) >= 0;
        int64_t ahead = over ? 0 : (int64_t)(stop - report_at);
        weir_store(&hot->report_within, weir_mini_of(ahead > 0 ? ahead : 0));
    } while (weir_load(report) != report_at || weir_load(&hot->stop) != stop);
    weir_slot_mark(t, slot);
    if (!over || weir_load_relaxed(&t->urgent))
        return 0;
    /* Sequentially consistent, after the mark: see
     * weir_table_set_reporting(). */
    if ((int64_t)(stop - count) >= (int64_t)(WEIR_COUNT_FAR / 2) &&
        weir_load(&t->reporting))
        return 0;
    return weir_exchange(&t->urgent, 1) ? 0 : WEIR_OUTCOME_KICK;
}

INLINE bool is_near(const struct hot *hot, uint64_t count)
{
    weir_mini report_within = weir_load(&hot->report_within);
    uint64_t stop = weir_load_relaxed(&hot->stop);
    return WEIR_UNLIKELY((int64_t)(stop - count) <=
                         weir_mini_get(report_within));
}

unsigned weir_slot_note(struct weir_table *t, uint32_t slot, uint64_t count)
{
    return is_near(weir_hot(t, slot), count) ? touch(t, slot, count) : 0;
}

INLINE unsigned add(struct weir_table *t, uint32_t slot, uint64_t units)
{
    struct hot *hot = weir_hot(t, slot);
    uint64_t count = weir_fetch_add(&hot->count, units) + units;
    return is_near(hot, count) ? touch(t, slot, count) : 0;
}

/* Corrects a wrong hint; if the CAS fails, the writer was faster. */
static void mend_hint(struct hot *hot, uint64_t up, uint32_t above)
{
    weir_cas(&hot->up, &up, weir_up_of((uint32_t)up, above));
}

/* Whether link i no longer leads to the link walked after it; call it when both
 * are charged. */
INLINE bool has_moved(struct weir_table *t, const struct walk *walk, uint32_t i)
{
    if (i + 1 >= walk->links)
        return false;
    struct hot *hot = weir_hot(t, walk->slot[i]);
    uint32_t above = i + 2 < walk->links ? walk->slot[i + 2] : WEIR_SLOT_NONE;
    uint64_t up = weir_load(&hot->up);
    if (WEIR_LIKELY(up == weir_up_of(walk->slot[i + 1], above)))
        return false;
    if ((uint32_t)up != walk->slot[i + 1])
        return true;
    mend_hint(hot, up, above);
    return false;
}

/* Takes back the charges of links 'from' and above. */
INLINE unsigned uncharge(struct weir_table *t, const struct walk *walk,
                         uint32_t from, uint64_t weight)
{
    for (uint32_t i = from; i < walk->links; i++) {
        if (!(walk->skip >> i & 1))
            weir_fetch_sub(&weir_hot(t, walk->slot[i])->count, weight);
    }
    return OUTCOME_MOVED;
}

/* From the root down, so that each link is checked when it and its parent
 * were charged, and the ref at the very end. */
INLINE unsigned charge_walked(struct weir_table *t, const struct walk *walk,
                              struct weir_ref ref, uint64_t weight)
{
    unsigned outcome = 0;
    for (uint32_t i = walk->links; i-- > 0;) {
        if (WEIR_UNLIKELY(walk->lift >> i & 1))
            weir_slot_lift(t, walk->slot[i], walk->elapsed);
        if (WEIR_LIKELY(!(walk->skip >> i & 1)))
            outcome |= add(t, walk->slot[i], weight);
        if (WEIR_UNLIKELY(has_moved(t, walk, i)))
            return uncharge(t, walk, i, weight);
    }
    return WEIR_LIKELY(weir_ref_is_live(t, ref)) ? outcome
                                                 : uncharge(t, walk, 0, weight);
}

/* ---- The calls ---- */

static void count_shadow(struct weir_table *t, uint32_t stripe,
                         const struct walk *walk, uint64_t weight)
{
    for (uint32_t i = 0; i < walk->links; i++) {
        if (walk->shadow >> i & 1)
            count_refused(t, stripe, walk->slot[i], weight);
    }
}

/* A handle's name may have no quota yet: counts the request as unknown. */
void weir_placeholder_count(struct weir_table *t, uint32_t stripe,
                            uint32_t slot)
{
    if (weir_load_acquire(&weir_cold(t, slot)->state) == WEIR_SLOT_PLACEHOLDER)
        weir_table_count_unknown(t, stripe);
}

/* Counts the refusal for the requested quota and for the refusing one. */
static inline unsigned refuse(struct weir_table *t, uint32_t stripe,
                              uint32_t asked, uint32_t refuser, uint64_t weight)
{
    count_refused(t, stripe, asked, weight);
    if (refuser != asked)
        count_refused(t, stripe, refuser, weight);
    return WEIR_OUTCOME_LIMITED;
}

static inline void walk_begin(struct walk *walk, const struct weir_table *t,
                              weir_instant now)
{
    walk->now = now;
    walk->elapsed = weir_elapsed(t, now);
    walk->links = walk->lift = walk->skip = walk->shadow = walk->free = 0;
    walk->bucket_states = walk->away = walk->quiet = walk->inflights = 0;
    walk->stripe = 0;
    walk->adaptive = 0;
    walk->set = LIVE;
    walk->drawn = false;
}

static inline uint64_t clipped(uint64_t weight)
{
    return weight < WEIR_WEIGHT_MAX ? weight : WEIR_WEIGHT_MAX;
}

/* Uses the flags read by the walk: the table may have contact with a root again
 * by now. */
static void forgive_walked(struct weir_table *t, const struct walk *walk,
                           uint64_t weight)
{
    for (uint32_t i = 0; i < walk->links; i++)
        if (walk->free & ~walk->skip & 1u << i)
            weir_slot_forgive(t, walk->slot[i], weight, walk->elapsed);
}

/* Charges a walk that the bucket states let pass; undoes both if the chain
 * changed meanwhile. */
static unsigned charge_stepped(struct weir_table *t, const struct walk *walk,
                               struct steps *steps,
                               const struct weir_question *q)
{
    unsigned outcome = charge_walked(t, walk, q->ref, q->ask.weight);
    if (outcome == OUTCOME_MOVED)
        weir_walk_step_back(t, walk, steps, &q->ask);
    else if (WEIR_UNLIKELY(walk->free != 0))
        forgive_walked(t, walk, q->ask.weight);
    return outcome;
}

/* Steps the bucket states of a walk that its buckets let pass. */
static inline unsigned step_walked(struct weir_table *t, struct walk *walk,
                                   struct steps *steps,
                                   const struct weir_question *q)
{
    *steps = (struct steps){ .charged = 0 };
    if (WEIR_LIKELY(walk->bucket_states == 0))
        return 0;
    return weir_walk_step(t, walk, &q->ask, steps);
}

/* Enters the in-flight counters of a walk that its buckets let pass. */
static inline unsigned hold_walked(struct weir_table *t, struct walk *walk,
                                   const struct weir_question *q,
                                   unsigned *out_kick)
{
    if (q->record)
        return weir_walk_enter(t, walk, q, out_kick);
    return WEIR_LIKELY(walk->adaptive == 0) ? 0 : weir_walk_see(t, walk, q);
}

/* Judges and, if it is a take that passes, charges. */
unsigned weir_walk_decide(struct weir_table *t, const struct weir_question *q,
                          struct walk *walk, struct steps *steps,
                          weir_instant now)
{
    unsigned outcome;
    unsigned kick = 0; /* of all rounds: a later one doesn't request again */
    do {
        walk_begin(walk, t, now);
        walk->set = q->set;
        walk->stripe = q->stripe;
        bool passed = walk_up(t, q->stripe, q->ref.slot, q->ask.weight, walk);
        if (!weir_ref_is_live(t, q->ref))
            return WEIR_OUTCOME_STALE_REF | kick;
        if (WEIR_UNLIKELY(walk->away != 0) && !q->whole)
            return WEIR_OUTCOME_EXACT | kick;
        outcome =
            passed ? hold_walked(t, walk, q, &kick) : WEIR_OUTCOME_LIMITED;
        if (outcome == 0)
            outcome = step_walked(t, walk, steps, q);
        if (outcome == 0 && q->ask.op == WEIR_ALGORITHM_TAKE)
            outcome = charge_stepped(t, walk, steps, q);
        if (q->record && (outcome & (WEIR_OUTCOME_LIMITED | OUTCOME_MOVED)))
            kick |= weir_table_leave(t, q->record);
    } while (outcome == OUTCOME_MOVED);
    return outcome | kick;
}

/* Counts a take's refusal, or the refusals of its links in mode shadow. */
void weir_walk_count(struct weir_table *t, uint32_t stripe,
                     const struct walk *walk, uint64_t weight, unsigned outcome)
{
    if (walk->shadow != 0)
        count_shadow(t, stripe, walk, weight);
    if (outcome & WEIR_OUTCOME_LIMITED)
        refuse(t, stripe, walk->slot[0], walk->slot[walk->refuser], weight);
}

__attribute__((noinline)) unsigned weir_walk_ask(struct weir_table *t,
                                                 const struct weir_question *q,
                                                 struct weir_reply *reply,
                                                 weir_instant now)
{
    struct walk walk;
    struct steps steps;
    uint64_t weight = q->ask.weight;
    unsigned outcome = weir_walk_decide(t, q, &walk, &steps, now);
    if (outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_EXACT))
        return outcome;
    if (q->ask.op == WEIR_ALGORITHM_TAKE) {
        if (walk.skip & 1)
            weir_placeholder_count(t, q->stripe, q->ref.slot);
        bool limited = outcome & WEIR_OUTCOME_LIMITED;
        if (!q->turn || !limited || !weir_walk_tell_turn(t, &walk, q))
            weir_walk_count(t, q->stripe, &walk, weight, outcome);
    }
    if (!reply)
        return outcome;
    bool passed = !(outcome & WEIR_OUTCOME_LIMITED);
    weir_walk_explain(t, q->stripe, &walk, weight, passed, reply);
    reply->level = passed ? steps.level : 0;
    return outcome;
}

/* Links of the shadow set that a store decides pass: no caller should wait for
 * an answer that doesn't change its verdict. */
unsigned weir_slot_take_shadow(struct weir_table *t, uint32_t stripe,
                               struct weir_ref ref, uint64_t weight,
                               weir_instant now)
{
    struct walk walk;
    struct steps steps;
    struct weir_question q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_TAKE, .weight = clipped(weight) },
        .set = SHADOW,
        .whole = true,
    };
    unsigned outcome = weir_walk_decide(t, &q, &walk, &steps, now);
    if (!(outcome & WEIR_OUTCOME_STALE_REF))
        weir_walk_count(t, stripe, &walk, q.ask.weight, outcome);
    return outcome;
}

__attribute__((noinline)) static unsigned take_slowly(
    struct weir_table *t, uint32_t stripe, struct weir_ref ref, uint64_t weight,
    struct weir_reply *reply, weir_instant now)
{
    struct weir_question q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_TAKE, .weight = clipped(weight) },
    };
    return weir_walk_ask(t, &q, reply, now) | weir_shadow_outcome(t);
}

/* The end of a take that passes, of a link without a parent. */
INLINE unsigned charge_alone(struct weir_table *t, struct weir_ref ref,
                             uint64_t weight)
{
    struct hot *hot = weir_hot(t, ref.slot);
    uint64_t count = weir_fetch_add(&hot->count, weight) + weight;
    if (WEIR_UNLIKELY(!weir_ref_is_live(t, ref))) {
        weir_fetch_sub(&hot->count, weight);
        return WEIR_OUTCOME_STALE_REF;
    }
    return is_near(hot, count) ? touch(t, ref.slot, count) : 0;
}

/* The take of a chain after its first link passed, or of a single link that was
 * empty; 'lift': whether the first link was empty. */
__attribute__((noinline)) static unsigned take_chain(
    struct weir_table *t, uint32_t stripe, struct weir_ref ref, uint64_t weight,
    uint32_t lift, weir_instant now)
{
    struct walk walk;
    walk.elapsed = weir_elapsed(t, now);
    walk.slot[0] = ref.slot;
    uint32_t links = 1;
    struct hot *own = weir_hot(t, ref.slot);
    uint32_t slot = weir_parent(own);
    struct look look;
    if (slot == WEIR_SLOT_NONE &&
        judge(own, walk.elapsed, weight, &look) == IDLE &&
        lift_seen(own, &look))
        return charge_alone(t, ref, weight);
    while (slot != WEIR_SLOT_NONE && links < WEIR_DEPTH_MAX) {
        const struct hot *hot = weir_hot(t, slot);
        uint64_t up = weir_load_relaxed(&hot->up);
        prefetch_above(t, up);
        enum judged judged = judge(hot, walk.elapsed, weight, &look);
        if (WEIR_UNLIKELY(judged == OVER && weir_ref_is_live(t, ref)))
            return refuse(t, stripe, ref.slot, slot, weight);
        if (WEIR_UNLIKELY(judged >= OVER))
            return take_slowly(t, stripe, ref, weight, NULL, now);
        lift |= (uint32_t)(judged == IDLE) << links;
        walk.slot[links++] = slot;
        slot = (uint32_t)up;
    }
    walk.links = links;
    walk.lift = lift;
    walk.skip = 0;
    unsigned outcome = charge_walked(t, &walk, ref, weight);
    if (WEIR_LIKELY(outcome != OUTCOME_MOVED))
        return outcome;
    return take_slowly(t, stripe, ref, weight, NULL, now);
}

/* A single link that is not near any bound, or refuses for certain, is decided
 * here; other cases pass the arguments on in their registers. */
unsigned weir_table_take(struct weir_table *t, uint32_t stripe,
                         struct weir_ref ref, uint64_t weight,
                         struct weir_reply *reply, weir_instant now)
{
    if (WEIR_UNLIKELY(reply != NULL || weight > WEIR_WEIGHT_MAX ||
                      weir_load_relaxed(&t->shadows) != 0))
        return take_slowly(t, stripe, ref, weight, reply, now);
    struct hot *hot = weir_hot(t, ref.slot);
    uint64_t up = weir_load_relaxed(&hot->up);
    prefetch_above(t, up);
    struct look look;
    enum judged judged = judge(hot, weir_elapsed(t, now), weight, &look);
    if (WEIR_UNLIKELY(judged == HARD))
        return take_slowly(t, stripe, ref, weight, reply, now);
    if (judged == OVER)
        return weir_ref_is_live(t, ref)
                   ? count_refused(t, stripe, ref.slot, weight)
                   : WEIR_OUTCOME_STALE_REF;
    if (judged == IDLE || (uint32_t)up != WEIR_SLOT_NONE)
        return take_chain(t, stripe, ref, weight, judged == IDLE, now);
    return charge_alone(t, ref, weight);
}

unsigned weir_table_peek(struct weir_table *t, uint32_t stripe,
                         struct weir_ref ref, uint64_t weight,
                         struct weir_reply *reply, weir_instant now)
{
    struct weir_question q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_PEEK, .weight = clipped(weight) },
    };
    return weir_walk_ask(t, &q, reply, now);
}

/* ---- Charge, refund, reserve ---- */

/* Reads the chain without judging it. */
static void walk_plainly(struct weir_table *t, struct weir_ref ref,
                         weir_instant now, struct walk *walk)
{
    walk_begin(walk, t, now);
    uint32_t slot = ref.slot;
    do {
        struct look look;
        weir_slot_read(t, slot, walk->elapsed, &look);
        /* A reservation waits for its turn under `hold` too. */
        note_flags(walk, look.flags & ~META_HOLD, 1u << walk->links);
        if (look.fill < 0)
            walk->lift |= 1u << walk->links;
        walk->slot[walk->links++] = slot;
        slot = weir_parent(weir_hot(t, slot));
    } while (slot != WEIR_SLOT_NONE && walk->links < WEIR_DEPTH_MAX);
}

/* The part of 'weight' that fits below the bound of debt. */
static uint64_t below_debt(const struct look *look, uint64_t weight)
{
    if (weir_slot_read_is_endless(look))
        return weight;
    int64_t debt = (int64_t)(WEIR_DEBT_MAX << look->leak.frac);
    int64_t high = look->high > 0 ? look->high : 0;
    int64_t fill = look->fill > 0 ? look->fill : 0;
    if (fill >= high + debt)
        return 0;
    uint64_t room = (uint64_t)(high + debt - fill) >> look->leak.frac;
    return weight < room ? weight : room;
}

/* A unit that is only partly in the bucket is given back whole: the lift
 * removes the part below empty again. */
static uint64_t above_empty(const struct look *look, uint64_t weight)
{
    if (look->fill <= 0)
        return 0;
    uint64_t one = (uint64_t)1 << look->leak.frac;
    uint64_t in = ((uint64_t)look->fill + one - 1) >> look->leak.frac;
    return weight < in ? weight : in;
}

/* Charges each link as much as it can take, or gives back; as charge_walked(),
 * but the amount differs from link to link. */
static unsigned move_walked(struct weir_table *t, const struct walk *walk,
                            struct weir_ref ref, uint64_t weight, bool back)
{
    uint64_t moved[WEIR_DEPTH_MAX] = { 0 };
    unsigned outcome = 0;
    uint32_t i = walk->links;
    bool whole = true;
    while (whole && i-- > 0) {
        uint32_t slot = walk->slot[i];
        if (walk->lift >> i & 1)
            weir_slot_lift(t, slot, walk->elapsed);
        struct look look;
        weir_slot_read(t, slot, walk->elapsed, &look);
        if (!(walk->skip >> i & 1)) {
            moved[i] = back ? (uint64_t)0 - above_empty(&look, weight)
                            : below_debt(&look, weight);
            outcome |= add(t, slot, moved[i]);
        }
        whole = !has_moved(t, walk, i);
    }
    if (whole && weir_ref_is_live(t, ref))
        return outcome;
    for (i = 0; i < walk->links; i++)
        weir_fetch_sub(&weir_hot(t, walk->slot[i])->count, moved[i]);
    return OUTCOME_MOVED;
}

/* Charges or gives back along the chain, whatever its fills. */
unsigned weir_walk_move(struct weir_table *t, const struct weir_question *q,
                        struct walk *walk, struct steps *steps,
                        weir_instant now)
{
    bool back = q->ask.op == WEIR_ALGORITHM_REFUND;
    unsigned outcome;
    do {
        walk_plainly(t, q->ref, now, walk);
        walk->stripe = q->stripe;
        if (!weir_ref_is_live(t, q->ref))
            return WEIR_OUTCOME_STALE_REF;
        if (walk->away != 0 && !q->whole)
            return WEIR_OUTCOME_EXACT;
        outcome = step_walked(t, walk, steps, q);
        if (outcome == OUTCOME_MOVED)
            continue;
        outcome = move_walked(t, walk, q->ref, q->ask.weight, back);
        if (outcome == OUTCOME_MOVED)
            weir_walk_step_back(t, walk, steps, &q->ask);
    } while (outcome == OUTCOME_MOVED);
    return outcome;
}

static unsigned move(struct weir_table *t, uint32_t stripe, struct weir_ref ref,
                     struct weir_algorithm_ask ask, weir_instant now)
{
    struct walk walk;
    struct steps steps;
    struct weir_question q = { .stripe = stripe, .ref = ref, .ask = ask };
    return weir_walk_move(t, &q, &walk, &steps, now) | weir_shadow_outcome(t);
}

unsigned weir_table_charge(struct weir_table *t, uint32_t stripe,
                           struct weir_ref ref, uint64_t weight,
                           weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_CHARGE,
                                      .weight = clipped(weight) };
    return move(t, stripe, ref, ask, now);
}

unsigned weir_table_refund(struct weir_table *t, uint32_t stripe,
                           struct weir_ref ref, uint64_t weight,
                           weir_instant now)
{
    struct weir_algorithm_ask ask = { .op = WEIR_ALGORITHM_REFUND,
                                      .weight = clipped(weight) };
    return move(t, stripe, ref, ask, now);
}

/* The wait that one link demands of a reservation, or WEIR_NEVER. */
static weir_duration link_wait(const struct look *look, uint64_t weight)
{
    if ((look->flags & (META_OFF | META_SHADOW | META_PASS)) ||
        weir_slot_read_is_endless(look))
        return 0;
    int64_t scaled = (int64_t)(weight << look->leak.frac);
    if ((look->flags & META_LIMIT) || scaled > look->high)
        return WEIR_NEVER;
    if (below_debt(look, weight) < weight)
        return WEIR_NEVER;
    int64_t fill = look->fill > 0 ? look->fill : 0;
    if ((look->flags & META_INFLIGHT) && fill + scaled > look->high)
        return WEIR_NEVER; /* it is unknown when a permit leaves */
    return weir_leak_time(look->leak, fill + scaled - look->high);
}

/* The wait that the whole chain demands; the link with the longest one is the
 * refuser if that is too long. */
static weir_duration walk_wait(const struct weir_table *t, struct walk *walk,
                               uint64_t weight)
{
    weir_duration wait = 0;
    walk->refuser = 0;
    for (uint32_t i = 0; i < walk->links; i++) {
        struct look look;
        weir_slot_read(t, walk->slot[i], walk->elapsed, &look);
        uint64_t stop = weir_load_relaxed(&weir_hot(t, walk->slot[i])->stop);
        weir_duration link = link_wait(&look, weight);
        if (!weir_slot_read_is_endless(&look) &&
            (int64_t)(look.count - stop) >= 0 && link < STOP_RETRY)
            link = STOP_RETRY;
        if (link <= wait)
            continue;
        wait = link;
        walk->refuser = i;
    }
    return wait;
}

/* First the buckets' wait, which charges nothing; then the bucket states, which
 * charge a reservation that they accept. */
static unsigned reserve_walked(struct weir_table *t,
                               const struct weir_question *q, struct walk *walk,
                               struct steps *steps)
{
    weir_duration wait = walk_wait(t, walk, q->ask.weight);
    *steps = (struct steps){ .wait = wait };
    if (!weir_ref_is_live(t, q->ref))
        return WEIR_OUTCOME_STALE_REF;
    if (wait > q->ask.wait_max || wait == WEIR_NEVER)
        return WEIR_OUTCOME_LIMITED;
    if (walk->adaptive != 0 && weir_walk_see(t, walk, q) != 0)
        return WEIR_OUTCOME_LIMITED;
    unsigned outcome = step_walked(t, walk, steps, q);
    if (wait > steps->wait)
        steps->wait = wait;
    return outcome == 0 ? charge_stepped(t, walk, steps, q) : outcome;
}

unsigned weir_walk_reserve(struct weir_table *t, const struct weir_question *q,
                           struct walk *walk, struct steps *steps,
                           weir_instant now)
{
    unsigned outcome;
    do {
        walk_plainly(t, q->ref, now, walk);
        walk->stripe = q->stripe;
        if (walk->away != 0 && !q->whole)
            return weir_ref_is_live(t, q->ref) ? WEIR_OUTCOME_EXACT
                                               : WEIR_OUTCOME_STALE_REF;
        outcome = reserve_walked(t, q, walk, steps);
    } while (outcome == OUTCOME_MOVED);
    if (outcome & WEIR_OUTCOME_LIMITED)
        refuse(t, q->stripe, q->ref.slot, walk->slot[walk->refuser],
               q->ask.weight);
    return outcome;
}

unsigned weir_table_reserve(struct weir_table *t, uint32_t stripe,
                            struct weir_ref ref, uint64_t weight,
                            weir_duration wait_max, struct weir_reply *reply,
                            weir_instant now)
{
    struct walk walk;
    struct steps steps;
    struct weir_question q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_RESERVE,
                 .weight = clipped(weight),
                 .wait_max = wait_max },
    };
    unsigned outcome = weir_walk_reserve(t, &q, &walk, &steps, now);
    if (outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_EXACT))
        return outcome;
    if (walk.skip & 1)
        weir_placeholder_count(t, stripe, ref.slot);
    bool passed = !(outcome & WEIR_OUTCOME_LIMITED);
    weir_walk_explain(t, stripe, &walk, q.ask.weight, passed, reply);
    reply->wait = steps.wait;
    reply->level = passed ? steps.level : 0;
    return outcome | weir_shadow_outcome(t);
}

unsigned weir_slot_reserve_shadow(struct weir_table *t, uint32_t stripe,
                                  struct weir_ref ref, uint64_t weight,
                                  weir_duration wait_max, weir_instant now)
{
    struct walk walk;
    struct steps steps;
    struct weir_question q = {
        .stripe = stripe,
        .ref = ref,
        .ask = { .op = WEIR_ALGORITHM_RESERVE,
                 .weight = clipped(weight),
                 .wait_max = wait_max },
        .set = SHADOW,
        .whole = true,
    };
    return weir_walk_reserve(t, &q, &walk, &steps, now);
}
