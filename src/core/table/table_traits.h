/* SPDX-License-Identifier: MIT
 * table/table_traits.h - a cold slot's byte of traits: sharing, on_stale, and
 * two bits.
 *
 * It is written under the writer lock. Views read it without the lock, so each
 * write is of the whole byte. */

#ifndef WEIR_TABLE_TRAITS_H
#define WEIR_TABLE_TRAITS_H

#include "core/table/table_layout.h"

#define TRAIT_SEEN 0x40     /* the whole set under way has named it */
#define TRAIT_UNPINNED 0x80 /* its last handle was closed */
#define TRAIT_RULE 0x3f
static inline enum weir_sharing weir_sharing_of(const struct cold *cold)
{
    return (enum weir_sharing)(weir_load_relaxed(&cold->traits) & 7);
}
static inline enum weir_on_stale weir_on_stale_of(const struct cold *cold)
{
    return (enum weir_on_stale)(weir_load_relaxed(&cold->traits) >> 3 & 7);
}
static inline bool weir_trait_get(const struct cold *cold, uint8_t trait)
{
    return weir_load_relaxed(&cold->traits) & trait;
}
static inline void weir_trait_set(struct cold *cold, uint8_t trait, bool on)
{
    uint8_t others = weir_load_relaxed(&cold->traits) & (uint8_t)~trait;
    weir_store_relaxed(&cold->traits, (uint8_t)(others | (on ? trait : 0)));
}
static inline void weir_trait_rule(struct cold *cold, enum weir_sharing sharing,
                                   enum weir_on_stale on_stale)
{
    uint8_t others = weir_load_relaxed(&cold->traits) & (uint8_t)~TRAIT_RULE;
    weir_store_relaxed(&cold->traits,
                       (uint8_t)(others | sharing | on_stale << 3));
}

#endif /* WEIR_TABLE_TRAITS_H */
