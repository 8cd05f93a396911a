/* SPDX-License-Identifier: MIT
 * libweir/limiter_view.c - consistent copies for views: slots under the table's
 * writer lock; roots under the limiter's mutex, where the background thread
 * publishes their state. */

#include "libweir/limiter_view.h"

#include "core/base/atomic.h"
#include "core/table/table_share.h"
#include "libweir/libweir_internal.h"

uint32_t weir_limiter_view_slots(const struct weir *weir)
{
    return weir_table_used(weir->table);
}

bool weir_limiter_view_at(struct weir *weir, uint32_t slot,
                          struct weir_slot_details *out, weir_instant now)
{
    weir_own_ensure(weir);
    return weir_table_details(weir->table, weir->process, slot, out, now);
}

size_t weir_limiter_view_name(const struct weir *weir, uint32_t slot, char *buf)
{
    return weir_table_name(weir->table, slot, buf);
}

bool weir_limiter_view_find(struct weir *weir, struct weir_text name, bool make,
                            struct weir_slot_details *out, uint32_t *out_slot,
                            weir_instant now)
{
    struct weir_ref ref;
    bool found =
        weir_table_find(weir->table, name, &ref) ||
        (make && weir_table_resolve_as(weir->table, weir->process, name, false,
                                       &ref, now) == WEIR_RESOLVED);
    if (!found || !weir_limiter_view_at(weir, ref.slot, out, now))
        return false;
    *out_slot = ref.slot;
    /* The slot may have changed hands in between. */
    return weir_text_equal(name,
                           (struct weir_text){ out->name, out->name_len });
}

uint32_t weir_limiter_view_roots(struct weir *weir,
                                 struct weir_limiter_view_root *out)
{
    weir_own_ensure(weir);
    pthread_mutex_lock(&weir->mutex);
    uint32_t count = 0;
    for (uint32_t i = 0; i < weir->link_count; i++)
        if (weir->link[i].seen.address[0])
            out[count++] = weir->link[i].seen;
    pthread_mutex_unlock(&weir->mutex);
    return count;
}

uint32_t weir_limiter_view_fleet(const struct weir *weir)
{
    return weir_load_relaxed(&weir->fleet); /* of a moment ago */
}
