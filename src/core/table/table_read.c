/* SPDX-License-Identifier: MIT
 * table/table_read.c - readers and markers of a slot that every file uses.
 *
 * Notifying the sync. 'stop' is the count at which takes are refused until a
 * root answers. 'report_within' is the distance before 'stop' from which a take
 * must notify the sync. It begins as "always", so that the next take marks the
 * slot in the dirty bits. The mark moves it to report_at, so that the take that
 * crosses report_at requests an early report. One comparison in the hot path
 * serves both. */

#include "core/table/table_read.h"
#include "core/table/table_permit.h"

/* ---- Reading ---- */

bool weir_table_ref_lives(const struct weir_table *t, struct weir_ref ref)
{
    return ref.slot < t->slots && weir_ref_is_live(t, ref);
}

uint32_t weir_table_used(const struct weir_table *t)
{
    return weir_load_acquire(&t->used);
}

uint32_t weir_table_live(const struct weir_table *t)
{
    return weir_load_relaxed(&t->live);
}

/* Reads the parameters in the spare, while a writer rewrites the slot's line or
 * after it was killed there. */
void weir_slot_read_spare(const struct weir_table *t, uint32_t slot,
                          uint64_t elapsed, struct slot_read *out)
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

uint64_t weir_table_count(const struct weir_table *t, uint32_t slot)
{
    /* Relaxed: a read concurrent with an edit counts as before or after it. */
    if (weir_load_relaxed(&weir_hot(t, slot)->meta) & META_INFLIGHT)
        return weir_load(&weir_inflight(t, slot)->in_flight);
    return weir_load(&weir_hot(t, slot)->count);
}

uint64_t weir_table_in_flight(const struct weir_table *t, uint32_t slot)
{
    return weir_load(&weir_inflight(t, slot)->in_flight);
}

bool weir_slot_has_permits(const struct weir_table *t, uint32_t slot)
{
    return weir_load(&weir_inflight(t, slot)->in_flight) != 0;
}

bool weir_table_is_below(const struct weir_table *t, uint32_t slot,
                         uint32_t above)
{
    const struct hot *hot = weir_hot(t, slot);
    if (!(weir_load_acquire(&hot->generation) & 1))
        return false;
    uint32_t up = weir_parent(hot);
    /* Between two edits the parents may form a cycle. */
    for (int i = 0; up != WEIR_SLOT_NONE && i < WEIR_DEPTH_MAX; i++) {
        if (up == above)
            return true;
        up = weir_parent(weir_hot(t, up));
    }
    return false;
}

/* ---- Marks ---- */

bool weir_slot_mark(struct weir_table *t, uint32_t slot)
{
    if (weir_bit_of(t, BITS_MARKED, slot))
        return false;
    weir_fetch_or(&weir_bits(t, BITS_MARKED)[slot / 64],
                  (uint64_t)1 << (slot % 64));
    return true;
}

void weir_table_mark(struct weir_table *t, uint32_t slot)
{
    weir_slot_mark(t, slot);
}

void weir_table_mark_chain(struct weir_table *t, uint32_t slot)
{
    /* Between two edits the parents may form a cycle. */
    for (unsigned i = 0; slot != WEIR_SLOT_NONE && i < WEIR_DEPTH_MAX; i++) {
        weir_slot_mark(t, slot);
        slot = weir_parent(weir_hot(t, slot));
    }
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
__attribute__((noinline)) unsigned weir_slot_touch(struct weir_table *t,
                                                   uint32_t slot,
                                                   uint64_t count)
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

unsigned weir_slot_note(struct weir_table *t, uint32_t slot, uint64_t count)
{
    return weir_slot_is_near(weir_hot(t, slot), count)
               ? weir_slot_touch(t, slot, count)
               : 0;
}

/* ---- The fill ---- */

void weir_slot_lift(struct weir_table *t, uint32_t slot, uint64_t elapsed)
{
    struct hot *hot = weir_hot(t, slot);
    struct slot_read read;
    do {
        weir_slot_read(t, slot, elapsed, &read);
    } while (read.fill < 0 && !weir_slot_lift_read(hot, &read));
}

void weir_table_add_others(struct weir_table *t, uint32_t slot, int64_t scaled)
{
    weir_fetch_add(&weir_hot(t, slot)->base, (uint64_t)scaled << 1);
}
