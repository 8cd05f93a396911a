/* SPDX-License-Identifier: MIT
 * node/limiter_denied.c - names that a root denies to this limiter's
 * credential.
 *
 * A credential that may take from a quota may name the quotas above it, but a
 * root knows them to be above only once it has heard a name below
 * (node/root_names.c). A limiter whose table has such a name tells it with its
 * next report; the root then takes what it denied before, since the limiter
 * says that again. So a denial is an event at once where the table has nothing
 * below the name, and otherwise only if it is repeated after DENIED_GRACE.
 *
 * A name below may itself be denied, as one that a caller made up, so each
 * denial tells another one, and none that was denied lately. The table is
 * walked for it, once in BELOW_EVERY on average, and BELOW_BURST times in a
 * row. */

#include "base/hash.h"
#include "node/limiter_state.h"

#define DENIED_GRACE WEIR_SECOND
#define BELOW_EVERY (50 * WEIR_MILLISECOND)
#define BELOW_BURST (16 * BELOW_EVERY)

static uint64_t hash_of(struct weir_text name)
{
    return weir_hash(name, 0) | 1; /* never 0 */
}

static struct limiter_denied *find(struct weir_limiter *limiter,
                                   struct weir_text name)
{
    uint64_t hash = hash_of(name);
    for (uint32_t i = 0; i < LIMITER_DENIED_MAX; i++)
        if (limiter->denied[i].hash == hash)
            return &limiter->denied[i];
    return NULL;
}

static struct limiter_denied *remember(struct weir_limiter *limiter,
                                       struct weir_text name, weir_instant now)
{
    struct limiter_denied *denied =
        &limiter->denied[limiter->denied_next++ % LIMITER_DENIED_MAX];
    *denied = (struct limiter_denied){ .hash = hash_of(name), .first = now };
    return denied;
}

/* Writes the next name below 'above' that wasn't denied, from the hand on and
 * around; its length, 0 if there is none. */
static size_t next_below(struct weir_limiter *limiter, uint32_t above,
                         char buf[WEIR_NAME_MAX + 1])
{
    uint32_t slot = limiter->below_hand;
    for (int round = 0; round < 2; round++, slot = 0) {
        while ((slot = weir_table_below(limiter->table, above, slot)) !=
               WEIR_SLOT_NONE) {
            size_t len = weir_table_name(limiter->table, slot++, buf);
            if (len == 0 || find(limiter, (struct weir_text){ buf, len }))
                continue;
            limiter->below_hand = slot;
            return len;
        }
    }
    return 0;
}

/* Whether the root can still learn that the name may be taken from. */
static bool is_open(struct weir_limiter *limiter, uint32_t index,
                    struct weir_text name, weir_instant now)
{
    struct limiter_link *link = &limiter->link[index];
    struct weir_ref ref;
    if (!weir_table_find(limiter->table, name, &ref))
        return false;
    if (limiter->below_at > now + BELOW_BURST)
        return true;
    limiter->below_at = weir_later(limiter->below_at, now) + BELOW_EVERY;
    link->below_len = next_below(limiter, ref.slot, link->below);
    link->urgent |= link->below_len > 0;
    return link->below_len > 0;
}

void weir_limiter_note_denied(struct weir_limiter *limiter, uint32_t link,
                              struct weir_text name, weir_instant now)
{
    struct limiter_denied *denied = find(limiter, name);
    bool open = is_open(limiter, link, name, now);
    if (!denied)
        denied = remember(limiter, name, now);
    if (denied->told || (open && now - denied->first < DENIED_GRACE))
        return;
    denied->told =
        weir_limiter_note(limiter, WEIR_EVENT_DENIED, name, now) != NULL;
}

struct weir_text weir_limiter_below(struct weir_limiter *limiter, uint32_t link)
{
    struct weir_text below = { limiter->link[link].below,
                               limiter->link[link].below_len };
    limiter->link[link].below_len = 0;
    return below;
}
