/* SPDX-License-Identifier: MIT
 * table/table_peek.c - peeks by name, of which no count tells the roots, and
 * whether the roots have been heard about a slot. */

#include "core/table/table_read.h"

/* ---- Heard ---- */

void weir_table_set_reported(struct weir_table *t, bool reported)
{
    weir_store_relaxed(&t->reported, reported);
}

void weir_table_set_heard(struct weir_table *t, uint32_t slot, bool heard)
{
    weir_assert(slot < t->slots);
    uint64_t *word = &weir_bits(t, BITS_HEARD)[slot / 64];
    uint64_t bit = (uint64_t)1 << (slot % 64);
    uint64_t before = weir_load(word);
    while (!(before & bit) == heard && !weir_cas(word, &before, before ^ bit))
        ;
}

/* ---- Peeks ---- */

/* Of a leased slot: the heaviest peek by name since the limiter's last look,
 * weight << 1 | 1 if it was refused; 0: none. */
static uint32_t *peek_of(const struct weir_table *t, uint32_t slot)
{
    weir_assert(slot < t->slots);
    return (uint32_t *)weir_table_at(t, t->peeks_at) + slot;
}

/* Keeps the heavier one; if two threads write at once, one of the two. */
static void note_peek(struct weir_table *t, uint32_t slot, uint32_t peek)
{
    uint32_t *peeked = peek_of(t, slot);
    if (weir_load_relaxed(peeked) < peek)
        weir_store_relaxed(peeked, peek);
}

/* A chain that was marked already, or whose report comes anyway, wakes no one:
 * see weir_slot_touch(). */
unsigned weir_table_note_peek(struct weir_table *t, uint32_t slot,
                              uint64_t weight, bool limited)
{
    uint32_t units = weight < WEIR_PEEK_MAX ? (uint32_t)weight : WEIR_PEEK_MAX;
    uint32_t peek = (units > 0 ? units : 1) << 1 | limited;
    bool leased = weir_load_relaxed(&t->leased) != 0;
    bool marked = false;
    /* Between two edits the parents may form a cycle. */
    for (unsigned i = 0; slot != WEIR_SLOT_NONE && i < WEIR_DEPTH_MAX; i++) {
        if (leased && weir_table_leasing(t, slot) != WEIR_LEASING_NONE)
            note_peek(t, slot, peek);
        marked |= weir_slot_mark(t, slot);
        slot = weir_parent(weir_hot(t, slot));
    }
    /* Sequentially consistent, after the marks. */
    if (!marked || weir_load(&t->reporting) || weir_load_relaxed(&t->urgent))
        return 0;
    return weir_exchange(&t->urgent, 1) ? 0 : WEIR_OUTCOME_KICK;
}

bool weir_table_is_peeked(const struct weir_table *t, uint32_t slot)
{
    return weir_load_relaxed(peek_of(t, slot)) != 0;
}

uint64_t weir_table_end_peek(struct weir_table *t, uint32_t slot,
                             bool *out_limited)
{
    uint32_t *peeked = peek_of(t, slot);
    /* Relaxed: a peek that comes at this moment is seen at the next look. */
    uint32_t peek =
        weir_load_relaxed(peeked) != 0 ? weir_exchange(peeked, 0) : 0;
    *out_limited = peek & 1;
    return peek >> 1;
}
